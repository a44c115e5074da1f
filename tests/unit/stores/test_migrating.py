"""A store is copied to a protected one: every row once whatever happens, and the check finds what is wrong."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import harness.migrating_process as migrating_process
import vecveil
from harness.command_line import CANARY, SECRET, environment
from harness.errors import raises
from harness.folder_store import FolderStore, filled
from vecveil.errors import StoreError
from vecveil.index.blob import SEALED_FIELD
from vecveil.privacy.accounting import Ledger
from vecveil.privacy.protector.policy import ReleasePolicy
from vecveil.stores import Batch
from vecveil.stores.migrating import (
    Migration,
    MigrationOptions,
    MigrationState,
    SourceCheck,
    add_rows,
    as_hex,
    locked,
    migrate,
    read_state,
    texts_and_metadata,
    verify,
    verify_migration,
)

N, ROWS, BATCH = 16, 50, 7
NAMES = ("source", "dest")


@pytest.fixture(scope="module")
def clean() -> np.ndarray:
    """Unit vectors, as encoders give them."""
    X = np.random.default_rng(3).standard_normal((ROWS, N))
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def protector() -> vecveil.Protector:
    rng = np.random.default_rng(5)
    negative = rng.standard_normal((200, N))
    positive = negative + rng.standard_normal((200, 1)) * np.eye(1, N)
    return vecveil.fit_pairs(positive, negative, method="subspace", epsilon=20.0, output="reduced")


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "noise.key"
    vecveil.KeyFile.create(path, "one")
    return path


@pytest.fixture(scope="module")
def keys(key_file: Path) -> vecveil.KeyFile:
    return vecveil.KeyFile.from_file(key_file)


@pytest.fixture
def source(tmp_path: Path, clean: np.ndarray) -> FolderStore:
    fields = [
        {"text": f"{CANARY} is what {SECRET} took on day {i}", "page": i, "tag": "ab"[i % 2], "more": {"n": i}}
        for i in range(ROWS)
    ]
    return filled(tmp_path / "source", clean, fields)


def copy(source: FolderStore, dest: FolderStore, policy: ReleasePolicy, state: Path, **given: Any) -> Migration:
    given = {"names": NAMES, "batch": BATCH, "show_progress": False} | given
    return migrate(source, dest, policy, state, **given)


def contents(store: FolderStore) -> dict[str, tuple[dict[str, Any], bytes]]:
    return {one: (store._load(path)[1], store._load(path)[2].tobytes()) for one, path in store.rows().items()}


def stopping(at: int, error: BaseException) -> Callable[[int], None]:
    def before(rows: int) -> None:
        if rows == at:
            raise error

    return before


def test_a_copy_has_every_row_once_protected_and_without_texts(
    source: FolderStore, protector: vecveil.Protector, tmp_path: Path, clean: np.ndarray
) -> None:
    dest, seen = FolderStore(tmp_path / "dest"), list[SourceCheck]()
    done = copy(source, dest, ReleasePolicy(protector), tmp_path / "s.json", on_checked=seen.append)
    assert done.verification.ok
    assert done.verification.clean == 0
    assert (done.state.rows, done.resumed, done.state.copied) == (ROWS, 0, True)
    about = dest.info()
    assert (about.count, about.dimension, about.metric) == (ROWS, protector.released_dimension, "cosine")
    assert protector.released_dimension < N
    rows = contents(dest)
    assert list(rows) == list(contents(source))
    mark = {"vecveil_protector": protector.fingerprint[:16]}
    assert rows["r0003"][0] == {"page": 3, "tag": "b", "more": {"n": 3}, **mark}
    assert seen[0].withheld == {"text": "text"}
    assert set(seen[0].carried) == {"page", "tag", "more.n"}
    released = np.stack([np.frombuffer(row[1], np.float32) for row in rows.values()])
    assert np.corrcoef(released.ravel(), protector.protect(clean, noise=False).ravel())[0, 1] > 0.5  # rows in place


def test_a_lost_or_changed_row_is_found(source: FolderStore, protector: vecveil.Protector, tmp_path: Path) -> None:
    """Control of every copy above: what the check is for, done to a good copy, one at a time."""
    dest, state = FolderStore(tmp_path / "dest"), tmp_path / "s.json"
    policy = ReleasePolicy(protector)
    assert copy(source, dest, policy, state).verification.ok
    path = dest.file_of("r0010")
    good = path.read_bytes()

    def found() -> tuple[str, ...]:
        return verify_migration(dest, source, state, names=NAMES, batch=9, show_progress=False).verification.failures

    assert found() == ()
    assert read_state(state).verified  # type: ignore[union-attr]
    path.unlink()
    assert [line.split()[0] for line in found()] == ["The", "Ids"]
    assert read_state(state).verified is None  # type: ignore[union-attr]
    flipped = bytearray(good)
    flipped[-3] ^= 1
    path.write_bytes(flipped)
    assert found() == ("Ids or vectors in the destination are not those that were written.",)
    path.unlink()
    renamed = dest.file_of("x0010")
    renamed.write_bytes(good.replace(b"r0010", b"x0010"))
    assert len(found()) == 1
    renamed.unlink()
    path.write_bytes(good)
    other = dest.file_of("r0011").read_bytes()
    swapped = [good.partition(b"\n"), other.partition(b"\n")]
    path.write_bytes(swapped[0][0] + b"\n" + swapped[1][2])
    dest.file_of("r0011").write_bytes(swapped[1][0] + b"\n" + swapped[0][2])
    assert len(found()) == 1  # two vectors under each other's ids
    dest.file_of("r0011").write_bytes(other)
    path.write_bytes(good.partition(b"\n")[0] + b"\n" + np.full(dest.info().dimension, np.nan, np.float32).tobytes())
    assert any("finite" in line for line in found())
    path.write_bytes(good)
    assert found() == ()
    assert copy(source, dest, policy, state).verification.ok  # a finished one is verified again
    dest.write(Batch(("stranger",), np.ones((1, dest.info().dimension), np.float32), ({},)))
    assert any("51 rows; 50 were" in line for line in copy(source, dest, policy, state).verification.failures)


def exchanged(dest: FolderStore, state: Path) -> None:
    """Exchange the vectors of all rows, and write the state file that says so."""
    batch = Batch.joined(list(dest.batches(ROWS)))
    dest.write(Batch(batch.ids, np.roll(batch.vectors, 1, axis=0), batch.fields))
    moved = Batch.joined(list(dest.batches(ROWS)))
    checksum = as_hex(add_rows(0, moved.ids, moved.vectors))
    state.write_text(json.dumps({**json.loads(state.read_text()), "checksum": checksum}))


@pytest.mark.parametrize("kind", ["fresh", "keyed", "sealed"])
def test_a_forged_state_file_confirms_no_exchanged_vectors(
    source: FolderStore, protector: vecveil.Protector, tmp_path: Path, keys: vecveil.KeyFile, kind: str
) -> None:
    dest, state = FolderStore(tmp_path / "dest"), tmp_path / "s.json"
    policy = ReleasePolicy(protector, key=keys if kind == "keyed" else None)
    vecveil.KeyFile.create(tmp_path / "search.keys", "one")
    sealing: dict[str, Any] = {
        "sealer": vecveil.Sealer(tmp_path / "search.keys"),
        "options": MigrationOptions(seal=True),
    }
    given = sealing if kind == "sealed" else {}
    done = copy(source, dest, policy, state, **given).verification
    assert (done.ok, done.recorded, done.altered) == (True, 0, 0 if kind == "sealed" else None)
    again = copy(source, dest, policy, state, **given).verification  # what was written by another process
    assert (again.ok, again.recorded) == (True, 0 if kind == "keyed" else ROWS)
    exchanged(dest, state)
    forged = copy(source, dest, policy, state, **given).verification
    if kind == "keyed":
        assert (forged.ok, forged.altered) == (False, ROWS)
        assert "not those of the source" in forged.failures[0]
    else:
        assert forged.recorded == ROWS  # fresh noise cannot be repeated: only the state file confirms these rows
    if kind == "sealed":
        row = source.read(["r0003"])
        source.write(Batch(row.ids, -row.vectors, row.fields))
        assert copy(source, dest, policy, state, **given).verification.altered == 1


@pytest.mark.parametrize("counts", [{"skipped": 1, "rows": ROWS - 1}, {"rows": ROWS - 1}, {"rows": ROWS + 1}])
def test_a_state_file_whose_counts_contradict_each_other_is_refused(
    source: FolderStore, protector: vecveil.Protector, tmp_path: Path, counts: dict[str, int]
) -> None:
    dest, state, policy = FolderStore(tmp_path / "dest"), tmp_path / "s.json", ReleasePolicy(protector)
    copy(source, dest, policy, state)
    state.write_text(json.dumps({**json.loads(state.read_text()), **counts}))
    with raises("E-DATA-FILE", "state"):
        copy(source, dest, policy, state)


def test_a_clean_vector_in_the_destination_is_found(tmp_path: Path, clean: np.ndarray) -> None:
    """With a checksum that fits: somebody wrote clean vectors and counted them."""
    from msgspec.structs import replace

    source = filled(tmp_path / "source", clean)
    ids = tuple(source.rows())
    names = dict(zip(("source", "dest"), NAMES, strict=True))
    no_key: dict[str, Any] = {"key_id": None, "key_check": None, "sealed": None}
    about: dict[str, Any] = {"total": ROWS, "dimension": N, "rows": ROWS, "copied": True}
    state = MigrationState(**names, protector="p", options={}, carried=(), withheld={}, **no_key, **about)
    for scale, wrong in ((1.0, 2), (3.0, 2), (None, 0)):
        written = np.random.default_rng(1).standard_normal((ROWS, N)).astype(np.float32)
        if scale is not None:
            written[[4, 40]] = scale * clean[[4, 40]]
        dest = filled(tmp_path / f"dest{scale}", written)
        state = replace(state, checksum=as_hex(add_rows(0, ids, written)))
        result = verify(dest, state, source, recorded=0, batch=8, show_progress=False)
        assert (result.checksum, result.clean, result.ok) == (True, wrong, wrong == 0)
    source.file_of("r0000").unlink()
    assert (
        verify(dest, state, source, recorded=0, show_progress=False).clean is None
    )  # a changed source: not compared, and said


@pytest.mark.slow
@pytest.mark.parametrize("kill_at", [0, 1, 20, 21, 24, ROWS - 1])
def test_killed_in_the_middle_and_gone_on_with(
    kill_at: int, source: FolderStore, protector: vecveil.Protector, key_file: Path, tmp_path: Path
) -> None:
    """The process is gone before row `kill_at` is written, half a batch or a whole one uncounted; keyed noise."""
    protector.save(tmp_path / "p.vecveil")
    given = {
        "source": str(source.folder),
        "dest": str(tmp_path / "dest"),
        "protector": str(tmp_path / "p.vecveil"),
        "key": str(key_file),
        "state": str(tmp_path / "s.json"),
        "batch": BATCH,
    }
    env = environment()
    env["PYTHONPATH"] += f":{Path(__file__).parents[2]}"
    program = [sys.executable, migrating_process.__file__]
    died = subprocess.run([*program, json.dumps(given | {"kill_at": kill_at})], env=env, check=False)
    assert died.returncode == -9
    state = read_state(tmp_path / "s.json")
    assert state is not None
    assert (state.rows, state.copied) == (kill_at - kill_at % BATCH, False)
    dest = FolderStore(tmp_path / "dest")
    assert len(dest.rows()) == kill_at
    policy = ReleasePolicy(protector, key=vecveil.KeyFile.from_file(key_file))
    done = copy(source, dest, policy, tmp_path / "s.json", batch=5)
    assert done.verification.ok
    assert done.resumed == state.rows
    assert dest.written == ROWS - state.rows  # nothing that was counted is written again
    whole = FolderStore(tmp_path / "whole")
    straight = copy(source, whole, policy, tmp_path / "w.json", names=("source", "whole"))
    assert straight.state.checksum == done.state.checksum
    assert contents(whole) == contents(dest)


@pytest.mark.parametrize("error", [StoreError("It went away."), KeyboardInterrupt()], ids=["away", "Ctrl-C"])
@pytest.mark.parametrize("keyed", [True, False])
def test_a_destination_that_fails_and_works_again(
    error: BaseException,
    keyed: bool,
    source: FolderStore,
    protector: vecveil.Protector,
    keys: vecveil.KeyFile,
    tmp_path: Path,
) -> None:
    dest, state = FolderStore(tmp_path / "dest"), tmp_path / "s.json"
    policy = ReleasePolicy(protector, key=keys if keyed else None)
    for at in (17, 3):
        dest.written, dest.before_row = 0, stopping(at, error)
        with pytest.raises(type(error)) as caught:
            copy(source, dest, policy, state)
        if isinstance(error, StoreError):
            assert "14 of 50 rows are copied. The same command continues from there." in str(caught.value)
    dest.before_row = lambda rows: None
    done = copy(source, dest, policy, state)
    assert (done.resumed, done.verification.ok) == (14, True)
    assert len(dest.rows()) == ROWS


def test_going_on_is_refused_with_anything_else(
    source: FolderStore, protector: vecveil.Protector, keys: vecveil.KeyFile, tmp_path: Path, clean: np.ndarray
) -> None:
    dest, state = FolderStore(tmp_path / "dest"), tmp_path / "s.json"
    policy = ReleasePolicy(protector, key=keys)
    dest.before_row = stopping(10, StoreError("It went away."))
    with pytest.raises(StoreError):
        copy(source, dest, policy, state)
    dest.before_row = lambda rows: None
    before = contents(dest)
    namesake = vecveil.KeyFile.create(tmp_path / "other.keys", keys.current)
    others: list[tuple[str, dict[str, Any]]] = [
        ("protector", {"policy": ReleasePolicy(protector.rescaled(2.0), key=keys)}),
        ("key", {"policy": ReleasePolicy(protector)}),
        ("key", {"policy": ReleasePolicy(protector, key=namesake)}),
        ("source", {"names": ("other", "dest")}),
        ("dest", {"names": ("source", "other")}),
        ("keep_text", {"options": MigrationOptions(keep_text=True)}),
    ]
    for param, change in others:
        with raises("E-STORE-STATE", param):
            copy(source, dest, **({"policy": policy, "state": state} | change))
    with raises("E-STORE", "dest"):
        copy(source, dest, policy, tmp_path / "another.json")
    lost = dest.file_of("r0001").read_bytes()
    dest.file_of("r0001").unlink()
    for one in ("r0007", "r0008", "r0009"):
        dest.file_of(one).unlink()
    with raises("E-STORE", "dest"):
        copy(source, dest, policy, state)
    dest.file_of("r0001").write_bytes(lost)
    strangers = tuple(f"s{i}" for i in range(20))
    dest.write(Batch(strangers, np.ones((20, dest.info().dimension), np.float32), tuple({} for _ in strangers)))
    with raises("E-STORE", "dest"):
        copy(source, dest, policy, state)
    for one in strangers:
        dest.file_of(one).unlink()
    source.write(Batch(("zz",), clean[:1], ({},)))
    with raises("E-STORE", "source"):
        copy(source, dest, policy, state)
    source.file_of("zz").unlink()
    assert copy(source, dest, policy, state).verification.ok
    assert {one: before[one] for one in list(before)[:7]}.items() <= contents(dest).items()


def test_a_source_that_changes_meanwhile_is_noticed(
    source: FolderStore, protector: vecveil.Protector, tmp_path: Path, clean: np.ndarray
) -> None:
    dest, policy = FolderStore(tmp_path / "dest"), ReleasePolicy(protector)

    def grow(rows: int) -> None:
        if rows == 20:
            source.write(Batch(("zz",), clean[:1], ({},)))

    dest.before_row = grow
    with raises("E-STORE", "source"):
        copy(source, dest, policy, tmp_path / "s.json")

    def exchange(rows: int) -> None:  # the count stays, and the cursor has passed the new row
        if rows == 20:
            source.delete(["r0000"])
            source.write(Batch(("a",), clean[:1], ({},)))

    source.delete(["zz"])
    dest = FolderStore(tmp_path / "other")
    dest.before_row = exchange
    failures = copy(source, dest, policy, tmp_path / "other.json").verification.failures
    assert [line.split()[0] for line in failures] == ["1"]


@pytest.mark.parametrize("change", ["source", "state"])
def test_a_field_that_the_check_left_out_is_not_copied(
    change: str, source: FolderStore, protector: vecveil.Protector, tmp_path: Path, clean: np.ndarray
) -> None:
    """A text comes into a copied field after the check, or the state file is made to name the field of texts."""
    dest, state, policy = FolderStore(tmp_path / "dest"), tmp_path / "s.json", ReleasePolicy(protector)

    def renamed(rows: int) -> None:
        if rows == 10:
            if change == "source":
                source.write(Batch(("r0040",), clean[40:41], ({"tag": f"{CANARY} is what {SECRET} took"},)))
            raise StoreError("It went away.")

    dest.before_row = renamed
    with raises("E-STORE"):
        copy(source, dest, policy, state)
    if change == "state":
        forged = json.loads(state.read_text())
        state.write_text(json.dumps(forged | {"carried": ["text"]}))
    dest.before_row = lambda rows: None
    with raises("E-STORE", "source"):
        copy(source, dest, policy, state)
    assert CANARY not in json.dumps([fields for fields, _ in contents(dest).values()])


def test_bad_rows_are_counted_and_refused_or_left_out(
    protector: vecveil.Protector, tmp_path: Path, clean: np.ndarray
) -> None:
    X = clean.copy()
    X[3] = np.nan
    X[5, 2] = np.nan
    X[9, 0] = np.inf
    source = filled(tmp_path / "source", X)
    dest, policy = FolderStore(tmp_path / "dest"), ReleasePolicy(protector)
    with raises("E-STORE", "source") as caught:
        copy(source, dest, policy, tmp_path / "s.json")
    assert "3 of 50 rows" in str(caught.value)
    assert all(name in str(caught.value) for name in ("r0003", "r0005", "r0009"))
    assert not dest.exists()
    assert not (tmp_path / "s.json").exists()
    done = copy(source, dest, policy, tmp_path / "s.json", options=MigrationOptions(skip_bad=True))
    assert (done.state.rows, done.state.skipped, done.verification.ok) == (47, 3, True)
    assert not {"r0003", "r0005", "r0009"} & set(dest.rows())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "row"),
    [
        ({"method": "shuffle"}, np.zeros(N)),
        ({"method": "shuffle"}, np.full(N, 0.25)),
        ({"method": "shuffle"}, np.full(N, 0.25) + 2.0**-26 * np.eye(N)[0]),
        ({"method": "purkayastha", "epsilon": 20.0}, np.zeros(N)),
        ({"method": "subspace", "epsilon": 20.0, "before": "normalise"}, np.zeros(N)),
        ({"method": "subspace", "epsilon": 20.0}, np.full(N, 50.0)),
        ({"method": "ldp-gaussian", "epsilon": 20.0, "delta": 1e-5}, np.zeros(N)),
    ],
    ids=["shuffle-zeros", "shuffle-equal", "shuffle-nearly-equal", "purkayastha", "normalised", "longer", "ldp"],
)
def test_rows_that_the_protector_does_not_take_are_found_before_anything_is_written(
    tmp_path: Path, clean: np.ndarray, given: dict[str, Any], row: np.ndarray
) -> None:
    rng = np.random.default_rng(5)
    negative = rng.standard_normal((200, N))
    negative /= np.linalg.norm(negative, axis=1, keepdims=True)
    positive = negative + 0.01 * rng.standard_normal((200, 1)) * np.eye(1, N)
    protector = vecveil.fit_pairs(positive, negative, seed=0, **given)
    X = clean.copy()
    X[-1] = row  # in the last batch
    source, dest = filled(tmp_path / "source", X), FolderStore(tmp_path / "dest")
    policy = ReleasePolicy(protector)
    with raises("E-STORE", "source") as caught:
        copy(source, dest, policy, tmp_path / "s.json")
    assert "protected already" in str(caught.value)
    assert not dest.exists()
    done = copy(source, dest, policy, tmp_path / "s.json", options=MigrationOptions(skip_bad=True))
    assert (done.state.rows, done.state.skipped, done.verification.ok) == (49, 1, True)
    assert f"r{ROWS - 1:04}" not in dest.rows()


def test_a_source_that_cannot_be_copied_is_refused(
    protector: vecveil.Protector, tmp_path: Path, clean: np.ndarray, keys: vecveil.KeyFile
) -> None:
    policy, dest = ReleasePolicy(protector), FolderStore(tmp_path / "dest")
    short = filled(tmp_path / "short", clean[:, :5])
    with raises("E-INCOMPATIBLE", "protector"):
        copy(short, dest, policy, tmp_path / "s.json")
    empty = FolderStore(tmp_path / "empty")
    with pytest.raises(StoreError, match="not there"):
        copy(empty, dest, policy, tmp_path / "s.json")
    empty.create(N)
    with raises("E-STORE", "source"):
        copy(empty, dest, policy, tmp_path / "s.json")
    good = filled(tmp_path / "good", clean)
    with raises("E-STORE", "dest"):
        copy(good, dest, policy, tmp_path / "s.json", names=("good", "good"))
    with raises("E-INPUT", "drop"):
        copy(good, dest, policy, tmp_path / "s.json", options=MigrationOptions(drop=("texd",)))

    class Twice(FolderStore):
        """Has one id twice, as an index of FAISS may."""

        def batches(self, size: int = 1000, *, after: str = "") -> Any:
            for batch in super().batches(size, after=after):
                yield Batch((*batch.ids[:-1], "twice"), batch.vectors, batch.fields, batch.cursor)

    name = "6e2a5a96-73ab-4b9c-8d0c-2b4f6f1d7c11"
    good.write(Batch((name, name.upper()), clean[:2], ({},) * 2))
    for one in (Twice(good.folder), good):  # a UUID in two spellings is one id
        with raises("E-STORE", "source"):
            copy(one, dest, policy, tmp_path / "s.json")
    assert not dest.exists()


def test_which_fields_are_carried(protector: vecveil.Protector, tmp_path: Path, clean: np.ndarray) -> None:
    long = "one two three four five"
    fields = [
        {
            "body": "brief",
            "note": long if i == 17 else "",
            "page": i,
            "vector": [0.5] * N,
            "raw": [0.1] * 3,
            "meta": {"title": long, "year": 2000 + i, "tags": ["x", long]},
            "email": f"a{i}@example.org",
        }
        for i in range(ROWS)
    ]
    source, policy = filled(tmp_path / "source", clean, fields), ReleasePolicy(protector)
    wanted: list[tuple[MigrationOptions, dict[str, Any]]] = [
        (MigrationOptions(), {"note", "meta.title", "meta.tags[]", "vector", "body"}),
        (MigrationOptions(keep_text=True), {"vector"}),
        (MigrationOptions(keep=("meta",)), {"note", "vector", "body"}),
        (
            MigrationOptions(drop=("meta", "email")),
            {"note", "meta.title", "meta.year", "meta.tags[]", "vector", "body", "email"},
        ),
    ]
    for i, (options, withheld) in enumerate(wanted):
        dest = FolderStore(tmp_path / f"dest{i}")
        done = copy(source, dest, policy, tmp_path / f"{i}.json", names=("a", str(i)), options=options)
        assert set(done.state.withheld) == withheld
        row = contents(dest)["r0017"][0]
        assert ("vector" in row, "page" in row, row["raw"]) == (False, True, [0.1] * 3)
        assert (long in json.dumps(row)) == (i in (1, 2))
        assert ("email" in row) == (i != 3)


def test_a_ledger_counts_each_row(
    source: FolderStore, protector: vecveil.Protector, keys: vecveil.KeyFile, tmp_path: Path
) -> None:
    """With a key a batch that is written again counts once; without one it is a further release, and the cap holds."""
    for name, key in (("keyed", keys), ("fresh", None)):
        ledger = Ledger(tmp_path / f"{name}.ledger", cap=1)
        dest, state = FolderStore(tmp_path / name), tmp_path / f"{name}.json"
        policy = ReleasePolicy(protector, key=key, ledger=ledger)
        dest.before_row = stopping(17, StoreError("It went away."))
        with pytest.raises(StoreError):
            copy(source, dest, policy, state)
        dest.before_row = lambda rows: None
        if key is None:
            with raises("E-LEDGER-CAP"):
                copy(source, dest, policy, state)
        else:
            assert copy(source, dest, policy, state).verification.ok
            assert (ledger.total, ledger.count("r0015")) == (ROWS, 1)


@pytest.mark.slow
def test_two_at_once_are_refused(source: FolderStore, protector: vecveil.Protector, tmp_path: Path) -> None:
    state = tmp_path / "s.json"
    with locked(state), raises("E-STORE", "dest"):
        copy(source, FolderStore(tmp_path / "dest"), ReleasePolicy(protector), state)
    assert copy(source, FolderStore(tmp_path / "dest"), ReleasePolicy(protector), state).verification.ok
    assert not list(tmp_path.glob("*.lock"))


def test_a_store_that_keeps_directions_is_compared_by_direction(
    source: FolderStore, protector: vecveil.Protector, tmp_path: Path
) -> None:
    policy = ReleasePolicy(protector)
    dest = FolderStore(tmp_path / "dest", normalises=True)
    done = copy(source, dest, policy, tmp_path / "s.json")
    assert (done.verification.ok, done.verification.directions) == (True, True)
    broken = FolderStore(tmp_path / "broken", normalises=True)
    write = broken.write
    broken.write = lambda batch: write(  # type: ignore[method-assign]
        Batch(batch.ids, np.round(batch.vectors, 2), batch.fields)
    )
    with raises("E-STORE", "dest"):
        copy(source, broken, policy, tmp_path / "b.json", names=("source", "broken"))


class Counting:
    """An encoder without a model: digit frequencies, so that a deleted name changes the vector by its length alone."""

    def encode(self, texts: list[str]) -> np.ndarray:
        rows = [[1 + text.count(char) for char in "0123456789abcdefghijklmn"[:N]] for text in texts]
        return np.array([row / np.linalg.norm(row) for row in rows], np.float32)


def test_a_text_stage_needs_the_texts(source: FolderStore, key_file: Path, clean: np.ndarray, tmp_path: Path) -> None:
    texts = [f"{SECRET if i % 2 else 'nobody'} has note {i}" for i in range(100)]
    concept = vecveil.Concept.from_terms("name", [SECRET])
    options: dict[str, Any] = {"show_progress": False}
    redact = vecveil.fit(texts, concept, Counting(), method="redact", **options)
    stage = vecveil.fit(texts, concept, Counting(), method="laplace", noise_to_signal=1e-4, rewrite="delete", **options)
    sealer, dest = vecveil.Sealer(key_file), FolderStore(tmp_path / "dest")
    given: dict[str, Any] = {"options": MigrationOptions(seal=True), "sealer": sealer}
    with raises("E-INPUT", "protector"):
        copy(source, dest, ReleasePolicy(redact), tmp_path / "s.json", **given)
    without = filled(tmp_path / "without", clean, [{"page": i} for i in range(ROWS)])
    with raises("E-INPUT-REWRITTEN", "source"):
        copy(without, dest, ReleasePolicy(stage), tmp_path / "s.json", **given)
    assert copy(source, dest, ReleasePolicy(stage), tmp_path / "s.json", **given).verification.ok
    (part,) = dest.batches(ROWS)
    written = [f"{CANARY} is what took on day {i}" for i in range(ROWS)]
    np.testing.assert_allclose(part.vectors, Counting().encode(written), atol=1e-3)
    blobs = [base64.b64decode(row[SEALED_FIELD]) for row in part.fields]
    opened = sealer.unseal(blobs, ids=list(part.ids), collection=NAMES[1])
    assert opened.texts[3] == f"{CANARY} is what {SECRET} took on day 3"
    np.testing.assert_allclose(opened.vectors, clean, atol=np.abs(clean).max() / 64)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"schema": "vecveil.migration/1"}', b"\xff", b"{" * 9000])
def test_a_damaged_state_is_refused(
    content: bytes, source: FolderStore, protector: vecveil.Protector, tmp_path: Path
) -> None:
    state = tmp_path / "s.json"
    state.write_bytes(content)
    with raises("E-DATA-FILE", "state"):
        copy(source, FolderStore(tmp_path / "dest"), ReleasePolicy(protector), state)


def test_the_state_holds_no_text_vector_or_key(
    source: FolderStore, protector: vecveil.Protector, keys: vecveil.KeyFile, tmp_path: Path
) -> None:
    state, dest = tmp_path / "s.json", FolderStore(tmp_path / "dest")
    copy(source, dest, ReleasePolicy(protector, key=keys), state)
    content = state.read_text()
    assert set(json.loads(content)) == {
        "schema",
        "source",
        "dest",
        "protector",
        "key_id",
        "options",
        "total",
        "dimension",
        "carried",
        "withheld",
        "rows",
        "skipped",
        "ahead",
        "cursor",
        "checksum",
        "copied",
        "verified",
        "key_check",
        "sealed",
    }
    assert CANARY not in content
    assert keys.key().secret_for_noise().hex() not in content
    assert state.stat().st_mode & 0o777 == 0o600
    for path in dest.folder.iterdir():
        assert CANARY.encode() not in path.read_bytes()


def test_a_state_that_could_not_be_read_again_is_not_written(
    source: FolderStore, protector: vecveil.Protector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vecveil.stores.migrating._LARGEST", 100)
    with raises("E-STORE-STATE", "state"):
        copy(source, dest := FolderStore(tmp_path / "dest"), ReleasePolicy(protector), tmp_path / "s.json")
    assert dest.info().count == 0


def test_values_of_a_source_become_json_or_are_named() -> None:
    noon = datetime.datetime(2025, 3, 30, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    row = {
        "at": noon,
        "took": datetime.timedelta(seconds=1.5),
        "files": [b"a", {"of": b"b"}],
        "photo": b"c",
        "price": decimal.Decimal("3.10"),
        "pairs": [("a", noon.date())],
    }
    names = [*row, "files[]", "files[].of", "pairs[]", "pairs[][]"]
    assert texts_and_metadata([row], names, {})[1] == [
        {
            "at": "2025-03-30T10:00:00+00:00",
            "took": 1_500_000,
            "files": ["YQ==", {"of": "Yg=="}],
            "photo": "Yw==",
            "price": "3.10",
            "pairs": [["a", "2025-03-30"]],
        }
    ]
    with raises("E-STORE", "fields") as caught:
        texts_and_metadata([{"ok": 1, "odd": [object()]}], ["ok", "odd[]"], {})
    assert "'odd'" in str(caught.value)
