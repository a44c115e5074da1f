"""Words that were drawn ahead are those that would have been drawn then."""

from __future__ import annotations

import numpy as np
import pytest

from vecveil.mechanisms import Gaussian, Laplace, LdpGaussian, Mahalanobis, Mechanism
from vecveil.randomness import WordStream
from vecveil.randomness.stream import BlockCipher
from vecveil.sensitivity.shapes import NoiseShape

N = 24
KEY = bytes(range(32))
rng = np.random.default_rng(0)
FACTOR = rng.standard_normal((N, N))
FULL = NoiseShape.from_matrix(FACTOR @ FACTOR.T + np.eye(N))
DIAGONAL = NoiseShape.from_diagonal(np.linspace(1, 3, N))
MECHANISMS = {
    "laplace": Laplace(N, 50.0),
    "mahalanobis": Mahalanobis(DIAGONAL, 50.0),
    "gaussian": Gaussian(NoiseShape.isotropic(N), 0.1),
    "ldp-gaussian": LdpGaussian(N, 20.0, 1e-5),
    "full": Mahalanobis(FULL, 50.0),
    "split": Laplace(N, 50.0, splits=3),
}


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("rows", [1, 5])
def test_the_release_is_the_same(name: str, rows: int) -> None:
    mechanism: Mechanism = MECHANISMS[name]
    X = rng.standard_normal((rows, N)).astype(np.float32)
    X /= 2 * np.linalg.norm(X, axis=1, keepdims=True)
    ahead = WordStream(KEY, rows)
    if mechanism.blocks_ahead:
        ahead.draw_ahead(mechanism.blocks_ahead)
    first = mechanism.protect(X, rng=WordStream(KEY, rows))
    np.testing.assert_array_equal(mechanism.protect(X, rng=ahead), first)
    parts = [mechanism.protect(X[i : i + 1], rng=ahead.part(i, i + 1)) for i in range(rows)]
    np.testing.assert_array_equal(np.vstack(parts), first)


@pytest.mark.parametrize("name", ["laplace", "mahalanobis", "gaussian"])
def test_nothing_is_left_to_draw(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under this key the first try at each gamma variate is good."""
    mechanism: Mechanism = MECHANISMS[name]
    X = np.zeros((3, N))
    ahead = WordStream(KEY, 3)
    ahead.draw_ahead(mechanism.blocks_ahead)

    def fails(*_: object) -> None:
        raise AssertionError("more words were drawn")

    monkeypatch.setattr(BlockCipher, "encrypt", fails)
    assert np.abs(mechanism.protect(X, rng=ahead)).min() > 0
    with pytest.raises(AssertionError, match="more words"):
        mechanism.protect(X, rng=WordStream(KEY, 3))


def test_other_words_are_drawn_as_ever() -> None:
    ahead, plain = WordStream(KEY, 4), WordStream(KEY, 4)
    ahead.draw_ahead(7)
    for blocks, first in ((7, 0), (3, 0), (7, 2), (9, 0)):
        np.testing.assert_array_equal(ahead.words(blocks, first), plain.words(blocks, first))
