"""The trainable policy and its policy gradient of one step (TextCrafter, Eq. 10 to 18, 22, 23), and learning curves.

This module imports torch. `PolicyWeights`, whose arrays have the names of `ProtectPolicy.state_dict`, does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from vecveil.errors import InvalidInputError, optional_import
from vecveil.privacy.mechanisms.textcrafter import REDRAWS, PolicyWeights, degenerate_below
from vecveil.privacy.textcrafter.pii_classifier import PiiClassifier
from vecveil.privacy.textcrafter.policy_settings import PolicySettings
from vecveil.privacy.textcrafter.reward import Reward, RewardTerms, target_centroids
from vecveil.runtime import Batches, resolve_device
from vecveil.schema import Conflict, Count, Finite, Record
from vecveil.types import Embeddings
from vecveil.validation import check_groups, number_groups

with optional_import("Training a policy", "torch", "textcrafter"):
    import torch
    from torch import Tensor, nn

_POSITION_DEVIATION = 0.02  # standard deviation of initial positions, as in BERT
_LOST = 1e-12  # a shorter vector has no direction: the first axis replaces it


class ProtectPolicy(nn.Module):
    """The policy π(d | e) = N(μ(e), diag σ²) and its reference direction v(e), float32 on the CPU.

    All initial weights and dropout masks come from ``generator``, on the CPU for every device.
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


Measure: TypeAlias = Finite


class EpochMeasures(Record, frozen=True):
    """Means over the held-out vectors after an epoch, without dropout, with the same draws after every epoch.

    Attributes:
        epoch: 0 is before the first step.
        reward: R of the protected vectors.
        reward_training: R of the training vectors, over the epoch's steps and with dropout; None at epoch 0.
        reward_clean: R of the clean vectors.
        p_pii, p_pii_clean: the classifier's probability of PII, of protected and of clean vectors.
        drift: 1 − cos(e', e).
        cluster_distance, cluster_distance_clean: ‖e' − c‖ and ‖e − c‖.
        mean_log_sigma: mean of log σ over the coordinates.
        deterministic_share: ‖μ⊥‖² / E‖d⊥‖², in [0, 1]: the part of the perturbation that all draws share.
        direction_cosine: cosine of v with v before the first step.
        mean_resultant, direction_resultant: ‖mean over the vectors of μ/‖μ‖‖, and of v; at 1 the policy does not depend
            on e.
        seconds: since the first step, over all runs.
    """

    epoch: Count
    reward: Measure
    reward_training: Measure | None
    reward_clean: Measure
    p_pii: Measure
    p_pii_clean: Measure
    drift: Measure
    cluster_distance: Measure
    cluster_distance_clean: Measure
    mean_log_sigma: Measure
    deterministic_share: Measure
    direction_cosine: Measure
    mean_resultant: Measure
    direction_resultant: Measure
    seconds: Measure


class LearningCurves(Record, frozen=True, tag_field="schema", tag="vecveil.training/1"):
    """Learning curves: the measures of each epoch, beginning with those before training."""

    epochs: Annotated[tuple[EpochMeasures, ...], Meta(min_length=1)]

    @property
    def last(self) -> EpochMeasures:
        """The measures of the last epoch, whose policy is kept."""
        return self.epochs[-1]

    @property
    def best(self) -> EpochMeasures:
        """The epoch with the highest reward, for comparison only."""
        return max(self.epochs, key=lambda epoch: epoch.reward)

    def with_epoch(self, measures: EpochMeasures) -> LearningCurves:
        return LearningCurves((*self.epochs, measures))

    def to_record(self) -> dict[str, Any]:
        return super().to_record() | {"best_epoch": self.best.epoch}

    def __post_init__(self) -> None:
        if [each.epoch for each in self.epochs] != list(range(len(self.epochs))):
            raise Conflict("epochs", "the epochs are not numbered from 0")


def orthogonal_part(d: Tensor, v: Tensor) -> Tensor:
    """Return d⊥ = d − (d·v) v for d (..., n) and v of norm 1, projected twice to remove the rounding error along v."""
    d = d - (d * v).sum(dim=-1, keepdim=True) * v
    return d - (d * v).sum(dim=-1, keepdim=True) * v


