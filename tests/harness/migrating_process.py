"""Runs a migration between two folders in a process that kills itself after some rows: ``python FILE JSON``."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import vecveil
from harness.folder_store import FolderStore
from vecveil.privacy.protector.policy import ReleasePolicy
from vecveil.stores.migrating import migrate


def main(given: dict[str, object]) -> None:
    """Migrate; with ``kill_at`` the process is gone before that row is written."""
    dest = FolderStore(Path(str(given["dest"])))
    kill_at = given.get("kill_at")

    def die(rows: int) -> None:
        if rows == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    dest.before_row = die
    key = given.get("key")
    policy = ReleasePolicy(
        vecveil.load(str(given["protector"])), key=None if key is None else vecveil.KeyFile.from_file(str(key))
    )
    migrate(
        FolderStore(Path(str(given["source"]))),
        dest,
        policy,
        Path(str(given["state"])),
        names=("source", "dest"),
        batch=int(str(given["batch"])),
        show_progress=False,
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
