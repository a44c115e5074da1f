"""What every request passes: a request id, the client's key, the limit of requests at once, one log line.

Whatever goes wrong behind it is answered in OpenAI's shape, without details.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from vecveil.serving.api_keys import ApiKeys
from vecveil.serving.errors import ApiError, api_error_of
from vecveil.serving.logs import event
from vecveil.serving.service import Service

__all__ = ["App", "ClientGone", "Guard", "Receive", "Scope", "Send"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_ROUTES = ("/v1/embeddings", "/v1/models", "/health", "/metrics")
_UNLIMITED = ("/health", "/metrics")
_CLIENT_GONE = 499


class ClientGone(Exception):
    """The client closed the connection before there was an answer."""


class Guard:
    """ASGI middleware around everything else; a server may have several, which count together.

    Args:
        app: what is inside.
        service: of the server.
        keys: that clients must show; None lets everybody in.
        open_paths: that need no key.
        hosts: names that the header Host may have, lower case and without port; None takes any. A web page whose
            name is made to point at this machine would otherwise reach a server that asks for no key.
    """

    def __init__(
        self,
        app: App,
        *,
        service: Service,
        keys: ApiKeys | None = None,
        open_paths: frozenset[str] = frozenset({"/health"}),
        hosts: frozenset[str] | None = None,
    ) -> None:
        self._app, self._service, self._keys = app, service, keys
        self._open, self._hosts = open_paths, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        path: str = scope["path"]
        route = path if path in _ROUTES else "other"
        named = f"req-{secrets.token_hex(12)}"
        status = 0
        metrics = self._service.metrics

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"x-request-id", named.encode()),
                ]
            await send(message)

        code: str | None = None
        self._service.running += 1
        metrics.running.inc()
        try:
            self._admit(path, scope)
            await self._app(scope, receive, answer)
        except ClientGone:
            status, code = _CLIENT_GONE, "client_gone"
            metrics.note(metrics.errors, 1, code)
        except Exception as error:
            shown = self._service.error_of(api_error_of(error))
            code = shown.code
            if shown.status >= 500 and not isinstance(error, ApiError):
                event(
                    "failed",
                    level=logging.ERROR,
                    id=named,
                    code=code,
                    exception=type(error).__name__,
                )
            if status:  # half an answer is out: the connection is closed, which the client sees
                raise ConnectionAbortedError from None
            await _send(answer, shown)
        finally:
            self._service.running -= 1
            metrics.running.dec()
            seconds = time.perf_counter() - started
            metrics.note(metrics.requests, 1, route, str(status))
            metrics.note(metrics.seconds, seconds, route)
            metrics.settle()
            fields: dict[str, Any] = {} if code is None else {"code": code}
            event(
                "request",
                id=named,
                method=scope["method"] if scope["method"] in ("GET", "POST", "HEAD") else "other",
                route=route,
                status=status,
                ms=round(1000 * seconds, 2),
                **fields,
            )

    def _admit(self, path: str, scope: Scope) -> None:
        if self._hosts is not None:
            named = [value for name, value in scope["headers"] if name == b"host"]
            if len(named) != 1 or _name_of(named[0]) not in self._hosts:
                raise ApiError(
                    421, "This server does not go by that name.", code="another_host", param="Host"
                )
        if self._keys is not None and path not in self._open:
            shown = [value for name, value in scope["headers"] if name == b"authorization"]
            if not self._keys.allow(shown[0] if len(shown) == 1 else None):
                raise ApiError(401, "Incorrect API key provided.", code="invalid_api_key")
        if self._service.running > self._service.limits.concurrent and path not in _UNLIMITED:
            raise ApiError(
                429,
                "Too many requests at once.",
                kind="rate_limit_error",
                code="too_many_requests",
                retry_after=1.0,
            )


def _name_of(host: bytes) -> str:
    """Return the name in a header Host, without its port."""
    text = host.decode("latin-1").strip().lower()
    return text.partition("]")[0] + "]" if text.startswith("[") else text.partition(":")[0]


async def _send(send: Send, error: ApiError) -> None:
    body = error.body()
    headers = [(name.encode(), value.encode()) for name, value in error.headers().items()]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
