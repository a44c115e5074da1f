"""Whether half precision pays on this machine: asked of the hardware, then verified by encoding.

bf16 here means autocast: matrix products in bfloat16, the residual stream, normalisation and
pooling in float32. With MiniLM the lowest cosine to fp32 over 153 texts was .99995; with all
weights converted to bfloat16 it was .99986, which misses the bar below.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "CALIBRATION_TEXTS",
    "MIN_COSINE",
    "MIN_SPEEDUP",
    "PrecisionChoice",
    "cpu_has_bf16",
    "lowest_cosine",
    "verify_bf16",
]

MIN_COSINE = 0.9999
"""bf16 is taken only if every calibration text keeps at least this cosine to fp32."""
MIN_SPEEDUP = 1.2
"""bf16 is taken only if it is at least this many times faster."""

CALIBRATION_TEXTS = (
    "",
    "Yes.",
    "Call me back on Monday.",
    "The patient was given 400 mg of ibuprofen twice a day.",
    "A man is playing a guitar on the street.",
    "Interest rates rose by a quarter of a point, the central bank said.",
    "Is there any way to cancel the order before it ships?",
    "Two dogs run through the snow towards a frozen lake.",
    "Ticket 48213: the printer on the third floor prints blank pages.",
    "She moved from Lisbon to Oslo in 2019 and works as a nurse.",
    "Zażółć gęślą jaźń; 今日は天気がいい; привет, мир!",
    "E = mc^2, x_1 <= 3.14159, and the p-value was 0.032 (n = 120).",
    "After three weeks without symptoms the treatment was stopped, the dose of the second drug was "
    "halved, and a follow-up visit was agreed for the beginning of the next quarter.",
    "We regret to inform you that your application was not successful this time; the committee "
    "received an unusually high number of proposals, and only one in nine could be funded from the "
    "budget available. You are welcome to apply again in the autumn round.",
    "The old bridge, which had carried trains over the valley for more than a century, was closed "
    "to all traffic after inspectors found cracks in two of the main supports.",
    "please pls fix this asap!!! login broken again :(",
)
"""Sentences of mixed length and script, encoded in both precisions before bf16 is chosen."""

EncodeWith = Callable[[list[str], str], "np.ndarray[Any, np.dtype[np.float32]]"]


@dataclass(frozen=True)
class PrecisionChoice:
    """Which precision runs and why; no ``cosine`` and ``speedup`` where bf16 was not tried."""

    precision: str
    reason: str
    cosine: float | None = None
    speedup: float | None = None

    def to_record(self) -> dict[str, Any]:
        """Return the fields as a JSON-ready dictionary."""
        return asdict(self)


def cpu_has_bf16() -> bool:
    """Return True if the processor multiplies bfloat16 in hardware (AVX512, AMX, Arm)."""
    import torch

    try:
        capabilities = torch.cpu.get_capabilities()
        if any(capabilities.get(flag) for flag in ("avx512_bf16", "amx_bf16", "bf16")):
            return True
    except (AttributeError, RuntimeError):  # older torch
        pass
    for probe in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        check = getattr(torch.cpu, probe, None)
        if check is not None and check():
            return True
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="ignore").splitlines()
    except OSError:
        return False
    flags = next(
        (line for line in lines if line.lower().startswith(("flags", "features"))), ""
    ).split()
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(flags)


def lowest_cosine(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> float:
    """Return the smallest cosine between equal rows of two (N, n) arrays; NaN counts as -1."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return float(np.nan_to_num(cosines, nan=-1.0).min())


def verify_bf16(encode_with: EncodeWith, *, repeats: int = 3) -> PrecisionChoice:
    """Return bf16 if it keeps every calibration vector and saves time on this machine, else fp32.

    Args:
        encode_with: encodes texts in the named precision.
        repeats: the best of so many alternating timings counts.
    """
    texts = list(CALIBRATION_TEXTS)
    cosine = lowest_cosine(encode_with(texts, "fp32"), encode_with(texts, "bf16"))
    if cosine < MIN_COSINE:
        return PrecisionChoice("fp32", f"bf16 keeps a cosine of {cosine:.5f} only", cosine)
    best = {"fp32": float("inf"), "bf16": float("inf")}
    for _ in range(repeats):
        for precision in best:
            start = time.perf_counter()
            encode_with(texts, precision)
            best[precision] = min(best[precision], time.perf_counter() - start)
    speedup = best["fp32"] / best["bf16"]
    if speedup < MIN_SPEEDUP:
        return PrecisionChoice("fp32", "bf16 is not faster on this machine", cosine, speedup)
    return PrecisionChoice("bf16", "bf16 is faster and close enough", cosine, speedup)
