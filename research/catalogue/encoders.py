"""SPARSE, Table 8: leakage and utility under several encoders; unavailable encoders are reported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from research import tables as draw
from research.bench import Bench
from research.experiment import Cell, Experiment, Records
from research.grid import GridSpec, points
from research.judging import Order, verdict
from research.points import measure_point
from research.published import published
from research.results import ClaimFinding, Figure, Summary, Table, XAxis, YAxis, number
from research.scales import parse_scale
from research.specification import check_names, digest
from vecveil.errors import InvalidInputError, MissingDependencyError
from vecveil.texts.encoders import LsaEncoder
from vecveil.texts.encoders.lsa import LSA_FILE

LSA = "lsa"
DIMENSION = 300


class EmbeddingModelsSpec(GridSpec, frozen=True, kw_only=True):
    """Encoders, methods and scales.

    Attributes:
        encoders: name in the tables -> a name or folder for `vecveil.load_encoder`; ``lsa`` is fitted on the problem's
            own texts.
        lsa: options of `LsaEncoder.fit`.
    """

    encoders: dict[str, str]
    lsa: dict[str, int] = msgspec.field(default_factory=lambda: {"dimension": DIMENSION})
    scales: tuple[str, ...] = ("clean", "effective 10", "utility 0.95")

    def __post_init__(self) -> None:
        super().__post_init__()
        known = ("dimension", "ngrams", "min_texts", "max_terms", "seed")
        check_names("lsa", self.lsa, known)


class EmbeddingModels(Experiment[EmbeddingModelsSpec]):
    """Cells with the axes problem, encoder, method, scale and seed."""

    name = "encoders"
    what = "Leakage and utility of each method under several encoders."
    source = "SPARSE, Table 8"
    spec_type = EmbeddingModelsSpec

    def cells(self, spec: EmbeddingModelsSpec) -> list[Cell]:
        places = [{"problem": problem, "encoder": encoder} for problem in spec.problems for encoder in spec.encoders]
        return points(spec, places)

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
        found = measure_point(bench, material, cell["method"], parse_scale(cell["scale"]), spec.attacks)
        about = {"name": encoder.name, "dimension": material.positive.shape[1], "fingerprint": encoder.fingerprint}
        return {**found, "encoder": about}

    def summary(self, spec: EmbeddingModelsSpec, records: Records) -> Summary:
        measured = Records([row for row in records if "skipped" not in row["found"]])
        missing = {row["cell"]["encoder"]: row["found"]["skipped"] for row in records if "skipped" in row["found"]}
        notes = [f"{name}: not measured. {reason}" for name, reason in missing.items()]
        return Summary(
            tables=[*(_table(records, name) for name in records.values("problem")), draw.as_published(TABLE)],
            figures=[_curve(measured, name) for name in measured.values("problem")],
            findings=_findings(measured, sorted(missing)),
            notes=[*notes, *published(TABLE).notes],
        )


def _encoder(spec: EmbeddingModelsSpec, bench: Bench, problem: str, source: str) -> Any:
    """Return an encoder, or the reason why it cannot be loaded; one attempt per process."""

    def load() -> Any:
        try:
            return bench.encoder(source)
        except (InvalidInputError, MissingDependencyError) as error:
            return str(error)

    if source == LSA:
        return bench.encoder(str(_fitted(spec, bench, problem)))
    return bench.once(("loaded", source), load)


def _fitted(spec: EmbeddingModelsSpec, bench: Bench, name: str) -> Path:
    """Return the folder of the LSA encoder of a problem's texts, fitting it if needed."""
    problem = bench.problem(name)
    folder = bench.work / f"lsa-{digest([problem.digest, dict(spec.lsa)])}"
    if not (folder / LSA_FILE).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        LsaEncoder.fit(problem.texts, **spec.lsa).save(folder)
    return folder


TABLE = "sparse-table-8"


