"""A GPT-2 that writes a text from a vector: the vector is projected into its input space as a prefix."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.features import InputMap
from vecveil.attacks.reconstruction.fitting import forget_training
from vecveil.attacks.reconstruction.models import load_weights, rows_by_length, seeded, weights_of
from vecveil.attacks.reconstruction.tokenisers import Ids, Tokeniser, import_transformers, padded
from vecveil.io import atomic_path, write_text
from vecveil.runtime import Batches, import_torch
from vecveil.types import Embeddings

__all__ = ["Decoder", "Shape", "TextBatches", "decoder_loss"]

Array = npt.NDArray[Any]
SCHEMA = "vecveil.decoder/1"


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a decoder.

    Attributes:
        layers: Transformer layers.
        width: Width of a layer.
        heads: Attention heads; they divide the width.
        prefix: Input tokens that the vector is projected to.
        hidden: Units between the two layers of the projection.
        hint: Whether a linear map of the vector also speaks to the output at every position.
        max_tokens: Longest text, in tokens.
    """

    layers: int
    width: int
    heads: int
    prefix: int
    hidden: int
    hint: bool
    max_tokens: int


class Decoder:
    """A decoder with its tokeniser and the map from released vectors to its inputs.

    Attributes:
        module: ``projection`` (two layers), ``hint`` (one linear layer, if any), ``lm`` (GPT2LMHeadModel).
        details: Numbers about its training, kept with it.
    """

    def __init__(
        self,
        module: Any,
        tokeniser: Tokeniser,
        inputs: InputMap,
        shape: Shape,
        details: Mapping[str, Any],
    ) -> None:
        """Keep the parts."""
        self.module, self.tokeniser, self.inputs, self.shape = module, tokeniser, inputs, shape
        self.details = dict(details)

    @classmethod
    def build(
        cls,
        tokeniser: Tokeniser,
        inputs: InputMap,
        shape: Shape,
        *,
        seed: int,
        model: str | None = None,
    ) -> Decoder:
        """Return an untrained decoder, or one whose GPT-2 is ``model`` (a hub's name, or a folder)."""
        transformers = import_transformers()
        with seeded(seed):
            if model is None:
                config = _config(tokeniser, shape)
                lm = transformers.GPT2LMHeadModel(transformers.GPT2Config(**config))
            else:
                lm = transformers.GPT2LMHeadModel.from_pretrained(model).float()
            module = _module(lm, inputs.weights.shape[1], shape)
        return cls(module, tokeniser, inputs, shape, {})

    @property
    def parameters(self) -> int:
        """Number of parameters, tied ones counted once."""
        return sum(int(p.numel()) for p in self.module.parameters())

    def write(self, Y: Embeddings, *, beams: int = 1, batch: int = 128) -> list[str]:
        """Return a text for each released vector: greedy with one beam, else beam search."""
        return self.write_inputs(self.inputs(Y), beams=beams, batch=batch)

    def write_inputs(self, x: Array, *, beams: int = 1, batch: int = 128) -> list[str]:
        """Return a text for each row of standardised inputs."""
        torch = import_torch()
        transformers = import_transformers()
        end = self.tokeniser.end
        how = transformers.GenerationConfig(
            max_new_tokens=self.shape.max_tokens, do_sample=False, num_beams=beams,
            bos_token_id=end, eos_token_id=end, pad_token_id=end,
        )  # fmt: skip
        device = next(self.module.parameters()).device
        self.module.eval()

        def work(start: int, stop: int) -> list[str]:
            given = torch.from_numpy(np.ascontiguousarray(x[start:stop])).to(device)
            prefix = _prefix(self.module, given)
            mask = torch.ones(prefix.shape[:2], dtype=torch.long, device=device)
            extra = None if "hint" not in self.module else _hint(self.module, given)
            ids = self.module["lm"].generate(
                inputs_embeds=prefix, attention_mask=mask, generation_config=how,
                logits_processor=[] if extra is None else [_adding(extra, beams)],
            )  # fmt: skip
            return self.tokeniser.decode(ids.tolist())

        with torch.no_grad():
            parts = Batches(batch).run(len(x), work)
        return [text for part in parts for text in part]

    def save(self, folder: Path) -> None:
        """Write ``decoder.safetensors``, ``tokenizer.json`` and, last, ``decoder.json``."""
        from safetensors.torch import save_file

        torch = import_torch()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tensors = weights_of(self.module)
        tensors["inputs/mean"] = torch.from_numpy(self.inputs.mean)
        tensors["inputs/weights"] = torch.from_numpy(self.inputs.weights).contiguous()
        with atomic_path(folder / "decoder.safetensors", mode=0o600) as temporary:
            save_file(tensors, str(temporary))
        self.tokeniser.save(folder)
        record = {
            "schema": SCHEMA,
            "shape": asdict(self.shape),
            "end": self.tokeniser.end,
            "gpt2": self.module["lm"].config.to_dict(),
            "details": self.details,
        }
        write_text(folder / "decoder.json", json.dumps(record, indent=1) + "\n")
        forget_training(folder, "decoder")

    @classmethod
    def load(cls, folder: Path, device: str = "cpu") -> Decoder:
        """Return the decoder in ``folder``."""
        from safetensors.torch import load_file

        record = json.loads((folder / "decoder.json").read_text(encoding="utf-8"))
        if record["schema"] != SCHEMA:
            raise ValueError("the decoder is of another schema")
        tensors = load_file(str(folder / "decoder.safetensors"))
        inputs = InputMap(*(tensors.pop(f"inputs/{key}").numpy() for key in ("mean", "weights")))
        shape = Shape(**record["shape"])
        tokeniser = Tokeniser.load(folder, record["end"])
        transformers = import_transformers()
        with seeded(0):
            lm = transformers.GPT2LMHeadModel(transformers.GPT2Config.from_dict(record["gpt2"]))
            module = _module(lm, inputs.weights.shape[1], shape)
        load_weights(module, tensors)
        return cls(module.to(device).eval(), tokeniser, inputs, shape, record["details"])


