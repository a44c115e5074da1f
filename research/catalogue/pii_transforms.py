"""SPARSE, Table 9: text transforms against noise on vectors, and the leakage removed per utility lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from research import tables as draw
from research.bench import Bench
from research.catalogue.tradeoff import AXES
from research.experiment import Cell, Records, note
from research.grid import Grid, GridSpec
from research.judging import Measured
from research.points import leakage, utility_record
from research.problems import grouped_concept
from research.results import Number, Summary, Table, number
from research.specification import check_names, wrong
from research.tasks import read_task, task_texts
from vecveil.auditing.metrics import Estimate
from vecveil.privacy.concepts.rewriting import Rewriter
from vecveil.privacy.protector.methods import TEXT_METHODS
from vecveil.privacy.utility.estimates import trade_off_rate

TABLES = ("sparse-table-9",)
ABOUT = note("pii-transforms")
CHANGED = "text"  # placeholder: a text transform has no scale


class TransformSpec(GridSpec, frozen=True, kw_only=True):
    """A grid, and the text transforms beside it."""

    transforms: tuple[str, ...] = ("redact", "replace-random", "replace-semantic")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("transforms", self.transforms, TEXT_METHODS)


class PiiTransforms(Grid[TransformSpec]):
    name = "pii-transforms"
    what = "PII redacted or replaced in the text before encoding, against noise on the vectors."
    source = "SPARSE, Table 9"
    spec_type = TransformSpec

    def cells(self, spec: TransformSpec) -> list[Cell]:
        changed = [
            Cell.of(problem=problem, method=method, scale=CHANGED, seed=seed)
            for seed in spec.all_seeds
            for problem in spec.problems
            for method in spec.transforms
        ]
        return [*super().cells(spec), *changed]

    def prepare(self, spec: TransformSpec, bench: Bench, cells: Sequence[Cell]) -> None:
        super().prepare(spec, bench, cells)
        texts: list[str] = []
        for cell in cells:
            if cell["scale"] == CHANGED:
                rewriter = _rewriter(bench, cell)
                texts += rewriter.rewrite(bench.problem(cell["problem"]).texts, show_progress=False)
                texts += rewriter.rewrite(
                    task_texts(bench.utility_of(cell["problem"]), bench.data), show_progress=False
                )
        bench.encoder().encode(list(dict.fromkeys(texts)), show_progress=bench.show_progress)

    def measure(self, spec: TransformSpec, cell: Cell, bench: Bench) -> dict[str, Any]:
        if cell["scale"] != CHANGED:
            return super().measure(spec, cell, bench)
        material = bench.material(cell["problem"], cell["seed"])
        rewriter = _rewriter(bench, cell)
        encoder = bench.encoder()
        Y = encoder.encode(rewriter.rewrite(material.problem.texts, show_progress=False))
        task = read_task(
            bench.utility_of(cell["problem"]),
            bench.data,
            lambda texts: encoder.encode(rewriter.rewrite(list(texts), show_progress=False)),
        )
        kept = utility_record(task.clean(), material.task.clean())
        return {"utility": kept, **leakage(material, None, spec.attacks, changed=np.asarray(Y)), "protector": None}

    def summary(self, spec: TransformSpec, records: Records) -> Summary:
        problems = records.values("problem")
        enough = draw.counted(records)
        rows = [row for name in enough.values("problem") for row in _rows(enough, name)]
        findings = draw.findings_of("pii-transforms", rows, ("dataset", "method", "epsilon"), difference=draw.SETTING)
        tables = [_table(records, name) for name in problems]
        return Summary(tables, findings=findings, notes=[ABOUT, AXES, draw.SETTING])


def _rewriter(bench: Bench, cell: Cell) -> Rewriter:
    problem = bench.problem(cell["problem"])
    concept = grouped_concept(problem, bench.data)
    matches = concept.find(problem.texts, show_progress=False)
    method = TEXT_METHODS[cell["method"]]
    found = method.build(matches, concept, cell["seed"], method.option_type())
    if found.needs_spans:
        raise wrong(
            "concept",
            f"The `concept` of problem {cell['problem']!r} is annotated spans. The texts of the utility task have "
            "none: use terms, patterns or entities.",
        )
    return found


def _live(own: Records) -> list[str]:
    """Return the classifiers that decide R, the strongest first; ``transplant`` learns from no changed text."""
    return [name for name in draw.live_attacks(own) if name != "transplant"]


def _rate(records: Records, problem: str, rows: Records, attack: str, *, assumed: bool) -> float:
    """Return R from means over seeds, of the leakage of Eq. 13 to one attack."""
    clean = records.where(problem=problem, method="none")
    paths = ("attacks", attack, "leakage"), ("utility",)
    means = [one.number(*path, "value") for one in (clean, rows) for path in paths]
    if None in means:
        return math.nan
    before, had, after, has = (mean.value for mean in means if mean is not None)
    found: Estimate = trade_off_rate(before, 0.0 if assumed else after, had, has)
    return found.value


def _table(records: Records, problem: str) -> Table:
    def keys(key: tuple[str, str]) -> dict[str, Any]:
        """Return the paper's keys; ε = -1, which no row of its table has, for a scale without a counterpart."""
        method, scale = key
        found = {"dataset": problem, "method": method}
        epsilon = None if scale == CHANGED else draw.epsilon_of(scale)
        return found if scale == CHANGED else {**found, "epsilon": -1.0 if epsilon is None else epsilon}

    own = records.where(problem=problem)
    live, few = _live(own), draw.few_texts(own)

    def paper(name: str) -> draw.Published:
        return lambda key: None if few else draw.share_beside(TABLES, name, **keys(key))

    def rate(key: tuple[str, str], rows: Records, *, assumed: bool) -> Number | str | None:
        changed = key[1] == CHANGED
        if assumed and not changed:
            return "–"
        values = [] if key[0] == "none" or not live else [_rate(records, problem, rows, live[0], assumed=assumed)]
        theirs = draw.beside(TABLES, "rate", **keys(key)) if not few and (assumed or not changed) else None
        return number(values, percent=False, published=theirs)

    return draw.table(
        draw.marked(own, problem),
        own.each("method", "scale"),
        [
            draw.axis("Method", 0, draw.method_name),
            draw.axis("Scale", 1),
            draw.estimate("Leakage, strongest attack", "leakage", published=paper("leakage")),
            draw.percent("Chance", "leakage", "chance"),
            draw.percent("Utility", "utility", "value", published=paper("utility")),
            draw.percent("Utility kept", "utility", "relative"),
            draw.column("R, leakage measured", partial(rate, assumed=False)),
            draw.column("R, no leakage assumed", partial(rate, assumed=True)),
        ],
        f"R: of the leakage of Eq. 13 to `{live[0]}`, the strongest on clean vectors." if live else "",
    )


def _rows(records: Records, problem: str) -> list[dict[str, Any]]:
    """Return our rows with the paper's keys, under the paper's assumption that changed words leak nothing.

    The rate is that of the leakage of Eq. 13 to the classifier that is strongest on clean vectors.
    """
    own = records.where(problem=problem)
    live, found = _live(own), []
    for (method, scale), rows in own.each("method", "scale") if live else ():
        epsilon = None if scale == CHANGED else draw.epsilon_of(scale)
        if scale != CHANGED and epsilon is None:
            continue
        rates = {
            seed: rate
            for (seed,), at in rows.each("seed")
            if math.isfinite(rate := _rate(own.where(seed=seed), problem, at, live[0], assumed=scale == CHANGED))
        }
        found.append(
            {
                "dataset": problem,
                "method": method,
                "epsilon": epsilon,
                "utility": rows.measured("utility", factor=100),
                "rate": Measured(rates) if rates and method != "none" else None,
            }
        )
    return found
