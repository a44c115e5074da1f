import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from harness.errors import raises
from vecveil.privacy.utility.tasks import neighbour_recall


def _sklearn_recall(clean, protected, queries, k):
    def near(base, asked):
        model = NearestNeighbors(metric="cosine", algorithm="brute").fit(base)
        order = model.kneighbors(asked, n_neighbors=len(base), return_distance=False)
        return [[j for j in row if j != i][:k] for i, row in enumerate(order)]

    pairs = zip(near(clean, clean), near(protected, queries), strict=True)
    return np.mean([len(set(a) & set(b)) / k for a, b in pairs])


def test_recall_equals_sklearn_on_both_sides_and_on_documents():
    rng = np.random.default_rng(0)
    clean = rng.standard_normal((120, 8))
    protected = clean + rng.standard_normal((120, 8))
    both = neighbour_recall(clean, protected, k=5)
    assert both.value == pytest.approx(_sklearn_recall(clean, protected, protected, 5))
    documents = neighbour_recall(clean, protected, k=5, queries=clean)
    assert documents.value == pytest.approx(_sklearn_recall(clean, protected, clean, 5))
    assert both.metric == "recall@5"
    assert both.n == 120
    assert both.chance == pytest.approx(5 / 119)


def test_constant_vectors_score_chance():
    clean = np.random.default_rng(2).standard_normal((41, 6))
    estimate = neighbour_recall(clean, np.ones((41, 3)), k=10)
    assert estimate.value == pytest.approx(0.25)
    assert estimate.chance == pytest.approx(0.25)


def test_blocks_do_not_change_the_figure(monkeypatch):
    rng = np.random.default_rng(3)
    clean = rng.standard_normal((50, 5)).astype(np.float32)
    protected = (clean + 0.5 * rng.standard_normal((50, 5))).astype(np.float32)
    whole = neighbour_recall(clean, protected).value
    monkeypatch.setattr("vecveil.privacy.utility.tasks._BLOCK", 150)
    assert neighbour_recall(clean, protected).value == pytest.approx(whole)


def test_sample_queries_with_a_part():
    clean = np.random.default_rng(4).standard_normal((60, 5))
    estimate = neighbour_recall(clean, clean, k=3, sample=20)
    assert estimate.n == 20
    assert estimate.value == 1.0


@pytest.mark.parametrize(
    ("protected", "options", "code", "param"),
    [
        (np.ones((4, 3)), {}, "E-INPUT-SHAPE", "clean"),
        (np.ones((5, 3)), {"k": 5}, "E-INPUT-RANGE", "k"),
        (np.ones((5, 3)), {"k": 2, "queries": np.ones((5, 2))}, "E-INPUT", "queries"),
        (np.full((5, 3), np.nan), {"k": 2}, "E-INPUT-FINITE", "protected"),
    ],
)
def test_bad_input_is_refused(protected, options, code, param):
    with raises(code, param):
        neighbour_recall(np.ones((5, 3)), protected, **options)
