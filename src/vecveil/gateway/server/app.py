"""Build the ASGI application: OpenAI's routes, health and metrics, behind one guard."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from vecveil.errors import MissingDependencyError
from vecveil.gateway.server.errors import ApiError, ClientGone, api_error_of
from vecveil.gateway.server.monitoring import event
from vecveil.gateway.server.requests import (
    Admission,
    ApiKeys,
    RateLimit,
    headers_of,
    parse_request,
    parse_rerank,
    read_body,
    split_side,
)
from vecveil.gateway.server.service import ServedPolicy, Service
from vecveil.gateway.server.vector_stores import parse_search
from vecveil.index.audit_log import AuditEntry

try:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route, Router
except ImportError:
    raise MissingDependencyError("Serving", "starlette", "serve") from None

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

T = TypeVar("T")

_RERANK = ("/v1/rerank", "/v2/rerank")  # Jina's and Cohere's; Cohere's second version has no return_documents
_STORES = "/v1/vector_stores"
_ROUTES = ("/v1/embeddings", "/v1/models", "/health", "/ready", "/metrics", _STORES, *_RERANK)
_STORE = re.compile(rf"{_STORES}/[^/]+(/search)?")
_CLIENT_GONE = 499  # nginx's status for a client that closed the connection; appears in logs only


def create_app(
    service: Service,
    *,
    keys: ApiKeys | None = None,
    routers: Sequence[Router] = (),
    open_paths: Iterable[str] = (),
    hosts: frozenset[str] | None = None,
) -> Starlette:
    """Return the ASGI application.

    Args:
        service: service behind the routes; closed with the application.
        keys: accepted bearer tokens with their grants; None admits everybody, and lets them seal and rank if the
            service has a sealer.
        routers: further routes, such as a page at ``/``. They must not answer with clean vectors.
        open_paths: further paths that need no key, such as a page that a browser opens.
        hosts: accepted values of the header Host; see `Admission`.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.aclose()

    routes = _Routes(service)
    ranks = bool(service.policies) and service.sealer is not None
    admission = Admission(service.limits, keys, frozenset({"/health", "/ready", *open_paths}), hosts)
    app = Starlette(
        routes=[
            *([Route("/v1/embeddings", routes.embeddings, methods=["POST"])] if service.policies else ()),
            *(Route(path, routes.rerank, methods=["POST"]) for path in _RERANK if ranks),
            *(routes.of_stores() if service.stores else ()),
            Route("/v1/models", routes.models, methods=["GET"]),
            Route("/v1/models/{model:path}", routes.model, methods=["GET"]),
            Route("/health", routes.health, methods=["GET"]),
            Route("/ready", routes.ready, methods=["GET"]),
            Route("/metrics", routes.metrics, methods=["GET"]),
            *(route for router in routers for route in router.routes),
        ],
        # Starlette runs this inside its own error page, which could show a traceback, and outside routing.
        middleware=[Middleware(_Guard, service, admission)],
        exception_handlers={HTTPException: _as_api_error},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # a redirect repeats the client's Host, and http behind TLS
    return app


def _as_api_error(request: Request, error: Exception) -> Response:
    """Raise the framework's error as an `ApiError`, because its own text may repeat the request."""
    status = getattr(error, "status_code", 400)
    texts = {
        404: ("There is no such path on this server.", "unknown_path"),
        405: ("The path does not take this method.", "method_not_allowed"),
    }
    text, code = texts.get(status, ("The request is not valid.", "invalid_request"))
    raise ApiError(status, text, code=code)


class _Guard:
    """Middleware: admission, request id, error answers in OpenAI's shape, metrics, one log line."""

    def __init__(self, app: ASGIApp, service: Service, admission: Admission) -> None:
        self._app, self._service, self._admission = app, service, admission
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # lifespan events; uvicorn runs with ws="none"
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        # A fixed set: a client must not create metric labels, nor write its path into the log.
        route = _route(scope["path"])
        # Never taken from a client's header, which could inject text into the log.
        request_id = f"req-{secrets.token_hex(12)}"
        metrics = self._service.metrics
        status = 0
        fields: dict[str, Any] = {}

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        self._running += 1  # the limit counts this process, the gauge all processes
        metrics.running.inc()
        try:
            scope["vecveil.client"] = self._admission.check(scope, running=self._running)
            scope["vecveil.log"] = fields
            await self._app(scope, receive, answer)
        except ClientGone:
            status, fields["code"] = _CLIENT_GONE, "client_gone"
            metrics.errors.labels("client_gone").inc()
        except Exception as error:
            shown = api_error_of(error)
            fields["code"] = shown.code
            metrics.errors.labels(shown.code).inc()
            # The exception's type alone: its message may contain data.
            if shown.status >= 500 and not isinstance(error, ApiError):
                name = type(error).__name__
                event("failed", level=logging.ERROR, id=request_id, code=shown.code, exception=name)
            # The head of the answer is sent: only closing the connection can still signal the failure.
            if status:
                raise ConnectionAbortedError from None
            # The clients of Jina in LangChain and LlamaIndex show this member alone.
            detail = {"detail": shown.text} if route in _RERANK else {}
            await _send(answer, shown.status, shown.headers(), shown.body(**detail))
        finally:
            self._running -= 1
            metrics.running.dec()
            seconds = time.perf_counter() - started
            metrics.requests.labels(route, str(status)).inc()
            metrics.seconds.labels(route).observe(seconds)
            method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD") else "other"
            event(
                "request",
                id=request_id,
                method=method,
                route=route,
                status=status,
                ms=round(1000 * seconds, 2),
                **fields,
            )


def _route(path: str) -> str:
    if store := _STORE.fullmatch(path):
        return f"{_STORES}/{{name}}{store[1] or ''}"
    return path if path in _ROUTES else "other"


async def _send(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _Routes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._reranks = RateLimit(service.limits.reranks_per_minute)
        self._searches = RateLimit(service.limits.searches_per_minute, "search")

    async def embeddings(self, request: Request) -> Response:
        service, limits = self._service, self._service.limits
        headers = headers_of(request.scope)
        body = await read_body(request.receive, headers, limits)
        parsed = parse_request(body, headers, max_inputs=limits.inputs, client_ids=service.client_ids)
        # The body is read: the next message can only be a disconnect.
        work = service.answer(parsed, headers, request.scope["vecveil.client"])
        answer = await unless_gone(request.receive, work)
        return Response(answer, media_type="application/json")

    async def rerank(self, request: Request) -> Response:
        service, limits = self._service, self._service.limits
        client, log = request.scope["vecveil.client"], request.scope["vecveil.log"]
        log["api_key"] = client.number
        self._reranks.take(client)
        headers = headers_of(request.scope)
        body = await read_body(request.receive, headers, limits)
        parsed = parse_rerank(body, headers, limits)
        log["documents"] = len(parsed.ids)
        answer = await unless_gone(request.receive, service.rerank(parsed, headers, client))
        return Response(answer, media_type="application/json")

    def of_stores(self) -> list[Route]:
        return [
            Route(_STORES, self.stores, methods=["GET"]),
            Route(f"{_STORES}/{{name}}", self.store, methods=["GET"]),
            Route(f"{_STORES}/{{name}}/search", self.search, methods=["POST"]),
        ]

    async def search(self, request: Request) -> Response:
        stores, client, log = self._service.stores, request.scope["vecveil.client"], request.scope["vecveil.log"]
        log["api_key"] = client.number
        self._searches.take(client)

        async def search(entry: AuditEntry) -> bytes:
            served = stores.of(request.path_params["name"], client)
            log["index"] = served.name
            headers = headers_of(request.scope)
            body = await read_body(request.receive, headers, self._service.limits)
            parsed = await asyncio.to_thread(parse_search, body)  # filters may be large
            return await unless_gone(request.receive, stores.search(served, parsed, headers, entry))

        answer = await stores.logged("search", request.path_params["name"], client, search)
        return Response(answer, media_type="application/json")

    async def stores(self, request: Request) -> Response:
        return JSONResponse(await self._service.stores.listed(request.scope["vecveil.client"]))

    async def store(self, request: Request) -> Response:
        client = request.scope["vecveil.client"]
        return JSONResponse(await self._service.stores.described(request.path_params["name"], client))

    async def models(self, request: Request) -> Response:
        listed = [self._describe(served) for served in self._service.policies.values()]
        return JSONResponse({"object": "list", "data": listed})

    async def model(self, request: Request) -> Response:
        name, _ = split_side(request.path_params["model"])
        if name not in self._service.policies:
            raise ApiError(404, "There is no such model; GET /v1/models lists them.", code="model_not_found")
        return JSONResponse(self._describe(self._service.policies[name]))

    def _describe(self, served: ServedPolicy) -> dict[str, Any]:
        return {
            "id": served.name,
            "object": "model",
            "created": self._service.created,
            "owned_by": "vecveil",
            "vecveil": {
                "method": served.policy.protector.method,
                "dimensions": served.policy.protector.released_dimension,
                "query_noise": float(served.policy.query_noise),
                "keyed": served.policy.key is not None,
            },
        }

    async def health(self, request: Request) -> Response:
        total = len(self._service.policies)
        return JSONResponse({"status": "ok", "policies": total, "checked": self._service.checked})

    async def ready(self, request: Request) -> Response:
        await self._service.stores.check()
        return JSONResponse({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        if request.scope["vecveil.client"].filters:  # they show the work for other clients, and its time
            raise ApiError(404, "There is no such path on this server.", code="unknown_path")
        metrics = self._service.metrics
        return Response(metrics.text(), headers={"content-type": metrics.content_type})


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``; cancel it and raise `ClientGone` when the client disconnects."""

    async def disconnected() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(disconnected())
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:  # also when a shutdown cancels this task
        gone.cancel()
        working.cancel()
        # Wait for the cancellation: the work must not outlive the request it belongs to.
        await asyncio.wait({working})
