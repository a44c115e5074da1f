"""Upstream encoders, local or behind an OpenAI-compatible API, verified before use."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
import time
from collections import OrderedDict, deque
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, NotRequired, Protocol, TypedDict, Unpack

import numpy as np

from vecveil.errors import IncompatibleError, MissingDependencyError
from vecveil.gateway.server.errors import UpstreamError, upstream_refusal
from vecveil.gateway.server.monitoring import event
from vecveil.gateway.server.settings import UpstreamSettings
from vecveil.privacy.protector import Protector
from vecveil.texts.encoders.openai_compatible import RETRIED, client_settings, parse_embeddings, request_body
from vecveil.texts.encoders.text_encoder import PROBE_SENTENCES, matches_probe
from vecveil.types import Embeddings
from vecveil.validation import checked_vectors

try:
    import httpx
except ImportError:
    raise MissingDependencyError("Serving", "httpx", "serve") from None

_FORWARDED = ("authorization", "openai-organization", "openai-project")
# Seconds; a longer Retry-After goes to the client, which can wait without holding a connection.
_MAX_PAUSE = 5.0
_TOKENS = re.compile(rb'"prompt_tokens"\s*:\s*(\d{1,12})')
_ERROR_BYTES = 65_536
# Firewalls may drop idle connections silently.
_IDLE_SECONDS = 30.0
# A server behind a load balancer may be replaced without a failed request. Each request uses a verification twice.
_VERIFIED_SECONDS, _VERIFIED_USES = 60.0, 200
_REFUSED_SECONDS = 30.0
_MODELS = 64  # clients may name any number of models


@dataclass(frozen=True, repr=False)
class Encoded:
    """Clean vectors (N, n), finite, never logged or sent to a client, and the upstream's token count or 0."""

    vectors: Embeddings
    tokens: int = 0


class Asked(TypedDict):
    """Fields of a request to an upstream, sent with the texts.

    Attributes:
        model: model name in the client's request.
        dimension: required dimension; None accepts any.
        headers: the client's headers, by lower-case name.
        query: the texts are queries, for an encoder that treats them differently.
    """

    model: str
    dimension: int | None
    headers: Mapping[str, str]
    query: NotRequired[bool]


class Upstream(Protocol):
    """Source of clean vectors.

    Attributes:
        name: name for logs: a model's name, or a URL without secrets.
        takes_models: the client's model name selects the encoder.
        losses: number of lost connections; after each, a different encoder may answer.
    """

    name: str
    takes_models: bool
    losses: int

    async def embed(self, texts: Sequence[str], **asked: Unpack[Asked]) -> Encoded:
        """Return one finite vector for each text; raise `UpstreamError` or `EncoderError` if there is none."""
        ...

    async def aclose(self) -> None:
        """Release threads and connections."""
        ...


