"""The one gate through which vectors leave: `release`, and `Released`, which nothing else makes.

What is sent to a client is written from a `Released` and from nothing else, so a clean vector cannot get into an
answer by a slip elsewhere: there is no way to write it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from vecveil.errors import ReleaseError, message
from vecveil.release_policy import ReleasePolicy
from vecveil.serving.requests import Side
from vecveil.types import Embeddings

__all__ = ["Released", "release"]

_OWNER = "release"
_GATE = object()


class Released:
    """Vectors that a policy returned and that were checked; made by `release` alone."""

    __slots__ = ("_vectors",)

    def __init__(self, vectors: Embeddings, gate: object = None) -> None:
        if gate is not _GATE:
            raise TypeError("Released: made by release() alone, from what a policy returned.")
        self._vectors = np.ascontiguousarray(vectors, dtype="<f4")
        self._vectors.setflags(write=False)

    def __len__(self) -> int:
        return len(self._vectors)

    def __repr__(self) -> str:
        return f"Released{self._vectors.shape}"

    def to_json(self, *, model: str, as_base64: bool, tokens: int) -> bytes:
        """Return the answer to ``POST /v1/embeddings``."""
        rows: list[Any]
        if as_base64:
            rows = [base64.b64encode(row.tobytes()).decode() for row in self._vectors]
        else:
            rows = self._vectors.tolist()
        answer = {
            "object": "list",
            "data": [
                {"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)
            ],
            "model": model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
        return json.dumps(answer, allow_nan=False, separators=(",", ":")).encode()


def release(
    policy: ReleasePolicy,
    clean: Embeddings,
    *,
    side: Side,
    texts: Sequence[str],
    ids: Sequence[str] | None = None,
) -> Released:
    """Return the clean vectors (N, n) of ``texts`` as the policy lets them out.

    Args:
        clean: of the encoder; of the rewritten texts, for a method that rewrites texts.
        side: ``document`` or ``query``.
        texts: as the client sent them.
        ids: that name the items; None names them by their texts.

    Raises:
        ReleaseError: what came out of the policy is not what it must be; nothing leaves.
        VecveilError: what the policy raises.
    """
    protector = policy.protector
    if policy.rewrites_texts:
        # What was encoded is not what was sent: the rewriting was the protection.
        vectors, may_equal = clean, True
    else:
        protect = policy.queries if side == "query" else policy.documents
        vectors = protect(clean, ids=ids, texts=list(texts))
        # A map leaves a vector as it is that holds nothing of what it erases.
        may_equal = side == "query" and policy.query_protection == "map-only"
    expected = (len(texts), protector.released_dimension)
    if not isinstance(vectors, np.ndarray) or vectors.shape != expected:
        raise _refused("of the shape that the protector releases", "another shape")
    if vectors.dtype != np.float32:
        with np.errstate(over="ignore"):
            vectors = vectors.astype(np.float32)
    if not np.isfinite(vectors).all():
        raise _refused("finite", "NaN or infinity")
    if not may_equal and vectors.shape == clean.shape:
        same = (vectors == np.asarray(clean, dtype=np.float32)).all(axis=1)
        if same.any():
            raise _refused("different from the clean vectors", f"{int(same.sum())} equal rows")
    return Released(vectors, _GATE)


def _refused(wanted: str, got: str) -> ReleaseError:
    return ReleaseError(message(_OWNER, "vectors", wanted, got, "Nothing was released."))
