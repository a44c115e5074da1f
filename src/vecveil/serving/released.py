"""Release vectors: the one gate through which they leave the server.

What a client gets is written from a `Released`, which `release` alone can make: a clean vector cannot get into an
answer by a slip elsewhere.
"""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import Sequence

import numpy as np

from vecveil.errors import ReleaseError
from vecveil.protector.policy import ReleasePolicy
from vecveil.serving.requests import Side
from vecveil.types import Embeddings

__all__ = ["Released", "release"]

_GATE = object()


class Released:
    """Vectors that a policy returned and `release` checked."""

    __slots__ = ("_vectors",)

    def __init__(self, vectors: Embeddings, gate: object = None) -> None:
        if gate is not _GATE:
            raise TypeError("Released: made by release() alone, from what a policy returned.")
        self._vectors = np.ascontiguousarray(vectors, dtype="<f4")
        self._vectors.setflags(write=False)  # what was checked stays as it is

    def __len__(self) -> int:
        return len(self._vectors)

    def __repr__(self) -> str:
        return f"Released{self._vectors.shape}"

    def to_json(self, *, model: str, as_base64: bool, tokens: int) -> bytes:
        """Return the answer to ``POST /v1/embeddings``."""
        if as_base64:
            rows = [b2a_base64(row, newline=False).decode() for row in self._vectors]
        else:
            rows = self._vectors.tolist()
        data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        content = {"object": "list", "data": data, "model": model, "usage": usage}
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def release(
    policy: ReleasePolicy,
    clean: Embeddings,
    *,
    side: Side,
    texts: Sequence[str],
    ids: Sequence[str] | None = None,
) -> Released:
    """Return the clean vectors (N, n) of ``texts`` as the policy releases them.

    Args:
        clean: of the encoder; of the rewritten texts, for a method that rewrites texts.
        side: ``document`` or ``query``.
        texts: as the client sent them.
        ids: names of the items; None names them by their texts.

    Raises:
        ReleaseError: the policy returned no finite vectors of its dimension, or a clean one; nothing leaves.
        VecveilError: raised by the policy.
    """
    if len(clean) != len(texts):
        raise _refused("one for each text", f"{len(clean)} for {len(texts)}")
    if policy.rewrites_texts:
        # The rewriting was the protection: these are vectors of other texts than the client's.
        vectors, may_be_clean = clean, True
    else:
        protect = policy.queries if side == "query" else policy.documents
        vectors = protect(clean, ids=ids, texts=list(texts))
        # A map leaves a vector as it is that holds nothing of what the map erases.
        may_be_clean = side == "query" and policy.query_protection == "map-only"
    expected = (len(texts), policy.protector.released_dimension)
    if not isinstance(vectors, np.ndarray) or vectors.shape != expected:
        raise _refused("of the shape that the protector releases", "another shape")
    with np.errstate(over="ignore"):  # beyond float32 is infinite, and refused next
        vectors = vectors.astype(np.float32)
    if not np.isfinite(vectors).all():
        raise _refused("finite", "NaN or infinity")
    # Noise changes every row: an equal row means that protection did not run.
    if not may_be_clean and vectors.shape == clean.shape:
        equal = (vectors == np.asarray(clean, dtype=np.float32)).all(axis=1)
        if equal.any():
            raise _refused("different from the clean vectors", f"{int(equal.sum())} equal rows")
    return Released(vectors, _GATE)


def _refused(constraint: str, got: str) -> ReleaseError:
    return ReleaseError.of("release", "vectors", constraint, got, "Nothing was released.")
