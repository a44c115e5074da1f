"""`VectorStore`, the interface of a vector database, and `DatabaseStore`, its checks shared by all databases."""

from __future__ import annotations

import base64
import json
import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, cast, final

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, StoreError, VecveilError, unknown_name, wrong_type
from vecveil.index.blob import SEALED_FIELD
from vecveil.index.keystore import FILTER_PREFIX, check_filter_field
from vecveil.texts.tables.columns import json_value
from vecveil.validation import check_count, check_embeddings

if TYPE_CHECKING:
    from vecveil.privacy.protector import Protector

Missing = Literal["raise", "skip"]
Where = Mapping[str, Sequence[str]]
"""Condition on rows: strings by field, of which the field must contain one."""
PROTECTOR_FIELD = "vecveil_protector"
"""Field of a row with a protected vector and no sealed blob: the start of the protector's fingerprint."""
LISTED = 10_000
"""Ids per part of `VectorStore.ids`."""
_COMPARISONS = 5  # of the rows read with those that are listed, before `every_row` gives up


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of a store."""

    ids: tuple[str, ...]
    """As text; numbers in decimal."""
    vectors: npt.NDArray[np.float32]
    fields: tuple[Mapping[str, Any], ...]
    """Values stored with each vector by name: metadata, payload, text."""
    cursor: str = ""
    """Opaque position behind these rows, from which `VectorStore.batches` continues."""

    def __post_init__(self) -> None:
        rows = len(self.ids)
        if self.vectors.ndim != 2 or len(self.vectors) != rows or len(self.fields) != rows:
            raise InvalidInputError(
                f"A batch has one row of vectors and one of fields for each id, not {rows} ids, {len(self.fields)} "
                f"fields and vectors of shape {self.vectors.shape}.",
                param="vectors",
            )

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, order: Sequence[int]) -> Batch:
        places = list(order)
        ids, fields = (tuple(column[i] for i in places) for column in (self.ids, self.fields))
        return Batch(ids, self.vectors[places], fields, self.cursor)  # type: ignore[arg-type]

    @classmethod
    def joined(cls, batches: Sequence[Batch]) -> Batch:
        """Concatenate consecutive batches."""
        if len(batches) == 1:
            return batches[0]
        return cls(
            tuple(name for batch in batches for name in batch.ids),
            np.concatenate([batch.vectors for batch in batches]),
            tuple(row for batch in batches for row in batch.fields),
            batches[-1].cursor,
        )


@dataclass(frozen=True)
class StoreInfo:
    """Description of a store: its kind, such as ``chroma``, and its collection, table or file, without passwords."""

    kind: str
    name: str
    count: int
    """Number of rows."""
    dimension: int
    """0 if there are no vectors."""
    metric: str | None = None
    """``cosine``, ``dot``, ``euclidean`` or ``manhattan``, the database's name of another one, or None."""


class Match(NamedTuple):
    """One hit of a search: the database's id, distance (smaller is nearer) and the row's other values."""

    id: Any
    distance: float
    fields: dict[str, Any]


