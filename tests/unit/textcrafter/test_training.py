"""Training of a policy: its gradient, that it learns, that a seed decides, what it refuses and when it stops."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import numpy as np
import pytest
import torch

from unit.textcrafter.planted_policy import N, centroids, classifier, settings, vectors
from vecveil.devices import DeviceMemoryWarning
from vecveil.errors import (
    IncompatibleError,
    InvalidInputError,
    MissingDependencyError,
    TrainingError,
)
from vecveil.textcrafter import PiiClassifier, TrainedPolicy, train_policy
from vecveil.textcrafter.network import build_policy, log_probability, to_weights
from vecveil.textcrafter.perturbation import perturbation
from vecveil.textcrafter.policy_gradient import PolicyGradient
from vecveil.textcrafter.reward import Reward


def trained(**changes: Any) -> TrainedPolicy:
    return train_policy(
        vectors(), classifier(), centroids(), settings(**changes), show_progress=False
    )


def test_the_log_probability_is_torchs() -> None:
    generator = torch.Generator().manual_seed(0)
    d, mean = (torch.randn(3, 5, N, generator=generator, dtype=torch.float64) for _ in range(2))
    log_sigma = torch.randn(N, generator=generator, dtype=torch.float64)
    law = torch.distributions.Normal(mean, log_sigma.exp())
    torch.testing.assert_close(
        log_probability(d, mean, log_sigma), law.log_prob(d).sum(dim=-1), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (0.0, 0.7)])
def test_the_gradient_is_that_of_the_expected_reward(scale: float, offset: float) -> None:
    """Whatever the baseline. Two estimates by independent draws: score function and reparameterisation.

    False failure: 24 means of 100, |t| > 8 with 99 degrees of freedom and more: below 1e-9.
    """
    asked = settings(
        direction="untrained", dropout=0.0, draws=1000, normalise_advantage=False, entropy=0.0,
        baseline_scale=scale, baseline_offset=offset,
    )  # fmt: skip
    e = vectors(1)
    learner = PolicyGradient(np.repeat(e, 3, axis=0), classifier(), centroids(), asked, seed=5)
    module = learner.module
    kept = (module.mean.head.bias, module.log_sigma)
    reward = Reward(classifier(), asked)
    x = torch.from_numpy(e)
    c = torch.from_numpy(centroids()[[np.argmax(centroids() @ e[0])]]).float()
    generator = torch.Generator().manual_seed(17)
    score, direct = [], []
    for _ in range(100):
        module.zero_grad()
        learner.add_gradient(torch.tensor([0]), 1.0)
        score.append(torch.cat([-one.grad for one in kept]).double())
        module.zero_grad()
        mean, v = module(x)
        noise = torch.randn(1000, 1, N, generator=generator)
        d = mean + module.log_sigma.exp() * noise
        protected = x + perturbation(d, v, asked.radius)
        reward.total(reward.terms(x, protected, c)).mean().backward()
        direct.append(torch.cat([one.grad for one in kept]).double())
    difference = torch.stack(score) - torch.stack(direct)
    t = difference.mean(dim=0) / (difference.std(dim=0) / 100**0.5)
    assert t.abs().max() < 8
    control = torch.stack(direct).mean(dim=0) / (difference.std(dim=0) / 100**0.5)
    assert control.abs().max() > 10  # a gradient of zero, or of the other sign, would be seen


@pytest.mark.parametrize("direction", ["learnt", "untrained"])
def test_the_mean_is_learnt_with_dropout(direction: str) -> None:
    """A masked unit has a gradient of exactly zero. v has dropout only where it is learnt."""
    asked = settings(direction=direction, dropout=0.5, batch_size=1)
    learner = PolicyGradient(vectors(), classifier(), centroids(), asked, seed=0)
    learner.step(torch.tensor([0]))
    unread = learner.module.mean.contract.bias.grad == 0
    assert 0 < unread.sum() < N  # masked behind `contract`; without dropout none is
    x = torch.from_numpy(vectors(5))
    assert not torch.equal(learner.module.mean(x), learner.module.mean(x))
    same = torch.equal(learner.module.direction_of(x), learner.module.direction_of(x))
    assert same == (direction == "untrained")
    ends = [
        trained(direction=direction, epochs=1, dropout=share).weights.arrays["mean.head.weight"]
        for share in (0.0, 0.5)
    ]
    assert not np.array_equal(*ends)


@pytest.mark.parametrize("direction", ["learnt", "untrained"])
def test_it_learns(direction: str) -> None:
    curves = trained(epochs=15, direction=direction).curves
    start, end = curves.epochs[0], curves.last
    assert end.reward > start.reward + 0.2
    assert end.p_pii < start.p_pii - 0.1
    assert end.cluster_distance < start.cluster_distance - 0.05
    assert end.reward_training is not None
    assert end.deterministic_share > start.deterministic_share
    moved = end.direction_cosine
    assert moved < 0.9 if direction == "learnt" else moved == pytest.approx(1.0, abs=1e-6)


def test_with_one_aim_it_finds_the_best_perturbation() -> None:
    """Only p counts: the best is straight against the classifier's weights, as far as v allows."""
    asked = settings(gamma=0.0, alpha=0.0, epochs=30, batch_size=64, draws=8, learning_rate=1e-2)
    policy = train_policy(vectors(), classifier(2.0), centroids(), asked, show_progress=False)
    X = vectors(100, seed=9)
    mean = policy.weights.mean(X)
    cosines = -mean[:, 0] / np.linalg.norm(mean, axis=1)
    assert np.median(cosines) > 0.9
    v = policy.weights.direction(X)
    assert (
        np.abs(v[:, 0]).mean() < 0.3
    )  # v has learnt not to stand in the way: unlearnt it is about 0.23


