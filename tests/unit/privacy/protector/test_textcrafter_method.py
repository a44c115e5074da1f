"""The ``textcrafter`` method as people call it: what it learns from, what it refuses, what it keeps."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import vecveil
from harness.errors import raises
from harness.policies import unit
from harness.token_data import token_data
from vecveil.errors import InvalidInputError, MissingDependencyError
from vecveil.privacy.concepts import Concept, Span
from vecveil.privacy.mechanisms import TextCrafter
from vecveil.privacy.protector import Protector
from vecveil.privacy.protector.fitting import refit_refusal

N = 12
DATA = token_data(80, N, dtype=np.float64)


def fit(*arrays: Any, **options: Any) -> Protector:
    given = {"method": "textcrafter", "radius": 0.8, "epochs": 2, **options}
    return vecveil.fit_pairs(*(arrays or DATA.arguments()), **given)


PROTECTOR = fit()


def test_the_fit_says_what_it_is_everywhere(tmp_path: Path) -> None:
    for text in (str(PROTECTOR.guarantee), PROTECTOR.guarantee.statement):
        assert "empirical, no formal privacy guarantee" in text
    assert PROTECTOR.guarantee.kind == "empirical"
    assert PROTECTOR.guarantee.epsilon is None
    assert PROTECTOR.report["epsilon"] is None
    assert PROTECTOR.report["radius"] == 0.8
    assert PROTECTOR.report["concept_distance"]["mean_advantage"] == 1.0  # two spheres do not meet
    record = PROTECTOR.guarantee.to_record()
    assert json.loads(json.dumps(record))["kind"] == "empirical"


def test_the_release_has_norm_and_direction_through_the_protector() -> None:
    X = DATA.positive
    moved = PROTECTOR.protect(X) - X
    v = PROTECTOR.direction(X)
    np.testing.assert_allclose(np.linalg.norm(moved, axis=1), 0.8, rtol=1e-12)
    np.testing.assert_allclose(np.sum(moved * v, axis=1), 0, atol=1e-12)
    assert (PROTECTOR.protect(X) != PROTECTOR.protect(X)).any(axis=1).all()
    np.testing.assert_array_equal(PROTECTOR.protect(X, noise=False), X)


def test_the_classifier_and_the_targets_are_saved_with_the_policy(tmp_path: Path) -> None:
    PROTECTOR.save(tmp_path / "one.vecveil")
    again = vecveil.load(tmp_path / "one.vecveil")
    assert again.fingerprint == PROTECTOR.fingerprint
    assert isinstance(again.mechanism, TextCrafter)
    weights = again.mechanism.classifier
    p = [expit(X @ weights[:-1] + weights[-1]) for X in (DATA.positive, DATA.negative)]
    assert p[0].mean() > p[1].mean() + 0.1
    assert again.mechanism.centroids.shape[1] == N
    figures = again.report["training"]["classifier"]["held_out"]
    assert figures["auc"]["low"] <= figures["auc"]["value"] <= figures["auc"]["high"]
    assert [one["epoch"] for one in again.report["training"]["epochs"]] == [0, 1, 2]


def test_the_spread_is_the_covariance_of_the_perturbation() -> None:
    """Against draws of its own over the same vectors: 200 a vector, so that the error is near 1 % of the trace."""
    rows = np.concatenate([DATA.positive, DATA.negative, DATA.background])
    X = np.repeat(rows, 200, axis=0)
    moved = (PROTECTOR.protect(X, rng=3) - X).reshape(len(rows), 200, N)
    inner = moved - moved.mean(axis=1, keepdims=True)
    expected = np.einsum("aij,aik->jk", inner, inner) / (len(rows) * 199)
    spread = PROTECTOR.mechanism.noise_covariance()
    assert abs(np.trace(spread) - np.trace(expected)) < 0.1 * np.trace(expected)
    assert np.linalg.norm(spread - expected) < 0.3 * np.linalg.norm(expected)


def test_the_same_seed_gives_the_same_protector_and_another_another() -> None:
    assert fit().fingerprint == PROTECTOR.fingerprint
    assert fit(seed=1).fingerprint != PROTECTOR.fingerprint


def test_an_interrupted_fit_goes_on_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vecveil.privacy.textcrafter import policy_training

    class Stopped(KeyboardInterrupt):
        pass

    real = policy_training.StateFile.save
    calls: list[int] = []

    def stop_after_one(self: Any, *args: Any, **kwargs: Any) -> Any:
        saved = real(self, *args, **kwargs)
        calls.append(1)
        if len(calls) == 2:
            raise Stopped
        return saved

    with monkeypatch.context() as patch:
        patch.setattr(policy_training.StateFile, "save", stop_after_one)
        with pytest.raises(Stopped):
            fit(checkpoint=tmp_path / "work", epochs=4)
    assert fit(checkpoint=tmp_path / "work", epochs=4).fingerprint == fit(epochs=4).fingerprint
    with raises("E-CHECKPOINT", "checkpoint"):
        fit(checkpoint=tmp_path / "work", epochs=4, beta=2.0)


@pytest.mark.parametrize("radius", [0, -1.0, float("nan"), float("inf"), "1", None, True])
def test_a_radius_must_be_a_positive_number(radius: Any) -> None:
    with raises("E-INPUT", "radius"):
        fit(radius=radius)


def test_other_scales_and_unknown_options_are_refused() -> None:
    with raises("E-INPUT", "epsilon"):
        fit(radius=None, epsilon=3.0)
    with raises("E-INPUT", "rank"):
        fit(rank=3)
    with raises("E-INPUT", "tokens"):
        fit(tokens=5)
    with raises("E-INPUT", "postprocess"):
        fit(postprocess="wiener")
    with raises("E-INPUT", "relabel"):
        fit(relabel="presidio")
    with raises("E-INPUT", "radius"):
        vecveil.fit_pairs(*DATA.arguments(), method="laplace", radius=1.0)


@pytest.mark.parametrize("which", ["positive", "negative", "background"])
def test_vectors_of_another_norm_are_refused_and_brought_to_norm_1_if_asked(which: str) -> None:
    arrays = {"positive": DATA.positive, "negative": DATA.negative, "background": DATA.background}
    arrays[which] = 3 * arrays[which]
    labels = DATA.labels
    given = (arrays["positive"], arrays["negative"], labels, arrays["background"])
    with raises("E-INPUT", which):
        fit(*given)
    one = fit(*given, before="normalise")
    assert one.guarantee.kind == "empirical"
    X = DATA.positive
    np.testing.assert_allclose(np.linalg.norm(one.protect(5 * X) - X, axis=1), 0.8, rtol=1e-9)
    np.testing.assert_allclose(one.direction(5 * X), one.direction(X), atol=1e-6)
    with raises("E-INPUT", "X"):
        PROTECTOR.protect(np.concatenate([X[:3], 3 * X[3:4]]))
    with raises("E-INPUT", "X"):
        PROTECTOR.direction(0.5 * X)


def test_a_nan_is_refused_and_names_its_row() -> None:
    X = DATA.positive.copy()
    X[4, 2] = np.nan
    for call in (PROTECTOR.protect, PROTECTOR.direction, lambda rows: fit(rows, DATA.negative)):
        with pytest.raises(InvalidInputError, match=r"row 4|finite"):
            call(X)


def test_a_classifier_near_chance_warns_and_is_used() -> None:
    rng = np.random.default_rng(0)
    blind = fit(unit(rng.standard_normal((120, N))), unit(rng.standard_normal((120, N))))
    assert any("classifier" in warning for warning in blind.report["warnings"])
    assert blind.guarantee.kind == "empirical"


def test_further_rows_with_the_concept_are_learnt_from() -> None:
    further = unit(DATA.positive + 0.05 * np.random.default_rng(1).standard_normal((80, N)))
    more = fit(further_positive=further)
    rows = [one.report["training"]["classifier"]["held_out"]["rows"] for one in (more, PROTECTOR)]
    assert rows[0]["positive"] == rows[1]["positive"] + 80
    with raises("E-INCOMPATIBLE", "further_positive"):
        fit(further_positive=further[:, :5])


def test_the_perturbation_is_orthogonal_to_the_embedding_in_the_abstract_s_reading(tmp_path: Path) -> None:
    protector = fit(direction="embedding")
    X = DATA.positive[:20]
    np.testing.assert_allclose(protector.direction(X), X, atol=1e-6)
    protector.save(tmp_path / "p.vecveil")
    for one in (protector, vecveil.load(tmp_path / "p.vecveil")):
        step = one.protect(X, np.random.default_rng(0)) - X
        assert np.abs((step * X).sum(axis=1)).max() < 1e-6
        np.testing.assert_allclose(np.linalg.norm(step, axis=1), 0.8, rtol=1e-5)
    assert protector.report["parameters"]["direction"] == "embedding"


def test_only_textcrafter_has_a_direction_and_it_is_not_fitted_again() -> None:
    laplace = vecveil.fit_pairs(*DATA.arguments(), method="laplace", epsilon=30.0)
    with raises("E-INPUT", "method"):
        laplace.direction(DATA.positive)
    assert "whole texts" in (refit_refusal(PROTECTOR) or "")


class Codes:
    """An encoder of unit vectors: letters counted by hash, the same for the same text."""

    name = "codes"

    def encode(self, texts: Any, **_: Any) -> np.ndarray:
        rows = [np.bincount([ord(c) % N for c in text], minlength=N) + 0.1 for text in texts]
        return unit(np.array(rows)).astype(np.float32)


class Shouting:
    """A recogniser of the user's own: a text with an exclamation mark holds something."""

    def detect(self, texts: Any) -> list[list[Span]]:
        return [[Span(0, 1, "shout")] if "!" in text else [] for text in texts]


