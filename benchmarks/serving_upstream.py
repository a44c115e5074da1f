"""The upstream of ``benchmarks/serving.py``, in a process of its own: ``serving_upstream.py MODE PORT PRECISION``.

``minilm`` encodes with MiniLM, requests that wait together in one batch; ``hashed`` makes vectors from a hash of the
text at once; ``elsewhere`` does so after 20 ms, in which it leaves the processor alone, as an encoder on another
machine does; ``varying`` after 20 ms in the median, and in 19 of 20 cases 12 to 33 (lognormal), as such a one does.
Its first line on stdout is its port.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import random
import socket
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from vecveil.gateway.server.upstreams import LocalUpstream

DIMENSION = 384
SPREAD = 0.25
"""Of the logarithm of a time that varies."""


class Hashed:
    """A unit vector for each text, at no cost."""

    name = "hashed"

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors."""
        rows = [hashlib.shake_256(text.encode()).digest(4 * DIMENSION) for text in texts]
        X = np.array([np.frombuffer(row, dtype="<i4") for row in rows], dtype=np.float64)
        return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)


def encoder_of(mode: str, precision: str) -> Any:
    """Return MiniLM or `Hashed`."""
    if mode in ("hashed", "elsewhere", "varying"):
        return Hashed()
    import vecveil

    return vecveil.load_encoder("minilm", precision=precision, cache=None, show_progress=False)


class Application:
    """As little of a server as there can be: what is measured against it is not flattered."""

    def __init__(self, encoder: Any) -> None:
        self.upstream = LocalUpstream(encoder)
        self.delay = 0.0
        self.spread = 0.0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer ``POST /v1/embeddings``."""
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        asked = json.loads(body)
        texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
        if self.delay:
            await asyncio.sleep(self.delay * random.lognormvariate(0.0, self.spread))
        X = (await self.upstream.embed(texts, model="", dimension=None, headers={})).vectors
        data = [
            {"object": "embedding", "index": i, "embedding": base64.b64encode(x.tobytes()).decode()}
            for i, x in enumerate(X)
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        answer = json.dumps({"object": "list", "data": data, "model": "m", "usage": usage}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


def main(mode: str, port: int, precision: str) -> None:
    """Serve until killed."""
    import uvicorn

    app = Application(encoder_of(mode, precision))
    app.upstream.encoder.encode(["warm"])
    if mode in ("elsewhere", "varying"):
        app.delay = 0.02
    if mode == "varying":
        app.spread = SPREAD
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off", ws="none", timeout_keep_alive=65)
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
