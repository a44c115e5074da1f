"""Which protector, and of which encoder: its fingerprint, and the one encoder whose vectors it fits."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from vecveil.errors import IncompatibleError, InvalidInputError
from vecveil.protector.encoder_info import encoder_fingerprint

if TYPE_CHECKING:
    from vecveil.encoders import Encoder
    from vecveil.protector.protector import Protector

__all__ = ["check_encoder", "fingerprint_of", "load_own_encoder"]


def fingerprint_of(protector: Protector) -> str:
    """Return the SHA-256 over everything that decides what is released."""
    digest = hashlib.sha256()
    head = [
        protector.method,
        protector.mechanism.name,
        protector.mechanism.parameters(),
        protector.dimension,
        protector.output,
        [protector.before.kind, protector.before.radius],
        [step.to_record() for step in protector.after],
    ]
    if protector.rewriter is not None:
        head.append(protector.rewriter.identity())
    digest.update(json.dumps(head, sort_keys=True).encode())
    for name, array in sorted(protector.arrays().items()):
        digest.update(name.encode() + str(array.shape).encode())
        digest.update(np.ascontiguousarray(array, dtype=np.float64).tobytes())
    return digest.hexdigest()


def load_own_encoder(protector: Protector) -> Encoder:
    """Return the encoder that the protector names, loaded and checked."""
    info = protector.encoder_info
    # A name of the user's own object ("native") means nothing to a model hub.
    if info.name is None or info.precision == "native":
        raise InvalidInputError.of("Protector.encode", "encoder", "one that can be loaded by name", "none",
                                   "It was fitted on vectors alone, or with an encoder of your own.",
                                   "Encode yourself and call protect.")  # fmt: skip
    from vecveil.encoders import load_encoder

    # That of the fit: what "auto" takes goes by how fast either is just now.
    precision = info.precision if info.precision in ("fp32", "bf16") else "auto"
    loaded = load_encoder(info.name, precision=precision)
    protector.check_encoder(loaded)
    return loaded


def check_encoder(protector: Protector, encoder: Any) -> None:
    """Raise IncompatibleError if ``encoder`` is not the one that the protector was fitted for."""
    fingerprint = encoder_fingerprint(encoder)
    expected = protector.encoder_info.fingerprint
    if expected is not None and fingerprint is not None and fingerprint != expected:
        if protector.encoder_info.same_by_probe(encoder):
            return
        raise IncompatibleError.of("Protector", "encoder",
                                   f"the one it was fitted for ({protector.encoder_info.name}, " f"{expected[:12]})",
                                   f"{getattr(encoder, 'name', 'another')} ({fingerprint[:12]})",
                                   "Its map and noise fit the vectors of that encoder only.",
                                   "Use that encoder, or fit a new protector.")  # fmt: skip
