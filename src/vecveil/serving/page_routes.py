"""A page at ``/`` on which people see what an attacker reads of a few texts, before and after protection.

The files of the page lie in the folder ``page`` beside this module. Who guesses is handed in by the command: serving
knows no attacks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol

from vecveil.serving.body import read_body
from vecveil.serving.checking import EncoderCheck
from vecveil.serving.errors import ApiError, invalid
from vecveil.serving.page_jobs import PageJobs, Report
from vecveil.serving.page_protectors import Offered, ProtectorShelf
from vecveil.serving.page_requests import JobRequest, PageLimits, parse_job
from vecveil.serving.settings import Limits
from vecveil.types import Embeddings

if TYPE_CHECKING:
    from fastapi import APIRouter
    from starlette.requests import Request
    from starlette.responses import Response

    from vecveil.protector import Protector
    from vecveil.serving.upstream import Upstream

__all__ = ["PAGE_OPEN_PATHS", "PageTexts", "PreviewFunction", "page_router"]

Encode = Callable[[Sequence[str]], Embeddings]

PAGE_OPEN_PATHS = ("/", "/page/page.css", "/page/page.js")
"""What a browser must get before its user can type a key; they hold nothing of the server."""
_FILES = {"/": ("index.html", "text/html"), "/page/page.css": ("page.css", "text/css"),
          "/page/page.js": ("page.js", "text/javascript")}  # fmt: skip
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_ENCODING_SECONDS = 120.0


class PreviewFunction(Protocol):
    """Guesses, on a thread of its own; returns what the page draws, JSON-ready and without the texts."""

    def __call__(
        self,
        protector: Protector,
        texts: Sequence[str],
        words: Sequence[str],
        *,
        encode: Encode,
        encoder: str,
        report: Report,
    ) -> dict[str, Any]:
        """Return the guesses; ``report`` is called between steps and raises to end the work."""
        ...


@dataclass(frozen=True, repr=False)
class PageTexts:
    """What the page is filled with at first.

    Attributes:
        words: to guess.
        samples: texts to guess of.
        background: what attackers learn from, in a few words: "400 of ...".
    """

    words: Sequence[str]
    samples: Sequence[str]
    background: str


def page_router(
    served: Mapping[str, tuple[Protector, Upstream]],
    preview: PreviewFunction,
    texts: PageTexts,
    *,
    limits: PageLimits | None = None,
    server_limits: Limits | None = None,
) -> APIRouter:
    """Return the routes of the page: ``/``, and what it asks for under ``/page/``.

    Args:
        served: protectors by the names of their policies, with the upstreams that encode for them.
        preview: guesses.
        texts: words and texts that the page is filled with.
        limits: of texts, words and files.
        server_limits: of the time that a body may take.
    """
    from fastapi import APIRouter

    page = _Page(served, preview, texts, limits or PageLimits(), server_limits or Limits())
    router = APIRouter()
    for path in _FILES:
        router.add_route(path, page.file, methods=["GET"])
    router.add_route("/page/state", page.state, methods=["GET"])
    router.add_route("/page/protectors", page.load, methods=["POST"])
    router.add_route("/page/protectors/{id}", page.forget, methods=["DELETE"])
    router.add_route("/page/jobs", page.start, methods=["POST"])
    router.add_route("/page/jobs/{id}", page.poll, methods=["GET"])
    router.add_route("/page/jobs/{id}", page.cancel, methods=["DELETE"])
    return router


class _Page:
    def __init__(
        self,
        served: Mapping[str, tuple[Protector, Upstream]],
        preview: PreviewFunction,
        texts: PageTexts,
        limits: PageLimits,
        server_limits: Limits,
    ) -> None:
        self._shelf = ProtectorShelf(served, most=limits.files)
        self._jobs = PageJobs()
        self._loading = False
        self._preview, self._texts, self._limits = preview, texts, limits
        self._bodies = server_limits
        folder = files("vecveil.serving").joinpath("page")
        self._files = {
            path: (folder.joinpath(name).read_bytes(), kind)
            for path, (name, kind) in _FILES.items()
        }

    async def file(self, request: Request) -> Response:
        from starlette.responses import Response

        content, kind = self._files[request.url.path]
        return Response(content, media_type=kind, headers=_HEADERS)

    async def state(self, request: Request) -> Response:
        """Answer what the page is filled with."""
        _refuse_other_sites(request)
        limits = self._limits
        return _json(
            {
                "protectors": [one.describe() for one in self._shelf.served()],
                "words": list(self._texts.words),
                "samples": list(self._texts.samples),
                "background": self._texts.background,
                "limits": {
                    "texts": limits.texts,
                    "text_characters": limits.text_characters,
                    "words": limits.words,
                    "word_characters": limits.word_characters,
                    "file_bytes": limits.file_bytes,
                },
            }
        )

    async def load(self, request: Request) -> Response:
        """Take a protector's file; nothing in it is run, and its encoder is never loaded."""
        if self._loading:  # each takes memory, and a large one a processor for a while
            raise ApiError(
                429,
                "Another file is being loaded. Try again in a few seconds.",
                kind="rate_limit_error",
                code="page_busy",
                retry_after=5,
            )
        self._loading = True
        try:
            return await self._load(request)
        finally:
            self._loading = False

    async def _load(self, request: Request) -> Response:
        content = await self._body(request, "application/octet-stream", self._limits.file_bytes)
        name = request.headers.get("x-file-name", "")[:80]
        shown = "".join(c for c in name if c.isascii() and (c.isalnum() or c in " ._-")) or "file"
        # What is said of it is computed from n × n numbers: not on the thread that serves.
        told = await asyncio.to_thread(lambda: self._shelf.add(content, shown).describe())
        return _json(told, status=201)

    async def forget(self, request: Request) -> Response:
        """Drop a loaded protector."""
        _refuse_other_sites(request)
        self._shelf.remove(request.path_params["id"])
        return _json({})

    async def start(self, request: Request) -> Response:
        """Start a job."""
        body = await self._body(request, "application/json", self._limits.job_bytes)
        asked = parse_job(body, self._limits)
        one = self._shelf.get(asked.protector)
        job = self._jobs.start(self._work(one, asked, dict(request.headers)))
        return _json({"id": job.id}, status=202)

    async def poll(self, request: Request) -> Response:
        """Answer how far a job is; its result is told once."""
        _refuse_other_sites(request)
        return _json(self._jobs.poll(request.path_params["id"]))

    async def cancel(self, request: Request) -> Response:
        """Stop a job."""
        _refuse_other_sites(request)
        self._jobs.cancel(request.path_params["id"])
        return _json({})

    def _work(
        self, one: Offered, asked: JobRequest, headers: Mapping[str, str]
    ) -> Callable[[Report], dict[str, Any]]:
        loop = asyncio.get_running_loop()
        check = EncoderCheck("page", one.protector, one.upstream)

        async def vectors(texts: list[str]) -> Embeddings:
            await check.ensure(one.model, headers)
            encoded = await one.upstream.embed(
                texts, model=one.model, dimension=one.protector.dimension, headers=headers
            )
            return encoded.vectors

        def encode(texts: Sequence[str]) -> Embeddings:
            # Through the upstream, in turn with the requests that are served.
            future = asyncio.run_coroutine_threadsafe(vectors(list(texts)), loop)
            return future.result(timeout=_ENCODING_SECONDS)

        known = one.protector.encoder_info.fingerprint
        return lambda report: self._preview(
            one.protector,
            asked.texts,
            asked.words,
            encode=encode,
            encoder=f"{one.upstream.name} {one.model} {known}",
            report=report,
        )

    async def _body(self, request: Request, kind: str, most: int) -> bytes:
        _refuse_other_sites(request)
        given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if given != kind:
            text = f"The header Content-Type must be {kind}."
            raise invalid(text, code="invalid_content_type", status=415)
        headers = {
            "content-type": "application/json",  # ours is checked
            "content-length": request.headers.get("content-length", "0"),
        }
        return await read_body(request.receive, headers, replace(self._bodies, body_bytes=most))


def _refuse_other_sites(request: Request) -> None:
    """Refuse what another site's page asks for through the user's browser."""
    if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise ApiError(403, "The request comes from another site.", code="other_site")


def _json(content: Any, *, status: int = 200) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(content, status_code=status, headers=_HEADERS)
