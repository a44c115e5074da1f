"""Reads what the commands work on: texts with a concept's columns, vectors, encoders."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vecveil.errors import DataFileError

if TYPE_CHECKING:
    import numpy as np

    from vecveil.concepts import Concept
    from vecveil.data import TextRows
    from vecveil.encoders import TextEncoder

__all__ = [
    "TableFormat",
    "is_protected",
    "load_encoder_named",
    "read_array",
    "read_labels",
    "read_rows",
]


@dataclass(frozen=True)
class TableFormat:
    """How a table is to be read, as the user gave it; ``vars`` of it go to the readers."""

    text_column: str | None = None
    format: str | None = None
    encoding: str = "utf-8"
    delimiter: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Return the arguments of ``read_table`` without the text column."""
        return {"format": self.format, "encoding": self.encoding, "delimiter": self.delimiter}

    @property
    def all_options(self) -> dict[str, Any]:
        """Return the arguments of ``read_table``."""
        return {"text_column": self.text_column, **self.options}


@dataclass(frozen=True)
class Rows:
    """Texts of a table, the concept with its columns filled in, and further columns."""

    concept: Concept = field(repr=False)
    table: TextRows = field(repr=False)

    @property
    def texts(self) -> list[str]:
        """Return the texts."""
        return self.table.texts


def read_rows(
    path: Path,
    concept_file: Path,
    form: TableFormat,
    *,
    columns: tuple[str | None, ...] = (),
    limit: int | None = None,
    embeddings: bool = False,
    embedding_column: str | None = None,
) -> Rows:
    """Return the texts at ``path`` with the concept of ``concept_file`` ready for use on them."""
    from vecveil.concepts import Concept
    from vecveil.data import read_texts

    concept = Concept.from_file(concept_file)
    wanted = [*concept.columns, *(name for name in columns if name is not None)]
    table = read_texts(
        path,
        columns=list(dict.fromkeys(wanted)),
        limit=limit,
        embeddings=embeddings,
        embedding_column=embedding_column,
        **form.all_options,
    )
    return Rows(concept.with_columns(table.columns), table)


def is_protected(path: Path, form: TableFormat) -> bool:
    """Return whether ``path`` is a Parquet file that vecveil wrote."""
    if str(path) == "-" or (form.format or path.suffix.lower()) not in (
        "parquet",
        ".parquet",
        ".pq",
    ):
        return False
    from vecveil.data.files import find_input
    from vecveil.data.parquet import ParquetSource

    return "protected" in ParquetSource(find_input(path, form.format)).metadata


def read_array(path: Path, embedding_column: str | None = None) -> np.ndarray[Any, Any]:
    """Return the vectors of a .npy file or of a Parquet column, by default ``embedding``."""
    import numpy as np

    from vecveil.data import read_table

    reader = read_table(path, embedding_column=embedding_column)
    chunks = [
        chunk.vectors for chunk in reader.select([], texts=False) if chunk.vectors is not None
    ]
    if not chunks:
        found = ", ".join(reader.types) or "none"
        raise DataFileError.of(path.name, "path", "a file with a column of vectors", f"the columns {found}",
                               fix="Name it with --embedding-column.")  # fmt: skip
    return np.concatenate(chunks)


def read_labels(path: Path) -> np.ndarray[Any, Any]:
    """Return the 0/1 array of a .npy file."""
    import numpy as np

    try:
        labels: np.ndarray[Any, Any] = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError) as error:
        reason = (
            "one that is not there"
            if isinstance(error, FileNotFoundError)
            else "one that cannot be read"
        )
        raise DataFileError.of(
            "fit", "labels", "a .npy file of zeros and ones", f"{path.name}, {reason}"
        ) from None
    return labels


def load_encoder_named(name: str, precision: str | None, cache: bool) -> TextEncoder:
    """Return the encoder for a name or a folder."""
    from vecveil.encoders import load_encoder

    return load_encoder(name, precision=precision or "auto", cache="default" if cache else None)
