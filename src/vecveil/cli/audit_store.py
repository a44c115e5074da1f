"""``vecveil audit`` without a protector: the vectors of a store and the texts of a part of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vecveil.errors import DataFileError, InvalidInputError, message

if TYPE_CHECKING:
    from vecveil.auditing import AuditResult
    from vecveil.cli.inputs import Rows, TableFormat
    from vecveil.types import Embeddings

__all__ = ["audited_store"]

LOOKED_AT = 1000


def audited_store(
    input: Path,
    concept: Path,
    vectors_file: Path | None,
    row_column: str | None,
    form: TableFormat,
    given: dict[str, Any],
) -> AuditResult:
    """Return the audit of the vectors in ``vectors_file``, or in the table itself."""
    from vecveil.auditing import audit_store
    from vecveil.auditing.lint import plaintext_beside
    from vecveil.cli.audit import audit_arguments
    from vecveil.cli.inputs import load_encoder_named, read_array, read_rows

    for name in ("sts", "retrieval", "label_column"):
        if given[name] is not None:
            raise InvalidInputError.of("audit", name, "given with a protector (-p)", "no protector",
                                       "Utility is measured on vectors that the audit protects itself.")  # fmt: skip
    if row_column is not None and vectors_file is None:
        raise InvalidInputError.of("audit", "row_column", "given with --vectors", "no --vectors",
                                   "It says which row of that file a text belongs to.")  # fmt: skip
    own = vectors_file is None
    rows = read_rows(
        input, concept, form, columns=(given["group_column"], row_column), limit=given["limit"],
        embeddings=own, embedding_column=given["embedding_column"] if own else None,
    )  # fmt: skip
    lint: list[dict[str, str]] = []
    if own:
        if rows.table.embeddings is None:
            raise DataFileError(
                message(input.name, "path", "a table of texts with a column of vectors", "one without vectors",
                        fix="Name it with --embedding-column, or give --vectors FILE or a protector with -p.")
            )  # fmt: skip
        vectors = rows.table.embeddings
        lint = plaintext_beside({rows.table.text_column: rows.texts[:LOOKED_AT]})
    else:
        assert vectors_file is not None
        vectors = _chosen(
            read_array(vectors_file, given["embedding_column"]), rows, row_column, vectors_file
        )
        lint = plaintext_beside(_text_columns(vectors_file))
    encoder = None
    if given["encoder"] is not None:
        encoder = load_encoder_named(given["encoder"], given["precision"], given["cache"])
    return audit_store(
        vectors,
        rows.texts,
        rows.concept,
        encoder=encoder,
        lint=lint,
        **audit_arguments(given, rows),
    )


def _chosen(store: Embeddings, rows: Rows, row_column: str | None, path: Path) -> Embeddings:
    """Return the vector of each text."""
    texts = len(rows.texts)
    if row_column is None:
        if len(store) != texts:
            raise DataFileError(
                message(path.name, "vectors", f"of {texts} rows, one for each text", f"{len(store)} rows",
                        "Row i of the vectors belongs to text i.",
                        "For a sample, say in a column of INPUT which row each text is: --row-column NAME.")
            )  # fmt: skip
        return store
    given = rows.table.columns[row_column]
    try:
        numbers = np.array([int(str(value)) for value in given], dtype=np.int64)
    except ValueError:
        numbers = np.array([-1])
    if numbers.min() < 0 or numbers.max() >= len(store):
        raise DataFileError.of(row_column, "row_column", f"whole numbers from 0 to {len(store) - 1}",
                               "another value", f"They are rows of {path.name}.")  # fmt: skip
    if len(np.unique(numbers)) < len(numbers):
        raise DataFileError.of(
            row_column, "row_column", "a different row for each text", "one row twice"
        )
    return store[numbers]


def _text_columns(path: Path) -> dict[str, list[Any]]:
    """Return some values of the string columns of a Parquet file; of other files there are none."""
    if path.suffix.lower() not in (".parquet", ".pq"):
        return {}
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        kinds = {
            field.name: field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            for field in file.schema_arrow
        }
        wanted = [
            name
            for name, kind in kinds.items()
            if pa.types.is_string(kind) or pa.types.is_large_string(kind)
        ]
        if not wanted:
            return {}
        batch = next(file.iter_batches(batch_size=LOOKED_AT, columns=wanted), None)
    return {} if batch is None else {name: batch.column(name).to_pylist() for name in wanted}
