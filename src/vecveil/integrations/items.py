"""Documents and queries on their way to a database: texts or clean vectors in, vectors to store or to compare out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vecveil.encoders.protocol import checked_vectors
from vecveil.errors import InvalidInputError
from vecveil.integrations.embedders import WrappedEmbedder
from vecveil.integrations.opening import KeySource, open_policy, warn_plaintext
from vecveil.protector.policy import STRONGER, QueryProtection, ReleasePolicy
from vecveil.protector.protector import encoder_fingerprint
from vecveil.randomness import ItemId
from vecveil.types import Embeddings, Texts

if TYPE_CHECKING:
    from vecveil.accounting import Ledger
    from vecveil.encoders import Encoder
    from vecveil.protector import Protector

__all__ = ["Items", "Match", "Vectors"]

Vectors = npt.NDArray[np.float32]
_TEXT_WORDS = 5
"""A value of at least so many words counts as a text where the texts themselves are not at hand."""


class Match(NamedTuple):
    """One answer of a search.

    Attributes:
        id: of the row.
        distance: as the database measures it; smaller is nearer.
        fields: what lies beside the vector.
    """

    id: Any
    distance: float
    fields: dict[str, Any]


class Items:
    """A policy, and how one database's rows and queries pass it.

    Args:
        protector: or the path of its file.
        query_protection: ``same``, ``stronger`` or ``map-only``; see `ReleasePolicy`.
        query_noise: times the documents' noise, for ``stronger``.
        key: keys, the path of a key file, or ``env:NAME``; held in memory alone.
        ledger: or the path of its file.
        encoder: of the texts; None takes the protector's own. One without a fingerprint is asked for a dozen fixed
            sentences, to see that the protector was fitted for it.
        owner: the class that is named in errors.

    Raises:
        InvalidInputError, ProtectorFileError, KeyFileError, LedgerError: what `open_policy` raises.
        IncompatibleError: ``encoder`` is not the one that the protector was fitted for.
    """

    def __init__(
        self,
        protector: Protector | str | os.PathLike[str],
        *,
        query_protection: QueryProtection = "same",
        query_noise: float = STRONGER,
        key: KeySource = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        encoder: Encoder | None = None,
        owner: str,
    ) -> None:
        self.owner = owner
        self.policy: ReleasePolicy = open_policy(
            protector,
            query_protection=query_protection,
            query_noise=query_noise,
            key=key,
            ledger=ledger,
        )
        if encoder is not None:
            self.policy.protector.check_encoder(encoder)
            wrapped = WrappedEmbedder(self.policy, owner=owner)
            if encoder_fingerprint(encoder) is None and (sentences := wrapped.probe()):
                wrapped.compare(encoder.encode(sentences))  # it shows nothing else to compare
        self._encoder = encoder
        self._warned = False

    @property
    def dimension(self) -> int:
        """Of what is stored."""
        return self.policy.protector.released_dimension

    def documents(
        self, items: Texts | Embeddings, ids: Sequence[Any] | None = None
    ) -> tuple[Vectors, list[str] | None]:
        """Return what is stored for ``items``, (N, m) float32, and their texts if they are texts.

        Args:
            items: texts, or clean vectors (N, n).
            ids: one for each item; they name the items to a key and a ledger, a UUID by its text.
        """
        named = None if ids is None else [_item_id(one) for one in ids]
        return self._pass(items, named, query=False)

    def queries(self, items: Texts | Embeddings) -> Vectors:
        """Return what is compared with stored vectors for ``items``: texts, or clean vectors (N, n)."""
        return self._pass(items, None, query=True)[0]

    def query(self, item: str | Embeddings | Sequence[float]) -> Vectors:
        """Return what is compared for one text, or one clean vector (n,): (m,) float32."""
        one: Any = [item] if isinstance(item, str) else np.atleast_2d(_array(item))
        if len(one) != 1:
            raise InvalidInputError.of(
                f"{self.owner}.search", "query", "one text or one vector", f"{len(one)} rows"
            )
        vector: Vectors = self.queries(one)[0]
        return vector

    def _pass(
        self, items: Any, ids: Sequence[ItemId] | None, *, query: bool
    ) -> tuple[Vectors, list[str] | None]:
        texts = _texts(items)
        if texts is None:
            X = _array(items)
            if self.policy.rewrites_texts:
                raise InvalidInputError.of(self.owner, "items", "texts for a method that rewrites texts",
                                           "vectors",
                                           "It changes texts before they are encoded, and leaves vectors as they are.",
                                           "Pass the texts.")  # fmt: skip
        elif self._encoder is not None:
            words = self.policy.protector.rewrite(texts) if self.policy.rewrites_texts else texts
            # A row too few would stand under another text's id.
            X = (
                checked_vectors(
                    self._encoder.encode(words),
                    rows=len(texts),
                    owner=self.owner,
                    dimension=self.policy.protector.dimension,
                )
                if texts
                else self._none()
            )
            if self.policy.rewrites_texts:
                return _stored(X), texts
        else:
            embed = self.policy.embed_queries if query else self.policy.embed_documents
            return _stored(embed(texts, ids=ids)), texts
        release = self.policy.queries if query else self.policy.documents
        return _stored(release(X, ids=ids, texts=texts)), texts

    def _none(self) -> Vectors:
        return np.empty((0, self.policy.protector.dimension), dtype=np.float32)

    def warn_if_text(
        self,
        fields: Sequence[Mapping[str, Any]] | None,
        texts: Sequence[str] | None,
        where: str,
        fix: str,
        *,
        kept: bool = False,
    ) -> None:
        """Warn once for each object if texts are stored beside their vectors.

        Args:
            fields: what is stored beside each vector.
            texts: of the items, if they are at hand.
            where, fix: see `warn_plaintext`.
            kept: whether the texts are stored at the caller's request.
        """
        if self._warned or not (kept or _holds_text(fields, texts)):
            return
        self._warned = True
        warn_plaintext(where, fix, stacklevel=4)


def _holds_text(fields: Sequence[Mapping[str, Any]] | None, texts: Sequence[str] | None) -> bool:
    for i, row in enumerate(fields or ()):
        for value in row.values():
            if not isinstance(value, str):
                continue
            if len(value.split(maxsplit=_TEXT_WORDS)) >= _TEXT_WORDS:
                return True
            if texts is not None and value.strip() and value.strip() == texts[i].strip():
                return True
    return False


def _texts(items: Any) -> list[str] | None:
    """Return the texts, or None for vectors; what is neither is refused by the checks of vectors."""
    if isinstance(items, str | bytes) or not isinstance(items, Sequence):
        return None
    if len(items) and not all(isinstance(one, str) for one in items):
        return None
    return list(items)


def _array(items: Any) -> Any:
    """Return lists of numbers as an array; everything else as it is, for the checks to judge."""
    if isinstance(items, list | tuple) and len(items):
        try:
            return np.asarray(items, dtype=np.float64)  # as an array's: keyed noise depends on it
        except (TypeError, ValueError):
            return items
    return items


def _stored(Y: Any) -> Vectors:
    return np.ascontiguousarray(Y, dtype=np.float32)


def _item_id(value: Any) -> ItemId:
    if isinstance(value, np.integer):
        return int(value)
    return value if isinstance(value, str | int | bytes) else str(value)
