"""The ``subspace`` method: erase the concept's directions, keep the leading ones of the rest, add noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vecveil.errors import CalibrationError, InvalidInputError
from vecveil.protector.candidate import Candidate, CommonDraws
from vecveil.protector.scale import SMALLEST_NOISE, refuse_target
from vecveil.protector.search import SubspaceSearch
from vecveil.protector.subspace_settings import (
    Setting,
    directions_of,
    evidence_of,
    gentle_settings,
    map_of_setting,
    setting_of,
)
from vecveil.sensitivity.linear_map import LinearMap
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.validation import check_count, check_positive

if TYPE_CHECKING:
    from vecveil.protector.methods import FitData

__all__ = ["subspace_candidate"]

LEAST_STRENGTH = 1e-6
"""Share of the strongest direction's strength below which a label direction is rounding."""


def subspace_candidate(data: FitData, options: dict[str, Any]) -> Candidate:
    """Return the setting that is given, or the best that is found with what is given."""
    n = data.dimension
    if n < 2:
        raise InvalidInputError.of(
            "fit", "positive", "of dimension 2 or more for method 'subspace'", n
        )
    fixed: dict[str, Any] = {}
    if options.get("rank") is not None:
        fixed["rank"] = check_count(
            options["rank"], owner="fit", param="rank", minimum=1, maximum=n - 1
        )
    if options.get("kept") is not None:
        most = n - fixed.get("rank", 1)
        fixed["kept"] = check_count(
            options["kept"], owner="fit", param="kept", minimum=1, maximum=most
        )
    if options.get("flattening") is not None:
        fixed["flattening"] = check_positive(
            options["flattening"], owner="fit", param="flattening", allow_zero=True
        )
    if options.get("pairs") is not None:
        if not isinstance(options["pairs"], bool):
            got = type(options["pairs"]).__name__
            raise InvalidInputError.of("fit", "pairs", "True, False or None", got)
        fixed["pairs"] = options["pairs"]
    if options.get("gradients") is not None:
        fixed["gradients"] = check_count(
            options["gradients"], owner="fit", param="gradients", minimum=0,
            maximum=fixed.get("rank", n - 1),
        )  # fmt: skip
    transplants = options.get("transplants")
    if transplants is not None and not isinstance(transplants, bool):
        got = type(transplants).__name__
        raise InvalidInputError.of("fit", "transplants", "True, False or None", got)
    if data.negative is None:
        _labels_only(data, fixed, made_up=bool(transplants))
    if fixed.keys() >= {"rank", "kept", "flattening", "pairs"}:
        return _of_setting(data, Setting(**fixed), transplants=bool(transplants))
    made_up = bool(transplants)
    search = SubspaceSearch(
        data.positive, data.negative, data.token_labels, data.background,
        task=data.task, groups=data.groups, seed=data.seed, transplants=made_up,
    )  # fmt: skip
    target = data.scale.target_utility
    try:
        best = search.run(data.scale, fixed, show_progress=data.show_progress)
    except CalibrationError:
        assert target is not None
        raise _refusal(data, search, target) from None
    data.findings["search"] = search.tried
    if target is None:
        return _of_setting(data, best, transplants=made_up)
    # Fitted on all texts a map can cost a little more than it did on the fitting part.
    free = not fixed.keys() & {"rank", "kept", "flattening"}
    fallback = gentle_settings(n, pairs=best.pairs) if free else []
    if data.negative is None and "kept" not in fixed:
        fallback = [Setting(best.rank, n - best.rank, fixed.get("flattening", 0.0), pairs=False)]
    for setting in (*search.ranking(), *fallback):
        candidate = _of_setting(data, setting, transplants=made_up)
        if _most_utility(data, candidate) >= target:
            return candidate
    raise _refusal(data, search, target)


def _labels_only(data: FitData, fixed: dict[str, Any], *, made_up: bool) -> None:
    """Set the number of directions to that of the labels': one less than the classes, and no more have a meaning."""
    for param, asked in (("pairs", fixed.get("pairs")), ("transplants", made_up)):
        if asked:
            data.pairs(param, asked)
    strengths = directions_of(data.moments, pairs=False).strengths
    told = int((strengths > LEAST_STRENGTH * strengths[0]).sum())
    most = min(told, data.dimension - 1)
    rank = fixed.setdefault("rank", most)
    if rank > most:
        raise InvalidInputError.of("fit", "rank", f"at most {most}", rank,
                                   "The labels tell texts apart in no more directions.")  # fmt: skip
    fixed["pairs"] = False
    fixed.setdefault("gradients", 0)


def _of_setting(data: FitData, setting: Setting, *, transplants: bool) -> Candidate:
    n = data.dimension
    moments = data.transplanted if transplants else data.moments
    directions = directions_of(moments, pairs=setting.pairs)
    evidence = evidence_of(data.positive, data.negative, data.token_labels)
    directions, exact = map_of_setting(setting, directions, evidence, seed=data.seed)
    linear = LinearMap.quantised(exact.down, exact.up, norm=data.moments.rms_norm)
    data.findings["residual_after_erasure"] = directions.residual(setting.rank)
    return Candidate(
        shape=NoiseShape.isotropic(n),
        map_of=lambda _: linear,
        parameters={**vars(setting), "transplants": transplants},
    )


def _most_utility(data: FitData, candidate: Candidate) -> float:
    """Return the share of the clean utility that is left with the least noise that is tried."""
    draws = CommonDraws(
        candidate, data.moments.rms_norm, data.seed, reduced=not data.task.same_space
    )
    return data.task.relative(draws.at(SMALLEST_NOISE), np.random.default_rng(data.seed))


def _refusal(data: FitData, search: SubspaceSearch, target: float) -> CalibrationError:
    """Return the error that names what a setting reaches on the fitting part and on all texts."""
    reached = [
        min(_most_utility(data, _of_setting(data, setting_of(row), transplants=search.transplants)),
            1.0 if row["feasible"] else row["utility"])
        for row in search.tried
    ]  # fmt: skip
    return refuse_target(target, max(reached, default=0.0), "Method 'subspace'")
