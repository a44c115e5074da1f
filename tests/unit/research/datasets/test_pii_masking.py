"""PII-Masking-300K: JSON lines and Parquet, spans in four forms, a choice of language."""

from __future__ import annotations

import json
from functools import partial

import pytest

from harness.experiment_data import CANARY, refusal
from research.datasets import DatasetInfo, Place, open_dataset, read_pii_masking

MASK = [{"value": "Ada", "start": 0, "end": 3, "label": "GIVENNAME1"}]
SPAN = {"start": 0, "end": 3, "label": "GIVENNAME1"}
FOLDERS = ["pii-masking-300k", "pii/pii-masking-300k", "ai4privacy/pii-masking-300k"]


def row(**changed):
    kept = {"source_text": "Ada left", "language": "English", "privacy_mask": MASK, "id": "40767A"}
    return {**kept, **changed}


@pytest.mark.parametrize("folder", FOLDERS)
def test_json_lines(data, folder):
    data.lines(f"{folder}/data/train/1english_openpii_30k.jsonl", [row(), row(id="40767B"), row(id="5A")])
    data.lines(f"{folder}/data/validation/1english_openpii_8k.jsonl", [row(privacy_mask=[])])
    data.lines(f"{folder}/data/train/2french.jsonl", [row(language="French", source_text="Ada dit")])
    found = open_dataset("pii-masking-300k", data.path)
    assert found.texts == ("Ada left",) * 4
    assert found.split == ("train", "train", "train", "dev")
    assert found.spans == ((SPAN,), (SPAN,), (SPAN,), ())
    assert found.groups.tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize(
    "given",
    [
        {"privacy_mask": json.dumps(MASK)},
        {"privacy_mask": str(MASK)},
        {"span_labels": [[0, 3, "GIVENNAME1"], [3, 8, "O"]]},
        {"span_labels": json.dumps([[0, 3, "GIVENNAME1"], [3, 8, "O"]])},
    ],
)
def test_forms_of_spans(data, given):
    rows = [{"source_text": "Ada left", "set": "test", "language": "en", **given}]
    data.lines("pii-masking-300k/a.jsonl.gz", rows)
    found = open_dataset("pii-masking-300k", data.path)
    assert (found.spans, found.split) == (((SPAN,),), ("test",))


def test_parquet(data):
    columns = {
        "source_text": ["Ada left", "Ada dit", "nobody"],
        "privacy_mask": [MASK, MASK, []],
        "language": ["English", "French", "English"],
    }
    data.parquet("pii-masking-300k/data/validation-00000-of-00001.parquet", columns)
    found = open_dataset("pii-masking-300k", data.path)
    assert (found.texts, found.spans) == (("Ada left", "nobody"), ((SPAN,), ()))
    assert (found.split, found.groups.tolist()) == (("dev", "dev"), [0, 1])


@pytest.mark.parametrize(("languages", "count"), [(("french",), 1), (None, 2)])
def test_another_language(data, languages, count):
    data.lines("x/a.jsonl", [row(), row(language="French")])
    place = Place(("x",), ("*.jsonl",), partial(read_pii_masking, languages=languages))
    info = DatasetInfo("pii-fr", "texts", "Another language.", (place,))
    assert len(open_dataset(info, data.path).texts) == count


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"privacy_mask": CANARY}, ("privacy_mask", "row 2")),
        ({"privacy_mask": [[0, 3]]}, ("privacy_mask", "row 2")),
        ({"privacy_mask": [{**SPAN, "end": 99}]}, ("privacy_mask", "0:99", "row 2")),
        ({"language": None}, ("language", "row 2")),
        ({"source_text": None}, ("text_column", "row 2")),
    ],
)
def test_wrong_rows(data, changed, words):
    data.lines("pii-masking-300k/a.jsonl", [row(), row(**changed)])
    message = refusal(open_dataset, "pii-masking-300k", data.path)
    assert all(word in message for word in ("a.jsonl", *words))


def test_no_spans_or_no_text_in_the_language(data):
    data.lines("pii-masking-300k/a.jsonl", [{"source_text": "Ada left"}])
    message = refusal(open_dataset, "pii-masking-300k", data.path)
    assert all(word in message for word in ("a.jsonl", "'privacy_mask'"))
    data.lines("pii-masking-300k/a.jsonl", [row(language="French")])
    message = refusal(open_dataset, "pii-masking-300k", data.path)
    assert "English or en" in message
