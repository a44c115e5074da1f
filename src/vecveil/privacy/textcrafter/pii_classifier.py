"""PII classifier: a logistic regression p(e) = P(PII | e) on the vectors of texts, and its training rows.

TextCrafter, Eq. 6 to 8: plain texts with detected PII join the positives, and the larger class is sampled down.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import IncompatibleError, InvalidInputError, optional_import
from vecveil.privacy.concepts import Concept, Detector, PresidioDetector
from vecveil.privacy.utility.estimates import Estimate, cluster_bootstrap, share_interval
from vecveil.privacy.utility.ranking import auc
from vecveil.privacy.utility.tasks import macro_f1
from vecveil.types import Embeddings, Texts, Vector
from vecveil.validation import check_embeddings, check_groups, check_positive, check_seed, check_texts, number_groups

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class HeldOutFigures:
    """Held-out figures of a classifier, each with interval and chance level.

    Attributes:
        used_rows: number of each class in the balanced sample, which gives the weights.
        held_out_rows: number of both classes behind the figures.
        accuracy: at p(e) ≥ 0.5; chance answers the more frequent class of the fitted rows.
        macro_f1: mean of both classes' F1; the same chance.
        positive_f1: F1 of the PII class; chance answers PII for every row.
        auc: area under the ROC curve; chance is 0.5.
        regularisation: λ, the inverse of scikit-learn's C.
        warnings: sentences on what makes p(e) doubtful; may be empty.
    """

    positive_rows: int
    plain_rows: int
    used_rows: int
    held_out_rows: int
    accuracy: Estimate
    macro_f1: Estimate
    positive_f1: Estimate
    auc: Estimate
    regularisation: float
    seed: int
    warnings: tuple[str, ...] = ()

    def to_record(self) -> dict[str, Any]:
        figures = ("accuracy", "macro_f1", "positive_f1", "auc")
        return {
            "rows": {
                "positive": self.positive_rows,
                "plain": self.plain_rows,
                "used_of_each": self.used_rows,
                "held_out": self.held_out_rows,
            },
            **{name: getattr(self, name).to_record() for name in figures},
            "regularisation": self.regularisation,
            "seed": self.seed,
            "warnings": list(self.warnings),
            "weights_from": "the whole balanced sample; the figures are of a fit without the held-out rows",
        }


def measure(logits: Array, y: Array, groups: Array, fitted: Array, seed: int) -> dict[str, Estimate]:
    """Return accuracy, both F1 and AUC of held-out ``logits``; ``fitted`` are the classes of the fitted rows."""
    answer = logits >= 0  # p(e) ≥ 0.5
    # Chance level: always answer the more frequent class.
    guess = np.full(len(y), bool(fitted.mean() >= 0.5))
    right = (answer == y).astype(np.float64)
    low, high = share_interval(right, groups)
    rows, pii = len(y), float(y.mean())
    # F1 = 2 TP / (answered PII + is PII) is a quotient of sums, so groups can be resampled.
    hits, sizes = 2.0 * (answer & y), answer.astype(np.float64) + y
    f1_low, f1_high = cluster_bootstrap(hits, sizes, groups, seed=seed)
    value = float(right.mean())
    return {
        "accuracy": Estimate("accuracy", value, low, high, rows, float((guess == y).mean())),
        "macro_f1": macro_f1(y, answer, groups=groups, guess=guess, seed=seed),
        # Chance of F1 when PII is said of every row: precision is its share, recall is 1.
        "positive_f1": Estimate(
            "F1 of PII", float(hits.sum() / sizes.sum()), f1_low, f1_high, rows, 2 * pii / (1 + pii)
        ),
        "auc": auc(logits, y, groups),
    }


def doubts(figures: Mapping[str, Estimate]) -> list[str]:
    """Return a sentence for each figure whose interval includes chance."""
    return [
        f"The held-out {name} of the PII classifier is {estimate.value:.3f} (95 % interval {estimate.low:.3f} to "
        f"{estimate.high:.3f}), not above chance ({estimate.chance:.3f}): p(e) may say nothing about PII."
        for name, estimate in (("AUC", figures["auc"]), ("accuracy", figures["accuracy"]))
        if estimate.chance is not None and estimate.low <= estimate.chance
    ]


HELD_OUT = 0.2  # share of the groups behind the figures
MIN_ROWS = 20  # of each class: with fewer, a held-out fifth has fewer than four
_STEPS = 2000  # iterations of L-BFGS


@dataclass(frozen=True, eq=False, repr=False)
class PiiClassifier:
    """A logistic regression p(e) = sigmoid(w · e + b); w is (n,) float64. ``held_out`` has its figures, or None."""

    weights: Vector
    intercept: float
    held_out: HeldOutFigures | None = None

    def __post_init__(self) -> None:
        weights = np.array(self.weights, dtype=np.float64)  # a copy: the caller's array stays writable
        if weights.ndim != 1 or not weights.size or not np.isfinite(weights).all():
            raise ValueError("classifier")
        if not np.isfinite(self.intercept):
            raise ValueError("classifier")
        weights.flags.writeable = False
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "intercept", float(self.intercept))

    def __repr__(self) -> str:
        figures = self.held_out
        auc_text = "" if figures is None else f", held-out AUC {figures.auc.value:.3f}"
        return f"PiiClassifier(dimension={self.dimension}{auc_text})"

    @property
    def dimension(self) -> int:
        return len(self.weights)

    def logit(self, X: Embeddings) -> npt.NDArray[np.float64]:
        """Return w · e + b for each row of ``X`` (N, n): (N,) float64."""
        checked = check_embeddings(X, owner="PiiClassifier", param="X", dimension=len(self.weights))
        logits: npt.NDArray[np.float64] = checked.astype(np.float64) @ self.weights + self.intercept
        return logits

    def probability(self, X: Embeddings) -> npt.NDArray[np.float64]:
        """Return p(e) = P(PII | e) for each row of ``X`` (N, n): (N,) float64 (TextCrafter, Eq. 9)."""
        from scipy.special import expit

        p: npt.NDArray[np.float64] = expit(self.logit(X))
        return p

    def to_record(self) -> dict[str, Any]:
        """Return the figures without the weights as JSON-ready values."""
        figures = None if self.held_out is None else self.held_out.to_record()
        return {"dimension": self.dimension, "held_out": figures}


def fit_pii_classifier(
    positive: Embeddings,
    plain: Embeddings,
    *,
    groups_positive: Any = None,
    groups_plain: Any = None,
    regularisation: float = 1.0,
    seed: int = 0,
) -> PiiClassifier:
    """Return a logistic regression that separates ``positive`` from ``plain``, with its held-out figures.

    The larger class is sampled down to the smaller (TextCrafter, Eq. 8). The figures come from a fit on the sample
    without its held-out part, the weights from a second fit on all of it. Vectors are not standardised, so the weights
    apply to e itself. Figures near chance add a warning.

    Args:
        positive: (P, n) vectors of texts with PII, at least `MIN_ROWS`.
        plain: (Q, n) vectors of texts without PII, at least `MIN_ROWS`.
        groups_positive: (P,) groups; rows of one group, such as the two sides of a pair, are held out together. Equal
            names in both arguments are one group. None makes each row a group.
        groups_plain: (Q,) the same for ``plain``.
        regularisation: λ of the squared weights, the inverse of scikit-learn's C; larger makes p(e) flatter.

    Raises:
        IncompatibleError: the two differ in dimension.
    """
    owner = "fit_pii_classifier"
    positive = _class_rows(positive, owner, "positive", "a corpus without PII")
    plain = _class_rows(plain, owner, "plain", "a corpus of PII alone")
    if plain.shape[1] != positive.shape[1]:
        raise IncompatibleError(
            f"positive has dimension {positive.shape[1]} and plain has {plain.shape[1]}: encode both with one encoder.",
            param="plain",
        )
    regularisation = check_positive(regularisation, owner=owner, param="regularisation")
    seed = check_seed(seed, owner=owner)
    groups = row_groups(groups_positive, groups_plain, len(positive), len(plain), owner=owner)
    rng = np.random.default_rng(seed)
    rows_positive, rows_plain = balanced_rows(len(positive), len(plain), rng)
    used = len(rows_positive)
    X = np.concatenate([positive[rows_positive], plain[rows_plain]]).astype(np.float64)
    y = np.repeat([True, False], used)
    groups = groups[np.concatenate([rows_positive, len(positive) + rows_plain])]
    test = split_by_group(groups, y, HELD_OUT, rng, owner=owner)
    # The figures need unseen rows; the weights in use may come from all rows.
    trial, converged = _fit(X[~test], y[~test], regularisation)
    figures = measure(trial.logit(X[test]), y[test], groups[test], y[~test], seed)
    weights, again = _fit(X, y, regularisation)
    sentences = doubts(figures)
    if not (converged and again):
        sentences.append(f"The fit stopped after {_STEPS} steps, before it converged.")
    held_out = HeldOutFigures(
        len(positive),
        len(plain),
        used,
        int(test.sum()),
        **figures,
        regularisation=regularisation,
        seed=seed,
        warnings=tuple(sentences),
    )
    return replace(weights, held_out=held_out)


def _class_rows(value: Any, owner: str, param: str, absence: str) -> Embeddings:
    checked = check_embeddings(value, owner=owner, param=param)
    if len(checked) < MIN_ROWS:
        why = f": {absence}" if not len(checked) else ""
        raise InvalidInputError(
            f"{owner}: {param} has {len(checked)} rows{why}; the classifier needs at least {MIN_ROWS} of each class.",
            param=param,
        )
    return checked


def _fit(X: Array, y: Array, regularisation: float) -> tuple[PiiClassifier, bool]:
    """Return the logistic regression of ``y`` on ``X``, and True if it converged."""
    with optional_import("The PII classifier", "scikit-learn", "textcrafter"):
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression
        from threadpoolctl import threadpool_limits
    model = LogisticRegression(C=1 / regularisation, max_iter=_STEPS)
    # Several threads would sum in a varying order: the last bits would differ between runs.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # read from n_iter_ below
        model.fit(X, y)
    converged = int(np.max(model.n_iter_)) < _STEPS
    return PiiClassifier(model.coef_[0], float(model.intercept_[0])), converged


# -- the rows of the classifier

Indices = npt.NDArray[np.int64]


def balanced_rows(positive: int, plain: int, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Return equally many row numbers of both classes, in order, sampled by ``rng`` (TextCrafter, Eq. 8)."""
    size = min(positive, plain)
    chosen = [
        np.arange(rows) if rows == size else np.sort(rng.choice(rows, size, replace=False))
        for rows in (positive, plain)
    ]
    return chosen[0].astype(np.int64), chosen[1].astype(np.int64)


