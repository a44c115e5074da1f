"""Target clusters: centroids against their definition, nearest by brute force, determinism, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans

from harness.errors import raises
from vecveil.errors import IncompatibleError
from vecveil.privacy.textcrafter.pii_classifier import PiiClassifier
from vecveil.privacy.textcrafter.reward import least_pii, nearest, plain_centroids


def blobs(seed: int, rows: int = 400, k: int = 5, n: int = 12) -> tuple[Any, Any]:
    """Return rows around k of the axes, and the axes themselves."""
    rng = np.random.default_rng(seed)
    centres = np.eye(n)[:k]
    return centres[rng.integers(k, size=rows)] + 0.05 * rng.standard_normal((rows, n)), centres


def inertia(X: Any, centroids: Any) -> float:
    distances = ((X[:, None] - centroids[None]) ** 2).sum(axis=2)
    return float(distances.min(axis=1).sum())


def test_planted_clusters_are_found() -> None:
    X, centres = blobs(0)
    found = plain_centroids(X, clusters=5)
    assert found.shape == (5, 12)
    assert found.dtype == np.float64
    gaps = np.linalg.norm(found[:, None] - centres[None], axis=2)
    assert sorted(gaps.argmin(axis=1)) == [0, 1, 2, 3, 4]
    assert gaps.min(axis=1).max() < 0.05


def test_each_centroid_is_the_mean_of_the_rows_nearest_to_it() -> None:
    """A fixed point of Lloyd's steps, by its definition; not the solver's word for it."""
    X = np.random.default_rng(0).standard_normal((500, 6))
    found = plain_centroids(X, clusters=4)
    owner = nearest(X, found)
    means = np.stack([X[owner == j].mean(axis=0) for j in range(4)])
    np.testing.assert_allclose(means, found, atol=0.05)
    sizes = np.bincount(owner)
    assert (np.diff(sizes) <= 5).all()  # the largest first, up to rows that the last step moved


def test_inertia_is_no_worse_than_scikit_learns_best_of_ten() -> None:
    X, _ = blobs(1, k=8)
    theirs = KMeans(8, n_init=10, random_state=1).fit(X).inertia_
    assert inertia(X, plain_centroids(X)) <= 1.001 * theirs
    assert inertia(X, X[:8]) > 1.5 * theirs  # control: eight rows as centroids are worse


def test_one_seed_one_result_and_a_sample_of_many_rows() -> None:
    X = np.random.default_rng(0).standard_normal((600, 6))
    a, b, c = (plain_centroids(X, clusters=6, seed=seed, most=200) for seed in (1, 1, 2))
    assert a.tobytes() == b.tobytes()
    assert a.tobytes() != c.tobytes()
    whole = plain_centroids(X, clusters=6, seed=1)
    assert inertia(X, whole) < inertia(X, a)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nearest_equals_brute_force(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X, centroids = rng.standard_normal((300, 7)).astype(dtype), rng.standard_normal((9, 7))
    expected = np.linalg.norm(X.astype(np.float64)[:, None] - centroids[None], axis=2).argmin(axis=1)
    assert nearest(X, centroids).tolist() == expected.tolist()
    monkeypatch.setattr("vecveil.privacy.textcrafter.reward._BLOCK", 100)  # blocks of 11 rows
    assert nearest(X, centroids).tolist() == expected.tolist()
    assert nearest(X[:0], centroids).shape == (0,)


def test_least_pii_is_the_centroid_that_the_classifier_likes_least() -> None:
    centroids = np.array([[0.5, 0.0], [-0.2, 0.9], [0.1, 0.1]])
    assert least_pii(centroids, PiiClassifier(np.array([1.0, 0.0]), 0.0)) == 1
    assert least_pii(centroids, PiiClassifier(np.array([-1.0, 0.0]), 0.0)) == 0
    # Where every p rounds to 1 the logits still differ.
    assert least_pii(centroids, PiiClassifier(np.array([1.0, 0.0]), 900.0)) == 1


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"plain": np.repeat(np.eye(3), 10, axis=0)}, "clusters"),  # more than distinct rows
        ({"plain": np.array([[0.0], [-0.0]]), "clusters": 2}, "clusters"),
        ({"plain": np.empty((0, 3))}, "plain"),
        ({"plain": np.full((30, 3), np.inf)}, "plain"),
        ({"clusters": 0}, "clusters"),
        ({"clusters": 2.0}, "clusters"),
        ({"most": 0}, "most"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], param: str) -> None:
    with raises("E-INPUT", param):
        plain_centroids(**{"plain": blobs(0)[0], **change})


def test_as_many_clusters_as_distinct_rows_are_these_rows() -> None:
    X = np.repeat(np.eye(3), [5, 10, 7], axis=0)
    np.testing.assert_allclose(plain_centroids(X, clusters=3), np.eye(3)[[1, 2, 0]], atol=1e-12)
    np.testing.assert_allclose(plain_centroids(X, clusters=1)[0], X.mean(axis=0))


def test_another_dimension_is_incompatible() -> None:
    with pytest.raises(IncompatibleError):
        nearest(np.ones((2, 3)), np.ones((2, 4)))
    with pytest.raises(IncompatibleError):
        least_pii(np.ones((2, 3)), PiiClassifier(np.ones(4), 0.0))


def test_a_row_on_its_own_is_no_centroid() -> None:
    """A protector file holds the centroids: none may be a vector of the training texts."""
    rng = np.random.default_rng(0)
    X = np.concatenate([0.01 * rng.standard_normal((200, 6)), 50 * np.eye(6)[:3]])
    found = plain_centroids(X, clusters=4)
    assert len(found) < 4
    assert not (found[:, None] == X[None]).all(axis=2).any()
    assert len(plain_centroids(X, clusters=4, least=1)) == 4
    few = plain_centroids(rng.standard_normal((24, 6)), clusters=8)
    assert len(few) == 1
