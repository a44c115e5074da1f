"""The faint-directions attack finds what a careless product leaves, and nothing where nothing is."""

import numpy as np
import pytest

from vecveil.auditing.attacks import Knowledge, LabelledVectors, Session
from vecveil.auditing.attacks.token_inference import FaintDirectionsAttack, LinearAttack
from vecveil.privacy.sensitivity import LinearMap, Moments, concept_directions, subspace_map

N, V, ROWS = 96, 12, 3000


@pytest.fixture(scope="module")
def problem() -> tuple[np.ndarray, np.ndarray, LinearMap]:
    rng = np.random.default_rng(0)
    L = (rng.random((ROWS, V)) < 0.15).astype(np.uint8)
    L[np.arange(ROWS), rng.integers(0, V, ROWS)] = 1
    topics = rng.standard_normal((ROWS, N)) * np.arange(1, N + 1) ** -0.3
    X = topics + L @ rng.standard_normal((V, N))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    half = ROWS // 2
    moments = Moments.of(X[:half], topics[:half] * 0.1, token_labels=L[:half])
    return X[half:], L[half:], subspace_map(concept_directions(moments), erased=24, kept=32)


def _attack(attack, Y, L):
    cut = 2 * len(Y) // 3
    result = attack.run(LabelledVectors(Y[:cut], L[:cut]), LabelledVectors(Y[cut:], L[cut:]), rng=0)
    estimate = result.estimates["r_precision"]
    return estimate.value, estimate.chance


def _noisy(X: np.ndarray, dtype: type) -> np.ndarray:
    noise = np.random.default_rng(1).standard_normal(X.shape) * 0.3 / np.sqrt(N)
    return (X + noise).astype(dtype)


def test_a_rounded_product_with_the_whole_map_is_read(problem) -> None:
    """Control: the erased concept is read from the rounding errors of one product with T."""
    X, L, linear = problem
    careless = _noisy(X, np.float32) @ linear.matrix.T.astype(np.float32)
    found, chance = _attack(FaintDirectionsAttack(), careless, L)
    others, _ = _attack(LinearAttack(), careless, L)
    assert found > chance + 0.1  # what is read are rounding errors: how many there are depends on the machine
    assert found > others + 0.1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_our_map_leaves_nothing_there(problem, dtype) -> None:
    X, L, linear = problem
    found, chance = _attack(FaintDirectionsAttack(), linear.apply(_noisy(X, dtype)), L)
    others, _ = _attack(LinearAttack(), linear.apply(_noisy(X, dtype)), L)
    # 500 test rows, about 1,100 tokens: six standard deviations of a share are below 0.09.
    assert found < max(chance, others) + 0.09


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_known_complement_of_the_kept_directions_says_nothing(problem, dtype) -> None:
    """The attacker who knows the map projects on the directions that were not kept, and is at chance."""
    X, L, linear = problem

    def residual(Y: np.ndarray) -> np.ndarray:
        Y = Y.astype(np.float64)
        rest = Y - (Y @ linear.up) @ linear.up.T
        return rest / np.maximum(rest.std(axis=0), 1e-300)

    careful = residual(linear.apply(_noisy(X, dtype)))
    careless = residual(_noisy(X, dtype) @ linear.matrix.T.astype(dtype))
    scores = []
    for R in (careful, careless):
        cut = 2 * len(R) // 3
        centred = L[:cut] - L[:cut].mean(axis=0)
        weights = np.linalg.solve(R[:cut].T @ R[:cut] / cut + 0.01 * np.eye(N), R[:cut].T @ centred / cut)
        guess = R[cut:] @ weights
        aucs = [(guess[L[cut:, j] == 1, j][:, None] > guess[L[cut:, j] == 0, j]).mean() for j in range(V)]
        scores.append(np.mean(aucs))
    # Mean of 12 AUCs over 500 rows with about 90 positives each: a standard error below 0.011.
    assert abs(scores[0] - 0.5) < 0.07
    assert scores[1] > 0.57


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_release_of_full_rank_has_no_faint_directions(problem, dtype) -> None:
    """The words are there to be read, but not in directions without variance."""
    X, L, _ = problem
    Y = _noisy(X, dtype)
    value, chance = _attack(FaintDirectionsAttack(), Y, L)
    control, _ = _attack(LinearAttack(), Y, L)
    assert value == pytest.approx(chance, abs=0.01)  # a label mean for every text
    assert control > chance + 0.2


def test_at_full_rank_the_rounding_of_the_projection_is_not_read(problem, monkeypatch) -> None:
    """A linear-algebra library that rounds more coarsely stands in for other machines'."""
    X, L, _ = problem
    svd = np.linalg.svd

    def coarse(matrix, **options):
        left, values, axes = svd(matrix, **options)
        return left, values, axes + 1e-11 * np.random.default_rng(0).standard_normal(axes.shape)

    monkeypatch.setattr(np.linalg, "svd", coarse)
    value, chance = _attack(FaintDirectionsAttack(), _noisy(X, np.float64), L)
    assert value == pytest.approx(chance, abs=0.01)


def test_with_fewer_texts_than_dimensions_it_answers_the_label_mean() -> None:
    """The directions that no training text has are not faint: scores there would be without bound."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, N))
    L = np.eye(4, dtype=int)[rng.integers(0, 4, 200)]
    train, test = LabelledVectors(X[:60], L[:60]), LabelledVectors(X[60:], L[60:])
    attack = FaintDirectionsAttack()
    state = attack._fit(
        train.take(np.arange(54)), train.take(np.arange(54, 60)), Session(Knowledge(N), np.random.default_rng(0), False)
    )
    assert attack._scores(state, test.X) == pytest.approx(np.tile(state.label_mean, (140, 1)))
    assert attack.run(train, test, rng=0).estimates["leakage"].value < 0.3
