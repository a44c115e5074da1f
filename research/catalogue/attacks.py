"""SPARSE, Table 2: a word classifier and two attacks that reconstruct the text, trained on every defence."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from research import tables as draw
from research.bench import Bench, Material
from research.catalogue.tradeoff import AXES
from research.decoders import (
    WRITERS,
    DecoderSpec,
    Rows,
    check_decoders,
    corpus_digest,
    every_word,
    judged_rows,
    prepare_decoder,
    rewrite,
)
from research.experiment import Cell, Records, note
from research.grid import Grid, GridSpec
from research.judging import Measured, Order, Tally, compare, verdict
from research.points import defend, leakage, protector_record, short, utility
from research.results import ClaimFinding, Figure, Number, Point, Series, Summary, Table, XAxis, YAxis, number
from research.scales import parse_scale
from research.specification import Whole, check_names, digest, json_ready
from vecveil.auditing.metrics.text_similarity import reconstruction_leakage
from vecveil.privacy.protector import Protector

ATTACK_NAMES = {"mlc": "MLC", "geia": "GEIA", "vec2text": "Vec2Text"}
MLC = "mlc-published"
PUBLISHED = "sparse-table-2"
SETTING = note("attacks-setting")
MEASURES = note("attacks-measures")
TEXT_FIGURES = {
    "leakage_every_word": "Leakage, every word",
    "token_f1": "Token F1",
    "bleu": "BLEU",
    "rouge_l": "ROUGE-L",
    "exact_match": "Exact match",
    "cosine": "Cosine",
}


class WriterSpec(GridSpec, frozen=True, kw_only=True):
    """A grid on which reconstruction attacks run.

    Attributes:
        decoders: training of each attack.
        judged: maximum number of judged texts, equal for every attack.
    """

    decoders: dict[str, DecoderSpec] = {}
    judged: Whole = 400

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("decoders", self.decoders, WRITERS)
        check_decoders(self.decoders)

    def decoder(self, kind: str) -> DecoderSpec:
        return self.decoders.get(kind, DecoderSpec())


W = TypeVar("W", bound=WriterSpec)


class WriterGrid(Grid[W]):
    """A grid whose cells may run a reconstruction attack."""

    @abstractmethod
    def writer(self, spec: W, cell: Cell) -> str | None:
        """Return the reconstruction attack of a cell; None for token inference."""

    def settings(self, spec: W, cell: Cell) -> dict[str, Any]:
        """Return the settings of a cell: reconstruction depends on its decoder, token inference on ``attacks``."""
        given = {
            kind: [one.corpus, one.sentences]
            for kind, one in sorted(spec.decoders.items())
            if one.start_from is not None
        }
        found = {**super().settings(spec, cell), "judged": spec.judged, "left_out": given}
        kind = self.writer(spec, cell)
        if kind is None:
            return found
        decoder = json_ready(spec.decoder(kind))
        return {**found, "attacks": [], "further": False, "decoder": decoder}

    def data_digest(self, spec: W, bench: Bench, cell: Cell) -> str | None:
        own, kind = super().data_digest(spec, bench, cell), self.writer(spec, cell)
        return own if kind is None else digest([own, corpus_digest(bench, spec.decoder(kind))])

    def prepare(self, spec: W, bench: Bench, cells: Sequence[Cell]) -> None:
        super().prepare(spec, bench, cells)
        for problem, kind in dict.fromkeys((c["problem"], self.writer(spec, c)) for c in cells):
            if kind is not None:
                prepare_decoder(bench, problem, kind, spec.decoder(kind))

    def defended(self, spec: W, cell: Cell, bench: Bench) -> tuple[Material, Protector | None, Rows, dict[str, Any]]:
        """Return a cell's material, protector and judged rows, and the part of ``found`` that they determine."""
        material, method, scale = (bench.material(cell["problem"], cell["seed"]), cell["method"], cell["scale"])
        options = spec.method_options(method)
        # A process fits the protector once for all attacks.
        key = ("defence", cell["problem"], method, scale, cell["seed"], repr(options))
        protector = bench.once(key, lambda: defend(bench, material, method, parse_scale(scale), **options))
        rows, left_out = judged_rows(bench, material, spec.decoders, spec.judged)
        found = {
            "utility": utility(material.task, protector, material.seed),
            "protector": protector_record(protector),
            "texts": {"judged": len(rows), "left_out": left_out},
        }
        return material, protector, rows, found


