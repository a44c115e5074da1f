"""Training of Vec2Text's hypothesiser and corrector, and the folder that keeps them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.reconstruction.tokenisers import Ids, Tokeniser, import_transformers, padded
from vecveil.attacks.reconstruction.vec2text.correction import RidgeMap, Space
from vecveil.attacks.reconstruction.vec2text.networks import (
    CORRECTOR,
    HYPOTHESISER,
    Language,
    T5Shape,
    Writer,
    build,
    sequence_loss,
)
from vecveil.attacks.release_model import InputMap
from vecveil.attacks.training import (
    Fit,
    TrainingRecipe,
    fit_model,
    forget_training,
    load_weights,
    mean_loss,
    rows_by_length,
    weights_of,
)
from vecveil.errors import DataFileError, MissingDependencyError, message
from vecveil.io import atomic_path, write_text
from vecveil.runtime import import_torch, progress

__all__ = ["Guesses", "Pairs", "Vec2TextState", "begin", "forget", "train_writer", "write_guesses"]

Array = npt.NDArray[Any]

_BEGUN = "vec2text-begun.json"
_PART = 8192  # guesses that are written to a file at once


@dataclass(frozen=True, eq=False)
class Guesses:
    """What the hypothesiser wrote for each text, as its corrector reads it.

    Attributes:
        ids: Tokens.
        clean: (N, n) clean vectors.
    """

    ids: list[Ids]
    clean: Array


class Pairs(Sequence[Mapping[str, Array]]):
    """The batches of an epoch, put together when they are asked for.

    Args:
        target: (N, r) what the network reads of the targets.
        ids: Tokens of the N texts.
        rows: Rows of each batch.
        pad: Fills up the tokens of guesses.
        guess: (N, r) the guesses' vectors, for a corrector.
        guess_ids: Tokens of the guesses.
    """

    def __init__(
        self,
        target: Array,
        ids: Sequence[Ids],
        rows: Sequence[npt.NDArray[np.intp]],
        pad: int,
        guess: Array | None = None,
        guess_ids: Sequence[Ids] = (),
    ) -> None:
        self.target, self.ids, self.rows, self.pad = target, ids, rows, pad
        self.guess, self.guess_ids = guess, guess_ids

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        rows = self.rows[index]
        ids, lengths = padded([self.ids[i] for i in rows], fill=0)
        batch = {"target": self.target[rows], "ids": ids, "lengths": lengths}
        if self.guess is not None:
            batch["guess"] = self.guess[rows]
            batch["guess_ids"], _ = padded([self.guess_ids[i] for i in rows], fill=self.pad)
        return batch


def train_writer(
    writer: Writer,
    inputs_of: Callable[[np.random.Generator], tuple[Array, Array | None]],
    texts: tuple[Sequence[Ids], Sequence[Ids]],
    held: tuple[Array, Array | None],
    recipe: TrainingRecipe,
    *,
    guesses: tuple[Guesses, Guesses] | None = None,
    seed: int,
    folder: Path | None,
    show_progress: bool | None,
) -> Fit:
    """Train the writer's network in place.

    Args:
        writer: Hypothesiser or corrector.
        inputs_of: Returns, for an epoch, what is read of targets and of guesses.
        texts: Tokens of the training and of the validation texts.
        held: What is read of the validation texts' targets and guesses.
        recipe: How to train.
        guesses: Of the training and of the validation texts, for a corrector.
        seed: Of everything random.
        folder: Where checkpoints are kept, or None.
        show_progress: See `fit_model`.
    """
    pad = writer.language.pad
    ours, others = ((), ()) if guesses is None else (guesses[0].ids, guesses[1].ids)
    lengths = np.array([len(ids) for ids in texts[0]])

    def epoch_batches(epoch: int, rng: np.random.Generator) -> Pairs:
        target, guess = inputs_of(rng)
        rows = rows_by_length(lengths, recipe.batch, rng)
        return Pairs(target, texts[0], rows, pad, guess, ours)

    every = np.arange(len(texts[1]))
    rows = [every[i : i + recipe.batch] for i in range(0, len(every), recipe.batch)]
    validation = Pairs(held[0], texts[1], rows, pad, held[1], others)
    return fit_model(
        writer.module,
        epoch_batches,
        sequence_loss,
        lambda module: mean_loss(module, validation, sequence_loss),
        recipe,
        rng=np.random.default_rng(seed),
        folder=folder,
        name=writer.shape.kind,
        show_progress=show_progress,
    )


def write_guesses(
    writer: Writer,
    targets: Array,
    space: Space,
    *,
    folder: Path | None,
    name: str,
    show_progress: bool | None,
) -> Guesses:
    """Return the hypothesiser's guess for each target, read from ``folder`` as far as it holds them."""
    ids: list[Ids] = []
    clean: list[Array] = []
    starts = range(0, len(targets), _PART)
    for start in progress(starts, f"guesses ({name})", show=show_progress, total=len(starts)):
        file = None if folder is None else folder / f"guesses-{name}-{start}.safetensors"
        some = None if file is None or not file.is_file() else _read_guesses(file)
        if some is None:
            texts = [one[0] for one in writer.guess(targets[start : start + _PART])]
            some = Guesses(writer.language.guess_ids(texts), space.clean(texts))
            if file is not None:
                _save_guesses(file, some)
        ids += some.ids
        clean.append(some.clean)
    return Guesses(ids, np.concatenate(clean))


