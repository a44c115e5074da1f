"""What callers may pass as ``rng``: nothing, a seed, or a NumPy generator."""

from __future__ import annotations

import secrets

import numpy as np

from vecveil.errors import InvalidInputError
from vecveil.types import RandomSource

__all__ = ["resolve_generator"]


def resolve_generator(
    rng: RandomSource = None, *, owner: str = "resolve_generator"
) -> np.random.Generator:
    """Return the NumPy generator that ``rng`` stands for, for everything that is not protecting noise.

    Args:
        rng: None for one seeded by the operating system; an integer seed or a `numpy.random.Generator`
            for a repeatable one.
    """
    if rng is None:
        return np.random.default_rng(secrets.randbits(128))
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, int | np.integer) and not isinstance(rng, bool) and rng >= 0:
        return np.random.default_rng(int(rng))
    raise InvalidInputError.of(
        owner, "rng", "None, a seed ≥ 0 or a numpy.random.Generator", type(rng).__name__
    )
