"""``sealed:`` on the command line: a database is copied to a sealed index, searched, and kept up."""

from __future__ import annotations

import copy
import errno
import gzip
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from harness.command_line import command, environment, run
from harness.errors import raises
from vecveil.auditing.records.audit_record import AuditRecord
from vecveil.auditing.records.verdict import decide, leaks
from vecveil.auditing.report.audit_page import render_audit
from vecveil.gateway.server.upstreams import LocalUpstream
from vecveil.gateway.server.vector_stores import open_index
from vecveil.index import SealedIndex, Sealer
from vecveil.stores import Batch
from vecveil.stores.locations import in_this_process
from vecveil.texts.encoders import LsaEncoder, load_encoder
from vecveil.texts.tables import read_texts

pytest.importorskip("sqlite_vec")

ROWS = 60


@pytest.fixture(scope="module")
def texts(notes: Path) -> list[str]:
    return read_texts(notes, text_column="text").texts[:ROWS]


@pytest.fixture
def folder(texts: list[str], lsa: Path, tmp_path: Path) -> Path:
    """A folder with a store ``notes.db`` and a key file."""
    fill_store(tmp_path / "notes.db", np.asarray(load_encoder(lsa).encode(texts), np.float32), texts)
    assert run("key", "new", tmp_path / "search.keys").code == 0
    return tmp_path


def fill_store(path: Path, vectors: np.ndarray, texts: list[str], metric: str = "cosine") -> None:
    with in_this_process(f"sqlite-vec:{path}#notes") as store:
        store.create(vectors.shape[1], metric=metric)
        fields = tuple({"note": text, "page": i, "site": "ab"[i % 2]} for i, text in enumerate(texts))
        store.write(Batch(tuple(f"n{i}" for i in range(len(texts))), vectors, fields))


def migrate(folder: Path, *options: object) -> list[object]:
    return [
        "migrate",
        f"sqlite-vec:{folder}/notes.db#notes",
        f"sealed:{folder}/index/",
        "--seal-key",
        folder / "search.keys",
        *options,
    ]


