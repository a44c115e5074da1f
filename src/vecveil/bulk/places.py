"""Find input files by path or URL and cut them into parts."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from vecveil.data.columns import Source
from vecveil.data.files import InputFile, NoRowsError, format_of, input_file
from vecveil.data.npy import NpySource
from vecveil.data.parquet import ParquetSource
from vecveil.data.writing import NotWrittenError
from vecveil.errors import DataFileError, MissingDependencyError, VecveilError
from vecveil.io import temporary_name
from vecveil.validation import check_count

__all__ = [
    "PART_BYTES",
    "Folder",
    "Found",
    "Part",
    "found_files",
    "open_input",
    "plan",
    "source_of",
    "unchanged",
]

_HIDDEN = ("_", ".")


@dataclass(frozen=True)
class Found:
    """A file as it was when the run was planned."""

    url: str
    name: str
    size: int
    stamp: str
    """When it was changed, as its file system says; empty if that does not say. Never a tag of its contents: that may
    be an unsalted digest, and the manifest, which lies beside released vectors, would confirm a guess."""


def found_files(
    inputs: Sequence[str], options: Mapping[str, Any], *, format: str | None = None
) -> list[Found]:
    """Return the files that paths, URLs, folders and patterns name, each once and in order.

    In folders and patterns, names that begin with ``_`` or ``.`` are left out, as are other formats.

    Raises:
        DataFileError: one of the inputs names no file, or cannot be reached.
    """
    found: dict[str, Found] = {}
    for one in inputs:
        fs, path = _filesystem(one, options)
        with _explained(one):
            chosen = _chosen(fs, path, format)
            for each in chosen:
                info = fs.info(each)
                url = cast(str, fs.unstrip_protocol(each)) if not _is_local(fs) else each
                stamp = _stamp(info)
                found[url] = Found(url, os.path.basename(each), int(info["size"] or 0), stamp)
        if not chosen:
            raise DataFileError.of("protect", "input", "files that are there",
                                   f"{_short(one)!r}, which names none",
                                   "Names that begin with _ or . are left out.")  # fmt: skip
    for file in found.values():
        if format is None:
            format_of(file.name)
    return list(found.values())


def unchanged(found: Found, options: Mapping[str, Any]) -> bool:
    """Return whether the file is as it was when the run was planned, as far as its file system tells."""
    fs, path = _filesystem(found.url, options)
    with _explained(found.url):
        if not _is_local(fs):
            fs.invalidate_cache(path)
        info = fs.info(path)
    return (int(info["size"] or 0), _stamp(info)) == (found.size, found.stamp)


def _stamp(info: Mapping[str, Any]) -> str:
    names = ("mtime", "LastModified", "last_modified", "updated", "modify", "created")
    return next((str(info[name]) for name in names if info.get(name) is not None), "")


def _chosen(fs: Any, path: str, format: str | None) -> list[str]:
    if any(letter in path for letter in "*?[") and not fs.isfile(path):
        names = sorted(fs.glob(path))
    elif fs.isdir(path):
        names = sorted(fs.find(path))
    else:
        fs.info(path)  # raises where there is none
        return [path]
    return [
        name
        for name in names
        if not any(part.startswith(_HIDDEN) for part in name[len(_stem(path)) :].split("/"))
        and fs.isfile(name)
        and (format is not None or _known(name))
    ]


def _stem(path: str) -> str:
    """Return the folder in front of the first pattern; names inside it are the user's."""
    before = path[: min((path.find(c) for c in "*?[" if c in path), default=len(path))]
    return before[: before.rfind("/") + 1] if before != path else path


def _known(name: str) -> bool:
    try:
        format_of(os.path.basename(name))
    except VecveilError:
        return False
    return True


def open_input(found: Found, options: Mapping[str, Any], *, format: str | None = None) -> InputFile:
    """Return the file as the readers of tables take it."""
    fs, path = _filesystem(found.url, options)
    named, zipped = format_of(found.name) if format is None else (format, False)
    return input_file(found.name, named, partial(_open, fs, path), zipped=zipped)


def _open(fs: Any, path: str) -> BinaryIO:
    if _is_local(fs):
        return open(path, "rb")
    try:
        return cast(BinaryIO, fs.open(path, "rb", block_size=2**23))
    except OSError:
        raise
    except Exception as error:  # what a store's client raises
        raise OSError(type(error).__name__) from None


