"""Retrieval sets in the layout of BEIR: corpus, queries and judgements (qrels).

corpus.jsonl has {_id, title, text}, queries.jsonl {_id, text}, both also with .gz. Judgements are
qrels/train.tsv, dev.tsv and test.tsv (query-id, corpus-id, score), or one qrels.tsv with a column
``split``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from research.datasets.columns import (
    as_ids,
    as_number,
    as_splits,
    as_texts,
    field_error,
    read_columns,
    split_name,
)
from research.datasets.kinds import RetrievalSet
from research.datasets.lines import existing
from vecveil.data.files import not_usable

__all__ = ["read_beir"]

_QRELS = ("query-id", "corpus-id", "score")
_GRADES = 1e6


def read_beir(
    name: str,
    folder: Path,
    *,
    same_pool: bool = False,
    splits: Sequence[str] = ("train", "dev", "test"),
) -> RetrievalSet:
    """Return the set in ``folder``: all documents, and the queries with a positive judgement.

    Args:
        same_pool: queries are documents themselves, under the same id (Quora, ArguAna).
        splits: which judgements to read.
    """
    document_ids, documents = _documents(_file(folder, "corpus.jsonl"))
    path = _file(folder, "queries.jsonl")
    rows = read_columns(path, "text", ("_id",))
    texts = dict(zip(_unique(rows["_id"], path.name), rows["text"], strict=True))
    known = set(document_ids)
    relevant: dict[str, dict[str, int]] = {}
    split_of: dict[str, str] = {}
    for source, row, query, document, grade, split in _judgements(folder):
        if split not in splits or grade < 1:
            continue
        if query not in texts:
            raise field_error(source, "query-id", "of a query", "an unknown one", row)
        if document not in known:
            raise field_error(source, "corpus-id", "of a document", "an unknown one", row)
        if split_of.setdefault(query, split) != split:
            got = "a query that is in another as well"
            raise field_error(source, "query-id", "in one split only", got, row)
        relevant.setdefault(query, {})[document] = grade
    query_ids = tuple(query for query in texts if query in relevant)
    if not query_ids:
        wanted = f"a folder with judgements in one of {', '.join(splits)}"
        raise not_usable(folder.name, wanted, "one without")
    return RetrievalSet(
        name=name,
        document_ids=document_ids,
        documents=documents,
        query_ids=query_ids,
        queries=tuple(texts[query] for query in query_ids),
        query_split=tuple(split_of[query] for query in query_ids),
        relevant={query: relevant[query] for query in query_ids},
        same_pool=same_pool,
    )


def _file(folder: Path, name: str) -> Path:
    return existing(folder, name) or folder / name


def _documents(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    rows = read_columns(path, "text", ("_id",), ("title",))
    given = rows.get("title", [""] * len(rows["text"]))
    titles = as_texts((title or "" for title in given), path.name, "title")
    documents = tuple(
        f"{title}. {text}" if title and text else title or text
        for title, text in zip(titles, rows["text"], strict=True)
    )
    return _unique(rows["_id"], path.name), documents


def _unique(values: Sequence[Any], source: str) -> tuple[str, ...]:
    ids = as_ids(values, source, "_id")
    seen: set[str] = set()
    for row, value in enumerate(ids):
        if value in seen:
            raise field_error(source, "_id", "different in each row", "one that was before", row)
        seen.add(value)
    return ids


def _judgements(folder: Path) -> Iterator[tuple[str, int, str, str, int, str]]:
    """Yield (file, row, query, document, grade, split)."""
    one = existing(folder, "qrels.tsv")
    for path in [one] if one else sorted((folder / "qrels").glob("*.tsv*")):
        rows = read_columns(path, _QRELS[0], _QRELS[1:], ("split",), format="tsv")
        if "split" in rows:
            splits = as_splits(rows["split"], path.name)
        else:
            split = "test" if path is one else split_name(path.name.split(".")[0])
            splits = (split,) * len(rows["score"])
        columns = (rows["query-id"], rows["corpus-id"], rows["score"], splits)
        for row, (query, document, score, split) in enumerate(zip(*columns, strict=True)):
            grade = as_number(score, path.name, "score", row, -_GRADES, _GRADES)
            yield path.name, row, query, document, round(grade), split
