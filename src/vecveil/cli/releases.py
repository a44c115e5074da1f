"""``vecveil key`` and ``vecveil ledger``: secret keys of keyed noise, and counts of releases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vecveil.cli import options as shared

if TYPE_CHECKING:
    from vecveil.accounting.ledger import LedgerSummary

__all__ = ["key", "ledger"]

KEY_EXAMPLE = """\b
Example:
  vecveil key new noise.key
  vecveil key list noise.key
"""
NEW_KEY_EXAMPLE = """\b
Example:
  vecveil key new noise.key --id 2026-11
"""
LIST_KEYS_EXAMPLE = """\b
Example:
  vecveil key list noise.key
"""


@click.group("key", epilog=KEY_EXAMPLE, short_help="Make and list keys of keyed noise.")
def key() -> None:
    """Make and list the secret keys of `vecveil protect --key-file`.

    Whoever has a key removes the noise from every release made with it. Both commands take --json.
    """


@key.command("new", epilog=NEW_KEY_EXAMPLE)
@click.argument("file", type=shared.FILE)
@click.option("--id", "key_id", help="Name of the key [default: the time].")
@shared.json_option
def new_key(file: Path, key_id: str | None, as_json: bool) -> None:
    """Add a new key to FILE and make it the current one; FILE is made if it is not there.

    Older keys stay in the file, for releases that must be repeatable with them.
    """
    from datetime import UTC, datetime

    from vecveil.cli.output import data_json, note
    from vecveil.randomness import NoiseKeys

    named = key_id or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    keys = NoiseKeys.create(file, named)
    note(
        f"Wrote {file}: the key {keys.current!r} is current. Keep the file secret, and a copy of it safe."
    )
    if as_json:
        data_json({"key_file": str(file), "current": keys.current, "ids": sorted(keys.keys)})


@key.command("list", epilog=LIST_KEYS_EXAMPLE)
@click.argument("file", type=shared.FILE)
@shared.json_option
def list_keys(file: Path, as_json: bool) -> None:
    """Print the ids of the keys in FILE, never the keys."""
    from vecveil.cli.output import data, data_json
    from vecveil.randomness import NoiseKeys

    keys = NoiseKeys.from_file(file)
    if as_json:
        data_json({"current": keys.current, "ids": sorted(keys.keys)})
        return
    for name in sorted(keys.keys):
        data(f"{name}{'  (current)' if name == keys.current else ''}")


LEDGER_EXAMPLE = """\b
Example:
  vecveil ledger show releases.ledger
  vecveil ledger export releases.ledger -o releases.csv
"""
SHOW_EXAMPLE = """\b
Example:
  vecveil ledger show releases.ledger --json
"""
EXPORT_EXAMPLE = """\b
Example:
  vecveil ledger export releases.ledger -o releases.csv
"""


@click.group("ledger", epilog=LEDGER_EXAMPLE, short_help="Show how often items were released.")
def ledger() -> None:
    """Show or export a ledger: how often each item was released, and what that has spent.

    A ledger holds salted hashes in place of ids. Both commands first check the checksum of every
    row; show takes --json.
    """


@ledger.command("show", epilog=SHOW_EXAMPLE)
@click.argument("ledger", type=shared.FILE)
@shared.json_option
def show(ledger: Path, as_json: bool) -> None:
    """Check LEDGER and print it in numbers."""
    from vecveil.accounting.ledger import Ledger
    from vecveil.cli.output import data, data_json

    with Ledger(ledger, create=False) as opened:
        opened.verify()
        summary = opened.summary()
    if as_json:
        data_json(summary.to_record())
    else:
        data("\n".join(_ledger_lines(summary)))


@ledger.command("export", epilog=EXPORT_EXAMPLE)
@click.argument("ledger", type=shared.FILE)
@click.option("-o", "--output", type=shared.FILE, required=True, help="A file that ends in .csv or .jsonl.")
@click.option("--force", is_flag=True, help="Replace the output.")
@shared.json_option
def export(ledger: Path, output: Path, force: bool, as_json: bool) -> None:
    """Check LEDGER and write one line per release, with hashed ids."""
    from vecveil.accounting.ledger import Ledger
    from vecveil.cli.output import check_new_file, data_json, note, writing

    check_new_file(output, force=force, inputs=(ledger,))
    with Ledger(ledger, create=False) as opened:
        opened.verify()
        with writing(output):
            opened.export(output)
        total = opened.total
    if as_json:
        data_json({"output": output.name, "releases": total})
    else:
        note(f"Wrote {total} releases to {output.name}.")


def _ledger_lines(summary: LedgerSummary) -> list[str]:
    from vecveil.cli.output import number

    rows: list[tuple[object, object]] = [
        ("items", summary.items), ("releases", summary.releases), ("most of one item", summary.most_releases),
        ("cap", number(summary.cap)), ("checksums", "right"),
    ]  # fmt: skip
    if summary.histogram:
        rows += [("", ""), ("releases of an item", "items"), *summary.histogram.items()]
    for row in summary.protectors:
        spent = "none" if row.most_epsilon is None else f"{row.most_epsilon:.6g}"
        rows += [
            ("", ""), (f"protector {row.protector}", ""), ("  items", row.items), ("  releases", row.releases),
            ("  most of one item", row.most_releases),
            ("  most ε of one item", f"{spent} (per unit of its own metric)"),
        ]  # fmt: skip
    return [f"{name:<24}{value}".rstrip() for name, value in rows]
