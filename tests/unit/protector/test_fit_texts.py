"""Fitting on texts: what is refused before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import vecveil
from harness.errors import raises

LABELLED = [
    vecveil.Concept.from_labels("topic", ["sad", None] * 20),
    vecveil.Concept("topic", labels_column="topic"),
]


NEEDS_PAIRS: list[dict[str, Any]] = [
    {"method": "textcrafter", "radius": 0.5},
    {"target_advantage": 0.1},
]


@pytest.mark.parametrize("concept", LABELLED, ids=["labels", "column"])
@pytest.mark.parametrize("asked", NEEDS_PAIRS, ids=["method", "scale"])
def test_what_needs_pairs_is_refused_for_labels_before_the_encoder_is_loaded(
    concept: vecveil.Concept, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: Any, **__: Any) -> None:
        pytest.fail("the encoder was loaded")

    monkeypatch.setattr("vecveil.protector.fitting.load_encoder", load)
    with raises("E-INPUT", next(iter(asked))):
        vecveil.fit(["a text", "another"] * 20, concept, **asked)


def test_the_demo_refuses_it_as_well(tmp_path: Path) -> None:
    from vecveil.demo.job import run_demo

    (tmp_path / "c.yaml").write_text("name: topic\nlabels_column: topic\n")
    (tmp_path / "t.csv").write_text("text,topic\n" + "a text,sad\n" * 30)
    with raises("E-CONCEPT", "concept"):
        run_demo(tmp_path / "o", input=tmp_path / "t.csv", concept_file=tmp_path / "c.yaml")
    assert not (tmp_path / "o").exists()
