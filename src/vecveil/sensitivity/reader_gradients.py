"""Which directions a non-linear reader of the labels looks along: the outer products of its gradients.

A linear erasure leaves what a reader can tell from where a text lies among its neighbours. Kernel ridge regression
reads that, and the mean over texts of ∇f ∇fᵀ says along which directions its answer f changes: the expected gradient
outer product (Trivedi, Wang, Kpotufe and Shakhnarovich 2014), which recursive feature machines learn features
with (Radhakrishnan, Beaglehole, Pandit and Belkin 2024). There it says what to keep; here, what to erase.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg

from vecveil.sensitivity.linear_map import LinearMap
from vecveil.types import Embeddings, Matrix

__all__ = ["gradient_moment", "reader_gradients"]

READER_ROWS = 2500
GRADIENT_ROWS = 800
READER_NOISE = 0.2
"""Noise-to-signal ratio of the releases that the reader learns from: without noise it looks along directions
that any noise drowns."""

SHARPNESS = 1.5
PENALTY = 0.3
COMPONENTS = 40
"""Leading singular directions of the reader's weights: labels in the hundreds answer to few combinations of them."""


def gradient_moment(
    Y: Embeddings, L: npt.NDArray[Any], *, rows: int = GRADIENT_ROWS, components: int = COMPONENTS
) -> Matrix:
    """Return G = mean over rows of Σ_v ∇f_v ∇f_vᵀ, an (m, m) float64 array, f the kernel reader of ``L``.

    f_v(y) = Σ_i c_iv k(y, y_i) with k(y, y′) = exp(−1.5 ‖y − y′‖²/median), so that with ρ = 1.5/median
    ∇f_v(y) = −2ρ Σ_i c_iv k(y, y_i)(y − y_i).

    Args:
        Y: (N, m) released vectors. Cost: N³/3 operations, and ``components``·``rows``·N·m.
        L: (N, V) labels.
        rows: how many of the first rows gradients are taken at.
        components: of the singular directions of c, how many count.
    """
    A = np.asarray(Y, dtype=np.float32)
    A = A - A.mean(axis=0)
    squares = (A * A).sum(axis=1)
    between = np.maximum(squares[:, None] + squares - 2 * (A @ A.T), 0)
    rate = np.float32(SHARPNESS / max(float(np.median(between[:700, :700])), 1e-12))
    kernel = np.exp(-rate * between)
    targets = np.asarray(L, dtype=np.float32)
    targets = targets - targets.mean(axis=0)
    regularised = kernel.copy()
    regularised[np.diag_indices_from(regularised)] += np.float32(PENALTY)
    factor = linalg.cho_factor(regularised, lower=True, overwrite_a=True, check_finite=False)
    weights = linalg.cho_solve(factor, targets, check_finite=False)
    left, singular, _ = np.linalg.svd(
        weights, full_matrices=False
    )  # right factors rotate the labels
    weights = left[:, :components] * singular[:components]
    at, near = A[:rows], kernel[:rows]
    total = np.zeros((A.shape[1], A.shape[1]))
    for column in weights.T:
        shares = near * column
        gradient = shares.sum(axis=1)[:, None] * at - shares @ A
        total += np.asarray(gradient.T @ gradient, dtype=np.float64)
    moment: Matrix = total * (2 * float(rate)) ** 2 / len(at)
    return moment


def reader_gradients(X: Embeddings, L: npt.NDArray[Any], linear: LinearMap, *, seed: int) -> Matrix:
    """Return `gradient_moment` of a reader of releases of ``X`` through ``linear``, in ``X``'s own space.

    Args:
        X: (N, n) embeddings; 2,500 of them, drawn with ``seed``, are released with some noise and read.
        L: (N, V) labels.

    Returns:
        An (n, n) array TᵀGT: the gradient of f(Tx) with respect to x is Tᵀ∇f.
    """
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(X))[:READER_ROWS]
    clean = np.asarray(X, dtype=np.float32)[rows]
    noise = rng.standard_normal(clean.shape, dtype=np.float32)
    spread = READER_NOISE * float(np.sqrt((clean**2).sum(axis=1).mean() / clean.shape[1]))
    Y = linear.apply(clean + np.float32(spread) * noise, reduced=True)
    moment: Matrix = linear.down.T @ gradient_moment(Y, L[rows]) @ linear.down
    return moment
