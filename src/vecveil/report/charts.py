"""Draw inline SVG: bars with intervals, curves with bands, heat maps.

Horizontal lengths are per cent of the width, vertical ones pixels. Without a ``viewBox`` a drawing fills the width of
its place, and text, strokes and bar heights keep their size on a phone. Colours come from the page's style sheet. The
description of each drawing states its figures, for screen readers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

from vecveil.records.audit import AttackRecord, TermRecord, UtilityRecord
from vecveil.records.experiment import Figure, Point, Series
from vecveil.report.text import MISSING, clean_text, interval, percent, rounded, scale

__all__ = [
    "Across",
    "across",
    "attack_chart",
    "bar_chart",
    "bar_name",
    "curve_chart",
    "heat_chart",
    "heat_key",
    "kept_bar",
    "key",
    "measure_chart",
    "percent_axis",
    "scale_ticks",
    "term_chart",
]

GRID = (0, 25, 50, 75, 100)  # per cent
BAR, GAP, TOP = 13, 9, 5  # pixels: an attack's bar, the gap between bars, the edge above
EDGE = 8  # pixels above and below a curve
MOST_MARKS = 30  # points: more of them would hide the line
COLOURS = 8  # of the style sheet: ``series-0`` to ``series-7``
MARKS = (  # of about equal area, centred on the origin: readers who see no colours tell series by them
    ("circle", {"r": "3.6"}),
    ("rect", {"x": "-3.4", "y": "-3.4", "width": "6.8", "height": "6.8"}),
    ("path", {"d": "M0 -4.4 L4.2 3.4 L-4.2 3.4 Z"}),
    ("path", {"d": "M0 -4.7 L4.7 0 L0 4.7 L-4.7 0 Z"}),
)
MOST_TICKS = 7
LEAST_GAP = 9  # per cent of the width: closer numbers would run into each other on a phone
CELL = 22  # pixels: a row of a heat map
LETTER = 6.3  # pixels: a little more than the mean width of a letter of 11 pixels
DARK = 0.55  # opacity from which on text on a cell has the colour of the paper

Ticks = Sequence[tuple[float, str]]
"""Numbers of a scale, each with its label."""


def tag(name: str, /, *children: str, **attributes: object) -> Markup:
    """Return an element; plain strings are escaped, ``_`` in names of attributes becomes ``-``."""
    listed = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(clean_text(str(value)))}"'
        for key, value in attributes.items()
    )
    inner = "".join(
        # Only what `tag` built itself is `Markup`: names and titles of a record are always escaped.
        each if isinstance(each, Markup) else escape(clean_text(each)) for each in children
    )
    return Markup(f"<{name}{listed}>{inner}</{name}>")


def _drawing(
    name: str, title: str, description: str, height: float, *shapes: str, kind: str
) -> Markup:
    """Return a drawing with a title and a description that a screen reader reads out."""
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-desc"),
        *shapes,
        class_=f"chart {kind}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        width="100%",
        height=f"{height:g}",
    )


def _numbers(kind: str, height: float, *words: str, **attributes: object) -> Markup:
    """Return the numbers of a scale, hidden from screen readers, which read the description."""
    return tag(
        "svg", *words, class_=f"chart {kind}", **attributes, width="100%", height=f"{height:g}",
        aria_hidden="true",
    )  # fmt: skip


def _upright(x: str, top: float, bottom: float, kind: str) -> Markup:
    return tag("line", x1=x, x2=x, y1=f"{top:g}", y2=f"{bottom:g}", class_=kind)


def _level(x1: str, x2: str, y: str, kind: str) -> Markup:
    return tag("line", x1=x1, x2=x2, y1=y, y2=y, class_=kind)




def _share(share: float) -> str:
    """Return a share as a coordinate, clipped to the axis."""
    return f"{100 * min(max(share, 0.0), 1.0):.4g}%"


def percent_axis(name: str) -> Markup:
    """Return the scale above the bars of attacks."""
    anchors = {0: "start", 100: "end"}  # centred, the outer numbers would stick out
    words = [
        tag("text", f"{tick}{'' if tick < 100 else ' %'}", x=f"{tick}%", y="11",
            text_anchor=anchors.get(tick, "middle"))
        for tick in GRID
    ]  # fmt: skip
    return _numbers("axis", 16, *words, id=name)


def _attack_bar(
    share: float | None, low: float | None, high: float | None, top: float, kind: str
) -> tuple[list[Markup], list[Markup]]:
    """Return a bar, and its interval with end caps over a halo."""
    if share is None:
        return [], []
    bar = tag("rect", x="0", y=f"{top:g}", width=_share(share), height=BAR, class_=f"bar {kind}")
    if low is None or high is None:
        return [bar], []
    # SVG paints in document order: the halo, in the colour of the paper, parts the interval from its bar.
    y, ends = top + BAR / 2, (_share(low), _share(high))
    return [bar], [
        _level(*ends, f"{y:g}", "halo"),
        *(_upright(end, y - 5, y + 5, "halo") for end in ends),
        _level(*ends, f"{y:g}", f"interval {kind}"),
        *(_upright(end, y - 4, y + 4, "cap") for end in ends),
    ]


def attack_chart(attack: AttackRecord, name: str, side: str) -> Markup:
    """Return the bars of an attack, clean above protected, with intervals and chance.

    Args:
        name: id of the drawing, unique on the page; so for every chart.
        side: ``protected`` or ``stored``.
    """
    second = TOP if attack.clean is None else TOP + BAR + GAP
    height = second + BAR + TOP
    shapes = [_upright(_share(tick / 100), 0, height, "grid") for tick in GRID]
    audited = (attack.value, attack.low, attack.high)
    clean = (attack.clean, attack.clean_low, attack.clean_high)
    bars, intervals = _attack_bar(*audited, second, "protected")
    clean_bars, clean_intervals = _attack_bar(*clean, TOP, "clean")
    # Back to front: grid, bars, chance, intervals. An interval must stay visible where it crosses chance.
    shapes += [*bars, *clean_bars]
    words = [
        f"on {of} vectors {percent(share)} ({interval(low, high)})"
        for of, (share, low, high) in ((side, audited), ("clean", clean))
        if share is not None
    ]
    if attack.chance is not None:
        shapes += [_upright(_share(attack.chance), 0, height, kind) for kind in ("halo", "chance")]
        words.append(f"chance {percent(attack.chance)}")
    beside = "with and without protection" if side == "protected" else "in the store"
    title = f"{attack.name}: {attack.metric} {beside}"
    shapes += [*intervals, *clean_intervals]
    return _drawing(name, title, f"{'; '.join(words)}.", height, *shapes, kind="attack")


def kept_bar(utility: UtilityRecord, name: str) -> Markup | None:
    """Return a bar of the share of clean utility that is kept; None if it is not recorded."""
    if utility.relative is None:
        return None
    words = f"{percent(utility.relative)} of the clean value."
    bars = [
        tag("rect", x="0", y="0", width=width, height=6, class_=kind)
        for width, kind in (("100%", "track"), (_share(utility.relative), "bar protected"))
    ]
    return _drawing(name, f"{utility.label}: utility kept", words, 6, *bars, kind="kept")


def term_chart(term: TermRecord, label: str, name: str, side: str) -> Markup:
    """Return a line with a ring at the clean share, a dot at the protected share and a mark at chance."""
    shapes = [_level("0", "100%", "8", "track")]
    if term.clean is not None and term.value is not None:
        shapes.append(_level(_share(term.value), _share(term.clean), "8", "change"))
    if term.chance is not None:
        shapes.append(_upright(_share(term.chance), 2, 14, "chance"))
    for share, kind in ((term.clean, "clean"), (term.value, "protected")):
        if share is not None:
            shapes.append(tag("circle", cx=_share(share), cy=8, r="4", class_=f"dot {kind}"))
    shown = [percent(share) for share in (term.clean, term.value, term.chance)]
    words = f"clean {{}}, {side} {{}}, chance {{}}.".format(*shown).replace(MISSING, "not recorded")
    return _drawing(name, f"{label}: share recovered", words, 16, *shapes, kind="term")




@dataclass(frozen=True)
class Across:
    """A horizontal scale, linear or logarithmic.

    Attributes:
        low, high: the numbers at its ends.
        inset: per cent of the width on each side, for the marks at the ends.
        ticks: the numbers below it.
    """

    low: float
    high: float
    log: bool = False
    inset: float = 3.0
    ticks: Ticks = ()

    def place(self, number: float) -> float:
        """Return the position of a number, in per cent of the width."""
        low, high, at = (
            math.log(each) if self.log else each for each in (self.low, self.high, number)
        )
        # A scale of one number has no length: the number stands in the middle.
        share = 0.5 if high == low else (at - low) / (high - low)
        return self.inset + (100 - 2 * self.inset) * share

    def at(self, number: float) -> str:
        """Return the position of a number as an SVG coordinate."""
        return f"{self.place(number):.6g}%"


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
    # which would else choose the next smaller power.
    power = 10.0 ** math.floor(math.log10(rough) + 1e-9)
    step = next(s for s in (5, 2, 1) if s * power <= rough * (1 + 1e-9)) * power
    first, last = math.ceil(bare.low / step - 1e-9), math.floor(bare.high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _log_ticks(bare: Across) -> list[float]:
    first, last = (math.floor(math.log10(end)) for end in (bare.low, bare.high))
    for steps in ((1, 2, 5), (1,)):
        round_numbers = [s * 10.0**power for power in range(first, last + 1) for s in steps]
        inside = [
            at for at in round_numbers if bare.low <= at * (1 + 1e-9) and at <= bare.high * (1 + 1e-9)
        ]
        if 2 <= len(inside) <= MOST_TICKS:
            return inside
    # Fewer than two round numbers, or more decades than fit: the ends say enough.
    return list(dict.fromkeys((bare.low, bare.high)))


def scale_ticks(
    values: Sequence[float], bounds: tuple[float, float] | None = None
) -> list[tuple[float, str]]:
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
    return [
        (i * step, f"{i * step:,.{decimals}f}".replace("-", "\u2212"))
        for i in range(first, last + 1)
    ]


def _figure_ticks(figure: Figure) -> list[tuple[float, str]]:
    """Return the scale of a figure's values, intervals and chance; for bars it includes 0."""
    values = [0.0] if figure.kind == "bars" else []
    for _, *heights in _points(figure):
        values += [height for height in heights if height is not None]
    return scale_ticks(values if figure.chance is None else [*values, figure.chance])