def fixed_orthogonal(v: Tensor) -> Tensor:
    """Return a unit vector orthogonal to each unit v (..., n), n ≥ 2: its least axis, less the part along v."""
    # The least coordinate is at most 1/√n, so the axis keeps a long orthogonal part.
    least = v.abs().argmin(dim=-1, keepdim=True)
    axis = torch.zeros_like(v).scatter_(-1, least, 1.0)
    part = orthogonal_part(axis, v)
    unit: Tensor = part / torch.linalg.vector_norm(part, dim=-1, keepdim=True)
    return unit


def perturbation(d: Tensor, v: Tensor, radius: float, resample: Callable[[], Tensor] | None = None) -> Tensor:
    """Return d* of each draw ``d`` (..., n): norm ``radius``, orthogonal to unit ``v`` (Eq. 17, 18). NaN stays NaN.

    A draw along v up to rounding is redrawn by ``resample`` up to `REDRAWS` times, then replaced by `fixed_orthogonal`.
    """
    v = v.expand_as(d)
    # in float32 a nearly parallel d leaves only noise
    tolerance = degenerate_below(torch.finfo(d.dtype).eps)
    for attempt in range(REDRAWS + 1):
        part = orthogonal_part(d, v)
        norms = torch.linalg.vector_norm(part, dim=-1, keepdim=True)
        lost = norms <= tolerance * torch.linalg.vector_norm(d, dim=-1, keepdim=True)
        if not bool(lost.any()):
            break
        if resample is None or attempt == REDRAWS:
            break
        d = torch.where(lost, resample(), d)
    if not bool(lost.any()):
        scaled: Tensor = part * (radius / norms)
        return scaled
    # The inner where keeps 0/0 out: NaN in an unused branch would still reach the gradient.
    unit: Tensor = torch.where(lost, fixed_orthogonal(v), part / torch.where(lost, 1.0, norms))
    return radius * unit


LEARNT_DIRECTIONS = ("learnt", "reparametrised")

HELD_OUT = 0.1  # share of the vectors that the curves are measured on, at most HELD_OUT_ROWS
HELD_OUT_ROWS = 2000

Indices = npt.NDArray[np.int64]


def group_numbers(groups: Any, rows: int, *, owner: str) -> Indices | None:
    """Return each row's group as a number from 0 on; None without groups."""
    if groups is None:
        return None
    (numbers,) = number_groups(check_groups(groups, rows, owner=owner))
    if numbers.max() == 0:
        raise InvalidInputError(
            "groups contains one group. One is held out whole, and the policy learns from the others.", param="groups"
        )
    return numbers.astype(np.int64)


def hold_out(rows: int, groups: Indices | None, generator: torch.Generator) -> tuple[Indices, Indices]:
    """Return the rows to measure on and those to learn from, each in an order drawn from ``generator``.

    Whole groups are held out in the drawn order, each if it still fits into a tenth of the rows and `HELD_OUT_ROWS`; if
    none fits, the smallest one. ``groups`` (N,) are at least two numbers from 0 on, or None.
    """
    most = min(HELD_OUT_ROWS, max(1, int(HELD_OUT * rows)))
    if groups is None:
        order = torch.randperm(rows, generator=generator).numpy()
        return order[:most], order[most:]
    sizes = np.bincount(groups)
    drawn = torch.randperm(len(sizes), generator=generator).numpy()
    held_out, left = np.zeros(len(sizes), dtype=bool), most
    # A group that is too large is skipped; smaller ones after it may still fit.
    for group in drawn:
        if sizes[group] <= left:
            held_out[group] = True
            left -= sizes[group]
    if not held_out.any():
        held_out[drawn[np.argmin(sizes[drawn])]] = True
    # Rows in the order of their groups in the permutation.
    place = np.empty(len(sizes), dtype=np.int64)
    place[drawn] = np.arange(len(sizes))
    order = np.argsort(place[groups], kind="stable")
    out = held_out[groups[order]]
    return order[out], order[~out]


_MEASURING = 0x7E57  # xor of the seed: the curves' draws are independent of training's

Array = npt.NDArray[Any]


class NotFinite(ArithmeticError):
    """Raised for a NaN or infinite reward or gradient; its text names the cause."""


