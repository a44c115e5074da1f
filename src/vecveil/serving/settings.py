"""What a server is started with: policies, upstream, limits, keys. Secrets are named, never written here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from vecveil.errors import InvalidInputError
from vecveil.release_policy import STRONGER, QueryProtection
from vecveil.validation import check_count, check_positive

__all__ = ["Limits", "PolicySettings", "ServeSettings", "UpstreamSettings"]

MAX_NAME = 100
MAX_WORKERS = 128


@dataclass(frozen=True)
class PolicySettings:
    """One policy.

    Attributes:
        protector: its file.
        query_protection: ``same``, ``stronger`` or ``map-only``.
        query_noise: times the documents' noise, for ``stronger``.
        key: of keyed noise: the path of a key file, or ``env:NAME``.
        ledger: the path of a ledger, which must exist.
        upstream: where its clean vectors come from; None takes the server's upstream.
    """

    protector: str
    query_protection: QueryProtection = "same"
    query_noise: float = STRONGER
    key: str | None = None
    ledger: str | None = None
    upstream: str | None = None


@dataclass(frozen=True)
class UpstreamSettings:
    """Where clean vectors come from.

    Attributes:
        encoder: a name or folder of an encoder, ``URL#MODEL``, or ``URL``; None takes each protector's own encoder.
        key: for a URL: ``forward`` sends the client's key on, ``none`` sends none, else ``env:NAME`` or a file.
            None forwards, or with API keys of the server's own takes ``OPENAI_API_KEY`` if it is set.
        timeout: seconds for one request.
        connect_timeout: seconds until there is a connection.
        retries: after no connection, 408, 409, 429 or 5xx.
        connections: at once.
        dimensions: asked for in every request, for models that can shorten their vectors.
        encoding_format: in which vectors are asked for; base64 is smaller and exact.
        max_response_bytes: a larger answer is refused.
    """

    encoder: str | None = None
    key: str | None = None
    timeout: float = 60.0
    connect_timeout: float = 5.0
    retries: int = 2
    connections: int = 100
    dimensions: int | None = None
    encoding_format: Literal["base64", "float"] = "base64"
    max_response_bytes: int = 64 * 2**20

    def __post_init__(self) -> None:
        owner = "upstream"
        for param in ("timeout", "connect_timeout"):
            check_positive(getattr(self, param), owner=owner, param=param)
        check_count(self.retries, owner=owner, param="retries", minimum=0, maximum=10)
        for param in ("connections", "max_response_bytes"):
            check_count(getattr(self, param), owner=owner, param=param)
        if self.dimensions is not None:
            check_count(self.dimensions, owner=owner, param="dimensions")
        if self.encoding_format not in ("base64", "float"):
            got = repr(self.encoding_format)[:40]
            raise InvalidInputError.of(owner, "encoding_format", "base64 or float", got)


@dataclass(frozen=True)
class Limits:
    """What one request, and all at once, may ask for.

    Attributes:
        body_bytes: of a request.
        inputs: texts of a request.
        concurrent: requests at once; more are answered with 429.
        body_seconds: for a client to send its body.
        shutdown_seconds: for requests that are being answered when the server is told to stop.
    """

    body_bytes: int = 8 * 2**20
    inputs: int = 2048
    concurrent: int = 256
    body_seconds: float = 30.0
    shutdown_seconds: float = 30.0

    def __post_init__(self) -> None:
        for param in ("body_bytes", "inputs", "concurrent"):
            check_count(getattr(self, param), owner="limits", param=param)
        for param in ("body_seconds", "shutdown_seconds"):
            check_positive(getattr(self, param), owner="limits", param=param)


@dataclass(frozen=True)
class ServeSettings:
    """Everything that a server is started with.

    Attributes:
        policies: by name, at least one.
        upstream: of the policies without their own.
        limits: see `Limits`.
        host: to listen on; the default is reached from this machine alone.
        port: 0 takes a free one.
        api_keys: that clients must have: a file with one a line, or ``env:NAME``; None lets everybody in.
        client_ids: whether clients may name items (field ``vecveil_ids``). A client that can gets fresh noise for a
            text as often as it likes.
        access_log: one line for each request.
        host_names: names, with commas, that clients may call the server by (the header Host). None takes any; of a
            server for this machine alone that asks for no key, only this machine's: a web page whose name is made to
            point here could ask it otherwise.
        workers: processes that answer on the one port, each with encoders, connections and limits of its own.
    """

    policies: Mapping[str, PolicySettings]
    upstream: UpstreamSettings = field(default_factory=UpstreamSettings)
    limits: Limits = field(default_factory=Limits)
    host: str = "127.0.0.1"
    port: int = 8080
    api_keys: str | None = None
    client_ids: bool = False
    access_log: bool = True
    host_names: str | None = None
    workers: int = 1

    def __post_init__(self) -> None:
        owner = "serve"
        if not self.policies:
            raise InvalidInputError.of(owner, "policies", "at least one", "none")
        for name in self.policies:
            usable = isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()
            if not usable or name.strip() != name or name.endswith((":query", ":document")):
                raise InvalidInputError.of(owner, "policies",
                                           "named by printable words that do not end in :query or :document",
                                           "another name", "A model's suffix says which side is meant.")  # fmt: skip
            if not name.isascii():
                raise InvalidInputError.of(owner, "policies", "named in ASCII", "another name",
                                           "A name is sent as a header.")  # fmt: skip
        check_count(self.port, owner=owner, param="port", minimum=0, maximum=65_535)
        check_count(self.workers, owner=owner, param="workers", maximum=MAX_WORKERS)
        if not isinstance(self.host, str) or not self.host:
            raise InvalidInputError.of(owner, "host", "an address", "none")
