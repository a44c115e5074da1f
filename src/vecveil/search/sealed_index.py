"""`SealedIndex`: whoever holds the key searches exactly, in memory; storage holds encrypted segments.

Any process appends immutable segments without asking anybody. What replaces segments (compaction, forgetting, renewal of
keys) is a numbered commit, created only if its number is free: of two the second starts again from the first. So a
commit that read a row before it was forgotten is never published after. docs/sealed-index.md states the protocol.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vecveil.encoders import Encoder, load_encoder
from vecveil.encoders.cache import default_cache_folder
from vecveil.encoders.text_encoder import TextEncoder, as_text_encoder
from vecveil.errors import IncompatibleError, InvalidInputError, SealingError, StoreError
from vecveil.io import atomic_path
from vecveil.runtime import progress
from vecveil.search.filters import MetadataTable, Where, check_where
from vecveil.search.keys import IndexKeys, KeySource, RetiredKeyError, StoreKeys
from vecveil.search.state import Part, Snapshot, hashes_of, load
from vecveil.search.storage import Storage, new_name
from vecveil.search.words import WordCounts, scores
from vecveil.sealing.sealer import Ranking, Unsealed
from vecveil.sealing.segments import DELETED, LIVE, PRECISIONS, Segment, SegmentWriter, encode_vectors, schema
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_embeddings, check_same_length, check_texts

Mode = Literal["vectors", "hybrid"]

_OWNER = "SealedIndex"
_MARK = "index.json"
_SCHEMA = "vecveil.index/1"
_APPEND = re.compile(r"segments/([0-9a-f]{16})-([0-9a-f]{32})-(\d+)\.parquet")
_MERGED = re.compile(r"segments/c([0-9a-f]{8})-([0-9a-f]{16})-([0-9a-f]{32})-(\d+)\.parquet")
_COMMIT = re.compile(r"commits/([0-9a-f]{8})\.parquet")
_MOST_APPENDS = 64  # appends outside of a commit before `add` compacts
_SEGMENT_ROWS, _SEGMENT_BYTES = 2**18, 2**28
_GRACE = 8  # commits that a deletion survives, so that an append delayed meanwhile does not bring its row back
_KEPT_COMMITS = 2  # commits before the last that keep their content
_READ_ROWS = 1000
_FUSED = 60  # k of reciprocal rank fusion (Cormack et al., SIGIR 2009)
_CLOCK: Callable[[], float] = time.monotonic


class SealedIndex:
    """Texts and vectors in encrypted segments, searched by exact cosines in the memory of this process.

    Args:
        location: folder, or fsspec URL such as ``s3://bucket/notes``. The first `add` makes the index.
        key: path of a key file, a `KeyStore`, ``env:NAME:STORE`` or 32 bytes, as for `Sealer`; or a `KeyProvider`, which
            then wraps each segment's key itself. A provider without ``unwrap`` makes a process that only adds.
        encoder: encoder of texts and queries, or its name; None for an index of given vectors. No embedding is cached.
        name: name in the key store, of a new index; by default its location.
        precision: of stored vectors: ``float16``, or ``int8`` with one scale a row.
        candidates: rows that the codes propose to exact ranking.
        max_staleness: seconds until a search looks for what other processes have written.
        trusted_state: path of a small file outside of the storage. With it a storage that withholds the newest writes
            from everybody is noticed.
        cache: folder for encrypted copies of remote segments.
        storage_options: options of the fsspec file system.
        exclusive: True if no other process commits. Needed where the storage cannot create an object conditionally.

    Guarantee:
        The storage holds ciphertext (AES-256-GCM). Its operator, and whoever steals it, learns the number of objects,
        their padded sizes, when they were written and who loads them; not texts, ids, metadata, vectors, equality of
        rows, queries or results. Objects that are altered, exchanged, renamed or withheld are noticed, the newest ones
        with ``trusted_state`` only.

    Not protected:
        The memory of this process, and whoever has the key.

    Cost:
        Memory a row: the vector at its precision, n/4 bytes of codes, and about 30 bytes with the id.
    """

    def __init__(
        self,
        location: str | os.PathLike[str],
        key: Any,
        *,
        encoder: str | Encoder | Callable[[list[str]], Any] | None = None,
        name: str | None = None,
        precision: str = "float16",
        candidates: int = 200,
        max_staleness: float = 2.0,
        trusted_state: str | os.PathLike[str] | None = None,
        cache: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        exclusive: bool = False,
    ) -> None:
        self.location = os.fspath(location)
        if precision not in PRECISIONS:
            raise InvalidInputError(
                f"{_OWNER}: `precision` is one of {', '.join(PRECISIONS)}.", code="E-INPUT-NAME", param="precision"
            )
        self.candidates = check_count(candidates, owner=_OWNER, param="candidates")
        self._precision, self._staleness, self._exclusive = precision, float(max_staleness), exclusive
        self._source, self._name = KeySource(key), name or self.location
        place = hashlib.sha256(self.location.encode()).hexdigest()[:24]
        folder = Path(cache) if cache is not None else default_cache_folder().parent / "index"
        self._storage = Storage(self.location, cache=folder / place, options=storage_options)
        self._encoder = _encoder(encoder)
        self._trusted = None if trusted_state is None else Path(trusted_state)
        self._keys: IndexKeys | None = None
        self._snapshot: Snapshot | None = None
        self._checked = 0.0  # when the storage was last listed
        self._dimension: int | None = None
        self._writer, self._written, self._lamport = new_name(), 0, 0
        self._changing = threading.RLock()
        self._tables: dict[str, MetadataTable] = {}
        self._words: dict[str, WordCounts] = {}
        self._threads = ThreadPoolExecutor(min(8, os.cpu_count() or 1), thread_name_prefix="sealed-index")
        self._open_keys()

    def __repr__(self) -> str:
        return f"SealedIndex({Path(self.location).name!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files and drop what is in memory."""
        with self._changing:
            self._threads.shutdown(wait=True)
            for part in self._snapshot.parts.values() if self._snapshot else ():
                part.segment.close()
            self._snapshot = None
            self._tables.clear()
            self._words.clear()

    # Writing ------------------------------------------------------------------------------------

    def add(
        self,
        texts: Sequence[str] | None = None,
        *,
        ids: Sequence[str],
        metadata: Sequence[Mapping[str, Any] | None] | None = None,
        vectors: Embeddings | None = None,
    ) -> None:
        """Add rows, replacing equal ids; return when they are durable.

        Args:
            texts: text of each row; None if only ``vectors`` are stored.
            ids: distinct strings.
            metadata: JSON object of each row; every field can be filtered by.
            vectors: (N, n), if they are at hand; otherwise the encoder embeds the texts.

        Raises:
            InvalidInputError: lengths differ, ids repeat, vectors are not finite or beyond the precision's range.
            IncompatibleError: the index has another encoder or dimension.
            StoreError: the storage cannot be written. Whether the rows exist is then unknown; add them again.
        """
        owner = f"{_OWNER}.add"
        names = _checked_ids(ids, owner)
        if len(set(names)) < len(names):
            raise InvalidInputError(f"{owner}: `ids` repeats an id. Pass each id once.", code="E-INPUT-IDS", param="ids")
        if texts is None and vectors is None:
            raise InvalidInputError(f"{owner}: pass texts, vectors or both.", code="E-INPUT", param="texts")
        listed = None if texts is None else check_texts(texts, owner=owner, min_rows=0)
        given = {"texts": listed, "metadata": metadata, "vectors": vectors}
        check_same_length(owner, ids=names, **{k: v for k, v in given.items() if v is not None})  # type: ignore[arg-type]
        if not names:
            return
        records = [_as_json(row, owner) for row in metadata] if metadata is not None else ["null"] * len(names)
        X = self._encoded(listed or [], owner) if vectors is None else vectors
        X = check_embeddings(X, owner=owner, param="vectors")
        _check_range(X, self._precision, owner)
        self._append(names, X, listed, records, owner)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete rows; unknown ids are ignored. Storage keeps their older versions, encrypted, until `compact`."""
        names = list(dict.fromkeys(_checked_ids(ids, f"{_OWNER}.delete")))
        with self._changing:
            if not names or not self._exists():
                return
            if self._known_dimension() is None and self._keys is not None and not self._keys.reads:
                raise InvalidInputError(
                    f"{_OWNER}.delete: a process that cannot unwrap keys can only add.", code="E-INPUT", param="key"
                )
            if self._dimension is not None:
                self._append(names, None, None, ["null"] * len(names), f"{_OWNER}.delete")

    def _append(
        self, names: list[str], X: Embeddings | None, texts: list[str] | None, records: list[str], owner: str
    ) -> None:
        """Write one segment; without ``X`` its rows are deletions."""
        with self._changing:
            keys = self._made()
            n = self._known_dimension()
            if X is not None:
                if n not in (None, X.shape[1]):
                    raise IncompatibleError(
                        f"{owner}: the index holds vectors of {n} dimensions; these have {X.shape[1]}. It was made with "
                        "another encoder.", code="E-INCOMPATIBLE", param="vectors",
                    )  # fmt: skip
                n = X.shape[1]
            assert n is not None  # a deletion follows an add
            rows = None
            while True:
                listing = self._listing()
                self._lamport = 1 + max(self._lamport, *listing.lamports, 0)
                name = f"segments/{self._lamport:016x}-{self._writer}-{self._written + 1}.parquet"
                if rows is None:
                    rows = _rows(names, X, texts, records, n, self._precision, owner)
                stamped = _stamped(rows, self._lamport, self._writer, None if X is not None else DELETED)
                record = {
                    "uuid": str(keys.uuid), "kind": "append", "encoder": self._fingerprint(),
                    "seen": {"commit": listing.commit, "appends": listing.newest},
                }  # fmt: skip
                try:
                    key_id = self._write(name, [stamped], keys, n, record)
                except (StoreError, OSError):
                    # The object may exist or not. A new writer begins, whose numbers have no gap.
                    self._writer, self._written = new_name(), 0
                    raise
                self._written += 1
                if key_id == keys.current():
                    break
                # The key was renewed meanwhile, and may be deleted before anybody renews this segment: write again.
            self._dimension = n
            if self._snapshot is not None:
                self._refresh()
            if len(listing.appends) >= _MOST_APPENDS and keys.reads and self._can_commit():
                with contextlib.suppress(_Superseded, StoreError):  # the rows are durable in any case
                    self._commit(self._small, once=True)

    def _write(self, name: str, tables: Iterable[Any], keys: IndexKeys, n: int, record: Mapping[str, Any]) -> str:
        """Write the object ``name`` with these tables and return the id of its key."""
        with self._storage.creating(name) as path:
            writer = SegmentWriter(path, name, keys, n=n, precision=self._precision, record=record)
            try:
                for table in tables:
                    writer.add(table)
            except BaseException:
                writer.abandon()
                raise
            writer.close()
        return writer.key_id

    # Reading ------------------------------------------------------------------------------------

    def search(
        self,
        query: str | npt.NDArray[np.floating[Any]],
        *,
        top: int = 10,
        where: Where | None = None,
        mode: Mode = "vectors",
        candidates: int | None = None,
    ) -> Ranking:
        """Return the ``top`` rows by the exact cosine of ``query``, a text or vector (n,).

        Args:
            where: conditions by metadata field: a value, a list of values, or operators as in
                ``{"year": {"gte": 2024, "lt": 2026}, "draft": {"exists": False}}`` (eq, ne, gt, gte, lt, lte, in, nin,
                exists); or an expression of ``pyarrow.compute``.
            mode: ``hybrid`` adds the words of ``query`` (BM25) by reciprocal ranks. The scores stay cosines.
            candidates: rows to rank exactly; None takes the index's number.

        Raises:
            StoreError: there is no index, or an object that another process saw is missing.
            SealingError: an object does not open.
        """
        owner = f"{_OWNER}.search"
        top = check_count(top, owner=owner, param="top")
        k = max(self.candidates if candidates is None else candidates, top)
        if mode not in ("vectors", "hybrid"):
            raise InvalidInputError(f"{owner}: `mode` is vectors or hybrid.", code="E-INPUT-NAME", param="mode")
        if where is not None:
            check_where(where, owner)
        snapshot = self._current(owner)
        q = self._query(query, owner)
        if self._dimension is not None and len(q) != self._dimension:
            raise IncompatibleError(
                f"{owner}: the index holds vectors of {self._dimension} dimensions; the query has {len(q)}.",
                code="E-INCOMPATIBLE", param="query",
            )  # fmt: skip
        parts = [(part, self._selected(part, mask, where)) for part, mask in snapshot.live()]
        best = self._ranked(q, parts, k)
        if mode == "hybrid":
            if not isinstance(query, str):
                raise InvalidInputError(f"{owner}: mode='hybrid' needs a text as query.", code="E-INPUT", param="query")
            best = self._fused(q, query, parts, best, k)
        return self._hits(best[:top])

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
        owner = f"{_OWNER}.get"
        if where is not None:
            check_where(where, owner)
        snapshot = self._current(owner)
        if ids is None:
            places = [(part, int(row)) for part, mask in snapshot.live() for row in np.flatnonzero(mask)]
        else:
            found = snapshot.locate(_checked_ids(ids, owner))
            absent = [name for name, place in zip(ids, found, strict=True) if place is None]
            if absent and missing == "raise":
                raise StoreError(
                    f"{owner}: {len(absent)} of the {len(ids)} ids have no row. Pass missing='skip' to leave them out.",
                    code="E-STORE-IDS", param="ids",
                )  # fmt: skip
            places = [place for place in found if place is not None]
        if where is not None:
            masks = {id(part): self._selected(part, mask, where) for part, mask in snapshot.live()}
            places = [(part, row) for part, row in places if masks[id(part)][row]]
        return self._opened(places)

    def ids(self, where: Where | None = None) -> list[str]:
        """Return the ids of all rows, or of those that match ``where``."""
        owner = f"{_OWNER}.ids"
        if where is not None:
            check_where(where, owner)
        listed: list[str] = []
        for part, mask in self._current(owner).live():
            listed += part.ids.filter(pa.array(self._selected(part, mask, where))).to_pylist()
        return listed

    def count(self) -> int:
        """Return the number of rows."""
        return self._current(f"{_OWNER}.count").count() if self._exists() else 0

    def refresh(self) -> None:
        """Load what other processes have written.

        Raises:
            StoreError: an object that another process saw is missing.
        """
        self._open_keys()
        with self._changing:
            self._refresh()

    def _current(self, owner: str) -> Snapshot:
        """Return the state to answer from, at most ``max_staleness`` old."""
        if self._snapshot is None:
            if not self._exists():
                raise StoreError(f"{owner}: there is no index at {self.location}.", code="E-INDEX-MISSING")
            with self._changing:
                if self._snapshot is None:
                    self._refresh()
        elif _CLOCK() - self._checked > self._staleness and self._changing.acquire(blocking=False):
            # Meanwhile other threads answer from the state before.
            try:
                self._refresh()
            finally:
                self._changing.release()
        assert self._snapshot is not None
        return self._snapshot

    def _selected(self, part: Part, mask: npt.NDArray[np.bool_], where: Where | None) -> npt.NDArray[np.bool_]:
        if where is None:
            return mask
        name = part.segment.name
        if name not in self._tables:
            columns = (table["metadata"] for table in part.segment.columns(["metadata"]))
            self._tables[name] = MetadataTable(columns, len(part))
        return mask & self._tables[name].mask(where)

    def _ranked(
        self, q: npt.NDArray[np.float32], parts: list[tuple[Part, npt.NDArray[np.bool_]]], top: int
    ) -> list[tuple[float, Part, int]]:
        """Return score, part and row of the rows that the codes propose, best first."""
        propose = lambda pair: pair[0].scan.candidates(q, pair[1], top)  # noqa: E731
        large = sum(len(part) for part, _ in parts) > 2 * _SEGMENT_ROWS
        proposals = list((self._threads.map if large else map)(propose, parts))
        if not proposals:
            return []
        approximate = np.concatenate([values for _, values in proposals])
        owners = np.repeat(np.arange(len(parts)), [len(rows) for rows, _ in proposals])
        rows = np.concatenate([rows for rows, _ in proposals])
        if len(rows) > top:
            chosen = np.argpartition(-approximate, top)[:top]
            owners, rows = owners[chosen], rows[chosen]
        exact = np.empty(len(rows), np.float32)
        for i in np.unique(owners):
            mine = owners == i
            exact[mine] = parts[i][0].scan.cosines(q, rows[mine])
        order = np.argsort(-exact, kind="stable")
        return [(float(exact[i]), parts[owners[i]][0], int(rows[i])) for i in order]

    def _fused(
        self, q: npt.NDArray[np.float32], query: str, parts: list[tuple[Part, npt.NDArray[np.bool_]]],
        ranked: list[tuple[float, Part, int]], top: int,
    ) -> list[tuple[float, Part, int]]:  # fmt: skip
        """Return the rows of ``ranked`` and those with words of ``query`` by the sum of reciprocal ranks."""
        found: list[tuple[float, Part, int]] = []
        counted = [(self._word_counts(part), mask) for part, mask in parts]
        for (part, mask), values in zip(parts, scores(query, counted), strict=True):
            values = np.where(mask, values, 0)
            rows = np.flatnonzero(values)
            rows = rows[np.argsort(-values[rows], kind="stable")[:top]]
            found += [(float(values[row]), part, int(row)) for row in rows]
        found.sort(key=lambda hit: -hit[0])
        fused: dict[tuple[str, int], float] = {}
        places: dict[tuple[str, int], tuple[Part, int]] = {}
        for ranking in (ranked, found[:top]):
            for rank, (_, part, row) in enumerate(ranking, 1):
                place = part.segment.name, row
                fused[place] = fused.get(place, 0) + 1 / (_FUSED + rank)
                places[place] = part, row
        best = sorted(fused, key=lambda place: -fused[place])[:top]
        return [(float(places[p][0].scan.cosines(q, np.array([p[1]]))[0]), *places[p]) for p in best]

    def _word_counts(self, part: Part) -> WordCounts:
        name = part.segment.name
        if name not in self._words:
            texts = (text for table in part.segment.columns(["text"]) for text in table["text"].to_pylist())
            self._words[name] = WordCounts(texts)
        return self._words[name]

    def _hits(self, best: list[tuple[float, Part, int]]) -> Ranking:
        rows = self._opened([(part, row) for _, part, row in best])
        scored = np.array([score for score, _, _ in best], np.float32)
        return Ranking(rows.ids, rows.vectors, rows.texts, rows.metadata, [], scored)

    def _opened(self, places: list[tuple[Part, int]]) -> Unsealed:
        """Return these rows; texts and metadata come from the local copy of the segments."""
        n = self._dimension or 0
        vectors = np.zeros((len(places), n), np.float32)
        ids: list[Any] = [None] * len(places)
        texts: list[str | None] = [None] * len(places)
        metadata: list[dict[str, Any] | None] = [None] * len(places)
        by_part: dict[int, tuple[Part, list[int]]] = {}
        for i, (part, _) in enumerate(places):
            by_part.setdefault(id(part), (part, []))[1].append(i)
        for part, mine in by_part.values():
            rows = np.array([places[i][1] for i in mine], np.int64)
            vectors[mine] = part.scan.vectors(rows)
            names = part.ids.take(pa.array(rows)).to_pylist()
            table = part.segment.rows(rows.tolist(), ["text", "has_text", "metadata"]).to_pydict()
            for at, i in enumerate(mine):
                ids[i] = names[at]
                texts[i] = table["text"][at] if table["has_text"][at] else None
                metadata[i] = json.loads(table["metadata"][at])
        return Unsealed(ids, vectors, texts, metadata, [])

    # The state of the storage -------------------------------------------------------------------

    def _exists(self) -> bool:
        return self._keys is not None or self._open_keys()

    def _open_keys(self) -> bool:
        """Open the keys of the index if the storage has one."""
        if self._keys is None:
            try:
                mark = json.loads(self._storage.read(_MARK))
                index = uuid.UUID(mark["uuid"])
                if mark["schema"] != _SCHEMA:
                    raise ValueError
            except FileNotFoundError:
                return False
            except (ValueError, KeyError, TypeError) as error:
                raise StoreError(
                    f"{_MARK} of the index at {self.location} is damaged. Restore it from a backup of the storage.",
                    code="E-INDEX-STORAGE",
                ) from error
            self._keys = self._source.of(index, self.location)
        return True

    def _made(self) -> IndexKeys:
        """Return the keys of the index, which is made if it is not there."""
        if not self._open_keys():
            keys = self._source.new(self._name)
            mark = json.dumps({"schema": _SCHEMA, "uuid": str(keys.uuid)}) + "\n"
            try:
                self._storage.create(_MARK, mark.encode())
            except FileExistsError:
                self._source.discard(keys)
                self._open_keys()
            else:
                self._keys = keys
        assert self._keys is not None
        return self._keys

    def _known_dimension(self) -> int | None:
        """Return the dimension, and check the encoder, from one object if nothing is loaded; None for a new index."""
        if self._dimension is None and self._keys is not None and self._keys.reads:
            listing = self._listing()
            newest = [_commit_name(listing.commit)] if listing.commit else sorted(listing.appends)[-1:]
            for name in newest:
                try:
                    segment = Segment(self._storage.fetch(name), name, self._keys)
                except FileNotFoundError:
                    continue
                self._dimension = segment.record["dimension"]
                self._check_encoder(segment.record, name)
                segment.close()
        return self._dimension

    def _listing(self) -> _Listing:
        names = self._storage.list("segments")
        commits = [int(match[1], 16) for name in self._storage.list("commits") if (match := _COMMIT.fullmatch(name))]
        return _Listing(names, max(commits, default=0))

    def _refresh(self) -> None:
        """Bring the snapshot to the state of the storage; the lock is held."""
        keys = self._keys
        if keys is None:
            raise StoreError(f"There is no index at {self.location}.", code="E-INDEX-MISSING")
        before = self._snapshot or Snapshot({}, {}, {})
        due = _CLOCK() + max(self._staleness, 1.0)
        while True:
            listing = self._listing()
            try:
                if listing.commit < before.commit:
                    raise _Missing(f"the storage shows commit {listing.commit} after commit {before.commit}")
                after = self._advanced(before, listing, keys)
                break
            except FileNotFoundError as error:  # a commit replaced the object after it was listed
                problem = _Missing(f"the object {Path(str(error.filename or error)).name} cannot be read")
            except _Missing as error:  # a storage may list late
                problem = error
            if _CLOCK() > due:
                raise StoreError(
                    f"The index at {self.location} is incomplete: {problem}. The storage withholds objects, or they "
                    "were deleted. Restore them from a backup of the storage.", code="E-INDEX-INCOMPLETE",
                ) from problem  # fmt: skip
            time.sleep(0.05)
        self._snapshot, self._checked = after, _CLOCK()
        self._lamport = max(self._lamport, after.lamport)
        for name in self._storage.copies() - after.parts.keys():
            if name.startswith("segments/"):
                self._storage.forget_copy(name)
        for kept in (self._tables, self._words):
            for name in kept.keys() - after.parts.keys():
                del kept[name]  # type: ignore[attr-defined]
        self._check_trusted(after)

    def _advanced(self, before: Snapshot, listing: _Listing, keys: IndexKeys) -> Snapshot:
        base, covered = list(before.parts), dict(before.covered)
        base = [name for name in base if _MERGED.fullmatch(name) or not _is_open(name, covered)]
        if listing.commit > before.commit:
            record = self._record_of(_commit_name(listing.commit), keys)
            base, covered = record["base"], record["covered"]
        newest = dict(covered)
        appends = [name for name in listing.appends if _is_open(name, covered)]
        for writer, numbers in _numbers(appends).items():
            expected = range(covered.get(writer, 0) + 1, max(numbers) + 1)
            if lacking := sorted(set(expected) - numbers):
                raise _Missing(f"append {lacking[0]} of writer {writer[:8]}… is missing")
            newest[writer] = max(numbers)
        for writer, number in before.newest.items():
            if newest.get(writer, 0) < number:
                raise _Missing(f"append {number} of writer {writer[:8]}… is missing")
        wanted = [*base, *appends]
        new = {}
        for name in wanted:
            if name not in before.parts:
                try:
                    part = load(self._segment(name, keys))
                except RetiredKeyError:
                    # After a renewal its writer appended the rows again; without one this is an older backup.
                    if name in base or not listing.commit:
                        raise
                    continue
                new[name] = part
                seen = part.segment.record.get("seen", {})
                if seen.get("commit", 0) > listing.commit:
                    raise _Missing(f"commit {seen['commit']} is missing")
                for writer, number in seen.get("appends", {}).items():
                    if newest.get(writer, 0) < number:
                        raise _Missing(f"append {number} of writer {writer[:8]}… is missing")
        return before.with_parts(
            [name for name in wanted if name in before.parts], new,
            commit=listing.commit, covered=covered, newest=newest, lamport=max([before.lamport, *listing.lamports]),
        )  # fmt: skip

    def _segment(self, name: str, keys: IndexKeys) -> Segment:
        """Open a segment and compare its record with the index."""
        segment = Segment(self._storage.fetch(name), name, keys)
        record = segment.record
        if record["uuid"] != str(keys.uuid):
            segment.close()
            raise SealingError(f"{name} belongs to another index.", code="E-SEAL-OPEN")
        if self._dimension not in (None, record["dimension"]):
            segment.close()
            raise IncompatibleError(
                f"{name} holds vectors of {record['dimension']} dimensions, the rest of the index {self._dimension}.",
                code="E-INCOMPATIBLE",
            )
        self._check_encoder(record, name)
        self._dimension = record["dimension"]
        return segment

    def _record_of(self, name: str, keys: IndexKeys) -> dict[str, Any]:
        segment = Segment(self._storage.fetch(name), name, keys)
        try:
            self._dimension = segment.record["dimension"]
            return segment.record
        finally:
            segment.close()
            self._storage.forget_copy(name)

    def _check_encoder(self, record: Mapping[str, Any], name: str) -> None:
        mine, stored = self._fingerprint(), record.get("encoder")
        if mine is not None and stored is not None and mine != stored:
            raise IncompatibleError(
                f"The index was made with another encoder than {self._encoder.name if self._encoder else 'this one'} "
                f"({name}).", code="E-INCOMPATIBLE-ENCODER", param="encoder",
            )  # fmt: skip

    def _check_trusted(self, snapshot: Snapshot) -> None:
        """Compare the state with the trusted one, and write the newer of both."""
        if self._trusted is None:
            return
        keys = self._keys
        assert keys is not None
        name = f"trusted/{keys.uuid}"
        state = {"commit": snapshot.commit, "newest": dict(snapshot.newest)}
        if self._trusted.exists():
            segment = Segment(self._trusted, name, keys)
            known = segment.record["state"]
            segment.close()
            behind = [w for w, n in known["newest"].items() if snapshot.newest.get(w, 0) < n]
            if known["commit"] > snapshot.commit or behind:
                raise StoreError(
                    f"The storage of the index at {self.location} was rolled back: {self._trusted.name} knows newer "
                    "writes. Restore the storage, or delete this file if you restored an older backup yourself.",
                    code="E-INDEX-INCOMPLETE",
                )
            if known == state:
                return
        with atomic_path(self._trusted, mode=0o600) as path:
            record = {"uuid": str(keys.uuid), "kind": "trusted", "state": state}
            writer = SegmentWriter(
                path, name, keys, n=self._dimension or 1, precision=self._precision, record=record
            )
            writer.close()

    # Commits ------------------------------------------------------------------------------------

    def compact(self) -> None:
        """Merge small segments and drop what is superseded, while others read and write.

        Raises:
            StoreError: the storage cannot create an object conditionally, and ``exclusive`` is not set.
        """
        self._current(f"{_OWNER}.compact")
        self._commit(self._worth_merging)

    def forget(self, ids: Sequence[str]) -> int:
        """Delete rows and rewrite every segment that holds a version of them; return how many rows were there.

        No object of the index holds the rows afterwards. Backups of the storage from before open as long as their
        data key exists: `reseal` deletes it. The ids stay in the deletions, encrypted, for some commits.
        """
        names = list(dict.fromkeys(_checked_ids(ids, f"{_OWNER}.forget")))
        with self._changing:
            self.refresh()
            assert self._snapshot is not None
            there = sum(place is not None for place in self._snapshot.locate(names))
            if names and self._dimension is not None:
                self._append(names, None, None, ["null"] * len(names), f"{_OWNER}.forget")
                listed = pa.array(names, pa.string())
                self._commit(lambda s: {name for name, part in s.parts.items() if _holds(part, listed)})
        return there

    def reseal(self, *, show_progress: bool | None = None) -> int:
        """Rewrite every segment under a new data key and delete the older keys; return the number of rows.

        Others go on reading and writing. After an interruption call it again.

        Raises:
            InvalidInputError: the key is no key store, so there is no key to delete.
            StoreError: ids or number of rows changed in a way that no writer explains. The older keys stay.
        """
        self._current(f"{_OWNER}.reseal")
        keys = self._keys
        if not isinstance(keys, StoreKeys):
            raise InvalidInputError(
                f"{_OWNER}.reseal: only a key store has data keys to renew; this index has another kind of key.",
                code="E-INPUT", param="key",
            )  # fmt: skip
        with self._changing:
            self.refresh()
            if len(keys.store.read(keys.collection).keys) == 1:
                keys.store.rotate(keys.collection)
            rounds = progress(range(100), "Resealing", show=show_progress, unit="round")
            for _ in rounds:
                current = keys.current()
                snapshot = self._snapshot
                assert snapshot is not None
                if all(part.segment.key_id == current for part in snapshot.parts.values()):
                    break
                self._commit(
                    lambda s, now=current: {n for n, p in s.parts.items() if p.segment.key_id != now}
                )
                self.refresh()
            else:
                raise StoreError(f"{_OWNER}.reseal: writers kept the older key. Call it again.", code="E-INDEX-BUSY")
            self._renew_commits(keys)
            keys.store.retire(keys.collection, keep=b"")
        return self.count()

    def _renew_commits(self, keys: IndexKeys) -> None:
        """Write a commit under the current key, so that the last one needs no older key."""
        assert self._snapshot is not None
        name = _commit_name(self._snapshot.commit)
        if self._snapshot.commit and self._key_of(name, keys) != keys.current():
            self._commit(lambda s: set(), always=True)

    def _key_of(self, name: str, keys: IndexKeys) -> str:
        segment = Segment(self._storage.fetch(name), name, keys)
        segment.close()
        return segment.key_id

    def _can_commit(self) -> bool:
        return self._storage.conditional or self._exclusive

    def _small(self, snapshot: Snapshot) -> set[str]:
        """Return the segments that an automatic compaction merges: the small ones, in geometric steps."""
        sizes = sorted((len(part), name) for name, part in snapshot.parts.items())
        chosen, rows = set(), 0
        for size, name in sizes:
            if size > 2 * rows + 4096 or rows + size > _SEGMENT_ROWS:
                break
            chosen.add(name)
            rows += size
        return chosen if len(chosen) > 1 else set()

    def _worth_merging(self, snapshot: Snapshot) -> set[str]:
        """Return the segments that are less than half full or hold a superseded row or a deletion."""
        small = {name for name, part in snapshot.parts.items() if len(part) < _SEGMENT_ROWS // 2}
        stale = {name for name in snapshot.parts if not snapshot.alive[name].all()}
        return stale | (small if len(small) > 1 else set())

    def _commit(self, choose: Callable[[Snapshot], set[str]], *, once: bool = False, always: bool = False) -> None:
        """Rewrite the chosen segments and take over all appends, as one numbered commit.

        Raises:
            _Superseded: ``once``, and another process committed first.
        """
        if not self._can_commit():
            raise StoreError(
                f"The storage of {self.location} cannot create an object only if it is absent, so two processes could "
                "commit at once. Open the index with exclusive=True in one maintenance process.", code="E-INDEX-COMMIT",
            )  # fmt: skip
        with self._changing:
            while True:
                self._refresh()
                snapshot, keys = self._snapshot, self._keys
                assert snapshot is not None and keys is not None
                chosen = choose(snapshot)
                pending = [name for name in snapshot.parts if _is_open(name, snapshot.covered)]
                if not chosen and not pending and not always:
                    return
                number = snapshot.commit + 1
                outputs = self._merged(snapshot, chosen, number, keys) if chosen or always else []
                base = [*(name for name in snapshot.parts if name not in chosen), *outputs]
                record = {
                    "uuid": str(keys.uuid), "kind": "commit", "commit": number, "encoder": self._fingerprint(),
                    "base": base, "covered": dict(snapshot.newest),
                }  # fmt: skip
                try:
                    self._write(_commit_name(number), [], keys, self._dimension or 1, record)
                    break
                except FileExistsError:
                    self._storage.delete(outputs)
                    if once:
                        raise _Superseded from None
            self._refresh()
            self._clean()

    def _merged(self, snapshot: Snapshot, chosen: set[str], number: int, keys: IndexKeys) -> list[str]:
        """Write the current rows of the chosen segments into new ones, verify them, and return their names."""
        n = self._dimension or 1
        limit = max(1, min(_SEGMENT_ROWS, _SEGMENT_BYTES // (2 * n)))
        source = self._surviving(snapshot, chosen, number)
        record = {
            "uuid": str(keys.uuid), "kind": "merged", "commit": number, "encoder": self._fingerprint(),
        }  # fmt: skip
        outputs: list[str] = []
        pushed: list[Any] = []  # what was read beyond the limit
        ended = False

        def tables() -> Iterator[Any]:
            nonlocal ended
            rows = 0
            while rows < limit:
                table = pushed.pop() if pushed else next(source, None)
                if table is None:
                    ended = True
                    return
                if rows + len(table) > limit:
                    pushed.append(table.slice(limit - rows))
                    table = table.slice(0, limit - rows)
                rows += len(table)
                yield table

        while not ended:
            name = f"segments/c{number:08x}-{snapshot.lamport:016x}-{self._writer}-{len(outputs) + 1}.parquet"
            outputs.append(name)
            self._write(name, tables(), keys, n, record)
        for name in outputs:  # every page opens
            segment = Segment(self._storage.fetch(name), name, keys)
            rows = sum(len(table) for table in segment.columns(["id", "vector", "text", "metadata"]))
            segment.close()
            if rows != segment.record["rows"]:
                raise SealingError(f"{name} does not hold what was written.", code="E-SEAL-OPEN")
        return outputs

    def _surviving(self, snapshot: Snapshot, chosen: set[str], number: int) -> Iterator[Any]:
        """Yield the rows of the chosen segments that are current, and deletions that are still needed."""
        others = [part for name, part in snapshot.parts.items() if name not in chosen]
        for name in sorted(chosen):
            part, current = snapshot.parts[name], snapshot.current[name]
            deleted = part.deleted.astype(np.int64)
            deleted[part.deleted == DELETED] = number + _GRACE
            keep = current & ((part.deleted == LIVE) | (deleted > number))
            expired = np.flatnonzero(current & (part.deleted != LIVE) & ~keep)
            if len(expired):  # an older version elsewhere would come back
                gone = part.ids.take(pa.array(expired))
                for other in others:
                    keep[expired[np.unique(other.locate(gone, hashes_of(gone))[0])]] = True
            start = 0
            for table in part.segment.columns(schema(self._dimension or 1, self._precision).names):
                end = start + len(table)
                at = table.schema.get_field_index("deleted")
                table = table.set_column(at, table.schema.field(at), pa.array(deleted[start:end]))
                if keep[start:end].any():
                    yield table.filter(pa.array(keep[start:end]))
                start = end

    def _clean(self) -> None:
        """Delete objects that the last commit replaced, and what interrupted commits left; the lock is held."""
        snapshot = self._snapshot
        assert snapshot is not None
        listing = self._listing()
        gone = [
            name for name in listing.names - snapshot.parts.keys()
            if (match := _MERGED.fullmatch(name)) and int(match[1], 16) <= snapshot.commit
            or _APPEND.fullmatch(name) and not _is_open(name, snapshot.covered)
        ]  # fmt: skip
        self._storage.delete(gone)
        # Old commits keep their names, which must stay taken, and lose their content.
        older = snapshot.commit - _KEPT_COMMITS
        for number in range(max(1, older - 1), older + 1):
            with contextlib.suppress(FileNotFoundError):
                self._storage.empty(_commit_name(number))
        self._storage.tidy()

    # Encoding -----------------------------------------------------------------------------------

    def _fingerprint(self) -> str | None:
        return None if self._encoder is None else self._encoder.model_fingerprint

    def _encoded(self, texts: list[str], owner: str) -> Embeddings:
        if self._encoder is None:
            raise InvalidInputError(
                f"{owner}: the index was opened without an encoder. Pass vectors, or open it with encoder=...",
                code="E-INPUT", param="vectors",
            )  # fmt: skip
        return np.asarray(self._encoder.encode(texts))

    def _query(self, query: Any, owner: str) -> npt.NDArray[np.float32]:
        """Return the query's vector with norm 1."""
        if isinstance(query, str):
            if not query.strip():
                raise InvalidInputError(f"{owner}: `query` is empty.", code="E-INPUT", param="query")
            encode = getattr(self._encoder, "encode_query", None)
            vector = np.asarray(self._encoded([query], owner) if encode is None else np.atleast_2d(encode(query)))
        else:
            vector = np.atleast_2d(np.asarray(query))
        if vector.ndim != 2 or len(vector) != 1 or vector.dtype.kind not in "fiu":
            raise InvalidInputError(
                f"{owner}: `query` is a text or one vector (n,); the shape is {vector.shape}.",
                code="E-INPUT-SHAPE", param="query",
            )  # fmt: skip
        q = check_embeddings(vector.astype(np.float32), owner=owner, param="query")[0]
        norm = float(np.linalg.norm(q))
        if norm == 0:
            raise InvalidInputError(f"{owner}: `query` is a vector of zeros.", code="E-INPUT", param="query")
        return np.ascontiguousarray(q / np.float32(norm))


