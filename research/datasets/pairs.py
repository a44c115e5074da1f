"""Read sentence pairs (SemEval STS, STS-B) and retrieval sets (BEIR)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from research.datasets.kinds import PairSet, RetrievalSet
from research.datasets.reading import (
    as_ids,
    as_number,
    as_splits,
    as_texts,
    existing,
    field_error,
    lines_in,
    number_in,
    read_columns,
    split_name,
)
from vecveil.errors import DataFileError
from vecveil.texts.tables.files import find_input

HIGHEST = 5.0
_INPUT = re.compile(r"(STS(?:\d{4})?)\.input\.(.+)\.txt(?:\.gz)?")
_Pair = tuple[str, str, float, str, str]


def read_pair_table(name: str, folder: Path, *, file: str, low: float = 0.0, high: float = HIGHEST) -> PairSet:
    """Return the pairs of a table with sentence1, sentence2, score, and optionally split and source.

    Without a column split all pairs are the test split. A score outside ``low`` to ``high`` is an error.

    Args:
        file: JSON lines, CSV, TSV or Parquet, in ``folder``.
    """
    path = folder / file
    rows = read_columns(path, "sentence1", ("sentence2", "score"), ("split", "source"))
    scores = [as_number(value, path.name, "score", row, low, high) for row, value in enumerate(rows["score"])]
    return PairSet(
        name=name,
        left=tuple(rows["sentence1"]),
        right=as_texts(rows["sentence2"], path.name, "sentence2"),
        scores=np.array(scores, dtype=np.float64),
        split=as_splits(rows.get("split", ["test"] * len(scores)), path.name),
        source=as_texts(rows.get("source", [name] * len(scores)), path.name, "source"),
    )


def read_semeval(name: str, folder: Path) -> PairSet:
    """Return the scored pairs of all parts in or below ``folder``.

    Parts below a folder with "train" in its name are the train split, all others test. Folders without scores and
    "trial" folders are skipped.
    """
    pairs: list[_Pair] = []
    for path in sorted(folder.rglob("STS*.input.*.txt*")):
        part = _INPUT.fullmatch(path.name)
        inside = path.relative_to(folder).parent.as_posix().lower()
        if part is None or "trial" in inside or not any(path.parent.glob("STS*.gs.*.txt*")):
            continue
        split = "train" if "train" in inside else "test"
        pairs += _read_part(path, split, part[2].removeprefix("surprise."))
    if not pairs:
        text = f"{folder.name} has no scored pairs: put STS.gs.X.txt beside each STS.input.X.txt."
        raise DataFileError(text, param="path")
    return _pair_set(name, pairs)


def _read_part(path: Path, split: str, source: str) -> list[_Pair]:
    """Return the scored pairs of an input file, which has a file of scores beside it."""
    scores = path.with_name(path.name.replace(".input.", ".gs.", 1))
    find_input(scores, "txt")  # raises the error of a missing or empty file
    lines, marks = (list(lines_in(path.parent, name)) for name in (path.name, scores.name))
    if len(marks) == len(lines) - 1:  # the last pair has no score, and its blank line has no line end
        marks.append(("", marks[-1][1]))
    if len(marks) != len(lines):
        raise DataFileError(f"{scores.name} has {len(marks)} lines for {len(lines)} pairs.", param="path")
    found = []
    for (line, wrong), (mark, wrong_mark) in zip(lines, marks, strict=True):
        fields = [field.strip() for field in line.split("\t")][:2]
        if not all(fields) or len(fields) < 2:
            raise wrong("sentences", "two in each line", f"{sum(map(bool, fields))}")
        if mark.strip():
            score = number_in(mark.strip(), "score", wrong_mark, 0.0, HIGHEST)
            found.append((fields[0], fields[1], score, split, source))
    return found


_STSB_FIELDS = 7


def read_sts_benchmark(name: str, folder: Path) -> PairSet:
    """Return the pairs of the files sts-train.csv, sts-dev.csv and sts-test.csv in ``folder``.

    They are tab-separated without quotes and header: genre, file, year, number, score, two sentences, and for some rows
    the source and licence of each sentence.
    """
    pairs: list[_Pair] = []
    for split in ("train", "dev", "test"):
        for line, wrong in lines_in(folder, f"sts-{split}.csv"):
            fields = [field.strip() for field in line.split("\t")]
            if len(fields) < _STSB_FIELDS:
                raise wrong("fields", f"at least {_STSB_FIELDS}, separated by tabs", len(fields))
            genre, file, year, _, score, first, second = fields[:_STSB_FIELDS]
            value = number_in(score, "score", wrong, 0.0, HIGHEST)
            pairs.append((first, second, value, split, f"{genre}/{file}/{year}"))
    return _pair_set(name, pairs)


def _pair_set(name: str, pairs: Sequence[_Pair]) -> PairSet:
    left, right, scores, splits, sources = tuple(zip(*pairs, strict=True)) or ((),) * 5
    return PairSet(name, left, right, np.array(scores, dtype=np.float64), splits, sources)


_QRELS = ("query-id", "corpus-id", "score")
_GRADES = 1e6


def read_beir(
    name: str, folder: Path, *, same_pool: bool = False, splits: Sequence[str] = ("train", "dev", "test")
) -> RetrievalSet:
    """Return all documents in ``folder``, and the queries with a positive judgement.

    Args:
        same_pool: queries are also documents, under the same id (Quora, ArguAna).
        splits: splits of the judgements to read.
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
            raise field_error(source, "query-id", "the id of a query", "an unknown one", row)
        if document not in known:
            raise field_error(source, "corpus-id", "the id of a document", "an unknown one", row)
        if split_of.setdefault(query, split) != split:
            raise field_error(source, "query-id", "a query of one split", "one that is in two", row)
        relevant.setdefault(query, {})[document] = grade
    query_ids = tuple(query for query in texts if query in relevant)
    if not query_ids:
        raise DataFileError(f"{folder.name} has no judgements in any of {', '.join(splits)}.", param="path")
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
            raise field_error(source, "_id", "a new id in each row", "one of an earlier row", row)
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
