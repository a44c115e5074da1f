"""SPARSE, Table 2: a classifier of words, and two attacks that write the text, each trained on every defence."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from research.bench import Bench, Material
from research.catalogue.tradeoff import AXES
from research.decoders import (
    WRITERS,
    DecoderSpec,
    check_decoders,
    corpus_digest,
    every_word,
    judged_rows,
    prepare_decoder,
    rewrite,
    short,
)
from research.experiment import Cell, Records
from research.grid import Grid, GridSpec
from research.points import defend, leakage, protector_record, utility
from research.published import published
from research.scales import parse_scale
from research.specification import Spec, digest
from research.tables import METHOD_NAMES, beside, findings_of, verdict_of
from vecveil.errors import InvalidInputError
from vecveil.metrics.reconstruction import reconstruction_leakage
from vecveil.protector import Protector
from vecveil.records.experiment import Cell as TableCell
from vecveil.records.experiment import ClaimFinding, Column, Figure, Number, Series, Summary, Table
from vecveil.records.experiment import number as mean_of

MLC = "mlc-published"


@dataclass(frozen=True, kw_only=True)
class WriterSpec(GridSpec):
    """A grid on which attacks write texts.

    Attributes:
        decoders: by attack, how it is trained.
        judged: at most so many texts are judged, by every attack the same.
    """

    decoders: dict[str, DecoderSpec] = field(default_factory=dict)
    judged: int = 400

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [name for name in self.decoders if name not in WRITERS]
        if unknown:
            wanted = "of " + ", ".join(WRITERS)
            raise InvalidInputError.of("experiment", "decoders", wanted, repr(unknown[0])[:40])
        check_decoders(self.decoders)

    def decoder(self, kind: str) -> DecoderSpec:
        """Return how an attack is trained."""
        return self.decoders.get(kind, DecoderSpec())

    def judging(self) -> dict[str, Any]:
        """Return what decides which texts are judged."""
        given = {
            kind: [one.corpus, one.sentences]
            for kind, one in sorted(self.decoders.items())
            if one.start_from is not None
        }
        return {"judged": self.judged, "left_out": given}


@dataclass(frozen=True, kw_only=True)
class AttackModelsSpec(WriterSpec):
    """The settings of Table 2.

    Attributes:
        models: the attacks that are compared: ``mlc``, ``geia``, ``vec2text``. Beside mlc, ``attacks`` are measured.
    """

    models: tuple[str, ...] = ("mlc", *WRITERS)

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [name for name in self.models if name not in ("mlc", *WRITERS)]
        if unknown:
            wanted = "of mlc, " + ", ".join(WRITERS)
            raise InvalidInputError.of("experiment", "models", wanted, repr(unknown[0])[:40])


class AttackModels(Grid):
    """Three attacks on every defence."""

    name = "attacks"
    what = "A classifier of words and two attacks that write the text, trained on each defence, over ε."
    source = "SPARSE, Table 2"
    spec_type = AttackModelsSpec

    def cells(self, spec: Spec) -> list[Cell]:
        """Return the grid's cells for each attack."""
        assert isinstance(spec, AttackModelsSpec)
        grid = super().cells(spec)
        return [Cell.of(attack=kind, **c.to_record()) for kind in spec.models for c in grid]

    def settings(self, spec: Spec, cell: Cell) -> dict[str, Any]:
        """Return what decides a cell: token inference depends on no decoder, and the other way round."""
        assert isinstance(spec, AttackModelsSpec)
        found = {**super().settings(spec, cell), **spec.judging()}
        if cell["attack"] == "mlc":
            return found
        decoder = dataclasses.asdict(spec.decoder(cell["attack"]))
        return {**found, "attacks": [], "further": False, "decoder": decoder}

    def data_digest(self, spec: Spec, bench: Bench, cell: Cell) -> str | None:
        """Return a hash of the problem's texts and, for attacks that write, of the corpus."""
        assert isinstance(spec, AttackModelsSpec)
        own = super().data_digest(spec, bench, cell)
        if cell["attack"] == "mlc":
            return own
        return digest([own, corpus_digest(bench, spec.decoder(cell["attack"]))])

    def prepare(self, spec: Spec, bench: Bench, cells: Sequence[Cell]) -> None:
        """Encode the texts, and train the decoders that attacks go on from."""
        assert isinstance(spec, AttackModelsSpec)
        super().prepare(spec, bench, cells)
        for problem, kind in dict.fromkeys((c["problem"], c["attack"]) for c in cells):
            if kind != "mlc":
                prepare_decoder(bench, problem, kind, spec.decoder(kind))

    def measure(self, spec: Spec, cell: Cell, bench: Bench) -> dict[str, Any]:
        """Return what one attack reads of one defence."""
        assert isinstance(spec, AttackModelsSpec)
        material = bench.material(cell["problem"], cell["seed"])
        protector = defence_of(spec, cell, bench, material)
        rows, left_out = judged_rows(bench, material, spec.decoders, spec.judged)
        common = {
            "utility": utility(material.task, protector, material.seed),
            "protector": protector_record(protector),
            "texts": {"judged": len(rows), "left_out": left_out},
        }
        if cell["attack"] == "mlc":
            case = dataclasses.replace(material.case, test=rows)
            narrowed = dataclasses.replace(material, case=case)
            names = tuple(dict.fromkeys((MLC, *spec.attacks)))
            found = leakage(narrowed, protector, names, further=spec.further)
            worst = found["worst"]
            return {
                **common,
                "figures": found["attacks"][MLC],
                "strongest": {"name": worst, **found["attacks"][worst]},
                "attacks": found["attacks"],
            }
        kind = cell["attack"]
        written = rewrite(
            bench, material, kind, spec.decoder(kind), protector, label_of(cell), rows
        )
        words_of, groups = every_word(material), material.case.groups[rows]
        every = reconstruction_leakage(words_of(written.texts), words_of(written.written), groups)
        figures = {name: short(estimate) for name, estimate in written.figures.items()}
        return {
            **common,
            "figures": {**figures, "leakage_every_word": short(every)},
            "adaptive": written.adaptive,
            "base": dict(written.base),
            "training": dict(written.tuned),
        }

    def summary(self, spec: Spec, records: Records) -> Summary:
        """Return the paper's table with ours beside, and what becomes of its claims."""
        assert isinstance(spec, AttackModelsSpec)
        return attacks_summary(spec.models, spec.decoders, records)


