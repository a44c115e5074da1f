"""The audit's data: texts, train/test split, clean and protected vectors, and the attackers' own texts."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from vecveil.auditing.attacks import FurtherVectors, LabelledVectors, TextVectors, split_groups, text_groups
from vecveil.auditing.attacks.attack import normalise_text
from vecveil.errors import ConceptError, InvalidInputError, VecveilError
from vecveil.privacy.concepts import Concept, ConceptMatches, TokenVocabulary
from vecveil.privacy.concepts.matching import Span, words
from vecveil.privacy.concepts.pairs import within_window
from vecveil.texts.encoders import TextEncoder
from vecveil.types import Embeddings, Matrix, Release, Texts
from vecveil.validation import check_embeddings

TEST_SHARE = 0.3
VALIDATION_SHARE = 0.1  # of the training texts, set aside by each attack
MIN_TEST_TEXTS = 20  # the interval of a share in fewer texts would span half of the scale
MIN_TOKEN_COUNTS = (15, 10, 5)  # tried in order: the first at which half of the occurrences remain
MORE_TEXTS = "Give more texts."

# Texts that attackers label themselves. They weigh less than training texts, being unlike the test texts.
MOST_EXCHANGED = 3000
EXCHANGED_WEIGHT = 0.5
SENTENCE_WEIGHT = 0.3
SAME_COSINE = 0.85  # from this cosine to a test text on, a sentence counts as a version of it

# Versions of a text that differ in one concept word.
VERSIONS = 10
FEWEST_VERSIONS = 4
MOST_SUBSTITUTED = {"quick": 100, "full": 200}  # of ten encodings each; a share of 20 % is known to 8 and 6 points
FEWEST_SUBSTITUTED = 20

Rows = npt.NDArray[np.intp]
Labels = npt.NDArray[np.uint8]
Encode = Callable[[Sequence[str]], Embeddings]
Detect = Callable[[Sequence[str]], Sequence[Sequence[Span]]]


@dataclass(frozen=True, eq=False)
class Side:
    """The vectors of all texts that one attacker works with.

    Attributes:
        name: ``"clean"`` or ``"protected"``.
        learn: (N, n) vectors to learn from: clean ones with an oracle, else released ones.
        judged: (N, m) one release of every text.
        release: the oracle, which draws fresh releases of clean vectors, or None.
        noise_covariance: (m, m) declared covariance of the released noise, or None.
        is_clean: True if the vectors are the encoder's, unprotected.
        seen: the case with rewritten texts, for a protector with a text stage: attackers know it and rewrite likewise.
        beside: (N, q) readable numbers stored with each vector, such as the length of its sealed blob, or None.
        accesses: (N, Q) zeros and ones, which query of a log fetched which row, or None.
    """

    name: str
    learn: Embeddings
    judged: Embeddings
    release: Release | None = None
    noise_covariance: Matrix | None = None
    is_clean: bool = False
    seen: Case | None = None
    beside: Embeddings | None = None
    accesses: Embeddings | None = None

    def with_beside(self) -> Side:
        """Return the side with the columns of ``beside`` appended to the vectors, at equal total variance."""
        assert self.beside is not None
        columns = self.beside[:, np.ptp(self.beside, axis=0) > 0]
        columns = columns - columns.mean(axis=0)
        scale = np.sqrt(self.judged.var(axis=0).sum() / max(columns.shape[1], 1))
        columns = (columns / columns.std(axis=0) * scale).astype(self.judged.dtype)
        learn, judged = (np.hstack([X, columns]) for X in (self.learn, self.judged))
        return replace(self, learn=learn, judged=judged, is_clean=False, beside=None)

    @property
    def without_oracle(self) -> Side:
        """Return the side of an attacker without the protector, for attacks on a secret."""
        return replace(self, release=None, noise_covariance=None)

    @property
    def knowledge(self) -> dict[str, Any]:
        """The attacker's knowledge, as arguments of `Attack.run`."""
        return {"release": self.release, "noise_covariance": self.noise_covariance}

    @property
    def learns_from_clean(self) -> bool:
        """True if vectors of other texts may join `learn`: clean ones, or those of rewritten texts."""
        # Without an oracle `learn` contains releases: clean vectors have another distribution.
        return self.release is not None or self.is_clean or self.seen is not None


