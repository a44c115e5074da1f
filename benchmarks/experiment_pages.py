"""The pages of every experiment that has records: Markdown beside the records, HTML in the documents.

    python benchmarks/experiment_pages.py [--check]

Reads ``results/experiments/NAME``, ``results/experiments-entities/NAME`` with the papers' concept, and
``results/experiments-mpnet/NAME`` with an encoder of as many dimensions as the papers'; writes its
``README.md`` and ``docs/experiments/NAME.html``, the list of pages in ``docs/experiments.md``, what became of the
claims of the papers in ``docs/claims.md``, and the counts in the README. ``--check`` writes nothing and exits 1 if a
page is stale.
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # `research` is not installed

from research import summarise
from research.catalogue import EXPERIMENTS
from research.experiment import Records
from research.judging import VERDICTS
from research.published import claims, published
from research.records import RecordFolder
from research.report import experiment_to_html, experiment_to_markdown
from research.scales import EFFECTIVE_NORM
from research.tables import counted
from vecveil.io import write_text

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "benchmarks" / "results" / "experiments"
DOCS = ROOT / "docs"
PAPERS = ("SPARSE", "TextCrafter")
FURTHER = {"entities": "Concept: spaCy's entities", "mpnet": "Encoder: all-mpnet-base-v2"}
STARTED = 0.003  # deviation of a mask's values before its training: 0.01 on log α, times the slope 0.3 of a gate
TRAINED = 2 * STARTED


def pages(records: Path = RECORDS, docs: Path = DOCS) -> dict[Path, str]:
    """Return every page and what it should hold."""
    found: dict[Path, str] = {}
    findings: list[dict[str, str]] = []
    readings: list[dict[str, Any]] = []
    masked: dict[str, Records] = {}
    lines = ["|experiment|what it measures|after|cells|", "|:--|:--|:--|--:|"]
    for kind, name in itertools.product(("", *FURTHER), EXPERIMENTS):
        folder = records.with_name(f"{records.name}-{kind}") if kind else records
        if not (folder / name / "spec.yaml").exists():
            continue
        record = summarise(name, folder)
        found[folder / name / "README.md"] = experiment_to_markdown(record)
        rows = counted(Records(list(RecordFolder(folder / name).read().values())))
        if name == "readings":
            readings = record["tables"]
        suffix = f" ({FURTHER[kind]}.)" if kind else ""
        name = f"{name}-{kind}" if kind else name
        masked[name] = rows
        findings += [
            one | {"experiment": name, "claim": one["claim"] + suffix}
            for one in record["findings"]
            if one["id"] and not (suffix and (one["verdict"] == "not measured" or "of 1 comparisons" in one["ours"]))
        ]
        found[docs / "experiments" / f"{name}.html"] = experiment_to_html(record)
        cells = record["cells"]
        done = f"{cells['measured']} of {cells['asked']}"
        link = f"[{name}](experiments/{name}.html)"
        what = f"The same with {FURTHER[kind].partition(': ')[2]}." if kind else record["what"]
        lines.append(_row(link, what, record["source"], done))
    counts = _counts(findings)
    for path, mark, table in (
        (docs / "experiments.md", "pages", lines),
        (docs / "claims.md", "facts", _facts(masked)),
        (docs / "claims.md", "readings", _readings(readings)),
        (docs / "claims.md", "claims", _claims(findings, masked)),
        (docs.parent / "README.md", "claims", counts),
    ):
        text = found.get(path) or path.read_text(encoding="utf-8")
        block = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- end {mark} -->)", re.DOTALL)
        filled = "\n".join(table)
        found[path] = block.sub(lambda m, filled=filled: f"{m[1]}\n{filled}\n\n{m[2]}", text)  # type: ignore[misc]
    return found


def _paper(finding: dict[str, str]) -> str:
    return finding["source"].partition(",")[0]


def _reading(finding: dict[str, str]) -> str:
    """Return the paper, and the reading of it or the concept that the finding judges."""
    return ", ".join([_paper(finding), *re.findall(r"\((?:Reading|Concept|Encoder): (.*?)\.\)", finding["claim"])])


def _counts(findings: list[dict[str, str]]) -> list[str]:
    """Return how many claims have each verdict, by paper and reading; a reading with a second concept has no row."""
    lines = [_row("paper", *reversed(VERDICTS[:-1]), VERDICTS[-1]), _row(":--", *["--:"] * len(VERDICTS))]
    for name in dict.fromkeys(name for name in map(_reading, findings) if name.count(", ") < 2):
        of = [one["verdict"] for one in findings if _reading(one) == name]
        numbers = (of.count(verdict) for verdict in (*reversed(VERDICTS[:-1]), VERDICTS[-1]))
        lines.append(_row(name, *map(str, numbers)))
    return lines


def _short(counts: str) -> str:
    """Return "holds in 3 of 9 comparisons, contradicted in 2, no difference in 4" as "3/9, 2 against"."""
    text = re.sub(r"holds in (\d+) of (\d+) comparisons", r"\1/\2", counts.removesuffix(" of its tables"))
    text = re.sub(r", (no difference|undecided) in \d+", "", re.sub(r"contradicted in (\d+)", r"\1 against", text))
    return text.replace("; in development it ", "; development: ")


def _claims(findings: list[dict[str, str]], masked: dict[str, Records]) -> list[str]:
    """Return a table for each paper: each claim, its place, our verdicts with their comparisons, and the paper's own.

    Further readings of a claim, and its repetition with another concept or encoder, stand in the same row if
    they were measured. SPARSE's rows have the masks that were judged.
    """
    lines = []
    for paper in PAPERS:
        mask = paper == "SPARSE"
        heads = ["claim", "where", "here", "seeds", *(["mask, effective dimensions"] if mask else []), "in its tables"]
        lines += [f"## {paper}", "", _row(*heads), _row(*[":--"] * len(heads))]
        rows: dict[str, list[dict[str, str]]] = {}
        for one in (one for one in findings if _paper(one) == paper):
            rows.setdefault(re.sub(r" \((Reading|Concept|Encoder): .*", "", one["claim"]), []).append(one)
        for claim, of in rows.items():
            of = [one for one in of if one["verdict"] != "not measured"] or of[:1]
            where = re.split(", (?:section|appendix)", of[0]["source"].partition(", ")[2])[0]
            seeds = [str(one["seeds"] or "–") for one in of]
            cells = [claim, where, "<br>".join(map(_verdict, of)), _each(seeds), _short(of[0]["published"])]
            if mask:
                cells.insert(4, _each([_masks(masked[o["experiment"]]) if _has_mask(o["id"]) else "–" for o in of]))
            lines.append(_row(*cells))
        lines.append("")
    return lines[:-1]


def _each(cells: Sequence[str]) -> str:
    """Return a line for each verdict, or one if they are the same."""
    return "<br>".join(cells if len(set(cells)) > 1 else cells[:1])


def _row(*cells: str) -> str:
    """Return a row of a Markdown table."""
    return f"|{'|'.join(cells)}|"


def _has_mask(claim: str) -> bool:
    """Return whether the figures of a claim are those of SPARSE's mask."""
    one = next(each for each in claims() if each.id == claim)
    return one.experiment in ("lambda", "concept-groups") or "'sparse'" in repr(one.compare)


