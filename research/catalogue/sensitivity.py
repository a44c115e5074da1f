"""SPARSE, Appendix A: are some dimensions more sensitive to the concept, tested on texts that did not rank them?"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from research import tables as draw
from research.bench import Bench
from research.experiment import Cell, Experiment, Records, note
from research.judging import Tally, compare, verdict
from research.problems import Problem
from research.published import published
from research.results import ClaimFinding, Figure, Number, Point, Series, Summary, Table, XAxis, YAxis
from research.specification import Spec, Whole, check_names
from vecveil.auditing.attacks import split_groups
from vecveil.errors import out_of_range
from vecveil.privacy.concepts.matching import Span, remove
from vecveil.privacy.sensitivity.closed_forms import difference_sensitivity
from vecveil.types import Embeddings, Vector

NOISE_PAIRS = 500
_WORD = re.compile(r"\w+")


class SensitivitySpec(Spec, frozen=True, kw_only=True):
    """Rankings and controls.

    Attributes:
        over: ``pairs`` takes the largest change over pairs, ``sets`` over D+ × D- (Definition 7 as printed), ``mean``
            the mean change over pairs.
        share: of the dimensions at either end of the ranking; 0.1 is a decile.
        draws: draws of the permutation control and of pure noise.
        pairs: maximum number of pairs, drawn by group.
    """

    over: tuple[str, ...] = ("pairs", "sets", "mean")
    share: float = 0.1
    draws: Whole = 200
    pairs: Whole = 2000

    def __post_init__(self) -> None:
        check_names("over", self.over, OVER)
        if not 0 < self.share <= 0.5:
            raise out_of_range("experiment", "share", "a number above 0 and at most 0.5", self.share)


class SensitivityDeciles(Experiment[SensitivitySpec]):
    """Cells with the axes problem, over and seed; the seed splits the texts into halves."""

    name = "sensitivity"
    what = "Whether the most and the least sensitive deciles of dimensions are a property of the concept."
    source = "SPARSE, Appendix A"
    spec_type = SensitivitySpec

    def cells(self, spec: SensitivitySpec) -> list[Cell]:
        return [
            Cell.of(problem=problem, over=over, seed=seed)
            for seed in range(spec.seeds)
            for problem in spec.problems
            for over in spec.over
        ]

    def settings(self, spec: SensitivitySpec, cell: Cell) -> dict[str, Any]:
        found = super().settings(spec, cell)
        del found["attacks"]
        return {**found, "share": spec.share, "draws": spec.draws, "pairs": spec.pairs}

    def prepare(self, spec: SensitivitySpec, bench: Bench, cells: Sequence[Cell]) -> None:
        for name in dict.fromkeys(cell["problem"] for cell in cells):
            texts = _texts(bench.problem(name), spec.pairs)
            bench.encoder().encode([t for part in texts[:3] for t in part], show_progress=bench.show_progress)

    def measure(self, spec: SensitivitySpec, cell: Cell, bench: Bench) -> dict[str, Any]:
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
        )
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
                "circular": _median(circular),
                "held_out": _median(held_out),
                "circular_share": share_below(circular),
                "held_out_share": share_below(held_out),
            },
            "agreement": {
                "halves": _agreement(ranked, tested),
                "other_words": _agreement(other, tested),
                "spread": _agreement(P.std(axis=0), tested),
            },
            "deciles": {
                "concept": decile_means(ranked, tested),
                "other_words": decile_means(other, tested),
                "permuted": decile_means(rng.permutation(ranked), tested),
            },
        }

    def summary(self, spec: SensitivitySpec, records: Records) -> Summary:
        return Summary(
            tables=[_deciles(records), _controls(records)],
            figures=[_curve(name, rows) for (name,), rows in records.each("problem")],
            findings=_findings(records),
            notes=list(published(TABLE).notes),
        )


def without_other_words(text: str, spans: Sequence[Span], rng: np.random.Generator) -> str:
    """Return a text without as many of its ordinary words as its spans have words, keeping at least one.

    A text with a single ordinary word is returned unchanged.
    """
    words = [(m.start(), m.end()) for m in _WORD.finditer(text)]
    inside = [any(a < s.end and s.start < b for s in spans) for a, b in words]
    ordinary = [word for word, held in zip(words, inside, strict=True) if not held]
    count = min(max(1, sum(inside)), len(ordinary) - 1)
    if count < 1:
        return text
    chosen = sorted(ordinary[i] for i in rng.choice(len(ordinary), count, replace=False))
    return remove(text, [Span(a, b, "word", "") for a, b in chosen])


def _texts(problem: Problem, most: int) -> tuple[list[str], list[str], list[str], npt.NDArray[np.intp]]:
    """Return D+, D-, the texts of D+ without other words, and groups; the same for every seed."""
    matches, rng = problem.matches, np.random.default_rng(0)
    groups = problem.groups[matches.with_concept]
    names, index = np.unique(groups, return_inverse=True)
    rows = np.sort(np.argsort(rng.permutation(len(names))[index], kind="stable")[:most])
    positive, negative = matches.positives(), matches.negatives()
    others = [without_other_words(positive[i], matches.spans[matches.with_concept[i]], rng) for i in rows]
    return [positive[i] for i in rows], [negative[i] for i in rows], others, groups[rows]


def _mean_change(positive: Embeddings, negative: Embeddings) -> Vector:
    return np.asarray(np.abs(positive - negative).mean(axis=0), dtype=np.float64)


def _median(tests: Sequence[Any]) -> float:
    return float(np.median([test.p_value for test in tests]))


def _agreement(one: Vector, other: Vector) -> float:
    return float(spearmanr(one, other).statistic)


LEAST_DIMENSIONS = 2
ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class DecileTest:
    """Wilcoxon's signed-rank test of the top against the bottom of a ranking.

    Attributes:
        top, bottom: means of the tested figures.
        p_value: two-sided; 1 if all differences are 0.
        higher: number of pairs in which the top's figure is higher.
        dimensions: number of dimensions at either end.
    """

    top: float
    bottom: float
    p_value: float
    higher: int
    dimensions: int

    def to_record(self) -> dict[str, Any]:
        return asdict(self)


def decile_test(ranked: Vector, tested: Vector, *, share: float = 0.1) -> DecileTest:
    """Return the test of ``tested`` (n,) between the dimensions with the highest and the lowest ``ranked`` (n,).

    Pairs are made by rank: the highest with the lowest, the second with the second lowest, and so on.

    Raises:
        InvalidInputError: ``share`` of the dimensions is fewer than two.
    """
    from scipy.stats import wilcoxon

    n = len(ranked)
    count = round(share * n)
    if not 0 < share <= 0.5 or count < LEAST_DIMENSIONS:
        allowed = f"at most 0.5, and {LEAST_DIMENSIONS} dimensions or more of {n}"
        raise out_of_range("decile_test", "share", allowed, share)
    order = np.argsort(-ranked, kind="stable")
    top, bottom = tested[order[:count]], tested[order[::-1][:count]]
    difference = top - bottom
    p_value = float(wilcoxon(difference).pvalue) if difference.any() else 1.0
    return DecileTest(float(top.mean()), float(bottom.mean()), p_value, int((difference > 0).sum()), count)


def decile_means(ranked: Vector, tested: Vector) -> list[float]:
    """Return the mean of ``tested`` in ten parts of the dimensions, from the highest ``ranked`` to the lowest."""
    order = np.argsort(-ranked, kind="stable")
    return [float(tested[part].mean()) for part in np.array_split(order, 10)]


def permuted_tests(
    ranked: Vector, tested: Vector, *, draws: int, share: float, rng: np.random.Generator
) -> list[DecileTest]:
    """Return tests with permuted ranks: the null distribution."""
    return [decile_test(rng.permutation(ranked), tested, share=share) for _ in range(draws)]


def noise_tests(
    sensitivity: Callable[[Embeddings, Embeddings], Vector],
    pairs: int,
    dimension: int,
    *,
    draws: int,
    share: float,
    rng: np.random.Generator,
) -> tuple[list[DecileTest], list[DecileTest]]:
    """Return tests on pure noise: ranked and tested on all pairs, and ranked on one half and tested on the other."""
    circular, held_out = [], []
    half = pairs // 2
    for _ in range(draws):
        P, N = (rng.standard_normal((pairs, dimension), dtype=np.float32) for _ in range(2))
        both = sensitivity(P, N)
        circular.append(decile_test(both, both, share=share))
        first, second = sensitivity(P[:half], N[:half]), sensitivity(P[half:], N[half:])
        held_out.append(decile_test(first, second, share=share))
    return circular, held_out


def share_below(tests: Sequence[DecileTest]) -> float:
    return float(np.mean([test.p_value <= ALPHA for test in tests]))


TABLE = "sparse-appendix-a"
OVER = {"pairs": "largest over pairs", "sets": "largest over D+ × D- (Definition 7)", "mean": "mean over pairs"}
RANKED_BY = {"concept": "ranked by the concept", "other_words": "ranked by other words", "permuted": "permuted ranks"}
SOURCE = "SPARSE, Appendix A"
AS_WELL = 0.8  # share of the concept's rank correlation above which other words rank the dimensions as well
DIFFERENCE = note("sensitivity")


_NAMED = [draw.axis("Data", 0), draw.axis("Change", 1, OVER.__getitem__)]


def _deciles(records: Records) -> Table:
    paper = draw.beside([TABLE], "sensitivity", decile="top")

    def top(key: tuple[str, str], own: Records) -> Number | None:
        return own.plain("held_out", "top", digits=4, published=paper if key[1] != "mean" else None)

    return draw.table(
        "Deciles",
        records.each("problem", "over"),
        [
            *_NAMED,
            draw.plain("Pairs", "pairs"),
            draw.column("Mean of the top tenth", top),
            draw.plain("Mean of the bottom tenth", "held_out", "bottom", digits=4),
            _p("p, ranked on the other half", "held_out", "p_value"),
            _p("p, ranked on the same (as the paper)", "circular", "p_value"),
            _p("p of pure noise, ranked on the same", "noise", "circular"),
        ],
        "Mean sensitivity of the top and the bottom tenth of the dimensions, and two-sided p-values of Wilcoxon's "
        "signed-rank test between them; medians over seeds, and over draws of noise.",
        [f"The paper's p-value is {_paper_p()}.", *published(TABLE).notes],
    )


def _paper_p() -> str:
    return f"{float(published(TABLE).setting['p_value']):.2e}"


def _controls(records: Records) -> Table:
    return draw.table(
        "Controls",
        records.each("problem", "over"),
        [
            *_NAMED,
            draw.percent(f"Permuted ranks with p ≤ {ALPHA}", "permuted", "share"),
            draw.percent(f"Noise, halves, p ≤ {ALPHA}", "noise", "held_out_share"),
            _p("p, ranked by other words", "other_words", "p_value"),
            _p("p, relative to each spread", "relative", "p_value"),
            draw.plain("Rank correlation, halves", "agreement", "halves", digits=2),
            draw.plain("with other words", "agreement", "other_words", digits=2),
            draw.plain("with the spread", "agreement", "spread", digits=2),
        ],
        "Controls. Permuted ranks and noise: false positives of the test by halves. Other words: the ranking comes "
        "from removing as many random words that are not of the concept from the same texts. "
        "Spread: the standard deviation of each dimension over the texts.",
    )


def _p(name: str, *path: str) -> draw.Drawn:
    """Return the column of a p-value, its median over seeds."""

    def cell(key: tuple[str, ...], rows: Records) -> str | None:
        values = rows.figures(*path)
        return f"{statistics.median(values):.1e}" if values else None

    return draw.column(name, cell, text=True)


def _curve(name: str, records: Records) -> Figure:
    first = records.values("over")[0]
    rows = records.where(over=first)
    series = []
    for key, title in RANKED_BY.items():
        lines = zip(*(row["found"]["deciles"][key] for row in rows), strict=True)
        points: list[Point] = [Point(float(i), statistics.fmean(values)) for i, values in enumerate(lines, start=1)]
        series.append(Series(title, points, dashed=key == "permuted"))
    return Figure(
        f"{name}: sensitivity of the held-out half by decile",
        caption=f"Decile 1 has the dimensions that the other half ranks highest. Change: {OVER[first]}.",
        x=XAxis("decile"),
        y=YAxis("mean sensitivity"),
        series=series,
    )


def _findings(records: Records) -> list[ClaimFinding]:
    rows = [
        {"problem": problem, "over": over, "decile": decile, "sensitivity": own.measured("held_out", decile)}
        for (problem, over), own in records.each("problem", "over")
        for decile in ("top", "bottom")
    ]
    found = draw.findings_of("sensitivity", rows, ("problem", "over", "decile"), difference=DIFFERENCE)
    if not len(records):
        return found
    noise = statistics.median(records.figures("noise", "circular"))
    real = statistics.median(records.figures("circular", "p_value"))
    cells = len(records)
    seen = sum(p <= ALPHA for p in records.figures("held_out", "p_value"))
    return [
        *found,
        ClaimFinding(
            "A p-value from ranking and testing on the same figures shows that there are privacy neurons.",
            SOURCE,
            "disagrees" if noise <= ALPHA else "unclear",
            f"the same test gives p = {noise:.1e} on pure noise, and {real:.1e} on the texts",
            f"p = {_paper_p()}",
            "No data can satisfy the null hypothesis of this test: the top of a ranking is above its bottom.",
        ),
        ClaimFinding(
            "Dimensions that are sensitive to the concept on some texts are sensitive on others.",
            SOURCE,
            verdict(Tally(seen, 0, cells), fewest=1),
            f"p ≤ {ALPHA} in {seen} of {cells} cells ranked on one half and tested on the other",
        ),
        *(_of_the_concept(over, own) for (over,), own in records.each("over")),
    ]


def _of_the_concept(over: str, records: Records) -> ClaimFinding:
    """Return whether words outside the concept rank the dimensions worse than the concept does."""
    halves, others = (records.figures("agreement", key) for key in ("halves", "other_words"))
    outcomes: list[tuple[int, dict[str, Any]]] = []
    for _, own in records.each("problem"):
        one, other = (own.measured("agreement", key) for key in ("other_words", "halves"))
        outcomes += [(-compare(one, other, times=AS_WELL), {})] if one and other else []
    tally = Tally.of(outcomes, margin=True)
    return ClaimFinding(
        f"The sensitive dimensions are those of the concept, not those that any removed word moves ({OVER[over]}).",
        SOURCE,
        verdict(tally, fewest=1),
        f"rank correlation with the concept on other texts: {statistics.fmean(halves):.2f} ranked by the concept, "
        f"{statistics.fmean(others):.2f} by other words; below {AS_WELL} times the former {tally}",
        "not tested",
    )
