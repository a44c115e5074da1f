"""A server that speaks OpenAI's ``POST /embeddings``, asked through one pool of connections.

It is not trusted with anything but texts: what it answers is checked as a whole (`parse_embeddings`), bounded in size,
never followed elsewhere, and never shown to a client.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from vecveil.encoders.openai_compatible import parse_embeddings
from vecveil.errors import MissingDependencyError
from vecveil.serving.connection_count import ConnectionCount
from vecveil.serving.errors import UpstreamError
from vecveil.serving.refusals import refusal
from vecveil.serving.settings import UpstreamSettings
from vecveil.serving.upstream import Encoded
from vecveil.version import __version__

if TYPE_CHECKING:
    import aiohttp

__all__ = ["HttpUpstream"]

_RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504})
_FORWARDED = ("authorization", "openai-organization", "openai-project")
_LONGEST_PAUSE = 5.0
_TOKENS = re.compile(rb'"prompt_tokens"\s*:\s*(\d{1,12})')
_FIRST_CHUNK = 65_536
_IDLE_SECONDS = 30.0
"""Longer unused, a connection is not trusted: what lies between may have forgotten it without telling."""


class HttpUpstream:
    """One model, or with ``model`` None any that a client names, of an OpenAI-compatible server.

    Args:
        url: the base, such as ``https://api.openai.com/v1``.
        model: None passes the client's on.
        settings: timeouts, retries, key.
        key: sent as a bearer token; None sends none.
        forward_key: send the client's own ``Authorization`` on.

    Raises:
        MissingDependencyError: aiohttp is not installed.
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
        try:
            import aiohttp
            import yarl
        except ImportError as error:
            raise MissingDependencyError("An upstream behind a URL", "aiohttp", "serve") from error
        self._aiohttp = aiohttp
        self._url = yarl.URL(url.rstrip("/") + "/embeddings")
        self._proxy = _proxy(url)
        self._model = model
        self._settings = settings
        self._forward = forward_key and key is None
        self.name = url if model is None else f"{url}#{model}"
        self.encoding_format = settings.encoding_format
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",  # a small answer must not unpack to a huge one
            "User-Agent": f"vecveil/{__version__}",
        }
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._session: aiohttp.ClientSession | None = None
        self._connections = ConnectionCount()

    @property
    def losses(self) -> int:
        """How often nobody was found, or a kept connection had ended: what answers now may be another encoder."""
        return self._connections.losses

    def __repr__(self) -> str:
        return f"HttpUpstream({self.name!r})"

    @property
    def takes_models(self) -> bool:
        """Whether the client names the model."""
        return self._model is None

    async def embed(
        self,
        texts: Sequence[str],
        *,
        model: str,
        dimension: int | None,
        headers: Mapping[str, str],
    ) -> Encoded:
        """Return the vectors of ``texts``; see `Upstream`."""
        body: dict[str, Any] = {"model": self._model or model, "input": list(texts)}
        if self.encoding_format == "base64":
            body["encoding_format"] = "base64"
        if self._settings.dimensions is not None:
            body["dimensions"] = self._settings.dimensions
        sent = json.dumps(body, ensure_ascii=False).encode()
        forwarded = {}
        if self._forward:
            given = ((name, headers.get(name, "")) for name in _FORWARDED)
            forwarded = {name: value for name, value in given if value and value.isascii()}
        content = await self._post(sent, forwarded)
        rows = len(texts)
        if rows > 64:  # decoding many vectors would hold up everybody else
            X = await asyncio.to_thread(
                parse_embeddings, content, rows=rows, dimension=dimension, owner="upstream"
            )
        else:
            X = parse_embeddings(content, rows=rows, dimension=dimension, owner="upstream")
        return Encoded(X, _tokens(content))

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            aiohttp, settings = self._aiohttp, self._settings
            from vecveil.serving.kept_connections import KeptConnections

            self._session = aiohttp.ClientSession(
                connector=KeptConnections(
                    self._connections.created,
                    limit=settings.connections,
                    keepalive_timeout=_IDLE_SECONDS,
                ),
                timeout=aiohttp.ClientTimeout(
                    total=settings.timeout, sock_connect=settings.connect_timeout
                ),
                cookie_jar=aiohttp.DummyCookieJar(),  # what an upstream says is not kept
                auto_decompress=False,
            )
        return self._session

    async def _post(self, body: bytes, headers: dict[str, str]) -> bytes:
        tries = self._settings.retries + 1
        for attempt in range(tries):
            pause = min(_LONGEST_PAUSE, 0.1 * 2**attempt * (1 + random.random()))
            failure: UpstreamError
            try:
                return await self._once(body, headers)
            except UpstreamError as error:
                failure = error
            self._connections.losses += failure.lost
            again = failure.lost or failure.refused in _RETRIED
            if failure.retry_after is not None:
                again = again and failure.retry_after <= _LONGEST_PAUSE
                pause = max(pause, failure.retry_after)
            if not again or attempt + 1 == tries:
                raise failure
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def _once(self, body: bytes, headers: dict[str, str]) -> bytes:
        failure: UpstreamError
        # Outside the handlers: an exception of aiohttp holds the request's headers, and with them the key.
        try:
            with self._connections.request():
                return await self._exchange(body, headers)
        except self._aiohttp.ClientError as error:
            failure = UpstreamError(
                502,
                f"The upstream cannot be reached, or closed the connection ({type(error).__name__}).",
                code="upstream_unreachable",
                lost=True,
            )
        except TimeoutError:
            failure = UpstreamError(
                504,
                f"The upstream did not answer within {self._settings.timeout:g} seconds.",
                code="upstream_timeout",
            )
        raise failure

    async def _exchange(self, body: bytes, headers: dict[str, str]) -> bytes:
        given = {**self._headers, **headers}
        # A key and texts must not follow a redirect to another host.
        async with self._opened().post(
            self._url, data=body, headers=given, allow_redirects=False, proxy=self._proxy
        ) as answer:
            return await self._read(answer)

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        status = answer.status
        limit = self._settings.max_response_bytes if status == 200 else _FIRST_CHUNK
        if answer.headers.get("content-encoding", "identity").lower() != "identity":
            raise UpstreamError(
                502,
                "The upstream's answer is compressed; it was asked not to.",
                code="upstream_invalid",
            )
        parts, size = [], 0
        async for chunk in answer.content.iter_any():
            size += len(chunk)
            if size > limit:
                if status != 200:
                    break  # an error's explanation is not worth more
                raise UpstreamError(
                    502,
                    f"The upstream's answer is larger than {limit:,} bytes.",
                    code="upstream_invalid",
                )
            parts.append(chunk)
        content = b"".join(parts)
        if status == 200:
            return content
        raise refusal(status, content, answer.headers.get("retry-after"))


def _proxy(url: str) -> str | None:
    """Return the proxy that the environment names for ``url`` (HTTPS_PROXY, NO_PROXY, ...)."""
    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):
        return None
    known = getproxies()
    return known.get(parts.scheme) or known.get("all")


def _tokens(content: bytes) -> int:
    """Return the tokens that the upstream counted; found from the end, without reading the vectors again."""
    found = _TOKENS.match(content, at) if (at := content.rfind(b'"prompt_tokens"')) >= 0 else None
    return int(found[1]) if found else 0
