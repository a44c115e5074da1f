import itertools

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from harness.errors import raises
from vecveil.auditing.metrics.leakage import confidence, leakage, r_precision, term_table, top_accuracy
from vecveil.privacy.utility.ranking import macro_auc, top_credit

# Three texts, four tokens. Text 0 holds tokens 0, 1: its two best are 0, 2 -> one of two.
# Text 1 holds token 3: its best is 3 -> one of one. Text 2 holds nothing.
SCORES = np.array([[0.9, 0.2, 0.6, 0.1], [0.1, 0.2, 0.3, 0.8], [0.5, 0.5, 0.5, 0.5]])
LABELS = np.array([[1, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
RATES = np.array([0.6, 0.1, 0.2, 0.3])


def test_r_precision_by_hand():
    estimate = r_precision(SCORES, LABELS, base_rates=RATES)
    assert estimate.value == pytest.approx(2 / 3)
    assert estimate.n == 3
    # By base rates the order is 0, 3, 2, 1: text 0 gets one of two, text 1 none.
    assert estimate.chance == pytest.approx(1 / 3)
    assert estimate.low <= estimate.value <= estimate.high


def test_top_accuracy_by_hand():
    assert top_accuracy(SCORES, LABELS, k=1).value == pytest.approx(2 / 3)
    assert top_accuracy(SCORES, LABELS, k=3).value == pytest.approx(1.0)
    assert top_accuracy(SCORES, LABELS).metric == "top-5"
    assert top_accuracy(SCORES, LABELS, k=1, base_rates=RATES).chance == pytest.approx(1 / 3)


def test_leakage_and_confidence_by_hand():
    found = leakage(SCORES, LABELS, base_rates=RATES)
    assert found.value == pytest.approx(2 / 3)
    assert found.chance == pytest.approx(1 / 3)
    sure = confidence(SCORES, LABELS, base_rates=RATES)
    assert sure.value == pytest.approx((0.9 + 0.2 + 0.8) / 3)
    assert sure.chance == pytest.approx((0.6 + 0.1 + 0.3) / 3)


def test_a_constant_probability_of_one_half_leaks_nothing():
    assert leakage(np.full((3, 4), 0.5), LABELS).value == 0.0


def test_term_table_by_hand():
    table = term_table(SCORES, LABELS, base_rates=RATES)
    assert table.counts.tolist() == [1, 1, 0, 1]
    assert table.hits.tolist() == [1, 0, 0, 1]
    assert table.chance is not None
    assert table.chance.tolist() == [1, 0, 0, 0]
    records = table.to_records()
    assert [record["token"] for record in records] == [0, 1, 3]
    assert records[0] == {"token": 0, "count": 1, "value": 1.0, "chance": 1.0}


def test_ties_earn_what_a_random_order_earns():
    scores = np.array([[2.0, 1.0, 1.0, 1.0, 0.0]])
    for k in range(6):
        credit = top_credit(scores, np.array([k]))[0]
        counted = np.zeros(5)
        orders = 0
        for noise in itertools.permutations(range(5)):
            best = sorted(range(5), key=lambda i: (-scores[0, i], noise[i]))[:k]
            counted[best] += 1
            orders += 1
        assert credit == pytest.approx(counted / orders)


@pytest.mark.parametrize("score", [0.0, 0.1, 0.3, 1 / 3, 0.7])
def test_a_constant_score_is_not_above_chance(score):
    rng = np.random.default_rng(0)
    labels = rng.random((300, 49)) < 0.1
    labels[:, 0] = True
    scores, rates = np.full(labels.shape, score), np.full(49, score)
    groups = rng.integers(0, 90, 300)
    estimates = [
        top_accuracy(scores, labels, groups, base_rates=rates),
        top_accuracy(scores, labels, groups, k=3, base_rates=rates),
        confidence(scores, labels, groups, base_rates=rates),
        macro_auc(scores, labels, groups),
    ]
    for estimate in estimates:
        assert estimate.low <= estimate.chance <= estimate.high
        assert estimate.high - estimate.low > 0.02


@pytest.mark.slow
def test_auc_interval_is_as_wide_as_a_bootstrap():
    rng = np.random.default_rng(5)
    labels = (rng.random((300, 3)) < 0.3).astype(int)
    scores = rng.standard_normal((300, 3)) + labels
    estimate = macro_auc(scores, labels)
    values = []
    for _ in range(200):
        rows = rng.integers(300, size=300)
        values.append(roc_auc_score(labels[rows], scores[rows]))
    width = 2 * 1.96 * np.std(values)
    assert estimate.high - estimate.low == pytest.approx(width, rel=0.3)
    groups = np.arange(300) // 2
    doubled = macro_auc(np.repeat(scores[:150], 2, axis=0), np.repeat(labels[:150], 2, axis=0), groups)
    single = macro_auc(scores[:150], labels[:150])
    assert (doubled.low, doubled.high) == pytest.approx((single.low, single.high))


def test_groups_widen_the_interval():
    rng = np.random.default_rng(1)
    labels = np.eye(4)[rng.integers(4, size=60)]
    scores = labels + 1.5 * rng.standard_normal((60, 4))
    many = [np.repeat(a, 6, axis=0) for a in (scores, labels)]
    alone = r_precision(*many)
    grouped = r_precision(*many, groups=np.repeat(np.arange(60), 6))
    assert grouped.value == alone.value
    assert grouped.high - grouped.low > 1.8 * (alone.high - alone.low)


@pytest.mark.parametrize("metric", [r_precision, top_accuracy, macro_auc, leakage, confidence])
@pytest.mark.parametrize(
    ("scores", "labels", "code"),
    [
        (np.zeros((2, 3)), np.zeros((3, 3)), "E-INPUT-SHAPE"),
        (np.zeros((2, 0)), np.zeros((2, 0)), "E-INPUT-SHAPE"),
        (np.zeros(2), np.zeros(2), "E-INPUT-SHAPE"),
        (np.array([[np.nan, 0.0]]), np.array([[1, 0]]), "E-INPUT-FINITE"),
        (np.zeros((2, 2)), np.full((2, 2), 2), "E-INPUT-VALUES"),
        (np.zeros((2, 2)), np.array([["a", "b"], ["c", "d"]]), "E-INPUT-VALUES"),
        (np.zeros((2, 2)), np.zeros((2, 2)), "E-INPUT-CLASSES"),
    ],
)
def test_bad_input_is_refused(metric, scores, labels, code):
    with raises(code):
        metric(scores, labels)


def test_auc_of_one_class_only_is_refused():
    with raises("E-INPUT", "labels"):
        macro_auc(np.zeros((3, 2)), np.array([[1, 0], [1, 0], [1, 0]]))


def test_probabilities_outside_the_unit_interval_are_refused():
    with raises("E-INPUT", "probabilities"):
        confidence(SCORES * 2, LABELS)


def test_base_rates_of_another_length_are_refused():
    with raises("E-INPUT", "base_rates"):
        r_precision(SCORES, LABELS, base_rates=np.ones(3))
