"""Compare a sealed index with its sources, forget rows with a receipt, and list what its storage shows."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from vecveil.errors import StoreError
from vecveil.search.sealed_index import SealedIndex
from vecveil.search.storage import file_system
from vecveil.stores.forgetting import Erasure, Reconciliation, begun, now, write_receipt

REMAINS = (
    "Backups, snapshots and versions of the storage from before open for whoever has the key file: `vecveil reseal` "
    "gives the index a new key and deletes the old one. They then open only with a backup of the key file from before.",
    "The deleted ids stay in the index, encrypted, for some commits.",
    "Freed blocks of the disk: nothing here reaches them.",
)


def reconcile(index: SealedIndex, ids: Iterable[str]) -> Reconciliation:
    """Return the rows of ``index`` that have no source among ``ids``, and the sources that have no row."""
    sources = dict.fromkeys(ids)
    rows = dict.fromkeys(index.ids())
    return Reconciliation(
        len(rows),
        tuple(name for name in rows if name not in sources),
        tuple(name for name in sources if name not in rows),
    )


def forget(index: SealedIndex, ids: Iterable[str], receipt: str | os.PathLike[str], *, name: str) -> Erasure:
    """Delete the rows of ``ids``, rewrite every segment that held them, and write a receipt.

    A killed run continues with the same call.

    Args:
        receipt: file of the `Erasure`, written before the first deletion and after the last check.
        name: public name of the index, for the receipt.

    Raises:
        StoreError: the storage does not answer, or the receipt is of another list or index.
    """
    names = list(dict.fromkeys(ids))
    found = len(set(index.ids()).intersection(names))
    before = begun(Path(receipt), name, {one.encode("utf-8", "surrogatepass"): one for one in names})
    rows = max(before.rows, found)
    done = replace(before, finished=None, rows=rows, absent=min(before.absent, len(names) - found))
    write_receipt(receipt, done)
    index.forget(names)
    index.refresh()
    if left := len(set(index.ids()).intersection(names)):
        raise StoreError(
            f"{left:,} ids of the list are in the index again: another program writes them. Stop it, and repeat the "
            "command.",
            code="E-STORE-DATABASE",
            param="ids",
        )
    done = replace(
        done,
        finished=now(),
        compacted="Every segment that held a version of the rows was rewritten, and deleted.",
        verified=(f"The ids of all {index.count():,} rows of the index were read again: none is on the list.",),
        remains=tuple(REMAINS),
    )
    write_receipt(receipt, done)
    return done


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
        "commits": sum(name.startswith("commits/") for name in names.values()),
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
