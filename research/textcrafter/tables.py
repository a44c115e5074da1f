"""The tables of the experiment, drawn from its records."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from research.experiment import Records
from research.published import published
from research.summary import Cell, Column, Table, number
from research.textcrafter.specification import PII, TextCrafterSpec
from research.textcrafter.words import (
    LABEL,
    PAPER_ROWS,
    SENTENCE,
    defences_in,
    main_in,
    mean,
    sentence,
    set_title,
    sets_in,
    strongest,
    title,
)

__all__ = ["tables"]

SCENARIOS = ("deployment", "development")
EPOCHS = (0, 1, 2, 5, 10)
CURVES = {
    "reward": "reward",
    "reward_clean": "reward of clean vectors",
    "p_pii": "p(PII)",
    "drift": "drift",
    "cluster_distance": "distance to c",
    "deterministic_share": "deterministic share",
    "mean_resultant": "mean resultant",
}
SIZES = {
    "train": "training rows",
    "test": "test rows",
    "dropped": "left out as in test",
    "classes": "classes",
    "tokens": "tokens",
    "token_train": "training texts with one",
    "token_test": "test texts with one",
}
NONE = "–"  # there is no such figure


def tables(spec: TextCrafterSpec, records: Records) -> list[Table]:
    """Return those tables whose part was measured."""
    made = {
        "utility": (four_sets, leakage, sizes),
        "sentences": (intervals,),
        "pii": (pii,),
        "curves": (curves,),
    }
    parts = {part: records.where(part=part) for part in made}
    return [
        make(spec, records if make is four_sets else own)
        for part, makers in made.items()
        if len(own := parts[part])
        for make in makers
    ]


def four_sets(spec: TextCrafterSpec, records: Records) -> Table:
    """Return the paper's table: reconstruction, then utility in both scenarios, of each set and main defence."""
    rows: list[list[Cell]] = []
    utility, sentences = (records.where(part=part) for part in ("utility", "sentences"))
    figures = [(s, f) for s in SCENARIOS for f in ("macro_f1", "accuracy")]
    for where in sets_in(records):
        for defence in main_in(spec, utility):
            own = utility.where(set=where, defence=defence)
            read = sentences.where(set=where, defence=defence)
            theirs = _theirs(where, defence)
            rows.append([
                set_title(where), title(spec, defence),
                number(own.figures("noise_norm")[:1], digits=2, percent=False),
                *(sentence(read, name, published=theirs.get(name)) for name in SENTENCE),
                *(mean(own, scenario, figure, published=theirs.get(figure) if scenario == "deployment" else None)
                  for scenario, figure in figures),
            ])  # fmt: skip
        clean, read = (part.where(set=where, defence="none") for part in (utility, sentences))
        chances = {"macro_f1": "macro_f1_chance", "accuracy": "chance"}
        rows.append([
            set_title(where), "chance", NONE,
            *(number(read.figures("figures", name, "chance"), digits=1 if share else 3, percent=share)
              for name, (_, share) in SENTENCE.items()),
            *(number(clean.figures(s, chances[f])[:1]) for s, f in figures),
        ])  # fmt: skip
    return Table(
        title="TextCrafter's Table I",
        caption=(
            "What a sentence-level attack writes back, and what a classifier still gets right, by set and defence; "
            "mean ± standard deviation over seeds."
        ),
        columns=[
            Column("set", text=True), Column("defence", text=True), Column("noise norm"),
            *(Column(name, "%" if share else None) for name, share in SENTENCE.values()),
            *(Column(f"{name}, {scenario}", "%") for scenario in SCENARIOS for name in ("F1", "Acc")),
        ],
        rows=rows,
        notes=[
            "Published: Table I of the paper, which does not say of which scenario its F1 and accuracy are; they stand "
            "beside deployment. Its TextCrafter row stands beside the literal reading.",
        ],
    )  # fmt: skip


def _theirs(where: str, defence: str) -> Mapping[str, float]:
    """Return the paper's row, as shares."""
    if defence not in PAPER_ROWS:
        return {}
    table = published("textcrafter-table-1")
    row = table.find(dataset=where, method=PAPER_ROWS[defence]) or {}
    return {k: v / 100 for k, v in row.items() if isinstance(v, int | float)}


def intervals(spec: TextCrafterSpec, records: Records) -> Table:
    """Return what the sentence-level attack writes back, with intervals."""
    rows: list[list[Cell]] = [
        [
            set_title(where), title(spec, defence),
            *(sentence(own, name, interval=True) for name in SENTENCE),
        ]
        for where in sets_in(records)
        for defence in main_in(spec, records)
        if len(own := records.where(set=where, defence=defence))
    ]  # fmt: skip
    return Table(
        title="Reconstruction with intervals",
        caption="The sentence-level attack on each set and defence, with 95 % intervals.",
        columns=[
            Column("set", text=True), Column("defence", text=True),
            *(Column(name, "%" if share else None) for name, share in SENTENCE.values()),
        ],
        rows=rows,
    )  # fmt: skip