@dataclass(frozen=True)
class Folder:
    """Where output goes. A file appears in it whole or not at all.

    Args:
        url: a path or a URL.
        options: fsspec's, for the store.
    """

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def local(self) -> Path | None:
        """The path, if it is on this machine."""
        fs, path = _filesystem(self.url, self.options)
        return Path(path) if _is_local(fs) else None

    def sizes(self) -> dict[str, int]:
        """Return the names of what is in it, in order, with their bytes; nothing if there is no such folder."""
        fs, path = _filesystem(self.url, self.options)
        with _explained(self.url):
            fs.invalidate_cache(path)
            if not fs.isdir(path):
                return {}
            found = {
                os.path.basename(info["name"].rstrip("/")): int(info["size"] or 0)
                for info in fs.ls(path, detail=True)
            }
            return dict(sorted(found.items()))

    def remove(self, name: str) -> None:
        """Remove a file of it."""
        fs, path = _filesystem(self.url, self.options)
        with _explained(self.url):
            fs.rm_file(f"{path}/{name}")

    def has(self, name: str) -> bool:
        """Return whether there is a file of that name."""
        fs, path = _filesystem(self.url, self.options)
        with _explained(self.url):
            if not _is_local(fs):
                fs.invalidate_cache(path)
            return bool(fs.exists(f"{path}/{name}"))

    def holds(self, url: str) -> bool:
        """Return whether a file is inside it, at any depth."""
        fs, path = _filesystem(self.url, self.options)
        other, inside = _filesystem(url, self.options)
        return type(fs) is type(other) and inside.startswith(path.rstrip("/") + "/")

    def read(self, name: str, most: int) -> bytes:
        """Return the bytes of a small file, at most so many of them."""
        fs, path = _filesystem(self.url, self.options)
        with _explained(self.url):
            return bytes(fs.cat_file(f"{path}/{name}", end=most))

    def open(self, name: str) -> BinaryIO:
        """Return a file, opened for reading."""
        fs, path = _filesystem(self.url, self.options)
        with _explained(self.url):
            return _open(fs, f"{path}/{name}")

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a local path that does not exist yet; what is written there becomes the file ``name``.

        On this machine that is the file itself, which is written atomically by whoever writes it; elsewhere it is
        uploaded in the end, and nothing is if the block raises.
        """
        fs, path = _filesystem(self.url, self.options)
        if _is_local(fs):
            Path(path).mkdir(parents=True, exist_ok=True)
            yield Path(path) / name
            return
        with tempfile.TemporaryDirectory(prefix="vecveil-") as scratch:
            local = Path(scratch) / name
            yield local
            with _explained(self.url, NotWrittenError):
                fs.makedirs(path, exist_ok=True)
                # Stores of objects show an object when all of it is there; elsewhere a rename does that.
                if _is_object_store(fs):
                    fs.put_file(str(local), f"{path}/{name}")
                else:
                    temporary = f"{path}/{temporary_name(name)}"
                    fs.put_file(str(local), temporary)
                    if fs.exists(f"{path}/{name}"):  # not all of them rename onto a file
                        fs.rm_file(f"{path}/{name}")
                    fs.mv(temporary, f"{path}/{name}")


def _filesystem(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise MissingDependencyError("Protecting files into a folder", "fsspec", "files") from None
    if "::" in url or "\0" in url:
        raise DataFileError.of("protect", "input", "a path or a plain URL", "a chained one")
    try:
        fs, path = fsspec.core.url_to_fs(url, **dict(options))
    except ImportError as error:
        # fsspec names the package that speaks this protocol.
        raise DataFileError.of("protect", "input", "a URL whose protocol can be spoken here",
                               f"{url.split(':')[0]}:", fix=f"Install what speaks it: {error}.") from None  # fmt: skip
    except ValueError:
        raise DataFileError.of(
            "protect", "input", "a path or a URL that fsspec knows", f"{url.split(':')[0]}:"
        ) from None
    return fs, cast(str, path).rstrip("/") or "/"


def _is_local(fs: Any) -> bool:
    names = fs.protocol if isinstance(fs.protocol, tuple | list) else (fs.protocol,)
    return "file" in names or "local" in names


def _is_object_store(fs: Any) -> bool:
    names = fs.protocol if isinstance(fs.protocol, tuple | list) else (fs.protocol,)
    return bool(
        {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss", "memory"}
        & set(names)
    )


def _short(url: str) -> str:
    """Return the last part, without what may be a password or a signature."""
    return url.split("?")[0].rstrip("/").rsplit("/", 1)[-1][:80]


@contextlib.contextmanager
def _explained(url: str, kind: type[DataFileError] = DataFileError) -> Iterator[None]:
    """Turn what a store's client raises into one error; its own may quote credentials."""
    try:
        yield
    except (VecveilError, KeyboardInterrupt):
        raise
    except FileNotFoundError:
        raise kind.of(
            "protect", "input", "files that are there", f"{_short(url)!r}, where there is none"
        ) from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise kind.of(
            "protect", "path", "one that can be reached", f"{_short(url)!r}: {reason}"
        ) from None
    except Exception as error:
        raise kind.of("protect", "path", "one that can be reached", f"{_short(url)!r}: {type(error).__name__}",
                      fix="Check the address and the credentials that fsspec finds.") from None  # fmt: skip


