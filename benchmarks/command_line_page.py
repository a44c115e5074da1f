"""The reference page of the command line, ``docs/cli.md``: every command and its options; shared options once.

    python benchmarks/command_line_page.py [--check]

The page is drawn from the commands themselves. ``--check`` writes nothing and exits 1 if the page is out of date.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from pathlib import Path

import click

from vecveil.cli.commands import COMMANDS, vecveil
from vecveil.io import write_text

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
INTRODUCTION = """# Command line

What each command does, and its options; `vecveil COMMAND --help` has the details, examples and ranges. Data goes to
stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 misused, 130 stopped by Ctrl-C, 143 stopped by a
request to terminate, 141 when stdout was closed. Every command but
`experiment spec` takes `--json`, which prints the result on stdout where nothing else is said.

This page is written by `python benchmarks/command_line_page.py`.
"""
GROUPS = {
    "table": ("--text-column", "--format", "--encoding", "--delimiter", "--max-memory"),
    "encoder": ("--encoder", "--encoder-option", "--precision", "--cache"),
    "keyed noise": ("--key-file", "--key-env", "--key-id"),
    "ledger": ("--ledger", "--raise-cap", "--cap"),
    "folder": ("--again", "--force", "--engine", "--part-size"),
    "attacks": ("--tier", "--skip", "--attacks", "--attacker-texts", "--language-model", "--device", "--work"),
    "reports": ("--html", "--md", "--csv", "--show-terms", "--show-reconstructions", "--min-token-count"),
}
"""Shared options that most of their commands take together, by the name of the group."""
_Record = tuple[str, str]
"""An option with its metavariable, and its help."""


def page() -> str:
    """Return the page as it should be."""
    context = click.Context(vecveil, info_name="vecveil", **vecveil.context_settings)
    contexts = [each for name in COMMANDS for each in _contexts(vecveil.get_command(context, name), context)]
    counts = Counter(record for each in contexts for record in _records(each))
    # Of an option with several helps, that of most commands.
    often = {option: text for (option, text), count in sorted(counts.items(), key=lambda one: one[1]) if count > 1}
    shared = sorted(often.items(), key=lambda record: record[0].lstrip("-"))
    lines = [INTRODUCTION, "## Shared options", "", *map(_line, shared), ""]
    lines += [f"*{group}*: {', '.join(f'`{name}`' for name in names)}.\n" for group, names in GROUPS.items()]
    lines += [line for each in contexts for line in _section(each, set(shared))]
    return "\n".join(lines).rstrip("\n") + "\n"


def _contexts(command: click.Command | None, parent: click.Context) -> list[click.Context]:
    """Return the context of a command and those of the commands below it."""
    assert command is not None
    context = click.Context(command, parent, info_name=command.name)
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return [context, *(one for each in below for one in _contexts(each, context))]


def _records(context: click.Context) -> list[_Record]:
    options = [each for each in context.command.params if isinstance(each, click.Option)]
    return [record for each in options if (record := each.get_help_record(context)) is not None]


def _section(context: click.Context, shared: set[_Record]) -> list[str]:
    """Return the section of one command."""
    command, records = context.command, _records(context)
    heading = "#" * len(context.command_path.split())
    group = isinstance(command, click.Group)
    pieces = [] if group else [each for each in command.collect_usage_pieces(context) if each != "[OPTIONS]"]
    usage = " ".join([context.command_path, *pieces])
    summary = _text((command.help or "").strip().split("\n\n")[0])
    lines = [f"{heading} `{usage}`", "", summary, ""]
    own = [_line(record) for record in records if record not in shared]
    lines += [*own, ""] if own else []
    lines += _shared([_name(record[0]) for record in records if record in shared])
    return lines


def _shared(names: list[str]) -> list[str]:
    """Return the line of a command's shared options: groups by their name where it takes the whole group."""
    groups = {group: of for group, of in GROUPS.items() if set(of) <= set(names)}
    grouped = {name for of in groups.values() for name in of}
    words = [*(f"*{group}*" for group in groups), *(f"`{name}`" for name in names if name not in {*grouped, "--json"})]
    return [f"[Shared](#shared-options): {', '.join(words)}.", ""] if words else []


def _name(option: str) -> str:
    """Return the first name of an option, without its metavariable: ``-o`` of ``-o, --out PATH``."""
    return option.split(" ")[0].rstrip(",")


def _line(record: _Record) -> str:
    option = record[0].replace("INTEGER RANGE", "N").replace("FLOAT RANGE", "X")
    without_range = re.sub(r" \[[^] ]*x[<>][^]]*\]|; [^]; ]*x[<>][^]]*(?=\])", "", record[1])
    return f"- `{option}`: {_text(without_range)}"


def _text(text: str) -> str:
    return " ".join(text.split()).replace("*", "\\*")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit 1 if the page is out of date")
    if parser.parse_args().check:
        raise SystemExit(0 if PAGE.read_text(encoding="utf-8") == page() else f"{PAGE.name}: out of date")
    write_text(PAGE, page())