@dataclass(frozen=True)
class Options:
    """Checked settings of an audit; the arguments of `vecveil.audit` of the same names."""

    tier: Literal["quick", "full"] = "quick"
    seed: int = 0
    device: str = "auto"
    attacker_texts: tuple[str, ...] = field(default=(), repr=False)
    show_reconstructions: bool = False
    show_terms: bool = False
    skip: frozenset[str] = frozenset()
    attacks: frozenset[str] = frozenset()
    language_model: str | None = None
    min_token_count: int | None = None
    groups: Sequence[Any] | None = field(default=None, repr=False)
    by_subject: bool = False  # the groups are subjects
    work: Path | None = None
    lint: tuple[dict[str, str], ...] = ()
    command: str | None = None
    show_progress: bool | None = None

    def names(self, attack: str) -> bool:
        """Return whether ``attacks`` names this attack or family."""
        return attack in self.attacks


@dataclass(frozen=True, eq=False, repr=False)
class Substitutes:
    """Vectors of texts and of versions of them that differ in one concept word.

    ``rows`` (M,) are rows of the texts, ``pool`` (P, n) clean vectors of all versions, ``options`` (M, C) indices of
    each text's versions in the pool, and ``truth`` (M,) the column of the text itself.
    """

    rows: Rows
    pool: Embeddings
    options: Rows
    truth: Rows


