"""Limit the memory of decoded data: a table of a few KB may expand to gigabytes."""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from typing import Any

from vecveil.errors import MemoryLimitError
from vecveil.validation import check_count

DEFAULT_LIMIT = 1 << 30
CODE = "E-MEMORY-TABLE"

memory_limit: ContextVar[int | None] = ContextVar("vecveil_max_memory", default=None)
"""Limit of every file that is read without ``max_memory``, in bytes; the option ``--max-memory`` sets it."""


def default_max_memory() -> int:
    """Return `memory_limit`, else the smaller of 1 GiB and a quarter of the machine's memory, in bytes."""
    if (limit := memory_limit.get()) is not None:
        return limit
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return DEFAULT_LIMIT
    return min(DEFAULT_LIMIT, memory // 4)


class MemoryAccount:
    """Sum of the bytes of one file's decoded columns; a limit of None takes `default_max_memory`."""

    def __init__(self, source: str, limit: int | None = None) -> None:
        self.limit = (
            default_max_memory() if limit is None else check_count(limit, owner="read_table", param="max_memory")
        )
        self.held = 0
        self._source = source

    def add(self, *columns: Any) -> None:
        """Count columns that stay in memory (arrays or lists); raise MemoryLimitError beyond the limit."""
        for values in columns:
            arrow_or_numpy = hasattr(values, "nbytes")
            self.held += int(values.nbytes if arrow_or_numpy else sum(map(sys.getsizeof, values)))
        self.check(self.held)

    def check(self, size: int) -> None:
        """Raise MemoryLimitError if ``size`` bytes at once exceed the limit."""
        if size > self.limit:
            raise MemoryLimitError(
                f"{self._source}: `max_memory` is {self.limit >> 20:,} MiB, and the file expands to more. Give fewer "
                "rows, or raise it (--max-memory) if you trust the file.",
                code=CODE,
                param="max_memory",
            )
