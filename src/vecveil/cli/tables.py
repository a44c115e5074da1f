"""Read the files that commands name: texts, vectors, labels, encoders and utility tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array

from vecveil.auditing.metrics import ClassificationTask, RetrievalTask, StsTask
from vecveil.auditing.records.audit_record import EncoderRecord
from vecveil.cli.output import doing
from vecveil.errors import DataFileError, VecveilError
from vecveil.privacy.concepts import Concept
from vecveil.privacy.concepts.pairs import LEAST_TEXTS
from vecveil.texts.encoders import TextEncoder, load_encoder
from vecveil.texts.encoders.text_encoder import SAVED_OPTIONS, load_recorded_encoder, options_for
from vecveil.texts.tables import TextRows, read_table, read_texts
from vecveil.texts.tables.binary_formats import MemoryAccount
from vecveil.texts.tables.columns import row_number
from vecveil.texts.tables.reading import TableFormat
from vecveil.types import Embeddings


def table_format(options: dict[str, Any]) -> TableFormat:
    """Take the table options of a command out of ``options``."""
    names = [field.name for field in fields(TableFormat) if field.name in options]
    return TableFormat(**{name: options.pop(name) for name in names})


def format_name(path: Path, form: TableFormat) -> str:
    """Return the format of ``path`` by option or suffix; the suffix itself if it is no vector format."""
    suffix = path.suffix.lower().removeprefix(".")
    return form.format or {"pq": "parquet"}.get(suffix, suffix)


def read_rows(
    path: Path, concept_file: Path, form: TableFormat, *, columns: Sequence[str | None] = (), **given: Any
) -> tuple[Concept, TextRows]:
    """Return the concept of ``concept_file``, ready for use on the texts at ``path``, and these texts.

    Args:
        columns: further columns of the texts.
        given: further arguments of `read_texts`.
    """
    doing(f"Reading {path.name}")
    concept = Concept.from_file(concept_file)
    names = dict.fromkeys([*concept.columns, *(name for name in columns if name is not None)])
    rows = read_texts(path, columns=list(names), **given, **vars(form))
    return concept.with_columns(rows.columns), rows


def require_matches(concept: Concept, texts: Sequence[str], min_texts: int = LEAST_TEXTS) -> None:
    """Raise `ConceptError` if fewer than ``min_texts`` texts contain the concept; loading a model first takes long."""
    # Given spans and labels belong to texts by position, and are at hand.
    given = concept.labels is not None or any(getattr(each, "positional", False) for each in concept.detectors)
    found = 0
    for start in () if given else range(0, len(texts), 256):
        found += sum(map(bool, concept.detect(texts[start : start + 256])))
        if found >= min_texts:
            return
    concept.find(texts, min_texts=min_texts)


def read_array(path: Path, embedding_column: str | None = None) -> np.ndarray[Any, Any]:
    """Return the vectors of a .npy file or of a Parquet column, by default ``embedding``."""
    reader = read_table(path, embedding_column=embedding_column)
    if reader.embedding_column is None:
        names = ", ".join(reader.types) or "none"
        raise DataFileError(
            f"{path.name} has no column of vectors; it has {names}. Name it with --embedding-column.", param="path"
        )
    account, vectors = MemoryAccount(reader.name), list[Embeddings]()
    for chunk in reader.select([], texts=False):
        assert chunk.vectors is not None
        if reader.format != "npy":  # which is as large as what it contains
            account.add(chunk.vectors)
        vectors.append(chunk.vectors)
    return np.concatenate(vectors)


def read_labels(path: Path) -> np.ndarray[Any, Any]:
    """Return the 0/1 array of a .npy file."""
    try:
        labels: np.ndarray[Any, Any] = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError) as error:
        missing = isinstance(error, FileNotFoundError)
        got = "was not found" if missing else "cannot be read as a .npy file of zeros and ones"
        raise DataFileError(f"{path.name} {got}.", param="labels") from None
    return labels


def load_encoder_named(
    options: dict[str, Any], default: str | None = None, *, recorded: EncoderRecord | None = None
) -> TextEncoder | None:
    """Return the encoder that the encoder options name, else the encoder of a loaded record, else ``default`` or
    None."""
    choices: dict[str, Any] = {"precision": options["precision"] or "auto"}
    choices["cache"] = "default" if options["cache"] else None
    # A record may come from somebody else: it sets none that load code or skip checks.
    saved = {} if recorded is None else recorded.options
    known = {name: value for name, value in saved.items() if type(value) is SAVED_OPTIONS.get(name)}
    given = dict(options["encoder_options"])
    if options["encoder"] is None and recorded is not None and recorded.name is not None:
        return load_recorded_encoder(recorded.name, owner="fit", **choices, **{**known, **given})
    name = options["encoder"] or default
    if name is not None:
        doing(f"Loading the encoder {name}")
    return None if name is None else load_encoder(name, **choices, **options_for(name, known, given))


# Utility tasks -----------------------------------------------------------------------------------


def chosen_task(options: dict[str, Any], encoder: Any) -> Any:
    """Return the task that the options --sts, --retrieval and --utility choose."""
    if options["sts"] is not None:
        return sts_task(options["sts"], encoder)
    if options["retrieval"] is not None:
        return retrieval_task(options["retrieval"], encoder)
    return options["utility"] or "similarity"


def sts_task(path: Path, encoder: TextEncoder) -> StsTask:
    """Return the task of a table with the columns sentence1, sentence2 and score."""
    table = read_texts(path, "sentence1", columns=["sentence2", "score"])
    right = table.columns["sentence2"]
    for row, text in enumerate(right):
        if not isinstance(text, str):
            raise _wrong(path, "sentence2", "text", row)
    scores = [_number(path, "score", row, value) for row, value in enumerate(table.columns["score"])]
    vectors = encoder.encode([*table.texts, *right])
    return StsTask(vectors[: len(right)], vectors[len(right) :], np.array(scores))


def retrieval_task(folder: Path, encoder: TextEncoder) -> RetrievalTask:
    """Return the task of a folder in BEIR layout; queries without a judgement are left out.

    As BEIR scores: of a judgement that is written twice the last counts, and a query whose id is that of a document
    does not find that document.
    """
    source = _part(folder, "corpus.jsonl.gz", "corpus.jsonl")
    has_titles = "title" in read_table(source, text_column="text", columns=[]).types
    corpus = read_texts(source, "text", columns=["_id", "title"] if has_titles else ["_id"])
    titles = corpus.columns.get("title", [""] * len(corpus.texts))
    documents = [f"{title or ''} {text}".strip() for title, text in zip(titles, corpus.texts, strict=True)]
    queries = read_texts(_part(folder, "queries.jsonl.gz", "queries.jsonl"), "text", columns=["_id"])
    qrels = _part(folder, "qrels.tsv", "qrels/test.tsv")
    judged = read_texts(qrels, "query-id", columns=["corpus-id", "score"])
    judged_ids = set(judged.texts)
    rows_of_queries = [row for row, name in enumerate(queries.columns["_id"]) if str(name) in judged_ids]
    query_row = {str(queries.columns["_id"][row]): i for i, row in enumerate(rows_of_queries)}
    document_row = {str(name): row for row, name in enumerate(corpus.columns["_id"])}
    entries: dict[tuple[int, int], float] = {}
    lines = zip(judged.texts, judged.columns["corpus-id"], judged.columns["score"], strict=True)
    for row, (query, document, score) in enumerate(lines):
        value = _number(qrels, "score", row, score)
        if query in query_row and str(document) in document_row:
            entries[query_row[query], document_row[str(document)]] = max(value, 0.0)
    if not any(entries.values()):
        raise DataFileError(f"No judgement in {folder.name} names one of its queries and documents.", param="retrieval")
    rows, columns = zip(*entries, strict=True)
    shape = (len(rows_of_queries), len(documents))
    relevance = coo_array((list(entries.values()), (rows, columns)), shape=shape).tocsr()
    own = [document_row.get(name, -1) for name in query_row]
    query_vectors = encoder.encode_query([queries.texts[row] for row in rows_of_queries])
    return RetrievalTask(query_vectors, encoder.encode(documents), relevance, own=own)


def classification_task(
    vectors: Embeddings, labels: Sequence[Any], column: str, source: Path, *, seed: int
) -> ClassificationTask:
    """Return the task of the texts' own classes; texts without one are left out."""
    rows = [i for i, label in enumerate(labels) if label is not None and label != ""]
    for row in rows:
        if not isinstance(labels[row], str | int | bool):
            raise _wrong(source, column, "class", row, param="label_column")
    classes = np.array([str(labels[row]) for row in rows])
    if (count := len(set(classes.tolist()))) < 2:
        raise DataFileError(
            f"The column {column!r} of {source.name} has {count} classes; it needs at least two.", param="label_column"
        )
    return ClassificationTask.of(np.ascontiguousarray(vectors[rows]), classes, seed=seed)


def _part(folder: Path, *names: str) -> Path:
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DataFileError(
        f"`retrieval` {folder.name} has no {' or '.join(names)}: it is not in BEIR layout.", param="retrieval"
    )


def _number(path: Path, column: str, row: int, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise _wrong(path, column, "number", row)
    return number


def _wrong(path: Path, column: str, what: str, row: int, *, param: str = "") -> VecveilError:
    return DataFileError(f"{path.name}: {row_number(row)} of {column!r} has no {what}.", param=param or column)
