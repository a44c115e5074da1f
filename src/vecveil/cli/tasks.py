"""Utility tasks with labels, from the files that the user names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vecveil.errors import DataFileError, VecveilError, message

if TYPE_CHECKING:
    from vecveil.encoders import TextEncoder
    from vecveil.metrics import ClassificationTask, RetrievalTask, StsTask
    from vecveil.types import Embeddings

__all__ = ["chosen_task", "classification_task", "retrieval_task", "sts_task"]


def chosen_task(given: dict[str, Any], encoder: Any) -> Any:
    """Return the task that the options --sts, --retrieval and --utility choose."""
    if given["sts"] is not None:
        return sts_task(given["sts"], encoder)
    if given["retrieval"] is not None:
        return retrieval_task(given["retrieval"], encoder)
    return given["utility"] or "similarity"


def sts_task(path: Path, encoder: TextEncoder) -> StsTask:
    """Return the task of a table with the columns sentence1, sentence2 and score."""
    import numpy as np

    from vecveil.data import read_texts
    from vecveil.metrics import StsTask

    table = read_texts(path, "sentence1", columns=["sentence2", "score"])
    right = table.columns["sentence2"]
    for row, text in enumerate(right):
        if not isinstance(text, str):
            raise _wrong(path, "sentence2", "a text in each row", row)
    scores = [
        _number(path, "score", row, value) for row, value in enumerate(table.columns["score"])
    ]
    vectors = encoder.encode([*table.texts, *right])
    return StsTask(vectors[: len(right)], vectors[len(right) :], np.array(scores))


def retrieval_task(folder: Path, encoder: TextEncoder) -> RetrievalTask:
    """Return the task of a folder in BEIR layout; queries without a judgement are left out."""
    from scipy.sparse import coo_array

    from vecveil.data import read_table, read_texts
    from vecveil.metrics import RetrievalTask

    source = _part(folder, "corpus.jsonl.gz", "corpus.jsonl")
    optional = (
        ["title"] if "title" in read_table(source, text_column="text", columns=[]).types else []
    )
    corpus = read_texts(source, "text", columns=["_id", *optional])
    titles = corpus.columns.get("title", [""] * len(corpus.texts))
    documents = [
        f"{title or ''} {text}".strip() for title, text in zip(titles, corpus.texts, strict=True)
    ]
    queries = read_texts(
        _part(folder, "queries.jsonl.gz", "queries.jsonl"), "text", columns=["_id"]
    )
    place = {str(name): row for row, name in enumerate(corpus.columns["_id"])}
    qrels = _part(folder, "qrels.tsv", "qrels/test.tsv")
    judged = read_texts(qrels, "query-id", columns=["corpus-id", "score"])
    asked = set(judged.texts)
    kept = [row for row, name in enumerate(queries.columns["_id"]) if str(name) in asked]
    query_row = {str(queries.columns["_id"][row]): i for i, row in enumerate(kept)}
    found: list[tuple[int, int, float]] = []
    lines = zip(judged.texts, judged.columns["corpus-id"], judged.columns["score"], strict=True)
    for row, (query, document, score) in enumerate(lines):
        value = _number(qrels, "score", row, score)
        if query in query_row and str(document) in place and value > 0:
            found.append((query_row[query], place[str(document)], value))
    if not found:
        raise DataFileError.of(folder.name, "retrieval", "a task with judged documents",
                               "judgements that name none of its queries and documents")  # fmt: skip
    rows, columns, values = zip(*found, strict=True)
    relevance = coo_array((values, (rows, columns)), shape=(len(kept), len(documents))).tocsr()
    return RetrievalTask(
        encoder.encode([queries.texts[row] for row in kept]), encoder.encode(documents), relevance
    )


def classification_task(
    vectors: Embeddings, labels: Sequence[Any], column: str, source: Path, *, seed: int
) -> ClassificationTask:
    """Return the task of the texts' own classes; texts without one are left out."""
    import numpy as np

    from vecveil.metrics import ClassificationTask

    rows = [i for i, label in enumerate(labels) if label is not None and label != ""]
    for row in rows:
        if not isinstance(labels[row], str | int | bool):
            raise _wrong(source, column, "one class in each row", row, param="label_column")
    classes = np.array([str(labels[row]) for row in rows])
    if len(set(classes.tolist())) < 2:
        raise DataFileError.of(source.name, "label_column", "a column of at least two classes",
                               f"{column!r} with {len(set(classes.tolist()))}")  # fmt: skip
    return ClassificationTask.of(np.ascontiguousarray(vectors[rows]), classes, seed=seed)


def _part(folder: Path, *names: str) -> Path:
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DataFileError.of(
        folder.name, "retrieval", "a folder in BEIR layout", f"one without {' or '.join(names)}"
    )


def _number(path: Path, column: str, row: int, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise _wrong(path, column, "a number in each row", row)
    return number


def _wrong(
    path: Path, column: str, constraint: str, row: int, *, param: str | None = None
) -> VecveilError:
    from vecveil.data.columns import row_number

    return DataFileError(
        message(path.name, param or column, constraint, f"something else in {row_number(row)}",
                "" if param is None else f"The column is {column!r}.")
    )  # fmt: skip
