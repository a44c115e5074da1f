"""The manifest of an output folder: what was protected how, resuming and verification."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vecveil.bulk.places import Folder, Part
from vecveil.errors import DataFileError, VecveilError, message
from vecveil.io import is_temporary_of, write_bytes
from vecveil.runtime import progress

__all__ = [
    "LOCK",
    "MANIFEST",
    "SCHEMA",
    "Manifest",
    "PartResult",
    "check_files",
    "check_same",
    "columns_of",
    "forget_gone",
    "further_files",
    "of_a_start",
    "verify",
]

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


LOCK = "_lock"
_NAMES = {
    "key_check": "another noise key",
    "key_id": "another noise key",
    "randomness": "noise of another kind",
    "noise": "noise of another kind",
    "protected": "noise of another kind",
    "protector": "another protector",
    "vecveil": "another version of vecveil",
    "carry": "another choice of columns to carry",
    "keep_text": "another choice of --keep-text",
    "text_column": "another column of texts",
    "embedding_column": "another column of vectors",
    "id_column": "another column of ids",
}
_OF_A_PROTECTOR = {"method", "concept", "encoder", "guarantee", "conditional_on", "not_promised"}
"""What a protector, or a key, changes by itself."""


def of_a_start(name: str) -> bool:
    """Return whether a run that was killed before its manifest was there may have left this file."""
    return name == LOCK or is_temporary_of(MANIFEST, name)


def further_files(names: Iterable[str], manifest: Manifest) -> list[str]:
    """Return the data files among ``names`` that the manifest does not know."""
    found = set(names) - {part["output"] for part in manifest.parts}
    return sorted(name for name in found if not name.startswith(("_", ".")))


def check_same(known: Manifest, now: Manifest) -> None:
    """Refuse to go on with other rows, another protector or other options."""
    if known.run == now.run:
        return
    names = sorted(key for key in {*known.job, *now.job} if known.job.get(key) != now.job.get(key))
    got = _told(names, known.job, now.job) if names else "other inputs, or inputs that changed"
    fix = "Give another folder."
    if not known.results:
        fix = f"Nothing is in it yet: remove its {MANIFEST}, or give another folder."
    elif not names:
        fix = "Protect what is new or repaired alone, into another folder: what is here is released already."
    raise DataFileError.of("protect", "out", f"the folder of this run, as its {MANIFEST} says", got,
                           "Rows of both would stand side by side.", fix)  # fmt: skip


def _told(names: list[str], former: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return in words which options differ."""
    if former.get("key_check") is None or now.get("key_check") is None:  # with a key, and without
        names = [name for name in names if name not in ("key_check", "key_id")] or names
    own = [name for name in names if name not in _OF_A_PROTECTOR] or names
    known = dict.fromkeys(_NAMES[name] for name in own if name in _NAMES)
    others = [name for name in own if name not in _NAMES]
    if others:
        known[f"another value of {', '.join(others)}"] = None
    return ", ".join(known)


def check_files(manifest: Manifest, here: Mapping[str, int]) -> None:
    """Refuse a folder with files that are not of the run, or with parts that are not as they were written.

    Args:
        here: names of its files, with their bytes.
    """
    if strange := further_files(here, manifest):
        raise DataFileError.of("protect", "out", "a folder of this run alone",
                               f"one with other files, such as {strange[0]!r}",
                               "Whoever reads the folder would take their rows for protected ones.",
                               "Move them elsewhere.")  # fmt: skip
    for index, result in manifest.results.items():
        name = Part.output_of(index)
        if here.get(name, result.bytes) != result.bytes:
            raise DataFileError(
                message("protect", "out", "the folder with its parts as they were written", f"another {name}",
                        "It was damaged or replaced.",
                        "Put the right one back; or remove it, and have its rows released again with --again.")
            )  # fmt: skip


def forget_gone(manifest: Manifest, here: Mapping[str, int], *, allowed: bool) -> None:
    """Take parts that were finished and are gone for missing ones; refuse that where it is a second release.

    Args:
        allowed: the same release is made again, or a second one is accepted.
    """
    gone = [i for i, one in manifest.results.items() if one.rows and Part.output_of(i) not in here]
    if gone and not allowed:
        first = Part.output_of(gone[0])
        raise DataFileError.of("protect", "out", "the folder with all parts that were finished",
                               f"one without {len(gone)} of them ({first}{', ...' if len(gone) > 1 else ''})",
                               "With fresh noise they would be released a second time, and both together tell more.",
                               "Put them back; or accept that with --again (in Python again=True).")  # fmt: skip
    for index in gone:
        del manifest.results[index]


_CHUNK = 1 << 20


def verify(
    out: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    show_progress: bool | None = None,
) -> Manifest:
    """Return the manifest of a folder after comparing every file with it.

    Raises:
        DataFileError: no manifest, parts that are missing, files that it does not know, or one of another size or
            checksum.
    """
    folder = Folder(os.fspath(out), dict(storage_options or {}))
    manifest = Manifest.read(folder)
    if manifest is None:
        raise DataFileError.of("verify", "out", f"a folder with a {MANIFEST}", "one without")
    names = set(folder.sizes())
    if strange := further_files(names, manifest):
        raise _wrong(
            f"{len(strange)} further files, such as {strange[0]}",
            "Whoever reads the folder takes their rows for protected ones: move them elsewhere.",
        )
    for part in progress(
        manifest.parts, "Verifying", total=len(manifest.parts), show=show_progress, unit="part"
    ):
        result = manifest.results.get(part["index"])
        if result is not None and not result.rows and part["output"] not in names:
            continue
        if result is None:
            raise _wrong(
                f"no {part['output']} yet",
                "Protect again into the same folder: it does what is missing.",
            )
        if part["output"] not in names:
            raise _wrong(
                f"no {part['output']}, which was finished",
                "Put it back. Made again with fresh noise (--again) it is a second release of its rows.",
            )
        digest, size = hashlib.sha256(), 0
        with folder.open(part["output"]) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
        if (size, digest.hexdigest()) != (result.bytes, result.sha256):
            raise _wrong(
                f"another {part['output']}",
                "Protect the inputs again, into another folder: this one cannot be mended without a second release.",
            )
    return manifest


def columns_of(out: str | os.PathLike[str], manifest: Manifest) -> tuple[str, ...] | None:
    """Return the names of the columns of the first part that has rows, or None if none has or it cannot be read."""
    import pyarrow.parquet as pq

    first = next((i for i, one in sorted(manifest.results.items()) if one.rows), None)
    if first is None:
        return None
    try:
        with Folder(os.fspath(out)).open(Part.output_of(first)) as file:
            return tuple(pq.read_schema(file).names)
    except (
        VecveilError,
        OSError,
        ValueError,
    ):  # the run is done, whatever keeps it from being read
        return None


def _wrong(got: str, fix: str) -> DataFileError:
    return DataFileError(
        message("verify", "out", f"a folder with what its {MANIFEST} says", got, fix=fix)
    )
