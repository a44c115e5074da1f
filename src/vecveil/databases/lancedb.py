"""LanceDB: tables in a folder.

A table made here has the columns ``id``, ``vector`` and ``fields`` (JSON). Of any other table the first column of
fixed-size float lists is the vector, ``id`` the id if there is one, else the row's number, and all others are fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from vecveil.databases.store import (
    Batch,
    StoreInfo,
    VectorStore,
    as_json,
    check_cursor,
    database_errors,
    in_order,
    no_place,
    not_there,
    only_one,
)
from vecveil.errors import InvalidInputError, MissingDependencyError, StoreError
from vecveil.validation import check_count, check_embeddings

__all__ = ["LanceStore"]

_OWNER = "LanceStore"
_MARK = b"vecveil"
_CHUNK = 500
_AGAIN = "Put the folder back, and run again: what was done stays done."


class LanceStore(VectorStore):
    """One table of LanceDB.

    Args:
        where: a folder.
        collection: the table; None takes the only one.

    Raises:
        MissingDependencyError: lancedb is not installed.
    """

    kind: ClassVar[str] = "lancedb"

    def __init__(self, where: str, collection: str | None = None) -> None:
        try:
            import lancedb
        except ImportError:
            raise MissingDependencyError("Reading LanceDB", "lancedb", "lancedb") from None
        self._lancedb = lancedb
        self._where = where
        self._name = collection

    @classmethod
    def open(cls, where: str, collection: str | None) -> Self:
        """Return the store; nothing is created yet."""
        return cls(where, collection)

    def info(self) -> StoreInfo:
        """Return what the table says about itself; LanceDB keeps no metric with a table."""
        table = self._table()
        with self._guard("the table's description"):
            count = int(table.count_rows())
        column = _vector_column(table.schema)
        return StoreInfo(self.kind, table.name, count, table.schema.field(column).type.list_size)

    def batches(self, size: int = 1000, *, after: str = "") -> Iterator[Batch]:
        """Yield all rows in the table's own order."""
        size = check_count(size, owner=_OWNER, param="size")
        offset = check_cursor(after, owner=_OWNER)
        table = self._table()
        while True:
            with self._guard("reading rows"):
                rows = table.search().limit(size).offset(offset).to_arrow()
            if not len(rows):
                return
            batch = _batch(rows, table.schema, offset)
            offset += len(rows)
            yield Batch(batch.ids, batch.vectors, batch.fields, str(offset))

    def exists(self) -> bool:
        """Return whether the table is there; with no name, whether there is just one."""
        names = self._names()
        return len(names) == 1 if self._name is None else self._name in names

    def create(self, dimension: int, *, metric: str | None = None) -> None:
        """Make an empty table; the metric is chosen in each search."""
        import pyarrow as pa

        dimension = check_count(dimension, owner=_OWNER, param="dimension")
        if self.exists():
            there = self.info().dimension
            if there != dimension:
                raise StoreError.of(_OWNER, "dimension", f"{there}, that of the table", str(dimension),
                                    fix="Name another table.")  # fmt: skip
            return
        if self._name is None:
            raise InvalidInputError.of(_OWNER, "location", "one with a table behind #", "none")
        columns = [
            pa.field("id", pa.string()),
            pa.field("vector", pa.list_(pa.float32(), dimension)),
            pa.field("fields", pa.string()),
        ]
        with self._guard("making the table"):
            schema = pa.schema(columns, metadata={_MARK: b"1"})
            self._lancedb.connect(self._where).create_table(self._name, schema=schema)

    def write(self, batch: Batch) -> None:
        """Write the rows to a table that was made here."""
        import pyarrow as pa

        table = self._table()
        if _MARK not in (table.schema.metadata or {}):
            raise StoreError.of(
                _OWNER, "location", "a table that create made", "another", fix="Name a new table."
            )
        vectors = check_embeddings(np.asarray(batch.vectors), owner=_OWNER, param="vectors")
        wanted = table.schema.field("vector").type
        if vectors.shape[1] != wanted.list_size:
            got = f"dimension {vectors.shape[1]}"
            raise StoreError.of(_OWNER, "vectors", f"of dimension {wanted.list_size}", got)
        if not len(batch):
            return
        values = pa.array(vectors.astype(np.float32, copy=False).ravel())
        columns = {
            "id": pa.array(batch.ids, pa.string()),
            "vector": pa.FixedSizeListArray.from_arrays(values, wanted.list_size),
            "fields": pa.array([as_json(one, owner=_OWNER) for one in batch.fields], pa.string()),
        }
        with self._guard("writing rows"):
            merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            merge.execute(pa.table(columns, schema=table.schema))

    def read(self, ids: Sequence[str]) -> Batch:
        """Return the rows of ``ids`` in that order."""
        table = self._table()
        if "id" not in table.schema.names:
            raise StoreError.of(_OWNER, "location", "a table with a column id", "another")
        text = str(table.schema.field("id").type) in ("string", "large_string")
        parts: list[Batch] = []
        unique = list(dict.fromkeys(ids))
        for start in range(0, len(unique), _CHUNK):
            asked = unique[start : start + _CHUNK]
            if not text:
                asked = [one for one in asked if one.isascii() and one.isdecimal()]
            quoted = ["'" + one.replace("'", "''") + "'" if text else one for one in asked]
            if quoted:
                with self._guard("reading rows"):
                    query = table.search().where(f"id IN ({', '.join(quoted)})").limit(len(quoted))
                    rows = query.to_arrow()
                parts.append(_batch(rows, table.schema, 0))
        found = [one for part in parts for one in part.ids]
        order = in_order(ids, found, owner=_OWNER)
        fields = [one for part in parts for one in part.fields]
        X = np.concatenate([p.vectors for p in parts]) if parts else np.empty((0, 0), np.float32)
        return Batch(tuple(ids), X[order], tuple(fields[at] for at in order))

    def _guard(self, doing: str) -> Any:
        return database_errors(_OWNER, doing, _AGAIN)

    def _names(self) -> list[str]:
        return sorted(path.stem for path in Path(self._where).glob("*.lance") if path.is_dir())

    def _table(self) -> Any:
        if not Path(self._where).is_dir():
            raise no_place(self._where, "a folder of LanceDB", owner=_OWNER)
        names = self._names()
        name = self._name or only_one(names, owner=_OWNER, what="table")
        if name not in names:
            raise not_there(name, names, owner=_OWNER, what="table")
        with self._guard("opening the table"):
            return self._lancedb.connect(self._where).open_table(name)


def _vector_column(schema: Any) -> str:
    import pyarrow as pa

    for field in schema:
        if pa.types.is_fixed_size_list(field.type) and pa.types.is_floating(field.type.value_type):
            return str(field.name)
    raise StoreError.of(_OWNER, "table", "one with a column of vectors", "none")


def _batch(rows: Any, schema: Any, offset: int) -> Batch:
    import pyarrow as pa

    column = _vector_column(schema)
    values = pa.concat_tables([rows])[column].combine_chunks()
    size = schema.field(column).type.list_size
    X = np.asarray(values.flatten().to_numpy(zero_copy_only=False), dtype=np.float32)
    X = X.reshape(len(rows), size)
    has_id = "id" in rows.column_names
    ids = rows["id"].to_pylist() if has_id else range(offset, offset + len(rows))
    if _MARK in (schema.metadata or {}):
        fields = [json.loads(one) for one in rows["fields"].to_pylist()]
    else:
        fields = rows.drop_columns([column, *(["id"] if has_id else [])]).to_pylist()
        fields = fields or [{} for _ in range(len(rows))]
    return Batch(tuple(str(one) for one in ids), X, tuple(fields))
