"""Target, similar and other words beside the paper's, masks as heat maps, and their overlap with its control."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from research.catalogue.claims import findings_of
from research.catalogue.mask_overlap import Overlap, mask_overlap, shared, union_of_top
from research.catalogue.point_tables import METHOD_NAMES
from research.experiment import Records
from research.published import published
from research.scales import parse_scale
from research.summary import (
    Cell,
    Column,
    Figure,
    Finding,
    Number,
    Summary,
    Table,
    Verdict,
    number,
)

__all__ = ["Change", "change_of", "concept_groups_summary"]

TABLE = "sparse-table-5"
KINDS = ("target", "similar", "other")
ALPHA = 0.05
ENOUGH_WORDS = 20  # with fewer, groups are too small for the permutation to tell much
DRAWS = 2000
DIFFERENCE = (
    "The paper: GTR-base, Vec2Text, a data set that it does not name. Here: the encoder of the specification, the "
    "strongest of its token-inference attacks, trained on protected vectors, among the words of all groups; leakage is "
    "the share of a word's instances that the attack ranks among the text's k best."
)

Change = tuple[float, float, float]


def concept_groups_summary(
    records: Records, recipes: Sequence[str], top: int, scale: str
) -> Summary:
    """Return tables, heat maps and findings."""
    masks = [found for name in recipes if (found := _Masks(records, name)).words]
    overlaps = {one.recipe: mask_overlap(one.masks, one.groups, top=top) for one in masks}
    notes = _left_out(records)
    return Summary(
        tables=[
            *(_changes(records, name, scale) for name in records.values("problem")),
            *([_overlaps(masks, overlaps, top)] if masks else []),
        ],
        figures=[_heat(one, group, top) for one in masks for group in dict.fromkeys(one.groups)],
        findings=_findings(records, recipes, masks, overlaps, top, scale),
        notes=[*notes, *published(TABLE).notes],
    )


def _left_out(records: Records) -> list[str]:
    found = []
    for (group,), rows in records.each("group"):
        reasons: dict[str, str] = {}
        for row in rows:
            reasons |= row["found"].get("left_out", {})
        if reasons:
            counts = Counter(reasons.values())
            said = ", ".join(f"{count} {why}" for why, count in counts.most_common())
            found.append(f"Words of {group} that are not protected themselves: {said}.")
    return found


class _Masks:
    """The masks of a recipe: of the first problem and seed, one of each word."""

    def __init__(self, records: Records, recipe: str) -> None:
        self.recipe = recipe
        own = records.where(method=recipe)
        self.words: list[str] = []
        self.groups: list[str] = []
        self.masks: list[Any] = []
        self.again: list[Any] = []
        for row in own:
            if [row["cell"][k] for k in ("problem", "seed")] != [
                own[0]["cell"][k] for k in ("problem", "seed")
            ]:
                continue
            for word, found in row["found"]["words"].items():
                self.words.append(word)
                self.groups.append(row["cell"]["group"])
                self.masks.append(np.array(found["mask"]))
                self.again.append(np.array(found["again"]))

    def agreement(self, top: int) -> float:
        """Return the share of the highest dimensions that a word's masks of two seeds have in common."""
        return float(
            np.mean([shared(a, b, top) for a, b in zip(self.masks, self.again, strict=True)])
        )


def change_of(records: Records, group: str, method: str, kind: str) -> Change:
    """Return the relative change of leakage of ``target``, ``similar`` or ``other`` words, all protected words pooled.

    Returns:
        The change against no protection, −1 where nothing is left, and its 95 % interval: the protected words drawn
        again with replacement. NaN where the unprotected attack finds none of the words.
    """
    before, after = [], []
    for row in records.where(group=group, method=method):
        cell = row["cell"]
        clean = records.where(group="all", problem=cell["problem"], seed=cell["seed"])
        if not len(clean):
            continue
        hits = {word: one["value"] * one["n"] for word, one in clean[0]["found"]["words"].items()}
        similar = set(row["found"]["words"]) | set(row["found"]["left_out"])
        for word, found in row["found"]["words"].items():
            of = {
                "target": [word], "similar": [w for w in hits if w in similar and w != word],
                "other": [w for w in hits if w not in similar],
            }  # fmt: skip
            before.append(sum(hits[w] for w in of[kind] if w in hits))
            after.append(found[kind][0])
    if not sum(before):
        return math.nan, math.nan, math.nan
    one, other = np.array(before), np.array(after)
    rows = np.random.default_rng(0).integers(0, len(one), (DRAWS, len(one)))
    totals = one[rows].sum(axis=1)
    drawn = other[rows].sum(axis=1)[totals > 0] / totals[totals > 0] - 1
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(other.sum() / one.sum() - 1), float(low), float(high)


