"""Admit and parse requests: host, API key, load, body, and the fields of embeddings and rerank requests.

Every rejection is an `ApiError` from here or `Service`; `server` answers oversized heads, `app` unknown paths.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import unquote

from vecveil.errors import InvalidInputError, KeyFileError
from vecveil.gateway.server.errors import RATE_LIMIT, ApiError, ClientGone
from vecveil.gateway.server.settings import NAME, IndexGrant, Limits
from vecveil.index.blob import canonical_ids, decoded
from vecveil.io import expanded, parse_json

if TYPE_CHECKING:
    from starlette.types import Receive, Scope

Side = Literal["document", "query"]
POLICY_HEADER = "x-vecveil-policy"
SIDE_HEADER = "x-vecveil-input"
ID_FIELD = "vecveil_ids"

_MAX_NAME = 256
_MAX_ID = 512
_MOST_FIELDS = 16
MAX_DOCUMENT = 2**20
"""Most characters of a blob in base64: what the server seals it also ranks."""
# A busy server must still answer health checks and Prometheus.
_UNLIMITED = ("/health", "/ready", "/metrics")
# Values of `input_type` in the APIs of Cohere ("search_"), Voyage and NVIDIA ("passage").
_SIDES: dict[str, Side] = {
    "query": "query",
    "search_query": "query",
    "document": "document",
    "search_document": "document",
    "passage": "document",
}
_TOKENS = (
    "`input` contains token ids. A proxy that rewrites or checks texts needs the texts. Send strings; in LangChain: "
    "OpenAIEmbeddings(check_embedding_ctx_length=False)."
)


@dataclass(frozen=True)
class Admission:
    """Admission control by host, API key and load, before a body is read.

    ``keys`` None admits everybody. ``hosts`` None accepts any Host header, else names in lower case without port.
    """

    limits: Limits
    keys: ApiKeys | None = None
    open_paths: frozenset[str] = frozenset({"/health", "/ready"})
    hosts: frozenset[str] | None = None

    def check(self, scope: Scope, *, running: int) -> ApiClient:
        """Return the client; raise `ApiError`: 421 wrong host, 401 no valid key, 429 too many requests.

        ``running`` counts the concurrent requests, including this one.
        """
        client = None if self.keys is not None else ApiClient()
        # DNS rebinding: a web page whose name resolves to 127.0.0.1 is same-origin with a local server.
        if self.hosts is not None:
            hosts = [value for name, value in scope["headers"] if name == b"host"]
            # With two Host headers, a proxy in front may have checked the other one.
            if len(hosts) != 1 or _host_name(hosts[0]) not in self.hosts:
                raise ApiError(421, "This server does not accept that Host.", code="another_host", param="Host")
        if self.keys is not None and scope["path"] not in self.open_paths:
            shown = [value for name, value in scope["headers"] if name == b"authorization"]
            # The same holds for Authorization: none of several is trusted.
            client = self.keys.client(shown[0] if len(shown) == 1 else None)
            if client is None:
                raise ApiError(401, "Incorrect API key provided.", code="invalid_api_key")
        if running > self.limits.concurrent and scope["path"] not in _UNLIMITED:
            raise ApiError(429, "Too many requests at once.", kind=RATE_LIMIT, code="too_many_requests", retry_after=1)
        return client or ApiClient(grants=frozenset())  # an open path of a server with keys


class RateLimit:
    """Token bucket for each API key: ``per_minute`` requests of a ``kind`` a minute, and as many at once."""

    def __init__(self, per_minute: int, kind: str = "rerank") -> None:
        self._most, self._kind, self._buckets = per_minute, kind, dict[int, tuple[float, float]]()

    def take(self, client: ApiClient) -> None:
        """Count a request; raise `ApiError` 429 if the client's bucket is empty."""
        now, rate = time.monotonic(), self._most / 60
        left, then = self._buckets.get(client.number, (float(self._most), now))
        left = min(self._most, left + (now - then) * rate)
        if left < 1:
            raise ApiError(
                429,
                f"Too many {self._kind} requests with this API key.",
                kind=RATE_LIMIT,
                code=f"{self._kind}_limit_reached",
                retry_after=(1 - left) / rate,
            )
        self._buckets[client.number] = (left - 1, now)


