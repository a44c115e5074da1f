"""The artefact: everything that is needed to protect vectors, and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vecveil.accounting import Guarantee
from vecveil.checks import check_embeddings
from vecveil.errors import IncompatibleError, InvalidInputError, ReleaseError, message
from vecveil.mechanisms import Mechanism
from vecveil.randomness import resolve_generator
from vecveil.sensitivity.linear_map import LinearMap
from vecveil.types import Embeddings, Matrix, RandomSource, Texts

if TYPE_CHECKING:
    from vecveil.encoders import Encoder

__all__ = ["EncoderInfo", "Protector"]

BLOCK_ROWS = 8192
Output = Literal["full", "reduced"]


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


@dataclass(frozen=True, eq=False, repr=False)
class Protector:
    """Protects embeddings by y = T(x + z). Made by `vecveil.fit` or `vecveil.fit_pairs`, or loaded.

    Attributes:
        method: name of the method.
        mechanism: draws z.
        map: T, or None.
        output: ``full`` releases (N, n) vectors, ``reduced`` the m kept coordinates, with the same cosines.
        encoder_info: the encoder whose vectors it was fitted on.
        concept: name of the concept.
        report: what the fit measured: counts, parameters, utility. JSON-ready; holds no text and no term.
        encoder: the encoder itself, if it is at hand; never saved.
    """

    method: str
    mechanism: Mechanism
    map: LinearMap | None = None
    output: Output = "full"
    encoder_info: EncoderInfo = EncoderInfo()
    concept: str | None = None
    report: dict[str, Any] = field(default_factory=dict)
    encoder: Any = None

    def __repr__(self) -> str:
        epsilon = self.mechanism.parameters()["epsilon"]
        return (
            f"Protector({self.method!r}, n={self.dimension}, epsilon={epsilon:.4g}, "
            f"releases {self.released_dimension} dimensions)"
        )

    @property
    def dimension(self) -> int:
        """Return n, the dimension of the vectors that go in."""
        return self.mechanism.dimension

    @property
    def released_dimension(self) -> int:
        """Return the dimension of what comes out."""
        return (
            self.map.rank if self.map is not None and self.output == "reduced" else self.dimension
        )

    @cached_property
    def guarantee(self) -> Guarantee:
        """What is promised, in which metric and on which condition; ``print`` it."""
        fitted_on = ""
        if "pairs" in self.report:
            fitted_on = f"{self.report['pairs']} pairs of texts with and without the concept"
        return self.mechanism.guarantee(
            down=None if self.map is None else self.map.down, fitted_on=fitted_on
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over everything that decides what is released."""
        digest = hashlib.sha256()
        head = [
            self.method,
            self.mechanism.name,
            self.mechanism.parameters(),
            self.dimension,
            self.output,
        ]
        digest.update(json.dumps(head, sort_keys=True).encode())
        for name, array in sorted(self.arrays().items()):
            digest.update(name.encode() + str(array.shape).encode())
            digest.update(np.ascontiguousarray(array, dtype=np.float64).tobytes())
        return digest.hexdigest()

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays that a protector file stores."""
        return {**self.mechanism.to_arrays(), **({} if self.map is None else self.map.to_arrays())}

    def protect(self, X: Embeddings, rng: RandomSource = None, *, noise: bool = True) -> Embeddings:
        """Return ``X`` (N, n) protected: (N, n), or (N, m) with reduced output, in the same dtype.

        Args:
            X: (N, n) float32 or float64 clean embeddings of the encoder that the protector was fitted for.
            rng: None draws from a cryptographic generator. A seed or NumPy generator is repeatable and
                insecure: whoever knows the seed removes the noise.
            noise: False applies the deterministic map alone. That is for queries that stay on the
                trusted side; it protects nothing, and without a map it returns ``X`` as it is.

        Raises:
            InvalidInputError, IncompatibleError: see `vecveil.checks.check_embeddings`.
            ReleaseError: the result was not finite; nothing is returned.
        """
        X = check_embeddings(X, owner="Protector.protect", param="X", dimension=self.dimension)
        generator = resolve_generator(rng, owner="Protector.protect") if noise else None
        released = np.empty((len(X), self.released_dimension), dtype=X.dtype)
        for start in range(0, len(X), BLOCK_ROWS):
            block = X[start : start + BLOCK_ROWS]
            if generator is not None:
                block = self.mechanism.protect(block, rng=generator)
            if self.map is not None:
                with np.errstate(over="ignore", invalid="ignore"):  # refused below
                    block = self.map.apply(block, reduced=self.output == "reduced")
            released[start : start + BLOCK_ROWS] = block
        with np.errstate(over="ignore", invalid="ignore"):
            total = released.sum(dtype=np.float64)
        if not np.isfinite(total) and not np.isfinite(released).all():
            raise ReleaseError(
                "Protector.protect: the protected vectors are not finite, so nothing was released."
            )
        return released

    def encode(self, texts: Texts, rng: RandomSource = None, *, noise: bool = True) -> Embeddings:
        """Return the protected embeddings of ``texts``: encode, then `protect`."""
        return self.protect(np.asarray(self.loaded_encoder().encode(texts)), rng, noise=noise)

    def loaded_encoder(self) -> Encoder:
        """Return the encoder of this protector, loading it by name if it is not at hand."""
        if self.encoder is None:
            # A name of the user's own object ("native") means nothing to a model hub.
            if self.encoder_info.name is None or self.encoder_info.precision == "native":
                raise InvalidInputError(
                    message("Protector.encode", "encoder", "one that can be loaded by name", "none",
                            "It was fitted on vectors alone, or with an encoder of your own.",
                            "Encode yourself and call protect.")
                )  # fmt: skip
            from vecveil.encoders import load_encoder

            loaded = load_encoder(self.encoder_info.name)
            self.check_encoder(loaded)
            object.__setattr__(self, "encoder", loaded)
        encoder: Encoder = self.encoder
        return encoder

    def check_encoder(self, encoder: Any) -> None:
        """Raise IncompatibleError if ``encoder`` is not the one that the protector was fitted for."""
        fingerprint = encoder_fingerprint(encoder)
        expected = self.encoder_info.fingerprint
        if expected is not None and fingerprint is not None and fingerprint != expected:
            raise IncompatibleError(
                message("Protector", "encoder", f"the one it was fitted for ({self.encoder_info.name}, "
                        f"{expected[:12]})", f"{getattr(encoder, 'name', 'another')} ({fingerprint[:12]})",
                        "Its map and noise fit the vectors of that encoder only.",
                        "Use that encoder, or fit a new protector.")
            )  # fmt: skip

    def release(self) -> Callable[[Embeddings, np.random.Generator], Embeddings]:
        """Return the release oracle that an audit hands to adaptive attackers."""
        return lambda X, rng: self.protect(X, rng)

    def released_noise_covariance(self) -> Matrix:
        """Return the covariance of the noise in what is released: T S Tᵀ."""
        S = self.mechanism.noise_covariance()
        if self.map is None:
            return S
        T = self.map.down if self.output == "reduced" else self.map.matrix
        covariance: Matrix = T @ S @ T.T
        return covariance

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the protector to ``path`` (safetensors with JSON metadata), atomically.

        The file holds no text, but what it was fitted on shapes its numbers: it is not a private object.
        """
        from vecveil.protector.files import save

        save(self, path)
