"""GitHub-flavoured Markdown as strings, in which no text of the record can become markup.

A name goes into a code span, where nothing is interpreted. Other text is escaped character by
character; a word joiner (U+2060) breaks what GitHub links without any markup: addresses, mentions and
numbers of issues.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from vecveil.report.markup import clean_text, in_code

__all__ = ["bullets", "code", "fenced", "heading", "part", "prose", "table", "text"]

JOINER = "\u2060"
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~&!$])")
_LINKED = re.compile(r"(?i)(:(?=//)|\bwww(?=\.)|\b(?:mailto|xmpp)(?=:)|@|#(?=\d)|\bGH(?=-\d))")
_START = re.compile(r"^(\d{1,9})([.)])(?=\s|$)|^([-+=#])")


def _one_line(words: str) -> str:
    return " ".join(clean_text(words).split())


def text(words: str) -> str:
    """Return ``words`` on one line, escaped."""
    line = _SPECIAL.sub(r"\\\1", _one_line(words))
    line = _LINKED.sub(rf"\1{JOINER}", line)
    return _START.sub(
        lambda found: f"\\{found[3]}" if found[3] else f"{found[1]}\\{found[2]}", line
    )


def part(words: str) -> str:
    """Return a part of a sentence, escaped, with the spaces at its ends."""
    start = " " * words[:1].isspace()
    end = " " * (len(words) > 1 and words[-1].isspace())
    return f"{start}{text(words)}{end}"


def prose(words: str) -> str:
    """Return a sentence, escaped, in which `names between backticks` are code spans."""
    return "".join(code(each) if named else part(each) for each, named in in_code(words)).strip()


def code(words: str) -> str:
    """Return ``words`` as a code span that nothing inside can end; usable in a table cell."""
    line = _one_line(words)
    runs = [len(run) for run in re.findall("`+", line)]
    fence = "`" * (max(runs, default=0) + 1)
    pad = " " if not line or line[0] in "` " or line[-1] in "` " else ""
    # In a table cell a bar ends the cell even inside a code span, unless a backslash is before it. A
    # bar after a backslash would still end it: such names are shown with the bar's full-width form.
    line = line.replace("\\|", "\\\uff5c").replace("|", "\\|")
    return f"{fence}{pad}{line}{pad}{fence}"


def fenced(words: str) -> str:
    """Return ``words`` as a fenced block that no line inside can end."""
    lines = clean_text(words).replace("\r", "\n")
    longest = max((len(run) for run in re.findall("`+", lines)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{lines}\n{fence}"


def heading(level: int, *parts: str) -> str:
    """Return a heading; its parts are Markdown already."""
    return f"{'#' * level} {''.join(parts)}"


def bullets(items: Iterable[str]) -> str:
    """Return a list; its items are Markdown already."""
    return "\n".join(f"- {item}" for item in items)


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[int] = (0,)
) -> str:
    """Return a table whose cells are Markdown already; ``words`` are the columns without figures."""
    marks = ["---" if i in words else "---:" for i in range(len(heads))]
    lines = [heads, marks, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
