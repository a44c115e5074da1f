"""The manifest of an output folder: its parts, the conditions for continuing a run, and its verification.

One folder is one release: one job protected its rows, and no released row is released again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from vecveil.bulk.places import Folder, Part
from vecveil.errors import DataFileError, VecveilError
from vecveil.io import PUBLIC, is_temporary_of, parse_json, write_bytes
from vecveil.runtime import progress

MANIFEST = "_manifest.json"
"""Readers of folders of Parquet files skip names that begin with an underscore."""
LOCK = "_lock"
SCHEMA = "vecveil.manifest/1"
_LARGEST = 2**28
_RESULT = 200  # bytes of the result of a part
_CHUNK = 1 << 20
_OPTIONS = {
    "key_check": "noise key",
    "key_id": "noise key",
    "randomness": "kind of noise",
    "noise": "kind of noise",
    "protected": "kind of noise",
    "protector": "protector",
    "vecveil": "version of vecveil",
    "carry": "choice of columns to carry",
    "keep_text": "choice of --keep-text",
    "text_column": "column of texts",
    "embedding_column": "column of vectors",
    "id_column": "column of ids",
    "seal_name": "sealed collection",
    "seal_uuid": "sealed collection",
}
_OF_A_PROTECTOR = {"method", "concept", "encoder", "guarantee", "conditional_on", "not_promised"}
"""Fields of a job that its protector and key determine."""
_PROSE = {"guarantee", "conditional_on", "not_promised"}
"""Fields in sentences, which another version may word differently."""


@dataclass(frozen=True)
class PartResult:
    """A finished part; without rows it has no file."""

    index: int
    rows: int
    bytes: int
    sha256: str

    @classmethod
    def of(cls, index: int, rows: int, file: BinaryIO | None) -> PartResult:
        """Return the result of a part from its file, open for reading; None for a part without rows."""
        digest, size = hashlib.sha256(), 0
        while chunk := file.read(_CHUNK) if file is not None else b"":
            digest.update(chunk)
            size += len(chunk)
        return cls(index, rows, size, digest.hexdigest())


@dataclass
class Manifest:
    """The job of a run, its parts, and the finished ones.

    Attributes:
        job: the treatment of each row; see `BulkJob.to_record`.
        parts: the records of all parts, in order.
        results: of the finished parts, by index.
        resumed: number of parts that existed when this run began; not in the record.
    """

    job: dict[str, Any]
    parts: list[dict[str, Any]]
    results: dict[int, PartResult] = field(default_factory=dict)
    resumed: int = field(default=0, compare=False)

    @classmethod
    def of(cls, job: Mapping[str, Any], parts: Sequence[Part]) -> Manifest:
        return cls(dict(job), [part.to_record() for part in parts])

    @property
    def run(self) -> str:
        """The fingerprint of job and parts, which each output file also stores."""
        whole = json.dumps([SCHEMA, self.job, self.parts], sort_keys=True)
        return hashlib.sha256(whole.encode()).hexdigest()[:32]

    @property
    def complete(self) -> bool:
        return len(self.results) == len(self.parts)

    @property
    def rows(self) -> int:
        return sum(result.rows for result in self.results.values())

    def to_record(self) -> dict[str, Any]:
        finished = {
            index: {"rows": result.rows, "bytes": result.bytes, "sha256": result.sha256}
            for index, result in self.results.items()
        }
        return {
            "schema": SCHEMA,
            "run": self.run,
            "complete": self.complete,
            "rows": self.rows,
            "job": self.job,
            "parts": [{**part, **finished.get(part["index"], {})} for part in self.parts],
        }

    def write(self, folder: Folder) -> None:
        text = json.dumps(self.to_record(), indent=1)
        # Each part that is still to do adds its result.
        if len(text) + _RESULT * (len(self.parts) - len(self.results)) > _LARGEST:
            raise DataFileError(
                f"A manifest has at most {_LARGEST >> 20} MiB, too little for {len(self.parts):,} parts. Use a "
                "larger --part-size, or several folders.",
                param="inputs",
            )
        with folder.writing(MANIFEST) as path:
            write_bytes(path, text.encode(), mode=PUBLIC)

    @classmethod
    def read(cls, folder: Folder) -> Manifest | None:
        """Return the manifest of ``folder``, or None; raise DataFileError for a damaged one or another schema."""
        if not folder.has(MANIFEST):
            return None
        # One byte more than allowed shows that the file is too long.
        raw = folder.read(MANIFEST, _LARGEST + 1)
        try:
            if len(raw) > _LARGEST:
                raise ValueError
            record = parse_json(raw)
            if record["schema"] != SCHEMA:
                raise ValueError
            parts, results = [], {}
            for part in record["parts"]:
                result = {key: part.pop(key, None) for key in ("rows", "bytes", "sha256")}
                if result["sha256"] is not None:
                    rows, size = int(result["rows"]), int(result["bytes"])
                    results[int(part["index"])] = PartResult(int(part["index"]), rows, size, str(result["sha256"]))
                # Other names need no check: a path out of the folder never occurs in its listing.
                if type(part["index"]) is not int or not isinstance(part["output"], str):
                    raise TypeError
                parts.append(part)
            return cls(dict(record["job"]), parts, results)
        except (ValueError, KeyError, TypeError, RecursionError, AttributeError, OverflowError):
            raise DataFileError(
                f"The {MANIFEST} in `out` is damaged or of another schema than {SCHEMA}. Give another folder.",
                code="E-DATA-FILE-MANIFEST",
                param="out",
            ) from None


# Going on ----------------------------------------------------------------------------------------


def left_by_a_start(name: str) -> bool:
    """Return whether a run killed before its manifest existed may have left this file."""
    return name == LOCK or is_temporary_of(MANIFEST, name)


def check_same(known: Manifest, now: Manifest) -> None:
    """Raise DataFileError for other inputs, another protector or other options."""
    names = sorted(key for key in {*known.job, *now.job} - _PROSE if known.job.get(key) != now.job.get(key))
    if not names and known.parts == now.parts:
        return
    got = _difference(names, known.job, now.job) if names else "other inputs, or inputs that changed"
    fix = "Give another folder."
    if not known.results:
        fix = f"Nothing is in it yet: remove its {MANIFEST}, or give another folder."
    elif not names:
        fix = "Protect only the new or repaired files, into another folder: the rows in this one are already released."
    raise DataFileError(
        f"The {MANIFEST} in `out` is of a run with {got}: the folder would mix the rows of two runs. {fix}",
        code="E-DATA-FILE-OTHER-RUN",
        param="out",
    )


def _difference(names: list[str], former: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if former.get("key_check") is None or now.get("key_check") is None:  # with a key, and without
        names = [name for name in names if name not in ("key_check", "key_id")] or names
    # Another protector changes these too: name the cause alone, unless they differ alone.
    names = [name for name in names if name not in _OF_A_PROTECTOR] or names
    unnamed = ", ".join(name for name in names if name not in _OPTIONS)
    words = [_OPTIONS[name] for name in names if name in _OPTIONS] + ([f"value of {unnamed}"] if unnamed else [])
    return ", ".join(f"another {word}" for word in dict.fromkeys(words))


def _further_files(names: Iterable[str], manifest: Manifest) -> list[str]:
    """Return the data files among ``names`` that the manifest does not list."""
    unknown = set(names) - {part["output"] for part in manifest.parts}
    return sorted(name for name in unknown if not name.startswith(("_", ".")))


def check_files(manifest: Manifest, here: Mapping[str, int]) -> None:
    """Raise DataFileError for files that are not of the run, and parts of another size than in ``here``."""
    if further := _further_files(here, manifest):
        raise DataFileError(
            f"`out` has files that are not of this run, such as {further[0]!r}: readers of the folder would take "
            "their rows for protected ones. Move them elsewhere.",
            code="E-DATA-FILE-FURTHER",
            param="out",
        )
    for index, result in manifest.results.items():
        name = Part.output_of(index)
        if here.get(name, result.bytes) != result.bytes:
            raise DataFileError(
                f"{name} was damaged or replaced. Put the right one back; or remove it, and release its rows a "
                "second time with --again.",
                code="E-DATA-FILE-PART",
                param="out",
            )


def forget_gone(manifest: Manifest, here: Mapping[str, int], *, allowed: bool) -> None:
    """Count finished parts without a file as missing; raise DataFileError where that means a second release.

    ``allowed`` says that the new release equals the old one, or that the caller accepts a second one.
    """
    gone = [i for i, result in manifest.results.items() if result.rows and Part.output_of(i) not in here]
    # Somebody may hold the lost file: two fresh noises of one row average out.
    if gone and not allowed:
        names = Part.output_of(gone[0]) + (", ..." if len(gone) > 1 else "")
        raise DataFileError(
            f"{len(gone)} finished parts are missing ({names}). With fresh noise they would be released a second "
            "time, and both together tell more. Put them back; or accept that with --again (in Python "
            "again=True).",
            code="E-DATA-FILE-PART",
            param="out",
        )
    for index in gone:
        del manifest.results[index]


# Verification ------------------------------------------------------------------------------------


def verify(
    out: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None, show_progress: bool | None = None
) -> Manifest:
    """Return the manifest of a folder after comparing every file with it.

    Raises:
        DataFileError: no manifest, missing parts, unlisted files, or a file of another size or checksum.
    """
    folder = Folder(os.fspath(out), dict(storage_options or {}))
    manifest = Manifest.read(folder)
    if manifest is None:
        code = "E-DATA-FILE-MANIFEST"
        raise DataFileError(f"The folder has no {MANIFEST}.", code=code, param="out")

    def wrong(got: str, fix: str, code: str = "E-DATA-FILE-PART") -> DataFileError:
        return DataFileError(f"The folder differs from its {MANIFEST}: {got}. {fix}", code=code, param="out")

    names = set(folder.sizes())
    if further := _further_files(names, manifest):
        fix = "Readers of the folder would take their rows for protected ones: move them elsewhere."
        raise wrong(f"{len(further)} further files, such as {further[0]}", fix, "E-DATA-FILE-FURTHER")
    parts = manifest.parts
    for part in progress(parts, "Verifying", total=len(parts), show=show_progress, unit="part"):
        result, name = manifest.results.get(part["index"]), part["output"]
        if result is None:
            raise wrong(f"no {name} yet", "Run protect again with the same folder: it writes the missing parts.")
        if name not in names:
            if not result.rows:
                continue
            fix = "Put it back. Made again with fresh noise (--again) it is a second release of its rows."
            raise wrong(f"no {name}, which was finished", fix)
        with folder.open(name) as file:
            if PartResult.of(result.index, result.rows, file) != result:
                fix = "Protect the inputs again, into another folder: a repair would release rows a second time."
                raise wrong(f"another {name}", fix)
    return manifest


def columns_of(out: str | os.PathLike[str], manifest: Manifest) -> tuple[str, ...] | None:
    """Return the columns of the first part with rows, or None if it cannot be read."""
    import pyarrow.parquet as pq

    first = next((i for i, result in sorted(manifest.results.items()) if result.rows), None)
    if first is None:
        return None
    try:
        with Folder(os.fspath(out)).open(Part.output_of(first)) as file:
            return tuple(pq.read_schema(file).names)
    except (VecveilError, OSError, ValueError):  # only for display: the run is done
        return None
