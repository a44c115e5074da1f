"""``vecveil scan`` and ``vecveil migrate`` on real Chroma collections, SQLite tables and a real PostgreSQL.

Each start of Chroma costs seconds: where the kind of store does not matter, it is sqlite-vec.
"""

from __future__ import annotations

import csv
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.command_line import CANARY, SECRET, Outcome, run, write_csv
from vecveil.stores import Batch, VectorStore, open_store
from vecveil.stores.locations import in_this_process
from vecveil.stores.store import PROTECTOR_FIELD

pytest.importorskip("chromadb")
pytest.importorskip("sqlite_vec")

ROWS, N = 120, 32
PASSWORD = "hunter2swordfish"
TEXT = "chroma:document"


def fill(location: str, vectors: np.ndarray, fields: list[dict[str, Any]], *, metric: str | None = "euclidean") -> None:
    """Write rows ``n0`` on to a new collection."""
    with in_this_process(location) as store:
        store.create(vectors.shape[1], metric=metric)
        ids = tuple(f"n{i}" for i in range(len(vectors)))
        store.write(Batch(ids, vectors.astype(np.float32), tuple(fields)))


def rows_of(location: str) -> dict[str, tuple[bytes, dict[str, Any]]]:
    with in_this_process(location) as store:
        return {
            one: (vector.tobytes(), {name: fields[name] for name in fields if name != PROTECTOR_FIELD})
            for batch in store.batches(50)
            for one, vector, fields in zip(batch.ids, batch.vectors, batch.fields, strict=True)
        }


def clean_of(done: Outcome) -> None:
    """Assert that nothing that was planted is in what a command said."""
    said = (done.out + done.err).lower()
    assert CANARY not in said
    assert not any(word.lower() in said for word in SECRET.split() if len(word) > 4)
    assert PASSWORD not in said
    assert "traceback" not in said


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores")


def filled(location: str) -> str:
    """Write clean vectors with texts, names and pages; return the location."""
    vectors = np.random.default_rng(1).standard_normal((ROWS, N)).astype(np.float32)
    fields = [
        {TEXT: f"{CANARY} number {i} is what {SECRET} was given", "page": i, "mail": f"{CANARY}{i}@example.org"}
        for i in range(ROWS)
    ]
    fill(location, vectors, fields)
    return location


@pytest.fixture(scope="module")
def source(folder: Path) -> str:
    """A collection of Chroma."""
    return filled(f"chroma:{folder}/clean#notes")


@pytest.fixture(scope="module")
def table(folder: Path) -> str:
    """The rows of `source` in a table of sqlite-vec."""
    return filled(f"sqlite-vec:{folder}/clean.db#notes")


@pytest.fixture(scope="module")
def key(folder: Path) -> Path:
    assert run("key", "new", folder / "noise.key", "--id", "one").code == 0
    return folder / "noise.key"


def test_a_collection_is_scanned(source: str, tmp_path: Path) -> None:
    done = run("scan", source, "--json", tmp_path / "scan.json")
    assert done.code == 0, done.err
    clean_of(done)
    assert "120 rows of 32 dimensions, metric euclidean" in done.out
    assert "Field 'chroma:document' contains texts, in 100% of the rows" in done.out
    assert "Not tested: What attackers recover from the vectors: no concept" in done.out
    text = (tmp_path / "scan.json").read_text()
    assert CANARY not in text
    record = json.loads(text)
    assert list(record)[:4] == ["schema", "vecveil", "created", "command"]
    assert (record["schema"], record["store"]["name"]) == ("vecveil.scan/1", "chroma:clean#notes")
    assert str(tmp_path.parent) not in text
    assert [one["code"] for one in record["findings"]] == [
        "plaintext-beside-vectors",
        "personal-data-beside-vectors",
        "protection-unknown",
    ]
    assert record["audit"] is None
    piped = run("scan", source, "--json", "-", "--limit", 50)
    assert (piped.json["rows"], piped.json["complete"]) == (50, False)
    assert "50" in piped.json["not_tested"][0]


def bags(texts: list[str], dimension: int = 96) -> np.ndarray:
    """Return unit vectors that are sums of a drawn vector for each word: an encoder that costs nothing."""
    drawn = {word: np.random.default_rng(zlib.crc32(word.encode())) for text in texts for word in text.split()}
    of_word = {word: rng.standard_normal(dimension) for word, rng in drawn.items()}
    X = np.stack([sum(of_word[word] for word in text.split()) for text in texts])
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True), dtype=np.float32)


