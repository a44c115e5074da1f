"""``vecveil ledger``: pure data on stdout, exit codes, and a check of the checksums before anything."""

from __future__ import annotations

import contextlib
import csv
import json
import sqlite3
from pathlib import Path

import pytest

from harness.command_line import CANARY, assert_one_clear_error, run, spawn
from vecveil.privacy.accounting.ledger import Ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "releases.ledger"
    with Ledger(path, cap=5) as ledger:
        ledger.record([CANARY, CANARY, "b"], protector="a1b2c3", epsilon=0.5)
        ledger.record([CANARY], protector="other", epsilon=None)
    return path


def test_show_prints_the_ledger_in_numbers(path: Path) -> None:
    done = spawn("ledger", "show", path, cwd=path.parent)
    assert (done.code, done.err) == (0, "")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert lines[:4] == ["items 2", "releases 4", "most of one item 3", "cap 5"]
    assert lines[4] == "checksums right"
    assert {"1 1", "3 1", "protector a1b2c3", "protector other"} <= set(lines)
    assert "most ε of one item 1 (per unit of its own metric)" in lines
    assert "most ε of one item none (per unit of its own metric)" in lines
    assert CANARY not in done.out


def test_show_json_is_the_record_of_the_summary(path: Path) -> None:
    done = run("ledger", "show", path, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json == Ledger(path).summary().to_record()
    assert done.json["histogram"] == {"1": 1, "3": 1}
    assert CANARY not in done.out


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl"])
def test_export_writes_one_line_per_release(path: Path, name: str) -> None:
    done = run("ledger", "export", path, "-o", path.with_name(name))
    assert (done.code, done.out) == (0, "")
    assert done.err == f"Wrote 4 releases to {name}.\n"
    text = path.with_name(name).read_text(encoding="utf-8")
    assert CANARY not in text
    lines = text.splitlines()
    rows = list(csv.DictReader(lines)) if name == "out.csv" else [json.loads(x) for x in lines]
    assert [row["protector"] for row in rows] == ["a1b2c3"] * 3 + ["other"]


def test_export_replaces_only_with_force(path: Path) -> None:
    out = path.with_name("kept.csv")
    out.write_text("mine")
    done = run("ledger", "export", path, "-o", out)
    assert done.code == 1
    assert "--force" in done.errors[0]
    assert out.read_text() == "mine"
    done = run("ledger", "export", path, "-o", out, "--force", "--json")
    assert (done.code, done.json) == (0, {"output": "kept.csv", "releases": 4})
    assert out.read_text() != "mine"
    for force in ([], ["--force"]):
        assert run("ledger", "export", path, "-o", path, *force).code == 1
    assert "`--output` ends in .csv" in run("ledger", "export", path, "-o", path.with_name("rel.txt")).err
    Ledger(path).verify()


def alter(path: Path, statement: str) -> None:
    """Change a row past the trigger that forbids it."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        sql = "SELECT sql FROM sqlite_master WHERE name = 'events_no_update'"
        (trigger,) = connection.execute(sql).fetchone()
        connection.execute("DROP TRIGGER events_no_update")
        connection.execute(statement)
        connection.execute(trigger)


@pytest.mark.parametrize("arguments", [["show"], ["export", "-o", "out.csv"]])
def test_what_is_no_ledger_or_was_altered_is_one_clear_error(
    path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    (path.parent / "text.csv").write_text(f"id\n{CANARY}\n")
    alter(path, "UPDATE events SET epsilon = 0.25 WHERE row = 2")
    before = set(path.parent.rglob("*"))
    for name in ("missing", "text.csv", ".", path.name):
        done = run("ledger", *arguments, name)
        says = assert_one_clear_error(done, path.parent, before)
        if name == path.name:
            assert "breaks at row 2" in says
    assert set(path.parent.rglob("*")) == before


def test_a_repair_says_what_is_lost(path: Path) -> None:
    alter(path, "UPDATE events SET item = randomblob(32) WHERE row = 2")
    assert "ledger repair" in run("ledger", "show", path).errors[0]
    done = run("ledger", "repair", path, "-o", path.with_name("new.ledger"), "--json")
    assert (done.code, done.json) == (
        0,
        {"output": "new.ledger", "releases": 3, "lost": 1, "cap": 5, "cap_lost": False},
    )
    assert "Lost: 1 row, whose releases no longer count." in done.err
    assert run("ledger", "show", path.with_name("new.ledger")).code == 0
    assert run("ledger", "repair", path, "-o", path.with_name("new.ledger")).code == 1
