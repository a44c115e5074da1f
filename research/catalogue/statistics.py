"""SPARSE, Table 6: size, length of the texts and number of different concept terms of each data set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from research import tables as draw
from research.bench import Bench
from research.experiment import Cell, Experiment, Records, note
from research.published import published
from research.results import Summary
from research.specification import Spec

TABLE = "sparse-table-6"
FREQUENT = 15  # occurrences from which attacks target a word first
ABOUT = note("datasets")


class Statistics(Experiment[Spec]):
    name = "datasets"
    what = "Number and mean length of the texts of each data set, and its different concept terms."
    source = "SPARSE, Table 6"

    def cells(self, spec: Spec) -> list[Cell]:
        return [Cell.of(problem=name) for name in spec.problems]

    def prepare(self, spec: Spec, bench: Bench, cells: Sequence[Cell]) -> None:
        """Encode no text."""

    def measure(self, spec: Spec, cell: Cell, bench: Bench) -> dict[str, Any]:
        matches = bench.problem(cell["problem"]).matches
        terms = Counter(span.term.casefold() for row in matches.spans for span in row)
        return {
            "sentences": len(matches.texts),
            "mean_words": sum(len(text.split()) for text in matches.texts) / len(matches.texts),
            "with_concept": len(matches.with_concept),
            "entities": len(terms),
            "frequent": sum(count >= FREQUENT for count in terms.values()),
        }

    def summary(self, spec: Spec, records: Records) -> Summary:
        def paper(name: str) -> draw.Drawn:
            about = f"{published(TABLE).columns[name].what}, the paper"
            return draw.column(about, lambda key, rows: draw.known(draw.beside([TABLE], name, dataset=key[0])))

        columns = [
            draw.axis("Data set", 0),
            draw.plain("Texts", "sentences"),
            paper("sentences"),
            draw.plain("Mean words", "mean_words", digits=2),
            draw.plain("Texts with the concept", "with_concept"),
            draw.plain("Different terms", "entities"),
            draw.plain(f"Terms found {FREQUENT} times or more", "frequent"),
            paper("entities"),
        ]
        return Summary([draw.table("Data sets", records.each("problem"), columns)], notes=[ABOUT])
