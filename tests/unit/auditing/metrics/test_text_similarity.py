import numpy as np
import pytest
import sacrebleu

from harness.errors import raises
from vecveil.auditing.metrics.text_similarity import (
    bleu_interval,
    bleu_of_statistics,
    bleu_statistics,
    corpus_bleu,
    exact_match,
    rouge_l,
    sentence_bleu,
    text_similarity,
    token_f1,
)
from vecveil.privacy.utility.estimates import clopper_pearson

NAMES = ["BLEU", "sentence BLEU", "ROUGE-L", "token F1", "exact match"]
ALL = [corpus_bleu, sentence_bleu, rouge_l, token_f1, exact_match]
WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"]


def sentences(count, seed):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 15))) for _ in range(count)]


def test_the_right_texts_score_one_and_others_score_less():
    texts = [f"text {i} speaks of {word} and of nothing else" for i, word in enumerate(WORDS)]
    result = text_similarity(texts, texts, seed=0)
    assert list(result) == NAMES
    for name, estimate in result.items():
        assert (estimate.metric, estimate.value, estimate.high) == (name, 1.0, 1.0)
        assert 0.5 < estimate.low < 1.0  # 12 of 12 is not certainty: exact binomial
        assert estimate.n == 12
        assert estimate.chance < 0.8
    assert result["exact match"].chance == 0.0


@pytest.mark.parametrize("metric", ALL)
def test_an_empty_reconstruction_scores_zero_even_for_an_empty_text(metric):
    estimate = metric(["some true words", ""], ["", ""])
    assert (estimate.value, estimate.low, estimate.n) == (0.0, 0.0, 2)
    assert estimate.high > 0.5
    assert metric(["some true words stand here"], ["some true words stand here"]).value == 1.0


@pytest.mark.parametrize(
    ("references", "hypotheses", "code", "param"),
    [
        ([], [], "E-INPUT-SHAPE", "references"),
        (["a", "b"], ["a"], "E-INPUT-SHAPE", "hypotheses"),
        (["a"], [], "E-INPUT-SHAPE", "hypotheses"),
        (["a", None], ["a", "b"], "E-INPUT-TYPE", "references"),
        (["a", "b"], ["a", b"b"], "E-INPUT-TYPE", "hypotheses"),
        ("a text", ["a text"], "E-INPUT-TYPE", "references"),
        (["a text"], "a text", "E-INPUT-TYPE", "hypotheses"),
    ],
)
@pytest.mark.parametrize("metric", [text_similarity, *ALL])
def test_wrong_texts_are_refused(metric, references, hypotheses, code, param):
    with raises(code, param):
        metric(references, hypotheses)


@pytest.mark.parametrize("metric", [text_similarity, *ALL])
def test_wrong_groups_are_refused(metric):
    with raises("E-INPUT", "groups"):
        metric(["a", "b"], ["a", "b"], [1, 2, 3])


def test_token_f1_is_of_sets_and_lower_case():
    # {the, cat, sat} against {the, dog, sat, down}: 2 · 2 / 7, whatever is repeated or capital.
    value = token_f1(["The cat the CAT, sat!"], ["sat the dog, DOWN down"]).value
    assert value == pytest.approx(4 / 7)
    assert token_f1(["!?"], ["!?"]).value == 0.0


def test_exact_match_is_letter_by_letter():
    estimate = exact_match(["One", "two", "three"], ["One", "Two", "three "])
    assert estimate.value == pytest.approx(1 / 3)


def test_summed_counts_are_sacrebleus_corpus_score():
    references, hypotheses = sentences(40, 0), sentences(40, 100)
    hypotheses[:10] = references[:10]
    hypotheses[10] = ""
    expected = sacrebleu.corpus_bleu(hypotheses, [references]).score / 100
    assert corpus_bleu(references, hypotheses).value == pytest.approx(expected, abs=1e-12)
    each = [
        sacrebleu.sentence_bleu(h, [r], use_effective_order=True).score / 100
        for r, h in zip(references, hypotheses, strict=True)
    ]
    assert sentence_bleu(references, hypotheses).value == pytest.approx(np.mean(each), abs=1e-12)


def test_short_texts_need_effective_order():
    statistics = bleu_statistics([["two words"]], ["two words"])[0]
    assert bleu_of_statistics(statistics) == 0.0
    assert bleu_of_statistics(statistics, effective_order=True) == 1.0


def test_the_bleu_interval_is_wider_for_fewer_groups_and_holds_the_value():
    references = sentences(60, 1)
    rng = np.random.default_rng(2)
    hypotheses = [r if rng.random() < 0.5 else s for r, s in zip(references, sentences(60, 3), strict=True)]
    alone = corpus_bleu(references, hypotheses)
    assert alone.low < alone.value < alone.high
    doubled = corpus_bleu(references * 4, hypotheses * 4, np.tile(np.arange(60), 4))
    assert doubled.value == pytest.approx(alone.value)
    assert (doubled.low, doubled.high) == pytest.approx((alone.low, alone.high))
    naive = corpus_bleu(references * 4, hypotheses * 4)  # control: copies taken for new texts
    assert naive.high - naive.low < 0.7 * (alone.high - alone.low)


@pytest.mark.parametrize(("hypothesis", "hits"), [("a b c d e", 6), ("x", 0)])
def test_bleu_of_equal_groups_takes_the_exact_interval(hypothesis, hits):
    estimate = corpus_bleu(["a b c d e"] * 6, [hypothesis] * 6)
    assert estimate.value == hits / 6
    assert (estimate.low, estimate.high) == pytest.approx(clopper_pearson(hits, 6))


def test_bleu_of_one_group_says_nothing():
    statistics = bleu_statistics([["a b c d e"]] * 2, ["a b c d e", "x"])
    assert bleu_interval(statistics, np.zeros(2, dtype=int)) == (0.0, 1.0)


def test_chance_leaves_the_group_and_is_missing_for_one_text():
    # Both copies of a text are one group: chance that met the other copy would be 1.
    texts = ["alpha beta gamma delta", "zeta eta theta iota"] * 2
    for estimate in text_similarity(texts, texts, ["a", "b", "a", "b"]).values():
        assert estimate.chance == 0.0
    # Control: the copies taken for different texts meet under some seed (in all 20 seeds they miss
    # each other with probability below 1e-3; the seeds are fixed).
    assert max(exact_match(texts, texts, [0, 1, 2, 3], seed=s).chance for s in range(20)) > 0
    for estimate in text_similarity(texts[:1], texts[:1]).values():
        assert estimate.chance is None


def test_the_seed_decides_everything():
    references, hypotheses = sentences(30, 5), sentences(30, 6)
    assert text_similarity(references, hypotheses, seed=3) == text_similarity(references, hypotheses, seed=3)
    assert text_similarity(references, hypotheses, seed=3) != text_similarity(references, hypotheses, seed=4)
