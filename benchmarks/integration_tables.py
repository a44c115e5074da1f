"""The table of integrations: what the tests that ran say, and what the examples measured."""

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
        page: its section of the documents.
    """

    name: str
    module: str
    public: str
    extra: str
    component: str
    what: str
    page: str


INTEGRATIONS: tuple[Integration, ...] = (
    Integration(
        "LangChain",
        "langchain",
        "ProtectedEmbeddings",
        "langchain",
        "langchain-core",
        "`Embeddings` around any other; sealed search in any vector store",
        "integrations/rag.md#langchain",
    ),
    Integration(
        "LlamaIndex",
        "llama_index",
        "ProtectedEmbedding",
        "llama-index",
        "llama-index-core",
        "`BaseEmbedding` around any other; a vector store with sealed search",
        "integrations/rag.md#llamaindex",
    ),
    Integration(
        "Haystack",
        "haystack",
        "DocumentProtector",
        "haystack",
        "haystack-ai",
        "components behind the embedders of documents and queries; a document store with sealed search",
        "integrations/rag.md#haystack",
    ),
    Integration(
        "sentence-transformers",
        "sentence_transformers",
        "ProtectionModule",
        "sentence-transformers",
        "sentence-transformers",
        "last module of a model, saved with it",
        "integrations/encoders.md#sentence-transformers",
    ),
    Integration(
        "scikit-learn",
        "sklearn",
        "ProtectorTransformer",
        "sklearn",
        "scikit-learn",
        "transformer for pipelines",
        "integrations/encoders.md#scikit-learn",
    ),
    Integration(
        "databases",
        "databases",
        "ProtectedCollection",
        "sqlite-vec",
        "sqlite-vec",
        "a collection of Chroma, LanceDB, Qdrant, Milvus, pgvector or sqlite-vec",
        "integrations/databases.md",
    ),
    Integration(
        "Ray",
        "ray",
        "protect_dataset",
        "ray",
        "ray",
        "datasets in batches, and `--engine ray` for many files",
        "how-to/files.md#ray",
    ),
    Integration(
        "Spark",
        "spark",
        "protect_dataframe",
        "spark",
        "pyspark",
        "DataFrames in batches, by `mapInArrow`",
        "how-to/files.md#spark",
    ),
)


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
        searched = f"{ndcg['clean']:.3f} → {ndcg['protected']:.3f}" if ndcg else "–"
        lines.append(
            f"| [{one.name}]({one.page}) | {one.what} | `vecveil[{one.extra}]` | "
            f"{passed} | {one.component} {row.get('version', '')} | {searched} |"
        )
    return "\n".join(lines)
