"""Read, write and lock the state file of a migration."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vecveil.errors import DataFileError, StoreError
from vecveil.io import LockedError, exclusive, write_bytes

__all__ = ["SCHEMA", "MigrationState", "locked", "read_state", "write_state"]

SCHEMA = "vecveil.migration/1"
_LARGEST = 1 << 24
_OWNER = "migrate"


@dataclass(frozen=True)
class MigrationState:
    """Progress of a migration between two runs. It holds no text, vector or key.

    Attributes:
        source, dest: public names of the stores.
        protector: fingerprint.
        key_id: of keyed noise, or None for fresh noise.
        key_check: distinguishes the key from another of that id; None also in files of older versions.
        options: `MigrationOptions`; other options are another migration.
        total: number of rows of the source when it was checked.
        dimension: of the vectors that are written.
        carried, withheld: fields that are written, and the others with the reason.
        rows: number of rows written and confirmed.
        skipped: number of bad rows left out.
        ahead: the most rows that may have been written beyond those.
        cursor: of the source, behind the last confirmed row.
        checksum: of the confirmed rows as read from the destination, hexadecimal.
        copied: whether all rows are.
        verified: time of the last successful verification, or None.
    """

    source: str
    dest: str
    protector: str
    key_id: str | None
    options: dict[str, Any]
    total: int
    dimension: int
    carried: list[str]
    withheld: dict[str, str]
    rows: int = 0
    skipped: int = 0
    ahead: int = 0
    cursor: str = ""
    checksum: str = field(default="0" * 64)
    copied: bool = False
    verified: str | None = None
    key_check: str | None = None


def read_state(path: Path) -> MigrationState | None:
    """Return the state in the file ``path``, or None if there is no file.

    Raises:
        DataFileError: the file is damaged or something else.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _no_state(path, f"one that cannot be read ({type(error).__name__})") from None
    try:
        record = json.loads(content)
        if record.pop("schema") != SCHEMA:
            raise ValueError
        state = MigrationState(**record)
        int(state.checksum, 16)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise _no_state(path, "something else") from None
    numbers = (state.total, state.dimension, state.rows, state.skipped, state.ahead)
    strings = (state.source, state.dest, state.protector, state.cursor, state.checksum)
    right_numbers = all(isinstance(value, int) and value >= 0 for value in numbers)
    if not right_numbers or not all(isinstance(value, str) for value in strings):
        raise _no_state(path, "something else")
    return state


def write_state(path: Path, state: MigrationState) -> None:
    """Write ``state`` atomically, readable by its owner only: a cursor may be an id."""
    record = {"schema": SCHEMA, **asdict(state)}
    write_bytes(path, json.dumps(record, indent=1).encode(), mode=0o600)


def _no_state(path: Path, got: str) -> DataFileError:
    return DataFileError.of(_OWNER, "state", f"a file of schema {SCHEMA}", f"{path.name!r}, {got}",
                            "Without it nobody knows which rows of the destination are whose.",
                            "Use another --state, or remove file and destination and start again.")  # fmt: skip


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the operating system's lock on the state file for one run; it ends with the process.

    Raises:
        StoreError: another process holds it.
    """
    lock = path.with_name(f"{path.name}.lock")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(exclusive(lock))
        except LockedError:
            raise StoreError.of(_OWNER, "dest", "written by one migration at a time",
                                "one that another process writes to", f"It holds {lock.name!r}.",
                                "Wait for it, or stop it: the same command then goes on.") from None  # fmt: skip
        yield
