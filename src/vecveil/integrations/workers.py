"""Job arguments for the workers of Ray and Spark: a protector and names of keys, no secrets."""

from __future__ import annotations

import os
import pickle
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

from vecveil.bulk import ArrowProtection, BulkJob
from vecveil.errors import InvalidInputError, ReleaseError, VecveilError, unknown_name
from vecveil.protector import Protector

__all__ = ["Sealed", "anywhere", "batch_job", "protect_batch"]

_ENVIRONMENT = "env:"
_OF_FILES = {"protector", "format", "encoding", "delimiter"}
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


def batch_job(
    protector: Protector | str | os.PathLike[str], options: dict[str, Any], *, owner: str
) -> BulkJob:
    """Return a job that every worker can open.

    Raises:
        InvalidInputError: an unknown option, a key instead of its source, or raised by `BulkJob`.
        ProtectorFileError, KeyFileError: the protector or key cannot be read.
    """
    for name in options:
        if name not in _BATCH_OPTIONS:
            raise unknown_name(owner, "options", _BATCH_OPTIONS, name)
    key = options.get("key")
    if key is not None and not isinstance(key, str | os.PathLike):
        raise InvalidInputError.of(owner, "key", "the path of a key file, or env:NAME", type(key).__name__,
                                   "Arguments of workers are stored, and spilled to disks.",
                                   "Put the key where every worker finds it, and give its name.")  # fmt: skip
    given = dict(options)
    if key is not None:
        given["key"] = os.fspath(key)
    if given.get("carry") is not None:
        # Hashable, for the cache of `_protection`.
        given["carry"] = tuple(given["carry"])
    return anywhere(BulkJob.of(protector, **given))


def anywhere(job: BulkJob) -> BulkJob:
    """Return ``job`` with absolute paths and the id of the current key."""
    # Opened here for its errors and for the key id: all workers then use one key, even if the file gets a newer one.
    opened = job.opened()
    encoder = job.encoder or opened.protector.encoder_info.name
    if encoder is not None and os.path.exists(encoder):
        job = replace(job, encoder=os.path.abspath(encoder))
    if job.key is not None and opened.key is not None:
        named = job.key.startswith(_ENVIRONMENT)
        key = job.key if named else os.path.abspath(job.key)
        job = replace(job, key=key, key_id=opened.key.key_id)
    return job


@lru_cache(maxsize=1)
def _protection(job: BulkJob) -> ArrowProtection:
    """Return this process's protection, which loads protector, key and encoder once."""
    return ArrowProtection(job)


def protect_batch(job: BulkJob, rows: Any) -> Any:
    """Return the protected rows of a ``pyarrow.Table`` or ``RecordBatch`` as a table.

    Raises:
        VecveilError: raised by `ArrowProtection`; ReleaseError for any other error.
    """
    try:
        return _protection(job)(rows)
    except VecveilError as error:
        raise error.with_traceback(None) from None
    except Exception as error:  # engines log errors, and messages of libraries may quote values
        raise ReleaseError.of("protect", "rows", "protected", f"the error {type(error).__name__}",
                              "Nothing of this batch was released.") from None  # fmt: skip
