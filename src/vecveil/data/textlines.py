"""Plain text: each line is one text, in the column ``text``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vecveil.data.formats import InputFile
from vecveil.data.lines import in_groups, read_lines
from vecveil.data.sources import Batch, Source, check_rows

__all__ = ["TextLinesSource"]


class TextLinesSource(Source):
    """Lines of text. A blank line is an empty text, so that row i is always line i."""

    def __init__(self, file: InputFile, encoding: str) -> None:
        self.name, self.format, self.metadata = file.name, file.format, {}
        self._file, self._encoding = file, encoding
        self.types = {"text": "string"}
        self.rows = sum(1 for _ in self._texts())
        check_rows(self.name, self.rows)

    def batches(self, columns: Sequence[str], chunk_rows: int) -> Iterator[tuple[int, Batch]]:
        for group in in_groups(self._texts(), chunk_rows, len):
            yield len(group), dict.fromkeys(columns, group)

    def _texts(self) -> Iterator[str]:
        for line in read_lines(self._file, self._encoding, newline=None):
            yield line.removesuffix("\n")
