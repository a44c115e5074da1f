"""Lines of a text file, decoded strictly; a wrong byte is reported with its line and offset.

Memory is bounded by the longest line allowed, whatever the file holds.
"""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

from vecveil.data.formats import InputFile, not_usable, readable
from vecveil.errors import DataFileError, InvalidInputError, message

__all__ = ["LONGEST", "check_encoding", "in_groups", "read_lines"]

LONGEST = 1 << 24
"""Characters that one line, or one quoted field, may have."""

GROUP_CHARACTERS = 1 << 25
"""Characters after which a group of rows ends, even if it has fewer rows than asked."""

T = TypeVar("T")


def check_encoding(encoding: str) -> str:
    """Return the codec for ``encoding``; UTF-8 also takes a byte order mark."""
    try:
        codec = codecs.lookup(encoding)
        "".encode(codec.name)
    except (LookupError, TypeError, ValueError):
        raise InvalidInputError(
            message(
                "read_table",
                "encoding",
                "the name of a text encoding such as utf-8 or latin1",
                "an unknown name",
            )
        ) from None
    return "utf-8-sig" if codec.name == "utf-8" else codec.name


def read_lines(file: InputFile, encoding: str, newline: str | None = "") -> Iterator[str]:
    """Yield the lines of ``file`` with their ends; ``newline`` as in :class:`io.TextIOWrapper`."""
    codec = check_encoding(encoding)
    with (
        _Counted(file) as source,
        io.TextIOWrapper(
            cast(Any, source), encoding=codec, errors="strict", newline=newline
        ) as text,
    ):
        number = 0
        while True:
            try:
                line = text.readline(LONGEST + 1)
            except UnicodeError as error:
                raise source.wrong_bytes(error, encoding) from None
            if not line:
                return
            number += 1
            if len(line) > LONGEST:
                raise not_usable(
                    file.name,
                    f"lines of at most {LONGEST} characters",
                    f"a longer one at line {number}",
                    fix="Check that the file has the format that its name says.",
                )
            yield line.removeprefix("\ufeff") if number == 1 else line


def in_groups(rows: Iterable[T], count: int, size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield lists of at most ``count`` rows, shorter ones where rows are very long."""
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


class _Counted(io.BufferedIOBase):
    """The bytes of a file; knows how many were taken, so that a wrong one can be located."""

    def __init__(self, file: InputFile) -> None:
        self._name = file.name
        self._offset = 0
        self._line_ends = 0
        self._head = b""
        with readable(file.name):
            self._raw = file.open()

    def readable(self) -> bool:
        return True

    def read1(self, size: int = -1) -> bytes:
        with readable(self._name):
            try:
                block: bytes = self._raw.read1(size)  # type: ignore[attr-defined]
            except (EOFError, zlib.error, gzip.BadGzipFile):
                raise not_usable(
                    self._name,
                    "a whole gzip file",
                    "a truncated or damaged one",
                    fix="Copy or compress it again.",
                ) from None
        self._head = self._head or block[:2]
        self._offset += len(block)
        self._line_ends += block.count(b"\n")
        return block

    def wrong_bytes(self, error: UnicodeError, encoding: str) -> DataFileError:
        """Return the error for bytes that ``encoding`` does not allow, with line and offset."""
        utf16 = self._head in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) and "16" not in encoding
        where = ""
        if isinstance(error, UnicodeDecodeError):
            rest = bytes(error.object)[error.start :]
            line = self._line_ends - rest.count(b"\n") + 1
            where = f" at line {line} (byte offset {self._offset - len(rest)})"
        if utf16:
            fix = "The file is UTF-16: pass --encoding utf-16 (encoding='utf-16')."
        else:
            fix = (
                "Convert it with iconv -f latin1 -t utf-8, or pass --encoding latin1 "
                "(encoding='latin1') if all of it is in that encoding."
            )
        return DataFileError(
            message(
                self._name,
                "encoding",
                "the encoding of the whole file",
                f"bytes that are not {encoding}{where}",
                fix=fix,
            )
        )

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()
