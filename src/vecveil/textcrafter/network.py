"""The trainable policy network in torch: two branches of one transformer block each (TextCrafter, Eq. 10 to 16).

This module imports torch; the others of this folder import it inside functions. The trained network is applied by
`vecveil.mechanisms.policy.PolicyWeights`, whose arrays have the names of `state_dict` here.
"""

from __future__ import annotations

import math

from vecveil.errors import optional_import
from vecveil.mechanisms.policy import PolicyWeights
from vecveil.textcrafter.settings import PolicySettings

with optional_import("Training a policy", "torch", "textcrafter"):
    import torch
    from torch import Tensor, nn

_POSITION_DEVIATION = 0.02  # standard deviation of initial positions, as in BERT
_LOST = 1e-12  # a shorter vector has no direction: the first axis replaces it


class ProtectPolicy(nn.Module):
    """The policy π(d | e) = N(μ(e), diag σ²) and its reference direction v(e), initially drawn, float32 on the CPU.

    Args:
        dimension: n.
        settings: tokens T, heads, expansion, dropout and initial log σ.
        generator: on the CPU for every device, so that a seed gives equal draws everywhere. All initial
            weights and dropout masks come from it.
    """

    def __init__(self, dimension: int, settings: PolicySettings, generator: torch.Generator) -> None:
        super().__init__()
        self.dimension, self.tokens = dimension, settings.tokens
        self.heads = settings.heads_for(dimension)

        # Each branch has its dropout module: evaluation mode of one must not switch off the other's.
        # Both draw their initial weights from one generator, in this order.
        def branch() -> _Branch:
            drop = _Dropout(settings.dropout, generator)
            return _Branch(dimension, self.heads, settings, drop, generator)

        self.mean = branch()
        self.direction = None if settings.direction == "embedding" else branch()
        self.log_sigma = nn.Parameter(torch.full((dimension,), float(settings.initial_log_sigma)))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return μ(e) and v(e), both (N, n), for vectors (N, n)."""
        return self.mean(x), self.direction_of(x)

    def direction_of(self, x: Tensor) -> Tensor:
        """Return v(e), (N, n) of norm 1 (Eq. 16); the first axis where the branch gives zeros."""
        raw = x if self.direction is None else self.direction(x)
        norms = torch.linalg.vector_norm(raw, dim=-1, keepdim=True)
        lost = norms < _LOST
        first = torch.zeros_like(raw)
        first[:, 0] = 1
        # The inner where keeps 0/0 out of the gradient.
        out: Tensor = torch.where(lost, first, raw / torch.where(lost, 1.0, norms))
        return out

    def log_probability(self, d: Tensor, mean: Tensor) -> Tensor:
        """Return log π(d | e) of N(μ, diag σ²) for μ(e) = ``mean``, summed over the last dimension (Eq. 15)."""
        whitened = (d - mean) * (-self.log_sigma).exp()
        constant = 0.5 * math.log(2 * math.pi) * d.shape[-1]
        return -0.5 * whitened.square().sum(dim=-1) - self.log_sigma.sum() - constant

    def to_weights(self) -> PolicyWeights:
        """Return the network as arrays that can be applied and saved without torch."""
        arrays = {name: t.detach().cpu().numpy().copy() for name, t in self.state_dict().items()}
        return PolicyWeights(self.dimension, self.tokens, self.heads, arrays)


class _Dropout(nn.Module):
    """Dropout with masks from a given generator, which torch's own does not accept."""

    def __init__(self, share: float, generator: torch.Generator) -> None:
        super().__init__()
        self.kept, self.generator = 1 - share, generator

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.kept == 1:
            return x
        # Drawn on the CPU and moved: masks are the same on every device.
        mask = torch.empty(x.shape, dtype=x.dtype).bernoulli_(self.kept, generator=self.generator)
        return x * mask.div_(self.kept).to(x.device)


class _Branch(nn.Module):
    """A vector, split into T tokens, through one transformer block and a linear layer over all tokens."""

    def __init__(
        self, dimension: int, heads: int, settings: PolicySettings, drop: _Dropout, generator: torch.Generator
    ) -> None:
        super().__init__()
        width = dimension // settings.tokens
        hidden = settings.expansion * width
        first = torch.randn(settings.tokens, width, generator=generator)
        self.position = nn.Parameter(_POSITION_DEVIATION * first)
        self.attention = _Attention(width, heads, drop, generator)
        self.norm1 = nn.LayerNorm(width)
        self.expand = _linear(width, hidden, generator)
        self.contract = _linear(hidden, width, generator)
        self.norm2 = nn.LayerNorm(width)
        self.head = _linear(dimension, dimension, generator)
        self.drop = drop

    def forward(self, e: Tensor) -> Tensor:
        # Equal chunks of e become tokens, each with a learnable position.
        x = e.view(-1, *self.position.shape) + self.position
        y = self.norm1(x + self.drop(self.attention(x)))  # Eq. 12
        hidden = self.drop(nn.functional.gelu(self.expand(y)))  # Eq. 13
        y = self.norm2(y + self.drop(self.contract(hidden)))  # Eq. 14
        out: Tensor = self.head(y.flatten(1))
        return out


class _Attention(nn.Module):
    """Multi-head attention over the T tokens of each vector (Eq. 10, 11)."""

    def __init__(self, width: int, heads: int, drop: _Dropout, generator: torch.Generator) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = _linear(width, 3 * width, generator)
        with torch.no_grad():  # the initialisation of nn.MultiheadAttention
            nn.init.xavier_uniform_(self.qkv.weight, generator=generator)
            self.qkv.bias.zero_()
        self.out = _linear(width, width, generator)
        with torch.no_grad():
            self.out.bias.zero_()
        self.drop = drop

    def forward(self, x: Tensor) -> Tensor:
        rows, tokens, width = x.shape
        split = (rows, tokens, self.heads, width // self.heads)
        if tokens == 1:  # softmax over one token is 1: queries and keys have no influence
            weight, bias = self.qkv.weight[2 * width :], self.qkv.bias[2 * width :]
            values = nn.functional.linear(x, weight, bias).view(split)
            mixed = values * self.drop(x.new_ones(rows, 1, self.heads, 1))  # dropout of the weight 1
        else:
            q, k, v = (part.view(split).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
            scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)
            mixed = (self.drop(scores.softmax(dim=-1)) @ v).transpose(1, 2)
        out: Tensor = self.out(mixed.reshape(rows, tokens, width))
        return out


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """Return a layer with torch's default initialisation, drawn from ``generator``."""
    # skip_init: the default initialisation would draw from torch's global generator.
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)  # type: ignore[no-untyped-call]
    bound = 1 / math.sqrt(inputs)
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=generator)
        layer.bias.uniform_(-bound, bound, generator=generator)
    return layer
