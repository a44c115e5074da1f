"""The manifest of a folder: what was protected how, and which part of it stands in which file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vecveil.bulk.places import Folder
from vecveil.bulk.planning import Part
from vecveil.errors import DataFileError
from vecveil.io import write_bytes

__all__ = ["MANIFEST", "SCHEMA", "Manifest", "PartResult"]

MANIFEST = "_manifest.json"
"""Names that begin with an underscore are no data to readers of folders of Parquet files."""
SCHEMA = "vecveil.manifest/1"
_LARGEST = 2**28


@dataclass(frozen=True)
class PartResult:
    """A finished part.

    Attributes:
        index: of the part.
        rows: written; a part without rows has no file.
        bytes: of the file.
        sha256: of the file.
    """

    index: int
    rows: int
    bytes: int
    sha256: str


@dataclass
class Manifest:
    """What a run does, and what of it is done.

    Attributes:
        job: what is done to each row; see `BulkJob.to_record`.
        parts: the records of all parts, in order.
        results: of those that are finished, by index.
        resumed: how many parts were there when this run began; not in the record.
    """

    job: dict[str, Any]
    parts: list[dict[str, Any]]
    results: dict[int, PartResult] = field(default_factory=dict)
    resumed: int = field(default=0, compare=False)

    @classmethod
    def of(cls, job: Mapping[str, Any], parts: Sequence[Part]) -> Manifest:
        """Return the manifest of a run that has not begun."""
        return cls(dict(job), [part.to_record() for part in parts])

    @property
    def run(self) -> str:
        """The fingerprint of job and parts, which each output file holds too."""
        whole = json.dumps([SCHEMA, self.job, self.parts], sort_keys=True)
        return hashlib.sha256(whole.encode()).hexdigest()[:32]

    @property
    def complete(self) -> bool:
        """Whether no part is missing."""
        return len(self.results) == len(self.parts)

    @property
    def rows(self) -> int:
        """Rows of the finished parts."""
        return sum(result.rows for result in self.results.values())

    def to_record(self) -> dict[str, Any]:
        """Return the manifest as JSON values."""
        finished = {index: vars(result) for index, result in self.results.items()}
        return {
            "schema": SCHEMA,
            "run": self.run,
            "complete": self.complete,
            "rows": self.rows,
            "job": self.job,
            "parts": [
                {
                    **part,
                    **{k: v for k, v in finished.get(part["index"], {}).items() if k != "index"},
                }
                for part in self.parts
            ],
        }

    def write(self, folder: Folder) -> None:
        """Write it into ``folder``, atomically."""
        text = json.dumps(self.to_record(), indent=1)
        with folder.writing(MANIFEST) as path:
            write_bytes(path, text.encode())

    @classmethod
    def read(cls, folder: Folder) -> Manifest | None:
        """Return the manifest of ``folder``, or None if there is none.

        Raises:
            DataFileError: it is damaged, or of another schema.
        """
        if not folder.has(MANIFEST):
            return None
        raw = folder.read(MANIFEST, _LARGEST + 1)
        try:
            if len(raw) > _LARGEST:
                raise ValueError
            record = json.loads(raw)
            if record["schema"] != SCHEMA:
                raise ValueError
            parts, results = [], {}
            for part in record["parts"]:
                result = {key: part.pop(key, None) for key in ("rows", "bytes", "sha256")}
                if result["sha256"] is not None:
                    results[int(part["index"])] = PartResult(
                        int(part["index"]), int(result["rows"]), int(result["bytes"]), str(result["sha256"])
                    )  # fmt: skip
                # A name that leads out of the folder is in no listing of it; another type is in none either.
                if type(part["index"]) is not int or not isinstance(part["output"], str):
                    raise TypeError
                parts.append(part)
            return cls(dict(record["job"]), parts, results)
        except (ValueError, KeyError, TypeError, RecursionError, AttributeError, OverflowError):
            raise DataFileError.of("protect", "out", f"a folder whose {MANIFEST} is of schema {SCHEMA}",
                                   "another one", "It says which rows stand in which file.",
                                   "Give another folder.") from None  # fmt: skip
