"""The networks of Vec2Text: a T5 takes vectors as pseudo tokens and writes a text; published checkpoints of it.

Parameters have the names of the published package (Morris et al. 2023), to fit its checkpoints. Opening one runs no
code in it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.auditing.attacks.reconstruction.base import Ids, Tokeniser, import_transformers, padded
from vecveil.auditing.attacks.release_model import InputMap
from vecveil.errors import DataFileError
from vecveil.privacy.training import load_tensors, load_weights, piece, rows_of, seeded
from vecveil.runtime import Batches, import_torch

Array = npt.NDArray[Any]

HYPOTHESISER, CORRECTOR = "hypothesiser", "corrector"
PROJECTIONS = {
    HYPOTHESISER: ("embedding_transform",),
    # of the target, of the difference target - hypothesis, of the hypothesis
    CORRECTOR: ("embedding_transform_1", "embedding_transform_2", "embedding_transform_3"),
}
_IGNORED = -100  # label of padding


@dataclass(frozen=True, slots=True)
class T5Shape:
    """Projections of a hypothesiser or corrector: input dimension, pseudo tokens per vector, hidden units."""

    kind: str
    inputs: int
    repeat: int
    hidden: int


def t5_config(vocabulary: int, *, width: int, layers: int, heads: int, end: int, pad: int) -> Any:
    """Return the configuration of a T5 to be trained from scratch: no dropout, one embedding table, equal depths."""
    return import_transformers().T5Config(
        vocab_size=vocabulary,
        d_model=width,
        d_kv=width // heads,
        d_ff=4 * width,
        num_layers=layers,
        num_heads=heads,
        dropout_rate=0.0,
        eos_token_id=end,
        pad_token_id=pad,
        decoder_start_token_id=pad,
    )


def build(shape: T5Shape, *, seed: int, config: Any = None, model: str | None = None) -> Any:
    """Return an untrained network around a T5: of random weights by ``config``, or the pretrained ``model``."""
    nn, T5 = import_torch().nn, import_transformers().T5ForConditionalGeneration
    with seeded(seed):
        t5 = T5(config) if model is None else T5.from_pretrained(model).float()
        parts = {"encoder_decoder": t5}
        for name in PROJECTIONS[shape.kind]:
            parts[name] = nn.Sequential(
                nn.Linear(shape.inputs, shape.hidden),
                nn.Dropout(t5.config.dropout_rate),
                nn.GELU(),
                nn.Linear(shape.hidden, shape.repeat * t5.config.d_model),
            )
        if shape.kind == CORRECTOR:
            parts["layernorm"] = nn.LayerNorm(t5.config.d_model)
    return nn.ModuleDict(parts)


def sequence_loss(module: Any, part: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the summed cross-entropy of the texts' tokens, ends included, and their number."""
    loss = import_torch().nn.functional.cross_entropy(
        logits_of(module, part).float().flatten(0, 1), _labels(part).flatten(), reduction="sum", ignore_index=_IGNORED
    )
    return loss, part["lengths"].sum()


def logits_of(module: Any, part: Mapping[str, Any]) -> Any:
    """Return the logits of each token of the texts ``ids``, given the tokens before it, (B, L, V).

    Args:
        part: ``target`` (B, r); for a corrector also ``guess`` (B, r), its vector, and ``guess_ids`` (B, K), its
            tokens, padded; ``ids`` (B, L) and ``lengths`` (B,) of the texts.
    """
    read, mask = _read(module, part)
    t5, labels = module["encoder_decoder"], _labels(part)
    return t5(inputs_embeds=read, attention_mask=mask, labels=labels, use_cache=False).logits