class AttackModelsSpec(WriterSpec, frozen=True, kw_only=True):
    """Settings of Table 2.

    Attributes:
        models: attacks to compare, of ``mlc``, ``geia``, ``vec2text``. Cells of mlc also measure ``attacks``.
    """

    models: tuple[str, ...] = ("mlc", *WRITERS)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("models", self.models, ("mlc", *WRITERS))


class AttackModels(WriterGrid[AttackModelsSpec]):
    """Three attacks on every defence."""

    name = "attacks"
    what = "A word classifier and two text reconstruction attacks, trained on each defence, over ε."
    source = "SPARSE, Table 2"
    spec_type = AttackModelsSpec

    def cells(self, spec: AttackModelsSpec) -> list[Cell]:
        grid = super().cells(spec)
        return [Cell.of(attack=kind, **c.to_record()) for kind in spec.models for c in grid]

    def writer(self, spec: AttackModelsSpec, cell: Cell) -> str | None:
        return None if cell["attack"] == "mlc" else str(cell["attack"])

    def measure(self, spec: AttackModelsSpec, cell: Cell, bench: Bench) -> dict[str, Any]:
        material, protector, rows, common = self.defended(spec, cell, bench)
        kind = cell["attack"]
        if kind == "mlc":
            # The same texts are judged as by the attacks that write.
            narrowed = dataclasses.replace(material, case=dataclasses.replace(material.case, test=rows))
            names = tuple(dict.fromkeys((MLC, *spec.attacks)))
            found = leakage(narrowed, protector, names, further=spec.further)
            attacks, worst = found["attacks"], found["worst"]
            strongest = {"name": worst, **attacks[worst]}
            return {**common, "figures": attacks[MLC], "strongest": strongest, "attacks": attacks}
        written = rewrite(bench, material, kind, spec.decoder(kind), protector, label_of(cell), rows)
        words_of, groups = every_word(material), material.case.groups[rows]
        every = reconstruction_leakage(words_of(written.texts), words_of(written.written), groups)
        figures = {name: short(figure) for name, figure in written.figures.items()}
        return {
            **common,
            "figures": {**figures, "leakage_every_word": short(every)},
            "adaptive": written.adaptive,
            "base": dict(written.base),
            "training": dict(written.tuned),
        }

    def summary(self, spec: AttackModelsSpec, records: Records) -> Summary:
        names = records.values("problem")
        tables = [t for name in names for t in (_leakage(records, name), _texts(records, name)) if t]
        return Summary(
            tables=tables,
            figures=[f for name in names for f in _figures(records, name)],
            findings=attack_findings(records),
            notes=[AXES, SETTING, MEASURES, *_training_notes(spec, records)],
        )


def label_of(cell: Cell) -> str:
    return f"{cell['method']}-{cell['scale'].replace(' ', '-')}"


def _training_notes(experiment: AttackModelsSpec, records: Records) -> list[str]:
    """Return how each attack was trained, and which ones too little to compare defences."""
    notes = [
        f"{ATTACK_NAMES[kind]} is at chance on clean vectors of {problem}: it was trained too little to judge a "
        "defence, and its figures are left out of the claims."
        for (problem, kind), at in records.where(method="none").each("problem", "attack")
        if not draw.above_chance(at, "figures", "leakage")
    ]
    for kind in experiment.models:
        own = [r["found"] for r in records.where(attack=kind) if "training" in r["found"]]
        if not own:
            continue
        spec = experiment.decoder(kind)
        base, tuned = own[0]["base"], own[0]["training"]
        learnt = f" of {base['texts']:,.0f} texts" if "texts" in base else ""
        parameters = base.get("parameters", base.get("hypothesiser_parameters"))
        large = f", {parameters / 1e6:.1f} million parameters" if parameters else ""
        clocks = [k for k in tuned if k.endswith("seconds") and k != "processor_seconds"]
        corrects = f", {spec.rounds} rounds of correction" if spec.rounds else ""
        notes.append(
            f"{ATTACK_NAMES[kind]}: preset {spec.preset}{large}; a base{learnt} of `{spec.corpus}`"
            f"{' (given)' if spec.start_from else ''}, then {spec.fine_tuning_epochs} epochs of freshly "
            f"protected texts of the problem, {sum(tuned[k] for k in clocks):.0f} s a defence{corrects}."
        )
    left_out = max((int(n) for n in records.figures("texts", "left_out")), default=0)
    if left_out:
        notes.append(f"{left_out} texts are not judged: the corpus of a given base holds them or a near copy.")
    return notes


