"""Scan a store in one pass and bounded memory: count rows, norms and equal rows, classify fields, draw a sample.

The kinds of fields are text, vectors, personal data and other; a migration selects the fields to copy by kind.
"""

from __future__ import annotations

import hashlib
import heapq
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from vecveil.index.blob import SEALED_FIELD, is_blob
from vecveil.index.keystore import FILTER_PREFIX
from vecveil.runtime import progress
from vecveil.stores.store import PROTECTOR_FIELD, Batch, StoreInfo, VectorStore, like
from vecveil.texts.folding import UNSPACED
from vecveil.texts.tables.columns import is_number_list
from vecveil.validation import check_count

SCHEMA = "vecveil.scan/1"
Severity = Literal["high", "medium", "low", "info"]
_SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low", "info")
PROTECTION_CODES = ("protected", "unmarked-rows", "protection-unknown")
"""Codes of the finding about protection; a scan of a non-empty store has exactly one."""
_OWNER = "scan"
_LOOKS = {"email": "e-mail addresses", "phone": "telephone numbers", "name": "names", "text": "texts"}
_MIGRATE = "`vecveil migrate` copies the store to a sealed index, which encrypts it, or to a protected store"
_NAMED = 20  # bad rows to name
_UNIT = 1e-3  # tolerance of unit norms: half-precision vectors deviate by about 5e-4
ValueKind = Literal["text", "vector", "numbers", "binary", "sealed", "token", "email", "phone", "name", "other"]

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


# Fields ------------------------------------------------------------------------------------------


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
        name: the store's name; dots join nested objects, ``[]`` stands for the items of a list.
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
        return self.rows if self._all_text else self.kinds.get("text", 0)

    @property
    def _all_text(self) -> bool:
        """True if their mean length or the field's name marks all strings as text, including short ones."""
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
    return like(fields, {key: value for key, value in pruned if value is not None})


def _pruned(value: Any, name: str, names: Set[str]) -> Any:
    if isinstance(value, Mapping):
        pairs = ((k, _pruned(v, f"{name}.{k}", names)) for k, v in value.items())
        return {k: pruned for k, pruned in pairs if pruned is not None} or None
    if isinstance(value, list | tuple | set | frozenset) and not _is_vector(value):
        items = (_pruned(v, f"{name}[]", names) for v in value)
        return [pruned for pruned in items if pruned is not None] or None
    return value if name in names else None


def is_text_name(name: str) -> bool:
    """Return whether databases use the last part of a field's name for texts."""
    return re.split(r"[.:]", name)[-1].removesuffix("[]").lower() in _TEXT_NAMES


def matches(name: str, pattern: str) -> bool:
    """Return whether the field ``name`` is ``pattern`` or a part of it."""
    return name == pattern or name.startswith((f"{pattern}.", f"{pattern}["))


# Rows --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BadRows:
    """Number of rows with an unusable vector, by reason, and the first ids. The protector decides ``refused``."""

    without_vector: int = 0
    not_finite: int = 0
    other_dimension: int = 0
    refused: int = 0
    ids: tuple[str, ...] = ()

    def __add__(self, other: BadRows) -> BadRows:
        counts = {name: a + b for (name, a), b in zip(self._counts.items(), other._counts.values(), strict=True)}
        return BadRows(**counts, ids=(self.ids + other.ids)[:_NAMED])

    @property
    def _counts(self) -> dict[str, int]:
        return {name: count for name, count in vars(self).items() if name != "ids"}

    @property
    def total(self) -> int:
        return sum(self._counts.values())

    @property
    def named(self) -> str:
        more = ", …" if self.total > len(self.ids) else ""
        return ", ".join(repr(name[:80]) for name in self.ids) + more

    def to_record(self) -> dict[str, int]:
        """Return the counts as JSON values, without ``refused``: a scan has no protector."""
        return {name: count for name, count in self._counts.items() if name != "refused"}

    def __str__(self) -> str:
        reasons = (
            "without a vector",
            "with NaN or infinity",
            "of a different dimension",
            "that the protector rejects (zeros, or longer than in its fit) or does not change",
        )
        counts = zip(self._counts.values(), reasons, strict=True)
        return ", ".join(f"{count:,} {reason}" for count, reason in counts if count) or "none"


