"""Bring your own encoder and your own detector: a function, and an object with ``detect``."""

import hashlib
import re

import numpy as np

import vecveil
from vecveil.cli.demo.corpus import load_notes
from vecveil.privacy.concepts import Span


def encode(texts: list[str]) -> np.ndarray:
    """Hash words into 128 signed buckets: a stand-in for a model or a service."""
    rows = np.zeros((len(texts), 128), dtype=np.float32)
    for row, text in zip(rows, texts, strict=True):
        for word in re.findall(r"\w+", text.lower()):
            digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
            row[digest[0] % 128] += 1 if digest[1] % 2 else -1
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class Amounts:
    """Finds amounts of money."""

    def detect(self, texts: list[str]) -> list[list[Span]]:
        found = re.compile(r"[$€£]\s?\d[\d,.]*\d|\d[\d,.]*\s?(?:USD|EUR|GBP|dollars|euros)")
        return [[Span(*m.span(), "AMOUNT") for m in found.finditer(text)] for text in texts]


texts = [note.text for note in load_notes() if note.domain == "finance"]
concept = vecveil.Concept("amounts", (Amounts(),))
# A fingerprint names what the function computes: it keys the cache and ties the protector to it.
encoder = vecveil.load_encoder(encode, fingerprint="hashed-words-128", cache=None)
protector = vecveil.fit(texts, concept, encoder, target_utility=0.9)
print(protector.report["texts"])
print(f"kept: {protector.report['utility']['similarity']['relative']:.0%}")