def _published_masks(rows: Records) -> list[dict[str, Any]]:
    """Return the records of masks with the published training."""
    own = [row for row in rows if row["cell"].get("method") == "sparse" or row["cell"].get("recipe") == "published"]
    found = [(row["found"].get("protector") or {}).get("mask") for row in own]
    return [mask for mask in found if mask]


def _masks(rows: Records) -> str:
    """Return whether the masks of an experiment are trained, and their effective dimensions."""
    if closed := [
        one["mask"] for row in rows.where(method="mean-difference") for one in row["found"]["words"].values()
    ]:
        sizes = [sum(mask) ** 2 / sum(value**2 for value in mask) for mask in closed]
        return f"closed form, {_range(sizes, 0)}/{len(closed[0])}"
    parts = []
    masks = _published_masks(rows)
    for n in sorted({mask["dimension"] for mask in masks}, reverse=True):
        own = [mask for mask in masks if mask["dimension"] == n]
        kind = "trained" if min(mask["sd"] for mask in own) >= TRAINED else "untrained"
        parts.append(f"{kind}, {_range([mask['effective_dimensions'] for mask in own], 1)}/{n}")
    return "; ".join(parts) or "–"


def _range(values: Sequence[float], digits: int) -> str:
    low, high = (f"{one:.{digits}f}" for one in (min(values), max(values)))
    return low if low == high else f"{low}–{high}"


