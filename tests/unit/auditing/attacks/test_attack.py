"""What holds for every attack of the ladder."""

import dataclasses
import json

import numpy as np
import pytest

from harness.errors import raises
from unit.auditing.attacks.planted import noisy, planted
from vecveil.auditing.attacks import (
    Attack,
    KernelAttack,
    LabelledVectors,
    LinearAttack,
    MLCAttack,
    MLPAttack,
    ladder_attacks,
)
from vecveil.privacy.networks import Schedule

ATTACKS = [
    LinearAttack(),
    KernelAttack(rows=600),
    MLPAttack((64,), epochs=12, batch=16),
    MLCAttack(Schedule(hidden=(32, 16), epochs=25, batch=32, learning_rate=3e-3)),
]
every_attack = pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)


@every_attack
def test_a_planted_leak_is_found(attack):
    train, test = planted(seed=0), planted(seed=1)
    released = LabelledVectors(noisy(test.X, np.random.default_rng(7)), test.L)
    result = attack.run(train, released, release=noisy, show_progress=False)
    assert result.value > 0.85
    assert result.adaptive
    assert result.estimates["r_precision"].chance == pytest.approx(1 / 6, abs=0.06)
    assert result.estimates["auc"].value > 0.9
    for estimate in result.estimates.values():
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
    assert result.terms.counts.sum() == 400
    assert result.seconds > 0


@pytest.mark.parametrize("attack", ATTACKS[2:], ids=lambda attack: attack.name)
def test_networks_leave_torch_alone_and_learn_what_the_seed_says(attack):
    import torch

    train, test = planted(120, seed=0), planted(80, seed=1)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    threads = torch.get_num_threads()
    first = attack.run(train, test, release=noisy, rng=5, show_progress=False)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    other = attack.run(train, test, release=noisy, rng=6, show_progress=False)
    assert first.estimates["confidence"] != other.estimates["confidence"]


@every_attack
def test_rank_deficient_dead_and_reduced_vectors(attack):
    """Releases of rank 6 in 20 dimensions with dead ones, and of 6 dimensions from clean 12."""
    train, test = planted(seed=0), planted(seed=1)
    map_down = np.random.default_rng(0).standard_normal((12, 6)).astype(np.float32)
    map_up = np.random.default_rng(1).standard_normal((6, 20)).astype(np.float32)
    map_up[:, 3] = 0
    wide = [LabelledVectors(d.X @ map_down @ map_up, d.L) for d in (train, test)]
    assert attack.run(*wide, show_progress=False).value > 0.4

    def reduce(X, rng):
        return X @ map_down

    narrow = LabelledVectors(test.X @ map_down, test.L)
    covariance = np.zeros((6, 6))
    found = attack.run(train, narrow, release=reduce, noise_covariance=covariance, show_progress=False)
    assert found.value > 0.4


@every_attack
def test_constant_vectors_give_chance(attack):
    test = planted(90, seed=1)
    train = LabelledVectors(np.ones((90, 12)), planted(90, seed=0).L)
    result = attack.run(train, LabelledVectors(np.ones((90, 12)), test.L), show_progress=False)
    expected = result.estimates["r_precision"].chance
    assert result.value == pytest.approx(expected, abs=0.15)


