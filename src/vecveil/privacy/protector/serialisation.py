"""Protector file format: safetensors with JSON metadata. Loading executes no content of the file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from vecveil.errors import MissingDependencyError, ProtectorFileError, VecveilError
from vecveil.io import expanded, parse_json
from vecveil.privacy.mechanisms import MECHANISMS, Before, Step
from vecveil.privacy.sensitivity.shapes import LinearMap
from vecveil.texts.encoders import EncoderInfo
from vecveil.version import __version__

SCHEMA = "vecveil.protector/2"
LARGEST_FILE = 2**31
LARGEST_DIMENSION = 16_384
"""Maximum dimension: a few bytes can declare any, and a guarantee needs n × n numbers."""

Arrays = dict[str, np.ndarray[Any, Any]]


def pack(record: dict[str, Any], arrays: Arrays) -> bytes:
    from safetensors import SafetensorError
    from safetensors.numpy import save

    stored = {name: np.ascontiguousarray(a, dtype=_stored_type(name)) for name, a in arrays.items()}
    # Part of the format: every file contains this array, also for mechanisms without any.
    stored.setdefault("dimension", np.array([record["dimension"]], dtype=np.float64))
    record = {"schema": SCHEMA, "vecveil": __version__, **record}
    record["checksum"] = checksum(record, stored)
    if record["dimension"] > LARGEST_DIMENSION:
        raise _too_large(f"a protector of at most {LARGEST_DIMENSION:,} dimensions")
    try:
        data = bytes(save(stored, metadata={"vecveil": json.dumps(record, allow_nan=False)}))
    except SafetensorError as error:  # of a header of 100 MB, which contains the terms
        raise _too_large("of fewer terms") from error
    if len(data) > LARGEST_FILE:
        raise _too_large(f"of at most {LARGEST_FILE >> 30} GiB")
    return data


def _too_large(expected: str) -> ProtectorFileError:
    return ProtectorFileError(
        f"The protector is too large for a file that can be loaded: take {expected}.", param="protector"
    )


def unpack(data: bytes, name: str) -> tuple[dict[str, Any], Arrays]:
    """Return the record and arrays of a file after checking its schema and checksum; ``name`` is for messages."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays: Arrays = load(data)
        # safetensors reads metadata from paths only: its header is eight bytes of length, then JSON.
        header = parse_json(data[8 : 8 + int.from_bytes(data[:8], "little")])
        metadata = header.get("__metadata__", {})
    except (SafetensorError, ValueError, TypeError, LookupError, RuntimeError, AttributeError) as error:
        raise refuse(name, "is truncated, damaged or not a protector") from error
    try:
        record = parse_json(metadata["vecveil"])
        schema = record["schema"]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise refuse(name, "is not a protector") from error
    if schema != SCHEMA:
        shown = repr(schema[:40]) if isinstance(schema, str) else "of a different kind"
        raise refuse(name, f"has the format {shown}, and this version reads {SCHEMA!r}")
    # NaN would slip through the comparisons of the checks below.
    for array_name, array in arrays.items():
        if array.dtype != _stored_type(array_name) or not np.isfinite(array).all():
            raise refuse(name, "contains arrays that are not finite, or of a different type")
    with damage_refused(name):
        if checksum(record, arrays) != record["checksum"]:
            raise refuse(name, "does not match its own checksum")
    return record, arrays


@dataclass(frozen=True, eq=False)
class FitSettings:
    """Settings to fit a protector again, except those that it contains itself.

    Attributes:
        map: ``none``, ``wiener``, or the method's ``own map``.
        options: of the method, as the fit chose them; JSON-ready.
    """

    map: str
    options: Mapping[str, Any]
    seed: int


def _settings(record: Any) -> FitSettings:
    made = FitSettings(record["map"], record["options"], record["seed"])
    if not isinstance(made.map, str) or not isinstance(made.options, dict) or type(made.seed) is not int:
        raise ValueError("settings")
    return made


