"""Fitting on embeddings alone: arguments, options, dtypes, reports."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.token_data import token_data
from vecveil.auditing.metrics import ClassificationTask
from vecveil.privacy.protector import METHODS, Protector
from vecveil.privacy.protector.data import Data
from vecveil.privacy.protector.fitting import refit
from vecveil.privacy.protector.methods.subspace import _parts
from vecveil.privacy.sensitivity.concept_subspace import near_duplicate_groups, share_recovered, standard_error

DATA = token_data(100, 12)
FIXED = {"rank": 2, "kept": 6, "flattening": 0.2, "pairs": True}


def fit(*arrays: Any, **options: Any) -> Protector:
    return vecveil.fit_pairs(*(arrays or DATA.arguments()), **{"epsilon": 30.0} | options)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"method": "magic"}, "method"),
    ({"method": None}, "method"),
    ({"method": "laplace", "rank": 3}, "rank"),
    ({"ranks": 3}, "ranks"),
    ({"method": "covariance", "floor": 0}, "floor"),
    ({"method": "covariance", "floor": 1.5}, "floor"),
    ({"method": "sparse", "epochs": 0}, "epochs"),
    ({"method": "sparse", "release": "half"}, "release"),
    ({"method": "sparse", "normalise": 1}, "normalise"),
    ({"method": "sparse", "kept": 4}, "kept"),
    ({"method": "sparse", "output": "reduced"}, "output"),
    ({"method": "sparse", "release": "truncated", "kept": 13, "epochs": 1}, "kept"),
    ({"method": "sparse", "release": "truncated", "postprocess": "wiener"}, "postprocess"),
    # Gates that only fall: no dimension is left.
    ({"method": "sparse", "regularisation": 1e6, "gate_learning_rate": 1.0, "epochs": 20}, "regularisation"),
    ({"rank": 0}, "rank"),
    ({"rank": 12}, "rank"),
    ({"rank": 6, "kept": 7}, "kept"),
    ({"kept": 0}, "kept"),
    ({"flattening": -0.1}, "flattening"),
    ({"pairs": "no"}, "pairs"),
    ({"output": "small"}, "output"),
    ({"output": np.zeros(2)}, "output"),
    ({"utility": np.zeros(2)}, "utility"),
    ({"accept_leak": np.zeros(2)}, "accept_leak"),
    ({"rank": "x"}, "rank"),
    ({"method": "laplace", "output": "reduced"}, "output"),
    ({"postprocess": "none", "output": "reduced"}, "output"),
    ({"postprocess": "own map"}, "postprocess"),
    ({"postprocess": "kalman"}, "postprocess"),
    ({"utility": "beauty"}, "utility"),
    ({"utility": 3}, "utility"),
    ({"seed": -1}, "seed"),
    ({"seed": 1.5}, "seed"),
    ({"seed": 2**70}, "seed"),
    ({"concept_name": 5}, "concept_name"),
    ({"groups": [1, 2, 3]}, "groups"),
    ({"groups": np.zeros((100, 2), int)}, "groups"),
    ({"groups": [[0]] * 100}, "groups"),
    ({"groups": dict.fromkeys(range(100))}, "groups"),
]


@pytest.mark.parametrize(("options", "param"), BAD)
def test_bad_choices_are_refused_by_name(options: dict[str, Any], param: str) -> None:
    with raises("E-INPUT", param):
        fit(**options)


def test_arrays_that_do_not_fit_together() -> None:
    P, N, L, B = DATA.arguments()
    with raises("E-INPUT-SHAPE", "positive"):
        fit(P[:19], N[:19])
    with raises("E-INPUT-SHAPE", "negative"):
        fit(P, N[:99])
    with raises("E-INCOMPATIBLE", "negative"):
        fit(P, N[:, :11])
    with raises("E-INCOMPATIBLE", "background"):
        fit(P, N, L, B[:, :11])
    with raises("E-INPUT", "negative"):
        fit(P, P)
    with raises("E-INPUT-FINITE", "negative"):
        fit(P, np.where(np.arange(12) == 3, np.nan, N).astype("f4"))


@pytest.mark.parametrize(
    "labels",
    [
        np.full((100, 2), 2),
        np.full((100, 2), 0.5),
        np.zeros((99, 2)),
        np.zeros(100),
        np.full((100, 2), "1"),
        np.full((100, 2), np.nan),
        [["a"]] * 100,
    ],
)
def test_bad_labels(labels: Any) -> None:
    with raises("E-INPUT", "token_labels"):
        fit(DATA.positive, DATA.negative, labels)


@pytest.mark.parametrize("labels", ["i8", "u1", "f4", "?"])
def test_labels_of_any_number_type_give_the_same_protector(labels: str) -> None:
    P, N, L, B = DATA.arguments()
    found = fit(P, N, L.astype(labels), B, **FIXED)
    assert found.fingerprint == fit(**FIXED).fingerprint


def test_labels_that_never_vary_are_dropped() -> None:
    P, N, L, B = DATA.arguments()
    more = np.concatenate([L, np.zeros((100, 1)), np.ones((100, 2))], axis=1)
    found = fit(P, N, more, B, **FIXED)
    assert found.report["labels"] == L.shape[1]
    assert found.fingerprint == fit(**FIXED).fingerprint
    constant = fit(P, N, np.ones((100, 3)), B)
    assert constant.report["labels"] == 0


@pytest.mark.parametrize("method", ["subspace", "covariance"])
def test_a_single_label_counts_as_none_for_the_search_and_for_the_map(method: str) -> None:
    P, N, L, B = DATA.arguments()
    one, none = (fit(P, N, labels, B, method=method) for labels in (L[:, :1], None))
    assert one.report["labels"] == 0
    assert one.fingerprint == none.fingerprint
    assert one.report.get("search") == none.report.get("search")


def test_few_ordinary_texts_are_as_good_as_none() -> None:
    P, N, L, B = DATA.arguments()
    few, none = fit(P, N, L, B[:19], **FIXED), fit(P, N, L, **FIXED)
    assert few.fingerprint == none.fingerprint
    assert few.report["background"] == 0
    assert fit(P, N, L, B[:20], **FIXED).report["background"] == 20


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_both_precisions_and_labels_or_not(method: str, dtype: Any) -> None:
    data = token_data(60, 8, dtype=dtype)
    options: dict[str, Any] = {
        "sparse": {"epsilon": 30.0, "epochs": 2},
        "sparse-whitebox": {"epsilon": 30.0, "epochs": 1, "steps": 3},
        "gaussian": {"sigma": 0.2},
        "ldp-gaussian": {"epsilon": 30.0, "delta": 1e-5},
        "shuffle": {},
        "textcrafter": {"radius": 0.7, "epochs": 1},
        "textcrafter-subspace": {"radius": 0.7, "epochs": 1},
    }.get(method, {"epsilon": 30.0})
    for arrays in ((data.positive, data.negative), data.arguments()):
        found = vecveil.fit_pairs(*arrays, method=method, **options)
        assert found.protect(data.positive).dtype == dtype
        assert found.method == method
        json.dumps(found.report, allow_nan=False)


def test_a_readers_directions_are_erased_besides() -> None:
    plain, found = fit(**FIXED), fit(**FIXED, gradients=1)
    assert found.report["parameters"]["gradients"] == 1
    assert plain.map is not None
    assert found.map is not None
    assert found.map.rank == plain.map.rank
    assert not np.allclose(found.map.matrix, plain.map.matrix, atol=1e-3)
    again = fit(**FIXED, gradients=1).map
    assert again is not None
    np.testing.assert_array_equal(again.down, found.map.down)
    for wrong in (-1, FIXED["rank"] + 1):
        with raises("E-INPUT-RANGE", "gradients"):
            fit(**FIXED, gradients=wrong)


def test_options_reach_the_method() -> None:
    found = fit(**FIXED)
    assert found.report["parameters"] == {**FIXED, "gradients": 0, "transplants": False}
    assert "search" not in found.report
    assert found.map is not None
    assert found.map.rank == 6
    small, large = (fit(method="covariance", floor=f, postprocess="none") for f in (0.01, 0.5))
    worst = [one.guarantee.epsilon_euclidean_worst or 0.0 for one in (small, large)]
    assert worst[0] > worst[1] > 0
    sparse = fit(method="sparse", epochs=2, hidden=(8,), floor=0.5, stability_seeds=2)
    assert sparse.report["mask"]["options"]["hidden"] == [8]
    assert sparse.report["parameters"]["floor"] == 0.5
    assert "seed_stability" in sparse.report["mask"]


@pytest.mark.parametrize("kept", [1, 6, 11])
def test_a_fixed_number_of_kept_directions_limits_the_search(kept: int) -> None:
    found = fit(kept=kept)
    assert found.report["parameters"]["kept"] == kept
    assert all(row["rank"] + row["kept"] <= 12 for row in found.report["search"])


@pytest.mark.parametrize("n", [2, 3])
def test_the_smallest_dimensions(n: int) -> None:
    data = token_data(60, n, dtype=float)
    for method in ("laplace", "covariance", "subspace"):
        assert fit(*data.arguments(), method=method).dimension == n
    one = token_data(60, 1, dtype=float)
    jitter = np.random.default_rng(0).standard_normal((60, 1))
    assert fit(one.positive + jitter, one.negative, method="laplace").dimension == 1
    with raises("E-INPUT", "positive"):
        fit(one.positive + jitter, one.negative)


def test_wiener_filter_is_the_best_linear_estimate() -> None:
    plain = fit(method="laplace", postprocess="none", epsilon=12.0)
    wiener = fit(method="laplace", postprocess="wiener", epsilon=12.0)
    assert plain.map is None
    assert wiener.map is not None
    assert wiener.mechanism.parameters() == plain.mechanism.parameters()
    # T = K(K + S)⁻¹ solves the normal equations of E‖T(x + z) − x‖².
    T, S = wiener.map.matrix, wiener.mechanism.noise_covariance()
    K = np.linalg.solve(np.eye(12) - T, T @ S)
    np.testing.assert_allclose(K, K.T, atol=1e-10)
    assert np.linalg.eigvalsh(K)[0] > 0
    X = np.repeat(DATA.positive - DATA.positive.mean(axis=0), 20, axis=0)
    errors = [((p.protect(X, 0, lengths=False) - X) ** 2).mean() for p in (plain, wiener)]
    assert errors[1] < 0.8 * errors[0]
    assert fit(method="covariance").report["postprocess"] == "wiener"
    assert fit(method="subspace", postprocess="none").map is None


@pytest.mark.slow
def test_groups_are_never_parted() -> None:
    rng = np.random.default_rng(0)
    for seed in range(50):
        groups = rng.integers(0, 30, size=100)
        parts = _parts(groups, np.random.default_rng(seed))[1]
        assert sorted(np.concatenate(parts)) == list(range(100))
        held = [set(groups[part]) for part in parts]
        assert not held[0] & held[1] | held[0] & held[2] | held[1] & held[2]
    few = np.repeat(["a", "b", "c"], [80, 10, 10])
    for groups in (np.zeros(100, int), np.repeat([0, 1], 50), few):
        for seed in range(20):
            parts = _parts(groups, np.random.default_rng(seed))[1]
            assert min(len(part) for part in parts) >= 10
    one, many = fit(groups=["one"] * 100), fit(groups=np.arange(100))
    assert "One group joins 100%" in " ".join(one.report["warnings"])
    assert "One group" not in " ".join(many.report["warnings"])
    for missing in (None, "", float("nan")):
        assert fit(groups=[missing] * 100).report["warnings"] == many.report["warnings"]


def test_near_duplicates_are_grouped_transitively() -> None:
    angle = np.linspace(0, 3, 40)  # each near the next, the ends far apart
    X = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    assert len(set(near_duplicate_groups(X))) == 1
    assert list(near_duplicate_groups(np.array([[1, 0], [0, 1], [2, 0.0]]))) == [0, 1, 0]
    wide = np.random.default_rng(0).standard_normal((1300, 32))
    ids = near_duplicate_groups(np.concatenate([wide, wide[::-1]]))
    assert len(set(ids)) == 1300
    np.testing.assert_array_equal(ids[:1300], ids[1300:][::-1])


@pytest.mark.parametrize("column", range(4))
def test_ties_earn_chance_wherever_the_label_stands(column: int) -> None:
    marks = np.eye(4)[[column] * 6]
    assert share_recovered(np.full((6, 4), 0.3), marks) == pytest.approx(0.25)
    scores = np.tile([2.0, 1, 1, 0], (6, 1))  # two labels held: one place for the two in the middle
    two = np.maximum(marks, np.eye(4)[0])
    expected = {0: 1.0, 1: 0.75, 2: 0.75, 3: 0.5}[column]
    assert share_recovered(scores, two) == pytest.approx(expected)
    empty = np.concatenate([marks, np.zeros((3, 4))])
    assert share_recovered(np.full((9, 4), 0.3), empty) == pytest.approx(0.25)


def test_standard_error_of_an_area_is_what_repeated_draws_show() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([1, 0], [40, 160])[:, None]
    shifted = [rng.standard_normal((200, 1)) + 1.2 * labels for _ in range(1500)]
    areas = np.array([share_recovered(scores, labels) for scores in shifted])
    assert standard_error(float(areas.mean()), labels) == pytest.approx(areas.std(), rel=0.15)
    assert standard_error(0.5, np.eye(4)) == pytest.approx(0.25)
    assert standard_error(0.5, np.ones((4, 1))) == 0.0


def test_reduced_output_and_tasks_that_compare_with_clean_vectors() -> None:
    task = ClassificationTask.of(DATA.positive, DATA.labels[:, 0])
    assert fit(**FIXED, output="reduced", utility=task).released_dimension == 6
    task.same_space = True
    with raises("E-INPUT", "output"):
        fit(**FIXED, output="reduced", utility=task)


def test_several_concepts_in_one_shape() -> None:
    """A shape of one's own, such as one that combines concepts, is used as it is."""
    from vecveil.privacy.sensitivity import NoiseShape, combine_shapes

    n = DATA.positive.shape[1]
    first, second = (NoiseShape.from_diagonal(np.eye(n)[i], floor=0.1) for i in (0, 1))
    shape = combine_shapes([first, second])
    found = vecveil.fit_pairs(
        *DATA.arguments(), method="covariance", shape=shape, noise_to_signal=0.5, postprocess="none"
    )
    np.testing.assert_allclose(found.mechanism.shape.covariance(), shape.covariance())
    assert found.report["parameters"] == {"shape": "given"}
    for wrong, param in (
        ({"shape": NoiseShape.isotropic(n + 1)}, "shape"),
        ({"shape": "round"}, "shape"),
        ({"shape": shape, "rank": 2}, "rank"),
        ({"rank": 2}, "rank"),
    ):
        with raises("E-INPUT", param):
            vecveil.fit_pairs(*DATA.arguments(), method="covariance", noise_to_signal=0.5, **wrong)


