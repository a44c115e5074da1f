"""Blobs open for their own row alone, rank exactly, and hold nothing readable."""

from __future__ import annotations

import base64
import contextlib
import errno
import itertools
import json
import multiprocessing
import pickle
import secrets
import sqlite3
import stat
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESGCMSIV

from harness.errors import raises
from vecveil.errors import KeyFileError, SealingError
from vecveil.index import KeyStore, Sealer, SqliteBlobs
from vecveil.index.blob import canonical_ids, padded_length, transaction
from vecveil.index.index_keys import DataKeys, KeySource
from vecveil.keys import KeyFile

IDS = ["a", "b", "c", "d"]
CANARY = "canary-3f9c2 metformin"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    KeyFile.create(tmp_path / "search.keys", "one")
    return tmp_path / "search.keys"


@pytest.fixture
def X() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)


@pytest.mark.parametrize(
    ("plaintext", "associated", "result"),
    [
        ("", "", "07f5f4169bbf55a8400cd47ea6fd400f"),
        ("0100000000000000", "", "c2ef328e5c71c83b843122130f7364b761e0b97427e3df28"),
        ("010000000000000000000000", "", "9aab2aeb3faa0a34aea8e2b18ca50da9ae6559e48fd10f6e5c9ca17e"),
        ("0200000000000000", "01", "1de22967237a813291213f267e3b452f02d01ae33e4ec854"),
    ],
)
def test_the_cipher_is_that_of_rfc_8452(plaintext: str, associated: str, result: str) -> None:
    """Appendix C.2 of RFC 8452."""
    cipher = AESGCMSIV(b"\x01" + bytes(31))
    sealed = cipher.encrypt(b"\x03" + bytes(11), bytes.fromhex(plaintext), bytes.fromhex(associated))
    assert sealed.hex() == result


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("precision", "error"), [("float16", 2**-10), ("int8", 1 / 100), ("float32", 1e-7)])
def test_vectors_come_back_within_their_precision(
    path: Path, X: np.ndarray, precision: str, error: float, dtype: type
) -> None:
    sealer = Sealer(path, precision=precision)
    opened = sealer.unseal(sealer.seal(X.astype(dtype), ids=IDS, collection="notes"), ids=IDS, collection="notes")
    assert opened.vectors.dtype == np.float32
    assert np.abs(opened.vectors - X).max() <= error * np.abs(X).max()


def test_texts_and_metadata_come_back(path: Path, X: np.ndarray) -> None:
    texts, metadata = (["", CANARY, "lone \ud800", "ü" * 3000], [None, {"year": 2026, "tags": ["x"]}, {}, {"a": None}])
    for compress in (False, True):
        sealer = Sealer(path, compress=compress)
        blobs = sealer.seal(X, ids=IDS, collection="notes", texts=texts, metadata=metadata)
        opened = sealer.unseal(blobs, ids=IDS, collection="notes")
        assert (opened.texts, opened.metadata) == (texts, metadata)


def test_a_blob_opens_for_its_row_alone(path: Path, X: np.ndarray) -> None:
    sealer = Sealer(path)
    ids = [1, "1", b"1", uuid.UUID(int=1)]
    blobs = sealer.seal(X, ids=ids, collection="notes", generations=[0, 0, 0, 0])
    sealer.seal(X, ids=ids, collection="other")
    right = {"ids": ids, "collection": "notes", "generations": [0, 0, 0, 0]}
    assert len(sealer.unseal(blobs, **right).ids) == 4
    for wrong in (
        {"ids": ["1", 1, "x", "y"]},
        {"collection": "other"},
        {"generations": [1] * 4},
        {"generations": None},
    ):
        assert not sealer.unseal(blobs, **{**right, **wrong}, on_invalid="skip").ids
    with raises("E-SEAL-OPEN", "blobs"):
        sealer.unseal(blobs, **{**right, "ids": [2, "1", b"1", ids[3]]})
    # The spelling of a UUID that a database returns is the same id.
    spelled = [1, "1", b"1", f"urn:uuid:{ids[3]}".upper().replace("URN:UUID", "urn:uuid")]
    assert len(sealer.unseal(blobs, **{**right, "ids": spelled}).ids) == 4
    # Renaming a collection changes no blob; another key store opens none.
    KeyStore(path).rename("notes", "memos")
    assert len(sealer.unseal(blobs, **{**right, "collection": "memos"}).ids) == 4
    with raises("E-SEAL-COLLECTION", "collection"):
        sealer.unseal(blobs, **right)


