"""`SealedIndex`: exact search in memory for the owner of the key; the storage has encrypted segments."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack, overload
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vecveil.errors import IncompatibleError, InvalidInputError, StoreError, wrong_type
from vecveil.index.audit_log import AuditEntry, AuditLog
from vecveil.index.blob import check_range, metadata_json
from vecveil.index.filters import (
    MetadataTable,
    Where,
    check_compared,
    check_forced,
    check_where,
    is_empty,
    named_fields,
)
from vecveil.index.index_keys import KeySource
from vecveil.index.log import RETAIN, SegmentLog, StorageOptions
from vecveil.index.members import Member, Role, checked_member, public_keys
from vecveil.index.scan import nearest
from vecveil.index.sealer import Ranking, Unsealed
from vecveil.index.segments import PRECISIONS, encode_vectors
from vecveil.index.state import LoadedSegment, Snapshot, parsed_metadata, words_in
from vecveil.index.words import Words, scores
from vecveil.texts.encoders import Encoder, load_encoder
from vecveil.texts.encoders.text_encoder import TextEncoder, as_text_encoder
from vecveil.types import Embeddings
from vecveil.validation import (
    check_count,
    check_embeddings,
    check_positive,
    check_probability,
    check_same_length,
    check_texts,
    check_unmasked,
)

Answer = TypeVar("Answer")
Mode = Literal["vectors", "hybrid"]
Selection = tuple[LoadedSegment, npt.NDArray[np.bool_]]
Hit = tuple[float, LoadedSegment, int]
_Vector = np.ndarray[tuple[int], np.dtype[np.floating[Any]]]
_Matrix = np.ndarray[tuple[int, int], np.dtype[np.floating[Any]]]

_OWNER = "SealedIndex"
_CALLERS = 8
_ONE_THREAD = 500_000  # rows that one thread searches
_opened: WeakSet[SealedIndex] = WeakSet()
_ATTEMPTS = 20  # of `forget`, while others add rows that match
_FUSED = 60  # k of reciprocal rank fusion (Cormack et al., SIGIR 2009)


class SearchOptions(TypedDict, total=False):
    """The options of `SealedIndex.search`."""

    top: int
    where: Where | None
    mode: Mode
    words: str | Sequence[str] | None
    alpha: float
    candidates: int | None


@dataclass(frozen=True)
class MembersOfIndex:
    """Result of `SealedIndex.members`.

    Attributes:
        founder: public string of the owner who first shared the index, or None.
        members: ``public``, ``roles`` and ``name`` of each.
        renewal_pending: whether somebody was removed who still has the data key: `SealedIndex.remove` was interrupted.
    """

    founder: str | None
    members: tuple[dict[str, Any], ...]
    renewal_pending: bool

    def to_record(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class IndexRepair:
    """Result of `SealedIndex.repair`.

    Attributes:
        commits: names of the replaced commits.
        given_up: ``segment``, ``rows``, ``commit`` and ``signer`` of each segment that was missing or did not open, in
            a replaced commit, and with ``drop`` in any.
    """

    commits: tuple[str, ...]
    given_up: tuple[dict[str, Any], ...]

    def to_record(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return asdict(self)


class SealedIndex:
    """Texts and vectors in encrypted segments, searched by exact cosines in the memory of this process.

    Args:
        location: folder, or fsspec URL such as ``s3://bucket/notes``; ``sealed:`` before it may stay. The first `add`
            makes the index.
        key: path of a key file, a `KeyStore`, ``env:NAME:STORE``, ``awskms:NAME:STORE`` or another key service, or 32
            bytes, as for `Sealer`; or a `KeyProvider`, which then wraps each segment's key itself. A provider without
            ``unwrap`` makes a process that only adds.
        encoder: encoder of texts and queries, or its name; None for an index of given vectors. No embedding is cached.
        create: if False, reading a place without an index raises. By default such a place counts as an empty index;
            `add` makes the index in any case.
        name: name in the key store, of a new index; by default its location.
        precision: of the vectors of a new index: ``float16``, or ``int8`` with one scale a row. An existing index keeps
            its own.
        candidates: rows to rank exactly at least. A search ranks further rows, and in the end all, until no other
            row is likely to be among the ``top``; fewer candidates cost no accuracy.
        max_staleness (2): seconds until a search looks for what other processes have written.
        trusted_state: path of the small file that remembers the newest commit seen, by which a storage that is rolled
            back is noticed. By default it lies beside the key file, in ``KEYFILE.heads``; machines may share one. A
            key without a file needs it.
        audit_log: an `AuditLog`, or a path or `logging.Handler` for one: a line for each operation, without texts,
            vectors, ids and values. An operation that cannot be logged raises.
        cache: folder for encrypted copies of remote segments.
        storage_options: options of the fsspec file system.
        exclusive: True if no other process writes. Needed where the storage cannot create an object conditionally.
        vectors: where the vectors are that a search ranks: in ``memory``; on ``disk``, read from the encrypted objects,
            which of a remote index are copied; or ``remote``, fetched from the storage by parts, which shows it which
            rows a query ranks. ``auto`` takes memory while half of it is free, then disk, and ``remote`` for a remote
            index of more than 256 MiB of which nothing has been copied.
        owner: public string (``veil1…``) of the owner who first shared the index. Without it the first use on this
            machine decides. A member who only writes needs it most: a forged list of members would let the storage's
            operator open what is written.

    Guarantee:
        The storage contains ciphertext (AES-256-GCM). Its operator, and whoever steals it, learns the number of
        objects, who loads them and when, their padded sizes, and thus about how many rows there are and how long texts
        are on average, the dimension and precision of the vectors, and which objects a commit replaced, and can confirm
        a guess of the encoder; not texts, ids, metadata, vectors, equality of rows, queries or results, but with
        ``remote`` the blocks that a search ranks. Objects that are withheld, and parts read that were altered,
        exchanged or renamed, are noticed before an answer is given; of the newest commits, those that this machine has
        seen.

    Not protected:
        The memory of this process, and whoever has the key.

    Cost:
        Memory a row: n/4 bytes of codes, 16 bytes, and with ``vectors="memory"`` the vector at its precision.
    """

    filter_fields: tuple[str, ...] | None = None  # `where` compares every field
    rewrites_texts = False

    def __init__(
        self,
        location: str | os.PathLike[str],
        key: Any,
        *,
        encoder: str | Encoder | Callable[[list[str]], Any] | None = None,
        create: bool = True,
        name: str | None = None,
        precision: str = "float16",
        candidates: int = 200,
        audit_log: AuditLog | str | os.PathLike[str] | logging.Handler | None = None,
        **storage: Unpack[StorageOptions],
    ) -> None:
        if not isinstance(location, str | os.PathLike):
            raise wrong_type(_OWNER, "location", "a folder or an fsspec URL", location)
        self.location = os.path.expanduser(os.fspath(location).removeprefix("sealed:"))
        if not self.location or "\0" in self.location:
            raise InvalidInputError(f"{_OWNER}: `location` names no folder.", param="location")
        if precision not in PRECISIONS:
            raise InvalidInputError(
                f"{_OWNER}: `precision` is one of {', '.join(PRECISIONS)}.", code="E-INPUT-NAME", param="precision"
            )
        for param, value in (("create", create), ("exclusive", storage.get("exclusive", False))):
            if not isinstance(value, bool):
                raise wrong_type(_OWNER, param, "True or False", value)
        for param, path in (("cache", storage.get("cache")), ("trusted_state", storage.get("trusted_state"))):
            if not isinstance(path, str | os.PathLike | None):
                raise wrong_type(_OWNER, param, "a path", path)
        self.create = create
        self.candidates = check_count(candidates, owner=_OWNER, param="candidates")
        self._audit_log = audit_log if isinstance(audit_log, AuditLog | None) else AuditLog(audit_log)
        source = KeySource(key, name or self.location)
        self._log = SegmentLog(self.location, source, precision=precision, encoder=_encoder(encoder), **storage)
        _opened.add(self)
        # Of the segments that are loaded; dropped with them. Many threads may need one at once, and one builds it.
        self._tables: WeakKeyDictionary[LoadedSegment, MetadataTable] = WeakKeyDictionary()
        self._words: WeakKeyDictionary[LoadedSegment, Words] = WeakKeyDictionary()
        self._start_threads()

    def _start_threads(self) -> None:
        """Make the lock and the pools, anew in a forked process, which has none of the threads."""
        self._building = threading.Lock()
        self._threads = ThreadPoolExecutor(min(8, os.cpu_count() or 1), thread_name_prefix="sealed-index")
        # Of `AsyncSealedIndex`: a call that waited in the other pool for its own scans could wait for ever.
        self.callers = ThreadPoolExecutor(_CALLERS, thread_name_prefix="sealed-index-caller")

    def __repr__(self) -> str:
        return f"SealedIndex({Path(self.location).name!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def noted_encoder(self) -> str | None:
        """Fingerprint of the encoder of the index; None if its newest segment notes none."""
        chain = self._log.state()
        return chain.encoder if chain else None

    @property
    def precision(self) -> str:
        """Precision of the vectors."""
        self._log.state()
        return self._log.precision

    @property
    def encoder(self) -> TextEncoder | None:
        """Encoder of texts and queries."""
        return self._log.encoder

    @property
    def reads(self) -> bool:
        """Return whether this key opens rows; a writer's, or a provider without ``unwrap``, only adds and deletes."""
        self._log.state()
        return self._log.existing().reads

    def close(self) -> None:
        """Close the files and drop what is in memory."""
        self._log.close()
        self._threads.shutdown(wait=True)
        self.callers.shutdown(wait=False)  # this may be one of its threads
        self.callers = ThreadPoolExecutor(_CALLERS)  # for calls that now fail
        self._tables.clear()
        self._words.clear()

    def add(
        self,
        texts: Sequence[str] | None = None,
        *,
        ids: Sequence[str] | None = None,
        metadata: Sequence[Mapping[str, Any] | None] | None = None,
        vectors: Embeddings | None = None,
    ) -> list[str]:
        """Add rows, replacing equal ids; return the ids once the rows are durable.

        Args:
            texts: text of each row; None if only ``vectors`` are stored.
            ids: distinct strings; None makes a random UUID for each row.
            metadata: JSON object of each row; every field can be filtered by. Times become ISO texts.
            vectors: (N, n), if they are at hand; otherwise the encoder embeds the texts.

        Raises:
            InvalidInputError: lengths differ, ids repeat, vectors are not finite or beyond the precision's range.
            IncompatibleError: the index has a different encoder or dimension.
            StoreError: the storage cannot be written. Whether the rows exist is then unknown. Add them again with the
                same ids: without ``ids`` they may then be there twice.
        """
        owner = f"{_OWNER}.add"
        if texts is None and vectors is None:
            raise InvalidInputError(f"{owner}: pass texts, vectors or both.", param="texts")
        listed = None if texts is None else list(check_texts(texts, owner=owner, min_rows=0))
        if ids is None:
            first = listed or [] if vectors is None else check_embeddings(vectors, owner=owner, param="vectors")
            ids = [str(uuid.uuid4()) for _ in first]
        names = _checked_ids(ids, owner)
        if len(set(names)) < len(names):
            raise InvalidInputError(f"{owner}: `ids` repeats an id.", code="E-INPUT-IDS", param="ids")
        given = {"texts": listed, "metadata": metadata, "vectors": vectors}
        check_same_length(owner, ids=names, **{k: v for k, v in given.items() if v is not None})
        if not names:
            return names
        rows = [None] * len(names) if metadata is None else metadata
        records = [metadata_json(row, owner, i) for i, row in enumerate(rows)]
        encoder = self.encoder
        X = _required(encoder, owner).encode(listed or []) if vectors is None else vectors
        X = check_embeddings(X, owner=owner, param="vectors")
        check_range(X, self.precision, owner)

        def columns(n: int, precision: str) -> dict[str, Any]:
            check_range(X, precision, owner)  # another process may have made the index with its own precision
            return _rows(names, X, listed, records, n, precision)

        with self._operation("add", changes=True) as entry:
            self._log.append(columns, X.shape[1], encoder=encoder)
            entry.rows = len(names)
        return names

    def delete(self, ids: Sequence[str] | None = None, *, where: Where | None = None) -> None:
        """Delete rows by id, or the rows that match ``where``; unknown ids are ignored.

        A row that another process adds during the call may stay. Older versions stay, encrypted, until a day after
        `compact`.

        Raises:
            InvalidInputError: no row has a field that ``where`` compares, or ``where`` is empty.
        """
        check_choice(ids, where, f"{_OWNER}.delete")
        with self._operation("delete", where, changes=True) as entry:
            if where is not None and self.exists():
                self.refresh()
            chosen = self._ids_of(where) if ids is None else _checked_ids(ids, f"{_OWNER}.delete")
            names = list(dict.fromkeys(chosen))
            if names and (self._log.exists() or not self.create):
                self._log.existing()
                records = ["null"] * len(names)
                self._log.append(lambda *layout: _rows(names, None, None, records, *layout), None, deleted=True)
            entry.rows = len(names)

    @overload
    def search(self, query: str | _Vector, **options: Unpack[SearchOptions]) -> Ranking: ...
    @overload
    def search(self, query: list[str] | list[_Vector] | _Matrix, **options: Unpack[SearchOptions]) -> list[Ranking]: ...
    def search(
        self,
        query: Any,
        *,
        top: int = 10,
        where: Where | None = None,
        mode: Mode = "vectors",
        words: str | Sequence[str] | None = None,
        alpha: float = 0.5,
        candidates: int | None = None,
    ) -> Ranking | list[Ranking]:
        """Return the ``top`` rows by the exact cosine of ``query``, a text or vector (n,).

        For a list of texts, or vectors (m, n), a list has the `Ranking` of each.

        Args:
            where: conditions by metadata field: a value, a list of values, or operators as in
                ``{"year": {"gte": 2024, "lt": 2026}, "draft": {"exists": False}}`` (eq, ne, gt, gte, lt, lte, in, nin,
                exists, and for parts of a text contains and icontains); joined by ``$and``, ``$or`` and ``$not``; or an
                expression of ``pyarrow.compute``.
            mode: ``hybrid`` adds words (BM25) by reciprocal ranks. The scores stay cosines.
            words: text whose words ``hybrid`` looks for, of several queries a list; by default ``query``.
            alpha: weight of the vectors in ``hybrid``, from 0 (words alone) to 1 (vectors alone).
            candidates: rows to rank exactly at least; None takes the index's number.

        Raises:
            InvalidInputError: no row has a field that ``where`` compares, or a value there of the type that it
                compares with.
            StoreError: there is no index, or an object that another process saw is missing.
            SealingError: an object does not open.
        """
        several = _several(query)

        def answer() -> list[Ranking]:
            found = self._find(query if several else [query], top, where, mode, words, alpha, candidates, strict=True)
            return [self._read(hits) for hits in found]

        with self._operation("search", where) as entry:
            rankings = self._retried(answer)
            entry.rows = sum(len(ranking.ids) for ranking in rankings)
        return rankings if several else rankings[0]

    def find(
        self,
        query: str | npt.NDArray[np.floating[Any]],
        *,
        top: int = 10,
        where: Where | None = None,
        mode: Mode = "vectors",
        words: str | None = None,
        alpha: float = 0.5,
        candidates: int | None = None,
    ) -> list[Hit]:
        """Return score, segment and row of what `search` returns; no text is opened. An unknown field is no error."""
        with self._operation("find", where) as entry:
            hits = self._retried(lambda: self._find([query], top, where, mode, words, alpha, candidates)[0])
            entry.rows = len(hits)
        return hits

    def _retried(self, answer: Callable[[], Answer]) -> Answer:
        """Return what ``answer`` does, from a newer state if another process has deleted an object that it reads.

        Objects that are open, or copied, stay; of a remote index parts are read when they are needed.
        """
        while True:  # each time another commit has replaced the object
            try:
                return answer()
            except FileNotFoundError as error:
                self._log.pass_over(error)

    def _find(
        self,
        queries: Any,
        top: int,
        where: Where | None,
        mode: Mode,
        words: str | Sequence[str] | None,
        alpha: float,
        candidates: int | None,
        *,
        strict: bool = False,
    ) -> list[list[Hit]]:
        """Return the hits of each query; with ``strict`` check the fields of ``where`` before a text is encoded."""
        owner = f"{_OWNER}.search"
        top = check_count(top, owner=owner, param="top")
        candidates = self.candidates if candidates is None else candidates
        k = max(check_count(candidates, owner=owner, param="candidates"), top)
        if mode not in ("vectors", "hybrid"):
            raise InvalidInputError(f"{owner}: `mode` is vectors or hybrid.", code="E-INPUT-NAME", param="mode")
        alpha = check_probability(alpha, owner=owner, param="alpha")
        snapshot = self._snapshot()
        parts = self._selected(snapshot, where, owner)
        if strict and not any(mask.any() for _, mask in parts):
            self._check_fields(where)
        Q = self._queries(queries, snapshot.encoder, owner)
        if snapshot.dimension is not None and len(Q) and Q.shape[1] != snapshot.dimension:
            raise IncompatibleError(
                f"{owner}: the index contains vectors of {snapshot.dimension} dimensions; the query has {Q.shape[1]}.",
                param="query",
            )
        if mode == "vectors":
            return [self._ranked(q, parts, top, k, top) for q in Q]
        if words is None:
            words = queries
        texts = words if isinstance(words, list | tuple) else [words] * len(Q)
        if len(texts) != len(Q) or not all(isinstance(text, str) for text in texts):
            raise InvalidInputError(
                f"{owner}: mode='hybrid' needs a text as query, or as words=...",
                param="query" if words is queries else "words",
            )
        return [
            self._fused(q, text, parts, self._ranked(q, parts, k, k, top), k, alpha)[:top]
            for q, text in zip(Q, texts, strict=True)
        ]

    def read(self, hits: Sequence[Hit]) -> Ranking:
        """Return the rows that `find` found, with texts and metadata.

        Raises:
            StoreError: of a remote index, another process has deleted an object since; search again.
        """
        with self._operation("read") as entry:
            entry.rows = len(hits)
            try:
                return self._read(hits)
            except FileNotFoundError as error:
                raise _replaced(f"{_OWNER}.read", "Search again.") from error

    def _read(self, hits: Sequence[Hit]) -> Ranking:
        rows = self._opened([(part, row) for _, part, row in hits])
        scored = np.array([score for score, _, _ in hits], np.float32)
        return Ranking(rows.ids, rows.vectors, rows.texts, rows.metadata, [], scored)

    def get(
        self,
        ids: Sequence[str] | None = None,
        *,
        where: Where | None = None,
        missing: Literal["raise", "skip"] = "raise",
    ) -> Unsealed:
        """Return vectors, texts and metadata of rows; ``ids`` None takes all rows.

        Raises:
            StoreError: an id has no row.
        """
        with self._operation("get", where) as entry:
            rows = self._retried(lambda: self._get(ids, where, missing))
            entry.rows = len(rows.ids)
        return rows

    def _get(self, ids: Sequence[str] | None, where: Where | None, missing: str) -> Unsealed:
        owner = f"{_OWNER}.get"
        if missing not in ("raise", "skip"):
            raise InvalidInputError(f"{owner}: `missing` is 'raise' or 'skip'.", code="E-INPUT-NAME", param="missing")
        snapshot = self._snapshot()
        selected = self._selected(snapshot, where, owner)
        if ids is None:
            places = [(part, int(row)) for part, mask in selected for row in np.flatnonzero(mask)]
        else:
            found = self._located(snapshot, _checked_ids(ids, owner))
            absent = [name for name, place in zip(ids, found, strict=True) if place is None]
            if absent and missing == "raise":
                raise StoreError(
                    f"{owner}: {len(absent)} of the {len(ids)} ids have no row. Pass missing='skip' to leave them out.",
                    code="E-STORE-IDS",
                    param="ids",
                )
            masks = {id(part): mask for part, mask in selected}
            places = [place for place in found if place is not None and masks[id(place[0])][place[1]]]
        if not places:
            self._check_fields(where)
        return self._opened(places)

    def iter(self, where: Where | None = None, *, batch: int = 1000) -> Iterator[Unsealed]:
        """Yield all rows, or those that match ``where``, in parts of ``batch`` rows, as `get` returns them.

        The rows are those of the moment of the call, whatever is written meanwhile.

        Raises:
            InvalidInputError: no row has a field that ``where`` compares.
            StoreError: there is no index. Of a remote index, another process has deleted an object since; start again.

        Cost:
            Memory for one part, and one byte a row of the index.
        """
        owner = f"{_OWNER}.iter"
        size = check_count(batch, owner=owner, param="batch")
        with self._operation("iter", where) as entry:
            selected = self._retried(lambda: self._selected(self._snapshot(), where, owner))
            if not any(mask.any() for _, mask in selected):
                self._check_fields(where)
            entry.rows = _number(selected)
        places = ((part, int(row)) for part, mask in selected for row in np.flatnonzero(mask))

        def parts() -> Iterator[Unsealed]:
            while part := list(itertools.islice(places, size)):
                try:
                    yield self._opened(part)
                except FileNotFoundError as error:
                    raise _replaced(owner, "Start again.") from error

        return parts()

    def ids(self, where: Where | None = None) -> list[str]:
        """Return the ids of all rows, or of those that match ``where``."""
        with self._operation("ids", where) as entry:
            names = self._ids_of(where)
            entry.rows = len(names)
        return names

    def _ids_of(self, where: Where | None) -> list[str]:
        def answer() -> list[str]:
            selected = self._selected(self._snapshot(), where, f"{_OWNER}.ids")
            names = [name for part, mask in selected for name in _ids(part, mask)]
            if not names:
                self._check_fields(where)
            return names

        return self._retried(answer)

    def exists(self) -> bool:
        """Return whether there is an index."""
        return self._log.exists()

    def count(self) -> int:
        """Return the number of rows."""
        with self._operation("count") as entry:
            entry.rows = rows = _number(self._rows(self._snapshot()))
        return rows

    def restricted(self, where: Mapping[str, Any]) -> SealedIndex:
        """Return a read-only view of the rows that match ``where``, a mapping.

        Other rows do not exist for the view: not in errors, ids or the document frequencies of ``hybrid``. Filters of
        the view are mappings, too. The view closes with this index. ``where`` must not compare with None.
        """
        return _RestrictedIndex(self, where)

    def refresh(self, *, afresh: bool = False) -> None:
        """Load what other processes have written.

        Args:
            afresh: read every object from the storage again, instead of from memory and local copies.

        Raises:
            StoreError: there is no index, or an object that another process saw is missing.
        """
        self._log.refresh(afresh=afresh)

    def compact(self, *, retain: float = RETAIN) -> None:
        """Merge small segments and drop what is superseded, while others read and write.

        Args:
            retain: age in seconds from which replaced objects are deleted: one day by default, so that backups and
                readers that began before find theirs.

        Raises:
            StoreError: the storage cannot create an object conditionally, and ``exclusive`` is not set.
        """
        retain = check_positive(retain, owner=f"{_OWNER}.compact", param="retain", allow_zero=True)
        with self._operation("compact", changes=True):
            self._log.compact(retain=retain)

    def forget(self, ids: Sequence[str] | None = None, *, where: Where | None = None) -> int:
        """Rewrite every segment that contains a version of these rows without them; return how many rows were there.

        No object of the index contains the rows afterwards, nor what unfinished writes have left. Backups of the
        storage from before open as long as their data key exists: `reseal` deletes it, but not the copies for the
        members of a shared index.

        ``where`` selects among stored versions, too. A row that matches, or was deleted and matched, goes with all its
        versions. Of a row that matched before it was changed, the older versions go. The index is then read again, and
        what others have added meanwhile goes as well, until no stored version matches; one that is added after that
        stays.

        Raises:
            InvalidInputError: no row has a field that ``where`` compares, or ``where`` is empty.
            StoreError: there is no index, or others keep adding rows that match.
        """
        owner = f"{_OWNER}.forget"
        check_choice(ids, where, owner)
        with self._operation("forget", where, changes=True) as entry:
            entry.rows = rows = self._forget(ids, owner) if where is None else self._forget_matching(where, owner)
        return rows

    def _forget(self, ids: Sequence[str] | None, owner: str) -> int:
        names = list(dict.fromkeys(_checked_ids(ids, owner)))
        there = self._retried(lambda: sum(place is not None for place in self._log.refresh().locate(names)))
        if names:
            self._log.forget(names)
        return there

    def _forget_matching(self, where: Where, owner: str) -> int:
        def outdated(snapshot: Snapshot) -> set[str]:
            """Return the segments with a version that matches and is not current."""
            parts = snapshot.parts.items()
            return {name for name, part in parts if (self._stored(part, where) & ~snapshot.current[name]).any()}

        there = 0
        for attempt in range(_ATTEMPTS):
            current, versions, changed = self._matching(where, strict=not attempt)
            if attempt and not versions:
                return there
            there += len(current)
            self._log.forget(sorted(versions - changed), outdated)  # the first also deletes objects that were replaced
        raise StoreError(f"{owner}: other programs keep adding rows that match. Stop them first.", code="E-INDEX-BUSY")

    def _matching(self, where: Where, *, strict: bool = True) -> tuple[set[str], set[str], set[str]]:
        """Return the ids of rows that match, of stored versions that match, and of these the ones whose row does not.

        Raises:
            InvalidInputError: ``strict``, and no row has a field that ``where`` compares.
        """

        def answer() -> tuple[set[str], set[str], set[str]]:
            snapshot = self._log.refresh()
            matching = {name: self._stored(part, where) for name, part in snapshot.parts.items()}
            current, versions, changed = set[str](), set[str](), set[str]()
            for name, part in snapshot.parts.items():
                versions.update(_ids(part, matching[name]))
                current.update(_ids(part, matching[name] & snapshot.alive[name]))
            for name, part in snapshot.parts.items() if versions else ():
                changed.update(versions.intersection(_ids(part, snapshot.alive[name] & ~matching[name])))
            if strict and not versions:
                self._check_fields(where, [(part, ~part.deleted) for part in snapshot.parts.values()])
            return current, versions, changed

        return self._retried(answer)

    def _stored(self, part: LoadedSegment, where: Where) -> npt.NDArray[np.bool_]:
        """Return which rows of a segment match, whether or not they are current."""
        return self._table(part).mask(where) & ~part.deleted

    def reseal(self, *, show_progress: bool | None = None) -> int:
        """Rewrite every segment under a new data key and delete the older keys; return the number of rows.

        Others go on reading and writing. After an interruption call it again. Earlier commits no longer open. In a
        shared index, members who could read earlier commits and older copies of the storage still can.

        Raises:
            InvalidInputError: the key is no key store, so there is no key to delete.
            StoreError: writers keep appending under the older key. It stays.
        """
        with self._operation("reseal", changes=True) as entry:
            self._log.renew_keys()
            entry.rows = rows = self._snapshot().count()
        return rows

    def members(self) -> MembersOfIndex:
        """Return who may read and write. The list is empty if the index was never shared.

        Raises:
            StoreError: there is no index.
        """
        with self._operation("members"):
            self._log.existing()
            members = self._log.advance().members
        if members is None:
            return MembersOfIndex(None, (), renewal_pending=False)
        listing = members.listing
        people = tuple({"public": m.public, "roles": m.roles, "name": m.name} for m in listing.members)
        return MembersOfIndex(members.founder, people, renewal_pending=listing.renew)

    def share(self, public: str, roles: Role | Sequence[Role], *, name: str | None = None) -> None:
        """Make somebody a member of the index, or change the roles of a member.

        The first call makes this key file's identity an owner, and every later commit is signed. Taking ``reader`` from
        a member renews the keys as `remove` does.

        Args:
            public: public string of the member's key file, which `vecveil key new` prints.
            roles: ``owner``, or one or both of ``reader`` and ``writer``. A writer who does not read adds rows and
                deletes them by id, and holds nothing that opens the index.
            name: for `members`; the storage's operator sees it.

        Raises:
            InvalidInputError: not a public string, or an owner would take its own role.
            KeyFileError: this key file does not belong to an owner.
        """
        new, known = checked_member(public, roles, name), False

        def changed(members: Sequence[Member]) -> list[Member]:
            nonlocal known
            earlier = next((member for member in members if member.public == public), None)
            if earlier is None and known:  # on a later list than the one that this call began with
                raise StoreError(
                    f"{_OWNER}.share: another owner removed the member meanwhile. To add the member again, repeat the "
                    "call.",
                    code="E-INDEX-BUSY",
                )
            known = earlier is not None
            if earlier is None:
                return [*members, new]
            entry = Member(public, new.roles, name or earlier.name)
            return [entry if member is earlier else member for member in members]

        with self._operation("share", changes=True):
            self._log.change_members(changed)

    def remove(self, public: str) -> None:
        """Remove a member; if the member could read, renew the keys as `reseal` does.

        Commits that the member signs from then on are refused. After an interruption call it again, by this or another
        owner; until then `members` reports that the renewal is pending. What the member copied stays readable to them,
        and so does an old copy of the storage.

        Raises:
            InvalidInputError: no member has this public string, or it is this key file's own.
            KeyFileError: this key file does not belong to an owner.
        """
        public_keys(public)

        def changed(members: Sequence[Member]) -> list[Member]:
            chain = self._log.chain
            pending = chain is not None and chain.members is not None and chain.members.listing.renew
            if not pending and all(member.public != public for member in members):
                raise InvalidInputError(
                    f"{_OWNER}.remove: no member has this public string. `vecveil index members` lists them.",
                    code="E-INDEX-PUBLIC",
                    param="public",
                )
            return [member for member in members if member.public != public]

        with self._operation("remove", changes=True):
            self._log.change_members(changed)

    def repair(self, *, drop: bool = False) -> IndexRepair:
        """Replace the first refused commit and all later ones.

        Anyone who can write to the storage, such as a former writer, can stop all members with a commit that no member
        made. Readers refuse it and what follows. Additions and deletions by members in the replaced commits are kept.
        Run it on a machine that uses the index: it refuses to replace a commit that this machine has accepted. After
        an interruption call it again. Let one owner repair at a time: of two, one machine may have to forget the
        commit that it has seen.

        Args:
            drop: also read every segment, and remove those that are missing or do not open. Their rows are lost, and
                older versions of these are current again. If there is a copy of the index, restore it instead.

        Raises:
            InvalidInputError: the index was never shared.
            KeyFileError: this key file does not belong to an owner.
            StoreError: a commit that this machine or another owner has accepted is damaged, or with ``drop`` no
                segment opens. Restore a copy.
        """
        with self._operation("repair", changes=True) as entry:
            commits, lost = self._log.repair(drop=drop)
            entry.rows = sum(each.rows for each, _ in lost)
        given_up = tuple(
            {"segment": each.name, "rows": each.rows, "commit": each.commit, "signer": signer} for each, signer in lost
        )
        return IndexRepair(tuple(commits), given_up)

    def reencode(
        self, encoder: str | Encoder | Callable[[list[str]], Any], *, show_progress: bool | None = None
    ) -> int:
        """Encode every text again with a different encoder; one commit replaces all vectors. Return the number of rows.

        Others search and add with the former encoder until the commit, and get an error that names the new one
        afterwards. Finished vectors are kept in the storage, encrypted: after an interruption the same call goes on.

        Args:
            encoder: the new encoder, or its name.

        Raises:
            InvalidInputError: rows have no text, or the encoder has no fingerprint.
            StoreError: there is no index, or the storage cannot create an object conditionally.
        """
        new = _encoder(encoder)
        if new is None or new.model_fingerprint is None:
            raise InvalidInputError(
                f"{_OWNER}.reencode: the index notes the fingerprint of its encoder, and this one has none. Pass "
                "load_encoder(encoder, fingerprint=...).",
                param="encoder",
            )
        with self._operation("reencode", changes=True) as entry:
            self._retried(lambda: self._log.reencode(new, show_progress=show_progress))
            entry.rows = rows = self._snapshot().count()
        return rows

    @contextlib.contextmanager
    def _operation(self, name: str, where: Where | None = None, *, changes: bool = False) -> Iterator[AuditEntry]:
        """Log what the block does, if there is a log."""
        if self._audit_log is None:
            yield AuditEntry()
            return
        keys, chain = self._log.keys, self._log.chain
        shared = chain is not None and chain.members is not None and not self._audit_log.principal
        member = keys.signer.public if shared and keys and keys.signer else None
        place = Path(self.location).name
        with self._audit_log.operation(name, index=place, principal=member, changes=changes) as entry:
            entry.fields = functools.partial(self.logged_fields, where)
            yield entry

    def logged_fields(self, where: Where | None) -> list[str]:
        """Return the fields that ``where`` names, and ``?`` for a field that no row has: it may be a text."""
        try:
            check_where(where, _OWNER)
        except InvalidInputError:
            return []
        # Of the tables that the operation has read: the log must not wait for the storage.
        parts = self._log.snapshot.parts.values() if self._log.snapshot else ()
        known = set[str]().union(*(table.names for part in parts if (table := self._tables.get(part)) is not None))
        return sorted({name if name in known else "?" for name in named_fields(where)})

    def _snapshot(self) -> Snapshot:
        """Return the state to answer from."""
        if self.create and not self._log.exists():
            return Snapshot({}, {}, {}, encoder=self.encoder)
        return self._log.current()

    def _selected(self, snapshot: Snapshot, where: Where | None, owner: str) -> list[Selection]:
        """Return each part with the mask of its rows that match."""
        if where is None:
            return list(self._rows(snapshot))
        check_where(where, owner)
        return [(part, mask & self._table(part).mask(where)) for part, mask in self._rows(snapshot)]

    def _rows(self, snapshot: Snapshot) -> Iterable[Selection]:
        """Return each part with the mask of its rows."""
        return snapshot.live()

    def _located(self, snapshot: Snapshot, ids: Sequence[str]) -> list[tuple[LoadedSegment, int] | None]:
        """Return part and row of each id, or None for an id without a row."""
        return snapshot.locate(ids)

    def _check_fields(self, where: Where | None, among: Iterable[Selection] | None = None) -> None:
        """Raise if ``where``, which no row matches, compares a field or a type of value that no row has."""
        selected = [each for each in among or self._rows(self._snapshot()) if each[1].any()]
        if where is not None and selected:
            stored: dict[str, set[str]] = {}
            for part, mask in selected:
                for name, kind in self._table(part).fields(mask):
                    stored.setdefault(name, set()).add(kind)
            check_compared(where, stored)

    def _table(self, part: LoadedSegment) -> MetadataTable:
        with self._building, part.segment.parsed():
            if part not in self._tables:
                self._tables[part] = (
                    MetadataTable.read(part.segment, len(part))
                    if part.segment.has("fields")
                    else MetadataTable.of(part.segment.strings("metadata").to_pylist())
                )
            return self._tables[part]

    def _ranked(
        self, q: npt.NDArray[np.float32], parts: list[Selection], top: int, candidates: int, exact_to: int
    ) -> list[Hit]:
        """Return score, part and row of the ``top`` rows with the largest cosines, best first; see `nearest`."""
        large = sum(len(part) for part, _ in parts) > _ONE_THREAD
        scans = [(part.scan, mask) for part, mask in parts]
        try:
            best = nearest(q, scans, top, candidates, self._threads.map if large else map, exact_to=exact_to)
        except RuntimeError:
            self._log.check_open()
            raise
        return [(score, parts[i][0], row) for i, row, score in zip(*(column.tolist() for column in best), strict=True)]

    def _fused(
        self, q: npt.NDArray[np.float32], query: str, parts: list[Selection], ranked: list[Hit], top: int, alpha: float
    ) -> list[Hit]:
        """Return the rows of ``ranked`` and those with words of ``query`` by the weighted sum of reciprocal ranks."""
        found: list[Hit] = []
        counted = [(self._words_of(part), mask) for part, mask in parts]
        for (part, mask), values in zip(parts, scores(query, counted), strict=True):
            values = np.where(mask, values, 0)
            rows = np.flatnonzero(values)
            rows = rows[np.argsort(-values[rows], kind="stable")[:top]]
            found += [(float(values[row]), part, int(row)) for row in rows]
        found.sort(key=lambda hit: -hit[0])
        fused: dict[tuple[LoadedSegment, int], float] = {}
        for weight, ranking in ((alpha, ranked), (1 - alpha, found[:top])):
            for rank, (_, part, row) in enumerate(ranking, 1):
                fused[part, row] = fused.get((part, row), 0) + weight / (_FUSED + rank)
        best = sorted(filter(fused.get, fused), key=lambda place: -fused[place])[:top]
        cosines = np.empty(len(best), np.float32)
        for part in {part for part, _ in best}:
            mine = [i for i, (own, _) in enumerate(best) if own is part]
            cosines[mine] = part.scan.cosines(q, np.array([best[i][1] for i in mine]))
        return [(float(cosine), *place) for cosine, place in zip(cosines, best, strict=True)]

    def _words_of(self, part: LoadedSegment) -> Words:
        with self._building:
            if part not in self._words:
                self._words[part] = words_in(part.segment)
            return self._words[part]

    def _opened(self, places: list[tuple[LoadedSegment, int]]) -> Unsealed:
        """Return these rows; texts and metadata come from the local copy of the segments."""
        if places:
            self._log.check_rights()  # hits and iterators may be older than the keys' lifetime
        # The index may have been encoded again since these rows were found.
        n = places[0][0].segment.dimension if places else self._snapshot().dimension or 0
        vectors = np.zeros((len(places), n), np.float32)
        ids: list[Any] = [None] * len(places)
        texts: list[str | None] = [None] * len(places)
        metadata: list[dict[str, Any] | None] = [None] * len(places)
        by_part: dict[int, tuple[LoadedSegment, list[int]]] = {}
        for i, (part, _) in enumerate(places):
            by_part.setdefault(id(part), (part, []))[1].append(i)
        for part, mine in by_part.values():
            rows = np.array([places[i][1] for i in mine], np.int64)
            vectors[mine] = part.scan.vectors(rows)
            with part.segment.parsed():
                table = part.segment.table(["id", "text", "has_text", "metadata"], rows).to_pydict()
                for at, i in enumerate(mine):
                    ids[i] = table["id"][at]
                    texts[i] = table["text"][at] if table["has_text"][at] else None
                    metadata[i] = parsed_metadata(table["metadata"][at])
        return Unsealed(ids, vectors, texts, metadata, [])

    def _queries(self, queries: Any, encoder: TextEncoder | None, owner: str) -> npt.NDArray[np.float32]:
        """Return the vectors (m, n) of texts, or of vectors, with norm 1."""
        if len(queries) and all(isinstance(query, str) for query in queries):
            if not all(query.strip() for query in queries):
                raise InvalidInputError(f"{owner}: `query` is empty.", param="query")
            X = np.asarray(_required(encoder, owner).encode_query(list(queries)))
        else:
            check_unmasked(queries, owner, "query")
            try:
                X = np.asarray(queries)
            except ValueError:  # of different lengths
                X = np.empty(len(queries), object)
        if not len(X):
            return np.empty((0, 0), np.float32)
        if X.ndim != 2 or X.dtype.kind not in "fiu":
            raise InvalidInputError(
                f"{owner}: `query` is a text, one vector (n,) of real numbers, or a list of either, not an array of "
                f"type {X.dtype} and shape {X.shape}.",
                code="E-INPUT-SHAPE",
                param="query",
            )
        check_embeddings(X, owner=owner, param="query")
        largest = np.abs(X).max(axis=1, keepdims=True)
        if not largest.all():
            raise InvalidInputError(f"{owner}: `query` is a vector of zeros.", param="query")
        Q = (X / largest).astype(np.float32)  # squares of very large or small values are no float32
        return np.ascontiguousarray(Q / np.linalg.norm(Q, axis=1, keepdims=True))


