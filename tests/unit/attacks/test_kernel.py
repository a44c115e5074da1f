import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

from unit.attacks.planted import parity, planted
from vecveil.attacks import KernelAttack, Knowledge, LabelledVectors, Session
from vecveil.errors import InvalidInputError


def test_parity_is_found():
    assert KernelAttack().run(parity(seed=0), parity(seed=1)).value > 0.95


def test_equals_sklearn_at_the_chosen_setting():
    train, held_out, test = (planted(n, seed=s) for s, n in enumerate((200, 30, 40)))
    attack = KernelAttack()
    state = attack._fit(train, held_out, Knowledge(12), Session(np.random.default_rng(0), False))
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


def test_too_few_rows_are_refused():
    with pytest.raises(InvalidInputError, match="`rows`"):
        KernelAttack(rows=1)
