"""Split a problem's texts and words, and attack the listed and the unseen words separately."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from research.points import attacks_named, released
from research.problems import Problem
from vecveil.auditing.attacks import LabelledVectors, split_groups
from vecveil.privacy.concepts import Concept, TokenVocabulary
from vecveil.privacy.concepts.matching import words
from vecveil.privacy.protector import Protector, fit
from vecveil.types import Embeddings

SHARES = (0.35, 0.35, 0.3)  # of the texts: fitted on, attackers learn from, attackers are judged on
MIN_COUNT = 10  # minimum number of training texts of a word


class WordSplit:
    """One split of a problem's texts and words, as vectors; ``seed`` determines both splits.

    Args:
        listed: share of the words that a fit knows, in quarters.
        least: minimum number of training texts of a word that attackers learn.
        in_sample: let attackers train on the fitted texts, twice as many, instead of other ones.
    """

    def __init__(
        self,
        problem: Problem,
        encoder: Any,
        seed: int,
        *,
        listed: float = 0.5,
        least: int = MIN_COUNT,
        in_sample: bool = False,
    ) -> None:
        self.problem, self.encoder, self.seed = problem, encoder, seed
        self.matches = problem.matches
        self.ids = problem.groups[self.matches.with_concept]
        rest, self.test = split_groups(self.ids, (sum(SHARES[:2]), SHARES[2]), seed=seed)
        halves = split_groups(self.ids[rest], (0.5, 0.5), seed=seed)
        self.fit, self.attack = (rest, rest) if in_sample else (rest[part] for part in halves)
        every, tokens = self.matches.token_labels(min_count=1)
        counts = every[self.attack].sum(axis=0)
        kept = tuple(t for t, c in zip(tokens.tokens, counts, strict=True) if c >= least)
        self.vocabulary = TokenVocabulary(kept)
        self.labels, _ = self.matches.token_labels(self.vocabulary)
        self.listed = _listed_words(tokens.tokens, seed, round(4 * listed))
        others = np.isin(problem.groups, np.delete(self.ids, self.fit))
        ordinary = np.setdiff1d(self.matches.without_concept, np.flatnonzero(others))
        self.rows = np.concatenate([self.matches.with_concept[self.fit], ordinary])
        self.texts = [problem.texts[i] for i in self.rows]

    @cached_property
    def positive(self) -> Embeddings:
        """(P, n) vectors of the texts with the concept."""
        found: Embeddings = self.encoder.encode(self.matches.positives())
        return found

    @cached_property
    def negative(self) -> Embeddings:
        """(P, n) vectors of the same texts without any word of the concept."""
        found: Embeddings = self.encoder.encode(self.matches.negatives())
        return found

    def rewritten(self, protector: Protector) -> WordSplit:
        """Return the split with the vectors of the texts as a protector rewrites them, for the same words.

        Rows that are neither used for training nor judged are zero.
        """
        found = copy.copy(self)
        rows = np.union1d(self.attack, self.test)
        found.positive, found.negative = (
            encoded_rows(rows, texts, lambda part: self.encoder.encode(protector.rewrite(part)))
            for texts in (self.matches.positives(), self.matches.negatives())
        )
        return found

    def concept(self, known: frozenset[str] | None) -> Concept:
        """Return the concept of the fitted texts, restricted to spans with a known word; None keeps all."""
        spans = [
            [
                {"start": s.start, "end": s.end, "label": s.label}
                for s in self.matches.spans[i]
                if known is None or not known.isdisjoint(words(s.term))
            ]
            for i in self.rows
        ]
        return Concept.from_spans(self.problem.name, spans)

    def fitted(self, method: str, concept: Concept, **arguments: Any) -> Protector:
        """Return a protector of the fitted texts; ``arguments`` are those of `vecveil.fit`."""
        return fit(self.texts, concept, self.encoder, method=method, seed=self.seed, show_progress=False, **arguments)

    def kinds(self) -> dict[str, npt.NDArray[np.intp]]:
        """Return the label columns of listed and unseen words; kinds with one word are left out."""
        known = np.array([token in self.listed for token in self.vocabulary.tokens], dtype=bool)
        found = {"listed": np.flatnonzero(known), "unseen": np.flatnonzero(~known)}
        return {kind: columns for kind, columns in found.items() if len(columns) > 1}


def encoded_rows(
    rows: npt.NDArray[np.intp], texts: Sequence[str], encode: Callable[[list[str]], Embeddings]
) -> Embeddings:
    """Return the vectors of ``texts`` (N, n) at ``rows``, and zero elsewhere."""
    vectors = encode([texts[i] for i in rows])
    X = np.zeros((len(texts), vectors.shape[1]), dtype=vectors.dtype)
    X[rows] = vectors
    return X


def _listed_words(tokens: Sequence[str], seed: int, count: int) -> frozenset[str]:
    """Return the listed words: ``count`` of every four by frequency."""
    rng = np.random.default_rng([seed, 6])
    fours = (tokens[start : start + 4] for start in range(0, len(tokens), 4))
    return frozenset(w for four in fours for w in rng.permutation(np.asarray(four)).tolist()[:count])


def leaks(held: WordSplit, protector: Protector | None, attacks: Sequence[str]) -> dict[str, Any]:
    """Return the result of the strongest attack on the listed and on the unseen words."""
    return {kind: strongest(held, columns, protector, attacks) for kind, columns in held.kinds().items()}


def strongest(
    held: WordSplit,
    columns: npt.NDArray[np.intp],
    protector: Protector | None,
    attacks: Sequence[str],
    *,
    removed: bool = False,
) -> dict[str, Any]:
    """Return the result of the strongest attack on the words of some columns.

    ``removed`` attacks the vectors of the texts without the concept, to measure what the rest of a sentence reveals.
    """
    X = held.negative if removed else held.positive
    learnt, judged = (rows[held.labels[rows][:, columns].any(axis=1)] for rows in (held.attack, held.test))
    attacked, oracle = released(protector, X[judged], held.seed)
    without = None if removed else held.negative[learnt]
    train = LabelledVectors(X[learnt], held.labels[learnt][:, columns], held.ids[learnt], without)
    test = LabelledVectors(attacked, held.labels[judged][:, columns], held.ids[judged])
    chosen = [a for a in attacks_named(attacks, further=False) if not (removed and a.name == "transplant")]
    results = [a.run(train, test, rng=held.seed, show_progress=False, **oracle) for a in chosen]
    worst = max(results, key=lambda result: result.value)
    record = worst.main.to_record()
    return {
        "words": len(columns),
        "texts": len(judged),
        "attack": worst.name,
        **{key: record[key] for key in ("value", "low", "high", "chance")},
        "attacks": {result.name: round(result.value, 5) for result in results},
    }
