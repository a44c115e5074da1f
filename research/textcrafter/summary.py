"""The tables, figures and findings of the experiment, drawn from its records."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from msgspec import structs

from research import tables as draw
from research.experiment import Records, note
from research.judging import Measured, Tally, compare, verdict
from research.published import claims, published
from research.results import ClaimFinding, Figure, Number, Point, Series, Table, XAxis, YAxis, number
from research.specification import load_beside
from research.textcrafter.defences import DEFENCES
from research.textcrafter.specification import PII, TextCrafterSpec

LABEL = "empirical, no formal privacy guarantee"
_LABELS = load_beside(__file__, "labels.yaml")
TITLES, PAPER_ROWS, SENTENCE, CURVES, SIZES, SWEEPS, CLASSIFIERS, READINGS = _LABELS.values()
SWEPT = frozenset(name for names in SWEEPS.values() for name in names)  # defences on a curve of Fig. 3
RADII = frozenset(name for name in SWEPT if name.startswith("textcrafter"))  # its corollaries are judged on these
SCENARIOS = ("deployment", "development")
EPOCHS = (0, 1, 2, 5, 10)
DRAWN_CURVES = ("reward", "p_pii", "cluster_distance")
DIFFERENCE = note("textcrafter")
NONE = "–"  # there is no such figure
CHANCE = "chance"  # the row below the defences


def set_title(name: str) -> str:
    return str(TITLES.get(name, name))


def title(spec: TextCrafterSpec, name: str) -> str:
    """Return the name of a defence in tables; TextCrafter always with its label."""
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
    """Return the defences with a record, without controls."""
    controls = {name for name, one in DEFENCES.items() if not one.main}
    return [name for name in defences_in(spec, records) if name not in controls]


def strongest(records: Records, *path: str) -> list[float]:
    """Return the maximum of the figures at a path, for each record that has them."""
    found = []
    for row in records:
        held: Any = row["found"]
        for key in path:
            held = held.get(key) if isinstance(held, Mapping) else None
        if held:
            found.append(max(held.values()))
    return found


def _sentence(
    records: Records, name: str, *, interval: bool = False, key: str = "value", published: float | None = None
) -> Number | None:
    """Return a figure of the sentence-level attack, with its interval if ``interval``."""
    share = SENTENCE[name][1]
    path = ("figures", name) if interval else ("figures", name, key)
    read = records.estimate if interval else records.number
    return read(*path, digits=1 if share else 3, percent=share, published=published)


def _sentence_columns(cell: Callable[[str, tuple[Any, ...], Records], Number | None]) -> list[draw.Drawn]:
    return [
        draw.column(title, partial(cell, name), "%" if share else None) for name, (title, share) in SENTENCE.items()
    ]


def tables(spec: TextCrafterSpec, records: Records) -> list[Table]:
    """Return the tables whose part was measured."""
    utility, sentences, pii, curves = (records.where(part=part) for part in ("utility", "sentences", "pii", "curves"))
    found = []
    if len(utility):
        found += [_four_sets(spec, records), _leakage(spec, utility), _sizes(utility)]
    found += [_intervals(spec, sentences)] if len(sentences) else []
    found += [_pii(spec, pii)] if len(pii) else []
    found += [_curves(spec, curves)] if len(curves) else []
    return found


def _four_sets(spec: TextCrafterSpec, records: Records) -> Table:
    """Return the paper's table: reconstruction, then utility in both scenarios, of each set and main defence."""
    utility, sentences = (records.where(part=part) for part in ("utility", "sentences"))
    groups = [
        ((where, defence), utility.where(set=where, defence="none" if defence == CHANCE else defence))
        for where in sets_in(records)
        for defence in (*main_in(spec, utility), CHANCE)
    ]

    def norm(key: tuple[str, str], own: Records) -> Number | str | None:
        if key[1] == CHANCE:
            return NONE
        return number(own.figures("noise_norm")[:1], digits=2, percent=False)

    def written(name: str, key: tuple[str, str], own: Records) -> Number | None:
        where, defence = key
        if defence == CHANCE:
            return _sentence(sentences.where(set=where, defence="none"), name, key="chance")
        theirs = _theirs(where, defence).get(name)
        return _sentence(sentences.where(set=where, defence=defence), name, published=theirs)

    def scored(key: tuple[str, str], own: Records, scenario: str, figure: str) -> Number | None:
        if key[1] == CHANCE:
            chance = {"macro_f1": "macro_f1_chance", "accuracy": "chance"}[figure]
            return number(own.figures(scenario, chance)[:1])
        theirs = _theirs(*key).get(figure) if scenario == "deployment" else None
        return own.number(scenario, figure, published=theirs)

    return draw.table(
        "TextCrafter's Table I",
        groups,
        [
            draw.axis("set", 0, set_title),
            draw.axis("defence", 1, lambda name: CHANCE if name == CHANCE else title(spec, name)),
            draw.column("noise norm", norm),
            *_sentence_columns(written),
            *(
                draw.column(f"{name}, {scenario}", partial(scored, scenario=scenario, figure=figure), "%")
                for scenario in SCENARIOS
                for name, figure in (("F1", "macro_f1"), ("Acc", "accuracy"))
            ),
        ],
        "Quality of the sentence-level reconstruction, and accuracy of a classifier, by set and defence; mean ± "
        "standard deviation over seeds.",
        [
            "Published: Table I of the paper, which does not name the scenario of its F1 and accuracy; they are "
            "compared with deployment, and its TextCrafter row with the literal reading."
        ],
    )


