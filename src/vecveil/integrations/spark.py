"""Spark: DataFrames of vectors or texts protected batch by batch.

protect_dataframe(spark.read.parquet("notes"), "drug.vecveil").write.parquet("protected")
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from vecveil.bulk import ArrowProtection, BulkJob
from vecveil.data.columns import import_pyarrow
from vecveil.errors import InvalidInputError, MissingDependencyError
from vecveil.integrations.workers import batch_job, protect_batch
from vecveil.protector import Protector

try:
    from pyspark.sql.types import ArrayType, DoubleType, FloatType, StructField, StructType
except ImportError:
    raise MissingDependencyError("Protecting DataFrames of Spark", "pyspark", "spark") from None

__all__ = ["protect_dataframe"]

_OWNER = "protect_dataframe"
_EMBEDDING = "embedding"


def protect_dataframe(
    df: Any, protector: Protector | str | os.PathLike[str], **options: Any
) -> Any:
    """Return the DataFrame of the protected rows of ``df``: other columns, then ``embedding``, an array of floats.

    Batches are Arrow tables (``mapInArrow``). Each worker of Spark loads protector, key and encoder once.

    A DataFrame is lazy: Spark computes it at each action, and again where a task was lost or runs twice. With fresh
    noise each time is a further release of every row, and several releases of a row reveal more than one. Write the
    DataFrame once and read the files (``cache`` may evict and compute again), or use keyed noise, which repeats a
    row's release.

    Args:
        df: of vectors (arrays of floats or doubles), or of texts, which are encoded.
        protector: or the path of its file on this machine.
        options: those of `vecveil.bulk.BulkJob` that are not about files. ``key`` is the path of a key file, or
            ``env:NAME``, as each worker finds it.

    Raises:
        InvalidInputError: not a DataFrame, an option that is not one, or a key in place of its name.
        ProtectorFileError, KeyFileError: no such protector or key.
        DataFileError: a column is missing, or may hold clean vectors.

    Errors of the rows, such as `DataFileError` for NaN, are raised at the action, inside a ``PythonException``.
    """
    if not hasattr(df, "mapInArrow") or not hasattr(df, "schema"):
        raise InvalidInputError.of(_OWNER, "df", "a DataFrame of pyspark.sql", type(df).__name__)
    job = batch_job(protector, options, owner=_OWNER)
    # No row is computed for this: Spark knows that there are none.
    released = ArrowProtection(job).schema(df.limit(0).toArrow().schema)
    kept = {field.name: field for field in df.schema.fields}
    value = released.field(_EMBEDDING).type.value_type
    number = DoubleType() if value == import_pyarrow().float64() else FloatType()
    schema = StructType(
        [kept[name] for name in released.names if name != _EMBEDDING]
        + [StructField(_EMBEDDING, ArrayType(number, containsNull=False), nullable=False)]
    )
    return df.mapInArrow(partial(_protected, job), schema)


def _protected(job: BulkJob, batches: Iterable[Any]) -> Iterator[Any]:
    """Protect the batches of one task."""
    pa = import_pyarrow()
    for batch in batches:
        table = protect_batch(job, batch)
        at = table.schema.get_field_index(_EMBEDDING)
        # Spark knows no lists of fixed size.
        flexible = table.column(at).cast(pa.list_(table.schema.field(at).type.value_type))
        yield from table.set_column(at, _EMBEDDING, flexible).to_batches()
