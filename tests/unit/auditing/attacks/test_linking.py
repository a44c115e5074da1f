"""Linking finds the rows of one text in two stores, and nothing where the rows are of different texts."""

import numpy as np
import pytest
from scipy.stats import binom

from harness.errors import raises
from vecveil.auditing.attacks import AnchorLinkingAttack, CandidateVectors, LinkingAttack, PairedVectors
from vecveil.auditing.attacks.candidates import group_means

N, TEXTS = 24, 300
FALSE_FAILURE = 1e-6 / 2


def vectors(rows, seed):
    return np.random.default_rng(seed).standard_normal((rows, N)) * np.arange(1, N + 1) ** -0.5


def release(X, rng):
    """Noise that differs from direction to direction, after which half of the directions are dropped."""
    noisy = X + rng.standard_normal(X.shape) * np.linspace(0.05, 0.6, N)
    return noisy[:, : N // 2]


def _run(pool, X, train=None, **options):
    known = vectors(400, 1) if train is None else train
    return LinkingAttack().run(PairedVectors(known, known), CandidateVectors(X, pool, np.arange(TEXTS)), **options)


def test_two_draws_are_linked_and_draws_of_other_texts_are_not():
    """Null: the second store holds other texts, so that every assignment is right with 1/300.

    False failure: at most 1e-6 over two worlds, by the binomial law of the hits of independent rows. Power and
    control: with the same texts most rows are linked, and one to one nearly all.
    """
    rng, clean = np.random.default_rng(0), vectors(TEXTS, 2)
    first = release(clean, rng)
    found = _run(release(clean, rng), first, release=release)
    assert found.adaptive
    assert found.family == "candidates"
    assert found.value > 0.6
    assert found.estimates["one_to_one"].value > found.value
    assert found.estimates["same"].value > 0.95
    assert found.main.chance == pytest.approx(1 / TEXTS)
    limit = binom.isf(FALSE_FAILURE, TEXTS, 1 / TEXTS) / TEXTS
    for pool in (release(vectors(TEXTS, 3), rng), rng.standard_normal((TEXTS, N // 2))):
        lost = _run(pool, first, release=release)
        assert lost.value <= limit
        assert lost.estimates["one_to_one"].value <= limit


def test_known_pairs_link_stores_of_different_maps_and_a_store_with_a_clean_list():
    """A secret rotation of each store is no hindrance to somebody who knows pairs."""
    rng, known, clean = np.random.default_rng(0), vectors(200, 1), vectors(TEXTS, 2)
    maps = [np.linalg.qr(rng.standard_normal((N, N)))[0] for _ in range(2)]

    def store(X, turn):
        return (X + 0.05 * rng.standard_normal(X.shape)) @ turn

    for other in (maps[1], np.eye(N)[:, :18]):
        train = PairedVectors(store(known, maps[0]), store(known, other))
        test = CandidateVectors(store(clean, maps[0]), store(clean, other), np.arange(TEXTS))
        assert LinkingAttack().run(train, test).value > 0.95


def test_few_pairs_grow_to_links_of_stores_behind_secret_maps():
    """Null: the second store holds other texts, so that a link is right with 1/300.

    False failure: at most 1e-6 over two worlds, by the binomial law of the hits of independent rows. Power and control:
    where the texts are the same, ten pairs link most rows, and far more than the same pairs without growing.
    """
    rng, known, clean = np.random.default_rng(0), vectors(10, 1), vectors(TEXTS, 2)
    maps = [np.linalg.qr(rng.standard_normal((N, N)))[0] for _ in range(2)]

    def store(X, turn):
        return (X + 0.15 * rng.standard_normal(X.shape)) @ turn

    train = PairedVectors(store(known, maps[0]), store(known, maps[1]))
    first, second = store(clean, maps[0]), store(clean, maps[1])
    test = CandidateVectors(first, second, np.arange(TEXTS))
    grown = AnchorLinkingAttack(10).run(train, test)
    assert grown.details["pairs"] == 10
    assert grown.value > 0.9
    assert grown.value > 2 * LinkingAttack().run(train, test).value
    limit = binom.isf(FALSE_FAILURE, TEXTS, 1 / TEXTS) / TEXTS
    for pool in (store(vectors(TEXTS, 3), maps[1]), rng.standard_normal((TEXTS, N))):
        assert AnchorLinkingAttack(10).run(train, CandidateVectors(first, pool, np.arange(TEXTS))).value <= limit
    with raises("E-INPUT-SHAPE", "test"):
        AnchorLinkingAttack().run(train, CandidateVectors(first, second[:, 1:], np.arange(TEXTS)))


def test_a_person_is_linked_by_the_mean_of_other_texts():
    rng = np.random.default_rng(0)
    people, own = vectors(TEXTS, 2), np.repeat(np.arange(TEXTS), 4)
    texts = people[own] + 0.2 * rng.standard_normal((len(own), N))
    half = np.arange(len(own)) % 2 == 0
    means = [group_means(release(texts[part], rng), own[part]) for part in (half, ~half)]
    assert (means[0][1] == np.arange(TEXTS)).all()
    assert means[0][0] == pytest.approx(group_means(means[0][0], np.arange(TEXTS))[0])
    train = vectors(400, 1)
    one = np.arange(len(own)) % 4
    alone = [release(texts[one == i], rng) for i in (0, 1)]
    by_mean, by_one = (_run(b, a, train, release=release).value for a, b in ([m[0] for m in means], alone))
    assert by_mean > by_one > 0.1


def test_a_pool_of_another_dimension_and_too_few_pairs_are_refused():
    known, X = vectors(40, 1), vectors(TEXTS, 2)
    with raises("E-INPUT-SHAPE", "test"):
        _run(X[:, :5], X, known)
    with raises("E-INPUT", "train"):
        _run(X, X, known[:3])
    with raises("E-INPUT", "test"):
        LinkingAttack().run(PairedVectors(known, known), CandidateVectors(X[:2], X, [0, 1], [[0, 1], [1, 0]]))
