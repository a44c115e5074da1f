import numpy as np
import pytest

from vecveil.errors import InvalidInputError
from vecveil.metrics.reconstruction import embedding_cosine, reconstruction_leakage


def vectors(rows, seed, dimension=64):
    return np.random.default_rng(seed).standard_normal((rows, dimension))


def test_cosine_by_hand_with_a_row_of_zeros():
    truth = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    guess = np.array([[3.0, 3.0], [0.0, -1.0], [1.0, 1.0]])
    estimate = embedding_cosine(truth, guess)
    assert estimate.metric == "cosine"
    assert estimate.value == pytest.approx((np.sqrt(0.5) - 1 + 0) / 3)
    assert -1.0 <= estimate.low <= estimate.value <= estimate.high <= 1.0
    assert estimate.n == 3


@pytest.mark.parametrize(("sign", "dtype"), [(1, np.float32), (-1, np.float64)])
def test_cosine_reaches_its_ends_and_no_further(sign, dtype):
    X = vectors(50, 0).astype(dtype)
    estimate = embedding_cosine(X, (sign * X).astype(dtype))
    assert estimate.value == pytest.approx(sign)
    assert abs(estimate.value) <= 1.0
    assert -1.0 <= estimate.low <= estimate.high <= 1.0
    assert 0.0 < estimate.high - estimate.low < 0.3
    assert abs(estimate.chance) < 0.2


def test_cosine_chance_is_that_of_other_groups():
    X = np.repeat(np.eye(4), 3, axis=0)
    estimate = embedding_cosine(X, X, np.repeat(np.arange(4), 3))
    assert (estimate.value, estimate.chance) == (1.0, 0.0)
    assert embedding_cosine(X[:1], X[:1]).chance is None
    one_group = embedding_cosine(X, X, np.zeros(12))
    assert (one_group.low, one_group.high) == (-1.0, 1.0)


def test_wrong_vectors_are_refused():
    X = vectors(3, 0)
    with pytest.raises(InvalidInputError, match="`reference_vectors` must be at least 1 rows"):
        embedding_cosine(X[:0], X[:0])
    with pytest.raises(InvalidInputError, match="`hypothesis_vectors` must be of the same length"):
        embedding_cosine(X, X[:2])
    with pytest.raises(InvalidInputError, match="of dimension 64"):
        embedding_cosine(X, np.ascontiguousarray(X[:, :3]))
    with pytest.raises(InvalidInputError, match="`hypothesis_vectors` must be finite"):
        embedding_cosine(X, np.full_like(X, np.nan))
    with pytest.raises(InvalidInputError, match="`groups`"):
        embedding_cosine(X, X, [1])


def test_leakage_by_hand():
    truth = [{"aspirin", "codeine"}, {"aspirin"}, set(), ["warfarin", "warfarin"]]
    guess = [{"codeine", "the"}, {"aspirin"}, {"aspirin"}, set()]
    estimate = reconstruction_leakage(truth, guess)
    assert estimate.metric == "Leakage"
    assert estimate.value == pytest.approx(2 / 4)  # a token counts once for each text
    assert estimate.n == 4
    assert estimate.low <= 0.5 <= estimate.high


def test_leakage_chance_is_the_reconstruction_of_another_text():
    # Every reconstruction says "aspirin": all of it is found, by chance as well.
    truth = [{"aspirin"}] * 10
    estimate = reconstruction_leakage(truth, [{"aspirin"}] * 10)
    assert (estimate.value, estimate.chance) == (1.0, 1.0)
    own = [{f"token{i}"} for i in range(10)]
    estimate = reconstruction_leakage(own, own)
    assert (estimate.value, estimate.chance) == (1.0, 0.0)
    copies = reconstruction_leakage(own * 2, own * 2, list(range(10)) * 2)
    assert copies.chance == 0.0


def test_wrong_token_sets_are_refused():
    with pytest.raises(InvalidInputError, match="`token_sets_true` must be non-empty"):
        reconstruction_leakage([set(), set()], [{"a"}, {"b"}])
    with pytest.raises(InvalidInputError, match="same length"):
        reconstruction_leakage([{"a"}], [{"a"}, {"b"}])
    with pytest.raises(InvalidInputError, match="one set of tokens for each text; got str at"):
        reconstruction_leakage([{"a"}], ["a text with a"])
    with pytest.raises(InvalidInputError, match="one set of tokens for each text; got int at"):
        reconstruction_leakage([{"a"}], [1])
    with pytest.raises(InvalidInputError, match="`token_sets_true` must be one set"):
        reconstruction_leakage("abc", [{"a"}] * 3)
