"""The arithmetic of docs/scale.md, on figures whose answer is known."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def cost() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("scale_cost")
    finally:
        sys.path.remove(str(BENCHMARKS))


def size(rows: int, seconds: float) -> dict[str, Any]:
    cases = {case: {"processor_seconds": seconds} for case in ("laplace", "subspace")}
    return {"rows": rows, "engine": "local", "input_bytes": 1552 * rows, "cases": cases}


def test_parts_go_to_whoever_is_free_first(cost: ModuleType) -> None:
    assert cost.makespan([3.0, 1.0, 1.0, 1.0], 2) == 3.0
    assert cost.makespan([1.0, 1.0, 1.0, 3.0], 2) == 4.0  # the long one is last
    assert cost.makespan([2.0] * 7, 3) == 6.0
    assert cost.makespan([2.0] * 7, 1) == 14.0


def test_what_is_spent_once_is_not_reckoned_per_row(cost: ModuleType) -> None:
    once, row = 5.0, 2e-5
    sizes = [size(rows, once + row * rows) for rows in (10**5, 10**6, 10**7)]
    assert cost.row_cost(sizes, "laplace")["processor_seconds"] == pytest.approx(row)
    for found in cost.reckoned(sizes, 10**9):
        assert found["core_hours"] == pytest.approx(row * 10**9 / 3600)
        assert found["terabytes_read"] == pytest.approx(1.552)
        waited = found["hours"] - found["core_hours"] / found["cores"]
        assert waited == pytest.approx(2**28 / 1552 * row / 3600)  # one part
