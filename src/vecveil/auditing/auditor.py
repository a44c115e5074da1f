"""Audit a protector, or a store without its protector: attack vectors of known texts, and record the figures."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np

from vecveil.auditing.attacks import AttackResult, KernelProbe, LabelledVectors, LinearProbe
from vecveil.auditing.attacks.wrapped import fit_access_map
from vecveil.auditing.case import (
    MIN_TEST_TEXTS,
    TEST_SHARE,
    Case,
    Options,
    Side,
    check_rows,
    encode_with,
    encoder_name,
    make_case,
    read_part,
)
from vecveil.auditing.families import NAMED, NO_OTHERS, SKIPPABLE, Refit, learning_curve, run_families, strongest_result
from vecveil.auditing.jobs import WorkFolder, fingerprint
from vecveil.auditing.jobs import skip as left_out
from vecveil.auditing.metrics import Estimate, NeighbourTask, SimilarityTask, UtilityTask
from vecveil.auditing.records.audit_record import SEALED, EncoderRecord, GuaranteeRecord, UtilityRecord
from vecveil.auditing.records.verdict import UNPROTECTED
from vecveil.auditing.result import AuditResult, assemble
from vecveil.errors import InvalidInputError
from vecveil.io import expanded, make_folders
from vecveil.keys import NoiseKey
from vecveil.privacy.concepts import Concept
from vecveil.privacy.concepts.matching import words
from vecveil.privacy.protector import Protector
from vecveil.privacy.protector.methods.text_level import released_rows
from vecveil.privacy.utility.estimates import clopper_pearson
from vecveil.runtime import resolve_device
from vecveil.texts.encoders import load_encoder
from vecveil.texts.tables.reading import read_corpus
from vecveil.types import Embeddings, Release, Texts
from vecveil.validation import check_count, check_embeddings, check_groups, check_same_length, check_seed, check_texts

UTILITY_ROWS = 5000  # rows sampled for utility: neighbour search grows with their square
OWN_WORDS = "words of the texts"
"""Name of the concept in an audit without a given one."""
OBJECT_ATTACKS = ("objects-linear", "objects-kernel")
_WORDS, _SHARE, _FEWEST = 40, 0.05, 15
_TEXT_WORDS = 3.0  # a column whose values have fewer words on average contains names or codes, not texts
_CLEAN = 0.999  # median cosine to the encoder's vectors: rounding to half precision stays above it


class AuditOptions(TypedDict, total=False):
    """The options that `audit` and `audit_store` share; `audit` describes them."""

    groups: Sequence[Any] | None
    subjects: Sequence[Any] | None
    tier: str
    min_token_count: int | None
    show_terms: bool
    show_reconstructions: bool
    attacker_texts: Texts | str | os.PathLike[str]
    skip: Sequence[str]
    attacks: Sequence[str]
    language_model: str | os.PathLike[str] | None
    device: str
    seed: int
    work: str | os.PathLike[str] | None
    lint: Sequence[dict[str, str]]
    command: str | None
    show_progress: bool | None


def audit(
    protector: Protector,
    texts: Texts,
    concept: Concept,
    *,
    encoder: Any = None,
    embeddings: Embeddings | None = None,
    tasks: Sequence[UtilityTask] = (),
    **options: Unpack[AuditOptions],
) -> AuditResult:
    """Attack clean and protected vectors of ``texts`` on the same split, and return the results.

    Texts with the concept are split 70/30 by group: texts that agree in letters and digits, or share an id of
    ``groups``, stay together. Every attack learns from the first part, with as many releases as it needs (attacks on a
    secret have no protector), and is scored on one release of the second.

    Args:
        protector: fitted on other texts, or the figures understate the leakage.
        texts: N texts; at least 20 test texts must contain the concept.
        encoder: name or object; needed only if the protector does not record its encoder.
        embeddings: (N, n) clean embeddings of ``texts``, instead of encoding them.
        tasks: labelled utility tasks to measure besides similarity and neighbours.
        **options: the following.

    Options:
        groups: N ids of texts that belong together, such as sentences of one document, or None.
        subjects: N ids of the persons that the texts are about, None for a text about nobody; replaces ``groups``. The
            record then also states the leakage per person.
        tier ("quick"): ``quick`` or ``full`` (larger attackers, and reconstruction attacks).
        min_token_count: minimum number of training texts with an attacked word; None takes 15, or 10 or 5 if 15 would
            omit more than half of the occurrences.
        show_terms: write the concept's words into the record, which otherwise contains counts only.
        show_reconstructions: write texts and their reconstructions into the record.
        attacker_texts: further texts of the attacker, or the path of a file of them. Reconstruction learns from all,
            other attacks from those with the concept.
        skip: families of attacks to skip, except token inference. ``"kernel-further"`` and ``"substitution"`` encode
            many texts with a word exchanged; ``"ensemble"`` and ``"network"`` train long.
        attacks: run token inference and these attacks only, each a family or the name of an attack, such as
            ``"zero-shot"``; a named attack of tier full also runs in the quick tier.
        language_model: folder of a causal language model for the zero-shot attack; None takes a trigram model of the
            training texts and ``attacker_texts``.
        device ("auto"): of learnt attacks: ``auto`` takes CUDA if available, else the CPU.
        seed (0): of split, attacks and noise of the audited release; the same seed gives the same figures.
        work: folder that saves finished attacks, from which an interrupted audit resumes. None saves nothing.
        lint: warnings for the record, each ``{"code", "message"}``.
        command: the command line, for the record.
        show_progress: None shows bars on a terminal only.

    Raises:
        ConceptError: too few texts contain the concept, or its words are too rare to attack.
        IncompatibleError: the protector was fitted for a different encoder than ``encoder``.
    """
    started = time.perf_counter()
    check_kind(protector, Protector, owner="audit", param="protector")
    check_kind(concept, Concept, owner="audit", param="concept")
    texts = check_texts(texts, owner="audit", min_rows=2)
    checked = check_options(texts, options, owner="audit")
    n = protector.dimension
    if embeddings is not None:
        embeddings = check_rows(embeddings, texts, owner="audit", param="embeddings", dimension=n)
    # Given embeddings are of the original texts: encode a rewriter's output all the same.
    needed = embeddings is None or protector.rewriter is not None

    def load() -> Any:
        return _encoder_of(protector, encoder, needed=needed)

    case, concept, loaded = _case(texts, concept, checked, load, embeddings, n, owner="audit")
    embeddings = case.embeddings
    assert embeddings is not None
    seen = _rewritten(protector, case)
    seed = checked.seed
    sides = (Side("clean", embeddings, embeddings, is_clean=True), protected_side(protector, embeddings, seen, seed))
    folder = _work_folder(case, embeddings, protector.fingerprint, loaded)
    results, skipped = run_families(case, sides, folder, keyed=_keyed(protector, case), refit=Refit(protector, seed))
    curve = learning_curve(case, sides[-1], strongest_result(results), folder)
    result = assemble(
        case,
        results,
        skipped,
        curve,
        started=started,
        kind="protector",
        concept=concept.name,
        method=protector.method,
        parameters=_parameters(protector),
        encoder=EncoderRecord.of(protector.encoder_info),
        randomness="none" if protector.text_only else "seeded",
        guarantee=GuaranteeRecord.of(protector.guarantee),
        concept_distance=protector.report.get("concept_distance"),
        utility=_utility(protector, embeddings, seen, tasks, seed),
    )
    # Remove the folder last: an audit that fails above resumes from it.
    if folder is not None:
        folder.remove()
    return result


@dataclass(frozen=True, eq=False, repr=False)
class SealedStorage:
    """The visible part of a sealed index's storage (`vecveil.index.exposure`), and the exact vectors behind it.

    Attributes:
        exact: (N, n) vectors of the rows, which a process with the key has.
        facts: number of objects, sizes and times of writing, for the record.
        found: (found, searched) counts of readable values per kind.
        built: (S, q) what the storage shows of S small indexes, and (S,) whether the texts of each contain the concept;
            None if all texts do.
    """

    exact: Embeddings
    facts: Mapping[str, Any]
    found: Mapping[str, tuple[int, int]]
    built: tuple[Any, Any] | None


def audit_store(
    vectors: Embeddings,
    texts: Texts,
    concept: Concept,
    *,
    beside: Embeddings | None = None,
    accesses: Embeddings | None = None,
    sealed: SealedStorage | None = None,
    encoder: Any = None,
    **options: Unpack[AuditOptions],
) -> AuditResult:
    """Attack the vectors of a store, and return the results.

    Attackers learn from 70 % of the texts with their vectors and are scored on the others. They cannot draw fresh
    releases: an attacker who has the protector may recover more.

    Args:
        vectors: (N, m) vectors of the store, one for each text.
        texts: N texts of the store, or of a sample of it.
        beside: (N, q) readable numbers in the store beside each vector, such as lengths of sealed blobs and columns of
            filter tokens (`vecveil.stores.visible_rows.visible_rows`). Token inference runs without and with them.
        accesses: (N, Q) zeros and ones, which query of a log fetched which row (`visible_accesses`). They are attacked
            alone, and as columns next to the vectors.
        sealed: the storage of a sealed index; ``vectors`` are then its ciphertext.
        encoder: name or object; with it the same attacks run on clean vectors, and attacks that compare with clean
            vectors run too.
        **options: as for `vecveil.audit`.

    Raises:
        ConceptError: too few texts contain the concept, or its words are too rare to attack.
    """
    owner, started = "audit_store", time.perf_counter()
    check_kind(concept, Concept, owner=owner, param="concept")
    texts = check_texts(texts, owner=owner, min_rows=2)
    checked = check_options(texts, options, owner=owner)
    # Any dimension: a store may contain vectors reduced to fewer coordinates.
    vectors = check_rows(vectors, texts, owner=owner, param="vectors", dimension=None)
    if beside is not None:
        beside = check_embeddings(beside, owner=owner, param="beside")
        check_same_length(owner, beside=beside, texts=texts)
    if accesses is not None:
        accesses = check_embeddings(accesses, owner=owner, param="accesses")
        check_same_length(owner, accesses=accesses, texts=texts)
        places = fit_access_map(accesses)(accesses)
        beside = places if beside is None else np.hstack([beside, places])

    def load() -> Any:
        return None if encoder is None else load_encoder(encoder)

    case, concept, loaded = _case(texts, concept, checked, load, None, None, owner=owner)
    about = None
    dimensions = {"released_dimension": int(vectors.shape[1])}
    if case.embeddings is not None:
        about = EncoderRecord(loaded.name, loaded.model_fingerprint, loaded.precision, (), (), {})
        dimensions = {"dimension": int(case.embeddings.shape[1]), **dimensions}
    unprotected = [] if sealed is not None else clean_vectors(vectors, case.embeddings)
    if sealed is not None:
        case = replace(case, embeddings=check_rows(sealed.exact, texts, owner=owner, param="sealed", dimension=None))
    # The attackers of a store have no oracle: all learn from stored vectors.
    sides = [Side("protected", vectors, vectors, is_clean=bool(unprotected), beside=beside, accesses=accesses)]
    if case.embeddings is not None:
        sides.insert(0, Side("clean", case.embeddings, case.embeddings, is_clean=True))
    # The protector is unknown: its part of the folder's fingerprint is empty.
    folder = _work_folder(case, vectors if beside is None else np.hstack([vectors, beside]), "", loaded)
    results, skipped = run_families(case, sides, folder)
    curve = learning_curve(case, sides[-1], strongest_result(results), folder)
    if sealed is not None:
        results = {**results, **_storage_results(sealed, checked.seed)}
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


# -- arguments and data of both


def check_kind(value: Any, kind: type[Any], *, owner: str, param: str) -> None:
    if not isinstance(value, kind):
        raise InvalidInputError(
            f"{owner}: `{param}` is a vecveil {kind.__name__}, not {type(value).__name__}.", param=param
        )


def check_options(texts: Texts, options: AuditOptions, *, owner: str) -> Options:
    given: dict[str, Any] = dict(options)
    if unknown := sorted(given.keys() - AuditOptions.__annotations__.keys()):
        raise TypeError(f"{owner}() got an unexpected keyword argument {unknown[0]!r}")
    if given.get("min_token_count") is not None:
        check_count(given["min_token_count"], owner=owner, param="min_token_count")
    given["seed"] = check_seed(given.get("seed", 0), owner=owner)
    if given.get("tier", "quick") not in ("quick", "full"):
        raise InvalidInputError("`tier` is 'quick' or 'full'.", param="tier")
    groups, subjects = given.pop("groups", None), given.pop("subjects", None)
    if groups is not None and subjects is not None:
        raise InvalidInputError(
            "Pass `subjects` or `groups`, not both: the texts of one subject stay together.", param="subjects"
        )
    param, ids = ("groups", groups) if subjects is None else ("subjects", subjects)
    if ids is not None:
        ids = check_groups(ids, len(texts), owner=owner, param=param)
    # A string would be read letter by letter; [None] fails the check below.
    skipped, named = (
        list(names) if isinstance(names, list | tuple | set | frozenset) else [None]
        for names in (given.get("skip", ()), given.get("attacks", ()))
    )
    if any(name not in SKIPPABLE for name in skipped):
        known = ", ".join(SKIPPABLE)
        raise InvalidInputError(
            f"`skip` takes a list of {known}. Token inference gives the verdict and always runs.", param="skip"
        )
    if any(name not in NAMED for name in named):
        known = ", ".join(NAMED)
        raise InvalidInputError(
            f"`attacks` takes a list of {known}. Token inference always runs.", code="E-INPUT-NAME", param="attacks"
        )
    # Fail now if the GPU is missing, not after the texts are encoded.
    if given.get("device", "auto") != "auto":
        resolve_device(given["device"], owner=owner)
    attacker_texts, model = given.get("attacker_texts", ()), given.get("language_model")
    if isinstance(attacker_texts, str | os.PathLike):
        attacker_texts = read_corpus(attacker_texts, param="attacker_texts")
    return Options(
        **given
        | {
            "groups": ids,
            "by_subject": subjects is not None,
            "skip": frozenset(map(str, skipped)),
            "attacks": frozenset(map(str, named)),
            "language_model": None if model is None else str(model),
            "work": _writable(given.get("work")),
            "attacker_texts": tuple(check_texts(attacker_texts, owner=owner, param="attacker_texts", min_rows=0)),
            "lint": tuple(given.get("lint", ())),
        }
    )


def _writable(work: str | os.PathLike[str] | None) -> Path | None:
    if work is None:
        return None
    if not isinstance(work, str | os.PathLike):
        raise InvalidInputError("`work` is the path of a folder.", param="work")
    folder = expanded(work)
    try:
        # Owner only: checkpoints of reconstruction attacks contain what they learnt from the texts.
        make_folders(folder)
        # Permission bits miss read-only mounts and access lists, so try a write.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise InvalidInputError(
            f"The folder {folder.name} of `work` cannot be written: {reason}.", param="work"
        ) from error
    return folder


def _case(
    texts: Texts,
    concept: Concept,
    options: Options,
    load: Callable[[], Any],
    embeddings: Embeddings | None,
    dimension: int | None,
    *,
    owner: str,
) -> tuple[Case, Concept, Any]:
    """Return the case, with texts encoded if ``embeddings`` is None, its concept, and the encoder or None."""
    progress = options.show_progress
    # Fail here if too few texts contain the concept: encoding may take hours.
    matches = concept.find(texts, min_texts=MIN_TEST_TEXTS, show_progress=progress)
    loaded = load()
    if (same := concept.for_encoder(loaded)) is not concept:
        concept, matches = same, same.find(texts, min_texts=MIN_TEST_TEXTS, show_progress=progress)
    encode = None
    if loaded is not None:
        encode = encode_with(loaded, dimension, show_progress=progress)
        matches, options = read_part(concept, matches, loaded, options)
        embeddings = encode(texts) if embeddings is None else embeddings
    case = make_case(matches, options, embeddings=embeddings, encode=encode, detect=concept.detect, owner=owner)
    return case, concept, loaded


def _work_folder(case: Case, vectors: Embeddings, protector: str, encoder: Any) -> WorkFolder | None:
    o = case.options
    if o.work is None:
        return None
    mark = fingerprint(case, vectors, protector, encoder_name(encoder))
    return WorkFolder(o.work, mark, with_texts=o.show_reconstructions)


# -- a protector


def _encoder_of(protector: Protector, encoder: Any, *, needed: bool) -> Any:
    """Return the given or recorded encoder; raise if it does not match, or if it is needed and missing."""
    if encoder is not None:
        loaded = load_encoder(encoder)
        protector.check_encoder(loaded)
        return loaded
    if not needed and protector.encoder is None:
        return None
    try:
        return protector.loaded_encoder()
    except InvalidInputError:
        # With given embeddings the audit runs without an encoder: attacks that need one are skipped.
        if needed:
            raise
        return None


def _rewritten(protector: Protector, case: Case) -> Case | None:
    rewriter = protector.rewriter
    if rewriter is None:
        return None
    # Given spans belong to certain texts: the audit's concept has those of the audit's texts alone.
    spans = case.matches.spans if rewriter.needs_spans else None
    return case.rewritten(lambda texts: rewriter.rewrite(texts, spans=spans), others=spans is None)


def protected_side(protector: Protector, embeddings: Embeddings, seen: Case | None, seed: int) -> Side:
    """Return the release of the protector with an attacker's knowledge of it."""
    X = embeddings if seen is None or seen.embeddings is None else seen.embeddings
    if protector.text_only:
        # Rewriting is deterministic: attackers rewrite their own texts, and no release is fresh.
        return Side("protected", X, X, seen=seen)
    # Stream 9 belongs to this release alone: an attack that drew the same noise could subtract it.
    released = protector.protect(X, np.random.default_rng([seed, 9]), rewritten=True)
    covariance = protector.released_noise_covariance()
    return Side("protected", X, released, protector.release(), covariance, seen=seen)


