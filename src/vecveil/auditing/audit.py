"""Attacks clean and protected vectors of the same texts and writes down what was found."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vecveil.auditing.case import MIN_TEST_TEXTS, Case, Side, check_rows, make_case
from vecveil.auditing.encoding import encode_with, encoder_name, encoder_of
from vecveil.auditing.fingerprint import fingerprint
from vecveil.auditing.kept import KeptResults
from vecveil.auditing.lint import one_word
from vecveil.auditing.options import check_kinds, check_options, check_work
from vecveil.auditing.plan import run_plan
from vecveil.auditing.protected import protected_side, release_for_tasks, rewritten_vectors
from vecveil.auditing.record import about_texts, findings, head, limits
from vecveil.auditing.refitted import refitted_side
from vecveil.auditing.result import AuditResult
from vecveil.auditing.utility import utility_record
from vecveil.randomness import NoiseKey
from vecveil.types import Embeddings, Release, Texts
from vecveil.validation import check_texts

if TYPE_CHECKING:
    from vecveil.concepts import Concept
    from vecveil.metrics import UtilityTask
    from vecveil.protector import Protector

__all__ = ["audit"]

_OWNER = "audit"


def audit(
    protector: Protector,
    texts: Texts,
    concept: Concept,
    *,
    encoder: Any = None,
    embeddings: Embeddings | None = None,
    tasks: Sequence[UtilityTask] = (),
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
    """Return what attackers find in clean and in protected vectors of ``texts``, on the same split.

    Texts with the concept are split 70/30 by group (texts that agree in letters and digits, or share an
    id of ``groups``, stay together). Every attack learns from the first part, protected as it likes by
    the protector itself (attacks on a secret excepted), and is judged on one release of the second.

    Args:
        protector: what to attack. Texts that it was not fitted on give the honest figure.
        texts: N texts; enough of them must hold the concept.
        concept: what should be hidden.
        encoder: the encoder of the protector if it is not known to it; a name or an object.
        embeddings: (N, n) clean embeddings of ``texts``, instead of encoding them.
        tasks: utility tasks with labels to measure beside similarity and neighbours.
        groups: N ids of texts that belong together (a document, a patient), or None.
        tier: ``quick`` or ``full`` (larger attackers, and attacks that write the text anew).
        min_token_count: a concept word is attacked if so many training texts hold it; None takes 15, or
            10 or 5 where that would leave out more than half of the concept words' occurrences.
        show_terms: write the concept's words into the record; without it they are counts only.
        show_reconstructions: write texts and what was reconstructed of them into the record.
        corpus: further texts: attackers learn from those in which the concept is found, and those of the full tier
            learn to write from all of them.
        skip: families of attacks to leave out (`vecveil.attacks.FAMILIES`); token inference must stay.
        device: of learnt attacks: ``auto`` takes CUDA where there is one, else the CPU.
        seed: split, attacks and noise of the audited release; the same seed gives the same record.
        work: folder in which finished attacks are kept until the audit is complete; an audit that was
            interrupted goes on from there. None keeps nothing.
        lint: warnings about the input to put into the record, each ``{"code", "message"}``.
        command: the command line, for the record.

    Raises:
        ConceptError: too few texts hold the concept, or its words are too rare to attack.
        InvalidInputError, IncompatibleError: arguments that do not fit together.
    """
    started = time.perf_counter()
    from vecveil.concepts import Concept
    from vecveil.protector import Protector

    check_kinds(_OWNER, protector=(protector, Protector), concept=(concept, Concept))
    texts = check_texts(texts, owner=_OWNER, min_rows=2)
    folder = check_work(work, owner=_OWNER)
    options = check_options(
        texts, groups, tier=tier, seed=seed, device=device, corpus=corpus, skip=skip,
        min_token_count=min_token_count, show_reconstructions=show_reconstructions,
        show_progress=show_progress, owner=_OWNER,
    )  # fmt: skip
    n = protector.dimension
    if embeddings is not None:
        embeddings = check_rows(embeddings, texts, owner=_OWNER, param="embeddings", dimension=n)
    matches = concept.find(texts, min_texts=MIN_TEST_TEXTS, show_progress=show_progress)
    needed = embeddings is None or protector.rewriter is not None
    loaded = encoder_of(protector, encoder, needed=needed)
    encode = None if loaded is None else encode_with(loaded, n, show_progress=show_progress)
    if embeddings is None:
        assert encode is not None
        embeddings = encode(texts)
    case = make_case(
        matches, groups, embeddings=embeddings, encode=encode, options=options,
        min_token_count=min_token_count, detect=concept.detect,
    )  # fmt: skip
    rng = np.random.default_rng([seed, 9])  # a stream that no attack draws from
    clean = Side("clean", embeddings, embeddings, is_clean=True)
    released = None
    if protector.rewriter is not None:
        released = rewritten_vectors(protector, matches, encode)
    protected = protected_side(protector, embeddings, released, rng)
    kept = None
    if folder is not None:
        mark = fingerprint(case, embeddings, protector.fingerprint, encoder_name(loaded))
        kept = KeptResults(folder, mark, with_texts=show_reconstructions)
    results, skipped = run_plan(
        case,
        (clean, protected),
        kept,
        keyed=_keyed(protector, case),
        refit=refitted_side(protector, embeddings, options.seed),
    )
    record: dict[str, Any] = {
        **head(kind="protector", command=command, concept=concept.name),
        "method": protector.method,
        "parameters": _parameters(protector),
        "encoder": protector.encoder_info.to_record(),
        "randomness": "seeded" if released is None else "none",
        **about_texts(case, ids_given=groups is not None),
        "guarantee": protector.guarantee.to_record(),
        "concept_distance": protector.report.get("concept_distance"),
        "utility": utility_record(
            release_for_tasks(protector, embeddings, released), embeddings, tasks, seed=seed
        ),
        **findings(
            results,
            skipped,
            case,
            kind="protector",
            lint=[*lint, *one_word(len(case.vocabulary))],
            show_terms=show_terms,
        ),
        "limits": limits(case, results, kind="protector"),
        "seed": seed,
        "tier": tier,
        "seconds": time.perf_counter() - started,
    }
    if kept is not None:
        kept.remove()
    return AuditResult(record)


def _keyed(protector: Protector, case: Case) -> Release | None:
    """Return releases with a key that nobody keeps, the rows being items; None for a method without noise."""
    if not np.any(protector.released_noise_covariance()):
        return None
    secret = hashlib.sha256(b"vecveil audit" + str(case.options.seed).encode()).digest()
    key = NoiseKey("audit", secret)  # of this audit's own releases: it guards nothing
    return lambda X, rng: protector.protect(X, ids=range(len(X)), key=key)


def _parameters(protector: Protector) -> dict[str, Any]:
    report = protector.report
    return {
        "epsilon": protector.mechanism.parameters().get("epsilon"),
        **{key: report[key] for key in ("sigma", "delta") if key in report},
        "noise_to_signal": report.get("noise_to_signal"),
        "dimension": protector.dimension,
        "released_dimension": protector.released_dimension,
        "postprocess": report.get("postprocess"),
        **report.get("parameters", {}),
    }
