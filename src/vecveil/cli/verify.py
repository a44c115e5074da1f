"""``vecveil verify``: whether a folder that ``vecveil protect`` wrote holds what its manifest says."""

from __future__ import annotations

import click

from vecveil.cli import options as shared

__all__ = ["command"]

EXAMPLE = """\b
Example:
  vecveil verify protected
"""


@click.command("verify", epilog=EXAMPLE, short_help="Compare a protected folder with its manifest.")
@click.argument("folder", metavar="FOLDER")
@shared.json_option
def command(folder: str, as_json: bool) -> None:
    """Read every file of FOLDER, a path or URL, and compare size and SHA-256 with its manifest.

    A part that is missing, damaged or not of the run is an error. That the rows are protected is not tested: for what
    an attacker reads from them there is `vecveil audit`.
    """
    from vecveil.bulk import verify
    from vecveil.cli.printing import data_json, note

    manifest = verify(folder)
    parts = f"{len(manifest.parts):,} part{'s' * (len(manifest.parts) != 1)}"
    note(f"{folder}: {parts}, {manifest.rows:,} rows, as the manifest says.")
    if as_json:
        data_json(
            {"folder": folder, "parts": len(manifest.parts), "rows": manifest.rows, "ok": True}
        )
