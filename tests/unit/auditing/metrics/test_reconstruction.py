import numpy as np
import pytest

from harness.errors import raises
from vecveil.auditing.metrics.text_similarity import reconstruction_leakage
from vecveil.privacy.utility.tasks import embedding_cosine


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
    with raises("E-INPUT-SHAPE", "reference_vectors"):
        embedding_cosine(X[:0], X[:0])
    with raises("E-INPUT-SHAPE", "hypothesis_vectors"):
        embedding_cosine(X, X[:2])
    with raises("E-INPUT", "right"):
        embedding_cosine(X, np.ascontiguousarray(X[:, :3]))
    with raises("E-INPUT-FINITE", "hypothesis_vectors"):
        embedding_cosine(X, np.full_like(X, np.nan))
    with raises("E-INPUT", "groups"):
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
    with raises("E-INPUT", "token_sets_true"):
        reconstruction_leakage([set(), set()], [{"a"}, {"b"}])
    with raises("E-INPUT-SHAPE", "token_sets_reconstructed"):
        reconstruction_leakage([{"a"}], [{"a"}, {"b"}])
    with raises("E-INPUT", "token_sets_reconstructed"):
        reconstruction_leakage([{"a"}], ["a text with a"])
    with raises("E-INPUT", "token_sets_reconstructed"):
        reconstruction_leakage([{"a"}], [1])
    with raises("E-INPUT", "token_sets_true"):
        reconstruction_leakage("abc", [{"a"}] * 3)
