"""The documents' result tables, rendered from ``benchmarks/results/*.json``.

    python benchmarks/tables.py            # print every table
    python benchmarks/tables.py --write    # put them into README.md and docs/results.md
    python benchmarks/tables.py --check    # exit 1 if a document differs from its results

A table stands between ``<!-- table: NAME -->`` and ``<!-- end table -->``. What has no result is
"not measured".
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
DOCUMENTS = (
    HERE.parent / "README.md",
    HERE.parent / "docs" / "results.md",
    HERE.parent / "docs" / "scale.md",
    HERE.parent / "docs" / "threat-model.md",
    HERE.parent / "docs" / "sealed-index.md",
    HERE.parent / "docs" / "sealed-search.md",
    HERE.parent / "docs" / "serving.md",
    HERE.parent / "docs" / "mechanisms" / "textcrafter.md",
    *sorted((HERE.parent / "docs" / "recipes").glob("*.md")),
    HERE.parent / "docs" / "how-to" / "unlisted-words.md",
    HERE.parent / "docs" / "attacks" / "alignment.md",
    HERE.parent / "docs" / "attacks" / "candidates.md",
    HERE.parent / "docs" / "attacks" / "reconstruction.md",
    HERE.parent / "docs" / "attacks" / "index.md",
)
MISSING = "not measured"

METHODS = {
    "none": "none (clean vectors)",
    "laplace": "`laplace`",
    "sparse": "`sparse` (as published)",
    "covariance": "`covariance`",
    "subspace": "`subspace` (default)",
}
CONCEPTS = {
    "sts": "names, places, numbers (STS)",
    "ade": "drugs, adverse effects (ADE)",
    "pii": "persons, places (PII)",
}
SPLITS = {"shared": "the fitted texts", "separate": "other texts"}
ATTACKS = {
    "linear": "linear",
    "kernel": "kernel ridge",
    "transplant": "transplant",
    "ensemble": "ensemble",
    "nearest-neighbours": "neighbours",
    "bayes-posterior": "Bayes",
    "mlp-512": "MLP 512",
    "mlp-1024-512": "MLP 1024-512",
    "mlp-2048": "MLP 2048",
    "mlc-published": "MLC as published",
    "faint-directions": "faint directions",
}

ALIGNMENTS = {
    "permutation-alignment": "permutation",
    "procrustes-alignment": "Procrustes",
    "ridge-alignment": "ridge",
    "unpaired-alignment": "unpaired",
}
RELEASES = {
    "rotation": "a secret rotation",
    "shuffle": "`shuffle`",
    "laplace": "`laplace`",
    "subspace": "`subspace`",
    "ironcore-alloy 0": "ironcore-alloy, factor 0",
    "ironcore-alloy 1": "ironcore-alloy, factor 1",
}

Record = dict[str, Any]
Rows = list[Record]


def load(name: str, folder: Path = RESULTS) -> Record:
    """Return one benchmark's record, or an empty one if it has not been run."""
    path = folder / f"{name}.json"
    record: Record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return record


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1) -> str:
    """Return a Markdown table; the first ``words`` columns are aligned left, the others right."""
    rule = [":--"] * words + ["--:"] * (len(head) - words)
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))


