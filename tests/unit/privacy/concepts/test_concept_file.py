"""Concept files: every key, and one clear error for each way to get it wrong."""

from __future__ import annotations

import cProfile
import json
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import raises
from vecveil.errors import DataFileError, InvalidInputError
from vecveil.privacy.concepts import Concept
from vecveil.privacy.concepts.concept_file import load_yaml


def read(folder: Path, content: str | bytes) -> Concept:
    path = folder / "concept.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return Concept.from_file(path)


def test_all_keys_combine(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("\ufeffvitamin d\n\n  straße \n", encoding="utf-8")
    concept = read(
        tmp_path,
        "name: drug\nterms: [aspirin, 'no']\nterms_file: more.txt\ncase_sensitive: true\n"
        "patterns: ['\\b\\d+ ?mg\\b']\nspans_column: gold\n",
    )
    assert concept.name == "drug"
    assert concept.columns == ("gold",)
    assert concept.describe()["detectors"][0] == {"kind": "terms", "terms": 4, "case_sensitive": True}
    text = "no aspirin Aspirin 5 mg vitamin d Straße straße z"
    end = len(text)
    bound = concept.with_columns({"gold": [[{"start": end - 1, "end": end}]]})
    found = [text[s.start : s.end] for s in bound.detect([text])[0]]
    assert found == ["no", "aspirin", "5 mg", "vitamin d", "straße", "z"]


def test_only_a_terms_file_or_labels(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("one\ntwo\n")
    assert read(tmp_path, "name: a\nterms_file: t.txt\n").describe()["detectors"][0]["terms"] == 2
    assert read(tmp_path, "name: a\nlabels_column: topic\n").columns == ("topic",)


@pytest.mark.parametrize(
    ("content", "kind", "complaint"),
    [
        ("", DataFileError, "is empty"),
        ("# nothing\n", DataFileError, "is empty"),
        ("name: [secret\n", DataFileError, "line 2"),
        ("name: a\nterms: [secret]]\n", DataFileError, "line 2"),
        ("name: a\nterms: !!python/object/apply:os.system [secret]\n", DataFileError, "line 2"),
        ("name: a\nterms: [&x secret, *y]\n", DataFileError, "line 2"),
        ("name: a\nterms: [2020-13-45]\n", DataFileError, "YAML"),
        (b"name: \xff\xfe secret\n", DataFileError, "'concept.yaml' is not UTF-8: wrong at b"),
        ("name: \x00secret", DataFileError, "YAML"),
        ("[" * 100_000, DataFileError, "YAML"),
        ("? {a: b}\n: c\n", DataFileError, "YAML"),
        ("--- {name: a}\n--- {name: b}\n", DataFileError, "YAML"),
        ("- secret\n", InvalidInputError, "a mapping"),
        ("secret\n", InvalidInputError, "str"),
        ("name: a\nterm: [secret]\n", InvalidInputError, "Did you mean 'terms'?"),
        ("name: a\nsecret: 1\nterms: [x]\n", InvalidInputError, "an unknown key at position 1"),
        ("name: a\n5: 1\nterms: [x]\n", InvalidInputError, "an unknown key at position 1"),
        ("name: a\nterms: [secret]\nterms: [x]\n", DataFileError, "twice, again in line 3"),
        ("name: a\nterms: [{x: 1, x: 2}]\n", DataFileError, "twice, again in line 2"),
        ("terms: [secret]\n", InvalidInputError, "no `name`"),
        ("name: 5\nterms: [secret]\n", InvalidInputError, "`name` must be a string"),
        ("name: a\n", InvalidInputError, "at least one of terms, terms_file, patterns"),
        ("name: a\nterms:\n", InvalidInputError, "`terms` must be a list of strings"),
        ("name: a\nterms: secret\n", InvalidInputError, "`terms` must be a list of strings"),
        ("name: a\nterms: []\n", InvalidInputError, "at least one"),
        ("name: a\nterms: [secret, no]\n", InvalidInputError, "In YAML, put"),
        ("name: a\nterms: [secret, 5]\n", InvalidInputError, "int at position 1"),
        ("name: a\npatterns: ['(secret']\n", InvalidInputError, "position 0"),
        ("name: a\npatterns: secret\n", InvalidInputError, "`patterns` must be a list"),
        ("name: a\npatterns: [b]\ncase_sensitive: true\n", InvalidInputError, "`case_sensitive`"),
        ("name: a\nterms: [b]\ncase_sensitive: 1\n", InvalidInputError, "true or false"),
        ("name: a\nterms_file: none.txt\n", DataFileError, "File not found: 'none.txt' (named by terms_file in"),
        ("name: a\nterms_file: concept.yaml/x\n", DataFileError, "terms_file"),
        ('name: a\nterms_file: "a\\0b"\n', DataFileError, "Cannot read"),
        ("name: a\nterms_file: .\n", DataFileError, "not a regular file"),
        ("name: a\nentities: EMAIL\n", InvalidInputError, "`entities` takes a list of types or"),
        ("name: a\nentities: {engine: spacy}\n", InvalidInputError, "types"),
        ("name: a\nentities: {type: [A]}\n", InvalidInputError, "Did you mean 'types'?"),
        ("name: a\nentities: {types: [A], engine: x}\n", InvalidInputError, "`engine`"),
        ("name: a\nspans_column: 3\n", InvalidInputError, "the name of a column"),
        ("name: a\nspans_column: ''\n", InvalidInputError, "the name of a column"),
        ("name: a\nspans_column: s\nlabels_column: l\n", InvalidInputError, "`labels`"),
    ],
)
def test_refused_files(tmp_path: Path, content: str | bytes, kind: type[Exception], complaint: str) -> None:
    with pytest.raises(kind) as error:
        read(tmp_path, content)
    assert complaint in str(error.value)
    assert "secret" not in str(error.value)
    assert str(tmp_path) not in str(error.value)


BOMB = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcd", "bcde", strict=True))


@pytest.mark.parametrize(
    "content",
    [
        BOMB + "name: *e\n",
        "x: &x {name: zebra}\n<<: *x\n",
        "name: a\n<<: {terms: [zebra]}\n",
        "name: a\n? !!merge zebra\n: {terms: [zebra]}\n",
        "name: a\nterms: &t [zebra]\n",
    ],
)
def test_anchors_aliases_and_merge_keys_are_refused(tmp_path: Path, content: str) -> None:
    with raises("E-DATA-FILE", "path") as caught:
        read(tmp_path, content)
    assert "zebra" not in str(caught.value)


def test_quoted_signs_are_terms(tmp_path: Path) -> None:
    found = read(tmp_path, "name: a\nterms: ['<<', '*b', '&c', d]\n").describe()
    assert found["detectors"][0]["terms"] == 4


def test_a_terms_file_must_be_regular_and_not_too_large(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with raises("E-DATA-FILE", "terms_file"):
        read(tmp_path, "name: a\nterms_file: pipe\n")
    with open(tmp_path / "large.txt", "wb") as file:
        file.truncate((64 << 20) + 1)
    with raises("E-DATA-FILE", "terms_file"):
        read(tmp_path, "name: a\nterms_file: large.txt\n")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_names_the_encoding(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "t.txt").write_text("Sjögren\n", encoding)
    (tmp_path / "c.yaml").write_text("name: a\nterms: [O’Brien]\nterms_file: t.txt\n", encoding)
    assert len(Concept.from_file(tmp_path / "c.yaml").detect(["O'Brien of Sjögren"], show_progress=False)[0]) == 2


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16-le", "utf-16-be"])
def test_the_bytes_of_a_terms_file_suggest_their_encoding(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "t.txt").write_bytes("aspirin\nO’Brien\n".encode(encoding))
    with pytest.raises(DataFileError, match=f"iconv -f {encoding} -t utf-8"):
        read(tmp_path, "name: a\nterms_file: t.txt\n")
    (tmp_path / "t.txt").write_text("O\x92Brien\n", "utf-8")
    with pytest.warns(UserWarning, match="control characters"):
        read(tmp_path, "name: a\nterms_file: t.txt\n")


def test_an_empty_terms_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("\n \n")
    with raises("E-DATA-FILE", "terms_file"):
        read(tmp_path, "name: a\nterms_file: t.txt\n")


def test_a_missing_file_is_one_error(tmp_path: Path) -> None:
    with raises("E-DATA-FILE", "path"):
        Concept.from_file(tmp_path / "none.yaml")


TERM = st.text(st.characters(exclude_categories=("Cc", "Cn", "Cs", "Zl", "Zp")), min_size=1)
AWKWARD = st.sampled_from(["no", "1.5", "<<", "*a", "a: b", "- x", "#c", "'", "\\"])


@given(st.lists(TERM | AWKWARD, min_size=1, max_size=6))
@settings(max_examples=150, deadline=None)
def test_both_loaders_of_pyyaml_read_the_same_terms(terms: list[str]) -> None:
    text = "name: a\nterms:\n" + "".join(f"- {json.dumps(term, ensure_ascii=False)}\n" for term in terms)
    text += "more: [" + ", ".join("'" + term.replace("'", "''") + "'" for term in terms) + "]\n"
    content = load_yaml(text, "concept.yaml", owner="test")
    assert content == yaml.load(text, Loader=yaml.SafeLoader)
    assert content["terms"] == terms


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML without libyaml")
def test_a_long_list_is_not_parsed_in_python() -> None:
    # PyYAML's loader in Python makes some 250 calls a term: 90 s for 300,000 terms.
    text = "name: a\nterms:\n" + "".join(f"- term {i}\n" for i in range(1000))
    profile = cProfile.Profile()
    profile.runcall(load_yaml, text, "concept.yaml", owner="test")
    assert sum(entry.callcount for entry in profile.getstats()) < 50_000