def _table(records: Records, problem: str) -> Table:
    in_paper = problem in (published(TABLE).setting["data"] or ())
    few = draw.few_texts(records.where(problem=problem))

    def paper(name: str) -> draw.Published:
        def find(key: tuple[str, str, str]) -> float | None:
            encoder, method, scale = key
            epsilon = draw.epsilon_of(scale) if in_paper and scale and not few else None
            return draw.share_beside([TABLE], name, encoder=encoder, method=method, epsilon=epsilon)

        return find

    groups: list[draw.Group] = []
    for key, at in records.where(problem=problem).each("encoder", "method", "scale"):
        if "skipped" not in at[0]["found"]:
            groups.append((key, at))
        elif [key[0]] != [known[0] for known, _ in groups[-1:]]:  # one row an encoder
            groups.append(((key[0], "not measured", ""), Records([])))
    dimension = ("encoder", "dimension")
    return draw.table(
        draw.marked(records.where(problem=problem), f"{problem}: encoders"),
        groups,
        [
            draw.axis("Encoder", 0),
            draw.column("Model", lambda _, rows: _model(rows), text=True),
            draw.column("Dimension", lambda key, rows: number(rows.figures(*dimension)[:1], percent=False, digits=0)),
            draw.axis("Method", 1, draw.method_name),
            draw.axis("Scale", 2),
            *draw.measured(paper),
        ],
        f"{draw.SETTING} The notes say why an encoder could not be loaded.",
    )


def _model(rows: Records) -> str | None:
    return next((row["found"]["encoder"]["name"] for row in rows if "encoder" in row["found"]), None)


def _curve(records: Records, problem: str) -> Figure:
    kept, leaks = ("utility", "relative"), ("leakage", "value")
    series = [
        draw.line(
            f"{encoder}, {draw.method_name(method)}",
            ((at.number(*kept), at.number(*leaks)) for _, at in own.each("scale")),
            band=False,
            dashed=method == "none",
        )
        for (encoder, method), own in records.where(problem=problem).each("encoder", "method")
    ]
    return Figure(
        f"{problem}: leakage and utility by encoder",
        caption="Lower right is better.",
        x=XAxis("utility kept"),
        y=YAxis("leakage (R-precision)"),
        series=series,
    )


def _findings(records: Records, missing: list[str]) -> list[ClaimFinding]:
    places = ("problem", "encoder", "method", "scale")
    rows = draw.paper_rows(records, *places, kinds=("effective", "clean"), within=("encoder",))
    without = f" Not measured: {', '.join(missing)}." if missing else ""
    axes = ("dataset", "encoder", "epsilon", "method")
    ours = _ours(draw.alive(records, "encoder"))
    return [*draw.findings_of("encoders", rows, axes, difference=draw.SETTING + without), *ours]


def _ours(records: Records) -> list[ClaimFinding]:
    """Return whether the subspace method leaks less than SPARSE at equal utility under the encoders tried."""
    rows, lines = [], []
    for (problem, encoder, scale, method), at in records.each("problem", "encoder", "scale", "method"):
        if parse_scale(scale).kind == "utility" and (excess := draw.excess_of(at)):
            rows.append({"problem": problem, "encoder": encoder, "scale": scale, "method": method, "excess": excess})
    for (problem, encoder), _ in records.each("problem", "encoder"):
        of = [row for row in rows if (row["problem"], row["encoder"]) == (problem, encoder)]
        both = {row["method"]: row["excess"].value for row in of}
        if {"subspace", "sparse"} <= both.keys():
            lines.append(f"{problem}, {encoder}: {both['subspace']:.1f} against {both['sparse']:.1f} points")
    order = Order("excess", {"method": "subspace"}, {"method": "sparse"}, "lower")
    tally = order.tally(rows, ("problem", "encoder", "scale"))
    claim = "At equal utility the subspace method leaks less above chance than SPARSE, under the encoders tried."
    return [ClaimFinding(claim, "own", verdict(tally, fewest=1), "; ".join(lines))] if lines else []
