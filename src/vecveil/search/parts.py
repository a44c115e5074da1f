"""Parts of a sealed index for several workers: each holds some of the segments, and the best rows are merged."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vecveil.data.columns import is_text, missing_column, vectors_from_arrow
from vecveil.encoders.text_encoder import TextEncoder
from vecveil.errors import InvalidInputError
from vecveil.search.sealed_index import SealedIndex

HITS = pa.schema(
    [
        ("query", pa.string()),
        ("id", pa.string()),
        ("score", pa.float32()),
        ("text", pa.string()),
        ("metadata", pa.string()),
    ]
)
Queries = tuple[list[str], npt.NDArray[np.floating[Any]]]


@dataclass(frozen=True)
class IndexPart:
    """Some segments of a sealed index, for one worker.

    Attributes:
        key: where the worker finds the key: a path or ``env:NAME:STORE``.
        segments: their names, each with its rows that are current in the whole index, as packed bits.
        options: arguments of `SealedIndex`.
    """

    location: str
    key: str
    segments: Mapping[str, bytes] = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)

    def search(self, queries: Queries, *, top: int, where: Any = None) -> Any:
        """Return the ``top`` rows of this part for each query, as a table with the columns `HITS`.

        The first call loads the segments; this process keeps them for further calls.
        """
        index, tables = _held(self), [HITS.empty_table()]
        for name, q in zip(*queries, strict=True):
            best = index.search(q, top=top, where=where)
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
    location: str | os.PathLike[str], key: str, count: int, **options: Any
) -> tuple[list[IndexPart], TextEncoder | None]:
    """Return at most ``count`` parts of about equal size of an index in its present state, and its opened encoder.

    Reads all ids and no vectors: of a row's versions in several parts only the newest is searched.

    Args:
        options: arguments of `SealedIndex`; ``encoder`` encodes the queries here.

    Raises:
        StoreError: there is no index.
    """
    place = os.fspath(location).removeprefix("sealed:")
    place = place if "://" in place else os.path.abspath(place)
    with SealedIndex(place, key, **options) as index:
        segments, encoder = index._log.current_rows(), index.encoder
    options.pop("encoder", None)
    shares: list[dict[str, bytes]] = [{} for _ in range(max(1, min(count, len(segments))))]
    for name in sorted(segments, key=lambda name: -len(segments[name])):
        min(shares, key=lambda share: sum(map(len, share.values())))[name] = segments[name]
    return [IndexPart(place, key, share, options) for share in shares], encoder


def queries_in(
    table: Any, encoder: TextEncoder | None, *, column: str | None, id_column: str | None, first_row: int, owner: str
) -> Queries:
    """Return the names and vectors of the queries in an Arrow table of vectors or texts.

    Args:
        column: of vectors, or of texts for the encoder; None takes ``embedding`` if there is one, else ``text``.
        id_column: of the names; None numbers the rows from ``first_row``.
    """
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
    """Return the ``top`` rows of each query in the tables of all parts, best first."""
    hits = pa.concat_tables(found)
    queries = hits["query"].combine_chunks().dictionary_encode().indices.to_numpy()
    order = np.lexsort((-hits["score"].to_numpy(), queries))
    ordered = queries[order]
    rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return hits.take(pa.array(order[rank < top]))
