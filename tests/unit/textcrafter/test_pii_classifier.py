"""The PII classifier: its probabilities against scikit-learn's, its figures, groups, warnings and refusals."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, roc_auc_score

from vecveil.errors import IncompatibleError, InvalidInputError, MissingDependencyError
from vecveil.textcrafter.balancing import balanced_rows, row_groups, split_by_group
from vecveil.textcrafter.pii_classifier import PiiClassifier, fit_pii_classifier
from vecveil.textcrafter.pii_figures import HeldOutFigures, doubts, measure


def unit(X: Any) -> Any:
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def planted(
    seed: int, positive: int = 300, plain: int = 300, n: int = 16, shift: float = 4.0
) -> Any:
    """Return two clouds of unit vectors, the first drawn towards the first axis."""
    rng = np.random.default_rng(seed)
    P, Q = rng.standard_normal((positive, n)), rng.standard_normal((plain, n))
    P[:, 0] += shift
    return unit(P), unit(Q)


def figures(classifier: PiiClassifier) -> HeldOutFigures:
    assert classifier.held_out is not None
    return classifier.held_out


@pytest.mark.parametrize("regularisation", [0.1, 1.0, 10.0])
def test_probabilities_equal_scikit_learns(regularisation: float) -> None:
    P, Q = planted(0)
    ours = fit_pii_classifier(P, Q, regularisation=regularisation)
    theirs = LogisticRegression(C=1 / regularisation, max_iter=2000)
    theirs.fit(np.concatenate([P, Q]), np.repeat([1, 0], 300))
    X, _ = planted(1)
    np.testing.assert_allclose(ours.probability(X), theirs.predict_proba(X)[:, 1], atol=1e-12)
    np.testing.assert_allclose(ours.logit(X), theirs.decision_function(X), atol=1e-12)


def test_more_regularisation_means_smaller_weights() -> None:
    P, Q = planted(0)
    norms = [
        np.linalg.norm(fit_pii_classifier(P, Q, regularisation=r).weights) for r in (0.1, 1, 10)
    ]
    assert norms[0] > norms[1] > norms[2]


def test_the_weights_are_at_the_minimum_of_the_regularised_loss() -> None:
    """The gradient of Σ log(1 + exp(∓logit)) + λ/2 ‖w‖² vanishes: the optimum, by its definition."""
    P, Q = planted(0)
    fitted = fit_pii_classifier(P, Q, regularisation=2.0)
    X, y = np.concatenate([P, Q]), np.repeat([1.0, 0.0], 300)
    error = 1 / (1 + np.exp(-(X @ fitted.weights + fitted.intercept))) - y
    gradient = X.T @ error + 2.0 * fitted.weights
    assert np.abs(gradient).max() < 0.06  # the solver's tolerance: 1e-4 for each of 600 rows
    assert abs(error.sum()) < 0.06
    assert np.abs(X.T @ error).max() > 1  # control: without the penalty it does not vanish


def test_large_logits_neither_overflow_nor_round_to_nan() -> None:
    classifier = PiiClassifier(np.array([1e6, 0.0]), -3.0)
    X = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    with np.errstate(all="raise", under="ignore"):
        p = classifier.probability(X)
    assert p.tolist() == pytest.approx([1.0, 0.0, 1 / (1 + np.exp(3.0))])
    assert p.dtype == np.float64


def test_float32_vectors_are_computed_in_float64() -> None:
    P, Q = planted(0)
    fitted = fit_pii_classifier(P, Q)
    X = P[:5].astype(np.float32)
    assert fitted.probability(X).dtype == np.float64
    np.testing.assert_array_equal(fitted.probability(X), fitted.probability(X.astype(np.float64)))


def test_a_planted_signal_is_found_and_nothing_warned_of() -> None:
    fitted = fit_pii_classifier(*planted(0, shift=8.0))
    held = figures(fitted)
    assert held.auc.value > 0.98
    assert held.accuracy.value > 0.9
    assert held.warnings == ()
    assert held.auc.low <= held.auc.value <= held.auc.high
    assert (held.auc.chance, held.accuracy.chance) == (0.5, 0.5)
    assert held.macro_f1.chance == pytest.approx(1 / 3)
    assert held.positive_f1.chance == pytest.approx(2 / 3)
    assert held.held_out_rows == 120


def test_permuted_labels_are_warned_of_and_not_refused() -> None:
    """Null: a signal is planted, then the labels are permuted; the AUC's interval lies above chance in 2.5 % of runs.

    Seeds are fixed. False failure over seeds: fewer than five of ten warn, P(Bin(10, 0.03) > 5) < 2e-7.
    Control: as planted, none warns.
    """
    warned = kept = 0
    for seed in range(10):
        X = np.concatenate(planted(seed, shift=8.0))
        mixed = np.random.default_rng(seed).permutation(X)
        told = figures(fit_pii_classifier(mixed[:300], mixed[300:], seed=seed)).warnings
        warned += any("AUC" in sentence for sentence in told)
        for sentence in told:
            assert "not above chance" in sentence
            assert sentence.endswith(".")
        kept += bool(figures(fit_pii_classifier(X[:300], X[300:], seed=seed)).warnings)
    assert warned >= 5
    assert kept == 0


def test_a_signal_turned_round_is_warned_of_too() -> None:
    """An AUC whose whole interval lies below chance is not above it."""
    rng = np.random.default_rng(0)
    logits, y = rng.standard_normal(200), np.arange(200) % 2 == 0
    told = doubts(measure(logits - 3.0 * y, y, np.arange(200), y, 0))
    assert len(told) == 2
    assert doubts(measure(logits + 3.0 * y, y, np.arange(200), y, 0)) == []


def test_figures_equal_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    y = rng.random(150) < 0.4
    logits = rng.standard_normal(150) + y
    found = measure(logits, y, np.arange(150), np.array([True, False]), 0)
    answer = logits >= 0
    assert found["accuracy"].value == pytest.approx((answer == y).mean())
    assert found["positive_f1"].value == pytest.approx(f1_score(y, answer))
    assert found["positive_f1"].chance == pytest.approx(f1_score(y, np.ones(150)))
    assert found["macro_f1"].value == pytest.approx(f1_score(y, answer, average="macro"))
    assert found["auc"].value == pytest.approx(roc_auc_score(y, logits))
    for one in found.values():
        assert one.low < one.value < one.high
        assert one.n == 150


def test_groups_widen_the_intervals() -> None:
    """Rows that repeat each other four times say no more than a quarter of them."""
    rng = np.random.default_rng(0)
    y = np.repeat(rng.random(60) < 0.5, 4)
    logits = np.repeat(rng.standard_normal(60), 4) + y
    alone = measure(logits, y, np.arange(240), y, 0)
    grouped = measure(logits, y, np.repeat(np.arange(60), 4), y, 0)
    for name, one in grouped.items():
        assert one.value == alone[name].value
        assert one.high - one.low > 1.5 * (alone[name].high - alone[name].low)


def test_the_larger_class_is_sampled_down() -> None:
    P, Q = planted(0, positive=100, plain=700)
    held = figures(fit_pii_classifier(P, Q))
    assert (held.positive_rows, held.plain_rows, held.used_rows) == (100, 700, 100)
    assert held.held_out_rows == 40
    rng = np.random.default_rng(0)
    for positive, plain in ((100, 700), (700, 100), (50, 50)):
        rows = balanced_rows(positive, plain, rng)
        for chosen, size in zip(rows, (positive, plain), strict=True):
            assert len(chosen) == min(positive, plain) == len(np.unique(chosen))
            assert (np.diff(chosen) > 0).all()
            assert chosen.max() < size
    assert balanced_rows(100, 700, rng)[1].max() > 100  # not the first hundred


def test_pairs_are_held_out_together() -> None:
    """Two halves of each pair nearly equal, the classes random in them: only a leak could tell them apart."""
    rng = np.random.default_rng(0)
    groups = row_groups(np.arange(200), np.arange(200), 200, 200, owner="test")
    assert groups.tolist() == [*range(200), *range(200)]
    y = np.repeat([True, False], 200)
    test = split_by_group(groups, y, 0.2, rng, owner="test")
    assert test[:200].tolist() == test[200:].tolist()
    assert test.sum() == 80
    alone = split_by_group(np.arange(400), y, 0.2, rng, owner="test")
    assert alone[:200].tolist() != alone[200:].tolist()  # control: without groups pairs are torn
    assert (alone[:200].sum(), alone[200:].sum()) == (40, 40)


def test_a_torn_group_would_flatter_the_figures() -> None:
    """Each text is there five times and says nothing about its class: known texts are recognised, others not."""
    rng = np.random.default_rng(0)
    P, Q = (np.repeat(unit(rng.standard_normal((40, 128))), 5, axis=0) for _ in range(2))
    groups = [f"p{i // 5}" for i in range(200)], [f"q{i // 5}" for i in range(200)]
    torn = figures(fit_pii_classifier(P, Q, regularisation=0.01))
    whole = figures(
        fit_pii_classifier(
            P, Q, groups_positive=groups[0], groups_plain=groups[1], regularisation=0.01
        )
    )
    assert torn.auc.value > 0.95
    assert whole.auc.value < 0.8
    assert whole.warnings
    assert not torn.warnings


def test_groups_of_plain_rows_are_those_of_the_plain_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row numbers of the sample are looked up in the right half of the groups."""
    seen: list[Any] = []

    def watch(groups: Any, *rest: Any, **options: Any) -> Any:
        seen.append(groups)
        return split_by_group(groups, *rest, **options)

    monkeypatch.setattr("vecveil.textcrafter.pii_classifier.split_by_group", watch)
    P, Q = planted(0, positive=40, plain=90)
    fit_pii_classifier(P, Q, groups_positive=np.arange(40), groups_plain=100 + np.arange(90) % 10)
    assert np.unique(seen[0][:40]).tolist() == list(range(40))
    assert np.unique(seen[0][40:]).tolist() == list(range(40, 50))