class VerifiedUpstream:
    """An upstream that must prove to be the protector's encoder before it encodes.

    A local encoder is verified once; a server's model again after a minute, 100 requests or a lost connection. A
    rejected model stays rejected for 30 seconds without a further request. ``policy`` names it in logs and errors.
    """

    def __init__(self, policy: str, protector: Protector, upstream: Upstream) -> None:
        self._policy, self._protector, self._upstream = policy, protector, upstream
        self._local = isinstance(upstream, LocalUpstream)
        self._lasting = (math.inf, math.inf) if self._local else (_VERIFIED_SECONDS, _VERIFIED_USES)
        self._verified: OrderedDict[str, tuple[float, float]] = OrderedDict()  # until when, uses left
        self._refused: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._pending: dict[Hashable, asyncio.Task[None]] = {}
        self._losses = upstream.losses

    @property
    def verified(self) -> bool:
        """True if a model was verified since the last lost connection."""
        return bool(self._verified)

    async def embed(
        self, texts: Sequence[str], *, model: str, headers: Mapping[str, str], query: bool = False
    ) -> Encoded:
        """Return the vectors of ``texts``; raises as `ensure` and `Upstream.embed`."""
        await self.ensure(model, headers)
        encoded = await self._upstream.embed(
            texts, model=model, dimension=self._protector.dimension, headers=headers, query=query
        )
        await self.ensure(model, headers)  # a retry may have reached another server
        # The protector refuses longer vectors. A local encoder may not know any word of a text.
        if not self._local and np.linalg.norm(encoded.vectors, axis=1).min() < self._protector.least_norm:
            self._verified.clear()
            self._refuse("vectors shorter than the fit's")
        return encoded

    async def ensure(self, model: str, headers: Mapping[str, str]) -> None:
        """Verify ``model`` unless it is verified; concurrent requests share one verification.

        Raises:
            IncompatibleError: the model is a different encoder.
            UpstreamError, EncoderError: the upstream did not answer.
        """
        # Policies may share an upstream, so each compares the count with the one it saw last.
        if self._losses != self._upstream.losses:
            self._losses = self._upstream.losses
            self._verified.clear()
        key = model if self._upstream.takes_models else ""
        if self._is_verified(key):
            return
        # The credential separates clients: one with a bad key must not fail the verification of others.
        # A task belongs to its event loop, and callers may use several loops in turn.
        pending = (asyncio.get_running_loop(), key, headers.get("authorization", ""))
        task = self._pending.get(pending)
        if task is None:
            task = self._pending[pending] = asyncio.create_task(self._verify(key, model, headers))
            task.add_done_callback(lambda done: self._finish(pending, done))
        await asyncio.shield(task)  # a cancelled caller must not cancel it for the others

    def close(self) -> None:
        """Cancel pending verification requests."""
        for task in self._pending.values():
            task.cancel()

    def _is_verified(self, key: str) -> bool:
        now = time.monotonic()
        verified_until, uses = self._verified.get(key, (-math.inf, 0.0))
        if now < verified_until and uses > 0:
            self._verified[key] = (verified_until, uses - 1)
            return True
        refused_until, sentence = self._refused.get(key, (-math.inf, ""))
        if now < refused_until:
            raise IncompatibleError(sentence, param="upstream")
        return False

    def _finish(self, pending: Hashable, task: asyncio.Task[None]) -> None:
        # The result is in _verified or _refused by now; a failure of the network is retried next time.
        del self._pending[pending]
        if not task.cancelled():
            task.exception()  # mark as retrieved: every caller may have given up

    async def _verify(self, key: str, model: str, headers: Mapping[str, str]) -> None:
        try:
            await self._compare(model, headers)
        except IncompatibleError as error:
            event("a different encoder", level=logging.ERROR, policy=self._policy, upstream=self._upstream.name)
            _keep(self._refused, key, (time.monotonic() + _REFUSED_SECONDS, str(error)))
            raise
        seconds, uses = self._lasting
        _keep(self._verified, key, (time.monotonic() + seconds, uses))

    async def _compare(self, model: str, headers: Mapping[str, str]) -> None:
        """Compare fingerprints, else vectors of the probe sentences, else the dimension alone."""
        protector, upstream = self._protector, self._upstream
        info = protector.encoder_info
        compared = "dimension"
        if isinstance(upstream, LocalUpstream):
            await asyncio.to_thread(protector.check_encoder, upstream.encoder)
            if info.fingerprint and getattr(upstream.encoder, "fingerprint", None):
                compared = "fingerprint"
        vectors = await self._probe(model, headers)
        if vectors.shape[1] != protector.dimension:
            self._refuse(f"vectors of {vectors.shape[1]} dimensions instead of {protector.dimension}")
        if compared == "dimension" and info.probe:
            compared = "probe"
            if not matches_probe(vectors, info.probe, owner="upstream"):
                self._refuse("vectors of a different model")
        event("encoder verified", policy=self._policy, upstream=upstream.name, by=compared)
        if compared == "dimension":
            event(
                "encoder verified by its dimension only",
                level=logging.WARNING,
                policy=self._policy,
                message="The protector has no fingerprint and no probe. A different encoder of that dimension would "
                "pass, and its vectors would be protected badly.",
            )

    async def _probe(self, model: str, headers: Mapping[str, str]) -> Embeddings:
        upstream = self._upstream
        embed = partial(upstream.embed, PROBE_SENTENCES, model=model, dimension=None, headers=headers)
        try:
            return (await embed()).vectors
        except UpstreamError as error:
            base64 = isinstance(upstream, HttpUpstream) and upstream.encoding_format == "base64"
            if not base64 or error.refused not in (400, 422):
                raise
        # Some servers reject base64. Try lists, and keep base64 if they fail as well.
        assert isinstance(upstream, HttpUpstream)
        upstream.encoding_format = "float"
        try:
            encoded = await embed()
        except BaseException:
            upstream.encoding_format = "base64"
            raise
        event("upstream rejects base64; requesting lists of numbers", upstream=upstream.name)
        return encoded.vectors

    def _refuse(self, got: str) -> NoReturn:
        known = self._protector.encoder_info.name or "unnamed"
        raise IncompatibleError(
            f"The upstream returned {got}, and the policy {self._policy!r} was fitted for the encoder {known}. "
            "Name that encoder as the upstream, or fit a new protector.",
            param="upstream",
        )


