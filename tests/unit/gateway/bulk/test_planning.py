"""Inputs are listed and cut into parts: every row in exactly one, whatever the files are."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from harness.errors import raises
from unit.gateway.bulk.conftest import WriteTable
from vecveil.errors import DataFileError
from vecveil.gateway.bulk import plan


def spans(parts: list, name: str) -> list[tuple[int, int]]:
    return [(part.start, part.stop) for part in parts if part.input.name == name]


@pytest.mark.parametrize("part_bytes", [1, 700, 3000, 10**9])
def test_row_groups_are_cut_without_gaps(tmp_path: Path, write_table: WriteTable, part_bytes: int) -> None:
    write_table(tmp_path / "a.parquet", 57, group=10)
    parts = plan([str(tmp_path / "a.parquet")], part_bytes=part_bytes)
    edges = spans(parts, "a.parquet")
    assert edges[0][0] == 0
    assert edges[-1][1] == 6
    assert all(left[1] == right[0] for left, right in itertools.pairwise(edges))
    assert sum(part.rows or 0 for part in parts) == 57
    assert len(parts) == {1: 6, 10**9: 1}.get(part_bytes, len(parts))
    if part_bytes == 3000:
        assert 1 < len(parts) < 6
    assert [part.output for part in parts[:2]] == ["part-000000.parquet", "part-000001.parquet"][: len(parts)]


def test_rows_of_npy_are_cut_without_gaps(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((100, 4), np.float32))
    parts = plan([str(tmp_path / "a.npy")], part_bytes=16 * 30)
    assert spans(parts, "a.npy") == [(0, 30), (30, 60), (60, 90), (90, 100)]
    assert [part.rows for part in parts] == [30, 30, 30, 10]


def test_folders_patterns_and_files_name_each_file_once_and_in_order(tmp_path: Path, write_table: WriteTable) -> None:
    for name in ("b.parquet", "a.parquet", "deep/c.parquet", "_skipped/d.parquet"):
        write_table(tmp_path / "in" / name, 5)
    for name in ("_manifest.json", ".hidden.parquet", "notes.docx", "_x.parquet"):
        (tmp_path / "in" / name).write_bytes(b"PAR1")
    found = plan([str(tmp_path / "in")])
    assert [part.input.name for part in found] == ["a.parquet", "b.parquet", "c.parquet"]
    pattern = plan([str(tmp_path / "in" / "*.parquet"), str(tmp_path / "in" / "a.parquet")])
    assert [part.input.name for part in pattern] == ["a.parquet", "b.parquet"]
    everything = plan([str(tmp_path / "in" / "**" / "*.parquet")])
    assert {part.input.name for part in everything} >= {"a.parquet", "b.parquet", "c.parquet"}
    assert "d.parquet" not in {part.input.name for part in everything}


def test_a_folder_whose_own_name_is_hidden_is_what_the_user_named(tmp_path: Path, write_table: WriteTable) -> None:
    write_table(tmp_path / "_in" / ".x" / "a.parquet", 5)
    assert len(plan([str(tmp_path / "_in" / ".x")])) == 1
    assert len(plan([str(tmp_path / "_in" / ".x" / "*.parquet")])) == 1


def test_texts_are_whole_files(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n' * 9)
    (part,) = plan([str(tmp_path / "a.jsonl")], part_bytes=1)
    assert (part.start, part.stop, part.rows) == (0, None, None)


@pytest.mark.parametrize(
    ("name", "content", "param"),
    [
        ("missing.parquet", None, "input"),
        ("empty.parquet", b"", "path"),
        ("cut.parquet", b"PAR1xxxx", "path"),
        ("other.parquet", b"not one of these", "path"),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path: Path, name: str, content: bytes | None, param: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with raises("E-DATA-FILE", param) as caught:
        plan([str(tmp_path / name)])
    assert name in str(caught.value)


def test_unusable_arguments() -> None:
    with raises("E-DATA-FILE", "input"):
        plan(["/nowhere/at/all/*.parquet"])
    with raises("E-DATA-FILE", "input"):
        plan(["simplecache::s3://bucket/x.parquet"])
    with raises("E-DATA-FILE", "input"):
        plan(["nosuch://bucket/x.parquet"])
    with raises("E-INPUT-RANGE", "part_bytes"):
        plan(["x.parquet"], part_bytes=0)


def test_messages_hold_no_credentials(tmp_path: Path) -> None:
    url = "https://user:hunter2@127.0.0.1:9/secret/a.parquet?sig=topsecret"
    with pytest.raises(DataFileError) as caught:
        plan([url])
    for secret in ("hunter2", "topsecret"):
        assert secret not in str(caught.value)
