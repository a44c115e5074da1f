"""`ReleasePolicy`: releases of a collection's documents and of the queries compared with them.

Documents always pass the protector. A query has to end up in the same space, so it passes the same map; the policy
chooses its noise:

``same``       that of a document: for queries that an untrusted party sees.
``stronger``   more noise and the same map: a query is often shorter and more specific than a document.
``map-only``   none, which protects nothing: for queries that stay on the trusted side, with better search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from vecveil.accounting import Ledger
from vecveil.errors import InvalidInputError, out_of_range, unknown_name, wrong_type
from vecveil.protector.protector import Protector
from vecveil.randomness import ItemId, NoiseKey, NoiseKeys, content_ids
from vecveil.types import Embeddings, RandomSource, Texts
from vecveil.validation import check_embeddings, check_texts

QueryProtection = Literal["same", "stronger", "map-only"]
QUERY_PROTECTIONS: tuple[QueryProtection, ...] = get_args(QueryProtection)
STRONGER = 2.0
"""Default noise of a ``stronger`` query, in units of a document's noise."""

_OWNER = "ReleasePolicy"


@dataclass(frozen=True, eq=False)
class ReleasePolicy:
    """A protector, and its use on both sides of a search.

    Args:
        protector: of the documents.
        query_noise: for ``stronger``, the noise of a query in units of a document's; more than 1.
        key: for keyed noise on both sides: the same item with the same content gets the same release, so repeated
            requests average nothing away. It stays in memory, is never shown and never saved.
        ledger: counts the releases of each item and refuses those beyond its cap.

    The ids of a caller name the items, else their texts, else their vectors.
    """

    protector: Protector
    query_protection: QueryProtection = "same"
    query_noise: float = STRONGER
    key: NoiseKey | NoiseKeys | None = field(default=None, repr=False)
    ledger: Ledger | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.protector, Protector):
            raise wrong_type(
                _OWNER, "protector", "a vecveil.Protector", self.protector, fix="Load it with vecveil.load(path)."
            )
        if self.query_protection not in QUERY_PROTECTIONS:
            raise unknown_name(_OWNER, "query_protection", QUERY_PROTECTIONS, self.query_protection)
        if self.key is not None and not isinstance(self.key, NoiseKey | NoiseKeys):
            raise wrong_type(
                _OWNER, "key", "a vecveil.NoiseKeys", self.key, fix="Read it with NoiseKeys.from_file(path)."
            )
        if self.protector.text_only and (self.key is not None or self.ledger is not None):
            param = "key" if self.key is not None else "ledger"
            raise InvalidInputError(f"Leave out `{param}`: the method rewrites texts and adds no noise.", param=param)
        if self.protector.text_only and self.query_protection != "same":
            said = "Leave out `query_protection`: the method rewrites queries as it rewrites documents."
            raise InvalidInputError(said, param="query_protection")
        if self.query_protection == "stronger":
            if not isinstance(self.query_noise, int | float) or not 1 < self.query_noise < np.inf:
                raise out_of_range(_OWNER, "query_noise", "a number above 1", repr(self.query_noise)[:40])
            _ = self._query_protector  # a method without a scale fails here, not at the first query

    @cached_property
    def _query_protector(self) -> Protector:
        if self.query_protection == "stronger":
            return self.protector.rescaled(self.query_noise)
        return self.protector

    @property
    def rewrites_texts(self) -> bool:
        """True if texts are rewritten before encoding, by a text stage or a text-level method."""
        return self.protector.rewriter is not None

    @property
    def gives_clean_queries(self) -> bool:
        """True if queries are released clean, without noise and without a map."""
        protector = self.protector
        plain = protector.map is None and not protector.after and protector.before.kind == "none"
        return self.query_protection == "map-only" and plain

    def documents(
        self,
        X: Embeddings,
        rng: RandomSource = None,
        *,
        ids: Sequence[ItemId] | None = None,
        texts: Texts | None = None,
        rewritten: bool = False,
    ) -> Embeddings:
        """Return the stored form of the clean vectors ``X`` (N, n): (N, m), same dtype.

        Args:
            rng: None for secure noise; a seed is repeatable and insecure.
            ids: one per row.
            texts: the texts of ``X``; with a key or a ledger and no ids they name the items.
            rewritten: ``X`` are vectors of texts that the protector has rewritten; see `Protector.protect`.
        """
        return self._release(self.protector, X, rng, ids, texts, rewritten)

    def queries(
        self,
        X: Embeddings,
        rng: RandomSource = None,
        *,
        ids: Sequence[ItemId] | None = None,
        texts: Texts | None = None,
        rewritten: bool = False,
    ) -> Embeddings:
        """Return the released form of clean query vectors ``X`` (N, n): (N, m), same dtype."""
        if self.query_protection == "map-only":
            X = self._checked(self.protector, X)
            return self.protector.protect(X, noise=False, rewritten=rewritten)
        return self._release(self._query_protector, X, rng, ids, texts, rewritten)

    def embed_documents(
        self, texts: Texts, rng: RandomSource = None, *, ids: Sequence[ItemId] | None = None
    ) -> Embeddings:
        """Return the released vectors of ``texts``, encoded by the protector's encoder."""
        return self._embed(texts, rng, ids, query=False)

    def embed_queries(
        self, texts: Texts, rng: RandomSource = None, *, ids: Sequence[ItemId] | None = None
    ) -> Embeddings:
        """Return the released vectors of ``texts`` as queries, encoded by the protector's encoder."""
        return self._embed(texts, rng, ids, query=True)

    def _embed(self, texts: Texts, rng: RandomSource, ids: Sequence[ItemId] | None, *, query: bool) -> Embeddings:
        texts = check_texts(texts, owner=_OWNER, min_rows=0)
        if not texts:  # load no encoder for an empty list
            return np.empty((0, self.protector.released_dimension), dtype=np.float32)
        encoder = self.protector.loaded_encoder()
        encode = getattr(encoder, "encode_query", encoder.encode) if query else encoder.encode
        X = np.asarray(encode(self.protector.seen(texts)))
        return (self.queries if query else self.documents)(X, rng, ids=ids, texts=texts, rewritten=True)

    def _release(
        self,
        protector: Protector,
        X: Embeddings,
        rng: RandomSource,
        ids: Sequence[ItemId] | None,
        texts: Texts | None,
        rewritten: bool,
    ) -> Embeddings:
        X = self._checked(protector, X)  # checks norms, so protect can skip that (lengths=False)
        if self.key is None and self.ledger is None:
            return protector.protect(X, rng, lengths=False, rewritten=rewritten)
        if texts is not None:
            texts = check_texts(texts, owner=_OWNER, min_rows=0)
        # Keyed noise can depend on texts only where the encoder is known.
        known = texts if self.key is not None and protector.encoder_info.fingerprint else None
        return protector.protect(
            X,
            rng,
            ids=content_ids(X, texts) if ids is None else ids,
            key=self.key,
            texts=known,
            ledger=self.ledger,
            lengths=False,
            rewritten=rewritten,
        )

    @staticmethod
    def _checked(protector: Protector, X: Embeddings) -> Embeddings:
        """Return ``X``, checked; raise IncompatibleError for rows too long for the noise."""
        # NaN fails in check_norms, or in the release if the protector knows no norms.
        X = check_embeddings(X, owner=_OWNER, param="X", dimension=protector.dimension, finite=False)
        protector.check_norms(X, owner=_OWNER)
        return X
