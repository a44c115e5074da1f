"""`EncoderInfo`: which encoder a protector belongs to, how to load it again, and whether another is the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vecveil.encoders import TextEncoder, load_encoder
from vecveil.encoders.text_encoder import (
    PROBE_SENTENCES,
    SAVED_OPTIONS,
    load_recorded_encoder,
    matches_probe,
    options_for,
    probe_cosines,
)
from vecveil.errors import IncompatibleError, InvalidInputError
from vecveil.types import Embeddings


@dataclass(frozen=True)
class EncoderInfo:
    """Identity of the encoder that a protector belongs to; noise and map do not fit another encoder's vectors.

    Attributes:
        name: for `vecveil.load_encoder`.
        fingerprint: of weights and settings.
        precision: of the vectors.
        options: the options of `vecveil.load_encoder` that decide its vectors.
        probe: cosines between its vectors of fixed sentences, which identify it behind an API; empty if unknown.
        norms: least and largest norm of the vectors of the fit; empty if unknown or irrelevant.
    """

    name: str | None = None
    fingerprint: str | None = None
    precision: str | None = None
    probe: tuple[float, ...] = ()
    norms: tuple[float, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, encoder: Any, *, norms: tuple[float, ...] = ()) -> EncoderInfo:
        """Return the identity of ``encoder``; for None, the norms alone."""
        if encoder is None:
            return cls(norms=norms)
        native = getattr(encoder, "precision", "native") == "native"
        return cls(
            name=getattr(encoder, "name", None),
            fingerprint=encoder_fingerprint(encoder),
            precision=getattr(encoder, "precision", None),
            # The user's own object may be a look-up table that knows no probe sentence.
            probe=() if native else probe_cosines(encoder.encode, owner="EncoderInfo"),
            norms=norms,
            options=dict(getattr(encoder, "options", {})),
        )

    def same_by_probe(self, encoder: Any) -> bool:
        """Return whether ``encoder`` gives the same vectors despite another fingerprint.

        An API shows no weights, so fingerprints of one model differ if one side is behind an API. Only then the encoder
        encodes the probe sentences.
        """
        if not self.probe or "api" not in (self.precision, getattr(encoder, "precision", None)):
            return False
        return matches_probe(encoder.encode(list(PROBE_SENTENCES)), self.probe, owner="EncoderInfo")

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> EncoderInfo:
        """Return the fields of `to_record`; raise ValueError for anything else."""
        named = {key: record[key] for key in ("name", "fingerprint", "precision")}
        if not all(isinstance(value, str | None) for value in named.values()):
            raise ValueError("encoder")
        numbers = {key: record.get(key, []) for key in ("probe", "norms")}
        for key, values in numbers.items():
            if not isinstance(values, list) or not all(isinstance(v, int | float) for v in values):
                raise ValueError(key)
        ends = numbers["norms"]
        if ends and not (len(ends) == 2 and 0 <= ends[0] <= ends[1]):
            raise ValueError("norms")
        options = record.get("options", {})
        if not isinstance(options, dict):
            raise ValueError("options")
        for key, value in options.items():
            if type(value) is not SAVED_OPTIONS[key] or (type(value) is int and not 1 <= value <= 2**31):
                raise ValueError("options")
        probe, norms = (tuple(map(float, numbers[key])) for key in ("probe", "norms"))
        return cls(**named, probe=probe, norms=norms, options=options)

    def to_record(self) -> dict[str, Any]:
        record: dict[str, Any] = {"name": self.name, "fingerprint": self.fingerprint, "precision": self.precision}
        record |= {key: list(getattr(self, key)) for key in ("probe", "norms") if getattr(self, key)}
        return record | ({"options": dict(self.options)} if self.options else {})

    def load(
        self,
        encoder: Any = None,
        precision: str | None = None,
        cache: bool = False,
        show_progress: bool | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> TextEncoder:
        """Return ``encoder``, a name or object, loaded with the options of the fit and checked.

        None takes the encoder that the protector names, as far as a file may name one (`load_recorded_encoder`).
        """
        # "auto" would take the faster precision here, not that of the fit.
        fitted = self.precision if self.precision in ("fp32", "bf16") else "auto"
        choices: dict[str, Any] = {"precision": precision or fitted, "cache": "default" if cache else None}
        choices["show_progress"] = show_progress
        if encoder is not None:
            loaded = load_encoder(encoder, **choices, **options_for(encoder, self.options, options or {}))
        # The name of a user's own object ("native") means nothing to a model hub.
        elif self.name is None or self.precision == "native":
            raise InvalidInputError(
                "The protector was fitted on vectors alone, or with an encoder object. Name the `encoder`, or protect "
                "vectors.",
                param="encoder",
            )
        else:
            choices |= {**self.options, **(options or {})}
            loaded = load_recorded_encoder(self.name, owner="Protector", **choices)
        self.check(loaded)
        return loaded

    def check(self, encoder: Any) -> None:
        """Raise IncompatibleError if ``encoder`` is another one."""
        fingerprint = encoder_fingerprint(encoder)
        if self.fingerprint is None or fingerprint is None or fingerprint == self.fingerprint:
            return
        if not self.same_by_probe(encoder):
            raise IncompatibleError(
                f"The protector was fitted for the encoder {self.name} ({self.fingerprint[:12]}), not for "
                f"{getattr(encoder, 'name', 'another')} ({fingerprint[:12]}): its map and noise fit no other vectors. "
                "Name that `encoder`, or fit a new protector.",
                code="E-INCOMPATIBLE-ENCODER",
                param="encoder",
            )


def encoder_fingerprint(encoder: Any) -> str | None:
    """Return the fingerprint of the encoder's model, the same in fp32 and bf16."""
    model: str | None = getattr(encoder, "model_fingerprint", None) or getattr(encoder, "fingerprint", None)
    return model


def norm_range(*arrays: Embeddings | None) -> tuple[float, float]:
    """Return the least and the largest norm of the rows of all arrays (N, n), skipping None."""
    norms = np.concatenate([np.linalg.norm(X, axis=1) for X in arrays if X is not None])
    return float(norms.min()), float(norms.max())
