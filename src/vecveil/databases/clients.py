"""Base classes of the clients and tables that protect what programs write, and `Items`, the rows they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from vecveil.databases.release import Encode, Vectors, WrappedEmbedder, warn_plaintext
from vecveil.databases.store import Match, database_errors
from vecveil.encoders import load_encoder
from vecveil.errors import IncompatibleError, InvalidInputError, unknown_name
from vecveil.protector.policy import ReleasePolicy
from vecveil.protector.protector import encoder_fingerprint
from vecveil.randomness import ItemId
from vecveil.types import Embeddings, Texts

# A value with this many words counts as a text, for the warning, if the texts are unknown.
_TEXT_WORDS = 5


class Items:
    """Protects the rows and queries of one database.

    Args:
        policy: release policy.
        encoder: a name or object for `vecveil.load_encoder`, or a function from a list of texts to vectors; None uses
            the protector's encoder. Without a fingerprint it is verified by the vectors of a dozen fixed sentences
            before its first use.
        query_encoder: function for queries, if it differs.
        owner: class name for errors.

    Raises:
        IncompatibleError: the protector was fitted for another encoder.
    """

    def __init__(
        self,
        policy: ReleasePolicy,
        encoder: Any = None,
        query_encoder: Encode | None = None,
        *,
        owner: str,
    ) -> None:
        self.owner, self.policy = owner, policy
        self._warned = False
        if isinstance(encoder, str) or not (
            encoder is None or callable(encoder) or hasattr(encoder, "encode")
        ):
            encoder = load_encoder(encoder)
        self._encode: Encode | None = getattr(encoder, "encode", encoder)
        self._embedder = WrappedEmbedder(policy, owner=owner)
        if hasattr(encoder, "encode"):
            policy.protector.check_encoder(encoder)
            known = (policy.protector.encoder_info.fingerprint, encoder_fingerprint(encoder))
            if None not in known:
                self._embedder.verified = True
            elif sentences := self._embedder.probe():
                self._embedder.compare(encoder.encode(sentences))
        self._encode_query = query_encoder or self._encode

    @property
    def dimension(self) -> int:
        """Dimension of the released vectors."""
        return self.policy.protector.released_dimension

    def documents(
        self, items: Texts | Embeddings, ids: Sequence[Any] | None = None
    ) -> tuple[Vectors, list[str] | None]:
        """Return the vectors to store for ``items``, (N, m) float32, and their texts or None.

        Args:
            items: texts, or clean vectors (N, n).
            ids: item ids for keyed noise and the ledger.
        """
        names = None if ids is None else [_item_id(value) for value in ids]
        return self._released(items, names, query=False)

    def queries(self, items: Texts | Embeddings) -> Vectors:
        """Return the protected query vectors (N, m) of texts or clean vectors (N, n)."""
        return self._released(items, None, query=True)[0]

    def query(self, item: str | Embeddings | Sequence[float]) -> Vectors:
        """Return the protected query vector (m,) of one text or one clean vector (n,)."""
        rows: Any = [item] if isinstance(item, str) else np.atleast_2d(_as_array(item))
        if len(rows) != 1:
            owner = f"{self.owner}.search"
            raise InvalidInputError.of(
                owner, "query", "one text or one vector", f"{len(rows)} rows"
            )
        vector: Vectors = self.queries(rows)[0]
        return vector

    def _released(
        self, items: Any, ids: Sequence[ItemId] | None, *, query: bool
    ) -> tuple[Vectors, list[str] | None]:
        policy, texts = self.policy, _as_texts(items)
        if texts is not None:
            encode = self._encode_query if query else self._encode
            Y = self._embedder.embed(texts, encode, ids=ids, query=query, verify=self._encode)
        elif policy.rewrites_texts:
            raise InvalidInputError.of(self.owner, "items", "texts for a method that rewrites texts", "vectors",
                                       "It changes texts before they are encoded, and leaves vectors as they are.",
                                       "Pass the texts.")  # fmt: skip
        else:
            Y = (policy.queries if query else policy.documents)(_as_array(items), ids=ids)
        return np.ascontiguousarray(Y, dtype=np.float32), texts

    def check_dimension(self, dimension: Any, noun: str) -> None:
        """Raise IncompatibleError unless ``dimension`` is that of the released vectors."""
        if dimension != self.dimension:
            raise IncompatibleError.of(self.owner, noun, f"one with vectors of dimension {self.dimension}",
                                       f"dimension {dimension}", "The protector releases others.",
                                       f"Make another {noun} for it.", code="E-INCOMPATIBLE-DIMENSION")  # fmt: skip

    def warn_if_text(
        self,
        fields: Sequence[Mapping[str, Any]] | None,
        texts: Sequence[str] | None,
        where: str,
        fix: str = "Leave the text out, and keep it where the clean vectors may be.",
        *,
        kept: bool = False,
    ) -> None:
        """Warn once if texts are stored beside their vectors.

        Args:
            fields: values stored beside each vector.
            texts: texts of the items, if known.
            where, fix: see `warn_plaintext`.
            kept: the caller chose to store the texts.
        """
        if not self._warned and (kept or _holds_text(fields, texts)):
            self._warned = True
            warn_plaintext(where, fix, stacklevel=4)


class _Closing(ABC):
    @abstractmethod
    def close(self) -> None:
        """Close what this object opened."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class ProtectedClient(_Closing):
    """A database's client with protected rows and queries; ``client`` is the underlying one, which protects nothing.

    Args:
        own: `close` closes the client.
    """

    def __init__(
        self, client: Any, items: Items, *, text_field: str, keep_text: bool, own: bool
    ) -> None:
        self.client, self.items, self._own = client, items, own
        self.text_field, self.keep_text = text_field, keep_text

    def close(self) -> None:
        """Close the client if this object opened it."""
        if self._own:
            self.client.close()

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        fix = "Check that the server runs, the collection exists and the rows fit it, then repeat the call."
        with database_errors(self.items.owner, method, fix):
            return getattr(self.client, method)(*arguments, **options)

    def _vectors_or_texts(
        self, vectors: Sequence[Any], texts: Sequence[Any], param: str, dtype: type[np.floating[Any]]
    ) -> Any:  # fmt: skip
        """Return the vectors as an array if every row has one, else the texts.

        Raises:
            InvalidInputError: rows of both kinds, a row of neither, or vectors of several dimensions.
        """
        owner = self.items.owner
        if len(vectors) and all(vector is not None for vector in vectors):
            try:
                return np.asarray(vectors, dtype=dtype)
            except (TypeError, ValueError):
                expected = "vectors of numbers, all of one dimension"
                raise InvalidInputError.of(owner, param, expected, "others") from None
        mixed = any(vector is not None for vector in vectors)
        if mixed or not all(isinstance(text, str) for text in texts):
            expected = f"rows that all have a vector, or all a text in {self.text_field!r}"
            raise InvalidInputError.of(owner, param, expected, "others")
        return texts


