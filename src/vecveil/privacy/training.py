"""The training loop of every learnt attack: steps, learning rate, the best epoch, and checkpoints to resume from.

All randomness of an epoch (order, fresh releases, dropout) depends on the seed and the epoch's number alone. A
checkpoint therefore contains the weights, the optimiser and the position; a resumed run draws the epoch again and skips
the batches that it has learnt from.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, TrainingError
from vecveil.io import StateFile, atomic_path
from vecveil.runtime import Batches, import_torch, progress, resolve_device
from vecveil.validation import check_count, check_positive, check_probability

Array = npt.NDArray[Any]

Batch = Mapping[str, Array]
"""Arrays with one row for each text."""

LossOf = Callable[[Any, Mapping[str, Any]], tuple[Any, Any]]
"""``loss_of(model, tensors)``: the summed loss of a piece of a batch, and the number of tokens in it."""

ALL_ROWS = 1 << 30  # rows of a piece of a batch, until the device runs out of memory

# Torch's global generator belongs to the process: `seeded` admits one thread at a time.
_generator_lock = threading.RLock()


@dataclass(frozen=True, slots=True)
class TrainingRecipe:
    """Training with AdamW.

    Attributes:
        batch: Texts per step.
        learning_rate: The highest one.
        warmup_share: Share of the training in which the rate rises.
        decay: Course of the rate after the warm-up: ``"linear"`` or ``"cosine"`` to zero, ``"twice"`` (a cosine over
            the first third and another over the rest; the gain of the second shows whether more training would help),
            or ``"none"``.
        patience: Epochs without a lower validation loss after which training ends.
        clip: Largest norm of a step's gradient, or None.
        max_tokens: Tokens read of a text.
        precision: ``"float32"``, or ``"bfloat16"`` for the products (weights stay float32).
        seconds: Time limit, counted over interruptions, or None. The rate falls to zero at that time, so the model then
            depends on the machine's speed.
        save_seconds: Seconds between two saves within an epoch; 0 saves after every step.
        device: ``"auto"`` takes CUDA if available, else the CPU.
    """

    epochs: int
    batch: int
    learning_rate: float
    warmup_share: float = 0.05
    decay: str = "linear"
    patience: int = 3
    clip: float | None = 1.0
    weight_decay: float = 0.01
    max_tokens: int = 64
    precision: str = "float32"
    # Not in `repr`, which identifies a checkpoint: a run may resume elsewhere and with more time.
    seconds: float | None = field(default=None, repr=False)
    save_seconds: float = field(default=120.0, repr=False)
    device: str = field(default="auto", repr=False)

    def __post_init__(self) -> None:
        owner = "TrainingRecipe"
        for name in ("epochs", "batch", "patience", "max_tokens"):
            check_count(getattr(self, name), owner=owner, param=name)
        for name in ("learning_rate", "clip", "seconds"):
            if getattr(self, name) is not None:
                check_positive(getattr(self, name), owner=owner, param=name)
        for name in ("weight_decay", "save_seconds"):
            check_positive(getattr(self, name), owner=owner, param=name, allow_zero=True)
        check_probability(self.warmup_share, owner=owner, param="warmup_share")
        for name, choices in (("precision", ("float32", "bfloat16")), ("decay", ("linear", "cosine", "twice", "none"))):
            if getattr(self, name) not in choices:
                listed = " or ".join(map(repr, choices))
                raise InvalidInputError(f"{name} is {listed}, not {str(getattr(self, name))[:40]!r}.", param=name)

    def rate(self, done: float) -> float:
        """Return the learning rate after the share ``done`` of the training."""
        rising = done / self.warmup_share if self.warmup_share else 1.0
        left = (1 - done) / max(1 - self.warmup_share, 1e-9)
        if self.decay == "twice":
            left = 1 - 3 * done if done < 1 / 3 else (1 - done) * 1.5
        falling = {"linear": left, "none": 1.0}.get(self.decay, (1 - math.cos(math.pi * left)) / 2)
        return self.learning_rate * max(0.0, min(1.0, rising, falling))


@dataclass(eq=False)
class Fit:
    """Course of a training, and its position.

    Attributes:
        seed: Of all its randomness.
        epoch, step: Finished epochs, and steps of the present one.
        best_epoch: The epoch with the least validation loss, from 1.
        loss: Its validation loss; of a language model, in nats per token.
        history: Training and validation loss of each epoch.
        seconds, processor_seconds: Wall-clock and processor time, without interruptions.
        best: Weights of the best epoch.
    """

    seed: int
    epoch: int = 0
    step: int = 0
    best_epoch: int = 0
    loss: float = math.inf
    history: list[list[float]] = field(default_factory=list)
    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0
    finished: bool = False
    summed: tuple[float, float] = (0.0, 0.0)  # loss and tokens of the epoch so far
    best: dict[str, Any] = field(default_factory=dict, repr=False)

    def done(self, recipe: TrainingRecipe, share: float) -> float:
        """Return the share of the training that is over after the share ``share`` of the epoch."""
        done = (self.epoch + share) / recipe.epochs
        # Under a time limit the clock drives the schedule, so the rate still falls to zero.
        return done if recipe.seconds is None else max(done, self.seconds / recipe.seconds)


@contextmanager
def seeded(seed: int, device: str = "cpu") -> Iterator[None]:
    """Seed torch's global generator, which transformers uses, for one thread at a time, and restore it afterwards."""
    torch = import_torch()
    kind = torch.device(device)
    # fork_rng restores the generators of the CPU and of these devices only.
    devices = [kind.index or 0] if kind.type == "cuda" else []
    with _generator_lock, torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def weights_of(model: Any) -> dict[str, Any]:
    """Return the parameters by name, tied ones once, as tensors on the CPU (copies)."""
    return {name: p.detach().cpu().clone().contiguous() for name, p in model.named_parameters()}


