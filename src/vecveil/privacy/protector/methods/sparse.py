"""The ``sparse`` methods: noise shaped by a learnt mask, as published, or by a known classifier (SPARSE-WB).

SPARSE-WB replaces the learnt mask by integrated gradients of the published multi-label classifier for each concept word
of a text. Only this method uses an attack in its defence; an audit trains another attacker.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from vecveil.errors import InvalidInputError, out_of_range, unknown_name, wrong_type
from vecveil.privacy.mechanisms import TruncatedLaplace, epsilon_of_rms_norm, rms_norm_of_epsilon
from vecveil.privacy.protector.data import Data
from vecveil.privacy.protector.method import ELLIPTICAL_LAPLACE, Aim, Candidate, Method, NoiseFamily
from vecveil.privacy.sensitivity.hard_concrete import MaskOptions, fit_hard_concrete_mask, stability_of
from vecveil.privacy.sensitivity.integrated_gradients import white_box_sensitivity, white_box_shape
from vecveil.privacy.sensitivity.shapes import LinearMap, NoiseShape
from vecveil.types import Embeddings, Vector
from vecveil.validation import check_count, check_positive


@dataclass(frozen=True, kw_only=True)
class SparseOptions(MaskOptions):
    """Options of ``sparse``: those of its mask, and these.

    Attributes:
        floor: minimum share of the noise in any dimension.
        stability_seeds: number of masks trained to measure how much the mask depends on the seed.
        release: ``full`` adds noise of shape Σ = diag(m + floor) to all n dimensions; ``truncated`` releases x ⊙ m on
            the kept dimensions with Laplace noise of k dimensions there, and zeros in the others, so that a database's
            dimension stays n. ``output="reduced"`` releases the k coordinates alone, with equal cosines.
        normalise: scale Σ to trace n, or the mask of a truncated release to a largest value of 1. False takes Σ or the
            mask as learnt, which changes the noise of a given ``epsilon``; other scales fix the noise itself.
        kept: k of a truncated release, the dimensions with the largest mask; None keeps all where it is not 0.
    """

    floor: float = 1e-6
    stability_seeds: int = 2
    release: Literal["full", "truncated"] = "full"
    normalise: bool = True
    kept: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.floor, owner="fit", param="floor")
        check_count(self.stability_seeds, owner="fit", param="stability_seeds")
        if self.release not in ("full", "truncated"):
            raise unknown_name("fit", "release", ("full", "truncated"), self.release)
        if not isinstance(self.normalise, bool):
            raise wrong_type("fit", "normalise", "True or False", self.normalise)
        if self.kept is not None:
            check_count(self.kept, owner="fit", param="kept")
            if self.release == "full":
                raise InvalidInputError("`kept` needs release='truncated'.", param="kept")


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
    learnt = np.asarray(masks[0].mask, dtype=np.float64)
    if not learnt.any():
        raise InvalidInputError(
            "The mask is 0 in every dimension: it found none that carries the concept. Lower `regularisation` or "
            "`gate_learning_rate`.",
            param="regularisation",
        )
    own = ("floor", "release", "normalise", "kept")
    parameters = {name: getattr(options, name) for name in own} | options.to_record()
    if options.release == "truncated":
        weights = truncated_mask(learnt, kept=options.kept)
        if options.normalise:
            weights = weights / weights.max()
        candidate = _truncated(weights)
    else:
        shape = NoiseShape.from_diagonal(learnt, floor=options.floor)
        share = 1.0 if options.normalise else float(learnt.mean()) + options.floor
        candidate = Candidate(shape, family=_unscaled(share))
    return replace(candidate, parameters=parameters, findings={"mask": mask})


def truncated_mask(mask: Vector, *, kept: int | None) -> Vector:
    """Return ``mask`` (n,) with zeros beyond its ``kept`` largest values; None keeps all that are not 0."""
    nonzero = int(np.count_nonzero(mask))
    if kept is not None and kept > nonzero:
        raise out_of_range("fit", "kept", f"at most {nonzero}, the dimensions where the mask is not 0", kept)
    order = np.argsort(-mask, kind="stable")[: nonzero if kept is None else kept]
    return np.where(np.isin(np.arange(mask.size), order), mask, 0.0)


def _truncated(weights: Vector) -> Candidate:
    """Return the candidate of a truncated release with these weights in [0, 1]."""
    positions = np.flatnonzero(weights)
    k, select = len(positions), np.eye(len(weights))[positions]
    linear = LinearMap(select, select.T)
    family = NoiseFamily(
        mechanism=lambda shape, noise, rms_norm, splits: TruncatedLaplace(
            weights, epsilon_of_rms_norm(noise * rms_norm, k), splits
        ),
        ratio=lambda epsilon, rms_norm, n: rms_norm_of_epsilon(epsilon, k) / rms_norm,
        is_linear=False,  # the mechanism masks the vectors, too
        can_split=True,
    )
    return Candidate(NoiseShape.isotropic(len(weights)), lambda _: linear, family=family)


def _unscaled(share: float) -> NoiseFamily:
    """Return Laplace noise of shape share · Σ, trace(Σ) = n, at a given ε: that of Σ at ε/√share."""
    if share == 1:
        return ELLIPTICAL_LAPLACE
    return replace(
        ELLIPTICAL_LAPLACE,
        ratio=lambda epsilon, rms_norm, n: rms_norm_of_epsilon(epsilon, n) * float(np.sqrt(share)) / rms_norm,
    )


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


@dataclass(frozen=True, kw_only=True)
class WhiteboxOptions:
    """Options of ``sparse-whitebox``: floor of the noise, steps of the gradients, epochs of the classifier."""

    floor: float = 1e-6
    steps: int = 50
    epochs: int | None = None

    def __post_init__(self) -> None:
        check_positive(self.floor, owner="fit", param="floor")
        check_count(self.steps, owner="fit", param="steps")
        if self.epochs is not None:
            check_count(self.epochs, owner="fit", param="epochs")


def whitebox_candidate(data: Data, options: WhiteboxOptions, aim: Aim) -> Candidate:
    from vecveil.privacy.networks import PUBLISHED, train_network  # loads torch
    from vecveil.privacy.training import TrainingRun

    floor, steps, epochs = options.floor, options.steps, options.epochs or PUBLISHED.epochs
    X = data.positive.astype(np.float32)
    L = data.token_labels
    if L is None:  # without words, classify D+ against D-
        _, negative = data.sides("method", "sparse-whitebox")
        X = np.concatenate([X, negative.astype(np.float32)])
        L = np.repeat([1, 0], len(data.positive))[:, None].astype(np.uint8)
    labels = np.asarray(L)
    # The classifier of the paper; `epochs` alone can be changed.
    schedule = replace(PUBLISHED, epochs=epochs)
    sizes, rng = (X.shape[1], labels.shape[1]), np.random.default_rng(aim.seed)
    network, _ = train_network(
        lambda rng: (X, labels), sizes, schedule, TrainingRun(rng, "Training the classifier", aim.show_progress)
    )
    weights = white_box_sensitivity(network.module.eval(), X, labels, steps=steps, show_progress=aim.show_progress)
    shape = white_box_shape(weights, floor=floor)
    return Candidate(shape, parameters={"floor": floor, "steps": steps, "epochs": epochs})


SPARSE_WHITEBOX = Method(
    "sparse-whitebox",
    "SPARSE-WB: integrated gradients of a token classifier shape diagonal Mahalanobis noise",
    whitebox_candidate,
    option_type=WhiteboxOptions,
    metric="Mahalanobis",
)
