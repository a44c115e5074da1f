"""What engines are sent for their workers: names in place of secrets, and nothing that an engine could show."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import vecveil
from harness.bulk_tables import laplace_file, table_of
from harness.errors import raises
from vecveil.errors import KeyFileError
from vecveil.gateway import workers
from vecveil.gateway.bulk import ArrowProtection, BulkJob
from vecveil.gateway.bulk.job import Unsealing
from vecveil.gateway.workers import Sealed, anywhere, batch_job, run_batch, unsealing_anywhere
from vecveil.index import KeyStore

DIMENSION = 8


@pytest.fixture
def laplace(tmp_path: Path) -> Path:
    return laplace_file(tmp_path / "p.vecveil", DIMENSION)


def test_what_is_sealed_shows_nothing_and_compares_as_what_it_is() -> None:
    sealed = Sealed({"password": "open sesame"})
    assert "sesame" not in f"{sealed!r} {sealed!s}"
    copy = pickle.loads(pickle.dumps(sealed))
    assert copy == sealed
    assert hash(copy) == hash(sealed)
    assert copy.open() == {"password": "open sesame"}
    assert Sealed(1) != sealed
    assert not hasattr(sealed, "__dataclass_fields__")  # Ray writes dataclasses out in full


def test_a_job_does_not_depend_on_the_folder_or_on_a_later_key(
    laplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lsa").mkdir()
    vecveil.KeyFile.create("noise.key", "first")
    options = {"id_column": "id", "key": Path("noise.key"), "encoder": "lsa", "carry": ["id"]}
    job = batch_job(laplace, options, owner="test")
    assert (job.key, job.key_id) == (str(tmp_path / "noise.key"), "first")
    assert job.encoder == str(tmp_path / "lsa")
    assert job.carry == ("id",)
    monkeypatch.setenv("KEYS_OF_TEST", Path("noise.key").read_text())
    named = anywhere(BulkJob.of(laplace, id_column="id", key="env:KEYS_OF_TEST"))
    assert (named.key, named.key_id) == ("env:KEYS_OF_TEST", "first")
    assert anywhere(BulkJob.of(laplace, encoder="minilm")).encoder == "minilm"
    with pytest.raises(KeyFileError):
        batch_job(laplace, {"id_column": "id", "key": "none.key"}, owner="test")


def test_keys_and_unknown_options_are_refused(laplace: Path, tmp_path: Path) -> None:
    keys = vecveil.KeyFile.create(tmp_path / "noise.key", "k")
    for secret in (keys, keys.key(), b"secret"):
        with raises("E-INPUT", "key"):
            batch_job(laplace, {"id_column": "id", "key": secret}, owner="test")
    for name in ("protector", "format", "delimiter", "colour"):
        with raises("E-INPUT-NAME", "options"):
            batch_job(laplace, {name: "x"}, owner="test")


def test_only_our_own_errors_leave_a_worker(laplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = BulkJob.of(laplace)
    X = np.ones((3, DIMENSION))
    assert run_batch(job, table_of(X)).num_rows == 3
    X[1, 1] = np.nan
    with raises("E-DATA-FILE", "embedding_column"):
        run_batch(job, table_of(X))

    def quote(self: ArrowProtection, rows: pa.Table) -> None:
        raise ValueError(f"cannot use {rows.to_pylist()}")

    monkeypatch.setattr(ArrowProtection, "__call__", quote)
    with raises("E-RELEASE", "rows") as caught:
        run_batch(job, table_of(X))
    assert "item-0" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_process_opens_a_job_once(laplace: Path) -> None:
    job = BulkJob.of(laplace)
    copy = pickle.loads(pickle.dumps(job))
    assert workers._opened(job) is workers._opened(copy)
    assert workers._opened(job) is not workers._opened(BulkJob.of(laplace, noise=False))


def test_sealing_and_opening_travel_without_keys(
    laplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    monkeypatch.chdir(tmp_path)
    vecveil.KeyFile.create("search.keys", "first")
    given = {"id_column": "id", "seal_key": "search.keys", "seal_name": "notes"}
    job = batch_job(laplace, given, owner="test")
    unsealing = unsealing_anywhere(Path("search.keys"), seal_name="notes")
    X = np.random.default_rng(0).standard_normal((3, DIMENSION)).astype(np.float32)
    sealed = run_batch(job, table_of(X))
    opened = run_batch(unsealing, sealed)
    np.testing.assert_allclose(np.stack(opened["embedding"].to_numpy()), X, atol=1e-2)
    store = KeyStore("search.keys")
    entry = store._load()["collections"]["notes"]
    secrets = [*store._unwrapped_bytes(entry).values()]
    secrets.append(vecveil.KeyFile.from_file("search.keys").key().secret_for_noise())
    for work in (job, unsealing, ArrowProtection(job), workers._opened(unsealing), workers._opened(job)):
        packed = cloudpickle.dumps(work) + pickle.dumps(Sealed(work)) + repr(work).encode()
        assert not any(secret in packed for secret in secrets)

    monkeypatch.setenv("KEY_OF_TEST", (tmp_path / "search.keys").read_text())
    given["seal_key"] = "env:KEY_OF_TEST:wrapped.keys"
    named = batch_job(laplace, given, owner="test")
    assert named.seal_key == f"env:KEY_OF_TEST:{tmp_path}/wrapped.keys"
    assert len(run_batch(named, table_of(X))["vecveil_sealed"]) == 3

    # A worker with another key file would seal under keys that nobody else has.
    (tmp_path / "search.keys").unlink()
    vecveil.KeyFile.create("search.keys", "other")
    with raises("E-SEAL-COLLECTION", "collection"):
        ArrowProtection(job)(table_of(X))
    KeyStore("search.keys").create("notes")
    with raises("E-SEAL-COLLECTION", "seal_key"):
        ArrowProtection(job)(table_of(X))
    with raises("E-INPUT", "seal_name"):
        BulkJob.of(laplace, seal_key="search.keys")
    with raises("E-INPUT", "seal_key"):
        unsealing_anywhere(b"secret" * 6, seal_name="notes")  # type: ignore[arg-type]
    assert isinstance(unsealing, Unsealing)
