"""Protector files of this format keep their meaning: what they release with a key never changes.

The files and digests here were written once and are not to be written again: a change of the noise law,
of the arithmetic or of the file format needs another mechanism name or another schema.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import vecveil
from vecveil.randomness import NoiseKey

HERE = Path(__file__).parent
EXPECTED = json.loads((HERE / "releases.json").read_text(encoding="utf-8"))
KEY = NoiseKey("golden", bytes(range(64, 96)))
EXACT = {"laplace", "sparse", "gaussian", "ldp-gaussian", "shuffle", "subspace"}
"""Those whose arithmetic is the same on every machine, to the last bit."""


def vectors() -> np.ndarray:
    X = np.sin(np.arange(40 * 8, dtype=np.float64)).round(6).reshape(40, 8)
    return np.ascontiguousarray((X / 2).astype(np.float32))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_saved_protector_releases_what_it_always_did(name: str) -> None:
    protector = vecveil.load(HERE / f"{name}.vecveil")
    expected = EXPECTED[name]
    assert protector.fingerprint == expected["fingerprint"]
    released = protector.protect(vectors(), ids=[f"item {i}" for i in range(40)], key=KEY)
    np.testing.assert_allclose(released[0], expected["first"], rtol=1e-5, atol=1e-6)
    if protector.method in EXACT:
        assert hashlib.sha256(released.tobytes()).hexdigest() == expected["sha256"]


def test_every_exact_method_is_here() -> None:
    assert {vecveil.load(HERE / f"{name}.vecveil").method for name in EXPECTED} >= EXACT
