"""Fits a protector on texts and a concept: finds the concept, encodes, and fits on the embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vecveil.mechanisms import Before, Step
from vecveil.metrics import UtilityTask
from vecveil.protector.arguments import UtilityChoice, check_choices, check_relabel
from vecveil.protector.expanded_pairs import check_expansion, with_expansion
from vecveil.protector.fitting import fit_pairs
from vecveil.protector.fitting_labels import check_label_method, fit_labelled_texts
from vecveil.protector.fitting_rewriting import fit_rewriting
from vecveil.protector.fitting_vectors import MIN_PAIRS
from vecveil.protector.protector import Output, Protector
from vecveil.protector.scale import Scale
from vecveil.protector.text_methods import TEXT_METHODS
from vecveil.types import Embeddings, Texts
from vecveil.validation import check_count, check_texts

if TYPE_CHECKING:
    from vecveil.concepts import Concept
    from vecveil.concepts.expansion import Expansion

__all__ = ["fit"]

TOKEN_COUNTS = (10, 5, 3)
MAX_PAIRS = 20_000
MAX_BACKGROUND = 20_000


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
    utility: UtilityChoice | UtilityTask = "similarity",
    before: Before | str | None = None,
    postprocess: str | Step | Sequence[str | Step] | None = None,
    output: Output = "full",
    min_texts: int = MIN_PAIRS,
    min_token_count: int | None = None,
    expansion: Expansion | None = None,
    seed: int = 0,
    show_progress: bool | None = None,
    **options: Any,
) -> Protector:
    """Return a protector that hides ``concept`` in the embeddings of texts like ``texts``.

    The concept's spans are removed from the texts that hold them, which gives the pairs D+ and D-; the
    texts without the concept are the ordinary ones. At most 20,000 of each, drawn at random, are used.
    A concept given by labels names no words to remove: see `fit_labels`.

    Args:
        texts: the user's own texts, with and without the concept.
        concept: what to hide.
        encoder: a name for `vecveil.load_encoder`, or any object with ``encode(texts) -> (N, n)``.
        method: a name of `vecveil.protector.METHODS`, or of `vecveil.protector.TEXT_METHODS`, which rewrite the
            texts and have no scale (options: `fit_rewriting`); ``vecveil methods`` lists them with their scales.
        epsilon, noise_to_signal, target_utility, target_cosine, target_advantage, sigma, radius: exactly one of those
            that the method has; see `fit_pairs`.
        delta, utility, before, postprocess, output: see `fit_pairs`.
        options: of the method, see `fit_pairs`; and for textcrafter ``relabel``: ``"presidio"`` or any object with
            ``detect(texts)``. Texts without the concept in which it finds PII then count as texts with it.
        min_texts: fewest texts that must hold the concept, at least 20.
        min_token_count: a concept word is a label of its own if so many texts hold it; None takes 10, or
            5 or 3 where that would leave out more than half of the concept words' occurrences.
        expansion: what `Concept.expand` returned for this concept: pairs and labels of members beside the own ones.

    Raises:
        ConceptError: the concept matches nothing, too few texts, or leaves nothing of them.
        CalibrationError: the target cannot be reached; says what can.

    Cost:
        Encoding each text once, and each text with the concept a second time without it; then seconds.
    """
    if method in TEXT_METHODS:
        given = {
            "epsilon": epsilon, "noise_to_signal": noise_to_signal, "sigma": sigma, "delta": delta, "radius": radius,
            "target_utility": target_utility, "target_cosine": target_cosine, "target_advantage": target_advantage,
            "before": before, "postprocess": postprocess, "output": None if output == "full" else output,
            "utility": None if utility == "similarity" else utility, "min_token_count": min_token_count,
            "expansion": expansion,
        }  # fmt: skip
        return fit_rewriting(
            texts, concept, encoder, method=method, left_out=given, options=options, min_texts=min_texts,
            seed=check_count(seed, owner="fit", param="seed", minimum=0), show_progress=show_progress,
        )  # fmt: skip
    # Refuse before hours of encoding.
    scale = Scale(
        epsilon, noise_to_signal, target_utility, sigma, delta, target_cosine, target_advantage,
        radius,
    )  # fmt: skip
    check_choices(method, scale, utility, postprocess, before, output, dict(options))
    check_count(min_texts, owner="fit", param="min_texts", minimum=MIN_PAIRS)
    if min_token_count is not None:
        check_count(min_token_count, owner="fit", param="min_token_count")
    seed = check_count(seed, owner="fit", param="seed", minimum=0)
    texts = check_texts(texts, owner="fit")
    relabel = check_relabel(options.get("relabel"))
    labelled = concept.labels is not None or concept.labels_column is not None
    if labelled:
        check_label_method(method, target_advantage)
    if expansion is not None:
        concept.require_spans("fit")
        check_expansion(expansion, concept.name)
    from vecveil.encoders import load_encoder

    loaded = load_encoder(encoder)
    if labelled:
        return fit_labelled_texts(
            texts, concept, loaded, min_texts=min_texts, seed=seed, show_progress=show_progress,
            method=method, epsilon=epsilon, noise_to_signal=noise_to_signal, sigma=sigma, delta=delta,
            target_utility=target_utility, target_cosine=target_cosine, utility=utility, before=before,
            postprocess=postprocess, output=output, **options,
        )  # fmt: skip
    matches = concept.find(texts, min_texts=min_texts, show_progress=show_progress)
    rng = np.random.default_rng(seed)
    negatives = matches.negatives()
    counts = TOKEN_COUNTS if min_token_count is None else (min_token_count,)
    labels, vocabulary = matches.token_labels(matches.frequent_tokens(counts))
    pairs = _sample(len(matches.with_concept), MAX_PAIRS, rng)
    ordinary = _sample(len(matches.without_concept), MAX_BACKGROUND, rng)
    with_texts = [texts[matches.with_concept[i]] for i in pairs]
    without_texts = [negatives[i] for i in pairs]
    ordinary_texts = [texts[matches.without_concept[i]] for i in ordinary]
    labels = labels[pairs]
    expanded = None
    if expansion is not None:
        own_tokens = matches.tokens()
        expanded = with_expansion(
            with_texts, without_texts, ordinary_texts, [own_tokens[i] for i in pairs], vocabulary,
            expansion,
        )  # fmt: skip
        with_texts, without_texts = expanded.positive, expanded.negative
        ordinary_texts, labels = expanded.ordinary, expanded.labels
    everything = loaded.encode(
        with_texts + without_texts + ordinary_texts, show_progress=show_progress
    )
    cuts = [len(with_texts), 2 * len(with_texts)]
    positive, negative, background = np.split(everything, cuts)
    options.pop("relabel", None)
    if relabel is not None:
        background, moved = _relabelled(ordinary_texts, background, relabel, show_progress)
        options["further_positive"] = moved
    protector = fit_pairs(
        positive,
        negative,
        token_labels=labels if labels.shape[1] else None,
        background=background if len(background) >= MIN_PAIRS else None,
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
        groups=None if expanded is None else expanded.groups(positive),
        encoder=loaded,
        concept_name=concept.name,
        seed=seed,
        show_progress=show_progress,
        **options,
    )
    protector.report["texts"] = matches.report()
    if expansion is not None:
        protector.report["expansion"] = expansion.report()
    if relabel is not None:
        by = relabel if isinstance(relabel, str) else type(relabel).__name__
        protector.report["relabelled"] = {
            "by": by, "texts": len(ordinary_texts), "moved": len(options["further_positive"]),
        }  # fmt: skip
    return protector


def _relabelled(
    texts: Texts, X: Embeddings, detector: Any, show_progress: bool | None
) -> tuple[Embeddings, Embeddings]:
    """Return the rows of texts in which ``detector`` finds nothing, and those of the others (TextCrafter, Eq. 6, 7)."""
    from vecveil.textcrafter.corpus import contains_pii

    given = None if isinstance(detector, str) else detector
    found = contains_pii(texts, given, show_progress=show_progress)
    return X[~found], X[found]


def _sample(rows: int, most: int, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    if rows <= most:
        return np.arange(rows)
    return np.sort(rng.choice(rows, size=most, replace=False))
