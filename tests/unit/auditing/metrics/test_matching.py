import numpy as np
import pytest
from scipy.stats import norm

from harness.errors import raises
from vecveil.auditing.metrics.leakage import candidate_matching, candidate_matching_of_ranks
from vecveil.privacy.utility.estimates import clopper_pearson


def test_by_hand():
    scores = [[0.9, 0.1, 0.5], [0.2, 0.3, 0.1], [1.0, 2.0, 3.0], [5.0, 1.0, 4.0]]
    result = candidate_matching(scores, [0, 0, 0, 2])  # ranks 1, 2, 3, 2
    top, mrr = result["top-1 accuracy"], result["MRR"]
    assert list(result) == ["top-1 accuracy", "MRR"]
    assert (top.metric, mrr.metric) == tuple(result)
    assert (top.value, top.n, top.chance) == (0.25, 4, 1 / 3)
    assert (top.low, top.high) == pytest.approx(clopper_pearson(1, 4))
    assert mrr.value == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 2) / 4)
    assert mrr.chance == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert mrr.low <= mrr.value <= mrr.high


def test_ties_earn_the_mean_over_random_orders():
    """Null: credits are what random orders earn on average.

    False failure: 1e-6 for a fresh seed, both figures together (normal means of 500 orders).
    Power: the control, credit 1 for every shared first place, is found out.
    """
    rng, orders = np.random.default_rng(0), 500
    scores = rng.integers(0, 3, (20, 6)).astype(float)
    truth = rng.integers(0, 6, 20)
    exact = candidate_matching(scores, truth)
    broken = [candidate_matching(scores + 1e-6 * rng.random(scores.shape), truth) for _ in range(orders)]
    bound = norm.isf(1e-6 / 4)
    for name, estimate in exact.items():
        values = np.array([one[name].value for one in broken])
        error = values.std() / np.sqrt(orders)
        assert abs(values.mean() - estimate.value) < bound * error
        if name == "top-1 accuracy":
            flattered = (scores[np.arange(20), truth] == scores.max(axis=1)).mean()
            assert flattered - values.mean() > bound * error


def test_ranks_give_the_same_as_scores():
    rng = np.random.default_rng(1)
    scores, truth = rng.random((50, 9)), rng.integers(0, 9, 50)
    target = scores[np.arange(50), truth][:, None]
    ranks = 1 + (scores > target).sum(axis=1)
    groups = np.arange(50) // 2
    assert candidate_matching_of_ranks(ranks, 9) == candidate_matching(scores, truth)
    assert candidate_matching_of_ranks(ranks, 9, groups) == candidate_matching(scores, truth, groups)


def test_copies_in_one_group_do_not_narrow_the_intervals():
    rng = np.random.default_rng(2)
    ranks = rng.integers(1, 5, 60)
    alone = candidate_matching_of_ranks(ranks, 4, np.arange(60))
    grouped = candidate_matching_of_ranks(np.tile(ranks, 5), 4, np.tile(np.arange(60), 5))
    naive = candidate_matching_of_ranks(np.tile(ranks, 5), 4)
    for name, estimate in alone.items():
        assert (grouped[name].low, grouped[name].high) == pytest.approx((estimate.low, estimate.high))
        assert naive[name].high - naive[name].low < 0.7 * (estimate.high - estimate.low)


@pytest.mark.parametrize(
    ("scores", "truth", "code", "param"),
    [
        ([1.0, 2.0], [0], "E-INPUT-SHAPE", "scores"),
        (np.zeros((0, 3)), [], "E-INPUT-SHAPE", "scores"),
        (np.zeros((2, 1)), [0, 0], "E-INPUT-SHAPE", "scores"),
        ([[1.0, np.nan]], [0], "E-INPUT-FINITE", "scores"),
        (np.zeros((2, 3)), [0], "E-INPUT-SHAPE", "truth"),
        (np.zeros((2, 3)), [0, 3], "E-INPUT-VALUES", "truth"),
        (np.zeros((2, 3)), [0, -1], "E-INPUT-VALUES", "truth"),
        (np.zeros((2, 3)), [0.0, 1.0], "E-INPUT-VALUES", "truth"),
    ],
)
def test_wrong_scores_are_refused(scores, truth, code, param):
    with raises(code, param):
        candidate_matching(scores, truth)


@pytest.mark.parametrize(
    ("ranks", "candidates", "param"),
    [([0, 1], 3, "ranks"), ([4], 3, "ranks"), ([], 3, "ranks"), ([1.5], 3, "ranks"), ([1], 1, "candidates")],
)
def test_wrong_ranks_are_refused(ranks, candidates, param):
    with raises("E-INPUT", param):
        candidate_matching_of_ranks(ranks, candidates)


def test_wrong_groups_are_refused():
    with raises("E-INPUT", "groups"):
        candidate_matching(np.zeros((2, 3)), [0, 1], [1])
