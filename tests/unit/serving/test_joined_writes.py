"""What a connection sends is what was written, in order, in as few pieces as head and body allow."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

from harness.serving import FakeEncoder, fake_protector
from vecveil.release_policy import ReleasePolicy
from vecveil.serving.app import create_app
from vecveil.serving.joined_writes import JoinedWrites, _Joining
from vecveil.serving.local_upstream import LocalUpstream
from vecveil.serving.service import ServedPolicy, Service


class Transport:
    """Remembers what it is given."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.pieces.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> None:
        return None


def sent(*turns: tuple[bytes, ...], close: bool = False) -> Transport:
    """Return what came out when the pieces of each tuple were written in one turn of a loop."""
    transport = Transport()

    async def write() -> None:
        joining = _Joining(transport, asyncio.get_running_loop())  # type: ignore[arg-type]
        for turn in turns:
            for piece in turn:
                joining.write(piece)
            if not close:
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        if close:
            joining.close()
        assert joining.is_closing() == close

    asyncio.run(write())
    return transport


def test_head_and_body_leave_in_one_piece() -> None:
    assert sent((b"head", b"body")).pieces == [b"headbody"]
    assert sent((b"head", b"")).pieces == [b"head"]


def test_a_head_alone_leaves_with_the_turn() -> None:
    assert sent((b"head",), (b"body",)).pieces == [b"head", b"body"]


def test_nothing_is_lost_and_the_order_stays() -> None:
    for many in range(1, 9):
        pieces = tuple(bytes([65 + i]) * (i + 1) for i in range(many))
        assert b"".join(sent(pieces).pieces) == b"".join(pieces)
        assert b"".join(sent(pieces[:3], pieces[3:]).pieces) == b"".join(pieces)


def test_what_waits_leaves_before_the_end() -> None:
    transport = sent((b"head",), close=True)
    assert transport.pieces == [b"head"]
    assert transport.closed


def test_a_long_body_is_not_copied() -> None:
    body = bytes(200_000)
    pieces = sent((b"head", body)).pieces
    assert pieces == [b"head", body]
    assert pieces[1] is body
    assert sent((body, b"rest")).pieces == [body, b"rest"]


def test_what_waits_leaves_before_the_loop_closes_and_never_after() -> None:
    """Where the client is done the loop closes the transport itself; where it is gone nothing is written any more."""

    async def run(gone: bool) -> Transport:
        import uvicorn

        transport = Transport()
        config = uvicorn.Config(lambda *_: None, http=JoinedWrites, log_config=None)
        config.load()
        state = uvicorn.server.ServerState()
        protocol = JoinedWrites(config, state, app_state={}, _loop=asyncio.get_running_loop())
        protocol.connection_made(transport)  # type: ignore[arg-type]
        protocol.transport.write(b"head")
        if gone:
            protocol.connection_lost(ConnectionResetError())
        else:
            protocol.eof_received()
        transport.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return transport

    assert asyncio.run(run(gone=False)).pieces == [b"head"]
    assert asyncio.run(run(gone=True)).pieces == []


def test_a_client_reads_the_whole_answer_at_once() -> None:
    """On the loopback one write is one read. Pipelined requests get their answers in order."""
    import uvicorn

    policy = ReleasePolicy(fake_protector())
    service = Service([ServedPolicy("drug", policy, LocalUpstream(FakeEncoder()))])
    config = uvicorn.Config(
        create_app(service), http=JoinedWrites, lifespan="on", log_config=None, ws="none"
    )
    server = uvicorn.Server(config)

    def request(text: str) -> bytes:
        body = json.dumps({"model": "drug", "input": text, "encoding_format": "base64"}).encode()
        head = (
            "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        )
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def ask(port: int) -> list[bytes]:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            first = []
            for i in range(5):
                connection.sendall(request(f"note {i}"))
                first.append(connection.recv(65_536))
            connection.sendall(request("one") + request("two two"))
            rest = b""
            while rest.count(b'"usage"') < 2:
                rest += connection.recv(65_536)
            return [*first, rest]

    async def run() -> list[bytes]:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            while not server.started:
                await asyncio.sleep(0.01)
            found = await asyncio.to_thread(ask, listening.getsockname()[1])
            server.should_exit = True
            await serving
            return found

    *answers, both = asyncio.run(run())
    for answer in answers:
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        said: dict[str, Any] = json.loads(body)  # which is whole
        assert len(said["data"]) == 1
    assert both.count(b"HTTP/1.1 200") == 2
