"""Whether a folder holds what its manifest says."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from vecveil.bulk.manifest import MANIFEST, Manifest
from vecveil.bulk.places import Folder
from vecveil.bulk.planning import Part
from vecveil.bulk.resuming import further_files
from vecveil.errors import DataFileError, VecveilError, message
from vecveil.runtime import progress

__all__ = ["columns_of", "verify"]

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
