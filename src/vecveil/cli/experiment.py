"""``vecveil experiment``: the papers' experiments and ours, run and shown."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from vecveil.cli import options as shared
from vecveil.cli.output import block, data_json, note, writing
from vecveil.cli.output import data as print_data
from vecveil.errors import VecveilError
from vecveil.io import write_text

EXAMPLE = """\b
Example:
  vecveil experiment list
  vecveil experiment run tradeoff --data DIR --out results --quick
  vecveil experiment table tradeoff --out results --html tradeoff.html
"""
RUN_EXAMPLE = """\b
Examples:
  vecveil experiment run tradeoff --data DIR --out results
  vecveil experiment spec tradeoff > mine.yaml
  vecveil experiment run mine.yaml --data DIR --out results --seeds 5
  vecveil experiment run research/specs/gtr --data DIR --out results
  vecveil experiment run all --quick --data DIR --out results
"""
TABLE_EXAMPLE = """\b
Examples:
  vecveil experiment table tradeoff --out results
  vecveil experiment table all --out results --format markdown --to tables
"""
MARKER = 'PROJECT = "vecveil"'
"""The line of ``research/__init__.py`` that distinguishes our folder from others of its name."""
FORMATS = {"markdown": "md", "csv": "csv", "latex": "tex", "json": "json", "html": "html"}


def find_checkout() -> Path | None:
    """Return the checkout of the installed source, else the one around the current folder; None without either."""
    here = Path.cwd()
    for root in (Path(__file__).parents[3], here, *here.parents):
        package = root / "research" / "__init__.py"
        # Importing runs the folder's code, so its text is checked first.
        if package.is_file() and MARKER in package.read_text("utf-8", "replace").splitlines():
            return root
    return None


def research() -> Any:
    """Return the package ``research`` of a checkout; raise `VecveilError` without one: a wheel lacks the package."""
    if (root := find_checkout()) is not None:
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))  # worker processes inherit it
        return importlib.import_module("research")
    raise VecveilError(
        "The experiments are in the folder research/ of vecveil's repository, which pip does not install. "
        "Run this command in a clone of the repository, or in its unpacked source distribution.",
        code="E-NO-RESEARCH",
    )


@click.group("experiment", epilog=EXAMPLE)
def command() -> None:
    """Run the experiments of the papers and our own, and show their results, in a checkout of the repository.

    A stopped run continues where it was: each finished cell is recorded. list, run and table take --json.
    """


@command.command("list", epilog="\b\nExample:\n  vecveil experiment list --json\n")
@shared.json_option
def listed(as_json: bool) -> None:
    """Print name, source and purpose of each experiment."""
    experiments = research().list_experiments()
    if as_json:
        data_json({"experiments": experiments})
        return
    width = max(len(each["name"]) for each in experiments)
    for each in experiments:
        print_data(f"{each['name']:<{width}}  {each['what']} [{each['source']}]")


@command.command("spec", epilog="\b\nExample:\n  vecveil experiment spec tradeoff > mine.yaml\n")
@click.argument("name")
def spec(name: str) -> None:
    """Print the specification (YAML) of experiment NAME, to edit and run."""
    block(research().shipped_spec(name))


@command.command("run", epilog=RUN_EXAMPLE)
@click.argument("name", metavar="NAME|FILE|FOLDER|all")
@shared.file_option("--data", required=True, help="Folder with the data sets.")
@shared.file_option("--out", required=True, help="Folder of the records.")
@click.option("--quick", is_flag=True, help="Coarse run: minutes instead of an hour.")
@shared.count_option("--seeds", help="Seeds, instead of the specification's.")
@shared.count_option("--workers", least=0, help="Processes [default: cores, at most 4].")
@click.option(
    "--resume/--fresh",
    default=True,
    show_default=True,
    help="Continue with the records in --out, or measure everything again.",
)
@shared.file_option(
    "--method",
    "methods",
    multiple=True,
    metavar="FILE",
    help="File of your own method for the experiment benchmark; its code runs. May be repeated.",
)
@shared.json_option
def run(name: str, data: Path, out: Path, workers: int | None, as_json: bool, **options: Any) -> None:
    """Measure what has no record yet: an experiment, a specification in a YAML file or those of a folder, or all.

    Records are in a folder of the experiment's name in --out; `vecveil experiment table` shows them.
    With a folder and with all, an experiment that cannot run (a data set is missing) does not stop the others.
    """
    experiments = research()
    names = list(experiments.EXPERIMENTS) if name == "all" else [name]
    if name not in experiments.EXPERIMENTS and Path(name).is_dir():
        names = sorted(str(path) for path in Path(name).glob("*.yaml"))
        if not names:
            raise click.UsageError(f"The folder {Path(name).name!r} has no specification (*.yaml).")
    processes = min(4, os.cpu_count() or 1) if workers is None else workers
    outcomes: dict[str, Any] = {}
    not_run: list[str] = []
    for experiment in names:
        note(f"experiment {experiment}")
        try:
            outcome = experiments.run(
                experiment, data, out, workers=processes, report=None if sys.stderr.isatty() else note, **options
            )
        except VecveilError as error:
            if names == [name]:
                raise
            note(f"vecveil: {experiment}: not run: {error}")
            not_run.append(experiment)
            continue
        for cell, why in outcome.failed.items():
            note(f"vecveil: {experiment}: cell {cell} was not measured: {why}")
        counts = {key: getattr(outcome, key) for key in ("asked", "kept", "measured")}
        outcomes[outcome.experiment] = {**counts, "failed": dict(outcome.failed)}
        if not as_json:
            print_data(
                f"{outcome.experiment}: {outcome.asked} cells, {outcome.measured} measured, {outcome.kept} kept, "
                f"{len(outcome.failed)} failed"
            )
    if as_json:
        data_json({"experiments": outcomes, "not_run": not_run})
    elif not_run:
        print_data(f"not run: {', '.join(not_run)}")
    if not_run or any(outcome["failed"] for outcome in outcomes.values()):
        raise click.exceptions.Exit(1)


@command.command("table", epilog=TABLE_EXAMPLE)
@click.argument("name", metavar="NAME|FILE|all")
@shared.file_option("--out", required=True, help="Folder of the records.")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    default="markdown",
    show_default=True,
    help="Format of the output.",
)
@shared.file_option("--html", "html_file", help="Also draw tables and figures in this HTML file.")
@shared.file_option("--to", "folder", help="Write NAME.SUFFIX to this folder, print nothing.")
@shared.json_option
def table(name: str, out: Path, form: str, html_file: Path | None, folder: Path | None, as_json: bool) -> None:
    """Show what the last run of an experiment in --out measured, or of all experiments there.

    Python files that its specification names as modules are run.
    """
    experiments = research()
    form = "json" if as_json else form
    names = [name]
    if name == "all":
        names = [each for each in experiments.EXPERIMENTS if (out / each / "spec.yaml").exists()]
    if name == "all" and not names:
        raise click.UsageError(f"No experiment was run in {out.name!r}.")
    if len(names) > 1 and html_file is not None:
        raise click.UsageError("--html is one page: name one experiment, or use --format html --to FOLDER.")
    if Path(name).suffix in (".yaml", ".yml"):
        names = [experiments.load_spec(name)[0].experiment]
    for option, path in (("--html", html_file), ("--to", folder)):
        if path is not None and any(path.resolve().is_relative_to((out / each).resolve()) for each in names):
            raise click.UsageError(f"{option} is inside the records in --out: name another place.")
    if len(names) > 1 and folder is None and form == "json":
        data_json({"experiments": [experiments.summarise(experiment, out) for experiment in names]})
        return
    if len(names) > 1 and folder is None and form != "markdown":
        raise click.UsageError(f"--format {form} writes a file for each: name one experiment, or add --to FOLDER.")
    for experiment in names:
        record = experiments.summarise(experiment, out)
        text = _drawn(record, form)
        if folder is None:
            block(text.replace("<br>", "  \n  "))  # Markdown's line break that a terminal shows; texts have \\< for <
        else:
            path = folder / f"{experiment}.{FORMATS[form]}"
            with writing(path):
                write_text(path, text)
            note(f"Wrote {path}")
        if html_file is not None:
            with writing(html_file):
                write_text(html_file, _drawn(record, "html"))
            note(f"Wrote {html_file}")


def _drawn(record: dict[str, Any], form: str) -> str:
    if form == "json":
        return json.dumps(record, indent=1, allow_nan=False) + "\n"
    research()
    report = importlib.import_module("research.report")
    return str(getattr(report, f"experiment_to_{form}")(record))
