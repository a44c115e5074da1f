"""Into a folder: every row once, in files that are whole, under a manifest that a later run goes on with."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import vecveil
from harness.errors import raises
from unit.gateway.bulk.conftest import DIMENSION, WriteTable
from vecveil.errors import LedgerCapError
from vecveil.gateway.bulk import MANIFEST, BulkJob, Manifest, Part, protect_files, verify
from vecveil.gateway.bulk.job import OpenJob, PartWorker, Run
from vecveil.gateway.bulk.places import Folder
from vecveil.gateway.bulk.running import run_here
from vecveil.io import exclusive
from vecveil.keys import KeyFile

SMALL = 1500
"""Bytes of a part: two row groups or so."""


def released(out: Path) -> dict[str, np.ndarray]:
    table = pq.read_table(out)
    vectors = table["embedding"].combine_chunks().flatten().to_numpy().reshape(len(table), -1)
    ids = table["id"].to_pylist()
    assert len(set(ids)) == len(ids)
    return dict(zip(ids, vectors, strict=True))


def expected(job: BulkJob, X: np.ndarray) -> np.ndarray:
    opened = OpenJob(job)
    ids = [f"item-{i}" for i in range(len(X))]
    return opened.protector.protect(X, ids=ids, key=opened.key)


def run(source: Path, out: Path, job: BulkJob, **given: Any) -> Manifest:
    return protect_files([source], out, job, part_bytes=SMALL, show_progress=False, **given)


def stopping_after(count: int) -> Any:
    """An engine that ends like a run that is told to stop."""

    def engine(what: Run, parts: Sequence[Part]) -> Iterable[Any]:
        for done, outcome in enumerate(run_here(what, parts)):
            if done == count:
                raise KeyboardInterrupt
            yield outcome

    return engine


def test_every_row_is_released_as_the_protector_would(tmp_path: Path, keyed: BulkJob, write_table: WriteTable) -> None:
    X = write_table(tmp_path / "a.parquet", 57)
    manifest = run(tmp_path / "a.parquet", tmp_path / "out", keyed)
    found = released(tmp_path / "out")
    np.testing.assert_array_equal(np.array([found[f"item-{i}"] for i in range(57)]), expected(keyed, X))
    assert manifest.complete
    assert manifest.rows == 57
    assert len(manifest.parts) > 2
    assert verify(tmp_path / "out", show_progress=False).rows == 57
    assert sorted(os.listdir(tmp_path / "out")) == sorted([MANIFEST, *(part["output"] for part in manifest.parts)])


def test_a_stopped_run_goes_on_and_leaves_alone_what_is_done(
    tmp_path: Path, bulk_protector: vecveil.Protector, write_table: WriteTable
) -> None:
    write_table(tmp_path / "a.parquet", 57)
    job, out = BulkJob.of(bulk_protector), tmp_path / "out"  # fresh noise: a second release differs
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "a.parquet", out, job, engine=stopping_after(2))
    before = {path.name: path.read_bytes() for path in out.glob("part-*")}
    assert 2 <= len(before) < 4
    assert Manifest.read(Folder(str(out))).complete is False
    worked: list[int] = []

    def watching(what: Run, parts: Sequence[Part]) -> Iterable[Any]:
        worked.extend(part.index for part in parts)
        return run_here(what, parts)

    manifest = run(tmp_path / "a.parquet", out, job, engine=watching)
    assert manifest.complete
    assert len(worked) <= len(manifest.parts) - 2
    for name, content in before.items():
        assert (out / name).read_bytes() == content
    assert len(released(out)) == 57
    verify(out, show_progress=False)


def test_a_part_that_the_manifest_does_not_know_yet_is_not_released_again(
    tmp_path: Path, bulk_protector: vecveil.Protector, write_table: WriteTable
) -> None:
    """A worker may be killed after its file appeared and before anybody heard of it."""
    write_table(tmp_path / "a.parquet", 57)
    job, out = BulkJob.of(bulk_protector), tmp_path / "out"
    manifest = run(tmp_path / "a.parquet", out, job)
    kept = {path.name: path.read_bytes() for path in out.glob("part-*")}
    manifest.results = {}
    manifest.write(Folder(str(out)))
    again = run(tmp_path / "a.parquet", out, job)
    assert {path.name: path.read_bytes() for path in out.glob("part-*")} == kept
    assert again.complete


def test_a_part_that_is_gone_is_made_again(tmp_path: Path, keyed: BulkJob, write_table: WriteTable) -> None:
    write_table(tmp_path / "a.parquet", 57)
    out = tmp_path / "out"
    first = run(tmp_path / "a.parquet", out, keyed)
    (out / "part-000001.parquet").unlink()
    with raises("E-DATA-FILE-PART", "out"):
        verify(out, show_progress=False)
    assert run(tmp_path / "a.parquet", out, keyed).results == first.results


def test_a_part_that_was_released_with_fresh_noise_is_not_made_again_unasked(
    tmp_path: Path, bulk_protector: vecveil.Protector, write_table: WriteTable
) -> None:
    write_table(tmp_path / "a.parquet", 57)
    out, job = tmp_path / "out", BulkJob.of(bulk_protector)
    run(tmp_path / "a.parquet", out, job)
    (out / "part-000001.parquet").unlink()
    with raises("E-DATA-FILE-PART", "out"):
        run(tmp_path / "a.parquet", out, job)
    assert not (out / "part-000001.parquet").exists()
    assert run(tmp_path / "a.parquet", out, job, again=True).complete


def test_of_two_workers_at_one_part_the_first_releases(
    tmp_path: Path, bulk_protector: vecveil.Protector, write_table: WriteTable
) -> None:
    """A cluster may run a task twice; only one of two releases with fresh noise may ever be seen."""
    write_table(tmp_path / "a.parquet", 20, group=20)
    out = tmp_path / "out"
    first: list[bytes] = []

    def twice(what: Run, parts: Sequence[Part]) -> Iterable[Any]:
        (part,) = parts
        workers = [PartWorker(what) for _ in range(2)]
        check = workers[0]._check_input

        def overtaken(*args: Any) -> None:  # the other one is faster, between the check and the name
            check(*args)
            workers[1](part)
            first.append((out / part.output).read_bytes())

        workers[0]._check_input = overtaken  # type: ignore[method-assign]
        yield workers[0](part)

    manifest = run(tmp_path / "a.parquet", out, BulkJob.of(bulk_protector), engine=twice)
    assert manifest.complete
    assert [(out / "part-000000.parquet").read_bytes()] == first
    verify(out, show_progress=False)
    assert sorted(os.listdir(out)) == [MANIFEST, "part-000000.parquet"]


def test_an_input_that_changes_while_it_is_read_is_not_released(
    tmp_path: Path, keyed: BulkJob, write_table: WriteTable
) -> None:
    source = tmp_path / "a.parquet"
    write_table(source, 20, group=20)

    def changing(what: Run, parts: Sequence[Part]) -> Iterable[Any]:
        write_table(source, 20, first=500, group=20)  # as many rows, others
        return run_here(what, parts)

    with raises("E-DATA-FILE-CHANGED"):
        run(source, tmp_path / "out", keyed, engine=changing)
    assert not list((tmp_path / "out").glob("part-*"))


def test_a_result_without_its_file_is_not_believed(tmp_path: Path, keyed: BulkJob, write_table: WriteTable) -> None:
    """Workers on other machines may have written to their own disks."""
    write_table(tmp_path / "a.parquet", 20, group=20)

    def elsewhere(what: Run, parts: Sequence[Part]) -> Iterable[Any]:
        return run_here(replace(what, out=Folder(str(tmp_path / "other"))), parts)

    with raises("E-DATA-FILE-PART", "out"):
        run(tmp_path / "a.parquet", tmp_path / "out", keyed, engine=elsewhere)
    assert not Manifest.read(Folder(str(tmp_path / "out"))).complete


@pytest.mark.parametrize("what", ["options", "inputs", "protector", "other files"])
def test_another_run_into_the_same_folder_is_refused(
    tmp_path: Path, keyed: BulkJob, write_table: WriteTable, bulk_protector: vecveil.Protector, what: str
) -> None:
    source, out = tmp_path / "a.parquet", tmp_path / "out"
    write_table(source, 57)
    if what == "other files":
        out.mkdir()
        (out / "mine.txt").write_text("mine")
    else:
        run(source, out, keyed)
    code, cause = {
        "other files": ("E-DATA-FILE-FURTHER", "other files"),
        "inputs": ("E-DATA-FILE-OTHER-RUN", "other inputs"),
        "options": ("E-DATA-FILE-OTHER-RUN", "another carry"),
        "protector": ("E-DATA-FILE-OTHER-RUN", "another protector"),
    }[what]
    job = keyed
    if what == "options":
        job = replace(keyed, carry=("id",))
    if what == "protector":
        job = BulkJob.of(bulk_protector.rescaled(2.0), id_column="id", key=keyed.key)
    if what == "inputs":
        write_table(source, 60)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with raises(code, "out") as caught:
        run(source, out, job)
    assert cause in str(caught.value)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.slow
def test_a_folder_in_use_is_refused(tmp_path: Path, keyed: BulkJob, write_table: WriteTable) -> None:
    write_table(tmp_path / "a.parquet", 20)
    (tmp_path / "out").mkdir()
    with exclusive(tmp_path / "out" / "_lock"), raises("E-DATA-FILE-LOCKED", "out"):
        run(tmp_path / "a.parquet", tmp_path / "out", keyed)


def test_a_bad_row_is_told_and_the_other_parts_are_done(
    tmp_path: Path, keyed: BulkJob, write_table: WriteTable
) -> None:
    write_table(tmp_path / "in" / "a.parquet", 20)
    np.save(tmp_path / "in" / "b.npy", np.full((3, DIMENSION), np.nan, np.float32))
    write_table(tmp_path / "in" / "c.parquet", 20, first=100)
    job = replace(keyed, id_column=None, key=None)
    with raises("E-DATA-FILE") as caught:
        run(tmp_path / "in", tmp_path / "out", job)
    assert str(caught.value).startswith("b.npy: ")
    assert len(released(tmp_path / "out")) == 40
    assert not Manifest.read(Folder(str(tmp_path / "out"))).complete


def test_a_cap_ends_the_run(tmp_path: Path, bulk_protector: vecveil.Protector, write_table: WriteTable) -> None:
    write_table(tmp_path / "a.parquet", 20)
    job = BulkJob.of(bulk_protector, id_column="id")
    ledger = vecveil.Ledger(tmp_path / "l", cap=1)
    run(tmp_path / "a.parquet", tmp_path / "out", job, ledger=ledger)
    with pytest.raises(LedgerCapError):
        run(tmp_path / "a.parquet", tmp_path / "out2", job, ledger=ledger)
    assert not list((tmp_path / "out2").glob("part-*"))


def test_a_protected_folder_is_not_protected_again(tmp_path: Path, keyed: BulkJob, write_table: WriteTable) -> None:
    write_table(tmp_path / "a.parquet", 20)
    run(tmp_path / "a.parquet", tmp_path / "out", keyed)
    with raises("E-DATA-FILE-PROTECTED"):
        run(tmp_path / "out", tmp_path / "out2", keyed)


def test_another_file_system(keyed: BulkJob, tmp_path: Path, write_table: WriteTable) -> None:
    import fsspec

    X = write_table(tmp_path / "a.parquet", 57)
    fs = fsspec.filesystem("memory")
    fs.pipe("/in/a.parquet", (tmp_path / "a.parquet").read_bytes())
    protect_files(["memory://in/*.parquet"], "memory://out", keyed, part_bytes=SMALL, show_progress=False)
    again = protect_files(["memory://in/*.parquet"], "memory://out", keyed, part_bytes=SMALL, show_progress=False)
    fs.get("/out", str(tmp_path / "copied"), recursive=True)
    found = released(tmp_path / "copied")
    np.testing.assert_array_equal(np.array([found[f"item-{i}"] for i in range(57)]), expected(keyed, X))
    assert verify("memory://out", show_progress=False).results == again.results
    fs.rm("/in", recursive=True)
    fs.rm("/out", recursive=True)


def test_a_manifest_names_no_folder_and_no_key(
    tmp_path: Path, keyed: BulkJob, write_table: WriteTable, key: Path
) -> None:
    write_table(tmp_path / "private-folder" / "a.parquet", 20)
    run(tmp_path / "private-folder" / "a.parquet", tmp_path / "out", keyed)
    text = (tmp_path / "out" / MANIFEST).read_text()
    assert "private-folder" not in text
    assert str(key) not in text
    secrets = json.loads(key.read_text())["keys"]
    assert all(str(value) not in text for value in dict(secrets).values())
    record = json.loads(text)
    assert record["job"]["key_id"] == "k"
    assert record["complete"] is True


def test_the_output_may_lie_inside_the_inputs(tmp_path: Path, keyed: BulkJob, write_table: WriteTable) -> None:
    write_table(tmp_path / "in" / "a.parquet", 20)
    first = run(tmp_path / "in", tmp_path / "in" / "out", keyed)
    again = run(tmp_path / "in", tmp_path / "in" / "out", keyed)
    assert first.rows == again.rows == 20
    with raises("E-DATA-FILE-NO-ROWS", "input"):
        run(tmp_path / "in" / "out", tmp_path / "in" / "out", keyed)


def test_damage_shows(tmp_path: Path, keyed: BulkJob, write_table: WriteTable) -> None:
    write_table(tmp_path / "a.parquet", 20)
    out = tmp_path / "out"
    run(tmp_path / "a.parquet", out, keyed)
    part = out / "part-000000.parquet"
    content = bytearray(part.read_bytes())
    content[60] ^= 1
    part.write_bytes(content)
    with raises("E-DATA-FILE-PART", "out"):
        verify(out, show_progress=False)
    (out / MANIFEST).write_text('{"schema": "vecveil.manifest/9"}')
    with raises("E-DATA-FILE-MANIFEST", "out"):
        run(tmp_path / "a.parquet", out, keyed)
    with raises("E-DATA-FILE-MANIFEST", "out"):
        verify(tmp_path, show_progress=False)


def test_options_that_exclude_each_other(bulk_protector: vecveil.Protector, tmp_path: Path) -> None:
    ledger = vecveil.Ledger(tmp_path / "l")
    with raises("E-INPUT", "id_column"):
        protect_files(["x.npy"], tmp_path / "out", BulkJob.of(bulk_protector), ledger=ledger)
    with raises("E-INPUT", "id_column"):
        BulkJob.of(bulk_protector, key="env:KEY")
    with raises("E-INPUT", "key"):
        BulkJob.of(bulk_protector, key="env:KEY", id_column="id", noise=False)
    with raises("E-INPUT", "input"):
        protect_files([], "out", BulkJob.of(bulk_protector))


def test_files_without_rows_among_others(tmp_path: Path, keyed: BulkJob, write_table: WriteTable) -> None:
    """Such as those of a Spark job's empty partitions: they are left out, and the run is complete."""
    folder = tmp_path / "in"
    write_table(folder / "a.parquet", 9)
    pq.write_table(pq.read_table(folder / "a.parquet").slice(0, 0), folder / "b.parquet")
    manifest = run(folder, tmp_path / "out", keyed)
    assert manifest.complete
    assert [part["input"]["name"] for part in manifest.parts] == ["a.parquet"]
    pq.write_table(pq.read_table(folder / "a.parquet").slice(0, 0), folder / "a.parquet")
    with raises("E-DATA-FILE-NO-ROWS", "input"):
        run(folder, tmp_path / "other", keyed)


