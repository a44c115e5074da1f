"""How learned attackers see released vectors: centred, perhaps Wiener-filtered, standardised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vecveil.types import Embeddings, Matrix

__all__ = ["InputMap", "fit_input_map"]

FloatArray = npt.NDArray[np.float64]

_CUT_OFF = 1e-7  # share of the largest variance below which a direction counts as dead


@dataclass(frozen=True, eq=False)
class InputMap:
    """The affine map y -> (y - mean) @ weights, float32; the inputs come out with unit variance."""

    mean: FloatArray
    weights: FloatArray

    def __call__(self, Y: Embeddings) -> npt.NDArray[np.float32]:
        """Return the inputs of ``Y``, (N, r)."""
        exact = (Y.astype(np.float64) - self.mean) @ self.weights
        return exact.astype(np.float32)


def fit_input_map(Y: Embeddings, noise_covariance: Matrix | None = None) -> InputMap:
    """Return the map fitted on released vectors ``Y``.

    With the noise covariance S known, the Wiener filter Cov(y)⁺ (Cov(y) - S) comes first. Each
    coordinate is then divided by its standard deviation. Full whitening is not used: it blows up
    the low-variance directions and measured weaker behind an erasure. Dead coordinates are
    dropped.
    """
    exact = Y.astype(np.float64)
    mean = exact.mean(axis=0)
    exact = exact - mean
    covariance = exact.T @ exact / len(exact)
    weights = np.eye(len(covariance))
    if noise_covariance is not None and np.any(noise_covariance):
        values, vectors = np.linalg.eigh(covariance)
        kept = values > _CUT_OFF * max(values[-1], np.finfo(np.float64).tiny)
        values, vectors = values[kept], vectors[:, kept]
        # The signal's share cannot be negative in any direction; sampling may say otherwise.
        signal = covariance - np.asarray(noise_covariance, dtype=np.float64)
        whitener = vectors / np.sqrt(values)
        share, axes = np.linalg.eigh(whitener.T @ signal @ whitener)
        share = np.clip(share, 0.0, 1.0)
        colourer = vectors * np.sqrt(values)
        weights = whitener @ (axes * share) @ axes.T @ colourer.T
    variance = (weights * (covariance @ weights)).sum(axis=0)
    spread = np.sqrt(np.maximum(variance, 0))
    live = spread > np.sqrt(_CUT_OFF) * max(spread.max(initial=0.0), np.finfo(np.float64).tiny)
    if not live.any():  # constant vectors: one input that says nothing keeps networks buildable
        return InputMap(mean, np.zeros((len(covariance), 1)))
    return InputMap(mean, weights[:, live] / spread[live])
