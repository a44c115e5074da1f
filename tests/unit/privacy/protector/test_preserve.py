"""``preserve=``: the erasure leaves a task's covariance as it is, and says what that costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import vecveil
from harness.errors import raises
from vecveil.privacy.protector.data import Data
from vecveil.privacy.protector.fitting import refit
from vecveil.privacy.sensitivity.concept_subspace import Moments, concept_directions, cross_covariance

N, DIMENSION = 300, 16
RNG = np.random.default_rng(0)
LABELS = (RNG.random((N, 4)) < 0.3).astype(int)
LABELS[LABELS.sum(axis=1) == 0, 3] = 1  # a pair without a word would be equal, and left out
CLASSES = np.where(RNG.random(N) < 0.8, LABELS[:, 0], RNG.integers(0, 3, N))  # a task that word 0 tells
NEGATIVE = RNG.standard_normal((N, DIMENSION)) + RNG.standard_normal((3, DIMENSION))[CLASSES]
POSITIVE = NEGATIVE + LABELS @ RNG.standard_normal((4, DIMENSION))
TASK = cross_covariance(POSITIVE, CLASSES[:, None] == np.arange(3))
DESIGN = {"rank": 4, "kept": 12, "flattening": 0.0, "pairs": False, "noise_to_signal": 0.2}


def fit(**options: Any) -> vecveil.Protector:
    return vecveil.fit_pairs(POSITIVE, NEGATIVE, LABELS, **DESIGN | options)


def released_task(protector: vecveil.Protector, classes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return Cov(TΦ, classes), up to the scale of T."""
    Y = protector.protect(POSITIVE, noise=False)
    found = cross_covariance(Y, classes[:, None] == np.unique(classes))
    return np.asarray(found / np.linalg.norm(found))


@pytest.mark.parametrize("after", [None, 0, 3])
def test_the_erasure_is_exact_for_the_task_and_for_what_it_erases(after: int | None) -> None:
    moments = Moments.of(POSITIVE, NEGATIVE, token_labels=LABELS)
    found = concept_directions(replace(moments, preserved=TASK))
    if after is not None:
        wild = RNG.standard_normal((DIMENSION, DIMENSION))
        found = found.followed_by(wild @ wild.T, after=after)
    assert found.spared == 2  # three classes
    np.testing.assert_allclose(found.vectors.T @ moments.K @ found.vectors, np.eye(DIMENSION), atol=1e-9)
    P = found.erasure(DIMENSION - 2)
    np.testing.assert_allclose(P @ TASK, TASK, atol=1e-9)
    np.testing.assert_allclose(P @ P, P, atol=1e-9)
    # What the task holds of the concept counts as left.
    plain = concept_directions(moments)
    assert plain.residual(DIMENSION - 2) < 1e-9 < 0.02 < found.residual(DIMENSION - 2)
    assert found.strengths.sum() == pytest.approx(plain.strengths.sum())


def test_a_fit_keeps_the_covariance_with_the_task_and_reports_it() -> None:
    clean = TASK / np.linalg.norm(TASK)
    kept, plain = fit(preserve=CLASSES), fit()
    # 1e-4: the map's entries have 22 bits.
    np.testing.assert_allclose(released_task(kept, CLASSES), clean, atol=1e-4)
    assert np.abs(released_task(plain, CLASSES) - clean).max() > 0.05  # control
    assert kept.report["preserved"] == {"classes": 3, "texts": N}
    assert "preserved" not in plain.report
    assert kept.report["residual_after_erasure"] > plain.report["residual_after_erasure"] + 0.02
    with raises("E-INPUT", "protector"):
        refit(kept, Data.of_pairs(POSITIVE, NEGATIVE, LABELS, None, None))


def test_a_protector_of_a_file_is_fitted_again_as_one_in_memory(tmp_path: Path) -> None:
    one = fit()
    one.save(tmp_path / "one.vecveil")
    half = Data.of_pairs(POSITIVE[: N // 2], NEGATIVE[: N // 2], LABELS[: N // 2], None, None)
    again = [refit(each, half) for each in (one, vecveil.load(tmp_path / "one.vecveil"))]
    assert again[0].fingerprint == again[1].fingerprint != one.fingerprint
    assert again[0].report["parameters"] == one.report["parameters"]
    with raises("E-INPUT", "protector"):
        refit(vecveil.load(Path(__file__).parents[3] / "golden" / "subspace.vecveil"), half)


def test_background_counts_where_it_is_labelled_and_unknown_classes_do_not() -> None:
    names = np.array(["a", "b", "c"], dtype=object)[CLASSES]
    half = N // 2
    whole = vecveil.fit_pairs(
        POSITIVE[:half], NEGATIVE[:half], LABELS[:half], POSITIVE[half:], **DESIGN, preserve=names
    )
    np.testing.assert_allclose(released_task(whole, CLASSES), TASK / np.linalg.norm(TASK), atol=1e-4)
    some = fit(preserve=[None if i % 3 == 0 else name for i, name in enumerate(names)])
    assert some.report["preserved"] == {"classes": 3, "texts": N - len(range(0, N, 3))}


def test_classes_follow_their_rows_where_equal_pairs_are_left_out() -> None:
    negative = NEGATIVE.copy()
    negative[:3] = POSITIVE[:3]
    found = vecveil.fit_pairs(POSITIVE, negative, LABELS, POSITIVE[:30], **DESIGN, preserve=[*CLASSES, *CLASSES[:30]])
    assert (found.report["equal_pairs"], found.report["preserved"]) == (3, {"classes": 3, "texts": N + 27})
    found = vecveil.fit_pairs(POSITIVE, negative, LABELS, **DESIGN, preserve=CLASSES)
    assert found.report["preserved"] == {"classes": 3, "texts": N - 3}


def test_the_search_and_transplants_keep_the_task_too() -> None:
    for options in ({"rank": None, "kept": None}, {"transplants": True, "pairs": True}):
        found = fit(preserve=CLASSES, **options)
        T = found.map.matrix  # type: ignore[union-attr]
        rows = np.linalg.svd(TASK)[0][:, :2]
        assert np.linalg.matrix_rank(T @ rows, tol=1e-2) == 2
    assert len(found.report["parameters"]) == 6


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"preserve": [1] * N}, "E-INPUT"),
        ({"preserve": CLASSES[1:]}, "E-INPUT-SHAPE"),
        ({"preserve": ["a"] * (N - 5) + ["b"] * 5}, "E-INPUT-FEW"),
        ({"preserve": np.arange(N) % 6}, "E-INPUT"),
        ({"preserve": "label"}, "E-INPUT-TYPE"),
        ({"preserve": CLASSES, "method": "laplace", "rank": None}, "E-INPUT"),
    ],
)
def test_classes_that_cannot_be_preserved(options: dict[str, Any], code: str) -> None:
    if "method" in options:
        with raises(code):
            vecveil.fit_pairs(POSITIVE, NEGATIVE, noise_to_signal=1, method="laplace", preserve=CLASSES)
        return
    with raises(code, "preserve"):
        fit(**options)


def test_labels_have_no_pairs_to_preserve_a_task_with() -> None:
    with raises("E-INPUT", "preserve"):
        vecveil.fit_labels(POSITIVE, CLASSES, noise_to_signal=0.2, preserve=CLASSES)
    concept = vecveil.Concept.from_labels("topic", ["sad", None] * 20)
    with raises("E-INPUT", "preserve"):
        vecveil.fit(["a text", "another"] * 20, concept, noise_to_signal=1, preserve=["x", "y"] * 20)
