"""``vecveil audit`` on real vectors: record, page, table, and the labelled tasks that it takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.command_line import Outcome, run, write_csv


@pytest.fixture(scope="session")
def audited(notes: Path, notes_protector: Path) -> tuple[Path, Outcome]:
    """One audit with everything that can be asked of it."""
    folder = notes.parent
    pairs = [
        (f"a dog number {i}", f"a dog count {i}" if i % 2 else "the moon", i % 2 * 5)
        for i in range(40)
    ]
    write_csv(folder / "sts.csv", ["sentence1", "sentence2", "score"], pairs)
    beir = folder / "beir"
    beir.mkdir()
    texts = ["green tea", "red wine", "deep sea", "high hills"]
    (beir / "corpus.jsonl").write_text(
        "".join(
            json.dumps({"_id": str(i), "title": "", "text": t}) + "\n" for i, t in enumerate(texts)
        )
    )
    (beir / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": f"q{i}", "text": t}) + "\n" for i, t in enumerate(texts))
    )
    (beir / "qrels.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(f"q{i}\t{i}\t1\n" for i in range(3))
    )
    done = run(
        "audit", notes, "-p", notes_protector, "--concept", folder / "concept.yaml",
        "--json", folder / "audit.json", "--html", folder / "audit.html", "--group-column", "id",
        "--label-column", "domain", "--sts", folder / "sts.csv", "--retrieval", beir,
    )  # fmt: skip
    return folder, done


def test_an_audit_writes_its_record_and_page_and_prints_the_table(
    audited: tuple[Path, Outcome],
) -> None:
    folder, done = audited
    assert done.code == 0, done.err
    assert "How many of the concept's words an attacker reads" in done.out
    record = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    assert record["schema"] == "vecveil.audit/2"
    assert record["split"]["unit"] == "group of texts with one id"
    assert {"similarity", "neighbours", "sts", "retrieval", "classification"} <= set(
        record["utility"]
    )
    assert record["utility"]["retrieval"]["n"] == 3
    assert all(term["term"] is None for term in record["terms"])
    assert "<html" in (folder / "audit.html").read_text(encoding="utf-8")
    assert "vecveil audit" in record["command"]
    assert "--concept concept.yaml --json audit.json" in record["command"]
    assert "/" not in record["command"]


def test_an_audit_record_on_stdout_is_pure(
    tmp_path: Path, notes: Path, notes_protector: Path
) -> None:
    done = run(
        "audit", notes, "-p", notes_protector, "--concept", notes.with_name("concept.yaml"),
        "--json", "-", "--show-terms", "--limit", 300,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert done.json["texts"]["total"] == 300
    assert any(term["term"] for term in done.json["terms"])
    assert "an attacker reads" in done.err