class _RestrictedIndex(SealedIndex):
    """The rows of an index that match ``where``; see `SealedIndex.restricted`.

    It has the metadata and words of these rows alone: what a search computes, and for how long, then depends little on
    other rows.
    """

    def __init__(self, index: SealedIndex, where: Mapping[str, Any]) -> None:
        check_forced(where, f"{_OWNER}.restricted", "where")
        self._index, self._forced = index, copy.deepcopy(where)  # masks are made later
        self._tables: WeakKeyDictionary[LoadedSegment, MetadataTable] = WeakKeyDictionary()
        self._words: WeakKeyDictionary[LoadedSegment, Words] = WeakKeyDictionary()
        # Numbers of rows, not masks: there may be a thousand tenants.
        self._visible: WeakKeyDictionary[LoadedSegment, npt.NDArray[np.int32]] = WeakKeyDictionary()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)  # location, log, threads and locks, also of a fork

    def close(self) -> None:
        """Drop what is in memory for these rows."""
        for cache in (self._tables, self._words, self._visible):
            cache.clear()

    @contextlib.contextmanager
    def _operation(self, name: str, where: Where | None = None, *, changes: bool = False) -> Iterator[AuditEntry]:
        if changes:
            raise InvalidInputError(f"{_OWNER}.{name}: a restricted index is read-only.", code="E-INPUT", param="where")
        if where is not None and not isinstance(where, Mapping):
            # The type of a column, on which an expression depends, follows from the values of all rows.
            raise InvalidInputError(
                f"{_OWNER}.{name}: `where` of a restricted index is a mapping.", code="E-INPUT-TYPE", param="where"
            )
        with super()._operation(name, where) as entry:
            yield entry

    def _rows(self, snapshot: Snapshot) -> Iterable[Selection]:
        for part, mask in self._index._rows(snapshot):  # `_index` may be restricted itself
            yield part, mask & self._mask(part)

    def _located(self, snapshot: Snapshot, ids: Sequence[str]) -> list[tuple[LoadedSegment, int] | None]:
        masks = {id(part): mask for part, mask in self._rows(snapshot)}
        places = self._index._located(snapshot, ids)
        return [place if place is not None and masks[id(place[0])][place[1]] else None for place in places]

    def _mask(self, part: LoadedSegment) -> npt.NDArray[np.bool_]:
        if part not in self._visible:
            self._visible[part] = np.flatnonzero(self._index._table(part).mask(self._forced)).astype(np.int32)
        mask = np.zeros(len(part), np.bool_)
        mask[self._visible[part]] = True
        return mask

    def _table(self, part: LoadedSegment) -> MetadataTable:
        if part not in self._tables:
            self._tables[part] = self._index._table(part).among(self._mask(part))
        return self._tables[part]

    def _words_of(self, part: LoadedSegment) -> Words:
        if part not in self._words:
            words = self._index._words_of(part)
            with part.segment.parsed():
                self._words[part] = words.among(self._mask(part))
        return self._words[part]


