"""Head and body of an answer leave in one piece: two would wake the client twice, and it has to wait for the second."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["JoinedWrites"]


class _Joining:
    """A transport that holds the first piece until the second is there, or the loop's turn ends."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write ``data`` behind what waits."""
        if self._held:
            joined, self._held = self._held + data, b""
            self._transport.write(joined)
        elif data:
            self._held = data
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Write what waits, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)


class JoinedWrites(HttpToolsProtocol):
    """uvicorn's protocol on such a transport."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection."""
        super().connection_made(_Joining(transport, self.loop))  # type: ignore[arg-type]
