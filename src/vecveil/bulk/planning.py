"""How inputs are cut into parts: row groups of Parquet, rows of .npy, whole files of the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from vecveil.bulk.places import Folder, Found, found_files, open_input
from vecveil.data.formats import InputFile, NoRowsError
from vecveil.data.npy import NpySource
from vecveil.data.parquet import ParquetSource
from vecveil.data.sources import Source
from vecveil.validation import check_count

__all__ = ["PART_BYTES", "Part", "plan", "source_of"]

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
