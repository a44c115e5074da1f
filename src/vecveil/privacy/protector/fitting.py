"""Fit a protector: texts → data → noise shape and map of the method → scale of the noise → artefact with its report.

`fit`, `fit_pairs` and `fit_labels` build the `Data` and `FitOptions` for `fit_data`, which does the rest. `read_texts`
turns texts and a concept into data: match, cut or split, rewrite, sample, encode.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from vecveil.errors import CalibrationError, FitWarning, InvalidInputError, out_of_range, unknown_name
from vecveil.privacy.accounting.advantage import concept_level
from vecveil.privacy.concepts import Concept, ConceptMatches, TokenVocabulary
from vecveil.privacy.concepts.concept import check_concept, checked_labels
from vecveil.privacy.concepts.pairs import LISTED_TEXTS, WordMarks, mark_words, within_window
from vecveil.privacy.mechanisms import OPEN_RANGE, Mechanism, Step
from vecveil.privacy.protector.data import MIN_PAIRS, Data, joined_groups, sample
from vecveil.privacy.protector.fit_options import DEFAULTS, FitOptions, Utility, require_no_pairs
from vecveil.privacy.protector.method import Aim, Candidate, Method, Scale, calibrate, noise_of_advantage, options_of
from vecveil.privacy.protector.methods import METHODS, TEXT_METHODS
from vecveil.privacy.protector.methods.subspace import leak_of_releases
from vecveil.privacy.protector.methods.text_level import (
    SAMPLE,
    OriginalsTask,
    StageOptions,
    TextPlaceholder,
    TextStage,
    utility_of_rows,
)
from vecveil.privacy.protector.protector import Protector
from vecveil.privacy.protector.serialisation import FitSettings
from vecveil.privacy.sensitivity.concept_subspace import near_duplicate_groups
from vecveil.privacy.sensitivity.shapes import NoiseShape
from vecveil.privacy.textcrafter import contains_pii
from vecveil.privacy.utility.sealed_search import SealedSearchTask
from vecveil.privacy.utility.tasks import NeighbourTask, SimilarityTask, UtilityTask
from vecveil.texts.encoders import load_encoder
from vecveil.texts.encoders.text_encoder import EncoderInfo
from vecveil.texts.folding import canonical
from vecveil.types import Embeddings, Groups, Texts, TokenLabels
from vecveil.validation import check_count, check_groups, check_seed, check_texts

MAX_PAIRS = MAX_BACKGROUND = 20_000
LABELLED_TEXTS = 40_000
# Minimum number of texts for a word to be a label; the next one if it covers too few occurrences.
TOKEN_COUNTS = (10, 5, 3)
UTILITY_ROWS = 10_000
DRAWS = 3
"""Noise draws that a utility target is met on."""
ROUNDING_MARGIN = 32
"""Minimum standard deviation of noise in spacings of the released dtype; docs/randomness.md has the reasons."""

NEXT_TO_NOTHING = 0.75
"""Refuse sealed search if at least this share of the clean leak remains."""
Findings = dict[str, Any]

UNBOUNDED = "Nothing bounds how well an attacker distinguishes a text with the concept from the same text without it."


def fit(
    texts: Texts,
    concept: Concept,
    encoder: Any = "minilm",
    *,
    method: str = "subspace",
    target_utility: float | None = None,
    epsilon: float | None = None,
    utility: Utility = "similarity",
    groups: Sequence[Any] | None = None,
    seed: int = 0,
    **options: Any,
) -> Protector:
    """Return a protector that hides ``concept`` in the embeddings of texts like ``texts``.

    Removing the concept's spans from the texts gives the pairs D+ and D-; texts without the concept are the ordinary
    ones. At most 20,000 of each are used, drawn at random. For a concept given by labels see `fit_labels`.

    Args:
        texts: the user's texts, with and without the concept.
        encoder: a name for `vecveil.load_encoder`, or any object with ``encode(texts) -> (N, n)`` or LangChain's
            ``embed_documents``.
        method: a name of `METHODS`, or of `TEXT_METHODS`, which rewrite texts and have no scale; ``vecveil methods``
            lists their scales and options.
        target_utility, epsilon: the strength of the noise: one of these, or of the other scales of `fit_pairs`.
        utility: the utility that a target keeps; see `fit_pairs`.
        groups: N ids of texts that belong together (a document, a patient) and stay on one side of every split;
            near-duplicates join their groups. The report warns of a group that is too large for that. None groups
            near-duplicates unless most texts are.
        **options: the options of `fit_pairs`, and the following.

    Options of the texts:
        min_texts (20): minimum number of texts that contain the concept.
        min_token_count: minimum number of texts for a concept word to be a label; None takes 10, or 5 or 3 where that
            would omit more than half of the concept words' occurrences.
        long_texts ("cut"): of a text longer than the encoder's window, ``cut`` takes what the encoder reads; ``split``
        makes windows of it, between sentences or words, which stay on one side of every split.
        rewrite: rewrites what a detector finds before a text is encoded, in the fit and in every release: ``delete``
            removes it, ``hypernym`` names its type ("a drug"), ``surrogate`` replaces it by another member. The method
            learns from the rewritten texts and the words of the original ones, so it also erases what the context still
            reveals. A utility target compares with clean vectors of the rewritten texts, except for ``sealed-search``;
            ``report["rewriting"]`` has the cost of rewriting.
        detector: for ``rewrite``: a `Concept` or its file, an object with ``detect(texts)``, or entity types as in a
            concept file, such as ``["EMAIL_ADDRESS"]`` (Presidio) or ``{"engine": "spacy", "model": ..., "types":
            [...]}``. None takes the concept's own detectors.
        hypernyms: nouns by label for ``hypernym``, in addition to built-in nouns for common labels; ``""`` is for all
            others.
        surrogate_key: secret for ``surrogate``: a `KeyFile`, the path of a key file, or ``env:NAME``. The saved
            protector contains the name of the key, not the key.
        surrogates: members for ``surrogate``: ``"own"`` (from the texts), ``"faker"``, or lists by label.

    Raises:
        ConceptError: the concept matches nothing, too few texts, or whole texts only.
        CalibrationError: the target is out of reach; the message names the best reachable value.

    Cost:
        Each text is encoded once, and each text with the concept again without it. ``subspace`` also encodes up to
        10,000 frequent words if at least 20 listed words are frequent. The search costs n³ operations for each of about
        25 settings: on one core seconds at 384 dimensions, a minute at 1,536, a quarter of an hour at 4,096.
    """
    keywords = dict(options, method=method, target_utility=target_utility, epsilon=epsilon)
    keywords |= {"utility": utility, "seed": seed}
    check_concept(concept, owner="fit")
    if method in TEXT_METHODS:
        return _fit_text_level(texts, concept, encoder, keywords | {"groups": groups})
    # Check all arguments first: encoding may take hours.
    own = {name: keywords.pop(name) for name in TextOptions.__dataclass_fields__ if name in keywords}
    settings = FitOptions.of("fit", {**keywords, "encoder": encoder, "concept_name": concept.name})
    learnt = read_texts(texts, concept, groups, TextOptions(**own), settings)
    return _warned(learnt.with_stage(fit_data(learnt.data, learnt.options, learnt.findings)))


def fit_pairs(
    positive: Embeddings,
    negative: Embeddings,
    token_labels: TokenLabels | None = None,
    background: Embeddings | None = None,
    *,
    words: Any = None,
    groups: Groups | None = None,
    **options: Any,
) -> Protector:
    """Return a protector fitted on embeddings alone.

    Args:
        positive, negative: (N, n) embeddings with and without the concept; row i of each is one pair.
        token_labels: (N, V) 0/1, the concept terms in the text of each positive row. Without it the concept's
            directions come from the pairs, which hides less.
        background: (K, n) embeddings of ordinary texts, for covariances and the calibration of utility. With fewer than
            20 rows the negatives replace them.
        words: word marks of the positive and then of the background rows, from `mark_words`. ``subspace`` then also
            hides unlisted words that resemble the listed ones, as `fit` does.
        groups: (N,) ids of rows that belong together; None groups near-duplicates by cosine.
        **options: the following.

    Options of every method:
        method ("subspace"): a name of `METHODS`; ``vecveil methods`` lists them with their scales.
        target_utility: the most noise that keeps this share of the clean utility, with both sides protected. A fit
            takes exactly one scale: this or one of the next six.
        epsilon: ε per unit of the mechanism's norm, or with ``delta`` (ε, δ) for ``ldp-gaussian``. With unit-norm
            vectors the noise has a norm of about n/ε: below ε ≈ n/2 little is left of the vector.
        noise_to_signal: the root mean square norm of the noise, before the map, divided by the vectors'; noise in kept
            dimensions counts as noise of the same deviation in all.
        target_cosine: the mean cosine between clean and noisy vectors, before the map.
        target_advantage: the least noise at which no attacker has a larger advantage in distinguishing a text with the
            concept from the same text without it, for 95 % of the pairs.
        sigma: the standard deviation per coordinate, of ``gaussian``.
        radius: the norm of every perturbation, of ``textcrafter``, whose vectors have norm 1.
        utility: the utility of ``target_utility``: ``similarity`` (Pearson correlation of pairwise cosines with the
            clean ones, half random pairs, half near neighbours), ``neighbours`` (recall@10), or a
            `vecveil.metrics.UtilityTask` such as `StsTask`, `RetrievalTask`, `ClassificationTask`. ``sealed-search`` is
            recall@10 of a `vecveil.ProtectedCollection`, which ranks candidates exactly; a `RetrievalTask` with
            ``candidates`` is nDCG@10 there. The lower confidence limit meets the target, which is 0.99 if no scale is
            given.
        candidates: of sealed search: rows that a search fetches and ranks exactly, at least 10.
        collection_size: of sealed search: rows of the collection, at least the number of texts. Rows beyond the texts
            are modelled like them, or like ``background`` with fewer than 2,000 positives.
        query_noise: of sealed search: 0 sends queries through the map without noise, as ``ProtectedCollection(...,
            query_noise=0)`` does.
        accept_leak: of sealed search with a target: return a protector even if an attacker keeps more than three
            quarters of the clean leak over chance. By default the fit refuses it.
        before: ``none``, ``normalise`` or ``clip:RADIUS``, applied before the noise. It bounds the distance between two
            inputs, which turns metric privacy into local privacy.
        postprocess: steps after the noise, free of privacy cost. None takes the method's own (subspace its map,
            covariance the Wiener filter, others nothing). A comma-separated string or a list of: ``none`` or ``wiener``
            first, in place of the method's own map; then ``normalise``, ``truncate:M``, ``float16``, ``int8``
            (``int8:RANGE``), ``binary``, or `vecveil.privacy.mechanisms.Step`. Without its own map the subspace method
            erases nothing and becomes plain Laplace noise.
        output: ``reduced`` releases the m kept coordinates (N, m) of the subspace method.
        encoder: the encoder of the embeddings, stored by name and fingerprint.
        concept_name, seed (0), show_progress (None): the saved name, and the seed of every random choice.
        splits (1): number of variates per normal of the noise; more makes attacks on the noise's bits harder.

    Options of the methods:
        See the fields of the classes in `vecveil.privacy.protector.methods`: `subspace.SubspaceOptions`,
        `noise.CovarianceOptions`, `sparse.SparseOptions`, `sparse.WhiteboxOptions`, `textcrafter.TextCrafterOptions`,
        and, of `fit`, `text_level.RandomOptions` and `text_level.SemanticOptions`.

    Raises:
        CalibrationError: the target is out of reach (the message names the best reachable value), or sealed search
            leaks too much (``accept_leak``).
    """
    settings = FitOptions.of("fit_pairs", options)
    data = Data.of_pairs(positive, negative, token_labels, background, groups, words)
    settings.check_size(len(data.positive))
    return _warned(fit_data(data, settings))


def fit_labels(
    X: Embeddings, labels: Any, background: Embeddings | None = None, *, groups: Groups | None = None, **options: Any
) -> Protector:
    """Return a protector that hides the label of a text (sentiment, topic, author), fitted on embeddings.

    No text is "without the concept", so the covariance between labels replaces that of pairs. ``subspace`` erases the
    directions of the label means, one fewer than classes; the kept directions and the noise may still reveal other
    differences between labels.

    Args:
        X: (N, n) embeddings.
        labels: N strings or integers, None for a text without a label; or a 0/1 array (N, V), where a text may have
            several. At least ten texts per label. Texts without a label are ordinary ones; with a single label they are
            the other class.
        background: (K, n) further embeddings of texts without a label.
        groups, **options: see `fit_pairs`. The method is ``subspace``, ``covariance`` (shape "labels"), ``sparse`` (two
            classes), ``sparse-whitebox`` or one that learns nothing of the concept. ``target_advantage`` is not
            available.

    Raises:
        InvalidInputError: the method or an option needs pairs.
        CalibrationError: the target is out of reach; the message names the best reachable value.

    Guarantee:
        The neighbours are two input vectors. The distance between texts of different labels is unknown, so nothing
        bounds how well an attacker infers the label; an audit measures it.
    """
    settings = FitOptions.of("fit_labels", options)
    data = Data.of_labels(X, labels, background, groups)
    settings.check_size(len(data.positive))
    return _warned(fit_data(data, settings))


def _warned(protector: Protector) -> Protector:
    for sentence in protector.report["warnings"]:
        warnings.warn(sentence, FitWarning, stacklevel=3)
    return protector


def fit_data(data: Data, options: FitOptions, findings: Mapping[str, Any] | None = None) -> Protector:
    """Return the protector of checked data; ``findings`` join its report."""
    started = time.perf_counter()
    whole = data
    data, kept = whole.different_pairs(options.owner)
    options = options.of_rows(kept, whole)
    encoder = None if options.encoder is None else load_encoder(options.encoder)
    # Before the search, so that an encoder behind a failing URL costs no fit.
    norms = data.norms if options.before.kind == "none" else ()
    info = EncoderInfo.of(encoder, norms=norms)
    clean, data = data, data.preprocessed(options.before, options.owner)
    _check_concept(data, options)
    own = _own_texts(data, options.seed)
    # Clean utility is measured on vectors after `before`.
    task = options.task(own, data) if data.originals is None else _task_on_originals(clean, options)
    aim = Aim(task, _search_scale(data, options.scale), options.before, options.seed, options.show_progress)
    method, method_options = options.fitted_method()
    candidate = options.with_steps(method.build(data, method_options, aim), data)
    noise = _noise(candidate, data, own, task, options)
    mechanism = candidate.mechanism_at(noise, data.moments.rms_norm, options.scale, options.splits)
    _check_precision(mechanism, candidate, options.scale, noise, data.moments.rms_norm, own)
    linear = candidate.map_of(noise)
    protector = Protector(
        method=options.method.name,
        mechanism=mechanism,
        # The map's grid has to cover the mechanism's rounding.
        map=None if linear is None else linear.coarser_than(mechanism.step),
        output=options.output,
        encoder_info=info,
        concept=options.concept,
        encoder=encoder,
        before=options.before,
        after=options.after,
        settings=FitSettings(options.map, candidate.parameters, options.seed),
    )
    protector = _with_ranges(protector, own, options.seed)
    equal = 0 if kept is None else len(whole.positive) - len(kept)
    report = _report(protector, data, options, candidate, task, own, equal) | dict(findings or {})
    sentences = [*(findings or {}).get("warnings", []), *candidate.findings.get("warnings", [])]
    if equal:
        sentences.insert(0, f"{equal} of {len(whole.positive)} pairs were left out: their two vectors are equal.")
    # A text stage removes words before encoding; its own figures measure the rest.
    target = None if options.scale is None else options.scale.utility_target
    if options.sealed is not None and target is not None and data.originals is None:
        leak = _little_protection(protector, data, candidate, options, noise)
        if leak is not None:
            report["accepted_leak"], sentence = leak
            sentences.insert(0, sentence)
    report["warnings"] = [*sentences, *_word_warnings(data), *mechanism.weakness(data.moments.rms_norm)]
    return replace(protector, report=report | {"seconds": time.perf_counter() - started})


# -- from texts to data


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Keywords of `vecveil.fit` for texts; see there."""

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
        given = {name: getattr(self, name) for name in ("detector", "hypernyms", "surrogate_key", "surrogates")}
        if self.rewrite is None and all(value is None for value in given.values()):
            return None
        return StageOptions.of(self.rewrite, concept, **given)