def _host_name(host: bytes) -> str:
    text = host.decode("latin-1").strip().lower()
    # An IPv6 address contains colons, so it is in brackets: [::1]:8080.
    return text.partition("]")[0] + "]" if text.startswith("[") else text.partition(":")[0]


def headers_of(scope: Scope) -> dict[str, str]:
    """Return the headers by lower-case name, the last value of each; reject repeated ones that decide protection."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1")
        # These two headers decide the protection; a gateway in front may have checked the other value.
        if key in headers and key in (POLICY_HEADER, SIDE_HEADER):
            raise ApiError(
                400, "The headers X-Vecveil-Policy and X-Vecveil-Input must be given once.", code="invalid_header"
            )
        headers[key] = value.decode("latin-1")
    return headers


async def read_body(
    receive: Receive, headers: Mapping[str, str], limits: Limits, *, kind: str = "application/json"
) -> bytes:
    """Return the body of a request of media type ``kind``; the limit bounds memory use.

    Raises:
        ApiError: 415 another media type or a compressed body, 413 too large, 408 too slow.
        ClientGone: the client disconnected.
    """
    # Neither type is "simple" in CORS: a browser sends a preflight first, which this server does not grant.
    if headers.get("content-type", "").partition(";")[0].strip().lower() != kind:
        raise ApiError(415, f"The header Content-Type must be {kind}.", code="invalid_content_type")
    if headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
        text = "The body must not be compressed: leave out the header Content-Encoding."
        raise ApiError(415, text, code="compressed_body", param="Content-Encoding")
    too_large = ApiError(413, f"The body must have at most {limits.body_bytes:,} bytes.", code="body_too_large")
    length = headers.get("content-length", "")
    # Reject an announced length at once; a false or missing announcement is caught while reading.
    # The slice bounds int(): Python rejects numbers of more than 4,300 digits.
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
class Sealing:
    """Fields of a request for sealed rows."""

    collection: str
    ids: list[str]
    metadata: list[dict[str, Any] | None] | None
    filter_fields: list[str]


@dataclass(frozen=True, repr=False)
class EmbeddingRequest:
    """A parsed request for embeddings; None stands for a missing field.

    ``named`` is the model name as sent, ``model`` the same without the suffix of the side. At least one text, none
    empty. ``base64`` encodes vectors as little-endian float32 instead of lists.
    """

    texts: list[str]
    model: str
    named: str
    policy: str | None
    side: Side
    base64: bool
    dimensions: int | None
    ids: list[str] | None
    sealing: Sealing | None = None


@dataclass(frozen=True, repr=False)
class RerankRequest:
    """A parsed request to rank sealed documents; ``top`` is the number to return.

    ``ids`` are distinct; the blob of a document that is not base64 is empty. Without ``collection``, the documents' key
    determines it.
    """

    query: str
    ids: list[str]
    blobs: list[bytes]
    model: str
    policy: str | None
    top: int
    with_texts: bool
    collection: str | None


def split_side(model: str) -> tuple[str, Side | None]:
    """Split a suffix ``:query`` or ``:document`` off a model name; return name and side."""
    # Other suffixes belong to the name: Ollama's models have tags such as ":latest".
    name, _, suffix = model.rpartition(":")
    return (name, cast(Side, suffix)) if name and suffix in ("query", "document") else (model, None)


def parse_request(
    body: bytes, headers: Mapping[str, str], *, max_inputs: int, client_ids: bool = False
) -> EmbeddingRequest:
    """Return the parsed request; unknown fields are ignored. ``client_ids`` accepts item ids from clients.

    Raises:
        ApiError: 400, with the invalid field but not its value.
    """
    content = parse_object(body)
    named = content.get("model")
    if not isinstance(named, str) or not 0 < len(named) <= _MAX_NAME or not is_unicode(named):
        raise invalid("model", f"must be a string of 1 to {_MAX_NAME} characters.")
    model, suffix = split_side(named)
    texts = _texts(content.get("input"), max_inputs)
    encoding, dimensions = content.get("encoding_format", "float"), content.get("dimensions")
    if encoding not in (None, "float", "base64"):
        raise invalid("encoding_format", "must be float or base64.")
    if dimensions is not None and (not is_integer(dimensions) or dimensions < 1):
        raise invalid("dimensions", "must be a positive integer.")
    return EmbeddingRequest(
        texts=texts,
        model=model,
        named=named,
        policy=headers.get(POLICY_HEADER),
        side=_side(suffix, headers.get(SIDE_HEADER), content.get("input_type")),
        base64=encoding == "base64",
        dimensions=dimensions,
        ids=_ids(content.get(ID_FIELD), len(texts), allowed=client_ids),
        sealing=_sealing(content, len(texts)),
    )


def parse_rerank(body: bytes, headers: Mapping[str, str], limits: Limits) -> RerankRequest:
    """Return the parsed request; unknown fields are ignored. Raises as `parse_request`."""
    content = parse_object(body)
    query, documents, top = (content.get(name) for name in ("query", "documents", "top_n"))
    # No vectors: chosen directions would reveal a stored vector with fewer requests than texts.
    if not isinstance(query, str) or not query.strip() or not is_unicode(query):
        raise invalid("query", "must be a text that is not empty; vectors are not accepted.")
    if not isinstance(documents, list) or not 0 < len(documents) <= limits.documents:
        raise invalid("documents", f"must be a list of 1 to {limits.documents:,} strings.")
    pairs = [_document(document, i) for i, document in enumerate(documents)]
    if not _distinct([name for name, _ in pairs]):
        raise invalid("documents", "must have distinct ids.")
    top = limits.results if top is None else top
    if not is_integer(top) or not 0 < top <= limits.results:
        raise invalid("top_n", f"must be 1 to {limits.results:,}.")
    with_texts = content.get("return_documents")
    if with_texts not in (None, True, False):
        raise invalid("return_documents", "must be true or false.")
    model, collection = content.get("model") or "", content.get("collection")
    if not isinstance(model, str) or len(model) > _MAX_NAME or not is_unicode(model):
        raise invalid("model", f"must be a string of at most {_MAX_NAME} characters.")
    return RerankRequest(
        query=query,
        ids=[name for name, _ in pairs],
        blobs=[blob for _, blob in pairs],
        model=split_side(model)[0],
        policy=headers.get(POLICY_HEADER),
        top=top,
        with_texts=bool(with_texts),
        collection=None if collection is None else _collection(collection),
    )


def _document(value: Any, position: int) -> tuple[str, bytes]:
    """Return id and blob of ``id:base64``; the id may contain colons, base64 cannot."""
    name, colon, blob = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not colon or not 0 < len(name) <= _MAX_ID or len(blob) > MAX_DOCUMENT or not is_unicode(name):
        raise invalid(
            "documents",
            f"must contain strings of the form id:base64, with ids of at most {_MAX_ID} and blobs "
            f"of at most {MAX_DOCUMENT:,} characters; the one at {position} is not.",
        )
    return name, decoded(blob)


def parse_object(body: bytes) -> dict[str, Any]:
    try:
        content = parse_json(body.decode("utf-8-sig"))  # of bytes, json would also read UTF-16 and UTF-32
    except (ValueError, RecursionError):  # ValueError includes bad UTF-8 and too many digits
        text = "The body must be JSON in UTF-8, with each key once in its object."
        raise ApiError(400, text, code="invalid_json") from None
    if not isinstance(content, dict):
        raise ApiError(400, "The body must be a JSON object.", code="invalid_json")
    return content


def is_unicode(text: str) -> bool:
    """Return whether ``text`` has no lone surrogates: JSON can escape them, UTF-8 cannot encode them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def invalid(param: str, text: str, code: str = "") -> ApiError:
    return ApiError(400, f"`{param}` {text}", code=code or f"invalid_{param}", param=param)