def test_any_changed_byte_is_refused(path: Path, X: np.ndarray) -> None:
    sealer = Sealer(path)
    blob = sealer.seal(X[:1], ids=["a"], collection="notes", texts=[CANARY])[0]
    for position in range(len(blob)):
        changed = blob[:position] + bytes([blob[position] ^ 1]) + blob[position + 1 :]
        with pytest.raises(SealingError):
            sealer.unseal([changed], ids=["a"], collection="notes")
    for cut in (b"", blob[:5], blob[:-1], blob + b"\0", "text", None):
        skipped = sealer.unseal([cut], ids=["a"], collection="notes", on_invalid="skip")  # type: ignore[list-item]
        assert (skipped.ids, skipped.skipped) == ([], ["a"])


def test_ranks_by_exact_cosines(path: Path) -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((300, 24)).astype(np.float32) * rng.uniform(0.1, 9, (300, 1)).astype(np.float32)
    X[7] = 0
    query = rng.standard_normal(24)
    ids = [f"id {i}" for i in range(300)]
    blobs = [
        *Sealer(path, precision="float32").seal(X[:150], ids=ids[:150], collection="notes", texts=ids[:150]),
        *Sealer(path, precision="float16").seal(X[150:], ids=ids[150:], collection="notes"),
    ]
    blobs[11] = blobs[12]
    ranking = Sealer(path).rank(query, blobs, ids=ids, collection="notes", top=20, on_invalid="skip")
    norms = np.linalg.norm(X, axis=1) * np.linalg.norm(query)
    cosines = np.divide(X @ query, norms, out=np.zeros(300), where=norms > 0)
    cosines[11] = -np.inf
    assert ranking.ids == [ids[i] for i in np.argsort(-cosines)[:20]]
    np.testing.assert_allclose(ranking.scores, np.sort(cosines)[::-1][:20], atol=1e-3)
    assert ranking.skipped == ["id 11"]
    assert [t == i if int(i[3:]) < 150 else t is None for t, i in zip(ranking.texts, ranking.ids, strict=True)].count(
        False
    ) == 0
    assert not Sealer(path).rank(query, [], ids=[], collection="notes").ids


def test_rotation_keeps_readers_going_and_retiring_closes_old_blobs(path: Path, X: np.ndarray) -> None:
    writer, reader, store = Sealer(path), Sealer(path), KeyStore(path)
    old = writer.seal(X, ids=IDS, collection="notes")
    store.rotate("notes")
    new = writer.seal(X, ids=IDS, collection="notes")
    assert old[0][1:9] != new[0][1:9]
    assert len(reader.unseal([*old, *new], ids=[*IDS, *IDS], collection="notes").ids) == 8
    assert store.retire("notes", keep=store.read("notes").current.key_id) == 1
    opened = reader.unseal([*old, *new], ids=[*IDS, *IDS], collection="notes", on_invalid="skip")
    assert (opened.ids, opened.skipped) == (IDS, IDS)
    KeyFile.create(path, "two")  # a new master key keeps the collections and opens what the old one wrapped
    assert len(Sealer(path).unseal(new, ids=IDS, collection="notes").ids) == 4
    first, second = sorted(KeyFile.from_file(path).keys)
    for key_id in (first, second, "three"):  # wraps a data key, is current, does not exist
        with raises("E-INPUT", "key_id"):
            store.erase_master(key_id)
    store.rotate("notes")  # wraps the older data key anew, too
    store.erase_master(first)
    assert list(KeyFile.from_file(path).keys) == [second]
    assert len(Sealer(path).unseal(new, ids=IDS, collection="notes").ids) == 4
    store.erase("notes")
    with raises("E-SEAL-COLLECTION", "collection"):
        reader.unseal(new, ids=IDS, collection="notes")
    # A collection made anew under the old name does not open the old blobs.
    with raises("E-SEAL-COLLECTION", "collection"):
        reader.seal(X, ids=IDS, collection="notes")
    reader.keys.create("notes")
    reader.seal(X, ids=IDS, collection="notes")
    assert reader.unseal(new, ids=IDS, collection="notes", on_invalid="skip").skipped == IDS


