"""STS pairs: the files of SemEval, STS-B as given out, and one Parquet file a set."""

from __future__ import annotations

import numpy as np
import pytest

from harness.experiment_data import CANARY, refusal
from research.datasets import PairSet, open_dataset

TABLE = {
    "split": ["train", "dev", "test"],
    "source": ["MSRpar", "MSRpar", "OnWN"],
    "sentence1": ["a b", "c", "e"],
    "sentence2": ["d", "d é", "f"],
    "score": [0.0, 2.5, 5.0],
    "attribution": [None, None, "someone"],
}


@pytest.mark.parametrize("name", ["sts12", "sts13", "sts14", "sts15", "sts16", "stsb"])
def test_a_table(data, name):
    data.parquet(f"sts/{name}.parquet", TABLE)
    found = open_dataset(name, data.path)
    assert isinstance(found, PairSet)
    assert (found.name, found.left, found.right) == (name, ("a b", "c", "e"), ("d", "d é", "f"))
    assert (found.split, found.source) == (("train", "dev", "test"), ("MSRpar", "MSRpar", "OnWN"))
    np.testing.assert_array_equal(found.scores, [0.0, 2.5, 5.0])
    assert found.scores.dtype == np.float64


@pytest.mark.parametrize("folder", ["STS12-en-test", "STS/STS12-en-test", "STS2012-en-test", "sts12"])
def test_the_files_of_semeval(data, folder):
    data.text(f"{folder}/train/STS.input.MSRpar.txt", "a one\tb\r\n c \td\r\n")
    data.text(f"{folder}/train/STS.gs.MSRpar.txt", "4.4\r\n0\r\n")
    data.text(f"{folder}/test-gold/STS.input.surprise.OnWN.txt", 'e "q\tf\tcredit\thttp\n')
    data.text(f"{folder}/test-gold/STS.gs.surprise.OnWN.txt", "5.000\n")
    data.text(f"{folder}/test-gold/STS.gs.ALL.txt", "5.000\n")
    data.text(f"{folder}/test/STS.input.MSRvid.txt", "without\tscores\n")
    data.text(f"{folder}/trial/STS.input.X.txt", "x\ty\n")
    data.text(f"{folder}/trial/STS.gs.X.txt", "1\n")
    found = open_dataset("sts12", data.path)
    rows = set(zip(found.left, found.right, found.scores, found.split, found.source, strict=True))
    assert rows == {
        ("a one", "b", 4.4, "train", "MSRpar"),
        ("c", "d", 0.0, "train", "MSRpar"),
        ('e "q', "f", 5.0, "test", "OnWN"),
    }


@pytest.mark.parametrize("scores", ["\n3\n\n", "\n3\n", " \n3\n\t\n"])
def test_pairs_without_a_score_are_dropped(data, scores):
    folder = "STS16-en-test"
    data.text(f"{folder}/STS2016.input.headlines.txt", "a\tb\nc\td\ne\tf\n")
    data.text(f"{folder}/STS2016.gs.headlines.txt", scores)
    found = open_dataset("sts16", data.path)
    assert (found.left, found.scores.tolist(), found.source) == (("c",), [3.0], ("headlines",))
    assert found.split == ("test",)


@pytest.mark.parametrize(
    ("pairs", "scores", "words"),
    [
        (f"a\tb\n{CANARY}\n", "1\n2\n", ("STS.input.X.txt", "sentences", "line 2")),
        (f"a\tb\n{CANARY}\t \n", "1\n2\n", ("STS.input.X.txt", "sentences", "line 2")),
        (f"a\t{CANARY}\n", f"{CANARY}\n", ("STS.gs.X.txt", "score", "line 1")),
        ("a\tb\n", "7\n", ("STS.gs.X.txt", "score", "from 0 to 5", "line 1")),
        ("a\tb\n", "nan\n", ("STS.gs.X.txt", "score", "line 1")),
        ("a\tb\nc\td\ne\tf\n", "1\n", ("STS.gs.X.txt", "3", "1 lines")),
        ("a\tb\n", "1\n2\n", ("STS.gs.X.txt", "2 lines")),
        ("a\tb\n", " \n", ("no scored pairs",)),
    ],
)
def test_wrong_rows_of_semeval(data, pairs, scores, words):
    data.text("STS14-en-test/STS.input.X.txt", pairs)
    data.text("STS14-en-test/STS.gs.X.txt", scores)
    message = refusal(open_dataset, "sts14", data.path)
    assert all(word in message for word in words)


