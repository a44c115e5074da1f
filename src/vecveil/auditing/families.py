"""Choose the attacks of an audit, and run them: the families on each side, and the data of each.

Averaging attacks see several releases of the same text, with fresh and with keyed noise. Attacks on held-out terms fit
the method again on half of the words and half of the training texts; they learn from the other texts, as an erasure
hides more in the texts of its fit.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vecveil.auditing.attacks import (
    AccessPatternAttack,
    AnchorLinkingAttack,
    Attack,
    AttackResult,
    AveragingAttack,
    CandidateAttack,
    CandidateVectors,
    CosineMatching,
    FixedNormMatching,
    FurtherKernelAttack,
    KernelAttack,
    KernelProbe,
    LabelledVectors,
    LikelihoodMatching,
    LinearAttack,
    LinearProbe,
    LinkingAttack,
    MembershipAttack,
    MLPProbe,
    MultilaterationAttack,
    NetworkAttack,
    PairedVectors,
    PermutationAlignment,
    ProcrustesAlignment,
    RepeatedVectors,
    RidgeAlignment,
    TransplantAttack,
    UnpairedAlignment,
    WholeVocabularyAttack,
    split_groups,
)
from vecveil.auditing.attacks.candidates import group_means
from vecveil.auditing.attacks.ladder import ladder_attacks
from vecveil.auditing.case import MIN_TEST_TEXTS, Case, Rows, Side
from vecveil.auditing.jobs import Job, Plan, WorkFolder, attack_job, run_jobs, skip
from vecveil.auditing.records.audit_record import FAMILIES, Family, LearningPoint, SkippedAttack
from vecveil.auditing.records.verdict import NO_ENCODER
from vecveil.errors import VecveilError
from vecveil.privacy.concepts import Concept, Detector, TermDetector, mark_words
from vecveil.privacy.concepts.matching import remove
from vecveil.privacy.concepts.matching import words as words_of
from vecveil.privacy.protector import Protector
from vecveil.privacy.protector.data import Data
from vecveil.privacy.protector.fitting import refit, refit_refusal
from vecveil.texts.folding import canonical
from vecveil.types import Embeddings, Release

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
OTHER_SPACE = (
    "It measures from clean vectors to released ones, and these have a different dimension.",
    "other-dimension",
)
QUICK = ("Reconstruction attacks take minutes to an hour: tier full runs them.", "quick-tier")

ONE_STORE = ("It links two stores, and there is one, without the means to protect a second.", "no-oracle")
FEW_SHARED = ("No rare word of a test text is in two of the training texts.", "too-few-texts")
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
LINKS = ("linking", "linking-anchors", "linking-groups")
ANCHORED = 2000  # rows to link from few known pairs: some hundred times all of them are compared
DRAWS = 8  # releases of each training group that links are learnt from
_FAMILY_OF: dict[str, Family] = {
    **dict.fromkeys(RECONSTRUCTIONS, "reconstruction"),
    **dict.fromkeys(LINKS, "candidates"),
    UNPAIRED: "alignment",
}
NAMED = (*(family for family in FAMILIES if family != "token-inference"), *_FAMILY_OF)
"""Names that `Options.attacks` accepts: families, and attacks that run alone."""
SKIPPABLE = (*FAMILIES[1:], "ensemble", "kernel-further", "network", "substitution")
"""Names that `Options.skip` accepts: families, and slow attacks."""


def run_families(
    case: Case,
    sides: Sequence[Side],
    work: WorkFolder | None = None,
    *,
    keyed: Release | None = None,
    refit: Refit | None = None,
) -> tuple[Mapping[tuple[str, str], AttackResult], list[SkippedAttack]]:
    """Return the results of the tier's attacks by (side, name), in order, and the skipped attacks.

    ``sides`` are the clean one, if there are clean vectors, and the protected one; ``keyed`` releases with keyed noise.
    """
    per_side = {
        "token-inference": token_inference_jobs,
        "probe": probe_jobs,
        "candidates": candidate_jobs,
        "averaging": lambda case, side: averaging_jobs(case, side, keyed),
        "alignment": alignment_jobs,
        "whole-vocabulary": whole_vocabulary_jobs,
        "membership": membership_jobs,
    }
    # These share work between sides: a decoder trained on clean vectors, a protector fitted on half of the words.
    every_side = {
        "reconstruction": lambda: reconstruction_jobs(case, sides),
        "held-out-terms": lambda: held_out_jobs(case, sides[0], refit),
    }
    named = {_FAMILY_OF.get(name, name) for name in case.options.attacks} | {"token-inference"}
    chosen = [
        family
        for family in FAMILIES
        if family not in case.options.skip and (not case.options.attacks or family in named)
    ]
    plans = [_named(case, f, per_side[f](side.seen or case, side)) for side in sides for f in chosen if f in per_side]
    # Make all plans before the first job, so that the main thread computes what the sides share once.
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
    jobs, skipped = plan
    if not case.options.attacks or family == "token-inference" or case.options.names(family):
        return plan
    left_out = [job.name for job in jobs if not case.options.names(job.name)]
    return [job for job in jobs if case.options.names(job.name)], [*skipped, *skip(family, left_out, LEFT_OUT)[1]]


def token_inference_jobs(case: Case, side: Side) -> Plan:
    """Return the token-inference attacks of the tier, alone and with the columns stored with the vectors."""
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
        if attack.name in case.options.skip:
            skipped.append(SkippedAttack(attack.name, "token-inference", *LEFT_OUT))
        elif isinstance(attack, TransplantAttack) and train.without is None:
            skipped.append(SkippedAttack(attack.name, "token-inference", NO_TRANSPLANT, code))
        elif isinstance(attack, FurtherKernelAttack) and train.further is None:
            skipped.append(SkippedAttack(attack.name, "token-inference", NO_FURTHER, code))
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
    # If every text has one of two labels there are no ordinary texts: the labels are the classes.
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
    rows, store = case.training_rows, _decoys(case, side, clean)
    # Of a secret map: the attacker knows a few texts of the store and has a list of others, without the protector.
    known = PairedVectors(side.judged[rows], clean[rows], case.groups[rows])
    few = _decoys(case, side, clean, ANCHORED)
    anchored = attack_job(AnchorLinkingAttack(), side.without_oracle, known, few, options, name=LINKS[1], weight=4.0)
    if not side.learns_from_clean:
        return [anchored], skip("candidates", (LINKS[0], LINKS[2]), ONE_STORE)[1]
    rng = np.random.default_rng([options.seed, 21])

    def again(X: Embeddings) -> Embeddings:
        return X if release is None else release(X, rng)

    other = CandidateVectors(store.X, again(store.pool), store.truth, groups=store.groups)
    own = PairedVectors(side.learn[rows], side.learn[rows], case.groups[rows])
    job = attack_job(LinkingAttack(), side, own, other, options, name=LINKS[0], weight=4.0)
    tested = np.concatenate([case.test, case.ordinary_test])
    learnt, judged = (_with_several(case.groups, part) for part in (rows, tested))
    links = [job, anchored]
    if options.groups is None or min(len(np.unique(case.groups[part])) for part in (learnt, judged)) < MIN_TEST_TEXTS:
        return links, skip("candidates", LINKS[2:], NO_GROUPS)[1]

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

    first, met = stores(learnt, 1 if release is None else DRAWS), stores(judged, 1)
    of = np.tile(np.unique(case.groups[learnt]), len(first[0]) // len(np.unique(case.groups[learnt])))
    groups = CandidateVectors(met[0], met[1], np.arange(len(met[0])), groups=np.unique(case.groups[judged]))
    by_group = attack_job(
        LinkingAttack(), side.without_oracle, PairedVectors(*first, of), groups, options, name=LINKS[2], weight=2.0
    )
    return [*links, by_group], []


def _with_several(groups: Rows, rows: Rows) -> Rows:
    """Return the rows whose group has another of the rows."""
    _, index, counts = np.unique(groups[rows], return_inverse=True, return_counts=True)
    return rows[counts[index] > 1]


def whole_vocabulary_jobs(case: Case, side: Side) -> Plan:
    """Return the attack on every word of the training texts; the main figure leaves the attacked words out."""
    attack = WholeVocabularyAttack(listed=case.vocabulary.tokens, split=words_of)
    # The whole corpus is encoded in tier full only: it takes longer than all attacks of tier quick.
    train, test = case.written(side, corpus=case.options.tier == "full")
    if not attack.scorable(train.texts, test.texts):
        return skip("whole-vocabulary", [attack.name], FEW_SHARED)
    return [attack_job(attack, side, train, test, case.options, weight=4.0)], []


def membership_jobs(case: Case, side: Side) -> Plan:
    """Return the attack that recovers which of the test texts are in a store of half of them."""
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
        attack_job(maker(), side.without_oracle, known, store, options, name=name, weight=4.0)
        for name, maker in ALIGNMENTS
    ]
    # Two disjoint halves of equal size: pairs that share a text would make the problem one of known pairs.
    if is_full:
        halves = split_groups(case.groups[rows], (0.5, 0.5), seed=options.seed)
        count = min(map(len, halves))
        stolen, own = (rows[half[:count]] for half in halves)
        apart = PairedVectors(side.judged[stolen], clean[own], labels=case.labels[own])
        runnable.append(
            attack_job(UnpairedAlignment(), side.without_oracle, apart, store, options, name=UNPAIRED, weight=30.0)
        )
    return runnable, []


def _decoys(case: Case, side: Side, clean: Embeddings, most: int = MOST_DECOYS) -> CandidateVectors:
    """Return the candidates to search: at most 5,000 of the test texts, at random."""
    rows = _decoy_rows(case, most)
    return CandidateVectors(
        side.judged[rows],
        clean[rows],
        np.arange(len(rows)),
        groups=case.groups[rows],
        subjects=case.subjects_of(rows),
        labels=case.labels[rows],
    )


def _decoy_rows(case: Case, most: int = MOST_DECOYS) -> Rows:
    every = np.concatenate([case.test, case.ordinary_test])
    return np.sort(np.random.default_rng([case.options.seed, 8]).permutation(every)[:most])


def reconstruction_jobs(case: Case, sides: Sequence[Side]) -> Plan:
    if case.options.tier == "quick" and not any(map(case.options.names, ("reconstruction", *RECONSTRUCTIONS))):
        return skip("reconstruction", RECONSTRUCTIONS, QUICK)
    # Imported here: the decoders need PyTorch, and the quick tier never uses them.
    from vecveil.auditing import full_tier

    return full_tier.jobs(case, sides)


# -- averaging

RELEASES = (1, 4, 16)  # noise of the mean falls by half from each to the next
FRESH = tuple(f"averaging-{k}" for k in RELEASES)
KEYED = tuple(f"{name}-keyed" for name in FRESH)
AVERAGED_ROWS = 4096  # of the kernel attack on the means: the strongest behind erasure
NO_SERIES = ("It needs several releases of the same texts, and the store has one.", "no-oracle")
NO_NOISE = ("The method draws no noise that a key could fix.", "no-noise")
FEW_RELEASES, SPARE = 64, 8  # n + 1 spheres determine a point of R^n; n + 8 leave some for rounding errors
LOCATED = 100  # located test texts: each takes k releases and an inversion
MAX_LOCATED = 2**25  # numbers in the releases of all of them: 128 MiB in float32
FEWEST_LOCATED = 20  # of fewer texts the figure has no useful interval
FIXED = 5e-3
"""Maximum relative deviation of the noise's length for solving the sphere equations."""
VARIES = ("The length of the noise varies, so that distances say nothing that the mean does not.", "noise-length")
REPEATS = ("Releases of one text are equal: several reveal no more than one.", "equal-releases")
NO_ROOM = (f"The releases of {FEWEST_LOCATED} texts would take more than 128 MiB.", "memory")


