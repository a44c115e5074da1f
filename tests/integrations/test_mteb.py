"""MTEB on protected vectors, with tasks made here: no download, and no result of another policy."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from vecveil.encoders import LsaEncoder, load_encoder

pytestmark = pytest.mark.filterwarnings("default")  # of other packages' making


@pytest.fixture(scope="module", autouse=True)
def _imports() -> None:
    """Import MTEB only in the process that runs this file; every process collects it."""
    pytest.importorskip("mteb")
    global DRUGS, MadeRetrieval, MadeSts, PromptType, ProtectedEncoder, ResultCache, mteb, texts_of
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mteb
        from mteb.cache import ResultCache
        from mteb.types import PromptType

        from harness.mteb_tasks import DRUGS, MadeRetrieval, MadeSts, texts_of
        from vecveil.integrations.mteb import ProtectedEncoder


@pytest.fixture(scope="module")
def encoder() -> Any:
    return load_encoder(LsaEncoder.fit(texts_of(200, 0), 20), cache=None)


@pytest.fixture(scope="module")
def protector(encoder: Any) -> vecveil.Protector:
    concept = vecveil.Concept.from_terms("drug", DRUGS)
    return vecveil.fit(texts_of(200, 0), concept, encoder, method="laplace", noise_to_signal=0.5)


def score(model: ProtectedEncoder, task: Any, cache: Path | None = None) -> float:
    kept = None if cache is None else ResultCache(cache)
    found = mteb.evaluate(model, [task()], cache=kept, show_progress_bar=False, co2_tracker=False)
    return float(found.task_results[0].get_score())


def batches(texts: Sequence[str], size: int = 7) -> list[dict[str, list[str]]]:
    return [{"text": list(texts[i : i + size])} for i in range(0, len(texts), size)]


def test_mteb_takes_it_and_noise_costs(protector: vecveil.Protector) -> None:
    clean = ProtectedEncoder(protector, queries="clean", documents="clean")
    noisy = ProtectedEncoder(protector, seed=0)
    assert isinstance(noisy, mteb.EncoderProtocol)
    for task in (MadeSts, MadeRetrieval):
        plain, covered = score(clean, task), score(noisy, task)
        assert 0.2 < covered < plain
    assert score(noisy, MadeSts) == score(ProtectedEncoder(protector, seed=0), MadeSts)
    assert score(noisy, MadeSts) != score(ProtectedEncoder(protector, seed=1), MadeSts)


def test_results_of_policies_never_mix(protector: vecveil.Protector, tmp_path: Path) -> None:
    first = score(ProtectedEncoder(protector, seed=0), MadeSts, tmp_path)
    others = [
        score(ProtectedEncoder(protector, seed=1), MadeSts, tmp_path),
        score(ProtectedEncoder(protector), MadeSts, tmp_path),
        score(ProtectedEncoder(protector), MadeSts, tmp_path),  # fresh noise anew
        score(ProtectedEncoder(protector, documents="clean", queries="clean"), MadeSts, tmp_path),
    ]
    assert len({first, *others}) == 5
    assert len(list(tmp_path.rglob("MadeSTS.json"))) == 5


def test_a_kept_result_is_used_again(
    protector: vecveil.Protector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = score(ProtectedEncoder(protector, seed=0), MadeSts, tmp_path)

    def encode(*_: Any, **__: Any) -> None:
        pytest.fail("a kept result was computed again")

    monkeypatch.setattr(ProtectedEncoder, "encode", encode)
    kept = score(ProtectedEncoder(protector, seed=0), MadeSts, tmp_path)
    assert kept == pytest.approx(first, abs=1e-5)  # rounded in the file


def test_every_part_of_the_policy_changes_name_and_revision(
    protector: vecveil.Protector, encoder: Any
) -> None:
    concept = vecveil.Concept.from_terms("drug", DRUGS)
    other = vecveil.fit(texts_of(200, 0), concept, encoder, method="laplace", noise_to_signal=0.6)
    models = [
        ProtectedEncoder(protector, seed=0),
        ProtectedEncoder(other, seed=0),
        ProtectedEncoder(protector, seed=1),
        ProtectedEncoder(protector, seed=0, queries="map"),
        ProtectedEncoder(protector, seed=0, queries="clean"),
        ProtectedEncoder(protector, seed=0, documents="map"),
        ProtectedEncoder(protector),
        ProtectedEncoder(protector),
    ]
    metas = [model.mteb_model_meta for model in models]
    assert len({meta.revision for meta in metas}) == len({meta.name for meta in metas}) == 8
    again = ProtectedEncoder(protector, seed=0).mteb_model_meta
    assert (again.name, again.revision) == (metas[0].name, metas[0].revision)
    assert again.name.startswith("vecveil/laplace-lsa-")


def test_queries_and_documents_are_treated_as_asked(
    protector: vecveil.Protector, encoder: Any
) -> None:
    texts = texts_of(30, 5)
    X = encoder.encode(texts)
    model = ProtectedEncoder(protector, seed=0, queries="clean", documents="protected")
    np.testing.assert_array_equal(model.encode(batches(texts), prompt_type=PromptType.query), X)
    for side in (PromptType.document, None):
        Y = model.encode(batches(texts), prompt_type=side)
        assert (X != Y).any(axis=1).all()
    mapped = ProtectedEncoder(protector, seed=0, queries="map")
    np.testing.assert_array_equal(
        mapped.encode(batches(texts), prompt_type=PromptType.query),
        protector.protect(X, noise=False),
    )


def test_noise_depends_on_side_and_texts_and_not_on_the_order_of_calls(
    protector: vecveil.Protector, encoder: Any
) -> None:
    texts = texts_of(12, 6)
    X = encoder.encode(texts)
    model = ProtectedEncoder(protector, seed=0)
    first = model.encode(batches(texts), prompt_type=PromptType.query)
    document = model.encode(batches(texts), prompt_type=PromptType.document)
    turned = model.encode(batches(texts[::-1]), prompt_type=PromptType.query)
    np.testing.assert_array_equal(first, model.encode(batches(texts, 5), prompt_type="query"))
    assert np.abs((first - X) - (document - X)).max() > 1e-3
    assert np.abs((first - X)[0] - (turned - X[::-1])[0]).max() > 1e-3
    fresh = ProtectedEncoder(protector)
    assert (fresh.encode(batches(texts)) != fresh.encode(batches(texts))).any(axis=1).all()


def test_text_level_methods_rewrite(encoder: Any) -> None:
    concept = vecveil.Concept.from_terms("drug", DRUGS)
    protector = vecveil.fit(texts_of(200, 0), concept, encoder, method="redact")
    texts = texts_of(20, 7)
    model = ProtectedEncoder(protector)
    np.testing.assert_array_equal(model.encode(batches(texts)), protector.encode(texts))
    with raises("E-INPUT", "queries"):
        ProtectedEncoder(protector, queries="map")


def test_misuse_is_refused(protector: vecveil.Protector, encoder: Any) -> None:
    with raises("E-INPUT-NAME", "queries"):
        ProtectedEncoder(protector, queries="noisy")  # type: ignore[arg-type]
    with raises("E-INPUT", "inputs"):
        ProtectedEncoder(protector).encode([{"image": [1]}])
    with raises("E-INPUT", "precision"):
        ProtectedEncoder(protector).encode(batches(["a"]), precision="int8")
    concept = vecveil.Concept.from_terms("drug", DRUGS)
    reduced = vecveil.fit(
        texts_of(200, 0), concept, encoder, rank=2, kept=10, flattening=0.0, pairs=True,
        noise_to_signal=0.3, output="reduced",
    )  # fmt: skip
    with raises("E-INPUT", "queries"):
        ProtectedEncoder(reduced, queries="clean")
    assert ProtectedEncoder(reduced, queries="map", seed=0).encode(batches(["worda"])).shape == (
        1,
        10,
    )
