"""Open input files: format by suffix, gzip, pipes, and strictly decoded lines.

Text formats may be gzipped. Standard input (``-``) and pipes hold text formats and are read into memory, because
the readers pass over a text file twice. No error message contains a line of a file.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, BinaryIO, TypeVar, cast

from vecveil.errors import DataFileError, InvalidInputError, unknown_name
from vecveil.io import expanded, likely_encoding, warn_of_controls

T = TypeVar("T")

INPUT_SUFFIXES: dict[str, tuple[str, ...]] = {
    "csv": (".csv",),
    "tsv": (".tsv", ".tab"),
    "jsonl": (".jsonl", ".ndjson"),
    "txt": (".txt",),
    "parquet": (".parquet", ".pq"),
    "npy": (".npy",),
}
TEXT_FORMATS = ("csv", "tsv", "jsonl", "txt")
PIPE_LIMIT = 1 << 30
# A gzip file may expand to UNZIPPED_FREELY bytes, beyond that to UNZIPPED_RATIO times its size: texts compress 3 to
# 20 times, a planted file up to 1,000 times.
UNZIPPED_FREELY = 1 << 28
UNZIPPED_RATIO = 200
LONGEST = 1 << 24
"""Most characters of a line or of a quoted field."""
_HEAD = 4096  # bytes from which an encoding is guessed
_WIDE = ("utf-16", "utf-32")
GROUP_CHARACTERS = 1 << 25
"""Characters that end a group of rows, even below the requested number of rows."""

_BINARY_FORMATS = {b"PAR1": "parquet", b"\x93NUMPY": "npy"}
_CSV = "Save the table as CSV (UTF-8)."
_NO_TABLES = {
    b"PK\x03\x04": ("a zip archive or a spreadsheet", _CSV),
    b"\xd0\xcf\x11\xe0": ("a file of an older Excel or Word", _CSV),
    b"%PDF-": ("a PDF document", _CSV),
    b"{\\rtf": ("a document of a word processor (RTF)", _CSV),
    b"SQLite format 3": ("a SQLite database", _CSV),
    b"\x89PNG": ("an image", _CSV),
    b"\xff\xd8\xff": ("an image", _CSV),
    b"\x89HDF": ("an HDF5 file", _CSV),
    b"ARROW1\0\0": ("an Arrow or Feather file", "Save it as Parquet."),
    b"Obj\x01": ("an Avro file", "Save it as Parquet."),
    b"7z\xbc\xaf": ("a 7z archive", "Unpack it."),
    **dict.fromkeys(
        (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"),
        ("a Python pickle", f"{_CSV} Save vectors with numpy.save."),
    ),
    b"BZh": ("compressed with bzip2", "Decompress it."),
    b"\xfd7zXZ": ("compressed with xz", "Decompress it."),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", "Decompress it."),
}
_FIXES = {
    ".json": "If each line is one JSON object, give format='jsonl' (--format jsonl).",
    ".npz": "Save the array that you need with numpy.save.",
    ".xlsx": "Save the sheet as CSV (UTF-8).",
    ".xls": "Save the sheet as CSV (UTF-8).",
}


class NoRowsError(DataFileError):
    """A readable file without rows, such as a header alone. Runs over many files skip it."""


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn an OSError inside the block into a DataFileError."""
    try:
        yield
    except FileNotFoundError:
        raise DataFileError(f"File not found: {name}.", param="path") from None
    except PermissionError:
        raise DataFileError(f"You may not read {name}. Check its permissions.", param="path") from None
    except IsADirectoryError:
        raise DataFileError(f"{name} is a folder. Name a file inside it.", param="path") from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise DataFileError(f"Reading {name} failed: {reason}.", param="path") from None


@dataclass(frozen=True, slots=True)
class InputFile:
    """An existing, readable file: name for messages, format and opener."""

    name: str
    format: str
    opener: Callable[[], IO[bytes]] = field(repr=False)
    compressed: bool = False

    def open(self) -> BinaryIO:
        """Return the decompressed bytes of the file from the start."""
        raw = cast(BinaryIO, self.opener())
        return cast(BinaryIO, _Unzipped(raw, self.name)) if self.compressed else raw


