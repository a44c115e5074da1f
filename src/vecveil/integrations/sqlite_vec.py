"""sqlite-vec: the public names of `vecveil.databases.sqlite_vec`.

table = ProtectedTable("notes.db", "notes", "health.vecveil")
table.create()
table.add(ids, texts)
table.search("a question", k=10)
"""

from __future__ import annotations

from vecveil.databases.sqlite_vec import SqliteTable as ProtectedTable
from vecveil.databases.store import Match

__all__ = ["Match", "ProtectedTable"]
