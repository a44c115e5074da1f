"""How to hide: mechanisms that add noise with a stated law."""

from vecveil.mechanisms.base import Mechanism
from vecveil.mechanisms.laplace import (
    Laplace,
    Mahalanobis,
    epsilon_of_rms_norm,
    rms_norm_of_epsilon,
)

__all__ = ["Laplace", "Mahalanobis", "Mechanism", "epsilon_of_rms_norm", "rms_norm_of_epsilon"]
