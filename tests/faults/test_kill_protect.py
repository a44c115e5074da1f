"""``protect`` is killed at random moments: resumed, every row is there once, and nothing else is."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import vecveil
from harness.command_line import Outcome
from harness.faults import MOMENTS, WarmProcess, clean_rows_in, kills, left_over, seed, share
from vecveil.gateway.bulk import verify


def rows_of(files: Sequence[Path]) -> dict[str, bytes]:
    """Return every row by its id; fails if an id stands there twice."""
    found: dict[str, bytes] = {}
    for path in files:
        table = pq.read_table(path)
        flat = table["embedding"].combine_chunks().values.to_numpy()
        for one, vector in zip(table["id"].to_pylist(), flat.reshape(len(table), -1), strict=True):
            assert one not in found, one
            found[one] = vector.tobytes()
    return found


def checksums(folder: Path) -> list[str]:
    """Return the checksum of each part by the manifest."""
    manifest = json.loads((folder / "_manifest.json").read_text())
    assert manifest["complete"]
    return [part["sha256"] for part in manifest["parts"]]


def assert_released(found: dict[str, bytes], clean: np.ndarray) -> None:
    """Check that every row is there, and none of them clean."""
    assert list(found) == [f"r{row:06d}" for row in range(len(clean))]
    assert not set(found.values()) & {row.tobytes() for row in clean}


@pytest.mark.parametrize("ledger", [False, True], ids=["", "ledger"])
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "fresh"])
def test_into_a_folder(
    keyed: bool,
    ledger: bool,
    warm: WarmProcess,
    lake: Path,
    clean: np.ndarray,
    protector: Path,
    key: Path,
    tmp_path: Path,
) -> None:
    if MOMENTS < 10 and not ledger:
        pytest.skip("with a ledger in the short version")
    rng = random.Random(seed("into a folder"))
    place = tmp_path / "place"
    arguments: list[object] = ["protect", lake, "-p", protector, "-o", place / "out", "--part-size", 1]
    if keyed:
        arguments += ["--key-file", key]
    if ledger:
        arguments += ["--ledger", place / "releases.ledger"]
        arguments += ["--cap", 1] if keyed else []  # a part that was cut off counts again with fresh noise
    if keyed or ledger:
        arguments += ["--id-column", "id"]
    undisturbed: list[tuple[list[str], dict[str, bytes]]] = []

    def after_kill() -> None:
        assert clean_rows_in(place, clean) == []
        rows_of(sorted((place / "out").glob("*.parquet")))  # each part is whole

    def after_end(done: Outcome) -> None:
        assert done.code == 0, done.err
        found = rows_of(sorted((place / "out").glob("*.parquet")))
        assert_released(found, clean)
        assert verify(place / "out", show_progress=False).rows == len(clean)
        assert left_over(place) == []
        assert clean_rows_in(place, clean) == []
        assert {path.suffix for path in (place / "out").iterdir()} == {".parquet", ".json"}
        if keyed:
            undisturbed.append((checksums(place / "out"), found))
            assert undisturbed[-1] == undisturbed[0]
        if ledger:
            with vecveil.Ledger(place / "releases.ledger", create=False) as opened:
                opened.verify()
                histogram = opened.summary().histogram
            assert sum(histogram.values()) == len(clean)
            assert not keyed or set(histogram) == {1}
        shutil.rmtree(place)
        place.mkdir()

    place.mkdir()
    kills(lambda: warm.start(*arguments, cwd=place), rng, after_kill=after_kill, after_end=after_end, moments=share(4))


@pytest.mark.parametrize("suffix", ["parquet", "npy"])
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "fresh"])
def test_into_one_file(suffix: str, keyed: bool, warm: WarmProcess, protector: Path, key: Path, tmp_path: Path) -> None:
    rng = random.Random(seed("into one file"))
    many = np.random.default_rng(13).normal(size=(20_000, 32)).astype(np.float32)
    np.save(tmp_path / "clean.npy", many)
    place = tmp_path / "place"
    place.mkdir()
    out = place / f"out.{suffix}"
    arguments = ["protect", tmp_path / "clean.npy", "-p", protector, "-o", out, "--force"]
    arguments += ["--key-file", key] if keyed else []
    undisturbed: list[bytes] = []

    def after_kill() -> None:
        assert clean_rows_in(place, many) == []
        if out.exists():
            assert_whole()

    def assert_whole() -> None:
        if suffix == "npy":
            found = np.load(out)
        else:
            column = pq.read_table(out)["embedding"].combine_chunks()
            found = column.values.to_numpy().reshape(len(column), -1)
        assert found.shape == many.shape
        assert not np.all(found[:, :4] == many[:, :4], axis=1).any()

    def after_end(done: Outcome) -> None:
        assert done.code == 0, done.err
        assert_whole()
        assert clean_rows_in(place, many) == []
        assert [path.name for path in place.iterdir()] == [out.name]
        if keyed:
            undisturbed.append(out.read_bytes())
            assert undisturbed[-1] == undisturbed[0]
        out.unlink()

    kills(lambda: warm.start(*arguments, cwd=place), rng, after_kill=after_kill, after_end=after_end, moments=share(4))


def test_control_the_search_finds_a_clean_row(tmp_path: Path, clean: np.ndarray) -> None:
    (tmp_path / "deep").mkdir()
    for shift in range(4):
        (tmp_path / "deep" / f"{shift}").write_bytes(b"x" * (7 + shift) + clean[shift].tobytes())
    (tmp_path / "other").write_bytes((clean[0] + 1).tobytes())
    assert clean_rows_in(tmp_path, clean) == ["0", "1", "2", "3"]