def _theirs(where: str, defence: str) -> Mapping[str, float]:
    """Return the paper's row, as shares."""
    if defence not in PAPER_ROWS:
        return {}
    row = published("textcrafter-table-1").find(dataset=where, method=PAPER_ROWS[defence]) or {}
    return {k: v / 100 for k, v in row.items() if isinstance(v, int | float)}


def _intervals(spec: TextCrafterSpec, records: Records) -> Table:
    groups = [
        ((where, defence), own)
        for where in sets_in(records)
        for defence in main_in(spec, records)
        if len(own := records.where(set=where, defence=defence))
    ]
    columns = [
        draw.axis("set", 0, set_title),
        draw.axis("defence", 1, partial(title, spec)),
        *_sentence_columns(lambda name, _, own: _sentence(own, name, interval=True)),
    ]
    caption = "The sentence-level attack on each set and defence, with 95 % intervals."
    return draw.table("Reconstruction with intervals", groups, columns, caption)


def _leakage(spec: TextCrafterSpec, records: Records) -> Table:
    """Return each defence's norm, and for each set accuracy beside the strongest token inference."""

    def norm(key: tuple[str], own: Records) -> Number | str | None:
        if key[0] == CHANCE:
            return NONE
        return number([statistics.fmean(own.figures("noise_norm"))], digits=2, percent=False)

    def accuracy(key: tuple[str], own: Records, where: str, scenario: str) -> Number | None:
        own = own.where(set=where)
        if key[0] == CHANCE:
            return number(own.figures(scenario, "chance")[:1])
        return own.number(scenario, "accuracy")

    def inferred(key: tuple[str], own: Records, where: str) -> Number | None:
        own = own.where(set=where)
        chance = own.figures("token_inference", "chance")[:1]
        read = chance if key[0] == CHANCE else strongest(own, "token_inference", "attacks")
        return number(read, digits=3, percent=False)

    columns = [
        draw.axis("defence", 0, lambda name: CHANCE if name == CHANCE else title(spec, name)),
        draw.column("noise norm", norm),
    ]
    for where in sets_in(records):
        name = set_title(where)
        for scenario in SCENARIOS:
            cell = partial(accuracy, where=where, scenario=scenario)
            columns.append(draw.column(f"{name}: Acc, {scenario}", cell, "%"))
        columns.append(draw.column(f"{name}: R-precision", partial(inferred, where=where)))
    defences = {name: name for name in defences_in(spec, records)} | {CHANCE: "none"}
    groups = [((name,), records.where(defence=defence)) for name, defence in defences.items()]
    caption = "R-precision is that of the strongest token-inference attack, each trained on protected vectors."
    return draw.table("Token inference and accuracy", groups, columns, caption)


