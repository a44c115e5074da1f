"""One verdict for each family beside token inference, in the family's own metric."""

from __future__ import annotations

from dataclasses import dataclass

from vecveil.report.record import Attack, Audit, Figure
from vecveil.report.series import MOST, Series, by_count, series
from vecveil.report.verdict import against_chance, against_clean, also_above_chance
from vecveil.report.wording import FAMILY_WORDS

__all__ = ["FamilyVerdict", "other_families", "standing"]


@dataclass(frozen=True, slots=True)
class FamilyVerdict:
    """What the strongest attack of one family finds, and how it compares.

    Attributes:
        words: How its main figure lies to chance and to clean vectors.
        notes: What keeps a reader from taking the words for more than they say.
        rows: The figures to show for the family beside the main one, each with its attack.
        series: Leakage against a number of releases or known pairs, where the record holds it.
    """

    family: str
    title: str
    question: str
    attack: Attack
    words: str
    notes: tuple[str, ...]
    rows: tuple[tuple[Attack, Figure], ...]
    series: tuple[Series, ...]

    @property
    def figure(self) -> Figure:
        """The main figure of the strongest attack."""
        return self.attack.figure

    def lines(self) -> list[tuple[str, list[Figure | None], float | None]]:
        """Return for each number of the series: the number, a figure for each series, chance."""
        found = []
        counts = {point.count for line in self.series for point in line.points}
        for count in sorted(counts, key=by_count):
            held = [line.at(count) for line in self.series]
            chances = [each.chance for each in held if each is not None]
            found.append((MOST if count is None else f"{count:,}", held, chances[0]))
        return found


def standing(figure: Figure) -> str:
    """Return how a figure lies to chance and to clean vectors, and what cannot be compared."""
    if figure.value is None:
        return "not measurable on these texts"
    chance = against_chance(figure)
    if not chance:
        chance = "chance not stated" if figure.chance is None else "no interval, so no verdict"
    clean = against_clean(figure)
    if not clean:
        clean = "no clean side" if figure.clean is None else "clean not comparable"
    return f"{chance}; {clean}"


def _rows(family: str, members: tuple[Attack, ...], worst: Attack) -> list[tuple[Attack, Figure]]:
    """Return the figures to show of a family beside its bars."""
    if family == "averaging":
        return []  # the number of releases is what matters
    if family == "held-out-terms":  # listed against unlisted terms, in one metric
        metric = worst.figure.metric.split()[0]
        return [(a, f) for a in members for f in a.figures if f.metric.split()[0] == metric]
    shown = members if family == "candidates" else (worst,)
    return [(a, f) for a in shown for f in a.figures]


def _verdict(audit: Audit, family: str, worst: Attack) -> FamilyVerdict:
    title, question = FAMILY_WORDS[family]
    members = audit.members(family)
    lines = series(members)
    drawn = {id(point.figure) for line in lines for point in line.points}
    above = also_above_chance(members, worst)
    return FamilyVerdict(
        family=family,
        title=title,
        question=question,
        attack=worst,
        words=standing(worst.figure),
        notes=(f"Above chance all the same: {'; '.join(above)}.",) if above else (),
        rows=tuple((a, f) for a, f in _rows(family, members, worst) if id(f) not in drawn),
        series=lines,
    )


def other_families(audit: Audit) -> tuple[FamilyVerdict, ...]:
    """Return the verdicts of all families but token inference, in a fixed order."""
    return tuple(
        _verdict(audit, family, worst)
        for family, worst in audit.families.items()
        if family != "token-inference"
    )