@pytest.fixture(scope="module")
def known(notes: Path, folder: Path) -> tuple[list[dict[str, str]], str, str, np.ndarray]:
    """Notes; two collections of their vectors, with the texts beside and without."""
    with notes.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    vectors = bags([row["text"] for row in rows])
    beside, alone = f"sqlite-vec:{folder}/beside.db#beside", f"sqlite-vec:{folder}/alone.db#alone"
    fill(beside, vectors, [{TEXT: row["text"], "group": row["id"]} for row in rows])
    fill(alone, vectors, [{"group": row["id"]} for row in rows])
    return rows, beside, alone, vectors


class Bags:
    """`bags` as an encoder."""

    def encode(self, texts: list[str]) -> np.ndarray:
        return bags(texts)


def test_vectors_of_the_encoder_are_told(
    known: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vecveil.cli.scan.load_encoder_named", lambda *given: Bags())
    texts = [row["text"] for row in known[0][:50]]
    vectors = bags(texts)
    for name, X, is_clean in (("clean", vectors, True), ("other", vectors[:, ::-1], False)):
        location = f"sqlite-vec:{tmp_path}/{name}.db#notes"
        fill(location, X, [{TEXT: text} for text in texts])
        done = run("scan", location, "--encoder", "bags", "--json", "-")
        assert done.code == 0, done.err
        codes = {one["code"] for one in done.json["findings"]}
        assert ("vectors-not-protected" in codes, "protection-unknown" in codes) == (is_clean, not is_clean)


def test_a_sample_is_audited_with_texts_of_a_file(notes: Path, known: tuple[Any, ...], tmp_path: Path) -> None:
    rows, _, alone, _ = known
    table = write_csv(tmp_path / "t.csv", ["key", "text"], [(f"n{i}", row["text"]) for i, row in enumerate(rows)][:400])
    families = ("probe", "candidates", "averaging", "alignment", "reconstruction", "held-out-terms", "membership")
    skipped = [word for family in families for word in ("--skip", family)]
    done = run(
        f"scan {alone} --concept {notes.with_name('concept.yaml')} --texts {table} --id-column key --sample 300 "
        f"--html {tmp_path / 'a.html'} --audit-json {tmp_path / 'a.json'} --json - --group-field group",
        *skipped,
    )
    assert done.code == 0, done.err
    assert "concept-leaks" in {one["code"] for one in done.json["findings"]}
    assert "300 that were attacked" in done.json["not_tested"][0]
    audit = json.loads((tmp_path / "a.json").read_text())
    assert done.json["audit"] == audit
    assert (audit["schema"], audit["kind"], audit["texts"]["total"]) == ("vecveil.audit/2", "store", 300)
    assert audit["split"]["unit"] == "group of texts with one id"
    assert "<html" in (tmp_path / "a.html").read_text()
    assert "'sqlite-vec:alone.db#alone'" in audit["command"]


def test_each_text_is_audited_with_its_own_vector(
    notes: Path, known: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the audit is given: the join by id, the field beside, and what is refused."""
    from vecveil.errors import ConceptError

    rows, beside, alone, clean = known
    asked: list[tuple[np.ndarray, list[str], dict[str, Any]]] = []

    def audit(vectors: np.ndarray, texts: list[str], concept: object, **more: Any) -> None:
        asked.append((vectors, texts, more))
        raise ConceptError("Too few texts.")

    monkeypatch.setattr("vecveil.cli.scan.audit_store", audit)
    concept = ("--concept", notes.with_name("concept.yaml"))
    order = np.random.default_rng(0).permutation(len(rows))[:200]
    table = write_csv(
        tmp_path / "t.csv",
        ["key", "text"],
        [(f"n{i}", rows[i]["text"]) for i in order] + [("x", "y"), ("", "y"), ("", "z")],
    )
    joined = run("scan", alone, *concept, "--texts", table, "--id-column", "key", "--sample", 90, "--json", "-")
    assert (joined.code, joined.json["audit"]) == (1, None)
    assert "Too few texts." in joined.err  # what was counted is said all the same
    vectors, texts, more = asked.pop()
    place = {clean[i].tobytes(): rows[i]["text"] for i in order}
    assert texts == [place[vector.tobytes()] for vector in vectors]
    assert (len(set(texts)), more["lint"]) == (90, [])
    run("scan", beside, *concept, "--sample", 60)
    vectors, texts, more = asked.pop()
    assert set(texts) <= {row["text"] for row in rows}
    assert [one["code"] for one in more["lint"]] == ["plaintext-beside-vectors"]
    assert vectors.shape == (60, 96)
    refused = run("scan", alone, *concept, "--json", "-")
    assert (refused.code, asked) == (1, [])
    assert "no texts" in refused.err
    other = write_csv(tmp_path / "u.csv", ["key", "text"], [("absent", "text")])
    strange = run("scan", alone, *concept, "--texts", other, "--id-column", "key")
    assert (strange.code, "none of the store's ids" in strange.err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "code", "match"),
    [
        (["--texts", "x.csv"], 2, "go together"),
        (["--html", "x.html"], 2, "--concept"),
        (["--concept", "none.yaml"], 1, "none.yaml"),
        (["--texts", "none.csv", "--id-column", "id"], 1, "none.csv"),
        (["--text-field", "absent"], 1, "has no field"),
        (["--json", "a.json", "--sample", "1"], 2, "--sample"),
    ],
)
def test_misused_scans(table: str, arguments: list[str], code: int, match: str) -> None:
    done = run("scan", table, *arguments)
    assert (done.code, match in done.err) == (code, True), done.err
    clean_of(done)


@pytest.mark.parametrize("name", ["scan", "migrate"])
def test_locations_that_lead_nowhere(name: str, tmp_path: Path, vectors_protector: Path) -> None:
    for location in (
        f"chroma:{tmp_path}/absent#c",
        "nonsense",
        f"oracle:{PASSWORD}",
        "chroma:",
        f"pgvector:postgresql://ann:{PASSWORD}@127.0.0.1:1/none#t",
        f"pgvector:postgresql://ann:{PASSWORD}x@y@127.0.0.1:1/none#t",
        f"pgvector:postgresql://ann:#{PASSWORD}@127.0.0.1:1/none#t",
        f"pgvector:host=127.0.0.1 port=1 user=ann password={PASSWORD}#t",
    ):
        more = () if name == "scan" else (f"chroma:{tmp_path}/out#c", "-p", vectors_protector)
        done = run(name, location, *more)
        assert done.code == 1, location
        assert len(done.errors) == 1, done.err
        clean_of(done)
    assert not (tmp_path / "out").exists()


def test_a_collection_is_migrated_and_checked_again(
    source: str, tmp_path: Path, vectors_protector: Path, key: Path
) -> None:
    dest = f"chroma:{tmp_path}/safe#notes"
    given = ("migrate", source, dest, "-p", vectors_protector, "--key-file", key, "--batch", 50)
    done = run(*given, "--ledger", tmp_path / "l.ledger", "--cap", 1, "--json")
    assert done.code == 0, done.err
    clean_of(done)
    assert done.json["verification"]["ok"]
    assert (done.json["rows"], done.json["withheld"]) == (ROWS, {TEXT: "text"})
    assert "query_noise=0" in done.err
    assert "field 'mail' looks like personal data" in done.err
    before, after = rows_of(source), rows_of(dest)
    assert {one: fields for one, (_, fields) in after.items()} == {
        one: {name: value for name, value in fields.items() if name != TEXT} for one, (_, fields) in before.items()
    }
    assert not any(before[one][0] == after[one][0] for one in before)
    state = (tmp_path / "safe.notes.migration.json").read_text()
    assert CANARY not in state
    with in_this_process(dest) as store:
        one = store.read(["n7"])
        store.write(Batch(one.ids, one.vectors + np.float32(1e-3), one.fields))
    wrong = run("migrate", source, dest, "--verify-only", "--json")
    assert (wrong.code, wrong.json["verification"]["checksum"]) == (1, False)
    assert "verification failed" in wrong.err
    assert "migrate again" in wrong.err


def test_a_protector_that_is_not_ready_is_used_after_a_yes(table: str, tmp_path: Path, vectors_protector: Path) -> None:
    fitted = vecveil.load(vectors_protector)
    listed = {"value": 0.9, "clean": 0.95, "chance": 0.1}
    file = tmp_path / "weak.vecveil"
    replace(fitted, report={**fitted.report, "reader": {"listed": listed}}).save(file)
    dest = f"sqlite-vec:{tmp_path}/weak.db#notes"
    refused = run("migrate", table, dest, "-p", file)
    assert (refused.code, "reported that it is not ready" in refused.err) == (2, True), refused.err
    assert not (tmp_path / "weak.db").exists()
    done = run("migrate", table, dest, "-p", file, "--yes")
    assert done.code == 0, done.err


def test_texts_are_kept_only_when_asked_for(table: str, tmp_path: Path, vectors_protector: Path) -> None:
    for name, options, kept in (("a", ["--drop", "mail"], {"page"}), ("b", ["--keep-text"], {"page", "mail", TEXT})):
        dest = f"sqlite-vec:{tmp_path}/{name}.db#notes"
        done = run("migrate", table, dest, "-p", vectors_protector, *options)
        assert done.code == 0, done.err
        clean_of(done)
        assert ("texts in clear" in done.err) == (name == "b")
        assert set(rows_of(dest)["n3"][1]) == kept
        content = b"".join(path.read_bytes() for path in tmp_path.glob(f"{name}.db*"))
        assert (CANARY.encode() in content) == (name == "b")
    assert run("migrate", table, dest, "--verify-only").code == 0
    before = rows_of(dest)
    again = run("migrate", table, dest, "-p", vectors_protector, "--keep-text")
    assert again.code == 0, again.err
    assert "120 of them before this run" in again.err
    assert rows_of(dest) == before
    other = run("migrate", table, dest, "-p", vectors_protector)
    assert other.code == 1
    assert "`--keep-text`" in other.err


def test_to_postgresql_with_a_password_in_the_location(
    table: str, tmp_path: Path, vectors_protector: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.postgres import fresh_database

    monkeypatch.chdir(tmp_path)
    dest = "pgvector:" + fresh_database().replace("postgres:@", f"postgres:{PASSWORD}@") + "#notes"
    assert PASSWORD in dest
    done = run("migrate", table, dest, "-p", vectors_protector, "--json")
    assert done.code == 0, done.err
    clean_of(done)
    assert done.json["verification"]["ok"]
    (state,) = tmp_path.glob("*.json")
    assert PASSWORD not in state.name + state.read_text()
    seen = run("scan", dest, "--json", "-")
    assert seen.code == 0, seen.err
    clean_of(seen)
    assert seen.json["store"]["count"] == ROWS
    assert "plaintext-beside-vectors" not in {one["code"] for one in seen.json["findings"]}
    store: VectorStore
    with open_store(dest) as store:
        assert store.info().metric == "euclidean"


HOSTILE = "\x1b[2J\x1b]0;x\x07 \x9b31m \x7f \u202e \u2028 \nreconciled: 0 \rvecveil: all is well"


@pytest.mark.parametrize("name", ["scan", "migrate", "reconcile", "protect"])
def test_names_control_no_terminal(name: str, tmp_path: Path, vectors_protector: Path) -> None:
    """Names of fields, columns and ids are whatever others wrote."""
    location, ids = f"sqlite-vec:{tmp_path}/rows.db#notes", tmp_path / "ids.txt"
    text = "a text of more than five words"
    fields = [{f"field {HOSTILE}": text, f"email {HOSTILE}": "a@b.example"} for _ in range(3)]
    with in_this_process(location) as store:
        store.create(N, metric="cosine")
        store.write(Batch(tuple(f"{i}{HOSTILE}" for i in range(3)), np.eye(3, N, dtype=np.float32), tuple(fields)))
    ids.write_text("another\n")
    write_csv(tmp_path / "notes.csv", [f"column {HOSTILE}", "other"], [[text, text]])
    commands: dict[str, list[list[object]]] = {
        "scan": [["scan", location], ["scan", location, "--json", "-"]],
        "migrate": [
            ["migrate", location, f"sqlite-vec:{tmp_path}/to.db#notes", "-p", vectors_protector, *keep]
            for keep in ([], ["--drop", f"field {HOSTILE}"])
        ],
        "reconcile": [["reconcile", location, "--ids", ids], ["reconcile", location, "--ids", ids, "--json"]],
        "protect": [
            ["protect", tmp_path / "notes.csv", "-p", vectors_protector, "-o", tmp_path / "out.parquet", *wrong]
            for wrong in ([], ["--text-column", HOSTILE], ["--text-column", "other", "--carry", HOSTILE])
        ],
    }
    said = ""
    for arguments in commands[name]:
        done = run(*arguments)
        said += done.out + done.err
    assert "x1b" in said  # control: the names are printed
    assert all(char.isprintable() or char == "\n" for char in said)
    assert not any(line.startswith(("reconciled", "vecveil: all")) for line in said.splitlines())
