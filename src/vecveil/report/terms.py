"""The section on what leaks of each term."""

from __future__ import annotations

from vecveil.report import figures as f
from vecveil.report.charts import term_chart
from vecveil.report.markup import Safe, tag
from vecveil.report.parts import cell, section, table
from vecveil.report.record import Audit, Term
from vecveil.report.wording import Wording, wording

__all__ = ["CHANCE", "NAMED", "NUMBERED", "caption", "label", "terms"]

TERMS_SHOWN = 20
NAMED = "This page names the concept’s terms: keep it where the texts may be kept."
NUMBERED = "The record does not hold the terms, so they are numbered, the most frequent first."

CHANCE = (
    "Chance of a term is what naming the most frequent terms in every text would recover of it: much of a "
    "frequent term, nothing of a rare one."
)


def label(term: Term, index: int) -> str:
    """Return the term, or its number where the record does not hold it."""
    return f"term {index + 1}" if term.term is None else term.term


def caption(audit: Audit, what: str) -> str:
    """Return what the shares of the terms are."""
    return (
        f"Share of a term’s test occurrences that {audit.worst.name} ranked among the k best "
        f"of the text, {what} {len(audit.terms)} terms."
    )


def _row(term: Term, index: int, said: Wording, clean: bool) -> Safe:
    name = label(term, index)
    known = (term.clean, term.value, term.chance)[not clean :]
    shares = [cell(f.percent(share)) for share in known]
    return tag(
        "tr",
        tag("th", tag("bdi", name), scope="row"),
        cell(f.count(term.count)),
        *shares,
        tag("td", term_chart(term, name, f"term-{index}", said), class_="picture"),
    )


def terms(audit: Audit) -> Safe:
    """Return the leakage of every term; a term is named only where the record names it."""
    heading, said = "What leaks, term by term", wording(audit)
    if not audit.terms:
        return section("terms", heading, tag("p", "The record holds no figures per term."))
    clean = any(term.clean is not None for term in audit.terms)
    sides = ["Clean", said.side.capitalize(), "Chance"][not clean :]
    heads = ("Term", "Count", *sides, "0 to 100 %")
    rows = [_row(term, i, said, clean) for i, term in enumerate(audit.terms)]
    named = any(term.term is not None for term in audit.terms)
    first = rows[:TERMS_SHOWN]
    what = "all" if len(first) == len(rows) else f"the {len(first)} most frequent of"
    rest = None
    if len(rows) > len(first):
        more = table("The other terms.", heads, "terms", rows[TERMS_SHOWN:])
        rest = tag("details", tag("summary", f"The other {len(rows) - len(first)} terms"), more)
    held = table(caption(audit, what), heads, "terms", first)
    return section(
        "terms", heading, tag("p", f"{NAMED if named else NUMBERED} {CHANCE}"), held, rest
    )
