"""Compute the geometry of an experiment's figures, drawn by ``templates/figures.html``: curves, bars, heat maps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from research.results import Figure, Point, Series
from vecveil.auditing.report.charts import Across, Ticks
from vecveil.auditing.report.text import rounded, scale

EDGE = 8  # pixels above and below a curve
MOST_MARKS = 30  # points: more of them would hide the line
COLOURS = 8  # of the style sheet: ``series-0`` to ``series-7``
MOST_TICKS = 7
LEAST_GAP = 9  # per cent of the width: closer numbers would overlap on a phone
LETTER = 6.3  # pixels: a little more than the mean width of a letter of 11 pixels


def scale_ticks(values: Sequence[float], bounds: tuple[float, float] | None = None) -> list[tuple[float, str]]:
    """Return three to seven round numbers, rising, that enclose all values and ``bounds``, each with its label."""
    low, high = min(values), max(values)
    if bounds is not None:
        low, high = min(low, bounds[0]), max(high, bounds[1])
    # A measure that hardly moves must not be blown up to fill a chart.
    least = 0.01 * max(abs(low), abs(high)) or 1.0
    if high - low < least:
        low, high = (low + high - least) / 2, (low + high + least) / 2
    # The smallest round step of which three cover the span; ends are then moved out to multiples of it.
    rough = (high - low) / 3
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s for s in (1, 2, 5, 10) if s * power >= rough * 0.999) * power
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    # As many decimals as the step needs: 0.5 takes one, 20 none.
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return [(i * step, f"{i * step:,.{decimals}f}".replace("-", "\u2212")) for i in range(first, last + 1)]


@dataclass(frozen=True)
class Plot:
    """Curves over a scale.

    Attributes:
        grid: position down of each number of the scale, and its label.
        chance: position down of chance, or None.
        lines: CSS class and corners of each line, the back one first.
        bands: the same for intervals, drawn behind all lines.
        marks: CSS class or index of the series, and position across and down.
        below: the numbers below, with their position across.
    """

    title: str
    description: str
    height: int
    grid: Sequence[tuple[float, str]]
    chance: float | None
    lines: Sequence[tuple[str, str]]
    marks: Sequence[tuple[str | int, float, float]]
    bands: Sequence[tuple[str, str]] = ()
    below: Sequence[tuple[float, str]] = ()


def down_in(ticks: Ticks, height: int) -> Callable[[float], float]:
    """Return the function from values to pixels, which grow downwards."""
    bottom, top = ticks[0][0], ticks[-1][0]
    return lambda value: round(EDGE + (height - 2 * EDGE) * (top - value) / (top - bottom), 2)


def corners(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.6g},{y:.2f}" for x, y in points)


def across(numbers: Sequence[float], log: bool) -> Across:
    """Return the scale of ``numbers``; its ticks are the numbers if they are few and far apart."""
    distinct = sorted(set(numbers))
    bare = Across(distinct[0], distinct[-1], log)
    places = [bare.place(number) for number in distinct]
    gaps = [b - a for a, b in itertools.pairwise(places)]
    # Measured settings, such as ε = 5, 10, 20, say more than round numbers between them.
    if len(distinct) <= MOST_TICKS and min(gaps, default=100.0) >= LEAST_GAP:
        ticks = distinct
    else:
        ticks = _log_ticks(bare) if log else _linear_ticks(bare)
    return replace(bare, ticks=[(number, scale(number)) for number in ticks])


def _linear_ticks(bare: Across) -> list[float]:
    """Return three to nine round numbers between the ends."""
    rough = (bare.high - bare.low) / 4
    # The largest step of 1, 2 or 5 times a power of ten that fits four times into the span. 1e-9 absorbs rounding,
    # which would otherwise choose the next smaller power.
    power = 10.0 ** math.floor(math.log10(rough) + 1e-9)
    step = next(s for s in (5, 2, 1) if s * power <= rough * (1 + 1e-9)) * power
    first, last = math.ceil(bare.low / step - 1e-9), math.floor(bare.high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _log_ticks(bare: Across) -> list[float]:
    first, last = (math.floor(math.log10(end)) for end in (bare.low, bare.high))
    for steps in ((1, 2, 5), (1,)):
        round_numbers = [s * 10.0**power for power in range(first, last + 1) for s in steps]
        inside = [at for at in round_numbers if bare.low <= at * (1 + 1e-9) and at <= bare.high * (1 + 1e-9)]
        if 2 <= len(inside) <= MOST_TICKS:
            return inside
    # Fewer than two round numbers, or more decades than fit: the ends say enough.
    return list(dict.fromkeys((bare.low, bare.high)))


def _figure_ticks(figure: Figure) -> list[tuple[float, str]]:
    """Return the ticks for a figure's values, intervals and chance; for bars they include 0."""
    values = [0.0] if figure.kind == "bars" else []
    for _, *heights in _points(figure):
        values += [height for height in heights if height is not None]
    return scale_ticks(values if figure.chance is None else [*values, figure.chance])


def _points(figure: Figure) -> list[Point]:
    return [point for series in figure.series for point in series.points]