def test_data_keys_are_renewed_by_volume(path: Path, X: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vecveil.index.keystore.MOST_BLOBS", 8)
    monkeypatch.setattr("vecveil.index.keystore._SHARE", 4)
    sealer = Sealer(path)
    blobs = [sealer.seal(X[:3], ids=IDS[:3], collection="notes") for _ in range(6)]
    used = {part[0][1:9]: sum(other[0][1:9] == part[0][1:9] for other in blobs) * 3 for part in blobs}
    assert len(used) > 1
    assert max(used.values()) <= 8
    for part in blobs:
        assert len(sealer.unseal(part, ids=IDS[:3], collection="notes").ids) == 3


def test_a_key_store_counts_about_what_was_sealed(path: Path, X: np.ndarray) -> None:
    for i in range(200):
        if i % 50 == 0:
            sealer = Sealer(path)  # another process
            sealer.keys.create("notes", exist_ok=True)
        sealer.seal(X, ids=IDS, collection="notes")
        assert 4 * (i + 1) <= KeyStore(path).collections()["notes"]["sealed_at_most"] <= 6 * (i + 1)


def test_nothing_readable_leaves(path: Path, X: np.ndarray) -> None:
    sealer = Sealer(path)
    blobs = sealer.seal(X, ids=IDS, collection="notes", texts=[CANARY] * 4, metadata=[{"drug": CANARY}] * 4)
    vector = X.astype(np.float16).tobytes()
    assert all(CANARY.encode() not in blob and vector[:16] not in blob for blob in blobs)
    assert len({blob[-16:] for blob in blobs}) == 4
    opened = sealer.unseal(blobs, ids=IDS, collection="notes")
    ranking = sealer.rank(X[0], blobs, ids=IDS, collection="notes")
    secret = KeyFile.from_file(path).key().secret_for_noise()
    shown = " ".join(
        map(
            repr,
            (
                sealer,
                opened,
                ranking,
                KeyStore(path),
                KeyStore(path).read("notes"),
                KeyStore(path).read("notes").current,
            ),
        )
    )
    with pytest.raises(SealingError) as caught:
        sealer.unseal(blobs, ids=IDS[::-1], collection="notes")
    shown += repr(caught.value) + repr(caught.value.__cause__)
    with raises("E-SEAL-METADATA", "metadata"):
        sealer.seal(X, ids=IDS, collection="notes", metadata=[{"drug": object()}] * 4)
    assert CANARY not in shown
    assert secret.hex() not in shown
    assert repr(secret) not in shown
    assert CANARY.encode() not in path.read_bytes()
    for key in (KeyStore(path).read("notes").current, Sealer(secrets.token_bytes(32))):
        with pytest.raises(TypeError):
            pickle.dumps(key)


def test_padding_hides_lengths(path: Path, X: np.ndarray) -> None:
    texts = ["", "x" * 200, "y" * 100, "z"]
    assert len({len(blob) for blob in Sealer(path).seal(X, ids=IDS, collection="notes", texts=texts)}) == 1
    assert len({len(blob) for blob in Sealer(path, padding=0).seal(X, ids=IDS, collection="notes", texts=texts)}) == 4
    lengths = np.arange(1, 20_000)
    padded = np.array([padded_length(int(length), 256) for length in lengths])
    assert (padded >= lengths).all()
    assert (np.diff(padded) >= 0).all()
    assert (padded[lengths > 256] <= lengths[lengths > 256] * 1.12).all()
    assert len(set(padded)) < 120


class Wrapper:
    """A provider with a key of its own, as a key service has."""

    def __init__(self) -> None:
        self.secret = secrets.token_bytes(32)

    def wrap(self, key: bytes, context: bytes) -> bytes:
        nonce = secrets.token_bytes(12)
        return nonce + AESGCM(self.secret).encrypt(nonce, key, context)

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        return AESGCM(self.secret).decrypt(wrapped[:12], wrapped[12:], context)


def test_other_kinds_of_keys(tmp_path: Path, X: np.ndarray) -> None:
    provider, secret = Wrapper(), secrets.token_bytes(32)
    for sealer in (Sealer(provider, store=tmp_path / "wrapped.json"), Sealer(secret)):
        blobs = sealer.seal(X, ids=IDS, collection="notes")
        again = Sealer(provider, store=tmp_path / "wrapped.json") if "Single" not in repr(sealer) else Sealer(secret)
        assert len(again.unseal(blobs, ids=IDS, collection="notes").ids) == 4
        again.seal(X, ids=IDS, collection="other")
        assert again.unseal(blobs, ids=IDS, collection="other", on_invalid="skip").skipped == IDS
    assert provider.secret.hex() not in (tmp_path / "wrapped.json").read_text()
    with raises("E-KEY-FILE", "path"):
        Sealer(Wrapper(), store=tmp_path / "wrapped.json").unseal(blobs, ids=IDS, collection="notes")


def test_the_master_key_may_be_in_the_environment(
    tmp_path: Path, X: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, store = secrets.token_bytes(32), tmp_path / "search.keys"
    monkeypatch.setenv("SEAL_KEY", base64.b64encode(secret).decode())
    blobs = Sealer("env:SEAL_KEY", store=store).seal(X, ids=IDS, collection="notes")
    assert secret.hex() not in store.read_text()
    # As one string, for a command line; the JSON of a key file rotates the master key.
    assert len(Sealer(f"env:SEAL_KEY:{store}").unseal(blobs, ids=IDS, collection="notes").ids) == 4
    KeyFile.create(tmp_path / "new.keys", "two")
    record = json.loads((tmp_path / "new.keys").read_text())
    record["keys"]["env"] = base64.b64encode(secret).decode()
    monkeypatch.setenv("SEAL_KEY", json.dumps(record))
    sealer = Sealer(f"env:SEAL_KEY:{store}")
    sealer.keys.rotate("notes")
    del record["keys"]["env"]
    monkeypatch.setenv("SEAL_KEY", json.dumps(record))
    again = Sealer(f"env:SEAL_KEY:{store}")
    assert len(again.unseal(blobs, ids=IDS, collection="notes").ids) == 4
    for value, code in (("AAAA", "E-KEY-FILE"), ("no base64!", "E-KEY-FILE"), (None, "E-KEY-FILE")):
        monkeypatch.setenv("SEAL_KEY", value) if value else monkeypatch.delenv("SEAL_KEY")
        with raises(code):
            Sealer(f"env:SEAL_KEY:{store}")
    monkeypatch.setenv("SEAL_KEY", base64.b64encode(secret).decode())
    with raises("E-INPUT", "store"):
        Sealer("env:SEAL_KEY")


def _filled(path: Path, start: int) -> None:
    blobs = SqliteBlobs(path)
    for i in range(start, start + 100, 10):
        blobs.update({f"row {j}": b"%d" % j for j in range(i, i + 10)})


def test_a_key_store_that_cannot_be_written_is_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    KeyFile.create(tmp_path / "search.keys", "one")
    store = KeyStore(tmp_path / "search.keys")
    store.create("notes")
    before = (tmp_path / "search.keys").read_bytes()

    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("vecveil.index.keystore.write_bytes", full)
    for change in (store.rotate, store.erase):
        with raises("E-KEY-FILE", "path"):
            change("notes")
    assert (tmp_path / "search.keys").read_bytes() == before
    assert len(store.read("notes").keys) == 1


def test_a_full_key_store_takes_no_new_collection_and_rotates_the_others(
    path: Path, X: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealer = Sealer(path)
    blobs = sealer.seal(X, ids=IDS, collection="notes")
    before = path.read_bytes()
    monkeypatch.setattr("vecveil.keys._LARGEST_FILE", len(before) + 600)
    monkeypatch.setattr("vecveil.index.keystore._SPARE", 600)
    with raises("E-KEY-FULL", "path"):
        sealer.seal(X, ids=IDS, collection="more")
    assert path.read_bytes() == before
    sealer.keys.rotate("notes")
    with raises("E-KEY-FULL", "path"):
        for number in range(9):
            KeyFile.create(path, f"key {number}")
    assert len(Sealer(path).unseal(blobs, ids=IDS, collection="notes").ids) == 4


def test_blobs_in_a_sqlite_file(tmp_path: Path) -> None:
    path = tmp_path / "blobs.db"
    blobs = SqliteBlobs(path)
    blobs.update({"a": b"1", "\ud800 \0": b"\0\xff"})
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}  # the log too
    blobs["a"] = b"2"
    again = pickle.loads(pickle.dumps(SqliteBlobs(path)))
    assert dict(again) == {"a": b"2", "\ud800 \0": b"\0\xff"}
    assert (again.get("b"), again.pop("a"), again.pop("a", None), len(blobs)) == (None, b"2", None, 1)
    with pytest.raises(KeyError):
        blobs["a"]
    with pytest.raises(TypeError):  # nothing of a batch is written
        blobs.update({"c": b"1", "d": None})  # type: ignore[dict-item]
    assert "c" not in blobs
    blobs[""] = b"0"
    assert sorted(blobs) == ["", "\ud800 \0"]
    del blobs[""]
    # Writers of several processes wait for each other.
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_filled, args=(path, 100 * i)) for i in range(2)]
    for worker in workers:
        worker.start()
    _filled(path, 200)
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert len(blobs) == 301
    assert all(blobs[f"row {i}"] == b"%d" % i for i in range(300))
    with raises("E-STORE-DATABASE", "path"):
        SqliteBlobs(tmp_path / "absent" / "blobs.db")
    (tmp_path / "text").write_text("no database " * 99)
    with raises("E-STORE-DATABASE", "path"):
        SqliteBlobs(tmp_path / "text")


