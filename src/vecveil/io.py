"""Atomic files, file locks, checkpoints and text encodings."""

from __future__ import annotations

import codecs
import contextlib
import errno
import json
import os
import re
import secrets
import stat
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from io import FileIO
from pathlib import Path
from typing import IO, Any

from vecveil.errors import DataFileError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


PRIVATE = 0o600
"""Mode of a new file that may contain texts, terms, ids or clean vectors."""
PUBLIC = 0o666
"""Mode, less the umask, of a file for others, such as a table of protected vectors."""
LOCK_SECONDS = 10.0
"""Longest wait for the lock of a file that others change briefly."""
NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}  # of a file system without links
_TEMPORARY = re.compile(r"(\..{1,40}\.)[0-9a-f]{12}\.tmp", re.DOTALL)


def parse_json(text: str | bytes, parse_float: Callable[[str], Any] | None = None) -> Any:
    """Return the value of a JSON document; raise ValueError for anything else.

    ``parse_float`` takes the text of each number with a fraction or an exponent. A repeated key raises
    `RepeatedKeyError`: another program may have approved the other value.
    """
    return json.loads(text, object_pairs_hook=_distinct, parse_float=parse_float)


class RepeatedKeyError(ValueError):
    """A JSON object has a key twice."""


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise RepeatedKeyError
    return content


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return ``path`` with a leading ``~`` replaced by the home folder; ``~draft.csv`` without such a user stays."""
    return Path(os.path.expanduser(path))


@contextlib.contextmanager
def atomic_path(target: str | os.PathLike[str], *, mode: int = PRIVATE, only_new: bool = False) -> Iterator[Path]:
    """Yield a temporary path next to ``target``; on a clean exit it becomes ``target``.

    Args:
        mode: of a new file and its folder, less the umask. A replaced file keeps its permissions, but a private one
            loses those of others.
        only_new: of several concurrent writers the first wins and the others raise FileExistsError.

    The rename follows an fsync, so a crash leaves the old file or the new one. The temporary file, ``.*.tmp``, is
    locked while it is written; the next writer of the target removes unlocked ones that killed writers left.
    """
    target = expanded(target)
    old_mode = stat.S_IMODE(target.stat().st_mode) if target.is_file() else None
    if old_mode is not None and mode == PRIVATE:
        old_mode &= stat.S_IRWXU
    with temporary_beside(target, mode=mode if old_mode is None else old_mode | stat.S_IWUSR) as temporary:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        if old_mode is not None:
            temporary.chmod(old_mode)
        if only_new:
            _link(temporary, target)
        else:
            os.replace(temporary, target)
        sync_folder(target.parent)


@contextlib.contextmanager
def temporary_beside(target: Path, *, mode: int) -> Iterator[Path]:
    """Yield a new empty file next to ``target``, locked while the block runs and removed at its end."""
    make_folders(target.parent, mode=mode)
    remove_left_over(target)
    temporary, file = _create(target, mode)
    with file:
        try:
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)


def make_folders(folder: Path, *, mode: int = PRIVATE) -> None:
    """Make ``folder`` and its parents for files of ``mode``: for private ones, closed to others."""
    missing = [folder, *folder.parents]
    missing = missing[: next((i for i, each in enumerate(missing) if each.is_dir()), len(missing))]
    for each in reversed(missing):
        each.mkdir(0o700 if mode == PRIVATE else 0o777, exist_ok=True)
        sync_folder(each.parent)


def create_private(path: Path) -> None:
    """Create an empty private file, if missing, before a library writes into it."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE))


def is_temporary_of(target: str, name: str) -> bool:
    named = _TEMPORARY.fullmatch(name)
    return named is not None and named[1] == _prefix(target)


def temporary_name(target: str) -> str:
    return f"{_prefix(target)}{secrets.token_hex(6)}.tmp"


def _prefix(target: str) -> str:
    # Shorten the name to what a file system allows.
    return f".{target[:40]}."


