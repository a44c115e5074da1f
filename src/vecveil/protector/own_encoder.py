"""The encoder to use with a protector: its own, or one that gives the same vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vecveil.errors import InvalidInputError
from vecveil.protector.protector import Protector

if TYPE_CHECKING:
    from vecveil.encoders import TextEncoder

__all__ = ["encoder_for"]


def encoder_for(
    protector: Protector, name: str | None = None, precision: str | None = None, cache: bool = False
) -> TextEncoder:
    """Return the encoder to use with ``protector``: the named one, or its own.

    Raises:
        IncompatibleError: the protector was fitted for another encoder.
    """
    about = protector.encoder_info
    chosen = name or about.name
    if chosen is None:
        raise InvalidInputError.of("Protector", "encoder", "given (--encoder)", "none",
                                   "The protector was fitted on vectors alone and knows no encoder.",
                                   "Name the encoder, or give an input with vectors.")  # fmt: skip
    from vecveil.encoders import load_encoder

    known = about.precision if about.precision in ("fp32", "bf16") else None
    encoder = load_encoder(
        chosen, precision=precision or known or "auto", cache="default" if cache else None
    )
    protector.check_encoder(encoder)
    return encoder
