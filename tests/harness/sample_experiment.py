"""Summaries of an experiment, made up: as they are, bare, wide, with hostile strings."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["EXPERIMENTS", "HOSTILE", "number", "sample_experiment"]

HOSTILE = '</style><script>window.hacked=1</script><img src=x onerror="window.hacked=1">\\input{x}|`'
EXPERIMENTS = ("full", "bare", "wide", "hostile")
EPSILONS = (5, 10, 20, 30, 40)
METHODS = ("laplace", "sparse", "subspace")


def number(value: float, **others: Any) -> dict[str, Any]:
    """Return a cell with a figure."""
    cell = {"value": value, "low": None, "high": None, "sd": None, "n": None, "digits": 1, "percent": True}
    return {**cell, "published": None, **others}


def sample_experiment(variant: str = "full") -> dict[str, Any]:
    """Return a new summary of schema ``vecveil.experiment/1``."""
    record = _record()
    if variant == "bare":
        record |= {"commits": [], "machine": {}, "quick": False, "source": "ours"}
        record |= {"notes": [], "tables": [], "figures": [], "findings": []}
        record["cells"] = {"asked": 0, "measured": 0, "failed": 0}
    if variant == "wide":
        record["tables"][0] = _wide()
        record["figures"] = [_heat(40, "a row with a name that is rather long"), _curve(12, log=True)]
    if variant == "hostile":
        record = _hostile(record)
    return json.loads(json.dumps(record))  # type: ignore[no-any-return]


def _record() -> dict[str, Any]:
    return {
        "schema": "vecveil.experiment/1",
        "name": "tradeoff",
        "what": "Leakage and utility of every method over a grid of `epsilon`.",
        "source": "SPARSE, Tables 1 and 7",
        "vecveil": "0.1.0",
        "created": "2026-01-15T09:30:00+00:00",
        "commits": ["abc1234", "def5678+"],
        "command": "vecveil experiment run tradeoff --data DIR --out DIR --quick",
        "quick": True,
        "machine": {"system": "Linux", "cores": 2, "numpy": "2.1.0", "load": 0.25, "accelerator": None},
        "cells": {"asked": 270, "measured": 268, "failed": 2},
        "seconds": 1234.5,
        "notes": ["ε is that of Algorithm 1.", "Leakage is R-precision over words."],
        "tables": [_table(), _plain()],
        "figures": [_curve(5), _bars(), _heat(6, "Monday"), {**_curve(5), "title": "Empty", "series": []}],
        "findings": [
            {
                "claim": "SPARSE is slower.",
                "source": "SPARSE, Table 11",
                "verdict": "agrees",
                "ours": "1.2 times",
                "published": "1.22 times",
                "difference": "",
                "command": "vecveil experiment run latency",
                "id": "sampling-costs-as-laplace",
            },
            {
                "claim": "It was not tried.",
                "source": "ours",
                "verdict": "not measured",
                "ours": "",
                "published": "",
                "difference": "",
                "command": "",
                "id": "",
            },
            {
                "claim": "SPARSE leaks less at equal `epsilon`.",
                "source": "SPARSE, Table 1",
                "verdict": "disagrees",
                "ours": "in 1 of 5 cells",
                "published": "in 10 of 10 cells",
                "difference": "MiniLM in place of GTR-base.",
                "command": "vecveil experiment run tradeoff --data DIR",
                "id": "sparse-leaks-less",
            },
        ],
    }


def _table() -> dict[str, Any]:
    rows: list[list[Any]] = [
        [
            "sts12",
            method,
            str(epsilon),
            number(0.5 + k / 10 - 1 / epsilon, sd=0.006, n=5, published=0.2234 if method != "subspace" else None),
            number(-0.0001 if k == 0 else 0.9, low=0.88, high=0.92, percent=False, digits=3),
        ]
        for k, method in enumerate(METHODS)
        for epsilon in EPSILONS
    ]
    rows[2][3] = None
    return {
        "title": "Leakage and utility",
        "caption": "Mean and standard deviation over seeds.",
        "columns": [
            {"name": "data", "unit": None, "text": True},
            {"name": "method", "unit": None, "text": True},
            {"name": "ε", "unit": None, "text": False},
            {"name": "leakage", "unit": "%", "text": False},
            {"name": "utility", "unit": None, "text": False},
        ],
        "rows": rows,
        "notes": ["Both sides of a pair are protected."],
    }


def _plain() -> dict[str, Any]:
    columns = [{"name": "method", "unit": None, "text": True}, {"name": "time", "unit": "µs", "text": False}]
    rows = [["=laplace", number(39.84, percent=False, n=3)], ["sparse & co", number(1048.4, percent=False, digits=0)]]
    return {"title": "Time a vector", "caption": "", "columns": columns, "rows": rows, "notes": []}


def _wide() -> dict[str, Any]:
    columns = [{"name": f"column {i}", "unit": "%", "text": i == 0} for i in range(16)]
    rows = [[f"row {i}", *(number(0.5 + j / 100, low=0.4, high=0.9) for j in range(15))] for i in range(3)]
    return {"title": "Wide", "caption": "Many columns.", "columns": columns, "rows": rows, "notes": []}


def _figure(kind: str, title: str, **others: Any) -> dict[str, Any]:
    base = {
        "kind": kind,
        "title": title,
        "caption": f"About {title}.",
        "x": {"name": "ε", "log": False},
        "y": {"name": "leakage"},
        "series": [],
        "chance": None,
        "rows": [],
        "columns": [],
        "values": [],
    }
    return {**base, **others}


def _curve(count: int, *, log: bool = False) -> dict[str, Any]:
    places = EPSILONS if count == 5 else [2.0**k for k in range(count)]
    series = []
    for k, method in enumerate(METHODS):
        points = []
        for i, x in enumerate(places):
            y = 0.2 + i / 10 / (k + 1)
            ends = {"low": None, "high": None} if k == 2 else {"low": y - 0.05, "high": y + 0.05}
            points.append({"x": x, "y": y, **ends})
        series.append({"name": method, "dashed": k == 1, "points": points})
    return _figure("curve", f"Leakage of {count}", series=series, chance=0.12, x={"name": "ε", "log": log})


def _bars() -> dict[str, Any]:
    series = [
        {
            "name": name,
            "dashed": False,
            "points": [
                {"x": i, "y": sign * (i + 1), "low": sign * (i + 1) - 0.5, "high": sign * (i + 1) + 0.5}
                for i in range(2)
            ],
        }
        for name, sign in (("target", -1.0), ("other", 2.0))
    ]
    return _figure("bars", "Groups", series=series, columns=["weekdays", "months"])


def _heat(count: int, name: str) -> dict[str, Any]:
    rows = [f"{name} {i}" for i in range(4)]
    values: list[list[float | None]] = [[(i - 1) * j / count for j in range(count)] for i in range(len(rows))]
    values[0][0] = None
    return _figure("heat", "Masks", rows=rows, columns=[str(100 + j) for j in range(count)], values=values)


def _hostile(held: Any) -> Any:
    """Return the record with every free text replaced; what the schema fixes stays."""
    fixed = {"schema", "kind", "verdict"}
    if isinstance(held, dict):
        return {key: value if key in fixed else _hostile(value) for key, value in held.items()}
    if isinstance(held, list):
        return [_hostile(value) for value in held]
    return HOSTILE if isinstance(held, str) else held
