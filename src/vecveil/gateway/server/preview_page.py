"""The page at ``/``: show what an attack recovers from a few texts, before and after protection.

The folder ``page`` contains its HTML, CSS and JavaScript. The CLI passes in the attack, which this package must not
import. Loaded protectors and the single job stay in memory.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from vecveil.errors import InvalidInputError, MissingDependencyError, ProtectorFileError, VecveilError
from vecveil.gateway.server.errors import RATE_LIMIT, ApiError
from vecveil.gateway.server.monitoring import event
from vecveil.gateway.server.requests import is_unicode, parse_object, read_body
from vecveil.gateway.server.settings import Limits
from vecveil.gateway.server.upstreams import Upstream, VerifiedUpstream
from vecveil.privacy.protector import Protector, load
from vecveil.types import Embeddings
from vecveil.validation import check_count

try:
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route, Router
except ImportError:
    raise MissingDependencyError("Serving", "starlette", "serve") from None

Encode = Callable[[Sequence[str]], Embeddings]
Report = Callable[[float, str], None]
"""``report(share, what)``: called between the steps of a job; raises to end it."""
PreviewFunction = Callable[..., dict[str, Any]]
"""``preview(protector, texts, words, *, encode, encoder, report)``: return the attack's result as JSON."""

_FILES = {
    "/": ("index.html", "text/html"),
    "/page/page.css": ("page.css", "text/css"),
    "/page/page.js": ("page.js", "text/javascript"),
}
PAGE_OPEN_PATHS = tuple(_FILES)
"""Static files, served without a key: the user enters the key on the page."""
# No inline or foreign script may run: injected text could otherwise read the key and the texts.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",  # keep results out of the browser's disk cache
}
_ENCODING_SECONDS = 120.0


@dataclass(frozen=True, repr=False)
class PageTexts:
    """Initial content of the page: candidate words, texts to attack, description of the attacker's training texts."""

    words: Sequence[str]
    samples: Sequence[str]
    background: str


@dataclass(frozen=True)
class PageLimits:
    """Limits of the page: texts and words of a job, bytes of a protector's file, and files to keep in memory."""

    texts: int = 20
    text_characters: int = 2000
    words: int = 200
    word_characters: int = 60
    file_bytes: int = 64 * 2**20
    files: int = 4

    def __post_init__(self) -> None:
        for param, value in vars(self).items():
            check_count(value, owner="page limits", param=param)

    @property
    def job_bytes(self) -> int:
        # JSON escapes a character beyond the BMP as two \uXXXX: 12 bytes. 4,096 for the syntax.
        return 12 * (self.texts * self.text_characters + self.words * self.word_characters) + 4096


@dataclass(frozen=True, repr=False)
class JobRequest:
    """Protector id, texts to attack, candidate words."""

    protector: str
    texts: tuple[str, ...]
    words: tuple[str, ...]


def parse_job(body: bytes, limits: PageLimits) -> JobRequest:
    content = parse_object(body)
    protector = content.get("protector")
    if not isinstance(protector, str) or not 0 < len(protector) <= 200:
        raise ApiError(400, "Choose a protector.", code="no_protector", param="protector")
    texts = _lines(content, "texts", 1, limits.texts, limits.text_characters)
    # At least two words: a guess among one is always right.
    return JobRequest(protector, texts, _lines(content, "words", 2, limits.words, limits.word_characters))


def _lines(content: dict[str, Any], name: str, fewest: int, most: int, longest: int) -> tuple[str, ...]:
    def refuse(text: str) -> ApiError:
        return ApiError(400, text, code=f"invalid_{name}", param=name)

    value = content.get(name)
    if not isinstance(value, list) or not all(isinstance(line, str) for line in value):
        raise refuse(f"`{name}` must be a list of strings.")
    lines = tuple(line.strip() for line in value if line.strip())
    if not fewest <= len(lines) <= most:
        raise refuse(f"Give {fewest} to {most} {name}, one a line; there are {len(lines)}.")
    for i, line in enumerate(lines, 1):
        if len(line) > longest:
            raise refuse(f"Line {i} of the {name} has {len(line)} characters; {longest} are the most.")
        if not is_unicode(line):
            raise refuse(f"Line {i} of the {name} is not valid Unicode.")
    return lines