def _facts(masked: dict[str, Records]) -> list[str]:
    """Return the facts that explain SPARSE's verdicts, each with its figure and what draws it."""
    page = "this page"
    lines = [_row("fact", "figure", "drawn by"), _row(":--", ":--", ":--")]
    masks = [mask for rows in masked.values() for mask in _published_masks(rows) if mask["dimension"] == 384]
    # One mask serves every scale, and every experiment with the same texts and seed.
    masks = list({(m["mean"], m["sd"], m["effective_dimensions"]): m for m in masks if m["sd"] >= TRAINED}.values())
    if masks:
        spread = _range([100 * mask["sd"] / mask["mean"] for mask in masks], 1)
        sizes = _range([mask["effective_dimensions"] for mask in masks], 1)
        lines += [
            _row("standard deviation of a trained mask, as a share of its mean", f"{spread} %", page),
            _row(f"effective dimensions of these {len(masks)} masks", f"{sizes} of 384", page),
        ]
    if (
        steps := masked.get("readings", Records([]))
        .where(reading="paper-steps")
        .figures("protector", "effective_dimensions")
    ):
        fact = "the same after the paper's 15,700 gradient steps"
        lines.append(_row(fact, f"{_range(steps, 1)} of 384", page))
    own, axis = masked.get("tradeoff", Records([])).where(problem="sts12"), (5, 10, 20, 30, 40)
    if len(own):
        literal = [
            value
            for e, method in itertools.product(axis, ("laplace", "sparse"))
            for value in own.where(method=method, scale=f"literal {e}").figures("utility", "relative")
        ]
        fact = "utility kept at the printed ε (STS12), Laplace and SPARSE"
        lines.append(_row(fact, f"{_range([100 * one for one in literal], 1)} %", "`tradeoff`"))
        ours = [own.where(method="laplace", scale=f"effective {e}").number("utility", "relative") for e in axis]
        fact = f"utility kept by Laplace noise of norm {EFFECTIVE_NORM}/ε, ε = 5 to 40, and printed"
        figures = "/".join(f"{one.value:.2f}" for one in ours if one)
        lines.append(_row(fact, f"{figures} and {'/'.join(_printed_utility(axis))}", page))
    for figure in ("leakage", "confidence"):
        beyond, cells = _beyond_deviation(figure)
        lines.append(_row(f"Table 1: {figure} lower by more than its printed deviation", f"{beyond} of {cells}", page))
    cell = published("sparse-table-10").find(**{"dataset": "sts12", "lambda": 0.0001, "epsilon": 40})
    clean = published("sparse-table-1").find(dataset="sts12", epsilon=math.inf)
    assert cell is not None
    assert clean is not None
    text = " and ".join(f"{figure} {cell[figure]} against {clean[figure]} %" for figure in ("leakage", "utility"))
    fact = "impossible cell (whoever attacks clean vectors can add the noise): Table 10, λ = 0.0001, ε = 40"
    lines.append(_row(f"{fact}, against no protection", text, page))
    ten = published("sparse-table-10")
    weights = sorted({row["lambda"] for row in ten.rows}, reverse=True)
    kept = [ten.find(**{"dataset": "sts12", "lambda": weight, "epsilon": 40}) for weight in weights]
    shares = "/".join(f"{row['utility'] / clean['utility']:.2f}" for row in kept if row)
    fact = f"Table 10: share of clean utility at ε = 40, λ = {'/'.join(f'{weight:g}' for weight in weights)}"
    return [*lines, _row(fact, shares, page)]


