"""Encoders behind an HTTP API with OpenAI's ``POST /embeddings``.

    encoder = load_encoder("https://api.openai.com/v1#text-embedding-3-small")

Every fault of such a server is one kind of error: no answer, HTML, a different number of vectors, a different
dimension, NaN. The key is read from ``OPENAI_API_KEY`` unless given, sent as a header and stored nowhere.
"""

from __future__ import annotations

import binascii
import hashlib
import json
import math
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import EncoderError, InvalidInputError, KeyFileError, optional_import
from vecveil.validation import check_count, check_positive, checked_vectors
from vecveil.version import __version__

_OWNER = "load_encoder"
# Transient: timeout, conflict, rate limit, overload; OpenAI's own clients retry the same.
RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504})
_LONGEST_WAIT = 30.0
MAX_DIMENSION = 65_536  # far above any model; bounds what an answer can allocate
LARGEST_ANSWER = 256 * 2**20  # 2,048 vectors of 4,096 numbers, written out, are 170 MB

Answer = tuple[int, str | None, bytes]
"""Status, header Retry-After and content."""


def is_endpoint(name: object) -> bool:
    """Return whether ``name`` is an HTTP URL."""
    return isinstance(name, str) and name.startswith(("http://", "https://"))


def split_endpoint(name: str, *, owner: str = _OWNER) -> tuple[str, str]:
    """Return the base URL and the model of ``URL#MODEL``; a password or query raises `InvalidInputError`."""
    from urllib.parse import urlsplit

    url, _, model = name.partition("#")
    try:
        parts = urlsplit(url)
        well_formed = bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        well_formed = False
    # The URL becomes the encoder's name in records, so it must contain no secret.
    if not well_formed or not model.strip() or parts.query or parts.username or parts.password:
        raise InvalidInputError(
            "The URL of an encoder needs a model, and must not have a password or query. Write "
            "https://host/v1#model, and put a key into OPENAI_API_KEY.",
            param="name",
        )
    return url.rstrip("/"), model.strip()


