"""Read and write tables: CSV, TSV, JSON lines, text lines, Parquet and .npy, in chunks of bounded size.

Importing this package loads NumPy alone; Parquet needs pyarrow (extra ``files``).
"""

from vecveil.texts.tables.pipeline import ProtectionCounts, protect_table
from vecveil.texts.tables.reading import Chunk, TableReader, TextRows, read_table, read_texts
from vecveil.texts.tables.writing import EmbeddingWriter, open_writer

__all__ = [
    "Chunk",
    "EmbeddingWriter",
    "ProtectionCounts",
    "TableReader",
    "TextRows",
    "open_writer",
    "protect_table",
    "read_table",
    "read_texts",
]