class PolicyGradient:
    """Network, optimiser, generator and vectors of one training.

    The loss is −E[(R − b) log π(d | e)], R − b held fixed: its gradient goes to μ and σ. With ``direction="learnt"``
    −E[R] is added, d held fixed: its gradient goes to v alone, through e'. With ``direction="reparametrised"`` −E[R] is
    the loss, its gradient also through d = μ + σz. The entropy bonus goes to σ.

    The generator is on the CPU for every device and the only source of randomness. ``X`` are unit vectors (N, n), N ≥
    2, and ``groups`` (N,) numbers of groups that are held out whole, or None.
    """

    def __init__(
        self,
        X: Embeddings,
        classifier: PiiClassifier,
        centroids: Embeddings,
        settings: PolicySettings,
        seed: int,
        groups: Indices | None = None,
    ) -> None:
        self.settings, self.seed = settings, seed
        self.device = resolve_device(settings.device, owner="train_policy")
        self.generator = torch.Generator().manual_seed(seed)
        self.module = ProtectPolicy(X.shape[1], settings, self.generator)
        self.module.to(self.device)
        if settings.direction == "untrained" and self.module.direction is not None:
            self.module.direction.requires_grad_(False)  # the literal reading: v stays as drawn
        self._learning = {n: p for n, p in self.module.named_parameters() if p.requires_grad}
        self._optimiser = torch.optim.Adam(self._learning.values(), lr=settings.learning_rate, fused=True)
        self._batches = Batches(settings.batch_size)

        vectors = torch.from_numpy(np.asarray(X, dtype=np.float32)).to(self.device)
        targets = target_centroids(X, centroids, classifier, settings).astype(np.float32)
        c = torch.from_numpy(targets).to(self.device)
        self.reward = Reward(classifier, settings, self.device)
        split = hold_out(len(X), groups, self.generator)
        held_out, learnt = (torch.from_numpy(rows).to(self.device) for rows in split)
        self._held_out, self._held_out_targets = vectors[held_out], c[held_out]
        self._vectors, self._targets = vectors[learnt], c[learnt]
        # The first v of the held-out vectors: the curves show how far training turns it.
        self.module.eval()
        with torch.no_grad():
            self._first_direction = self.module.direction_of(self._held_out)

    @property
    def steps(self) -> int:
        return -(-len(self._vectors) // self.settings.batch_size)

    def order(self) -> list[Tensor]:
        """Return the batches of an epoch, as row numbers of the training vectors."""
        order = torch.randperm(len(self._vectors), generator=self.generator)
        return list(torch.split(order.to(self.device), self.settings.batch_size))

    def step(self, batch: Tensor) -> tuple[float, float, float]:
        """Learn from one batch; return its mean reward, p(e') and drift, or raise `NotFinite` without a change."""
        self.module.train()
        # An untrained direction must be the same in every step, so it has no dropout.
        if self.module.direction is not None:
            self.module.direction.train(self.settings.direction in LEARNT_DIRECTIONS)

        # Gradients accumulate over parts; when memory runs out, start again with smaller parts.
        def undo() -> None:
            self._optimiser.zero_grad(set_to_none=True)

        def learn(start: int, stop: int) -> Tensor:
            return self.add_gradient(batch[start:stop], (stop - start) / len(batch))

        undo()
        parts = self._batches.run(len(batch), learn, undo=undo)
        # Checked before the optimiser's step, so that the last good weights survive.
        for name, parameter in self._learning.items():
            gradient = parameter.grad
            if gradient is not None and not bool(torch.linalg.vector_norm(gradient, ord=math.inf).isfinite()):
                raise NotFinite(f"the gradient of {name} is NaN or infinite. {self._smaller_rate()}")
        self._optimiser.step()
        reward, p_pii, drift = torch.stack(parts).sum(dim=0).tolist()
        return reward, p_pii, drift

    def add_gradient(self, rows: Tensor, share: float) -> Tensor:
        """Add ``share`` of these rows' gradient to the network's; return ``share`` of `step`'s means."""
        settings = self.settings
        e, c = self._vectors[rows], self._targets[rows]
        mean = self.module.mean(e)  # μ(e), (rows, n)
        with torch.set_grad_enabled(settings.direction in LEARNT_DIRECTIONS):
            v = self.module.direction_of(e)
        log_sigma, pathwise = self.module.log_sigma, settings.direction == "reparametrised"
        centre, sigma = mean, log_sigma.exp()
        if not pathwise:
            # Draws are detached: the score-function estimator differentiates log π, not the sample.
            centre, sigma = mean.detach(), sigma.detach()
        self._check_policy(mean, sigma, v)

        def draw() -> Tensor:
            shape = (settings.draws, *mean.shape)
            noise = torch.randn(shape, generator=self.generator).to(self.device)
            drawn: Tensor = noise.mul(sigma).add_(centre)
            return drawn

        d = draw()
        # e' = e + d*; shape (draws, rows, n)
        protected = e + perturbation(d, v, settings.radius, draw)
        terms = self.reward.terms(protected, c)
        rewards = self.reward.total(terms)
        self._check_terms(terms, rewards)
        loss = torch.zeros((), device=self.device)
        if settings.direction in LEARNT_DIRECTIONS:  # log π does not depend on v; R does, through e'
            loss = -rewards.mean()
        if not pathwise:
            # b does not depend on d, so it reduces variance without bias (Eq. 20 to 22).
            advantage = (rewards - self.reward.baseline(e, c)).detach()
            if settings.normalise_advantage:
                advantage = advantage - advantage.mean()
                advantage = advantage / (advantage.square().mean().sqrt() + 1e-8)
            loss = loss - (advantage * self.module.log_probability(d, mean)).mean()
        # The entropy of N(μ, diag σ²) is Σ log σ plus a constant.
        if settings.entropy:
            loss = loss - settings.entropy * log_sigma.sum()
        # `share` makes the gradients of a batch's parts sum to the batch mean.
        torch.autograd.backward(share * loss)
        with torch.no_grad():
            drift = 1 - torch.nn.functional.cosine_similarity(protected, e.expand_as(d), dim=-1)
            means = [rewards.mean(), terms.p_pii.mean(), drift.mean()]
            weighted: Tensor = share * torch.stack(means)
        return weighted

    def _check_policy(self, mean: Tensor, sigma: Tensor, v: Tensor) -> None:
        for name, values in (("mean μ", mean), ("direction v", v), ("σ", sigma)):
            if not bool(values.sum().isfinite()) or (values is sigma and not bool(sigma.min() > 0)):
                kind = "NaN, infinite or zero" if values is sigma else "NaN or infinite"
                raise NotFinite(f"the policy's {name} is {kind}. {self._smaller_rate()}")

    def _check_terms(self, terms: RewardTerms, rewards: Tensor) -> None:
        if bool(rewards.sum().isfinite()):
            return
        causes = {
            "p(e')": (terms.p_pii, "The classifier's weights or intercept are out of range."),
            "‖e' − c‖": (terms.cluster, "The centroids are out of range."),
        }
        for name, (values, why) in causes.items():
            if not bool(values.sum().isfinite()):
                raise NotFinite(f"the reward's term {name} is NaN or infinite. {why}")
        raise NotFinite("the reward is infinite: beta or gamma is out of range.")

    def _smaller_rate(self) -> str:
        return f"A learning_rate smaller than {self.settings.learning_rate:g} keeps it in range."

    def measure(self, epoch: int, reward_training: float | None, seconds: float) -> EpochMeasures:
        """Return the measures of the held-out vectors for the current network; raise `NotFinite` for a NaN."""
        self.module.eval()
        # Equal draws at every epoch make the curves comparable.
        generator = torch.Generator().manual_seed(self.seed ^ _MEASURING)
        with torch.no_grad():
            parts = self._batches.run(len(self._held_out), lambda i, j: self._measures(i, j, generator))
        sums = torch.stack(parts).sum(dim=0) / len(self._held_out)
        units = 2 * self.module.dimension  # the last columns: means of μ/‖μ‖ and of v
        means = sums[:-units].tolist()
        # The norm of a mean of unit vectors: 1 if the policy ignores its input, near 0 if spread.
        mean_resultant, direction_resultant = sums[-units:].view(2, -1).norm(dim=1).tolist()
        names = (
            "reward",
            "reward_clean",
            "p_pii",
            "p_pii_clean",
            "drift",
            "cluster_distance",
            "cluster_distance_clean",
            "deterministic_share",
            "direction_cosine",
        )
        return EpochMeasures(
            epoch=epoch,
            reward_training=reward_training,
            mean_log_sigma=float(self.module.log_sigma.detach().mean()),
            mean_resultant=mean_resultant,
            direction_resultant=direction_resultant,
            seconds=seconds,
            **dict(zip(names, means, strict=True)),
        )

    def _measures(self, start: int, stop: int, generator: Any) -> Tensor:
        """Return sums over rows of the measures (in the order of `measure`), of μ/‖μ‖ and of v."""
        settings = self.settings
        e, c = self._held_out[start:stop], self._held_out_targets[start:stop]
        mean, v = self.module(e)
        sigma = self.module.log_sigma.exp()
        self._check_policy(mean, sigma, v)
        shape = (settings.draws, *mean.shape)
        d = mean + sigma * torch.randn(shape, generator=generator).to(self.device)
        protected = e + perturbation(d, v, settings.radius)
        after, before = self.reward.terms(protected, c), self.reward.terms(e, c)
        rewards = self.reward.total(after)
        self._check_terms(after, rewards)
        # Expected ‖d⊥‖² = ‖μ⊥‖² + Σ σ_i²(1 − v_i²); the first part's share is deterministic.
        fixed = orthogonal_part(mean, v).square().sum(dim=-1)
        spread = (sigma.square() * (1 - v.square())).sum(dim=-1)
        drift = 1 - torch.nn.functional.cosine_similarity(protected, e.expand_as(d), dim=-1)
        moved = (v * self._first_direction[start:stop]).sum(dim=-1)
        columns = (
            rewards,
            self.reward.total(before),
            after.p_pii,
            before.p_pii,
            drift,
            after.cluster,
            before.cluster,
            fixed / (fixed + spread),
            moved,
        )
        own = torch.stack([column.mean() for column in columns]) * len(e)
        unit = torch.nn.functional.normalize(mean, dim=-1)
        sums: Tensor = torch.cat([own, unit.sum(dim=0), v.sum(dim=0)])
        return sums

    def to_arrays(self) -> dict[str, Array]:
        """Return the state that the next epoch depends on: weights, Adam's moments, generator."""
        arrays = {f"module.{name}": tensor.detach().cpu().numpy() for name, tensor in self.module.state_dict().items()}
        for index, state in self._optimiser.state_dict()["state"].items():
            for name, tensor in state.items():
                arrays[f"adam.{index}.{name}"] = tensor.cpu().numpy()
        arrays["generator"] = self.generator.get_state().numpy()
        return arrays

    def restore(self, arrays: Mapping[str, Array], *, epoch: int) -> None:
        """Restore the state that `to_arrays` returned after ``epoch``; raise ValueError for other arrays."""
        expected = self.to_arrays()
        # Adam has no moments before its first step, so a new optimiser cannot list them.
        for at, parameter in enumerate(self._learning.values()) if epoch else ():
            expected[f"adam.{at}.step"] = np.empty((), dtype=np.float32)
            for name in ("exp_avg", "exp_avg_sq"):
                expected[f"adam.{at}.{name}"] = np.empty(tuple(parameter.shape), dtype=np.float32)
        if set(arrays) != set(expected):
            raise ValueError("names")
        module: dict[str, Any] = {}
        moments: dict[int, dict[str, Any]] = {}
        for name, array in expected.items():
            stored = arrays[name]
            alike = stored.shape == array.shape and stored.dtype == array.dtype
            if not alike or not np.isfinite(stored).all():
                raise ValueError(name)
            kind, _, rest = name.partition(".")
            if kind == "module":
                module[rest] = torch.from_numpy(stored.copy())
            elif kind == "adam":
                index, _, moment = rest.partition(".")
                moments.setdefault(int(index), {})[moment] = torch.from_numpy(stored.copy())
        self.module.load_state_dict(module)
        self._optimiser.load_state_dict({**self._optimiser.state_dict(), "state": moments})
        self.generator.set_state(torch.from_numpy(arrays["generator"].copy()))