def load_weights(model: Any, weights: Mapping[str, Any]) -> None:
    """Copy ``weights`` into ``model``; raise `ValueError` if names or shapes differ."""
    own = dict(model.named_parameters())
    if {k: tuple(p.shape) for k, p in own.items()} != {k: tuple(t.shape) for k, t in weights.items()}:
        raise ValueError("the weights are of a different model")
    with import_torch().no_grad():
        for name, parameter in own.items():
            parameter.copy_(weights[name])


def save_tensors(path: Path, tensors: Mapping[str, Any]) -> None:
    """Write torch tensors to a safetensors file that its owner alone can read."""
    from safetensors.torch import save_file

    with atomic_path(path) as temporary:
        save_file(dict(tensors), str(temporary))


def load_tensors(path: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    tensors: dict[str, Any] = load_file(str(path))
    return tensors


def mean_loss(model: Any, batches: Sequence[Batch], loss_of: LossOf) -> float:
    device = next(model.parameters()).device
    total = count = 0.0
    pieces = Batches(ALL_ROWS)
    with import_torch().no_grad():
        for batch in batches:

            def work(i: int, j: int, batch: Batch = batch) -> tuple[Any, Any]:
                return loss_of(model, piece(batch, i, j, device))

            results = pieces.run(rows_of(batch), work)
            total += sum(float(loss) for loss, _ in results)
            count += sum(float(tokens) for _, tokens in results)
    return total / max(count, 1.0)


def rows_of(batch: Batch) -> int:
    return len(next(iter(batch.values())))


def piece(batch: Batch, start: int, stop: int, device: Any) -> dict[str, Any]:
    torch = import_torch()
    return {key: torch.as_tensor(a[start:stop]).to(device) for key, a in batch.items()}


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """One training: its seed source, name, progress bar, and folder to resume from, or None."""

    rng: np.random.Generator
    name: str = "model"
    show_progress: bool | None = None
    folder: Path | None = None


def fit_model(
    model: Any,
    epoch_batches: Callable[[int, np.random.Generator], Sequence[Batch]],
    loss_of: LossOf,
    validate: Callable[[Any], float],
    recipe: TrainingRecipe,
    run: TrainingRun,
    *,
    keep_last: bool = False,
) -> Fit:
    """Train ``model`` in place; it ends with the weights of its best epoch, in evaluation mode.

    Args:
        model: A torch module; it is moved to the recipe's device.
        epoch_batches: ``epoch_batches(epoch, rng)`` returns the batches of an epoch (from 0). All its randomness must
            come from the given generator, or a resumed training differs.
        loss_of: See `LossOf`. A batch too large for the device is cut into pieces; the step stays the same.
        validate: Returns the validation loss of the model (evaluation mode, no gradients).
        keep_last: End with the weights of the last epoch; the result has the best epoch's weights.

    Raises:
        DataFileError: the folder contains the training of a different model or recipe, or a damaged one.
        TrainingError: no epoch had a finite validation loss.
    """
    torch = import_torch()
    device = torch.device(resolve_device(recipe.device, owner="fit_model"))
    model.to(device)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
    )
    file = None if run.folder is None else _Checkpoint(run.folder, run.name, recipe, model, optimiser)
    fit = (None if file is None else file.load()) or Fit(int(run.rng.integers(2**62)))
    pieces = Batches(ALL_ROWS)

    def steps() -> Iterator[None]:
        saved = wall = time.monotonic()
        processor = time.process_time()
        while not fit.finished:
            # Seed and epoch alone determine the batches: a resumed run draws them again.
            batches = epoch_batches(fit.epoch, np.random.default_rng([fit.seed, fit.epoch]))
            model.train()
            while fit.step < len(batches):
                done = fit.done(recipe, (fit.step + 0.5) / len(batches))
                if done >= 1:
                    break
                for group in optimiser.param_groups:
                    group["lr"] = recipe.rate(done)
                # One seed for each step: a resumed run draws the same dropout. 7919 is a prime.
                with _dropout_of(model, (fit.seed + 7919 * fit.steps + 1) % 2**62, device):
                    loss, count = _learn(model, batches[fit.step], loss_of, optimiser, recipe, pieces)
                fit.summed = fit.summed[0] + loss, fit.summed[1] + count
                fit.step, fit.steps, fit.tokens = fit.step + 1, fit.steps + 1, fit.tokens + int(count)
                now, used = time.monotonic(), time.process_time()
                fit.seconds, fit.processor_seconds = fit.seconds + now - wall, fit.processor_seconds + used - processor
                wall, processor = now, used
                # The last step of an epoch is saved with the epoch's end.
                if file is not None and now - saved >= recipe.save_seconds and fit.step < len(batches):
                    file.save(fit)
                    saved = now
                yield
            model.eval()
            with torch.no_grad():
                value = float(validate(model))
            ended = fit.done(recipe, 1.0) >= 1
            fit.history.append([fit.summed[0] / max(fit.summed[1], 1.0), value])
            fit.epoch, fit.step, fit.summed = fit.epoch + 1, 0, (0.0, 0.0)
            if better := value < fit.loss:  # NaN never is
                fit.best_epoch, fit.loss, fit.best = fit.epoch, value, weights_of(model)
            fit.finished = ended or fit.epoch - fit.best_epoch >= recipe.patience
            if file is not None:
                file.save(fit, best=better)
                saved = time.monotonic()

    for _ in progress(steps(), run.name, show=run.show_progress, unit="step"):
        pass
    if not fit.best:  # a diverged attack recovers nothing and would look like protection
        raise TrainingError(
            f"The training of {run.name} diverged: no validation loss was finite in {fit.epoch} epochs. Check the "
            "vectors for extreme values, or skip the attack.",
            fit.epoch,
            0,
        )
    if not keep_last:
        load_weights(model, fit.best)
    model.eval()
    return fit


