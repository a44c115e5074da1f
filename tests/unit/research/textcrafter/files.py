"""Files laid out as a data folder, the problems in them, and an encoder for them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from research.specification import ConceptSpec, ProblemSpec
from research.textcrafter.data import Pii, PiiSpec, Task, pii_vectors, read_pii, read_set, task_vectors

_TERMS = ConceptSpec(terms_file="concepts/sts_terms.json")
PROBLEMS = {
    "phrasebank": ProblemSpec(data=("phrasebank",), concept=_TERMS),
    "ade": ProblemSpec(data=("ade",), concept=ConceptSpec(spans=("DRUG", "ADVERSE_EFFECT"))),
    "sst2": ProblemSpec(data=("sst2",), concept=_TERMS),
    "agnews": ProblemSpec(data=("agnews",), concept=_TERMS),
}


def task_of(name: str, data: Path, encoder: Any, rows: tuple[int, int] = (99, 99)) -> Task:
    """Return a set of the data folder with its vectors."""
    return task_vectors(read_set(name, PROBLEMS[name], data, rows), encoder.encode)


def pii_of(data: Path, encoder: Any) -> Pii:
    """Return the PII corpus of the data folder with its vectors."""
    return pii_vectors(read_pii(PiiSpec(), data), encoder.encode)


def parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path, compression="zstd")


def json_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)


def labelled(prefix: str, counts: dict[str, int], **more: Any) -> list[dict[str, Any]]:
    return [
        {
            "split": split,
            "text": f"{prefix} {split} {i} in March",
            "label": i % 2,
            "label_name": f"class {i % 2}",
            **more,
        }
        for split, count in counts.items()
        for i in range(count)
    ]


def ade(pmid: str, split: str, number: int) -> dict[str, Any]:
    text = f"Case {number}: drugzol 5 mg was followed by rash."
    marks = {"drugzol": "DRUG", "5 mg": "DOSE", "rash": "ADVERSE_EFFECT"}
    spans = [
        {"start": text.index(t), "end": text.index(t) + len(t), "label": label, "text": t} for t, label in marks.items()
    ]
    return {
        "id": f"ade-{number}",
        "split": split,
        "pmid": pmid,
        "text": text,
        "label": number % 2,
        "spans": spans,
        "relations": [],
    }


def pii(number: int, split: str, file: str) -> dict[str, Any]:
    name = f"Person{number}"
    return {
        "id": f"{file}-{number}",
        "split": split,
        "text": f"Template {split} {file}: ask {name}.",
        "spans": [
            {
                "start": len(f"Template {split} {file}: ask "),
                "end": len(f"Template {split} {file}: ask {name}"),
                "label": "PERSON",
                "text": name,
            }
        ],
        "template_id": 1,
        "masked": f"Template {split} {file}: ask {{{{name}}}}.",
    }


def write_data(own: Path) -> None:
    classification = own / "classification"
    named = {"agreement": 100}
    parquet(
        classification / "financial_phrasebank.parquet", labelled("Sales", {"train": 30, "dev": 4, "test": 10}, **named)
    )
    copied = {"split": "train", "text": "sst TEST 3, in march!", "label": 0, "label_name": "x"}
    rows = labelled("sst", {"train": 30, "dev": 5, "test": 10})
    parquet(classification / "sst2.parquet", [*rows, copied])
    news = {"source": "s"}
    parquet(classification / "ag_news_train_subset.parquet", labelled("news", {"train": 20}, **news))
    parquet(classification / "ag_news_test.parquet", labelled("news", {"test": 8}, title="t", description="d"))
    rows_of_ade = [ade(f"p{i}", "train", i) for i in range(20)]
    rows_of_ade += [ade("p100", "train", 100), ade("p100", "test", 101), ade("p102", "dev", 102)]
    json_lines(own / "ade" / "ade_corpus_v2.jsonl.gz", rows_of_ade)
    for name in ("presidio_synth_v2", "presidio_generated_large"):
        splits = ("train", "dev", "test")
        json_lines(own / "pii" / f"{name}.jsonl.gz", [pii(i, split, name) for split in splits for i in range(4)])
    parquet(
        own / "lm" / "sentences.parquet",
        [
            {"source": source, "text": f"{source} sentence {i}"}
            for source in ("brown", "wikitext2_valid", "wikitext2_test")
            for i in range(5)
        ],
    )
    (own / "concepts").mkdir()
    (own / "concepts" / "sts_terms.json").write_text('{"month": ["march", "april"]}')


class Lengths:
    """An encoder: letters counted."""

    def encode(self, texts: list[str]) -> np.ndarray:
        counts = [[text.lower().count(c) + 0.5 for c in "abcdefgh"] for text in texts]
        X = np.array(counts, dtype=np.float32)
        return X / np.linalg.norm(X, axis=1, keepdims=True)
