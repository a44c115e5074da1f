"""Running the application under uvicorn: logs, signals, a graceful end."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import math
import os
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from vecveil.errors import InvalidInputError, MissingDependencyError
from vecveil.serving.api_keys import ApiKeys
from vecveil.serving.app import create_app
from vecveil.serving.logs import configure_logging, event
from vecveil.serving.opening import open_service
from vecveil.serving.settings import ServeSettings

if TYPE_CHECKING:
    from fastapi import APIRouter

    from vecveil.serving.service import Service

    Routers = Callable[[Service], Sequence[APIRouter]]

__all__ = ["bound", "run", "serve_on"]

_KEEP_ALIVE = 65
"""Seconds: longer than clients keep a connection, so that none of them writes into one that is being closed."""


def run(
    settings: ServeSettings,
    *,
    routers: Routers | None = None,
    open_paths: Iterable[str] = (),
    on_listening: Callable[[str], None] | None = None,
) -> None:
    """Serve until a signal says to stop; requests that are being answered then get their answer.

    With ``settings.workers`` above 1 a program of one's own calls this below ``if __name__ == "__main__":``, as the
    processes that it starts import that program's file.

    Args:
        settings: see `ServeSettings`.
        routers: gives further routes, once the service is open. They are for one worker: what such routes keep from
            one request to the next is in one process.
        open_paths: see `create_app`.
        on_listening: told the base URL once requests are taken.

    Raises:
        VecveilError: something that cannot be used; nothing was served.
        MissingDependencyError: FastAPI, uvicorn or httptools is not installed.
    """
    if settings.workers > 1 and sys.platform == "win32":
        raise InvalidInputError.of("serve", "workers", "1 on Windows", settings.workers)
    if settings.workers > 1 and routers is not None:
        raise InvalidInputError.of("serve", "routers", "left out with several workers", "some",
                                   "What they keep from one request to the next is in one process.")  # fmt: skip
    fill_standard_streams()
    configure_logging(access=settings.access_log)
    listening = False

    def told(url: str, policies: int) -> None:
        nonlocal listening
        several = {"workers": settings.workers} if settings.workers > 1 else {}
        event("listening", url=url, policies=policies, **several)
        listening = True
        if on_listening is not None:
            on_listening(url)

    try:
        with bound(settings.host, settings.port) as address:
            _warn_if_open(settings)
            if settings.workers > 1:
                from vecveil.serving.workers import run_workers

                run_workers(settings, address, on_listening=told)
            else:
                serve_on(
                    address, settings, routers=routers, open_paths=open_paths, on_listening=told
                )
    finally:
        if listening:
            event("stopped")


def serve_on(
    listening: socket.socket,
    settings: ServeSettings,
    *,
    routers: Routers | None = None,
    open_paths: Iterable[str] = (),
    on_opened: Callable[[Service], None] | None = None,
    on_listening: Callable[[str, int], None],
) -> None:
    """Serve on a bound socket in this process; see `run`.

    Args:
        listening: it listens as soon as there is somebody to answer.
        on_opened: given the service before it asks or answers anybody; what it raises ends the server.
        on_listening: told the base URL and the number of policies.
    """
    try:
        import uvicorn
    except ImportError as error:
        raise MissingDependencyError("Serving", "uvicorn", "serve") from error
    try:
        from vecveil.serving.joined_writes import JoinedWrites
    except ImportError as error:
        raise MissingDependencyError("Serving", "httptools", "serve") from error
    from vecveil.serving.announcing import AnnouncingServer

    keys = None if settings.api_keys is None else ApiKeys(settings.api_keys)
    service = open_service(settings)
    if on_opened is not None:
        on_opened(service)
    app = create_app(
        service,
        keys=keys,
        routers=() if routers is None else routers(service),
        open_paths=open_paths,
        hosts=_host_names(settings),
    )
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,  # its lines hold paths and queries as clients wrote them
        lifespan="on",
        ws="none",
        http=JoinedWrites,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=math.ceil(settings.limits.shutdown_seconds),
    )

    def started() -> None:
        gc.collect()
        gc.freeze()  # what is loaded by now stays: looking through it again and again costs every request
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        on_listening(f"http://{shown}:{port}/v1", len(service.policies))

    server = AnnouncingServer(config, started)

    async def serve() -> None:
        await service.start()  # before anybody is let in
        await server.serve(sockets=[listening])

    with asyncio.Runner(loop_factory=_loop_factory(config)) as runner:
        runner.run(serve())


def _loop_factory(config: Any) -> Any:
    factory = getattr(config, "get_loop_factory", None)  # uvicorn before 0.36 has none
    return None if factory is None else factory()


def fill_standard_streams() -> None:
    """Open what is closed of stdin, stdout and stderr: else a socket takes its number, and gets what is said."""
    if sys.platform != "win32":
        while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
            os.set_inheritable(number, True)
        os.close(number)


def bound(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address, so that a port in use is told before an encoder is loaded."""
    failed: str
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            _claim(listening, chosen=port == 0)
        except OSError:
            listening.close()
            raise
        listening.set_inheritable(False)
        return listening
    except OSError as error:
        failed = error.strerror or type(error).__name__
    raise InvalidInputError.of("serve", "host and port", "an address to listen on", f"{host}:{port} ({failed})",
                               fix="Choose another --port, or 0 for a free one.")  # fmt: skip


def _claim(address: socket.socket, *, chosen: bool) -> None:
    """Make sure that nobody else gets the address before we listen, which takes as long as encoders take to load.

    Sockets with SO_REUSEADDR may share an address until one listens, and with SO_REUSEPORT on both even then: so it
    listens for a moment, which only one can, and is then neither. Of a port that the system has just ``chosen`` nobody
    knows, and it would be given back.
    """
    if sys.platform == "linux":
        if not chosen:
            address.listen(1)
        address.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        if not chosen:
            address.shutdown(socket.SHUT_RDWR)


def _is_local(settings: ServeSettings) -> bool:
    try:
        return ipaddress.ip_address(settings.host).is_loopback
    except ValueError:
        return settings.host == "localhost"


def _host_names(settings: ServeSettings) -> frozenset[str] | None:
    """Return the names that the header Host may have, or None for any."""
    own = {"127.0.0.1", "localhost", "[::1]", settings.host.lower()}
    if settings.host_names is not None:
        return frozenset(own | {name.strip().lower() for name in settings.host_names.split(",")})
    return frozenset(own) if _is_local(settings) and settings.api_keys is None else None


def _warn_if_open(settings: ServeSettings) -> None:
    if settings.api_keys is None and not _is_local(settings):
        event(
            "warning",
            level=logging.WARNING,
            message="Reachable from other machines without a key: set api_keys, and put TLS in front.",
        )
