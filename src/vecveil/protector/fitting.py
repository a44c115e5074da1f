"""Fits a protector on embeddings alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from vecveil.errors import InvalidInputError
from vecveil.mechanisms import Before, Step
from vecveil.metrics import UtilityTask
from vecveil.protector.arguments import (
    UtilityChoice,
    check_choices,
    check_groups,
    check_labels,
    same_space,
)
from vecveil.protector.fitting_vectors import MIN_PAIRS, Vectors, fit_vectors
from vecveil.protector.protector import Output, Protector
from vecveil.protector.scale import Scale
from vecveil.types import Embeddings, Groups, TokenLabels
from vecveil.validation import check_count, check_embeddings

__all__ = ["MIN_PAIRS", "fit_pairs"]


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
            ``gradients`` (how many of ``rank`` a non-linear reader chooses), ``transplants`` (fit on made-up texts too,
            see `vecveil.sensitivity.transplant`). covariance: ``floor``, ``shape``, ``rank``.
            sparse: ``floor``, ``stability_seeds`` and the fields of `MaskOptions`. sparse-whitebox: ``floor``,
            ``steps``, ``epochs``. textcrafter: ``checkpoint`` (a folder to
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
        raise InvalidInputError.of(owner, "negative", f"of {len(positive)} rows, one for each positive",
                                   f"{len(negative)} rows")  # fmt: skip
    if background is not None:
        background = same_space(background, "background", n)
        background = background if len(background) >= MIN_PAIRS else None  # too few say nothing
    labels = None if token_labels is None else check_labels(token_labels, len(positive))
    groups = None if groups is None else check_groups(groups, len(positive))
    return fit_vectors(
        Vectors(positive, negative, labels, background, groups),
        choices,
        utility=utility,
        options=options,
        encoder=encoder,
        concept_name=concept_name,
        seed=seed,
        show_progress=show_progress,
        started=started,
        owner=owner,
    )
