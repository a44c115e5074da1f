"""Tables, figures and findings of an experiment: the dataclasses of its record, under their old module name."""

from vecveil.records.experiment import (
    Cell,
    Column,
    Figure,
    Finding,
    Number,
    Series,
    Summary,
    Table,
    Verdict,
    number,
)

__all__ = [
    "Cell",
    "Column",
    "Figure",
    "Finding",
    "Number",
    "Series",
    "Summary",
    "Table",
    "Verdict",
    "number",
]
