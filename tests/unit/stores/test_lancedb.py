"""LanceDB's own: tables made elsewhere, and a folder that goes away."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from vecveil.errors import StoreError
from vecveil.stores import Batch, open_store


@pytest.fixture(scope="module", autouse=True)
def _imports() -> None:
    """Import LanceDB only in the process that runs this file; every process collects it."""
    global lancedb
    import lancedb


X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)


def made(folder: Path, name: str = "notes", **columns: Any) -> str:
    """Return the location of a table of five rows that LanceDB's client made."""
    rows = [{"embedding": X[i], **{k: v[i] for k, v in columns.items()}} for i in range(5)]
    lancedb.connect(folder).create_table(name, rows)
    return f"lancedb:{folder}#{name}"


def test_a_table_without_ids_counts_its_rows(tmp_path: Path) -> None:
    with open_store(made(tmp_path, text=list("abcde"))) as store:
        assert (store.info().count, store.info().dimension) == (5, 3)
        batches = list(store.batches(2))
        assert [one for batch in batches for one in batch.ids] == list("01234")
        assert np.concatenate([batch.vectors for batch in batches]).tobytes() == X.tobytes()
        assert batches[0].fields == ({"text": "a"}, {"text": "b"})
        assert next(iter(store.batches(2, after=batches[1].cursor))).ids == ("4",)
        with raises("E-STORE", "location"):
            store.read(["0"])


@pytest.mark.parametrize("ids", [[7, -2, 9, 4, 1], ["a", "o'b", "c", "7", "e"]])
def test_a_table_with_ids_is_read_by_them(tmp_path: Path, ids: list[Any]) -> None:
    with open_store(made(tmp_path, id=ids)) as store:
        read = store.read([str(ids[3]), str(ids[1])])
        assert read.ids == (str(ids[3]), str(ids[1]))
        assert read.vectors.tobytes() == X[[3, 1]].tobytes()
        assert read.fields == ({}, {})
        with pytest.raises(StoreError):
            store.read([str(ids[0]), "x OR 1=1"])


def test_rows_without_an_id_are_counted(tmp_path: Path) -> None:
    with open_store(made(tmp_path, id=["a", None, "c", None, "None"])) as store:
        for call in (lambda: list(store.batches(2)), lambda: list(store.ids())):
            with pytest.raises(StoreError, match="2 rows of the table have no id"):
                call()


def test_a_table_made_elsewhere_is_not_written(tmp_path: Path) -> None:
    with open_store(made(tmp_path, id=list("abcde"))) as store:
        with raises("E-STORE", "location"):
            store.write(Batch(("a",), X[:1], ({},)))
        assert store.info().count == 5


def test_a_table_without_vectors_or_a_folder_of_several_is_refused(tmp_path: Path) -> None:
    lancedb.connect(tmp_path).create_table("plain", [{"text": "a"}])
    with open_store(f"lancedb:{tmp_path}#plain") as store, pytest.raises(StoreError):
        store.info()
    made(tmp_path)
    with open_store(f"lancedb:{tmp_path}") as store, raises("E-STORE", "location"):
        store.info()


def test_a_folder_that_goes_away_in_the_middle(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    with open_store(made(folder, text=["the-patient-takes-ibuprofen"] * 5)) as store:
        batches = store.batches(2)
        first = next(batches)
        shutil.move(folder, tmp_path / "away")
        calls: tuple[Any, ...] = (store.info, lambda: list(store.batches(2)), lambda: store.read(["1"]))
        with pytest.raises(StoreError) as caught:
            list(batches)
        assert "ibuprofen" not in str(caught.value)
        for call in calls:
            with pytest.raises(StoreError) as caught:
                call()
            assert caught.value.__cause__ is None
        shutil.move(tmp_path / "away", folder)
        rest = [one for batch in store.batches(2, after=first.cursor) for one in batch.ids]
        assert rest == list("234"), "reading goes on where it was"
