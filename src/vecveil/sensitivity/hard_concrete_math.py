"""Closed forms of the hard-concrete gate: samples, the mask at inference, and the L0 penalty.

Pure NumPy functions of arrays; nothing here is random or holds state. Sources: SPARSE
(arXiv 2602.07090) Eq. 1, 2 and 4; Louizos et al. 2018, "Learning sparse neural networks through
L0 regularization", Eq. 10-12, for the penalty and its sign.

A gate stretches a binary concrete variable s in (0, 1) to (γ, ξ) with γ < 0 < 1 < ξ and clips it to
[0, 1], so that exact zeros and ones have positive probability.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

__all__ = [
    "GAMMA",
    "XI",
    "active_probability",
    "gate_samples",
    "inference_mask",
    "l0_penalty",
    "l0_penalty_gradient",
    "one_probability",
    "zero_probability",
]

Array = npt.NDArray[np.floating[Any]]

XI = 1.1
"""Upper end ξ of the stretched interval (SPARSE, below Eq. 1)."""
GAMMA = -0.1
"""Lower end γ of the stretched interval (SPARSE, below Eq. 1)."""


def gate_samples(
    log_alpha: Array, beta: Array, uniform: Array, *, xi: float = XI, gamma: float = GAMMA
) -> Array:
    """Return gates m in [0, 1], one per entry of ``uniform``.

    m = clip(s (ξ - γ) + γ, 0, 1), s = sigmoid((logit(μ) + log α) / β)      (SPARSE Eq. 1)

    Args:
        log_alpha: location, shape (n,).
        beta: temperature > 0, shape (n,). Smaller values push the gates towards 0 and 1.
        uniform: μ, draws from U(0, 1), shape (..., n).
    """
    s = expit((logit(uniform) + log_alpha) / beta)
    return _as_array(np.clip(s * (xi - gamma) + gamma, 0.0, 1.0))


def inference_mask(log_alpha: Array, *, xi: float = XI, gamma: float = GAMMA) -> Array:
    """Return the mask after training, clip(sigmoid(log α) (ξ - γ) + γ, 0, 1)  (SPARSE Eq. 2)."""
    return _as_array(np.clip(expit(log_alpha) * (xi - gamma) + gamma, 0.0, 1.0))


def active_probability(
    log_alpha: Array, beta: Array, *, xi: float = XI, gamma: float = GAMMA
) -> Array:
    """Return P(m > 0) = sigmoid(log α - β log(-γ/ξ)) of each gate (Louizos et al. 2018, Eq. 12)."""
    return _as_array(expit(log_alpha - beta * np.log(-gamma / xi)))


def zero_probability(
    log_alpha: Array, beta: Array, *, xi: float = XI, gamma: float = GAMMA
) -> Array:
    """Return P(m = 0) = sigmoid(β log(-γ/ξ) - log α) of each gate."""
    return _as_array(expit(beta * np.log(-gamma / xi) - log_alpha))


def one_probability(
    log_alpha: Array, beta: Array, *, xi: float = XI, gamma: float = GAMMA
) -> Array:
    """Return P(m = 1) = sigmoid(log α - β log((1-γ)/(ξ-1))) of each gate."""
    return _as_array(expit(log_alpha - beta * np.log((1 - gamma) / (xi - 1))))


def l0_penalty(log_alpha: Array, beta: Array, *, xi: float = XI, gamma: float = GAMMA) -> float:
    """Return the expected share of active gates, in (0, 1): the mean of P(m > 0).

    SPARSE's Eq. 4 prints this with a minus sign in front. Minimising that would reward active
    gates, against the text around it ("to enforce sparsity"); the sign here is Louizos et al.'s.
    """
    return float(active_probability(log_alpha, beta, xi=xi, gamma=gamma).mean())


def l0_penalty_gradient(
    log_alpha: Array, beta: Array, *, xi: float = XI, gamma: float = GAMMA
) -> tuple[Array, Array]:
    """Return the derivatives of `l0_penalty` by log α and by log β; both are positive."""
    q = active_probability(log_alpha, beta, xi=xi, gamma=gamma)
    by_location = q * (1 - q) / q.size
    return by_location, _as_array(-by_location * beta * np.log(-gamma / xi))


def _as_array(value: Any) -> Array:
    array: Array = np.asarray(value)
    return array
