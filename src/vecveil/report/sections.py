"""The sections on the verdict, the utility, the guarantee and the limits."""

from __future__ import annotations

from collections.abc import Sequence

from vecveil.report import figures as f
from vecveil.report.charts import kept_bar
from vecveil.report.figures import NBSP
from vecveil.report.markup import Safe, tag
from vecveil.report.parts import bounds, cell, facts_list, section, table
from vecveil.report.record import Audit, Utility
from vecveil.report.verdict import Strong, Whole, caveats, sentence, utility_range

__all__ = ["guarantee", "limits", "utility", "verdict"]

SIDES = {
    "both": "both sides protected",
    "documents": "documents protected, queries through the map",
}


def _key_figures(audit: Audit) -> list[tuple[str, str, str]]:
    figure, kept, epsilon = audit.worst.figure, utility_range(audit), audit.guarantee.epsilon
    clean, protected = bounds(figure)
    if kept is None:
        kept_words = "not measured"
    else:
        kept_words = f.percent(kept[0]) if kept[0] == kept[1] else f.interval(*kept)
    measures = f"{len(audit.utility)} measure{'s' * (len(audit.utility) != 1)}"
    return [
        ("Recovered, clean", f.percent(figure.clean), clean),
        ("Recovered, protected", f.percent(figure.value), protected),
        ("Chance", f.percent(figure.chance), "without any vector"),
        ("Utility kept", kept_words, measures),
        (
            "Guarantee",
            audit.guarantee.kind,
            "no ε" if epsilon is None else f"ε = {f.scale(epsilon)}",
        ),
    ]


def _part(part: str) -> str:
    if isinstance(part, Strong):
        return tag("strong", part)
    return tag("span", part, class_="whole") if isinstance(part, Whole) else part


def verdict(audit: Audit) -> Safe:
    """Return the sentence, the key figures beside one another, and the caveats."""
    said = [_part(part) for part in sentence(audit)]
    tiles = [
        tag("div", tag("dt", name), tag("dd", tag("b", value), tag("small", below)))
        for name, value, below in _key_figures(audit)
    ]
    return section(
        "verdict",
        "Verdict",
        tag("p", *said, class_="verdict"),
        tag("dl", *tiles, class_="tiles"),
        tag("ul", *(tag("li", note) for note in caveats(audit)), class_="notes"),
    )


def _utility_row(each: Utility, index: int) -> Safe:
    who = tag(
        "th",
        each.label,
        tag("small", f"{each.metric} · {SIDES[each.sides]} · n{NBSP}={NBSP}{f.count(each.n)}"),
        kept_bar(each, f"utility-{index}"),
        scope="row",
    )
    bounds = None if each.low is None else f.plain_interval(each.low, each.high)
    return tag(
        "tr",
        who,
        cell(f.decimal(each.clean)),
        cell(f.decimal(each.value), bounds),
        cell(f.percent(each.relative)),
    )


def utility(audit: Audit) -> Safe:
    """Return what the vectors are still good for, one row a measure."""
    if not audit.utility:
        return section("utility", "What stays useful", tag("p", "No utility was measured."))
    rows = [_utility_row(each, i) for i, each in enumerate(audit.utility)]
    caption = "Utility on clean and on protected vectors; kept is protected relative to clean."
    return section(
        "utility",
        "What stays useful",
        table(caption, ("Measure", "Clean", "Protected", "Kept"), "utility", rows),
    )


def _listed(heading: str, sentences: Sequence[str], empty: str) -> Safe:
    items = [tag("li", each) for each in sentences]
    held = tag("ul", *items) if items else tag("p", empty, class_="meta")
    return tag("div", tag("h3", heading), held)


def guarantee(audit: Audit) -> Safe:
    """Return the guarantee in words: promised, not promised, conditional on."""
    given = audit.guarantee
    worst, hidden = given.epsilon_euclidean_worst, given.hidden_directions
    facts = [
        ("Kind", given.kind),
        ("ε", None if given.epsilon is None else f.scale(given.epsilon)),
        ("Unit", given.unit),
        ("Metric", given.metric),
        ("Neighbours", given.neighbours),
        ("ε in the worst Euclidean direction", None if worst is None else f.scale(worst)),
        ("Directions hidden", None if hidden is None else f.count(hidden)),
    ]
    return section(
        "guarantee",
        "What is guaranteed",
        tag("p", given.statement, class_="lead"),
        facts_list(facts),
        tag(
            "div",
            _listed("Promised", given.promised, "Nothing."),
            _listed("Not promised", given.not_promised, "The record lists nothing."),
            _listed("Conditional on", given.conditional_on, "The record lists nothing."),
            class_="columns",
        ),
    )


def limits(audit: Audit) -> Safe:
    """Return what this audit did not test."""
    listed = [tag("li", each) for each in audit.limits]
    return section(
        "limits",
        "Limits of this audit",
        tag("ul", *listed) if listed else tag("p", "The record lists no limits."),
    )
