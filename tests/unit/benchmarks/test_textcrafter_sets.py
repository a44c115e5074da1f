"""The four-set table: readers keep what they should, and no test row is in what a protector is fitted on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unit.benchmarks.textcrafter_files import Lengths, module

sets, vectors = (module(name) for name in ("sets", "vectors"))


@pytest.mark.parametrize(("name", "train", "test"), [("phrasebank", 30, 10), ("agnews", 20, 8)])
def test_a_set_is_its_training_and_test_rows(data: Path, name: str, train: int, test: int) -> None:
    found = sets.read_set(name, data, (1000, 1000))
    assert (len(found.train), len(found.test)) == (train, test)
    assert all(" train " in found.texts[i] for i in found.train)
    assert all(" test " in found.texts[i] for i in found.test)
    assert found.classes.tolist() == [int(t.split()[2]) % 2 for t in found.texts]


def test_a_training_row_that_a_test_row_repeats_is_left_out(data: Path) -> None:
    found = sets.read_set("sst2", data, (1000, 1000))
    assert found.dropped == 1
    assert len(found.train) == 30
    assert not np.isin(found.groups[found.train], found.groups[found.test]).any()


def test_an_abstract_is_on_one_side_only(data: Path) -> None:
    found = sets.read_set("ade", data, (1000, 1000))
    assert (found.dropped, len(found.train), len(found.test)) == (1, 20, 1)
    matches = found.concept.find(found.texts, min_texts=1)
    assert {span.term for row in matches.spans for span in row} == {"drugzol", "rash"}


def test_rows_are_drawn_alike_every_time(data: Path) -> None:
    one, two = (sets.read_set("phrasebank", data, (12, 5)) for _ in range(2))
    assert one.texts == two.texts
    assert (len(one.train), len(one.test)) == (12, 5)
    assert set(one.texts) < set(sets.read_set("phrasebank", data, (99, 99)).texts)


def test_pii_templates_are_on_one_side_only(data: Path) -> None:
    found = sets.read_pii(data)
    assert (len(found.train), len(found.test)) == (16, 8)
    assert not np.isin(found.groups[found.train], found.groups[found.test]).any()
    assert len(np.unique(found.groups)) == 6  # templates: three splits of two files
    assert {text.split()[0] for text in found.plain_train} == {"wikitext2_valid"}
    assert {text.split()[0] for text in found.plain_test} == {"wikitext2_test"}


def test_no_test_row_is_in_the_material(data: Path) -> None:
    task = vectors.load_task("phrasebank", data, (99, 99), Lengths())
    assert len(task.material.positive) == 30
    assert len(task.vocabulary) == 1
    rows, labels = task.tokens(task.rows.test)
    assert rows.tolist() == task.rows.test.tolist()
    assert labels.all()
    assert np.array_equal(task.material.groups, task.rows.groups[task.rows.train])


def test_the_pii_problem_holds_both_classes_and_no_group_twice(data: Path) -> None:
    pii = vectors.load_pii(data, None, Lengths())
    for X, labels, groups in (pii.train, pii.test):
        assert len(X) == len(labels) == len(groups)
        assert 0 < labels.sum() < len(labels)
    assert not np.isin(pii.train[2], pii.test[2]).any()
    assert len(pii.material.positive) == len(pii.material.negative) == 16
