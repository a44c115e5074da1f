"""The audit as GitHub-flavoured Markdown: the page's content in the page's order, without drawings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vecveil.io import write_text
from vecveil.report import figures as f
from vecveil.report import findings
from vecveil.report.families import FamilyVerdict, other_families
from vecveil.report.markdown_leakage import (
    leakage,
    secondary,
    side_heads,
    sides,
    terms,
    with_bounds,
)
from vecveil.report.markdown_text import (
    bullets,
    code,
    fenced,
    heading,
    part,
    prose,
    table,
    text,
)
from vecveil.report.provenance import facts
from vecveil.report.record import Audit, parse, source
from vecveil.report.sections import (
    SIDES,
    guarantee_facts,
    key_figures,
    utility_caption,
)
from vecveil.report.verdict import Strong, caveats, sentence
from vecveil.report.wording import FAMILY_WORDS, adaptivity, judged_on, wording
from vecveil.report.wording import heading as page_heading

__all__ = ["render_audit_markdown", "write_audit_markdown"]


def render_audit_markdown(record: Mapping[str, Any]) -> str:
    """Return the audit record as GitHub-flavoured Markdown.

    Args:
        record: an audit record, schema ``vecveil.audit/2``. Terms and texts appear only where the
            record holds them; nothing in it can become a link, a mention or other markup.

    Raises:
        InvalidInputError: the schema is another one, or a key is missing or has a wrong value.
    """
    return _document(parse(record, owner="render_audit_markdown"))


def write_audit_markdown(
    record_or_path: Mapping[str, Any] | str | os.PathLike[str], target: str | os.PathLike[str]
) -> Path:
    """Write `render_audit_markdown` to ``target``, whole or not at all, and return its path.

    Raises:
        InvalidInputError: a record with another schema, or with a missing or wrong key.
        DataFileError: the same for a file, or a file that cannot be read or is not JSON.
    """
    write_text(target, _document(source(record_or_path, owner="write_audit_markdown")))
    return Path(target)


def _document(audit: Audit) -> str:
    blocks = [
        *_head(audit),
        *_lint(audit),
        *_verdict(audit),
        *leakage(audit),
        *_utility(audit),
        *_guarantee(audit),
        *terms(audit),
        *_reconstructions(audit),
        *_frameworks(audit),
        *_skipped(audit),
        *_computed(audit),
        *_limits(audit),
        *secondary(audit),
        text(f"Drawn from the audit record alone, by vecveil {audit.vecveil}."),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _head(audit: Audit) -> list[str]:
    encoder = None if audit.encoder is None else audit.encoder["name"]
    about = (
        "a store, without its protector" if audit.is_store else f"method {audit.method}",
        f"encoder {encoder}" if encoder else "vectors as given",
        f.moment(audit.created),
    )
    return [heading(1, text("".join(page_heading(audit)))), text(" · ".join(about))]


def _lint(audit: Audit) -> list[str]:
    if not audit.lint:
        return []
    title = "Warning" if len(audit.lint) == 1 else f"{len(audit.lint)} warnings"
    found = (f"**{prose(each.message)}** {code(each.code)}" for each in audit.lint)
    return [heading(2, title), bullets(found)]


def _verdict(audit: Audit) -> list[str]:
    parts = [f"**{text(p)}**" if isinstance(p, Strong) else part(p) for p in sentence(audit)]
    names, values, below = zip(*key_figures(audit), strict=True)
    tiles = table(
        [text(name) for name in names],
        [[f"**{text(value)}**" for value in values], [text(each) for each in below]],
        words=range(len(names)),
    )
    blocks = [heading(2, "Verdict"), "".join(parts), tiles]
    blocks.append(bullets(prose(note) for note in caveats(audit)))
    others = other_families(audit)
    if others:
        blocks.append("The strongest attack of each other kind, in its own metric:")
        heads = side_heads(audit, "Attack", "Metric")
        rows = [_family_row(audit, each) for each in others]
        blocks.append(table([*heads, "Verdict"], rows, words=(0, 1, len(heads))))
    return blocks


def _family_row(audit: Audit, each: FamilyVerdict) -> list[str]:
    who = f"{text(each.title)}: {code(each.attack.name)}"
    said = " ".join([f"{each.words.capitalize()}.", *each.notes])
    return [who, text(each.figure.metric), *sides(audit, each.figure), text(said)]


def _utility(audit: Audit) -> list[str]:
    title = heading(2, "What stays useful")
    if not audit.utility:
        return [] if audit.is_store else [title, "No utility was measured."]
    rows = [
        [
            text(f"{each.label}: {each.metric}, {SIDES[each.sides]}, n = {f.count(each.n)}"),
            text(f.decimal(each.clean)),
            with_bounds(f.decimal(each.value), f.plain_interval(each.low, each.high)),
            text(f.percent(each.relative)),
        ]
        for each in audit.utility
    ]
    heads = ("Measure", "Clean", wording(audit).side.capitalize(), "Kept")
    return [title, text(utility_caption(audit)), table(heads, rows)]


def _guarantee(audit: Audit) -> list[str]:
    given = audit.guarantee
    if given is None:
        return []
    rows = [
        [text(name), text(value)] for name, value in guarantee_facts(given) if value is not None
    ]
    blocks = [heading(2, "What is guaranteed"), prose(given.statement)]
    blocks.append(table(("", ""), rows, words=range(2)))
    for title, sentences, empty in (
        ("Promised", given.promised, "Nothing."),
        ("Not promised", given.not_promised, "The record lists nothing."),
        ("Conditional on", given.conditional_on, "The record lists nothing."),
    ):
        blocks += [heading(3, title), bullets(map(prose, sentences)) if sentences else empty]
    return blocks


def _reconstructions(audit: Audit) -> list[str]:
    if not audit.reconstructions:
        return []
    rows = [
        [
            code(each.attack),
            *(
                text(f.MISSING if t is None else t)
                for t in (each.original, each.clean, each.protected)
            ),
        ]
        for each in audit.reconstructions
    ]
    side = wording(audit).side
    heads = ("Attack", "Original", "From the clean vector", f"From the {side} vector")
    warning = f"**{text(findings.HOLDS_TEXTS)}**"
    return [heading(2, "Reconstructed texts"), warning, table(heads, rows, words=range(4))]


def _frameworks(audit: Audit) -> list[str]:
    if not audit.frameworks:
        return []
    rows = [
        [
            text(f"{each.framework}: {each.item} {each.title}"),
            text(each.finding),
            ", ".join(code(name) for name in each.attacks) or f.MISSING,
        ]
        for each in audit.frameworks
    ]
    held = table(("Item", "Finding", "Attacks"), rows, words=range(3))
    return [heading(2, "Frameworks"), text(findings.MAPPED), held]


def _skipped(audit: Audit) -> list[str]:
    if not audit.skipped:
        return []
    rows = [
        [code(each.attack), FAMILY_WORDS[each.family][0], prose(each.reason)]
        for each in audit.skipped
    ]
    return [
        heading(2, "What was not run"),
        table(("Attack", "Kind", "Reason"), rows, words=range(3)),
    ]


def _computed(audit: Audit) -> list[str]:
    rows = [[text(name), text(value)] for name, value in facts(audit) if value is not None]
    attacks = [
        [
            code(attack.name),
            text(attack.description),
            adaptivity(attack),
            judged_on(attack),
            text(f.duration(attack.seconds)),
            text(attack.cost or f.MISSING),
        ]
        for attack in audit.attacks
    ]
    heads = ("Attack", "What it does", "Learning", "Judged on", "Time", "Cost")
    command = "Command: not recorded" if audit.command is None else fenced(audit.command)
    title = heading(2, "How it was computed")
    return [
        title,
        table(("", ""), rows, words=range(2)),
        command,
        table(heads, attacks, words=(0, 1, 2, 3, 5)),
    ]


def _limits(audit: Audit) -> list[str]:
    listed = bullets(map(prose, audit.limits)) or "The record lists no limits."
    return [heading(2, "Limits of this audit"), listed]
