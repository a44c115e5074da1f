"""STS12 to STS16: the files of SemEval, and one Parquet file a year.

SemEval has two files for each part, STS.input.X.txt (two sentences a line, a tab between them; later
columns are credits) and STS.gs.X.txt (one score a line, blank where a pair was not scored).
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from research.datasets.columns import (
    as_number,
    as_splits,
    as_texts,
    field_error,
    read_columns,
)
from research.datasets.kinds import PairSet
from research.datasets.lines import numbered_lines
from vecveil.data.files import not_usable

__all__ = ["HIGHEST", "read_pair_table", "read_semeval"]

HIGHEST = 5.0
_INPUT = re.compile(r"(STS(?:\d{4})?)\.input\.(.+)\.txt(?:\.gz)?")
_Pair = tuple[str, str, float, str, str]


def read_pair_table(
    name: str, folder: Path, *, file: str, low: float = 0.0, high: float = HIGHEST
) -> PairSet:
    """Return pairs of a table with sentence1, sentence2, score, and where it has them split and source.

    Without a column split all pairs are the test split.

    Args:
        file: JSON lines, CSV, TSV or Parquet, in ``folder``.
        low, high: the range of the scores; one outside of it is an error.
    """
    path = folder / file
    rows = read_columns(path, "sentence1", ("sentence2", "score"), ("split", "source"))
    scores = [
        as_number(value, path.name, "score", row, low, high)
        for row, value in enumerate(rows["score"])
    ]
    return PairSet(
        name=name,
        left=tuple(rows["sentence1"]),
        right=as_texts(rows["sentence2"], path.name, "sentence2"),
        scores=np.array(scores, dtype=np.float64),
        split=as_splits(rows.get("split", ["test"] * len(scores)), path.name),
        source=as_texts(rows.get("source", [name] * len(scores)), path.name, "source"),
    )


def read_semeval(name: str, folder: Path) -> PairSet:
    """Return the scored pairs of all parts in ``folder`` and the folders below it.

    Parts below a folder with "train" in its name are the train split, all others test. A folder of
    inputs without any scores (the files given out before the task) is passed over, and "trial" too.
    """
    pairs: list[_Pair] = []
    for path in sorted(folder.rglob("STS*.input.*.txt*")):
        part = _INPUT.fullmatch(path.name)
        inside = path.relative_to(folder).parent.as_posix().lower()
        if part is None or "trial" in inside or not any(path.parent.glob("STS*.gs.*.txt*")):
            continue
        split = "train" if "train" in inside else "test"
        pairs += _read_part(path, _scores_of(path), split, part[2].removeprefix("surprise."))
    if not pairs:
        raise not_usable(
            folder.name,
            "a folder of STS.input.X.txt with STS.gs.X.txt",
            "one without scored pairs",
            fix="Put the file of the scores (gs) beside each input.",
        )
    left, right, scores, split_names, sources = zip(*pairs, strict=True)
    return PairSet(name, left, right, np.array(scores, dtype=np.float64), split_names, sources)


def _scores_of(path: Path) -> Path:
    return path.with_name(path.name.replace(".input.", ".gs.", 1))


def _read_part(path: Path, scores: Path, split: str, source: str) -> list[_Pair]:
    lines = list(numbered_lines(path))
    marks = [mark.strip() for _, mark in numbered_lines(scores)]
    if len(marks) == len(lines) - 1:
        marks.append("")  # the last pair is not scored, and its blank line has no end
    if len(marks) != len(lines):
        raise not_usable(
            scores.name, f"a file with one line per pair ({len(lines)})", f"{len(marks)} lines"
        )
    found = []
    for (number, line), mark in zip(lines, marks, strict=True):
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) < 2 or not fields[0] or not fields[1]:
            got = f"{sum(map(bool, fields[:2]))}"
            raise field_error(path.name, "sentences", "two in each line", got, f"line {number}")
        if mark:
            score = as_number(mark, scores.name, "score", f"line {number}", 0.0, HIGHEST)
            found.append((fields[0], fields[1], score, split, source))
    return found