def test_only_the_first_seal_of_a_process_makes_a_collection(path: Path, X: np.ndarray) -> None:
    with raises("E-SEAL-COLLECTION", "collection"):
        KeyStore(path).reserve("notes", 1)
    assert KeyStore(path).collections() == {}
    KeyStore(path).create("notes")
    with raises("E-SEAL-NAME", "collection"):
        KeyStore(path).create("notes")

    def renamed_and_made_again(store: KeyStore) -> None:
        store.rename("notes", "older notes")
        store.create("notes")

    changes: list[Callable[[KeyStore], object]] = [
        lambda store: store.erase("notes"),
        lambda store: store.rename("notes", "others"),
        renamed_and_made_again,
    ]
    for change in changes:
        writer = Sealer(path)
        KeyStore(path).create("notes", exist_ok=True)
        writer.seal(X, ids=IDS, collection="notes")
        change(KeyStore(path))  # another process
        before = path.read_bytes()
        for refused in (
            partial(writer.seal, X, ids=IDS, collection="notes"),
            partial(writer.keys.reserve, "notes", 1),
            partial(writer.keys.check_protector, "notes", "f" * 64, adding=True),
        ):
            with raises("E-SEAL-COLLECTION", "collection"):
                refused()
        assert path.read_bytes() == before
        Sealer(path).seal(X, ids=IDS, collection="notes")  # a process that starts now


