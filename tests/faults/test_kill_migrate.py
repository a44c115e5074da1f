"""``migrate`` is killed at random moments: resumed, the copy has every row once, and nothing else is."""

from __future__ import annotations

import importlib.util
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from harness.command_line import Outcome
from harness.faults import MOMENTS, WarmProcess, clean_rows_in, kills, left_over, seed, share
from vecveil.stores import Batch, open_store

ROWS, DIMENSION = 300, 32
STORES = {"sqlite-vec": ("sqlite_vec", "sqlite-vec:{}/rows.db#copy"), "chroma": ("chromadb", "chroma:{}/chroma#copy")}


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.random.default_rng(17).normal(size=(ROWS, DIMENSION)).astype(np.float32)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, vectors: np.ndarray) -> str:
    pytest.importorskip("sqlite_vec")
    where = f"sqlite-vec:{tmp_path_factory.mktemp('source')}/clean.db#notes"
    with open_store(where) as store:
        store.create(DIMENSION, metric="cosine")
        ids = tuple(f"r{row:04d}" for row in range(ROWS))
        store.write(Batch(ids, vectors, tuple({"number": row} for row in range(ROWS))))
    return where


@pytest.fixture(scope="module")
def warm_stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmProcess]:
    modules = [
        "vecveil.cli.migrate",
        "vecveil.stores.migrating",
        "vecveil.privacy.protector.policy",
        "vecveil.stores.chroma",
        "vecveil.privacy.protector",
        "tqdm",
    ]
    modules += [name for name, _ in STORES.values() if importlib.util.find_spec(name)]
    with WarmProcess(tmp_path_factory.mktemp("said"), modules) as process:
        yield process


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "fresh"])
def test_migrate(
    kind: str,
    keyed: bool,
    warm_stores: WarmProcess,
    source: str,
    vectors: np.ndarray,
    protector: Path,
    key: Path,
    tmp_path: Path,
) -> None:
    module, where = STORES[kind]
    pytest.importorskip(module)
    if kind == "chroma" and not keyed and MOMENTS < 10:
        pytest.skip("each start of Chroma costs a second: one form of it in the short version")
    rng = random.Random(seed("migrate"))
    place = tmp_path / "place"
    dest = where.format(place)
    arguments: list[object] = ["migrate", source, dest, "-p", protector, "--batch", 25]
    arguments += ["--key-file", key, "--ledger", place / "releases.ledger"] if keyed else []
    undisturbed: list[bytes] = []

    def after_kill() -> None:
        assert clean_rows_in(place, vectors) == []

    def after_end(done: Outcome) -> None:
        assert done.code == 0, done.err
        with open_store(dest) as store:
            ids, found, numbers = [], [], []
            for batch in store.batches(100):
                ids += batch.ids
                found.append(batch.vectors)
                numbers += [row["number"] for row in batch.fields]
        order = np.argsort(ids)
        assert [ids[at] for at in order] == [f"r{row:04d}" for row in range(ROWS)]
        assert [numbers[at] for at in order] == list(range(ROWS))
        released = np.concatenate(found)[order]
        assert not np.any(np.all(released == vectors, axis=1))
        if keyed:
            undisturbed.append(released.tobytes())
            assert undisturbed[-1] == undisturbed[0]
        assert clean_rows_in(place, vectors) == []
        assert left_over(place) == []
        shutil.rmtree(place)
        place.mkdir()

    place.mkdir()
    kills(
        lambda: warm_stores.start(*arguments, cwd=place),
        rng,
        after_kill=after_kill,
        after_end=after_end,
        moments=1 if kind == "chroma" and MOMENTS < 10 else share(len(STORES) * 2),
    )