class VectorStore(ABC):
    """One collection of a vector database. Close it, or use it in a ``with`` block.

    Rows are read in an order that is stable while nobody writes, and written by id, replacing equal ids. An
    interrupted copy can therefore continue at the last cursor and contains every row once.

    Errors of the database become `StoreError`, without texts, vectors or passwords.
    """

    kind: ClassVar[str]
    options: ClassVar[tuple[str, ...]] = ()
    """Names that a location may give behind ``?``: of the vectors, tenant and database."""

    @classmethod
    @abstractmethod
    def open(cls, where: str, collection: str | None, **options: str) -> Self:
        """Return the store at ``where`` (a path or URL) without creating anything."""

    @abstractmethod
    def info(self) -> StoreInfo:
        """Return the store's description; raise `StoreError` if it does not exist."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the collection exists; without a name, whether exactly one does."""

    @abstractmethod
    def create(self, dimension: int, *, metric: str | None = None, filter_fields: Sequence[str] = ()) -> None:
        """Create an empty collection; raise if it exists with a different dimension.

        ``filter_fields`` are fields of strings for the ``where`` of `search`; typed tables make a column for each.
        """

    @abstractmethod
    def batches(self, size: int = 1000, *, after: str = "") -> Iterator[Batch]:
        """Yield all rows behind the cursor ``after`` in batches of at most ``size``, in bounded memory."""

    @abstractmethod
    def read(self, ids: Sequence[str], *, missing: Missing = "raise") -> Batch:
        """Return the rows of ``ids`` in that order; raise `StoreError` for a missing id, or skip it."""

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Write rows durably, replacing equal ids; of equal ids in ``batch`` the last row counts."""

    @abstractmethod
    def search(self, vector: Any, k: int = 10, where: Where | None = None) -> list[Match]:
        """Return the ``k`` rows nearest to ``vector`` (m,) in the store's metric, nearest first.

        A row matches ``where`` if each of its fields contains one of the strings; only such rows are returned.
        """

    @abstractmethod
    def delete(self, ids: Sequence[str]) -> None:
        """Delete the rows of ``ids``; unknown ids are ignored."""

    def count(self) -> int:
        """Return the number of rows."""
        return self.info().count

    def ids(self) -> Iterator[list[str]]:
        """Yield the ids of all rows in parts, in any order; if possible by a different request than `batches`."""
        for part in self.batches(LISTED):
            yield list(part.ids)

    def spelled(self, ids: Sequence[str]) -> list[str]:
        """Return ``ids`` as the database returns them: a numeric column turns 007 into 7."""
        return list(ids)

    @final
    def every_row(self, size: int = 1000, *, repeated: bool = False) -> Iterator[Batch]:
        """Yield every row once; raise StoreError at the end unless the database counts and lists exactly these rows.

        Required before deleting a key or declaring a copy complete. Rows that `batches` missed are read by id. Memory:
        about 160 bytes a row. With ``repeated`` it also yields rows whose id came before: two rows of one id, or a row
        that moved meanwhile.
        """
        seen: set[int] = set()  # Python's hashes of strings have 64 bits and a secret key

        def unseen(part: Batch) -> Batch:
            first = {hash(name): at for at, name in reversed(list(enumerate(part.ids)))}
            order = sorted(at for key, at in first.items() if key not in seen)
            seen.update(first)
            return part if repeated or len(order) == len(part) else part.rows(order)

        for batch in self.batches(size):
            if len(part := unseen(batch)):
                yield part
        for _ in range(_COMPARISONS):
            listed, missed = 0, []
            names_listed: set[int] = set()
            for names in self.ids():
                listed += len(names)
                names_listed.update(map(hash, names))
                missed += [name for name in names if hash(name) not in seen]
            counted = self.count()
            # A table that inherits from another can contain two rows of one id, of which `read` returns one.
            if not missed and listed == counted and (repeated or len(names_listed) == counted):
                return
            for start in range(0, len(missed), size):
                if len(part := unseen(self.read(missed[start : start + size], missing="skip"))):
                    yield part
        if not missed and listed == counted:
            said = f"{listed:,} rows have {len(names_listed):,} different ids. Give each row its own id."
            raise StoreError(said, code="E-STORE-IDS", param="database")
        raise StoreError(
            f"The database is inconsistent: {len(seen):,} ids were read, {listed:,} are listed, {counted:,} are "
            f"counted, and {len(missed):,} of those listed were never read. Stop programs that write to it, or repair "
            "it.",
            code="E-STORE-INCOMPLETE",
            param="database",
        )

    def beside(self) -> Iterator[tuple[str, Iterable[Mapping[str, Any]]]]:
        """Yield name and rows of each table that belongs to the collection or is in its file."""
        yield from ()

    def compact(self) -> str:
        """Overwrite the remains of deleted rows as far as the client can; return what it did, or ``""``."""
        return ""

    def files(self) -> list[str]:
        """Return the local files and folders of the database, some of which may not exist; raise for a server."""
        raise StoreError("The database has no local files.", code="E-STORE-FILES", param="location")

    @property
    def normalises(self) -> bool:
        """True if the store scales vectors to norm 1 for cosines; other stores return float32 bit for bit."""
        return False

    def apart(self) -> VectorStore:
        """Return the store in a subprocess if its database leaks process memory into files, else itself.

        The caller closes the returned store if it is a new one.
        """
        return self

    def close(self) -> None:  # noqa: B027 - most stores hold nothing open
        """Close connections and files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


