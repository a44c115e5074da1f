"""Encoders: from texts to vectors, by name, folder or object; checked, batched and cached on disk.

    encoder = load_encoder("minilm")
    vectors = encoder.encode(["a text", "another"])        # (2, 384) float32

Importing this package loads neither torch nor sentence-transformers; encoding does.

torch takes its number of threads from the process (``OMP_NUM_THREADS``, ``torch.set_num_threads``), and
nothing here changes it. With more runnable threads than cores torch becomes 10 to 30 times slower: give
each of several processes its share.
"""

from __future__ import annotations

from vecveil.texts.encoders.cache import CacheWarning, EmbeddingCache, default_cache_folder
from vecveil.texts.encoders.lsa import LsaEncoder
from vecveil.texts.encoders.text_encoder import Encoder, EncoderInfo, TextEncoder, as_text_encoder, load_encoder

__all__ = [
    "CacheWarning",
    "EmbeddingCache",
    "Encoder",
    "EncoderInfo",
    "LsaEncoder",
    "TextEncoder",
    "as_text_encoder",
    "default_cache_folder",
    "load_encoder",
]