def row_groups(groups_positive: Any, groups_plain: Any, positive: int, plain: int, *, owner: str) -> Indices:
    """Return each row's group as a number, positives first; rows without given groups are groups."""
    given = [
        [None] * rows if groups is None else check_groups(groups, rows, owner=owner, param=param)
        for param, groups, rows in (
            ("groups_positive", groups_positive, positive),
            ("groups_plain", groups_plain, plain),
        )
    ]
    if len({isinstance(name, str) for ids in given for name in ids if name is not None}) > 1:  # 1 and "1" would differ
        raise InvalidInputError(
            "groups_positive and groups_plain must both be integers or both be strings: a name in both is one group.",
            param="groups_plain",
        )
    return np.concatenate(number_groups(*given)).astype(np.int64)


def split_by_group(
    groups: Indices, labels: npt.NDArray[np.bool_], share: float, rng: np.random.Generator, *, owner: str
) -> npt.NDArray[np.bool_]:
    """Return the mask of held-out rows: whole groups, with both classes on both sides.

    The share is taken separately from groups with positives only, with plain rows only and with both. ``groups`` (N,)
    are numbers, ``labels`` (N,) True for positives, ``share`` is in (0, 1).
    """
    values, index = np.unique(groups, return_inverse=True)
    index = index.reshape(-1)
    positives = np.bincount(index, weights=labels, minlength=len(values)) > 0
    plains = np.bincount(index, weights=~labels, minlength=len(values)) > 0
    out = np.zeros(len(values), dtype=bool)
    # Each kind of group is split separately, so that both sides keep the mixture.
    for kind in (positives & plains, positives & ~plains, ~positives & plains):
        members = rng.permutation(np.flatnonzero(kind))
        if len(members) >= 2:
            # at least one group on each side
            count = min(max(round(share * len(members)), 1), len(members) - 1)
            out[members[:count]] = True
    test: npt.NDArray[np.bool_] = out[index]
    sides = (labels[test], labels[~test])
    if any(side.all() or not side.any() for side in sides):
        raise InvalidInputError(
            f"{int(positives.sum())} groups of positives and {int(plains.sum())} of plain rows are too few to hold "
            "both classes out. Give more groups.",
            param="groups_positive",
        )
    return test