def _after_fork() -> None:
    for index in _opened:
        index._log.after_fork()
        index._start_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _several(query: Any) -> bool:
    """Return whether ``query`` is a list of queries."""
    if isinstance(query, list | tuple):
        return not query or isinstance(query[0], str) or np.ndim(query[0]) > 0
    return np.ndim(query) > 1


def _encoder(encoder: Any) -> TextEncoder | None:
    if encoder is None:
        return None
    # The cache of embeddings would hold clean vectors on disk.
    return load_encoder(encoder, cache=None) if isinstance(encoder, str) else as_text_encoder(encoder, cache=None)


def check_choice(ids: Any, where: Where | None, owner: str) -> None:
    if (ids is None) is (where is None):
        raise InvalidInputError(f"{owner}: pass either ids or where.", param="ids")
    if where is not None:
        check_where(where, owner)
    if is_empty(where):
        raise InvalidInputError(
            f"{owner}: `where` has no condition, so that every row matches. For all rows pass the ids: index.ids().",
            param="where",
        )


def _number(selected: Iterable[Selection]) -> int:
    return sum(int(np.count_nonzero(mask)) for _, mask in selected)


def _ids(part: LoadedSegment, mask: npt.NDArray[np.bool_]) -> list[str]:
    ids: list[str] = part.segment.strings("id").filter(pa.array(mask)).to_pylist() if mask.any() else []
    return ids


