"""Chooses the concept subspace's parameters on the user's own texts, on parts held out of the fit.

Half of the pairs fit the maps, three tenths train a kernel reader on released vectors
(`vecveil.sensitivity.predictability`), one fifth is read. An erasure works better on the texts that it
was fitted on than on others, so the three parts share no group of near-duplicates. Of the settings
whose noise reaches the target utility, those are kept of which the reader recovers least, up to one
standard error; among them one with a tenth of noise or more, of these the one that releases the fewest
directions, of these one that a reader's gradients had a part in, and of these the one that erases most, because
networks and readers of other texts find less behind them. Where the evidence cannot tell settings apart, as on a few
hundred texts, least is released.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.metrics import UtilityTask
from vecveil.protector.candidate import Candidate, CommonDraws
from vecveil.protector.scale import SMALLEST_NOISE, Scale, largest_noise, refuse_target
from vecveil.protector.subspace_settings import (
    Setting,
    directions_of,
    evidence_of,
    first_settings,
    fourth_settings,
    gentle_settings,
    map_of_setting,
    second_settings,
    setting_of,
    third_settings,
)
from vecveil.runtime import progress
from vecveil.sensitivity.moments import Moments
from vecveil.sensitivity.predictability import (
    kernel_ridge_path,
    near_duplicate_groups,
    share_recovered,
    standard_error,
)
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.sensitivity.subspace import ConceptDirections
from vecveil.sensitivity.transplant import transplanted_moments
from vecveil.types import Embeddings, Groups, TokenLabels

__all__ = ["SubspaceSearch"]

READER_ROWS = 1600
TEST_ROWS = 800
ENOUGH_NOISE = 0.1
"""Of equal settings one with at least this noise-to-signal ratio is preferred: without noise any
release can be matched with a candidate text exactly."""

MAP_UTILITY = 0.95
"""With a given noise, share of the utility at that noise that the map may leave."""


class SubspaceSearch:
    """Finds a `Setting`; fields that the caller fixes are left alone.

    Args:
        positive, negative, token_labels, background: as in `fit_pairs`; without negatives, as in `fit_labels`.
        groups: (N,) rows that must not be parted; None groups near-duplicates by their cosine.
        task: the utility to keep.
        transplants: whether the maps are fitted on made-up texts as well.
    """

    def __init__(
        self,
        positive: Embeddings,
        negative: Embeddings | None,
        token_labels: TokenLabels | None,
        background: Embeddings | None,
        *,
        task: UtilityTask,
        groups: Groups | None,
        seed: int,
        transplants: bool = False,
    ) -> None:
        self.task, self.seed, self.transplants = task, seed, transplants
        fit, read, test = _three_parts(positive, groups, np.random.default_rng(seed))
        labels = token_labels
        marks = None if labels is None else labels[fit]
        removed = None if negative is None else negative[fit]
        if transplants:
            assert removed is not None
            self.moments = transplanted_moments(
                positive[fit], removed, marks, background, seed=seed
            )
        else:
            self.moments = Moments.of(
                positive[fit], removed, token_labels=marks, background=background
            )
        self._evidence = evidence_of(positive[fit], removed, marks)
        read, test = read[:READER_ROWS], test[:TEST_ROWS]
        if labels is None:
            assert negative is not None
            read, test = read[: READER_ROWS // 2], test[: TEST_ROWS // 2]
            self.train = np.concatenate([positive[read], negative[read]])
            self.test = np.concatenate([positive[test], negative[test]])
            self.L_train = np.repeat([1, 0], len(read))[:, None]
            self.L_test = np.repeat([1, 0], len(test))[:, None]
        else:
            holding = test[labels[test].any(axis=1)]
            self.train, self.test = positive[read], positive[holding]
            self.L_train, self.L_test = labels[read], labels[holding]
        self._directions: dict[bool, ConceptDirections] = {}
        self.tried: list[dict[str, Any]] = []

    def candidate(self, setting: Setting) -> Candidate:
        """Return the candidate of one setting, fitted on the part that is not held out."""
        if setting.pairs not in self._directions:
            self._directions[setting.pairs] = directions_of(self.moments, pairs=setting.pairs)
        _, linear = map_of_setting(
            setting, self._directions[setting.pairs], self._evidence, seed=self.seed
        )
        return Candidate(
            shape=NoiseShape.isotropic(linear.dimension),
            map_of=lambda noise: linear,
            parameters=vars(setting),
        )

    def leak(self, draws: CommonDraws, noise: float) -> float:
        """Return what the kernel reader recovers of held-out labels at this noise."""
        release = draws.at(noise)
        rng = np.random.default_rng(self.seed)
        A, B = release(self.train, rng), release(self.test, rng)
        return max(
            share_recovered(scores, self.L_test) for scores in kernel_ridge_path(A, self.L_train, B)
        )

    def run(self, scale: Scale, fixed: dict[str, Any], *, show_progress: bool | None) -> Setting:
        """Return the best setting that agrees with ``fixed``."""
        n = self.moments.K.shape[0]
        first = list(first_settings(n, fixed))
        best = self._best(scale, first, "Choosing concept directions", show_progress)
        free = not fixed.keys() & {"rank", "kept", "flattening"}
        if free and sum(row["feasible"] for row in self.tried) < 3:
            # The target leaves little room: erase fewer directions as well, down to one in a hundred.
            gentle = gentle_settings(n, pairs=first[0].pairs)
            best = self._best(scale, gentle, "Choosing fewer directions", show_progress)
        elif best is None and "kept" not in fixed:
            # The number of erased directions is given: make room by keeping all the others.
            whole = [replace(setting, kept=n - setting.rank) for setting in first]
            best = self._best(scale, whole, "Keeping all others", show_progress)
        if best is None and scale.target_utility is None:
            # The noise is the caller's choice: take what the map harms least.
            best = setting_of(max(self.tried, key=lambda row: row["utility"]))
        if best is None:
            assert scale.target_utility is not None
            reachable = max((row["utility"] for row in self.tried), default=0.0)
            raise refuse_target(scale.target_utility, reachable, "The concept subspace")
        labelled = self.moments.B is not None
        second = [s for s in second_settings(n, best, fixed, labels=labelled) if s != best]
        best = self._best(scale, second, "Choosing kept directions", show_progress) or best
        if not fixed.keys() & {"rank", "kept"}:
            third = list(third_settings(n, best))
            best = self._best(scale, third, "Choosing fewer to keep", show_progress) or best
        if "gradients" in fixed:
            return best
        fourth = list(fourth_settings(n, best, fixed))
        return self._best(scale, fourth, "Choosing a reader's directions", show_progress) or best

    def ranking(self) -> list[Setting]:
        """Return the settings that reach the target on the fitting part, the least telling first."""
        return [setting_of(row) for row in _ranked(self.tried, self.L_test)]

    def _best(
        self, scale: Scale, settings: list[Setting], description: str, show_progress: bool | None
    ) -> Setting | None:
        for setting in progress(settings, description, total=len(settings), show=show_progress):
            self._try(scale, setting)
        ranking = self.ranking()
        return ranking[0] if ranking else None

    def _try(self, scale: Scale, setting: Setting) -> None:
        draws = CommonDraws(
            self.candidate(setting),
            self.moments.rms_norm,
            self.seed,
            reduced=not self.task.same_space,
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
        plain = Candidate(
            shape=NoiseShape.isotropic(self.moments.K.shape[0]), map_of=lambda _: None
        )
        return self._utility(CommonDraws(plain, self.moments.rms_norm, self.seed))(noise)


def _ranked(rows: list[dict[str, Any]], labels: TokenLabels) -> list[dict[str, Any]]:
    """Return the feasible rows, the best first (the one-standard-error rule of the module's docstring).

    Args:
        labels: the held-out labels that ``recovered`` was measured on.
    """
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
    """Return rows to fit on, to train the reader on and to read, with no group in two parts."""
    parts = _parted(near_duplicate_groups(positive) if groups is None else groups, rng)
    if min(len(part) for part in parts) < 0.1 * len(positive):  # nothing can be kept apart
        parts = _parted(np.arange(len(positive)), rng)
    return parts


def _parted(ids: Groups, rng: np.random.Generator) -> list[npt.NDArray[np.intp]]:
    """Return the rows of a random half of the groups, of three in ten, and of the rest."""
    names = rng.permutation(np.unique(ids))
    place = np.empty(len(names), dtype=np.intp)
    place[np.searchsorted(np.sort(names), names)] = np.arange(len(names))
    order = place[np.searchsorted(np.sort(names), ids)]
    rows = np.argsort(order, kind="stable")
    cuts = [int(0.5 * len(rows)), int(0.8 * len(rows))]
    # Move a cut to the end of its group.
    cuts = [int(np.searchsorted(order[rows], order[rows[cut]], side="right")) for cut in cuts]
    return [rng.permutation(part) for part in np.split(rows, cuts)]
