"""Folders in BEIR layout are scored as BEIR scores them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import pytrec_eval

from vecveil.cli.tables import retrieval_task
from vecveil.privacy.utility.sealed_search import SealedSearchTask


class Numbered:
    """Encodes the text "7 3" as row 7 of the random vectors of seed 3."""

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        rows = [tuple(map(int, text.split())) for text in texts]
        return np.stack([np.random.default_rng(row).standard_normal(6) for row in rows]).astype(np.float32)

    encode_query = encode


def written(folder: Path, seed: int, documents: int) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, float]]]:
    """Write a collection; return its judgements and the clean scores, without each query's own document."""
    rng = np.random.default_rng(seed)
    corpus = {f"d{i}": f"{i} {seed}" for i in range(documents)}
    # Half of the queries are documents.
    queries = {(f"d{i}" if i % 2 else f"q{i}"): f"{i if i % 2 else i + documents} {seed}" for i in range(20)}
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("\n".join(json.dumps({"_id": k, "text": v}) for k, v in rows.items()))
    lines = [
        (query, str(document), int(rng.integers(0, 4)))
        for query in queries
        for document in rng.choice(list(corpus), 6)  # some twice, with another score
    ]
    lines += [(query, query, 2) for query in queries if query in corpus and rng.random() < 0.5]
    lines += [(query, f"d{rng.integers(documents)}", 1) for query in queries]
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(f"{q}\t{d}\t{s}\n" for q, d, s in lines))
    judged: dict[str, dict[str, int]] = {}
    for query, document, score in lines:
        judged.setdefault(query, {})[document] = score
    X, Y = (Numbered().encode(list(texts.values())).astype(np.float64) for texts in (queries, corpus))
    cosines = (X / np.linalg.norm(X, axis=1)[:, None]) @ (Y / np.linalg.norm(Y, axis=1)[:, None]).T
    scores = {
        query: {document: float(s) for document, s in zip(corpus, row, strict=True) if document != query}
        for query, row in zip(queries, cosines, strict=True)
    }
    return judged, scores


@pytest.mark.parametrize("seed", range(50))
def test_a_collection_scores_as_with_pytrec_eval(tmp_path: Path, seed: int) -> None:
    judged, scores = written(tmp_path, seed, documents=20 if seed % 2 else 60)
    evaluated = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut.10"}).evaluate(scores)
    expected = np.mean([each["ndcg_cut_10"] for each in evaluated.values()])
    encoder: Any = Numbered()
    task = retrieval_task(tmp_path, encoder)
    assert task.clean_value == pytest.approx(expected, abs=1e-6)


def test_sealed_search_leaves_the_same_documents_out(tmp_path: Path) -> None:
    written(tmp_path, 7, 200)
    encoder: Any = Numbered()
    task = retrieval_task(tmp_path, encoder)
    given = {"queries": task.queries, "relevance": task.relevance, "candidates": 200, "collection_size": 200}
    sealed = SealedSearchTask(task.documents, own=task.own, **given)
    assert sealed.clean_value == pytest.approx(task.clean_value, abs=1e-6)
    assert abs(SealedSearchTask(task.documents, **given).clean_value - task.clean_value) > 0.01  # the control
