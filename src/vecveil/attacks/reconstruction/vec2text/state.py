"""What Vec2Text has learnt, and how it is kept: safetensors, JSON and ``tokenizer.json``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vecveil.attacks.features import InputMap
from vecveil.attacks.reconstruction.models import load_weights, weights_of
from vecveil.attacks.reconstruction.tokenisers import Tokeniser, import_transformers
from vecveil.attacks.reconstruction.vec2text.networks import CORRECTOR, HYPOTHESISER, Shape, build
from vecveil.attacks.reconstruction.vec2text.space import RidgeMap
from vecveil.attacks.reconstruction.vec2text.training import forget
from vecveil.attacks.reconstruction.vec2text.writer import Language, Writer
from vecveil.errors import DataFileError, MissingDependencyError, message
from vecveil.io import atomic_path, write_text
from vecveil.runtime import import_torch

__all__ = ["Vec2TextState"]

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
        _write(
            folder, "maps", {k: torch.from_numpy(a.copy()).contiguous() for k, a in maps.items()}
        )
        for kind, writer in self.writers().items():
            _write(folder, kind, weights_of(writer.module))
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
        maps = {key: tensor.numpy() for key, tensor in _read(folder, "maps").items()}
        inputs = InputMap(maps["inputs/mean"], maps["inputs/weights"])
        ridge = None
        if "ridge/weights" in maps:
            ridge = RidgeMap(*(maps[f"ridge/{key}"] for key in ("weights", "source", "target")))
        tokeniser = Tokeniser.load(folder, record["end"])
        language = Language(tokeniser, record["pad"], record["max_tokens"])
        found: dict[str, Writer] = {}
        for kind, network in record["networks"].items():
            shape = Shape(**network["shape"])
            module = build(shape, seed=0, config=_config(network["t5"]))
            load_weights(module, _read(folder, kind))
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


def _write(folder: Path, name: str, tensors: Mapping[str, Any]) -> None:
    from safetensors.torch import save_file

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with atomic_path(folder / f"{name}.safetensors", mode=0o600) as temporary:
        save_file(dict(tensors), str(temporary))


def _read(folder: Path, name: str) -> dict[str, Any]:
    from safetensors.torch import load_file

    found: dict[str, Any] = load_file(str(folder / f"{name}.safetensors"))
    return found
