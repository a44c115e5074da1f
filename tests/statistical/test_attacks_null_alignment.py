"""Alignment finds a secret map and nothing where there is none."""

import numpy as np
import pytest
from scipy.stats import binom

from unit.auditing.attacks.planted_maps import clean_rows, clustered, rotation
from vecveil.auditing.attacks import CandidateVectors, PairedVectors
from vecveil.auditing.attacks.alignment import (
    PermutationAlignment,
    ProcrustesAlignment,
    RidgeAlignment,
    UnpairedAlignment,
)

PAIRS = (10, 100)
ATTACKS = [
    PermutationAlignment(pairs=PAIRS),
    ProcrustesAlignment(pairs=PAIRS),
    RidgeAlignment(pairs=PAIRS),
    UnpairedAlignment(rows=800, runs=1, clusters=6, rounds=4),
]
FALSE_FAILURE = 1e-6 / (len(ATTACKS) * (2 * len(PAIRS)))
KNOWN, STORED, OPTIONS, DIMENSION = 800, 300, 10, 16


def _evidence(seed, world):
    """Return pairs, and stored vectors with ten candidates each, the right one in a place drawn uniformly."""
    rng = np.random.default_rng([seed, 1])
    unpaired = world == "planted, unpaired"
    X = (clustered if unpaired else clean_rows)(KNOWN + STORED, DIMENSION, seed=seed)
    clean = clustered(KNOWN, DIMENSION, seed=seed + 100) if unpaired else X[:KNOWN]
    Y = X @ rotation(DIMENSION, seed=seed) if unpaired else X[:, rng.permutation(DIMENSION)]
    if world == "pure noise":
        Y = rng.standard_normal(Y.shape)
    if world == "permuted pairs":
        Y[:KNOWN] = Y[rng.permutation(KNOWN)]
    options = rng.random((STORED, STORED)).argsort(axis=1)[:, :OPTIONS]
    truth = rng.integers(OPTIONS, size=STORED)
    if world.startswith("planted"):
        right = np.arange(STORED)
        options = np.where(options == right[:, None], (right[:, None] + 1) % STORED, options)
        options[right, truth] = right
    return PairedVectors(Y[:KNOWN], clean), CandidateVectors(Y[KNOWN:], X[KNOWN:], truth, options)


def _threshold():
    """Return the top-1 that an attack without information passes with FALSE_FAILURE at most.

    Which of its ten candidates is called the right one is drawn uniformly, for each vector, independently
    of everything that the attack sees: it is picked with probability 1 / OPTIONS, whatever is learnt.
    """
    return binom.isf(FALSE_FAILURE, STORED, 1 / OPTIONS) / STORED


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_nothing_is_found_where_nothing_is(attack):
    """Null: released vectors are pure noise, or the pairs and the candidates are of other texts.

    False failure: at most 1e-6 over all attacks, worlds and numbers of pairs, from the exact
    binomial tail. Power: a top-1 of .25 is over the threshold (.21); a rotation or an order of the
    coordinates gives 1. Control: the planted map is found by every attack.
    """
    threshold = _threshold()
    for world in ("pure noise", "permuted pairs"):
        found = attack.run(*_evidence(0, world), rng=0)
        tops = [e.value for key, e in found.estimates.items() if key.startswith("top_1")]
        assert max(tops) <= threshold, world
    world = "planted, unpaired" if "unpaired" in attack.name else "planted, known"
    assert attack.run(*_evidence(0, world), rng=0).value > threshold