OPENING = threading.RLock()
"""Held while a client connects or a collection is made: a thread would open a folder twice, or find it half made."""


class DatabaseStore(VectorStore):
    """Base class of databases: checks arguments, then calls ``_info``, ``_create`` and the other abstract methods.

    Any exception that these raise becomes a `StoreError`. Without a name, ``collection`` is the only one, and
    ``vector`` the only vectors.
    """

    options: ClassVar[tuple[str, ...]] = ("vector",)
    metrics: ClassVar[Mapping[str, Any]] = {}
    """The database's metrics by our names."""
    noun: ClassVar[str] = "collection"
    place: ClassVar[str] = ""
    """Description of a local place, for errors."""
    page: ClassVar[int] = 500
    """Ids per request of `read` and `delete`."""

    def __init__(self, where: str, collection: str | None = None, *, vector: str = "") -> None:
        self._where, self._name = os.path.expanduser(str(where)), collection or ""  # a Path works too
        self._vector = vector
        self._remote = "://" in self._where
        self._owner = type(self).__name__

    @classmethod
    def open(cls, where: str, collection: str | None, **options: str) -> Self:
        return cls(where, collection, **options)

    @abstractmethod
    def _names(self) -> list[str]:
        """Return the collections of an existing place."""

    def _place_exists(self) -> bool:
        """Return whether a local path contains a database; True for servers."""
        # Checked first: most clients create an empty database at a mistyped path.
        return True

    @abstractmethod
    def _info(self) -> StoreInfo: ...

    @abstractmethod
    def _create(self, dimension: int, metric: str | None, filter_fields: Sequence[str]) -> None: ...

    @abstractmethod
    def _batches(self, size: int, after: str) -> Iterator[Batch]: ...

    def _listed(self) -> Iterator[list[str]]:
        return super().ids()

    @abstractmethod
    def _read(self, ids: list[str]) -> Batch:
        """Return the rows of distinct ids in any order, without missing ones."""

    @abstractmethod
    def _write(self, batch: Batch) -> None:
        """Write at least one row, with distinct ids and finite vectors of the right dimension."""

    @abstractmethod
    def _search(self, vector: npt.NDArray[np.float32], k: int, where: Where) -> list[Match]: ...

    @abstractmethod
    def _delete(self, ids: list[str]) -> None: ...

    def dimension(self) -> int:
        """Return the dimension of the collection, or 0 if it accepts any."""
        # Overridden where `_info` would count rows: every write calls this.
        return self._info().dimension

    def _metric_named(self, theirs: Any) -> str | None:
        """Return our name of the database's metric ``theirs``, else ``theirs``."""
        # A copy with a different metric would rank differently: `create` refuses an unknown name.
        other = None if theirs is None else str(theirs).lower()
        return next((ours for ours, name in self.metrics.items() if name == theirs), other)

    def _only_vector(self, names: Iterable[str]) -> str:
        """Return the name of the vectors to read; raise `StoreError` unless it is given or the only one."""
        names = list(names)
        if self._vector not in names and (self._vector or len(names) != 1):
            raise unlisted(self.noun, "vector", self._vector, names)
        return self._vector or names[0]

    def _guard(self, doing: str) -> Any:
        return database_errors(doing)

    def _known(self) -> str:
        """Return the name of the collection; raise `StoreError` if it does not exist."""
        if not self._place_exists():
            raise no_place(self._where, self.place)
        names = self._names()
        listed = ", ".join(sorted(names)[:10]) or "none"
        if not self._name and len(names) != 1:
            raise StoreError(f"Name a {self.noun}: KIND:WHERE#NAME. The database has: {listed}.", param="location")
        self._name = self._name or names[0]
        if self._name not in names:
            raise StoreError(
                f"The database has no {self.noun} {self._name[:80]!r}. It has: {listed}.",
                code="E-STORE-NOT-FOUND",
                param=self.noun,
            )
        return self._name

    def exists(self) -> bool:
        with self._guard("listing the collections"):
            names = self._names() if self._place_exists() else []
        return self._name in names if self._name else len(names) == 1

    def info(self) -> StoreInfo:
        with self._guard("describing the collection"):
            return self._info()

    def compact(self) -> str:
        with self._guard("compacting"):
            return self._compact(self._known())

    def _compact(self, name: str) -> str:
        return ""

    def files(self) -> list[str]:
        if self._remote:
            raise StoreError("The files of a server are not accessible.", code="E-STORE-FILES", param="location")
        return [os.path.realpath(path) for path in self._paths()]

    def _paths(self) -> list[str]:
        return [self._where]

    def create(self, dimension: int, *, metric: str | None = None, filter_fields: Sequence[str] = ()) -> None:
        for name in filter_fields:
            check_filter_field(name, owner=self._owner, param="filter_fields")
        dimension = check_count(dimension, owner=self._owner, param="dimension")
        with OPENING:
            self._create_unless_there(dimension, metric, filter_fields)

    def _create_unless_there(self, dimension: int, metric: str | None, filter_fields: Sequence[str]) -> None:
        if not self.exists():
            self._create_new(dimension, metric, filter_fields)
        # An empty collection may exist already, created with options that `create` does not know, or by another
        # process.
        with self._guard("describing the collection"):
            existing = self.dimension()
            if existing not in (0, dimension):
                said = f"The {self.noun} has {existing} dimensions, not {dimension}. Name another {self.noun}."
                raise StoreError(said, param="dimension")
            self._check_reuse(filter_fields)

    def _create_new(self, dimension: int, metric: str | None, filter_fields: Sequence[str]) -> None:
        if metric is not None and metric not in self.metrics:
            fix = f"Use another database, or make the {self.noun} with one of these metrics first."
            raise unknown_name(self._owner, "metric", self.metrics, metric, fix=fix)
        if not self._name:
            raise InvalidInputError(f"Name the {self.noun} to make: KIND:WHERE#NAME.", param="location")
        # Clients reject names by their own rules; their error is not passed on.
        fix = f"Check that the database runs and takes the name for a {self.noun}, then repeat the command."
        try:
            with database_errors(f"making the {self.noun}", fix):
                self._create(dimension, metric, filter_fields)
        except StoreError:
            if not self.exists():  # otherwise another process created it first
                raise

    def _check_reuse(self, filter_fields: Sequence[str]) -> None:
        """Raise if an existing collection must not be written to, or cannot filter by these fields."""

    def batches(self, size: int = 1000, *, after: str = "") -> Iterator[Batch]:
        size = check_count(size, owner=self._owner, param="size")
        with self._guard("reading rows"):
            yield from self._batches(size, after)

    def ids(self) -> Iterator[list[str]]:
        with self._guard("listing ids"):
            yield from self._listed()

    def read(self, ids: Sequence[str], *, missing: Missing = "raise") -> Batch:
        ids = self.spelled(ids)
        # Distinct ids: a database returns a row once, however often its id is given.
        unique = list(dict.fromkeys(ids))
        with self._guard("reading rows"):
            parts = [self._read(unique[i : i + self.page]) for i in range(0, len(unique), self.page)]
        batch = Batch.joined(parts) if parts else Batch((), np.empty((0, 0), np.float32), ())
        place = {name: at for at, name in enumerate(batch.ids)}
        absent = sum(name not in place for name in ids)
        if absent and missing == "raise":
            said = f"{absent} of these ids are not in the {self.noun}."
            raise StoreError(said, code="E-STORE-NOT-FOUND", param="ids")
        return batch.rows([place[name] for name in ids if name in place])

    def write(self, batch: Batch) -> None:
        vectors = check_embeddings(np.asanyarray(batch.vectors), owner=self._owner, param="vectors")
        with self._guard("writing rows"):
            dimension = self.dimension() or vectors.shape[1]
            if vectors.shape[1] != dimension:
                said = f"The {self.noun} has {dimension} dimensions; the rows have {vectors.shape[1]}."
                raise StoreError(said, param="vectors")
            # Databases differ on equal ids in one request: resolve them here.
            last = {name: at for at, name in enumerate(self.spelled(batch.ids))}
            if last:
                batch = Batch(batch.ids, vectors.astype(np.float32, copy=False), batch.fields)
                self._write(batch if len(last) == len(batch) else batch.rows(list(last.values())))

    def search(self, vector: Any, k: int = 10, where: Where | None = None) -> list[Match]:
        query = check_embeddings(np.atleast_2d(vector), owner=self._owner, param="vector")
        k = check_count(k, owner=self._owner, param="k")
        for name, values in (where or {}).items():
            check_filter_field(name, owner=self._owner, param="where")
            listed = isinstance(values, Sequence) and not isinstance(values, str)
            if not listed or not all(isinstance(value, str) for value in values):
                raise wrong_type(self._owner, "where", "lists of strings by field", values)
            if not values:
                return []
        with self._guard("searching"):
            return self._search(np.ascontiguousarray(query[0], dtype=np.float32), k, where or {})

    def delete(self, ids: Sequence[str]) -> None:
        unique = list(dict.fromkeys(ids))
        with self._guard("deleting rows"):
            for start in range(0, len(unique), self.page):
                self._delete(unique[start : start + self.page])


