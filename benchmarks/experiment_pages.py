"""The pages of every experiment that has records: Markdown beside the records, HTML in the documents.

    python benchmarks/experiment_pages.py [--check]

Reads ``results/experiments/NAME``; writes its ``README.md`` and ``docs/experiments/NAME.html``, and the list
of pages in ``docs/experiments.md``. ``--check`` writes nothing and exits 1 if a page is stale.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # `research` is not installed

from research import summarise
from research.catalogue import EXPERIMENTS
from research.report import experiment_to_html, experiment_to_markdown
from vecveil.io import write_text

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "benchmarks" / "results" / "experiments"
DOCS = ROOT / "docs"
_LIST = re.compile(r"(<!-- pages -->\n).*?(<!-- end pages -->)", re.DOTALL)


def pages(records: Path = RECORDS, docs: Path = DOCS) -> dict[Path, str]:
    """Return every page and what it should hold."""
    found: dict[Path, str] = {}
    lines = ["| experiment | what it measures | after | cells |", "| :-- | :-- | :-- | --: |"]
    for name in EXPERIMENTS:
        if not (records / name / "spec.yaml").exists():
            continue
        record = summarise(name, records)
        found[records / name / "README.md"] = experiment_to_markdown(record)
        found[docs / "experiments" / f"{name}.html"] = experiment_to_html(record)
        cells = record["cells"]
        done = f"{cells['measured']} of {cells['asked']}"
        link = f"[{name}](experiments/{name}.html)"
        lines.append(f"| {link} | {record['what']} | {record['source']} | {done} |")
    index = docs / "experiments.md"
    listed = "\n".join(lines) + "\n"
    found[index] = _LIST.sub(
        lambda m: f"{m[1]}\n{listed}\n{m[2]}", index.read_text(encoding="utf-8")
    )
    return found


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
        print(
            f"{path.relative_to(ROOT)}: {'differs from the records' if options.check else 'written'}"
        )
        if not options.check:
            write_text(path, text)
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
