"""Two tasks of MTEB whose texts are made here; importing MTEB takes seconds."""

from __future__ import annotations

from typing import Any

import mteb
import numpy as np
from datasets import Dataset
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData

__all__ = ["MadeRetrieval", "MadeSts"]

WORDS = [f"word{chr(97 + i)}" for i in range(26)]
DRUGS = ["aspirin", "codeine", "heparin", "insulin"]


def texts_of(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        words = [str(word) for word in rng.choice(WORDS, 6)]
        rows.append(" ".join([*words, str(rng.choice(DRUGS))] if i % 2 else words))
    return rows


def _metadata(name: str, kind: str, score: str) -> Any:
    return mteb.TaskMetadata(
        name=name,
        dataset={"path": "made/here", "revision": "1"},
        description="Made by a test.",
        reference=None,
        type=kind,
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score=score,
        date=None,
        domains=None,
        task_subtypes=None,
        license=None,
        annotations_creators=None,
        dialect=None,
        sample_creation=None,
        bibtex_citation="",
    )


class MadeSts(mteb.abstasks.sts.AbsTaskSTS):
    """Pairs that share from none to all of their words."""

    metadata = _metadata("MadeSTS", "STS", "cosine_spearman")
    min_score, max_score = 0, 6

    def load_data(self, **_: Any) -> None:
        rng = np.random.default_rng(0)
        left = texts_of(80, 3)
        rows: dict[str, list[Any]] = {"sentence1": left, "sentence2": [], "score": []}
        for i, text in enumerate(left):
            words = text.split()
            for place in rng.permutation(6)[: i % 7]:
                words[place] = str(rng.choice(WORDS))
            rows["sentence2"].append(" ".join(words))
            rows["score"].append(float(6 - i % 7))
        self.dataset = {"test": Dataset.from_dict(rows)}
        self.data_loaded = True


class MadeRetrieval(mteb.abstasks.retrieval.AbsTaskRetrieval):
    """Each query is three words of its document."""

    metadata = _metadata("MadeRetrieval", "Retrieval", "ndcg_at_10")

    def load_data(self, **_: Any) -> None:
        texts = texts_of(60, 4)
        corpus = Dataset.from_dict({"id": [f"d{i}" for i in range(60)], "text": texts, "title": [""] * 60})
        asked = [" ".join(text.split()[:3]) for text in texts[:20]]
        queries = Dataset.from_dict({"id": [f"q{i}" for i in range(20)], "text": asked})
        relevant = {f"q{i}": {f"d{i}": 1} for i in range(20)}
        split = RetrievalSplitData(corpus=corpus, queries=queries, relevant_docs=relevant, top_ranked=None)
        self.dataset = {"default": {"test": split}}
        self.data_loaded = True
