"""Spark: protect DataFrames of vectors or texts batch by batch; open sealed DataFrames; search a sealed index in parts.

protect_dataframe(spark.read.parquet("notes"), "drug.vecveil").write.parquet("protected")
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from vecveil.errors import optional_import, wrong_type
from vecveil.gateway.bulk import ArrowProtection, BulkJob, Unsealing
from vecveil.gateway.workers import Sealed, batch_job, index_parts, queries_in, run_batch, unsealing_anywhere
from vecveil.index.blob import SEALED_FIELD
from vecveil.privacy.protector import Protector
from vecveil.texts.tables.columns import import_pyarrow
from vecveil.validation import check_count

with optional_import("Protecting DataFrames of Spark", "pyspark", "spark"):
    from pyspark.sql.types import ArrayType, BinaryType, DoubleType, FloatType, StringType, StructField, StructType

__all__ = ["protect_dataframe", "search_dataframe", "unseal_dataframe"]

_OWNER = "protect_dataframe"
_EMBEDDING = "embedding"


def protect_dataframe(df: Any, protector: Protector | str | os.PathLike[str], **options: Any) -> Any:
    """Return a DataFrame of the protected rows of ``df``: the kept columns, then ``embedding``, an array of floats.

    Spark computes a lazy DataFrame at each action, and again for a task that is lost or runs twice. With fresh noise
    each computation is a further release of every row, and several releases of a row reveal more than one. Write the
    DataFrame once and read the files (``cache`` may evict and compute again), or use keyed noise, which repeats a row's
    release.

    Args:
        df: DataFrame of vectors (arrays of floats or doubles), or of texts to encode.
        protector: protector or path of its file on this machine.
        options: options of `vecveil.gateway.bulk.BulkJob`, except for files. ``key`` is the path of a key file or
            ``env:NAME`` on each worker. ``seal_key`` with ``seal_name`` and ``id_column`` adds the sealed originals,
            ``filter_fields`` their filter tokens.

    The action raises errors in rows, such as `DataFileError` for NaN, inside a ``PythonException``.
    """
    if not hasattr(df, "mapInArrow") or not hasattr(df, "schema"):
        raise wrong_type(_OWNER, "df", "a DataFrame of pyspark.sql", df)
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
        df: DataFrame of sealed rows, such as the output of ``protect_dataframe(..., seal_key=...)``.
        seal_key: path of the key file on each worker, or ``env:NAME:PATH``.
        options: ``seal_name`` and other arguments of `vecveil.gateway.bulk.Unsealing`. Skipped rows are missing in the
            result.

    The action raises errors in rows, such as `SealingError`, inside a ``PythonException``.
    """
    work = unsealing_anywhere(seal_key, **options)
    return df.mapInArrow(partial(_mapped, work), f"id string, text string, metadata string, {_EMBEDDING} array<float>")


def search_dataframe(
    df: Any,
    location: str | os.PathLike[str],
    seal_key: str | os.PathLike[str],
    *,
    parts: int = 2,
    top: int = 10,
    where: Any = None,
    **options: Any,
) -> Any:
    """Return a DataFrame of the rows of a sealed index nearest to each query of ``df``, best first.

    Its columns are query, id, score (exact cosine), text and metadata (JSON). Each task searches one of ``parts`` parts
    of the current index for all queries, which are collected here; Spark merges the best rows. After a commit to the
    index, such as of `SealedIndex.compact`, actions on the DataFrame fail: call this function again.

    Args:
        df: DataFrame of queries: vectors (arrays of floats), or texts that ``encoder`` encodes here.
        parts: tasks; each needs the memory of its part.
        location, seal_key, where, options: as for `vecveil.gateway.ray.search_dataset`.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    owner = "search_dataframe"
    parts = check_count(parts, owner=owner, param="parts")
    columns = options.pop("column", None), options.pop("id_column", None)
    opened, encoder = index_parts(location, seal_key, parts, options)
    queries = queries_in(df.toArrow(), encoder, columns, 0, owner)
    work = [Sealed((part, queries, top, where)) for part in opened]
    schema = "query string, id string, score float, text string, metadata string"
    hits = df.sparkSession.range(0, len(work), 1, len(work)).mapInArrow(partial(_searched, work), schema)
    rank = F.row_number().over(Window.partitionBy("query").orderBy(F.desc("score")))
    return hits.withColumn("rank", rank).where(F.col("rank") <= top).orderBy("query", "rank").drop("rank")


def _searched(work: list[Sealed], batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            part, queries, top, where = work[number].open()
            yield from part.search(queries, top=top, where=where).to_batches()


def _mapped(work: BulkJob | Unsealing, batches: Iterable[Any]) -> Iterator[Any]:
    pa = import_pyarrow()
    for batch in batches:
        table = run_batch(work, batch)
        at = table.schema.get_field_index(_EMBEDDING)
        # Spark has no fixed-size lists.
        flexible = table.column(at).cast(pa.list_(table.schema.field(at).type.value_type))
        yield from table.set_column(at, _EMBEDDING, flexible).to_batches()
