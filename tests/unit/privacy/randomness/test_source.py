"""What callers may pass as ``rng``, and what the words of the default are.

Processes that tests start import this file: packages that one test uses are imported there.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from harness.fresh_process import in_fresh_process
from vecveil.privacy.mechanisms import Laplace
from vecveil.privacy.randomness import resolve_generator, resolve_stream


def test_the_default_key_has_256_bits_of_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    asked: list[int] = []

    def key(size: int) -> bytes:
        asked.append(size)
        return bytes(range(size))

    monkeypatch.setattr(secrets, "token_bytes", key)
    words = resolve_stream(None, 3).words(4)
    assert asked == [32]
    # Counter mode by an independent route: block j of row i is AES(key, (i, j)), little-endian words.
    cipher = Cipher(algorithms.AES(bytes(range(32))), modes.ECB()).encryptor()
    for i in range(3):
        for j in range(4):
            block = i.to_bytes(8, "little") + j.to_bytes(8, "little")
            assert words[i, 2 * j : 2 * j + 2].tobytes() == cipher.update(block)


def test_each_call_has_a_new_key() -> None:
    assert len({resolve_stream(None, 1).words(1).tobytes() for _ in range(200)}) == 200


def test_rows_and_blocks_are_addressed() -> None:
    stream = resolve_stream(7, 20)
    words = stream.words(6)
    np.testing.assert_array_equal(stream.part(5, 9).words(6), words[5:9])
    np.testing.assert_array_equal(stream.part(5, 9).part(1, 3).words(6), words[6:8])
    np.testing.assert_array_equal(stream.take(np.array([3, 17, 3])).words(6), words[[3, 17, 3]])
    np.testing.assert_array_equal(stream.words(2, first_block=4), words[:, 8:])
    assert len(np.unique(words)) == words.size


def test_gammas_do_not_depend_on_how_rows_are_parted() -> None:
    stream = resolve_stream(7, 3000)
    whole = stream.gammas(2.0, 5)
    parts = [stream.part(i, i + 7).gammas(2.0, 5) for i in range(0, 2996, 7)]
    np.testing.assert_array_equal(whole[:2996], np.concatenate(parts))


def _noise(_: int) -> bytes:
    return Laplace(4, 1.0).protect(np.zeros((1, 4))).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", "spawn"])
@in_fresh_process
def test_worker_processes_never_share_noise(start: str) -> None:
    _noise(0)  # the parent has drawn before it forks
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(start)) as pool:
        drawn = list(pool.map(_noise, range(40)))
    assert len(set(drawn)) == 40


@pytest.mark.slow
@in_fresh_process
def test_workers_of_joblib_and_of_a_pool_never_share_noise() -> None:
    import joblib
    from joblib.externals.loky import get_reusable_executor

    drawn = joblib.Parallel(n_jobs=2)(joblib.delayed(_noise)(i) for i in range(20))
    get_reusable_executor().shutdown()  # its workers would be waited for
    with multiprocessing.get_context("fork").Pool(2) as pool:
        drawn += pool.map(_noise, range(20), chunksize=1)
    assert len(set(drawn)) == 40


@pytest.mark.slow
@in_fresh_process
def test_threads_never_share_noise_and_a_pool_survives_a_fork() -> None:
    os.environ["VECVEIL_THREADS"] = "3"
    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(_noise, range(200)))
    assert len(set(drawn)) == 200
    X = np.zeros((9000, 64), dtype=np.float32)
    Laplace(64, 1.0).protect(X)  # the pool of threads is there now
    results = multiprocessing.get_context("fork").Queue()
    worker = multiprocessing.get_context("fork").Process(target=_protect_in_child, args=(X, results))
    worker.start()
    assert results.get(timeout=60) == 9000
    worker.join(60)
    assert threading.active_count() > 0


def _protect_in_child(X: Any, results: Any) -> None:
    results.put(len(np.unique(Laplace(64, 1.0).protect(X), axis=0)))


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_the_number_of_threads_does_not_change_seeded_noise(threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.zeros((9000, 64), dtype=np.float32)
    monkeypatch.setenv("VECVEIL_THREADS", "1")
    alone = Laplace(64, 1.0).protect(X, rng=3)
    monkeypatch.setenv("VECVEIL_THREADS", threads)
    monkeypatch.setattr("vecveil.runtime._pool", None)  # a pool of that size
    np.testing.assert_array_equal(Laplace(64, 1.0).protect(X, rng=3), alone)


def test_seeds_and_generators() -> None:
    assert resolve_generator(5).integers(100) == np.random.default_rng(5).integers(100)
    assert resolve_generator(np.int64(5)).integers(100) == resolve_generator(5).integers(100)
    own = np.random.default_rng(1)
    assert resolve_generator(own) is own


@pytest.mark.parametrize("bad", [-1, 1.0, "1", True, False, np.random.RandomState(0), object()])
def test_other_sources_are_refused(bad: object) -> None:
    with raises("E-INPUT-TYPE", "rng"):
        resolve_generator(bad, owner="f")  # type: ignore[arg-type]
    with raises("E-INPUT-TYPE", "rng"):
        resolve_stream(bad, 1, owner="f")  # type: ignore[arg-type]


def test_a_stream_must_have_the_rows() -> None:
    with raises("E-INCOMPATIBLE", "rng"):
        resolve_stream(resolve_stream(0, 2), 3)
    assert "key" not in repr(resolve_stream(0, 2))
