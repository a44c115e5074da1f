"""Checkpoint of a training: one file with everything that its next step depends on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import DataFileError
from vecveil.io import atomic_path

Array = npt.NDArray[Any]


class StateFile:
    """The checkpoint of a training: arrays, and in the header of the file its identity and a record.

    The file is replaced atomically, so a crash leaves this state or the one before, and only its owner can read it: a
    state reveals something of the texts. Reading it cannot run code.

    Args:
        path: of the safetensors file; its folder is created at the first write.
        identity: what must agree before a training resumes, such as settings, seed and digests of the data. JSON-ready.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path = path
        # Tuples become lists, as in the file.
        self.identity: dict[str, Any] = json.loads(json.dumps(dict(identity)))

    def load(self) -> tuple[dict[str, Array], Any] | None:
        """Return the arrays and the record, or None without a file.

        Raises:
            DataFileError: the file is damaged, or of a training with another identity.
        """
        from safetensors import safe_open

        try:
            if not self.path.exists():
                return None
            with safe_open(str(self.path), framework="numpy") as file:
                header = file.metadata()
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            identity, record = dict(json.loads(header["identity"])), json.loads(header["record"])
        except Exception as error:  # safetensors has its own exceptions
            raise self.damaged() from error
        check_identity(identity, self.identity, self.path.parent)
        return arrays, record

    def save(self, arrays: Mapping[str, Array], record: Any) -> None:
        """Replace the file."""
        from safetensors import SafetensorError
        from safetensors.numpy import save_file

        header = {"identity": json.dumps(self.identity), "record": json.dumps(record)}
        try:
            make_folder(self.path.parent)
            with atomic_path(self.path, mode=0o600) as temporary:
                # A copy in C order: transposed views would be written as they lie in memory.
                state = {name: np.asarray(array, order="C") for name, array in arrays.items()}
                save_file(state, str(temporary), metadata=header)
        except (OSError, SafetensorError) as error:
            raise not_writable(self.path.parent, error) from error

    def damaged(self) -> DataFileError:
        """Return the error for an unreadable checkpoint."""
        got = f"{self.path.parent.name}, which cannot be read as one"
        return checkpoint_error("a folder that a training has written", got, "Remove the folder.")


def check_identity(stored: Mapping[str, Any], expected: Mapping[str, Any], folder: Path) -> None:
    """Raise `DataFileError` if a checkpoint in ``folder`` is of another training."""
    for key, value in expected.items():
        if stored.get(key) != value:
            raise checkpoint_error(
                f"one with {key} {str(value)[:60]}", f"one with {key} {str(stored.get(key))[:60]}",
                f"Give another folder, or remove {str(folder)[:200]}.",
            )  # fmt: skip


def make_folder(folder: Path) -> None:
    """Create the folder of a checkpoint, readable by its owner only."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(folder, error) from error


def not_writable(folder: Path, error: Exception) -> DataFileError:
    """Return the error for a folder that no checkpoint can be written into."""
    known = isinstance(error, OSError) and error.errno
    reason = os.strerror(known) if known else type(error).__name__
    return checkpoint_error("a writable folder", f"{folder.name}: {reason}")


def checkpoint_error(constraint: str, got: str, fix: str = "") -> DataFileError:
    """Return the error for a checkpoint that cannot be used."""
    return DataFileError.of("Checkpoint", "checkpoint", constraint, got, fix=fix, code="E-CHECKPOINT")
