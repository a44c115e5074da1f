r"""The tables of an experiment as LaTeX floats with ``booktabs`` rules, in which no text of the record is a command."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from vecveil.report.experiment_parts import Cell, Column, Number, Table
from vecveil.report.experiment_record import Experiment, read_experiment
from vecveil.report.experiment_words import (
    NOT_MEASURED,
    head,
    is_missing,
    published_columns,
    said_published,
    spread,
    value,
)
from vecveil.report.markup import clean_text

__all__ = ["experiment_to_latex"]

_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "'": r"\textquotesingle{}", "`": r"\textasciigrave{}",
    # After a row's end these would be taken for its options.
    "[": "{[}", "]": "{]}", "*": "{*}",
    "\u2212": "$-$", "±": r"$\pm$", "×": r"$\times$", "∞": r"$\infty$", "≤": r"$\leq$", "≥": r"$\geq$", "→": r"$\to$",
    "–": "--", "—": "---", "’": "'", "‘": "`", "“": "``", "”": "''", "…": r"\ldots{}", "\u00a0": "~", "′": "$'$",
    "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "δ": r"$\delta$", "ε": r"$\varepsilon$",
    "λ": r"$\lambda$", "μ": r"$\mu$", "ρ": r"$\rho$", "σ": r"$\sigma$", "Σ": r"$\Sigma$", "Φ": r"$\Phi$",
    "Δ": r"$\Delta$",
}  # fmt: skip


def _escaped(words: str) -> str:
    """Return a text on one line with every character that LaTeX would act on escaped."""
    # U+00B5 is the micro sign that keyboards give; the Greek letter stands in the table above.
    line = re.sub(r"[ \t\r\n]+", " ", clean_text(words)).strip().replace("\u00b5", "μ")
    # Between hyphens, as two of them would be set as a dash.
    parts = re.split("(?<=-)(?=-)", line)
    return "{}".join("".join(_SPECIAL.get(letter, letter) for letter in part) for part in parts)


def experiment_to_latex(record: Mapping[str, Any]) -> str:
    """Return each table of an experiment as a ``table`` float; the preamble needs ``\\usepackage{booktabs,textcomp}``.

    A column in which the paper has figures is followed by one with them.

    Args:
        record: the summary of an experiment, schema ``vecveil.experiment/1``.

    Raises:
        InvalidInputError: as `experiment_to_markdown`.
    """
    experiment = read_experiment(record, owner="experiment_to_latex")
    floats = [_float(table, i, experiment) for i, table in enumerate(experiment.tables, start=1)]
    origin = f"% vecveil {experiment.version}, experiment {experiment.name}: {experiment.command}"
    # A comment ends with its line: whatever the name holds must not begin another.
    return "\n\n".join([" ".join(clean_text(origin).split()), *floats]) + "\n"


def _float(table: Table, number: int, experiment: Experiment) -> str:
    beside = published_columns(table)
    letters, heads = "", []
    for i, column in enumerate(table.columns):
        letters += "l" if column.text else "r"
        heads.append(_escaped(head(column)))
        if i in beside:
            letters += "r"
            heads.append("published")
    lines = [" & ".join(heads) + r" \\", r"\midrule"]
    for row in table.rows:
        cells = []
        for i, (held, column) in enumerate(zip(row, table.columns, strict=True)):
            cells.append(_cell(held, column))
            if i in beside:
                cells.append(_escaped(said_published(held, column)))
        lines.append(" & ".join(cells) + r" \\")
    notes = [_escaped(note) for note in table.notes]
    if is_missing(table.rows):
        notes.append(_escaped(NOT_MEASURED))
    caption = ". ".join(
        _escaped(words.strip().rstrip(".")) for words in (table.title, table.caption) if words
    )
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            f"\\caption{{{caption}.}}",
            f"\\label{{tab:{_label(experiment.name)}-{number}}}",
            f"\\begin{{tabular}}{{{letters}}}",
            r"\toprule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            *(f"\\par\\smallskip{{\\footnotesize {note}\\par}}" for note in notes),
            r"\end{table}",
        ]
    )


def _label(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode("ascii")
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-") or "experiment"


def _cell(held: Cell, column: Column) -> str:
    if held is None:
        return "--"
    if isinstance(held, Number):
        return _escaped(f"{value(held, column)} {spread(held)}")
    return _escaped(held)