def is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)  # JSON's true is an int to Python


def _texts(value: Any, most: int) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise invalid("input", "must be a string or a list of strings.")
    if not texts:
        raise invalid("input", "must not be an empty list.")
    if len(texts) > most:
        raise invalid("input", f"must contain at most {most:,} texts.", "too_many_inputs")
    for i, text in enumerate(texts):
        # Token ids cannot be rewritten or checked, and their tokeniser is unknown here.
        if is_integer(text) or (isinstance(text, list) and text and all(map(is_integer, text))):
            raise ApiError(400, _TOKENS, code="token_ids_not_supported", param="input")
        if not isinstance(text, str):
            raise invalid("input", f"must be a string or a list of strings; the item at {i} is neither.")
        if not text:
            raise invalid("input", f"must not contain an empty string; string {i} is empty.")
        if not is_unicode(text):
            raise invalid("input", f"must be Unicode; the text at {i} has a lone surrogate.")
    return texts


def _side(suffix: Side | None, header: str | None, field: Any) -> Side:
    # Fail on contradictions: a document taken for a query may be released without noise.
    sides: set[Side] = set() if suffix is None else {suffix}
    if header is not None:
        if header not in ("query", "document"):
            raise ApiError(400, "The header X-Vecveil-Input must be query or document.", code="invalid_side")
        sides.add(cast(Side, header))
    if field is not None:
        if not isinstance(field, str) or field not in _SIDES:
            raise invalid("input_type", f"must be one of {', '.join(_SIDES)}.", "invalid_side")
        sides.add(_SIDES[field])
    if len(sides) > 1:
        raise ApiError(
            400,
            "The model's suffix, the header X-Vecveil-Input and `input_type` must not contradict each other.",
            code="invalid_side",
        )
    return sides.pop() if sides else "document"


