"""Fits a protector: from texts and a concept, or from embeddings alone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from vecveil.accounting import laplace_total_variation
from vecveil.checks import check_count, check_embeddings, check_texts
from vecveil.errors import IncompatibleError, InvalidInputError, message
from vecveil.mechanisms import Laplace, Mahalanobis, Mechanism
from vecveil.metrics.tasks import NeighbourTask, SimilarityTask, UtilityTask
from vecveil.protector.candidate import Candidate, CommonDraws
from vecveil.protector.methods import METHODS, FitData, Method, method_named, with_wiener
from vecveil.protector.protector import EncoderInfo, Output, Protector, encoder_fingerprint
from vecveil.protector.scale import (
    SMALLEST_NOISE,
    Scale,
    epsilon_of_noise,
    largest_noise,
    refuse_target,
)
from vecveil.sensitivity.moments import Moments
from vecveil.types import Embeddings, Groups, Texts, TokenLabels

if TYPE_CHECKING:
    from vecveil.concepts import Concept

__all__ = ["fit", "fit_pairs"]

MIN_PAIRS = 20
UTILITY_ROWS = 10_000
MAX_PAIRS = 20_000
MAX_BACKGROUND = 20_000

UtilityChoice = Literal["similarity", "neighbours"]


def fit(
    texts: Texts,
    concept: Concept,
    encoder: Any = "minilm",
    *,
    method: str = "subspace",
    epsilon: float | None = None,
    noise_to_signal: float | None = None,
    target_utility: float | None = None,
    utility: UtilityChoice | UtilityTask = "similarity",
    postprocess: str | None = None,
    output: Output = "full",
    min_texts: int = MIN_PAIRS,
    min_token_count: int = 10,
    seed: int = 0,
    show_progress: bool | None = None,
    **options: Any,
) -> Protector:
    """Return a protector that hides ``concept`` in the embeddings of texts like ``texts``.

    The concept's spans are removed from the texts that hold them, which gives the pairs D+ and D-; the
    texts without the concept are the ordinary ones. At most 20,000 of each, drawn at random, are used.

    Args:
        texts: the user's own texts, with and without the concept.
        concept: what to hide.
        encoder: a name for `vecveil.load_encoder`, or any object with ``encode(texts) -> (N, n)``.
        method: ``subspace`` (the default), ``covariance``, ``sparse`` or ``laplace``.
        epsilon, noise_to_signal, target_utility: exactly one; see `fit_pairs`.
        utility: see `fit_pairs`.
        min_texts: fewest texts that must hold the concept.
        min_token_count: a concept word is a label of its own if so many texts hold it.

    Raises:
        ConceptError: the concept matches nothing, too few texts, or leaves nothing of them.
        CalibrationError: the target cannot be reached; says what can.

    Cost:
        Encoding each text once, and each text with the concept a second time without it; then seconds.
    """
    Scale(epsilon, noise_to_signal, target_utility)  # refuse before hours of encoding
    chosen = method_named(method)
    _check_options(chosen, options)
    texts = check_texts(texts, owner="fit")
    from vecveil.encoders import load_encoder

    loaded = load_encoder(encoder)
    matches = concept.find(texts, min_texts=min_texts, show_progress=show_progress)
    rng = np.random.default_rng(seed)
    negatives = matches.negatives()
    labels, vocabulary = matches.token_labels(min_count=min_token_count)
    pairs = _sample(len(matches.with_concept), MAX_PAIRS, rng)
    ordinary = _sample(len(matches.without_concept), MAX_BACKGROUND, rng)
    with_texts = [texts[matches.with_concept[i]] for i in pairs]
    without_texts = [negatives[i] for i in pairs]
    ordinary_texts = [texts[matches.without_concept[i]] for i in ordinary]
    everything = loaded.encode(with_texts + without_texts + ordinary_texts, show_progress=show_progress)
    positive, negative, background = np.split(everything, [len(pairs), 2 * len(pairs)])
    protector = fit_pairs(
        positive,
        negative,
        token_labels=labels[pairs] if len(vocabulary) else None,
        background=background if len(background) >= MIN_PAIRS else None,
        method=method,
        epsilon=epsilon,
        noise_to_signal=noise_to_signal,
        target_utility=target_utility,
        utility=utility,
        postprocess=postprocess,
        output=output,
        encoder=loaded,
        concept_name=concept.name,
        seed=seed,
        show_progress=show_progress,
        **options,
    )
    protector.report["texts"] = matches.report()
    return protector


def fit_pairs(
    positive: Embeddings,
    negative: Embeddings,
    token_labels: TokenLabels | None = None,
    background: Embeddings | None = None,
    *,
    method: str = "subspace",
    epsilon: float | None = None,
    noise_to_signal: float | None = None,
    target_utility: float | None = None,
    utility: UtilityChoice | UtilityTask = "similarity",
    postprocess: str | None = None,
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
        token_labels: (N, V) 0/1, which concept terms the text of each positive row holds (optional;
            without it the concept's directions come from the pairs, which hides less).
        background: (K, n) embeddings of ordinary texts, for covariances and for calibrating utility
            (optional, better when given; otherwise the negatives stand in).
        method: ``subspace``, ``covariance``, ``sparse`` or ``laplace``.
        epsilon: ε of metric DP per unit of the mechanism's norm. With unit-norm embeddings the noise has
            a norm of about n/ε: below ε ≈ n/2 little is left of the vector.
        noise_to_signal: root mean square norm of the noise, before the map, over that of the embeddings.
        target_utility: share of the clean utility to keep with both sides protected; the largest noise
            that keeps it is found on these embeddings.
        utility: what ``target_utility`` means: ``similarity`` (Pearson correlation of pairwise cosines
            with the clean ones, half random pairs, half near neighbours), ``neighbours`` (recall@10), or a
            `vecveil.metrics.UtilityTask` such as `StsTask`, `RetrievalTask`, `ClassificationTask`.
        postprocess: None takes the method's own (subspace its map, covariance the Wiener filter, the
            others nothing); ``none`` and ``wiener`` can be asked for. Free of privacy cost. Without its
            own map the subspace method erases nothing: what is left is plain Laplace noise.
        output: ``reduced`` releases the m kept coordinates (N, m) of the subspace method.
        groups: (N,) ids of rows that belong together; None groups near-duplicates by their cosine.
        encoder: the encoder object of the embeddings, remembered by name and fingerprint.
        **options: of the method: subspace ``rank`` (erased directions), ``kept``, ``flattening``,
            ``pairs``; covariance ``floor``; sparse ``floor``, ``stability_seeds`` and the fields of
            `MaskOptions`.

    Raises:
        InvalidInputError, IncompatibleError: arrays that do not fit together; unknown options.
        CalibrationError: the target cannot be reached; says what can.
    """
    started = time.perf_counter()
    owner = "fit_pairs"
    scale = Scale(epsilon, noise_to_signal, target_utility)
    chosen = method_named(method)
    _check_options(chosen, options)
    seed = check_count(seed, owner=owner, param="seed", minimum=0)
    positive = check_embeddings(positive, owner=owner, param="positive", min_rows=MIN_PAIRS)
    n = positive.shape[1]
    negative = _same_space(negative, "negative", n)
    if len(negative) != len(positive):
        raise InvalidInputError(
            message(owner, "negative", f"of {len(positive)} rows, one for each positive", f"{len(negative)} rows")
        )
    if background is not None:
        background = _same_space(background, "background", n)
    labels = None if token_labels is None else _check_labels(token_labels, len(positive))
    if output not in ("full", "reduced"):
        raise InvalidInputError(message(owner, "output", "'full' or 'reduced'", repr(output)[:40]))
    moments = Moments.of(positive, negative, token_labels=labels, background=background)
    if not moments.C.any():
        raise InvalidInputError(
            message(owner, "negative", "different from `positive`", "the same rows", "There is nothing to hide.")
        )
    ordinary = background if background is not None and len(background) >= MIN_PAIRS else negative
    own = _own_texts(positive, ordinary, np.random.default_rng(seed))
    task = _task(utility, own, seed)
    data = FitData(positive, negative, labels, background, groups, moments, task, scale, seed, show_progress)
    wanted = chosen.postprocess if postprocess is None else postprocess
    if wanted not in ("own map", "none", "wiener"):
        raise InvalidInputError(message(owner, "postprocess", "None, 'none' or 'wiener'", repr(wanted)[:40]))
    if output == "reduced" and wanted != "own map":
        raise InvalidInputError(
            message(owner, "output", "'full'", "'reduced'", "Only the subspace method's own map drops dimensions.")
        )
    if chosen.postprocess == "own map" and wanted != "own map":
        # Without its map the subspace method erases nothing and is plain Laplace noise.
        candidate = METHODS["laplace"].build(data, {})
    else:
        candidate = chosen.build(data, dict(options))
    if wanted == "wiener":
        candidate = with_wiener(candidate, moments)
    noise = _noise(candidate, scale, moments, task, seed, method)
    protector = Protector(
        method=method,
        mechanism=_mechanism(candidate, epsilon_of_noise(noise, moments.rms_norm, n)),
        map=candidate.map_of(noise),
        output=output,
        encoder_info=_encoder_info(encoder),
        concept=concept_name,
        encoder=encoder,
    )
    protector.report.update(
        {
            "pairs": len(positive),
            "background": 0 if background is None else len(background),
            "labels": 0 if labels is None else int(labels.shape[1]),
            "asked": scale.to_record(),
            "utility_task": task.key,
            "epsilon": epsilon_of_noise(noise, moments.rms_norm, n),
            "noise_to_signal": noise,
            "postprocess": wanted,
            "parameters": candidate.parameters,
            **data.findings,
            "utility": _utility_record(protector, task, own, seed),
            "concept_distance": _concept_distance(protector, positive, negative),
            "seed": seed,
            "seconds": time.perf_counter() - started,
        }
    )
    return protector


