"""``forget`` is killed at random moments: run again, every id is gone everywhere, and no other row.

``reconcile`` killed changes no row, and leaves its list whole or none.

``VECVEIL_FAULT_MOMENTS=100 pytest tests/faults/test_kill_forget.py`` kills each a hundred times on each database.
"""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from harness.command_line import Outcome
from harness.faults import MOMENTS, STORES, WarmProcess, kills, left_over, seed
from harness.store_factories import release
from vecveil.index.blob import SqliteBlobs
from vecveil.stores import Batch, open_store
from vecveil.texts.encoders.cache import EmbeddingCache, matching_texts

ROWS, DIMENSION, GONE = 200, 16, 40
QUICK = ("lancedb", "sqlite-vec")
IDS = [f"r{row:04d}" for row in range(ROWS)]
TEXTS = [f"patient {row} takes the same tablets" for row in range(ROWS)]


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.random.default_rng(29).normal(size=(ROWS, DIMENSION)).astype(np.float32)


@pytest.fixture(scope="module")
def warm_stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmProcess]:
    # LanceDB starts a thread on import, which a fork loses: its children import it themselves.
    modules = ["vecveil.cli.forget", "vecveil.stores.forgetting", "tqdm", "sqlite_vec"]
    if MOMENTS >= 10:
        modules += [f"vecveil.stores.{name}" for name in ("chroma", "sqlite_vec", "pgvector")]
        modules += ["pysqlite3", "qdrant_client", "pymilvus"]
    modules = [name for name in modules if importlib.util.find_spec(name)]
    with WarmProcess(tmp_path_factory.mktemp("said"), modules) as process:
        yield process


def fill(where: str, vectors: np.ndarray) -> None:
    with open_store(where) as store:
        store.create(DIMENSION, metric="euclidean")
        store.write(Batch(tuple(IDS), vectors, tuple({"number": row} for row in range(ROWS))))
        release(store)


def location(kind: str, folder: Path, quick: tuple[str, ...] = QUICK) -> str:
    """Return the location of a collection; skip the test if the kind is not for this run."""
    if MOMENTS < 10 and kind not in quick:
        pytest.skip(f"{' and '.join(quick)} in the short version")
    module, location = STORES[kind]
    pytest.importorskip(module)
    if kind != "pgvector":
        return location.format(folder)
    from harness.postgres import fresh_database

    return location.format(fresh_database())


@pytest.mark.timeout(420 if MOMENTS < 10 else 120 * MOMENTS)
@pytest.mark.parametrize("kind", STORES)
def test_forget(kind: str, warm_stores: WarmProcess, vectors: np.ndarray, tmp_path: Path) -> None:
    place, template = tmp_path / "place", tmp_path / "template"
    (template / "beside").mkdir(parents=True)
    where = location(kind, place)
    if kind != "pgvector":
        fill(location(kind, template), vectors)
    SqliteBlobs(template / "beside" / "blobs.db").update({name: name.encode() * 20 for name in IDS})
    EmbeddingCache(template / "beside" / "cache", "encoder").put(TEXTS, vectors)
    (tmp_path / "gone.txt").write_text("".join(f"{name}\n" for name in IDS[:GONE]))
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS[:GONE]))
    receipt = place / "beside" / "receipt.json"

    def anew() -> None:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(template, place)
        if kind == "pgvector":
            with (
                open_store(where) as store,
                suppress(AttributeError),
                store.cursor("removing the table", vectors=False) as cursor,  # type: ignore[attr-defined]
            ):
                cursor.execute("DROP TABLE IF EXISTS notes")
            fill(where, vectors)

    def after_kill() -> None:
        pass

    def after_end(done: Outcome) -> None:
        assert done.code == 0, done.err
        with open_store(where) as store:
            rows = Batch.joined(list(store.batches(100)))
            release(store)
        order = np.argsort(rows.ids)
        assert [rows.ids[at] for at in order] == IDS[GONE:]
        np.testing.assert_array_equal(rows.vectors[order], vectors[GONE:])
        assert [rows.fields[at]["number"] for at in order] == list(range(GONE, ROWS))
        assert sorted(SqliteBlobs(place / "beside" / "blobs.db")) == IDS[GONE:]
        assert matching_texts(place / "beside" / "cache", TEXTS) == ROWS - GONE
        record = json.loads(receipt.read_text())
        # What a killed run deleted is known from its receipt alone.
        deleted = {key: record[key] + record["earlier"].get(key, 0) for key in ("rows", "blobs", "cached")}
        assert deleted == {"rows": GONE, "blobs": GONE, "cached": GONE}
        assert record["absent"] == GONE - record["rows"]
        assert record["finished"] is not None
        assert len(record["verified"]) == 3
        # SQLite's logs are its own: the checks above have the files open.
        assert [name for name in left_over(place / "beside") if not name.endswith(("-wal", "-shm"))] == []
        anew()

    anew()
    kills(
        lambda: warm_stores.start(
            "forget",
            where,
            "--ids",
            tmp_path / "gone.txt",
            "--receipt",
            receipt,
            "--blobs",
            place / "beside" / "blobs.db",
            "--texts",
            tmp_path / "texts.txt",
            "--cache-folder",
            place / "beside" / "cache",
            cwd=place,
        ),
        random.Random(seed("forget")),
        after_kill=after_kill,
        after_end=after_end,
        moments=MOMENTS if MOMENTS >= 10 else 2,
    )


@pytest.mark.timeout(420 if MOMENTS < 10 else 120 * MOMENTS)
@pytest.mark.parametrize("kind", STORES)
def test_reconcile(kind: str, warm_stores: WarmProcess, vectors: np.ndarray, tmp_path: Path) -> None:
    place, beside = tmp_path / "place", tmp_path / "beside"
    place.mkdir()
    beside.mkdir()
    where = location(kind, place, QUICK[1:])  # it only reads from the database
    fill(where, vectors)
    sources, out = tmp_path / "sources.txt", beside / "gone.txt"
    sources.write_text("".join(f"{name}\n" for name in IDS[GONE:]))

    def unchanged() -> None:
        with open_store(where) as store:
            rows = Batch.joined(list(store.batches(100)))
            release(store)
        assert sorted(rows.ids) == IDS
        np.testing.assert_array_equal(rows.vectors[np.argsort(rows.ids)], vectors)

    def after_kill() -> None:
        unchanged()
        assert not out.exists() or sorted(out.read_text().split()) == IDS[:GONE]
        out.unlink(missing_ok=True)

    def after_end(done: Outcome) -> None:
        assert done.code == 0, done.err
        assert sorted(out.read_text().split()) == IDS[:GONE]
        out.unlink()
        unchanged()
        assert left_over(beside) == []

    kills(
        lambda: warm_stores.start("reconcile", where, "--ids", sources, "-o", out, cwd=beside),
        random.Random(seed("reconcile")),
        after_kill=after_kill,
        after_end=after_end,
        moments=MOMENTS if MOMENTS >= 10 else 2,
    )
