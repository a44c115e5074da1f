"""Audit a store without its protector: vectors, and the texts of some of them; or the storage of a sealed index."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vecveil.attacks import AttackResult, KernelProbe, LabelledVectors, LinearProbe
from vecveil.attacks.wrapped import fit_access_map
from vecveil.auditing.audit import check_kind, check_options, work_folder
from vecveil.auditing.case import (
    MIN_TEST_TEXTS,
    TEST_SHARE,
    Side,
    check_rows,
    encode_with,
    encoder_name,
    make_case,
    read_part,
)
from vecveil.auditing.families import NO_OTHERS, learning_curve, run_families, strongest_result
from vecveil.auditing.jobs import skip as left_out
from vecveil.auditing.result import AuditResult, assemble
from vecveil.concepts import Concept
from vecveil.concepts.folding import words
from vecveil.encoders import load_encoder
from vecveil.metrics.estimates import Estimate, clopper_pearson
from vecveil.records.audit import SEALED, EncoderRecord
from vecveil.records.verdict import UNPROTECTED
from vecveil.types import Embeddings, Texts
from vecveil.validation import check_embeddings, check_same_length, check_texts

_OWNER = "audit_store"
_WORDS, _SHARE, _FEWEST = 40, 0.05, 15
OWN_WORDS = "words of the texts"
"""Name of the concept of an audit that is given none."""
_TEXT_WORDS = 3.0  # a column whose values have fewer words on average holds names or codes, not texts
_CLEAN = 0.999  # median cosine to the encoder's vectors: rounding to half precision stays above it
OBJECT_ATTACKS = ("objects-linear", "objects-kernel")


@dataclass(frozen=True, eq=False, repr=False)
class SealedStorage:
    """The visible part of a sealed index's storage (`vecveil.search.exposure`), and the exact vectors behind it.

    Attributes:
        exact: (N, n) vectors of the rows, which a process with the key holds.
        facts: number of objects, sizes and times of writing, for the record.
        found: by kind, how many values stand readable in an object, and how many were looked for.
        built: (S, q) what the storage shows of S small indexes, and (S,) whether the texts of each hold the concept;
            None if all texts do.
    """

    exact: Embeddings
    facts: Mapping[str, Any]
    found: Mapping[str, tuple[int, int]]
    built: tuple[Any, Any] | None


def frequent_words(texts: Sequence[str]) -> Concept:
    """Return a concept of 40 words that at most a twentieth of the texts hold, for an audit without a concept."""
    counts = Counter(word for text in texts for word in set(words(text)) if len(word) > 3)
    most = max(_SHARE * len(texts), _FEWEST)
    return Concept.from_terms(OWN_WORDS, [w for w, n in counts.most_common() if n <= most][:_WORDS])


def audit_store(
    vectors: Embeddings,
    texts: Texts,
    concept: Concept,
    *,
    beside: Embeddings | None = None,
    accesses: Embeddings | None = None,
    sealed: SealedStorage | None = None,
    encoder: Any = None,
    groups: Sequence[Any] | None = None,
    subjects: Sequence[Any] | None = None,
    tier: str = "quick",
    min_token_count: int | None = None,
    show_terms: bool = False,
    show_reconstructions: bool = False,
    attacker_texts: Texts | str | os.PathLike[str] = (),
    skip: Sequence[str] = (),
    attacks: Sequence[str] = (),
    language_model: str | os.PathLike[str] | None = None,
    device: str = "auto",
    seed: int = 0,
    work: str | os.PathLike[str] | None = None,
    lint: Sequence[dict[str, str]] = (),
    command: str | None = None,
    show_progress: bool | None = None,
) -> AuditResult:
    """Attack the vectors of a store, and return the results.

    Attackers learn from 70 % of the texts with their vectors and are judged on the others. They cannot draw fresh
    releases: an attacker who has the protector may find more.

    Args:
        vectors: (N, m) vectors of the store, one for each text.
        texts: N texts of the store, or of a sample of it.
        beside: (N, q) numbers that the store shows beside each vector, such as lengths of sealed blobs and columns of
            filter tokens (`vecveil.stores.exposure.visible_rows`). Token inference runs without and with them.
        accesses: (N, Q) zeros and ones, which query of a log fetched which row
            (`vecveil.stores.exposure.visible_accesses`). They are attacked alone, and as columns beside the vectors.
        sealed: the storage of a sealed index, whose ciphertext ``vectors`` then are.
        encoder: name or object; with it the same attacks run on clean vectors, and attacks that compare with
            clean vectors run too.
        groups, subjects, tier, min_token_count, show_terms, show_reconstructions, attacker_texts, skip, attacks,
            language_model, device, seed, work,
            lint, command: as for `vecveil.audit`.

    Raises:
        ConceptError: too few texts hold the concept, or its words are too rare to attack.
    """
    started = time.perf_counter()
    check_kind(concept, Concept, owner=_OWNER, param="concept")
    texts = check_texts(texts, owner=_OWNER, min_rows=2)
    options = check_options(
        texts,
        groups=groups,
        subjects=subjects,
        tier=tier,
        min_token_count=min_token_count,
        show_terms=show_terms,
        show_reconstructions=show_reconstructions,
        attacker_texts=attacker_texts,
        skip=skip,
        attacks=attacks,
        language_model=language_model,
        device=device,
        seed=seed,
        work=work,
        lint=lint,
        command=command,
        show_progress=show_progress,
        owner=_OWNER,
    )
    # Any dimension: a store may hold vectors reduced to fewer coordinates.
    vectors = check_rows(vectors, texts, owner=_OWNER, param="vectors", dimension=None)
    if beside is not None:
        beside = check_embeddings(beside, owner=_OWNER, param="beside")
        check_same_length(_OWNER, beside=beside, texts=texts)
    if accesses is not None:
        accesses = check_embeddings(accesses, owner=_OWNER, param="accesses")
        check_same_length(_OWNER, accesses=accesses, texts=texts)
        places = fit_access_map(accesses)(accesses)
        beside = places if beside is None else np.hstack([beside, places])
    # Before encoding, which may take hours: a concept that too few texts hold fails here.
    matches = concept.find(texts, min_texts=MIN_TEST_TEXTS, show_progress=show_progress)
    loaded = None if encoder is None else load_encoder(encoder)
    if (same := concept.for_encoder(loaded)) is not concept:
        concept, matches = same, same.find(texts, min_texts=MIN_TEST_TEXTS, show_progress=show_progress)
    encode, embeddings, about = None, None, None
    dimensions = {"released_dimension": int(vectors.shape[1])}
    if loaded is not None:
        encode = encode_with(loaded, None, show_progress=show_progress)
        matches, options = read_part(concept, matches, loaded, options)
        embeddings = encode(texts)
        about = EncoderRecord(loaded.name, loaded.model_fingerprint, loaded.precision, (), (), {})
        dimensions = {"dimension": int(embeddings.shape[1]), **dimensions}
    case = make_case(
        matches,
        groups,
        embeddings=embeddings,
        encode=encode,
        options=options,
        min_token_count=min_token_count,
        detect=concept.detect,
        owner=_OWNER,
    )
    if sealed is not None:
        embeddings = check_rows(sealed.exact, texts, owner=_OWNER, param="sealed", dimension=None)
        case = replace(case, embeddings=embeddings)
    unprotected = [] if sealed is not None else clean_vectors(vectors, embeddings)
    # No release: the attackers of a store have no oracle, and all learn from stored vectors.
    sides = [Side("protected", vectors, vectors, is_clean=bool(unprotected), beside=beside, accesses=accesses)]
    if embeddings is not None:
        sides.insert(0, Side("clean", embeddings, embeddings, is_clean=True))
    # The protector is unknown: its part of the folder's fingerprint is empty.
    seen = vectors if beside is None else np.hstack([vectors, beside])
    folder = work_folder(case, seen, "", encoder_name(loaded))
    results, skipped = run_families(case, sides, folder)
    curve = learning_curve(case, sides[-1], strongest_result(results), folder)
    if sealed is not None:
        results = {**results, **_storage_results(sealed, options.seed)}
        if sealed.built is None:
            skipped += left_out("probe", OBJECT_ATTACKS, NO_OTHERS)[1]
    result = assemble(
        case,
        results,
        skipped,
        curve,
        lint=unprotected,
        started=started,
        kind="store",
        concept=concept.name,
        method=None,
        parameters=dimensions if sealed is None else {"mode": SEALED, **sealed.facts},
        encoder=about,
        randomness="unknown",
        guarantee=None,
        concept_distance=None,
        utility={},
    )
    if folder is not None:
        folder.remove()
    return result


def _storage_results(sealed: SealedStorage, seed: int) -> dict[tuple[str, str], AttackResult]:
    """Return the results of the attacks on objects, by (side, name)."""
    results = {}
    if sealed.built is not None:
        shown, holds = sealed.built
        order = np.random.default_rng(seed).permutation(len(holds))
        train, test = (
            LabelledVectors(shown[rows], holds[rows, None])
            for rows in np.split(order, [round((1 - TEST_SHARE) * len(order))])
        )
        for attack, name in zip((LinearProbe(), KernelProbe()), OBJECT_ATTACKS, strict=True):
            result = attack.run(train, test, rng=seed, show_progress=False)
            results["protected", name] = replace(
                result,
                name=name,
                description="Tells indexes whose texts hold the concept from others of as many rows "
                "and bytes, by the number of objects, their sizes and the shares of byte values.",
            )
    numbers = {"values": tuple(map(sum, zip(*sealed.found.values(), strict=True))), **sealed.found}

    def search(side: str, estimates: Mapping[str, Estimate]) -> None:
        results[side, "search-bytes"] = AttackResult(
            "search-bytes",
            estimates,
            None,
            False,
            0.0,
            "Looks in every object, and in its name, for texts, ids, metadata and vectors of rows, these as float16, "
            "float32, float64 and int8 in both byte orders.",
            family="candidates",
            cost="one reading of the storage",
        )

    search(
        "protected",
        {
            kind: Estimate(f"{kind} found", found / sought, *clopper_pearson(found, sought), sought, 0.0)
            for kind, (found, sought) in numbers.items()
        },
    )
    # With the key every value was read: that is how it is known what to look for.
    search(
        "clean",
        {
            kind: Estimate(f"{kind} found", 1.0, *clopper_pearson(sought, sought), sought, 0.0)
            for kind, (_, sought) in numbers.items()
        },
    )
    return results


def plaintext_beside(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, str]]:
    """Return a warning for each column of texts; ``columns`` holds some values of each column by name."""
    warnings = []
    for name, values in columns.items():
        texts = [value for value in values if isinstance(value, str) and value.strip()]
        # A column that is mostly empty or numeric, with a stray note, is no column of texts.
        if not texts or 2 * len(texts) < len(values):
            continue
        if sum(len(text.split()) for text in texts) / len(texts) >= _TEXT_WORDS:
            message = (
                f"Column {name!r} holds texts beside the vectors ({len(texts)} of the {len(values)} rows that were "
                "looked at): whoever has this store needs no attack."
            )
            warnings.append({"code": "plaintext-beside-vectors", "message": message})
    return warnings


def clean_vectors(vectors: Embeddings, clean: Embeddings | None) -> list[dict[str, str]]:
    """Return a warning if the vectors of a store are those of the encoder, unprotected."""
    if clean is None or clean.shape != vectors.shape:
        return []
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(clean, axis=1)
    # Cosines ignore length: a store that normalises its vectors is no better protected. `tiny` keeps 0/0 out.
    cosines = (vectors * clean).sum(axis=1) / np.maximum(norms, np.finfo(np.float32).tiny)
    # The median, as a store may hold a few vectors of texts that were edited since.
    if float(np.median(cosines)) < _CLEAN:
        return []
    message = "These are the encoder's own vectors: nothing protects them."
    return [{"code": UNPROTECTED, "message": message}]