@dataclass(frozen=True, eq=False, repr=False)
class Case:
    """One problem: texts with and without the concept, split by group.

    Attributes:
        matches: the concept's spans in the texts.
        groups: (N,) group of each text.
        train, test: rows among all N texts that contain an attacked word.
        ordinary_train, ordinary_test: rows of texts without the concept.
        vocabulary: the V attacked concept words.
        labels: (N, V) 0/1, the attacked words of each text.
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
    labels: Labels
    embeddings: Embeddings | None
    encode: Encode | None
    options: Options
    detect: Detect | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        return self.matches.texts

    @cached_property
    def subjects(self) -> Rows | None:
        """(N,) number of each text's subject, below 0 without one; None if the groups are not subjects."""
        ids = self.options.groups
        if ids is None or not self.options.by_subject:
            return None
        numbers: dict[Any, int] = {}
        return np.array([-1 if name is None else numbers.setdefault(name, len(numbers)) for name in ids])

    def subjects_of(self, rows: Rows) -> Rows | None:
        return None if self.subjects is None else self.subjects[rows]

    def rewritten(self, rewrite: Callable[[Sequence[str]], list[str]], *, others: bool = True) -> Case:
        """Return the case of rewritten texts with the original labels; ``others`` False encodes no text outside it."""
        encode, known = self.encode, dict[str, Embeddings]()
        assert encode is not None

        def encode_rewritten(texts: Sequence[str]) -> Embeddings:
            written = rewrite(texts)
            # Encode each text once: two encodings may differ in the last bits, which would look like a concept.
            if new := [text for text in dict.fromkeys(written) if text not in known]:
                known.update(zip(new, encode(new), strict=True))
            return np.stack([known[text] for text in written])

        return replace(self, embeddings=encode_rewritten(self.texts), encode=encode_rewritten if others else None)

    @property
    def has_spans(self) -> bool:
        """True if texts can be rewritten and encoded: concepts given by labels have no spans."""
        return self.encode is not None and self.matches.labels is None

    @property
    def training_rows(self) -> Rows:
        """Training rows with and without the concept, in order."""
        return np.sort(np.concatenate([self.train, self.ordinary_train]))

    def labelled(self, side: Side) -> tuple[LabelledVectors, LabelledVectors]:
        """Return training and test evidence of the texts that contain an attacked word."""
        # Both are clean vectors: they may join released training vectors only through an oracle.
        without = self.without_train if side.learns_from_clean else None
        further = self.further if side.learns_from_clean else None
        X, labels, groups = side.learn[self.train], self.labels[self.train], self.groups[self.train]
        train = LabelledVectors(X, labels, groups, without, further, self.subjects_of(self.train))
        judged, labels, groups = side.judged[self.test], self.labels[self.test], self.groups[self.test]
        return train, LabelledVectors(judged, labels, groups, subjects=self.subjects_of(self.test))

    def unseen_corpus(self) -> list[str]:
        """Return the attacker's texts that equal no test text."""
        tested = _tested(self)
        return [text for text in self.options.attacker_texts if normalise_text(text) not in tested]

    def written(self, side: Side, *, corpus: bool = True) -> tuple[TextVectors, TextVectors]:
        """Return all training texts, with the corpus if it can be protected like them, and the test texts."""
        rows = self.training_rows
        X, texts, groups = side.learn[rows], [self.texts[i] for i in rows], self.groups[rows]
        further = list(dict.fromkeys(self.unseen_corpus())) if corpus and side.learns_from_clean else []
        if further and self.encode is not None:
            X = np.concatenate([X, self.encode(further).astype(X.dtype)])
            texts += further
            # Every corpus text is a separate group, numbered above the groups of the audit.
            own = int(self.groups.max()) + 1
            groups = np.concatenate([groups, np.arange(own, own + len(further))])
        judged = TextVectors(side.judged[self.test], [self.texts[i] for i in self.test], self.groups[self.test])
        return TextVectors(X, texts, groups), judged

    @cached_property
    def without_train(self) -> Embeddings | None:
        """Clean vectors of the training texts with the concept removed; None if they cannot be encoded."""
        if self.encode is None or not self.has_spans:
            return None
        position = {int(row): i for i, row in enumerate(self.matches.with_concept)}
        negatives = self.matches.negatives()
        return self.encode([negatives[position[int(row)]] for row in self.train])

    @cached_property
    def further(self) -> FurtherVectors | None:
        """Clean vectors of training texts with one word exchanged, and of the attacker's own texts.

        None without an encoder or such texts. Sentences that equal a test text or are close to one are omitted.
        """
        if (
            self.encode is None
            or self.embeddings is None
            or not self.has_spans
            or "kernel-further" in self.options.skip
        ):
            return None
        made, made_labels, sources = _exchanged(self)
        sentences, sentence_labels = _collected(self)
        texts = [*made, *sentences]
        if not texts:
            return None
        labels = np.concatenate([made_labels, sentence_labels])
        weight = np.repeat([EXCHANGED_WEIGHT, SENTENCE_WEIGHT], [len(made), len(sentences)])
        # Exchanged texts keep the group of their source, so those of validation texts stay out of training.
        groups = np.concatenate([self.groups[sources], np.full(len(sentences), -1)])
        # Exchanged texts come from training texts alone; the attacker's own may contain paraphrases of test texts.
        X = self.encode(texts)
        kept = np.ones(len(texts), dtype=bool)
        closest = _closest(X[len(made) :], self.embeddings[self.test])
        kept[len(made) :] = closest < SAME_COSINE
        if not kept.any():
            return None
        return FurtherVectors(X[kept], labels[kept], weight[kept], groups[kept])

    @cached_property
    def substitutes(self) -> Substitutes | None:
        """Up to 100 test texts (200 in the full tier) with 10 versions each, the text itself among them.

        A span is exchanged for terms of training texts with the same label (drug for drug) if there are enough, else of
        any label; with fewer than ten terms there are fewer versions. None without an encoder, with fewer than four
        terms, or with fewer than 20 such texts.
        """
        if self.encode is None or self.embeddings is None or not self.has_spans or "substitution" in self.options.skip:
            return None
        rng = np.random.default_rng([self.options.seed, 3])
        forms = _forms(self)
        count = min(VERSIONS, len(forms[None]))
        if count < FEWEST_VERSIONS:
            return None
        rows, texts, truth = [], [], []
        for row in rng.permutation(self.test):
            spans = self.matches.spans[row]
            span = spans[int(rng.integers(len(spans)))]
            others = [form for term, form in forms[span.label].items() if term != span.term]
            if len(others) < count - 1:
                others = [form for term, form in forms[None].items() if term != span.term]
            if len(others) < count - 1:
                continue
            text = self.texts[row]
            chosen = rng.choice(len(others), count - 1, replace=False)
            versions = [text[: span.start] + others[i] + text[span.end :] for i in chosen]
            # A random position: matching that breaks ties by order must not find the text first.
            place = int(rng.integers(count))
            versions.insert(place, text)
            rows.append(row)
            texts += versions
            truth.append(place)
            if len(rows) == MOST_SUBSTITUTED[self.options.tier]:
                break
        if len(rows) < FEWEST_SUBSTITUTED:
            return None
        options = np.arange(len(texts)).reshape(len(rows), count)
        pool = self.encode(texts)
        # A second encoding may differ in the last bits: the truth must be the vector before its release.
        pool[options[np.arange(len(rows)), truth]] = self.embeddings[rows]
        return Substitutes(np.array(rows), pool, options, np.array(truth))


