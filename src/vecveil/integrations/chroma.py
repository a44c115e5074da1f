"""Chroma: the public names of `vecveil.databases.chroma`. Importing this module registers ``vecveil`` with Chroma.

    function = ProtectedEmbeddingFunction("drug.vecveil", key="env:VECVEIL_KEY")
    collection = client.create_collection("notes", embedding_function=function)

A collection saves the function's configuration: names of files and variables, and the protector's fingerprint. Chroma
embeds only where this module is imported. It stores the texts that it embeds; `protect_and_add` adds vectors alone.
"""

from __future__ import annotations

from vecveil.databases.chroma import ChromaEmbeddingFunction as ProtectedEmbeddingFunction
from vecveil.databases.chroma import protect_and_add, register

__all__ = ["ProtectedEmbeddingFunction", "protect_and_add"]

# Chroma reopens a collection by the function's registered name.
register()
