"""Averaging in an audit: one row for each number of releases, fresh and keyed, from one fit for the keyed ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import vecveil
from unit.auditing.test_audit import CONCEPT, N_DIM, OPTIONS, TopicEncoder, notes
from vecveil.auditing import families
from vecveil.auditing.attacks import FAMILIES, KernelAttack, LabelledVectors, LinearAttack
from vecveil.auditing.case import Options, Side
from vecveil.types import Embeddings, Release

OTHERS = [family for family in FAMILIES if family not in ("token-inference", "averaging")]


def one_rung(tier: str = "quick", device: str = "auto") -> tuple[LinearAttack]:
    return (LinearAttack(),)


def fresh_one(found: dict[str, dict[str, Any]]) -> float:
    return float(found["averaging-1"]["value"])


def test_rows_show_that_fresh_noise_averages_out_and_keyed_noise_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[int] = []
    fit = KernelAttack._fit
    monkeypatch.setattr(KernelAttack, "_fit", lambda self, *given: fits.append(1) or fit(self, *given))
    monkeypatch.setattr("vecveil.auditing.families.ladder_attacks", one_rung)
    monkeypatch.setattr(families, "AVERAGED_ROWS", 512)
    monkeypatch.setattr(families, "FIXED", np.inf)  # so that the located ones are run on Laplace noise
    noisy = vecveil.fit(notes(600, 1), CONCEPT, TopicEncoder(), method="laplace", noise_to_signal=2.0, **OPTIONS)
    record = vecveil.audit(noisy, notes(600, 2), CONCEPT, skip=OTHERS, **OPTIONS).record
    found: dict[str, dict[str, Any]] = {
        each["name"]: each for each in record["attacks"] if each["family"] == "averaging"
    }
    spheres = [families._sphere_name(k) for k in sorted({families.FEW_RELEASES, N_DIM + families.SPARE})]
    assert list(found) == [*families.FRESH, *families.KEYED, *spheres]
    for name in spheres:
        assert found[name]["n"] < found["averaging-16"]["n"]  # fewer texts are judged
        assert found[name]["value"] > fresh_one(found) + 0.1
    assert len(fits) == 4  # clean, and means of 1, 4 and 16 releases
    fresh, keyed = ([found[name]["value"] for name in names] for names in (families.FRESH, families.KEYED))
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
    assert leading in ("averaging-16", *spheres)


def test_spheres_are_left_out_where_they_say_nothing() -> None:
    X = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
    case: Any = SimpleNamespace(test=np.arange(40), options=Options(seed=0))
    train: Any = None

    def fresh(X: Embeddings, rng: np.random.Generator) -> Embeddings:
        noise = rng.standard_normal(X.shape)
        return (X + noise / np.linalg.norm(noise, axis=1, keepdims=True)).astype(X.dtype)

    def varying(X: Embeddings, rng: np.random.Generator) -> Embeddings:
        return X + rng.standard_normal(X.shape).astype(X.dtype)

    def codes(release: Release, judged: Embeddings = X) -> set[str | None]:
        side = Side("protected", X, judged, release)
        jobs, skipped = families._spheres(case, side, release, train)
        # An attack that is left out has the name under which it would run.
        names = [job.name for job in jobs] + [each.attack for each in skipped]
        assert names == ["averaging-16-spheres", "averaging-64-spheres"]
        return {each.code for each in skipped}

    assert codes(fresh) == set()
    assert codes(varying) == {"noise-length"}
    assert codes(fresh, X[:, :5]) == {"other-dimension"}
    assert codes(lambda X, rng: X) == {"equal-releases"}
    wide = np.zeros((40, 2000), dtype=np.float32)
    jobs, skipped = families._spheres(case, Side("protected", wide, wide, fresh), fresh, train)
    assert [job.name for job in jobs] == ["averaging-64-spheres"]
    assert [(each.attack, each.code) for each in skipped] == [("averaging-2008-spheres", "memory")]


def test_located_texts_stand_beside_the_same_texts_clean() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 8)).astype(np.float32)
    labels = np.eye(4, dtype=np.uint8)[rng.integers(4, size=300)]
    case: Any = SimpleNamespace(
        train=np.arange(150), test=np.arange(150, 300), labels=labels, groups=np.arange(300), options=Options(seed=0)
    )
    train = LabelledVectors(X[:150], labels[:150])

    def fresh(X: Embeddings, rng: np.random.Generator) -> Embeddings:
        Z = rng.standard_normal(X.shape)
        return (X + 2 * Z / np.linalg.norm(Z, axis=1, keepdims=True)).astype(X.dtype)

    clean = families._clean_jobs(case, Side("clean", X, X, is_clean=True), train)
    located, _ = families._spheres(case, Side("protected", X, X, fresh), fresh, train)
    assert [job.name for job in clean] == [job.name for job in located]
    for one, other in zip(clean, located, strict=True):
        found, beside = other.run(None), one.run(None)
        assert found.name == other.name
        assert found.terms is not None
        assert beside.terms is not None
        assert found.main.n == beside.main.n == families.LOCATED
        assert np.array_equal(found.terms.counts, beside.terms.counts)
        assert found.details["error"] < 1e-3
