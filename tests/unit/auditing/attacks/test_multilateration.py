"""Multilateration: noise of one length gives the clean vector away; random lengths and repeated releases do not."""

import hashlib

import numpy as np
import pytest

from harness.errors import raises
from unit.auditing.attacks.planted import planted
from vecveil.auditing.attacks import LabelledVectors, LinearAttack, MultilaterationAttack, RepeatedVectors
from vecveil.auditing.attacks.attack import Knowledge
from vecveil.auditing.attacks.wrapped import blocks, fit_locator, repeated_releases

N = 12
SHIFT = np.random.default_rng(5).standard_normal((N, N))


def _unit(Z):
    return Z / np.linalg.norm(Z, axis=1, keepdims=True)


def _sphere(X, rng):
    """Return releases at the distance 3, in a direction that is not centred and depends on the vector."""
    Z = rng.standard_normal(X.shape) + 2 * np.tanh(X @ SHIFT)
    return (X + 3 * _unit(Z)).astype(X.dtype)


def _gaussian(X, rng):
    return X + 1.5 * rng.standard_normal(X.shape).astype(X.dtype)


def _laplace(X, rng):
    norms = rng.gamma(N, 0.4, size=(len(X), 1))
    return (X + norms * _unit(rng.standard_normal(X.shape))).astype(X.dtype)


def _keyed(X, rng):
    """Return the same release of the same vector always."""
    seeds = [int.from_bytes(hashlib.sha256(row.tobytes()).digest()[:8], "big") for row in X]
    rows = zip(X, seeds, strict=True)
    return np.concatenate([_sphere(x[None], np.random.default_rng(s)) for x, s in rows])


def _located(release, k, make=lambda rows, seed: planted(rows, seed=seed).X, seed=3):
    """Return the located test vectors, the clean ones and the locator."""
    knowledge, rng = Knowledge(N, release), np.random.default_rng(seed)
    locator = fit_locator(make(600, 0), make(200, 2), k, knowledge, rng)
    X = make(100, 1)
    return locator(repeated_releases(X, k, knowledge, rng)), X, locator


def _error(found, X):
    return float(((found - X) ** 2).sum(axis=1).mean())


def test_n_plus_two_releases_of_one_length_give_the_clean_vector():
    for k in (N + 2, N + 8):
        found, X, locator = _located(_sphere, k)
        assert locator.spheres
        assert _error(found, X) < 1e-6
        assert locator.error < 1e-6 < 0.05 < locator.averaged


def test_a_known_length_saves_a_release():
    def unit_rows(rows, seed):
        return _unit(planted(rows, seed=seed).X).astype(np.float64)

    found, X, _ = _located(_sphere, N, unit_rows)
    assert np.median(((found - X) ** 2).sum(axis=1)) < 1e-6


def test_fewer_releases_give_as_many_equations():
    errors = []
    for k in (2, 6, 10):
        found, X, locator = _located(_sphere, k)
        assert locator.error < locator.averaged
        errors.append(_error(found, X))
    assert errors[0] > errors[1] > errors[2]


@pytest.mark.parametrize("release", [_gaussian, _laplace])
@pytest.mark.parametrize("k", [4, N + 8])
def test_random_lengths_fall_back_to_the_mean(release, k):
    """The bound is 2 %: on 100 texts the error of either estimate varies by more."""
    knowledge, rng = Knowledge(N, release), np.random.default_rng(0)
    locator = fit_locator(planted(600).X, planted(200, seed=2).X, k, knowledge, rng)
    X = planted(100, seed=1).X
    releases = repeated_releases(X, k, knowledge, rng)
    assert _error(locator(releases), X) < 1.02 * _error(locator.filtered(releases), X)


def test_releases_that_repeat_locate_nothing():
    one, X, _ = _located(_keyed, 1)
    many, _, locator = _located(_keyed, N + 8)
    assert locator.error > 0.05
    assert _error(many, X) > 0.9 * _error(one, X)


def _run(k, release, inner=None, **options):
    train, test = (planted(600, seed=seed, strength=0.7) for seed in (0, 1))
    rng = np.random.default_rng(7)
    evidence = RepeatedVectors.of(test.X, test.L, k, release, rng)
    return MultilaterationAttack(k, inner).run(train, evidence, release=release, **options)


def test_words_are_read_as_from_clean_vectors():
    train, test = (planted(600, seed=seed, strength=0.7) for seed in (0, 1))
    clean = LinearAttack().run(train, test).value
    found = _run(N + 8, _sphere)
    assert found.value == pytest.approx(clean, abs=0.02)
    assert found.value > _run(1, _sphere).value + 0.1
    assert found.details["spheres"]
    assert found.details["error"] < 1e-6
    assert found.family == "averaging"
    assert found.name == "averaging-20-spheres-linear"
    assert found.adaptive


def test_keyed_words_are_flat_in_k():
    assert _run(N + 8, _keyed).value == pytest.approx(_run(1, _keyed).value, abs=0.05)


def test_rows_and_blocks_cover_every_text():
    assert [b.indices(5)[:2] for b in blocks(5, 2**11, 2**11)] == [(0, 2), (2, 4), (4, 5)]
    test = planted(30)
    every = RepeatedVectors.of(test.X, test.L, 3, _gaussian, np.random.default_rng(0))
    part = every.take(np.array([4, 2]))
    assert part.releases.shape == (2, 3, N)
    assert np.array_equal(part.releases[1], every.releases[2])
    assert np.allclose(part.X[1], every.releases[2].mean(axis=0), atol=1e-6)


def test_releases_that_do_not_fit_are_refused():
    train, test = planted(60), planted(60, seed=1)
    with raises("E-INPUT-SHAPE", "releases"):
        RepeatedVectors(test.X, test.L)
    several = RepeatedVectors.of(test.X, test.L, 2, _gaussian, np.random.default_rng(0))
    with raises("E-INPUT", "releases"):
        RepeatedVectors(test.X, test.L, releases=np.full_like(several.releases, np.nan))
    with raises("E-INPUT", "test"):
        MultilaterationAttack(2).run(train, test, release=_gaussian)
    with raises("E-INPUT", "test"):
        MultilaterationAttack(2).run(
            train, RepeatedVectors.of(test.X, test.L, 3, _gaussian, np.random.default_rng(0)), release=_gaussian
        )
    with raises("E-INPUT", "release"):
        MultilaterationAttack(2).run(LabelledVectors(train.X, train.L), several)
