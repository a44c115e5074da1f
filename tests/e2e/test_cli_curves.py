"""``vecveil curves``: the learning curves of a protector on stdout and in files, or one clear error."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import vecveil
from harness.command_line import CANARY, leftovers, run, spawn
from harness.sample_training import sample_training


def with_training(base: Path, folder: Path, record: Any) -> Path:
    protector = vecveil.load(base)
    path = folder / "trained.vecveil"
    replace(protector, report={**protector.report, "training": record}).save(path)
    return path


@pytest.fixture
def trained(vectors_protector: Path, tmp_path: Path) -> Path:
    return with_training(vectors_protector, tmp_path, sample_training())


def test_the_curves_are_printed(trained: Path) -> None:
    done = spawn("curves", trained.name, cwd=trained.parent)
    assert (done.code, done.err) == (0, "")
    assert len([line for line in done.out.splitlines() if line[:5].strip().isdigit()]) == 11
    assert "nothing of what another attacker finds" in done.out
    assert "empirical, no formal privacy guarantee" in done.out


def test_json_is_the_record(trained: Path) -> None:
    done = run("curves", trained, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json == sample_training()


def test_page_and_table_are_written_and_may_be_replaced(trained: Path, tmp_path: Path) -> None:
    page, table = tmp_path / "curves.html", tmp_path / "curves.csv"
    for _ in range(2):
        done = run("curves", trained, "--html", page, "--csv", table, "--json")
        assert done.code == 0, done.err
        assert done.json["seed"] == 7
        assert done.err.splitlines() == [f"Wrote {page}", f"Wrote {table}"]
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    with table.open(encoding="utf-8", newline="") as file:
        assert [float(row["drift"]) for row in csv.DictReader(file)] == [
            epoch["drift"] for epoch in sample_training()["epochs"]
        ]


def test_a_protector_without_training_is_refused(vectors_protector: Path, tmp_path: Path) -> None:
    done = run("curves", vectors_protector, "--html", tmp_path / "out.html")
    assert (done.code, done.out) == (1, "")
    assert len(done.errors) == 1
    assert "trained (method textcrafter); got one of method laplace" in done.errors[0]
    assert list(tmp_path.iterdir()) == []


def record_of_another_schema() -> dict[str, Any]:
    return {**sample_training(), "schema": "vecveil.training/9"}


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (record_of_another_schema(), "training.schema"),
        ({}, "training.schema"),
        (CANARY, "an object"),
        ({**sample_training(), "epochs": [{"epoch": 1, "reward": CANARY}]}, "epochs[0].reward"),
    ],
)
def test_a_record_that_is_not_sound_is_one_clear_error(
    vectors_protector: Path, tmp_path: Path, record: Any, says: str
) -> None:
    path = with_training(vectors_protector, tmp_path, record)
    done = run("curves", path, "--html", tmp_path / "out.html", "--csv", tmp_path / "out.csv")
    assert (done.code, done.out) == (1, "")
    assert len(done.errors) == 1
    assert says in done.errors[0]
    assert CANARY not in done.err
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_what_cannot_be_written_or_read_is_one_clear_error(trained: Path, tmp_path: Path) -> None:
    before = trained.read_bytes()
    for arguments, says in (
        ((trained, "--html", trained), "another file than the inputs"),
        ((trained, "--html", tmp_path), "a folder"),
        ((trained, "--csv", trained / "x.csv"), "in a folder that you may write to"),
        ((tmp_path / "nothing.vecveil",), "does not exist"),
    ):
        done = run("curves", *arguments)
        assert (done.code, done.out) == (1, "")
        assert len(done.errors) == 1
        assert says in done.errors[0]
    assert run("curves", trained, "--html", tmp_path / "x", "--csv", tmp_path / "x").code == 2
    assert trained.read_bytes() == before
    assert leftovers(tmp_path) == []
    assert run("curves").code == 2


def test_a_forged_number_is_refused(vectors_protector: Path, tmp_path: Path) -> None:
    """`save` writes no NaN; a file that somebody has made holds one all the same."""
    from harness.protector_files import built, parts

    record, arrays = parts(vectors_protector.read_bytes())
    training = sample_training()
    for place in (training["epochs"][2], training):
        place["drift"] = math.nan
        record["report"]["training"] = training
        path = tmp_path / "forged.vecveil"
        path.write_bytes(built(record, arrays))
        done = run("curves", path, "--json")
        assert (done.code, done.out) == (1, "")
        assert len(done.errors) == 1, done.err
        assert "drift" in done.errors[0] or "NaN" in done.errors[0]
        del place["drift"]
