import numpy as np
import pytest

from harness.errors import raises
from vecveil.privacy.utility.tasks import pair_cosines, pearson, spearman, unit_rows


def test_cosines_by_hand():
    left = np.array([[1.0, 0.0], [3.0, 4.0], [0.0, 0.0]])
    right = np.array([[2.0, 0.0], [4.0, 3.0], [1.0, 0.0]])
    assert pair_cosines(left, right) == pytest.approx([1.0, 24 / 25, 0.0])


def test_unit_rows_keep_the_dtype():
    assert unit_rows(np.ones((2, 3), dtype=np.float32)).dtype == np.float32


@pytest.mark.parametrize("function", [pearson, spearman])
@pytest.mark.parametrize(
    ("x", "y", "code"),
    [
        ([1.0, 1.0], [1.0, 2.0], "E-INPUT-VALUES"),
        ([1.0], [1.0], "E-INPUT-SHAPE"),
        ([1.0, 2.0], [1.0, 2.0, 3.0], "E-INPUT-SHAPE"),
        ([1.0, np.nan], [1.0, 2.0], "E-INPUT-FINITE"),
    ],
)
def test_bad_input_is_refused(function, x, y, code):
    with raises(code, "x"):
        function(x, y)


def test_cosines_of_two_dimensions_are_refused():
    with raises("E-INPUT", "right"):
        pair_cosines(np.ones((2, 3)), np.ones((2, 4)))


@pytest.mark.parametrize("correlation", [pearson, spearman])
@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e6 / 7])
def test_equal_values_have_no_correlation_whatever_their_mean_is_rounded_to(correlation, value):
    rng = np.random.default_rng(0)
    for rows in (2, 3, 10, 1001):
        with raises("E-INPUT-VALUES", "x"):
            correlation(np.full(rows, value), rng.standard_normal(rows))
