"""Damaged and hostile protector files: `vecveil.load` refuses them, or returns the same protector.

Nothing else may come out: no other exception, no warning, no other protector, no code that runs.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

import vecveil
from harness.protector_files import KEYS, VALUES, built, odd_arrays, parts
from harness.token_data import token_data
from vecveil.errors import ProtectorFileError
from vecveil.privacy.mechanisms import Laplace, Mahalanobis
from vecveil.privacy.protector import Protector
from vecveil.privacy.sensitivity import LinearMap, NoiseShape

N_DIM = 6
SUBSPACE = {"rank": 1, "kept": 3, "flattening": 0.2, "pairs": True}


@pytest.fixture(scope="module")
def protectors() -> dict[str, Protector]:
    data = token_data(40, N_DIM).arguments()
    fit = vecveil.fit_pairs
    diagonal = Mahalanobis(NoiseShape.from_diagonal(np.arange(N_DIM), floor=0.1), 3.0)
    return {
        "laplace": fit(*data, method="laplace", epsilon=9.0, concept_name="drug"),
        "covariance": fit(*data, method="covariance", epsilon=9.0),
        "subspace": fit(*data, epsilon=9.0, output="reduced", **SUBSPACE),  # type: ignore[arg-type]
        "diagonal": Protector(method="sparse", mechanism=diagonal),
    }


@pytest.fixture(scope="module")
def files(protectors: dict[str, Protector], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("sound")
    for name, protector in protectors.items():
        protector.save(folder / name)
    return {name: (folder / name).read_bytes() for name in protectors}


@pytest.fixture
def attempt(tmp_path: Path) -> Callable[[bytes, Protector], bool]:
    path = tmp_path / "fuzz.vecveil"

    def load(data: bytes, sound: Protector) -> bool:
        """Return whether the file was refused; fails on anything but a refusal or the same."""
        path.write_bytes(data)
        found, said = None, ""
        try:
            found = vecveil.load(path)
        except ProtectorFileError as error:
            said = str(error)
        if found is None:
            assert "fuzz.vecveil" in said
            assert len(said) < 400
            return True
        assert found.fingerprint == sound.fingerprint
        assert found.report == sound.report
        assert found.encoder_info == sound.encoder_info
        assert (found.concept, found.method, found.output) == (sound.concept, sound.method, sound.output)
        X = np.ones((2, N_DIM), dtype=np.float32)
        np.testing.assert_array_equal(found.protect(X, 0, lengths=False), sound.protect(X, 0, lengths=False))
        return False

    return load


NAMES = ["laplace", "covariance", "subspace", "diagonal"]
every = pytest.mark.parametrize("name", NAMES)


@every
def test_sound_files_load_and_rebuild(name: str, files: Any, protectors: Any, attempt: Any) -> None:
    assert not attempt(files[name], protectors[name])
    assert not attempt(built(*parts(files[name])), protectors[name])


@every
def test_truncated_at_every_class_of_position(name: str, files: Any, protectors: Any, attempt: Any) -> None:
    data = files[name]
    header = 8 + struct.unpack("<Q", data[:8])[0]
    cuts = {*range(12), header - 1, header, header + 1, len(data) - 8, len(data) - 1}
    cuts |= set(range(12, len(data), max(1, len(data) // 100)))
    for cut in sorted(cuts):
        assert attempt(data[:cut], protectors[name]), cut
    assert attempt(data + b"\0", protectors[name])
    assert attempt(data + data, protectors[name])


@every
def test_flipped_bits_are_refused_or_change_nothing(name: str, files: Any, protectors: Any, attempt: Any) -> None:
    data = files[name]
    rng = np.random.default_rng(1)
    kept = 0
    for position in [*range(16), *rng.integers(0, len(data), 330)]:
        damaged = bytearray(data)
        damaged[position] ^= 1 << int(rng.integers(8))
        kept += not attempt(bytes(damaged), protectors[name])
    assert kept < 10


FREE_TEXT = {("encoder", "name"), ("encoder", "fingerprint"), ("concept",), ("report",)}


@every
def test_edited_records(name: str, files: Any, protectors: Any, attempt: Any) -> None:
    """Each key gone or with each odd value, once unsealed and once with a fitting checksum."""
    record, arrays = parts(files[name])
    for key in KEYS:
        for value in [KeyError, *VALUES]:
            edited = json.loads(json.dumps(record))
            place = edited
            for step in key[:-1]:
                place = place[step]
            if value is KeyError:
                del place[key[-1]]
            else:
                place[key[-1]] = value
            attempt(built(edited, arrays, sealed=False), protectors[name])
            if key not in FREE_TEXT and key != ("checksum",):
                attempt(built(edited, arrays), protectors[name])
            elif type(value) not in (str, type(None), dict):  # a forger may write any text there
                data = built(edited, arrays, sealed=key != ("checksum",))
                assert attempt(data, protectors[name]), (key, value)


@every
def test_edited_arrays(name: str, files: Any, protectors: Any, attempt: Any) -> None:
    """Another array cannot load under the old fingerprint, whatever its checksum."""
    record, arrays = parts(files[name])
    for key, array in arrays.items():
        for odd in odd_arrays(array):
            if odd.shape == array.shape and np.array_equal(odd, array):
                continue
            for sealed in (False, True):
                data = built(record, arrays | {key: odd}, sealed=sealed)
                assert attempt(data, protectors[name]) or key == "dimension"
        without = {k: a for k, a in arrays.items() if k != key}
        attempt(built(record, without), protectors[name])
        swapped = without | {f"{key}.": array}
        attempt(built(record, swapped), protectors[name])
    names = list(arrays)
    for a, b in itertools.pairwise(names):
        assert attempt(built(record, arrays | {a: arrays[b], b: arrays[a]}), protectors[name])
    for other in NAMES:  # the arrays of another protector
        if other != name:
            attempt(built(record, parts(files[other])[1]), protectors[name])


def reforged(record: dict[str, Any], protector: Protector) -> dict[str, Any]:
    return {**record, "fingerprint": protector.fingerprint}


def test_a_forger_cannot_change_what_epsilon_means(files: Any, protectors: Any, attempt: Any) -> None:
    """A shape of another trace, or a map that is not what it says, does not load at all."""
    record, arrays = parts(files["diagonal"])
    doubled = Mahalanobis(NoiseShape(diagonal=2 * arrays["shape.diagonal"]), 3.0)
    forged = reforged(record, Protector(method="sparse", mechanism=doubled))
    assert attempt(built(forged, {"shape.diagonal": 2 * arrays["shape.diagonal"]}), None)
    record, arrays = parts(files["subspace"])
    stretched = arrays | {"map.up": 3 * arrays["map.up"]}
    assert attempt(built(record, stretched), protectors["subspace"])


def test_a_map_of_lower_rank_than_its_rows_is_refused(files: Any, attempt: Any) -> None:
    """The guarantee counts its rows as released dimensions, and would divide by zero."""
    record, arrays = parts(files["subspace"])
    down, up = arrays["map.down"], arrays["map.up"]

    def forged(rows: np.ndarray) -> bytes:
        other = Protector(method="subspace", mechanism=Laplace(N_DIM, 9.0), map=LinearMap(down=rows, up=up))
        sealed = {**record, "fingerprint": other.fingerprint, "output": "full"}
        return built(sealed, arrays | {"map.down": rows})

    for rows in (down[[0, 1, 0]], down[[0, 0, 0]], 0 * down, down * [[1], [1], [0]]):
        assert attempt(forged(np.ascontiguousarray(rows)), None)


def test_an_epsilon_without_a_finite_guarantee_is_refused(files: Any, attempt: Any) -> None:
    record, arrays = parts(files["laplace"])
    for epsilon in (1e-308, 5e-324):
        other = Protector(method="laplace", mechanism=Laplace(N_DIM, epsilon))
        changed = {"fingerprint": other.fingerprint, "parameters": {"epsilon": epsilon, "splits": 1}}
        assert attempt(built({**record, **changed}, arrays), None)
    record, arrays = parts(files["diagonal"])
    thin = {"shape.diagonal": np.array([1e-300, 1e-300, 1.5, 1.5, 1.5, 1.5])}
    shape = Mahalanobis(NoiseShape(diagonal=thin["shape.diagonal"]), 1e200)
    other = Protector(method="sparse", mechanism=shape)
    changed = {"fingerprint": other.fingerprint, "parameters": {"epsilon": 1e200, "splits": 1}}
    assert attempt(built({**record, **changed}, thin), None)


class Planted:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ["VECVEIL_FUZZ_PROOF"],)


def test_other_kinds_of_files(
    files: Any, protectors: Any, attempt: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof = tmp_path / "code ran"
    monkeypatch.setenv("VECVEIL_FUZZ_PROOF", str(proof))
    sound, data = protectors["laplace"], files["laplace"]
    kinds = [pickle.dumps(Planted(), protocol=p) for p in range(6)]
    np.save(tmp_path / "objects.npy", np.array([Planted()], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "arrays.npz", a=np.ones(3))
    with zipfile.ZipFile(tmp_path / "zip", "w") as archive:
        archive.writestr("vecveil", data)
    kinds += [(tmp_path / name).read_bytes() for name in ("objects.npy", "arrays.npz", "zip")]
    kinds += [b"", b"{}", b"\0" * 8, b"\xff" * 64, gzip.compress(data), data.hex().encode()]
    kinds += [struct.pack("<Q", size) + b"{}" for size in (2, 3, 2**31, 2**63, 2**64 - 1)]
    for kind in kinds:
        assert attempt(kind, sound)
    assert not proof.exists()
    pickle.loads(kinds[0])  # control: the planted code does run when a pickle is trusted
    assert proof.exists()


def test_metadata_of_every_kind(files: Any, protectors: Any, attempt: Any) -> None:
    record, arrays = parts(files["laplace"])
    sound = protectors["laplace"]
    for depth in (900, 5_000, 100_000):
        for text in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
            assert attempt(save(arrays, metadata={"vecveil": text}), sound)
            deep = json.dumps(record)[:-1] + f', "more": {text}}}'
            assert attempt(save(arrays, metadata={"vecveil": deep}), sound)
    for text in ("", "null", "1", '"x"', "[]", "{}", "{", json.dumps(record)[:-1], "\0"):
        assert attempt(save(arrays, metadata={"vecveil": text}), sound)
    assert attempt(save(arrays), sound)
    assert attempt(save(arrays, metadata={"other": json.dumps(record)}), sound)
    for schema in ("vecveil.protector/1", "vecveil.protector/3", "vecveil.audit/1", "x" * 10_000):
        assert attempt(built({**record, "schema": schema}, arrays), sound)


def test_hostile_headers(files: Any, protectors: Any, attempt: Any) -> None:
    data, sound = files["laplace"], protectors["laplace"]
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    odd: list[Any] = [
        {"dimension": {"dtype": "F64", "shape": [2**40], "data_offsets": [0, 8]}},
        {"dimension": {"dtype": "F64", "shape": [2**62, 4], "data_offsets": [0, 8]}},
        {"dimension": {"dtype": "F64", "shape": [-1], "data_offsets": [0, 8]}},
        {"dimension": {"dtype": "F64", "shape": [1], "data_offsets": [0, 2**40]}},
        {"dimension": {"dtype": "F64", "shape": [1], "data_offsets": [8, 0]}},
        {"dimension": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}},
        {"dimension": {"dtype": "F99", "shape": [1], "data_offsets": [0, 8]}},
        {"dimension": None},
        {"dimension": []},
        {"__metadata__": 1},
        {"__metadata__": {"vecveil": 1}},
    ]
    for entry in odd:
        text = json.dumps(header | entry).encode()
        assert attempt(struct.pack("<Q", len(text)) + text + body, sound), entry


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    names = ["folder", "loop", "dangling", "pipe", "missing", "n" * 300, "null\0byte", "missing/x"]
    for name in names:
        with pytest.raises(
            ProtectorFileError, match=r"Protector file not found|is not a file|cannot be read"
        ) as raised:
            vecveil.load(tmp_path / name)
        assert raised.value.param == "path"
    with pytest.raises(ProtectorFileError):
        vecveil.load("/dev/null")
