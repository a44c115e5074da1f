"""The preview: its attacker reads what is there, nothing where nothing is, and less behind more noise."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import vecveil
from harness.errors import raises
from vecveil.auditing.preview import MOST_TEXTS, Preview, VectorMemory, WordList, practice_texts
from vecveil.errors import InvalidInputError

DIMENSION = 48
WORDS = ("asthma", "gout", "malaria", "lupus", "stroke", "eczema", "angina", "obesity")
FILLER = (
    "table",
    "window",
    "garden",
    "letter",
    "river",
    "paper",
    "market",
    "season",
    "corner",
    "bridge",
    "winter",
    "travel",
    "kitchen",
    "ticket",
    "office",
    "summer",
    "school",
    "number",
)
FALSE_FAILURE = 1e-6

Encode = Callable[[Sequence[str]], Any]


def background(count: int = 240) -> list[str]:
    """Return sentences of which every other one holds one of the words."""
    rng = np.random.default_rng(0)
    texts = []
    for i in range(count):
        own = [FILLER[j] for j in rng.choice(len(FILLER), 5, replace=False)]
        if i % 2:
            own[int(rng.integers(5))] = WORDS[i // 2 % len(WORDS)]
        texts.append(" ".join(own) + f" {i}.")
    return texts


def of_words(texts: Sequence[str]) -> Any:
    """Encode a text as the mean of vectors of its words."""
    rows = []
    for text in texts:
        found = re.findall(r"\w+", text.lower())
        parts = [np.random.default_rng(zlib.crc32(w.encode())).normal(size=DIMENSION) for w in found]
        total = np.sum(parts, axis=0) if parts else np.ones(DIMENSION)
        rows.append(total / np.linalg.norm(total))
    return np.array(rows, dtype=np.float32)


def of_other_words(texts: Sequence[str]) -> Any:
    """Encode each text with every listed word exchanged for one drawn from the list, for each text anew."""
    changed = []
    for text in texts:
        rng = np.random.default_rng(zlib.crc32(text.encode()))
        pattern = "|".join(WORDS)
        changed.append(re.sub(pattern, lambda _, rng=rng: WORDS[int(rng.integers(len(WORDS)))], text))
    return of_words(changed)


@pytest.fixture(scope="module")
def protector() -> vecveil.Protector:
    texts = background()
    words = WordList(WORDS)
    holding = [(t, s) for t, s in zip(texts, words.find(texts), strict=True) if s]
    positive = of_words([t for t, _ in holding])
    negative = of_words([t[: s[0].start] + t[s[0].end :] for t, s in holding])
    return vecveil.fit_pairs(positive, negative, method="laplace", noise_to_signal=0.5, seed=0)


def at_most_by_luck(n: int) -> float:
    """Return the share that an attacker who knows nothing exceeds with a probability of at most 1e-6.

    Null: scores are independent of the words; each text holds one word, and no word more than two in eight of
    the judged texts, so that a guess is right with a probability of at most 2/8.
    """
    return float(binom.ppf(1 - FALSE_FAILURE, n, 2 / len(WORDS))) / n


def test_clean_vectors_are_read_and_more_noise_hides_more(protector: vecveil.Protector) -> None:
    asked = ["table window gout garden 900.", "paper market season 901."]
    preview = Preview(protector, background(), WORDS, encode=of_words, factors=(0.25, 1, 16))
    result = preview.run(asked)
    luck = at_most_by_luck(result.clean.leakage.n)
    assert luck < 0.6
    assert result.clean.leakage.value > 0.8
    assert result.words[result.clean.guesses[0][0][0]] == "gout"
    assert result.held == ((WORDS.index("gout"),), ())
    assert [level.factor for level in result.levels] == [0.25, 1, 16]
    assert result.chosen == 1
    for weaker, stronger in zip(result.levels, result.levels[1:], strict=False):
        assert stronger.leakage.low <= weaker.leakage.high
        assert stronger.utility.value < weaker.utility.value
    assert result.levels[0].leakage.value > luck
    assert result.levels[-1].leakage.value <= luck
    assert all(1 / len(WORDS) <= level.leakage.chance < 0.3 for level in result.levels)


def test_control_where_the_words_are_permuted_the_attacker_is_at_chance(protector: vecveil.Protector) -> None:
    result = Preview(protector, background(), WORDS, encode=of_other_words, factors=(1,)).run(["a 1."])
    for level in (result.clean, *result.levels):
        assert level.leakage.value <= at_most_by_luck(level.leakage.n)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_result(protector: vecveil.Protector) -> None:
    def record(seed: int) -> dict[str, Any]:
        one = Preview(protector, background(120), WORDS, encode=of_words, factors=(2,), memory=memory, seed=seed)
        return one.run(["river paper lupus 7."]).to_record()

    memory = VectorMemory()
    first = record(3)
    assert len(memory) > 120
    assert record(3) == first
    assert record(4) != first


def test_a_record_holds_words_and_no_text(protector: vecveil.Protector) -> None:
    texts = ["quicksilver lupus 7."]
    memory = VectorMemory()
    preview = Preview(protector, background(80), WORDS, encode=of_words, factors=(1,), memory=memory)
    written = json.dumps(preview.run(texts).to_record())
    assert "lupus" in written
    assert "quicksilver" not in written
    assert not any(filler in written for filler in FILLER)
    encoded = len(memory)
    memory.encode(texts, of_words, encoder="")
    assert len(memory) == encoded + 1, "texts that are asked about are not kept"


@pytest.mark.parametrize(
    ("method", "given", "levels"),
    [
        ("subspace", {"noise_to_signal": 0.3, "rank": 4, "kept": 20, "flattening": 0.0, "output": "reduced"}, 2),
        ("covariance", {"noise_to_signal": 0.3}, 2),
        ("purkayastha", {"noise_to_signal": 0.3}, 2),
        ("gaussian", {"sigma": 0.05}, 2),
        ("ldp-gaussian", {"epsilon": 50.0, "delta": 1e-5}, 2),
        ("shuffle", {}, 1),
    ],
)
def test_every_kind_of_release_is_guessed(method: str, given: dict[str, Any], levels: int) -> None:
    words = WordList(WORDS)
    made = practice_texts(background(), words)
    positive, negative = of_words(made.texts), of_words(made.without)
    protector = vecveil.fit_pairs(positive, negative, method=method, seed=0, **given)
    preview = Preview(protector, background(80), WORDS, encode=of_words, factors=(2,))
    result = preview.run(["river lupus 1."])
    assert len(result.levels) == levels
    for level in result.levels:
        assert 0 <= level.leakage.value <= 1
        assert len(level.guesses[0]) == 5
        assert all(0 <= score <= 1 for _, score in level.guesses[0])


def test_a_method_that_rewrites_texts_has_one_level() -> None:
    texts = background()
    concept = vecveil.Concept.from_terms("illness", WORDS)
    redact = vecveil.fit(texts, concept, of_words, method="redact", min_texts=20, seed=0)
    result = Preview(redact, texts, WORDS, encode=of_words).run(["river stroke paper 5."])
    (level,) = result.levels
    assert result.rewrites
    assert result.clean.leakage.value > 0.8
    assert level.leakage.value <= at_most_by_luck(level.leakage.n)


def test_a_report_that_raises_ends_it(protector: vecveil.Protector) -> None:
    class StopError(Exception):
        pass

    said: list[str] = []

    def report(share: float, what: str) -> None:
        assert 0 <= share <= 1
        said.append(what)
        if "clean" in what:
            raise StopError

    preview = Preview(protector, background(80), WORDS, encode=of_words)
    with pytest.raises(StopError):
        preview.run(["river 1."], report=report)
    assert said[0] == "encoding background texts"


def test_practice_texts_hold_every_word_about_equally_often() -> None:
    words = WordList(WORDS)
    made = practice_texts([text for text in background() if not words.find([text])[0]], words)
    counts = made.labels.sum(axis=0)
    assert made.found == 0
    assert counts.min() >= 1
    assert counts.max() - counts.min() <= 1
    assert len(made.ordinary) <= MOST_TEXTS
    assert not any(words.find(made.without)), "the text without the word holds none"


def test_a_copy_holds_another_word_and_stays_in_its_group() -> None:
    made = practice_texts(background(), WordList(WORDS))
    by_group: dict[int, list[Any]] = {}
    for group, labels in zip(made.groups, made.labels, strict=True):
        by_group.setdefault(int(group), []).append(labels)
    pairs = [rows for rows in by_group.values() if len(rows) == 2]
    assert len(pairs) == made.found == 120
    assert not any(np.array_equal(*rows) for rows in pairs)


@pytest.mark.parametrize(
    ("texts", "words", "param"),
    [
        (59, WORDS, "background"),
        (240, ("gout",), "words"),
        (240, ("gout", "GOUT"), "words"),
        (240, tuple(f"w{i}" for i in range(201)), "words"),
        (240, ("gout", "!!"), "terms"),
    ],
)
def test_too_few_texts_or_words_are_refused(
    protector: vecveil.Protector, texts: int, words: tuple[str, ...], param: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Preview(protector, background(texts), words, encode=of_words)
    assert caught.value.param == param


def test_vectors_of_another_dimension_are_refused(protector: vecveil.Protector) -> None:
    preview = Preview(protector, background(80), WORDS, encode=lambda t: of_words(t)[:, :-1])
    with raises("E-INCOMPATIBLE", "encode"):
        preview.run(["river 1."])
