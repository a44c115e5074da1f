"""Records of a training, made up: as they are, with hostile strings, long, short."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

__all__ = ["HOSTILE", "TRAININGS", "sample_training"]

HOSTILE = '</style><script>window.hacked=1</script><img src=x onerror="window.hacked=1">'
TRAININGS = ("full", "one-epoch", "long", "bare", "hostile")


def sample_training(variant: str = "full") -> dict[str, Any]:
    """Return a new record of schema ``vecveil.training/1``; ``bare`` holds one measure and nothing else."""
    count = {"one-epoch": 1, "long": 200}.get(variant, 11)
    record = _record(count)
    if variant == "one-epoch":
        record["epochs"][0]["epoch"] = 1
    if variant == "bare":
        epochs = [{"epoch": e["epoch"], "p_pii": e["p_pii"]} for e in record["epochs"]]
        return {"schema": record["schema"], "epochs": epochs}
    if variant == "hostile":
        record["settings"].update({HOSTILE: 1, "device": HOSTILE, "long": "x" * 400})
        record["classifier"]["held_out"]["auc"]["metric"] = HOSTILE
        record["classifier"]["held_out"]["warnings"] = [HOSTILE]
        record["unknown"] = HOSTILE
        record["epochs"][3]["unknown"] = HOSTILE
    return record


def _record(count: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    learnt = 1 - np.exp(-3 * np.arange(count) / max(1, count - 1))
    wobble = 0.02 * rng.standard_normal(count)
    p_pii = 0.71 - 0.5 * learnt + wobble
    columns: dict[str, Any] = {
        "reward": -2.9 + 0.7 * learnt + wobble,
        "reward_training": -2.95 + 0.7 * learnt,
        "reward_clean": np.full(count, -1.81),
        "p_pii": p_pii,
        "p_pii_clean": np.full(count, 0.52),
        "drift": 0.29 + 0.01 * learnt,
        "cluster_distance": 1.3 - 0.1 * learnt,
        "cluster_distance_clean": np.full(count, 0.79),
        "mean_log_sigma": -0.6 * learnt,
        "deterministic_share": 0.02 + 0.5 * learnt,
        "direction_cosine": 1 - 0.8 * learnt,
        "mean_resultant": 0.9 - 0.3 * learnt,
        "direction_resultant": np.full(count, 0.8),
        "seconds": 11.5 * np.arange(count),
    }
    epochs: list[dict[str, Any]] = [
        {"epoch": i, **{name: float(values[i]) for name, values in columns.items()}}
        for i in range(count)
    ]
    epochs[0]["reward_training"] = None
    figure = {"value": 0.97, "low": 0.96, "high": 0.98, "n": 400, "chance": 0.5}
    record = {
        "schema": "vecveil.training/1",
        "epochs": epochs,
        "best_epoch": count - 1,
        "settings": {"radius": 1.0, "tokens": 1, "heads": None, "normalise_advantage": True, "device": "cpu"},
        "seed": 7,
        "rows": 18_000,
        "classifier": {
            "dimension": 384,
            "held_out": {
                "rows": {"positive": 5000, "plain": 9000, "used_of_each": 5000, "held_out": 2000},
                "accuracy": {"metric": "accuracy", **figure},
                "auc": {"metric": "AUC", **figure},
                "regularisation": 1.0,
                "warnings": [],
            },
        },
    }  # fmt: skip
    return json.loads(json.dumps(record))  # type: ignore[no-any-return]