def test_two_threads_may_make_a_collection_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One looks in vain, the other one makes the collection before the first has handled that."""
    keys = KeyStore(path)
    read = keys.read

    def overtaken(collection: str) -> Any:
        monkeypatch.setattr(keys, "read", read)
        try:
            return read(collection)
        finally:
            keys.create(collection)

    monkeypatch.setattr(keys, "read", overtaken)
    assert keys.create("notes", exist_ok=True) == read("notes")


def test_each_thread_reserves_blobs_for_itself(path: Path) -> None:
    keys = KeyStore(path)
    keys.create("notes")
    for _ in range(10):
        keys.reserve("notes", 100)
    before = keys.collections()["notes"]["sealed_at_most"]
    with ThreadPoolExecutor(1) as pool:
        pool.submit(keys.reserve, "notes", 1).result()
    assert keys.collections()["notes"]["sealed_at_most"] > before


def test_a_key_store_of_a_provider_that_vanishes_is_not_begun_anew(tmp_path: Path, X: np.ndarray) -> None:
    sealer = Sealer(Wrapper(), store=tmp_path / "data.keys")
    sealer.seal(X, ids=IDS, collection="notes")
    (tmp_path / "data.keys").rename(tmp_path / "elsewhere")
    for collection in ("notes", "others"):
        with raises("E-KEY-FILE", "path"):
            sealer.seal(X, ids=IDS, collection=collection)
    assert not (tmp_path / "data.keys").exists()
    (tmp_path / "elsewhere").rename(tmp_path / "data.keys")
    sealer.seal(X, ids=IDS, collection="notes")


def test_an_index_wraps_under_its_own_keys_alone(path: Path) -> None:
    keys = KeySource(path, "notes").new()
    keys.wrap(bytes(32), "segments/1", keys.current())
    key_id = keys.current()
    again = DataKeys(KeyStore(path), "notes")  # of a process that has not read the keys since
    KeyStore(path).erase("notes")
    for each in (keys, again):
        with raises("E-SEAL-COLLECTION", "collection"):
            each.wrap(bytes(32), "segments/2", key_id)
    assert KeyStore(path).collections() == {}
    KeySource(path, "notes").new()  # the index is made again
    # A key store that was opened since knows the new keys of this name.
    late = DataKeys(KeyStore(path), "notes", keys.uuid)
    for each in (keys, again, late):
        with raises("E-SEAL-COLLECTION"):
            each.wrap(bytes(32), "segments/2", key_id)


def _paths(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    for name in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from _paths(value[name], (*place, name))


def _replaced(value: Any, place: tuple[Any, ...], other: Any) -> Any:
    if not place:
        return other
    changed = value.copy()
    changed[place[0]] = _replaced(value[place[0]], place[1:], other)
    return changed


def test_every_member_of_a_key_store_with_a_wrong_type_is_one_clear_error(path: Path, X: np.ndarray) -> None:
    sealer = Sealer(path)
    for collection in ("notes", "others"):
        sealer.seal(X, ids=IDS, collection=collection)
        sealer.keys.note_protector(collection, "f" * 64, "e" * 64)
        sealer.keys.note_filter_fields(collection, ["tenant"])
    for _ in range(3):
        sealer.keys.rotate("notes")
    sealer.keys.retire("notes", keep=sealer.keys.read("notes").current.key_id)
    record = json.loads(path.read_text())
    refused = 0
    places = list(_paths(record))
    assert ("collections", "notes", "retired", 0) in places
    for place, other in itertools.product(places, (None, 5, -1, 1.5, True, "x", "", [], {}, [5], ["x"], {"a": 5})):
        path.write_text(json.dumps(_replaced(record, place, other)))
        try:
            store = KeyStore(path)
            for collection, entry in store.collections().items():
                keys = store.reserve(collection, 1)
                assert keys.uuid.hex in entry["uuid"].replace("-", "")
                store.is_retired(collection, keys.current.key_id.hex())
                store.rotate(collection)
                store.retire(collection, keep=keys.current.key_id)
                store.note_filter_fields(collection, ["drug"])
        except KeyFileError:
            refused += 1
    assert refused > 7 * len(places)


def test_a_key_store_that_contradicts_itself_is_refused(path: Path) -> None:
    store = KeyStore(path)
    for name in ("notes", "others"):
        store.create(name)
    store.rotate("notes")
    record = json.loads(path.read_text())
    notes = record["collections"]["notes"]
    older = next(key_id for key_id in notes["keys"] if key_id != notes["current"])
    lost = {name: row for name, row in notes["keys"].items() if name != notes["current"]}
    for changed, said in (
        ({"notes": notes, "copy": notes}, "'notes' and 'copy' share a UUID or key"),
        ({"notes": notes, "copy": {**notes, "uuid": str(uuid.uuid4())}}, "'notes' and 'copy' share a UUID or key"),
        ({"notes": {**notes, "keys": lost}}, "'notes' has no current key"),
        ({"notes": {**notes, "keys": {}, "current": ""}}, "'notes' has no current key"),
        ({"notes": {**notes, "retired": [older]}}, "'notes' has a key that it retired"),
    ):
        path.write_text(json.dumps({**record, "collections": changed}))
        with raises("E-KEY-FILE", "path") as caught:
            KeyStore(path)
        assert said in str(caught.value)
    path.write_text(json.dumps(record))
    assert len(KeyStore(path).read("notes").keys) == 2


def test_a_commit_that_fails_leaves_no_transaction_open(tmp_path: Path) -> None:
    blobs = SqliteBlobs(tmp_path / "blobs.db")
    blobs["a"] = b"a"
    with contextlib.closing(sqlite3.connect(tmp_path / "blobs.db", isolation_level=None)) as other:
        other.executescript(
            "CREATE TABLE parents (id PRIMARY KEY);"
            "CREATE TABLE children (id REFERENCES parents DEFERRABLE INITIALLY DEFERRED);"
            "CREATE TRIGGER late AFTER INSERT ON blobs WHEN NEW.blob = x'62'"
            " BEGIN INSERT INTO children VALUES (1); END;"
        )
        blobs._local.connection.execute("PRAGMA foreign_keys = ON")
        with raises("E-STORE-DATABASE", "path"):  # as the COMMIT is refused
            blobs["b"] = b"b"
        del blobs["a"]
        blobs["c"] = b"c"
        assert other.execute("SELECT id FROM blobs").fetchall() == [(b"c",)]


def test_a_failed_rollback_loses_no_later_write() -> None:
    class Failing(sqlite3.Connection):
        fails = True

        def execute(self, statement: str, /, *values: Any) -> sqlite3.Cursor:
            if self.fails and statement in ("COMMIT", "ROLLBACK"):
                raise sqlite3.OperationalError
            return super().execute(statement, *values)

    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None, factory=Failing)) as connection:
        connection.execute("CREATE TABLE numbers (n)")
        for number in (1, 2):
            with pytest.raises(sqlite3.OperationalError), transaction(connection):
                connection.execute(f"INSERT INTO numbers VALUES ({number})")
            connection.fails = False  # the second one finds the transaction of the first, and rolls it back
        with transaction(connection):
            connection.execute("INSERT INTO numbers VALUES (3)")
        assert connection.execute("SELECT n FROM numbers").fetchall() == [(3,)]


def test_blobs_that_another_connection_reads_are_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vecveil.index.blob._WAIT_SECONDS", 0.0)
    blobs = SqliteBlobs(tmp_path / "blobs.db")
    blobs["a"] = b"a" * 999
    with contextlib.closing(sqlite3.connect(tmp_path / "blobs.db", isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT id FROM blobs").fetchall()
        del blobs["a"]
        with raises("E-STORE-DATABASE", "path") as caught:
            blobs.compact()
    assert "Another program reads" in str(caught.value)
    blobs.compact()
    assert not any(b"a" * 999 in Path(file).read_bytes() for file in blobs.files())


def test_tokens_compare_typed_values_of_one_field_and_collection(path: Path) -> None:
    store = KeyStore(path)
    key, other = store.create("notes").current, store.create("other").current
    values = ["", "1", 1, -1, True, False, 1.5, 2**70, "b1"]
    tokens = {key.token("a", value) for value in values} | {key.token("b", 1), other.token("a", 1)}
    assert len(tokens) == len(values) + 2
    assert key.token("a", 1) == key.token("a", 1.0) == KeyStore(path).read("notes").current.token("a", 1)
    assert store.rotate("notes").current.token("a", 1) not in tokens
    for wrong in (None, [1], float("nan"), b"1"):
        with raises("E-SEAL-FILTER", "metadata"):
            key.token("a", wrong)  # type: ignore[arg-type]


def test_wrong_input_is_one_clear_error(path: Path, X: np.ndarray, tmp_path: Path) -> None:
    sealer = Sealer(path)
    with raises("E-INPUT-FINITE", "vectors"):
        sealer.seal(np.full((1, 4), np.nan), ids=["a"], collection="notes")
    with raises("E-SEAL-RANGE", "vectors"):
        sealer.seal(np.full((1, 4), 1e6), ids=["a"], collection="notes")
    with raises("E-INPUT", "ids"):
        sealer.seal(X, ids=["a"], collection="notes")
    with raises("E-SEAL-RANGE", "vectors"):  # float16 would lose the direction
        sealer.seal(np.full((1, 4), 1e-7), ids=["a"], collection="notes")
    for precision in ("float32", "int8"):
        for value in (1e19, 1e-30):  # whose squares are infinite or 0
            with raises("E-SEAL-RANGE", "vectors"):
                Sealer(path, precision=precision).seal(np.full((1, 4), value), ids=["a"], collection="notes")
    nested: object = "a"
    for _ in range(98):
        nested = [nested]
    sealed = sealer.seal(X[:1], ids=["a"], collection="notes", metadata=[{"a": nested}])
    assert sealer.unseal(sealed, ids=["a"], collection="notes").metadata == [{"a": nested}]
    with raises("E-SEAL-METADATA", "metadata"):  # a reader with less stack could not open it
        sealer.seal(X[:1], ids=["a"], collection="notes", metadata=[{"a": [[nested]]}])
    for number in (float("nan"), float("inf")):  # not in JSON
        with raises("E-SEAL-METADATA", "metadata"):
            sealer.seal(X[:1], ids=["a"], collection="notes", metadata=[{"a": [number]}])
    with raises("E-SEAL-METADATA", "metadata"):
        sealer.seal(X[:1], ids=["a"], collection="notes", metadata=[{1: "x"}])  # type: ignore[dict-item]
    cycle: list[Any] = []
    cycle.append(cycle)
    for value, words in (
        ({"visit": [CANARY, timedelta(1)]}, "a value that JSON cannot contain in the field 'visit'"),
        ({"ok": 1, "n": np.float32("nan")}, "a value that JSON cannot contain in the field 'n'"),
        ({"x": {"y": float("nan")}}, "a value that JSON cannot contain in the field 'x'"),
        ({"c": cycle}, "too many levels in the field 'c'"),
        ({"k": {(1, 2): CANARY}}, "a value that JSON cannot contain in the field 'k'"),
        ({7: CANARY}, "a key of the type int"),
        ([CANARY], "the type list"),
    ):
        with raises("E-SEAL-METADATA", "metadata") as caught:
            sealer.seal(X[:3], ids=["a", "b", "c"], collection="notes", metadata=[{}, None, value])  # type: ignore[list-item]
        assert f"{words} in row 3 (counted from 1)" in str(caught.value)
        assert CANARY not in str(caught.value)
    with raises("E-SEAL-NAME", "collection"):
        sealer.seal(X, ids=IDS, collection="")
    with raises("E-INPUT-NAME", "precision"):
        Sealer(path, precision="float8")
    with raises("E-KEY-FILE", "key") as absent:
        Sealer(tmp_path / "absent.keys")
    assert "absent.keys (`key`)" in str(absent.value)
    with raises("E-KEY-FILE", "key"):
        Sealer(bytes(32))
    with raises("E-INPUT", "store"):
        Sealer(Wrapper())
    with raises("E-SEAL-OPEN", "blobs"):
        sealer.rank(np.ones(3), sealer.seal(X, ids=IDS, collection="notes"), ids=IDS, collection="notes")
    with raises("E-INPUT", "query"):
        sealer.rank(np.zeros(16), [], ids=[], collection="notes")
    record = json.loads(path.read_text())
    for name in ("filter_fields", "encoder"):
        changed = {"notes": {**record["collections"]["notes"], name: [1]}}
        path.write_text(json.dumps({**record, "collections": changed}))
        with raises("E-KEY-FILE", "path"):
            sealer.keys.note_filter_fields("notes", ["tenant"])
    path.write_text('{"schema": "vecveil.keys/1", "collections": 3}')
    with raises("E-KEY-FILE"):
        sealer.unseal([b""], ids=["a"], collection="notes")


def test_retiring_spares_a_key_that_another_process_made(path: Path, X: np.ndarray) -> None:
    store, sealer = KeyStore(path), Sealer(path)
    sealer.seal(X, ids=IDS, collection="notes")
    target = store.rotate("notes").current.key_id
    blobs = sealer.seal(X, ids=IDS, collection="notes")
    KeyStore(path).rotate("notes")
    assert store.retire("notes", keep=target) == 1
    assert len(sealer.unseal(blobs, ids=IDS, collection="notes").ids) == 4


def test_canonical_ids_never_collide() -> None:
    ids = [0, -1, 255, 256, "0", b"0", "", b"", "s0", uuid.UUID(int=0), "00000000000000000000000000000001"]
    assert len(set(canonical_ids(ids, len(ids), owner="test"))) == len(ids)