class SqlTable(_Closing):
    """A table with protected vectors."""

    _database: ClassVar[str]

    def __init__(
        self, store: Any, items: Items, table: str, metric: str, columns: Mapping[str, str], *, keep_text: bool
    ) -> None:  # fmt: skip
        if metric not in store.metrics:
            raise unknown_name(items.owner, "metric", store.metrics, metric)
        self.store, self.items, self.table = store, items, table
        self.metric, self.keep_text = metric, keep_text
        self.id_column, self.vector_column, self.text_column = (
            self._check_column(name, param) for param, name in columns.items()
        )

    @abstractmethod
    def _check_column(self, name: Any, param: str) -> str:
        """Return ``name``, or raise for a name that the database cannot hold as a column."""

    def add(
        self,
        ids: Sequence[Any],
        items: Texts | Embeddings,
        fields: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Protect ``items`` and write them in one transaction; rows with the same ids are replaced.

        Args:
            ids: primary keys, which are also the item ids of keyed noise and the ledger.
            items: texts, or clean vectors (N, n).
            fields: further values per item by column; the same columns for all items.

        Raises:
            InvalidInputError: wrong number of ids or fields, duplicate ids, or NaN.
            IncompatibleError: a dimension differs from the protector's.
            StoreError: the database failed; nothing is written.
        """
        # All checks come before `documents`, which counts the release in the ledger.
        names = self._check_rows(ids, items, fields)
        self._check_dimension()
        vectors, texts = self.items.documents(items, ids)
        rows = [dict(row) for row in fields or [{}] * len(vectors)]
        kept = texts is not None and self.keep_text
        self.items.warn_if_text(
            fields, texts, f"the {self._database} table {self.table!r}", kept=kept
        )
        if texts is not None and kept:
            names = [*names, self.text_column]
            rows = [{**row, self.text_column: text} for row, text in zip(rows, texts, strict=True)]
        self.store.insert(ids, vectors, names, rows)

    def search(
        self,
        query: str | Embeddings | Sequence[float],
        k: int = 10,
        *,
        where: Mapping[str, Any] | None = None,
    ) -> list[Match]:
        """Return the ``k`` nearest rows, nearest first; sqlite-vec returns at most 4096.

        Args:
            query: a text, or a clean vector (n,), released as a query.
            where: required values of columns.

        Raises:
            StoreError: the database failed.
        """
        self._check_dimension()
        # Column names become part of the statement; values are bound.
        for name in where or {}:
            self._check_column(name, "where")
        matches: list[Match] = self.store.search_where(
            self.items.query(query),
            int(k),
            self.metric,
            {name: [value] for name, value in (where or {}).items()},
        )
        return matches

    def count(self) -> int:
        """Return the number of rows."""
        return int(self.store.count())

    def close(self) -> None:
        """Close the connection if this object opened it."""
        self.store.close()

    def _check_dimension(self) -> None:
        if dimension := self.store.dimension():  # 0: the column accepts any
            self.items.check_dimension(dimension, "table")

    def _check_rows(
        self, ids: Sequence[Any], items: Any, fields: Sequence[Mapping[str, Any]] | None
    ) -> list[str]:
        """Return the names of the fields."""
        owner, rows = f"{self.items.owner}.add", len(items)
        if len(ids) != rows or len(set(ids)) != rows or len(fields or ids) != rows:
            got = f"{len(set(ids))} different ids for {rows} items"
            raise InvalidInputError.of(owner, "ids", "one for each item and its fields", got)
        names = [self._check_column(name, "fields") for name in fields[0]] if fields else []
        own = {self.id_column, self.vector_column, *([self.text_column] if self.keep_text else [])}
        if own & set(names) or any(set(row) != set(names) for row in fields or ()):
            expected = "the same columns for all, beside id, vector and text"
            raise InvalidInputError.of(owner, "fields", expected, "others")
        return names


def _holds_text(fields: Sequence[Mapping[str, Any]] | None, texts: Sequence[str] | None) -> bool:
    for i, row in enumerate(fields or ()):
        for value in row.values():
            if not isinstance(value, str):
                continue
            # maxsplit bounds the work on long values.
            if len(value.split(maxsplit=_TEXT_WORDS)) >= _TEXT_WORDS:
                return True
            if texts is not None and value.strip() and value.strip() == texts[i].strip():
                return True
    return False


def _as_texts(items: Any) -> list[str] | None:
    """Return ``items`` as texts, or None if they are not texts."""
    # A single str is a sequence of strings too, and must not be stored letter by letter.
    if isinstance(items, str | bytes) or not isinstance(items, Sequence):
        return None
    if len(items) and not all(isinstance(item, str) for item in items):
        return None
    return list(items)


def _as_array(items: Any) -> Any:
    """Return lists of numbers as an array, other values unchanged."""
    if isinstance(items, list | tuple) and len(items):
        try:
            return np.asarray(
                items, dtype=np.float64
            )  # keyed noise depends on the bits of the values
        except (TypeError, ValueError):
            return items
    return items


def _item_id(value: Any) -> ItemId:
    # Equal ids must get equal keyed noise: NumPy's 7 is 7, and a UUID is its text.
    if isinstance(value, np.integer):
        return int(value)
    return value if isinstance(value, str | int | bytes) else str(value)