def test_duplicates_do_not_cross_into_validation():
    seen = {}

    class Spy(LinearAttack):
        def _fit(self, train, validation, session):
            seen["train"], seen["validation"] = train.groups, validation.groups
            return super()._fit(train, validation, session)

    data = planted(80)
    grouped = LabelledVectors(data.X, data.L, np.arange(80) // 4)
    Spy().run(grouped, planted(40, seed=1), show_progress=False)
    assert not set(seen["train"]) & set(seen["validation"])
    assert len(seen["validation"]) == 8


@pytest.mark.parametrize("attack", ATTACKS[::2], ids=lambda attack: attack.name)
def test_a_checkpoint_refuses_what_it_does_not_fit(attack, tmp_path):
    """`test_checkpoints` has what all attacks keep."""
    train, test = planted(120, seed=0), planted(80, seed=1)
    attack.run(train, test, release=noisy, show_progress=False, checkpoint=tmp_path / "a")
    other = LabelledVectors(test.X[:, :5], test.L)
    with raises("E-CHECKPOINT", "checkpoint"):
        attack.run(train, other, release=lambda X, rng: X[:, :5], checkpoint=tmp_path / "a")
    fewer = [LabelledVectors(d.X, d.L[:, :3]) for d in (train, test)]
    with raises("E-CHECKPOINT", "checkpoint"):
        attack.run(*fewer, release=noisy, checkpoint=tmp_path / "a")
    for other_train, options in (
        (LabelledVectors(train.X[::-1], train.L), {}),  # other evidence
        (train, {"rng": 1}),  # another seed
        (train, {"noise_covariance": np.eye(12)}),  # other knowledge
    ):
        with raises("E-CHECKPOINT", "checkpoint"):
            attack.run(other_train, test, release=noisy, checkpoint=tmp_path / "a", **options)
    record = (tmp_path / "a" / "attack.json").read_text()
    for damaged in ("", "[]", '{"schema": "vecveil.attack/1", "identity": [], "values": null}'):
        (tmp_path / "a" / "attack.json").write_text(damaged)
        with raises("E-CHECKPOINT", "checkpoint"):
            attack.run(train, test, release=noisy, checkpoint=tmp_path / "a")
    (tmp_path / "a" / "attack.json").write_text(record)
    state = tmp_path / "a" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:50])
    with raises("E-CHECKPOINT", "checkpoint"):
        attack.run(train, test, release=noisy, checkpoint=tmp_path / "a")


def test_what_another_run_has_begun_is_not_gone_on_with(tmp_path, monkeypatch):
    attack = LinearAttack()
    train, test = planted(120, seed=0), planted(80, seed=1)

    def stopped(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(attack), "_fit", stopped)
        with pytest.raises(KeyboardInterrupt):
            attack.run(train, test, checkpoint=tmp_path / "a", show_progress=False)
    with raises("E-CHECKPOINT", "checkpoint"):
        attack.run(train, test, rng=1, checkpoint=tmp_path / "a", show_progress=False)
    assert attack.run(train, test, checkpoint=tmp_path / "a", show_progress=False).value > 0.3
    (tmp_path / "file").write_text("")
    with raises("E-CHECKPOINT", "checkpoint"):
        attack.run(train, test, checkpoint=tmp_path / "file", show_progress=False)


def test_texts_on_both_sides_are_refused():
    train, test = planted(40, seed=0), planted(30, seed=1)
    grouped = LabelledVectors(train.X, train.L, np.arange(40))
    shared = LabelledVectors(test.X, test.L, np.arange(30) + 35)
    with raises("E-INPUT", "test"):
        LinearAttack().run(grouped, shared, show_progress=False)


@pytest.mark.parametrize("S", [-np.eye(12), np.triu(np.ones((12, 12)))])
def test_a_covariance_that_is_none_is_refused(S):
    with raises("E-INPUT", "noise_covariance"):
        LinearAttack().run(planted(40, seed=0), planted(30, seed=1), release=noisy, noise_covariance=S)


@every_attack
def test_tokens_of_one_class_do_no_harm(attack):
    train, test = planted(80, seed=0), planted(60, seed=1)
    ones, zeros = (np.full((n, 1), v, dtype=np.uint8) for n, v in ((80, 1), (80, 0)))
    given = LabelledVectors(train.X, np.hstack([train.L, ones, zeros]))
    judged = LabelledVectors(test.X, np.hstack([test.L, ones[:60], zeros[:60]]))
    result = attack.run(given, judged, show_progress=False)
    assert result.estimates["auc"].n == 6


@every_attack
def test_one_class_only_has_no_auc(attack):
    X = np.random.default_rng(0).standard_normal((30, 4))
    data = LabelledVectors(X, np.ones((30, 1)))
    result = attack.run(data, data, show_progress=False)
    assert result.value == 1.0
    assert result.estimates["r_precision"].chance == 1.0
    assert "auc" not in result.estimates


