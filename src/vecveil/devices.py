"""Which device networks run on, and smaller batches where its memory does not suffice."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from vecveil.errors import InvalidInputError, MissingDependencyError, message

__all__ = ["Batches", "DeviceMemoryWarning", "import_torch", "resolve_device"]

T = TypeVar("T")


class DeviceMemoryWarning(UserWarning):
    """A device's memory did not suffice; the work goes on with smaller batches. Results differ a little then."""


def import_torch(feature: str = "Learning", extra: str = "attacks") -> Any:
    """Return torch, or raise the error that says what needs it and which extra installs it."""
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError(feature, "torch", extra) from error
    return torch


def resolve_device(device: str, *, owner: str) -> str:
    """Return ``device``; for ``"auto"`` CUDA where there is one, else the CPU.

    Raises:
        InvalidInputError: torch does not know the device, or this machine has none of the kind.
    """
    torch = import_torch()
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError:
        kind = ""
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if not there.get(kind, False):
        raise InvalidInputError(
            message(owner, "device", "'auto', 'cpu', or a device that this machine has",
                    repr(str(device))[:40])
        )  # fmt: skip
    return device


class Batches:
    """How many rows are put on the device at once: halved, with a warning, when its memory runs out.

    Attributes:
        rows: Rows that a piece of work may have at most, so far.
    """

    def __init__(self, rows: int) -> None:
        """Start with pieces of at most ``rows`` rows."""
        self.rows = rows

    def run(
        self, total: int, work: Callable[[int, int], T], *, undo: Callable[[], None] | None = None
    ) -> list[T]:
        """Return ``work(start, stop)`` for consecutive pieces of ``total`` rows.

        When the device runs out of memory the pieces are halved and everything starts again.

        Args:
            undo: called before starting again (to drop gradients that were added up, for example).

        Raises:
            torch.OutOfMemoryError: a single row does not fit.
        """
        torch = import_torch()
        while True:
            pieces = [(i, min(i + self.rows, total)) for i in range(0, total, self.rows)]
            try:
                return [work(start, stop) for start, stop in pieces]
            except torch.OutOfMemoryError:
                if min(self.rows, total) <= 1:
                    raise
            self.rows = min(self.rows, total) // 2
            if undo is not None:
                undo()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            warnings.warn(
                f"The device's memory did not suffice: going on with {self.rows} rows at once.",
                DeviceMemoryWarning,
                stacklevel=2,
            )
