"""Qdrant: a client that upserts protected vectors and asks with protected ones.

qdrant = ProtectedQdrant(QdrantClient(path="notes"), "health.vecveil")
qdrant.create_collection("notes")
qdrant.add("notes", ["a", "b"], ["...", "..."])
qdrant.query_points("notes", "a question", limit=10).points
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vecveil.errors import (
    InvalidInputError,
    StoreError,
    VecveilError,
    message,
)
from vecveil.integrations.items import Items
from vecveil.integrations.opening import KeySource
from vecveil.integrations.qdrant_collections import config_of, name_of_vectors, opened
from vecveil.integrations.qdrant_points import (
    ORIGINAL_ID,
    point_ids,
    restore_ids,
    rows_of,
    strings,
    with_original,
)
from vecveil.protector.policy import STRONGER, QueryProtection
from vecveil.types import Embeddings, Texts

if TYPE_CHECKING:
    from vecveil.accounting import Ledger
    from vecveil.encoders import Encoder
    from vecveil.protector import Protector

__all__ = ["ProtectedQdrant"]

_OWNER = "ProtectedQdrant"
_CHUNK = 256  # rows a request: a server takes 32 MiB


class ProtectedQdrant:
    """Around a ``QdrantClient``: what is upserted, and what is asked.

    Only the methods below protect; ``client`` is the client itself, for everything else.

    Args:
        client: a ``QdrantClient``, ``:memory:``, a folder, or the URL of a server.
        protector: or the path of its file.
        query_protection: ``same``, ``stronger`` or ``map-only``; see `ReleasePolicy`.
        query_noise: times the documents' noise, for ``stronger``.
        key: keys, the path of a key file, or ``env:NAME``; never written anywhere.
        ledger: or the path of its file. What was counted stays counted when the database refuses rows.
        encoder: of the texts; None takes the protector's own.
        api_key: of a server that is given by its URL.
        vector_name: of the vectors; None takes the only ones of a collection.
        text_field: where a payload has the text.
        keep_text: also store the text in the payload under ``text_field``, in clear.

    Raises:
        InvalidInputError: an ``AsyncQdrantClient``.
        MissingDependencyError: qdrant-client is not installed.
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
        api_key: str | None = None,
        vector_name: str | None = None,
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
        self._dimension = self.items.dimension
        self.vector_name = vector_name
        self.text_field, self.keep_text = text_field, keep_text
        if inspect.iscoroutinefunction(getattr(client, "upsert", None)):
            raise InvalidInputError.of(_OWNER, "client", "a QdrantClient", "an asynchronous one")
        self._own = isinstance(client, str | os.PathLike)
        self.client = opened(os.fspath(client), api_key, owner=_OWNER) if self._own else client
        self._vectors: dict[str, str] = {}

    def create_collection(
        self,
        collection_name: str,
        *,
        distance: str = "Cosine",
        vectors_config: Any = None,
        **options: Any,
    ) -> Any:
        """Make a collection of the dimension that the protector releases.

        Args:
            distance: ``Cosine``, ``Dot``, ``Euclid`` or ``Manhattan``.
            vectors_config: of ``QdrantClient.create_collection``, in the place of ``distance``.
            options: of that method.

        Raises:
            IncompatibleError: ``vectors_config`` of another dimension.
            StoreError: the collection is there already, or the database is gone.
        """
        if vectors_config is None:
            vectors_config = config_of(self._dimension, distance, self.vector_name, owner=_OWNER)
        name_of_vectors(vectors_config, self.vector_name, self._dimension, owner=_OWNER)
        return self._call(
            "create_collection", collection_name, vectors_config=vectors_config, **options
        )

    def upsert(self, collection_name: str, points: Any, **options: Any) -> Any:
        """Protect and upsert points as Qdrant has them; returns what the client returns last.

        Args:
            points: each a ``PointStruct`` or a mapping with an ``id``, a ``payload``, and a clean vector under
                ``vector``, or else a text under ``text_field`` of the payload, which is encoded; or a ``Batch``.
            options: of the client's method.

        Raises:
            InvalidInputError: ids that are no numbers, UUIDs or texts, or come twice; a point with neither vector nor
                text; NaN.
            IncompatibleError: vectors, or the collection's, of another dimension.
            StoreError: the database is gone or refused.
        """
        name = self._vectors_of(collection_name)
        ids, items, payloads = rows_of(points, name, self.text_field, owner=_OWNER)
        return self._write(collection_name, ids, items, payloads, options)

    def add(
        self,
        collection_name: str,
        ids: Sequence[Any],
        items: Texts | Embeddings,
        payloads: Sequence[Mapping[str, Any] | None] | None = None,
        **options: Any,
    ) -> Any:
        """Protect and upsert ``items``: texts, or clean vectors (N, n); ids and errors as for `upsert`."""
        self._vectors_of(collection_name)
        rows = len(items)
        if len(ids) != rows or (payloads is not None and len(payloads) != rows):
            got = f"{len(ids)} ids for {rows} items"
            raise InvalidInputError.of(
                f"{_OWNER}.add", "ids", "one for each item, as payloads", got
            )
        return self._write(collection_name, ids, items, payloads or [None] * rows, options)

    def query_points(
        self,
        collection_name: str,
        query: str | Embeddings | Sequence[float],
        *,
        limit: int = 10,
        with_payload: Any = True,
        **options: Any,
    ) -> Any:
        """Return what the client finds for one text, or one clean vector (n,): an answer with ``points``.

        Args:
            with_payload, options: of ``QdrantClient.query_points``, such as ``query_filter``; not ``prefetch``, whose
                vectors would not be protected.

        Raises:
            InvalidInputError: NaN, more than one query, ``prefetch``.
        """
        if options.get("prefetch") is not None:
            raise InvalidInputError.of(f"{_OWNER}.query_points", "prefetch", "None", "another",
                                       "Its vectors would not be protected.",
                                       "Protect them with items.query, and use client.query_points.")  # fmt: skip
        name = self._vectors_of(collection_name)
        vector = self.items.query(query).tolist()
        if name:
            options["using"] = name
        found = self._call(
            "query_points", collection_name, query=vector, limit=limit,
            with_payload=with_original(with_payload), **options,
        )  # fmt: skip
        restore_ids(found.points, payload=bool(with_payload))
        return found

    def count(self, collection_name: str, **options: Any) -> int:
        """Return the number of points."""
        return int(self._call("count", collection_name, **options).count)

    def close(self) -> None:
        """Close the client, unless it was the caller's."""
        if self._own:
            self.client.close()

    def __enter__(self) -> ProtectedQdrant:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _write(
        self,
        collection_name: str,
        ids: Sequence[Any],
        items: Any,
        payloads: Sequence[Mapping[str, Any] | None],
        options: dict[str, Any],
    ) -> Any:
        from qdrant_client import models

        placed = point_ids(ids, owner=_OWNER)  # before the ledger counts anything
        if any(payload and ORIGINAL_ID in payload for payload in payloads):
            raise InvalidInputError.of(
                _OWNER, "payload", f"without {ORIGINAL_ID!r}, which holds ids", "one with it"
            )
        vectors, texts = self.items.documents(items, ids)
        of_rows: Sequence[str | None] = texts or [None] * len(ids)
        kept = [self._payload(*row) for row in zip(payloads, of_rows, strict=True)]
        self.items.warn_if_text(
            [strings(payload) for payload in kept], texts,
            f"the Qdrant collection {collection_name!r}",
            "Leave the text out, and keep it where the clean vectors may be.",
            kept=self.keep_text and any(self.text_field in payload for payload in kept),
        )  # fmt: skip
        name = self._vectors[collection_name]
        points = []
        for (place, original), vector, payload in zip(placed, vectors, kept, strict=True):
            beside = payload if original is None else {**payload, ORIGINAL_ID: original}
            values = vector.tolist()
            points.append(
                models.PointStruct(
                    id=place, vector={name: values} if name else values, payload=beside
                )
            )
        result = None
        for start in range(0, len(points), _CHUNK):
            result = self._call(
                "upsert", collection_name, points[start : start + _CHUNK], **options
            )
        return result

    def _payload(self, given: Mapping[str, Any] | None, text: str | None) -> dict[str, Any]:
        payload = dict(given or {})
        if not self.keep_text:
            payload.pop(self.text_field, None)
        elif text is not None:
            payload[self.text_field] = text
        return payload

    def _vectors_of(self, collection_name: str) -> str:
        """Return the name of the collection's vectors, asked once; refuse those of another dimension."""
        if collection_name not in self._vectors:
            config = self._call("get_collection", collection_name).config
            self._vectors[collection_name] = name_of_vectors(
                config.params.vectors, self.vector_name, self._dimension, owner=_OWNER
            )
        return self._vectors[collection_name]

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call the client; what it raises may hold rows, and becomes an error that holds none."""
        try:
            return getattr(self.client, method)(*arguments, **options)
        except VecveilError:
            raise
        except Exception as error:
            raise StoreError(
                message(_OWNER, method, "answered by Qdrant", type(error).__name__,
                        fix="See that the server runs, the collection is there and rows fit it, then do it again.")
            ) from None  # fmt: skip
