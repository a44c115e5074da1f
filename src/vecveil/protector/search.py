"""Chooses the concept subspace's parameters on the user's own texts, on a part held out of the fit.

Of the settings whose noise reaches the target utility, the one is taken whose releases of held-out
texts tell a kernel reader least about their concept terms (`vecveil.sensitivity.predictability`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.metrics.tasks import UtilityTask
from vecveil.progress import progress
from vecveil.protector.candidate import Candidate, CommonDraws
from vecveil.protector.scale import SMALLEST_NOISE, Scale, largest_noise, refuse_target
from vecveil.sensitivity.moments import Moments
from vecveil.sensitivity.predictability import (
    PENALTIES,
    kernel_ridge_scores,
    near_duplicate_groups,
    share_recovered,
)
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.sensitivity.subspace import ConceptDirections, concept_directions, subspace_map
from vecveil.types import Embeddings, Groups, TokenLabels

__all__ = ["Setting", "SubspaceSearch"]

READER_ROWS = 1600
TEST_ROWS = 800
MAP_UTILITY = 0.95
"""With a given noise, share of the utility at that noise that the map may leave."""


@dataclass(frozen=True)
class Setting:
    """One setting of the concept subspace.

    Attributes:
        rank: k, number of erased concept directions.
        kept: m, number of released directions.
        flattening: p.
        pairs: whether removal pairs count beside token labels in the concept's covariance.
    """

    rank: int
    kept: int
    flattening: float
    pairs: bool


def directions_of(moments: Moments, *, pairs: bool) -> ConceptDirections:
    """Return the concept directions, from labels alone or from labels and pairs."""
    if pairs or moments.B is None:
        return concept_directions(moments)
    return concept_directions(replace(moments, C=np.zeros_like(moments.C)))


class SubspaceSearch:
    """Finds a `Setting`; fields that the caller fixes are left alone.

    Args:
        positive, negative, token_labels, background: as in `fit_pairs`.
        groups: (N,) rows that must not be parted; None groups near-duplicates by their cosine.
        task: the utility to keep.
    """

    def __init__(
        self,
        positive: Embeddings,
        negative: Embeddings,
        token_labels: TokenLabels | None,
        background: Embeddings | None,
        *,
        task: UtilityTask,
        groups: Groups | None,
        seed: int,
    ) -> None:
        self.task, self.seed = task, seed
        rng = np.random.default_rng(seed)
        ids = near_duplicate_groups(positive) if groups is None else np.asarray(groups)
        names = rng.permutation(np.unique(ids))
        held_out = np.isin(ids, names[: max(1, round(0.3 * len(names)))])
        fit, test = rng.permutation(np.flatnonzero(~held_out)), rng.permutation(np.flatnonzero(held_out))
        if len(fit) < 10 or len(test) < 5:  # one big group: nothing can be held out honestly
            order = rng.permutation(len(positive))
            cut = max(1, int(0.3 * len(order)))
            fit, test = order[cut:], order[:cut]
        labels = token_labels if token_labels is not None and token_labels.shape[1] > 1 else None
        self.moments = Moments.of(
            positive[fit], negative[fit], token_labels=None if labels is None else labels[fit], background=background
        )
        fit, test = fit[:READER_ROWS], test[:TEST_ROWS]
        if labels is None:
            half = len(fit[: READER_ROWS // 2])
            self.train = np.concatenate([positive[fit[:half]], negative[fit[:half]]])
            self.test = np.concatenate([positive[test], negative[test]])
            self.L_train = np.repeat([1, 0], half)[:, None]
            self.L_test = np.repeat([1, 0], len(test))[:, None]
        else:
            holding = test[labels[test].any(axis=1)]
            self.train, self.test = positive[fit], positive[holding]
            self.L_train, self.L_test = labels[fit], labels[holding]
        self._directions: dict[bool, ConceptDirections] = {}
        self.tried: list[dict[str, Any]] = []

    def candidate(self, setting: Setting) -> Candidate:
        """Return the candidate of one setting, fitted on the part that is not held out."""
        if setting.pairs not in self._directions:
            self._directions[setting.pairs] = directions_of(self.moments, pairs=setting.pairs)
        linear = subspace_map(
            self._directions[setting.pairs],
            erased=setting.rank,
            kept=setting.kept,
            flattening=setting.flattening,
        )
        return Candidate(
            shape=NoiseShape.isotropic(linear.dimension), map_of=lambda noise: linear, parameters=vars(setting)
        )

    def leak(self, draws: CommonDraws, noise: float) -> float:
        """Return what the kernel reader recovers of held-out labels at this noise."""
        release = draws.at(noise)
        rng = np.random.default_rng(self.seed)
        A, B = release(self.train, rng), release(self.test, rng)
        return max(
            share_recovered(kernel_ridge_scores(A, self.L_train, B, penalty=penalty), self.L_test)
            for penalty in PENALTIES
        )

    def run(self, scale: Scale, fixed: dict[str, Any], *, show_progress: bool | None) -> Setting:
        """Return the best setting that agrees with ``fixed``."""
        n = self.moments.K.shape[0]
        first = list(_first_settings(n, fixed, labels=self.moments.B is not None))
        best = self._best(scale, first, "Choosing concept directions", show_progress)
        if sum(row["feasible"] for row in self.tried) < 3 and not fixed.keys() & {"rank", "kept", "flattening"}:
            # The target leaves little room: erase fewer directions as well, down to one in a hundred.
            gentle = [
                replace(first[0], rank=k, kept=n - k, flattening=0.0)
                for k in sorted({max(1, round(n * share)) for share in (0.01, 0.03, 0.07)}, reverse=True)
            ]
            best = self._best(scale, gentle, "Choosing fewer directions", show_progress)
        if best is None:
            assert scale.target_utility is not None
            reachable = max((row["utility"] for row in self.tried), default=0.0)
            raise refuse_target(scale.target_utility, reachable, "The concept subspace")
        second = [s for s in _second_settings(n, best, fixed) if s != best]
        return self._best(scale, second, "Choosing kept directions", show_progress) or best

    def ranking(self) -> list[Setting]:
        """Return the settings that reach the target on the fitting part, the least telling first."""
        return [_setting_of(row) for row in sorted((r for r in self.tried if r["feasible"]), key=_order)]

    def _best(
        self, scale: Scale, settings: list[Setting], description: str, show_progress: bool | None
    ) -> Setting | None:
        for setting in progress(settings, description, total=len(settings), show=show_progress):
            self._try(scale, setting)
        feasible = [row for row in self.tried if row["feasible"]]
        if not feasible or not settings:
            return None if not feasible else _setting_of(min(feasible, key=_order))
        return _setting_of(min(feasible, key=_order))

    def _try(self, scale: Scale, setting: Setting) -> None:
        draws = CommonDraws(
            self.candidate(setting), self.moments.rms_norm, self.seed, reduced=not self.task.same_space
        )
        utility = self._utility(draws)
        n = self.moments.K.shape[0]
        noise: float | None
        if scale.target_utility is not None:
            noise = largest_noise(utility, scale.target_utility)
            feasible = noise is not None
        else:
            noise = scale.noise(self.moments.rms_norm, n)
            assert noise is not None
            feasible = utility(noise) >= MAP_UTILITY * self._plain_utility(noise)
        row: dict[str, Any] = {**vars(setting), "feasible": feasible, "noise_to_signal": noise}
        row["utility"] = utility(SMALLEST_NOISE if noise is None else noise)
        row["recovered"] = self.leak(draws, noise) if feasible and noise is not None else None
        self.tried.append(row)

    def _utility(self, draws: CommonDraws) -> Callable[[float], float]:
        rng = np.random.default_rng(self.seed)
        return lambda noise: self.task.relative(draws.at(noise), rng)

    def _plain_utility(self, noise: float) -> float:
        plain = Candidate(shape=NoiseShape.isotropic(self.moments.K.shape[0]), map_of=lambda _: None)
        return self._utility(CommonDraws(plain, self.moments.rms_norm, self.seed))(noise)


def _order(row: dict[str, Any]) -> tuple[float, int]:
    """Least recovered first; within half a point the smaller release."""
    return (round(row["recovered"] / 0.005) * 0.005, row["kept"])


def _setting_of(row: dict[str, Any]) -> Setting:
    return Setting(row["rank"], row["kept"], row["flattening"], row["pairs"])


def _first_settings(n: int, fixed: dict[str, Any], *, labels: bool) -> Iterator[Setting]:
    """Yield numbers of erased directions, with and without pairs, at a middling truncation."""
    ranks = [fixed["rank"]] if "rank" in fixed else [max(1, round(n * s)) for s in (0.12, 0.21, 0.3, 0.4)]
    mixes = [fixed["pairs"]] if "pairs" in fixed else ([False, True] if labels else [True])
    for rank in ranks:
        kept = fixed.get("kept", max(1, min(n - rank, round(n / 3))))
        for pairs in mixes:
            yield Setting(rank, kept, fixed.get("flattening", 0.0), pairs)


def _second_settings(n: int, best: Setting, fixed: dict[str, Any]) -> Iterator[Setting]:
    """Yield truncations and flattenings around the best first setting."""
    shares = (0.2, 0.25, 0.5, 1.0)
    kept = [fixed["kept"]] if "kept" in fixed else sorted({min(n - best.rank, round(n * s)) for s in shares})
    for m in kept:
        yield replace(best, kept=max(1, m))
    if "flattening" not in fixed:
        yield replace(best, flattening=0.6)
