"""A part of a stream gives the rows that the whole stream gives."""

from __future__ import annotations

import numpy as np
import pytest

from vecveil.privacy.mechanisms import Gaussian, Laplace, LdpGaussian, Mahalanobis, Mechanism
from vecveil.privacy.randomness import WordStream
from vecveil.privacy.sensitivity.shapes import NoiseShape

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
    stream = WordStream(KEY, rows)
    parts = [mechanism.protect(X[i : i + 1], rng=stream.part(i, i + 1)) for i in range(rows)]
    np.testing.assert_array_equal(np.vstack(parts), mechanism.protect(X, rng=stream))