def make_case(
    matches: ConceptMatches,
    options: Options,
    *,
    embeddings: Embeddings | None,
    encode: Encode | None,
    detect: Detect | None = None,
    owner: str = "audit",
) -> Case:
    """Return the case: texts with the concept split 70/30 by group, the others so that no group is divided.

    Raises:
        ConceptError: too few texts or groups contain the concept, or its words are too rare to attack.
    """
    groups = text_groups(matches.texts, options.groups)
    holding = matches.with_concept
    shares = (1 - TEST_SHARE, TEST_SHARE)
    try:
        # Split before choosing words: the vocabulary must come from training texts alone.
        learn, judge = split_groups(groups[holding], shares, seed=options.seed)
    except InvalidInputError as error:
        raise ConceptError(str(error)) from None
    # Each attack splits its training texts once more, to validate: that takes two groups.
    if len(np.unique(groups[holding[learn]])) < 2:
        raise ConceptError(
            f"{owner} needs three groups of texts with the concept, two to learn from and one to judge on. Give more "
            "texts that differ.",
            param="groups",
        )
    thresholds = MIN_TOKEN_COUNTS if options.min_token_count is None else (options.min_token_count,)
    vocabulary = matches.frequent_tokens(thresholds, learn)
    if len(vocabulary) == 0:
        raise ConceptError(
            f"{owner}: no word of the concept is in {thresholds[-1]} training texts; rarer words cannot be attacked "
            f"reliably. {_lower_count(matches, learn, judge)}",
            param="texts",
        )
    own, _ = matches.token_labels(vocabulary)
    labels = np.zeros((len(groups), len(vocabulary)), dtype=np.uint8)
    labels[holding] = own
    # A text whose only concept words are too rare has no label.
    train, test = (holding[rows[own[rows].any(axis=1)]] for rows in (learn, judge))
    if len(test) < MIN_TEST_TEXTS:
        raise ConceptError(
            f"{owner}: only {len(test)} test texts contain a concept word that is frequent enough to attack; "
            f"{MIN_TEST_TEXTS} are needed. {_lower_count(matches, learn, judge)}",
            param="texts",
        )
    ordinary_train, ordinary_test = _split_ordinary(
        groups, matches.without_concept, holding[learn], holding[judge], options.seed
    )
    return Case(
        matches,
        groups,
        train,
        test,
        ordinary_train,
        ordinary_test,
        vocabulary,
        labels,
        embeddings,
        encode,
        options,
        detect,
    )


def _split_ordinary(groups: Rows, ordinary: Rows, learn: Rows, judge: Rows, seed: int) -> tuple[Rows, Rows]:
    """Return ordinary rows for training and test; a group joins the part of its texts with the concept."""
    in_learn = np.isin(groups[ordinary], groups[learn])
    in_judge = np.isin(groups[ordinary], groups[judge])
    free = ordinary[~in_learn & ~in_judge]
    parts = [ordinary[in_learn], ordinary[in_judge]]
    if len(np.unique(groups[free])) >= 2:
        split = split_groups(groups[free], (1 - TEST_SHARE, TEST_SHARE), seed=seed)
        parts = [np.sort(np.concatenate([p, free[s]])) for p, s in zip(parts, split, strict=True)]
    return parts[0], parts[1]


def _lower_count(matches: ConceptMatches, learn: Rows, judge: Rows) -> str:
    """Return advice about too few test texts, with the largest ``min_token_count`` that leaves enough."""
    tokens = matches.tokens()
    counts = Counter(word for i in learn for word in tokens[i])
    best = sorted((max((counts[word] for word in tokens[i]), default=0) for i in judge), reverse=True)
    enough = best[MIN_TEST_TEXTS - 1] if len(best) >= MIN_TEST_TEXTS else 0
    return f"Give more texts, or lower `min_token_count` to {enough}." if enough else MORE_TEXTS


def check_rows(X: Any, texts: Texts, *, owner: str, param: str, dimension: int | None) -> Embeddings:
    """Return the checked vectors: one for each text, and not all equal."""
    checked = check_embeddings(X, owner=owner, param=param, dimension=dimension)
    if len(checked) != len(texts):
        raise InvalidInputError(f"{owner}: `{param}` has {len(checked)} rows for {len(texts)} texts.", param=param)
    if not np.any(checked != checked[0]):
        raise InvalidInputError(f"{owner}: the rows of `{param}` do not differ.", param=param)
    return checked


def encoder_name(encoder: Any) -> str | None:
    """Return the encoder's fingerprint, or the type of an encoder without one."""
    if encoder is None:
        return None
    return str(getattr(encoder, "fingerprint", None) or type(encoder).__qualname__)


def read_part(
    concept: Concept, matches: ConceptMatches, encoder: Any, options: Options
) -> tuple[ConceptMatches, Options]:
    """Return the matches in what the encoder reads of each text, and the options, with a warning if it truncates."""
    read = getattr(encoder, "read_lengths", None)
    windows = within_window(concept.detectors, matches, read, split=False, min_texts=MIN_TEST_TEXTS, owner="audit")
    if not windows.report:
        return matches, options
    warning = {"code": "long-texts", "message": windows.warning}
    return windows.matches, replace(options, lint=(*options.lint, warning))


