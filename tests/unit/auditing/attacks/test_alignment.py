"""What holds for every alignment attack."""

import json

import numpy as np
import pytest

from harness.errors import raises
from unit.auditing.attacks.planted_maps import evidence, permutation, rotation
from vecveil.auditing.attacks import CandidateVectors, PairedVectors
from vecveil.auditing.attacks.alignment import (
    PermutationAlignment,
    ProcrustesAlignment,
    RidgeAlignment,
    UnpairedAlignment,
)

PAIRED = [PermutationAlignment(pairs=(5, 60)), ProcrustesAlignment(pairs=(5, 60)), RidgeAlignment(pairs=(5, 60))]
ATTACKS = [*PAIRED, UnpairedAlignment(runs=1, clusters=4, rounds=4)]
every_attack = pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
every_paired = pytest.mark.parametrize("attack", PAIRED, ids=lambda attack: attack.name)


@every_paired
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_a_secret_order_of_the_coordinates_is_undone(attack, noise):
    train, test = evidence(permutation(24), noise=noise)
    result = attack.run(train, test)
    assert result.value > 0.95
    assert list(result.estimates) == ["top_1", "mrr", "cosine", "top_1_of_5"]
    assert result.estimates["top_1"].metric == "top-1 with 60 pairs"
    assert result.estimates["top_1_of_5"].metric == "top-1 with 5 pairs"
    assert result.estimates["top_1"].chance == pytest.approx(1 / 150)
    assert result.details["pairs"] == 60
    assert result.family == "alignment"
    assert not result.adaptive
    for estimate in result.estimates.values():
        assert estimate.low <= estimate.value <= estimate.high
    record = json.loads(json.dumps(result.to_record(), allow_nan=False))
    assert record["metric"].startswith("top-1 with ")
    assert [one["metric"] for one in record["also"]] == ["MRR", "cosine", "top-1 with 5 pairs"]


@every_paired
def test_with_an_oracle_the_attacker_makes_its_pairs(attack):
    secret = rotation(16)

    def release(X, rng):
        return X @ secret + 0.01 * rng.standard_normal(X.shape)

    train, test = evidence(secret, known=60)
    result = attack.run(PairedVectors(train.clean, train.clean), test, release=release)
    assert result.adaptive
    if attack.name != "permutation-alignment":
        assert result.value > 0.9


@every_attack
@pytest.mark.parametrize("reduced", [6, 20])
def test_released_vectors_of_another_dimension(attack, reduced):
    secret = np.random.default_rng(0).standard_normal((12, reduced))
    train, test = evidence(secret)
    result = attack.run(train, test)
    assert result.estimates["cosine"].n == 150
    if attack.name in ("procrustes-alignment", "ridge-alignment"):
        assert result.value > 0.2


@every_attack
def test_constant_releases_give_chance(attack):
    train, test = evidence(rotation(6))
    train = PairedVectors(np.ones_like(train.X), train.clean)
    test = CandidateVectors(np.ones_like(test.X), test.pool, test.truth)
    assert attack.run(train, test).estimates["top_1"].value < 0.06


@every_attack
def test_dead_coordinates_and_equal_rows_do_no_harm(attack):
    train, test = evidence(rotation(8))
    X, clean = np.repeat(train.X[:30], 2, axis=0), np.repeat(train.clean[:30], 2, axis=0)
    X, clean = X.copy(), clean.copy()
    X[:, 0], clean[:, 3] = 0.0, 0.0
    groups = np.arange(60) // 2
    result = attack.run(PairedVectors(X, clean, groups), test)
    assert 0 <= result.value <= 1


def test_options_of_each_vector_are_the_candidates():
    train, test = evidence(rotation(12), noise=0.1)
    rng = np.random.default_rng(0)
    others = rng.integers(0, 150, size=(150, 3))
    options = np.column_stack([others[:, :2], test.truth, others[:, 2:]])
    given = CandidateVectors(test.X, test.pool, np.full(150, 2), options, np.arange(150) // 2)
    result = ProcrustesAlignment(pairs=(50,)).run(train, given)
    assert result.estimates["top_1"].chance == pytest.approx(0.25)
    assert result.value > 0.9
    assert result.estimates["cosine"].value > 0.9


def test_pairs_are_what_there_is():
    assert ProcrustesAlignment()._counts(2000) == (10, 50, 200, 1000)
    assert ProcrustesAlignment()._counts(700) == (10, 50, 200, 700)
    assert ProcrustesAlignment()._counts(50) == (10, 50)
    assert ProcrustesAlignment(pairs=(50, 10, 10)).pairs == (10, 50)
    assert ProcrustesAlignment()._counts(4) == (4,)


@pytest.mark.parametrize(
    ("train", "test", "param"),
    [
        (PairedVectors(np.ones((9, 4)), np.ones((9, 4))), (5, 4), "train"),
        (PairedVectors(np.ones((9, 5)), np.ones((9, 4))), (5, 3), "test"),
        (PairedVectors(np.ones((2, 5)), np.ones((2, 4))), (5, 4), "train"),
    ],
)
def test_bad_evidence_is_refused(train, test, param):
    given = CandidateVectors(np.ones((4, test[0])), np.ones((6, test[1])), np.arange(4))
    with raises("E-INPUT", param):
        RidgeAlignment().run(train, given)


def test_pairs_need_clean_vectors():
    with raises("E-INPUT-TYPE", "clean"):
        PairedVectors(np.ones((9, 5)), None)


def test_words_are_read_from_recovered_vectors_where_the_texts_are_labelled():
    """Control: labels that belong to other texts are read at chance."""
    rng = np.random.default_rng(0)
    places, turn = rng.standard_normal((5, 24)), np.linalg.qr(rng.standard_normal((24, 24)))[0]
    words = rng.integers(5, size=500)
    X, L = places[words] + 0.7 * rng.standard_normal((500, 24)), np.eye(5, dtype=np.uint8)[words]
    Y = (X + 0.3 * rng.standard_normal(X.shape)) @ turn
    train = PairedVectors(Y[:300], X[:300], labels=L[:300])

    def read(labels):
        test = CandidateVectors(Y[300:], X[300:], np.arange(200), labels=labels)
        return RidgeAlignment(pairs=(10, 300)).run(train, test).estimates

    found, lost = read(L[300:]), read(L[300:][rng.permutation(200)])
    assert found["words"].metric == "R-precision after 300 pairs"
    assert found["words"].value > found["words_of_10"].value > found["words"].chance + 0.1
    # Six standard deviations of a share of 200 texts.
    assert lost["words"].value < 1 / 5 + 6 * (0.16 / 200) ** 0.5
