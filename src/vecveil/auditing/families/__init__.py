"""Choose the attacks of an audit, and run them: the families on each side, and the data of each.

Families with more machinery have modules: averaging, held-out terms, reconstruction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vecveil.attacks import (
    AttackResult,
    CandidateAttack,
    CandidateVectors,
    CosineMatching,
    FixedNormMatching,
    FurtherKernelAttack,
    KernelProbe,
    LabelledVectors,
    LikelihoodMatching,
    LinearProbe,
    MLPProbe,
    PairedVectors,
    PermutationAlignment,
    ProcrustesAlignment,
    RidgeAlignment,
    TransplantAttack,
    UnpairedAlignment,
    split_groups,
)
from vecveil.attacks.token_inference.ladder import ladder_attacks
from vecveil.auditing.case import MIN_TEST_TEXTS, Case, Rows, Side
from vecveil.auditing.families import averaging, held_out_terms
from vecveil.auditing.families.held_out_terms import Refit
from vecveil.auditing.jobs import Job, Plan, WorkFolder, attack_job, run_jobs, skip
from vecveil.records.audit import FAMILIES, SkippedAttack
from vecveil.records.verdict import NO_ENCODER
from vecveil.types import Embeddings, Release

__all__ = ["run_families"]

# Reasons for skipped attacks, each with its code in the record.
LEFT_OUT = ("You left this family out.", "left-out")
NO_TRANSPLANT = (
    "It learns from texts with the concept removed: that needs an encoder, and clean vectors or the means "
    "to protect them. It often finds most."
)
NO_FURTHER = (
    "It learns from texts that the attacker makes by exchanging concept words, or finds in a corpus: that needs "
    "an encoder, and clean vectors or the means to protect them."
)
NO_OTHERS = (
    f"It needs texts without the concept, at least {MIN_TEST_TEXTS} to judge on, and there are too few.",
    "too-few-texts",
)
NO_CLEAN = (
    "It compares with clean vectors of the candidate texts, and there are none: give the encoder.",
    NO_ENCODER,
)
NO_VARIANTS = (
    "It needs the encoder, a concept of words, and texts whose word can be exchanged for others.",
    "no-variants",
)
OTHER_SPACE = (
    "It measures from clean vectors to released ones, and these have another dimension.",
    "other-dimension",
)
QUICK = ("Reconstruction attacks take minutes to an hour: tier full runs them.", "quick-tier")

RECONSTRUCTIONS = ("geia", "vec2text", "algen")
PROBES = ("probe-linear", "probe-kernel", "probe-mlp")
MOST_DECOYS = 5000  # every released vector is compared with every candidate
MATCHERS: tuple[tuple[str, type[CandidateAttack]], ...] = (
    ("cosine", CosineMatching),
    ("likelihood", LikelihoodMatching),
    ("norm", FixedNormMatching),
)
ALIGNMENTS = (
    ("alignment-permutation", PermutationAlignment),
    ("alignment-procrustes", ProcrustesAlignment),
    ("alignment-ridge", RidgeAlignment),
)
UNPAIRED = "alignment-unpaired"


def run_families(
    case: Case,
    sides: Sequence[Side],
    work: WorkFolder | None = None,
    *,
    keyed: Release | None = None,
    refit: Refit | None = None,
) -> tuple[Mapping[tuple[str, str], AttackResult], list[SkippedAttack]]:
    """Return the results of the tier's attacks by (side, name), in order, and the attacks that were not run.

    Args:
        sides: the clean side, if there are clean vectors, and the protected one last.
        keyed: releases clean rows with keyed noise, or None.
        refit: fits the method again on half of the words, or None.
    """
    per_side = {
        "token-inference": token_inference_jobs,
        "probe": probe_jobs,
        "candidates": candidate_jobs,
        "averaging": lambda case, side: averaging.jobs(case, side, keyed),
        "alignment": alignment_jobs,
    }
    # These share work between sides: a decoder trained on clean vectors, a protector fitted on half of the words.
    every_side = {
        "reconstruction": lambda: reconstruction_jobs(case, sides),
        "held-out-terms": lambda: held_out_terms.jobs(case, sides[0], refit),
    }
    chosen = [family for family in FAMILIES if family not in case.options.skip]
    plans = [per_side[f](side.seen or case, side) for side in sides for f in chosen if f in per_side]
    # All plans before the first job: what the sides share is computed once, on the main thread.
    plans += [every_side[family]() for family in chosen if family in every_side]
    jobs: list[Job] = [job for plan, _ in plans for job in plan]
    # Both sides skip an attack for the same reason: a dict keeps one entry, and the order.
    skipped = dict.fromkeys(entry for _, entries in plans for entry in entries)
    order = {job.name: i for i, job in enumerate(jobs)}
    results = run_jobs(jobs, work, show_progress=case.options.show_progress)
    # Jobs finish in any order; the record must not depend on it.
    ordered = dict(sorted(results.items(), key=lambda item: order[item[0][1]]))
    left_out = [SkippedAttack(f, f, *LEFT_OUT) for f in FAMILIES if f not in chosen]
    return ordered, [*skipped, *left_out]


def token_inference_jobs(case: Case, side: Side) -> Plan:
    """Return the token-inference attacks of the tier, and those that also see the columns beside the vectors."""
    runnable, skipped = _ladder(case, side, "")
    if side.beside is not None and np.ptp(side.beside, axis=0).any():
        runnable += _ladder(case, side.with_beside(), "-beside")[0]
    return runnable, skipped


def _ladder(case: Case, side: Side, suffix: str) -> Plan:
    train, test = case.labelled(side)
    # Without an encoder there are no such texts; without an oracle, no releases of them.
    code = NO_ENCODER if case.encode is None else "no-oracle"
    runnable: list[Job] = []
    skipped: list[SkippedAttack] = []
    for i, attack in enumerate(ladder_attacks(case.options.tier, device=case.options.device)):
        if isinstance(attack, TransplantAttack) and train.without is None:
            skipped.append(SkippedAttack(attack.name, "token-inference", NO_TRANSPLANT, code))
        elif isinstance(attack, FurtherKernelAttack) and train.further is None:
            skipped.append(SkippedAttack(attack.name, "token-inference", NO_FURTHER, code))
        else:
            name = attack.name + suffix
            runnable.append(attack_job(attack, side, train, test, case.options, name=name, weight=10.0 + i))
    return runnable, skipped


def probe_jobs(case: Case, side: Side) -> Plan:
    """Return the probes: texts with the concept against texts without it, or one label against the other."""
    positive, negative, test_positive, test_negative = parts = _probed(case)
    # Both classes must be on both sides of the split: a threshold needs negatives, a rate needs positives.
    if min(map(len, parts)) < MIN_TEST_TEXTS:
        return skip("probe", PROBES, NO_OTHERS)

    def evidence(X: np.ndarray, positive: Rows, negative: Rows) -> LabelledVectors:
        rows = np.concatenate([positive, negative])
        labels = np.repeat([1, 0], [len(positive), len(negative)])[:, None].astype(np.uint8)
        return LabelledVectors(X[rows], labels, case.groups[rows])

    train = evidence(side.learn, positive, negative)
    test = evidence(side.judged, test_positive, test_negative)
    attacks = (LinearProbe(), KernelProbe(), MLPProbe(device=case.options.device))
    return [
        attack_job(attack, side, train, test, case.options, name=name, weight=weight)
        for attack, name, weight in zip(attacks, PROBES, (1.0, 10.0, 12.0), strict=True)
    ], []


def _probed(case: Case) -> tuple[Rows, Rows, Rows, Rows]:
    """Return training rows of both classes, then test rows of both."""
    ordinary = (case.ordinary_train, case.ordinary_test)
    # Where every text has one of two labels there are no ordinary texts: the labels are the classes.
    if case.matches.labels is None or len(case.vocabulary) != 2 or min(map(len, ordinary)) > 0:
        return case.train, ordinary[0], case.test, ordinary[1]
    is_first = case.labels[:, 0].astype(bool)
    train, test = is_first[case.train], is_first[case.test]
    return case.train[train], case.train[~train], case.test[test], case.test[~test]


def candidate_jobs(case: Case, side: Side) -> Plan:
    """Return candidate matching among decoys and among substituted terms, by cosine, likelihood and norm."""
    clean = case.embeddings
    if clean is None:
        names = [f"{what}-{how}" for what in ("decoys", "substitution") for how, _ in MATCHERS]
        return skip("candidates", names, NO_CLEAN)
    rows = case.training_rows
    train = PairedVectors(side.learn[rows], clean[rows], case.groups[rows])
    versions, exchanged = case.substitutes, None
    if versions is not None:
        exchanged = CandidateVectors(
            side.judged[versions.rows], versions.pool, versions.truth, versions.options,
            case.groups[versions.rows],
        )  # fmt: skip
    tests = (("decoys", _decoys(case, side, clean), 4.0), ("substitution", exchanged, 3.0))
    runnable: list[Job] = []
    skipped: list[SkippedAttack] = []
    for what, test, weight in tests:
        for how, maker in MATCHERS:
            name = f"{what}-{how}"
            if test is None:
                skipped.append(SkippedAttack(name, "candidates", *NO_VARIANTS))
            elif maker is FixedNormMatching and side.judged.shape[1] != clean.shape[1]:
                skipped.append(SkippedAttack(name, "candidates", *OTHER_SPACE))
            else:
                runnable.append(
                    attack_job(maker(), side, train, test, case.options, name=name, weight=weight)
                )
    return runnable, skipped


def alignment_jobs(case: Case, side: Side) -> Plan:
    """Return the known-plaintext attacks, and in tier full the one without known pairs."""
    clean, options = case.embeddings, case.options
    is_full = options.tier == "full"
    if clean is None:
        names = [name for name, _ in ALIGNMENTS] + [UNPAIRED] * is_full
        return skip("alignment", names, NO_CLEAN)
    rows = case.training_rows
    store = _decoys(case, side, clean)
    # These attack a secret map: the attacker knows texts of the store, and has no protector to query.
    known = PairedVectors(side.judged[rows], clean[rows], case.groups[rows])
    runnable = [
        attack_job(maker(), side, known, store, options, name=name, weight=4.0, oracle=False)
        for name, maker in ALIGNMENTS
    ]
    # Two disjoint halves of equal size: pairs that share a text would make the problem one of known pairs.
    if is_full:
        halves = split_groups(case.groups[rows], (0.5, 0.5), seed=options.seed)
        count = min(map(len, halves))
        stolen, own = (rows[half[:count]] for half in halves)
        apart = PairedVectors(side.judged[stolen], clean[own])
        runnable.append(
            attack_job(
                UnpairedAlignment(), side, apart, store, options,
                name=UNPAIRED, weight=30.0, oracle=False,
            )
        )  # fmt: skip
    return runnable, []


def _decoys(case: Case, side: Side, clean: Embeddings) -> CandidateVectors:
    """Return the candidates to search: the test texts, at most 5,000 at random."""
    every = np.concatenate([case.test, case.ordinary_test])
    rng = np.random.default_rng([case.options.seed, 8])
    rows = np.sort(rng.permutation(every)[:MOST_DECOYS])
    return CandidateVectors(
        side.judged[rows], clean[rows], np.arange(len(rows)), groups=case.groups[rows], subjects=case.subjects_of(rows)
    )


def reconstruction_jobs(case: Case, sides: Sequence[Side]) -> Plan:
    """Return the reconstruction attacks, in tier full."""
    if case.options.tier == "quick":
        return skip("reconstruction", RECONSTRUCTIONS, QUICK)
    # Imported here: the decoders need PyTorch, and the quick tier never uses them.
    from vecveil.auditing.families import reconstruction

    return reconstruction.jobs(case, sides)
