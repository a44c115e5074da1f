"""The documents' result tables, rendered from ``benchmarks/results/*.json``.

    python benchmarks/tables.py            # print every table
    python benchmarks/tables.py --write    # put them into README.md and the documents
    python benchmarks/tables.py --check    # exit 1 if a document differs from its results

A table stands between ``<!-- table: NAME -->`` and ``<!-- end table -->``. What has no result is
"not measured".
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from vecveil.auditing.records.audit_record import LearningPoint

HERE = Path(__file__).parent
RESULTS = HERE / "results"
_OPENING = "<!-- table: "
DOCUMENTS = [
    path
    for path in (
        HERE.parent / "README.md",
        HERE.parent / "docs/llms.txt",
        *sorted((HERE.parent / "docs").rglob("*.md")),
    )
    if _OPENING in path.read_text(encoding="utf-8")
]
MISSING = "not measured"

METHODS = {
    "none": "clean",
    "laplace": "`laplace`",
    "sparse": "`sparse`",
    "covariance": "`covariance`",
    "subspace": "`subspace`",
}
CONCEPTS = {"sts": "STS", "ade": "ADE", "pii": "PII"}
SPLITS = {"shared": "fitted", "separate": "other"}
RELEASES = {
    "rotation": "a secret rotation",
    "shuffle": "`shuffle`",
    "laplace": "`laplace`",
    "subspace": "`subspace`",
    "ironcore-alloy 0": "ironcore-alloy, factor 0",
    "ironcore-alloy 1": "ironcore-alloy, factor 1",
}
INDEXES = {
    "sealed": "sealed index",
    "parquet": "Parquet without encryption, the same scan",
    "faiss-flat": "FAISS flat",
    "duckdb": "DuckDB, encrypted file",
    "ducklake": "DuckLake, encrypted files",
    "sqlite-vec": "sqlite-vec",
    "lancedb": "LanceDB, no index",
    "chroma": "Chroma",
    "qdrant": "Qdrant, local",
}
RECIPE_TEXTS = {
    "rag": "sentences of presidio-research (version 2)",
    "clinical": "sentences of ADE-Corpus-V2",
    "api": "clinical queries of ASQ-PHI",
    "release": "articles of AG News",
}
FAMILIES = {
    "token-inference": "token inference",
    "probe": "concept probe",
    "held-out-terms": "held-out terms",
    "whole-vocabulary": "words on no list",
}

# Releases of the record whose membership is as that of others in the table.
UNNAMED = (
    "gaussian, similarity 95 %",
    "purkayastha, similarity 95 %",
    "covariance, similarity 95 %",
    "textcrafter-subspace, r 1",
    "the same with keyed noise, without the key",
    "shuffle",
    "redact",
    "replace-random",
    "replace-semantic",
)
SECRET_PAIRS = (10, 100, 1000)

Record = Mapping[str, Any]
Rows = list[dict[str, Any]]
Cell = str | Callable[[Any], str]
Render = Callable[[Path], str]


def load(name: str, folder: Path = RESULTS) -> dict[str, Any]:
    """Return one benchmark's record, or an empty one if it has not been run."""
    path = folder / f"{name}.json"
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return record


def table(head: Sequence[str], rows: Iterable[Sequence[str]] = (), *, words: int = 1) -> str:
    """Return a Markdown table, "not measured" without rows; the first ``words`` columns are aligned left."""
    rule = [":--"] * words + ["--:"] * (len(head) - words)
    lines = list(rows) or [[MISSING] * len(head)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *lines))


class _Templates(string.Formatter):
    """Templates of cells: ``{seeds.mean:%}`` is a share at a path, ``{tokens:1e-6*.1f}`` a figure times a factor."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        value = args[0]
        for key in field_name.split("."):
            if isinstance(value, list) and key.isdigit():
                value = value[int(key)] if int(key) < len(value) else None
            else:
                value = value.get(key) if isinstance(value, Mapping) else None
        if value is None:
            raise LookupError(field_name)
        return value, field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "%":
            return f"{100 * value:.1f}%"
        if format_spec == "interval":
            return interval(value)
        factor, times, rest = format_spec.partition("*")
        return format(value * float(factor), rest) if times else format(value, format_spec)


def figure(record: Any, template: str, *, missing: str = MISSING) -> str:
    """Return a cell's text, or ``missing`` where one of its figures is."""
    try:
        return _Templates().format(template, record)
    except LookupError:
        return missing