def _replaced(owner: str, fix: str) -> StoreError:
    return StoreError(f"{owner}: a commit replaced segments meanwhile. {fix}", code="E-INDEX-BUSY")


def _required(encoder: TextEncoder | None, owner: str) -> TextEncoder:
    if encoder is None:
        raise InvalidInputError(
            f"{owner}: the index was opened without an encoder. Pass vectors, or open it with encoder=...",
            param="vectors",
        )
    return encoder


def _rows(
    names: list[str], X: Embeddings | None, texts: list[str] | None, records: list[str], n: int, precision: str
) -> dict[str, Any]:
    """Return the columns of new rows that do not depend on the segment."""
    vectors, scale = encode_vectors(np.zeros((len(names), n)) if X is None else X, precision)
    owner = f"{_OWNER}.add"
    columns = {
        "id": _strings(names, owner, "ids"),
        "vector": vectors,
        "text": _strings(texts if texts is not None else [""] * len(names), owner, "texts"),
        "has_text": pa.array([texts is not None] * len(names)),
        "metadata": _strings(records, owner, "metadata"),
    }
    return columns if scale is None else {**columns, "scale": scale}


def _checked_ids(ids: Any, owner: str) -> list[str]:
    if isinstance(ids, str | bytes) or not isinstance(ids, Sequence | np.ndarray):
        raise InvalidInputError(f"{owner}: `ids` is a list of strings.", code="E-INPUT-TYPE", param="ids")
    names = [str(name) if isinstance(name, uuid.UUID) else name for name in ids]
    if not all(isinstance(name, str) for name in names):
        raise InvalidInputError(
            f"{owner}: `ids` contains a value that is not a string. Write numbers in decimal.",
            code="E-INPUT-TYPE",
            param="ids",
        )
    listed = [str(name) for name in names]
    _strings(listed, owner, "ids")
    return listed


def _strings(values: Sequence[str], owner: str, param: str) -> Any:
    try:
        return pa.array(values, pa.string())
    except pa.ArrowCapacityError:
        raise InvalidInputError(f"{owner}: `{param}` contains a value of 2 GiB or more.", param=param) from None
    except UnicodeEncodeError:  # the error contains the value
        raise InvalidInputError(
            f"{owner}: `{param}` contains a lone surrogate, which is not a character. Decode the text again, or "
            "encode it with errors='replace'.",
            param=param,
        ) from None