def _keep(results: OrderedDict[str, Any], key: str, result: Any) -> None:
    """Store a result and drop the oldest: clients may name any number of models."""
    results[key] = result
    while len(results) > _MODELS:
        results.popitem(last=False)


@dataclass(eq=False, repr=False)
class _Waiting:
    texts: list[str]
    vectors: asyncio.Future[Embeddings]
    query: bool


class LocalUpstream:
    """Encodes on one thread, in batches of the waiting requests.

    Args:
        encoder: any object with ``encode``.
        max_texts: texts per call of the encoder, unless one request has more. Larger values raise throughput under
            load and the latency of small requests.
    """

    takes_models = False
    losses = 0

    def __init__(self, encoder: Any, *, max_texts: int = 128) -> None:
        self.encoder = encoder
        self.name = str(getattr(encoder, "name", None) or type(encoder).__name__)
        self._max_texts = max_texts
        # One thread: encoders are not thread-safe, and use all cores themselves.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vecveil-encoder")
        self._queue: deque[_Waiting] = deque()
        self._unanswered: set[_Waiting] = set()  # in the queue, or in the batch that is being encoded
        self._runner: asyncio.Task[None] | None = None

    async def embed(self, texts: Sequence[str], **asked: Unpack[Asked]) -> Encoded:
        waiting = _Waiting(list(texts), asyncio.get_running_loop().create_future(), asked.get("query", False))
        self._queue.append(waiting)
        self._unanswered.add(waiting)
        waiting.vectors.add_done_callback(lambda _: self._unanswered.discard(waiting))
        # No lock: the queue and the runner are touched on the event loop's thread alone, without an await between.
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run())
        vectors = await waiting.vectors  # cancelled with the request, which `_next_batch` then skips
        if (dimension := asked["dimension"]) is not None and vectors.shape[1] != dimension:
            raise IncompatibleError(
                f"The encoder returned vectors of {vectors.shape[1]} dimensions instead of {dimension}.",
                param="encoder",
            )
        return Encoded(vectors)

    async def aclose(self) -> None:
        """Stop the thread; requests without an answer raise `UpstreamError`."""
        if self._runner is not None:
            self._runner.cancel()
        for waiting in list(self._unanswered):
            _fail(waiting, UpstreamError(503, "The server is stopping; nothing was released.", code="stopping"))
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        while batch := self._next_batch():
            try:
                await self._encode(batch)
            except UpstreamError as error:
                if len(batch) == 1:
                    _fail(batch[0], error)
                    continue
                for waiting in batch:  # one client's text must not fail another client's request
                    try:
                        await self._encode([waiting])
                    except UpstreamError as own:
                        _fail(waiting, own)

    def _next_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        rows = 0
        # The first request always fits: one with more than max_texts is a batch alone.
        while self._queue and (not batch or rows + len(self._queue[0].texts) <= self._max_texts):
            if batch and self._queue[0].query != batch[0].query:  # queries may have a separate prompt
                break
            waiting = self._queue.popleft()
            if not waiting.vectors.done():  # done: the client disconnected
                batch.append(waiting)
                rows += len(waiting.texts)
        return batch

    async def _encode(self, batch: list[_Waiting]) -> None:
        texts = [text for waiting in batch for text in waiting.texts]
        try:
            X = await asyncio.get_running_loop().run_in_executor(self._thread, self._vectors, texts, batch[0].query)
        except Exception:
            X = None
        if X is None:  # raised outside the handler: a chained exception of the encoder may quote a text
            raise UpstreamError(502, "The encoder failed; nothing was released.", code="upstream_failed")
        start = 0
        for waiting in batch:
            stop = start + len(waiting.texts)
            if not waiting.vectors.done():  # the client may disconnect while its batch is encoded
                waiting.vectors.set_result(X[start:stop])
            start = stop

    def _vectors(self, texts: list[str], query: bool) -> Embeddings:
        encode = getattr(self.encoder, "encode_query", self.encoder.encode) if query else self.encoder.encode
        return np.asarray(checked_vectors(encode(texts), rows=len(texts), owner="LocalUpstream"))


def _fail(waiting: _Waiting, error: UpstreamError) -> None:
    if not waiting.vectors.done():
        waiting.vectors.set_exception(error)


