"""What tests of experiments share: one small data folder and an encoder for it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.experiment_data import lsa_folder, sentences, small_data, write_jsonl


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small STS set and a list of terms."""
    return small_data(tmp_path_factory.mktemp("data") / "sets")


@pytest.fixture(scope="session")
def encoder(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an encoder fitted on the texts of ``data``."""
    return lsa_folder(data, tmp_path_factory.mktemp("encoder") / "lsa")


@pytest.fixture
def searched(data: Path, tmp_path: Path) -> Path:
    """The small data with a collection of 120 documents, 12 queries and 150 sentences."""
    folder = shutil.copytree(data, tmp_path / "data")
    own = folder / "retrieval" / "cranfield"
    texts = list(dict.fromkeys(sentences(300, 4)))[:120]
    write_jsonl(own / "corpus.jsonl.gz", [{"_id": f"d{i}", "title": "", "text": t} for i, t in enumerate(texts)])
    asked = [{"_id": f"q{i}", "text": texts[3 * i], "split": "test"} for i in range(12)]
    write_jsonl(own / "queries.jsonl.gz", asked)
    rows = [f"q{i}\td{3 * i + j}\t{2 - j}\ttest" for i in range(12) for j in range(2)]
    (own / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore\tsplit", *rows]) + "\n")
    (folder / "lm").mkdir()
    more = pa.table({"source": ["brown"] * 150, "text": sentences(150, 5)})
    pq.write_table(more, folder / "lm" / "sentences.parquet")
    return folder
