"""Collect the evidence in a sealed index's storage: for a scan without the key, and for an audit with it.

The attacker sees the objects: names, sizes, times and bytes. The audit has the key, so that it can say which bytes
belong to which row, what each row contains, and whether any of it stands in an object.
"""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import StoreError
from vecveil.index.sealed_index import SealedIndex
from vecveil.index.sealer import Unsealed
from vecveil.index.storage import file_system

_LEAST, _SOUGHT = 8, 16  # bytes of a value that is looked for; shorter ones stand in random bytes by chance
_BLOCK = 1 << 24
_TEXT_BYTES = 128


def look(place: str) -> dict[str, Any]:
    """Return what the storage of the index at ``place`` shows without a key: objects, sizes and times of writing.

    Raises:
        StoreError: there is no index.
    """
    files, root = file_system(place)
    try:
        objects = files.find(root, detail=True)
    except OSError as error:
        raise StoreError(
            f"The storage of the index cannot be listed: {type(error).__name__}.", code="E-INDEX-STORAGE"
        ) from error
    names = {path: path.removeprefix(root).strip("/") for path in objects}
    if "index.json" not in names.values():
        raise StoreError("There is no index at this place.", code="E-INDEX-MISSING", param="store")
    written = sorted(time for info in objects.values() if (time := _time(info)) is not None)
    return {
        "protected": "encrypted segments",
        "segments": sum(name.startswith("segments/") for name in names.values()),
        "commits": sum(name.startswith("commits/") and "." not in name for name in names.values()),
        "others": sorted(name for name in names.values() if not name.startswith(("segments/", "commits/"))),
        "bytes": sum(int(info.get("size") or 0) for info in objects.values()),
        "largest": max(int(info.get("size") or 0) for info in objects.values()),
        "first_written": written[0] if written else None,
        "last_written": written[-1] if written else None,
    }


def _time(info: dict[str, Any]) -> str | None:
    names = ("mtime", "LastModified", "updated", "last_modified", "created")
    value = next((info[name] for name in names if info.get(name)), None)
    if isinstance(value, int | float):
        value = datetime.fromtimestamp(value, UTC)
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    return None if value is None else str(value)


def sampled_rows(index: SealedIndex, limit: int, seed: int) -> Unsealed:
    """Return at most ``limit`` rows with a text, drawn at random."""
    ids = np.array(index.ids(), dtype=object)
    rows = index.get(np.random.default_rng(seed).permutation(ids)[:limit].tolist())
    kept = [i for i, text in enumerate(rows.texts) if text is not None and text.strip()]
    return rows.rows(kept)


def stored_vectors(index: SealedIndex, ids: Sequence[str]) -> npt.NDArray[np.uint8]:
    """Return the bytes in which the storage contains the vector of each row, (N, bytes): ciphertext."""
    places = [place for place in index._log.current().locate(ids) if place is not None]
    parts = list({id(part): part for part, _ in places}.values())
    owners = np.array([next(i for i, part in enumerate(parts) if part is own) for own, _ in places])
    rows = np.array([row for _, row in places], np.int64)
    stored = [part.segment.stored_vectors(rows[owners == i]) for i, part in enumerate(parts)]
    return np.concatenate(stored)[np.argsort(np.argsort(owners, kind="stable"), kind="stable")]


