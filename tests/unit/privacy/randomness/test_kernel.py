"""The arithmetic of noise: right values, and the same bits compiled or not."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from vecveil.privacy.randomness import elementary, kernel
from vecveil.privacy.randomness.elementary import NoiseKind

RNG = np.random.default_rng(0)


def words(rows: int, count: int) -> np.ndarray:
    drawn = np.random.default_rng(1).integers(0, 2**64, (rows, count), dtype=np.uint64)
    drawn[0], drawn[1], drawn[2] = 0, 2**64 - 1, 2**63
    drawn[3, ::2] = 1
    return drawn


needs_kernel = pytest.mark.skipif(not kernel.compiled(), reason="no C compiler at installation")


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 17, 384, 769])
def test_compiled_and_numpy_give_the_same_bits(n: int) -> None:
    pairs = (n + 1) // 2
    W = words(40, 2 * pairs + 12)
    first, second = elementary.normals(W, pairs), kernel.normals(W, pairs)
    np.testing.assert_array_equal(first.view(np.uint64), second.view(np.uint64))
    for shape in (1.0, 1.5, float(n), 4096.0):
        np.testing.assert_array_equal(elementary.gammas(W, 2 * pairs, 4, shape), kernel.gammas(W, 2 * pairs, 4, shape))
    for dtype in ("f4", "f8"):
        X = RNG.standard_normal((40, n)).astype(dtype)
        for kind in NoiseKind:
            factors = RNG.random((40, 2) if kind == NoiseKind.TURN else 40)
            noise = RNG.standard_normal((40, n)) if kind == NoiseKind.ADD_GIVEN else W
            roots = [None, RNG.random(n)] if kind in (NoiseKind.ADD, NoiseKind.ADD_DIRECTION) else [None]
            for root in roots:
                for step in (2.0**-16, 2.0**-900):
                    expected, finite = elementary.release(kind, X, noise, factors, root, step)
                    out = np.empty_like(X)
                    assert kernel.release(kind, X, noise, factors, root, step, out) == finite
                    np.testing.assert_array_equal(out, expected)


def test_counters_alike_and_wrapping() -> None:
    starts = np.array([[1, 2], [3, 2**64 - 2]], dtype=np.uint64)
    expected = elementary.counters(starts, 4, 1)
    np.testing.assert_array_equal(kernel.counters(starts, 4, 1), expected)
    assert expected[1, :, 1].tolist() == [2**64 - 1, 0, 1, 2]


@pytest.mark.slow
@needs_kernel
def test_without_the_compiled_kernel_the_same_release() -> None:
    code = (
        "import numpy as np, vecveil.privacy.randomness.kernel as k\n"
        "from vecveil.privacy.mechanisms import Laplace, Purkayastha\n"
        "X = np.linspace(-1, 1, 700).reshape(100, 7)\n"
        "print(k.compiled(), Laplace(7, 3.0).protect(X, rng=5).tobytes().hex()[:4000],\n"
        "      Purkayastha(7, 3.0).protect(X, rng=5).tobytes().hex()[:4000])\n"
    )
    found = []
    for value in ("", "numpy"):
        environment = {**os.environ, "VECVEIL_KERNEL": value}
        run = [sys.executable, "-c", code]
        done = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)
        found.append(done.stdout.split())
    assert [one[0] for one in found] == ["True", "False"]
    assert found[0][1:] == found[1][1:]


def test_logarithm_is_right_to_two_units_in_the_last_place() -> None:
    x = np.concatenate([10 ** RNG.uniform(-38, 38, 50_000), 1 + RNG.uniform(-1e-7, 1e-7, 50_000)])
    expected = -np.log(x.astype(np.longdouble))
    error = np.abs(elementary.negative_log(x) - expected) / np.maximum(np.abs(expected), 1e-300)
    assert float(error.max()) < 4.5e-16


def test_normals_are_right_by_an_independent_formula() -> None:
    W = words(2000, 2)
    made = elementary.normals(W, 1)
    u = (W[:, 0].astype(np.longdouble) + np.longdouble(0.5)) / np.longdouble(2) ** 64
    radius = np.sqrt(-2 * np.log(u))
    np.testing.assert_allclose(np.hypot(made[:, 0], made[:, 1]), radius.astype(float), rtol=1e-12)
    # The angle: a quarter turn from 52 bits, the quarter from the two lowest ones.
    t = ((W[:, 1] >> np.uint64(12)).astype(float) + 0.5) / 2**52 - 0.5
    sine, cosine = np.sin(t * np.pi / 2), np.cos(t * np.pi / 2)
    cosine = np.where(W[:, 1] & np.uint64(2), -cosine, cosine)
    swap = (W[:, 1] & np.uint64(1)).astype(bool)
    expected = np.stack([np.where(swap, sine, cosine), np.where(swap, cosine, sine)], axis=1)
    unit = made / np.maximum(radius.astype(float), 1e-300)[:, None]
    keep = radius.astype(float) > 1e-8
    np.testing.assert_allclose(unit[keep], expected[keep], atol=1e-14)


def test_range_of_a_normal_variate() -> None:
    extreme = np.zeros((1, 2), dtype=np.uint64)
    assert abs(elementary.normals(extreme, 1)).max() < np.sqrt(2 * 65 * np.log(2))
    assert np.hypot(*elementary.normals(extreme, 1)[0]) == pytest.approx(np.sqrt(130 * np.log(2)))
    assert np.isfinite(elementary.normals(np.full((1, 2), 2**64 - 1, dtype=np.uint64), 1)).all()


@pytest.mark.parametrize("shape", [1.0, 2.0, 8.0, 384.0, 3072.0])
def test_gammas_have_their_law(shape: float) -> None:
    """Null: Gamma(shape). False failure: 1e-7 each. Control: a shape 3 % off is rejected at small shapes."""
    from vecveil.privacy.randomness import resolve_stream

    drawn = resolve_stream(11, 100_000).gammas(shape, 0)
    assert stats.kstest(drawn, stats.gamma(shape).cdf).pvalue > 1e-7
    assert stats.kstest(drawn, stats.gamma(shape * 1.03).cdf).pvalue < 1e-7


def test_normals_have_their_law_in_the_tails() -> None:
    """Null: standard normal. Bins of equal probability; false failure 1e-7. Control: scale 1.01."""
    from vecveil.privacy.randomness import resolve_stream

    drawn = kernel.normals(resolve_stream(12, 1000).words(1000), 1000).ravel()
    for scale, fails in ((1.0, False), (1.01, True)):
        u = stats.norm.cdf(scale * drawn)
        counts = np.bincount(np.minimum((u * 1000).astype(int), 999), minlength=1000)
        assert (stats.chisquare(counts).pvalue < 1e-7) == fails
    beyond = (np.abs(drawn) > 4).sum()
    assert stats.binomtest(int(beyond), drawn.size, 2 * stats.norm.sf(4)).pvalue > 1e-7


@needs_kernel
def test_sizes_are_checked_in_the_compiled_kernel() -> None:
    from vecveil.privacy.randomness import _kernel

    W = words(4, 8)
    for arguments in (
        (W, np.empty((4, 8)), 4, 8, 5),  # more pairs than words
        (W, np.empty((4, 7)), 4, 8, 4),  # too small an output
        (W, np.empty((5, 8)), 5, 8, 4),  # more rows than there are
        (W, np.empty((4, 8)), -4, 8, 4),
    ):
        with pytest.raises(ValueError):
            _kernel.normals(*arguments)
    with pytest.raises(ValueError):
        _kernel.gammas(W, np.empty(4), 4, 8, 3, 2, 2.0)
    X, out = np.ones((4, 8)), np.empty((4, 8))
    with pytest.raises(ValueError):
        _kernel.release(0, X, W, np.ones(3), b"", out, 4, 8, 8, True, 1.0)
    with pytest.raises(ValueError):
        _kernel.release(0, X, W, np.ones(4), np.ones(7), out, 4, 8, 8, True, 1.0)
    with pytest.raises(ValueError):
        _kernel.counters(np.zeros((4, 2), np.uint64), np.zeros((4, 3, 2), np.uint64), 4, 4, 0)
