"""A server in this process on a real socket, upstreams that behave and that do not, and a protector for them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import vecveil
from vecveil.privacy.protector import EncoderInfo
from vecveil.texts.encoders.text_encoder import probe_cosines

__all__ = [
    "DIMENSION",
    "Connection",
    "FakeEncoder",
    "Misbehaving",
    "answer_to",
    "clean_vectors",
    "fake_protector",
    "respond",
    "served",
]

DIMENSION = 16


def clean_vectors(texts: Sequence[str], n: int = DIMENSION) -> np.ndarray:
    """Return a unit vector for each text, which depends on it alone."""
    rows = [np.frombuffer(hashlib.shake_256(t.encode()).digest(4 * n), dtype="<i4") for t in texts]
    X = np.array(rows, dtype=np.float64).reshape(-1, n)
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)


class FakeEncoder:
    """What stands behind the upstreams of these tests."""

    name = "fake"
    fingerprint = "fake:1"

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return clean_vectors(list(texts))


def fake_protector(method: str = "laplace", **given: Any) -> vecveil.Protector:
    """Return a protector fitted for `FakeEncoder`, which it knows by its probe, as one behind an API."""
    texts = [f"note {i} takes alphamab" if i % 2 else f"note {i}" for i in range(200)]
    concept = vecveil.Concept.from_terms("drug", ["alphamab"])
    scale = {} if method in ("redact", "shuffle") else {"noise_to_signal": 0.5}
    protector = vecveil.fit(texts, concept, FakeEncoder(), method=method, show_progress=False, **{**scale, **given})
    probe = probe_cosines(FakeEncoder().encode, owner="test")
    return replace(protector, encoder_info=EncoderInfo("fake", "fake:1", "api", probe, (1.0, 1.0)))


def answer_to(body: bytes, vectors: Any = None) -> dict[str, Any]:
    """Return what an OpenAI-compatible server answers to a request's body."""
    asked = json.loads(body)
    texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
    X = clean_vectors(texts) if vectors is None else vectors
    as_base64 = asked.get("encoding_format") == "base64"
    rows = [base64.b64encode(x.tobytes()).decode() if as_base64 else x.tolist() for x in X]
    data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
    usage = {"prompt_tokens": 7 * len(texts), "total_tokens": 7 * len(texts)}
    return {"object": "list", "data": data, "model": asked["model"], "usage": usage}


Answer = Callable[["Misbehaving", bytes, asyncio.StreamWriter], Any]


@dataclass
class Misbehaving:
    """An HTTP server of its own that answers as ``answer`` says; see `modes`."""

    answer: Answer
    url: str = ""
    bodies: list[bytes] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(
                    int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length:")
                )
                body = await reader.readexactly(length)
                self.heads.append(head)
                self.bodies.append(body)
                done = self.answer(self, body, writer)
                if asyncio.iscoroutine(done):
                    await done
                await writer.drain()
                if writer.is_closing():
                    break
        self._writers.discard(writer)
        writer.close()

    @contextlib.contextmanager
    def running(self, port: int = 0) -> Iterator[Misbehaving]:
        loop = asyncio.new_event_loop()
        ready = threading.Event()

        async def serve() -> None:
            server = await asyncio.start_server(self.handle, "127.0.0.1", port)
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
            ready.set()
            await stop.wait()
            server.close()
            for writer in self._writers:
                writer.transport.abort()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.wait_for(asyncio.gather(*others), 60)

        stop = asyncio.Event()
        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
        thread.start()
        assert ready.wait(60)
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(60)
            loop.close()


def respond(writer: asyncio.StreamWriter, content: Any, *, status: str = "200 OK", headers: str = "") -> None:
    """Write a whole answer."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}{headers}\r\n".encode() + body)


class Connection:
    """A client that costs little: one kept connection, one request at a time."""

    def __init__(self, port: int, headers: str = "") -> None:
        self._port, self._headers = port, headers
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, content: Any) -> tuple[int, Any]:
        """Return status and JSON of the answer to ``POST /v1/embeddings``."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        body = json.dumps(content).encode()
        head = "POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}{self._headers}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answered = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(answered.split("content-length:")[1].split("\r\n")[0])
        return int(answered.split()[1]), json.loads(await reader.readexactly(length))

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            await self._streams[1].wait_closed()


@contextlib.contextmanager
def served(service: Any, **given: Any) -> Iterator[str]:
    """Run the application of ``service`` in a thread on a real socket; yields the URL of the server."""
    import uvicorn

    from vecveil.gateway.server import Limits, ServeSettings, create_app
    from vecveil.gateway.server.server import uvicorn_config
    from vecveil.gateway.server.settings import ServedPolicySettings

    settings = ServeSettings({"drug": ServedPolicySettings("unread")}, limits=Limits(shutdown_seconds=2))
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn_config(settings, create_app(service, **given)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()
        assert not thread.is_alive()
