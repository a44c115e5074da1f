"""The checks of what callers pass in, and the one error sentence."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import vecveil
from harness.errors import raises
from vecveil import errors
from vecveil.auditing.attacks import text_groups
from vecveil.errors import MissingDependencyError, VecveilError
from vecveil.privacy.protector.data import joined_groups
from vecveil.privacy.textcrafter.pii_classifier import row_groups
from vecveil.privacy.utility.estimates import group_index
from vecveil.validation import check_embeddings, check_groups, check_texts, connected_groups, number_groups

AS = {"owner": "f", "param": "p"}


def test_embeddings_come_back_as_they_are_if_contiguous() -> None:
    X = np.ones((3, 2), dtype=np.float32)
    assert check_embeddings(X, **AS) is X
    assert check_embeddings(X.T, **AS).flags.c_contiguous


def test_an_overflowing_sum_is_no_bad_row() -> None:
    X = np.full((4, 4), 1.7e308)
    assert check_embeddings(X, **AS) is X
    X[0] = -X[0]
    assert check_embeddings(X, **AS) is X


def test_other_byte_orders_are_refused() -> None:
    with raises("E-INPUT-TYPE", "p"):
        check_embeddings(np.zeros((2, 2), dtype=">f8"), **AS)


@pytest.mark.parametrize("value", ["one text", b"bytes", 7, None])
def test_texts_must_be_a_sequence(value: object) -> None:
    with raises("E-INPUT-TYPE", "texts"):
        check_texts(value, owner="f")


def test_texts_name_the_type_and_position_but_not_the_value() -> None:
    with raises("E-INPUT-TYPE", "texts") as caught:
        check_texts(["secret", 12.5], owner="f")
    assert "secret" not in str(caught.value)
    assert "12.5" not in str(caught.value)
    assert check_texts(iter(["a", "b"]), owner="f") == ["a", "b"]
    assert list(check_texts(np.array(["a", "b"]), owner="f")) == ["a", "b"]
    with raises("E-INPUT-SHAPE", "texts"):
        check_texts(["a"], owner="f", min_rows=2)


TABLES = [
    {"note": ["a text"]},
    pd.DataFrame({"note": ["a text", "another"]}),
    pl.DataFrame({"note": ["a text", "another"]}),
    pa.table({"note": ["a text", "another"]}),
    np.array([["a text"], ["another"]]),
    np.array("a text"),
]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: type(table).__name__)
@pytest.mark.parametrize(
    ("take", "param"),
    [
        (lambda table: check_texts(table, owner="f", min_rows=0), "texts"),
        (lambda table: vecveil.Concept.from_terms("c", table), "terms"),
        (lambda table: vecveil.Concept.from_terms("c", ["a"]).detect(table), "texts"),
        (lambda table: vecveil.Concept.from_patterns("c", table), "patterns"),
        (lambda table: vecveil.Concept.from_labels("c", table), "labels"),
        (lambda table: vecveil.Concept.from_spans("c", table), "spans"),
        (lambda table: check_groups(table, 1, owner="f"), "groups"),
        (lambda table: text_groups(["a text"], table), "ids"),
    ],
)
def test_a_table_is_not_read_as_the_names_of_its_columns(take: Any, param: str, table: Any) -> None:
    with raises("E-INPUT-TYPE", param) as caught:
        take(table)
    assert "a text" not in str(caught.value)


def test_one_column_of_a_table_is_a_sequence_of_texts() -> None:
    for table in (pd.DataFrame({"note": ["a", "b"]}), pl.DataFrame({"note": ["a", "b"]})):
        assert check_texts(table["note"], owner="f") == ["a", "b"]
    assert check_texts({"a": 1, "b": 2}.keys(), owner="f") == ["a", "b"]


MISSING = [None, "", " ", float("nan"), np.float32("nan"), np.datetime64("NaT"), pd.NA, pd.NaT]


def test_groups_are_numbered_by_their_first_row() -> None:
    assert connected_groups(np.array([4, 1, 3, 3]), np.array([3, 3, 1, 1]), 5).tolist() == [0, 1, 2, 1, 1]
    assert connected_groups(np.arange(0), np.arange(0), 3).tolist() == [0, 1, 2]


@pytest.mark.parametrize("missing", MISSING, ids=repr)
def test_rows_without_an_id_are_groups_of_their_own(missing: Any) -> None:
    ids = [missing, "b", "a", missing, "b"]
    checked = check_groups(ids, 5, owner="f")
    assert checked == [None, "b", "a", None, "b"]
    assert number_groups(checked)[0].tolist() == [2, 1, 0, 3, 1]
    assert group_index(ids, 5, owner="f")[1] == 4
    assert text_groups(list("vwxyz"), ids).tolist() == [0, 1, 2, 3, 1]
    assert row_groups(ids, None, 5, 1, owner="f").tolist() == [2, 1, 0, 3, 1, 4]
    assert len(set(joined_groups(np.arange(5), checked).tolist())) == 4
    assert check_groups([0, False], 2, owner="f") == [0, False]


def test_every_error_has_a_description_and_a_code() -> None:
    classes = [getattr(errors, name) for name in errors.__all__ if name.endswith("Error")]
    assert len(classes) > 10
    for error in classes:
        assert issubclass(error, VecveilError)
        assert error.__doc__
    assert len({error.code for error in classes}) == len(classes), "every class has its own code"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_keeps_its_attributes_between_processes(protocol: int) -> None:
    for error in (
        errors.out_of_range("fit", "rank", "a number above 1", 0),
        errors.LedgerCapError("too many", 3),
        errors.TrainingError("diverged", 2, 7),
        MissingDependencyError("The kernel attack", "sklearn", "attacks"),
        errors.MemoryLimitError("too little"),
    ):
        for sent in (pickle.loads(pickle.dumps(error, protocol)), copy.deepcopy(error)):
            assert (type(sent), str(sent), sent.code) == (type(error), str(error), error.code)
            assert vars(sent) == vars(error)
            assert getattr(sent, "msg", None) == getattr(error, "msg", None)
