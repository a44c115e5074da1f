"""The hard-concrete gate as SPARSE prints it: the reference that the fused training step is compared with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

from vecveil.privacy.sensitivity.hard_concrete import GAMMA, XI

Array = npt.NDArray[np.float64]


def gate_samples(log_alpha: Array, beta: Array, uniform: Array, *, xi: float = XI, gamma: float = GAMMA) -> Array:
    """Return gates m in [0, 1], one per entry of ``uniform``.

    m = clip(s (ξ - γ) + γ, 0, 1), s = sigmoid((logit(μ) + log α) / β)      (SPARSE Eq. 1)
    """
    s = expit((logit(uniform) + log_alpha) / beta)
    return np.clip(s * (xi - gamma) + gamma, 0.0, 1.0)