def _points(figure: Figure) -> list[Point]:
    return [point for series in figure.series for point in series.points]


def _bottom_scale(scale: Across) -> Markup:
    words = [
        tag("text", shown, x=scale.at(number), y="12", text_anchor="middle")
        for number, shown in scale.ticks
    ]
    return _numbers("axis", 16, *words)


def _named(name: str, longest: int) -> list[str]:
    """Return a name, cut to ``longest`` letters; a title element shows a cut name in full under the mouse."""
    if len(name) <= longest:
        return [name]
    return [f"{name[: longest - 1]}…", tag("title", name)]




def _plot(
    name: str,
    title: str,
    description: str,
    ticks: Ticks,
    height: float,
    draw: Callable[[Callable[[float], float]], tuple[list[Markup], list[Markup]]],
    below: Markup,
    chance: float | None = None,
) -> Markup:
    """Return curves with a scale on the left and one below.

    Args:
        draw: takes the function from values to pixels; returns lines and marks.
    """
    bottom, top = ticks[0][0], ticks[-1][0]

    def down(value: float) -> float:
        return EDGE + (height - 2 * EDGE) * (top - value) / (top - bottom)

    # Pixels grow downwards: the greatest value is at the top.
    shapes = [_level("0", "100%", f"{down(at):.2f}", "grid") for at, _ in ticks]
    if chance is not None:
        shapes.append(_level("0", "100%", f"{down(chance):.2f}", "chance"))
    lines, marks = draw(down)
    # `points` of a polyline take no per cent: an inner drawing 100 units wide is stretched to the full width. Marks
    # stay outside, as stretching would distort them; `vector-effect` in the style sheet keeps the strokes.
    if lines:
        shapes.append(
            tag("svg", *lines, viewBox=f"0 0 100 {height:g}", preserveAspectRatio="none", width="100%",
                height=f"{height:g}")
        )  # fmt: skip
    drawing = _drawing(name, title, description, height, *shapes, *marks, kind="curve")
    numbers = [
        tag("text", shown, x="100%", y=f"{down(at) + 4:.2f}", text_anchor="end")
        for at, shown in ticks
    ]
    return tag("div", _numbers("scale", height, *numbers), drawing, below, class_="plot")


