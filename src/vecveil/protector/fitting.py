"""Fit a protector: texts → pairs and labels → noise shape and map → search of the scale → artefact.

`fit`, `fit_pairs` and `fit_labels` turn their arguments into `FitOptions` and `FitVectors`; `_fit_vectors` fits them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np

from vecveil.accounting.calibration import epsilon_meaning
from vecveil.accounting.guarantee import WEAK_EPSILON
from vecveil.accounting.total_variation import concept_level
from vecveil.concepts import Concept, ConceptMatches
from vecveil.concepts.annotated import checked_labels
from vecveil.concepts.folding import canonical
from vecveil.concepts.pairs import LISTED_TEXTS, WordMarks
from vecveil.concepts.windows import SPLIT, within_window
from vecveil.encoders import load_encoder
from vecveil.errors import CalibrationError, InvalidInputError, out_of_range, unknown_name
from vecveil.mechanisms import OPEN_RANGE, Before, Laplace, LdpGaussian, Mechanism, Purkayastha, Step, TextCrafter
from vecveil.mechanisms.purkayastha import angle_moments
from vecveil.metrics import NeighbourTask, SealedSearchTask, SimilarityTask, UtilityTask
from vecveil.protector.calibration import calibrate, noise_of_advantage
from vecveil.protector.method import Candidate, FitData, NoiseScale
from vecveil.protector.methods import METHODS, TEXT_METHODS
from vecveil.protector.methods.covariance import with_wiener
from vecveil.protector.methods.subspace import leak_of_releases
from vecveil.protector.methods.text_level import (
    SAMPLE,
    OriginalsTask,
    Rewrite,
    StageOptions,
    TextPlaceholder,
    TextStage,
    utility_of_rows,
)
from vecveil.protector.options import FitOptions, Postprocess, Utility, check_label_method, check_option_names
from vecveil.protector.pairs import MIN_PAIRS, FitVectors, PairTexts, equal_vectors, joined_groups, sample, varied
from vecveil.protector.protector import EncoderInfo, Output, Protector, norm_range
from vecveil.sensitivity.kernel_reader import near_duplicate_groups
from vecveil.sensitivity.moments import Moments
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.textcrafter import contains_pii
from vecveil.types import Embeddings, Groups, Texts, TokenLabels
from vecveil.validation import check_count, check_same_length, check_texts

UTILITY_ROWS = 10_000
LABELLED_TEXTS = 40_000
DRAWS = 3
"""Draws of the noise that a target of utility is met on."""
ROUNDING_MARGIN = 32
"""Least standard deviation of noise in spacings of the released dtype; docs/randomness.md has the reasons."""

NEXT_TO_NOTHING = 0.75
"""Share of what clean vectors tell an attacker over chance from which on sealed search is refused as unprotected."""
UNBOUNDED = "Nothing bounds how well an attacker tells a text with the concept from the same text without it."


def fit(
    texts: Texts,
    concept: Concept,
    encoder: Any = "minilm",
    *,
    method: str = "subspace",
    epsilon: float | None = None,
    noise_to_signal: float | None = None,
    target_utility: float | None = None,
    target_cosine: float | None = None,
    target_advantage: float | None = None,
    sigma: float | None = None,
    delta: float | None = None,
    radius: float | None = None,
    utility: Utility = "similarity",
    candidates: int | None = None,
    collection_size: int | None = None,
    query_noise: bool = True,
    accept_leak: bool = False,
    before: Before | str | None = None,
    postprocess: Postprocess = None,
    output: Output = "full",
    min_texts: int = MIN_PAIRS,
    min_token_count: int | None = None,
    long_texts: Literal["cut", "split"] = "cut",
    rewrite: Rewrite | None = None,
    detector: Any = None,
    hypernyms: Mapping[str, str] | None = None,
    surrogate_key: Any = None,
    surrogates: Any = None,
    groups: Sequence[Any] | None = None,
    seed: int = 0,
    show_progress: bool | None = None,
    **options: Any,
) -> Protector:
    """Return a protector that hides ``concept`` in the embeddings of texts like ``texts``.

    Removing the concept's spans from the texts gives the pairs D+ and D-; texts without the concept are the
    ordinary ones. At most 20,000 of each are used, drawn at random. For a concept given by labels see `fit_labels`.

    Args:
        texts: the user's texts, with and without the concept.
        encoder: a name for `vecveil.load_encoder`, or any object with ``encode(texts) -> (N, n)`` or LangChain's
            ``embed_documents``.
        method: a name of `vecveil.protector.METHODS`, or of `vecveil.protector.TEXT_METHODS`, which rewrite the
            texts and have no scale; ``vecveil methods`` lists them with their scales.
        epsilon, noise_to_signal, target_utility, target_cosine, target_advantage, sigma, radius: exactly one of
            the method's scales; see `fit_pairs`.
        delta, utility, candidates, collection_size, query_noise, accept_leak, before, postprocess, output: see
            `fit_pairs`.
        options: of the method, see `fit_pairs`; ``preserve`` holds one class for each text here. textcrafter also
            ``relabel``: ``"presidio"`` or any object with ``detect(texts)``; ordinary texts in which it detects PII
            then count as texts with the concept.
            replace-random: ``words`` (2,000, size of the vocabulary of replacements) and ``min_word_texts`` (5,
            fewest texts that hold each). replace-semantic: ``members``: ``"own"`` (of the texts), ``"faker"``
            (made up, with ``locales`` and ``count``), or lists by type.
        min_texts: fewest texts that must hold the concept, at least 20.
        min_token_count: fewest texts for a concept word to be a label; None takes 10, or 5 or 3 where that
            would leave out more than half of the concept words' occurrences.
        long_texts: of a text that is longer than the encoder's window, ``cut`` takes what the encoder reads;
            ``split`` makes windows of it, between sentences or words, which stay on one side of every split.
        rewrite: what a detector finds is rewritten before a text is encoded, in the fit and in every release:
            ``delete`` removes it, ``hypernym`` names its type ("a drug"), ``surrogate`` puts another member in its
            place. The method then learns from the rewritten texts and the words of the original ones, so that it also
            erases what the context still tells. A target of utility compares with clean vectors of the rewritten
            texts, except for ``sealed-search``; ``report["rewriting"]`` says what the rewriting itself costs.
        detector: for ``rewrite``: a `Concept` or its file, an object with ``detect(texts)``, or entity types as in a
            concept file, such as ``["EMAIL_ADDRESS"]`` (Presidio) or ``{"engine": "spacy", "model": ..., "types":
            [...]}``. None takes the concept's own detectors.
        hypernyms: nouns by label for ``hypernym``, besides those for common labels; ``""`` is for all others.
        surrogate_key: secret for ``surrogate``: a `NoiseKeys`, the path of a key file, or ``env:NAME``. The saved
            protector holds the name of the key, not the key.
        surrogates: members for ``surrogate``: ``"own"`` (what the detector finds in the texts), ``"faker"``, or
            lists by label.
        groups: N ids of texts that belong together (a document, a patient), one of which never is on both sides of a
            split of the texts with the concept; near-duplicates join their groups. A warning of the report says if a
            group is too large for that. None: near-duplicates stay together unless most texts are.

    Raises:
        ConceptError: the concept matches nothing, too few texts, or leaves nothing of them.
        CalibrationError: the target is out of reach; the message names the best reachable value.

    Cost:
        Encoding each text once, and each text with the concept again without it. ``subspace`` also encodes up to
        10,000 frequent words by themselves if at least 20 listed words are frequent. Then seconds at 384 dimensions;
        the search costs n³ operations for each of about 25 settings: on one core a minute at 1,536 dimensions, a
        quarter of an hour at 4,096.
    """
    scales = {
        "epsilon": epsilon,
        "noise_to_signal": noise_to_signal,
        "target_utility": target_utility,
        "sigma": sigma,
        "delta": delta,
        "target_cosine": target_cosine,
        "target_advantage": target_advantage,
        "radius": radius,
    }
    stage_options = None
    of_stage = {"detector": detector, "hypernyms": hypernyms, "surrogate_key": surrogate_key, "surrogates": surrogates}
    if rewrite is not None or any(value is not None for value in of_stage.values()):
        stage_options = StageOptions.of(rewrite, concept, method=method, **of_stage)
    if method in TEXT_METHODS:
        vector_arguments = scales | {
            "before": before,
            "postprocess": postprocess,
            "output": None if output == "full" else output,
            "utility": None if utility == "similarity" else utility,
            "min_token_count": min_token_count,
            "candidates": candidates,
            "collection_size": collection_size,
            "query_noise": None if query_noise else query_noise,
            "groups": groups,
            "accept_leak": accept_leak or None,
            "long_texts": None if long_texts == "cut" else long_texts,
        }
        for param, value in vector_arguments.items():
            if value is not None:
                raise InvalidInputError.of(
                    "fit",
                    param,
                    f"left out for method {method!r}",
                    "a value",
                    "It rewrites texts; no vector is changed.",
                )
        return _fit_text_level(
            texts,
            concept,
            encoder,
            method=method,
            options=options,
            min_texts=min_texts,
            seed=check_count(seed, owner="fit", param="seed", minimum=0),
            show_progress=show_progress,
        )
    # Check all arguments first: encoding may take hours.
    settings = FitOptions.of(
        "fit",
        method=method,
        utility=utility,
        before=before,
        postprocess=postprocess,
        output=output,
        encoder=encoder,
        concept=concept.name,
        seed=seed,
        show_progress=show_progress,
        candidates=candidates,
        collection_size=collection_size,
        query_noise=query_noise,
        accept_leak=accept_leak,
        method_options=options,
        **scales,
    )
    if stage_options is not None and settings.sealed is not None and isinstance(utility, UtilityTask):
        raise InvalidInputError.of(
            "fit",
            "utility",
            "'sealed-search' with `rewrite`",
            type(utility).__name__,
            "The task holds vectors of texts that are not rewritten.",
        )
    check_count(min_texts, owner="fit", param="min_texts", minimum=MIN_PAIRS)
    if long_texts not in ("cut", "split"):
        raise unknown_name("fit", "long_texts", ["cut", "split"], long_texts)
    if min_token_count is not None:
        check_count(min_token_count, owner="fit", param="min_token_count")
    texts = check_texts(texts, owner="fit")
    settings.check_size(len(texts))
    relabel = _check_relabel(settings.method_options.pop("relabel", None))
    preserve = settings.method_options.pop("preserve", None)
    if preserve is not None:
        preserve = checked_labels(preserve, owner="fit", param="preserve")
        if len(preserve) != len(texts):
            raise InvalidInputError.of(
                "fit", "preserve", f"one label for each of {len(texts)} texts", len(preserve), code="E-INPUT-SHAPE"
            )
    group_of: dict[str, Any] | None = None
    if groups is not None:
        check_same_length("fit", groups=list(groups), texts=texts)
        # A text that stands in two groups joins them, also where its copies differ in composition or spaces.
        joined = joined_groups(np.unique([canonical(text) for text in texts], return_inverse=True)[1], list(groups))
        group_of = dict(zip(texts, joined.tolist(), strict=True))
    labelled = concept.labels is not None or concept.labels_column is not None
    if labelled:
        check_label_method(method, target_advantage)
        if preserve is not None:
            raise InvalidInputError.of("fit", "preserve", "left out for a concept given by labels", "labels")
    # Before the model is loaded, which takes long: a concept that too few texts hold fails here.
    matches = concept.find(texts, min_texts=min_texts, show_progress=show_progress)
    # Load once: the object that encodes is also the one the protector keeps.
    settings = replace(settings, encoder=load_encoder(encoder))
    if (same := concept.for_encoder(settings.encoder)) is not concept:
        concept, matches = same, same.find(texts, min_texts=min_texts, show_progress=show_progress)
    read = settings.encoder.read_lengths
    windows = within_window(concept, matches, read, split=long_texts == "split", min_texts=min_texts, owner="fit")
    findings: dict[str, Any] = {"texts": windows.matches.report()}
    if windows.report:
        findings |= {"long_texts": windows.report, "warnings": [windows.warning]}
        before_split, matches = texts, windows.matches
        texts = matches.texts
        if preserve is not None:
            preserve = tuple(preserve[i] for i in windows.source)
        if group_of is not None or long_texts == "split":
            ids = [before_split[i] if group_of is None else group_of[before_split[i]] for i in windows.source]
            joined = joined_groups(np.unique(texts, return_inverse=True)[1], ids)
            group_of = dict(zip(texts, joined.tolist(), strict=True))
    if labelled:
        vectors, stage = _encoded_labels(texts, matches, settings, stage_options, group_of)
        return _fit_stages(vectors, settings, findings, stage, matches)
    pairs = PairTexts.of(matches, texts, min_token_count=min_token_count, seed=seed)
    vectors, stage = _encoded_pairs(pairs, relabel, settings, findings, stage_options, group_of)
    if preserve is not None:
        # By text, because pairs are sampled.
        class_of = dict(zip(texts, preserve, strict=True))
        rows = len(vectors.positive) + (0 if vectors.background is None else len(vectors.background))
        sources = [*pairs.positive, *pairs.ordinary][:rows]
        settings.method_options["preserve"] = [class_of[text] for text in sources]
    return _fit_stages(vectors, settings, findings, stage, matches)


def fit_pairs(
    positive: Embeddings,
    negative: Embeddings,
    token_labels: TokenLabels | None = None,
    background: Embeddings | None = None,
    *,
    words: WordMarks | None = None,
    method: str = "subspace",
    epsilon: float | None = None,
    noise_to_signal: float | None = None,
    target_utility: float | None = None,
    target_cosine: float | None = None,
    target_advantage: float | None = None,
    sigma: float | None = None,
    delta: float | None = None,
    radius: float | None = None,
    utility: Utility = "similarity",
    candidates: int | None = None,
    collection_size: int | None = None,
    query_noise: bool = True,
    accept_leak: bool = False,
    before: Before | str | None = None,
    postprocess: Postprocess = None,
    output: Output = "full",
    groups: Groups | None = None,
    encoder: Any = None,
    concept_name: str | None = None,
    seed: int = 0,
    show_progress: bool | None = None,
    **options: Any,
) -> Protector:
    """Return a protector fitted on embeddings alone.

    Args:
        positive, negative: (N, n) embeddings with and without the concept; row i of each is one pair.
        token_labels: (N, V) 0/1, the concept terms in the text of each positive row. Without it the concept's
            directions come from the pairs, which hides less.
        background: (K, n) embeddings of ordinary texts, for covariances and the calibration of utility. With
            fewer than 20 rows the negatives replace them.
        words: marks of the words in the texts of the positive and then of the background rows, which
            `vecveil.concepts.mark_words` makes. ``subspace`` then hides words outside the list too, which it judges by
            their likeness to the listed ones; `fit` does so by itself.
        method: a name of `vecveil.protector.METHODS`; ``vecveil methods`` lists them with their scales.
        epsilon: ε of metric DP per unit of the mechanism's norm. With unit-norm embeddings the noise has
            a norm of about n/ε: below ε ≈ n/2 little is left of the vector.
        noise_to_signal: root mean square norm of the noise, before the map, over that of the embeddings.
        target_utility: share of the clean utility to keep with both sides protected; the fit searches the
            largest noise that keeps it on these embeddings.
        target_cosine: mean cosine between clean and noisy vectors, before the map.
        target_advantage: largest advantage of any attacker at distinguishing a text with the concept from the
            same text without it, for 95 % of these pairs; the fit searches the least noise that keeps it.
        sigma: standard deviation per coordinate of ``gaussian``.
        delta: δ of ``ldp-gaussian``, with ``epsilon``.
        radius: norm of every perturbation of ``textcrafter``; the vectors have norm 1.
        utility: the utility of ``target_utility``: ``similarity`` (Pearson correlation of pairwise cosines
            with the clean ones, half random pairs, half near neighbours), ``neighbours`` (recall@10), or a
            `vecveil.metrics.UtilityTask` such as `StsTask`, `RetrievalTask`, `ClassificationTask`.
            ``sealed-search`` is recall@10 of a `vecveil.ProtectedCollection`, which ranks candidates exactly; a
            `RetrievalTask` with ``candidates`` is nDCG@10 there. The lower confidence limit meets the target,
            which is 0.99 where no scale is given.
        candidates: of sealed search: rows that a search fetches and ranks exactly, at least 10.
        collection_size: of sealed search: rows of the collection to come, at least the number of texts. Its further
            rows are modelled like these texts, or like ``background`` where there are fewer than 2,000 positives.
        query_noise: of sealed search: False for queries through the map without noise, as
            ``ProtectedCollection(..., query_noise=False)`` sends them.
        accept_leak: of sealed search with a target: return a protector that leaves an attacker more than three quarters
            of what clean vectors tell over chance. By default it is refused.
        before: ``none``, ``normalise`` or ``clip:RADIUS``, applied before the noise. It bounds the distance
            between two inputs, which turns metric privacy into local privacy.
        postprocess: steps after the noise, free of privacy cost. None takes the method's own (subspace its
            map, covariance the Wiener filter, others nothing). A comma-separated string or a list of:
            ``none`` or ``wiener`` first, in place of the method's own map; then ``normalise``, ``truncate:M``,
            ``float16``, ``int8`` (``int8:RANGE``), ``binary``, or `vecveil.mechanisms.Step`. Without its own
            map the subspace method erases nothing and becomes plain Laplace noise.
        output: ``reduced`` releases the m kept coordinates (N, m) of the subspace method.
        groups: (N,) ids of rows that belong together; None groups near-duplicates by cosine.
        encoder: the encoder of the embeddings, stored by name and fingerprint.
        **options: of the method. subspace: ``rank`` (erased directions), ``kept``, ``flattening``, ``pairs``,
            ``gradients`` (number of directions that a non-linear reader chooses), ``transplants`` (fit on
            transplanted texts too, see `vecveil.sensitivity.moments`), ``preserve`` (classes of a task, one for
            each positive, or for each positive and then each background row, None where unknown: nothing that
            correlates with them is erased, so a classifier of them keeps its accuracy; what the classes tell of
            the concept stays readable). covariance: ``floor``, ``shape``, ``rank``.
            sparse: ``floor``, ``stability_seeds`` and the fields of `MaskOptions`. sparse-whitebox: ``floor``,
            ``steps``, ``epochs``. textcrafter: ``checkpoint`` (folder for resuming training),
            ``further_positive`` (more embeddings with the concept) and the fields of
            `vecveil.textcrafter.PolicySettings` except the radius; textcrafter-subspace also ``rank``. All:
            ``splits`` (1), the number of variates per normal; more makes attacks on the noise's bits harder.

    Raises:
        CalibrationError: the target is out of reach, and the message names the best reachable value; or sealed search
            leaves it next to no protection (``accept_leak``).
    """
    settings = FitOptions.of(
        "fit_pairs",
        method=method,
        epsilon=epsilon,
        noise_to_signal=noise_to_signal,
        target_utility=target_utility,
        target_cosine=target_cosine,
        target_advantage=target_advantage,
        sigma=sigma,
        delta=delta,
        radius=radius,
        utility=utility,
        before=before,
        postprocess=postprocess,
        output=output,
        encoder=encoder,
        concept=concept_name,
        seed=seed,
        show_progress=show_progress,
        candidates=candidates,
        collection_size=collection_size,
        query_noise=query_noise,
        accept_leak=accept_leak,
        method_options=options,
    )
    vectors = FitVectors.of_pairs(positive, negative, token_labels, background, groups, words)
    settings.check_size(len(vectors.positive))
    return _fit_vectors(vectors, settings, {})


def fit_labels(
    X: Embeddings,
    labels: Any,
    background: Embeddings | None = None,
    *,
    method: str = "subspace",
    epsilon: float | None = None,
    noise_to_signal: float | None = None,
    target_utility: float | None = None,
    target_cosine: float | None = None,
    sigma: float | None = None,
    delta: float | None = None,
    utility: Utility = "similarity",
    candidates: int | None = None,
    collection_size: int | None = None,
    query_noise: bool = True,
    accept_leak: bool = False,
    before: Before | str | None = None,
    postprocess: Postprocess = None,
    output: Output = "full",
    groups: Groups | None = None,
    encoder: Any = None,
    concept_name: str | None = None,
    seed: int = 0,
    show_progress: bool | None = None,
    **options: Any,
) -> Protector:
    """Return a protector that hides the label of a text (sentiment, topic, author), fitted on embeddings.

    No text is "without the concept", so there are no pairs: the covariance between labels replaces theirs.
    ``subspace`` erases the directions of the label means, one less than there are classes; other differences between
    labels are left to the kept directions and the noise.

    Args:
        X: (N, n) embeddings.
        labels: N strings or integers, None for a text without a label; or a 0/1 array (N, V), where a text may
            hold several. At least ten texts per label. Texts without a label are ordinary ones; with a single
            label they are the other class.
        background: (K, n) further embeddings of texts without a label.
        method: ``subspace``, ``covariance`` (shape "labels"), ``sparse`` (two classes), ``sparse-whitebox`` or a
            method that learns nothing of the concept; not ``textcrafter``.
        epsilon, noise_to_signal, target_utility, target_cosine, sigma, delta: one scale, see `fit_pairs`. There
            is no ``target_advantage``, which needs pairs.
        utility, candidates, collection_size, query_noise, accept_leak, before, postprocess, output, groups, encoder,
            seed, options: see `fit_pairs`.

    Raises:
        InvalidInputError: the method or an option needs pairs.
        CalibrationError: the target is out of reach; the message names the best reachable value.

    Guarantee:
        The neighbours are two input vectors. The distance between texts of different labels is unknown, so nothing
        bounds how well an attacker infers the label; an audit measures it.
    """
    check_label_method(method, None)
    settings = FitOptions.of(
        "fit_labels",
        method=method,
        epsilon=epsilon,
        noise_to_signal=noise_to_signal,
        target_utility=target_utility,
        target_cosine=target_cosine,
        sigma=sigma,
        delta=delta,
        utility=utility,
        before=before,
        postprocess=postprocess,
        output=output,
        encoder=encoder,
        concept=concept_name,
        seed=seed,
        show_progress=show_progress,
        candidates=candidates,
        collection_size=collection_size,
        query_noise=query_noise,
        accept_leak=accept_leak,
        method_options=options,
    )
    vectors = FitVectors.of_labels(X, labels, background, groups)
    settings.check_size(len(vectors.positive))
    return _fit_vectors(vectors, settings, {})


def _fit_vectors(vectors: FitVectors, options: FitOptions, findings: dict[str, Any]) -> Protector:
    """Return the protector of checked vectors; ``findings`` join its report."""
    started = time.perf_counter()
    vectors, equal = _different_pairs(vectors, options)
    scale, labels, seed = options.scale, vectors.labels, options.seed
    clean = (vectors.positive, vectors.negative, vectors.background)
    positive, negative, background = (
        None if X is None else options.before.apply(X, owner=options.owner) for X in clean
    )
    assert positive is not None
    pairs = None if negative is None else (positive, negative)
    encoder = None if options.encoder is None else load_encoder(options.encoder)
    # Before the search, so that an encoder behind a failing URL costs no fit.
    norms = norm_range(*clean) if options.before.kind == "none" else ()
    encoder_info = EncoderInfo.of(encoder, norms=norms)
    moments = Moments.of(positive, negative, token_labels=labels, background=background, words=vectors.words)
    # Rewriting can make all pairs equal: then the subspace has the labels, and isotropic noise needs neither.
    by_labels = options.method.name == "subspace" and moments.B is not None and moments.B.any()
    if not by_labels and not (vectors.rewritten and not options.method.options):
        _check_concept(moments, pairs is not None, options.owner)
    own = _own_texts(positive, negative if background is None else background, seed)
    task = options.task(own, positive, background)  # clean utility is that of vectors after `before`
    if vectors.originals is not None:
        task = _task_on_originals(vectors, options)
    data = FitData(
        positive,
        negative,
        labels,
        background,
        vectors.groups,
        moments,
        task,
        _search_scale(scale, moments, pairs),
        seed,
        options.show_progress,
        options.before,
        words=vectors.words,
    )
    candidate = _candidate(data, options)
    # Sealed search has to meet its target by a lower limit: other draws than those by which the setting was chosen, and
    # the least noise of several, since the rows' noise is one draw for all queries. Other tasks meet it on average.
    sealed = options.sealed is not None
    seeds = range(seed + 1, seed + 1 + DRAWS) if sealed else (seed,)
    noise = min(
        calibrate(
            candidate,
            scale,
            moments.rms_norm,
            task,
            pairs,
            own,
            seed=each,
            method=options.method.name,
            draws=1 if sealed else DRAWS,
        )
        for each in seeds
    )
    mechanism = _mechanism(candidate, scale, noise, moments.rms_norm, options.splits)
    _check_precision(mechanism, candidate, scale, noise, moments.rms_norm, own)
    linear = candidate.map_of(noise)
    protector = Protector(
        method=options.method.name,
        mechanism=mechanism,
        # The map's grid has to cover the mechanism's rounding.
        map=None if linear is None else linear.coarser_than(mechanism.step),
        output=options.output,
        encoder_info=encoder_info,
        concept=options.concept,
        encoder=encoder,
        before=options.before,
        after=options.after,
    )
    protector = _with_ranges(protector, own, seed)
    method_warnings = [*findings.pop("warnings", []), *data.findings.pop("warnings", [])]
    if equal:
        whole = equal + len(positive)
        method_warnings.insert(0, f"{equal} of {whole} pairs were left out: their two vectors are equal.")
    # A text stage removes words before any vector is made: its own figures say what that leaves.
    if options.sealed is not None and scale.target_utility is not None and vectors.originals is None:
        method_warnings[:0] = _little_protection(protector, data, options, noise)
    scales = mechanism.parameters()
    utility = _utility_record(protector, task, own, seed)
    report: dict[str, Any] = {
        "pairs": 0 if pairs is None else len(positive),
        **({"equal_pairs": equal} if equal else {}),
        **({"labelled": len(positive)} if pairs is None else {}),
        "background": 0 if background is None else len(background),
        "labels": 0 if labels is None else int(labels.shape[1]),
        "asked": scale.to_record(),
        "utility_task": task.key,
        "epsilon": scales.get("epsilon"),
        **{key: scales[key] for key in ("sigma", "delta", "radius") if key in scales},
        "noise_to_signal": _noise_ratio(mechanism, moments.rms_norm),
        "before": options.before.kind,
        "postprocess": ", ".join([options.map, *(step.label for step in protector.after)]),
        "parameters": candidate.parameters,
        **data.findings,
        "utility": utility,
        **_sealed_record(utility, protector.dimension),
        "concept_distance": None if pairs is None else _concept_distance(protector, *pairs),
        "warnings": [*method_warnings, *_word_warnings(vectors.words), *_epsilon_warnings(protector, moments.rms_norm)],
        "seed": seed,
        "seconds": time.perf_counter() - started,
        **findings,
    }
    # Updated in place: the steps above cache nothing that reads the report.
    protector.report.update(report)
    return protector


def _fit_stages(
    vectors: FitVectors, options: FitOptions, findings: dict[str, Any], stage: TextStage | None, matches: ConceptMatches
) -> Protector:
    """Return the protector of the vectors, with the text stage that rewrote their texts."""
    protector = _fit_vectors(vectors, options, findings)
    if stage is None:
        return protector
    rewriting = stage.report(matches)
    texts = [matches.texts[i] for i in matches.with_concept]
    rewriting["utility"] = stage.cost(texts, options.encoder, protector, options.seed)
    protector.report["rewriting"] = rewriting
    return replace(protector, rewriter=stage.rewriter)


# -- the steps of a fit, in their order


def _encoded_labels(
    texts: Texts,
    matches: ConceptMatches,
    options: FitOptions,
    stage_options: StageOptions | None,
    group_of: Mapping[str, Any] | None,
) -> tuple[FitVectors, TextStage | None]:
    """Return the vectors of at most 40,000 texts and their labels, for a concept given by labels."""
    assert matches.labels is not None
    rows = sample(len(texts), LABELLED_TEXTS, np.random.default_rng(options.seed))
    chosen = [texts[int(i)] for i in rows]
    X, stage = _encoded(chosen, options, stage_options)
    groups = None
    if group_of is not None:
        groups = joined_groups(near_duplicate_groups(X), [group_of[text] for text in chosen])
    return FitVectors.of_labels(X, [matches.labels[i] for i in rows], None, groups), stage


def _encoded(
    texts: list[str], options: FitOptions, stage_options: StageOptions | None, *, detected: int | None = None
) -> tuple[Embeddings, TextStage | None]:
    """Return the vectors of ``texts``, rewritten first by a text stage that is made from the first ``detected``."""
    if stage_options is None:
        return options.encoder.encode(texts, show_progress=options.show_progress), None
    stage = TextStage.of(stage_options, texts[:detected], options.seed, options.show_progress)
    return stage.encode(texts, options.encoder, options.show_progress), stage


def _encoded_pairs(
    pairs: PairTexts,
    relabel: Any,
    options: FitOptions,
    findings: dict[str, Any],
    stage_options: StageOptions | None,
    group_of: Mapping[str, Any] | None,
) -> tuple[FitVectors, TextStage | None]:
    """Return the vectors of the pairs and of the ordinary texts, those with PII apart if ``relabel`` asks for it."""
    # One call for all texts, so that the encoder batches them by length.
    texts = pairs.positive + pairs.ordinary + pairs.negative
    everything, stage = _encoded(texts, options, stage_options, detected=len(texts) - len(pairs.negative))
    count = len(pairs.positive)
    positive, background, negative = np.split(everything, [count, len(texts) - count])
    if relabel is not None:
        # Texts in which the detector finds PII move to the PII side (TextCrafter, Eq. 6, 7).
        detector = None if isinstance(relabel, str) else relabel
        pii = contains_pii(pairs.ordinary, detector, show_progress=options.show_progress)
        options.method_options["further_positive"] = background[pii]
        background = background[~pii]
        name = relabel if isinstance(relabel, str) else type(relabel).__name__
        findings["relabelled"] = {"by": name, "texts": len(pii), "moved": int(pii.sum())}
    words = None
    if options.method.name == "subspace":
        words = pairs.words(partial(options.encoder.encode, show_progress=options.show_progress))
    vectors = FitVectors.of_pairs(
        positive,
        negative,
        pairs.labels if pairs.labels.shape[1] else None,
        background if len(background) else None,
        pairs.groups(positive, group_of),
        words,
    )
    if stage is not None:
        vectors = replace(vectors, rewritten=True)
    if stage is None or options.sealed is None:
        return vectors, stage
    clean = options.encoder.encode(texts, show_progress=options.show_progress)
    positive, background, negative = np.split(clean, [count, len(texts) - count])
    ordinary = None if vectors.background is None else background
    return replace(vectors, originals=FitVectors(positive, negative, None, ordinary, None)), stage


def _different_pairs(vectors: FitVectors, options: FitOptions) -> tuple[FitVectors, int]:
    """Return the vectors without the pairs of equal ones, which show nothing of the concept, and their number.

    An encoder gives equal vectors where it does not read or does not know the words that were removed.
    """
    X, other = vectors.positive, vectors.negative
    if other is None or vectors.rewritten:
        return vectors, 0
    kept = np.flatnonzero(~equal_vectors(X, other))
    equal = len(X) - len(kept)
    if not equal:
        return vectors, 0
    if len(kept) < MIN_PAIRS:
        raise InvalidInputError(
            f"{options.owner}: {equal} of {len(X)} pairs have equal vectors with and without the concept; at least "
            f"{MIN_PAIRS} must differ. The encoder does not read the concept's words, or does not know them. {SPLIT}",
            code="E-INPUT-EQUAL-PAIRS",
            param="negative",
        )
    behind = 0 if vectors.background is None else len(vectors.background)
    rows = np.concatenate([kept, np.arange(len(X), len(X) + behind)])
    labels = None if vectors.labels is None else vectors.labels[kept]
    words = vectors.words
    if labels is not None:
        columns = varied(labels)
        if words is not None:
            words = replace(words, labels=words.labels[columns])
        labels = np.ascontiguousarray(labels[:, columns]) if columns.sum() > 1 else None
    if (preserve := options.method_options.get("preserve")) is not None and len(preserve) in (len(X), len(X) + behind):
        options.method_options["preserve"] = [preserve[i] for i in rows if i < len(preserve)]
    return replace(
        vectors,
        positive=X[kept],
        negative=other[kept],
        labels=labels,
        groups=None if vectors.groups is None else vectors.groups[kept],
        words=None if words is None else words.of(rows),
    ), equal


def _task_on_originals(vectors: FitVectors, options: FitOptions) -> UtilityTask:
    """Return the task of sealed search, which ranks by vectors of the original texts."""
    X = vectors.originals
    assert X is not None
    assert X.negative is not None
    own = _own_texts(X.positive, X.negative if X.background is None else X.background, options.seed)
    clean, rewritten = (
        np.concatenate([each for each in (v.positive, v.negative, v.background) if each is not None])
        for v in (X, vectors)
    )
    return OriginalsTask(options.task(own, X.positive, X.background), clean, rewritten)


def _check_relabel(value: Any) -> Any:
    """Return ``"presidio"``, the caller's detector, or None for no relabelling."""
    if value is None or value is False:
        return None
    if value is True or value == "presidio":
        return "presidio"
    if not callable(getattr(value, "detect", None)):
        got = repr(value)[:40] if isinstance(value, str) else type(value).__name__
        constraint = "'presidio' or an object with `detect(texts)`"
        raise InvalidInputError.of("fit", "relabel", constraint, got)
    return value


