"""Membership: a text that is in the store scores above others, and below noise that hides it nothing does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from vecveil.auditing.attacks import CandidateVectors, MembershipAttack, PairedVectors

RNG = np.random.default_rng(0)
KNOWN, POOL = (RNG.standard_normal((rows, 16)).astype(np.float32) for rows in (600, 400))
STORE = 200


def attack(noise: float, store: Any = None, **options: Any) -> dict[str, float]:
    def release(X: Any, rng: np.random.Generator) -> Any:
        return (X + noise * rng.standard_normal(X.shape)).astype(np.float32)

    released = release(POOL[:STORE] if store is None else store, np.random.default_rng(1))
    test = CandidateVectors(released, POOL, np.arange(STORE))
    result = MembershipAttack().run(PairedVectors(KNOWN, KNOWN), test, release=release, rng=0, **options)
    return {key: estimate.value for key, estimate in result.estimates.items()}


def test_noise_hides_membership_and_clean_vectors_do_not() -> None:
    clean, some, much = attack(0.0), attack(0.6), attack(6.0)
    assert clean["auc"] > 0.999
    assert clean["tpr"] > 0.95
    assert 0.7 < some["auc"] < clean["auc"]
    assert some["auc"] - 0.2 > much["auc"]


def test_a_store_of_other_texts_gives_chance() -> None:
    """Null: no text of the pool is in it. Five standard errors of an AUC, .029, are exceeded once in 3.5 million."""
    other = np.random.default_rng(2).standard_normal((STORE, 16)).astype(np.float32)
    assert attack(0.3, other)["auc"] == pytest.approx(0.5, abs=5 * 0.029)


def test_everybody_a_member_is_refused() -> None:
    train, every = PairedVectors(KNOWN, KNOWN), CandidateVectors(POOL, POOL, np.arange(len(POOL)))
    with raises("E-INPUT", "test"):
        MembershipAttack().run(train, every, rng=0)
