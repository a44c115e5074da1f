"""Protector files: safetensors with JSON metadata. Loading never executes what a file holds."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vecveil.errors import MissingDependencyError, ProtectorFileError, VecveilError
from vecveil.io import write_bytes
from vecveil.mechanisms import MECHANISMS, Before, Mechanism, Step
from vecveil.protector.encoder_info import EncoderInfo
from vecveil.protector.protector import Protector
from vecveil.protector.texts_only import TextsOnly, rewriter_from_record
from vecveil.sensitivity.linear_map import LinearMap
from vecveil.version import __version__

__all__ = ["SCHEMA", "from_bytes", "load", "save", "to_bytes"]

SCHEMA = "vecveil.protector/2"
_LARGEST_FILE = 2**31
_LARGEST_DIMENSION = 16_384
"""Few bytes declare it, and a guarantee is computed from n × n numbers."""


def save(protector: Protector, path: str | os.PathLike[str]) -> None:
    """Write ``protector`` to ``path`` atomically."""
    # A rewriter holds the concept's terms.
    mode = 0o666 if protector.rewriter is None else 0o600
    # Written by us, not by safetensors: a full disk is then an OSError, the permissions the usual.
    write_bytes(path, to_bytes(protector), mode=mode)
    if mode == 0o600:  # a file that was there keeps its permissions, and they may be wider
        os.chmod(path, mode)


def to_bytes(protector: Protector) -> bytes:
    """Return what a protector's file holds."""
    from safetensors.numpy import save as serialised

    record = {
        "schema": SCHEMA,
        "vecveil": __version__,
        "method": protector.method,
        "mechanism": protector.mechanism.name,
        "parameters": protector.mechanism.parameters(),
        "dimension": protector.dimension,
        "output": protector.output,
        "encoder": protector.encoder_info.to_record(),
        "concept": protector.concept,
        "report": protector.report,
        "before": vars(protector.before),
        "after": [step.to_record() for step in protector.after],
        "fingerprint": protector.fingerprint,
    }
    if protector.rewriter is not None:
        record["rewriter"] = protector.rewriter.to_record()
    arrays = {
        name: np.ascontiguousarray(a, dtype=_stored_type(name))
        for name, a in protector.arrays().items()
    }
    arrays.setdefault("dimension", np.array([protector.dimension], dtype=np.float64))
    record["checksum"] = _checksum(record, arrays)
    about = json.dumps(record, allow_nan=False)
    return bytes(serialised(arrays, metadata={"vecveil": about}))


def load(path: str | os.PathLike[str]) -> Protector:
    """Return the protector saved at ``path``.

    Raises:
        ProtectorFileError: missing, truncated, damaged, not a protector, or of a later format.
    """
    path = Path(path)
    return from_bytes(_content(path), path.name)


def from_bytes(data: bytes, name: str = "the file") -> Protector:
    """Return the protector that `to_bytes` wrote; ``name`` is for messages. Raises like `load`."""
    record, arrays = _read(data, name)
    try:
        if _checksum(record, arrays) != record["checksum"]:
            raise _refuse(name, "does not match its own checksum")
        protector = _build(record, arrays)
    except (ProtectorFileError, MissingDependencyError):
        raise
    except VecveilError as error:
        raise _refuse(name, "holds values that make no protector") from error
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise _refuse(name, "lacks a part, or one has the wrong type") from error
    except RecursionError as error:
        raise _refuse(name, "is nested too deeply") from error
    if protector.fingerprint != record.get("fingerprint"):
        raise _refuse(name, "does not match its own fingerprint")
    return protector


def _checksum(record: dict[str, Any], arrays: dict[str, np.ndarray[Any, Any]]) -> str:
    """Return the SHA-256 of everything in the file: damage anywhere shows, not in the arrays alone."""
    rest = {key: value for key, value in record.items() if key != "checksum"}
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array, dtype=np.float64).tobytes())
    return digest.hexdigest()


def _refuse(name: str, what: str) -> ProtectorFileError:
    return ProtectorFileError(
        f"vecveil.load: `path` must be a protector file written by vecveil fit or Protector.save (--protector); "
        f"{name[:100]} {what}. Copy the file again or fit a new protector."
    )


