"""Collect what a database sees of sealed rows and queries, as evidence for an audit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vecveil.errors import DataFileError
from vecveil.index.blob import SEALED_FIELD, decoded
from vecveil.index.keystore import FILTER_PREFIX
from vecveil.privacy.protector.policy import Encode, ReleasePolicy, WrappedEmbedder, fitted_candidates
from vecveil.stores.store import Batch, VectorStore
from vecveil.types import Embeddings

_BATCH = 1000
_TOKENS = 64  # filter tokens of a field that an audit distinguishes


def visible_rows(database: VectorStore, ids: Sequence[str]) -> tuple[Embeddings, Embeddings | None]:
    """Return what a store shows of the rows ``ids``, for `vecveil.audit_store`: vectors (N, m), and evidence (N, q).

    The evidence of sealed rows is the length of the blob in bytes, and one 0/1 column for each of the most frequent
    filter tokens. It is None for rows without blobs.
    """
    batch = Batch.joined([database.read(ids[i : i + _BATCH]) for i in range(0, len(ids), _BATCH)])
    if not any(SEALED_FIELD in row for row in batch.fields):
        return batch.vectors, None
    columns = [[float(len(decoded(row.get(SEALED_FIELD)))) for row in batch.fields]]
    for name in sorted({name for row in batch.fields for name in row if name.startswith(FILTER_PREFIX)}):
        tokens = Counter(row.get(name) for row in batch.fields)
        columns += [[float(row.get(name) == token) for row in batch.fields] for token, _ in tokens.most_common(_TOKENS)]
    return batch.vectors, np.array(columns).T


def read_query_log(path: Path) -> list[list[str]]:
    """Return the ids that each query fetched, from a file with one JSON array of ids a line."""
    log = []
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.strip():
                ids = json.loads(line)
                if not isinstance(ids, list) or not all(isinstance(each, str | int) for each in ids):
                    raise ValueError("not ids")
                log.append([str(each) for each in ids])
    except (OSError, ValueError, RecursionError) as error:
        raise DataFileError(f"{path.name}: line {len(log) + 1} is not an array of ids.", param="query_log") from error
    if not log:
        raise DataFileError(f"{path.name} contains no query.", param="query_log")
    return log


def visible_accesses(log: Sequence[Sequence[str]], ids: Sequence[str]) -> Embeddings:
    """Return an (N, Q) array, 1 where query q of the log fetched row n, for `vecveil.audit_store`."""
    place = {name: i for i, name in enumerate(ids)}
    accesses = np.zeros((len(ids), len(log)), dtype=np.float32)
    for query, fetched in enumerate(log):
        accesses[[place[name] for name in fetched if name in place], query] = 1
    return accesses


def visible_queries(
    database: VectorStore, policy: ReleasePolicy, queries: Sequence[str], encode: Encode, *, candidates: int | None
) -> tuple[Embeddings, Embeddings]:
    """Release and send each query; return what ``database`` sees of it, for `vecveil.audit_store`.

    These are the released vectors (N, m), and the mean vector of the rows that each query fetched (N, m), both as means
    over equal queries, whose noise averages out.
    """
    candidates = candidates or fitted_candidates(policy.protector)
    released = WrappedEmbedder(policy, owner="visible_queries").embed(queries, encode, query=True)
    fetched = [[str(match.id) for match in database.search(vector, candidates)] for vector in released]
    names = sorted({name for ids in fetched for name in ids})
    place = {name: i for i, name in enumerate(names)}
    stored, _ = visible_rows(database, names)
    centres = np.stack([stored[[place[name] for name in ids]].mean(axis=0) for ids in fetched])
    equal = np.unique(np.array(queries, dtype=object), return_inverse=True)[1]
    sums = np.zeros((equal.max() + 1, 2 * released.shape[1]))
    np.add.at(sums, equal, np.hstack([released, centres]))
    means = (sums / np.bincount(equal)[:, None])[equal].astype(np.float32)
    return means[:, : released.shape[1]], means[:, released.shape[1] :]