def number(record: Record, *keys: str, form: str = "{:.2f}", factor: float = 1.0) -> str:
    """Return a nested figure in the given form."""
    value: Any = record
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    if value is None:
        return MISSING
    return form.format(value if factor == 1 else value * factor)


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of what is there."""
    given = [value for value in values if value is not None]
    return sum(given) / len(given) if given else None


def select(rows: Rows, concept: str, method: str, split: str) -> Rows:
    """Return the rows of one cell, one for each seed."""
    wanted = {"concept": concept, "method": method, "split": split}
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def share(rows: Rows, attack: str | None) -> str:
    """Return R-precision with its interval; several seeds: mean, and the widest ends.

    Args:
        attack: its name; None takes each row's strongest.
    """
    found = []
    for row in rows:
        figures = row.get("attacks", {})
        one = figures.get(attack) if attack else max(figures.values(), default=None)
        if one is not None:
            found.append(one)
    if not found:
        return MISSING
    value = sum(one[0] for one in found) / len(found)
    return _interval([value, min(one[1] for one in found), max(one[2] for one in found)])


def percent(value: float | None) -> str:
    """Return a share as a percentage."""
    return MISSING if value is None else f"{100 * value:.1f}%"


def _interval(figures: Sequence[float] | None) -> str:
    if not figures:
        return MISSING
    value, low, high = (100 * number for number in figures)
    return f"{value:.1f}% ({low:.1f}–{high:.1f})"


def _strongest(rows: Rows) -> str:
    attacks = [row["attacks"] for row in rows if row.get("attacks")]
    names = [max(found, key=lambda name: found[name][0]) for found in attacks]
    return ", ".join(dict.fromkeys(ATTACKS.get(name, name) for name in names)) or MISSING


def _kept(rows: Rows, method: str, key: str = "sts12") -> str:
    return "100 %" if method == "none" else percent(mean(row.get(key) for row in rows))


def leakage(folder: Path = RESULTS, methods: Iterable[str] = tuple(METHODS)) -> str:
    """Return what the strongest attack recovers behind each method, a row for each setting that was run."""
    rows: Rows = load("leakage", folder).get("rows", [])
    lines = [
        [
            CONCEPTS[concept],
            SPLITS[split],
            METHODS[method],
            _kept(cell, method),
            _kept(cell, method, "sts13_16"),
            share(cell, None),
            percent(mean(row.get("chance") for row in cell)),
        ]
        for concept in CONCEPTS
        for split in SPLITS
        for method in methods
        if (cell := select(rows, concept, method, split))
    ]
    head = ["concept", "attackers learn on", "method", "STS12 kept", "STS13–16 kept", "recovered", "chance"]
    return table(head, lines or [[MISSING, *[""] * (len(head) - 1)]], words=3)


def list_size(folder: Path = RESULTS) -> str:
    """Return what is read of listed drugs in other texts, by the length of the list and the number of texts."""
    cells: Rows = load("list_size", folder).get("cells", [])
    lines = [
        [
            f"{cell['terms']:,}",
            f"{cell['texts']:,}",
            f"{100 * cell['target']:.0f} %",
            percent(cell["clean"]),
            _interval(cell["leak"]),
            percent(cell["chance"]),
            f"{100 * cell['store_alone']:.0f} %",
            f"{100 * cell['sealed']:.0f} %",
        ]
        for cell in sorted(cells, key=lambda c: (-c["target"], -c["terms"], c["texts"]))
    ]
    head = [
        "listed drugs",
        "fitted sentences",
        "similarity to keep",
        "read from clean vectors",
        "read from protected",
        "chance",
        "search, store alone",
        "search, sealed",
    ]
    return table(head, lines or [[MISSING, *[""] * (len(head) - 1)]], words=0)


def modes(folder: Path = RESULTS) -> str:
    """Return the three modes side by side."""
    record, speed = load("modes", folder), load("sealed_index", folder)
    head = ["", "guessing", "no protection", "sealed index", "sealed search", "protected vectors"]
    if not record:
        return table(head, [[MISSING] * len(head)])
    sealed, noisy = (record["modes"][name] for name in ("sealed-search", "protected-vectors"))
    million = speed["1000000"]["cases"]["sealed"]

    def recovered(of: Record) -> str:
        figure = _interval([of[key] for key in ("value", "low", "high")])
        left = (of["value"] - of["chance"]) / max((of["clean"] or 0) - of["chance"], 1e-9)
        return f"{figure}, not protected" if left > 0.5 else figure

    index = record["modes"]["sealed-index"]
    lines = []
    among = sealed["identified"]["metric"].split()[-1]
    for name, key in (
        ("attacker recovers listed words", "listed"),
        ("attacker recovers drug names on no list", "unlisted"),
        (f"attacker finds the text among {among}", "identified"),
    ):
        guessing, stored = percent(noisy[key]["chance"]), "ciphertext"
        if (of := index.get(key)) is not None:
            stored = recovered(of)
            if (other := percent(of["chance"])) != guessing:
                guessing += f"; for the sealed index {other}"
        modes = (stored, recovered(sealed[key]), recovered(noisy[key]))
        lines.append([name, guessing, percent(sealed[key]["clean"]), *modes])
    theirs = "the database's"
    ranking = f"{theirs} and {record['ranking_ms']:.0f} ms"
    recall = (percent(case["recall"]) for case in (million, sealed, noisy))
    needed = f"a key, a list of the words, {record['fitted']:,} texts"
    lines += [
        ["search finds of the ten nearest", "", "100%", *recall],
        ["time of a query, a million rows", "", theirs, f"{million['p50_ms']:.0f} ms, one core", ranking, theirs],
        ["memory, a million rows", "", theirs, f"{million['peak_gb']:.1f} GB", theirs, theirs],
        ["you need", "", "", "a key", needed, "the list and the texts"],
    ]
    return table(head, lines)


INDEXES = {
    "sealed": "sealed index",
    "parquet": "Parquet without encryption, the same scan",
    "faiss-flat": "FAISS flat",
    "lancedb": "LanceDB, no index",
    "chroma": "Chroma",
    "qdrant": "Qdrant, local",
}


def sealed_beside(folder: Path = RESULTS) -> str:
    """Return a sealed index beside other stores of the same vectors."""
    record = load("sealed_beside", folder)
    head = ["store", "rows", "rows/s written", "opened", "query, median", "slowest hundredth", "recall@10", "memory"]
    if not record:
        return table(head, [[MISSING] * len(head)])
    lines = []
    for name, label in INDEXES.items():
        case = record["cases"][name]
        lines.append([label, f"{record['rows']:,}", *_speed(case)])
        while "fewer" in case:
            case = case["fewer"]
            lines.append([label, f"{case['rows']:,}", *_speed(case)])
    return table(head, lines)


def _speed(case: Record) -> list[str]:
    if "unfinished" in case:
        doing = {"write": "written", "search": "searched"}[case["unfinished"]]
        return [f"not {doing} in {case['unfinished_s'] / 60:.0f} min", *["-"] * 5]
    memory = f"{case['peak_gb']:.1f} GB" if "peak_gb" in case else "-"
    return [
        f"{case['rows_per_second']:,.0f}",
        f"{case['open_s']:.1f} s",
        f"{case['p50_ms']:.0f} ms",
        f"{case['p99_ms']:.0f} ms",
        f"{case['recall']:.3f}",
        memory,
    ]


def membership(folder: Path = RESULTS) -> str:
    """Return how well an attacker who has a text tells whether it is in the store, for each release."""
    rows: Rows = load("membership", folder).get("membership", [])
    lines = [[row["release"], _interval(row["auc"]), _interval(row.get("tpr")).replace(MISSING, "")] for row in rows]
    head = ["release", "AUC", "members found at 1% false positives"]
    return table(head, [*lines, ["guessing", "50.0%", "1.0%"]] if lines else [[MISSING] * 3])


RECIPE_TEXTS = {
    "rag": "sentences of presidio-research (version 2)",
    "clinical": "sentences of ADE-Corpus-V2",
    "api": "clinical queries of ASQ-PHI",
    "release": "articles of AG News",
}


def _recipe(name: str) -> Callable[[Path], str]:
    """Return the function that renders what one recipe leaks and keeps on public data."""

    def render(folder: Path = RESULTS) -> str:
        record = load("recipes", folder).get("recipes", {}).get(name)
        if record is None:
            return table(["other texts than the fit's", "before", "after", "chance"], [[MISSING] * 4])
        search = record["search"]
        how = "read by kernel ridge regression" if name == "release" else "found by looking them up"
        lines = [
            [f"{kind} words, {how} ({leak['words']:,})", *(percent(leak[key]) for key in ("before", "after", "chance"))]
            for kind, leak in record["leak"].items()
        ]
        lines.append(["ten nearest found, the store alone", "100 %", percent(search["alone"]), ""])
        if "sealed" in search:
            ranked = f"the same, {search['candidates']} candidates ranked exactly"
            lines.append([ranked, "100 %", percent(search["sealed"]), ""])
        if "accuracy" in record:
            lines.append(["accuracy of a classifier", *map(percent, record["accuracy"]), ""])
        return table([f"{RECIPE_TEXTS[name]}, {record['texts']:,} texts", "before", "after", "chance"], lines)

    return render


def leakage_attacks(folder: Path = RESULTS) -> str:
    """Return what each attack recovers behind each method, for the settings and attacks that were run."""
    rows: Rows = load("leakage", folder).get("rows", [])
    attacks = {key: name for key, name in ATTACKS.items() if any(key in row.get("attacks", {}) for row in rows)}
    lines = []
    for concept, label in CONCEPTS.items():
        for split, learnt in SPLITS.items():
            for method, name in METHODS.items():
                if cell := select(rows, concept, method, split):
                    figures = [share(cell, attack).replace(MISSING, "–").partition(" ")[0] for attack in attacks]
                    lines.append([label, learnt, name, _kept(cell, method), *figures, _strongest(cell)])
    head = ["concept", "attackers learn on", "method", "STS12 kept", *attacks.values(), "strongest"]
    return table(head, lines or [[MISSING] * len(head)], words=3)


def leakage_parameters(folder: Path = RESULTS) -> str:
    """Return what each fit chose, and how long it took."""
    rows: Rows = load("leakage", folder).get("rows", [])
    lines = [
        [
            CONCEPTS.get(row["concept"], row["concept"]),
            SPLITS.get(row["split"], row["split"]),
            str(row.get("seed", MISSING)),
            METHODS.get(row["method"], row["method"]),
            number(row, "epsilon", form="{:.0f}"),
            number(row, "noise_to_signal"),
            number(row, "parameters", "rank", form="{}").replace(MISSING, "none"),
            number(row, "parameters", "kept", form="{}").replace(MISSING, "all"),
            number(row, "parameters", "flattening", form="{:g}").replace(MISSING, "0"),
            number(row, "fit_seconds", form="{:.1f} s"),
        ]
        for row in rows
        if row.get("method") in METHODS and row["method"] != "none"
    ]
    head = [
        "concept",
        "attackers learn on",
        "seed",
        "method",
        "ε",
        "noise to signal",
        "erased",
        "kept",
        "flattening",
        "fit",
    ]
    return table(head, lines or [[MISSING, *[""] * (len(head) - 1)]])


def protect(folder: Path = RESULTS) -> str:
    """Return what protecting costs."""
    record = load("protect", folder)
    lines = [
        ("encoding the texts", "encode_seconds", "{:.2f} s", 1, ""),
        ("protecting their vectors", "protect_seconds", "{:.4f} s", 1, ""),
        ("protecting, share of encoding", "overhead", "{:.2f} %", 100, "at most 1 %"),
        ("one vector at a time", "single_vector_microseconds", "{:.0f} µs", 1, ""),
        ("subspace fit, parameters given", "subspace_fit_seconds", "{:.2f} s", 1, "at most 3 s"),
        ("the same with the search for them", "subspace_search_seconds", "{:.1f} s", 1, ""),
    ]
    return table(
        ["what", "measured", "target"],
        [[what, number(record, key, form=form, factor=factor), target] for what, key, form, factor, target in lines],
    )


def encode(folder: Path = RESULTS) -> str:
    """Return the speed of encoding beside the library's own."""
    rows: dict[str, Record] = load("encode", folder).get("rows", {})
    lines = [
        [
            name,
            number(row, "texts_per_second", form="{:.0f}"),
            number(row, "ratio", form="{:.2f} ×"),
            number(row, "lowest_cosine", form="{:.5f}"),
        ]
        for name, row in rows.items()
    ]
    head = ["encoder", "texts a second", "speed", "lowest cosine to the first row"]
    return table(head, lines or [[MISSING] * len(head)])


