"""A fit with an expansion sees members that the user did not list."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import vecveil
from harness.errors import raises
from vecveil.concepts import Concept
from vecveil.concepts.expansion import Expansion, WordListSource
from vecveil.protector.pairs import PairTexts

DIMENSION = 48
CONTEXT = [f"word{i}" for i in range(60)]
LISTED = ["asia", "bern", "cork"]
FURTHER = ["delhi", "essen", "fargo", "genoa"]


class Bag:
    """Sums a fixed random vector for each word, with norm 1: what a word adds does not depend on its text."""

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        rows = [
            sum((self._word(w) for w in text.lower().strip(".").split()), np.zeros(DIMENSION))
            for text in texts
        ]
        X = np.stack(rows)
        return (X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9)).astype(np.float32)

    @staticmethod
    def _word(word: str) -> npt.NDArray[np.float64]:
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
        return np.random.default_rng(seed).standard_normal(DIMENSION)


def corpus(places: Sequence[str], count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [
        " ".join([*rng.choice(CONTEXT, 6), places[i % len(places)]]) + "." for i in range(count)
    ]


TEXTS = corpus(LISTED, 150, 0) + [
    " ".join(np.random.default_rng(i).choice(CONTEXT, 7)) for i in range(150)
]
CONCEPT = Concept.from_terms("place", LISTED)


def expansion(**options: Any) -> Expansion:
    return CONCEPT.expand(TEXTS, sources=[WordListSource(FURTHER)], substitutions=200, **options)


def fitted(**options: Any) -> vecveil.Protector:
    settings = {"rank": 6, "kept": 30, "flattening": 0.0, "pairs": False}
    return vecveil.fit(TEXTS, CONCEPT, Bag(), noise_to_signal=0.1, **settings, **options)


def apart(protector: vecveil.Protector) -> float:
    """Return how far the means of texts with one further member and with another lie apart, in the released space."""
    means = [
        protector.protect(Bag().encode(corpus([word], 400, 7)), 0, noise=False).mean(axis=0)
        for word in FURTHER
    ]
    return float(np.mean([np.linalg.norm(a - b) for a in means for b in means if a is not b]))


def test_members_of_the_expansion_are_hidden_too() -> None:
    made = fitted(expansion=expansion())
    assert apart(made) < 0.5 * apart(fitted())
    assert made.report["expansion"]["members"] == 4
    assert made.report["pairs"] == 150 + made.report["expansion"]["texts"]
    assert made.report["labels"] == 7


def test_an_expansion_of_another_concept_is_refused_before_encoding() -> None:
    class Never:
        def encode(self, texts: Sequence[str]) -> None:
            pytest.fail("something was encoded")

    other = Concept.from_terms("another", LISTED)
    with raises("E-INCOMPATIBLE", "expansion"):
        vecveil.fit(TEXTS, other, Never(), noise_to_signal=0.1, expansion=expansion())


def test_a_method_that_rewrites_texts_and_a_concept_of_labels_take_no_expansion() -> None:
    with raises("E-INPUT", "expansion"):
        vecveil.fit(TEXTS, CONCEPT, Bag(), method="redact", expansion=expansion())
    labels = Concept.from_labels("place", ["a", "b"] * 150)
    with raises("E-CONCEPT", "concept"):
        vecveil.fit(TEXTS, labels, Bag(), noise_to_signal=0.1, expansion=expansion())


def test_own_texts_that_hold_a_member_stand_once_with_all_their_labels() -> None:
    own = ["A asia delhi b.", "C asia d.", "E f delhi.", "G h.", *corpus(LISTED, 30, 3)]
    concept = Concept.from_terms("place", LISTED)
    made = concept.expand(own, sources=[WordListSource(FURTHER)], substitutions=9)
    matches = concept.find(own)
    both = PairTexts.of(matches, own, min_token_count=1, expansion=made, seed=0)
    assert both.originals is not None
    assert both.ordinary == ["G h."]
    assert both.positive.count("A asia delhi b.") == 1
    at = both.positive.index("A asia delhi b.")
    assert both.negative[at] == "A b."
    assert both.labels[at].sum() == 2
    assert both.labels[both.positive.index("C asia d.")].sum() == 1
    assert both.negative[both.positive.index("E f delhi.")] == "E f."
    assert len(both.positive) == len(both.negative) == len(both.labels) == len(both.originals)


def test_what_was_made_of_one_text_belongs_together() -> None:
    made = expansion()
    matches = CONCEPT.find(TEXTS)
    both = PairTexts.of(matches, TEXTS, min_token_count=1, expansion=made, seed=0)
    groups = both.groups(Bag().encode(both.positive))
    assert groups is not None
    group_of = dict(zip(both.positive, groups.tolist(), strict=True))
    assert len(groups) == len(both.positive)
    assert all(group_of[row.text] == group_of[row.original] for row in made.rows)
    assert len(set(groups.tolist())) > 100
