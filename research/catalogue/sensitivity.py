"""SPARSE, appendix A: are some dimensions more sensitive to the concept than others, tested on texts not ranked on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from research.bench import Bench
from research.catalogue.deciles import (
    decile_means,
    decile_test,
    noise_tests,
    permuted_tests,
    share_below,
)
from research.catalogue.sensitivity_summary import sensitivity_summary
from research.experiment import Cell, Experiment, Records
from research.problems import Problem
from research.specification import Spec
from research.summary import Summary
from vecveil.attacks import split_groups
from vecveil.concepts.matching import Span, remove
from vecveil.errors import InvalidInputError
from vecveil.sensitivity.differences import difference_sensitivity
from vecveil.types import Embeddings, Vector

__all__ = ["SensitivityDeciles", "SensitivitySpec", "without_other_words"]

NOISE_PAIRS = 500
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, kw_only=True)
class SensitivitySpec(Spec):
    """What is compared.

    Attributes:
        over: ``pairs`` takes the largest change over pairs, ``sets`` over D+ x D-, as Definition 7 prints it; ``mean``
            takes the mean change over pairs, which no single text decides.
        share: of the dimensions at either end of the ranking; 0.1 is a decile.
        draws: of the permutation control, and of the runs on pure noise.
        pairs: at most so many pairs, and as many texts without other words, drawn by group.
    """

    over: tuple[str, ...] = ("pairs", "sets", "mean")
    share: float = 0.1
    draws: int = 200
    pairs: int = 2000

    def __post_init__(self) -> None:
        for name in self.over:
            if name not in ("pairs", "sets", "mean"):
                raise InvalidInputError.of(
                    "experiment", "over", "'pairs', 'sets' or 'mean'", repr(name)[:40]
                )
        if not 0 < self.share <= 0.5:
            raise InvalidInputError.of("experiment", "share", "in (0, 0.5]", self.share)


class SensitivityDeciles(Experiment):
    """Cells with the axes problem, over and seed; the seed decides on the halves."""

    name = "sensitivity"
    what = "Are the deciles of dimensions with the most and the least sensitivity a property of the concept?"
    source = "SPARSE, Appendix A"
    spec_type = SensitivitySpec

    def cells(self, spec: Spec) -> list[Cell]:
        """Return the cells, those of a problem and seed side by side."""
        assert isinstance(spec, SensitivitySpec)
        return [
            Cell.of(problem=problem, over=over, seed=seed)
            for seed in range(spec.seeds)
            for problem in spec.problems
            for over in spec.over
        ]

    def settings(self, spec: Spec, cell: Cell) -> dict[str, Any]:
        """Return what decides a cell; no attack is run."""
        assert isinstance(spec, SensitivitySpec)
        found = super().settings(spec, cell)
        del found["attacks"]
        return {**found, "share": spec.share, "draws": spec.draws, "pairs": spec.pairs}

    def prepare(self, spec: Spec, bench: Bench, cells: Sequence[Cell]) -> None:
        """Encode the texts with the concept, without it, and without other words in its place."""
        assert isinstance(spec, SensitivitySpec)
        for name in dict.fromkeys(cell["problem"] for cell in cells):
            texts = _texts(bench.problem(name), spec.pairs)
            bench.encoder().encode(
                [t for part in texts[:3] for t in part], show_progress=bench.show_progress
            )

    def measure(self, spec: Spec, cell: Cell, bench: Bench) -> dict[str, Any]:
        """Return the tests on the concept, on its control and on noise."""
        assert isinstance(spec, SensitivitySpec)
        problem, share = bench.problem(cell["problem"]), spec.share
        positive, negative, others, groups = _texts(problem, spec.pairs)
        encode = bench.encoder().encode
        P, N, Q = (np.asarray(encode(part)) for part in (positive, negative, others))
        over = cell["over"]
        sensitivity = _mean_change if over == "mean" else partial(difference_sensitivity, over=over)
        first, second = split_groups(groups, (0.5, 0.5), seed=cell["seed"])
        whole = sensitivity(P, N)
        ranked, tested = sensitivity(P[first], N[first]), sensitivity(P[second], N[second])
        other = sensitivity(P[first], Q[first])
        scale = np.maximum(P.std(axis=0), 1e-9)
        alive = P.std(axis=0) > 1e-7
        rng = np.random.default_rng([cell["seed"], 21])
        permuted = permuted_tests(ranked, tested, draws=spec.draws, share=share, rng=rng)
        circular, held_out = noise_tests(
            sensitivity, min(len(P), NOISE_PAIRS), P.shape[1], draws=spec.draws, share=share, rng=rng
        )  # fmt: skip
        relative = [(values / scale)[alive] for values in (ranked, tested)]
        return {
            "pairs": len(P),
            "dimensions": P.shape[1],
            "held_out": decile_test(ranked, tested, share=share).to_record(),
            "circular": decile_test(whole, whole, share=share).to_record(),
            "other_words": decile_test(other, tested, share=share).to_record(),
            "relative": decile_test(*relative, share=share).to_record(),
            "permuted": {"share": share_below(permuted), "median": _median(permuted)},
            "noise": {
                "circular": _median(circular), "held_out": _median(held_out),
                "circular_share": share_below(circular), "held_out_share": share_below(held_out),
            },
            "agreement": {
                "halves": _agreement(ranked, tested), "other_words": _agreement(other, tested),
                "spread": _agreement(P.std(axis=0), tested),
            },
            "deciles": {
                "concept": decile_means(ranked, tested),
                "other_words": decile_means(other, tested),
                "permuted": decile_means(rng.permutation(ranked), tested),
            },
        }  # fmt: skip

    def summary(self, spec: Spec, records: Records) -> Summary:
        """Return the tests in a table, the means of all deciles as curves, and what they say of the paper's claim."""
        assert isinstance(spec, SensitivitySpec)
        return sensitivity_summary(records)


