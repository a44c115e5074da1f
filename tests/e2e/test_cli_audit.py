"""``vecveil audit`` on real vectors: record, page, table, and the labelled tasks that it takes."""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import vecveil
from harness.command_line import TOKEN_INFERENCE_ALONE, Outcome, run, write_csv
from harness.documents import ROOT


@pytest.fixture(scope="session")
def audited(notes: Path, notes_protector: Path) -> tuple[Path, Outcome]:
    """One audit with every file and task that it takes."""
    folder = notes.parent
    pairs = [(f"a dog number {i}", f"a dog count {i}" if i % 2 else "the moon", i % 2 * 5) for i in range(40)]
    write_csv(folder / "sts.csv", ["sentence1", "sentence2", "score"], pairs)
    beir = folder / "beir"
    beir.mkdir()
    texts = ["green tea", "red wine", "deep sea", "high hills"]
    (beir / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": str(i), "title": "", "text": t}) + "\n" for i, t in enumerate(texts))
    )
    (beir / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": f"q{i}", "text": t}) + "\n" for i, t in enumerate(texts))
    )
    (beir / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(f"q{i}\t{i}\t1\n" for i in range(3)))
    done = run(
        f"audit {notes} -p {notes_protector} --concept {folder / 'concept.yaml'} --json {folder / 'audit.json'} "
        f"--html {folder / 'audit.html'} --group-column id --label-column domain --sts {folder / 'sts.csv'} "
        f"--retrieval {beir} --limit 300 --pack {folder / 'pack'}",
        *TOKEN_INFERENCE_ALONE[2:],  # with probes
    )
    return folder, done


def test_an_audit_writes_its_record_and_page_and_prints_the_table(audited: tuple[Path, Outcome]) -> None:
    folder, done = audited
    assert done.code == 0, done.err
    assert "How many of the concept's words an attacker recovers" in done.out
    record = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    assert record["schema"] == "vecveil.audit/2"
    assert record["split"]["unit"] == "group of texts with one id"
    assert {"similarity", "neighbours", "sts", "retrieval", "classification"} <= set(record["utility"])
    assert record["utility"]["retrieval"]["n"] == 3
    files = json.loads((folder / "pack" / "pack.json").read_text(encoding="utf-8"))["data"]["files"]
    assert [file["name"] for file in files[3:]] == ["sts.csv", "corpus.jsonl", "qrels.tsv", "queries.jsonl"]
    assert all(term["term"] is None for term in record["terms"])
    assert "<html" in (folder / "audit.html").read_text(encoding="utf-8")
    assert "vecveil audit" in record["command"]
    assert "--concept concept.yaml --json audit.json" in record["command"]
    assert "/" not in record["command"]
    given = ("-p", "no.vecveil", "--concept", "no.yaml")  # refused before anything is read
    again = run("audit", "no.csv", *given, "--html", folder / "audit.html")
    assert again.code == 1
    assert "`--html` audit.html exists. Choose another name, or replace it with --force." in again.err
    assert "--force" in run("audit", "no.csv", *given, "--pack", folder / "pack").err


def test_a_record_on_stdout_is_pure_and_every_report_can_be_written(
    tmp_path: Path, notes: Path, notes_protector: Path
) -> None:
    done = run(
        f"audit {notes} -p {notes_protector} --concept {notes.with_name('concept.yaml')} --json - --show-terms "
        f"--limit 300 --md {tmp_path / 'a.md'} --csv {tmp_path / 'a.csv'} --pack {tmp_path / 'pack'} --work "
        f"{tmp_path / 'work'}",
        *TOKEN_INFERENCE_ALONE,
    )
    assert done.code == 0, done.err
    assert done.json["texts"]["total"] == 300
    assert any(term["term"] for term in done.json["terms"])
    assert "an attacker recovers" in done.err
    assert (tmp_path / "a.md").read_text(encoding="utf-8").count("|") > 50
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["family"] for row in rows} == {"token-inference"}
    assert "R-precision" in {row["metric"] for row in rows}
    pack = json.loads((tmp_path / "pack" / "pack.json").read_text(encoding="utf-8"))
    assert pack["protector"]["fingerprint"] == vecveil.load(notes_protector).fingerprint
    assert [file["name"] for file in pack["data"]["files"]] == ["notes.csv", "notes.vecveil", "concept.yaml"]
    assert list((tmp_path / "work").iterdir()) == []  # complete: nothing is left to go on from


