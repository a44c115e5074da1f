"""How many connections there should be, and so whether one was lost while nobody asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

__all__ = ["ConnectionCount"]

_SECONDS = 60.0
"""A server that ends each connection would be checked for each request: silent losses count once in this time."""


class ConnectionCount:
    """Counts losses of connections to one server.

    Connections are kept, so that there are never more than requests at once; one more than that was made because
    another had ended, as it does when a server is replaced.
    """

    def __init__(self) -> None:
        self.losses = 0
        self._made = self._running = self._most = 0
        self._told = -_SECONDS

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request for as long as it runs."""
        self._running += 1
        self._most = max(self._most, self._running)
        try:
            yield
        finally:
            self._running -= 1

    def created(self) -> None:
        """Count a new connection."""
        self._made += 1
        if self._made <= self._most:
            return
        self._made = self._most = self._running
        now = monotonic()
        if now - self._told >= _SECONDS:
            self._told = now
            self.losses += 1
