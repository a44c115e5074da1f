"""The mask as SPARSE trains it: gradients, what it learns, what it reports, what it refuses."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from scipy.special import expit, logit

from harness.errors import raises
from harness.gates import gate_samples
from vecveil.privacy.sensitivity.hard_concrete import (
    GAMMA,
    XI,
    HardConcreteMask,
    MaskOptions,
    MaskTrainer,
    fit_hard_concrete_mask,
    inference_mask,
    l0_penalty,
    stability_of,
)

QUICK = MaskOptions(learning_rate=3e-3, gate_learning_rate=3e-2, regularisation=0.3, loss="mean", epochs=40)
PLANTED = (3, 11)


def pairs(count: int = 400, dimension: int = 24, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    negative = rng.normal(size=(count, dimension)).astype(np.float32)
    positive = negative.copy()
    positive[:, list(PLANTED)] += 2.0
    return positive, negative


def test_the_defaults_are_the_published_settings() -> None:
    paper = MaskOptions()
    assert (paper.learning_rate, paper.gate_learning_rate, paper.regularisation) == (1e-4, None, 1e-3)
    assert (paper.epochs, paper.batch_size, paper.hidden) == (100, 64, (256, 128))
    assert (paper.xi, paper.gamma, paper.initial_beta, paper.initial_alpha_sd) == (1.1, -0.1, 2 / 3, 0.01)
    assert (paper.loss, paper.held_out) == ("sum", 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "hidden"), [("sum", (7, 5)), ("mean", (6,)), ("sum", (5, 4, 3))])
def test_gradients_equal_autograd(loss: str, hidden: tuple[int, ...]) -> None:
    options = MaskOptions(hidden=hidden, batch_size=6, regularisation=0.7, loss=loss, initial_alpha_sd=1.0)
    trainer = MaskTrainer(9, options, torch.Generator().manual_seed(1))
    trainer.gates[1].add_(torch.linspace(-0.5, 0.5, 9))
    X = torch.randn(12, 9, generator=torch.Generator().manual_seed(2))
    noise = torch.linspace(-4, 4, 9)  # wide enough that some gates are clipped at either end
    logits = torch.empty(12, 1)
    trainer.gradients(X, noise, logits)

    gates = trainer.gates.clone().requires_grad_()
    weights = [w.clone().requires_grad_() for w in trainer.weights]
    biases = [b.clone().requires_grad_() for b in trainer.biases]
    beta = gates[1].exp()
    mask = torch.clamp(torch.sigmoid((noise + gates[0]) / beta) * 1.2 - 0.1, 0, 1)
    assert (mask == 0).any()
    assert (mask == 1).any()
    h = X * mask
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        h = torch.relu(torch.nn.functional.linear(h, weight, bias))
    out = torch.nn.functional.linear(h, weights[-1], biases[-1])
    labels = torch.tensor([1.0, 0.0] * 6)[:, None]
    classified = torch.nn.functional.binary_cross_entropy_with_logits(out, labels, reduction=loss)
    penalty = torch.sigmoid(gates[0] - beta * np.log(0.1 / 1.1)).mean()
    (classified + 0.7 * penalty).backward()

    torch.testing.assert_close(logits, out.detach())
    torch.testing.assert_close(trainer.gate_grads, gates.grad, rtol=1e-4, atol=1e-6)
    for ours, reference in zip(trainer.weight_grads + trainer.bias_grads, weights + biases, strict=True):
        torch.testing.assert_close(ours, reference.grad, rtol=1e-4, atol=1e-6)
    numpy_beta = beta.detach().double().numpy()
    np.testing.assert_allclose(penalty.item(), l0_penalty(gates[0].detach().double().numpy(), numpy_beta), rtol=1e-5)
    sampled = gate_samples(gates[0].detach().double().numpy(), numpy_beta, torch.sigmoid(noise.double()).numpy())
    np.testing.assert_allclose(mask.detach().numpy(), sampled, atol=1e-5)


def test_one_epoch_equals_torch_modules_and_adam() -> None:
    """A whole epoch, with a partial last minibatch and two learning rates, by plain autograd."""
    options = MaskOptions(hidden=(8, 4), batch_size=5, learning_rate=1e-2, gate_learning_rate=3e-2)
    trainer = MaskTrainer(6, options, torch.Generator().manual_seed(3))
    data = torch.randn(12, 2, 6, generator=torch.Generator().manual_seed(4))
    parameters = [p.clone().requires_grad_() for p in [*trainer.weights, *trainer.biases]]
    gates = trainer.gates.clone().requires_grad_()
    replay = torch.Generator()
    replay.set_state(trainer.generator.get_state())
    loss = trainer.epoch(data)

    adam = torch.optim.Adam([{"params": parameters, "lr": 1e-2}, {"params": [gates], "lr": 3e-2}])
    rows = data[torch.randperm(12, generator=replay)]
    noise = torch.logit(torch.rand(3, 6, generator=replay), eps=1e-7)
    total = 0.0
    for i, batch in enumerate(rows.split(5)):
        beta = gates[1].exp()
        h = batch.reshape(-1, 6) * torch.clamp(torch.sigmoid((noise[i] + gates[0]) / beta) * 1.2 - 0.1, 0, 1)
        for layer in range(3):
            h = torch.nn.functional.linear(h, parameters[layer], parameters[3 + layer])
            h = torch.relu(h) if layer < 2 else h
        labels = torch.tensor([1.0, 0.0]).repeat(len(batch))[:, None]
        classified = torch.nn.functional.binary_cross_entropy_with_logits(h, labels, reduction="sum")
        penalty = torch.sigmoid(gates[0] - beta * np.log(0.1 / 1.1)).mean()
        adam.zero_grad()
        (classified + 1e-3 * penalty).backward()
        adam.step()
        total += classified.item()
    assert loss == pytest.approx(total / 24, rel=1e-5)
    torch.testing.assert_close(trainer.gates, gates.detach(), rtol=1e-4, atol=1e-5)
    for ours, reference in zip([*trainer.weights, *trainer.biases], parameters, strict=True):
        torch.testing.assert_close(ours, reference.detach(), rtol=1e-4, atol=1e-5)


def test_planted_dimensions_get_the_larger_mask() -> None:
    fitted = fit_hard_concrete_mask(*pairs(), dataclasses.replace(QUICK, held_out=0.2))
    others = np.delete(fitted.mask, PLANTED)
    assert fitted.mask[list(PLANTED)].min() > others.max()
    assert fitted.mask[list(PLANTED)].min() > 0.7
    assert fitted.pairs == 320
    assert fitted.held_out_accuracy is not None
    assert fitted.held_out_accuracy > 0.85
    assert fitted.loss_curve[-1] < fitted.loss_curve[0]


def test_control_pairs_without_a_side_leave_nothing_to_find() -> None:
    """Which row of a pair is "with the concept" is drawn by lot: nothing is learnt."""
    positive, negative = pairs()
    swap = np.random.default_rng(1).random((len(positive), 1)) < 0.5
    fitted = fit_hard_concrete_mask(
        np.where(swap, negative, positive), np.where(swap, positive, negative), dataclasses.replace(QUICK, held_out=0.2)
    )
    assert fitted.mask[list(PLANTED)].max() < 0.5
    assert fitted.held_out_accuracy is not None
    assert fitted.held_out_accuracy < 0.7


def test_published_settings_give_a_nearly_uniform_mask() -> None:
    rng = np.random.default_rng(0)
    negative = rng.normal(size=(300, 64))
    negative /= np.linalg.norm(negative, axis=1, keepdims=True)
    positive = negative + 0.05 * rng.normal(size=negative.shape) + 0.02
    fitted = fit_hard_concrete_mask(positive, negative)
    record = fitted.to_record()
    assert record["zeros"] == record["ones"] == 0
    assert fitted.mask.std() < 0.1
    assert record["effective_dimensions"] > 0.97 * 64
    assert json.loads(json.dumps(record)) == record
    assert record["options"]["hidden"] == [256, 128]


def test_seed_decides_the_mask_and_float64_is_taken() -> None:
    positive, negative = pairs(count=60)
    options = dataclasses.replace(QUICK, epochs=4)
    first = fit_hard_concrete_mask(positive, negative, options, seed=5)
    torch.rand(3)  # the global generator plays no part
    again = fit_hard_concrete_mask(positive.astype(np.float64), negative.astype(np.float64), options, seed=5)
    other = fit_hard_concrete_mask(positive, negative, options, seed=6)
    np.testing.assert_array_equal(first.mask, again.mask)
    assert not np.array_equal(first.mask, other.mask)
    assert not first.mask.flags.writeable


def test_seed_stability() -> None:
    a, b, c = np.random.default_rng(0).random((3, 24))
    r = np.corrcoef([a, b, c])
    assert stability_of([a, b, c]) == pytest.approx((r[0, 1] + r[0, 2] + r[1, 2]) / 3)
    assert stability_of([a, 1 - a]) == pytest.approx(-1)
    assert stability_of([a, np.ones(24)]) is None  # the correlation of a constant is undefined


def test_report_on_a_mask_by_hand() -> None:
    array = np.array([0.0, 1.0, 1.0, 0.6])
    mask = HardConcreteMask(
        array, np.zeros(4), np.full(4, 2 / 3), np.array([0.7]), 0.5, None, 10, 0.1, 0, MaskOptions()
    )
    record = mask.to_record()
    assert (record["density"], record["zeros"], record["ones"]) == (0.75, 0.25, 0.5)
    assert record["effective_dimensions"] == pytest.approx(2.6**2 / 2.36)
    assert dataclasses.replace(mask, mask=np.zeros(4)).to_record()["effective_dimensions"] == 0


def test_wrong_pairs_are_refused() -> None:
    positive, negative = pairs(count=20)
    broken = positive.copy()
    broken[7, 2] = np.nan
    with raises("E-INPUT-FINITE", "positive"):
        fit_hard_concrete_mask(broken, negative)
    with raises("E-INPUT-SHAPE", "negative"):
        fit_hard_concrete_mask(positive, negative[:-1])
    with raises("E-INPUT-SHAPE", "positive"):
        fit_hard_concrete_mask(positive[:1], negative[:1])
    with raises("E-INPUT-RANGE", "seed"):
        fit_hard_concrete_mask(positive, negative, seed=-1)


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": 0},
        {"gate_learning_rate": -1.0},
        {"regularisation": float("nan")},
        {"epochs": 0},
        {"batch_size": 2.5},
        {"hidden": ()},
        {"hidden": [8]},
        {"hidden": (8, 0)},
        {"xi": 1.0},
        {"gamma": 0.0},
        {"gamma": -1.2},
        {"initial_beta": 0},
        {"loss": "max"},
        {"held_out": 0.6},
    ],
)
def test_wrong_options_are_refused(change: dict[str, object]) -> None:
    with raises("E-INPUT", next(iter(change))):
        MaskOptions(**change)  # type: ignore[arg-type]


def test_diverged_training_and_unknown_device_are_errors() -> None:
    positive, negative = pairs(count=20)
    with raises("E-INPUT-RANGE", "learning_rate"):
        fit_hard_concrete_mask(positive, negative, MaskOptions(learning_rate=1e30, epochs=20))
    with raises("E-INPUT", "device"):
        fit_hard_concrete_mask(positive, negative, MaskOptions(device="abacus"))


# -- the gate's closed forms

FALSE_FAILURE = 1e-6
DRAWS = 200_000
GRID = [(-3.0, 2 / 3), (-0.7, 2 / 3), (0.0, 2 / 3), (0.4, 0.3), (1.5, 1.0), (2.5, 2 / 3)]


def gates(log_alpha: float, beta: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    uniform = rng.uniform(np.finfo(float).tiny, 1.0, size=(DRAWS, 1))
    return gate_samples(np.array([log_alpha]), np.array([beta]), uniform)[:, 0]


def dkw_threshold(tests: int) -> float:
    """The distance from its law that a sample exceeds but once in a million runs of the tests."""
    return math.sqrt(math.log(2 * tests / FALSE_FAILURE) / (2 * DRAWS))


def distance(sample: np.ndarray, log_alpha: float, beta: float) -> float:
    at = np.linspace(0.0, 0.999, 300)
    exact = expit(beta * logit((at - GAMMA) / (XI - GAMMA)) - log_alpha)  # P(m <= t), t < 1
    empirical = np.searchsorted(np.sort(sample), at, side="right") / sample.size
    return float(np.abs(empirical - exact).max())


@pytest.mark.parametrize(("log_alpha", "beta"), GRID)
def test_gates_follow_the_closed_distribution(log_alpha: float, beta: float) -> None:
    """Null: the law of Eq. 1. False failure: <= 1e-6 over the grid (Dvoretzky-Kiefer-Wolfowitz).

    Power: 200,000 draws reject a shift of .1 in log α, the control below.
    """
    sample = gates(log_alpha, beta)
    assert sample.min() >= 0
    assert sample.max() <= 1
    assert distance(sample, log_alpha, beta) <= dkw_threshold(len(GRID))


def test_a_shifted_gate_is_rejected() -> None:
    assert distance(gates(0.1, 2 / 3), 0.0, 2 / 3) > dkw_threshold(len(GRID))


def test_inference_mask_by_hand() -> None:
    bound = math.log(11)  # sigmoid(log α) = 11/12, where the stretched gate reaches 1
    mask = inference_mask(np.array([0.0, bound - 0.01, bound + 0.01, -bound + 0.01, -bound - 0.01, 1.0]))
    np.testing.assert_allclose(mask[0], 0.5)
    assert 0.99 < mask[1] < 1
    assert mask[2] == 1
    assert 0 < mask[3] < 0.01
    assert mask[4] == 0
    np.testing.assert_allclose(mask[5], 1.2 / (1 + math.exp(-1)) - 0.1)
