"""GEIA: a generative decoder that reads the released vector as a prefix and writes the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vecveil.attacks.attack import Session
from vecveil.attacks.evidence import Knowledge, TextVectors
from vecveil.attacks.reconstruction.base import EncodeTexts, WordsOf
from vecveil.attacks.reconstruction.decoder import Decoder, DecoderAttack
from vecveil.types import Embeddings


class GEIAAttack(DecoderAttack):
    """A GPT-2 with the projected vector as its prefix, trained on freshly released vectors.

    The preset ``paper`` fine-tunes a pretrained GPT-2 as published. ``small`` and ``medium`` train one from
    scratch on the attacker's texts; there a linear map of the vector also enters the output at every position
    and starts from the words' mean vectors, because few texts and little time would not teach a decoder to read its
    prefix.
    """

    description = "Generative decoder (GPT-2) that reads the released vector as a prefix."
    cost = "half an hour on one core (small), hours on a GPU (paper)"
    source = "Li, Xu and Song (2023), Sentence Embedding Leaks More Information than You Expect: GEIA."
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
        """Keep the settings; `DecoderAttack` and `ReconstructionAttack` describe those that are not listed.

        Args:
            start_from: Checkpoint folder of a finished attack, such as one on clean vectors of a large corpus:
                training continues from its decoder. Without a release oracle both must read the same kind of vectors.
            corpus: Further texts to learn from, none of them a test text. Without a release oracle their vectors
                count as released: that fits an attack on clean vectors only.
        """
        self.name = "geia" if preset == "small" else f"geia-{preset}"
        judging = (judge_encoder, words_of, judged)
        super().__init__(preset, options, corpus, encode, beams, device, judging)
        self.start_from = None if start_from is None else str(start_from)

    def _fit(self, train: TextVectors, validation: TextVectors, session: Session) -> Decoder:
        X, texts = train.X, list(train.texts)
        # With an oracle `draw` releases the corpus together with the training texts.
        if self._corpus is not None and self._encode is not None:
            further = np.asarray(self._encode(self._corpus), dtype=X.dtype)
            X, texts = np.concatenate([X, further]), [*texts, *self._corpus]
        # Without the corpus: the epoch is chosen on texts like the attacked ones.
        held_out = (validation.X, validation.texts)
        start = None if self.start_from is None else Path(self.start_from)
        return self._train(X, texts, held_out, session.knowledge.draw, session, start)

    def _reconstruct(self, state: Decoder, X: Embeddings, knowledge: Knowledge) -> list[str]:
        return self._decode(state, X)

    def _details(self, state: Decoder) -> Mapping[str, Any]:
        return {**state.details, "beams": self._beams}