class OpenAICompatibleBackend:
    """One model of an OpenAI-compatible server.

    Args:
        endpoint: ``URL#MODEL``, such as ``http://localhost:8080/v1#minilm``.
        api_key: None reads ``OPENAI_API_KEY``; servers without keys ignore it.
        dimensions: sent with every request, for models that can shorten their vectors.
        batch_size: texts in one request; some services take ten at most.
        timeout: seconds for one request, from the connection to the last byte of the answer.
        max_retries: retries after no answer or one of 408, 409, 429, 5xx.
        fingerprint: identifier of the vectors; None takes model and dimensions, and for the cache the server too.
    """

    precision = "api"

    def __init__(
        self,
        endpoint: str,
        *,
        api_key: str | None = None,
        dimensions: int | None = None,
        batch_size: int = 256,
        timeout: float = 60.0,
        max_retries: int = 4,
        fingerprint: str | None = None,
    ) -> None:
        with optional_import("An encoder behind a URL", "httpx", "http"):
            import httpx
        self._url, self.model = split_endpoint(endpoint)
        self.name = f"{self._url}#{self.model}"
        if dimensions is not None:
            check_count(dimensions, owner=_OWNER, param="dimensions", maximum=MAX_DIMENSION)
        self._dimensions = dimensions
        self._batch_size = check_count(batch_size, owner=_OWNER, param="batch_size", maximum=2048)
        self._retries = check_count(max_retries, owner=_OWNER, param="max_retries", minimum=0)
        seconds = check_positive(timeout, owner=_OWNER, param="timeout")
        self.model_fingerprint = fingerprint or _digest(self.model, dimensions)
        # Two servers may serve different models under one name, so their caches are separate.
        self.fingerprint = fingerprint or _digest(self._url, self.model, dimensions)
        self.dimension: int | None = dimensions
        key = os.environ.get("OPENAI_API_KEY") if api_key is None else api_key
        self._seconds = seconds
        self._client = httpx.Client(timeout=seconds, **client_settings(key or None, "api_key"))
        weakref.finalize(self, self._client.close)

    def __repr__(self) -> str:
        return f"OpenAICompatibleBackend({self.name!r})"

    def for_queries(self) -> None:
        """Return None: the API has no field that distinguishes queries from documents."""

    def read_lengths(self, texts: Sequence[str]) -> list[int]:
        """Return the lengths of ``texts``: a server does not tell its window."""
        return [len(text) for text in texts]

    def run(self, texts: list[str], advance: Callable[[int], None]) -> npt.NDArray[np.float32]:
        """Return the vectors of ``texts``, batch by batch; raise `EncoderError` for a wrong or missing answer."""
        parts = []
        for start in range(0, len(texts), self._batch_size):
            parts.append(self._encode(texts[start : start + self._batch_size]))
            advance(len(parts[-1]))
        return np.concatenate(parts)

    def _encode(self, batch: list[str]) -> npt.NDArray[np.float32]:
        content = self._post(batch)
        vectors = parse_embeddings(content, rows=len(batch), dimension=self.dimension, owner=self.name)
        self.dimension = vectors.shape[1]
        return vectors

    def _post(self, batch: list[str]) -> bytes:
        import httpx

        # OpenAI refuses a request with an empty text; local encoders read both as no word.
        body = request_body(self.model, [text or " " for text in batch], self._dimensions)
        outcome, check = "nothing", "URL, model and key (OPENAI_API_KEY)"
        for attempt in range(self._retries + 1):
            # Exponential backoff, unless the server states a time.
            wait = min(_LONGEST_WAIT, 0.5 * 2**attempt)
            try:
                status, retry_after, content = self._answer(body)
            except (httpx.TransportError, TimeoutError) as error:
                outcome = type(error).__name__
            else:
                if status == 200:
                    return content
                outcome = f"HTTP {status}"
                if status in (400, 413, 422):
                    check = f"the model's limits: {len(batch)} texts a request (`batch_size`), the longest text"
                # A wrong key or model does not improve with another attempt.
                if status not in RETRIED:
                    break
                asked = seconds_of(retry_after)
                wait = wait if asked is None else min(_LONGEST_WAIT, asked)
            if attempt < self._retries:
                time.sleep(wait)
        raise EncoderError(
            f"{self.name} did not answer with embeddings: {outcome}. Check {check}, and the server's log.",
            param="endpoint",
        )

    def _answer(self, body: bytes) -> Answer:
        """Return the server's answer; raise TimeoutError once the whole request has taken its time."""
        # On a thread: the client's own timeout starts anew with each byte that arrives.
        results: queue.SimpleQueue[Answer | Exception] = queue.SimpleQueue()
        abandoned = threading.Event()

        def exchange() -> None:
            try:
                results.put(self._exchange(body, abandoned))
            except Exception as error:
                results.put(error)

        threading.Thread(target=exchange, name="vecveil-endpoint", daemon=True).start()
        try:
            result = results.get(timeout=self._seconds)
        except queue.Empty:
            abandoned.set()
            raise TimeoutError from None
        if isinstance(result, Exception):
            raise result
        return result

    def _exchange(self, body: bytes, abandoned: threading.Event) -> Answer:
        def refuse(got: str) -> EncoderError:
            return EncoderError(f"{self.name} answered with {got}.", param="endpoint")

        with self._client.stream("POST", f"{self._url}/embeddings", content=body) as answer:
            content = bytearray()
            if answer.status_code == 200:
                if answer.headers.get("content-encoding", "identity").lower() != "identity":
                    raise refuse("compressed data, against the request")
                for chunk in answer.iter_raw():
                    content += chunk
                    if len(content) > LARGEST_ANSWER:
                        raise refuse(f"more than {LARGEST_ANSWER >> 20} MiB")
                    if abandoned.is_set():
                        break
            return answer.status_code, answer.headers.get("retry-after"), bytes(content)