def _keyed(protector: Protector, case: Case) -> Release | None:
    """Return the release with keyed noise, an item for each row; None for a method without noise."""
    if not np.any(protector.released_noise_covariance()):
        return None
    # Derived from the seed so that the audit can be repeated: this key protects no data.
    secret = hashlib.sha256(b"vecveil audit" + str(case.options.seed).encode()).digest()
    key = NoiseKey("audit", secret)
    return lambda X, rng: protector.protect(X, ids=range(len(X)), key=key, rewritten=True)


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


def _utility(
    protector: Protector, X: Embeddings, seen: Case | None, tasks: Sequence[UtilityTask], seed: int
) -> dict[str, UtilityRecord]:
    """Return utility by task: similarity, neighbours and ``tasks``, also with noise on the documents alone."""
    rng = np.random.default_rng([seed, 1])
    rewritten = None if seen is None or seen.embeddings is None else released_rows(X, seen.embeddings, owner="audit")

    def release(V: Embeddings, generator: np.random.Generator | None) -> Embeddings:
        if rewritten is not None:
            # Queries of a text-level method on the trusted side are clean; queries of a text stage share its map.
            V = rewritten(V, generator if protector.text_only else rng)
        # No generator: queries go through the deterministic map without noise.
        return protector.protect(V, generator, noise=generator is not None, rewritten=True)

    rows = X
    if len(X) > UTILITY_ROWS:
        rows = X[np.sort(rng.choice(len(X), UTILITY_ROWS, replace=False))]
    every: list[UtilityTask] = []
    # Correlation and ten nearest neighbours mean nothing on fewer rows.
    if len(rows) >= 20:
        every += [SimilarityTask.of(rows, seed=seed), SimilarityTask.of(rows, seed=seed, rank=True)]
        every.append(NeighbourTask(rows, seed=seed))
    records: dict[str, UtilityRecord] = {}
    for task in [*every, *tasks]:
        for side in task.sides:
            name = key = task.key if side == "both" else f"{task.key}_trusted_queries"
            # Tasks of one key are numbered from the second on: none may replace another's record.
            number = 1
            while name in records:
                number += 1
                name = f"{key}_{number}"
            entry = task.to_record(release, rng, sides=side)
            records[name] = UtilityRecord.of(entry)
    return records