@dataclass(frozen=True, eq=False, repr=False)
class PairTexts:
    """The texts of pairs, the user's own first, and ordinary ones. Keep it in memory: it contains texts.

    Attributes:
        labels: (N, V) the words of ``vocabulary`` in each positive.
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
        """Return the word marks of the positives and, after them, of the ordinary texts."""
        return mark_words(self.positive + self.ordinary, self.listed, encode, labels=self.vocabulary)

    def groups(self, X: Embeddings, group_of: Mapping[str, Any] | None) -> Groups | None:
        """Return ids of near-duplicates and of texts of one group; None if the vectors alone determine them."""
        if group_of is None:
            folded = [canonical(text) for text in self.positive]
            # An encoder may place copies in different Unicode composition far apart.
            copies = len(set(folded)) < len(set(self.positive))
            return joined_groups(near_duplicate_groups(X), folded) if copies else None
        return joined_groups(near_duplicate_groups(X), [group_of[text] for text in self.positive])


@dataclass(frozen=True, eq=False, repr=False)
class TextFit:
    """The texts of one fit with vectors, encoder and report entries. Keep it in memory: it contains texts."""

    data: Data
    options: FitOptions
    findings: Findings
    matches: ConceptMatches
    stage: TextStage | None

    def with_stage(self, protector: Protector) -> Protector:
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
    """Return the vectors of texts and of the same texts without the concept, or with their labels."""
    stage_options = reading.stage(concept)
    if stage_options is not None and options.sealed is not None and isinstance(options.utility, UtilityTask):
        raise InvalidInputError(
            "With `rewrite` pass utility='sealed-search': a task contains vectors of texts that are not rewritten.",
            param="utility",
        )
    texts = check_texts(texts, owner="fit")
    options.check_size(len(texts))
    preserve = _check_preserve(getattr(options.own, "preserve", None), len(texts))
    group_of: dict[str, Any] | None = None
    if groups is not None:
        ids = check_groups(groups, len(texts), owner="fit")
        # A text in two groups joins them, even if its copies differ in composition or spaces.
        joined = joined_groups(np.unique([canonical(text) for text in texts], return_inverse=True)[1], ids)
        group_of = dict(zip(texts, joined.tolist(), strict=True))
    labelled = concept.labels is not None or concept.labels_column is not None
    if labelled:
        require_no_pairs(options.method, options.scale)
        if preserve is not None:
            raise InvalidInputError("A concept given by labels does not take `preserve`.", param="preserve")
    # Fail here if too few texts contain the concept, before the slow loading of the model.
    min_texts, show = reading.min_texts, options.show_progress
    matches = concept.find(texts, min_texts=min_texts, show_progress=show)
    # Load once: the protector keeps the object that encodes.
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
    """Return the vectors of ``texts``; a text stage made from the first ``detected`` rewrites them."""
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


# -- the steps of a fit, in their order


def _check_concept(data: Data, options: FitOptions) -> None:
    """Raise InvalidInputError if the concept changes no vector."""
    moments = data.moments
    # Rewriting can make all pairs equal: the subspace then learns from labels, and isotropic noise needs neither.
    by_labels = options.method.name == "subspace" and moments.B is not None and moments.B.any()
    if by_labels or (data.rewritten and not options.method.options):
        return
    if data.negative is not None and not moments.C.any():
        raise InvalidInputError(
            "`negative` contains the same rows as `positive`: the concept changes no vector.", param="negative"
        )
    if data.negative is None and (moments.B is None or not moments.B.any()):
        raise InvalidInputError("`labels` do not change the vectors: all are equal.", param="labels")


def _own_texts(data: Data, seed: int) -> Embeddings:
    """Return a sample of the user's rows, with and without the concept in the given proportion."""
    ordinary = data.ordinary
    both = data.positive if ordinary is None else np.concatenate([data.positive, ordinary])
    order = np.random.default_rng(seed).permutation(len(both))
    return np.ascontiguousarray(both[order[:UTILITY_ROWS]])