def lines_of(rows: Iterable[Any], columns: Mapping[str, Cell]) -> list[list[str]]:
    """Return the cells of each row: templates, or functions of the row."""
    return [[figure(row, one) if isinstance(one, str) else one(row) for one in columns.values()] for row in rows]


def each(
    source: str, rows: str | Callable[[Record], Iterable[Any]], columns: Mapping[str, Cell], *, words: int = 1
) -> Render:
    """Return the function that draws one line for each row of a record: those under a key, or what ``rows`` makes."""

    def render(folder: Path = RESULTS) -> str:
        record = load(source, folder)
        found = record.get(rows, []) if isinstance(rows, str) else rows(record)
        return table(list(columns), lines_of(found, columns), words=words)

    return render


def costs(folder: Path = RESULTS) -> str:
    """Return in a few sentences what protecting costs."""
    sentences = {
        "mechanisms": "A single vector takes {single_vector_microseconds.laplace:.0f} µs with `laplace` and "
        "{single_vector_microseconds.purkayastha:.0f} µs with `purkayastha`.",
        "protect": "Protecting {texts:,} texts takes {overhead:100*.1f} % of the time that encoding them takes; a fit "
        "of `subspace` on {pairs:,} pairs takes {subspace_fit_seconds:.1f} s, with the search for its parameters "
        "{subspace_search_seconds:.1f} s (`python benchmarks/protect.py`).",
        "encode": "On one thread vecveil encodes {rows.vecveil fp32, NumPy.processor_ratio:.1f} times as fast as "
        "sentence-transformers (`python benchmarks/encode.py`).",
        "memory": "From Parquet to Parquet, {memory.1.rows:,} vectors of {memory.1.dimension} dimensions take "
        "{memory.1.peak_mib:.0f} MiB of memory (`python benchmarks/memory.py`).",
    }
    return " ".join(figure(load(name, folder), sentence) for name, sentence in sentences.items())


def named(key: str, names: Mapping[str, str]) -> Cell:
    """Return the cell that shows a name for a value."""
    return lambda row: names.get(str(row.get(key, MISSING)), str(row.get(key, MISSING)))


def _over_chance(attack: Record) -> float:
    return float((attack["value"] - attack["chance"]) / (1 - attack["chance"]))


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of what is there."""
    given = [value for value in values if value is not None]
    return sum(given) / len(given) if given else None


def interval(value: Any) -> str:
    """Return a share with the longer side of its interval, given as three numbers or as a mapping."""
    value, low, high = (value[key] for key in ("value", "low", "high")) if isinstance(value, Mapping) else value
    return f"{100 * value:.1f}±{100 * max(high - value, value - low):.1f}%"


def percent(value: float | None) -> str:
    """Return a share as a percentage."""
    return MISSING if value is None else f"{100 * value:.1f}%"


def share(rows: Rows) -> str:
    """Return the strongest attack's R-precision with its interval; several seeds: mean, and the widest ends."""
    found = [max(row["attacks"].values()) for row in rows if row.get("attacks")]
    if not found:
        return MISSING
    ends = [sum(one[0] for one in found) / len(found), min(one[1] for one in found), max(one[2] for one in found)]
    return interval(ends)


def leakage(folder: Path = RESULTS) -> str:
    """Return what the strongest attack recovers behind each method, a row for each setting that was run."""
    rows: Rows = load("leakage", folder).get("rows", [])
    lines = []
    for concept, split, method in ((c, s, m) for c in CONCEPTS for s in SPLITS for m in METHODS):
        setting = {"concept": concept, "method": method, "split": split}
        if not (cell := [row for row in rows if setting.items() <= row.items()]):
            continue
        kept = "100%" if method == "none" else percent(mean(row.get("sts13_16") for row in cell))
        names = [CONCEPTS[concept], SPLITS[split], METHODS[method]]
        lines.append([*names, kept, share(cell), percent(mean(row.get("chance") for row in cell))])
    head = ["concept", "attacker's texts", "method", "STS13–16 kept", "recovered", "chance"]
    return table(head, lines, words=3)


