"""Work of Ray and Spark: protect and open batches, search a part of a sealed index. No argument contains a secret."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vecveil.errors import InvalidInputError, ReleaseError, VecveilError, unknown_name
from vecveil.gateway.bulk import ArrowProtection, BulkJob, Unsealing
from vecveil.index import Sealer
from vecveil.index.sealed_index import SealedIndex
from vecveil.io import expanded
from vecveil.keys import placed_source
from vecveil.privacy.protector import Protector
from vecveil.texts.encoders.text_encoder import TextEncoder
from vecveil.texts.tables.columns import is_text, missing_column, vectors_from_arrow

_OF_FILES = {"protector", "format", "encoding", "delimiter", "seal_uuid"}
_BATCH_OPTIONS = tuple(field.name for field in fields(BulkJob) if field.name not in _OF_FILES)
"""Options of `BulkJob` that apply to batches."""

_COLUMNS = ("query", "id", "score", "text", "metadata")
HITS = pa.schema([(name, pa.float32() if name == "score" else pa.string()) for name in _COLUMNS])
Queries = tuple[list[str], npt.NDArray[np.floating[Any]]]


class Sealed:
    """A pickled argument with an empty repr: engines log the arguments of their operators."""

    __slots__ = ("_packed",)

    def __init__(self, what: Any) -> None:
        self._packed = pickle.dumps(what)

    def open(self) -> Any:
        return pickle.loads(self._packed)

    def __repr__(self) -> str:
        return "Sealed()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sealed) and other._packed == self._packed

    def __hash__(self) -> int:
        return hash(self._packed)


def batch_job(protector: Protector | str | os.PathLike[str], options: dict[str, Any], *, owner: str) -> BulkJob:
    for name in options:
        if name not in _BATCH_OPTIONS:
            raise unknown_name(owner, "options", _BATCH_OPTIONS, name)
    given = dict(options)
    for param in ("key", "seal_key"):
        if given.get(param) is not None:
            given[param] = placed_key(given[param], param)
    for name in ("carry", "filter_fields"):
        if given.get(name) is not None:
            given[name] = tuple(given[name])  # hashable, for the cache of `_opened`
    return anywhere(BulkJob.of(protector, **given))


def unsealing_anywhere(seal_key: str | os.PathLike[str], **options: Any) -> Unsealing:
    unsealing = Unsealing(placed_key(seal_key), **options)
    Sealer(unsealing.seal_key).keys.read(unsealing.seal_name)
    return unsealing


def placed_key(key: Any, param: str = "seal_key") -> str:
    """Return the source of a key for workers in any folder."""
    if not isinstance(key, str | os.PathLike):
        said = f"Pass `{param}` as the path of a key file or env:NAME: arguments of workers are written to disks."
        raise InvalidInputError(said, param=param)
    return placed_source(key)


def anywhere(job: BulkJob) -> BulkJob:
    """Return ``job`` with absolute paths, the id of the current key and the UUID of the sealed collection."""
    # Pinned: all workers use one key, even if the file gets a newer one. Opened here to report errors early.
    job = job.pinned()
    if job.encoder is not None and os.path.exists(job.encoder):
        job = replace(job, encoder=os.path.abspath(job.encoder))
    key, seal_key = (None if source is None else placed_source(source) for source in (job.key, job.seal_key))
    return replace(job, key=key, seal_key=seal_key)


@lru_cache(maxsize=1)
def _opened(work: BulkJob | Unsealing) -> ArrowProtection | Unsealing:
    return ArrowProtection(work) if isinstance(work, BulkJob) else work


def run_batch(work: BulkJob | Unsealing, rows: Any) -> Any:
    """Return the protected or opened rows of a ``pyarrow.Table`` or ``RecordBatch`` as a table."""
    try:
        return _opened(work)(rows)
    except VecveilError as error:
        raise error.with_traceback(None) from None
    except Exception as error:  # engines log errors, and messages of libraries may quote values
        said = f"The rows caused the error {type(error).__name__}. Nothing of this batch was released."
        raise ReleaseError(said, param="rows") from None


# Parts of a sealed index: each worker contains some of the segments, and the best rows are merged -----


@dataclass(frozen=True)
class IndexPart:
    """Some segments of a sealed index, for one worker.

    ``key`` is a path or ``env:NAME:STORE`` on the worker. ``segments`` maps each segment to a bit mask of its rows that
    are current in the whole index.
    """

    location: str
    key: str
    segments: Mapping[str, bytes] = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)

    def search(self, queries: Queries, *, top: int, where: Any = None) -> Any:
        """Return the ``top`` rows of this part for each query, as a table with the columns `HITS`."""
        index, tables = _held(self), [HITS.empty_table()]
        for name, q in zip(*queries, strict=True):
            best = index.read(index.find(q, top=top, where=where))  # other parts may have the fields of `where`
            metadata = [json.dumps(row, ensure_ascii=False) for row in best.metadata]
            columns = [name] * len(best.ids), best.ids, best.scores, best.texts, metadata
            arrays = [pa.array(values, kind.type) for values, kind in zip(columns, HITS, strict=True)]
            tables.append(pa.table(arrays, schema=HITS))
        return pa.concat_tables(tables)


_holding: list[tuple[IndexPart, SealedIndex]] = []  # the part of this process


def _held(part: IndexPart) -> SealedIndex:
    if not _holding or _holding[0][0] != part:
        while _holding:
            _holding.pop()[1].close()
        index = SealedIndex(part.location, part.key, **part.options)
        index._log.hold(part.segments)
        _holding.append((part, index))
    return _holding[0][1]


def index_parts(
    location: str | os.PathLike[str], key: str | os.PathLike[str], count: int, options: dict[str, Any]
) -> tuple[list[IndexPart], TextEncoder | None]:
    """Return at most ``count`` parts of about equal size of the current index, and its opened encoder.

    Reads all ids and no vectors: of a row's versions in several parts only the newest is searched. ``options`` are
    arguments of `SealedIndex`; its ``encoder`` encodes the queries here.
    """
    place = os.fspath(location).removeprefix("sealed:")
    place = place if "://" in place else os.path.abspath(expanded(place))
    key = placed_key(key)
    with SealedIndex(place, key, **options) as index:
        segments, encoder = index._log.current_rows(), index.encoder
    options = {name: value for name, value in options.items() if name != "encoder"}
    shares: list[dict[str, bytes]] = [{} for _ in range(max(1, min(count, len(segments))))]
    for name in sorted(segments, key=lambda name: -len(segments[name])):
        min(shares, key=lambda share: sum(map(len, share.values())))[name] = segments[name]
    return [IndexPart(place, key, share, options) for share in shares], encoder


def queries_in(
    table: Any, encoder: TextEncoder | None, columns: tuple[str | None, str | None], first_row: int, owner: str
) -> Queries:
    """Return the names and vectors of the queries in an Arrow table of vectors or texts.

    ``columns`` are those of the vectors or texts, and of the names. None takes ``embedding``, else ``text``, and
    numbers the rows from ``first_row``.
    """
    column, id_column = columns
    column = column or ("embedding" if "embedding" in table.schema.names else "text")
    for param, name in (("column", column), ("id_column", id_column)):
        if name is not None and name not in table.schema.names:
            raise missing_column(owner, param, name, table.schema.names)
    rows = range(first_row, first_row + len(table))
    names = list(map(str, rows if id_column is None else table[id_column].to_pylist()))
    values = pa.concat_arrays([getattr(chunk, "storage", chunk) for chunk in table[column].chunks])
    if not is_text(values.type):
        return names, vectors_from_arrow(values, source=owner, column=column, first_row=first_row, dimension=None)
    if encoder is None:
        raise InvalidInputError(
            f"{owner}: the queries are texts. Pass encoder=..., the encoder of the index.", param="encoder"
        )
    return names, encoder.encode_query(values.to_pylist())


def best_hits(found: Sequence[Any], top: int) -> Any:
    hits = pa.concat_tables(found)
    queries = hits["query"].combine_chunks().dictionary_encode().indices.to_numpy()
    order = np.lexsort((-hits["score"].to_numpy(), queries))
    ordered = queries[order]
    rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return hits.take(pa.array(order[rank < top]))
