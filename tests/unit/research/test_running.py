"""Runs: what is recorded, what is done again, what stops what."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.errors import raises
from harness.experiment_data import checkout_environment
from research import run, summarise
from research.experiment import Cell
from research.running import commit

SPEC = """
experiment: tradeoff
encoder: {encoder}
attacks: [linear]
methods: [laplace, covariance]
scales: [clean, effective 10, utility 0.9]
seeds: 1
problems:
  sts12: {{data: sts12, concept: {{terms_file: concepts/sts_terms.json}}}}
"""


@pytest.fixture
def spec(tmp_path: Path, encoder: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(SPEC.format(encoder=encoder))
    return path


@pytest.fixture(scope="module")
def done(data: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records of one finished run."""
    folder = tmp_path_factory.mktemp("done")
    path = folder / "mine.yaml"
    path.write_text(SPEC.format(encoder=encoder))
    outcome = run(path, data, folder / "out", workers=0)
    assert (outcome.asked, outcome.measured, outcome.kept, dict(outcome.failed)) == (5, 5, 0, {})
    return folder / "out"


@pytest.fixture
def out(done: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    return shutil.copytree(done, tmp_path / "out")


def records(out: Path) -> list[dict[str, Any]]:
    lines = (out / "tradeoff" / "records.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_run_records_each_cell_and_goes_on(spec: Path, data: Path, out: Path) -> None:
    before = records(out)
    assert {r["schema"] for r in before} == {"vecveil.experiment-cell/1"}
    for record in before:
        assert {"settings", "data", "spec", "seed", "vecveil", "commit", "machine", "seconds"} <= set(record)
    files = {path: path.stat().st_mtime_ns for path in (out / "tradeoff" / "cells").iterdir()}
    again = run(spec, data, out, workers=0)
    assert (again.measured, again.kept) == (0, 5)
    assert files == {path: path.stat().st_mtime_ns for path in (out / "tradeoff" / "cells").iterdir()}
    assert records(out) == before


def test_the_gathered_records_alone_are_enough(spec: Path, data: Path, out: Path) -> None:
    for path in (out / "tradeoff" / "cells").iterdir():
        path.unlink()
    assert run(spec, data, out, workers=0).kept == 5
    assert summarise("tradeoff", out)["cells"] == {"asked": 5, "measured": 5, "failed": 0}


def test_gathered_records_outlive_a_run_of_other_cells(spec: Path, data: Path, out: Path) -> None:
    text = spec.read_text()
    for path in (out / "tradeoff" / "cells").iterdir():  # as in a fresh clone
        path.unlink()
    spec.write_text(text.replace("[laplace, covariance]", "[laplace]"))
    assert run(spec, data, out, workers=0).kept == 3
    assert len(records(out)) == 3
    spec.write_text(text)
    assert run(spec, data, out, workers=0).measured == 0
    assert len(records(out)) == 5


def test_more_seeds_repeat_nothing(spec: Path, data: Path, out: Path) -> None:
    more = run(spec, data, out, workers=0, seeds=2)
    assert (more.kept, more.measured) == (5, 5)
    table = summarise("tradeoff", out)["tables"][0]
    leaks = [row[2] for row in table["rows"]]
    assert all(cell["n"] == 2 and cell["sd"] is not None for cell in leaks)


def test_another_setting_is_measured_beside(spec: Path, data: Path, out: Path) -> None:
    spec.write_text(spec.read_text().replace("attacks: [linear]", "attacks: [linear, faint-directions]"))
    assert run(spec, data, out, workers=0).measured == 5
    assert len(list((out / "tradeoff" / "cells").iterdir())) == 10


def test_other_data_is_measured_again(spec: Path, data: Path, out: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(data, other)
    terms = json.loads((other / "concepts" / "sts_terms.json").read_text())
    terms["city"].append("morning")
    (other / "concepts" / "sts_terms.json").write_text(json.dumps(terms))
    assert run(spec, other, out, workers=0).measured == 5


def test_a_cell_that_fails_stops_no_other(
    spec: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from research.catalogue.tradeoff import Tradeoff

    measure = Tradeoff.measure

    def fragile(self: Tradeoff, spec: Any, cell: Cell, bench: Any) -> dict[str, Any]:
        if cell["method"] == "laplace" and cell["scale"].startswith("utility"):
            raise RuntimeError("a text with secrets")
        return measure(self, spec, cell, bench)

    monkeypatch.setattr(Tradeoff, "measure", fragile)
    out = tmp_path / "out"
    outcome = run(spec, data, out, workers=0)
    assert outcome.measured == 4
    assert list(outcome.failed) == ["sts12-laplace-utility_0.9-0"]
    why = outcome.failed["sts12-laplace-utility_0.9-0"]
    assert "RuntimeError" in why
    assert "secrets" not in why
    assert len(records(out)) == 4
    monkeypatch.undo()
    assert run(spec, data, out, workers=0).measured == 1


def test_a_missing_data_set_is_named_before_anything_is_measured(spec: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    (empty / "concepts").mkdir(parents=True)
    with raises("E-DATA-FILE", "data"):
        run(spec, empty, tmp_path / "out", workers=0)
    assert not (tmp_path / "out" / "tradeoff" / "records.jsonl").exists()


def test_a_damaged_record_is_named(spec: Path, data: Path, out: Path) -> None:
    path = next((out / "tradeoff" / "cells").iterdir())
    path.write_text(path.read_text()[:40])
    with raises("E-DATA-FILE", "file"):
        run(spec, data, out, workers=0)


@pytest.mark.parametrize(
    "change",
    [
        {"settings": "/../../../outside"},
        {"settings": ["0" * 16]},
        {"cell": {"problem": ["sts12"]}},
        {"commit": [1]},
        {"finished": 3},
        {"seconds": float("nan")},
        {"machine": {"cores": [2]}},
        {"found": {}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_record_of_wrong_form_is_named(out: Path, change: dict[str, Any]) -> None:
    path = out / "tradeoff" / "records.jsonl"
    path.write_text(json.dumps({**records(out)[0], **change}) + "\n")
    with raises("E-DATA-FILE", "line 1"):
        summarise("tradeoff", out)


def test_a_result_that_the_summary_cannot_read_is_no_crash(out: Path) -> None:
    path = out / "tradeoff" / "records.jsonl"
    shutil.rmtree(out / "tradeoff" / "cells")
    crossed = {"leakage": {"value": 1, "low": 2, "high": 0}}
    changed = [{**record, "found": record["found"] | crossed} for record in records(out)]
    path.write_text("".join(f"{json.dumps(record)}\n" for record in changed))
    with raises("E-DATA-FILE", "out"):
        summarise("tradeoff", out)


@pytest.mark.parametrize("text", ["[", '["a"]', '{"a": 1}', "[" * 100_000], ids=["cut", "list", "number", "deep"])
def test_damaged_failures_are_named(out: Path, text: str) -> None:
    (out / "tradeoff" / "failures.json").write_text(text)
    with raises("E-DATA-FILE", "out"):
        summarise("tradeoff", out)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("scales: [clean, effective 10, utility 0.9]", "scales: []"),
        ("sts12: {", "a/b: {data: sts12, concept: {terms: [one]}}\n  a_b: {"),
    ],
)
def test_cells_that_would_share_a_record_and_none_at_all_are_refused(
    spec: Path, data: Path, tmp_path: Path, old: str, new: str
) -> None:
    spec.write_text(spec.read_text().replace(old, new))
    with raises("E-DATA-FILE", "name"):
        run(spec, data, tmp_path / "out", workers=0)


def test_a_link_in_the_folder_of_records_leads_to_no_other_file(spec: Path, data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / "out" / "tradeoff").mkdir(parents=True)
    (tmp_path / "out" / "tradeoff" / ".lock").symlink_to(other)
    with pytest.raises(OSError, match="symbolic"):
        run(spec, data, tmp_path / "out", workers=0)
    assert other.read_text() == "mine"


def test_the_commit_is_that_of_the_package(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        names = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *names, *arguments], cwd=tmp_path, check=True, capture_output=True)

    source = tmp_path / "running.py"
    source.write_text("")
    assert commit(source) is None
    git("init")
    git("commit", "--allow-empty", "-m", "somebody else's")
    assert commit(source) is None  # as in a virtual environment inside a repository
    git("add", "running.py")
    git("commit", "-m", "the package")
    found = commit(source)
    assert found is not None
    assert not found.endswith("+")
    source.write_text("changed")
    changed = commit(source)
    assert changed == f"{found}+"


PROGRAM = """
import sys
from research import run
if __name__ == "__main__":
    print(run(sys.argv[1], sys.argv[2], sys.argv[3], workers=1, report=lambda line: print(line, flush=True)))
"""


def started(spec: Path, data: Path, out: Path, tmp_path: Path) -> subprocess.Popen[str]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    return subprocess.Popen(
        [sys.executable, str(program), str(spec), str(data), str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=checkout_environment(),
    )


def first_cell(process: subprocess.Popen[str]) -> None:
    """Wait until the first cell is recorded."""
    assert process.stdout is not None
    while line := process.stdout.readline():
        if line.rstrip().endswith(" s"):
            return
    raise AssertionError("it ended before a cell was done")


def goes_on(spec: Path, data: Path, out: Path) -> None:
    """Check that a run resumes a stopped one: what is recorded stays, the rest is measured."""
    done = len(list((out / "tradeoff" / "cells").glob("*.json")))
    assert 1 <= done < 5
    rest = run(spec, data, out, workers=0)
    assert rest.kept >= done
    assert rest.kept + rest.measured == 5
    assert len(records(out)) == 5


def test_workers_find_the_same_as_one_process(spec: Path, data: Path, done: Path, tmp_path: Path) -> None:
    process = started(spec, data, tmp_path / "b", tmp_path)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors

    def found(out: Path) -> dict[str, Any]:
        return {Cell.of(**r["cell"]).name: r["found"]["leakage"] for r in records(out)}

    assert found(done) == found(tmp_path / "b")


def test_workers_end_with_a_killed_parent_and_the_run_goes_on(spec: Path, data: Path, tmp_path: Path) -> None:
    import psutil

    with started(spec, data, tmp_path / "out", tmp_path) as process:
        first_cell(process)
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)  # until its children have closed its pipes
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and any(child.is_running() for child in children):
        time.sleep(0.2)
    assert not any(child.is_running() and child.status() != "zombie" for child in children)
    goes_on(spec, data, tmp_path / "out")


def test_a_worker_that_dies_costs_a_second_try(
    spec: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module of the run kills its own process: the first time for one cell, always for another."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deadly.py").write_text(
        "import os, pathlib\n"
        "from research.catalogue.tradeoff import Tradeoff\n"
        "measure = Tradeoff.measure\n"
        "def deadly(self, spec, cell, bench):\n"
        "    once = pathlib.Path('died')\n"
        "    if cell['method'] == 'none' and not once.exists():\n"
        "        once.touch()\n"
        "        os._exit(9)\n"
        "    if cell['scale'] == 'utility 0.9' and cell['method'] == 'laplace':\n"
        "        os._exit(9)\n"
        "    return measure(self, spec, cell, bench)\n"
        "if not hasattr(Tradeoff, 'marked'):\n"
        "    Tradeoff.marked = True\n"
        "    Tradeoff.measure = deadly\n"
    )
    monkeypatch.setattr("research.catalogue.tradeoff.Tradeoff.marked", True, raising=False)
    text = spec.read_text().replace("laplace, covariance", "laplace").replace("effective 10, ", "")
    spec.write_text(text + "modules: [deadly.py]\n")  # each death costs the start of a process
    outcome = run(spec, data, tmp_path / "out", workers=1)
    assert outcome.measured == 1
    assert list(outcome.failed) == ["sts12-laplace-utility_0.9-0"]
    assert "died" in outcome.failed["sts12-laplace-utility_0.9-0"]


def test_other_scores_are_measured_again(spec: Path, data: Path, out: Path, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    other = tmp_path / "other"
    shutil.copytree(data, other)
    path = other / "sts" / "sts12.parquet"
    table = pq.read_table(path)
    place = table.column_names.index("score")
    reversed_scores = pa.array(table["score"].to_pylist()[::-1], pa.float32())
    pq.write_table(table.set_column(place, "score", reversed_scores), path)
    assert run(spec, other, out, workers=0).measured == 5


def test_another_encoder_in_the_same_folder_is_measured_again(
    spec: Path, data: Path, encoder: Path, tmp_path: Path
) -> None:
    from harness.experiment_data import sentences
    from vecveil.texts.encoders.lsa import LsaEncoder

    own = tmp_path / "own"
    shutil.copytree(encoder, own)
    spec.write_text(spec.read_text().replace(str(encoder), str(own)))
    assert run(spec, data, tmp_path / "out", workers=0).measured == 5
    shutil.rmtree(own)
    LsaEncoder.fit(sentences(300, 9), dimension=16).save(own)
    assert run(spec, data, tmp_path / "out", workers=0).measured == 5


def test_the_specification_of_a_run_can_be_run_again(spec: Path, data: Path, out: Path) -> None:
    held = out / "tradeoff" / "spec.yaml"
    before = held.read_text()
    assert run(held, data, out, workers=0).kept == 5
    assert held.read_text() == before
