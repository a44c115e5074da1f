"""Abstracts with annotations in the PubTator form (NCBI disease, BC5CDR).

``id|t|title``, ``id|a|abstract``, then one line an annotation: id, start, end, words, type and further
fields, separated by tabs; a blank line ends a document. Offsets count from the title, with one
character between title and abstract. Lines of another form (relations) are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from research.datasets.columns import field_error, split_name
from research.datasets.kinds import Span, TextSet, group_ids
from research.datasets.lines import numbered_lines
from vecveil.data.files import not_usable

__all__ = ["read_pubtator"]

WRONG = 0.01
_PART = re.compile(r"(\d+)\|([ta])\|(.*)", re.DOTALL)
_SPLIT = re.compile(r"train|dev|test")
_Document = tuple[str, str, list[tuple[int, int, str, str]]]


def read_pubtator(name: str, folder: Path, *, files: str) -> TextSet:
    """Return one text per document, title and abstract, of all files that ``files`` matches.

    The split is in a file's name. A document that comes twice is taken once. An annotation whose
    words do not stand where it says is left out, as the published sets have some; more than one in
    a hundred in a file is an error.

    Args:
        files: a glob pattern below ``folder``.
    """
    texts: dict[str, str] = {}
    spans: list[tuple[Span, ...]] = []
    splits: list[str] = []
    for path in sorted(folder.glob(files)):
        found = _SPLIT.search(path.name.lower())
        split = split_name(found[0]) if found else "test"
        marks = wrong = 0
        for identifier, text, given in _documents(path):
            if identifier in texts:
                continue
            right = [one for one in given if text[one[0] : one[1]] == one[2] != ""]
            marks, wrong = marks + len(given), wrong + len(given) - len(right)
            texts[identifier] = text
            spans.append(tuple(Span(start=a, end=b, label=label) for a, b, _, label in right))
            splits.append(split)
        if wrong > max(1, WRONG * marks):
            wanted = "a file whose annotations stand where they say"
            raise not_usable(path.name, wanted, f"{wrong} of {marks} that do not")
    return TextSet(name, tuple(texts.values()), group_ids(list(texts)), tuple(splits), tuple(spans))


def _documents(path: Path) -> Iterator[_Document]:
    identifier, parts, given = "", dict[str, str](), list[tuple[int, int, str, str]]()
    for number, line in numbered_lines(path):
        where = f"line {number}"
        part, fields = _PART.fullmatch(line), line.split("\t")
        if part is not None:
            if part[1] != identifier and parts:
                yield identifier, _joined(parts), given
                parts, given = {}, []
            identifier = part[1]
            parts[part[2]] = part[3]
        elif len(fields) >= 5 and fields[1].isdigit():
            if fields[0] != identifier or not fields[2].isdigit():
                wanted = "of the document above, with start and end"
                raise field_error(path.name, "annotation", wanted, "something else", where)
            given.append((int(fields[1]), int(fields[2]), fields[3], fields[4]))
        elif line.strip() and fields[0] != identifier:
            wanted = "a title, an abstract or an annotation"
            raise field_error(path.name, "line", wanted, "something else", where)
    if parts:
        yield identifier, _joined(parts), given


def _joined(parts: dict[str, str]) -> str:
    return f"{parts.get('t', '')} {parts.get('a', '')}".rstrip()
