"""The bundled notes: that they are what the docs say, and that the generator makes them."""

import collections
import gzip
import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from benchmarks.demo_notes import DOMAINS, GRAMMAR, generate_notes, save_notes
from harness.errors import raises
from vecveil.cli.demo.corpus import CONCEPT_FILE, NOTES_FILE, Note, load_notes

LABELS = {"CONDITION", "DRUG", "PERSON", "LOCATION", "ORGANISATION", "DATE", "AMOUNT", "ACCOUNT", "PHONE", "EMAIL"}


def concept_terms() -> list[str]:
    """Return the conditions and drugs of the vocabulary, sorted without regard to case."""
    fields = yaml.safe_load((GRAMMAR / "vocabulary.yaml").read_text(encoding="utf-8")).values()
    conditions = {c for field in fields for c in field["conditions"]}
    drugs = {d for field in fields for drugs in field["conditions"].values() for d in drugs}
    return sorted(conditions | drugs, key=str.lower)


@pytest.fixture(scope="module")
def notes() -> list[Note]:
    return load_notes()


def concept_values(note: Note) -> set[str]:
    return {s.value.lower() for s in note.spans if s.label in ("CONDITION", "DRUG")}


def test_counts_are_as_documented(notes: list[Note]) -> None:
    assert len(notes) == 3000
    assert collections.Counter(n.domain for n in notes) == dict.fromkeys(DOMAINS, 1000)
    assert len({n.id for n in notes}) == 3000
    assert NOTES_FILE.stat().st_size <= 600_000
    assert 0.55 <= sum(n.has_concept for n in notes) / 3000 <= 0.75


def test_every_record_says_that_it_is_synthetic() -> None:
    records = [json.loads(line) for line in gzip.decompress(NOTES_FILE.read_bytes()).splitlines()]
    assert all(record["synthetic"] is True for record in records)
    assert all(set(r) == {"id", "domain", "synthetic", "text", "spans"} for r in records)


def test_spans_are_exact_and_in_order(notes: list[Note]) -> None:
    for note in notes:
        end = 0
        for span in note.spans:
            assert note.text[span.start : span.end] == span.value
            assert span.label in LABELS
            assert span.start >= end
            assert span.end > span.start
            end = span.end


def test_gold_spans_hold_every_mention_of_the_concept(notes: list[Note]) -> None:
    terms = sorted(concept_terms(), key=len, reverse=True)
    expression = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, terms)) + r")(?!\w)", re.I)
    for note in notes:
        gold = [(s.start, s.end) for s in note.spans if s.label in ("CONDITION", "DRUG")]
        assert [m.span() for m in expression.finditer(note.text)] == gold, note.id


def test_terms_are_seen_often_enough_to_be_learnt(notes: list[Note]) -> None:
    counts = collections.Counter(value for note in notes for value in concept_values(note))
    assert sum(count >= 15 for count in counts.values()) >= 120
    assert set(counts) == {term.lower() for term in concept_terms()}
    fields = yaml.safe_load((GRAMMAR / "vocabulary.yaml").read_text(encoding="utf-8")).values()
    conditions = [c for field in fields for c in field["conditions"]]
    drugs = {d for field in fields for drugs in field["conditions"].values() for d in drugs}
    assert len(conditions) == len(set(conditions)) >= 60
    assert len(drugs) >= 60


def test_nothing_points_to_a_real_person(notes: list[Note]) -> None:
    for span in (s for n in notes for s in n.spans):
        if span.label == "EMAIL":
            assert re.search(r"@example\.(com|org|net)$", span.value)
        if span.label == "PHONE":
            assert re.fullmatch(r"\d{3}-555-01\d\d|020 7946 0\d{3}", span.value)


def test_concept_file_lists_the_vocabulary() -> None:
    concept = yaml.safe_load(CONCEPT_FILE.read_text(encoding="utf-8"))
    assert concept == {"name": "health", "case_sensitive": False, "terms": concept_terms()}


def test_saving_is_deterministic_and_reads_back(tmp_path: Path) -> None:
    made = generate_notes(30, seed=1)
    save_notes(made, tmp_path / "a.gz")
    save_notes(made, tmp_path / "b.gz")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert load_notes(tmp_path / "a.gz") == made


def test_the_bundled_file_is_what_saving_it_would_write(notes: list[Note], tmp_path: Path) -> None:
    save_notes(notes, tmp_path / "again.gz")
    assert gzip.decompress((tmp_path / "again.gz").read_bytes()) == gzip.decompress(NOTES_FILE.read_bytes())


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    whole = NOTES_FILE.read_bytes()
    cases = {
        "truncated": whole[:1000],
        "plain": b"a text",
        "empty": b"",
        "record": gzip.compress(b'{"id": "x"}\n'),
        "list": gzip.compress(b"[1]\n"),
    }
    for name, data in cases.items():
        path = tmp_path / name
        path.write_bytes(data)
        with raises("E-DATA-FILE", "path"):
            load_notes(path)
    with raises("E-DATA-FILE", "path"):
        load_notes(tmp_path / "missing")


def test_reading_needs_neither_faker_nor_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("yaml", "faker"):
        monkeypatch.setitem(sys.modules, package, None)
    assert len(load_notes()) == 3000