def notes() -> list[str]:
    drugs = [f"Patient {i} was given aspirin at noon {'x' * (i % 7)}" for i in range(60)]
    plain = [f"The visit number {i} went well{'!' if i % 3 == 0 else '.'} {'y' * (i % 5)}" for i in range(90)]
    return drugs + plain


@pytest.mark.slow
@pytest.mark.parametrize("relabel", [None, Shouting(), "presidio"])
def test_plain_texts_in_which_a_recogniser_finds_pii_move(relabel: Any) -> None:
    if relabel == "presidio":
        pytest.importorskip("presidio_analyzer")
    texts = notes()
    texts[-1] += " Write to jane.roe@example.org."
    options = {} if relabel is None else {"relabel": relabel}
    one = vecveil.fit(
        texts, Concept.from_terms("drug", ["aspirin"]), Codes(), method="textcrafter", radius=0.5, epochs=1, **options
    )
    rows = one.report["training"]["classifier"]["held_out"]["rows"]
    moved = {None: 0, "presidio": 1}.get(relabel if isinstance(relabel, str) else None, 0)
    if isinstance(relabel, Shouting):
        moved = 30
    assert one.report.get("relabelled", {}).get("moved", 0) == moved
    assert rows["positive"] == 60 + moved
    assert rows["plain"] == 60 + 90 - moved


