"""Base class of reconstruction attacks, which write the text of a released vector."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
import numpy.typing as npt

from vecveil.attacks.attack import Attack, AttackFinding, Session
from vecveil.attacks.evidence import Knowledge, TextVectors
from vecveil.metrics.reconstruction import reconstruction_leakage, text_similarity, token_f1
from vecveil.metrics.utility import embedding_cosine
from vecveil.types import Embeddings
from vecveil.validation import check_count

EncodeTexts = Callable[[Sequence[str]], npt.NDArray[Any]]
"""The attacker's encoder: N texts in, (N, n) vectors out."""

WordsOf = Callable[[Sequence[str]], Sequence[set[str]]]
"""Returns the concept's words that each text holds."""

EXAMPLES = 20  # pairs of texts kept for a report
_KEYS = {
    "token_f1": "token F1",
    "bleu": "BLEU",
    "rouge_l": "ROUGE-L",
    "exact_match": "exact match",
    "sentence_bleu": "sentence BLEU",
}


class ReconstructionAttack(Attack[TextVectors, TextVectors]):
    """An attack that writes texts; subclasses implement `_fit` and `_reconstruct`.

    Estimates: ``token_f1`` (the main one), ``bleu``, ``rouge_l``, ``exact_match``, ``sentence_bleu``;
    ``leakage`` if `words_of` is given; ``cosine`` if `judge_encoder` is given; ``token_f1_of_NAME`` for each further
    variant of the attack, whose metric names its knowledge (``token F1 with 10 pairs``). Chance is the same figure for
    reconstructions assigned to other texts.

    Attributes:
        judge_encoder: Encodes originals and reconstructions for their cosine; the attacker's own or another.
        words_of: The concept's words in a text, for Leakage (SPARSE Eq. 13).
        judged: Most test texts that are reconstructed: decoding is slow.
    """

    family = "reconstruction"

    judge_encoder: EncodeTexts | None = None
    words_of: WordsOf | None = None
    judged: int = 500

    def _set_judge(self, judge_encoder: EncodeTexts | None, words_of: WordsOf | None, judged: int) -> None:
        self.judge_encoder, self.words_of = judge_encoder, words_of
        self.judged = check_count(judged, owner=type(self).__name__, param="judged")

    @abstractmethod
    def _reconstruct(self, state: Any, X: Embeddings, knowledge: Knowledge) -> list[str]:
        """Return a text for each released vector of ``X``."""

    def _variants(self, state: Any, X: Embeddings, knowledge: Knowledge) -> Iterator[tuple[str, str, list[str]]]:
        """Yield name, suffix of the metric's name (``with 10 pairs``) and texts of each further variant."""
        yield from ()

    def _settings(self) -> Mapping[str, Any]:
        # Judging changes no fitted state, so a checkpoint need not agree on it.
        own = {"judge_encoder", "words_of", "judged"}
        return {key: value for key, value in super()._settings().items() if key not in own}

    @final
    def _judge(self, state: Any, train: TextVectors, test: TextVectors, session: Session) -> AttackFinding:
        if len(test) > self.judged:
            # A fixed seed: the same texts are judged whatever was learnt.
            some = np.random.default_rng(0).choice(len(test), self.judged, replace=False)
            test = test.take(np.sort(some))
        guesses = self._reconstruct(state, test.X, session.knowledge)
        seed = int(session.rng.integers(2**31))
        groups = test.groups
        measured = text_similarity(test.texts, guesses, groups, seed=seed)
        estimates = {key: measured[metric] for key, metric in _KEYS.items()}
        if self.words_of is not None:
            held = self.words_of(test.texts)
            # Leakage is a share of the concept's words and undefined where no text holds any.
            if any(held):
                written = self.words_of(guesses)
                estimates["leakage"] = reconstruction_leakage(held, written, groups, seed=seed)
        if self.judge_encoder is not None:
            X, Y = self.judge_encoder(test.texts), self.judge_encoder(guesses)
            estimates["cosine"] = embedding_cosine(X, Y, groups, seed=seed)
        for name, words, texts in self._variants(state, test.X, session.knowledge):
            f1 = token_f1(test.texts, texts, groups, seed=seed)
            estimates[f"token_f1_of_{name}"] = replace(f1, metric=f"{f1.metric} {words}")
        examples = tuple(zip(test.texts, guesses, strict=True))[:EXAMPLES]
        return AttackFinding(estimates, details=self._details(state), examples=examples)
