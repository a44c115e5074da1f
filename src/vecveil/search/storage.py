"""Object storage of a sealed index: list, fetch, create once, delete, in a folder or behind any fsspec URL."""

from __future__ import annotations

import contextlib
import filecmp
import functools
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vecveil.errors import InvalidInputError, StoreError, optional_import
from vecveil.io import atomic_path, remove_left_over, temporary_beside

# File systems of fsspec that create an object only if its name is free, in one request.
_CONDITIONAL = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory"}
_ATTEMPTS = 4


class Storage:
    """Objects below one location. An object is created once and never changed, except that `empty` truncates it.

    Args:
        location: folder, or URL of fsspec such as ``s3://bucket/notes``.
        cache: folder for copies of remote objects; a folder needs none.
        options: options of the fsspec file system, such as ``endpoint_url``.

    Attributes:
        conditional: whether `create` refuses a name that another process takes at the same time.
        local: whether the location is a folder of this machine.
    """

    def __init__(self, location: str, *, cache: Path, options: Mapping[str, Any] | None = None) -> None:
        self.local = "://" not in location or location.startswith("file://")
        if self.local:
            self._root = os.path.abspath(location.removeprefix("file://"))
            self.conditional = True
            return
        self._fs, self._root = file_system(location, options)
        self._root = self._root.rstrip("/")
        protocols = self._fs.protocol
        names = {protocols} if isinstance(protocols, str) else set(protocols)
        self.conditional = bool(names & _CONDITIONAL)
        # Both read a file by parts of 50 MB, S3 ten at once.
        self._parts = {"chunksize": 2**24, "max_concurrency": 4} if names & {"s3", "s3a", "gs", "gcs"} else {}
        self._cache = cache

    def list(self, folder: str) -> set[str]:
        """Return the names of the objects in ``folder``, with it."""
        with _reported(f"list {folder}"):
            if self.local:
                try:
                    names = os.listdir(Path(self._root, folder))
                except FileNotFoundError:
                    return set()
                return {f"{folder}/{name}" for name in names if not name.startswith(".")}
            place = f"{self._root}/{folder}"
            try:
                paths = self._retry(lambda: self._fs.ls(place, detail=False, refresh=True))
            except FileNotFoundError:
                return set()
            return {f"{folder}/{path.rstrip('/').rpartition('/')[2]}" for path in paths} - {f"{folder}/"}

    def fetch(self, name: str) -> Path:
        """Return the path of a local copy of an object; it stays ciphertext.

        Raises:
            FileNotFoundError: there is no such object.
        """
        if self.local:
            return Path(self._root, name)
        target = self._cache / name
        if not target.exists():
            with _reported(f"fetch {name}"), atomic_path(target, mode=0o600) as temporary:
                self._retry(lambda: self._fs.get_file(f"{self._root}/{name}", str(temporary)))
        return target

    def forget_copy(self, name: str) -> None:
        """Delete the local copy of a remote object."""
        if not self.local:
            with contextlib.suppress(OSError):
                (self._cache / name).unlink()

    def copies(self) -> set[str]:
        """Return the names of the objects that have a local copy in the cache."""
        if self.local or not self._cache.is_dir():
            return set()
        return {
            f"{folder.name}/{path.name}"
            for folder in self._cache.iterdir()
            if folder.is_dir()
            for path in folder.iterdir()
            if not path.name.startswith(".")
        }

    def read(self, name: str) -> bytes:
        """Return the content of a small object.

        Raises:
            FileNotFoundError: there is no such object.
        """
        with _reported(f"read {name}"):
            if self.local:
                return Path(self._root, name).read_bytes()
            return bytes(self._retry(lambda: self._fs.cat_file(f"{self._root}/{name}")))

    @contextlib.contextmanager
    def creating(self, name: str) -> Iterator[Path]:
        """Yield a path to write an object to; on a clean exit it is durable under ``name``.

        Raises:
            FileExistsError: the name is taken.
            StoreError: the storage cannot be written. Whether the object exists is then unknown.
        """
        target = Path(self._root if self.local else self._cache, name)
        with _reported(f"write {name}"):
            if self.local and "/" in name and not os.path.isdir(self._root):
                raise OSError("its folder is missing")  # no half of an index appears in its place
            try:
                # A remote object is written to the cache, where a segment stays as the local copy.
                with atomic_path(target, mode=0o600, only_new=self.local) as path:
                    yield path
                    if not self.local:
                        self._upload(path, name)
            except FileNotFoundError as error:
                raise OSError("its folder or bucket is missing") from error
            if not name.startswith("segments/"):
                self.forget_copy(name)

    def create(self, name: str, data: bytes) -> None:
        """Create a small object; see `creating`."""
        with self.creating(name) as path:
            path.write_bytes(data)

    def empty(self, name: str) -> None:
        """Replace the content of an object by nothing; its name stays taken."""
        with _reported(f"write {name}"):
            if self.local:
                os.truncate(Path(self._root, name), 0)
            else:
                self._retry(lambda: self._fs.pipe_file(f"{self._root}/{name}", b""))

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; missing ones are ignored."""
        for name in names:
            with _reported(f"delete {name}"), contextlib.suppress(FileNotFoundError):
                if self.local:
                    os.unlink(Path(self._root, name))
                else:
                    self._retry(functools.partial(self._fs.rm_file, f"{self._root}/{name}"))
                    self.forget_copy(name)

    def tidy(self) -> None:
        """Delete temporary files that killed writers left."""
        for folder in ("segments", "commits"):
            place = Path(self._root if self.local else self._cache, folder)
            with contextlib.suppress(OSError):
                # A temporary name is a dot, the target's name, and 17 characters, see `vecveil.io`.
                remove_left_over(*(place / name[1:-17] for name in os.listdir(place) if name.endswith(".tmp")))

    def _upload(self, path: Path, name: str) -> None:
        """Write an object, unless its name is taken, where the storage can tell.

        Raises:
            FileExistsError: the name is taken.
        """
        remote = f"{self._root}/{name}"
        mode = {"mode": "create"} if self.conditional else {}
        try:
            self._retry(lambda: self._fs.put_file(str(path), remote, **mode, **self._parts))
        except OSError as error:
            # A request that failed, or seemed to, may have been carried out: then the object is ours.
            same = None if isinstance(error, PermissionError) else self._compared(path, remote)
            if same is None:
                raise
            if not same:
                raise FileExistsError(name) from error

    def _compared(self, path: Path, remote: str) -> bool | None:
        """Return whether an object equals a file; None if there is no object."""
        with temporary_beside(path, mode=0o600) as there:
            try:
                self._retry(lambda: self._fs.get_file(remote, str(there)))
            except FileNotFoundError:
                return None
            return filecmp.cmp(path, there, shallow=False)

    @staticmethod
    def _retry(request: Callable[[], Any]) -> Any:
        """Return the answer to a request of the remote file system, whose clients have exceptions of their own."""
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


def new_name() -> str:
    """Return 128 random bits as hexadecimal digits."""
    return secrets.token_hex(16)


@contextlib.contextmanager
def _reported(doing: str) -> Iterator[None]:
    """Turn an error of the storage into a `StoreError` that says what could not be done."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        reason = error.strerror or str(error.args[0] if error.args else type(error).__name__)
        raise StoreError(f"The storage of the index could not {doing}: {reason}.", code="E-INDEX-STORAGE") from error