def kept_dimensions(folder: Path = RESULTS) -> str:
    """Return a row for each number of kept dimensions (means over seeds), and the effect of the noise's place."""
    rows: Rows = sorted(load("kept_dimensions", folder).get("rows", []), key=lambda row: (row["concept"], row["kept"]))
    cells, shares = dict[tuple[str, int, str], dict[str, float]](), ("recovered", "sts13_16")
    for setting in dict.fromkeys((row["concept"], row["kept"], row["noise"]) for row in rows):
        cell = [row for row in rows if (row["concept"], row["kept"], row["noise"]) == setting]
        cells[setting] = {key: sum(r[key] for r in cell) / len(cell) for key in ("epsilon", *shares)}
    lines = [
        [CONCEPTS[concept], str(kept), f"{c['epsilon']:,.0f}", percent(c["sts13_16"]), percent(c["recovered"])]
        for (concept, kept, where), c in cells.items()
        if where == "kept"
    ]
    shown = table(["concept", "dimensions", "ε", "STS13–16 kept", "recovered"], lines, words=2)
    if not cells:
        return shown
    leak, kept = (
        max(100 * abs(c[key] - cells[name, size, "kept"][key]) for (name, size, at), c in cells.items() if at == "all")
        for key in shares
    )
    return (
        f"{shown}\n\nNoise in all dimensions changes the words recovered by at most {leak:.1f} points, and the "
        f"similarity kept by {kept:.1f}."
    )


def forecast(folder: Path = RESULTS) -> str:
    """Return a sentence on the audit's forecasts, beside what the network found with all texts."""
    rows: Rows = load("forecast", folder).get("rows", [])
    if not rows:
        return MISSING
    widths = [100 * (row["forecast"][2] - row["forecast"][1]) for row in rows]
    protected = [(LearningPoint(0, *row["forecast"]), row["network"][1]) for row in rows if row["release"] != "clean"]
    low = [100 * (network - point.value) for point, network in protected]
    above = [100 * (network - point.cautious) for point, network in protected if network > point.cautious]
    return (
        f"The interval, {min(widths):.0f} to {max(widths):.0f} points wide, contained the network's figure in "
        f"{sum(row['contains'] for row in rows)} of {len(rows)} cases. Behind protection the middle figure was "
        f"{min(low):.0f} to {max(low):.0f} points too low. The verdict therefore uses the point halfway to the upper "
        f"end (in log-odds), chosen on these cases: the network exceeded it in {len(above)} of {len(protected)}, by "
        f"at most {max(above, default=0.0):.1f} points."
    )


