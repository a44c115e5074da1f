"""LanceDB: the public names of `vecveil.databases.lancedb`. Importing this module registers ``vecveil`` with LanceDB.

    function = get_registry().get("vecveil").create(protector="drug.vecveil", key="env:VECVEIL_KEY")

A table saves the arguments of ``create``: names of files and variables, never their content. LanceDB stores the source
column's texts beside the vectors.
"""

from __future__ import annotations

from vecveil.databases.lancedb import LanceEmbeddingFunction as ProtectedEmbeddingFunction
from vecveil.databases.lancedb import register

__all__ = ["ProtectedEmbeddingFunction"]

# LanceDB reopens a table by the function's registered name.
register()
