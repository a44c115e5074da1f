"""Held-out terms in an audit: a protector fitted on half of the concept's words, attacked on the other half.

What a protector was not told of is where methods fail. The audited protector was fitted on all words, so
another one is fitted here: the same method and settings, on the training texts, told of half of the words.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from vecveil.attacks import KernelAttack, LabelledVectors, LinearAttack
from vecveil.auditing.case import MIN_TEST_TEXTS, Case, Side, Skipped
from vecveil.auditing.jobs import Job, attack_job
from vecveil.types import Embeddings

__all__ = ["Refit", "halves", "jobs"]

FAMILY = "held-out-terms"
NAMES = ("listed-half", "unlisted-half")
_ATTACKS = (LinearAttack, KernelAttack)

FEW = "It needs words enough for two halves, each in 20 test texts or more."
NO_ENCODER = "It encodes texts with half of the words removed, and there is no encoder."
NO_PROTECTOR = "It fits a protector on half of the words, and there is none."
Refit = Callable[
    [Embeddings, Embeddings, npt.NDArray[np.uint8], Embeddings, npt.NDArray[np.intp]], Side | str
]
"""(positive, negative, labels, background, groups) -> the protected side of the new protector, or why not."""


def skipped(reason: str) -> list[Skipped]:
    """Return the entries for a family that is not run."""
    return [Skipped(f"{half}-{maker.name}", FAMILY, reason) for half in NAMES for maker in _ATTACKS]


def halves(case: Case) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the columns of the listed and of the unlisted words: of each two next in frequency, one each."""
    rng = np.random.default_rng([case.options.seed, 6])
    V = len(case.vocabulary)
    order = np.arange(V)
    listed = []
    for start in range(0, V - 1, 2):
        listed.append(order[start + int(rng.integers(2))])
    chosen = np.array(sorted(listed), dtype=np.intp)
    return chosen, np.setdiff1d(order, chosen)


def jobs(case: Case, clean: Side, refit: Refit | None) -> tuple[list[Job], list[Skipped]]:
    """Return the attacks on both halves, on clean vectors and behind a protector told of one half."""
    if refit is None:
        return [], skipped(NO_PROTECTOR)
    if case.encode is None or case.embeddings is None or case.matches.labels is not None:
        return [], skipped(NO_ENCODER)
    columns = halves(case)
    tested = [case.test[case.labels[case.test][:, part].any(axis=1)] for part in columns]
    listed = columns[0]
    fitted = case.train[case.labels[case.train][:, listed].any(axis=1)]
    if min(map(len, tested)) < MIN_TEST_TEXTS or len(fitted) < MIN_TEST_TEXTS:
        return [], skipped(FEW)
    words = {case.vocabulary.tokens[i] for i in listed}
    negatives = case.encode(_without(case, fitted, words))
    others = np.setdiff1d(np.concatenate([case.train, case.ordinary_train]), fitted)
    protected = refit(
        case.embeddings[fitted], negatives, case.labels[fitted][:, listed],
        case.embeddings[others], case.groups[fitted],
    )  # fmt: skip
    if isinstance(protected, str):
        return [], skipped(protected)
    found = []
    for half, part in zip(NAMES, columns, strict=True):
        for side in (clean, protected):
            train, test = _evidence(case, side, part)
            for attack in (LinearAttack(), KernelAttack(rows=4096)):
                found.append(
                    attack_job(
                        attack,
                        side,
                        train,
                        test,
                        case.options,
                        name=f"{half}-{attack.name}",
                        family=FAMILY,
                        weight=3.0,
                    )
                )
    return found, []


def _evidence(
    case: Case, side: Side, part: npt.NDArray[np.intp]
) -> tuple[LabelledVectors, LabelledVectors]:
    def of(rows: npt.NDArray[np.intp], X: Embeddings) -> LabelledVectors:
        rows = rows[case.labels[rows][:, part].any(axis=1)]
        return LabelledVectors(X[rows], case.labels[rows][:, part], case.groups[rows])

    return of(case.train, side.learn), of(case.test, side.judged)


def _without(case: Case, rows: npt.NDArray[np.intp], words: set[str]) -> list[str]:
    """Return the texts with the spans removed that hold one of ``words``."""
    from vecveil.concepts.folding import words as words_of
    from vecveil.concepts.rewriting import remove

    return [
        remove(case.texts[i], [s for s in case.matches.spans[i] if words & set(words_of(s.term))])
        for i in rows
    ]
