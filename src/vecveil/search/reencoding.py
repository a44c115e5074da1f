"""Vectors of texts under another encoder than the one that a segment was written with.

`SealedIndex.reencode` keeps the new vectors in sealed objects until one commit has them all. A segment that a writer
added with the former encoder gets its vectors when it is loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vecveil.encoders.text_encoder import TextEncoder
from vecveil.errors import InvalidInputError
from vecveil.sealing.blob import check_range
from vecveil.sealing.segments import LIVE, Segment, encode_vectors, schema

_OWNER = "SealedIndex.reencode"


class NewVectors:
    """The vectors that one encoder makes of texts, at the precision of an index; each text is encoded once.

    Memory a text: the vector as stored, and about 200 bytes.
    """

    def __init__(self, encoder: TextEncoder, precision: str) -> None:
        self.encoder, self.precision = encoder, precision
        self._known: dict[str, tuple[bytes, float]] = {}

    def encode(self, texts: Sequence[str]) -> dict[str, Any]:
        """Encode the texts that have no vector yet; return the columns ``id`` (a digest), ``vector`` and ``scale``."""
        new = {name: text for text in texts if (name := _digest(text)) not in self._known}
        if not new:
            return {}
        X = self.encoder.encode(list(new.values()), show_progress=False)
        check_range(X, self.precision, _OWNER)
        vector, scale = encode_vectors(X, self.precision)
        columns = {"id": pa.array(list(new), pa.string()), "vector": vector}
        columns |= {} if scale is None else {"scale": scale}
        self.learn(columns)
        return columns

    def learn(self, columns: Any) -> None:
        """Take over what `encode` returned in an earlier run."""
        vectors = columns["vector"].to_pylist()
        scales = columns["scale"].to_pylist() if self.precision == "int8" else [0.0] * len(vectors)
        self._known.update(zip(columns["id"].to_pylist(), zip(vectors, scales, strict=True), strict=True))

    def columns(self, texts: Sequence[str | None]) -> dict[str, Any]:
        """Return the columns ``vector`` and ``scale`` of texts; a row is zeros for None."""
        self.encode([text for text in texts if text is not None])
        width = self.encoder.dimension * (1 if self.precision == "int8" else 2)
        zeros = bytes(width), 0.0
        rows = [zeros if text is None else self._known[_digest(text)] for text in texts]
        columns = {"vector": pa.array([vector for vector, _ in rows], pa.binary(width))}
        return columns | {"scale": pa.array([scale for _, scale in rows], pa.float32())}


class ReencodedSegment(Segment):
    """An open segment with the vectors of another encoder; rows outside of ``needed`` (N,) have zeros."""

    def __init__(self, segment: Segment, vectors: NewVectors, needed: npt.NDArray[np.bool_] | None = None) -> None:
        vars(self).update(vars(segment))
        self._vectors, self._needed = vectors, needed
        encoder = vectors.encoder
        self.record = {**segment.record, "encoder": encoder.model_fingerprint, "dimension": encoder.dimension}

    def columns(self, names: Sequence[str]) -> Iterator[Any]:
        if "vector" not in names:
            yield from super().columns(names)
            return
        start = 0
        for table in super().columns(list(dict.fromkeys([*names, "text", "has_text", "deleted"]))):
            needed = pc.equal(table["deleted"], LIVE).to_numpy()
            if self._needed is not None:
                needed &= self._needed[start : start + len(table)]
            start += len(table)
            check_texts_there(int(np.count_nonzero(needed & ~table["has_text"].to_numpy())))
            texts = [text if need else None for text, need in zip(table["text"].to_pylist(), needed, strict=True)]
            new = self._vectors.columns(texts)
            layout = schema(self.record["dimension"], self.record["precision"])
            fields = [layout.field(name) for name in names]
            yield pa.table([new[name] if name in new else table[name] for name in names], schema=pa.schema(fields))


def check_texts_there(lacking: int) -> None:
    """Raise for rows without a text, which no encoder can encode again."""
    if lacking:
        raise InvalidInputError(
            f"{_OWNER}: {lacking:,} rows have no text to encode. Add them again with their texts, or delete them. "
            "To keep their vectors, make a new index from vectors of the new encoder.",
            code="E-INDEX-TEXT",
            param="encoder",
        )


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
