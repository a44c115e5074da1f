"""Attack clean and protected vectors of the same texts, and record what the attacks find."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vecveil.auditing.case import (
    MIN_TEST_TEXTS,
    Case,
    Options,
    Side,
    check_rows,
    encode_with,
    encoder_name,
    make_case,
    read_part,
)
from vecveil.auditing.families import NAMED, SKIPPABLE, Refit, learning_curve, run_families, strongest_result
from vecveil.auditing.jobs import WorkFolder, fingerprint
from vecveil.auditing.result import AuditResult, assemble
from vecveil.concepts import Concept
from vecveil.data import read_texts
from vecveil.encoders import load_encoder
from vecveil.errors import InvalidInputError
from vecveil.io import make_folders
from vecveil.metrics import NeighbourTask, SimilarityTask, UtilityTask
from vecveil.protector import Protector
from vecveil.protector.methods.text_level import released_rows
from vecveil.randomness import NoiseKey
from vecveil.records.audit import EncoderRecord, GuaranteeRecord, UtilityRecord
from vecveil.runtime import resolve_device
from vecveil.types import Embeddings, Release, Texts
from vecveil.validation import check_count, check_texts

_OWNER = "audit"
UTILITY_ROWS = 5000  # rows sampled for utility: neighbour search grows with their square


def audit(
    protector: Protector,
    texts: Texts,
    concept: Concept,
    *,
    encoder: Any = None,
    embeddings: Embeddings | None = None,
    tasks: Sequence[UtilityTask] = (),
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
    """Attack clean and protected vectors of ``texts`` on the same split, and return the results.

    Texts with the concept are split 70/30 by group: texts that agree in letters and digits, or share an id of
    ``groups``, stay together. Every attack learns from the first part, with as many releases as it needs
    (attacks on a secret have no protector), and is judged on one release of the second.

    Args:
        protector: texts that it was not fitted on give the honest figure.
        texts: N texts; at least 20 test texts must hold the concept.
        encoder: name or object; needed only if the protector does not record its encoder.
        embeddings: (N, n) clean embeddings of ``texts``, instead of encoding them.
        tasks: labelled utility tasks to measure beside similarity and neighbours.
        groups: N ids of texts that belong together, such as those of one document, or None.
        subjects: N ids of the persons that the texts are about, None for a text of no person; in place of ``groups``.
            The record then also states what leaks of each person.
        tier: ``quick`` or ``full`` (larger attackers, and reconstruction attacks).
        min_token_count: number of training texts that must hold an attacked word; None takes 15, or 10 or 5
            where 15 would leave out more than half of the occurrences.
        show_terms: write the concept's words into the record, which otherwise holds counts only.
        show_reconstructions: write texts and their reconstructions into the record.
        attacker_texts: texts that an attacker has besides, or the path of a file of them. Attacks learn from those
            in which the concept is found; reconstruction learns from all.
        skip: families of attacks to leave out; token inference must stay. ``"kernel-further"`` and ``"substitution"``
            encode many texts with a word exchanged; ``"ensemble"`` and ``"network"`` train long.
        attacks: run these beside token inference and no others, each a family or the name of an attack, such as
            ``"zero-shot"``; those of tier full run in the quick tier, too, if they are named.
        language_model: folder of a causal language model for the zero-shot attack; None takes a trigram model of the
            training texts and ``attacker_texts``.
        device: of learnt attacks: ``auto`` takes CUDA if available, else the CPU.
        seed: of split, attacks and noise of the audited release; the same seed gives the same figures.
        work: folder that saves finished attacks, from which an interrupted audit resumes. None saves nothing.
        lint: warnings for the record, each ``{"code", "message"}``.
        command: the command line, for the record.

    Raises:
        ConceptError: too few texts hold the concept, or its words are too rare to attack.
        IncompatibleError: the protector was fitted for another encoder than ``encoder``.
    """
    started = time.perf_counter()
    check_kind(protector, Protector, owner=_OWNER, param="protector")
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
    n = protector.dimension
    if embeddings is not None:
        embeddings = check_rows(embeddings, texts, owner=_OWNER, param="embeddings", dimension=n)
    # Before encoding, which may take hours: a concept that too few texts hold fails here.
    matches = concept.find(texts, min_texts=MIN_TEST_TEXTS, show_progress=show_progress)
    # Given embeddings are of the texts as they are: a rewriter's output must be encoded all the same.
    needed = embeddings is None or protector.rewriter is not None
    loaded = _encoder_of(protector, encoder, needed=needed)
    if (same := concept.for_encoder(loaded)) is not concept:
        concept, matches = same, same.find(texts, min_texts=MIN_TEST_TEXTS, show_progress=show_progress)
    encode = None if loaded is None else encode_with(loaded, n, show_progress=show_progress)
    matches, options = read_part(concept, matches, loaded, options)
    if embeddings is None:
        assert encode is not None
        embeddings = encode(texts)
    case = make_case(
        matches,
        groups,
        embeddings=embeddings,
        encode=encode,
        options=options,
        min_token_count=min_token_count,
        detect=concept.detect,
    )
    seen = _rewritten(protector, case)
    sides = (Side("clean", embeddings, embeddings, is_clean=True), protected_side(protector, embeddings, seen, seed))
    folder = work_folder(case, embeddings, protector.fingerprint, encoder_name(loaded))
    results, skipped = run_families(
        case, sides, folder, keyed=_keyed(protector, case), refit=Refit(protector, options.seed)
    )
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
    # Only after the record is complete: an audit that fails above resumes from the folder.
    if folder is not None:
        folder.remove()
    return result


def check_kind(value: Any, kind: type[Any], *, owner: str, param: str) -> None:
    """Raise `InvalidInputError` unless ``value`` is an instance of ``kind``."""
    if not isinstance(value, kind):
        raise InvalidInputError(
            f"{owner}: `{param}` is a vecveil {kind.__name__}, not {type(value).__name__}.", param=param
        )


def check_options(
    texts: Texts,
    *,
    groups: Sequence[Any] | None,
    subjects: Sequence[Any] | None,
    skip: Sequence[str],
    attacks: Sequence[str],
    language_model: str | os.PathLike[str] | None,
    work: str | os.PathLike[str] | None,
    attacker_texts: Texts | str | os.PathLike[str],
    lint: Sequence[dict[str, str]],
    owner: str,
    **settings: Any,
) -> Options:
    """Return the checked settings of an audit."""
    if settings["min_token_count"] is not None:
        check_count(settings["min_token_count"], owner=owner, param="min_token_count")
    settings["seed"] = check_count(settings["seed"], owner=owner, param="seed", minimum=0)
    if settings["tier"] not in ("quick", "full"):
        raise InvalidInputError("`tier` is 'quick' or 'full'.", param="tier")
    if groups is not None and subjects is not None:
        raise InvalidInputError(
            "Pass `subjects` or `groups`, not both: the texts of one subject stay together.", param="subjects"
        )
    given, groups = "groups" if subjects is None else "subjects", groups if subjects is None else subjects
    if groups is not None:
        if len(groups) != len(texts):
            raise InvalidInputError(f"`{given}` has {len(groups)} ids for {len(texts)} texts.", param=given)
        if not all(isinstance(each, Hashable) for each in groups):
            raise InvalidInputError(f"The ids of `{given}` are strings, numbers or other hashable values.", param=given)
    # A string would be read letter by letter; [None] fails the check below.
    skipped, named = (
        list(names) if isinstance(names, list | tuple | set | frozenset) else [None] for names in (skip, attacks)
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
    # A missing GPU fails now, not after the texts are encoded.
    if settings["device"] != "auto":
        resolve_device(settings["device"], owner=owner)
    if isinstance(attacker_texts, str | os.PathLike):
        attacker_texts = [text for text in read_texts(attacker_texts).texts if text.strip()]
    return Options(
        groups=groups,
        by_subject=subjects is not None,
        skip=frozenset(map(str, skipped)),
        attacks=frozenset(map(str, named)),
        language_model=None if language_model is None else str(language_model),
        work=_writable(work, owner),
        attacker_texts=tuple(check_texts(attacker_texts, owner=owner, param="attacker_texts", min_rows=0)),
        lint=tuple(lint),
        **settings,
    )


def _writable(work: str | os.PathLike[str] | None, owner: str) -> Path | None:
    """Create the folder for finished attacks and return its path."""
    if work is None:
        return None
    if not isinstance(work, str | os.PathLike):
        raise InvalidInputError("`work` is the path of a folder.", param="work")
    folder = Path(work)
    try:
        # Owner only: checkpoints of attacks that write texts hold what they learnt from the texts.
        make_folders(folder)
        # Permission bits miss read-only mounts and access lists: only a write shows that the folder works.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise InvalidInputError(
            f"The folder {folder.name} of `work` cannot be written: {reason}.", param="work"
        ) from error
    return folder


def work_folder(case: Case, vectors: Embeddings, protector: str, encoder: str | None) -> WorkFolder | None:
    """Return the folder for finished attacks of this audit, or None where nothing is saved."""
    o = case.options
    if o.work is None:
        return None
    mark = fingerprint(case, vectors, protector, encoder)
    return WorkFolder(o.work, mark, with_texts=o.show_reconstructions)


def _encoder_of(protector: Protector, encoder: Any, *, needed: bool) -> Any:
    """Return the given encoder or the one that the protector records; None if it has none and none is needed.

    Raises:
        IncompatibleError: the protector was fitted for another encoder.
        InvalidInputError: an encoder is needed and there is none.
    """
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
    """Return the case of the rewritten texts; None for a protector of vectors."""
    rewriter = protector.rewriter
    if rewriter is None:
        return None
    # A concept of given spans knows only the texts of its fit: the audit's concept lends it the spans.
    spans = case.matches.spans if rewriter.needs_spans else None
    return case.rewritten(lambda texts: rewriter.rewrite(texts, spans=spans))


def protected_side(protector: Protector, embeddings: Embeddings, seen: Case | None, seed: int) -> Side:
    """Return the release of the protector with what an attacker knows of it."""
    X = embeddings if seen is None or seen.embeddings is None else seen.embeddings
    if protector.text_only:
        # The same text is always rewritten the same: attackers learn from these, and there is no fresh release.
        return Side("protected", X, X)
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
    """Return utility by task: similarity and neighbours of the texts, and ``tasks``.

    Tasks with queries are measured with noise on both sides and with noise on the documents alone.
    """
    rng = np.random.default_rng([seed, 1])
    rewritten = None if seen is None or seen.embeddings is None else released_rows(X, seen.embeddings, owner=_OWNER)

    def release(V: Embeddings, generator: np.random.Generator | None) -> Embeddings:
        if rewritten is not None:
            # Queries of a text-level method on the trusted side are clean; those of a text stage share its map.
            V = rewritten(V, generator if protector.text_only else rng)
        # No generator: queries go through the deterministic map without noise.
        return protector.protect(V, generator, noise=generator is not None, rewritten=True)

    rows = X
    if len(X) > UTILITY_ROWS:
        rows = X[np.sort(rng.choice(len(X), UTILITY_ROWS, replace=False))]
    every: list[UtilityTask] = []
    # Of fewer rows correlation and ten nearest neighbours say nothing.
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
