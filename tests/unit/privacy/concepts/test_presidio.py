"""Presidio's pattern recognisers work without a model and without a network."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from harness.errors import raises
from vecveil.errors import InvalidInputError
from vecveil.privacy.concepts import Concept, PresidioDetector
from vecveil.privacy.concepts.concept import concept_from_record, concept_record
from vecveil.privacy.protector.methods.text_level import StageOptions

# Not imported here: every test process collects this file.
pytestmark = pytest.mark.skipif(not find_spec("presidio_analyzer"), reason="Presidio is missing")

TEXT = "Mail jane.doe@example.com or call +1 212 555 0199; card 4111 1111 1111 1111."


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Record every attempt to reach the network, and fail the test that made one."""
    attempts: list[Any] = []

    def refuse(*args: Any, **kwargs: Any) -> Any:
        attempts.append(args)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    yield attempts
    assert attempts == []


@pytest.mark.slow
def test_pattern_recognisers_find_their_types() -> None:
    concept = Concept.from_entities("pii", ["EMAIL_ADDRESS", "PHONE_NUMBER", "CREDIT_CARD"])
    spans = concept.detect([TEXT, "", "   ", "nothing", "\ud800 jane@example.org"])
    assert [(TEXT[s.start : s.end], s.label) for s in spans[0]] == [
        ("jane.doe@example.com", "EMAIL_ADDRESS"),
        ("+1 212 555 0199", "PHONE_NUMBER"),
        ("4111 1111 1111 1111", "CREDIT_CARD"),
    ]
    assert spans[1:4] == [[], [], []]
    assert [(s.start, s.end) for s in spans[4]] == [(2, 18)]
    json.dumps(concept.describe())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("card 4111\u00a01111\u202f1111\u20091111.", "4111\u00a01111\u202f1111\u20091111"),
        ("card 4111  1111\n1111 1111.", "4111  1111\n1111 1111"),
        ("card 4111\u20111111\u20111111\u20111111", "4111\u20111111\u20111111\u20111111"),
        ("IBAN GB29\u00a0NWBK\u00a06016\u202f1331926819", "GB29\u00a0NWBK\u00a06016\u202f1331926819"),
        ("IBAN DE89 3704\r\n0044  0532 0130 00", "DE89 3704\r\n0044  0532 0130 00"),
        ("mail jane@exam\u200bple.org\u200b now", "jane@exam\u200bple.org\u200b"),
    ],
)
def test_typographic_spaces_and_line_breaks_hide_nothing(text: str, found: str) -> None:
    concept = Concept.from_entities("pii", ["EMAIL_ADDRESS", "IBAN_CODE", "CREDIT_CARD"])
    assert [text[s.start : s.end] for s in concept.detect([text], show_progress=False)[0]] == [found]


def test_presidios_own_way_would_have_reached_for_the_network(offline: list[Any]) -> None:
    """Negative control of the fixture: the suffix list that Presidio asks for is fetched."""
    import tldextract

    assert tldextract.TLDExtract(cache_dir=None)("example.com").fqdn == "example.com"
    assert offline
    offline.clear()


def test_an_address_whose_domain_does_not_exist_is_none() -> None:
    assert PresidioDetector(["EMAIL_ADDRESS"]).detect(["jane@example.notadomain"]) == [[]]


def test_only_asked_types_are_found() -> None:
    assert [s.label for s in PresidioDetector(["CREDIT_CARD"]).detect([TEXT])[0]] == ["CREDIT_CARD"]


def test_a_minimum_score_needs_support_from_the_words_around() -> None:
    texts = ["the number is 123456789012", "his bank account number is 123456789012"]
    everything = PresidioDetector(["US_BANK_NUMBER"]).detect(texts)
    supported = PresidioDetector(["US_BANK_NUMBER"], min_score=0.3).detect(texts)
    assert [len(spans) for spans in everything] == [1, 1]
    assert [len(spans) for spans in supported] == [0, 1]


def test_types_that_need_a_model_say_so() -> None:
    with pytest.raises(InvalidInputError) as error:
        Concept.from_entities("who", ["EMAIL_ADDRESS", "PERSON", "LOCATION"])
    text = str(error.value)
    assert "LOCATION, PERSON" in text
    assert "spacy download" in text
    assert "vecveil[huggingface]" in text


def test_unknown_types_are_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInputError) as error:
        Concept.from_entities("x", ["EMAIL"])
    assert "EMAIL_ADDRESS" in str(error.value)
    assert "types: EMAIL." in str(error.value)
    assert "PERSON" not in str(error.value)


def test_a_model_that_is_not_installed_is_not_fetched() -> None:
    with raises("E-INPUT", "model"):
        Concept.from_entities("x", ["PERSON"], model="en_core_web_none")