PART_BYTES = 2**28
"""Bytes of a part before compression, about; a row group is never cut."""
_AT_ONCE = 8


@dataclass(frozen=True)
class Part:
    """Rows of one input that become one output.

    Attributes:
        index: its place among all, from 0.
        input: the file.
        start: first row group (Parquet) or row (.npy); 0 for a whole file.
        stop: the one behind the last; None for a whole file of texts.
        rows: how many, None if that is not known before they are read.
    """

    index: int
    input: Found
    start: int
    stop: int | None
    rows: int | None

    @property
    def output(self) -> str:
        """The name of its file."""
        return self.output_of(self.index)

    @staticmethod
    def output_of(index: int) -> str:
        """Return the name of the file of a part."""
        return f"part-{index:06d}.parquet"

    def to_record(self) -> dict[str, Any]:
        """Return the part as JSON values, its input without the folders it lies in."""
        about = asdict(self.input)
        return {
            "index": self.index,
            "output": self.output,
            "input": {key: about[key] for key in ("name", "size", "stamp")},
            "start": self.start,
            "stop": self.stop,
            "planned_rows": self.rows,
        }


def plan(
    inputs: Sequence[str],
    options: Mapping[str, Any] | None = None,
    *,
    part_bytes: int = PART_BYTES,
    format: str | None = None,
    out: Folder | None = None,
) -> list[Part]:
    """Return the parts of ``inputs``, in the order of the files.

    Args:
        inputs: paths, URLs, folders and patterns with ``*``.
        options: fsspec's, for the store they are in.
        part_bytes: of a part, before compression.
        format: of all files; None goes by their suffixes.
        out: the output; what lies in it is no input, even if it is inside a folder of inputs.

    Raises:
        DataFileError: a file is missing, damaged or of another format. One without rows is left out; of a text file
            with nothing but a header that is known when it is read.
    """
    part_bytes = check_count(part_bytes, owner="protect", param="part_bytes")
    files = [
        found
        for found in found_files(inputs, options or {}, format=format)
        if out is None or not out.holds(found.url)
    ]

    def pieces(found: Found) -> list[tuple[int, int | None, int | None]]:
        try:
            return _pieces(open_input(found, options or {}, format=format), part_bytes)
        except NoRowsError:  # what writes folders in parallel leaves such files
            return []

    parts: list[Part] = []
    # Headers of many files in a store far away: it is the way there that takes long.
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="vecveil-plan") as threads:
        for found, cut in zip(files, threads.map(pieces, files), strict=True):
            for start, stop, rows in cut:
                parts.append(Part(len(parts), found, start, stop, rows))
    return parts


def source_of(part: Part, file: InputFile) -> Source | None:
    """Return the reader's source of a part; None for whole files of texts."""
    if part.stop is None:
        return None
    if file.format == "parquet":
        return ParquetSource(file, range(part.start, part.stop))
    return NpySource(file, (part.start, part.stop))


def _pieces(file: InputFile, part_bytes: int) -> list[tuple[int, int | None, int | None]]:
    if file.format == "parquet":
        parquet = ParquetSource(file)
        pieces: list[tuple[int, int | None, int | None]] = []
        start = rows = size = 0
        last = len(parquet.row_groups) - 1
        for i, (count, bytes_) in enumerate(
            zip(parquet.row_groups, parquet.group_bytes, strict=True)
        ):
            rows, size = rows + count, size + bytes_
            following = parquet.group_bytes[i + 1] if i < last else part_bytes
            if size + following > part_bytes or i == last:
                if rows:
                    pieces.append((start, i + 1, rows))
                start, rows, size = i + 1, 0, 0
        return pieces
    if file.format == "npy":
        npy = NpySource(file)
        step = max(1, part_bytes // npy.row_bytes)
        return [
            (start, min(start + step, npy.rows), min(step, npy.rows - start))
            for start in range(0, npy.rows, step)
        ]
    return [(0, None, None)]
