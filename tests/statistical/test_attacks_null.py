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
    text_groups,
)
from vecveil.auditing.attacks.attack import split_groups

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


def test_duplicates_across_the_split_would_look_like_a_leak():
    """Null: labels are random, every text occurs twice, and groups keep the copies together.

    False failure: at most 1e-6, from the exact binomial tail over the distinct test texts at twice
    the share (a copy doubles a hit). Power and control: the same split by row, groups ignored,
    lets the copies cross, and the attack passes the threshold.
    """
    rng = np.random.default_rng(4)
    distinct = 400
    which = rng.integers(TOKENS, size=distinct)
    X = np.repeat(rng.standard_normal((distinct, 64)), 2, axis=0)
    L = np.repeat(np.eye(TOKENS, dtype=np.uint8)[which], 2, axis=0)
    groups = text_groups([f"Text {i // 2}{'.' * (i % 2)}" for i in range(2 * distinct)])

    def value(ids):
        train, test = split_groups(ids, (0.7, 0.3))
        data = LabelledVectors(X, L, ids)
        return KernelAttack().run(data.take(train), data.take(test)).value

    texts = round(0.3 * distinct)
    threshold = binom.isf(1e-6, texts, 1 / TOKENS) / texts
    assert value(groups) <= threshold
    assert value(np.arange(2 * distinct)) > threshold
