"""Output of the commands: data on stdout, notes on stderr, new files, reports.

All output passes here or through `vecveil.cli.commands`: names of fields, columns and ids are foreign data, and must
neither control the terminal nor begin a line.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vecveil.runtime import printable, stage
from vecveil.texts.tables.writing import check_new_file, not_written

if TYPE_CHECKING:
    from vecveil.auditing import AuditResult
    from vecveil.privacy.accounting import Guarantee


def as_typed(shown: Mapping[str, str] | None = None) -> str:
    """Return the command line of this run for a result's record, with only the last name of each path.

    Records are shared, and folders name users and projects. ``shown`` replaces arguments that must not be repeated,
    such as a location with a password.
    """
    typed = click.get_current_context().find_root().obj or ()
    shown = shown or {}
    return shlex.join(["vecveil", *(shown.get(word) or _without_folders(word) for word in typed)])


def _without_folders(argument: str) -> str:
    option = re.match(r"--?[A-Za-z][\w-]*=|-[A-Za-z](?=[^-\w])", argument)
    lead = option.group() if option else ""
    *_, name = re.split(r"[/\\]", argument.removeprefix(lead).rstrip("/\\"))
    return lead + name


def data(line: str) -> None:
    click.echo(printable(line))


def block(text: str, *, err: bool = False) -> None:
    click.echo("\n".join(map(printable, text.rstrip("\n").split("\n"))), err=err)


def data_json(record: Any) -> None:
    """Write one JSON document to stdout, in ASCII."""
    click.echo(json.dumps(record, indent=1, allow_nan=False).replace("\x7f", "\\u007f"))


def note(text: str) -> None:
    click.echo(printable(text), err=True)


def doing(text: str) -> None:
    """Report the current step: immediately on a terminal, else in the progress line of every ten seconds."""
    stage(text)
    if sys.stderr is not None and sys.stderr.isatty():
        note(f"{text} ...")


def warn(text: str) -> None:
    note(f"vecveil: warning: {text}")


def say_keyed(guarantee: Guarantee) -> None:
    """Print how keyed noise changes a guarantee."""
    keyed = guarantee.with_keyed_noise()
    for name in ("promised", "not_promised", "conditional_on"):
        for sentence in getattr(keyed, name)[len(getattr(guarantee, name)) :]:
            note(f"Keyed noise: {sentence}")


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def share(value: float | None) -> str:
    return "not measured" if value is None else f"{100 * value:.1f} %"


def number(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# Files -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def writing(output: Path) -> Iterator[None]:
    """Convert an OSError inside the block to one error about ``output``."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise not_written(output.name, error) from error


def report_files(
    reports: Mapping[str, Path | None], *, inputs: tuple[Path | None, ...] = (), overwrite: bool
) -> dict[str, Path]:
    """Return the file of each option in ``reports`` that names one; ``--json -`` is stdout and names none.

    Two options must not name one file, no page goes to ``-``, and no file may be one of ``inputs``, or exist without
    ``overwrite``.
    """
    files: dict[str, Path] = {}
    for option, path in reports.items():
        if path is None or (str(path) == "-" and option == "--json"):
            continue
        if str(path) == "-":
            raise click.UsageError(f"{option} must name a file: only --json writes to stdout.")
        for other, earlier in files.items():
            if earlier.absolute() == path.absolute():
                raise click.UsageError(f"{other} and {option} name the same file: give each report its own.")
        check_new_file(path, overwrite=overwrite, inputs=inputs)
        files[option] = path
    return files


def write_reports(result: AuditResult, files: Mapping[str, Path]) -> None:
    draw = {
        "--json": result.save,
        "--audit-json": result.save,
        "--html": result.to_html,
        "--md": result.to_markdown,
        "--csv": result.to_csv,
    }
    for option, path in files.items():
        with writing(path):
            draw[option](path)
