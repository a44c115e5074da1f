"""A text that the encoder reads in part counts for what is read of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.small_attacks import small_audits
from vecveil.errors import FitWarning
from vecveil.privacy.concepts import Concept
from vecveil.privacy.concepts.pairs import within_window
from vecveil.texts.encoders import TextEncoder, load_encoder

DRUG = Concept.from_terms("drug", ["ibuprofen", "vitamin D"])
FILLER = "The visitor came back and said that the garden was fine. "
LONG = [f"{FILLER * 6}He takes ibuprofen {i} times. {FILLER * 3}" for i in range(40)]
SHORT = [f"Note {i}: the {word} takes ibuprofen at {i % 7}." for i in range(40) for word in ("nurse", "baker")]
PLAIN = [
    f"Note {i}: the {word} sees the {thing}."
    for i in range(15)
    for word in ("nurse", "baker")
    for thing in ("river", "street")
]


@pytest.fixture(scope="module")
def minilm() -> TextEncoder:
    return load_encoder("minilm", precision="fp32", max_seq_length=64)


def first(most: int) -> object:
    """An encoder that reads the first characters."""
    return lambda texts: [min(most, len(text)) for text in texts]


def windows(texts: Sequence[str], most: int, *, split: bool, least: int = 1) -> object:
    found = DRUG.find(texts, min_texts=1)
    return within_window(DRUG.detectors, found, first(most), split=split, min_texts=least, owner="fit")  # type: ignore[arg-type]


def test_what_the_encoder_reads_is_the_text(minilm: TextEncoder) -> None:
    read = minilm.read_lengths([*LONG, *SHORT, "", "word " * 5000])
    partly = [length < len(text) for length, text in zip(read, [*LONG, *SHORT], strict=False)]
    assert partly == [True] * 40 + [False] * 80
    whole, cut = minilm.encode([LONG[0]]), minilm.encode([LONG[0][: read[0]]])
    np.testing.assert_allclose(whole, cut, atol=1e-5)
    prompted = load_encoder("minilm", precision="fp32", max_seq_length=64, prompt="represent this for search: ")
    assert prompted.read_lengths(LONG)[0] < read[0]


def test_a_cut_text_ends_at_a_word_before_a_half_read_term() -> None:
    text = "He had vitamin D and then ibuprofen at home."
    got = windows([text], text.index("profen"), split=False)
    assert got.matches.texts == ("He had vitamin D and then ",)
    assert [s.term for s in got.matches.spans[0]] == ["vitamin d"]
    assert got.report == {"texts": 1, "of": 1, "beyond": 0, "split": False, "windows": 1}


@pytest.mark.parametrize("most", [20, 45, 60, 1000])
def test_windows_hold_the_text_and_every_term_that_fits(most: int) -> None:
    text = "He had vitamin D. Then, here, ibuprofen\nwas taken! 今日は天気がいい。ibuprofen" + 70 * "x" + " vitamin D"
    got = windows([text, "A short ibuprofen."], most, split=True)
    assert "".join(got.matches.texts) == text + "A short ibuprofen."
    assert max(map(len, got.matches.texts)) <= most
    assert sum(map(len, got.matches.spans)) == 4
    assert all(part.strip() for part in got.matches.texts)
    for part, row in zip(got.matches.texts, got.matches.spans, strict=True):
        assert all(DRUG.detect([part[s.start : s.end]])[0] for s in row)


@pytest.mark.slow
def test_a_concept_beyond_the_window_is_no_pair(minilm: TextEncoder) -> None:
    fit = {"method": "laplace", "noise_to_signal": 0.5, "seed": 0, "show_progress": False}
    with pytest.warns(FitWarning) as caught:
        protector = vecveil.fit([*LONG, *SHORT, *PLAIN], DRUG, minilm, **fit)
    report = protector.report
    assert [str(each.message) for each in caught] == report["warnings"]
    assert {each.filename for each in caught} == {__file__}
    assert (report["pairs"], report["texts"]["with_concept"], report["background"]) == (80, 80, 100)
    assert report["long_texts"] == {"texts": 40, "of": 180, "beyond": 40, "split": False, "windows": 180}
    assert "40" in report["warnings"][0]
    with raises("E-CONCEPT-WINDOW", "texts"):
        vecveil.fit([*LONG, *PLAIN], DRUG, minilm, **fit)
    with raises("E-CONCEPT-WINDOW", "texts"):
        vecveil.frontier([*LONG, *(f"{text} {LONG[0]}" for text in PLAIN)], DRUG, minilm)
    split = vecveil.fit([*LONG, *PLAIN], DRUG, minilm, long_texts="split", groups=range(100), **fit).report
    assert split["pairs"] == 40
    assert split["long_texts"]["beyond"] == 0
    short = vecveil.fit([*SHORT, *PLAIN], DRUG, minilm, **fit)
    assert "long_texts" not in short.report
    skip = ["probe", "candidates", "averaging", "alignment", "held-out-terms"]
    texts = [*LONG, *SHORT, *PLAIN]
    with small_audits():
        record = vecveil.audit(protector, texts, DRUG, encoder=minilm, min_token_count=2, skip=skip).to_record()
    assert "long-texts" in [each["code"] for each in record["lint"]]
    assert record["texts"]["with_concept"] == 80


@pytest.mark.parametrize("method", ["laplace", "subspace"])
def test_pairs_of_equal_vectors_are_left_out(method: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 8)).astype(np.float32)
    labels = (rng.random((90, 3)) < 0.5).astype(np.uint8)
    Y = X + rng.normal(size=X.shape).astype(np.float32)
    Y[::3] = X[::3] * np.float32(1 + 1e-7)
    given = {"method": method, "noise_to_signal": 0.5, "seed": 0, "background": X}
    with pytest.warns(FitWarning, match="30 of 90") as caught:
        protector = vecveil.fit_pairs(X, Y, labels, groups=np.arange(90), **given)
    assert [str(each.message) for each in caught] == protector.report["warnings"]
    assert {each.filename for each in caught} == {__file__}
    assert (protector.report["pairs"], protector.report["equal_pairs"]) == (60, 30)
    assert "30 of 90" in protector.report["warnings"][0]
    kept = np.arange(90) % 3 > 0
    alone = vecveil.fit_pairs(X[kept], Y[kept], labels[kept], groups=np.arange(60), **given)
    assert protector.fingerprint == alone.fingerprint
    Y[: 3 * 24] = X[: 3 * 24]
    for same in (X.copy(), Y):
        with raises("E-INPUT-EQUAL-PAIRS", "negative"):
            vecveil.fit_pairs(X, same, labels, **given)