@contextmanager
def database_errors(doing: str, fix: str = "") -> Iterator[None]:
    """Convert exceptions of a database's client to `StoreError`; ``doing`` is a phrase such as ``reading rows``."""
    # Type only, no text and no cause: clients quote rows, vectors and passwords in messages. The error stays the
    # context, which VECVEIL_DEBUG=1 shows.
    try:
        yield
    except VecveilError:
        raise
    except Exception as error:
        fix = fix or "Check that the database runs and accepts writes, then repeat the command; finished work is kept."
        raise StoreError(
            f"The database failed ({type(error).__name__}) while {doing}. {fix} VECVEIL_DEBUG=1 shows "
            "what it said, which may contain data.",
            code="E-STORE-DATABASE",
            param=doing,
        ) from None


def no_place(where: str, expected: str) -> StoreError:
    name = os.path.basename(where.rstrip("/"))[:80]
    said = f"{name!r} is not {expected}" if os.path.exists(where) else f"Not found: {name!r} (looked for {expected})"
    return StoreError(f"{said}.", code="E-STORE-NOT-FOUND", param="location")


def unlisted(param: str, option: str, name: str, names: Sequence[str]) -> StoreError:
    """Return the error for a location whose ``option`` is missing or not one of ``names``."""
    listed = ", ".join(repr(known[:80]) for known in sorted(names)[:10]) or "none is known"
    start = f"There is no {option} {name[:80]!r}" if name else f"Name one {option}: the database has several or none"
    return StoreError(
        f"{start}. Known: {listed}. Write KIND:WHERE#COLLECTION?{option}=NAME.", code="E-STORE-NOT-FOUND", param=param
    )


