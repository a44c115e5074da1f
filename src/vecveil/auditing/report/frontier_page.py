"""Report a frontier: a page with one plot of leak against search, and a table for a terminal."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vecveil.auditing.records.frontier_record import FrontierPoint, FrontierRecord, Kept, Leak, best_of
from vecveil.auditing.records.verdict import FIRST_CHOICE
from vecveil.auditing.report.charts import Across
from vecveil.auditing.report.rendering import render, write_report
from vecveil.auditing.report.text import MISSING, count, duration, interval, percent, terminal_table

CAUTION = (
    "The figures apply to the attackers named here and to these texts; the attackers of an audit recover more. They "
    "are measured on texts that the designs were not fitted on; a fit on all texts, with all words, learns from more. "
    "Choosing the best of many designs biases its figures: audit the protector that you choose on other texts."
)
LEAKS = {"listed": "listed words", "left-out": "words left out of the fit"}
HEIGHT, EDGE = 320, 12
FORMS = {"subspace": 0, "laplace": 1}
"""Mark of each method; all others have a triangle."""


def frontier_page(record: FrontierRecord) -> str:
    """Return the frontier as one HTML page without scripts or external resources."""
    return render(
        "frontier.html",
        what="frontier",
        generator=record.vecveil,
        record=record,
        plot=_plot(record),
        LEAKS=LEAKS,
        CAUTION=CAUTION,
        FIRST_CHOICE=FIRST_CHOICE,
        about=_about(record),
        measure=_measure(record),
        heads=_heads(record),
        rows=[
            (point.number, [point.words, *_cells(record, point)], point is record.recommended)
            for point in record.points
        ],
        facts=_facts(record),
    )


def write_frontier_html(record: FrontierRecord, target: str | os.PathLike[str]) -> Path:
    """Write `frontier_page` to ``target`` atomically, and return its path."""
    return write_report(target, frontier_page(record))


def frontier_lines(record: FrontierRecord) -> list[str]:
    """Return the recommendation and a table for a terminal, with the caution below."""
    rows = [["", *_heads(record)]]
    for point in record.points:
        mark = "*" if point is record.recommended else ""
        rows.append([f"{mark}{point.number}", point.words, *_cells(record, point)])
    clean = _leaks(record.clean_listed, record.clean_left_out)
    chance = _leaks_of(record.chance_listed, record.chance_left_out)
    leaks = f"Leak of clean vectors: {clean}; by chance: {chance}. {_measure(record)}"
    below = ["", leaks, *record.missing.values(), FIRST_CHOICE, CAUTION]
    return [record.recommendation, "", *terminal_table(rows, left=(1,)), *below]


def _heads(record: FrontierRecord) -> list[str]:
    ranked = [f"among {kept.candidates}" for point in record.points[:1] for kept in point.sealed]
    left = [] if record.clean_left_out is None else ["left out recovered (95 %)"]
    return ["design", "listed recovered (95 %)", *left, "similarity", "search: store alone", *ranked]


def _cells(record: FrontierRecord, point: FrontierPoint) -> list[str]:
    left = [] if record.clean_left_out is None else [_value(point.left_out)]
    kept = [point.similarity, point.store, *point.sealed]
    return [_value(point.listed), *left, *(_kept(each) for each in kept)]


def _kept(kept: Kept | None) -> str:
    # Not `percent`: exact ranking of a few rows may keep more than all.
    return MISSING if kept is None else f"{100 * kept.value:.1f}\u00a0%"


def _value(leak: Leak | None) -> str:
    return MISSING if leak is None else f"{percent(leak.value)} ({interval(leak.low, leak.high)})"


def _leaks(listed: Leak, left_out: Leak | None) -> str:
    return _leaks_of(listed.value, None if left_out is None else left_out.value)


def _leaks_of(listed: float, left_out: float | None) -> str:
    left = "" if left_out is None else f", {percent(left_out)} of left-out"
    return f"{percent(listed)} of listed{left} words"


def _measure(record: FrontierRecord) -> str:
    store = record.points[0].store if record.points else None
    if store is None:
        return "Search was not measured."
    rows = f"{count(record.counts.rows)} rows"
    queries = "texts as queries" if record.counts.queries is None else f"{count(record.counts.queries)} judged queries"
    noise = "query and rows with noise" if record.counts.query_noise else "rows with noise, queries without"
    return (
        f"Search is {store.metric} as a share of clean, {queries}, in {rows}, {noise}: in the store "
        "alone, and after exact ranking of so many candidates (sealed search)."
    )


def _about(record: FrontierRecord) -> str:
    parts = [
        f"concept {record.concept!r}",
        f"{count(record.counts.texts)} texts",
        f"seed {record.seed}",
        f"{len(record.points)} of {record.designs} designs",
        duration(record.seconds),
    ]
    return " · ".join(parts)


def _facts(record: FrontierRecord) -> list[tuple[str, str]]:
    counts = record.counts
    return [
        ("Encoder", record.encoder.name or MISSING),
        (
            "Texts",
            f"{count(counts.fitted)} to fit on, {count(counts.learnt)} that attackers learn from, "
            f"{count(counts.judged)} that they are judged on",
        ),
        (
            "Words",
            f"{count(counts.listed + counts.left_out)} of the concept’s {count(counts.words)} words, those that "
            f"enough texts contain: {count(counts.listed)} listed, {count(counts.left_out)} left out of the fits",
        ),
        (
            "Attackers",
            f"{', '.join(record.readers)}; the strongest counts. They know the protector and learn from "
            "fresh releases of texts of their own.",
        ),
        ("Leak", "R-precision: of the k concept words of a text, the share among the attacker’s k best guesses"),
        ("Chance", f"a guess by frequency finds {_leaks_of(record.chance_listed, record.chance_left_out)}"),
        ("Clean vectors", f"attackers recover {_leaks(record.clean_listed, record.clean_left_out)}"),
        *[("Not measured", words) for words in record.missing.values()],
    ]


# -- the plot


@dataclass(frozen=True)
class Dot:
    """A point in the plot: its horizontal (per cent) and vertical (pixels) position, mark, and tooltip lines."""

    number: int
    x: float
    y: float
    line: int
    form: int
    chosen: bool
    words: Sequence[str]


def _plot(record: FrontierRecord) -> dict[str, Any]:
    """Return the scales, and for each kind of leak its dots, best lines and marks of chance and of clean vectors."""
    lines = record.lines()
    kinds = {"listed": (record.chance_listed, record.clean_listed)}
    if record.clean_left_out is not None and record.chance_left_out is not None:
        kinds["left-out"] = (record.chance_left_out, record.clean_left_out)
    leaks = [leak.value for p in record.points for leak in (p.listed, p.left_out) if leak is not None]
    searches = [kept.value for line in lines.values() for _, kept in line] or [1.0]
    right = max([*leaks, *(clean.value for _, clean in kinds.values())])
    across = Across(0.0, right, inset=4.0)
    up = _tens(min(0.9, *searches), max(1.0, max(searches) - 0.02))  # 1.01 fits above the line of 1

    def down(kept: float) -> float:
        return EDGE + (HEIGHT - 2 * EDGE) * (up[-1] - kept) / (up[-1] - up[0])

    layers = []
    for kind, (chance, clean) in kinds.items():
        dots, best = [], []
        for i, line in enumerate(lines.values()):
            places = [(_leak(point, kind).value, kept.value) for point, kept in line]
            best.append((i, " ".join(f"{across.place(x):.4g},{down(y):.4g}" for x, y in best_of(places))))
            dots += [
                Dot(
                    point.number,
                    across.place(x),
                    down(y),
                    i,
                    FORMS.get(str(point.arguments["method"]), 2),
                    point is record.recommended,
                    _words(record, point),
                )
                for (point, _), (x, y) in zip(line, places, strict=True)
            ]
        layers.append((kind, dots, best, across.place(chance), across.place(clean.value)))
    return {
        "height": HEIGHT,
        "layers": layers,
        "names": list(lines),
        "grid": [(down(at), f"{100 * at:.0f}") for at in up],
        "below": [(across.place(at), f"{100 * at:.0f}") for at in _tens(0.0, right) if at <= right],
    }


def _tens(low: float, high: float) -> list[float]:
    """Return round shares that enclose both: steps of a tenth, or of a fifth over a long way."""
    step = 0.1 if high - low <= 0.6 else 0.2
    return [i * step for i in range(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) + 1)]


def _leak(point: FrontierPoint, kind: str) -> Leak:
    return point.left_out if kind == "left-out" and point.left_out is not None else point.listed


def _words(record: FrontierRecord, point: FrontierPoint) -> list[str]:
    """Return the lines of a tooltip, short enough for a phone."""
    search = "" if point.store is None else f", store alone {_kept(point.store)}"
    ranked = ", ".join(f"{kept.candidates}: {_kept(kept)}" for kept in point.sealed)
    return [
        f"Point {point.number}: {point.words}",
        f"leak {_value(point.listed)}",
        *([] if point.left_out is None else [f"left out {_value(point.left_out)}"]),
        f"similarity {_kept(point.similarity)}{search}",
        *([f"among {ranked}"] if ranked else []),
    ]
