"""Texts that a preview's attacker practises on: background texts with listed words, as they are or put in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vecveil.attacks import text_groups
from vecveil.concepts import Concept
from vecveil.concepts.folding import canonical
from vecveil.concepts.matching import Span, remove
from vecveil.errors import InvalidInputError
from vecveil.types import Texts
from vecveil.validation import check_texts

__all__ = [
    "FEWEST_TEXTS",
    "MOST_TEXTS",
    "MOST_WORDS",
    "PracticeTexts",
    "WordList",
    "practice_texts",
]

MOST_TEXTS = 400
FEWEST_TEXTS = 60
MOST_WORDS = 200
FEWEST_WORDS = 2
_OWNER = "Preview"
_REPLACED = re.compile(r"[^\W\d_]{4,}")  # in a text without a listed word, one of these makes room


class WordList:
    """The words and phrases that an attacker guesses from; equal spellings count once.

    Attributes:
        words: as they were first written, 2 to 200 of them.
    """

    def __init__(self, words: Sequence[str]) -> None:
        given = check_texts(words, owner=_OWNER, param="words", min_rows=FEWEST_WORDS)
        first: dict[str, str] = {}
        for word in given:
            first.setdefault(canonical(word), word.strip())
        if not FEWEST_WORDS <= len(first) <= MOST_WORDS:
            raise InvalidInputError.of(_OWNER, "words", f"{FEWEST_WORDS} to {MOST_WORDS} different words",
                                       len(first), "An attacker chooses between them.")  # fmt: skip
        self.words = tuple(first.values())
        self._index = {term: i for i, term in enumerate(first)}
        self._concept = Concept.from_terms("words", self.words)

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        return f"WordList({len(self)} words)"

    def find(self, texts: Texts) -> list[list[Span]]:
        """Return where each text holds listed words."""
        return self._concept.detect(texts, show_progress=False)

    def index(self, span: Span) -> int:
        """Return which word a span is, or -1."""
        return self._index.get(span.term, -1)

    def labels(self, spans: Sequence[Sequence[Span]]) -> npt.NDArray[np.bool_]:
        """Return (N, V): which words the spans of each text are."""
        found = np.zeros((len(spans), len(self)), dtype=bool)
        for i, row in enumerate(spans):
            for span in row:
                if (word := self.index(span)) >= 0:
                    found[i, word] = True
        return found


@dataclass(frozen=True, eq=False, repr=False)
class PracticeTexts:
    """What is encoded once for a list of words.

    Attributes:
        ordinary: background texts, for utility.
        texts: E texts that each hold a listed word or several.
        without: the same texts without them.
        labels: (E, V) which words each of ``texts`` holds.
        groups: (E,) versions of one background text, and near-duplicates, share a group.
        found: how many of ``texts`` are background texts as they are.
    """

    ordinary: tuple[str, ...]
    texts: tuple[str, ...]
    without: tuple[str, ...]
    labels: npt.NDArray[np.bool_]
    groups: npt.NDArray[np.intp]
    found: int


def practice_texts(background: Texts, words: WordList, *, seed: int = 0) -> PracticeTexts:
    """Return texts with listed words made of at most 400 of the background texts.

    A text that holds a listed word is taken as it is, and once more with another word in its place; in a text
    that holds none, one of its own words gives way to a listed one. Words are put in equally often.

    Raises:
        InvalidInputError: fewer than 60 background texts.
    """
    given = check_texts(background, owner=_OWNER, param="background", min_rows=FEWEST_TEXTS)
    rng = np.random.default_rng([seed, 21])
    rows = np.sort(rng.permutation(len(given))[:MOST_TEXTS])
    ordinary = tuple(given[i] for i in rows)
    group_of = text_groups(ordinary)
    waiting: list[int] = []
    texts: list[str] = []
    without: list[str] = []
    groups: list[int] = []
    found = 0
    for text, spans, group in zip(ordinary, words.find(ordinary), group_of, strict=True):
        bare = remove(text, spans) if spans else text
        if not bare:
            continue
        if spans:
            texts.append(text)
            found += 1
        place = spans[int(rng.integers(len(spans)))] if spans else _room(text, rng)
        word = words.words[_next_word(waiting, words.index(place), len(words), rng)]
        texts.append(text[: place.start] + word + text[place.end :])
        groups += [int(group)] * (len(texts) - len(groups))
        without += [bare] * (len(texts) - len(without))
    labels = words.labels(words.find(texts))
    kept = np.flatnonzero(labels.any(axis=1))
    return PracticeTexts(
        ordinary,
        tuple(texts[i] for i in kept),
        tuple(without[i] for i in kept),
        labels[kept],
        np.array(groups, dtype=np.intp)[kept],
        found,
    )


def _next_word(waiting: list[int], there: int, count: int, rng: np.random.Generator) -> int:
    """Return a word other than the one that is ``there``; each of ``count`` words as often as the others."""
    if len(set(waiting)) < 2:
        waiting[:0] = [int(i) for i in rng.permutation(count)]
    return waiting.pop(max(i for i, word in enumerate(waiting) if word != there))


def _room(text: str, rng: np.random.Generator) -> Span:
    """Return where a word is put into a text that holds none: in place of one of its own, else at its end."""
    own = list(_REPLACED.finditer(text))
    if not own:
        return Span(len(text), len(text), "room")
    chosen = own[int(rng.integers(len(own)))]
    return Span(chosen.start(), chosen.end(), "room")