def _task_on_originals(data: Data, options: FitOptions) -> UtilityTask:
    """Return the task of sealed search, which ranks by vectors of the original texts."""
    originals = data.originals
    assert originals is not None
    task = options.task(_own_texts(originals, options.seed), originals)
    return OriginalsTask(task, np.concatenate(originals.arrays), np.concatenate(data.arrays))


def _search_scale(data: Data, scale: Scale | None) -> Scale | None:
    """Return the scale of the method's search: for a target advantage, isotropic noise that meets it."""
    if scale is None or scale.kind != "target_advantage":
        return scale
    plain = Candidate(NoiseShape.isotropic(data.dimension))
    noise = noise_of_advantage(plain, scale.value, data.moments.rms_norm, data.sides("target_advantage", scale.value))
    return Scale("noise_to_signal", noise)


def _noise(candidate: Candidate, data: Data, own: Embeddings, task: UtilityTask, options: FitOptions) -> float:
    """Return the noise-to-signal ratio of the scale; only a target needs a search."""
    scale, rms_norm, seed = options.scale, data.moments.rms_norm, options.seed
    if scale is None:
        return 0.0
    if not scale.kind.startswith("target"):
        fixed = scale.noise(rms_norm, candidate.shape.dimension, candidate.family)
        assert fixed is not None
        return fixed
    # Sealed search has to meet its target by a lower limit: other draws than those by which the setting was chosen, and
    # the least noise of several, since the rows' noise is one draw for all queries. Other tasks meet it on average.
    sealed = options.sealed is not None
    seeds = range(seed + 1, seed + 1 + DRAWS) if sealed else (seed,)
    return min(calibrate(candidate, scale, data, task, own, seed=each, draws=1 if sealed else DRAWS) for each in seeds)


