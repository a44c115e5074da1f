"""Fitting on texts: what is refused before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import vecveil
from vecveil.errors import ConceptError

LABELLED = [
    vecveil.Concept.from_labels("topic", ["sad", None] * 20),
    vecveil.Concept("topic", labels_column="topic"),
]


@pytest.mark.parametrize("concept", LABELLED, ids=["labels", "column"])
def test_a_concept_of_labels_is_refused_before_the_encoder_is_loaded(
    concept: vecveil.Concept, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: Any, **__: Any) -> None:
        pytest.fail("the encoder was loaded")

    monkeypatch.setattr("vecveil.encoders.load_encoder", load)
    with pytest.raises(ConceptError, match="This version fits concepts with spans") as caught:
        vecveil.fit(["a text", "another"] * 20, concept, epsilon=1.0)
    assert str(caught.value).startswith("fit: `concept` must be one with spans")


def test_the_demo_refuses_it_as_well(tmp_path: Path) -> None:
    from vecveil.demo.job import run_demo

    (tmp_path / "c.yaml").write_text("name: topic\nlabels_column: topic\n")
    (tmp_path / "t.csv").write_text("text,topic\n" + "a text,sad\n" * 30)
    with pytest.raises(ConceptError, match="This version fits concepts with spans"):
        run_demo(tmp_path / "o", input=tmp_path / "t.csv", concept_file=tmp_path / "c.yaml")
    assert not (tmp_path / "o").exists()
