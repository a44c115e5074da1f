"""The reference page of the command line, ``docs/cli.md``: every command with its options, types, defaults and help.

    python benchmarks/command_line_page.py [--check]

The page is drawn from the commands themselves. ``--check`` writes nothing and exits 1 if the page is out of date.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import click

from vecveil.cli.commands import COMMANDS, vecveil
from vecveil.io import write_text

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
INTRODUCTION = """# Command line

`vecveil COMMAND --help` prints the same. Data goes to stdout, everything else to stderr. Exit codes: 0 done, 1 failed,
2 misused, 130 stopped by Ctrl-C, 143 stopped by a request to terminate, 141 when nobody reads stdout any more.

This page is written by `python benchmarks/command_line_page.py`.
"""


def page() -> str:
    """Return the page as it should be."""
    context = click.Context(vecveil, info_name="vecveil", **vecveil.context_settings)
    listed = ["| command | what it does |", "| :-- | :-- |"]
    listed += [f"| [`{name}`](#vecveil-{name}) | {_cell(short)} |" for name, (_, _, short) in COMMANDS.items()]
    sections = [INTRODUCTION, "\n".join(listed) + "\n"]
    for name in COMMANDS:
        command = vecveil.get_command(context, name)
        assert command is not None
        sections += _sections(command, click.Context(command, context, info_name=name), "##")
    return "\n".join(sections)


def _sections(command: click.Command, context: click.Context, heading: str) -> list[str]:
    """Return the sections of a command and of the commands below it."""
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines = [f"{heading} {context.command_path}", "", "```text", usage, "```", "", *_prose(command.help)]
    records = [each.get_help_record(context) for each in command.params if isinstance(each, click.Option)]
    if records:
        lines += ["| option | meaning |", "| :-- | :-- |"]
        shown = [(option.replace("|", "\\|"), _cell(text)) for option, text in filter(None, records)]
        lines += [*(f"| `{option}` | {text} |" for option, text in shown), ""]
    lines += _prose(command.epilog)
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return ["\n".join(lines)] + [
        section
        for each in below
        for section in _sections(each, click.Context(each, context, info_name=each.name), heading + "#")
    ]


def _prose(text: str | None) -> list[str]:
    """Return paragraphs; one that begins with ``\\b``, where click keeps the lines, becomes a block of code."""
    lines: list[str] = []
    for paragraph in (text or "").strip().split("\n\n"):
        if paragraph.startswith("\b"):
            first, *others = paragraph.removeprefix("\b").strip("\n").split("\n")
            lines += [first, "", "```text", *(line.removeprefix("  ") for line in others), "```", ""]
        elif paragraph:
            lines += [_cell(paragraph), ""]
    return lines


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit 1 if the page is out of date")
    if parser.parse_args().check:
        raise SystemExit(0 if PAGE.read_text(encoding="utf-8") == page() else f"{PAGE.name}: out of date")
    write_text(PAGE, page())
