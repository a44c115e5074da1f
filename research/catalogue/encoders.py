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
from research.specification import Spec, digest
from research.tables import METHOD_NAMES, SETTING, beside, findings_of
from vecveil.encoders import LsaEncoder
from vecveil.encoders.lsa import LSA_FILE
from vecveil.errors import InvalidInputError, MissingDependencyError
from vecveil.records.experiment import Cell as TableCell
from vecveil.records.experiment import (
    ClaimFinding,
    Column,
    Figure,
    Number,
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
        for name in self.lsa:
            if name not in known:
                wanted = "of " + ", ".join(known)
                raise InvalidInputError.of("experiment", "lsa", wanted, repr(name)[:40])


class EmbeddingModels(Experiment):
    """Cells with the axes problem, encoder, method, scale and seed."""

    name = "encoders"
    what = "Leakage and utility of each method under several encoders."
    source = "SPARSE, Table 8"
    spec_type = EmbeddingModelsSpec

    def cells(self, spec: Spec) -> list[Cell]:
        """Return the cells, those of an encoder side by side."""
        assert isinstance(spec, EmbeddingModelsSpec)
        return [
            Cell.of(problem=problem, encoder=encoder, method=method, scale=scale, seed=seed)
            for seed in range(spec.seeds)
            for problem in spec.problems
            for encoder in spec.encoders
            for method in ("none", *spec.methods)
            for scale in spec.scales
            if (method == "none") == (scale == "clean")
        ]

    def settings(self, spec: Spec, cell: Cell) -> dict[str, Any]:
        """Return what decides a cell."""
        assert isinstance(spec, EmbeddingModelsSpec)
        source = spec.encoders[cell["encoder"]]
        own = {"encoder": source, "lsa": dict(spec.lsa) if source == LSA else None}
        return {**super().settings(spec, cell), **own}

    def prepare(self, spec: Spec, bench: Bench, cells: Sequence[Cell]) -> None:
        """Load each encoder and encode each problem's texts with it."""
        assert isinstance(spec, EmbeddingModelsSpec)
        for name, key in dict.fromkeys((cell["problem"], cell["encoder"]) for cell in cells):
            encoder = _encoder(spec, bench, name, spec.encoders[key])
            if not isinstance(encoder, str):
                bench.encode(name, encoder)

    def measure(self, spec: Spec, cell: Cell, bench: Bench) -> dict[str, Any]:
        """Return the point of a cell, or why its encoder could not be loaded."""
        assert isinstance(spec, EmbeddingModelsSpec)
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

    def summary(self, spec: Spec, records: Records) -> Summary:
        """Return a table for each problem beside the paper's, and what could not be measured."""
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
    tables = [*(_table(records, name) for name in records.values("problem")), _paper()]
    figures = [_curve(measured, name) for name in measured.values("problem")]
    notes = [f"{name}: not measured. {reason}" for name, reason in missing.items()]
    return Summary(
        tables=tables, figures=figures, findings=_findings(measured, sorted(missing)),
        notes=[*notes, *published(TABLE).notes],
    )  # fmt: skip


def _table(records: Records, problem: str) -> Table:
    columns = [
        Column("Encoder", text=True), Column("Dimension"), Column("Method", text=True), Column("Scale", text=True),
        Column("Leakage, strongest attack", "%"), Column("Chance", "%"), Column("Utility", "%"),
        Column("Utility kept", "%"),
    ]  # fmt: skip
    rows: list[list[TableCell]] = []
    own = records.where(problem=problem)
    for (encoder, method, scale), at in own.each("encoder", "method", "scale"):
        if "skipped" in at[0]["found"]:
            if [encoder] != [row[0] for row in rows[-1:]]:
                rows.append([encoder, None, "not measured", "", None, None, None, None])
            continue
        keys: dict[str, Any] = {
            "encoder": encoder, "method": method, "epsilon": parse_scale(scale).value, "problem": problem,
        }  # fmt: skip
        close = parse_scale(scale).kind in ("effective", "clean")
        rows.append(
            [
                encoder, number(at.figures("encoder", "dimension")[:1], percent=False, digits=0),
                METHOD_NAMES.get(method, method), scale, _figure(at, "leakage", keys if close else None),
                number(at.figures("leakage", "chance")), _figure(at, "utility", keys if close else None),
                number(at.figures("utility", "relative")),
            ]
        )  # fmt: skip
    caption = f"{SETTING} An encoder that could not be loaded is not measured; the notes say why."
    return Table(f"{problem}: encoders", columns, rows, caption)


def _paper() -> Table:
    """Return the paper's figures, also of encoders that could not be loaded here."""
    columns = [
        Column("Encoder", text=True), Column("Method", text=True), Column("ε"), Column("Leakage", "%"),
        Column("Utility", "%"),
    ]  # fmt: skip
    table = published(TABLE)
    rows: list[list[TableCell]] = [
        [
            row["encoder"], METHOD_NAMES.get(row["method"], row["method"]),
            None if math.isinf(row["epsilon"]) else Number(row["epsilon"], percent=False, digits=0),
            Number(row["leakage"] / 100), Number(row["utility"] / 100),
        ]
        for row in table.rows
    ]  # fmt: skip
    return Table(f"As printed in {table.source}", columns, rows, table.caption)


def _figure(rows: Records, key: str, keys: dict[str, Any] | None) -> Number | None:
    paper = None
    if keys is not None and keys["problem"] in (published(TABLE).setting["data"] or ()):
        own = {k: v for k, v in keys.items() if k != "problem"}
        found = beside([TABLE], key, **own)
        paper = None if found is None else found / 100
    return number(
        rows.figures(key, "value"), low=rows.figures(key, "low"), high=rows.figures(key, "high"), published=paper,
    )  # fmt: skip


def _curve(records: Records, problem: str) -> Figure:
    """Return leakage against utility kept: a line for each encoder and method, a point for each scale."""
    series = []
    for (encoder, method), own in records.where(problem=problem).each("encoder", "method"):
        points = []
        for _, at in own.each("scale"):
            x, y = number(at.figures("utility", "relative")), number(at.figures("leakage", "value"))
            if x is not None and y is not None:
                points.append((x.value, y.value, None, None))
        name = f"{encoder}, {METHOD_NAMES.get(method, method)}"
        series.append(Series(name, sorted(points), dashed=method == "none"))
    return Figure(
        f"{problem}: leakage and utility by encoder", caption="Lower right is better.",
        x="utility kept", y="leakage (R-precision)", series=series,
    )  # fmt: skip


def _findings(records: Records, missing: list[str]) -> list[ClaimFinding]:
    rows = []
    for (problem, encoder, method, scale), at in records.each(
        "problem", "encoder", "method", "scale"
    ):
        parsed = parse_scale(scale)
        leak, kept = number(at.figures("leakage", "value")), number(at.figures("utility", "value"))
        if parsed.kind == "effective" and leak is not None and kept is not None:
            rows.append(
                {"problem": problem, "encoder": encoder, "method": method, "epsilon": parsed.value,
                 "leakage": 100 * leak.value, "utility": 100 * kept.value}
            )  # fmt: skip
    without = f" Of the encoders asked for, not measured: {', '.join(missing)}." if missing else ""
    keys = ("problem", "encoder", "epsilon", "method")
    return [*findings_of("encoders", rows, keys, difference=SETTING + without), *_ours(records)]


def _ours(records: Records) -> list[ClaimFinding]:
    """Return whether the subspace method leaks less than SPARSE at equal utility, under every encoder."""
    said, held = [], 0
    for (problem, encoder, scale), at in records.each("problem", "encoder", "scale"):
        if parse_scale(scale).kind != "utility":
            continue
        excess = {method: _excess(at.where(method=method)) for method in ("sparse", "subspace")}
        if not all(map(math.isfinite, excess.values())):
            continue
        held += excess["subspace"] < excess["sparse"]
        said.append(
            f"{problem}, {encoder}: {100 * excess['subspace']:.1f} against {100 * excess['sparse']:.1f} points"
        )
    if not said:
        return []
    return [
        ClaimFinding(
            "At equal utility the subspace method leaks less above chance than SPARSE, whatever the encoder.", "own",
            "agrees" if held == len(said) else "disagrees" if held == 0 else "unclear", "; ".join(said),
        )
    ]  # fmt: skip


def _excess(rows: Records) -> float:
    value, chance = (
        number(rows.figures("leakage", "value")),
        number(rows.figures("leakage", "chance")),
    )
    return math.nan if value is None or chance is None else value.value - chance.value
