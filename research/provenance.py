"""Where a figure comes from: the machine and the commit, without a name."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["commit", "machine"]


def machine() -> dict[str, Any]:
    """Return what figures of speed depend on, without a name."""
    import numpy
    import scipy

    return {
        "system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count(),
        "python": platform.python_version(), "numpy": numpy.__version__, "scipy": scipy.__version__,
    }  # fmt: skip


def commit(source: Path = Path(__file__)) -> str | None:
    """Return the commit that the package's source is at, with ``+`` where files differ; None where it is in none.

    An installed package may lie inside a repository that is somebody else's: there git does not know the file.
    """

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=source.parent, capture_output=True, text=True, timeout=10, check=True,
        ).stdout.strip()  # fmt: skip

    try:
        git("ls-files", "--error-unmatch", source.name)
        return git("describe", "--always", "--dirty=+", "--abbrev=10", "--exclude=*") or None
    except (OSError, subprocess.SubprocessError):
        return None
