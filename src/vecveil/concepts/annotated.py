"""Spans and labels that the user already has, one entry per text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vecveil.concepts.matching import Span, check_range
from vecveil.errors import InvalidInputError, wrong_type
from vecveil.io import parse_json


class AnnotatedSpans:
    """Given spans, which belong to the texts by position.

    Args:
        rows: For each text a list of :class:`Span` or of ``{"start", "end", "label"}`` (other keys are
            ignored, ``label`` may be missing), the same as a JSON string, or None. Offsets count
            characters.
        column: The table column of the rows, for messages.
    """

    positional = True  # must see all texts at once, in their order

    def __init__(self, rows: Sequence[Any], *, column: str | None = None, owner: str = "AnnotatedSpans") -> None:
        if isinstance(rows, str | bytes | Mapping) or not hasattr(rows, "__iter__"):
            raise wrong_type(owner, "spans", "a list of spans for each text", rows)
        self.column = column
        self._owner = owner
        self._rows = [self._row(i, row) for i, row in enumerate(rows)]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"AnnotatedSpans({len(self)} texts, {sum(map(len, self._rows))} spans)"

    def describe(self) -> dict[str, Any]:
        """Return kind and counts."""
        counts = {"texts": len(self), "spans": sum(map(len, self._rows))}
        return {"kind": "spans", "column": self.column, **counts}

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the given spans; raise for another number of texts or a span outside its text."""
        if len(texts) != len(self):
            raise InvalidInputError(
                f"{self._owner}: `spans` has {len(self)} rows for {len(texts)} texts. Spans belong to their texts "
                "by position.",
                param="spans",
            )
        for i, (text, row) in enumerate(zip(texts, self._rows, strict=True)):
            for span in row:
                start, end = span.start, span.end
                check_range(start, end, len(text), owner=self._owner, param="spans", row=i)
        return [list(row) for row in self._rows]

    def _row(self, i: int, row: Any) -> list[Span]:
        # Table columns hold spans as JSON strings.
        if isinstance(row, str):
            try:
                row = parse_json(row) if row.strip() else None
            except (ValueError, RecursionError):  # RecursionError: JSON nested thousands deep
                raise self._wrong("a string that is not JSON", i) from None
        if row is None:
            return []
        if isinstance(row, bytes | Mapping) or not hasattr(row, "__iter__"):
            raise self._wrong(f"a {type(row).__name__}, not a list of spans", i)
        return [self._span(i, item) for item in row]

    def _span(self, i: int, item: Any) -> Span:
        if isinstance(item, Span):
            start, end, label = item.start, item.end, item.label
        elif isinstance(item, Mapping):
            if "start" not in item or "end" not in item:
                raise self._wrong("a span without start or end", i)
            start, end, label = item["start"], item["end"], item.get("label", "span")
        else:
            raise self._wrong(f"a {type(item).__name__}, not a span {{start, end, label}}", i)
        if not isinstance(label, str):
            raise self._wrong(f"a label that is a {type(label).__name__}, not a string", i)
        # The length of the text is unknown until `detect`; only order and type are checked here.
        check_range(start, end, None, owner=self._owner, param="spans", row=i)
        return Span(int(start), int(end), label)

    def _wrong(self, got: str, row: int) -> InvalidInputError:
        return InvalidInputError(f"{self._owner}: `spans` has {got} in row {row}.", param="spans")


def checked_labels(labels: Sequence[Any], *, owner: str, param: str = "labels") -> tuple[str | None, ...]:
    """Return one string or None for each text; an empty string counts as None."""
    if isinstance(labels, str | bytes | Mapping) or not hasattr(labels, "__iter__"):
        raise wrong_type(owner, param, "a sequence with one label for each text", labels)
    # tolist: the scalars of an array become Python's
    values = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    for i, value in enumerate(values):
        known = isinstance(value, str | int | np.integer) and not isinstance(value, bool)
        if value is not None and not known:
            raise InvalidInputError(
                f"{owner}: the label at position {i} is a {type(value).__name__}; use strings, integers or None.",
                code="E-INPUT-TYPE",
                param=param,
            )
    return tuple(None if value is None or value == "" else str(value) for value in values)
