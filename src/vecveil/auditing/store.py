"""Audits a store whose protector is not at hand: vectors, and the texts of some of them."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vecveil.auditing.case import MIN_TEST_TEXTS, Side, check_rows, make_case
from vecveil.auditing.encoding import encode_with, encoder_name
from vecveil.auditing.fingerprint import fingerprint
from vecveil.auditing.kept import KeptResults
from vecveil.auditing.lint import clean_vectors, one_word
from vecveil.auditing.options import check_kinds, check_options, check_work
from vecveil.auditing.plan import run_plan
from vecveil.auditing.record import about_texts, findings, head, limits
from vecveil.auditing.result import AuditResult
from vecveil.types import Embeddings, Texts
from vecveil.validation import check_texts

if TYPE_CHECKING:
    from vecveil.concepts import Concept

__all__ = ["audit_store"]

_OWNER = "audit_store"


def audit_store(
    vectors: Embeddings,
    texts: Texts,
    concept: Concept,
    *,
    encoder: Any = None,
    groups: Sequence[Any] | None = None,
    tier: str = "quick",
    min_token_count: int | None = None,
    show_terms: bool = False,
    show_reconstructions: bool = False,
    corpus: Texts = (),
    skip: Sequence[str] = (),
    device: str = "auto",
    seed: int = 0,
    work: str | os.PathLike[str] | None = None,
    lint: Sequence[dict[str, str]] = (),
    command: str | None = None,
    show_progress: bool | None = None,
) -> AuditResult:
    """Return what leaks from a store: attackers learn from vectors whose texts they know.

    Nobody protects anything here. What made the vectors need not be known: attackers learn from 70 % of the
    texts with their vectors and are judged on the others. They cannot draw fresh releases, so they find at
    most what an attacker with the protector finds, and mostly less.

    Args:
        vectors: (N, m) vectors of the store, one for each text.
        texts: N texts of the store, or of a sample of it.
        concept: what should be hidden.
        encoder: what the clean vectors were made with, a name or an object. With it the same attacks run on
            clean vectors for comparison, and attacks that compare with clean vectors become possible.
        groups, tier, min_token_count, show_terms, show_reconstructions, corpus, skip, device, seed, work,
            lint, command: as for `vecveil.audit`.

    Raises:
        ConceptError: too few texts hold the concept, or its words are too rare to attack.
        InvalidInputError: arguments that do not fit together.
    """
    started = time.perf_counter()
    from vecveil.concepts import Concept

    check_kinds(_OWNER, concept=(concept, Concept))
    texts = check_texts(texts, owner=_OWNER, min_rows=2)
    folder = check_work(work, owner=_OWNER)
    options = check_options(
        texts, groups, tier=tier, seed=seed, device=device, corpus=corpus, skip=skip,
        min_token_count=min_token_count, show_reconstructions=show_reconstructions,
        show_progress=show_progress, owner=_OWNER,
    )  # fmt: skip
    vectors = check_rows(vectors, texts, owner=_OWNER, param="vectors", dimension=None)
    matches = concept.find(texts, min_texts=MIN_TEST_TEXTS, show_progress=show_progress)
    encode, embeddings, about, named = None, None, None, None
    if encoder is not None:
        from vecveil.encoders import load_encoder

        loaded = load_encoder(encoder)
        named = encoder_name(loaded)
        encode = encode_with(loaded, None, show_progress=show_progress)
        embeddings = encode(texts)
        about = {
            "name": loaded.name,
            "fingerprint": loaded.model_fingerprint,
            "precision": loaded.precision,
        }
    case = make_case(
        matches, groups, embeddings=embeddings, encode=encode, options=options,
        min_token_count=min_token_count, detect=concept.detect, owner=_OWNER,
    )  # fmt: skip
    unprotected = clean_vectors(vectors, embeddings)
    sides = [Side("protected", vectors, vectors, is_clean=bool(unprotected))]
    if embeddings is not None:
        sides.insert(0, Side("clean", embeddings, embeddings, is_clean=True))
    kept = None
    if folder is not None:
        mark = fingerprint(case, vectors, "", named)
        kept = KeptResults(folder, mark, with_texts=show_reconstructions)
    results, skipped = run_plan(case, sides, kept)
    warnings = [*lint, *unprotected, *one_word(len(case.vocabulary))]
    dimensions = {"released_dimension": int(vectors.shape[1])}
    if embeddings is not None:
        dimensions = {"dimension": int(embeddings.shape[1]), **dimensions}
    record: dict[str, Any] = {
        **head(kind="store", command=command, concept=concept.name),
        "method": None,
        "parameters": dimensions,
        "encoder": about,
        "randomness": "unknown",
        **about_texts(case, ids_given=groups is not None),
        "guarantee": None,
        "concept_distance": None,
        "utility": {},
        **findings(results, skipped, case, kind="store", lint=warnings, show_terms=show_terms),
        "limits": limits(case, results, kind="store"),
        "seed": seed,
        "tier": tier,
        "seconds": time.perf_counter() - started,
    }
    if kept is not None:
        kept.remove()
    return AuditResult(record)