def defence_of(spec: GridSpec, cell: Cell, bench: Bench, material: Material) -> Protector | None:
    """Return a cell's protector; one of several attacks on it is fitted once a process."""
    method, scale = cell["method"], cell["scale"]
    options = {k: int(v) if v == int(v) else v for k, v in spec.options.get(method, {}).items()}
    key = ("defence", cell["problem"], method, scale, cell["seed"], repr(options))
    return bench.once(key, lambda: defend(bench, material, method, parse_scale(scale), **options))


def label_of(cell: Cell) -> str:
    """Return a defence's part of a folder's name."""
    return f"{cell['method']}-{cell['scale'].replace(' ', '-')}"


MEASURES = (
    "Leakage (Eq. 13) is over words that enough texts hold, the same for every attack; 'every word' is over all words "
    "of the concept, which a classifier of frequent words cannot be asked for. Chance is the same figure for "
    "reconstructions that are handed to other texts (for MLC: of a guess by base rates)."
)
_TEXT_FIGURES = (
    ("leakage_every_word", "Leakage, every word"),
    ("token_f1", "Token F1"),
    ("bleu", "BLEU"),
    ("rouge_l", "ROUGE-L"),
    ("exact_match", "Exact match"),
    ("cosine", "Cosine"),
)


def attacks_summary(
    models: Sequence[str], decoders: Mapping[str, DecoderSpec], records: Records
) -> Summary:
    """Return tables, figures and findings."""
    names = records.values("problem")
    return Summary(
        tables=[t for name in names for t in (_leakage(records, name), _texts(records, name)) if t],
        figures=[f for name in names for f in _figures(records, name)],
        findings=attack_findings(records),
        notes=[AXES, SETTING, MEASURES, *training_notes(models, decoders, records)],
    )  # fmt: skip