def _data(rows=10, dimension=4, tokens=3):
    X = np.random.default_rng(0).standard_normal((rows, dimension))
    return LabelledVectors(X, np.eye(tokens)[np.arange(rows) % tokens])


@pytest.mark.parametrize(
    ("train", "test", "options", "code", "param"),
    [
        (_data(), _data(tokens=2), {}, "E-INPUT-SHAPE", "test"),
        (_data(), _data(dimension=5), {}, "E-INPUT-SHAPE", "train"),
        (_data(), LabelledVectors(np.ones((2, 4)), np.zeros((2, 3))), {}, "E-INPUT-CLASSES", "test"),
        (_data(rows=1), _data(), {}, "E-INPUT-GROUPS", "groups"),
        (LabelledVectors(np.ones((4, 4)), np.zeros((4, 3)), np.zeros(4)), _data(), {}, "E-INPUT-GROUPS", "groups"),
        (_data(), _data(), {"noise_covariance": np.eye(3)}, "E-INPUT-SHAPE", "noise_covariance"),
        (_data(), _data(), {"noise_covariance": np.full((4, 4), np.nan)}, "E-INPUT", "noise_covariance"),
        (_data(), _data(), {"release": lambda X, rng: X[:, :2]}, "E-INPUT", "release"),
        (_data(), _data(), {"release": lambda X, rng: X * np.nan}, "E-INPUT-FINITE", "release"),
        (_data(), _data(), {"rng": "seed"}, "E-INPUT-TYPE", "rng"),
    ],
)
def test_bad_tasks_are_refused(train, test, options, code, param):
    with raises(code, param):
        LinearAttack().run(train, test, **options)


@pytest.mark.parametrize(
    ("X", "L", "groups", "code", "param"),
    [
        (np.full((2, 2), np.nan), np.ones((2, 1)), None, "E-INPUT-FINITE", "X"),
        (np.ones((2, 2)), np.ones((3, 1)), None, "E-INPUT-SHAPE", "L"),
        (np.ones((2, 2)), np.ones((2, 0)), None, "E-INPUT-SHAPE", "L"),
        (np.ones((2, 2)), np.full((2, 1), 3), None, "E-INPUT-VALUES", "L"),
        (np.ones((2, 2)), np.ones((2, 1)), [1], "E-INPUT", "groups"),
        (np.ones((0, 2)), np.ones((0, 1)), None, "E-INPUT-SHAPE", "X"),
        (np.ones((2, 2), dtype=int), np.ones((2, 1)), None, "E-INPUT-TYPE", "X"),
    ],
)
def test_bad_vectors_and_labels_are_refused(X, L, groups, code, param):
    with raises(code, param):
        LabelledVectors(X, L, groups)


def test_record_is_the_one_of_the_format():
    clean = LinearAttack().run(planted(60), planted(60, seed=1))
    result = LinearAttack().run(planted(60), planted(60, seed=2))
    record = json.loads(json.dumps(result.to_record(clean), allow_nan=False))
    assert list(record) == [
        "name",
        "family",
        "metric",
        "value",
        "low",
        "high",
        "chance",
        "clean",
        "clean_low",
        "clean_high",
        "n",
        "adaptive",
        "seconds",
        "description",
        "cost",
        "also",
    ]
    assert record["family"] == "token-inference"
    assert record["metric"] == "R-precision"
    assert record["clean"] == clean.value
    assert [entry["metric"] for entry in record["also"]] == ["top-5", "AUC", "Leakage", "Confidence"]
    assert result.to_record()["clean"] is None


def test_results_cannot_be_changed():
    result = LinearAttack().run(planted(60), planted(60, seed=1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.name = "other"
    with pytest.raises(TypeError):
        result.estimates["r_precision"] = None


def test_run_is_final():
    assert Attack.run.__final__
    assert all("run" not in vars(type(attack)) for attack in ladder_attacks("full"))
