"""The Markdown tables of ``results/textcrafter-utility.json`` and ``results/textcrafter-sentences.json``.

Each renderer takes the folder of the results and needs nothing beside the standard library.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from .published import COLUMNS, PUBLISHED

__all__ = ["TABLES"]

MISSING = "not measured"
TITLES = {
    "phrasebank": "Financial PhraseBank",
    "ade": "ADE",
    "sst2": "SST-2",
    "agnews": "AG News",
}
MAIN = (
    "none", "shuffle", "gaussian", "ldp-gaussian", "textcrafter", "textcrafter-untrained", "subspace",
)  # fmt: skip
SENTENCE = {"bleu": "BLEU", "token_f1": "T-F1", "exact_match": "EM", "rouge_l": "R-L"}

Record = dict[str, Any]


class Results:
    """The rows of both parts, and the defences in their order."""

    def __init__(self, folder: Path) -> None:
        """Read what there is."""
        parts = [_load(folder / f"textcrafter-{part}.json") for part in ("utility", "sentences")]
        self.utility, self.sentences = (part.get("rows", []) for part in parts)
        self.titles: dict[str, str] = {}
        for part in parts:
            self.titles |= part.get("defences", {})

    def measured(self, some: Iterable[str] | None = None) -> list[str]:
        """Return the defences with a record, in their order."""
        held = {row["defence"] for row in (*self.utility, *self.sentences)}
        return [name for name in (some or self.titles) if name in held]

    def figures(self, where: str, defence: str, *path: str) -> list[float]:
        """Return a figure of each seed; ``*`` in the path takes the highest of several."""
        rows = [r for r in self.utility if r["set"] == where and r["defence"] == defence]
        return [value for row in rows if (value := _at(row, path)) is not None]

    def sentence(self, where: str, defence: str, name: str, what: str = "value") -> float | None:
        """Return a figure of the sentence-level attack, or its chance level."""
        for row in self.sentences:
            if row["set"] == where and row["defence"] == defence:
                return _at(row, ("figures", name, what))
        return None

    def title(self, defence: str) -> str:
        """Return a defence as the table calls it."""
        return self.titles.get(defence, defence)


def _load(path: Path) -> Record:
    record: Record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return record


def _at(row: Any, path: Sequence[str]) -> float | None:
    for key in path:
        if not isinstance(row, dict):
            return None
        row = max(row.values(), default=None) if key == "*" else row.get(key)
    return row if isinstance(row, int | float) else None


def spread(values: Sequence[float], factor: float = 100.0, digits: int = 1) -> str:
    """Return mean ± standard deviation over seeds, of a single value the value."""
    if not values:
        return MISSING
    mean = f"{factor * statistics.fmean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {factor * statistics.stdev(values):.{digits}f}"


def _percent(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.1f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    rule = [":--"] * words + ["--:"] * (len(head) - words)
    lines = [head, rule, *(rows or [[MISSING] * len(head)])]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def four_sets(folder: Path) -> str:
    """Every set and main defence: reconstruction, then utility in both scenarios, in per cent.

    The last columns are accuracy and BLEU of the paper's row of the same name: other encoder, attack and sample.
    """
    results, rows = Results(folder), []
    figures = [(s, f) for s in ("deployment", "development") for f in ("macro_f1", "accuracy")]
    for where, title in TITLES.items():
        for defence in results.measured(MAIN):
            printed = PUBLISHED[where].get(defence)
            theirs = dict(zip(COLUMNS, printed, strict=True)) if printed else {}
            rows.append([
                title,
                results.title(defence),
                spread(results.figures(where, defence, "noise_norm")[:1], factor=1, digits=2),
                *(_percent(results.sentence(where, defence, name)) for name in SENTENCE),
                *(spread(results.figures(where, defence, *path)) for path in figures),
                *(f"{theirs[k]:.1f}" if k in theirs else "–" for k in ("bleu", "accuracy")),
            ])  # fmt: skip
        if rows:
            chances = {"macro_f1": "macro_f1_chance", "accuracy": "chance"}
            rows.append([
                title,
                "chance",
                "–",
                *(_percent(results.sentence(where, "none", name, "chance")) for name in SENTENCE),
                *(spread(results.figures(where, "none", s, chances[f])[:1]) for s, f in figures),
                "–",
                "–",
            ])  # fmt: skip
    head = ["set", "defence", "noise norm", *SENTENCE.values(), "F1, deployment",
            "Acc, deployment", "F1, development", "Acc, development", "published BLEU",
            "published Acc"]  # fmt: skip
    return _table(head, rows, 2)


def published(folder: Path) -> str:
    """Table I of the paper, in per cent, as printed."""
    results, rows = Results(folder), []
    for where, title in TITLES.items():
        for defence, values in PUBLISHED[where].items():
            shown = [f"{value:.2f}" for value in values]
            rows.append([title, results.title(defence).split(",")[0], *shown])
    return _table(["set", "defence", *SENTENCE.values(), "F1", "Acc"], rows, 2)


def leakage(folder: Path) -> str:
    """Every defence: norm of its noise, and for each set accuracy beside the strongest token inference."""
    results, rows = Results(folder), []
    for defence in results.measured():
        row = [results.title(defence)]
        norms = [v for where in TITLES for v in results.figures(where, defence, "noise_norm")]
        row.append(f"{statistics.fmean(norms):.2f}" if norms else MISSING)
        for where in TITLES:
            for scenario in ("deployment", "development"):
                row.append(spread(results.figures(where, defence, scenario, "accuracy")))
            found = results.figures(where, defence, "token_inference", "attacks", "*")
            row.append(spread(found, factor=1, digits=3))
        rows.append(row)
    chance = ["chance", "–"]
    for where in TITLES:
        for path in (("deployment", "chance"), ("development", "chance")):
            chance.append(spread(results.figures(where, "none", *path)[:1]))
        own = results.figures(where, "none", "token_inference", "chance")
        chance.append(spread(own[:1], factor=1, digits=3))
    head = ["defence", "noise norm"]
    for title in TITLES.values():
        head += [f"{title}: Acc, deployment", "Acc, development", "R-precision"]
    return _table(head, [*rows, chance] if rows else [], 1)


def pii(folder: Path) -> str:
    """Every defence: what a frozen PII classifier says, and what probes that learn from protected vectors find.

    The frozen classifier is the policy's own where there is one.
    """
    results, rows = Results(folder), []
    for defence in results.measured():
        own = (
            "policy" if results.figures("pii", defence, "frozen", "policy", "auc") else "benchmark"
        )
        paths = [("frozen", own, name) for name in ("p_with", "p_without", "auc")]
        found = [results.figures("pii", defence, *path) for path in (*paths, ("probes", "*"))]
        if any(found):
            rows.append([results.title(defence), *(spread(f, factor=1, digits=3) for f in found)])
    head = ["defence", "frozen p(PII), texts with PII", "frozen p(PII), without",
            "AUC of the frozen classifier", "AUC of the strongest probe"]  # fmt: skip
    return _table(head, rows, 1)


def sizes(folder: Path) -> str:
    """What each set holds: rows that are used, classes, tokens whose inference is measured."""
    results, rows = Results(folder), []
    for where, title in TITLES.items():
        own = next((r["sizes"] for r in results.utility if r["set"] == where), None)
        if own is not None:
            keys = ("train", "test", "dropped", "classes", "tokens", "token_train", "token_test")
            rows.append([title, *(f"{own[key]:,}" for key in keys)])
    head = ["set", "training rows", "test rows", "left out as in test", "classes",
            "tokens", "training texts with one", "test texts with one"]  # fmt: skip
    return _table(head, rows, 1)


def cost(folder: Path) -> str:
    """Training, and vectors a second of applying, beside Gaussian noise in the same run."""
    record = _load(folder / "textcrafter-cost.json")
    if not record:
        return _table(["what", "figure"], [], 1)
    speed, training = record["vectors_per_second"], record["training"]
    of = f"{record['rows']:,} vectors, n = {record['dimension']}"
    rows = [
        [f"training on {of}, seconds", f"{training['seconds']:.0f}"],
        ["the same, processor seconds", f"{training['processor_seconds']:.0f}"],
    ]
    rows += [[f"{name}, vectors a second", f"{value:,}"] for name, value in speed.items()]
    ratio = speed["gaussian float32"] / speed["textcrafter float32"]
    rows.append(["Gaussian noise over TextCrafter, float32", f"{ratio:.1f}"])
    return _table([f"{record['threads']} threads", "figure"], rows, 1)


TABLES: dict[str, Callable[[Path], str]] = {
    "textcrafter": four_sets,
    "textcrafter-published": published,
    "textcrafter-leakage": leakage,
    "textcrafter-pii": pii,
    "textcrafter-sets": sizes,
    "textcrafter-cost": cost,
}