def modes(folder: Path = RESULTS, *, words: bool = False) -> str:
    """Return one row a mode: when to choose it, what an attacker recovers, what search keeps and costs.

    Args:
        words: say in words what is recovered and kept, without the rows to compare with.
    """
    record, speed, cold = (load(name, folder) for name in ("modes", "sealed_index", "cold_index"))
    among = figure(record, "{modes.sealed-search.identified.metric}").split()[-1]
    recovered = ["attacker recovers listed words", "other drug names", f"finds the text among {among}"]
    head = ["mode", "choose it if", *recovered, "ten nearest found", "a query, memory at a million rows", "you need"]
    if not record:
        return table(head)
    kinds, theirs = ("listed", "unlisted", "identified"), "the database's"
    million, memory = speed["1000000"]["cases"]["sealed"], cold["1000000"]["memory"]
    noisy = record["modes"]["protected-vectors"]

    def stored(of: Record | None) -> str:
        if of is None:
            return "ciphertext"
        left = (of["value"] - of["chance"]) / max((of["clean"] or 0) - of["chance"], 1e-9)
        if words:
            return "as by guessing" if of["low"] <= of["chance"] else "**not protected**" if left > 0.5 else "fewer"
        return interval(of) + (", not protected" if left > 0.5 else "")

    def kept(share: float) -> str:
        if not words:
            return percent(share)
        return "exact" if share >= 0.999 else "nearly all" if share >= 0.9 else "most" if share >= 0.5 else "little"

    lines = []
    for name, (choose, cost, needed) in {
        "sealed-index": (
            "you hold a key where you search, and that process may keep an index in memory",
            f"{memory['search_ms']:.0f} ms on one core, {memory['bytes_a_row'] / 1e3:.1f} GB",
            "a key",
        ),
        "sealed-search": (
            "you hold a key where you search, but a database must find candidates",
            f"{theirs} and {record['ranking_ms']:.0f} ms",
            f"a key, the list, {record['fitted']:,} texts",
        ),
        "protected-vectors": ("the vectors go to somebody without a key", theirs, "the list, the texts"),
    }.items():
        mode = record["modes"][name]
        found = kept(mode.get("recall", million["recall"]))
        figures = (stored(mode.get(kind)) for kind in kinds)
        lines.append([f"**{name.replace('-', ' ')}**", choose, *figures, found, cost, needed])
    if words:
        return table(head, lines, words=len(head))
    clean, guess = ([percent(noisy[kind][key]) for kind in kinds] for key in ("clean", "chance"))
    index = percent(record["modes"]["sealed-index"]["listed"]["chance"])
    lines.append(["no protection", "", *clean, "100%", theirs, ""])
    lines.append(["guessing", "", f"{guess[0]}; of the index {index}", *guess[1:], "", "", ""])
    return table(head, lines, words=2)


def sealed_cold(folder: Path = RESULTS) -> str:
    """Return what a sealed index takes after a restart, for each number of rows and place of the vectors."""
    columns = {
        "opened": "{open_s:.2f} s",
        "first search": "{first_search_s:.2f} s",
        "first filter": "{first_where_s:.2f} s",
        "first hybrid": "{first_hybrid_s:.2f} s",
        "search": "{search_ms:.1f} ms",
        "memory a row": "{bytes_a_row:,.0f} bytes",
        "with fields and words": "{bytes_a_row_with_fields_and_words:,.0f}",
    }
    record = load("cold_index", folder)
    lines = [
        [f"{int(rows):,}", where, *lines_of([cases[where]], columns)[0]]
        for rows, cases in sorted(record.items(), key=lambda item: int(item[0]))
        for where in ("memory", "disk")
    ]
    return table(["rows", "vectors", *columns], lines, words=1)


def sealed_beside(folder: Path = RESULTS) -> str:
    """Return a sealed index beside other stores of the same vectors."""
    record = load("sealed_beside", folder)
    columns = {
        "rows/s written": "{rows_per_second:,.0f}",
        "opened, s": "{open_s:.1f}",
        "query, ms": "{p50_ms:.0f}",
        "recall@10": "{recall:.3f}",
    }
    lines = []
    for name, label in INDEXES.items() if record else ():
        case: dict[str, Any] | None = {"rows": record["rows"], **record["cases"][name]}
        while case is not None:
            speeds = lines_of([case], columns)[0]
            if "unfinished" in case and "unfinished" in case.get("fewer", {}):
                case["fewer"] = case["fewer"]["fewer"]  # of the sizes that did not end, the largest
            if "unfinished" in case:
                doing = {"write": "written", "search": "searched"}[case["unfinished"]]
                speeds = [f"not {doing} in {case['unfinished_s'] / 60:.0f} min", *[""] * 3]
            lines.append([label, f"{case['rows']:,}", *speeds])
            case = case.get("fewer")
    return table(["store", "rows", *columns], lines)


