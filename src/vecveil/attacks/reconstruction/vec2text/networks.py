"""The networks of Vec2Text: a T5 that reads vectors as pseudo tokens and writes a text.

Parameters have the names of the published package (Morris et al. 2023), so that its checkpoints fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.reconstruction.tokenisers import Ids, Tokeniser, import_transformers, padded
from vecveil.attacks.release_model import InputMap
from vecveil.attacks.training import piece, rows_of, seeded
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
    """Projections of a network of ``kind`` hypothesiser or corrector.

    Attributes:
        inputs: Dimension of the vectors that it reads.
        repeat: Pseudo tokens that a vector is projected to.
        hidden: Units between the two layers of a projection.
    """

    kind: str
    inputs: int
    repeat: int
    hidden: int


def t5_config(vocabulary: int, *, width: int, layers: int, heads: int, end: int, pad: int) -> Any:
    """Return the configuration of a T5 to be trained from scratch: no dropout, one embedding table.

    Encoder and decoder have as many layers: transformers 5 cannot generate with a T5 where they differ.
    """
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

    Formula: Morris et al. 2023, section 3: the hypothesiser reads the vector as pseudo tokens; the corrector
    reads target, hypothesis, difference, and the hypothesis's tokens, an end token before each.
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
    """Texts as the networks read them; ``pad`` is the id that starts a text and pads it."""

    tokeniser: Tokeniser
    pad: int
    max_tokens: int

    def ids(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of each text, its end included."""
        return self.tokeniser.encode(texts, self.max_tokens)

    def guess_ids(self, texts: Sequence[str]) -> list[Ids]:
        """Return ids as a corrector reads them, with the start that a written text has."""
        return [np.concatenate([[self.pad], ids]) for ids in self.ids(texts)]

    def texts(self, rows: Iterable[Sequence[int]]) -> list[str]:
        """Return the text of each row of ids."""
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
