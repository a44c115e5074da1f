"""Verify the chain and the objects of a sealed index, and copy an index as of one commit to another storage."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vecveil.errors import KeyFileError, SealingError, StoreError
from vecveil.index.chain import INDEX_JSON, MOST_BYTES, Chain, commit_name, header_of, list_name, opened
from vecveil.index.index_keys import RetiredKeyError
from vecveil.index.log import RETAIN, SegmentLog, incomplete
from vecveil.index.sealed_index import SealedIndex
from vecveil.index.storage import Storage
from vecveil.runtime import progress


@dataclass(frozen=True)
class IndexVerification:
    """Result of `verify`, which has read every commit and every live object.

    Attributes:
        index: UUID of the index.
        commits: number of commits, which follow each other without a gap.
        head: digest of the last commit, to compare with a note kept elsewhere.
        unread: commits from before a renewal of the keys, of which only the digests were compared.
        segments, rows, bytes: live objects, their rows (older versions and deletions among them), and their size.
        replaced: objects that are no longer part of the index and wait for `compact`.
        others: objects that the chain does not name: unfinished writes, or files of other programs.
        remembered: commit that this machine had seen before, or None.
        signed: of a shared index, the number of commits of each signer, by public string.
    """

    index: str
    commits: int
    head: str
    unread: int
    segments: int
    rows: int
    bytes: int
    replaced: int
    others: tuple[str, ...]
    remembered: int | None
    signed: Mapping[str, int]

    def to_record(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return asdict(self)


def verify(index: SealedIndex, *, show_progress: bool | None = None) -> IndexVerification:
    """Read every commit and every live object of an index, and compare them with the chain.

    Raises:
        StoreError: a commit or an object is missing, or does not follow.
        SealingError: an object does not open.
    """
    log = index._log
    log.check_reads()
    known, head = log.memory.read(), log.advance()
    while True:
        try:
            unread, signed = _read(log, head, show_progress)
            break
        except (StoreError, KeyFileError, FileNotFoundError) as error:
            before, head = head, log.advance()
            if head.number == before.number:  # otherwise a rewrite has just deleted what it replaced
                raise incomplete(index.location, str(error)) if isinstance(error, OSError) else error from None
    listed = {*log.storage.list("segments"), *log.storage.list("commits")}
    numbers = range(1, head.number + 1)
    named = {*head.objects, *head.replaced, *map(commit_name, numbers), *map(list_name, numbers)}
    return IndexVerification(
        str(head.mark.uuid),
        head.number,
        head.digest,
        unread,
        len(head.objects),
        sum(each.rows for each in head.objects.values()),
        sum(each.bytes for each in head.objects.values()),
        len(head.replaced.keys() & listed),
        tuple(sorted(listed - named)),
        known.number if known else None,
        dict(signed),
    )


def _read(log: SegmentLog, head: Chain, show: bool | None) -> tuple[int, Counter[str]]:
    """Read all commits and live objects; return how many commits precede a renewal of the keys, and all signers."""
    chain, unread, keys, signed = Chain.first(head.mark), 0, log.existing(), Counter[str]()
    for number in progress(range(1, head.number + 1), "Commits", show=show, unit="commit"):
        content = log.needed(number)
        chain = chain.follow(content, keys)
        unread += not chain.complete
        if signer := header_of(content, number)[0].signer:
            signed[signer] += 1
    if (chain.digest, dict(chain.objects)) != (head.digest, dict(head.objects)):
        raise StoreError("The commits of the storage are not those that it showed before.", code="E-INDEX-CHAIN")
    for stored in progress(list(head.objects.values()), "Segments", show=show, unit="segment"):
        log.check_blocks(stored)
    return unread, signed


def copy(
    index: SealedIndex,
    location: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    show_progress: bool | None = None,
) -> tuple[Chain, int]:
    """Make the folder or URL ``location`` a copy of the index as of its last commit.

    The copy is ciphertext; back up the key file separately. Others may write to the index meanwhile. A repeated call
    updates the copy and deletes objects that the commit no longer names. After an interruption it continues; until
    then an earlier copy does not open. Objects are compared with their digests on both sides.

    Returns:
        The copied state, and the number of later commits that this machine had seen at ``location`` and now gives up.

    Raises:
        StoreError: ``location`` has another index, or commits that the index lacks; or this machine knows the index
            there with another owner's list of members.
    """
    log = index._log
    log.check_reads()
    dest = Storage(location, storage_options)
    if dest.place == log.storage.place:
        raise _diverged("is the index itself")
    memory = log.memory.at(dest.place)
    known = memory.read()
    while True:
        chain = log.advance()
        if known and known.uuid == chain.mark.uuid and chain.members is not None:
            log.check_founder(known, chain)  # before the copy becomes what this machine trusts at the destination
        try:
            removed = _copied(log, chain, dest, show_progress)
            if log.advance().key_id == chain.key_id:  # otherwise the key of the copy is deleted soon
                break
        except FileNotFoundError as error:
            if log.advance().number == chain.number:  # otherwise a rewrite has just deleted what it replaced
                raise incomplete(index.location, str(error)) from None
        except FileExistsError:
            continue  # another copy of the same index is at work
    if not dest.has(commit_name(chain.number + 1)):  # otherwise somebody writes to the copy
        listed = dest.list("segments")
        dest.delete([name for name in {*removed, *chain.replaced} if name in listed])
        dest.delete(log.unknown(chain, listed, RETAIN))  # a writer or another copy may need younger ones
    memory.note(chain, instead=True)
    return chain, max(0, known.number - chain.number) if known and known.uuid == chain.mark.uuid else 0


def _copied(log: SegmentLog, chain: Chain, dest: Storage, show: bool | None) -> set[str]:
    """Copy what ``dest`` lacks; return the names that the copied commits removed, of those commits that open."""
    dest.make()
    mark, keys, removed = chain.mark.encode(), log.existing(), set[str]()
    with contextlib.suppress(FileNotFoundError):
        if dest.read(INDEX_JSON, 4096) != mark:
            raise _diverged("contains another index")
    if dest.has(commit_name(chain.number + 1)):
        raise _diverged(f"has {commit_name(chain.number + 1)}, which the index lacks")
    there = dest.list("commits")
    names = {commit_name(number): number for number in range(1, chain.number + 1)}
    for name in names.keys() & there.keys():
        if dest.read(name, MOST_BYTES) != log.needed(names[name]):
            raise _diverged(f"has another {name}")
    for stored in progress(list(chain.objects.values()), "Segments", show=show, unit="segment"):
        try:
            dest.open(stored, fresh=True).close()
        except (FileNotFoundError, SealingError):
            dest.delete([stored.name])
            with log.storage.open(stored) as file, dest.creating(stored.name) as out:
                while block := file.read(1 << 20):
                    out.write(block)
            dest.open(stored, fresh=True).close()
        dest.forget_copy(stored.name)
    for name in progress(sorted(names.keys() - there.keys()), "Commits", show=show, unit="commit"):
        content = log.needed(names[name])
        if header_of(content, names[name])[0].members is not None:
            with contextlib.suppress(FileExistsError):
                dest.create(list_name(names[name]), b"")
        dest.create(name, content)
        with contextlib.suppress(RetiredKeyError):
            body = opened(chain.mark, names[name], content, keys)
            # A commit before a renewal of keys no longer opens: the renewal reports what had been deleted by then.
            removed.update(body.removes, body.gone)
    with contextlib.suppress(FileExistsError):
        dest.create(INDEX_JSON, mark)  # last: before, the place counts as empty
    return removed - chain.objects.keys()


def _diverged(problem: str) -> StoreError:
    return StoreError(
        f"The destination {problem}. A copy undoes no commits: name an empty place, or an older copy of this index.",
        code="E-INDEX-CHAIN",
        param="dest",
    )