def membership(folder: Path = RESULTS) -> str:
    """Return how well an attacker who has a text tells whether it is in the store, for each release."""
    columns = {
        "release": "{release}",
        "AUC": "{auc:interval}",
        "members found at 1% false positives": lambda row: figure(row, "{tpr:interval}", missing=""),
    }
    rows = [row for row in load("membership", folder).get("membership", []) if row["release"] not in UNNAMED]
    lines = lines_of(rows, columns)
    return table(list(columns), lines and [*lines, ["guessing", "50.0%", "1.0%"]])


def _recipe(name: str) -> Render:
    """Return the function that renders what one recipe leaks and keeps on public data."""

    def render(folder: Path = RESULTS) -> str:
        record = load("recipes", folder).get("recipes", {}).get(name)
        if record is None:
            return table(["other texts than the fit's", "before", "after", "chance"])
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


def mechanisms(folder: Path = RESULTS) -> str:
    """Return the time that each mechanism takes for a vector, in both precisions."""
    cells: dict[str, dict[str, Record]] = {}
    for case in load("mechanisms", folder).get("cases", []):
        name, _, precision = case["name"].rpartition(" ")
        if "yardstick" in case["name"]:
            name, precision = "normal variates by randomgen and NumPy, added", "float64"
        cells.setdefault(name, {})[precision] = case
    lines = [
        [
            name,
            *(
                figure(case.get(precision, {}), "{microseconds_per_vector:.1f}", missing="")
                for precision in ("float64", "float32")
            ),
        ]
        for name, case in cells.items()
    ]
    return table(["µs a vector", "float64", "float32"], lines)


def audit(folder: Path = RESULTS) -> str:
    """Return what the strongest attack of each family finds, on both concepts."""
    rows = load("audit", folder).get("rows", [])
    lines: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for family in dict.fromkeys(one["family"] for one in row["attacks"]):
            best = max((one for one in row["attacks"] if one["family"] == family), key=_over_chance)
            name = FAMILIES.get(family, family.replace("token-", "token "))
            figures = [figure(best, "{clean:%}"), interval(best), figure(best, "{chance:%}")]
            lines.setdefault((name, best["metric"]), []).extend(figures)
    concepts = [CONCEPTS[row["concept"]] for row in rows] or list(CONCEPTS.values())
    head = [what for concept in concepts for what in (f"{concept}, clean", "protected", "chance")]
    return table(["family", "metric", *head], [[*names, *figures] for names, figures in lines.items()], words=2)


def alignment(folder: Path = RESULTS) -> str:
    """Return which share of a store the best attack identifies from known pairs, and what leaks then."""
    record = load("alignment", folder)
    rows = [row for row in record.get("rows", []) if row["attack"] != "unpaired-alignment"]
    heads = ("10 pairs", "50", "200", "1000")
    lines = []
    for release in dict.fromkeys(row["release"] for row in rows if row["release"] != "ironcore-alloy 0"):  # a shuffle
        attacks = [row for row in rows if row["release"] == release]
        found = [percent(max(row["pairs"][head.split()[0]][0] for row in attacks)) for head in heads]
        best = max(attacks, key=lambda row: row["leakage"][0])
        leaks = figure(best, "{leakage:interval}"), figure(best, "{leakage_unaligned.0:%}")
        lines.append([RELEASES[release], *found, *leaks])
    if lines:
        by_chance, chance = f"{100 / record['store']:.2f} %", percent(record["leakage_chance"])
        lines.insert(0, ["none (clean vectors)", *[""] * 5, figure(record, "{leakage_clean:interval}")])
        lines.append(["chance", *[by_chance] * 4, chance, chance])
    return table(["release", *heads, "words recovered after it", "without it"], lines)


