"""The low-order bits of a release do not tell which input it was made of (Mironov 2012).

The attacker knows both inputs, the mechanism and its parameters, and looks at everything that floating point could
betray, but never at how large a value is: the lowest bits of y and of y/step, trailing zeros of y and of y minus
each input, whether these are float32 numbers, whether a double of the noise's support leads there, the sign of
zeros. It learns how likely each value of each clue is on releases of both inputs and votes on fresh ones.

Null: it is right half the time, up to the total variation of the exact mechanism (below 1e-4 for these inputs).
False failure: 1e-6 for the module, shared over all its tests (binomial, exact).
Power: with 4,000 test releases the limit is a rate of .546, so one of .59 is found but for less than 1e-6.
Control: four naive mechanisms, without a grid, lose to the same attacker, each in more than 90 of 100 releases of
some pair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from harness.statistics import threshold
from vecveil.keys import NoiseKey
from vecveil.privacy.mechanisms import Gaussian, Laplace, LdpGaussian, Mahalanobis, ProjectedLaplace, Purkayastha
from vecveil.privacy.protector import Protector
from vecveil.privacy.sensitivity import NoiseShape

N_DIM, LEARN, TEST = 16, 4000, 2000
SIGMA = 0.7310585786300049  # with a mantissa above 1: x → fl(σx) has holes
PAIRS: dict[str, tuple[Any, Any]] = {
    "zero and a third": (np.zeros(N_DIM), np.full(N_DIM, 1e-7 / 3)),
    "one and its neighbour": (np.ones(N_DIM), np.full(N_DIM, 1 + 2.0**-22)),
    "a fraction of the grid": (np.full(N_DIM, 0.5), np.full(N_DIM, 0.5 + 2.0**-19)),
    "magnitudes": (
        np.resize([1e-20, 1.0, 1e6, -3.0], N_DIM),
        np.resize([0.0, 1 + 2.0**-23, 1e6 + 2.0**-30, -3.0 - 2.0**-22], N_DIM),
    ),
}
NAMES = ("laplace", "diagonal", "full", "low rank", "gaussian", "gaussian full", "split", "local", "purkayastha")
NAMES += ("projected",)
# Fresh noise of every mechanism; of a secret key, which yields other random words, that of one a kind of noise.
CASES = [(name, dtype, False) for name in NAMES for dtype in ("f4", "f8")]
CASES += [(name, "f8", True) for name in ("laplace", "gaussian", "purkayastha")]
LEVEL = threshold(len(CASES) * len(PAIRS) + 100)


def mechanism(name: str) -> Any:
    n, epsilon = N_DIM, float(np.sqrt(N_DIM + 1)) / SIGMA
    diagonal = NoiseShape.from_diagonal(np.arange(n), floor=0.5)
    full = NoiseShape.from_matrix(np.cov(np.random.default_rng(0).standard_normal((40, n)).T))
    low = NoiseShape.from_low_rank(np.eye(n)[:, :3], np.array([3.0, 2.0, 1.0]), floor=0.2)
    made: dict[str, Callable[[], Any]] = {
        "laplace": lambda: Laplace(n, epsilon),
        "diagonal": lambda: Mahalanobis(diagonal, epsilon),
        "full": lambda: Mahalanobis(full, epsilon),
        "low rank": lambda: Mahalanobis(low, epsilon),
        "projected": lambda: ProjectedLaplace(np.linalg.qr(full.covariance())[0][:, :8], 3.0 / SIGMA),
        "gaussian": lambda: Gaussian(NoiseShape.isotropic(n), SIGMA),
        "gaussian full": lambda: Gaussian(full, SIGMA),
        "split": lambda: Laplace(n, epsilon, splits=3),
        "local": lambda: LdpGaussian(n, 20.0, 1e-6),
        "purkayastha": lambda: Purkayastha(n, 5.0),
    }
    return made[name]()


def trailing_zeros(X: np.ndarray, most: int = 23) -> np.ndarray:
    """Return how many of a float64's lowest bits are 0."""
    bits = np.ascontiguousarray(X).view(np.uint64)
    lowest = bits & (~bits + np.uint64(1))
    count = np.log2(np.maximum(lowest.astype(np.float64), 1.0)).astype(int)
    return np.minimum(np.where(bits << np.uint64(1) == 0, most, count), most)


def float32_numbers(X: np.ndarray) -> np.ndarray:
    return (X.astype(np.float32) == X).astype(int)