def _noise(
    candidate: Candidate, scale: Scale, moments: Moments, task: UtilityTask, seed: int, method: str
) -> float:
    fixed = scale.noise(moments.rms_norm, moments.K.shape[0])
    if fixed is not None:
        return fixed
    assert scale.target_utility is not None
    draws = CommonDraws(candidate, moments.rms_norm, seed, reduced=not task.same_space)
    rng = np.random.default_rng(seed)

    def utility(noise: float) -> float:
        return task.relative(draws.at(noise), rng)

    noise = largest_noise(utility, scale.target_utility)
    if noise is None:
        raise refuse_target(scale.target_utility, utility(SMALLEST_NOISE), f"Method {method!r}")
    return noise


def _mechanism(candidate: Candidate, epsilon: float) -> Mechanism:
    if candidate.shape.is_isotropic:
        return Laplace(candidate.shape.dimension, epsilon)
    return Mahalanobis(candidate.shape, epsilon)


def _utility_record(protector: Protector, task: UtilityTask, own: Embeddings, seed: int) -> dict[str, Any]:
    """Measure the asked-for task and the two label-free ones on fresh draws."""
    tasks: dict[str, UtilityTask] = {
        "similarity": SimilarityTask.of(own, seed=seed + 1),
        "neighbours": NeighbourTask(own[:2000], queries=300, seed=seed),
        task.key: task,
    }
    rng = np.random.default_rng(seed + 1)

    def release(X: Embeddings, generator: np.random.Generator | None) -> Embeddings:
        return protector.protect(X, generator, noise=generator is not None)

    return {key: one.to_record(release, rng) for key, one in tasks.items()}


