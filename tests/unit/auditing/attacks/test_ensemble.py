"""The ensemble: its members, what they find together, and what a checkpoint keeps."""

import numpy as np
import pytest

from unit.auditing.attacks.planted import parity, planted
from vecveil.auditing.attacks import EnsembleAttack, FurtherVectors, KernelAttack, LabelledVectors


def _release(X, rng):
    return (X + 0.3 * rng.standard_normal(X.shape)).astype(X.dtype)


def _evidence(rows=150, *, seed=0, extra=True, strength=1.5):
    data, more = (planted(n, seed=seed + s, strength=strength) for s, n in ((0, rows), (50, 400)))
    rng = np.random.default_rng(seed)
    rest = (rng.standard_normal(data.X.shape) / np.sqrt(data.dimension)).astype(np.float32)
    further = FurtherVectors(more.X, more.L, np.full(len(more), 0.5))
    return LabelledVectors(data.X, data.L, None, rest, further) if extra else data


def _test():
    data = planted(400, seed=7)
    return LabelledVectors(_release(data.X, np.random.default_rng(1)), data.L)


def test_it_finds_what_its_members_find():
    result = EnsembleAttack(rows=500).run(_evidence(), _test(), release=_release)
    alone = KernelAttack(rows=500).run(_evidence(), _test(), release=_release)
    assert result.value > alone.value - 0.03
    assert result.adaptive
    assert EnsembleAttack(rows=500).run(parity(seed=0), parity(seed=1)).value > 0.95


@pytest.mark.parametrize("field", ["without", "further"])
def test_members_follow_the_evidence(field):
    full = _evidence()
    some = LabelledVectors(full.X, full.L, None, **{field: getattr(full, field)})
    assert set(EnsembleAttack._members(full, 9)) == {"kernel", "transplant", "further"}
    name = {"without": "transplant", "further": "further"}[field]
    assert set(EnsembleAttack._members(some, 9)) == {"kernel", name}


def test_a_member_that_does_not_help_is_left_out():
    data = _evidence(300)
    order = np.random.default_rng(0).permutation(400)
    assert data.further is not None
    wrong = FurtherVectors(data.further.X, data.further.L[order], np.ones(400))
    spoilt = LabelledVectors(data.X, data.L, None, None, wrong)
    assert EnsembleAttack(rows=500).run(spoilt, _test()).details["members"] == "kernel"


def test_constant_vectors_say_nothing():
    data = LabelledVectors(np.ones((60, 5)), np.eye(3)[np.arange(60) % 3])
    assert EnsembleAttack(rows=50).run(data, data).value <= 0.5
