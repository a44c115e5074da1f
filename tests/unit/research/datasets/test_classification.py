"""SST-2, Financial PhraseBank and AG News as given out."""

from __future__ import annotations

from functools import partial

import pytest

from harness.experiment_data import CANARY, refusal
from research.datasets import DatasetInfo, Place, open_dataset, read_phrasebank
from vecveil.errors import InvalidInputError


@pytest.mark.parametrize("folder", ["SST-2", "glue/SST-2", "sst2"])
def test_sst2(data, folder):
    data.text(f"{folder}/train.tsv", 'sentence\tlabel\na "film \t1\nbad\t0\n')
    data.text(f"{folder}/dev.tsv", "sentence\tlabel\nfine\t1\n")
    data.text(f"{folder}/test.tsv", "index\tsentence\n0\tunknown\n")
    found = open_dataset("sst2", data.path)
    assert found.texts == ('a "film', "bad", "fine")
    assert found.labels == ("positive", "negative", "positive")
    assert found.split == ("train", "train", "dev")


def test_sst2_with_a_labelled_test_file(data):
    data.text("SST-2/train.tsv", "sentence\tlabel\na\t1\n")
    data.text("SST-2/test.tsv", "sentence\tlabel\nb\t0\n")
    found = open_dataset("sst2", data.path)
    assert (found.split, found.labels) == (("train", "test"), ("positive", "negative"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (f"sentence\tlabel\na\t1\n{CANARY}\t2\n", ("label", "line 3")),
        (f"sentence\tlabel\n{CANARY}\n", ("label", "line 2")),
        (f"{CANARY}\t1\n", ("header", "line 1")),
    ],
)
def test_wrong_lines_of_sst2(data, content, words):
    data.text("SST-2/train.tsv", content)
    message = refusal(open_dataset, "sst2", data.path)
    assert all(word in message for word in ("train.tsv", *words))


def write_phrasebank(data, folder="FinancialPhraseBank-v1.0"):
    data.text(f"{folder}/Sentences_50Agree.txt", "up @ 5 é .@positive\r\nflat@neutral\r\nno@neutral\r\n", "latin-1")
    data.text(f"{folder}/Sentences_75Agree.txt", "flat@neutral\nno@negative\n", "latin-1")
    data.text(f"{folder}/Sentences_AllAgree.txt", "flat@neutral\n", "latin-1")


@pytest.mark.parametrize("folder", ["FinancialPhraseBank-v1.0", "phrasebank"])
def test_phrasebank(data, folder):
    write_phrasebank(data, folder)
    found = open_dataset("phrasebank", data.path)
    assert found.texts == ("up @ 5 é .", "flat", "no")
    assert found.labels == ("positive", "neutral", "negative")
    assert found.split is None


@pytest.mark.parametrize(("agreement", "texts"), [(66, ("flat", "no")), (100, ("flat",))])
def test_phrasebank_with_more_agreement(data, agreement, texts):
    write_phrasebank(data)
    read = partial(read_phrasebank, agreement=agreement)
    place = Place(("FinancialPhraseBank-v1.0",), ("*.txt",), read)
    info = DatasetInfo("phrasebank-strict", "texts", "Strict.", (place,))
    assert open_dataset(info, data.path).texts == texts


def test_wrong_phrasebank(data):
    data.text("phrasebank/Sentences_66Agree.txt", f"a@neutral\n{CANARY}@{CANARY}\n")
    message = refusal(open_dataset, "phrasebank", data.path)
    assert all(word in message for word in ("Sentences_66Agree.txt", "label", "line 2"))
    folder = data.path / "phrasebank"
    message = refusal(read_phrasebank, "x", folder, agreement=75)
    assert "75 % agreement" in message
    message = refusal(read_phrasebank, "x", folder, agreement=60, error=InvalidInputError)
    assert all(word in message for word in ("agreement", "50, 66, 75 or 100"))


@pytest.mark.parametrize("header", ["", '"Class Index","Title","Description"\n'])
def test_ag_news(data, header):
    rows = '"3","Oracle #39;s &lt;b&gt;bid&lt;/b&gt;","A ""big"" one\\of AT&amp;T; 2 < 3"\n"4","T","quot;x quot;"\n'
    data.text("ag_news_csv/train.csv", header + rows)
    data.text("ag_news_csv/test.csv", header + '"1","only a title",""\n')
    found = open_dataset("agnews", data.path)
    assert found.texts[0] == 'Oracle\'s bid. A "big" one of AT&T; 2 < 3'
    assert found.texts[1:] == ('T. "x "', "only a title")
    assert found.labels == ("Business", "Sci/Tech", "World")
    assert found.split == ("train", "train", "test")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (f'"5","{CANARY}","x"\n', ("class", "record 2")),
        (f'"1","{CANARY}"\n', ("fields", "found 2", "record 2")),
        (f'"1","{CANARY}","x\n', ("quote", "record 2")),
    ],
)
def test_wrong_records_of_ag_news(data, row, words):
    data.text("agnews/train.csv", '"1","a","b"\n' + row)
    data.text("agnews/test.csv", '"1","a","b"\n')
    message = refusal(open_dataset, "agnews", data.path)
    assert all(word in message for word in ("train.csv", *words))