def _content(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise _refuse(path.name, "is not there" if not path.exists() else "is not a file")
        size = path.stat().st_size
        if size == 0 or size > _LARGEST_FILE:
            raise _refuse(path.name, f"has {size} bytes")
        return path.read_bytes()
    except OSError as error:  # no permission on the folder, a name that is too long
        raise _refuse(path.name, f"cannot be read ({type(error).__name__})") from error


def _read(data: bytes, name: str) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load as parsed

    try:
        arrays = parsed(data)
        # safetensors gives metadata of files only: a length of eight bytes, then JSON.
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        metadata = header.get("__metadata__", {})
    except (
        SafetensorError,
        ValueError,
        TypeError,
        LookupError,
        RuntimeError,
        AttributeError,
    ) as error:
        raise _refuse(name, "is truncated, damaged or not a protector") from error
    try:
        record = json.loads(metadata["vecveil"])
        schema = record["schema"]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise _refuse(name, "is not a protector") from error
    if schema != SCHEMA:
        found = repr(schema[:40]) if isinstance(schema, str) else "of another kind"
        raise _refuse(name, f"has the format {found}, and this version reads {SCHEMA!r}")
    for array_name, array in arrays.items():
        if array.dtype != _stored_type(array_name) or not np.isfinite(array).all():
            raise _refuse(name, "holds arrays that are not finite, or of another type")
    return record, arrays


def _stored_type(name: str) -> type[np.float32 | np.float64]:
    """Return the type that an array is stored in: networks are trained in float32."""
    return np.float32 if name.startswith("policy.") else np.float64


def _build(record: dict[str, Any], arrays: dict[str, np.ndarray[Any, Any]]) -> Protector:
    n = record["dimension"]
    if type(n) is not int or not 1 <= n <= _LARGEST_DIMENSION:
        raise ValueError("dimension")
    rewriter = rewriter_from_record(record["rewriter"]) if "rewriter" in record else None
    mechanism: Mechanism
    if rewriter is None:
        mechanism = MECHANISMS[record["mechanism"]].from_saved(record["parameters"], arrays, n)
    elif record["mechanism"] == TextsOnly.name and record["method"] == rewriter.kind:
        mechanism = TextsOnly(n, rewriter.kind)
    else:
        raise ValueError("rewriter")
    if record["output"] not in ("full", "reduced") or not isinstance(record["report"], dict):
        raise ValueError("output")
    encoder = EncoderInfo.from_record(record["encoder"])
    if not isinstance(record["method"], str) or not isinstance(record["concept"], str | None):
        raise ValueError("method")
    linear = _map(arrays, n)
    if record["output"] == "reduced" and linear is None:
        raise ValueError("output")
    after = tuple(
        Step.from_record(one, arrays.get(f"after.{i}.matrix"))
        for i, one in enumerate(record["after"])
    )
    protector = Protector(
        method=record["method"],
        mechanism=mechanism,
        map=linear,
        output=record["output"],
        encoder_info=encoder,
        concept=record["concept"],
        report=record["report"],
        before=Before(**record["before"]),
        after=after,
        rewriter=rewriter,
    )
    _check_steps(protector)
    return protector


def _check_steps(protector: Protector) -> None:
    """Refuse a projection that does not fit what comes before it."""
    dimension = replace(protector, after=()).released_dimension
    for step in protector.after:
        if step.matrix is not None and step.matrix.shape[1:] != (dimension,):
            raise ValueError("after")
        dimension = step.output_dimension(dimension)


def _map(arrays: dict[str, np.ndarray[Any, Any]], n: int) -> LinearMap | None:
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
        longest = np.abs(down).max(axis=1, keepdims=True)
        if not (longest > 0).all() or np.linalg.matrix_rank(down / longest) < m:
            raise ValueError("map.down")  # fewer dimensions than the guarantee speaks of
    step = arrays["map.step"]
    if step.shape != (1,) or not step[0] >= 0:
        raise ValueError("map.step")
    return LinearMap(down=down, up=up, step=float(step[0]))
