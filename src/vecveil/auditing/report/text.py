"""Format numbers and escape texts for HTML, Markdown, CSV and terminals.

No text of a record can become markup, a command, a terminal's escape or a spreadsheet formula.
"""

from __future__ import annotations

import csv
import io
import json
import re
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from vecveil.auditing.records.verdict import MISSING as MISSING
from vecveil.auditing.records.verdict import NBSP as NBSP
from vecveil.auditing.records.verdict import percent as percent

# Control characters, overrides of the writing direction and lone surrogates: they break a file or a terminal line, or
# make it read as something else.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_IN_BACKTICKS = re.compile("`([^`\\n]+)`")
_FORMULA = ("=", "+", "-", "@")  # first characters by which spreadsheets know a formula (CSV injection)

WIDTH = 80  # columns of a terminal
JOINER = "\u2060"  # breaks what GitHub links without any markup: addresses, mentions, numbers of issues
# Besides CommonMark: `~` strikes through and `$` begins a formula on GitHub, `|` ends a table cell.
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|~&!$])")
_LINKED = re.compile(r"(?i)(:(?=//)|\bwww(?=\.)|\b(?:mailto|xmpp)(?=:)|@|#(?=\d)|\bGH(?=-\d))")
# Marks that mean a list, a heading or an underline at the start of a line only.
_LINE_START = re.compile(r"^(\d{1,9})([.)])(?=\s|$)|^([-+=#])")


def interval(low: float | None, high: float | None) -> str:
    """Return an interval of shares, such as ``21.4–24.5 %``."""
    if low is None or high is None:
        return MISSING
    if max(abs(low), abs(high)) > 1 + 1e-9:
        return f"{low:.4g} to {high:.4g}"
    if low < 0:
        return f"{percent(low)} to {percent(high)}"
    return f"{100 * low:.1f}–{100 * high:.1f}{NBSP}%"


def decimal(value: float | None) -> str:
    """Return a score, such as a correlation or nDCG, with three decimals."""
    if value is None:
        return MISSING
    # Three decimals suit correlations; of a perplexity or a count they would be noise.
    return _minus(f"{value:.3f}" if abs(value) < 100 else f"{value:.6g}")


def plain_interval(low: float | None, high: float | None) -> str:
    """Return an interval of scores, such as ``0.901 to 0.913``."""
    return MISSING if low is None or high is None else f"{decimal(low)} to {decimal(high)}"


def rounded(value: float | None) -> str:
    """Return a measure with four significant digits."""
    # + 0.0 turns −0.0 into 0.0, which has no sign.
    return MISSING if value is None else _minus(f"{value + 0.0:.4g}")


def count(number: int | None) -> str:
    """Return a whole number with a comma between thousands."""
    return MISSING if number is None else f"{number:,}"


def scale(value: float) -> str:
    """Return a number with up to four significant digits, such as a privacy parameter or a tick."""
    return _minus(f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}")


def duration(seconds: float) -> str:
    """Return a time span in the unit that fits it."""
    if seconds < 10:
        return f"{seconds:.1f}{NBSP}s"
    if seconds < 120:
        return f"{seconds:.0f}{NBSP}s"
    if seconds < 7200:
        return f"{seconds / 60:.0f}{NBSP}min"
    return f"{seconds / 3600:.1f}{NBSP}h"


def moment(text: str) -> str:
    """Return an ISO time to the minute, such as ``2026-01-15 09:30 UTC``; other text unchanged."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    offset = time.strftime("%z")
    zone = f" UTC{offset[:3]}:{offset[3:5]}" if offset else ""
    return f"{time:%Y-%m-%d %H:%M}{' UTC' if offset in ('+0000', '-0000') else zone}"


def parameter(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(parameter(each) for each in value)
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _minus(text: str) -> str:
    return text.replace("-", "\u2212")


def clean_text(text: str) -> str:
    """Return ``text`` with unprintable characters replaced by U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", text)


def prose(words: str, code: Callable[[str], str], plain: Callable[[str], str]) -> str:
    """Return a sentence with `names between backticks` as code, both escaped for the format."""
    # Split by a pattern with one group: every second part is what stood between backticks.
    parts = enumerate(_IN_BACKTICKS.split(words))
    return "".join(code(part) if i % 2 else plain(part) for i, part in parts if part)