def _pii(spec: TextCrafterSpec, records: Records) -> Table:
    """Return the scores of frozen PII classifiers, and of probes trained on protected vectors."""
    each = {"p_with": "p(PII), texts with PII", "p_without": "p(PII), without", "auc": "AUC"}

    def read(key: tuple[str], own: Records, model: str, figure: str) -> Number | str | None:
        if model == "policy" and not own.figures("frozen", "policy", "auc"):
            return NONE
        return own.plain("frozen", model, figure, digits=3)

    groups = [((name,), records.where(defence=name)) for name in defences_in(spec, records)]
    return draw.table(
        "Whether a text holds PII",
        groups,
        [
            draw.axis("defence", 0, partial(title, spec)),
            *(
                draw.column(f"{name} classifier: {what}", partial(read, model=model, figure=figure))
                for model, name in CLASSIFIERS.items()
                for figure, what in each.items()
            ),
            draw.column(
                "AUC of the strongest probe", lambda _, own: number(strongest(own, "probes"), digits=3, percent=False)
            ),
        ],
        "The policy's own classifier is the one in its reward, the other is the same for every defence; both "
        "learnt from clean vectors. The probes learn from protected vectors.",
    )


def _curves(spec: TextCrafterSpec, records: Records) -> Table:
    """Return the state of the first seed's policies after some epochs."""
    groups = []
    for row in records.where(set=PII, seed=0):
        epochs: list[Mapping[str, Any]] = row["found"]["training"]["epochs"]
        shown = [one for one in epochs if one["epoch"] in (*EPOCHS, epochs[-1]["epoch"])]
        groups += [((row["cell"]["defence"], epoch), Records([])) for epoch in shown]

    def value(key: tuple[str, Mapping[str, Any]], _: Records, name: str) -> Number | None:
        return number([key[1][name]], digits=3, percent=False)

    return draw.table(
        "Learning curves",
        groups,
        [
            draw.axis("policy", 0, partial(title, spec)),
            draw.axis("epoch", 1, lambda epoch: str(epoch["epoch"])),
            *(draw.column(shown, partial(value, name=name)) for name, shown in CURVES.items()),
        ],
        f"Policies of the first seed ({LABEL}); of released vectors unless marked as clean.",
    )


def _sizes(records: Records) -> Table:
    def size(key: tuple[str], own: Records, name: str) -> Number | None:
        return number(own.figures("sizes", name)[:1], digits=0, percent=False)

    return draw.table(
        "Sets",
        records.each("set"),
        [
            draw.axis("set", 0, set_title),
            *(draw.column(shown, partial(size, name=name)) for name, shown in SIZES.items()),
        ],
        "Rows, and words of the concept that are frequent enough to be attacked.",
    )


def figures(spec: TextCrafterSpec, records: Records) -> list[Figure]:
    """Return accuracy against BLEU (Fig. 3 of the paper), and the policies' learning curves."""
    return [*_accuracy_against_bleu(spec, records), *_sweeps(records), *_learning(spec, records)]


def _accuracy_against_bleu(spec: TextCrafterSpec, records: Records) -> list[Figure]:
    utility, sentences = (records.where(part=part) for part in ("utility", "sentences"))
    found = []
    for where in sets_in(sentences):
        series = []
        for defence in main_in(spec, sentences):
            bleu, accuracy = _in_percent(utility, sentences, where, defence, "deployment")
            if bleu is not None and accuracy is not None:
                series.append(Series(title(spec, defence), [Point(bleu, accuracy)]))
        if series:
            found.append(
                Figure(
                    f"Accuracy against BLEU: {set_title(where)}",
                    series=series,
                    y=YAxis("accuracy (%)"),
                    caption="Deployment. Left: harder to reconstruct. Up: more useful.",
                    x=XAxis("BLEU of the reconstruction (%)"),
                )
            )
    return found


