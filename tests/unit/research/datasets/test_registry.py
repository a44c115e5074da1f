"""Opening by name: what is missing, what is not known, and sets of the user's own."""

from __future__ import annotations

import pickle
from functools import partial

import pytest

from harness.errors import raises
from harness.experiment_data import CANARY, refusal
from research.datasets import (
    DATASETS,
    DatasetInfo,
    PairSet,
    Place,
    RetrievalSet,
    TextSet,
    open_dataset,
    read_text_table,
    register_dataset,
    registry,
)
from vecveil.errors import InvalidInputError

NAMES = """sts12 sts13 sts14 sts15 sts16 stsb fiqa nfcorpus quora cranfield cisi med npl ade sst2
phrasebank agnews pii-synth pii-large asq-phi pii-masking-300k mimic3 ncbi-disease bc5cdr wnut17
broad-twitter wikigold sec-filings wikitext2 sentences aci-bench mts-dialog mtsamples"""
PLACE = Place(("own",), ("a.jsonl",), partial(read_text_table, file="a.jsonl", label="topic"))
OWN = DatasetInfo("own-set", "texts", "My texts.", (PLACE,))


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
    """Drop what a test registers."""
    known = dict(DATASETS)
    yield
    registry._known.clear()
    registry._known.update(known)


def test_the_names():
    assert set(DATASETS) == set(NAMES.split())
    kinds = {name: info.kind for name, info in DATASETS.items()}
    assert {n for n in kinds if kinds[n] == "pairs"} == set(NAMES.split()[:6])
    assert {n for n in kinds if kinds[n] == "retrieval"} == set(NAMES.split()[6:13])


@pytest.mark.parametrize("name", NAMES.split())
def test_a_missing_set_says_where_it_was_looked_for(data, name):
    data.path.mkdir()
    info = DATASETS[name]
    places = [word for place in info.places for word in (f"{place.folders[0]}/", *place.needs)]
    message = refusal(open_dataset, name, data.path)
    assert all(word in message for word in (repr(name), "'data'", *places, info.source, info.terms))


def test_a_set_that_is_partly_there(data):
    data.lines("fiqa/corpus.jsonl", [{"_id": "1", "text": "a"}])
    message = refusal(open_dataset, "fiqa", data.path)
    assert "Partly there: fiqa/ lacks queries.jsonl*, qrels/*.tsv*" in message


def test_an_unknown_name_lists_the_names(data):
    data.path.mkdir()
    message = refusal(open_dataset, "stsB", data.path, error=InvalidInputError)
    assert all(word in message for word in ("'stsB'", "nfcorpus", "Did you mean 'stsb'?"))
    message = refusal(open_dataset, "../elsewhere", data.path, error=InvalidInputError)
    assert all(word in message for word in ("register_dataset", "dataset.yaml"))


def test_a_data_folder_that_is_none(data, tmp_path):
    message = refusal(open_dataset, "sts12", data.path)
    assert all(word in message for word in ("data", "not found"))
    data.path.write_text(CANARY)
    message = refusal(open_dataset, "sts12", data.path)
    assert all(word in message for word in ("data", "not found"))
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    message = refusal(open_dataset, "sts12", loop)
    assert all(word in message for word in ("loop", "failed"))


def test_a_folder_of_a_set_that_cannot_be_read(data, monkeypatch):
    data.path.mkdir()
    (data.path / "sts").symlink_to(data.path / "sts")
    message = refusal(open_dataset, "sts12", data.path)
    assert all(word in message for word in ("sts", "failed"))


def test_an_own_set_is_registered(data):
    data.lines("own/a.jsonl", [{"text": "a", "topic": "x"}])
    assert register_dataset(OWN) is OWN
    found = open_dataset("own-set", data.path)
    assert (found.name, found.labels) == ("own-set", ("x",))
    message = refusal(register_dataset, OWN, error=InvalidInputError)
    assert all(word in message for word in ("'own-set'", "replace=True"))
    register_dataset(OWN, replace=True)
    message = refusal(register_dataset, "own-set", error=InvalidInputError)
    assert "DatasetInfo" in message


