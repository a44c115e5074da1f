"""The Markdown tables of ``results/textcrafter-*.json``.

Each renderer takes the folder of the results and needs nothing beside the standard library.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

from .published import COLUMNS, PUBLISHED, ROWS
from .records import (
    LABEL,
    MISSING,
    NONE,
    TITLES,
    Results,
    at,
    labelled,
    load,
    markdown,
    mean_and_deviation,
    percent,
    with_interval,
)

__all__ = ["CURVES", "TABLES"]

MAIN = (
    "none", "shuffle", "gaussian", "ldp-gaussian", "textcrafter", "textcrafter-untrained", "subspace",
)  # fmt: skip
CURVES = ("textcrafter", "textcrafter-untrained")
"""The policies whose learning curves are shown."""
EPOCHS = (0, 1, 2, 5, 10)
# Title, factor and digits of each figure of the sentence-level attack.
SENTENCE = {
    "bleu": ("BLEU", 100.0, 1),
    "token_f1": ("T-F1", 100.0, 1),
    "exact_match": ("EM", 100.0, 1),
    "rouge_l": ("R-L", 100.0, 1),
    "cosine": ("cosine", 1.0, 3),
}


def _sentence(results: Results, where: str, defence: str, what: str = "value") -> list[str]:
    return [
        percent(results.sentence(where, defence, name, what), factor, digits)
        for name, (_, factor, digits) in SENTENCE.items()
    ]


def four_sets(folder: Path) -> str:
    """Every set and main defence: reconstruction, then utility in both scenarios, in per cent, cosine as it is.

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
                mean_and_deviation(results.figures(where, defence, "noise_norm")[:1], 1, 2),
                *_sentence(results, where, defence),
                *(mean_and_deviation(results.figures(where, defence, *path)) for path in figures),
                *(f"{theirs[k]:.1f}" if k in theirs else NONE for k in ("bleu", "accuracy")),
            ])  # fmt: skip
        if rows:
            chances = {"macro_f1": "macro_f1_chance", "accuracy": "chance"}
            guesses = [results.figures(where, "none", s, chances[f])[:1] for s, f in figures]
            rows.append([
                title,
                "chance",
                NONE,
                *_sentence(results, where, "none", "chance"),
                *(mean_and_deviation(guess) for guess in guesses),
                NONE,
                NONE,
            ])  # fmt: skip
    head = ["set", "defence", "noise norm", *(title for title, *_ in SENTENCE.values()),
            "F1, deployment", "Acc, deployment", "F1, development", "Acc, development",
            "published BLEU", "published Acc"]  # fmt: skip
    return markdown(head, rows, 2)


def sentences(folder: Path) -> str:
    """Every set and main defence: what the sentence-level attack writes back, with 95 % intervals."""
    results, rows = Results(folder), []
    for where, title in TITLES.items():
        for defence in results.measured(MAIN):
            row = [title, results.title(defence)]
            for name, (_, factor, digits) in SENTENCE.items():
                found = [
                    results.sentence(where, defence, name, w) for w in ("value", "low", "high")
                ]
                row.append(with_interval(found, factor, digits))
            if row[2:] != [MISSING] * len(SENTENCE):
                rows.append(row)
    head = ["set", "defence", *(f"{title} [95 %]" for title, *_ in SENTENCE.values())]
    return markdown(head, rows, 2)


def published(folder: Path) -> str:
    """Table I of the paper, in per cent, as printed."""
    del folder  # nothing in it was measured here
    rows = [
        [title, labelled(defence, ROWS[defence]), *(f"{value:.2f}" for value in values)]
        for where, title in TITLES.items()
        for defence, values in PUBLISHED[where].items()
    ]
    return markdown(["set", "defence", "BLEU", "T-F1", "EM", "R-L", "F1", "Acc"], rows, 2)


