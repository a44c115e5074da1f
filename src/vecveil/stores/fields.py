"""Classify the fields beside the vectors as text or personal data, and select those that a copy carries."""

from __future__ import annotations

import base64
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np

from vecveil.concepts.matching import UNSPACED
from vecveil.data.columns import is_number_list
from vecveil.protector import Protector
from vecveil.sealing.blob import SEALED_FIELD, is_blob
from vecveil.sealing.keystore import FILTER_PREFIX

ValueKind = Literal["text", "vector", "numbers", "binary", "sealed", "token", "email", "phone", "name", "other"]

PROTECTOR_FIELD = "vecveil_protector"
"""Field of a row with a protected vector and no sealed blob: the start of the protector's fingerprint."""
OTHERS = "(others)"
"""Name of the field that stands for all fields beyond the first 500."""
_MOST_FIELDS = 500
_MIN_NUMBERS = 8  # shorter lists, such as coordinates or boxes, are no embeddings
_MIN_WORDS = 5
_MIN_UNSPACED = 12  # characters of a script without spaces
_READ = 4_000  # characters of a value to classify: bounds the time of the patterns
_MEAN_WORDS = 3.0
_LIKELY = 0.2  # minimum share of values: the patterns of names and telephone numbers have false positives
_TEXT_NAMES = {"text", "document", "documents", "content", "contents", "page_content", "body", "chunk", "passage"}
# One word between spaces, with its punctuation: no digit, no separator inside.
_PLAIN = re.compile(r"[^\w\s]*[^\W\d_]{2,}[^\w\s]*")
_RUN = re.compile(r"[^\W_]+")
_LETTERS = re.compile(r"[^\W\d_]{2,}")
_LONGEST = 40  # characters of a token that may be one word: lines of base64 are longer
_VOWEL = re.compile(r"[aeiouyAEIOUY]|[^\x00-\x7f]")
_SHORT = 8  # characters of a token, such as "400mg" or "type-2", that is a word if it has two letters in a row
# Combining marks split words of Indic scripts and decomposed accents.
_MARKS = {code: None for code in range(0x300, 0x1F000) if unicodedata.category(chr(code))[0] == "M"}
_UNSPACED = re.compile(f"[{UNSPACED}\u0f00-\u0fff\uac00-\ud7af\uff66-\uff9f]")  # and Tibetan, Hangul, half-width kana
_UUID = re.compile(r"\{?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\}?", re.IGNORECASE)
_HEX = re.compile(r"(?=\D*\d)[0-9a-fA-F\W_]{8,}")
_PATH = re.compile(r"[/~\\]|\.{1,2}[/\\]|[A-Za-z]:[/\\]")
_SUFFIX = re.compile(r"\.\w{1,5}$")
_DATE = re.compile(
    r"(?:[A-Z][a-z]{2},? )?(?:\d{1,2} [A-Z][a-z]{2}|[A-Z][a-z]{2} [ \d]\d) "
    r"(?:\d{4} )?\d\d:\d\d(?::\d\d)?(?: [A-Z]{3,4})?(?: \d{4}| [+-]\d{4})?"
)
_BITS = re.compile("[01]{32,}")  # as PostgreSQL returns a quantised vector
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]*[A-Za-z]{2,}")
_ADDRESS = re.compile(r"\w+://\S+|\S+@\S+|\b[au]rn:\S+")
_TOKEN = re.compile(r"[0-9a-f]{32}")
_PHONE = re.compile(r"(?:\+|\(?\d)[\d\s()./-]{6,}\d")
# Dates, IP addresses and plain numbers have the shape of telephone numbers.
_NO_PHONE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}\b.*|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}|(?:\d{1,3}\.){3}\d{1,3}|\d+|\d+[./]\d+"
)
_NAME = re.compile(r"(?:(?:Dr|Mr|Mrs|Ms|Prof)\.? )?[^\W\d_a-z][\w'’.-]*(?:,? [^\W\d_a-z][\w'’.-]*){1,3}")