def ruler(folder: Path) -> Path:
    import spacy

    pipeline = spacy.blank("en")
    rules = pipeline.add_pipe("entity_ruler")
    rules.add_patterns([{"label": "PERSON", "pattern": "Jane Doe"}])  # type: ignore[attr-defined]
    pipeline.to_disk(folder / "model")
    return folder / "model"


@pytest.mark.slow
def test_a_spacy_pipeline_adds_its_types(tmp_path: Path) -> None:
    folder = ruler(tmp_path)
    for model in (str(folder), folder):
        detector = PresidioDetector(["PERSON", "EMAIL_ADDRESS"], model=model)
        found = detector.detect(["Jane Doe has jane@example.com"])[0]
        assert sorted(s.label for s in found) == ["EMAIL_ADDRESS", "PERSON"]


def test_a_folder_without_a_pipeline_is_refused(tmp_path: Path) -> None:
    with raises("E-INPUT", "model"):
        PresidioDetector(["PERSON"], model=str(tmp_path))


def test_a_users_engine_is_taken_as_it_is() -> None:
    from presidio_analyzer import Pattern, PatternRecognizer

    engine = PresidioDetector(["IP_ADDRESS"])._engine
    engine.registry.add_recognizer(
        PatternRecognizer(supported_entity="WARD", patterns=[Pattern("w", r"\bward \d+\b", 0.9)])
    )
    concept = Concept.from_entities("ward", ["WARD"], model=engine)
    assert [s.label for s in concept.detect(["on ward 12 today"])[0]] == ["WARD"]
    assert concept.describe()["detectors"][0]["model"] == "AnalyzerEngine"
    with raises("E-INPUT-NAME", "language"):
        PresidioDetector(["WARD"], model=engine, language="de")


def test_types_as_the_detector_of_a_text_stage() -> None:
    stage = StageOptions.of("delete", Concept.from_terms("mail", ["x"]), detector=["EMAIL_ADDRESS"])
    assert stage is not None
    assert stage.build([], [], 0).rewrite(["write to ann@example.com now"]) == ["write to now"]


NATIONAL = "Ring 22 24 90 90 i dag."


def test_national_phone_numbers_are_those_of_the_regions(tmp_path: Path) -> None:
    file = tmp_path / "concept.yaml"
    file.write_text('name: phone\nentities: {types: [PHONE_NUMBER], regions: ["NO"]}\n')
    concept = Concept.from_file(file)
    assert [NATIONAL[s.start : s.end] for s in concept.detect([NATIONAL])[0]] == ["22 24 90 90"]
    again = concept_from_record(json.loads(json.dumps(concept_record(concept, owner="test"))))
    assert again.detect([NATIONAL]) == concept.detect([NATIONAL])
    usual = Concept.from_entities("phone", ["PHONE_NUMBER"])
    assert usual.detect([NATIONAL]) == [[]]
    assert "regions" not in json.dumps(usual.describe())
    file.write_text("name: phone\nentities: {types: [PHONE_NUMBER], regions: [NO]}\n")  # YAML reads false
    with raises("E-INPUT", "regions"):
        Concept.from_file(file)


def test_regions_of_a_model_are_saved(tmp_path: Path) -> None:
    concept = Concept.from_entities("who", ["PERSON", "PHONE_NUMBER"], model=ruler(tmp_path), regions=["NO"])
    again = concept_from_record(json.loads(json.dumps(concept_record(concept, owner="test"))))
    text = f"Jane Doe: {NATIONAL}"
    assert [s.label for s in again.detect([text])[0]] == [s.label for s in concept.detect([text])[0]]
    assert [s.label for s in concept.detect([text])[0]] == ["PERSON", "PHONE_NUMBER"]


@pytest.mark.slow
def test_a_text_over_a_million_characters_is_read_or_its_row_named(tmp_path: Path) -> None:
    text = "nothing here. " * 72_000 + "mail jane@example.com"
    found = PresidioDetector(["EMAIL_ADDRESS"]).detect(["short", text])
    assert [[text[s.start : s.end] for s in spans] for spans in found] == [[], ["jane@example.com"]]
    with raises("E-INPUT", "texts") as caught:
        PresidioDetector(["EMAIL_ADDRESS"], model=ruler(tmp_path)).detect(["short", text])
    assert "row 1" in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [{"model": 5}, {"language": "xx-none"}, {"min_score": 2}, {"regions": ["CH"]}, {"regions": "CH"}, {"regions": []}],
)
def test_refused_options(options: dict[str, Any]) -> None:
    with raises("E-INPUT", next(iter(options))):
        PresidioDetector(["EMAIL_ADDRESS"], **options)
