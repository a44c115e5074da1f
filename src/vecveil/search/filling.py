"""Copy a vector database into a sealed index, and verify the copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.databases.migrating import (
    MigrationOptions,
    SourceCheck,
    check_source,
    texts_and_metadata,
)
from vecveil.databases.store import VectorStore
from vecveil.databases.survey import Reservoir, usable_rows
from vecveil.errors import IncompatibleError, StoreError
from vecveil.runtime import progress
from vecveil.sealing.sealer import Unsealed
from vecveil.search.sealed_index import SealedIndex

_COMPARED = 1000  # rows that are read back
_RELATIVE, _ABSOLUTE = 2.0**-10, 2.0**-24  # of float16


@dataclass(frozen=True)
class Filling:
    """Counts of a finished and verified copy.

    Attributes:
        rows: rows of the source that the index holds.
        written: those that this run wrote; the others were there already.
        skipped: bad rows that were left out.
        compared: rows whose vector, text and metadata were read back and compared.
    """

    rows: int
    written: int
    skipped: int
    compared: int

    def to_record(self) -> dict[str, int]:
        """Return the counts as JSON values."""
        return asdict(self)


def fill(
    source: VectorStore,
    index: SealedIndex,
    *,
    drop: Sequence[str] = (),
    skip_bad: bool = False,
    batch: int = 20_000,
    on_checked: Callable[[SourceCheck], None] | None = None,
    show_progress: bool | None = None,
) -> Filling:
    """Copy the rows of ``source`` with exact vectors, texts and all fields to ``index``, and verify the copy.

    A repeated call leaves the rows that the index has already, with equal content, and writes the others.

    Args:
        drop: fields to leave out.
        skip_bad: leave out rows without a finite vector of the right dimension; otherwise they stop the copy.
        on_checked: called with the check of the source before anything is written.

    Raises:
        StoreError: the source has rows that cannot be copied, or changed meanwhile; or the index holds other rows.
        IncompatibleError: the index or its encoder has another dimension.
    """
    options = MigrationOptions(seal=True, drop=tuple(drop), skip_bad=skip_bad)
    check = check_source(source, None, options, batch, show_progress)
    dimension = check.info.dimension
    if index.encoder is not None and index.encoder.dimension not in (None, dimension):
        raise IncompatibleError(
            f"The source holds vectors of {dimension} dimensions; the encoder {index.encoder.name} makes "
            f"{index.encoder.dimension}. Name the encoder that made the source.",
            code="E-INCOMPATIBLE-ENCODER", param="encoder",
        )  # fmt: skip
    there = set(index.ids()) if index.count() else set()
    if foreign := there - {name for names in source.ids() for name in names}:
        raise StoreError(
            f"The index has {len(foreign):,} rows that the source lacks. Name another folder as DEST, or delete "
            "these rows with `vecveil reconcile` and `vecveil forget`.", code="E-STORE", param="dest",
        )  # fmt: skip
    if on_checked is not None:
        on_checked(check)
    sample, copied = Reservoir(_COMPARED, 0), set[str]()
    written = skipped = 0
    total = -(-check.rows // batch)
    for part in progress(source.every_row(batch), "copy", total=total, show=show_progress, unit="batch"):
        good, bad = usable_rows(part, dimension)
        if bad.total and not skip_bad:
            raise StoreError(
                f"The source got bad rows meanwhile ({bad}): {bad.named}. Correct them, or omit them with --skip-bad.",
                code="E-STORE", param="source",
            )  # fmt: skip
        skipped += bad.total
        sample.add(part, good)
        rows = part.rows(np.flatnonzero(good).tolist())
        copied.update(rows.ids)
        texts, metadata = texts_and_metadata(rows.fields, check.carried, check.withheld)
        known = [i for i, name in enumerate(rows.ids) if name in there]
        stored = index.get([rows.ids[i] for i in known]) if known else None
        same = set() if stored is None else _equal(stored, known, rows.vectors, texts, metadata)
        # A segment states for all its rows whether they have a text.
        for has_text in (True, False):
            new = [i for i, text in enumerate(texts) if i not in same and (text is not None) is has_text]
            if new:
                index.add(
                    [str(texts[i]) for i in new] if has_text else None, ids=[rows.ids[i] for i in new],
                    vectors=np.ascontiguousarray(rows.vectors[new]), metadata=[metadata[i] for i in new],
                )  # fmt: skip
                written += len(new)
    index.refresh(afresh=True)  # what the storage holds is compared, not local copies
    found = set(index.ids())
    chosen = sample.sample(dimension)
    texts, metadata = texts_and_metadata(chosen.fields, check.carried, check.withheld)
    read = index.get(list(chosen.ids), missing="skip")
    everything = list(range(len(chosen)))
    if found != copied or index.count() != len(copied):
        raise StoreError(
            f"Verification failed: {len(copied - found):,} rows of the source are missing in the index, which has "
            f"{len(found - copied):,} others. Stop programs that write to either, and repeat the command.",
            code="E-STORE-INCOMPLETE", param="dest",
        )  # fmt: skip
    if len(_equal(read, everything, chosen.vectors, texts, metadata)) != len(chosen):
        raise StoreError(
            "Verification failed: rows that were read back from the index differ from the source. Stop programs that "
            "write to either, and repeat the command.", code="E-STORE-INCOMPLETE", param="dest",
        )  # fmt: skip
    return Filling(len(copied), written, skipped, len(chosen))


def _equal(
    stored: Unsealed, at: Sequence[int], vectors: npt.NDArray[np.float32], texts: Sequence[str | None],
    metadata: Sequence[dict[str, Any]],
) -> set[int]:  # fmt: skip
    """Return those of the positions ``at`` whose row equals the one of ``stored``, in order."""
    if len(stored.ids) != len(at):
        return set()
    expected = vectors[list(at)]
    close = (np.abs(stored.vectors - expected) <= _RELATIVE * np.abs(expected) + _ABSOLUTE).all(axis=1)
    return {
        i for k, i in enumerate(at)
        if close[k] and stored.texts[k] == texts[i] and stored.metadata[k] == metadata[i]
    }  # fmt: skip