def client_settings(key: str | None, param: str) -> dict[str, Any]:
    """Return the arguments of an httpx client of a server that may know ``key`` and the texts, and nothing else.

    Raises:
        KeyFileError: no header can contain the key, which ``param`` names.
    """
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json",
        "Accept-Encoding": "identity",  # against decompression bombs
        "User-Agent": f"vecveil/{__version__}",
    }
    if key is not None:
        key = key.strip()  # the line break of a file
        if not (key.isascii() and key.isprintable()):
            said = "The API key has characters that no HTTP header can contain. Copy it again."
            raise KeyFileError(said, param=param)
        headers["Authorization"] = f"Bearer {key}"
    # Proxies come from the environment. A redirect would send the key and the texts to a different host.
    no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))
    return {"headers": headers, "cookies": no_cookies, "follow_redirects": False}


def request_body(model: str, texts: Sequence[str], dimensions: int | None, encoding_format: str = "base64") -> bytes:
    """Return the JSON of a request; base64 halves the answer and keeps all bits, but not every server has it."""
    content: dict[str, Any] = {"model": model, "input": list(texts)}
    if encoding_format == "base64":
        content["encoding_format"] = "base64"
    if dimensions is not None:
        content["dimensions"] = dimensions
    return json.dumps(content, ensure_ascii=False).encode()


def parse_embeddings(content: bytes, *, rows: int, dimension: int | None, owner: str) -> npt.NDArray[np.float32]:
    """Return the (rows, n) vectors of an answer to ``POST /embeddings``, in the order of the inputs.

    ``content`` contains vectors as lists of numbers or as base64 of float32; ``dimension`` None accepts any.

    Raises:
        EncoderError: not JSON, not one vector per input, a different dimension, numbers that are not finite, or a
            vector of zeros. The message contains no part of the answer.
    """

    def refuse(got: str) -> EncoderError:
        size = "" if dimension is None else f" of {dimension} dimensions"
        return EncoderError(f"{owner} answered with {got} instead of {rows} finite vectors{size}.", param="endpoint")

    # Errors are raised outside the handlers: a chained cause would hold the answer's clean vectors.
    vectors: list[Any] | None = None
    array: npt.NDArray[np.float32] | None = None
    try:
        answer = json.loads(content)
        data = answer["data"]
        indices = [item.get("index", i) for i, item in enumerate(data)]
        vectors = [item["embedding"] for item in data]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    if vectors is None:
        raise refuse("no list of embeddings")
    # Servers may answer out of order; each index must occur once.
    if sorted(i for i in indices if type(i) is int) != list(range(rows)):
        raise refuse(f"{len(vectors)} vectors, or with other indices,")
    try:
        ordered = vectors if rows == 1 else [vectors[at] for at in np.argsort(indices)]
        decoded: Any
        if all(isinstance(v, str) for v in ordered):
            decoded = _of_base64(ordered)
        else:
            decoded = [_of_base64([v])[0] if isinstance(v, str) else v for v in ordered]
        array = checked_vectors(decoded, rows=rows, owner=owner, dimension=dimension)
    except (InvalidInputError, ValueError, TypeError):
        pass
    if array is None:
        raise refuse("vectors of other shapes, or with values that are not finite")
    if not array.any(axis=1).all():
        raise refuse("vectors of zeros")
    if array.shape[1] > MAX_DIMENSION:
        raise refuse(f"vectors of {array.shape[1]} dimensions")
    return array


def _of_base64(vectors: list[Any]) -> npt.NDArray[np.float32]:
    """Return vectors from base64 of little-endian float32; raise ValueError or TypeError otherwise."""
    rows = [binascii.a2b_base64(each, strict_mode=True) for each in vectors]
    if len({len(row) for row in rows}) != 1:
        raise ValueError
    # a bytearray, so that the array is writable
    return np.frombuffer(bytearray(b"".join(rows)), dtype="<f4").reshape(len(rows), -1)


def _digest(*parts: str | int | None) -> str:
    return "api:" + hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def seconds_of(retry_after: str | None) -> float | None:
    """Return the seconds from now of a Retry-After header, a number or an HTTP date; None for anything else."""
    if retry_after is None:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
