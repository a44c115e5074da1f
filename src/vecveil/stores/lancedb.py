"""LanceDB: tables in a folder.

`LanceStore.create` makes the columns ``id``, ``vector``, ``fields`` (JSON) and one for each filter field. In other
tables the vector is the column that the location names or the only one of fixed-size float lists, the id is the column
``id`` or the row number, and all other columns are fields.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vecveil.errors import StoreError, optional_import
from vecveil.io import exclusive
from vecveil.stores.store import (
    LISTED,
    Batch,
    DatabaseStore,
    Match,
    StoreInfo,
    Where,
    as_json,
    check_cursor,
    unfiltered,
)

with optional_import("LanceDB", "lancedb", "lancedb"):
    import lancedb
    import pyarrow as pa

# Schema metadata of a table that `create` made; only such a table is written to.
_MARK, _METRIC = b"vecveil", b"vecveil:metric"
_DISTANCE = "_distance"
_LONGEST_WAIT = 600.0  # seconds, for a writer that is compacting
_FIRST_FILTER = 3  # columns behind id, vector and fields


class LanceStore(DatabaseStore):
    kind: ClassVar[str] = "lancedb"
    metrics: ClassVar[Mapping[str, Any]] = {"cosine": "cosine", "dot": "dot", "euclidean": "l2"}
    noun: ClassVar[str] = "table"
    place: ClassVar[str] = "a folder of LanceDB"

    def _place_exists(self) -> bool:
        return Path(self._where).is_dir()

    def _names(self) -> list[str]:
        return [path.stem for path in Path(self._where).glob("*.lance") if path.is_dir()]

    def _paths(self) -> list[str]:
        return [str(Path(self._where) / f"{self._name}.lance")]

    def _table(self) -> Any:
        name = self._known()  # first: connecting creates the folder
        return lancedb.connect(self._where).open_table(name)

    def _own_table(self) -> Any:
        table = self._table()
        if _MARK not in (table.schema.metadata or {}):
            raise StoreError("vecveil writes only to tables that it created. Name a new table.", param="location")
        return table

    def _info(self) -> StoreInfo:
        table = self._table()
        column = self._column(table.schema)
        size = table.schema.field(column).type.list_size
        return StoreInfo(self.kind, table.name, int(table.count_rows()), size, self._metric(table, column))

    def _metric(self, table: Any, column: str) -> str | None:
        """Return the metric of a table that `create` made, else of its index; None if each search chooses one."""
        if own := (table.schema.metadata or {}).get(_METRIC, b"").decode():
            return str(own)
        for index in table.list_indices():
            if column in index.columns and (stats := table.index_stats(index.name)) is not None:
                return self._metric_named(stats.distance_type and stats.distance_type.lower())
        return None

    def _create_unless_there(self, dimension: int, metric: str | None, filter_fields: Sequence[str]) -> None:
        # Locked: another process may create the table or add the same columns, and an unfinished one does not open.
        with self._alone(self._name) if self._name else contextlib.nullcontext():
            super()._create_unless_there(dimension, metric, filter_fields)

    def _create(self, dimension: int, metric: str | None, filter_fields: Sequence[str]) -> None:
        columns = [
            pa.field("id", pa.string()),
            pa.field(self._vector or "vector", pa.list_(pa.float32(), dimension)),
            pa.field("fields", pa.string()),
            *(pa.field(name, pa.string()) for name in filter_fields),
        ]
        schema = pa.schema(columns, metadata={_MARK: b"1", _METRIC: (metric or "").encode()})
        lancedb.connect(self._where).create_table(self._name, schema=schema)

    def _check_reuse(self, filter_fields: Sequence[str]) -> None:
        table = self._table()
        if missing := [name for name in filter_fields if name not in table.schema.names]:
            self._own_table().add_columns([pa.field(name, pa.string()) for name in missing])

    def _batches(self, size: int, after: str) -> Iterator[Batch]:
        offset = check_cursor(after)
        table = self._table()
        while len(rows := table.search().limit(size).offset(offset).to_arrow()):
            batch = self._batch(table, rows, offset)
            offset += len(rows)
            yield Batch(batch.ids, batch.vectors, batch.fields, str(offset))

    def _listed(self) -> Iterator[list[str]]:
        table = self._table()
        if "id" not in table.schema.names:
            yield list(map(str, range(table.count_rows())))
            return
        for rows in table.search().select(["id"]).to_batches(LISTED):
            yield self._named(table, rows["id"].to_pylist())

    def _read(self, ids: list[str]) -> Batch:
        table = self._table()
        rows = table.search().where(self._among(table, ids)).limit(len(ids)).to_arrow()
        return self._batch(table, rows, 0)

    @contextlib.contextmanager
    def _alone(self, name: str = "") -> Iterator[None]:
        """Lock the table: concurrent writers could insert an id twice, and compaction remove unfinished files."""
        name = name or self._known()  # first: a lock makes its folder
        with exclusive(Path(self._where) / f".{name}.lock", seconds=_LONGEST_WAIT):
            yield

    def _write(self, batch: Batch) -> None:
        with self._alone():
            self._upsert(batch)

    def _upsert(self, batch: Batch) -> None:
        table = self._own_table()
        column = self._column(table.schema)
        kind = table.schema.field(column).type
        values = pa.array(batch.vectors.ravel())
        filters = table.schema.names[_FIRST_FILTER:]
        rest = [{k: v for k, v in row.items() if k not in filters} for row in batch.fields]
        columns = {
            "id": pa.array(batch.ids, pa.string()),
            column: pa.FixedSizeListArray.from_arrays(values, kind.list_size),
            "fields": pa.array([as_json(row) for row in rest], pa.string()),
            **{name: pa.array([row.get(name) for row in batch.fields], pa.string()) for name in filters},
        }
        merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(pa.table(columns, schema=table.schema))

    def _search(self, vector: Any, k: int, where: Where) -> list[Match]:
        table = self._table()
        column = self._column(table.schema)
        metric = self._metric(table, column) or "euclidean"
        query = table.search(vector, vector_column_name=column)
        if where:
            if set(where) - set(table.schema.names):
                raise unfiltered()
            conditions = [f"`{name}` IN ({_literals(values)})" for name, values in where.items()]
            query = query.where(" AND ".join(conditions), prefilter=True)
        rows = query.distance_type(self.metrics[metric]).limit(k).to_arrow()
        distances = rows[_DISTANCE].to_pylist()
        batch = self._batch(table, rows.drop_columns([_DISTANCE]), 0)
        return [
            Match(name, float(distance), dict(row))
            for name, distance, row in zip(batch.ids, distances, batch.fields, strict=True)
        ]

    def _delete(self, ids: list[str]) -> None:
        with self._alone():
            table = self._own_table()
            table.delete(self._among(table, ids))

    def _compact(self, name: str) -> str:
        # It warns about readers of older versions.
        with self._alone(), warnings.catch_warnings(action="ignore", category=UserWarning):
            table = self._own_table()
            # Compaction leaves files with few deleted rows as they are; an update writes every row to a new file.
            table.update(values_sql={"id": "id"})
            table.optimize(cleanup_older_than=datetime.timedelta(0), delete_unverified=True)
        return "LanceDB wrote all rows to new files and removed the older versions."

    def _among(self, table: Any, ids: list[str]) -> str:
        # LanceDB binds no values. Quotes are doubled, and other keys must be whole numbers.
        if "id" not in table.schema.names:
            raise StoreError("The table has no column `id`, by which rows are read.", param="location")
        if str(table.schema.field("id").type) in ("string", "large_string"):
            listed = _literals(ids)
        else:
            listed = ", ".join(name for name in ids if re.fullmatch(r"-?[0-9]+", name))
        return f"id IN ({listed})" if listed else "false"

    def _column(self, schema: Any) -> str:
        return self._only_vector(
            field.name
            for field in schema
            if pa.types.is_fixed_size_list(field.type) and pa.types.is_floating(field.type.value_type)
        )

    def _named(self, table: Any, ids: Sequence[Any]) -> list[str]:
        if None in ids:
            count = table.count_rows("id IS NULL")
            raise StoreError(
                f"{count:,} rows of the table have no id: their column `id` is null. Give each row its "
                "own id, or delete these rows.",
                param="ids",
            )
        return list(map(str, ids))

    def _batch(self, table: Any, rows: Any, offset: int) -> Batch:
        schema = table.schema
        column = self._column(schema)
        size = schema.field(column).type.list_size
        lists = pa.concat_tables([rows])[column].combine_chunks()
        X = np.full((len(rows), size), np.nan, np.float32)
        # Flattened without copying each row; `flatten` leaves out null, and respects the slice of a batch.
        X[lists.is_valid().to_numpy(zero_copy_only=False)] = (
            lists.flatten().to_numpy(zero_copy_only=False).reshape(-1, size)
        )
        has_id = "id" in rows.column_names
        ids = rows["id"].to_pylist() if has_id else range(offset, offset + len(rows))
        if _MARK in (schema.metadata or {}):
            fields = [json.loads(text) for text in rows["fields"].to_pylist()]
            for name in schema.names[_FIRST_FILTER:]:
                for row, value in zip(fields, rows[name].to_pylist(), strict=True):
                    row |= {} if value is None else {name: value}
        else:
            fields = rows.drop_columns([column, *(["id"] if has_id else [])]).to_pylist()
            fields = fields or [{} for _ in range(len(rows))]
            for name in (field.name for field in schema if field.name != column and _is_vector(field)):
                for row in fields:
                    row[name] = None if row[name] is None else np.asarray(row[name])
        return Batch(tuple(self._named(table, ids)), X, tuple(fields))


def _is_vector(field: Any) -> bool:
    kind = field.type
    while pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    if not pa.types.is_fixed_size_list(kind):
        return False
    return bool(pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type))


def _literals(values: Sequence[str]) -> str:
    return ", ".join("'" + value.replace("'", "''") + "'" for value in values)
