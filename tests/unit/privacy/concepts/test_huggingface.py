"""A small token-classification model, built, trained for a moment, saved and loaded again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import raises
from vecveil.privacy.concepts import Concept, HuggingFaceDetector, Span
from vecveil.privacy.concepts.concept import concept_from_record, concept_record

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

WORDS = ["he", "took", "aspirin", "code", "##ine", "today", "and", "in", "paris", "slept", ".", "z"]
LABELS = ["O", "B-DRUG", "I-DRUG", "B-CITY"]
TAGS = {"aspirin": 1, "code": 1, "##ine": 2, "paris": 3}
WINDOW = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary = {t: i for i, t in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
    raw = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    raw.normalizer = normalizers.BertNormalizer(lowercase=True)
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=WINDOW,
        num_labels=len(LABELS),
        id2label=dict(enumerate(LABELS)),
        label2id={v: i for i, v in enumerate(LABELS)},
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = transformers.BertForTokenClassification(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(0)
    target = torch.tensor([TAGS.get(t, 0) for t in vocabulary])
    for _ in range(200):
        ids = torch.randint(0, len(vocabulary), (32, WINDOW), generator=generator)
        loss = model(input_ids=ids, labels=target[ids]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    path = tmp_path_factory.mktemp("hf") / "model"
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def parts(detector: Any, text: str) -> list[tuple[str, str]]:
    return [(text[s.start : s.end], s.label) for s in detector.detect([text])[0]]


def test_a_file_names_the_model(folder: Path) -> None:
    concept = Concept.from_entities("drug", ["DRUG"], engine="huggingface", model=folder)
    record = json.loads(json.dumps(concept_record(concept, owner="test")))
    again = concept_from_record(record)
    assert again.detect(["he took aspirin"]) == concept.detect(["he took aspirin"])
    assert concept.detect(["he\n took as\u200dpirin\ufe0f."])[0] == [Span(9, 18, "DRUG", "aspirin")]
    assert concept_record(again, owner="test") == record
    record["detectors"][0]["batch_size"] = 10**9
    with pytest.raises(ValueError, match="entities"):
        concept_from_record(record)


def test_tags_become_character_spans(folder: Path) -> None:
    detector = HuggingFaceDetector(["DRUG", "CITY"], model=folder)
    assert parts(detector, "he took  Aspirin and codeine in Paris.") == [
        ("Aspirin", "DRUG"),
        ("codeine", "DRUG"),
        ("Paris", "CITY"),
    ]
    assert detector.detect(["", "  ", "he slept"]) == [[], [], []]
    assert [(s.start, s.end) for s in detector.detect(["\ud800 aspirin"])[0]] == [(2, 9)]


def test_only_asked_types_are_found_and_objects_are_taken(folder: Path) -> None:
    pipeline = transformers.pipeline("token-classification", model=str(folder))
    concept = Concept.from_entities("city", ["CITY"], engine="huggingface", model=pipeline)
    text = "he took aspirin in paris"
    assert [(text[s.start : s.end], s.term) for s in concept.detect([text])[0]] == [("paris", "paris")]
    json.dumps(concept.describe())


@pytest.mark.parametrize(
    ("labels", "types"),
    [
        (["O", "DRUG-NAME", "DRUG-NAME", "CITY-NAME"], ["DRUG-NAME", "CITY-NAME"]),
        (["O", "B-DRUG-NAME", "I-DRUG-NAME", "S-CITY-NAME"], ["DRUG-NAME", "CITY-NAME"]),
        (["O", "B-DRUG", "E-DRUG", "S-E-MAIL"], ["DRUG", "E-MAIL"]),
        (["O", "E-MAIL", "E-MAIL", "S-CORP"], ["E-MAIL", "S-CORP"]),
    ],
)
def test_types_with_a_hyphen_are_found(folder: Path, labels: list[str], types: list[str]) -> None:
    pipeline = transformers.pipeline("token-classification", model=str(folder))
    pipeline.model.config.id2label = dict(enumerate(labels))
    for kind, word in zip(types, ("codeine", "paris"), strict=True):
        detector = HuggingFaceDetector([kind], model=pipeline)
        found = {word for word, label in parts(detector, "he took codeine and slept in paris") if label == kind}
        assert found == {word}


def test_a_tag_inside_a_word_takes_the_whole_word(folder: Path) -> None:
    detector = HuggingFaceDetector(["DRUG"], model=folder)
    assert parts(detector, "took code") == [("code", "DRUG")]
    from vecveil.privacy.concepts.entities import _whole_words

    assert _whole_words("a decoded b", 4, 6) == (2, 9)
    assert _whole_words("a (code) b", 2, 8) == (2, 8)
    assert _whole_words("a  b", 1, 3) == (3, 3)


def test_long_texts_are_read_to_their_end(folder: Path) -> None:
    text = "he slept and " * 30 + "took aspirin " + "and slept " * 30 + "in paris"
    detector = HuggingFaceDetector(["DRUG", "CITY"], model=folder)
    assert parts(detector, text) == [("aspirin", "DRUG"), ("paris", "CITY")]
    batch = detector.detect([text, "aspirin", text])
    assert [len(spans) for spans in batch] == [2, 1, 2]


def test_a_minimum_score_of_one_keeps_nothing(folder: Path) -> None:
    assert HuggingFaceDetector(["DRUG"], model=folder, min_score=1).detect(["aspirin"]) == [[]]


def test_unknown_types_are_refused_with_the_known_ones(folder: Path) -> None:
    with raises("E-INPUT", "entities"):
        Concept.from_entities("x", ["B-DRUG"], engine="huggingface", model=folder)


@pytest.mark.parametrize("model", [None, 5])
def test_a_model_must_be_given(model: object) -> None:
    with raises("E-INPUT-TYPE", "model"):
        Concept.from_entities("x", ["A"], engine="huggingface", model=model)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with raises("E-INPUT", "model"):
        HuggingFaceDetector(["A"], model=tmp_path)