@pytest.mark.parametrize(("scale", "metric", "warns"), [(1, "euclidean", 0), (2, "euclidean", 1), (1, "manhattan", 1)])
def test_a_source_that_ranks_otherwise_is_named(tmp_path: Path, scale: int, metric: str, warns: int) -> None:
    X = np.random.default_rng(0).standard_normal((4, 8))
    X = scale * X / np.linalg.norm(X, axis=1, keepdims=True)
    fill_store(tmp_path / "notes.db", X.astype(np.float32), ["a"] * 4, metric)
    assert run("key", "new", tmp_path / "search.keys").code == 0
    done = run(*migrate(tmp_path))
    assert (done.code, f"ranks by {metric}" in done.err) == (0, bool(warns))


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another test that encodes these texts meanwhile would be the program that writes them again."""
    monkeypatch.setenv("VECVEIL_CACHE", str(tmp_path / "embeddings"))


@pytest.fixture
def filled(folder: Path, lsa: Path) -> Path:
    done = run(*migrate(folder, "--encoder", lsa, "--drop", "site"))
    assert done.code == 0, done.err
    assert f"Verified: count and ids of {ROWS} rows" in done.err
    return folder


def test_a_store_is_copied_and_searched(filled: Path, lsa: Path, texts: list[str]) -> None:
    key = ("--seal-key", filled / "search.keys")
    ask = ("search", f"sealed:{filled}/index", texts[7], *key, "--encoder", lsa, "--json")
    done = run(*ask, "--top", 1, "--hybrid")
    assert done.code == 0, done.err
    (hit,) = done.json["hits"]
    assert (hit["text"], hit["score"]) == (texts[7], pytest.approx(1, abs=1e-3))
    assert hit["metadata"].keys() == {"page"}
    for conditions, pages in (
        (["page>=57"], {57, 58, 59}),
        (["page<3", "page!=1"], {0, 2}),
        (["page=3", "page=4"], {3, 4}),
        (["page>2", "page<=4"], {3, 4}),
        (["page>3", "page<3"], set()),
    ):
        done = run(*ask, *(word for one in conditions for word in ("--where", one)))
        assert {hit["metadata"]["page"] for hit in done.json["hits"]} == pages
    assert "Each condition takes its own --where" in done.err
    # Before the encoder is loaded.
    ask = (*ask[:5], "--encoder", filled / "none")
    for condition, says in (
        ("note=x", "No row has the field 'note' (in `--where`). The rows have: page."),
        ("page=x", "The rows have numbers in 'page', and `--where` compares it with texts."),
    ):
        done = run(*ask, "--where", condition)
        assert (done.code, says in done.err) == (1, True), done.err
    again = run(*migrate(filled, "--drop", "site"))
    assert "0 rows written" in again.err
    assert "Verified" in again.err
    stored = [path.read_bytes() for path in (filled / "index").rglob("*") if path.is_file()]
    assert len(stored) >= 3
    assert not any(b"n7" in content[:50] or texts[7].encode() in content for content in stored)


def test_keys_ids_and_segments_are_kept_up(own_cache: None, filled: Path, texts: list[str]) -> None:
    key, place = ("--seal-key", filled / "search.keys"), f"sealed:{filled}/index"
    (filled / "ids.txt").write_text("".join(f"n{i}\n" for i in range(1, ROWS)) + "new\n")
    done = run("reconcile", place, *key, "--ids", filled / "ids.txt", "-o", filled / "gone.txt", "--json")
    assert (done.json["without_source"], done.json["without_vector"]) == (["n0"], ["new"])
    done = run("forget", place, *key, "--ids", filled / "gone.txt", "--receipt", filled / "erasure.json", "--json")
    assert done.code == 0, done.err
    assert done.json["rows"] == 1
    assert done.json["finished"]
    assert any("reseal" in sentence for sentence in done.json["remains"])
    assert "--encoder" in run("index reencode", place, *key).err
    LsaEncoder.fit(texts, 32).save(filled / "small")
    for name, *options in (["index compact"], ["reseal"], ["index reencode", "--encoder", filled / "small"]):
        done = run(name, place, *key, *options, "--json")
        assert (done.code, done.json["rows"]) == (0, ROWS - 1), done.err
    done = run("search", place, texts[7], *key, "--encoder", filled / "small", "--top", 1, "--json")
    assert done.json["hits"][0]["text"] == texts[7]
    for force in ((), ("--force",)):
        assert run("scan", place, "--json", filled / "scan.json", *force).code == 0
    assert "--force" in run("scan", place, "--json", filled / "scan.json").err
    done = run("scan", place, "--json", "-")
    assert done.json["protected"] == "encrypted segments"
    assert done.json["segments"] >= 1
    assert done.json["bytes"] > 0
    with SealedIndex(filled / "index", filled / "search.keys") as index:
        assert index.noted_encoder is not None, "commands without --encoder keep what the index notes"
        assert "n0" not in index.ids()
        assert index.count() == ROWS - 1
    done = run("index get", place, "n7", "nobody", *key, "--json")
    assert [(row["id"], row["text"]) for row in done.json["rows"]] == [("n7", texts[7])]
    assert "1 of 2 ids not found" in done.err
    assert run("index get", place, "n7", *key).out == f"n7  {texts[7]}\n"
    assert run("index delete", place, "n7", "nobody", *key, "--json").json["rows"] == 1
    assert run("index get", place, "n7", *key).out == ""


def test_an_index_is_shared(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"id": "a", "text": "hello", "embedding": [1, 2, 3]}')
    place = f"sealed:{tmp_path}/notes"
    keys = {name: tmp_path / f"{name}.key" for name in ("owner", "anna", "ingest")}
    public = {name: run("key", "new", path).out.strip() for name, path in keys.items()}
    assert json.loads(run("key", "list", keys["anna"], "--json").out)["public"] == public["anna"]
    assert run("migrate", tmp_path / "rows.jsonl", place, "--seal-key", keys["owner"]).code == 0

    def index(name: str, who: str, *arguments: object) -> Any:
        return run("index", name, place, *arguments, "--seal-key", keys[who])

    assert "never shared" in index("members", "owner").err
    stranger = index("get", "anna", "a")
    assert stranger.code == 1
    assert public["anna"] in stranger.err
    assert index("share", "owner", public["anna"], "--role", "reader", "--name", "Anna").code == 0
    assert index("share", "owner", public["ingest"], "--role", "writer").code == 0
    assert index("members", "ingest", "--owner", public["anna"]).code == 1
    listed = index("members", "ingest", "--owner", public["owner"]).out.splitlines()
    assert listed[0].startswith(public["owner"])
    assert listed[1].endswith("reader  Anna")
    assert "Only the storage says" not in index("members", "ingest").err
    assert "vecveil index members sealed:" in index("members", "anna").err
    typo = run("index", "members", place, "--seal-key", f"valt:https://vault.example/k:{keys['anna']}")
    assert "awskms, vault" in typo.err
    assert index("get", "anna", "a").out == "a  hello\n"
    assert index("get", "ingest", "a").code == 1
    # Not that the index records no encoder, which this key cannot see.
    assert "opens none" in run("search", place, "hello", "--seal-key", keys["ingest"]).err
    assert index("delete", "ingest", "b").code == 0
    assert index("remove", "anna", public["ingest"]).code == 1
    removed = json.loads(index("remove", "owner", public["anna"], "--json").out)
    assert [member["roles"] for member in removed["members"]] == [["owner"], ["writer"]]
    assert not removed["renewal_pending"]
    assert index("get", "anna", "a").code == 1
    head = max((tmp_path / "notes" / "commits").glob("?" * 10))
    forged = head.with_name(f"{int(head.name) + 1:010d}")
    shutil.copy(head, forged)
    refused = index("get", "owner", "a")
    assert refused.code == 1
    assert forged.name in refused.err
    assert index("repair", "ingest").code == 1
    assert index("repair", "owner").out == f"commits/{forged.name}\n"
    assert index("get", "owner", "a").out == "a  hello\n"
    assert index("share", "owner", public["anna"], "--role", "owner").code == 0
    (tmp_path / "rows.jsonl").write_text('{"id": "b", "text": "bye", "embedding": [1, 2, 3]}')
    before = set((tmp_path / "notes" / "segments").iterdir())
    assert run("migrate", tmp_path / "rows.jsonl", place, "--add", "--seal-key", keys["ingest"]).code == 0
    for segment in set((tmp_path / "notes" / "segments").iterdir()) - before:
        segment.unlink()
    assert index("get", "anna", "a").code == 1
    dropped = index("repair", "owner", "--drop")
    assert dropped.out.endswith(f"signed by {public['ingest']}\n")
    assert "deletion was in these segments are back" in dropped.err
    assert index("get", "anna", "a").out == "a  hello\n"
    assert index("remove", "anna", public["owner"]).code == 0
    assert index("members", "anna").out.splitlines()[-1] == f"{public['owner']}  shared it first, no longer a member"


def test_an_index_is_verified_backed_up_and_restored(filled: Path, lsa: Path, texts: list[str]) -> None:
    key, place, backup = ("--seal-key", filled / "search.keys"), f"sealed:{filled}/index", f"sealed:{filled}/backup"
    done = run("index verify", place, *key, "--json")
    assert (done.code, done.json["segments"], done.json["others"]) == (0, 1, []), done.err
    done = run("index copy", place, backup, *key, "--json")
    assert (done.code, done.json["later"]) == (0, 0), done.err
    shutil.rmtree(filled / "index")
    done = run("index verify", place, *key)
    assert done.code == 1
    assert "is gone" in done.err
    assert run("index copy", backup, place, *key).code == 0
    done = run("search", place, texts[7], *key, "--encoder", lsa, "--top", 1, "--json")
    assert done.json["hits"][0]["text"] == texts[7]
    (segment,) = (filled / "index" / "segments").iterdir()
    segment.write_bytes(segment.read_bytes()[:-1])
    done = run("index verify", place, *key)
    assert done.code == 1
    assert segment.name in done.err
    assert "sealed:" in run("index copy", place, filled / "plain", *key).err
    assert "'notes' is not a sealed index: write sealed:notes" in run("index verify", "notes", *key).err


def test_a_storage_that_was_rolled_back_is_not_searched(
    filled: Path, lsa: Path, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key, place = filled / "search.keys", filled / "index"
    ask = ("search", f"sealed:{place}", texts[7], "--seal-key", key, "--encoder", lsa)
    shutil.copytree(place, filled / "earlier")
    with SealedIndex(place, key) as writer:  # it only adds, and remembers its own commit
        writer.add(["new"], ids=["new"], vectors=np.ones((1, 64)))
    shutil.rmtree(place)
    shutil.copytree(filled / "earlier", place)
    done = run(*ask)
    assert (done.code, "was rolled back" in done.err) == (1, True), done.err
    with raises("E-INDEX-ROLLED-BACK"):  # `vecveil serve`
        open_index("notes", str(place), Sealer(key), LocalUpstream(load_encoder(lsa)), load_encoder(lsa))
    shutil.rmtree(filled / "search.keys.heads")
    monkeypatch.setattr(
        "vecveil.index.heads.create_private", Mock(side_effect=PermissionError(errno.EROFS, "Read-only"))
    )
    done = run(*ask)
    assert (done.code, "warning: The newest commit of the index cannot be noted" in done.err) == (0, True), done.err


def test_the_storage_is_attacked(tmp_path: Path, notes: Path, lsa: Path) -> None:
    texts = list(dict.fromkeys(read_texts(notes, text_column="text").texts))[:400]
    run("key", "new", tmp_path / "search.keys")
    with SealedIndex(tmp_path / "notes", tmp_path / "search.keys") as index:
        ids = [f"note-{i:05d}" for i in range(len(texts))]
        index.add(texts, ids=ids, vectors=np.asarray(load_encoder(lsa).encode(texts), np.float32))
    words = ("audit", "--store", f"sealed:{tmp_path}/notes", "--seal-key", tmp_path / "search.keys", "--no-cache")
    files = ("--json", tmp_path / "audit.json", "--html", tmp_path / "audit.html", "--force")
    for seed in (0, 1):  # the keys are random: in one run of a thousand an attacker is lucky, in a million twice
        done = run(*words, *files, "--seed", seed, "--fail-above", 50)
        assert done.code == 0, done.err
        if "Audit again with a different `--seed`" not in " ".join(done.out.split()):
            break
    assert 10 <= len(done.out.splitlines()) <= 20
    assert "An attacker who has the storage learns sizes and times of writing only." in " ".join(done.out.split())
    audit = AuditRecord.load(tmp_path / "audit.json", owner="test")
    named = {attack.name: attack for attack in audit.attacks}
    assert named["search-bytes"].value == 0
    assert named["search-bytes"].n == 3 * len(texts)
    assert named["search-bytes"].clean == 1
    assert not any(map(leaks, audit.attacks))
    # The same attackers on the exact vectors read the words: they are no strawmen.
    assert max(attack.clean or 0 for attack in audit.members("token-inference")) > 2 * (audit.worst_attack.chance or 0)
    assert decide(audit).grade == "hidden"
    assert "nothing readable" in (tmp_path / "audit.html").read_text()
    leaking = json.loads((tmp_path / "audit.json").read_text())
    for name, value in (("search-bytes", 1 / named["search-bytes"].n), ("objects-linear", 0.9), ("kernel", 0.9)):
        record = copy.deepcopy(leaking)
        attack = next(each for each in record["attacks"] if each["name"] == name)
        over = (value - attack["chance"]) / (1 - attack["chance"])
        attack |= {"value": value, "low": value * 0.9, "high": 1.0, "over_chance": over}
        for entry in record["families"]:
            if entry["family"] == attack["family"]:
                members = [each for each in record["attacks"] if each["family"] == attack["family"]]
                key = "value" if attack["family"] == "token-inference" else "over_chance"
                entry["worst"] = max(members, key=lambda each: each[key] or -9)["name"]
        record["worst"] = name if name == "kernel" else record["worst"]
        assert "not sealed" in render_audit(record), name


@pytest.fixture(scope="module")
def tables(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of 20 rows, with and without vectors: year is a number, code looks like one and is a name."""
    folder = tmp_path_factory.mktemp("tables")
    rows = [{"note": f"n{i}", "body": text, "year": 2000 + i, "code": f"{i:03}"} for i, text in enumerate(texts[:20])]
    frame = pa.Table.from_pylist(rows)
    csv.write_csv(frame, folder / "t.csv")
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "t.jsonl.gz").write_bytes(gzip.compress((folder / "t.jsonl").read_bytes()))
    (folder / "twice.csv").write_text("note,body\na,first text\na,second text\n")
    pq.write_table(frame, folder / "t.parquet")
    vectors = pa.array(np.random.default_rng(0).standard_normal((20, 64)).astype(np.float32).tolist())
    pq.write_table(frame.append_column("embedding", vectors), folder / "v.parquet")
    marked = frame.append_column("embedding", vectors).replace_schema_metadata({"vecveil": '{"protected": true}'})
    pq.write_table(marked, folder / "protected.parquet")
    assert run("key", "new", folder / "search.keys").code == 0
    return folder


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.jsonl.gz", "t.parquet", "v.parquet"])
def test_a_table_is_copied(tables: Path, texts: list[str], lsa: Path, tmp_path: Path, name: str) -> None:
    words = [
        "migrate",
        tables / name,
        f"sealed:{tmp_path}/index",
        "--seal-key",
        tables / "search.keys",
        "--json",
        "--text-column",
        "body",
        "--id-column",
        "note",
    ]
    words += [] if name == "v.parquet" else ["--encoder", lsa]
    done = run(*words, "--batch", 7)
    assert done.code == 0, done.err
    assert "Verified" in done.err
    assert (done.json["rows"], done.json["written"]) == (20, 20)
    with SealedIndex(tmp_path / "index", tables / "search.keys") as index:
        row = index.get(["n7"])
        assert (row.texts, row.metadata) == ([texts[7]], [{"year": 2007, "code": "007"}])
        index.add(["other text"], ids=["n7"], vectors=np.ones((1, 64)))
        index.delete(["n8"])
    again = run(*words)
    assert again.json["written"] == 2, again.err


