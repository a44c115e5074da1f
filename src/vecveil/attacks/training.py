"""Training of the attackers' networks: perceptrons, and language models whose training can be resumed.

All randomness of an epoch of a language model (order, fresh releases, dropout) depends on the seed and the epoch's
number alone. A checkpoint therefore holds the weights, the optimiser and the position; a resumed run draws the
epoch again and skips its first batches. Tensors are stored in safetensors, so reading them cannot run code.
"""

from __future__ import annotations

import copy
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.attack import Session
from vecveil.attacks.evidence import FurtherVectors, LabelledVectors
from vecveil.attacks.release_model import InputMap, fit_input_map
from vecveil.errors import InvalidInputError
from vecveil.io import StateFile, atomic_path
from vecveil.runtime import Batches, import_torch, one_thread, progress, resolve_device
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_positive, check_probability

Array = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]

Batch = Mapping[str, Array]
"""Arrays with one row for each text."""

LossOf = Callable[[Any, Mapping[str, Any]], tuple[Any, Any]]
"""``loss_of(model, tensors)``: the summed loss of a piece of a batch, and the number of tokens in it."""

_SCORED_ROWS = 4096  # rows that a perceptron scores at once
_ALL_ROWS = 1 << 30  # rows of a piece of a batch, until the device runs out of memory
_POSITION = ("seed", "epoch", "step", "loss", "count", "finished")

# Torch's global generator belongs to the process: `seeded` admits one thread at a time.
_generator_lock = threading.RLock()


@dataclass(frozen=True, slots=True)
class Schedule:
    """Shape and training of a perceptron (binary cross-entropy, Adam).

    Attributes:
        hidden: Units per hidden layer.
        learning_rate: Of Adam; it falls to zero along a cosine if ``cosine`` is set.
        dropout: Share of hidden units dropped while training.
        input_noise: Standard deviation of noise added to the inputs.
        weight_decay: Decoupled weight decay.
        residual: Add every hidden layer after the first to its normalised input, with GELU in place of ReLU.
        restart: Run the cosine twice, over the first third of the steps and over the others.
        device: ``"auto"`` takes CUDA where there is one, else the CPU.
    """

    hidden: tuple[int, ...]
    epochs: int
    batch: int
    learning_rate: float
    dropout: float = 0.0
    cosine: bool = False
    input_noise: float = 0.0
    weight_decay: float = 0.0
    residual: bool = False
    restart: bool = False
    # Not in `repr`, which identifies a checkpoint: a fitted network scores on any device.
    device: str = field(default="cpu", repr=False)

    def __post_init__(self) -> None:
        owner = "Schedule"
        for units in self.hidden:
            check_count(units, owner=owner, param="hidden")
        check_count(self.epochs, owner=owner, param="epochs")
        check_count(self.batch, owner=owner, param="batch")
        check_positive(self.learning_rate, owner=owner, param="learning_rate")
        check_probability(self.dropout, owner=owner, param="dropout")
        for name in ("input_noise", "weight_decay"):
            check_positive(getattr(self, name), owner=owner, param=name, allow_zero=True)


