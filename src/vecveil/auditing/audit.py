"""Attacks clean and protected vectors of the same texts and writes down what was found."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vecveil.auditing.result import SCHEMA, AuditResult
from vecveil.auditing.utility import utility_record
from vecveil.checks import check_count, check_embeddings, check_texts
from vecveil.errors import ConceptError, InvalidInputError, message
from vecveil.types import Embeddings, Texts
from vecveil.version import __version__

if TYPE_CHECKING:
    from vecveil.attacks import LadderResult
    from vecveil.concepts import Concept, ConceptMatches, TokenVocabulary
    from vecveil.metrics import UtilityTask
    from vecveil.protector import Protector

__all__ = ["audit"]

TEST_SHARE = 0.3
VALIDATION_SHARE = 0.1  # of the training texts, set aside by each attack
MIN_TEST_TEXTS = 20
MIN_TOKEN_COUNTS = (15, 10, 5)

LIMITS = (
    "Only token inference is tested: attacks that rewrite whole sentences, match candidates or align "
    "stores are not.",
    "The quick tier runs small attackers; larger networks find more behind erasure (tier full runs them).",
    "An audit on the texts that the protector was fitted on understates what leaks from other texts: "
    "audit texts that the fit has not seen.",
    "Terms that were not in the fitted texts are less protected than the listed ones; this audit "
    "measures the terms that its own texts hold.",
    "One release of each text is attacked; repeated releases of the same text let the noise average out.",
)


NO_TRANSPLANT = (
    "The transplant attack, which often finds most, was not run: it needs the encoder, to encode the texts "
    "with the concept removed."
)


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
    seed: int = 0,
    command: str | None = None,
    show_progress: bool | None = None,
) -> AuditResult:
    """Return what attackers find in clean and in protected vectors of ``texts``, on the same split.

    Texts with the concept are split 70/30 by group (texts that agree in letters and digits, or share an
    id of ``groups``, stay together). Every attack learns from the first part, protected as it likes by
    the protector itself, and is judged on one release of the second.

    Args:
        protector: what to attack. Texts that it was not fitted on give the honest figure.
        texts: N texts; enough of them must hold the concept.
        concept: what should be hidden.
        encoder: the encoder of the protector if it is not known to it; a name or an object.
        embeddings: (N, n) clean embeddings of ``texts``, instead of encoding them.
        tasks: utility tasks with labels to measure beside similarity and neighbours.
        groups: N ids of texts that belong together (a document, a patient), or None.
        tier: ``quick`` or ``full`` (larger attackers).
        min_token_count: a concept word is attacked if so many training texts hold it; None takes 15, or
            10 or 5 where that would leave out more than half of the concept words' occurrences.
        show_terms: write the concept's words into the record; without it they are counts only.
        seed: split, attacks and noise of the audited release; the same seed gives the same record.
        command: the command line, for the record.

    Raises:
        ConceptError: too few texts hold the concept, or its words are too rare to attack.
        InvalidInputError, IncompatibleError: arguments that do not fit together.
    """
    started = time.perf_counter()
    owner = "audit"
    texts = check_texts(texts, owner=owner, min_rows=2)
    if min_token_count is not None:
        check_count(min_token_count, owner=owner, param="min_token_count")
    seed = check_count(seed, owner=owner, param="seed", minimum=0)
    if tier not in ("quick", "full"):
        raise InvalidInputError(message(owner, "tier", "'quick' or 'full'", repr(tier)[:40]))
    if groups is not None and len(groups) != len(texts):
        raise InvalidInputError(message(owner, "groups", f"of {len(texts)} ids", f"{len(groups)}"))
    from vecveil.attacks import split_groups, text_groups, token_inference_ladder

    if embeddings is not None:
        embeddings = check_embeddings(
            embeddings, owner=owner, param="embeddings", dimension=protector.dimension
        )
        if len(embeddings) != len(texts):
            raise InvalidInputError(
                message(
                    owner,
                    "embeddings",
                    f"of {len(texts)} rows, one for each text",
                    f"{len(embeddings)} rows",
                )
            )
    matches = concept.find(texts, min_texts=MIN_TEST_TEXTS, show_progress=show_progress)
    ids = text_groups(texts, groups)[matches.with_concept]
    train, test = split_groups(ids, (1 - TEST_SHARE, TEST_SHARE), seed=seed)
    vocabulary = _vocabulary(matches, train, min_token_count)
    labels, _ = matches.token_labels(vocabulary)
    train, test = (rows[labels[rows].any(axis=1)] for rows in (train, test))
    if len(test) < MIN_TEST_TEXTS:
        raise ConceptError(
            message(owner, "texts", f"at least {MIN_TEST_TEXTS} test texts with a concept word", f"{len(test)}",
                    fix="Give more texts or lower min_token_count.")
        )  # fmt: skip
    if embeddings is None:
        embeddings = _encode(protector, encoder, texts, show_progress)
    X = embeddings[matches.with_concept]
    without = _without_concept(protector, encoder, matches, train, show_progress)
    rng = np.random.default_rng([seed, 0])
    shared = {
        "groups_train": ids[train], "groups_test": ids[test], "without_train": without, "tier": tier,
        "seed": seed, "show_progress": show_progress,
    }  # fmt: skip
    run: Callable[..., LadderResult] = token_inference_ladder
    before = run(X[train], labels[train], X[test], labels[test], **shared)
    after = run(
        X[train],
        labels[train],
        protector.protect(X[test], rng),
        labels[test],
        release=protector.release(),
        noise_covariance=protector.released_noise_covariance(),
        **shared,
    )
    found = after.to_record(before)
    for term in found["terms"]:
        column = term.pop("token")
        term["term"] = vocabulary.tokens[column] if show_terms else None
    report = matches.report()
    held_out = round(VALIDATION_SHARE * len(train))
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "vecveil": __version__,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command,
        "concept": concept.name,
        "method": protector.method,
        "parameters": _parameters(protector),
        "encoder": protector.encoder_info.to_record(),
        "randomness": "seeded",
        "texts": {
            "total": len(texts),
            "with_concept": report["with_concept"],
            "without_concept": report["without_concept"],
            "emptied": report["emptied"],
            "vocabulary": len(vocabulary),
            "token_instances": int(labels.sum()),
        },
        "split": {
            "unit": "group of equal texts" if groups is None else "group of texts with one id",
            "groups": len(np.unique(ids)),
            "train": len(train) - held_out,
            "validation": held_out,
            "test": len(test),
        },
        "guarantee": protector.guarantee.to_record(),
        "concept_distance": protector.report.get("concept_distance"),
        "utility": utility_record(protector, embeddings, tasks, seed=seed),
        **found,
        "limits": [
            *(() if without is not None else (NO_TRANSPLANT,)),
            *(limit for limit in LIMITS if tier == "quick" or "tier" not in limit),
        ],
        "seed": seed,
        "tier": tier,
        "seconds": time.perf_counter() - started,
    }
    return AuditResult(record)


def _without_concept(
    protector: Protector,
    encoder: Any,
    matches: ConceptMatches,
    train: npt.NDArray[np.intp],
    show_progress: bool | None,
) -> Embeddings | None:
    """Return the vectors of the training texts with the concept removed; None if no encoder is at hand."""
    if encoder is None and protector.encoder is None:
        return None
    negatives = matches.negatives()
    return _encode(protector, encoder, [negatives[i] for i in train], show_progress)


def _vocabulary(
    matches: ConceptMatches, train: npt.NDArray[np.intp], min_count: int | None
) -> TokenVocabulary:
    """Return the concept's words that enough training texts hold."""
    thresholds = MIN_TOKEN_COUNTS if min_count is None else (min_count,)
    vocabulary = matches.frequent_tokens(thresholds, train)
    if len(vocabulary) == 0:
        raise ConceptError(
            message("audit", "texts", f"enough to see a concept word in {thresholds[-1]} training texts",
                    "no word in so many", "Rarer words cannot be attacked reliably.",
                    "Give more texts, or lower min_token_count.")
        )  # fmt: skip
    return vocabulary


def _encode(
    protector: Protector, encoder: Any, texts: Texts, show_progress: bool | None
) -> Embeddings:
    from vecveil.encoders import load_encoder

    loaded: Any = protector.loaded_encoder() if encoder is None else load_encoder(encoder)
    protector.check_encoder(loaded)
    encoded = (
        loaded.encode(texts, show_progress=show_progress)
        if hasattr(loaded, "fingerprint")
        else loaded.encode(texts)
    )
    return check_embeddings(
        np.asarray(encoded), owner="audit", param="embeddings", dimension=protector.dimension
    )


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
