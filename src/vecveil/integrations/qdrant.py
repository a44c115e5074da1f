"""Qdrant: the public name of `vecveil.databases.qdrant`.

qdrant = ProtectedQdrant(QdrantClient(path="notes"), "health.vecveil")
qdrant.create_collection("notes")
qdrant.add("notes", ["a", "b"], ["...", "..."])
qdrant.query_points("notes", "a question", limit=10).points
"""

from __future__ import annotations

from vecveil.databases.qdrant import ProtectedQdrant

__all__ = ["ProtectedQdrant"]