def values_found(place: str, rows: Unsealed) -> dict[str, tuple[int, int]]:
    """Return by kind how many values of ``rows`` stand readable in an object or its name, of how many looked for.

    Looked for are the first 16 bytes of texts, ids and metadata in UTF-8 and UTF-16, and of vectors as float16,
    float32, float64 and int8, in both byte orders; values of fewer than 8 bytes are not.
    """
    sought: dict[bytes, set[tuple[str, int]]] = {}
    for i, (name, text, metadata) in enumerate(zip(rows.ids, rows.texts, rows.metadata, strict=True)):
        for kind, value in (("ids", name), ("texts", text), *(("metadata", value) for value in _strings(metadata))):
            if value is not None and len(value.encode()) >= _LEAST:
                for encoding in ("utf-8", "utf-16-le", "utf-16-be"):
                    sought.setdefault(value.encode(encoding)[:_SOUGHT], set()).add((kind, i))
        for form in _forms(rows.vectors[i]):
            sought.setdefault(form[:_SOUGHT], set()).add(("vectors", i))
    sizes = sorted(set(map(len, sought)))
    # Most places of an object are passed over by their first three bytes.
    begins = np.zeros(1 << 24, np.bool_)
    begins[[int.from_bytes(value[:3], "little") for value in sought]] = True
    found: set[tuple[str, int]] = set()
    for block in _blocks(place):
        at = np.frombuffer(block, np.uint8).astype(np.uint32)
        for start in np.flatnonzero(begins[at[:-2] | at[1:-1] << 8 | at[2:] << 16]).tolist():
            for size in sizes:
                found |= sought.get(block[start : start + size], set())
    every = set().union(*sought.values())
    kinds = ("texts", "ids", "metadata", "vectors")
    return {
        kind: (sum(each == kind for each, _ in found), sum(each == kind for each, _ in every))
        for kind in kinds
        if any(each == kind for each, _ in every)
    }


def _strings(metadata: Mapping[str, Any] | None) -> Iterator[str]:
    if metadata is not None:
        yield json.dumps(metadata, ensure_ascii=False, separators=(",", ":"))
        yield from (value for value in metadata.values() if isinstance(value, str))


def _forms(row: npt.NDArray[Any]) -> Iterator[bytes]:
    for order in "<>":
        yield from (row.astype(f"{order}{kind}").tobytes() for kind in ("f2", "f4", "f8"))
    yield np.rint(row / max(float(np.abs(row).max()), 1e-30) * 127).astype("i1").tobytes()


def _blocks(place: str) -> Iterator[bytes]:
    """Yield the names of all objects, then their bytes in blocks that overlap."""
    files, root = file_system(place)
    paths = files.find(root)
    yield "\n".join(path.removeprefix(root) for path in paths).encode()
    for path in paths:
        with files.open(path, "rb") as file:
            tail = b""
            while block := file.read(_BLOCK):
                yield tail + block
                tail = block[-_SOUGHT + 1 :]


def built_indexes(
    vectors: npt.NDArray[Any],
    texts: Sequence[str],
    holds: npt.NDArray[np.bool_],
    *,
    count: int = 300,
    rows: int = 32,
    seed: int = 0,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return what the storage shows of ``count`` small indexes (count, q), and whether each has texts that ``holds``.

    Every index has as many rows, and texts of as many bytes. Shown are the number of objects, the sum and the largest
    of their sizes, and the share of each byte value.
    """
    draw = np.random.default_rng(seed)
    pools = np.flatnonzero(~holds), np.flatnonzero(holds)
    labels = np.arange(count) % 2 == 1
    shown = np.empty((count, 259))
    with tempfile.TemporaryDirectory() as folder:
        for i, label in enumerate(labels):
            chosen = draw.choice(pools[int(label)], rows)
            place = Path(folder, str(i))
            with SealedIndex(place, secrets.token_bytes(32)) as index:
                index.add(
                    [_of_bytes(texts[row]) for row in chosen],
                    ids=[f"{k:08d}" for k in range(rows)],
                    vectors=vectors[chosen],
                )
            objects = [path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()]
            sizes = list(map(len, objects))
            shares = np.bincount(np.frombuffer(b"".join(objects), np.uint8), minlength=256) / sum(sizes)
            shown[i] = [len(sizes), sum(sizes), max(sizes), *shares]
    return shown, labels


def _of_bytes(text: str) -> str:
    """Return ``text`` cut or padded to one number of bytes."""
    cut = text.encode()[:_TEXT_BYTES].decode(errors="ignore")
    return cut + " " * (_TEXT_BYTES - len(cut.encode()))
