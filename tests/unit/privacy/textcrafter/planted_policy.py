"""A small training whose best perturbation is known: away from the classifier's weights, towards a centroid."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecveil.privacy.textcrafter import LearningCurves, PiiClassifier, PolicySettings

N = 12


def vectors(rows: int = 200, seed: int = 0) -> Any:
    X = np.random.default_rng(seed).standard_normal((rows, N)).astype(np.float32)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def classifier(strength: float = 4.0) -> PiiClassifier:
    weights = np.zeros(N)
    weights[0] = strength
    return PiiClassifier(weights, 0.0)


def centroids() -> Any:
    return np.eye(N)[1:4] * 0.8


def settings(**changes: Any) -> PolicySettings:
    defaults: dict[str, Any] = {
        "radius": 0.8,
        "epochs": 4,
        "batch_size": 32,
        "draws": 2,
        "learning_rate": 3e-3,
        "device": "cpu",
    }
    return PolicySettings(**{**defaults, **changes})


def column(curves: LearningCurves, name: str) -> Any:
    """Return one measure over the epochs; NaN where there is none."""
    values = (getattr(one, name) for one in curves.epochs)
    return np.array([np.nan if value is None else value for value in values])