def _link(temporary: Path, target: Path) -> None:
    """Give the file its final name; raise FileExistsError if it is taken."""
    try:
        os.link(temporary, target)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        with locked(target):
            if target.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
            os.replace(temporary, target)


def _create(target: Path, mode: int) -> tuple[Path, FileIO]:
    """Return a new file, open and, if the file system has locks, locked."""
    while True:
        temporary = target.parent / temporary_name(target.name)
        file = _new_file(temporary, mode)
        if fcntl is None:  # Windows can neither rename nor remove an open file
            file.close()
            return temporary, file
        with contextlib.suppress(OSError):  # without locks, left-over files are not cleaned up either
            hold(file)
        if os.fstat(file.fileno()).st_nlink:
            return temporary, file
        file.close()  # another writer removed it as a left-over before it was locked


def _new_file(path: Path, mode: int) -> FileIO:
    # A file object closes itself wherever an interrupt strikes: the number of a descriptor would be lost, and the
    # process would hold the lock until it ends. `os.open` is called from C, where no interrupt is raised.
    return open(path, "xb", buffering=0, opener=partial(os.open, mode=mode))


def remove_left_over(*targets: Path) -> None:
    """Remove temporary files that killed writers of ``targets`` (files of one folder) left; live ones are locked."""
    if fcntl is None or not targets:
        return
    prefixes = {_prefix(target.name) for target in targets}
    with contextlib.suppress(OSError), os.scandir(targets[0].parent) as entries:
        left_over = [
            Path(entry.path)
            for entry in entries
            if (named := _TEMPORARY.fullmatch(entry.name)) and named[1] in prefixes
        ]
        for path in left_over:
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                finally:
                    os.close(descriptor)


def sync_folder(folder: Path | int) -> None:
    """Flush the names in ``folder``, a path or an open descriptor, to disk, if the platform can.

    Raises:
        OSError: the disk is full or broken, so that a name may be lost in a power failure.
    """
    try:
        descriptor = folder if isinstance(folder, int) else os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            if descriptor is not folder:
                os.close(descriptor)
    except OSError as error:
        if error.errno in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
            raise


def write_bytes(target: str | os.PathLike[str], data: bytes, *, mode: int = PRIVATE) -> None:
    """Write ``data`` to ``target`` atomically; see `atomic_path`."""
    with atomic_path(target, mode=mode) as temporary:
        temporary.write_bytes(data)


def write_text(target: str | os.PathLike[str], text: str, *, mode: int = PRIVATE) -> None:
    """Write ``text`` to ``target`` as UTF-8, atomically."""
    write_bytes(target, text.encode("utf-8"), mode=mode)


_EXIT_SECONDS = 1.0
"""Seconds to wait for a killed process, whose child may still hold its open files, to disappear."""


class LockedError(Exception):
    """Another process, or another thread of this one, holds the lock."""


class NoLocksError(OSError):
    """The file system has no locks."""


def hold(file: int | IO[Any] | FileIO, *, seconds: float = _EXIT_SECONDS) -> None:
    """Take the lock of an open file within ``seconds``, by default long enough for a dying process.

    Another holder raises BlockingIOError, a file system without locks another OSError.
    """
    # Not `filelock`: it keeps the number of a descriptor, so an interrupt leaks the lock until the process ends.
    due = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > due:
                raise
        time.sleep(0.02)


_lock_files: weakref.WeakSet[FileIO] = weakref.WeakSet()


def _close_lock_files() -> None:
    # A forked child shares its parent's locks and would keep them if the parent is killed.
    for file in list(_lock_files):
        file.close()


if fcntl is not None:
    os.register_at_fork(after_in_child=_close_lock_files)


