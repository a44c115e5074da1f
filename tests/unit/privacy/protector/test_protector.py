"""The artefact: its encoder, its fingerprint, its record."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.token_data import token_data
from vecveil.privacy.mechanisms import Laplace, Mahalanobis
from vecveil.privacy.protector import EncoderInfo, Protector
from vecveil.privacy.sensitivity import LinearMap, NoiseShape


class Doubling:
    fingerprint = "doubling-1"

    def __init__(self, n: int = 4) -> None:
        self.n = n

    def encode(self, texts: Any) -> Any:
        return [[len(text) / 4] * self.n for text in texts]


def small(**changes: Any) -> Protector:
    fields = {"method": "laplace", "mechanism": Laplace(4, 10.0)} | changes
    return Protector(**fields)


ROTATION = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
CHANGES: list[dict[str, Any]] = [
    {"method": "other"},
    {"mechanism": Laplace(4, 10.0 + 1e-9)},
    {"mechanism": Laplace(5, 10.0)},
    {"mechanism": Mahalanobis(NoiseShape.isotropic(4), 10.0)},
    {"mechanism": Mahalanobis(NoiseShape.from_diagonal(np.arange(4), floor=1), 10.0)},
    {"mechanism": Mahalanobis(NoiseShape.from_matrix(ROTATION + ROTATION.T + 2 * np.eye(4)), 10.0)},
    {"map": LinearMap(down=np.eye(4))},
    {"map": LinearMap(down=np.eye(4)[::-1])},
    {"map": LinearMap(down=ROTATION[:2], up=ROTATION[:2].T)},
    {"map": LinearMap(down=ROTATION[:2], up=ROTATION[2:].T)},
    {"map": LinearMap(down=ROTATION[:2], up=ROTATION[:2].T), "output": "reduced"},
]


@pytest.mark.slow
@pytest.mark.parametrize("too_large", [{"mechanism": Laplace(16_385, 10.0)}, {"report": {"note": "x" * 100_000_000}}])
def test_a_protector_that_could_not_be_loaded_is_not_saved(tmp_path: Path, too_large: dict[str, Any]) -> None:
    with raises("E-PROTECTOR", "protector"):
        small(**too_large).save(tmp_path / "p.vecveil")
    assert not any(tmp_path.iterdir())


def test_every_parameter_changes_the_fingerprint() -> None:
    prints = [small(**change).fingerprint for change in [{}, *CHANGES]]
    assert len(set(prints)) == len(prints)


def test_names_do_not_change_the_fingerprint() -> None:
    other = small(concept="drug", encoder_info=EncoderInfo("a", "b", "fp32"), report={"x": 1})
    assert other.fingerprint == small().fingerprint


@pytest.mark.parametrize("change", [{}, *CHANGES])
def test_any_protector_survives_its_file(change: dict[str, Any], tmp_path: Path) -> None:
    one = small(**change, concept="drüg", encoder_info=EncoderInfo("a", None, "fp32"))
    one.save(tmp_path / "p")
    again = vecveil.load(tmp_path / "p")
    assert again.fingerprint == one.fingerprint
    assert (again.concept, again.encoder_info) == (one.concept, one.encoder_info)
    assert again.released_dimension == one.released_dimension
    assert again.encoder is None


def test_it_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        small().method = "other"  # type: ignore[misc]


def test_an_encoder_of_ones_own_is_checked_and_never_looked_for_by_name(tmp_path: Path) -> None:
    data = token_data(40, 4)
    one = vecveil.fit_pairs(*data.arguments(), method="laplace", epsilon=9.0, encoder=Doubling())
    assert one.encoder_info.fingerprint == "doubling-1"
    assert one.encode(["a", "bb"]).shape == (2, 4)
    np.testing.assert_array_equal(one.encode(["a", "bb"], noise=False)[:, 0], [0.25, 0.5])
    with raises("E-INPUT-TYPE", "texts"):
        one.encode("one text")  # not a text for each of its characters
    one.save(tmp_path / "p")
    with raises("E-INPUT", "encoder"):
        vecveil.load(tmp_path / "p").encode(["a"])
    plain = vecveil.fit_pairs(*data.arguments(), method="laplace", epsilon=9.0)
    with raises("E-INPUT", "encoder"):
        plain.encode(["a"])


def test_another_encoder_is_refused() -> None:
    one = small(encoder_info=EncoderInfo("a", "print", None))
    other = Doubling()
    with raises("E-INCOMPATIBLE-ENCODER", "encoder"):
        one.check_encoder(other)
    other.fingerprint = "print"
    one.check_encoder(other)
    one.check_encoder(object())  # nothing is known of it
    wider = Doubling(5)
    wider.fingerprint = "wider"
    wide = vecveil.fit_pairs(*token_data(40, 4).arguments(), method="laplace", epsilon=9.0, encoder=wider)
    with raises("E-INCOMPATIBLE", "X"):
        wide.encode(["a"])


def test_the_release_oracle_protects() -> None:
    one, X = small(), np.ones((3, 4))
    release = one.release()
    np.testing.assert_array_equal(release(X, np.random.default_rng(1)), one.protect(X, np.random.default_rng(1)))


def test_the_guarantee_says_what_it_was_fitted_on() -> None:
    assert "fitted on 7 pairs" in str(small(report={"pairs": 7}).guarantee)


def test_a_path_of_the_wrong_type_has_a_code() -> None:
    with raises("E-INPUT-TYPE", "path"):
        vecveil.load(small())  # type: ignore[arg-type]
