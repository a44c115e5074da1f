"""Looks at a store: what it holds, what lies beside the vectors, whether they look protected."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vecveil.databases.findings import Finding, findings_of
from vecveil.databases.sampling import Reservoir, Sample
from vecveil.databases.signs import Signs, signs_of_protection
from vecveil.databases.store import Batch, StoreInfo, VectorStore
from vecveil.databases.survey import Survey
from vecveil.runtime import progress
from vecveil.validation import check_count

__all__ = ["SCHEMA", "Scan", "scan"]

SCHEMA = "vecveil.scan/1"
_OWNER = "scan"


@dataclass(frozen=True, eq=False)
class Scan:
    """What was found in a store.

    Attributes:
        info: what the store says of itself.
        survey: what was counted.
        signs: of protection, in the sample.
        sample: random rows, texts included; in memory only.
        complete: whether all rows were looked at.
        normalises: whether the store itself brings vectors to norm 1.
        seed: of the sample.
    """

    info: StoreInfo
    survey: Survey = field(repr=False)
    signs: Signs
    sample: Sample
    complete: bool
    normalises: bool
    seed: int

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong, the worst first."""
        return findings_of(self)

    def to_record(self, *, name: str | None = None) -> dict[str, Any]:
        """Return what was found as JSON values: counts, shares and names of fields (docs/formats.md)."""
        info = self.info
        return {
            "schema": SCHEMA,
            "store": {
                "kind": info.kind, "name": name or info.name, "count": info.count,
                "dimension": self.survey.dimension, "metric": info.metric,
            },
            "complete": self.complete,
            **self.survey.to_record(),
            "protection": self.signs.to_record(),
            "sample": {"rows": len(self.sample), "seed": self.seed},
            "findings": [one.to_record() for one in self.findings],
        }  # fmt: skip


def scan(
    store: VectorStore,
    *,
    sample: int = 2000,
    limit: int | None = None,
    batch: int = 1000,
    seed: int = 0,
    among: Container[str] | None = None,
    show_progress: bool | None = None,
) -> Scan:
    """Return what ``store`` holds; it is read once, in batches, and nothing is written.

    Args:
        sample: rows to draw at random; they are kept in memory with their fields.
        limit: look at so many rows at most, the first in the store's order.
        batch: rows to read at once.
        seed: of the sample.
        among: ids from which the sample is drawn; None for all rows.

    Raises:
        StoreError: the store is not there or went away.
        InvalidInputError: an argument is out of range.
    """
    for name, value in (("sample", sample), ("batch", batch)):
        check_count(value, owner=_OWNER, param=name)
    if limit is not None:
        check_count(limit, owner=_OWNER, param="limit")
    info = store.info()
    wanted = info.count if limit is None else min(info.count, limit)
    survey: Survey | None = None
    kept = Reservoir(sample, seed, among)
    steps = progress(
        store.batches(batch), "scan", total=-(-wanted // batch), show=show_progress, unit="batch"
    )
    complete = True
    for rows in steps:
        if survey is None:
            survey = Survey(info.dimension or rows.vectors.shape[1])
        room = None if limit is None else limit - survey.rows
        if room is not None and len(rows) > room:
            complete = False
            if not room:
                break
            rows = Batch(rows.ids[:room], rows.vectors[:room], rows.fields[:room])
        kept.add(rows, survey.add(rows))
    survey = survey or Survey(info.dimension)
    drawn = kept.sample(survey.dimension)
    signs = signs_of_protection(np.ascontiguousarray(drawn.vectors))
    return Scan(info, survey, signs, drawn, complete, store.normalises, seed)
