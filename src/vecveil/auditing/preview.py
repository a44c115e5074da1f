"""A preview of what an attacker reads: guesses for a few texts before and after, at several levels of noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks import KernelAttack, LabelledVectors, TransplantAttack, split_groups
from vecveil.attacks.knowledge import Knowledge
from vecveil.auditing.preview_memory import VectorMemory
from vecveil.auditing.preview_result import PreviewLevel, PreviewResult
from vecveil.auditing.preview_texts import PracticeTexts, WordList, practice_texts
from vecveil.errors import InvalidInputError
from vecveil.metrics import SimilarityTask
from vecveil.metrics.estimate import Estimate
from vecveil.metrics.token_inference import r_precision
from vecveil.types import Embeddings, Release, Texts
from vecveil.validation import check_count, check_embeddings, check_positive, check_texts

if TYPE_CHECKING:
    from vecveil.protector import Protector

__all__ = ["FACTORS", "Preview", "PreviewLevel", "PreviewResult", "Report"]

Encode = Callable[[Sequence[str]], Embeddings]
Report = Callable[[float, str], None]
"""Called with the share that is done and what is done next; an exception that it raises ends the preview."""

FACTORS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0)
SHOWN = 5
_OWNER = "Preview"
_ROWS = 2000  # training rows of the attacker: more read a little more, at the cube of the cost
_SHARES = (0.6, 0.1, 0.3)  # of the practice texts: learnt from, settings chosen on, judged on
_BATCH = 32  # small: other requests wait behind it
_ENCODING = 0.4  # of the time, about


class Preview:
    """Trains an attacker for each level of noise and lets it guess.

    The attacker has background texts and the encoder, knows the protector and its noise, protects its own training
    texts with it as often as it likes, and learns from what comes out (`TransplantAttack`; `KernelAttack` where
    texts are rewritten). It is one attacker, on few texts: an audit (`vecveil.audit`) tries more and stronger ones.

    Args:
        protector: what is previewed.
        background: ordinary texts, 60 or more; 400 of them at most are used.
        words: 2 to 200 words or phrases to guess from.
        encode: the protector's encoder as a function; None takes the encoder of the protector.
        factors: levels of noise, as multiples of the protector's own; 1 is always among them.
        memory: keeps vectors of background texts from one preview to the next; never those of texts asked about.
        encoder: whose vectors those in ``memory`` are.
        seed: of the choice and split of texts, of training and of noise: the same seed gives the same result.

    Raises:
        InvalidInputError: too few texts or words, or a protector that rewrites the texts of its fit alone.
    """

    def __init__(
        self,
        protector: Protector,
        background: Texts,
        words: Sequence[str],
        *,
        encode: Encode | None = None,
        factors: Sequence[float] = FACTORS,
        memory: VectorMemory | None = None,
        encoder: str = "",
        seed: int = 0,
    ) -> None:
        if protector.rewriter is not None and protector.rewriter.needs_spans:
            raise InvalidInputError.of(_OWNER, "protector", "one that finds its concept in any text",
                                       repr(protector.method),
                                       "Its concept was given as spans of certain texts.")  # fmt: skip
        self.protector = protector
        self.words = WordList(words)
        self.seed = check_count(seed, owner=_OWNER, param="seed", minimum=0)
        wanted = {check_positive(factor, owner=_OWNER, param="factors") for factor in factors}
        self.factors = tuple(sorted(wanted | {1.0})) if can_rescale(protector) else (1.0,)
        self._encode = encode or _own_encoder(protector)
        self._memory, self._encoder = memory, encoder
        self._practice = practice_texts(background, self.words, seed=self.seed)

    def run(self, texts: Texts, *, report: Report | None = None) -> PreviewResult:
        """Return what the attacker guesses of ``texts`` at each level, and how it fares on background texts.

        The texts are encoded and released once a level; nothing of them is kept.
        """
        say = report or (lambda share, what: None)
        texts = check_texts(texts, owner=_OWNER)
        made = self._practice
        learnt, tried, judged = split_groups(made.groups, _SHARES, seed=self.seed)
        rewriter = self.protector.rewriter
        listed = [*made.ordinary, *made.texts, *made.without]
        clean = _Vectors.cut(self._background_vectors(listed, say), made, self._vectors(texts))
        written = clean
        if rewriter is not None:
            again = self._background_vectors(rewriter.rewrite(listed), say)
            asked = self._vectors(rewriter.rewrite(texts))
            written = _Vectors.cut(again, made, asked)
        parts = (learnt, tried, judged)
        steps = len(self.factors) + 1
        say(_ENCODING, "training an attacker on clean vectors")
        before = self._level(0.0, clean, clean, parts, None)
        levels = []
        for i, factor in enumerate(self.factors):
            share = _ENCODING + (1 - _ENCODING) * (i + 1) / steps
            say(
                share, f"training an attacker on protected vectors ({i + 1} of {len(self.factors)})"
            )
            protector = self.protector if factor == 1 else self.protector.rescaled(factor)
            used = None if rewriter is not None else protector
            levels.append(self._level(factor, clean, written, parts, used))
        say(1.0, "done")
        return PreviewResult(
            words=self.words.words,
            held=tuple(
                tuple(int(j) for j in np.flatnonzero(row))
                for row in self.words.labels(self.words.find(texts))
            ),
            clean=before,
            levels=tuple(levels),
            chosen=self.factors.index(1.0),
            practice={
                "background": len(made.ordinary),
                "found": made.found,
                "learnt": len(learnt) + len(tried),
                "judged": len(judged),
            },
            rewrites=rewriter is not None,
        )

    def _level(
        self,
        factor: float,
        clean: _Vectors,
        given: _Vectors,
        parts: Sequence[npt.NDArray[np.intp]],
        protector: Protector | None,
    ) -> PreviewLevel:
        """Return what is left and read of ``given``, which ``protector`` releases; None: released as it is."""
        learnt, tried, judged = parts
        rng = np.random.default_rng([self.seed, 22])  # the same draws at each level
        release: Release = (lambda X, rng: X) if protector is None else protector.release()
        labels, groups = self._practice.labels, self._practice.groups
        train, validation = (
            LabelledVectors(given.texts[r], labels[r], groups[r], given.without[r]) for r in (learnt, tried)
        )  # fmt: skip
        seen, asked = release(given.texts[judged], rng), release(given.asked, rng)
        knowledge = Knowledge(
            seen.shape[1],
            None if protector is None else release,
            None if protector is None else protector.released_noise_covariance(),
        )
        # Moving differences between texts needs vectors that a sum of parts resembles: not rewritten ones.
        attack = (TransplantAttack if given is clean else KernelAttack)(rows=_ROWS)
        setting = attack.choose(train, validation, knowledge, rng)
        model = attack.learn([train, validation], setting, knowledge, rng)
        scores = model(seen)
        frequent = labels[np.concatenate([learnt, tried])].mean(axis=0)
        # Words are put in equally often, so those rarer here are more frequent there: blind guessing may find more.
        leakage = max(
            (
                r_precision(
                    scores, labels[judged], groups[judged], base_rates=rates, seed=self.seed
                )
                for rates in (frequent, np.zeros(len(self.words)))
            ),
            key=lambda estimate: estimate.chance or 0.0,
        )
        return PreviewLevel(
            factor, self._utility(clean, given, protector, rng), leakage, _best(model(asked))
        )

    def _utility(
        self,
        clean: _Vectors,
        given: _Vectors,
        protector: Protector | None,
        rng: np.random.Generator,
    ) -> Estimate:
        task = SimilarityTask.of(clean.ordinary, seed=self.seed)
        if given is clean and protector is None:
            return task.clean()
        if protector is None:
            from vecveil.protector.texts_only import released_rows

            return task.protected(
                released_rows(clean.ordinary, given.ordinary, owner=_OWNER), rng, sides="both"
            )
        return task.protected(lambda V, generator: protector.protect(V, generator), rng)

    def _background_vectors(self, texts: Sequence[str], say: Report) -> Embeddings:
        blocks = []
        memory = VectorMemory() if self._memory is None else self._memory
        for start in range(0, len(texts), _BATCH):
            say(_ENCODING * start / len(texts), "encoding background texts")
            part = texts[start : start + _BATCH]
            blocks.append(memory.encode(part, self._vectors, encoder=self._encoder))
        return np.concatenate(blocks)

    def _vectors(self, texts: Sequence[str]) -> Embeddings:
        vectors = np.asarray(self._encode(list(texts)))
        X = check_embeddings(
            vectors, owner=_OWNER, param="encode", dimension=self.protector.dimension
        )
        if len(X) != len(texts):
            got = f"{len(X)} of {len(texts)}"
            raise InvalidInputError.of(_OWNER, "encode", "one vector for each text", got)
        return X


@dataclass(frozen=True, eq=False, repr=False)
class _Vectors:
    """Vectors of the background, of practice texts with and without their words, of the texts asked about."""

    ordinary: Embeddings
    texts: Embeddings
    without: Embeddings
    asked: Embeddings

    @classmethod
    def cut(cls, every: Embeddings, made: PracticeTexts, asked: Embeddings) -> _Vectors:
        first, second = len(made.ordinary), len(made.ordinary) + len(made.texts)
        return cls(every[:first], every[first:second], every[second:], asked)


def can_rescale(protector: Protector) -> bool:
    """Return whether the protector's noise can be made stronger and weaker."""
    try:
        protector.rescaled(2.0)
    except InvalidInputError:
        return False
    return True


def _own_encoder(protector: Protector) -> Encode:
    encoder = protector.loaded_encoder()
    return lambda texts: np.asarray(encoder.encode(list(texts)))


def _best(scores: npt.NDArray[Any]) -> tuple[tuple[tuple[int, float], ...], ...]:
    """Return the best guesses of each row."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :SHOWN]
    return tuple(
        tuple((int(word), float(np.clip(row[word], 0.0, 1.0))) for word in best)
        for row, best in zip(scores, order, strict=True)
    )