@pytest.mark.parametrize("name", ["lists.parquet", "fixed.parquet", "rows.npy"])
def test_rows_without_a_vector_are_left_out(tmp_path: Path, name: str) -> None:
    X = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    X[2, 1] = np.nan
    rows: list[Any] = X.tolist()
    kind = pa.list_(pa.float32())
    if name == "lists.parquet":
        rows[3:6] = None, rows[3][:3], [None, *rows[5][1:]]
    elif name == "fixed.parquet":
        rows[3], kind = None, pa.list_(pa.float32(), 4)
    pq.write_table(pa.table({"id": list("abcdef"), "embedding": pa.array(rows, kind)}), tmp_path / name)
    if name == "rows.npy":
        np.save(tmp_path / name, X)
    assert run("key", "new", tmp_path / "search.keys").code == 0
    words = ("migrate", tmp_path / name, f"sealed:{tmp_path}/index", "--seal-key", tmp_path / "search.keys")
    assert run(*words).code == 1
    done = run(*words, "--skip-bad", "--batch", 4, "--json")
    assert done.code == 0, done.err
    kept = {"lists.parquet": ["a", "b"], "fixed.parquet": ["a", "b", "e", "f"], "rows.npy": list("01345")}[name]
    assert (done.json["rows"], done.json["skipped"]) == (len(kept), 6 - len(kept))
    with SealedIndex(tmp_path / "index", tmp_path / "search.keys") as index:
        assert sorted(index.ids()) == kept
        assert (
            np.abs(index.get(kept[-1:]).vectors - X["abcdef".find(kept[-1]) if name != "rows.npy" else 5]).max() < 0.01
        )


