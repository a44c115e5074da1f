"""Judge a claim: compare figures with their errors, count the comparisons, and return one verdict.

Every experiment judges here. A difference counts only beyond its own 95 % interval.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from scipy.stats import t

Verdict = Literal["disagrees", "unclear", "no difference", "agrees", "not measured"]
VERDICTS: tuple[Verdict, ...] = ("disagrees", "unclear", "no difference", "agrees", "not measured")
"""The verdicts on a claim, in the order in which reports show them."""

AGREES = 0.8  # share of comparisons that hold
HALF = 0.5  # share of comparisons that contradict the claim, or show no difference
FEWEST = 2  # comparisons that a verdict on a paper's claim needs
LEAST = 0.002  # of a figure: a smaller difference is none, however often it is seen

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure with its error.

    Attributes:
        by_seed: its values; by another unit, such as words, where each pools all seeds.
        half: half of the 95 % interval of one value; 0 if unknown.
        pooled: number of seeds that each value pools.
    """

    by_seed: Mapping[Any, float]
    half: float = 0.0
    pooled: int = 0

    @property
    def value(self) -> float:
        return statistics.fmean(self.by_seed.values())


Quantity = float | Measured
"""A figure: a number is exact, such as a printed one."""


def difference(one: Quantity, other: Quantity, times: float = 1.0) -> tuple[float, float]:
    """Return ``one - times * other`` and half of its 95 % interval.

    Seeds that both have give paired differences and Student's interval. One seed gives the interval of two independent
    figures, which is too wide rather than too narrow.
    """
    if not isinstance(other, Measured):
        other = Measured(dict.fromkeys(one.by_seed if isinstance(one, Measured) else [None], other))
    if not isinstance(one, Measured):
        one = Measured(dict.fromkeys(other.by_seed, one))
    seeds = [seed for seed in one.by_seed if seed in other.by_seed]
    gaps = [one.by_seed[seed] - times * other.by_seed[seed] for seed in seeds]
    if len(gaps) > 1:
        error = statistics.stdev(gaps) / math.sqrt(len(gaps))
        return statistics.fmean(gaps), float(t.ppf(0.975, len(gaps) - 1)) * error
    gap = gaps[0] if gaps else one.value - times * other.value
    return gap, math.hypot(one.half, times * other.half)


def compare(one: Quantity, other: Quantity, *, times: float = 1.0, by: float = 0.0) -> int:
    """Return 1 or −1 if ``one`` is above or below ``times * other + by`` beyond the interval, otherwise 0.

    Printed figures are compared as printed.
    """
    gap, half = difference(one, other, times)
    if isinstance(one, Measured) or isinstance(other, Measured):
        sizes = [abs(x.value if isinstance(x, Measured) else x) for x in (one, other)]
        half = max(half, LEAST * max(sizes[0], abs(times) * sizes[1]))
    return 0 if abs(gap - by) <= half else 1 if gap > by else -1


