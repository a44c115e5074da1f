"""Vector databases: one file each, behind one interface, which scan, migrate and programs use."""

from __future__ import annotations

from vecveil.databases.locations import KINDS, open_store
from vecveil.databases.store import Batch, StoreInfo, VectorStore

__all__ = ["KINDS", "Batch", "StoreInfo", "VectorStore", "open_store"]
