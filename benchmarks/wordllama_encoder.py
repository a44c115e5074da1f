"""Write WordLlama (256 dimensions, means of static token vectors) as a folder for sentence-transformers.

pip install wordllama
python benchmarks/wordllama_encoder.py FOLDER    # then `wordllama: FOLDER` in the specification of `encoders`
"""

from __future__ import annotations

import importlib.resources
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Normalize, StaticEmbedding
from tokenizers import Tokenizer

CHECK = ["A man is playing a guitar.", "The stock fell 3 % on Monday.", "naïve café"]


def main(folder: Path) -> None:
    package = importlib.resources.files("wordllama")
    with importlib.resources.as_file(package / "weights" / "l2_supercat_256.safetensors") as path:
        (weights,) = load_file(path).values()
    with importlib.resources.as_file(package / "tokenizers" / "l2_supercat_tokenizer_config.json") as path:
        tokenizer = Tokenizer.from_file(str(path))
    tokens = StaticEmbedding(tokenizer, embedding_weights=weights.astype(np.float32))
    model = SentenceTransformer(modules=[tokens, Normalize()], device="cpu")
    model.save(str(folder))

    from wordllama.inference import WordLlamaInference

    ours = model.encode(CHECK)  # before the package makes the tokenizer pad
    theirs = WordLlamaInference(weights.astype(np.float32), tokenizer).embed(CHECK, norm=True)
    cosines = (ours * theirs).sum(1)
    assert cosines.min() > 0.9999, cosines
    print(f"{folder}: cosine to the package at least {cosines.min():.6f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
