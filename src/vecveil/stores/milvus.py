"""Milvus: collections in a file of Milvus Lite or on a server.

Rows are read in the order of the primary key. A server's token comes from ``MILVUS_TOKEN``. Further vectors of a
collection are fields.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from vecveil.errors import StoreError, optional_import
from vecveil.stores.store import (
    LISTED,
    OPENING,
    Batch,
    DatabaseStore,
    Match,
    StoreInfo,
    Where,
    distance_of,
    integer_id,
    json_cursor,
    plain,
    sparse_rows,
    stacked,
    unlisted,
)

_ID, _VECTOR = "id", "vector"
_LONGEST_ID = 1024  # bytes
_PAGE = 1000  # rows per call: Milvus limits the size of answers
_loaded: dict[tuple[str, str, str], int] = {}
"""Released collections, by place, database and name, with the number of stores that read them: the last releases it."""


class _Layout(NamedTuple):
    """Key and vector of a collection, and whether each further vector is sparse, by name."""

    key: str
    is_text: bool
    vector: str
    dimension: int
    nullable: bool
    others: dict[str, bool]


class MilvusStore(DatabaseStore):
    """One collection in a file of Milvus Lite or at ``http://HOST:PORT``."""

    kind: ClassVar[str] = "milvus"
    options: ClassVar[tuple[str, ...]] = ("vector", "database")
    metrics: ClassVar[Mapping[str, Any]] = {"cosine": "COSINE", "dot": "IP", "euclidean": "L2"}
    place: ClassVar[str] = "a file of Milvus Lite"
    page: ClassVar[int] = _PAGE

    def __init__(self, where: str, collection: str | None = None, *, vector: str = "", database: str = "") -> None:
        super().__init__(where, collection, vector=vector)
        self._database = database
        with optional_import("Milvus", "pymilvus", "milvus"):
            import pymilvus
        if not self._remote:
            with optional_import("Milvus", "milvus-lite", "milvus"):
                importlib.import_module("milvus_lite")  # pymilvus would fail later, without naming it
        self._pymilvus: Any = pymilvus
        self._connected: Any = None
        self._is_readable = False
        self._loaded: tuple[str, str, str] | None = None

    def close(self) -> None:
        client, loaded = self._connected, self._loaded
        self._connected, self._is_readable, self._loaded = None, False, None
        try:
            if loaded is not None:
                _loaded[loaded] -= 1
                if not _loaded[loaded]:
                    del _loaded[loaded]
                    with self._guard("releasing the collection again"):
                        client.release_collection(loaded[2])
        finally:
            if client is not None:
                client.close()

    def _place_exists(self) -> bool:
        return self._remote or Path(self._where).exists()

    def _names(self) -> list[str]:
        return [str(name) for name in self._client().list_collections()]

    def _client(self) -> Any:
        with OPENING:
            if self._connected is None:
                token = os.environ.get("MILVUS_TOKEN", "") if self._remote else ""
                self._connected = self._pymilvus.MilvusClient(self._where, token=token)
                if self._database:
                    known = self._connected.list_databases()
                    if self._database not in known:
                        raise unlisted("location", "database", self._database, known)
                    self._connected.use_database(self._database)
            return self._connected

    def _known(self) -> str:
        name = super()._known()
        with OPENING:
            if not self._is_readable:
                # A collection that was released answers no query; Milvus Lite opens all collections so.
                place = (self._where, self._database, name)
                if place in _loaded or self._client().get_load_state(name)["state"].name == "NotLoad":
                    _loaded[place] = _loaded.get(place, 0) + 1
                    self._loaded = place
                    self._client().load_collection(name)
                self._is_readable = True
        return name

    def _layout(self) -> _Layout:
        fields = self._client().describe_collection(self._known())["fields"]
        kinds = self._pymilvus.DataType
        (key,) = (field for field in fields if field.get("is_primary"))
        # The type numbers of all kinds of vectors start at BINARY_VECTOR.
        vectors = {field["name"]: field for field in fields if int(field["type"]) >= int(kinds.BINARY_VECTOR)}
        name = self._only_vector(name for name, field in vectors.items() if field["type"] == kinds.FLOAT_VECTOR)
        chosen = vectors.pop(name)
        sparse = {other: field["type"] == kinds.SPARSE_FLOAT_VECTOR for other, field in vectors.items()}
        return _Layout(
            key["name"],
            key["type"] == kinds.VARCHAR,
            name,
            int(chosen["params"]["dim"]),
            bool(chosen.get("nullable")),
            sparse,
        )

    def _info(self) -> StoreInfo:
        layout = self._layout()
        (counted,) = self._query("", output_fields=["count(*)"])
        rows, metric = int(counted["count(*)"]), self._metric(layout.vector)
        return StoreInfo(self.kind, self._name, rows, layout.dimension, metric)

    def _metric(self, vector: str) -> str | None:
        theirs = None
        for name in self._client().list_indexes(self._name):
            index = self._client().describe_index(self._name, name) or {}
            if index.get("field_name", vector) == vector:
                theirs = index.get("metric_type")
        return self._metric_named(theirs)

    def dimension(self) -> int:
        return self._layout().dimension

    def _create(self, dimension: int, metric: str | None, filter_fields: Sequence[str]) -> None:
        self._client().create_collection(
            self._name,
            dimension=dimension,
            primary_field_name=_ID,
            id_type="string",
            max_length=_LONGEST_ID,
            vector_field_name=self._vector or _VECTOR,
            metric_type=self.metrics[metric or "cosine"],
            consistency_level="Strong",  # a read sees all earlier writes; `verify` relies on it
        )

    def _batches(self, size: int, after: str) -> Iterator[Batch]:
        yield from map(self._batch, self._pages(size, json_cursor(after), ["*"]))

    def _listed(self) -> Iterator[list[str]]:
        key = self._layout().key
        for rows in self._pages(LISTED, None, [key]):
            yield [str(row[key]) for row in rows]

    def _pages(self, size: int, cursor: str | None, fields: list[str]) -> Iterator[list[dict[str, Any]]]:
        """Yield pages of ``size`` rows behind the key ``cursor``, in key order."""
        layout = self._layout()
        key = layout.key
        last: Any = None if cursor is None else self._key(cursor, layout.is_text)
        while True:
            rows: list[dict[str, Any]] = []
            while len(rows) < size:
                limit = min(size - len(rows), _PAGE)
                # The options of Milvus's own iterator, which give the rows with the smallest keys, in order.
                page = self._query(
                    "" if last is None else f"{key} > {_literal(last)}",
                    limit=limit,
                    iterator="True",
                    reduce_stop_for_best="True",
                    output_fields=fields,
                )
                keys = [row[key] for row in page]
                self._check_order(keys if last is None else [last, *keys])
                rows += page
                last = keys[-1] if keys else last
                if len(page) < limit:
                    break
            if not rows:
                return
            yield rows

    def _check_order(self, keys: list[Any]) -> None:
        """Raise unless the keys rise strictly: in a different order rows would be skipped silently."""
        # Compared as Milvus orders strings, by their UTF-8 bytes.
        encoded = [k.encode("utf-8", "surrogatepass") if isinstance(k, str) else k for k in keys]
        if any(a >= b for a, b in itertools.pairwise(encoded)):
            raise StoreError("Milvus does not answer in the order of its keys.", param="database")

    def _query(self, condition: str, **options: Any) -> list[dict[str, Any]]:
        options.setdefault("output_fields", ["*"])
        rows = self._client().query(self._name, condition, consistency_level="Strong", **options)
        return [dict(row) for row in rows]

    def _read(self, ids: list[str]) -> Batch:
        return self._batch(self._query(self._among(ids)))

    def _among(self, ids: Sequence[str]) -> str:
        layout = self._layout()
        return f"{layout.key} in [{', '.join(_literal(self._key(name, layout.is_text)) for name in ids)}]"

    def _key(self, name: str, is_text: bool) -> str | int:
        return name if is_text else integer_id(name)

    def _batch(self, rows: list[dict[str, Any]]) -> Batch:
        layout = self._layout()
        ids = tuple(str(row.pop(layout.key)) for row in rows)
        vectors = stacked([row.pop(layout.vector, None) for row in rows], layout.dimension)
        if layout.nullable:  # Milvus Lite returns null as zeros
            vectors[~vectors.any(axis=1)] = np.nan
        fields = tuple(_fields(row, layout) for row in rows)
        return Batch(ids, vectors, fields, json.dumps(ids[-1]) if ids else "")

    def _write(self, batch: Batch) -> None:
        layout = self._layout()
        key, vector = layout.key, layout.vector
        rows = []
        for name, values, fields in zip(batch.ids, batch.vectors, batch.fields, strict=True):
            beside = plain(fields)
            if key in beside or vector in beside:
                raise StoreError(f"Rename the field {key!r} or {vector!r}: columns have these names.", param="fields")
            # The rows of index and value of `sparse_rows`, as Milvus writes them.
            sparse = [k for k, is_sparse in layout.others.items() if is_sparse and k in beside]
            beside |= {k: {int(i): v for i, v in beside[k]} for k in sparse}
            rows.append({key: self._key(name, layout.is_text), vector: values.tolist(), **beside})
        for start in range(0, len(rows), _PAGE):
            part = slice(start, start + _PAGE)
            if not self._remote:
                self._delete_shrinking(rows[part], key)
            self._client().upsert(self._name, rows[part])

    def _delete_shrinking(self, rows: list[dict[str, Any]], key: str) -> None:
        """Delete the rows that lose a field: Milvus Lite's upsert keeps old fields that the new row lacks."""
        # Only these: a process that ends between the two requests loses the row.
        new = {str(row[key]): row for row in rows}
        old = self._client().query(self._name, filter=self._among(list(new)), output_fields=["*"])
        fewer = [str(row[key]) for row in old if {k for k, v in row.items() if v is not None} - set(new[str(row[key])])]
        if fewer:
            self._delete(fewer)

    def _search(self, vector: Any, k: int, where: Where) -> list[Match]:
        layout = self._layout()
        key, column = layout.key, layout.vector
        conditions = [f"{name} in [{', '.join(map(_literal, values))}]" for name, values in where.items()]
        (hits,) = self._client().search(
            self._name,
            data=[vector.tolist()],
            limit=k,
            anns_field=column,
            output_fields=["*"],
            filter=" and ".join(conditions),
            consistency_level="Strong",
        )
        metric = self._metric(column)
        matches = []
        for hit in hits:
            fields = _fields({k: v for k, v in hit["entity"].items() if k not in (key, column)}, layout)
            name = hit[key] if key in hit else hit["id"]
            matches.append(Match(str(name), distance_of(hit["distance"], metric), fields))
        return matches

    def _compact(self, name: str) -> str:
        self._client().flush(name)
        self._client().compact(name)
        return "Milvus wrote its log to segments (flush) and was asked to compact them."

    def _delete(self, ids: list[str]) -> None:
        self._client().delete(self._name, filter=self._among(ids))


def _fields(row: dict[str, Any], layout: _Layout) -> dict[str, Any]:
    fields = {name: value for name, value in row.items() if value is not None}
    for name in layout.others.keys() & fields.keys():
        value = fields[name]
        if isinstance(value, dict):
            fields[name] = sparse_rows(value)
        else:
            fields[name] = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else np.asarray(value)
    return fields


def _literal(key: Any) -> str:
    # Escaped: ids are data and must not change the expression.
    if not isinstance(key, str):
        return str(int(key))
    escaped = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escaped.get(character, character) for character in key) + '"'
