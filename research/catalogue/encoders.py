"""SPARSE, Table 8: leakage and utility under several encoders; those that cannot be loaded are said so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from research.bench import Bench
from research.experiment import Cell, Experiment, Records
from research.points import attacks_named, measure_point
from research.published import published
from research.scales import parse_scale
from research.specification import Spec, check_names, digest
from research.tables import (
    SETTING,
    epsilon_of,
    excess,
    findings_of,
    method_name,
    percent,
    plain,
    share_beside,
    share_verdict,
    words,
)
from vecveil.encoders import LsaEncoder
from vecveil.encoders.lsa import LSA_FILE
from vecveil.errors import InvalidInputError, MissingDependencyError
from vecveil.records.experiment import Cell as TableCell
from vecveil.records.experiment import (
    ClaimFinding,
    Figure,
    Number,
    Point,
    Series,
    Summary,
    Table,
    number,
)

LSA = "lsa"
DIMENSION = 300


@dataclass(frozen=True, kw_only=True)
class EmbeddingModelsSpec(Spec):
    """What is compared.

    Attributes:
        encoders: name in the tables -> a name or folder for `vecveil.load_encoder`; ``lsa`` is fitted on the
            problem's own texts.
        lsa: options of `LsaEncoder.fit`.
        methods, scales: see the grid of ``tradeoff``; ``clean`` is measured once for all methods.
    """

    encoders: dict[str, str]
    lsa: dict[str, int] = field(default_factory=lambda: {"dimension": DIMENSION})
    methods: tuple[str, ...] = ("laplace", "purkayastha", "sparse", "subspace")
    scales: tuple[str, ...] = ("clean", "effective 10", "utility 0.95")

    def __post_init__(self) -> None:
        for scale in self.scales:
            parse_scale(scale)
        attacks_named(self.attacks, further=True)
        known = ("dimension", "ngrams", "min_texts", "max_terms", "seed")
        check_names("lsa", self.lsa, known)


class EmbeddingModels(Experiment[EmbeddingModelsSpec]):
    """Cells with the axes problem, encoder, method, scale and seed."""

    name = "encoders"
    what = "Leakage and utility of each method under several encoders."
    source = "SPARSE, Table 8"
    spec_type = EmbeddingModelsSpec

    def cells(self, spec: EmbeddingModelsSpec) -> list[Cell]:
        return [
            Cell.of(problem=problem, encoder=encoder, method=method, scale=scale, seed=seed)
            for seed in range(spec.seeds)
            for problem in spec.problems
            for encoder in spec.encoders
            for method in ("none", *spec.methods)
            for scale in spec.scales
            if (method == "none") == (scale == "clean")
        ]

    def settings(self, spec: EmbeddingModelsSpec, cell: Cell) -> dict[str, Any]:
        source = spec.encoders[cell["encoder"]]
        own = {"encoder": source, "lsa": dict(spec.lsa) if source == LSA else None}
        return {**super().settings(spec, cell), **own}

    def prepare(self, spec: EmbeddingModelsSpec, bench: Bench, cells: Sequence[Cell]) -> None:
        for name, key in dict.fromkeys((cell["problem"], cell["encoder"]) for cell in cells):
            encoder = _encoder(spec, bench, name, spec.encoders[key])
            if not isinstance(encoder, str):
                bench.encode(name, encoder)

    def measure(self, spec: EmbeddingModelsSpec, cell: Cell, bench: Bench) -> dict[str, Any]:
        encoder = _encoder(spec, bench, cell["problem"], spec.encoders[cell["encoder"]])
        if isinstance(encoder, str):
            return {"skipped": encoder}
        material = bench.material(cell["problem"], cell["seed"], encoder)
        found = measure_point(
            bench, material, cell["method"], parse_scale(cell["scale"]), spec.attacks
        )
        about = {
            "name": encoder.name,
            "dimension": material.positive.shape[1],
            "fingerprint": encoder.fingerprint,
        }
        return {**found, "encoder": about}  # fmt: skip

    def summary(self, spec: EmbeddingModelsSpec, records: Records) -> Summary:
        return embedding_models_summary(records)


def _encoder(spec: EmbeddingModelsSpec, bench: Bench, problem: str, source: str) -> Any:
    """Return an encoder, or the reason that it cannot be loaded; it is tried once in a process."""

    def load() -> Any:
        try:
            return bench.encoder(source)
        except (InvalidInputError, MissingDependencyError) as error:
            return str(error)

    if source == LSA:
        return bench.encoder(str(_fitted(spec, bench, problem)))
    return bench.once(("loaded", source), load)


def _fitted(spec: EmbeddingModelsSpec, bench: Bench, name: str) -> Path:
    """Return the folder of the LSA encoder of a problem's texts; it is fitted if it is not there."""
    problem = bench.problem(name)
    folder = bench.work / f"lsa-{digest([problem.digest, dict(spec.lsa)])}"
    if not (folder / LSA_FILE).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        LsaEncoder.fit(problem.texts, **spec.lsa).save(folder)
    return folder


TABLE = "sparse-table-8"


