"""Protector files taken apart and put together again, for tests of what `vecveil.load` refuses."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
from safetensors.numpy import save

from vecveil.privacy.protector.serialisation import checksum

VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    1.5,
    7,
    -9.0,
    1e308,
    float("nan"),
    float("inf"),
    10**400,
    "",
    "x",
    "9.0",
    "../../etc",
    [],
    [1],
    {},
    {"a": 1},
    "\ud800",
    "x" * 10_000,
    2**63,
    65_537,
]
KEYS = [
    ("schema",),
    ("mechanism",),
    ("parameters",),
    ("parameters", "epsilon"),
    ("dimension",),
    ("output",),
    ("encoder",),
    ("encoder", "name"),
    ("encoder", "fingerprint"),
    ("concept",),
    ("report",),
    ("fingerprint",),
    ("method",),
    ("checksum",),
]


def parts(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the record and the arrays of a sound file, read without the package."""
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    record = json.loads(header.pop("__metadata__")["vecveil"])
    body = data[8 + size :]
    return record, {
        name: np.frombuffer(body[slice(*entry["data_offsets"])]).reshape(entry["shape"])
        for name, entry in header.items()
    }


def built(record: Any, arrays: dict[str, np.ndarray], *, sealed: bool = True) -> bytes:
    """Return a file of these parts; ``sealed`` with a checksum that fits, as a forger would."""
    if sealed and isinstance(record, dict):
        doubles = all(a.dtype == np.float64 for a in arrays.values())
        record = {**record, "checksum": checksum(record, arrays) if doubles else "0"}
    whole = {name: np.array(a, order="C") for name, a in arrays.items()}
    return save(whole, metadata={"vecveil": json.dumps(record)})


def odd_arrays(array: np.ndarray) -> list[np.ndarray]:
    shuffled = np.random.default_rng(0).permutation(array.ravel()).reshape(array.shape)
    tall, wide = array.reshape(-1, 1), array.reshape(1, -1)
    small, large = np.full(array.shape, 1e-320), np.full(array.shape, 1.7e308)
    return [
        np.full(array.shape, np.nan),
        np.full(array.shape, np.inf),
        -array,
        0 * array,
        array + 1e-3,
        2 * array,
        shuffled,
        array[:0],
        array[..., :0],
        np.zeros(0),
        array.ravel(),
        tall,
        wide,
        small,
        large,
        -large,
        array[None],
        np.array(1.0),
        array.astype(np.float32),
        array.astype(np.float16),
        array.astype(np.int64),
        array > 0,
        np.vstack([array, array]) if array.ndim == 2 else np.concatenate([array, array]),
        array.T.copy() + 1e-4,
    ]