def _ids(value: Any, rows: int, *, allowed: bool) -> list[str] | None:
    if value is None:
        return None
    if not allowed:
        # Noise is keyed by item id: a client that chooses ids can collect fresh draws for one text and average.
        raise invalid(ID_FIELD, "is switched off (client_ids): items are named by their texts.", "ids_not_allowed")
    return _names(value, rows, ID_FIELD)


def _names(value: Any, rows: int, field: str) -> list[str]:
    valid = isinstance(value, list) and len(value) == rows
    if not valid or not all(isinstance(id, str) and 0 < len(id) <= _MAX_ID and is_unicode(id) for id in value):
        raise invalid(field, "must be a list of one string for each input.", "invalid_ids")
    return cast(list[str], value)


def _distinct(ids: list[str]) -> bool:
    return len(set(canonical_ids(ids, len(ids), owner="ids"))) == len(ids)


def _sealing(content: Mapping[str, Any], rows: int) -> Sealing | None:
    seal, metadata = content.get("seal"), content.get("metadata")
    if seal not in (None, True, False):
        raise invalid("seal", "must be true or false.")
    if not seal:
        return None
    ids = _names(content.get("ids"), rows, "ids")
    if not _distinct(ids):
        raise invalid("ids", "must be distinct; a UUID is one id in any spelling.")
    if metadata is not None and not (
        isinstance(metadata, list)
        and len(metadata) == rows
        and all(row is None or isinstance(row, dict) for row in metadata)
    ):
        raise invalid("metadata", "must be a list of one object or null for each input.")
    fields = content.get("filter_fields") or []
    if not isinstance(fields, list) or len(fields) > _MOST_FIELDS or not all(isinstance(name, str) for name in fields):
        raise invalid("filter_fields", f"must be a list of at most {_MOST_FIELDS} names of metadata fields.")
    return Sealing(_collection(content.get("collection")), ids, metadata, fields)


