"""Gaussian kernel ridge regression on released vectors: how its settings are chosen, how it is fitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from vecveil.attacks.features import InputMap, fit_input_map
from vecveil.types import Embeddings, Matrix

__all__ = ["KernelModel", "Setting", "choose_setting", "constant_model", "fit_kernel_ridge"]

Array = npt.NDArray[Any]

_SHARPNESS = (0.5, 1.0, 2.0, 4.0)  # 1: a kernel of 1/e at the median squared distance
_PENALTIES = (0.03, 0.1, 0.3, 1.0)
_FILTER_SHARPNESS = 2.0  # at which the Wiener filter is tried
_BLOCK = 2000


@dataclass(frozen=True)
class Setting:
    """Width, penalty, and whether the Wiener filter comes first."""

    sharpness: float = 2.0
    penalty: float = 0.1
    filtered: bool = True


@dataclass(frozen=True, eq=False)
class KernelModel:
    """A fitted regression; `KernelModel(Y)` returns the estimated labels, (N, V)."""

    inputs: InputMap
    centres: Array
    weights: Array
    label_mean: Array
    scale: float
    sharpness: float
    penalty: float
    filtered: bool

    def __call__(self, Y: Embeddings) -> Array:
        """Return the estimated labels of released vectors."""
        inputs = self.inputs(Y)
        rate = self.sharpness / self.scale
        blocks = [
            _kernel(inputs[i : i + _BLOCK], self.centres, rate) @ self.weights
            for i in range(0, len(inputs), _BLOCK)
        ]
        found: Array = np.concatenate(blocks) + self.label_mean
        return found

    def details(self) -> dict[str, Any]:
        """Return what was chosen."""
        return {
            "sharpness": self.sharpness,
            "penalty": self.penalty,
            "filtered": self.filtered,
            "rows": len(self.centres),
        }


def constant_model(dimension: int, label_mean: Array) -> KernelModel:
    """Return the model that answers the label mean."""
    inputs = InputMap(np.zeros(dimension), np.zeros((dimension, 1)))
    nothing = np.zeros((1, len(label_mean)), dtype=np.float32)
    centre = np.zeros((1, 1), dtype=np.float32)
    return KernelModel(inputs, centre, nothing, label_mean, 1.0, 1.0, 1.0, False)


def choose_setting(
    Y: Embeddings,
    L: Array,
    held: Embeddings,
    judge: Callable[[Array], float],
    noise_covariance: Matrix | None,
) -> Setting:
    """Return the setting with the best figure on held-out releases.

    Inputs with and without the Wiener filter are compared first: a wrong declared covariance must not blind
    the attack.

    Args:
        Y, L: Releases to learn from and their labels.
        held: Releases to judge on.
        judge: The figure of estimated labels of ``held``.
        noise_covariance: The declared covariance, or None.
    """
    labels = L.astype(np.float32)
    label_mean = labels.mean(axis=0)

    def best(filtered: bool, widths: Sequence[float]) -> tuple[float, Setting]:
        inputs = fit_input_map(Y, noise_covariance if filtered else None)
        centres, across = inputs(Y), inputs(held)
        scale = _median_distance(centres)
        found: list[tuple[float, Setting]] = []
        for width in widths:
            kernel = _kernel(centres, centres, width / scale)
            beside = _kernel(across, centres, width / scale)
            for penalty in _PENALTIES:
                weights = _solve(kernel.copy(), labels - label_mean, penalty)
                value = judge(beside @ weights + label_mean)
                found.append((value, Setting(width, penalty, filtered)))
        return max(found, key=lambda each: each[0])

    if noise_covariance is None or not np.any(noise_covariance):
        return best(False, _SHARPNESS)[1]
    tried = [best(filtered, (_FILTER_SHARPNESS,)) for filtered in (True, False)]
    first = max(tried, key=lambda each: each[0])  # the filter where both are equal
    others = [width for width in _SHARPNESS if width != _FILTER_SHARPNESS]
    return max([first, best(first[1].filtered, others)], key=lambda each: each[0])[1]


def fit_kernel_ridge(
    Y: Embeddings,
    L: Array,
    weight: Array,
    setting: Setting,
    noise_covariance: Matrix | None,
    blocks: Sequence[npt.NDArray[np.intp]] = (),
) -> KernelModel:
    """Return the regression from releases ``Y`` to labels ``L``.

    Args:
        weight: (N,) what each row counts; the penalty of a row is divided by it.
        setting: Width, penalty and filter.
        noise_covariance: The declared covariance, used if the setting has the filter.
        blocks: Parts of the rows that are fitted each on its own, their predictions averaged: k blocks cost 1/k² of
            one fit. None given: one block.
    """
    inputs = fit_input_map(Y, noise_covariance if setting.filtered else None)
    centres, labels = inputs(Y), L.astype(np.float32)
    label_mean = np.average(labels, axis=0, weights=weight).astype(np.float32)
    scale = _median_distance(centres)
    weights = np.zeros_like(labels)
    parts = list(blocks) or [np.arange(len(Y))]
    for rows in parts:
        kernel = _kernel(centres[rows], centres[rows], setting.sharpness / scale)
        penalty = (setting.penalty / weight[rows]).astype(np.float32)
        weights[rows] = _solve(kernel, labels[rows] - label_mean, penalty) / len(parts)
    return KernelModel(
        inputs, centres, weights, label_mean, scale,
        setting.sharpness, setting.penalty, setting.filtered,
    )  # fmt: skip


def _squared_distances(left: Array, right: Array) -> Array:
    squares = (left * left).sum(axis=1)[:, None] + (right * right).sum(axis=1)[None, :]
    squares -= 2 * (left @ right.T)
    distances: Array = np.maximum(squares, 0, out=squares)
    return distances


def _kernel(left: Array, right: Array, rate: float) -> Array:
    kernel = _squared_distances(left, right)
    kernel *= -rate
    result: Array = np.exp(kernel, out=kernel)
    return result


def _median_distance(inputs: Array) -> float:
    """Return the median squared distance between some rows of ``inputs``; 1 if that is 0."""
    part = inputs[:700]
    distances = _squared_distances(part, part)[np.triu_indices(len(part), k=1)]
    median = float(np.median(distances)) if distances.size else 0.0
    return median if median > 0 else 1.0


def _solve(kernel: Array, target: Array, penalty: float | Array) -> Array:
    """Return (kernel + diag(penalty))⁻¹ target; overwrites ``kernel``."""
    diagonal = np.diag_indices(len(kernel))
    kernel[diagonal] += penalty
    try:
        weights: Array = cho_solve(cho_factor(kernel, lower=True, check_finite=False), target)
    except LinAlgError:  # float32 is not enough when many rows coincide
        exact = kernel.astype(np.float64)
        exact[diagonal] += 1e-6 * len(kernel)
        weights = cho_solve(cho_factor(exact, lower=True, check_finite=False), target)
    return weights
