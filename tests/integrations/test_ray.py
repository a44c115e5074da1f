"""Ray on this machine: folders through its tasks and actors, datasets batch by batch, and what Ray writes down.

Tests of tasks come first: their processes are reused, while each pool of actors starts and ends its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import vecveil
from harness.bulk_tables import expected, laplace_file, rows_of, table_of, write_parts
from harness.command_line import run
from harness.errors import raises
from harness.integration_checks import assert_no_secret, index_of_many_segments, rows_of_hits, run_example
from vecveil.gateway.bulk import BulkJob, protect_files, verify
from vecveil.gateway.bulk.job import Run
from vecveil.gateway.bulk.places import Folder
from vecveil.texts.encoders import LsaEncoder

# Ray 2.60 warns of its own deprecated settings, of its files and of a coming default for GPUs.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore::ResourceWarning",
    "ignore::FutureWarning",
    "ignore::pytest.PytestUnhandledThreadExceptionWarning",
)

DIMENSION = 16
KEYS = "VECVEIL_TEST_RAY_KEYS"
MARK = "a-password-for-the-store"


@pytest.fixture(scope="module", autouse=True)
def _imports() -> None:
    """Import Ray only in the process that runs this file; every process collects it."""
    pytest.importorskip("ray")
    global engine, protect_dataset, ray, run_on_ray, search_dataset, unseal_dataset
    import ray
    import ray.data

    from vecveil.gateway import ray as engine
    from vecveil.gateway.ray import protect_dataset, run_on_ray, search_dataset, unseal_dataset


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "noise.key"
    vecveil.KeyFile.create(path, "2026")
    return path


@pytest.fixture(scope="module", autouse=True)
def session(_imports: None, key_file: Path) -> Iterator[Path]:
    """Start one Ray for all tests; return the folder of its logs."""
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # sockets in it: a short name
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))  # else one is written to the home
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
        patch.setenv(KEYS, key_file.read_text())
        ray.init(
            num_cpus=2,
            object_store_memory=100 * 2**20,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
            _temp_dir=str(folder),
        )
        # Of so few rows, two hundred blocks would be two hundred tasks.
        patch.setattr(ray.data.DataContext.get_current(), "read_op_min_num_blocks", 4)
        try:
            yield folder
        finally:
            ray.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def laplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return laplace_file(tmp_path_factory.mktemp("laplace") / "p.vecveil", DIMENSION)


@pytest.fixture
def keyed(laplace: Path) -> BulkJob:
    return BulkJob.of(laplace, id_column="id", key=f"env:{KEYS}")


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")}


def test_the_engine_writes_what_one_machine_writes_and_finishes_what_is_missing(
    tmp_path: Path, laplace: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = write_parts(tmp_path / "in", 3, 100, DIMENSION, 50)
    monkeypatch.chdir(tmp_path)  # Ray's processes have another folder
    asked = ["in/*.parquet", "-p", laplace, "--id-column", "id", "--key-file"]
    asked.append(os.path.relpath(key_file))
    assert run("protect", *asked, "-o", "here").code == 0
    outcome = run("protect", *asked, "-o", f"file://{tmp_path}/there", "--engine", "ray")
    assert outcome.code == 0, outcome.err
    here, there = tmp_path / "here", tmp_path / "there"
    assert len(files_of(here)) == 3
    assert files_of(here) == files_of(there)
    assert (here / "_manifest.json").read_bytes() == (there / "_manifest.json").read_bytes()
    assert verify(there, show_progress=False).complete
    key = vecveil.KeyFile.from_file(key_file).key()
    released = rows_of(pq.read_table(there))
    for item, row in expected(vecveil.load(laplace), X, key).items():
        np.testing.assert_array_equal(released[item], row)

    (there / "part-000001.parquet").unlink()
    kept = (there / "part-000002.parquet").stat().st_mtime_ns
    assert run("protect", *asked, "-o", "there", "--engine", "ray").code == 0
    assert files_of(here) == files_of(there)
    assert (there / "part-000002.parquet").stat().st_mtime_ns == kept


def test_a_damaged_part_is_named_and_the_others_are_done(tmp_path: Path, keyed: BulkJob) -> None:
    write_parts(tmp_path / "in", 2, 400, DIMENSION, 100)
    damaged = tmp_path / "in" / "000.parquet"
    column = pq.ParquetFile(damaged).metadata.row_group(2).column(1)
    with open(damaged, "rb+") as file:
        file.seek(column.data_page_offset)
        file.write(b"\xff" * 64)
    with pytest.raises(vecveil.errors.DataFileError, match="1 of 8 parts") as caught:
        protect_files(
            [tmp_path / "in"],
            tmp_path / "out",
            keyed,
            engine=run_on_ray,
            part_bytes=1,
            storage_options={"password": MARK},
        )
    assert "000.parquet" in str(caught.value)
    assert "Traceback" not in str(caught.value)
    names = sorted(files_of(tmp_path / "out"))
    assert names == [f"part-{i:06d}.parquet" for i in (0, 1, 3, 4, 5, 6, 7)]


def test_errors_of_workers_are_ours(tmp_path: Path, laplace: Path) -> None:
    """The key is where this process finds it, and no worker."""
    write_parts(tmp_path / "in", 1, 10, DIMENSION, 10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VECVEIL_TEST_ONLY_HERE", os.environ[KEYS])
        job = BulkJob.of(laplace, id_column="id", key="env:VECVEIL_TEST_ONLY_HERE")
        with raises("E-KEY-FILE", "variable") as caught:  # code and argument survive the way back
            protect_files([tmp_path / "in"], tmp_path / "out", job, engine=run_on_ray)
    assert "Traceback" not in str(caught.value)


def workers(name: str) -> list[psutil.Process]:
    """Return the processes of Ray below this one that work on ``name`` now."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if name in " ".join(process.cmdline()):
                found.append(process)
    return found


