"""scikit-learn's own checks of estimators, and what a protector adds to them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

import cloudpickle
import joblib
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import vecveil
from harness.errors import raises
from harness.integration_checks import assert_no_secret, run_example, same_direction
from vecveil.errors import KeyFileError, LedgerCapError
from vecveil.gateway.sklearn import ProtectorTransformer

FEW = "its labels have fewer than ten rows each: from so few nothing reliable can be learnt"
ROWS = "it has fewer than twenty rows: from so few nothing reliable can be learnt"
CALL = "the noise of a call depends on all its rows, so that no two calls share it"
LABELS = {
    "check_estimators_overwrite_params": FEW,
    "check_dont_overwrite_parameters": FEW,
    "check_estimators_fit_returns_self": FEW,
    "check_readonly_memmap_input": FEW,
    "check_f_contiguous_array_estimator": FEW,
    "check_dict_unchanged": FEW,
    "check_fit2d_predict1d": FEW,
    "check_n_features_in_after_fitting": ROWS,
    "check_estimators_nan_inf": ROWS,
}
SEEDED = {"check_methods_subset_invariance": CALL, "check_methods_sample_order_invariance": CALL}


def expected_failures(estimator: ProtectorTransformer) -> dict[str, str]:
    if estimator.random_state is not None:
        return SEEDED
    return LABELS if estimator.method == "subspace" else {}


@parametrize_with_checks(
    [
        ProtectorTransformer(method="laplace", epsilon=5.0),
        ProtectorTransformer(method="gaussian", sigma=0.1, random_state=0),
        ProtectorTransformer(method="subspace", noise_to_signal=0.5),
    ],
    expected_failed_checks=expected_failures,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def X(notes: list[str]) -> np.ndarray:
    return vecveil.load_encoder("minilm").encode(notes[:200], show_progress=False)


@pytest.fixture(scope="module")
def y(protector, notes: list[str]) -> np.ndarray:
    """Return whether the concept's words are in a text, as a classifier is given labels."""
    concept = vecveil.Concept.from_file(vecveil.cli.demo.corpus.CONCEPT_FILE)
    return np.array([bool(spans) for spans in concept.detect(notes[:200])]).astype(int)


def test_a_pipeline_hides_the_label(protector_file, X, y):
    """The control: the same classifier reads the label from clean vectors."""
    clean = LogisticRegression(C=100).fit(X[:100], y[:100]).score(X[100:], y[100:])
    model = make_pipeline(ProtectorTransformer(protector_file, random_state=0), LogisticRegression(C=100))
    protected = model.fit(X[:100], y[:100]).score(X[100:], y[100:])
    assert protected < clean
    fitted = ProtectorTransformer(method="subspace", target_utility=0.9).fit(X, y)
    assert fitted.protector_.method == "subspace"
    assert same_direction(fitted.transform(X), X).max() < 1 - 1e-4
    with raises("E-INPUT", "y"):
        ProtectorTransformer(method="subspace", target_utility=0.9).fit(X)


def test_queries_are_protected_as_they_are_told(protector, X):
    """Mean squares of 200 rows: a ratio of 16, of which chance moves a few percent."""
    mapped = protector.protect(X, noise=False)
    noise = {}
    for side in (1, 4, 0):
        given = ProtectorTransformer(protector, query_noise=side).fit(X)
        noise[side] = np.mean((given.transform_queries(X) - mapped) ** 2)
        assert np.mean((given.transform(X) - mapped) ** 2) > 0
    assert noise[4] > 8 * noise[1] > 0 == noise[0]


def test_noise_is_fresh_unless_it_is_seeded(protector, X):
    fresh = ProtectorTransformer(protector).fit(X)
    assert not np.array_equal(fresh.transform(X), fresh.transform(X))
    seeded = ProtectorTransformer(protector, random_state=7).fit(X)
    assert np.array_equal(seeded.transform(X), clone(seeded).fit(X).transform(X))
    mapped = protector.protect(X, noise=False)
    first, second = (seeded.transform(part) - protector.protect(part, noise=False) for part in (X[:100], X[100:]))
    assert not np.isclose(first, second).all(axis=1).any()  # rows of two calls share no noise
    moving = ProtectorTransformer(protector, random_state=np.random.RandomState(7)).fit(X)
    assert not np.array_equal(moving.transform(X), moving.transform(X))
    assert mapped.dtype == seeded.transform(X).dtype == np.float32


