"""SPARSE's neuron mask: a hard-concrete gate per dimension, trained to distinguish "with" from "without the concept".

The gates and a small classifier are trained together on D+ against D- (SPARSE, arXiv 2602.07090, §3.1 and Algorithm 2).
With the published settings the mask is nearly uniform, as its report shows.

A gate stretches a binary concrete variable s in (0, 1) to (γ, ξ) with γ < 0 < 1 < ξ and clips it to [0, 1], so that
exact zeros and ones have positive probability. Closed forms: SPARSE Eq. 1, 2 and 4; penalty and sign: Eq. 10-12 of
Louizos et al. 2018, "Learning sparse neural networks through L0 regularization".
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from vecveil.errors import out_of_range, unknown_name, wrong_shape, wrong_type
from vecveil.runtime import import_torch, one_thread, progress, resolve_device
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_embeddings, check_positive, check_probability, check_seed

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[np.float64]

XI = 1.1
"""Upper end ξ of the stretched interval (SPARSE, below Eq. 1)."""
GAMMA = -0.1
"""Lower end γ of the stretched interval (SPARSE, below Eq. 1)."""


def inference_mask(log_alpha: Array, *, xi: float = XI, gamma: float = GAMMA) -> Array:
    """Return the mask after training, clip(sigmoid(log α) (ξ - γ) + γ, 0, 1)  (SPARSE Eq. 2)."""
    return np.clip(expit(log_alpha) * (xi - gamma) + gamma, 0.0, 1.0)


def l0_penalty(log_alpha: Array, beta: Array, *, xi: float = XI, gamma: float = GAMMA) -> float:
    """Return the expected share of active gates, the mean of P(m > 0) = sigmoid(log α - β log(-γ/ξ)).

    SPARSE's Eq. 4 prints a minus sign, which would reward active gates; the sign follows Louizos et al. 2018, Eq. 12.
    """
    return float(np.mean(expit(log_alpha - beta * np.log(-gamma / xi))))


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskOptions:
    """Settings of the mask's training; the defaults are the published ones.

    Args:
        learning_rate: Adam's step for classifier and gates. In 100 epochs of 1e-4 a gate's logit moves by at most about
            1.8, and an exact 0 or 1 needs 2.4: larger steps give less uniform masks.
        gate_learning_rate: Adam's step for log α and log β; None takes ``learning_rate``. Sparse masks need about 1e-2
            and ``regularisation`` of about 0.3 (with loss="mean").
        regularisation: λ, weight of the expected share of active gates. Higher is sparser.
        batch_size: pairs per step (twice as many rows), which share one gate sample.
        hidden: widths of the classifier's ReLU layers.
        xi: upper end of the stretched gate, > 1. A larger value gives more exact ones.
        gamma: lower end of the stretched gate, < 0. A smaller value gives more exact zeros.
        initial_beta: initial temperature, > 0 (Louizos et al.; SPARSE names none).
        initial_alpha_sd: standard deviation of the initial log α around 0.
        loss: "sum", the default, adds the cross-entropy over the rows of the minibatch (Eq. 3); "mean" averages it, so
            that λ weighs 2 · ``batch_size`` times as much.
        held_out: share of the pairs used to measure the classifier; 0 trains on all of them.
        device: torch device, such as "cpu" or "cuda". At these sizes a CPU is enough.
    """

    learning_rate: float = 1e-4
    gate_learning_rate: float | None = None
    regularisation: float = 1e-3
    epochs: int = 100
    batch_size: int = 64
    hidden: tuple[int, ...] = (256, 128)
    xi: float = XI
    gamma: float = GAMMA
    initial_beta: float = 2 / 3
    initial_alpha_sd: float = 0.01
    loss: Literal["sum", "mean"] = "sum"
    held_out: float = 0.0
    device: str = "cpu"

    def __post_init__(self) -> None:
        owner = "MaskOptions"
        for name in ("learning_rate", "xi", "initial_beta"):
            check_positive(getattr(self, name), owner=owner, param=name)
        for name in ("regularisation", "initial_alpha_sd"):
            check_positive(getattr(self, name), owner=owner, param=name, allow_zero=True)
        if self.gate_learning_rate is not None:
            check_positive(self.gate_learning_rate, owner=owner, param="gate_learning_rate")
        for name in ("epochs", "batch_size"):
            check_count(getattr(self, name), owner=owner, param=name)
        if not isinstance(self.hidden, tuple) or not self.hidden:
            raise wrong_type(owner, "hidden", "a tuple of one or more widths", self.hidden)
        for width in self.hidden:
            check_count(width, owner=owner, param="hidden")
        if self.xi <= 1:
            raise out_of_range(owner, "xi", "a number above 1", self.xi, "A gate could never be exactly 1.")
        if not -self.xi < self.gamma < 0:
            why = "A gate could never be exactly 0."
            raise out_of_range(owner, "gamma", "a number between -xi and 0", self.gamma, why)
        if self.loss not in ("sum", "mean"):
            raise unknown_name(owner, "loss", ("sum", "mean"), self.loss)
        if check_probability(self.held_out, owner=owner, param="held_out") > 0.5:
            raise out_of_range(owner, "held_out", "at most 0.5", self.held_out)

    def to_record(self) -> dict[str, Any]:
        record = {name: getattr(self, name) for name in self.__slots__}
        return record | {"hidden": list(self.hidden)}


@dataclass(frozen=True, slots=True)
class HardConcreteMask:
    """A trained mask and its report; contains no embedding.

    Args:
        mask: (n,) sensitivity of each dimension in [0, 1] (SPARSE Eq. 2).
        log_alpha, beta: (n,) learnt gate locations and temperatures.
        loss_curve: (epochs,) cross-entropy per row in nats; chance is 0.693.
        training_accuracy, held_out_accuracy: share of rows classified correctly through the mask.
        pairs: number of training pairs.
    """

    mask: Array
    log_alpha: Array
    beta: Array
    loss_curve: Array
    training_accuracy: float
    held_out_accuracy: float | None
    pairs: int
    seconds: float
    seed: int
    options: MaskOptions = field(repr=False)

    def to_record(self) -> dict[str, Any]:
        """Return the report: shares of the mask above 0.5 and at 0 and 1, its effective dimensions, and its training.

        ``effective_dimensions`` is (Σm)²/Σm². ``expected_active`` is the L0 penalty without λ.
        """
        mask, options = self.mask, self.options
        squares = float((mask**2).sum())
        return {
            "dimension": int(mask.size),
            "pairs": self.pairs,
            "seed": self.seed,
            "mean": float(mask.mean()),
            "sd": float(mask.std()),
            "density": float((mask > 0.5).mean()),
            "zeros": float((mask == 0).mean()),
            "ones": float((mask == 1).mean()),
            "effective_dimensions": float(mask.sum()) ** 2 / squares if squares > 0 else 0.0,
            "expected_active": l0_penalty(self.log_alpha, self.beta, xi=options.xi, gamma=options.gamma),
            "first_loss": float(self.loss_curve[0]),
            "last_loss": float(self.loss_curve[-1]),
            "training_accuracy": self.training_accuracy,
            "held_out_accuracy": self.held_out_accuracy,
            "seconds": self.seconds,
            "options": options.to_record(),
        }


def fit_hard_concrete_mask(
    positive: Embeddings,
    negative: Embeddings,
    options: MaskOptions | None = None,
    *,
    seed: int = 0,
    show_progress: bool | None = None,
) -> HardConcreteMask:
    """Return the mask trained on pairs "with" and "without the concept" (SPARSE Algorithm 2).

    Args:
        positive, negative: (N, n) embeddings of the texts (D+, label 1), and of the texts without the concept (D-, 0).
        seed: of all random draws. The same seed, arrays and machine give the same mask.

    Raises:
        InvalidInputError: training diverged.

    Cost: 10,000 pairs of 384 dimensions with the published settings take about 20 s on one core.
    """
    owner = "fit_hard_concrete_mask"
    options = MaskOptions() if options is None else options
    pairs, dimension = _check_pairs(positive, negative, owner)
    check_seed(seed, owner=owner)
    torch = import_torch("Training the hard-concrete mask")
    started = time.perf_counter()
    generator = torch.Generator().manual_seed(seed)
    trainer = MaskTrainer(dimension, options, generator)
    # Small matrix products are fastest on one thread; gradients are computed by hand, not recorded.
    with one_thread(), torch.no_grad():
        data = torch.from_numpy(pairs)
        held = None  # split by pair: the other side of a training pair would leak into the test
        if kept_back := round(options.held_out * len(pairs)):
            order = torch.randperm(len(pairs), generator=generator)
            held, data = data[order[:kept_back]].to(trainer.device), data[order[kept_back:]]
        data = data.to(trainer.device)
        epochs = range(options.epochs)
        steps = progress(epochs, "Training the mask", total=len(epochs), show=show_progress)
        curve = np.array([trainer.epoch(data) for _ in steps])
        log_alpha = trainer.gates[0].double().cpu().numpy()
        beta = trainer.gates[1].double().exp().cpu().numpy()
        if not np.isfinite(np.concatenate([curve, log_alpha, beta])).all():
            raise out_of_range(
                owner,
                "learning_rate",
                "a lower one, or a lower `gate_learning_rate`",
                options.learning_rate,
                "The loss or a gate became infinite or NaN.",
            )
        mask = inference_mask(log_alpha, xi=options.xi, gamma=options.gamma).astype(np.float64)
        on_device = torch.from_numpy(mask).float().to(trainer.device)
        training_accuracy = trainer.accuracy(data, on_device)
        held_out_accuracy = None if held is None else trainer.accuracy(held, on_device)
    # A frozen dataclass does not protect the contents of its arrays.
    for array in (mask, log_alpha, beta, curve):
        array.setflags(write=False)
    return HardConcreteMask(
        mask=mask,
        log_alpha=log_alpha,
        beta=beta,
        loss_curve=curve,
        training_accuracy=training_accuracy,
        held_out_accuracy=held_out_accuracy,
        pairs=len(data),
        seconds=time.perf_counter() - started,
        seed=seed,
        options=options,
    )


def stability_of(masks: Sequence[Array]) -> float | None:
    """Return the mean Pearson correlation over all pairs of masks, or None if a mask is constant."""
    if min(mask.std() for mask in masks) < 1e-12:
        return None
    pairs = itertools.combinations(masks, 2)
    return float(np.mean([float(np.corrcoef(a, b)[0, 1]) for a, b in pairs]))


def _check_pairs(positive: Any, negative: Any, owner: str) -> tuple[npt.NDArray[np.float32], int]:
    first = check_embeddings(positive, owner=owner, param="positive", min_rows=2)
    second = check_embeddings(negative, owner=owner, param="negative", min_rows=2)
    if first.shape != second.shape:
        raise wrong_shape(owner, "negative", f"{first.shape} like `positive`", second.shape)
    return np.stack([first, second], axis=1).astype(np.float32), first.shape[1]


def _adam(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    from torch.optim import Adam

    try:
        return Adam(groups, fused=True)
    except RuntimeError:  # a device, or a torch before 2.4, without the fused kernel
        return Adam(groups, foreach=True)


class MaskTrainer:
    """Parameters, gradients and buffers of one training run; `epoch` is one pass over the pairs.

    The hand-written gradients equal autograd's, with two matrix products in the first layer instead of three: with G =
    dHᵀX, the weights' gradient is G ⊙ m and the mask's the column sum of G ⊙ W.
    """

    weights: list[torch.Tensor]
    biases: list[torch.Tensor]
    weight_grads: list[torch.Tensor]
    bias_grads: list[torch.Tensor]

    def __init__(self, dimension: int, options: MaskOptions, generator: torch.Generator) -> None:
        import torch

        self._torch = torch
        self.options = options
        # On the CPU for every device, so that a seed gives the same draws everywhere.
        self.generator = generator
        self.dimension = dimension
        self.device = torch.device(resolve_device(options.device, owner="MaskOptions"))
        self._log_ratio = math.log(-options.gamma / options.xi)
        self._make_parameters()
        self._masked = torch.empty_like(self.weights[0])
        self._moment = torch.empty_like(self.weights[0])
        # Views: they follow the parameters through every step.
        self._transposed = [w.t() for w in (self._masked, *self.weights[1:])]
        self._by_rows: dict[int, tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]] = {}

    def _make_parameters(self) -> None:
        torch, options = self._torch, self.options
        sizes = (self.dimension, *options.hidden, 1)
        shapes = list(zip(sizes[1:], sizes[:-1], strict=True))
        parts = []
        for out, into in shapes:
            # torch.nn.Linear's initialisation: U(-1/√in, 1/√in) for weights and biases.
            bound = 1.0 / math.sqrt(into)
            parts.append((torch.rand(out * into + out, generator=self.generator) * 2 - 1) * bound)
        parts.append(torch.randn(self.dimension, generator=self.generator) * options.initial_alpha_sd)
        # β is trained as log β, which keeps it positive.
        parts.append(torch.full((self.dimension,), math.log(options.initial_beta)))
        # All parameters lie in one flat tensor, so that an Adam step is one call.
        flat = torch.cat(parts).to(self.device)
        grad = torch.zeros_like(flat)
        self.weights, self.biases, self.weight_grads, self.bias_grads = [], [], [], []
        at = 0
        for out, into in shapes:
            for source, weights, biases in (
                (flat, self.weights, self.biases),
                (grad, self.weight_grads, self.bias_grads),
            ):
                weights.append(source[at : at + out * into].view(out, into))
                biases.append(source[at + out * into : at + out * into + out])
            at += out * into + out
        self.gates, self.gate_grads = flat[at:].view(2, -1), grad[at:].view(2, -1)

        if options.gate_learning_rate in (None, options.learning_rate):
            parts, grads, rates = [flat], [grad], [options.learning_rate]
        else:
            parts, grads = [flat[:at], flat[at:]], [grad[:at], grad[at:]]
            rates = [options.learning_rate, options.gate_learning_rate]
        for part, part_grad in zip(parts, grads, strict=True):
            part.grad = part_grad
        self._optimiser = _adam([{"params": [p], "lr": rate} for p, rate in zip(parts, rates, strict=True)])

    def _buffers(self, rows: int) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
        # Full minibatches and the shorter last one need different sizes.
        if rows not in self._by_rows:
            torch, device = self._torch, self.device
            hidden, deltas = (
                [torch.empty(rows, width, device=device) for width in self.options.hidden] for _ in range(2)
            )
            labels = torch.tensor([[1.0], [0.0]], device=device).repeat(rows // 2, 1)
            self._by_rows[rows] = hidden, deltas, labels
        return self._by_rows[rows]

    def gradients(self, X: torch.Tensor, noise: torch.Tensor, logits: torch.Tensor) -> None:
        """Write the logits (2 b, 1) of alternating pairs (2 b, n) and the gradients for a gate sample ``noise``."""
        torch, options = self._torch, self.options
        units, deltas, labels = self._buffers(X.shape[0])
        log_alpha, log_beta = self.gates[0], self.gates[1]
        stretch = options.xi - options.gamma

        beta = log_beta.exp()  # Eq. 1
        shifted = (noise + log_alpha).div_(beta)
        s = torch.sigmoid(shifted)
        mask = (s * stretch).add_(options.gamma).clamp_(0.0, 1.0)

        torch.mul(self.weights[0], mask, out=self._masked)  # W (Φ ⊙ m) = (W ⊙ m) Φ
        hidden = [X, *units]
        last = len(self.weights) - 1
        for layer in range(last):
            torch.addmm(self.biases[layer], hidden[layer], self._transposed[layer], out=hidden[layer + 1])
            hidden[layer + 1].clamp_min_(0.0)
        torch.addmm(self.biases[last], hidden[last], self._transposed[last], out=logits)

        delta = torch.sigmoid(logits).sub_(labels)  # derivative of Eq. 3 by the logit
        if options.loss == "mean":
            delta.div_(X.shape[0])
        for layer in range(last, 0, -1):
            torch.mm(delta.t(), hidden[layer], out=self.weight_grads[layer])
            torch.sum(delta, 0, out=self.bias_grads[layer])
            before = deltas[layer - 1]
            torch.mm(delta, self.weights[layer], out=before)
            # ReLU's slope is the sign of its output, which is not needed again.
            delta = before.mul_(hidden[layer].sign_())
        # G = dHᵀX of the first layer gives the gradients of both W and the mask.
        torch.mm(delta.t(), X, out=self._moment)
        torch.sum(delta, 0, out=self.bias_grads[0])
        torch.mul(self._moment, mask, out=self.weight_grads[0])

        # Chain rule through Eq. 1: dL/dm, the clip, s(1 − s) of the sigmoid, then 1/β and ξ − γ.
        by_shifted = self._moment.mul_(self.weights[0]).sum(0)
        by_shifted.mul_(torch.addcmul(mask, mask, mask, value=-1).sign_())  # 0 for a clipped gate
        by_shifted.mul_(torch.addcmul(s, s, s, value=-1))
        # The L0 penalty, with the sign of `l0_penalty`.
        active = torch.sigmoid(log_alpha - beta * self._log_ratio)
        weight = options.regularisation / self.dimension
        by_active = active.addcmul_(active, active, value=-1).mul_(weight)
        # by log α: penalty + (ξ − γ) · dL/d(shifted) / β; by log β the factor 1/β becomes −shifted.
        torch.addcdiv(by_active, by_shifted, beta, value=stretch, out=self.gate_grads[0])
        by_log_beta = torch.mul(by_shifted, shifted, out=self.gate_grads[1])
        by_log_beta.mul_(-stretch).addcmul_(by_active, beta, value=-self._log_ratio)

    def epoch(self, pairs: torch.Tensor) -> float:
        """Run one pass over ``pairs`` (N, 2, n) in random order; return the loss per row."""
        torch = self._torch
        count, size = pairs.shape[0], self.options.batch_size
        order = torch.randperm(count, generator=self.generator).to(self.device)
        rows = pairs.index_select(0, order).view(2 * count, self.dimension)
        uniform = torch.rand(-(-count // size), self.dimension, generator=self.generator)
        # One gate sample per minibatch (Algorithm 2), drawn on the CPU; eps keeps the logit finite.
        noise = torch.logit(uniform, eps=1e-7).to(self.device)
        logits = torch.empty(2 * count, 1, device=self.device)
        batches = zip(torch.split(rows, 2 * size), noise.unbind(), torch.split(logits, 2 * size), strict=True)
        for X, gate_noise, out in batches:
            self.gradients(X, gate_noise, out)
            self._optimiser.step()
        # Loss over the logits collected during the pass, which saves a second pass.
        labels = self._buffers(2)[2].repeat(count, 1)
        return float(torch.nn.functional.binary_cross_entropy_with_logits(logits, labels))

    def accuracy(self, pairs: torch.Tensor, mask: torch.Tensor) -> float:
        """Return the share of rows of ``pairs`` (N, 2, n) classified correctly through ``mask``."""
        torch = self._torch
        right = 0
        for block in torch.split(pairs, 4096):
            rows = block.reshape(-1, self.dimension) * mask
            for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
                rows = torch.addmm(bias, rows, weight.t())
                if layer < len(self.weights) - 1:
                    rows = rows.clamp_min(0.0)
            # Logit 0 is probability 1/2; column 0 contains the positives.
            guess = rows.view(-1, 2) > 0
            right += int(guess[:, 0].sum()) + int((~guess[:, 1]).sum())
        return right / (2 * pairs.shape[0])
