"""``vecveil migrate --seal-key`` and ``vecveil search``: the copy is searched exactly and holds nothing readable."""

from __future__ import annotations

import base64
import itertools
from pathlib import Path

import numpy as np
import pytest

from harness.command_line import TOKEN_INFERENCE_ALONE, run, write_csv
from vecveil import ProtectedCollection
from vecveil.stores import Batch, VectorStore
from vecveil.stores.locations import in_this_process
from vecveil.texts.encoders import load_encoder
from vecveil.texts.encoders.lsa import LsaEncoder
from vecveil.texts.tables import read_texts

pytest.importorskip("sqlite_vec")

QUERY = "trouble sleeping since the operation"


@pytest.fixture(scope="module")
def texts(notes: Path) -> list[str]:
    return read_texts(notes, text_column="text").texts[:150]


@pytest.fixture(scope="module")
def sealed(notes: Path, lsa: Path, texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a clean store, a protector, a key file and the sealed copy."""
    folder = tmp_path_factory.mktemp("sealed")
    vectors = np.asarray(load_encoder(lsa).encode(texts), np.float32)
    with in_this_process(f"sqlite-vec:{folder}/clean.db#notes") as store:
        store.create(vectors.shape[1], metric="cosine")
        fields = tuple({"note": text, "page": i} for i, text in enumerate(texts))
        store.write(Batch(tuple(f"n{i}" for i in range(len(texts))), vectors, fields))
    for command in (
        ("key", "new", folder / "search.keys"),
        (
            "fit",
            notes,
            "--text-column",
            "text",
            "--concept",
            notes.with_name("concept.yaml"),
            "--encoder",
            lsa,
            "--method",
            "laplace",
            "--noise-to-signal",
            0.5,
            "-o",
            folder / "p.vecveil",
        ),
        (
            "migrate",
            f"sqlite-vec:{folder}/clean.db#notes",
            f"sqlite-vec:{folder}/safe.db#notes",
            "-p",
            folder / "p.vecveil",
            "--seal-key",
            folder / "search.keys",
        ),
    ):
        done = run(*command)
        assert done.code == 0, done.err
    return folder


def test_hits_are_the_exact_neighbours_with_their_texts(sealed: Path, lsa: Path, texts: list[str]) -> None:
    done = run(
        f"search sqlite-vec:{sealed}/safe.db#notes -p {sealed / 'p.vecveil'} --encoder {lsa} --seal-key "
        f"{sealed / 'search.keys'} --top 5 --json",
        QUERY,
    )
    assert done.code == 0, done.err
    encoder = load_encoder(lsa)
    X, q = np.asarray(encoder.encode(texts)), np.asarray(encoder.encode([QUERY]))[0]
    cosines = X @ q / np.linalg.norm(X, axis=1) / np.linalg.norm(q)
    hits = done.json["hits"]
    # Equal notes tie: compare scores, and texts with their rows.
    np.testing.assert_allclose([hit["score"] for hit in hits], np.sort(cosines)[::-1][:5], atol=2e-3)
    for hit in hits:
        row = int(hit["id"][1:])
        assert hit["text"] == texts[row]
        assert hit["metadata"] == {"page": row}
    assert not done.json["skipped"]


def test_a_stored_text_cannot_control_the_terminal(sealed: Path, lsa: Path) -> None:
    text = QUERY + " \x1b[2J\x9b31m\r\nn1 \u202eis fine, naïve 注"
    address = f"sqlite-vec:{sealed}/safe.db#notes"
    collection = ProtectedCollection(address, sealed / "p.vecveil", sealed / "search.keys", encoder=load_encoder(lsa))
    collection.add(texts=[text], ids=["x\x1b"])
    try:
        done = run(
            f"search {address} -p {sealed / 'p.vecveil'} --encoder {lsa} --seal-key {sealed / 'search.keys'} --top 1",
            QUERY,
        )
    finally:
        collection.delete(["x\x1b"])
    assert done.code == 0, done.err
    (line,) = done.out.splitlines()
    assert line.endswith("  x\\x1b  " + QUERY + r" \x1b[2J\x9b31m\r\nn1 \u202eis fine, naïve 注")


def test_what_the_database_sees_of_rows_and_of_queries_is_audited(
    sealed: Path, notes: Path, lsa: Path, texts: list[str]
) -> None:
    store = f"sqlite-vec:{sealed}/safe.db#notes"
    # Every text twice: equal queries are averaged, and their words are frequent enough to attack.
    rows = [(f"n{i % len(texts)}", texts[i % len(texts)]) for i in range(2 * len(texts))]
    write_csv(sealed / "sample.csv", ["id", "text"], rows)
    common = (
        sealed / "sample.csv",
        "--text-column",
        "text",
        "--concept",
        notes.with_name("concept.yaml"),
        "--min-token-count",
        3,
        "--json",
        "-",
        *TOKEN_INFERENCE_ALONE,
    )
    seen = run("audit", *common, "--store", store, "--id-column", "id")
    asked = run("audit", *common, "--store", store, "-p", sealed / "p.vecveil", "--encoder", lsa, "--candidates", 20)
    for done in (seen, asked):
        assert done.code == 0, done.err
        assert done.json["kind"] == "store"
        assert any(attack["name"].endswith("-beside") for attack in done.json["attacks"])
    neither = run("audit", *common, "--store", store)
    assert neither.code == 1
    assert len(neither.errors) == 1, neither.err


def test_rows_are_selected_by_a_filter_field_with_a_master_key_of_the_environment(
    sealed: Path, lsa: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEAL_MASTER", base64.b64encode(bytes(range(32))).decode())
    key, place = f"env:SEAL_MASTER:{tmp_path}/data.keys", f"sqlite-vec:{tmp_path}/safe.db#notes"
    names = (f"sqlite-vec:{sealed}/clean.db#notes", place)
    assert run("migrate", *names, "-p", sealed / "p.vecveil", "--filter-field", "page").code == 2
    for command in (
        ("migrate", *names, "-p", sealed / "p.vecveil", "--seal-key", key, "--filter-field", "page"),
        ("reseal", place, "--seal-key", key),
    ):
        done = run(*command)
        assert done.code == 0, done.err
    query = ("search", place, QUERY, "-p", sealed / "p.vecveil", "--encoder", lsa, "--seal-key", key, "--json")
    hits = run(*query, "--where", "page=7", "--where", "page=12.0").json["hits"]
    assert {hit["id"] for hit in hits} == {"n7", "n12"}
    assert run(*query, "--where", 'page="7"').json["hits"] == []
    assert run(*query, "--where", "note=7").code == 1
    listed = run("key", "list", key, "--json").json
    (name,) = listed["collections"]
    assert listed["current"] == "env"
    assert run("key", "erase", key, "--collection", name, "--yes").code == 0
    assert run(*query).code == 1
    assert run("key", "list", "env:SEAL_MASTER").code == 2


def test_the_copy_holds_no_text(sealed: Path, texts: list[str]) -> None:
    content = b"".join(path.read_bytes() for path in sealed.glob("safe.*"))
    assert texts[3].encode() not in content
    assert texts[3].encode() in (sealed / "clean.db").read_bytes()  # control


def test_a_blob_that_was_removed_fails_the_verification(sealed: Path) -> None:
    names = (f"sqlite-vec:{sealed}/clean.db#notes", f"sqlite-vec:{sealed}/safe.db#notes")
    again = run("migrate", *names, "--verify-only", "--seal-key", sealed / "search.keys", "--json")
    assert (again.code, again.json["verification"]["unopened"]) == (0, 0)
    with in_this_process(names[1]) as store:
        row = store.read(["n7"])
        store.write(Batch(row.ids, row.vectors, ({"page": 7},)))
    again = run("migrate", *names, "--verify-only", "--seal-key", sealed / "search.keys", "--json")
    assert (again.code, again.json["verification"]["unopened"]) == (1, 1)
    with in_this_process(names[1]) as store:
        store.write(row)


def test_resealed_rows_are_found_with_the_new_key_alone(sealed: Path, lsa: Path) -> None:
    location = f"sqlite-vec:{sealed}/safe.db#notes"
    key = ("--seal-key", sealed / "search.keys")
    before = (sealed / "search.keys").read_bytes()
    done = run("reseal", location, *key, "--batch", 40, "--json")
    assert (done.code, done.json["rows"]) == (0, 150), done.err
    query = ("search", location, QUERY, "-p", sealed / "p.vecveil", "--encoder", lsa)
    assert run(*query, *key, "--json").json["skipped"] == []
    (about,) = run("key", "list", key[1], "--json").json["collections"].values()
    assert about["data_keys"] == 1
    (sealed / "older.keys").write_bytes(before)
    (sealed / "older.keys").chmod(0o600)
    assert run(*query, "--seal-key", sealed / "older.keys").code == 1
    assert run("reseal", location, *key, "--seal-name", "mistyped").code == 1
    # Another store under this name: its keys must not be retired.
    (name,) = run("key", "list", key[1], "--json").json["collections"]
    with in_this_process(f"sqlite-vec:{sealed}/empty.db#notes") as store:
        store.create(8, metric="cosine")
    assert run("reseal", f"sqlite-vec:{sealed}/empty.db#notes", *key, "--seal-name", name).code == 1
    assert run(*query, *key).code == 0


@pytest.mark.parametrize(
    ("change", "code"),
    [({"--seal-key": "other.keys"}, 1), ({"--seal-key": "absent.keys"}, 1), ({"-p": "search.keys"}, 1)],
)
def test_wrong_arguments_are_one_error_line(sealed: Path, lsa: Path, change: dict[str, object], code: int) -> None:
    if not (sealed / "other.keys").exists():
        assert run("key", "new", sealed / "other.keys").code == 0
    options = {"-p": "p.vecveil", "--seal-key": "search.keys", "--top": 3} | change
    given = [
        part for name, value in options.items() for part in (name, sealed / value if isinstance(value, str) else value)
    ]
    done = run("search", f"sqlite-vec:{sealed}/safe.db#notes", QUERY, "--encoder", sealed / "absent.lsa", *given)
    assert done.code == code
    assert len(done.errors) == 1, done.err
    assert "absent.lsa" not in done.err  # the key is checked before the encoder is loaded


def test_a_sealed_migration_goes_on_with_its_own_key_only(sealed: Path, tmp_path: Path) -> None:
    names = (f"sqlite-vec:{sealed}/clean.db#notes", f"sqlite-vec:{sealed}/safe.db#notes")
    assert run("key", "new", tmp_path / "fresh.keys").code == 0
    for more in ((), ("--seal-key", tmp_path / "fresh.keys")):
        again = run("migrate", *names, "-p", sealed / "p.vecveil", *more)
        assert again.code == 1
        assert len(again.errors) == 1, again.err
    assert run("migrate", *names, "--verify-only").code == 1
    with in_this_process(names[1]) as store:
        assert {name for row in next(store.batches()).fields for name in row} == {"vecveil_sealed"}


def test_a_protector_of_another_encoder_reprotects_nothing(sealed: Path, notes: Path) -> None:
    # Its map would erase other directions than those of the concept.
    location = f"sqlite-vec:{sealed}/safe.db#notes"
    LsaEncoder.fit(read_texts(notes, text_column="text").texts[200:], 64).save(sealed / "other.lsa")
    fit = ("fit", notes, "--text-column", "text", "--concept", notes.with_name("concept.yaml"), "--method", "laplace")
    done = run(*fit, "--encoder", sealed / "other.lsa", "--noise-to-signal", 0.9, "-o", sealed / "other.vecveil")
    assert done.code == 0, done.err
    done = run("reprotect", location, "-p", sealed / "other.vecveil", "--seal-key", sealed / "search.keys")
    assert done.code == 1
    assert "encoder" in done.err
    about = ("key", "list", sealed / "search.keys", "--json")
    assert next(iter(run(*about).json["collections"].values()))["data_keys"] == 1


def test_reprotected_rows_are_found_by_the_new_protector_alone(
    sealed: Path, lsa: Path, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = f"sqlite-vec:{sealed}/safe.db#notes"
    key = ("--seal-key", sealed / "search.keys")
    fit = ("fit", notes, "--text-column", "text", "--concept", notes.with_name("concept.yaml"), "--encoder", lsa)
    done = run(*fit, "--method", "laplace", "--noise-to-signal", 0.9, "-o", sealed / "stronger.vecveil")
    assert done.code == 0, done.err
    with in_this_process(location) as store:
        before, writes, write = store.read(["n7"]).vectors, itertools.count(), type(store).write

    def interrupted(self: VectorStore, batch: Batch) -> None:
        if next(writes) == 1:
            raise KeyboardInterrupt
        write(self, batch)

    renew = ("reprotect", location, "-p", sealed / "stronger.vecveil", *key, "--batch", 40, "--json")
    with monkeypatch.context() as patch:
        patch.setattr(type(store), "write", interrupted)
        done = run(*renew)
    assert done.code == 130
    assert "again to continue" in done.err
    done = run(*renew)
    assert (done.code, done.json["rows"]) == (0, 110), done.err
    assert "renewed already" in run(*renew).err
    query = ("search", location, QUERY, "--encoder", lsa, *key, "--json", "-p")
    done = run(*query, sealed / "stronger.vecveil")
    assert (done.json["skipped"], len(done.json["hits"])) == ([], 10)
    assert run(*query, sealed / "p.vecveil").code == 1
    with in_this_process(location) as store:
        assert np.abs(store.read(["n7"]).vectors - before).max() > 1e-3