def judged_texts(records: Records) -> str:
    return " or ".join(map(str, sorted({int(n) for n in records.figures("texts", "judged")})))


def _leakage(records: Records, problem: str) -> Table:
    own = records.where(problem=problem)
    live = draw.live_attacks(own.where(attack="mlc"))[:1]
    other = live and live != [MLC]  # decides the claims instead of a dead MLC

    def paper(name: str, *, instead: bool = False) -> draw.Published:
        def find(key: tuple[str, str, str]) -> float | None:
            if draw.few_texts(own) or bool(other and key[0] == "mlc") != instead:
                return None
            return draw.share_beside([PUBLISHED], name, attack=key[0], epsilon=draw.epsilon_of(key[1]), method=key[2])

        return find

    def change(key: tuple[str, str, str], at: Records) -> Number | None:
        return number([*changes(own, at, key[0]).values()], published=paper("leakage_change")(key))

    def change_of(key: tuple[str, str, str], at: Records) -> Number | None:
        found = changes(own, at, "mlc", "attacks", live[0], "leakage")
        return number([*found.values()], published=paper("leakage_change", instead=True)(key))

    classifier = []
    if other:
        path, theirs = ("attacks", live[0], "leakage", "value"), paper("leakage", instead=True)
        classifier = [
            draw.percent(
                f"{live[0]}, strongest classifier of clean vectors: leakage (Eq. 13)", *path, published=theirs
            ),
            draw.column("its change", change_of, "%"),
        ]

    def strongest(key: tuple[str, str, str], at: Records) -> str | None:
        names = (r["found"]["strongest"]["name"] for r in at if "strongest" in r["found"])
        return ", ".join(dict.fromkeys(names)) or None

    return draw.table(
        draw.marked(own, problem),
        _ordered(own),
        [
            *_NAMED,
            draw.estimate("Leakage (Eq. 13)", "figures", "leakage", published=paper("leakage")),
            draw.percent("Chance", "figures", "leakage", "chance"),
            draw.column("Change", change, "%"),
            *classifier,
            draw.column("Strongest token inference", strongest, text=True),
            draw.percent("its R-precision", "strongest", "r_precision", "value"),
            draw.percent("Utility kept", "utility", "relative"),
        ],
        f"{judged_texts(own)} texts are judged. Change: relative to unprotected vectors.",
    )


_NAMED = [
    draw.axis("Attack", 0, ATTACK_NAMES.__getitem__),
    draw.axis("Scale", 1),
    draw.axis("Method", 2, draw.method_name),
]


def _ordered(own: Records) -> list[draw.Group]:
    """Return the records of each row of a table, in the paper's order."""
    return draw.by_scale(own, "attack", "scale", "method", first=own.values("attack"))


def _texts(records: Records, problem: str) -> Table | None:
    own = Records([r for r in records.where(problem=problem) if r["cell"]["attack"] != "mlc"])
    if not len(own):
        return None
    columns = [*_NAMED]
    for name, title in TEXT_FIGURES.items():
        path = ("figures", name)
        columns += [draw.estimate(title, *path), draw.percent(f"{title}, chance", *path, "chance")]
    caption = "Text similarity of the reconstructions. Cosine: of the attacked encoder."
    return draw.table(f"{problem}: reconstructions", _ordered(own), columns, caption)