class _Listing:
    """The objects of the storage at one moment, by their names."""

    def __init__(self, names: set[str], commit: int) -> None:
        self.names, self.commit = names, commit
        self.appends = {name for name in names if _APPEND.fullmatch(name)}
        merged = [match for name in names if (match := _MERGED.fullmatch(name))]
        # A merge that its commit does not name yet repeats rows, so its number does no harm.
        self.lamports = [
            *(int(name.partition("/")[2][:16], 16) for name in self.appends), *(int(match[2], 16) for match in merged),
        ]  # fmt: skip
        self.newest = {writer: max(numbers) for writer, numbers in _numbers(self.appends).items()}


class _Missing(Exception):
    """An object that must exist does not appear."""


class _Superseded(Exception):
    """Another process committed first."""


def _numbers(appends: Iterable[str]) -> dict[str, set[int]]:
    """Return the numbers of each writer's appends."""
    numbers: dict[str, set[int]] = {}
    for name in appends:
        match = _APPEND.fullmatch(name)
        assert match is not None
        numbers.setdefault(match[2], set()).add(int(match[3]))
    return numbers


def _is_open(name: str, covered: Mapping[str, int]) -> bool:
    """Return whether no commit has taken over this append."""
    match = _APPEND.fullmatch(name)
    return match is not None and int(match[3]) > covered.get(match[2], 0)