def usable_rows(batch: Batch, dimension: int) -> tuple[npt.NDArray[np.bool_], BadRows]:
    """Return a mask (N,) of the rows with a finite vector of ``dimension``, and the counts of the others."""
    # Stores return a missing vector as all NaN, and rows of a different dimension in a batch of their dimension.
    rows = len(batch)
    if batch.vectors.shape[1] != dimension:
        empty = batch.vectors.shape[1] == 0
        counts = (rows, 0, 0) if empty else (0, 0, rows)
        return np.zeros(rows, dtype=bool), BadRows(*counts, ids=batch.ids[:_NAMED])
    good = np.asarray(np.isfinite(batch.vectors).all(axis=1), dtype=bool)
    absent = int(np.isnan(batch.vectors).all(axis=1).sum())
    return good, BadRows(absent, int((~good).sum()) - absent, ids=_ids(batch, ~good))


def _ids(batch: Batch, mask: npt.NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple(batch.ids[i] for i in np.flatnonzero(mask)[:_NAMED])


def refused_rows(batch: Batch, good: npt.NDArray[np.bool_], accepted: npt.NDArray[np.bool_]) -> BadRows:
    """Return the count of ``good`` rows that the protector did not accept; (N,) masks."""
    refused = good & ~accepted
    return BadRows(refused=int(refused.sum()), ids=_ids(batch, refused))


@dataclass(frozen=True)
class Norms:
    """Norms of the vectors; all 0 if there are none."""

    least: float
    mean: float
    largest: float
    unit_share: float
    zeros: int

    def to_record(self) -> dict[str, float]:
        return dict(vars(self))


class EqualRows:
    """Counts the rows whose content equals another row's: exact up to ``capacity`` contents, then an estimate.

    Memory: about 150 bytes per content, up to the capacity.
    """

    def __init__(self, capacity: int = 1 << 18) -> None:
        self._capacity = capacity
        self._mask = 0
        self._seen: dict[int, int] = {}

    def add(self, contents: Iterable[bytes]) -> None:
        for content in contents:
            mark = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
            if mark & self._mask:
                continue
            self._seen[mark] = self._seen.get(mark, 0) + 1
            # Over capacity: keep the hashes with one more trailing zero bit. Equal rows stay or go together, so the
            # kept ones are a uniform sample of contents, at rate 1 / (mask + 1).
            while len(self._seen) > self._capacity:
                self._mask = (self._mask << 1) | 1
                self._seen = {m: n for m, n in self._seen.items() if not m & self._mask}

    @property
    def is_exact(self) -> bool:
        return self._mask == 0

    def count(self) -> int:
        return sum(n for n in self._seen.values() if n > 1) * (self._mask + 1)

    def __str__(self) -> str:
        return f"{'' if self.is_exact else 'about '}{self.count():,}"

    def to_record(self) -> dict[str, Any]:
        return {"rows": self.count(), "exact": self.is_exact}


class Survey:
    """Counts bad rows, norms, equal rows and fields over batches.

    ``accepts`` maps finite vectors (N, dimension) to the mask that a protector accepts; None accepts all.
    """

    def __init__(
        self, dimension: int, accepts: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.bool_]] | None = None
    ) -> None:
        self.dimension, self._accepts = dimension, accepts
        self.rows = 0
        self.marked = 0  # rows with a sealed blob or the mark of a protector
        self.bad = BadRows()
        self.equal_ids = EqualRows()
        self.equal_vectors = EqualRows()
        self._fields = FieldTally()
        self._ids = FieldTally()
        self._good = 0
        self._least, self._largest, self._sum = np.inf, 0.0, 0.0
        self._units = self._zeros = 0

    def add(self, batch: Batch) -> npt.NDArray[np.bool_]:
        """Count the rows of ``batch``; return a mask (N,) of the usable ones."""
        good, bad = usable_rows(batch, self.dimension)
        self.rows += len(batch)
        self.marked += sum(is_blob(row.get(SEALED_FIELD)) or PROTECTOR_FIELD in row for row in batch.fields)
        self.bad += bad
        vectors = batch.vectors[good] if good.any() else np.empty((0, self.dimension), np.float32)
        if self._accepts is not None and len(vectors):
            accepted = good.copy()
            accepted[good] = self._accepts(np.ascontiguousarray(vectors))
            self.bad += refused_rows(batch, good, accepted)
        self.equal_ids.add(name.encode("utf-8", "surrogatepass") for name in batch.ids)
        self._fields.add(batch.fields)
        self._ids.add({"id": name} for name in batch.ids)
        # Adding 0 turns -0 into 0: equal values must have equal bytes.
        content = np.ascontiguousarray(vectors + np.float32(0))
        self.equal_vectors.add(row.tobytes() for row in content)
        norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
        if len(norms):
            self._good += len(norms)
            self._least = min(self._least, float(norms.min()))
            self._largest = max(self._largest, float(norms.max()))
            self._sum += float(norms.sum())
            self._units += int((np.abs(norms - 1) < _UNIT).sum())
            self._zeros += int((norms == 0).sum())
        return good

    @property
    def norms(self) -> Norms:
        if not self._good:
            return Norms(0.0, 0.0, 0.0, 0.0, 0)
        mean, units = self._sum / self._good, self._units / self._good
        return Norms(self._least, mean, self._largest, units, self._zeros)

    @property
    def fields(self) -> tuple[Field, ...]:
        return self._fields.fields()

    @property
    def ids(self) -> Field | None:
        return next(iter(self._ids.fields()), None)

    def to_record(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "bad_rows": self.bad.to_record(),
            "bad_ids": list(self.bad.ids),
            "norms": self.norms.to_record(),
            "equal_vectors": self.equal_vectors.to_record(),
            "equal_ids": self.equal_ids.to_record(),
            "fields": [field.to_record(self.rows) for field in self.fields],
            "ids": None if self.ids is None else self.ids.withheld or self.ids.personal or "other",
        }


