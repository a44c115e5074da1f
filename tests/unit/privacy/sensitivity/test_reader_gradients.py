"""Gradients of a kernel reader by finite differences, and what erasing them takes away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from vecveil.privacy.sensitivity import Moments, concept_directions, concept_subspace, subspace_map
from vecveil.privacy.sensitivity.concept_subspace import (
    PENALTY,
    SHARPNESS,
    ConceptDirections,
    gradient_moment,
    kernel_ridge_path,
    reader_gradients,
    share_recovered,
)

Array = npt.NDArray[Any]


def ring(rows: int, seed: int) -> tuple[Array, Array]:
    """Return vectors whose label is the size of one of 12 mixed coordinates: no linear reader sees it."""
    rng = np.random.default_rng(seed)
    hidden = rng.standard_normal((rows, 12))
    labels = np.stack([hidden[:, 0] > 0.8, np.abs(hidden[:, 1]) > 0.67], axis=1).astype(int)
    mix = np.random.default_rng(99).standard_normal((12, 12)) / 3 + np.eye(12)
    return (hidden @ mix).astype(np.float32), labels


def reader(Y: Array, L: Array) -> Callable[[Array], Array]:
    """Return the kernel reader by its definition, in float64."""
    A, T = Y - Y.mean(axis=0), L - L.mean(axis=0)
    between = ((A[:, None] - A[None]) ** 2).sum(axis=2)
    rate = SHARPNESS / np.median(between)
    weights = np.linalg.solve(np.exp(-rate * between) + PENALTY * np.eye(len(A)), T)

    def answer(y: Array) -> Array:
        result: Array = np.exp(-rate * ((y - Y.mean(axis=0) - A) ** 2).sum(axis=1)) @ weights
        return result

    return answer


def directions(X: Array, L: Array) -> ConceptDirections:
    return concept_directions(Moments.of(X, np.zeros_like(X), token_labels=L, background=X))


def test_the_moment_is_that_of_the_readers_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concept_subspace, "GRADIENT_ROWS", 20)
    X, L = ring(60, 0)
    answer, step = reader(X.astype(float), L), 1e-5
    total = np.zeros((12, 12))
    for x in X[:20].astype(float):
        slopes = np.stack([(answer(x + step * e) - answer(x - step * e)) / (2 * step) for e in np.eye(12)])
        total += slopes @ slopes.T / 20
    found = gradient_moment(X, L)
    np.testing.assert_allclose(found, total, atol=2e-3 * np.trace(total))
    # Fewer components lose the weakest of the labels' combinations, and add nothing.
    monkeypatch.setattr(concept_subspace, "COMPONENTS", 1)
    assert 0 < np.trace(gradient_moment(X, L)) < np.trace(found)


def test_what_follows_is_orthonormal_and_ordered_by_the_reader() -> None:
    X, L = ring(800, 1)
    plain = directions(X, L)
    before = subspace_map(plain, erased=3)
    moment = reader_gradients(X, L, before, seed=0)
    found = plain.followed_by(moment, after=3)
    np.testing.assert_allclose(found.vectors.T @ plain.K @ found.vectors, np.eye(12), atol=1e-8)
    np.testing.assert_array_equal(found.vectors[:, :3], plain.vectors[:, :3])
    back = found.K @ found.vectors
    turned = back.T @ moment @ back
    np.testing.assert_allclose(turned, np.diag(np.diag(turned)), atol=1e-6 * np.trace(turned))
    assert (np.diff(np.diag(turned)[3:]) <= 1e-9 * np.trace(turned)).all()
    # The reader has no gradient along what is erased already, and the strengths are only shared out anew.
    assert np.abs(np.diag(turned)[:3]).max() < 1e-9 * np.trace(turned)
    np.testing.assert_allclose(found.residual(3), plain.residual(3))
    assert found.residual(12) == 0


def test_erasing_them_hides_what_a_linear_erasure_leaves() -> None:
    X, L = ring(1500, 3)
    Z, M = ring(1000, 4)
    plain = directions(X, L[:, :1])
    first = subspace_map(plain, erased=1)
    found = plain.followed_by(reader_gradients(X, L, first, seed=0), after=1)

    def read(source: ConceptDirections) -> float:
        linear = subspace_map(source, erased=3)
        released = [linear.apply(part, reduced=True) for part in (X, Z)]
        scores = list(kernel_ridge_path([released[0]], L[:, 1:], released[1]))[1]
        return share_recovered(scores, M[:, 1:])

    assert read(plain) > 0.7
    assert read(found) < 0.6
