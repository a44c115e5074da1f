"""Read texts with annotated identifiers and entities."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from research.datasets.kinds import MarkedSpan, TextSet, group_ids
from research.datasets.reading import (
    as_spans,
    as_splits,
    as_texts,
    field_error,
    joined,
    lines_in,
    read_columns,
    split_name,
)
from vecveil.errors import DataFileError
from vecveil.texts.tables.columns import missing_column

DOCUMENT = "-DOCSTART-"


def read_conll(name: str, folder: Path, *, files: Mapping[str, str], encoding: str = "utf-8") -> TextSet:
    """Return the sentences of files; equal sentences are one group.

    Args:
        files: glob pattern below ``folder`` -> split; "" throughout for a set without splits.
    """
    texts: list[str] = []
    spans: list[tuple[MarkedSpan, ...]] = []
    splits: list[str] = []
    for pattern, split in files.items():
        for path in sorted(folder.glob(pattern)):
            for tokens in _sentences(path, encoding):
                text, found = _sentence(tokens)
                texts.append(text)
                spans.append(found)
                splits.append(split)
    named = tuple(splits) if any(splits) else None
    return TextSet(name, tuple(texts), group_ids(texts), named, tuple(spans))


def _sentences(path: Path, encoding: str) -> Iterator[list[tuple[str, str]]]:
    """Yield the (token, tag) pairs of each sentence."""
    tokens: list[tuple[str, str]] = []
    for line, wrong in lines_in(path.parent, path.name, encoding=encoding):
        fields = line.split("\t") if "\t" in line else line.split(" ")
        fields = [field for field in (field.strip(" ") for field in fields) if field]
        if not fields or fields[0] == DOCUMENT:
            if tokens:
                yield tokens
            tokens = []
            continue
        tag = fields[-1]
        if len(fields) < 2 or (tag != "O" and (tag[:2] not in ("B-", "I-") or len(tag) < 3)):
            raise wrong("tag", "a token and O, B-type or I-type")
        tokens.append((fields[0], tag))
    if tokens:
        yield tokens


def _sentence(tokens: list[tuple[str, str]]) -> tuple[str, tuple[MarkedSpan, ...]]:
    """Return the text and its spans; B-, or a tag of another type, begins a new span."""
    spans: list[MarkedSpan] = []
    start, before = 0, "O"
    for token, tag in tokens:
        end = start + len(token)
        if tag != "O" and tag == f"I-{before[2:]}":
            spans[-1]["end"] = end
        elif tag != "O":
            spans.append({"start": start, "end": end, "label": tag[2:]})
        start, before = end + 1, tag
    return " ".join(token for token, _ in tokens), tuple(spans)


WRONG = 0.01
_PART = re.compile(r"(\d+)\|([ta])\|(.*)", re.DOTALL)
_SPLIT = re.compile(r"train|dev|test")
_Document = tuple[str, str, list[tuple[int, int, str, str]]]


def read_pubtator(name: str, folder: Path, *, files: str) -> TextSet:
    """Return one text per document, title and abstract, of all files that the glob pattern ``files`` matches.

    The file name contains the split. Repeated documents are read once. Annotations whose words are not at their offsets
    are dropped, since the published sets have some; more than 1 % in a file is an error.
    """
    texts: dict[str, str] = {}
    spans: list[tuple[MarkedSpan, ...]] = []
    splits: list[str] = []
    for path in sorted(folder.glob(files)):
        found = _SPLIT.search(path.name.lower())
        split = split_name(found[0]) if found else "test"
        marks = wrong = 0
        for identifier, text, given in _pubtator_documents(path):
            if identifier in texts:
                continue
            right = [one for one in given if text[one[0] : one[1]] == one[2] != ""]
            marks, wrong = marks + len(given), wrong + len(given) - len(right)
            texts[identifier] = text
            spans.append(tuple(MarkedSpan(start=a, end=b, label=label) for a, b, _, label in right))
            splits.append(split)
        if wrong > max(1, WRONG * marks):
            text = f"{path.name}: {wrong} of {marks} annotations do not stand where they say."
            raise DataFileError(text, param="path")
    return TextSet(name, tuple(texts.values()), group_ids(list(texts)), tuple(splits), tuple(spans))


def _pubtator_documents(path: Path) -> Iterator[_Document]:
    identifier, parts, given = "", dict[str, str](), list[tuple[int, int, str, str]]()
    for line, wrong in lines_in(path.parent, path.name):
        part, fields = _PART.fullmatch(line), line.split("\t")
        if part is not None:
            if part[1] != identifier and parts:
                yield identifier, _abstract(parts), given
                parts, given = {}, []
            identifier = part[1]
            parts[part[2]] = part[3]
        elif len(fields) >= 5 and fields[1].isdigit():
            if fields[0] != identifier or not fields[2].isdigit():
                raise wrong("annotation", "one of the document above, with start and end")
            given.append((int(fields[1]), int(fields[2]), fields[3], fields[4]))
        elif line.strip() and fields[0] != identifier:
            raise wrong("line", "a title, an abstract or an annotation")
    if parts:
        yield identifier, _abstract(parts), given


def _abstract(parts: dict[str, str]) -> str:
    return f"{parts.get('t', '')} {parts.get('a', '')}".rstrip()


_SPAN = {"start": "start_position", "end": "end_position", "label": "entity_type"}


def read_presidio(name: str, folder: Path, *, file: str) -> TextSet:
    """Return the texts of ``file``, without a split; texts of one template are a group."""
    try:
        rows = json.loads((folder / file).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):  # a wrong byte is a ValueError as well
        raise DataFileError(f"{file} is not JSON in UTF-8.", param="path") from None
    if not isinstance(rows, list):
        raise DataFileError(f"{file} is a JSON {type(rows).__name__}, not a list.", param="path")
    for row, value in enumerate(rows):
        if not isinstance(value, dict):
            raise field_error(file, "row", "an object", f"a {type(value).__name__}", row)
    texts = as_texts((row.get("full_text") for row in rows), file, "full_text")
    masked = as_texts((row.get("masked") for row in rows), file, "masked")
    spans = as_spans([_spans(row.get("spans")) for row in rows], texts, file)
    return TextSet(name, texts, group_ids(masked), spans=spans)


def _spans(value: Any) -> Any:
    """Return spans with the keys that all sets share; anything but a list of objects is returned unchanged."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        return value
    named = [{ours: item.get(theirs) for ours, theirs in _SPAN.items()} for item in value]
    return sorted(named, key=lambda item: str(item["start"]).zfill(12))


