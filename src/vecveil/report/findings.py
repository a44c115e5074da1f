"""The sections on warnings, frameworks, reconstructed texts and what was not run."""

from __future__ import annotations

from vecveil.report.markup import Safe, prose, tag
from vecveil.report.parts import section, table
from vecveil.report.record import Audit, Framework, Reconstruction
from vecveil.report.wording import FAMILY_WORDS, wording

__all__ = ["HOLDS_TEXTS", "frameworks", "lint", "reconstructions", "skipped"]

HOLDS_TEXTS = (
    "This page now contains texts: originals of the audit and what attackers wrote. Keep it where "
    "the texts may be kept."
)
MAPPED = (
    "Which items of the published frameworks these figures bear on. An item is not met or failed "
    "by them: they say what attackers found."
)


def lint(audit: Audit) -> Safe | None:
    """Return the warnings about how the store is kept, or None if there are none."""
    if not audit.lint:
        return None
    found = [
        tag("li", prose(each.message), tag("small", tag("code", each.code))) for each in audit.lint
    ]
    number = len(found)
    return tag(
        "section",
        tag("h2", "Warning" if number == 1 else f"{number} warnings", id="lint"),
        tag("ul", *found),
        aria_labelledby="lint",
        class_="lint",
    )


def _framework_row(entry: Framework) -> Safe:
    by = ", ".join(entry.attacks)
    return tag(
        "tr",
        tag(
            "th", entry.item, tag("small", entry.title), tag("small", entry.framework), scope="row"
        ),
        tag("td", entry.finding, tag("small", f"Attacks: {by}") if by else None),
    )


def frameworks(audit: Audit) -> Safe | None:
    """Return what the findings mean in the words of published frameworks."""
    if not audit.frameworks:
        return None
    rows = [_framework_row(entry) for entry in audit.frameworks]
    held = table("Findings by framework.", ("Item", "Finding"), "frameworks", rows, words=(0, 1))
    return section("frameworks", "Frameworks", tag("p", MAPPED), held)


def _text(name: str, text: str | None, kind: str) -> Safe | None:
    if text is None:
        return None
    return tag("div", tag("dt", name), tag("dd", tag("bdi", text)), class_=kind)


def _pair(entry: Reconstruction, side: str) -> Safe:
    return tag(
        "dl",
        _text("Original", entry.original, "original"),
        _text("Written from the clean vector", entry.clean, "clean"),
        _text(f"Written from the {side} vector", entry.protected, "protected"),
        class_="pairs",
    )


def reconstructions(audit: Audit) -> Safe | None:
    """Return originals beside what attackers wrote, only where the record holds them."""
    if not audit.reconstructions:
        return None
    by_attack: dict[str, list[Safe]] = {}
    for entry in audit.reconstructions:
        by_attack.setdefault(entry.attack, []).append(_pair(entry, wording(audit).side))
    parts = [tag("div", tag("h3", name), *pairs) for name, pairs in by_attack.items()]
    warning = tag("p", HOLDS_TEXTS, class_="warning")
    return section("reconstructions", "Reconstructed texts", warning, *parts)


def skipped(audit: Audit) -> Safe | None:
    """Return the attacks that were not run, each with its reason."""
    if not audit.skipped:
        return None
    rows = [
        tag(
            "tr",
            tag("th", each.attack, tag("small", FAMILY_WORDS[each.family][0]), scope="row"),
            tag("td", prose(each.reason)),
        )
        for each in audit.skipped
    ]
    held = table("Attacks that were not run.", ("Attack", "Reason"), "skipped", rows, words=(0, 1))
    return section("skipped", "What was not run", held)