def _concept_distance(protector: Protector, positive: Embeddings, negative: Embeddings) -> dict[str, Any]:
    """Return how far apart "with" and "without" are after the map, and the advantage that follows.

    With a non-invertible map the total variation at the quotient distance is an upper bound.
    """
    differences = np.asarray(positive, dtype=np.float64) - np.asarray(negative, dtype=np.float64)
    mechanism = protector.mechanism
    sigma = mechanism.noise_covariance() * mechanism.parameters()["epsilon"] ** 2 / (protector.dimension + 1)
    down = np.eye(protector.dimension) if protector.map is None else protector.map.down
    values, vectors = np.linalg.eigh(down @ sigma @ down.T)
    released = differences @ down.T @ (vectors / np.sqrt(values))
    distances = np.linalg.norm(released, axis=1)
    quantiles = np.quantile(distances, [0.5, 0.95])
    advantage = laplace_total_variation(
        quantiles, dimension=max(2, protector.dimension), epsilon=mechanism.parameters()["epsilon"]
    )
    return {
        "clean_median": float(np.median(np.linalg.norm(differences, axis=1))),
        "median": float(quantiles[0]),
        "p95": float(quantiles[1]),
        "largest_advantage_median": float(advantage[0]),
        "largest_advantage_p95": float(advantage[1]),
        "exact": protector.map is None or protector.map.rank == protector.dimension,
    }


