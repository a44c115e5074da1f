"""Whole columns in memory."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vecveil.errors import VecveilError
from vecveil.texts.tables import read_texts
from vecveil.texts.tables.reading import read_corpus

CANARY = "zebra-7731"
SPANS = [{"start": 0, "end": 3, "label": "drug"}]


def test_json_lines_with_columns(write):
    rows = [{"text": "abc d", "spans": SPANS, "id": 1}, {"text": "xyz", "spans": None, "id": 2}, {"text": "x"}]
    path = write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    table = read_texts(path, columns=["id", "spans"])
    assert table.texts == ["abc d", "xyz", "x"]
    assert table.columns == {"id": [1, 2, None], "spans": [SPANS, None, None]}
    assert (table.text_column, table.embeddings) == ("text", None)


def test_parquet_with_structs_and_vectors(tmp_path):
    columns = {
        "text": ["abc", "d"],
        "spans": [SPANS, []],
        "embedding": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
    }
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path)
    table = read_texts(path, columns=["spans"], embeddings=True)
    assert table.columns == {"spans": [SPANS, []]}
    np.testing.assert_array_equal(table.embeddings, [[1, 2], [3, 4]])
    assert read_texts(path).embeddings is None


@pytest.mark.parametrize("limit", [1, 4096, 5000, 9000])
def test_limit(write, limit):
    path = write("a.csv", "text,n\n" + "".join(f"t{i},{i}\n" for i in range(6000)))
    found = read_texts(path, columns=["n"], limit=limit)
    assert len(found.texts) == len(found.columns["n"]) == min(limit, 6000)
    assert found.columns["n"][-1] == str(min(limit, 6000) - 1)


def test_missing_columns(write, refuses):
    path = write("a.csv", "text,spans\na,\n")
    with refuses("`columns`", "'spams'", "Did you mean 'spans'?"):
        read_texts(path, columns=["spams"])


def test_vectors_without_texts(tmp_path, refuses):
    np.save(tmp_path / "a.npy", np.ones((2, 2)))
    with refuses("`text_column`"):
        read_texts(tmp_path / "a.npy")


def test_repr_shows_no_contents(write):
    found = read_texts(write("a.csv", f"text,b\n{CANARY},{CANARY}\n"), columns=["b"])
    assert CANARY not in repr(found)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", "title,body\na,b\n", "a.csv needs a column `text`"),
        ("a.jsonl", '{"text": "a"}\n{"text": null}\n', "a.jsonl needs a column `text`"),
        ("a.html", "a", "a.html has none of the suffixes"),
        ("a.txt", " \n\n", "a.txt has no text"),
        ("a.csv", "", "a.csv is empty"),
    ],
)
def test_a_file_without_texts_is_named_with_its_argument(write, name, content, says):
    with pytest.raises(VecveilError, match=f"^`attacker_texts`: {says}") as refused:
        read_corpus(write(name, content), param="attacker_texts")
    assert refused.value.param == "attacker_texts"
