"""Whole columns in memory: texts with spans and labels."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vecveil.data import read_texts

CANARY = "zebra-7731"
SPANS = [{"start": 0, "end": 3, "label": "drug"}]


def test_json_lines_with_spans_labels_and_columns(write):
    rows = [
        {"text": "abc d", "spans": SPANS, "tags": ["a"], "id": 1},
        {"text": "xyz", "spans": None, "tags": [], "id": 2},
        {"text": "x"},
    ]
    path = write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    found = read_texts(path, spans_column="spans", labels_column="tags", columns=["id", "spans"])
    assert found.texts == ["abc d", "xyz", "x"]
    assert found.spans == [[(0, 3, "drug")], [], []]
    assert found.labels == [["a"], [], None]
    assert found.columns == {"id": [1, 2, None], "spans": [SPANS, None, None]}
    assert (found.text_column, found.total, found.embeddings) == ("text", 3, None)


def test_csv_with_json_in_cells(write):
    quoted = json.dumps(SPANS).replace('"', '""')
    path = write("a.csv", f'text,spans,label\nabc d,"{quoted}",yes\nx,,[no\n')
    found = read_texts(path, spans_column="spans", labels_column="label")
    assert found.spans == [[(0, 3, "drug")], []]
    assert found.labels == ["yes", "[no"]


def test_parquet_with_structs_and_vectors(tmp_path):
    table = {
        "text": ["abc", "d"],
        "spans": [SPANS, []],
        "embedding": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
    }
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(table), path)
    found = read_texts(path, spans_column="spans", embeddings=True)
    assert found.spans == [[(0, 3, "drug")], []]
    np.testing.assert_array_equal(found.embeddings, [[1, 2], [3, 4]])
    assert read_texts(path).embeddings is None


@pytest.mark.parametrize("limit", [1, 4096, 5000, 9000])
def test_limit(write, limit):
    path = write("a.csv", "text,n\n" + "".join(f"t{i},{i}\n" for i in range(6000)))
    found = read_texts(path, columns=["n"], limit=limit)
    assert len(found.texts) == len(found.columns["n"]) == min(limit, 6000)
    assert found.total == 6000
    assert found.columns["n"][-1] == str(min(limit, 6000) - 1)


@pytest.mark.parametrize(
    ("spans", "word"),
    [
        ([{"start": 0, "end": 9, "label": CANARY}], "offsets 0:9 in a text of 3 characters"),
        ([{"start": 2, "end": 2, "label": "x"}], "offsets 2:2"),
        ([{"start": -1, "end": 2, "label": "x"}], "offsets -1:2"),
        ([{"start": 0.0, "end": 2, "label": "x"}], "not an integer"),
        ([{"start": True, "end": 2, "label": "x"}], "not an integer"),
        ([{"start": 0, "end": 2, "label": None}], "not a text"),
        ([CANARY], "something else"),
        (CANARY, "something else"),
        ([[0, 1]], "something else"),
    ],
)
def test_wrong_spans(write, refuses, spans, word):
    rows = [{"text": "abc", "spans": []}, {"text": "abc", "spans": spans}]
    path = write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    with refuses("spans_column", "row 2", word):
        read_texts(path, spans_column="spans")


def test_missing_columns(write, refuses):
    path = write("a.csv", "text,spans\na,\n")
    for option in ("spans_column", "labels_column"):
        with refuses(f"`{option}`", "'spams'", "Did you mean 'spans'?"):
            read_texts(path, **{option: "spams"})
    with refuses("`columns`"):
        read_texts(path, columns=["nope"])


def test_vectors_without_texts(tmp_path, refuses):
    np.save(tmp_path / "a.npy", np.ones((2, 2)))
    with refuses("`text_column`", "none was found"):
        read_texts(tmp_path / "a.npy")


def test_repr_shows_no_contents(write):
    found = read_texts(write("a.csv", f"text,b\n{CANARY},{CANARY}\n"), columns=["b"])
    assert CANARY not in repr(found)
