"""A data folder with a corpus to train decoders on, an encoder for it, and decoders small enough for a test."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from harness.experiment_data import sentences, small_data

TINY = {
    "geia": (
        "{sentences: 500, epochs: 6, fine_tuning_epochs: 6, options: {layers: 1, width: 48, heads: 2, prefix: 2, "
        "hidden: 64, vocabulary: 400, max_tokens: 16, batch: 16, learning_rate: 0.004}}"
    ),
    "vec2text": (
        "{sentences: 60, epochs: 1, fine_tuning_epochs: 1, rounds: 1, beams: 2, texts: 40, options: {layers: 1, "
        "width: 16, repeat: 2, vocabulary: 300, max_tokens: 12, batch: 16}}"
    ),
}
"""Descriptions of decoders, as a specification holds them."""


def with_corpus(folder: Path) -> Path:
    """Write `small_data` and ``lm/sentences.parquet``, some of whose texts are the problem's own."""
    small_data(folder)
    own = pq.read_table(folder / "sts" / "sts12.parquet").to_pydict()["sentence1"][:20]
    texts = list(dict.fromkeys([*own, *(text.replace("The", "Every") for text in sentences(700, 7))]))
    (folder / "lm").mkdir()
    table = pa.table({"source": ["made"] * len(texts), "text": texts})
    pq.write_table(table, folder / "lm" / "sentences.parquet")
    return folder


def corpus_encoder(data: Path, folder: Path) -> Path:
    """Fit an LSA encoder on the sentences and the corpus, in which few texts are near copies; save it."""
    from vecveil.texts.encoders.lsa import LsaEncoder

    table = pq.read_table(data / "sts" / "sts12.parquet").to_pydict()
    corpus = pq.read_table(data / "lm" / "sentences.parquet").to_pydict()["text"]
    LsaEncoder.fit([*table["sentence1"], *table["sentence2"], *corpus], dimension=40).save(folder)
    return folder
