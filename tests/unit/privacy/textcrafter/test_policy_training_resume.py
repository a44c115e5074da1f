"""Training that was interrupted ends with the arrays of one that was not; others' checkpoints are refused."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from harness.errors import raises
from unit.privacy.textcrafter.planted_policy import centroids, classifier, column, settings, vectors
from vecveil.errors import DataFileError, TrainingError
from vecveil.privacy.textcrafter import LearningCurves, TrainedPolicy, train_policy
from vecveil.privacy.textcrafter.policy_gradient import PolicyGradient

STEPS = 6  # an epoch: 180 vectors in batches of 32


def train(folder: Path | None = None, *, seed: int = 0, **changes: Any) -> TrainedPolicy:
    given = {"X": vectors(), "classifier": classifier(), "centroids": centroids()}
    given.update({name: changes.pop(name) for name in tuple(changes) if name in given})
    asked = settings(**changes)
    return train_policy(**given, settings=asked, seed=seed, checkpoint=folder, show_progress=False)


def same(first: TrainedPolicy, second: TrainedPolicy) -> None:
    for name, array in first.weights.arrays.items():
        np.testing.assert_array_equal(array, second.weights.arrays[name], err_msg=name)
    for name in ("reward", "reward_training", "p_pii", "direction_cosine", "deterministic_share"):
        np.testing.assert_array_equal(column(first.curves, name), column(second.curves, name))


class Interruption:
    """Ctrl-C in a given step, counted from the first; counts the steps that were learnt."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int | None = None) -> None:
        whole, self.steps = PolicyGradient.step, 0

        def step(learner: PolicyGradient, batch: Any) -> Any:
            if self.steps == at:
                raise KeyboardInterrupt
            self.steps += 1
            return whole(learner, batch)

        monkeypatch.setattr(PolicyGradient, "step", step)


@pytest.mark.parametrize(
    ("direction", "at"),
    [("learnt", 3), ("learnt", STEPS), ("untrained", 17), ("embedding", 17), ("reparametrised", 17)],
)
def test_an_interrupted_training_ends_as_one_that_was_not(tmp_path: Path, direction: str, at: int) -> None:
    whole = train(direction=direction)
    with pytest.MonkeyPatch.context() as patch:
        Interruption(patch, at)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path, direction=direction)
    with pytest.MonkeyPatch.context() as patch:
        again = Interruption(patch)
        resumed = train(tmp_path, direction=direction)
        assert again.steps == 4 * STEPS - at // STEPS * STEPS
    same(resumed, whole)
    seconds = column(resumed.curves, "seconds")
    assert (np.diff(seconds) > 0).all()


def test_a_finished_training_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = train(tmp_path)
    again = Interruption(monkeypatch)
    second = train(tmp_path)
    assert again.steps == 0
    same(first, second)
    assert first.seconds == second.seconds


def test_the_folder_is_its_owners_and_holds_the_curves(tmp_path: Path) -> None:
    folder = tmp_path / "deeper" / "training"
    policy = train(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["policy.safetensors"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "policy.safetensors").stat().st_mode) == 0o600
    with safe_open(str(folder / "policy.safetensors"), framework="numpy") as file:
        header = file.metadata()
    assert LearningCurves.read(json.loads(header["record"]), owner="x") == policy.curves
    assert json.loads(header["identity"]).items() >= settings().to_record().items()
    assert not {str(value) for value in vectors()[0]} & set(json.dumps(header).split())


