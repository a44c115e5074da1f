"""Read checkpoints of the published vec2text package into our networks, without running code in them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vecveil.attacks.reconstruction.tokenisers import Tokeniser, import_transformers
from vecveil.attacks.reconstruction.vec2text.networks import CORRECTOR, HYPOTHESISER, PROJECTIONS, T5Shape, build
from vecveil.attacks.training import load_tensors, load_weights
from vecveil.errors import DataFileError
from vecveil.runtime import import_torch

_TABLES = ("shared", "encoder.embed_tokens", "decoder.embed_tokens", "lm_head")  # one tied matrix
_KINDS = ("layernorm.", "encoder_decoder.", "embedding_transform")
# Older checkpoints of the corrector have one projection for all three vectors.
_SHARED = "embedding_transform."


@dataclass(frozen=True)
class PublishedCheckpoint:
    """Folders of published weights, such as ``jxm/gtr__nq__32`` and ``jxm/gtr__nq__32__correct``.

    Those two were trained for the mean-pooled last hidden states of the encoder of GTR-base (768 dimensions, not
    normalised, 32 tokens at most); ``encode`` must return the same vectors. The pair
    ``ielabgroup/vec2text_gtr-base-st_inversion`` and ``..._corrector`` was trained for GTR-base as
    sentence-transformers encodes.

    Attributes:
        hypothesiser: Folder with ``config.json`` and ``model.safetensors`` (or its shards, or ``pytorch_model.bin``,
            which is read as weights only).
        corrector: The same of the corrector, or None.
        t5: Folder, or name at a hub, of the T5 that they were trained from: its configuration and its
            tokeniser. None takes the name in ``config.json``.
    """

    hypothesiser: str | os.PathLike[str]
    corrector: str | os.PathLike[str] | None = None
    t5: str | os.PathLike[str] | None = None


def read_published(given: PublishedCheckpoint) -> tuple[Tokeniser, dict[str, tuple[Any, T5Shape]]]:
    """Return the tokeniser, and network and shape by kind; raise `DataFileError` for another folder."""
    folders = {HYPOTHESISER: given.hypothesiser, CORRECTOR: given.corrector}
    networks: dict[str, tuple[Any, T5Shape]] = {}
    name: str | None = None
    for kind, folder in folders.items():
        if folder is None:
            continue
        record, weights = _read(Path(folder), kind)
        name = os.fspath(given.t5) if given.t5 is not None else str(record["model_name_or_path"])
        config = import_transformers().T5Config.from_pretrained(name)
        try:
            networks[kind] = _network(kind, config, record, weights)
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise _refusal(kind, "weights that do not fit its configuration and the T5") from error
    assert name is not None  # there is always a hypothesiser
    return Tokeniser.pretrained(name), networks


def _network(kind: str, config: Any, record: Mapping[str, Any], weights: dict[str, Any]) -> tuple[Any, T5Shape]:
    tables = [w for t in _TABLES if (w := weights.pop(f"encoder_decoder.{t}.weight", None)) is not None]
    # The tables may be padded beyond the tokens of the T5's configuration.
    weights["encoder_decoder.shared.weight"] = tables[0]
    if len(tables[0]) != config.vocab_size:
        config.vocab_size = len(tables[0])
    if kind == CORRECTOR:
        for key in [key for key in weights if key.startswith(_SHARED)]:
            tensor = weights.pop(key)
            for projection in PROJECTIONS[CORRECTOR]:
                weights[f"{projection}.{key.removeprefix(_SHARED)}"] = tensor
    first = weights[f"{PROJECTIONS[kind][0]}.0.weight"]
    last = weights[f"{PROJECTIONS[kind][0]}.3.weight"]
    repeat = int(record.get("num_repeat_tokens", last.shape[0] // config.d_model))
    shape = T5Shape(kind, int(first.shape[1]), repeat, int(first.shape[0]))
    module = build(shape, seed=0, config=config)
    own = dict(module.named_parameters())
    load_weights(module, {key: tensor for key, tensor in weights.items() if key in own})
    return module.eval(), shape


def _read(folder: Path, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the configuration and the weights that are the network's own, in float32."""
    torch = import_torch()
    try:
        record = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        weights: dict[str, Any] = {}
        for file in _files(folder):
            if file.suffix == ".safetensors":
                weights |= load_tensors(file)
            else:
                _refuse_old(torch.__version__, kind)
                weights |= torch.load(str(file), map_location="cpu", weights_only=True)
    except DataFileError:
        raise
    except Exception as error:  # safetensors, pickle and torch raise their own exception types
        raise _refusal(kind, "files that cannot be read as one") from error
    # The hypothesiser's file holds the embedder's weights as well.
    return record, {k: w.float() for k, w in weights.items() if k.startswith(_KINDS)}


def _refuse_old(version: str, kind: str) -> None:
    """Refuse PyTorch before 2.6: there ``weights_only`` could be made to run code (CVE-2025-32434)."""
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < (2, 6):
        got = f"pytorch_model.bin, which PyTorch {version[:20]} is too old to read safely"
        raise _refusal(kind, got)


def _files(folder: Path) -> list[Path]:
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            listed = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
            # File names only: an index must not point outside of the folder.
            return [folder / Path(name).name for name in sorted(set(listed))]
    raise FileNotFoundError("model.safetensors")


def _refusal(kind: str, got: str) -> DataFileError:
    return DataFileError(f"{kind} names no checkpoint of the vec2text package: {got}.", code="E-CHECKPOINT", param=kind)
