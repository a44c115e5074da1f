"""Refuse or parse a request: host, client key, load, body, and every field of ``POST /v1/embeddings``.

Every refusal of a client's request is an `ApiError` raised here, or by `Service.choose` for an unknown policy.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from vecveil.serving.api_keys import ApiKeys
from vecveil.serving.errors import RATE_LIMIT, ApiError, ClientGone
from vecveil.serving.settings import Limits

if TYPE_CHECKING:
    from starlette.types import Receive, Scope

__all__ = ["Admission", "EmbeddingRequest", "Side", "headers_of", "parse_request", "read_body", "split_side"]

Side = Literal["document", "query"]
POLICY_HEADER = "x-vecveil-policy"
SIDE_HEADER = "x-vecveil-input"
ID_FIELD = "vecveil_ids"

_MAX_NAME = 256
_MAX_ID = 512
# A busy server must still answer its supervisor and Prometheus.
_UNLIMITED = ("/health", "/metrics")
_SIDES: dict[str, Side] = {
    "query": "query",
    "search_query": "query",
    "document": "document",
    "search_document": "document",
    "passage": "document",
}
_TOKENS = (
    "`input` holds token ids. A proxy that rewrites or checks texts needs the texts. Send strings; in LangChain: "
    "OpenAIEmbeddings(check_embedding_ctx_length=False)."
)


@dataclass(frozen=True)
class Admission:
    """Refuse requests by their host, key and number, before their body is read.

    Attributes:
        limits: holds the number of concurrent requests.
        keys: of which a client must show one; None admits everybody.
        open_paths: paths that need no key.
        hosts: names that the header Host may have, lower case and without port; None takes any. Otherwise a web page
            whose name is made to resolve to this machine could reach a server that asks for no key.
    """

    limits: Limits
    keys: ApiKeys | None = None
    open_paths: frozenset[str] = frozenset({"/health"})
    hosts: frozenset[str] | None = None

    def check(self, scope: Scope, *, running: int) -> None:
        """Raise ApiError 421 for another host, 401 for no key, 429 for too many requests.

        Args:
            running: requests that are being answered, with this one.
        """
        if self.hosts is not None:
            hosts = [value for name, value in scope["headers"] if name == b"host"]
            # Two Host headers: a proxy in front may have checked the other one.
            if len(hosts) != 1 or _host_name(hosts[0]) not in self.hosts:
                raise ApiError(421, "This server does not go by that name.", code="another_host", param="Host")
        if self.keys is not None and scope["path"] not in self.open_paths:
            shown = [value for name, value in scope["headers"] if name == b"authorization"]
            if not self.keys.allow(shown[0] if len(shown) == 1 else None):
                raise ApiError(401, "Incorrect API key provided.", code="invalid_api_key")
        if running > self.limits.concurrent and scope["path"] not in _UNLIMITED:
            raise ApiError(429, "Too many requests at once.", kind=RATE_LIMIT, code="too_many_requests", retry_after=1)


def _host_name(host: bytes) -> str:
    """Return the name in a header Host, without its port."""
    text = host.decode("latin-1").strip().lower()
    return text.partition("]")[0] + "]" if text.startswith("[") else text.partition(":")[0]


def headers_of(scope: Scope) -> dict[str, str]:
    """Return the headers by lower-case name.

    Raises:
        ApiError: a header of ours is given twice; a gateway in front may have checked the other value.
    """
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1")
        if key in headers and key in (POLICY_HEADER, SIDE_HEADER):
            raise ApiError(400, "The headers X-Vecveil-Policy and X-Vecveil-Input must be given once.",
                           code="invalid_header")  # fmt: skip
        headers[key] = value.decode("latin-1")
    return headers


async def read_body(
    receive: Receive, headers: Mapping[str, str], limits: Limits, *, kind: str = "application/json"
) -> bytes:
    """Return the body of a request; more than the limit is never held.

    Args:
        kind: media type that the request must have. It also keeps web pages of other sites from sending requests.

    Raises:
        ApiError: 415 another media type, 413 too large, 408 too slow.
        ClientGone: the client closed the connection.
    """
    if headers.get("content-type", "").partition(";")[0].strip().lower() != kind:
        raise ApiError(415, f"The header Content-Type must be {kind}.", code="invalid_content_type")
    too_large = ApiError(413, f"The body must have at most {limits.body_bytes:,} bytes.", code="body_too_large")
    length = headers.get("content-length", "")
    # Refused before it arrives where the client announces its length, else while it arrives.
    if length.isdecimal() and int(length[:20]) > limits.body_bytes:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                body += message.get("body", b"")
                if len(body) > limits.body_bytes:
                    raise too_large
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise ApiError(408, "The body did not arrive in time.", code="body_timeout") from None


@dataclass(frozen=True, repr=False)
class EmbeddingRequest:
    """One request for embeddings.

    Attributes:
        texts: at least one, none empty.
        model: name that the client gave, without the suffix of the side.
        named: name that the client gave.
        policy: name in the header, or None.
        side: ``document`` or ``query``.
        base64: whether vectors are answered as base64 of little-endian float32, else as lists of numbers.
        dimensions: dimension that the vectors must have, or None.
        ids: one for each text, or None.
    """

    texts: list[str]
    model: str
    named: str
    policy: str | None
    side: Side
    base64: bool
    dimensions: int | None
    ids: list[str] | None


def split_side(model: str) -> tuple[str, Side | None]:
    """Return the model's name without ``:query`` or ``:document``, and the side that the suffix names."""
    name, _, suffix = model.rpartition(":")
    return (name, cast(Side, suffix)) if name and suffix in ("query", "document") else (model, None)


