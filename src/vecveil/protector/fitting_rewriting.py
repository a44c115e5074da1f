"""Fits a text-level method: what it needs of the user's texts, and what it costs them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from vecveil.errors import InvalidInputError
from vecveil.metrics import NeighbourTask, SimilarityTask
from vecveil.protector.encoder_info import EncoderInfo
from vecveil.protector.protector import Protector
from vecveil.protector.text_methods import TEXT_METHODS
from vecveil.protector.texts_only import TextsOnly, released_rows
from vecveil.types import Texts

if TYPE_CHECKING:
    from vecveil.concepts import Concept

__all__ = ["fit_rewriting"]

MEASURED = 1000
"""Texts that are encoded as they are and rewritten, to measure the utility that is left."""

_FEWEST_MEASURED = 20


def fit_rewriting(
    texts: Texts,
    concept: Concept,
    encoder: Any,
    *,
    method: str,
    left_out: dict[str, Any],
    options: dict[str, Any],
    min_texts: int,
    seed: int,
    show_progress: bool | None,
) -> Protector:
    """Return the protector that rewrites texts, then encodes.

    Args:
        left_out: arguments of `vecveil.fit` that mean nothing here, each None.
        options: of the method. replace-random: ``words`` (2,000, how many words replacements are drawn from) and
            ``min_word_texts`` (5, how many texts must hold each). replace-semantic: ``members``: ``"own"`` (found in
            the texts), ``"faker"`` (made up, with ``locales`` and ``count``), or lists by type.

    Raises:
        ConceptError: the concept matches too little, or the texts have too few words or members.
        InvalidInputError: an option or scale that the method does not have.
    """
    started = time.perf_counter()
    chosen = TEXT_METHODS[method]
    for param, value in left_out.items():
        if value is not None:
            raise InvalidInputError.of("fit", param, f"left out for method {method!r}", "a value",
                                       "It rewrites texts; no vector is changed.")  # fmt: skip
    if unknown := sorted(set(options) - set(chosen.options)):
        known = ", ".join(chosen.options) or "no options"
        raise InvalidInputError.of("fit", unknown[0], f"an option of method {method!r}", "an unknown name",
                                   fix=f"It takes {known}.")  # fmt: skip
    concept.require_spans("fit")
    from vecveil.encoders import load_encoder

    loaded = load_encoder(encoder)
    matches = concept.find(texts, min_texts=min_texts, show_progress=show_progress)
    rewriter = chosen.build(matches, concept, seed, options)
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(len(texts))[:MEASURED])
    clean = loaded.encode([texts[int(i)] for i in rows], show_progress=show_progress)
    written = rewriter.rewrite(
        [texts[int(i)] for i in rows], spans=[matches.spans[int(i)] for i in rows]
    )
    released = loaded.encode(written, show_progress=show_progress)
    protector = Protector(
        method=method,
        mechanism=TextsOnly(loaded.dimension, rewriter.kind),
        encoder_info=EncoderInfo.of(loaded),
        concept=concept.name,
        encoder=loaded,
        rewriter=rewriter,
    )
    utility: dict[str, Any] = {}
    if len(rows) >= _FEWEST_MEASURED:
        release = released_rows(clean, released, owner="fit")
        for task in (
            SimilarityTask.of(clean, seed=seed),
            NeighbourTask(clean, queries=300, seed=seed),
        ):
            utility[task.key] = task.to_record(release, rng)
    protector.report.update(
        {
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
    )
    return protector
