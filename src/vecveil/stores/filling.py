"""Fill a sealed index from a vector database or a table, compare it with its sources, and forget rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from vecveil.errors import DataFileError, IncompatibleError, InvalidInputError, KeyFileError, StoreError
from vecveil.index.blob import SEALED_FIELD
from vecveil.index.filters import Where
from vecveil.index.sealed_index import SealedIndex, check_choice
from vecveil.index.sealer import Unsealed
from vecveil.runtime import progress
from vecveil.stores.forgetting import CACHE_CLEARED, Erasure, Reconciliation, begun, now, unsearched
from vecveil.stores.migrating import MigrationOptions, SourceCheck, check_source, texts_and_metadata
from vecveil.stores.scanning import Reservoir, Sample, usable_rows
from vecveil.stores.store import Batch, VectorStore
from vecveil.texts.encoders.cache import matching_texts
from vecveil.texts.tables.columns import check_finite, ids_of, json_values, may_be_nan, missing_column, printed_number
from vecveil.texts.tables.pipeline import ID
from vecveil.texts.tables.reading import Chunk, TableReader

_COMPARED = 1000  # rows that are read back
REMAINS = (
    "Anyone with the key file can open earlier backups, snapshots and versions of the storage. `vecveil reseal` gives "
    "the index a new key and deletes the old one; these copies then open only with an earlier backup of the key file.",
    "Freed disk blocks: nothing here reaches them.",
)
CACHE_KEPT = "The embedding cache was not searched: it has the rows' vectors if another program encoded their texts."


@dataclass(frozen=True)
class Filling:
    """Counts of a finished and verified copy.

    Attributes:
        rows: rows of the source that the index contains.
        written: rows that this run wrote; the others were already there.
        skipped: bad rows that were left out.
        compared: rows whose vector, text and metadata were read back and compared; 0 for a key that opens no row.
    """

    rows: int
    written: int
    skipped: int
    compared: int

    def to_record(self) -> dict[str, int]:
        return asdict(self)


def fill(
    source: VectorStore,
    index: SealedIndex,
    *,
    drop: Sequence[str] = (),
    skip_bad: bool = False,
    add: bool = False,
    batch: int = 20_000,
    on_checked: Callable[[SourceCheck], None] | None = None,
    show_progress: bool | None = None,
) -> Filling:
    """Copy the rows of ``source`` to ``index`` with exact vectors, texts and all fields but ``drop``; verify the copy.

    A repeated call skips rows that the index already contains with equal content. With the key of a member who does not
    read, ``add`` writes all rows, and nothing is verified.

    Args:
        skip_bad: leave out rows without a finite vector of the right dimension; otherwise they stop the copy.
        add: keep the rows of the index that the source lacks; otherwise they stop the copy.
        on_checked: called with the check of the source before anything is written.

    Raises:
        StoreError: the source has rows that cannot be copied, or changed meanwhile; or the index contains other rows.
        IncompatibleError: the index or its encoder has a different dimension.
    """
    options = MigrationOptions(seal=True, drop=tuple(drop), skip_bad=skip_bad)
    check = check_source(source, None, options, batch, show_progress)
    dimension = check.info.dimension
    _check_dimension(index, dimension)
    if on_checked is not None:
        on_checked(check)

    def batches() -> Iterator[tuple[Batch, int]]:
        for part in source.every_row(batch):
            good, bad = usable_rows(part, dimension)
            if bad.total and not skip_bad:
                raise StoreError(
                    f"The source got bad rows during the copy ({bad}): {bad.named}. Correct them, or omit them with "
                    "--skip-bad.",
                    param="source",
                )
            rows = part.rows(np.flatnonzero(good).tolist())
            texts, metadata = texts_and_metadata(rows.fields, check.carried, check.withheld)
            yield Batch(rows.ids, rows.vectors, _rows(texts, metadata)), bad.total

    ids = (name for names in source.ids() for name in names)
    return _copy(batches(), ids, index, -(-check.rows // batch), show_progress, add=add)


def fill_from_table(
    reader: TableReader,
    index: SealedIndex,
    *,
    id_column: str | None = None,
    drop: Sequence[str] = (),
    skip_bad: bool = False,
    add: bool = False,
    batch: int = 20_000,
    show_progress: bool | None = None,
) -> Filling:
    """Copy the rows of a table to ``index``, and verify the copy; see `fill`.

    The encoder of the index encodes the texts of a table without vectors. All other columns become metadata, without
    nulls. A CSV column becomes numbers only if every value prints as it is written and equal numbers are spelt alike:
    250.00, 007, 1e3, or 1.0 beside 1 keep the whole column as texts.

    Args:
        id_column: column of the ids; None takes ``id``, or the row numbers from 0.
        drop: columns to leave out.
        skip_bad, add: see `fill`.

    Raises:
        DataFileError: the table is damaged, lacks a column, repeats an id, has NaN or infinity in a column of
            metadata, or is protected already.
        InvalidInputError: neither the table has vectors nor the index an encoder.
    """
    if reader.metadata.get("protected") or SEALED_FIELD in reader.types:
        raise DataFileError(
            f"{reader.name} is a table that vecveil has protected. A sealed index contains exact vectors: copy the "
            "clean table.",
            code="E-DATA-FILE-PROTECTED",
            param="path",
        )
    if reader.embedding_column is None and index.encoder is None:
        raise InvalidInputError(
            f"{reader.name} has no vectors. Name the encoder of its texts with encoder= (--encoder), or the column of "
            "vectors with embedding_column= (--embedding-column).",
            param="encoder",
        )
    if id_column is None and ID in reader.types:
        id_column = ID
    for param, name in (("id_column", id_column), *(("drop", name) for name in drop)):
        if name is not None and name not in reader.types:
            raise missing_column(reader.name, param, name, reader.types)
    if add and id_column is None and index.exists():
        raise InvalidInputError(
            f"{reader.name} has no column of ids, and the numbers of its rows may be ids of the index. Name one with "
            "id_column= (--id-column).",
            param="id_column",
        )
    _check_dimension(index, reader.dimension)
    kept_columns = [name for name in reader.others if name not in (id_column, *drop)]
    numbers = set(kept_columns) if reader.format in ("csv", "tsv") else set()
    named = [] if id_column is None else [id_column]
    ids = {} if named else dict.fromkeys(map(str, range(reader.rows)))
    examined = [name for name in kept_columns if may_be_nan(reader.types[name])]
    checked = reader.select([*named, *numbers, *examined], texts=False, vectors=False).in_chunks(batch)
    whole: dict[str, set[type]] = {name: set() for name in numbers}
    for chunk in checked if named or numbers or examined else ():
        for name in examined:
            check_finite(chunk.columns[name], source=reader.name, column=name, first_row=chunk.first_row)
        ids.update(dict.fromkeys(_ids(chunk, id_column, reader.name)))
        for name in sorted(numbers):
            parsed = {value: printed_number(value) for value in chunk.columns[name] if value}
            # If two spellings of a number both print as written, one ends in .0.
            whole[name].update(type(number) for number in parsed.values() if number is not None and number % 1 == 0)
            if None in parsed.values() or len(whole[name]) == 2:
                numbers.remove(name)
    if len(ids) < reader.rows:
        raise DataFileError(
            f"{reader.name}: rows with the id of another row: {reader.rows - len(ids):,}. Name another column with "
            "id_column= (--id-column), or give each row its own id.",
            param="id_column",
        )
    empty = (None, "") if reader.format in ("csv", "tsv") else (None,)

    embedding, dimension = reader.embedding_column, reader.dimension
    lenient = embedding is not None and skip_bad
    columns_read = [*named, *kept_columns, *([str(embedding)] if lenient else [])]

    def batches() -> Iterator[tuple[Batch, int]]:
        for chunk in reader.select(columns_read, vectors=not lenient).in_chunks(batch):
            columns = {name: json_values(chunk.columns[name]) for name in kept_columns}
            for name in numbers:
                columns[name] = [printed_number(value) if value else None for value in columns[name]]
            records = [
                {name: values[i] for name, values in columns.items() if values[i] not in empty}
                for i in range(chunk.rows)
            ]
            X = np.empty((chunk.rows, 0), np.float32) if chunk.vectors is None else chunk.vectors
            if lenient:
                X = _with_nan(chunk.columns[str(embedding)], dimension or 0)
            texts = [None] * chunk.rows if chunk.texts is None else chunk.texts
            rows = Batch(_ids(chunk, id_column, reader.name), np.asarray(X, np.float32), _rows(texts, records))
            if lenient:
                good, bad = usable_rows(rows, dimension or 0)
                yield rows.rows(np.flatnonzero(good).tolist()), bad.total
            else:
                yield rows, 0

    return _copy(batches(), ids, index, -(-reader.rows // batch), show_progress, add=add)


def _with_nan(values: Any, dimension: int) -> npt.NDArray[np.floating[Any]]:
    """Return the vectors of a column; a row without a vector of ``dimension`` is NaN."""
    if isinstance(values, np.ndarray | list):
        return np.asarray(values, np.float64)
    values = getattr(values, "storage", values)
    there = pc.fill_null(pc.equal(pc.list_value_length(values), dimension), False)
    X = np.full((len(values), dimension), np.nan)
    X[there.to_numpy(zero_copy_only=False)] = (
        values.filter(there).flatten().to_numpy(zero_copy_only=False).reshape(-1, dimension)
    )
    return X


def _ids(chunk: Chunk, id_column: str | None, name: str) -> tuple[str, ...]:
    if id_column is None:
        return tuple(str(chunk.first_row + i) for i in range(chunk.rows))
    return tuple(ids_of(chunk.columns[id_column], source=name, first_row=chunk.first_row))


def _rows(texts: Sequence[str | None], metadata: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    return tuple({"text": text, "metadata": row} for text, row in zip(texts, metadata, strict=True))


def _check_dimension(index: SealedIndex, dimension: int | None) -> None:
    if index.encoder is not None and dimension is not None and index.encoder.dimension != dimension:
        raise IncompatibleError(
            f"The source contains vectors of {dimension} dimensions; the encoder {index.encoder.name} makes "
            f"{index.encoder.dimension}. Name the encoder that made the source.",
            code="E-INCOMPATIBLE-ENCODER",
            param="encoder",
        )


def _copy(
    batches: Iterable[tuple[Batch, int]],
    ids: Iterable[str],
    index: SealedIndex,
    total: int,
    show: bool | None,
    *,
    add: bool,
) -> Filling:
    """Write the rows of ``batches`` that the index does not already contain, and verify it.

    Their fields are ``text`` and ``metadata``; with each batch comes the number of rows left out. Vectors of
    dimension 0 stand for texts that the index encodes. ``ids`` are all ids of the source.
    """
    exists = index.exists()
    reads = not exists or index.reads
    if not reads and not add:
        raise KeyFileError(
            "This key adds rows and opens none, so that a copy cannot be compared with the source. To write all rows "
            "of the source unverified, pass add=True (--add).",
            param="key",
        )
    there = set(index.ids()) if exists and reads else set()
    foreign = there.difference(ids)
    if foreign and not add:
        raise StoreError(
            f"The index has {len(foreign):,} rows that the source lacks. To add the source to them, pass add=True "
            "(--add). To copy the source alone, name another folder as DEST, or delete these rows with "
            "`vecveil forget`.",
            param="dest",
        )
    sample, copied = Reservoir(_COMPARED, 0), set[str]()
    written = skipped = 0
    for rows, left_out in progress(batches, "Copying", total=total, show=show, unit="batch"):
        skipped += left_out
        sample.add(rows, np.ones(len(rows), np.bool_))
        copied.update(rows.ids)
        known = [i for i, name in enumerate(rows.ids) if name in there]
        stored_rows = index.get([rows.ids[i] for i in known]) if known else None
        n = rows.vectors.shape[1]
        if stored_rows is not None and n and stored_rows.vectors.shape[1] != n:
            raise IncompatibleError(
                f"The source contains vectors of {n} dimensions; the index has vectors of "
                f"{stored_rows.vectors.shape[1]}. Copy the source to a new index, or use vectors of the encoder of the "
                "index.",
                param="dest",
            )
        same = [] if stored_rows is None else _equal(stored_rows, rows.rows(known), index.precision)
        done = {known[k] for k in same}
        # A segment states for all its rows whether they have a text.
        for has_text in (True, False):
            new = [i for i, row in enumerate(rows.fields) if i not in done and (row["text"] is not None) is has_text]
            if new:
                index.add(
                    [str(rows.fields[i]["text"]) for i in new] if has_text else None,
                    ids=[rows.ids[i] for i in new],
                    vectors=np.ascontiguousarray(rows.vectors[new]) if rows.vectors.shape[1] else None,
                    metadata=[rows.fields[i]["metadata"] for i in new],
                )
                written += len(new)
    if not reads:
        return Filling(len(copied), written, skipped, 0)
    index.refresh(afresh=True)  # compare with the storage, not with local copies
    stored = set(index.ids()) - foreign
    if stored != copied or index.count() != len(copied) + len(foreign):
        raise StoreError(
            f"Verification failed: {len(copied - stored):,} rows of the source are missing in the index, which has "
            f"{len(stored - copied):,} others. Stop programs that write to either, and repeat the command.",
            code="E-STORE-INCOMPLETE",
            param="dest",
        )
    chosen = sample.sample(0)
    if len(_equal(index.get(list(chosen.ids), missing="skip"), chosen, index.precision)) != len(chosen):
        raise StoreError(
            "Verification failed: rows that were read back from the index differ from the source. Stop programs that "
            "write to either, and repeat the command.",
            code="E-STORE-INCOMPLETE",
            param="dest",
        )
    return Filling(len(copied), written, skipped, len(chosen))


def _equal(stored: Unsealed, rows: Batch | Sample, precision: str) -> list[int]:
    """Return the positions of the rows of ``stored`` that equal ``rows`` at ``precision``, in the same order."""
    if len(stored.ids) != len(rows):
        return []
    close = np.ones(len(rows), np.bool_)
    if len(rows) and rows.vectors.shape[1]:
        values = np.abs(rows.vectors)
        if precision == "int8":  # half a step, of which the largest value of a row has 127
            tolerance = values.max(axis=1, keepdims=True) / 253
        else:
            tolerance = 2.0**-10 * values + 2.0**-24
        close = (np.abs(stored.vectors - rows.vectors) <= tolerance).all(axis=1)
    return [
        k
        for k, row in enumerate(rows.fields)
        if close[k] and stored.texts[k] == row["text"] and stored.metadata[k] == row["metadata"]
    ]


def reconcile(index: SealedIndex, ids: Iterable[str]) -> Reconciliation:
    """Return the rows of ``index`` without a source among ``ids``, and the sources without a row."""
    sources = dict.fromkeys(ids)
    rows = dict.fromkeys(index.ids())
    return Reconciliation(
        len(rows),
        tuple(name for name in rows if name not in sources),
        tuple(name for name in sources if name not in rows),
    )


def forget(
    index: SealedIndex,
    ids: Iterable[str] | None,
    receipt: str | os.PathLike[str],
    *,
    name: str,
    where: Where | None = None,
    cache: str | os.PathLike[str] | None = None,
    texts: Sequence[str] = (),
) -> Erasure:
    """Delete rows, rewrite every segment that held them, and write a receipt.

    A killed run continues with the same call.

    Args:
        ids: ids of the rows; None selects rows by ``where``, with their older versions (see `SealedIndex.forget`).
        receipt: file of the `Erasure`, written before the first deletion and after the last check.
        name: public name of the index, for the receipt.
        cache: folder of the embedding cache, from which the texts of every version of the rows are deleted.
        texts: further texts to delete from it.

    Raises:
        StoreError: the storage does not answer, or the receipt is of a different list or index.
        InvalidInputError: no row has a field that ``where`` compares, or ``where`` is empty.
    """
    check_choice(ids, where, "forget")
    receipt = Path(receipt)
    if ids is not None:
        names = list(dict.fromkeys(ids))
        rows, listed = index.get(names, missing="skip"), {each.encode("utf-8", "surrogatepass"): each for each in names}
    else:
        # A run that was interrupted has perhaps deleted the only rows with these fields.
        current, versions, _ = index._matching(where, strict=not receipt.exists())
        names, rows, listed = sorted(versions), index.get(sorted(current), missing="skip"), {repr(where).encode(): ""}
    known = list(dict.fromkeys([*texts, *_texts_of(index, names)]))
    done = replace(
        begun(receipt, name, listed).with_own(
            rows=len(rows.ids), cached=None if cache is None else matching_texts(cache, known)
        ),
        ids=len(names),
        absent=len(names) - len(rows.ids),
        unmatched=0 if cache is None else rows.texts.count(None),
    )
    done.save(receipt)
    if cache is not None:
        matching_texts(cache, known, delete=True)
    if where is None:
        index.forget(names)
    elif names:
        index.forget(where=where)
    else:
        index._log.forget([])  # finishes what was interrupted
    index.refresh()
    left = len(set(index.ids()).intersection(names)) if where is None else len(index._matching(where, strict=False)[1])
    left += 0 if cache is None else matching_texts(cache, known)
    if left:
        raise StoreError(
            "Some of the rows are in the index or the embedding cache again: another program writes them. Stop it, and "
            "repeat the command.",
            code="E-STORE-DATABASE",
            param="ids",
        )
    read = "none is on the list" if where is None else "no version of any matches the condition"
    done = replace(
        done,
        finished=now(),
        compacted="Every segment that held a version of the rows was rewritten, and deleted.",
        unverified=tuple(unsearched(done, cache)),
        verified=(
            f"All {index.count():,} rows of the index were read again: {read}.",
            *([] if cache is None else [CACHE_CLEARED]),
        ),
        remains=(*REMAINS, *([CACHE_KEPT] if cache is None else [])),
    )
    done.save(receipt)
    return done


def _texts_of(index: SealedIndex, names: Sequence[str]) -> set[str]:
    """Return the texts of every version of these rows."""
    listed, texts = pa.array(names, pa.string()), set[str]()
    for part in index._log.refresh().parts.values():
        rows = part.holding(listed)[1]
        rows = rows[part.segment.array("has_text", np.uint8)[rows] != 0]
        texts.update(part.segment.strings("text", rows).to_pylist())
    return texts