class _StoppedError(Exception):
    """Raised inside a job's work to end it."""


@dataclass(eq=False, repr=False)
class PreviewJob:
    id: str
    state: Literal["running", "done", "failed", "cancelled"] = "running"
    share: float = 0.0
    what: str = "waiting"
    result: dict[str, Any] | None = None
    error: str | None = None
    code: str | None = None
    polled: float = field(default_factory=time.monotonic)
    stop: bool = False

    def describe(self) -> dict[str, Any]:
        shown = ("id", "state", "share", "what", "error", "code", "result")
        return {name: getattr(self, name) for name in shown}


class PreviewJobs:
    """Runs one job at a time on a thread and keeps its result until it is fetched or expires.

    ``abandoned`` seconds without a poll stop a job; ``kept`` seconds later an unfetched result is dropped.
    """

    def __init__(self, *, abandoned: float = 150.0, kept: float = 300.0) -> None:
        # The default for `abandoned` exceeds 60 s: browsers throttle the timers of hidden pages to one a minute.
        self._abandoned, self._kept = abandoned, kept
        self._lock = threading.Lock()
        self._job: PreviewJob | None = None
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[Report], dict[str, Any]]) -> PreviewJob:
        """Start ``work`` and return its job; raise `ApiError` 429 if another job is running."""
        with self._lock:
            # The thread, not the job's state: a cancelled job works on until its next report.
            if self._thread is not None and self._thread.is_alive():
                raise _busy("Another preview is running on this server, which does one at a time.")
            job = self._job = PreviewJob(secrets.token_urlsafe(16))
            self._thread = threading.Thread(target=self._run, args=(job, work), name="vecveil-page", daemon=True)
            self._thread.start()
        return job

    def poll(self, id: str) -> dict[str, Any]:
        """Return a job's state, and drop an ended job; raise `ApiError` 404 if there is none."""
        with self._lock:
            job = self._find(id)
            job.polled = time.monotonic()
            if job.state != "running":
                self._job = None
            return job.describe()

    def cancel(self, id: str) -> None:
        """Stop a job at its next report and drop its result; raises as `poll`."""
        with self._lock:
            job = self._find(id)
            job.stop = True
            if job.state != "running":
                self._job = None

    def _find(self, id: str) -> PreviewJob:
        if self._job is None or self._job.id != id:
            raise ApiError(404, "There is no such job, or its result was fetched or has expired.", code="no_such_job")
        return self._job

    def _run(self, job: PreviewJob, work: Callable[[Report], dict[str, Any]]) -> None:
        def report(share: float, what: str) -> None:
            if job.stop or time.monotonic() - job.polled > self._abandoned:
                raise _StoppedError
            job.share, job.what = share, what

        try:
            result = work(report)
            report(1.0, "done")  # raises if the job was cancelled in its last step
            job.result, job.state = result, "done"  # state last: `poll` reads without waiting for this thread
        except _StoppedError:
            job.state = "cancelled"
        except ApiError as error:
            job.error, job.code, job.state = error.text, error.code, "failed"
        except VecveilError as error:
            job.error, job.state = str(error), "failed"
        except Exception as error:  # the message may quote a text
            job.error, job.state = "Something unexpected failed.", "failed"
            event("preview failed", level=logging.ERROR, exception=type(error).__name__)
        # A result contains recovered words: do not keep it for a visitor who has left.
        timer = threading.Timer(self._kept, self._drop, (job,))
        timer.daemon = True
        timer.start()

    def _drop(self, job: PreviewJob) -> None:
        with self._lock:
            if self._job is job:
                self._job = None


def _busy(text: str) -> ApiError:
    return ApiError(429, f"{text} Try again in a few seconds.", kind=RATE_LIMIT, code="page_busy", retry_after=5)


@dataclass(frozen=True, eq=False, repr=False)
class PageProtector:
    """A protector on the page and the upstream of its clean vectors.

    ``id`` is the policy name of a served protector, and random and secret for an uploaded one.
    """

    id: str
    name: str
    protector: Protector
    upstream: Upstream
    model: str
    served: bool

    def describe(self) -> dict[str, Any]:
        protector, guarantee = self.protector, self.protector.guarantee
        return {
            "id": self.id,
            "name": self.name,
            "served": self.served,
            "method": protector.method,
            "concept": protector.concept,
            "encoder": protector.encoder_info.name,
            "encoder_known": protector.encoder_info.fingerprint is not None,
            "dimension": protector.dimension,
            "kind": guarantee.kind,
            "statement": guarantee.statement,
            "guarantee": str(guarantee),
        }


