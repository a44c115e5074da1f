"""Vector databases behind one interface, used by scan, migrate and the integrations."""

from __future__ import annotations

from vecveil.databases.locations import KINDS, open_store
from vecveil.databases.release import CleanQueryWarning, PlaintextWarning, open_policy
from vecveil.databases.store import Batch, StoreInfo, VectorStore

__all__ = [
    "KINDS",
    "Batch",
    "CleanQueryWarning",
    "PlaintextWarning",
    "StoreInfo",
    "VectorStore",
    "open_policy",
    "open_store",
]
