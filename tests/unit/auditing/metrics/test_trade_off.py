import math

import pytest

from harness.errors import raises
from vecveil.privacy.utility.estimates import Estimate, trade_off_rate


def figure(value, error, n=100):
    return Estimate("figure", value, value - error, value + error, n)


def test_of_bare_numbers_there_is_no_error():
    estimate = trade_off_rate(0.6, 0.2, 0.75, 0.70)
    assert estimate.metric == "trade-off rate"
    assert estimate.value == pytest.approx(8.0)
    assert (estimate.low, estimate.high) == pytest.approx((8.0, 8.0))
    assert (estimate.n, estimate.chance) == (0, None)


def test_the_interval_is_fiellers():
    parts = figure(0.6, 0.03, 300), figure(0.2, 0.04, 200), figure(0.75, 0.01), 0.65
    estimate = trade_off_rate(*parts)
    assert estimate.value == pytest.approx(4.0)
    assert estimate.n == 100
    for r in (estimate.low, estimate.high):  # where the difference just cannot be told from zero
        assert (0.4 - r * 0.1) ** 2 == pytest.approx(0.03**2 + 0.04**2 + r**2 * 0.01**2)
    assert estimate.low < 4.0 < estimate.high


def test_the_longer_side_of_an_interval_counts():
    lopsided = Estimate("figure", 0.2, 0.19, 0.25, 100)
    one = trade_off_rate(0.6, lopsided, 0.75, 0.65)
    assert (one.low, one.high) == pytest.approx((3.5, 4.5))


@pytest.mark.parametrize(("leakage", "expected"), [(0.2, math.inf), (0.8, -math.inf), (0.6, math.nan)])
def test_no_utility_lost_has_no_finite_rate(leakage, expected):
    estimate = trade_off_rate(0.6, leakage, figure(0.75, 0.02), figure(0.75, 0.02))
    assert estimate.value == pytest.approx(expected, nan_ok=True)
    assert (estimate.low, estimate.high) == (-math.inf, math.inf)
    record = estimate.to_record()
    assert (record["value"], record["low"], record["high"]) == (None, None, None)


def test_utility_that_may_not_have_changed_gives_the_whole_line():
    estimate = trade_off_rate(0.6, 0.2, figure(0.75, 0.04), figure(0.71, 0.04))
    assert estimate.value == pytest.approx(10.0)
    assert (estimate.low, estimate.high) == (-math.inf, math.inf)
    surer = trade_off_rate(0.6, 0.2, figure(0.75, 0.02), figure(0.71, 0.02))  # control
    assert 5.0 < surer.low < 10.0 < surer.high < math.inf


def test_signs():
    assert trade_off_rate(0.6, 0.2, 0.70, 0.75).value == pytest.approx(-8.0)  # utility gained
    worse = trade_off_rate(figure(0.2, 0.01), 0.6, 0.75, 0.70)  # leakage added
    assert worse.value == pytest.approx(-8.0)
    assert worse.low < -8.0 < worse.high < 0.0


def test_an_endless_interval_of_leakage_gives_an_endless_one():
    unknown = Estimate("figure", 0.2, -math.inf, 0.3, 10)
    estimate = trade_off_rate(0.6, unknown, 0.75, 0.65)
    assert (estimate.low, estimate.high) == (-math.inf, math.inf)
    assert estimate.value == pytest.approx(4.0)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, "a", None, figure(math.nan, 0.1)])
@pytest.mark.parametrize("place", range(4))
def test_what_is_not_finite_is_refused(wrong, place):
    parts = [0.6, 0.2, 0.75, 0.65]
    parts[place] = wrong
    name = ["clean_leakage", "leakage", "clean_utility", "utility"][place]
    with raises("E-INPUT", name):
        trade_off_rate(*parts)
