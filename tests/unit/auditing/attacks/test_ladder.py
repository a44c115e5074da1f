import numpy as np
import pytest

import vecveil.auditing.attacks.ladder
from harness.errors import raises
from unit.auditing.attacks.planted import parity, planted
from vecveil.auditing.attacks import (
    FurtherKernelAttack,
    FurtherVectors,
    KernelAttack,
    LinearAttack,
    MLPAttack,
    TransplantAttack,
    ladder_attacks,
    token_inference_ladder,
)


@pytest.fixture
def small(monkeypatch):
    """A ladder of small attacks, so that a test takes a second."""

    def attacks(tier="quick", *, device="auto"):
        ladder_attacks(tier, device=device)  # the tier is still checked
        return LinearAttack(), KernelAttack(rows=800), MLPAttack((32,), epochs=10, batch=32)

    monkeypatch.setattr(vecveil.auditing.attacks.ladder, "ladder_attacks", attacks)


def test_tiers():
    quick, full = ladder_attacks("quick"), ladder_attacks("full")
    names = [
        "linear",
        "faint-directions",
        "kernel",
        "transplant",
        "kernel-further",
        "ensemble",
        "nearest-neighbours",
        "bayes-posterior",
        "mlp-512",
        "mlc-published",
        "network",
    ]
    assert [a.name for a in quick] == [a.name for a in full] == names
    assert full[-1].effort > quick[-1].effort


def test_real_ladder_on_arrays_only():
    train, test = planted(150, seed=0), planted(100, seed=1)
    ladder = token_inference_ladder(train.X, train.L, test.X, test.L, show_progress=False)
    assert [result.name for result in ladder.results] == [
        a.name
        for a in ladder_attacks()
        # these need texts without the concept, further texts, and an oracle
        if a.name not in ("transplant", "kernel-further", "network")
    ]
    assert ladder.worst.value == max(result.value for result in ladder.results) > 0.85
    assert not any(result.adaptive for result in ladder.results)


def test_further_texts_and_those_without_the_concept_bring_their_attacks(monkeypatch):
    def attacks(tier="quick", *, device="auto"):
        return KernelAttack(rows=99), TransplantAttack(rows=99), FurtherKernelAttack(rows=99)

    monkeypatch.setattr(vecveil.auditing.attacks.ladder, "ladder_attacks", attacks)
    train, test, more = planted(60, seed=0), planted(40, seed=1), planted(30, seed=2)
    further = FurtherVectors(more.X, more.L, np.full(30, 0.5))
    given = {"without_train": 0.1 * train.X, "further_train": further}
    names = []
    for keys in ([], ["without_train"], ["further_train"], list(given)):
        part = {key: given[key] for key in keys}
        ladder = token_inference_ladder(train.X, train.L, test.X, test.L, show_progress=False, **part)
        names.append([result.name for result in ladder.results])
    assert names == [
        ["kernel"],
        ["kernel", "transplant"],
        ["kernel", "kernel-further"],
        ["kernel", "transplant", "kernel-further"],
    ]


@pytest.mark.usefixtures("small")
def test_the_worst_is_the_strongest_attack():
    train, test = parity(400, seed=0), parity(300, seed=1)
    ladder = token_inference_ladder(train.X, train.L, test.X, test.L, show_progress=False)
    assert ladder["linear"].estimates["auc"].value < 0.6
    assert ladder.worst.name != "linear"
    assert ladder.worst.value > 0.9
    with pytest.raises(KeyError):
        ladder["other"]


@pytest.mark.usefixtures("small")
def test_a_seed_gives_the_same_ladder():
    train, test = planted(100, seed=0, strength=0.5), planted(80, seed=1, strength=0.5)
    given = (train.X, train.L, test.X, test.L)
    first, again = (token_inference_ladder(*given, seed=3, show_progress=False) for _ in range(2))
    for a, b in zip(first.results, again.results, strict=True):
        assert dict(a.estimates) == dict(b.estimates)


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"X_train": np.full((20, 4), np.nan)}, "E-INPUT-FINITE", "X"),
        ({"L_test": np.ones((20, 3))}, "E-INPUT-SHAPE", "test"),
        ({"groups_test": np.zeros(3)}, "E-INPUT", "groups"),
        ({"tier": "medium"}, "E-INPUT", "tier"),
        ({"seed": -1}, "E-INPUT-RANGE", "seed"),
    ],
)
def test_bad_input_is_refused(change, code, param):
    rng = np.random.default_rng(0)
    given = {
        "X_train": rng.standard_normal((20, 4)),
        "L_train": np.eye(2)[np.arange(20) % 2],
        "X_test": rng.standard_normal((20, 4)),
        "L_test": np.eye(2)[np.arange(20) % 2],
    }
    with raises(code, param):
        token_inference_ladder(**(given | change))
