"""The times of protecting and of training, beside the paper's."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from research.catalogue.claims import findings_of
from research.catalogue.point_tables import METHOD_NAMES
from research.experiment import Records
from research.published import published
from research.summary import (
    Cell,
    Column,
    Figure,
    Finding,
    Number,
    Series,
    Summary,
    Table,
    number,
)

__all__ = ["latency_summary"]

DIFFERENCE = (
    "The paper's machine and implementation are others, and its dimension is not stated; ratios to Laplace, timed in "
    "the same rounds, are what can be compared. Cells are single vectors, as in the paper, at each dimension."
)
MICRO = 1e6
PROPORTIONAL = 0.25  # a time for as many pairs that differs by less grows in proportion


def latency_summary(records: Records) -> Summary:
    """Return tables, a figure and findings."""
    protect, train = records.where(what="protect"), records.where(what="train")
    return Summary(
        tables=[*([_protect(protect)] if len(protect) else []), *([_train(train)] if len(train) else [])],
        figures=[_bars(protect, n) for n in protect.values("dimension")],
        findings=_findings(protect, train),
        notes=[*published("sparse-table-11").notes, *published("sparse-training-time").notes],
    )  # fmt: skip


def _of(rows: Records, method: str) -> list[dict[str, float]]:
    return [row["found"]["methods"][method] for row in rows if method in row["found"]["methods"]]


def _methods(rows: Records) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row["found"]["methods"]))


def _micro(rows: Records, method: str, batch: int) -> list[float]:
    return [MICRO * one["least"] / batch for one in _of(rows, method)]


def _protect(records: Records) -> Table:
    columns = [
        Column("Dimension"), Column("Vectors in a call"), Column("Method", text=True), Column("One vector", "µs"),
        Column("Times Laplace"),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for (dimension, batch), own in records.each("dimension", "batch"):
        for method in _methods(own):
            paper = published("sparse-table-11").find(method=method) if batch == 1 else None
            their = None if paper is None else float(paper["microseconds"])
            ones = _of(own, method)
            rows.append(
                [
                    Number(dimension, percent=False, digits=0), Number(batch, percent=False, digits=0),
                    METHOD_NAMES.get(method, method),
                    number(_micro(own, method, batch), percent=False, published=their),
                    number(
                        [one["ratio"] for one in ones], low=[one["low"] for one in ones],
                        high=[one["high"] for one in ones], percent=False, digits=2,
                        published=None if their is None else their / _paper("laplace"),
                    ),
                ]
            )  # fmt: skip
    rounds = records[0]["found"]
    caption = (
        f"The shortest of {rounds['repeats']} rounds, in each of which all methods were timed in turn; a ratio is the "
        f"median over the rounds, its interval their range. Threads: {rounds['threads']}. Noise from the cryptographic "
        "generator, checks of the input and of the release, and the method's own map included."
    )
    return Table("Time to protect one vector", columns, rows, caption)


def _paper(method: str) -> float:
    row = published("sparse-table-11").find(method=method)
    assert row is not None
    return float(row["microseconds"])


def _bars(records: Records, dimension: int) -> Figure:
    series = []
    own = records.where(dimension=dimension)
    for method in _methods(own):
        points = [
            (float(batch), statistics.fmean(_micro(rows, method, batch)), None, None)
            for (batch,), rows in own.each("batch")
            if _of(rows, method)
        ]
        series.append(Series(METHOD_NAMES.get(method, method), sorted(points)))
    return Figure(
        f"Time of one vector, {dimension} dimensions", caption="By the number of vectors in one call.",
        x="vectors in a call", y="µs a vector", log=True, series=series,
    )  # fmt: skip


def _train(records: Records) -> Table:
    columns = [
        Column("Pairs from", text=True), Column("Pairs"), Column("Distinct pairs"), Column("Epochs"),
        Column("Time", "min"), Column("Times the smallest"), Column("Time for as many pairs, times"),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for (name,), own in records.each("problem"):
        sizes = [int(size) for size in own[0]["found"]["pairs"]]
        for size in sizes:
            ones = [row["found"]["pairs"][str(size)] for row in own]
            paper = published("sparse-training-time").find(samples=size)
            full = own[0]["found"]["epochs"] == 100
            rows.append(
                [
                    name, Number(size, percent=False, digits=0),
                    Number(min(size, own[0]["found"]["distinct"]), percent=False, digits=0),
                    Number(own[0]["found"]["epochs"], percent=False, digits=0),
                    number([one["least"] / 60 for one in ones], percent=False, digits=3,
                           published=float(paper["minutes"]) if paper and full else None),
                    number([one["ratio"] for one in ones], low=[one["low"] for one in ones],
                           high=[one["high"] for one in ones], percent=False, digits=2),
                    number([_growth(row, size) for row in own], percent=False, digits=2),
                ]
            )  # fmt: skip
    caption = (
        "Time: processor time on one thread, the shortest of the rounds. Times the smallest: median and range. "
        "Time for as many pairs: of the shortest, over that of the smallest size; 1 grows in proportion to the pairs."
    )
    notes = []
    if any(row["found"]["distinct"] < max(map(int, row["found"]["pairs"])) for row in records):
        notes.append(
            "Where a size is above the pairs of the data, pairs are drawn with replacement: it changes no time."
        )
    if any(row["found"]["epochs"] != 100 for row in records):
        notes.append(
            "Fewer epochs than the published 100: the time is that of the epochs given, and no figure of the paper "
            "stands beside it."
        )
    return Table("Time to train the mask", columns, rows, caption, notes)


def _findings(protect: Records, train: Records) -> list[Finding]:
    rows: list[dict[str, Any]] = []
    for (dimension,), own in protect.where(batch=1).each("dimension"):
        for method in _methods(own):
            rows.append(
                {"dimension": dimension, "method": method, "microseconds": statistics.fmean(_micro(own, method, 1))}
            )  # fmt: skip
    keys = ("dimension", "method")
    only = ("sampling-costs-as-laplace", "purkayastha-is-slow")
    found = findings_of("latency", rows, keys, difference=DIFFERENCE, only=only)
    growths = [_growth(row, int(size)) for row in train for size in list(row["found"]["pairs"])[1:]]
    if growths:
        low, high = min(growths), max(growths)
        inside = low >= 1 - PROPORTIONAL and high <= 1 + PROPORTIONAL
        found.append(
            Finding(
                "The time to train the mask grows in proportion to the number of samples.", "SPARSE, Appendix G",
                "agrees" if inside else "disagrees",
                f"for as many pairs the larger size takes {low:.2f} to {high:.2f} times as long",
                "25.3 minutes for 10,000, under 45 for 20,000: for as many samples 0.89 times as long", DIFFERENCE,
            )
        )  # fmt: skip
    return found


def _growth(row: Mapping[str, Any], size: int) -> float:
    """Return the shortest time of a size for as many pairs, over that of the first size."""
    sizes = row["found"]["pairs"]
    first = next(iter(sizes))
    share = float(sizes[str(size)]["least"]) / float(sizes[first]["least"])
    return share * int(first) / size