def test_a_second_file_is_added(tables: Path, texts: list[str], lsa: Path, tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("note,body\nn3,a new text\nz,another\n")
    key = ("--seal-key", tables / "search.keys", "--encoder", lsa, "--text-column", "body")
    place = f"sealed:{tmp_path}/index"
    assert run("migrate", tables / "t.csv", place, *key, "--id-column", "note").code == 0
    refused = run("migrate", tmp_path / "more.csv", place, *key, "--id-column", "note")
    assert (refused.code, "pass --add." in refused.err) == (1, True), refused.err
    refused = run("migrate", tmp_path / "more.csv", place, *key, "--add")  # rows of the index may have these numbers
    assert (refused.code, "--id-column" in refused.err) == (1, True), refused.err
    for written in (2, 0):
        done = run("migrate", tmp_path / "more.csv", place, *key, "--id-column", "note", "--add", "--json")
        assert (done.code, done.json["written"]) == (0, written), done.err
    with SealedIndex(tmp_path / "index", tables / "search.keys") as index:
        assert index.count() == 21
        assert index.get(["n3", "z", "n4"]).texts == ["a new text", "another", texts[4]]
    assert "--add is for sealed:" in run("migrate", "chroma:a#b", "chroma:a#c", "-p", "x.vecveil", "--add").err


def test_codes_are_looked_up_as_they_are_written(lsa: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,code,n,ok\na,250.00,3.5,true\nb,250.0,3,no\nc,007,4,true\n")
    assert run("key", "new", tmp_path / "search.keys").code == 0
    key = ("--seal-key", tmp_path / "search.keys", "--encoder", lsa)
    assert run("migrate", tmp_path / "t.csv", f"sealed:{tmp_path}/index", *key, "--text-column", "text").code == 0
    for condition, texts in (
        ("code=250.00", ["a"]),
        ("code!=250.00", ["b", "c"]),
        ('code="250.0"', ["b"]),
        ("code=007", ["c"]),
        ("code=250.0", ["b"]),
        ("ok=true", ["a", "c"]),
        ("ok!=true", ["b"]),
        ("n=3.5", ["a"]),
        ("n>=3.50", ["a", "c"]),
    ):
        done = run("search", f"sealed:{tmp_path}/index", "a", *key, "--where", condition, "--json")
        assert sorted(hit["text"] for hit in done.json["hits"]) == texts, condition


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["t.csv", "--text-column", "body"], "--encoder"),
        (["t.csv", "--encoder", "{lsa}"], "Name it with --text-column."),
        (["t.csv", "--text-column", "body", "--id-column", "no", "--encoder", "{lsa}"], "--id-column"),
        (["t.csv", "--text-column", "body", "--drop", "no", "--encoder", "{lsa}"], "--drop"),
        (["twice.csv", "--text-column", "body", "--id-column", "note", "--encoder", "{lsa}"], "id of another row: 1."),
        (["t.csv", "--text-column", "body", "--embedding-column", "code"], "lists of float32"),
        (["protected.parquet"], "vecveil has protected"),
        (["v.parquet", "--keep-text"], "--keep-text"),
        (["missing.csv", "--encoder", "{lsa}"], "File not found"),
    ],
)
def test_mistakes_with_tables(tables: Path, lsa: Path, tmp_path: Path, arguments: list[str], says: str) -> None:
    name, *options = (word.format(lsa=lsa) for word in arguments)
    done = run("migrate", tables / name, f"sealed:{tmp_path}/index", "--seal-key", tables / "search.keys", *options)
    assert done.code in (1, 2)
    assert says in done.err
    assert "are encoded" not in done.err or "--encoder" in options
    assert not list(tmp_path.glob("index/segments/*"))


