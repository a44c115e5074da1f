"""``vecveil methods``: the methods that `vecveil fit --method` takes."""

from __future__ import annotations

import click

from vecveil.cli import options as shared

__all__ = ["command"]

EXAMPLE = """\b
Example:
  vecveil methods
"""


@click.command("methods", epilog=EXAMPLE, short_help="List the methods and their options.")
@shared.json_option
def command(as_json: bool) -> None:
    """List the methods, what each does, and the options that --option takes for it."""
    from vecveil.cli.printing import data, data_json
    from vecveil.protector import METHODS

    if as_json:
        fields = ("name", "summary", "options")
        listed = [
            {field: getattr(method, field) for field in fields} for method in METHODS.values()
        ]
        data_json({"methods": listed})
        return
    for name, method in METHODS.items():
        data(f"{name:<12}{method.summary}")
        if method.options:
            data(f"{'':<12}options: {', '.join(method.options)}")
