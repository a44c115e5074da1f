"""Words that a fit is not told of: which are listed, open to the sources of an expansion, or withheld from both.

Of four words next to one another in frequency two are listed, one is open to the sources and one is withheld. Listed
words are the concept that is fitted; ``expanded`` words are open ones that a source proposes; ``unseen`` are the
withheld ones and those that no source proposes. Protectors are fitted on texts of their own, attackers learn every word
from other texts and are judged on a third part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from research.datasets import open_dataset
from research.datasets.kinds import TextSet
from research.points import attacks_named
from research.problem_concepts import read_terms
from research.problems import Problem
from vecveil.attacks import LabelledVectors, split_groups
from vecveil.concepts import Concept, TokenVocabulary
from vecveil.concepts.expansion import (
    CorpusNeighbourSource,
    Expansion,
    ExpansionContext,
    FakerSource,
    MemberSource,
    WordListSource,
)
from vecveil.concepts.folding import canonical, words
from vecveil.protector import Protector
from vecveil.types import Embeddings

__all__ = ["KINDS", "HeldOut", "SourceSpec", "Withholding", "member_sources", "strongest"]

SHARES = (0.35, 0.35, 0.3)  # of the texts: fitted on, attackers learn from, attackers are judged on
MIN_COUNT = 10  # texts that an attacker learns a word from
KINDS = ("listed", "expanded", "unseen")


@dataclass(frozen=True, kw_only=True)
class SourceSpec:
    """Where an expansion's members come from; an empty field is no source.

    Attributes:
        corpus: a data set of sentences, searched for words near the listed ones in the encoder's space.
        corpus_labels: labels of its texts that are taken (the parts of the set); none takes all.
        word_list: a file of terms in the data folder.
        gazetteer: data set -> labels of its annotated spans.
        faker: providers of Faker.
        members: at most so many in all.
    """

    corpus: str | None = None
    corpus_labels: tuple[str, ...] = ()
    word_list: str | None = None
    gazetteer: dict[str, tuple[str, ...]] = field(default_factory=dict)
    faker: tuple[str, ...] = ()
    members: int = 2000


@dataclass
class Withholding:
    """A source that does not know some words."""

    source: MemberSource
    withheld: frozenset[str] = field(repr=False)
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.source.name

    def members(self, context: ExpansionContext) -> Mapping[str, Sequence[str]]:
        """Return the members of the source that hold none of the words."""
        return {
            group: [m for m in own if self.withheld.isdisjoint(words(canonical(m)))]
            for group, own in self.source.members(context).items()
        }


def member_sources(spec: SourceSpec, data: Path, withheld: frozenset[str]) -> list[MemberSource]:
    """Return the sources of a specification, none of which knows the withheld words."""
    found: list[MemberSource] = []
    if spec.corpus is not None:
        corpus = open_dataset(spec.corpus, data)
        if isinstance(corpus, TextSet):
            labels = corpus.labels or ("",) * len(corpus.texts)
            chosen = set(spec.corpus_labels)
            texts = [
                t
                for t, label in zip(corpus.texts, labels, strict=True)
                if not chosen or label in chosen
            ]
            found.append(CorpusNeighbourSource(texts, min_count=10, vocabulary=8000, most=100))
    if spec.word_list is not None:
        found.append(WordListSource(read_terms(data / spec.word_list)))
    for name, labels in spec.gazetteer.items():
        annotated = open_dataset(name, data)
        if isinstance(annotated, TextSet) and annotated.spans is not None:
            counts: dict[str, Counter[str]] = {label: Counter() for label in labels}
            for text, row in zip(annotated.texts, annotated.spans, strict=True):
                for span in row:
                    if span["label"] in counts:
                        counts[span["label"]][text[span["start"] : span["end"]].lower()] += 1
            groups = {label: [m for m, _ in own.most_common(600)] for label, own in counts.items()}
            found.append(WordListSource(groups, name=name))
    if spec.faker:
        found.append(FakerSource(list(spec.faker), count=200))
    return [Withholding(source, withheld) for source in found]


class HeldOut:
    """One split of the texts and words of a problem, as vectors.

    Args:
        problem: its concept finds every word.
        encoder: encodes its texts.
        seed: of both splits.
    """

    def __init__(self, problem: Problem, encoder: Any, seed: int) -> None:
        self.problem, self.encoder, self.seed = problem, encoder, seed
        self.matches = problem.matches
        self.ids = problem.groups[self.matches.with_concept]
        rest, self.test = split_groups(self.ids, (sum(SHARES[:2]), SHARES[2]), seed=seed)
        self.fit, self.attack = (
            rest[part] for part in split_groups(self.ids[rest], (0.5, 0.5), seed=seed)
        )
        every, tokens = self.matches.token_labels(min_count=1)
        counts = every[self.attack].sum(axis=0)
        kept = tuple(t for t, c in zip(tokens.tokens, counts, strict=True) if c >= MIN_COUNT)
        self.vocabulary = TokenVocabulary(kept)
        self.labels, _ = self.matches.token_labels(self.vocabulary)
        self.listed, self.withheld = _split_words(tokens.tokens, seed)
        others = np.isin(problem.groups, self.ids[np.concatenate([self.attack, self.test])])
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

    def concept(self, known: frozenset[str] | None) -> Concept:
        """Return the concept, in the fitted texts, of the spans that hold a known word; None knows all."""
        spans = [
            [
                {"start": s.start, "end": s.end, "label": s.label}
                for s in self.matches.spans[i]
                if known is None or not known.isdisjoint(words(s.term))
            ]
            for i in self.rows
        ]
        return Concept.from_spans(self.problem.name, spans)

    def kinds(self, expansion: Expansion | None) -> dict[str, npt.NDArray[np.intp]]:
        """Return the columns of listed, expanded and unseen words; kinds of fewer than two words are left out."""
        rows = () if expansion is None else expansion.rows
        members = {w for row in rows for m in row.members for w in words(m)}
        kinds = [
            "listed" if t in self.listed else "expanded" if t in members else "unseen"
            for t in self.vocabulary.tokens
        ]
        found = {
            kind: np.array([j for j, k in enumerate(kinds) if k == kind], dtype=np.intp)
            for kind in KINDS
        }
        return {kind: columns for kind, columns in found.items() if len(columns) > 1}


def _split_words(tokens: Sequence[str], seed: int) -> tuple[frozenset[str], frozenset[str]]:
    """Return the listed and the withheld words: of each four next in frequency two and one."""
    rng = np.random.default_rng([seed, 6])
    listed, withheld = set(), set()
    for start in range(0, len(tokens), 4):
        four = rng.permutation(np.asarray(tokens[start : start + 4])).tolist()
        listed.update(four[:2])
        withheld.update(four[2:3])
    return frozenset(listed), frozenset(withheld)


def strongest(
    held: HeldOut, columns: npt.NDArray[np.intp], protector: Protector | None, attacks: Sequence[str],
    *, removed: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return what the strongest attack finds of the words of some columns.

    Args:
        removed: attack the vectors of the texts without the concept: what the rest of the sentence says.
    """
    X = held.negative if removed else held.positive
    learnt, judged = (
        rows[held.labels[rows][:, columns].any(axis=1)] for rows in (held.attack, held.test)
    )
    released = X[judged]
    oracle: dict[str, Any] = {}
    if protector is not None:
        released = protector.protect(released, np.random.default_rng([held.seed, 12]))
        oracle = {
            "release": protector.release(),
            "noise_covariance": protector.released_noise_covariance(),
        }
    without = None if removed else held.negative[learnt]
    train = LabelledVectors(X[learnt], held.labels[learnt][:, columns], held.ids[learnt], without)
    test = LabelledVectors(released, held.labels[judged][:, columns], held.ids[judged])
    chosen = [
        a for a in attacks_named(attacks, further=False) if not (removed and a.name == "transplant")
    ]
    results = [a.run(train, test, rng=held.seed, show_progress=False, **oracle) for a in chosen]
    worst = max(results, key=lambda result: result.value)
    record = worst.main.to_record()
    return {
        "words": len(columns), "texts": len(judged), "attack": worst.name,
        **{key: record[key] for key in ("value", "low", "high", "chance")},
    }  # fmt: skip