def _check_concept(moments: Moments, pairs: bool, owner: str) -> None:
    if pairs and not moments.C.any():
        raise InvalidInputError.of(
            owner, "negative", "different from `positive`", "the same rows", "The concept changes no vector."
        )
    if not pairs and (moments.B is None or not moments.B.any()):
        raise InvalidInputError.of(
            owner, "labels", "of texts whose vectors differ", "equal vectors", "The labels do not change the vectors."
        )


def _own_texts(positive: Embeddings, ordinary: Embeddings | None, seed: int) -> Embeddings:
    """Return a sample of the user's rows, with and without the concept in the given proportion."""
    both = positive if ordinary is None else np.concatenate([positive, ordinary])
    order = np.random.default_rng(seed).permutation(len(both))
    return np.ascontiguousarray(both[order[:UTILITY_ROWS]])


def _search_scale(scale: NoiseScale, moments: Moments, pairs: tuple[Embeddings, Embeddings] | None) -> NoiseScale:
    """Return the scale of the parameter search: for a target advantage, isotropic noise that meets it."""
    if scale.target_advantage is None:
        return scale
    assert pairs is not None  # fit_labels takes no target advantage
    plain = Candidate(NoiseShape.isotropic(len(moments.K)))
    noise = noise_of_advantage(plain, scale.target_advantage, moments.rms_norm, pairs)
    return NoiseScale(noise_to_signal=noise)


