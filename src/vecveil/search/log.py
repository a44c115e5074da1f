"""The log of a sealed index: immutable segments in a storage, and numbered commits that replace segments.

Any process appends segments without asking anybody. What replaces segments (compaction, forgetting, renewal of keys) is
a commit, created only if its number is free: of two processes the second starts again from the first's state. So a
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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import numpy as np
import pyarrow as pa

from vecveil.encoders.cache import default_cache_folder
from vecveil.encoders.text_encoder import TextEncoder
from vecveil.errors import IncompatibleError, InvalidInputError, KeyFileError, SealingError, StoreError
from vecveil.io import LockedError, atomic_path, locked
from vecveil.runtime import progress
from vecveil.sealing.keystore import KeyStore
from vecveil.sealing.segments import (
    DELETED,
    LIVE,
    NO_ROWS,
    DataKeys,
    IndexKeys,
    KeySource,
    RetiredKeyError,
    Segment,
    SegmentWriter,
    Sizes,
    closed,
    schema,
)
from vecveil.search.state import NewVectors, ReencodedSegment, Snapshot, check_texts_there, hashes_of, load
from vecveil.search.storage import Storage, new_name
from vecveil.validation import check_positive

_OWNER = "SealedIndex"
_MARK = "index.json"
_SCHEMA = "vecveil.index/1"
_APPEND = re.compile(r"segments/([0-9a-f]{16})-([0-9a-f]{32})-(\d+)\.parquet")
_MERGED = re.compile(r"segments/c([0-9a-f]{8})-([0-9a-f]{16})-([0-9a-f]{32})-(\d+)\.parquet")
_VECTORS = "segments/v-"  # objects of an unfinished re-encoding
_COMMIT = re.compile(r"commits/([0-9a-f]{8})\.parquet")
_MOST_APPENDS = 64  # appends outside of a commit before `append` compacts
_SEGMENT_ROWS, _SEGMENT_BYTES = 2**18, 2**28
_GRACE = 8  # commits that a deletion survives, so that an append delayed meanwhile does not bring its row back
_ROUNDS = 100  # of a renewal of keys, while others write
_CHUNK = 2048  # texts that are encoded between two objects of a re-encoding
_KEPT_COMMITS = 2  # commits before the last that keep their content
_PATIENCE = 1.0, 10.0  # least and most seconds for which a missing object is looked for
T = TypeVar("T")


class StorageOptions(TypedDict, total=False):
    """The arguments of `SealedIndex` that concern its storage."""

    max_staleness: float
    trusted_state: str | os.PathLike[str] | None
    cache: str | os.PathLike[str] | None
    storage_options: Mapping[str, Any] | None
    exclusive: bool


@dataclass(frozen=True)
class StorageSettings:
    """`StorageOptions` with their defaults."""

    max_staleness: float = 2.0
    trusted_state: str | os.PathLike[str] | None = None
    cache: str | os.PathLike[str] | None = None
    storage_options: Mapping[str, Any] | None = None
    exclusive: bool = False

    def open(self, location: str) -> Storage:
        """Return the storage of an index."""
        folder = Path(self.cache) if self.cache is not None else default_cache_folder().parent / "index"
        place = hashlib.sha256(location.encode()).hexdigest()[:24]
        return Storage(location, cache=folder / place, options=self.storage_options)


class SegmentLog:
    """Appends and commits of one process to one index; see `SealedIndex` for the arguments.

    Attributes:
        keys: keys of the index, or None before it is made.
        encoder: encoder of the texts, or None.
        snapshot: what is loaded, or None.
        dimension: of the vectors, or None before it is known.
        noted_encoder: fingerprint of the encoder that the last commit or a loaded segment notes, if one does.
    """

    def __init__(
        self,
        location: str,
        source: KeySource,
        settings: StorageSettings,
        *,
        precision: str,
        encoder: TextEncoder | None,
    ) -> None:
        self.location, self.storage, self.precision = location, settings.open(location), precision
        self._source, self.encoder, self._exclusive = source, encoder, settings.exclusive
        self._staleness = check_positive(settings.max_staleness, owner=_OWNER, param="max_staleness", allow_zero=True)
        self._trusted = None if settings.trusted_state is None else Path(settings.trusted_state)
        self.keys: IndexKeys | None = None
        self.snapshot: Snapshot | None = None
        self.dimension: int | None = None
        self.noted_encoder: str | None = None
        self._noted_name: str | None = None
        self._reencoded: int | None = None  # commit that last changed the encoder, 0 for none; None before it is read
        self._read_commit = 0
        self._vectors = True  # whether segments are loaded with their vectors
        self._checked = 0.0  # when the storage was last listed
        self._mine: set[str] = set()  # appends of this process that it has not loaded, for storages that list late
        self._made = 0  # last commit that is known to exist
        self._writer, self._written, self._lamport = new_name(), 0, 0
        self._changing = threading.RLock()
        self._closed = False
        self.exists()

    def close(self) -> None:
        """Close the files and drop what is in memory."""
        with self._changing:
            self._closed = True
            for part in self.snapshot.parts.values() if self.snapshot else ():
                part.segment.close()
            self.snapshot = None

    def append(
        self,
        columns: Callable[[int], Mapping[str, Any]],
        n: int | None,
        *,
        encoder: TextEncoder | None = None,
        deleted: bool = False,
    ) -> None:
        """Write one segment; return when it is durable.

        Args:
            columns: returns the Arrow columns of the rows for a dimension; the version's columns are added here.
            n: dimension of the rows; None for deletions, which take the index's.
            encoder: the one that was `encoder` when the vectors were made.
        """
        with self._changing:
            if not deleted and encoder is not self.encoder:
                raise IncompatibleError(
                    "This process encoded the index again meanwhile. Add the rows again.",
                    code="E-INCOMPATIBLE-ENCODER",
                    param="vectors",
                )
            keys = self.made()
            known = self.known_dimension()
            if n is not None and known not in (None, n):
                raise IncompatibleError(
                    f"The index has vectors of {known} dimensions; these have {n}. Use the encoder of the index.",
                    param="vectors",
                )
            n = n or known
            if n is None:
                return
            rows = columns(n)
            while True:
                listing = self._listing()
                last = listing.commit
                if keys.reads and last > self._read_commit:  # it may have changed the encoder
                    with contextlib.suppress(FileNotFoundError, RetiredKeyError):  # later commits followed
                        self._record_of(last, keys)
                self._lamport = 1 + max(self._lamport, *listing.lamports, 0)
                name = f"segments/{self._lamport:016x}-{self._writer}-{self._written + 1}.parquet"
                stamped = _stamped(rows, self._lamport, self._writer, DELETED if deleted else LIVE)
                record = {
                    "uuid": str(keys.uuid),
                    "kind": "append",
                    **self._noted(),
                    "seen": {"commit": listing.commit, "appends": listing.newest},
                }
                try:
                    key_id = self._write(name, [stamped], keys, n, record)
                except BaseException:
                    # The object may exist or not, also after Ctrl-C. A new writer begins, whose numbers have no gap.
                    self._writer, self._written = new_name(), 0
                    raise
                self._written += 1
                if keys.reads:
                    self._mine.add(name)
                # The key may have been renewed meanwhile, and be deleted before anybody renews this segment. Or so many
                # commits were made that one dropped a newer deletion of these rows. Then write again, above all others.
                if key_id == keys.current() and self._last_commit() - last < _GRACE:
                    break
            self.dimension = n
            if self.snapshot is not None:
                self._refresh()
            covered = {} if self.snapshot is None else self.snapshot.covered
            pending = sum(_is_open(name, covered) for name in listing.appends)
            if pending >= _MOST_APPENDS and keys.reads and self._can_commit():
                with contextlib.suppress(_Superseded, StoreError):  # the rows are durable in any case
                    self.commit(self._small, once=True)

    def _write(
        self,
        name: str,
        tables: Iterable[Any],
        keys: IndexKeys,
        n: int,
        record: Mapping[str, Any],
        expected: Sizes | None = None,
    ) -> str:
        """Write the object ``name`` with these tables and return the id of its key."""
        with self.storage.creating(name) as path:
            writer = SegmentWriter(path, name, keys, n=n, precision=self.precision, record=record, expected=expected)
            try:
                for table in tables:
                    writer.add(table)
            except BaseException:
                writer.abandon()
                raise
            writer.close()
        return writer.key_id

    def check_open(self) -> None:
        """Raise `StoreError` if `close` was called."""
        if self._closed:
            raise closed(self.location)

    def current(self) -> Snapshot:
        """Return the state to answer from, at most ``max_staleness`` old."""
        self.check_open()
        if self.snapshot is None:
            with self._changing:
                if self.snapshot is None:
                    self._refresh()
        elif time.monotonic() - self._checked > self._staleness and self._changing.acquire(blocking=False):
            # Meanwhile other threads answer from the state before.
            try:
                self._refresh()
            finally:
                self._changing.release()
        assert self.snapshot is not None
        return self.snapshot

    def exists(self) -> bool:
        """Return whether there is an index, and open its keys."""
        self.check_open()
        if self.keys is None:
            try:
                mark = json.loads(self.storage.read(_MARK))
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
            self.keys = self._source.of(index, self.location)
        return True

    def existing(self) -> IndexKeys:
        """Return the keys of the index; raise `StoreError` if there is none."""
        if not self.exists():
            raise StoreError(
                f"No sealed index at {self.location}. Create one with add, or check the path.", code="E-INDEX-MISSING"
            )
        assert self.keys is not None
        return self.keys

    def made(self) -> IndexKeys:
        """Return the keys of the index, which is made if it is not there."""
        if not self.exists():
            keys = self._source.new()
            mark = json.dumps({"schema": _SCHEMA, "uuid": str(keys.uuid)}) + "\n"
            try:
                self.storage.create(_MARK, mark.encode())
            except FileExistsError:
                self._source.discard(keys)
                self.exists()
            else:
                self.keys = keys
        assert self.keys is not None
        return self.keys

    def known_dimension(self) -> int | None:
        """Return the dimension, and check the encoder, from one object if nothing is loaded; None for a new index."""
        if self.dimension is None and self.keys is not None and self.keys.reads:
            keys = self.keys

            def look(listing: _Listing) -> None:
                if listing.commit:
                    self._record_of(listing.commit, keys)
                elif listing.appends:
                    segment = self._opened(max(listing.appends), keys)
                    segment.close()
                    self._check_encoder(segment.record)
                    self._take_layout(segment.record)

            self._settled(look)
        return self.dimension

    def _last_commit(self) -> int:
        commits = [int(match[1], 16) for name in self.storage.list("commits") if (match := _COMMIT.fullmatch(name))]
        return max(commits, default=self._made)

    def _listing(self) -> _Listing:
        # Whatever a commit has taken over was listed before it, or is named by it.
        names = self.storage.list("segments") | self._mine
        self._made = max(self._made, self._last_commit())
        return _Listing(names, self._made)

    def _settled(self, attempt: Callable[[_Listing], T]) -> T:
        """Return what ``attempt`` makes of the listed objects; try again while other processes replace them.

        Raises:
            StoreError: an object stays missing.
        """
        due, commit = 0.0, -1
        while True:
            listing = self._listing()
            if listing.commit > commit:  # a busy index is no incomplete one
                due, commit = time.monotonic() + min(max(self._staleness, _PATIENCE[0]), _PATIENCE[1]), listing.commit
            try:
                return attempt(listing)
            except FileNotFoundError as error:  # a commit replaced the object after it was listed
                problem = f"the object {Path(str(error.filename or error)).name} cannot be read"
            except _Missing as error:  # a storage may list late
                problem = str(error)
            except RetiredKeyError as error:  # a later commit took its place
                if time.monotonic() > due:
                    raise
                problem = str(error)
            if time.monotonic() > due:
                raise StoreError(
                    f"The index at {self.location} is incomplete: {problem}. The storage withholds objects, or they "
                    "were deleted. Restore them from a backup of the storage.",
                    code="E-INDEX-INCOMPLETE",
                )
            time.sleep(0.05)

    def refresh(self, *, afresh: bool = False) -> Snapshot:
        """See `SealedIndex.refresh`."""
        with self._changing:
            if afresh:
                self.snapshot = None
                for name in self.storage.copies():
                    self.storage.forget_copy(name)
            self._refresh()
        assert self.snapshot is not None
        return self.snapshot

    def current_rows(self) -> dict[str, bytes]:
        """Return the names of all segments, each with its current rows as packed bits; load no vector for it."""
        self._vectors = False
        snapshot = self.refresh()
        if any(isinstance(part.segment, ReencodedSegment) for part in snapshot.parts.values()):
            raise _other_encoder(
                f"{_OWNER}: rows were added with the former encoder while the index was encoded again. Call compact() "
                "of an index that is opened with its encoder first."
            )
        return {name: np.packbits(mask).tobytes() for name, mask in snapshot.alive.items()}

    def hold(self, segments: Mapping[str, bytes]) -> None:
        """Load these segments with the rows that `current_rows` gave, and look for nothing newer.

        Raises:
            StoreError: there is no index, or a commit has replaced one of the segments.
        """
        keys = self.existing()
        try:
            parts = {name: load(self._segment(name, keys)) for name in segments}
        except (FileNotFoundError, RetiredKeyError):
            raise StoreError(
                f"A commit replaced segments of {self.location} since the search began. Start the search again.",
                code="E-INDEX-BUSY",
            ) from None
        current = {
            name: np.unpackbits(np.frombuffer(segments[name], np.uint8), count=len(part)).astype(np.bool_)
            for name, part in parts.items()
        }
        self.snapshot = Snapshot(parts, current, current, dimension=self.dimension)
        self._staleness, self._checked = np.inf, time.monotonic()

    def _refresh(self) -> None:
        """Bring the snapshot to the state of the storage; the lock is held."""
        keys = self.existing()
        before, trusted = self.snapshot or Snapshot({}, {}, {}), self._trusted_state()
        after = self._settled(lambda listing: self._advanced(before, listing, keys))
        # Others may share the folder of copies: what they load is left alone.
        unused = (before.parts.keys() if self.snapshot else self.storage.copies()) - after.parts.keys()
        self.snapshot = replace(after, encoder=self.encoder, dimension=self.dimension)
        self._checked = time.monotonic()
        self._lamport = max(self._lamport, after.lamport)
        self._mine = {name for name in self._mine if name not in after.parts and _is_open(name, after.covered)}
        for name in unused:
            self.storage.forget_copy(name)
        self._check_trusted(after, trusted)

    def _advanced(self, before: Snapshot, listing: _Listing, keys: IndexKeys) -> Snapshot:
        if listing.commit < before.commit:
            raise _Missing(f"the storage shows commit {listing.commit} after commit {before.commit}")
        base, covered = list(before.parts), dict(before.covered)
        base = [name for name in base if _MERGED.fullmatch(name) or not _is_open(name, covered)]
        if listing.commit > before.commit:
            record = self._record_of(listing.commit, keys)
            base, covered = record["base"], record["covered"]
        newest = dict(covered)
        appends = [name for name in listing.appends if _is_open(name, covered)]
        for writer, numbers in _numbers(appends).items():
            expected = range(covered.get(writer, 0) + 1, max(numbers) + 1)
            if lacking := sorted(set(expected) - numbers):
                raise _Missing(f"append {lacking[0]} of writer {writer[:8]}… is missing")
            newest[writer] = max(numbers)
        if problem := _lacking(newest, before.newest):
            raise _Missing(problem)
        wanted = [*base, *appends]
        new = {}
        for name in wanted:
            if name not in before.parts:
                try:
                    part = load(self._segment(name, keys), vectors=self._vectors)
                except RetiredKeyError:
                    # After a renewal its writer appended the rows again; without one this is an older backup.
                    if name in base or not listing.commit:
                        raise
                    continue
                new[name] = part
                seen = part.segment.record.get("seen", {})
                if seen.get("commit", 0) > listing.commit:
                    raise _Missing(f"commit {seen['commit']} is missing")
                if problem := _lacking(newest, seen.get("appends", {})):
                    raise _Missing(problem)
        return before.with_parts(
            [name for name in wanted if name in before.parts],
            new,
            commit=listing.commit,
            covered=covered,
            newest=newest,
            lamport=max([before.lamport, *listing.lamports]),
        )

    def _segment(self, name: str, keys: IndexKeys) -> Segment:
        """Open a segment and compare its record with the index."""
        segment = self._opened(name, keys)
        record = segment.record
        if record["uuid"] != str(keys.uuid):
            segment.close()
            raise SealingError(f"{name} belongs to another index.", code="E-SEAL-OPEN")
        if (
            record["kind"] == "append"
            and self._reencoded
            and (
                record["encoder"] != self.noted_encoder
                if record["encoder"]
                else record["seen"]["commit"] < self._reencoded
            )
        ):
            segment = self._encoded_again(segment)
            record = segment.record
        layout = record["dimension"], record["precision"]
        if self.dimension is not None and layout != (self.dimension, self.precision):
            segment.close()
            raise IncompatibleError(
                f"{name} contains vectors of {layout[0]} dimensions as {layout[1]}, the rest of the index of "
                f"{self.dimension} as {self.precision}."
            )
        self._check_encoder(record)
        self._take_layout(record)
        return segment

    def _encoded_again(self, segment: Segment) -> Segment:
        """Return an append that a writer made with the former encoder, with vectors of the present one."""
        if self.encoder is None:
            segment.close()
            raise _other_encoder(
                f"{segment.name} was added with the former encoder while the index was encoded again. Call "
                f"reencode(encoder) once more with {self._label()}."
            )
        return ReencodedSegment(segment, NewVectors(self.encoder, self.precision))

    def _take_layout(self, record: Mapping[str, Any]) -> None:
        """Take over dimension and precision of an index that exists."""
        self.dimension, self.precision = record["dimension"], record["precision"]

    def _opened(self, name: str, keys: IndexKeys) -> Segment:
        """Open a segment; a local copy that is gone or damaged is fetched again."""

        def again() -> Path:
            self.storage.forget_copy(name)
            return self.storage.fetch(name)

        return Segment(self.storage.fetch(name), name, keys, again=None if self.storage.local else again)

    def _record_of(self, number: int, keys: IndexKeys) -> dict[str, Any]:
        """Return the record of a commit; raise FileNotFoundError if later commits have emptied it."""
        name = _commit_name(number)
        content = self.storage.read(name)
        try:
            if not content:
                raise FileNotFoundError(name)
            segment = Segment(content, name, keys)
        except SealingError:
            if not self.storage.read(name):  # it was emptied while it was read
                raise FileNotFoundError(name) from None
            raise
        segment.close()
        self._check_encoder(segment.record)
        self._read_commit = max(self._read_commit, segment.record["commit"])
        self._take_layout(segment.record)
        record: dict[str, Any] = {**segment.record, "key_id": segment.key_id}
        return record

    def _noted(self) -> dict[str, Any]:
        """Return what a record notes of the encoder."""
        if self.encoder is None:
            return {"encoder": self.noted_encoder, "encoder_name": self._noted_name}
        return {"encoder": self.encoder.model_fingerprint or self.noted_encoder, "encoder_name": self.encoder.name}

    def _label(self) -> str:
        return f"{self._noted_name or 'its encoder'} (fingerprint {str(self.noted_encoder)[:12]})"

    def _check_encoder(self, record: Mapping[str, Any]) -> None:
        """Take over the encoder that a commit or segment notes; raise if this process has another."""
        stored, reencoded = record["encoder"], record.get("reencoded", self._reencoded or 0)
        if stored is not None:
            self.noted_encoder, self._noted_name = stored, record["encoder_name"]
        own = None if self.encoder is None else self.encoder.model_fingerprint
        if own is not None and stored not in (None, own):
            assert self.encoder is not None
            raise _other_encoder(
                f"The index has the encoder {self._label()}, not {self.encoder.name}. Open it with that encoder, or "
                "encode it again with index.reencode(encoder)."
            )
        if own is None and reencoded > (reencoded if self._reencoded is None else self._reencoded):
            raise _other_encoder(
                f"The index was encoded again with {self._label()}, so that earlier vectors do not fit. Open it again."
            )
        self._reencoded = reencoded

    def _trusted_state(self) -> dict[str, Any]:
        """Return the trusted state, which must be read before the storage is listed."""
        keys, nothing = self.existing(), {"commit": 0, "newest": {}}
        if self._trusted is None or not self._trusted.exists():
            return nothing
        try:
            segment = Segment(self._trusted.read_bytes(), f"trusted/{keys.uuid}", keys)
        except RetiredKeyError:  # nothing from before the renewal opens any more
            return nothing
        except (SealingError, KeyFileError, OSError) as error:
            raise SealingError(
                f"The file of trusted_state, {self._trusted.name}, cannot be read: it is damaged, or another index or "
                "key wrote it. Restore it from a backup; without one, delete it and check what the storage contains.",
                code="E-SEAL-OPEN",
                param="trusted_state",
            ) from error
        segment.close()
        state: dict[str, Any] = segment.record["state"]
        return state

    def _check_trusted(self, snapshot: Snapshot, known: Mapping[str, Any]) -> None:
        """Compare the state with the trusted one from before it was listed, and write the newest of both."""
        if self._trusted is None:
            return
        keys = self.existing()
        if known["commit"] > snapshot.commit or _lacking(snapshot.newest, known["newest"]):
            raise StoreError(
                f"The storage of the index at {self.location} was rolled back: {self._trusted.name} knows newer "
                "writes. Restore the storage, or delete this file if you restored an older backup yourself.",
                code="E-INDEX-INCOMPLETE",
            )
        if known == {"commit": snapshot.commit, "newest": dict(snapshot.newest)}:
            return
        try:
            with locked(self._trusted):
                known = self._trusted_state()  # another process may have written it
                both = known["newest"], snapshot.newest
                newest = {writer: max(each.get(writer, 0) for each in both) for writer in both[0] | both[1]}
                state = {"commit": max(snapshot.commit, known["commit"]), "newest": newest}
                record = {"uuid": str(keys.uuid), "kind": "trusted", "state": state}
                with atomic_path(self._trusted) as path:
                    name, precision = f"trusted/{keys.uuid}", self.precision
                    SegmentWriter(path, name, keys, n=self.dimension or 1, precision=precision, record=record).close()
        except (OSError, LockedError) as error:
            raise StoreError(
                f"The file of trusted_state, {self._trusted.name}, cannot be written: "
                f"{getattr(error, 'strerror', None) or 'another process keeps it locked'}. The index is unharmed.",
                code="E-INDEX-STORAGE",
                param="trusted_state",
            ) from error

    def rewrite(self, ids: Sequence[str]) -> None:
        """See `SealedIndex.forget`."""
        listed = pa.array(ids, pa.string())
        hashes = hashes_of(listed)
        self._drop_vectors()
        self.commit(lambda s: {name for name, part in s.parts.items() if len(part.locate(listed, hashes)[0])})

    def compact(self) -> None:
        """See `SealedIndex.compact`."""
        self.commit(self._worth_merging)

    def renew_keys(self, *, show_progress: bool | None = None) -> None:
        """See `SealedIndex.reseal`."""
        keys = self.keys
        if not isinstance(keys, DataKeys) or not isinstance(keys.store, KeyStore):
            raise InvalidInputError(
                f"{_OWNER}.reseal: only a key store has data keys to renew; this index has a different kind of key.",
                param="key",
            )
        with self._changing:
            if len(keys.store.read(keys.collection).keys) == 1:  # otherwise an interrupted renewal goes on
                keys.store.rotate(keys.collection)
            self._drop_vectors()
            for _ in progress(range(_ROUNDS), "Resealing", show=show_progress, unit="round"):
                current, snapshot = keys.current(), self.refresh()
                older = _under_other_keys(snapshot, key_id=current)
                if not older and snapshot.commit:
                    with contextlib.suppress(FileNotFoundError):  # others commit at the same time
                        if self._record_of(snapshot.commit, keys)["key_id"] == current:
                            break
                self.commit(partial(_under_other_keys, key_id=current), always=True)
            else:
                raise StoreError(f"{_OWNER}.reseal: writers kept the older key. Call it again.", code="E-INDEX-BUSY")
            # Another renewal may have begun since: then this key, of what was verified, is no longer the current one.
            keys.store.retire(keys.collection, keep=bytes.fromhex(current))

    def reencode(self, encoder: TextEncoder, *, show_progress: bool | None = None) -> None:
        """See `SealedIndex.reencode`."""
        self._require_commits()
        self.known_dimension()
        if self.noted_encoder == encoder.model_fingerprint:
            # What writers with the former encoder added meanwhile is taken over, nothing else.
            self.encoder = encoder
            self.commit(lambda snapshot: set())
            return
        snapshot = self.refresh()
        vectors = NewVectors(encoder, self.precision)
        self._load_vectors(vectors)
        for _ in range(2):  # the second time, what others have added during the first
            self._encode_all(snapshot, vectors, show_progress)
            snapshot = self.refresh()
        self.commit(lambda snapshot: set(snapshot.parts), always=True, vectors=vectors)
        self._drop_vectors()

    def _encode_all(self, snapshot: Snapshot, vectors: NewVectors, show: bool | None) -> None:
        """Encode the texts of all rows, and keep each chunk of vectors in an object."""
        keys, lacking = self.existing(), 0
        for part, mask in snapshot.live():
            has_text = [table["has_text"].to_numpy() for table in part.segment.columns(["has_text"])]
            lacking += int(np.count_nonzero(mask & ~np.concatenate([np.zeros(0, np.bool_), *has_text])))
        check_texts_there(lacking)
        total = -(-snapshot.count() // _CHUNK)
        for texts in progress(_texts(snapshot), "Encoding", total=total, show=show, unit="chunk"):
            if columns := vectors.encode(texts):
                rows = len(columns["id"])
                columns |= {
                    "text": pa.array([""] * rows),
                    "has_text": pa.array([False] * rows),
                    "metadata": pa.array([""] * rows),
                }
                record = {"uuid": str(keys.uuid), "kind": "vectors", "encoder": vectors.encoder.model_fingerprint}
                name = f"{_VECTORS}{new_name()}.parquet"
                table = _stamped(columns, 0, new_name(), LIVE)
                self._write(name, [table], keys, vectors.encoder.dimension, record)

    def _load_vectors(self, vectors: NewVectors) -> None:
        """Take over the vectors that an interrupted re-encoding with the same encoder has left."""
        keys = self.existing()
        for name in self._vector_objects():
            try:
                segment = self._opened(name, keys)
            except (FileNotFoundError, RetiredKeyError):
                continue
            noted = segment.record["encoder"], segment.record["precision"], segment.record["uuid"]
            if noted == (vectors.encoder.model_fingerprint, self.precision, str(keys.uuid)):
                columns = ["id", "vector", *(["scale"] if self.precision == "int8" else [])]
                for table in segment.columns(columns):
                    vectors.learn(table)
            segment.close()

    def _vector_objects(self) -> list[str]:
        return sorted(name for name in self.storage.list("segments") if name.startswith(_VECTORS))

    def _drop_vectors(self) -> None:
        """Delete the objects of re-encodings: one that is not finished starts again."""
        self.storage.delete(self._vector_objects())

    def _can_commit(self) -> bool:
        return self.storage.conditional or self._exclusive

    def _require_commits(self) -> None:
        if not self._can_commit():
            raise StoreError(
                f"The storage of {self.location} cannot create an object only if it is absent, so two processes could "
                "commit at once. Open the index with exclusive=True in one maintenance process.",
                code="E-INDEX-COMMIT",
            )

    def _small(self, snapshot: Snapshot) -> set[str]:
        """Return the segments that an automatic compaction merges: the small ones, in geometric steps.

        So each row is written again a logarithmic number of times, and a few new rows do not move many old ones.
        """
        sizes = sorted((len(part), name) for name, part in snapshot.parts.items())
        chosen: set[str] = set()
        rows = 0
        for size, name in sizes:
            if size >= _SEGMENT_ROWS // 2 or (chosen and size > 2 * rows + 4096):
                break
            chosen.add(name)
            rows += size
        return chosen if len(chosen) > 1 else set()

    def _worth_merging(self, snapshot: Snapshot) -> set[str]:
        """Return the segments that are less than half full or hold a superseded row or a deletion."""
        small = {name for name, part in snapshot.parts.items() if len(part) < _SEGMENT_ROWS // 2}
        stale = {name for name in snapshot.parts if not snapshot.alive[name].all()}
        return stale | (small if len(small) > 1 else set())

    def commit(
        self,
        choose: Callable[[Snapshot], set[str]],
        *,
        once: bool = False,
        always: bool = False,
        vectors: NewVectors | None = None,
    ) -> None:
        """Rewrite the chosen segments and take over all appends, as one numbered commit.

        Args:
            once: raise if another process commits first.
            always: commit also if nothing is chosen.
            vectors: vectors of a different encoder, which the index has from this commit on.

        Raises:
            _Superseded: ``once``, and another process committed first.
        """
        self._require_commits()
        with self._changing:
            while True:
                snapshot, keys = self._refreshed_after_commit(), self.existing()
                number = snapshot.commit + 1
                noted: dict[str, Any] = {"uuid": str(keys.uuid), **self._noted()}
                n, reencoded = self.dimension or 1, self._reencoded or 0
                if vectors is not None:
                    snapshot = _reencoded(snapshot, vectors)
                    n, reencoded = vectors.encoder.dimension, number
                    noted |= {"encoder": vectors.encoder.model_fingerprint, "encoder_name": vectors.encoder.name}
                chosen = choose(snapshot)
                chosen |= {name for name, part in snapshot.parts.items() if isinstance(part.segment, ReencodedSegment)}
                pending = [name for name in snapshot.parts if _is_open(name, snapshot.covered)]
                if not chosen and not pending and not always:
                    return
                outputs: list[str] = []
                try:
                    if chosen or always:
                        merged = {**noted, "kind": "merged", "commit": number}
                        self._merge(snapshot, chosen, n, keys, merged, outputs)
                    record = {
                        **noted,
                        "kind": "commit",
                        "commit": number,
                        "reencoded": reencoded,
                        "base": [*(name for name in snapshot.parts if name not in chosen), *outputs],
                        "covered": dict(snapshot.newest),
                    }
                    self._write(_commit_name(number), [], keys, n, record)
                    break
                except (FileExistsError, FileNotFoundError, RetiredKeyError) as error:
                    # Another process made this commit, and may already have deleted what was written here, or its key.
                    if isinstance(error, FileExistsError):
                        self._made = max(self._made, number)
                    after = self.refresh()
                    self.storage.delete(name for name in outputs if name not in after.parts)
                    if after.commit < number:
                        raise StoreError(
                            f"What a commit wrote to {self.location} is not there. Repeat the call.",
                            code="E-INDEX-STORAGE",
                        ) from error
                    if once:
                        raise _Superseded from None
            self._made = max(self._made, number)
            if vectors is not None:
                self.encoder, self._reencoded, self.dimension = vectors.encoder, number, n
            self._refresh()
            self._clean()

    def _refreshed_after_commit(self) -> Snapshot:
        """Return a snapshot whose appends were listed after its commit was there."""
        while True:
            known = self._made
            snapshot = self.refresh()
            if snapshot.commit == known:
                return snapshot

    def _merge(
        self, snapshot: Snapshot, chosen: set[str], n: int, keys: IndexKeys, record: dict[str, Any], outputs: list[str]
    ) -> None:
        """Write the current rows of the chosen segments into new ones and verify them; their names join ``outputs``."""
        limit = max(1, min(_SEGMENT_ROWS, _SEGMENT_BYTES // (2 * n)))
        number = record["commit"]
        left = sum((_sizes(snapshot, name) for name in chosen), NO_ROWS)
        source = self._surviving(snapshot, chosen, number, n)
        unique = new_name()  # an earlier attempt may have written this number
        rest = next(source, None)

        def tables() -> Iterator[Any]:
            nonlocal rest
            free = limit
            while rest is not None and free:
                table = rest.slice(0, free)
                free -= len(table)
                rest = rest.slice(len(table)) if len(rest) > len(table) else next(source, None)
                yield table

        while rest is not None:
            name = f"segments/c{number:08x}-{snapshot.lamport:016x}-{unique}-{len(outputs) + 1}.parquet"
            outputs.append(name)
            expected = left.part(min(limit, left.rows))
            left = left.part(left.rows - expected.rows)
            self._write(name, tables(), keys, n, record, expected)
        for name in outputs:  # every page opens, of what the storage contains
            self.storage.forget_copy(name)
            segment = self._opened(name, keys)
            rows = sum(len(table) for table in segment.columns(["id", "vector", "text", "metadata"]))
            segment.close()
            if rows != segment.record["rows"]:
                raise SealingError(f"{name} does not contain what was written.", code="E-SEAL-OPEN")

    def _surviving(self, snapshot: Snapshot, chosen: set[str], number: int, n: int) -> Iterator[Any]:
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
            for table in part.segment.columns(schema(n, self.precision).names):
                end = start + len(table)
                at = table.schema.get_field_index("deleted")
                table = table.set_column(at, table.schema.field(at), pa.array(deleted[start:end]))
                if keep[start:end].any():
                    yield table.filter(pa.array(keep[start:end]))
                start = end

    def _clean(self) -> None:
        """Delete objects that the last commit replaced, and what interrupted commits left; the lock is held."""
        snapshot = self.snapshot
        assert snapshot is not None
        listing = self._listing()
        gone = [
            name
            for name in listing.names - snapshot.parts.keys()
            if ((match := _MERGED.fullmatch(name)) and int(match[1], 16) <= snapshot.commit)
            or (_APPEND.fullmatch(name) and not _is_open(name, snapshot.covered))
        ]
        self.storage.delete(gone)
        # Old commits keep their names, which must stay taken, and lose their content.
        older = snapshot.commit - _KEPT_COMMITS
        for number in range(max(1, older - 1), older + 1):
            with contextlib.suppress(FileNotFoundError):
                self.storage.empty(_commit_name(number))
        self.storage.tidy()


class _Listing:
    """The objects of the storage at one moment, by their names."""

    def __init__(self, names: set[str], commit: int) -> None:
        self.names, self.commit = names, commit
        self.appends = {name for name in names if _APPEND.fullmatch(name)}
        merged = [match for name in names if (match := _MERGED.fullmatch(name))]
        # A merge that its commit does not name yet repeats rows, so its number does no harm.
        self.lamports = [
            *(int(name.partition("/")[2][:16], 16) for name in self.appends),
            *(int(match[2], 16) for match in merged),
        ]
        self.newest = {writer: max(numbers) for writer, numbers in _numbers(self.appends).items()}


class _Missing(Exception):
    """An object that must exist does not appear."""


class _Superseded(Exception):
    """Another process committed first."""


def _other_encoder(sentence: str) -> IncompatibleError:
    return IncompatibleError(sentence, code="E-INCOMPATIBLE-ENCODER", param="encoder")


def _under_other_keys(snapshot: Snapshot, *, key_id: str) -> set[str]:
    """Return the segments that another key than ``key_id`` opens."""
    return {name for name, part in snapshot.parts.items() if part.segment.key_id != key_id}


def _sizes(snapshot: Snapshot, name: str) -> Sizes:
    """Return about the sizes of a segment's current rows."""
    return snapshot.parts[name].segment.sizes().part(int(np.count_nonzero(snapshot.current[name])))


