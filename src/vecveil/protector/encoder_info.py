"""Which encoder a protector belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vecveil.encoders.protocol import PROBE_TOLERANCE, probe_cosines, probe_distance

__all__ = ["EncoderInfo", "encoder_fingerprint"]


@dataclass(frozen=True)
class EncoderInfo:
    """Which encoder a protector belongs to: vectors of another one are meaningless to it.

    Attributes:
        name: under which it can be loaded.
        fingerprint: of its weights and settings.
        precision: of its vectors.
        probe: cosines between its vectors of fixed sentences, which tell it apart behind an API; empty if unknown.
        norms: least and largest norm of the vectors that the fit saw; empty if unknown or of no matter.
    """

    name: str | None = None
    fingerprint: str | None = None
    precision: str | None = None
    probe: tuple[float, ...] = ()
    norms: tuple[float, ...] = ()

    @classmethod
    def of(cls, encoder: Any, *, norms: tuple[float, ...] = ()) -> EncoderInfo:
        """Return what identifies ``encoder``; of None, the norms alone."""
        if encoder is None:
            return cls(norms=norms)
        native = getattr(encoder, "precision", "native") == "native"
        return cls(
            name=getattr(encoder, "name", None),
            fingerprint=encoder_fingerprint(encoder),
            precision=getattr(encoder, "precision", None),
            # An object of the user's own may know no other texts than theirs.
            probe=() if native else probe_cosines(encoder.encode, owner="EncoderInfo"),
            norms=norms,
        )

    def same_by_probe(self, encoder: Any) -> bool:
        """Return whether ``encoder`` gives the vectors of this one though its fingerprint differs.

        Fingerprints of one model differ where one side is behind an API, which shows no weights; only then are the
        probe sentences encoded.
        """
        if not self.probe or "api" not in (self.precision, getattr(encoder, "precision", None)):
            return False
        found = probe_cosines(encoder.encode, owner="EncoderInfo")
        return probe_distance(self.probe, found) <= PROBE_TOLERANCE

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> EncoderInfo:
        """Return the fields that `to_record` wrote; raises ValueError for anything else."""
        named = {key: record[key] for key in ("name", "fingerprint", "precision")}
        probe = record.get("probe", [])
        if not all(isinstance(value, str | None) for value in named.values()):
            raise ValueError("encoder")
        if not isinstance(probe, list) or not all(isinstance(v, int | float) for v in probe):
            raise ValueError("probe")
        norms = record.get("norms", [])
        if not isinstance(norms, list) or not all(isinstance(v, int | float) for v in norms):
            raise ValueError("norms")
        if norms and not (len(norms) == 2 and 0 <= norms[0] <= norms[1]):
            raise ValueError("norms")
        return cls(
            **named,
            probe=tuple(float(value) for value in probe),
            norms=tuple(float(value) for value in norms),
        )

    def to_record(self) -> dict[str, Any]:
        """Return the fields; probe and norms only if they are known."""
        known = {
            name: list(values)
            for name, values in (("probe", self.probe), ("norms", self.norms))
            if values
        }
        return {
            "name": self.name,
            "fingerprint": self.fingerprint,
            "precision": self.precision,
            **known,
        }


def encoder_fingerprint(encoder: Any) -> str | None:
    """Return the fingerprint of the encoder's model; vectors in fp32 and bf16 belong to the same one."""
    model: str | None = getattr(encoder, "model_fingerprint", None) or getattr(
        encoder, "fingerprint", None
    )
    return model