class TextBatches(Sequence[Mapping[str, Array]]):
    """The batches of an epoch, put together when they are asked for."""

    def __init__(self, x: Array, ids: Sequence[Ids], rows: Sequence[npt.NDArray[np.intp]]) -> None:
        """Keep inputs (N, r), the tokens of N texts, and the rows of each batch."""
        self.x, self.ids, self.rows = x, ids, rows

    @classmethod
    def shuffled(
        cls, x: Array, ids: Sequence[Ids], batch: int, rng: np.random.Generator
    ) -> TextBatches:
        """Return batches of texts of like length, in random order."""
        lengths = np.array([len(one) for one in ids])
        return cls(x, ids, rows_by_length(lengths, batch, rng))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        rows = self.rows[index]
        ids, lengths = padded([self.ids[i] for i in rows], fill=0)
        return {"inputs": self.x[rows], "ids": ids, "lengths": lengths}


def decoder_loss(module: Any, part: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the summed cross-entropy of the texts' tokens, ends included, and their number."""
    torch = import_torch()
    lm, ids = module["lm"], part["ids"]
    prefix = _prefix(module, part["inputs"])
    tokens = lm.transformer.wte(ids[:, :-1])
    read = torch.cat([prefix, tokens], dim=1)
    # Texts are filled up on the right: the causal mask alone keeps what is filled in out of sight.
    hidden = lm.transformer(inputs_embeds=read, use_cache=False).last_hidden_state
    hidden = hidden[:, prefix.shape[1] - 1 :]
    real = torch.arange(ids.shape[1], device=ids.device) < part["lengths"][:, None]
    if "hint" in module:
        hidden = hidden + module["hint"](part["inputs"])[:, None]
    logits = lm.lm_head(hidden[real])
    loss = torch.nn.functional.cross_entropy(logits.float(), ids[real], reduction="sum")
    return loss, part["lengths"].sum()


def _config(tokeniser: Tokeniser, shape: Shape) -> dict[str, Any]:
    return {
        "vocab_size": tokeniser.size,
        "n_positions": shape.prefix + shape.max_tokens,
        "n_embd": shape.width,
        "n_layer": shape.layers,
        "n_head": shape.heads,
        "activation_function": "gelu_pytorch_tanh",  # gelu_new as one operation
        "bos_token_id": tokeniser.end,
        "eos_token_id": tokeniser.end,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    }


def _module(lm: Any, inputs: int, shape: Shape) -> Any:
    nn = import_torch().nn
    width = lm.config.n_embd
    first, second = nn.Linear(inputs, shape.hidden), nn.Linear(shape.hidden, shape.prefix * width)
    parts = {"projection": nn.Sequential(first, nn.GELU(), second), "lm": lm}
    if shape.hint:
        parts["hint"] = nn.Linear(inputs, width)
        nn.init.zeros_(parts["hint"].weight)
        nn.init.zeros_(parts["hint"].bias)
    return nn.ModuleDict(parts)


def _prefix(module: Any, x: Any) -> Any:
    return module["projection"](x).view(len(x), -1, module["lm"].config.n_embd)


def _hint(module: Any, x: Any) -> Any:
    return module["lm"].lm_head(module["hint"](x))


def _adding(extra: Any, beams: int) -> Callable[[Any, Any], Any]:
    repeated = extra.repeat_interleave(beams, dim=0)

    def add(ids: Any, scores: Any) -> Any:
        # Beam search comes with log probabilities, which must stay normalised.
        return (scores + repeated).log_softmax(dim=-1)

    return add
