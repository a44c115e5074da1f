"""Where random numbers come from: the operating system's entropy by default, a seed when asked.

Noise that protects somebody must not be predictable, so the default is AES-128 in counter mode
(`randomgen.AESCounter`), keyed afresh from the operating system on every call. Nothing is kept
between calls, so a forked or spawned worker can never repeat its parent's noise. A seed or a NumPy
generator makes a run repeatable and is recorded as insecure wherever results are stored.
"""

from __future__ import annotations

import secrets

import numpy as np
from randomgen import AESCounter

from vecveil.errors import InvalidInputError, message
from vecveil.types import RandomSource

__all__ = ["is_secure", "resolve_generator", "secure_generator"]


def secure_generator() -> np.random.Generator:
    """Return a generator over AES-128-CTR with a fresh 128-bit key from the operating system."""
    return np.random.Generator(AESCounter(key=secrets.randbits(128)))


def resolve_generator(
    rng: RandomSource = None, *, owner: str = "resolve_generator"
) -> np.random.Generator:
    """Return the generator that ``rng`` stands for.

    Args:
        rng: None for a fresh cryptographic generator; an integer seed or a
            `numpy.random.Generator` for a repeatable (insecure) stream.
    """
    if rng is None:
        return secure_generator()
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, int | np.integer) and not isinstance(rng, bool) and rng >= 0:
        return np.random.default_rng(int(rng))
    raise InvalidInputError(
        message(owner, "rng", "None, a seed ≥ 0 or a numpy.random.Generator", type(rng).__name__)
    )


def is_secure(rng: RandomSource) -> bool:
    """Return whether `resolve_generator` would use the cryptographic generator for ``rng``."""
    return rng is None
