"""Fits a protector on embeddings alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vecveil.checks import check_count, check_embeddings
from vecveil.errors import InvalidInputError, message
from vecveil.mechanisms import OPEN_RANGE, Before, Mechanism, Step
from vecveil.metrics import UtilityTask
from vecveil.protector.arguments import (
    Choices,
    UtilityChoice,
    check_choices,
    check_groups,
    check_labels,
    same_space,
    task_of,
)
from vecveil.protector.candidate import Candidate
from vecveil.protector.encoder_info import EncoderInfo, encoder_fingerprint
from vecveil.protector.families import LdpNoise
from vecveil.protector.fitting_scale import candidate_noise, noise_of_advantage
from vecveil.protector.measuring import (
    concept_distance,
    epsilon_warnings,
    noise_ratio,
    utility_record,
)
from vecveil.protector.methods import METHODS, FitData, with_wiener
from vecveil.protector.protector import Output, Protector
from vecveil.protector.scale import Scale
from vecveil.sensitivity.moments import Moments
from vecveil.sensitivity.shapes import NoiseShape
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
    target_cosine: float | None = None,
    target_advantage: float | None = None,
    sigma: float | None = None,
    delta: float | None = None,
    radius: float | None = None,
    utility: UtilityChoice | UtilityTask = "similarity",
    before: Before | str | None = None,
    postprocess: str | Step | Sequence[str | Step] | None = None,
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
        method: a name of `vecveil.protector.METHODS`; ``vecveil methods`` lists them with their scales.
        epsilon: ε of metric DP per unit of the mechanism's norm. With unit-norm embeddings the noise has
            a norm of about n/ε: below ε ≈ n/2 little is left of the vector.
        noise_to_signal: root mean square norm of the noise, before the map, over that of the embeddings.
        target_utility: share of the clean utility to keep with both sides protected; the largest noise
            that keeps it is found on these embeddings.
        target_cosine: mean cosine between these vectors and their noisy selves, before the map.
        target_advantage: the largest advantage that any attacker may have at telling a text with the concept
            from the same text without it, for 95 % of these pairs; the least noise that keeps it is found.
        sigma: standard deviation per coordinate of ``gaussian``.
        delta: δ of ``ldp-gaussian``, beside ``epsilon``.
        radius: norm of every perturbation of ``textcrafter``; the vectors have norm 1.
        utility: what ``target_utility`` means: ``similarity`` (Pearson correlation of pairwise cosines
            with the clean ones, half random pairs, half near neighbours), ``neighbours`` (recall@10), or a
            `vecveil.metrics.UtilityTask` such as `StsTask`, `RetrievalTask`, `ClassificationTask`.
        before: ``none``, ``normalise`` or ``clip:RADIUS``: what vectors go through before the noise. It
            bounds how far apart two inputs are, which turns metric privacy into plain local privacy.
        postprocess: what follows the noise, free of privacy cost. None takes the method's own (subspace its
            map, covariance the Wiener filter, the others nothing). A comma-separated string or a list of:
            ``none`` or ``wiener`` first, in place of the method's own map; then ``normalise``, ``truncate:M``,
            ``float16``, ``int8`` (``int8:RANGE``), ``binary``, or `vecveil.mechanisms.Step`. Without its own
            map the subspace method erases nothing: what is left is plain Laplace noise.
        output: ``reduced`` releases the m kept coordinates (N, m) of the subspace method.
        groups: (N,) ids of rows that belong together; None groups near-duplicates by their cosine.
        encoder: the encoder of the embeddings, remembered by name and fingerprint.
        **options: of the method. subspace: ``rank`` (erased directions), ``kept``, ``flattening``, ``pairs``,
            ``transplants`` (fit on made-up texts too, see `vecveil.sensitivity.transplant`). covariance:
            ``floor``, ``shape``, ``rank``. sparse: ``floor``, ``stability_seeds`` and the fields of
            `MaskOptions`. sparse-whitebox: ``floor``, ``steps``, ``epochs``. textcrafter: ``checkpoint`` (a folder to
            go on from when training is interrupted), ``further_positive`` (more embeddings with the concept) and the
            fields of `vecveil.textcrafter.PolicySettings` but for the radius; textcrafter-subspace ``rank`` too. And
            ``splits`` (1): of how many variates each normal one is made; more makes attacks on the bits of the noise
            harder.

    Raises:
        InvalidInputError, IncompatibleError: arrays that do not fit together; unknown options.
        CalibrationError: the target cannot be reached; says what can.
    """
    started = time.perf_counter()
    owner = "fit_pairs"
    scale = Scale(
        epsilon, noise_to_signal, target_utility, sigma, delta, target_cosine, target_advantage,
        radius,
    )  # fmt: skip
    choices = check_choices(method, scale, utility, postprocess, before, output, options)
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
    positive, negative = (choices.before.apply(X, owner=owner) for X in (positive, negative))
    if background is not None:
        background = choices.before.apply(background, owner=owner)
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
        positive, negative, labels, background, groups, moments, task,
        _search_scale(scale, moments, (positive, negative)), seed, show_progress, choices.before,
    )  # fmt: skip
    candidate = _candidate(choices, data, options)
    _check_projections(choices, candidate)
    noise = candidate_noise(
        candidate, scale, moments, task, (positive, negative), own, seed=seed, method=method
    )
    mechanism = _mechanism(candidate, scale, noise, moments.rms_norm, choices.splits)
    linear = candidate.map_of(noise)
    protector = Protector(
        method=method,
        mechanism=mechanism,
        map=None if linear is None else linear.coarser_than(mechanism.step),
        output=output,
        encoder_info=_encoder_info(loaded),
        concept=concept_name,
        encoder=loaded,
        before=choices.before,
        after=choices.after,
    )
    protector = _with_ranges(protector, own, seed)
    warned = data.findings.pop("warnings", [])
    scales = protector.mechanism.parameters()
    report: dict[str, Any] = {
        key: scales[key] for key in ("sigma", "delta", "radius") if key in scales
    }
    protector.report.update(
        {
            "pairs": len(positive),
            "background": 0 if background is None else len(background),
            "labels": 0 if labels is None else int(labels.shape[1]),
            "asked": scale.to_record(),
            "utility_task": task.key,
            "epsilon": scales.get("epsilon"),
            **report,
            "noise_to_signal": noise_ratio(protector.mechanism, moments.rms_norm),
            "before": choices.before.kind,
            "postprocess": ", ".join([choices.map, *(step.label for step in protector.after)]),
            "parameters": candidate.parameters,
            **data.findings,
            "utility": utility_record(protector, task, own, seed),
            "concept_distance": concept_distance(protector, positive, negative),
            "warnings": [*warned, *epsilon_warnings(protector, moments.rms_norm)],
            "seed": seed,
            "seconds": time.perf_counter() - started,
        }
    )
    return protector