def _corners(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.6g},{y:.2f}" for x, y in points)


def measure_chart(
    name: str,
    title: str,
    epochs: Sequence[int],
    curves: Sequence[tuple[str, str, Sequence[float | None]]],
    bounds: tuple[float, float] | None = None,
) -> Markup:
    """Return the curves of measures over the epochs of a training.

    Args:
        curves: CSS class, name and a value for each epoch; the first is drawn on top.
        bounds: of the scale, for measures with natural bounds.
    """
    known = [value for *_, values in curves for value in values if value is not None]
    scale = Across(epochs[0], epochs[-1], inset=2.0)

    def draw(down: Callable[[float], float]) -> tuple[list[Markup], list[Markup]]:
        lines, dots = [], []
        for kind, _, values in reversed(curves):
            points = [
                None if value is None else (scale.place(epoch), down(value))
                for epoch, value in zip(epochs, values, strict=True)
            ]
            # Runs of measured epochs: a line across a gap would show values that nobody measured.
            for _, group in itertools.groupby(points, lambda point: point is None):
                run = [point for point in group if point is not None]
                if len(run) > 1:
                    lines.append(tag("polyline", points=_corners(run), class_=f"curve {kind}"))
                # A run of one point has no line: without a dot it would be invisible.
                if len(run) == 1 or len(points) <= MOST_MARKS:
                    dots += [
                        tag("circle", cx=f"{x:.6g}%", cy=f"{y:.2f}", r="2.5", class_=f"point {kind}")
                        for x, y in run
                    ]
        return lines, dots

    def ends(values: Sequence[float | None]) -> str:
        held = [(e, v) for e, v in zip(epochs, values, strict=True) if v is not None]
        shown = [f"{rounded(value)} at epoch {epoch:,}" for epoch, value in (held[0], held[-1])]
        return ", ".join(dict.fromkeys(shown))

    words = "; ".join(f"{label}: {ends(values)}" for _, label, values in curves)
    first, last = epochs[0], epochs[-1]
    spans = [f"{first:,}", "epoch", f"{last:,}"] if last > first else [f"epoch {first:,}"]
    kind = "epochs meta" if last > first else "epochs meta one"
    below = tag("p", *(tag("span", words) for words in spans), class_=kind)
    return _plot(name, title, f"{words}.", scale_ticks(known, bounds), 132, draw, below)


