"""Vectors of background texts, kept in memory between previews under hashes of the texts."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.types import Embeddings
from vecveil.validation import check_count

__all__ = ["VectorMemory"]


class VectorMemory:
    """Encodes what it has not seen; holds hashes and vectors, no text.

    Args:
        most: vectors that are kept; those unused for longest go first.
    """

    def __init__(self, most: int = 8000) -> None:
        self._most = check_count(most, owner="VectorMemory", param="most")
        self._kept: OrderedDict[bytes, npt.NDArray[Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def encode(
        self, texts: Sequence[str], encode: Callable[[Sequence[str]], Embeddings], *, encoder: str
    ) -> Embeddings:
        """Return the vectors of ``texts``; ``encoder`` names whose vectors they are."""
        head = encoder.encode("utf-8", "surrogatepass") + b"\0"
        marks = [
            hashlib.sha256(head + text.encode("utf-8", "surrogatepass")).digest() for text in texts
        ]
        missing = {m: text for m, text in zip(marks, texts, strict=True) if m not in self._kept}
        fresh: dict[bytes, npt.NDArray[Any]] = {}
        if missing:
            fresh = dict(zip(missing, np.asarray(encode(list(missing.values()))), strict=True))
        found = np.stack([fresh[m] if m in fresh else self._kept[m] for m in marks])
        for mark in marks:
            if mark in fresh:
                self._kept[mark] = fresh[mark].copy()
            self._kept.move_to_end(mark)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return found
