"""Averaging: fresh noise averages out, keyed noise does not."""

import hashlib

import numpy as np
import pytest

from harness.errors import raises
from unit.auditing.attacks.planted import planted
from vecveil.auditing.attacks import KernelAttack, LabelledVectors, LinearAttack
from vecveil.auditing.attacks.wrapped import AveragingAttack, mean_of_releases

SCALE = 1.2


def _fresh(X, rng):
    return X + SCALE * rng.standard_normal(X.shape).astype(X.dtype)


NOISE_OF = {}


def _keyed(X, rng):
    """Return the same release of the same vector always, as keyed noise does."""
    keys = [row.tobytes() for row in X]
    for key in keys:
        if key not in NOISE_OF:
            seed = int.from_bytes(hashlib.sha256(key).digest()[:8], "big")
            NOISE_OF[key] = np.random.default_rng(seed).standard_normal(X.shape[1])
    return X + SCALE * np.stack([NOISE_OF[key] for key in keys]).astype(X.dtype)


def _value(release, k, inner=None, covariance=True):
    train, test = planted(600, seed=0), planted(400, seed=1)
    released = mean_of_releases(release, k)(test.X, np.random.default_rng(7))
    return AveragingAttack(k, inner).run(
        train,
        LabelledVectors(released, test.L),
        release=release,
        noise_covariance=SCALE**2 * np.eye(12) if covariance else None,
        show_progress=False,
    )


def test_the_mean_of_releases_is_one():
    X = np.zeros((2000, 3), dtype=np.float32)
    mean = mean_of_releases(_fresh, 9)(X, np.random.default_rng(0))
    assert mean.dtype == np.float32
    assert mean.std() == pytest.approx(SCALE / 3, rel=0.06)
    once = mean_of_releases(_fresh, 1)(X, np.random.default_rng(0))
    assert np.array_equal(once, _fresh(X, np.random.default_rng(0)))


@pytest.mark.parametrize("inner", [None, KernelAttack(rows=600)], ids=["linear", "kernel"])
def test_fresh_noise_averages_out_towards_the_clean_figure(inner):
    train, test = planted(600, seed=0), planted(400, seed=1)
    clean = (inner or LinearAttack()).run(train, test, show_progress=False).value
    once, four, many = (_value(_fresh, k, inner).value for k in (1, 4, 64))
    assert once + 0.1 < four < many
    assert many == pytest.approx(clean, abs=0.05)


@pytest.mark.parametrize("covariance", [True, False])
def test_keyed_noise_is_flat_in_k(covariance):
    values = [_value(_keyed, k, covariance=covariance).value for k in (1, 4, 16)]
    assert values == [pytest.approx(values[0], abs=0.01)] * 3
    assert values[0] < _value(_fresh, 16).value - 0.2


def test_one_release_is_the_inner_attack_and_its_name_says_k():
    found = _value(_fresh, 4)
    assert found.name == "averaging-4-linear"
    assert found.family == "averaging"
    assert found.main.metric == "R-precision"
    train, test = planted(600, seed=0), planted(400, seed=1)
    released = LabelledVectors(_fresh(test.X, np.random.default_rng(7)), test.L)
    inner = LinearAttack().run(train, released, release=_fresh)
    assert _value(_fresh, 1, covariance=False).value == pytest.approx(inner.value, abs=0.03)


def test_one_release_is_no_mean():
    assert AveragingAttack(1).description.startswith("On one release of each text: ")
    assert AveragingAttack(1).cost.startswith("1 release of each text; ")
    assert AveragingAttack(4).description.startswith("On the mean of 4 releases of each text: ")


def test_arrays_that_are_means_already():
    train, test = planted(600, seed=0), planted(400, seed=1)
    rng = np.random.default_rng(2)
    oracle = mean_of_releases(_fresh, 16)
    train, test = (LabelledVectors(oracle(d.X, rng), d.L) for d in (train, test))
    found = AveragingAttack(16).run(train, test, noise_covariance=SCALE**2 * np.eye(12))
    assert found.value > 0.8
    assert not found.adaptive


def test_bad_settings_are_refused():
    with raises("E-INPUT-RANGE", "k"):
        mean_of_releases(_fresh, 0)
    with raises("E-INPUT", "test"):
        AveragingAttack(2).run(planted(60), planted(60, tokens=5))
