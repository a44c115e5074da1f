"""The README's table of integrations: what the tests that ran say, and what the examples measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

__all__ = ["INTEGRATIONS", "Integration", "integrations"]

MISSING = "not measured"


class Integration(NamedTuple):
    """One framework or database.

    Attributes:
        name: name as its documentation writes it.
        module: module in `vecveil.integrations`.
        public: main public name of the module.
        extra: extra that installs it: ``pip install vecveil[extra]``.
        component: distribution whose version the tests report.
        what: short description.
    """

    name: str
    module: str
    public: str
    extra: str
    component: str
    what: str


# fmt: off
INTEGRATIONS: tuple[Integration, ...] = (
    Integration("LangChain", "langchain", "ProtectedEmbeddings",
                "langchain", "langchain-core", "`Embeddings` around any other; sealed search in any vector store"),
    Integration("LlamaIndex", "llama_index", "ProtectedEmbedding",
                "llama-index", "llama-index-core",
                "`BaseEmbedding` around any other; a vector store with sealed search"),
    Integration("Haystack", "haystack", "DocumentProtector",
                "haystack", "haystack-ai",
                "components behind the embedders of documents and queries; a document store with sealed search"),
    Integration("sentence-transformers", "sentence_transformers", "ProtectionModule",
                "sentence-transformers", "sentence-transformers", "last module of a model, saved with it"),
    Integration("scikit-learn", "sklearn", "ProtectorTransformer",
                "sklearn", "scikit-learn", "transformer for pipelines"),
    Integration("LiteLLM", "litellm", "ProtectEmbeddings",
                "litellm", "litellm", "callback for asynchronous calls, functions for both"),
    Integration("Chroma", "chroma", "ProtectedEmbeddingFunction",
                "chroma", "chromadb", "registered `EmbeddingFunction`"),
    Integration("LanceDB", "lancedb", "ProtectedEmbeddingFunction",
                "lancedb", "lancedb", "function in LanceDB's registry"),
    Integration("Qdrant", "qdrant", "ProtectedQdrant",
                "qdrant", "qdrant-client", "around a client: upsert and query"),
    Integration("FAISS", "faiss", "ProtectedIndex",
                "faiss", "faiss-cpu", "around an index: add and search"),
    Integration("pgvector", "pgvector", "ProtectedTable",
                "pgvector", "pgvector", "a PostgreSQL table"),
    Integration("sqlite-vec", "sqlite_vec", "ProtectedTable",
                "sqlite-vec", "sqlite-vec", "a SQLite table"),
    Integration("Milvus", "milvus", "ProtectedMilvus",
                "milvus", "pymilvus", "around a client: insert and search"),
    Integration("MTEB", "mteb", "ProtectedEncoder",
                "mteb", "mteb", "a model for `mteb.evaluate`"),
    Integration("Ray", "ray", "protect_dataset",
                "ray", "ray", "datasets in batches, and `--engine ray` for many files"),
    Integration("Spark", "spark", "protect_dataframe",
                "spark", "pyspark", "DataFrames in batches, by `mapInArrow`"),
)
# fmt: on


def integrations(folder: Path) -> str:
    """Return one row for each integration."""
    path = folder / "integrations.json"
    if not path.exists():
        return MISSING
    record = json.loads(path.read_text(encoding="utf-8"))
    rows = {row["module"]: row for row in record["integrations"]}
    where = (record["collection"] or "…").capitalize()
    searching = f"nDCG@10 on {where}, clean → protected"
    lines = [
        f"| with | what it is | `pip install` | tests passed | tested with | {searching} |",
        "| :-- | :-- | :-- | --: | :-- | :-- |",
    ]
    for one in INTEGRATIONS:
        row = rows.get(one.module, {})
        passed = f"{row['passed']}" if row.get("passed") else MISSING
        if row.get("failed"):
            passed += f", {row['failed']} failed"
        if row.get("skipped"):
            passed += f", {row['skipped']} skipped"
        ndcg = row.get("ndcg")
        searched = f"{ndcg['clean']:.3f} → {ndcg['protected']:.3f}" if ndcg else MISSING
        lines.append(
            f"| [{one.name}](docs/integrations/{one.module}.md) | {one.what} | `vecveil[{one.extra}]` | "
            f"{passed} | {one.component} {row.get('version', '')} | {searched} |"
        )
    return "\n".join(lines)