def _attackers(kind: str, head: str, sets: Sequence[str] = ("ade",), **figures: str) -> Render:
    """Return the table of some figures of `benchmarks/attackers.py`; the record has more sets and intervals.

    Args:
        head: the column of the attack's name; empty: a row for each release, with the strongest attack on each figure.
    """
    shown = {(name, key): f"{name.upper()}: {text}" for name in sets for key, text in figures.items()}

    def render(folder: Path = RESULTS) -> str:
        cells: dict[tuple[str, ...], dict[tuple[str, str], float]] = {}
        chance: dict[tuple[str, str], float] = {}
        for row in load("attackers", folder).get("rows", []):
            if row["kind"] != kind or row["concept"] not in sets:
                continue
            name = row["attack"].partition(", ")[2].removesuffix(" rows").removeprefix("rank ")
            name = name or row["attack"].removesuffix("-alignment")
            cell = cells.setdefault((row["release"], name) if head else (row["release"],), {})
            for key, one in row["figures"].items():
                place = row["concept"], key
                cell[place] = max(one["value"], cell.get(place, -1.0))
                chance[place] = one["chance"]
        if head and len(shown) == 1:  # a column for each attack
            (key,) = shown
            names = list(dict.fromkeys(name for _, name in cells))
            found = {
                release: [percent(cells.get((release, name), {}).get(key)) for name in names] for release, _ in cells
            }
            lines = [[release, *found[release]] for release in found]
            return table(
                ["release", *names], [*lines, ["chance", *[percent(chance[key])] * len(names)]] if cells else ()
            )
        lines = [
            [*names, *[percent(cell.get(key)).replace(MISSING, "") for key in shown]]
            for names, cell in [*cells.items(), (("chance", "") if head else ("chance",), chance)]
        ]
        columns = ["release", *([head] if head else []), *(figures if len(sets) == 1 else shown).values()]
        return table(columns, lines if cells else (), words=2 if head else 1)

    return render


def _by_pairs(
    kind: str, head: str, counts: Sequence[int], read: Callable[[Record], Iterable[tuple[str, int, Any]]]
) -> Render:
    """Return the table of top-1 by known pairs, on ADE: ``read`` yields what was attacked, the pairs and the share."""

    def render(folder: Path = RESULTS) -> str:
        cells: dict[str, dict[int, float]] = {}
        for row in load("attackers", folder).get("rows", []):
            if row["kind"] == kind and row["concept"] == "ade":
                for name, count, share in read(row):
                    cells.setdefault(name, {})[count] = share
        columns = [f"{counts[0]} pairs", *(f"{count:,}" for count in counts[1:])]
        lines = [
            [name, *[percent(cell.get(count)).replace(MISSING, "") for count in counts]] for name, cell in cells.items()
        ]
        return table([head, *columns], lines)

    return render


def _anchored(row: Record) -> Iterable[tuple[str, int, Any]]:
    store, pairs = row["attack"].removeprefix("linking, ").removesuffix(" pairs").rsplit(", ", 1)
    # SPARSE is as isotropic noise, and a rotation alone hides no link: the record has both.
    if row["release"] == "sparse" or (row["release"], store) in (("clean", "a public list"), ("clean", "another key")):
        return
    yield f"{row['release']}; {store}", int(pairs), row["figures"]["top_1"]["value"]


def _secret(row: Record) -> Iterable[tuple[str, int, Any]]:
    if row["attack"].endswith(" pairs"):
        name, pairs = row["attack"].removesuffix(" pairs").rsplit(", ", 1)
        yield name, int(pairs), row["figures"]["value"]["value"]
        return
    counts = {f"top_1_of_{count}": count for count in SECRET_PAIRS}
    most = row["details"]["pairs"]
    for key, one in row["figures"].items():
        if key in counts or key == "top_1":
            yield row["attack"], counts.get(key, most), one["value"]


def _hundredths(key: str) -> Cell:
    """Return the cell that shows a reconstruction figure in hundredths, with its interval."""
    return f"{{figures.{key}:interval}}"


def _learnt(row: Record) -> str:
    if row["attack"] == "zero-shot":
        return f"nothing; {row['figures']['token_f1']['n']} STS sentences (zero-shot, {row['preset']})"
    data = {"sts": "STS sentences"}.get(row.get("data", ""), "corpus sentences")
    on = "" if row.get("started", "scratch") == "scratch" else ", after the corpus"
    return f"{data}{on} (`{row['preset']}`)"


def _is_decoder(row: Record) -> bool:
    return bool(row["attack"] != "algen")


