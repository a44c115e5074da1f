"""Randomness: secure, seeded or keyed random words, and the arithmetic that turns them into noise."""

from vecveil.randomness.kernel import WordStream, resolve_generator, resolve_stream
from vecveil.randomness.keyed import (
    ItemId,
    NoiseKey,
    NoiseKeys,
    check_ids,
    content_ids,
    keyed_stream,
    row_digests,
    text_digests,
)

__all__ = [
    "ItemId",
    "NoiseKey",
    "NoiseKeys",
    "WordStream",
    "check_ids",
    "content_ids",
    "keyed_stream",
    "resolve_generator",
    "resolve_stream",
    "row_digests",
    "text_digests",
]
