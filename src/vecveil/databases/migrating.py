"""Copies a store to a protected one: batch by batch, so that it can be stopped and gone on with."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.databases.checksum import add_rows, as_hex
from vecveil.databases.fields import carried
from vecveil.databases.interference import check_empty, check_unchanged, check_under_way
from vecveil.databases.planning import (
    Checked,
    MigrationOptions,
    check_policy,
    check_same,
    check_source,
    key_of,
    usable,
)
from vecveil.databases.state import MigrationState, locked, read_state, write_state
from vecveil.databases.store import Batch, VectorStore
from vecveil.databases.verifying import Verification, as_clean, same_directions, verify
from vecveil.errors import LedgerCapError, ReleaseError, StoreError, message
from vecveil.release_policy import ReleasePolicy
from vecveil.runtime import progress
from vecveil.validation import check_count

__all__ = ["Migration", "migrate", "verify_migration"]

_OWNER = "migrate"
_AGAIN = "The same command goes on from there."


@dataclass(frozen=True)
class Migration:
    """What a migration did.

    Attributes:
        state: as it stands in the file.
        resumed: rows that former runs had written.
        verification: of all rows.
    """

    state: MigrationState
    resumed: int
    verification: Verification

    def to_record(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        state = self.state
        return {
            "rows": state.rows, "skipped": state.skipped, "resumed": self.resumed, "total": state.total,
            "dimension": state.dimension, "carried": state.carried, "withheld": state.withheld,
            "protector": state.protector, "key_id": state.key_id, "checksum": state.checksum,
            "verification": self.verification.to_record(),
        }  # fmt: skip


def migrate(
    source: VectorStore,
    dest: VectorStore,
    policy: ReleasePolicy,
    state_file: Path,
    *,
    names: tuple[str, str],
    options: MigrationOptions | None = None,
    batch: int = 1000,
    on_checked: Callable[[Checked], None] | None = None,
    show_progress: bool | None = None,
) -> Migration:
    """Copy ``source`` to ``dest`` with every vector protected as a document of ``policy``, and verify the copy.

    After each batch that the destination has confirmed, ``state_file`` says how far the copy is. Called again with
    the same arguments, it goes on there: rows that were written and not yet counted are written again by id. With
    fresh noise such a row has been released twice; with a key both are the same.

    Args:
        names: public names of both stores, which the state keeps.
        options: which fields and rows are copied.
        batch: rows to read and write at once; a destination that is written anew each time takes more.
        on_checked: told what was found before anything is written; not called when a copy goes on.

    Raises:
        StoreError: a store went away, changed, or is not the one of the state; another process writes to it; or the
            source has rows that cannot be copied.
        IncompatibleError, InvalidInputError: the protector does not fit the source, or a wrong argument.
        LedgerCapError: an item would be released too often.
    """
    check_count(batch, owner=_OWNER, param="batch")
    options = options or MigrationOptions()
    protector = check_policy(policy)
    key = key_of(policy)
    if names[0] == names[1]:
        raise StoreError.of(_OWNER, "dest", "another store than the source", "the source itself")
    with locked(state_file), _apart(dest) as dest:
        state = read_state(state_file)
        if state is None:
            checked = check_source(
                source, protector, options, batch=batch, show_progress=show_progress
            )
            check_empty(dest)
            if on_checked is not None:
                on_checked(checked)
            dest.create(protector.released_dimension, metric=checked.info.metric)
            state = MigrationState(
                *names, protector.fingerprint, key[0], asdict(options), checked.rows,
                protector.released_dimension, list(checked.carried), checked.withheld, key_check=key[1],
            )  # fmt: skip
        else:
            check_same(state, names=names, protector=protector, key=key, options=options)
            check_under_way(state, dest)
            if not state.copied:
                check_unchanged(state, source)
                if not dest.exists():
                    dest.create(state.dimension, metric=source.info().metric)
        resumed = state.rows
        if not state.copied:
            state = replace(state, ahead=max(state.ahead, _most(dest, batch, state)))
        write_state(state_file, state)
        state = _copied(state, source, dest, policy, state_file, batch, show_progress)
        found = verify(dest, state, source, batch=batch, show_progress=show_progress)
        state = _noted(state, found, state_file)
        return Migration(state, resumed, found)


@contextlib.contextmanager
def _apart(dest: VectorStore) -> Iterator[VectorStore]:
    """Give the store that the copy is written to."""
    written = dest.apart()
    try:
        yield written
    finally:
        if written is not dest:
            written.close()


def verify_migration(
    dest: VectorStore,
    source: VectorStore | None,
    state_file: Path,
    *,
    names: tuple[str, str],
    batch: int = 1000,
    show_progress: bool | None = None,
) -> Migration:
    """Return whether ``dest`` still holds what the migration of ``state_file`` wrote.

    Raises:
        StoreError: there is no finished migration of these stores, or one went away.
    """
    with locked(state_file), _apart(dest) as dest:
        state = read_state(state_file)
        if state is None or (state.source, state.dest) != names or not state.copied:
            raise StoreError.of(_OWNER, "state", "that of a finished migration of these stores",
                                "none" if state is None else "another one", "The checksum stands there.",
                                "Name it with --state, or finish the migration with the same command.")  # fmt: skip
        found = verify(dest, state, source, batch=batch, show_progress=show_progress)
        return Migration(_noted(state, found, state_file), state.rows, found)


def _noted(state: MigrationState, found: Verification, state_file: Path) -> MigrationState:
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) if found.ok else None
    state = replace(state, verified=when)
    write_state(state_file, state)
    return state


def _copied(
    state: MigrationState,
    source: VectorStore,
    dest: VectorStore,
    policy: ReleasePolicy,
    state_file: Path,
    batch: int,
    show_progress: bool | None,
) -> MigrationState:
    """Return the state after all batches behind its cursor are written."""
    if state.copied:
        return state
    most = _most(dest, batch, state)
    left = -(-(state.total - state.rows - state.skipped) // most)
    reading = _grouped(source.batches(batch, after=state.cursor), most)
    try:
        for rows in progress(reading, "migrate", total=left, show=show_progress, unit="batch"):
            state = _written(state, rows, dest, policy, most)
            write_state(state_file, state)
        check_unchanged(state, source)
    except StoreError as error:
        raise StoreError(
            f"{error} {state.rows:,} of {state.total:,} rows are copied. {_AGAIN}"
        ) from None
    except LedgerCapError as error:
        raise LedgerCapError(
            f"{error} {state.rows:,} of {state.total:,} rows are copied. A batch that was stopped is counted again "
            "unless its noise is keyed: raise the cap for it, or start anew with a key.",
            items=error.items,
        ) from None
    if state.rows + state.skipped != state.total:
        raise StoreError.of(_OWNER, "source", f"left alone while it is copied, with {state.total:,} rows",
                            f"{state.rows + state.skipped:,} rows that were read",
                            "Somebody seems to write to it.",
                            "Remove the state file and the destination, and start anew.")  # fmt: skip
    state = replace(state, copied=True, ahead=0)
    write_state(state_file, state)
    return state


def _most(dest: VectorStore, batch: int, state: MigrationState) -> int:
    """Return the most rows that are handed to ``dest`` at once."""
    return max(batch, dest.rows_at_once(batch, state.total))


def _grouped(batches: Iterator[Batch], most: int) -> Iterator[Batch]:
    """Yield the batches, joined as long as they have at most ``most`` rows together."""
    held: list[Batch] = []
    for batch in batches:
        if held and sum(map(len, held)) + len(batch) > most:
            yield Batch.joined(held)
            held = []
        held.append(batch)
    if held:
        yield Batch.joined(held)


def _written(
    state: MigrationState, rows: Batch, dest: VectorStore, policy: ReleasePolicy, most: int
) -> MigrationState:
    """Return the state after the rows of one batch are protected, written and confirmed."""
    good, bad = usable(rows, policy.protector)
    if bad.total and not state.options.get("skip_bad"):
        raise StoreError(
            message(_OWNER, "source", "left alone while it is copied", f"bad rows that were not there before ({bad})",
                    "Somebody seems to write to it, or the copy was begun by an older version, which did not look for "
                    "them.", "Correct them, or start anew, without the state file and the destination.")
        )  # fmt: skip
    chosen = np.flatnonzero(good)
    checksum = int(state.checksum, 16)
    if len(chosen):
        ids = tuple(rows.ids[i] for i in chosen)
        clean = np.ascontiguousarray(rows.vectors[chosen])
        released = np.asarray(policy.documents(clean, ids=ids), dtype=np.float32)
        if as_clean(released, clean).any():
            raise ReleaseError.of(_OWNER, "protector", "one that changes every vector",
                                  "one that leaves some as they are", "Nothing of this batch is written.")  # fmt: skip
        names = frozenset(state.carried)
        dest.write(Batch(ids, released, tuple(carried(rows.fields[i], names) for i in chosen)))
        checksum = add_rows(checksum, ids, _kept(dest, ids, released))
    return replace(
        state,
        rows=state.rows + len(chosen),
        skipped=state.skipped + bad.total,
        ahead=max(state.ahead - len(chosen), most),
        cursor=rows.cursor,
        checksum=as_hex(checksum),
    )


def _kept(
    dest: VectorStore, ids: tuple[str, ...], released: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Return the rows as the store keeps them: as written, unless it keeps directions only."""
    if not dest.normalises:
        return released
    kept = dest.read(ids).vectors
    wrong = int((~same_directions(released, kept)).sum())
    if wrong:
        raise StoreError.of(_OWNER, "dest", "a store that gives back the directions that were written",
                            f"{wrong:,} rows of another direction", "It may keep vectors in fewer bits.",
                            "Turn quantisation of stored vectors off.")  # fmt: skip
    return kept
