"""The application: OpenAI's routes, health and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from vecveil.errors import MissingDependencyError
from vecveil.serving.api_keys import ApiKeys
from vecveil.serving.body import read_body, unless_gone
from vecveil.serving.errors import INVALID, ApiError, invalid
from vecveil.serving.guard import App, Guard, Receive, Scope, Send
from vecveil.serving.requests import POLICY_HEADER, SIDE_HEADER, parse_request, split_side
from vecveil.serving.service import ServedPolicy, Service

if TYPE_CHECKING:
    from fastapi import APIRouter, FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["create_app"]

_HEALTH = "/health"
_EMBEDDINGS = "/v1/embeddings"
_OURS = (POLICY_HEADER.encode(), SIDE_HEADER.encode())


def create_app(
    service: Service,
    *,
    keys: ApiKeys | None = None,
    routers: Sequence[APIRouter] = (),
    open_paths: Iterable[str] = (),
    hosts: frozenset[str] | None = None,
) -> App:
    """Return the ASGI application.

    Args:
        service: that answers; it is closed with the application.
        keys: of which a client must show one as a bearer token; None lets everybody in.
        routers: further routes, such as a page at ``/``. What they answer is theirs: hand in none that shows clean
            vectors.
        hosts: names that the header Host may have; None takes any, see `Guard`.
        open_paths: paths that need no key, besides ``/health``: a page that a browser opens cannot show one.

    Raises:
        MissingDependencyError: FastAPI is not installed.
    """
    try:
        from fastapi import FastAPI
        from fastapi.exceptions import RequestValidationError
        from starlette.exceptions import HTTPException
    except ImportError as error:
        raise MissingDependencyError("Serving", "fastapi", "serve") from error

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.aclose()

    quiet: Any = dict.fromkeys(
        ("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False
    )
    app = FastAPI(
        title="vecveil",
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        # FastAPI's own telemetry records messages of exceptions and what a client sent; older ones ignore this.
        telemetry=quiet,
    )
    routes = _Routes(service)
    app.add_route(_EMBEDDINGS, routes.not_here, methods=["POST"])  # so that other methods are told
    app.add_route("/v1/models", routes.models, methods=["GET"])
    app.add_route("/v1/models/{model:path}", routes.model, methods=["GET"])
    app.add_route(_HEALTH, routes.health, methods=["GET"])
    app.add_route("/metrics", routes.figures, methods=["GET"])
    for router in routers:
        app.include_router(router)
    app.add_exception_handler(HTTPException, _as_api_error)
    app.add_exception_handler(RequestValidationError, _as_api_error)
    guarded: dict[str, Any] = {
        "service": service,
        "keys": keys,
        "open_paths": frozenset({_HEALTH, *open_paths}),
        "hosts": hosts,
    }
    app.add_middleware(Guard, **guarded)
    # The framework's own layers would cost embeddings as much again as protecting them does.
    embeddings = Guard(_Embeddings(service), **guarded)

    async def front(scope: Scope, receive: Receive, send: Send) -> None:
        asked = scope["type"] == "http" and scope["path"] == _EMBEDDINGS
        await (embeddings if asked and scope["method"] == "POST" else app)(scope, receive, send)

    return front


async def _as_api_error(request: Request, error: Exception) -> Response:
    """Raise the framework's own errors on to the guard, in our words: theirs may repeat what was sent."""
    status = int(getattr(error, "status_code", 400))
    known = {
        404: ("There is no such path; embeddings are at POST /v1/embeddings.", "unknown_path"),
        405: ("The path does not take this method.", "method_not_allowed"),
        413: ("The body is too large.", "body_too_large"),
    }
    text, code = known.get(status, ("The request is not valid.", "invalid_request"))
    raise ApiError(status, text, kind=INVALID, code=code) from None


class _Embeddings:
    """``POST /v1/embeddings``."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service = self._service
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        ours = [name for name, _ in scope["headers"] if name in _OURS]
        if len(ours) > len(set(ours)):  # a gateway in front may have looked at another of them
            raise invalid(
                "The headers X-Vecveil-Policy and X-Vecveil-Input must be given once.",
                code="invalid_header",
            )
        body = await read_body(receive, headers, service.limits)
        asked = parse_request(
            body, headers, max_inputs=service.limits.inputs, client_ids=service.client_ids
        )
        answer = await unless_gone(receive, service.answer(asked, headers))
        said = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(answer)).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": said})
        await send({"type": "http.response.body", "body": answer})
        await asyncio.sleep(0)  # it leaves before the request is counted and logged


class _Routes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def not_here(self, request: Request) -> Response:
        raise ApiError(
            500, "Something unexpected failed; nothing was released.", code="internal_error"
        )

    async def models(self, request: Request) -> Response:
        listed = [self._model(one) for one in self._service.policies.values()]
        return _json({"object": "list", "data": listed})

    async def model(self, request: Request) -> Response:
        name, _ = split_side(request.path_params["model"])
        found = self._service.policies.get(name)
        if found is None:
            raise ApiError(
                404, "There is no such model; GET /v1/models lists them.", code="model_not_found"
            )
        return _json(self._model(found))

    def _model(self, one: ServedPolicy) -> dict[str, Any]:
        return {
            "id": one.name,
            "object": "model",
            "created": self._service.created,
            "owned_by": "vecveil",
            "vecveil": {
                "method": one.policy.protector.method,
                "dimensions": one.policy.protector.released_dimension,
                "query_protection": one.policy.query_protection,
                "keyed": one.policy.key is not None,
            },
        }

    async def health(self, request: Request) -> Response:
        """Say that the process answers; how many upstreams have been checked is beside it."""
        total = len(self._service.policies)
        return _json({"status": "ok", "policies": total, "checked": self._service.checked})

    async def figures(self, request: Request) -> Response:
        from starlette.responses import Response

        metrics = self._service.metrics
        return Response(metrics.text(), headers={"content-type": metrics.content_type})


def _json(content: Any) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(content)
