"""Read, write and lock the state file of a migration."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vecveil.errors import DataFileError, StoreError
from vecveil.io import LockedError, exclusive, parse_json, write_bytes

SCHEMA = "vecveil.migration/1"
_LARGEST = 1 << 24  # bytes; a state file with 500 field names has far fewer
_OWNER = "migrate"


@dataclass(frozen=True)
class MigrationState:
    """Progress of a migration. It holds no text, vector or key.

    Attributes:
        source, dest: public names of the stores.
        protector: fingerprint of the protector.
        key_id: id of the noise key; None for fresh noise.
        key_check: check value of the key; None also in files of older versions.
        sealed: UUID of the sealed collection in the key store, or None.
        options: `MigrationOptions` as JSON.
        total: number of rows of the source when it was checked.
        dimension: dimension of the released vectors.
        carried, withheld: names of the copied fields; the others with the reason.
        rows: number of rows written and confirmed.
        skipped: number of bad rows left out.
        ahead: maximum number of rows written beyond ``rows`` by an interrupted run.
        cursor: the source's cursor behind the last confirmed row.
        checksum: checksum of the confirmed rows as the destination returns them, hexadecimal.
        copied: all rows are copied.
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
    sealed: str | None = None


def read_state(path: Path) -> MigrationState | None:
    """Return the state in the file ``path``, or None if there is no file.

    Raises:
        DataFileError: the file is damaged or no state file.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _no_state(path, f"one that cannot be read ({type(error).__name__})") from None
    try:
        record = parse_json(content)
        # Unknown schemas and fields are refused: a later version may have given them a meaning.
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
    """Write ``state`` atomically."""
    # Readable by its owner only: the cursor may be an id, and ids may be personal.
    content = json.dumps({"schema": SCHEMA, **asdict(state)}, indent=1).encode()
    if len(content) > _LARGEST:
        raise StoreError(
            f"{path.name} would be larger than {_LARGEST >> 20} MiB, and not be read again: names of "
            "fields, or an id, are too long.",
            code="E-STORE-STATE",
            param="state",
        )
    write_bytes(path, content)


def _no_state(path: Path, got: str) -> DataFileError:
    return DataFileError.of(
        _OWNER,
        "state",
        f"a file of schema {SCHEMA}",
        f"{path.name!r}, {got}",
        "The state file records which rows the migration wrote.",
        "Use another --state, or remove file and destination and start again.",
    )


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the state file.

    Raises:
        StoreError: another process holds the lock.
    """
    # The operating system releases the lock of a killed process. The lock has a separate file, because each write
    # replaces the state file, and with it a lock on that file.
    lock = path.with_name(f"{path.name}.lock")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(exclusive(lock))
        except LockedError:
            raise StoreError.of(
                _OWNER,
                "dest",
                "written by one migration at a time",
                "one that another process writes to",
                f"It holds {lock.name!r}.",
                "Wait for it, or stop it: the same command then goes on.",
            ) from None
        yield