def stacked(vectors: Sequence[Any], dimension: int) -> npt.NDArray[np.float32]:
    """Return the vectors as rows (N, dimension); None and vectors of another dimension become NaN."""
    X = np.full((len(vectors), dimension), np.nan, np.float32)
    for row, vector in zip(X, vectors, strict=True):
        if vector is not None and len(vector) == dimension:
            row[:] = vector
    return X


def sparse_rows(values: Mapping[int, float]) -> npt.NDArray[np.float64]:
    """Return a sparse vector as rows (N, 2) of index and value."""
    return np.array(sorted(values.items()), np.float64).reshape(-1, 2)


def distance_of(similarity: float, metric: str | None) -> float:
    """Return the distance for a similarity of Milvus or Qdrant, which they return for cosine and dot."""
    if metric == "cosine":
        return 1 - float(similarity)
    return -float(similarity) if metric == "dot" else float(similarity)


def unfiltered() -> StoreError:
    return StoreError("The table has no column for a field of `where`: make it with `filter_fields`.", param="where")


def invalid_cursor() -> InvalidInputError:
    return InvalidInputError("`after` is not a cursor of this store.", param="after")


def check_cursor(after: str) -> int:
    # isdecimal alone accepts digits of other scripts.
    if after and not (isinstance(after, str) and after.isascii() and after.isdecimal()):
        raise invalid_cursor()
    return int(after or 0)


