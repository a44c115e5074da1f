"""Where random numbers come from."""

from __future__ import annotations

import multiprocessing
import secrets

import numpy as np
import pytest
from randomgen import AESCounter
from scipy import stats

from vecveil.errors import InvalidInputError
from vecveil.mechanisms import Laplace
from vecveil.randomness import is_secure, resolve_generator, secure_generator


def test_the_default_is_aes_keyed_by_the_operating_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def key(bits: int) -> int:
        asked.append(bits)
        return 2**127 + 3

    monkeypatch.setattr(secrets, "randbits", key)
    generator = resolve_generator(None)
    assert isinstance(generator.bit_generator, AESCounter)
    assert asked == [128]
    assert generator.bytes(64) == resolve_generator(None).bytes(64)  # the key decides
    monkeypatch.setattr(secrets, "randbits", lambda bits: 3)
    assert generator.bytes(64) != resolve_generator(None).bytes(64)


@pytest.mark.parametrize("bit", [0, 1, 31, 32, 63, 64, 96, 127])
def test_every_bit_of_the_key_counts(bit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "randbits", lambda bits: 0)
    first = secure_generator().bytes(32)
    monkeypatch.setattr(secrets, "randbits", lambda bits: 1 << bit)
    assert secure_generator().bytes(32) != first


def test_each_call_has_a_new_key() -> None:
    assert len({secure_generator().bytes(16) for _ in range(200)}) == 200


def test_bytes_of_the_default_generator_are_uniform() -> None:
    """Null: bytes are uniform. False failure: 1e-6. Control: bytes with a cleared bit fail."""
    drawn = np.frombuffer(secure_generator().bytes(1 << 20), dtype=np.uint8)
    assert stats.chisquare(np.bincount(drawn, minlength=256)).pvalue > 1e-6
    skewed = np.where(np.arange(drawn.size) % 50 == 0, drawn & 0x7F, drawn)
    assert stats.chisquare(np.bincount(skewed, minlength=256)).pvalue < 1e-6


def _noise(_: int) -> bytes:
    return Laplace(4, 1.0).protect(np.zeros((1, 4))).tobytes()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_workers_never_share_noise() -> None:
    _noise(0)  # the parent has used the generator before it forks
    with multiprocessing.get_context("fork").Pool(4) as pool:
        drawn = pool.map(_noise, range(40), chunksize=1)
    assert len(set(drawn)) == 40


def test_seeds_and_generators() -> None:
    assert resolve_generator(5).integers(100) == np.random.default_rng(5).integers(100)
    assert resolve_generator(np.int64(5)).integers(100) == resolve_generator(5).integers(100)
    own = np.random.default_rng(1)
    assert resolve_generator(own) is own
    assert is_secure(None)
    assert not is_secure(0)
    assert not is_secure(own)


@pytest.mark.parametrize("bad", [-1, 1.0, "1", True, False, np.random.RandomState(0), object()])
def test_other_sources_are_refused(bad: object) -> None:
    with pytest.raises(InvalidInputError, match="f: `rng` must be None, a seed ≥ 0"):
        resolve_generator(bad, owner="f")  # type: ignore[arg-type]
