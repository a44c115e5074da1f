"""What an audit works on: the texts, how they are split, and the vectors on each side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from vecveil.attacks import split_groups, text_groups
from vecveil.errors import ConceptError, InvalidInputError
from vecveil.types import Embeddings, Matrix, Release, Texts
from vecveil.validation import check_embeddings

if TYPE_CHECKING:
    from vecveil.attacks import FurtherVectors
    from vecveil.concepts import ConceptMatches, TokenVocabulary
    from vecveil.concepts.matching import Span

__all__ = ["MIN_TEST_TEXTS", "Case", "Detect", "Encode", "Options", "Side", "Skipped", "make_case"]

TEST_SHARE = 0.3
VALIDATION_SHARE = 0.1  # of the training texts, set aside by each attack
MIN_TEST_TEXTS = 20
MIN_TOKEN_COUNTS = (15, 10, 5)

Rows = npt.NDArray[np.intp]
Encode = Callable[[Sequence[str]], Embeddings]
Detect = Callable[[Sequence[str]], "Sequence[Sequence[Span]]"]


@dataclass(frozen=True, eq=False)
class Side:
    """The vectors of all texts as one attacker meets them.

    Attributes:
        name: ``"clean"`` or ``"protected"``.
        learn: (N, n) what the attacker learns from: clean vectors if there is an oracle, else released ones.
        judged: (N, m) one release of every text.
        release: the oracle, or None.
        noise_covariance: (m, m) declared covariance of the released noise, or None.
        is_clean: whether the vectors of this side are the encoder's own.
    """

    name: str
    learn: Embeddings
    judged: Embeddings
    release: Release | None = None
    noise_covariance: Matrix | None = None
    is_clean: bool = False

    @property
    def knowledge(self) -> dict[str, Any]:
        """Return the arguments of `Attack.run` that say what the attacker knows."""
        return {"release": self.release, "noise_covariance": self.noise_covariance}

    @property
    def learns_from_clean(self) -> bool:
        """Whether clean vectors of other texts can be put beside `learn`."""
        return self.release is not None or self.is_clean


@dataclass(frozen=True)
class Options:
    """How an audit is to be made.

    Attributes:
        tier: ``quick`` or ``full``.
        seed: of the split, the attacks and the audited release.
        device: of learnt attacks.
        corpus: further texts that attacks that write texts learn from.
        show_reconstructions: keep originals and reconstructions in the record.
        skip: families that are left out.
    """

    tier: Literal["quick", "full"] = "quick"
    seed: int = 0
    device: str = "auto"
    corpus: tuple[str, ...] = field(default=(), repr=False)
    show_reconstructions: bool = False
    skip: frozenset[str] = frozenset()
    show_progress: bool | None = None


@dataclass(frozen=True)
class Skipped:
    """An attack that was not run, and why."""

    attack: str
    family: str
    reason: str


@dataclass(frozen=True, eq=False, repr=False)
class Case:
    """One problem: texts with and without the concept, split by group.

    Attributes:
        matches: what the concept found.
        groups: (N,) group of each text.
        train, test: rows among all N texts that hold an attacked word.
        ordinary_train, ordinary_test: rows of texts without the concept.
        vocabulary: the concept words that are attacked.
        labels: (N, V) which of them each text holds.
        embeddings: (N, n) clean vectors, or None.
        encode: encodes texts into the space of ``embeddings``, or None.
        detect: finds the concept in other texts, or None.
    """

    matches: ConceptMatches
    groups: Rows
    train: Rows
    test: Rows
    ordinary_train: Rows
    ordinary_test: Rows
    vocabulary: TokenVocabulary
    labels: npt.NDArray[np.uint8]
    embeddings: Embeddings | None
    encode: Encode | None
    options: Options
    detect: Detect | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """Return all N texts."""
        return self.matches.texts

    @cached_property
    def without_train(self) -> Embeddings | None:
        """Clean vectors of the training texts with the concept removed; None if nobody can encode them."""
        if self.encode is None or self.matches.labels is not None:
            return None
        where = {int(row): i for i, row in enumerate(self.matches.with_concept)}
        negatives = self.matches.negatives()
        return self.encode([negatives[where[int(row)]] for row in self.train])

    @cached_property
    def further(self) -> FurtherVectors | None:
        """Clean vectors of texts that an attacker makes or finds; None if nobody can encode them."""
        from vecveil.auditing.further import further_vectors

        return further_vectors(self)


def make_case(
    matches: ConceptMatches,
    ids: Sequence[Any] | None,
    *,
    embeddings: Embeddings | None,
    encode: Encode | None,
    options: Options,
    min_token_count: int | None,
    detect: Detect | None = None,
    owner: str = "audit",
) -> Case:
    """Return the case: texts with the concept split 70/30 by group, the others so that no group is divided.

    Args:
        ids: N ids of texts that belong together, or None.
        min_token_count: how many training texts must hold a word; None: 15, or 10 or 5 where words are few.
        detect: finds the concept in the texts of the corpus (`Concept.detect`); None leaves the corpus out.

    Raises:
        ConceptError: too few texts hold the concept, or its words are too rare to attack.
        InvalidInputError: too few groups.
    """
    groups = text_groups(matches.texts, ids)
    holding = matches.with_concept
    try:
        learn, judge = split_groups(
            groups[holding], (1 - TEST_SHARE, TEST_SHARE), seed=options.seed
        )
    except InvalidInputError as error:
        raise ConceptError(str(error)) from None
    if len(np.unique(groups[holding[learn]])) < 2:
        raise ConceptError.of(owner, "groups", "at least three groups of texts with the concept", "fewer",
                              "Two are learnt from and one is judged on.", "Give more texts that differ.")  # fmt: skip
    vocabulary = _vocabulary(matches, learn, min_token_count, owner)
    own, _ = matches.token_labels(vocabulary)
    labels = np.zeros((len(groups), len(vocabulary)), dtype=np.uint8)
    labels[holding] = own
    train, test = (holding[rows[own[rows].any(axis=1)]] for rows in (learn, judge))
    if len(test) < MIN_TEST_TEXTS:
        raise ConceptError.of(owner, "texts", f"at least {MIN_TEST_TEXTS} test texts with a concept word",
                              f"{len(test)}",
                              fix="Give more texts, or lower min_token_count (--min-token-count).")  # fmt: skip
    ordinary_train, ordinary_test = _split_ordinary(
        groups, matches.without_concept, holding[learn], holding[judge], options.seed
    )
    return Case(
        matches, groups, train, test, ordinary_train, ordinary_test, vocabulary, labels,
        embeddings, encode, options, detect,
    )  # fmt: skip


def _split_ordinary(
    groups: Rows, ordinary: Rows, learn: Rows, judge: Rows, seed: int
) -> tuple[Rows, Rows]:
    """Return ordinary rows for learning and judging; a group stays where its texts with the concept are."""
    taken_learn = np.isin(groups[ordinary], groups[learn])
    taken_judge = np.isin(groups[ordinary], groups[judge])
    free = ordinary[~taken_learn & ~taken_judge]
    parts = [ordinary[taken_learn], ordinary[taken_judge]]
    if len(np.unique(groups[free])) >= 2:
        split = split_groups(groups[free], (1 - TEST_SHARE, TEST_SHARE), seed=seed)
        parts = [np.sort(np.concatenate([p, free[s]])) for p, s in zip(parts, split, strict=True)]
    return parts[0], parts[1]


def _vocabulary(
    matches: ConceptMatches, train: Rows, min_count: int | None, owner: str
) -> TokenVocabulary:
    """Return the concept's words that enough training texts hold."""
    thresholds = MIN_TOKEN_COUNTS if min_count is None else (min_count,)
    vocabulary = matches.frequent_tokens(thresholds, train)
    if len(vocabulary) == 0:
        raise ConceptError.of(owner, "texts",
                              f"enough to see a concept word in {thresholds[-1]} training texts",
                              "no word in so many", "Rarer words cannot be attacked reliably.",
                              "Give more texts, or lower min_token_count (--min-token-count).")  # fmt: skip
    return vocabulary


def check_rows(
    X: Any, texts: Texts, *, owner: str, param: str, dimension: int | None
) -> Embeddings:
    """Return the vectors after checking that there is one for each text."""
    checked = check_embeddings(X, owner=owner, param=param, dimension=dimension)
    if len(checked) != len(texts):
        raise InvalidInputError.of(
            owner, param, f"of {len(texts)} rows, one for each text", f"{len(checked)} rows"
        )
    if not np.any(checked != checked[0]):
        raise InvalidInputError.of(owner, param, "of rows that differ", "one row, repeated")
    return checked
