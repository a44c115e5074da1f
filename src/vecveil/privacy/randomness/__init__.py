"""Randomness: secure, seeded or keyed random words, and the arithmetic that turns them into noise."""

from vecveil.privacy.randomness.kernel import WordStream, resolve_generator, resolve_stream
from vecveil.privacy.randomness.keyed import content_ids, keyed_stream, row_digests, text_digests

__all__ = [
    "WordStream",
    "content_ids",
    "keyed_stream",
    "resolve_generator",
    "resolve_stream",
    "row_digests",
    "text_digests",
]