SPARSE: dict[str, Any] = {"method": "sparse", "epochs": 2, "stability_seeds": 1}


def test_a_mask_as_learnt_takes_less_noise_at_an_epsilon_and_the_same_at_a_ratio() -> None:
    scaled, learnt = fit(**SPARSE), fit(**SPARSE, normalise=False)
    share = scaled.report["mask"]["mean"] + 1e-6
    assert learnt.report["epsilon"] == pytest.approx(30.0 / share**0.5)
    X = DATA.positive[:20]
    first, second = (fit(**SPARSE, normalise=n, epsilon=None, noise_to_signal=0.5) for n in (True, False))
    np.testing.assert_array_equal(first.protect(X, 0), second.protect(X, 0))
    again = refit(learnt, Data.of_pairs(*DATA.arguments(), None, None))
    assert again.report["epsilon"] == pytest.approx(learnt.report["epsilon"])


def test_a_truncated_release_keeps_the_dimension_or_only_the_kept_coordinates() -> None:
    full, reduced = (fit(**SPARSE, release="truncated", kept=5, output=output) for output in ("full", "reduced"))
    X = DATA.positive[:20]
    Y, Z = full.protect(X, 0), reduced.protect(X, 0)
    kept = full.mechanism.kept  # type: ignore[attr-defined]
    assert (full.released_dimension, reduced.released_dimension, len(kept)) == (12, 5, 5)
    np.testing.assert_array_equal(Y[:, kept], Z)
    assert not np.delete(Y, kept, axis=1).any()
    assert full.report["epsilon"] == pytest.approx(30.0)
    assert full.mechanism.mask.max() == 1  # type: ignore[attr-defined]
    assert full.guarantee.hidden_directions == 7
    assert fit(**SPARSE, release="truncated", normalise=False).mechanism.mask.max() < 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("scale", [{"target_utility": 0.6}, {"target_cosine": 0.5}, {"target_advantage": 0.4}])
def test_a_truncated_release_meets_targets(scale: dict[str, float]) -> None:
    one = fit(**SPARSE, release="truncated", kept=9, epsilon=None, **scale)
    X = DATA.positive
    if "target_cosine" in scale:
        Y = one.protect(X, 0)
        cosines = (X * Y).sum(axis=1) / np.linalg.norm(X, axis=1) / np.linalg.norm(Y, axis=1)
        assert cosines.mean() == pytest.approx(0.5, abs=0.08)
    elif "target_utility" in scale:
        assert one.report["utility"]["similarity"]["relative"] == pytest.approx(0.6, abs=0.1)
    else:
        assert one.report["concept_distance"]["advantages"]["p95"] <= 0.4
