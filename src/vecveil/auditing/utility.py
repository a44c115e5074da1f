"""What the protected vectors are still good for, on the audited texts themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vecveil.metrics import NeighbourTask, SimilarityTask, UtilityTask
from vecveil.metrics.tasks import UtilityRelease
from vecveil.types import Embeddings

__all__ = ["utility_record"]

STORE_ROWS = 5000


def utility_record(
    release: UtilityRelease, X: Embeddings, tasks: Sequence[UtilityTask], *, seed: int
) -> dict[str, dict[str, Any]]:
    """Return the ``utility`` object of an audit record.

    Every audit has similarity and neighbours of the texts themselves; ``tasks`` with labels come
    beside. Where a task has queries, they are measured noised and through the deterministic map.
    """
    rng = np.random.default_rng([seed, 1])
    rows = X if len(X) <= STORE_ROWS else X[np.sort(rng.choice(len(X), STORE_ROWS, replace=False))]
    every: list[UtilityTask] = []
    if len(rows) >= 20:
        every += [SimilarityTask.of(rows, seed=seed), SimilarityTask.of(rows, seed=seed, rank=True)]
        every.append(NeighbourTask(rows, seed=seed))
    every += list(tasks)

    record: dict[str, dict[str, Any]] = {}
    for task in every:
        for side in task.sides:
            key = task.key if side == "both" else f"{task.key}_trusted_queries"
            name = key
            while name in record:
                name = f"{key}_{1 + sum(k.startswith(key) for k in record)}"
            record[name] = task.to_record(release, rng, sides=side)
    return record