def _candidate(choices: Choices, data: FitData, options: dict[str, Any]) -> Candidate:
    method = choices.method
    if method.without_map is not None and choices.map != "own map":
        # Without its map a subspace method erases nothing.
        method = METHODS[method.without_map]
        options = {key: value for key, value in options.items() if key in method.options}
    candidate = replace(
        method.build(data, dict(options)),
        family=method.family(data.scale.delta),
        before=choices.before,
        after=choices.after,
    )
    return with_wiener(candidate, data.moments) if choices.map == "wiener" else candidate


def _check_projections(choices: Choices, candidate: Candidate) -> None:
    """Refuse a projection whose matrix does not take what comes before it."""
    linear = candidate.map_of(1.0)
    reduced = linear is not None and choices.output == "reduced"
    dimension = linear.rank if linear is not None and reduced else candidate.shape.dimension
    for step in choices.after:
        if step.matrix is not None and step.matrix.shape[1] != dimension:
            wanted = f"with a projection of shape (m, {dimension})"
            raise InvalidInputError(
                message("fit", "postprocess", wanted, f"shape {step.matrix.shape}")
            )
        dimension = step.output_dimension(dimension)


def _search_scale(scale: Scale, moments: Moments, pairs: tuple[Embeddings, Embeddings]) -> Scale:
    """Return the scale that a search for parameters works at: of a target advantage its isotropic noise."""
    if scale.target_advantage is None:
        return scale
    n = moments.K.shape[0]
    plain = Candidate(shape=NoiseShape.isotropic(n), map_of=lambda _: None)
    return Scale(
        noise_to_signal=noise_of_advantage(plain, scale.target_advantage, moments.rms_norm, pairs)
    )


def _mechanism(
    candidate: Candidate, scale: Scale, noise: float, rms_norm: float, splits: int
) -> Mechanism:
    if candidate.made is not None:
        return candidate.made
    if isinstance(candidate.family, LdpNoise):
        assert scale.epsilon is not None
        return candidate.family.of_epsilon(candidate.shape.dimension, scale.epsilon, splits=splits)
    if not candidate.family.scales:
        return candidate.family.mechanism(candidate.shape, 0.0, rms_norm)
    return candidate.family.mechanism(candidate.shape, noise, rms_norm, splits=splits)


def _with_ranges(protector: Protector, own: Embeddings, seed: int) -> Protector:
    """Return the protector with the range of int8 set, where it was left open, to what it releases here."""
    if not any(step.value == OPEN_RANGE for step in protector.after):
        return protector
    steps: list[Step] = []
    for step in protector.after:
        if step.value == OPEN_RANGE:
            released = replace(protector, after=tuple(steps)).protect(own[:2000], seed)
            step = Step("int8", float(np.quantile(np.abs(released), 0.9999)) or 1.0)
        steps.append(step)
    return replace(protector, after=tuple(steps))


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
