"""For every attack without a language model: a seed gives the same result, and its state comes back from a folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from unit.auditing.attacks.planted import planted
from unit.auditing.attacks.planted_maps import evidence, rotation
from vecveil.auditing.attacks import (
    AccessPatternAttack,
    AnchorLinkingAttack,
    Attack,
    AveragingAttack,
    BayesPosteriorAttack,
    CandidateVectors,
    CosineMatching,
    Denoised,
    EnsembleAttack,
    FaintDirectionsAttack,
    FixedNormMatching,
    KernelAttack,
    KernelProbe,
    LabelledVectors,
    LikelihoodMatching,
    LinearAttack,
    LinearProbe,
    LinkingAttack,
    MLCAttack,
    MLPAttack,
    MLPProbe,
    MultilaterationAttack,
    NearestNeighboursAttack,
    PairedVectors,
    PermutationAlignment,
    ProcrustesAlignment,
    RepeatedVectors,
    RidgeAlignment,
    TextVectors,
    UnpairedAlignment,
    WholeVocabularyAttack,
)
from vecveil.privacy.networks import Schedule

Evidence = tuple[Any, Any, dict[str, Any]]


def _noisy(X: Any, rng: np.random.Generator) -> Any:
    return (X + 0.3 * rng.standard_normal(X.shape)).astype(X.dtype)


def tokens() -> Evidence:
    train, test = planted(120, seed=0), planted(80, seed=1)
    return train, LabelledVectors(_noisy(test.X, np.random.default_rng(2)), test.L), {"release": _noisy}


def concept() -> Evidence:
    train, test, given = tokens()
    both = [LabelledVectors(part.X, part.L[:, :3].any(axis=1, keepdims=True)) for part in (train, test)]
    return *both, given


def repeated() -> Evidence:
    test = planted(80, seed=1)
    several = RepeatedVectors.of(test.X, test.L, 3, _noisy, np.random.default_rng(2))
    return planted(120, seed=0), several, {"release": _noisy}


def candidates() -> Evidence:
    clean, pool = planted(200, seed=0).X, planted(90, seed=1).X
    released = _noisy(pool, np.random.default_rng(2))
    return PairedVectors(clean, clean), CandidateVectors(released, pool, np.arange(90)), {"release": _noisy}


def pairs() -> Evidence:
    return *evidence(rotation(12), noise=0.1), {}


def texts() -> Evidence:
    parts = [planted(rows, 12, seed=seed) for rows, seed in ((120, 0), (80, 1))]
    names = [[f"w{np.argmax(row)} a" for row in part.L] for part in parts]
    return *[TextVectors(part.X, some) for part, some in zip(parts, names, strict=True)], {}


def accesses() -> Evidence:
    parts = [planted(rows, seed=seed) for rows, seed in ((120, 0), (80, 1))]
    return *[LabelledVectors((part.X > 0).astype(np.float32), part.L) for part in parts], {}


CASES: list[tuple[Attack[Any, Any], Callable[[], Evidence]]] = [
    *((attack, tokens) for attack in (LinearAttack(), KernelAttack(rows=600), MLPAttack((8,), epochs=2))),
    (MLCAttack(Schedule(hidden=(16,), epochs=2, batch=32, learning_rate=3e-3)), tokens),
    *((attack, tokens) for attack in (NearestNeighboursAttack(), BayesPosteriorAttack(), FaintDirectionsAttack())),
    *((attack, tokens) for attack in (EnsembleAttack(rows=100), AveragingAttack(4), Denoised(LinearAttack()))),
    *((Denoised(attack), tokens) for attack in (NearestNeighboursAttack(), MLPAttack((8,), epochs=1))),
    *((attack, concept) for attack in (LinearProbe(), KernelProbe(rows=300), MLPProbe((8,), epochs=2))),
    (MultilaterationAttack(3), repeated),
    *((attack, candidates) for attack in (CosineMatching(), LikelihoodMatching(), FixedNormMatching())),
    (LinkingAttack(), candidates),
    (AnchorLinkingAttack(8), pairs),
    (WholeVocabularyAttack(4), texts),
    *((kind(pairs=(5, 60)), pairs) for kind in (PermutationAlignment, ProcrustesAlignment, RidgeAlignment)),
    (UnpairedAlignment(runs=1, clusters=4, rounds=4), pairs),
    (AccessPatternAttack(KernelAttack(rows=100), dimensions=6), accesses),
]


@pytest.mark.parametrize(("attack", "make"), CASES, ids=[attack.name for attack, _ in CASES])
def test_a_seed_decides_and_a_fitted_state_is_used_again(attack, make, tmp_path, monkeypatch) -> None:
    train, test, given = make()
    given |= {"rng": 5, "show_progress": False}
    first = attack.run(train, test, **given)
    kept = attack.run(train, test, **given, checkpoint=tmp_path)
    assert dict(first.estimates) == dict(kept.estimates)
    assert dict(first.details) == dict(kept.details)
    monkeypatch.setattr(type(attack), "_fit", None)  # whoever learns again fails
    again = attack.run(train, test, **given, checkpoint=tmp_path)
    for name, estimate in first.estimates.items():
        assert again.estimates[name].value == pytest.approx(estimate.value, abs=1e-6), name
    with raises("E-CHECKPOINT", "checkpoint"):
        attack.run(train, test, **{**given, "rng": 6}, checkpoint=tmp_path)
    (tmp_path / "attack.json").write_text("[]")
    with raises("E-CHECKPOINT", "checkpoint"):
        attack.run(train, test, **given, checkpoint=tmp_path)


@pytest.mark.parametrize(
    ("attack", "other", "make"),
    [
        (AveragingAttack(4), AveragingAttack(5), tokens),
        (Denoised(LinearAttack()), Denoised(LinearAttack(), draws=3), tokens),
        (Denoised(LinearAttack()), Denoised(KernelAttack()), tokens),
    ],
    ids=["releases", "draws", "inner attack"],
)
def test_a_state_of_other_settings_is_refused(attack, other, make, tmp_path) -> None:
    train, test, given = make()
    attack.run(train, test, **given, checkpoint=tmp_path)
    with raises("E-CHECKPOINT", "checkpoint"):
        other.run(train, test, **given, checkpoint=tmp_path)