def _changes(records: Records, problem: str, scale: str) -> Table:
    columns = [
        Column("Group", text=True), Column("Method", text=True), Column("Words"), Column("Instances"),
        Column("Leakage without protection", "%"),
        *(Column(name, "%") for name in ("Protected word", "Similar words", "Other words")),
        Column("Utility kept", "%"),
    ]  # fmt: skip
    own = records.where(problem=problem)
    rows: list[list[Cell]] = []
    for (group, method), at in own.each("group", "method"):
        counts = [float(len(row["found"]["words"])) for row in at]
        if method == "none" or not sum(counts):
            continue
        instances, hits = _unprotected(own, at)
        kept = [one["utility"] for row in at for one in row["found"]["words"].values()]
        rows.append(
            [
                group, METHOD_NAMES.get(method, method), number(counts, percent=False, digits=0),
                Number(instances, percent=False, digits=0), Number(hits / instances) if instances else None,
                *(_number(change_of(own, group, method, kind), group, method, kind, scale) for kind in KINDS),
                Number(float(np.mean([k for k in kept if k is not None])), percent=True),
            ]
        )  # fmt: skip
    caption = (
        f"Change of leakage against no protection at scale '{scale}', protected words pooled; the interval is over "
        f"these words. {DIFFERENCE}"
    )
    return Table(f"{problem}: the protected word, similar words, other words", columns, rows, caption)  # fmt: skip


def _unprotected(records: Records, rows: Records) -> tuple[float, float]:
    """Return instances of the protected words, and how many the attack finds without protection."""
    instances = hits = 0.0
    for row in rows:
        clean = records.where(group="all", seed=row["cell"]["seed"])
        for word in row["found"]["words"] if len(clean) else ():
            one = clean[0]["found"]["words"].get(word, {"n": 0, "value": 0.0})
            instances += one["n"]
            hits += one["n"] * one["value"]
    return instances, hits


def _number(change: Change, group: str, method: str, kind: str, scale: str) -> Number | None:
    value, low, high = change
    if math.isnan(value):
        return None
    parsed = parse_scale(scale)
    row = published(TABLE).find(group=group, tokens=kind, method=method)
    close = row is not None and parsed.kind == "effective" and parsed.value == row["epsilon"]
    theirs = float(row["leakage_change"]) / 100 if row is not None and close else None
    return Number(value, low=low, high=high, published=theirs)


