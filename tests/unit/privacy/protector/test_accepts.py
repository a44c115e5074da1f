"""Which rows a protector takes is told as `protect` then has it, for every method that changes vectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import vecveil
from harness.documents import ROOT
from vecveil.errors import VecveilError
from vecveil.privacy.protector import EncoderInfo
from vecveil.privacy.protector.policy import ReleasePolicy

GOLDEN = sorted((ROOT / "tests" / "golden").glob("*.vecveil"))
PROTECTORS = [(path.stem, vecveil.load(path)) for path in GOLDEN]
OF_VECTORS = [(name, one) for name, one in PROTECTORS if not ReleasePolicy(one).rewrites_texts]
KNOWN = next(one for name, one in OF_VECTORS if name == "subspace")
OF_VECTORS += [
    (f"of-lengths-{low}-{high}", replace(KNOWN, encoder_info=EncoderInfo(norms=(low, high))))
    for low, high in ((1.0, 1.0), (0.5, 3.0))
]


def rows_of(protector: vecveil.Protector) -> np.ndarray:
    """Return rows of many lengths, among them zeros and what lies about the bounds of some methods."""
    n = protector.dimension
    unit = np.random.default_rng(1).standard_normal(n)
    unit /= np.linalg.norm(unit)
    low, high = protector.encoder_info.norms or (1.0, 1.0)
    lengths = [0.0, 1e-30, 0.01, 0.5, 0.999, 1.0, 1.05, 1.2, 2.5, 30.0, 1e5]
    for edge in (1.1 * high, 2 * high, 1 - 1e-2, 1 + 1e-2, 1 + 1e-5, 1 + 1e-6):
        lengths += [edge, *(edge * (1 + side * 2.0**-22) for side in (-3, -2, -1, 1, 2, 3))]
    return np.array([length * unit for length in lengths], dtype=np.float32)


@pytest.mark.parametrize("protector", [one for _, one in OF_VECTORS], ids=[name for name, _ in OF_VECTORS])
def test_it_is_told_as_it_is(protector: vecveil.Protector) -> None:
    X = rows_of(protector)
    told = protector.accepts(X)
    assert told.shape == (len(X),)
    for row, taken in zip(X, told, strict=True):
        try:
            ReleasePolicy(protector).documents(row[None], rng=0)
            done = True
        except VecveilError:
            done = False
        assert taken == done, np.linalg.norm(row)


def test_no_rows_and_all_methods() -> None:
    for name, protector in OF_VECTORS:
        assert protector.accepts(np.empty((0, protector.dimension), np.float32)).shape == (0,), name
    assert {"shuffle", "purkayastha", "ldp-gaussian", "textcrafter"} <= {one.method for _, one in OF_VECTORS}