def reconstruction_pairs(folder: Path = RESULTS) -> str:
    """Return what few-shot alignment to a decoder finds, by number of leaked pairs."""
    lines = []
    for row in load("reconstruction", folder).get("rows", []):
        if row["attack"] == "algen":
            few = {int(key.rpartition("_")[2]): key for key in row["figures"] if "_of_" in key}
            for count, key in sorted({**few, row["details"]["pairs"]: "token_f1"}.items()):
                columns = {"": "{vectors}", "n": f"{count:,}", "f": _hundredths(key), "c": _BY_CHANCE}
                lines += lines_of([row], columns)
    return table(["vectors", "leaked pairs", "token F1", "by chance"], lines)


_BY_CHANCE = "{figures.token_f1.chance:100*.1f}"


def textcrafter_cost(folder: Path = RESULTS) -> str:
    """Return what training a policy takes, and vectors a second of applying it, beside Gaussian noise."""
    label = "TextCrafter; empirical, no formal privacy guarantee"
    record = load("textcrafter-cost", folder)
    if not record:
        return table([label, "figure"])
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


SCALE_CASES = {"laplace": "`laplace`", "subspace": "`subspace`"}
SEALED_CASES = {"clean": "clean vectors, readable texts", "sealed": "`ProtectedCollection`"}


def scale_cost(folder: Path = RESULTS) -> str:
    """Return what a thousand million vectors would cost, by the slope between the two largest sizes measured."""
    local = [one for one in load("scale", folder).get("sizes", []) if one["engine"] == "local"]
    cores = (2, 64)
    head = ["method", "core hours", "read and written", *(f"on {count:,} cores" for count in cores)]
    if len(local) < 2:
        return table(head)
    small, large = sorted(local, key=lambda one: int(one["rows"]))[-2:]
    bytes_a_row = large["input_bytes"] / large["rows"]
    lines = []
    for method in ("laplace", "subspace"):
        more = large["cases"][method]["processor_seconds"] - small["cases"][method]["processor_seconds"]
        row = more / (large["rows"] - small["rows"])
        last = 2**28 / bytes_a_row * row  # the longest that one core is waited for
        hours = [(1e9 * row / count + last) / 3600 for count in cores]
        times = (f"{one:.1f} h" if one >= 1 else f"{60 * one:.0f} min" for one in hours)
        lines.append([f"`{method}`", f"{1e9 * row / 3600:.1f}", f"2 × {bytes_a_row / 1e3:.2f} TB", *times])
    return table(head, lines)


def integrations(folder: Path = RESULTS) -> str:
    """Return one row for each integration."""
    if not (record := load("integrations", folder)):
        return MISSING
    rows = {row["module"]: row for row in record["integrations"]}
    clean = figure(record["integrations"], "{0.ndcg.clean:.3f}")
    columns: dict[str, Cell] = {
        "with": "[{name}]({page})",
        "tested with": lambda one: f"{one['component']} {rows.get(one['module'], {}).get('version', '')}",
        f"nDCG@10, clean {clean}": lambda one: figure(rows.get(one["module"], {}), "{ndcg.protected:.3f}", missing="–"),
    }
    integrated = yaml.safe_load((HERE / "integrations.yaml").read_text(encoding="utf-8"))
    return table(list(columns), lines_of(integrated, columns), words=2)


