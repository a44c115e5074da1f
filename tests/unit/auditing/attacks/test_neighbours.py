import numpy as np
import pytest

from harness.errors import raises
from unit.auditing.attacks.planted import parity, planted
from vecveil.auditing.attacks import LabelledVectors
from vecveil.auditing.attacks.token_inference import NearestNeighboursAttack, _nearest, _votes

ATTACK = NearestNeighboursAttack()


def test_parity_is_found_which_no_linear_attack_sees():
    assert ATTACK.run(parity(seed=0), parity(seed=1)).value > 0.95


def test_the_metric_is_chosen_by_what_it_finds():
    """Tokens stand in two faint directions among strong ones: only the metric of the tokens sees them."""
    rng = np.random.default_rng(0)

    def texts(rows):
        which = rng.integers(4, size=rows)
        X = 4 * rng.standard_normal((rows, 20))
        X[:, :2] = 0.1 * rng.standard_normal((rows, 2))
        X[np.arange(rows), which % 2] += np.where(which < 2, 1.0, -1.0)
        return LabelledVectors(X, np.eye(4)[which])

    found = ATTACK.run(texts(600), texts(300))
    assert found.details["metric"] == "tokens"
    assert found.value > 0.95


def test_reduced_erased_and_constant_releases():
    down = np.random.default_rng(0).standard_normal((12, 6)).astype(np.float32)
    train, test = planted(seed=0), planted(seed=1)

    def found(map_):
        released = LabelledVectors(test.X @ map_, test.L)
        return ATTACK.run(train, released, release=lambda X, rng: X @ map_).value

    assert found(down) > 0.4
    assert found(down @ down.T) > 0.4
    constant = LabelledVectors(np.ones((400, 3)), test.L)
    flat = ATTACK.run(train, constant, release=lambda X, rng: np.ones((len(X), 3)))
    assert flat.value == pytest.approx(flat.main.chance, abs=0.1)


def test_nearest_and_votes_are_what_they_say(monkeypatch):
    monkeypatch.setattr("vecveil.auditing.attacks.token_inference._CELLS", 40)  # in pieces
    rng = np.random.default_rng(0)
    wanted, known = (rng.standard_normal((rows, 3)).astype(np.float32) for rows in (9, 20))
    labels = rng.random((20, 4)) < 0.4
    indices, cosines = _nearest(wanted, known, 5)
    order = np.argsort(-(wanted @ known.T), axis=1)[:, :5]
    assert np.array_equal(indices, order)
    mean = labels.mean(axis=0, dtype=np.float32)
    weights = np.exp(2.0 * cosines[:, :3])
    weights /= weights.sum(axis=1, keepdims=True)
    expected = np.einsum("mk,mkv->mv", weights, labels[indices[:, :3]])
    assert _votes(indices, cosines, labels, mean, 3, 2.0) == pytest.approx(0.999 * expected + 0.001 * mean, abs=1e-5)


def test_another_vocabulary_is_refused():
    with raises("E-INPUT", "test"):
        ATTACK.run(planted(60), planted(60, tokens=5))
