"""Retrieval sets: the layout of BEIR, and the one with a single file of judgements."""

from __future__ import annotations

from functools import partial

import pytest

from harness.experiment_data import CANARY, refusal
from research.datasets import DatasetInfo, Place, RetrievalSet, open_dataset, read_beir

CORPUS = [
    {"_id": "d1", "title": "Head", "text": "body"},
    {"_id": "d2", "title": "", "text": "no title", "metadata": {}},
    {"_id": "d3", "title": "only a title", "text": ""},
    {"_id": 4, "title": None, "text": "a number for an id"},
]
QUERIES = [
    {"_id": "q1", "text": "first", "metadata": {"x": 1}},
    {"_id": "q2", "text": "second"},
    {"_id": "q3", "text": "never judged"},
]
HEADER = "query-id\tcorpus-id\tscore\n"


def write_beir(data, folder="fiqa", gz="", corpus=CORPUS, queries=QUERIES, dev="q2\t4\t1\n"):
    data.lines(f"{folder}/corpus.jsonl{gz}", corpus)
    data.lines(f"{folder}/queries.jsonl{gz}", queries)
    data.text(f"{folder}/qrels/test.tsv{gz}", HEADER + "q1\td1\t2\nq1\td2\t1\nq1\td3\t0\n")
    if dev:
        data.text(f"{folder}/qrels/dev.tsv{gz}", HEADER + dev)


@pytest.mark.parametrize("gz", ["", ".gz"])
@pytest.mark.parametrize(("name", "folder"), [("fiqa", "fiqa"), ("nfcorpus", "beir/nfcorpus")])
def test_the_layout_of_beir(data, name, folder, gz):
    write_beir(data, folder, gz)
    found = open_dataset(name, data.path)
    assert isinstance(found, RetrievalSet)
    assert found.document_ids == ("d1", "d2", "d3", "4")
    assert found.documents == ("Head. body", "no title", "only a title", "a number for an id")
    assert (found.query_ids, found.queries) == (("q1", "q2"), ("first", "second"))
    assert found.query_split == ("test", "dev")
    assert found.relevant == {"q1": {"d1": 2, "d2": 1}, "q2": {"4": 1}}
    assert not found.same_pool


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("fiqa", "retrieval/fiqa_subset"),
        ("nfcorpus", "retrieval/nfcorpus_devtest"),
        ("cranfield", "retrieval/cranfield"),
        ("cisi", "cisi"),
        ("med", "retrieval/med"),
        ("npl", "retrieval/npl"),
        ("quora", "retrieval/quora_pairs"),
    ],
)
def test_one_file_of_judgements(data, name, folder):
    data.lines(f"{folder}/corpus.jsonl.gz", CORPUS)
    data.lines(f"{folder}/queries.jsonl.gz", QUERIES)
    rows = "query-id\tcorpus-id\tscore\tsplit\nq1\td1\t1\tvalid\nq2\td2\t1\ttest\n"
    data.text(f"{folder}/qrels.tsv", rows)
    found = open_dataset(name, data.path)
    assert found.query_split == ("dev", "test")
    assert found.same_pool == (name == "quora")


def test_the_whole_set_goes_before_a_part_of_it(data):
    write_beir(data, "retrieval/fiqa_subset", corpus=CORPUS[:2], dev="")
    (data.path / "retrieval/fiqa_subset/qrels/test.tsv").unlink()
    data.text("retrieval/fiqa_subset/qrels.tsv", HEADER + "q1\td1\t1\n")
    assert len(open_dataset("fiqa", data.path).documents) == 2
    write_beir(data, "fiqa")
    assert len(open_dataset("fiqa", data.path).documents) == 4


def test_some_splits(data):
    write_beir(data)
    place = Place(("fiqa",), ("corpus.jsonl*",), partial(read_beir, splits=("test",)))
    found = open_dataset(DatasetInfo("fiqa-test", "retrieval", "One split.", (place,)), data.path)
    assert (found.name, found.query_ids) == ("fiqa-test", ("q1",))


@pytest.mark.parametrize(
    ("dev", "words"),
    [
        (f"{CANARY}\td1\t1\n", ("dev.tsv", "query-id", "row 1")),
        (f"q2\td1\t1\nq2\t{CANARY}\t1\n", ("dev.tsv", "corpus-id", "row 2")),
        (f"q2\td1\t{CANARY}\n", ("dev.tsv", "score", "row 1")),
        ("q1\td4\t1\n", ("dev.tsv", "corpus-id", "row 1")),
        ("q2\td1\n", ("dev.tsv", "row 1", "2 fields")),
    ],
)
def test_wrong_judgements(data, dev, words):
    write_beir(data, dev=dev)
    message = refusal(open_dataset, "fiqa", data.path)
    assert all(word in message for word in words)


def test_a_query_in_two_splits(data):
    write_beir(data, dev="q1\td1\t1\n")
    message = refusal(open_dataset, "fiqa", data.path)
    assert all(word in message for word in ("test.tsv", "query-id", "one split", "row 1"))


@pytest.mark.parametrize(
    ("corpus", "words"),
    [
        ([*CORPUS, {"_id": "d1", "text": CANARY}], ("corpus.jsonl", "_id", "row 5")),
        ([*CORPUS, {"text": CANARY}], ("corpus.jsonl", "_id", "row 5")),
        ([*CORPUS, {"_id": "d5"}], ("corpus.jsonl", "row 5")),
        ([*CORPUS, {"_id": "d5", "text": "x", "title": 7}], ("corpus.jsonl", "title", "row 5")),
        ([{"id": "d1", "text": CANARY}], ("corpus.jsonl", "'_id'")),
    ],
)
def test_wrong_documents(data, corpus, words):
    write_beir(data, corpus=corpus)
    message = refusal(open_dataset, "fiqa", data.path)
    assert all(word in message for word in words)


def test_a_broken_line(data):
    write_beir(data)
    data.text("fiqa/queries.jsonl", '{"_id": "q1", "text": "a"}\n{"_id": ' + CANARY)
    message = refusal(open_dataset, "fiqa", data.path)
    assert all(word in message for word in ("queries.jsonl", "line 2"))


def test_no_positive_judgement(data):
    write_beir(data, dev="")
    data.text("fiqa/qrels/test.tsv", HEADER + "q1\td1\t0\n")
    message = refusal(open_dataset, "fiqa", data.path)
    assert "judgements" in message
