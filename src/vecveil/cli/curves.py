"""``vecveil curves``: how the policy of a protector learnt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from vecveil.cli import options as shared
from vecveil.cli.output import data, data_json, note, report_files, writing
from vecveil.errors import DataFileError
from vecveil.io import write_text
from vecveil.protector import load
from vecveil.records import read_training
from vecveil.report import training_csv, training_lines, training_page


@click.command("curves", epilog="\b\nExample:\n  vecveil curves pii.vecveil --html curves.html\n")
@click.argument("protector", type=shared.FILE)
@click.option("--html", "html_file", type=shared.FILE, help="Draw the curves in this HTML file.")
@click.option("--csv", "csv_file", type=shared.FILE, help="Write one row per epoch to this file.")
@shared.json_option
def command(protector: Path, html_file: Path | None, csv_file: Path | None, as_json: bool) -> None:
    """Print the learning curves that the fit of PROTECTOR has kept.

    Reward, p(PII), drift and the rest after each epoch. Only a protector whose perturbation was trained
    (method textcrafter) has them.
    """
    files = report_files({"--html": html_file, "--csv": csv_file}, inputs=(protector,))
    record = _training(protector)
    lines = training_lines(record)
    for option, path in files.items():
        text = training_page(record) if option == "--html" else training_csv(record)
        with writing(path):
            write_text(path, text)
    if as_json:
        data_json(record)
    else:
        data("\n".join(lines))
    for path in files.values():
        note(f"Wrote {path}")


def _training(path: Path) -> dict[str, Any]:
    """Return the record of the training, read once to see that it can be shown."""
    loaded = load(path)
    record: Any = loaded.report.get("training")
    if record is None:
        raise DataFileError.of(path.name, "protector",
                               "one whose perturbation was trained (method textcrafter)",
                               f"one of method {loaded.method}", "Other methods have no learning curves.")  # fmt: skip
    read_training(record, owner=path.name, error=DataFileError)
    try:
        json.dumps(record, allow_nan=False)
    except ValueError:
        raise DataFileError.of(
            path.name, "training", "of finite numbers", "NaN or infinity"
        ) from None
    return dict(record)
