import numpy as np
import pytest

from unit.auditing.attacks.planted import parity, planted
from vecveil.auditing.attacks import LabelledVectors
from vecveil.auditing.attacks.token_inference import BayesPosteriorAttack

ATTACK = BayesPosteriorAttack()


def test_parity_is_found_which_no_linear_attack_sees():
    assert ATTACK.run(parity(seed=0), parity(seed=1)).value > 0.95


def test_it_is_bayes_rule_where_the_texts_are_known():
    """Few texts, all in the corpus, Gaussian noise: the probabilities are those of Bayes' rule."""
    rng = np.random.default_rng(0)
    texts = rng.standard_normal((6, 4))
    which = np.tile(np.arange(6), 200)
    L = np.eye(6)[which]
    S = np.diag([1.0, 0.5, 0.3, 0.8])

    def release(X, g):
        return X + g.standard_normal(X.shape) * np.sqrt(np.diag(S))

    data = LabelledVectors(texts[which], L)
    Y = release(texts[which], rng)
    seen = {}

    class Spy(BayesPosteriorAttack):
        def _scores(self, state, X):
            seen["found"] = super()._scores(state, X)
            return seen["found"]

    Spy().run(data, LabelledVectors(Y, L), release=release, noise_covariance=S)
    logs = -0.5 * (((Y[:, None] - texts[None]) ** 2) / np.diag(S)).sum(axis=2)
    exact = np.exp(logs - logs.max(axis=1, keepdims=True))
    exact /= exact.sum(axis=1, keepdims=True)
    assert np.abs(seen["found"] - exact).mean() < 0.05
    hits = [(p.argmax(axis=1) == which).mean() for p in (seen["found"], exact)]
    assert hits[0] == pytest.approx(hits[1], abs=0.02)


def test_noise_that_differs_by_direction_is_weighed():
    scales = np.where(np.arange(12) < 6, 4.0, 0.1).astype(np.float32)

    def release(X, rng):
        return X + scales * rng.standard_normal(X.shape).astype(np.float32)

    train, test = planted(seed=0), planted(seed=1)
    released = LabelledVectors(release(test.X, np.random.default_rng(3)), test.L)
    S = np.diag(scales.astype(float) ** 2)
    found = ATTACK.run(train, released, release=release, noise_covariance=S)
    assert found.value > 0.45  # half of the tokens stand in quiet directions


def test_reduced_and_constant_releases():
    down = np.random.default_rng(0).standard_normal((12, 6)).astype(np.float32)
    train, test = planted(seed=0), planted(seed=1)
    released = LabelledVectors(test.X @ down, test.L)
    assert ATTACK.run(train, released, release=lambda X, rng: X @ down).value > 0.4
    constant = LabelledVectors(np.ones((400, 3)), test.L)
    flat = ATTACK.run(train, constant, release=lambda X, rng: np.ones((len(X), 3)))
    assert flat.value == pytest.approx(flat.main.chance, abs=0.1)