class Network:
    """A trained perceptron as a function from float32 inputs (N, r) to logits (N, V)."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self._batches = Batches(_SCORED_ROWS)

    def __call__(self, inputs: Array) -> Array:
        """Return the logits of ``inputs``."""
        torch = import_torch()
        was_training = self.module.training
        self.module.eval()
        device = next(self.module.parameters()).device

        def score(i: int, j: int) -> Array:
            logits: Array = self.module(torch.from_numpy(inputs[i:j]).to(device)).cpu().numpy()
            return logits

        with one_thread(), torch.no_grad():
            parts = self._batches.run(len(inputs), score)
        self.module.train(was_training)
        return np.concatenate(parts)

    def copy(self) -> Network:
        """Return a copy that further training does not change."""
        return Network(copy.deepcopy(self.module))

    def to_arrays(self) -> dict[str, Array]:
        """Return the parameters by name."""
        return {name: value.detach().cpu().numpy() for name, value in self.module.state_dict().items()}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array]) -> Network:
        """Return the network with the given parameters, for scoring."""
        torch = import_torch()
        # Names begin with the number of the layer, and only weights of linear layers are matrices.
        order = sorted(arrays, key=lambda name: int(name.partition(".")[0]))
        weights = [arrays[name] for name in order if arrays[name].ndim == 2]
        sizes = [weights[0].shape[1], *(len(weight) for weight in weights)]
        residual = any(".inner." in name for name in arrays)
        module = _perceptron(torch, sizes, 0.0, residual, None)
        module.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
        return cls(module)


@dataclass(frozen=True, eq=False)
class Perceptron:
    """A trained network of released vectors.

    ``epoch`` is the one that it was kept from, ``course`` the validation figure after each epoch.
    """

    inputs: InputMap
    network: Network
    epoch: int
    course: Array

    def __call__(self, Y: Embeddings) -> Array:
        """Return the logits of released vectors, (N, V)."""
        return self.network(self.inputs(Y))

    def details(self) -> dict[str, Any]:
        """Return the epochs and the units of the hidden layers."""
        matrices = [value for value in self.network.to_arrays().values() if value.ndim == 2]
        return {"epoch": self.epoch, "epochs": len(self.course), "hidden": [len(each) for each in matrices[:-1]]}


def perceptron_epochs(
    train: LabelledVectors,
    validation: LabelledVectors,
    schedule: Schedule,
    session: Session,
    name: str,
    *,
    further: FurtherVectors | None = None,
) -> tuple[InputMap, Iterator[tuple[Network, Array]]]:
    """Return the map to standardised inputs, and the network with its validation logits after each epoch.

    With an oracle every epoch sees freshly protected vectors, so that the network cannot memorise the noise.
    Without one the same vectors return in every epoch; the schedule's input noise and weight decay regularise then.
    Of ``further`` every epoch draws as many rows as there are training texts.
    """
    inputs = fit_input_map(session.draw(train.X))  # unfiltered: measured stronger here
    held_out = inputs(session.draw(validation.X))
    if session.knowledge.adaptive:
        schedule = replace(schedule, input_noise=0.0, weight_decay=0.0)

    def draw() -> tuple[Array, Array]:
        X, L = train.X, train.L
        if further is not None:
            some = session.rng.choice(len(further), min(len(further), len(X)), replace=False)
            X, L = np.concatenate([X, further.X[some]]), np.concatenate([L, further.L[some]])
        return inputs(session.draw(X)), L

    steps = train_network(draw, schedule, session.rng)
    bar = progress(steps, name, total=schedule.epochs, show=session.show_progress, unit="epoch")
    return inputs, ((network, network(held_out)) for network in bar)


def train_network(
    draw: Callable[[], tuple[Array, Array]], schedule: Schedule, rng: np.random.Generator
) -> Iterator[Network]:
    """Yield the network after each epoch; it is one object that further training changes.

    Args:
        draw: Returns the inputs (N, r) and 0/1 labels (N, V) of an epoch, freshly protected if there is an oracle.
        rng: Gives the order of the texts and the seed of a private torch generator.
    """
    torch = import_torch()
    device = resolve_device(schedule.device, owner="train_network")
    inputs, labels = draw()
    rows = len(inputs)
    # A private generator: other threads may use torch's global one meanwhile.
    generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
    sizes = (inputs.shape[1], *schedule.hidden, labels.shape[1])
    # Masks are drawn on the device: at 4,096 units copying them would take longer than the training.
    drawing = generator if device == "cpu" else torch.Generator(device).manual_seed(generator.initial_seed())
    module = _perceptron(torch, sizes, schedule.dropout, schedule.residual, generator, drawing).to(device)
    # Without weight decay AdamW is Adam, so one optimiser serves both.
    optimiser = torch.optim.AdamW(module.parameters(), lr=schedule.learning_rate, weight_decay=schedule.weight_decay)
    decay = None
    if schedule.cosine:
        steps = schedule.epochs * -(-rows // schedule.batch)
        rates = torch.optim.lr_scheduler
        decay = rates.CosineAnnealingLR(optimiser, steps)
        if schedule.restart:
            decay = rates.CosineAnnealingWarmRestarts(optimiser, -(-steps // 3), T_mult=2)
    network = Network(module)
    batches = Batches(schedule.batch)
    loss_of = torch.nn.functional.binary_cross_entropy_with_logits
    for epoch in range(schedule.epochs):
        if epoch:
            inputs, labels = draw()
        order = torch.from_numpy(rng.permutation(rows)).to(device)
        with one_thread():
            module.train()
            given = torch.from_numpy(inputs).to(device)
            target = torch.from_numpy(labels.astype(np.float32)).to(device)
            for i in range(0, rows, schedule.batch):
                part = order[i : i + schedule.batch]
                optimiser.zero_grad(set_to_none=True)

                def learn(start: int, stop: int, part: Any = part, given: Any = given, target: Any = target) -> None:
                    some = part[start:stop]
                    x = given[some]
                    if schedule.input_noise:
                        x = x + schedule.input_noise * torch.randn(x.shape, generator=drawing, device=device)
                    share = len(some) / len(part)  # pieces of a batch add up to its mean loss
                    (share * loss_of(module(x), target[some])).backward()

                batches.run(len(part), learn, undo=optimiser.zero_grad)
                optimiser.step()
                if decay is not None:
                    decay.step()
        yield network  # outside of `one_thread`: the caller may do other work meanwhile


def _perceptron(
    torch: Any, sizes: Sequence[int], dropout: float, residual: bool, generator: Any, drawing: Any = None
) -> Any:
    """Return the module, initialised as torch initialises linear layers but from ``generator``.

    Args:
        sizes: Inputs, units of each hidden layer, outputs.
        generator: None leaves the weights unset, for those of a saved network.
        drawing: Generator of the dropped units, on the device of the training.
    """

    class Dropout(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            if not (self.training and dropout):
                return x
            keep = 1 - dropout
            mask = torch.empty_like(x).bernoulli_(keep, generator=drawing)
            return x * mask.div_(keep)

        def __deepcopy__(self, memo: Any) -> Any:
            return Dropout()  # a generator cannot be copied, and a copy is used for scoring only

    class Residual(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return x + self.inner(x)

    def linear(width: int, units: int) -> Any:
        layer = torch.nn.utils.skip_init(torch.nn.Linear, width, units)
        if generator is not None:
            bound = 1 / math.sqrt(width)
            with torch.no_grad():
                torch.nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
                layer.bias.uniform_(-bound, bound, generator=generator)
        return layer

    layers: list[Any] = []
    activation = torch.nn.GELU if residual else torch.nn.ReLU
    for i, (width, units) in enumerate(itertools.pairwise(sizes[:-1])):
        hidden = [linear(width, units), activation(), Dropout()]
        if residual and i:
            hidden = [Residual(torch.nn.Sequential(torch.nn.LayerNorm(width), *hidden))]
        layers += hidden
    return torch.nn.Sequential(*layers, linear(*sizes[-2:]))


@dataclass(frozen=True, slots=True)
class TrainingRecipe:
    """Training of a language model: AdamW, linear warm-up, linear decay to zero.

    Attributes:
        batch: Texts per step.
        learning_rate: The highest one.
        warmup_share: Share of the training in which the rate rises.
        patience: Epochs without a lower validation loss after which training ends; the best epoch is kept.
        clip: Largest norm of a step's gradient.
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
    # Not in `repr`, which identifies a checkpoint: a run may resume elsewhere and with more time.
    seconds: float | None = field(default=None, repr=False)
    save_seconds: float = field(default=120.0, repr=False)
    device: str = field(default="auto", repr=False)

    def __post_init__(self) -> None:
        owner = "TrainingRecipe"
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
            got = repr(self.precision)[:40]
            raise InvalidInputError.of(owner, "precision", "'float32' or 'bfloat16'", got)

    def rate(self, done: float) -> float:
        """Return the learning rate when the share ``done`` of the training is over."""
        rising = done / self.warmup_share if self.warmup_share else 1.0
        falling = (1 - done) / max(1 - self.warmup_share, 1e-9)
        return self.learning_rate * max(0.0, min(1.0, rising, falling))