def _check_precision(
    mechanism: Mechanism, candidate: Candidate, scale: Scale | None, noise: float, rms_norm: float, own: Embeddings
) -> None:
    """Raise InvalidInputError, with the least scale that works, if the dtype of the rows loses the noise."""
    if scale is None or not mechanism.least_deviation:
        return
    # In float64, which contains every noise that a fit accepts, and with a fixed seed: only the magnitude counts.
    released = mechanism.protect(own.astype(np.float64), rng=0)
    needed = ROUNDING_MARGIN * float(np.spacing(np.abs(released).max().astype(own.dtype)))
    short = np.log(needed / mechanism.least_deviation)
    if short <= 0:
        return
    from scipy.optimize import brentq  # slow to import, and needed for a refusal alone

    name, value, sign = scale.kind, scale.value, -1 if scale.kind == "epsilon" else 1

    def lacking(by: float) -> float:
        other = replace(scale, value=value * np.exp(sign * by))
        ratio = other.noise(rms_norm, mechanism.dimension, candidate.family)
        assert ratio is not None
        made = candidate.mechanism_at(ratio, rms_norm, other)
        return float(np.log(needed / made.least_deviation))

    if name.startswith("target"):
        bound = f"a scale whose noise_to_signal is at least {noise * np.exp(short) * 1.01:.3g}"
    else:
        # The deviation grows in proportion to the scale, for (ε, δ) at least as its root; 1 % covers three digits.
        by = float(brentq(lacking, 0, 2 * short + 1))
        bound = f"at {'least' if sign > 0 else 'most'} {value * np.exp(sign * (by + 0.01)):.3g}"
    why = f"Below that {own.dtype} rounds the noise away, and the release is the vector."
    raise out_of_range("fit", name, f"{bound} for these vectors", value, f"{why} Use more noise.")