def test_a_protector_with_a_foreign_array_is_refused(tmp_path: Path) -> None:
    assert isinstance(PROTECTOR.mechanism, TextCrafter)
    arrays = PROTECTOR.mechanism.to_arrays()
    for name in ("policy.mean.head.weight", "spread", "classifier", "centroids"):
        broken = {**arrays, name: arrays[name][..., :-1]}
        with pytest.raises((ValueError, LookupError)):
            TextCrafter.from_saved(PROTECTOR.mechanism.parameters(), broken, N)
    policy = replace(PROTECTOR.mechanism.policy, heads=1)
    assert policy.heads == 1
    with pytest.raises(ValueError, match="tokens"):
        replace(policy, tokens=5)


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("policy_training", "policy_gradient"):
        monkeypatch.delitem(sys.modules, f"vecveil.privacy.textcrafter.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'vecveil\[textcrafter\]'"):
        fit(seed=5)
    assert PROTECTOR.protect(DATA.positive).shape == DATA.positive.shape  # applying needs none


def test_the_variant_erases_behind_the_same_perturbation() -> None:
    erased = fit(method="textcrafter-subspace", rank=4)
    assert erased.guarantee.kind == "empirical"
    assert erased.map is not None
    assert erased.map.rank == N - 4
    assert erased.report["parameters"]["rank"] == 4
    X = DATA.positive
    expected = erased.map.apply(PROTECTOR.protect(X, rng=1))
    np.testing.assert_allclose(erased.protect(X, rng=1), expected, atol=1e-9)
    reduced = fit(method="textcrafter-subspace", rank=4, output="reduced")
    assert reduced.protect(X).shape == (len(X), N - 4)
    plain = fit(method="textcrafter-subspace", rank=4, postprocess="none")
    np.testing.assert_array_equal(plain.protect(X, rng=1), PROTECTOR.protect(X, rng=1))
    with raises("E-INPUT-RANGE", "rank"):
        fit(method="textcrafter-subspace", rank=N)


