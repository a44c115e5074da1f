"""What becomes of Table 2's claims, and of what its figures imply, in our records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from research.catalogue.claims import findings_of, verdict_of
from research.experiment import Records
from research.published import published
from research.scales import parse_scale
from research.summary import Finding
from research.summary import number as mean_of

__all__ = [
    "ATTACK_NAMES",
    "PUBLISHED",
    "SETTING",
    "above_chance",
    "attack_findings",
    "changes",
    "epsilon_of",
]

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


def attack_findings(records: Records) -> list[Finding]:
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


def _own(records: Records, rows: Sequence[Mapping[str, Any]]) -> list[Finding]:
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
        found.append(Finding(
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
        found.append(Finding(
            "At equal noise the subspace method leaks less than SPARSE whatever the attack.", "own",
            verdict_of(held, len(pairs)), f"holds in {held} of {len(pairs)} comparisons",
        ))  # fmt: skip
    kinds = [r for r in records if r["cell"]["attack"] != "mlc" and r["cell"]["method"] != "none"]
    if kinds:
        weaker = [r for r in kinds if _excess(r) < _mlc_excess(records, r)]
        found.append(Finding(
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
