"""spaCy pipelines by object and folder: one of rules, one trained here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.errors import raises
from vecveil.privacy.concepts import Concept, SpacyDetector
from vecveil.privacy.concepts.concept import concept_from_record, concept_record


@pytest.fixture(scope="module", autouse=True)
def _imports() -> None:
    """Import spaCy only in the process that runs this file; every process collects it."""
    global spacy
    spacy = pytest.importorskip("spacy")


@pytest.fixture(scope="module")
def ruler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pipeline = spacy.blank("en")
    pipeline.add_pipe("entity_ruler").add_patterns(
        [{"label": "DRUG", "pattern": [{"LOWER": "vitamin"}, {"LOWER": "d"}]}, {"label": "CITY", "pattern": "Paris"}]
    )
    folder = tmp_path_factory.mktemp("spacy") / "ruler"
    pipeline.to_disk(folder)
    return folder


def test_a_saved_pipeline_is_loaded_and_offsets_are_characters(ruler: Path) -> None:
    texts = ["Zoë ate 😀 Vitamin D in Paris", "", "\ud800 vitamin d", "a vita\u200bmin\u00a0\nd now"]
    for model in (ruler, str(ruler), spacy.load(ruler)):
        concept = Concept.from_entities("drug", ["DRUG"], engine="spacy", model=model)
        spans = concept.detect(texts)
        assert [(s.start, s.end, s.label, s.term) for s in spans[0]] == [(10, 19, "DRUG", "vitamin d")]
        assert spans[1] == []
        assert [(s.start, s.end) for row in spans[2:] for s in row] == [(2, 11), (2, 13)]
        json.dumps(concept.describe())


def test_a_file_names_the_pipeline_and_loads_it_with_the_first_text(ruler: Path) -> None:
    concept = Concept.from_entities("drug", ["DRUG"], engine="spacy", model=ruler)
    record = json.loads(json.dumps(concept_record(concept, owner="test")))
    again = concept_from_record(record)
    assert again.detect(["vitamin d in Paris"]) == concept.detect(["vitamin d in Paris"])
    assert concept_record(again, owner="test") == record
    loaded = Concept.from_entities("drug", ["DRUG"], engine="spacy", model=spacy.load(ruler))
    with raises("E-CONCEPT", "concept"):
        concept_record(loaded, owner="test")
    # A package that is no pipeline is not imported.
    record["detectors"][0]["model"] = "setuptools"
    with raises("E-INPUT", "detector"):
        concept_from_record(record).detect(["vitamin d"])


@pytest.mark.slow
def test_a_trained_recogniser_is_found_after_reloading(tmp_path: Path) -> None:
    from spacy.training import Example

    pipeline = spacy.blank("en")
    pipeline.add_pipe("ner").add_label("DRUG")
    drugs = ["aspirin", "ibuprofen", "codeine"]
    examples = [
        Example.from_dict(pipeline.make_doc(f"He took {d} today"), {"entities": [(8, 8 + len(d), "DRUG")]})
        for d in drugs
    ]
    optimizer = pipeline.initialize(lambda: examples)
    for _ in range(40):
        pipeline.update(examples, sgd=optimizer)
    pipeline.to_disk(tmp_path / "ner")
    detector = SpacyDetector(["DRUG"], model=tmp_path / "ner")
    assert [s.start for s in detector.detect(["He took codeine today"])[0]] == [8]


def test_unknown_types_are_refused_with_the_known_ones(ruler: Path) -> None:
    with raises("E-INPUT", "entities"):
        Concept.from_entities("x", ["DRUG", "PERSON"], engine="spacy", model=ruler)


def test_a_pipeline_without_a_recogniser_is_refused() -> None:
    pipeline = spacy.blank("en")
    with raises("E-INPUT", "model"):
        SpacyDetector(["A"], model=pipeline)
    pipeline.add_pipe("sentencizer")
    with raises("E-INPUT", "model"):
        SpacyDetector(["A"], model=pipeline)


@pytest.mark.parametrize("model", [None, 5])
def test_a_model_must_be_given(model: object) -> None:
    with raises("E-INPUT-TYPE", "model"):
        Concept.from_entities("x", ["A"], engine="spacy", model=model)


def test_a_model_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for model in ("en_core_web_none", tmp_path):
        with raises("E-INPUT", "model"):
            SpacyDetector(["A"], model=model)


def test_a_text_that_is_too_long_is_refused_by_row(ruler: Path) -> None:
    pipeline = spacy.load(ruler)
    pipeline.max_length = 10
    with raises("E-INPUT", "texts"):
        SpacyDetector(["DRUG"], model=pipeline).detect(["short", "secret words"])