def kind_of(value: Any) -> ValueKind:
    """Return the kind of ``value``.

    ``text``: at least five words, or twelve characters of a script without spaces. ``vector``: an array, which stores
    return for further vectors. ``numbers``: a list of at least eight numbers, also as a string, which may be a vector.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return "binary"
    if isinstance(value, np.ndarray):
        return "vector"
    if _is_vector(value):
        return "numbers"
    if not isinstance(value, str):
        return "other"
    start = value[:_READ].strip()
    if is_number_list(start) or _BITS.fullmatch(start):
        return "numbers"
    if _words(start) >= _MIN_WORDS:
        return "text"
    if "@" in start and _EMAIL.search(start):
        return "email"
    # E.164 telephone numbers have at most 15 digits.
    digits = sum(c.isdigit() for c in start)
    if digits <= 15 and _PHONE.fullmatch(start) and not _NO_PHONE.fullmatch(start):
        return "phone"
    return "name" if len(start) <= 60 and _NAME.fullmatch(start) else "other"


def _is_vector(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return True
    if not isinstance(value, list | tuple) or len(value) < _MIN_NUMBERS:
        return False
    return all(isinstance(v, int | float | np.number) and not isinstance(v, bool) for v in value)


def _words(text: str) -> int:
    """Count the words of two or more letters at the start of ``text``.

    URLs, paths, e-mail addresses, dates and UUIDs have none. A longer token with digits or separators inside, such as a
    hash in base64, counts as one word at most, unless words make up half of it, as in ``how-to-treat-diabetes``.
    """
    start = text[:_READ]
    if _HEX.fullmatch(start):
        return 0
    unspaced = len(_UNSPACED.findall(start))
    if unspaced >= _MIN_UNSPACED:
        return max(_MIN_WORDS, unspaced // 2)
    if not start.isascii():
        start = start.translate(_MARKS)
    # Searched only where one can be: the pattern takes quadratic time on a long token.
    patterns = (_ADDRESS, _DATE, _UUID) if "@" in start or ":" in start else (_UUID,)
    for pattern in patterns:
        start = pattern.sub(" ", start)
    return sum(1 if _PLAIN.fullmatch(token) else _words_inside(token) for token in start.split())


def _words_inside(token: str) -> int:
    """Count the words of a token with digits or separators inside."""
    if len(token) <= _SHORT:
        return int(_LETTERS.search(token) is not None)
    is_path = _PATH.match(token) or (("/" in token or "\\" in token) and _SUFFIX.search(token))
    if is_path or _HEX.fullmatch(token):
        return 0
    words = [run for run in _RUN.findall(token) if _is_word(run)]
    if 2 * sum(map(len, words)) >= len(token):
        return len(words)
    return int(len(token) <= _LONGEST and _LETTERS.search(token) is not None)


def _is_word(run: str) -> bool:
    cased = run.islower() or run.isupper() or run.istitle() or run.lower() == run.upper()
    return cased and _LETTERS.fullmatch(run) is not None and _VOWEL.search(run) is not None


@dataclass(frozen=True)
class Field:
    """Statistics of one field.

    Attributes:
        name: the store's name; nested objects are joined by dots, ``[]`` stands for the items of a list.
        rows: number of rows with a value.
        strings: number of string values.
        words, characters: mean length of these strings.
        kinds: number of rows with a value of each kind.
    """

    name: str
    rows: int
    strings: int
    words: float
    characters: float
    kinds: Mapping[ValueKind, int]

    @property
    def withheld(self) -> ValueKind | None:
        """Kind for which a migration leaves the field out: text, vector, numbers, binary or sealed; None otherwise."""
        # One such value is enough: a field left out can be copied later, a written one cannot be taken back.
        if self.kinds.get("text") or self._all_text:
            return "text"
        kinds: tuple[ValueKind, ...] = ("vector", "numbers", "binary", "sealed")
        return next((kind for kind in kinds if self.kinds.get(kind)), None)

    @property
    def text_rows(self) -> int:
        """Number of rows with text in this field."""
        return self.rows if self._all_text else self.kinds.get("text", 0)

    @property
    def _all_text(self) -> bool:
        """True if mean length or name mark all strings of the field as text, including short ones."""
        return bool(self.strings) and (self.words >= _MEAN_WORDS or is_text_name(self.name))

    @property
    def personal(self) -> ValueKind | None:
        """Kind of personal data in the field: ``email``, ``phone``, ``name``, or None."""
        if self.kinds.get("email"):
            return "email"
        least = _LIKELY * max(self.rows, 1)
        return next((kind for kind in ("phone", "name") if self.kinds.get(kind, 0) >= least), None)

    def to_record(self, rows: int) -> dict[str, Any]:
        """Return the field as JSON values; ``rows`` counts the store's rows."""
        return {
            "name": self.name,
            "rows": self.rows,
            "holds": self.withheld or self.personal or ("token" if self.kinds.get("token") else "other"),
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
    """Counts the kinds of values per field; keeps no value."""

    def __init__(self) -> None:
        self._tallies: dict[str, _Tally] = {}

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for fields in rows:
            kinds: dict[str, set[ValueKind]] = {}
            for name, value in leaves(fields):
                if value is None:
                    continue
                # Names may be data, such as a user per row: bound the memory.
                if name not in self._tallies and len(self._tallies) >= _MOST_FIELDS:
                    name = OTHERS
                tally = self._tallies.setdefault(name, _Tally())
                kind = _own_kind(name, value) or kind_of(value)
                kinds.setdefault(name, set()).add(kind)
                if isinstance(value, str) and kind not in ("sealed", "token"):
                    tally.strings += 1
                    tally.words += _words(value)
                    tally.characters += len(value)
            # Per row, not per value: lists and objects give several leaves of one name.
            for name, seen in kinds.items():
                self._tallies[name].rows += 1
                self._tallies[name].kinds.update(seen)

    def fields(self) -> tuple[Field, ...]:
        """Return the statistics per field, in order of first appearance."""
        return tuple(
            Field(name, t.rows, t.strings, t.words / max(t.strings, 1), t.characters / max(t.strings, 1), dict(t.kinds))
            for name, t in self._tallies.items()
        )


def _own_kind(name: str, value: Any) -> ValueKind | None:
    """Return the kind of a value that sealed search wrote, whose letters may look like words."""
    if name == SEALED_FIELD:
        return "sealed" if is_blob(value) else None
    if name == PROTECTOR_FIELD:
        return "token"
    is_token = name.startswith(FILTER_PREFIX) and isinstance(value, str) and _TOKEN.fullmatch(value)
    return "token" if is_token else None


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield name and value of each leaf of nested objects and lists; a list of numbers is one leaf."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple | set | frozenset) and not _is_vector(value):
        for inner in value:
            yield from leaves(inner, f"{name}[]")
    else:
        yield name, value


def carried(fields: Mapping[str, Any], names: Set[str]) -> Mapping[str, Any]:
    """Return ``fields`` reduced to the leaves ``names``."""
    pruned = ((key, _pruned(value, str(key), names)) for key, value in fields.items())
    return _like(fields, {key: value for key, value in pruned if value is not None})


def _pruned(value: Any, name: str, names: Set[str]) -> Any:
    if isinstance(value, Mapping):
        pairs = ((k, _pruned(v, f"{name}.{k}", names)) for k, v in value.items())
        return {k: pruned for k, pruned in pairs if pruned is not None} or None
    if isinstance(value, list | tuple | set | frozenset) and not _is_vector(value):
        items = (_pruned(v, f"{name}[]", names) for v in value)
        return [pruned for pruned in items if pruned is not None] or None
    return value if name in names else None


def is_text_name(name: str) -> bool:
    """Return whether the last part of a field's name is one that databases use for texts."""
    return re.split(r"[.:]", name)[-1].removesuffix("[]").lower() in _TEXT_NAMES


def matches(name: str, pattern: str) -> bool:
    """Return whether the field ``name`` is ``pattern`` or a part of it."""
    return name == pattern or name.startswith((f"{pattern}.", f"{pattern}["))


def protector_mark(protector: Protector) -> str:
    """Return the value of `PROTECTOR_FIELD` for rows that ``protector`` released."""
    return protector.fingerprint[:16]


def with_blob(fields: Mapping[str, Any], blob: bytes | None, tokens: Mapping[str, str] = {}) -> Mapping[str, Any]:
    """Return ``fields`` with the blob, if one is given, and filter tokens instead of older ones."""
    values = {name: value for name, value in fields.items() if not name.startswith(FILTER_PREFIX)}
    values |= tokens
    if blob is not None:
        values[SEALED_FIELD] = base64.b64encode(blob).decode()
    return _like(fields, values)


def _like(fields: Mapping[str, Any], values: dict[str, Any]) -> Mapping[str, Any]:
    """Return ``values`` as a row like ``fields``: rows of typed tables carry their layout (`pgvector.TableRow`)."""
    with_values = getattr(fields, "with_values", None)
    return values if with_values is None else cast(Mapping[str, Any], with_values(values))
