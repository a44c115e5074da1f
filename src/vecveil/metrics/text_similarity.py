"""How much of a text a reconstruction gives away: BLEU, ROUGE-L, token F1 and exact match.

All are shares in [0, 1] over texts, resampled by group. Chance is the same metric when every text
meets the reconstruction of another text. An empty reconstruction is allowed and scores 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import MissingDependencyError
from vecveil.metrics.bleu import (
    bleu_interval,
    bleu_of_statistics,
    bleu_statistics,
    sentence_bleus,
)
from vecveil.metrics.estimate import Estimate
from vecveil.metrics.intervals import cluster_bootstrap, group_index
from vecveil.metrics.permutation import other_rows
from vecveil.types import Texts
from vecveil.validation import check_same_length, check_texts

__all__ = ["corpus_bleu", "exact_match", "rouge_l", "sentence_bleu", "text_similarity", "token_f1"]

FloatArray = npt.NDArray[np.float64]
_WORD = re.compile(r"\w+")


def text_similarity(
    references: Texts, hypotheses: Texts, groups: Any = None, *, seed: int = 0
) -> dict[str, Estimate]:
    """Return BLEU, sentence BLEU, ROUGE-L, token F1 and exact match by name; n counts texts.

    Args:
        references: (N,) the true texts, N >= 1.
        hypotheses: (N,) the reconstruction of each; may be empty strings.
        groups: (N,) text groups for intervals and chance; None if every text stands alone.
        seed: Seed of the bootstrap, and of the permutation that gives the chance level.

    Raises:
        InvalidInputError: no text, lengths that differ, or something that is not a string.
        MissingDependencyError: sacrebleu or rouge-score is not installed.
    """
    metrics = (corpus_bleu, sentence_bleu, rouge_l, token_f1, exact_match)
    given = _check(references, hypotheses, owner="text_similarity")
    estimates = [metric(*given, groups, seed=seed) for metric in metrics]
    return {estimate.metric: estimate for estimate in estimates}


def corpus_bleu(
    references: Texts, hypotheses: Texts, groups: Any = None, *, seed: int = 0
) -> Estimate:
    """Return the BLEU of the whole corpus, tokenised as "13a", case kept.

    The interval resamples sacrebleu's counts by group. Arguments and errors as in
    `text_similarity`; one reference for each text.
    """
    owner = "corpus_bleu"
    truth, guess = _check(references, hypotheses, owner=owner)
    index, _ = group_index(groups, len(truth), owner=owner)
    statistics = _statistics(truth, guess)
    low, high = bleu_interval(statistics, index, seed=seed)
    chance = None
    swap = other_rows(index, len(truth), owner=owner, seed=seed)
    if swap is not None:
        permuted = _statistics(truth, [guess[i] for i in swap])
        chance = bleu_of_statistics(permuted.sum(axis=0))
    value = bleu_of_statistics(statistics.sum(axis=0))
    return Estimate("BLEU", value, low, high, len(truth), chance)


def sentence_bleu(
    references: Texts, hypotheses: Texts, groups: Any = None, *, seed: int = 0
) -> Estimate:
    """Return the mean BLEU of single texts, which is what Vec2Text's papers call BLEU.

    Orders that a reconstruction of fewer than four tokens cannot have are left out, as sacrebleu
    advises; Vec2Text gives such texts 0. Arguments and errors as in `text_similarity`.
    """
    return _mean("sentence BLEU", _sentence_bleus, references, hypotheses, groups, seed)


def rouge_l(references: Texts, hypotheses: Texts, groups: Any = None, *, seed: int = 0) -> Estimate:
    """Return the mean F1 of the longest common subsequence of words (Lin 2004), unstemmed.

    By rouge-score, whose words are runs of the lower-cased letters a to z and digits: other
    scripts score 0. Arguments and errors as in `text_similarity`.
    """
    return _mean("ROUGE-L", _rouge_ls, references, hypotheses, groups, seed)


def token_f1(
    references: Texts, hypotheses: Texts, groups: Any = None, *, seed: int = 0
) -> Estimate:
    r"""Return the mean F1 of the *sets* of lower-cased words: order and repetition do not count.

    Words are matches of ``\w+``; a text without words scores 0. Arguments and errors as in
    `text_similarity`.

    Formula: 2 |A ∩ B| / (|A| + |B|) (Vec2Text's token F1; TextCrafter reports it).
    """
    return _mean("token F1", _token_f1s, references, hypotheses, groups, seed)


def exact_match(
    references: Texts, hypotheses: Texts, groups: Any = None, *, seed: int = 0
) -> Estimate:
    """Return the share of texts given back letter by letter; an empty answer is never a match.

    Arguments and errors as in `text_similarity`.
    """
    return _mean("exact match", _exact_matches, references, hypotheses, groups, seed)


def _sentence_bleus(references: Sequence[str], hypotheses: Sequence[str]) -> FloatArray:
    return sentence_bleus(_statistics(references, hypotheses))


def _rouge_ls(references: Sequence[str], hypotheses: Sequence[str]) -> FloatArray:
    try:
        from rouge_score.rouge_scorer import RougeScorer  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingDependencyError("ROUGE-L", "rouge-score", "attacks") from error
    scorer = RougeScorer(["rougeL"], use_stemmer=False)
    pairs = zip(references, hypotheses, strict=True)
    return np.array([float(scorer.score(r, h)["rougeL"].fmeasure) for r, h in pairs])


def _token_f1s(references: Sequence[str], hypotheses: Sequence[str]) -> FloatArray:
    def f1(one: set[str], other: set[str]) -> float:
        return 2 * len(one & other) / max(1, len(one) + len(other))

    def words(text: str) -> set[str]:
        return set(_WORD.findall(text.lower()))

    pairs = zip(references, hypotheses, strict=True)
    return np.array([f1(words(r), words(h)) for r, h in pairs])


def _exact_matches(references: Sequence[str], hypotheses: Sequence[str]) -> FloatArray:
    pairs = zip(references, hypotheses, strict=True)
    return np.array([float(r == h and h != "") for r, h in pairs])


def _mean(
    metric: str,
    score: Callable[[Sequence[str], Sequence[str]], FloatArray],
    references: Texts,
    hypotheses: Texts,
    groups: Any,
    seed: int,
) -> Estimate:
    truth, guess = _check(references, hypotheses, owner=metric)
    index, _ = group_index(groups, len(truth), owner=metric)
    values = score(truth, guess)
    low, high = cluster_bootstrap(values, np.ones(len(values)), index, seed=seed)
    swap = other_rows(index, len(truth), owner=metric, seed=seed)
    chance = None if swap is None else float(score(truth, [guess[i] for i in swap]).mean())
    return Estimate(metric, float(values.mean()), low, high, len(values), chance)


def _statistics(references: Sequence[str], hypotheses: Sequence[str]) -> npt.NDArray[np.int64]:
    return bleu_statistics([[text] for text in references], hypotheses)


def _check(references: Texts, hypotheses: Texts, *, owner: str) -> tuple[Texts, Texts]:
    truth = check_texts(references, owner=owner, param="references")
    guess = check_texts(hypotheses, owner=owner, param="hypotheses", min_rows=0)
    check_same_length(owner, hypotheses=guess, references=truth)
    return truth, guess
