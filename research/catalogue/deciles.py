"""Top against bottom decile of a sensitivity per dimension, ranked on one half and tested on the other.

Ranked and tested on the same figures, as SPARSE's appendix A does, the top is above the bottom whatever the figures
are, and a signed-rank test of k dimensions gives its least p-value, 2^(1 − k), on pure noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vecveil.errors import InvalidInputError
from vecveil.types import Embeddings, Vector

__all__ = [
    "DecileTest",
    "decile_means",
    "decile_test",
    "noise_tests",
    "permuted_tests",
    "share_below",
]

LEAST_DIMENSIONS = 2
ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class DecileTest:
    """What a signed-rank test of the top against the bottom of a ranking finds.

    Attributes:
        top, bottom: mean of the tested figures over either.
        p_value: of Wilcoxon's signed-rank test, two-sided; 1 where all differences are 0.
        higher: in how many of the pairs the one of the top is higher.
        dimensions: k, how many make a tenth.
    """

    top: float
    bottom: float
    p_value: float
    higher: int
    dimensions: int

    def to_record(self) -> dict[str, Any]:
        """Return the figures."""
        return asdict(self)


def decile_test(ranked: Vector, tested: Vector, *, share: float = 0.1) -> DecileTest:
    """Return the test of ``tested`` (n,) between the dimensions with the highest and the lowest ``ranked`` (n,).

    Pairs are made by rank: the highest with the lowest, the second with the second from below, and so on.

    Args:
        share: of the dimensions at either end, in (0, 0.5].

    Raises:
        InvalidInputError: so few dimensions that fewer than two make that share.
    """
    from scipy.stats import wilcoxon

    n = len(ranked)
    count = round(share * n)
    if not 0 < share <= 0.5 or count < LEAST_DIMENSIONS:
        wanted = f"at most 0.5 and {LEAST_DIMENSIONS} dimensions or more of {n}"
        raise InvalidInputError.of("decile_test", "share", wanted, share)
    order = np.argsort(-ranked, kind="stable")
    top, bottom = tested[order[:count]], tested[order[::-1][:count]]
    difference = top - bottom
    p_value = float(wilcoxon(difference).pvalue) if difference.any() else 1.0
    return DecileTest(
        float(top.mean()), float(bottom.mean()), p_value, int((difference > 0).sum()), count
    )


def decile_means(ranked: Vector, tested: Vector) -> list[float]:
    """Return the mean of ``tested`` in ten parts of the dimensions, from the highest ``ranked`` to the lowest."""
    order = np.argsort(-ranked, kind="stable")
    return [float(tested[part].mean()) for part in np.array_split(order, 10)]


def permuted_tests(
    ranked: Vector, tested: Vector, *, draws: int, share: float, rng: np.random.Generator
) -> list[DecileTest]:
    """Return tests in which the ranks belong to other dimensions: what the test finds where there is nothing."""
    return [decile_test(rng.permutation(ranked), tested, share=share) for _ in range(draws)]


def noise_tests(
    sensitivity: Callable[[Embeddings, Embeddings], Vector],
    pairs: int,
    dimension: int,
    *,
    draws: int,
    share: float,
    rng: np.random.Generator,
) -> tuple[list[DecileTest], list[DecileTest]]:
    """Return tests on vectors that are noise: ranked and tested on all pairs, and ranked on a half of them."""
    circular, held_out = [], []
    half = pairs // 2
    for _ in range(draws):
        P, N = (rng.standard_normal((pairs, dimension), dtype=np.float32) for _ in range(2))
        both = sensitivity(P, N)
        circular.append(decile_test(both, both, share=share))
        first, second = sensitivity(P[:half], N[:half]), sensitivity(P[half:], N[half:])
        held_out.append(decile_test(first, second, share=share))
    return circular, held_out


def share_below(tests: Sequence[DecileTest], alpha: float = ALPHA) -> float:
    """Return the share of tests with a p-value of at most ``alpha``."""
    return float(np.mean([test.p_value <= alpha for test in tests]))
