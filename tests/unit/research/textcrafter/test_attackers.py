"""The four-set table: a cell judges what was released, and attackers learn from what was released.

Each planted problem is solved from clean vectors, so that a cell that looks at clean vectors anywhere is noticed: a
release without any information must give chance, and one that turns every vector round must mislead what learnt
from clean vectors and nobody else. A figure from noise leaves its band in one of 10¹⁰ draws at most: a share of 200
independent guesses lies 0.25 off its expectation with a probability below 2 exp(-2 · 200 · 0.25²) = 3e-11.
"""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from research.textcrafter import cells, data, defences
from vecveil.privacy.concepts import Concept

pytest.importorskip("sklearn")
pytest.importorskip("torch")

TOKENS = ("alpha", "beta", "gamma", "delta")
TRAIN, TEST, DIMENSION = 160, 200, 12
BAND = 0.25


def _constant(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.full_like(X, 1 / np.sqrt(X.shape[1]))


def _noise(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    drawn = rng.standard_normal(X.shape)
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), dtype=X.dtype)


def _turned(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return -X


def _released(protect: Any, *, adaptive: bool = True) -> Any:
    return defences.Applied(protect, None, adaptive, {})


def _vectors(*axes: np.ndarray) -> np.ndarray:
    """Return unit vectors with a coordinate of 1 or -1 for each of the given axes and signs."""
    rng = np.random.default_rng(3)
    X = 0.05 * rng.standard_normal((len(axes[0]), DIMENSION))
    for axis in axes:
        at, sign = np.abs(axis) - 1, np.sign(axis)
        X[np.arange(len(X)), at] += sign
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True), dtype=np.float32)


@lru_cache(maxsize=1)
def _task() -> Any:
    """Return a set whose class is the sign of coordinate 0 and whose token is one of coordinates 1 to 4."""
    count = np.arange(TRAIN + TEST)
    token, classes = count % 4, (count // 4) % 2
    texts = [f"Number {i} of {TOKENS[token[i]]} here" for i in count]
    rows = data.TaskSet(
        name="planted",
        texts=texts,
        classes=classes,
        groups=count,
        train=count[:TRAIN],
        test=count[TRAIN:],
        concept=Concept.from_terms("letters", TOKENS),
        dropped=0,
    )
    side = 2 * classes - 1
    return data.Task(rows, _vectors(side, token + 2), _vectors(side))


@lru_cache(maxsize=1)
def _pii() -> Any:
    """Return texts with PII, on one side of coordinate 0, and texts without on the other."""
    count = np.arange(TRAIN + TEST)
    holds = count % 2
    X, labels = _vectors(2 * holds - 1), holds[:, None].astype(np.uint8)
    train, test = ((X[s], labels[s], count[s]) for s in (slice(TRAIN), slice(TRAIN, None)))
    return SimpleNamespace(train=train, test=test)


@lru_cache(maxsize=8)
def _cell(protect: Any, adaptive: bool = True) -> dict[str, Any]:
    found: dict[str, Any] = cells.task_cell(_task(), _released(protect, adaptive=adaptive), 0)
    return found


def _clean(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return X


def test_clean_vectors_give_everything_away() -> None:
    found = _cell(_clean, False)
    for scenario in ("deployment", "development"):
        assert found[scenario]["accuracy"] > 0.95
        assert found[scenario]["chance"] == 0.5
    assert found["token_inference"]["chance"] == pytest.approx(0.25, abs=0.01)
    assert len(found["token_inference"]["attacks"]) == 6
    assert min(found["token_inference"]["attacks"].values()) > 0.9
    assert found["noise_norm"] == 0.0


def test_a_constant_release_gives_chance() -> None:
    found = _cell(_constant)
    for scenario in ("deployment", "development"):
        assert found[scenario]["accuracy"] == 0.5
    for name, value in found["token_inference"]["attacks"].items():
        assert abs(value - 0.25) < 0.02, name  # one answer for all, or ties


def test_a_release_of_noise_alone_gives_chance() -> None:
    found = _cell(_noise)
    for scenario in ("deployment", "development"):
        assert abs(found[scenario]["accuracy"] - 0.5) < BAND
    for name, value in found["token_inference"]["attacks"].items():
        assert abs(value - 0.25) < BAND, name


def test_what_learnt_from_clean_vectors_is_misled_and_what_learnt_from_released_ones_is_not() -> None:
    found = _cell(_turned)
    assert found["deployment"]["accuracy"] < 0.05
    assert found["development"]["accuracy"] > 0.95
    for name, value in found["token_inference"]["attacks"].items():
        assert value > 0.9, name
    assert found["noise_norm"] == pytest.approx(2.0, abs=1e-5)


def test_token_inference_without_an_oracle_is_judged_on_released_vectors() -> None:
    """It learnt from clean vectors: a turned vector ranks its own token last."""
    attacks = _cell(_turned, False)["token_inference"]["attacks"]
    assert max(attacks.values()) < 0.1


@pytest.mark.parametrize(("protect", "band"), [(_constant, 1e-9), (_noise, BAND)])
def test_pii_is_not_found_in_a_release_without_information(protect: Any, band: float) -> None:
    found = cells.pii_cell(_pii(), _released(protect), 0)
    assert abs(found["frozen"]["benchmark"]["auc"] - 0.5) <= band
    for name, value in found["probes"].items():
        assert abs(value - 0.5) <= band, name


def test_a_frozen_pii_classifier_is_misled_where_probes_that_learn_are_not() -> None:
    found = cells.pii_cell(_pii(), _released(_turned), 0)
    assert found["frozen"]["benchmark"]["auc"] < 0.05
    assert found["frozen"]["benchmark"]["p_with"] < 0.1 < 0.9 < found["frozen"]["benchmark"]["p_without"]
    assert min(found["probes"].values()) > 0.95