_OPTIONAL = ("privacy_mask", "span_labels", "language", "set", "split", "id")
_LETTERED = re.compile(r"(\d+)[A-Z]+")


def read_pii_masking(name: str, folder: Path, *, languages: Sequence[str] | None = ("English", "en")) -> TextSet:
    """Return the texts in ``languages`` of all .jsonl (.jsonl.gz) files below ``folder``, or of the .parquet files.

    Texts whose ids differ only in the final letter (40767A, 40767B) are one group.

    Args:
        languages: names or codes in the column ``language``, case-insensitive; None keeps all. A file without that
            column is kept whole.
    """
    wanted = None if languages is None else {language.casefold() for language in languages}
    below = sorted(folder.rglob("*"))
    files = [path for path in below if path.name.endswith((".jsonl", ".jsonl.gz"))]
    files = files or [path for path in below if path.suffix == ".parquet"]
    parts = [part for path in files if (part := _read_file(name, path, wanted)) is not None]
    if not parts:
        which = "any language" if languages is None else " or ".join(languages)
        raise DataFileError(f"{folder.name} has no texts in {which}.", param="path")
    return joined(name, parts)


def _read_file(name: str, path: Path, wanted: set[str] | None) -> TextSet | None:
    rows = read_columns(path, "source_text", optional=_OPTIONAL)
    field = next((field for field in _OPTIONAL[:2] if field in rows), None)
    if field is None:
        raise missing_column(path.name, "columns", "privacy_mask", rows)
    texts = rows["source_text"]
    kept = list(range(len(texts)))
    if wanted is not None and "language" in rows:
        languages = as_texts(rows["language"], path.name, "language")
        kept = [row for row in kept if languages[row].casefold() in wanted]
    if not kept:
        return None
    spans: list[list[Any]] = [[] for _ in texts]
    for row in kept:
        spans[row] = _listed(rows[field][row], path.name, field, row)
    checked = as_spans(spans, texts, path.name, field)
    given = rows.get("split", rows.get("set"))
    splits = (_of_path(path),) * len(texts) if given is None else as_splits(given, path.name)
    ids = rows.get("id")
    keys = [row if ids is None else _document(ids[row], row) for row in kept]
    return TextSet(
        name=name,
        texts=tuple(texts[row] for row in kept),
        groups=np.asarray(group_ids(keys)),
        split=tuple(splits[row] for row in kept),
        spans=tuple(checked[row] for row in kept),
    )


def _listed(value: Any, source: str, field: str, row: int) -> list[Any]:
    """Return spans as objects, from a list or its text; the label "O" marks no span."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = _literal(value)
    if not isinstance(value, list):
        raise field_error(source, field, "a list of spans", "", row)
    spans = [
        dict(zip(("start", "end", "label"), item, strict=True))
        if isinstance(item, list | tuple) and len(item) == 3
        else item
        for item in value
    ]
    return [item for item in spans if not (isinstance(item, dict) and item.get("label") == "O")]


def _literal(value: str) -> Any:
    """Return a list written in Python syntax; None if it is not one."""
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _document(identifier: Any, row: int) -> Any:
    found = _LETTERED.fullmatch(identifier) if isinstance(identifier, str) else None
    return found[1] if found else (identifier if identifier is not None else ("row", row))


def _of_path(path: Path) -> str:
    inside = f"{path.parent.name} {path.name}".lower()
    found = re.search(r"train|validation|valid|dev|test", inside)
    return split_name(found[0]) if found else "train"