def shared_seeds(one: Quantity, other: Quantity) -> int:
    """Return the number of seeds on which a comparison rests; 0 for printed figures."""
    measured = [each for each in (one, other) if isinstance(each, Measured)]
    if not measured:
        return 0
    if any(each.pooled for each in measured):
        return min(each.pooled or len(each.by_seed) for each in measured)
    return len(set.intersection(*(set(each.by_seed) for each in measured))) or 1


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of comparisons: those in which a claim holds, those that contradict it, and all.

    Attributes:
        broken: the cells that contradict it.
        margin: figures are compared with a margin: a figure within the interval is not an equality.
        seeds: the smallest number of seeds of a comparison; 0 for printed figures.
    """

    held: int
    against: int
    cells: int
    broken: tuple[Row, ...] = ()
    margin: bool = False
    seeds: int = 0

    @classmethod
    def of(cls, outcomes: Sequence[tuple[int, Row]], *, margin: bool = False, seeds: Sequence[int] = ()) -> Tally:
        """Return the counts of outcomes: positive if the claim holds, negative if it is contradicted."""
        broken = tuple(cell for outcome, cell in outcomes if outcome < 0)
        held = sum(outcome > 0 for outcome, _ in outcomes)
        return cls(held, len(broken), len(outcomes), broken, margin, min(seeds, default=0))

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.held + other.held,
            self.against + other.against,
            self.cells + other.cells,
            self.broken + other.broken,
            self.margin or other.margin,
            min(self.seeds, other.seeds) or max(self.seeds, other.seeds),
        )

    def __str__(self) -> str:
        rest = self.cells - self.held - self.against
        parts = [f"holds in {self.held} of {self.cells} comparisons"]
        parts += [f"contradicted in {self.against}"] if self.against else []
        parts += [f"{'undecided' if self.margin else 'no difference'} in {rest}"] if rest else []
        return ", ".join(parts)


def verdict(tally: Tally, *, fewest: int = FEWEST) -> Verdict:
    """Return the verdict on a claim: agrees from four fifths of the comparisons, otherwise what half of them show."""
    if not tally.cells:
        return "not measured"
    if tally.cells < fewest:
        return "unclear"
    if tally.held >= AGREES * tally.cells:
        return "agrees"
    if tally.against >= HALF * tally.cells:
        return "disagrees"
    equal = tally.cells - tally.held - tally.against
    return "no difference" if equal >= HALF * tally.cells and not tally.margin else "unclear"


def within(value: Quantity, *, least: float = -math.inf, most: float = math.inf) -> Verdict:
    """Return the verdict on bounds: unclear if the interval of the value contains one."""
    outcomes = [compare(value, least)] if math.isfinite(least) else []
    outcomes += [-compare(value, most)] if math.isfinite(most) else []
    if min(outcomes) < 0:
        return "disagrees"
    return "agrees" if min(outcomes) > 0 else "unclear"


@dataclass(frozen=True, slots=True)
class Order:
    """One figure is below or above another in every cell.

    Attributes:
        figure: column to compare.
        of, against: keys of the two rows; a list allows each of its values. Keys that neither names must agree.
        by: margin, in the unit of the rows; a negative one is a tolerance.
        times: factor of ``against``: ``lower`` with 1.25 is at most 1.25 times as much.
    """

    figure: str
    of: Mapping[str, Any]
    against: Mapping[str, Any]
    expect: Literal["lower", "higher"]
    by: float = 0.0
    times: float = 1.0

    def tally(self, rows: Sequence[Row], keys: Sequence[str]) -> Tally:
        """Return in how many cells of ``rows`` the order holds; rows without the figure make no cell.

        Args:
            rows: in the units of the published table.
            keys: columns that identify a cell; those that a row lacks are skipped.
        """
        same = [key for key in keys if not (key in self.of and key in self.against)]
        sign = 1 if self.expect == "higher" else -1
        found: list[tuple[int, Row]] = []
        seeds = []
        for one, other in itertools.product(_matching(rows, self.of), _matching(rows, self.against)):
            if all(one.get(key) == other.get(key) for key in same):
                figure, beside = one.get(self.figure), other.get(self.figure)
                if figure is not None and beside is not None:
                    cell = {key: one[key] for key in same if key in one} | {
                        key: one[key] if one[key] == other[key] else (one[key], other[key])
                        for key in self.of
                        if key in other
                    }
                    way = compare(figure, beside, times=self.times, by=sign * self.by)
                    found.append((sign * way, cell))
                    seeds.append(shared_seeds(figure, beside))
        return Tally.of(found, margin=self.by != 0 or self.times != 1, seeds=seeds)


@dataclass(frozen=True, slots=True)
class Trend:
    """A figure falls or rises from step to step along a key; each step is a cell."""

    figure: str
    along: str
    expect: Literal["falling", "rising"]

    def tally(self, rows: Sequence[Row], keys: Sequence[str]) -> Tally:
        """Return in how many steps the trend holds; arguments as in `Order.tally`."""
        same = [key for key in keys if key != self.along]
        sign = 1 if self.expect == "rising" else -1
        known = [row for row in rows if row.get(self.figure) is not None]
        lines: dict[tuple[Any, ...], list[Row]] = {}
        for row in sorted(known, key=lambda row: float(row[self.along])):
            lines.setdefault(tuple(row.get(key) for key in same), []).append(row)
        steps = [step for line in lines.values() for step in itertools.pairwise(line)]
        return Tally.of(
            [
                (
                    sign * compare(late[self.figure], early[self.figure]),
                    {key: early[key] for key in same if key in early}
                    | {self.along: (early[self.along], late[self.along])},
                )
                for early, late in steps
            ],
            seeds=[shared_seeds(early[self.figure], late[self.figure]) for early, late in steps],
        )


@dataclass(frozen=True, slots=True)
class Bound:
    """A figure is at least a bound wherever other figures are small enough.

    Attributes:
        of: keys of the rows.
        limits: maximum value by column; a row above a limit is not a cell.
    """

    figure: str
    of: Mapping[str, Any]
    least: float
    limits: Mapping[str, float] = field(default_factory=dict)

    def tally(self, rows: Sequence[Row], keys: Sequence[str]) -> Tally:
        """Return in how many rows the bound holds; arguments as in `Order.tally`."""
        own = [
            row
            for row in _matching(rows, self.of)
            if row.get(self.figure) is not None
            and all(row.get(name) is not None and _value(row[name]) <= most for name, most in self.limits.items())
        ]
        return Tally.of(
            [(compare(row[self.figure], self.least), {key: row[key] for key in keys if key in row}) for row in own],
            margin=True,
            seeds=[shared_seeds(row[name], self.least) for row in own for name in (self.figure, *self.limits)],
        )


def _value(figure: Quantity) -> float:
    return figure.value if isinstance(figure, Measured) else figure


def _matching(rows: Sequence[Row], wanted: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows whose keys have the wanted values; a list allows each of its values."""
    for row in rows:
        if all(
            key in row and (row[key] in value if isinstance(value, list) else row[key] == value)
            for key, value in wanted.items()
        ):
            yield row
