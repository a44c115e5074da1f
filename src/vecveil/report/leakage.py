"""The sections on what leaks: the attacks with their bars, family by family, and the other metrics."""

from __future__ import annotations

from vecveil.report import figures as f
from vecveil.report.charts import attack_chart, axis
from vecveil.report.families import FamilyVerdict, other_families
from vecveil.report.figures import NBSP
from vecveil.report.markup import Safe, tag
from vecveil.report.parts import bounds, cell, section, side_cells, side_heads, table
from vecveil.report.record import Attack, Audit, Figure
from vecveil.report.verdict import status
from vecveil.report.wording import FAMILY_WORDS, Wording, adaptivity, judged_on, wording

__all__ = ["attacks", "explained", "price", "secondary"]

EXPLAINED = (
    "R-precision: of the k concept tokens that a text holds, the share among the attack’s k best "
    "guesses. {sides} Over chance: (figure − chance) / (1 − chance), so 0 is guessing and "
    f"100{NBSP}% is certainty."
)
SIDES = "Each attack ran on clean and on protected vectors with the same split."


def _figure_lines(figure: Figure, said: Wording) -> list[Safe]:
    clean, audited = bounds(figure)
    shown = [
        ("clean", "clean", figure.clean, clean),
        ("protected", said.side, figure.value, audited),
        ("chance", "chance", figure.chance, None),
    ]
    lines = []
    for kind, name, share, interval in shown:
        if kind == "clean" and share is None:
            continue
        below = None if interval is None else tag("small", interval)
        lines.append(tag("p", tag("span", name), tag("b", f.percent(share)), below, class_=kind))
    return lines


def price(attack: Attack) -> str:
    """Return how the attack learns, how long it took and what it asks of an attacker."""
    parts = [adaptivity(attack), f.duration(attack.seconds)]
    return " · ".join([*parts, attack.cost] if attack.cost else parts)


def _attack_row(attack: Attack, index: int, is_worst: bool, said: Wording) -> Safe:
    figure = attack.figure
    mark = [" ", tag("span", "worst", class_="mark")] if is_worst else []
    measured = tag("p", f"{figure.metric} · {judged_on(attack)}", class_="meta")
    over = status(figure)
    if figure.over_chance is not None:
        over = f"{over} · over chance {f.percent(figure.over_chance)}".removeprefix(" · ")
    chart = attack_chart(attack, f"attack-{index}", said)
    return tag(
        "div",
        tag("div", tag("h4", attack.name, *mark), measured, class_="who"),
        tag("div", chart, tag("p", over, class_="meta"), class_="bars"),
        tag("div", *_figure_lines(figure, said), class_="figures"),
        tag("p", price(attack), class_="meta price"),
        class_="row",
    )


def _legend(audit: Audit) -> Safe:
    kinds = [
        ("clean", "clean vectors"),
        ("protected", wording(audit).vectors),
        ("interval", f"95{NBSP}% interval"),
        ("chance", "chance"),
    ]
    if not audit.has_clean:
        del kinds[0]
    keys = [
        tag("span", tag("i", class_=kind, aria_hidden="true"), words, class_="key")
        for kind, words in kinds
    ]
    return tag("p", *keys, class_="legend")


def _series_table(verdict: FamilyVerdict) -> Safe | None:
    if not verdict.series:
        return None
    unit = verdict.series[0].unit
    heads = (unit.capitalize(), *(line.label for line in verdict.series), "Chance")
    rows = []
    for count, held, chance in verdict.lines():
        cells = [
            cell(f.MISSING) if each is None else cell(f.percent(each.value), bounds(each)[1])
            for each in held
        ]
        row = tag("th", count, scope="row")
        rows.append(tag("tr", row, *cells, cell(f.percent(chance))))
    caption = f"{verdict.title}: leakage against the number of {unit}, with 95{NBSP}% intervals."
    return table(caption, heads, "series", rows)


def _metrics_table(audit: Audit, verdict: FamilyVerdict) -> Safe | None:
    if len(verdict.rows) < 2:
        return None
    several = len({attack.name for attack, _ in verdict.rows}) > 1
    rows = []
    for attack, figure in verdict.rows:
        below = tag("small", attack.name) if several else None
        rows.append(
            tag(
                "tr",
                tag("th", figure.metric, below, scope="row"),
                *side_cells(figure, audit.has_clean),
                cell(f.percent(figure.over_chance)),
            )
        )
    of = "" if several else f" of {verdict.attack.name}"
    caption = f"{verdict.title}: the figures{of}, with 95{NBSP}% intervals."
    heads = [*side_heads(audit, "Metric"), "Over chance"]
    return table(caption, heads, "metrics", rows)


def _group(audit: Audit, family: str, number: int, verdict: FamilyVerdict | None) -> Safe:
    said, title, question = wording(audit), *FAMILY_WORDS[family]
    head = tag(
        "div",
        tag("div", tag("h3", title), tag("p", question, class_="meta"), class_="who"),
        axis(f"axis-{number}"),
        class_="row head",
    )
    members, strongest = audit.members(family), audit.families[family]
    rows = [
        _attack_row(a, audit.attacks.index(a), a is strongest and len(members) > 1, said)
        for a in members
    ]
    more = [] if verdict is None else [_series_table(verdict), _metrics_table(audit, verdict)]
    return tag("div", head, *rows, *more, class_="family")


def explained(audit: Audit) -> str:
    """Return what the figures of the section are."""
    return EXPLAINED.format(sides="" if audit.is_store else SIDES).replace("  ", " ")


def attacks(audit: Audit) -> Safe:
    """Return the bars of every attack by family, the strongest first, and each family's own figures."""
    verdicts = {verdict.family: verdict for verdict in other_families(audit)}
    groups = [
        _group(audit, family, number, verdicts.get(family))
        for number, family in enumerate(audit.families)
    ]
    return section(
        "leakage",
        "What leaks" if audit.is_store else "What leaks, before and after",
        _legend(audit),
        *groups,
        tag("p", explained(audit), class_="meta"),
    )


def secondary(audit: Audit) -> Safe | None:
    """Return every other metric of every attack, folded away."""
    bodies = [_also_rows(attack, audit.has_clean) for attack in audit.attacks if attack.also]
    if not bodies:
        return None
    heads = side_heads(audit, "Metric")
    caption = f"Other metrics of each attack, with 95{NBSP}% intervals."
    held = table(caption, heads, "also", *bodies)
    return section("secondary", "Other metrics", tag("details", tag("summary", "Show all"), held))


def _also_rows(attack: Attack, clean: bool) -> list[Safe]:
    head = tag("th", attack.name, scope="rowgroup", colspan=3 + clean)
    rows = [tag("tr", head, class_="group")]
    for each in attack.also:
        rows.append(tag("tr", tag("th", each.metric, scope="row"), *side_cells(each, clean)))
    return rows