def survey_beside(store: VectorStore) -> tuple[Field, ...]:
    """Return the columns of the database's other tables with texts, vectors or personal data, as TABLE.COLUMN."""
    tallies: dict[str, FieldTally] = {}
    for name, rows in store.beside():
        tallies.setdefault(name, FieldTally()).add(rows)
    columns = [replace(one, name=f"{name}.{one.name}") for name, tally in tallies.items() for one in tally.fields()]
    return tuple(one for one in columns if one.withheld in ("text", "numbers") or one.personal)


@dataclass(frozen=True, eq=False)
class Sample:
    """Random rows of a store, in its order; kept out of the repr."""

    ids: tuple[str, ...] = field(repr=False)
    vectors: npt.NDArray[np.float32] = field(repr=False)
    fields: tuple[Mapping[str, Any], ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.ids)


class Reservoir:
    """Draws ``size`` rows uniformly at random, without replacement, from a stream of batches.

    ``seed`` fixes the sample for an order of rows, independent of the batch size; ``among`` restricts the ids.
    """

    def __init__(self, size: int, seed: int, among: Container[str] | None = None) -> None:
        self._size = size
        self._rng = np.random.default_rng(seed)
        self._among = among
        self._passed = 0
        self._heap: list[tuple[float, int, str, npt.NDArray[np.float32], Mapping[str, Any]]] = []

    def add(self, batch: Batch, good: npt.NDArray[np.bool_]) -> None:
        # Every row gets a random number, used or not; the rows with the smallest ones are the sample.
        draws = self._rng.random(len(batch))
        for i in np.flatnonzero(good):
            if self._among is not None and batch.ids[i] not in self._among:
                continue
            order = self._passed + int(i)
            # heapq has the smallest entry on top: negated, the largest draw, which is replaced first.
            entry = (
                -float(draws[i]),
                order,
                batch.ids[i],
                batch.vectors[i].copy(),  # a view would keep the whole batch in memory
                batch.fields[i],
            )
            if len(self._heap) < self._size:
                heapq.heappush(self._heap, entry)
            elif entry[0] > self._heap[0][0]:
                heapq.heapreplace(self._heap, entry)
        self._passed += len(batch)

    def sample(self, dimension: int) -> Sample:
        rows = sorted(self._heap, key=lambda entry: entry[1])
        vectors = np.stack([row[3] for row in rows]) if rows else np.empty((0, dimension), np.float32)
        return Sample(tuple(row[2] for row in rows), vectors, tuple(row[4] for row in rows))


@dataclass(frozen=True)
class ScanFinding:
    """One finding, which quotes only field names and ids of bad rows."""

    code: str
    severity: Severity
    message: str
    fix: str

    def to_record(self) -> dict[str, str]:
        return asdict(self)


