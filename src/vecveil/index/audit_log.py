"""Log who did what with an index: one JSON line an operation, chained by digests, without texts, vectors or values."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import BinaryIO

from vecveil.errors import StoreError, VecveilError, wrong_type
from vecveil.io import PRIVATE, expanded, hold
from vecveil.validation import check_count

_OWNER = "AuditLog"
_TAIL = 2**18  # bytes at the end of a file that contain its last record, unless somebody appended others
_MOST_FIELDS, _MOST_CHARACTERS = 32, 100  # of the fields of a record
_LOCK_SECONDS = 10.0  # to wait while other processes write
_CHANGES = ("add", "delete", "compact", "forget", "reseal", "reencode", "share", "remove", "repair")
_LOCK = threading.Lock()
if hasattr(os, "register_at_fork"):
    # No write is under way in a fork: the child would hold the lock of the file, and half a line.
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


@dataclass
class AuditEntry:
    """Fields of an operation's line: the number of rows, the fields that its filter compares, and the result."""

    rows: int | None = None
    fields: Callable[[], Iterable[str]] = tuple
    result: str = "ok"


class AuditLog:
    """Writes one JSON line an operation.

    A line has ``time``, ``principal``, ``index``, ``operation``, ``rows``, ``fields`` (names that a filter compares),
    ``result`` (``ok``, ``begun`` before a change, or an error's code), and ``previous``, the SHA-256 of the line before
    in the same ``chain``. A file has one chain, over rotations, restarts and all processes that write it. Another
    handler has one chain for each process.

    Args:
        destination: path of a file, which rotates; or a `logging.Handler` for this log alone, such as a
            ``StreamHandler``, a ``SysLogHandler`` or OpenTelemetry's. Its errors are raised.
        principal: who uses the index; by default the process.
        rotate_bytes: size from which the file becomes ``FILE.1``, and ``FILE.1`` ``FILE.2``.
        keep: number of rotated files; older ones are deleted.

    Guarantee:
        If a line cannot be written, the operation raises `StoreError` (``E-AUDIT-LOG``) and returns nothing; a change
        writes a line before it begins. `verify` notices lines that were edited, moved, or removed before another one.

    Not protected:
        Lines removed at the end, and a file written anew by somebody who may write it: both need a digest that was
        noted elsewhere. What a handler buffers or sends without a confirmation, and in a power failure the last lines.
    """

    def __init__(
        self,
        destination: str | os.PathLike[str] | logging.Handler,
        *,
        principal: str | None = None,
        rotate_bytes: int = 2**26,
        keep: int = 100,
    ) -> None:
        check_count(rotate_bytes, owner=_OWNER, param="rotate_bytes")
        check_count(keep, owner=_OWNER, param="keep")
        self.principal = principal
        self._file: RotatingFileHandler | None = None
        if isinstance(destination, logging.Handler):
            self._handler = destination
        elif isinstance(destination, str | os.PathLike):
            path = expanded(destination)
            self._file = RotatingFileHandler(
                path, maxBytes=rotate_bytes, backupCount=keep, encoding="utf-8", delay=True
            )
            self._handler = self._file
        else:
            raise wrong_type(_OWNER, "destination", "a path or a logging.Handler", destination)
        # By default logging prints an error and continues.
        setattr(self._handler, "handleError", _raise)  # noqa: B010
        self._process = 0
        self._chain = self._previous = ""
        # Of the last line of this process: the first line of its file, its position and length.
        self._own: tuple[bytes, int, int] | None = None

    @contextlib.contextmanager
    def operation(
        self, name: str, *, index: str, principal: str | None = None, changes: bool = False
    ) -> Iterator[AuditEntry]:
        """Write the line of an operation at the end of the block, or raise; before a change also one at its beginning.

        Raises:
            StoreError: the line cannot be written.
        """
        entry = AuditEntry()
        write = partial(self.write, name, index=index, principal=principal)
        if changes:
            write(result="begun")
        try:
            yield entry
        except BaseException as error:
            entry.result = error.code if isinstance(error, VecveilError) else type(error).__name__
            raise
        finally:
            write(rows=entry.rows, fields=entry.fields(), result=entry.result)

    def write(
        self,
        operation: str,
        *,
        index: str,
        principal: str | None = None,
        rows: int | None = None,
        fields: Iterable[str] = (),
        result: str = "ok",
    ) -> None:
        """Write one line; raise `StoreError` if that fails."""
        record: dict[str, object] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "principal": principal or self.principal or f"process:{os.getpid()}",
            "index": index,
            "operation": operation,
            "rows": rows,
            "fields": [name[:_MOST_CHARACTERS] for name in fields][:_MOST_FIELDS],
            "result": result,
        }
        try:
            with _LOCK:
                if self._file is None:
                    self._send(record)
                else:
                    self._append(record, self._file)
        except Exception as error:  # of any handler
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else type(error).__name__
            done = "The change was made" if result == "ok" and operation in _CHANGES else "The operation is refused"
            raise StoreError(
                f"The audit log cannot be written ({reason}). {done}. Make room, or check where it is written.",
                code="E-AUDIT-LOG",
                param="audit_log",
            ) from error

    def _send(self, record: dict[str, object]) -> None:
        if self._process != os.getpid():  # also in a fork
            self._process, self._chain, self._previous = os.getpid(), secrets.token_hex(8), ""
        line = _line(record, self._chain, self._previous)
        if not self._handler.handle(_log_record(line)):
            raise ValueError("a filter of the handler drops the line")
        self._previous = digest_of(line.encode())

    def _append(self, record: dict[str, object], handler: RotatingFileHandler) -> None:
        path = Path(handler.baseFilename)
        while True:
            with open(path, "a+b", opener=partial(os.open, mode=PRIVATE)) as file:
                if os.name == "posix":
                    hold(file, seconds=_LOCK_SECONDS)
                if not _is_named(file, path):
                    continue  # another process has rotated it
                size = file.seek(0, os.SEEK_END)
                chain, previous, complete = self._end_of(file, path)
                line = _line(record, chain, previous)
                # A line that a crash or a full disk cut short stays; `verify` counts it as unfinished.
                written = _log_record(line if complete else f"\n{line}")
                try:
                    if size and handler.shouldRollover(written):
                        if os.name != "posix":  # Windows renames no open file
                            file.close()
                        handler.doRollover()
                        continue
                    handler.emit(written)
                finally:
                    handler.close()  # it opens the file for the next line
                self._own = _first_line(file), size + (not complete), len(line.encode())
                self._previous = digest_of(line.encode())
                return

    def _end_of(self, file: BinaryIO, path: Path) -> tuple[str, str, bool]:
        """Return the chain to continue, the digest of its last line, and whether the file ends with a whole line."""
        line, complete = _last_record(file)
        if line is None:
            with contextlib.suppress(FileNotFoundError), open(f"{path}.1", "rb") as rotated:
                line, _ = _last_record(rotated)
        chain = secrets.token_hex(8) if line is None else str((parsed(line) or {})["chain"])
        previous = "" if line is None else digest_of(line)
        if self._own is not None and self._own[0] == _first_line(file):
            file.seek(self._own[1])
            if digest_of(file.read(self._own[2])) != self._previous:
                previous = self._previous  # somebody removed or edited that line: `verify` then notices
        return chain, previous, complete


