"""Compare a store with the ids of its sources, and delete all traces of given ids, with a receipt."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from vecveil.errors import KeyFileError, StoreError
from vecveil.index import Sealer
from vecveil.index.blob import HEADER_BYTES, NONCE_END, SEALED_FIELD, SqliteBlobs, canonical_ids, decoded
from vecveil.io import expanded
from vecveil.privacy.accounting import Ledger
from vecveil.runtime import progress
from vecveil.schema import Count, Record
from vecveil.stores.scanning import leaves
from vecveil.stores.store import Batch, VectorStore
from vecveil.texts.encoders.cache import matching_texts
from vecveil.validation import check_texts
from vecveil.version import __version__

_OWNER = "forget"
_SEARCHED = 1000  # deleted rows whose bytes the files are searched for
_WINDOW = 4  # consecutive values of a vector: 16 bytes, which identify a row
_LEAST, _MOST = 24, 64  # bytes of a blob to look for
_BLOCK = 1 << 25
_UUID_FORMS = ("{}", "urn:uuid:{}", "{{{}}}")

REMAINS = (
    "Backups, snapshots, replicas and logs of the database, and freed blocks of the disk: nothing here reaches them.",
)
SEALED_BACKUPS = (
    "Sealed rows in backups open as long as their data key exists: `vecveil reseal` gives the other rows a new key and "
    "deletes the old one; `vecveil key erase` deletes the key of the whole collection, and with it every copy."
)
TOMBSTONES = (
    "The ledger keeps how often the ids were released, under salted hashes: earlier releases may still be held by "
    "somebody, so an id that returns continues its count."
)
CACHE_CLEARED = "The embedding cache has none of the texts."
GENERATIONS = (
    "`generations` keeps a raised number under each id: no earlier blob of the id opens, even if it is added again. "
    "Remove these entries only if their ids are never used again."
)


@dataclass(frozen=True)
class Reconciliation:
    """Differences between a store and its sources: its number of rows, and ids."""

    rows: int
    without_source: tuple[str, ...]
    """Rows, and separate blobs, whose source is gone."""
    without_vector: tuple[str, ...]
    """Sources without a row."""


class Erasure(Record, frozen=True, kw_only=True, tag_field="schema", tag="vecveil.erasure/1"):
    """The receipt of `forget`: counts and sentences, no id. The last run measured the counts itself.

    Attributes:
        ids: number of distinct ids in the list, or with versions that match the condition.
        ids_sha256: hash of the sorted list, or of the condition; anyone who guesses it whole can test the guess.
        rows, blobs, cached: deletions in the store, the separate blobs and the embedding cache.
        earlier: the same counts of earlier runs, unverified, from their receipt.
        unmatched: rows without a known text, whose embeddings may remain in the cache.
        absent: ids without a row, or whose row an earlier run deleted.
        released: ids that the ledger still counts, under salted hashes.
        compacted: what the database did to overwrite deleted bytes; None if it offers nothing.
        searched: deleted rows whose bytes the files were searched for; None without local files.
        traces: number of files that contain such bytes.
        verified: what was read again and contained none of the ids.
        unverified: what could not be verified.
        remains: copies that nothing here reaches.
        finished: ISO time; None in an interrupted run, which the same command continues.
    """

    vecveil: str
    store: str
    started: str
    finished: str | None = None
    ids: Count
    ids_sha256: str
    rows: Count = 0
    blobs: Count | None = None
    cached: Count | None = None
    earlier: Mapping[str, Count] = {}
    unmatched: Count = 0
    absent: Count = 0
    released: Count | None = None
    compacted: str | None = None
    searched: Count | None = None
    traces: Count | None = None
    verified: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    remains: tuple[str, ...] = ()

    def with_own(self, **own: int | None) -> Erasure:
        """Return the receipt with the counts of this run, which are subtracted from those of earlier runs."""
        rest = {name: number - (own.get(name) or 0) for name, number in self.earlier.items()}
        return replace(self, **own, earlier={name: number for name, number in rest.items() if number > 0})


def reconcile(
    store: VectorStore,
    ids: Iterable[str],
    *,
    blobs: MutableMapping[str, bytes] | None = None,
    batch: int = 1000,
    show_progress: bool | None = None,
) -> Reconciliation:
    """Return the rows and separate ``blobs`` of ``store`` without a source in ``ids``, and the sources without a row.

    Spellings of one UUID are one id, as databases normalise them.
    """
    sources = _by_key(ids, owner="reconcile")
    gone: dict[str, None] = {}
    met: set[bytes] = set()
    rows = 0
    for part in _rows(store, batch, "reconcile", show_progress):
        rows += len(part)
        keys = _keys(part.ids)
        met.update(keys)
        gone |= {name: None for key, name in zip(keys, part.ids, strict=True) if key not in sources}
    gone |= {name: None for key, name in _spelt(blobs or ()) if key not in sources}
    return Reconciliation(rows, tuple(gone), tuple(name for key, name in sources.items() if key not in met))


class ForgetOptions(TypedDict, total=False):
    """Options of `forget`, which documents them."""

    sealer: Sealer | None
    collection: str | None
    blobs: MutableMapping[str, bytes] | None
    generations: MutableMapping[str, int] | None
    cache: str | os.PathLike[str] | None
    texts: Sequence[str]
    ledger: Ledger | None
    compact: bool
    batch: int
    show_progress: bool | None


def forget(
    store: VectorStore,
    ids: Iterable[str],
    receipt: str | os.PathLike[str],
    *,
    name: str,
    **options: Unpack[ForgetOptions],
) -> Erasure:
    """Delete the rows of ``ids`` in the store, its separate blobs and the embedding cache, and write a receipt.

    The whole store is read twice: first because a database may spell an id differently, then to verify the deletion.
    After an interruption, the same call continues. No other id is ever deleted.

    Args:
        receipt: file of the `Erasure`, written before the first deletion and after the last check.
        name: public name of the store, for the receipt.

    Options:
        sealer, collection: open the rows' blobs, whose texts identify the cached embeddings to delete.
        blobs: separate store of sealed blobs.
        generations: the numbers by id of a `ProtectedCollection`. They open its blobs, and are raised for ``ids`` so
            that the database cannot return a deleted row.
        cache: folder of the embedding cache (`default_cache_folder`). Its entries are looked up by the texts of sealed
            rows, of readable rows without a ``sealer``, and ``texts``.
        ledger: counted, not changed; see `TOMBSTONES`.
        compact (True): let the database overwrite the remains of deleted rows, which may rewrite the collection.
        batch (1000): rows per read.

    Raises:
        StoreError: the store does not answer, the receipt is of a different list or store, or some ids remain.
    """
    run = _Forgetting(store, _by_key(ids), **options)
    run.find()
    known = list(dict.fromkeys([*run.texts, *run.readable, *run.opened()]))
    cache, listed = run.cache, run.listed
    before = begun(Path(receipt), name, listed)
    done = replace(
        before.with_own(
            rows=len(run.ids),
            blobs=None if run.blobs is None else len(run.of_blobs),
            cached=None if cache is None else matching_texts(cache, known),
        ),
        unmatched=0 if cache is None else len(run.without_text),
        released=None if run.ledger is None else _released(run.ledger, listed, run.ids),
        # Not the number of rows: two spellings of a UUID may each have a row.
        absent=len(listed) - len(set(_keys(run.ids))),
    )
    done.save(receipt)
    if cache is not None:
        matching_texts(cache, known, delete=True)
    raised = run.delete()
    if run.compact and (done.rows or done.earlier):  # after an interruption too
        done = replace(done, compacted=store.compact() or None)
    left, others = run.read_again()
    left += 0 if cache is None else matching_texts(cache, known)
    if left:
        replace(done, unverified=("Listed ids reappeared after their deletion.",)).save(receipt)
        said = "The store still has some ids of the list. Stop the program that writes them, and repeat the command."
        raise StoreError(said, code="E-STORE-DATABASE", param="store")
    traces, notes = run.search_files()
    if others != run.others:
        notes.append(f"Other rows changed during the run: {run.others:,} before, {others:,} after.")
    read = f"All {others:,} rows that the store counts and lists were read again"
    verified = [f"{read}: none has an id of the list."]
    verified += [] if run.blobs is None else ["No separate blob has an id of the list."]
    verified += [] if cache is None else [CACHE_CLEARED]
    notes += unsearched(done, cache)
    sealed = run.sealer is not None or run.blobs is not None or run.sealed
    done = replace(
        done,
        finished=now(),
        searched=None if traces is None else run.searched,
        traces=traces,
        verified=tuple(verified),
        unverified=tuple(notes),
        remains=(
            *REMAINS,
            *([SEALED_BACKUPS] if sealed else []),
            *([TOMBSTONES] if done.released else []),
            *([GENERATIONS] if raised else []),
        ),
    )
    done.save(receipt)
    return done


@dataclass
class _Forgetting:
    """One run of `forget`: the listed ids by key, the options, and the matching rows in the store's spelling."""

    store: VectorStore
    listed: dict[bytes, str]
    sealer: Sealer | None = None
    collection: str | None = None
    blobs: MutableMapping[str, bytes] | None = None
    generations: MutableMapping[str, int] | None = None
    cache: str | os.PathLike[str] | None = None
    texts: Sequence[str] = ()
    ledger: Ledger | None = None
    compact: bool = True
    batch: int = 1000
    show_progress: bool | None = None
    ids: list[str] = field(default_factory=list, init=False)
    of_rows: list[bytes] = field(default_factory=list, init=False)  # blobs in the rows, empty where there are none
    of_blobs: list[str] = field(default_factory=list, init=False)  # ids of separate blobs
    readable: list[str] = field(default_factory=list, init=False)
    without_text: set[bytes] = field(default_factory=set, init=False)  # keys of the rows
    traces: list[bytes] = field(default_factory=list, init=False)  # of the first `searched` rows
    searched: int = field(default=0, init=False)
    others: int = field(default=0, init=False)
    sealed: bool = field(default=False, init=False)

    def find(self) -> None:
        for part in _rows(self.store, self.batch, "find", self.show_progress):
            at = [i for i, key in enumerate(_keys(part.ids)) if key in self.listed]
            self.others += len(part) - len(at)
            rows = part.rows(at)
            self.ids += rows.ids
            self.of_rows += [decoded(fields.get(SEALED_FIELD)) for fields in rows.fields]
            for key, fields in zip(_keys(rows.ids), rows.fields, strict=True):
                strings = [text for name, text in leaves(fields) if isinstance(text, str) and name != SEALED_FIELD]
                self.sealed = self.sealed or SEALED_FIELD in fields
                # Strings stored with a blob are not its text: the database may have moved them from another row.
                if strings and self.sealer is None and SEALED_FIELD not in fields:
                    self.readable += strings
                else:
                    self.without_text.add(key)
            if searched := rows.rows(range(min(len(rows), _SEARCHED - self.searched))):
                self.traces += traces_of(searched)
                self.searched += len(searched)
        self.of_blobs = [spelt for key, spelt in _spelt(self.blobs or ()) if key in self.listed]

    def opened(self) -> Iterator[str]:
        """Yield the texts of blobs that open, and remove their rows from those without a text."""
        blobs = [(name, blob) for name, blob in zip(self.ids, self.of_rows, strict=True) if blob]
        blobs += [(spelt, bytes((self.blobs or {})[spelt])) for spelt in self.of_blobs]
        if not blobs or self.sealer is None or self.collection is None:
            return
        ids, numbers = [name for name, _ in blobs], None
        if self.generations is not None:
            by_key = {key: self.generations[spelt] for key, spelt in _spelt(self.generations)}
            numbers = [by_key.get(key, 0) for key in _keys(ids)]
        sealed: Any = {"ids": ids, "collection": self.collection, "generations": numbers, "on_invalid": "skip"}
        try:
            rows = self.sealer.unseal([blob for _, blob in blobs], **sealed)
        except KeyFileError as error:
            if error.code != "E-SEAL-COLLECTION":  # an erased key: nothing opens
                raise
            return
        for key, text in zip(_keys(rows.ids), rows.texts, strict=True):
            if text is not None:
                self.without_text.discard(key)
                yield text

    def delete(self) -> bool:
        """Delete rows and blobs, and raise the generations of the ids; return whether there were generations."""
        # Rows before blobs, so that no search finds a row without its blob; the texts were read already.
        self.store.delete(self.ids)
        if self.blobs is not None:
            self.traces += [bytes(self.blobs[spelt][HEADER_BYTES:NONCE_END]) for spelt in self.of_blobs[:_SEARCHED]]
            for spelt in self.of_blobs:
                del self.blobs[spelt]
        raised: dict[str, int] = {}
        if self.generations is not None:
            # After the rows: the rows that a killed run left must open when it is repeated.
            spelt_ids = [spelt for key, spelt in _spelt(self.generations) if key in self.listed]
            raised = {spelt: self.generations[spelt] + 1 for spelt in spelt_ids}
            self.generations.update(raised)
        if isinstance(self.blobs, SqliteBlobs):
            self.blobs.compact()
        return bool(raised)

    def read_again(self) -> tuple[int, int]:
        """Return the number of listed rows and blobs, and of other rows, as a new connection reads them."""
        self.store.close()
        left = others = 0
        for part in _rows(self.store, self.batch, "verify", self.show_progress):
            here = sum(key in self.listed for key in _keys(part.ids))
            left, others = left + here, others + len(part) - here
        return left + sum(key in self.listed for key, _ in _spelt(self.blobs or ())), others

    def search_files(self) -> tuple[int | None, list[str]]:
        """Return the number of files with bytes of deleted rows, and what was not searched."""
        try:
            paths = self.store.files()
        except StoreError:
            return None, ["The database is a server: what its files keep of deleted rows is unknown."]
        if isinstance(self.blobs, SqliteBlobs):
            paths += self.blobs.files()
        holding = files_with(paths, self.traces) if self.traces else []
        notes = []
        if unsearched := len(self.ids) - self.searched:
            notes.append(f"The files were not searched for the bytes of {unsearched:,} of the deleted rows.")
        if holding:
            notes.append(
                f"{len(holding):,} files of the database still hold bytes of deleted rows, or of rows equal to them. "
                "Copy the collection to a new one and remove this one where the database cannot overwrite them."
            )
        return len(holding), notes


