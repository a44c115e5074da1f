"""Run the application under uvicorn, in one process or several."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import logging
import math
import os
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from vecveil.errors import IncompatibleError, InvalidInputError, MissingDependencyError, VecveilError
from vecveil.gateway.server.app import create_app
from vecveil.gateway.server.errors import ApiError
from vecveil.gateway.server.monitoring import MULTIPROCESS_FOLDER, configure_logging, drop_ended_processes, event
from vecveil.gateway.server.requests import ApiKeys
from vecveil.gateway.server.service import Service, open_service
from vecveil.gateway.server.settings import ServeSettings
from vecveil.keys import KeyFile
from vecveil.runtime import inherited_variables, thread_count

try:
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    from uvicorn.supervisors import Multiprocess
except ImportError:
    raise MissingDependencyError("Serving", "uvicorn", "serve") from None

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.routing import Router

    Routers = Callable[[Service], Sequence[Router]]

# Longer than clients keep idle connections (60 s is common), so that the client closes first.
_KEEP_ALIVE_SECONDS = 65
_BACKLOG = 2048
# h11's limit; httptools has none, and joins the pieces of a long header in quadratic time.
_HEAD_BYTES = 65_536
# A worker that loads an encoder on a busy machine answers health checks late.
_HEALTHCHECK_SECONDS = 15
# Pause of a worker that cannot start: uvicorn replaces an ended worker at once.
_RESTART_SECONDS = 5


def run(
    settings: ServeSettings,
    *,
    routers: Routers | None = None,
    open_paths: Iterable[str] = (),
    on_listening: Callable[[str], None] | None = None,
) -> None:
    """Serve until a signal ends the server; running requests are completed.

    With several workers, call this below ``if __name__ == "__main__":``: worker processes import the main module.

    Args:
        routers: returns further routes for the open service; allowed with one worker only.
        open_paths: see `create_app`.
        on_listening: called with the base URL once the server accepts requests.

    Raises:
        VecveilError: a setting, file, key, encoder or address is unusable; nothing was served.
    """
    if settings.workers > 1 and sys.platform == "win32":
        raise InvalidInputError("`workers` must be 1 on Windows.", param="workers")
    if settings.workers > 1 and routers is not None:
        raise InvalidInputError(
            "`routers` keep state in one process and cannot be used with several workers.", param="routers"
        )
    if settings.api_keys is not None:
        ApiKeys(settings.api_keys, settings.grants)  # fail before the slow loading of encoders
    configure_logging(access=settings.access_log)
    with listen(settings.host, settings.port) as listening:
        # A warning, not an error: a gateway in front may check keys.
        if settings.api_keys is None and not settings.is_local:
            event(
                "warning",
                level=logging.WARNING,
                message="Reachable from other machines without a key: set api_keys, and put TLS in front.",
            )
        host, port = listening.getsockname()[:2]
        url = f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"

        def announce() -> None:
            several = {"workers": settings.workers} if settings.workers > 1 else {}
            indexes = {"indexes": len(settings.indexes)} if settings.indexes else {}
            event("listening", url=url, policies=len(settings.policies), **indexes, **several)
            if on_listening is not None:
                on_listening(url)

        if settings.workers > 1:
            _run_workers(settings, listening, announce)
        else:
            _run_here(settings, listening, announce, routers, open_paths)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise `InvalidInputError` if the address is in use or invalid."""
    # Opened before encoders load: a port in use fails at once, and early clients wait in the backlog.
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = addresses[0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        reason = error.strerror or type(error).__name__
    raise InvalidInputError(
        f"Cannot listen on {host}:{port}: {reason}. Choose another --port, or 0 for a free one.", param="host and port"
    )


def _run_here(
    settings: ServeSettings,
    listening: socket.socket,
    announce: Callable[[], None],
    routers: Routers | None,
    open_paths: Iterable[str],
) -> None:

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            announce()  # uvicorn has installed its signal handlers: from now on it stops cleanly

    service = open_service(settings)
    app = _application(service, settings, () if routers is None else routers(service), open_paths)
    config = uvicorn_config(settings, app)

    async def serve() -> None:
        # Not in the lifespan event: uvicorn would log the error and exit instead of raising it.
        await _start(service)
        await Server(config).serve(sockets=[listening])

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        try:
            runner.run(serve())
        finally:
            event("stopped")


def _run_workers(settings: ServeSettings, listening: socket.socket, announce: Callable[[], None]) -> None:
    """Serve in several processes that share one socket; uvicorn replaces ended ones."""
    # Verify in the parent: an unusable setting would otherwise restart workers for ever.
    identity = _verified_identity(settings)
    with tempfile.TemporaryDirectory(prefix="vecveil-metrics-", ignore_cleanup_errors=True) as folder:
        variables = {MULTIPROCESS_FOLDER: folder}
        if "OMP_NUM_THREADS" not in os.environ:  # otherwise each worker's encoder uses all cores
            variables["OMP_NUM_THREADS"] = str(max(1, thread_count() // settings.workers))
        with inherited_variables(variables):
            config = uvicorn_config(settings, partial(_worker_app, settings, identity), factory=True)
            given: dict[str, Any] = {"sockets": [listening]}
            if "target" in inspect.signature(Multiprocess).parameters:  # required by older versions of uvicorn
                given["target"] = uvicorn.Server(config).run
            supervisor = Multiprocess(config, **given)  # installs the signal handlers
            announce()  # the socket already listens; connections wait for the first worker
            supervisor.run()
            event("stopped")


def _verified_identity(settings: ServeSettings) -> str:
    service = open_service(settings)
    _application(service, settings, (), ())  # for its checks alone

    async def verify() -> None:
        await _start(service)
        await service.aclose()

    asyncio.run(verify())
    return _identity(service)


async def _start(service: Service) -> None:
    try:
        await service.start()
    except BaseException:
        await service.aclose()
        raise


def _worker_app(settings: ServeSettings, identity: str) -> Starlette:
    configure_logging(access=settings.access_log)
    warnings.simplefilter("ignore")  # the parent has shown our errors; those of libraries may contain data
    try:
        drop_ended_processes()
        service = open_service(settings)
        if _identity(service) != identity:
            # Files changed since the start. Mixed workers would give equal texts different vectors, and a second
            # key or protector would give a further, independent release of the same text.
            raise IncompatibleError(
                "serve: a protector, key or upstream is no longer what the server was started with. Restart the "
                "server to take the new one, or put the old one back."
            )
        return _application(service, settings, (), ())
    except VecveilError as error:
        event("worker not started", level=logging.ERROR, message=str(error))
    except Exception as error:  # message and traceback may contain data
        event("worker not started", level=logging.ERROR, exception=type(error).__name__)
    time.sleep(_RESTART_SECONDS)
    os._exit(1)  # skip finalisation, during which the supervisor would wait for a health check


def _identity(service: Service) -> str:
    """Return a digest of protectors, query settings, key ids and upstreams: everything that determines the vectors."""
    policies = []
    for name, served in sorted(service.policies.items()):
        policy, protector = served.policy, served.policy.protector
        key = policy.key.key() if isinstance(policy.key, KeyFile) else policy.key
        policies.append(
            [
                name,
                protector.fingerprint,
                protector.encoder_info.fingerprint,
                float(policy.query_noise),
                served.upstream.name,
                key and [key.key_id, key.check_value],  # the check value shows a changed key under an old id
            ]
        )
    return hashlib.sha256(json.dumps(policies).encode()).hexdigest()


def _application(
    service: Service, settings: ServeSettings, routers: Sequence[Router], open_paths: Iterable[str]
) -> Starlette:
    keys = None if settings.api_keys is None else ApiKeys(settings.api_keys, settings.grants)
    return create_app(service, keys=keys, routers=routers, open_paths=open_paths, hosts=_host_names(settings))


class _BoundedHead(HttpToolsProtocol):
    """Refuse a request whose head, or whose trailers after a chunked body, exceed 64 KiB."""

    _pending = 0  # bytes received since the last head, byte of a body or request

    def data_received(self, data: bytes) -> None:
        # In pieces: one read may contain 256 KiB, and a longer head in it must not be parsed to its end.
        while data:
            room = _HEAD_BYTES - self._pending
            if room == 0:
                self._refuse()
                return
            piece, data = data[:room], data[room:]
            self._pending += len(piece)
            super().data_received(piece)
            if self.transport.is_closing():
                return

    def on_headers_complete(self) -> None:
        self._pending = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._pending = 0
        super().on_message_complete()

    def _refuse(self) -> None:
        # An answer in progress must not be mixed with this one.
        if self.cycle is None or self.cycle.response_complete:
            error = ApiError(
                431, f"The head of a request must have at most {_HEAD_BYTES:,} bytes.", code="headers_too_large"
            )
            body = error.body()
            head = "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: application/json\r\n"
            self.transport.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        self.transport.close()


def uvicorn_config(settings: ServeSettings, app: Any, *, factory: bool = False) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_BoundedHead,
        factory=factory,
        workers=settings.workers,
        log_config=None,
        access_log=False,  # its lines quote paths and query strings of clients
        lifespan="on",
        ws="none",
        server_header=False,
        proxy_headers=False,  # client addresses are not used; forwarded ones can be forged
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(settings.limits.shutdown_seconds),
        timeout_worker_healthcheck=_HEALTHCHECK_SECONDS,
    )


def _host_names(settings: ServeSettings) -> frozenset[str] | None:
    """Return the accepted values of the header Host, or None for any."""
    own = {"127.0.0.1", "localhost", "[::1]", settings.host.lower()}
    if settings.host_names is not None:
        return frozenset(own | {name.strip().lower() for name in settings.host_names.split(",")})
    # The check guards keyless local servers against DNS rebinding; with keys, a web page lacks the key.
    return frozenset(own) if settings.is_local and settings.api_keys is None else None
