"""Candidate matching: both rankings, with options and against a whole pool, whatever the release does."""

import numpy as np
import pytest
from scipy.stats import chi

from harness.errors import raises
from vecveil.auditing.attacks import CandidateVectors, PairedVectors
from vecveil.auditing.attacks.candidates import CosineMatching, FixedNormMatching, LikelihoodMatching

ATTACKS = [CosineMatching(), LikelihoodMatching()]
every_attack = pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
N, M, n = 400, 150, 12


def _unit(rows, seed):
    X = np.random.default_rng(seed).standard_normal((rows, n))
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)


DOWN = np.random.default_rng(3).standard_normal((n, 7)).astype(np.float32)
ERASE = np.eye(n, dtype=np.float32) - np.outer(np.eye(n)[0], np.ones(n)).astype(np.float32)


def _added(scale):
    def release(X, rng):
        return X + scale * rng.standard_normal(X.shape).astype(X.dtype)

    return release


def _sphere(X, rng):
    Y = X + 0.05 * rng.standard_normal(X.shape).astype(X.dtype)
    return Y / np.linalg.norm(Y, axis=1, keepdims=True)


RELEASES = {
    "identity": lambda X, rng: X,
    "noise": _added(0.05),
    "reduced": lambda X, rng: _added(0.02)(X @ DOWN, rng),
    "erased": lambda X, rng: _added(0.03)(X, rng) @ ERASE,
    "sphere": _sphere,
    "bent": lambda X, rng: _added(0.02)(np.tanh(4 * X), rng),
    "shuffled": lambda X, rng: X[:, np.random.default_rng(9).permutation(n)],
}


def _task(release, *, options=None, rows=M):
    pool = _unit(600, 1)
    rng = np.random.default_rng(11)  # not the pool's: noise must not repeat it
    X = release(pool[:rows], rng)
    if options is None:
        return CandidateVectors(X, pool, np.arange(rows))
    columns = np.stack([rng.permutation(600)[:options] for _ in range(rows)])
    truth = rng.integers(options, size=rows)
    columns[np.arange(rows), truth] = np.arange(rows)
    return CandidateVectors(X, pool, truth, columns)


@every_attack
@pytest.mark.parametrize("options", [None, 10], ids=["pool", "options"])
@pytest.mark.parametrize("name", RELEASES)
def test_the_right_candidate_is_found(attack, name, options):
    release = RELEASES[name]
    clean = _unit(N, 0)
    found = attack.run(PairedVectors(clean, clean), _task(release, options=options), release=release)
    assert list(found.estimates) == ["top_1", "mrr"]
    assert [e.metric for e in found.estimates.values()] == [f"top-1 of {options or 600}", "MRR"]
    assert found.family == "candidates"
    assert found.value > 0.8
    assert found.main.chance == pytest.approx(1 / (options or 600))
    assert found.estimates["mrr"].value >= found.value


@every_attack
@pytest.mark.parametrize("name", ["noise", "reduced", "erased", "shuffled"])
def test_known_pairs_do_instead_of_an_oracle(attack, name):
    clean = _unit(N, 0)
    train = PairedVectors(RELEASES[name](clean, np.random.default_rng(5)), clean)
    assert attack.run(train, _task(RELEASES[name])).value > 0.6


def test_the_likelihood_knows_which_directions_are_noisy():
    scales = np.where(np.arange(n) < 6, 0.5, 0.02).astype(np.float32)

    def release(X, rng):
        return X + scales * rng.standard_normal(X.shape).astype(np.float32)

    clean = _unit(N, 0)
    train, test = PairedVectors(clean, clean), _task(release)
    cosine, known, sampled = (
        attack.run(train, test, release=release, noise_covariance=S).value
        for attack, S in (
            (CosineMatching(), None),
            (LikelihoodMatching(), np.diag(scales.astype(float) ** 2)),
            (LikelihoodMatching(), None),
        )
    )
    assert known > cosine + 0.3
    assert sampled == pytest.approx(known, abs=0.05)
    released = PairedVectors(release(clean, np.random.default_rng(2)), clean)
    assert LikelihoodMatching().run(released, test).value > cosine + 0.3


def test_directions_without_noise_decide():
    mask = np.array([0.0] + [3.0] * (n - 1), dtype=np.float32)

    def release(X, rng):
        return X + mask * rng.standard_normal(X.shape).astype(np.float32)

    clean = _unit(N, 0)
    given = {"release": release, "noise_covariance": np.diag(mask.astype(float) ** 2)}
    found = LikelihoodMatching().run(PairedVectors(clean, clean), _task(release), **given)
    assert found.value > 0.95
    assert CosineMatching().run(PairedVectors(clean, clean), _task(release), **given).value < 0.2


