"""One progress bar for every long step; silent when it is not wanted or tqdm is not installed."""

from __future__ import annotations

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
    bar: Any = tqdm(
        items, desc=description, total=total, unit=unit, file=sys.stderr, dynamic_ncols=True
    )
    yield from bar
