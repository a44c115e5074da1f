"""The settings of the concept subspace that a search tries, and the map of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.sensitivity.linear_map import LinearMap
from vecveil.sensitivity.moments import Moments
from vecveil.sensitivity.reader_gradients import reader_gradients
from vecveil.sensitivity.subspace import ConceptDirections, concept_directions, subspace_map
from vecveil.types import Embeddings, TokenLabels

__all__ = [
    "Evidence",
    "Setting",
    "directions_of",
    "first_settings",
    "fourth_settings",
    "gentle_settings",
    "map_of_setting",
    "second_settings",
    "setting_of",
    "third_settings",
]

STEPS = ((0.6, 1 / 8), (0.6, 1 / 12), (0.36, 1 / 16))
"""Share of the best setting's erased directions that is still erased, and share of all directions that
is released: releasing few and erasing fewer to make room for it can leak less than the other way round."""

GRADIENTS = 0.3
"""Share of the erased directions that a non-linear reader's gradients choose, where they choose any."""

FLAT = ((0.2, 1 / 4),)
"""Shares of all directions that are erased and released in a setting that is tried beside the best one, with
flattening 1.1: with few directions released, that costs no similarity."""

Evidence = tuple[Embeddings, npt.NDArray[Any]]
"""Embeddings (N, n) and labels (N, V) that a reader learns from."""


@dataclass(frozen=True)
class Setting:
    """One setting of the concept subspace.

    Attributes:
        rank: k, number of erased concept directions.
        kept: m, number of released directions.
        flattening: p.
        pairs: whether removal pairs count beside token labels in the concept's covariance.
        gradients: how many of the k directions are those that a non-linear reader looks along, behind the erasure of
            the others.
    """

    rank: int
    kept: int
    flattening: float
    pairs: bool
    gradients: int = 0


def directions_of(moments: Moments, *, pairs: bool) -> ConceptDirections:
    """Return the concept directions, from labels alone or from labels and pairs."""
    if pairs or moments.B is None:
        return concept_directions(moments)
    return concept_directions(replace(moments, C=np.zeros_like(moments.C)))


def evidence_of(
    positive: Embeddings, negative: Embeddings | None, labels: TokenLabels | None
) -> Evidence:
    """Return texts and their labels, or pairs and which of the two each is."""
    if labels is not None:
        return positive, labels
    assert negative is not None
    marks = np.repeat([1, 0], [len(positive), len(negative)])[:, None]
    return np.concatenate([positive, negative]), marks


def map_of_setting(
    setting: Setting, directions: ConceptDirections, evidence: Evidence, *, seed: int
) -> tuple[ConceptDirections, LinearMap]:
    """Return the directions in the order that they are erased in, and the map, not yet quantised."""
    kept = min(setting.kept, len(directions.K) - setting.rank)
    if setting.gradients:
        first = setting.rank - setting.gradients
        before = subspace_map(directions, erased=first, kept=kept, flattening=setting.flattening)
        moment = reader_gradients(*evidence, before, seed=seed)
        directions = directions.followed_by(moment, after=first)
    return directions, subspace_map(
        directions, erased=setting.rank, kept=kept, flattening=setting.flattening
    )


def setting_of(row: dict[str, Any]) -> Setting:
    """Return the setting of a row of ``SubspaceSearch.tried``."""
    return Setting(**{field.name: row[field.name] for field in fields(Setting)})


def first_settings(n: int, fixed: dict[str, Any]) -> Iterator[Setting]:
    """Yield numbers of erased directions, with and without flattening, at a middling truncation."""
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
            yield Setting(rank, kept, flattening, fixed.get("pairs", True), gradients)


def gentle_settings(n: int, *, pairs: bool) -> list[Setting]:
    """Return settings that erase little and keep the rest, for targets that leave little room."""
    ranks = sorted({max(1, round(n * share)) for share in (0.01, 0.03, 0.07)}, reverse=True)
    return [Setting(rank, n - rank, 0.0, pairs) for rank in ranks if rank < n]


def second_settings(
    n: int, best: Setting, fixed: dict[str, Any], *, labels: bool
) -> Iterator[Setting]:
    """Yield truncations, a weaker flattening, and labels without pairs, around the best first setting."""
    if "kept" not in fixed:
        for m in sorted({max(1, min(n - best.rank, round(n * s))) for s in (0.25, 0.5, 1.0)}):
            yield replace(best, kept=m)
    if "flattening" not in fixed and best.flattening > 0:
        yield replace(best, flattening=0.5)
    if "pairs" not in fixed and labels:
        yield replace(best, pairs=False)


def third_settings(n: int, best: Setting) -> Iterator[Setting]:
    """Yield settings that erase less than the best one so far, and release fewer directions."""
    for share, kept_share in STEPS:
        rank, kept = max(1, round(best.rank * share)), max(1, round(n * kept_share))
        if kept < min(best.kept, n - rank + 1):
            yield replace(best, rank=rank, kept=kept, gradients=min(rank, best.gradients))


def fourth_settings(n: int, best: Setting, fixed: dict[str, Any]) -> Iterator[Setting]:
    """Yield settings in which a reader's gradients choose some of the erased directions."""
    tried = [best]
    if not fixed.keys() & {"rank", "kept", "flattening"}:
        for share, kept_share in FLAT:
            rank, kept = round(n * share), round(n * kept_share)
            if rank >= 1 and kept >= 1 and rank + kept <= n:
                tried.append(replace(best, rank=rank, kept=kept, flattening=1.1))
    for setting in tried:
        gradients = round(setting.rank * GRADIENTS)
        if gradients:
            yield replace(setting, gradients=gradients)
