"""`Protector`: the fitted artefact that protects vectors."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from vecveil.errors import IncompatibleError, InvalidInputError, wrong_type
from vecveil.io import PRIVATE, PUBLIC, write_bytes
from vecveil.keys import KeyFile, NoiseKey
from vecveil.privacy.accounting import Guarantee, Ledger
from vecveil.privacy.mechanisms import NOTHING_BEFORE, Before, Mechanism, Step
from vecveil.privacy.mechanisms.base import BLOCK_ROWS, BLOCK_VALUES, release_error
from vecveil.privacy.protector import serialisation
from vecveil.privacy.randomness import WordStream, keyed_stream, resolve_stream, row_digests, text_digests
from vecveil.privacy.sensitivity.shapes import LinearMap
from vecveil.texts.encoders import EncoderInfo, TextEncoder
from vecveil.types import Embeddings, Matrix, RandomSource, Texts, Vector
from vecveil.validation import ItemId, check_embeddings, check_ids, check_positive, check_texts

if TYPE_CHECKING:
    from vecveil.privacy.concepts.matching import Span
    from vecveil.privacy.concepts.rewriting import Rewriter

_OWNER = "Protector.protect"
Output = Literal["full", "reduced"]

NORMALISED_RATIO = 1.01
"""Maximum ratio of the longest to the shortest row of an encoder that normalises."""
NORM_SLACK_NORMALISED, NORM_SLACK = 1.1, 2.0
"""Maximum norm of a row over that in the fit, for encoders that normalise and for others."""
LEAST_SLACK = 10.0
"""Minimum norm over that in the fit, for encoders that do not normalise: short texts have short vectors."""


@dataclass(frozen=True, eq=False, repr=False)
class Protector:
    """Protects embeddings: y = T(x + z), with steps before and after.

    Made by `vecveil.fit`, `vecveil.fit_pairs` or `vecveil.fit_labels`, or loaded.

    Attributes:
        mechanism: draws z, or moves x as a whole.
        map: T, or None.
        output: ``full`` releases (N, n) vectors, ``reduced`` the m kept coordinates, with the same cosines.
        encoder_info: the encoder of the fit.
        report: measurements of the fit: counts, parameters, utility. JSON-ready; contains no text and no term.
        encoder: the loaded encoder, or None; never saved.
        rewriter: of a text-level method or a text stage, else None. With one, texts are rewritten before they are
            encoded, and bare vectors are refused.
        settings: of the fit, to fit again; None if unknown.
    """

    method: str
    mechanism: Mechanism
    map: LinearMap | None = None
    output: Output = "full"
    encoder_info: EncoderInfo = field(default_factory=EncoderInfo)
    concept: str | None = None
    report: Mapping[str, Any] = field(default_factory=dict)
    encoder: Any = None
    before: Before = NOTHING_BEFORE
    after: tuple[Step, ...] = ()
    rewriter: Rewriter | None = None
    settings: serialisation.FitSettings | None = None

    def __repr__(self) -> str:
        return (
            f"Protector({self.method!r}, n={self.dimension},{self.mechanism.describe()} "
            f"releases {self.released_dimension} dimensions)"
        )

    @property
    def dimension(self) -> int:
        """Return n, the dimension of the clean vectors."""
        return self.mechanism.dimension

    @property
    def text_only(self) -> bool:
        """True for a text-level method, which releases vectors of rewritten texts without noise."""
        return self.mechanism.name == "texts-only"

    @cached_property
    def released_dimension(self) -> int:
        reduced = self.map is not None and self.output == "reduced"
        dimension = self.map.rank if self.map is not None and reduced else self.dimension
        for step in self.after:
            dimension = step.output_dimension(dimension)
        return dimension

    @cached_property
    def guarantee(self) -> Guarantee:
        """The formal guarantee, its metric and its condition; ``print`` it."""
        report, fitted_on = self.report, ""
        if report.get("pairs"):
            fitted_on = f"{report['pairs']} pairs of texts with and without the concept"
        elif "labelled" in report:
            fitted_on = f"{report['labelled']} texts with labels of {report['labels']} classes"
        down = None if self.map is None else self.map.down
        guarantee = self.mechanism.guarantee(down=down, fitted_on=fitted_on)
        if "labelled" in report:
            guarantee = guarantee.of_labels()
        if self.before.largest_norm is not None:
            guarantee = guarantee.within_norm(self.before.largest_norm)
        if self.rewriter is not None and not self.text_only:
            rewriter = self.rewriter
            guarantee = guarantee.of_rewritten(what=rewriter.becomes, same=rewriter.alike, shows=rewriter.shows)
        after = ["a linear map"] * (self.map is not None) + [step.label for step in self.after]
        return guarantee.followed_by(tuple(after)) if after else guarantee

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over all fields that affect a release."""
        digest = hashlib.sha256()
        head: list[Any] = [
            self.method,
            self.mechanism.name,
            self.mechanism.parameters(),
            self.dimension,
            self.output,
            [self.before.kind, self.before.radius],
            [step.to_record() for step in self.after],
        ]
        if self.rewriter is not None:
            head.append(self.rewriter.identity())
        digest.update(json.dumps(head, sort_keys=True).encode())
        for name, array in sorted(self.arrays().items()):
            # Name and shape delimit the bytes, so no two sets of arrays share a digest.
            digest.update(name.encode() + str(array.shape).encode())
            digest.update(np.ascontiguousarray(array, dtype=np.float64).tobytes())
        return digest.hexdigest()

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        arrays = {**self.mechanism.to_arrays(), **({} if self.map is None else self.map.to_arrays())}
        return arrays | {
            f"after.{i}.matrix": step.matrix for i, step in enumerate(self.after) if step.matrix is not None
        }

    # -- protecting vectors

    def protect(
        self,
        X: Embeddings,
        rng: RandomSource | WordStream = None,
        *,
        noise: bool = True,
        ids: Sequence[ItemId] | None = None,
        key: NoiseKey | KeyFile | None = None,
        texts: Texts | None = None,
        ledger: Ledger | None = None,
        lengths: bool = True,
        rewritten: bool = False,
    ) -> Embeddings:
        """Return ``X`` (N, n) protected: (N, n), or (N, m) with reduced output, in the same dtype.

        Args:
            X: (N, n) float32 or float64 clean embeddings of the encoder of the fit.
            rng: None draws from a cryptographic generator. A seed or NumPy generator is repeatable and insecure: an
                attacker who knows the seed can remove the noise. A `WordStream` of N rows is not advanced: two calls
                with one key have the same noise.
            noise: False applies the deterministic part alone, for queries that stay on the trusted side. It protects
                nothing, and without a map it returns ``X`` unchanged.
            ids: one str, int or bytes per row, identifying its item for ``key`` and ``ledger``.
            key: for keyed noise: the same item with the same content under this protector always gets the same release,
                so averaging gains nothing. A holder of the key can remove the noise.
            texts: the texts of ``X``. Keyed noise then depends on the texts and on coarse values of the rows, so the
                last bits of an encoder, which vary between batches, rarely change it; values next to a step of the grid
                can still move by one.
            ledger: counts the release of each item before it is made, and refuses it beyond its cap.
            lengths: refuse rows longer than the fit's, of which the noise hides less. False is for protecting protected
                vectors again.
            rewritten: True states that ``X`` are vectors of texts that `rewrite` returned. A protector with a text
                stage refuses all others; any other protector ignores it.

        Raises:
            InvalidInputError, IncompatibleError: see `vecveil.validation.check_embeddings` and ``lengths``.
            LedgerCapError: an item exceeds its number of releases; nothing is returned.
            ReleaseError: the result is not finite; nothing is returned.
        """
        if self.rewriter is not None and not rewritten:
            raise InvalidInputError(
                f"Method {self.method!r} rewrites texts before encoding them, and other vectors contain the concept. "
                "Call encode with texts, or pass vectors of rewrite(texts) with rewritten=True.",
                code="E-INPUT-REWRITTEN",
                param="X",
            )
        if not isinstance(noise, bool | np.bool_):
            raise wrong_type(_OWNER, "noise", "True or False", noise)
        texts = None if texts is None else check_texts(texts, owner=_OWNER, min_rows=0)
        # NaN in X makes a stateless release fail, which saves a pass over X. Keys and ledgers
        # record the row before that, so they need the check first.
        finite = not noise or ledger is not None or key is not None
        X = check_embeddings(X, owner=_OWNER, param="X", dimension=self.dimension, finite=finite)
        _check_repetition(rng, len(X), noise=noise, ids=ids, key=key, texts=texts, ledger=ledger)
        if not noise:
            return self._release(X, None)
        if lengths and not self.mechanism.checks_norms:
            self.check_norms(X, owner=_OWNER)
        stream = None if key is None else self._keyed_stream(X, ids, key, texts)
        if ledger is not None:
            # Reject invalid rows before the ledger counts them.
            self.mechanism.check_rows(self.before.apply(X, owner=_OWNER))
            self._record_release(ledger, ids, len(X), stream)
        if stream is None:
            stream = resolve_stream(rng, len(X), owner=_OWNER)
        return self._release(X, stream)

    def _release(self, X: Embeddings, stream: WordStream | None) -> Embeddings:
        """Return ``X`` released block by block; ``stream`` None applies the deterministic part alone."""
        released = np.empty((len(X), self.released_dimension), dtype=X.dtype)
        plain = self.map is None and not self.after and self.before.kind == "none"
        # Maps and steps make float64 copies of a block: keep those small compared with a batch.
        rows = BLOCK_ROWS if plain else max(1, min(BLOCK_ROWS, BLOCK_VALUES // self.dimension))
        for start in range(0, len(X), rows):
            stop = min(start + rows, len(X))
            part = None if stream is None else stream.part(start, stop)
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # refused below
                try:
                    finite = self._release_block(X[start:stop], part, released[start:stop])
                except InvalidInputError:
                    # Check all rows, so that the message has the row's number in X.
                    check_embeddings(X, owner=_OWNER, param="X")
                    self.mechanism.check_rows(self.before.apply(X, owner=_OWNER))
                    raise
            if not finite:
                raise release_error(X, _OWNER)
        return released

    def _release_block(self, X: Embeddings, stream: WordStream | None, out: Embeddings) -> bool:
        """Write the release of a block to ``out``; return whether all values are finite."""
        x = X if self.before.kind == "none" else self.before.apply(X, owner=_OWNER)
        plain = self.map is None and not self.after
        y = out if plain else np.empty_like(x)
        if stream is None:
            y[:] = self.mechanism.without_noise(x)
        elif not self.mechanism.release_block(x, stream, y):
            return False
        if plain:
            return True
        if self.map is not None:
            y = self.map.apply(y, reduced=self.output == "reduced")
        for step in self.after:
            y = step.apply(y)
        out[:] = y
        # The sum is finite only if every value is, and takes no memory.
        return bool(np.isfinite(y.sum(dtype=np.float64)) or np.isfinite(y).all())

    def _keyed_stream(
        self, X: Embeddings, ids: Sequence[ItemId] | None, key: NoiseKey | KeyFile, texts: Texts | None
    ) -> WordStream:
        items = check_ids(ids, len(X), owner=_OWNER)
        if texts is None:
            digests = row_digests(X)
        elif self.encoder_info.fingerprint is None:
            raise InvalidInputError(
                "The protector records no encoder, so it takes no `texts`: vectors of two encoders for one text would "
                "get the same noise, and their difference would be free of it.",
                param="texts",
            )
        else:
            digests = text_digests(texts, X, self.encoder_info.fingerprint)
        # Id, content and fingerprint all enter the stream: otherwise different releases would share their
        # noise, and their difference would be free of it.
        current = key.key() if isinstance(key, KeyFile) else key
        return keyed_stream(current, items, digests, self.fingerprint)

    def _record_release(
        self, ledger: Ledger, ids: Sequence[ItemId] | None, rows: int, stream: WordStream | None
    ) -> None:
        """Count the release in the ledger; equal releases of keyed noise count once."""
        check_ids(ids, rows, owner=_OWNER)
        assert ids is not None
        listed = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        releases = None
        if stream is not None:
            assert stream.starts is not None
            # The start of a keyed stream identifies a release without revealing its key.
            releases = [start.tobytes() for start in stream.starts]
        epsilon = self.mechanism.parameters().get("epsilon")
        ledger.record(listed, protector=self.fingerprint, epsilon=epsilon, releases=releases)

    def check_norms(self, X: Embeddings, *, owner: str) -> None:
        """Raise IncompatibleError if a row of ``X`` (N, n) is longer than the fit's.

        The noise would hide little of it, for example of vectors of the same encoder without normalisation. Protectors
        that normalise or clip, and protectors without norms, accept every row. The message contains the row's number
        and none of its values.
        """
        limit = self._norm_limit
        if limit is None or not len(X):
            return
        norms = _norms(X)
        # NaN compares false here, and check_embeddings below names its row.
        if not np.logical_and.reduce(norms <= limit):
            check_embeddings(X, owner=owner, param="X")
            raise IncompatibleError(
                f"{owner}: row {int(np.argmax(norms))} is longer than {limit:.4g}. The noise was fitted to shorter "
                "vectors and hides little of longer ones. Use vectors of the same encoder and normalisation, or fit "
                "a new protector.",
                code="E-INCOMPATIBLE-NORM",
                param="X",
            )

    @property
    def _norm_limit(self) -> float | None:
        if not self.encoder_info.norms:
            return None
        low, high = self.encoder_info.norms
        return high * (NORM_SLACK_NORMALISED if high <= NORMALISED_RATIO * low else NORM_SLACK)

    @property
    def least_norm(self) -> float:
        """Return the minimum norm of vectors that the encoder plausibly made; 0 if the fit knows none."""
        if not self.encoder_info.norms:
            return 0.0
        low, high = self.encoder_info.norms
        return low / (NORM_SLACK_NORMALISED if high <= NORMALISED_RATIO * low else LEAST_SLACK)

    def accepts(self, X: Embeddings) -> npt.NDArray[np.bool_]:
        """Return a mask (N,) of the finite rows of ``X`` (N, n) that `protect` accepts by norm and mechanism."""
        limit = self._norm_limit
        accepted = np.ones(len(X), dtype=bool) if limit is None else np.asarray(_norms(X) <= limit)
        if self.before.kind == "normalise":
            accepted &= X.any(axis=1)
        rows = np.flatnonzero(accepted)
        if len(rows):
            x = self.before.apply(np.ascontiguousarray(X[rows]), owner="Protector.accepts")
            accepted[rows] = self.mechanism.takes(x)
        return accepted

    def direction(self, X: Embeddings) -> Embeddings:
        """Return textcrafter's v(e) for the rows of ``X`` (N, n), of norm 1: perturbations are orthogonal to it."""
        owner = "Protector.direction"
        X = check_embeddings(X, owner=owner, param="X", dimension=self.dimension)
        x = self.before.apply(X, owner=owner)
        self.mechanism.check_rows(x)
        return self.mechanism.direction(x)

    def rescaled(self, factor: float) -> Protector:
        """Return this protector with ``factor`` times the noise (ε/factor, or σ·factor) and the same map.

        Its vectors are comparable with this one's. Its report omits the measurements of the fit.

        Raises:
            InvalidInputError: the method's noise has no scale (shuffle, textcrafter, methods that rewrite texts).
        """
        factor = check_positive(factor, owner="Protector.rescaled", param="factor")
        mechanism = self.mechanism.rescaled(factor)
        if mechanism is None:
            raise InvalidInputError(
                f"The noise of method {self.method!r} has no scale. Fit a different protector.", param="method"
            )
        # Larger noise has a coarser grid, which the map has to cover.
        linear = None if self.map is None else self.map.coarser_than(mechanism.step)
        report = {"rescaled_by": factor, "fitted_as": self.fingerprint}
        return replace(self, mechanism=mechanism, map=linear, report=report, settings=None)

    def release(self) -> Callable[[Embeddings, np.random.Generator], Embeddings]:
        """Return the release oracle of an audit's adaptive attackers."""
        # An audit passes vectors of rewritten texts.
        return lambda X, rng: self.protect(X, rng, rewritten=True)

    def released_noise_covariance(self) -> Matrix:
        """Return the noise covariance of released vectors, T S Tᵀ, without rounding noise."""
        S: Matrix = self.mechanism.noise_covariance()
        if self.map is not None:
            T = self.map.down if self.output == "reduced" else self.map.matrix
            S = T @ S @ T.T
        for step in self.after:
            linear = step.linear_part(len(S))
            S = S if linear is None else linear @ S @ linear.T
        return S

    # -- texts and the encoder

    def encode(
        self,
        texts: Texts,
        rng: RandomSource = None,
        *,
        noise: bool = True,
        ids: Sequence[ItemId] | None = None,
        key: NoiseKey | KeyFile | None = None,
        ledger: Ledger | None = None,
    ) -> Embeddings:
        """Return the protected embeddings of ``texts``: rewrite them with a text stage, encode, then `protect`.

        A text-level method adds no noise: it ignores ``rng`` and refuses ids, keys and ledgers.
        """
        if self.text_only:
            for param, value in (("ids", ids), ("key", key), ("ledger", ledger), ("noise", noise)):
                if value is not None and value is not True:
                    said = f"Leave out `{param}`: the method rewrites texts and adds no noise."
                    raise InvalidInputError(said, param=param)
        X = np.asarray(self.loaded_encoder().encode(self.seen(texts)))
        known = texts if key is not None and self.encoder_info.fingerprint is not None else None
        return self.protect(X, rng, noise=noise, ids=ids, key=key, texts=known, ledger=ledger, rewritten=True)

    def seen(self, texts: Texts) -> list[str]:
        """Return the texts that the encoder sees: rewritten with a text stage, else the same."""
        texts = check_texts(texts, owner="Protector.encode", min_rows=0)
        return list(texts) if self.rewriter is None else self.rewriter.rewrite(texts)

    def rewrite(self, texts: Texts, *, spans: Sequence[Sequence[Span]] | None = None) -> list[str]:
        """Return ``texts`` as rewritten before encoding; texts without the concept stay unchanged.

        Args:
            spans: spans of the concept in each text; None detects them.

        Raises:
            InvalidInputError: the protector has no text stage, or spans do not fit the texts.
            ReleaseError: the detector still finds the concept after its replacement; nothing is returned.
        """
        if self.rewriter is None:
            raise InvalidInputError(
                f"Method {self.method!r} protects vectors and rewrites no text. Call encode or protect.", param="method"
            )
        return self.rewriter.rewrite(texts, spans=spans)

    def loaded_encoder(self) -> Any:
        """Return the encoder of this protector, loading it by name if necessary; see `encoder_for`."""
        if self.encoder is None:
            object.__setattr__(self, "encoder", self.encoder_for(cache=True))
        return self.encoder

    def encoder_for(self, encoder: Any = None, *choices: Any, **named: Any) -> TextEncoder:
        """Return ``encoder``, a name or object, or the protector's own, loaded as in the fit: `EncoderInfo.load`."""
        return self.encoder_info.load(encoder, *choices, **named)

    def check_encoder(self, encoder: Any) -> None:
        """Raise IncompatibleError if ``encoder`` is not the encoder of the fit."""
        self.encoder_info.check(encoder)

    # -- files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the protector to ``path`` atomically (safetensors with JSON metadata).

        The file contains no text, but its numbers depend on the texts of the fit: it is not a private object. With a
        text stage or a text-level method it contains the detector's terms and patterns and their replacements in plain
        text, and only its owner can read it. It names the models of detectors and the key of surrogates, but contains
        neither.
        """
        # A rewriter contains the concept's terms. write_bytes, not safetensors: a full disk raises OSError.
        write_bytes(path, self.to_bytes(), mode=PUBLIC if self.rewriter is None else PRIVATE)

    def to_bytes(self) -> bytes:
        record = {
            "method": self.method,
            "mechanism": self.mechanism.name,
            "parameters": self.mechanism.parameters(),
            "dimension": self.dimension,
            "output": self.output,
            "encoder": self.encoder_info.to_record(),
            "concept": self.concept,
            "report": dict(self.report),
            "before": vars(self.before),
            "after": [step.to_record() for step in self.after],
            "fingerprint": self.fingerprint,
        }
        if self.rewriter is not None:
            record["rewriter"] = self.rewriter.to_record()
        if self.settings is not None:
            record["settings"] = vars(self.settings)
        return serialisation.pack(record, self.arrays())

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "the file") -> Protector:
        """Return the protector of `to_bytes`; raise ProtectorFileError, with ``name``, for other bytes."""
        record, arrays = serialisation.unpack(data, name)
        with serialisation.damage_refused(name):
            protector = cls(**serialisation.parts(record, arrays))
        # The checksum covers the stored fields; the fingerprint covers the protector built from them.
        if protector.fingerprint != record.get("fingerprint"):
            raise serialisation.refuse(name, "does not match its own fingerprint")
        return protector


def load(path: str | os.PathLike[str], *, encoder: Any = None, surrogate_key: Any = None) -> Protector:
    """Return the protector saved at ``path``; raise ProtectorFileError if the file is not usable.

    Args:
        encoder: the encoder of the fit, a name or object as for `vecveil.fit`. None loads the encoder named in the file
            if it is ``minilm`` or a downloaded model; pass a server or a folder explicitly.
        surrogate_key: key of surrogates, as for `vecveil.fit`; None takes the file or variable named in the fit.
    """
    if not isinstance(path, str | os.PathLike):
        raise wrong_type("vecveil.load", "path", "the path of a protector's file", path)
    protector = Protector.from_bytes(serialisation.read(path), Path(path).name)
    if encoder is not None:
        protector = replace(protector, encoder=protector.encoder_for(encoder, cache=True))
    if surrogate_key is None:
        return protector
    if protector.rewriter is None:
        raise InvalidInputError(
            "The protector replaces nothing by surrogates, so it takes no `surrogate_key`.", param="surrogate_key"
        )
    return replace(protector, rewriter=protector.rewriter.with_key(surrogate_key))


def _norms(X: Embeddings) -> Vector:
    with np.errstate(over="ignore"):  # an overflow is infinite, and so longer than any limit
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", X, X)))  # no second copy of X


def _check_repetition(
    rng: RandomSource | WordStream,
    rows: int,
    *,
    noise: bool,
    ids: Sequence[ItemId] | None,
    key: Any,
    texts: Texts | None,
    ledger: Any,
) -> None:
    """Raise InvalidInputError for incompatible arguments of keyed noise and ledgers."""
    if key is not None and not isinstance(key, NoiseKey | KeyFile):
        # The message shows the type alone: the value may be the secret itself.
        fix = "Read it with KeyFile.from_file(path)."
        raise wrong_type(_OWNER, "key", "a vecveil.privacy.randomness.NoiseKey or KeyFile", key, fix=fix)
    if ledger is not None and not isinstance(ledger, Ledger):
        raise wrong_type(_OWNER, "ledger", "a vecveil.accounting.Ledger", ledger)
    for name, value in (("key", key), ("ledger", ledger)):
        if value is not None and ids is None:
            raise InvalidInputError(
                f"`{name}` needs `ids`, one for each row: pass the primary keys of the rows.", param="ids"
            )
        if value is not None and not noise:
            raise InvalidInputError(f"Without noise there is no `{name}`.", param=name)
    if ids is not None and key is None and ledger is None:
        raise InvalidInputError(
            "Fresh noise does not use `ids`. For noise that repeats, pass key=KeyFile.from_file(path) (--key-file).",
            param="ids",
        )
    if key is not None and rng is not None:
        raise InvalidInputError("The `key` sets the noise: leave `rng` out.", param="rng")
    if texts is not None and key is None:
        raise InvalidInputError("Fresh noise does not use `texts`: they belong to `key`.", param="texts")
    if texts is not None and len(texts) != rows:
        raise InvalidInputError(f"`texts` has {len(texts)} texts for {rows} rows.", param="texts")
