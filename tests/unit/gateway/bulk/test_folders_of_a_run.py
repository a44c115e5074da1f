"""Checks of an output folder when a run returns to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import vecveil
from harness.command_line import run
from harness.errors import raises
from unit.gateway.bulk.conftest import DIMENSION, WriteTable
from vecveil.gateway.bulk import MANIFEST, BulkJob, protect_files, verify


@pytest.fixture
def fresh(bulk_protector: vecveil.Protector) -> BulkJob:
    return BulkJob.of(bulk_protector)


def protected(source: Path, out: Path, job: BulkJob, **given: Any) -> Any:
    return protect_files([source], out, job, show_progress=False, **given)


def test_a_file_of_another_dimension_stops_no_other(tmp_path: Path, fresh: BulkJob, write_table: WriteTable) -> None:
    for name in "ac":
        write_table(tmp_path / "in" / f"{name}.parquet", 9)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([0.5] * 30, pa.float32()), 3)
    pq.write_table(pa.table({"embedding": vectors}), tmp_path / "in" / "b.parquet")
    with raises("E-DATA-FILE") as caught:
        protected(tmp_path / "in", tmp_path / "out", fresh)
    assert str(caught.value).startswith("b.parquet: ")
    assert len(list((tmp_path / "out").glob("part-*"))) == 2


def test_a_run_that_released_nothing_leaves_the_folder_free(
    tmp_path: Path, bulk_protector: vecveil.Protector, fresh: BulkJob, write_table: WriteTable
) -> None:
    write_table(tmp_path / "a.parquet", 9)
    mistaken = BulkJob.of(bulk_protector, embedding_column="vec")
    with raises("E-DATA-FILE"):
        protected(tmp_path / "a.parquet", tmp_path / "out", mistaken)
    assert not (tmp_path / "out").exists()
    assert protected(tmp_path / "a.parquet", tmp_path / "out", fresh).complete


def test_a_damaged_part_and_a_further_file_are_told_at_once(
    tmp_path: Path, fresh: BulkJob, write_table: WriteTable
) -> None:
    write_table(tmp_path / "a.parquet", 9)
    out = tmp_path / "out"
    protected(tmp_path / "a.parquet", out, fresh)
    write_table(out / "part-000077.parquet", 3)
    calls = (lambda: protected(tmp_path / "a.parquet", out, fresh), lambda: verify(out))
    for call in calls:
        with raises("E-DATA-FILE-FURTHER", "out"):
            call()
    (out / "part-000077.parquet").unlink()
    part = out / "part-000000.parquet"
    part.write_bytes(part.read_bytes()[:-5])
    for call in calls:
        with raises("E-DATA-FILE-PART", "out"):
            call()
    part.unlink()
    for call in calls:
        with raises("E-DATA-FILE-PART", "out"):
            call()


def test_the_command_line_says_what_was_there_and_compares(
    tmp_path: Path, bulk_protector: vecveil.Protector, write_table: WriteTable
) -> None:
    assert bulk_protector.dimension == DIMENSION
    write_table(tmp_path / "in" / "a.parquet", 9)
    bulk_protector.save(tmp_path / "p.vecveil")
    out = tmp_path / "out"
    asked = ("protect", tmp_path / "in", "-p", tmp_path / "p.vecveil", "-o", out)
    first, second = run(*asked), run(*asked)
    assert "9 rows protected, in 1 part." in first.err
    assert "there already" not in first.err
    assert "Columns of the first part: id, embedding." in first.err
    assert "1 part of them was there already; 0 parts written now." in second.err
    said = run(*asked, "--json").json
    assert (said["rows"], said["parts"], said["parts_already_there"]) == (9, 1, 1)
    assert said["columns"] == ["id", "embedding"]
    assert said["manifest"] == f"{out}/{MANIFEST}"
    assert (said["noise"], said["randomness"], said["key_id"]) == (True, "secure", None)
    compared = run("verify", out, "--json")
    assert compared.code == 0, compared.err
    assert compared.json == {"folder": str(out), "parts": 1, "rows": 9, "ok": True}
    (out / "part-000000.parquet").write_bytes(b"other")
    assert run("verify", out).code == 1
    (out / MANIFEST).unlink()
    assert "no _manifest.json" in run("verify", out).errors[0]