def _other_vector() -> Any:
    X = vectors()
    X[7, 3] = np.nextafter(X[7, 3], np.float32(1))
    return X


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 1}, "seed 1"),
        ({"epochs": 5}, "epochs 5"),
        ({"beta": 2.0}, "beta 2.0"),
        ({"X": _other_vector()}, "vectors"),
        ({"X": vectors()[:-1]}, "rows 199"),
        ({"X": vectors().astype(np.float64)}, "vectors"),
        ({"classifier": classifier(4.000001)}, "classifier"),
        ({"centroids": centroids()[::-1]}, "centroids"),
    ],
)
def test_another_training_is_refused(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    train(tmp_path, epochs=1)
    before = (tmp_path / "policy.safetensors").read_bytes()
    with pytest.raises(DataFileError) as caught:
        train(tmp_path, **{"epochs": 1, **changes})
    for word in (*named.split(), "training with", f"or remove {tmp_path}."):
        assert word in str(caught.value)
    assert (tmp_path / "policy.safetensors").read_bytes() == before


def _rewrite(folder: Path, arrays: Any = None, **header: str) -> None:
    path = folder / "policy.safetensors"
    with safe_open(str(path), framework="numpy") as file:
        kept = file.metadata()
    found = load_file(str(path))
    save_file({**found, **(arrays or {})}, str(path), metadata={**kept, **header})


def _without(folder: Path, name: str) -> None:
    path = folder / "policy.safetensors"
    with safe_open(str(path), framework="numpy") as file:
        kept = file.metadata()
    found = load_file(str(path))
    del found[name]
    save_file(found, str(path), metadata=kept)


DAMAGE = {
    "empty": lambda f: (f / "policy.safetensors").write_bytes(b""),
    "garbage": lambda f: (f / "policy.safetensors").write_bytes(b"\x80\x04garbage" * 50),
    "cut": lambda f: (f / "policy.safetensors").write_bytes((f / "policy.safetensors").read_bytes()[:-100]),
    "no header": lambda f: save_file(load_file(str(f / "policy.safetensors")), str(f / "policy.safetensors")),
    "curves": lambda f: _rewrite(f, record="{}"),
    "no epochs": lambda f: _rewrite(f, record='{"schema": "vecveil.training/1", "epochs": []}'),
    "identity": lambda f: _rewrite(f, identity="[" * 100_000),
    "shape": lambda f: _rewrite(f, {"module.log_sigma": np.zeros(3, np.float32)}),
    "moment's shape": lambda f: _rewrite(f, {"adam.0.exp_avg": np.zeros(3, np.float32)}),
    "generator": lambda f: _rewrite(f, {"generator": np.zeros(3, np.uint8)}),
    "nan": lambda f: _rewrite(f, {"module.log_sigma": np.full(12, np.nan, np.float32)}),
    "no module": lambda f: _without(f, "module.mean.head.weight"),
    "no moment": lambda f: _without(f, "adam.3.exp_avg"),
    "no generator": lambda f: _without(f, "generator"),
    "unknown": lambda f: _rewrite(f, {"module.more": np.zeros(3, np.float32)}),
}


@pytest.mark.parametrize(
    ("damage", "epochs"), [*((damage, 4) for damage in DAMAGE), *((damage, 1) for damage in ("cut", "nan", "curves"))]
)
def test_a_damaged_checkpoint_is_an_error_that_says_so(tmp_path: Path, damage: str, epochs: int) -> None:
    """Whether training would go on from it, or is finished."""
    with pytest.MonkeyPatch.context() as patch:
        if epochs == 4:
            Interruption(patch, STEPS)
            with pytest.raises(KeyboardInterrupt):
                train(tmp_path, epochs=epochs)
        else:
            train(tmp_path, epochs=epochs)
    DAMAGE[damage](tmp_path)
    with raises("E-CHECKPOINT", "checkpoint"):
        train(tmp_path, epochs=epochs)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with raises("E-CHECKPOINT", "checkpoint"):
        train(tmp_path / "file")


def test_what_stops_leaves_the_last_good_checkpoint_and_names_it(tmp_path: Path) -> None:
    kept = {}
    whole = PolicyGradient.step

    def breaks(learner: PolicyGradient, batch: Any) -> Any:
        if len(kept) == 2 * STEPS + 3:
            learner.module.log_sigma.data[0] = np.nan
        kept[len(kept)] = (tmp_path / "policy.safetensors").read_bytes()
        return whole(learner, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PolicyGradient, "step", breaks)
        with pytest.raises(TrainingError) as caught:
            train(tmp_path)
    assert (caught.value.epoch, caught.value.step) == (3, 4)
    for word in ("in epoch 3, step 4", "σ is NaN", str(tmp_path), "as it was after epoch 2"):
        assert word in str(caught.value)
    assert (tmp_path / "policy.safetensors").read_bytes() == kept[2 * STEPS]
    same(train(tmp_path), train())  # what was broken by hand is whole again


def test_a_rate_that_is_too_large_leaves_the_start(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="stays as it was after epoch 0"):
        train(tmp_path, learning_rate=1e6)
    with pytest.raises(TrainingError, match="stays as it was after epoch 0"):
        train(tmp_path, learning_rate=1e6)  # the same from the checkpoint
