"""pgvector: the public names of `vecveil.databases.pgvector`.

table = ProtectedTable("postgresql://me@localhost/notes", "notes", "health.vecveil")
table.create()
table.add(ids, texts)
table.search("a question", k=10)
"""

from __future__ import annotations

from vecveil.databases.pgvector import PostgresTable as ProtectedTable
from vecveil.databases.store import Match

__all__ = ["Match", "ProtectedTable"]
