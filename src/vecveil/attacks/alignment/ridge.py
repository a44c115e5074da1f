"""Ridge alignment: the linear map back, whatever the linear map forward was."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vecveil.attacks.alignment.base import AlignmentAttack
from vecveil.attacks.alignment.maps import AffineMap

__all__ = ["RidgeAlignment"]

FloatArray = npt.NDArray[np.float64]

_PENALTIES = tuple(10.0**e for e in range(-10, 3))  # shares of the mean squared singular value
_CUT_OFF = 1e-12


class RidgeAlignment(AlignmentAttack):
    """Regresses clean vectors on released ones; the penalty has the least leave-one-out error.

    Any linear map with noise is undone as well as k pairs allow, also into fewer or more dimensions. It
    assumes less than a rotation and so needs more pairs for one.
    """

    name = "ridge-alignment"
    description = "Ridge regression from released to clean vectors over known pairs."
    cost = "seconds on one core, and about as many known pairs as dimensions"
    source = "Hoerl and Kennard (1970); leave-one-out in closed form, Allen (1974), PRESS."

    def _align(self, Y: FloatArray, clean: FloatArray, rng: np.random.Generator) -> AffineMap:
        source, target = Y.mean(axis=0), clean.mean(axis=0)
        x = clean - target
        left, values, right = np.linalg.svd(Y - source, full_matrices=False)
        kept = values > _CUT_OFF * values.max(initial=0.0)
        left, values, right = left[:, kept], values[kept], right[kept]
        if not kept.any():
            return AffineMap(np.zeros((Y.shape[1], x.shape[1])), source, target)
        turned, square = left.T @ x, values**2
        errors = {
            penalty: _left_out_error(left, square, turned, x, penalty)
            for penalty in np.mean(square) * np.array(_PENALTIES)
        }
        penalty = min(errors, key=lambda one: errors[one])
        weights = right.T @ ((values / (square + penalty))[:, None] * turned)
        return AffineMap(weights, source, target, f"penalty {penalty:.6g}")


def _left_out_error(
    left: FloatArray, square: FloatArray, turned: FloatArray, x: FloatArray, penalty: float
) -> float:
    """Return the squared error when each row is predicted by the fit to the others.

    Formula: residual / (1 - h), h the row's leverage, with 1/k for the intercept (Allen 1974).
    """
    shrink = square / (square + penalty)
    residual = x - left @ (shrink[:, None] * turned)
    leverage = (left**2) @ shrink + 1 / len(x)
    error = residual / np.maximum(1 - leverage, 1e-12)[:, None]
    return float((error**2).sum())