def test_the_same_arguments_give_the_same_arrays_and_nothing_else_is_drawn_from() -> None:
    torch.manual_seed(3)
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first, second, other = trained(), trained(), None
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == numpy_state).all()  # noqa: NPY002
    other = train_policy(
        vectors(), classifier(), centroids(), settings(), seed=1, show_progress=False
    )
    double = train_policy(
        vectors().astype(np.float64), classifier(), centroids(), settings(), show_progress=False
    )
    for name, array in first.weights.arrays.items():
        np.testing.assert_array_equal(array, second.weights.arrays[name])
        np.testing.assert_array_equal(array, double.weights.arrays[name])
        if not name.endswith(("norm1.weight", "norm2.weight")):
            assert not np.array_equal(array, other.weights.arrays[name]), name
    assert (first.seed, other.seed) == (0, 1)
    assert first.curves.column("reward").tolist() == second.curves.column("reward").tolist()


def test_threads_of_torch_do_not_matter_and_are_as_before() -> None:
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(trained(epochs=1).weights.arrays["mean.head.weight"])
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(*found)


def test_what_has_no_gradient_stays_as_it_was_drawn() -> None:
    for asked in (settings(), settings(direction="untrained"), settings(tokens=3)):
        start = to_weights(build_policy(N, asked, torch.Generator().manual_seed(0))).arrays
        end = train_policy(vectors(), classifier(), centroids(), asked, show_progress=False)
        for name, array in end.weights.arrays.items():
            same = array == start[name]
            if name.startswith("direction.") and asked.direction == "untrained":
                assert same.all(), name
            elif "qkv" in name and asked.tokens == 1:
                unread = 2 * N
                assert same[:unread].all(), name
                assert not same[unread:].any(), name
            elif name.endswith("qkv.bias"):  # softmax does not see what all queries' scores share
                assert not same[: N // 3].all(), name
            else:
                assert same.mean() < 0.1, name


def test_the_entropy_bonus_keeps_sigma_up() -> None:
    plain, bonus = trained(epochs=6), trained(epochs=6, entropy=0.1)
    assert bonus.curves.last.entropy > plain.curves.last.entropy + 0.05


def test_the_record_has_settings_and_curves() -> None:
    policy = trained()
    record = policy.to_record()
    assert record["settings"] == settings().to_record()
    assert [one["epoch"] for one in record["curves"]["epochs"]] == [0, 1, 2, 3, 4]
    assert policy.seconds == policy.curves.last.seconds > 0


def test_the_bar_says_what_is_learnt(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vecveil.progress._has_size", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "24")
    train_policy(vectors(), classifier(), centroids(), settings(epochs=1), show_progress=True)
    shown = capsys.readouterr().err
    assert "Policy: 100%" in shown
    for word in ("reward -", "p(PII) 0.", "drift 0."):
        assert word in shown
    train_policy(vectors(), classifier(), centroids(), settings(epochs=1), show_progress=False)
    assert capsys.readouterr().err == ""


def test_memory_that_does_not_suffice_halves_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = PolicyGradient.add_gradient

    def small(self: PolicyGradient, rows: Any, share: float) -> Any:
        if len(rows) > 10:
            raise torch.OutOfMemoryError("planted")
        return whole(self, rows, share)

    monkeypatch.setattr(PolicyGradient, "add_gradient", small)
    with pytest.warns(DeviceMemoryWarning, match="going on with"):
        policy = trained(epochs=5)
    assert policy.curves.last.reward > policy.curves.epochs[0].reward + 0.05


def _wrong_norms() -> Any:
    X = vectors()
    X[[7, 30]] *= 1.02
    return X


def _with(value: float) -> Any:
    X = vectors()
    X[5, 1] = value
    return X


@pytest.mark.parametrize(
    ("X", "error", "words"),
    [
        (_wrong_norms(), InvalidInputError, ["norm 1", "2 others", "row 7", "before='normalise'"]),
        (np.zeros((4, N)), InvalidInputError, ["norm 1", "4 others"]),
        (_with(np.nan), InvalidInputError, ["`X`", "finite", "row 5"]),
        (_with(np.inf), InvalidInputError, ["`X`", "finite", "row 5"]),
        (vectors()[0], InvalidInputError, ["`X`", "(N, n)"]),
        (vectors()[:1], InvalidInputError, ["`X`", "at least 2 rows"]),
        (vectors().tolist(), InvalidInputError, ["`X`", "NumPy array"]),
        (np.ones((9, 1)), InvalidInputError, ["`X`", "at least 2 dimensions"]),
        (np.eye(N + 1), IncompatibleError, [f"{N}", f"{N + 1}"]),
    ],
)  # fmt: skip
def test_vectors_that_are_refused(X: Any, error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        train_policy(X, classifier(), centroids(), settings(), show_progress=False)
    for word in ("train_policy", *words):
        assert word in str(caught.value)


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "vecveil.textcrafter.network")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'vecveil\[textcrafter\]'"):
        train_policy(vectors(), classifier(), centroids(), settings())


def test_norms_within_the_tolerance_are_taken() -> None:
    X = vectors() * np.float32(1.009)
    train_policy(X, classifier(), centroids(), settings(epochs=1), show_progress=False)


def test_other_arguments_that_are_refused() -> None:
    X = vectors()
    with pytest.raises(IncompatibleError, match="`classifier`"):
        train_policy(X, PiiClassifier(np.ones(N - 1), 0.0), centroids(), settings())
    with pytest.raises(IncompatibleError, match="`centroids`"):
        train_policy(X, classifier(), centroids()[:, :-1], settings())
    with pytest.raises(InvalidInputError, match="`centroids`"):
        train_policy(X, classifier(), centroids()[:0], settings())
    with pytest.raises(InvalidInputError, match="`tokens`"):
        train_policy(X, classifier(), centroids(), settings(tokens=5))
    with pytest.raises(InvalidInputError, match="`seed`"):
        train_policy(X, classifier(), centroids(), settings(), seed=-1)
    with pytest.raises(InvalidInputError, match="`device`"):
        train_policy(X, classifier(), centroids(), settings(device="abacus"))


@pytest.mark.parametrize(
    ("changes", "strength", "place", "cause"),
    [
        ({"learning_rate": 1e6}, 4.0, (1, 2), "learning_rate smaller than 1e+06"),
        ({"beta": 1e39}, 4.0, (0, 0), "alpha, beta or gamma"),
        ({}, 1e308, (0, 0), "the reward's term p(e')"),
    ],
)
def test_a_value_out_of_range_stops_it_and_says_where_and_why(
    changes: dict[str, Any], strength: float, place: tuple[int, int], cause: str
) -> None:
    with pytest.raises(TrainingError) as caught:
        train_policy(
            vectors(), classifier(strength), centroids(), settings(**changes), show_progress=False
        )
    error = caught.value
    assert cause in str(error)
    assert (error.epoch, error.step) == place
    assert "No checkpoint was asked for." in str(error)
    again = pickle.loads(pickle.dumps(error))  # workers send errors to their parent
    assert (str(again), again.epoch, again.step) == (str(error), error.epoch, error.step)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_gradient_out_of_range_stops_it_before_the_weights_change(value: float) -> None:
    learner = PolicyGradient(vectors(), classifier(), centroids(), settings(), seed=0)
    before = to_weights(learner.module).arrays
    learner.module.mean.contract.bias.register_hook(lambda gradient: gradient.fill_(value))
    with pytest.raises(ArithmeticError, match=r"gradient of mean\.contract\.bias"):
        learner.step(learner.order()[0])
    for name, array in to_weights(learner.module).arrays.items():
        np.testing.assert_array_equal(array, before[name])
