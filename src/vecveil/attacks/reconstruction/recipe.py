"""How a language model is trained, and how its training went."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from vecveil.errors import InvalidInputError
from vecveil.validation import check_count, check_positive, check_probability

__all__ = ["Fit", "Recipe"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a model is trained: AdamW, linear warm-up, linear decay to zero.

    Attributes:
        epochs: Passes over the texts.
        batch: Texts per step.
        learning_rate: The highest one.
        warmup_share: Share of the training in which the rate rises.
        patience: Epochs without a lower validation loss after which training ends; the best epoch is kept.
        clip: Largest norm of a step's gradient.
        weight_decay: Decoupled weight decay.
        max_tokens: Tokens of a text that are used.
        precision: ``"float32"``, or ``"bfloat16"`` for the products (weights stay float32).
        seconds: Time after which training ends, counted over interruptions, or None. The rate falls to
            zero at that time, so the model then depends on the machine's speed.
        save_seconds: Seconds between two saves within an epoch; 0 saves after every step.
        device: ``"auto"`` takes CUDA where there is one, else the CPU.
    """

    epochs: int
    batch: int
    learning_rate: float
    warmup_share: float = 0.05
    patience: int = 3
    clip: float = 1.0
    weight_decay: float = 0.01
    max_tokens: int = 64
    precision: str = "float32"
    seconds: float | None = None
    save_seconds: float = 120.0
    device: str = "auto"

    def __post_init__(self) -> None:
        owner = "Recipe"
        for name in ("epochs", "batch", "patience", "max_tokens"):
            check_count(getattr(self, name), owner=owner, param=name)
        for name in ("learning_rate", "clip"):
            check_positive(getattr(self, name), owner=owner, param=name)
        for name in ("weight_decay", "save_seconds"):
            check_positive(getattr(self, name), owner=owner, param=name, allow_zero=True)
        check_probability(self.warmup_share, owner=owner, param="warmup_share")
        if self.seconds is not None:
            check_positive(self.seconds, owner=owner, param="seconds")
        if self.precision not in ("float32", "bfloat16"):
            raise InvalidInputError.of(
                owner, "precision", "'float32' or 'bfloat16'", repr(self.precision)[:40]
            )

    def rate(self, done: float) -> float:
        """Return the learning rate when the share ``done`` of the training is over."""
        rising = done / self.warmup_share if self.warmup_share else 1.0
        falling = (1 - done) / max(1 - self.warmup_share, 1e-9)
        return self.learning_rate * max(0.0, min(1.0, rising, falling))


@dataclass(eq=False)
class Fit:
    """How a training went.

    Attributes:
        best_epoch: The epoch that was kept, from 1.
        loss: Its validation loss, in nats a token.
        history: Training and validation loss of each epoch.
        steps: Optimiser steps.
        tokens: Tokens that a loss was computed for.
        seconds: Wall-clock seconds, without interruptions.
        processor_seconds: The process's processor time in them.
    """

    best_epoch: int = 0
    loss: float = math.inf
    history: list[tuple[float, float]] = field(default_factory=list)
    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0