def _candidate(data: FitData, options: FitOptions) -> Candidate:
    """Return the noise shape and map of the method, with the steps around them."""
    method, method_options = options.method, dict(options.method_options)
    if method.without_map is not None and options.map != "own map":
        # Without its map a subspace method erases nothing: fit the plain method in its place.
        method = METHODS[method.without_map]
        method_options = {k: v for k, v in method_options.items() if k in method.options}
    candidate = replace(
        method.build(data, method_options),
        family=method.family(data.scale.delta),
        before=options.before,
        after=options.after,
    )
    if options.map == "wiener":
        candidate = with_wiener(candidate, data.moments)
    # Only the fitted map tells the dimension that a projection gets.
    linear = candidate.map_of(1.0)
    reduced = linear is not None and options.output == "reduced"
    dimension = linear.rank if linear is not None and reduced else data.dimension
    for step in options.after:
        if step.matrix is not None and step.matrix.shape[1] != dimension:
            constraint = f"with a projection of shape (m, {dimension})"
            raise InvalidInputError.of("fit", "postprocess", constraint, f"shape {step.matrix.shape}")
        dimension = step.output_dimension(dimension)
    return candidate


def _mechanism(candidate: Candidate, scale: NoiseScale, noise: float, rms_norm: float, splits: int) -> Mechanism:
    if candidate.mechanism is not None:
        return candidate.mechanism
    family, shape = candidate.family, candidate.shape
    if family.of_epsilon is not None:
        assert scale.epsilon is not None
        return family.of_epsilon(shape.dimension, scale.epsilon, splits)
    return family.mechanism(shape, noise, rms_norm, splits)


