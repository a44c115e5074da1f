"""Object storage of a sealed index: list, read, create once and delete, in a folder or behind any fsspec URL.

The storage may be hostile. Sizes are checked before anything is read. In a folder every object is opened relative to
its folder, and neither symbolic links nor devices are followed: nothing outside of the folder is read or changed.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import io
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from vecveil.errors import InvalidInputError, SealingError, StoreError, optional_import
from vecveil.index.blocks import Spans
from vecveil.index.chain import StoredObject
from vecveil.io import NO_LINKS, atomic_path, expanded, hold, locked, make_folders, sync_folder, temporary_name
from vecveil.texts.encoders.cache import default_cache_folder

# Protocols of fsspec that create an object only if its name is free, in one request.
_CONDITIONAL = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory"}
_ATTEMPTS = 4
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_RELATIVE = os.open in os.supports_dir_fd  # not on Windows
_PIECE = 1 << 23  # bytes of a remote object in one request
_windows = threading.Lock()  # where files have one position
_LINK_ERRORS = (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENOTDIR)


class PositionedFile(io.RawIOBase):
    """A file with a private read position, so that a process and its fork do not move each other's."""

    far = False

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._at = descriptor, 0
        self.size = os.fstat(descriptor).st_size

    def fileno(self) -> int:
        return self._descriptor

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        part = self._part(self._at, len(view))
        view[: len(part)] = part
        self._at += len(part)
        return len(part)

    def spans(self, wanted: Spans) -> list[bytes]:
        """Return the bytes from start to end of each span; fewer at the end of the file."""
        parts = []
        for start, stop in wanted:
            part = self._part(start, stop - start)
            while len(part) < stop - start and (more := self._part(start + len(part), stop - start - len(part))):
                part += more  # one call reads at most 2 GiB
            parts.append(part)
        return parts

    def _part(self, start: int, length: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._descriptor, length, start)
        with _windows:
            os.lseek(self._descriptor, start, os.SEEK_SET)
            return os.read(self._descriptor, length)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, os.fstat(self._descriptor).st_size)[whence]
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


@dataclass(frozen=True)
class RemoteObject:
    """An object of which a remote storage sends the parts that are read."""

    size: int
    request: Callable[[Spans], list[bytes]]
    far = True

    def spans(self, wanted: Spans) -> list[bytes]:
        """Return the bytes from start to end of each span."""
        pieces = [(at, min(at + _PIECE, stop)) for start, stop in wanted for at in range(start, stop, _PIECE)]
        parts = iter(self.request(pieces))
        return [b"".join(next(parts) for _ in range(start, stop, _PIECE)) for start, stop in wanted]

    def close(self) -> None: ...


