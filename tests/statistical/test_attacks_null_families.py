"""Probes, matching, neighbours, the posterior, repeated releases and denoising find what is there and nothing else."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from vecveil.auditing.attacks import CandidateVectors, KernelAttack, LabelledVectors, PairedVectors
from vecveil.auditing.attacks.candidates import CosineMatching, FixedNormMatching, LikelihoodMatching
from vecveil.auditing.attacks.probes import KernelProbe, LinearProbe, MLPProbe
from vecveil.auditing.attacks.token_inference import BayesPosteriorAttack, NearestNeighboursAttack
from vecveil.auditing.attacks.wrapped import AveragingAttack, Denoised, MultilaterationAttack, RepeatedVectors

TOKEN_ATTACKS = [
    NearestNeighboursAttack(),
    BayesPosteriorAttack(),
    Denoised(KernelAttack(rows=600)),
    AveragingAttack(4),
    MultilaterationAttack(4),
]
PROBES = [
    LinearProbe(),
    KernelProbe(rows=600),
    MLPProbe((32,), epochs=8, batch=64),
    Denoised(MLPProbe((32,), epochs=8, batch=64)),
]
MATCHING = [CosineMatching(), LikelihoodMatching(), FixedNormMatching(), Denoised(CosineMatching())]
WORLDS = ("pure noise", "permuted labels")
FALSE_FAILURE = 1e-6 / (len(WORLDS) * len(TOKEN_ATTACKS + PROBES + MATCHING))
TOKENS, ROWS, DIMENSION, OPTIONS = 8, 500, 16, 10
named = {"ids": lambda attack: attack.name}


def _release(X, rng):
    return X + 0.5 * rng.standard_normal(X.shape)


def _mean_of_four(X, rng):
    return X + 0.25 * rng.standard_normal(X.shape)


def _directions(seed, strength, kinds):
    """Return training and test vectors of which each holds one of some directions, and which."""
    rng = np.random.default_rng(seed)
    which = rng.integers(kinds, size=2 * ROWS)
    X = rng.standard_normal((2 * ROWS, DIMENSION))
    X[np.arange(2 * ROWS), which] += strength
    return X, which, rng


def _tokens_found(attack, X, which, rng):
    L = np.eye(TOKENS, dtype=np.uint8)[which]
    released = (_mean_of_four if attack.family == "averaging" else _release)(X[ROWS:], rng)
    train, test = LabelledVectors(X[:ROWS], L[:ROWS]), LabelledVectors(released, L[ROWS:])
    if isinstance(attack, MultilaterationAttack):
        test = RepeatedVectors.of(X[ROWS:], L[ROWS:], 4, _release, rng)
    return attack.run(train, test, release=_release, show_progress=False).value


@pytest.mark.parametrize("attack", TOKEN_ATTACKS, **named)
def test_no_token_is_found_where_none_is(attack):
    """Null: test labels carry no information on the vectors (pure noise; labels permuted).

    False failure: at most 1e-6 over all attacks and worlds, from the exact binomial tail: test labels are
    independent of everything the attack sees and uniform, so its first is right with probability
    1 / TOKENS, independently for each text. Power: a leak of .25 is over the threshold (.21). Control: the
    planted leak, the same vectors with their labels in place, is found by every attack.
    """
    threshold = binom.isf(FALSE_FAILURE, ROWS, 1 / TOKENS) / ROWS
    X, which, rng = _directions(0, 0.0, TOKENS)
    assert _tokens_found(attack, X, which, rng) <= threshold
    X, which, rng = _directions(0, 2.5, TOKENS)
    permuted = np.concatenate([which[:ROWS], rng.integers(TOKENS, size=ROWS)])
    assert _tokens_found(attack, X, permuted, rng) <= threshold
    assert _tokens_found(attack, X, which, rng) > threshold


def _auc(probe, X, holds, rng):
    train = LabelledVectors(X[:ROWS], holds[:ROWS, None])
    test = LabelledVectors(_release(X[ROWS:], rng), holds[ROWS:, None])
    return probe.run(train, test, release=_release, show_progress=False).estimates["auc"]


def _auc_bound(holds):
    """Return the AUC that independent scores exceed with FALSE_FAILURE at most.

    The AUC is a two-sample U-statistic of a kernel in [0, 1], so by Hoeffding (1963, section 5b)
    P(AUC - 1/2 >= t) <= exp(-2 min(positives, negatives) t²).
    """
    fewer = min(holds.sum(), (~holds).sum())
    return 0.5 + math.sqrt(math.log(1 / FALSE_FAILURE) / (2 * fewer))


@pytest.mark.parametrize("probe", PROBES, **named)
def test_no_concept_is_found_where_none_is(probe):
    """Null: whether a test text holds the concept is independent of its vector.

    False failure: at most 1e-6 over all attacks and worlds, from Hoeffding's bound for U-statistics.
    Power: an AUC of .75 is over the threshold (.69). Control: the planted concept is found.
    """
    X, which, rng = _directions(0, 0.0, 2)
    holds = which == 0
    assert _auc(probe, X, holds, rng).value <= _auc_bound(holds[ROWS:])
    X, which, rng = _directions(0, 2.5, 2)
    holds = which == 0
    permuted = np.concatenate([holds[:ROWS], rng.random(ROWS) < 0.5])
    assert _auc(probe, X, permuted, rng).value <= _auc_bound(permuted[ROWS:])
    assert _auc(probe, X, holds, rng).value > _auc_bound(holds[ROWS:])


def _matched(attack, X, test):
    return attack.run(PairedVectors(X, X), test, release=_release).value


@pytest.mark.parametrize("attack", MATCHING, **named)
def test_no_candidate_is_found_where_none_is(attack):
    """Null: which of the options is called the true one is independent of the vector.

    False failure: at most 1e-6 over all attacks and worlds, from the exact binomial tail: the true option's
    place is uniform over the OPTIONS. Power: top-1 of .2 is over the threshold (.18). Control: the
    vectors with their own candidates are matched.
    """
    rng = np.random.default_rng(0)
    train, pool = rng.standard_normal((2, ROWS, DIMENSION))
    threshold = binom.isf(FALSE_FAILURE, ROWS, 1 / OPTIONS) / ROWS
    options = np.stack([rng.permutation(ROWS)[:OPTIONS] for _ in range(ROWS)])
    truth = rng.integers(OPTIONS, size=ROWS)
    noise = CandidateVectors(rng.standard_normal((ROWS, DIMENSION)), pool, truth, options)
    assert _matched(attack, train, noise) <= threshold
    own = pool[options[np.arange(ROWS), truth]]
    there = CandidateVectors(_release(own, rng), pool, truth, options)
    permuted = CandidateVectors(there.X, pool, rng.integers(OPTIONS, size=ROWS), options)
    assert _matched(attack, train, permuted) <= threshold
    assert _matched(attack, train, there) > threshold
