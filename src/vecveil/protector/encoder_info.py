"""Which encoder a protector belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["EncoderInfo", "encoder_fingerprint"]


@dataclass(frozen=True)
class EncoderInfo:
    """Which encoder a protector belongs to: vectors of another one are meaningless to it."""

    name: str | None = None
    fingerprint: str | None = None
    precision: str | None = None

    def to_record(self) -> dict[str, str | None]:
        """Return the fields."""
        return {"name": self.name, "fingerprint": self.fingerprint, "precision": self.precision}


def encoder_fingerprint(encoder: Any) -> str | None:
    """Return the fingerprint of the encoder's model; vectors in fp32 and bf16 belong to the same one."""
    model: str | None = getattr(encoder, "model_fingerprint", None) or getattr(
        encoder, "fingerprint", None
    )
    return model
