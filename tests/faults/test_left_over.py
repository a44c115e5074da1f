"""What a kill at one certain moment leaves, made by hand: the next run removes it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from harness.command_line import run
from harness.faults import left_over
from vecveil import Ledger

STALE = "0123456789ab.tmp"


def test_a_folder_whose_manifest_was_being_written(lake: Path, protector: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "_lock").touch()
    (out / f"._manifest.json.{STALE}").write_bytes(b'{"schema": ')
    done = run("protect", lake, "-p", protector, "-o", out)
    assert done.code == 0, done.err
    assert left_over(out) == []


def test_a_part_that_has_its_name_already(lake: Path, protector: Path, tmp_path: Path) -> None:
    """Killed between the link and the removal: the part is done and is not written again."""
    out = tmp_path / "out"
    assert run("protect", lake, "-p", protector, "-o", out).code == 0
    part = out / "part-000002.parquet"
    (out / f".{part.name}.{STALE}").hardlink_to(part)
    done = run("protect", lake, "-p", protector, "-o", out)
    assert done.code == 0, done.err
    assert left_over(out) == []


def test_a_folder_with_other_files_is_still_refused(lake: Path, protector: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / f".other.{STALE}").touch()
    done = run("protect", lake, "-p", protector, "-o", out)
    assert done.code == 1
    assert "has other files" in done.errors[0]


@pytest.mark.parametrize("name", ["releases.ledger", "out.npy"])
def test_a_file_that_was_being_made(name: str, tmp_path: Path) -> None:
    stale = tmp_path / f".{name}.{STALE}"
    stale.write_bytes(b"half")
    if name == "out.npy":
        from vecveil.texts.tables.writing import open_writer

        with open_writer(tmp_path / name) as writer:
            writer.write(np.ones((2, 2), np.float32))
    else:
        Ledger(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_ledger_that_was_there_already(tmp_path: Path) -> None:
    """Killed between the link and the removal: both names are the same file."""
    with Ledger(tmp_path / "releases.ledger", cap=2) as ledger:
        ledger.record(["a"], protector="p", epsilon=1.0)
    os.link(tmp_path / "releases.ledger", tmp_path / f".releases.ledger.{STALE}")
    with Ledger(tmp_path / "releases.ledger", cap=2) as ledger:
        ledger.verify()
        assert ledger.count("a") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["releases.ledger"]
