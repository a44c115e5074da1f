"""Releases lie on a grid of a power of two that no input moves, and use all of it evenly.

Null: y/step is a whole number; its lowest bits are uniform and do not depend on where x lies between two points of
the grid; the number of different values is that of noise 2¹⁶ steps wide.
False failure: 1e-6 for the module, shared over all its tests.
Power: of 40,000 draws a chi-square over 16 residues finds a share that is off by 15 % of itself.
Control: noise that is added to the rounded input, noise on a grid 16 times coarser, and noise that is rounded to
even multiples are rejected by the same tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from harness.statistics import threshold
from vecveil.errors import ReleaseError
from vecveil.privacy.mechanisms import Gaussian, Laplace, LdpGaussian, Mahalanobis, Purkayastha
from vecveil.privacy.mechanisms.base import GRID_BITS, grid_step
from vecveil.privacy.sensitivity import NoiseShape

N = 8
ROWS = 40_000
NAMES = ("laplace", "diagonal", "full", "low rank", "gaussian", "local", "purkayastha")
FRACTIONS = (0.0, 0.25, 0.4999, 0.5, 0.75)
LEVEL = threshold(400)


def mechanism(name: str, scale: float = 1.0) -> Any:
    A = np.random.default_rng(0).standard_normal((40, N))
    shapes = {
        "diagonal": NoiseShape.from_diagonal(np.arange(N), floor=0.1),
        "full": NoiseShape.from_matrix(A.T @ A),
        "low rank": NoiseShape.from_low_rank(np.eye(N)[:, :2], np.array([3.0, 1.0]), floor=0.1),
    }
    if name == "gaussian":
        return Gaussian(NoiseShape.isotropic(N), scale)
    if name == "local":
        return LdpGaussian(N, 3.0 / scale, 1e-6)
    if name == "purkayastha":
        return Purkayastha(N, 5.0 / scale)
    if name == "laplace":
        return Laplace(N, 3.0 / scale)
    return Mahalanobis(shapes[name], 3.0 / scale)


def rows(one: Any, fraction: float = 0.0, count: int = ROWS) -> np.ndarray:
    """Return one vector of norm at most 1 many times, ``fraction`` steps off the grid."""
    x = np.round(np.linspace(-0.3, 0.3, N) / one.step) * one.step + fraction * one.step
    return np.tile(x, (count, 1))


def residue_p(grid: np.ndarray, bits: int = 4) -> float:
    counts = np.bincount(np.mod(grid, 2**bits).astype(int).ravel(), minlength=2**bits)
    return float(stats.chisquare(counts).pvalue)


def same_p(first: np.ndarray, second: np.ndarray, bits: int = 3) -> float:
    tables = [
        np.stack([np.bincount(np.mod(g[:, j], 2**bits).astype(int), minlength=2**bits) for j in range(N)])
        for g in (first, second)
    ]
    table = np.stack([t.ravel() for t in tables])
    return float(stats.chi2_contingency(table[:, table.any(axis=0)]).pvalue)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e5])
def test_every_release_is_a_multiple_of_the_step(name: str, dtype: Any, scale: float) -> None:
    one = mechanism(name, scale)
    rng = np.random.default_rng(0)
    most = 2.0 ** (51 if dtype == np.float64 else 39)
    for size in (1e-20, 1e-3, 1.0) if name == "local" else (1e-20, 1.0, 1e3, 1e6, 1e12):
        X = rng.standard_normal((200, N))
        X *= size / np.linalg.norm(X, axis=1, keepdims=True)
        if name not in ("local", "purkayastha") and np.abs(X).max() >= most * one.step:
            with pytest.raises(ReleaseError, match="so long that rounding removes it"):
                one.protect((X * 8).astype(dtype))
            continue
        Y = one.protect(X.astype(dtype)).astype(np.float64)
        np.testing.assert_array_equal(Y / one.step, np.rint(Y / one.step))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fraction", FRACTIONS)
def test_low_bits_are_uniform_wherever_the_input_lies(name: str, fraction: float) -> None:
    one = mechanism(name)
    grid, other = (one.protect(rows(one, f)) / one.step for f in (fraction, 0.0))
    for j in range(N):
        assert residue_p(grid[:, j]) > LEVEL
    assert residue_p(grid[:, 0], bits=1) > LEVEL  # parity
    assert same_p(grid, other) > LEVEL
    both = np.mod(grid[:, 0], 4) * 4 + np.mod(grid[:, 1], 4)  # of two coordinates together
    assert residue_p(both) > LEVEL


def test_control_coarse_or_uneven_grids_are_rejected() -> None:
    one = mechanism("laplace")
    grid = one.protect(rows(one)) / one.step
    assert residue_p(2 * np.rint(grid / 2)) < LEVEL
    assert residue_p(16 * np.rint(grid / 16)) < LEVEL
    uneven = np.where(np.random.default_rng(0).random(grid.shape) < 0.2, 2 * np.rint(grid / 2), grid)
    assert residue_p(uneven) < LEVEL
    # Noise on a coarse grid of its own: the input's place shows in the residue.
    coarse = [16 * np.rint(grid / 16) + offset for offset in (0, 3)]
    assert same_p(*coarse) < LEVEL


def collisions(values: np.ndarray) -> int:
    """Return how many pairs of draws agree."""
    counts = np.unique(values, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())


@pytest.mark.parametrize("name", ["laplace", "gaussian", "full", "purkayastha"])
def test_releases_take_as_many_values_as_the_grid_has(name: str) -> None:
    """The pairs of draws that agree are Poisson with mean N²/2 · step · ∫f², here at most that of the densest f."""
    one = mechanism(name)
    values = one.protect(rows(one))[:, 0]
    deviation = values.std()
    # ∫f² is .28/σ for a normal density and .5/σ at most for those that are drawn here (Laplace: .35/σ).
    most = ROWS**2 / 2 * one.step * 0.5 / deviation
    limit = stats.poisson(most).isf(LEVEL)
    assert collisions(values) <= limit
    assert collisions(np.rint(values / one.step / 16)) > limit  # control: 16 times coarser
    assert collisions(values.astype(np.float16)) > limit


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_below_the_noise_changes_no_bit(name: str, dtype: Any) -> None:
    """0, −0, and numbers too small for the noise give the same bits under the same words."""
    one = mechanism(name)
    X = np.zeros((500, N), dtype=dtype)
    X[:, 1] = 0.5  # a direction
    expected = one.protect(X, rng=3)
    for small in (-0.0, 1e-30, -1e-30, 1e-20, np.finfo(dtype).smallest_subnormal):
        other = X.copy()
        other[:, [0, *range(2, N)]] = small
        released = one.protect(other, rng=3)
        np.testing.assert_array_equal(released.view(np.uint8), expected.view(np.uint8))
    larger = X + dtype(1e-3)
    assert (one.protect(larger, rng=3) != expected).any()  # control


@pytest.mark.parametrize("name", NAMES)
def test_the_step_is_a_power_of_two_of_the_parameters_alone(name: str) -> None:
    for scale in (1e-9, 1e-3, 0.7, 1.0, 1e3, 1e9):
        one = mechanism(name, scale)
        mantissa, _ = np.frexp(one.step)
        assert mantissa == 0.5
        before = one.step
        one.protect(0.01 * np.random.default_rng(0).standard_normal((5, N)))
        assert one.step == before == mechanism(name, scale).step
        least = np.sqrt(np.linalg.eigvalsh(one.noise_covariance())[0])
        if name == "purkayastha":
            least *= np.sqrt((N - 1) / N)  # per coordinate of the space around
        assert 2.0**-GRID_BITS / 2 < one.step / least <= 2.0**-GRID_BITS * (1 + 1e-9)


def test_the_step_of_every_deviation() -> None:
    for deviation in np.geomspace(1e-280, 1e280, 400):
        step = grid_step(float(deviation))
        assert np.frexp(step)[0] == 0.5
        assert 2.0**-17 < step / deviation <= 2.0**-16