def test_an_input_without_its_scores(data):
    data.text("STS14-en-test/STS.input.X.txt", "a\tb\n")
    data.text("STS14-en-test/STS.gs.Y.txt", "1\n")
    message = refusal(open_dataset, "sts14", data.path)
    assert all(word in message for word in ("STS.gs.X.txt", "File not found"))


def test_a_byte_of_another_encoding(data):
    data.text("STS14-en-test/STS.input.X.txt", "a\tb\né\tc\n", encoding="latin-1")
    data.text("STS14-en-test/STS.gs.X.txt", "1\n2\n")
    message = refusal(open_dataset, "sts14", data.path)
    assert all(word in message for word in ("STS.input.X.txt", "line 2"))


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("score", [1.0, 5.5, 2.0], ("score", "from 0 to 5", "row 2")),
        ("score", [1.0, None, 2.0], ("score", "row 2")),
        ("sentence2", ["a", None, "c"], ("sentence2", "row 2")),
        ("sentence1", ["a", None, "c"], ("text_column", "row 2")),
        ("split", ["a", "b", None], ("split", "row 3")),
    ],
)
def test_wrong_rows_of_a_table(data, column, values, words):
    data.parquet("sts/sts13.parquet", {**TABLE, column: values})
    message = refusal(open_dataset, "sts13", data.path)
    assert all(word in message for word in ("sts13.parquet", *words))


def test_a_table_without_a_column(data):
    data.parquet("sts/sts13.parquet", {k: v for k, v in TABLE.items() if k != "score"})
    message = refusal(open_dataset, "sts13", data.path)
    assert all(word in message for word in ("sts13.parquet", "'score'"))


def test_a_damaged_table(data):
    data.text("sts/sts13.parquet", "PAR1 is all that is right")
    message = refusal(open_dataset, "sts13", data.path)
    assert all(word in message for word in ("sts13.parquet", "damaged"))


def test_the_table_goes_before_the_files_of_semeval(data):
    data.parquet("sts/sts13.parquet", TABLE)
    data.text("STS13-en-test/STS.input.X.txt", "a\tb\n")
    data.text("STS13-en-test/STS.gs.X.txt", "1\n")
    assert len(open_dataset("sts13", data.path).left) == 3


BENCHMARK = 'main-captions\tMSRvid\t2012test\t0001\t5.000\tA plane.\tAn "air plane.\n'


@pytest.mark.parametrize("folder", ["stsbenchmark", "STS/STSBenchmark", "stsb"])
def test_the_benchmark_as_given_out(data, folder):
    data.text(f"{folder}/sts-train.csv", BENCHMARK)
    data.text(f"{folder}/sts-dev.csv", BENCHMARK.replace("5.000", "2.5"))
    data.text(f"{folder}/sts-test.csv", BENCHMARK.rstrip("\n") + "\tsource\tlicence\n")
    found = open_dataset("stsb", data.path)
    assert found.split == ("train", "dev", "test")
    assert found.left == ("A plane.",) * 3
    assert found.right == ('An "air plane.',) * 3
    assert found.source == ("main-captions/MSRvid/2012test",) * 3
    assert found.scores.tolist() == [5.0, 2.5, 5.0]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (f"a\tb\tc\td\t1\t{CANARY}\n", ("fields", "found 6", "line 2")),
        (f"a\tb\tc\td\tx\t{CANARY}\te\n", ("score", "line 2")),
        (f"a\tb\tc\td\t5.1\t{CANARY}\te\n", ("score", "line 2")),
    ],
)
def test_wrong_rows_of_the_benchmark(data, row, words):
    data.text("stsbenchmark/sts-dev.csv", BENCHMARK + row)
    message = refusal(open_dataset, "stsb", data.path)
    assert all(word in message for word in ("sts-dev.csv", *words))