@pytest.mark.parametrize("relabel", ["presdio", 3, ["presidio"]])
def test_a_recogniser_that_is_none_is_refused_before_anything_is_encoded(relabel: Any) -> None:
    class Never:
        def encode(self, texts: Any) -> np.ndarray:
            raise AssertionError("encoded")

    with raises("E-INPUT", "relabel"):
        vecveil.fit(
            notes(), Concept.from_terms("drug", ["aspirin"]), Never(), method="textcrafter", radius=0.5, relabel=relabel
        )


def test_behind_a_map_the_guarantee_says_where_norm_and_direction_hold() -> None:
    plain = str(PROTECTOR.guarantee)
    assert "picks the one at distance r" in plain
    erased = str(fit(method="textcrafter-subspace", rank=4).guarantee)
    assert "Before the map that follows" in erased
    assert "picks the one" not in erased
    rounded = str(fit(postprocess="float16").guarantee)
    assert "changes norm and direction: they hold before it" in rounded
    assert "Nothing bounds how well" in PROTECTOR.report["concept_distance"]["statement"]


def test_a_row_beyond_the_first_block_is_named_by_its_number() -> None:
    X = np.repeat(DATA.positive[:1], 20_000, axis=0)
    X[19_999] *= 2
    with raises("E-INPUT", "X"):
        PROTECTOR.protect(X)


def test_further_rows_go_through_what_comes_before() -> None:
    arrays = (2 * DATA.positive, 2 * DATA.negative)
    one = fit(*arrays, further_positive=2 * DATA.positive, before="normalise")
    assert one.report["training"]["classifier"]["held_out"]["rows"]["positive"] == 160
    with raises("E-INPUT", "further_positive"):
        fit(DATA.positive, DATA.negative, further_positive=2 * DATA.positive)
    with raises("E-INPUT-TYPE", "further_positive"):
        fit(further_positive=3)


@pytest.mark.parametrize("radius", [1e-12, 9e-5, 1.1e4, 1e300])
def test_a_radius_that_float32_loses_is_refused_before_training(radius: float) -> None:
    with raises("E-INPUT", "radius"):
        fit(radius=radius, epochs=10**9)


def test_the_ends_of_the_radius_are_saved_and_loaded(tmp_path: Path) -> None:
    for radius in (1e-4, 1e4):
        fit(radius=radius, epochs=1).save(tmp_path / "one.vecveil")
        assert vecveil.load(tmp_path / "one.vecveil").report["radius"] == radius


def test_keyed_noise_is_told_apart() -> None:
    keyed = PROTECTOR.guarantee.with_keyed_noise()
    assert any("the key stays secret" in one for one in keyed.conditional_on)
    assert not any("released once" in one or "HMAC" in one for one in keyed.conditional_on)
    assert any("Equal inputs under one id" in one for one in keyed.not_promised)
    assert any("determine its vector exactly" in one for one in PROTECTOR.guarantee.conditional_on)


@pytest.mark.parametrize("checkpoint", ["", 3, b"x", True])
def test_a_checkpoint_must_be_the_path_of_a_folder(checkpoint: Any) -> None:
    if isinstance(checkpoint, bytes):
        checkpoint = [checkpoint]
    with raises("E-INPUT", "checkpoint"):
        fit(checkpoint=checkpoint)


def test_a_full_disk_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    from vecveil import io as module

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "atomic_path", full)
    with raises("E-CHECKPOINT", "checkpoint"):
        fit(checkpoint=tmp_path / "work")


@pytest.mark.parametrize("change", ["negative", "asymmetric", "too large"])
def test_a_forged_spread_makes_no_mechanism(change: str) -> None:
    mechanism = PROTECTOR.mechanism
    spread = mechanism.noise_covariance().copy()
    forged = {"negative": -spread, "asymmetric": np.triu(spread), "too large": 100 * spread}[change]
    with pytest.raises(ValueError, match="spread"):
        TextCrafter.from_saved(mechanism.parameters(), {**mechanism.to_arrays(), "spread": forged}, N)
