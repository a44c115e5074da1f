"""Fitting on texts: what is refused before anything is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import vecveil
from harness.errors import raises
from vecveil.privacy.protector.fitting import PairTexts
from vecveil.privacy.sensitivity.concept_subspace import cross_covariance


@pytest.mark.parametrize("fitted", [vecveil.fit, partial(vecveil.fit, method="redact"), vecveil.frontier])
def test_the_name_of_a_concept_is_no_concept(fitted: Any) -> None:
    with raises("E-INPUT-TYPE", "concept"):
        fitted(["a text", "another"], "drug")


def test_the_demo_refuses_it_as_well(tmp_path: Path) -> None:
    from vecveil.cli.demo.demonstration import OwnTexts, run_demo

    (tmp_path / "c.yaml").write_text("name: topic\nlabels_column: topic\n")
    (tmp_path / "t.csv").write_text("text,topic\n" + "a text,sad\n" * 30)
    with raises("E-CONCEPT", "concept"):
        run_demo(tmp_path / "o", own=OwnTexts(tmp_path / "t.csv", tmp_path / "c.yaml"))
    assert not (tmp_path / "o").exists()


class Words:
    """A vector of 0 and 1 for the words of a text, from a fixed list."""

    def __init__(self, words: list[str]) -> None:
        self.words = words

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        rows = [[float(word in text.split()) for word in self.words] for text in texts]
        return np.array(rows, dtype=np.float32)


def test_classes_of_the_texts_go_to_their_rows() -> None:
    """Texts with the concept come before the others in the fit: the classes follow them."""
    rng = np.random.default_rng(0)
    places, things = ["bern", "cork", "lima"], [f"thing{i}" for i in range(12)]
    texts = [" ".join([*rng.choice(things, 4), *rng.choice(places, i % 2)]) for i in range(200)]
    concept, encoder = vecveil.Concept.from_terms("place", places), Words(places + things)
    X = encoder.encode(texts)
    classes = ["yes" if "thing0" in text.split() or "bern" in text.split() else "no" for text in texts]
    protector = vecveil.fit(
        texts, concept, encoder, noise_to_signal=0.1, rank=2, kept=13, flattening=0.0, pairs=False, preserve=classes
    )
    assert protector.report["preserved"] == {"classes": 2, "texts": 200}
    clean, kept = (
        cross_covariance(rows, np.array(classes)[:, None] == ["yes", "no"])
        for rows in (X, protector.protect(X, noise=False))
    )
    # Up to the scale of the map, whose entries have 22 bits.
    np.testing.assert_allclose(kept / np.linalg.norm(kept), clean / np.linalg.norm(clean), atol=1e-4)
    with raises("E-INPUT-SHAPE", "preserve"):
        vecveil.fit(texts, concept, encoder, noise_to_signal=0.1, preserve=classes[1:])


@pytest.mark.parametrize(
    ("copies", "groups"),
    [(["Müller", "Mu\u0308ller", "Mül\u00adler", "x"], [0, 0, 0, 1]), (["a", "b", "a", "c"], None)],
)
def test_copies_in_another_composition_share_a_group(copies: list[str], groups: list[int] | None) -> None:
    labels = np.ones((4, 1), dtype=np.uint8)
    found = PairTexts(copies, copies, [], labels, ("x",), frozenset()).groups(np.eye(4, dtype=np.float32), None)
    assert (None if found is None else np.unique(found, return_inverse=True)[1].tolist()) == groups
