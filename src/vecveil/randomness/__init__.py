"""Where random numbers come from, and how words become noise."""

from vecveil.randomness.keyed import (
    ItemId,
    check_ids,
    content_ids,
    keyed_stream,
    row_digests,
    text_digests,
)
from vecveil.randomness.keys import NoiseKey, NoiseKeys
from vecveil.randomness.source import resolve_generator
from vecveil.randomness.stream import WordStream, resolve_stream

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