def in_order(findings: Sequence[ScanFinding]) -> tuple[ScanFinding, ...]:
    return tuple(sorted(findings, key=lambda finding: _SEVERITIES.index(finding.severity)))


@dataclass(frozen=True, eq=False)
class Scan:
    """Result of a scan.

    Attributes:
        survey: counts over all rows read.
        sample: random rows with their fields; in memory only.
        beside: columns of texts and personal data in the database's other tables.
        complete: all rows were read.
        seed: seed of the sample.
    """

    info: StoreInfo
    survey: Survey = field(repr=False)
    sample: Sample
    beside: tuple[Field, ...]
    complete: bool
    seed: int

    @property
    def findings(self) -> tuple[ScanFinding, ...]:
        """Findings, worst first."""
        if not self.survey.rows:
            return (ScanFinding("empty", "info", "The store has no rows.", "No action is needed."),)
        rows = self.survey.rows
        about_fields = [f for one in self.survey.fields if (f := _field_finding(one, rows))]
        about_tables = [_table_finding(one) for one in self.beside]
        return in_order(
            [*about_fields, *about_tables, *self._id_findings(), self._protection_finding(), *self._row_findings()]
        )

    def to_record(self, *, name: str | None = None) -> dict[str, Any]:
        """Return counts, shares and field names as JSON values (docs/formats.md)."""
        info = self.info
        return {
            "schema": SCHEMA,
            "store": {
                "kind": info.kind,
                "name": name or info.name,
                "count": info.count,
                "dimension": self.survey.dimension,
                "metric": info.metric,
            },
            "complete": self.complete,
            **self.survey.to_record(),
            "beside": [one.to_record(one.rows) for one in self.beside],
            "protection": {"verdict": self.protection, "marked_rows": self.survey.marked},
            "sample": {"rows": len(self.sample), "seed": self.seed},
            "findings": [finding.to_record() for finding in self.findings],
        }

    def _id_findings(self) -> Iterator[ScanFinding]:
        ids = self.survey.ids
        looks = None if ids is None else ids.withheld or ids.personal
        if looks in _LOOKS:
            fix = "Migrations copy ids unchanged: write rows under ids without meaning."
            yield ScanFinding("telling-ids", "medium", f"Ids look like {_LOOKS[looks]}.", fix)

    @property
    def protection(self) -> str:
        """``protected``: vecveil marked all rows that were read. ``mixed``: some of them. Else ``unknown``."""
        marked = self.survey.marked
        return "protected" if marked and marked == self.survey.rows else "mixed" if marked else "unknown"

    def _protection_finding(self) -> ScanFinding:
        rows, marked = self.survey.rows, self.survey.marked
        audit = "Audit them with their texts: --concept, and --texts or a field of texts."
        if self.protection == "protected":
            text = "vecveil wrote all rows: each has a sealed blob or the mark of a protector."
            return ScanFinding("protected", "info", text, f"{audit} It measures what leaks.")
        if self.protection == "mixed":
            text = (
                f"{rows - marked:,} of {rows:,} rows have neither a sealed blob nor the mark of a protector: their "
                "vectors may be clean."
            )
            fix = "Find the program that wrote them. Delete them, or add them again with ProtectedCollection."
            return ScanFinding("unmarked-rows", "high", text, fix)
        text = "vecveil did not write these rows: whether their vectors are protected is unknown."
        return ScanFinding("protection-unknown", "medium", text, f"{audit} If they are not, {_MIGRATE}.")

    def _row_findings(self) -> Iterator[ScanFinding]:
        survey = self.survey
        if survey.bad.total:
            text = f"Rows whose vector cannot be used: {survey.bad}. Their ids: {survey.bad.named}."
            yield ScanFinding("bad-rows", "low", text, "Write them again, or omit them from a migration: --skip-bad.")
        if survey.norms.zeros:
            text = f"{survey.norms.zeros:,} vectors are zero: they have no direction."
            yield ScanFinding("zero-vectors", "low", text, "Check which texts were encoded.")
        if survey.equal_vectors.count():
            text = f"{survey.equal_vectors} rows have the vector of another row: the text of one reveals the other's."
            yield ScanFinding(
                "equal-vectors", "low", text, "Store each text once; noise makes equal vectors different."
            )
        if survey.equal_ids.count():
            text = f"{survey.equal_ids} rows share their id with another row."
            fix = "Give each row its own id: a store that is written by id keeps only one of them."
            yield ScanFinding("equal-ids", "medium", text, fix)
        if self.complete and survey.rows != self.info.count:
            text = f"{survey.rows:,} rows were read; the store counts {self.info.count:,}."
            yield ScanFinding("count", "low", text, "Another program may have written to the store: scan again.")


