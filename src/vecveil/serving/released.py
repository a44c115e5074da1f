"""The one gate through which vectors leave: `release`, and `Released`, which nothing else makes.

What is sent to a client is written from a `Released` and from nothing else, so a clean vector cannot get into an
answer by a slip elsewhere: there is no way to write it.
"""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import Sequence

import numpy as np

from vecveil.errors import ReleaseError, message
from vecveil.randomness import WordStream
from vecveil.release_policy import ReleasePolicy
from vecveil.serving.requests import Side
from vecveil.types import Embeddings
from vecveil.validation import all_finite

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
        if as_base64:  # which needs no escaping
            rows = ['"' + b2a_base64(row, newline=False).decode() + '"' for row in self._vectors]
        else:
            rows = [_number_list(row) for row in self._vectors.tolist()]
        data = ",".join(
            f'{{"object":"embedding","index":{i},"embedding":{row}}}' for i, row in enumerate(rows)
        )
        usage = f'{{"prompt_tokens":{tokens:d},"total_tokens":{tokens:d}}}'
        return f'{{"object":"list","data":[{data}],"model":{json.dumps(model)},"usage":{usage}}}'.encode()


def _number_list(row: list[float]) -> str:
    return json.dumps(row, allow_nan=False, separators=(",", ":"))


def release(
    policy: ReleasePolicy,
    clean: Embeddings,
    *,
    side: Side,
    texts: Sequence[str],
    ids: Sequence[str] | None = None,
    stream: WordStream | None = None,
) -> Released:
    """Return the clean vectors (N, n) of ``texts`` as the policy lets them out.

    Args:
        clean: of the encoder; of the rewritten texts, for a method that rewrites texts.
        side: ``document`` or ``query``.
        texts: as the client sent them.
        ids: that name the items; None names them by their texts.
        stream: of the noise, from `ReleasePolicy.stream_ahead`; never given twice.

    Raises:
        ReleaseError: what came out of the policy is not what it must be; nothing leaves.
        VecveilError: what the policy raises.
    """
    protector = policy.protector
    if len(clean) != len(texts):
        raise _refused("one for each text", f"{len(clean)} for {len(texts)}")
    if policy.rewrites_texts:
        # What was encoded is not what was sent: the rewriting was the protection.
        vectors, may_equal = clean, True
    else:
        protect = policy.queries if side == "query" else policy.documents
        vectors = protect(clean, rng=stream, ids=ids, texts=list(texts))
        # A map leaves a vector as it is that holds nothing of what it erases.
        may_equal = side == "query" and policy.query_protection == "map-only"
    expected = (len(texts), protector.released_dimension)
    if not isinstance(vectors, np.ndarray) or vectors.shape != expected:
        raise _refused("of the shape that the protector releases", "another shape")
    if vectors.dtype != np.float32:
        with np.errstate(over="ignore"):
            vectors = vectors.astype(np.float32)
    if not all_finite(vectors):
        raise _refused("finite", "NaN or infinity")
    if not may_equal and vectors.shape == clean.shape:
        # A row with no value that differs is equal: np.not_equal and np.logical_or take no detour through Python.
        differs = np.logical_or.reduce(vectors != np.asarray(clean, dtype=np.float32), axis=1)
        if not np.logical_and.reduce(differs):
            same = ~differs
            raise _refused("different from the clean vectors", f"{int(same.sum())} equal rows")
    return Released(vectors, _GATE)


def _refused(wanted: str, got: str) -> ReleaseError:
    return ReleaseError(message(_OWNER, "vectors", wanted, got, "Nothing was released."))
