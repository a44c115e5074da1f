"""One fused training step of SPARSE's mask and classifier, with gradients written out by hand.

The step equals one of autograd's (a test compares them) and costs two matrix products in the first
layer in place of three: with G = dHᵀX, the weights' gradient is G ⊙ m and the mask's the column sum
of G ⊙ W, so the gradient of the masked input is never formed. Buffers are allocated once. Small
matrix products are fastest on one thread, which `vecveil.runtime.one_thread` sees to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vecveil.errors import InvalidInputError, MissingDependencyError

if TYPE_CHECKING:
    import torch

    from vecveil.sensitivity.hard_concrete import MaskOptions

__all__ = ["MaskTrainer"]


def _adam(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    from torch.optim import Adam

    try:
        return Adam(groups, fused=True)
    except RuntimeError:  # a device, or a torch before 2.4, without the fused kernel
        return Adam(groups, foreach=True)


@dataclass(frozen=True, slots=True)
class _Buffers:
    hidden: list[torch.Tensor]
    deltas: list[torch.Tensor]
    labels: torch.Tensor

    @classmethod
    def allocate(cls, rows: int, widths: tuple[int, ...], device: torch.device) -> _Buffers:
        import torch

        hidden, deltas = (
            [torch.empty(rows, width, device=device) for width in widths] for _ in range(2)
        )
        return cls(hidden, deltas, torch.tensor([[1.0], [0.0]], device=device).repeat(rows // 2, 1))


class MaskTrainer:
    """Parameters, gradients and buffers of one training run; `epoch` is one pass over the pairs.

    All parameters lie in one flat tensor, so that Adam is one call. ``generator`` lives on the CPU
    whatever the device, so that a seed means the same everywhere.
    """

    weights: list[torch.Tensor]
    biases: list[torch.Tensor]
    weight_grads: list[torch.Tensor]
    bias_grads: list[torch.Tensor]

    def __init__(self, dimension: int, options: MaskOptions, generator: torch.Generator) -> None:
        try:
            import torch
        except ImportError as error:
            raise MissingDependencyError(
                "Training the hard-concrete mask", "torch", "attacks"
            ) from error
        self._torch = torch
        self.options = options
        self.generator = generator
        self.dimension = dimension
        try:
            self.device = torch.device(options.device)
            torch.empty(1, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise InvalidInputError.of(
                "MaskOptions", "device", "a device that torch can use here", repr(options.device)
            ) from error
        self._log_ratio = math.log(-options.gamma / options.xi)
        self._make_parameters()
        self._masked = torch.empty_like(self.weights[0])
        self._moment = torch.empty_like(self.weights[0])
        self._transposed = [w.t() for w in (self._masked, *self.weights[1:])]
        self._by_rows: dict[int, _Buffers] = {}

    def _make_parameters(self) -> None:
        torch, options = self._torch, self.options
        sizes = (self.dimension, *options.hidden, 1)
        shapes = list(zip(sizes[1:], sizes[:-1], strict=True))
        parts = []
        for (
            out,
            into,
        ) in shapes:  # torch.nn.Linear's own start: U(-1/√in, 1/√in) for weights and biases
            bound = 1.0 / math.sqrt(into)
            parts.append((torch.rand(out * into + out, generator=self.generator) * 2 - 1) * bound)
        parts.append(
            torch.randn(self.dimension, generator=self.generator) * options.initial_alpha_sd
        )
        parts.append(torch.full((self.dimension,), math.log(options.initial_beta)))
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
        self._optimiser = _adam(
            [{"params": [p], "lr": rate} for p, rate in zip(parts, rates, strict=True)]
        )

    def _buffers(self, rows: int) -> _Buffers:
        """Return the work space for minibatches of ``rows`` rows, allocated at their first use."""
        if rows not in self._by_rows:
            self._by_rows[rows] = _Buffers.allocate(rows, self.options.hidden, self.device)
        return self._by_rows[rows]

    def gradients(self, X: torch.Tensor, noise: torch.Tensor, logits: torch.Tensor) -> None:
        """Fill the gradients, and the logits, of one minibatch.

        Args:
            X: pairs as rows, positive and negative in turn, shape (2 b, n).
            noise: logit(μ) of one gate sample, shape (n,).
            logits: receives the classifier's output, shape (2 b, 1).
        """
        torch, options, buffers = self._torch, self.options, self._buffers(X.shape[0])
        log_alpha, log_beta = self.gates[0], self.gates[1]
        stretch = options.xi - options.gamma

        beta = log_beta.exp()  # Eq. 1
        shifted = (noise + log_alpha).div_(beta)
        s = torch.sigmoid(shifted)
        mask = (s * stretch).add_(options.gamma).clamp_(0.0, 1.0)

        torch.mul(self.weights[0], mask, out=self._masked)  # Φ ⊙ m through W is Φ through W ⊙ m
        hidden = [X, *buffers.hidden]
        last = len(self.weights) - 1
        for layer in range(last):
            torch.addmm(
                self.biases[layer], hidden[layer], self._transposed[layer], out=hidden[layer + 1]
            )
            hidden[layer + 1].clamp_min_(0.0)
        torch.addmm(self.biases[last], hidden[last], self._transposed[last], out=logits)

        delta = torch.sigmoid(logits).sub_(buffers.labels)  # derivative of Eq. 3 by the logit
        if options.loss == "mean":
            delta.div_(X.shape[0])
        for layer in range(last, 0, -1):
            torch.mm(delta.t(), hidden[layer], out=self.weight_grads[layer])
            torch.sum(delta, 0, out=self.bias_grads[layer])
            before = buffers.deltas[layer - 1]
            torch.mm(delta, self.weights[layer], out=before)
            delta = before.mul_(
                hidden[layer].sign_()
            )  # ReLU's slope; the output is not needed any more
        torch.mm(delta.t(), X, out=self._moment)
        torch.sum(delta, 0, out=self.bias_grads[0])
        torch.mul(self._moment, mask, out=self.weight_grads[0])

        by_shifted = self._moment.mul_(self.weights[0]).sum(0)
        by_shifted.mul_(
            torch.addcmul(mask, mask, mask, value=-1).sign_()
        )  # 1 where the gate is not clipped
        by_shifted.mul_(torch.addcmul(s, s, s, value=-1))
        active = torch.sigmoid(
            log_alpha - beta * self._log_ratio
        )  # the L0 penalty, sign as in l0_penalty
        by_active = active.addcmul_(active, active, value=-1).mul_(
            options.regularisation / self.dimension
        )
        torch.addcdiv(by_active, by_shifted, beta, value=stretch, out=self.gate_grads[0])
        by_log_beta = torch.mul(by_shifted, shifted, out=self.gate_grads[1])
        by_log_beta.mul_(-stretch).addcmul_(by_active, beta, value=-self._log_ratio)

    def epoch(self, pairs: torch.Tensor) -> float:
        """Run one pass over ``pairs`` (N, 2, n) in random order; returns the loss per row."""
        torch = self._torch
        count, size = pairs.shape[0], self.options.batch_size
        order = torch.randperm(count, generator=self.generator).to(self.device)
        rows = pairs.index_select(0, order).view(2 * count, self.dimension)
        uniform = torch.rand(-(-count // size), self.dimension, generator=self.generator)
        noise = torch.logit(uniform, eps=1e-7).to(self.device)
        logits = torch.empty(2 * count, 1, device=self.device)
        batches = zip(
            torch.split(rows, 2 * size), noise.unbind(), torch.split(logits, 2 * size), strict=True
        )
        for X, gate_noise, out in batches:
            self.gradients(X, gate_noise, out)
            self._optimiser.step()
        labels = self._buffers(2).labels.repeat(count, 1)
        return float(torch.nn.functional.binary_cross_entropy_with_logits(logits, labels))

    def accuracy(self, pairs: torch.Tensor, mask: torch.Tensor) -> float:
        """Return the share of rows of ``pairs`` (N, 2, n) classified rightly through ``mask``."""
        torch = self._torch
        right = 0
        for block in torch.split(pairs, 4096):
            rows = block.reshape(-1, self.dimension) * mask
            for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
                rows = torch.addmm(bias, rows, weight.t())
                if layer < len(self.weights) - 1:
                    rows = rows.clamp_min(0.0)
            guess = rows.view(-1, 2) > 0
            right += int(guess[:, 0].sum()) + int((~guess[:, 1]).sum())
        return right / (2 * pairs.shape[0])
