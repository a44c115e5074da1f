"""The four-set table: readers keep what they should, and no test row is in what a protector is fitted on."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from harness.errors import raises
from research.specification import ProblemSpec
from research.textcrafter import data as sets_data
from research.textcrafter.data import PiiSpec
from unit.research.textcrafter.files import PROBLEMS, Lengths, json_lines, labelled, parquet, pii, pii_of, task_of


@pytest.mark.parametrize(("name", "train", "test"), [("phrasebank", 30, 10), ("agnews", 20, 8)])
def test_a_set_is_its_training_and_test_rows(data: Path, name: str, train: int, test: int) -> None:
    found = sets_data.read_set(name, PROBLEMS[name], data, (1000, 1000))
    assert (len(found.train), len(found.test)) == (train, test)
    assert all(" train " in found.texts[i] for i in found.train)
    assert all(" test " in found.texts[i] for i in found.test)
    assert found.classes.tolist() == [int(t.split()[2]) % 2 for t in found.texts]


def test_a_training_row_that_a_test_row_repeats_is_left_out(data: Path) -> None:
    found = sets_data.read_set("sst2", PROBLEMS["sst2"], data, (1000, 1000))
    assert found.dropped == 1
    assert len(found.train) == 30
    assert not np.isin(found.groups[found.train], found.groups[found.test]).any()


def test_an_abstract_is_on_one_side_only(data: Path) -> None:
    found = sets_data.read_set("ade", PROBLEMS["ade"], data, (1000, 1000))
    assert (found.dropped, len(found.train), len(found.test)) == (1, 20, 1)
    matches = found.concept.find(found.texts, min_texts=1)
    assert {span.term for row in matches.spans for span in row} == {"drugzol", "rash"}


def test_rows_are_drawn_alike_every_time(data: Path) -> None:
    one, two = (sets_data.read_set("phrasebank", PROBLEMS["phrasebank"], data, (12, 5)) for _ in range(2))
    assert one.texts == two.texts
    assert (len(one.train), len(one.test)) == (12, 5)
    assert set(one.texts) < set(sets_data.read_set("phrasebank", PROBLEMS["phrasebank"], data, (99, 99)).texts)


def test_pii_templates_are_on_one_side_only(data: Path) -> None:
    found = sets_data.read_pii(PiiSpec(), data)
    assert (len(found.train), len(found.test)) == (16, 8)
    assert not np.isin(found.groups[found.train], found.groups[found.test]).any()
    assert len(np.unique(found.groups)) == 6  # templates: three splits of two files
    assert {text.split()[0] for text in found.plain_train} == {"wikitext2_valid"}
    assert {text.split()[0] for text in found.plain_test} == {"wikitext2_test"}


def test_no_test_row_is_in_the_material(data: Path) -> None:
    task = task_of("phrasebank", data, Lengths())
    assert len(task.material.positive) == 30
    assert len(task.vocabulary) == 1
    rows, labels = task.tokens(task.rows.test)
    assert rows.tolist() == task.rows.test.tolist()
    assert labels.all()
    assert np.array_equal(task.material.groups, task.rows.groups[task.rows.train])


class _Remembering:
    """An encoder: a vector of its own for each text, and which text a vector is of."""

    def __init__(self) -> None:
        self.texts: dict[bytes, str] = {}

    def encode(self, texts: list[str]) -> np.ndarray:
        rows = []
        for text in texts:
            seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
            row = np.random.default_rng(seed).standard_normal(8).astype(np.float32)
            rows.append(row / np.linalg.norm(row))
            self.texts[rows[-1].tobytes()] = text
        return np.array(rows, dtype=np.float32).reshape(-1, 8)

    def of(self, X: np.ndarray) -> list[str]:
        return [self.texts[row.tobytes()] for row in X]


def test_planted_test_rows_reach_neither_material_nor_token_counts(data: Path) -> None:
    train = [f"train {i} in March" for i in range(20)] + [f"train {i} in April" for i in range(14)]
    plain = [f"train {i} plain" for i in range(6)]
    test = [f"test {i} in April" for i in range(16)] + [f"test {i} plain" for i in range(5)]
    rows = [
        {"split": split, "text": text, "label": i % 2}
        for split, texts in (("train", [*train, *plain]), ("test", test))
        for i, text in enumerate(texts)
    ]
    parquet(data / "classification" / "sst2.parquet", rows)
    encoder = _Remembering()
    task = task_of("sst2", data, encoder)
    # Of April the training rows hold one too few; with the test rows they would be enough.
    assert sets_data.MIN_COUNT == 15
    assert task.vocabulary.tokens == ("march",)
    material = task.material
    assert encoder.of(material.positive) == train
    assert encoder.of(material.background) == plain
    assert len(encoder.of(material.negative)) == len(train)
    assert all(text.startswith("train") for text in encoder.of(material.negative))
    assert material.labels[:, 0].tolist() == [1] * 20 + [0] * 14


def test_planted_test_rows_of_the_pii_corpus_reach_no_material(data: Path) -> None:
    plain = [
        {
            "id": f"p{i}",
            "split": split,
            "text": f"Plain {split} text {i}.",
            "spans": [],
            "template_id": 9,
            "masked": f"Plain {split} text {i}.",
        }
        for split in ("train", "test")
        for i in range(3)
    ]
    marked = [pii(i, split, "x") for split in ("train", "test") for i in range(5)]
    json_lines(data / "pii" / "presidio_synth_v2.jsonl.gz", [*plain, *marked])
    encoder = _Remembering()
    problem = pii_of(data, encoder)
    own = problem.material
    assert own.further is not None
    parts = [own.positive, own.negative, own.background, own.further]
    held = [text for part in parts for text in encoder.of(part)]
    tested = set(encoder.of(problem.test[0]))
    assert {"Plain train text 0.", "wikitext2_valid sentence 0"} <= set(held)
    assert {"Plain test text 0.", "wikitext2_test sentence 0"} <= tested
    assert not tested & set(held)
    assert not tested & set(encoder.of(problem.train[0]))
    assert not [text for text in held if "test" in text.split()]


def test_the_pii_problem_holds_both_classes_and_no_group_twice(data: Path) -> None:
    pii = pii_of(data, Lengths())
    for X, labels, groups in (pii.train, pii.test):
        assert len(X) == len(labels) == len(groups)
        assert 0 < labels.sum() < len(labels)
    assert not np.isin(pii.train[2], pii.test[2]).any()
    assert len(pii.material.positive) == len(pii.material.negative) == 16


def test_a_set_without_splits_is_divided_by_group_and_one_without_a_test_split_is_judged_on_dev(data: Path) -> None:
    (data / "classification" / "financial_phrasebank.parquet").unlink()
    folder = data / "FinancialPhraseBank-v1.0"
    folder.mkdir()
    lines = [f"Sales in March were {i}@{('neutral', 'positive')[i % 2]}" for i in range(50)]
    (folder / "Sentences_50Agree.txt").write_text("\n".join(lines), encoding="latin-1")
    found = sets_data.read_set("phrasebank", PROBLEMS["phrasebank"], data, (99, 99))
    assert (len(found.train), len(found.test)) == (40, 10)
    again = sets_data.read_set("phrasebank", PROBLEMS["phrasebank"], data, (99, 99))
    assert again.texts == found.texts
    rows = labelled("film", {"train": 12, "dev": 4})
    parquet(data / "classification" / "sst2.parquet", rows)
    judged = sets_data.read_set("sst2", PROBLEMS["sst2"], data, (99, 99))
    assert [" dev " in judged.texts[i] for i in judged.test] == [True] * 4


def test_a_digest_follows_texts_classes_and_concept(data: Path) -> None:
    def own(name: str, problem: ProblemSpec) -> str:
        return sets_data.read_set(name, problem, data, (99, 99)).digest

    first = own("sst2", PROBLEMS["sst2"])
    assert own("sst2", PROBLEMS["sst2"]) == first
    rows = labelled("sst", {"train": 30, "dev": 5, "test": 10})
    path = data / "classification" / "sst2.parquet"
    parquet(path, [*rows[:3], {**rows[3], "label": 0}, *rows[4:]])
    second = own("sst2", PROBLEMS["sst2"])
    parquet(path, rows)
    assert own("sst2", PROBLEMS["sst2"]) == first  # a row that was left out anyway is gone
    (data / "concepts" / "sts_terms.json").write_text('{"month": ["sst"]}')
    assert len({first, second, own("sst2", PROBLEMS["sst2"])}) == 3
    corpus = sets_data.read_pii(PiiSpec(), data).digest
    assert sets_data.read_pii(PiiSpec(), data).digest == corpus
    fewer = sets_data.read_pii(PiiSpec(texts=4), data)
    assert len(fewer.plain_train) == len(fewer.plain_test) == len(fewer.train) == 4
    assert fewer.digest != corpus


def test_a_set_without_classes_and_a_label_that_no_plain_text_has_are_refused(data: Path) -> None:
    no_classes = ProblemSpec(data=("pii-synth",), concept=PROBLEMS["sst2"].concept)
    with raises("E-INPUT", "data"):
        sets_data.read_set("pii-synth", no_classes, data, (9, 9))
    with raises("E-DATA-FILE", "plain"):
        sets_data.read_pii(PiiSpec(plain_train=("nothing",)), data)