def test_the_likelihood_is_the_optimal_one():
    """With Gaussian noise known exactly, the attack reaches the rule that is told the noise."""
    release, clean = _added(0.25), _unit(4000, 0)
    test = _task(release, rows=600)
    distances = ((test.X[:, None] - test.pool[None]) ** 2).sum(axis=2)
    best = float((distances.argmin(axis=1) == test.truth).mean())
    found = LikelihoodMatching().run(
        PairedVectors(clean, clean), test, release=release, noise_covariance=0.0625 * np.eye(n)
    )
    assert found.value == pytest.approx(best, abs=0.03)


@every_attack
def test_constant_releases_give_chance(attack):
    test = _task(lambda X, rng: np.ones((len(X), 3)), options=4)
    found = attack.run(PairedVectors(_unit(N, 0), _unit(N, 0)), test, release=lambda X, rng: np.ones((len(X), 3)))
    assert found.value == pytest.approx(0.25)


def test_few_pairs_and_candidates_of_another_dimension():
    clean = _unit(3, 0)
    test = _task(RELEASES["identity"])
    assert 0 <= LikelihoodMatching().run(PairedVectors(clean, clean), test).value <= 1
    wide = CandidateVectors(test.X, np.ones((4, 5)), np.zeros(M, dtype=int))
    with raises("E-INPUT", "test"):
        LikelihoodMatching().run(PairedVectors(clean, clean), wide)
    with raises("E-INPUT-RANGE", "draws"):
        CosineMatching(draws=1)


def _moved(radius, pull=0.0):
    """Return a release that moves every vector by ``radius``, across a direction of its own, as TextCrafter does.

    ``pull`` is how far the move's mean, which depends on the vector, outweighs chance.
    """
    mean, reference = np.random.default_rng(21).standard_normal((2, n, n))

    def release(X, rng):
        v = X @ reference
        v /= np.linalg.norm(v, axis=1, keepdims=True)
        move = rng.standard_normal(X.shape) + pull * (X @ mean)
        move -= (move * v).sum(axis=1, keepdims=True) * v
        move *= radius / np.linalg.norm(move, axis=1, keepdims=True)
        return (X + move).astype(X.dtype)

    return release


@pytest.mark.parametrize("options", [None, 10], ids=["pool", "options"])
@pytest.mark.parametrize("radius", [0.01, 5.0])
@pytest.mark.parametrize("pull", [0.0, 3.0])
def test_a_fixed_norm_gives_its_vector_away(radius, pull, options):
    release, clean = _moved(radius, pull), _unit(N, 0)
    test = _task(release, options=options)
    pairs = PairedVectors(release(clean, np.random.default_rng(5)), clean)
    for found in (
        FixedNormMatching().run(PairedVectors(clean, clean), test, release=release),
        FixedNormMatching().run(pairs, test),
    ):
        assert found.value > 0.97
        assert found.details["norm"] == pytest.approx(radius, rel=1e-4)
        assert found.details["relative_spread"] < 1e-4


def test_cosine_and_likelihood_do_not_see_a_large_fixed_norm():
    release, clean = _moved(5.0), _unit(N, 0)
    for attack in ATTACKS:
        found = attack.run(PairedVectors(clean, clean), _task(release), release=release)
        assert found.value < 0.2


@pytest.mark.parametrize("options", [None, 10], ids=["pool", "options"])
def test_what_is_not_moved_is_found_by_its_norm_of_zero(options):
    clean, release = _unit(N, 0), RELEASES["identity"]
    test = _task(release, options=options)
    found = FixedNormMatching().run(PairedVectors(clean, clean), test, release=release)
    assert found.value > 0.98  # some options hold the right one twice
    assert found.details == {"norm": 0.0, "relative_spread": 0.0}


def test_a_random_norm_is_declared_and_no_better_than_the_likelihood():
    release, clean = _added(0.25), _unit(4000, 0)
    test = _task(release, rows=600)
    given = {"release": release, "noise_covariance": 0.0625 * np.eye(n)}
    found, likelihood = (
        attack.run(PairedVectors(clean, clean), test, **given) for attack in (FixedNormMatching(), LikelihoodMatching())
    )
    assert found.value < likelihood.value
    quartiles = chi(n).ppf([0.25, 0.5, 0.75])
    spread = (quartiles[2] - quartiles[0]) / quartiles[1]
    assert found.details["relative_spread"] == pytest.approx(spread, abs=0.04)


def test_a_reduced_release_is_refused():
    clean, release = _unit(N, 0), RELEASES["reduced"]
    with raises("E-INPUT", "test"):
        FixedNormMatching().run(PairedVectors(clean, clean), _task(release), release=release)
