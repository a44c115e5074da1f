"""Replace a local database by its sealed copy, in steps that a kill at any moment only delays.

The copy is made in a folder beside the database, so its files, logs and free pages never held a clean row. Once it is
verified, the files change places by renames. The clean ones are removed last, after the copy was read at its place.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from vecveil.databases.locations import open_store, public_name
from vecveil.databases.migrating import Migration, MigrationOptions, migrate, verify_migration
from vecveil.databases.state import MigrationState, locked, read_state, write_state
from vecveil.databases.store import VectorStore
from vecveil.errors import StoreError
from vecveil.io import sync_folder
from vecveil.protector.policy import ReleasePolicy
from vecveil.sealing import Sealer

_OWNER = "migrate"
_CLEARING, _PLACING, _REMOVING, _REPLACED = "clearing", "placing", "removing", "replaced"


def seal_in_place(
    location: str,
    policy: ReleasePolicy,
    state_file: Path,
    *,
    sealer: Sealer,
    options: MigrationOptions,
    prepare: Callable[[VectorStore], None] = lambda copy: None,
    **given: Any,
) -> Migration:
    """Replace the rows of the database at ``location`` by protected and sealed ones; a repeated call continues.

    Stop other programs that use the database. Between two renames there is none at its place.

    Args:
        options: with ``seal`` and ``in_place``.
        prepare: called with the store of the copy before anything is written.
        given: ``batch``, ``on_checked`` and ``show_progress`` of `migrate`.

    Raises:
        StoreError: a server, files with other collections, another error of `migrate`, or files that cannot be moved.
    """
    name = public_name(location)
    with locked(state_file.with_name(f"{state_file.name}.replacing")):
        state = read_state(state_file)
        copied = None
        if state is None or not state.step:
            copied = _copied(location, policy, state_file, sealer, options, prepare, given)
            if not copied.verification.ok:
                return copied
            state = copied.state
        with _file_errors():
            state = _exchanged(state, state_file)
        given.pop("on_checked", None)
        with open_store(location) as placed:
            done = verify_migration(placed, None, state_file, names=(name, name), sealer=sealer, **given)
        if done.verification.ok and state.step == _REMOVING:
            with _file_errors(), contextlib.suppress(FileNotFoundError):
                shutil.rmtree(_beside(state.files))
            done = replace(done, state=_save(state_file, done.state, _REPLACED))
        # No step is taken before a comparison with the clean rows; an earlier run may have made it.
        traces, resumed = (
            (copied.verification.traces, copied.resumed) if copied else (0, done.resumed)
        )
        return replace(
            done, resumed=resumed, verification=replace(done.verification, clean=0, traces=traces)
        )


def clean_files(state: MigrationState) -> str:
    """Return where the clean files of a replaced database are, as a clause."""
    if state.step == _REPLACED:
        return "the clean files are removed"
    return f"the clean files are in {_beside(state.files)}"


def _copied(
    location: str, policy: ReleasePolicy, state_file: Path, sealer: Sealer, options: MigrationOptions,
    prepare: Callable[[VectorStore], None], given: dict[str, Any],
) -> Migration:  # fmt: skip
    """Make and verify the copy; record the first step of the exchange if it is right."""
    name = public_name(location)
    with open_store(location) as source:
        files = _checked_files(source)
        # The same file name: some databases require an ending.
        kind, _, place = location.partition("#")[0].partition(":")
        place, inner = os.path.realpath(place), _beside(files) / "new"
        where = inner / os.path.basename(place) if place == files[0] else inner
        collection = "" if kind == "faiss" else f"#{source.info().name}"
        with _file_errors():
            inner.mkdir(parents=True, exist_ok=True)
        with open_store(f"{kind}:{where}{collection}") as copy:
            prepare(copy)
            done = migrate(source, copy, policy, state_file, names=(name, name), sealer=sealer,
                           options=options, **given)  # fmt: skip
            if done.verification.ok and source.count() != done.state.total:
                raise StoreError.of(_OWNER, "source", "unchanged during the migration", "other rows",
                                    "Another program may be writing to it.",
                                    "Stop it, remove the state file, and start again.")  # fmt: skip
            copy.release()
        source.release()
    # Nothing of this process holds or writes the files any more.
    if not done.verification.ok:
        return done
    return replace(done, state=_save(state_file, replace(done.state, files=files), _CLEARING))


def _checked_files(source: VectorStore) -> list[str]:
    """Return the files of the database; raise if they cannot be renamed."""
    try:
        files = source.files()
    except StoreError as error:
        instead = "Copy it (vecveil migrate SOURCE NEW --seal-key FILE), then delete SOURCE in the database."
        raise StoreError(f"{error} {instead}", code=error.code, param=error.param) from None
    if os.path.ismount(files[0]):
        raise StoreError.of(_OWNER, "source", "a folder that can be renamed", "a mount point",
                            fix="Copy it to another folder.", code="E-STORE-FILES")  # fmt: skip
    return files


def _exchanged(state: MigrationState, state_file: Path) -> MigrationState:
    """Move the clean files away and the sealed ones to their place, from the step where an earlier run stopped."""
    files = [Path(path) for path in state.files]
    new, old = _beside(state.files) / "new", _beside(state.files) / "old"
    if state.step == _CLEARING:
        old.mkdir(exist_ok=True)
        for path in files:
            if path.exists() and (new / path.name).exists():
                shutil.copymode(path, new / path.name)
            _move(path, old / path.name)
        sync_folder(files[0].parent)
        state = _save(state_file, state, _PLACING)
    if state.step == _PLACING:
        for path in files:
            _move(new / path.name, path)
        sync_folder(files[0].parent)
        state = _save(state_file, state, _REMOVING)
    return state


def _move(path: Path, target: Path) -> None:
    if not os.path.lexists(path):
        return  # moved by an earlier run, or never there, as a log of SQLite
    if os.path.lexists(target):
        raise StoreError.of(_OWNER, "source", "left alone during the replacement", f"a new {path.name[:80]!r}",
                            "Another program made it.", "Stop it, move the file away, and repeat.")  # fmt: skip
    os.rename(path, target)


def _save(state_file: Path, state: MigrationState, step: str) -> MigrationState:
    state = replace(state, step=step)
    write_state(state_file, state)
    return state


def _beside(files: list[str]) -> Path:
    """Return the folder for the copy and the files that it replaces; on the same disk, or renames would fail."""
    first = Path(files[0])
    return first.with_name(f".{first.name}.replacing")


@contextlib.contextmanager
def _file_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError.of(_OWNER, "source", "files that can be moved and removed", type(error).__name__,
                            fix="See that the folder can be written, and repeat the command.") from None  # fmt: skip