def _collection(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_NAME or not value.isprintable():
        raise invalid("collection", f"must be a name of 1 to {_MAX_NAME} printable characters.")
    return value


ENVIRONMENT = "env:"
# 16 random characters hold at least 64 bits (hexadecimal), beyond guessing over a network.
_MIN_CHARACTERS = 16
_MAX_FILE_BYTES = 2**20
_ACTIONS = ("seal", "rank", "scores", "texts", "search")
_WITHOUT_KEYS = ("seal", "rank", "search")


@dataclass(frozen=True)
class ApiClient:
    """Client that presents one API key.

    Attributes:
        number: number of the key in its file, for the log; 0 on a server without API keys.
        grants: actions (`seal`, `rank`, `scores`, `texts`), each with a collection, and `search` with an index. None:
            the server has no API keys; its clients may seal and rank in every collection, and search every index.
        name: name of the key, or its number, for the audit log.
        filters: by index, the filter of the rows that exist for this client.
    """

    number: int = 0
    grants: frozenset[tuple[str, str]] | None = None
    name: str = "anyone"
    filters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def may(self, action: str, collection: str) -> bool:
        return action in _WITHOUT_KEYS if self.grants is None else (action, collection) in self.grants


class ApiKeys:
    """API keys that clients may present, with their grants; memory contains only digests of the keys.

    Args:
        source: ``env:NAME``, or a file with mode 600. A line is a key and its grants, such as ``rank:notes``, separated
            by spaces; percent-encode other characters of a collection's name. # starts a comment line. ``name:NAME``
            names the key.
        named: further grants of the keys of a name.

    Raises:
        KeyFileError: no key, a short key, an unknown grant, a duplicate key, or a file that others can read.
        InvalidInputError: ``named`` names no key, or grants an index that a line of the source grants without a filter.
    """

    def __init__(self, source: str, named: Mapping[str, Sequence[IndexGrant]] | None = None) -> None:
        named = named or {}
        lines = (line.split() for line in re.split(r"[\n,]", read_secret(source, "api_keys")))
        clients: dict[bytes, ApiClient] = {}
        for key, *given in (line for line in lines if line and not line[0].startswith("#")):
            grants = {(action, unquote(name)) for action, _, name in (grant.partition(":") for grant in given)}
            names = {name for action, name in grants if action == "name"}
            grants = {grant for grant in grants if grant[0] != "name"}
            # Random keys need no salt and no slow hash; digests give `compare_digest` equal lengths.
            digest = hashlib.sha256(key.encode()).digest()
            if (
                len(key) < _MIN_CHARACTERS
                or digest in clients
                or not all(name and action in _ACTIONS for action, name in grants)
                or len(names) > 1
                or not all(map(NAME.fullmatch, names))
            ):
                clients.clear()
                break
            number = len(clients) + 1
            name = names.pop() if names else f"key {number}"
            further = named.get(name, ())
            if any(("search", grant.index) in grants for grant in further):
                raise InvalidInputError(
                    f"`grants` filters an index for the API key {name!r}, but its line in `api_keys` grants the whole "
                    "index. Remove one of the two grants.",
                    param="grants",
                )
            grants |= {("search", grant.index) for grant in further}
            filters = {grant.index: grant.where for grant in further if grant.where is not None}
            clients[digest] = ApiClient(number, frozenset(grants), name, filters)
        if not clients:
            raise KeyFileError(
                f"`api_keys` has no key, or one that is shorter than {_MIN_CHARACTERS} characters, is given "
                "twice, or has an unknown grant or name. Grants are "
                f"{', '.join(f'{action}:NAME' for action in _ACTIONS)}; name:NAME is its name. Make a key with: "
                "python -c 'import secrets; print(secrets.token_urlsafe(32))'",
                param="api_keys",
            )
        if not named.keys() <= {client.name for client in clients.values()}:
            raise InvalidInputError(
                "`grants` names an API key that `api_keys` does not have. Add name:NAME to its line.", param="grants"
            )
        self._clients = clients

    def __repr__(self) -> str:
        return f"ApiKeys({len(self._clients)})"

    def client(self, authorization: bytes | None) -> ApiClient | None:
        """Return the client whose key is in the header, or None, in time that does not depend on the keys."""
        scheme, _, given = (authorization or b"").partition(b" ")
        shown = hashlib.sha256(given.strip()).digest()
        # No early exit: the duration must not reveal which key matched.
        known = [client for digest, client in self._clients.items() if hmac.compare_digest(digest, shown)]
        return known[0] if known and scheme.lower() == b"bearer" else None


def read_secret(source: str, param: str) -> str:
    """Return the content of ``env:NAME`` or of a file, stripped.

    The error for no value or a file that others can read quotes neither value nor source: the source may be a secret
    passed in place of its name.
    """
    if source.startswith(ENVIRONMENT):
        name = source.removeprefix(ENVIRONMENT)
        # Only a plausible variable name is quoted in the error below.
        valid = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,60}", name)
        value = os.environ.get(name, "").strip() if valid else ""
        if not value:
            got = f"the variable {name}, which is not set" if valid else "no variable"
            raise KeyFileError(f"`{param}` names {got}.", param=param)
        return value
    path = expanded(source)
    try:
        status = path.stat()
        # Windows has no mode bits; access control lists are not checked.
        others = status.st_mode & 0o077 if os.name == "posix" else 0
        if others:
            raise KeyFileError(
                f"Others can read the file of `{param}` (mode {others:o}). Run: chmod 600 FILE", param=param
            )
        value = path.read_text("utf-8").strip() if status.st_size <= _MAX_FILE_BYTES else ""
        got = "an empty or very large file"
    except (OSError, ValueError) as error:
        if isinstance(error, KeyFileError):
            raise
        value, got = "", type(error).__name__
    if not value:
        raise KeyFileError(f"`{param}` cannot be read ({got}). Give env:NAME, or a file.", param=param)
    return value
