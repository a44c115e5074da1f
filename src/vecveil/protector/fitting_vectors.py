"""The part of a fit that pairs and labels share: from checked vectors to a protector with its report."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vecveil.errors import InvalidInputError
from vecveil.mechanisms import OPEN_RANGE, Mechanism, Step
from vecveil.metrics import UtilityTask
from vecveil.protector.arguments import Choices, UtilityChoice, task_of
from vecveil.protector.candidate import Candidate
from vecveil.protector.encoder_info import EncoderInfo
from vecveil.protector.families import LdpNoise
from vecveil.protector.fitting_scale import candidate_noise, noise_of_advantage
from vecveil.protector.lengths import length_range
from vecveil.protector.measuring import (
    concept_distance,
    epsilon_warnings,
    noise_ratio,
    utility_record,
)
from vecveil.protector.methods import METHODS, FitData, with_wiener
from vecveil.protector.protector import Protector
from vecveil.protector.scale import Scale
from vecveil.sensitivity.moments import Moments
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.types import Embeddings, Groups, TokenLabels

__all__ = ["MIN_PAIRS", "Vectors", "fit_vectors"]

MIN_PAIRS = 20
UTILITY_ROWS = 10_000


@dataclass(frozen=True, eq=False, repr=False)
class Vectors:
    """What a fit learns from, checked.

    Attributes:
        positive: (N, n) of texts with the concept.
        negative: (N, n) of the same texts without it, or None where labels say what is to be hidden.
        labels: (N, V) 0/1, or None.
        background: (K, n) of ordinary texts, or None.
        groups: (N,) rows that belong together, or None.
    """

    positive: Embeddings
    negative: Embeddings | None
    labels: TokenLabels | None
    background: Embeddings | None
    groups: Groups | None


def fit_vectors(
    vectors: Vectors,
    choices: Choices,
    *,
    utility: UtilityChoice | UtilityTask,
    options: dict[str, Any],
    encoder: Any,
    concept_name: str | None,
    seed: int,
    show_progress: bool | None,
    started: float,
    owner: str,
) -> Protector:
    """Return the protector that ``choices`` ask for; arguments as in `vecveil.fit_pairs`."""
    scale, labels = choices.scale, vectors.labels
    positive, negative, background = (
        None if X is None else choices.before.apply(X, owner=owner)
        for X in (vectors.positive, vectors.negative, vectors.background)
    )
    assert positive is not None
    pairs = None if negative is None else (positive, negative)
    loaded = None if encoder is None else _load(encoder)
    norms = length_range(vectors.positive, vectors.negative, vectors.background)
    # Before the search: an encoder behind a URL that fails now costs no fit.
    encoder_info = EncoderInfo.of(loaded, norms=norms if choices.before.kind == "none" else ())
    moments = Moments.of(positive, negative, token_labels=labels, background=background)
    _check_concept(moments, pairs is not None, owner)
    ordinary = negative if background is None else background
    own = _own_texts(positive, ordinary, np.random.default_rng(seed))
    task = task_of(utility, own, seed)
    data = FitData(
        positive, negative, labels, background, vectors.groups, moments, task,
        _search_scale(scale, moments, pairs), seed, show_progress, choices.before,
    )  # fmt: skip
    candidate = _candidate(choices, data, options)
    _check_projections(choices, candidate)
    noise = candidate_noise(
        candidate, scale, moments, task, pairs, own, seed=seed, method=choices.method.name
    )
    mechanism = _mechanism(candidate, scale, noise, moments.rms_norm, choices.splits)
    linear = candidate.map_of(noise)
    protector = Protector(
        method=choices.method.name,
        mechanism=mechanism,
        map=None if linear is None else linear.coarser_than(mechanism.step),
        output=choices.output,
        encoder_info=encoder_info,
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
            "pairs": 0 if pairs is None else len(positive),
            **({"labelled": len(positive)} if pairs is None else {}),
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
            "concept_distance": None if pairs is None else concept_distance(protector, *pairs),
            "warnings": [*warned, *epsilon_warnings(protector, moments.rms_norm)],
            "seed": seed,
            "seconds": time.perf_counter() - started,
        }
    )
    return protector


def _check_concept(moments: Moments, pairs: bool, owner: str) -> None:
    """Refuse pairs without a difference, and labels that no direction tells apart."""
    if pairs and not moments.C.any():
        raise InvalidInputError.of(owner, "negative", "different from `positive`", "the same rows",
                                   "There is nothing to hide.")  # fmt: skip
    if not pairs and (moments.B is None or not moments.B.any()):
        raise InvalidInputError.of(owner, "labels", "of texts whose vectors differ", "equal vectors",
                                   "There is nothing to hide.")  # fmt: skip


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
            raise InvalidInputError.of("fit", "postprocess", wanted, f"shape {step.matrix.shape}")
        dimension = step.output_dimension(dimension)


def _search_scale(
    scale: Scale, moments: Moments, pairs: tuple[Embeddings, Embeddings] | None
) -> Scale:
    """Return the scale that a search for parameters works at: of a target advantage its isotropic noise."""
    if scale.target_advantage is None:
        return scale
    assert pairs is not None  # refused where there are none
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


def _own_texts(
    positive: Embeddings, ordinary: Embeddings | None, rng: np.random.Generator
) -> Embeddings:
    """The user's texts as they come: with and without the concept in the proportion given."""
    both = positive if ordinary is None else np.concatenate([positive, ordinary])
    return np.ascontiguousarray(both[rng.permutation(len(both))[:UTILITY_ROWS]])


def _load(encoder: Any) -> Any:
    from vecveil.encoders import load_encoder

    return load_encoder(encoder)