def begin(folder: Path, seed: int, texts: Sequence[Ids]) -> None:
    """Note whose training the folder holds.

    Raises:
        DataFileError: it holds the unfinished training on other texts, or with another seed.
    """
    digest = hashlib.sha256(str(seed).encode())
    for ids in texts:
        digest.update(ids.tobytes() + b";")
    mark = json.dumps({"of": digest.hexdigest()})
    path = folder / _BEGUN
    if path.is_file() and path.read_text(encoding="utf-8") != mark:
        raise DataFileError.of("Vec2TextAttack", "checkpoint", "one begun with the same texts and seed",
                               "another", fix="Give another folder, or remove this one.")  # fmt: skip
    write_text(path, mark)


def forget(folder: Path) -> None:
    """Remove what was kept for going on with a training that has ended."""
    for kind in (HYPOTHESISER, CORRECTOR):
        forget_training(folder, kind)
    for file in [folder / _BEGUN, *folder.glob("guesses-*.safetensors")]:
        file.unlink(missing_ok=True)


def _save_guesses(file: Path, guesses: Guesses) -> None:
    from safetensors.numpy import save_file

    ids, lengths = padded(guesses.ids, fill=0)
    arrays = {"ids": ids, "lengths": lengths, "clean": np.ascontiguousarray(guesses.clean)}
    with atomic_path(file, mode=0o600) as temporary:
        save_file(arrays, str(temporary))


def _read_guesses(file: Path) -> Guesses:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        found = load_file(str(file))
        rows = zip(found["ids"], found["lengths"], strict=True)
        return Guesses([ids[:length] for ids, length in rows], found["clean"])
    except (SafetensorError, KeyError, ValueError) as error:
        raise DataFileError.of("Vec2TextAttack", "checkpoint", "a folder that this attack has written",
                               f"{file.name}, which cannot be read", fix="Remove that file.") from error  # fmt: skip


SCHEMA = "vecveil.vec2text/1"
_FILE = "vec2text.json"