def _reencoded(snapshot: Snapshot, vectors: NewVectors) -> Snapshot:
    """Return the snapshot with segments that read as if a different encoder had made their vectors."""
    parts = {
        name: replace(part, segment=ReencodedSegment(part.segment, vectors, snapshot.alive[name]))
        for name, part in snapshot.parts.items()
    }
    return replace(snapshot, parts=parts)


def _texts(snapshot: Snapshot) -> Iterator[list[str]]:
    """Yield the texts of all rows in chunks."""
    texts: list[str] = []
    for part, mask in snapshot.live():
        start = 0
        for table in part.segment.columns(["text"]):
            texts += table.filter(pa.array(mask[start : start + len(table)]))["text"].to_pylist()
            start += len(table)
            while len(texts) >= _CHUNK:
                yield texts[:_CHUNK]
                texts = texts[_CHUNK:]
    yield texts


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


def _lacking(newest: Mapping[str, int], known: Mapping[str, int]) -> str:
    """Return which append is missing if a writer's number in ``newest`` is less than the one known, or nothing."""
    found = ((writer, number) for writer, number in known.items() if newest.get(writer, 0) < number)
    return next((f"append {number} of writer {writer[:8]}… is missing" for writer, number in found), "")


def _commit_name(number: int) -> str:
    return f"commits/{number:08x}.parquet"


def _stamped(columns: Mapping[str, Any], lamport: int, writer: str, deleted: int) -> Any:
    """Return the table of new rows of one version."""
    rows = len(columns["id"])
    n_bytes = columns["vector"].type.byte_width
    precision = "int8" if "scale" in columns else "float16"
    stamps = {
        "lamport": pa.array(np.full(rows, lamport, np.int64)),
        "writer": pa.array([bytes.fromhex(writer)] * rows, pa.binary(16)),
        "deleted": pa.array(np.full(rows, deleted, np.int64)),
    }
    layout = schema(n_bytes if precision == "int8" else n_bytes // 2, precision)
    return pa.table([{**columns, **stamps}[field.name] for field in layout], schema=layout)