def encode_with(encoder: Any, dimension: int | None, *, show_progress: bool | None) -> Encode:
    """Return the function from texts to vectors (N, n), safe to call from several threads."""
    turn = threading.Lock()  # attacks run in parallel, and encoders need not be thread-safe
    bar = {"show_progress": show_progress} if isinstance(encoder, TextEncoder) else {}

    def encode(texts: Sequence[str]) -> Embeddings:
        with turn:
            encoded = np.asarray(encoder.encode(list(texts), **bar))
        return check_embeddings(encoded, owner="audit", param="embeddings", dimension=dimension)

    return encode


def _exchanged(case: Case) -> tuple[list[str], Labels, Rows]:
    """Return training texts with one span exchanged for another attacked term, their labels and rows."""
    rng = np.random.default_rng([case.options.seed, 4])
    vocabulary = case.vocabulary
    forms = {term: form for term, form in _forms(case)[None].items() if any(word in vocabulary for word in words(term))}
    # Sorted: the draws below must not depend on the order in which texts contain the terms.
    terms = sorted(forms)
    count = min(MOST_EXCHANGED, 2 * len(case.train))
    if len(terms) < 2:
        return [], np.zeros((0, len(vocabulary)), dtype=np.uint8), np.zeros(0, dtype=np.intp)
    # Two passes: each training text gives at most two versions.
    rows = np.concatenate([rng.permutation(case.train) for _ in range(2)])[:count]
    texts: list[str] = []
    tested = _tested(case)
    labels = np.zeros((len(rows), len(vocabulary)), dtype=np.uint8)
    for i, row in enumerate(rows):
        spans = case.matches.spans[row]
        place = int(rng.integers(len(spans)))
        span, text = spans[place], case.texts[row]
        others = [term for term in terms if term != span.term]
        term = others[int(rng.integers(len(others)))]
        texts.append(text[: span.start] + forms[term] + text[span.end :])
        remaining = [other.term for j, other in enumerate(spans) if j != place]
        _mark(case, labels[i], [*remaining, term])
    # An exchange may yield a test text word for word.
    new = np.array([normalise_text(text) not in tested for text in texts])
    return [text for text, is_new in zip(texts, new, strict=True) if is_new], labels[new], rows[new]


def _collected(case: Case) -> tuple[list[str], Labels]:
    nothing = np.zeros((0, len(case.vocabulary)), dtype=np.uint8)
    given = case.options.attacker_texts
    if case.detect is None or not given:
        return [], nothing
    try:
        detected = case.detect(given)
    except VecveilError:  # a concept of given spans knows the audited texts only
        return [], nothing
    tested = _tested(case)
    texts: dict[str, Labels] = {}
    for text, spans in zip(given, detected, strict=True):
        label = np.zeros(len(case.vocabulary), dtype=np.uint8)
        _mark(case, label, [span.term for span in spans])
        if label.any() and normalise_text(text) not in tested:
            texts.setdefault(text, label)
    return list(texts), np.stack(list(texts.values())) if texts else nothing


def _tested(case: Case) -> set[str]:
    return {normalise_text(case.texts[row]) for row in (*case.test, *case.ordinary_test)}


def _forms(case: Case) -> dict[str | None, dict[str, str]]:
    """Return the terms of training texts by label, and all under None: term to its first written form."""
    forms: dict[str | None, dict[str, str]] = defaultdict(dict)
    for row in case.train:
        for span in case.matches.spans[row]:
            for label in (span.label, None):
                forms[label].setdefault(span.term, case.texts[row][span.start : span.end])
    return forms


def _mark(case: Case, label: Labels, terms: Iterable[str]) -> None:
    for term in terms:
        for word in words(term):
            if word in case.vocabulary:
                label[case.vocabulary.index(word)] = 1


def _closest(X: Embeddings, others: Embeddings) -> npt.NDArray[np.float64]:
    left, right = (
        Z / np.maximum(np.linalg.norm(Z, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        for Z in (X.astype(np.float64), others.astype(np.float64))
    )
    # In blocks: all cosines of many texts at once would not fit in memory.
    blocks = [(left[i : i + 2000] @ right.T).max(axis=1) for i in range(0, len(left), 2000)]
    return np.concatenate(blocks) if blocks else np.zeros(0)
