"""Release vectors: the only path by which vectors leave the server.

An answer is serialised from a `Released`, which only `release` creates, so that a mistake elsewhere cannot send a clean
vector.
"""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vecveil.errors import ReleaseError
from vecveil.gateway.server.requests import Side
from vecveil.privacy.protector.policy import ReleasePolicy
from vecveil.types import Embeddings

# Private token of `release`: an accidental constructor call raises. It guards against mistakes, not attacks.
_GATE = object()


class Released:
    """Released vectors, checked by `release`."""

    __slots__ = ("_vectors",)

    def __init__(self, vectors: Embeddings, gate: object = None) -> None:
        if gate is not _GATE:
            raise TypeError("Released: made by release() alone, from what a policy returned.")
        # OpenAI's base64 encoding is little-endian float32, on every host.
        self._vectors = np.ascontiguousarray(vectors, dtype="<f4")
        self._vectors.setflags(write=False)  # no change after the checks

    def __len__(self) -> int:
        return len(self._vectors)

    def __repr__(self) -> str:
        return f"Released{self._vectors.shape}"

    def to_json(
        self, *, model: str, as_base64: bool, tokens: int, sealed: Sequence[tuple[bytes, Mapping[str, str]]] = ()
    ) -> bytes:
        """Return the JSON answer to ``POST /v1/embeddings``; ``sealed`` has the blob and filter tokens of each row."""
        if as_base64:
            rows = [b2a_base64(row, newline=False).decode() for row in self._vectors]
        else:
            rows = self._vectors.tolist()
        data: list[dict[str, Any]]
        data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
        for i, (blob, filters) in enumerate(sealed):
            data[i]["sealed"] = b2a_base64(blob, newline=False).decode()
            if filters:
                data[i]["filter_tokens"] = filters
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        content: dict[str, Any] = {"object": "list", "data": data, "model": model, "usage": usage}
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def release(
    policy: ReleasePolicy, clean: Embeddings, *, side: Side, texts: Sequence[str], ids: Sequence[str] | None = None
) -> Released:
    """Return the clean vectors (N, n) of ``texts`` as the policy releases them.

    Args:
        clean: vectors of the texts, or of the rewritten texts if the protector rewrites texts.
        texts: texts as the client sent them.
        ids: item ids; None uses the texts.

    Raises:
        ReleaseError: the policy returned vectors of another shape, NaN, infinity, or a clean vector.
    """
    if len(clean) != len(texts):
        raise _refused(f"There are {len(clean)} vectors for {len(texts)} texts.")
    protect = policy.queries if side == "query" else policy.documents
    vectors = protect(clean, ids=ids, texts=list(texts), rewritten=True)
    # The map leaves a vector unchanged if it has no component in the erased directions, and so does a text-level
    # method, whose protection was the rewriting.
    may_be_clean = (side == "query" and policy.query_noise == 0) or policy.protector.text_only
    expected = (len(texts), policy.protector.released_dimension)
    if not isinstance(vectors, np.ndarray) or vectors.shape != expected:
        raise _refused("The vectors do not have the shape that the protector releases.")
    with np.errstate(over="ignore"):  # overflow gives infinity, refused below
        vectors = vectors.astype(np.float32)
    if not np.isfinite(vectors).all():
        raise _refused("The protected vectors have NaN or infinity.")
    # A method leaves a row unchanged with negligible probability: an equal row shows that it did not run.
    if not may_be_clean and vectors.shape == clean.shape:
        equal = (vectors == np.asarray(clean, dtype=np.float32)).all(axis=1)
        if equal.any():
            raise _refused(f"{int(equal.sum())} vectors are equal to the clean ones.")
    return Released(vectors, _GATE)


def _refused(text: str) -> ReleaseError:
    return ReleaseError(f"{text} Nothing was released.", param="vectors")
