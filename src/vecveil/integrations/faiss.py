"""FAISS: the public name of `vecveil.databases.faiss`.

index = ProtectedIndex(faiss.IndexFlatIP(384), "health.vecveil")
index.add(texts)
distances, rows = index.search(["a question"], 10)
"""

from __future__ import annotations

from vecveil.databases.faiss import ProtectedIndex

__all__ = ["ProtectedIndex"]