TABLES: dict[str, Render] = {
    "reconstruction": each(
        "reconstruction",
        lambda record: filter(_is_decoder, record.get("rows", [])),
        {
            "learnt and judged on": _learnt,
            "decoding": lambda row: "greedy" if row["beams"] == 1 else f"{row['beams']} beams",
            "token F1": _hundredths("token_f1"),
            "BLEU": _hundredths("bleu"),
            "ROUGE-L": _hundredths("rouge_l"),
            "exact match": _hundredths("exact_match"),
            "cosine": _hundredths("cosine"),
            "token F1 by chance": _BY_CHANCE,
        },
        words=2,
    ),
    "reconstruction-pairs": reconstruction_pairs,
    "case-study-judge": each(
        "case_study_judge",
        "rows",
        {
            "noise": "{scale}",
            "method": named("method", METHODS),
            "LSA": "{first:.2f}",
            "SBERT": lambda row: figure(row, "{second:.2f}±{spread:.2f}", missing=figure(row, "{second:.2f}")),
            "SBERT by chance": "{chance:.2f}",
        },
        words=2,
    ),
    "forecast": forecast,
    "kept-dimensions": kept_dimensions,
    "leakage": leakage,
    "list-size": each(
        "list_size",
        lambda record: sorted(record.get("cells", []), key=lambda c: (-c["target"], -c["terms"], c["texts"])),
        {
            "listed drugs": "{terms:,}",
            "fitted sentences": "{texts:,}",
            "similarity": "{target:100*.0f}%",
            "clean": "{clean:%}",
            "protected": "{leak:interval}",
            "chance": "{chance:%}",
            "search, sealed": "{sealed:100*.0f}%",
        },
        words=0,
    ),
    "costs": costs,
    "membership": membership,
    "modes": modes,
    "modes-words": functools.partial(modes, words=True),
    "sealed-beside": sealed_beside,
    "sealed-cold": sealed_cold,
    "mechanisms": mechanisms,
    "mechanisms-others": each(
        "mechanisms",
        "external",
        {
            "package": "{name} {version}",
            "vectors a second": "{vectors_per_second:,.0f}",
            "`laplace` in float32 is faster by": "{laplace_float32_over_it:,.0f} ×",
        },
    ),
    "audit": audit,
    "alignment": alignment,
    "alignment-unpaired": each(
        "alignment",
        lambda record: [row for row in record.get("rows", []) if row["attack"] == "unpaired-alignment"],
        {
            "release": named("release", RELEASES),
            "identified": lambda row: interval(next(iter(row["pairs"].values()))),
            "cosine": "{cosine.0:.2f}",
            "seconds": "{seconds:.0f}",
        },
    ),
    "attackers-words": _attackers(
        "words", "rank of W", ("ade", "sts"), r_precision="words on no list", every="every word"
    ),
    "attackers-anchors": _by_pairs("anchors", "release; linked with", (15, 30, 100), _anchored),
    "attackers-secrets": _by_pairs("secrets", "what is secret", SECRET_PAIRS, _secret),
    "attackers-linking": _attackers("linking", "linked", top_1="top-1"),
    "attackers-releases": _attackers(
        "readers", "", r_precision="words recovered", auc="AUC", top_1="known text identified"
    ),
    "attackers-unpaired": _attackers("unpaired", "rows", top_1="top-1", words="words recovered"),
    "attackers-access": _attackers("access", "what is attacked", r_precision="R-precision"),
    "attackers-zero-shot": _attackers(
        "zero-shot", "", token_f1="token F1", leakage="concept words written", cosine="cosine of the text"
    ),
    "textcrafter-cost": textcrafter_cost,
    "integrations": integrations,
    "scale": each(
        "scale",
        lambda record: (
            {"size": one["rows"], "engine": one["engine"], "case": SCALE_CASES[name], **found}
            for one in record.get("sizes", [])
            for name, found in one["cases"].items()
            if name in SCALE_CASES and one["rows"] >= 1_000_000
        ),
        {
            "rows": "{size:,}",
            "engine": "{engine}",
            "what": "{case}",
            "rows a second": "{rows_per_second:,.0f}",
            "of the copy": "{of_copy_without_dictionaries:100*.0f}%",
            "peak, MiB": "{peak_mib:,.0f}",
        },
        words=3,
    ),
    "scale-cost": scale_cost,
    "scale-sealed": each(
        "sealed-store",
        lambda record: [row for row in record.get("rows", []) if row["case"] in SEALED_CASES],
        {
            "rows": "{rows:,}",
            "what": named("case", SEALED_CASES),
            "rows written a second": "{rows_per_second:,.0f}",
            "ms a search": "{milliseconds_a_search:.0f}",
            "bytes a row": "{bytes_a_row:,.0f}",
        },
        words=2,
    ),
    **{f"recipe-{name}": _recipe(name) for name in RECIPE_TEXTS},
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