def leakage(folder: Path) -> str:
    """Every defence: norm of its noise, and for each set accuracy beside the strongest token inference."""
    results, rows = Results(folder), []
    for defence in results.measured():
        row = [results.title(defence)]
        norms = [v for where in TITLES for v in results.figures(where, defence, "noise_norm")]
        row.append(f"{statistics.fmean(norms):.2f}" if norms else MISSING)
        for where in TITLES:
            for scenario in ("deployment", "development"):
                found = results.figures(where, defence, scenario, "accuracy")
                row.append(mean_and_deviation(found))
            found = results.figures(where, defence, "token_inference", "attacks", "*")
            row.append(mean_and_deviation(found, factor=1, digits=3))
        rows.append(row)
    chance = ["chance", NONE]
    for where in TITLES:
        for path in (("deployment", "chance"), ("development", "chance")):
            chance.append(mean_and_deviation(results.figures(where, "none", *path)[:1]))
        own = results.figures(where, "none", "token_inference", "chance")
        chance.append(mean_and_deviation(own[:1], factor=1, digits=3))
    head = ["defence", "noise norm"]
    for title in TITLES.values():
        head += [f"{title}: Acc, deployment", "Acc, development", "R-precision"]
    return markdown(head, [*rows, chance] if rows else [], 1)


def pii(folder: Path) -> str:
    """Every defence: what frozen PII classifiers say, and what probes that learn from protected vectors find.

    The policy's own classifier is the one in its reward; the benchmark's is the same for every defence.
    """
    results, rows = Results(folder), []
    for defence in results.measured():
        owns, shown = bool(results.figures("pii", defence, "frozen", "policy", "auc")), []
        for own in ("policy", "benchmark"):
            for name in ("p_with", "p_without", "auc"):
                found = results.figures("pii", defence, "frozen", own, name)
                absent = own == "policy" and not owns
                shown.append(NONE if absent else mean_and_deviation(found, factor=1, digits=3))
        probed = results.figures("pii", defence, "probes", "*")
        if probed:
            probe = mean_and_deviation(probed, factor=1, digits=3)
            rows.append([results.title(defence), *shown, probe])
    each = ("p(PII), texts with PII", "p(PII), without", "AUC")
    head = ["defence", *(f"{own} classifier: {what}" for own in ("policy's own", "benchmark's") for what in each),
            "AUC of the strongest probe"]  # fmt: skip
    return markdown(head, rows, 1)


def curves(folder: Path) -> str:
    """What the policies of seed 0 had reached after some epochs, of released vectors but where it says clean."""
    record, rows = load(folder / "textcrafter-curves.json"), []
    names = ("reward", "reward_clean", "p_pii", "drift", "cluster_distance", "deterministic_share",
             "mean_resultant")  # fmt: skip
    for one in record.get("rows", []):
        title = record["defences"].get(one["defence"], one["defence"])
        for epoch in one["training"]["epochs"]:
            if epoch["epoch"] in EPOCHS:
                shown = [percent(at(epoch, (name,)), 1.0, 3) for name in names]
                rows.append([labelled(one["defence"], title), str(epoch["epoch"]), *shown])
    head = ["policy", "epoch", "reward", "reward of clean vectors", "p(PII)", "drift",
            "distance to c", "deterministic share", "mean resultant"]  # fmt: skip
    return markdown(head, rows, 1)


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
    return markdown(head, rows, 1)


def cost(folder: Path) -> str:
    """Training, and vectors a second of applying, beside Gaussian noise in the same run."""
    what = f"TextCrafter; {LABEL}"
    record = load(folder / "textcrafter-cost.json")
    if not record:
        return markdown([what, "figure"], [], 1)
    speed, training = record["vectors_per_second"], record["training"]
    of = f"{record['rows']:,} vectors, n = {record['dimension']}"
    rows = [
        [f"training on {of}, seconds", f"{training['seconds']:.0f}"],
        ["the same, processor seconds", f"{training['processor_seconds']:.0f}"],
    ]
    rows += [[f"{name}, vectors a second", f"{value:,}"] for name, value in speed.items()]
    ratio = speed["gaussian float32"] / speed["textcrafter float32"]
    rows.append(["Gaussian noise over TextCrafter, float32", f"{ratio:.1f}"])
    return markdown([f"{what}; {record['threads']} threads", "figure"], rows, 1)


TABLES: dict[str, Callable[[Path], str]] = {
    "textcrafter": four_sets,
    "textcrafter-sentences": sentences,
    "textcrafter-published": published,
    "textcrafter-leakage": leakage,
    "textcrafter-pii": pii,
    "textcrafter-curves": curves,
    "textcrafter-sets": sizes,
    "textcrafter-cost": cost,
}
