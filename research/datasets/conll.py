"""Entities in columns, as CoNLL has them: a token a line, its tag last, a blank line after a sentence.

Tags are IOB1 or IOB2 (B-PER, I-PER, O). Tokens are joined by one space.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from research.datasets.columns import field_error
from research.datasets.kinds import Span, TextSet, group_ids
from research.datasets.lines import numbered_lines

__all__ = ["read_conll"]

DOCUMENT = "-DOCSTART-"


def read_conll(
    name: str, folder: Path, *, files: Mapping[str, str], encoding: str = "utf-8"
) -> TextSet:
    """Return the sentences of files; the same sentence twice is one group.

    Args:
        files: glob pattern below ``folder`` to split; "" for all of them means there is none.
    """
    texts: list[str] = []
    spans: list[tuple[Span, ...]] = []
    splits: list[str] = []
    for pattern, split in files.items():
        for path in sorted(folder.glob(pattern)):
            for tokens in _sentences(path, encoding):
                text, found = _joined(tokens)
                texts.append(text)
                spans.append(found)
                splits.append(split)
    named = tuple(splits) if any(splits) else None
    return TextSet(name, tuple(texts), group_ids(texts), named, tuple(spans))


def _sentences(path: Path, encoding: str) -> Iterator[list[tuple[str, str]]]:
    """Yield (token, tag) for each sentence."""
    tokens: list[tuple[str, str]] = []
    for number, line in numbered_lines(path, encoding):
        fields = line.split("\t") if "\t" in line else line.split(" ")
        fields = [field for field in (field.strip(" ") for field in fields) if field]
        if not fields or fields[0] == DOCUMENT:
            if tokens:
                yield tokens
            tokens = []
            continue
        tag = fields[-1]
        if len(fields) < 2 or (tag != "O" and (tag[:2] not in ("B-", "I-") or len(tag) < 3)):
            wanted = "a token and O, B-type or I-type"
            raise field_error(path.name, "tag", wanted, "something else", f"line {number}")
        tokens.append((fields[0], tag))
    if tokens:
        yield tokens


def _joined(tokens: list[tuple[str, str]]) -> tuple[str, tuple[Span, ...]]:
    """Return the text and its spans; a tag of another type, or B-, begins a new one."""
    spans: list[Span] = []
    start, before = 0, "O"
    for token, tag in tokens:
        end = start + len(token)
        if tag != "O" and tag == f"I-{before[2:]}":
            spans[-1]["end"] = end
        elif tag != "O":
            spans.append({"start": start, "end": end, "label": tag[2:]})
        start, before = end + 1, tag
    return " ".join(token for token, _ in tokens), tuple(spans)