def _commit_name(number: int) -> str:
    return f"commits/{number:08x}.parquet"


def _holds(part: Part, ids: Any) -> bool:
    return len(part.locate(ids, hashes_of(ids))[0]) > 0


def _encoder(encoder: Any) -> TextEncoder | None:
    if encoder is None:
        return None
    # The cache of embeddings would hold clean vectors on disk.
    return load_encoder(encoder, cache=None) if isinstance(encoder, str) else as_text_encoder(encoder, cache=None)


def _rows(
    names: list[str], X: Embeddings | None, texts: list[str] | None, records: list[str], n: int, precision: str,
    owner: str,
) -> dict[str, Any]:  # fmt: skip
    """Return the columns of new rows that do not depend on the segment."""
    vectors, scale = encode_vectors(np.zeros((len(names), n)) if X is None else X, precision)
    try:
        columns = {
            "id": pa.array(names, pa.string()),
            "vector": vectors,
            "text": pa.array(texts if texts is not None else [""] * len(names), pa.string()),
            "has_text": pa.array([texts is not None] * len(names)),
            "metadata": pa.array(records, pa.string()),
        }
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{owner}: an id, text or metadata value holds half of a surrogate pair, which is no character. Decode the "
            "texts again, or encode them with errors='replace'.", code="E-INPUT", param="texts",
        ) from error  # fmt: skip
    return columns if scale is None else {**columns, "scale": scale}


