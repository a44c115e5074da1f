"""An experiment as Markdown, CSV and LaTeX: every figure is there, and no text of the record is markup."""

from __future__ import annotations

import csv
import io
import re

import pytest

from harness.sample_experiment import EXPERIMENTS, HOSTILE, sample_experiment
from research.report import COLUMNS, experiment_to_csv, experiment_to_latex, experiment_to_markdown


@pytest.mark.parametrize("variant", EXPERIMENTS)
def test_markdown_tables_are_rectangular_and_headings_rise_by_one(variant: str) -> None:
    text = experiment_to_markdown(sample_experiment(variant))
    assert text.startswith("# Experiment ")
    assert text.count("\n# ") == 0
    for block in text.split("\n\n"):
        lines = block.splitlines()
        if lines[0].startswith("| "):
            bars = [len(re.findall(r"(?<!\\)\|", line)) for line in lines]
            assert len(set(bars)) == 1, block
            assert re.fullmatch(r"\|( -{3}:? \|)+", lines[1])


def test_markdown_escapes_what_is_hostile() -> None:
    text = experiment_to_markdown(sample_experiment("hostile"))
    # In a code block and a code span nothing is interpreted.
    outside = re.sub(r"(?s)(`{3,})text\n.*?\n\1", "", text)
    outside = re.sub(r"(?<![`\\])(`+)(?!`).*?(?<!`)\1(?!`)", "", outside)
    assert "<script" not in outside.replace("\\<", "")
    assert not re.search(r"(?<!\\)<(?!br>)", outside)


def test_csv_holds_each_cell_as_it_is_in_the_record() -> None:
    record = sample_experiment()
    rows = list(csv.DictReader(io.StringIO(experiment_to_csv(record), newline="")))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == sum(len(t["rows"]) * len(t["columns"]) for t in record["tables"])
    found = iter(rows)
    for table in record["tables"]:
        for i, line in enumerate(table["rows"], start=1):
            for column, cell in zip(table["columns"], line, strict=True):
                row = next(found)
                assert (row["table"], row["row"]) == (table["title"], str(i))
                assert row["column"] == column["name"]
                if isinstance(cell, dict):
                    for key in ("value", "low", "high", "sd", "n", "published"):
                        assert row[key] == ("" if cell[key] is None else repr(cell[key]))
                    assert row["text"] == ""
                else:
                    assert row["text"] == {None: "", "=laplace": "'=laplace"}.get(cell, cell)
                    assert not any(row[key] for key in COLUMNS[3:-1])


@pytest.mark.parametrize("variant", EXPERIMENTS)
def test_latex_is_balanced_and_only_our_commands_are_in_it(variant: str) -> None:
    record = sample_experiment(variant)
    text = experiment_to_latex(record)
    assert text.count("\\begin{table}") == text.count("\\end{table}") == len(record["tables"])
    assert text.count("\\begin{tabular}") == text.count("\\end{tabular}") == len(record["tables"])
    first, _, body = text.partition("\n")
    assert first.startswith("% ")
    plain = re.sub(r"\\[{}$&#%_]", "", body)  # escaped characters
    depth = 0
    for letter in plain:
        depth += (letter == "{") - (letter == "}")
        assert depth >= 0
    assert depth == 0
    assert plain.count("$") % 2 == 0
    assert not set(plain) & set('#%_^~<>"|`') - {"~"}
    commands = set(re.findall(r"\\([A-Za-z]+)", plain))
    assert commands <= {
        "begin",
        "end",
        "centering",
        "caption",
        "label",
        "toprule",
        "midrule",
        "bottomrule",
        "par",
        "smallskip",
        "footnotesize",
        "pm",
        "varepsilon",
        "mu",
        "textbackslash",
        "textless",
        "textgreater",
        "textquotedbl",
        "textbar",
        "textasciigrave",
        "textquotesingle",
    }
    for table in re.findall(r"\\midrule\n(.*?)\\bottomrule", plain, re.S):
        ends = [line for line in table.splitlines() if line]
        assert all(line.endswith("\\\\") for line in ends)
    assert HOSTILE not in body


def test_latex_rows_have_as_many_cells_as_the_head_and_begin_no_option() -> None:
    record = sample_experiment()
    record["tables"][1]["rows"][0][0] = "[2cm] * x--y"
    text = experiment_to_latex(record)
    for letters, table in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\bottomrule", text, re.S):
        rows = [line for line in table.splitlines() if line.endswith("\\\\")]
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(letters) - 1}
    assert "{[}2cm{]} {*} x-{}-y & 39.8" in text
    assert r"30.0 $\pm$ 0.6 & 22.3 & 0.000 {[}0.880, 0.920{]} \\" in text
    assert r"sparse \& co & 1,048 \\" in text
    assert r"\label{tab:tradeoff-1}" in text
