"""The tables, figures and findings of the experiment, drawn from its records."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from research.experiment import Records
from research.published import Tally, claims, published
from research.textcrafter.defences import DEFENCES
from research.textcrafter.specification import PII, TextCrafterSpec
from vecveil.records.experiment import Cell as TableCell
from vecveil.records.experiment import (
    ClaimFinding,
    Column,
    Figure,
    Number,
    Series,
    Table,
    Verdict,
    number,
)

LABEL = "empirical, no formal privacy guarantee"
TITLES = {"phrasebank": "Financial PhraseBank", "ade": "ADE", "sst2": "SST-2", "agnews": "AG News"}
# The paper's TextCrafter is the literal one, whose direction v is as drawn.
PAPER_ROWS = {
    "none": "none",
    "shuffle": "shuffle",
    "gaussian": "gaussian",
    "ldp-gaussian": "ldp-gaussian",
    "textcrafter-untrained": "textcrafter",
}
# Title, and whether it is a share, of each figure of the sentence-level attack.
SENTENCE = {
    "bleu": ("BLEU", True),
    "token_f1": ("T-F1", True),
    "exact_match": ("EM", True),
    "rouge_l": ("R-L", True),
    "cosine": ("cosine", False),
}


def set_title(name: str) -> str:
    """Return a set as tables call it."""
    return TITLES.get(name, name)


def title(spec: TextCrafterSpec, name: str) -> str:
    """Return a defence as tables call it; TextCrafter never without its label."""
    one = spec.defence(name)
    words = one.title if name in DEFENCES else f"{name}: {one.title}"
    return f"{words}; {LABEL}" if one.method.startswith("textcrafter") else words


def sets_in(records: Records) -> list[str]:
    """Return the labelled sets with a record."""
    return [name for name in records.values("set") if name != PII]


def defences_in(spec: TextCrafterSpec, records: Records) -> list[str]:
    """Return the defences with a record, in the order of the specification."""
    held = set(records.values("defence"))
    return [name for name in spec.defences if name in held]


def main_in(spec: TextCrafterSpec, records: Records) -> list[str]:
    """Return the defences of the paper's table, ours and variants, with a record."""
    controls = {name for name, one in DEFENCES.items() if not one.main}
    return [name for name in defences_in(spec, records) if name not in controls]


def mean(records: Records, *path: str, digits: int = 1, **more: Any) -> Number | None:
    """Return a figure's mean and deviation over seeds."""
    return number(records.figures(*path), digits=digits, **more)


def strongest(records: Records, *path: str) -> list[float]:
    """Return the highest of several figures for each record that has them."""
    found = []
    for row in records:
        held: Any = row["found"]
        for key in path:
            held = held.get(key) if isinstance(held, Mapping) else None
        if held:
            found.append(max(held.values()))
    return found