def parts(record: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
    """Return the fields of a protector; ValueError and similar for an invalid record."""
    n = record["dimension"]
    # type, not isinstance: JSON's true is an int too.
    if type(n) is not int or not 1 <= n <= LARGEST_DIMENSION:
        raise ValueError("dimension")
    if not isinstance(record["method"], str) or not isinstance(record["concept"], str | None):
        raise ValueError("method")
    if record["output"] not in ("full", "reduced") or not isinstance(record["report"], dict):
        raise ValueError("output")
    linear = _linear_map(arrays, n)
    if record["output"] == "reduced" and linear is None:
        raise ValueError("output")
    fields = {key: record[key] for key in ("method", "output", "concept", "report")}
    fields["map"] = linear
    fields["before"] = Before(**record["before"])
    fields["after"] = tuple(
        Step.from_record(step, arrays.get(f"after.{i}.matrix")) for i, step in enumerate(record["after"])
    )
    dimension = linear.rank if linear is not None and record["output"] == "reduced" else n
    for step in fields["after"]:
        if step.matrix is not None and step.matrix.shape[1:] != (dimension,):
            raise ValueError("after")
        dimension = step.output_dimension(dimension)
    fields["encoder_info"] = EncoderInfo.from_record(record["encoder"])
    fields["settings"] = _settings(record["settings"]) if "settings" in record else None
    text_only = record["mechanism"] == "texts-only"
    if "rewriter" in record or text_only:
        # Imported here: the methods load the dependencies of a fit, which protecting vectors does not need.
        from vecveil.privacy.protector.methods.text_level import TextPlaceholder, rewriter_from_record

        rewriter = fields["rewriter"] = rewriter_from_record(record["rewriter"])
        if text_only:
            if record["method"] != rewriter.kind:
                raise ValueError("rewriter")
            return fields | {"mechanism": TextPlaceholder(n, rewriter.kind)}
    fields["mechanism"] = MECHANISMS[record["mechanism"]].from_saved(record["parameters"], arrays, n)
    return fields


def read(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a protector file; raise ProtectorFileError if it cannot be read."""
    path = expanded(path)
    try:
        if not path.exists():
            raise ProtectorFileError(
                f"Protector file not found: {path.name[:100]}. `vecveil fit` and Protector.save write one.",
                param="path",
            )
        if not path.is_file():
            raise refuse(path.name, "is not a file")
        size = path.stat().st_size
        # Before reading: a huge file would fill the memory.
        if size == 0 or size > LARGEST_FILE:
            raise refuse(path.name, f"has {size} bytes")
        return path.read_bytes()
    except OSError as error:  # no permission on the folder, a name that is too long
        raise refuse(path.name, f"cannot be read ({type(error).__name__})") from error


def checksum(record: dict[str, Any], arrays: Arrays) -> str:
    rest = {key: value for key, value in record.items() if key != "checksum"}
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array, dtype=np.float64).tobytes())
    return digest.hexdigest()


@contextmanager
def damage_refused(name: str) -> Iterator[None]:
    """Turn the errors of a forged or damaged record into `ProtectorFileError`."""
    try:
        yield
    except (ProtectorFileError, MissingDependencyError):
        raise
    except VecveilError as error:
        raise refuse(name, "contains invalid values") from error
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise refuse(name, "lacks a part, or one has the wrong type") from error
    except RecursionError as error:
        raise refuse(name, "is nested too deeply") from error


def refuse(name: str, reason: str) -> ProtectorFileError:
    text = f"{name[:100]} {reason}, so it is not loaded as a protector. Copy the file again or fit a new protector."
    return ProtectorFileError(text, param="path")


def _stored_type(name: str) -> type[np.float32 | np.float64]:
    """Return the dtype of a stored array: networks are trained in float32."""
    return np.float32 if name.startswith("policy.") else np.float64


def _linear_map(arrays: Arrays, n: int) -> LinearMap | None:
    if "map.down" not in arrays:
        return None
    down, up = arrays["map.down"], arrays.get("map.up")
    if down.ndim != 2 or not 1 <= len(down) <= n or down.shape[1] != n:
        raise ValueError("map.down")
    m = len(down)
    if (up is None and m != n) or (up is not None and up.shape != (n, m)):
        raise ValueError("map.up")
    with np.errstate(over="ignore", invalid="ignore"):
        if up is not None and not np.allclose(up.T @ up, np.eye(m), atol=1e-5):
            raise ValueError("map.up")  # its columns are orthonormal
        # At unit scale: matrix_rank would count small rows of a valid map as zero.
        longest = np.abs(down).max(axis=1, keepdims=True)
        if not (longest > 0).all() or np.linalg.matrix_rank(down / longest) < m:
            raise ValueError("map.down")  # the guarantee assumes m independent rows
    step = arrays["map.step"]
    if step.shape != (1,) or not step[0] >= 0:
        raise ValueError("map.step")
    return LinearMap(down=down, up=up, step=float(step[0]))
