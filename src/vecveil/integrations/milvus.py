"""Milvus: a client that inserts protected vectors and asks with protected ones.

milvus = ProtectedMilvus(MilvusClient("notes.db"), "health.vecveil")
milvus.create_collection("notes")
milvus.insert("notes", [{"id": 1, "text": "..."}])
milvus.search("notes", ["a question"], limit=10)
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vecveil.errors import (
    IncompatibleError,
    InvalidInputError,
    MissingDependencyError,
    StoreError,
    VecveilError,
    message,
)
from vecveil.integrations.items import Items, Vectors
from vecveil.integrations.opening import KeySource
from vecveil.protector.policy import STRONGER, QueryProtection
from vecveil.types import Embeddings, Texts

if TYPE_CHECKING:
    from vecveil.accounting import Ledger
    from vecveil.encoders import Encoder
    from vecveil.protector import Protector

__all__ = ["ProtectedMilvus"]

_OWNER = "ProtectedMilvus"
Rows = Mapping[str, Any] | Sequence[Mapping[str, Any]]


class ProtectedMilvus:
    """Around a ``MilvusClient``: what is inserted, and what is asked.

    Only the methods below protect; ``client`` is the client itself, for everything else.

    Args:
        client: a ``MilvusClient``, the path of a file of Milvus Lite, or the URL of a server.
        protector: or the path of its file.
        query_protection: ``same``, ``stronger`` or ``map-only``; see `ReleasePolicy`.
        query_noise: times the documents' noise, for ``stronger``.
        key: keys, the path of a key file, or ``env:NAME``; never written anywhere.
        ledger: or the path of its file. What was counted stays counted when the database refuses rows.
        encoder: of the texts; None takes the protector's own.
        token: of a server that is given by its URL.
        id_field, vector_field, text_field: their names.
        keep_text: also insert the value of ``text_field``, in clear.

    Raises:
        MissingDependencyError: pymilvus, or for a file milvus-lite, is not installed.
    """

    def __init__(
        self,
        client: Any,
        protector: Protector | str | os.PathLike[str],
        *,
        query_protection: QueryProtection = "same",
        query_noise: float = STRONGER,
        key: KeySource = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        encoder: Encoder | None = None,
        token: str = "",
        id_field: str = "id",
        vector_field: str = "vector",
        text_field: str = "text",
        keep_text: bool = False,
    ) -> None:
        self.items = Items(
            protector,
            query_protection=query_protection,
            query_noise=query_noise,
            key=key,
            ledger=ledger,
            encoder=encoder,
            owner=_OWNER,
        )
        self.id_field, self.vector_field = id_field, vector_field
        self.text_field, self.keep_text = text_field, keep_text
        self._own = isinstance(client, str | os.PathLike)
        self.client = _opened(os.fspath(client), token) if self._own else client
        self._checked: set[str] = set()

    def create_collection(self, collection_name: str, **options: Any) -> None:
        """Make a collection of the dimension that the protector releases.

        Args:
            options: of ``MilvusClient.create_collection``, such as ``id_type="string", max_length=64``.
        """
        given = options.pop("dimension", self.items.dimension)
        if given != self.items.dimension:
            self._refuse_dimension(given)
        options.setdefault("primary_field_name", self.id_field)
        options.setdefault("vector_field_name", self.vector_field)
        self._call("create_collection", collection_name, dimension=given, **options)

    def insert(self, collection_name: str, data: Rows, **options: Any) -> Any:
        """Protect and insert rows; returns what the client returns.

        Args:
            data: a row or rows: each with a clean vector under ``vector_field``, or else a text under ``text_field``,
                which is encoded. The text itself is left out unless ``keep_text``.
            options: of the client's method.

        Raises:
            InvalidInputError: a row with neither, NaN.
            IncompatibleError: vectors, or the collection's, of another dimension.
            StoreError: the database is gone or refused.
        """
        return self._call("insert", collection_name, self._rows(collection_name, data), **options)

    def upsert(self, collection_name: str, data: Rows, **options: Any) -> Any:
        """Protect and upsert rows, as `insert` does."""
        return self._call("upsert", collection_name, self._rows(collection_name, data), **options)

    def search(
        self,
        collection_name: str,
        data: str | Texts | Embeddings | Sequence[Sequence[float]],
        *,
        limit: int = 10,
        **options: Any,
    ) -> Any:
        """Return what the client finds for texts, one text, or clean vectors (N, n): a list of hits for each.

        Args:
            options: of ``MilvusClient.search``, such as ``filter`` and ``output_fields``.
        """
        self._check_collection(collection_name)
        Y = self.items.queries([data] if isinstance(data, str) else data)  # type: ignore[arg-type]
        return self._call(
            "search", collection_name, data=Y.tolist(), limit=limit, anns_field=self.vector_field, **options
        )  # fmt: skip

    def close(self) -> None:
        """Close the client, unless it was the caller's."""
        if self._own:
            self.client.close()

    def __enter__(self) -> ProtectedMilvus:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _rows(self, collection_name: str, data: Rows) -> list[dict[str, Any]]:
        self._check_collection(collection_name)
        given = [data] if isinstance(data, Mapping) else list(data)
        if not all(isinstance(row, Mapping) for row in given):
            raise InvalidInputError.of(_OWNER, "data", "rows by field", "something else")
        vectors = self._protected(given)
        rows = []
        for row, vector in zip(given, vectors, strict=True):
            kept = {k: v for k, v in row.items() if self.keep_text or k != self.text_field}
            rows.append({**kept, self.vector_field: vector.tolist()})
        self.items.warn_if_text(
            [{k: v for k, v in row.items() if k != self.vector_field} for row in rows], None,
            f"the Milvus collection {collection_name!r}",
            "Leave the text out, and keep it where the clean vectors may be.",
            kept=self.keep_text and any(self.text_field in row for row in rows),
        )  # fmt: skip
        return rows

    def _protected(self, given: Sequence[Mapping[str, Any]]) -> Vectors:
        by_vector = [row.get(self.vector_field) is not None for row in given]
        named = all(self.id_field in row for row in given)
        ids = [row[self.id_field] for row in given] if named else None
        if given and all(by_vector):
            try:
                X = np.asarray([row[self.vector_field] for row in given], dtype=np.float64)
            except (TypeError, ValueError):
                raise InvalidInputError.of(
                    _OWNER, "data", "vectors of numbers, all of one dimension", "others"
                ) from None
            return self.items.documents(X, ids)[0]
        texts = [row.get(self.text_field) for row in given]
        if any(by_vector) or not all(isinstance(text, str) for text in texts):
            wanted = (
                f"rows that all have {self.vector_field!r}, or all a text in {self.text_field!r}"
            )
            raise InvalidInputError.of(_OWNER, "data", wanted, "others")
        return self.items.documents(texts, ids)[0]  # type: ignore[arg-type]

    def _check_collection(self, name: str) -> None:
        """Refuse a collection of another dimension; asked once each."""
        if name in self._checked:
            return
        fields = self._call("describe_collection", name)["fields"]
        for field in fields:
            size = field.get("params", {}).get("dim")
            if field["name"] == self.vector_field and size and int(size) != self.items.dimension:
                self._refuse_dimension(size)
        self._checked.add(name)

    def _refuse_dimension(self, size: Any) -> None:
        raise IncompatibleError.of(_OWNER, "collection",
                                   f"one with vectors of dimension {self.items.dimension}", f"dimension {size}",
                                   "The protector releases others.", "Make another collection for it.")  # fmt: skip

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call the client; what it raises may hold rows, and becomes an error that holds none."""
        try:
            return getattr(self.client, method)(*arguments, **options)
        except VecveilError:
            raise
        except Exception as error:
            raise StoreError(
                message(_OWNER, method, "answered by Milvus", type(error).__name__,
                        fix="See that the server runs, the collection is there and rows fit it, then do it again.")
            ) from None  # fmt: skip


def _opened(where: str, token: str) -> Any:
    try:
        from pymilvus import MilvusClient

        if "://" not in where:
            importlib.import_module("milvus_lite")  # so that it fails here with its name
    except ImportError as error:
        missing = "milvus-lite" if error.name == "milvus_lite" else "pymilvus"
        raise MissingDependencyError("A Milvus client", missing, "milvus") from None
    try:
        return MilvusClient(where, token=token)
    except Exception as error:
        raise StoreError(
            message(_OWNER, "client", "a file of Milvus Lite or a server that answers", type(error).__name__,
                    fix="See that the server runs, or that the file can be written and no other process has it.")
        ) from None  # fmt: skip
