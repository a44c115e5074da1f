"""The artefact: everything that is needed to protect vectors, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vecveil.accounting import Guarantee
from vecveil.errors import InvalidInputError, message
from vecveil.mechanisms import NOTHING_BEFORE, Before, Mechanism, Step, TextCrafter
from vecveil.protector.blocks import release_in_blocks
from vecveil.protector.encoder_info import EncoderInfo
from vecveil.protector.lengths import check_lengths
from vecveil.protector.repetition import check_repetition, record_release, repeated_stream
from vecveil.protector.texts_only import TextsOnly, refuse_repetition
from vecveil.randomness import ItemId, NoiseKey, NoiseKeys, WordStream, resolve_stream
from vecveil.sensitivity.linear_map import LinearMap
from vecveil.types import Embeddings, Matrix, RandomSource, Texts
from vecveil.validation import check_embeddings, check_texts

if TYPE_CHECKING:
    from vecveil.accounting import Ledger
    from vecveil.concepts.matching import Span
    from vecveil.concepts.rewriting import Rewriter
    from vecveil.encoders import Encoder

__all__ = ["Protector"]

_OWNER = "Protector.protect"
Output = Literal["full", "reduced"]


@dataclass(frozen=True, eq=False, repr=False)
class Protector:
    """Protects embeddings: y = T(x + z), with steps before and after.

    Made by `vecveil.fit` or `vecveil.fit_pairs`, or loaded.

    Attributes:
        method: name of the method.
        mechanism: draws z (or moves x in its own way).
        map: T, or None.
        output: ``full`` releases (N, n) vectors, ``reduced`` the m kept coordinates, with the same cosines.
        encoder_info: the encoder whose vectors it was fitted on.
        concept: name of the concept.
        report: what the fit measured: counts, parameters, utility. JSON-ready; holds no text and no term.
        encoder: the encoder itself, if it is at hand; never saved.
        before: what vectors go through before the noise.
        after: steps after the map.
        rewriter: of a text-level method, which takes texts and no vectors; else None.
    """

    method: str
    mechanism: Mechanism
    map: LinearMap | None = None
    output: Output = "full"
    encoder_info: EncoderInfo = field(default_factory=EncoderInfo)
    concept: str | None = None
    report: dict[str, Any] = field(default_factory=dict)
    encoder: Any = None
    before: Before = NOTHING_BEFORE
    after: tuple[Step, ...] = ()
    rewriter: Rewriter | None = None

    def __repr__(self) -> str:
        parameters = self.mechanism.parameters()
        scale = "".join(
            f" {name}={parameters[name]:.4g},"
            for name in ("epsilon", "sigma", "radius")
            if name in parameters
        )
        empirical = " empirical," if isinstance(self.mechanism, TextCrafter) else ""
        return (
            f"Protector({self.method!r}, n={self.dimension},{scale}{empirical} "
            f"releases {self.released_dimension} dimensions)"
        )

    @property
    def dimension(self) -> int:
        """Return n, the dimension of the vectors that go in."""
        return self.mechanism.dimension

    @cached_property
    def released_dimension(self) -> int:
        """The dimension of what comes out."""
        reduced = self.map is not None and self.output == "reduced"
        dimension = self.map.rank if self.map is not None and reduced else self.dimension
        for step in self.after:
            dimension = step.output_dimension(dimension)
        return dimension

    @cached_property
    def guarantee(self) -> Guarantee:
        """What is promised, in which metric and on which condition; ``print`` it."""
        from vecveil.protector.promised import promise_of

        return promise_of(self)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over everything that decides what is released."""
        from vecveil.protector.identity import fingerprint_of

        return fingerprint_of(self)

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays that a protector file stores."""
        arrays = {
            **self.mechanism.to_arrays(),
            **({} if self.map is None else self.map.to_arrays()),
        }
        for i, step in enumerate(self.after):
            if step.matrix is not None:
                arrays[f"after.{i}.matrix"] = step.matrix
        return arrays

    def protect(
        self,
        X: Embeddings,
        rng: RandomSource | WordStream = None,
        *,
        noise: bool = True,
        ids: Sequence[ItemId] | None = None,
        key: NoiseKey | NoiseKeys | None = None,
        texts: Texts | None = None,
        ledger: Ledger | None = None,
        lengths: bool = True,
    ) -> Embeddings:
        """Return ``X`` (N, n) protected: (N, n), or (N, m) with reduced output, in the same dtype.

        Args:
            X: (N, n) float32 or float64 clean embeddings of the encoder that the protector was fitted for.
            rng: None draws from a cryptographic generator. A seed or NumPy generator is repeatable and
                insecure: whoever knows the seed removes the noise. A `vecveil.randomness.WordStream` of N rows is
                taken as it is: two calls with one key have the same noise.
            noise: False applies the deterministic part alone. That is for queries that stay on the
                trusted side; it protects nothing, and without a map it returns ``X`` as it is.
            ids: one str, int or bytes for each row, which names its item for ``key`` and ``ledger``.
            key: for keyed noise: the same item with the same content under this protector always gets the same
                release, so that repetition averages nothing. Whoever has the key removes the noise.
            texts: what ``X`` was encoded from. Keyed noise then depends on the texts and on coarse values of
                the rows, so that the last bits of an encoder's arithmetic, which vary from batch to batch, rarely
                change it; values next to a step of the grid can still move by one.
            ledger: counts the release of each item before it is made, and refuses it beyond its cap.
            lengths: refuse rows that are longer than those of the fit, of which the noise hides less. False is for
                vectors that are protected already and are to be protected again.

        Raises:
            InvalidInputError, IncompatibleError: see `vecveil.validation.check_embeddings` and ``lengths``.
            LedgerCapError: an item would be released too often; nothing is returned.
            ReleaseError: the result was not finite; nothing is returned.
        """
        if isinstance(self.mechanism, TextsOnly):
            raise self.mechanism.refusal()
        if not isinstance(noise, bool | np.bool_):
            raise InvalidInputError.of(_OWNER, "noise", "True or False", type(noise).__name__)
        texts = None if texts is None else check_texts(texts, owner=_OWNER, min_rows=0)
        X = check_embeddings(
            X,
            owner=_OWNER,
            param="X",
            dimension=self.dimension,
            finite=not noise or ledger is not None or key is not None,
        )
        check_repetition(rng, len(X), noise=noise, ids=ids, key=key, texts=texts, ledger=ledger)
        if not noise:
            return release_in_blocks(self, X, None, owner=_OWNER)
        if lengths and not isinstance(
            self.mechanism, TextCrafter
        ):  # which has its own bound on them
            check_lengths(self, X, owner=_OWNER)
        stream = repeated_stream(self, X, ids, key, texts) if key is not None else None
        if ledger is not None:
            assert ids is not None
            # Refuse before it counts what would be refused after.
            self.mechanism.check_rows(self.before.apply(X, owner=_OWNER))
            record_release(ledger, self, ids, len(X), stream)
        if stream is None:
            stream = resolve_stream(rng, len(X), owner=_OWNER)
        return release_in_blocks(self, X, stream, owner=_OWNER)

    def encode(
        self,
        texts: Texts,
        rng: RandomSource = None,
        *,
        noise: bool = True,
        ids: Sequence[ItemId] | None = None,
        key: NoiseKey | NoiseKeys | None = None,
        ledger: Ledger | None = None,
    ) -> Embeddings:
        """Return the protected embeddings of ``texts``: encode, then `protect`.

        A text-level method rewrites the texts first and adds no noise: ``rng`` changes nothing, and ids, keys and
        ledgers are refused.
        """
        if self.rewriter is not None:
            refuse_repetition(ids=ids, key=key, ledger=ledger, noise=noise)
            return np.asarray(self.loaded_encoder().encode(self.rewrite(texts)))
        X = np.asarray(self.loaded_encoder().encode(texts))
        known = texts if key is not None and self.encoder_info.fingerprint is not None else None
        return self.protect(X, rng, noise=noise, ids=ids, key=key, texts=known, ledger=ledger)

    def rewrite(self, texts: Texts, *, spans: Sequence[Sequence[Span]] | None = None) -> list[str]:
        """Return ``texts`` as a text-level method encodes them; texts in which nothing is found stay as they are.

        Args:
            spans: where the concept is in each text; None finds it.

        Raises:
            InvalidInputError: the method protects vectors, or spans that do not fit the texts.
            ReleaseError: the concept is still found after it was replaced; nothing is returned.
        """
        if self.rewriter is None:
            raise InvalidInputError(
                message("Protector.rewrite", "method", "one that rewrites texts", repr(self.method),
                        "It protects vectors.", "Call encode or protect.")
            )  # fmt: skip
        return self.rewriter.rewrite(texts, spans=spans)

    def direction(self, X: Embeddings) -> Embeddings:
        """Return v(e) for the rows of ``X`` (N, n), of norm 1, in the same dtype: no perturbation goes along it.

        Raises:
            InvalidInputError: the method is not textcrafter, or see `protect`.
        """
        owner = "Protector.direction"
        if not isinstance(self.mechanism, TextCrafter):
            raise InvalidInputError.of(owner, "method", "'textcrafter'", repr(self.method),
                                       "Only its perturbations keep to a reference direction.")  # fmt: skip
        X = check_embeddings(X, owner=owner, param="X", dimension=self.dimension)
        x = self.before.apply(X, owner=owner)
        self.mechanism.check_rows(x)
        return self.mechanism.direction(x)

    def rescaled(self, factor: float) -> Protector:
        """Return this protector with ``factor`` times the noise (ε/factor, or σ·factor) behind the same map.

        Its vectors can be compared with those of this one. What the fit measured is left out of its report.

        Raises:
            InvalidInputError: ``factor`` is no positive number, or the method's noise has no scale (shuffle,
                textcrafter, methods that rewrite texts).
        """
        from vecveil.protector.rescaling import rescaled

        return rescaled(self, factor)

    def loaded_encoder(self) -> Encoder:
        """Return the encoder of this protector, loading it by name if it is not at hand."""
        if self.encoder is None:
            from vecveil.protector.identity import load_own_encoder

            object.__setattr__(self, "encoder", load_own_encoder(self))
        encoder: Encoder = self.encoder
        return encoder

    def check_encoder(self, encoder: Any) -> None:
        """Raise IncompatibleError if ``encoder`` is not the one that the protector was fitted for."""
        from vecveil.protector.identity import check_encoder

        check_encoder(self, encoder)

    def release(self) -> Callable[[Embeddings, np.random.Generator], Embeddings]:
        """Return the release oracle that an audit hands to adaptive attackers."""
        return lambda X, rng: self.protect(X, rng)

    def released_noise_covariance(self) -> Matrix:
        """Return the covariance of the noise in what is released, T S Tᵀ; rounding steps are not counted."""
        S = self.mechanism.noise_covariance()
        if self.map is not None:
            T = self.map.down if self.output == "reduced" else self.map.matrix
            S = T @ S @ T.T
        for step in self.after:
            linear = step.linear_part(len(S))
            S = S if linear is None else linear @ S @ linear.T
        covariance: Matrix = S
        return covariance

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the protector to ``path`` (safetensors with JSON metadata), atomically.

        The file holds no text, but what it was fitted on shapes its numbers: it is not a private object. That of a
        text-level method holds the concept's terms and patterns and the words that take their place, in clear, and
        is readable by its owner only.
        """
        from vecveil.protector.files import save

        save(self, path)
