"""``migrate --seal-key`` is killed at random moments: every row once, sealed, nothing clean.

``VECVEIL_FAULT_MOMENTS=20 pytest tests/faults/test_kill_seal.py`` kills each database twenty times.
"""

from __future__ import annotations

import importlib.util
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from harness.command_line import Outcome, run
from harness.faults import MOMENTS, STORES, WarmProcess, clean_rows_in, kills, left_over, seed
from harness.store_factories import release
from vecveil.index import Sealer
from vecveil.index.blob import SEALED_FIELD, decoded
from vecveil.stores import Batch, open_store
from vecveil.stores.forgetting import files_with, traces_of
from vecveil.stores.locations import public_name

ROWS, DIMENSION = 300, 32
QUICK = ("sqlite-vec", "lancedb")


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.random.default_rng(23).normal(size=(ROWS, DIMENSION)).astype(np.float32)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [f"patient {row} takes the same tablets twice a day and sleeps badly" for row in range(ROWS)]


@pytest.fixture(scope="module")
def warm_stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmProcess]:
    # LanceDB starts a thread on import, which a fork loses: its children import it themselves.
    modules = ["vecveil.cli.migrate", "vecveil.stores.migrating", "vecveil.privacy.protector", "tqdm"]
    if MOMENTS >= 10:
        modules += [f"vecveil.stores.{name}" for name in ("chroma", "sqlite_vec", "pgvector")]
        modules += ["pysqlite3", "sqlite_vec", "qdrant_client", "pymilvus"]
    modules = [name for name in modules if importlib.util.find_spec(name)]
    with WarmProcess(tmp_path_factory.mktemp("said"), modules) as process:
        yield process


def fill(where: str, vectors: np.ndarray, texts: list[str]) -> None:
    with open_store(where) as store:
        store.create(DIMENSION, metric="cosine")
        fields = tuple({"note": text, "number": row} for row, text in enumerate(texts))
        store.write(Batch(tuple(f"r{row:04d}" for row in range(ROWS)), vectors, fields))
        release(store)


@pytest.mark.timeout(420 if MOMENTS < 10 else 120 * MOMENTS)
@pytest.mark.parametrize("kind", STORES)
def test_sealed_rows(
    kind: str, warm_stores: WarmProcess, vectors: np.ndarray, texts: list[str], protector: Path, tmp_path: Path
) -> None:
    if MOMENTS < 10 and kind not in QUICK:
        pytest.skip("two databases in the short version")
    module, where = STORES[kind]
    pytest.importorskip(module)
    rng = random.Random(seed("seal"))
    keys, place = tmp_path / "search.keys", tmp_path / "place"
    scanned = [place]
    traces = traces_of(Batch(("",) * ROWS, vectors, ({},) * ROWS))

    def clean_in(folder: Path) -> list[str]:
        return [*clean_rows_in(folder, vectors), *(path.name for path in files_with([str(folder)], traces))]

    if kind == "pgvector":
        from harness.postgres import fresh_database, server

        dest = where.format(fresh_database())
        scanned.append(Path(server().pgdata))
    else:
        dest = where.format(place)
    source = f"sqlite-vec:{tmp_path}/clean.db#notes"
    fill(source, vectors, texts)
    given = ["-p", protector, "--seal-key", keys, "--batch", 25, "--filter-field", "number"]

    def anew() -> None:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        keys.unlink(missing_ok=True)
        assert run("key", "new", keys).code == 0

    def after_kill() -> None:
        assert clean_in(place) == []

    def after_end(done: Outcome) -> None:
        assert done.code == 0, done.err
        with open_store(dest) as store:
            rows = Batch.joined(list(store.batches(100)))
            if kind == "pgvector":
                with suppress(AttributeError), store.cursor("removing the table") as cursor:  # type: ignore[attr-defined]
                    cursor.execute("DROP TABLE notes")
            release(store)
        assert sorted(rows.ids) == [f"r{row:04d}" for row in range(ROWS)]
        blobs = [decoded(fields[SEALED_FIELD]) for fields in rows.fields]
        current = Sealer(keys).keys.read(public_name(dest)).current
        for name, fields in zip(rows.ids, rows.fields, strict=True):
            token = current.token("number", int(name[1:]))
            assert {**fields} == {SEALED_FIELD: fields[SEALED_FIELD], "vecveil_filter_number": token}
        opened = Sealer(keys).unseal(blobs, ids=list(rows.ids), collection=public_name(dest))
        numbers = [int(name[1:]) for name in opened.ids]
        assert opened.texts == [texts[number] for number in numbers]
        assert opened.metadata == [{"number": number} for number in numbers]
        np.testing.assert_allclose(opened.vectors, vectors[numbers], rtol=1e-3)
        assert not np.any(np.all(rows.vectors == vectors[numbers], axis=1))
        for folder in scanned:
            assert clean_in(folder) == []
            held = b"tablets twice a day"
            assert not [path.name for path in folder.rglob("*") if path.is_file() and held in path.read_bytes()]
        assert left_over(place) == []
        anew()

    anew()
    kills(
        lambda: warm_stores.start("migrate", source, dest, *given, cwd=place),
        rng,
        after_kill=after_kill,
        after_end=after_end,
        moments=MOMENTS if MOMENTS >= 10 else 2,
    )
