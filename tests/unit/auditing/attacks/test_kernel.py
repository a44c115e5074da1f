import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

from unit.auditing.attacks.planted import parity, planted
from vecveil.auditing.attacks import KernelAttack, Knowledge, LabelledVectors, Session, token_inference
from vecveil.auditing.attacks.token_inference import KernelSetting, fit_kernel_ridge


def test_parity_is_found():
    assert KernelAttack().run(parity(seed=0), parity(seed=1)).value > 0.95


def test_equals_sklearn_at_the_chosen_setting():
    train, held_out, test = (planted(n, seed=s) for s, n in enumerate((200, 30, 40)))
    attack = KernelAttack()
    state = attack._fit(train, held_out, Session(Knowledge(12), np.random.default_rng(0), False))
    rows = np.concatenate([train.X, held_out.X])
    labels = np.concatenate([train.L, held_out.L]).astype(np.float64)
    mean = labels.mean(axis=0)
    oracle = KernelRidge(alpha=state.penalty, kernel="rbf", gamma=state.sharpness / state.scale)
    oracle.fit(state.inputs(rows), labels - mean)
    expected = oracle.predict(state.inputs(test.X)) + mean
    assert attack._scores(state, test.X) == pytest.approx(expected, abs=1e-3)


def test_rows_are_capped_and_filled_up_with_fresh_releases():
    def release(X, rng):
        return X + rng.standard_normal(X.shape)

    data = planted(60)
    fixed = KernelAttack(rows=200).run(data, data)
    fresh = KernelAttack(rows=200).run(data, data, release=release)
    capped = KernelAttack(rows=20).run(data, data)
    quiet = KernelAttack(rows=200).run(data, data, release=lambda X, rng: X)
    rows = [result.details["rows"] for result in (fixed, fresh, capped, quiet)]
    assert rows == [60, 200, 20, 60]


def test_many_equal_rows_are_no_trouble():
    data = planted(10)
    many = LabelledVectors(np.repeat(data.X, 60, axis=0), np.repeat(data.L, 60, axis=0))
    assert KernelAttack().run(many, data).value > 0.9


def test_weights_of_rows_are_sklearns():
    data, test = planted(200), planted(40, seed=1)
    weight = np.random.default_rng(0).uniform(0.1, 1.0, 200).astype(np.float32)
    model = fit_kernel_ridge(data.X, data.L, weight, KernelSetting(1.0, 0.3, False), None)
    oracle = KernelRidge(alpha=0.3, kernel="rbf", gamma=1.0 / model.scale)
    mean = np.average(data.L, axis=0, weights=weight)
    oracle.fit(model.inputs(data.X), data.L - mean, sample_weight=weight)
    assert model(test.X) == pytest.approx(oracle.predict(model.inputs(test.X)) + mean, abs=1e-3)


def test_blocks_are_averaged():
    data, test = planted(200), planted(40, seed=1)
    ones, setting = np.ones(100, dtype=np.float32), KernelSetting(1.0, 0.3, False)
    same = LabelledVectors(np.tile(data.X[:100], (2, 1)), np.tile(data.L[:100], (2, 1)))
    once = fit_kernel_ridge(same.X[:100], same.L[:100], ones, setting, None)
    blocks = (np.arange(100), np.arange(100, 200))
    twice = fit_kernel_ridge(same.X, same.L, np.ones(200, dtype=np.float32), setting, None, blocks)
    assert twice(test.X) == pytest.approx(once(test.X), abs=0.05)


@pytest.mark.parametrize("wrong", [1e9, 1e3])
def test_a_wrong_covariance_does_not_blind_it(wrong):
    def release(X, rng):
        return X + 0.1 * rng.standard_normal(X.shape).astype(X.dtype)

    train, test = parity(400, seed=0), parity(300, seed=1)
    S = wrong * np.eye(train.dimension)
    told = KernelAttack(rows=400).run(train, test, release=release, noise_covariance=S)
    assert told.value > 0.9
    assert told.details["filtered"] is False


def test_rows_that_coincide_are_solved_in_float64() -> None:
    # float32 finds this matrix indefinite after it has overwritten a part of it.
    rows = np.repeat(np.linspace(0, 1e-3, 20, dtype=np.float32)[:, None], 3, axis=1)
    gram = token_inference._kernel(rows, rows, 1.0)
    target = np.arange(20, dtype=np.float32)[:, None]
    exact = gram.astype(np.float64) + 2e-5 * np.eye(20)
    solved = token_inference._solve(gram.copy(), target, np.float32(0))
    assert solved.dtype == np.float64
    np.testing.assert_allclose(solved, np.linalg.solve(exact, target), rtol=1e-5)