class _Unzipped(gzip.GzipFile):
    """A gzip reader that also closes the raw file and rejects data that expands too far."""

    def __init__(self, raw: BinaryIO, name: str) -> None:
        self._raw, self._name, self._expanded = raw, name, 0
        super().__init__(fileobj=raw, mode="rb")

    def read1(self, size: int = -1) -> bytes:
        # read_lines reads through read1 alone, so this counts every byte.
        block = super().read1(size)
        self._expanded += len(block)
        if self._expanded > max(UNZIPPED_FREELY, UNZIPPED_RATIO * self._raw.tell()):
            raise DataFileError(
                f"{self._name} expands to more than {UNZIPPED_RATIO} times its size. If you trust it, decompress "
                "it first.",
                param="path",
            )
        return block

    def close(self) -> None:
        super().close()
        self._raw.close()


def find_input(path: str | os.PathLike[str], format: str | None = None) -> InputFile:
    """Return the file at ``path`` (``-``: standard input) with its format, checked to exist and not to be empty.

    ``format`` is csv, tsv, jsonl, txt, parquet or npy; None goes by the suffix (``-``: txt).

    Raises:
        DataFileError: missing, a folder, not readable, empty, or of a different format.
    """
    if format is not None and format not in INPUT_SUFFIXES:
        raise unknown_name("read_table", "format", INPUT_SUFFIXES, format)
    if os.fspath(path) == "-":
        return _pipe("standard input", None, format or "txt")
    path = expanded(path)
    if "\0" in str(path):
        raise DataFileError("A path cannot have a null character.", param="path")
    with readable(path.name):
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError
    by_suffix, zipped = _by_suffix(path)
    format = format or by_suffix
    if format is None:
        raise _unknown_suffix(path)
    if not stat.S_ISREG(mode):
        return _pipe(path.name, path, format)
    return input_file(path.name, format, lambda: open(path, "rb"), zipped=zipped)


def input_file(name: str, format: str, opener: Callable[[], IO[bytes]], *, zipped: bool = False) -> InputFile:
    """Return a local or remote file after checking its first bytes; ``opener`` gives it with random access."""
    with readable(name), opener() as file:
        head = file.read(256)
    return InputFile(name, format, opener, _check_head(name, format, head, zipped))


def format_of(name: str) -> tuple[str, bool]:
    """Return the format of a file name and True for gzip; raise InvalidInputError for an unknown suffix."""
    format, zipped = _by_suffix(Path(name))
    if format is None:
        raise _unknown_suffix(Path(name))
    return format, zipped


def _by_suffix(path: Path) -> tuple[str | None, bool]:
    zipped = path.suffix.lower() == ".gz"
    suffix = Path(path.stem).suffix.lower() if zipped else path.suffix.lower()
    for name, suffixes in INPUT_SUFFIXES.items():
        if suffix in suffixes and not (zipped and name not in TEXT_FORMATS):
            return name, zipped
    return None, zipped


def _unknown_suffix(path: Path) -> InvalidInputError:
    known = ", ".join(f"*{suffix}" for suffixes in INPUT_SUFFIXES.values() for suffix in suffixes)
    got = f"the suffix {path.suffix!r}" if path.suffix else "no suffix"
    fix = _FIXES.get(path.suffix.lower(), "Rename it, or name the format: format= (--format).")
    return InvalidInputError(f"{path.name} has {got}; a table is named {known} (text also .gz). {fix}", param="path")


def _pipe(name: str, path: Path | None, format: str) -> InputFile:
    if format not in TEXT_FORMATS:
        raise InvalidInputError(
            f"{format} needs random access, which a pipe does not have. Save it to a file first, or use "
            f"{', '.join(TEXT_FORMATS)}.",
            param="format",
        )
    with readable(name):
        if path is None:
            # One byte more than allowed shows that the pipe is too long.
            content = sys.stdin.buffer.read(PIPE_LIMIT + 1)
        else:
            with open(path, "rb") as file:
                content = file.read(PIPE_LIMIT + 1)
    if len(content) > PIPE_LIMIT:
        raise DataFileError(f"{name} has more than 1 GiB. Save it to a file first.", param="path")
    return input_file(name, format, partial(io.BytesIO, content))


def _check_head(name: str, format: str, head: bytes, zipped: bool) -> bool:
    """Return whether the first bytes are gzip's; raise DataFileError for a different format."""
    binary = format in _BINARY_FORMATS.values()
    if not head:
        raise (DataFileError if binary else NoRowsError)(f"{name} is empty.", param="path")
    actual = next((kind for magic, kind in _BINARY_FORMATS.items() if head.startswith(magic)), None)
    if actual is not None and actual != format:
        raise DataFileError(f"{name} is a {actual} file. Give format={actual!r} (--format {actual}).", param="path")
    # Under a text suffix these would only give a decoding error later, which sends the user after encodings.
    what, fix = next((other for magic, other in _NO_TABLES.items() if head.startswith(magic)), ("", ""))
    if what and b".npy" in head[30:]:  # the first name in the archive
        what, fix = "a NumPy archive (.npz)", "Save the array that you need with numpy.save."
    if what:
        raise DataFileError(f"{name} is {what}. {fix}", param="path")
    if binary and actual is None:
        kind, fix = ("a .npy file", " Write it with numpy.save.") if format == "npy" else ("a Parquet file", "")
        raise DataFileError(f"{name} is not {kind}.{fix}", param="path")
    compressed = head.startswith(b"\x1f\x8b")
    if zipped and not compressed:
        raise DataFileError(f"{name} is not compressed. Drop .gz from its name.", param="path")
    return compressed


