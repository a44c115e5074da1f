"""``vecveil key``: secret keys of keyed noise."""

from __future__ import annotations

from pathlib import Path

import click

from vecveil.cli import options as shared

__all__ = ["command"]

EXAMPLE = """\b
Example:
  vecveil key new noise.key
  vecveil key list noise.key
"""
NEW_EXAMPLE = """\b
Example:
  vecveil key new noise.key --id 2026-11
"""
LIST_EXAMPLE = """\b
Example:
  vecveil key list noise.key
"""


@click.group("key", epilog=EXAMPLE, short_help="Make and list keys of keyed noise.")
def command() -> None:
    """Make and list the secret keys of `vecveil protect --key-file`.

    Whoever has a key removes the noise from every release made with it. Both commands take --json.
    """


@command.command("new", epilog=NEW_EXAMPLE)
@click.argument("file", type=shared.FILE)
@click.option("--id", "key_id", help="Name of the key [default: the time].")
@shared.json_option
def new(file: Path, key_id: str | None, as_json: bool) -> None:
    """Add a new key to FILE and make it the current one; FILE is made if it is not there.

    Older keys stay in the file, for releases that must be repeatable with them.
    """
    from datetime import UTC, datetime

    from vecveil.cli.printing import data_json, note
    from vecveil.randomness import NoiseKeys

    named = key_id or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    keys = NoiseKeys.create(file, named)
    note(
        f"Wrote {file}: the key {keys.current!r} is current. Keep the file secret, and a copy of it safe."
    )
    if as_json:
        data_json({"key_file": str(file), "current": keys.current, "ids": sorted(keys.keys)})


@command.command("list", epilog=LIST_EXAMPLE)
@click.argument("file", type=shared.FILE)
@shared.json_option
def listed(file: Path, as_json: bool) -> None:
    """Print the ids of the keys in FILE, never the keys."""
    from vecveil.cli.printing import data, data_json
    from vecveil.randomness import NoiseKeys

    keys = NoiseKeys.from_file(file)
    if as_json:
        data_json({"current": keys.current, "ids": sorted(keys.keys)})
        return
    for name in sorted(keys.keys):
        data(f"{name}{'  (current)' if name == keys.current else ''}")