@dataclass(eq=False)
class Fit:
    """Course of a training.

    Attributes:
        best_epoch: The epoch whose weights are kept, from 1.
        loss: Its validation loss, in nats a token.
        history: Training and validation loss of each epoch.
        seconds, processor_seconds: Wall-clock and processor time, without interruptions.
    """

    best_epoch: int = 0
    loss: float = math.inf
    history: list[tuple[float, float]] = field(default_factory=list)
    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0


@contextmanager
def seeded(seed: int, device: str = "cpu") -> Iterator[None]:
    """Seed torch's global generator for the block, and restore it afterwards.

    Models of `transformers` draw their first weights and their dropout from it. A process-wide lock is held, so
    that attacks may run in several threads.
    """
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
        raise ValueError("the weights are of another model")
    with import_torch().no_grad():
        for name, parameter in own.items():
            parameter.copy_(weights[name])


def save_tensors(path: Path, tensors: Mapping[str, Any]) -> None:
    """Write torch tensors to a safetensors file that its owner alone can read."""
    from safetensors.torch import save_file

    with atomic_path(path) as temporary:
        save_file(dict(tensors), str(temporary))


def load_tensors(path: Path) -> dict[str, Any]:
    """Return the torch tensors of a safetensors file."""
    from safetensors.torch import load_file

    tensors: dict[str, Any] = load_file(str(path))
    return tensors