def json_cursor(after: str) -> str | None:
    """Return the id in a cursor, or None at the start."""
    # JSON, because an empty id must differ from the empty cursor.
    try:
        last = json.loads(after) if after else None
    except (TypeError, ValueError):
        last = 0
    if last is not None and not isinstance(last, str):
        raise invalid_cursor()
    return last


def integer_id(name: str) -> int:
    """Return an id as an integer of 64 bits, for databases with numeric keys."""
    # No other spelling: "007" and " 7" would become 7, the id of another row.
    if not re.fullmatch(r"0|-?[1-9][0-9]{0,18}", name) or not -(1 << 63) <= int(name) < 1 << 63:
        raise InvalidInputError("The database's key is a 64-bit integer: `ids` must be integers.", param="ids")
    return int(name)


def as_json(fields: Mapping[str, Any]) -> str:
    return json.dumps(plain(fields), ensure_ascii=False)


def plain(fields: Mapping[str, Any], *, binary: bool = False) -> dict[str, Any]:
    """Return the fields that are not None as JSON values; see `json_value`. ``binary`` accepts bytes."""
    kept = {}
    for name, value in fields.items():
        try:
            if isinstance(value, bytes | bytearray | memoryview) and not binary:
                raise TypeError(type(value).__name__)
            kept[str(name)] = json_value(value)
        except TypeError as error:
            raise StoreError(
                f"The field {str(name)[:80]!r} contains a {error}. Fields are numbers, texts, times, lists or objects. "
                "Leave it out with drop (--drop).",
                param="fields",
            ) from None
    return {name: value for name, value in kept.items() if value is not None}


def protector_mark(protector: Protector) -> str:
    """Return the value of `PROTECTOR_FIELD` for rows that ``protector`` released."""
    return protector.fingerprint[:16]


def with_blob(fields: Mapping[str, Any], blob: bytes | None, tokens: Mapping[str, str] = {}) -> Mapping[str, Any]:
    """Return ``fields`` with the blob, if given, and new filter tokens."""
    values = {name: value for name, value in fields.items() if not name.startswith(FILTER_PREFIX)}
    values |= tokens
    if blob is not None:
        values[SEALED_FIELD] = base64.b64encode(blob).decode()
    return like(fields, values)


def like(fields: Mapping[str, Any], values: dict[str, Any]) -> Mapping[str, Any]:
    """Return ``values`` as a row like ``fields``: rows of typed tables carry their layout (`pgvector.TableRow`)."""
    with_values = getattr(fields, "with_values", None)
    return values if with_values is None else cast(Mapping[str, Any], with_values(values))
