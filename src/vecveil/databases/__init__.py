"""Vector databases as batches of rows: to look at one (scan), and to copy one to a protected one (migrate)."""

from __future__ import annotations

from vecveil.databases.locations import KINDS, open_store
from vecveil.databases.store import Batch, StoreInfo, VectorStore

__all__ = ["KINDS", "Batch", "StoreInfo", "VectorStore", "open_store"]