def padded(rows: Sequence[Ids], fill: int) -> tuple[Ids, Ids]:
    """Return token ids as one array, short rows padded with ``fill``, and the lengths."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    ids = np.full((len(rows), int(lengths.max(initial=1))), fill, dtype=np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return ids, lengths


class TextBatches(Sequence[Batch]):
    """The batches of an epoch, built on access.

    Args:
        rows: Rows of each batch.
        ids: Tokens of the N texts; a batch holds them as ``ids``, padded with 0, and ``lengths``.
        arrays: By name, arrays with N rows.
        guesses: Tokens of a guess for each text and the id that pads them; a batch holds ``guess_ids``.
    """

    def __init__(
        self,
        rows: Sequence[npt.NDArray[np.intp]],
        ids: Sequence[Ids],
        arrays: Mapping[str, Array],
        guesses: tuple[Sequence[Ids], int] | None = None,
    ) -> None:
        self.rows, self.ids, self.arrays, self.guesses = rows, ids, arrays, guesses

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        rows = self.rows[index]
        batch = {name: values[rows] for name, values in self.arrays.items()}
        batch["ids"], batch["lengths"] = padded([self.ids[i] for i in rows], fill=0)
        if self.guesses is not None:
            ids, pad = self.guesses
            batch["guess_ids"], _ = padded([ids[i] for i in rows], fill=pad)
        return batch


def rows_by_length(
    ids: Sequence[Ids], batch: int, rng: np.random.Generator, *, pool: int = 50
) -> list[npt.NDArray[np.intp]]:
    """Return the rows of each batch: texts of similar length together, otherwise in random order."""
    lengths = np.array([len(row) for row in ids])
    order = rng.permutation(len(lengths))
    batches = []
    # Sorting within pools of batches saves padding and keeps most of the randomness.
    for i in range(0, len(order), pool * batch):
        part = order[i : i + pool * batch]
        part = part[np.argsort(lengths[part], kind="stable")]
        batches += [part[j : j + batch] for j in range(0, len(part), batch)]
    return [batches[i] for i in rng.permutation(len(batches))]


def mean_loss(model: Any, batches: Sequence[Batch], loss_of: LossOf) -> float:
    """Return the mean loss per token, in nats, over ``batches``."""
    device = next(model.parameters()).device
    total = count = 0.0
    pieces = Batches(_ALL_ROWS)
    with import_torch().no_grad():
        for batch in batches:

            def work(i: int, j: int, batch: Batch = batch) -> tuple[Any, Any]:
                return loss_of(model, piece(batch, i, j, device))

            results = pieces.run(rows_of(batch), work)
            total += sum(float(loss) for loss, _ in results)
            count += sum(float(tokens) for _, tokens in results)
    return total / max(count, 1.0)


def rows_of(batch: Batch) -> int:
    """Return the number of texts in a batch."""
    return len(next(iter(batch.values())))


def piece(batch: Batch, start: int, stop: int, device: Any) -> dict[str, Any]:
    """Return the rows ``start`` to ``stop`` of a batch as tensors on ``device``."""
    torch = import_torch()
    return {key: torch.as_tensor(a[start:stop]).to(device) for key, a in batch.items()}


def fit_model(
    model: Any,
    epoch_batches: Callable[[int, np.random.Generator], Sequence[Batch]],
    loss_of: LossOf,
    validate: Callable[[Any], float],
    recipe: TrainingRecipe,
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
            randomness must come from the given generator, or a resumed training differs.
        loss_of: See `LossOf`. A batch too large for the device is cut into pieces; the step stays the same.
        validate: Returns the validation loss of the model (evaluation mode, no gradients).
        rng: Gives the seed, with one draw.
        folder: Folder of checkpoints, or None. An unfinished training of the same ``name`` there is resumed.

    Raises:
        DataFileError: the folder holds the training of another model or recipe, or a damaged one.
    """
    training = _Training(model, loss_of, recipe, int(rng.integers(2**62)), folder, name)
    training.resume()
    steps = training.steps(epoch_batches, validate)
    for _ in progress(steps, name, show=show_progress, unit="step"):
        pass
    if training.best is not None:
        load_weights(model, training.best)
    model.eval()
    return training.fit


def forget_training(folder: Path, name: str) -> None:
    """Remove the checkpoints of a training whose model has been saved."""
    for part in ("training", "best"):
        (folder / f"{name}-{part}.safetensors").unlink(missing_ok=True)


