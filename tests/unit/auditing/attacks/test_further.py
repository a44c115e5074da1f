"""Further texts: what they may be, what they add, and that they are part of what a checkpoint knows."""

import numpy as np
import pytest

from harness.errors import raises
from unit.auditing.attacks.planted import parity, planted
from vecveil.auditing.attacks import FurtherKernelAttack, FurtherVectors, KernelAttack, Knowledge, LabelledVectors
from vecveil.errors import InvalidInputError


def _noisy(X, rng):
    return (X + 0.1 * rng.standard_normal(X.shape)).astype(X.dtype)


def _with(data, more, weight=0.5):
    further = FurtherVectors(more.X, more.L, np.full(len(more), weight))
    return LabelledVectors(data.X, data.L, data.groups, None, further)


@pytest.mark.parametrize("release", [None, _noisy], ids=["arrays", "oracle"])
def test_they_add_what_few_texts_do_not_show(release):
    few, many, test = (planted(n, seed=s, strength=0.7) for s, n in enumerate((40, 900, 300)))
    alone = KernelAttack(rows=400).run(few, test, release=release).value
    attack = FurtherKernelAttack(rows=400, blocks=3)
    result = attack.run(_with(few, many), test, release=release)
    assert result.value > alone + 0.05
    assert result.details["rows"] == 3 * 40 + 900


def test_wrong_labels_of_further_texts_find_nothing():
    """Control: they count, so that texts with labels of others spoil what few texts show."""
    few, many, test = (planted(n, seed=s, strength=0.7) for s, n in enumerate((40, 900, 300)))
    order = np.random.default_rng(0).permutation(900)
    wrong = LabelledVectors(many.X, many.L[order])
    right = FurtherKernelAttack(rows=400).run(_with(few, many, 1.0), test).value
    assert FurtherKernelAttack(rows=400).run(_with(few, wrong, 1.0), test).value < right - 0.2


def test_material_is_own_texts_in_every_block_and_each_further_text_once():
    data, more = _with(parity(50), parity(300, seed=1), 0.25), parity(300, seed=1)
    attack = FurtherKernelAttack(rows=150, blocks=4)
    given = attack._material([data], Knowledge(4), np.random.default_rng(0))
    assert [len(block) for block in given.blocks] == [150, 150, 150]
    for block in given.blocks:
        assert (given.weight[block] == 1).sum() == 50
    found = given.X[given.weight < 1]
    assert {row.tobytes() for row in found} == {row.tobytes() for row in more.X}
    one = FurtherKernelAttack(rows=500)
    assert len(one._material([data], Knowledge(4), np.random.default_rng(0)).X) == 350
    twice = one._material([data], Knowledge(4, _noisy), np.random.default_rng(0))
    assert len(twice.X) == 400
    small = FurtherKernelAttack(rows=40, blocks=2)
    assert len(small._material([data], Knowledge(4), np.random.default_rng(0)).X) == 80


def test_they_are_refused_where_missing_or_unfit():
    data, test = planted(60), planted(40, seed=1)
    with raises("E-INPUT", "train"):
        FurtherKernelAttack().run(data, test)
    for X, L, weight in [
        (data.X, data.L[:5], np.ones(60)),
        (data.X, data.L, np.ones(59)),
        (data.X, data.L, np.zeros(60)),
        (data.X, data.L, np.full(60, 1.5)),
        (data.X, data.L, np.full(60, np.nan)),
        (data.X * np.nan, data.L, np.ones(60)),
    ]:
        with pytest.raises(InvalidInputError):
            FurtherVectors(X, L, weight)
    for more in (
        FurtherVectors(data.X[:, :5], data.L, np.ones(60)),
        FurtherVectors(data.X, data.L[:, :5], np.ones(60)),
    ):
        with raises("E-INPUT", "further"):
            LabelledVectors(data.X, data.L, None, None, more)


def test_what_was_made_from_some_texts_can_be_left_out():
    more = planted(6)
    further = FurtherVectors(more.X, more.L, np.ones(6), np.array([0, 1, 2, 3, -1, -1]))
    left = further.apart_from(np.array([1, 3, 9]))
    assert left is not None
    assert left.groups is not None
    assert left.groups.tolist() == [0, 2, -1, -1]
    np.testing.assert_array_equal(left.X, more.X[[0, 2, 4, 5]])
    assert further.apart_from(None) is further
    assert further.apart_from(np.array([0, 1, 2, 3, -1])) is None
    with raises("E-INPUT", "groups"):
        FurtherVectors(more.X, more.L, np.ones(6), np.arange(5))


def test_take_keeps_them_and_the_digest_covers_them():
    data, more = planted(60), planted(30, seed=1)
    one, again, other = _with(data, more), _with(data, more), _with(data, more, 0.4)
    assert one.take(np.array([1, 2])).further is one.further
    assert one.digest() == again.digest() != other.digest()
    assert one.digest() != data.digest()


def test_a_checkpoint_is_of_its_further_texts(tmp_path):
    data, more, test = planted(60), planted(60, seed=1), planted(40, seed=2)
    attack = FurtherKernelAttack(rows=100)
    first = attack.run(_with(data, more), test, checkpoint=tmp_path)
    again = attack.run(_with(data, more), test, checkpoint=tmp_path)
    assert dict(first.estimates) == dict(again.estimates)
    with raises("E-CHECKPOINT", "checkpoint"):
        attack.run(_with(data, more, 0.4), test, checkpoint=tmp_path)
