"""What a store apart and the process that serves it send each other: JSON, and vectors behind it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from vecveil.databases.store import Batch
from vecveil.errors import InvalidInputError

__all__ = ["OWNER", "batch_of", "receive", "record_of", "send"]

OWNER = "StoreApart"


def record_of(batch: Batch) -> tuple[dict[str, Any], bytes]:
    vectors = np.ascontiguousarray(batch.vectors, dtype="<f4")
    said = {
        "ids": list(batch.ids),
        "fields": [dict(row) for row in batch.fields],
        "shape": list(vectors.shape),
        "cursor": batch.cursor,
    }
    return said, vectors.tobytes()


def batch_of(said: Mapping[str, Any], content: bytes) -> Batch:
    vectors = np.frombuffer(content, dtype="<f4").reshape(said["shape"]).astype(np.float32)
    return Batch(tuple(said["ids"]), vectors, tuple(said["fields"]), said["cursor"])


def send(to: IO[bytes], said: Mapping[str, Any], content: bytes = b"") -> None:
    text = json.dumps(said, default=_plain).encode()
    to.write(len(text).to_bytes(8, "little") + len(content).to_bytes(8, "little") + text)
    to.write(content)
    to.flush()


def _plain(value: object) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise InvalidInputError.of(OWNER, "fields", "texts, numbers, true or false, or lists of these",
                               type(value).__name__, "They are sent to another process.",
                               "Leave the field out, or write it as text.")  # fmt: skip


def receive(source: IO[bytes]) -> tuple[dict[str, Any], bytes] | None:
    head = source.read(16)
    if len(head) < 16:
        return None
    sizes = int.from_bytes(head[:8], "little"), int.from_bytes(head[8:], "little")
    text, content = (source.read(size) for size in sizes)
    if (len(text), len(content)) != sizes:
        return None
    return dict(json.loads(text)), content
