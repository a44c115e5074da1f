"""Fits a protector on labels in place of pairs: an attribute of whole texts, which no words can be removed from."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vecveil.errors import InvalidInputError
from vecveil.mechanisms import Before, Step
from vecveil.metrics import UtilityTask
from vecveil.protector.arguments import UtilityChoice, check_choices, check_groups, same_space
from vecveil.protector.fitting_vectors import MIN_PAIRS, Vectors, fit_vectors
from vecveil.protector.label_arrays import classes_of, with_classes
from vecveil.protector.methods import METHODS, method_named
from vecveil.protector.protector import Output, Protector
from vecveil.protector.scale import Scale
from vecveil.types import Embeddings, Groups, Texts
from vecveil.validation import check_count, check_embeddings

if TYPE_CHECKING:
    from vecveil.concepts import Concept

__all__ = ["check_label_method", "fit_labelled_texts", "fit_labels"]

MAX_TEXTS = 40_000


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
    """Return a protector that hides which label a text has (sentiment, topic, author), fitted on embeddings.

    There is no text "without the concept", so no pairs: the covariance between labels takes the place of theirs.
    ``subspace`` erases the directions of the label means, one less than there are classes; what tells labels apart
    in other ways is left to the kept directions and the noise.

    Args:
        X: (N, n) embeddings.
        labels: N strings or integers, None for a text that has none; or a 0/1 array (N, V), where a text may hold
            several. Ten texts at least for each. Texts without a label are ordinary ones; with a single label they
            are the other class.
        background: (K, n) further embeddings of texts without a label.
        method: ``subspace``, ``covariance`` (shape "labels"), ``sparse`` (two classes), ``sparse-whitebox`` or a method
            that learns nothing of the concept; not ``textcrafter``.
        epsilon, noise_to_signal, target_utility, target_cosine, sigma, delta: one scale, see `fit_pairs`. There is no
            ``target_advantage``: it is about pairs.
        utility, before, postprocess, output, encoder, seed, options: see `fit_pairs`.
        groups: (N,) ids of rows that belong together; None groups near-duplicates by their cosine.

    Raises:
        InvalidInputError, IncompatibleError: arrays that do not fit together; a method or option that needs pairs.
        CalibrationError: the target cannot be reached; says what can.

    Guarantee:
        The neighbours are two input vectors. How far apart texts of different labels are is not known, so nothing
        bounds how well the label is told; an audit measures it.
    """
    started = time.perf_counter()
    owner = "fit_labels"
    check_label_method(method, None)
    scale = Scale(epsilon, noise_to_signal, target_utility, sigma, delta, target_cosine)
    choices = check_choices(method, scale, utility, postprocess, before, output, options)
    seed = check_count(seed, owner=owner, param="seed", minimum=0)
    X = check_embeddings(X, owner=owner, param="X", min_rows=MIN_PAIRS)
    marks = classes_of(labels, len(X), owner=owner)
    if background is not None:
        background = same_space(background, "background", X.shape[1])
    ids = None if groups is None else check_groups(groups, len(X))
    held = marks.any(axis=1)
    rows, marks, ordinary = with_classes(X, marks, background, owner=owner)
    if ids is not None:
        # Where one class is told from the rest, the rest has rows without an id.
        ids = ids[held] if len(rows) == int(held.sum()) else None
    if ordinary is not None and len(ordinary) < MIN_PAIRS:
        ordinary = None  # too few say nothing
    return fit_vectors(
        Vectors(rows, None, marks, ordinary, ids),
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


def check_label_method(method: str, target_advantage: float | None) -> None:
    """Refuse what needs pairs of texts with and without the concept."""
    why = "Labels name no words to remove, so there is no text with the concept removed."
    if not method_named(method).labels:
        known = ", ".join(name for name, each in METHODS.items() if each.labels)
        raise InvalidInputError.of(
            "fit", "method", f"one of {known} for a concept given by labels", repr(method), why
        )
    if target_advantage is not None:
        raise InvalidInputError.of("fit", "target_advantage", "left out for a concept given by labels",
                                   target_advantage, why,
                                   "Give epsilon, noise_to_signal, target_utility or target_cosine.")  # fmt: skip


def fit_labelled_texts(
    texts: Texts,
    concept: Concept,
    encoder: Any,
    *,
    min_texts: int,
    seed: int,
    show_progress: bool | None,
    **given: Any,
) -> Protector:
    """Return the protector of texts and a concept given by labels; at most 40,000 texts, drawn at random, are used.

    Args:
        given: further arguments of `fit_labels`.
    """
    matches = concept.find(texts, min_texts=min_texts, show_progress=show_progress)
    labels = matches.labels
    assert labels is not None
    rng = np.random.default_rng(seed)
    order = np.arange(len(texts))
    if len(texts) > MAX_TEXTS:
        order = np.sort(rng.choice(len(texts), size=MAX_TEXTS, replace=False))
    X = encoder.encode([texts[int(i)] for i in order], show_progress=show_progress)
    protector = fit_labels(
        X,
        [labels[i] for i in order],
        encoder=encoder,
        concept_name=concept.name,
        seed=seed,
        show_progress=show_progress,
        **given,
    )
    protector.report["texts"] = matches.report()
    return protector
