"""Which rows a protector takes is told as `protect` then has it, for every method that changes vectors."""

from __future__ import annotations

import numpy as np
import pytest

import vecveil
from harness.documents import ROOT
from vecveil.errors import VecveilError
from vecveil.protector.taken_rows import taken_rows
from vecveil.release_policy import ReleasePolicy

GOLDEN = sorted((ROOT / "tests" / "golden").glob("*.vecveil"))
PROTECTORS = [(path.stem, vecveil.load(path)) for path in GOLDEN]
OF_VECTORS = [(name, one) for name, one in PROTECTORS if not ReleasePolicy(one).rewrites_texts]


def rows_of(protector: vecveil.Protector) -> np.ndarray:
    """Return rows of many lengths, among them zeros and one of a single value."""
    n = protector.dimension
    unit = np.random.default_rng(1).standard_normal(n)
    unit /= np.linalg.norm(unit)
    lengths = (0.0, 1e-30, 0.01, 0.5, 0.999, 1.0, 1.05, 1.2, 2.5, 30.0, 1e5)
    return np.array([*(length * unit for length in lengths), np.full(n, n**-0.5)], dtype=np.float32)


@pytest.mark.parametrize(
    "protector", [one for _, one in OF_VECTORS], ids=[name for name, _ in OF_VECTORS]
)
def test_it_is_told_as_it_is(protector: vecveil.Protector) -> None:
    X = rows_of(protector)
    told = taken_rows(protector, X)
    assert told.shape == (len(X),)
    for row, taken in zip(X, told, strict=True):
        try:
            released = protector.protect(row[None], rng=0)
        except VecveilError:
            done = False
        else:
            # A shuffle of zeros is zeros.
            done = protector.method != "shuffle" or bool((released[0] != row).any())
        assert taken == done, np.linalg.norm(row)


def test_no_rows_and_all_methods() -> None:
    for name, protector in OF_VECTORS:
        assert taken_rows(protector, np.empty((0, protector.dimension), np.float32)).shape == (
            0,
        ), name
    assert {"shuffle", "purkayastha", "ldp-gaussian", "textcrafter"} <= {
        one.method for _, one in OF_VECTORS
    }
