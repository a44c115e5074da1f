"""WikiText-2: wiki.train.tokens (or .raw) and on, one paragraph a line, headings between ``=``.

Both forms are tokenised: words and marks apart by spaces, ``@-@`` for a hyphen inside a word. The
texts that come out are joined again by rule; ``<unk>`` stays where a rare word was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from research.datasets.columns import as_splits, read_columns
from research.datasets.kinds import TextSet
from research.datasets.lines import existing, numbered_lines

__all__ = ["detokenised", "read_wikitext", "read_wikitext_table"]

_HEADING = re.compile(r"=(?: =)* .+ =(?: =)*")
_ARTICLE = re.compile(r"= [^=].* =")
_QUOTED = re.compile(r'" ([^"]*?) "')
_RULES = (
    (re.compile(r" @([-,.])@ "), r"\1"),
    (re.compile(r" ([,.;:!?%)\]])"), r"\1"),
    (re.compile(r"([(\[$£€#]) "), r"\1"),
    (re.compile(r" ('(?:s|t|re|ve|ll|d|m)\b|n't\b)(?!\w)"), r"\1"),
)


def read_wikitext(name: str, folder: Path) -> TextSet:
    """Return the paragraphs of ``folder`` without headings; an article is a group."""
    lines: list[tuple[str, str]] = []
    for split, word in (("train", "train"), ("dev", "valid"), ("test", "test")):
        path = existing(folder, f"wiki.{word}.tokens", f"wiki.{word}.raw", f"{word}.txt")
        if path is not None:
            lines += [(split, line.strip()) for _, line in numbered_lines(path)]
    return _paragraphs(name, [(split, line, detokenised(line)) for split, line in lines])


def read_wikitext_table(name: str, folder: Path, *, file: str) -> TextSet:
    """Return the same from a table of lines: split, text (as in the source), text_detok."""
    path = folder / file
    rows = read_columns(path, "text", ("split", "text_detok"))
    splits = as_splits(rows["split"], path.name)
    return _paragraphs(name, zip(splits, rows["text"], rows["text_detok"], strict=True))


def detokenised(text: str) -> str:
    """Return ``text`` with marks joined to their words."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return _QUOTED.sub(r'"\1"', text)


def _paragraphs(name: str, lines: Iterable[tuple[str, str, str]]) -> TextSet:
    texts, splits, groups = [], [], []
    article = 0
    for split, line, text in lines:
        article += _ARTICLE.fullmatch(line) is not None
        if line and _HEADING.fullmatch(line) is None:
            texts.append(text)
            splits.append(split)
            groups.append(article)
    return TextSet(name, tuple(texts), np.array(groups, dtype=np.int64), tuple(splits))
