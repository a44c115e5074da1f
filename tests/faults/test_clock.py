"""A clock that jumps back and forth by days: nothing that is resumed, counted or recorded depends on it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.command_line import run
from harness.experiment_data import lsa_folder, small_data
from harness.faults import left_over
from research import run as run_experiment
from research import running
from vecveil import Ledger
from vecveil.gateway.bulk import verify
from vecveil.index import SealedIndex

DAY = 86_400.0


@pytest.fixture(autouse=True)
def jumps(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Let the clock jump at each reading, by more days each time, back and forth; return how often it was read."""
    true, read = time.time, [0]

    def jumping() -> float:
        read[0] += 1
        return true() + (-1) ** read[0] * read[0] * DAY

    monkeypatch.setattr(time, "time", jumping)
    monkeypatch.setattr(time, "time_ns", lambda: int(jumping() * 1e9))
    return lambda: read[0]


def test_control_the_clock_jumps() -> None:
    readings = [time.time() for _ in range(20)]  # a thread left by another test may read in between
    steps = np.diff(readings)
    assert steps.max() > DAY
    assert steps.min() < -DAY


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "fresh"])
def test_a_folder_is_resumed(
    keyed: bool, lake: Path, clean: np.ndarray, protector: Path, key: Path, tmp_path: Path
) -> None:
    """Two parts are gone and the manifest is older than the others; only those are made again."""
    arguments: list[object] = [
        "protect",
        lake,
        "-p",
        protector,
        "-o",
        tmp_path / "out",
        "--id-column",
        "id",
        "--ledger",
        tmp_path / "releases.ledger",
    ]
    arguments += ["--key-file", key] if keyed else []
    assert run(*arguments).code == 0
    manifest = tmp_path / "out" / "_manifest.json"
    before = json.loads(manifest.read_text())["parts"]
    lost = [tmp_path / "out" / before[part]["output"] for part in (1, 4)]
    for path in lost:
        path.unlink()
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.parquet")}
    if not keyed:  # they may be with somebody
        assert "Put them back" in run(*arguments).err
    done = run(*arguments, *([] if keyed else ["--again"]))
    assert done.code == 0, done.err
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert verify(tmp_path / "out", show_progress=False).rows == len(clean)
    after = json.loads(manifest.read_text())["parts"]
    changed = [part for part in range(len(after)) if after[part] != before[part]]
    assert changed == ([] if keyed else [1, 4])
    with Ledger(tmp_path / "releases.ledger") as ledger:
        ledger.verify()
        assert ledger.total == len(clean) * (1 if keyed else 10 / 8)
    assert left_over(tmp_path) == []


def test_outputs_older_than_their_inputs_are_not_made_again(lake: Path, protector: Path, tmp_path: Path) -> None:
    """Times of files are compared with nothing but themselves."""
    import os

    arguments = ("protect", lake, "-p", protector, "-o", tmp_path / "out")
    assert run(*arguments).code == 0
    for path in (tmp_path / "out").iterdir():
        os.utime(path, (1.0, 1.0))
    content = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert run(*arguments).code == 0
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == content


def test_a_ledger_keeps_its_order_and_its_cap(tmp_path: Path) -> None:
    from vecveil.errors import LedgerCapError

    with Ledger(tmp_path / "releases.ledger", cap=2) as ledger:
        for _ in range(2):
            ledger.record(["a", "b"], protector="p", epsilon=1.0)
            ledger.verify()
        with pytest.raises(LedgerCapError):
            ledger.record(["a"], protector="p", epsilon=1.0)
        assert ledger.total == 4


def test_records_of_an_experiment(tmp_path: Path, jumps: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cell finished "before" the one before it: all are kept, none is measured again."""
    data = small_data(tmp_path / "data", pairs=160)
    spec = tmp_path / "mine.yaml"
    spec.write_text(
        f"experiment: tradeoff\nencoder: {lsa_folder(data, tmp_path / 'lsa')}\nattacks: [linear]\nmethods: [laplace]\n"
        "scales: [clean, effective 10]\n"
        "problems: {sts12: {data: sts12, concept: {terms_file: concepts/sts_terms.json}}}\n"
    )
    years = iter(range(2030, 1990, -1))
    monkeypatch.setattr(running, "_now", lambda: f"{next(years)}-01-01T00:00:00+00:00")

    def found() -> list[Any]:
        lines = (tmp_path / "out" / "tradeoff" / "records.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    first = run_experiment(spec, data, tmp_path / "out", workers=0)
    assert (first.measured, first.kept, dict(first.failed)) == (2, 0, {})
    before = found()
    assert before[0]["finished"] > before[1]["finished"]
    assert all(record["seconds"] >= 0 for record in before)
    (tmp_path / "out" / "tradeoff" / "records.jsonl").unlink()
    again = run_experiment(spec, data, tmp_path / "out", workers=0)
    assert (again.measured, again.kept) == (0, 2)
    assert found() == before


def test_a_bar_of_progress_does_not_mind(capsys: pytest.CaptureFixture[str]) -> None:
    from vecveil.runtime import progress

    assert list(progress(range(50), "Protecting", total=50, show=True, unit="part")) == [*range(50)]
    assert "50/50" in capsys.readouterr().err


def test_a_sealed_index(tmp_path: Path, key: Path, jumps: Callable[[], int]) -> None:
    """The last write of an id wins whatever the time is said to be, and a renewal of keys ends."""
    shutil.copy(key, tmp_path / "search.keys")
    one, two = (SealedIndex(tmp_path / "notes", tmp_path / "search.keys", max_staleness=0) for _ in range(2))
    for turn in range(3):
        for index in (one, two):
            index.add([f"{turn}"] * 2, ids=["a", f"{turn}"], vectors=np.ones((2, 4)))
            time.time()
        one.delete([f"{turn}"])
        two.compact()
    write, passed = one._log._write, list[str]()

    def overtaken(*arguments: Any, **options: Any) -> Any:
        """A row is written, days seem to pass, and what looks left over is removed before the commit."""
        stored = write(*arguments, **options)
        if not passed:
            while stored.name in two._log.storage.list("segments"):
                two.compact()
                time.time()  # so that it jumps the other way next
            passed.append(stored.name)
        return stored

    one._log._write = overtaken  # type: ignore[method-assign]
    one.add(["late"], ids=["late"], vectors=np.ones((1, 4)))
    assert passed
    one.reseal()
    assert sorted(two.get().texts) == sorted(one.get().texts) == ["2", "late"]
    assert jumps() >= 6