def test_an_own_set_is_passed_and_can_go_to_a_worker(data):
    data.lines("own/a.jsonl", [{"text": "a", "topic": "x"}])
    info = pickle.loads(pickle.dumps(OWN))
    assert open_dataset(info, data.path).texts == ("a",)
    assert "own-set" not in DATASETS
    for known in DATASETS.values():
        assert pickle.loads(pickle.dumps(known)).name == known.name


def test_a_reader_of_another_kind_is_refused(data):
    data.lines("own/a.jsonl", [{"text": "a", "topic": "x"}])
    message = refusal(open_dataset, DatasetInfo("own", "pairs", "Wrong.", (PLACE,)), data.path, error=InvalidInputError)
    assert all(word in message for word in ("PairSet", "TextSet"))


@pytest.mark.parametrize(
    ("changed", "words"), [({"name": " "}, "name"), ({"kind": "pictures"}, "kind"), ({"places": ()}, "places")]
)
def test_wrong_information(changed, words):
    given = {"name": "a", "kind": "texts", "what": "A.", "places": (PLACE,)}
    message = refusal(DatasetInfo, **{**given, **changed}, error=InvalidInputError)
    assert all(word in message for word in ("DatasetInfo", words))


TEXTS = {"a.csv": "body,topic,side,case\nAda left,1,train,k\nAda came,0,validation,k\n"}
DESCRIBED = """kind: texts
what: My tickets.
file: a.csv
text: body
label: topic
split: side
group: case
classes: {0: "no", 1: "yes"}
"""


def test_a_described_folder_of_texts(data):
    data.text("tickets/a.csv", TEXTS["a.csv"])
    data.text("tickets/dataset.yaml", DESCRIBED)
    found = open_dataset("tickets", data.path)
    assert isinstance(found, TextSet)
    assert (found.texts, found.labels) == (("Ada left", "Ada came"), ("yes", "no"))
    assert (found.split, found.groups.tolist()) == (("train", "dev"), [0, 0])


def test_described_folders_of_pairs_and_retrieval(data):
    data.text("likes/p.csv", "sentence1,sentence2,score\na,b,0.5\n")
    data.text("likes/dataset.yaml", "kind: pairs\nfile: p.csv\nlow: 0\nhigh: 1\n")
    data.text("faq/dataset.yaml", "kind: retrieval\nsame_pool: true\n")
    data.lines("faq/corpus.jsonl", [{"_id": "1", "text": "a"}, {"_id": "2", "text": "b"}])
    data.lines("faq/queries.jsonl", [{"_id": "1", "text": "a"}])
    data.text("faq/qrels.tsv", "query-id\tcorpus-id\tscore\n1\t2\t1\n")
    likes, faq = open_dataset("likes", data.path), open_dataset("faq", data.path)
    assert isinstance(likes, PairSet)
    assert (likes.scores.tolist(), likes.split, likes.source) == ([0.5], ("test",), ("likes",))
    assert isinstance(faq, RetrievalSet)
    assert faq.same_pool


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: pictures\n", ("kind", "pairs, retrieval, texts")),
        (f"- {CANARY}\n", ("kind",)),
        ("kind: [\n", ("YAML", "line 2")),
        ("kind: texts\n", ("file",)),
        (f"kind: texts\nfile: a.csv\n{CANARY}: 1\n", ("keys", "spans, label, group")),
        ("kind: texts\nfile: a.csv\ntext: 5\n", ("text", "int")),
        ("kind: texts\nfile: a.csv\nclasses: {0: no}\n", ("classes", "quotes")),
        ("kind: pairs\nfile: a.csv\nlow: true\n", ("low", "bool")),
        ("kind: retrieval\nfile: a.csv\n", ("keys", "same_pool")),
    ],
)
def test_wrong_descriptions(data, text, words):
    data.text("tickets/dataset.yaml", text)
    message = refusal(open_dataset, "tickets", data.path)
    assert all(word in message for word in ("dataset.yaml", *words))


def test_a_described_file_that_is_missing(data):
    data.text("tickets/dataset.yaml", DESCRIBED)
    with raises("E-DATA-FILE", "data"):
        open_dataset("tickets", data.path)