def _with_ranges(protector: Protector, own: Embeddings, seed: int) -> Protector:
    """Return the protector with the range of its releases in int8 steps that have none."""
    if not any(step.value == OPEN_RANGE for step in protector.after):
        return protector
    steps: list[Step] = []
    for step in protector.after:
        if step.value == OPEN_RANGE:
            # The range depends on the earlier steps, so apply them first.
            released = replace(protector, after=tuple(steps)).protect(own[:2000], seed)
            # A quantile: one outlier would coarsen the grid for all.
            step = Step("int8", float(np.quantile(np.abs(released), 0.9999)) or 1.0)
        steps.append(step)
    return replace(protector, after=tuple(steps))


# -- the report


def _report(
    protector: Protector,
    data: Data,
    options: FitOptions,
    candidate: Candidate,
    task: UtilityTask,
    own: Embeddings,
    equal: int,
) -> dict[str, Any]:
    mechanism, labels = protector.mechanism, data.token_labels
    scales = mechanism.parameters()
    utility = _utility_record(protector, task, own, options.seed)
    return {
        "pairs": 0 if data.negative is None else len(data.positive),
        **({"equal_pairs": equal} if equal else {}),
        **({"labelled": len(data.positive)} if data.negative is None else {}),
        "background": 0 if data.background is None else len(data.background),
        "labels": 0 if labels is None else int(labels.shape[1]),
        "asked": {} if options.scale is None else options.scale.to_record(),
        "utility_task": task.key,
        "epsilon": scales.get("epsilon"),
        **{key: scales[key] for key in ("sigma", "delta", "radius") if key in scales},
        "noise_to_signal": mechanism.noise_ratio(data.moments.rms_norm),
        "before": options.before.kind,
        "postprocess": ", ".join([options.map, *(step.label for step in protector.after)]),
        "parameters": candidate.parameters,
        **{key: value for key, value in candidate.findings.items() if key != "warnings"},
        "utility": utility,
        **_sealed_record(utility, protector.dimension),
        "concept_distance": None if data.negative is None else _concept_distance(protector, data, options.method),
        "seed": options.seed,
    }


