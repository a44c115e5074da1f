"""The ``sparse`` method: a learnt mask shapes diagonal Mahalanobis noise, SPARSE as published."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecveil.errors import InvalidInputError
from vecveil.protector.method import Candidate, FitData, Method
from vecveil.sensitivity.hard_concrete import MaskOptions, fit_hard_concrete_mask, stability_of
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_positive


def sparse_candidate(data: FitData, options: dict[str, Any]) -> Candidate:
    """Return noise shaped by the mask that distinguishes pairs, or the two classes of given labels."""
    floor = check_positive(options.pop("floor", 1e-6), owner="fit", param="floor")
    seeds = check_count(options.pop("stability_seeds", 2), owner="fit", param="stability_seeds")
    mask_options = MaskOptions(**options)
    positive, negative = _sides(data)
    masks = [
        fit_hard_concrete_mask(positive, negative, mask_options, seed=data.seed + i, show_progress=data.show_progress)
        for i in range(seeds)
    ]
    data.findings["mask"] = masks[0].to_record()
    if seeds > 1:
        # Further masks only measure how much the mask depends on the seed; the first one shapes the noise.
        data.findings["mask"]["seed_stability"] = stability_of([m.mask for m in masks])
    shape = NoiseShape.from_diagonal(np.asarray(masks[0].mask, dtype=np.float64), floor=floor)
    return Candidate(shape, parameters={"floor": floor, **mask_options.to_record()})


def _sides(data: FitData) -> tuple[Embeddings, Embeddings]:
    """Return the pairs, or equally many rows of two classes: unequal sides would bias the mask's classifier."""
    if data.negative is not None:
        return data.positive, data.negative
    labels = data.token_labels
    assert labels is not None
    if labels.shape[1] != 2 or not (labels.sum(axis=1) == 1).all():
        raise InvalidInputError.of(
            "fit",
            "method",
            "another than 'sparse' for labels that are not two classes",
            f"{labels.shape[1]} labels",
            "Its mask is learnt from telling two sides apart.",
            "Use subspace, or covariance.",
        )
    rng = np.random.default_rng(data.seed)
    first, second = (rng.permutation(np.flatnonzero(labels[:, j])) for j in (0, 1))
    count = min(len(first), len(second))
    return data.positive[first[:count]], data.positive[second[:count]]


SPARSE = Method(
    "sparse",
    "SPARSE as published: a learnt mask shapes diagonal Mahalanobis noise",
    sparse_candidate,
    options=("floor", "stability_seeds", *MaskOptions.__dataclass_fields__),
    metric="Mahalanobis",
)
