"""The Markdown of what leaks: attacks by family, terms, other metrics."""

from __future__ import annotations

from vecveil.report import figures as f
from vecveil.report import terms as term_words
from vecveil.report.families import FamilyVerdict, other_families
from vecveil.report.leakage import explained, price
from vecveil.report.markdown_text import code, heading, table, text
from vecveil.report.parts import bounds
from vecveil.report.parts import side_heads as part_heads
from vecveil.report.record import Audit, Figure
from vecveil.report.verdict import status
from vecveil.report.wording import FAMILY_WORDS, judged_on, wording

__all__ = ["leakage", "secondary", "side_heads", "sides", "terms", "with_bounds"]


def with_bounds(figure: str, below: str) -> str:
    """Return a figure with its interval, if it has one, as a cell."""
    return text(figure if below == f.MISSING else f"{figure} ({below})")


def sides(audit: Audit, figure: Figure) -> list[str]:
    """Return clean, audited, chance and over chance as cells."""
    clean, audited = bounds(figure)
    shown = (figure.chance, figure.over_chance)
    before = [with_bounds(f.percent(figure.clean), clean)] if audit.has_clean else []
    return [
        *before,
        with_bounds(f.percent(figure.value), audited),
        *(text(f.percent(share)) for share in shown),
    ]


def side_heads(audit: Audit, *first: str) -> list[str]:
    """Return the heads of the columns that `sides` gives, after others."""
    return [*part_heads(audit, *first), "Over chance"]


def leakage(audit: Audit) -> list[str]:
    """Return the attacks, family by family, with each family's own figures."""
    blocks = [heading(2, "What leaks" if audit.is_store else "What leaks, before and after")]
    verdicts = {verdict.family: verdict for verdict in other_families(audit)}
    for family in audit.families:
        title, question = FAMILY_WORDS[family]
        blocks += [heading(3, title), question]
        rows = [
            [
                code(attack.name),
                text(attack.figure.metric),
                *sides(audit, attack.figure),
                judged_on(attack),
                text(status(attack.figure)),
                text(price(attack)),
            ]
            for attack in audit.members(family)
        ]
        heads = [
            *side_heads(audit, "Attack", "Metric"),
            "Judged on",
            "Verdict",
            "Learning and cost",
        ]
        blocks.append(table(heads, rows, words=(0, 1, *range(len(heads) - 3, len(heads)))))
        if verdict := verdicts.get(family):
            blocks += [*_series(verdict), *_metrics(audit, verdict)]
    return [*blocks, text(explained(audit))]


def _series(verdict: FamilyVerdict) -> list[str]:
    if not verdict.series:
        return []
    unit = verdict.series[0].unit
    rows = [
        [text(count), *(_point(figure) for figure in held), text(f.percent(chance))]
        for count, held, chance in verdict.lines()
    ]
    heads = [text(unit.capitalize()), *(text(line.label) for line in verdict.series), "Chance"]
    return [f"Leakage against the number of {unit}:", table(heads, rows)]


def _point(figure: Figure | None) -> str:
    return (
        text(f.MISSING)
        if figure is None
        else with_bounds(f.percent(figure.value), bounds(figure)[1])
    )


def _metrics(audit: Audit, verdict: FamilyVerdict) -> list[str]:
    if len(verdict.rows) < 2:
        return []
    rows = [
        [code(a.name), text(figure.metric), *sides(audit, figure)] for a, figure in verdict.rows
    ]
    return ["The figures:", table(side_heads(audit, "Attack", "Metric"), rows, words=(0, 1))]


def terms(audit: Audit) -> list[str]:
    """Return the leakage of every term."""
    title = heading(2, "What leaks, term by term")
    if not audit.terms:
        return [title, "The record holds no figures per term."]
    named = any(term.term is not None for term in audit.terms)
    clean = any(term.clean is not None for term in audit.terms)
    rows = [
        [
            text(term_words.label(term, i)),
            text(f.count(term.count)),
            *(text(f.percent(s)) for s in (term.clean, term.value, term.chance)[not clean :]),
        ]
        for i, term in enumerate(audit.terms)
    ]
    note = text(f"{term_words.NAMED if named else term_words.NUMBERED} {term_words.CHANCE}")
    heads = ("Term", "Count", *["Clean", wording(audit).side.capitalize(), "Chance"][not clean :])
    return [title, note, text(term_words.caption(audit, "all")), table(heads, rows)]


def secondary(audit: Audit) -> list[str]:
    """Return every other metric of every attack."""
    rows = [
        [code(attack.name), text(each.metric), *sides(audit, each)]
        for attack in audit.attacks
        for each in attack.also
    ]
    if not rows:
        return []
    held = table(side_heads(audit, "Attack", "Metric"), rows, words=(0, 1))
    return [heading(2, "Other metrics"), held]
