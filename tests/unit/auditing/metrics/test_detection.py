import numpy as np
import pytest
from scipy.stats import binom

from harness.errors import raises
from vecveil.auditing.metrics.leakage import advantage, tpr_at_fpr
from vecveil.privacy.utility.estimates import clopper_pearson, share_interval
from vecveil.privacy.utility.ranking import auc


def drawn(members, others, seed, shift=0.0):
    """Return normal scores, members shifted, and their labels in mixed order."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat([1, 0], [members, others]))
    return rng.standard_normal(members + others) + shift * labels, labels


def figures(test, known, groups=None):
    """Return all figures of one attack."""
    rates = [tpr_at_fpr(*test, *known, groups, false_positive_rate=r) for r in (0.001, 0.01)]
    return [auc(*test, groups), advantage(*test, *known, groups), *rates]


def test_all_figures_of_a_perfect_attack():
    test, known = drawn(50, 50, 0, shift=100.0), drawn(1000, 1000, 1, shift=100.0)
    given = figures(test, known)
    metrics = ["AUC", "advantage", "TPR at 0.1 % FPR", "TPR at 1 % FPR"]
    assert [each.metric for each in given] == metrics
    assert [each.value for each in given] == [1.0, 1.0, 1.0, 1.0]
    assert [each.chance for each in given] == [0.5, 0.0, 0.001, 0.01]
    assert [each.n for each in given] == [100, 100, 50, 50]
    assert all(0.8 < each.low < 1.0 and each.high == 1.0 for each in given)


def test_the_advantage_by_hand():
    # Validation: ">= 3" has TPR 2/3, FPR 0; ">= 2" has 3/3 and 1/2. So 3 it is.
    known = ([5.0, 3.0, 2.0, 2.0, 1.0], [1, 1, 1, 0, 0])
    estimate = advantage([3.0, 9.0, 2.9, 3.0, 0.0, 1.0], [1, 1, 1, 0, 0, 0], *known)
    assert estimate.value == pytest.approx(2 / 3 - 1 / 3)
    tpr, fpr = (share_interval([1, hit, 0], level=0.975) for hit in (1, 0))
    assert (estimate.low, estimate.high) == pytest.approx((tpr[0] - fpr[1], tpr[1] - fpr[0]))


def test_of_equal_thresholds_the_highest_and_without_gain_none():
    # ">= 4" and ">= 2" both gain 1/2: at 4 the test's member with score 3 is not accused.
    known = ([4.0, 3.0, 2.0, 1.0], [1, 0, 1, 0])
    assert advantage([3.0, 0.0], [1, 0], *known).value == 0.0
    assert advantage([4.0, 0.0], [1, 0], *known).value == 1.0
    inverted = ([1.0, 2.0], [1, 0])
    estimate = advantage([9.0, 0.0], [1, 0], *inverted)
    assert estimate.value == 0.0
    assert estimate.low < 0.0 < estimate.high


def test_the_advantage_may_be_negative():
    known = ([1.0, 0.0], [1, 0])
    assert advantage([0.0, 1.0], [1, 0], *known).value == -1.0


def test_tpr_by_hand():
    # 199 negatives 1..199: k = floor(0.01 · 200) = 2, so what counts is a score above 198.
    known = (np.arange(200.0), np.append(1, np.zeros(199)))
    test = ([198.0, 198.5, 300.0, 0.0, 999.0], [1, 1, 1, 1, 0])
    estimate = tpr_at_fpr(*test, *known, false_positive_rate=0.01)
    assert estimate.metric == "TPR at 1 % FPR"
    assert (estimate.value, estimate.n, estimate.chance) == (0.5, 4, 0.01)
    assert (estimate.low, estimate.high) == pytest.approx(clopper_pearson(2, 4))


@pytest.mark.parametrize(("rate", "enough"), [(0.001, 1000), (0.01, 100), (0.3, 4)])
def test_too_few_negatives_give_no_figure(rate, enough):
    scores, labels = drawn(20, 20, 3)
    few = drawn(5, enough - 1, 4)
    assert tpr_at_fpr(scores, labels, *few, false_positive_rate=rate) is None
    just = tpr_at_fpr(scores, labels, *drawn(5, enough, 4), false_positive_rate=rate)
    assert just is not None


@pytest.mark.slow
def test_a_new_negative_is_accused_at_most_at_the_rate():
    """Null: members score as others do; each run's one member is found with probability k/(m+1).

    False failure: at most 1e-6, from the binomial of 3000 independent runs. Power: the control, a
    threshold one rank lower, is found out.
    """
    runs, m = 3000, 20

    def found(rate):
        return sum(
            tpr_at_fpr(*drawn(1, 1, 2 * i), *drawn(1, m, 2 * i + 1), false_positive_rate=rate).value
            for i in range(runs)
        )

    low, high = binom.ppf([0.5e-6, 1 - 0.5e-6], runs, 2 / (m + 1))
    assert low <= found(0.1) <= high  # k = floor(0.1 · 21) = 2
    assert found(0.15) > high  # k = 3


def test_copies_in_one_group_do_not_narrow_the_intervals():
    test, known = drawn(60, 60, 11, shift=1.0), drawn(1000, 1000, 12, shift=1.0)
    tiled = [np.tile(part, 5) for part in test]
    grouped = figures(tiled, known, np.tile(np.arange(120), 5))
    naive = figures(tiled, known)  # control: copies taken for new rows
    for one, copies, narrow in zip(figures(test, known), grouped, naive, strict=True):
        length = one.high - one.low
        assert copies.value == pytest.approx(one.value)
        assert copies.high - copies.low > 0.95 * length
        assert narrow.high - narrow.low < 0.7 * length


GOOD = ([1.0, 0.0], [1, 0])


@pytest.mark.parametrize(
    ("test", "known", "code", "param"),
    [
        (([1.0, 2.0], [1, 1]), GOOD, "E-INPUT-CLASSES", "labels"),
        (GOOD, ([1.0, 2.0], [0, 0]), "E-INPUT-CLASSES", "validation_labels"),
        (([], []), GOOD, "E-INPUT-CLASSES", "labels"),
        (([1.0, np.nan], [1, 0]), GOOD, "E-INPUT-FINITE", "scores"),
        (GOOD, ([1.0, np.inf], [1, 0]), "E-INPUT-FINITE", "validation_scores"),
        (([1.0, 2.0], [1, 2]), GOOD, "E-INPUT-VALUES", "labels"),
        (([1.0, 2.0], ["1", "0"]), GOOD, "E-INPUT-VALUES", "labels"),
        (([1.0, 2.0, 3.0], [1, 0]), GOOD, "E-INPUT-SHAPE", "labels"),
        (GOOD, ([[1.0], [2.0]], [1, 0]), "E-INPUT-SHAPE", "validation_labels"),
    ],
)
def test_wrong_input_is_refused(test, known, code, param):
    with raises(code, param):
        advantage(*test, *known)


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, 2])
def test_a_wrong_rate_is_refused(rate):
    with raises("E-INPUT-RANGE", "false_positive_rate"):
        tpr_at_fpr(*GOOD, *GOOD, false_positive_rate=rate)


def test_wrong_groups_are_refused():
    with raises("E-INPUT", "groups"):
        advantage(*GOOD, *GOOD, [1])
    with raises("E-INPUT", "groups"):
        tpr_at_fpr(*GOOD, *GOOD, [1], false_positive_rate=0.5)
