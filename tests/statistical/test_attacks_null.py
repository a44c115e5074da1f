"""The attacks find what is there and nothing that is not."""

import numpy as np
import pytest
from scipy.stats import binom

from vecveil.auditing.attacks import (
    EnsembleAttack,
    FurtherKernelAttack,
    FurtherVectors,
    KernelAttack,
    LabelledVectors,
    LinearAttack,
    MLPAttack,
)

ATTACKS = [
    LinearAttack(),
    KernelAttack(rows=800),
    FurtherKernelAttack(rows=600, blocks=2),
    EnsembleAttack(rows=600),
    MLPAttack((64,), epochs=10, batch=32),
]
WORLDS = ("pure noise", "permuted labels")
FALSE_FAILURE = 1e-6 / (len(ATTACKS) * len(WORLDS))
TOKENS, ROWS, DIMENSION = 8, 500, 16


def _world(seed, strength):
    rng = np.random.default_rng(seed)
    which = rng.integers(TOKENS, size=2 * ROWS)
    X = rng.standard_normal((2 * ROWS, DIMENSION))
    X[np.arange(2 * ROWS), which] += strength
    return X, which, rng


def _run(attack, X, which):
    L = np.eye(TOKENS, dtype=np.uint8)[which]
    train, test = (LabelledVectors(X[part], L[part]) for part in (slice(ROWS), slice(ROWS, None)))
    rng = np.random.default_rng(8)  # texts made by exchanging a word: they are no test texts
    other = rng.integers(TOKENS, size=ROWS)
    moved = train.X.copy()
    moved[np.arange(ROWS), other] += X.std()
    further = FurtherVectors(moved, np.eye(TOKENS)[other], np.full(ROWS, 0.5))
    train = LabelledVectors(train.X, train.L, None, train.X - L[:ROWS] @ np.eye(TOKENS, X.shape[1]), further)
    return attack.run(train, test, show_progress=False).value


def _threshold():
    """Return the R-precision that an attack without information passes with FALSE_FAILURE at most.

    Test labels are independent of everything the attack sees and uniform over the tokens, so
    whatever it ranks first is right with probability 1 / TOKENS, independently for each text.
    """
    return binom.isf(FALSE_FAILURE, ROWS, 1 / TOKENS) / ROWS


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_nothing_is_found_where_nothing_is(attack):
    """Null: test labels carry no information on the vectors (pure noise; labels permuted).

    False failure: at most 1e-6 over all attacks and worlds, from the exact binomial tail.
    Power: a leak of .25 R-precision is over the threshold (.21). Control: the planted leak, the
    same vectors with their labels in place, is found by every attack.
    """
    threshold = _threshold()
    X, which, rng = _world(0, strength=0.0)
    assert _run(attack, X, which) <= threshold
    X, which, rng = _world(0, strength=2.0)
    permuted = np.concatenate([which[:ROWS], rng.integers(TOKENS, size=ROWS)])
    assert _run(attack, X, permuted) <= threshold
    assert _run(attack, X, which) > threshold