def _field_finding(field: Field, rows: int) -> ScanFinding | None:
    # From the most to the least serious: a field gives one finding.
    name, share = f"Field {field.name!r}", f"in {field.rows / rows:.0%} of the rows"
    if field.withheld == "sealed":
        return None
    if field.withheld == "text":
        share = f"in {field.text_rows / rows:.0%} of the rows"
        text = f"{name} contains texts, {share}: anyone with access to the store can read them."
        fix = f"Keep texts elsewhere, by id; {_MIGRATE}, which omits them."
        return ScanFinding("plaintext-beside-vectors", "high", text, fix)
    if field.withheld == "vector":
        text = (
            f"{name} contains further vectors, {share}: nothing protects them, and a sparse vector lists the words of "
            "its text."
        )
        return ScanFinding("further-vectors", "high", text, f"{_MIGRATE}, which omits them.")
    if field.withheld is not None:
        values = "lists of numbers, which may be clean vectors" if field.withheld == "numbers" else "binary values"
        text = f"{name} contains {values}, {share}: nothing protects them."
        fix = f"Check the field; {_MIGRATE}, which omits the field unless --keep names it."
        return ScanFinding(f"{field.withheld}-beside-vectors", "medium", text, fix)
    if field.personal is None:
        return None
    text = f"{name} looks like {_LOOKS[field.personal]}, in {field.kinds[field.personal] / rows:.0%} of the rows."
    fix = f"Omit it, or replace it with a pseudonym: vecveil migrate --drop {field.name}."
    return ScanFinding("personal-data-beside-vectors", "medium", text, fix)


def _table_finding(column: Field) -> ScanFinding:
    looks = column.withheld or column.personal or "text"
    name = f"{column.name!r}, a column of another table of the database,"
    if looks == "numbers":
        text = (
            f"{name} contains lists of numbers in {column.rows:,} rows, which may be clean vectors. Chroma's queue "
            "keeps vectors of replaced and deleted rows."
        )
        fix = "Migrate to a new database, which gets no other table, and delete this one."
        return ScanFinding("numbers-in-other-tables", "high", text, fix)
    text = f"{name} contains {_LOOKS[looks]}: anyone with access to the database can read it."
    fix = "Keep it in a separate database. A migration copies no other table."
    if looks == "text":
        return ScanFinding("plaintext-in-other-tables", "high", text, fix)
    return ScanFinding("personal-data-in-other-tables", "medium", text, fix)


def scan(
    store: VectorStore,
    *,
    sample: int = 2000,
    limit: int | None = None,
    batch: int = 1000,
    seed: int = 0,
    among: Container[str] | None = None,
    show_progress: bool | None = None,
) -> Scan:
    """Scan ``store`` in one pass, without changing it.

    Args:
        sample: number of random rows to keep in memory with their fields.
        limit: maximum number of rows to read, in the store's order; None reads all.
        among: ids to sample from; None for all rows.

    Raises:
        StoreError: the store does not exist or does not answer.
    """
    for name, value in (("sample", sample), ("batch", batch), ("limit", limit)):
        if value is not None:
            check_count(value, owner=_OWNER, param=name)
    info = store.info()
    total = -(-(info.count if limit is None else min(info.count, limit)) // batch)
    survey: Survey | None = None
    reservoir = Reservoir(sample, seed, among)
    complete = True
    for rows in progress(store.batches(batch), "scan", total=total, show=show_progress, unit="batch"):
        if survey is None:
            # A store that accepts any dimension: the first batch sets the expected one.
            survey = Survey(info.dimension or rows.vectors.shape[1])
        room = len(rows) if limit is None else limit - survey.rows
        # A batch beyond the limit only shows that rows remain.
        if len(rows) > room:
            complete = False
            if not room:
                break
            rows = Batch(rows.ids[:room], rows.vectors[:room], rows.fields[:room])
        reservoir.add(rows, survey.add(rows))
    survey = survey or Survey(info.dimension)
    drawn = reservoir.sample(survey.dimension)
    return Scan(info, survey, drawn, survey_beside(store), complete, seed)