def _released(ledger: Ledger, listed: dict[bytes, str], spelt: Sequence[str]) -> int:
    forms: dict[bytes, set[Any]] = {}
    for name in (*listed.values(), *spelt):
        (key,) = _keys([name])
        forms.setdefault(key, set()).update(_spellings(name))
    return sum(any(ledger.count(form) for form in some) for some in forms.values())


def _spellings(name: str) -> list[Any]:
    """Return the forms in which a program may have given an id to the ledger."""
    forms: list[Any] = [name, *([int(name)] if re.fullmatch(r"-?\d{1,18}", name) else [])]
    try:
        value = uuid.UUID(name)
    except ValueError:
        return forms
    plain = [str(value), value.hex]
    return [*forms, *plain, *(form.upper() for form in plain), *(form.format(value) for form in _UUID_FORMS)]


def _keys(ids: Sequence[str]) -> list[bytes]:
    return canonical_ids(list(ids), len(ids), owner=_OWNER)


def _spelt(ids: Iterable[str]) -> Iterator[tuple[bytes, str]]:
    names = list(ids)
    return zip(_keys(names), names, strict=True)


def _by_key(ids: Iterable[str], owner: str = _OWNER) -> dict[bytes, str]:
    names = list(check_texts(ids, owner=owner, param="ids", min_rows=0))
    return dict(zip(_keys(names), names, strict=True))


