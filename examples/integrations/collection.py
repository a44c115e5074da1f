"""What the examples share: a collection in BEIR layout, its clean vectors, and nDCG@10.

    python examples/integrations/search_with_chroma.py BEIR_FOLDER PROTECTOR_FILE

The folder holds corpus.jsonl, queries.jsonl (or .gz) and qrels/test.tsv (or qrels.tsv), as BEIR's data sets are
downloaded; the protector was fitted with `vecveil fit` on the same or similar texts.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Collection:
    """Documents and queries by id, and which documents answer which query."""

    documents: dict[str, str]
    queries: dict[str, str]
    relevant: dict[str, dict[str, int]]

    def ndcg(self, search: Callable[[str], Sequence[str]]) -> float:
        """Return nDCG@10 of ``search``, which returns the ids of the ten best documents of a query's text."""
        scores = []
        for query, answers in self.relevant.items():
            found = [answers.get(str(one), 0) for one in list(search(self.queries[query]))[:10]]
            ideal = sorted(answers.values(), reverse=True)[:10]
            scores.append(_gain(found) / _gain(ideal))
        return sum(scores) / len(scores)


def read_collection() -> tuple[Collection, str]:
    """Return the collection and the protector file that the command line names."""
    if len(sys.argv) != 3:
        sys.exit(f"usage: {Path(sys.argv[0]).name} BEIR_FOLDER PROTECTOR_FILE")
    folder = Path(sys.argv[1])
    documents = {d["_id"]: f"{d.get('title', '')} {d['text']}".strip() for d in _lines(folder, "corpus.jsonl")}
    queries = {q["_id"]: q["text"] for q in _lines(folder, "queries.jsonl")}
    relevant: dict[str, dict[str, int]] = {}
    judged = folder / "qrels" / "test.tsv"
    with (judged if judged.exists() else folder / "qrels.tsv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            known = row["corpus-id"] in documents and row["query-id"] in queries
            if int(row["score"]) > 0 and known and row.get("split", "test") == "test":
                relevant.setdefault(row["query-id"], {})[row["corpus-id"]] = int(row["score"])
    return Collection(documents, queries, relevant), sys.argv[2]


def _lines(folder: Path, name: str) -> list[dict[str, str]]:
    path = folder / name
    data = path.read_bytes() if path.exists() else gzip.decompress((folder / f"{name}.gz").read_bytes())
    return [json.loads(line) for line in data.decode("utf-8").splitlines() if line.strip()]


def _gain(scores: Sequence[int]) -> float:
    return sum((2**score - 1) / math.log2(at + 2) for at, score in enumerate(scores))