def test_rows_without_groups_stand_alone_beside_given_ones() -> None:
    numbers = row_groups(["a", "b", "a"], None, 3, 2, owner="test")
    assert numbers.tolist() == [0, 1, 0, 2, 3]
    assert row_groups(None, [7, 7], 2, 2, owner="test").tolist() == [1, 2, 0, 0]
    assert row_groups(["a", "b"], ["b", "c"], 2, 2, owner="test").tolist() == [0, 1, 1, 2]


def test_every_split_leaves_both_classes_on_both_sides() -> None:
    for seed in range(50):
        rng = np.random.default_rng(seed)
        y = np.repeat([True, False], 20)
        for share in (0.01, 0.5, 0.99):
            test = split_by_group(np.arange(40), y, share, rng, owner="test")
            assert set(y[test]) == set(y[~test]) == {True, False}


def test_one_seed_one_classifier() -> None:
    P, Q = planted(0, plain=500)
    a, b, c = (fit_pii_classifier(P, Q, seed=seed) for seed in (3, 3, 4))
    assert a.weights.tobytes() == b.weights.tobytes()
    assert a.to_record() == b.to_record()
    assert a.weights.tobytes() != c.weights.tobytes()


def test_saved_and_read_it_is_the_same() -> None:
    P, Q = planted(0)
    fitted = fit_pii_classifier(P, Q)
    arrays = fitted.to_arrays()
    assert arrays["classifier"].shape == (17,)
    record = json.loads(json.dumps(fitted.to_record(), allow_nan=False))
    read = PiiClassifier.from_arrays({**arrays, "other": np.zeros(2)}, record)
    assert read.probability(P).tobytes() == fitted.probability(P).tobytes()
    assert read.to_record() == fitted.to_record()
    assert PiiClassifier.from_arrays(arrays).held_out is None


