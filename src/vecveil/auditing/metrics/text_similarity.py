"""Metrics of reconstructed texts: BLEU, ROUGE-L, token F1, exact match, sensitive tokens.

All are shares in [0, 1] over texts (papers multiply BLEU by a hundred), resampled by group. Chance is the same metric
with every text paired with the reconstruction of another. An empty reconstruction scores 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, optional_import
from vecveil.privacy.utility.estimates import (
    Estimate,
    bootstrap_interval,
    bootstrap_weights,
    group_index,
    other_rows,
    share_estimate,
)
from vecveil.types import Texts
from vecveil.validation import check_same_length, check_texts

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

Counts = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_ORDERS = 4  # n-grams of one to four tokens
_WORD = re.compile(r"\w+")


def text_similarity(references: Texts, hypotheses: Texts, groups: Any = None, *, seed: int = 0) -> dict[str, Estimate]:
    """Return BLEU, sentence BLEU, ROUGE-L, token F1 and exact match by name; n counts texts.

    Args:
        references: (N,) the true texts, N >= 1.
        hypotheses: (N,) the reconstruction of each; may be empty strings.
        groups: (N,) text groups for intervals and chance; None for independent texts.
        seed: Seed of the bootstrap, and of the permutation that gives the chance level.

    Raises:
        MissingDependencyError: sacrebleu or rouge-score is missing.
    """
    metrics = (corpus_bleu, sentence_bleu, rouge_l, token_f1, exact_match)
    given = _check(references, hypotheses, owner="text_similarity")
    estimates = [metric(*given, groups, seed=seed) for metric in metrics]
    return {estimate.metric: estimate for estimate in estimates}


def corpus_bleu(references: Texts, hypotheses: Texts, groups: Any = None, *, seed: int = 0) -> Estimate:
    """Return the BLEU of the whole corpus, tokenised as "13a", case kept.

    The interval resamples sacrebleu's counts by group. Arguments as in `text_similarity`.
    """
    owner = "corpus_bleu"
    truth, guess = _check(references, hypotheses, owner=owner)
    index, _ = group_index(groups, len(truth), owner=owner)
    statistics = _statistics(truth, guess)
    chance = None
    swap = other_rows(index, len(truth), owner=owner, seed=seed)
    if swap is not None:
        permuted = _statistics(truth, [guess[i] for i in swap])
        chance = bleu_of_statistics(permuted.sum(axis=0))
    value = bleu_of_statistics(statistics.sum(axis=0))
    ends = bleu_interval(statistics, index, seed=seed)
    return Estimate("BLEU", value, *ends, len(truth), chance)


def bleu_interval(statistics: Counts, index: npt.NDArray[np.intp], *, seed: int = 0) -> tuple[float, float]:
    """Return the percentile interval of the corpus BLEU, resampled by group.

    One group gives [0, 1]; if all draws agree it is the exact binomial interval over the groups.
    """
    count = int(index.max()) + 1
    sums = np.zeros((count, statistics.shape[1]))
    np.add.at(sums, index, statistics)
    # BLEU is a function of summed counts, so a sample of groups is a weighted sum.
    blocks = bootstrap_weights(count, seed=seed)
    draws = np.array([bleu_of_statistics(row) for weights in blocks for row in weights @ sums])
    value = bleu_of_statistics(statistics.sum(axis=0))
    return bootstrap_interval(draws, value, count)


def bleu_statistics(references: Sequence[Sequence[str]], hypotheses: Sequence[str]) -> Counts:
    """Return sacrebleu's sufficient statistics of each hypothesis, shape (N, 10).

    Columns: tokens of the hypothesis, tokens of its nearest reference, then for n = 1..4 the matched n-grams, then for
    n = 1..4 all n-grams. Their sums give the corpus BLEU. Each hypothesis has at least one reference.
    """
    scorer = _bleu()(effective_order=True)  # the counts do not depend on it
    statistics = np.zeros((len(hypotheses), 2 + 2 * _ORDERS), dtype=np.int64)
    for row, hypothesis, texts in zip(statistics, hypotheses, references, strict=True):
        score = scorer.sentence_score(hypothesis, list(texts))
        row[:] = [score.sys_len, score.ref_len, *score.counts, *score.totals]
    return statistics


def _statistics(references: Sequence[str], hypotheses: Sequence[str]) -> Counts:
    return bleu_statistics([[text] for text in references], hypotheses)


def bleu_of_statistics(statistics: Any, *, effective_order: bool = False) -> float:
    """Return BLEU, in [0, 1], of summed `bleu_statistics` (10,).

    Papineni et al. (2002) with sacrebleu's default smoothing ("exp") of orders without a match. ``effective_order``
    omits the orders that a short text has no n-gram of; without it a text of fewer than four tokens scores 0.
    """
    # Bootstrap sums are whole numbers held as floats; sacrebleu needs integers.
    numbers = [round(float(number)) for number in statistics]
    score = _bleu().compute_bleu(
        correct=numbers[2 : 2 + _ORDERS],
        total=numbers[2 + _ORDERS :],
        sys_len=numbers[0],
        ref_len=numbers[1],
        smooth_method="exp",
        effective_order=effective_order,
    )
    # Rounding in sacrebleu can exceed 100.
    return min(1.0, float(score.score) / 100)


def _bleu() -> type[BLEU]:
    with optional_import("BLEU", "sacrebleu", "attacks"):
        from sacrebleu.metrics.bleu import BLEU
    return BLEU


def sentence_bleu(references: Texts, hypotheses: Texts, groups: Any = None, *, seed: int = 0) -> Estimate:
    """Return the mean BLEU of single texts, which is what Vec2Text's papers call BLEU.

    Orders that a reconstruction of fewer than four tokens cannot have are omitted, as sacrebleu advises; Vec2Text
    scores such texts 0. Arguments as in `text_similarity`.
    """

    def score(references: Sequence[str], hypotheses: Sequence[str]) -> FloatArray:
        rows = _statistics(references, hypotheses)
        return np.array([bleu_of_statistics(row, effective_order=True) for row in rows])

    return _mean("sentence BLEU", score, references, hypotheses, groups, seed)


def rouge_l(references: Texts, hypotheses: Texts, groups: Any = None, *, seed: int = 0) -> Estimate:
    """Return the mean F1 of the longest common subsequence of words (Lin 2004), unstemmed.

    By rouge-score, whose words are runs of the lower-cased letters a to z and digits: other scripts score 0. Arguments
    as in `text_similarity`.
    """
    with optional_import("ROUGE-L", "rouge-score", "attacks"):
        from rouge_score.rouge_scorer import RougeScorer  # type: ignore[import-untyped]
    scorer = RougeScorer(["rougeL"], use_stemmer=False)

    def score(reference: str, hypothesis: str) -> float:
        return float(scorer.score(reference, hypothesis)["rougeL"].fmeasure)

    return _mean("ROUGE-L", _by_pair(score), references, hypotheses, groups, seed)


def token_f1(references: Texts, hypotheses: Texts, groups: Any = None, *, seed: int = 0) -> Estimate:
    r"""Return the mean F1 of the *sets* of lower-cased words, 2 |A ∩ B| / (|A| + |B|), as in Vec2Text and TextCrafter.

    Words are matches of ``\w+``; a text without words scores 0. Arguments as in `text_similarity`.
    """

    def score(reference: str, hypothesis: str) -> float:
        # Sets: a repeated word must not count twice.
        A, B = (set(_WORD.findall(text.lower())) for text in (reference, hypothesis))
        return 2 * len(A & B) / max(1, len(A) + len(B))

    return _mean("token F1", _by_pair(score), references, hypotheses, groups, seed)


def exact_match(references: Texts, hypotheses: Texts, groups: Any = None, *, seed: int = 0) -> Estimate:
    """Return the share of texts reproduced letter by letter; an empty answer is never a match."""
    score = _by_pair(lambda r, h: float(r == h and h != ""))
    return _mean("exact match", score, references, hypotheses, groups, seed)


ScoreTexts = Callable[[Sequence[str], Sequence[str]], FloatArray]


def _by_pair(score: Callable[[str, str], float]) -> ScoreTexts:
    return lambda references, hypotheses: np.array([score(r, h) for r, h in zip(references, hypotheses, strict=True)])


def _mean(metric: str, score: ScoreTexts, references: Texts, hypotheses: Texts, groups: Any, seed: int) -> Estimate:
    truth, guess = _check(references, hypotheses, owner=metric)
    index, _ = group_index(groups, len(truth), owner=metric)
    values = score(truth, guess)
    # Chance keeps both sets of texts and breaks their pairing.
    swap = other_rows(index, len(truth), owner=metric, seed=seed)
    chance = None if swap is None else float(score(truth, [guess[i] for i in swap]).mean())
    return share_estimate(metric, values, groups=index, chance=chance, seed=seed)


def _check(references: Texts, hypotheses: Texts, *, owner: str) -> tuple[Texts, Texts]:
    truth = check_texts(references, owner=owner, param="references")
    guess = check_texts(hypotheses, owner=owner, param="hypotheses", min_rows=0)
    check_same_length(owner, hypotheses=guess, references=truth)
    return truth, guess


def reconstruction_leakage(
    token_sets_true: Sequence[Iterable[Hashable]],
    token_sets_reconstructed: Sequence[Iterable[Hashable]],
    groups: Any = None,
    *,
    seed: int = 0,
) -> Estimate:
    """Return the share of sensitive token instances that occur in their text's reconstruction.

    Formula: SPARSE Eq. 13; a token counts once for each text that contains it, and n is their sum. Chance looks for a
    text's tokens in the reconstruction of another text.

    Args:
        token_sets_true: For each text its sensitive tokens; at least one text contains one.
        token_sets_reconstructed: For each text the tokens of its reconstruction, normalised alike.
    """
    owner = "reconstruction_leakage"
    truth = _check_sets(token_sets_true, owner=owner, param="token_sets_true")
    guess = _check_sets(token_sets_reconstructed, owner=owner, param="token_sets_reconstructed")
    check_same_length(owner, token_sets_reconstructed=guess, token_sets_true=truth)
    index, _ = group_index(groups, len(truth), owner=owner)
    held = np.array([len(tokens) for tokens in truth], dtype=np.float64)
    if not held.any():
        raise InvalidInputError(f"{owner}: `token_sets_true` contains no token.", param="token_sets_true")
    hits = np.array([len(t & g) for t, g in zip(truth, guess, strict=True)], dtype=np.float64)
    chance = None
    swap = other_rows(index, len(truth), owner=owner, seed=seed)
    if swap is not None:
        chance = sum(len(truth[i] & guess[j]) for i, j in enumerate(swap)) / int(held.sum())
    return share_estimate("Leakage", hits, held, index, chance=chance, seed=seed)


def _check_sets(value: Any, *, owner: str, param: str) -> list[frozenset[Hashable]]:
    # A string is iterable too: its letters would pass as tokens.
    every = [value, *value] if hasattr(value, "__iter__") and not isinstance(value, str | bytes) else [None]
    if any(isinstance(tokens, str | bytes) or not hasattr(tokens, "__iter__") for tokens in every):
        text = f"{owner}: `{param}` takes one set of tokens for each text. Split the texts into their tokens first."
        raise InvalidInputError(text, param=param)
    return [frozenset(tokens) for tokens in value]