def curve_chart(figure: Figure, name: str) -> Markup:
    """Return the curves of a figure with their intervals as bands; the first series is drawn on top."""
    scale = across([x for x, *_ in _points(figure)], figure.log)
    series = list(enumerate(figure.series))

    def draw(down: Callable[[float], float]) -> tuple[list[Markup], list[Markup]]:
        bands, lines, marks = [], [], []
        for i, each in reversed(series):
            bands += _bands(each, i, scale, down)
            if len(each.points) > 1:
                corners = _corners([(scale.place(x), down(y)) for x, y, *_ in each.points])
                lines.append(tag("polyline", points=corners, class_=_line_class(i, each.dashed)))
            if len(each.points) <= MOST_MARKS:
                marks += [_mark(i, scale.at(x), f"{down(y):.2f}") for x, y, *_ in each.points]
        # All bands before all lines: no band may cover the line of another series.
        return [*bands, *lines], marks

    def ends(each: Series) -> str:
        (x, y, *_), (last_x, last_y, *_) = each.points[0], each.points[-1]
        words = f"{each.name}: {rounded(y)} at {figure.x} {rounded(x)}"
        return words if len(each.points) == 1 else f"{words}, {rounded(last_y)} at {rounded(last_x)}"

    words = [ends(each) for _, each in series]
    if figure.chance is not None:
        words.append(f"chance {rounded(figure.chance)}")
    description = f"{figure.y} against {figure.x}. {'; '.join(words)}."
    below = tag("div", _bottom_scale(scale), class_="below")
    ticks = _figure_ticks(figure)
    return _plot(name, figure.title, description, ticks, 220, draw, below, figure.chance)


