"""vecveil: store and send text embeddings without revealing what the texts say about a chosen concept.

``import vecveil`` loads no other package: each name loads its part on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from vecveil.version import __version__

if TYPE_CHECKING:
    from vecveil import errors
    from vecveil.auditing import AuditResult, attacks, audit_store, metrics
    from vecveil.auditing.auditor import audit
    from vecveil.auditing.comparison import frontier
    from vecveil.errors import VecveilError
    from vecveil.index import AsyncSealedIndex, SealedIndex, Sealer
    from vecveil.keys import KeyFile
    from vecveil.privacy import accounting
    from vecveil.privacy.accounting import Ledger
    from vecveil.privacy.concepts import Concept
    from vecveil.privacy.protector import Protector, fit, fit_labels, fit_pairs, load
    from vecveil.stores.collection import ProtectedCollection
    from vecveil.texts.encoders import load_encoder

_HOME = {
    "AsyncSealedIndex": "vecveil.index",
    "AuditResult": "vecveil.auditing",
    "Concept": "vecveil.privacy.concepts",
    "Ledger": "vecveil.privacy.accounting",
    "KeyFile": "vecveil.keys",
    "ProtectedCollection": "vecveil.stores.collection",
    "Protector": "vecveil.privacy.protector",
    "SealedIndex": "vecveil.index",
    "Sealer": "vecveil.index",
    "VecveilError": "vecveil.errors",
    "audit": "vecveil.auditing",
    "audit_store": "vecveil.auditing",
    "fit": "vecveil.privacy.protector.fitting",
    "fit_labels": "vecveil.privacy.protector.fitting",
    "fit_pairs": "vecveil.privacy.protector.fitting",
    "frontier": "vecveil.auditing.comparison",
    "load": "vecveil.privacy.protector",
    "load_encoder": "vecveil.texts.encoders",
}
_MODULES = {
    "accounting": "vecveil.privacy.accounting",
    "attacks": "vecveil.auditing.attacks",
    "errors": "vecveil.errors",
    "metrics": "vecveil.auditing.metrics",
}

__all__ = [
    "AsyncSealedIndex",
    "AuditResult",
    "Concept",
    "KeyFile",
    "Ledger",
    "ProtectedCollection",
    "Protector",
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
        return importlib.import_module(_MODULES[name])
    raise AttributeError(f"module 'vecveil' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