def leakage(spec: TextCrafterSpec, records: Records) -> Table:
    """Return for every defence its norm, and for each set accuracy beside the strongest token inference."""
    sets, rows = sets_in(records), []
    for defence in defences_in(spec, records):
        every = records.where(defence=defence)
        norm = number([statistics.fmean(every.figures("noise_norm"))], digits=2, percent=False)
        row: list[Cell] = [title(spec, defence), norm]
        for where in sets:
            own = every.where(set=where)
            row += [mean(own, scenario, "accuracy") for scenario in SCENARIOS]
            read = strongest(own, "token_inference", "attacks")
            row.append(number(read, digits=3, percent=False))
        rows.append(row)
    chance: list[Cell] = ["chance", NONE]
    for where in sets:
        own = records.where(set=where, defence="none")
        chance += [number(own.figures(scenario, "chance")[:1]) for scenario in SCENARIOS]
        guess = own.figures("token_inference", "chance")[:1]
        chance.append(number(guess, digits=3, percent=False))
    columns = [Column("defence", text=True), Column("noise norm")]
    for where in sets:
        columns += [Column(f"{set_title(where)}: Acc, {scenario}", "%") for scenario in SCENARIOS]
        columns.append(Column(f"{set_title(where)}: R-precision"))
    return Table(
        title="Token inference and accuracy",
        caption="R-precision is that of the strongest token-inference attack, each trained on protected vectors.",
        columns=columns,
        rows=[*rows, chance],
    )


def pii(spec: TextCrafterSpec, records: Records) -> Table:
    """Return what frozen PII classifiers say, and what probes that learn from protected vectors find."""
    rows: list[list[Cell]] = []
    each = {"p_with": "p(PII), texts with PII", "p_without": "p(PII), without", "auc": "AUC"}
    for defence in defences_in(spec, records):
        own = records.where(defence=defence)
        has_own = bool(own.figures("frozen", "policy", "auc"))
        rows.append([
            title(spec, defence),
            *(NONE if model == "policy" and not has_own
              else mean(own, "frozen", model, name, digits=3, percent=False)
              for model in ("policy", "benchmark") for name in each),
            number(strongest(own, "probes"), digits=3, percent=False),
        ])  # fmt: skip
    return Table(
        title="Whether a text holds PII",
        caption=(
            "The policy's own classifier is the one in its reward, the other is the same for every defence; both "
            "learnt from clean vectors. The probes learn from protected ones."
        ),
        columns=[
            Column("defence", text=True),
            *(Column(f"{model} classifier: {what}")
              for model in ("policy's own", "benchmark's") for what in each.values()),
            Column("AUC of the strongest probe"),
        ],
        rows=rows,
    )  # fmt: skip


def curves(spec: TextCrafterSpec, records: Records) -> Table:
    """Return what the policies of the first seed had reached after some epochs."""
    rows: list[list[Cell]] = []
    for row in records.where(set=PII, seed=0):
        epochs: list[Mapping[str, Any]] = row["found"]["training"]["epochs"]
        last = epochs[-1]["epoch"]
        for epoch in epochs:
            if epoch["epoch"] in (*EPOCHS, last):
                shown = (number([epoch[name]], digits=3, percent=False) for name in CURVES)
                rows.append([title(spec, row["cell"]["defence"]), str(epoch["epoch"]), *shown])
    return Table(
        title="Learning curves",
        caption=f"Policies of the first seed ({LABEL}); of released vectors but where it says clean.",
        columns=[
            Column("policy", text=True), Column("epoch", text=True), *map(Column, CURVES.values()),
        ],
        rows=rows,
    )  # fmt: skip


def sizes(spec: TextCrafterSpec, records: Records) -> Table:
    """Return what each set holds: rows that are used, classes, tokens whose inference is measured."""
    rows: list[list[Cell]] = []
    for where in sets_in(records):
        own = records.where(set=where)
        held = (own.figures("sizes", name)[:1] for name in SIZES)
        rows.append(
            [set_title(where), *(number(one, digits=0, percent=False) for one in held)]
        )  # fmt: skip
    return Table(
        title="Sets",
        caption="Rows that are used, and words of the concept that are frequent enough to be looked for.",
        columns=[Column("set", text=True), *map(Column, SIZES.values())],
        rows=rows,
    )
