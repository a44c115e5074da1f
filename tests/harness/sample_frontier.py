"""Records of a frontier, made up: as they are, without words left out, and with hostile strings."""

from __future__ import annotations

from typing import Any

__all__ = ["FRONTIERS", "HOSTILE", "sample_frontier"]

HOSTILE = '</style><script>window.hacked=1</script><img src=x onerror="window.hacked=1">'

FRONTIERS = ("full", "bare", "hostile")


def sample_frontier(variant: str = "full") -> dict[str, Any]:
    """Return a new record of schema ``vecveil.frontier/1``; ``bare`` has neither words left out nor search."""
    bare = variant == "bare"

    def leak(value: float) -> dict[str, Any]:
        return {"value": value, "low": value - 0.03, "high": value + 0.03, "reader": "kernel", "n": 700}

    def kept(value: float, metric: str = "recall@10", candidates: int = 0) -> dict[str, Any]:
        ends = {"low": value - 0.02, "high": value + 0.02}
        return {"metric": metric, "value": value, **ends, "candidates": candidates}

    designs = [
        ({"method": "laplace", "noise_to_signal": 1.0}, 0.5, 0.55, 0.45, 1.004),
        ({"method": "sparse", "noise_to_signal": 2.0}, 0.34, 0.4, 0.1, 0.7),
        (
            {
                "method": "subspace",
                "noise_to_signal": 0.5,
                "rank": 46,
                "kept": 338,
                "flattening": 0.0,
                "pairs": True,
                "gradients": 14,
            },
            0.2,
            0.41,
            0.6,
            0.985,
        ),
        (
            {
                "method": "subspace",
                "noise_to_signal": 2.0,
                "rank": 115,
                "kept": 269,
                "flattening": 0.9,
                "pairs": True,
                "gradients": 34,
            },
            0.12,
            0.2,
            0.02,
            0.3,
        ),
    ]
    points = [
        {
            "number": i,
            "arguments": arguments,
            "listed": leak(listed),
            "left_out": None if bare else leak(left),
            "similarity": kept(0.9, "Pearson"),
            "store": None if bare else kept(alone),
            "sealed": [] if bare else [kept(sealed - 0.05, candidates=100), kept(sealed, candidates=200)],
            "seconds": 3.5,
            "audited": {"leak": leak(listed + 0.08), "clean": 0.7, "chance": 0.1} if i > 2 else None,
        }
        for i, (arguments, listed, left, alone, sealed) in enumerate(designs, start=1)
    ]
    record = {
        "schema": "vecveil.frontier/1",
        "vecveil": "0.1.0",
        "created": "2026-01-15T09:30:00+00:00",
        "settings": "ab" * 32,
        "concept": "drug",
        "encoder": {
            "name": "minilm",
            "fingerprint": "f" * 64,
            "precision": "fp32",
            "options": {},
            "probe": [],
            "norms": [],
        },
        "table": {"text_column": "text"},
        "seed": 0,
        "counts": {
            "texts": 3000,
            "with_concept": 2400,
            "fitted": 1200,
            "learnt": 1050,
            "judged": 750,
            "words": 1026,
            "listed": 135,
            "left_out": 0 if bare else 44,
            "rows": 3000,
            "queries": None,
            "query_noise": 1.0,
        },
        "readers": ["linear", "kernel", "mlp-512"],
        "clean_listed": leak(0.65),
        "clean_left_out": None if bare else leak(0.68),
        "chance_listed": 0.1,
        "chance_left_out": None if bare else 0.12,
        "missing": {"left_out": "Too few words.", "search": "Too few texts."} if bare else {},
        "designs": 4,
        "points": points,
        "seconds": 60.0,
        "ceiling": 0.5,
        "store_alone": False,
    }
    if variant == "hostile":
        record |= {"concept": HOSTILE, "readers": [HOSTILE], "missing": {"mlp": HOSTILE}, "vecveil": HOSTILE}
        record["encoder"]["name"] = HOSTILE
        for point in points:
            point["arguments"]["method"] = HOSTILE
            point["store"]["metric"] = HOSTILE
    return record
