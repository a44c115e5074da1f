"""Devices: which one is taken, and smaller batches when its memory runs out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harness.errors import raises
from unit.auditing.attacks.planted import planted
from vecveil.auditing.attacks import LabelledVectors, MLPAttack
from vecveil.runtime import Batches, DeviceMemoryWarning, resolve_device


def test_the_device_is_the_one_asked_for() -> None:
    assert resolve_device("cpu", owner="test") == "cpu"
    assert resolve_device("auto", owner="test") == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("abacus", "", "cuda:99" if not torch.cuda.is_available() else "xpu"):
        with raises("E-INPUT", "device"):
            resolve_device(name, owner="test")


class SmallDevice:
    """Stands for a device that holds so many rows at once."""

    def __init__(self, rows: int) -> None:
        self.rows, self.calls, self.undone = rows, [], 0

    def work(self, start: int, stop: int) -> list[int]:
        if stop - start > self.rows:
            raise torch.OutOfMemoryError("planted")
        self.calls.append((start, stop))
        return list(range(start, stop))

    def undo(self) -> None:
        self.undone += 1
        self.calls.clear()


@pytest.mark.filterwarnings("ignore::vecveil.runtime.DeviceMemoryWarning")
@pytest.mark.parametrize(("total", "room"), [(100, 30), (7, 1), (64, 64), (5, 2), (1, 1), (0, 1)])
def test_pieces_are_halved_until_they_fit_and_nothing_is_lost(total: int, room: int) -> None:
    device, batches = SmallDevice(room), Batches(64)
    found = batches.run(total, device.work, undo=device.undo)
    assert [i for part in found for i in part] == list(range(total))
    assert batches.rows <= max(room, 64 if total <= room else room)
    assert all(stop - start <= room for start, stop in device.calls)


def test_it_says_so_once_and_stays_small() -> None:
    device, batches = SmallDevice(20), Batches(40)
    with pytest.warns(DeviceMemoryWarning, match="batches of 20 rows"):
        batches.run(40, device.work)
    batches.run(40, device.work)  # no second warning: it would be an error
    assert device.undone == 0


def test_a_row_that_does_not_fit_is_an_error() -> None:
    batches = Batches(4)
    with pytest.warns(DeviceMemoryWarning), pytest.raises(torch.OutOfMemoryError):
        batches.run(4, SmallDevice(0).work)


def test_an_attack_goes_on_with_smaller_batches_and_learns_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of pieces add up to that of the batch: only rounding differs, and what is learnt."""
    train, test = planted(300, seed=0), planted(200, seed=1)
    attack = MLPAttack((32,), epochs=6, batch=64, dropout=0.0, device="cpu")

    def noisy(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return X + 0.1 * rng.standard_normal(X.shape).astype(X.dtype)

    plain = attack.run(train, test, release=noisy, show_progress=False)
    true = torch.nn.functional.binary_cross_entropy_with_logits

    def crowded(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if len(logits) > 16:
            raise torch.OutOfMemoryError("planted")
        return true(logits, target)

    monkeypatch.setattr(torch.nn.functional, "binary_cross_entropy_with_logits", crowded)
    with pytest.warns(DeviceMemoryWarning):
        small = attack.run(train, test, release=noisy, show_progress=False)
    assert small.value == pytest.approx(plain.value, abs=0.02)
    confidence = small.estimates["confidence"].value
    assert confidence == pytest.approx(plain.estimates["confidence"].value, abs=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_learns_what_the_cpu_learns() -> None:
    train, test = planted(300, seed=0), planted(200, seed=1)
    found = [
        MLPAttack((32,), epochs=6, device=device).run(train, LabelledVectors(test.X, test.L))
        for device in ("cpu", "cuda")
    ]
    assert found[0].value == pytest.approx(found[1].value, abs=0.05)