def mask(folder: Path = RESULTS) -> str:
    """Return what training the published mask takes and gives."""
    record = load("mask", folder)
    lines = [
        ("pairs", "pairs", "{:,}", "10,000"),
        ("wall clock", "seconds", "{:.1f} s", "at most 30 s"),
        ("processor time, one thread", "processor_seconds", "{:.1f} s", ""),
        ("mask: mean", "mean", "{:.3f}", ""),
        ("mask: standard deviation", "sd", "{:.3f}", ""),
        ("mask: effective dimensions", "effective_dimensions", "{:.0f}", ""),
    ]
    return table(
        ["what", "measured", "target"],
        [[what, number(record, key, form=form), target] for what, key, form, target in lines],
    )


def memory(folder: Path = RESULTS) -> str:
    """Return the peak memory of protecting large tables."""
    records: Rows = load("memory", folder).get("memory", [])
    lines = [
        [
            str(record.get("case", MISSING)),
            number(record, "rows", form="{:,}"),
            number(record, "peak_mib", form="{:.0f} MiB"),
            number(record, "limit_mib", form="{:.0f} MiB"),
            number(record, "seconds", form="{:.0f} s"),
        ]
        for record in records
    ]
    head = ["case", "rows", "peak", "limit", "time"]
    return table(head, lines or [[MISSING] * len(head)])