def training_notes(
    models: Sequence[str], decoders: Mapping[str, DecoderSpec], records: Records
) -> list[str]:
    """Return how each attack that writes texts was trained, in words, and which ones cannot tell defences apart."""
    found = [
        f"{ATTACK_NAMES[kind]} does not read clean vectors above chance on {problem}: it was trained too little to say "
        "anything of a defence, and its figures are left out of the claims."
        for (problem, kind), at in records.where(method="none").each("problem", "attack")
        if not above_chance(at, "figures", "leakage")
    ]
    for kind in models:
        own = [r["found"] for r in records.where(attack=kind) if "training" in r["found"]]
        if not own:
            continue
        spec = decoders.get(kind, DecoderSpec())
        base, tuned = own[0]["base"], own[0]["training"]
        learnt = f" of {base['texts']:,.0f} texts" if "texts" in base else ""
        parameters = base.get("parameters", base.get("hypothesiser_parameters"))
        large = f", {parameters / 1e6:.1f} million parameters" if parameters else ""
        seconds = sum(
            v for k, v in tuned.items() if k.endswith("seconds") and k != "processor_seconds"
        )
        corrects = f", {spec.rounds} rounds of correction" if spec.rounds else ""
        found.append(
            f"{ATTACK_NAMES[kind]}: preset {spec.preset}{large}; a base{learnt} of `{spec.corpus}`"
            f"{' that was given' if spec.start_from else ''}, then {spec.fine_tuning_epochs} epochs of freshly "
            f"protected texts of the problem, {seconds:.0f} s a defence{corrects}."
        )  # fmt: skip
    left_out = {int(n) for n in records.figures("texts", "left_out")} - {0}
    if left_out:
        found.append(
            f"{max(left_out)} texts that are in the corpus of a base that was given, or near one, are not judged."
        )
    return found


def _figure(rows: Records, name: str, published_figure: float | None = None) -> Number | None:
    path = ("figures", name)
    return mean_of(
        rows.figures(*path, "value"), low=rows.figures(*path, "low"), high=rows.figures(*path, "high"),
        published=published_figure,
    )  # fmt: skip


def _ordered(own: Records) -> list[tuple[str, str, str, Records]]:
    """Return attack, scale, method and records of each row, in the paper's order."""
    scales = own.values("scale")
    found = [(*key, rows) for key, rows in own.each("attack", "scale", "method")]
    return sorted(found, key=lambda row: (own.values("attack").index(row[0]), scales.index(row[1])))


def _leakage(records: Records, problem: str) -> Table:
    own = records.where(problem=problem)
    columns = [
        Column("Attack", text=True), Column("Scale", text=True), Column("Method", text=True),
        Column("Leakage (Eq. 13)", "%"), Column("Chance", "%"), Column("Change", "%"),
        Column("Strongest token inference", text=True), Column("its R-precision", "%"), Column("Utility kept", "%"),
    ]  # fmt: skip
    rows: list[list[TableCell]] = []
    for attack, scale, method, at in _ordered(own):
        keys = {"attack": attack, "epsilon": epsilon_of(scale), "method": method}
        leak, change = (
            None if keys["epsilon"] is None else beside([PUBLISHED], name, **keys)
            for name in ("leakage", "leakage_change")
        )
        strongest = dict.fromkeys(
            r["found"]["strongest"]["name"] for r in at if "strongest" in r["found"]
        )
        rows.append([
            ATTACK_NAMES[attack], scale, METHOD_NAMES.get(method, method),
            _figure(at, "leakage", None if leak is None else leak / 100),
            mean_of(at.figures("figures", "leakage", "chance")),
            mean_of(changes(own, at, attack), published=None if change is None else change / 100),
            ", ".join(strongest) or None,
            mean_of(at.figures("strongest", "r_precision", "value")),
            mean_of(at.figures("utility", "relative")),
        ])  # fmt: skip
    judged = sorted({int(n) for n in own.figures("texts", "judged")})
    caption = f"{' or '.join(map(str, judged))} texts are judged. Change: relative to unprotected vectors."
    return Table(problem, columns, rows, caption)


