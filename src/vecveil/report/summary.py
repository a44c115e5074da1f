"""The audit as a few lines of plain text for a terminal, at most 80 columns wide."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Mapping
from typing import Any

from vecveil.report.families import FamilyVerdict, other_families
from vecveil.report.figures import NBSP, percent
from vecveil.report.markup import clean_text
from vecveil.report.record import Audit, parse
from vecveil.report.verdict import against_chance, caveats

__all__ = ["summary_table"]

WIDTH = 80
BAR = 28
PROMISES_SHOWN = 3
EXPECTED = "above chance; below clean"
LARGER = (
    "The quick tier runs small attackers: larger networks (up to 8 points more behind erasure; --tier full runs "
    "them), more texts and pretrained decoders find more."
)


def summary_table(record: Mapping[str, Any]) -> str:
    """Return warnings, leakage, chance, other families, utility and guarantee, for a terminal.

    Args:
        record: an audit record, schema ``vecveil.audit/2``.

    Raises:
        InvalidInputError: the schema is another one, or a key is missing or has a wrong value.
    """
    audit = parse(record, owner="summary_table")
    blocks = [
        _heading(audit),
        _lint(audit),
        _leakage(audit),
        _families(audit),
        _utility(audit),
        _guarantee(audit),
        _notes(audit),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fit(text: str, width: int) -> str:
    """Return ``text`` on one line, filled or cut to ``width`` terminal columns."""
    text = " ".join(clean_text(text).split())
    used, kept = 0, []
    total = sum(map(_columns, text))
    for character in text:
        if total > width and used + _columns(character) > width - 3:
            kept.append("...")
            used += 3
            break
        kept.append(character)
        used += _columns(character)
    return "".join(kept) + " " * (width - used)


def _wrapped(text: str, indent: str = "  ", first: str | None = None) -> list[str]:
    """Return ``text`` as lines; a figure and its percent sign stay on one line."""
    text = re.sub(r"[^\S\xa0]+", " ", clean_text(text))
    width = WIDTH // 2 if any(_columns(character) == 2 for character in text) else WIDTH
    lead = indent if first is None else first
    lines = textwrap.wrap(text, width, initial_indent=lead, subsequent_indent=indent)
    return [line.replace(NBSP, " ") for line in lines]


def _share(share: float | None) -> str:
    return percent(share).replace(NBSP, " ").replace("\u2212", "-").replace("–", "-")


def _heading(audit: Audit) -> list[str]:
    of = "a store" if audit.is_store else f"method {audit.method}"
    return [fit(f'Audit of the concept "{audit.concept}", {of}', WIDTH).rstrip()]


def _lint(audit: Audit) -> list[str]:
    lines = []
    for each in audit.lint:
        lines += _wrapped(each.message, indent="  ", first="WARNING: ")
    return lines


def _leakage(audit: Audit) -> list[str]:
    figure = audit.worst.figure
    tried = sum(attack.family == "token-inference" for attack in audit.attacks)
    which = f"the worst of {tried} attacks" if tried > 1 else "the one attack tried"
    audited = "stored vectors" if audit.is_store else "with protection"
    clean = "clean vectors" if audit.is_store else "without protection"
    rows = [
        (clean, figure.clean, figure.clean_low, figure.clean_high),
        (audited, figure.value, figure.low, figure.high),
        ("guessing (chance)", figure.chance, None, None),
    ]
    lines = ["How many of the concept's words an attacker reads from the vectors"]
    same = (
        "the same attack on the encoder's vectors"
        if audit.is_store
        else "the same attack on clean vectors"
    )
    bare = "" if figure.clean is None else f"; {clean}: {same}"
    lines += _wrapped(f"({which}: {audit.worst.name}{bare}; brackets: 95{NBSP}% interval)")
    for name, share, low, high in rows[figure.clean is None :]:
        bounds = "" if low is None or high is None else f"({100 * low:.1f} to {100 * high:.1f})"
        bar = "#" * round(BAR * min(max(share or 0.0, 0.0), 1.0))
        lines.append(f"  {name:<19}{_share(share):>7} {bounds:<15} {bar}".rstrip())
    if (place := against_chance(figure)) != "above chance":
        where = "From the stored vectors" if audit.is_store else "With protection"
        lines.append(f"  {where} the attack is {place}.")
    elif figure.over_chance is not None:
        before = figure.clean_over_chance
        beside = "" if before is None else f" (clean: {_share(before)})"
        lines.append(f"  From chance to certainty that is {_share(figure.over_chance)}{beside}.")
    return lines


def _families(audit: Audit) -> list[str]:
    lines = []
    for each in other_families(audit):
        lines += _family(each)
    if lines:
        head = f"{'Strongest attack of each other kind':<37}{'found':>8} {'':<15}{'chance':>9}{'clean':>9}"
        lines = [head, *lines]
    adaptive = sum(attack.adaptive for attack in audit.attacks)
    seconds = sum(attack.seconds for attack in audit.attacks)
    lines += _wrapped(
        f"{len(audit.attacks)} attacks, {seconds:.0f} s of computing; {adaptive} drew fresh releases to learn from "
        "(adaptive), the others had released pairs only. The report has what each cost."
    )
    if audit.skipped:
        number = len(audit.skipped)
        lines.append(f"  {number} attack{'s' * (number != 1)} not run; the report says why.")
    if audit.tier == "quick":
        lines += _wrapped(LARGER)
    return lines


def _family(each: FamilyVerdict) -> list[str]:
    figure = each.figure
    low, high = figure.low, figure.high
    bounds = "" if low is None or high is None else f"({100 * low:.1f} to {100 * high:.1f})"
    name = fit(f"{each.title}, {figure.metric}", 35)
    chance, clean = _share(figure.chance), _share(figure.clean)
    lines = [f"  {name}{_share(figure.value):>8} {bounds:<15}{chance:>9}{clean:>9}"]
    notes = each.notes if each.words == EXPECTED else (f"{each.words}.", *each.notes)
    for note in notes:
        lines += _wrapped(note, indent="    ", first="    ")
    return lines


def _utility(audit: Audit) -> list[str]:
    if not audit.utility:
        return [] if audit.is_store else ["Utility kept", "  not measured"]
    lines = ["Utility kept (100 % is as good as without protection)"]
    for each in audit.utility:
        side = "" if each.sides == "both" else ", documents only"
        lines.append(f"  {fit(f'{each.label}{side}', 48)} {_share(each.relative):>8}")
    return lines


def _guarantee(audit: Audit) -> list[str]:
    given = audit.guarantee
    if given is None:
        return []
    if given.kind == "formal":
        lead = "A formal guarantee" + (
            "" if given.epsilon is None else f", epsilon = {given.epsilon:.4g}"
        )
    else:
        lead = f"No formal guarantee ({given.kind})"
    lines = ["What is guaranteed", *_wrapped(f"{lead}: {given.statement}")]
    for item in given.not_promised[:PROMISES_SHOWN]:
        lines += _wrapped(item, indent="    ", first="  - not promised: ")
    rest = len(given.not_promised) - PROMISES_SHOWN
    if rest > 0:
        lines.append(f"  - and {rest} more in the report")
    return lines


def _notes(audit: Audit) -> list[str]:
    lines = ["Read this with the figures"]
    for note in caveats(audit):
        lines += _wrapped(note, indent="    ", first="  - ")
    return lines