class _FittedOnce(AveragingAttack):
    """An averaging attack that several jobs share and the first one fits."""

    def __init__(self, k: int, inner: KernelAttack) -> None:
        super().__init__(k, inner)
        self._lock = threading.Lock()
        self._states: list[Any] = []

    def _fit(self, *given: Any) -> Any:
        # Jobs run in parallel: the lock makes the others wait for the fit instead of repeating it.
        with self._lock:
            if not self._states:
                self._states.append(super()._fit(*given))
            return self._states[0]


def averaging_jobs(case: Case, side: Side, keyed: Release | None) -> Plan:
    """Return the attacks on means of releases, fresh ones and ``keyed`` ones, and on their distances."""
    train, test = case.labelled(side)
    reader = KernelAttack(rows=AVERAGED_ROWS)
    if side.name == "clean":  # without noise the mean of many releases is the one vector
        once = attack_job(AveragingAttack(1, reader), side, train, test, case.options, name="averaging")
        return [once, *_clean_jobs(case, side, train)], []
    if side.release is None:
        reason = REPEATS if side.learns_from_clean else NO_SERIES
        return skip("averaging", (*FRESH, *KEYED, *_sphere_names(side)), reason)
    rng = np.random.default_rng([case.options.seed, 4])
    X = side.learn[case.test]

    def judged(mean: Embeddings) -> LabelledVectors:
        return LabelledVectors(mean, case.labels[case.test], case.groups[case.test])

    single = _FittedOnce(1, reader)
    runnable = []
    for name, (k, mean) in zip(FRESH, _means(side.release, X, rng).items(), strict=True):
        attack = single if k == 1 else AveragingAttack(k, reader)
        runnable.append(attack_job(attack, side, train, judged(mean), case.options, name=name, weight=5.0))
    located, skipped = _spheres(case, side, side.release, train)
    if keyed is None:
        skipped = [*(SkippedAttack(name, "averaging", *NO_NOISE) for name in KEYED), *skipped]
        return runnable + located, skipped
    for name, (k, mean) in zip(KEYED, _means(keyed, X, rng).items(), strict=True):
        # All keyed releases of a text are equal: an attacker without the key learns from single releases.
        job = attack_job(single, side, train, judged(mean), case.options, name=name)
        runnable.append(_of_keyed(job, k))
    return runnable + located, skipped


