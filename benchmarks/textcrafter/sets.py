"""The labelled sets of the table and the PII corpus, read from the files of the data folder.

Rows of the splits ``train`` and ``test`` are used. A training row that agrees with a test row in letters and
digits (for ADE also: in its abstract) is left out, and then at most so many rows of each split are drawn.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from vecveil.attacks.splits import text_groups
from vecveil.concepts import Concept

__all__ = ["SETS", "PiiTexts", "TaskSet", "read_pii", "read_set"]

SAMPLE_SEED = 7  # of which rows are drawn where there are more: the same whatever the run's seed


@dataclass(frozen=True, eq=False, repr=False)
class TaskSet:
    """One labelled set.

    Attributes:
        name: short name.
        title: as in the table.
        texts: all texts that are used.
        classes: (N,) integer class of each.
        groups: (N,) texts that belong together.
        train, test: row numbers of the splits.
        concept: what token inference looks for and the default protector hides.
        dropped: training rows left out because a test row agrees with them.
    """

    name: str
    title: str
    texts: list[str]
    classes: np.ndarray
    groups: np.ndarray
    train: np.ndarray
    test: np.ndarray
    concept: Concept
    dropped: int


@dataclass(frozen=True, eq=False, repr=False)
class PiiTexts:
    """Texts with PII, marked as spans, and plain sentences.

    Attributes:
        texts: of the PII corpus.
        groups: (N,) group of each: the template it was made from.
        train, test: row numbers; no template is in both.
        concept: the marked spans.
        plain_train, plain_test: sentences of the background corpus.
    """

    texts: list[str]
    groups: np.ndarray
    train: np.ndarray
    test: np.ndarray
    concept: Concept
    plain_train: list[str]
    plain_test: list[str]


@dataclass(frozen=True)
class _Rows:
    """What a reader returns: texts, splits, classes, and, where there are any, ids and spans."""

    texts: list[str]
    splits: list[str]
    classes: list[int]
    ids: list[Any] | None = None
    spans: list[list[dict[str, Any]]] | None = None


def _parquet(*names: str) -> Callable[[Path], _Rows]:
    """Return the reader of Parquet files with columns ``split``, ``text`` and ``label``."""

    def read(data: Path) -> _Rows:
        tables = [
            pq.read_table(
                data / "classification" / f"{name}.parquet", columns=["split", "text", "label"]
            ).to_pydict()
            for name in names
        ]
        texts, splits, labels = (
            [value for table in tables for value in table[column]]
            for column in ("text", "split", "label")
        )
        return _Rows(texts, splits, [int(label) for label in labels])

    return read


def _ade(data: Path) -> _Rows:
    """Read ADE: a sentence tells of an adverse drug event or not; doses are no part of the concept."""
    rows = _json_lines(data / "ade" / "ade_corpus_v2.jsonl.gz")
    return _Rows(
        [row["text"] for row in rows],
        [row["split"] for row in rows],
        [int(row["label"]) for row in rows],
        [str(row["pmid"]) for row in rows],
        [[span for span in row["spans"] if span["label"] != "DOSE"] for row in rows],
    )


SETS: dict[str, tuple[str, Callable[[Path], _Rows]]] = {
    "phrasebank": ("Financial PhraseBank", _parquet("financial_phrasebank")),
    "ade": ("ADE", _ade),
    "sst2": ("SST-2", _parquet("sst2")),
    "agnews": ("AG News", _parquet("ag_news_train_subset", "ag_news_test")),
}
"""Title and reader of each set, in the order of the table."""


def read_set(name: str, data: Path, rows: tuple[int, int]) -> TaskSet:
    """Return the set ``name`` with at most ``rows`` training and test rows.

    Args:
        data: folder laid out as ``classification/``, ``ade/`` and ``concepts/sts_terms.json``.
    """
    title, reader = SETS[name]
    found = reader(data)
    groups = text_groups(found.texts, found.ids)
    splits = np.array(found.splits)
    train, test = np.flatnonzero(splits == "train"), np.flatnonzero(splits == "test")
    shared = np.isin(groups[train], groups[test])
    kept = [_draw(part, most) for part, most in zip((train[~shared], test), rows, strict=True)]
    chosen = np.concatenate(kept)
    texts = [found.texts[i] for i in chosen]
    if found.spans is not None:
        spans = [found.spans[i] for i in chosen]
        concept = Concept.from_spans(f"{title}: drugs and adverse effects", spans)
    else:
        listed = json.loads((data / "concepts" / "sts_terms.json").read_text(encoding="utf-8"))
        terms = sorted({term for group in listed.values() for term in group})
        concept = Concept.from_terms("names, places, dates and numbers", terms)
    count = len(kept[0])
    return TaskSet(
        name=name,
        title=title,
        texts=texts,
        classes=np.array([found.classes[i] for i in chosen]),
        groups=groups[chosen],
        train=np.arange(count),
        test=np.arange(count, len(chosen)),
        concept=concept,
        dropped=int(shared.sum()),
    )


def read_pii(data: Path, rows: int | None = None) -> PiiTexts:
    """Return the PII corpus: both Presidio files, and WikiText-2 sentences as plain text.

    Splits ``train`` and ``dev`` are for training; of WikiText-2 the sentences of its validation file.

    Args:
        rows: at most so many texts of each part.
    """
    read = [
        row
        for name in ("presidio_synth_v2", "presidio_generated_large")
        for row in _json_lines(data / "pii" / f"{name}.jsonl.gz")
    ]
    groups = text_groups([row["text"] for row in read], [row["masked"] for row in read])
    held = np.array([row["split"] == "test" for row in read])
    shared = ~held & np.isin(groups, groups[held])
    parts = [np.flatnonzero(~held & ~shared), np.flatnonzero(held)]
    chosen = np.concatenate([_draw(part, rows) for part in parts])
    count = int((~held[chosen]).sum())
    columns = pq.read_table(data / "lm" / "sentences.parquet", columns=["source", "text"])
    sentences = columns.to_pydict()
    plain = {
        source: [
            text
            for text, own in zip(sentences["text"], sentences["source"], strict=True)
            if own == source
        ][:rows]
        for source in ("wikitext2_valid", "wikitext2_test")
    }
    return PiiTexts(
        texts=[read[i]["text"] for i in chosen],
        groups=groups[chosen],
        train=np.arange(count),
        test=np.arange(count, len(chosen)),
        concept=Concept.from_spans("PII", [read[i]["spans"] for i in chosen]),
        plain_train=plain["wikitext2_valid"],
        plain_test=plain["wikitext2_test"],
    )


def _draw(rows: np.ndarray, most: int | None) -> np.ndarray:
    """Return ``rows``, or ``most`` of them drawn at random, in their order."""
    if most is None or len(rows) <= most:
        return rows
    drawn = np.random.default_rng(SAMPLE_SEED).choice(rows, most, replace=False)
    return np.sort(drawn)


def _json_lines(path: Path) -> Sequence[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