def _overlaps(masks: Sequence[_Masks], overlaps: dict[str, Overlap], top: int) -> Table:
    columns = [
        Column("Mask", text=True), Column("Words"), Column("Same group", "%"), Column("Other groups", "%"),
        Column("p, groups permuted", text=True), Column("Same word, other seed", "%"), Column("By chance", "%"),
        Column("Deviation of a mask"), Column("Effective dimensions"),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for one in masks:
        found, n = overlaps[one.recipe], len(one.masks[0])
        spread = [float(mask.std()) for mask in one.masks]
        sizes = [float(m.sum() ** 2 / (m**2).sum()) if m.any() else 0.0 for m in one.masks]
        rows.append(
            [
                one.recipe, Number(len(one.words), percent=False, digits=0), number([found.within]),
                number([found.across]), f"{found.p_value:.1e}", Number(one.agreement(top)), Number(top / n),
                Number(float(np.mean(spread)), percent=False, digits=3),
                Number(float(np.mean(sizes)), percent=False, digits=0),
            ]
        )  # fmt: skip
    caption = (
        f"Share of the {top} highest dimensions of a mask that two masks have in common, of two words, or of one word "
        "trained with another seed. Each word's mask has a seed of its own, so that no start is shared. The p-value: "
        "how often words grouped at random agree as much more within groups than across."
    )
    return Table("Overlap of masks", columns, rows, caption)


def _heat(one: _Masks, group: str, top: int) -> Figure:
    own = [i for i, name in enumerate(one.groups) if name == group]
    columns = union_of_top([one.masks[i] for i in own], top)
    return Figure(
        f"{one.recipe}: masks of {group}", kind="heat",
        caption=f"Values of the masks in the union of the {top} highest dimensions of each word.",
        x="dimension", y="protected word", rows=[one.words[i] for i in own], columns=[str(c) for c in columns],
        values=[[float(one.masks[i][c]) for c in columns] for i in own],
    )  # fmt: skip


def _findings(
    records: Records, recipes: Sequence[str], masks: Sequence[_Masks], overlaps: dict[str, Overlap], top: int,
    scale: str,
) -> list[Finding]:  # fmt: skip
    groups = [group for group in records.values("group") if group != "all"]
    rows: list[dict[str, Any]] = []
    if recipes:
        rows = [
            {"group": group, "tokens": kind, "leakage_change": 100 * value}
            for group in groups
            for kind in KINDS
            if not math.isnan(value := change_of(records, group, recipes[0], kind)[0])
        ]
        for group, (inside, outside) in (
            overlaps[recipes[0]].by_group if recipes[0] in overlaps else {}
        ).items():
            if not math.isnan(inside + outside):
                rows.append({"group": group, "words": "same-group", "mask_overlap": inside})
                rows.append({"group": group, "words": "other-group", "mask_overlap": outside})  # fmt: skip
    found = findings_of("concept-groups", rows, ("group", "tokens", "words"), difference=DIFFERENCE)
    for name, one in overlaps.items():
        few = sum(len(own.words) for own in masks if own.recipe == name) < ENOUGH_WORDS
        told = one.p_value <= ALPHA and one.within > one.across
        verdict: Verdict = "agrees" if told else "unclear" if few else "disagrees"
        found.append(
            Finding(
                f"Masks of similar words ({name}) share more of their highest dimensions than words grouped at random.",
                "SPARSE, Fig. 2", verdict,
                f"{one.within:.1%} in a group, {one.across:.1%} across, p = {one.p_value:.1e}", "shown in a picture",
            )
        )  # fmt: skip
    for one_recipe in masks:
        agreement = one_recipe.agreement(top)
        found.append(
            Finding(
                f"The highest dimensions of a word's mask ({one_recipe.recipe}) are the word's, and not the seed's.",
                "SPARSE, Fig. 2",
                "agrees" if agreement >= 0.8 else "unclear" if agreement >= 0.5 else "disagrees",
                f"{agreement:.0%} of the {top} are the same with another seed", "not tested",
            )
        )  # fmt: skip
    methods = records.values("method")
    for name in (*recipes, "subspace"):
        if name in methods and "laplace" in methods:
            found += _beyond_noise(records, groups, name, scale)
    return found


def _beyond_noise(records: Records, groups: list[str], method: str, scale: str) -> list[Finding]:
    """Return whether protecting a word hides it more than noise of the same norm that knows no word."""
    gaps = [
        change_of(records, group, method, "target")[0] - change_of(records, group, "laplace", "target")[0]
        for group in groups
    ]  # fmt: skip
    gaps = [gap for gap in gaps if not math.isnan(gap)]
    if not gaps:
        return []
    better = sum(gap < -0.05 for gap in gaps)  # by more than 5 points: words are few
    return [
        Finding(
            f"Noise shaped for a word ({METHOD_NAMES.get(method, method)}) hides it more than noise that knows none.",
            "SPARSE, Table 5" if method != "subspace" else "own",
            "agrees" if better >= 0.8 * len(gaps) else "unclear" if better > 0.5 * len(gaps) else "disagrees",
            f"its leakage falls by more than 5 points further than under Laplace noise in {better} of {len(gaps)} "
            f"groups; {100 * min(gaps):+.1f} to {100 * max(gaps):+.1f} points (scale '{scale}')",
            "not compared",
        )
    ]  # fmt: skip