def concepts(folder: Path = RESULTS) -> str:
    """Return how long finding terms takes."""
    record = load("concepts", folder)
    counts = " and ".join(
        number(record, key, form="{:,} " + key) if key in record else MISSING for key in ("terms", "sentences")
    )
    steps = {
        "build": "building the matcher",
        "detect": "finding the spans",
        "find_with_pairs": "finding spans and making the pairs",
    }
    lines = []
    for key, what in steps.items():
        seconds = [number(record, key, clock, form="{:.1f} s") for clock in ("wall", "processor")]
        lines.append([what, *seconds])
    return table([counts, "wall clock", "processor"], lines)


def sizes(folder: Path = RESULTS) -> str:
    """Return what the strongest attack recovers after fits on more and more texts."""
    rows: Rows = load("sizes", folder).get("rows", [])
    lines = [
        [
            number(row, "texts", form="{:,}"),
            number(row, "labels", form="{}"),
            number(row, "parameters", "rank", form="{}"),
            percent(mean(row.get("seeds", {}).get("similarity", [row.get("similarity")]))),
            f"{percent(row.get('seeds', {}).get('mean'))} ± {percent(row.get('seeds', {}).get('sd'))}",
            f"{percent(row['value'])} ({100 * row['low']:.1f} to {100 * row['high']:.1f})",
            ATTACKS.get(row["worst"], row["worst"]),
            percent(row.get("clean")),
            percent(row.get("chance")),
        ]
        for row in rows
    ]
    head = [
        "texts",
        "words labelled",
        "erased",
        "similarity kept",
        "recovered, 3 draws ± sd",
        "first draw",
        "by",
        "clean",
        "chance",
    ]
    return table(head, lines or [[MISSING] * len(head)])


