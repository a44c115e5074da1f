"""Type aliases of the arrays and sequences that the package exchanges.

Shapes use jaxtyping for readers and type checkers; at run time the aliases are plain NumPy, so the protect path imports
nothing but NumPy and SciPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    Embeddings: TypeAlias = Float[np.ndarray, "N n"]
    Vector: TypeAlias = Float[np.ndarray, " n"]
    Matrix: TypeAlias = Float[np.ndarray, "n n"]
    TokenLabels: TypeAlias = Int[np.ndarray, "N V"]
    Groups: TypeAlias = Int[np.ndarray, " N"]
else:
    Embeddings = Vector = Matrix = npt.NDArray[np.floating[Any]]
    TokenLabels = Groups = npt.NDArray[np.integer[Any]]

Texts: TypeAlias = Sequence[str]
RandomSource: TypeAlias = "np.random.Generator | int | None"
"""``None`` (the default: a cryptographic generator), a seed, or a NumPy generator."""

Release: TypeAlias = Callable[[Embeddings, np.random.Generator], Embeddings]
"""Release oracle of an adaptive attacker: protects clean vectors with fresh noise from a generator."""
