import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.metrics import ndcg_score

from harness.errors import raises
from vecveil.privacy.utility.tasks import ndcg_of_scores, retrieval_ndcg


def test_by_hand():
    # Relevant documents (gains 3 and 1) stand at ranks 2 and 3.
    value = ndcg_of_scores([[3.0, 2.0, 1.0]], [[0, 3, 1]], k=10)[0]
    expected = (3 / np.log2(3) + 1 / 2) / (3 + 1 / np.log2(3))
    assert value == pytest.approx(expected)


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
    monkeypatch.setattr("vecveil.privacy.utility.tasks._BLOCK", 80)
    assert retrieval_ndcg(3 * queries, documents, csr_array(relevance)).value == pytest.approx(expected)


@pytest.mark.parametrize(
    ("scores", "relevance", "code", "param"),
    [
        ([[1.0, 2.0]], [[1]], "E-INPUT-SHAPE", "scores"),
        ([[1.0, np.nan]], [[1, 0]], "E-INPUT-FINITE", "scores"),
        ([[1.0, 2.0]], [[-1, 0]], "E-INPUT", "relevance"),
    ],
)
def test_bad_scores_are_refused(scores, relevance, code, param):
    with raises(code, param):
        ndcg_of_scores(scores, relevance)
    with raises("E-INPUT-RANGE", "k"):
        ndcg_of_scores([[1.0, 2.0]], [[0, 1]], k=0)


def test_vectors_that_do_not_fit_are_refused():
    with raises("E-INPUT-SHAPE", "relevance"):
        retrieval_ndcg(np.ones((1, 2)), np.ones((1, 3)), [[1]])
    with raises("E-INPUT-SHAPE", "relevance"):
        retrieval_ndcg(np.ones((1, 2)), np.ones((3, 2)), [[1, 0]])
    with raises("E-INPUT", "relevance") as refused:
        retrieval_ndcg(np.eye(2), np.eye(2), np.zeros((2, 2)))
    assert str(refused.value).startswith("retrieval_ndcg")
