"""The ``subspace`` method: erase the concept's directions, keep the leading others, add isotropic noise.

The method searches open parameters on the user's own texts. Half of the pairs fit the maps, three tenths train a
kernel reader on released vectors (`vecveil.sensitivity.kernel_reader`), one fifth tests it. An erasure works better
on the texts of its fit than on others, so no group of near-duplicates spans two parts.

Of the settings that reach the target utility, the search keeps those from which the reader recovers least, up to one
standard error. Among them it prefers, in this order, a noise of a tenth or more, the fewest released directions,
directions from a reader's gradients, and the most erased directions, because networks and readers of other texts
recover less after them. Without evidence, as on a few hundred texts, it releases least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import CalibrationError, InvalidInputError, wrong_type
from vecveil.protector.calibration import (
    SMALLEST_NOISE,
    CommonDraws,
    largest_noise,
    refuse_target,
)
from vecveil.protector.method import Candidate, FitData, Method, NoiseScale
from vecveil.protector.pairs import classes_of
from vecveil.runtime import progress
from vecveil.sensitivity.kernel_reader import (
    kernel_ridge_path,
    near_duplicate_groups,
    reader_gradients,
    share_recovered,
    standard_error,
)
from vecveil.sensitivity.linear_map import LinearMap
from vecveil.sensitivity.moments import Moments, cross_covariance, transplanted_moments
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.sensitivity.subspace import ConceptDirections, concept_directions, subspace_map
from vecveil.types import Embeddings, Groups, TokenLabels
from vecveil.validation import check_count, check_positive

__all__ = ["SUBSPACE", "directions_of"]

LEAST_STRENGTH = 1e-6
"""Label directions below this share of the strongest one's strength are rounding errors."""

STEPS = ((0.6, 1 / 8), (0.6, 1 / 12), (0.36, 1 / 16))
"""Erased directions as a share of the best setting's, and released ones as a share of all: erasing fewer
to release fewer at the same utility can leak less."""

GRADIENTS = 0.3
"""Share of the erased directions that a non-linear reader's gradients choose, if any."""

FLAT_RANK, FLAT_KEPT, FLAT_POWER = 0.2, 1 / 4, 1.1
"""Erased and released directions, as shares of all, and p of a flattened setting that the search also tries:
with few directions released, flattening costs no similarity."""

READER_ROWS = 1600
TEST_ROWS = 800
ENOUGH_NOISE = 0.1
"""Preferred least noise-to-signal ratio of equal settings: without noise an attacker can match a release
with a candidate text exactly."""

MAP_UTILITY = 0.95
"""With a given noise, least share of the utility at that noise that the map has to keep."""

Evidence = tuple[Embeddings, npt.NDArray[Any]]
"""Embeddings (N, n) and labels (N, V) of a reader's training."""


@dataclass(frozen=True)
class SubspaceSetting:
    """One setting of the concept subspace.

    Attributes:
        rank: k, number of erased directions.
        kept: m, number of released directions.
        flattening: p.
        pairs: True if pairs count besides token labels in the concept's covariance.
        gradients: number of the k directions that come from a non-linear reader, trained after erasing the others.
    """

    rank: int
    kept: int
    flattening: float
    pairs: bool
    gradients: int = 0

    @classmethod
    def of(cls, row: dict[str, Any]) -> SubspaceSetting:
        return cls(**{field.name: row[field.name] for field in fields(cls)})


def subspace_candidate(data: FitData, options: dict[str, Any]) -> Candidate:
    """Return the candidate of the best setting that agrees with the given options."""
    n = data.dimension
    if n < 2:
        raise InvalidInputError.of("fit", "positive", "of dimension 2 or more for method 'subspace'", n)
    labels = options.pop("preserve", None)
    if labels is not None:
        data = _preserving(data, labels)
    fixed, transplants = _checked_options(options, n)
    if data.negative is None:
        _fix_label_rank(data, fixed, transplants=transplants)
    # All fields are given: no search, and all texts fit the map.
    if fixed.keys() >= {"rank", "kept", "flattening", "pairs"}:
        return _candidate(data, SubspaceSetting(**fixed), transplants=transplants)
    search = SubspaceSearch(data, transplants=transplants)
    target = data.scale.target_utility
    try:
        best = search.run(data.scale, fixed, show_progress=data.show_progress)
    except CalibrationError:
        assert target is not None
        raise _refusal(data, search, target) from None
    data.findings["search"] = search.tried
    if target is None:
        return _candidate(data, best, transplants=transplants)
    # Fitted on all texts, a map can cost more utility than on the fitting part: take the best setting
    # that still reaches the target, then gentler ones.
    fallback: list[SubspaceSetting] = []
    if not fixed.keys() & {"rank", "kept", "flattening"}:
        fallback = gentle_settings(n, pairs=best.pairs)
    if data.negative is None and "kept" not in fixed:
        flattening = fixed.get("flattening", 0.0)
        fallback = [SubspaceSetting(best.rank, n - best.rank, flattening, pairs=False)]
    for setting in (*search.ranking(), *fallback):
        candidate = _candidate(data, setting, transplants=transplants)
        if _most_utility(data, candidate) >= target:
            return candidate
    raise _refusal(data, search, target)


