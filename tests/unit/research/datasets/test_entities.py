"""Entities as given out: PubTator abstracts, CoNLL columns, and the JSON of presidio-research."""

from __future__ import annotations

import json

import pytest

from harness.experiment_data import CANARY, refusal
from research.datasets import open_dataset

ABSTRACT = (
    "11|t|Gout in men.\n11|a|Lithium and gout | more. \n"
    "11\t0\t4\tGout\tDisease\tD1\n11\t13\t20\tLithium\tChemical\tD2\n11\tCID\tD2\tD1\n\n"
)
OTHER = "12|t|None.\n12|a|\n"


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("ncbi-disease", ("ncbi-disease/train/NCBItrainset_corpus.txt", "ncbi-disease/test/NCBItestset_corpus.txt")),
        ("bc5cdr", ("CDR_Data/CDR_TrainingSet.PubTator.txt", "CDR_Data/CDR_TestSet.PubTator.txt")),
    ],
)
def test_pubtator(data, name, files):
    data.text(files[0], "\n" + ABSTRACT)
    data.text(files[1], ABSTRACT + OTHER)
    found = open_dataset(name, data.path)
    split = dict(zip(found.texts, found.split, strict=True))
    assert set(split) == {"Gout in men. Lithium and gout | more.", "None."}
    assert split["None."] == "test"
    row = found.texts.index("Gout in men. Lithium and gout | more.")
    assert found.spans[row] == (
        {"start": 0, "end": 4, "label": "Disease"},
        {"start": 13, "end": 20, "label": "Chemical"},
    )
    assert found.groups.tolist() == [0, 1]


def test_a_single_annotation_out_of_place_is_left_out(data):
    file = "ncbi-disease/NCBIdevelopset_corpus.txt"
    shifted = "13|t|Gout.\n13|a|Yes.\n13\t1\t5\tGout\tDisease\tD1\n"
    data.text(file, ABSTRACT + shifted)
    found = open_dataset("ncbi-disease", data.path)
    assert (found.split, [len(spans) for spans in found.spans]) == (("dev", "dev"), [2, 0])
    data.text(file, ABSTRACT + shifted + shifted.replace("13", "14"))
    message = refusal(open_dataset, "ncbi-disease", data.path)
    assert all(word in message for word in ("NCBIdevelopset_corpus.txt", "2 of 4"))


@pytest.mark.parametrize(
    "line", [f"12\t0\t4\t{CANARY}\tDisease\tD1\n", f"11\t0\tx\t{CANARY}\tDisease\tD1\n", f"{CANARY}\n"]
)
def test_wrong_lines_of_pubtator(data, line):
    data.text("ncbi-disease/NCBItrainset_corpus.txt", ABSTRACT.rstrip("\n") + "\n" + line)
    message = refusal(open_dataset, "ncbi-disease", data.path)
    assert all(word in message for word in ("NCBItrainset_corpus.txt", "line 6"))


COLUMNS = (
    "-DOCSTART- -X- O O\n\nAda\tB-PER\nLace\tI-PER\nBob\tB-PER\nin\tO\nRome\tI-LOC\n\t\n"
    "none\tO\n\n\nUN\tI-ORG\nRome\tI-LOC"
)
TEXTS = ("Ada Lace Bob in Rome", "none", "UN Rome")
FOUND = [[("Ada Lace", "PER"), ("Bob", "PER"), ("Rome", "LOC")], [], [("UN", "ORG"), ("Rome", "LOC")]]


@pytest.mark.parametrize(
    ("name", "files"),
    [
        (
            "wnut17",
            {
                "wnut17/wnut17train.conll": "train",
                "wnut17/emerging.dev.conll": "dev",
                "wnut17/emerging.test.annotated": "test",
            },
        ),
        (
            "broad-twitter",
            {
                f"broad_twitter_corpus/{part}.conll": split
                for part, split in zip("abeghf", ["train"] * 4 + ["dev", "test"], strict=True)
            },
        ),
        ("wikigold", {"wikigold/CONLL-format/data/wikigold.conll.txt": None}),
        (
            "sec-filings",
            {
                "SEC-filings/CONLL-format/data/train/FIN5.txt": "train",
                "SEC-filings/CONLL-format/data/test/FIN3.txt": "test",
            },
        ),
    ],
)
def test_columns(data, name, files):
    content = COLUMNS
    if name == "sec-filings":
        content = COLUMNS.replace("\n\t\n", "\n\n").replace("\t", " NNP - ")
    for file in files:
        data.text(file, content)
    found = open_dataset(name, data.path)
    assert found.texts == TEXTS * len(files)
    expected = tuple(split for split in files.values() for _ in TEXTS)
    assert found.split == (None if name == "wikigold" else expected)
    spans = [
        [(text[span["start"] : span["end"]], span["label"]) for span in row]
        for text, row in zip(found.texts, found.spans, strict=True)
    ]
    assert spans == FOUND * len(files)
    assert found.groups.tolist() == [0, 1, 2] * len(files)


