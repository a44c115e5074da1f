"""The cache: right vectors or none, under two processes, kill -9, damage and missing rights."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from vecveil.errors import DataFileError
from vecveil.texts.encoders import CacheWarning, EmbeddingCache, as_text_encoder, default_cache_folder
from vecveil.texts.encoders.cache import matching_texts
from vecveil.texts.encoders.text_encoder import CHUNK_SIZE

DIMENSION = 24


def vectors_of(texts: list[str]) -> np.ndarray:
    """Return vectors that anybody can recompute from the text."""
    seeds = [int.from_bytes(text.encode()[-6:], "big") for text in texts]
    return np.array([np.random.default_rng(seed).normal(size=DIMENSION) for seed in seeds], np.float32)


class Counting:
    fingerprint = "counting-1"

    def __init__(self) -> None:
        self.count = 0

    def encode(self, texts: list[str]) -> np.ndarray:
        self.count += len(texts)
        return vectors_of(texts)


def texts_of(count: int, start: int = 0) -> list[str]:
    return [f"text number {i}" for i in range(start, start + count)]


def filled(folder: Path, count: int = 50) -> EmbeddingCache:
    cache = EmbeddingCache(folder, "f")
    cache.put(texts_of(count), vectors_of(texts_of(count)))
    return cache


WRITER = """
import sys, numpy as np
from vecveil.texts.encoders import EmbeddingCache
folder, start, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
cache = EmbeddingCache(folder, "f")
print("ready", flush=True)
for i in range(rounds):
    texts = [f"text number {j}" for j in range(start + 20 * i, start + 20 * i + 20)]
    seeds = [int.from_bytes(text.encode()[-6:], "big") for text in texts]
    cache.put(texts, np.array(
        [np.random.default_rng(s).normal(size=24) for s in seeds], np.float32))
