"""A small data folder in the layout that experiments read, and an encoder fitted on its texts."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from research import run, summarise
from research.results import read_experiment
from vecveil.errors import DataFileError, VecveilError

CANARY = "zebra-7731"  # a text that no message may hold
TERMS = {"city": ["paris", "london", "madrid", "oslo", "lima"], "number": ["one", "two", "three", "four"]}
SUBJECTS = ("The council", "A driver", "The museum", "My neighbour", "The team", "Our teacher", "A singer", "The court")
VERBS = ("visited", "left", "praised", "photographed", "described", "bought")
OBJECTS = ("a bridge", "old books", "the market", "a painting", "new shoes", "the river")
TIMES = ("in the morning", "after lunch", "last week", "during the storm", "before the vote")


def refusal(call: Any, *given: Any, error: type[VecveilError] = DataFileError, **options: Any) -> str:
    """Return the message of the error that a call raises, which holds none of the data."""
    with pytest.raises(error) as caught:
        call(*given, **options)
    assert CANARY not in str(caught.value)
    return str(caught.value)


def summary_of(name: str, out: Path) -> dict[str, Any]:
    """Return the record of an experiment, which a report can read."""
    record = summarise(name, out)
    read_experiment(record, owner=name, error=DataFileError)
    return record


def measured(spec: str, data: Path, folder: Path) -> dict[str, Any]:
    """Run a specification into ``folder / "out"`` and return the record; no cell may fail."""
    path = folder / "spec.yaml"
    path.write_text(spec)
    outcome = run(path, data, folder / "out", workers=0)
    assert not outcome.failed
    return summary_of(outcome.experiment, folder / "out")


def checkout_environment() -> dict[str, str]:
    """Return the environment of a program that imports the checkout's package and its experiments."""
    root = Path(__file__).parents[2]
    return {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}


def sentences(count: int, seed: int) -> list[str]:
    """Return sentences of which about two thirds hold a term."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        subject, verb, thing, time = (rng.choice(x) for x in (SUBJECTS, VERBS, OBJECTS, TIMES))
        kind = rng.integers(3)
        place = f" near {rng.choice(TERMS['city']).title()}" if kind == 0 else ""
        many = f"{rng.choice(TERMS['number'])} of " if kind == 1 else ""
        found.append(f"{subject} {verb} {many}{thing}{place} {time}.")
    return found


def small_data(folder: Path, pairs: int = 220) -> Path:
    """Write ``sts/sts12.parquet`` and ``concepts/sts_terms.json``."""
    left, right = sentences(pairs, 1), sentences(pairs, 2)
    alike = [len(set(a.split()) & set(b.split())) / 2 for a, b in zip(left, right, strict=True)]
    split = ["train" if i % 2 else "test" for i in range(pairs)]
    columns = {
        "split": split,
        "source": ["MSRpar"] * pairs,
        "sentence1": left,
        "sentence2": right,
        "score": pa.array([min(5.0, a) for a in alike], pa.float32()),
        "attribution": pa.nulls(pairs, pa.string()),
    }
    (folder / "sts").mkdir(parents=True)
    pq.write_table(pa.table(columns), folder / "sts" / "sts12.parquet")
    (folder / "concepts").mkdir()
    (folder / "concepts" / "sts_terms.json").write_text(json.dumps(TERMS))
    return folder


def lsa_folder(data: Path, folder: Path) -> Path:
    """Fit an LSA encoder on the sentences of `small_data` and save it."""
    from vecveil.texts.encoders.lsa import LsaEncoder

    table = pq.read_table(data / "sts" / "sts12.parquet").to_pydict()
    LsaEncoder.fit([*table["sentence1"], *table["sentence2"]], dimension=24).save(folder)
    return folder


def write_jsonl(path: Path, rows: list[dict[str, object]]) -> None:
    """Write rows as gzipped JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