def _check_precision(
    mechanism: Mechanism, candidate: Candidate, scale: NoiseScale, noise: float, rms_norm: float, own: Embeddings
) -> None:
    """Raise InvalidInputError, with the least scale that holds, where the dtype of the rows loses the noise.

    A shuffle, a rewriting and TextCrafter have no law of noise, so nothing is checked.
    """
    if not mechanism.least_deviation:
        return
    # In float64, which holds every noise that a fit accepts, and with a fixed seed: only the magnitude counts.
    released = mechanism.protect(own.astype(np.float64), rng=0)
    needed = ROUNDING_MARGIN * float(np.spacing(np.abs(released).max().astype(own.dtype)))
    short = np.log(needed / mechanism.least_deviation)
    if short <= 0:
        return
    from scipy.optimize import brentq  # slow to import, and needed for a refusal alone

    name, sign = scale.name or "", -1 if scale.name == "epsilon" else 1
    value = getattr(scale, name)

    def lacking(by: float) -> float:
        other = replace(scale, **{name: value * np.exp(sign * by)})
        ratio = other.noise(rms_norm, mechanism.dimension, candidate.family)
        assert ratio is not None
        made = _mechanism(candidate, other, ratio, rms_norm, 1)
        return float(np.log(needed / made.least_deviation))

    if name.startswith("target"):
        bound = f"a scale whose noise_to_signal is at least {noise * np.exp(short) * 1.01:.3g}"
    else:
        # The deviation grows in proportion to the scale, for (ε, δ) at least as its root; 1 % covers three digits.
        by = float(brentq(lacking, 0, 2 * short + 1))
        bound = f"at {'least' if sign > 0 else 'most'} {value * np.exp(sign * (by + 0.01)):.3g}"
    why = f"Below that {own.dtype} rounds the noise away, and the release is the vector."
    raise out_of_range("fit", name, f"{bound} for these vectors", value, why, "Use more noise.")


