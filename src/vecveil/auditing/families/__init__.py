"""Choose the attacks of an audit, and run them: the families on each side, and the data of each.

Families with more machinery have modules: averaging, held-out terms, reconstruction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vecveil.attacks import (
    AccessPatternAttack,
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
    LinkingAttack,
    MembershipAttack,
    MLPProbe,
    NetworkAttack,
    PairedVectors,
    PermutationAlignment,
    ProcrustesAlignment,
    RidgeAlignment,
    TransplantAttack,
    UnpairedAlignment,
    split_groups,
)
from vecveil.attacks.linking import group_means
from vecveil.attacks.token_inference.ladder import ladder_attacks
from vecveil.auditing.case import MIN_TEST_TEXTS, Case, Rows, Side
from vecveil.auditing.families import averaging, held_out_terms
from vecveil.auditing.families.held_out_terms import Refit
from vecveil.auditing.jobs import Job, Plan, WorkFolder, attack_job, run_jobs, skip
from vecveil.records.audit import FAMILIES, Family, SkippedAttack
from vecveil.records.verdict import NO_ENCODER
from vecveil.types import Embeddings, Release

__all__ = ["NAMED", "run_families"]

# Reasons for skipped attacks, each with its code in the record.
LEFT_OUT = ("You left it out.", "left-out")
NO_TRANSPLANT = (
    "It learns from texts with the concept removed: that needs an encoder, and clean vectors or the means "
    "to protect them. It often finds most."
)
NO_FURTHER = (
    "It learns from texts that the attacker makes by exchanging concept words, or finds in a corpus: that needs "
    "an encoder, and clean vectors or the means to protect them."
)
NO_FRESH = ("It learns from fresh releases: that needs the means to protect texts.", "no-oracle")
NO_OTHERS = (
    f"It needs texts without the concept, at least {MIN_TEST_TEXTS} to judge on, and there are too few.",
    "too-few-texts",
)
NO_CLEAN = ("It compares with clean vectors of the candidate texts, and there are none: give the encoder.", NO_ENCODER)
NO_VARIANTS = (
    "It needs the encoder, a concept of words, and texts whose word can be exchanged for others.",
    "no-variants",
)
OTHER_SPACE = ("It measures from clean vectors to released ones, and these have another dimension.", "other-dimension")
QUICK = ("Reconstruction attacks take minutes to an hour: tier full runs them.", "quick-tier")

ONE_STORE = ("It links two stores, and there is one without the means to protect another.", "no-oracle")
NO_GROUPS = (
    f"It links persons or documents, and fewer than {MIN_TEST_TEXTS} have several texts: give their ids as groups.",
    "too-few-texts",
)

FEW_ASKED = (f"It needs {2 * MIN_TEST_TEXTS} test texts, of which half are in the store.", "too-few-texts")
RECONSTRUCTIONS = ("geia", "vec2text", "algen", "zero-shot")
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
LINKS = ("linking", "linking-groups")
DRAWS = 8  # releases of each training group that links are learnt from
_FAMILY_OF: dict[str, Family] = {
    **dict.fromkeys(RECONSTRUCTIONS, "reconstruction"),
    **dict.fromkeys(LINKS, "candidates"),
    UNPAIRED: "alignment",
}
NAMED = (*(family for family in FAMILIES if family != "token-inference"), *_FAMILY_OF)
"""Names that `Options.attacks` accepts: families, and attacks that run alone."""
SKIPPABLE = (*FAMILIES[1:], "kernel-further", "substitution")
"""Names that `Options.skip` accepts: families, and attacks that encode many texts of their own."""


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
        "membership": membership_jobs,
    }
    # These share work between sides: a decoder trained on clean vectors, a protector fitted on half of the words.
    every_side = {
        "reconstruction": lambda: reconstruction_jobs(case, sides),
        "held-out-terms": lambda: held_out_terms.jobs(case, sides[0], refit),
    }
    named = {_FAMILY_OF.get(name, name) for name in case.options.attacks} | {"token-inference"}
    chosen = [
        family
        for family in FAMILIES
        if family not in case.options.skip and (not case.options.attacks or family in named)
    ]
    plans = [_named(case, f, per_side[f](side.seen or case, side)) for side in sides for f in chosen if f in per_side]
    # All plans before the first job: what the sides share is computed once, on the main thread.
    plans += [_named(case, f, every_side[f]()) for f in chosen if f in every_side]
    jobs: list[Job] = [job for plan, _ in plans for job in plan]
    # Both sides skip an attack for the same reason: a dict keeps one entry, and the order.
    skipped = dict.fromkeys(entry for _, entries in plans for entry in entries)
    order = {job.name: i for i, job in enumerate(jobs)}
    results = run_jobs(jobs, work, show_progress=case.options.show_progress)
    # Jobs finish in any order; the record must not depend on it.
    ordered = dict(sorted(results.items(), key=lambda item: order[item[0][1]]))
    left_out = [SkippedAttack(f, f, *LEFT_OUT) for f in FAMILIES if f not in chosen]
    return ordered, [*skipped, *left_out]


def _named(case: Case, family: Family, plan: Plan) -> Plan:
    """Return the plan without the attacks that `Options.attacks` leaves out."""
    jobs, skipped = plan
    if not case.options.attacks or family == "token-inference" or case.options.names(family):
        return plan
    left_out = [job.name for job in jobs if not case.options.names(job.name)]
    return [job for job in jobs if case.options.names(job.name)], [*skipped, *skip(family, left_out, LEFT_OUT)[1]]


def token_inference_jobs(case: Case, side: Side) -> Plan:
    """Return the token-inference attacks of the tier, and those that also see the columns beside the vectors."""
    runnable, skipped = _ladder(case, side, "")
    if side.beside is not None and np.ptp(side.beside, axis=0).any():
        runnable += _ladder(case, side.with_beside(), "-beside")[0]
    if side.accesses is not None:
        train, test = (
            LabelledVectors(side.accesses[rows], case.labels[rows], case.groups[rows])
            for rows in (case.train, case.test)
        )
        runnable.append(attack_job(AccessPatternAttack(), side, train, test, case.options, weight=12.0))
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
            reason = LEFT_OUT if attack.name in case.options.skip else (NO_FURTHER, code)
            skipped.append(SkippedAttack(attack.name, "token-inference", *reason))
        elif isinstance(attack, NetworkAttack) and not side.learns_from_clean:
            skipped.append(SkippedAttack(attack.name, "token-inference", *NO_FRESH))
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
        return skip("candidates", [*names, *LINKS], NO_CLEAN)
    rows = case.training_rows
    train = PairedVectors(side.learn[rows], clean[rows], case.groups[rows])
    versions, exchanged = case.substitutes, None
    if versions is not None:
        exchanged = CandidateVectors(
            side.judged[versions.rows], versions.pool, versions.truth, versions.options, case.groups[versions.rows]
        )
    tests = (("decoys", _decoys(case, side, clean), 4.0), ("substitution", exchanged, 3.0))
    runnable: list[Job] = []
    skipped: list[SkippedAttack] = []
    for what, test, weight in tests:
        for how, maker in MATCHERS:
            name = f"{what}-{how}"
            if test is None:
                reason = LEFT_OUT if what in case.options.skip else NO_VARIANTS
                skipped.append(SkippedAttack(name, "candidates", *reason))
            elif maker is FixedNormMatching and side.judged.shape[1] != clean.shape[1]:
                skipped.append(SkippedAttack(name, "candidates", *OTHER_SPACE))
            else:
                runnable.append(attack_job(maker(), side, train, test, case.options, name=name, weight=weight))
    links, unlinked = _linking_jobs(case, side, clean)
    return [*runnable, *links], [*skipped, *unlinked]


def _linking_jobs(case: Case, side: Side, clean: Embeddings) -> Plan:
    """Return linking with a second store of the same texts, and of the other texts of the same groups."""
    release, options = side.release, case.options
    if release is None and not side.is_clean:
        return skip("candidates", LINKS, ONE_STORE)
    rng = np.random.default_rng([options.seed, 21])

    def again(X: Embeddings) -> Embeddings:
        return X if release is None else release(X, rng)

    rows, store = case.training_rows, _decoys(case, side, clean)
    other = CandidateVectors(store.X, again(store.pool), store.truth, groups=store.groups)
    own = PairedVectors(side.learn[rows], side.learn[rows], case.groups[rows])
    job = attack_job(LinkingAttack(), side, own, other, options, name=LINKS[0], weight=4.0)
    tested = np.concatenate([case.test, case.ordinary_test])
    learnt, judged = (_with_several(case.groups, part) for part in (rows, tested))
    if options.groups is None or min(len(np.unique(case.groups[part])) for part in (learnt, judged)) < MIN_TEST_TEXTS:
        return [job], skip("candidates", LINKS[1:], NO_GROUPS)[1]

    def stores(part: Rows, draws: int) -> tuple[Embeddings, Embeddings]:
        """Return the mean of the first and of the second half of each group's texts, ``draws`` times."""
        order = part[np.argsort(case.groups[part], kind="stable")]
        index = np.unique(case.groups[order], return_inverse=True)[1]
        half = (np.arange(len(order)) - np.flatnonzero(np.diff(index, prepend=-1))[index]) % 2
        sides = [
            np.concatenate(
                [group_means(again(clean[order[half == which]]), index[half == which])[0] for _ in range(draws)]
            )
            for which in (0, 1)
        ]
        return sides[0], sides[1]

    known, met = stores(learnt, 1 if release is None else DRAWS), stores(judged, 1)
    of = np.tile(np.unique(case.groups[learnt]), len(known[0]) // len(np.unique(case.groups[learnt])))
    groups = CandidateVectors(met[0], met[1], np.arange(len(met[0])), groups=np.unique(case.groups[judged]))
    by_group = attack_job(
        LinkingAttack(), side, PairedVectors(*known, of), groups, options, name=LINKS[1], weight=2.0, oracle=False
    )
    return [job, by_group], []


def _with_several(groups: Rows, rows: Rows) -> Rows:
    """Return the rows whose group has another of the rows."""
    _, index, counts = np.unique(groups[rows], return_inverse=True, return_counts=True)
    return rows[counts[index] > 1]


def membership_jobs(case: Case, side: Side) -> Plan:
    """Return the attack that tells which of the test texts are in a store of half of them."""
    clean = case.embeddings
    if clean is None:
        return skip("membership", [MembershipAttack.name], NO_CLEAN)
    rows, asked = case.training_rows, _decoy_rows(case)
    few = skip("membership", [MembershipAttack.name], FEW_ASKED)
    if len(np.unique(case.groups[asked])) < 2:
        return few
    # By group: of two equal texts both are in the store, or neither.
    stored, others = split_groups(case.groups[asked], (0.5, 0.5), seed=case.options.seed)
    if min(len(stored), len(others)) < MIN_TEST_TEXTS:
        return few
    store = CandidateVectors(side.judged[asked[stored]], clean[asked], stored, groups=case.groups[asked[stored]])
    train = PairedVectors(side.learn[rows], clean[rows], case.groups[rows])
    return [attack_job(MembershipAttack(), side, train, store, case.options, weight=4.0)], []


def alignment_jobs(case: Case, side: Side) -> Plan:
    """Return the known-plaintext attacks, and in tier full the one without known pairs."""
    clean, options = case.embeddings, case.options
    is_full = options.tier == "full" or options.names(UNPAIRED)
    if clean is None:
        names = [name for name, _ in ALIGNMENTS] + [UNPAIRED] * is_full
        return skip("alignment", names, NO_CLEAN)
    rows = case.training_rows
    store = _decoys(case, side, clean)
    # These attack a secret map: the attacker knows texts of the store, and has no protector to query.
    known = PairedVectors(side.judged[rows], clean[rows], case.groups[rows], case.labels[rows])
    runnable = [
        attack_job(maker(), side, known, store, options, name=name, weight=4.0, oracle=False)
        for name, maker in ALIGNMENTS
    ]
    # Two disjoint halves of equal size: pairs that share a text would make the problem one of known pairs.
    if is_full:
        halves = split_groups(case.groups[rows], (0.5, 0.5), seed=options.seed)
        count = min(map(len, halves))
        stolen, own = (rows[half[:count]] for half in halves)
        apart = PairedVectors(side.judged[stolen], clean[own], labels=case.labels[own])
        runnable.append(
            attack_job(UnpairedAlignment(), side, apart, store, options, name=UNPAIRED, weight=30.0, oracle=False)
        )
    return runnable, []


def _decoys(case: Case, side: Side, clean: Embeddings) -> CandidateVectors:
    """Return the candidates to search: the test texts, at most 5,000 at random."""
    rows = _decoy_rows(case)
    return CandidateVectors(
        side.judged[rows],
        clean[rows],
        np.arange(len(rows)),
        groups=case.groups[rows],
        subjects=case.subjects_of(rows),
        labels=case.labels[rows],
    )


def _decoy_rows(case: Case) -> Rows:
    every = np.concatenate([case.test, case.ordinary_test])
    return np.sort(np.random.default_rng([case.options.seed, 8]).permutation(every)[:MOST_DECOYS])


def reconstruction_jobs(case: Case, sides: Sequence[Side]) -> Plan:
    """Return the reconstruction attacks, in tier full."""
    if case.options.tier == "quick" and not any(map(case.options.names, ("reconstruction", *RECONSTRUCTIONS))):
        return skip("reconstruction", RECONSTRUCTIONS, QUICK)
    # Imported here: the decoders need PyTorch, and the quick tier never uses them.
    from vecveil.auditing.families import reconstruction

    return reconstruction.jobs(case, sides)
