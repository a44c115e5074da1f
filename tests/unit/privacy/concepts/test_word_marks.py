"""Marks and weights of the words of a fit's texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vecveil
from vecveil.auditing.metrics import SimilarityTask
from vecveil.privacy.concepts.matching import WordSplitter
from vecveil.privacy.concepts.pairs import FEWEST_LISTED, RELATED, mark_words

N = 24
DRUGS = [f"drug{i}" for i in range(60)]
THINGS = [f"thing{i}" for i in range(200)]


class MeanOfWords:
    """Encodes a text as the mean of its words' random vectors; drugs share a direction."""

    dimension = N
    name = "mean-of-words"

    def encode(self, texts: Any, **_: Any) -> np.ndarray:
        rows = [np.mean([self._vector(word) for word in text.split()], axis=0) for text in texts]
        X = np.array(rows)
        return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True), dtype=np.float32)

    def _vector(self, word: str) -> np.ndarray:
        kind, number = word[:4], int(word[4:]) if word.startswith("drug") else int(word[5:])
        own = np.random.default_rng([kind == "drug", number]).standard_normal(N)
        if kind == "drug":
            own[:4] *= 4  # drugs differ along these
            own[4] += 6  # and share this
        else:
            own[:5] *= 0.5
        return own


def texts(count: int = 1500, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        words = list(rng.choice(THINGS, 5))
        if rng.random() < 0.5:
            words[2] = rng.choice(DRUGS)
        rows.append(" ".join(words))
    return rows


def test_listed_words_weigh_one_and_others_as_much_as_they_resemble_them() -> None:
    listed = DRUGS[:40]
    found = mark_words(texts(), listed, MeanOfWords().encode, labels=["drug3", "unknown", "drug0"])
    assert (found.weights[found.listed] == 1).all()
    assert found.listed.sum() == 40
    others = found.weights[~found.listed]
    assert others.sum() == pytest.approx(RELATED * 40, rel=0.1)
    names = np.array(sorted(listed) + [None] * len(others), dtype=object)
    assert names[found.labels[0]] == "drug3"
    assert list(found.labels >= 0) == [True, False, True]
    # The 20 drugs outside the list weigh more than the 200 other words together.
    assert np.sort(others)[-20:].sum() > np.sort(others)[:-20].sum()
    # A word left out of the list is one of the others.
    fewer = found.without(np.array([0, 1]))
    assert fewer.listed.sum() == 39
    assert 0 < fewer.weights[found.labels[0]] <= 1
    assert repr(found) == "WordMarks(40 listed of 260 words)"


def test_marks_are_the_words_of_each_text() -> None:
    found = mark_words(["Drug0 drug0 thing1", "thing1", "DRUG0, drug0!", "drug0"], {"drug0"}, MeanOfWords().encode)
    # Too few listed words to judge others by.
    assert found.marks.toarray().tolist() == [[1], [0], [1], [1]]
    assert found.vectors is None
    part = found.of(np.array([1, 2]))
    assert part.marks.toarray().tolist() == [[0], [1]]
    assert mark_words(["thing1"], {"drug0"}, MeanOfWords().encode).marks.shape == (1, 0)
    assert len(DRUGS[: FEWEST_LISTED - 1]) < FEWEST_LISTED


@pytest.mark.parametrize(
    ("listed", "rows", "columns"),
    [
        ("布洛芬", ["我吃了布洛芬缓释胶囊300mg", "布洛芬", "吃了"], [[1], [1], [0]]),
        ("アスピリン", ["毎日アスピリンを飲む。", "アスピリン錠", "飲む"], [[1], [1], [0]]),
        ("ยาแก้ปวด", ["ฉันกินยาแก้ปวดทุกวัน", "ยาแก้ปวด", "ฉันกินทุกวัน"], [[1], [1], [0]]),
        ("ថ្នាំ", ["លេបថ្នាំរាល់ថ្ងៃ", "ថ្នាំ", "រាល់"], [[1], [1], [0]]),
        ("维生素d", ["补充维生素D和钙", "维生素Ｄ", "补充"], [[1], [1], [0]]),
        ("sjögren", ["Sjogren's", "SJO\u0308GREN", "gren"], [[1], [1], [0]]),
    ],
)
def test_words_are_marked_in_every_script(listed: str, rows: list[str], columns: list[list[int]]) -> None:
    marks = mark_words(rows * 2, {listed}, MeanOfWords().encode, labels=[listed])
    assert marks.marks.toarray().tolist() == columns * 2
    assert list(marks.labels) == [0]


def test_other_words_of_a_script_without_spaces_are_pairs_of_characters() -> None:
    assert WordSplitter(["布洛芬"])("我吃了布洛芬缓释 300mg每日") == ["我吃", "吃了", "布洛芬", "缓释", "300mg", "每日"]
    assert WordSplitter()("naïve ไทย ก") == ["naïve", "ไท", "ทย", "ก"]


@pytest.mark.slow
def test_a_fit_without_marks_says_so() -> None:
    rows = [f"thing{i} thing{i + 1} drug{i % 60}" for i in range(100)]
    concept = vecveil.Concept.from_terms("drugs", DRUGS)
    for own, said in ((rows, True), (texts(), False)):
        warnings = vecveil.fit(own, concept, MeanOfWords(), noise_to_signal=0.1).report["warnings"]
        assert any("marks no words" in warning for warning in warnings) == said


def test_words_that_an_encoder_cannot_tell_apart_weigh_the_same() -> None:
    found = mark_words(texts(), DRUGS[:40], lambda words: np.ones((len(words), N)))
    others = found.weights[~found.listed]
    assert others == pytest.approx(others[0])
    assert others.sum() == pytest.approx(RELATED * 40)


@pytest.mark.slow
def test_a_fit_hides_words_that_no_list_holds() -> None:
    """Control: the same fit on vectors, which knows no words, hides less of them."""
    rows, encoder = texts(3000), MeanOfWords()
    listed = vecveil.Concept.from_terms("drugs", DRUGS[:40])
    setting: dict[str, Any] = {"rank": 5, "kept": 19, "flattening": 0.0, "pairs": False, "noise_to_signal": 0.05}
    by_texts = vecveil.fit(rows, listed, encoder, **setting)
    matches = listed.find(rows)
    labels, _ = matches.token_labels(min_count=3)
    positive, negative = encoder.encode(matches.positives()), encoder.encode(matches.negatives())
    ordinary = encoder.encode([rows[i] for i in matches.without_concept])
    by_vectors = vecveil.fit_pairs(positive, negative, labels, ordinary, **setting)
    fresh = texts(2000, seed=1)
    X = encoder.encode(fresh).astype(float)
    held = np.array([any(word in text.split() for word in DRUGS[40:]) for text in fresh], dtype=float)

    def explained(protector: vecveil.Protector) -> float:
        Y = protector.protect(X, 0, noise=False)
        Y = np.column_stack([Y, np.ones(len(Y))])
        fitted = Y @ np.linalg.lstsq(Y, held, rcond=None)[0]
        return float(fitted.var() / held.var())

    assert explained(by_texts) < 0.8 * explained(by_vectors)
    assert SimilarityTask.of(X).relative(lambda rows, rng: by_texts.protect(rows, rng), np.random.default_rng(0)) > 0.5
