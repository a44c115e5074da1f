import numpy as np
import pytest
from scipy.stats import beta, binom, binomtest, t

from harness.errors import raises
from vecveil.privacy.utility.estimates import (
    clopper_pearson,
    cluster_bootstrap,
    cluster_normal,
    fisher_z,
    group_index,
    share_interval,
)


@pytest.mark.parametrize(("successes", "trials"), [(0, 5), (5, 5), (3, 10), (40, 100)])
def test_clopper_pearson_equals_scipy(successes, trials):
    exact = binomtest(successes, trials).proportion_ci(0.95, method="exact")
    assert clopper_pearson(successes, trials) == pytest.approx((exact.low, exact.high))


def test_clopper_pearson_refuses_more_successes_than_trials():
    with raises("E-INPUT-RANGE", "successes"):
        clopper_pearson(4, 3)


def test_bootstrap_covers_the_truth():
    """Null: hits of 60 groups of 5 texts, group rates beta, mean .3; coverage at least .88.

    False failure: at most 1e-6, from the binomial of 200 runs. Power: the control, the same runs
    without groups, covers too seldom and is caught.
    """
    rng = np.random.default_rng(3)
    runs, covered, naive = 200, 0, 0
    for _ in range(runs):
        rates = np.repeat(rng.beta(0.6, 1.4, 60), 5)
        hits = (rng.random(300) < rates).astype(float)
        groups = np.repeat(np.arange(60), 5)
        low, high = cluster_bootstrap(hits, np.ones(300), groups)
        covered += low <= 0.3 <= high
        low, high = cluster_bootstrap(hits, np.ones(300))
        naive += low <= 0.3 <= high
    fewest = binom.ppf(1e-6, runs, 0.92)
    assert covered >= fewest
    assert naive < fewest


@pytest.mark.parametrize(("hit", "expected"), [(1.0, (clopper_pearson(8, 8))), (0.0, clopper_pearson(0, 8))])
def test_all_or_nothing_takes_the_exact_interval_instead_of_width_zero(hit, expected):
    assert cluster_bootstrap(np.full(8, hit), np.ones(8)) == pytest.approx(expected)


@pytest.mark.parametrize("share", [0.1, 1 / 3, 0.7])
def test_shares_that_differ_by_rounding_take_the_exact_interval(share):
    held = np.arange(1.0, 31.0)
    assert np.ptp(share * held / held) > 0  # the control: rounding tells them apart
    low, high = cluster_bootstrap(share * held, held)
    assert (low, high) == pytest.approx(clopper_pearson(round(30 * share), 30))
    influence = np.repeat(share, 30) - np.sum(np.full(30, share)) / 30
    assert cluster_normal(share, influence + 1e-17) == (low, high)


def test_one_group_says_nothing():
    assert cluster_bootstrap(np.ones(5), np.ones(5), np.zeros(5)) == (0.0, 1.0)
    assert cluster_normal(0.7, np.array([0.1, -0.1]), np.zeros(2)) == (0.0, 1.0)


def test_bootstrap_is_the_same_under_a_seed_and_for_every_block_size(monkeypatch):
    rng = np.random.default_rng(0)
    hits = (rng.random(200) < 0.5).astype(float)
    first = cluster_bootstrap(hits, np.ones(200), seed=4)
    assert first == cluster_bootstrap(hits, np.ones(200), seed=4)
    assert first != cluster_bootstrap(hits, np.ones(200), seed=5)
    monkeypatch.setattr("vecveil.privacy.utility.estimates._BLOCK", 200 * 7)
    assert first == pytest.approx(cluster_bootstrap(hits, np.ones(200), seed=4))


def test_nothing_below_the_line_is_refused():
    with raises("E-INPUT", "denominator"):
        cluster_bootstrap(np.zeros(3), np.zeros(3))


def test_groups_of_another_length_are_refused():
    with raises("E-INPUT", "groups"):
        group_index([1, 2], 3, owner="test")


def test_fisher_z_at_the_ends():
    assert fisher_z(1.0, 10) == (1.0, 1.0)
    assert fisher_z(0.5, 3) == (-1.0, 1.0)


@pytest.mark.parametrize(("hits", "rows"), [(0, 5), (5, 5), (3, 10), (40, 100)])
def test_share_interval_of_hits_is_clopper_pearsons(hits, rows):
    credits = np.repeat([1.0, 0.0], [hits, rows - hits])
    for groups in (None, np.arange(rows)):
        assert share_interval(credits, groups) == pytest.approx(clopper_pearson(hits, rows))
    wider = share_interval(credits, level=0.99)
    assert wider[0] <= share_interval(credits)[0]
    assert wider[1] >= share_interval(credits)[1]


def test_share_interval_of_groups_by_hand():
    # Korn and Graubard (1998): three groups of four rows with 4, 1 and 1 hits, p = 1/2.
    hits = np.array([1, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0], dtype=float)
    variance = 3 / 2 * (2**2 + 1**2 + 1**2) / 12**2
    n = 0.25 / variance * (t.ppf(0.975, 11) / t.ppf(0.975, 2)) ** 2
    expected = (beta.ppf(0.025, n / 2, n / 2 + 1), beta.ppf(0.975, n / 2 + 1, n / 2))
    assert share_interval(hits, np.repeat([0, 1, 2], 4)) == pytest.approx(expected)


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_share_interval_counts_groups_where_these_do_not_differ(share):
    low, high = share_interval(np.full(60, share), np.arange(60) // 10)
    assert low <= share <= high
    if share in (0.0, 1.0):
        assert (low, high) == pytest.approx(clopper_pearson(int(6 * share), 6))
    assert high - low > 0.3
    assert share_interval(np.full(5, share), np.zeros(5)) == (0.0, 1.0)


def test_share_interval_covers_the_truth_in_groups():
    """Null: hits of 40 groups of 5 rows, group rates beta, mean .3; coverage at least .93.

    False failure: at most 1e-6, from the binomial of 1000 runs. Power: the control, the same runs
    without groups, covers too seldom and is caught.
    """
    rng = np.random.default_rng(5)
    runs, covered, naive = 1000, 0, 0
    groups = np.repeat(np.arange(40), 5)
    for _ in range(runs):
        hits = (rng.random(200) < np.repeat(rng.beta(0.6, 1.4, 40), 5)).astype(float)
        low, high = share_interval(hits, groups)
        covered += low <= 0.3 <= high
        low, high = share_interval(hits)
        naive += low <= 0.3 <= high
    fewest = binom.ppf(1e-6, runs, 0.93)
    assert covered >= fewest
    assert naive < fewest


@pytest.mark.parametrize("credits", [[], [[0.5]], [0.5, 1.1], [-0.1], [np.nan]])
def test_share_interval_refuses_what_is_no_share(credits):
    with raises("E-INPUT", "credits"):
        share_interval(credits)