def mechanisms(folder: Path = RESULTS) -> str:
    """Return the speed of every mechanism beside the bare cost of normal variates."""
    record = load("mechanisms", folder)
    lines = [
        [
            "normal variates by randomgen and NumPy, added" if "yardstick" in case["name"] else case["name"],
            number(case, "vectors_per_second", form="{:,.0f}"),
            number(case, "microseconds_per_vector", form="{:.1f} µs"),
            number(case, "ratio", form="{:.2f} ×"),
            "" if case.get("target") is None else f"at least {case['target']:g} ×",
        ]
        for case in record.get("cases", [])
    ]
    head = ["mechanism", "vectors a second", "a vector", "speed", "target"]
    return table(head, lines or [[MISSING] * len(head)])


def mechanisms_others(folder: Path = RESULTS) -> str:
    """Return how much faster Laplace noise in float32 is than other packages and published figures."""
    record = load("mechanisms", folder)
    lines = [
        [
            f"{one['name']} {one.get('version', '')}".strip(),
            number(one, "vectors_per_second", form="{:,.0f}"),
            one.get("skipped") or number(one, "laplace_float32_over_it", form="{:,.0f} ×"),
            f"at least {one['target']:g} ×",
        ]
        for one in record.get("external", [])
    ]
    for name, microseconds in record.get("published_microseconds", {}).items():
        lines.append([f"{name}, as published", f"{1e6 / microseconds:,.0f}", "another machine", ""])
    head = ["package", "vectors a second", "`laplace` in float32 is faster by", "target"]
    return table(head, lines or [[MISSING] * len(head)])


def alignment(folder: Path = RESULTS) -> str:
    """Return which share of a store is identified after learning from known pairs, and what leaks then."""
    record = load("alignment", folder)
    lines = [
        [
            RELEASES.get(row["release"], row["release"]),
            ALIGNMENTS[row["attack"]],
            *(percent((row["pairs"].get(count) or [None])[0]) for count in ("10", "50", "200", "1000")),
            f"{row['cosine'][0]:.2f}",
            _interval(row.get("leakage")),
            percent((row.get("leakage_unaligned") or [None])[0]),
        ]
        for row in record.get("rows", [])
        if row["attack"] != "unpaired-alignment"
    ]
    if lines:
        by_chance = f"{100 / record['store']:.2f} %"
        leaked, chance = _interval(record["leakage_clean"]), percent(record["leakage_chance"])
        lines.insert(0, ["none (clean vectors)", "none", *[""] * 5, "", leaked])
        lines.append(["chance", "", *[by_chance] * 4, "", chance, chance])
    head = ["release", "attack", "10 pairs", "50", "200", "1000", "cosine", "words read after it", "without it"]
    return table(head, lines or [[MISSING] * len(head)], words=2)


