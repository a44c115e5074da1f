"""Training of a policy: that it learns, and that a seed decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from unit.privacy.textcrafter.planted_policy import N, centroids, classifier, column, settings, vectors
from vecveil.privacy.textcrafter import TrainedPolicy, train_policy
from vecveil.privacy.textcrafter.policy_gradient import PolicyGradient, ProtectPolicy
from vecveil.runtime import DeviceMemoryWarning


def trained(**changes: Any) -> TrainedPolicy:
    return train_policy(vectors(), classifier(), centroids(), settings(**changes), show_progress=False)


@pytest.mark.parametrize("direction", ["learnt", "untrained", "embedding", "reparametrised"])
def test_it_learns(direction: str) -> None:
    curves = trained(epochs=15, direction=direction).curves
    start, end = curves.epochs[0], curves.last
    assert end.reward > start.reward + 0.2
    assert end.p_pii < start.p_pii - 0.1
    assert end.cluster_distance < start.cluster_distance - 0.05
    assert end.reward_training is not None
    assert end.deterministic_share > start.deterministic_share
    moved = end.direction_cosine
    assert moved < 0.9 if direction in ("learnt", "reparametrised") else moved == pytest.approx(1.0, abs=1e-6)


def test_with_one_aim_it_finds_the_best_perturbation() -> None:
    """Only p counts: the best is straight against the classifier's weights, as far as v allows."""
    asked = settings(gamma=0.0, epochs=30, batch_size=64, draws=8, learning_rate=1e-2)
    policy = train_policy(vectors(), classifier(2.0), centroids(), asked, show_progress=False)
    X = vectors(100, seed=9)
    mean = policy.weights.mean(X)
    cosines = -mean[:, 0] / np.linalg.norm(mean, axis=1)
    assert np.median(cosines) > 0.9
    start = ProtectPolicy(N, asked, torch.Generator().manual_seed(0)).to_weights()
    along = [np.abs(weights.direction(X)[:, 0]).mean() for weights in (start, policy.weights)]
    assert along[0] > 0.2
    assert along[1] < 0.1  # v has learnt not to stand in the way


def test_the_same_arguments_give_the_same_arrays_and_nothing_else_is_drawn_from() -> None:
    torch.manual_seed(3)
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first, second, other = trained(), trained(), None
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == numpy_state).all()  # noqa: NPY002
    other = train_policy(vectors(), classifier(), centroids(), settings(), seed=1, show_progress=False)
    double = train_policy(vectors().astype(np.float64), classifier(), centroids(), settings(), show_progress=False)
    for name, array in first.weights.arrays.items():
        np.testing.assert_array_equal(array, second.weights.arrays[name])
        np.testing.assert_array_equal(array, double.weights.arrays[name])
        if not name.endswith(("norm1.weight", "norm2.weight")):
            assert not np.array_equal(array, other.weights.arrays[name]), name
    assert (first.seed, other.seed) == (0, 1)
    assert column(first.curves, "reward").tolist() == column(second.curves, "reward").tolist()


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
        start = ProtectPolicy(N, asked, torch.Generator().manual_seed(0)).to_weights().arrays
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
    assert bonus.curves.last.mean_log_sigma > plain.curves.last.mean_log_sigma + 0.05


def test_memory_that_does_not_suffice_halves_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = PolicyGradient.add_gradient

    def small(self: PolicyGradient, rows: Any, share: float) -> Any:
        if len(rows) > 10:
            raise torch.OutOfMemoryError("planted")
        return whole(self, rows, share)

    monkeypatch.setattr(PolicyGradient, "add_gradient", small)
    with pytest.warns(DeviceMemoryWarning, match="continuing with"):
        policy = trained(epochs=5)
    assert policy.curves.last.reward > policy.curves.epochs[0].reward + 0.05
