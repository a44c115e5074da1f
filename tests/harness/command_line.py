"""Runs the command line in this process or in one of its own, and says what came out."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CANARY = "zyxcanaryl"
"""A made-up drug: the planted term that no message may hold."""
SECRET = "Margarethe Silberstein of 14 Foxglove Lane"
"""A planted piece of text that no message may hold either."""


TOKEN_INFERENCE_ALONE = [
    word
    for family in ("probe", "candidates", "averaging", "alignment", "held-out-terms", "whole-vocabulary", "membership")
    for word in ("--skip", family)
]
"""Options of an audit that leave its other families out."""
ROWS = 430
"""Notes that `write_notes` writes."""


@dataclass(frozen=True)
class Outcome:
    """Exit code, stdout and stderr of one run."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout as one JSON document."""
        return json.loads(self.out)

    @property
    def errors(self) -> list[str]:
        """The lines of stderr that begin like an error."""
        return [line for line in self.err.splitlines() if line.startswith("vecveil: error: ")]


def run(*arguments: object) -> Outcome:
    """Return the outcome of ``vecveil ARGUMENTS`` in this process; the first argument may be several words."""
    from vecveil.cli.__main__ import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        words = (word for first in arguments[:1] for word in str(first).split())
        code = main([*words, *map(str, arguments[1:])])
    return Outcome(code, out.getvalue(), err.getvalue())


def command(*arguments: object) -> list[str]:
    """Return the words of ``vecveil ARGUMENTS`` in a process of its own."""
    return [sys.executable, "-m", "vecveil", *map(str, arguments)]


def environment() -> dict[str, str]:
    """Return this process's environment with the package under test on the path, and without lines of progress."""
    import vecveil

    source = str(Path(vecveil.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": source, "PYTHONDEVMODE": "", "TQDM_DISABLE": "1"}


def spawn(*arguments: object, cwd: Path, **options: Any) -> Outcome:
    """Return the outcome of ``vecveil ARGUMENTS`` in a process of its own."""
    done = subprocess.run(
        command(*arguments),
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        **options,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> Path:
    """Write a CSV file and return its path."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def write_notes(path: Path) -> Path:
    """Write `ROWS` of the bundled notes as CSV, two in three with one of few concept terms.

    So few terms, because an audit attacks a word only if enough of the texts hold it.
    """
    from vecveil.cli.demo.corpus import load_notes

    notes = load_notes()
    found = {n.id: {s.value.lower() for s in n.spans if s.label in ("CONDITION", "DRUG")} for n in notes}
    common = [term for term, _ in Counter(t for terms in found.values() for t in terms).most_common(24)]
    with_concept = [n for n in notes if found[n.id] and found[n.id] <= set(common)][:280]
    chosen = sorted([*with_concept, *[n for n in notes if not found[n.id]][:150]], key=lambda n: n.id)
    return write_csv(path, ["id", "text", "domain"], [(n.id, n.text, n.domain) for n in chosen])


def write_pairs(folder: Path, *, rows: int = 200, dimension: int = 32) -> tuple[Path, Path]:
    """Write vectors with and without a concept; return both paths."""
    rng = np.random.default_rng(7)
    negative = rng.normal(size=(rows, dimension)).astype(np.float32)
    positive = negative + rng.normal(size=(rows, 3)).astype(np.float32) @ np.eye(3, dimension).astype(np.float32)
    for name, array in (("positive", positive), ("negative", negative)):
        np.save(folder / f"{name}.npy", array)
    return folder / "positive.npy", folder / "negative.npy"


def leftovers(folder: Path) -> list[str]:
    """Return the names of temporary files under ``folder``."""
    return sorted(path.name for path in folder.rglob("*.tmp"))


def assert_one_clear_error(done: Outcome, folder: Path, before: set[Path]) -> str:
    """Return the error line after checking everything that no failure may break."""
    assert done.code == 1, done.err
    assert done.out == ""
    assert len(done.errors) == 1, done.err
    others = [line for line in done.err.splitlines() if not line.startswith("vecveil: error: ")]
    assert all(line[:2] in ("1/", "2/", "3/", "4/", "5/") for line in others), done.err
    assert "Traceback" not in done.err
    assert CANARY not in done.err.lower()
    assert not any(word in done.err for word in ("Margarethe", "Silberstein", "Foxglove"))
    assert leftovers(folder) == []
    made = {path for path in folder.rglob("*") if path.name.startswith("out")} - before
    assert not made, made
    return done.errors[0]