def test_the_pack_is_a_folder(tmp_path: Path, notes: Path, notes_protector: Path) -> None:
    (tmp_path / "pack").touch()
    concept = notes.with_name("concept.yaml")
    done = run("audit", notes, "-p", notes_protector, "--concept", concept, "--pack", tmp_path / "pack")
    assert done.code == 2
    assert "pack is a file" in done.err


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory, notes: Path, lsa: Path) -> Path:
    """A store of twice as many vectors as there are known texts, and the sample that says which they are."""
    folder = tmp_path_factory.mktemp("store")
    with notes.open(encoding="utf-8", newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)][:500]
    X = vecveil.load_encoder(str(lsa)).encode(texts)
    rows = np.random.default_rng(0).permutation(2 * len(texts))[: len(texts)]
    vectors = np.zeros((2 * len(texts), X.shape[1]), dtype=np.float32)
    vectors[rows] = X
    np.save(folder / "store.npy", vectors)
    write_csv(folder / "sample.csv", ["text", "row"], list(zip(texts, rows.tolist(), strict=True)))
    table = {"note": texts, "embedding": pa.FixedSizeListArray.from_arrays(X.reshape(-1), X.shape[1])}
    pq.write_table(pa.table(table), folder / "store.parquet")
    return folder


def test_a_store_is_audited_without_a_protector(store: Path, notes: Path, lsa: Path) -> None:
    concept = notes.with_name("concept.yaml")
    done = run(
        f"audit {store / 'sample.csv'} --vectors {store / 'store.npy'} --row-column row --text-column "
        f"text --concept {concept} --json - --encoder {lsa}",
        *TOKEN_INFERENCE_ALONE,
    )
    assert done.code == 0, done.err
    record = done.json
    assert record["kind"] == "store"
    worst = next(a for a in record["attacks"] if a["name"] == record["worst"])
    assert worst["low"] > worst["chance"]
    assert [each["code"] for each in record["lint"]] == ["vectors-not-protected"]


def test_texts_beside_their_vectors_are_warned_of(store: Path, notes: Path) -> None:
    done = run(
        f"audit {store / 'store.parquet'} --concept {notes.with_name('concept.yaml')} --json - --text-column note",
        *TOKEN_INFERENCE_ALONE,
    )
    assert done.code == 0, done.err
    assert [each["code"] for each in done.json["lint"]] == ["plaintext-beside-vectors"]
    assert "contains texts next to the vectors" in done.err


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--vectors", "store.npy"], "one for each text"),
        (["--vectors", "store.npy", "--row-column", "text"], "whole numbers"),
        (["--row-column", "row"], "--vectors"),
        ([], "--vectors FILE"),
        (["--vectors", "store.npy", "--row-column", "row", "--sts", "x.csv"], "protector"),
        (["--vectors", "missing.npy", "--row-column", "row"], "missing.npy"),
    ],
)
def test_bad_stores_are_refused(store: Path, notes: Path, arguments: list[str], match: str) -> None:
    given = [store / a if a.endswith(".npy") else a for a in arguments]
    done = run(
        "audit", store / "sample.csv", "--text-column", "text", "--concept", notes.with_name("concept.yaml"), *given
    )
    assert done.code == 1
    assert match in done.err
    assert "Traceback" not in done.err


def test_the_workflow_fails_a_build_that_leaks_more_and_passes_another(
    tmp_path: Path, audited: tuple[Path, Outcome], notes: Path, notes_protector: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = yaml.safe_load((ROOT / "docs/examples/leakage-gate.yml").read_text(encoding="utf-8"))
    steps = [step.get("run", "") for step in workflow["jobs"]["audit"]["steps"]]
    (command,) = [shlex.split(step) for step in steps if step.startswith("vecveil ")]
    monkeypatch.chdir(tmp_path)
    privacy = tmp_path / "privacy"
    privacy.mkdir()
    for source, name in (
        (notes, "texts.csv"),
        (notes_protector, "protector.vecveil"),
        (notes.with_name("concept.yaml"), "concept.yaml"),
    ):
        (privacy / name).symlink_to(source)
    record = json.loads((audited[0] / "audit.json").read_text(encoding="utf-8"))
    small = ["--text-column", "text", "--limit", 300, "--force", *TOKEN_INFERENCE_ALONE]

    def gate(*more: object, **changed: object) -> Outcome:
        (privacy / "audit.json").write_text(json.dumps(record | changed), encoding="utf-8")
        return run(*command[1:], *small, *more)

    failed = gate()  # the families that are left out here are in the baseline
    assert failed.code == 3, failed.err
    assert "Gate failed: probe was not measured" in failed.err
    assert (tmp_path / "audit.html").exists()
    alone = [each for each in record["attacks"] if each["family"] == "token-inference"]
    rest = {
        "attacks": alone,
        "families": record["families"][:1],
        "frameworks": [],
        "anonymity": record["anonymity"] | {"criteria": []},
    }
    passed = gate("--fail-above", 100, "--fail-if-worse-by", 50, **rest)
    assert passed.code == 0, passed.err
    assert "Gate passed." in passed.err
    for wrong in ({"concept": "other"}, {"schema": "vecveil.audit/1"}, {"tier": "full"}):
        refused = gate(**wrong)
        assert refused.code == 2
        assert next(iter(wrong)) in refused.err
    assert run(*command[1:], "--baseline", privacy / "none.json").code == 2
    assert run("audit", notes, "--concept", notes.with_name("concept.yaml"), "--fail-if-worse-by", 2).code == 2
    assert gate("--json", privacy / "audit.json").code == 1  # the baseline is an input
