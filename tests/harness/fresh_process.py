"""Tests that fork run in a process of their own.

The process that runs the suite has threads of databases, gRPC and OpenMP by then; whichever lock one of them holds at
the moment of a fork is locked for ever in the child.
"""

from __future__ import annotations

import importlib
import multiprocessing
from collections.abc import Callable
from functools import wraps
from typing import Any

__all__ = ["in_fresh_process"]

_SECONDS = 180


def in_fresh_process(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test of a module in a new interpreter; its arguments travel there by pickle."""

    @wraps(test)
    def outside(**given: Any) -> None:
        process = multiprocessing.get_context("spawn").Process(
            target=_inside, args=(test.__module__, test.__name__, given)
        )
        process.start()
        process.join(_SECONDS)
        hung = process.exitcode is None
        if hung:
            process.kill()
            process.join()
        assert not hung, f"{test.__name__} was not done after {_SECONDS} seconds"
        assert process.exitcode == 0, f"{test.__name__} failed in its process; see its stderr"

    return outside


def _inside(module: str, name: str, given: dict[str, Any]) -> None:
    getattr(importlib.import_module(module), name).__wrapped__(**given)
