"""Checkpoints: what an attack has learnt, kept in a folder so that it need not learn it again.

A folder holds ``attack.json`` (whose attack it is) and, written before it, the state: the arrays of a
dataclass in ``state.safetensors``, or whatever files the state writes itself. ``attack.json`` is written last, so a
folder without it is unfinished. Nothing that is read here can run code.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from vecveil.errors import DataFileError, message
from vecveil.io import atomic_path, write_text

__all__ = ["SCHEMA", "Checkpoint"]

SCHEMA = "vecveil.attack/1"
_SCALARS = (bool, int, float, str, type(None))


class Checkpoint:
    """The folder of one attack.

    Args:
        folder: made, readable by its owner only, at the first write: what an attack has learnt from texts
            says something of them.
        identity: what must agree before a state is used: attack, dimensions, settings.
    """

    def __init__(self, folder: str | os.PathLike[str], identity: Mapping[str, Any]) -> None:
        self.folder = Path(folder)
        self.identity = dict(identity)

    def make(self) -> Path:
        """Return the folder, made if it is not there."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else type(error).__name__
            raise DataFileError.of("Checkpoint", "checkpoint", "a folder that can be written",
                                   f"{self.folder.name}: {reason}") from error  # fmt: skip
        return self.folder

    def begin(self) -> None:
        """Say whose the folder is before anything is learnt; what another attack has begun is refused.

        Raises:
            DataFileError: it was begun by another attack, or with other evidence, settings or seed.
        """
        path = self.make() / "begun.json"
        if path.is_file():
            try:
                found = dict(json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError, TypeError, RecursionError) as error:
                raise self._damaged() from error
            self._compare(found)
        else:
            write_text(path, json.dumps(self.identity, indent=1) + "\n")

    def _compare(self, found: Mapping[str, Any]) -> None:
        for key, wanted in self.identity.items():
            if found.get(key) != wanted:
                raise DataFileError.of("Checkpoint", "checkpoint", f"one with {key} {_short(wanted)}",
                                       f"one with {key} {_short(found.get(key))}",
                                       "What was learnt for other vectors, words or settings cannot be used here.",
                                       "Give another folder, or remove this one.")  # fmt: skip

    def load(self, kind: type[Any]) -> Any:
        """Return the finished state in the folder, or None if there is none.

        Raises:
            DataFileError: it is of another attack, dimension, vocabulary or setting, or damaged.
        """
        path = self.folder / "attack.json"
        if not path.is_file():
            return None
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            found, values = dict(record["identity"]), dict(record["values"])
            schema = record["schema"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._damaged() from error
        if schema != SCHEMA:
            raise DataFileError.of(
                "Checkpoint", "checkpoint", f"of the schema {SCHEMA!r}", repr(str(schema)[:40])
            )
        self._compare(found)
        try:
            if hasattr(kind, "load"):
                return kind.load(self.folder)
            from safetensors.numpy import load_file

            return _build(kind, load_file(str(self.folder / "state.safetensors")), values, "")
        except DataFileError:
            raise
        except Exception as error:  # safetensors and torch raise their own
            raise self._damaged() from error

    def save(self, state: Any) -> None:
        """Write ``state``, then the file that says it is finished."""
        self.make()
        values: dict[str, Any] = {}
        if hasattr(state, "save"):
            state.save(self.folder)
        else:
            arrays: dict[str, Any] = {}
            _collect(state, "", arrays, values)
            from safetensors.numpy import save_file

            with atomic_path(self.folder / "state.safetensors", mode=0o600) as temporary:
                save_file(arrays, str(temporary))
        record = {"schema": SCHEMA, "identity": self.identity, "values": values}
        write_text(self.folder / "attack.json", json.dumps(record, indent=1) + "\n")

    def _damaged(self) -> DataFileError:
        return DataFileError(
            message("Checkpoint", "checkpoint", "a folder that an attack has written",
                    f"{self.folder.name}, which cannot be read as one", fix="Remove the folder.")
        )  # fmt: skip


def _short(value: Any) -> str:
    return str(value)[:60]


def _collect(state: Any, prefix: str, arrays: dict[str, Any], values: dict[str, Any]) -> None:
    """Put the arrays and scalars of a dataclass, and of those inside it, into flat dictionaries."""
    for each in dataclasses.fields(state):
        value, name = getattr(state, each.name), prefix + each.name
        if isinstance(value, np.ndarray):
            arrays[name] = np.ascontiguousarray(value)
        elif isinstance(value, _SCALARS):
            values[name] = value
        elif isinstance(value, np.generic):
            values[name] = value.item()
        elif isinstance(value, tuple):
            values[name] = list(value)
        elif hasattr(value, "to_arrays"):
            arrays.update({f"{name}/{key}": array for key, array in value.to_arrays().items()})
        else:
            _collect(value, f"{name}.", arrays, values)


def _build(
    kind: type[Any], arrays: Mapping[str, Any], values: Mapping[str, Any], prefix: str
) -> Any:
    hints = get_type_hints(kind)
    given: dict[str, Any] = {}
    for each in dataclasses.fields(kind):
        name = prefix + each.name
        if name in arrays:
            given[each.name] = arrays[name]
        elif name in values:
            value = values[name]
            value = tuple(value) if isinstance(value, list) else value
            kind_of = hints[each.name]
            if kind_of in _SCALARS and not isinstance(value, kind_of):
                raise TypeError(name)
            given[each.name] = value
        elif hasattr(hints[each.name], "of_arrays"):
            own = {
                key[len(name) + 1 :]: a for key, a in arrays.items() if key.startswith(f"{name}/")
            }
            given[each.name] = hints[each.name].of_arrays(own)
        else:
            given[each.name] = _build(hints[each.name], arrays, values, f"{name}.")
    return kind(**given)