class Storage:
    """Objects below one location; each is created once and never changed.

    Args:
        location: folder, or URL of fsspec such as ``s3://bucket/notes``.
        options: options of the fsspec file system, such as ``endpoint_url``.
        cache: folder for copies of remote objects, by default in the user's cache folder.

    Attributes:
        local: whether the location is a folder of this machine.
    """

    def __init__(
        self, location: str, options: Mapping[str, Any] | None = None, cache: str | os.PathLike[str] | None = None
    ) -> None:
        self.local = "://" not in location or location.startswith("file://")
        self._location, self._options = location, options
        folder = default_cache_folder().parent / "index" if cache is None else expanded(cache).absolute()
        self._cache = folder / hashlib.sha256(location.encode()).hexdigest()[:24]
        self._root = os.path.abspath(location.removeprefix("file://"))
        if not self.local:
            self._connect()
        elif os.path.isfile(self._root):
            raise InvalidInputError(
                f"{os.path.basename(self._root)} is a file; an index is a folder.", param="location"
            )

    def _connect(self) -> None:
        """Make the connection to a remote storage."""
        self._process = os.getpid()
        options = {**(self._options or {}), "skip_instance_cache": True}
        self._fs, root = file_system(self._location, options)
        self._root = root.rstrip("/")
        protocols = {self._fs.protocol} if isinstance(self._fs.protocol, str) else set(self._fs.protocol)
        self._conditional = bool(protocols & _CONDITIONAL)
        # Both read a file by parts of 50 MB, S3 ten at once.
        self._parts = {"chunksize": 2**24, "max_concurrency": 4} if protocols & {"s3", "s3a", "gs", "gcs"} else {}

    @property
    def place(self) -> str:
        """The location in one form."""
        return os.path.realpath(self._root) if self.local else self._location.rstrip("/")

    def is_conditional(self, name: str, content: bytes) -> bool:
        """Return whether the storage refuses to create an object that exists with this content.

        Some S3-compatible storages ignore the condition and write the same content again.
        """
        if self.local or not self._conditional:
            return self.local
        with _reported(f"write {name}"):
            try:
                self._retry(lambda: self._fs.pipe_file(f"{self._root}/{name}", content, mode="create"))
            except FileExistsError:
                return True
        return False

    def list(self, folder: str) -> dict[str, float | None]:
        """Return the objects in ``folder`` by full name, each with the time of its writing, if known."""
        with _reported(f"list {folder}"):
            if self.local:
                with contextlib.suppress(FileNotFoundError), self._at(f"{folder}/") as (place, prefix):
                    names = os.listdir(place if _RELATIVE else prefix)
                    listed: dict[str, float | None] = {}
                    for name in names:
                        with contextlib.suppress(FileNotFoundError):
                            status = os.stat(prefix + name, dir_fd=place, follow_symlinks=False)
                            if not (stat.S_ISDIR(status.st_mode) or name.startswith(".")):
                                listed[f"{folder}/{name}"] = status.st_mtime
                    return listed
                return {}
            try:
                entries = self._retry(lambda: self._fs.ls(f"{self._root}/{folder}", detail=True, refresh=True))
            except FileNotFoundError:
                return {}
            files = (entry for entry in entries if entry["type"] != "directory")
            return {f"{folder}/{entry['name'].rpartition('/')[2]}": _written(entry) for entry in files}

    def read(self, name: str, most: int) -> bytes:
        """Return the content of a small object; of one larger than ``most`` bytes only the front, which is invalid.

        Raises:
            FileNotFoundError: there is no such object.
        """
        with _reported(f"read {name}"):
            if self.local:
                with self._opened(name) as file:
                    return file.read(most)
            # one request, which bounds what is read
            path = f"{self._root}/{name}"
            return bytes(self._retry(lambda: self._fs.cat_file(path, start=0, end=most)))

    def has(self, name: str) -> bool:
        """Return whether there is an object."""
        with _reported(f"read {name}"), contextlib.suppress(FileNotFoundError):
            if self.local:
                self._opened(name).close()
            else:
                self._retry(lambda: self._fs.cat_file(f"{self._root}/{name}", start=0, end=1))
            return True
        return False

    def open(self, stored: StoredObject, *, fresh: bool = False) -> PositionedFile:
        """Return an object of the chain; of a remote object, a local encrypted copy.

        Args:
            fresh: fetch the copy again, and compare the digest of the whole object. Otherwise only its size is
                compared: whoever reads a block of it notices what was altered.

        Raises:
            FileNotFoundError: there is no such object.
            SealingError: it has another size or digest.
        """
        try:
            file = self.open_unknown(stored.name, expected=stored.bytes, fresh=fresh)
            if file.size != stored.bytes:  # a damaged copy
                file.close()
                file = self.open_unknown(stored.name, expected=stored.bytes, fresh=True)
        except FileNotFoundError:
            raise FileNotFoundError(stored.name) from None
        with _reported(f"read {stored.name}"):
            if not fresh or hashlib.file_digest(file, "sha256").hexdigest() == stored.digest:
                file.seek(0)
                return file
        file.close()
        raise _altered(stored.name)

    def open_remote(self, stored: StoredObject) -> RemoteObject:
        """Return an object of the chain whose parts the remote storage sends when they are read."""
        path = f"{self._root}/{stored.name}"

        def request(wanted: Spans) -> list[bytes]:
            starts, ends = [start for start, _ in wanted], [stop for _, stop in wanted]
            paths = [path] * len(wanted)
            with _reported(f"read {stored.name}"):
                try:
                    return list(self._retry(lambda: self._fs.cat_ranges(paths, starts, ends, on_error="raise")))
                except FileNotFoundError:
                    raise FileNotFoundError(stored.name) from None

        return RemoteObject(stored.bytes, request)

    def open_unknown(self, name: str, *, expected: int | None = None, fresh: bool = False) -> PositionedFile:
        """Return an object whose digest is unknown.

        Raises:
            SealingError: its size is not ``expected``.
        """
        with _reported(f"fetch {name}"):
            if self.local:
                file = self._opened(name)
                if expected not in (None, file.size):
                    file.close()
                    raise _altered(name)
                return file
            target = self._cache / name
            if fresh or not target.exists():
                path = f"{self._root}/{name}"
                self._fs.invalidate_cache()  # `info` would answer from an earlier listing
                if expected is not None and self._retry(lambda: self._fs.info(path))["size"] != expected:
                    raise _altered(name)
                with atomic_path(target, mode=0o600) as temporary:
                    self._retry(lambda: self._fs.get_file(path, str(temporary)))
            return PositionedFile(os.open(target, os.O_RDONLY | _SAFE))

    @contextlib.contextmanager
    def creating(self, name: str, *, replace: bool = False) -> Iterator[IO[bytes]]:
        """Yield a file to write an object to; on a clean exit it is durable under ``name``.

        Args:
            replace: replace an object of this name, at once.

        Raises:
            FileExistsError: the name is taken.
            StoreError: the storage cannot be written. Whether the object exists is then unknown.
        """
        with _reported(f"write {name}"):
            if not self.local:
                with atomic_path(self._cache / name, mode=0o600) as path:
                    with open(path, "rb+") as file:
                        yield file
                    self._upload(path, name, replace=replace)
                if not name.startswith("segments/"):  # a segment stays as the local copy
                    self.forget_copy(name)
                return
            if "/" not in name:
                self.make()
            if not os.path.isdir(os.path.dirname(os.path.join(self._root, name))):
                raise OSError("its folder is missing")
            with self._at(name) as (place, final):
                temporary, descriptor = self._temporary(final, place)
                try:
                    with os.fdopen(descriptor, "rb+", closefd=False) as file:
                        yield file
                        file.flush()
                        os.fsync(descriptor)
                    if replace:
                        os.replace(temporary, final, src_dir_fd=place, dst_dir_fd=place)
                    else:
                        self._name(temporary, final, place)
                finally:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(temporary, dir_fd=place)
                    os.close(descriptor)
                sync_folder(Path(final).parent if place is None else place)

    def create(self, name: str, data: bytes, *, replace: bool = False) -> None:
        """Create a small object; see `creating`."""
        with self.creating(name, replace=replace) as file:
            file.write(data)

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; missing ones are ignored."""
        for name in names:
            with _reported(f"delete {name}"), contextlib.suppress(FileNotFoundError):
                if not self.local:
                    self._retry(functools.partial(self._fs.rm_file, f"{self._root}/{name}"))
                    self.forget_copy(name)
                    continue
                with self._at(name) as (place, path):
                    os.unlink(path, dir_fd=place)

    def forget_copy(self, name: str) -> None:
        """Delete the local copy of a remote object."""
        if not self.local:
            with contextlib.suppress(OSError):
                (self._cache / name).unlink()

    def copies(self) -> set[str]:
        """Return the names of the segments that have a local copy."""
        folder = self._cache / "segments"
        if self.local or not folder.is_dir():
            return set()
        return {f"segments/{path.name}" for path in folder.iterdir() if not path.name.startswith(".")}

    def tidy(self) -> None:
        """Delete temporary files of killed writers; running writers hold a lock on theirs."""
        for folder in ("segments", "commits"):
            with contextlib.suppress(OSError), self._at(f"{folder}/", cached=True) as (place, prefix):
                for name in os.listdir(place if _RELATIVE else prefix):
                    if name.startswith(".") and name.endswith(".tmp"):
                        with contextlib.suppress(OSError, AttributeError):
                            descriptor = os.open(prefix + name, os.O_WRONLY | _SAFE, dir_fd=place)
                            try:
                                hold(descriptor, seconds=0)
                                os.unlink(prefix + name, dir_fd=place)
                            finally:
                                os.close(descriptor)

    def make(self) -> None:
        """Make the folders of a local storage, at creation only: a folder missing later may not be mounted."""
        for folder in ("", "segments", "commits") if self.local else ():
            with _reported("make its folders"):
                make_folders(Path(self._root, folder))

    # A folder --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _at(self, name: str, *, cached: bool = False) -> Iterator[tuple[int | None, str]]:
        """Yield a descriptor for ``dir_fd`` and the path of an object relative to it.

        The path of a folder ends in a slash; its objects are prefixed with what is yielded. Without ``dir_fd`` the
        descriptor is None and the path is whole.
        """
        root = str(self._cache) if cached and not self.local else self._root
        folder, _, last = name.rpartition("/")
        if not _RELATIVE:
            place = os.path.join(root, folder)
            if os.path.islink(place):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            yield None, os.path.join(place, last)
            return
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if folder:
                within = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _SAFE, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = within
            yield descriptor, last
        finally:
            os.close(descriptor)

    def _opened(self, name: str) -> PositionedFile:
        with self._at(name) as (place, path):
            descriptor = os.open(path, os.O_RDONLY | _SAFE, dir_fd=place)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError("it is no regular file")
        return PositionedFile(descriptor)

    @staticmethod
    def _temporary(final: str, place: int | None) -> tuple[str, int]:
        """Return a new file, locked, so that `tidy` leaves it alone until it has its name."""
        while True:
            name = os.path.join(os.path.dirname(final), temporary_name(os.path.basename(final)))
            descriptor = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR | _SAFE, 0o600, dir_fd=place)
            with contextlib.suppress(OSError, AttributeError):
                hold(descriptor)
            if os.fstat(descriptor).st_nlink:
                return name, descriptor
            os.close(descriptor)  # it was taken for a leftover before it was locked

    def _name(self, temporary: str, name: str, place: int | None) -> None:
        """Give a file its final name, unless that is taken."""
        try:
            os.link(temporary, name, src_dir_fd=place, dst_dir_fd=place, follow_symlinks=not _RELATIVE)
        except FileExistsError:  # over NFS also where the answer to a first request was lost
            if os.stat(temporary, dir_fd=place).st_nlink != 2:
                raise
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            with locked(Path(self._root, "index")):
                with contextlib.suppress(FileNotFoundError):
                    os.stat(name, dir_fd=place, follow_symlinks=False)
                    raise FileExistsError(name) from None
                os.rename(temporary, name, src_dir_fd=place, dst_dir_fd=place)

    # Behind a URL ----------------------------------------------------------------------------------

    def _upload(self, path: Path, name: str, *, replace: bool) -> None:
        """Write an object; without ``replace`` only if its name is free, where the storage can tell.

        Raises:
            FileExistsError: the name is taken.
        """
        remote = f"{self._root}/{name}"
        mode = {"mode": "create"} if self._conditional and not replace else {}
        try:
            self._retry(lambda: self._fs.put_file(str(path), remote, **mode, **self._parts))
        except OSError as error:
            if replace or isinstance(error, PermissionError):
                raise
            # A request that failed may still have been carried out: then the object is ours.
            try:
                same = self.read(name, path.stat().st_size) == path.read_bytes()
            except FileNotFoundError:
                raise error from None
            except StoreError:  # a larger one
                same = False
            if not same:
                raise FileExistsError(name) from error

    def _retry(self, request: Callable[[], Any]) -> Any:
        """Repeat a request to the remote file system until it succeeds; its clients raise exceptions of any type."""
        if self._process != os.getpid():  # a fork has neither the threads nor the connections
            self._connect()
        for attempt in range(_ATTEMPTS):
            try:
                return request()
            except (FileNotFoundError, FileExistsError, TypeError, AttributeError):
                raise
            except Exception as error:
                if attempt == _ATTEMPTS - 1 or isinstance(error, PermissionError):
                    raise error if isinstance(error, OSError) else OSError(type(error).__name__) from error
        raise AssertionError


def file_system(location: str, options: Mapping[str, Any] | None = None) -> tuple[Any, str]:
    """Return the fsspec file system of a location, and the path in it."""
    with optional_import("An index behind a URL", "fsspec", "index"):
        import fsspec
    try:
        files, path = fsspec.core.url_to_fs(location, **(options or {}))
    except (ValueError, ImportError) as error:
        raise InvalidInputError(
            f"fsspec does not open this location: {error}. Name a folder, or a URL whose file system is installed.",
            param="location",
        ) from error
    return files, path


def _written(entry: Mapping[str, Any]) -> float | None:
    """Return when a remote object was written, in seconds since 1970, if its entry says so."""
    names = ("LastModified", "last_modified", "updated", "mtime", "created")
    value: Any = next((entry[name] for name in names if entry.get(name)), None)
    return value if isinstance(value, float | int) else value.timestamp() if hasattr(value, "timestamp") else None


def _altered(name: str) -> SealingError:
    return SealingError(
        f"{name} is not what the index wrote: it was cut, altered or exchanged. Restore it from a backup of the "
        "storage.",
        code="E-SEAL-OPEN",
    )


@contextlib.contextmanager
def _reported(doing: str) -> Iterator[None]:
    """Turn an error of the storage into a `StoreError` that says what could not be done."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        reason = error.strerror or str(error.args[0] if error.args else type(error).__name__)
        if error.errno in _LINK_ERRORS:
            reason = "it is a link, a folder or a device, which an index does not write"
        raise StoreError(f"The storage of the index could not {doing}: {reason}.", code="E-INDEX-STORAGE") from error
