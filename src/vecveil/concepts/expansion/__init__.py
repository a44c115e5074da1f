"""Concept expansion: members that the user did not list, put into the user's own sentences.

A fit hides what it has seen. Sources propose further members of a concept (`WordListSource`, `FakerSource`,
`CorpusNeighbourSource`, `DetectorSource`, or any object with ``members(context)``); `Concept.expand` puts them in
the place of listed terms, so that `vecveil.fit` sees thousands of pairs with words that the texts lack.
"""

from __future__ import annotations

from vecveil.concepts.expansion.detected import DetectorSource
from vecveil.concepts.expansion.expansion import Expansion
from vecveil.concepts.expansion.faker_source import FakerSource
from vecveil.concepts.expansion.neighbours import CorpusNeighbourSource
from vecveil.concepts.expansion.sources import ExpansionContext, MemberSource
from vecveil.concepts.expansion.word_list import WordListSource

__all__ = [
    "CorpusNeighbourSource",
    "DetectorSource",
    "Expansion",
    "ExpansionContext",
    "FakerSource",
    "MemberSource",
    "WordListSource",
]
