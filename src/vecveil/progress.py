"""One progress bar for every long step; silent when it is not wanted or tqdm is not installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

__all__ = ["progress"]

T = TypeVar("T")


def progress(
    items: Iterable[T],
    description: str,
    *,
    total: int | None = None,
    show: bool | None = None,
    unit: str = "it",
) -> Iterator[T]:
    """Yield from ``items`` while a bar on stderr moves.

    Args:
        show: True or False; None shows the bar on a terminal only.
    """
    if show is None:
        show = sys.stderr.isatty()
    if show:
        try:
            from tqdm import tqdm
        except ImportError:
            show = False
    if not show:
        yield from items
        return
    # A terminal may not say its size (a recording, a service): tqdm would draw nothing there.
    size = {"dynamic_ncols": True} if _has_size() else {"ncols": 80, "nrows": 24}
    bar: Any = tqdm(items, desc=description, total=total, unit=unit, file=sys.stderr, **size)
    yield from bar


def _has_size() -> bool:
    try:
        return min(os.get_terminal_size(sys.stderr.fileno())) > 0
    except (OSError, ValueError):
        return False
