"""Vector databases behind one interface, used by scan, migrate and the integrations."""

from __future__ import annotations

from vecveil.databases.locations import KINDS, open_store
from vecveil.databases.store import Batch, StoreInfo, VectorStore

__all__ = ["KINDS", "Batch", "StoreInfo", "VectorStore", "open_store"]