def _own_texts(positive: Embeddings, ordinary: Embeddings, rng: np.random.Generator) -> Embeddings:
    """The user's texts as they come: with and without the concept in the proportion given."""
    both = np.concatenate([positive, ordinary])
    return np.ascontiguousarray(both[rng.permutation(len(both))[:UTILITY_ROWS]])


def _task(utility: UtilityChoice | UtilityTask, own: Embeddings, seed: int) -> UtilityTask:
    if isinstance(utility, UtilityTask):
        return utility
    if utility == "similarity":
        return SimilarityTask.of(own, seed=seed)
    if utility == "neighbours":
        return NeighbourTask(own[:2000], queries=300, seed=seed)
    raise InvalidInputError(
        message("fit", "utility", "'similarity', 'neighbours' or a vecveil.metrics.UtilityTask", repr(utility)[:60])
    )


def _sample(rows: int, most: int, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    if rows <= most:
        return np.arange(rows)
    return np.sort(rng.choice(rows, size=most, replace=False))


def _same_space(value: Embeddings, param: str, n: int) -> Embeddings:
    checked = check_embeddings(value, owner="fit_pairs", param=param)
    if checked.shape[1] != n:
        raise IncompatibleError(
            message("fit_pairs", param, f"of dimension {n}, like `positive`", f"dimension {checked.shape[1]}")
        )
    return checked


def _check_labels(value: Any, rows: int) -> TokenLabels:
    labels = np.asarray(value)
    if labels.ndim != 2 or len(labels) != rows or not np.isin(labels, (0, 1)).all():
        raise InvalidInputError(
            message("fit_pairs", "token_labels", f"a 0/1 array of shape ({rows}, V)", f"shape {labels.shape}",
                    "Row i tells which concept terms the text of positive row i holds.")
        )  # fmt: skip
    labels = labels.astype(np.uint8)
    return np.ascontiguousarray(labels[:, labels.any(axis=0) & ~labels.all(axis=0)])


def _check_options(method: Method, options: dict[str, Any]) -> None:
    unknown = sorted(set(options) - set(method.options))
    if unknown:
        known = ", ".join(method.options) or "no options"
        raise InvalidInputError(
            message("fit", unknown[0], f"an option of method {method.name!r}", "an unknown name", fix=f"It takes {known}.")
        )


def _encoder_info(encoder: Any) -> EncoderInfo:
    if encoder is None:
        return EncoderInfo()
    return EncoderInfo(
        name=getattr(encoder, "name", None),
        fingerprint=encoder_fingerprint(encoder),
        precision=getattr(encoder, "precision", None),
    )
