"""Cosine matching: the candidate whose expected release points the way the released vector points."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vecveil.attacks.candidates.expected import ExpectedReleaseMatching
from vecveil.attacks.release_model import ReleaseModel

__all__ = ["CosineMatching"]

FloatArray = npt.NDArray[np.float64]


class CosineMatching(ExpectedReleaseMatching):
    """Candidates ranked by the cosine between their expected release and the released vector.

    It needs no noise covariance: what somebody with a vector database does. Behind noise that differs
    from direction to direction the likelihood finds more.
    """

    name = "matching-cosine"
    description = "Candidates ranked by the cosine of their expected release with the vector."
    cost = "seconds on one core; the encoder's vectors of every candidate"
    source = "Nearest-neighbour matching in cosine, as vector databases rank."

    def _embed(self, model: ReleaseModel, Y: FloatArray) -> FloatArray:
        norms = np.linalg.norm(Y, axis=1, keepdims=True)
        unit: FloatArray = Y / np.maximum(norms, np.finfo(np.float64).tiny)
        return unit
