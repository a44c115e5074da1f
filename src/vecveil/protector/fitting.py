"""Fits a protector on embeddings alone."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from vecveil.checks import check_count, check_embeddings
from vecveil.errors import InvalidInputError, message
from vecveil.mechanisms import Laplace, Mahalanobis, Mechanism
from vecveil.metrics import UtilityTask
from vecveil.protector.arguments import (
    UtilityChoice,
    check_choices,
    check_groups,
    check_labels,
    same_space,
    task_of,
)
from vecveil.protector.candidate import Candidate, CommonDraws
from vecveil.protector.measuring import concept_distance, utility_record
from vecveil.protector.methods import METHODS, FitData, with_wiener
from vecveil.protector.protector import EncoderInfo, Output, Protector, encoder_fingerprint
from vecveil.protector.scale import (
    SMALLEST_NOISE,
    Scale,
    epsilon_of_noise,
    largest_noise,
    refuse_target,
)
from vecveil.sensitivity.moments import Moments
from vecveil.types import Embeddings, Groups, TokenLabels

__all__ = ["MIN_PAIRS", "fit_pairs"]

MIN_PAIRS = 20
UTILITY_ROWS = 10_000


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
            (optional, better when given; without 20 rows the negatives stand in).
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
        encoder: the encoder of the embeddings, remembered by name and fingerprint.
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
    chosen, wanted = check_choices(method, utility, postprocess, output, options)
    seed = check_count(seed, owner=owner, param="seed", minimum=0)
    positive = check_embeddings(positive, owner=owner, param="positive", min_rows=MIN_PAIRS)
    n = positive.shape[1]
    negative = same_space(negative, "negative", n)
    if len(negative) != len(positive):
        raise InvalidInputError(
            message(
                owner,
                "negative",
                f"of {len(positive)} rows, one for each positive",
                f"{len(negative)} rows",
            )
        )
    if background is not None:
        background = same_space(background, "background", n)
        background = background if len(background) >= MIN_PAIRS else None  # too few say nothing
    labels = None if token_labels is None else check_labels(token_labels, len(positive))
    groups = None if groups is None else check_groups(groups, len(positive))
    loaded = None if encoder is None else _load(encoder)
    moments = Moments.of(positive, negative, token_labels=labels, background=background)
    if not moments.C.any():
        raise InvalidInputError(
            message(
                owner,
                "negative",
                "different from `positive`",
                "the same rows",
                "There is nothing to hide.",
            )
        )
    own = _own_texts(
        positive, negative if background is None else background, np.random.default_rng(seed)
    )
    task = task_of(utility, own, seed)
    data = FitData(
        positive, negative, labels, background, groups, moments, task, scale, seed, show_progress
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
        encoder_info=_encoder_info(loaded),
        concept=concept_name,
        encoder=loaded,
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
            "utility": utility_record(protector, task, own, seed),
            "concept_distance": concept_distance(protector, positive, negative),
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


def _own_texts(positive: Embeddings, ordinary: Embeddings, rng: np.random.Generator) -> Embeddings:
    """The user's texts as they come: with and without the concept in the proportion given."""
    both = np.concatenate([positive, ordinary])
    return np.ascontiguousarray(both[rng.permutation(len(both))[:UTILITY_ROWS]])


def _load(encoder: Any) -> Any:
    from vecveil.encoders import load_encoder

    return load_encoder(encoder)


def _encoder_info(encoder: Any) -> EncoderInfo:
    if encoder is None:
        return EncoderInfo()
    return EncoderInfo(
        name=getattr(encoder, "name", None),
        fingerprint=encoder_fingerprint(encoder),
        precision=getattr(encoder, "precision", None),
    )
