"""ALGEN: few leaked pairs align the released vectors with a decoder that reads another embedding space."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.attack import Session
from vecveil.attacks.evidence import Knowledge, TextVectors, split_groups
from vecveil.attacks.reconstruction.base import EncodeTexts, WordsOf
from vecveil.attacks.reconstruction.decoder import Decoder, DecoderAttack, open_decoder
from vecveil.errors import InvalidInputError, optional_import
from vecveil.io import atomic_path
from vecveil.types import Embeddings
from vecveil.validation import check_count

Array = npt.NDArray[Any]

_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)  # of the mean squared norm of a released vector


@dataclass(frozen=True, eq=False)
class _Aligned:
    decoder: Decoder
    maps: Mapping[int, Array]  # by number of pairs
    norm: float

    def save(self, folder: Path) -> None:
        from safetensors.numpy import save_file

        self.decoder.save(folder)
        arrays = {f"map/{k}": np.ascontiguousarray(W) for k, W in self.maps.items()}
        arrays["norm"] = np.array([self.norm])
        with atomic_path(folder / "alignment.safetensors") as temporary:
            save_file(arrays, str(temporary))

    @classmethod
    def load(cls, folder: Path) -> _Aligned:
        from safetensors.numpy import load_file

        arrays = load_file(str(folder / "alignment.safetensors"))
        norm = float(arrays.pop("norm")[0])
        maps = {int(key.removeprefix("map/")): W for key, W in arrays.items()}
        return cls(Decoder.load(folder), dict(sorted(maps.items())), norm)


class ALGENAttack(DecoderAttack):
    """A decoder of the attacker's own encoder, and a linear map onto its space from k leaked pairs.

    The decoder is a checkpoint of `GEIAAttack` (its folder), or is trained now on clean vectors
    of ``corpus``; without a corpus, on the training texts. The main figures use the most pairs,
    ``token_f1_of_K`` uses K.
    """

    name = "algen"
    description = "Decoder of another embedding space, reached by a linear map from a few leaked pairs."
    cost = "k leaked pairs of text and vector, and a decoder trained beforehand"
    source = "Chen, Xu and Bjerva (2025), ALGEN: few-shot inversion by cross-model alignment."
    state_type = _Aligned

    def __init__(
        self,
        decoder: str | Path | None = None,
        *,
        pairs: Sequence[int] = (1, 10, 100, 1000),
        preset: str = "small",
        corpus: Sequence[str] | None = None,
        encode: EncodeTexts | None = None,
        beams: int = 1,
        judge_encoder: EncodeTexts | None = None,
        words_of: WordsOf | None = None,
        judged: int = 500,
        device: str = "auto",
        **options: Any,
    ) -> None:
        """Keep the settings.

        Args:
            decoder: Folder of a decoder (a checkpoint of `GEIAAttack` on clean vectors), or None to train one.
            pairs: Numbers of leaked pairs to try; those above the number of training texts use them all.
            preset: Of the decoder that is trained, with ``options`` as in `DecoderAttack`.
            corpus: Texts to train it on, none of them a test text; None takes the training texts.
            encode: The attacker's own encoder, any dimension. None: the clean training vectors are its own,
                which needs a release oracle.
            judged: Most test texts that are reconstructed, for each number of pairs.

        `DecoderAttack` and `ReconstructionAttack` describe the others.
        """
        owner = "ALGENAttack"
        self.decoder = None if decoder is None else str(decoder)
        self.pairs = tuple(sorted({check_count(k, owner=owner, param="pairs") for k in pairs}))
        if not self.pairs:
            raise InvalidInputError("pairs must name at least one number of leaked pairs.", param="pairs")
        judging = (judge_encoder, words_of, judged)
        super().__init__(preset, options, corpus, encode, beams, device, judging)

    def _check(self, train: TextVectors, test: TextVectors, knowledge: Knowledge) -> None:
        super()._check(train, test, knowledge)
        if self._encode is None and not knowledge.adaptive:
            raise InvalidInputError(
                "Without a release oracle no clean vectors are left to align with: pass the attacker's own encoder as "
                "encode.",
                param="encode",
            )

    def _fit(self, train: TextVectors, validation: TextVectors, session: Session) -> _Aligned:
        rng = session.rng
        leaked = rng.permutation(len(train))[: self.pairs[-1]]
        own = self._own(train.take(leaked))
        if self.decoder is None:  # the leaked pairs are drawn first: the same with any decoder
            decoder = self._trained(train, validation, session)
        else:
            decoder = open_decoder(Path(self.decoder), own.shape[1], owner="ALGENAttack")
        released = session.draw(train.X[leaked])
        counts = sorted({min(k, len(leaked)) for k in self.pairs})
        maps = {k: align(released[:k], own[:k]) for k in counts}
        return _Aligned(decoder, maps, float(np.linalg.norm(own, axis=1).mean()))

    def _own(self, data: TextVectors) -> Array:
        return data.X if self._encode is None else np.asarray(self._encode(data.texts))

    def _trained(self, train: TextVectors, validation: TextVectors, session: Session) -> Decoder:
        texts, held = train.texts, (self._own(validation), validation.texts)
        if self._corpus is not None and self._encode is not None:
            seed = int(session.rng.integers(2**31))
            # The corpus replaces the training texts, so its own part must judge the losses.
            rows = split_groups(np.arange(len(self._corpus)), (0.95, 0.05), seed=seed)
            texts, held_texts = ([self._corpus[i] for i in part] for part in rows)
            X = np.asarray(self._encode(texts))
            held = np.asarray(self._encode(held_texts)), held_texts
        else:
            X = self._own(train)
        return self._train(X, texts, held, lambda X, rng: X, session)

    def _reconstruct(self, state: _Aligned, X: Embeddings, knowledge: Knowledge) -> list[str]:
        return self._write(state, X, max(state.maps))

    def _variants(self, state: _Aligned, X: Embeddings, knowledge: Knowledge) -> Iterator[tuple[str, str, list[str]]]:
        for k in sorted(state.maps)[:-1]:
            yield str(k), f"with {k} pair{'s' * (k > 1)}", self._write(state, X, k)

    def _write(self, state: _Aligned, X: Embeddings, pairs: int) -> list[str]:
        mapped = X.astype(np.float64) @ state.maps[pairs]
        norms = np.linalg.norm(mapped, axis=1, keepdims=True)
        mapped *= state.norm / np.maximum(norms, 1e-12)  # ridge regression has shrunk them
        return self._decode(state.decoder, mapped)

    def _details(self, state: _Aligned) -> Mapping[str, Any]:
        return {**state.decoder.details, "pairs": max(state.maps), "beams": self._beams}


def align(released: Array, own: Array) -> Array:
    """Return the map W (m, n) with ``released @ W`` near ``own``: ridge least squares from k pairs.

    The ridge shrinks W to zero or, between spaces of equal dimension, possibly to the identity. The point and the
    penalty are chosen by the leave-one-out error, which has a closed form; a single pair gets the
    smallest penalty, and zero.

    Formula: W = P + Yᵀ (Y Yᵀ + λ I)⁻¹ (A - Y P), Y (k, m) released, A (k, n) own, P the point shrunk to.
    """
    with optional_import("The alignment of vectors", "scikit-learn", "attacks"):
        from sklearn.linear_model import Ridge, RidgeCV

    Y, A = released.astype(np.float64), own.astype(np.float64)
    k, m = Y.shape
    penalties = (float((Y**2).sum()) / k or 1.0) * np.array(_PENALTIES)
    points = [np.zeros((m, A.shape[1]))]
    if k == 1:
        return np.asarray(Ridge(penalties[0], fit_intercept=False).fit(Y, A).coef_.T)
    if m == A.shape[1]:
        points.append(np.eye(m))
    models = [RidgeCV(penalties, fit_intercept=False).fit(Y, A - Y @ P) for P in points]
    # Ties by rounding go to the first point.
    best = max(range(len(points)), key=lambda i: models[i].best_score_ * (1 + 1e-9 * (i > 0)))
    return np.asarray(points[best] + models[best].coef_.T)
