"""The fields that lie beside the vectors of a store: which hold text, which are carried to another store."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from vecveil.databases.values import ValueKind, is_vector, kind_of, words_of

__all__ = ["OTHERS", "Field", "FieldTally", "carried", "leaves", "matches"]

OTHERS = "(others)"
"""The field that stands for all beyond `MOST_FIELDS`."""
MOST_FIELDS = 500
_MEAN_WORDS = 3.0
_LIKELY = 0.2  # share of a field's values from which it is called names or numbers to call
_DOCUMENT = {
    "text",
    "document",
    "documents",
    "content",
    "contents",
    "page_content",
    "body",
    "chunk",
    "passage",
}


@dataclass(frozen=True)
class Field:
    """What is known of one field.

    Attributes:
        name: as the store has it; inside of objects with dots, inside of lists with ``[]``.
        rows: that have a value there.
        strings: values that are strings.
        words: mean number of words of these.
        characters: mean length of these.
        kinds: rows that have a value of each kind.
    """

    name: str
    rows: int
    strings: int
    words: float
    characters: float
    kinds: Mapping[ValueKind, int]

    @property
    def withheld(self) -> ValueKind | None:
        """Why the field is not carried to a protected store: ``text``, ``numbers``, ``binary``; or None.

        One value is enough: what is left out can be asked for, what was written cannot be taken back.
        """
        if self.kinds.get("text") or self._all_text:
            return "text"
        for kind in ("numbers", "binary"):
            if self.kinds.get(kind):
                return kind
        return None

    @property
    def text_rows(self) -> int:
        """Rows that hold text here."""
        return self.rows if self._all_text else self.kinds.get("text", 0)

    @property
    def _all_text(self) -> bool:
        """Whether the field is of texts however short some are: by their mean, or by its name."""
        last = re.split(r"[.:]", self.name)[-1].removesuffix("[]").lower()
        return bool(self.strings) and (self.words >= _MEAN_WORDS or last in _DOCUMENT)

    @property
    def personal(self) -> ValueKind | None:
        """What else the values look like: ``email``, ``phone``, ``name``; or None."""
        if self.kinds.get("email"):
            return "email"
        for kind in ("phone", "name"):
            if self.kinds.get(kind, 0) >= _LIKELY * max(self.rows, 1):
                return kind
        return None

    def to_record(self, rows: int) -> dict[str, Any]:
        """Return the field as JSON values; ``rows`` are those of the store."""
        return {
            "name": self.name,
            "rows": self.rows,
            "holds": self.withheld or self.personal or "other",
            "text_share": self.text_rows / rows if self.withheld == "text" and rows else 0.0,
            "mean_words": round(self.words, 2),
            "mean_characters": round(self.characters, 1),
        }


@dataclass
class _Tally:
    rows: int = 0
    strings: int = 0
    words: int = 0
    characters: int = 0
    kinds: Counter[ValueKind] = field(default_factory=Counter)


class FieldTally:
    """Judges the fields of rows that pass, and keeps counts alone."""

    def __init__(self) -> None:
        self._found: dict[str, _Tally] = {}

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Look at the fields of further rows."""
        for fields in rows:
            kinds: dict[str, set[ValueKind]] = {}
            for name, value in leaves(fields):
                if value is None:
                    continue
                if name not in self._found and len(self._found) >= MOST_FIELDS:
                    name = OTHERS
                tally = self._found.setdefault(name, _Tally())
                kinds.setdefault(name, set()).add(kind_of(value))
                if isinstance(value, str):
                    tally.strings += 1
                    tally.words += words_of(value)
                    tally.characters += len(value)
            for name, found in kinds.items():
                self._found[name].rows += 1
                self._found[name].kinds.update(found)

    def fields(self) -> tuple[Field, ...]:
        """Return what was found, in the order of first sight."""
        return tuple(
            Field(name, t.rows, t.strings, t.words / max(t.strings, 1), t.characters / max(t.strings, 1), dict(t.kinds))
            for name, t in self._found.items()
        )  # fmt: skip


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value inside of ``value`` that is no object and no list, with its name; a list of numbers is one."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple | set | frozenset) and not is_vector(value):
        for inner in value:
            yield from leaves(inner, f"{name}[]")
    else:
        yield name, value


def carried(fields: Mapping[str, Any], names: Set[str]) -> Mapping[str, Any]:
    """Return ``fields`` with nothing but the values of these names in them.

    Fields that know more of where they come from, such as the types of a table's columns, say how to keep it:
    ``fields.with_values(values)``.
    """
    kept = {
        key: inner
        for key, value in fields.items()
        if (inner := _pruned(value, str(key), names)) is not None
    }
    of_the_store = getattr(fields, "with_values", None)
    return kept if of_the_store is None else of_the_store(kept)


def _pruned(value: Any, name: str, names: Set[str]) -> Any:
    if isinstance(value, Mapping):
        inside = {
            k: p for k, v in value.items() if (p := _pruned(v, f"{name}.{k}", names)) is not None
        }
        return inside or None
    if isinstance(value, list | tuple | set | frozenset) and not is_vector(value):
        return [p for v in value if (p := _pruned(v, f"{name}[]", names)) is not None] or None
    return value if name in names else None


def matches(name: str, wanted: str) -> bool:
    """Return whether the field ``name`` is ``wanted`` or lies inside of it."""
    return name == wanted or name.startswith((f"{wanted}.", f"{wanted}["))
