"""From texts to what is stored or asked: a policy, and the encoder that a database's users have already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vecveil.encoders import load_encoder
from vecveil.encoders.probe import PROBE_TOLERANCE, probe_cosines, probe_distance
from vecveil.encoders.protocol import checked_vectors
from vecveil.errors import IncompatibleError
from vecveil.protector.encoder_info import encoder_fingerprint
from vecveil.randomness import ItemId
from vecveil.release_policy import ReleasePolicy
from vecveil.types import Embeddings, Texts
from vecveil.validation import check_texts

__all__ = ["TextRelease"]

Encode = Callable[[list[str]], Any]


class TextRelease:
    """Texts in, protected float32 vectors out.

    Args:
        policy: how documents and queries are released.
        encoder: None takes the protector's; else a name or object for `vecveil.load_encoder`, or a function from a
            list of texts to vectors.
        query_encoder: the function for queries, where it differs from that for documents.

    Raises:
        InvalidInputError: neither a function nor an encoder.
        IncompatibleError: another encoder than the protector's. Functions, and objects without a
            fingerprint, are told apart by their vectors of fixed sentences, before their first use, if the protector
            knows those.
    """

    def __init__(
        self, policy: ReleasePolicy, encoder: Any = None, query_encoder: Encode | None = None
    ) -> None:
        self.policy = policy
        self._probed = True
        self._encode: Encode | None
        if encoder is None:
            self._encode = None
        elif isinstance(encoder, str) or hasattr(encoder, "encode"):
            loaded = load_encoder(encoder)
            policy.protector.check_encoder(loaded)
            self._encode = loaded.encode
            known = encoder_fingerprint(loaded) is not None
            self._probed = known or not policy.protector.encoder_info.probe
        else:
            self._encode = encoder if callable(encoder) else load_encoder(encoder).encode
            self._probed = not policy.protector.encoder_info.probe
        self._encode_query = query_encoder or self._encode

    @property
    def dimension(self) -> int:
        """Of what is released."""
        return self.policy.protector.released_dimension

    def documents(self, texts: Texts, ids: Sequence[ItemId] | None = None) -> Embeddings:
        """Return the vectors of ``texts`` as they are stored: (N, m) float32."""
        return self._release(texts, ids, query=False)

    def queries(self, texts: Texts) -> Embeddings:
        """Return the vectors of ``texts`` as they are asked: (N, m) float32."""
        return self._release(texts, None, query=True)

    def _release(self, texts: Texts, ids: Sequence[ItemId] | None, *, query: bool) -> Embeddings:
        owner = "TextRelease"
        listed = list(check_texts(texts, owner=owner, min_rows=0))
        if not listed:
            return np.empty((0, self.dimension), dtype=np.float32)
        policy = self.policy
        if policy.rewrites_texts:
            listed = policy.protector.rewrite(listed)
        X = self._encoded(listed, query=query)
        if policy.rewrites_texts:
            return X
        release = policy.queries if query else policy.documents
        return release(X, ids=ids, texts=listed)

    def _encoded(self, texts: list[str], *, query: bool) -> Embeddings:
        encode = self._encode_query if query else self._encode
        if encode is None:
            encode = self.policy.protector.loaded_encoder().encode
        else:
            self._probe()
        return checked_vectors(
            encode(texts),
            rows=len(texts),
            owner="TextRelease",
            dimension=self.policy.protector.dimension,
        )

    def _probe(self) -> None:
        if self._probed or self._encode is None:
            return
        encode = self._encode
        info = self.policy.protector.encoder_info
        found = probe_cosines(lambda texts: encode(list(texts)), owner="TextRelease")
        distance = probe_distance(info.probe, found)
        if distance > PROBE_TOLERANCE:
            raise IncompatibleError.of("TextRelease", "encoder",
                                       f"the one that the protector was fitted for ({info.name})",
                                       f"vectors of fixed sentences that differ by {distance:.2g}",
                                       "Its map and noise fit the vectors of that encoder only.",
                                       "Use that encoder, or fit a new protector.")  # fmt: skip
        self._probed = True