class HttpUpstream:
    """One model of an OpenAI-compatible server, or the model that a client names.

    The server sees the texts and is otherwise untrusted: its answer is validated, bounded in size, and never quoted to
    a client. Redirects are not followed.

    Args:
        url: base URL, such as ``https://api.openai.com/v1``.
        model: None uses the client's model name.
        key: bearer token; None sends none.
        forward_key: forward the client's ``Authorization`` if there is no key.
    """

    def __init__(
        self,
        url: str,
        model: str | None,
        settings: UpstreamSettings,
        *,
        key: str | None = None,
        forward_key: bool = False,
    ) -> None:
        self._url = url.rstrip("/") + "/embeddings"
        self._model = model
        self._settings = settings
        self._forward = forward_key and key is None
        self.name = url if model is None else f"{url}#{model}"
        self.takes_models = model is None
        self.losses = 0
        self.encoding_format = settings.encoding_format
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=settings.connect_timeout),
            limits=httpx.Limits(max_connections=settings.connections, keepalive_expiry=_IDLE_SECONDS),
            **client_settings(key, "upstream.key"),
        )

    def __repr__(self) -> str:
        return f"HttpUpstream({self.name!r})"

    async def embed(self, texts: Sequence[str], **asked: Unpack[Asked]) -> Encoded:
        size = self._settings.batch_size
        first = await self._embed_batch(texts[:size], asked["dimension"], asked)
        dimension = first.vectors.shape[1]
        parts = [first]
        for start in range(size, len(texts), size):
            parts.append(await self._embed_batch(texts[start : start + size], dimension, asked))
        return Encoded(np.concatenate([part.vectors for part in parts]), sum(part.tokens for part in parts))

    async def _embed_batch(self, texts: Sequence[str], dimension: int | None, asked: Asked) -> Encoded:
        settings = self._settings
        body = request_body(self._model or asked["model"], texts, settings.dimensions, self.encoding_format)
        forwarded = {}
        if self._forward:
            given = ((name, asked["headers"].get(name, "")) for name in _FORWARDED)
            # Headers are read as Latin-1 and written as UTF-8: other characters would arrive changed.
            forwarded = {name: value for name, value in given if value and value.isascii()}
        answer = await self._post(body, forwarded)
        # On a thread: decoding many vectors would block the event loop.
        parse = partial(parse_embeddings, rows=len(texts), dimension=dimension, owner="upstream")
        return Encoded(await asyncio.to_thread(parse, answer), _tokens(answer))

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _post(self, body: bytes, headers: dict[str, str]) -> bytes:
        attempt = 0
        while True:
            try:
                return await self._post_once(body, headers)
            except UpstreamError as error:
                self.losses += error.lost
                # Exponential with jitter, so that failed requests do not return all at once.
                backoff = min(_MAX_PAUSE, 0.1 * 2**attempt * (1 + random.random()))
                pause = max(backoff, error.retry_after or 0.0)
                # Not after a timeout: the client would wait as long again.
                retried = error.lost or error.refused in RETRIED
                if not retried or pause > _MAX_PAUSE or attempt == self._settings.retries:
                    raise
            attempt += 1
            await asyncio.sleep(pause)

    async def _post_once(self, body: bytes, headers: dict[str, str]) -> bytes:
        # Raised outside the handlers, without a chained exception: httpx's contains the headers and so the key.
        try:
            async with asyncio.timeout(self._settings.timeout):  # httpx's timeouts restart with each byte
                return await self._exchange(body, headers)
        except httpx.RequestError as error:
            text = f"The upstream cannot be reached, or closed the connection ({type(error).__name__})."
            failure = UpstreamError(502, text, code="upstream_unreachable", lost=True)
        except TimeoutError:
            text = f"The upstream did not answer within {self._settings.timeout:g} seconds."
            failure = UpstreamError(504, text, code="upstream_timeout")
        raise failure

    async def _exchange(self, body: bytes, headers: dict[str, str]) -> bytes:
        async with self._client.stream("POST", self._url, content=body, headers=headers) as answer:
            if answer.headers.get("content-encoding", "identity").lower() != "identity":
                text = "The upstream's answer is compressed, against the request."
                raise UpstreamError(502, text, code="upstream_invalid")
            limit = self._settings.max_response_bytes if answer.status_code == 200 else _ERROR_BYTES
            # Counted while reading: the announced length may be missing or false.
            content = bytearray()
            async for chunk in answer.aiter_raw():
                content += chunk
                if len(content) > limit:
                    break
            if answer.status_code != 200:
                raise upstream_refusal(answer.status_code, bytes(content), answer.headers.get("retry-after"))
            if len(content) > limit:
                text = f"The upstream's answer is larger than {limit:,} bytes."
                raise UpstreamError(502, text, code="upstream_invalid")
            return bytes(content)


def _tokens(content: bytes) -> int:
    # "usage" follows the vectors: search from the end instead of parsing megabytes of JSON a second time.
    start = content.rfind(b'"prompt_tokens"')
    match = _TOKENS.match(content, start) if start >= 0 else None
    return int(match[1]) if match else 0