def _bands(
    series: Series, index: int, scale: Across, down: Callable[[float], float]
) -> list[Markup]:
    """Return the intervals of a series as bands, and that of a lone point as a vertical line."""
    shapes = []
    for has_interval, group in itertools.groupby(series.points, lambda point: point[2] is not None):
        if not has_interval:
            continue
        run = [
            (scale.place(x), down(low), down(high))
            for x, _, low, high in group
            if low is not None and high is not None
        ]
        if len(run) == 1:
            ((x, low, high),) = run
            points = _corners([(x, low), (x, high)])
            shapes.append(tag("polyline", points=points, class_=_line_class(index)))
        else:
            # Along the lower ends and back along the upper ones: a closed outline.
            outline = [(x, low) for x, low, _ in run] + [(x, high) for x, _, high in reversed(run)]
            points = _corners(outline)
            shapes.append(tag("polygon", points=points, class_=f"band {_colour(index)}"))
    return shapes


def _colour(index: int) -> str:
    return f"series-{index % COLOURS}"


def _line_class(index: int, dashed: bool = False) -> str:
    return f"line {_colour(index)}{' dashed' if dashed else ''}"


def _mark(index: int, x: str, y: str) -> Markup:
    """Return the mark of a series; neighbours in order differ in form as well as in colour."""
    shape, lengths = MARKS[index % len(MARKS)]
    return tag("svg", tag(shape, class_=f"mark {_colour(index)}", **lengths), x=x, y=y)


def key(figure: Figure) -> Markup | None:
    """Return a key with the mark of each series, and of chance; None if the figure has neither."""
    keys = []
    for i, series in enumerate(figure.series):
        if figure.kind == "bars":
            sample = [tag("rect", x="4", y="0", width="16", height="12", class_=f"fill {_colour(i)}")]
        else:
            sample = [_level("0", "24", "6", _line_class(i, series.dashed)), _mark(i, "12", "6")]
        drawn = tag("svg", *sample, class_="chart", width="24", height="12", aria_hidden="true")
        keys.append(tag("span", drawn, series.name, class_="key"))
    if figure.chance is not None:
        keys.append(tag("span", tag("i", class_="chance"), "chance", class_="key"))
    return tag("p", *keys, class_="legend") if keys else None




def bar_name(figure: Figure, x: float) -> str:
    """Return the name of a group of bars: column ``x`` of the figure, or the number itself."""
    return figure.columns[int(x)] if figure.columns else scale(x)


def bar_chart(figure: Figure, name: str) -> Markup:
    """Return a group of horizontal bars for each x, one for each series; bars start at 0."""
    ticks = _figure_ticks(figure)
    scale = Across(ticks[0][0], ticks[-1][0], ticks=ticks)
    shapes: list[Markup] = []
    words: list[str] = []
    top = 0.0
    for x in sorted({x for x, *_ in _points(figure)}):
        group = bar_name(figure, x)
        shapes.append(tag("text", *_named(group, 44), x="0", y=f"{top + 12:g}", class_="name"))
        top += 16
        values = []
        for i, series in enumerate(figure.series):
            for _, y, low, high in (point for point in series.points if point[0] == x):
                shapes += _bar(y, low, high, top, i, scale)
                values.append(f"{series.name} {rounded(y)}")
                top += 15
        words.append(f"{group}: {', '.join(values)}")
        top += 10
    # Only now, as the height is known after the last group; they are still painted first.
    lines = [_upright(scale.at(at), 0, top, "grid") for at, _ in ticks]
    if figure.chance is not None:
        lines.append(_upright(scale.at(figure.chance), 0, top, "chance"))
        words.append(f"chance {rounded(figure.chance)}")
    description = f"{figure.y}. {'; '.join(words)}."
    drawing = _drawing(name, figure.title, description, top, *lines, *shapes, kind="bars")
    return tag("div", drawing, _bottom_scale(scale))


