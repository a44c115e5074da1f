"""Training of language models that goes on where it was stopped and comes to the same model.

What is random in an epoch (order, fresh releases, dropout) depends on the seed and the epoch's number alone. So a
checkpoint holds weights, the optimiser and where it stood; the epoch is drawn again on resumption and its first
batches skipped. Nothing that is written can run code when it is read: tensors are in safetensors.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from vecveil.attacks.reconstruction.models import (
    ALL_ROWS,
    Batch,
    LossOf,
    load_weights,
    piece,
    rows_of,
    seeded,
    weights_of,
)
from vecveil.attacks.reconstruction.recipe import Fit, Recipe
from vecveil.errors import DataFileError, message
from vecveil.io import atomic_path
from vecveil.runtime import Batches, import_torch, progress, resolve_device

__all__ = ["fit_model", "forget_training"]

_PLACE = ("seed", "epoch", "step", "loss", "count", "finished")


def fit_model(
    model: Any,
    epoch_batches: Callable[[int, np.random.Generator], Sequence[Batch]],
    loss_of: LossOf,
    validate: Callable[[Any], float],
    recipe: Recipe,
    *,
    rng: np.random.Generator,
    folder: Path | None = None,
    name: str = "model",
    show_progress: bool | None = None,
) -> Fit:
    """Train ``model`` in place; it ends with the weights of its best epoch, in evaluation mode.

    Args:
        model: A torch module; it is moved to the recipe's device.
        epoch_batches: ``epoch_batches(epoch, rng)`` returns the batches of an epoch (from 0). All its
            randomness must come from the generator it is given, or a resumed training differs.
        loss_of: See `LossOf`. A batch that does not fit the device is cut; the step stays the same.
        validate: Returns the validation loss of the model (evaluation mode, no gradients).
        recipe: How to train.
        rng: Gives the seed, with one draw.
        folder: Where checkpoints are kept, or None. An unfinished training of the same ``name`` there goes on.
        name: Of the files and of the progress bar.
        show_progress: True or False; None shows a bar on a terminal only.

    Raises:
        DataFileError: the folder holds the training of another model or recipe, or a damaged one.
    """
    training = _Training(model, loss_of, recipe, int(rng.integers(2**62)), folder, name)
    training.resume()
    steps = training.steps(epoch_batches, validate)
    for _ in progress(steps, name, show=show_progress, unit="step"):
        pass
    training.take_best()
    return training.fit


def forget_training(folder: Path, name: str) -> None:
    """Remove the checkpoints of a training whose model has been saved."""
    for part in ("training", "best"):
        (folder / f"{name}-{part}.safetensors").unlink(missing_ok=True)


class _Training:
    """One training: model, optimiser, and where it stands."""

    def __init__(
        self, model: Any, loss_of: LossOf, recipe: Recipe, seed: int, folder: Path | None, name: str
    ) -> None:
        torch = import_torch()
        self.torch, self.loss_of, self.recipe, self.seed = torch, loss_of, recipe, seed
        self.folder, self.name = folder, name
        self.device = torch.device(resolve_device(recipe.device, owner="fit_model"))
        self.model = model.to(self.device)
        self.optimiser = torch.optim.AdamW(
            model.parameters(),
            lr=recipe.learning_rate,
            weight_decay=recipe.weight_decay,
            fused=True,
        )
        self.draws = any(isinstance(m, torch.nn.Dropout) and m.p > 0 for m in model.modules())
        self.pieces = Batches(ALL_ROWS)
        self.fit = Fit()
        self.epoch = self.step = 0
        self.loss = self.count = 0.0  # of the epoch so far
        self.finished = False
        self.clock = _now()
        self.best: dict[str, Any] | None = None

    def steps(
        self,
        epoch_batches: Callable[[int, np.random.Generator], Sequence[Batch]],
        validate: Callable[[Any], float],
    ) -> Iterator[None]:
        """Yield after each step, until training ends."""
        self.clock = _now()
        saved = self.clock[0]
        while not self.finished:
            batches = epoch_batches(self.epoch, np.random.default_rng([self.seed, self.epoch]))
            self.model.train()
            while self.step < len(batches):
                done = self._done((self.step + 0.5) / len(batches))
                if done >= 1:
                    break
                self._learn(batches[self.step], self.recipe.rate(done))
                self.step += 1
                self._tick()
                due = self.clock[0] - saved >= self.recipe.save_seconds
                if due and self.step < len(batches):
                    self.save()
                    saved = time.monotonic()
                yield
            self._end_epoch(validate)
            self.save()
            saved = time.monotonic()

    def _tick(self) -> None:
        now = _now()
        self.fit.seconds += now[0] - self.clock[0]
        self.fit.processor_seconds += now[1] - self.clock[1]
        self.clock = now

    def _done(self, share: float) -> float:
        done = (self.epoch + share) / self.recipe.epochs
        limit = self.recipe.seconds
        return done if limit is None else max(done, self.fit.seconds / limit)

    def _learn(self, batch: Batch, rate: float) -> None:
        torch = self.torch
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.zero_grad(set_to_none=True)

        def work(start: int, stop: int) -> tuple[float, float]:
            bf16 = self.recipe.precision == "bfloat16"
            with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=bf16):
                part = piece(batch, start, stop, self.device)
                loss, count = self.loss_of(self.model, part)
            loss.backward()
            return float(loss.detach()), float(count)

        def run() -> list[tuple[float, float]]:
            return self.pieces.run(rows_of(batch), work, undo=self.optimiser.zero_grad)

        if self.draws:
            with seeded((self.seed + 7919 * self.fit.steps + 1) % 2**62, str(self.device)):
                found = run()
        else:
            found = run()
        count = sum(tokens for _, tokens in found)
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        if count:
            torch._foreach_mul_(gradients, 1 / count)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        self.optimiser.step()
        self.loss += sum(loss for loss, _ in found)
        self.count += count
        self.fit.steps += 1
        self.fit.tokens += int(count)

    def _end_epoch(self, validate: Callable[[Any], float]) -> None:
        self.model.eval()
        with self.torch.no_grad():
            value = float(validate(self.model))
        self._tick()
        ended = self._done(1.0) >= 1
        self.fit.history.append((self.loss / max(self.count, 1.0), value))
        self.epoch, self.step, self.loss, self.count = self.epoch + 1, 0, 0.0, 0.0
        if value < self.fit.loss or self.best is None:
            self.fit.best_epoch, self.fit.loss = self.epoch, value
            self.best = weights_of(self.model)
            self._write("best", self.best, {"epoch": str(self.epoch)})
        self.finished = ended or self.epoch - self.fit.best_epoch >= self.recipe.patience

    def take_best(self) -> None:
        """Put the weights of the best epoch into the model."""
        if self.best is not None:
            load_weights(self.model, self.best)
        self.model.eval()

    def _identity(self) -> str:
        own = asdict(self.recipe)
        for key in ("device", "save_seconds", "seconds"):
            del own[key]
        shapes = {name: list(p.shape) for name, p in self.model.named_parameters()}
        return json.dumps([own, shapes], sort_keys=True)

    def _write(self, part: str, tensors: Mapping[str, Any], record: Mapping[str, str]) -> None:
        if self.folder is None:
            return
        from safetensors.torch import save_file

        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with atomic_path(self.folder / f"{self.name}-{part}.safetensors", mode=0o600) as temporary:
            save_file(dict(tensors), str(temporary), metadata=dict(record))

    def save(self) -> None:
        """Write everything that a resumed training needs, as one file."""
        if self.folder is None:
            return
        tensors = {f"model/{key}": tensor for key, tensor in weights_of(self.model).items()}
        for i, values in self.optimiser.state_dict()["state"].items():
            for key, value in values.items():
                tensors[f"optimiser/{i}/{key}"] = value.detach().cpu().contiguous()
        place = {key: getattr(self, key) for key in _PLACE}
        record = {
            "identity": self._identity(),
            "place": json.dumps(place),
            "fit": json.dumps(asdict(self.fit)),
        }
        self._write("training", tensors, record)

    def resume(self) -> None:
        """Go to where the checkpoint stands, if there is one."""
        if (
            self.folder is None
            or not (path := self.folder / f"{self.name}-training.safetensors").is_file()
        ):
            return
        from safetensors import safe_open

        try:
            with safe_open(str(path), framework="pt") as file:
                record = file.metadata()
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            identity, place, fit = (record[key] for key in ("identity", "place", "fit"))
            same = identity == self._identity()
            if same:
                load_weights(
                    self.model, {k[6:]: t for k, t in tensors.items() if k.startswith("model/")}
                )
                self._load_optimiser(tensors)
                self.fit = Fit(**json.loads(fit))
                self.fit.history = [(one, other) for one, other in self.fit.history]
                for key, value in json.loads(place).items():
                    setattr(self, key, value)
                self._load_best()
        except Exception as error:  # safetensors and torch raise their own
            raise self._refusal("a training of this attack", "one that cannot be read") from error
        if not same:
            raise self._refusal("a training with the same recipe and sizes", "another one")

    def _load_optimiser(self, tensors: Mapping[str, Any]) -> None:
        state: dict[int, dict[str, Any]] = {}
        for key, tensor in tensors.items():
            kind, _, rest = key.partition("/")
            if kind == "optimiser":
                i, _, name = rest.partition("/")
                state.setdefault(int(i), {})[name] = tensor
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": state})

    def _load_best(self) -> None:
        if self.fit.best_epoch and self.folder is not None:
            from safetensors.torch import load_file

            self.best = load_file(str(self.folder / f"{self.name}-best.safetensors"))

    def _refusal(self, wanted: str, got: str) -> DataFileError:
        return DataFileError(
            message(
                "fit_model", "folder", wanted, got, fix="Give another folder, or remove this one."
            )
        )


def _now() -> tuple[float, float]:
    return time.monotonic(), time.process_time()
