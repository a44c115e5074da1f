import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import raises
from vecveil.privacy.utility.estimates import other_rows


@settings(deadline=None)
@given(groups=st.lists(st.integers(0, 6), min_size=2, max_size=40), seed=st.integers(0, 2**32 - 1))
def test_no_row_meets_itself_and_as_few_as_possible_their_group(groups, seed):
    groups = np.array(groups)
    chosen = other_rows(groups, len(groups), owner="test", seed=seed)
    assert sorted(chosen) == list(range(len(groups)))
    assert (chosen != np.arange(len(groups))).all()
    largest = np.unique(groups, return_counts=True)[1].max()
    # A group of m rows has only N - m others to meet: 2m - N of its rows must stay inside.
    assert (groups[chosen] == groups).sum() == max(0, 2 * largest - len(groups))


def test_the_seed_decides_and_without_groups_every_row_stands_alone():
    one = other_rows(None, 50, owner="test", seed=1)
    assert (one == other_rows(None, 50, owner="test", seed=1)).all()
    assert (one != other_rows(None, 50, owner="test", seed=2)).any()
    assert sorted(one) == list(range(50))


def test_one_row_has_no_other():
    assert other_rows(None, 1, owner="test") is None


@pytest.mark.parametrize("seed", [-1, 0.5, None])
def test_a_wrong_seed_is_refused(seed):
    with raises("E-INPUT", "seed"):
        other_rows(None, 3, owner="test", seed=seed)