SEARCH = "search sealed:{0}/index q --seal-key {0}/search.keys"
COPY = "migrate sqlite-vec:{0}/notes.db#notes sealed:{0}/index --seal-key {0}/search.keys"
AUDIT = "audit --store sealed:{0}/index --seal-key {0}/search.keys"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("search sealed:{0}/none q --seal-key {0}/search.keys --encoder {lsa}", "no sealed index"),
        ("search sealed:{0}/index q --seal-key {0}/other.keys --encoder {lsa}", "has no key"),
        (SEARCH, "--encoder"),
        (f"{SEARCH} --query-noise 0", "--query-noise"),
        (f"{SEARCH} --where page=>3", "operators"),
        (f"{SEARCH} --where page>true", "number"),
        ("search sqlite-vec:{0}/notes.db#notes q --seal-key {0}/search.keys --hybrid", "-p"),
        ("migrate sqlite-vec:{0}/notes.db#notes sealed:{0}/index", "--seal-key"),
        # the key is checked before an encoder is loaded
        ("migrate {0}/ids.txt sealed:{0}/index --seal-key {0}/other.keys --encoder {0}/none", "has no key"),
        ("migrate sqlite-vec:{0}/notes.db#notes sealed: --seal-key {0}/search.keys", "sealed:FOLDER"),
        (f"{COPY} --keep-text", "--keep-text"),
        (f"{COPY} --drop colour", "drop"),
        (f"{COPY} --id-column x", "--id-column"),
        ("migrate {0}/t.csv sqlite-vec:{0}/n.db#n -p {protector} --text-column x", "--text-column"),
        ("migrate sealed:{0}/index sqlite-vec:{0}/n.db#n -p {protector}", "is not a database"),
        ("reprotect sealed:{0}/index -p {protector} --seal-key {0}/search.keys", "reseal"),
        ("index reencode chroma:{0}/db#n --seal-key {0}/search.keys --encoder {lsa}", "sealed:FOLDER"),
        ("reconcile sealed:{0}/index --ids {0}/ids.txt", "--seal-key"),
        ("scan sealed:{0}/none", "no index"),
        ("scan sealed:nothing://bucket/n", "location"),
        (AUDIT, "8 rows with a text"),
        ("audit --store sealed:{0}/index", "--seal-key"),
        ("audit --store sealed:{0}/none --seal-key {0}/search.keys", "no sealed index"),
        (f"{AUDIT} --id-column a", "--id-column"),
        ("audit {0}/ids.txt --store sealed:{0}/index --seal-key {0}/search.keys", "INPUT"),
        ("audit {0}/ids.txt --seal-key {0}/search.keys --concept {0}/ids.txt", "sealed:"),
        ("audit --concept {0}/ids.txt", "INPUT"),
        ("audit {0}/ids.txt", "--concept"),
    ],
)
def test_mistakes_are_one_clear_sentence(
    filled_once: Path, lsa: Path, vectors_protector: Path, line: str, says: str
) -> None:
    done = run(*line.format(filled_once, lsa=lsa, protector=vectors_protector).split())
    assert done.code in (1, 2)
    assert len([*done.errors, *(line for line in done.err.splitlines() if line.startswith("Error: "))]) == 1, done.err
    assert says in done.err