def test_a_token_may_be_a_space_that_is_not_the_usual_one(data):
    data.text("wikigold/wikigold.conll.txt", "a\tO\n\xa0\tO\nRome\tI-LOC\n")
    found = open_dataset("wikigold", data.path)
    assert found.texts == ("a \xa0 Rome",)
    assert found.spans == (({"start": 4, "end": 8, "label": "LOC"},),)


@pytest.mark.parametrize("line", [f"{CANARY}\n", f"a\t{CANARY}\n", "a\tB-\n"])
def test_wrong_columns(data, line):
    data.text("wikigold/wikigold.conll.txt", "a\tO\n" + line)
    message = refusal(open_dataset, "wikigold", data.path)
    assert all(word in message for word in ("wikigold.conll.txt", "tag", "line 2"))


ROW = {
    "full_text": "Ada met Bob",
    "masked": "{{name}} met {{name}}",
    "spans": [
        {"entity_type": "PERSON", "entity_value": "Bob", "start_position": 8, "end_position": 11},
        {"entity_type": "PERSON", "entity_value": "Ada", "start_position": 0, "end_position": 3},
    ],
    "template_id": 3,
    "metadata": None,
}


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("pii-synth", "presidio-research/data/synth_dataset_v2.json"),
        ("pii-large", "presidio-research/tests/data/generated_large.json"),
    ],
)
def test_presidio(data, name, file):
    rows = [ROW, {**ROW, "masked": "x", "spans": []}, {**ROW, "template_id": 4}]
    data.text(file, json.dumps(rows, indent=2))
    found = open_dataset(name, data.path)
    assert found.texts == ("Ada met Bob",) * 3
    ada, bob = ({"start": a, "end": a + 3, "label": "PERSON"} for a in (0, 8))
    assert found.spans == ((ada, bob), (), (ada, bob))
    assert (found.groups.tolist(), found.split) == ([0, 1, 0], None)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (f"[{CANARY}", ("JSON",)),
        (json.dumps({"a": CANARY}), ("JSON dict", "list")),
        (json.dumps([ROW, CANARY]), ("row 2",)),
        (json.dumps([ROW, {**ROW, "full_text": None}]), ("full_text", "row 2")),
        (json.dumps([ROW, {**ROW, "spans": CANARY}]), ("spans", "row 2")),
        (json.dumps([ROW, {**ROW, "spans": [{"entity_type": "X"}]}]), ("spans", "row 2")),
    ],
)
def test_wrong_presidio(data, content, words):
    data.text("presidio-research/data/synth_dataset_v2.json", content)
    message = refusal(open_dataset, "pii-synth", data.path)
    assert all(word in message for word in ("synth_dataset_v2.json", *words))


def test_clinical_notes_as_given_out(data):
    folder = "MTS-Dialog/Main-Dataset/MTS-Dialog-"
    header = "ID,section_header,section_text,dialogue\n"
    data.text(f"{folder}TrainingSet.csv", header + '0,GENHX,"A note, of\ntwo lines.",Doctor: hi\n')
    data.text(f"{folder}TestSet-2-MEDIQA-Sum-2023.csv", header + "0,CC,Cough.,Doctor: hi\n")
    found = open_dataset("mts-dialog", data.path)
    assert found.texts == ("A note, of\ntwo lines.", "Cough.")
    assert (found.split, found.labels) == (("train", "test2"), ("GENHX", "CC"))
    data.text("aci-bench/data/challenge_data/train.csv", "dataset,dialogue,note\nx,y,A note.\n")
    data.text("aci-bench/data/challenge_data/valid.csv", "dataset,dialogue,note\nx,y,Another.\n")
    found = open_dataset("aci-bench", data.path)
    assert (found.texts, found.split) == (("A note.", "Another."), ("train", "dev"))
    data.text(f"{folder}ValidationSet.csv", f"ID,section_text,dialogue\n1,{CANARY},x\n")
    message = refusal(open_dataset, "mts-dialog", data.path)
    assert all(word in message for word in ("MTS-Dialog-ValidationSet.csv", "'section_header'"))
