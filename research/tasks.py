"""The utility task of a data set: STS, retrieval or classification."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array

from research.datasets import open_dataset
from research.datasets.kinds import PairSet, RetrievalSet, TextSet
from vecveil.auditing.metrics import ClassificationTask, RetrievalTask, StsTask, UtilityTask
from vecveil.errors import InvalidInputError
from vecveil.types import Embeddings

MOST_PAIRS = 4000
MOST_QUERIES = 400  # of a retrieval task; judged documents first
MOST_DOCUMENTS = 6000
MOST_ROWS = 6000
SAMPLE_SEED = 0

Encode = Callable[[Sequence[str]], Embeddings]


def read_task(name: str, data: Path, encode: Encode) -> UtilityTask:
    """Return the task of a data set, on its test part where it has one.

    Large sets are sampled, independently of the seed: 4,000 pairs; 400 queries, and 6,000 documents including all that
    are judged for them; 6,000 training and 6,000 test texts of a classification.
    """
    found = open_dataset(name, data)
    if isinstance(found, PairSet):
        rows = drawn(test_rows(found.split), MOST_PAIRS)
        left, right = (encode([side[i] for i in rows]) for side in (found.left, found.right))
        return StsTask(left, right, np.asarray(found.scores, dtype=float)[rows])
    if isinstance(found, RetrievalSet):
        return _retrieval(found, encode)
    return _classification(found, encode)


def task_texts(name: str, data: Path) -> list[str]:
    """Return the texts that a task encodes."""
    seen: list[str] = []

    def collect(texts: Sequence[str]) -> Embeddings:
        seen.extend(texts)
        rng = np.random.default_rng(len(seen))
        return rng.standard_normal((len(texts), 4))

    read_task(name, data, collect)
    return seen


def task_digest(name: str, data: Path) -> str:
    """Return a hash of a task: its texts, and scores, judgements or classes."""
    found = hashlib.sha256()

    def collect(texts: Sequence[str]) -> Embeddings:
        found.update(json.dumps(list(texts)).encode())
        return np.random.default_rng(0).standard_normal((len(texts), 4))

    task = read_task(name, data, collect)
    if isinstance(task, StsTask):
        found.update(task.scores.tobytes())
    elif isinstance(task, RetrievalTask):
        found.update(task.relevance.toarray().astype(np.int64).tobytes())
    elif isinstance(task, ClassificationTask):
        for _, classes in (task.train, task.test):
            found.update(json.dumps([str(label) for label in classes]).encode())
    return found.hexdigest()[:16]


def test_rows(split: Sequence[str]) -> np.ndarray:
    """Return the rows of the test parts, or all rows without one."""
    rows = np.flatnonzero(np.char.startswith(np.asarray(split).astype(str), "test"))
    return rows if len(rows) else np.arange(len(split))


def drawn(rows: np.ndarray, most: int | None, seed: int = SAMPLE_SEED) -> np.ndarray:
    """Return ``rows``, or a sorted random sample of ``most`` of them."""
    if most is None or len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def _retrieval(found: RetrievalSet, encode: Encode) -> RetrievalTask:
    place = {key: i for i, key in enumerate(found.document_ids)}
    judged = [
        i for i in test_rows(found.query_split) if any(d in place for d in found.relevant.get(found.query_ids[i], {}))
    ]
    if found.same_pool:
        judged = _one_of_a_kind(found, judged)
    queries = drawn(np.asarray(judged, dtype=np.intp), MOST_QUERIES)
    if not len(queries):
        raise InvalidInputError(f"data set {found.name!r}: none of the `queries` is judged.", param="queries")
    wanted: set[int] = set()
    for i in queries:
        wanted |= {place[d] for d in found.relevant[found.query_ids[i]] if d in place}
    skipped = {found.queries[i] for i in queries} if found.same_pool else set()
    rest = np.array(
        [
            i
            for i in range(len(place))
            if i not in wanted and found.documents[i] not in skipped and found.documents[i].strip()
        ],
        dtype=np.intp,
    )
    others = drawn(rest, max(0, MOST_DOCUMENTS - len(wanted)))
    taken = sorted([*wanted, *others.tolist()])
    column = {document: j for j, document in enumerate(taken)}
    entries = [
        (row, column[place[d]], grade)
        for row, i in enumerate(queries)
        for d, grade in found.relevant[found.query_ids[i]].items()
        if d in place
    ]
    rows, columns, grades = (np.array(part) for part in zip(*entries, strict=True))
    relevance = coo_array((grades, (rows, columns)), shape=(len(queries), len(taken))).tocsr()
    return RetrievalTask(
        encode([found.queries[i] for i in queries]), encode([found.documents[i] for i in taken]), relevance
    )


def _one_of_a_kind(found: RetrievalSet, judged: Sequence[int]) -> list[int]:
    """Return queries of which none answers another, so that the pool can exclude a query's own copy."""
    kept: list[int] = []
    answers: set[str] = set()
    for i in judged:
        own = found.query_ids[i]
        if own not in answers:
            kept.append(i)
            answers |= {own, *found.relevant.get(own, {})}
    return kept


def _classification(found: TextSet, encode: Encode) -> ClassificationTask:
    if found.labels is None:
        raise InvalidInputError(
            f"problem: the data set {found.name!r} (`utility`) has no pairs, queries or classes, so no task.",
            param="utility",
        )
    labels = np.asarray(found.labels)
    test = test_rows(found.split if found.split is not None else [""] * len(labels))
    if len(test) == len(labels):  # no test part: about three groups in ten
        names = np.unique(found.groups)
        held = np.random.default_rng(SAMPLE_SEED).permutation(names)[: max(1, len(names) * 3 // 10)]
        test = np.flatnonzero(np.isin(found.groups, held))
    train = np.setdiff1d(np.arange(len(labels)), test)
    train, test = drawn(train, MOST_ROWS), drawn(test, MOST_ROWS)
    left, right = (encode([found.texts[i] for i in rows]) for rows in (train, test))
    return ClassificationTask(left, labels[train], right, labels[test])
