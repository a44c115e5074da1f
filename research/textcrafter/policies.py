"""Policies that learn from the PII corpus: trained once for each seed, whatever the set, and kept in a folder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from research.textcrafter.defences import Applied, load

__all__ = ["kept_policy", "only_one"]


@contextlib.contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Wait until no other process of this machine is inside for ``path``.

    The lock is the operating system's, on a file beside it: it goes when the process does, however it ends.
    """
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f"{path.name}.lock"), "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def kept_policy(path: Path, train: Callable[[], Applied]) -> Applied:
    """Return the policy in a file; it is trained, and kept there, if there is none.

    Of several processes that want it at once, one trains and the others wait.
    """
    with only_one(path):
        if not path.exists():
            train().protector.save(path)
    return load(path)
