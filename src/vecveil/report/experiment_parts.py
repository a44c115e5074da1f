"""What the record of an experiment is made of: tables of cells, figures, findings; each read strictly."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from vecveil.report.reading import Node, Said

__all__ = [
    "VERDICTS",
    "Cell",
    "Column",
    "Finding",
    "Number",
    "Picture",
    "Point",
    "Series",
    "Table",
    "known_keys",
    "read_finding",
    "read_picture",
    "read_table",
]

VERDICTS = ("disagrees", "unclear", "agrees", "not measured")
"""What a finding may say, in the order in which they are shown."""
KINDS = ("curve", "heat", "bars")
LARGEST = 1e15


@dataclass(frozen=True, slots=True)
class Number:
    """A figure in a table; attributes as those of the record."""

    value: float
    low: float | None
    high: float | None
    sd: float | None
    n: int | None
    digits: int
    percent: bool
    published: float | None


Cell = str | Number | None


@dataclass(frozen=True, slots=True)
class Column:
    """Head of a column; ``text`` columns are set to the left."""

    name: str
    unit: str | None
    text: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A table; each row has as many cells as there are columns."""

    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a curve or the end of a bar, with its interval."""

    x: float
    y: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Series:
    """A line, or the bars of one colour; ``points`` by rising x."""

    name: str
    points: tuple[Point, ...]
    dashed: bool


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure that is drawn.

    Attributes:
        kind: ``curve``, ``heat`` or ``bars``.
        x, y, log: names of the axes, and whether that of x is logarithmic.
        series: of a curve or of bars; empty ones are left out.
        chance: a level to compare with.
        rows, columns, values: of a heat map, None where nothing was measured; ``columns`` also name the bars.
    """

    kind: str
    title: str
    caption: str
    x: str
    y: str
    log: bool
    series: tuple[Series, ...]
    chance: float | None
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim beside what was measured; attributes as those of the record."""

    claim: str
    source: str
    verdict: str
    ours: str
    published: str
    difference: str
    command: str


def known_keys(node: Node, *names: str) -> None:
    """Refuse a key that this version does not know: what is not read would be left out in silence."""
    for key in node.data:
        if key not in names:
            raise node.fail(str(key)[:40], "absent", Said("a key that is not in the schema"))


def _one_of(node: Node, name: str, allowed: Collection[str]) -> str:
    value = node.text(name)
    if value not in allowed:
        raise node.fail(name, f"one of {', '.join(allowed)}", Said("another string"))
    return value


def _number(node: Node, name: str) -> float:
    return node.number(name, low=-LARGEST, high=LARGEST)


def _bounds(node: Node) -> tuple[float | None, float | None]:
    low, high = (
        node.maybe(name, node.number, low=-LARGEST, high=LARGEST) for name in ("low", "high")
    )
    if (low is None) != (high is None):
        raise node.fail("low", "given with high, or neither", Said("one of the two"))
    if low is not None and high is not None and low > high:
        raise node.fail("low", "at most high", Said("a larger number"))
    return low, high


def read_cell(table: Node, row: int, column: int, value: object) -> Cell:
    """Return one cell: words, a figure, or None where nothing was measured."""
    if value is None or isinstance(value, str):
        return value
    node = Node(value, f"{table.key('rows')}[{row}][{column}]", table.owner, table.error)
    known_keys(node, "value", "low", "high", "sd", "n", "digits", "percent", "published")
    low, high = _bounds(node)
    digits = node.count("digits")
    if digits > 12:
        raise node.fail("digits", "at most 12", Said(str(digits)))
    return Number(
        value=_number(node, "value"),
        low=low,
        high=high,
        sd=node.maybe("sd", node.number, low=0, high=LARGEST),
        n=node.maybe("n", node.count),
        digits=digits,
        percent=node.flag("percent"),
        published=node.maybe("published", node.number, low=-LARGEST, high=LARGEST),
    )


def read_table(node: Node) -> Table:
    """Return one table, checked."""
    known_keys(node, "title", "caption", "columns", "rows", "notes")
    heads = node.children("columns")
    if not heads:
        raise node.fail("columns", "a list of one column or more", Said("an empty list"))
    for head in heads:
        known_keys(head, "name", "unit", "text")
    columns = tuple(
        Column(head.text("name"), head.maybe("unit", head.text), head.flag("text"))
        for head in heads
    )
    rows = []
    for i, row in node.items("rows"):
        if not isinstance(row, list | tuple):
            raise node.fail(f"rows[{i}]", "a list", row)
        if len(row) != len(columns):
            raise node.fail(f"rows[{i}]", f"{len(columns)} cells", Said(f"{len(row)}"))
        rows.append(tuple(read_cell(node, i, j, value) for j, value in enumerate(row)))
    return Table(
        node.text("title"), node.text("caption"), columns, tuple(rows), node.texts("notes")
    )


def _series(node: Node) -> Series:
    known_keys(node, "name", "points", "dashed")
    points = []
    for point in node.children("points"):
        known_keys(point, "x", "y", "low", "high")
        points.append(Point(_number(point, "x"), _number(point, "y"), *_bounds(point)))
    points.sort(key=lambda point: point.x)
    return Series(node.text("name"), tuple(points), node.flag("dashed"))


def _values(node: Node, rows: int, columns: int) -> tuple[tuple[float | None, ...], ...]:
    lines = node.items("values")
    if len(lines) != rows:
        raise node.fail("values", f"{rows} rows, as many as have names", Said(str(len(lines))))
    found = []
    for i, line in lines:
        path = f"values[{i}]"
        if not isinstance(line, list | tuple) or len(line) != columns:
            raise node.fail(path, f"a list of {columns} numbers", Said("another value"))
        cells = {str(j): value for j, value in enumerate(line)}
        held = Node(cells, node.key(path), node.owner, node.error)
        found.append(
            tuple(held.maybe(str(j), held.number, low=-LARGEST, high=LARGEST) for j in range(columns))
        )  # fmt: skip
    return tuple(found)


def read_picture(node: Node) -> Picture:
    """Return one figure, checked: what its kind needs is there and fits."""
    known_keys(node, "kind", "title", "caption", "x", "y", "series", "chance", "rows", "columns", "values")  # fmt: skip
    kind = _one_of(node, "kind", KINDS)
    x, y = node.child("x"), node.child("y")
    known_keys(x, "name", "log")
    known_keys(y, "name")
    log = x.flag("log")
    series = tuple(one for each in node.children("series") if (one := _series(each)).points)
    rows, columns = node.texts("rows"), node.texts("columns")
    values = _values(node, len(rows), len(columns)) if kind == "heat" else ()
    places = [point.x for one in series for point in one.points]
    if log and any(place <= 0 for place in places):
        raise node.fail("series", "of positive x, as its axis is logarithmic", Said("0 or less"))
    if kind == "bars" and columns and any(place not in range(len(columns)) for place in places):
        raise node.fail("series", "of x that number the columns from 0", Said("another number"))
    return Picture(
        kind=kind,
        title=node.text("title"),
        caption=node.text("caption"),
        x=x.text("name"),
        y=y.text("name"),
        log=log,
        series=series,
        chance=node.maybe("chance", node.number, low=-LARGEST, high=LARGEST),
        rows=rows,
        columns=columns,
        values=values,
    )


def read_finding(node: Node) -> Finding:
    """Return one finding, checked."""
    names = ("claim", "source", "verdict", "ours", "published", "difference", "command")
    known_keys(node, *names)
    _one_of(node, "verdict", VERDICTS)
    return Finding(*(node.text(name) for name in names))
