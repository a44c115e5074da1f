import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.metrics import ndcg_score

from harness.errors import raises
from vecveil.metrics.ranking import (
    ndcg_of_scores,
    recall_of_scores,
    retrieval_ndcg,
    retrieval_recall,
)


def test_by_hand():
    # Relevant documents (gains 3 and 1) stand at ranks 2 and 3.
    value = ndcg_of_scores([[3.0, 2.0, 1.0]], [[0, 3, 1]], k=10)[0]
    expected = (3 / np.log2(3) + 1 / 2) / (3 + 1 / np.log2(3))
    assert value == pytest.approx(expected)


@pytest.mark.parametrize("k", [1, 3, 10, 50])
@pytest.mark.parametrize("decimals", [0, 8])
def test_equals_sklearn_with_and_without_ties(k, decimals):
    rng = np.random.default_rng(0)
    scores = np.round(rng.standard_normal((30, 20)), decimals)
    relevance = rng.integers(0, 4, (30, 20)) * (rng.random((30, 20)) < 0.3)
    kept = relevance.any(axis=1)
    expected = ndcg_score(relevance[kept], scores[kept], k=k)
    values = ndcg_of_scores(scores, relevance, k=k)
    assert values[kept].mean() == pytest.approx(expected)
    assert np.isnan(values[~kept]).all()


def test_queries_without_a_relevant_document_are_left_out():
    values = ndcg_of_scores([[1.0, 0.0], [1.0, 0.0]], [[0, 0], [1, 0]])
    assert np.isnan(values[0])
    assert values[1] == 1.0
    assert retrieval_ndcg(np.eye(2), np.eye(2), [[0, 0], [1, 0]]).n == 1


def test_retrieval_from_vectors_and_sparse_relevance(monkeypatch):
    rng = np.random.default_rng(1)
    queries, documents = rng.standard_normal((9, 6)), rng.standard_normal((40, 6))
    relevance = (rng.random((9, 40)) < 0.1).astype(int)
    relevance[:, 0] = 1
    unit = [a / np.linalg.norm(a, axis=1, keepdims=True) for a in (queries, documents)]
    expected = ndcg_score(relevance, unit[0] @ unit[1].T, k=10)
    assert retrieval_ndcg(queries, documents, relevance).value == pytest.approx(expected)
    monkeypatch.setattr("vecveil.metrics.ranking._BLOCK", 80)
    assert retrieval_ndcg(3 * queries, documents, csr_array(relevance)).value == pytest.approx(
        expected
    )


@pytest.mark.parametrize(
    ("scores", "relevance", "code", "param"),
    [
        ([[1.0, 2.0]], [[1]], "E-INPUT-SHAPE", "scores"),
        ([[1.0, np.nan]], [[1, 0]], "E-INPUT-FINITE", "scores"),
        ([[1.0, 2.0]], [[-1, 0]], "E-INPUT", "relevance"),
    ],
)
@pytest.mark.parametrize("metric", [ndcg_of_scores, recall_of_scores])
def test_bad_scores_are_refused(metric, scores, relevance, code, param):
    with raises(code, param):
        metric(scores, relevance)
    with raises("E-INPUT-RANGE", "k"):
        metric([[1.0, 2.0]], [[0, 1]], k=0)


@pytest.mark.parametrize("metric", [retrieval_ndcg, retrieval_recall])
def test_vectors_that_do_not_fit_are_refused(metric):
    with raises("E-INPUT-SHAPE", "relevance"):
        metric(np.ones((1, 2)), np.ones((1, 3)), [[1]])
    with raises("E-INPUT-SHAPE", "relevance"):
        metric(np.ones((1, 2)), np.ones((3, 2)), [[1, 0]])
    with raises("E-INPUT", "relevance") as refused:
        metric(np.eye(2), np.eye(2), np.zeros((2, 2)))
    assert str(refused.value).startswith(metric.__name__)


def test_recall_by_hand():
    scores = [[4.0, 3.0, 2.0, 1.0]] * 4
    relevance = [[0, 3, 0, 1], [1, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 2]]
    values = recall_of_scores(scores, relevance, k=2)
    assert values[[0, 1, 3]] == pytest.approx([1 / 2, 2 / 3, 0.0])  # gains count only as > 0
    assert np.isnan(values[2])
    assert recall_of_scores(scores, relevance, k=50)[[0, 1, 3]] == pytest.approx(1.0)


def test_recall_leaves_out_zeros_that_a_sparse_array_stores():
    stored = csr_array((np.array([0.0, 1.0]), np.array([0, 2]), np.array([0, 2])), shape=(1, 3))
    assert stored.nnz == 2
    assert recall_of_scores([[3.0, 2.0, 1.0]], stored, k=1)[0] == 0.0
    assert recall_of_scores([[1.0, 2.0, 3.0]], stored, k=1)[0] == 1.0


@pytest.mark.parametrize("k", [1, 3, 10])
def test_recall_of_constant_scores_is_k_of_all(k):
    relevance = np.random.default_rng(0).integers(0, 2, (30, 20))
    relevance[:, 0] = 1
    values = recall_of_scores(np.zeros((30, 20)), relevance, k=k)
    assert values.mean() == pytest.approx(k / 20)


def test_recall_shares_ties_out():
    # One place is left for two equal documents, one of which is relevant.
    assert recall_of_scores([[2.0, 1.0, 1.0]], [[0, 1, 0]], k=2)[0] == pytest.approx(0.5)


def test_retrieval_recall_is_recall_of_cosines_in_blocks(monkeypatch):
    rng = np.random.default_rng(1)
    queries, documents = rng.standard_normal((11, 8)), rng.standard_normal((25, 8))
    relevance = csr_array(rng.integers(0, 3, (11, 25)) * (rng.random((11, 25)) < 0.2))
    cosines = (queries / np.linalg.norm(queries, axis=1)[:, None]) @ (
        documents / np.linalg.norm(documents, axis=1)[:, None]
    ).T
    values = recall_of_scores(cosines, relevance, k=5)
    expected = retrieval_recall(queries, documents, relevance, k=5)
    assert (expected.metric, expected.n) == ("recall@5", np.isfinite(values).sum())
    assert expected.value == pytest.approx(np.nanmean(values))
    assert expected.low <= expected.value <= expected.high
    monkeypatch.setattr("vecveil.metrics.ranking._BLOCK", 60)  # two queries a block
    assert retrieval_recall(queries, documents, relevance, k=5) == expected
