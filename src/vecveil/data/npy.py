"""Vectors from a .npy file, read in pieces.

The file is not mapped: mapped pages count as memory of the process, and a mapped file that shrinks kills it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np

from vecveil.data.columns import WIDEST, ColumnBatch, TableSource, check_rows
from vecveil.data.files import InputFile, readable
from vecveil.errors import DataFileError
from vecveil.types import Embeddings


class NpySource(TableSource):
    """A two-dimensional array of float32, float64 or float16 (read as float32), in either order."""

    def __init__(self, file: InputFile, span: tuple[int, int] | None = None) -> None:
        """Read the header; ``span`` is (first row, end), None all rows."""
        self.name, self.format, self.metadata = file.name, file.format, {}
        self.types = {"embedding": "vector"}
        self._open = file.opener
        with readable(self.name), self._open() as opened:
            shape, self._by_column, self._dtype = self._header(opened)
            self._start = opened.tell()
            size = opened.seek(0, 2)
        if self._dtype.kind != "f" or self._dtype.itemsize not in (2, 4, 8):
            raise self._unfit(f"dtype {self._dtype}; vectors are float32. Convert it with .astype(numpy.float32).")
        if len(shape) != 2 or min(shape) < 0:
            raise self._unfit(f"shape {shape} instead of (N, n).")
        check_rows(self.name, shape[0])
        if shape[1] == 0:
            raise self._unfit(f"shape {shape}; n is at least 1.")
        # Rows are read whole, and a sparse file may declare any length.
        if shape[1] > WIDEST:
            raise self._unfit(f"shape {shape}; n is at most {WIDEST:,}.")
        self._all, self.dimension = shape
        self.first_row, stop = (0, self._all) if span is None else span
        self.rows = stop - self.first_row
        needed = self._start + self._all * self.row_bytes
        if size < needed:
            raise DataFileError(
                f"{self.name} is truncated: it has {size} of {needed} bytes. Copy or write it again.", param="path"
            )

    @property
    def row_bytes(self) -> int:
        return self.dimension * self._dtype.itemsize

    def batches(self, columns: Sequence[str], chunk_rows: int) -> Iterator[tuple[int, ColumnBatch]]:
        with readable(self.name), self._open() as file:
            for start in range(0, self.rows, chunk_rows):
                count = min(chunk_rows, self.rows - start)
                first = self.first_row + start
                yield count, {name: self._piece(file, first, count) for name in columns}

    def _piece(self, file: IO[bytes], start: int, count: int) -> Embeddings:
        if not self._by_column:
            piece = np.empty((count, self.dimension), self._dtype)
            self._fill(file, piece, start * self.dimension)
        else:
            # Fortran order stores a column of the array contiguously: one seek per dimension.
            piece = np.empty((self.dimension, count), self._dtype)
            for column in range(self.dimension):
                self._fill(file, piece[column], column * self._all + start)
            piece = np.ascontiguousarray(piece.T)
        # Files of other machines may have the other byte order.
        dtype = np.float32 if self._dtype.itemsize == 2 else self._dtype.newbyteorder("=")
        return piece.astype(dtype, copy=False)

    def _fill(self, file: IO[bytes], piece: np.ndarray, position: int) -> None:
        file.seek(self._start + position * self._dtype.itemsize)
        if file.readinto(piece.reshape(-1).view(np.uint8).data) != piece.nbytes:  # type: ignore[attr-defined]
            raise DataFileError(f"{self.name} got shorter while it was read.", param="path")

    def _header(self, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if np.lib.format.read_magic(file) == (1, 0):
                    return np.lib.format.read_array_header_1_0(file)
                return np.lib.format.read_array_header_2_0(file)
        except Exception:  # the header is Python source: a damaged one fails in any way
            raise DataFileError(
                f"{self.name} has a damaged .npy header. Write it again with numpy.save.", param="path"
            ) from None

    def _unfit(self, got: str) -> DataFileError:
        return DataFileError(f"{self.name} has {got}", param="embeddings")
