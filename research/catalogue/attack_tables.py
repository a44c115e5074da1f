"""What the records of `attacks` say: Table 2 with ours beside, and what becomes of its claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from research.catalogue.attack_findings import (
    ATTACK_NAMES,
    PUBLISHED,
    SETTING,
    above_chance,
    attack_findings,
    changes,
    epsilon_of,
)
from research.catalogue.claims import beside
from research.catalogue.point_tables import METHOD_NAMES
from research.catalogue.tradeoff import AXES
from research.decoders import DecoderSpec
from research.experiment import Records
from research.summary import (
    Cell,
    Column,
    Figure,
    Number,
    Series,
    Summary,
    Table,
)
from research.summary import number as mean_of

__all__ = ["attacks_summary", "training_notes"]

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
    rows: list[list[Cell]] = []
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
    rows: list[list[Cell]] = []
    for attack, scale, method, at in _ordered(own):
        row: list[Cell] = [ATTACK_NAMES[attack], scale, METHOD_NAMES.get(method, method)]
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
