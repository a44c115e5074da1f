"""SPARSE's neuron mask: which dimensions of an embedding tell "with" from "without the concept".

A hard-concrete gate per dimension and a small classifier are trained together to tell D+ from D-
through the gates (SPARSE, arXiv 2602.07090, §3.1 and Algorithm 2); the gates at inference are the
mask. With the published settings it comes out nearly uniform, which the report on it (density,
effective number of dimensions, seed stability) makes visible.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, MissingDependencyError
from vecveil.runtime import one_thread, progress
from vecveil.sensitivity.hard_concrete_math import inference_mask, l0_penalty
from vecveil.sensitivity.hard_concrete_options import MaskOptions
from vecveil.sensitivity.hard_concrete_training import MaskTrainer
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_embeddings

__all__ = [
    "HardConcreteMask",
    "MaskOptions",
    "SeedStability",
    "fit_hard_concrete_mask",
    "seed_stability",
    "stability_of",
]

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class HardConcreteMask:
    """A trained mask, and what can be said about it. Holds no embedding.

    Args:
        mask: sensitivity of each dimension in [0, 1], shape (n,)  (SPARSE Eq. 2)
        log_alpha: learnt gate locations, shape (n,).
        beta: learnt temperatures, shape (n,).
        loss_curve: cross-entropy per row of each epoch in nats, shape (epochs,); chance is 0.693.
        training_accuracy: share of the training rows classified rightly through the mask.
        held_out_accuracy: the same on the pairs kept back; None if there were none.
        pairs: number of pairs trained on.
    """

    mask: Array
    log_alpha: Array
    beta: Array
    loss_curve: Array
    training_accuracy: float
    held_out_accuracy: float | None
    pairs: int
    seconds: float
    seed: int
    options: MaskOptions = field(repr=False)

    @property
    def density(self) -> float:
        """Share of dimensions with a mask above 0.5."""
        return float((self.mask > 0.5).mean())

    @property
    def zeros(self) -> float:
        """Share of dimensions whose mask is exactly 0."""
        return float((self.mask == 0).mean())

    @property
    def ones(self) -> float:
        """Share of dimensions whose mask is exactly 1."""
        return float((self.mask == 1).mean())

    @property
    def effective_dimensions(self) -> float:
        """(Σm)² / Σm²: n for a uniform mask, 1 for a single dimension, 0 for none."""
        squares = float((self.mask**2).sum())
        return float(self.mask.sum()) ** 2 / squares if squares > 0 else 0.0

    @property
    def expected_active(self) -> float:
        """Expected share of active gates in training, the L0 penalty without λ."""
        return l0_penalty(self.log_alpha, self.beta, xi=self.options.xi, gamma=self.options.gamma)

    def to_record(self) -> dict[str, Any]:
        """Return the report as a dictionary for JSON, without the arrays."""
        return {
            "dimension": int(self.mask.size), "pairs": self.pairs, "seed": self.seed,
            "mean": float(self.mask.mean()), "sd": float(self.mask.std()),
            "density": self.density, "zeros": self.zeros, "ones": self.ones,
            "effective_dimensions": self.effective_dimensions,
            "expected_active": self.expected_active,
            "first_loss": float(self.loss_curve[0]), "last_loss": float(self.loss_curve[-1]),
            "training_accuracy": self.training_accuracy,
            "held_out_accuracy": self.held_out_accuracy,
            "seconds": self.seconds, "options": self.options.to_record(),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class SeedStability:
    """How far masks of different seeds agree.

    Args:
        value: mean Pearson correlation over all pairs of seeds; None if a mask was constant.
        correlations: one per pair of seeds, in the order of `itertools.combinations`.
    """

    value: float | None
    correlations: tuple[float, ...]
    seeds: tuple[int, ...]

    def to_record(self) -> dict[str, Any]:
        """Return the result as a dictionary for JSON."""
        return {
            "value": self.value,
            "correlations": list(self.correlations),
            "seeds": list(self.seeds),
        }


def fit_hard_concrete_mask(
    positive: Embeddings,
    negative: Embeddings,
    options: MaskOptions | None = None,
    *,
    seed: int = 0,
    show_progress: bool | None = None,
) -> HardConcreteMask:
    """Return the mask trained on pairs "with" and "without the concept"   (SPARSE Algorithm 2).

    Args:
        positive: embeddings of the texts as they are (D+, label 1), shape (N, n).
        negative: embeddings of the same texts without the concept (D-, label 0), shape (N, n).
        options: None takes the published settings, `MaskOptions.paper`.
        seed: start of weights and gates, order of the pairs, gate samples. The same seed, arrays
            and machine give the same mask.
        show_progress: a bar over the epochs; None shows it on a terminal.

    Raises:
        InvalidInputError: fewer than two pairs, unequal shapes, NaN, or training that diverged.
        MissingDependencyError: torch is not installed.

    Cost: 10,000 pairs of 384 dimensions with the published settings take about 20 s on one core.
    """
    owner = "fit_hard_concrete_mask"
    options = MaskOptions.paper() if options is None else options
    pairs, dimension = _check_pairs(positive, negative, owner)
    check_count(seed, owner=owner, param="seed", minimum=0)
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError(
            "Training the hard-concrete mask", "torch", "attacks"
        ) from error

    started = time.perf_counter()
    generator = torch.Generator().manual_seed(seed)
    trainer = MaskTrainer(dimension, options, generator)
    with one_thread(), torch.no_grad():
        data = torch.from_numpy(pairs)
        held = None
        if kept_back := round(options.held_out * len(pairs)):
            order = torch.randperm(len(pairs), generator=generator)
            held, data = data[order[:kept_back]].to(trainer.device), data[order[kept_back:]]
        data = data.to(trainer.device)
        epochs = range(options.epochs)
        steps = progress(epochs, "Training the mask", total=len(epochs), show=show_progress)
        curve = np.array([trainer.epoch(data) for _ in steps])
        log_alpha = trainer.gates[0].double().cpu().numpy()
        beta = trainer.gates[1].double().exp().cpu().numpy()
        if not np.isfinite(np.concatenate([curve, log_alpha, beta])).all():
            raise InvalidInputError.of(owner, "learning_rate", "small enough for training to converge",
                                       options.learning_rate, "The loss or a gate became infinite or NaN.",
                                       "Lower learning_rate or gate_learning_rate.")  # fmt: skip
        mask = inference_mask(log_alpha, xi=options.xi, gamma=options.gamma).astype(np.float64)
        on_device = torch.from_numpy(mask).float().to(trainer.device)
        training_accuracy = trainer.accuracy(data, on_device)
        held_out_accuracy = None if held is None else trainer.accuracy(held, on_device)
    for array in (mask, log_alpha, beta, curve):
        array.setflags(write=False)
    return HardConcreteMask(
        mask=mask,
        log_alpha=log_alpha,
        beta=beta,
        loss_curve=curve,
        training_accuracy=training_accuracy,
        held_out_accuracy=held_out_accuracy,
        pairs=len(data),
        seconds=time.perf_counter() - started,
        seed=seed,
        options=options,
    )


def seed_stability(
    positive: Embeddings,
    negative: Embeddings,
    options: MaskOptions | None = None,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    show_progress: bool | None = None,
) -> SeedStability:
    """Return how far the masks of ``seeds`` agree: the mean Pearson correlation over pairs of them.

    Cost: one training per seed.
    """
    if len(set(seeds)) != len(seeds) or len(seeds) < 2:
        raise InvalidInputError.of(
            "seed_stability", "seeds", "two or more different seeds", list(seeds)
        )
    masks = [
        fit_hard_concrete_mask(
            positive, negative, options, seed=seed, show_progress=show_progress
        ).mask
        for seed in seeds
    ]
    return stability_of(masks, seeds)


def stability_of(masks: Sequence[Array], seeds: Sequence[int]) -> SeedStability:
    """Return how far ``masks``, of these seeds, agree."""
    if min(mask.std() for mask in masks) < 1e-12:
        return SeedStability(None, (), tuple(seeds))
    correlations = tuple(
        float(np.corrcoef(a, b)[0, 1]) for a, b in itertools.combinations(masks, 2)
    )
    return SeedStability(float(np.mean(correlations)), correlations, tuple(seeds))


def _check_pairs(positive: Any, negative: Any, owner: str) -> tuple[npt.NDArray[np.float32], int]:
    """Return the checked pairs as one float32 array of shape (N, 2, n), and n."""
    why = "Row i of both arrays is one pair."
    first = check_embeddings(positive, owner=owner, param="positive", min_rows=2)
    second = check_embeddings(negative, owner=owner, param="negative", min_rows=2)
    if first.shape != second.shape:
        raise InvalidInputError.of(owner, "negative", f"of the shape of positive, {first.shape}",
                                   f"shape {second.shape}", why)  # fmt: skip
    return np.stack([first, second], axis=1).astype(np.float32), first.shape[1]
