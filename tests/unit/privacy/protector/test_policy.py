"""Documents and queries under one policy."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from vecveil import KeyFile, Ledger, Protector
from vecveil.errors import IncompatibleError, InvalidInputError, LedgerCapError
from vecveil.privacy.mechanisms import Gaussian, Laplace, LdpGaussian, Mahalanobis, Purkayastha, Shuffle
from vecveil.privacy.protector import CleanQueryWarning, open_policy
from vecveil.privacy.protector.policy import ReleasePolicy
from vecveil.privacy.sensitivity.shapes import LinearMap, NoiseShape

N = 24
MAP = LinearMap(down=np.eye(N)[:10], up=np.eye(N)[:, :10])


def protector(mechanism=None, linear=MAP) -> Protector:
    return Protector("subspace", mechanism or Laplace(N, 200.0), linear)


@pytest.fixture
def X() -> np.ndarray:
    X = np.random.default_rng(0).normal(size=(4000, N))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    return KeyFile.create(tmp_path / "noise.key", "k1")


def noise_energy(policy: ReleasePolicy, X: np.ndarray, side: str) -> float:
    released = getattr(policy, side)(X, np.random.default_rng(1))
    return float(np.mean((released - X @ MAP.matrix.T) ** 2))


def test_a_query_gets_as_much_noise_more_or_none(X):
    """Mean squares of 40,000 values: 15 standard deviations of slack on each side."""
    of_documents = noise_energy(ReleasePolicy(protector()), X, "documents")
    assert noise_energy(ReleasePolicy(protector()), X, "queries") == of_documents
    stronger = ReleasePolicy(protector(), query_noise=3.0)
    assert noise_energy(stronger, X, "documents") == of_documents
    assert noise_energy(stronger, X, "queries") == pytest.approx(9 * of_documents, rel=0.15)
    assert noise_energy(ReleasePolicy(protector(), query_noise=0), X, "queries") < 1e-20


@pytest.mark.parametrize(
    ("mechanism", "rel"),
    [
        (Laplace(N, 50.0), 0.05),
        (Mahalanobis(NoiseShape.from_diagonal(np.linspace(1, 3, N)), 50.0), 0.05),
        (Gaussian(NoiseShape.isotropic(N), 0.1), 0.05),
        (LdpGaussian(N, 20.0, 1e-5), 0.5),
    ],
    ids=["laplace", "mahalanobis", "gaussian", "ldp-gaussian"],
)
def test_rescaled_noise_has_its_factor(mechanism, rel):
    """Covariances in closed form; those of ldp-gaussian grow a little slower."""
    once = protector(mechanism, None)
    twice = once.rescaled(2.0)
    ratio = np.trace(twice.released_noise_covariance()) / np.trace(once.released_noise_covariance())
    assert ratio == pytest.approx(4.0, rel=rel)
    assert ratio > 1
    assert twice.fingerprint != once.fingerprint
    assert twice.report == {"rescaled_by": 2.0, "fitted_as": once.fingerprint}


def test_the_sphere_is_rescaled():
    assert protector(Purkayastha(N, 40.0), None).rescaled(2.0).mechanism.epsilon == 20.0


def test_keyed_queries_repeat_and_name_themselves_by_text(X, keys):
    policy = ReleasePolicy(protector(), 2.0, key=keys)
    texts = [f"text {i}" for i in range(5)]
    once = policy.queries(X[:5], texts=texts)
    assert np.array_equal(once[2:], policy.queries(X[2:5], texts=texts[2:]))
    assert not np.array_equal(once, policy.queries(X[:5], texts=texts[::-1]))
    documents = policy.documents(X[:5])
    assert np.array_equal(documents, policy.documents(X[:5]))
    assert not np.array_equal(documents, policy.documents(X[:5], ids=list(range(5))))


def test_a_ledger_counts_items_without_names(X, tmp_path):
    with Ledger(tmp_path / "a.ledger", cap=1) as ledger:
        policy = ReleasePolicy(protector(), ledger=ledger)
        policy.documents(X[:3], texts=["a", "b", "c"])
        with pytest.raises(LedgerCapError):
            policy.queries(X[5:6], texts=["b"])
        policy.queries(X[5:6])
        assert ledger.total == 4


def test_a_policy_shows_no_key(keys):
    secret = keys.key().secret_for_noise()
    assert repr(secret)[2:-1] not in repr(ReleasePolicy(protector(), key=keys))
    assert "key" not in repr(ReleasePolicy(protector(), key=keys))


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"protector": "drug.vecveil"}, "protector"),
        ({"query_noise": False}, "query_noise"),
        ({"query_noise": 0.5}, "query_noise"),
        ({"query_noise": float("nan")}, "query_noise"),
        ({"key": "secret-key"}, "key"),
        ({"protector": protector(Shuffle(np.arange(N)), None), "query_noise": 2}, "method"),
    ],
)
def test_what_is_refused(changed, param):
    with raises("E-INPUT", param) as caught:
        ReleasePolicy(**{"protector": protector(), **changed})
    assert "secret-key" not in str(caught.value)


def test_wrong_vectors_are_refused(X):
    policy = ReleasePolicy(protector())
    with pytest.raises(InvalidInputError):
        policy.documents(np.full((2, N), np.nan))
    with pytest.raises(IncompatibleError):
        policy.queries(X[:, :5])


@pytest.mark.parametrize("side", ["documents", "queries"])
def test_vectors_that_are_longer_than_the_fitted_ones_are_refused(X, side):
    """The control: the same noise on vectors of ten times the length leaves them nearly clean."""
    fitted = vecveil.fit_pairs(X[:500], X[500:1000], method="laplace", noise_to_signal=1.0, seed=0)
    cosines = []
    for k in (1, 10):
        Y = fitted.protect(k * X, 1, lengths=False)
        cosines.append(float(np.mean(np.sum(Y * X, axis=1) / np.linalg.norm(Y, axis=1))))
    assert cosines[0] < 0.8 < 0.98 < cosines[1]
    with raises("E-INCOMPATIBLE-NORM", "X"):
        fitted.protect(10 * X)
    np.testing.assert_array_equal(fitted.protect(10 * X, noise=False), 10 * X)  # no noise, no promise
    for noise in (1, 0):
        with warnings.catch_warnings():
            policy = ReleasePolicy(fitted, noise)
        released = getattr(policy, side)
        assert released(X[:3] * 1.05).shape == (3, N)
        with raises("E-INCOMPATIBLE-NORM", "X"):
            released(X[:3] * np.array([[1.0], [1.2], [0.0]]))


@pytest.mark.slow
def test_lengths_are_kept_in_the_file_and_do_not_matter_where_they_are_taken_away(X, tmp_path):
    several = X * np.linspace(1, 3, len(X))[:, None]
    fitted = vecveil.fit_pairs(several, several[::-1], method="laplace", epsilon=50.0, seed=0)
    fitted.save(tmp_path / "a.vecveil")
    policy = ReleasePolicy(vecveil.load(tmp_path / "a.vecveil"))
    assert policy.protector.encoder_info.norms == pytest.approx((1.0, 3.0))
    policy.documents(5.9 * X)
    with pytest.raises(IncompatibleError):
        policy.documents(6.1 * X)
    normalised = vecveil.fit_pairs(X, X[::-1], method="laplace", epsilon=50.0, before="normalise")
    assert ReleasePolicy(normalised).documents(100 * X).shape == X.shape


def test_clean_queries_are_told():
    assert ReleasePolicy(protector(None, None), query_noise=0).gives_clean_queries
    assert not ReleasePolicy(protector(), query_noise=0).gives_clean_queries
    with pytest.warns(CleanQueryWarning, match="laplace|subspace"):
        open_policy(protector(None, None), query_noise=0)


def test_a_policy_is_opened_as_it_is():
    policy = ReleasePolicy(protector(), query_noise=0)
    assert open_policy(policy) is policy
    with raises("E-INPUT", "protector"):
        open_policy(policy, query_noise=2)
