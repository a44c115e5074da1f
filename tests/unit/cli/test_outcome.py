"""Message and exit code of a command that was stopped."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.command_line import run
from vecveil.cli.commands import _failure, _left_behind, _Terminated
from vecveil.errors import KeyFileError, StoreError, VecveilError
from vecveil.runtime import progress, stage, status

NOTHING = "Nothing unfinished was left behind."
KEPT = "Finished attacks and checkpoints are kept in"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["protect", "a.npy", "--work", "w"], "Nothing unfinished was left behind."),
        ([], "Nothing unfinished was left behind."),
        (["audit", "a.csv", "--work", "w"], f"{KEPT} w; run the same command again"),
        (["audit", "--work=w", "--no-cache"], f"{KEPT} w; run the same command again"),
        (["audit", "a.csv", "--no-cache"], "Finished attacks were not kept; pass --work FOLDER"),
        (["audit", "a.csv"], f"{KEPT} "),
    ],
)
def test_what_a_stopped_command_leaves(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _failure(KeyboardInterrupt(), arguments) == 130
    assert _failure(_Terminated(), arguments) == 143
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"vecveil: stopped by Ctrl-C. {said}")
    assert second.startswith(f"vecveil: stopped. {said}")


def test_the_default_folder_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("VECVEIL_CACHE", "/somewhere")
    _failure(KeyboardInterrupt(), ["audit", "a.csv"])
    assert "/somewhere/audits; run the same" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (["migrate", "faiss:a.faiss", "sqlite-vec:safe.db#notes", "-p", "p.vecveil"], "safe.db.notes.migration.json"),
        (["migrate", "faiss:a.faiss", "sqlite-vec:safe.db#notes", "--state", "own.json"], "own.json"),
        (["frontier", "notes.csv", "--out", "folder"], "folder/frontier.json"),
        (["forget", "sqlite-vec:safe.db#notes", "--ids", "ids.txt", "--receipt", "receipt.json"], "receipt.json"),
        (["fit", "notes.csv", "-o", "p.vecveil"], "p.vecveil.training/policy.safetensors"),
    ],
)
def test_a_file_is_named_where_it_exists(
    words: list[str], file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _left_behind(words) == NOTHING
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text("{}", encoding="utf-8")
    assert _left_behind(words) != NOTHING


@pytest.mark.parametrize(("kind", "shown"), [(StoreError, True), (KeyFileError, False)])
def test_debugging_shows_the_cause_that_nothing_else_shows(
    kind: type[VecveilError], shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = kind("It failed.")
    error.__context__, error.__suppress_context__ = OSError("the driver says why"), True  # as `from None` leaves it
    for debug in ("", "1"):
        monkeypatch.setenv("VECVEIL_DEBUG", debug)
        assert _failure(error, ["scan"]) == 1
        assert ("the driver says why" in capsys.readouterr().err) is (shown and debug == "1")


def test_debugging_shows_what_a_database_said(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("scan", "pgvector:postgresql://me:hunter2@127.0.0.1:1/db#notes")
    assert "connection" not in run(*words).err
    monkeypatch.setenv("VECVEIL_DEBUG", "1")
    done = run(*words)
    assert "psycopg" in done.err
    assert "hunter2" not in done.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "line"),
    [("Encoding", r"vecveil: fit: Encoding [1-4] of 5 texts\n"), ("Reading", "vecveil: fit: Reading n.csv\n")],
)
def test_a_long_command_says_what_it_does_where_no_bar_can_move(first: str, line: str) -> None:
    code = (
        "import threading\n"
        "from vecveil.cli import commands\n"
        "from vecveil.runtime import progress, stage\n"
        "said, write = threading.Event(), commands._write\n"
        "commands._write = lambda text: (write(text), said.set())\n"
        "with commands._progress_in_lines(['fit']):\n"
        "    stage('Reading n.csv')\n"
        f"    {first == 'Encoding'} or said.wait(60)\n"
        "    for i in progress(range(5), 'Encoding', total=5, unit=' texts'):\n"
        "        i < 2 or said.wait(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.fullmatch(line, done.stderr)


@pytest.mark.slow
def test_help_shows_no_progress() -> None:
    code = (
        "import time\n"
        "from vecveil.cli.commands import _progress_in_lines\n"
        "with _progress_in_lines(['fit', '--help']):\n"
        "    time.sleep(1.8)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr == ""


def test_a_loop_that_ends_early_leaves_no_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vecveil.runtime._at", "")  # what an earlier test was at when it failed on purpose
    stage("Fitting")
    for _ in progress(range(5), "Measuring", total=5, show=False, unit="batch"):
        assert list(progress(range(1), "Encoding", show=False)) == [0]
        assert status() == "Measuring 0 of 5 batches"
        break
    gc.collect()
    assert status() == "Fitting"
