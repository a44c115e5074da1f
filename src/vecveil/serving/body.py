"""Reading a request's body within limits, and noticing a client that goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from typing import Any, TypeVar

from vecveil.serving.errors import ApiError, invalid
from vecveil.serving.guard import ClientGone
from vecveil.serving.settings import Limits

__all__ = ["read_body", "unless_gone"]

T = TypeVar("T")
_WATCHED_AFTER = 0.05
"""Seconds: work that is done sooner is not worth a task that watches the client."""
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


async def read_body(receive: Receive, headers: Mapping[str, str], limits: Limits) -> bytes:
    """Return the body of a JSON request; more than the limit is never held.

    Raises:
        ApiError: 415 no JSON, 413 too large, 408 too slow.
        ClientGone: it closed the connection.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # Also keeps a web page of somebody else from sending requests here through a browser.
        raise invalid(
            "The header Content-Type must be application/json.",
            code="invalid_content_type",
            status=415,
        )
    announced = headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > limits.body_bytes:
        raise _too_large(limits)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                part = message.get("body", b"")
                size += len(part)
                if size > limits.body_bytes:
                    raise _too_large(limits)
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        pass
    raise invalid("The body did not arrive in time.", code="body_timeout", status=408)


def _too_large(limits: Limits) -> ApiError:
    return invalid(
        f"The body must have at most {limits.body_bytes:,} bytes.",
        code="body_too_large",
        status=413,
    )


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return what ``work`` returns; a client that goes away cancels it, once it has taken a moment.

    Raises:
        ClientGone: it went away.
    """
    mine = asyncio.current_task()
    assert mine is not None
    gone = False
    watching: asyncio.Task[None] | None = None

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        mine.cancel()

    def begin() -> None:
        nonlocal watching
        watching = asyncio.create_task(watch())

    due = asyncio.get_running_loop().call_later(_WATCHED_AFTER, begin)
    try:
        return await work
    except BaseException:
        if gone and mine.uncancel() == 0:  # nobody else, such as a server that ends, cancels it
            raise ClientGone from None
        raise
    finally:
        due.cancel()
        if watching is not None:
            watching.cancel()
