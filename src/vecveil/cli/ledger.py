"""``vecveil ledger``: show and export a ledger of releases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vecveil.cli import options as shared

if TYPE_CHECKING:
    from vecveil.accounting.ledger import LedgerSummary

__all__ = ["command"]

EXAMPLE = """\b
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


@click.group("ledger", epilog=EXAMPLE, short_help="Show how often items were released.")
def command() -> None:
    """Show or export a ledger: how often each item was released, and what that has spent.

    A ledger holds salted hashes in place of ids. Both commands first check the checksum of every
    row; show takes --json.
    """


@command.command("show", epilog=SHOW_EXAMPLE)
@click.argument("ledger", type=shared.FILE)
@shared.json_option
def show(ledger: Path, as_json: bool) -> None:
    """Check LEDGER and print it in numbers."""
    from vecveil.accounting.ledger import Ledger
    from vecveil.cli.printing import data, data_json

    with Ledger(ledger, create=False) as opened:
        opened.verify()
        summary = opened.summary()
    if as_json:
        data_json(summary.to_record())
    else:
        data("\n".join(_lines(summary)))


@command.command("export", epilog=EXPORT_EXAMPLE)
@click.argument("ledger", type=shared.FILE)
@click.option(
    "-o", "--output", type=shared.FILE, required=True, help="A file that ends in .csv or .jsonl."
)
@click.option("--force", is_flag=True, help="Replace the output.")
@shared.json_option
def export(ledger: Path, output: Path, force: bool, as_json: bool) -> None:
    """Check LEDGER and write one line per release, with hashed ids."""
    from vecveil.accounting.ledger import Ledger
    from vecveil.cli.outputs import check_new_file, writing
    from vecveil.cli.printing import data_json, note

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


def _lines(summary: LedgerSummary) -> list[str]:
    from vecveil.cli.printing import number

    lines = [
        f"{'items':<24}{summary.items}",
        f"{'releases':<24}{summary.releases}",
        f"{'most of one item':<24}{summary.most_releases}",
        f"{'cap':<24}{number(summary.cap)}",
        f"{'checksums':<24}right",
    ]
    if summary.histogram:
        lines += ["", f"{'releases of an item':<24}items"]
        lines += [f"{count:<24}{items}" for count, items in summary.histogram.items()]
    for row in summary.protectors:
        lines += ["", f"protector {row.protector}"]
        lines += [f"{'  items':<24}{row.items}", f"{'  releases':<24}{row.releases}"]
        lines.append(f"{'  most of one item':<24}{row.most_releases}")
        spent = "none" if row.most_epsilon is None else f"{row.most_epsilon:.6g}"
        lines.append(f"{'  most ε of one item':<24}{spent} (per unit of its own metric)")
    return lines