@contextlib.contextmanager
def exclusive(path: Path, *, seconds: float = _EXIT_SECONDS, required: bool = False) -> Iterator[None]:
    """Create and hold the lock file at ``path`` for the block, and remove it at the end.

    Only its owner can open the file, and so hold its lock. Nothing is locked on Windows and, unless ``required``, on a
    file system without locks, such as some network file systems.

    Raises:
        LockedError: another process or thread holds it.
        NoLocksError: ``required``, and the file system has no locks.
        OSError: the file cannot be created.
    """
    if fcntl is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with _lock_file(path) as file:
            _lock_files.add(file)
            try:
                hold(file, seconds=seconds)
            except BlockingIOError:
                raise LockedError(path.name) from None
            except OSError as error:
                if required:
                    path.unlink(missing_ok=True)
                    raise NoLocksError(error.errno, error.strerror) from error
                yield
                return
            if not _named(file, path):
                continue  # the previous holder has just removed the file
            try:
                yield
            finally:
                if not file.closed:  # in a forked child: the lock is its parent's
                    path.unlink(missing_ok=True)
            return


def _named(file: FileIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(path))
    except FileNotFoundError:
        return False


def _lock_file(path: Path) -> FileIO:
    """Open the lock file, created if missing."""
    while True:
        with contextlib.suppress(FileExistsError):
            return _new_file(path, PRIVATE)
        if path.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        with contextlib.suppress(FileNotFoundError):  # its holder has just removed it
            return open(path, "r+b", buffering=0)


@contextlib.contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let one process, or thread, at a time change the file at ``path``.

    Raises:
        LockedError: another one changes it for longer than `LOCK_SECONDS`.
        NoLocksError: the file system has no locks, so a change could overwrite another one.
        OSError: the folder of the file is not writable.
    """
    target = Path(os.path.realpath(expanded(path)))
    make_folders(target.parent)
    # A separate lock file: an atomic write replaces the target, and any reader of the folder could lock it.
    with exclusive(target.with_name(f".{target.name[:40]}.lock"), seconds=LOCK_SECONDS, required=True):
        yield


# Checkpoints ------------------------------------------------------------------------------------


class StateFile:
    """The checkpoint of a training: arrays, and in the header of the file its identity and a record.

    The file is replaced atomically, and only its owner can read it: a state reveals something of the texts. Reading it
    cannot run code.

    Args:
        path: of the safetensors file; its folder is created at the first write.
        identity: JSON-ready values that must agree before a training resumes, such as settings, seed and digests of the
            data.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path = path
        # Tuples become lists, as in the file.
        self.identity: dict[str, Any] = json.loads(json.dumps(dict(identity)))

    def load(self) -> tuple[dict[str, Any], Any] | None:
        """Return the arrays and the record, or None without a file.

        Raises:
            DataFileError: the file is damaged, or of a training with a different identity.
        """
        from safetensors import safe_open

        try:
            if not self.path.exists():
                return None
            with safe_open(str(self.path), framework="numpy") as file:
                header = file.metadata()
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            identity, record = dict(json.loads(header["identity"])), json.loads(header["record"])
        except Exception as error:  # safetensors has its own exceptions
            raise self.damaged() from error
        check_identity(identity, self.identity, self.path.parent)
        return arrays, record

    def save(self, arrays: Mapping[str, Any], record: Any) -> None:
        import numpy as np
        from safetensors import SafetensorError
        from safetensors.numpy import save_file

        header = {"identity": json.dumps(self.identity), "record": json.dumps(record)}
        try:
            make_folder(self.path.parent)
            with atomic_path(self.path) as temporary:
                # Copy in C order: transposed views would be written in memory order.
                state = {name: np.asarray(array, order="C") for name, array in arrays.items()}
                save_file(state, str(temporary), metadata=header)
        except (OSError, SafetensorError) as error:
            raise not_writable(self.path.parent, error) from error

    def damaged(self) -> DataFileError:
        return checkpoint_error(f"{self.path.parent.name} is damaged, or no training wrote it. Remove the folder.")


