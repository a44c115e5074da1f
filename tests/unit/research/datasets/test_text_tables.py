"""Texts in one table: identifiers, entities, notes, and the layouts that stand in one file each."""

from __future__ import annotations

import pytest

from harness.experiment_data import CANARY, refusal
from research.datasets import DATASETS, TextSet, open_dataset

SPAN = {"start": 0, "end": 3, "label": "PERSON", "text": "Ada"}
ROWS = [
    {"id": "1", "split": "train", "text": "Ada was here", "spans": [SPAN], "masked": "{{name}}"},
    {"id": "2", "split": "validation", "text": "nobody", "spans": [], "masked": "nobody"},
    {"id": "3", "split": "test", "text": "Ada left", "spans": [SPAN], "masked": "{{name}}"},
]
ANNOTATED = {
    "pii-synth": "pii/presidio_synth_v2.jsonl.gz",
    "pii-large": "pii/presidio_generated_large.jsonl.gz",
    "asq-phi": "pii/asq_phi.jsonl.gz",
    "ncbi-disease": "concepts/ncbi_disease.jsonl.gz",
    "bc5cdr": "concepts/bc5cdr_sentences.jsonl.gz",
    "wnut17": "concepts/wnut17.jsonl.gz",
    "broad-twitter": "concepts/broad_twitter.jsonl.gz",
    "wikigold": "concepts/wikigold.jsonl.gz",
    "sec-filings": "concepts/sec_filings.jsonl.gz",
}


@pytest.mark.parametrize("name", ANNOTATED)
def test_annotated_texts(data, name):
    data.lines(ANNOTATED[name], ROWS)
    found = open_dataset(name, data.path)
    assert isinstance(found, TextSet)
    assert found.texts == ("Ada was here", "nobody", "Ada left")
    assert found.split == ("train", "dev", "test")
    assert found.spans == (({"start": 0, "end": 3, "label": "PERSON"},), (), found.spans[0])
    assert found.groups.tolist() == ([0, 1, 0] if name in ("pii-synth", "pii-large") else [0, 1, 2])
    assert found.labels is None


def test_ade_table(data):
    rows = [
        {"split": "train", "pmid": "11", "text": "rash", "label": 1, "spans": []},
        {"split": "test", "pmid": "10", "text": "none", "label": 0, "spans": []},
        {"split": "train", "pmid": "11", "text": "again", "label": 0, "spans": []},
    ]
    data.lines("ade/ade_corpus_v2.jsonl.gz", rows)
    found = open_dataset("ade", data.path)
    assert found.labels == ("adverse_event", "none", "none")
    assert found.groups.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("name", "file", "label", "expected"),
    [
        ("aci-bench", "clinical/aci_bench.jsonl.gz", None, None),
        ("mts-dialog", "clinical/mts_dialog.jsonl.gz", "GENHX", "GENHX"),
        ("mtsamples", "clinical/mtsamples_tenth.jsonl.gz", 1, "surgery"),
    ],
)
def test_clinical_notes(data, name, file, label, expected):
    data.lines(file, [{"split": "test1", "text": "a note", "label": label, "dialogue": "x"}])
    found = open_dataset(name, data.path)
    assert (found.texts, found.split) == (("a note",), ("test1",))
    assert found.labels == (None if expected is None else (expected,))
    assert found.spans is None


def test_parquet_tables(data):
    columns = {"split": ["train", "test"], "text": ["a", "b"], "label": [1, 0]}
    names = {**columns, "label_name": ["World", "Sports"]}
    data.parquet("classification/sst2.parquet", columns)
    data.parquet("classification/financial_phrasebank.parquet", names)
    data.parquet("classification/ag_news_train_subset.parquet", names)
    data.parquet("classification/ag_news_test.parquet", {**names, "title": ["t", "u"]})
    data.parquet("lm/sentences.parquet", {"source": ["x", "y"], "text": ["a", "b"]})
    assert open_dataset("sst2", data.path).labels == ("positive", "negative")
    assert open_dataset("phrasebank", data.path).labels == ("World", "Sports")
    news = open_dataset("agnews", data.path)
    assert (news.texts, news.labels) == (("a", "b") * 2, ("World", "Sports") * 2)
    assert news.groups.tolist() == [0, 1, 2, 3]
    assert news.split == ("train", "test") * 2
    sentences = open_dataset("sentences", data.path)
    assert (sentences.texts, sentences.labels, sentences.split) == (("a", "b"), ("x", "y"), None)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"text": None}, ("text_column", "row 4")),
        ({"text": CANARY, "spans": [{**SPAN, "end": 99}]}, ("spans", "0:99", "row 4")),
        ({"text": CANARY, "spans": [{**SPAN, "start": 3}]}, ("spans", "3:3", "row 4")),
        ({"text": CANARY, "spans": [{**SPAN, "start": True}]}, ("spans", "row 4")),
        ({"text": CANARY, "spans": [{"start": 0, "end": 2}]}, ("spans", "row 4")),
        ({"text": CANARY, "spans": [CANARY]}, ("spans", "row 4")),
        ({"text": CANARY, "spans": CANARY}, ("spans", "a list", "row 4")),
        ({"text": CANARY, "spans": [], "split": None}, ("split", "row 4")),
    ],
)
def test_wrong_rows(data, changed, words):
    data.lines(ANNOTATED["wnut17"], [*ROWS, {"split": "test", **changed}])
    message = refusal(open_dataset, "wnut17", data.path)
    assert all(word in message for word in ("wnut17.jsonl.gz", *words))


@pytest.mark.parametrize("label", [2, None, CANARY, True])
def test_a_class_that_is_none(data, label):
    row = {"split": "train", "pmid": "1", "text": CANARY, "label": label, "spans": []}
    data.lines("ade/ade_corpus_v2.jsonl.gz", [{**row, "label": 0}, row])
    message = refusal(open_dataset, "ade", data.path)
    assert all(word in message for word in ("ade_corpus_v2.jsonl.gz", "label", "row 2"))


def test_a_truncated_file(data):
    data.lines(ANNOTATED["wnut17"], ROWS * 50)
    path = data.path / ANNOTATED["wnut17"]
    path.write_bytes(path.read_bytes()[:60])
    message = refusal(open_dataset, "wnut17", data.path)
    assert all(word in message for word in ("wnut17.jsonl.gz", "gzip"))


def test_every_set_says_what_it_is():
    for name, info in DATASETS.items():
        assert (info.name, info.what[-1], info.source[-1], info.terms[-1]) == (name, ".", ".", ".")
