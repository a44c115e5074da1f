"""The ``sparse`` method: a learnt mask shapes diagonal Mahalanobis noise, SPARSE as published."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vecveil.errors import InvalidInputError
from vecveil.protector.data import Data
from vecveil.protector.method import Aim, Candidate, Method
from vecveil.sensitivity.hard_concrete import MaskOptions, fit_hard_concrete_mask, stability_of
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_positive


@dataclass(frozen=True, kw_only=True)
class SparseOptions(MaskOptions):
    """Options of ``sparse``: those of its mask, and these.

    Attributes:
        floor: least share of the noise in any dimension.
        stability_seeds: masks that are trained to measure how much the mask depends on the seed.
    """

    floor: float = 1e-6
    stability_seeds: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.floor, owner="fit", param="floor")
        check_count(self.stability_seeds, owner="fit", param="stability_seeds")


def sparse_candidate(data: Data, options: SparseOptions, aim: Aim) -> Candidate:
    """Return noise shaped by the mask that distinguishes pairs, or the two classes of given labels."""
    positive, negative = _sides(data, aim.seed)
    masks = [
        fit_hard_concrete_mask(positive, negative, options, seed=aim.seed + i, show_progress=aim.show_progress)
        for i in range(options.stability_seeds)
    ]
    mask = masks[0].to_record()
    if len(masks) > 1:
        # Further masks only measure how much the mask depends on the seed; the first one shapes the noise.
        mask["seed_stability"] = stability_of([m.mask for m in masks])
    shape = NoiseShape.from_diagonal(np.asarray(masks[0].mask, dtype=np.float64), floor=options.floor)
    parameters = {"floor": options.floor, **options.to_record()}
    return Candidate(shape, parameters=parameters, findings={"mask": mask})


def _sides(data: Data, seed: int) -> tuple[Embeddings, Embeddings]:
    """Return the pairs, or equally many rows of two classes: unequal sides would bias the mask's classifier."""
    if data.negative is not None:
        return data.positive, data.negative
    labels = data.token_labels
    assert labels is not None
    if labels.shape[1] != 2 or not (labels.sum(axis=1) == 1).all():
        raise InvalidInputError(
            f"Method 'sparse' learns from two sides, not from {labels.shape[1]} labels. Use subspace or covariance.",
            param="method",
        )
    rng = np.random.default_rng(seed)
    first, second = (rng.permutation(np.flatnonzero(labels[:, j])) for j in (0, 1))
    count = min(len(first), len(second))
    return data.positive[first[:count]], data.positive[second[:count]]


SPARSE = Method(
    "sparse",
    "SPARSE as published: a learnt mask shapes diagonal Mahalanobis noise",
    sparse_candidate,
    option_type=SparseOptions,
    metric="Mahalanobis",
)