def _learn(
    model: Any, batch: Batch, loss_of: LossOf, optimiser: Any, recipe: TrainingRecipe, pieces: Batches
) -> tuple[float, float]:
    torch = import_torch()
    device = next(model.parameters()).device
    optimiser.zero_grad(set_to_none=True)

    def work(start: int, stop: int) -> tuple[Any, float]:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=recipe.precision == "bfloat16"):
            loss, count = loss_of(model, piece(batch, start, stop, device))
        loss.backward()
        return loss.detach(), float(count)

    results = pieces.run(rows_of(batch), work, undo=optimiser.zero_grad)
    count = sum(tokens for _, tokens in results)
    # Sum the loss over pieces and divide once, so that pieces do not change the step.
    if count:
        torch._foreach_mul_([p.grad for p in model.parameters() if p.grad is not None], 1 / count)
    if recipe.clip is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
    optimiser.step()
    return sum(float(loss) for loss, _ in results), count


def _dropout_of(model: Any, seed: int, device: Any) -> Any:
    """Return the context of a step: seeded if the model has dropout, else empty, without a lock."""
    drops = any(isinstance(m, import_torch().nn.Dropout) and m.p > 0 for m in model.modules())
    return seeded(seed, str(device)) if drops else nullcontext()


def forget_training(folder: Path, name: str) -> None:
    """Remove the checkpoints of a training whose model has been saved."""
    for part in ("training", "best"):
        (folder / f"{name}-{part}.safetensors").unlink(missing_ok=True)


class _Checkpoint:
    """Files of everything that a resumed training needs, and of the weights of the best epoch."""

    def __init__(self, folder: Path, name: str, recipe: TrainingRecipe, model: Any, optimiser: Any) -> None:
        shapes = {key: list(p.shape) for key, p in model.named_parameters()}
        self.model, self.optimiser, self.best = model, optimiser, folder / f"{name}-best.safetensors"
        self.file = StateFile(folder / f"{name}-training.safetensors", {"recipe": repr(recipe), "shapes": shapes})

    def save(self, fit: Fit, *, best: bool = False) -> None:
        if best:
            save_tensors(self.best, fit.best)
        arrays = {f"model/{key}": tensor.numpy() for key, tensor in weights_of(self.model).items()}
        for i, values in self.optimiser.state_dict()["state"].items():
            arrays |= {f"optimiser/{i}/{key}": value.detach().cpu().numpy() for key, value in values.items()}
        self.file.save(arrays, {key: value for key, value in vars(fit).items() if key != "best"})

    def load(self) -> Fit | None:
        if (stored := self.file.load()) is None:
            return None
        try:
            tensors = {key: import_torch().from_numpy(array) for key, array in stored[0].items()}
            load_weights(self.model, {key[6:]: t for key, t in tensors.items() if key.startswith("model/")})
            state: dict[int, dict[str, Any]] = {}
            for key, tensor in tensors.items():
                if key.startswith("optimiser/"):
                    _, i, name = key.split("/")
                    state.setdefault(int(i), {})[name] = tensor
            # Parameter groups stay the optimiser's: the identity covers the recipe.
            self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": state})
            fit = Fit(**stored[1])
            fit.best = load_tensors(self.best) if fit.best_epoch else {}
            return fit
        except Exception as error:  # safetensors and torch raise their own exception types
            raise self.file.damaged() from error
