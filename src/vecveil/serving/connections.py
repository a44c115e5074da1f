"""Kept connections to one HTTP server, with h11 over asyncio: the state of HTTP/1.1 is h11's, the rest is here.

httpx' pool looks at every idle connection for every request, which under load takes longer than encoding does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from ssl import SSLContext
from time import monotonic
from typing import Any

from vecveil.errors import MissingDependencyError

__all__ = ["Answer", "Connections", "LostConnectionError"]

_CHUNK = 65_536
_MOST_HEADERS = 65_536
_IDLE_SECONDS = 30.0
"""Longer unused, a connection is not trusted: what lies between may have forgotten it without telling."""


class LostConnectionError(Exception):
    """No connection, or one that ended or said something that is no HTTP."""


class Answer:
    """The head of an answer, and its body as it comes."""

    def __init__(self, status: int, headers: dict[str, str], body: AsyncIterator[bytes]) -> None:
        self.status_code, self.headers, self.stream = status, headers, body


class Connections:
    """A pool for one host.

    Args:
        host: of the server.
        port: of the server.
        ssl: None speaks plain HTTP.
        connect_timeout: seconds until there is a connection.
        most: connections at once.
    """

    def __init__(
        self, host: str, port: int, *, ssl: SSLContext | None, connect_timeout: float, most: int
    ) -> None:
        try:
            import h11
        except ImportError as error:
            raise MissingDependencyError("An upstream behind a URL", "h11", "serve") from error
        self._h11: Any = h11
        self._at = (host, port, ssl)
        self._seconds = connect_timeout
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter, Any, float]] = []
        self._places = asyncio.Semaphore(most)

    @contextlib.asynccontextmanager
    async def post(
        self, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> AsyncIterator[Answer]:
        """Send a request and give its answer; the connection is kept only if the answer was read to its end.

        Raises:
            LostConnectionError: see there.
        """
        h11 = self._h11
        lost: str
        async with self._places:
            writer: asyncio.StreamWriter | None = None
            kept = False
            try:
                reader, writer, state = await self._connection()
                sent = [*headers, (b"content-length", str(len(body)).encode())]
                request = h11.Request(method="POST", target=target, headers=sent)
                parts = (request, h11.Data(data=body), h11.EndOfMessage())
                writer.write(b"".join(state.send(part) for part in parts))
                await writer.drain()
                head = await self._event(reader, state)
                while isinstance(head, h11.InformationalResponse):
                    head = await self._event(reader, state)
                found = {name.decode(): value.decode("latin-1") for name, value in head.headers}
                yield Answer(head.status_code, found, self._body(reader, state))
                ended = state.our_state is h11.DONE and state.their_state is h11.DONE
                # What follows an answer would be taken for that of the next request, which is another client's.
                if ended and not state.trailing_data[0]:
                    state.start_next_cycle()
                    self._idle.append((reader, writer, state, monotonic()))
                    kept = True
                return
            except (OSError, h11.ProtocolError, EOFError) as error:
                lost = type(error).__name__
            finally:
                if writer is not None and not kept:
                    writer.transport.abort()
        raise LostConnectionError(lost)

    def close(self) -> None:
        """Close what is idle."""
        while self._idle:
            self._idle.pop()[1].close()

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Any]:
        while self._idle:
            reader, writer, state, since = self._idle.pop()
            unasked = getattr(reader, "_buffer", b"")  # came after the last answer had ended
            fresh = monotonic() - since < _IDLE_SECONDS
            if fresh and not unasked and not reader.at_eof() and not writer.is_closing():
                return reader, writer, state
            writer.transport.abort()
        host, port, ssl = self._at
        try:
            async with asyncio.timeout(self._seconds):
                reader, writer = await asyncio.open_connection(host, port, ssl=ssl)
        except TimeoutError:
            raise ConnectionError from None
        client = self._h11.Connection(self._h11.CLIENT, max_incomplete_event_size=_MOST_HEADERS)
        return reader, writer, client

    async def _event(self, reader: asyncio.StreamReader, state: Any) -> Any:
        h11 = self._h11
        while True:
            event = state.next_event()
            if event is h11.NEED_DATA:
                state.receive_data(await reader.read(_CHUNK))
                continue
            if event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                raise EOFError
            return event

    async def _body(self, reader: asyncio.StreamReader, state: Any) -> AsyncIterator[bytes]:
        while True:
            event = await self._event(reader, state)
            if isinstance(event, self._h11.EndOfMessage):
                return
            yield bytes(event.data)