# Lines ---------------------------------------------------------------------------------------


def check_encoding(encoding: str) -> str:
    """Return the codec for ``encoding``; UTF-8 also accepts a byte order mark."""
    try:
        codec = codecs.lookup(encoding)
        # Codecs such as hex and zip exist but do not encode text.
        "".encode(codec.name)
    except (LookupError, TypeError, ValueError):
        raise InvalidInputError(
            "`encoding` names no text encoding such as utf-8 or latin1.", param="encoding"
        ) from None
    return "utf-8-sig" if codec.name == "utf-8" else codec.name


def read_lines(file: InputFile, encoding: str, newline: str | None = "") -> Generator[str, None, None]:
    """Yield the lines of ``file`` with their ends; ``newline`` as in :class:`io.TextIOWrapper`.

    Memory is bounded by LONGEST for any file.

    Raises:
        DataFileError: invalid bytes for the encoding (with line and offset), or too long a line.
    """
    codec = check_encoding(encoding)
    number, warned = 0, False
    with readable(file.name), file.open() as raw:
        try:
            likely = likely_encoding(raw.read(_HEAD))
            raw.seek(0)
            # Bytes of UTF-16 are valid in most other encodings.
            if likely is not None and likely.startswith(_WIDE) and not codec.startswith(_WIDE):
                raise _wrong_encoding(f"{file.name} is {likely}.", likely)
            text = io.TextIOWrapper(raw, codec, newline=newline)
            while line := text.readline(LONGEST + 1):
                number += 1
                warned = warned or warn_of_controls(line, file.name)
                if len(line) > LONGEST:
                    raise DataFileError(
                        f"Line {number} of {file.name} has more than {LONGEST} characters. Check that the file has "
                        "the format that its name says.",
                        param="path",
                    )
                # Encodings other than utf-8-sig keep the byte order mark as a character.
                yield line.removeprefix("\ufeff") if number == 1 else line
        except UnicodeError:
            raise _wrong_bytes(file, codec, encoding, likely) from None
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise DataFileError(
                f"{file.name} is a truncated or damaged gzip file. Copy or compress it again.", param="path"
            ) from None


def _wrong_bytes(file: InputFile, codec: str, encoding: str, likely: str | None) -> DataFileError:
    """Return the error for a file with bytes invalid in ``codec``, after reading it again for the first of them."""
    decoder, offset, number, where = codecs.getincrementaldecoder(codec)(), 0, 1, ""
    with readable(file.name), file.open() as raw:
        for line in chain(iter(partial(raw.readline, LONGEST), b""), [b""]):
            offset += len(line)
            try:
                decoder.decode(line, final=not line)
            except UnicodeDecodeError as error:
                where = f" at line {number} (byte offset {offset - len(error.object) + error.start})"
                if likely in ("utf-8", "utf-8-sig"):  # the head may be ASCII
                    likely = likely_encoding(error.object)
                break
            except UnicodeError:
                break
            number += line.endswith(b"\n")
    same = likely is not None and codecs.lookup(likely) == codecs.lookup(encoding)
    return _wrong_encoding(f"{file.name} is not {encoding}{where}.", None if same else likely)


def _wrong_encoding(sentence: str, likely: str | None) -> DataFileError:
    fix = f"Pass --encoding {likely} (encoding={likely!r}), or convert it with iconv -f {likely} -t utf-8."
    if likely is None:
        fix = "Find out its encoding and pass it: --encoding (encoding=), or convert the file to UTF-8 with iconv."
    return DataFileError(f"{sentence} {fix}", param="encoding")


def in_groups(rows: Iterable[T], count: int, size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield lists of at most ``count`` rows, fewer where rows are very long."""
    group: list[T] = []
    characters = 0
    for row in rows:
        group.append(row)
        characters += size(row)
        if len(group) >= count or characters >= GROUP_CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group
