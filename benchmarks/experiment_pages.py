"""The pages of every experiment that has records: Markdown beside the records, HTML in the documents.

    python benchmarks/experiment_pages.py [--check]

Reads ``results/experiments/NAME``, and ``results/experiments-entities/NAME`` with the papers' concept; writes its
``README.md`` and ``docs/experiments/NAME.html``, the list of pages in ``docs/experiments.md``, what became of the
claims of the papers in ``docs/claims.md``, and the counts in the README. ``--check`` writes nothing and exits 1 if a
page is stale.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # `research` is not installed

from research import summarise
from research.catalogue import EXPERIMENTS
from research.judging import VERDICTS
from research.report import experiment_to_html, experiment_to_markdown
from vecveil.io import write_text

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "benchmarks" / "results" / "experiments"
DOCS = ROOT / "docs"
PAPERS = ("SPARSE", "TextCrafter")
ENTITIES = "spaCy's entities"


def pages(records: Path = RECORDS, docs: Path = DOCS) -> dict[Path, str]:
    """Return every page and what it should hold."""
    found: dict[Path, str] = {}
    findings: list[dict[str, str]] = []
    lines = ["| experiment | what it measures | after | cells |", "| :-- | :-- | :-- | --: |"]
    further = records.with_name(f"{records.name}-entities")
    for folder, name in itertools.product((records, further), EXPERIMENTS):
        if not (folder / name / "spec.yaml").exists():
            continue
        record = summarise(name, folder)
        found[folder / name / "README.md"] = experiment_to_markdown(record)
        suffix = "" if folder == records else f" (Concept: {ENTITIES}.)"
        name = name if folder == records else f"{name}-entities"
        findings += [
            one | {"experiment": name, "claim": one["claim"] + suffix}
            for one in record["findings"]
            if one["id"] and not (suffix and (one["verdict"] == "not measured" or "of 1 comparisons" in one["ours"]))
        ]
        found[docs / "experiments" / f"{name}.html"] = experiment_to_html(record)
        cells = record["cells"]
        done = f"{cells['measured']} of {cells['asked']}"
        link = f"[{name}](experiments/{name}.html)"
        what = record["what"] if folder == records else f"The same with {ENTITIES}."
        lines.append(f"| {link} | {what} | {record['source']} | {done} |")
    counts = _counts(findings)
    for path, mark, table in (
        (docs / "experiments.md", "pages", lines),
        (docs / "claims.md", "claims", _claims(findings)),
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
    return ", ".join([_paper(finding), *re.findall(r"\((?:Reading|Concept): (.*?)\.\)", finding["claim"])])


def _counts(findings: list[dict[str, str]]) -> list[str]:
    """Return how many claims have each verdict, by paper and reading; a reading with a second concept has no row."""
    lines = [
        "| paper | " + " | ".join(reversed(VERDICTS[:-1])) + f" | {VERDICTS[-1]} |",
        "| :-- |" + " --: |" * len(VERDICTS),
    ]
    for name in dict.fromkeys(name for name in map(_reading, findings) if name.count(", ") < 2):
        of = [one["verdict"] for one in findings if _reading(one) == name]
        numbers = (of.count(verdict) for verdict in (*reversed(VERDICTS[:-1]), VERDICTS[-1]))
        lines.append(f"| {name} | " + " | ".join(map(str, numbers)) + " |")
    return lines


def _short(counts: str) -> str:
    """Return "holds in 3 of 9 comparisons, contradicted in 2, no difference in 4" as "3 of 9, 2 against"."""
    text = re.sub(r"holds in (\d+ of \d+) comparisons", r"\1", counts.removesuffix(" of its tables"))
    text = re.sub(r", (no difference|undecided) in \d+", "", re.sub(r"contradicted in (\d+)", r"\1 against", text))
    return re.sub(r"; in development it (.*)", r" (development: \1)", text)


def _claims(findings: list[dict[str, str]]) -> list[str]:
    """Return a table for each paper: each claim, its place, our verdicts with their comparisons, and the paper's own.

    Further readings of a claim, and its repetition with a different concept, stand in the same row.
    """
    lines = []
    for paper in PAPERS:
        lines += [f"## {paper}", "", "| claim | where | here | in its tables |", "| :-- | :-- | :-- | :-- |"]
        rows: dict[str, list[dict[str, str]]] = {}
        for one in (one for one in findings if _paper(one) == paper):
            rows.setdefault(re.sub(r" \((Reading|Concept): .*", "", one["claim"]), []).append(one)
        for claim, of in rows.items():
            where = re.split(", (?:section|appendix)", of[0]["source"].partition(", ")[2])[0]
            lines.append(f"| {claim} | {where} | {'<br>'.join(map(_verdict, of))} | {_short(of[0]['published'])} |")
        lines.append("")
    return lines[:-1]


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
