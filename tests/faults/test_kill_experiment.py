"""``experiment run`` is killed at random moments: resumed, every cell has one record, the same as undisturbed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.command_line import Outcome
from harness.experiment_data import lsa_folder, small_data
from harness.faults import WarmProcess, clean_rows_in, halted, kills, left_over, seed
from vecveil.texts.encoders import load_encoder

SPEC = """
experiment: tradeoff
encoder: {encoder}
attacks: [linear]
methods: [laplace, subspace]
scales: [clean, effective 10]
problems:
  sts12: {{data: sts12, concept: {{terms_file: concepts/sts_terms.json}}}}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experiment")
    small_data(folder / "data", pairs=160)
    (folder / "mine.yaml").write_text(SPEC.format(encoder=lsa_folder(folder / "data", folder / "lsa")))
    return folder


@pytest.fixture(scope="module")
def warm_experiments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmProcess]:
    modules = (
        "research.running",
        "research.catalogue",
        "vecveil.auditing.attacks",
        "vecveil.auditing",
        "vecveil.texts.encoders.lsa",
        "pyarrow.parquet",
        "sklearn.linear_model",
        "scipy.stats",
        "tqdm",
        "research.catalogue.tradeoff",
    )
    with WarmProcess(tmp_path_factory.mktemp("said"), modules) as process:
        yield process


def found_in(out: Path) -> dict[str, Any]:
    """Return what was found by cell; fails if a cell has two records."""
    found: dict[str, Any] = {}
    for line in (out / "tradeoff" / "records.jsonl").read_text().splitlines():
        record = json.loads(line)
        name = json.dumps(record["cell"], sort_keys=True)
        assert name not in found
        found[name] = record["found"]
    return found


def without_times(found: Any) -> Any:
    """Return what was found but for what a clock says."""
    if isinstance(found, dict):
        return {k: without_times(v) for k, v in found.items() if "second" not in k and "time" not in k}
    return [without_times(one) for one in found] if isinstance(found, list) else found


def test_experiment_run(warm_experiments: WarmProcess, place: Path, tmp_path: Path) -> None:
    rng = random.Random(seed("experiment run"))
    out = tmp_path / "out"
    texts = np.asarray(load_encoder(str(place / "lsa"), show_progress=False).encode(_texts(place / "data")))
    arguments = ["experiment", "run", place / "mine.yaml", "--data", place / "data", "--out", out, "--workers", 0]
    undisturbed: list[Any] = []
    recorded: set[str] = set()

    def after_kill() -> None:
        assert not out.exists() or clean_rows_in(out, texts) == []
        cells = set()
        for path in out.glob("tradeoff/cells/*.json"):
            json.loads(path.read_text())  # whole
            cells.add(path.name)
        assert recorded <= cells  # what was finished stays
        recorded.update(cells)

    def after_end(done: Outcome) -> None:
        assert done.code == 0, done.err
        assert f", {len(recorded)} kept, 0 failed" in done.out
        undisturbed.append(without_times(found_in(out)))
        assert len(undisturbed[-1]) == 3
        assert undisturbed[-1] == undisturbed[0]
        assert len(list((out / "tradeoff" / "cells").iterdir())) == 3
        assert left_over(out) == []
        assert clean_rows_in(out, texts) == []
        shutil.rmtree(out)
        recorded.clear()

    kills(lambda: warm_experiments.start(*arguments, cwd=tmp_path), rng, after_kill=after_kill, after_end=after_end)


def test_the_second_of_two_runs_is_refused(warm_experiments: WarmProcess, place: Path, tmp_path: Path) -> None:
    """The first is halted in the middle, so that it is there for sure."""
    out = tmp_path / "out"
    arguments = ("experiment", "run", place / "mine.yaml", "--data", place / "data", "--out", out, "--workers", 0)
    first = halted(warm_experiments.start(*arguments, cwd=tmp_path), out / "tradeoff" / "spec.yaml")
    try:
        second = warm_experiments.run(*arguments, cwd=tmp_path)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert second.code == 1
    assert "another process writes to" in second.errors[0]
    done = first.wait()
    assert done.code == 0, done.err
    assert len(found_in(out)) == 3
    assert left_over(out) == []


def _texts(data: Path) -> list[str]:
    import pyarrow.parquet as pq

    table = pq.read_table(data / "sts" / "sts12.parquet").to_pydict()
    return sorted({*table["sentence1"], *table["sentence2"]})