def _with_ranges(protector: Protector, own: Embeddings, seed: int) -> Protector:
    """Return the protector with the range of its releases in int8 steps that have none."""
    if not any(step.value == OPEN_RANGE for step in protector.after):
        return protector
    steps: list[Step] = []
    for step in protector.after:
        if step.value == OPEN_RANGE:
            # The range depends on the steps before this one, so they are applied first.
            released = replace(protector, after=tuple(steps)).protect(own[:2000], seed)
            # A quantile: one outlier would coarsen the grid for all.
            step = Step("int8", float(np.quantile(np.abs(released), 0.9999)) or 1.0)
        steps.append(step)
    return replace(protector, after=tuple(steps))


# -- the report


def _utility_record(protector: Protector, task: UtilityTask, own: Embeddings, seed: int) -> dict[str, Any]:
    """Measure the chosen task and the two label-free ones on fresh draws."""
    tasks: dict[str, UtilityTask] = {
        "similarity": SimilarityTask.of(own, seed=seed + 1),
        "neighbours": NeighbourTask(own[:2000], queries=300, seed=seed),
        task.key: task,
    }
    # Other draws than the calibration had, whose utility meets the target by construction.
    rng = np.random.default_rng(seed + 1)

    def release(X: Embeddings, generator: np.random.Generator | None) -> Embeddings:
        return protector.protect(X, generator, noise=generator is not None)

    return {key: each.to_record(release, rng) for key, each in tasks.items()}


