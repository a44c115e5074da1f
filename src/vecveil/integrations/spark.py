"""Spark: protect DataFrames of vectors or texts batch by batch; open sealed DataFrames.

protect_dataframe(spark.read.parquet("notes"), "drug.vecveil").write.parquet("protected")
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from vecveil.bulk import ArrowProtection, BulkJob
from vecveil.bulk.unsealing import Unsealing
from vecveil.data.columns import import_pyarrow
from vecveil.errors import InvalidInputError, MissingDependencyError
from vecveil.integrations.workers import batch_job, run_batch, unsealing_anywhere
from vecveil.protector import Protector
from vecveil.sealing.blob import SEALED_FIELD

try:
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        DoubleType,
        FloatType,
        StringType,
        StructField,
        StructType,
    )
except ImportError:
    raise MissingDependencyError("Protecting DataFrames of Spark", "pyspark", "spark") from None

__all__ = ["protect_dataframe", "unseal_dataframe"]

_OWNER = "protect_dataframe"
_EMBEDDING = "embedding"


def protect_dataframe(
    df: Any, protector: Protector | str | os.PathLike[str], **options: Any
) -> Any:
    """Return a DataFrame of the protected rows of ``df``: the kept columns, then ``embedding``, an array of floats.

    A DataFrame is lazy: Spark computes it at each action, and again for a task that is lost or runs twice. With fresh
    noise each computation is a further release of every row, and several releases of a row reveal more than one. Write
    the DataFrame once and read the files (``cache`` may evict and compute again), or use keyed noise, which repeats a
    row's release.

    Args:
        df: DataFrame of vectors (arrays of floats or doubles), or of texts to encode.
        protector: protector or path of its file on this machine.
        options: options of `vecveil.bulk.BulkJob`, except those of files. ``key`` is the path of a key file or
            ``env:NAME`` on each worker. ``seal_key`` with ``seal_name`` and ``id_column`` adds the sealed originals,
            ``filter_fields`` tokens to filter them by.

    Raises:
        InvalidInputError: an unknown option, or a key instead of its source.
        ProtectorFileError, KeyFileError: the protector or key cannot be read.
        DataFileError: a column is missing, or may hold clean vectors.

    Errors in rows, such as `DataFileError` for NaN, are raised at the action, inside a ``PythonException``.
    """
    if not hasattr(df, "mapInArrow") or not hasattr(df, "schema"):
        raise InvalidInputError.of(_OWNER, "df", "a DataFrame of pyspark.sql", type(df).__name__)
    job = batch_job(protector, options, owner=_OWNER)
    # The output schema follows from an empty batch; limit(0) computes no row.
    released = ArrowProtection(job).schema(df.limit(0).toArrow().schema)
    kept = {field.name: field for field in df.schema.fields}
    value = released.field(_EMBEDDING).type.value_type
    number = DoubleType() if value == import_pyarrow().float64() else FloatType()
    kept[SEALED_FIELD] = StructField(SEALED_FIELD, BinaryType(), nullable=False)
    schema = StructType(
        [kept.get(name, StructField(name, StringType())) for name in released.names if name != _EMBEDDING]
        + [StructField(_EMBEDDING, ArrayType(number, containsNull=False), nullable=False)]
    )
    return df.mapInArrow(partial(_mapped, job), schema)


def unseal_dataframe(df: Any, seal_key: str | os.PathLike[str], **options: Any) -> Any:
    """Return a DataFrame of the opened rows of ``df``: id, text, metadata (JSON) and the exact embedding.

    Args:
        df: DataFrame of sealed rows, such as those of ``protect_dataframe(..., seal_key=...)``.
        seal_key: path of the key file on each worker, or ``env:NAME:PATH``.
        options: ``seal_name`` and other arguments of `vecveil.bulk.unsealing.Unsealing`. The ids of skipped rows are
            missing in the result.

    Raises:
        KeyFileError: the key cannot be read, or has no such collection.

    Errors in rows, such as `SealingError`, are raised at the action, inside a ``PythonException``.
    """
    work = unsealing_anywhere(seal_key, owner="unseal_dataframe", **options)
    return df.mapInArrow(partial(_mapped, work), f"id string, text string, metadata string, {_EMBEDDING} array<float>")


def _mapped(work: BulkJob | Unsealing, batches: Iterable[Any]) -> Iterator[Any]:
    pa = import_pyarrow()
    for batch in batches:
        table = run_batch(work, batch)
        at = table.schema.get_field_index(_EMBEDDING)
        # Spark has no fixed-size lists.
        flexible = table.column(at).cast(pa.list_(table.schema.field(at).type.value_type))
        yield from table.set_column(at, _EMBEDDING, flexible).to_batches()
