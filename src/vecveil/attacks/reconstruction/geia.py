"""GEIA: a generative decoder that reads the released vector as a prefix and writes the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vecveil.attacks.attack import Session
from vecveil.attacks.evidence import Knowledge, TextVectors
from vecveil.attacks.reconstruction.base import (
    EncodeTexts,
    ReconstructionAttack,
    WordsOf,
    check_corpus,
    refuse_test_texts,
)
from vecveil.attacks.reconstruction.decoder import Decoder, plan, train_decoder
from vecveil.runtime import resolve_device
from vecveil.types import Embeddings
from vecveil.validation import check_count

__all__ = ["GEIAAttack"]


class GEIAAttack(ReconstructionAttack):
    """A GPT-2 with the projected vector as its prefix, trained on freshly released vectors.

    The preset ``paper`` fine-tunes a pretrained GPT-2 as published. ``small`` and ``medium`` train one from
    scratch on the attacker's texts; there a linear map of the vector also speaks to the output at every position
    and starts from the words' mean vectors, because little text and time would not teach a decoder to read its
    prefix.
    """

    description = "Generative decoder (GPT-2) that reads the released vector as a prefix."
    cost = "half an hour on one core (small), hours on a GPU (paper)"
    source = (
        "Li, Xu and Song (2023), Sentence Embedding Leaks More Information than You Expect: GEIA."
    )
    state_type = Decoder

    def __init__(
        self,
        preset: str = "small",
        *,
        start_from: str | Path | None = None,
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
            preset: ``"small"``, ``"medium"`` or ``"paper"``.
            start_from: Checkpoint folder of a finished attack, such as one on clean vectors of a large corpus:
                its decoder is trained on with the vectors of this one. Without a release oracle both must be
                the same kind of vectors.
            corpus: Further texts to learn from, none of them a test text. Without a release oracle their vectors
                count as released: that fits an attack on clean vectors only.
            encode: Encodes the corpus.
            beams: Texts that decoding keeps at once; 1 is greedy. More find a little more and take longer.
            judge_encoder: Encodes originals and reconstructions for their cosine.
            words_of: The concept's words in a text, for Leakage.
            judged: At most so many test texts are reconstructed.
            device: ``"auto"`` takes CUDA where there is one, else the CPU.
            options: Any value of the preset: ``layers``, ``width``, ``heads``, ``prefix``, ``hidden``, ``hint``,
                ``max_tokens``, ``vocabulary``, ``model``, ``epochs``, ``batch``, ``learning_rate``,
                ``warmup_share``, ``patience``, ``clip``, ``weight_decay``, ``precision``, ``seconds``,
                ``save_seconds``.
        """
        owner = "GEIAAttack"
        self.name = "geia" if preset == "small" else f"geia-{preset}"
        self.plan = plan(preset, options, owner=owner)
        self.start_from = None if start_from is None else str(start_from)
        self.corpus_texts = check_corpus(corpus, encode, owner=owner)
        self._corpus, self._encode = corpus, encode
        self._beams = check_count(beams, owner=owner, param="beams")
        self.judge_encoder, self.words_of = judge_encoder, words_of
        self.judged = check_count(judged, owner=owner, param="judged")
        self._device = device

    def _check(self, train: TextVectors, test: TextVectors, knowledge: Knowledge) -> None:
        refuse_test_texts(self._corpus, test, owner="GEIAAttack")

    def _fit(
        self, train: TextVectors, validation: TextVectors, knowledge: Knowledge, session: Session
    ) -> Decoder:
        X, texts = train.X, list(train.texts)
        if self._corpus is not None and self._encode is not None:
            further = np.asarray(self._encode(self._corpus), dtype=X.dtype)
            X, texts = np.concatenate([X, further]), [*texts, *self._corpus]
        return train_decoder(
            self.plan,
            X,
            texts,
            (validation.X, validation.texts),
            knowledge.draw,
            session.rng,
            owner="GEIAAttack",
            device=self._device,
            start=None if self.start_from is None else Path(self.start_from),
            folder=None if session.checkpoint is None else session.checkpoint.make(),
            show_progress=session.show_progress,
        )

    def _reconstruct(self, state: Decoder, X: Embeddings, knowledge: Knowledge) -> list[str]:
        state.module.to(resolve_device(self._device, owner="GEIAAttack"))
        return state.write(X, beams=self._beams)

    def _details(self, state: Decoder) -> Mapping[str, Any]:
        return {**state.details, "beams": self._beams}
