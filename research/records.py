"""Records of cells on disk: one file each, written when the cell is finished, and one file that gathers them.

An experiment's folder holds ``cells/*.json``, ``records.jsonl`` (the records of the last run's specification, one a
line) and ``spec.yaml``. Reading merges both; a record in ``cells`` takes precedence. Only a cell with the same
settings overwrites a record.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, ValidationError, convert

from research.experiment import Axis, Cell
from vecveil.errors import DataFileError
from vecveil.io import LockedError, exclusive, make_folders, parse_json, write_text
from vecveil.privacy.concepts.concept_file import read_text
from vecveil.schema import Positive, Record, Scalar

SCHEMA = "vecveil.experiment-cell/1"
_LONGEST_WAIT = 7 * 86_400.0
_LONGEST = 120  # bytes of a cell's name in a file name
_LARGEST, _LARGEST_RECORD = 1 << 28, 1 << 24  # bytes of a file, characters of a record


class Envelope(Record, frozen=True, tag_field="schema", tag=SCHEMA):
    """What every record has around ``found``, the result of its experiment."""

    cell: Annotated[dict[str, Axis], Meta(min_length=1)]
    settings: Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\Z")]  # part of a file name
    data: str | None
    found: Annotated[dict[str, Any], Meta(min_length=1)]
    commit: str | None
    machine: dict[str, Scalar]
    seconds: Positive
    finished: str
    quick: bool


class RecordFolder:
    """The records of one experiment; the first write creates the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def spec_path(self) -> Path:
        return self.folder / "spec.yaml"

    def put(self, cell: Cell, settings: str, record: Mapping[str, Any]) -> None:
        text = json.dumps({"schema": SCHEMA, **record}, indent=1) + "\n"
        write_text(self._path(cell, settings), text)

    def _path(self, cell: Cell, settings: str) -> Path:
        name = cell.name
        data = name.encode("utf-8", "surrogatepass")
        if (
            len(data) > _LONGEST or not name.isprintable()
        ):  # characters that a file system refuses; the hash distinguishes cells
            name = hashlib.sha256(data).hexdigest()[:24]
        return self.folder / "cells" / f"{name}-{settings}.json"

    def gather(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write records into one file, one a line, after saving its records of other cells as files."""
        kept = {_key(record) for record in records}
        others: dict[tuple[str, str], dict[str, Any]] = {}
        with contextlib.suppress(DataFileError):  # unreadable lines are not records
            self._add_gathered(others)
        for key in others.keys() - kept:
            cell = Cell.of(**others[key]["cell"])
            if not self._path(cell, key[1]).exists():
                self.put(cell, key[1], others[key])
        lines = [json.dumps(record, sort_keys=False) for record in records]
        write_text(self.folder / "records.jsonl", "".join(f"{line}\n" for line in lines))

    def put_failures(self, failed: Mapping[str, str]) -> None:
        """Write why cells of the last run failed; remove the file if none did."""
        path = self.folder / "failures.json"
        if failed:
            write_text(path, json.dumps(dict(failed), indent=1) + "\n")
        else:
            path.unlink(missing_ok=True)

    def failures(self) -> dict[str, str]:
        """Return the failed cells of the last run, and why."""
        path = self.folder / "failures.json"
        try:
            return convert(parse_json(_text(path)), dict[str, str]) if path.exists() else {}
        except (ValueError, RecursionError, ValidationError):
            raise DataFileError("failures.json: it is no list of failed cells. Remove it.", param="out") from None

    def read(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return every record by its cell's name and settings."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        self._add_gathered(found)
        for path in sorted((self.folder / "cells").glob("*.json")):
            self._add(found, _text(path), path, "file")
        return found

    def _add_gathered(self, found: dict[tuple[str, str], dict[str, Any]]) -> None:
        gathered = self.folder / "records.jsonl"
        if gathered.exists():
            for number, line in enumerate(_text(gathered).splitlines(), start=1):
                self._add(found, line, gathered, f"line {number}")

    def _add(self, found: dict[tuple[str, str], dict[str, Any]], text: str, path: Path, where: str) -> None:
        try:
            if len(text) > _LARGEST_RECORD:
                raise ValueError
            record = parse_json(text)
            Envelope.read(record)
            found[_key(record)] = record
        except (ValueError, TypeError, RecursionError):
            raise DataFileError(
                f"{path.relative_to(self.folder.parent)}: {where} is no record of schema {SCHEMA}. Remove it; the cell "
                "is then measured again.",
                param=where,
            ) from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for one run; raise `DataFileError` if another process of this machine holds it."""
        make_folders(self.folder)
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(exclusive(self.folder / ".lock", required=True))
            except LockedError:
                raise DataFileError(
                    f"experiment run: another process writes to `out` {self.folder.name!r}. Wait for it, or give "
                    "another --out.",
                    param="out",
                ) from None
            yield


def _text(path: Path) -> str:
    return read_text(path, owner="experiment", most=_LARGEST, param="out")


def _key(record: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name and the settings of a record's cell."""
    return Cell.of(**record["cell"]).name, record["settings"]


@contextlib.contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Wait until no other process of this machine holds the lock file beside ``path``, for a training's length."""
    with exclusive(path.with_name(f"{path.name}.lock"), seconds=_LONGEST_WAIT):
        yield