def without_other_words(text: str, spans: Sequence[Span], rng: np.random.Generator) -> str:
    """Return a text without as many of its ordinary words as its spans have words; one word at least stays.

    A text that has no ordinary word but one is returned as it is.
    """
    words = [(m.start(), m.end()) for m in _WORD.finditer(text)]
    inside = [any(a < s.end and s.start < b for s in spans) for a, b in words]
    ordinary = [word for word, held in zip(words, inside, strict=True) if not held]
    count = min(max(1, sum(inside)), len(ordinary) - 1)
    if count < 1:
        return text
    chosen = sorted(ordinary[i] for i in rng.choice(len(ordinary), count, replace=False))
    return remove(text, [Span(a, b, "word", "") for a, b in chosen])


def _texts(
    problem: Problem, most: int
) -> tuple[list[str], list[str], list[str], npt.NDArray[np.intp]]:
    """Return D+, D-, the texts of D+ without other words, and groups; the same for every seed."""
    matches, rng = problem.matches, np.random.default_rng(0)
    groups = problem.groups[matches.with_concept]
    names, index = np.unique(groups, return_inverse=True)
    rows = np.sort(np.argsort(rng.permutation(len(names))[index], kind="stable")[:most])
    positive, negative = matches.positives(), matches.negatives()
    others = [
        without_other_words(positive[i], matches.spans[matches.with_concept[i]], rng) for i in rows
    ]
    return [positive[i] for i in rows], [negative[i] for i in rows], others, groups[rows]


def _mean_change(positive: Embeddings, negative: Embeddings) -> Vector:
    return np.asarray(np.abs(positive - negative).mean(axis=0), dtype=np.float64)


def _median(tests: Sequence[Any]) -> float:
    return float(np.median([test.p_value for test in tests]))


def _agreement(one: Vector, other: Vector) -> float:
    """Return Spearman's rank correlation."""
    return float(spearmanr(one, other).statistic)
