"""Settings that no attack takes, of every attack: each error names the setting."""

from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from vecveil.auditing.attacks import (
    AnchorLinkingAttack,
    EnsembleAttack,
    KernelAttack,
    LinearAttack,
    MLPAttack,
    MultilaterationAttack,
    WholeVocabularyAttack,
)
from vecveil.auditing.attacks.alignment import RidgeAlignment, UnpairedAlignment
from vecveil.auditing.attacks.probes import LinearProbe
from vecveil.auditing.attacks.reconstruction.decoder import ALGENAttack, GEIAAttack
from vecveil.auditing.attacks.reconstruction.vec2text import Vec2TextAttack
from vecveil.auditing.attacks.reconstruction.zero_shot import NgramLanguageModel, ZeroShotAttack
from vecveil.auditing.attacks.token_inference import BayesPosteriorAttack, NearestNeighboursAttack
from vecveil.auditing.attacks.wrapped import AveragingAttack, Denoised
from vecveil.privacy.training import TrainingRecipe


def zeros(texts: list[str]) -> np.ndarray:
    return np.zeros((len(texts), 4))


MODEL = NgramLanguageModel(["a text of some words", "another text of words"])
GIVEN: dict[Any, dict[str, Any]] = {
    AveragingAttack: {"k": 2},
    MultilaterationAttack: {"k": 2},
    Denoised: {"attack": LinearAttack()},
    ZeroShotAttack: {"encode": zeros, "language_model": MODEL},
    Vec2TextAttack: {"encode": zeros},
    TrainingRecipe: {"epochs": 1, "batch": 1, "learning_rate": 1.0},
}
WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (AveragingAttack, {"k": 0}, "E-INPUT-RANGE"),
    (AveragingAttack, {"inner": LinearProbe()}, "E-INPUT"),
    (MultilaterationAttack, {"k": 0}, "E-INPUT-RANGE"),
    (MultilaterationAttack, {"inner": LinearProbe()}, "E-INPUT"),
    (Denoised, {"draws": 0}, "E-INPUT-RANGE"),
    (AnchorLinkingAttack, {"pairs": 3}, "E-INPUT-RANGE"),
    (WholeVocabularyAttack, {"rank": 0}, "E-INPUT-RANGE"),
    (EnsembleAttack, {"rows": 1}, "E-INPUT-RANGE"),
    (KernelAttack, {"rows": 1}, "E-INPUT-RANGE"),
    (NearestNeighboursAttack, {"draws": 0}, "E-INPUT-RANGE"),
    (BayesPosteriorAttack, {"draws": 1}, "E-INPUT-RANGE"),
    *((MLPAttack, option, "E-INPUT-RANGE") for option in ({"hidden": (0,)}, {"epochs": 0}, {"batch": 0})),
    *((MLPAttack, option, "E-INPUT-RANGE") for option in ({"learning_rate": 0}, {"dropout": 1.5}, {"input_noise": -1})),
    *((RidgeAlignment, {"pairs": pairs}, "E-INPUT") for pairs in ((), (2,), (10.5,), (True,))),
    *((UnpairedAlignment, {name: -1}, "E-INPUT") for name in ("rows", "clusters", "runs", "rounds")),
    *((ALGENAttack, {"pairs": pairs}, "E-INPUT") for pairs in ((), (0,))),
    (GEIAAttack, {"preset": "huge"}, "E-INPUT"),
    (GEIAAttack, {"heads": 4, "width": 30}, "E-INPUT"),
    *((GEIAAttack, {name: 0}, "E-INPUT") for name in ("beams", "layers", "epochs")),
    *((GEIAAttack, option, "E-INPUT") for option in ({"vocabulary": 10}, {"colour": 1})),
    *((ZeroShotAttack, {name: 0}, "E-INPUT") for name in ("queries", "beam", "proposals", "max_tokens")),
    *((Vec2TextAttack, option, "E-INPUT-NAME") for option in ({"preset": "large"}, {"align": "procrustes"})),
    *((Vec2TextAttack, option, "E-INPUT") for option in ({"fine_tune": False}, {"encode": None})),
    *((Vec2TextAttack, {name: 0}, "E-INPUT-RANGE") for name in ("beam", "draws", "judged")),
    (Vec2TextAttack, {"rounds": -1}, "E-INPUT-RANGE"),
    *((TrainingRecipe, option, "E-INPUT") for option in ({"epochs": 0}, {"learning_rate": -1.0}, {"seconds": 0})),
    *((TrainingRecipe, option, "E-INPUT") for option in ({"warmup_share": 2.0}, {"precision": "int4"})),
]


@pytest.mark.parametrize(("attack", "options", "code"), WRONG, ids=lambda value: getattr(value, "__name__", None))
def test_a_setting_that_cannot_be_is_refused_by_name(attack: Any, options: dict[str, Any], code: str) -> None:
    with raises(code, next(iter(options))):
        attack(**GIVEN.get(attack, {}) | options)


def test_a_corpus_needs_the_encoder() -> None:
    with raises("E-INPUT", "encode"):
        GEIAAttack(corpus=["a text"])
