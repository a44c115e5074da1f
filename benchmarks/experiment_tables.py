"""The documents' tables of experiments, drawn from the records in ``results/experiments/NAME``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

__all__ = ["experiment_table"]

sys.path.insert(0, str(Path(__file__).parents[1]))  # `research` is not installed
MISSING = "not measured"


@cache
def _summary(name: str, folder: Path):  # type: ignore[no-untyped-def]
    """Return the summary of an experiment, or None if it was not run."""
    from research import summarise
    from research.results import read_experiment

    if not (folder / "experiments" / name / "spec.yaml").exists():
        return None
    return read_experiment(summarise(name, folder / "experiments"), owner="tables")


def experiment_table(name: str, title: str) -> Callable[[Path], str]:
    """Return the renderer of one table; a column in which the paper has figures is followed by one with them."""

    def render(folder: Path) -> str:
        from research.report import published_columns, table_cells

        summary = _summary(name, folder)
        own = [] if summary is None else [one for one in summary.tables if one.title == title]
        if not own:
            return _markdown([title], [[MISSING]], 1)
        cells = table_cells(own[0])
        # The cell of each column; a column with the paper's numbers has none, and its gaps are not missing figures.
        published = published_columns(own[0])
        sources = [j for i in range(len(own[0].columns)) for j in ([i, None] if i in published else [i])]
        rows = [
            [
                MISSING if source is not None and row[source] is None else text or "–"
                for source, text in zip(sources, texts, strict=True)
            ]
            for texts, row in zip(cells.rows, own[0].rows, strict=True)
        ]
        return _markdown(cells.heads, rows, len(cells.words))

    return render


def _markdown(heads: list[str], rows: list[list[str]], words: int) -> str:
    """Return a table whose first ``words`` columns are set to the left."""
    rule = [":--"] * words + ["--:"] * (len(heads) - words)
    return "\n".join("| " + " | ".join(line) + " |" for line in (heads, rule, *rows))