# -- a store


def frequent_words(texts: Sequence[str]) -> Concept:
    """Return a concept of 40 words in at most a twentieth of the texts each, for an audit without a concept."""
    counts = Counter(word for text in texts for word in set(words(text)) if len(word) > 3)
    most = max(_SHARE * len(texts), _FEWEST)
    return Concept.from_terms(OWN_WORDS, [w for w, n in counts.most_common() if n <= most][:_WORDS])


def _storage_results(sealed: SealedStorage, seed: int) -> dict[tuple[str, str], AttackResult]:
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
                description="Distinguishes indexes whose texts contain the concept from indexes with as many "
                "rows and bytes, by the number of objects, their sizes and the shares of byte values.",
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
    # With the key every value is readable, which is how the audit knows the values to search for.
    search(
        "clean",
        {
            kind: Estimate(f"{kind} found", 1.0, *clopper_pearson(sought, sought), sought, 0.0)
            for kind, (_, sought) in numbers.items()
        },
    )
    return results


def plaintext_beside(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, str]]:
    """Return a warning for each column of texts; ``columns`` contains some values of each column by name."""
    warnings = []
    for name, values in columns.items():
        texts = [value for value in values if isinstance(value, str) and value.strip()]
        # A column that is mostly empty or numeric, with a stray note, is no column of texts.
        if not texts or 2 * len(texts) < len(values):
            continue
        if sum(len(text.split()) for text in texts) / len(texts) >= _TEXT_WORDS:
            message = (
                f"Column {name!r} contains texts next to the vectors ({len(texts)} of {len(values)} rows examined): "
                "anyone who has this store needs no attack."
            )
            warnings.append({"code": "plaintext-beside-vectors", "message": message})
    return warnings


def clean_vectors(vectors: Embeddings, clean: Embeddings | None) -> list[dict[str, str]]:
    """Return a warning if the vectors of a store are the encoder's own, unprotected."""
    if clean is None or clean.shape != vectors.shape:
        return []
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(clean, axis=1)
    # Cosines ignore length: a store that normalises its vectors is no better protected. `tiny` keeps 0/0 out.
    cosines = (vectors * clean).sum(axis=1) / np.maximum(norms, np.finfo(np.float32).tiny)
    # The median, as a store may contain a few vectors of texts that were edited since.
    if float(np.median(cosines)) < _CLEAN:
        return []
    message = "These are the encoder's own vectors: nothing protects them."
    return [{"code": UNPROTECTED, "message": message}]
