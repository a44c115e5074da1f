"""Read and write a sealed index: follow its chain of commits, load what is live, append, and rewrite segments.

`vecveil.index.chain` has the rules. A writer first writes objects under random names. It then creates the commit that
adds them, if its number is free; otherwise it reads the commit of that number and continues from there.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import secrets
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Literal, TypedDict, get_args

import msgspec
import numpy as np
import pyarrow as pa

from vecveil.errors import IncompatibleError, InvalidInputError, KeyFileError, SealingError, StoreError, renamed
from vecveil.index.blocks import closed
from vecveil.index.chain import (
    INDEX_JSON,
    MOST_BYTES,
    Body,
    Chain,
    Header,
    Kind,
    Mark,
    StoredObject,
    check_checkpoint,
    check_mark,
    commit_name,
    encoder_tag,
    header_of,
    list_name,
    next_members,
    opened,
    refusal,
)
from vecveil.index.heads import Head, HeadMemory
from vecveil.index.index_keys import (
    DataKeys,
    IndexKeys,
    KeySource,
    MemberKeys,
    RetiredKeyError,
    founders,
    no_member,
    without_identity,
)
from vecveil.index.keystore import KeyStore
from vecveil.index.members import Member, Members, Place, public_keys
from vecveil.index.segments import MANY, Segment, schema, write_segment
from vecveil.index.state import LoadedSegment, NewVectors, Snapshot, check_rows, check_texts_there, load
from vecveil.index.storage import Storage
from vecveil.runtime import free_memory, progress
from vecveil.texts.encoders.text_encoder import TextEncoder
from vecveil.validation import check_positive

RETAIN = 86_400.0  # seconds that a replaced object stays, for backups and readers that began before
_OWNER = "SealedIndex"
_NUMBER = re.compile(r"commits/([0-9]{10})")
_LIST = re.compile(r"commits/([0-9]{10})\.members")
SEGMENT = re.compile(r"segments/[0-9a-f]{32}")
_MOST_FETCHED = 2**28  # bytes of a remote index that "auto" copies whole
_MOST_APPENDS = 64  # small appends before `append` compacts
_SEGMENT_ROWS, _SEGMENT_BYTES = 2**18, 2**28
_MOST_VOIDS = 4096  # names that one commit declares void
_ROUNDS = 100  # of a rewrite, while others write
_ROWS_AT_ONCE = 8192  # that a rewrite reads
_CHUNK = MANY  # texts that are encoded between two objects of a re-encoding, which then have no codes or words
_PATIENCE = 10.0  # seconds for which other threads answer from the earlier state while one loads a newer one


Vectors = Literal["auto", "memory", "disk", "remote"]
GivenUp = tuple[StoredObject, str | None]  # with the signer of the commit that added it


class FirstOwnerWarning(UserWarning):
    """On the first use of a shared index, only the storage says who shared it."""


class StorageOptions(TypedDict, total=False):
    """The arguments of `SealedIndex` that concern its storage."""

    max_staleness: float
    trusted_state: str | os.PathLike[str] | None
    cache: str | os.PathLike[str] | None
    storage_options: Mapping[str, Any] | None
    exclusive: bool
    vectors: Vectors
    owner: str | None


class SegmentLog:
    """One process's view of the chain of an index; `SealedIndex` documents the arguments.

    Attributes:
        keys: keys of the index, or None before it exists.
        chain: last state read, or None.
        snapshot: loaded rows, or None.
        encoder: encoder of the texts, or None.
    """

    def __init__(
        self,
        location: str,
        source: KeySource,
        *,
        precision: str,
        encoder: TextEncoder | None,
        max_staleness: float = 2.0,
        trusted_state: str | os.PathLike[str] | None = None,
        cache: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        exclusive: bool = False,
        vectors: Vectors = "auto",
        owner: str | None = None,
    ) -> None:
        if owner is not None:
            with renamed("public", "owner"):
                public_keys(owner)
        self._owner = owner
        self.location, self.storage, self.encoder = location, Storage(location, storage_options, cache), encoder
        self._source, self._precision = source, precision
        self.memory = HeadMemory(trusted_state, source.file, self.storage.place)
        self._staleness = check_positive(max_staleness, owner=_OWNER, param="max_staleness", allow_zero=True)
        self.keys: IndexKeys | None = None
        self.chain: Chain | None = None
        self.snapshot: Snapshot | None = None
        self._mark: Mark  # set with `keys`
        self._epoch: int | None = None  # of the vectors that this process has worked with
        self._conditional = True if exclusive else None  # None before the storage was probed
        if vectors not in get_args(Vectors):
            raise InvalidInputError(
                f"{_OWNER}: `vectors` is one of {', '.join(get_args(Vectors))}.", code="E-INPUT-NAME", param="vectors"
            )
        if vectors == "remote" and self.storage.local:
            raise InvalidInputError(
                f"{_OWNER}: vectors='remote' is for an index behind a URL; a folder has 'disk'.", param="vectors"
            )
        self._vectors: Vectors = vectors
        self._checked = -math.inf  # time of the last look at the storage
        self._closed = False
        self._make_locks()
        self.exists()

    def close(self) -> None:
        """Close the files and drop what is in memory."""
        with self._changing, self._loading:
            self._closed = True
            for part in self.snapshot.parts.values() if self.snapshot else ():
                part.segment.close()
            self.snapshot = None

    def _make_locks(self) -> None:
        self._changing = threading.RLock()  # one thread writes
        self._loading = threading.RLock()  # one thread changes `chain` and `snapshot`; taken after the other

    def after_fork(self) -> None:
        """Replace the locks: a thread of the parent process may have held them."""
        self._make_locks()
        for part in self.snapshot.parts.values() if self.snapshot else ():
            part.scan.make_lock()

    def check_open(self) -> None:
        """Raise `StoreError` if `close` was called."""
        if self._closed:
            raise closed(self.location)

    def check_rights(self) -> None:
        """Raise if `close` was called, or if a key provider refuses: withdrawn rights must not read rows in memory."""
        self.check_open()
        if isinstance(self.keys, DataKeys):
            self.keys.check()

    # The chain --------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Return whether there is an index, and open its keys."""
        self.check_open()
        if self.keys is None:
            known = self.memory.read()
            try:
                mark = check_mark(self.storage.read(INDEX_JSON, 4096), self.location)
            except FileNotFoundError:
                if known is not None:
                    raise self.memory.lost("is gone: index.json is missing, and an index was there") from None
                if any(map(_NUMBER.fullmatch, self.storage.list("commits"))):
                    raise incomplete(self.location, INDEX_JSON) from None
                return False
            self.memory.check(known, Chain.first(mark))
            self.keys, self._mark = self._source.of(mark.uuid, self.location), mark
            if isinstance(self.keys, MemberKeys) and self.keys.base is None:
                try:
                    self.advance()  # only a list of members shows that this key file may open the index
                except KeyFileError:
                    self.keys = None
                    raise
                except StoreError:
                    pass  # each use raises it again, and `repair` may delete what is wrong
        return True

    def existing(self) -> IndexKeys:
        """Return the keys of the index; raise `StoreError` if there is none."""
        if not self.exists() or self.keys is None:
            raise StoreError(
                f"No sealed index at {self.location}. Create one with add, or check the path.", code="E-INDEX-MISSING"
            )
        return self.keys

    def check_reads(self) -> None:
        """Raise `KeyFileError` in a process that cannot unwrap keys."""
        if not self.existing().reads:
            self.advance()  # a list of members may say otherwise by now
        if not self.existing().reads:
            raise KeyFileError(
                f"{_OWNER}: this key can add rows and delete them by id, but opens none. It belongs to a member who "
                "only writes, or to a key provider without unwrap. Use the key of a reader or owner.",
                code="E-SEAL-OPEN",
                param="key",
            )

    def made(self) -> IndexKeys:
        """Return the keys of the index; make the index if there is none."""
        if not self.exists():
            keys = self._source.new()
            mark = Mark.new(keys)
            try:
                self.storage.create(INDEX_JSON, mark.encode())
                self.keys, self._mark = keys, mark
            except FileExistsError:
                self._source.discard(keys)
        return self.existing()

    def state(self) -> Chain | None:
        """Return the state of an index that may not be loaded, with a compatible encoder; None for a new index."""
        if self.chain is None and self.exists():
            self._check_encoder(self.advance())
        return self.chain

    @property
    def precision(self) -> str:
        """Precision of the vectors: the index's, once it has any."""
        return (self.chain.precision if self.chain else None) or self._precision

    def advance(self) -> Chain:
        """Follow the chain to its head.

        Raises:
            StoreError: a commit does not follow, is missing, or is older than what this machine has seen.
        """
        with self._loading:
            keys, known = self.existing(), self.memory.read()
            chain, ahead = self._start(known) if self.chain is None else (self.chain, {})
            number = chain.number
            self.memory.check(known, chain)
            while (content := ahead.pop(chain.number + 1, None) or self.content(chain.number + 1)) is not None:
                chain = chain.follow(content, keys)
                self.memory.check(known, chain)
            self.memory.check(known, chain, at_head=True)
            if chain is self.chain and not self.storage.has(commit_name(number)):
                raise self.memory.lost(f"was rolled back, or is not mounted: {commit_name(number)} is gone")
            self.check_founder(known, chain)
            keys = keys.joined(chain.members)
            if isinstance(keys, MemberKeys) and not keys.is_member:
                raise no_member(keys.signer, self.location)
            if keys.reads and not chain.complete:
                raise KeyFileError(
                    f"The last commits of {self.location} were written under a data key that was renewed and deleted: "
                    "the storage shows an older state, or the key file comes from a later one.",
                    code="E-SEAL-OPEN",
                    param="key",
                )
            if chain is not self.chain:
                self.memory.note(chain)
            self.chain, self.keys = chain, keys
            if not keys.reads:
                self.snapshot = None
            return chain

    def _start(self, known: Head | None) -> tuple[Chain, dict[int, bytes | None]]:
        """Return the state from which to follow the chain, for a reader one before a checkpoint, and commits after it.

        The commits were read ahead, at once, from a remote storage.
        """
        keys, listed = self.existing(), self.storage.list("commits")
        numbers = {int(match[1]) for name in listed if (match := _NUMBER.fullmatch(name))} - {0}
        head = next(number for number in range(len(numbers) + 1) if number + 1 not in numbers)
        if any(number > head for number in numbers):  # a listing is not taken at one moment
            while self.content(head + 1) is not None:
                head += 1
        beyond = sorted(number for number in numbers if number > head)
        for number in {*beyond[:1], *beyond[-1:]}:
            if self._is_commit(number):  # other files may have such names
                raise incomplete(self.location, commit_name(head + 1))
        if not head:
            return Chain.first(self._mark), {}
        newest = self.needed(head)
        keys = keys.joined(self._members_before(head, newest, known))
        checkpoint = min(header_of(newest, head)[0].checkpoint, head) if keys.reads else 0
        start = max(checkpoint - 1, 0) if keys.reads else head - 1
        ahead: dict[int, bytes | None] = {}
        if not self.storage.local:
            following = range(start + 1, head + 1)
            with ThreadPoolExecutor(16) as pool:
                ahead = dict(zip(following, pool.map(self.content, following), strict=True))
        if checkpoint:
            check_checkpoint(head, checkpoint, ahead.get(checkpoint) or self.needed(checkpoint))
        # A commit after the remembered one may name an older list, so that the chain begins at the remembered one.
        if known is None or not 0 < known.number <= start:
            first = ahead.get(start + 1) or self.needed(start + 1)
            members = self._members_before(start + 1, first, known)
            self._check_newest(start, members, listed)
            return Chain.at(self._mark, start, header_of(first, start + 1)[0].previous, members), ahead
        seen, _ = header_of(self._content_at(Place(known.number, known.digest), head), known.number)
        chain = Chain.at(self._mark, known.number, known.digest, self._remembered(known), seen)
        for number in range(known.number + 1, start + 1):  # the remembered commit is a part of this chain
            chain = chain.follow(self.needed(number), None)
        return chain, ahead

    def _members_before(self, number: int, content: bytes, known: Head | None) -> Members | None:
        """Return the list of members that a commit says was in force before it.

        Each list is checked against the one before it, back to the one that this machine remembers, or to the first.
        """
        place, lists = header_of(content, number)[0].in_force, list[tuple[int, bytes]]()
        members = self._remembered(known) if known and known.members else None
        while place is not None and place != (members and members.place):
            content = self._content_at(place, number)
            lists.append((place.number, content))
            number, place = place.number, header_of(content, place.number)[0].in_force
        if place is None:
            members = None
        for at, content in reversed(lists):
            members = next_members(self._mark, at, members, content)
        return members

    def _remembered(self, known: Head) -> Members | None:
        """Return the list of members that this machine remembers."""
        place = known.members
        if place is None or known.founder is None:
            return None
        header, _ = header_of(self._content_at(place, place.number + 1), place.number)
        assert header.members is not None  # the digest is that of a list which was checked
        return Members(place, known.founder, header.key_id, header.members)

    def _content_at(self, place: Place, before: int) -> bytes:
        """Return the commit at a place that a later one names."""
        content = self.needed(place.number) if place.number < before else b""
        if hashlib.sha256(content).hexdigest() != place.digest:
            raise self.memory.lost(
                f"shows a different commit {place.number:,} than a later commit, or this machine, saw"
            )
        return content

    def _check_newest(self, start: int, members: Members | None, listed: Mapping[str, Any]) -> None:
        """Raise if a commit up to ``start`` has a newer list of members than ``members``.

        A member who was removed could otherwise name the earlier list to a machine that has seen no later one.
        """
        there = members.place.number if members else 0
        for name in listed:
            number = int(match[1]) if (match := _LIST.fullmatch(name)) else 0
            if there < number <= start and header_of(self.needed(number), number)[0].members is not None:
                raise refusal(start + 1, None, f"names the members from before commit {number:,}, which changed them")

    def check_founder(self, known: Head | None, chain: Chain) -> None:
        """Raise unless the first list of members is by the owner whom the caller or this machine expects."""
        founder = chain.members.founder if chain.members else None
        keys = self.existing()
        expected = self._owner or (known.founder if known else None)
        if expected is None and founder is not None and isinstance(keys, MemberKeys) and keys.base is not None:
            expected = keys.signer.public  # this key file made the index
        if expected is None and founder is not None and self.chain is None:
            warnings.warn(
                f"Only the storage says that {founder} first shared {self.location}. Compare this string with the one "
                "that the owner gave you, and pin the owner's on this machine: "
                f"vecveil index members sealed:{self.location} --owner veil1… --seal-key FILE",
                FirstOwnerWarning,
                stacklevel=2,
            )
        if expected not in (None, founder):
            raise StoreError(
                f"The owner who first shared {self.location} should be {expected}, by `owner` or an earlier use of "
                f"this machine; the storage names {founder or 'nobody: the index was never shared'}. Pass the owner "
                "who shared the index first. If you did, the storage shows another index or history: ask that owner.",
                code="E-INDEX-OWNER",
                param="owner",
            )

    def _is_commit(self, number: int) -> bool:
        """Return whether an object is a commit of this index, as far as this process can tell."""
        try:
            content = self.needed(number)
            header, _ = header_of(content, number)
            keys = self.existing()
            if header.signer is None and keys.reads:
                opened(self._mark, number, content, keys)
        except RetiredKeyError:
            return True
        except (StoreError, KeyFileError):
            return False
        return True

    def content(self, number: int) -> bytes | None:
        """Return the bytes of a commit, or None if there is none."""
        with contextlib.suppress(FileNotFoundError):
            return self.storage.read(commit_name(number), MOST_BYTES)
        return None

    def signer(self, number: int) -> str | None:
        """Return the public string of a commit's signer."""
        return header_of(self.needed(number), number)[0].signer

    def needed(self, number: int) -> bytes:
        """Return the bytes of a commit; raise `StoreError` if there is none."""
        content = self.content(number)
        if content is None:
            raise incomplete(self.location, commit_name(number))
        return content

    def _published(self, chain: Chain, content: bytes) -> Chain | None:
        """Create the next commit; return the state after it, or None if its number is taken. It is then durable."""
        after = chain.follow(content, self.existing())
        name = commit_name(after.number)
        self._check_same_place(chain)  # no commit is left in a folder that was made anew
        if after.members is not chain.members:
            with contextlib.suppress(FileExistsError):
                self.storage.create(list_name(after.number), b"")
        try:
            self.storage.create(name, content)
        except FileExistsError as error:
            there = self.content(after.number)
            if there is None:
                raise StoreError(
                    f"The storage of {self.location} reports that {name} exists, but does not return it. The change "
                    "may have been written: call this again.",
                    code="E-INDEX-STORAGE",
                ) from error
            if there != content:  # a commit has a random key: equal bytes are ours
                return None
        self._check_same_place(chain, created=content)
        with self._loading:
            self.chain, self.keys = after, self.existing().joined(after.members)
            self.memory.note(after)
        return after

    def _check_same_place(self, chain: Chain, *, created: bytes | None = None) -> None:
        """Raise if the storage was exchanged since ``chain`` was read, and take back the commit ``created`` there."""
        last = self.content(chain.number)
        if last is not None and hashlib.sha256(last).hexdigest() == chain.digest:
            return
        # A missing one may return, and others may have gone on from ours. `repair` may have replaced ours.
        if created and last is not None and self.content(chain.number + 1) == created:
            self.storage.delete([commit_name(chain.number + 1)])
        raise self.memory.lost("was exchanged or made anew while this process had it open")

    def _check_writable(self, mark: Mark) -> None:
        """Raise for a storage in which two processes could create one commit, unless ``exclusive`` is set."""
        if self._conditional is None:
            if not self.storage.has(INDEX_JSON):  # to create it would prove nothing
                raise incomplete(self.location, INDEX_JSON)
            self._conditional = self.storage.is_conditional(INDEX_JSON, mark.encode())
        if not self._conditional:
            raise StoreError(
                f"The storage of {self.location} does not create an object only if it is absent, so two processes "
                "could make one commit. Let one process write at a time, and open the index in it with exclusive=True.",
                code="E-INDEX-COMMIT",
            )

    def _check_encoder(self, chain: Chain) -> None:
        """Raise if this process has another encoder than the index, or vectors from before it was encoded again."""
        own, name = _noted(self.encoder)
        label = "another encoder"  # for a process that cannot read its name
        if chain.encoder is not None:
            label = f"the encoder {chain.encoder_name} (fingerprint {chain.encoder[:12]})"
        if own is not None and chain.encoder_tag not in (None, encoder_tag(chain.mark, own)):
            raise _other_encoder(
                f"The index has {label}, not {name}. Open it with that encoder, or encode it again with "
                "index.reencode(encoder)."
            )
        if own is None and self._epoch not in (None, chain.epoch):
            raise _other_encoder(
                f"The index was encoded again with {label}, so that earlier vectors do not fit. Open it again."
            )
        self._epoch = chain.epoch

    # Reading ----------------------------------------------------------------------------------------

    def current(self) -> Snapshot:
        """Return the state to answer from, at most ``max_staleness`` old, and 10 s more while a newer one is loaded."""
        self.check_rights()
        late = time.monotonic() - self._checked - self._staleness
        if late > 0 and self._loading.acquire(blocking=late > _PATIENCE):
            try:
                if time.monotonic() - self._checked > self._staleness:  # no other thread has loaded it meanwhile
                    self.refresh()
            finally:
                self._loading.release()
        return self.snapshot or self.refresh()

    def refresh(self, *, afresh: bool = False) -> Snapshot:
        """See `SealedIndex.refresh`."""
        with self._loading:
            if afresh:
                self.snapshot = None
                for name in self.storage.copies():
                    self.storage.forget_copy(name)
            began = time.monotonic()
            before = self.snapshot or Snapshot({}, {}, {})
            while True:
                chain = self.advance()
                self.check_reads()
                self._check_encoder(chain)
                added = {name: stored for name, stored in chain.objects.items() if name not in before.parts}
                keep = [name for name in before.parts if name in chain.objects]
                _allow_files(len(chain.objects) + len(added))
                try:
                    new = self._load(list(added.values()))
                    snapshot = before.with_parts(keep, new, encoder=self.encoder, dimension=chain.dimension)
                    break
                except (FileNotFoundError, SealingError, RetiredKeyError) as error:
                    if self.content(chain.number + 1) is None:  # otherwise the object may have been replaced meanwhile
                        if isinstance(error, FileNotFoundError):
                            raise incomplete(self.location, str(error)) from error
                        raise
            # Others may share the folder of copies: what they load is left alone.
            unused = (before.parts.keys() if self.snapshot else self.storage.copies()) - chain.objects.keys()
            self.snapshot, self._checked = snapshot, began
            for name in unused:
                self.storage.forget_copy(name)
            return snapshot

    def pass_over(self, error: FileNotFoundError) -> None:
        """Load the newer state in which a commit has replaced the object that ``error`` names.

        Raises:
            StoreError: no commit has; or the segments are held, so that a newer state is no substitute.
        """
        if not SEGMENT.fullmatch(str(error)):
            raise error
        if self._staleness == np.inf:
            raise self._overtaken() from error
        self.refresh()
        if self.chain and str(error) in self.chain.objects:
            raise incomplete(self.location, str(error)) from error

    def _load(self, objects: Sequence[StoredObject]) -> dict[str, LoadedSegment]:
        """Open objects and load their rows."""
        sizes = {each.name: each.bytes for each in objects}
        if self._vectors == "auto" and not self.storage.local and not self.storage.copies():
            far = sum(sizes.values()) > _MOST_FETCHED
        else:
            far = self._vectors == "remote"
        free = free_memory() // 2 if self._vectors == "auto" else sum(sizes.values())

        def loaded(stored: StoredObject) -> LoadedSegment:
            nonlocal free
            free -= stored.bytes
            in_memory = not far and free >= 0 and self._vectors in ("auto", "memory")
            return load(self._segment(stored, far=far), stored.version, in_memory=in_memory)

        if far:
            with ThreadPoolExecutor(8) as pool:
                return dict(zip(sizes, pool.map(loaded, objects), strict=True))
        return {stored.name: loaded(stored) for stored in objects}

    def _segment(self, stored: StoredObject, *, far: bool = False) -> Segment:
        """Open a segment and compare its record with the chain."""
        keys, chain = self.existing(), self.chain or self.advance()
        again = None if self.storage.local or far else lambda: self.storage.open(stored, fresh=True)
        source = self.storage.open_remote(stored) if far else self.storage.open(stored)
        segment = Segment(source, stored.name, keys, again=again, front=stored.front)
        layout = segment.rows, segment.dimension, segment.precision
        if layout != (stored.rows, chain.dimension, chain.precision):
            segment.close()
            raise SealingError(f"{stored.name} is not what the chain says of it.", code="E-SEAL-OPEN")
        return segment

    def current_rows(self) -> dict[str, bytes]:
        """Return the names of all segments, each with its current rows as packed bits; load no vector for it."""
        self._vectors = "disk" if self.storage.local or self._vectors != "remote" else "remote"
        return {name: np.packbits(mask).tobytes() for name, mask in self.refresh().alive.items()}

    def hold(self, segments: Mapping[str, bytes]) -> None:
        """Load these segments with the rows that `current_rows` gave, and look for nothing newer.

        Raises:
            StoreError: there is no index, or a commit has replaced one of the segments.
        """
        chain = self.advance()
        objects = chain.objects
        try:
            parts = self._load([objects[name] for name in segments])
        except (KeyError, FileNotFoundError, RetiredKeyError):
            raise self._overtaken() from None
        current = {
            name: np.unpackbits(np.frombuffer(segments[name], np.uint8), count=len(part)).astype(np.bool_)
            for name, part in parts.items()
        }
        self.snapshot = Snapshot(parts, current, current, dimension=chain.dimension)
        self._staleness, self._checked = np.inf, time.monotonic()

    def _overtaken(self) -> StoreError:
        return StoreError(
            f"A commit replaced segments of {self.location} since the search began. Start the search again.",
            code="E-INDEX-BUSY",
        )

    # Writing ----------------------------------------------------------------------------------------

    def append(
        self,
        columns: Callable[[int, str], Mapping[str, Any]],
        n: int | None,
        *,
        encoder: TextEncoder | None = None,
        deleted: bool = False,
    ) -> None:
        """Add rows with one commit; return when it is durable.

        Args:
            columns: returns the Arrow columns of the rows for a dimension and precision, without that of deletions.
            n: dimension of the rows; None for deletions, which take the index's.
            encoder: value of `encoder` when the vectors were made.
        """
        with self._changing:
            if not deleted and encoder is not self.encoder:
                raise _other_encoder("This process encoded the index again meanwhile. Add the rows again.", "vectors")
            kind: Kind = "delete" if deleted else "append"
            keys, chain = self.made(), self.advance()
            self._check_writable(chain.mark)
            objects: list[StoredObject] = []
            under: Any = None
            while True:
                self._check_encoder(chain)
                chain.check_may(keys, kind)
                if n is not None and chain.dimension not in (None, n):
                    raise IncompatibleError(
                        f"The index has vectors of {chain.dimension} dimensions; these have {n}. Use the encoder of "
                        "the index.",
                        param="vectors",
                    )
                n = n or chain.dimension
                if n is None:
                    return
                layout = n, chain.precision or self._precision
                try:
                    if under != (chain.key_id, layout) or any(each.name in chain.voided for each in objects):
                        self.storage.delete(each.name for each in objects)
                        under = chain.key_id, layout
                        tables = _parts(_marked(columns(*layout), deleted=deleted))
                        objects = [self._write(table, layout, chain.key_id) for table in tables]
                    public = keys.signer.public if keys.signer else None
                    noted = _noted(self.encoder) if chain.may_note_encoder(public) else (None, None)
                    content = chain.commit(kind, keys, time=time.time(), layout=layout, encoder=noted, adds=objects)
                except KeyFileError:  # the key may have been renewed and deleted meanwhile
                    before, chain = chain, self.advance()
                    if chain.key_id == before.key_id:
                        raise
                    continue
                if after := self._published(chain, content):
                    break
                after = chain = self.advance()
                if objects[0].name in chain.objects:  # this commit was created, whatever the storage answered
                    break
            if self.snapshot is not None:
                self.refresh()
            if self.existing().reads and len(_small_appends(after)) >= _MOST_APPENDS:
                with contextlib.suppress(StoreError):  # the rows are durable in any case
                    self.rewrite(self._small, once=True)

    def _write(self, rows: Any, layout: tuple[int, str], key_id: str, *, as_of: int | None = None) -> StoredObject:
        """Write a new object with the rows of an Arrow table."""
        name, (n, precision) = f"segments/{secrets.token_hex(16)}", layout
        with self.storage.creating(name) as file:
            digest, size, front = write_segment(file, name, self.existing(), key_id, rows, n=n, precision=precision)
        return StoredObject(name, digest, front, size, len(rows), as_of)

    def rewrite(
        self,
        choose: Callable[[Snapshot], set[str]],
        kind: Kind = "replace",
        *,
        whole: bool = False,
        clear: bool = False,
        once: bool = False,
        retain: float = RETAIN,
        forgotten: Any = None,
        vectors: NewVectors | None = None,
        key_id: str | None = None,
    ) -> None:
        """Replace the chosen segments by their current rows, in new segments, with one commit; then vacuum.

        Args:
            whole: also rewrite segments that others append before the commit, if ``choose`` selects them.
            clear: declare void and delete all objects that the chain does not name, whatever their age.
            once: give up if another rewrite is first.
            retain: minimum age in seconds at which replaced objects are deleted.
            forgotten: Arrow array of ids whose rows are left out.
            vectors: vectors of a different encoder, to which this commit changes the index.
            key_id: of the data key to write under; None takes the index's.
        """
        with self._changing:
            keys = self.existing()
            sources: set[str] = set()
            outputs: list[StoredObject] = []
            for _ in range(_ROUNDS):
                with self._loading:
                    snapshot = self.refresh()
                    chain = self.chain or self.advance()  # the commit that the snapshot is of
                chain.check_may(keys, kind)
                self._check_writable(chain.mark)
                if any(each.name in chain.objects for each in outputs):
                    break  # this commit was created, whatever the storage answered
                if not sources <= chain.objects.keys() or any(each.name in chain.voided for each in outputs):
                    self.storage.delete(each.name for each in outputs)  # another rewrite was first
                    sources, outputs = set(), []
                    if once:
                        return
                layout = vectors.encoder.dimension if vectors else chain.dimension or 1, self.precision
                try:
                    if whole or not sources:
                        more = choose(snapshot) - sources
                        outputs += self._merge(
                            snapshot, more, layout, key_id or chain.key_id, chain.number, forgotten, vectors
                        )
                        sources |= more
                    listed = self.storage.list("segments")
                    voids = self.unknown(chain, listed, 0 if clear else RETAIN, outputs)
                    if not sources and not voids and kind == "replace":
                        break
                    content = chain.commit(
                        kind,
                        keys,
                        time=time.time(),
                        layout=layout if chain.dimension else (None, None),
                        encoder=_noted(vectors.encoder if vectors else self.encoder),
                        adds=outputs,
                        removes=sorted(sources),
                        gone=sorted(chain.replaced.keys() - listed.keys()),
                        voids=voids,
                        key_id=key_id,
                    )
                except (KeyFileError, FileNotFoundError) as error:  # a key or an object may have been deleted meanwhile
                    if self.advance().number > chain.number:
                        continue
                    raise incomplete(self.location, str(error)) if isinstance(error, OSError) else error from None
                with self._loading:
                    after = self._published(chain, content)
                    if after and vectors is not None:
                        self.encoder = vectors.encoder
                if after:
                    if self.content(chain.number + 1) != content:
                        raise incomplete(self.location, commit_name(chain.number + 1))
                    self.refresh()
                    self.storage.delete(voids)
                    break
            else:
                raise _busy()
            now, listed = time.time(), self.storage.list("segments")
            replaced = (self.chain or chain).replaced.items()
            self.storage.delete(name for name, at in replaced if name in listed and (not retain or now - at >= retain))
            self.storage.tidy()

    def unknown(
        self, chain: Chain, listed: Mapping[str, float | None], least: float, outputs: Sequence[StoredObject] = ()
    ) -> list[str]:
        """Return segments that neither the chain nor ``outputs`` names and that are at least ``least`` seconds old."""
        known = {*chain.objects, *chain.replaced, *(each.name for each in outputs)}
        old = (
            name
            for name, at in listed.items()
            if name not in known and SEGMENT.fullmatch(name) and (not least or (at and time.time() - at >= least))
        )
        return sorted(old)[:_MOST_VOIDS]

    def _small(self, snapshot: Snapshot) -> set[str]:
        """Return the segments that an automatic compaction merges: small appends, and merged ones in geometric steps.

        So each row is written again a logarithmic number of times, and a few new rows do not move many old ones.
        """
        chosen = _small_appends(self.chain or self.advance()) & snapshot.parts.keys()
        rows = sum(len(snapshot.parts[name]) for name in chosen)
        others = sorted((len(part), name) for name, part in snapshot.parts.items() if name not in chosen)
        for size, name in others:
            if size >= _SEGMENT_ROWS // 2 or size > 2 * rows + 4096:
                break
            chosen.add(name)
            rows += size
        return chosen

    def compact(self, *, retain: float) -> None:
        """See `SealedIndex.compact`."""

        def worth_merging(snapshot: Snapshot) -> set[str]:
            small = {name for name, part in snapshot.parts.items() if len(part) < _SEGMENT_ROWS // 2}
            stale = {name for name in snapshot.parts if not snapshot.alive[name].all()}
            return stale | (small if len(small) > 1 else set())

        self.rewrite(worth_merging, retain=retain)

    def forget(self, ids: Sequence[str], outdated: Callable[[Snapshot], set[str]] = lambda _: set()) -> None:
        """Rewrite the segments that contain a version of ``ids``, and those that ``outdated`` names."""
        listed = pa.array(ids, pa.string())
        self.rewrite(
            lambda s: {name for name, part in s.parts.items() if len(part.holding(listed)[0])} | outdated(s),
            whole=True,
            clear=True,
            retain=0,
            forgotten=listed,
        )
        self.clear()

    def clear(self) -> None:
        """Delete the objects of unfinished writes; a writer that is still running writes its objects again."""
        for _ in range(3):
            if self.unknown(self.advance(), self.storage.list("segments"), 0):
                self.rewrite(lambda snapshot: set(), clear=True, retain=0)

    def renew_keys(self) -> None:
        """See `SealedIndex.reseal`."""
        with self._changing:
            keys, chain = self.existing(), self.advance()
            base = founders(keys)
            if chain.members is not None and isinstance(keys, MemberKeys):
                chain.check_may(keys, "renew keys")
                self._renew(keys.renewed())
                return
            if base is None or not isinstance(base.store, KeyStore):
                raise InvalidInputError(
                    f"{_OWNER}.reseal: only a key store has data keys to renew; this is a different kind of key.",
                    param="key",
                )
            # A renewal that was interrupted before its commit continues. One that was interrupted after its commit is
            # finished first; then a new one begins.
            if chain.key_id == base.current():
                base.store.retire(base.collection, keep=bytes.fromhex(base.current()))
                base.store.rotate(base.collection)
            new = base.current()
            self._renew(new)
            # Another renewal may have made a newer key meanwhile: keep the key of what was verified.
            base.store.retire(base.collection, keep=bytes.fromhex(new))

    def _renew(self, key_id: str) -> None:
        self.rewrite(_everything, "renew keys", whole=True, clear=True, retain=0, key_id=key_id)
        self.clear()

    def change_members(self, change: Callable[[Sequence[Member]], Sequence[Member]]) -> None:
        """Commit the list that ``change`` returns for the current list; renew the keys if it drops a reader.

        If two owners call it at once, the later call changes the list of the earlier one.
        """
        with self._changing:
            for _ in range(_ROUNDS):
                keys, chain = self.existing(), self.advance()
                keys = keys.joined(chain.members)
                before = chain.members.listing.members if chain.members else ()
                if keys.signer is None:
                    raise without_identity()
                self.check_reads()
                chain.check_may(keys, "members")
                self._check_writable(chain.mark)
                first = () if chain.members else (Member(keys.signer.public, ("owner",)),)
                after = change([*before, *first])
                if [_person(member) for member in after] == [_person(member) for member in before]:
                    break
                if not any(member.public == keys.signer.public and "owner" in member.roles for member in after):
                    raise InvalidInputError(
                        f"{_OWNER}: an owner cannot give up the role, because that owner would have to renew the keys "
                        "afterwards. Ask another owner to change it.",
                        code="E-INDEX-ROLE",
                        param="public",
                    )
                content = chain.commit(
                    "members", keys, time=time.time(), layout=(chain.dimension, chain.precision), members=after
                )
                if self._published(chain, content):
                    break
            else:
                raise _busy()
            chain = self.advance()
            if chain.members and chain.members.listing.renew:
                self.renew_keys()

    def repair(self, *, drop: bool) -> tuple[list[str], list[GivenUp]]:
        """See `SealedIndex.repair`; return the refused commits, and the objects that were given up."""
        with self._changing, self._loading:
            known, names, given_up = self.memory.read(), list[str](), list[GivenUp]()
            for _ in range(_ROUNDS):  # until nobody has added a commit meanwhile, or repaired the same ones
                chain, refused = self._followed(known)
                if chain.members is None:
                    raise InvalidInputError(
                        f"{_OWNER}.repair: only an index with members has commits to refuse. Restore a damaged index "
                        "with `vecveil index copy`.",
                        param="location",
                    )
                self.check_founder(known, chain)
                chain.check_may(self.existing(), "members")
                self.keys = self.existing().joined(chain.members)
                listed = map(_NUMBER.fullmatch, self.storage.list("commits"))
                numbers = sorted(number for match in listed if match and (number := int(match[1])) > chain.number)
                if refused is None:  # other files may have such names
                    numbers = [number for number in numbers if self._is_commit(number)]
                if not numbers:
                    break
                if known is not None and known.number > chain.number:  # this machine has seen a good commit there
                    raise refused or incomplete(self.location, commit_name(chain.number + 1))
                contents = [self.needed(number) for number in numbers]
                if numbers[0] == chain.number + 1 and self._follows(chain, contents[0]):
                    continue  # a member has made it, or another owner has repaired it, since the chain was followed
                appends = [self._refused_append(chain, *each) for each in zip(numbers, contents, strict=True)]
                self.chain = None
                # Each refused commit is replaced by one that adds its rows. Until then it is in the storage, so that
                # another call continues after an interruption.
                for number, content, append in zip(numbers, contents, appends, strict=True):
                    again = self._append_again(chain, number, content, append)
                    if again is None:
                        break
                    chain, left_out = again
                    given_up += left_out
                    names.append(commit_name(number))
            else:
                raise _busy()
            chain, lost = self.advance(), list[StoredObject]()
            if drop:
                layout = chain.dimension, chain.precision
                lost = [each for each in chain.objects.values() if not self._opens(each, layout)]
                chain = self.advance()  # others may have replaced objects meanwhile
                lost = [each for each in lost if each.name in chain.objects]
                if lost and len(lost) == len(chain.objects):  # as where their folder is not mounted
                    raise incomplete(self.location, lost[0].name)
            while lost := [each for each in lost if each.name in chain.objects]:  # others may have removed some
                content = chain.commit(
                    "replace",
                    self.existing(),
                    time=time.time(),
                    layout=layout,
                    removes=sorted(each.name for each in lost),
                )
                if self._published(chain, content):
                    break
                chain = self.advance()
            given_up += [(each, self.signer(each.commit)) for each in lost]
            if self.snapshot is not None:
                self.refresh()
            return names, given_up

    def _follows(self, chain: Chain, content: bytes) -> bool:
        """Return whether a commit follows the chain."""
        with contextlib.suppress(StoreError):
            chain.follow(content, self.existing())
            return True
        return False

    def _followed(self, known: Head | None) -> tuple[Chain, StoreError | None]:
        """Follow the chain to its head, or to the first commit that is refused; return the error of that one.

        The state is that after which no object is added that the chain has removed, however long ago.
        """
        chain, gone = Chain.first(self._mark), set[str]()
        while (content := self.content(chain.number + 1)) is not None:
            try:
                after = chain.follow(content, self.existing())
            except StoreError as error:
                return replace(chain, voided=chain.voided | gone), error
            self.memory.check(known, after)
            gone |= chain.replaced.keys() - after.replaced.keys()
            chain = after
        self.memory.check(known, chain)
        return replace(chain, voided=chain.voided | gone), None

    def _refused_append(self, chain: Chain, number: int, content: bytes) -> tuple[Header, Body] | None:
        """Return header and body of a commit beyond ``chain`` in which a member added or deleted rows, else None.

        Writers who do not read cannot check the bodies of earlier commits: these rows have been acknowledged.

        Raises:
            StoreError: an owner changed the index in this commit, and so had accepted those before it.
        """
        body = None
        try:
            header, _ = header_of(content, number)
            if next_members(self._mark, number, chain.members, content) is chain.members:
                body = opened(self._mark, number, content, self.existing())
        except (StoreError, KeyFileError):
            return None
        if body is not None and body.kind in ("append", "delete"):
            return header, body
        signer = chain.members.listing.member(header.signer) if chain.members else None
        if signer is not None and "owner" in signer.roles:
            raise StoreError(
                f"{_OWNER}.repair: {commit_name(chain.number + 1)} was altered or deleted after an owner wrote "
                f"{commit_name(number)}. Restore a copy of the index with `vecveil index copy`.",
                code="E-INDEX-CHAIN",
            )
        return None

    def _append_again(
        self, chain: Chain, number: int, refused: bytes, append: tuple[Header, Body] | None
    ) -> tuple[Chain, list[GivenUp]] | None:
        """Replace a refused commit by the next one of ``chain``, with those of its objects that open and fit.

        Return the state after it and the other objects, or None if a writer was first to continue the chain, or another
        owner to repair it.
        """
        objects, layout = list[StoredObject](), (chain.dimension, chain.precision)
        left_out = list[GivenUp]()
        noted: tuple[str | None, str | None] = (None, None)
        if append is not None:
            header, body = append
            own = header.dimension, header.precision
            fits = layout in ((None, None), own)
            known = {*chain.objects, *chain.replaced, *chain.voided}
            for each in body.adds:
                there = chain.objects.get(each.name)
                added = each.name in known and (there is None or there.digest == each.digest)
                if each.as_of is not None or added:
                    continue
                if fits and self._opens(each, own):
                    objects.append(each if there is None else self._written_again(each, chain.key_id))
                else:
                    left_out.append((msgspec.structs.replace(each, commit=number), header.signer))
            layout = own if objects else layout
            if chain.encoder_tag is None and objects and chain.may_note_encoder(header.signer):
                noted = body.encoder, body.encoder_name
        if self.content(number) != refused:
            return None
        if number == chain.number + 1 or objects:
            keys = self.existing()
            content = chain.commit("append", keys, time=time.time(), layout=layout, encoder=noted, adds=objects)
            name = commit_name(chain.number + 1)
            in_place = number == chain.number + 1
            try:
                self.storage.create(name, content, replace=in_place)
            except FileExistsError:
                return None
            chain = chain.follow(content, keys)
            if in_place:
                return chain, left_out
        self.storage.delete([commit_name(number)])
        return chain, left_out

    def _written_again(self, stored: StoredObject, key_id: str) -> StoredObject:
        """Write the rows of an object under a new name, since another member's commit uses its name."""
        with contextlib.closing(Segment(self.storage.open(stored), stored.name, self.existing())) as segment:
            return self._write(segment.table(), (segment.dimension, segment.precision), key_id)

    def _opens(self, stored: StoredObject, layout: tuple[int | None, str | None]) -> bool:
        """Return whether an object exists with this layout, and opens in every part that is read."""
        with contextlib.suppress(FileNotFoundError, SealingError, KeyFileError):
            file = self.storage.open(stored, fresh=True)
            with contextlib.closing(Segment(file, stored.name, self.existing(), front=stored.front)) as segment:
                if (segment.rows, segment.dimension, segment.precision) == (stored.rows, *layout):
                    segment.check()
                    check_rows(segment)
                    return True
        return False

    def reencode(self, encoder: TextEncoder, *, show_progress: bool | None = None) -> None:
        """See `SealedIndex.reencode`."""
        keys, chain = self.existing(), self.advance()
        chain.check_may(keys, "re-encode")
        if chain.encoder == encoder.model_fingerprint:
            self.encoder = encoder
            return
        snapshot = self.refresh()
        vectors = NewVectors(encoder, self.precision)
        left = self._load_vectors(vectors)
        for _ in range(2):  # the second pass encodes rows that others added during the first
            left += self._encode_all(snapshot, vectors, show_progress)
            snapshot = self.refresh()
        self.rewrite(_everything, "re-encode", whole=True, vectors=vectors)
        self.storage.delete(left)

    def _encode_all(self, snapshot: Snapshot, vectors: NewVectors, show: bool | None) -> list[str]:
        """Encode the texts of all rows; write each chunk of vectors to an object outside of the chain."""
        lacking, written = 0, []
        for part, mask in snapshot.live():
            lacking += int(np.count_nonzero(mask & (part.segment.array("has_text", np.uint8) == 0)))
        check_texts_there(lacking)
        total = -(-snapshot.count() // _CHUNK)
        for texts in progress(_texts(snapshot), "Encoding", total=total, show=show, unit="chunk"):
            if columns := vectors.encode(texts):
                rows, chain = len(columns["id"]), self.advance()  # others may renew the keys meanwhile
                columns |= {
                    "text": pa.array([encoder_tag(chain.mark, str(vectors.encoder.model_fingerprint))] * rows),
                    "has_text": pa.array([False] * rows),
                    "metadata": pa.array(["null"] * rows),
                }
                layout = vectors.encoder.dimension, self.precision
                try:
                    stored = self._write(_marked(columns), layout, chain.key_id)
                except KeyFileError:  # the key may have been renewed and deleted meanwhile
                    if chain.key_id == self.advance().key_id:
                        raise
                    stored = self._write(_marked(columns), layout, self.advance().key_id)
                written.append(stored.name)
        return written

    def _load_vectors(self, vectors: NewVectors) -> list[str]:
        """Load the vectors that an interrupted re-encoding with this encoder has kept; return the objects' names."""
        keys, chain, names = self.existing(), self.advance(), list[str]()
        tag = encoder_tag(chain.mark, str(vectors.encoder.model_fingerprint))
        for name in self.unknown(chain, self.storage.list("segments"), 0):
            with contextlib.suppress(FileNotFoundError, StoreError, SealingError, KeyFileError):
                segment = Segment(self.storage.open_unknown(name), name, keys)
                columns = ["id", "text", "vector", *(["scale"] if self.precision == "int8" else [])]
                with contextlib.closing(segment):
                    # The text of a row that somebody added might be the tag, too.
                    own = not segment.array("has_text", np.uint8).any()
                    if (
                        own
                        and segment.precision == self.precision
                        and set(segment.strings("text").to_pylist()) == {tag}
                    ):
                        vectors.learn(segment.table(columns))
                        names.append(name)
        return names

    def _merge(
        self,
        snapshot: Snapshot,
        chosen: set[str],
        layout: tuple[int, str],
        key_id: str,
        number: int,
        forgotten: Any,
        vectors: NewVectors | None,
    ) -> list[StoredObject]:
        """Write the current rows of the chosen segments into new ones, read them back, and return them."""
        outputs: list[StoredObject] = []
        waiting: list[Any] = []

        def write() -> None:
            if waiting:
                outputs.append(self._write(pa.concat_tables(waiting), layout, key_id, as_of=number))
                waiting.clear()

        rows = size = 0
        for table in self._surviving(snapshot, chosen, forgotten, vectors):
            if waiting and (rows + len(table) > _SEGMENT_ROWS or size + table.nbytes > _SEGMENT_BYTES):
                write()
                rows = size = 0
            waiting.append(table)
            rows, size = rows + len(table), size + table.nbytes
        write()
        for stored in outputs:
            self.check_blocks(stored)
        return outputs

    def check_blocks(self, stored: StoredObject) -> None:
        """Read every block of an object from the storage.

        Raises:
            FileNotFoundError: there is no such object.
            SealingError: the object or a block of it is damaged.
        """
        file = self.storage.open(stored, fresh=True)
        with contextlib.closing(Segment(file, stored.name, self.existing())) as segment:
            segment.check()

    def _surviving(
        self, snapshot: Snapshot, chosen: set[str], forgotten: Any, vectors: NewVectors | None
    ) -> Iterator[Any]:
        """Yield the rows of the chosen segments that are current, and deletions of rows that others still contain."""
        others = [part for name, part in snapshot.parts.items() if name not in chosen]
        for name in sorted(chosen):
            part, keep = snapshot.parts[name], snapshot.alive[name].copy()
            deletions = np.flatnonzero(snapshot.current[name] & part.deleted)
            if len(deletions):
                gone = part.segment.strings("id", deletions)
                for other in others:
                    keep[deletions[np.unique(other.holding(gone)[0])]] = True
            if forgotten is not None:
                keep[part.holding(forgotten)[1]] = False
            for start in range(0, len(part), _ROWS_AT_ONCE):
                chunk = slice(start, start + _ROWS_AT_ONCE)
                if keep[chunk].any():
                    rows = part.segment.table(rows=chunk).filter(pa.array(keep[chunk]))
                    yield rows if vectors is None else vectors.replaced(rows)


def _allow_files(count: int) -> None:
    """Raise the limit on open files to ``count`` and some: segments stay open, so that they outlast their deletion."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and count + 256 > soft:
            most = count + 256 if hard == resource.RLIM_INFINITY else min(hard, count + 256)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def incomplete(location: str, name: str) -> StoreError:
    """Return the error for an object that the chain names and the storage lacks."""
    return StoreError(
        f"The index at {location} is incomplete: {name} is missing. The storage withholds it, or it was deleted. "
        "Restore it from a backup of the storage.",
        code="E-INDEX-INCOMPLETE",
    )


def _busy() -> StoreError:
    return StoreError(f"{_OWNER}: other processes kept writing. Try again.", code="E-INDEX-BUSY")


def _person(member: Member) -> tuple[object, ...]:
    """Return what distinguishes a member in a list; an envelope is never the same twice."""
    return member.public, member.roles, member.name


def _noted(encoder: TextEncoder | None) -> tuple[str, str] | tuple[None, None]:
    """Return the fingerprint and name that a commit notes of an encoder; one without a fingerprint is not noted."""
    fingerprint = encoder.model_fingerprint if encoder else None
    return (fingerprint, encoder.name) if encoder and fingerprint else (None, None)


def _other_encoder(sentence: str, param: str = "encoder") -> IncompatibleError:
    return IncompatibleError(sentence, code="E-INCOMPATIBLE-ENCODER", param=param)


def _small_appends(chain: Chain) -> set[str]:
    """Return the small appends that no rewrite has merged."""
    return {each.name for each in chain.objects.values() if each.as_of is None and each.rows < _SEGMENT_ROWS // 2}


def _everything(snapshot: Snapshot) -> set[str]:
    return set(snapshot.parts)


def _texts(snapshot: Snapshot) -> Iterator[list[str]]:
    """Yield the texts of all rows in chunks."""
    texts: list[str] = []
    for part, mask in snapshot.live():
        for start in range(0, len(part), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            texts += part.segment.strings("text", chunk).filter(pa.array(mask[chunk])).to_pylist()
            while len(texts) >= _CHUNK:
                yield texts[:_CHUNK]
                texts = texts[_CHUNK:]
    yield texts


def _marked(columns: Mapping[str, Any], *, deleted: bool = False) -> Any:
    """Return the table of new rows."""
    width, precision = columns["vector"].type.byte_width, "int8" if "scale" in columns else "float16"
    layout = schema(width if precision == "int8" else width // 2, precision)
    marks = {"deleted": pa.array(np.full(len(columns["id"]), deleted))}
    return pa.table([{**columns, **marks}[field.name] for field in layout], schema=layout)


def _parts(table: Any) -> Iterator[Any]:
    """Yield slices of a table that are no larger than a segment should be."""
    if len(table) > 1 and (len(table) > _SEGMENT_ROWS or table.nbytes > _SEGMENT_BYTES):
        half = len(table) // 2
        yield from _parts(table.slice(0, half))
        yield from _parts(table.slice(half))
    else:
        yield table