def sentence(
    records: Records, name: str, *, interval: bool = False, published: float | None = None
) -> Number | None:
    """Return a figure of the sentence-level attack, with its interval if asked."""
    low, high = (records.figures("figures", name, end) for end in ("low", "high"))
    _, share = SENTENCE[name]
    return number(
        records.figures("figures", name, "value"), low=low if interval else (),
        high=high if interval else (), digits=1 if share else 3, percent=share, published=published,
    )  # fmt: skip


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
    rows: list[list[TableCell]] = []
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
    rows: list[list[TableCell]] = [
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
        row: list[TableCell] = [title(spec, defence), norm]
        for where in sets:
            own = every.where(set=where)
            row += [mean(own, scenario, "accuracy") for scenario in SCENARIOS]
            read = strongest(own, "token_inference", "attacks")
            row.append(number(read, digits=3, percent=False))
        rows.append(row)
    chance: list[TableCell] = ["chance", NONE]
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
    rows: list[list[TableCell]] = []
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
    rows: list[list[TableCell]] = []
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
    rows: list[list[TableCell]] = []
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


DRAWN_CURVES = {"reward": "reward", "p_pii": "p(PII)", "cluster_distance": "distance to c"}


def figures(spec: TextCrafterSpec, records: Records) -> list[Figure]:
    """Return those figures whose records are there."""
    return [*_accuracy_against_bleu(spec, records), *_learning(spec, records)]


def _accuracy_against_bleu(spec: TextCrafterSpec, records: Records) -> list[Figure]:
    utility, sentences = (records.where(part=part) for part in ("utility", "sentences"))
    found = []
    for where in sets_in(sentences):
        series = []
        for defence in main_in(spec, sentences):
            bleu = sentences.where(set=where, defence=defence).figures("figures", "bleu", "value")
            own = utility.where(set=where, defence=defence)
            accuracy = own.figures("deployment", "accuracy")
            if bleu and accuracy:
                x, y = (100 * statistics.fmean(values) for values in (bleu, accuracy))
                series.append(Series(title(spec, defence), [(x, y, None, None)]))
        if series:
            found.append(
                Figure(
                    title=f"Accuracy against BLEU: {set_title(where)}",
                    caption="Deployment. Further left is harder to reconstruct, further up is more useful.",
                    x="BLEU of the reconstruction (%)",
                    y="accuracy (%)",
                    series=series,
                )
            )
    return found


def _learning(spec: TextCrafterSpec, records: Records) -> list[Figure]:
    rows = [row for row in records.where(part="curves") if row["cell"]["seed"] == 0]
    return [
        Figure(
            title=f"Learning curves: {what}",
            caption=f"Of released vectors held out from training, by epoch; {LABEL}.",
            x="epoch",
            y=what,
            series=[
                Series(
                    title(spec, row["cell"]["defence"]),
                    [(e["epoch"], e[name], None, None) for e in row["found"]["training"]["epochs"]],
                )
                for row in rows
            ],
        )
        for name, what in DRAWN_CURVES.items()
        if rows
    ]


READINGS = {"textcrafter-untrained": "the literal reading", "textcrafter": "v learnt"}
DIFFERENCE = (
    "Encoder {encoder}, where the paper names none; GEIA trained here in minutes, where the paper's Vec2Text starts "
    "from pretrained models; logistic regression on samples of the sets; r = {radius:g}, where its r, σ and ε are "
    "not legible."
)


def findings(spec: TextCrafterSpec, records: Records) -> list[ClaimFinding]:
    """Return each claim with how many comparisons it holds in, for both readings of TextCrafter and both scenarios."""
    found = []
    table = published("textcrafter-table-1")
    for claim in claims("textcrafter"):
        told, first = [], None
        for reading, words in READINGS.items():
            for scenario in SCENARIOS if claim.compare.figure == "accuracy" else SCENARIOS[:1]:
                rows = _rows(records, reading, scenario)
                tally = claim.compare.tally(rows, table.keys)
                first = tally if first is None else first
                if tally.cells:
                    of = f", {scenario}" if claim.compare.figure == "accuracy" else ""
                    told.append(f"{words}{of}: {tally.held} of {tally.cells}")
        theirs = claim.published_tally()
        assert first is not None
        found.append(
            ClaimFinding(
                claim=claim.claim,
                source=claim.source,
                verdict=_verdict(first),
                ours="Holds in " + "; ".join(told) + " comparisons." if told else "",
                published=f"Holds in {theirs.held} of {theirs.cells} comparisons of its own table.",
                difference=DIFFERENCE.format(encoder=spec.encoder, radius=spec.radius),
            )
        )
    return [*found, *_at_equal_accuracy(records)]


def _rows(records: Records, reading: str, scenario: str) -> list[dict[str, Any]]:
    """Return rows as the paper's table has them, in per cent; ``reading`` is its TextCrafter."""
    names = {ours: theirs for ours, theirs in PAPER_ROWS.items() if theirs != "textcrafter"}
    names[reading] = "textcrafter"
    utility, sentences = (records.where(part=part) for part in ("utility", "sentences"))
    rows = []
    for where in sets_in(records):
        for ours, theirs in names.items():
            own = utility.where(set=where, defence=ours).figures(scenario, "accuracy")
            read = sentences.where(set=where, defence=ours).figures("figures", "bleu", "value")
            row: dict[str, Any] = {"dataset": where, "method": theirs}
            row["accuracy"] = 100 * statistics.fmean(own) if own else None
            row["bleu"] = 100 * statistics.fmean(read) if read else None
            rows.append(row)
    return rows


def _verdict(tally: Tally) -> Verdict:
    if tally.cells == 0:
        return "not measured"
    if tally.held == tally.cells:
        return "agrees"
    return "disagrees" if 2 * tally.held < tally.cells else "unclear"


def _at_equal_accuracy(records: Records) -> list[ClaimFinding]:
    """Return whether learning gains anything over Gaussian noise of twice the norm, of about the same accuracy."""
    parts, wins = [], 0
    utility = records.where(part="utility", seed=0)
    for where in sets_in(utility):
        figures = []
        for defence in ("textcrafter", "gaussian-2"):
            own = utility.where(set=where, defence=defence)
            for row in own:
                attacks = row["found"]["token_inference"]["attacks"]
                accuracy = row["found"]["deployment"]["accuracy"]
                if attacks:
                    figures.append((accuracy, max(attacks.values())))
        if len(figures) == 2:
            (ours, reads), (theirs, beside) = figures
            wins += reads < beside and ours >= theirs
            parts.append(
                f"{set_title(where)}: accuracy {100 * ours:.1f} % and R-precision {reads:.3f} against "
                f"{100 * theirs:.1f} % and {beside:.3f}"
            )
    if not parts:
        return []
    verdict: Verdict = "agrees" if wins == len(parts) else "disagrees" if wins == 0 else "unclear"
    return [
        ClaimFinding(
            claim=(
                "A learnt perturbation of norm r leaks less, at no less accuracy, than Gaussian noise of norm 2r that "
                "costs about as much accuracy."
            ),
            source="what learning is for; first seed, deployment",
            verdict=verdict,
            ours="; ".join(parts) + ".",
        )
    ]