class _Training:
    """One training: model, optimiser and position."""

    def __init__(
        self, model: Any, loss_of: LossOf, recipe: TrainingRecipe, seed: int, folder: Path | None, name: str
    ) -> None:
        torch = import_torch()
        self.torch, self.loss_of, self.recipe, self.seed = torch, loss_of, recipe, seed
        self.folder, self.name = folder, name
        self.device = torch.device(resolve_device(recipe.device, owner="fit_model"))
        self.model = model.to(self.device)
        self.optimiser = torch.optim.AdamW(
            model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
        )
        # GPT-2 and T5 trained from scratch have no dropout; pretrained ones do.
        self.has_dropout = any(isinstance(m, torch.nn.Dropout) and m.p > 0 for m in model.modules())
        self.pieces = Batches(_ALL_ROWS)
        self.fit = Fit()
        self.epoch = self.step = 0
        self.loss = self.count = 0.0  # of the epoch so far
        self.finished = False
        self.clock = _now()
        self.best: dict[str, Any] | None = None

    def steps(
        self, epoch_batches: Callable[[int, np.random.Generator], Sequence[Batch]], validate: Callable[[Any], float]
    ) -> Iterator[None]:
        """Yield after each step, until training ends."""
        self.clock = _now()
        saved = self.clock[0]
        while not self.finished:
            # Seed and epoch alone determine the batches: a resumed run draws them again.
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
                # The last step of an epoch is saved with the epoch's end.
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
        # Under a time limit the clock drives the schedule, so the rate still falls to zero.
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

        if self.has_dropout:
            # One seed for each step: a resumed run draws the same dropout. 7919 is a prime.
            with seeded((self.seed + 7919 * self.fit.steps + 1) % 2**62, str(self.device)):
                results = run()
        else:  # without dropout nothing is drawn, and other threads need not wait
            results = run()
        count = sum(tokens for _, tokens in results)
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        # The loss is summed over pieces and divided once, so that pieces do not change the step.
        if count:
            torch._foreach_mul_(gradients, 1 / count)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        self.optimiser.step()
        self.loss += sum(loss for loss, _ in results)
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
        if value < self.fit.loss or self.best is None:  # also if the first loss is NaN
            self.fit.best_epoch, self.fit.loss = self.epoch, value
            self.best = weights_of(self.model)
            if self.folder is not None:
                save_tensors(self._path("best"), self.best)
        self.finished = ended or self.epoch - self.fit.best_epoch >= self.recipe.patience

    def _path(self, part: str) -> Path:
        assert self.folder is not None  # callers have checked
        return self.folder / f"{self.name}-{part}.safetensors"

    def _file(self) -> StateFile:
        shapes = {name: list(p.shape) for name, p in self.model.named_parameters()}
        return StateFile(self._path("training"), {"recipe": repr(self.recipe), "shapes": shapes})

    def save(self) -> None:
        """Write everything that a resumed training needs, as one file."""
        if self.folder is None:
            return
        tensors = {f"model/{key}": tensor for key, tensor in weights_of(self.model).items()}
        for i, values in self.optimiser.state_dict()["state"].items():
            for key, value in values.items():
                tensors[f"optimiser/{i}/{key}"] = value.detach().cpu()
        record = {"place": {key: getattr(self, key) for key in _POSITION}, "fit": asdict(self.fit)}
        self._file().save({key: tensor.numpy() for key, tensor in tensors.items()}, record)

    def resume(self) -> None:
        """Restore the state of the checkpoint, if there is one."""
        if self.folder is None or (stored := self._file().load()) is None:
            return
        try:
            tensors = {key: self.torch.from_numpy(array) for key, array in stored[0].items()}
            load_weights(self.model, {k[6:]: t for k, t in tensors.items() if k.startswith("model/")})
            self._load_optimiser(tensors)
            self.fit = Fit(**stored[1]["fit"])
            # JSON turns the pairs into lists.
            self.fit.history = [(one, other) for one, other in self.fit.history]
            for key, value in stored[1]["place"].items():
                setattr(self, key, value)
            if self.fit.best_epoch:
                self.best = load_tensors(self._path("best"))
        except Exception as error:  # safetensors and torch raise their own exception types
            raise self._file().damaged() from error

    def _load_optimiser(self, tensors: Mapping[str, Any]) -> None:
        state: dict[int, dict[str, Any]] = {}
        for key, tensor in tensors.items():
            kind, _, rest = key.partition("/")
            if kind == "optimiser":
                i, _, name = rest.partition("/")
                state.setdefault(int(i), {})[name] = tensor
        # Parameter groups stay the optimiser's: the identity covers the recipe.
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": state})


def _now() -> tuple[float, float]:
    return time.monotonic(), time.process_time()