def embedding_models_summary(records: Records) -> Summary:
    """Return tables, figures and findings."""
    measured = Records([row for row in records if "skipped" not in row["found"]])
    missing = {
        row["cell"]["encoder"]: row["found"]["skipped"]
        for row in records
        if "skipped" in row["found"]
    }
    notes = [f"{name}: not measured. {reason}" for name, reason in missing.items()]
    return Summary(
        tables=[*(_table(records, name) for name in records.values("problem")), _paper()],
        figures=[_curve(measured, name) for name in measured.values("problem")],
        findings=_findings(measured, sorted(missing)),
        notes=[*notes, *published(TABLE).notes],
    )


def _table(records: Records, problem: str) -> Table:
    columns = [
        *words("Encoder"), *plain("Dimension"), *words("Method", "Scale"),
        *percent("Leakage, strongest attack", "Chance", "Utility", "Utility kept"),
    ]  # fmt: skip
    in_paper = problem in (published(TABLE).setting["data"] or ())
    rows: list[list[TableCell]] = []
    for (encoder, method, scale), at in records.where(problem=problem).each(
        "encoder", "method", "scale"
    ):
        if "skipped" in at[0]["found"]:
            if [encoder] != [row[0] for row in rows[-1:]]:
                rows.append([encoder, None, "not measured", "", None, None, None, None])
            continue
        keys = {
            "encoder": encoder,
            "method": method,
            "epsilon": epsilon_of(scale) if in_paper else None,
        }
        leak, kept = (share_beside([TABLE], name, **keys) for name in ("leakage", "utility"))
        rows.append(
            [
                encoder, number(at.figures("encoder", "dimension")[:1], percent=False, digits=0),
                method_name(method), scale, at.estimate("leakage", published=leak), at.number("leakage", "chance"),
                at.estimate("utility", published=kept), at.number("utility", "relative"),
            ]
        )  # fmt: skip
    caption = f"{SETTING} An encoder that could not be loaded is not measured; the notes say why."
    return Table(f"{problem}: encoders", columns, rows, caption)


def _paper() -> Table:
    """Return the paper's figures, also of encoders that could not be loaded here."""
    table = published(TABLE)
    rows: list[list[TableCell]] = [
        [
            row["encoder"], method_name(row["method"]),
            None if math.isinf(row["epsilon"]) else Number(row["epsilon"], percent=False, digits=0),
            Number(row["leakage"] / 100), Number(row["utility"] / 100),
        ]
        for row in table.rows
    ]  # fmt: skip
    columns = [*words("Encoder", "Method"), *plain("ε"), *percent("Leakage", "Utility")]
    return Table(f"As printed in {table.source}", columns, rows, table.caption)


def _curve(records: Records, problem: str) -> Figure:
    """Return leakage against utility kept: a line for each encoder and method, a point for each scale."""
    series = []
    for (encoder, method), own in records.where(problem=problem).each("encoder", "method"):
        figures = [
            (at.number("utility", "relative"), at.number("leakage", "value"))
            for _, at in own.each("scale")
        ]
        points: list[Point] = sorted((x.value, y.value, None, None) for x, y in figures if x and y)
        series.append(Series(f"{encoder}, {method_name(method)}", points, dashed=method == "none"))
    return Figure(
        f"{problem}: leakage and utility by encoder", caption="Lower right is better.",
        x="utility kept", y="leakage (R-precision)", series=series,
    )  # fmt: skip


def _findings(records: Records, missing: list[str]) -> list[ClaimFinding]:
    rows = []
    keys = ("problem", "encoder", "method", "scale")
    for (problem, encoder, method, scale), at in records.each(*keys):
        parsed = parse_scale(scale)
        leak, kept = at.number("leakage", "value"), at.number("utility", "value")
        if parsed.kind == "effective" and leak is not None and kept is not None:
            rows.append(
                {"problem": problem, "encoder": encoder, "method": method, "epsilon": parsed.value,
                 "leakage": 100 * leak.value, "utility": 100 * kept.value}
            )  # fmt: skip
    without = f" Of the encoders asked for, not measured: {', '.join(missing)}." if missing else ""
    axes = ("problem", "encoder", "epsilon", "method")
    return [*findings_of("encoders", rows, axes, difference=SETTING + without), *_ours(records)]


def _ours(records: Records) -> list[ClaimFinding]:
    """Return whether the subspace method leaks less than SPARSE at equal utility, under every encoder."""
    lines, held = [], 0
    for (problem, encoder, scale), at in records.each("problem", "encoder", "scale"):
        ours, theirs = excess(at.where(method="subspace")), excess(at.where(method="sparse"))
        if parse_scale(scale).kind == "utility" and math.isfinite(ours) and math.isfinite(theirs):
            held += ours < theirs
            lines.append(
                f"{problem}, {encoder}: {100 * ours:.1f} against {100 * theirs:.1f} points"
            )
    claim = "At equal utility the subspace method leaks less above chance than SPARSE, whatever the encoder."
    verdict = share_verdict(held, len(lines), agrees=1, disagrees=0)
    return [ClaimFinding(claim, "own", verdict, "; ".join(lines))] if lines else []
