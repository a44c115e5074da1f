"""Batches cover every row once, keep their limits and hold no padding unless they are small."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vecveil.texts.encoders.sentence_transformer import plan_batches


@given(st.lists(st.integers(0, 300), max_size=200), st.integers(1, 2000), st.integers(1, 50), st.integers(0, 500))
def test_every_row_once_within_limits(lengths: list[int], max_tokens: int, max_texts: int, min_tokens: int) -> None:
    array = np.array(lengths, np.int64)
    batches = plan_batches(array, max_tokens=max_tokens, max_texts=max_texts, min_tokens=min_tokens)
    assert sorted(np.concatenate([[], *batches]).tolist()) == list(range(len(lengths)))
    for batch in batches:
        longest = max(int(array[batch].max()), 1)
        assert len(batch) <= max_texts
        assert len(batch) == 1 or len(batch) * longest <= max_tokens
        shorter = array[batch] < array[batch].max()
        # Shorter texts join only while the batch is below min_tokens.
        assert not shorter.any() or int((~shorter).sum()) * longest < min_tokens


@pytest.mark.parametrize("min_tokens", [0, 100])
def test_padding_only_where_asked(min_tokens: int) -> None:
    lengths = np.array([5, 9, 5, 9, 7])
    batches = plan_batches(lengths, max_tokens=1000, max_texts=100, min_tokens=min_tokens)
    assert [sorted(batch) for batch in batches] == ([[0, 1, 2, 3, 4]] if min_tokens else [[1, 3], [4], [0, 2]])
