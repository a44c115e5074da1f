import numpy as np
import pytest
from sklearn.linear_model import Ridge

from unit.auditing.attacks.planted import parity, planted
from vecveil.auditing.attacks import Knowledge, LabelledVectors, LinearAttack, Session
from vecveil.auditing.attacks.release_model import release_moments


def test_equals_sklearn_ridge_at_the_chosen_penalty():
    train, test = planted(300, seed=0, strength=0.6), planted(50, seed=1, strength=0.6)
    attack = LinearAttack()
    held_out = planted(60, seed=2, strength=0.6)
    session = Session(Knowledge(12), np.random.default_rng(0), False)
    state = attack._fit(train, held_out, session)
    X = np.concatenate([train.X, held_out.X]).astype(np.float64)
    L = np.concatenate([train.L, held_out.L]).astype(np.float64)
    largest = np.linalg.eigvalsh(np.cov(X.T, bias=True))[-1]
    ridge = Ridge(alpha=state.penalty * largest * len(X)).fit(X, L)
    assert attack._scores(state, test.X) == pytest.approx(ridge.predict(test.X), abs=1e-6)


def test_the_declared_covariance_gives_the_wiener_solution():
    """Declared noise brings the covariance closer to its limit than sampling does."""
    rng = np.random.default_rng(0)
    data = planted(300, seed=0)
    scale = 3.0

    def release(X, rng):
        return X + scale * rng.standard_normal(X.shape)

    S = scale**2 * np.eye(12)
    X = data.X.astype(np.float64)
    limit = np.cov(X.T, bias=True) + S
    known, sampled = (
        release_moments(data.X, data.L, knowledge, rng, draws=64).covariance
        for knowledge in (Knowledge(12, release, S), Knowledge(12, release))
    )
    assert np.linalg.norm(known - limit) < 0.5 * np.linalg.norm(sampled - limit)
    assert np.linalg.norm(sampled - limit) < 0.1 * np.linalg.norm(limit)


def test_parity_is_invisible_to_the_linear_attack():
    found = LinearAttack().run(parity(seed=0), parity(seed=1))
    assert found.estimates["auc"].value < 0.6


def test_more_noise_finds_less():
    train, test = planted(seed=0), planted(seed=1)
    values = []
    for scale in (0.0, 1.0, 8.0):

        def release(X, rng, scale=scale):
            return X + scale * rng.standard_normal(X.shape)

        released = LabelledVectors(release(test.X, np.random.default_rng(3)), test.L)
        values.append(LinearAttack().run(train, released, release=release).value)
    assert values[0] > values[1] > values[2]