PII_ENTITIES = (
    "CREDIT_CARD",
    "CRYPTO",
    "EMAIL_ADDRESS",
    "IBAN_CODE",
    "IP_ADDRESS",
    "MAC_ADDRESS",
    "MEDICAL_LICENSE",
    "PHONE_NUMBER",
    "UK_NHS",
    "US_BANK_NUMBER",
    "US_DRIVER_LICENSE",
    "US_ITIN",
    "US_PASSPORT",
    "US_SSN",
)
"""Presidio's English types that need no model and identify a person, an account or a device.

DATE_TIME, URL and UUID are excluded: they are frequent in plain text and identify nobody.
"""

PII_MIN_SCORE = 0.35
"""Above Presidio's format-only patterns (at most 0.3), below its telephone numbers (0.4)."""


def pii_detector(
    entities: Sequence[str] = PII_ENTITIES, *, model: Any = None, language: str = "en", min_score: float = PII_MIN_SCORE
) -> PresidioDetector:
    """Return the default detector for relabelling plain texts; without a ``model`` it finds no names.

    Args:
        entities: Presidio's types; some of the defaults are English only.
        model: None for pattern recognisers alone; otherwise as for `vecveil.privacy.concepts.PresidioDetector`.
        min_score: drops matches with a lower score; 0 treats every long number as PII.
    """
    return PresidioDetector(entities, model=model, language=language, min_score=min_score, owner="pii_detector")


def contains_pii(
    texts: Texts, detector: Detector | None = None, *, show_progress: bool | None = None
) -> npt.NDArray[np.bool_]:
    """Return a (N,) bool array, True for texts in which the detector finds anything.

    ``detector`` has ``detect(texts)``, such as the NER engines of `Concept.from_entities`; None takes `pii_detector`.
    """
    checked = check_texts(texts, owner="contains_pii", min_rows=0)
    # A concept adds blocks, checks of spans and a progress bar to its detector.
    detector = pii_detector() if detector is None else detector
    concept = detector if isinstance(detector, Concept) else Concept("PII", (detector,))
    rows = concept.detect(checked, show_progress=show_progress)
    return np.array([bool(spans) for spans in rows], dtype=bool)
