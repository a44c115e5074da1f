"""Whether somebody else has written to a migration's stores: what is copied could not be told from what is not."""

from __future__ import annotations

from vecveil.databases.state import MigrationState
from vecveil.databases.store import VectorStore
from vecveil.errors import StoreError, message

__all__ = ["check_empty", "check_unchanged", "check_under_way"]

_OWNER = "migrate"


def check_empty(dest: VectorStore) -> None:
    if dest.exists() and (rows := dest.info().count):
        raise StoreError(
            message(_OWNER, "dest", "a store that is not there yet, or empty", f"one with {rows:,} rows",
                    "No state file says that they are of this migration.",
                    "Give another destination, or name the state file of the migration with --state.")
        )  # fmt: skip


def check_under_way(state: MigrationState, dest: VectorStore) -> None:
    """Refuse a destination that lost rows, or has more than this migration can have written."""
    rows = dest.info().count if dest.exists() else 0
    if state.copied:
        return  # what is wrong is said by the verification
    if not state.rows <= rows <= state.rows + state.ahead:
        raise StoreError.of(_OWNER, "dest",
                            f"as the migration left it, with {state.rows:,} rows or up to {state.ahead:,} more",
                            f"{rows:,} rows", "Somebody else has written to it or removed rows.",
                            "Remove the state file and the destination, and start anew.")  # fmt: skip


def check_unchanged(state: MigrationState, source: VectorStore) -> None:
    rows = source.info().count
    if rows != state.total:
        raise StoreError.of(_OWNER, "source", f"left alone while it is copied, with {state.total:,} rows",
                            f"{rows:,} rows",
                            f"{state.rows:,} rows of it are copied, and which ones are missing cannot be known.",
                            "Remove the state file and the destination, and start anew.")  # fmt: skip
