"""Averaging in an audit: one row for each number of releases, fresh and keyed, from one fit for the keyed ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vecveil
from unit.auditing.test_audit import CONCEPT, OPTIONS, TopicEncoder, notes
from vecveil.attacks import FAMILIES, KernelAttack, LinearAttack
from vecveil.auditing.families import averaging
from vecveil.types import Embeddings

OTHERS = [family for family in FAMILIES if family not in ("token-inference", "averaging")]


def one_rung(tier: str = "quick", device: str = "auto") -> tuple[LinearAttack]:
    return (LinearAttack(),)


def test_rows_show_that_fresh_noise_averages_out_and_keyed_noise_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fits: list[int] = []
    fit = KernelAttack._fit
    monkeypatch.setattr(
        KernelAttack, "_fit", lambda self, *given: fits.append(1) or fit(self, *given)
    )
    monkeypatch.setattr("vecveil.auditing.families.token_inference.ladder_attacks", one_rung)
    monkeypatch.setattr(averaging, "ROWS", 512)
    noisy = vecveil.fit(
        notes(600, 1), CONCEPT, TopicEncoder(), method="laplace", noise_to_signal=2.0, **OPTIONS
    )
    record = vecveil.audit(noisy, notes(600, 2), CONCEPT, skip=OTHERS, **OPTIONS).record
    found: dict[str, dict[str, Any]] = {
        each["name"]: each for each in record["attacks"] if each["family"] == "averaging"
    }
    assert list(found) == [*averaging.FRESH, *averaging.KEYED]
    assert len(fits) == 4  # clean, and means of 1, 4 and 16 releases
    fresh, keyed = (
        [found[name]["value"] for name in names] for names in (averaging.FRESH, averaging.KEYED)
    )
    assert fresh[0] < fresh[1] < fresh[2]
    assert fresh[2] > fresh[0] + 0.1
    assert keyed == pytest.approx([keyed[0]] * 3, abs=0.01)
    assert keyed[0] == pytest.approx(fresh[0], abs=0.1)
    assert found["averaging-1"]["description"].startswith("On one release of each text: ")
    said = found["averaging-16-keyed"]
    assert said["description"].startswith("On the mean of 16 keyed releases of each text: Gaussian")
    assert said["cost"].startswith("16 keyed releases of each text; ")
    texts = record["texts"]
    assert texts["words"] == texts["vocabulary"] == 6
    assert texts["word_occurrences"] == texts["token_instances"] > 0
    leading = next(e["worst"] for e in record["families"] if e["family"] == "averaging")
    assert leading == "averaging-16"


def test_means_are_of_the_first_releases() -> None:
    calls: list[int] = []

    def counting(X: Embeddings, rng: np.random.Generator) -> Embeddings:
        calls.append(1)
        return np.full_like(X, len(calls))

    X = np.zeros((3, 2), dtype=np.float32)
    found = averaging._means(counting, X, np.random.default_rng(0))
    assert {k: float(Y[0, 0]) for k, Y in found.items()} == {1: 1.0, 4: 2.5, 16: 8.5}
    assert {Y.dtype for Y in found.values()} == {np.dtype(np.float32)}
