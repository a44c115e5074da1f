"""What each alignment attack finds exactly, and against which oracle."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from unit.auditing.attacks.planted_maps import clean_rows, clustered, evidence, permutation, rotation
from vecveil.auditing.attacks import CandidateVectors, PairedVectors
from vecveil.auditing.attacks.alignment import (
    AffineMap,
    PermutationAlignment,
    ProcrustesAlignment,
    RidgeAlignment,
    UnpairedAlignment,
    choose_map,
    folds,
    reached,
)

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(("pairs", "signs"), [(5, False), (10, True), (50, False)])
def test_a_permutation_of_384_coordinates_is_recovered_exactly(pairs, signs):
    secret = permutation(384, signs=signs)
    X = clean_rows(pairs, 384)
    found = PermutationAlignment()._align(X @ secret, X, RNG)
    assert found.weights == pytest.approx(secret.T, abs=1e-9)


def test_a_permutation_in_noise_takes_a_few_more_pairs():
    """Noise as large as the vectors: nothing to speak of from 5 pairs, everything from 200."""
    secret = permutation(384)
    X = clean_rows(200, 384)
    Y = X @ secret + np.random.default_rng(1).standard_normal(X.shape) / np.sqrt(384)
    right = [
        ((PermutationAlignment()._align(Y[:k], X[:k], RNG).weights != 0) & (secret.T != 0)).sum() for k in (5, 200)
    ]
    assert right[0] < 100
    assert right[1] == 384


def test_a_rotation_is_exact_from_as_many_pairs_as_dimensions_and_not_from_less():
    secret = rotation(32)
    X = clean_rows(40, 32)
    exact = ProcrustesAlignment()._align(X @ secret, X, RNG)
    assert exact.weights == pytest.approx(secret.T, abs=1e-8)
    few = ProcrustesAlignment()._align(X[:16] @ secret, X[:16], RNG)
    fresh = clean_rows(200, 32, seed=5)
    recovered = few(fresh @ secret)
    cosine = (recovered * fresh).sum(axis=1) / np.linalg.norm(recovered, axis=1)
    assert cosine.mean() < 0.95
    # Yet what the pairs do tell is exact, and enough to tell texts apart.
    train, test = evidence(secret, known=16)
    assert ProcrustesAlignment().run(train, test).value == 1.0


def test_scale_shift_and_reflection_are_part_of_the_map():
    secret = rotation(12)
    secret[:, 0] *= -1
    X = clean_rows(60, 12)
    found = ProcrustesAlignment()._align(3 * X @ secret + 5, X, RNG)
    assert found(3 * X @ secret + 5) == pytest.approx(X, abs=1e-8)
    assert found.choice.startswith("centred")


@pytest.mark.parametrize(("rows", "noise"), [(20, 0.5), (80, 0.5), (80, 0.0)])
def test_ridge_equals_sklearn_at_the_penalty_with_the_least_error_left_out(rows, noise):
    secret = np.random.default_rng(0).standard_normal((12, 16))
    train, test = evidence(secret, known=rows, noise=noise)
    found = RidgeAlignment()._align(train.X, train.clean, RNG)
    penalty = float(found.choice.removeprefix("penalty "))
    theirs = Ridge(alpha=penalty, solver="svd").fit(train.X, train.clean)
    assert found(test.X) == pytest.approx(theirs.predict(test.X), abs=1e-5)

    def left_out(alpha):
        error = 0.0
        for i in range(rows):
            rest = np.arange(rows) != i
            model = Ridge(alpha=alpha, solver="svd").fit(train.X[rest], train.clean[rest])
            error += ((model.predict(train.X[[i]]) - train.clean[i]) ** 2).sum()
        return error

    nearby = min(left_out(penalty * 10), left_out(penalty / 10))
    assert left_out(penalty) <= nearby * (1 + 1e-6) + 1e-9


def test_any_linear_map_is_undone_by_ridge_and_not_by_a_rotation():
    secret = rotation(12) * np.geomspace(1, 30, 12) @ rotation(12, seed=1)
    train, test = evidence(secret, known=100)
    cosines = [
        attack.run(train, test).estimates["cosine"].value for attack in (RidgeAlignment(), ProcrustesAlignment())
    ]
    assert cosines[0] > 0.999
    assert cosines[1] < 0.99


def test_matching_is_in_the_directions_that_the_map_reaches():
    weights = np.zeros((4, 4))
    weights[:2, :2] = np.eye(2)
    found = AffineMap(weights, np.zeros(4), np.zeros(4), reach=reached(weights))
    recovered, pool = found.views(np.array([[3.0, 4.0, 9.0, 9.0]]), np.array([[3.0, 4.0, 7.0, 0]]))
    assert (recovered @ pool.T)[0, 0] == pytest.approx(1.0)
    assert reached(np.eye(3)) is None
    assert reached(np.zeros((3, 3))).shape == (3, 0)


def test_what_is_chosen_is_chosen_on_pairs_left_out():
    assert len(folds(50)) == 5
    assert len(folds(100)) == 1
    assert (sum(mask.astype(int) for mask in folds(7)) == 1).all()
    X = clean_rows(50, 8)
    seen = []

    def variants(Y, clean):
        seen.append(len(Y))
        right = AffineMap(np.eye(8), np.zeros(8), np.zeros(8), "right")
        return {"wrong": AffineMap(rotation(8), np.zeros(8), np.zeros(8), "wrong"), "right": right}

    assert choose_map(X, X, variants).choice == "right"
    assert seen == [40] * 5 + [50]


def _unpaired(own_seed, runs=0):
    secret = rotation(16)
    store = clustered(1500, 16, seed=0)
    train = PairedVectors(store @ secret, clustered(1500, 16, seed=own_seed))
    test = CandidateVectors(store[:200] @ secret, store[:400], np.arange(200))
    return UnpairedAlignment(runs=runs, clusters=8, rounds=10), train, test


@pytest.mark.parametrize("runs", [0, 2])
def test_a_rotation_is_found_without_any_pair(runs):
    attack, train, test = _unpaired(own_seed=1, runs=runs)
    result = attack.run(train, test)
    assert result.value > 0.5
    assert result.estimates["cosine"].value > 0.8
    assert result.details["unpaired vectors"] == 1500


def test_the_order_of_the_attackers_own_rows_is_not_used():
    attack, train, test = _unpaired(own_seed=1)
    paired = PairedVectors(train.X, clustered(1500, 16, seed=0))  # row i is row i: it must not matter
    first = attack.run(paired, test)
    order = np.random.default_rng(7).permutation(1500)
    again = attack.run(PairedVectors(train.X, paired.clean[order]), test)
    assert again.estimates["cosine"].value == pytest.approx(first.estimates["cosine"].value, abs=0.05)
