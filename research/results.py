"""The record of an experiment, schema ``vecveil.experiment/1``: tables, figures and findings.

Reading is strict: it rejects missing keys and unknown ones, which a report would silently leave out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta
from msgspec.structs import force_setattr, replace

from research.judging import VERDICTS, Verdict
from vecveil.errors import InvalidInputError, VecveilError
from vecveil.schema import Conflict, Count, Finite, Positive, Record, Scalar


class Number(Record, frozen=True, forbid_unknown_fields=True):
    """A number in a table.

    Attributes:
        value, low, high: the number and its 95 % interval, if any.
        sd, n: standard deviation over seeds, and number of seeds.
        digits: decimals to show.
        percent: show 100 times the number.
        published: the paper's number, on the scale of ``value``.
    """

    value: Finite
    low: Finite | None = None
    high: Finite | None = None
    sd: Positive | None = None
    n: Count | None = None
    digits: Annotated[int, Meta(ge=0, le=12)] = 1
    percent: bool = True
    published: Finite | None = None

    def __post_init__(self) -> None:
        _check_interval(self.low, self.high)


Cell: TypeAlias = str | Number | None


def number(
    values: Sequence[float],
    *,
    low: Sequence[float] = (),
    high: Sequence[float] = (),
    digits: int = 1,
    percent: bool = True,
    published: float | None = None,
) -> Number | None:
    """Return mean and standard deviation over seeds; for one seed the value and its interval; None for none."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return None
    # An interval within one seed says nothing of the spread between seeds: never both.
    single = len(finite) == 1
    return Number(
        value=statistics.fmean(finite),
        low=low[0] if single and low else None,
        high=high[0] if single and high else None,
        sd=None if single else statistics.stdev(finite),
        n=len(finite),
        digits=digits,
        percent=percent,
        published=published,
    )


class Column(Record, frozen=True, forbid_unknown_fields=True):
    """The head of a column of numbers, or of words if ``text``."""

    name: str
    unit: str | None = None
    text: bool = False


class Table(Record, frozen=True, forbid_unknown_fields=True):
    """A table with a cell for each column in every row; None marks a cell that was not measured."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.columns:
            raise Conflict("columns", "a table has one column or more")
        for i, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise Conflict(f"rows[{i}]", f"expected {len(self.columns)} cells, got {len(row)}")


class Point(Record, frozen=True, forbid_unknown_fields=True, order=True):
    """A point of a figure, with the interval of y where there is one."""

    x: Finite
    y: Finite
    low: Finite | None = None
    high: Finite | None = None

    def __post_init__(self) -> None:
        _check_interval(self.low, self.high)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.x, self.y, self.low, self.high))


class Series(Record, frozen=True, forbid_unknown_fields=True):
    """A line of a figure, or its bars of one colour; its points are sorted by x."""

    name: str
    points: Sequence[Point]
    dashed: bool = False

    def __post_init__(self) -> None:
        force_setattr(self, "points", tuple(sorted(self.points, key=lambda point: point.x)))


class YAxis(Record, frozen=True, forbid_unknown_fields=True):
    """The name of an axis."""

    name: str

    def __str__(self) -> str:
        return self.name


class XAxis(YAxis, frozen=True, forbid_unknown_fields=True):
    """The name of an axis, and whether it is logarithmic."""

    log: bool = False


class Figure(Record, frozen=True, forbid_unknown_fields=True):
    """A figure: curves or bars of series, or a heat map of ``values`` (rows x columns).

    Attributes:
        series: of curves or bars; empty series are left out.
        rows, columns, values: of a heat map, None for a cell without a value; ``columns`` also name groups of bars.
    """

    title: str
    kind: Literal["curve", "heat", "bars"] = "curve"
    caption: str = ""
    x: XAxis = XAxis("")
    y: YAxis = YAxis("")
    series: Sequence[Series] = ()
    chance: Finite | None = None
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    values: Sequence[Sequence[Finite | None]] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "series", tuple(series for series in self.series if series.points))
        if self.kind != "heat":
            force_setattr(self, "values", ())
        elif len(self.values) != len(self.rows):
            raise Conflict("values", f"expected {len(self.rows)} rows, as many as have names")
        for i, line in enumerate(self.values):
            if len(line) != len(self.columns):
                raise Conflict(f"values[{i}]", f"expected {len(self.columns)} numbers, got {len(line)}")
        # Charts take the logarithm of x and index columns by it: neither may fail while a page is drawn.
        positions = [point.x for series in self.series for point in series.points]
        if self.x.log and any(x <= 0 for x in positions):
            raise Conflict("series", "x is 0 or less on a logarithmic axis")
        if self.kind == "bars" and self.columns and any(x not in range(len(self.columns)) for x in positions):
            raise Conflict("series", "x does not number the columns from 0")


class ClaimFinding(Record, frozen=True, forbid_unknown_fields=True):
    """A claim with its measurement, and the command that measures it.

    Attributes:
        id: of the paper's claim in `research.published`; ``""`` for our own finding.
        seeds: the smallest number of seeds of a comparison; 0 where there is none.
    """

    claim: str
    source: str
    verdict: Verdict
    ours: str
    published: str = ""
    difference: str = ""
    command: str = ""
    id: str = ""
    seeds: int = 0


@dataclass(frozen=True)
class Summary:
    """The part of an experiment's record that is computed from its cells."""

    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    findings: Sequence[ClaimFinding] = ()
    notes: Sequence[str] = ()


class Cells(Record, frozen=True, forbid_unknown_fields=True):
    """Counts of an experiment's cells."""

    asked: Count
    measured: Count
    failed: Count


class ExperimentRecord(Record, frozen=True, forbid_unknown_fields=True, tag_field="schema", tag="vecveil.experiment/1"):
    """The record of an experiment.

    Attributes:
        what: one sentence.
        source: the paper's tables.
        vecveil, commits: versions of the code that measured.
        quick: True for the coarse version of the experiment.
        seconds: of all cells together.
        notes: paragraphs on the setting and its limits.
        findings: in the order of `VERDICTS` after reading.
    """

    name: str
    what: str
    source: str
    vecveil: str
    created: str
    commits: Sequence[str]
    command: str
    quick: bool
    machine: Mapping[str, Scalar]
    cells: Cells
    seconds: Positive
    notes: Sequence[str]
    tables: Sequence[Table]
    figures: Sequence[Figure]
    findings: Sequence[ClaimFinding]


def read_experiment(record: Any, *, owner: str, error: type[VecveilError] = InvalidInputError) -> ExperimentRecord:
    """Return the checked record of an experiment, findings that disagree first.

    An unknown schema, or a missing, unknown or invalid key raises ``error``.
    """
    experiment = ExperimentRecord.read(record, owner=owner, error=error)
    findings = sorted(experiment.findings, key=lambda finding: VERDICTS.index(finding.verdict))
    return replace(experiment, findings=tuple(findings))


def _check_interval(low: float | None, high: float | None) -> None:
    if (low is None) != (high is None):
        raise Conflict("low", "give both low and high, or neither")
    if low is not None and high is not None and low > high:
        raise Conflict("low", "low is above high")