def _sphere_counts(side: Side) -> list[int]:
    """Return the numbers of releases whose distances are attacked: a few, and enough to determine the vector."""
    # Below n + 1 releases the spheres do not determine x: 64 show the gain of an attacker with fewer.
    return sorted({FEW_RELEASES, side.learn.shape[1] + SPARE})


def _sphere_name(k: int) -> str:
    return f"averaging-{k}-spheres"


def _sphere_names(side: Side) -> list[str]:
    return [_sphere_name(k) for k in _sphere_counts(side)]


def _spheres(case: Case, side: Side, release: Release, train: LabelledVectors) -> Plan:
    names = _sphere_names(side)
    if side.judged.shape[1] != side.learn.shape[1]:
        return skip("averaging", names, OTHER_SPACE)
    rng = np.random.default_rng([case.options.seed, 5])
    some = side.learn[case.test[:64]]
    # Two draws of one generator: equal releases mean no noise, or noise fixed by a key.
    first = release(some, rng)
    if np.array_equal(first, release(some, rng)):
        return skip("averaging", names, REPEATS)
    # ‖y − x‖ must be (almost) the same for every release: only then is x at a known distance from each.
    lengths = np.linalg.norm(first.astype(np.float64) - some, axis=1)
    if lengths.std() > FIXED * lengths.mean():
        return skip("averaging", names, VARIES)
    located, skipped = [], []
    for k, rows in _to_locate(case, side):
        if len(rows):
            located.append(_located(case, side, release, train, rows, k))
        else:
            skipped.append(SkippedAttack(_sphere_name(k), "averaging", *NO_ROOM))
    return located, skipped