def reachable(Z: np.ndarray, scale: float) -> np.ndarray:
    """Return whether z = fl(scale·g) for some float g of its own type."""
    g = Z / Z.dtype.type(scale)
    up = Z.dtype.type(np.inf)
    near = (g, np.nextafter(g, up), np.nextafter(g, -up))
    return np.any([Z.dtype.type(scale) * one == Z for one in near], axis=0).astype(int)


def uniform32(Z: np.ndarray, scale: float) -> np.ndarray:
    """Return whether z is what the logarithm of some 32-bit uniform gives."""
    k = np.rint(np.exp(np.maximum(-np.abs(Z) / scale, -700)) * 2.0**32 - 0.5)
    near = [np.abs(Z) == -scale * np.log((np.maximum(k + d, 0) + 0.5) / 2.0**32) for d in (-1, 0, 1)]
    return np.any(near, axis=0).astype(int)


def clues(Y: np.ndarray, inputs: tuple[np.ndarray, np.ndarray], step: float, scale: float) -> Any:
    """Return (rows, clues, coordinates) small whole numbers: what the bits show."""
    Y64 = Y.astype(np.float64)
    bits = np.ascontiguousarray(Y64).view(np.uint64)
    grid = Y64 / step
    whole = np.mod(np.rint(grid), 64).astype(int)
    found = [
        (bits & np.uint64(63)).astype(int),
        (bits >> np.uint64(29) & np.uint64(63)).astype(int),  # the lowest that a float32 has
        trailing_zeros(Y64),
        whole,
        np.mod(np.floor(8 * grid), 8).astype(int),
        np.where(Y64 == 0, 1 + np.signbit(Y64), 0).astype(int),
    ]
    for x in inputs:
        Z = Y64 - x
        size = np.clip(np.frexp(Z)[1] + 8, 0, 15)
        found += [trailing_zeros(Z), float32_numbers(Z), uniform32(Z, scale)]
        found.append(reachable(Z.astype(np.float32), scale) + 2 * size)
        found += [reachable(Z, scale) + 2 * size, np.minimum(trailing_zeros(Y64), 3) + 4 * size]
        found.append(np.mod(np.rint((Y64 - x) / step * 4), 64).astype(int))
    return np.stack(found, axis=1)