def check_identity(stored: Mapping[str, Any], expected: Mapping[str, Any], folder: Path) -> None:
    """Raise `DataFileError` if the checkpoint in ``folder`` belongs to another training."""
    for key, value in expected.items():
        if stored.get(key) != value:
            raise checkpoint_error(
                f"{folder.name} belongs to a training with {key} {str(stored.get(key))[:60]}, not {str(value)[:60]}. "
                f"Pass another folder, or remove {str(folder)[:200]}."
            )


def make_folder(folder: Path) -> None:
    try:
        make_folders(folder)
    except OSError as error:
        raise not_writable(folder, error) from error


def not_writable(folder: Path, error: Exception) -> DataFileError:
    known = isinstance(error, OSError) and error.errno
    reason = os.strerror(known) if known else type(error).__name__
    return checkpoint_error(f"cannot write into {folder.name}: {reason}.")


def checkpoint_error(text: str) -> DataFileError:
    return DataFileError(f"`checkpoint`: {text}", code="E-CHECKPOINT", param="checkpoint")


# Text encodings ------------------------------------------------------------------------------

_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: "utf-8-sig",
}
_CONTROLS = re.compile("[\x80-\x9f]")
_NUL_SHARE = 0.2  # of the bytes at even or at odd offsets; a third is common in UTF-16 of European languages
_WESTERN_SHARE = 0.3  # of bytes above 127; other code pages use more


class TextEncodingWarning(UserWarning):
    """A text was probably decoded with a wrong encoding, so that words in it are not found."""


def likely_encoding(data: bytes) -> str | None:
    """Return the encoding that the bytes of a text suggest; None for an ambiguous code page."""
    mark = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
    if mark is not None:
        return mark
    nuls = [data[i::4].count(0) / max(len(data[i::4]), 1) for i in range(4)]
    # Which of four bytes are mostly NUL.
    empty_of = {"utf-32-le": (1, 2, 3), "utf-32-be": (0, 1, 2), "utf-16-le": (1, 3), "utf-16-be": (0, 2)}
    for name, empty in empty_of.items():
        if all((nuls[i] > _NUL_SHARE) == (i in empty) for i in range(4)):
            return name
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)  # the last character may be incomplete
        return "utf-8"
    except UnicodeDecodeError:
        pass
    foreign = sum(byte > 127 for byte in data) > _WESTERN_SHARE * len(data)
    # Never suggest Latin-1: it decodes the apostrophes of cp1252 as control characters.
    return None if foreign or set(data) & set(b"\x81\x8d\x8f\x90\x9d") else "cp1252"


def decode_text(data: bytes, name: str, *, owner: str, param: str = "path") -> str:
    """Return the text of UTF-8 bytes, or of UTF-16 or UTF-32 with a byte order mark."""
    encoding = likely_encoding(data)
    marked = encoding if any(data.startswith(mark) for mark in _MARKS) else None
    try:
        if marked is None and encoding is not None and encoding.startswith(("utf-16", "utf-32")):
            raise DataFileError(f"{name!r} is not UTF-8. {_convert(encoding)}", param=param)
        text = data.decode(marked or "utf-8")
    except UnicodeDecodeError as error:
        raise DataFileError(
            f"{name!r} is not UTF-8: wrong at byte {error.start}. {_convert(encoding)}", param=param
        ) from None
    warn_of_controls(text, name)
    return text


def _convert(encoding: str | None) -> str:
    if encoding is None or encoding.startswith("utf-8"):
        return "Find out its encoding, and save it as UTF-8."
    return f"Its bytes look like {encoding}: convert it with iconv -f {encoding} -t utf-8."


def warn_of_controls(text: str, name: str) -> bool:
    """Warn of control characters U+0080 to U+009F, which a wrong encoding produces; return whether there are any."""
    if text.isascii() or not _CONTROLS.search(text):
        return False
    warnings.warn(
        f"{name} contains control characters (U+0080 to U+009F), as cp1252 or UTF-8 text does when read as latin1. "
        "Words with them are not found. Read the file with the encoding that it was written in.",
        TextEncodingWarning,
        stacklevel=2,
    )
    return True