def _printed_utility(axis: Sequence[int]) -> list[str]:
    """Return the share of utility that the paper's Laplace noise keeps on STS12 at each ε."""
    table = published("sparse-table-1")
    clean = table.find(dataset="sts12", epsilon=math.inf)
    rows = [table.find(dataset="sts12", epsilon=e, method="laplace") for e in axis]
    return [f"{row['utility'] / clean['utility']:.2f}" for row in rows if row and clean]


def _beyond_deviation(figure: str) -> tuple[int, int]:
    """Return in how many comparisons of Table 1 SPARSE's figure is lower by more than the root of both variances."""
    table, found = published("sparse-table-1"), []
    for row in table.rows:
        if row["method"] not in ("laplace", "purkayastha"):
            continue
        own = table.find(dataset=row["dataset"], epsilon=row["epsilon"], method="sparse")
        assert own is not None
        error = math.hypot(row[f"{figure}_sd"], own[f"{figure}_sd"])
        found.append(row[figure] - own[figure] > error)
    return sum(found), len(found)


def _readings(tables: list[dict[str, Any]]) -> list[str]:
    """Return a line for each reading of SPARSE: differences from Laplace noise at equal ε and at equal utility."""
    if not tables:
        return ["Not measured yet."]
    named = [{row[0]: dict(zip(_heads(one), row, strict=True)) for row in one["rows"]} for one in tables]
    at = {one["title"].rpartition(", ")[2]: rows for one, rows in zip(tables, named, strict=True)}
    equal = next(rows for scale, rows in at.items() if scale.startswith("effective"))
    utility = next(rows for scale, rows in at.items() if scale.startswith("utility"))
    heads = ("reading", "effective dimensions", "seeds", "utility", "leakage", "at equal utility", "beside random")
    lines = [_row(*heads), _row(":--", *["--:"] * (len(heads) - 1))]
    for name, row in equal.items():
        beside = utility.get(name, {})
        size = row["Effective dimensions"]
        lines.append(
            _row(
                name,
                "" if size is None else f"{size['value']:.0f}",
                f"{row['Seeds']['value']:.0f}",
                _gap(row["Utility − Laplace's"]),
                _gap(row["Leakage − Laplace's"]),
                _gap(beside.get("Leakage − Laplace's")) or "unreachable",
                _gap(beside.get("Leakage − random dimensions'")),
            )
        )
    for row in next((list(rows.values()) for title, rows in at.items() if title.startswith("Per-token")), []):
        named_word, chance, size = (
            row[key]["value"] for key in ("Named", "By the most frequent word", heads[1].capitalize())
        )
        text = f"an attacker names the word in {100 * named_word:.0f} % of releases (guessing: {100 * chance:.0f} %)"
        lines.append(_row("a mask for each word", f"{size:.0f}", f"{row['Named']['n']}", text, "", "", ""))
    return lines


def _heads(table: dict[str, Any]) -> list[str]:
    return [column["name"] for column in table["columns"]]


def _gap(number: dict[str, Any] | None) -> str:
    if number is None:
        return ""
    half = (number["high"] - number["low"]) / 2
    value = f"{number['value']:+.1f}".replace("-", "−").replace("−0.0", "0.0").replace("+0.0", "0.0")
    return value + (f"±{half:.1f}" if half else "")


def _verdict(finding: dict[str, str]) -> str:
    """Return a verdict that links to its experiment, the reading that it judges, and our comparisons."""
    reading = _reading(finding).partition(", ")[2].removeprefix("v ").removeprefix("the embedding ").removeprefix("as ")
    link = f"[**{finding['verdict']}**](experiments/{finding['experiment']}.html)"
    return f"{reading}{': ' if reading else ''}{link}, {_short(finding['ours'])}"


def main() -> int:
    """Write the pages, or say which are stale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit 1 if a page is stale")
    options = parser.parse_args()
    stale = 0
    for path, text in pages().items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        print(f"{path.relative_to(ROOT)}: {'differs from the records' if options.check else 'written'}")
        if not options.check:
            write_text(path, text)
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