def _figures(records: Records, problem: str) -> list[Figure]:
    own = records.where(problem=problem)
    attacks = own.values("attack")
    found = []
    for (scale,), at in own.each("scale"):
        series = []
        for (method,), rows in at.each("method"):
            leaks = [rows.where(attack=attack).estimate("figures", "leakage") for attack in attacks]
            points: list[Point] = [
                Point(float(i), leak.value, *draw.ends(leak)) for i, leak in enumerate(leaks) if leak
            ]
            series.append(Series(draw.method_name(method), points, dashed=method == "none"))
        found.append(
            Figure(
                f"{problem}: leakage at {scale}",
                kind="bars",
                x=XAxis("attack"),
                y=YAxis("leakage (Eq. 13)"),
                series=series,
                columns=[ATTACK_NAMES[attack] for attack in attacks],
                caption="Lower is better.",
            )
        )
    return found


def changes(own: Records, at: Records, attack: str, *path: str) -> dict[int, float]:
    """Return each seed's relative change of a leakage against clean vectors."""
    where, found = path or ("figures", "leakage"), {}
    for row in at:
        clean = own.where(attack=attack, method="none", seed=row["cell"]["seed"])
        before, after = clean.figures(*where, "value"), Records([row]).figures(*where, "value")
        if row["cell"]["method"] != "none" and after and before and before[0] > 0:
            found[row["cell"]["seed"]] = after[0] / before[0] - 1
    return found


def attack_findings(records: Records) -> list[ClaimFinding]:
    """Return the paper's claims tested on our rows, and our own."""
    rows = _rows(records)
    return [*draw.findings_of("attacks", rows, _KEYS, difference=SETTING), *_own(records, rows)]


_KEYS = ("dataset", "attack", "epsilon", "method")


def _rows(records: Records) -> list[dict[str, Any]]:
    """Return our figures with the paper's keys and units, and their errors.

    An attack at chance on clean vectors has no row. The rows of ``mlc`` are those of the strongest live classifier.
    """
    found = []
    for (problem, attack), own in draw.counted(records).each("problem", "attack"):
        path: tuple[str, ...] = ("figures", "leakage")
        live = draw.live_attacks(own) if attack == "mlc" else []
        if live:
            path = ("attacks", live[0], "leakage")
        elif not draw.above_chance(own.where(method="none"), *path):
            continue
        for (scale, method), at in own.each("scale", "method"):
            change, leak = changes(own, at, attack, *path), at.measured(*path, factor=100)
            clean = own.where(method="none").number(*path, "value")
            if draw.epsilon_of(scale) is None or leak is None:
                continue
            half = leak.half / clean.value if clean and clean.value else 0.0
            found.append(
                {
                    "dataset": problem,
                    "attack": attack,
                    "epsilon": draw.epsilon_of(scale),
                    "method": method,
                    "leakage": leak,
                    "leakage_change": Measured({k: 100 * v for k, v in change.items()}, half) if change else None,
                }
            )
    return found


def _own(records: Records, rows: Sequence[Mapping[str, Any]]) -> list[ClaimFinding]:
    found = []
    clean = {(row["dataset"], row["attack"]) for row in rows if row["epsilon"] == math.inf}
    order = Order("leakage", {"method": "subspace"}, {"method": "sparse"}, "lower")
    tally = order.tally(rows, _KEYS)
    if tally.cells:
        claim = "At equal noise the subspace method leaks less than SPARSE under every attack."
        found.append(ClaimFinding(claim, "own", verdict(tally), str(tally)))
    written: list[tuple[int, Mapping[str, Any]]] = []
    for (problem, attack, scale, method), at in records.each("problem", "attack", "scale", "method"):
        beside = records.where(problem=problem, attack="mlc", scale=scale, method=method)
        ours = draw.excess_of(at, "figures", "leakage")
        other = draw.excess_of(beside, "strongest", "r_precision")
        live = {(problem, attack), (problem, "mlc")} <= clean
        if live and attack != "mlc" and method != "none" and ours and other:
            written.append((compare(other, ours), {}))
    if written:
        tally = Tally.of(written)
        found.append(
            ClaimFinding(
                "On protected vectors token inference exceeds chance by more than text reconstruction.",
                "own",
                verdict(tally),
                str(tally),
                "",
                "Judge a defence by token inference first; a reconstruction that fails shows little.",
            )
        )
    return found