def _preserving(data: FitData, labels: Any) -> FitData:
    """Return the data with the covariance of the task's classes in its moments."""
    rows, _ = data.pairs("preserve", "labels")
    if data.background is not None and hasattr(labels, "__len__") and len(labels) != len(rows):
        rows = np.concatenate([rows, data.background])
    marks = classes_of(labels, len(rows), owner="fit", param="preserve")
    held, classes = marks.any(axis=1), marks.shape[1]
    if not 1 < classes <= data.dimension // 4:
        most = data.dimension // 4
        raise InvalidInputError.of("fit", "preserve", f"2 to {most} classes", classes)
    data.findings["preserved"] = {"classes": classes, "texts": int(held.sum())}
    task = cross_covariance(rows[held], marks[held])
    return replace(data, moments=replace(data.moments, preserved=task))


def _checked_options(options: dict[str, Any], n: int) -> tuple[dict[str, Any], bool]:
    """Return the given fields of a setting, and whether to fit on transplants as well."""
    fixed = {key: value for key, value in options.items() if value is not None}
    transplants = fixed.pop("transplants", False)
    for param, value in (("pairs", fixed.get("pairs", False)), ("transplants", transplants)):
        if not isinstance(value, bool):
            raise wrong_type("fit", param, "True, False or None", value)
    def check(param: str, least: int, most: int) -> None:
        if param in fixed:
            fixed[param] = check_count(
                fixed[param], owner="fit", param=param, minimum=least, maximum=most
            )

    check("rank", 1, n - 1)
    check("kept", 1, n - fixed.get("rank", 1))
    check("gradients", 0, fixed.get("rank", n - 1))
    if "flattening" in fixed:
        fixed["flattening"] = check_positive(
            fixed["flattening"], owner="fit", param="flattening", allow_zero=True
        )
    return fixed, transplants


def _fix_label_rank(data: FitData, fixed: dict[str, Any], *, transplants: bool) -> None:
    """Fix the number of erased directions to that of the labels: one less than the classes."""
    for param, value in (("pairs", fixed.get("pairs")), ("transplants", transplants)):
        if value:
            data.pairs(param, value)
    strengths = directions_of(data.moments, pairs=False).strengths
    telling = int((strengths > LEAST_STRENGTH * strengths[0]).sum())
    most = min(telling, data.dimension - 1)
    rank = fixed.setdefault("rank", most)
    if rank > most:
        raise InvalidInputError.of("fit", "rank", f"at most {most}", rank,
                                   "The labels tell texts apart in no more directions.")  # fmt: skip
    fixed["pairs"] = False
    fixed.setdefault("gradients", 0)


def _candidate(data: FitData, setting: SubspaceSetting, *, transplants: bool) -> Candidate:
    """Return the candidate of a setting, fitted on all texts."""
    directions = directions_of(data.transplanted if transplants else data.moments, pairs=setting.pairs)
    evidence = _evidence(data.positive, data.negative, data.token_labels)
    directions, exact = _map(setting, directions, evidence, seed=data.seed)
    # Quantised, so that a release is the same on every machine.
    linear = LinearMap.quantised(exact.down, exact.up, norm=data.moments.rms_norm)
    data.findings["residual_after_erasure"] = directions.residual(setting.rank)
    parameters = {**vars(setting), "transplants": transplants}
    return Candidate(NoiseShape.isotropic(data.dimension), lambda _: linear, parameters)


def _most_utility(data: FitData, candidate: Candidate) -> float:
    """Return the share of the clean utility at the least noise of a calibration."""
    draws = CommonDraws(
        candidate, data.moments.rms_norm, data.seed, reduced=not data.task.same_space
    )
    return data.task.relative(draws.at(SMALLEST_NOISE), np.random.default_rng(data.seed))


