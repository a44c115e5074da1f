"""Keys, ids and ledgers on the command line: what repeats, what is refused, and what is never said."""

from __future__ import annotations

import base64
import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.command_line import CANARY, Outcome, assert_one_clear_error, leftovers, run

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS, N = 60, 32


def write_table(path: Path, ids: Any = None, *, order: Any = None) -> Path:
    """Write a Parquet table of clean vectors with an id column."""
    vectors = np.random.default_rng(3).normal(size=(ROWS, N)).astype(np.float32)
    ids = [f"{CANARY}-{i}" for i in range(ROWS)] if ids is None else ids
    order = np.arange(ROWS) if order is None else order
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors[order].ravel()), N)
    table = pa.table({"name": pa.array([ids[i] for i in order]), "embedding": flat})
    pq.write_table(table, path)
    return path


def column(path: Path) -> np.ndarray:
    return np.array(pq.read_table(path)["embedding"].to_pylist(), dtype=np.float32)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "clean.parquet")


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    done = run("key", "new", tmp_path / "noise.key", "--id", "first")
    assert done.code == 0, done.err
    return tmp_path / "noise.key"


def protect(source: Path, protector: Path, out: str, *options: object) -> Outcome:
    return run("protect", source, "-p", protector, "-o", source.with_name(out), *options)


def released(source: Path, protector: Path, out: str, *options: object) -> np.ndarray:
    done = protect(source, protector, out, *options)
    assert done.code == 0, done.err
    return column(source.with_name(out))


def secrets_of(keys: Path) -> list[str]:
    """Return the secrets as they may be printed: base64, hexadecimal, and as bytes."""
    found = []
    content = json.loads(keys.read_text())
    for text in [*content["keys"].values(), content["identity"]]:
        raw = base64.b64decode(text)
        found += [text, text.rstrip("="), raw.hex(), str(raw)[2:20]]
    return found


def test_keys_are_made_for_their_owner_alone_and_listed_by_id(tmp_path: Path) -> None:
    path = tmp_path / "noise.key"
    done = run("key", "new", path, "--id", "2026-11", "--json")
    assert done.code == 0
    public = done.json["public"]
    assert public.startswith("veil1")
    assert done.json == {"key_file": str(path), "current": "2026-11", "ids": ["2026-11"], "public": public}
    assert path.stat().st_mode & 0o777 == 0o600
    assert run("key", "new", path).code == 0  # named by the time
    named = json.loads(path.read_text())["current"]
    assert run("key", "list", path, "--json").json == {
        "current": named,
        "ids": sorted(["2026-11", named]),
        "collections": {},
        "public": public,
    }
    lines = run("key", "list", path).out.splitlines()
    assert sorted(lines) == sorted(["2026-11", f"{named}  (current)", f"public string: {public}"])
    before = path.read_bytes()
    again = run("key", "new", path, "--id", "2026-11")
    assert again.code == 1
    assert "`--id` '2026-11'" in again.errors[0]
    assert path.read_bytes() == before
    assert len(set(json.loads(before)["keys"].values())) == 2
    assert leftovers(tmp_path) == []


def test_keyed_releases_repeat_and_others_do_not(
    tmp_path: Path, table: Path, keys: Path, vectors_protector: Path
) -> None:
    keyed = ("--key-file", keys, "--id-column", "name")
    first = released(table, vectors_protector, "one.parquet", *keyed)
    np.testing.assert_array_equal(first, released(table, vectors_protector, "two.parquet", *keyed))
    assert pq.read_table(tmp_path / "one.parquet").equals(pq.read_table(tmp_path / "two.parquet"))
    about = json.loads(pq.read_schema(tmp_path / "one.parquet").metadata[b"vecveil"])
    assert about["key_id"] == "first"
    order = np.random.default_rng(0).permutation(ROWS)  # by id, not by place
    shuffled = write_table(tmp_path / "shuffled.parquet", order=order)
    np.testing.assert_array_equal(released(shuffled, vectors_protector, "s.parquet", *keyed), first[order])
    renamed = write_table(tmp_path / "renamed.parquet", [f"x{i}" for i in range(ROWS)])
    for source, options in ((table, ()), (table, ()), (renamed, keyed)):
        other = released(source, vectors_protector, "other.parquet", *options, "--force")
        assert (other != first).any(axis=1).all()
    other = tmp_path / "other.key"
    assert run("key", "new", other, "--id", "first").code == 0  # another key of the same name
    again = released(table, vectors_protector, "three.parquet", "--key-file", other, "--id-column", "name")
    assert (again != first).any(axis=1).all()