@pytest.mark.parametrize(
    "array",
    [np.zeros(1), np.zeros((2, 2)), np.full(4, np.nan), np.zeros(4, dtype=np.float32), None],
)
def test_a_damaged_array_is_refused(array: Any) -> None:
    arrays = {} if array is None else {"classifier": array}
    with pytest.raises(ValueError, match=r"^classifier$"):
        PiiClassifier.from_arrays(arrays)


@pytest.mark.parametrize("part", ["rows", "auc", "warnings", "seed"])
def test_a_damaged_record_is_refused(part: str) -> None:
    fitted = fit_pii_classifier(*planted(0))
    record = fitted.to_record()
    del record["held_out"][part]
    with pytest.raises(ValueError, match=r"^classifier$"):
        PiiClassifier.from_arrays(fitted.to_arrays(), record)


def test_weights_are_kept_apart_from_the_callers_and_out_of_the_repr() -> None:
    weights = np.array([0.123456, 2.0])
    classifier = PiiClassifier(weights, 0.5)
    weights[0] = 9.0
    assert classifier.weights[0] == 0.123456
    assert repr(classifier) == "PiiClassifier(dimension=2)"
    with pytest.raises(ValueError, match="read-only"):
        classifier.weights[0] = 1.0
    assert classifier.to_record() == {"dimension": 2, "held_out": None}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"positive": np.empty((0, 16))}, "`positive` .* a corpus without PII: one class only"),
        ({"plain": np.empty((0, 16))}, "`plain` .* a corpus of PII alone: one class only"),
        ({"positive": np.ones((19, 16))}, "`positive` must be at least 20 rows; got 19"),
        ({"plain": np.ones((19, 16))}, "`plain` must be at least 20 rows; got 19"),
        ({"positive": np.full((30, 16), np.nan)}, "`positive` must be finite"),
        ({"plain": [[1.0]]}, "`plain` must be a NumPy array"),
        ({"held_out": 0.0}, "`held_out`"),
        ({"held_out": 1.0}, "`held_out`"),
        ({"regularisation": 0.0}, "`regularisation`"),
        ({"seed": -1}, "`seed`"),
        ({"groups_positive": [1, 2]}, "`groups_positive` must be 300 integers or strings"),
        ({"groups_plain": np.arange(300.0)}, "`groups_plain` must be 300 integers or strings"),
        (
            {"groups_plain": ["a"] * 300, "groups_positive": [1] * 300},
            "`groups_plain` must be of the kind",
        ),
        ({"groups_positive": [1] * 300}, "leave both classes on both sides; got 1 groups of pos"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], complaint: str) -> None:
    P, Q = planted(0)
    with pytest.raises(InvalidInputError, match=complaint):
        fit_pii_classifier(**{"positive": P, "plain": Q, **change})


def test_another_dimension_is_incompatible() -> None:
    P, Q = planted(0)
    with pytest.raises(
        IncompatibleError, match="of the dimension 16 of `positive`; got dimension 4"
    ):
        fit_pii_classifier(P, Q[:, :4].copy())
    with pytest.raises(IncompatibleError, match="dimension 16"):
        fit_pii_classifier(P, Q).probability(Q[:, :4].copy())


def test_a_fit_that_does_not_converge_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vecveil.textcrafter.pii_classifier._STEPS", 1)
    held = figures(fit_pii_classifier(*planted(0)))
    assert held.warnings == ("The fit was stopped after 1 steps, before it had converged.",)


def test_missing_scikit_learn_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(MissingDependencyError, match=r"vecveil\[textcrafter\]"):
        fit_pii_classifier(*planted(0))