def _bar(
    y: float, low: float | None, high: float | None, top: float, index: int, scale: Across
) -> list[Markup]:
    # Negative bars run to the left of 0; a rect takes no negative width.
    start, end = sorted((scale.place(0.0), scale.place(y)))
    box = {"x": f"{start:.6g}%", "y": f"{top:g}", "width": f"{end - start:.6g}%", "height": 12}
    shapes = [tag("rect", **box, class_=f"fill {_colour(index)}")]
    if low is not None and high is not None:
        ends = (scale.at(low), scale.at(high), f"{top + 6:g}")
        shapes += [_level(*ends, kind) for kind in ("halo", "interval")]
    return shapes


def _heat_values(figure: Figure) -> list[float]:
    return [value for row in figure.values for value in row if value is not None]


def _strongest(figure: Figure) -> float:
    return max(map(abs, _heat_values(figure)), default=0.0) or 1.0


def heat_chart(figure: Figure, name: str) -> Markup:
    """Return a cell for each value, stronger the farther it is from 0, with another colour below 0."""
    strongest, columns = _strongest(figure), len(figure.columns)
    width, height = 100 / columns, CELL * len(figure.rows)
    shapes: list[Markup] = []
    for i, row in enumerate(figure.values):
        for j, value in enumerate(row):
            middle = {"x": f"{(j + 0.5) * width:.6g}%", "y": f"{i * CELL + 15}", "text_anchor": "middle"}
            if value is None:
                shapes.append(tag("text", MISSING, **middle))
                continue
            # Both signs share one scale, so that equal strength means equal size.
            strength = abs(value) / strongest
            box = {"x": f"{j * width:.6g}%", "y": f"{i * CELL}", "width": f"{width:.6g}%", "height": CELL}
            kind = f"cell {'below' if value < 0 else 'above'}"
            shapes.append(tag("rect", **box, fill_opacity=f"{strength:.3f}", class_=kind))
            if columns <= 6:  # more numbers would not fit on a phone
                kind = "on dark" if strength >= DARK else "on"
                shown = f"{value:.2g}".replace("-", "\u2212")
                shapes.append(tag("text", shown, class_=kind, **middle))
    known = _heat_values(figure)
    between = f"between {rounded(min(known))} and {rounded(max(known))}" if known else "not measured"
    size = f"{len(figure.rows)} rows and {columns} columns"
    description = f"{figure.y} against {figure.x}: {size}, {between}."
    drawing = _drawing(name, figure.title, description, height, *shapes, kind="heat")
    beside = [
        tag("text", *_named(row, 18), x="100%", y=f"{i * CELL + 15}", text_anchor="end")
        for i, row in enumerate(figure.rows)
    ]
    # Rounded up: at most 20 names fit; of more columns every second, third ... is named.
    step = -(-columns // 20)
    names = [(j, column) for j, column in enumerate(figure.columns) if j % step == 0]
    turned = {"transform": "rotate(-90)", "x": "-4", "y": "4", "text_anchor": "end"}
    below = [
        tag("svg", tag("text", *_named(words, 18), **turned), x=f"{(j + 0.5) * width:.6g}%")
        for j, words in names
    ]
    # SVG cannot measure text: room for the longest turned name is estimated from its letters.
    deep = round(8 + LETTER * max(min(len(words), 18) for _, words in names))
    under = tag("div", _numbers("axis", deep, *below), class_="below")
    return tag("div", _numbers("scale", height, *beside), drawing, under, class_="plot heat")


def heat_key(figure: Figure) -> Markup:
    """Return the key of a heat map: the colours from 0 to the strongest value, for each sign that occurs."""
    strongest, known = _strongest(figure), _heat_values(figure)
    sides = [("below", -1)] if min(known, default=0.0) < 0 else []
    if max(known, default=0.0) > 0 or not sides:
        sides.append(("above", 1))
    keys = []
    for side, sign in sides:
        boxes = [
            tag("rect", x=f"{16 * k}", y="0", width="16", height="12", fill_opacity=f"{k / 4:.2f}",
                class_=f"cell {side}")
            for k in range(5)
        ]  # fmt: skip
        sample = tag("svg", *boxes, class_="chart", width=80, height="12", aria_hidden="true")
        keys.append(tag("span", "0", sample, rounded(sign * strongest), class_="key"))
    return tag("p", *keys, class_="legend")
