"""An input with a damaged row group, or cut off: the error names it, and the other parts are done."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from harness.command_line import run
from harness.faults import clean_rows_in, left_over

DAMAGED = "03.parquet"


@pytest.fixture
def damaged(request: pytest.FixtureRequest, lake: Path, tmp_path: Path) -> Path:
    """A copy of the lake in which one file is damaged."""
    copy = tmp_path / "lake"
    shutil.copytree(lake, copy)
    path = copy / DAMAGED
    raw = bytearray(path.read_bytes())
    if request.param == "cut off":
        path.write_bytes(raw[: len(raw) // 2])
        return copy
    group = pq.ParquetFile(path).metadata.row_group(1)
    page = group.column(group.num_columns - 1).data_page_offset
    if request.param == "page header":
        raw[page : page + 20] = bytes(255 - one for one in raw[page : page + 20])
    else:  # what follows the header: lengths and values
        raw[page + 20 : page + 200] = b"\xff" * 180
    path.write_bytes(raw)
    return copy


@pytest.mark.parametrize("damaged", ["page header", "values"], indirect=True)
def test_into_a_folder(damaged: Path, clean: np.ndarray, protector: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("protect", damaged, "-p", protector, "-o", out, "--part-size", 1)
    assert done.code == 1
    assert len(done.errors) == 1
    assert DAMAGED in done.errors[0]
    assert "1 of 8 parts could not be protected; the others are finished" in done.errors[0]
    assert sorted(path.name for path in out.iterdir()) == [
        "_manifest.json",
        *(f"part-{part:06d}.parquet" for part in range(8) if part != 3),
    ]
    ids = [one for path in sorted(out.glob("*.parquet")) for one in pq.read_table(path)["id"].to_pylist()]
    assert len(ids) == len(set(ids)) == len(clean) * 7 // 8
    assert clean_rows_in(out, clean) == []
    assert left_over(out) == []


@pytest.mark.parametrize("damaged", ["page header", "values", "cut off"], indirect=True)
@pytest.mark.parametrize("name", ["out.parquet", "out.npy"])
def test_into_one_file(damaged: Path, name: str, protector: Path, tmp_path: Path) -> None:
    out = tmp_path / "place" / name
    out.parent.mkdir()
    done = run("protect", damaged / DAMAGED, "-p", protector, "-o", out)
    assert done.code == 1
    assert len(done.errors) == 1
    assert DAMAGED in done.errors[0]
    assert list(out.parent.iterdir()) == []


@pytest.mark.parametrize("damaged", ["cut off"], indirect=True)
def test_a_file_that_cannot_be_planned_ends_the_run_before_it_begins(
    damaged: Path, protector: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = run("protect", damaged, "-p", protector, "-o", out)
    assert done.code == 1
    assert len(done.errors) == 1
    assert DAMAGED in done.errors[0]
    assert not out.exists()
