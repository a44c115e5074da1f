"""An OpenAI-compatible embedding server on localhost, in a thread, that can be told to misbehave."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

__all__ = ["Answer", "answer_with", "embedding_server", "hashed_vectors"]

Answer = tuple[int, dict[str, str], bytes]
"""Status, headers and body."""


def hashed_vectors(texts: list[str], dimension: int = 16) -> np.ndarray[Any, Any]:
    """Return unit vectors that depend on each text alone."""
    rows = [np.random.default_rng(list(text.encode()) or [0]).normal(size=dimension) for text in texts]
    X = np.array(rows).reshape(len(texts), dimension)
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)


def answer_with(X: np.ndarray[Any, Any], request: dict[str, Any]) -> Answer:
    """Return a well-formed answer to ``request`` with the rows of ``X``."""
    coded = request.get("encoding_format") == "base64"
    data = [
        {
            "object": "embedding",
            "index": i,
            "embedding": base64.b64encode(row.astype("<f4").tobytes()).decode() if coded else row.tolist(),
        }
        for i, row in enumerate(X)
    ]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    body = {"object": "list", "data": data, "model": request["model"], "usage": usage}
    return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()


@contextmanager
def embedding_server(
    answer: Callable[[dict[str, Any], int], Answer] | None = None,
    encode: Callable[[list[str]], np.ndarray[Any, Any]] = hashed_vectors,
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield base URL and the list of requests so far, each with its headers under ``headers``.

    Args:
        answer: called with a request and its number, from 0, in place of the well-behaved answer.
    """
    seen: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append({**request, "headers": {k.lower(): v for k, v in self.headers.items()}})
            if answer is not None:
                status, headers, body = answer(request, len(seen) - 1)
            else:
                status, headers, body = answer_with(encode(request["input"]), request)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
