"""Head and body of an answer leave in one piece: two would wake the client twice, and it has to wait for the second."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["JoinedWrites"]

_LONGEST = 65_536
"""Bytes of a body that is copied to be sent with its head."""


class _Joining:
    """A transport that holds the first piece until the second is there, or the loop's turn ends."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write ``data`` behind what waits."""
        if self._held and len(data) <= _LONGEST:
            data, self._held = self._held + data, b""
            self._transport.write(data)
        elif self._held or len(data) > _LONGEST:  # copying it would take longer than a second piece
            self.flush()
            self._transport.write(data)
        elif data:
            self._held = data
            self._loop.call_soon(self.flush)

    def close(self) -> None:
        """Write what waits, and close."""
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        """Write what waits."""
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)

    def forget(self) -> None:
        """Drop what waits: the connection is gone."""
        self._held = b""


class JoinedWrites(HttpToolsProtocol):
    """uvicorn's protocol on such a transport."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection."""
        self._joining = _Joining(transport, self.loop)
        super().connection_made(self._joining)  # type: ignore[arg-type]

    def eof_received(self) -> None:
        """Write what waits: the loop then closes the transport itself, which does not know of it."""
        self._joining.flush()
        super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection."""
        self._joining.forget()
        super().connection_lost(exc)