def _utility_record(protector: Protector, task: UtilityTask, own: Embeddings, seed: int) -> dict[str, Any]:
    tasks: dict[str, UtilityTask] = {
        "similarity": SimilarityTask.of(own, seed=seed + 1),
        "neighbours": NeighbourTask(own[:2000], queries=300, seed=seed),
        task.key: task,
    }
    # Calibration draws meet the target by construction, so measure on fresh ones.
    rng = np.random.default_rng(seed + 1)

    def release(X: Embeddings, generator: np.random.Generator | None) -> Embeddings:
        return protector.protect(X, generator, noise=generator is not None)

    return {key: each.to_record(release, rng) for key, each in tasks.items()}


def _sealed_record(utility: dict[str, Any], dimension: int) -> dict[str, Any]:
    """Return the forecast of sealed search with the bytes that a query fetches; empty for another utility."""
    outlook = utility.get(SealedSearchTask.key, {}).pop("outlook", None)
    if outlook is None:
        return {}
    # A float16 vector, a text of up to 220 bytes padded to 256, and 43 bytes of the format, in base64.
    blob = 4 * -(-(2 * dimension + 256 + 43) // 3)
    return {"sealed_search": {**outlook, "bytes_per_query": blob * outlook["candidates"]}}


def _little_protection(
    protector: Protector, data: Data, candidate: Candidate, options: FitOptions, noise: float
) -> tuple[dict[str, float], str] | None:
    """Return figures and a warning if an attacker recovers nearly the clean leak; raise without ``accept_leak``."""
    # The subspace search has measured it on held-out texts; other methods have no such figure.
    leak = candidate.findings.get("reader", {}).get("listed") or leak_of_releases(
        data, lambda X, rng: protector.protect(X, rng), options.seed
    )
    if leak is None or leak["value"] - leak["chance"] <= NEXT_TO_NOTHING * (leak["clean"] - leak["chance"]):
        return None
    assert options.sealed is not None
    assert options.scale is not None
    words = (
        f"This protects next to nothing: an attacker recovers {leak['value']:.1%} from the protected vectors and "
        f"{leak['clean']:.1%} from clean ones (chance {leak['chance']:.1%}). To keep {options.scale.value:.0%} of "
        f"search with {options.sealed.candidates:,} candidates in {options.sealed.collection_size:,} rows, the noise "
        f"is {noise:.3g} of the signal."
    )
    if options.accept_leak:
        return {key: leak[key] for key in ("value", "chance", "clean")}, words
    raise CalibrationError(
        f"{words} Use a sealed index (vecveil.SealedIndex), take more candidates or a lower target_utility "
        "(--target-utility), or pass accept_leak=True (--accept-leak).",
        code="E-CALIBRATION-LEAK",
        param="accept_leak",
    )


def _concept_distance(protector: Protector, data: Data, method: Method) -> dict[str, Any]:
    """Return the distances within pairs in the mechanism's metric, and the resulting advantage."""
    positive, negative = data.sides("concept", "")
    down = None if protector.map is None else protector.map.down
    differences = np.asarray(positive, dtype=np.float64) - np.asarray(negative, dtype=np.float64)
    level = concept_level(
        protector.mechanism.distances(positive, negative, down=down),
        advantage=protector.mechanism.advantage,
        exact=protector.mechanism.exact_behind(down),
    )
    return {
        **level.to_record(),
        "clean_median": float(np.median(np.linalg.norm(differences, axis=1))),
        "statement": str(level) if method.kind == "formal" else UNBOUNDED,
    }


def _word_warnings(data: Data) -> list[str]:
    if data.words is None or data.words.listed.any():
        return []
    return [
        f"No word of the concept stands in {LISTED_TEXTS} texts, so the fit marks no words: it hides the concept by "
        "its pairs alone. Give more texts, or shorter terms."
    ]


# -- text-level methods


def _fit_text_level(texts: Texts, concept: Concept, encoder: Any, keywords: Mapping[str, Any]) -> Protector:
    started = time.perf_counter()
    chosen = TEXT_METHODS[keywords["method"]]
    defaults = DEFAULTS | {name: each.default for name, each in TextOptions.__dataclass_fields__.items()}

    def is_default(name: str, value: Any) -> bool:  # arrays and texts are compared by identity
        return value is defaults.get(name) or (isinstance(value, int | float) and value == defaults.get(name))

    given = {name: value for name, value in keywords.items() if value is not None and not is_default(name, value)}
    own, show_progress = ("method", "seed", "show_progress", "min_texts"), keywords.get("show_progress")
    for name in (*TextOptions.__dataclass_fields__, *DEFAULTS, "groups"):
        if name in given and name not in own:
            raise InvalidInputError(
                f"Method {chosen.name!r} does not take `{name}`: it rewrites texts, and changes no vector.", param=name
            )
    options = options_of(chosen, {name: value for name, value in given.items() if name not in own})
    seed = check_seed(keywords["seed"], owner="fit")
    min_texts = keywords.get("min_texts", MIN_PAIRS)
    texts = check_texts(texts, owner="fit")
    concept.require_spans("fit")
    matches = concept.find(texts, min_texts=min_texts, show_progress=show_progress)
    loaded = load_encoder(encoder)
    if (same := concept.for_encoder(loaded)) is not concept:
        concept, matches = same, same.find(texts, min_texts=min_texts, show_progress=show_progress)
    rewriter = chosen.build(matches, concept, seed, options)
    rng = np.random.default_rng(seed)
    rows = [int(i) for i in np.sort(rng.permutation(len(texts))[:SAMPLE])]
    clean = loaded.encode([texts[i] for i in rows], show_progress=show_progress)
    written = rewriter.rewrite([texts[i] for i in rows], spans=[matches.spans[i] for i in rows])
    released = loaded.encode(written, show_progress=show_progress)
    report: dict[str, Any] = {
        "texts": matches.report(),
        "asked": {},
        "utility_task": "similarity",
        "epsilon": None,
        "noise_to_signal": None,
        "before": "none",
        "postprocess": "none",
        "parameters": rewriter.counts(),
        "utility": {} if len(rows) < MIN_PAIRS else utility_of_rows(clean, released, rng, seed=seed),
        "concept_distance": None,
        "warnings": [],
        "seed": seed,
        "seconds": time.perf_counter() - started,
    }
    return Protector(
        method=chosen.name,
        mechanism=TextPlaceholder(loaded.dimension, rewriter.kind),
        encoder_info=EncoderInfo.of(loaded),
        concept=concept.name,
        report=report,
        encoder=loaded,
        rewriter=rewriter,
    )


# -- fitting again


def refit_refusal(protector: Protector) -> str | None:
    """Return why the method cannot be fitted again on other words, or None."""
    if protector.text_only:
        return "It rewrites texts: there is nothing to fit on vectors."
    method, settings = METHODS.get(protector.method), protector.settings
    if method is not None and method.no_refit:
        return method.no_refit
    if method is not None and not method.options:
        return f"Method {protector.method!r} does the same whatever the words are."
    if "preserved" in protector.report:
        return "The labels of the task that the fit preserved are not kept."
    if method is None or settings is None or settings.options.get("shape") == "given":
        return "The settings that the protector was fitted with are not known."
    return None


def refit(protector: Protector, data: Data) -> Protector:
    """Return a protector like ``protector``, fitted on other data; raise if `refit_refusal` gives a reason."""
    reason, settings = refit_refusal(protector), protector.settings
    if reason is not None or settings is None:
        raise InvalidInputError(f"The protector cannot be fitted again. {reason}", param="protector")
    maps = [settings.map] if settings.map in ("none", "wiener") else []
    options = FitOptions.of(
        "refit",
        {
            # JSON turned tuples of a loaded file into lists.
            **{name: tuple(value) if isinstance(value, list) else value for name, value in settings.options.items()},
            # A mechanism states the ε of Σ scaled to trace n.
            **({"normalise": True} if settings.options.get("release") == "full" else {}),
            "method": protector.method,
            "epsilon": protector.mechanism.parameters()["epsilon"],
            "before": protector.before,
            "postprocess": [*maps, *protector.after] or None,
            "output": protector.output,
            "seed": settings.seed,
            "show_progress": False,
        },
    )
    return fit_data(replace(data, rewritten=protector.rewriter is not None), options)
