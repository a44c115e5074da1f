"""What comes before the noise, and the steps after it: values, dimensions, files, guarantees, refusals."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.token_data import token_data
from vecveil.auditing.metrics import SimilarityTask
from vecveil.privacy.mechanisms import NOTHING_BEFORE, Before, Laplace, Step
from vecveil.privacy.protector import Protector

N = 16
DATA = token_data(200, N)
SUBSPACE = {"method": "subspace", "rank": 2, "kept": 10, "flattening": 0.3, "pairs": True}
MATRIX = np.random.default_rng(1).standard_normal((5, N))
STEPS = {
    "normalise": Step("normalise"),
    "truncate": Step("truncate", 5),
    "project": Step("project", matrix=MATRIX),
    "float16": Step("float16"),
    "int8": Step("int8", 0.5),
    "binary": Step("binary"),
}


@cache
def fitted(after: str | None = None, before: str | None = None, **options: Any) -> Protector:
    scale = {"epsilon": 30.0} | options
    return vecveil.fit_pairs(*DATA.arguments(), **{"method": "laplace"} | scale, postprocess=after, before=before)


def made(*steps: Step, before: Before = NOTHING_BEFORE, n: int = N) -> Protector:
    return Protector("laplace", Laplace(n, 30.0), before=before, after=steps)


def rows(dtype: Any = np.float32, count: int = 40) -> np.ndarray:
    return np.random.default_rng(2).standard_normal((count, N)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normalised_rows_have_norm_one_and_stay(dtype: Any) -> None:
    before, X = Before("normalise"), rows(dtype)
    Y = before.apply(X, owner="test")
    assert Y.dtype == dtype
    np.testing.assert_allclose(np.linalg.norm(Y, axis=1), 1, rtol=4 * np.finfo(dtype).eps)
    np.testing.assert_allclose(Y, X / np.linalg.norm(X, axis=1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(before.apply(Y, owner="test"), Y, rtol=4 * np.finfo(dtype).eps)
    for factor in (1e-30, 1e30):
        np.testing.assert_allclose(before.apply(X * dtype(factor), owner="test"), Y, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("radius", [0.3, 1.0, 4.0, 1e-20, 1e20])
def test_clipped_rows_keep_their_direction_and_short_rows_stay(dtype: Any, radius: float) -> None:
    before, X = Before("clip", radius), rows(dtype)
    X[0], X[1] = 0, X[1] * dtype(radius / 100)
    Y = before.apply(X, owner="test")
    norms, clipped = np.linalg.norm(X, axis=1), np.linalg.norm(Y.astype(np.float64), axis=1)
    assert Y.dtype == dtype
    assert (clipped <= radius * (1 + 4 * np.finfo(dtype).eps)).all()
    short = norms < radius * 0.999
    assert short[:2].all()
    np.testing.assert_array_equal(Y[short], X[short])
    np.testing.assert_allclose(clipped[~short], radius, rtol=1e-6)
    expected = X[~short] * (radius / norms[~short])[:, None]
    np.testing.assert_allclose(Y[~short], expected, rtol=1e-5)
    np.testing.assert_allclose(before.apply(Y, owner="test"), Y, rtol=4 * np.finfo(dtype).eps)


def test_a_row_of_zeros_has_no_direction_to_normalise() -> None:
    X = rows()
    X[3] = 0
    for noise in (True, False):
        with raises("E-INPUT", "X"):
            made(before=Before("normalise")).protect(X, noise=noise)
    assert np.isfinite(made(before=Before("clip", 1.0)).protect(X)).all()
    X[4, 2] = np.nan
    with raises("E-INPUT-FINITE", "X"):  # the worse fault is named
        made(before=Before("normalise")).protect(X)


def test_the_metric_is_that_of_what_the_noise_is_added_to() -> None:
    """Two vectors of one direction are one input after normalising: the same words, the same release."""
    one = made(before=Before("normalise"))
    X = rows(np.float64)
    np.testing.assert_array_equal(one.protect(X, 5), one.protect(4 * X, 5))
    assert (made().protect(X, 5) != made().protect(4 * X, 5)).any()  # control


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_values_of_each_step(dtype: Any) -> None:
    Y = rows(dtype)
    expected = {
        "normalise": Y / np.linalg.norm(Y, axis=1, keepdims=True),
        "truncate": Y[:, :5],
        "project": Y @ MATRIX.T,
        "float16": Y.astype(np.float16),
        "int8": np.clip(np.rint(Y / 0.5 * 127), -127, 127),
        "binary": np.sign(Y),
    }
    for name, step in STEPS.items():
        found = step.apply(Y.copy())
        assert found.dtype == dtype, name
        np.testing.assert_allclose(found, expected[name], rtol=1e-5, atol=1e-5, err_msg=name)
        assert found.shape[1] == step.output_dimension(N), name
    assert set(np.unique(STEPS["binary"].apply(Y))) == {-1, 1}
    whole = STEPS["int8"].apply(Y)
    np.testing.assert_array_equal(whole, whole.astype(np.int8))
    assert np.abs(whole).max() == 127


def test_steps_at_the_edges() -> None:
    zeros = np.array([[0.0, -0.0, 1e-300, -1e-300]])
    np.testing.assert_array_equal(Step("binary").apply(zeros), [[1, 1, 1, -1]])
    np.testing.assert_array_equal(Step("normalise").apply(np.zeros((1, 4))), np.zeros((1, 4)))
    large = np.array([[1e6, -1e6, 65504.0, 1e-9]])
    np.testing.assert_array_equal(Step("float16").apply(large), [[65504, -65504, 65504, 0]])
    assert Step("truncate", 100).output_dimension(4) == 4
    np.testing.assert_array_equal(Step("truncate", 100).apply(large), large)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_protector_releases_what_its_steps_make_of_the_noise(name: str, dtype: Any) -> None:
    step, X = STEPS[name], rows(dtype)
    one = made(step)
    assert one.released_dimension == step.output_dimension(N)
    np.testing.assert_array_equal(one.protect(X, 3), step.apply(made().protect(X, 3)))
    np.testing.assert_array_equal(one.protect(X, noise=False), step.apply(X))
    assert one.protect(X[:0]).shape == (0, one.released_dimension)


def test_steps_follow_one_another_in_the_order_given() -> None:
    X = rows(np.float64)
    order = (Step("truncate", 8), Step("normalise"), Step("int8", 0.3), Step("normalise"))
    expected = made().protect(X, 3)
    for step in order:
        expected = step.apply(expected)
    np.testing.assert_array_equal(made(*order).protect(X, 3), expected)
    assert made(*order).released_dimension == 8
    back = made(*order[::-1]).protect(X, 3)
    assert (back != expected).any()
    S = made(Step("truncate", 8), Step("project", matrix=MATRIX[:, :8])).released_noise_covariance()
    expected = MATRIX[:, :8] @ (Laplace(N, 30.0).noise_covariance()[:8, :8]) @ MATRIX[:, :8].T
    np.testing.assert_allclose(S, expected)


@pytest.mark.parametrize("before", [NOTHING_BEFORE, Before("normalise"), Before("clip", 0.7)])
@pytest.mark.parametrize("name", STEPS)
def test_a_saved_protector_keeps_its_steps(name: str, before: Before, tmp_path: Path) -> None:
    one = made(STEPS[name], before=before)
    one.save(tmp_path / "p.vecveil")
    again = vecveil.load(tmp_path / "p.vecveil")
    assert again.before == before
    assert [step.to_record() for step in again.after] == [step.to_record() for step in one.after]
    assert again.fingerprint == one.fingerprint
    assert str(again.guarantee) == str(one.guarantee)
    np.testing.assert_array_equal(again.protect(rows(), 3), one.protect(rows(), 3))


def test_everything_that_decides_a_release_changes_the_fingerprint() -> None:
    """Or keyed noise would be used twice: once for each of two releases of one vector."""
    variants = [
        made(),
        made(before=Before("normalise")),
        made(before=Before("clip", 1.0)),
        made(before=Before("clip", 2.0)),
        *(made(step) for step in STEPS.values()),
        made(Step("truncate", 6)),
        made(Step("int8", 0.6)),
        made(Step("project", matrix=2 * MATRIX)),
        made(Step("project", matrix=MATRIX[:4])),
        made(Step("normalise"), Step("float16")),
        made(Step("float16"), Step("normalise")),
        made(Step("normalise"), Step("normalise")),
    ]
    assert len({one.fingerprint for one in variants}) == len(variants)
    assert made(Step("int8", 0.5)).fingerprint == made(STEPS["int8"]).fingerprint  # control


def test_bounded_norms_give_a_total_and_what_follows_is_named() -> None:
    epsilon = 30.0
    said = str(made(STEPS["truncate"], STEPS["int8"], before=Before("normalise")).guarantee)
    assert f"{2 * epsilon:.3g}-local differential privacy" in said
    assert "(truncate to 5, int8) is post-processing: it costs no privacy" in said
    said = str(made(before=Before("clip", 0.5)).guarantee)
    assert f"{epsilon:.3g}-local differential privacy" in said
    assert "at most 0.5 before the noise" in said
    plain = str(made().guarantee)
    assert "local differential privacy" not in plain
    assert "post-processing" not in plain
    mapped = fitted("normalise", "normalise", **SUBSPACE)
    assert "(a linear map, normalise) is post-processing" in str(mapped.guarantee)
    worst = mapped.guarantee.epsilon_euclidean_worst
    assert worst is not None
    assert f"{2 * worst:.3g}-local differential privacy" in str(mapped.guarantee)


@pytest.mark.parametrize(
    ("method", "after"),
    [
        ("laplace", "normalise"),
        ("laplace", "truncate:10"),
        ("laplace", "float16"),
        ("laplace", "int8:0.5"),
        ("laplace", "wiener,normalise"),
        ("gaussian", "normalise,float16"),
        ("purkayastha", "truncate:12"),
        ("subspace", "normalise,int8:0.6"),
    ],
)
def test_a_target_is_reached_with_the_steps_counted_in(method: str, after: str) -> None:
    """Over fresh draws and pairs the figure has a standard deviation of about .015."""
    one = vecveil.fit_pairs(*DATA.arguments(), method=method, target_utility=0.75, postprocess=after)
    X = np.concatenate([DATA.positive, DATA.background])
    task = SimilarityTask.of(X, pairs=4000, seed=9)
    found = task.relative(lambda V, rng: one.protect(V, rng, noise=rng is not None), np.random.default_rng(9))
    assert found == pytest.approx(0.75, abs=0.1)


def test_int8_without_a_range_takes_that_of_its_releases() -> None:
    one = fitted("int8")
    step = one.after[0]
    assert step.value is not None
    assert 0.1 < step.value < 10
    Y = one.protect(DATA.positive, 1)
    assert (np.abs(Y) == 127).mean() < 0.01
    assert np.abs(Y).max() > 90


BAD_STEPS: dict[str, tuple[Any, str]] = {
    "unknown": ("pca", "postprocess"),
    "map in second place": ("normalise,wiener", "postprocess"),
    "no number": ("truncate", "truncate"),
    "zero": ("truncate:0", "truncate"),
    "half": ("truncate:2.5", "truncate"),
    "negative": ("truncate:-3", "truncate"),
    "no range": ("int8:0", "int8"),
    "infinite range": ("int8:inf", "int8"),
    "words": ("truncate:many", "postprocess"),
    "a value too many": ("normalise:2", "postprocess"),
    "no matrix": ("project", "postprocess"),
    "a number": (3, "postprocess"),
    "numbers": ([3], "postprocess"),
    "bytes": (b"normalise", "postprocess"),
}
BAD_BEFORE = (
    "clip",
    "clip:",
    "clip:x",
    "clip:0",
    "clip:-1",
    "clip:nan",
    "clip:inf",
    "normalise:1",
    "none:1",
    "whiten",
    "",
    3,
    None,
)


@pytest.mark.parametrize("kind", BAD_STEPS)
def test_bad_steps_are_refused_by_name(kind: str) -> None:
    value, param = BAD_STEPS[kind]
    with raises("E-INPUT", param):
        fitted(value) if isinstance(value, str) else vecveil.fit_pairs(
            *DATA.arguments(), method="laplace", epsilon=30.0, postprocess=value
        )


@pytest.mark.parametrize("value", BAD_BEFORE)
def test_bad_befores_are_refused_by_name(value: Any) -> None:
    with raises("E-INPUT", "before"):
        Before.of(value)