@dataclass(eq=False)
class Vec2TextState:
    """A fitted attack.

    Attributes:
        hypothesiser: Writes the first guess.
        corrector: Makes it better, or None.
        ridge: From the encoder's vectors to released ones, where there was no oracle.
        clean: Dimension of the encoder's vectors.
        seed: Of the releases drawn while correcting.
        details: Numbers about the training.
    """

    hypothesiser: Writer
    corrector: Writer | None
    ridge: RidgeMap | None
    clean: int
    seed: int
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def dimension(self) -> int:
        """Dimension of the released vectors that it reads."""
        return len(self.hypothesiser.inputs.mean)

    def writers(self) -> Mapping[str, Writer]:
        """Return the networks by kind."""
        found = {HYPOTHESISER: self.hypothesiser}
        return found if self.corrector is None else {**found, CORRECTOR: self.corrector}

    def save(self, folder: Path) -> None:
        """Write the files; what was kept for going on with the training is removed after them."""
        torch = import_torch()
        record: dict[str, Any] = {
            "schema": SCHEMA,
            "clean": self.clean,
            "seed": self.seed,
            "details": self.details,
            "end": self.hypothesiser.language.tokeniser.end,
            "pad": self.hypothesiser.language.pad,
            "max_tokens": self.hypothesiser.language.max_tokens,
            "networks": {},
        }
        inputs, ridge = self.hypothesiser.inputs, self.ridge
        maps = {"inputs/mean": inputs.mean, "inputs/weights": inputs.weights}
        if ridge is not None:
            maps |= {f"ridge/{key}": getattr(ridge, key) for key in ("weights", "source", "target")}
        _write_tensors(
            folder, "maps", {k: torch.from_numpy(a.copy()).contiguous() for k, a in maps.items()}
        )
        for kind, writer in self.writers().items():
            _write_tensors(folder, kind, weights_of(writer.module))
            config = writer.module["encoder_decoder"].config.to_dict()
            record["networks"][kind] = {"shape": asdict(writer.shape), "t5": config}
        self.hypothesiser.language.tokeniser.save(folder)
        write_text(folder / _FILE, json.dumps(record, indent=1) + "\n")
        forget(folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Vec2TextState:
        """Return what `save` wrote.

        Raises:
            DataFileError: the folder does not hold it, or it is damaged.
        """
        folder = Path(folder)
        try:
            record = json.loads((folder / _FILE).read_text(encoding="utf-8"))
            if record["schema"] != SCHEMA:
                raise ValueError("another schema")
            return cls._of(record, folder)
        except MissingDependencyError:
            raise
        except Exception as error:  # safetensors, tokenizers and torch raise their own
            raise DataFileError(
                message("Vec2TextAttack", "checkpoint", "a folder that this attack has written",
                        f"{folder.name}, which cannot be read as one",
                        fix="For weights of the vec2text package give a PublishedCheckpoint.")
            ) from error  # fmt: skip

    @classmethod
    def _of(cls, record: Mapping[str, Any], folder: Path) -> Vec2TextState:
        maps = {key: tensor.numpy() for key, tensor in _read_tensors(folder, "maps").items()}
        inputs = InputMap(maps["inputs/mean"], maps["inputs/weights"])
        ridge = None
        if "ridge/weights" in maps:
            ridge = RidgeMap(*(maps[f"ridge/{key}"] for key in ("weights", "source", "target")))
        tokeniser = Tokeniser.load(folder, record["end"])
        language = Language(tokeniser, record["pad"], record["max_tokens"])
        found: dict[str, Writer] = {}
        for kind, network in record["networks"].items():
            shape = T5Shape(**network["shape"])
            module = build(shape, seed=0, config=_config(network["t5"]))
            load_weights(module, _read_tensors(folder, kind))
            found[kind] = Writer(module.eval(), shape, language, inputs)
        return cls(
            found[HYPOTHESISER], found.get(CORRECTOR), ridge,
            record["clean"], record["seed"], record["details"],
        )  # fmt: skip


def _config(record: Mapping[str, Any]) -> Any:
    given = dict(record)
    if given.get("scale_decoder_outputs") is False:  # transformers 5 reads it off this one only
        given["tie_word_embeddings"] = False
    return import_transformers().T5Config.from_dict(given)


def _write_tensors(folder: Path, name: str, tensors: Mapping[str, Any]) -> None:
    from safetensors.torch import save_file

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with atomic_path(folder / f"{name}.safetensors", mode=0o600) as temporary:
        save_file(dict(tensors), str(temporary))


def _read_tensors(folder: Path, name: str) -> dict[str, Any]:
    from safetensors.torch import load_file

    found: dict[str, Any] = load_file(str(folder / f"{name}.safetensors"))
    return found
