"""A policy around somebody else's embedder: what it sees of the texts, and what leaves of its vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vecveil.encoders.probe import PROBE_SENTENCES, PROBE_TOLERANCE, probe_cosines, probe_distance
from vecveil.encoders.protocol import checked_vectors
from vecveil.errors import IncompatibleError
from vecveil.release_policy import ReleasePolicy
from vecveil.types import Embeddings, Texts

__all__ = ["WrappedEmbedder"]


class WrappedEmbedder:
    """What an integration does before and after it calls an embedder of its framework.

    Such an embedder shows no weights. Before its first use it is asked for the vectors of fixed sentences, which tell
    it apart from other models; a protector that was fitted on vectors alone knows none, and then only dimensions are
    compared.

    Args:
        policy: how documents and queries are released.
        owner: named in errors.
    """

    def __init__(self, policy: ReleasePolicy, *, owner: str) -> None:
        self.policy = policy
        self._owner = owner
        self._same = not policy.protector.encoder_info.probe

    def probe(self) -> list[str]:
        """Return the sentences whose vectors `compare` needs; none once it is known which embedder it is."""
        return [] if self._same else list(PROBE_SENTENCES)

    def compare(self, vectors: Any) -> None:
        """Take the embedder's vectors of `probe`.

        Raises:
            InvalidInputError: not one finite vector for each sentence.
            IncompatibleError: the protector was fitted for another embedder.
        """
        rows = len(PROBE_SENTENCES)
        array = checked_vectors(vectors, rows=rows, owner=self._owner)
        self._check_dimension(array)
        info = self.policy.protector.encoder_info
        found = probe_cosines(lambda _: array, owner=self._owner)
        if probe_distance(info.probe, found) > PROBE_TOLERANCE:
            raise IncompatibleError.of(self._owner, "protector", "fitted for the embedder that is wrapped",
                                       f"one fitted for {info.name}",
                                       "Its map and noise fit the vectors of that encoder only.",
                                       "Use that encoder, or fit a new protector.")  # fmt: skip
        self._same = True

    def seen(self, texts: Texts) -> list[str]:
        """Return what the embedder may see of ``texts``: a text-level method rewrites them."""
        return self.policy.protector.rewrite(texts) if self.policy.rewrites_texts else list(texts)

    def documents(self, vectors: Any, texts: Sequence[str]) -> Embeddings:
        """Return the embedder's ``vectors`` of ``texts`` as they are stored, float32 (N, m).

        Raises:
            InvalidInputError: not one finite vector for each text.
            IncompatibleError: another dimension than the protector's.
        """
        return self._released(vectors, texts, query=False)

    def queries(self, vectors: Any, texts: Sequence[str]) -> Embeddings:
        """Return the embedder's ``vectors`` of queries as they are compared; raises as `documents`."""
        return self._released(vectors, texts, query=True)

    def _released(self, vectors: Any, texts: Sequence[str], *, query: bool) -> Embeddings:
        if not len(texts):
            return np.empty((0, self.policy.protector.released_dimension), dtype=np.float32)
        array = checked_vectors(vectors, rows=len(texts), owner=self._owner)
        self._check_dimension(array)
        if self.policy.rewrites_texts:
            return array
        release = self.policy.queries if query else self.policy.documents
        return release(array, texts=texts)

    def _check_dimension(self, array: Embeddings) -> None:
        expected = self.policy.protector.dimension
        if array.shape[1] != expected:
            raise IncompatibleError.of(self._owner, "embedder", f"one of dimension {expected}",
                                       f"dimension {array.shape[1]}",
                                       "The protector was fitted for vectors of another encoder.",
                                       "Use the encoder it was fitted with, or fit a new protector.")  # fmt: skip
