"""BLEU of reconstructed texts, by sacrebleu: of the corpus, and the mean over sentences.

Both are shares in [0, 1]: what papers print is a hundred times as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import MissingDependencyError
from vecveil.metrics.intervals import LEVEL, bootstrap_weights, clopper_pearson

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

__all__ = ["bleu_interval", "bleu_of_statistics", "bleu_statistics", "sentence_bleus"]

Counts = npt.NDArray[np.int64]
_ORDERS = 4  # n-grams of one to four tokens


def bleu_statistics(references: Sequence[Sequence[str]], hypotheses: Sequence[str]) -> Counts:
    """Return sacrebleu's sufficient statistics of each hypothesis, shape (N, 10).

    Columns: tokens of the hypothesis, tokens of its nearest reference, then for n = 1..4 the
    matched n-grams, then for n = 1..4 the n-grams there are. Their sums give the corpus BLEU.

    Args:
        references: For each hypothesis its references, at least one.
        hypotheses: N texts; an empty one matches nothing.

    Raises:
        MissingDependencyError: sacrebleu is not installed.
    """
    scorer = _bleu()(effective_order=True)  # which the counts do not depend on
    statistics = np.zeros((len(hypotheses), 2 + 2 * _ORDERS), dtype=np.int64)
    for row, hypothesis, texts in zip(statistics, hypotheses, references, strict=True):
        score = scorer.sentence_score(hypothesis, list(texts))
        row[:] = [score.sys_len, score.ref_len, *score.counts, *score.totals]
    return statistics


def bleu_of_statistics(statistics: Any, *, effective_order: bool = False) -> float:
    """Return BLEU, in [0, 1], of statistics (10,) as `bleu_statistics` gives them, summed.

    Formula: Papineni et al. (2002) with sacrebleu's default smoothing ("exp") of orders without
    a match.

    Args:
        statistics: (10,) counts.
        effective_order: Leave out the orders that a short text has no n-gram of; without it a
            text of fewer than four tokens earns nothing.
    """
    numbers = [round(float(number)) for number in statistics]
    score = _bleu().compute_bleu(
        correct=numbers[2 : 2 + _ORDERS],
        total=numbers[2 + _ORDERS :],
        sys_len=numbers[0],
        ref_len=numbers[1],
        smooth_method="exp",
        effective_order=effective_order,
    )
    return min(1.0, float(score.score) / 100)


def sentence_bleus(statistics: Counts) -> npt.NDArray[np.float64]:
    """Return the BLEU of each sentence, shape (N,), with effective order as sacrebleu advises."""
    values = [bleu_of_statistics(row, effective_order=True) for row in statistics]
    return np.asarray(values, dtype=np.float64)


def bleu_interval(
    statistics: Counts, index: npt.NDArray[np.intp], *, seed: int = 0
) -> tuple[float, float]:
    """Return the percentile interval of the corpus BLEU when groups are drawn anew.

    Args:
        statistics: (N, 10) from `bleu_statistics`.
        index: (N,) groups as 0..G-1. One group gives [0, 1]; where all draws agree the exact
            binomial interval over the groups stands in.
        seed: Seed of the bootstrap.
    """
    count = int(index.max()) + 1
    if count == 1:
        return 0.0, 1.0
    sums = np.zeros((count, statistics.shape[1]))
    np.add.at(sums, index, statistics)
    draws = np.array(
        [
            bleu_of_statistics(row)
            for weights in bootstrap_weights(count, seed=seed)
            for row in weights @ sums
        ]
    )
    value = bleu_of_statistics(statistics.sum(axis=0))
    if np.ptp(draws) == 0.0:
        low, high = clopper_pearson(round(value * count), count)
    else:
        low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return min(float(low), value), max(float(high), value)


def _bleu() -> type[BLEU]:
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise MissingDependencyError("BLEU", "sacrebleu", "attacks") from error
    return BLEU