def alignment_unpaired(folder: Path = RESULTS) -> str:
    """Return which share of a store is identified without any known pair."""
    lines = [
        [
            RELEASES.get(row["release"], row["release"]),
            _interval(next(iter(row["pairs"].values()))),
            f"{row['cosine'][0]:.2f}",
            f"{row['seconds']:.0f} s",
        ]
        for row in load("alignment", folder).get("rows", [])
        if row["attack"] == "unpaired-alignment"
    ]
    head = ["release", "identified", "cosine", "time"]
    return table(head, lines or [[MISSING] * len(head)])


def _attackers(kind: str, head: str, **figures: str) -> Callable[[Path], str]:
    """Return the table of some figures of `benchmarks/attackers.py` on ADE; the record has more sets and intervals.

    Args:
        head: the column of the attack's name; empty: a row for each release, with the strongest attack on each figure.
    """

    def render(folder: Path = RESULTS) -> str:
        cells: dict[tuple[str, ...], dict[str, float]] = {}
        chance: dict[str, float] = {}
        for row in load("attackers", folder).get("rows", []):
            if row["kind"] != kind or row["concept"] != "ade":
                continue
            name = row["attack"].partition(", ")[2] or row["attack"].removesuffix("-alignment")
            cell = cells.setdefault((row["release"], name) if head else (row["release"],), {})
            for key, figure in row["figures"].items():
                cell[key] = max(figure["value"], cell.get(key, -1.0))
                chance[key] = figure["chance"]
        lines = [
            [*names, *[percent(cell.get(key)).replace(MISSING, "") for key in figures]]
            for names, cell in [*cells.items(), (("chance", "") if head else ("chance",), chance)]
        ]
        columns = ["release", *([head] if head else []), *figures.values()]
        return table(columns, lines if cells else [[MISSING] * len(columns)], words=2 if head else 1)

    return render


def _largest(figures: dict[str, float]) -> str:
    name = max(figures, key=lambda key: figures[key], default="")
    return f"{figures[name]:.2f} ({name})" if name else MISSING


def mechanisms_one(folder: Path = RESULTS) -> str:
    """Return the cost of one vector, the memory and the growth with the number of rows."""
    record = load("mechanisms", folder)
    most = f"at most {record.get('single_vector_target', MISSING)} µs"
    lines = [
        ["one vector, `laplace`", number(record, "single_vector_microseconds", "laplace", form="{:.0f} µs"), most],
        [
            "one vector, `purkayastha`",
            number(record, "single_vector_microseconds", "purkayastha", form="{:.0f} µs"),
            most,
        ],
        [
            "peak memory beside input and output, over one batch: `laplace`",
            number(record, "memory_over_batch", "laplace"),
            f"at most {record.get('memory_target', MISSING)}",
        ],
        [
            "the same, of five methods the one that takes most",
            _largest(record.get("memory_over_batch", {})),
            f"at most {record.get('memory_target', MISSING)}",
        ],
        ["exponent of the time in the number of rows", number(record, "linearity", "exponent"), "1 is linear"],
    ]
    return table(["what", "measured", "target"], lines)


def _figure(row: Record, key: str) -> str:
    one = row.get("figures", {}).get(key)
    if one is None:
        return MISSING
    value, low, high = (100 * one[part] for part in ("value", "low", "high"))
    return f"{value:.1f} ({low:.1f}–{high:.1f})"


def _learnt(row: Record) -> str:
    data = {"sts": "STS sentences"}.get(row.get("data", ""), "corpus sentences")
    on = "" if row.get("started", "scratch") == "scratch" else ", after the corpus"
    return f"{data}{on} (`{row['preset']}`)"


FAMILIES = {
    "token-inference": "token inference",
    "probe": "concept probe",
    "candidates": "candidates",
    "averaging": "averaging",
    "alignment": "alignment",
    "held-out-terms": "held-out terms",
    "reconstruction": "reconstruction",
}