def test_frames_have_names(protector, X):
    pandas = pytest.importorskip("pandas")
    given = pandas.DataFrame(X[:30], columns=[f"d{i}" for i in range(X.shape[1])])
    transformer = ProtectorTransformer(protector).set_output(transform="pandas")
    released = transformer.fit_transform(given)
    assert isinstance(released, pandas.DataFrame)
    assert list(released.columns) == list(transformer.get_feature_names_out())
    assert released.shape == (30, protector.released_dimension)
    with pytest.raises(ValueError, match="feature names"):
        transformer.transform(given[given.columns[::-1]])


@pytest.mark.parametrize("module", [pickle, cloudpickle], ids=["pickle", "cloudpickle"])
def test_no_key_in_a_pickle(protector_file, key_file, X, tmp_path: Path, module):
    transformer = ProtectorTransformer(protector_file, key=str(key_file)).fit(X)
    released = transformer.transform(X[:9])
    (tmp_path / "pickle").write_bytes(module.dumps(transformer))
    joblib.dump(transformer, tmp_path / "joblib")
    (tmp_path / "repr").write_text(repr(transformer) + transformer._repr_html_())
    assert_no_secret(tmp_path, key_file)
    for again in (
        module.loads((tmp_path / "pickle").read_bytes()),
        joblib.load(tmp_path / "joblib"),
        clone(transformer).fit(X),
    ):
        assert np.array_equal(again.transform(X[:9]), released)


def test_keys_in_memory_go_nowhere(protector, key_file, X):
    keys = vecveil.KeyFile.from_file(key_file)
    transformer = ProtectorTransformer(protector, key=keys).fit(X)
    assert np.array_equal(transformer.transform(X), transformer.transform(X))
    for act in (pickle.dumps, cloudpickle.dumps, clone):
        with pytest.raises(TypeError, match="not pickled"):
            act(transformer)


def test_the_ledger_counts_rows(protector, X, tmp_path: Path):
    ledger = vecveil.Ledger(tmp_path / "ledger", cap=1)
    transformer = ProtectorTransformer(protector, ledger=ledger).fit(X)
    transformer.transform(X[:5])
    with pytest.raises(LedgerCapError):
        transformer.transform(X[:9])
    transformer.transform(X[5:9])  # nothing was counted of what was refused


def test_texts_are_rewritten_before_a_vectoriser_sees_them(redactor, notes):
    texts = ["She takes amoxicillin for her asthma.", "The train leaves at noon."]
    pipeline = make_pipeline(ProtectorTransformer(redactor), TfidfVectorizer())
    pipeline.fit(texts)
    assert not {"amoxicillin", "asthma"} & set(pipeline[-1].vocabulary_)
    assert "train" in pipeline[-1].vocabulary_
    assert ProtectorTransformer(redactor).fit(texts).transform_queries(texts) == redactor.rewrite(texts)


def test_what_cannot_be_is_refused(protector, protector_file, redactor, X, tmp_path: Path):
    with raises("E-INCOMPATIBLE", "X"):
        ProtectorTransformer(protector).fit(X[:, :16])
    with pytest.raises(ValueError, match="NaN"):
        ProtectorTransformer(protector).fit(X).transform(np.full((2, 384), np.nan))
    masked = np.ma.masked_where(np.abs(X) > 0.1, X)
    for use in (ProtectorTransformer(protector).fit, ProtectorTransformer(protector).fit(X).transform):
        with raises("E-INPUT-TYPE", "X"):
            use(masked)
    with pytest.raises(NotFittedError):
        ProtectorTransformer(protector).transform(X)
    with pytest.raises(KeyFileError):
        ProtectorTransformer(protector, key=tmp_path / "none.key").fit(X)
    with raises("E-INPUT-RANGE", "query_noise"):
        ProtectorTransformer(protector, query_noise=0.5).fit(X)
    with raises("E-INPUT", "query_noise"):
        ProtectorTransformer(redactor, query_noise=0).fit(["a text"])


def test_the_example(collection_folder, protector_file):
    clean, protected = run_example("sklearn", collection_folder, protector_file)
    assert min(clean, protected) > 0.5  # about 0.85 either way, give or take 0.03 by the noise