def _refusal(data: FitData, search: SubspaceSearch, target: float) -> CalibrationError:
    """Return the error that names the best utility on both the fitting part and all texts."""
    reached = [
        min(_most_utility(data, _candidate(data, SubspaceSetting.of(row), transplants=search.transplants)),
            1.0 if row["feasible"] else row["utility"])
        for row in search.tried
    ]  # fmt: skip
    return refuse_target(target, max(reached, default=0.0), "Method 'subspace'")


def directions_of(moments: Moments, *, pairs: bool) -> ConceptDirections:
    """Return the concept directions, from labels alone or from labels and pairs."""
    if pairs or moments.B is None:
        return concept_directions(moments)
    return concept_directions(replace(moments, C=np.zeros_like(moments.C)))


def _evidence(
    positive: Embeddings, negative: Embeddings | None, labels: TokenLabels | None
) -> Evidence:
    """Return texts and their labels, or both sides of pairs and the side of each row."""
    if labels is not None:
        return positive, labels
    assert negative is not None
    marks = np.repeat([1, 0], [len(positive), len(negative)])[:, None]
    return np.concatenate([positive, negative]), marks


def _map(
    setting: SubspaceSetting, directions: ConceptDirections, evidence: Evidence, *, seed: int
) -> tuple[ConceptDirections, LinearMap]:
    """Return the directions in their order of erasure, and the map, not yet quantised."""
    kept = min(setting.kept, len(directions.K) - setting.rank)
    if setting.gradients:
        # Train the reader after the first erasure, so that its gradients show what that leaves.
        first = setting.rank - setting.gradients
        before = subspace_map(directions, erased=first, kept=kept, flattening=setting.flattening)
        moment = reader_gradients(*evidence, before, seed=seed)
        directions = directions.followed_by(moment, after=first)
    return directions, subspace_map(
        directions, erased=setting.rank, kept=kept, flattening=setting.flattening
    )


# -- the search: settings in four rounds, each around the best of the round before


def first_settings(n: int, fixed: dict[str, Any]) -> Iterator[SubspaceSetting]:
    """Yield numbers of erased directions, with and without flattening, at a medium truncation."""
    shares = (0.12, 0.16, 0.21, 0.28, 0.38)
    most = n - fixed.get("kept", 1)
    ranks = sorted({min(most, max(1, round(n * s))) for s in shares})
    if "rank" in fixed:
        ranks = [fixed["rank"]]
    flattenings = [fixed["flattening"]] if "flattening" in fixed else [0.0, 0.9]
    for rank in ranks:
        kept = fixed.get("kept", max(1, min(n - rank, round(n / 3))))
        for flattening in flattenings:
            gradients = min(rank, fixed.get("gradients", 0))
            yield SubspaceSetting(rank, kept, flattening, fixed.get("pairs", True), gradients)


def gentle_settings(n: int, *, pairs: bool) -> list[SubspaceSetting]:
    """Return settings that erase little and keep the rest, for demanding targets."""
    ranks = sorted({max(1, round(n * share)) for share in (0.01, 0.03, 0.07)}, reverse=True)
    return [SubspaceSetting(rank, n - rank, 0.0, pairs) for rank in ranks if rank < n]


def second_settings(
    n: int, best: SubspaceSetting, fixed: dict[str, Any], *, labels: bool
) -> Iterator[SubspaceSetting]:
    """Yield truncations, a weaker flattening, and labels without pairs, around the best first setting."""
    if "kept" not in fixed:
        for m in sorted({max(1, min(n - best.rank, round(n * s))) for s in (0.25, 0.5, 1.0)}):
            yield replace(best, kept=m)
    if "flattening" not in fixed and best.flattening > 0:
        yield replace(best, flattening=0.5)
    if "pairs" not in fixed and labels:
        yield replace(best, pairs=False)


def third_settings(n: int, best: SubspaceSetting) -> Iterator[SubspaceSetting]:
    """Yield settings that erase and release fewer directions than the best one so far."""
    for share, kept_share in STEPS:
        rank, kept = max(1, round(best.rank * share)), max(1, round(n * kept_share))
        if kept < min(best.kept, n - rank + 1):
            yield replace(best, rank=rank, kept=kept, gradients=min(rank, best.gradients))


