"""What an audit reads from the storage of a sealed index: the right bytes, every value that stands there, no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from vecveil.index import SealedIndex
from vecveil.index.exposure import built_indexes, sampled_rows, stored_vectors, values_found
from vecveil.index.sealer import Unsealed

ROWS = 40


@pytest.fixture
def index(tmp_path: Path) -> SealedIndex:
    index = SealedIndex(tmp_path / "notes", bytes(range(32)))
    X = np.random.default_rng(0).standard_normal((ROWS, 16))
    for part in (slice(25), slice(25, ROWS)):
        ids = [f"note-{i:04d}" for i in range(ROWS)[part]]
        metadata: list[dict[str, Any]] = [{"author": f"{i:04d} author"} for i in range(ROWS)[part]]
        index.add([f"{name[5:]} text" for name in ids], ids=ids, vectors=X[part], metadata=metadata)
    return index


def test_the_attacker_gets_the_ciphertext_of_each_row(index: SealedIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checked by opening it: AES-GCM is AES-CTR from counter 2 behind the nonce, which here is the last block's, 0."""
    keys: dict[str, bytes] = {}
    own = index._log.made()
    unwrap = own.unwrap
    monkeypatch.setattr(
        own, "unwrap", lambda wrapped, key_id, name: keys.setdefault(name, unwrap(wrapped, key_id, name))
    )
    rows = index.get()
    cipher = stored_vectors(index, rows.ids)
    for part in index._log.refresh().parts.values():
        counter = bytes(11) + b"\1" + (2).to_bytes(4, "big")
        at, size = part.segment._sections["vector"]
        stream = (
            Cipher(algorithms.AES(keys[part.segment.name]), modes.CTR(counter)).encryptor().update(bytes(at + size))
        )
        mine = [i for i, name in enumerate(rows.ids) if name in part.segment.strings("id").to_pylist()]
        opened = cipher[mine] ^ np.frombuffer(stream, np.uint8)[at:].reshape(-1, cipher.shape[1])
        np.testing.assert_array_equal(opened.view("<f2"), rows.vectors[mine].astype("<f2"))


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        (None, lambda rows: b""),
        ("texts", lambda rows: rows.texts[3].encode("utf-16-be")),
        ("ids", lambda rows: rows.ids[3].encode()),
        ("metadata", lambda rows: rows.metadata[3]["author"].encode("utf-16-le")),
        *(("vectors", lambda rows, k=kind: rows.vectors[3].astype(k).tobytes()) for kind in ("<f2", ">f4", ">f8")),
        ("vectors", lambda rows: np.rint(rows.vectors[3] / np.abs(rows.vectors[3]).max() * 127).astype("i1").tobytes()),
    ],
)
def test_a_value_that_stands_in_an_object_is_found(index: SealedIndex, kind: str | None, written: Any) -> None:
    rows = sampled_rows(index, ROWS, seed=0)
    Path(index.location, "segments", "left.tmp").write_bytes(b"x" * 5 + written(rows) + b"y" * 5)
    found = values_found(index.location, rows)
    assert found.keys() == {"texts", "ids", "metadata", "vectors"}
    for name, (number, sought) in found.items():
        assert (number, sought) == (int(name == kind), ROWS if name != "metadata" else sought)
    if kind == "ids":
        Path(index.location, f"{rows.ids[5]}.txt").touch()
        assert values_found(index.location, rows)["ids"][0] == 2


def test_short_values_are_not_looked_for(index: SealedIndex) -> None:
    rows = Unsealed(["7", "8"], np.ones((2, 4), np.float32), ["yes", "a longer text"], [None, {"a": 1}], [])
    assert values_found(index.location, rows) == {"texts": (0, 1), "vectors": (0, 2)}


def test_indexes_of_two_kinds_differ_in_nothing_but_content() -> None:
    texts = ["häufiger Text " * 12, "kurz"]
    holds = np.array([True, False])
    shown, labels = built_indexes(np.eye(2, 16, dtype=np.float32), texts, holds, count=6, rows=8)
    assert labels.tolist() == [False, True] * 3
    assert np.ptp(shown[:, :3], axis=0).tolist() == [0, 0, 0]
    np.testing.assert_allclose(shown[:, 3:].sum(axis=1), 1)