@pytest.fixture(scope="module")
def filled_once(texts: list[str], lsa: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    # Vectors that no encoder made: the index notes none.
    fill_store(folder / "notes.db", np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32), texts[:8])
    for name in ("search", "other"):
        assert run("key", "new", folder / f"{name}.keys").code == 0
    done = run(*migrate(folder))
    assert done.code == 0, done.err
    (folder / "ids.txt").write_text("n0\n")
    return folder


def test_a_killed_copy_goes_on(folder: Path, texts: list[str]) -> None:
    many = [f"{text} {i}" for i in range(10) for text in texts]  # more than are copied before the signal comes
    (folder / "notes.db").unlink()
    fill_store(folder / "notes.db", np.random.default_rng(0).standard_normal((len(many), 64)).astype(np.float32), many)
    words = command(*migrate(folder, "--batch", 1))
    copying = subprocess.Popen(words, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 120
        while len(list((folder / "index").glob("commits/[!.]*"))) < 5 and time.monotonic() < until:
            assert copying.poll() is None
            time.sleep(0.01)
    finally:
        os.kill(copying.pid, signal.SIGKILL)
        copying.wait()
    done = run(*migrate(folder, "--json"))
    assert done.code == 0, done.err
    assert done.json["rows"] == len(many)
    assert 5 <= len(many) - done.json["written"] < len(many)
    with SealedIndex(folder / "index", folder / "search.keys") as index:
        assert index.get([f"n{i}" for i in range(len(many))]).texts == many
    # A row that changed in the source is replaced; a row that only the index has stops the copy.
    with in_this_process(f"sqlite-vec:{folder}/notes.db#notes") as store:
        store.delete(["n3"])
    done = run(*migrate(folder))
    assert done.code == 1
    assert "1 rows that the source lacks" in done.err