def _rows(store: VectorStore, batch: int, doing: str, show: bool | None) -> Iterator[Batch]:
    return progress(store.every_row(batch), doing, total=None, show=show, unit="batch")


def begun(path: Path, name: str, listed: dict[bytes, str]) -> Erasure:
    """Return a new receipt with the counts of an earlier receipt as ``earlier``."""
    path = expanded(path)
    digest = hashlib.sha256(b"".join(sorted(listed))).hexdigest()
    new = Erasure(vecveil=__version__, store=name, started=now(), ids=len(listed), ids_sha256=digest)
    if not path.exists():
        return new
    before = Erasure.load(path)
    if (before.store, before.ids_sha256) != (name, digest):
        said = "The receipt file belongs to a different list or store. Name another file with `receipt`."
        raise StoreError(said, code="E-STORE-STATE", param="receipt")
    # Anyone may have edited the file: nothing in it counts as found by this run.
    counts = {"rows": before.rows, "blobs": before.blobs or 0, "cached": before.cached or 0}
    return replace(new, earlier={name: number + before.earlier.get(name, 0) for name, number in counts.items()})


def unsearched(done: Erasure, cache: str | os.PathLike[str] | None) -> list[str]:
    """Return what was not searched for the rows of the receipt."""
    notes = []
    if earlier := done.earlier.get("rows"):
        notes.append(
            f"{earlier:,} rows were deleted by an earlier run, according to the receipt: files and embedding cache "
            "were not searched for them."
        )
    if done.unmatched:
        notes.append(f"{done.unmatched:,} rows had no readable text: the embedding cache may contain theirs (--texts).")
    if cache is not None and any(expanded(cache).glob("*.damaged-*")):
        notes.append("Damaged files of the embedding cache, set aside earlier, were not searched: remove them.")
    return notes


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def traces_of(rows: Batch) -> list[bytes]:
    """Return byte strings that only a file with one of these rows contains.

    They are parts of each vector as float32, of its unit vector, of its pickle (Qdrant), and of its sealed blob.
    """
    traces: list[bytes] = []
    for row, fields in zip(rows.vectors, rows.fields, strict=True):
        start = max(0, min(int(np.abs(row).argmax()), len(row) - _WINDOW))
        window, scaled = row[start : start + _WINDOW], row / max(float(np.linalg.norm(row.astype(np.float64))), 1e-30)
        if len(set(window.tolist())) == _WINDOW:  # equal values occur by chance
            pickled = b"".join(b"G" + struct.pack(">d", float(value)) for value in window)
            unit = scaled[start : start + _WINDOW].astype("<f4")
            traces += [window.astype("<f4").tobytes(), unit.tobytes(), pickled[2:]]
        blob = fields.get(SEALED_FIELD)
        if isinstance(blob, str) and len(blob) >= 2 * _LEAST:
            traces.append(blob.encode()[len(blob) // 2 :][:_MOST])
    return traces


def files_with(paths: Iterable[str], traces: Iterable[bytes]) -> list[Path]:
    """Return the files, also those in folders, that contain one of ``traces`` (at most 64 bytes each) at any offset."""
    starts: dict[bytes, list[bytes]] = defaultdict(list)
    for trace in traces:
        starts[trace[:4]].append(trace)
    known = np.zeros(1 << 24, dtype=bool)
    known[np.frombuffer(b"".join(starts), "<u4") & 0xFFFFFF] = True
    return [path for path in _all_files(paths) if _holds(path, known, starts)]


def _all_files(paths: Iterable[str]) -> Iterator[Path]:
    for path in map(Path, paths):
        yield from (inner for inner in sorted(path.rglob("*")) if inner.is_file())
        if path.is_file():
            yield path


def _holds(path: Path, known: npt.NDArray[np.bool_], starts: dict[bytes, list[bytes]]) -> bool:
    raw = b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            raw = raw[1 - _MOST :] + block
            for shift in range(min(4, len(raw) - 3)):
                words = np.frombuffer(raw, "<u4", (len(raw) - shift) // 4, shift)
                for at in 4 * np.flatnonzero(known[words & 0xFFFFFF]) + shift:
                    if any(raw.startswith(trace, at) for trace in starts.get(raw[at : at + 4], ())):
                        return True
    return False
