"""Find input files by path or URL, cut them into parts, and write files into an output folder."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from vecveil.errors import DataFileError, InvalidInputError, VecveilError, optional_import
from vecveil.io import temporary_name
from vecveil.texts.tables.binary_formats import NpySource, ParquetSource
from vecveil.texts.tables.files import InputFile, NoRowsError, format_of, input_file
from vecveil.texts.tables.writing import NotWrittenError
from vecveil.validation import check_count

PART_BYTES = 2**28
"""Approximate bytes of a part before compression; a row group is never cut."""
_AT_ONCE = 8
_CHUNK = 1 << 20
_HIDDEN = ("_", ".")
_LOCAL = {"file", "local"}
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss", "memory"}
_STAMPS = ("mtime", "LastModified", "last_modified", "updated", "modify", "created")


@dataclass(frozen=True)
class InputEntry:
    """An input file with its size and time when the run was planned."""

    url: str
    name: str
    size: int
    stamp: str
    """Time of its last change in its file system, or empty. Never a checksum: an unsalted digest in a manifest next to
    the released vectors would confirm a guess of the contents."""


@dataclass(frozen=True)
class Part:
    """Rows of one input that become one output.

    Attributes:
        index: position among all parts, from 0.
        start: first row group (Parquet) or row (.npy); 0 for a whole file.
        stop: end of the row groups or rows; None for a whole file of texts.
        rows: number of rows, None if unknown before reading.
    """

    index: int
    input: InputEntry
    start: int
    stop: int | None
    rows: int | None

    @property
    def output(self) -> str:
        return self.output_of(self.index)

    @staticmethod
    def output_of(index: int) -> str:
        return f"part-{index:06d}.parquet"

    def to_record(self) -> dict[str, Any]:
        """Return the part for the manifest, without the folders of its input."""
        about = asdict(self.input)
        return {
            "index": self.index,
            "output": self.output,
            "input": {key: about[key] for key in ("name", "size", "stamp")},
            "start": self.start,
            "stop": self.stop,
            "planned_rows": self.rows,
        }


@dataclass(frozen=True)
class PartResult:
    """A finished part; without rows it has no file."""

    index: int
    rows: int
    bytes: int
    sha256: str

    @classmethod
    def of(cls, index: int, rows: int, file: BinaryIO | None) -> PartResult:
        """Return the result of a part from its file, open for reading; None for a part without rows."""
        digest, size = hashlib.sha256(), 0
        while chunk := file.read(_CHUNK) if file is not None else b"":
            digest.update(chunk)
            size += len(chunk)
        return cls(index, rows, size, digest.hexdigest())


def list_files(inputs: Sequence[str], options: Mapping[str, Any], *, format: str | None = None) -> list[InputEntry]:
    """Return the files of paths, URLs, folders and patterns, each once and in order.

    Folders and patterns skip names that begin with ``_`` or ``.``, and other formats.
    """
    files: dict[str, InputEntry] = {}
    for entry in inputs:
        with _reached(entry, options) as (fs, path):
            paths = _matching(fs, path, format)
            for each in paths:
                info = fs.info(each)
                url = each if _speaks(fs, _LOCAL) else cast(str, fs.unstrip_protocol(each))
                files[url] = InputEntry(url, os.path.basename(each), *_size_and_stamp(info))
        if not paths:
            raise DataFileError(
                f"{_short(entry)!r} names no file. Names that begin with _ or . are left out.", param="input"
            )
    if format is None:
        for file in files.values():
            format_of(file.name)
    return list(files.values())


def unchanged(file: InputEntry, options: Mapping[str, Any]) -> bool:
    """Return whether size and time of the file match the plan."""
    with _reached(file.url, options) as (fs, path):
        if not _speaks(fs, _LOCAL):
            fs.invalidate_cache(path)
        return _size_and_stamp(fs.info(path)) == (file.size, file.stamp)


def open_input(file: InputEntry, options: Mapping[str, Any], *, format: str | None = None) -> InputFile:
    fs, path = _filesystem(file.url, options)
    format, zipped = format_of(file.name) if format is None else (format, False)
    return input_file(file.name, format, partial(_open, fs, path), zipped=zipped)


def plan(
    inputs: Sequence[str],
    options: Mapping[str, Any] | None = None,
    *,
    part_bytes: int = PART_BYTES,
    format: str | None = None,
    out: Folder | None = None,
) -> list[Part]:
    """Return the parts of ``inputs`` (paths, URLs, folders, patterns), in the order of the files.

    Files without rows are skipped; a text file with a header alone shows only when it is read.

    Args:
        part_bytes: size of a part, before compression.
        format: of all files; None goes by their suffixes.
        out: the output; its files are never inputs.

    Raises:
        DataFileError: a file is missing, damaged or of a different format.
    """
    part_bytes = check_count(part_bytes, owner="protect", param="part_bytes")
    options = options or {}
    files = [file for file in list_files(inputs, options, format=format) if out is None or not out.holds(file.url)]

    def pieces(file: InputEntry) -> list[tuple[int, int | None, int | None]]:
        try:
            return _pieces(open_input(file, options, format=format), part_bytes)
        except NoRowsError:  # common in folders that parallel programs write
            return []

    parts: list[Part] = []
    # Threads: in a remote store the time goes into round trips.
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="vecveil-plan") as threads:
        for file, cuts in zip(files, threads.map(pieces, files), strict=True):
            for start, stop, rows in cuts:
                parts.append(Part(len(parts), file, start, stop, rows))
    return parts


def _pieces(file: InputFile, part_bytes: int) -> list[tuple[int, int | None, int | None]]:
    """Return (start, stop, rows) of each part: row groups of Parquet, rows of .npy, a whole file of texts."""
    if file.format == "npy":
        npy = NpySource(file)
        step = max(1, part_bytes // npy.row_bytes)
        return [(i, min(i + step, npy.rows), min(step, npy.rows - i)) for i in range(0, npy.rows, step)]
    if file.format != "parquet":
        return [(0, None, None)]
    parquet = ParquetSource(file)
    pieces: list[tuple[int, int | None, int | None]] = []
    start = rows = size = 0
    for i, (count, bytes_) in enumerate(zip(parquet.row_groups, parquet.group_bytes, strict=True)):
        if rows and size + bytes_ > part_bytes:
            pieces.append((start, i, rows))
            start, rows, size = i, 0, 0
        rows, size = rows + count, size + bytes_
    return [*pieces, (start, len(parquet.row_groups), rows)] if rows else pieces


@dataclass(frozen=True)
class Folder:
    """An output folder (path or URL, fsspec options). A file appears in it whole or not at all."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def _reached(self, kind: type[DataFileError] = DataFileError) -> contextlib.AbstractContextManager[tuple[Any, str]]:
        return _reached(self.url, self.options, kind)

    @property
    def local(self) -> Path | None:
        """The path of a local folder, else None."""
        fs, path = _filesystem(self.url, self.options)
        return Path(path) if _speaks(fs, _LOCAL) else None

    def sizes(self) -> dict[str, int]:
        """Return file names, in order, with their bytes; nothing for a missing folder."""
        with self._reached() as (fs, path):
            fs.invalidate_cache(path)
            infos = fs.ls(path, detail=True) if fs.isdir(path) else []
            return dict(sorted((os.path.basename(i["name"].rstrip("/")), int(i["size"] or 0)) for i in infos))

    def remove(self, name: str) -> None:
        with self._reached() as (fs, path):
            fs.rm_file(f"{path}/{name}")

    def has(self, name: str) -> bool:
        with self._reached() as (fs, path):
            if not _speaks(fs, _LOCAL):
                fs.invalidate_cache(path)
            return bool(fs.exists(f"{path}/{name}"))

    def holds(self, url: str) -> bool:
        """Return whether a file is inside the folder, at any depth."""
        fs, path = _filesystem(self.url, self.options)
        other, inside = _filesystem(url, self.options)
        return type(fs) is type(other) and inside.startswith(path.rstrip("/") + "/")

    def read(self, name: str, most: int) -> bytes:
        with self._reached() as (fs, path):
            return bytes(fs.cat_file(f"{path}/{name}", end=most))

    def open(self, name: str) -> BinaryIO:
        with self._reached() as (fs, path):
            return _open(fs, f"{path}/{name}")

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a new local path; the file written there becomes the file ``name``.

        In a local folder that is the file itself, which the caller writes atomically. Otherwise it is uploaded at the
        end, unless the block raises.
        """
        if self.local is not None:
            self.local.mkdir(parents=True, exist_ok=True)
            yield self.local / name
            return
        with tempfile.TemporaryDirectory(prefix="vecveil-") as scratch:
            draft = Path(scratch) / name
            yield draft
            with self._reached(NotWrittenError) as (fs, path):
                fs.makedirs(path, exist_ok=True)
                if _speaks(fs, _OBJECT_STORES):  # an object appears once it is complete
                    fs.put_file(str(draft), f"{path}/{name}")
                    return
                temporary = f"{path}/{temporary_name(name)}"
                fs.put_file(str(draft), temporary)
                if fs.exists(f"{path}/{name}"):  # not every file system renames onto a file
                    fs.rm_file(f"{path}/{name}")
                fs.mv(temporary, f"{path}/{name}")


# File systems ------------------------------------------------------------------------------------


def _filesystem(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    with optional_import("Protecting files into a folder", "fsspec", "files"):
        import fsspec
    if "::" in url or "\0" in url:
        raise DataFileError("Give a path or a plain URL, not a chained one.", param="input")
    protocol = f"{url.split(':')[0]}:"
    try:
        fs, path = fsspec.core.url_to_fs(url, **dict(options))
    except ImportError as error:  # fsspec names the package that speaks this protocol
        raise DataFileError(f"{protocol} needs a package that is not installed: {error}.", param="input") from None
    except ValueError:
        raise DataFileError(f"fsspec knows no file system {protocol}", param="input") from None
    return fs, cast(str, path).rstrip("/") or "/"


def _speaks(fs: Any, protocols: set[str]) -> bool:
    names = fs.protocol if isinstance(fs.protocol, tuple | list) else (fs.protocol,)
    return bool(protocols & set(names))


def _size_and_stamp(info: Mapping[str, Any]) -> tuple[int, str]:
    stamp = next((str(info[name]) for name in _STAMPS if info.get(name) is not None), "")
    return int(info["size"] or 0), stamp


def _matching(fs: Any, path: str, format: str | None) -> list[str]:
    pattern = any(letter in path for letter in "*?[") and not fs.isfile(path)
    if not pattern and not fs.isdir(path):
        fs.info(path)  # raises where there is none
        return [path]
    # The user wrote the names before the first pattern, so hidden ones among them are intended.
    before = path[: min((path.find(c) for c in "*?[" if c in path), default=len(path))]
    stem = before[: before.rfind("/") + 1] if before != path else path
    return [
        name
        for name in sorted(fs.glob(path) if pattern else fs.find(path))
        if not any(part.startswith(_HIDDEN) for part in name[len(stem) :].split("/"))
        and fs.isfile(name)
        and (format is not None or _known(name))
    ]


def _known(name: str) -> bool:
    try:
        format_of(os.path.basename(name))
    except InvalidInputError:
        return False
    return True


def _open(fs: Any, path: str) -> BinaryIO:
    if _speaks(fs, _LOCAL):
        return open(path, "rb")
    try:
        # Files of object stores have no read1, and read whole lines only.
        return io.BufferedReader(fs.open(path, "rb", block_size=2**23))
    except OSError:
        raise
    except Exception as error:  # clients of stores raise their own classes
        raise OSError(type(error).__name__) from None


def _short(url: str) -> str:
    """Return the last part of a URL, without passwords and signatures."""
    return url.split("?")[0].rstrip("/").rsplit("/", 1)[-1][:80]


@contextlib.contextmanager
def _reached(
    url: str, options: Mapping[str, Any], kind: type[DataFileError] = DataFileError
) -> Iterator[tuple[Any, str]]:
    """Yield file system and path; turn exceptions of a store's client into one error: theirs may quote credentials."""
    fix = ""
    try:
        yield _filesystem(url, options)
        return
    except VecveilError:
        raise
    except FileNotFoundError:
        raise kind(f"File not found: {_short(url)!r}.", param="input") from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
    except Exception as error:
        reason = type(error).__name__
        fix = " Check the address and the credentials that fsspec finds."
    raise kind(f"Cannot reach {_short(url)!r}: {reason}.{fix}", param="path") from None
