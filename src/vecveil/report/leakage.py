"""The sections on what leaks: the attacks with their bars, the terms, the other metrics."""

from __future__ import annotations

from vecveil.report import figures as f
from vecveil.report.charts import attack_chart, axis, term_chart
from vecveil.report.figures import NBSP
from vecveil.report.markup import Safe, tag
from vecveil.report.parts import bounds, cell, section, table
from vecveil.report.record import Attack, Audit, Figure, Term
from vecveil.report.verdict import status

__all__ = ["attacks", "secondary", "terms"]

FAMILIES = {
    "token-inference": ("Token inference", "Which concept words are in it?"),
    "probe": ("Probes", "Is the concept in it?"),
    "candidates": ("Candidate matching", "Which known text is it?"),
    "reconstruction": ("Reconstruction", "What was the clean vector?"),
    "alignment": ("Alignment", "Does it map to another encoder?"),
}
EXPLAINED = (
    "R-precision: of the k concept tokens that a text holds, the share among the attack’s k best "
    "guesses. Each attack ran on clean and on protected vectors with the same split."
)
TERMS_SHOWN = 20


def _figure_lines(figure: Figure) -> list[Safe]:
    clean, protected = bounds(figure)
    shown = (
        ("clean", figure.clean, clean),
        ("protected", figure.value, protected),
        ("chance", figure.chance, None),
    )
    lines = []
    for name, share, interval in shown:
        below = None if interval is None else tag("small", interval)
        lines.append(tag("p", tag("span", name), tag("b", f.percent(share)), below, class_=name))
    return lines


def _attack_row(attack: Attack, index: int, is_worst: bool) -> Safe:
    figure = attack.figure
    mark = [" ", tag("span", "worst", class_="mark")] if is_worst else []
    measured = tag("p", f"{figure.metric} · n{NBSP}={NBSP}{f.count(attack.n)}", class_="meta")
    chart = attack_chart(attack, f"attack-{index}")
    return tag(
        "div",
        tag("div", tag("h4", attack.name, *mark), measured, class_="who"),
        tag("div", chart, tag("p", status(figure), class_="meta"), class_="bars"),
        tag("div", *_figure_lines(figure), class_="figures"),
        class_="row",
    )


def _legend() -> Safe:
    kinds = (
        ("clean", "clean vectors"),
        ("protected", "protected vectors"),
        ("interval", f"95{NBSP}% interval"),
        ("chance", "chance"),
    )
    keys = [
        tag("span", tag("i", class_=kind, aria_hidden="true"), words, class_="key")
        for kind, words in kinds
    ]
    return tag("p", *keys, class_="legend")


def attacks(audit: Audit) -> Safe:
    """Return the bars of every attack by family, the highest on protected vectors first."""
    families = list(dict.fromkeys([*FAMILIES, *(attack.family for attack in audit.attacks)]))
    groups: list[Safe] = []
    for family in families:
        members = [(i, a) for i, a in enumerate(audit.attacks) if a.family == family]
        if not members:
            continue
        members.sort(key=lambda pair: (pair[1] is not audit.worst, -(pair[1].figure.value or 0)))
        title, question = FAMILIES.get(family, (family, ""))
        head = tag(
            "div",
            tag("div", tag("h3", title), tag("p", question, class_="meta"), class_="who"),
            axis(f"axis-{len(groups)}"),
            class_="row head",
        )
        rows = [_attack_row(a, i, a is audit.worst) for i, a in members]
        groups.append(tag("div", head, *rows, class_="family"))
    return section(
        "leakage",
        "What leaks, before and after",
        _legend(),
        *groups,
        tag("p", EXPLAINED, class_="meta"),
    )


def _term_row(term: Term, index: int) -> Safe:
    label = f"term {index + 1}" if term.term is None else term.term
    shares = [cell(f.percent(share)) for share in (term.clean, term.value, term.chance)]
    return tag(
        "tr",
        tag("th", tag("bdi", label), scope="row"),
        cell(f.count(term.count)),
        *shares,
        tag("td", term_chart(term, label, f"term-{index}"), class_="picture"),
    )


def terms(audit: Audit) -> Safe:
    """Return the leakage of every term; a term is named only where the record names it."""
    heading = "What leaks, term by term"
    if not audit.terms:
        return section("terms", heading, tag("p", "The record holds no figures per term."))
    heads = ("Term", "Count", "Clean", "Protected", "Chance", "0 to 100 %")
    rows = [_term_row(term, i) for i, term in enumerate(audit.terms)]
    named = any(term.term is not None for term in audit.terms)
    note = (
        "This page names the concept’s terms: keep it where the texts may be kept."
        if named
        else "The record does not hold the terms, so they are numbered, the most frequent first."
    )
    first = rows[:TERMS_SHOWN]
    what = "all" if len(first) == len(rows) else f"the {len(first)} most frequent of"
    caption = (
        f"Share of a term’s test occurrences that {audit.worst.name} ranked among the k best "
        f"of the text, {what} {len(rows)} terms."
    )
    rest = None
    if len(rows) > len(first):
        more = table("The other terms.", heads, "terms", rows[TERMS_SHOWN:])
        rest = tag("details", tag("summary", f"The other {len(rows) - len(first)} terms"), more)
    return section("terms", heading, tag("p", note), table(caption, heads, "terms", first), rest)


def secondary(audit: Audit) -> Safe | None:
    """Return every other metric of every attack, folded away."""
    bodies = [_also_rows(attack) for attack in audit.attacks if attack.also]
    if not bodies:
        return None
    heads = ("Metric", "Clean", "Protected", "Chance")
    caption = f"Other metrics of each attack, with 95{NBSP}% intervals."
    held = table(caption, heads, "also", *bodies)
    return section("secondary", "Other metrics", tag("details", tag("summary", "Show all"), held))


def _also_rows(attack: Attack) -> list[Safe]:
    head = tag("th", attack.name, scope="rowgroup", colspan=4)
    rows = [tag("tr", head, class_="group")]
    for each in attack.also:
        clean, protected = bounds(each)
        shares = [
            cell(f.percent(each.clean), clean),
            cell(f.percent(each.value), protected),
            cell(f.percent(each.chance)),
        ]
        rows.append(tag("tr", tag("th", each.metric, scope="row"), *shares))
    return rows