def rate_of_attack(
    release: Callable[[np.ndarray], np.ndarray],
    inputs: tuple[np.ndarray, np.ndarray],
    *,
    step: float,
    scale: float = SIGMA,
) -> tuple[int, int]:
    """Return how often the attacker is right, of how many.

    It learns from the values of a clue whose counts differ by more than four standard deviations, sets
    its threshold on releases of their own, and guesses where a score is just there.
    """
    learnt, held, tested = (
        [clues(release(np.tile(x, (rows, 1))), inputs, step, scale) for x in inputs]
        for rows in (LEARN, LEARN // 4, TEST)
    )
    cells = 64 * np.arange(learnt[0][0].size)
    first, second = (
        np.bincount((seen.reshape(len(seen), -1) + cells).ravel(), minlength=64 * len(cells)) for seen in learnt
    )
    differ = np.abs(first - second) > 4 * np.sqrt(first + second)
    table = np.where(differ, np.log((second + 0.5) / (first + 0.5)), 0.0)

    def scores(parts: list[np.ndarray]) -> list[np.ndarray]:
        return [table[seen.reshape(len(seen), -1) + cells].sum(axis=1) for seen in parts]

    low, high = (np.median(part) for part in scores(held))
    coin = np.random.default_rng()
    right = 0
    for score, sign in zip(scores(tested), (-1, 1), strict=True):
        above = np.sign(score - (low + high) / 2)
        guess = np.where(above == 0, coin.choice([-1, 1], len(score)), above)
        right += int((guess == sign).sum())
    return right, 2 * TEST


def rejected(right: int, of: int, advantage: float = 0.0) -> bool:
    return bool(stats.binom(of, 0.5 + advantage / 2).sf(right - 1) < LEVEL)


def unrounded(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return X + SIGMA * rng.standard_normal(X.shape)


def float32_noise(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return X + (SIGMA * rng.standard_normal(X.shape)).astype(np.float32)


def float32_all(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    noise = np.float32(SIGMA) * rng.standard_normal(X.shape, dtype=np.float32)
    return X.astype(np.float32) + noise


def log_of_32_bits(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    uniform = (rng.integers(0, 2**32, X.shape) + 0.5) / 2.0**32
    return X - SIGMA * np.log(uniform) * rng.choice([-1.0, 1.0], X.shape)


NAIVE = {
    ("unrounded", "zero and a third"): (unrounded, 0.9),
    ("unrounded", "a fraction of the grid"): (unrounded, 0.7),
    ("unrounded", "one and its neighbour"): (unrounded, 0.57),
    ("float32 noise", "zero and a third"): (float32_noise, 0.9),
    ("float32 noise", "magnitudes"): (float32_noise, 0.9),
    ("float32", "zero and a third"): (float32_all, 0.9),
    ("float32", "one and its neighbour"): (float32_all, 0.6),
    ("32 bits", "one and its neighbour"): (log_of_32_bits, 0.9),
    ("32 bits", "magnitudes"): (log_of_32_bits, 0.9),
}
"""Naive mechanisms by name and pair, with a rate that the attacker exceeds by ten standard deviations or more."""


@pytest.mark.parametrize(("name", "pair"), NAIVE)
def test_control_naive_noise_gives_its_input_away(name: str, pair: str) -> None:
    rng, (naive, least) = np.random.default_rng(0), NAIVE[name, pair]
    right, of = rate_of_attack(lambda X: naive(X, rng), PAIRS[pair], step=2.0**-17)
    assert rejected(right, of)
    assert right > least * of, right / of


def releases(one: Any, dtype: str, keyed: bool) -> Callable[[np.ndarray], np.ndarray]:
    """Return what releases rows: with fresh noise, or as the items of a secret key."""
    if not keyed:
        return lambda X: one.protect(X.astype(dtype))
    protector = Protector("test", one)
    key, used = NoiseKey("k", np.random.default_rng().bytes(32)), [0]

    def release(X: np.ndarray) -> np.ndarray:
        used[0] += len(X)
        return protector.protect(X.astype(dtype), ids=range(used[0] - len(X), used[0]), key=key)

    return release


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize(("name", "dtype", "keyed"), CASES)
def test_the_bits_of_a_release_do_not_tell_the_input(name: str, dtype: str, keyed: bool, pair: str) -> None:
    one, inputs = mechanism(name), PAIRS[pair]
    if name in ("local", "purkayastha"):  # within the unit ball, and directions
        longest = max(np.linalg.norm(inputs[0]), np.linalg.norm(inputs[1]), 1.0)
        origin = np.eye(N_DIM)[1] if name == "purkayastha" else 0.0
        inputs = tuple((x + origin) / longest / 2 for x in inputs)
    A, B = (x.astype(dtype)[None] for x in inputs)
    advantage = float(one.advantage(one.distances(A, B))[0])
    assert advantage < 1e-4
    right, of = rate_of_attack(releases(one, dtype, keyed), inputs, step=one.step)
    assert not rejected(right, of, advantage), right / of


@pytest.mark.parametrize("base", [0.0, 1.0])
@pytest.mark.parametrize("name", ["diagonal", "full", "gaussian", "low rank"])
def test_bits_do_not_tell_where_noise_is_a_thousand_times_wider_than_the_grid_expects(name: str, base: float) -> None:
    """With a floor of 1e-6 the grid follows the least noise; the inputs differ where there is most."""
    turned = np.linalg.qr(np.random.default_rng(0).standard_normal((N_DIM, N_DIM)))[0]
    mask = np.arange(N_DIM) < N_DIM // 2
    full = NoiseShape.from_matrix((turned * mask) @ turned.T, floor=1e-6)
    low = NoiseShape.from_low_rank(turned[:, :2], np.ones(2), floor=1e-6)
    epsilon = float(np.sqrt(N_DIM + 1)) / SIGMA
    one: Any = {
        "diagonal": Mahalanobis(NoiseShape.from_diagonal(mask.astype(float), floor=1e-6), epsilon),
        "full": Mahalanobis(full, epsilon),
        "gaussian": Gaussian(full, SIGMA),
        "low rank": Mahalanobis(low, epsilon),
    }[name]
    along = mask if name == "diagonal" else turned[:, 0]
    x = np.full(N_DIM, base)
    inputs = (x, x + 2.0**-20 * along)
    advantage = float(one.advantage(one.distances(inputs[0][None], inputs[1][None]))[0])
    assert advantage < 1e-4
    right, of = rate_of_attack(lambda X: one.protect(X), inputs, step=one.step)
    assert not rejected(right, of, advantage), right / of
