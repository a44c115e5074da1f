"""What the records of held-out-terms say: tables, the bar, and whether another setting would gain."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from research.experiment import Records
from research.held_out import KINDS
from research.summary import Cell as TableCell
from research.summary import Column, Finding, Table, number

__all__ = ["ABOUT", "SETTING", "VARIANTS", "bar", "cost_table", "limit", "protector_table"]

VARIANTS = {
    "none": "no protection",
    "removed": "every concept word removed from the text",
    "laplace": "Laplace",
    "sparse": "SPARSE",
    "subspace": "subspace, listed words alone",
    "expansion-found": "subspace, listed words and members where they stand",
    "expansion-few": "subspace, listed words and few members",
    "expansion": "subspace, listed words and their expansion",
    "oracle": "subspace, told of every word",
}
BAR = 0.5  # of SPARSE's excess over chance, for unseen words
CLEARLY = 0.75  # of the chosen setting's excess
SETTING = "setting "
ABOUT = (
    "Half of the concept's words are listed; a quarter is open to the sources of an expansion (a corpus, lists, "
    "Faker), a quarter is withheld from them. Expanded words are open ones that a source proposed; unseen ones are all "
    "others. In the specification that comes with it sources are rich: for sts the list that the concept is made of, "
    "for ade sentences of the same set, judged ones too; others will propose fewer of the right words. Protectors are "
    "fitted on texts of their own; the attackers know every word and learn it from other texts. "
    "Two rows bound what can be had: 'told of every word' is the same method with nothing held out, and 'every concept "
    "word removed' is what the rest of a sentence says of a word that is not in it any more. Settings of the method "
    "that a fit does not choose stand beside, to show what another choice could gain: which is best is seen here by "
    "looking at the unseen words, which no fit can."
)


def protector_table(records: Records, problem: str) -> Table:
    """Return the leakage of each kind of word under each variant."""
    columns = [Column("Protector", text=True)]
    for kind in KINDS:
        columns += [
            Column(f"{kind.title()} words", "%"),
            Column("Chance", "%"),
            Column("Of SPARSE's excess", "%"),
        ]
    columns.append(Column("Utility kept", "%"))
    body: list[list[TableCell]] = []
    for (variant,), rows in records.where(problem=problem).each("variant"):
        if not rows.figures("leakage", "listed", "value"):
            continue  # a setting that does not keep the utility
        row: list[TableCell] = [_title(variant)]
        for kind in KINDS:
            where = ("leakage", kind)
            low, high = (rows.figures(*where, end) for end in ("low", "high"))
            row += [
                number(rows.figures(*where, "value"), low=low, high=high),
                number(rows.figures(*where, "chance")),
                number(_ratios(records, problem, variant, kind), digits=0),
            ]
        kept = number(rows.figures("utility", "relative"))
        body.append([*row, "–" if variant == "removed" else kept])
    return Table(problem, columns, body)


def _title(variant: str) -> str:
    if not variant.startswith(SETTING):
        return VARIANTS[variant]
    erased, released, flattening = (float(part) for part in variant.split()[1:])
    return (
        f"subspace, {100 * erased:.0f} % erased, {100 * released:.0f} % released, "
        f"flattening {flattening:g}"
    )


def _ratios(records: Records, problem: str, variant: str, kind: str) -> list[float]:
    """Return for each seed the excess over chance as a share of SPARSE's; those that were not measured are left out."""

    def excesses(name: str) -> dict[int, float]:
        rows = records.where(problem=problem, variant=name)
        found = {}
        for (seed,), own in rows.each("seed"):
            value, chance = (own.figures("leakage", kind, key) for key in ("value", "chance"))
            if value and chance:
                found[seed] = value[0] - chance[0]
        return found

    base = excesses("sparse")
    return [
        excess / base[seed]
        for seed, excess in excesses(variant).items()
        if base.get(seed, 0.0) > 0.0
    ]


def cost_table(records: Records) -> Table:
    """Return what the expansions were made of."""
    columns = [
        Column("Problem", text=True), Column("Members"), Column("Texts"), Column("Encodings to find members"),
        Column("Encodings of texts"), Column("Seconds to expand"),
    ]  # fmt: skip
    paths = (
        ("members",),
        ("texts",),
        ("encodings", "members"),
        ("encodings", "texts"),
        ("seconds",),
    )
    body = [
        [
            problem,
            *(number(rows.figures("expansion", *path), percent=False, digits=0) for path in paths),
        ]
        for (problem,), rows in records.where(variant="expansion").each("problem")
    ]
    return Table("What an expansion costs", columns, body)


def bar(records: Records, problem: str) -> Finding:
    """Return whether the method that is fitted by default reaches the bar; what else was tried stands beside."""
    claim = f"Unseen words leak at most half of SPARSE's excess over chance ({problem})."
    found = {
        variant: ratios
        for variant in ("subspace", "expansion-found", "expansion", "oracle")
        if (ratios := _ratios(records, problem, variant, "unseen"))
    }
    if "subspace" not in found:
        return Finding(claim, "own", "not measured", "not measured")
    ours = "; ".join(f"{VARIANTS[v]}: {_shown(ratios)}" for v, ratios in found.items())
    agrees = statistics.fmean(found["subspace"]) <= BAR
    return Finding(claim, "own", "agrees" if agrees else "disagrees", ours)


def _shown(ratios: Sequence[float]) -> str:
    mean = f"{100 * statistics.fmean(ratios):.0f} %"
    if len(ratios) == 1:
        return mean
    return f"{mean} ({100 * min(ratios):.0f} to {100 * max(ratios):.0f} over {len(ratios)} seeds)"


def limit(records: Records, problem: str) -> Finding:
    """Return whether settings that a fit does not choose would hide unseen words better, seed by seed."""
    claim = f"Another setting of the method hides unseen words clearly better than the one that is chosen ({problem})."
    own = records.where(problem=problem)
    tried = [v for v in own.values("variant") if v.startswith(SETTING)]
    chosen: list[float] = []
    gains: dict[str, list[float]] = {}
    leaks: dict[str, list[float]] = {}
    for seed in dict.fromkeys(row["cell"]["seed"] for v in tried for row in own.where(variant=v)):
        rows = own.where(seed=seed)
        base = _ratios(rows, problem, "subspace", "unseen")
        chosen += base
        for v in tried:
            for ratio in _ratios(rows, problem, v, "unseen"):
                leaks.setdefault(v, []).append(ratio)
                gains.setdefault(v, []).extend(ratio / one for one in base if one > 0)
    if not chosen:
        return Finding(claim, "own", "not measured", "not measured")
    ours = f"of {len(tried)} settings {len(leaks)} keep the utility"
    if leaks:
        means = [statistics.fmean(found) for found in leaks.values()]
        ours += f", and leak {100 * min(means):.0f} to {100 * max(means):.0f} % of SPARSE's excess"
    ours += f"; the chosen one on the same texts {_shown(chosen)}"
    best = min((statistics.fmean(one) for one in gains.values() if one), default=1.0)
    return Finding(claim, "own", "agrees" if best < CLEARLY else "disagrees", ours)