def test_killed_workers_change_nothing(tmp_path: Path, keyed: BulkJob) -> None:
    """kill -9 of all that work, in the middle of the run; the folder is that of a run without."""
    write_parts(tmp_path / "in", 4, 4000, DIMENSION, 100)
    inputs, out = [tmp_path / "in"], tmp_path / "out"
    killed: list[tuple[int, int]] = []

    def kill() -> None:
        while not list(out.glob("part-*")):
            time.sleep(0.002)
        while not killed and not done.is_set():
            for process in workers("_do"):
                with contextlib.suppress(psutil.Error):
                    process.send_signal(signal.SIGKILL)
                    killed.append((process.pid, len(list(out.glob("part-*")))))

    done = threading.Event()
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        manifest = protect_files(inputs, out, keyed, engine=run_on_ray, part_bytes=1)
    finally:
        done.set()
        (out / "part-end").touch()
        killer.join()
        (out / "part-end").unlink()
    assert killed
    assert min(parts for _, parts in killed) < 160
    assert manifest.complete
    assert manifest.rows == 16_000
    protect_files(inputs, tmp_path / "here", keyed, part_bytes=1)
    assert files_of(out) == files_of(tmp_path / "here")
    assert not list(out.glob(".*.tmp"))


def test_texts_are_encoded_by_actors(tmp_path: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"the {a} of {b}" for a in ("roof", "train", "noon") for b in ("tin", "oak", "clay")]
    encoder = LsaEncoder.fit(texts * 5, 4, min_texts=1)
    encoder.save(tmp_path / "lsa")
    protector = laplace_file(tmp_path / "p.vecveil", encoder.encode(texts).shape[1])
    (tmp_path / "in").mkdir()
    rows = [f"{i},{text}" for i, text in enumerate(texts)]
    (tmp_path / "in" / "0.csv").write_text("id,text\n" + "\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)
    job = BulkJob.of(protector, id_column="id", key=os.path.relpath(key_file), encoder="lsa")
    manifest = protect_files(["in"], "there", job, engine=run_on_ray)
    assert manifest.rows == 9
    protect_files(["in"], "here", job)
    assert files_of(tmp_path / "there") == files_of(tmp_path / "here")
    assert pq.read_schema("there/part-000000.parquet").names == ["id", "embedding"]


def test_a_dataset_is_protected_and_sealed_with_its_columns_and_opened(
    laplace: Path, key_file: Path, tmp_path: Path
) -> None:
    X = np.random.default_rng(1).standard_normal((400, DIMENSION)).astype(np.float32)
    texts = [f"a secret {i}" for i in range(400)]
    table = table_of(X).append_column("year", pa.array(range(400))).append_column("text", pa.array(texts))
    ds = ray.data.from_arrow([table.slice(i, 100) for i in range(0, 400, 100)])
    given = {"seal_key": key_file, "seal_name": "notes"}
    out = protect_dataset(
        ds, laplace, id_column="id", key=key_file, carry=["year"], batch_size=64, concurrency=1, **given
    )
    out.write_parquet(str(tmp_path / "out"))
    stored = pq.read_table(tmp_path / "out")
    assert stored.schema.names == ["id", "year", "vecveil_sealed", "embedding"]
    assert stored.schema.field("embedding").type == pa.list_(pa.float32(), DIMENSION)
    released = rows_of(stored)
    key = vecveil.KeyFile.from_file(key_file).key()
    for item, row in expected(vecveil.load(laplace), X, key).items():
        np.testing.assert_array_equal(released[item], row)
    opened = unseal_dataset(ray.data.from_arrow(stored), **given, concurrency=1, batch_size=50).take_all()
    assert sorted(row["text"] for row in opened) == sorted(texts)
    exact = {row["id"]: row["embedding"] for row in opened}
    for i, row in enumerate(X):
        np.testing.assert_allclose(exact[f"item-{i}"], row, atol=1e-2)


def test_a_sealed_index_is_searched_in_parts(key_file: Path, tmp_path: Path) -> None:
    index, X = index_of_many_segments(tmp_path / "index", key_file)
    given = {"top": 5, "batch_size": 4, "id_column": "id"}
    ds = ray.data.from_arrow(table_of(X))
    for where, workers in ((None, 2), ({"year": {"gte": 2015}}, 1)):
        hits = search_dataset(ds, tmp_path / "index", key_file, where=where, workers=workers, **given).take_all()
        expected_hits = [
            (f"item-{i}", *hit) for i, q in enumerate(X) for hit in rows_of_hits(index.search(q, top=5, where=where))
        ]
        assert [(row["query"], row["id"], row["text"], row["metadata"]) for row in hits] == [
            (query, name, text, about) for query, name, _, text, about in expected_hits
        ]
        np.testing.assert_allclose([row["score"] for row in hits], [hit[2] for hit in expected_hits], atol=1e-6)
    with raises("E-INPUT", "encoder"):
        search_dataset(ray.data.from_items([{"text": "nausea"}]), tmp_path / "index", key_file)
    with raises("E-INDEX-MISSING"):
        search_dataset(ds, tmp_path / "none", key_file)


def test_noise_is_fresh_in_every_worker(laplace: Path) -> None:
    """One row many times: no two of its releases are the same, whichever of two workers made them."""
    X = np.tile(np.linspace(0, 1, DIMENSION, dtype=np.float32), (600, 1))
    blocks = [table_of(X[i : i + 50]) for i in range(0, 600, 50)]
    out = protect_dataset(ray.data.from_arrow(blocks), laplace, concurrency=(2, 2), batch_size=50)
    noise = np.stack([row["embedding"] for row in out.iter_rows()]) - X[0]
    assert len(np.unique(noise, axis=0)) == 600


def test_tensors_and_empty_datasets(laplace: Path) -> None:
    X = np.random.default_rng(2).standard_normal((30, DIMENSION))
    out = protect_dataset(ray.data.from_numpy(X), laplace, embedding_column="data", noise=False, concurrency=1)
    rows = out.take_all()
    assert [set(row) for row in rows] == [{"embedding"}] * 30
    np.testing.assert_array_equal(np.stack([row["embedding"] for row in rows]), X)
    empty = protect_dataset(ray.data.from_arrow(table_of(X[:0])), laplace, concurrency=1)
    assert empty.count() == 0


def test_nan_in_a_batch_is_our_error(laplace: Path) -> None:
    X = np.ones((20, DIMENSION), dtype=np.float32)
    X[7, 3] = np.nan
    out = protect_dataset(ray.data.from_arrow(table_of(X)), laplace, concurrency=1)
    with pytest.raises(Exception, match="`embedding_column` has NaN or infinity in 1 of") as caught:
        out.materialize()
    assert "DataFileError" in str(caught.value)
    assert "nan," not in str(caught.value)


def test_what_cannot_be_is_refused(laplace: Path, key_file: Path, keyed: BulkJob) -> None:
    ds = ray.data.from_arrow(table_of(np.ones((2, DIMENSION))))
    keys = vecveil.KeyFile.from_file(key_file)
    for secret in (keys, keys.key()):
        with raises("E-INPUT", "key"):
            protect_dataset(ds, laplace, id_column="id", key=secret)
    with raises("E-INPUT-NAME", "options"):
        protect_dataset(ds, laplace, delimiter=";")
    with raises("E-INPUT", "ds"):
        protect_dataset([1], laplace)
    for count in (0, (2, 1), "many"):
        with raises("E-INPUT", "concurrency"):
            protect_dataset(ds, laplace, concurrency=count)  # type: ignore[arg-type]
    held = Run(keyed, Folder("out"), "run", {}, ledger=object())  # type: ignore[arg-type]
    with raises("E-INPUT", "ledger"):
        next(iter(run_on_ray(held, [])))


def test_what_ray_raises_is_not_quoted() -> None:
    class Lost:
        def iter_rows(self) -> Iterator[Any]:
            raise RuntimeError("rows of somebody")
            yield

    with raises("E-RELEASE", "engine") as caught:
        list(engine._outcomes(Lost()))
    assert "somebody" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_ray_of_our_own_is_quiet_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    said: list[Any] = []
    monkeypatch.setattr(ray, "init", lambda **given: said.append((given, os.environ["RAY_USAGE_STATS_ENABLED"])))
    monkeypatch.setattr(ray, "shutdown", lambda: said.append("down"))
    with pytest.raises(KeyError), engine._connected():
        raise KeyError
    (given, telemetry), ended = said
    assert (telemetry, ended, given["include_dashboard"]) == ("0", "down", False)
    assert "RAY_USAGE_STATS_ENABLED" not in os.environ


def test_the_example_searches(collection_folder: Path, protector: vecveil.Protector, tmp_path: Path) -> None:
    protector.save(tmp_path / "health.vecveil")
    clean, protected = run_example("ray", collection_folder, tmp_path / "health.vecveil")
    # The same noise law gives 0.85 to 0.86 of 1, and rows in no order under 0.05: no draw comes near the bound.
    assert clean > 0.7
    assert protected > 0.5


def test_ray_writes_down_no_key_and_no_password(session: Path, key_file: Path) -> None:
    """After all of the above, whose keys were in a file and in the environment of every worker."""
    assert any(session.rglob("*.log"))
    assert_no_secret(session, key_file, MARK.encode())
    assert not list(session.rglob("usage_stats.json"))
