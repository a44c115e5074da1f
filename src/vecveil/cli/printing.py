"""What goes to stdout (data) and to stderr (everything else)."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from vecveil.accounting import Guarantee

__all__ = ["as_typed", "data", "data_json", "note", "number", "say_keyed", "share", "warn"]


def as_typed(shown: Mapping[str, str] | None = None) -> str:
    """Return the command line of this run, for the record of a result; of paths the last name alone.

    A record is handed on, and folders tell of users and projects.

    Args:
        shown: what stands for an argument that must not be repeated, such as a location with a password.
    """
    typed = click.get_current_context().find_root().obj or ()
    shown = shown or {}
    return shlex.join(["vecveil", *(shown.get(one) or _without_folders(one) for one in typed)])


def _without_folders(argument: str) -> str:
    option = re.match(r"--?[A-Za-z][\w-]*=|-[A-Za-z](?=[^-\w])", argument)
    lead = option.group() if option else ""
    *_, name = re.split(r"[/\\]", argument.removeprefix(lead).rstrip("/\\"))
    return lead + name


def data(text: str) -> None:
    """Write text that was asked for to stdout."""
    click.echo(text.rstrip("\n"))


def data_json(record: Any) -> None:
    """Write one JSON document to stdout."""
    click.echo(json.dumps(record, indent=1, allow_nan=False))


def note(text: str) -> None:
    """Tell the user something on stderr."""
    click.echo(text, err=True)


def warn(text: str) -> None:
    """Warn the user in one line on stderr."""
    note(f"vecveil: warning: {text}")


def say_keyed(guarantee: Guarantee) -> None:
    """Tell what keyed noise changes in what is promised."""
    repeated = guarantee.with_keyed_noise()
    for sentence in (
        *repeated.promised[len(guarantee.promised) :],
        *repeated.not_promised[len(guarantee.not_promised) :],
        *repeated.conditional_on[len(guarantee.conditional_on) :],
    ):
        note(f"Keyed noise: {sentence}")


def share(value: float | None) -> str:
    """Return a share as per cent."""
    return "not measured" if value is None else f"{100 * value:.1f} %"


def number(value: Any) -> str:
    """Return a parameter's value as a person reads it."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:.4g}" if isinstance(value, float) else str(value)