def _to_locate(case: Case, side: Side) -> Iterator[tuple[int, Rows]]:
    """Yield each number of releases with the rows to score: no rows if the releases need too much memory."""
    order = np.random.default_rng([case.options.seed, 7]).permutation(case.test)
    for k in _sphere_counts(side):
        count = min(LOCATED, MAX_LOCATED // (k * side.learn.shape[1]))
        yield k, np.sort(order[: count if count >= FEWEST_LOCATED else 0])


def _clean_jobs(case: Case, side: Side, train: LabelledVectors) -> list[Job]:
    return [
        attack_job(
            AveragingAttack(1, LinearAttack()),
            side,
            train,
            LabelledVectors(side.judged[rows], case.labels[rows], case.groups[rows]),
            case.options,
            name=_sphere_name(k),
        )
        for k, rows in _to_locate(case, side)
        if len(rows)
    ]


def _located(case: Case, side: Side, release: Release, train: LabelledVectors, rows: Rows, k: int) -> Job:
    """Return the attack on k releases of the given texts; the job draws them when it runs, to save memory."""

    def run(folder: Path | None) -> AttackResult:
        rng = np.random.default_rng([case.options.seed, 6, k])
        X, labels, groups = side.learn[rows], case.labels[rows], case.groups[rows]
        test = RepeatedVectors.of(X, labels, k, release, rng, groups)
        attack = MultilaterationAttack(k, LinearAttack())
        return attack_job(attack, side, train, test, case.options, name=_sphere_name(k)).run(folder)

    return Job(_sphere_name(k), side.name, run, 20.0)


def _means(release: Release, X: Embeddings, rng: np.random.Generator) -> Mapping[int, Embeddings]:
    # A running sum: holding all 16 releases of every test text at once would take 16 times the memory.
    means: dict[int, Embeddings] = {}
    total = np.zeros(1)
    for k in range(1, RELEASES[-1] + 1):
        Y = release(X, rng)
        total = total + Y
        if k in RELEASES:
            means[k] = (total / k).astype(Y.dtype)
    return means


def _of_keyed(job: Job, k: int) -> Job:
    """Return the job with the number of keyed releases in description and cost, where `single` states 1."""

    def run(folder: Path | None) -> AttackResult:
        result = job.run(folder)
        releases = "1 keyed release" if k == 1 else f"{k} keyed releases"
        read = result.description.partition(": ")[2]
        mean = "On" if k == 1 else "On the mean of"
        return replace(
            result,
            description=f"{mean} {releases} of each text: {read}",
            cost=f"{releases} of each text; {result.cost.partition('; ')[2]}",
        )

    return replace(job, run=run)


# -- held-out terms

HELD_OUT_ROWS = 4096  # training rows of the kernel attack, whose cost grows with their cube
HELD_OUT = ("unlisted-linear", "unlisted-kernel")

FEW_WORDS = (
    "It needs words for two halves, and 20 texts with words of each to fit on, to learn from and to judge on.",
    "too-few-texts",
)
NOTHING_ENCODES = ("It encodes texts with half of the words removed, and there is no encoder.", NO_ENCODER)
WHOLE_TEXTS = ("It removes words from texts, and the concept labels whole texts.", "labels")
NO_PROTECTOR = ("It fits a protector on half of the words, and there is none.", "no-protector")


@dataclass(frozen=True, eq=False)
class Refit:
    """Fits the audited method again, with ``seed`` for the release of all texts."""

    protector: Protector
    seed: int

    def seen(self, case: Case, listed: set[str], unlisted: set[str]) -> Case:
        """Return the case as rewritten by a text stage that knows the listed words."""
        rewriter = self.protector.rewriter
        if rewriter is None or self.protector.text_only:
            return case
        detectors: list[Detector] = []
        for detector in rewriter.concept.detectors:
            if isinstance(detector, TermDetector):
                held = {term: set(words_of(canonical(term))) for term in detector.terms}
                terms = [term for term, words in held.items() if words & listed or not words & unlisted]
                if not terms:
                    continue
                detector = TermDetector(terms, case_sensitive=detector.case_sensitive, label=detector.label)
            detectors.append(detector)
        if not detectors:
            return case
        limited = replace(rewriter, concept=Concept(rewriter.concept.name, tuple(detectors)))
        return case.rewritten(limited.rewrite)

    def side(self, case: Case, fitted: Rows, others: Rows, negatives: Sequence[str], columns: Rows) -> Side | str:
        """Return the side of a protector fitted on the rows ``fitted`` and their negatives, or why there is none."""
        refusal = refit_refusal(self.protector)
        if refusal is not None:
            return refusal
        X, encode = case.embeddings, case.encode
        assert X is not None
        assert encode is not None
        try:
            listed = [case.vocabulary.tokens[j] for j in columns]
            texts = [case.texts[i] for i in (*fitted, *others)]
            marks = mark_words(texts, listed, encode, labels=listed)
            labels = case.labels[fitted][:, columns]
            data = Data.of_pairs(X[fitted], encode(negatives), labels, X[others], case.groups[fitted], marks)
            other = refit(self.protector, data)
        except VecveilError as error:
            # Half of the texts may be too few for the method: the audit continues without this family.
            return f"The method cannot be fitted on half of the words: {error}"
        released = other.protect(X, np.random.default_rng([self.seed, 7]))
        return Side("protected", X, released, other.release(), other.released_noise_covariance())


def _halves(case: Case) -> tuple[Rows, Rows]:
    """Return the columns of listed and unlisted words: of every two neighbours in frequency, one of each."""
    rng = np.random.default_rng([case.options.seed, 6])
    V = len(case.vocabulary)
    # Both halves are then equally frequent, so frequency explains no difference between them.
    listed = [start + int(rng.integers(2)) for start in range(0, V - 1, 2)]
    chosen = np.array(listed, dtype=np.intp)
    return chosen, np.setdiff1d(np.arange(V), chosen)


def held_out_jobs(case: Case, clean: Side, refit: Refit | None) -> Plan:
    """Return the attacks on both halves, on clean vectors and on vectors of a protector fitted on one half."""
    if refit is None:
        return skip("held-out-terms", HELD_OUT, NO_PROTECTOR)
    if case.encode is None or case.embeddings is None:
        return skip("held-out-terms", HELD_OUT, NOTHING_ENCODES)
    if not case.has_spans:
        return skip("held-out-terms", HELD_OUT, WHOLE_TEXTS)
    listed, unlisted = _halves(case)
    if len(listed) == 0 or len(np.unique(case.groups[case.train])) < 2:
        return skip("held-out-terms", HELD_OUT, FEW_WORDS)
    parts = split_groups(case.groups[case.train], (0.5, 0.5), seed=case.options.seed)
    for_fit, for_attack = (case.train[part] for part in parts)
    fitted = _holding(case, for_fit, listed)
    parts_needed = [fitted, *(_holding(case, rows, c) for rows in (for_attack, case.test) for c in (listed, unlisted))]
    if min(map(len, parts_needed)) < MIN_TEST_TEXTS:
        return skip("held-out-terms", HELD_OUT, FEW_WORDS)
    words = {case.vocabulary.tokens[i] for i in listed}
    case = refit.seen(case, words, set(case.vocabulary.tokens) - words)
    # The background contains texts with unlisted words: to the fit they are ordinary texts.
    others = np.setdiff1d(np.concatenate([for_fit, case.ordinary_train]), fitted)
    # Negatives keep the unlisted words: the fit must not learn from their removal.
    protected = refit.side(case, fitted, others, _without(case, fitted, words), listed)
    if isinstance(protected, str):
        return skip("held-out-terms", HELD_OUT, (protected, "not-fitted"))
    return [
        _both(case, attack, side, for_attack, (listed, unlisted), name)
        for side in (clean, protected)
        for name, attack in zip(HELD_OUT, (LinearAttack(), KernelAttack(rows=HELD_OUT_ROWS)), strict=True)
    ], []


def _both(case: Case, attack: Attack[Any, Any], side: Side, learnt: Rows, columns: tuple[Rows, Rows], name: str) -> Job:
    """Return the job whose main figure is of the unlisted words; the listed ones are a second figure."""
    listed, unlisted = (
        attack_job(attack, side, *_evidence(case, side, learnt, part), case.options, name=name) for part in columns
    )

    def run(folder: Path | None) -> AttackResult:
        # One job for both: they are compared, and must not be saved or skipped separately.
        result, other = unlisted.run(folder), listed.run(folder)
        known = replace(other.main, metric=f"{other.main.metric} of listed words")
        return replace(
            result,
            family="held-out-terms",
            estimates={**result.estimates, "listed": known},
            seconds=result.seconds + other.seconds,
            description=f"{result.description} On words left out of the fit.",
        )

    return replace(unlisted, run=run, weight=5.0)


def _holding(case: Case, rows: Rows, part: Rows) -> Rows:
    held: Rows = rows[case.labels[rows][:, part].any(axis=1)]
    return held


def _evidence(case: Case, side: Side, learnt: Rows, part: Rows) -> tuple[LabelledVectors, LabelledVectors]:
    def of(rows: Rows, X: Embeddings) -> LabelledVectors:
        rows = _holding(case, rows, part)
        return LabelledVectors(X[rows], case.labels[rows][:, part], case.groups[rows])

    return of(learnt, side.learn), of(case.test, side.judged)


def _without(case: Case, rows: Rows, words: set[str]) -> list[str]:
    return [remove(case.texts[i], [s for s in case.matches.spans[i] if words & set(words_of(s.term))]) for i in rows]


# -- the learning curve

SHARES = (1 / 8, 1 / 4, 1 / 2)
FEWEST_LEARNT = 20  # texts of a part: from fewer an attack learns next to nothing


def learning_curve(case: Case, side: Side, worst: AttackResult, work: WorkFolder | None = None) -> list[LearningPoint]:
    """Return the R-precision of the strongest attack on an eighth, a quarter, half and all of its training texts."""
    jobs = {job.name: job for job in token_inference_jobs(side.seen or case, side)[0]}
    of_part = jobs[worst.name].of_part
    if of_part is None:
        return []
    texts, whole = of_part(1.0)
    parts = [part for part in map(of_part, SHARES) if part[0] >= FEWEST_LEARNT]
    results = run_jobs([job for _, job in parts], work, show_progress=case.options.show_progress)
    measured = [(count, results[job.side, job.name]) for count, job in parts]
    return [
        LearningPoint(count, each.main.value, each.main.low, each.main.high)
        for count, each in [*measured, (texts, worst)]
    ]


def strongest_result(results: Mapping[tuple[str, str], AttackResult]) -> AttackResult:
    """Return the token-inference attack with the highest R-precision on protected vectors."""
    tried = [each for (side, _), each in results.items() if side == "protected" and each.family == "token-inference"]
    return max(tried, key=lambda result: result.value)