def test_a_header_alone_is_a_part_without_rows(tmp_path: Path, bulk_protector: vecveil.Protector) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("text,id\n")
    (folder / "b.csv").write_text("")
    job = BulkJob.of(bulk_protector, text_column="text")
    manifest = run(folder, tmp_path / "out", job)
    assert (manifest.complete, manifest.rows, len(manifest.parts)) == (True, 0, 1)
    assert os.listdir(tmp_path / "out") == [MANIFEST]
    assert verify(tmp_path / "out", show_progress=False).complete
    assert run(folder, tmp_path / "out", job).complete


def test_another_key_of_the_same_name_is_refused(tmp_path: Path, keyed: BulkJob, write_table: WriteTable) -> None:
    write_table(tmp_path / "a.parquet", 57)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "a.parquet", tmp_path / "out", keyed, engine=stopping_after(1))
    other = KeyFile.create(tmp_path / "other.keys", OpenJob(keyed).key.key_id)
    assert other.current == OpenJob(keyed).key.key_id
    with raises("E-DATA-FILE-OTHER-RUN", "out") as caught:
        run(tmp_path / "a.parquet", tmp_path / "out", replace(keyed, key=str(tmp_path / "other.keys")))
    assert "another key_check" in str(caught.value)


def test_a_guarantee_in_other_words_is_the_same_run(
    tmp_path: Path, keyed: BulkJob, write_table: WriteTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that a version with other sentences began."""
    write_table(tmp_path / "a.parquet", 57)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "a.parquet", tmp_path / "out", keyed, engine=stopping_after(1))
    record = BulkJob.to_record
    other = {"guarantee": "in other words", "conditional_on": [], "not_promised": ["nothing"]}
    monkeypatch.setattr(BulkJob, "to_record", lambda job: {**record(job), **other})
    assert run(tmp_path / "a.parquet", tmp_path / "out", keyed).complete
    assert verify(tmp_path / "out", show_progress=False).complete
