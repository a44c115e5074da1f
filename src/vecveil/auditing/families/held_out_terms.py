"""Held-out terms: fit the method on half of the concept's words, and attack the other half.

The audited protector was fitted on all words, so the same method and settings are fitted again: on half of the words
and half of the training texts. Attackers learn from the other texts, as an erasure hides more in the texts of its fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vecveil.attacks import Attack, AttackResult, KernelAttack, LabelledVectors, LinearAttack, split_groups
from vecveil.auditing.case import MIN_TEST_TEXTS, Case, Rows, Side
from vecveil.auditing.jobs import Job, Plan, attack_job, skip
from vecveil.concepts import Concept, Detector, TermDetector, mark_words
from vecveil.concepts.folding import canonical
from vecveil.concepts.folding import words as words_of
from vecveil.concepts.matching import remove
from vecveil.errors import VecveilError
from vecveil.protector import Protector
from vecveil.protector.data import Data
from vecveil.protector.fitting import refit, refit_refusal
from vecveil.records.audit import Family
from vecveil.records.verdict import NO_ENCODER
from vecveil.types import Embeddings

FAMILY: Family = "held-out-terms"
ROWS = 4096  # training rows of the kernel attack, whose cost grows with their cube
NAMES = ("unlisted-linear", "unlisted-kernel")

FEW = (
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
        """Return the case as a protector sees it that knows the listed words.

        A text stage rewrites what its detectors find by type; of lists of terms only those with a listed word are left.
        """
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
            # Half of the texts may be too few for the method: the audit goes on without this family.
            return f"The method cannot be fitted on half of the words: {error}"
        released = other.protect(X, np.random.default_rng([self.seed, 7]))
        return Side("protected", X, released, other.release(), other.released_noise_covariance())


def _halves(case: Case) -> tuple[Rows, Rows]:
    """Return the columns of listed and unlisted words: of every two neighbours in frequency, one of each."""
    rng = np.random.default_rng([case.options.seed, 6])
    V = len(case.vocabulary)
    # Both halves are then equally frequent, so that a difference between them is not one of frequency.
    listed = [start + int(rng.integers(2)) for start in range(0, V - 1, 2)]
    chosen = np.array(listed, dtype=np.intp)
    return chosen, np.setdiff1d(np.arange(V), chosen)


def jobs(case: Case, clean: Side, refit: Refit | None) -> Plan:
    """Return the attacks on both halves, on clean vectors and on those of a protector fitted on one half."""
    if refit is None:
        return skip(FAMILY, NAMES, NO_PROTECTOR)
    if case.encode is None or case.embeddings is None:
        return skip(FAMILY, NAMES, NOTHING_ENCODES)
    if not case.has_spans:
        return skip(FAMILY, NAMES, WHOLE_TEXTS)
    listed, unlisted = _halves(case)
    if len(listed) == 0 or len(np.unique(case.groups[case.train])) < 2:
        return skip(FAMILY, NAMES, FEW)
    parts = split_groups(case.groups[case.train], (0.5, 0.5), seed=case.options.seed)
    for_fit, for_attack = (case.train[part] for part in parts)
    fitted = _holding(case, for_fit, listed)
    parts_needed = [fitted, *(_holding(case, rows, c) for rows in (for_attack, case.test) for c in (listed, unlisted))]
    if min(map(len, parts_needed)) < MIN_TEST_TEXTS:
        return skip(FAMILY, NAMES, FEW)
    words = {case.vocabulary.tokens[i] for i in listed}
    case = refit.seen(case, words, set(case.vocabulary.tokens) - words)
    # The background holds texts with unlisted words: to the fit they are ordinary texts.
    others = np.setdiff1d(np.concatenate([for_fit, case.ordinary_train]), fitted)
    # Negatives keep the unlisted words: the fit must not learn from their removal.
    protected = refit.side(case, fitted, others, _without(case, fitted, words), listed)
    if isinstance(protected, str):
        return skip(FAMILY, NAMES, (protected, "not-fitted"))
    return [
        _both(case, attack, side, for_attack, (listed, unlisted), name)
        for side in (clean, protected)
        for name, attack in zip(NAMES, (LinearAttack(), KernelAttack(rows=ROWS)), strict=True)
    ], []


def _both(case: Case, attack: Attack[Any, Any], side: Side, learnt: Rows, columns: tuple[Rows, Rows], name: str) -> Job:
    """Return the job whose main figure is of the unlisted words; the listed ones are a second figure."""
    listed, unlisted = (
        attack_job(attack, side, *_evidence(case, side, learnt, part), case.options, name=name, family=FAMILY)
        for part in columns
    )

    def run(folder: Path | None) -> AttackResult:
        # One job for both: they are read together, and must not be saved or skipped apart.
        result, other = unlisted.run(folder), listed.run(folder)
        known = replace(other.main, metric=f"{other.main.metric} of listed words")
        return replace(
            result,
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
    """Return the texts without the spans that hold one of ``words``."""
    return [remove(case.texts[i], [s for s in case.matches.spans[i] if words & set(words_of(s.term))]) for i in rows]
