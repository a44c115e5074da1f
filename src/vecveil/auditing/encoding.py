"""Encodes texts for an audit, with whatever encoder there is."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from vecveil.auditing.case import Encode
from vecveil.encoders import load_encoder
from vecveil.errors import InvalidInputError
from vecveil.protector import Protector
from vecveil.types import Embeddings
from vecveil.validation import check_embeddings

__all__ = ["encode_with", "encoder_name", "encoder_of"]


def encoder_of(protector: Protector, encoder: Any, *, needed: bool) -> Any:
    """Return the encoder that is given, or the protector's own; None where there is none and none is needed.

    Raises:
        IncompatibleError: it is not the one that the protector was fitted for.
        InvalidInputError: there is none, and it is needed.
    """
    if encoder is not None:
        loaded = load_encoder(encoder)
        protector.check_encoder(loaded)
        return loaded
    if not needed and protector.encoder is None:
        return None
    try:
        return protector.loaded_encoder()
    except InvalidInputError:
        if needed:
            raise
        return None


def encoder_name(encoder: Any) -> str | None:
    """Return what tells encoders apart: the fingerprint, or the type of one that has none."""
    if encoder is None:
        return None
    return str(getattr(encoder, "fingerprint", None) or type(encoder).__qualname__)


def encode_with(encoder: Any, dimension: int | None, *, show_progress: bool | None) -> Encode:
    """Return the function from texts to vectors (N, n); attacks that run side by side take turns."""
    turn = threading.Lock()

    def encode(texts: Sequence[str]) -> Embeddings:
        listed = list(texts)
        bar = {"show_progress": show_progress} if hasattr(encoder, "encode_chunks") else {}
        with turn:
            encoded = encoder.encode(listed, **bar)
        return check_embeddings(
            np.asarray(encoded), owner="audit", param="embeddings", dimension=dimension
        )

    return encode