def parse_request(
    body: bytes, headers: Mapping[str, str], *, max_inputs: int, client_ids: bool = False
) -> EmbeddingRequest:
    """Return the request; unknown fields are ignored, as OpenAI ignores most.

    Args:
        client_ids: whether clients may name the items (field ``vecveil_ids``).

    Raises:
        ApiError: 400, with the field at fault and nothing of what was sent.
    """
    content = parse_object(body)
    named = content.get("model")
    if not isinstance(named, str) or not 0 < len(named) <= _MAX_NAME or not is_unicode(named):
        raise _invalid("model", f"must be a string of 1 to {_MAX_NAME} characters.")
    model, suffix = split_side(named)
    texts = _texts(content.get("input"), max_inputs)
    encoding, dimensions = content.get("encoding_format", "float"), content.get("dimensions")
    if encoding not in (None, "float", "base64"):
        raise _invalid("encoding_format", "must be float or base64.")
    if dimensions is not None and (not _is_integer(dimensions) or dimensions < 1):
        raise _invalid("dimensions", "must be a positive integer.")
    return EmbeddingRequest(
        texts=texts,
        model=model,
        named=named,
        policy=headers.get(POLICY_HEADER),
        side=_side(suffix, headers.get(SIDE_HEADER), content.get("input_type")),
        base64=encoding == "base64",
        dimensions=dimensions,
        ids=_ids(content.get(ID_FIELD), len(texts), allowed=client_ids),
    )


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):  # ValueError: also not UTF-8, and numbers of too many digits
        raise ApiError(400, "The body must be JSON in UTF-8.", code="invalid_json") from None
    if not isinstance(content, dict):
        raise ApiError(400, "The body must be a JSON object.", code="invalid_json")
    return content


def is_unicode(text: str) -> bool:
    """Return whether ``text`` has no lone surrogate, which JSON can write and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _invalid(param: str, text: str, code: str = "") -> ApiError:
    return ApiError(400, f"`{param}` {text}", code=code or f"invalid_{param}", param=param)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _texts(value: Any, most: int) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise _invalid("input", "must be a string or a list of strings.")
    if not texts:
        raise _invalid("input", "must not be an empty list.")
    if len(texts) > most:
        raise _invalid("input", f"must hold at most {most:,} texts.", "too_many_inputs")
    for i, text in enumerate(texts):
        if _is_integer(text) or (isinstance(text, list) and text and all(map(_is_integer, text))):
            raise ApiError(400, _TOKENS, code="token_ids_not_supported", param="input")
        if not isinstance(text, str):
            raise _invalid("input", f"must be a string or a list of strings; the item at {i} is neither.")
        if not text:
            raise _invalid("input", f"must not hold an empty string; the one at {i} is.")
        if not is_unicode(text):
            raise _invalid("input", f"must be Unicode; the text at {i} has a lone surrogate.")
    return texts


def _side(suffix: Side | None, header: str | None, field: Any) -> Side:
    # A query that passes as a document gets other noise; the other way round it may get none.
    sides: set[Side] = set() if suffix is None else {suffix}
    if header is not None:
        if header not in ("query", "document"):
            raise ApiError(400, "The header X-Vecveil-Input must be query or document.", code="invalid_side")
        sides.add(cast(Side, header))
    if field is not None:
        if not isinstance(field, str) or field not in _SIDES:
            raise _invalid("input_type", f"must be one of {', '.join(_SIDES)}.", "invalid_side")
        sides.add(_SIDES[field])
    if len(sides) > 1:
        raise ApiError(400, "The model's suffix, the header X-Vecveil-Input and `input_type` must not contradict "
                       "each other.", code="invalid_side")  # fmt: skip
    return sides.pop() if sides else "document"


def _ids(value: Any, rows: int, *, allowed: bool) -> list[str] | None:
    if value is None:
        return None
    if not allowed:
        # A client that names items as it likes gets fresh noise for one text as often as it likes.
        raise _invalid(ID_FIELD, "is switched off (client_ids): items are named by their texts.", "ids_not_allowed")
    valid = isinstance(value, list) and len(value) == rows
    if not valid or not all(isinstance(id, str) and 0 < len(id) <= _MAX_ID and is_unicode(id) for id in value):
        raise _invalid(ID_FIELD, "must be a list of one string for each input.", "invalid_ids")
    return cast(list[str], value)