def _sweeps(records: Records) -> list[Figure]:
    """Return accuracy against BLEU (Fig. 3 of the paper) and token inference over r, σ and ε.

    A set has a figure where a curve has two points.
    """
    utility, sentences = (records.where(part=part, seed=0) for part in ("utility", "sentences"))

    def point(where: str, defence: str, short: str) -> Point | None:
        bleu, accuracy = _in_percent(utility, sentences, where, defence, "deployment")
        inferred = strongest(utility.where(set=where, defence=defence), "token_inference", "attacks")
        x = bleu if short == "BLEU" else 100 * inferred[0] if inferred else None
        return None if x is None or accuracy is None else Point(x, accuracy)

    found = []
    across = {"BLEU": "BLEU of the reconstruction", "token inference": "R-precision"}
    for where, (short, label) in itertools.product(sets_in(utility), across.items()):
        series = []
        for name, defences in SWEEPS.items():
            points = [one for defence in defences if (one := point(where, defence, short))]
            series += [Series(f"{name}; {LABEL}" if "TextCrafter" in name else name, points)] if len(points) > 1 else []
        if series:
            caption = "Deployment, first seed; noise grows from right to left."
            title = f"Accuracy against {short} over r, σ and ε: {set_title(where)}"
            x, y = XAxis(f"{label} (%)"), YAxis("accuracy (%)")
            found.append(Figure(title, caption=caption, x=x, y=y, series=series))
    return found


def _in_percent(
    utility: Records, sentences: Records, where: str, defence: str, scenario: str
) -> tuple[float | None, float | None]:
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
            points: list[Point] = [Point(epoch["epoch"], epoch[name]) for epoch in epochs]
            series.append(Series(title(spec, row["cell"]["defence"]), points))
        caption = f"Of released vectors held out from training, by epoch; {LABEL}."
        what = CURVES[name]
        found.append(
            Figure(f"Learning curves: {what}", caption=caption, x=XAxis("epoch"), y=YAxis(what), series=series)
        )
    return found


def findings(spec: TextCrafterSpec, records: Records) -> list[ClaimFinding]:
    """Return each claim's verdict for every reading of TextCrafter.

    The paper does not name its scenario: a claim on accuracy has a verdict only where both scenarios give it.
    """
    found = []
    keys = published("textcrafter-table-1").keys
    difference = DIFFERENCE.format(encoder=spec.encoder, radius=spec.radius)
    for claim in claims("textcrafter"):
        for reading, name in READINGS.items():
            if not len(records.where(defence=reading)):
                continue
            tallies = [claim.compare.tally(_rows(records, reading, one), keys) for one in SCENARIOS]
            one = draw.finding_of(claim, tallies[0], difference=difference, suffix=f" (Reading: {name}.)")
            if claim.compare.figure in ("accuracy", "kept") and tallies[1].cells:
                told = one.verdict if verdict(tallies[1]) == one.verdict else "unclear"
                one = structs.replace(one, verdict=told, ours=f"{one.ours}; in development it {tallies[1]}")
            found.append(one)
    return [*found, *_at_equal_accuracy(records)]


def _rows(records: Records, reading: str, scenario: str) -> list[dict[str, Any]]:
    """Return rows in the form of the paper's table, in per cent; ``reading`` is its TextCrafter."""
    names = {ours: theirs for ours, theirs in PAPER_ROWS.items() if theirs != "textcrafter"}
    names |= {reading: "textcrafter", "gaussian-2": "gaussian-2"}
    utility, sentences = (records.where(part=part) for part in ("utility", "sentences"))
    rows = []
    for where in sets_in(records):
        clean = sentences.where(set=where, defence="none")
        live = [k for k in ("bleu", "token_f1", "rouge_l") if draw.above_chance(clean, "figures", k)]
        for ours, theirs in names.items():
            read, own = (part.where(set=where, defence=ours) for part in (sentences, utility))
            row = {k: read.measured("figures", k, factor=100) for k in live}
            accuracy = own.measured(scenario, "accuracy", factor=100)
            row["accuracy"] = accuracy and _with_half(accuracy, min(own.figures("sizes", "test"), default=1))
            rows.append({"dataset": where, "method": theirs, **row})
        if (equal := _at_equal_leakage(utility.where(set=where), reading, scenario)) is not None:
            rows.append({"dataset": where, "method": "equal-leakage", "accuracy": equal})
        swept = next((own for own in SWEEPS.values() if reading in own), ())
        for step, ours in enumerate(swept):
            own = utility.where(set=where, defence=ours)
            if (accuracy := own.measured(scenario, "accuracy", factor=100)) is None:
                continue
            row = {"kept": _with_half(accuracy, own.figures("sizes", "test")[0])}
            if recovered := _recovered(own):
                row["recovered"] = recovered
            rows.append({"dataset": where, "radius": step, **row})
    return rows


