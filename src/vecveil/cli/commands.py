"""The group of commands; a command's file is imported when the command is asked for."""

from __future__ import annotations

import importlib

import click

__all__ = ["COMMANDS", "vecveil"]

COMMANDS = (
    "demo", "fit", "protect", "verify", "audit", "experiment", "serve", "scan", "migrate", "curves", "key", "ledger",
    "methods", "doctor",
)  # fmt: skip


class LazyGroup(click.Group):
    """Finds command NAME as ``vecveil.cli.NAME:command``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which a user meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return one command, or None."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"vecveil.cli.{cmd_name}").command
        return command


def _version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from vecveil.version import __version__

        click.echo(f"vecveil {__version__}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version.",
)
def vecveil() -> None:
    """Store and send text embeddings without giving away what the text said about a chosen subject.

    Start with: vecveil demo
    """
