"""Milvus: the public name of `vecveil.databases.milvus`.

milvus = ProtectedMilvus(MilvusClient("notes.db"), "health.vecveil")
milvus.create_collection("notes")
milvus.insert("notes", [{"id": 1, "text": "..."}])
milvus.search("notes", ["a question"], limit=10)
"""

from __future__ import annotations

from vecveil.databases.milvus import ProtectedMilvus

__all__ = ["ProtectedMilvus"]
