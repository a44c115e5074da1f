"""Arguments for the workers of Ray and Spark: a protector and names of keys, no secrets."""

from __future__ import annotations

import os
import pickle
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

from vecveil.bulk import ArrowProtection, BulkJob
from vecveil.bulk.unsealing import Unsealing
from vecveil.errors import InvalidInputError, ReleaseError, VecveilError, unknown_name
from vecveil.protector import Protector
from vecveil.randomness.keyed import placed_source
from vecveil.sealing import Sealer

__all__ = ["Sealed", "anywhere", "batch_job", "placed_key", "run_batch", "unsealing_anywhere"]

_OF_FILES = {"protector", "format", "encoding", "delimiter", "seal_uuid"}
_BATCH_OPTIONS = tuple(field.name for field in fields(BulkJob) if field.name not in _OF_FILES)
"""Options of `BulkJob` that apply to batches."""


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
    """Return a job that every worker can open."""
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
    """Return an `Unsealing` that every worker can open."""
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
    # Pinned: all workers use one key, even if the file gets a newer one. Opened here for its errors.
    job = job.pinned()
    if job.encoder is not None and os.path.exists(job.encoder):
        job = replace(job, encoder=os.path.abspath(job.encoder))
    key, seal_key = (None if source is None else placed_source(source) for source in (job.key, job.seal_key))
    return replace(job, key=key, seal_key=seal_key)


@lru_cache(maxsize=1)
def _opened(work: BulkJob | Unsealing) -> ArrowProtection | Unsealing:
    """Return this process's work, which loads protector, keys and encoder once."""
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
