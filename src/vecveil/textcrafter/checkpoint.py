"""The checkpoint of a training: a folder whose one file holds all that the next epoch depends on.

``policy.safetensors`` has weights, Adam's moments, the generator's state and, in its header, whose it is and the
curves so far; it is replaced as a whole after every epoch, so that a crash leaves the last epoch or the one before.
``training.json`` repeats the header for people and is never read. Nothing that is read here can run code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import DataFileError, InvalidInputError, message
from vecveil.io import write_bytes
from vecveil.textcrafter.curves import LearningCurves

__all__ = ["SCHEMA", "PolicyCheckpoint", "digest", "forget_checkpoint"]

_STATE, _RECORD = "policy.safetensors", "training.json"

SCHEMA = "vecveil.policy-training/1"
_OWNER = "train_policy"

Array = npt.NDArray[Any]


def digest(*arrays: Array) -> str:
    """Return SHA-256 over dtypes, shapes and values."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


class PolicyCheckpoint:
    """The folder of one training.

    Args:
        folder: made, readable by its owner only, at the first write.
        identity: what must agree before training goes on from it: settings, seed, digests of the data. JSON-ready.
    """

    def __init__(self, folder: str | os.PathLike[str], identity: Mapping[str, Any]) -> None:
        if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
            got = "an empty name" if isinstance(folder, str) else type(folder).__name__
            raise InvalidInputError.of(_OWNER, "checkpoint", "the path of a folder", got)
        self.folder = Path(folder)
        self.identity: dict[str, Any] = json.loads(json.dumps(dict(identity)))

    @property
    def _path(self) -> Path:
        return self.folder / _STATE

    def load(self) -> tuple[dict[str, Array], LearningCurves] | None:
        """Return the arrays and curves of the last epoch, or None if there is none yet.

        Raises:
            DataFileError: it is of other data, settings or another seed, or damaged.
        """
        try:
            if not self._path.exists():
                return None
        except (OSError, ValueError) as error:  # no permission, a name too long, a zero byte
            raise self.damaged() from error
        from safetensors import safe_open

        try:
            with safe_open(str(self._path), framework="numpy") as file:
                header = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            schema = header["schema"]
            found = dict(json.loads(header["identity"]))
            curves = LearningCurves.from_record(json.loads(header["curves"]))
            if not curves.epochs:
                raise ValueError("epochs")
        except Exception as error:  # safetensors raises its own
            raise self.damaged() from error
        if schema != SCHEMA:
            raise DataFileError.of(
                _OWNER, "checkpoint", f"of the schema {SCHEMA!r}", repr(schema)[:40]
            )
        self._compare(found)
        return arrays, curves

    def _compare(self, found: Mapping[str, Any]) -> None:
        for key, wanted in self.identity.items():
            other = found.get(key)
            if other == wanted:
                continue
            if isinstance(wanted, dict) and isinstance(other, dict):  # say which setting
                key, wanted, other = next(
                    (name, wanted.get(name), other.get(name))
                    for name in sorted({*wanted, *other})
                    if wanted.get(name) != other.get(name)
                )
            raise DataFileError(
                message(_OWNER, "checkpoint", f"one with {key} {str(wanted)[:60]}",
                        f"one with {key} {str(other)[:60]}",
                        "A training goes on only with the data, settings and seed that it began with.",
                        "Give another folder (on the command line: another --out), or remove "
                        f"{str(self.folder)[:200]}.")
            )  # fmt: skip

    def save(self, arrays: Mapping[str, Array], curves: LearningCurves) -> None:
        """Replace the folder's file by this epoch's."""
        from safetensors.numpy import save as to_bytes

        record = curves.to_record()
        header = {
            "schema": SCHEMA,
            "identity": json.dumps(self.identity),
            "curves": json.dumps(record),
        }
        whole = {"schema": SCHEMA, "identity": self.identity, "curves": record}
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Written by us, not by safetensors: a full disk is then an OSError.
            write_bytes(self._path, to_bytes(dict(arrays), metadata=header), mode=0o600)
            text = json.dumps(whole, indent=1) + "\n"
            write_bytes(self.folder / _RECORD, text.encode(), mode=0o600)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else type(error).__name__
            raise DataFileError.of(_OWNER, "checkpoint", "a folder that can be written",
                                   f"{self.folder.name}: {reason}") from error  # fmt: skip

    def damaged(self) -> DataFileError:
        """Return the error for a file that cannot be read as one of these."""
        return DataFileError(
            message(_OWNER, "checkpoint", "a folder that a training has written",
                    f"{self.folder.name}, which cannot be read as one", fix="Remove the folder.")
        )  # fmt: skip


def forget_checkpoint(folder: Path) -> None:
    """Remove the files of a finished training, and the folder if nothing else is in it."""
    for name in (_STATE, _RECORD):
        (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty: what else is there is somebody's own
        folder.rmdir()
