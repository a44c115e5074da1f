"""The settings of SPARSE's mask training, with the published ones as the preset `paper`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from vecveil.errors import InvalidInputError
from vecveil.sensitivity.hard_concrete_math import GAMMA, XI
from vecveil.validation import check_count, check_positive, check_probability

__all__ = ["MaskOptions"]

Loss = Literal["sum", "mean"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskOptions:
    """How the mask is trained; the defaults are the published settings.

    Args:
        learning_rate: Adam's step for classifier and gates. In 100 epochs of 1e-4 a gate's logit
            moves by about 1.8 at most, and an exact 0 or 1 needs 2.4: larger steps give masks that
            are less uniform.
        gate_learning_rate: Adam's step for log α and log β alone; None takes ``learning_rate``.
            Sparse masks need about 1e-2 and ``regularisation`` of about 0.3 (with loss="mean").
        regularisation: λ, weight of the expected share of active gates. Higher is sparser.
        epochs: passes over the pairs.
        batch_size: pairs per step (twice as many rows), which share one gate sample.
        hidden: widths of the classifier's ReLU layers.
        xi: upper end of the stretched gate, > 1. Further out gives more exact ones.
        gamma: lower end of the stretched gate, < 0. Further out gives more exact zeros.
        initial_beta: start of the temperature, > 0 (Louizos et al.; SPARSE names none).
        initial_alpha_sd: standard deviation of the start of log α around 0.
        loss: what λ is weighed against. "sum", the default, adds the cross-entropy over the rows
            of the minibatch, as Eq. 3 prints it; "mean" averages it, so that λ weighs
            2 · ``batch_size`` times as much. Adam ignores the scale of the loss itself.
        held_out: share of the pairs kept back to measure the classifier; 0 trains on all of them.
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
    loss: Loss = "sum"
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
            raise InvalidInputError.of(
                owner, "hidden", "a tuple of at least one width", repr(self.hidden)
            )
        for width in self.hidden:
            check_count(width, owner=owner, param="hidden")
        if self.xi <= 1:
            raise InvalidInputError.of(
                owner, "xi", "> 1", self.xi, "A gate could never be exactly 1."
            )
        if not -self.xi < self.gamma < 0:
            raise InvalidInputError.of(
                owner, "gamma", "between -xi and 0", self.gamma, "A gate could never be exactly 0."
            )
        if self.loss not in ("sum", "mean"):
            raise InvalidInputError.of(owner, "loss", "'sum' or 'mean'", repr(self.loss))
        if check_probability(self.held_out, owner=owner, param="held_out") > 0.5:
            raise InvalidInputError.of(owner, "held_out", "at most 0.5", self.held_out)

    @classmethod
    def paper(cls) -> MaskOptions:
        """Return the published settings: Adam 1e-4, λ 1e-3, 100 epochs of 64 pairs."""
        return cls()

    def to_record(self) -> dict[str, Any]:
        """Return the settings as a dictionary for JSON."""
        record = {name: getattr(self, name) for name in self.__slots__}
        return record | {"hidden": list(self.hidden)}
