"""``vecveil audit-log``: verify the log of who did what with a sealed index."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from vecveil.cli import options as shared
from vecveil.cli.output import data, data_json
from vecveil.errors import DataFileError

VERIFY_EXAMPLE = """\b
Example:
  vecveil audit-log verify audit.jsonl.2 audit.jsonl.1 audit.jsonl
"""


@click.group("audit-log")
def audit_log() -> None:
    """Verify the log of who did what with a sealed index."""


@audit_log.command("verify", epilog=VERIFY_EXAMPLE)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=shared.FilePath(exists=True, dir_okay=False))
@click.option("--noted", multiple=True, metavar="DIGEST", help="Last digest of an earlier check.")
@shared.json_option
def verify_command(files: tuple[Path, ...], noted: tuple[str, ...], as_json: bool) -> None:
    """Check that no line of the rotated FILEs, oldest first, was edited, moved, or removed before another one.

    Lines removed at the end, and a file written anew, show only against a digest noted elsewhere: pass --noted.
    """
    from vecveil.index.audit_log import verify

    check = verify(files, noted=noted)
    if as_json:
        data_json(asdict(check))
    else:
        for name, chain in check.chains.items():
            begins = (
                f"continues {chain.begins}, which is not in these files" if chain.begins else "complete at the start"
            )
            data(f"Chain {name}: {chain.records:,} lines, {chain.first_time} to {chain.last_time}; {begins}.")
            data(f"Last digest: {chain.last}")
        if check.unfinished:
            data(f"{check.unfinished:,} lines are not records. A crash or a full disk leaves such lines.")
    places = [f"{file}, line {number}" for file, number in check.broken[:10]]
    if places or check.missing:
        absent = f"{len(check.missing)} noted digests belong to no line." if check.missing else ""
        lines = f"Lines before these were edited, moved or removed: {'; '.join(places)}." if places else ""
        raise DataFileError(f"{lines} {absent}".strip(), code="E-AUDIT-LOG-BROKEN", param="files")
