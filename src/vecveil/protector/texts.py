"""Turn texts and a concept into the arrays of a fit: match, cut or split, rewrite, sample, encode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from vecveil.concepts import Concept, ConceptMatches, TokenVocabulary
from vecveil.concepts.concept import checked_labels
from vecveil.concepts.matching import canonical
from vecveil.concepts.pairs import LISTED_TEXTS, WordMarks, mark_words, within_window
from vecveil.encoders import load_encoder
from vecveil.errors import InvalidInputError, unknown_name
from vecveil.metrics import UtilityTask
from vecveil.protector.data import MIN_PAIRS, Data, joined_groups, sample
from vecveil.protector.methods.text_level import StageOptions, TextStage
from vecveil.protector.options import FitOptions, require_no_pairs
from vecveil.protector.protector import Protector
from vecveil.sensitivity.subspace import near_duplicate_groups
from vecveil.textcrafter import contains_pii
from vecveil.types import Embeddings, Groups, Texts, TokenLabels
from vecveil.validation import check_count, check_same_length, check_texts

MAX_PAIRS = MAX_BACKGROUND = 20_000
LABELLED_TEXTS = 40_000
# Fewest texts for a word to be a label: the next count where one covers too few occurrences.
TOKEN_COUNTS = (10, 5, 3)

Findings = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """The keywords of `vecveil.fit` that belong to texts, described there."""

    min_texts: int = MIN_PAIRS
    min_token_count: int | None = None
    long_texts: str = "cut"
    rewrite: Any = None
    detector: Any = None
    hypernyms: Any = None
    surrogate_key: Any = None
    surrogates: Any = None

    def __post_init__(self) -> None:
        check_count(self.min_texts, owner="fit", param="min_texts", minimum=MIN_PAIRS)
        if self.long_texts not in ("cut", "split"):
            raise unknown_name("fit", "long_texts", ["cut", "split"], self.long_texts)
        if self.min_token_count is not None:
            check_count(self.min_token_count, owner="fit", param="min_token_count")

    def stage(self, concept: Concept) -> StageOptions | None:
        """Return the checked options of the rewriting before the encoder, or None for none."""
        given = {name: getattr(self, name) for name in ("detector", "hypernyms", "surrogate_key", "surrogates")}
        if self.rewrite is None and all(value is None for value in given.values()):
            return None
        return StageOptions.of(self.rewrite, concept, **given)


@dataclass(frozen=True, eq=False, repr=False)
class PairTexts:
    """The texts of pairs, the user's own first, and ordinary ones. Keep it in memory: it holds texts.

    Attributes:
        labels: (N, V) the concept words in each positive.
        vocabulary: the word of each label.
        listed: the concept's words, except the rarest.
    """

    positive: list[str]
    negative: list[str]
    ordinary: list[str]
    labels: TokenLabels
    vocabulary: tuple[str, ...]
    listed: frozenset[str]

    @classmethod
    def of(cls, matches: ConceptMatches, texts: Texts, *, min_token_count: int | None, seed: int) -> PairTexts:
        """Return pairs of the matched texts; at most 20,000 per kind, at random."""
        rng = np.random.default_rng(seed)
        # Label all texts before sampling, so that a word's count does not depend on the sample.
        negatives, tokens = matches.negatives(), matches.tokens()
        counts = TOKEN_COUNTS if min_token_count is None else (min_token_count,)
        labels, vocabulary = matches.token_labels(matches.frequent_tokens(counts))
        rows = sample(len(matches.with_concept), MAX_PAIRS, rng)
        ordinary = sample(len(matches.without_concept), MAX_BACKGROUND, rng)
        return cls(
            [texts[matches.with_concept[i]] for i in rows],
            [negatives[i] for i in rows],
            [texts[matches.without_concept[i]] for i in ordinary],
            labels[rows],
            tuple(vocabulary),
            frozenset(TokenVocabulary.most_frequent(tokens, LISTED_TEXTS)),
        )

    def words(self, encode: Any) -> WordMarks:
        """Return the marks of the words in the positives and, after them, in the ordinary texts."""
        return mark_words(self.positive + self.ordinary, self.listed, encode, labels=self.vocabulary)

    def groups(self, X: Embeddings, group_of: Mapping[str, Any] | None) -> Groups | None:
        """Return ids of near-duplicates and of texts of one group; None if the vectors alone show them."""
        if group_of is None:
            folded = [canonical(text) for text in self.positive]
            # An encoder may place copies in different composition far apart.
            copies = len(set(folded)) < len(set(self.positive))
            return joined_groups(near_duplicate_groups(X), folded) if copies else None
        return joined_groups(near_duplicate_groups(X), [group_of[text] for text in self.positive])


@dataclass(frozen=True, eq=False, repr=False)
class TextFit:
    """The texts of one fit with their vectors. Keep it in memory: it holds texts.

    Attributes:
        options: of the fit, with the encoder loaded and the method's options for these rows.
        findings: entries for the report of the fit.
        stage: the rewriting before the encoder, or None.
    """

    data: Data
    options: FitOptions
    findings: Findings
    matches: ConceptMatches
    stage: TextStage | None

    def with_stage(self, protector: Protector) -> Protector:
        """Return the protector with the text stage that rewrote its texts."""
        if self.stage is None:
            return protector
        texts = [self.matches.texts[i] for i in self.matches.with_concept]
        rewriting = self.stage.report(self.matches)
        rewriting["utility"] = self.stage.cost(texts, self.options.encoder, protector, self.options.seed)
        report = {**protector.report, "rewriting": rewriting}
        return replace(protector, report=report, rewriter=self.stage.rewriter)


def read_texts(
    texts: Texts, concept: Concept, groups: Sequence[Any] | None, reading: TextOptions, options: FitOptions
) -> TextFit:
    """Return the vectors of texts and of the same texts without the concept, or with their labels.

    Raises:
        ConceptError: the concept matches nothing, too few texts, or leaves nothing of them.
    """
    stage_options = reading.stage(concept)
    if stage_options is not None and options.sealed is not None and isinstance(options.utility, UtilityTask):
        raise InvalidInputError(
            "With `rewrite` pass utility='sealed-search': a task holds vectors of texts that are not rewritten.",
            param="utility",
        )
    texts = check_texts(texts, owner="fit")
    options.check_size(len(texts))
    preserve = _check_preserve(getattr(options.own, "preserve", None), len(texts))
    group_of: dict[str, Any] | None = None
    if groups is not None:
        check_same_length("fit", groups=list(groups), texts=texts)
        # A text that stands in two groups joins them, also where its copies differ in composition or spaces.
        joined = joined_groups(np.unique([canonical(text) for text in texts], return_inverse=True)[1], list(groups))
        group_of = dict(zip(texts, joined.tolist(), strict=True))
    labelled = concept.labels is not None or concept.labels_column is not None
    if labelled:
        require_no_pairs(options.method, options.scale)
        if preserve is not None:
            raise InvalidInputError("A concept given by labels does not take `preserve`.", param="preserve")
    # Before the model is loaded, which takes long: a concept that too few texts hold fails here.
    min_texts, show = reading.min_texts, options.show_progress
    matches = concept.find(texts, min_texts=min_texts, show_progress=show)
    # Load once: the object that encodes is also the one the protector keeps.
    encoder = load_encoder(options.encoder)
    options = replace(options, encoder=encoder)
    if (same := concept.for_encoder(encoder)) is not concept:
        concept, matches = same, same.find(texts, min_texts=min_texts, show_progress=show)
    split = reading.long_texts == "split"
    windows = within_window(
        concept.detectors, matches, encoder.read_lengths, split=split, min_texts=min_texts, owner="fit"
    )
    findings: Findings = {"texts": windows.matches.report()}
    if windows.report:
        findings |= {"long_texts": windows.report, "warnings": [windows.warning]}
        before_split, matches = texts, windows.matches
        texts = matches.texts
        if preserve is not None:
            preserve = tuple(preserve[i] for i in windows.source)
        if group_of is not None or split:
            ids = [before_split[i] if group_of is None else group_of[before_split[i]] for i in windows.source]
            joined = joined_groups(np.unique(texts, return_inverse=True)[1], ids)
            group_of = dict(zip(texts, joined.tolist(), strict=True))
    if labelled:
        data, stage = _encoded_labels(texts, matches, options, stage_options, group_of)
        return TextFit(data, options, findings, matches, stage)
    pairs = PairTexts.of(matches, texts, min_token_count=reading.min_token_count, seed=options.seed)
    data, stage, further = _encoded_pairs(pairs, options, stage_options, group_of)
    if further is not None:
        findings["relabelled"] = further[1]
        options = options.with_method_options(relabel=None, further_positive=further[0])
    if preserve is not None:
        # By text, because pairs are sampled.
        class_of = dict(zip(texts, preserve, strict=True))
        rows = len(data.positive) + (0 if data.background is None else len(data.background))
        sources = [*pairs.positive, *pairs.ordinary][:rows]
        options = options.with_method_options(preserve=[class_of[text] for text in sources])
    return TextFit(data, options, findings, matches, stage)


def _check_preserve(value: Any, texts: int) -> tuple[Any, ...] | None:
    if value is None:
        return None
    labels = tuple(checked_labels(value, owner="fit", param="preserve"))
    if len(labels) != texts:
        raise InvalidInputError(
            f"`preserve` has {len(labels)} labels for {texts} texts.", code="E-INPUT-SHAPE", param="preserve"
        )
    return labels


def _encoded_labels(
    texts: Texts,
    matches: ConceptMatches,
    options: FitOptions,
    stage_options: StageOptions | None,
    group_of: Mapping[str, Any] | None,
) -> tuple[Data, TextStage | None]:
    """Return the vectors of at most 40,000 texts and their labels, for a concept given by labels."""
    assert matches.labels is not None
    rows = sample(len(texts), LABELLED_TEXTS, np.random.default_rng(options.seed))
    chosen = [texts[int(i)] for i in rows]
    X, stage = _encoded(chosen, options, stage_options)
    groups = None
    if group_of is not None:
        groups = joined_groups(near_duplicate_groups(X), [group_of[text] for text in chosen])
    return Data.of_labels(X, [matches.labels[i] for i in rows], None, groups), stage


def _encoded(
    texts: list[str], options: FitOptions, stage_options: StageOptions | None, *, detected: int | None = None
) -> tuple[Embeddings, TextStage | None]:
    """Return the vectors of ``texts``, rewritten first by a text stage that is made from the first ``detected``."""
    if stage_options is None:
        return options.encoder.encode(texts, show_progress=options.show_progress), None
    stage = TextStage.of(stage_options, texts[:detected], options.seed, options.show_progress)
    return stage.encode(texts, options.encoder, options.show_progress), stage


def _encoded_pairs(
    pairs: PairTexts, options: FitOptions, stage_options: StageOptions | None, group_of: Mapping[str, Any] | None
) -> tuple[Data, TextStage | None, tuple[Embeddings, Findings] | None]:
    """Return the vectors of the pairs and of the ordinary texts, and those moved to the positives by ``relabel``."""
    # One call for all texts, so that the encoder batches them by length.
    texts = pairs.positive + pairs.ordinary + pairs.negative
    ends = [len(pairs.positive), len(texts) - len(pairs.negative)]
    everything, stage = _encoded(texts, options, stage_options, detected=ends[1])
    positive, background, negative = np.split(everything, ends)
    encode = partial(options.encoder.encode, show_progress=options.show_progress)
    further, relabel = None, getattr(options.own, "relabel", None)
    if relabel is not None:
        # Texts in which the detector finds PII move to the PII side (TextCrafter, Eq. 6, 7).
        detector = None if isinstance(relabel, str) else relabel
        pii = contains_pii(pairs.ordinary, detector, show_progress=options.show_progress)
        name = relabel if isinstance(relabel, str) else type(relabel).__name__
        further = background[pii], {"by": name, "texts": len(pii), "moved": int(pii.sum())}
        background = background[~pii]
    data = Data.of_pairs(
        positive,
        negative,
        pairs.labels if pairs.labels.shape[1] else None,
        background if len(background) else None,
        pairs.groups(positive, group_of),
        pairs.words(encode) if options.method.name == "subspace" else None,
    )
    if stage is None:
        return data, None, further
    originals = None
    if options.sealed is not None:
        positive, background, negative = np.split(encode(texts), ends)
        originals = Data(positive, negative, background=None if data.background is None else background)
    return replace(data, rewritten=True, originals=originals), stage, further