class _Shelf:
    """Served protectors, and the last ``most`` uploaded by visitors, which are not listed."""

    def __init__(self, served: Mapping[str, tuple[Protector, Upstream]], most: int) -> None:
        self.served = {}
        for name, (protector, upstream) in served.items():
            # For an upstream that takes models: the fitted model, from an encoder name "URL#MODEL".
            _, _, model = str(protector.encoder_info.name or "").partition("#")
            self.served[name] = PageProtector(name, name, protector, upstream, model or name, served=True)
        self._loaded: OrderedDict[str, PageProtector] = OrderedDict()
        self._most = most

    def get(self, id: str) -> PageProtector:
        """Return a protector; raise ApiError 404 for an unknown id."""
        protector = self._loaded.get(id) or self.served.get(id)
        if protector is None:
            text = "There is no such protector on this server; load the file again."
            raise ApiError(404, text, code="no_such_protector")
        return protector

    def add(self, content: bytes, name: str) -> PageProtector:
        """Load and return the protector in ``content`` without executing any of it; its encoder must be served."""
        protector = _read(content)
        partner = self._partner(protector)
        id = secrets.token_urlsafe(16)  # unguessable: anyone who knows it may use the protector
        added = PageProtector(id, name, protector, partner.upstream, partner.model, served=False)
        self._loaded[id] = added
        while len(self._loaded) > self._most:
            self._loaded.popitem(last=False)
        return added

    def remove(self, id: str) -> None:
        self._loaded.pop(id, None)

    def _partner(self, protector: Protector) -> PageProtector:
        # Never load an encoder by the name in an uploaded file: it may be any folder or URL.
        info = protector.encoder_info
        for served in self.served.values():
            own = served.protector.encoder_info.fingerprint
            # Without fingerprints the dimension decides here; the probe still verifies before encoding.
            same = None in (info.fingerprint, own) or info.fingerprint == own
            if same and served.protector.dimension == protector.dimension:
                return served
        names = sorted({str(one.protector.encoder_info.name or "unnamed") for one in self.served.values()})
        raise ApiError(
            400,
            f"The protector is for a different encoder ({info.name or 'unnamed'}, {protector.dimension} "
            f"dimensions) than this server has ({', '.join(names)}). Start a server with that protector "
            "and encoder.",
            code="another_encoder",
        )


def _read(content: bytes) -> Protector:
    # The reader needs a path; the file is readable by this user alone and removed before the answer.
    with tempfile.TemporaryDirectory(prefix="vecveil-page-") as folder:
        path = Path(folder) / "protector.vecveil"
        path.touch(mode=0o600)
        path.write_bytes(content)
        try:
            return load(path)
        except ProtectorFileError:
            text = "The file is not a protector, or it is damaged, truncated or of a later version."
        except (InvalidInputError, OSError, MemoryError):
            text = "The file could not be loaded."
    raise ApiError(400, text, code="not_a_protector")


def page_router(
    served: Mapping[str, tuple[Protector, Upstream]],
    preview: PreviewFunction,
    texts: PageTexts,
    *,
    limits: PageLimits | None = None,
    server_limits: Limits | None = None,
) -> Router:
    """Return the routes of the page: ``/``, and its API under ``/page/``.

    ``served`` has protectors and their upstreams by policy name, ``preview`` is the attack, ``texts`` the initial
    content, and ``server_limits`` the time limit for bodies.
    """
    page = _Page(served, preview, texts, limits or PageLimits(), server_limits or Limits())
    return Router(
        [
            *(Route(path, page.file, methods=["GET"]) for path in _FILES),
            Route("/page/state", page.state, methods=["GET"]),
            Route("/page/protectors", page.load, methods=["POST"]),
            Route("/page/protectors/{id}", page.forget, methods=["DELETE"]),
            Route("/page/jobs", page.start, methods=["POST"]),
            Route("/page/jobs/{id}", page.poll, methods=["GET"]),
            Route("/page/jobs/{id}", page.cancel, methods=["DELETE"]),
        ]
    )