def write_ids(module: Any, batch: Mapping[str, Array], *, beam: int, max_tokens: int) -> list[list[list[int]]]:
    """Return ``beam`` texts as ids for each row of ``batch``, the likeliest first; greedy with one."""
    t5 = module["encoder_decoder"]
    settings = import_transformers().GenerationConfig(
        max_new_tokens=max_tokens,
        do_sample=False,
        num_beams=beam,
        num_return_sequences=beam,
        eos_token_id=t5.config.eos_token_id,
        pad_token_id=t5.config.pad_token_id,
        decoder_start_token_id=t5.config.decoder_start_token_id,
    )
    device = next(module.parameters()).device
    module.eval()

    def work(start: int, stop: int) -> list[list[list[int]]]:
        read, mask = _read(module, piece(batch, start, stop, device))
        ids = t5.generate(inputs_embeds=read, attention_mask=mask, generation_config=settings)
        listed = ids[:, 1:].tolist()  # without the start
        return [listed[i : i + beam] for i in range(0, len(listed), beam)]

    with import_torch().no_grad():  # beams multiply the rows that the decoder holds
        rows = 256 if device.type == "cpu" else 2048
        parts = Batches(max(1, rows // beam)).run(rows_of(batch), work)
    return [row for part in parts for row in part]


def _labels(part: Mapping[str, Any]) -> Any:
    ids = part["ids"]
    real = import_torch().arange(ids.shape[1], device=ids.device) < part["lengths"][:, None]
    return ids.masked_fill(~real, _IGNORED)


def _read(module: Any, part: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the encoder's input, (B, S, d), and its mask.

    Morris et al. 2023, section 3: the hypothesiser takes the vector as pseudo tokens; the corrector takes target,
    hypothesis, difference, and the hypothesis's tokens, an end token before each.
    """
    torch = import_torch()
    target = part["target"]
    if "embedding_transform" in module:
        read = _project(module, "embedding_transform", target)
        return read, torch.ones(read.shape[:2], dtype=torch.long, device=read.device)
    t5, guess, ids = module["encoder_decoder"], part["guess"], part["guess_ids"]
    given = [
        _project(module, "embedding_transform_1", target),
        _project(module, "embedding_transform_3", guess),
        _project(module, "embedding_transform_2", target - guess),
        t5.shared(ids),
    ]
    end = t5.shared(torch.full_like(ids[:, :1], t5.config.eos_token_id))
    read = module["layernorm"](torch.cat([x for block in given for x in (end, block)], dim=1))
    vectors = torch.ones(len(ids), read.shape[1] - ids.shape[1], dtype=torch.long)
    # The start token of a hypothesis is masked like its padding: both are pads.
    mask = torch.cat([vectors.to(ids.device), (ids != t5.config.pad_token_id).long()], dim=1)
    return read, mask


def _project(module: Any, name: str, vectors: Any) -> Any:
    width = module["encoder_decoder"].config.d_model
    return module[name](vectors).view(len(vectors), -1, width)


@dataclass(frozen=True, eq=False)
class Language:
    """Texts as the networks' token ids; ``pad`` is the id that starts a text and pads it."""

    tokeniser: Tokeniser
    pad: int
    max_tokens: int

    def ids(self, texts: Sequence[str]) -> list[Ids]:
        return self.tokeniser.encode(texts, self.max_tokens)

    def guess_ids(self, texts: Sequence[str]) -> list[Ids]:
        """Return ids as inputs of a corrector, with the start that a written text has."""
        return [np.concatenate([[self.pad], ids]) for ids in self.ids(texts)]

    def texts(self, rows: Iterable[Sequence[int]]) -> list[str]:
        return self.tokeniser.decode([[i for i in row if i != self.pad] for row in rows])


@dataclass(frozen=True, eq=False)
class Writer:
    """A hypothesiser or a corrector; ``inputs`` maps released vectors to the network's inputs."""

    module: Any
    shape: T5Shape
    language: Language
    inputs: InputMap

    def guess(self, targets: Array, *, beam: int = 1) -> list[list[str]]:
        """Return ``beam`` texts for each released vector, the likeliest first."""
        return self._write({"target": self.inputs(targets)}, beam)

    def propose(self, targets: Array, texts: Sequence[str], vectors: Array, *, beam: int = 1) -> list[list[str]]:
        """Return ``beam`` better texts for each target, given a text and that text's vector."""
        ids, _ = padded(self.language.guess_ids(texts), fill=self.language.pad)
        batch: dict[str, Array] = {"target": self.inputs(targets), "guess": self.inputs(vectors), "guess_ids": ids}
        return self._write(batch, beam)

    def _write(self, batch: Mapping[str, Array], beam: int) -> list[list[str]]:
        rows = write_ids(self.module, batch, beam=beam, max_tokens=self.language.max_tokens)
        texts = iter(self.language.texts(ids for row in rows for ids in row))
        return [[next(texts) for _ in row] for row in rows]


_TABLES = ("shared", "encoder.embed_tokens", "decoder.embed_tokens", "lm_head")  # one tied matrix
_KINDS = ("layernorm.", "encoder_decoder.", "embedding_transform")
# Older checkpoints of the corrector have one projection for all three vectors.
_SHARED = "embedding_transform."


@dataclass(frozen=True)
class PublishedCheckpoint:
    """Folders of published weights, such as ``jxm/gtr__nq__32`` and ``jxm/gtr__nq__32__correct``.

    Those two were trained for the mean-pooled last hidden states of the encoder of GTR-base (768 dimensions, not
    normalised, at most 32 tokens); ``encode`` must return the same vectors. The pair
    ``ielabgroup/vec2text_gtr-base-st_inversion`` and ``..._corrector`` was trained for GTR-base as
    sentence-transformers encodes.

    Attributes:
        hypothesiser: Folder with ``config.json`` and ``model.safetensors`` (or its shards, or ``pytorch_model.bin``,
            loaded as weights only).
        corrector: The same of the corrector, or None.
        t5: Folder, or name at a hub, of the T5 that they were trained from, for its configuration and tokeniser. None
            takes the name in ``config.json``.
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
        record, weights = _read_folder(Path(folder), kind)
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


def _read_folder(folder: Path, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
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
    # The hypothesiser's file contains the embedder's weights as well.
    return record, {k: w.float() for k, w in weights.items() if k.startswith(_KINDS)}


def _refuse_old(version: str, kind: str) -> None:
    """Raise for PyTorch before 2.6, where ``weights_only`` could be made to run code (CVE-2025-32434)."""
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