def _one_line(words: str) -> str:
    return " ".join(clean_text(words).split())


def markdown(words: str) -> str:
    """Return ``words`` on one escaped line of GitHub-flavoured Markdown; blanks at an end become one."""
    line = _LINKED.sub(rf"\1{JOINER}", _MARKDOWN.sub(r"\\\1", _one_line(words)))
    line = _LINE_START.sub(lambda m: f"\\{m[3]}" if m[3] else f"{m[1]}\\{m[2]}", line)
    start = " " * words[:1].isspace()
    return f"{start}{line}{' ' * (len(words) > 1 and words[-1].isspace())}"


def markdown_code(words: str) -> str:
    """Return ``words`` as a code span that no content can end; usable in a table cell."""
    line = _one_line(words)
    # CommonMark: a span ends at a run of as many backticks as began it, so use one more than any run inside.
    fence = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    # One blank is stripped at each end; without it a backtick at the edge would join the fence.
    pad = " " if not line or line[0] in "` " or line[-1] in "` " else ""
    # In a table cell a bar ends the cell even inside a code span, unless a backslash is before it. A bar that
    # follows a backslash cannot be escaped so: its full-width form replaces it.
    line = line.replace("\\|", "\\\uff5c").replace("|", "\\|")
    return f"{fence}{pad}{line}{pad}{fence}"


def markdown_block(words: str) -> str:
    """Return ``words`` as a fenced block that no content can end."""
    lines = clean_text(words).replace("\r", "\n")
    fence = "`" * max(3, max(map(len, re.findall("`+", lines)), default=0) + 1)
    return f"{fence}text\n{lines}\n{fence}"


def spreadsheet(value: Any) -> str:
    """Return a cell of a CSV table; a text that could be a formula gets a leading apostrophe."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        # The shortest form that reads back as the same float.
        return repr(value)
    text = clean_text(value)
    # After blanks too, which some spreadsheets drop; a leading tab or line break is another known way in.
    starts_formula = text.lstrip().startswith(_FORMULA) or text[:1] in ("\t", "\r", "\n")
    return f"'{text}" if starts_formula else text


def csv_table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(heads)
    writer.writerows([spreadsheet(cell) for cell in row] for row in rows)
    return file.getvalue()


def _columns(character: str) -> int:
    # Terminals draw combining marks over the letter before, and East Asian wide characters over two columns.
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fit(text: str, width: int = WIDTH) -> str:
    """Return ``text`` on one line, padded or cut to ``width`` terminal columns."""
    line = _one_line(text)
    used = sum(map(_columns, line))
    if used > width:
        while used > width - 3:
            used -= _columns(line[-1])
            line = line[:-1]
        line, used = f"{line}...", used + 3
    return line + " " * (width - used)


def wrap(text: str, indent: str = "  ", first: str | None = None) -> str:
    """Return ``text`` as lines of at most 80 terminal columns; the first begins with ``first``."""
    # A no-break space survives until after wrapping, so that a figure and its percent sign stay together.
    text = re.sub(r"[^\S\xa0]+", " ", clean_text(text))
    # textwrap counts characters: half the width is enough even if every one takes two columns.
    width = WIDTH // 2 if any(_columns(character) == 2 for character in text) else WIDTH
    lead = indent if first is None else first
    return textwrap.fill(text, width, initial_indent=lead, subsequent_indent=indent).replace(NBSP, " ")


def terminal_table(rows: Sequence[Sequence[str]], left: Sequence[int] = ()) -> list[str]:
    """Return rows as lines with aligned columns, numbers to the right; ``left`` are the columns of words."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{cell:{'<' if i in left else '>'}{widths[i]}}" for i, cell in enumerate(row)).rstrip()
        for row in rows
    ]


def ascii_percent(share: float | None) -> str:
    """Return a share in per cent, in characters that every terminal has."""
    return percent(share).replace(NBSP, " ").replace("\u2212", "-").replace(MISSING, "-")


def bounds(low: float | None, high: float | None) -> str:
    """Return an interval of shares, in characters that every terminal has."""
    return "" if low is None or high is None else f"({100 * low:.1f} to {100 * high:.1f})"