def _texts(records: Records, problem: str) -> Table | None:
    own = Records([r for r in records.where(problem=problem) if r["cell"]["attack"] != "mlc"])
    if not len(own):
        return None
    columns = [Column("Attack", text=True), Column("Scale", text=True), Column("Method", text=True)]
    for _, title in _TEXT_FIGURES:
        columns += [Column(title, "%"), Column(f"{title}, chance", "%")]
    rows: list[list[TableCell]] = []
    for attack, scale, method, at in _ordered(own):
        row: list[TableCell] = [ATTACK_NAMES[attack], scale, METHOD_NAMES.get(method, method)]
        for name, _ in _TEXT_FIGURES:
            row += [_figure(at, name), mean_of(at.figures("figures", name, "chance"))]
        rows.append(row)
    caption = "What the reconstructions are worth as texts. Cosine: of the attacked encoder."
    return Table(f"{problem}: reconstructions", columns, rows, caption)


def _figures(records: Records, problem: str) -> list[Figure]:
    own = records.where(problem=problem)
    attacks = own.values("attack")
    found = []
    for (scale,), at in own.each("scale"):
        series = []
        for (method,), rows in at.each("method"):
            points = []
            for attack in attacks:
                leak = _figure(rows.where(attack=attack), "leakage")
                if leak is not None:
                    ends = (
                        (leak.low, leak.high)
                        if leak.sd is None
                        else (leak.value - leak.sd, leak.value + leak.sd)
                    )
                    points.append((float(attacks.index(attack)), leak.value, *ends))
            series.append(Series(METHOD_NAMES.get(method, method), points, dashed=method == "none"))
        found.append(
            Figure(
                f"{problem}: leakage at {scale}", kind="bars", x="attack", y="leakage (Eq. 13)",
                series=series, columns=[ATTACK_NAMES[attack] for attack in attacks],
                caption="Lower is better.",
            )
        )  # fmt: skip
    return found


PUBLISHED = "sparse-table-2"
ATTACK_NAMES = {"mlc": "MLC", "geia": "GEIA", "vec2text": "Vec2Text"}
SETTING = (
    "The paper: GTR-base, a pretrained GPT-2 for GEIA and a pretrained T5 for Vec2Text. Here: the encoder and the "
    "decoders of the specification; `small` ones are trained from scratch on one corpus, so what they miss is no "
    "evidence of safety."
)


def epsilon_of(scale: str) -> float | None:
    """Return the paper's ε that a scale stands for; None for literal ones and others without a counterpart."""
    parsed = parse_scale(scale)
    return parsed.value if parsed.kind in ("effective", "clean") else None


def above_chance(rows: Records, *path: str) -> bool:
    """Return whether a figure is above its chance level: its interval in some record, or its mean over seeds."""
    chances, lows, values = (rows.figures(*path, key) for key in ("chance", "low", "value"))
    if not values or len(chances) < len(values):
        return bool(values)
    if len(values) == 1:
        return len(lows) == 1 and lows[0] > chances[0]
    by = mean_of([value - chance for value, chance in zip(values, chances, strict=True)])
    return by is not None and by.sd is not None and by.value > 2 * by.sd / math.sqrt(len(values))


def changes(own: Records, at: Records, attack: str) -> list[float]:
    """Return the relative change of leakage against clean vectors, of each seed."""
    found = []
    for row in at:
        clean = own.where(attack=attack, method="none", seed=row["cell"]["seed"])
        before = clean.figures("figures", "leakage", "value")
        if row["cell"]["method"] != "none" and before and before[0] > 0:
            found.append(row["found"]["figures"]["leakage"]["value"] / before[0] - 1)
    return found


def attack_findings(records: Records) -> list[ClaimFinding]:
    """Return the paper's claims counted in our rows, then what else they say."""
    rows = _rows(records)
    keys = ("dataset", "attack", "epsilon", "method")
    return [*findings_of("attacks", rows, keys, difference=SETTING), *_own(records, rows)]