def _stamped(columns: Mapping[str, Any], lamport: int, writer: str, deleted: int | None) -> Any:
    rows = len(columns["id"])
    n_bytes = columns["vector"].type.byte_width
    precision = "int8" if "scale" in columns else "float16"
    stamps = {
        "lamport": pa.array(np.full(rows, lamport, np.int64)),
        "writer": pa.array([bytes.fromhex(writer)] * rows, pa.binary(16)),
        "deleted": pa.array(np.full(rows, LIVE if deleted is None else deleted, np.int64)),
    }
    layout = schema(n_bytes if precision == "int8" else n_bytes // 2, precision)
    return pa.table([{**columns, **stamps}[field.name] for field in layout], schema=layout)


def _checked_ids(ids: Any, owner: str) -> list[str]:
    if isinstance(ids, str | bytes) or not isinstance(ids, Sequence | np.ndarray):
        raise InvalidInputError(f"{owner}: `ids` is a list of strings.", code="E-INPUT-TYPE", param="ids")
    names = [str(name) if isinstance(name, uuid.UUID) else name for name in ids]
    if not all(isinstance(name, str) for name in names):
        raise InvalidInputError(
            f"{owner}: `ids` holds a value that is not a string. Write numbers in decimal.",
            code="E-INPUT-TYPE", param="ids",
        )  # fmt: skip
    return [str(name) for name in names]


def _as_json(row: Any, owner: str) -> str:
    try:
        if row is not None and (not isinstance(row, Mapping) or not all(isinstance(name, str) for name in row)):
            raise TypeError
        return json.dumps(None if row is None else dict(row), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):  # the message may quote a value
        raise InvalidInputError(
            f"{owner}: `metadata` is a JSON object with string keys for each row. Write dates as text, and None for NaN "
            "and infinity.", code="E-SEAL-METADATA", param="metadata",
        ) from None  # fmt: skip


def _check_range(X: Embeddings, precision: str, owner: str) -> None:
    # Below 2⁻¹⁴ float16 keeps fewer bits: a row of such values would lose its direction.
    largest = np.abs(X).max(axis=1)
    least, most = (2.0**-10, 65504.0) if precision == "float16" else (2.0**-50, 2.0**50)
    if ((largest > most) | ((largest > 0) & (largest < least))).any():
        raise InvalidInputError(
            f"{owner}: a vector is beyond the range of {precision}. Normalise the vectors.",
            code="E-SEAL-RANGE", param="vectors",
        )  # fmt: skip
