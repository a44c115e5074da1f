"""The protected side of a protector that was told of a part of the words only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vecveil.auditing.case import Side
from vecveil.errors import VecveilError
from vecveil.types import Embeddings

if TYPE_CHECKING:
    from vecveil.auditing.families.held_out_terms import Refit
    from vecveil.protector import Protector

__all__ = ["refitted_side"]


def refitted_side(protector: Protector, embeddings: Embeddings, seed: int) -> Refit:
    """Return the function that fits the audited method again and protects all texts with the result.

    Args:
        embeddings: (N, n) clean vectors of all texts of the audit.
        seed: of the noise.
    """

    def refit(
        positive: Embeddings,
        negative: Embeddings,
        labels: npt.NDArray[np.uint8],
        background: Embeddings,
        groups: npt.NDArray[np.intp],
    ) -> Side | str:
        from vecveil.protector.refitting import refit as fit_again
        from vecveil.protector.refitting import refit_refusal

        refused = refit_refusal(protector)
        if refused is not None:
            return refused
        try:
            other = fit_again(protector, positive, negative, labels, background, groups=groups)
        except VecveilError as error:
            return f"The method cannot be fitted on half of the words: {error}"
        return Side(
            "protected",
            embeddings,
            other.protect(embeddings, np.random.default_rng([seed, 7])),
            other.release(),
            other.released_noise_covariance(),
        )

    return refit