def _rows(records: Records) -> list[dict[str, Any]]:
    """Return our figures with the paper's keys and units, means over seeds.

    An attack that is at chance on clean vectors is left out, and so is a scale at which it is at chance whatever the
    method: figures that are all chance have no order.
    """
    found = []
    for (problem, attack, scale, method), at in records.each(
        "problem", "attack", "scale", "method"
    ):
        epsilon = epsilon_of(scale)
        same = {"problem": problem, "attack": attack}
        told = records.where(**same, method="none"), records.where(**same, scale=scale)
        if epsilon is None or not all(_told(part) for part in told):
            continue
        leak = mean_of(at.figures("figures", "leakage", "value"))
        change = mean_of(changes(records.where(problem=problem), at, attack))
        found.append({
            "dataset": problem, "attack": attack, "epsilon": epsilon, "method": method,
            "leakage": None if leak is None else 100 * leak.value,
            "leakage_change": None if change is None else 100 * change.value,
        })  # fmt: skip
    return found


def _told(rows: Records) -> bool:
    return any(above_chance(at, "figures", "leakage") for _, at in rows.each("method"))


def _own(records: Records, rows: Sequence[Mapping[str, Any]]) -> list[ClaimFinding]:
    """Return what the paper's figures imply without saying so, and what holds for ours."""
    found = []
    table = published(PUBLISHED)
    theirs = {row["attack"]: row["leakage"] for row in table.rows if row["epsilon"] == math.inf}
    clean = {
        (row["dataset"], row["attack"]): row["leakage"]
        for row in rows
        if row["epsilon"] == math.inf
    }
    for (problem, attack), ours in clean.items():
        mlc = clean.get((problem, "mlc"))
        if attack == "mlc" or ours is None or mlc is None:
            continue
        more = "more" if theirs[attack] > theirs["mlc"] else "less"
        found.append(ClaimFinding(
            f"From unprotected vectors {ATTACK_NAMES[attack]} reads {more} of the sensitive words than MLC.",
            table.source, "agrees" if (ours > mlc) == (more == "more") else "disagrees",
            f"{ours:.1f} against {mlc:.1f} % ({problem})", f"{theirs[attack]:.1f} against {theirs['mlc']:.1f} %",
            SETTING,
        ))  # fmt: skip
    pairs = [
        (one["leakage"], other["leakage"])
        for one in rows if one["method"] == "subspace"
        for other in rows if other["method"] == "sparse"
        and all(one[key] == other[key] for key in ("dataset", "attack", "epsilon"))
    ]  # fmt: skip
    if pairs:
        held = sum(ours < theirs for ours, theirs in pairs)
        found.append(ClaimFinding(
            "At equal noise the subspace method leaks less than SPARSE whatever the attack.", "own",
            verdict_of(held, len(pairs)), f"holds in {held} of {len(pairs)} comparisons",
        ))  # fmt: skip
    kinds = [r for r in records if r["cell"]["attack"] != "mlc" and r["cell"]["method"] != "none"]
    if kinds:
        weaker = [r for r in kinds if _excess(r) < _mlc_excess(records, r)]
        found.append(ClaimFinding(
            "On protected vectors a classifier of words reads more above chance than an attack that writes texts.",
            "own", verdict_of(len(weaker), len(kinds)),
            f"in {len(weaker)} of {len(kinds)} cells the strongest token inference is further above its chance", "",
            "Judge a defence by token inference first; a reconstruction that fails shows little.",
        ))  # fmt: skip
    return found


def _excess(row: Mapping[str, Any]) -> float:
    figure = row["found"]["figures"]["leakage"]
    return float(figure["value"] - (figure["chance"] or 0.0))


def _mlc_excess(records: Records, row: Mapping[str, Any]) -> float:
    at = records.where(**{**row["cell"], "attack": "mlc"})
    values, chances = (at.figures("strongest", "r_precision", key) for key in ("value", "chance"))
    return values[0] - chances[0] if values and chances else -math.inf