def curves(figure: Figure) -> Plot:
    """Return the curves of a figure with their intervals as bands; the first series is drawn on top."""
    scale, ticks, height = across([x for x, *_ in _points(figure)], figure.x.log), _figure_ticks(figure), 220
    down = down_in(ticks, height)
    bands: list[tuple[str, str]] = []
    lines: list[tuple[str, str]] = []
    marks: list[tuple[str | int, float, float]] = []
    for i, series in reversed(list(enumerate(figure.series))):
        colour = f"series-{i % COLOURS}"
        bands += _bands(series, colour, scale, down)
        places = [(scale.place(x), down(y)) for x, y, *_ in series.points]
        if len(places) > 1:
            lines.append((f"line {colour}{' dashed' if series.dashed else ''}", corners(places)))
        if len(places) <= MOST_MARKS:
            marks += [(i, x, y) for x, y in places]

    def ends(each: Series) -> str:
        (x, y, *_), (last_x, last_y, *_) = each.points[0], each.points[-1]
        words = f"{each.name}: {rounded(y)} at {figure.x} {rounded(x)}"
        return words if len(each.points) == 1 else f"{words}, {rounded(last_y)} at {rounded(last_x)}"

    words = [ends(each) for each in figure.series]
    if figure.chance is not None:
        words.append(f"chance {rounded(figure.chance)}")
    return Plot(
        title=figure.title,
        description=f"{figure.y} against {figure.x}. {'; '.join(words)}.",
        height=height,
        grid=[(down(at), label) for at, label in ticks],
        chance=None if figure.chance is None else down(figure.chance),
        lines=lines,
        marks=marks,
        bands=bands,
        below=[(scale.place(at), label) for at, label in scale.ticks],
    )


def _bands(series: Series, colour: str, scale: Across, down: Callable[[float], float]) -> list[tuple[str, str]]:
    """Return the intervals of a series as outlines, and that of a lone point as a vertical line."""
    shapes = []
    for has_interval, group in itertools.groupby(series.points, lambda point: point.low is not None):
        if not has_interval:
            continue
        run = [
            (scale.place(x), down(low), down(high)) for x, _, low, high in group if low is not None and high is not None
        ]
        # Along the lower ends and back along the upper ones: a closed outline.
        outline = [(x, low) for x, low, _ in run] + [(x, high) for x, _, high in reversed(run)]
        shapes.append((f"{'line' if len(run) == 1 else 'band'} {colour}", corners(outline)))
    return shapes


def bar_name(figure: Figure, x: float) -> str:
    """Return the name of a group of bars: column ``x`` of the figure, or the number itself."""
    return figure.columns[int(x)] if figure.columns else scale(x)


@dataclass
class Bars:
    """Groups of horizontal bars, one bar for each series.

    Attributes:
        height: of all groups.
        scale: from values to positions across.
        names: name of each group, and its position down.
        bars: index of the series, position down, start and width, and the ends of the interval, or None.
    """

    scale: Across
    description: str = ""
    height: int = 0
    names: list[tuple[str, int]] = field(default_factory=list)
    bars: list[tuple[int, int, float, float, tuple[float, float] | None]] = field(default_factory=list)


def bars(figure: Figure) -> Bars:
    """Return a group of horizontal bars for each x, one for each series; bars start at 0."""
    ticks = _figure_ticks(figure)
    scale = Across(ticks[0][0], ticks[-1][0], ticks=ticks)
    chart, words = Bars(scale), []
    for x in sorted({x for x, *_ in _points(figure)}):
        group, values = bar_name(figure, x), []
        chart.names.append((group, chart.height + 12))
        chart.height += 16
        for i, series in enumerate(figure.series):
            for _, y, low, high in (point for point in series.points if point.x == x):
                # Negative bars run to the left of 0; a rect takes no negative width.
                start, end = sorted((scale.place(0.0), scale.place(y)))
                ends = None
                if low is not None and high is not None:
                    ends = scale.place(low), scale.place(high)
                chart.bars.append((i, chart.height, start, end - start, ends))
                values.append(f"{series.name} {rounded(y)}")
                chart.height += 15
        words.append(f"{group}: {', '.join(values)}")
        chart.height += 10
    if figure.chance is not None:
        words.append(f"chance {rounded(figure.chance)}")
    chart.description = f"{figure.y}. {'; '.join(words)}."
    return chart


@dataclass(frozen=True)
class Heat:
    """A heat map.

    Attributes:
        strongest: the value farthest from 0, which has the full colour.
        sides: CSS class and end of the scale, for each sign that occurs.
        step: interval between named columns.
        deep: room for the names of the columns.
    """

    description: str
    strongest: float
    sides: Sequence[tuple[str, float]]
    step: int
    deep: int


def heat(figure: Figure) -> Heat:
    """Return the colours and the description of a heat map: a cell is stronger the farther it is from 0."""
    known = [value for row in figure.values for value in row if value is not None]
    # Both signs share one scale, so that equal strength means equal size.
    strongest = max(map(abs, known), default=0.0) or 1.0
    sides = [("below", -strongest)] if min(known, default=0.0) < 0 else []
    if max(known, default=0.0) > 0 or not sides:
        sides.append(("above", strongest))
    between = f"between {rounded(min(known))} and {rounded(max(known))}" if known else "not measured"
    size = f"{len(figure.rows)} rows and {len(figure.columns)} columns"
    # Rounded up: at most 20 names fit; of more columns every second, third ... is named.
    step = -(-len(figure.columns) // 20)
    # SVG cannot measure text: room for the longest turned name is estimated from its letters.
    deep = round(8 + LETTER * max(min(len(words), 18) for words in figure.columns[::step]))
    description = f"{figure.y} against {figure.x}: {size}, {between}."
    return Heat(description, strongest, sides, step, deep)