def _sealed_record(utility: dict[str, Any], dimension: int) -> dict[str, Any]:
    """Return the outlook of sealed search with the bytes that a query fetches, or nothing for another utility."""
    outlook = utility.get(SealedSearchTask.key, {}).pop("outlook", None)
    if outlook is None:
        return {}
    # A float16 vector, a text of up to 220 bytes padded to 256, and 43 bytes of the format, in base64.
    blob = 4 * -(-(2 * dimension + 256 + 43) // 3)
    return {"sealed_search": {**outlook, "bytes_per_query": blob * outlook["candidates"]}}


def _little_protection(protector: Protector, data: FitData, options: FitOptions, noise: float) -> list[str]:
    """Return a warning if an attacker recovers nearly what it recovers from clean vectors, and record its figures.

    Raises:
        CalibrationError: the same, without ``accept_leak``.
    """
    # The search's own figure is of texts that the maps were not fitted on; other methods have none.
    found = data.findings.get("reader", {}).get("listed") or leak_of_releases(
        data, lambda X, rng: protector.protect(X, rng)
    )
    if found is None or found["value"] - found["chance"] <= NEXT_TO_NOTHING * (found["clean"] - found["chance"]):
        return []
    data.findings["accepted_leak"] = {key: found[key] for key in ("value", "chance", "clean")}
    assert options.sealed is not None
    target, candidates, size = options.scale.target_utility, *list(options.sealed.values())[:2]
    words = (
        f"This protects next to nothing: an attacker recovers {found['value']:.1%} from the protected vectors and "
        f"{found['clean']:.1%} from clean ones (chance {found['chance']:.1%}). To keep {target:.0%} of search with "
        f"{candidates:,} candidates in {size:,} rows, the noise is {noise:.3g} of the signal."
    )
    if options.accept_leak:
        return [words]
    raise CalibrationError(
        f"{words} Use a sealed index (vecveil.SealedIndex), take more candidates or a lower target_utility "
        "(--target-utility), or pass accept_leak=True (--accept-leak).",
        code="E-CALIBRATION-LEAK",
        param="accept_leak",
    )


def _concept_distance(protector: Protector, positive: Embeddings, negative: Embeddings) -> dict[str, Any]:
    """Return the distances between "with" and "without" in the mechanism's metric, and the resulting advantage.

    With a non-invertible map the total variation at the quotient distance is an upper bound.
    """
    down = None if protector.map is None else protector.map.down
    differences = np.asarray(positive, dtype=np.float64) - np.asarray(negative, dtype=np.float64)
    level = concept_level(
        protector.mechanism.distances(positive, negative, down=down),
        advantage=protector.mechanism.advantage,
        exact=protector.map is None or protector.map.rank == protector.dimension,
    )
    # Not protector.guarantee: it is cached and reads the report, which is incomplete here.
    formal = protector.mechanism.guarantee().kind == "formal"
    return {
        **level.to_record(),
        "clean_median": float(np.median(np.linalg.norm(differences, axis=1))),
        "statement": str(level) if formal else UNBOUNDED,
    }


def _noise_ratio(mechanism: Mechanism, rms_norm: float) -> float:
    """Return the root mean square norm of the perturbation over that of the vectors."""
    if isinstance(mechanism, Purkayastha):
        cosine = angle_moments(mechanism.dimension, mechanism.epsilon)[0]
        # On the unit sphere ‖y − x‖² = 2 − 2 cos θ.
        return float(np.sqrt(2 - 2 * cosine))
    if isinstance(mechanism, TextCrafter):
        return mechanism.radius / rms_norm
    return float(np.sqrt(np.trace(mechanism.noise_covariance()))) / rms_norm


def _word_warnings(words: WordMarks | None) -> list[str]:
    if words is None or words.listed.any():
        return []
    return [
        f"No word of the concept stands in {LISTED_TEXTS} texts, so the fit marks no words: it hides the concept by "
        "its pairs alone. Give more texts, or shorter terms."
    ]


def _epsilon_warnings(protector: Protector, rms_norm: float) -> list[str]:
    """Return sentences on an ε that bounds little, each with the figure that shows it."""
    mechanism = protector.mechanism
    if isinstance(mechanism, Laplace) and abs(rms_norm - 1) < 0.05:
        return list(epsilon_meaning(protector.dimension, mechanism.epsilon))
    on_sphere = isinstance(mechanism, Purkayastha)  # its distance is an angle
    if isinstance(mechanism, LdpGaussian | Purkayastha):
        worst: float | None = mechanism.epsilon
    else:
        worst = mechanism.guarantee().epsilon_euclidean_worst
    if worst is None or worst <= WEAK_EPSILON:
        return []
    if isinstance(mechanism, LdpGaussian):
        return [f"A factor of e^{worst:.3g} between any two inputs is no protection by itself."]
    # Distance of the example: 0.1 radian, or 0.1 of the norm in the direction of least noise.
    apart = 0.1 if on_sphere else 0.1 * rms_norm
    epsilon = float(mechanism.parameters()["epsilon"])
    inside = apart if on_sphere else apart * worst / epsilon
    advantage = float(mechanism.advantage(np.array([inside]))[0])
    where = "radian" if on_sphere else "in the least protected direction"
    return [
        f"At a distance of {apart:.3g} {where} the bound allows a factor of e^{inside * epsilon:.3g}, which excludes "
        f"little; exactly, the largest advantage of any attacker there is {advantage:.3g}."
    ]


# -- text-level methods


def _fit_text_level(
    texts: Texts,
    concept: Concept,
    encoder: Any,
    *,
    method: str,
    options: dict[str, Any],
    min_texts: int,
    seed: int,
    show_progress: bool | None,
) -> Protector:
    started = time.perf_counter()
    chosen = TEXT_METHODS[method]
    check_option_names(method, chosen.options, options)
    concept.require_spans("fit")
    matches = concept.find(texts, min_texts=min_texts, show_progress=show_progress)
    loaded = load_encoder(encoder)
    if (same := concept.for_encoder(loaded)) is not concept:
        concept, matches = same, same.find(texts, min_texts=min_texts, show_progress=show_progress)
    rewriter = chosen.build(matches, concept, seed, options)
    rng = np.random.default_rng(seed)
    rows = [int(i) for i in np.sort(rng.permutation(len(texts))[:SAMPLE])]
    clean = loaded.encode([texts[i] for i in rows], show_progress=show_progress)
    spans = [matches.spans[i] for i in rows]
    written = rewriter.rewrite([texts[i] for i in rows], spans=spans)
    released = loaded.encode(written, show_progress=show_progress)
    few = len(rows) < MIN_PAIRS
    utility = {} if few else utility_of_rows(clean, released, rng, seed=seed)
    report: dict[str, Any] = {
        "texts": matches.report(),
        "asked": {},
        "utility_task": "similarity",
        "epsilon": None,
        "noise_to_signal": None,
        "before": "none",
        "postprocess": "none",
        "parameters": rewriter.counts(),
        "utility": utility,
        "concept_distance": None,
        "warnings": [],
        "seed": seed,
        "seconds": time.perf_counter() - started,
    }
    return Protector(
        method=method,
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
    if isinstance(protector.mechanism, TextCrafter):
        return "Its policy is learnt from whole texts, not from a list of words, and takes minutes to train."
    if protector.text_only:
        return "It rewrites texts: there is nothing to fit on vectors."
    if not METHODS[protector.method].options:
        return f"Method {protector.method!r} does the same whatever the words are."
    if "preserved" in protector.report:
        return "The labels of the task that the fit preserved are not kept."
    parameters = protector.report.get("parameters")
    if not parameters or parameters.get("shape") == "given":
        return "The settings that the protector was fitted with are not known."
    return None


def refit(
    protector: Protector,
    positive: Embeddings,
    negative: Embeddings,
    token_labels: TokenLabels,
    background: Embeddings | None,
    *,
    groups: Groups | None = None,
    words: WordMarks | None = None,
) -> Protector:
    """Return a protector with the method, settings and noise of ``protector``, fitted on other data.

    An audit of unlisted terms fits again without them. The other arguments are those of `fit_pairs`.

    Raises:
        InvalidInputError: `refit_refusal` gives a reason.
    """
    reason = refit_refusal(protector)
    if reason is not None:
        raise InvalidInputError.of("refit", "protector", "one that can be fitted again", "another", reason)
    names = METHODS[protector.method].options
    options: dict[str, Any] = {
        # JSON turned tuples of a loaded report into lists.
        key: tuple(value) if isinstance(value, list) else value
        for key, value in protector.report["parameters"].items()
        if key in names
    }
    if protector.method == "subspace":
        n = protector.dimension
        # The report of the fit holds the setting before the map cut kept to n − rank.
        options["kept"] = min(int(options["kept"]), n - int(options["rank"]))
    first = str(protector.report.get("postprocess", "")).split(", ")[0]
    # The report names the map first; steps come from the protector itself, with their values.
    maps = [first] if first in ("none", "wiener") else []
    settings = FitOptions.of(
        "refit",
        method=protector.method,
        epsilon=protector.mechanism.parameters()["epsilon"],
        noise_to_signal=None,
        target_utility=None,
        target_cosine=None,
        target_advantage=None,
        sigma=None,
        delta=None,
        radius=None,
        utility="similarity",
        before=protector.before,
        postprocess=[*maps, *protector.after] or None,
        output=protector.output,
        encoder=None,
        concept=None,
        seed=int(protector.report.get("seed", 0)),
        show_progress=False,
        candidates=None,
        collection_size=None,
        query_noise=True,
        accept_leak=False,
        method_options=options,
    )
    vectors = FitVectors.of_pairs(positive, negative, token_labels, background, groups, words)
    return _fit_vectors(replace(vectors, rewritten=protector.rewriter is not None), settings, {})