assert cache.usable
print("done", flush=True)
"""


def writer(folder: Path, start: int, rounds: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", WRITER, str(folder), str(start), str(rounds)],
        stdout=subprocess.PIPE,
        text=True,
    )


def assert_only_right_vectors(cache: EmbeddingCache, texts: list[str]) -> int:
    found, vectors = cache.get(texts, DIMENSION)
    np.testing.assert_array_equal(vectors, vectors_of([texts[i] for i in found]).reshape(-1, 24))
    return len(found)


def test_what_is_put_is_found(tmp_path: Path) -> None:
    cache = filled(tmp_path / "new" / "folder")
    asked = [*texts_of(3, start=48), "unknown", ""]
    found, vectors = cache.get(asked, None)
    assert found == [0, 1]
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, vectors_of(asked[:2]))
    assert cache.get(asked, DIMENSION + 1)[0] == []
    assert cache.get([], None)[0] == []


def test_thousands_of_keys_in_one_question(tmp_path: Path) -> None:
    cache = filled(tmp_path, 3000)
    assert assert_only_right_vectors(cache, texts_of(4000)) == 3000


def test_other_fingerprints_are_other_files(tmp_path: Path) -> None:
    filled(tmp_path)
    assert EmbeddingCache(tmp_path, "g").get(texts_of(3), None)[0] == []


def test_only_the_owner_reads_it_and_it_holds_no_text(tmp_path: Path) -> None:
    cache = filled(tmp_path / "folder")
    assert stat.S_IMODE(cache.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(cache.path.parent.stat().st_mode) == 0o700
    assert b"text number" not in cache.path.read_bytes()
    other = filled(tmp_path / "other")

    def keys(path: Path) -> set[bytes]:
        connection = sqlite3.connect(path)
        try:
            return {key for (key,) in connection.execute("SELECT key FROM vectors")}
        finally:
            connection.close()

    # The same texts have other keys in another file: the digest is keyed by a random salt.
    assert keys(cache.path).isdisjoint(keys(other.path))


def test_reruns_encode_nothing(tmp_path: Path) -> None:
    counting = Counting()
    texts = texts_of(30) + texts_of(30)
    first = as_text_encoder(counting, cache=tmp_path).encode(texts)
    second = as_text_encoder(counting, cache=tmp_path).encode(texts[::-1])
    assert counting.count == 30
    np.testing.assert_array_equal(first, second[::-1])
    third = as_text_encoder(counting, cache=tmp_path).encode([*texts_of(40)])
    assert counting.count == 40
    np.testing.assert_array_equal(third, vectors_of(texts_of(40)))
    as_text_encoder(counting, cache=None).encode(texts)
    assert counting.count == 70


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    texts = texts_of(2 * CHUNK_SIZE + 10)

    def interrupted(batch: list[str]) -> np.ndarray:
        if texts[-1] in batch:
            raise KeyboardInterrupt
        return vectors_of(batch)

    with pytest.raises(KeyboardInterrupt):
        as_text_encoder(interrupted, fingerprint="counting-1", cache=tmp_path).encode(texts)
    counting = Counting()
    got = as_text_encoder(counting, cache=tmp_path).encode(texts)
    assert counting.count == 10
    np.testing.assert_array_equal(got, vectors_of(texts))


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    both = [writer(tmp_path, 0, 60), writer(tmp_path, 600, 60)]  # half of the texts in common
    for process in both:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0, out
    cache = EmbeddingCache(tmp_path, "f")
    assert assert_only_right_vectors(cache, texts_of(2000)) == 1800
    assert [path.name for path in tmp_path.iterdir()] == [cache.path.name]


def damage_noise(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(5000))


def damage_truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def damage_vector(path: Path) -> None:
    _change(path, "UPDATE vectors SET vector = zeroblob(length(vector))")


def damage_length(path: Path) -> None:
    _change(path, "UPDATE vectors SET vector = substr(vector, 1, length(vector) - 4)")


def damage_swapped(path: Path) -> None:
    _change(path, "UPDATE vectors SET vector = (SELECT vector FROM vectors LIMIT 1)")


def damage_salt(path: Path) -> None:
    _change(path, "DELETE FROM meta WHERE name = 'salt'")


def damage_dimension(path: Path) -> None:
    _change(path, "UPDATE meta SET value = 'many' WHERE name = 'dimension'")


def damage_schema(path: Path) -> None:
    _change(path, "DROP TABLE vectors", "CREATE TABLE vectors (something INTEGER)")


def _change(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    try:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    finally:
        connection.close()


DAMAGES = [
    damage_noise,
    damage_truncated,
    damage_vector,
    damage_length,
    damage_swapped,
    damage_salt,
    damage_dimension,
    damage_schema,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_file_is_set_aside(tmp_path: Path, damage: object) -> None:
    counting = Counting()
    texts = texts_of(200)
    as_text_encoder(counting, cache=tmp_path).encode(texts)
    cache = as_text_encoder(counting, cache=tmp_path).cache
    assert cache is not None
    damage(cache.path)  # type: ignore[operator]
    with pytest.warns(CacheWarning, match="set aside") as caught:
        got = as_text_encoder(counting, cache=tmp_path).encode(texts)
    assert len(caught) == 1
    np.testing.assert_array_equal(got, vectors_of(texts))
    assert len(list(tmp_path.glob("*.damaged-*"))) == 1
    # The new file works, without a warning.
    before = counting.count
    np.testing.assert_array_equal(as_text_encoder(counting, cache=tmp_path).encode(texts), got)
    assert counting.count == before


def test_random_bytes_flipped_never_give_wrong_vectors(tmp_path: Path) -> None:
    original = filled(tmp_path / "original", 60).path.read_bytes()
    rng = np.random.default_rng(1)
    damaged = 0
    for trial in range(60):
        folder = tmp_path / str(trial)
        cache = EmbeddingCache(folder, "f")
        folder.mkdir()
        data = bytearray(original)
        for position in rng.integers(0, len(data), size=20):
            data[position] ^= int(rng.integers(1, 256))
        cache.path.write_bytes(bytes(data))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert_only_right_vectors(cache, texts_of(60))
            assert_only_right_vectors(cache, texts_of(60))
        assert all(issubclass(warning.category, CacheWarning) for warning in caught)
        damaged += bool(caught)
    assert damaged  # control: the flips do reach what is read


def test_a_folder_that_cannot_be_made_turns_the_cache_off(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    counting = Counting()
    encoder = as_text_encoder(counting, cache=tmp_path / "file" / "cache")
    with pytest.warns(CacheWarning, match="not used from here on") as caught:
        got = encoder.encode(texts_of(2 * CHUNK_SIZE))
    assert len(caught) == 1  # said once, not for every chunk
    np.testing.assert_array_equal(got, vectors_of(texts_of(2 * CHUNK_SIZE)))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_turns_the_cache_off(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.warns(CacheWarning, match="not used from here on"):
            got = as_text_encoder(Counting(), cache=tmp_path).encode(texts_of(3))
    finally:
        tmp_path.chmod(0o700)
    np.testing.assert_array_equal(got, vectors_of(texts_of(3)))


def test_a_lock_held_for_long_turns_the_cache_off(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path, "f", patience=0.05)
    cache.put(texts_of(5), vectors_of(texts_of(5)))
    holder = sqlite3.connect(cache.path, isolation_level=None)
    try:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.warns(CacheWarning, match="locked"):
            cache.put(texts_of(5, start=5), vectors_of(texts_of(5, start=5)))
    finally:
        holder.close()
    assert not cache.usable
    assert assert_only_right_vectors(EmbeddingCache(tmp_path, "f"), texts_of(10)) == 5


def test_the_folder_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VECVEIL_CACHE", str(tmp_path / "chosen"))
    assert default_cache_folder() == tmp_path / "chosen"
    as_text_encoder(Counting()).encode(["a"])
    assert len(list((tmp_path / "chosen").glob("*.sqlite"))) == 1
    monkeypatch.delenv("VECVEIL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache_folder() == tmp_path / "xdg" / "vecveil" / "embeddings"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache_folder().parts[-3:] == (".cache", "vecveil", "embeddings")


def test_entries_that_another_connection_reads_are_not_called_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EmbeddingCache.__init__.__kwdefaults__, "patience", 0.0)
    cache = EmbeddingCache(tmp_path, "encoder")
    cache.put(["a text"], np.ones((1, 4), np.float32))
    with contextlib.closing(sqlite3.connect(cache.path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM vectors").fetchall()
        with pytest.raises(DataFileError, match="Another program reads"):
            matching_texts(tmp_path, ["a text"], delete=True)
    assert matching_texts(tmp_path, ["a text"], delete=True) == 0