class _Page:
    def __init__(
        self,
        served: Mapping[str, tuple[Protector, Upstream]],
        preview: PreviewFunction,
        texts: PageTexts,
        limits: PageLimits,
        server_limits: Limits,
    ) -> None:
        self._shelf = _Shelf(served, limits.files)
        self._jobs = PreviewJobs()
        self._loading = False
        self._preview, self._texts, self._limits = preview, texts, limits
        self._server_limits = server_limits
        folder = files("vecveil.gateway.server").joinpath("page")
        self._files = {path: (folder.joinpath(name).read_bytes(), kind) for path, (name, kind) in _FILES.items()}

    async def file(self, request: Request) -> Response:
        content, kind = self._files[request.url.path]
        return Response(content, media_type=kind, headers=_HEADERS)

    async def state(self, request: Request) -> Response:
        _refuse_other_sites(request)
        limits = {name: value for name, value in vars(self._limits).items() if name != "files"}
        return _json(
            {
                "protectors": [protector.describe() for protector in self._shelf.served.values()],
                "words": list(self._texts.words),
                "samples": list(self._texts.samples),
                "background": self._texts.background,
                "limits": limits,
            }
        )

    async def load(self, request: Request) -> Response:
        if self._loading:  # one at a time bounds memory and processor use
            raise _busy("Another file is being loaded.")
        self._loading = True  # no await since the check, so no other request comes between
        try:
            content = await self._body(request, "application/octet-stream", self._limits.file_bytes)
            # Shown on the page: reduced to harmless characters.
            given = request.headers.get("x-file-name", "")[:80]
            name = "".join(c for c in given if c.isascii() and (c.isalnum() or c in " ._-")) or "file"
            # On a thread: the guarantee is computed from n × n matrices.
            described = await asyncio.to_thread(lambda: self._shelf.add(content, name).describe())
            return _json(described, status=201)
        finally:
            self._loading = False

    async def forget(self, request: Request) -> Response:
        _refuse_other_sites(request)
        self._shelf.remove(request.path_params["id"])
        return _json({})

    async def start(self, request: Request) -> Response:
        body = await self._body(request, "application/json", self._limits.job_bytes)
        parsed = parse_job(body, self._limits)
        protector = self._shelf.get(parsed.protector)
        job = self._jobs.start(self._work(protector, parsed, dict(request.headers)))
        return _json({"id": job.id}, status=202)

    async def poll(self, request: Request) -> Response:
        _refuse_other_sites(request)
        return _json(self._jobs.poll(request.path_params["id"]))

    async def cancel(self, request: Request) -> Response:
        _refuse_other_sites(request)
        self._jobs.cancel(request.path_params["id"])
        return _json({})

    def _work(
        self, chosen: PageProtector, parsed: JobRequest, headers: Mapping[str, str]
    ) -> Callable[[Report], dict[str, Any]]:
        loop = asyncio.get_running_loop()
        upstream = VerifiedUpstream("page", chosen.protector, chosen.upstream)

        def encode(texts: Sequence[str]) -> Embeddings:
            # Called on the job's thread; the upstream belongs to the event loop, where it also batches requests.
            work = upstream.embed(list(texts), model=chosen.model, headers=headers)
            return asyncio.run_coroutine_threadsafe(work, loop).result(timeout=_ENCODING_SECONDS).vectors

        # Identifies the encoder to the preview, which may reuse vectors of its background texts.
        encoder = f"{chosen.upstream.name} {chosen.model} {chosen.protector.encoder_info.fingerprint}"
        return lambda report: self._preview(
            chosen.protector, parsed.texts, parsed.words, encode=encode, encoder=encoder, report=report
        )

    async def _body(self, request: Request, kind: str, most: int) -> bytes:
        _refuse_other_sites(request)
        limits = replace(self._server_limits, body_bytes=most)
        return await read_body(request.receive, request.headers, limits, kind=kind)


def _refuse_other_sites(request: Request) -> None:
    """Raise ApiError 403 for a request that another site's page makes through the user's browser."""
    # Browsers set Sec-Fetch-Site and pages cannot change it; programs do not send it.
    if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise ApiError(403, "The request comes from another site.", code="other_site")


def _json(content: Any, *, status: int = 200) -> Response:
    return JSONResponse(content, status_code=status, headers=_HEADERS)
