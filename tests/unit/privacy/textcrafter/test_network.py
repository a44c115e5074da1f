"""ProtectPolicy: against torch's own encoder layer, against the NumPy form."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from harness.errors import raises
from vecveil.privacy.mechanisms.textcrafter import BRANCHES
from vecveil.privacy.textcrafter.policy_gradient import ProtectPolicy
from vecveil.privacy.textcrafter.policy_settings import PolicySettings

N = 24
SETTINGS = PolicySettings(radius=1.0, initial_log_sigma=-0.5)


def _policy(tokens: int, seed: int = 0, **changes: object) -> ProtectPolicy:
    settings = dataclasses.replace(SETTINGS, tokens=tokens, **changes)
    module = ProtectPolicy(N, settings, torch.Generator().manual_seed(seed))
    scrambled = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():  # LayerNorms and biases too, so that none of them could be left out unseen
        for one in module.parameters():
            one.add_(0.3 * torch.randn(one.shape, generator=scrambled))
    return module


def _vectors(rows: int, seed: int = 3) -> torch.Tensor:
    X = torch.randn(rows, N, generator=torch.Generator().manual_seed(seed))
    return X / X.norm(dim=1, keepdim=True)


def _reference(module: ProtectPolicy, branch: str, x: torch.Tensor) -> torch.Tensor:
    """Return the branch's output by torch's own post-norm encoder layer with copied weights."""
    own = getattr(module, branch)
    width = N // module.tokens
    layer = nn.TransformerEncoderLayer(
        width,
        module.heads,
        dim_feedforward=own.expand.out_features,
        dropout=0.0,
        activation="gelu",
        batch_first=True,
        norm_first=False,
        dtype=x.dtype,
    )
    pairs = (
        (layer.self_attn.in_proj_weight, own.attention.qkv.weight),
        (layer.self_attn.in_proj_bias, own.attention.qkv.bias),
        (layer.self_attn.out_proj.weight, own.attention.out.weight),
        (layer.self_attn.out_proj.bias, own.attention.out.bias),
        (layer.norm1.weight, own.norm1.weight),
        (layer.norm1.bias, own.norm1.bias),
        (layer.linear1.weight, own.expand.weight),
        (layer.linear1.bias, own.expand.bias),
        (layer.linear2.weight, own.contract.weight),
        (layer.linear2.bias, own.contract.bias),
        (layer.norm2.weight, own.norm2.weight),
        (layer.norm2.bias, own.norm2.bias),
    )
    with torch.no_grad():
        for there, here in pairs:
            there.copy_(here)
    tokens = x.reshape(len(x), module.tokens, width) + own.position
    block = layer(tokens)  # in training mode: the plain path, not the fused one
    out: torch.Tensor = block.reshape(len(x), N) @ own.head.weight.T + own.head.bias
    return out


@pytest.mark.parametrize("tokens", [1, 6])
@pytest.mark.parametrize("branch", BRANCHES)
def test_a_branch_is_torchs_encoder_layer_and_a_head(tokens: int, branch: str) -> None:
    module = _policy(tokens).double().eval()
    x = _vectors(11).double()
    found = getattr(module, branch)(x)
    torch.testing.assert_close(found, _reference(module, branch, x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("tokens", [1, 2, 6])
def test_the_numpy_form_equals_it(tokens: int) -> None:
    module = _policy(tokens).eval()
    weights = module.to_weights()
    x = _vectors(37)
    with torch.no_grad():
        mean, v = module(x)
        exact_mean, exact_v = module.double()(x.double())
    np.testing.assert_allclose(weights.mean(x.numpy()), mean.numpy(), atol=1e-5)
    np.testing.assert_allclose(weights.direction(x.numpy()), v.numpy(), atol=1e-5)
    exact = x.double().numpy()
    np.testing.assert_allclose(weights.mean(exact), exact_mean.numpy(), atol=1e-10)
    np.testing.assert_allclose(weights.direction(exact), exact_v.numpy(), atol=1e-10)
    np.testing.assert_allclose(weights.sigma, module.log_sigma.exp().detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(weights.direction(exact), axis=1), 1, atol=1e-12)


def test_weights_and_module_are_each_others_copy() -> None:
    module = _policy(2)
    weights = module.to_weights()
    other = _policy(2, seed=9)
    other.load_state_dict({n: torch.from_numpy(array.copy()) for n, array in weights.arrays.items()})
    again = other.to_weights()
    assert (again.dimension, again.tokens, again.heads) == (N, 2, module.heads)
    for name, array in weights.arrays.items():
        np.testing.assert_array_equal(array, again.arrays[name])
    with torch.no_grad():
        module.log_sigma.zero_()
    assert (weights.arrays["log_sigma"] != 0).all()  # no view of the module


@pytest.mark.parametrize("tokens", [1, 4])
def test_dropout_draws_from_our_generator_alone(tokens: int) -> None:
    x = _vectors(5)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first, second = _policy(tokens, dropout=0.3), _policy(tokens, dropout=0.3)
    outputs = [module.train()(x)[0] for module in (first, second)]
    assert torch.equal(*outputs)
    assert not torch.equal(first(x)[0], outputs[0])  # the masks change from call to call
    assert torch.equal(first.eval()(x)[0], second.eval()(x)[0])
    assert torch.equal(torch.get_rng_state(), state)


def test_branches_start_apart_and_the_seed_decides() -> None:
    weights = [ProtectPolicy(N, SETTINGS, torch.Generator().manual_seed(s)).to_weights() for s in (0, 0, 1)]
    for name in ("mean.head.weight", "direction.position"):
        np.testing.assert_array_equal(weights[0].arrays[name], weights[1].arrays[name])
        assert not np.array_equal(weights[0].arrays[name], weights[2].arrays[name])
    own = weights[0].arrays
    assert not np.array_equal(own["mean.head.weight"], own["direction.head.weight"])
    assert np.abs(own["mean.head.weight"]).max() <= N**-0.5
    assert np.abs(own["mean.attention.qkv.weight"]).max() <= (6 / (4 * N)) ** 0.5  # xavier


def test_a_direction_of_zeros_is_the_first_axis() -> None:
    module = _policy(1).eval()
    with torch.no_grad():
        module.direction.head.weight.zero_()
        module.direction.head.bias.zero_()
    v = module.direction_of(_vectors(3))
    assert torch.equal(v, torch.eye(N)[:1].expand(3, N))
    v.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in module.direction.parameters() if p.grad is not None)
    np.testing.assert_array_equal(module.to_weights().direction(_vectors(3).numpy()), v.detach().numpy())


def test_what_does_not_divide_is_refused() -> None:
    for changes in ({"tokens": 5}, {"heads": 7}, {"tokens": 6, "heads": 3}):
        with raises("E-INPUT", list(changes)[-1]):
            ProtectPolicy(N, dataclasses.replace(SETTINGS, **changes), torch.Generator())
