"""A server of uvicorn that tells when it takes requests."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

__all__ = ["AnnouncingServer"]


class AnnouncingServer(uvicorn.Server):
    """Calls ``on_started`` once, when it answers and signals are taken care of."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell."""
        for one in sockets or ():
            # `_claim` took it away; without it what is left of connections of an earlier server is in the way.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        await super().startup(sockets)
        if self.started:
            self._on_started()
