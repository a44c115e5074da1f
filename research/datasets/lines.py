"""Lines and records of the text files that data sets are published in, which have no header."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from vecveil.data.files import LONGEST, find_input, not_usable, read_lines

__all__ = ["existing", "numbered_lines", "records"]


def numbered_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yield (number from 1, line without its end); only a line feed ends a line. Also .gz.

    Raises:
        DataFileError: the file is missing, empty, damaged or in another encoding.
    """
    lines = read_lines(find_input(path, "txt"), encoding, newline="\n")
    for number, line in enumerate(lines, start=1):
        yield number, line.rstrip("\r\n")


def records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (number from 1, fields) of a comma-separated file; quoted fields may hold line breaks.

    Nothing is held but one record. A header, if there is one, is the first record.
    """
    if csv.field_size_limit() < LONGEST:
        csv.field_size_limit(LONGEST)
    file = find_input(path, "csv")
    reader = csv.reader(read_lines(file, "utf-8"), strict=True)
    number = 0
    while True:
        try:
            record = next(reader, None)
        except csv.Error:
            raise not_usable(
                file.name, "a table with closed quotes", f"a wrong record {number + 1}"
            ) from None
        if record is None:
            return
        if record:
            number += 1
            yield number, record


def existing(folder: Path, *names: str) -> Path | None:
    """Return the first of the files ``names`` in ``folder`` that is there, also with .gz after it."""
    for name in names:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    return None