def test_keys_come_from_the_environment_too(
    table: Path, keys: Path, vectors_protector: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = released(table, vectors_protector, "f.parquet", "--key-file", keys, "--id-column", "name")
    monkeypatch.setenv("NOISE_KEYS", keys.read_text())
    options = ("--key-env", "NOISE_KEYS", "--id-column", "name")
    np.testing.assert_array_equal(released(table, vectors_protector, "e.parquet", *options), expected)
    monkeypatch.setenv("NOISE_KEYS", keys.read_text()[:-40])
    for variable in ("NOISE_KEYS", "NOT_SET"):
        done = protect(table, vectors_protector, "no.parquet", *options[2:], "--key-env", variable)
        assert done.code == 1
        assert "`--key-env`" in done.errors[0]
        assert not any(secret in done.err for secret in secrets_of(keys))


def test_a_cap_refuses_the_second_release_and_writes_nothing(
    tmp_path: Path, table: Path, vectors_protector: Path
) -> None:
    ledger = tmp_path / "releases.ledger"
    counted = ("--ledger", ledger, "--cap", 1, "--id-column", "name")
    assert protect(table, vectors_protector, "one.parquet", *counted).code == 0
    before = set(tmp_path.rglob("*"))
    done = protect(table, vectors_protector, "out.parquet", *counted)
    says = assert_one_clear_error(done, tmp_path, before)
    assert "more than 1 releases, the cap" in says
    assert not (tmp_path / "out.parquet").exists()
    shown = run("ledger", "show", ledger, "--json").json
    assert (shown["items"], shown["releases"], shown["cap"]) == (ROWS, ROWS, 1)
    done = run("ledger", "export", ledger, "-o", tmp_path / "rows.csv")
    assert done.code == 0, done.err
    text = (tmp_path / "rows.csv").read_text()
    assert len(list(csv.DictReader(text.splitlines()))) == ROWS
    for part in (text, ledger.read_bytes().decode("latin-1"), done.err):
        assert CANARY not in part


def test_rows_of_an_array_are_named_by_their_number(tmp_path: Path, keys: Path, vectors_protector: Path) -> None:
    X = np.random.default_rng(4).normal(size=(ROWS, N)).astype(np.float32)
    for name, array in (("x.npy", X), ("more.npy", np.r_[X, X]), ("moved.npy", X[1:])):
        np.save(tmp_path / name, array)
    found = {}
    for name in ("x.npy", "more.npy", "moved.npy"):
        done = protect(tmp_path / name, vectors_protector, f"y-{name}", "--key-file", keys)
        assert done.code == 0, done.err
        found[name] = np.load(tmp_path / f"y-{name}")
    np.testing.assert_array_equal(found["more.npy"][:ROWS], found["x.npy"])
    assert (found["more.npy"][ROWS:] != found["x.npy"]).any(axis=1).all()  # equal rows, other numbers
    assert (found["moved.npy"] != found["x.npy"][1:]).any(axis=1).all()
    done = protect(tmp_path / "x.npy", vectors_protector, "no.npy", "--key-file", keys, "--id-column", "name")
    assert done.code == 1
    assert "`--id-column`" in done.errors[0]


def test_columns_that_name_nothing_are_refused(
    tmp_path: Path, table: Path, keys: Path, vectors_protector: Path
) -> None:
    ids: list[Any] = [f"{CANARY}{i}" for i in range(ROWS)]
    hole = write_table(tmp_path / "hole.parquet", [*ids[:7], None, *ids[8:]])
    numbers = write_table(tmp_path / "numbers.parquet", [i + 0.5 for i in range(ROWS)])
    flags = write_table(tmp_path / "flags.parquet", [i % 2 == 0 for i in range(ROWS)])
    for source, name in ((table, "nam"), (hole, "name"), (numbers, "name"), (flags, "name")):
        for options in (("--key-file", keys), ("--ledger", tmp_path / "l.ledger")):
            before = set(tmp_path.rglob("*")) | {tmp_path / "l.ledger"}
            done = protect(source, vectors_protector, "out.parquet", "--id-column", name, *options)
            assert "`--id-column`" in assert_one_clear_error(done, tmp_path, before)
    whole = write_table(tmp_path / "whole.parquet", list(range(ROWS)))
    assert protect(whole, vectors_protector, "w.parquet", "--id-column", "name", "--key-file", keys).code == 0


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_key_file_that_others_read_is_refused(table: Path, keys: Path, vectors_protector: Path, mode: int) -> None:
    keys.chmod(mode)
    for done in (
        protect(table, vectors_protector, "out.parquet", "--key-file", keys, "--id-column", "name"),
        run("key", "list", keys),
        run("key", "new", keys, "--id", "second"),
    ):
        assert done.code == 1
        assert "chmod 600 noise.key" in done.errors[0]
        assert not any(secret in done.err + done.out for secret in secrets_of(keys))
    assert not table.with_name("out.parquet").exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--key-file", "k", "--key-env", "E"),
        ("--key-id", "a"),
        ("--cap", "1"),
        ("--id-column", "name"),
        ("--key-file", "k"),
        ("--ledger", "l"),  # the rows of a table have names, not numbers
        ("--no-noise", "--key-file", "k"),
        ("--no-noise", "--key-env", "E"),
        ("--no-noise", "--ledger", "l"),
        ("--cap", "0", "--ledger", "l"),
        ("--cap", "x", "--ledger", "l"),
    ],
)
def test_options_that_do_not_go_together_are_misuse(
    table: Path, vectors_protector: Path, options: tuple[str, ...]
) -> None:
    before = set(table.parent.rglob("*"))
    done = protect(table, vectors_protector, "out.parquet", *options)
    assert done.code == 2
    assert done.out == ""
    assert set(table.parent.rglob("*")) == before
