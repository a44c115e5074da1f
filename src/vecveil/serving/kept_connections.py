"""Kept connections to one server: those on which it spoke unasked are not used again.

What lies on a connection before a question was sent answers an older one, or none. Taken for the answer, it would give
one client the vectors of another's texts.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import aiohttp

if TYPE_CHECKING:
    from aiohttp.connector import Connection

__all__ = ["KeptConnections"]


class KeptConnections(aiohttp.TCPConnector):
    """A pool of connections.

    Args:
        created: called when a connection was made.
        limit: how many there are at most.
        keepalive_timeout: seconds after which a connection that nobody used is not used again.
    """

    def __init__(
        self, created: Callable[[], None], *, limit: int, keepalive_timeout: float
    ) -> None:
        super().__init__(limit=limit, keepalive_timeout=keepalive_timeout)
        self._told = created
        self._known: WeakSet[Any] = WeakSet()

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Connection:
        """Return a connection on which the server has said nothing yet."""
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            if protocol not in self._known:
                self._known.add(protocol)
                self._told()
                return connection
            if protocol is not None and not protocol.should_close and not _has_more(connection):
                return connection
            connection.close()


def _has_more(connection: Connection) -> bool:
    """Return whether something came in that nobody has read yet: bytes, or the end."""
    transport = connection.transport
    found = None if transport is None else transport.get_extra_info("socket")
    if found is None or found.fileno() < 0:
        return True
    if not hasattr(select, "poll"):
        return False
    waiting = select.poll()
    waiting.register(found.fileno(), select.POLLIN)
    return bool(waiting.poll(0))
