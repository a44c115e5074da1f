"""Protect the vectors of foreign embedders: a framework's, or a user's function."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from vecveil.encoders.protocol import PROBE_SENTENCES, checked_vectors
from vecveil.encoders.upstream_verification import matches_probe
from vecveil.errors import IncompatibleError
from vecveil.protector.policy import ReleasePolicy
from vecveil.randomness import ItemId
from vecveil.types import Embeddings, Texts

__all__ = ["WrappedEmbedder"]

Encode = Callable[[list[str]], Any]
Embed = Callable[[list[str]], Awaitable[Any]]


class WrappedEmbedder:
    """A release policy around an embedder.

    Before its first use the embedder embeds fixed sentences, whose vectors must match the protector's probe. For a
    protector that was fitted on vectors alone, only the dimension is verified.

    Args:
        owner: class name for errors.
    """

    def __init__(self, policy: ReleasePolicy, *, owner: str) -> None:
        self.policy = policy
        self._owner = owner
        # Fitted on vectors alone: no probe to compare with.
        self._verified = not policy.protector.encoder_info.probe

    def probe(self) -> list[str]:
        """Return the sentences for `compare`, or an empty list once the embedder is verified."""
        return [] if self._verified else list(PROBE_SENTENCES)

    def compare(self, vectors: Any) -> None:
        """Verify the embedder by its vectors of the probe sentences.

        Raises:
            InvalidInputError: not one finite vector per sentence.
            IncompatibleError: the protector was fitted for another embedder.
        """
        array = checked_vectors(vectors, rows=len(PROBE_SENTENCES), owner=self._owner)
        # First: vectors of another dimension have no distance to the probe.
        self._check_dimension(array)
        info = self.policy.protector.encoder_info
        if not matches_probe(array, info.probe, owner=self._owner):
            raise IncompatibleError.of(self._owner, "protector", "fitted for the embedder that is wrapped",
                                       f"one fitted for {info.name}",
                                       "Its map and noise fit the vectors of that encoder only.",
                                       "Use that encoder, or fit a new protector.")  # fmt: skip
        self._verified = True

    def embed(
        self, texts: Sequence[str], embed: Encode | None, *, query: bool = False, verify: Encode | None = None
    ) -> Embeddings:
        """Verify the embedder and return the released vectors of ``texts``, float32 (N, m).

        Args:
            embed: the embedder's function; None uses the protector's encoder.
            query: release as queries.
            verify: function for the probe sentences, where ``embed`` is for queries.
        """
        if embed is None:
            return (self.policy.embed_queries if query else self.policy.embed_documents)(texts)
        # The probe was recorded from documents: some models embed queries with another prompt.
        if sentences := self.probe():
            self.compare((verify or embed)(sentences))
        return self._released(embed(self.seen(texts)), texts, None, query=query)

    async def aembed(
        self, texts: Sequence[str], embed: Embed | None, *, query: bool = False, verify: Embed | None = None
    ) -> Embeddings:
        """Asynchronous `embed`; rewriting and releasing run on a thread."""
        if embed is None:
            return await asyncio.to_thread(self.embed, texts, None, query=query)
        if sentences := self.probe():
            self.compare(await (verify or embed)(sentences))
        vectors = await embed(await asyncio.to_thread(self.seen, texts))
        return await asyncio.to_thread(self._released, vectors, texts, None, query=query)

    def seen(self, texts: Texts) -> list[str]:
        """Return the texts that the embedder may see: rewritten for a text-level method."""
        return self.policy.protector.rewrite(texts) if self.policy.rewrites_texts else list(texts)

    def documents(
        self, vectors: Any, texts: Sequence[str], ids: Sequence[ItemId] | None = None
    ) -> Embeddings:
        """Return ``vectors`` of ``texts`` released as documents, float32 (N, m).

        Raises:
            InvalidInputError: not one finite vector per text.
            IncompatibleError: the dimension differs from the protector's.
        """
        return self._released(vectors, texts, ids, query=False)

    def queries(self, vectors: Any, texts: Sequence[str]) -> Embeddings:
        """Return ``vectors`` of ``texts`` released as queries; raises as `documents`."""
        return self._released(vectors, texts, None, query=True)

    def _released(
        self, vectors: Any, texts: Sequence[str], ids: Sequence[ItemId] | None, *, query: bool
    ) -> Embeddings:
        if not len(texts):
            return np.empty((0, self.policy.protector.released_dimension), dtype=np.float32)
        array = checked_vectors(vectors, rows=len(texts), owner=self._owner)
        self._check_dimension(array)
        if self.policy.rewrites_texts:
            return array  # vectors of the rewritten texts: the rewriting was the protection
        release = self.policy.queries if query else self.policy.documents
        return release(array, ids=ids, texts=texts)

    def _check_dimension(self, array: Embeddings) -> None:
        expected = self.policy.protector.dimension
        if array.shape[1] != expected:
            raise IncompatibleError.of(self._owner, "embedder", f"one of dimension {expected}",
                                       f"dimension {array.shape[1]}",
                                       "The protector was fitted for vectors of another encoder.",
                                       "Use the encoder it was fitted with, or fit a new protector.")  # fmt: skip
