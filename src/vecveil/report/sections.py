"""The sections on the verdict, the utility, the guarantee and the limits."""

from __future__ import annotations

from collections.abc import Sequence

from vecveil.report import figures as f
from vecveil.report.charts import kept_bar
from vecveil.report.families import FamilyVerdict, other_families
from vecveil.report.figures import NBSP
from vecveil.report.markup import Safe, prose, tag
from vecveil.report.parts import bounds, cell, facts_list, section, side_cells, side_heads, table
from vecveil.report.record import Audit, Guarantee, Utility
from vecveil.report.verdict import Strong, Whole, caveats, sentence, utility_range
from vecveil.report.wording import wording

__all__ = [
    "SIDES",
    "guarantee",
    "guarantee_facts",
    "key_figures",
    "limits",
    "utility",
    "utility_caption",
    "verdict",
]

SIDES = {
    "both": "both sides protected",
    "documents": "documents protected, queries through the map",
}


def key_figures(audit: Audit) -> list[tuple[str, str, str]]:
    """Return the figures of the verdict: name, figure, what stands below it."""
    figure, kept = audit.worst.figure, utility_range(audit)
    clean, audited = bounds(figure)
    over = f.percent(figure.over_chance)
    before = figure.clean_over_chance
    found = [
        (f"Recovered, {wording(audit).side}", f.percent(figure.value), audited),
        ("Chance", f.percent(figure.chance), "without any vector"),
        ("Over chance", over, "no clean side" if before is None else f"clean {f.percent(before)}"),
    ]
    if figure.clean is not None:
        found.insert(0, ("Recovered, clean", f.percent(figure.clean), clean))
    if kept is not None or not audit.is_store:
        found.append(("Utility kept", _kept_words(kept), _measures(audit)))
    if audit.guarantee is not None:
        epsilon = audit.guarantee.epsilon
        below = "no ε" if epsilon is None else f"ε = {f.scale(epsilon)}"
        found.append(("Guarantee", audit.guarantee.kind, below))
    return found


def _kept_words(kept: tuple[float, float] | None) -> str:
    if kept is None:
        return "not measured"
    return f.percent(kept[0]) if kept[0] == kept[1] else f.interval(*kept)


def _measures(audit: Audit) -> str:
    return f"{len(audit.utility)} measure{'s' * (len(audit.utility) != 1)}"


def _part(part: str) -> str:
    if isinstance(part, Strong):
        return tag("strong", part)
    return tag("span", part, class_="whole") if isinstance(part, Whole) else part


def _family_row(each: FamilyVerdict, clean: bool) -> Safe:
    figure = each.figure
    who = tag(
        "th",
        each.title,
        tag("small", f"{figure.metric} · {each.attack.name}"),
        tag(
            "small",
            f"{each.words.capitalize()}.",
            *(f" {note}" for note in each.notes),
            class_="words",
        ),
        scope="row",
    )
    return tag(
        "tr",
        who,
        *side_cells(figure, clean),
        cell(f.percent(figure.over_chance)),
    )


def _families(audit: Audit) -> Safe | None:
    rows = [_family_row(each, audit.has_clean) for each in other_families(audit)]
    if not rows:
        return None
    heads = [*side_heads(audit, "Attack"), "Over chance"]
    caption = (
        f"The strongest attack of each other kind, in its own metric, with 95{NBSP}% intervals."
    )
    return table(caption, heads, "families", rows)


def verdict(audit: Audit) -> Safe:
    """Return the sentence, the key figures beside one another, the caveats, the other families."""
    said = [_part(part) for part in sentence(audit)]
    tiles = [
        tag("div", tag("dt", name), tag("dd", tag("b", value), tag("small", below)))
        for name, value, below in key_figures(audit)
    ]
    return section(
        "verdict",
        "Verdict",
        tag("p", *said, class_="verdict"),
        tag("dl", *tiles, class_=f"tiles of{len(tiles)}"),
        tag("ul", *(tag("li", prose(note)) for note in caveats(audit)), class_="notes"),
        _families(audit),
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


def utility_caption(audit: Audit) -> str:
    """Return what the table of utility shows."""
    said = wording(audit)
    return f"Utility on clean and on {said.vectors}; kept is {said.side} relative to clean."


def utility(audit: Audit) -> Safe | None:
    """Return what the vectors are still good for, one row a measure."""
    if not audit.utility and audit.is_store:
        return None
    if not audit.utility:
        return section("utility", "What stays useful", tag("p", "No utility was measured."))
    rows = [_utility_row(each, i) for i, each in enumerate(audit.utility)]
    side, caption = wording(audit).side.capitalize(), utility_caption(audit)
    return section(
        "utility",
        "What stays useful",
        table(caption, ("Measure", "Clean", side, "Kept"), "utility", rows),
    )


def _listed(heading: str, sentences: Sequence[str], empty: str) -> Safe:
    items = [tag("li", prose(each)) for each in sentences]
    held = tag("ul", *items) if items else tag("p", empty, class_="meta")
    return tag("div", tag("h3", heading), held)


def guarantee_facts(given: Guarantee) -> list[tuple[str, str | None]]:
    """Return the guarantee's parameters: name and value."""
    worst, hidden = given.epsilon_euclidean_worst, given.hidden_directions
    return [
        ("Kind", given.kind),
        ("ε", None if given.epsilon is None else f.scale(given.epsilon)),
        ("Unit", given.unit),
        ("Metric", given.metric),
        ("Neighbours", given.neighbours),
        ("ε in the worst Euclidean direction", None if worst is None else f.scale(worst)),
        ("Directions hidden", None if hidden is None else f.count(hidden)),
    ]


def guarantee(audit: Audit) -> Safe | None:
    """Return the guarantee in words: promised, not promised, conditional on; None for a store."""
    given = audit.guarantee
    if given is None:
        return None
    return section(
        "guarantee",
        "What is guaranteed",
        tag("p", prose(given.statement), class_="lead"),
        facts_list(guarantee_facts(given)),
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
    listed = [tag("li", prose(each)) for each in audit.limits]
    return section(
        "limits",
        "Limits of this audit",
        tag("ul", *listed) if listed else tag("p", "The record lists no limits."),
    )