def fourth_settings(
    n: int, best: SubspaceSetting, fixed: dict[str, Any]
) -> Iterator[SubspaceSetting]:
    """Yield settings in which a reader's gradients choose some of the erased directions."""
    settings = [best]
    if not fixed.keys() & {"rank", "kept", "flattening"}:
        rank, kept = round(n * FLAT_RANK), round(n * FLAT_KEPT)
        if rank >= 1 and kept >= 1 and rank + kept <= n:
            settings.append(replace(best, rank=rank, kept=kept, flattening=FLAT_POWER))
    for setting in settings:
        gradients = round(setting.rank * GRADIENTS)
        if gradients:
            yield replace(setting, gradients=gradients)


class SubspaceSearch:
    """Searches the best `SubspaceSetting` with the fields that the caller leaves open.

    Args:
        data: without negatives, of `fit_labels`.
        transplants: True fits the maps on transplanted texts as well.
    """

    def __init__(self, data: FitData, *, transplants: bool) -> None:
        self.task, self.seed, self.transplants = data.task, data.seed, transplants
        positive, negative, background = data.positive, data.negative, data.background
        fit, read, test = _three_parts(positive, data.groups, np.random.default_rng(data.seed))
        labels = data.token_labels
        marks = None if labels is None else labels[fit]
        removed = None if negative is None else negative[fit]
        if transplants:
            assert removed is not None
            self.moments = transplanted_moments(
                positive[fit], removed, marks, background, seed=data.seed
            )
        else:
            self.moments = Moments.of(
                positive[fit], removed, token_labels=marks, background=background
            )
        self.moments = replace(self.moments, preserved=data.moments.preserved)
        self._evidence = _evidence(positive[fit], removed, marks)
        # Kernel ridge costs N³: enough rows to rank settings, few enough for dozens of them.
        read, test = read[:READER_ROWS], test[:TEST_ROWS]
        if labels is None:
            assert negative is not None
            read, test = read[: READER_ROWS // 2], test[: TEST_ROWS // 2]
            self.train, self.L_train = _evidence(positive[read], negative[read], None)
            self.test, self.L_test = _evidence(positive[test], negative[test], None)
        else:
            # R-precision is defined for texts that hold a label.
            holding = test[labels[test].any(axis=1)]
            self.train, self.test = positive[read], positive[holding]
            self.L_train, self.L_test = labels[read], labels[holding]
        self._directions: dict[bool, ConceptDirections] = {}
        self.tried: list[dict[str, Any]] = []

    def run(
        self, scale: NoiseScale, fixed: dict[str, Any], *, show_progress: bool | None
    ) -> SubspaceSetting:
        """Return the best setting that agrees with ``fixed``."""
        n = self.moments.K.shape[0]

        def best_of(settings: list[SubspaceSetting], description: str) -> SubspaceSetting | None:
            """Try the settings; return the best of all tried so far."""
            bar = progress(settings, description, total=len(settings), show=show_progress)
            for setting in bar:
                self._try(scale, setting)
            return next(iter(self.ranking()), None)

        first = list(first_settings(n, fixed))
        best = best_of(first, "Choosing concept directions")
        free = not fixed.keys() & {"rank", "kept", "flattening"}
        if free and sum(row["feasible"] for row in self.tried) < 3:
            # A demanding target: try fewer erased directions as well, down to one in a hundred.
            best = best_of(gentle_settings(n, pairs=first[0].pairs), "Choosing fewer directions")
        elif best is None and "kept" not in fixed:
            # The number of erased directions is given: regain utility by keeping all others.
            whole = [replace(setting, kept=n - setting.rank) for setting in first]
            best = best_of(whole, "Keeping all others")
        if best is None and scale.target_utility is None:
            # The caller chose the noise, so no setting can be refused: take the one of most utility.
            best = SubspaceSetting.of(max(self.tried, key=lambda row: row["utility"]))
        if best is None:
            assert scale.target_utility is not None
            reachable = max((row["utility"] for row in self.tried), default=0.0)
            raise refuse_target(scale.target_utility, reachable, "The concept subspace")
        labelled = self.moments.B is not None
        second = [s for s in second_settings(n, best, fixed, labels=labelled) if s != best]
        best = best_of(second, "Choosing kept directions") or best
        if not fixed.keys() & {"rank", "kept"}:
            best = best_of(list(third_settings(n, best)), "Choosing fewer to keep") or best
        if "gradients" in fixed:
            return best
        fourth = list(fourth_settings(n, best, fixed))
        return best_of(fourth, "Choosing a reader's directions") or best

    def ranking(self) -> list[SubspaceSetting]:
        """Return the settings that reach the target on the fitting part, best first."""
        return [SubspaceSetting.of(row) for row in _ranked(self.tried, self.L_test)]

    def _try(self, scale: NoiseScale, setting: SubspaceSetting) -> None:
        """Append the utility, noise and leakage of a setting to ``tried``."""
        candidate, rms_norm = self._candidate(setting), self.moments.rms_norm
        draws = CommonDraws(candidate, rms_norm, self.seed, reduced=not self.task.same_space)
        utility = self._utility(draws)
        noise: float | None
        if scale.target_utility is not None:
            noise = largest_noise(utility, scale.target_utility)
            feasible = noise is not None
        else:
            noise = scale.noise(rms_norm, candidate.shape.dimension, candidate.family)
            assert noise is not None
            plain = CommonDraws(Candidate(candidate.shape), rms_norm, self.seed)
            feasible = utility(noise) >= MAP_UTILITY * self._utility(plain)(noise)
        row: dict[str, Any] = {**vars(setting), "feasible": feasible, "noise_to_signal": noise}
        row["utility"] = utility(SMALLEST_NOISE if noise is None else noise)
        row["recovered"] = self._leakage(draws, noise) if feasible and noise is not None else None
        self.tried.append(row)

    def _candidate(self, setting: SubspaceSetting) -> Candidate:
        """Return the candidate of one setting, fitted on the fitting part."""
        if setting.pairs not in self._directions:
            self._directions[setting.pairs] = directions_of(self.moments, pairs=setting.pairs)
        directions = self._directions[setting.pairs]
        _, linear = _map(setting, directions, self._evidence, seed=self.seed)
        return Candidate(NoiseShape.isotropic(linear.dimension), lambda _: linear)

    def _utility(self, draws: CommonDraws) -> Callable[[float], float]:
        rng = np.random.default_rng(self.seed)
        return lambda noise: self.task.relative(draws.at(noise), rng)

    def _leakage(self, draws: CommonDraws, noise: float) -> float:
        """Return the share of held-out labels that the kernel reader recovers at this noise."""
        release = draws.at(noise)
        # The same noise for every setting: their leakages differ by the map alone.
        rng = np.random.default_rng(self.seed)
        A, B = release(self.train, rng), release(self.test, rng)
        return max(
            share_recovered(scores, self.L_test) for scores in kernel_ridge_path(A, self.L_train, B)
        )


def _ranked(rows: list[dict[str, Any]], labels: TokenLabels) -> list[dict[str, Any]]:
    """Return the feasible rows, best first, by the one-standard-error rule of the module's docstring."""
    feasible = [row for row in rows if row["feasible"]]
    least = min((row["recovered"] for row in feasible), default=0.0)
    close = least + standard_error(least, labels)

    def order(row: dict[str, Any]) -> tuple[float, ...]:
        if row["recovered"] > close:
            return (1.0, row["recovered"])
        little = row["noise_to_signal"] < ENOUGH_NOISE
        plain = not row.get("gradients", 0)
        return (0.0, little, row.get("kept", 0), plain, -row["rank"], row["recovered"])

    return sorted(feasible, key=order)


def _three_parts(
    positive: Embeddings, groups: Groups | None, rng: np.random.Generator
) -> list[npt.NDArray[np.intp]]:
    """Return the rows of the fitting, training and test part, with no group in two parts."""
    parts = _parted(near_duplicate_groups(positive) if groups is None else groups, rng)
    if min(len(part) for part in parts) < 0.1 * len(positive):  # too few groups: split rows
        parts = _parted(np.arange(len(positive)), rng)
    return parts


def _parted(ids: Groups, rng: np.random.Generator) -> list[npt.NDArray[np.intp]]:
    """Return the rows of a random half of the groups, of three in ten, and of the rest."""
    names = rng.permutation(np.unique(ids))
    place = np.empty(len(names), dtype=np.intp)
    place[np.searchsorted(np.sort(names), names)] = np.arange(len(names))
    # Random rank of each row's group: sorting by it keeps the rows of a group together.
    order = place[np.searchsorted(np.sort(names), ids)]
    rows = np.argsort(order, kind="stable")
    cuts = [int(0.5 * len(rows)), int(0.8 * len(rows))]
    # Move a cut to the end of its group.
    cuts = [int(np.searchsorted(order[rows], order[rows[cut]], side="right")) for cut in cuts]
    return [rng.permutation(part) for part in np.split(rows, cuts)]


SUBSPACE = Method(
    "subspace",
    "erase the concept's directions, keep the leading ones of the rest, isotropic Laplace noise",
    subspace_candidate,
    options=("rank", "kept", "flattening", "pairs", "gradients", "transplants", "preserve"),
    postprocess="own map",
    without_map="laplace",
)
