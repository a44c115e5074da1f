"""STS-B as it is given out: sts-train.csv, sts-dev.csv and sts-test.csv.

They are separated by tabs, without quotes and without a header: genre, file, year, number, score,
two sentences, and for some rows the source and licence of each sentence.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from research.datasets.columns import as_number, field_error
from research.datasets.kinds import PairSet
from research.datasets.lines import existing, numbered_lines
from research.datasets.sts import HIGHEST

__all__ = ["read_sts_benchmark"]

_FIELDS = 7


def read_sts_benchmark(name: str, folder: Path) -> PairSet:
    """Return the pairs of those of the three files that ``folder`` has."""
    left, right, scores, splits, sources = [], [], [], [], []
    for split in ("train", "dev", "test"):
        path = existing(folder, f"sts-{split}.csv")
        for number, line in () if path is None else numbered_lines(path):
            assert path is not None
            fields = [field.strip() for field in line.split("\t")]
            where = f"line {number}"
            if len(fields) < _FIELDS:
                wanted = f"at least {_FIELDS}, separated by tabs"
                raise field_error(path.name, "fields", wanted, len(fields), where)
            genre, file, year, _, score, first, second = fields[:_FIELDS]
            scores.append(as_number(score, path.name, "score", where, 0.0, HIGHEST))
            left.append(first)
            right.append(second)
            splits.append(split)
            sources.append(f"{genre}/{file}/{year}")
    return PairSet(
        name,
        tuple(left),
        tuple(right),
        np.array(scores, dtype=np.float64),
        tuple(splits),
        tuple(sources),
    )