def audit(folder: Path = RESULTS) -> str:
    """Return what every attack of an audit finds, on the largest quick audit of each concept."""
    lines = []
    for row in load("audit", folder).get("rows", []):
        for attack in row["attacks"]:
            lines.append(
                [
                    f"{CONCEPTS[row['concept']]}, {row['tier']}",
                    FAMILIES[attack["family"]],
                    f"`{attack['name']}`",
                    attack["metric"],
                    percent(attack["clean"]),
                    _interval([attack["value"], attack["low"], attack["high"]]),
                    percent(attack["chance"]),
                ]
            )
    head = ["concept, tier", "family", "attack", "metric", "clean", "protected", "chance"]
    return table(head, lines or [[MISSING] * len(head)], words=4)


def audit_cost(folder: Path = RESULTS) -> str:
    """Return how long audits take, and how much memory."""
    lines = [
        [
            CONCEPTS[row["concept"]],
            row["tier"],
            f"{row['texts']:,}",
            f"{row['with_concept']:,}",
            f"{row['seconds']:.0f} s",
            f"{row['peak_mib']:,} MiB",
            str(row["cores"]),
        ]
        for row in load("audit", folder).get("rows", [])
    ]
    head = ["concept", "tier", "texts", "with the concept", "time", "peak memory", "cores"]
    return table(head, lines or [[MISSING] * len(head)], words=2)


def reconstruction(folder: Path = RESULTS) -> str:
    """Return how much of a sentence the decoder writes back, in hundredths, with intervals."""
    keys = {
        "token_f1": "token F1",
        "bleu": "BLEU",
        "rouge_l": "ROUGE-L",
        "exact_match": "exact match",
        "cosine": "cosine",
    }
    rows = [row for row in load("reconstruction", folder).get("rows", []) if row["attack"] != "algen"]
    lines = [
        [
            _learnt(row),
            row["vectors"],
            "greedy" if row["beams"] == 1 else f"{row['beams']} beams",
            *[_figure(row, key) for key in keys],
            number(row, "figures", "token_f1", "chance", form="{:.1f}", factor=100),
        ]
        for row in rows
    ]
    head = ["learnt and judged on", "vectors", "decoding", *keys.values(), "token F1 by chance"]
    return table(head, lines or [[MISSING] * len(head)], words=3)


def reconstruction_training(folder: Path = RESULTS) -> str:
    """Return what training the decoders took."""
    rows = [row for row in load("reconstruction", folder).get("rows", []) if row["attack"] != "algen"]
    lines = {}
    for row in rows:
        details = row.get("details", {})
        seconds = details.get("processor_seconds")
        speed = MISSING if not seconds else f"{details['tokens'] / seconds:,.0f}"
        lines[_learnt(row), row["vectors"]] = [
            _learnt(row),
            row["vectors"],
            number(details, "texts", form="{:,}"),
            number(details, "parameters", form="{:.1f} million", factor=1e-6),
            number(details, "tokens", form="{:.1f} million", factor=1e-6),
            number(details, "processor_seconds", form="{:.0f} min", factor=1 / 60),
            number(details, "training_seconds", form="{:.0f} min", factor=1 / 60),
            speed,
            number(details, "loss", form="{:.2f}"),
        ]
    head = [
        "learnt on",
        "vectors",
        "sentences",
        "parameters",
        "tokens seen",
        "processor time",
        "wall clock",
        "tokens a processor second",
        "validation loss",
    ]
    return table(head, lines.values() or [[MISSING] * len(head)], words=2)


def reconstruction_pairs(folder: Path = RESULTS) -> str:
    """Return what few-shot alignment to a decoder finds, by number of leaked pairs."""
    lines = []
    for row in load("reconstruction", folder).get("rows", []):
        if row["attack"] != "algen":
            continue
        few = {int(key.rpartition("_")[2]): key for key in row["figures"] if "_of_" in key}
        pairs = {**few, row["details"]["pairs"]: "token_f1"}
        chance = number(row, "figures", "token_f1", "chance", form="{:.1f}", factor=100)
        lines += [[row["vectors"], f"{count:,}", _figure(row, key), chance] for count, key in sorted(pairs.items())]
    head = ["vectors", "leaked pairs", "token F1", "by chance"]
    return table(head, lines or [[MISSING] * len(head)])


