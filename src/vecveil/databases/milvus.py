"""Milvus: collections of Milvus Lite in a file, or of a server.

Rows are read by primary key, in its order. The server's token is taken from the variable ``MILVUS_TOKEN``.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from vecveil.databases.store import (
    Batch,
    StoreInfo,
    VectorStore,
    database_errors,
    in_order,
    no_place,
    not_there,
    only_one,
    plain,
)
from vecveil.errors import InvalidInputError, MissingDependencyError, StoreError
from vecveil.validation import check_count, check_embeddings

__all__ = ["MilvusStore"]

_OWNER = "MilvusStore"
_METRICS = {"cosine": "COSINE", "dot": "IP", "euclidean": "L2"}
_AGAIN = "Start the database, and run again: what was done stays done."
_ID, _VECTOR = "id", "vector"
_LONGEST_ID = 1024
_PAGE = 1000
"""Rows of a call: Milvus bounds the size of its answers."""


class MilvusStore(VectorStore):
    """One collection.

    Args:
        where: a file of Milvus Lite, or ``http://HOST:PORT``.
        collection: its name; None takes the only one.

    Raises:
        MissingDependencyError: pymilvus, or for a file milvus-lite, is not installed.
    """

    kind: ClassVar[str] = "milvus"

    def __init__(self, where: str, collection: str | None = None) -> None:
        self._remote = "://" in where
        try:
            import pymilvus

            if not self._remote:
                importlib.import_module("milvus_lite")  # so that it fails here with its name
        except ImportError as error:
            missing = "milvus-lite" if error.name == "milvus_lite" else "pymilvus"
            raise MissingDependencyError("Reading Milvus", missing, "milvus") from None
        self._pymilvus = pymilvus
        self._where = where
        self._name = collection or ""
        self._connected: Any = None

    @classmethod
    def open(cls, where: str, collection: str | None) -> Self:
        """Return the store; nothing is connected or created yet."""
        return cls(where, collection)

    def info(self) -> StoreInfo:
        """Return what the collection says about itself."""
        _, vector, dimension, _ = self._layout()
        with self._guard("counting rows"):
            counted = self._client().query(
                self._name, output_fields=["count(*)"], consistency_level="Strong"
            )
            metric = None
            for name in self._client().list_indexes(self._name):
                told = self._client().describe_index(self._name, name) or {}
                if told.get("field_name", vector) == vector:
                    metric = told.get("metric_type")
        ours = {theirs: name for name, theirs in _METRICS.items()}
        count = int(counted[0]["count(*)"])
        return StoreInfo(self.kind, self._name, count, dimension, ours.get(metric or ""))

    def batches(self, size: int = 1000, *, after: str = "") -> Iterator[Batch]:
        """Yield all rows by their primary key."""
        size = check_count(size, owner=_OWNER, param="size")
        key, _, _, is_text = self._layout()
        last = _last(after, is_text)
        while True:
            rows: list[dict[str, Any]] = []
            while len(rows) < size:
                asked = min(size - len(rows), _PAGE)
                found = self._query(
                    "" if last is None else f"{key} > {_literal(last)}", limit=asked
                )
                keys = [row[key] for row in found]
                _check_order(keys if last is None else [last, *keys])
                rows += found
                if len(found) < asked:
                    break
                last = keys[-1]
            if not rows:
                return
            last = rows[-1][key]
            yield self._batch(rows)

    def exists(self) -> bool:
        """Return whether the collection is there; with no name, whether there is just one."""
        if not self._remote and not Path(self._where).exists():
            return False
        names = self._names()
        return self._name in names if self._name else len(names) == 1

    def create(self, dimension: int, *, metric: str | None = None) -> None:
        """Make an empty collection with ids of text; without a metric of cosines, as Milvus does."""
        dimension = check_count(dimension, owner=_OWNER, param="dimension")
        if metric is not None and metric not in _METRICS:
            wanted = "one of " + ", ".join(_METRICS)
            raise InvalidInputError.of(_OWNER, "metric", wanted, repr(metric)[:40])
        if not self._name:
            raise InvalidInputError.of(_OWNER, "location", "one with a collection behind #", "none")
        if self.exists():
            there = self._layout()[2]
            if there != dimension:
                raise StoreError.of(_OWNER, "dimension", f"{there}, that of the collection", str(dimension),
                                    fix="Name another collection.")  # fmt: skip
            return
        with self._guard("making the collection"):
            self._client().create_collection(
                self._name,
                dimension=dimension,
                primary_field_name=_ID,
                id_type="string",
                max_length=_LONGEST_ID,
                vector_field_name=_VECTOR,
                metric_type=_METRICS[metric or "cosine"],
                consistency_level="Strong",
            )

    def write(self, batch: Batch) -> None:
        """Write the rows, at most 1000 a call; after a failure write the batch again."""
        vectors = check_embeddings(np.asarray(batch.vectors), owner=_OWNER, param="vectors")
        key, vector, dimension, is_text = self._layout()
        if vectors.shape[1] != dimension:
            wanted, got = f"of dimension {dimension}", f"dimension {vectors.shape[1]}"
            raise StoreError.of(_OWNER, "vectors", wanted, got)
        rows = []
        last = {one: at for at, one in enumerate(batch.ids)}  # of equal ids the last row counts
        for one, at in last.items():
            beside = plain(batch.fields[at], owner=_OWNER)
            if key in beside or vector in beside:
                raise StoreError.of(_OWNER, "fields", f"other than {key!r} and {vector!r}", "one of them",
                                    fix="Rename the field.")  # fmt: skip
            own = {key: one if is_text else _number(one), vector: vectors[at].tolist()}
            rows.append({**own, **beside})
        with self._guard("writing rows"):
            for start in range(0, len(rows), _PAGE):
                part = rows[start : start + _PAGE]
                if not self._remote:  # Milvus Lite would keep what the new row does not have
                    listed = ", ".join(_literal(row[key]) for row in part)
                    self._client().delete(self._name, filter=f"{key} in [{listed}]")
                self._client().upsert(self._name, part)

    def read(self, ids: Sequence[str]) -> Batch:
        """Return the rows of ``ids`` in that order."""
        key, _, _, is_text = self._layout()
        asked = [one if is_text else _number(one) for one in dict.fromkeys(ids)]
        rows: list[dict[str, Any]] = []
        for start in range(0, len(asked), _PAGE):
            part = ", ".join(_literal(one) for one in asked[start : start + _PAGE])
            rows += self._query(f"{key} in [{part}]")
        found = self._batch(rows)
        order = in_order(ids, found.ids, owner=_OWNER)
        return Batch(tuple(ids), found.vectors[order], tuple(found.fields[at] for at in order))

    def close(self) -> None:
        """Let go of the client."""
        if self._connected is not None:
            self._connected.close()
        self._connected = None

    def _query(self, wanted: str, *, limit: int | None = None) -> list[dict[str, Any]]:
        # Its own iterator asks so: the rows with the smallest keys, in their order.
        ordered: dict[str, Any] = {}
        if limit is not None:
            ordered = {"limit": limit, "iterator": "True", "reduce_stop_for_best": "True"}
        with self._guard("reading rows"):
            client = self._client()
            found = client.query(
                self._name, wanted, output_fields=["*"], consistency_level="Strong", **ordered
            )
            return [dict(row) for row in found]

    def _batch(self, rows: list[dict[str, Any]]) -> Batch:
        key, vector, dimension, _ = self._layout()
        ids = tuple(str(row.pop(key)) for row in rows)
        vectors = np.asarray([row.pop(vector) for row in rows], dtype=np.float32)
        fields = tuple({k: v for k, v in row.items() if v is not None} for row in rows)
        cursor = json.dumps(ids[-1]) if ids else ""
        return Batch(ids, vectors.reshape(len(ids), dimension), fields, cursor)

    def _layout(self) -> tuple[str, str, int, bool]:
        """Return the key's name, the vector's name and dimension, and whether the key is a text."""
        if not self._remote and not Path(self._where).exists():
            raise no_place(self._where, "a file of Milvus Lite", owner=_OWNER)
        self._name = self._name or only_one(self._names(), owner=_OWNER, what="collection")
        names = self._names()
        if self._name not in names:
            raise not_there(self._name, names, owner=_OWNER, what="collection")
        kinds = self._pymilvus.DataType
        with self._guard("the collection's description"):
            fields = self._client().describe_collection(self._name)["fields"]
        (key,) = (field for field in fields if field.get("is_primary"))
        vectors = [field for field in fields if int(field["type"]) >= int(kinds.BINARY_VECTOR)]
        if len(vectors) != 1 or vectors[0]["type"] != kinds.FLOAT_VECTOR:
            raise StoreError.of(_OWNER, "collection", "one with a single field of vectors of floats",
                                f"{len(vectors)}")  # fmt: skip
        (vector,) = vectors
        is_text = key["type"] == kinds.VARCHAR
        return key["name"], vector["name"], int(vector["params"]["dim"]), is_text

    def _names(self) -> list[str]:
        with self._guard("the list of collections"):
            return [str(one) for one in self._client().list_collections()]

    def _client(self) -> Any:
        if self._connected is None:
            token = os.environ.get("MILVUS_TOKEN", "") if self._remote else ""
            self._connected = self._pymilvus.MilvusClient(self._where, token=token)
        return self._connected

    def _guard(self, doing: str) -> Any:
        return database_errors(_OWNER, doing, _AGAIN)


def _last(after: str, is_text: bool) -> Any:
    """Return the key that a cursor holds; JSON, so that no key is mistaken for the start."""
    if not after:
        return None
    try:
        last = json.loads(after)
        if isinstance(last, str):
            return last if is_text else int(last)
    except (TypeError, ValueError):
        pass
    raise InvalidInputError.of(_OWNER, "after", "a cursor of this store", "something else")


def _literal(key: Any) -> str:
    """Return a key as an expression of Milvus has it: a quoted text, or a number."""
    if not isinstance(key, str):
        return str(int(key))
    escaped = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escaped.get(one, one) for one in key) + '"'


def _check_order(keys: list[Any]) -> None:
    """Refuse keys that do not rise: what a database that orders otherwise leaves out would be lost without a word."""
    compared = [k.encode("utf-8", "surrogatepass") if isinstance(k, str) else k for k in keys]
    if any(one >= other for one, other in itertools.pairwise(compared)):
        raise StoreError.of(
            _OWNER, "database", "one that answers in the order of its keys", "another"
        )


def _number(one: str) -> int:
    try:
        return int(one)
    except ValueError:
        raise InvalidInputError.of(
            _OWNER, "ids", "whole numbers, as the collection's key is", "others"
        ) from None
