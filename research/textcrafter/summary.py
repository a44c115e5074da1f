"""The tables, figures and findings of the experiment, drawn from its records."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from research.experiment import Records
from research.published import Tally, claims, published
from research.tables import percent, plain, share_verdict, words
from research.textcrafter.defences import DEFENCES
from research.textcrafter.specification import PII, TextCrafterSpec
from vecveil.records.experiment import Cell as TableCell
from vecveil.records.experiment import (
    ClaimFinding,
    Column,
    Figure,
    Number,
    Point,
    Series,
    Table,
    Verdict,
    number,
)

LABEL = "empirical, no formal privacy guarantee"
TITLES = {"phrasebank": "Financial PhraseBank", "ade": "ADE", "sst2": "SST-2", "agnews": "AG News"}
# The paper's TextCrafter is the literal one, whose direction v is as drawn.
PAPER_ROWS = {
    "none": "none", "shuffle": "shuffle", "gaussian": "gaussian", "ldp-gaussian": "ldp-gaussian",
    "textcrafter-untrained": "textcrafter",
}  # fmt: skip
# Title, and whether it is a share, of each figure of the sentence-level attack.
SENTENCE = {
    "bleu": ("BLEU", True), "token_f1": ("T-F1", True), "exact_match": ("EM", True), "rouge_l": ("R-L", True),
    "cosine": ("cosine", False),
}  # fmt: skip
SENTENCE_COLUMNS = [Column(name, "%" if share else None) for name, share in SENTENCE.values()]
SCENARIOS = ("deployment", "development")
EPOCHS = (0, 1, 2, 5, 10)
CURVES = {
    "reward": "reward", "reward_clean": "reward of clean vectors", "p_pii": "p(PII)", "drift": "drift",
    "cluster_distance": "distance to c", "deterministic_share": "deterministic share",
    "mean_resultant": "mean resultant",
}  # fmt: skip
DRAWN_CURVES = ("reward", "p_pii", "cluster_distance")
SIZES = {
    "train": "training rows", "test": "test rows", "dropped": "left out as in test", "classes": "classes",
    "tokens": "tokens", "token_train": "training texts with one", "token_test": "test texts with one",
}  # fmt: skip
CLASSIFIERS = {"policy": "policy's own", "benchmark": "benchmark's"}
READINGS = {"textcrafter-untrained": "the literal reading", "textcrafter": "v learnt"}
DIFFERENCE = (
    "Encoder {encoder}, where the paper names none; GEIA trained here in minutes, where the paper's Vec2Text starts "
    "from pretrained models; logistic regression on samples of the sets; r = {radius:g}, where its r, σ and ε are "
    "not legible."
)
NONE = "–"  # there is no such figure


def set_title(name: str) -> str:
    """Return a set as tables call it."""
    return TITLES.get(name, name)


def title(spec: TextCrafterSpec, name: str) -> str:
    """Return a defence as tables call it; TextCrafter never without its label."""
    one = spec.defence(name)
    full = one.title if name in DEFENCES else f"{name}: {one.title}"
    return f"{full}; {LABEL}" if one.method.startswith("textcrafter") else full


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
    records: Records, name: str, *, interval: bool = False, key: str = "value", **options: Any
) -> Number | None:
    """Return a figure of the sentence-level attack, with its interval if asked."""
    _, share = SENTENCE[name]
    options |= {"digits": 1 if share else 3, "percent": share}
    if interval:
        return records.estimate("figures", name, **options)
    return records.number("figures", name, key, **options)


def tables(spec: TextCrafterSpec, records: Records) -> list[Table]:
    """Return those tables whose part was measured."""
    utility, sentences, pii, curves = (
        records.where(part=part) for part in ("utility", "sentences", "pii", "curves")
    )
    found = []
    if len(utility):
        found += [_four_sets(spec, records), _leakage(spec, utility), _sizes(utility)]
    found += [_intervals(spec, sentences)] if len(sentences) else []
    found += [_pii(spec, pii)] if len(pii) else []
    found += [_curves(spec, curves)] if len(curves) else []
    return found


def _four_sets(spec: TextCrafterSpec, records: Records) -> Table:
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
                *(own.number(scenario, figure, published=theirs.get(figure) if scenario == "deployment" else None)
                  for scenario, figure in figures),
            ])  # fmt: skip
        clean, read = (part.where(set=where, defence="none") for part in (utility, sentences))
        chances = {"macro_f1": "macro_f1_chance", "accuracy": "chance"}
        rows.append([
            set_title(where), "chance", NONE, *(sentence(read, name, key="chance") for name in SENTENCE),
            *(number(clean.figures(s, chances[f])[:1]) for s, f in figures),
        ])  # fmt: skip
    return Table(
        title="TextCrafter's Table I",
        caption=(
            "What a sentence-level attack writes back, and what a classifier still gets right, by set and defence; "
            "mean ± standard deviation over seeds."
        ),
        columns=[
            *words("set", "defence"), *plain("noise norm"), *SENTENCE_COLUMNS,
            *percent(*(f"{name}, {scenario}" for scenario in SCENARIOS for name in ("F1", "Acc"))),
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


def _intervals(spec: TextCrafterSpec, records: Records) -> Table:
    rows = [
        [set_title(where), title(spec, defence), *(sentence(own, name, interval=True) for name in SENTENCE)]
        for where in sets_in(records)
        for defence in main_in(spec, records)
        if len(own := records.where(set=where, defence=defence))
    ]  # fmt: skip
    return Table(
        title="Reconstruction with intervals",
        caption="The sentence-level attack on each set and defence, with 95 % intervals.",
        columns=[*words("set", "defence"), *SENTENCE_COLUMNS],
        rows=rows,
    )


def _leakage(spec: TextCrafterSpec, records: Records) -> Table:
    """Return for every defence its norm, and for each set accuracy beside the strongest token inference."""
    sets, rows = sets_in(records), []
    columns = [*words("defence"), *plain("noise norm")]
    chance: list[TableCell] = ["chance", NONE]
    for where in sets:
        name, own = set_title(where), records.where(set=where, defence="none")
        columns += [
            *percent(*(f"{name}: Acc, {scenario}" for scenario in SCENARIOS)), *plain(f"{name}: R-precision")
        ]  # fmt: skip
        chance += [number(own.figures(scenario, "chance")[:1]) for scenario in SCENARIOS]
        chance.append(number(own.figures("token_inference", "chance")[:1], digits=3, percent=False))
    for defence in defences_in(spec, records):
        every = records.where(defence=defence)
        norm = number([statistics.fmean(every.figures("noise_norm"))], digits=2, percent=False)
        row: list[TableCell] = [title(spec, defence), norm]
        for where in sets:
            own = every.where(set=where)
            read = strongest(own, "token_inference", "attacks")
            row += [own.number(scenario, "accuracy") for scenario in SCENARIOS]
            row.append(number(read, digits=3, percent=False))
        rows.append(row)
    return Table(
        title="Token inference and accuracy",
        caption="R-precision is that of the strongest token-inference attack, each trained on protected vectors.",
        columns=columns,
        rows=[*rows, chance],
    )


def _pii(spec: TextCrafterSpec, records: Records) -> Table:
    """Return what frozen PII classifiers say, and what probes that learn from protected vectors find."""
    rows: list[list[TableCell]] = []
    each = {"p_with": "p(PII), texts with PII", "p_without": "p(PII), without", "auc": "AUC"}
    for defence in defences_in(spec, records):
        own = records.where(defence=defence)
        has_own = bool(own.figures("frozen", "policy", "auc"))
        rows.append([
            title(spec, defence),
            *(NONE if model == "policy" and not has_own else own.plain("frozen", model, name, digits=3)
              for model in CLASSIFIERS for name in each),
            number(strongest(own, "probes"), digits=3, percent=False),
        ])  # fmt: skip
    return Table(
        title="Whether a text holds PII",
        caption=(
            "The policy's own classifier is the one in its reward, the other is the same for every defence; both "
            "learnt from clean vectors. The probes learn from protected ones."
        ),
        columns=[
            *words("defence"),
            *plain(*(f"{model} classifier: {what}" for model in CLASSIFIERS.values() for what in each.values())),
            *plain("AUC of the strongest probe"),
        ],
        rows=rows,
    )  # fmt: skip


def _curves(spec: TextCrafterSpec, records: Records) -> Table:
    """Return what the policies of the first seed had reached after some epochs."""
    rows: list[list[TableCell]] = []
    for row in records.where(set=PII, seed=0):
        epochs: list[Mapping[str, Any]] = row["found"]["training"]["epochs"]
        for epoch in epochs:
            if epoch["epoch"] in (*EPOCHS, epochs[-1]["epoch"]):
                shown = (number([epoch[name]], digits=3, percent=False) for name in CURVES)
                rows.append([title(spec, row["cell"]["defence"]), str(epoch["epoch"]), *shown])
    return Table(
        title="Learning curves",
        caption=f"Policies of the first seed ({LABEL}); of released vectors but where it says clean.",
        columns=[*words("policy", "epoch"), *plain(*CURVES.values())],
        rows=rows,
    )


def _sizes(records: Records) -> Table:
    rows: list[list[TableCell]] = []
    for where in sets_in(records):
        held = (records.where(set=where).figures("sizes", name)[:1] for name in SIZES)
        rows.append([set_title(where), *(number(one, digits=0, percent=False) for one in held)])
    return Table(
        title="Sets",
        caption="Rows that are used, and words of the concept that are frequent enough to be looked for.",
        columns=[*words("set"), *plain(*SIZES.values())],
        rows=rows,
    )


def figures(spec: TextCrafterSpec, records: Records) -> list[Figure]:
    """Return accuracy against BLEU (Fig. 3 of the paper), and how policies learn, where there are records."""
    return [*_accuracy_against_bleu(spec, records), *_learning(spec, records)]


def _accuracy_against_bleu(spec: TextCrafterSpec, records: Records) -> list[Figure]:
    utility, sentences = (records.where(part=part) for part in ("utility", "sentences"))
    found = []
    for where in sets_in(sentences):
        series = []
        for defence in main_in(spec, sentences):
            bleu, accuracy = _in_percent(utility, sentences, where, defence, "deployment")
            if bleu is not None and accuracy is not None:
                series.append(Series(title(spec, defence), [(bleu, accuracy, None, None)]))
        if series:
            found.append(
                Figure(
                    f"Accuracy against BLEU: {set_title(where)}", series=series, y="accuracy (%)",
                    caption="Deployment. Further left is harder to reconstruct, further up is more useful.",
                    x="BLEU of the reconstruction (%)",
                )
            )  # fmt: skip
    return found


def _in_percent(
    utility: Records, sentences: Records, where: str, defence: str, scenario: str
) -> tuple[float | None, float | None]:
    """Return the means of BLEU and accuracy, in per cent."""
    read = sentences.where(set=where, defence=defence).figures("figures", "bleu", "value")
    own = utility.where(set=where, defence=defence).figures(scenario, "accuracy")
    bleu, accuracy = (100 * statistics.fmean(one) if one else None for one in (read, own))
    return bleu, accuracy


def _learning(spec: TextCrafterSpec, records: Records) -> list[Figure]:
    rows = records.where(part="curves", seed=0)
    found = []
    for name in DRAWN_CURVES if len(rows) else ():
        series = []
        for row in rows:
            epochs = row["found"]["training"]["epochs"]
            points: list[Point] = [(epoch["epoch"], epoch[name], None, None) for epoch in epochs]
            series.append(Series(title(spec, row["cell"]["defence"]), points))
        caption = f"Of released vectors held out from training, by epoch; {LABEL}."
        what = CURVES[name]
        found.append(
            Figure(f"Learning curves: {what}", caption=caption, x="epoch", y=what, series=series)
        )
    return found


def findings(spec: TextCrafterSpec, records: Records) -> list[ClaimFinding]:
    """Return each claim with how many comparisons it holds in, for both readings of TextCrafter and both scenarios."""
    found = []
    table = published("textcrafter-table-1")
    for claim in claims("textcrafter"):
        of_accuracy = claim.compare.figure == "accuracy"
        parts, tallies = [], []
        for reading, name in READINGS.items():
            for scenario in SCENARIOS if of_accuracy else SCENARIOS[:1]:
                tally = claim.compare.tally(_rows(records, reading, scenario), table.keys)
                tallies.append(tally)
                if tally.cells:
                    of = f", {scenario}" if of_accuracy else ""
                    parts.append(f"{name}{of}: {tally.held} of {tally.cells}")
        theirs = claim.published_tally()
        found.append(
            ClaimFinding(
                claim.claim, claim.source, _verdict(tallies[0]),
                "Holds in " + "; ".join(parts) + " comparisons." if parts else "",
                f"Holds in {theirs.held} of {theirs.cells} comparisons of its own table.",
                DIFFERENCE.format(encoder=spec.encoder, radius=spec.radius),
            )
        )  # fmt: skip
    return [*found, *_at_equal_accuracy(records)]


def _rows(records: Records, reading: str, scenario: str) -> list[dict[str, Any]]:
    """Return rows as the paper's table has them, in per cent; ``reading`` is its TextCrafter."""
    names = {ours: theirs for ours, theirs in PAPER_ROWS.items() if theirs != "textcrafter"}
    names[reading] = "textcrafter"
    utility, sentences = (records.where(part=part) for part in ("utility", "sentences"))
    rows = []
    for where in sets_in(records):
        for ours, theirs in names.items():
            bleu, accuracy = _in_percent(utility, sentences, where, ours, scenario)
            rows.append({"dataset": where, "method": theirs, "accuracy": accuracy, "bleu": bleu})
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
        pairs = [
            (row["found"]["deployment"]["accuracy"], max(attacks.values()))
            for defence in ("textcrafter", "gaussian-2")
            for row in utility.where(set=where, defence=defence)
            if (attacks := row["found"]["token_inference"]["attacks"])
        ]
        if len(pairs) == 2:
            (ours, reads), (theirs, beside) = pairs
            wins += reads < beside and ours >= theirs
            parts.append(
                f"{set_title(where)}: accuracy {100 * ours:.1f} % and R-precision {reads:.3f} against "
                f"{100 * theirs:.1f} % and {beside:.3f}"
            )
    claim = (
        "A learnt perturbation of norm r leaks less, at no less accuracy, than Gaussian noise of norm 2r that costs "
        "about as much accuracy."
    )
    verdict = share_verdict(wins, len(parts), agrees=1, disagrees=0)
    source = "what learning is for; first seed, deployment"
    return [ClaimFinding(claim, source, verdict, "; ".join(parts) + ".")] if parts else []