def textcrafter_cost(folder: Path = RESULTS) -> str:
    """Return what training a policy takes, and vectors a second of applying it, beside Gaussian noise."""
    label = "TextCrafter; empirical, no formal privacy guarantee"
    record = load("textcrafter-cost", folder)
    if not record:
        return table([label, "figure"], [[MISSING, MISSING]])
    speed, training = record["vectors_per_second"], record["training"]
    of = f"{record['rows']:,} vectors, n = {record['dimension']}"
    lines = [
        [f"training on {of}, seconds", f"{training['seconds']:.0f}"],
        ["the same, processor seconds", f"{training['processor_seconds']:.0f}"],
        *([f"{name}, vectors a second", f"{value:,}"] for name, value in speed.items()),
    ]
    ratio = speed["gaussian float32"] / speed["textcrafter float32"]
    lines.append(["Gaussian noise over TextCrafter, float32", f"{ratio:.1f}"])
    return table([f"{label}; {record['threads']} threads", "figure"], lines)


TABLES: dict[str, Callable[[Path], str]] = {
    "reconstruction": reconstruction,
    "reconstruction-training": reconstruction_training,
    "reconstruction-pairs": reconstruction_pairs,
    "leakage": leakage,
    "list-size": list_size,
    "membership": membership,
    "modes": modes,
    "sealed-beside": sealed_beside,
    "leakage-attacks": leakage_attacks,
    "leakage-parameters": leakage_parameters,
    "sizes": sizes,
    "mechanisms": mechanisms,
    "mechanisms-others": mechanisms_others,
    "mechanisms-one": mechanisms_one,
    "protect": protect,
    "encode": encode,
    "mask": mask,
    "memory": memory,
    "concepts": concepts,
    "audit": audit,
    "audit-cost": audit_cost,
    "alignment": alignment,
    "alignment-unpaired": alignment_unpaired,
    "attackers-linking": _attackers("linking", "linked", top_1="top-1", one_to_one="one to one"),
    "attackers-alignment": _attackers(
        "alignment",
        "",
        top_1_of_10="top-1 of 10 pairs",
        top_1_of_100="of 100",
        top_1="of all",
        words_of_10="words read after 10 pairs",
        words_of_100="after 100",
        words="after all",
    ),
    "attackers-readers": _attackers("readers", "", r_precision="words read", auc="AUC", top_1="known text identified"),
    "attackers-unpaired": _attackers("unpaired", "rows", top_1="top-1", cosine="cosine", words="words read"),
    "attackers-access": _attackers("access", "what is attacked", r_precision="R-precision"),
    "attackers-zero-shot": _attackers(
        "zero-shot", "attack", token_f1="token F1", leakage="concept words written", cosine="cosine of the text"
    ),
    "textcrafter-cost": textcrafter_cost,
    **{f"recipe-{name}": _recipe(name) for name in ("rag", "clinical", "api", "release")},
}
# This file is run as a script and imported by path.
sys.path.insert(0, str(HERE))
_scale = importlib.import_module("scale_tables")
TABLES |= {
    "integrations": importlib.import_module("integration_tables").integrations,
    "scale": _scale.scale,
    "scale-cost": _scale.cost,
    "scale-sealed": _scale.sealed_store,
}
_BLOCK = re.compile(r"(<!-- table: ([a-z-]+) -->\n).*?(\n?<!-- end table -->)", re.DOTALL)


def updated(text: str, folder: Path = RESULTS) -> str:
    """Return ``text`` with every table rendered anew."""

    def render(block: re.Match[str]) -> str:
        return f"{block[1]}\n{TABLES[block[2]](folder)}\n\n<!-- end table -->"

    return _BLOCK.sub(render, text)


def main() -> int:
    """Print, write or check the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="update the documents")
    parser.add_argument("--check", action="store_true", help="exit 1 if a document is stale")
    options = parser.parse_args()
    if not (options.write or options.check):
        for name, render in TABLES.items():
            print(f"## {name}\n\n{render(RESULTS)}\n")
        return 0
    stale = 0
    for path in DOCUMENTS:
        old = path.read_text(encoding="utf-8")
        new = updated(old)
        if new == old:
            continue
        stale += 1
        print(f"{path.name}: {'updated' if options.write else 'differs from the results'}")
        if options.write:
            path.write_text(new, encoding="utf-8")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
