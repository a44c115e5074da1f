"""Vector databases behind one interface, used by scan, migrate and the integrations."""

from __future__ import annotations

from vecveil.stores.locations import KINDS, open_store
from vecveil.stores.store import Batch, StoreInfo, VectorStore

__all__ = ["KINDS", "Batch", "StoreInfo", "VectorStore", "open_store"]
