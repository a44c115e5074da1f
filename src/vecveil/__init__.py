"""vecveil: store and send text embeddings without revealing what the texts say about a chosen concept.

``import vecveil`` loads no other package: each name loads its part on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from vecveil.version import __version__

if TYPE_CHECKING:
    from vecveil import accounting, attacks, errors, metrics
    from vecveil.accounting import Ledger
    from vecveil.auditing import AuditResult, audit_store
    from vecveil.auditing.audit import audit
    from vecveil.auditing.frontier import frontier
    from vecveil.concepts import Concept
    from vecveil.encoders import load_encoder
    from vecveil.errors import VecveilError
    from vecveil.protector import Protector, Scale, fit, fit_labels, fit_pairs, load
    from vecveil.randomness import NoiseKeys
    from vecveil.sealing import Sealer
    from vecveil.search import SealedIndex
    from vecveil.search.collection import ProtectedCollection

_HOME = {
    "AuditResult": "vecveil.auditing",
    "Concept": "vecveil.concepts",
    "Ledger": "vecveil.accounting",
    "NoiseKeys": "vecveil.randomness",
    "ProtectedCollection": "vecveil.search.collection",
    "Protector": "vecveil.protector",
    "Scale": "vecveil.protector.method",
    "SealedIndex": "vecveil.search",
    "Sealer": "vecveil.sealing",
    "VecveilError": "vecveil.errors",
    "audit": "vecveil.auditing",
    "audit_store": "vecveil.auditing",
    "fit": "vecveil.protector.fitting",
    "fit_labels": "vecveil.protector.fitting",
    "fit_pairs": "vecveil.protector.fitting",
    "frontier": "vecveil.auditing.frontier",
    "load": "vecveil.protector",
    "load_encoder": "vecveil.encoders",
}
_MODULES = ("accounting", "attacks", "errors", "metrics")

__all__ = [
    "AuditResult",
    "Concept",
    "Ledger",
    "NoiseKeys",
    "ProtectedCollection",
    "Protector",
    "Scale",
    "SealedIndex",
    "Sealer",
    "VecveilError",
    "__version__",
    "accounting",
    "attacks",
    "audit",
    "audit_store",
    "errors",
    "fit",
    "fit_labels",
    "fit_pairs",
    "frontier",
    "load",
    "load_encoder",
    "metrics",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"vecveil.{name}")
    raise AttributeError(f"module 'vecveil' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
