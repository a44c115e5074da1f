"""Small models with the architecture, files and names of the papers': GTR-base, Sentence-T5 and Vec2Text's networks."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

DIMENSION, HIDDEN, REPEAT, WIDTH = 20, 20, 3, 16


def t5_folder(folder: Path, texts: Sequence[str], vocabulary: int = 300) -> Any:
    """Write a small T5's configuration and tokeniser, as a hub has them: pad 0, end 1. Return the configuration."""
    import tokenizers
    import transformers

    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<pad>", "</s>", "<unk>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    fast.save_pretrained(folder)
    config = transformers.T5Config(
        vocab_size=vocabulary + 4,
        d_model=WIDTH,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=2,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    config.save_pretrained(folder)
    return config


def sentence_t5(folder: Path, texts: Sequence[str], *, seed: int) -> Path:
    """Save an encoder as GTR-base and Sentence-T5 are: encoder of a T5, mean, linear layer, unit length.

    Its dimension is `DIMENSION`.
    """
    import transformers
    from sentence_transformers import SentenceTransformer

    try:  # moved in version 6
        models = importlib.import_module("sentence_transformers.sentence_transformer.modules")
    except ModuleNotFoundError:
        models = importlib.import_module("sentence_transformers.models")
    transformer = folder.with_name(f"{folder.name}-transformer")
    transformer.mkdir(parents=True)
    config = t5_folder(transformer, texts, vocabulary=400)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        transformers.T5EncoderModel(config).save_pretrained(transformer)
        dense = models.Dense(WIDTH, DIMENSION, bias=False, activation_function=torch.nn.Identity())
        modules = [
            models.Transformer(str(transformer), max_seq_length=24),
            models.Pooling(WIDTH, pooling_mode="mean"),
            dense,
            models.Normalize(),
        ]
        SentenceTransformer(modules=modules, device="cpu").save(str(folder))
    return folder


def published_weights(config: Any, kind: str, seed: int) -> tuple[dict[str, Any], Any]:
    """Return the state dict of the published package, with the names that its modules give, and its T5."""
    import transformers

    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        t5 = transformers.T5ForConditionalGeneration(config)
    weights = {f"encoder_decoder.{key}": w.clone() for key, w in t5.state_dict().items()}

    def random(*shape: int) -> Any:
        return torch.randn(shape, generator=generator) / 4

    names = ["embedding_transform"]
    if kind == "corrector":
        names = [f"embedding_transform_{i}" for i in (1, 2, 3)]
        weights["layernorm.weight"] = 1 + random(WIDTH)
        weights["layernorm.bias"] = random(WIDTH)
    else:
        weights["embedder.encoder.block.0.layer.0.weight"] = random(3, 3)
    for name in names:
        weights[f"{name}.0.weight"] = random(HIDDEN, DIMENSION)
        weights[f"{name}.0.bias"] = random(HIDDEN)
        weights[f"{name}.3.weight"] = random(WIDTH * REPEAT, HIDDEN)
        weights[f"{name}.3.bias"] = random(WIDTH * REPEAT)
    return weights, t5.eval()


def checkpoint_folder(
    parent: Path, t5: tuple[Any, Any], kind: str, weights: dict[str, Any], layout: str = "safetensors"
) -> Path:
    """Write the files of a published checkpoint to ``parent / kind``; ``t5`` starts with the name of its T5."""
    folder = parent / kind
    folder.mkdir(parents=True)
    record = {"model_name_or_path": str(t5[0]), "num_repeat_tokens": REPEAT, "max_seq_length": 32}
    (folder / "config.json").write_text(json.dumps(record))
    if layout == "bin":
        torch.save(weights, folder / "pytorch_model.bin")
    elif layout == "shards":
        keys = sorted(weights)
        where: dict[str, str] = {}
        for i, some in enumerate((keys[::2], keys[1::2])):
            name = f"model-0000{i}-of-00002.safetensors"
            save_file({key: weights[key].clone() for key in some}, folder / name)
            where |= dict.fromkeys(some, name)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    else:
        save_file({key: w.clone() for key, w in weights.items()}, folder / "model.safetensors")
    return folder
