"""The record of an experiment, schema ``vecveil.experiment/1``: tables, figures and findings (docs/formats.md).

Reading is strict: it rejects missing keys and unknown ones, which a report would silently leave out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from research.judging import VERDICTS, Verdict
from vecveil.errors import InvalidInputError, VecveilError
from vecveil.records.reading import Count, Finite, Place, Record, Scalar, Within

Point: TypeAlias = tuple[float, float, float | None, float | None]
"""x, y and the ends of the interval of y, or None."""


class _Closed(Record):
    CLOSED: ClassVar[bool] = True


@dataclass(frozen=True)
class Number(_Closed):
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
    sd: Annotated[float, Within(0, 1e15)] | None = None
    n: Count | None = None
    digits: Annotated[int, Within(0, 12)] = 1
    percent: bool = True
    published: Finite | None = None

    def check(self, place: Place) -> None:
        """Raise unless the interval has both ends, in order."""
        _check_interval(place, self.low, self.high)


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


@dataclass(frozen=True)
class Column(_Closed):
    """The head of a column of numbers, or of words if ``text``."""

    name: str
    unit: str | None = None
    text: bool = False


@dataclass(frozen=True)
class Table(_Closed):
    """A table with a cell for each column in every row; None marks a cell that was not measured."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    notes: Sequence[str] = ()

    def check(self, place: Place) -> None:
        """Raise unless there are columns and every row has as many cells."""
        if not self.columns:
            raise place.key("columns").fail("a list of one column or more", "an empty list")
        for row in place.key("rows").items():
            if len(row.value) != len(self.columns):
                raise row.fail(f"{len(self.columns)} cells", str(len(row.value)))


@dataclass(frozen=True)
class _PointRecord(_Closed):
    """A point as a JSON object; in memory points are tuples."""

    x: Finite
    y: Finite
    low: Finite | None = None
    high: Finite | None = None

    def check(self, place: Place) -> None:
        _check_interval(place, self.low, self.high)


@dataclass(frozen=True)
class Series(_Closed):
    """A line of a figure, or its bars of one colour; reading sorts the points by x."""

    name: str
    points: Sequence[Point]
    dashed: bool = False

    def to_record(self) -> dict[str, Any]:
        """Return the series as a JSON object."""
        points = [vars(_PointRecord(*point)) for point in self.points]
        return super().to_record() | {"points": points}

    @classmethod
    def at(cls, place: Place) -> Self:
        """Return the series at a place inside a record."""
        points = [_PointRecord.at(each) for each in place.key("points").items()]
        values = sorted(((p.x, p.y, p.low, p.high) for p in points), key=lambda point: point[0])
        # The base class would read points as plain lists: they are checked above, and put in afterwards.
        bare = super().at(replace(place, value={**place.value, "points": []}))
        return replace(bare, points=tuple(values))


@dataclass(frozen=True)
class _XAxis(_Closed):
    name: str
    log: bool


@dataclass(frozen=True)
class _YAxis(_Closed):
    name: str


@dataclass(frozen=True)
class Figure(_Closed):
    """A figure: curves or bars of series, or a heat map of ``values`` (rows x columns).

    Attributes:
        x, y: names of the axes.
        log: logarithmic x axis.
        series: of curves or bars; reading leaves out empty series.
        rows, columns, values: of a heat map, None for a cell without a value; ``columns`` also name groups of bars.
    """

    title: str
    kind: Literal["curve", "heat", "bars"] = "curve"
    caption: str = ""
    x: str = ""
    y: str = ""
    log: bool = False
    series: Sequence[Series] = ()
    chance: Finite | None = None
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    values: Sequence[Sequence[Finite | None]] = ()

    def to_record(self) -> dict[str, Any]:
        """Return the figure as a JSON object."""
        record = super().to_record()
        # The file nests `log` in the x axis, as the schema has it.
        log = record.pop("log")
        return record | {"x": {"name": self.x, "log": log}, "y": {"name": self.y}}

    @classmethod
    def at(cls, place: Place) -> Self:
        """Return the figure at a place inside a record."""
        x, y = _XAxis.at(place.key("x")), _YAxis.at(place.key("y"))
        figure = super().at(replace(place, value={**place.value, "x": x.name, "log": x.log, "y": y.name}))
        return replace(
            figure,
            series=tuple(series for series in figure.series if series.points),
            values=figure.values if figure.kind == "heat" else (),
        )

    def check(self, place: Place) -> None:
        """Raise unless the figure holds what its kind needs."""
        if self.kind == "heat":
            values = place.key("values")
            if len(self.values) != len(self.rows):
                raise values.fail(f"{len(self.rows)} rows, as many as have names", str(len(self.values)))
            for line in values.items():
                if len(line.value) != len(self.columns):
                    raise line.fail(f"a list of {len(self.columns)} numbers", "another value")
        # Charts take the logarithm of x and index columns by it: neither may fail while a page is drawn.
        positions = [point[0] for series in self.series for point in series.points]
        if self.log and any(x <= 0 for x in positions):
            raise place.key("series").fail("of positive x, as its axis is logarithmic", "0 or less")
        if self.kind == "bars" and self.columns and any(x not in range(len(self.columns)) for x in positions):
            raise place.key("series").fail("of x that number the columns from 0", "another number")


@dataclass(frozen=True)
class ClaimFinding(_Closed):
    """A claim beside what was measured, and the command that measures it.

    Attributes:
        id: of the paper's claim in `research.published`; ``""`` for a finding of ours.
    """

    claim: str
    source: str
    verdict: Verdict
    ours: str
    published: str = ""
    difference: str = ""
    command: str = ""
    id: str = ""


@dataclass(frozen=True)
class Summary:
    """The part of an experiment's record that is computed from its cells."""

    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    findings: Sequence[ClaimFinding] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Cells(_Closed):
    """Counts of an experiment's cells."""

    asked: Count
    measured: Count
    failed: Count


@dataclass(frozen=True)
class ExperimentRecord(_Closed):
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

    SCHEMA: ClassVar[str] = "vecveil.experiment/1"

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
    seconds: Annotated[float, Within(0)]
    notes: Sequence[str]
    tables: Sequence[Table]
    figures: Sequence[Figure]
    findings: Sequence[ClaimFinding]

    @classmethod
    def advice(cls, schema: Any) -> str:
        """Return what to do with a record of another schema."""
        return "Write the summary again with this version of vecveil."


def read_experiment(record: Any, *, owner: str, error: type[VecveilError] = InvalidInputError) -> ExperimentRecord:
    """Return the checked record of an experiment, findings that disagree first.

    Raises:
        InvalidInputError (or ``error``): another schema, or a key is missing, unknown or has a wrong value.
    """
    experiment = ExperimentRecord.read(record, owner=owner, path="experiment", error=error)
    findings = sorted(experiment.findings, key=lambda finding: VERDICTS.index(finding.verdict))
    return replace(experiment, findings=tuple(findings))


def _check_interval(place: Place, low: float | None, high: float | None) -> None:
    if (low is None) != (high is None):
        raise place.key("low").fail("given with high, or neither", "one of the two")
    if low is not None and high is not None and low > high:
        raise place.key("low").fail("at most high", "a larger number")
