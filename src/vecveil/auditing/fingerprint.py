"""What tells one audit from another, so that only its own results are gone on with."""

from __future__ import annotations

import hashlib

import numpy as np

from vecveil.auditing.case import Case
from vecveil.runtime import resolve_device
from vecveil.types import Embeddings
from vecveil.version import __version__

__all__ = ["fingerprint"]


def fingerprint(case: Case, vectors: Embeddings, protector: str, encoder: str | None) -> str:
    """Return a hash of everything that decides what the attacks find.

    Args:
        vectors: what is audited: clean vectors that are protected, or those of a store.
        protector: fingerprint of the protector; empty for a store.
        encoder: what tells encoders apart, or None.
    """
    o = case.options
    device = resolve_device(o.device, owner="audit")
    settings = (o.tier, o.seed, sorted(o.skip), device, o.show_reconstructions, o.corpus)
    found = (case.vocabulary.tokens, case.matches.spans, case.matches.labels, case.texts)
    digest = hashlib.sha256()
    for part in (__version__, protector, encoder, *settings, *found):
        digest.update(repr(part).encode("utf-8", "surrogatepass"))
    clean = [] if case.embeddings is None else [case.embeddings]
    for array in (vectors, *clean, case.labels, case.groups, case.train, case.test):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
