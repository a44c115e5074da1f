"""Training of Vec2Text's hypothesiser and corrector, and the folder that keeps them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.reconstruction.tokenisers import Ids, Tokeniser, import_transformers
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
    TextBatches,
    TrainingRecipe,
    fit_model,
    forget_training,
    load_tensors,
    load_weights,
    mean_loss,
    padded,
    rows_by_length,
    save_tensors,
    weights_of,
)
from vecveil.errors import DataFileError, MissingDependencyError
from vecveil.io import atomic_path, write_text
from vecveil.runtime import import_torch

__all__ = ["Guesses", "Vec2TextState", "train_writer", "write_guesses"]

Array = npt.NDArray[Any]

SCHEMA = "vecveil.vec2text/1"
_FILE = "vec2text.json"


@dataclass(frozen=True, eq=False)
class Guesses:
    """The hypothesiser's guess for each text: its tokens, and the (N, n) clean vectors of the guesses."""

    ids: list[Ids]
    clean: Array


def train_writer(
    writer: Writer,
    inputs_of: Callable[[np.random.Generator], Mapping[str, Array]],
    texts: tuple[Sequence[Ids], Sequence[Ids]],
    held: Mapping[str, Array],
    recipe: TrainingRecipe,
    *,
    guesses: tuple[Guesses, Guesses] | None = None,
    seed: int,
    folder: Path | None,
    show_progress: bool | None,
) -> Fit:
    """Train the writer's network in place.

    Args:
        inputs_of: Returns the inputs of an epoch: ``target`` and, for a corrector, ``guess``.
        texts: Tokens of the training and of the validation texts.
        held: Inputs of the validation texts.
        seed: Of all randomness.
    """
    own = others = None
    if guesses is not None:
        own, others = ((each.ids, writer.language.pad) for each in guesses)

    def epoch_batches(epoch: int, rng: np.random.Generator) -> TextBatches:
        inputs = inputs_of(rng)
        return TextBatches(rows_by_length(texts[0], recipe.batch, rng), texts[0], inputs, own)

    # Validation batches and inputs are fixed, so that losses of epochs can be compared.
    rows = np.split(np.arange(len(texts[1])), range(recipe.batch, len(texts[1]), recipe.batch))
    validation = TextBatches(rows, texts[1], held, others)
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
    writer: Writer, targets: Array, space: Space, *, folder: Path | None, name: str
) -> Guesses:
    """Return the hypothesiser's guess for each target, from ``folder`` if it holds them."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file, save_file

    # Decoding every training text is slow: an interrupted fit keeps the guesses.
    file = None if folder is None else folder / f"guesses-{name}.safetensors"
    if file is not None and file.is_file():
        try:
            arrays = load_file(str(file))
            rows = zip(arrays["ids"], arrays["lengths"], strict=True)
            return Guesses([ids[:length] for ids, length in rows], arrays["clean"])
        except (SafetensorError, KeyError, ValueError) as error:
            got = f"{file.name}, which cannot be read"
            raise _state_error(got, "Remove that file.") from error
    # Greedy decoding: the corrector learns from one guess for each text.
    texts = [guess[0] for guess in writer.guess(targets)]
    guesses = Guesses(writer.language.guess_ids(texts), space.clean(texts))
    if file is not None:
        # The lengths restore the rows: 0 is a token, too.
        ids, lengths = padded(guesses.ids, fill=0)
        clean = np.ascontiguousarray(guesses.clean)
        with atomic_path(file, mode=0o600) as temporary:
            save_file({"ids": ids, "lengths": lengths, "clean": clean}, str(temporary))
    return guesses


@dataclass(eq=False)
class Vec2TextState:
    """A fitted attack, saved as safetensors, JSON and ``tokenizer.json``.

    Attributes:
        ridge: From the encoder's vectors to released ones, if there was no oracle.
        clean: Dimension of the encoder's vectors.
        seed: Of the releases drawn while correcting.
    """

    hypothesiser: Writer
    corrector: Writer | None
    ridge: RidgeMap | None
    clean: int
    seed: int
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def dimension(self) -> int:
        """Return the dimension of the released vectors that it reads."""
        return len(self.hypothesiser.inputs.mean)

    def writers(self) -> Mapping[str, Writer]:
        """Return the networks by kind."""
        first = {HYPOTHESISER: self.hypothesiser}
        return first if self.corrector is None else {**first, CORRECTOR: self.corrector}

    def save(self, folder: Path) -> None:
        """Write the files; the checkpoints of the training are removed after them."""
        torch = import_torch()
        language = self.hypothesiser.language
        record: dict[str, Any] = {
            "schema": SCHEMA,
            "clean": self.clean,
            "seed": self.seed,
            "details": self.details,
            "end": language.tokeniser.end,
            "pad": language.pad,
            "max_tokens": language.max_tokens,
            "networks": {},
        }
        inputs, ridge = self.hypothesiser.inputs, self.ridge
        maps = {"inputs/mean": inputs.mean, "inputs/weights": inputs.weights}
        if ridge is not None:
            maps |= {f"ridge/{key}": getattr(ridge, key) for key in ("weights", "source", "target")}
        tensors = {key: torch.from_numpy(a.copy()).contiguous() for key, a in maps.items()}
        save_tensors(folder / "maps.safetensors", tensors)
        for kind, writer in self.writers().items():
            save_tensors(folder / f"{kind}.safetensors", weights_of(writer.module))
            config = writer.module["encoder_decoder"].config.to_dict()
            record["networks"][kind] = {"shape": asdict(writer.shape), "t5": config}
        language.tokeniser.save(folder)
        # The record last: only a complete state may replace the files of the training.
        write_text(folder / _FILE, json.dumps(record, indent=1) + "\n")
        for kind in (HYPOTHESISER, CORRECTOR):
            forget_training(folder, kind)
        for file in folder.glob("guesses-*.safetensors"):
            file.unlink()

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Vec2TextState:
        """Return the state that `save` wrote; raise `DataFileError` if the folder holds none."""
        folder = Path(folder)
        try:
            record = json.loads((folder / _FILE).read_text(encoding="utf-8"))
            if record["schema"] != SCHEMA:
                raise ValueError("another schema")
            return cls._of(record, folder)
        except MissingDependencyError:
            raise
        except Exception as error:  # torch and others raise their own types
            fix = "For weights of the vec2text package give a PublishedCheckpoint."
            raise _state_error(f"{folder.name}, which cannot be read as one", fix) from error

    @classmethod
    def _of(cls, record: Mapping[str, Any], folder: Path) -> Vec2TextState:
        maps = {k: t.numpy() for k, t in load_tensors(folder / "maps.safetensors").items()}
        inputs = InputMap(maps["inputs/mean"], maps["inputs/weights"])
        ridge = None
        if "ridge/weights" in maps:
            ridge = RidgeMap(*(maps[f"ridge/{key}"] for key in ("weights", "source", "target")))
        tokeniser = Tokeniser.load(folder, record["end"])
        language = Language(tokeniser, record["pad"], record["max_tokens"])
        writers: dict[str, Writer] = {}
        for kind, network in record["networks"].items():
            shape = T5Shape(**network["shape"])
            config = dict(network["t5"])
            if config.get("scale_decoder_outputs") is False:
                # transformers 5 reads the scaling off this value.
                config["tie_word_embeddings"] = False
            # The weights follow from the file, so the seed of the first ones is irrelevant.
            config = import_transformers().T5Config.from_dict(config)
            module = build(shape, seed=0, config=config)
            load_weights(module, load_tensors(folder / f"{kind}.safetensors"))
            writers[kind] = Writer(module.eval(), shape, language, inputs)
        return cls(
            writers[HYPOTHESISER], writers.get(CORRECTOR), ridge,
            record["clean"], record["seed"], record["details"],
        )  # fmt: skip


def _state_error(got: str, fix: str) -> DataFileError:
    constraint = "a folder that this attack has written"
    return DataFileError.of(
        "Vec2TextAttack", "checkpoint", constraint, got, fix=fix, code="E-CHECKPOINT"
    )