def _recovered(records: Records) -> Measured | None:
    """Return what the strongest token inference recovers, in per cent."""
    found = {
        row["cell"]["seed"]: 100 * max(attacks.values())
        for row in records
        if (attacks := row["found"]["token_inference"]["attacks"])
    }
    return _with_half(Measured(found), records.figures("sizes", "token_test")[0]) if found else None


def _at_equal_leakage(records: Records, reading: str, scenario: str) -> Measured | None:
    """Return the accuracy of Gaussian noise whose token inference recovers as much as behind a reading, in per cent.

    Interpolated over σ in each seed, from clean vectors on; a reading that leaks more than all of them is compared with
    clean vectors, and one that leaks less than all with nothing.
    """
    names = (reading, "gaussian-2", "gaussian", "gaussian-half", "none")
    points: dict[int, list[tuple[float, float]]] = {}
    for (seed,), own in records.each("seed"):
        for defence in names:
            at = own.where(defence=defence)
            leaks = strongest(at, "token_inference", "attacks")
            accuracy = at.figures(scenario, "accuracy")
            points.setdefault(seed, []).extend(zip(leaks, accuracy, strict=False))
    points = {seed: own for seed, own in points.items() if len(own) == len(names)}
    if not points or statistics.fmean(own[0][0] for own in points.values()) < statistics.fmean(
        own[1][0] for own in points.values()
    ):
        return None
    found = {}
    for seed, ((leak, _), *curve) in points.items():
        # Leakage may fall by chance where noise does: the curve is that of the larger figures.
        leakage = np.maximum.accumulate([each for each, _ in curve])
        found[seed] = 100 * float(np.interp(leak, leakage, [each for _, each in curve]))
    return _with_half(Measured(found), records.figures("sizes", "test")[0])


def _with_half(percent: Measured, n: float) -> Measured:
    """Return a share of ``n`` rows, in per cent, with the half interval that it has with one seed."""
    share = percent.value / 100
    return replace(percent, half=196 * math.sqrt(max(share * (1 - share), 0) / n))


def _at_equal_accuracy(records: Records) -> list[ClaimFinding]:
    """Return whether learning gains over Gaussian noise of twice the norm, at about equal accuracy."""
    parts: list[str] = []
    outcomes: list[tuple[int, Mapping[str, Any]]] = []
    utility = records.where(part="utility")
    for where in sets_in(utility):
        pairs = [
            (_with_half(accuracy, own.figures("sizes", "test")[0]), recovered)
            for defence in ("textcrafter", "gaussian-2")
            if len(own := utility.where(set=where, defence=defence))
            and (accuracy := own.measured("deployment", "accuracy", factor=100))
            and (recovered := _recovered(own))
        ]
        if len(pairs) == 2:
            (ours, reads), (theirs, beside) = pairs
            outcomes.append((min(compare(beside, reads), 1 if compare(ours, theirs) >= 0 else -1), {}))
            parts.append(
                f"{set_title(where)}: accuracy {ours.value:.1f} % and R-precision {reads.value:.1f} % against "
                f"{theirs.value:.1f} % and {beside.value:.1f} %"
            )
    claim = (
        "A learnt perturbation of norm r leaks less, at no less accuracy, than Gaussian noise of norm 2r that costs "
        "about as much accuracy."
    )
    told = verdict(Tally.of(outcomes), fewest=1)
    source = "own; deployment"
    return [ClaimFinding(claim, source, told, "; ".join(parts) + ".")] if parts else []
