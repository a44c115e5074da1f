"""Learning curves: each measure against its definition, and the record that they are kept in."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from harness.errors import raises
from unit.privacy.textcrafter.planted_policy import centroids, classifier, column, settings, vectors
from vecveil.privacy.textcrafter import EpochMeasures, LearningCurves, train_policy
from vecveil.privacy.textcrafter.policy_gradient import PolicyGradient


def curves() -> LearningCurves:
    values: dict[str, Any] = {field: 0.25 * at for at, field in enumerate(EpochMeasures.__struct_fields__)}
    start = EpochMeasures(**{**values, "epoch": 0, "reward_training": None, "reward": -3.0})
    middle = structs.replace(start, epoch=1, reward_training=-2.0, reward=-1.0)
    return LearningCurves((start, middle)).with_epoch(structs.replace(middle, epoch=2, reward=-1.5, p_pii=1 / 3))


def test_the_last_epoch_counts_and_the_best_is_told() -> None:
    assert curves().last.epoch == 2
    assert curves().best.epoch == 1
    np.testing.assert_array_equal(column(curves(), "reward"), [-3, -1, -1.5])
    assert math.isnan(column(curves(), "reward_training")[0])


def test_the_record_comes_back() -> None:
    record = curves().to_record()
    assert (record["schema"], record["best_epoch"]) == ("vecveil.training/1", 1)
    assert LearningCurves.read(record, owner="x") == curves()


def _bad(**changes: Any) -> Any:
    record = curves().to_record()
    record["epochs"][1].update(changes)
    return record


@pytest.mark.parametrize(
    "record",
    [
        None,
        {},
        {"schema": "vecveil.training/1", "epochs": []},
        {"schema": "vecveil.training/2", "epochs": []},
        {"schema": "vecveil.training/1"},
        {"schema": "vecveil.training/1", "epochs": [{}]},
        {"schema": "vecveil.training/1", "epochs": 3},
        _bad(epoch=0),
        _bad(reward="high"),
        _bad(p_pii=None),
        _bad(drift=True),
        _bad(seconds=[1]),
    ],
)
def test_other_records_are_refused(record: Any) -> None:
    with raises("E-INPUT"):
        LearningCurves.read(record, owner="x")


def test_measures_are_what_they_say() -> None:
    """On copies of one vector, so that the held-out ones are known; against 400,000 draws of our own.

    False failure: the curves' own 4,000 draws are 6 standard errors off in one of 4 measures, 1e-8.
    """
    e = vectors(1)[0].astype(np.float64)
    X = np.repeat(e[None], 1000, axis=0)
    asked = settings(epochs=2, draws=40, gamma=0.5)
    policy = train_policy(X, classifier(), centroids(), asked, show_progress=False)
    last = policy.curves.last
    c = centroids()[np.argmin(np.linalg.norm(centroids() - e, axis=1))]
    p_clean = classifier().probability(e[None])[0]
    assert last.p_pii_clean == pytest.approx(p_clean, rel=1e-5)
    assert last.cluster_distance_clean == pytest.approx(np.linalg.norm(e - c), rel=1e-5)
    assert last.reward_clean == pytest.approx(-p_clean - 0.5 * np.linalg.norm(e - c), rel=1e-5)
    weights = policy.weights
    assert last.mean_log_sigma == pytest.approx(float(np.log(weights.sigma).mean()), abs=1e-6)

    assert last.mean_resultant == pytest.approx(1, abs=1e-4)  # all vectors are one
    assert last.direction_resultant == pytest.approx(1, abs=1e-4)

    mean, v = weights.mean(X[:1])[0], weights.direction(X[:1])[0]
    d = mean + weights.sigma * np.random.default_rng(8).standard_normal((400_000, len(e)))
    part = d - np.outer(d @ v, v)
    norms = np.linalg.norm(part, axis=1)
    moved = e + 0.8 * part / norms[:, None]
    fixed = mean - (mean @ v) * v
    share = fixed @ fixed / (norms**2).mean()
    assert last.deterministic_share == pytest.approx(share, rel=0.01)
    p, cluster = classifier().probability(moved), np.linalg.norm(moved - c, axis=1)
    drift = 1 - moved @ e / np.linalg.norm(moved, axis=1)
    rewards = -p - 0.5 * cluster
    for name, values in (("p_pii", p), ("cluster_distance", cluster), ("drift", drift), ("reward", rewards)):
        error = 6 * values.std() * (1 / 4000 + 1 / 400_000) ** 0.5
        assert getattr(last, name) == pytest.approx(values.mean(), abs=error), name
    assert policy.curves.epochs[0].direction_cosine == pytest.approx(1, abs=1e-5)


def test_resultants_tell_one_direction_for_all_from_one_for_each() -> None:
    e = vectors(2).astype(np.float64)
    X = np.concatenate([e, -e] * 50)
    learner = PolicyGradient(X, classifier(), centroids(), settings(), seed=0)
    held_out = learner._held_out.numpy()
    weights = learner.module.to_weights()
    measures = learner.measure(0, None, 0.0)
    mu, v = weights.mean(held_out), weights.direction(held_out)
    mu = mu / np.linalg.norm(mu, axis=1, keepdims=True)
    for found, units in ((measures.mean_resultant, mu), (measures.direction_resultant, v)):
        wanted = np.linalg.norm(units.mean(axis=0))
        assert found == pytest.approx(wanted, abs=1e-4)
        assert wanted < 0.99