def _raise(record: logging.LogRecord) -> None:
    raise  # the error that the handler has caught


def _log_record(line: str) -> logging.LogRecord:
    return logging.LogRecord("vecveil.audit_log", logging.INFO, "", 0, line, None, None)


def _line(record: dict[str, object], chain: str, previous: str) -> str:
    return json.dumps({**record, "chain": chain, "previous": previous})


def _is_named(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _first_line(file: BinaryIO) -> bytes:
    """Return what identifies a file: by the digest in it, no other file begins with this line."""
    file.seek(0)
    return file.readline(_TAIL)


def _last_record(file: BinaryIO) -> tuple[bytes | None, bool]:
    end, length = file.seek(0, os.SEEK_END), _TAIL
    while True:
        start = max(end - length, 0)
        file.seek(start)
        lines = file.read(length).split(b"\n")
        line = next((line for line in reversed(lines) if parsed(line) is not None), None)
        if line is not None or not start:
            return line, not lines[-1]
        length *= 16  # a new chain after what somebody has appended would hide lines removed before it


def digest_of(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def parsed(line: bytes) -> dict[str, object] | None:
    """Return the record of a line, or None for another line."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    named = isinstance(record, dict) and all(isinstance(record.get(name), str) for name in ("chain", "previous"))
    return record if named else None


# Verification -----------------------------------------------------------------------------------


@dataclass
class AuditChain:
    """The lines of one chain, as `verify` found them.

    Attributes:
        begins: the digest that its first line names; empty if it is the first line of the chain.
        last: digest of its last line.
    """

    begins: str
    records: int = 0
    first_time: str = ""
    last_time: str = ""
    last: str = ""


@dataclass
class AuditCheck:
    """What `verify` found.

    Attributes:
        broken: file and number of each line whose predecessor is not the line before it in its chain.
        unfinished: number of lines that are no records, such as those that a full disk cut short.
        missing: noted digests that no line has.
    """

    chains: dict[str, AuditChain] = field(default_factory=dict)
    broken: list[tuple[str, int]] = field(default_factory=list)
    unfinished: int = 0
    missing: list[str] = field(default_factory=list)


def verify(files: Sequence[str | os.PathLike[str]], *, noted: Sequence[str] = ()) -> AuditCheck:
    """Return whether each line follows the one before it.

    Args:
        files: oldest first. Of a line, what precedes the JSON object is ignored, as syslog writes it.
        noted: digests of last lines from earlier checks, which must still be there.
    """
    check, left = AuditCheck(), set(noted)
    for path in files:
        with open(path, "rb") as file:
            for number, whole in enumerate(file, 1):
                line = whole[max(whole.find(b"{"), 0) :].rstrip(b"\r\n\0")
                if (record := parsed(line)) is None:
                    check.unfinished += bool(line)
                    continue
                name, previous = str(record["chain"]), str(record["previous"])
                chain = check.chains.setdefault(name, AuditChain(previous))
                if chain.records and previous != chain.last:
                    check.broken.append((Path(path).name, number))
                chain.records, chain.last = chain.records + 1, digest_of(line)
                chain.first_time = chain.first_time or str(record.get("time"))
                chain.last_time = str(record.get("time"))
                left.discard(chain.last)
    check.missing = sorted(left)
    return check
