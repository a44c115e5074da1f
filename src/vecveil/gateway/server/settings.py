"""Server configuration: policies, upstream, limits and key sources. Secrets are referenced, never stored."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from vecveil.errors import InvalidInputError, unknown_name, wrong_type
from vecveil.io import expanded
from vecveil.keys import placed_source
from vecveil.privacy.concepts.concept_file import load_yaml, read_text
from vecveil.validation import check_count, check_positive

_MAX_NAME = 100
_MAX_WORKERS = 128
_MAX_FILE_BYTES = 2**20
_FILE = "serve --config"
_IN_WORDS = {"int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false"}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # of an index or an API key
# Options whose values are paths, and options whose values may be folders, relative to the file's folder.
_PATHS = ("protector", "key", "ledger", "api_keys", "seal_key", "audit_log")
_FOLDERS = ("encoder", "upstream")


@dataclass(frozen=True)
class ServedPolicySettings:
    """Configuration of one policy.

    ``query_noise`` is in units of a document's, 0 for none. ``key`` is a key file of noise keys, or ``env:NAME``. The
    ``ledger`` must exist. Without ``upstream``, the server's is used.
    """

    protector: str
    query_noise: float = 1.0
    key: str | None = None
    ledger: str | None = None
    upstream: str | None = None


@dataclass(frozen=True)
class IndexGrant:
    """A grant to search an index: with ``where`` (see `SealedIndex.search`) only the rows that match exist."""

    index: str
    where: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class UpstreamSettings:
    """Configuration of the upstream, the source of clean vectors.

    Attributes:
        encoder: name or folder of an encoder, ``URL#MODEL``, or ``URL``; None uses each protector's encoder.
        key: for a URL: ``forward`` (the client's key), ``none``, ``env:NAME``, or a file. None forwards; on a
            server with API keys it uses ``OPENAI_API_KEY`` if set.
        timeout: seconds per request.
        connect_timeout: seconds to connect.
        retries: retries after a lost connection, 408, 409, 429 or 5xx.
        connections: size of the connection pool.
        dimensions: value sent with every request, for models that can shorten their vectors.
        encoding_format: base64 is smaller and exact.
        batch_size: texts in one request; some services accept at most ten.
        max_response_bytes: limit of an answer's size.
    """

    encoder: str | None = None
    key: str | None = None
    timeout: float = 60.0
    connect_timeout: float = 5.0
    retries: int = 2
    connections: int = 100
    dimensions: int | None = None
    encoding_format: Literal["base64", "float"] = "base64"
    batch_size: int = 2048
    max_response_bytes: int = 64 * 2**20

    def __post_init__(self) -> None:
        owner = "upstream"
        for param in ("timeout", "connect_timeout"):
            check_positive(getattr(self, param), owner=owner, param=param)
        for param in ("connections", "batch_size", "max_response_bytes"):
            check_count(getattr(self, param), owner=owner, param=param)
        check_count(self.retries, owner=owner, param="retries", minimum=0, maximum=10)
        if self.dimensions is not None:
            check_count(self.dimensions, owner=owner, param="dimensions")
        if self.encoding_format not in ("base64", "float"):
            raise unknown_name(owner, "encoding_format", ("base64", "float"), self.encoding_format)


@dataclass(frozen=True)
class Limits:
    """Limits of requests, per process. Requests beyond a limit on their number get 429.

    Attributes:
        inputs: texts per request.
        concurrent: concurrent requests.
        body_seconds: time for a client to send its body.
        shutdown_seconds: time for running requests when the server ends.
        documents: documents of a request to ``/v1/rerank``.
        results: documents of an answer, the best ones. Longer rankings reveal the exact vectors sooner.
        reranks_per_minute: requests to ``/v1/rerank`` of one API key in one process.
        searches_per_minute: searches of indexes, likewise.
    """

    body_bytes: int = 8 * 2**20
    inputs: int = 2048  # OpenAI's limit
    concurrent: int = 256
    body_seconds: float = 30.0
    shutdown_seconds: float = 30.0
    documents: int = 1000
    results: int = 10
    reranks_per_minute: int = 60
    searches_per_minute: int = 6000

    def __post_init__(self) -> None:
        counts = ("body_bytes", "inputs", "concurrent", "documents", "results", "reranks_per_minute")
        for param in (*counts, "searches_per_minute"):
            check_count(getattr(self, param), owner="limits", param=param)
        for param in ("body_seconds", "shutdown_seconds"):
            check_positive(getattr(self, param), owner="limits", param=param)


@dataclass(frozen=True)
class ServeSettings:
    """Configuration of a server.

    Attributes:
        policies: policies by name; at least one, or an index.
        indexes: locations of sealed indexes by name, which clients search as vector stores of OpenAI's API. They
            need ``seal_key``; ``upstream`` encodes the queries, or minilm.
        upstream: upstream of policies without one, and of indexes.
        host: address to listen on; the default accepts connections from this machine alone.
        port: 0 selects a free port.
        api_keys: source of the accepted API keys: a file with one a line, or ``env:NAME``; None admits everybody.
        seal_key: key of sealed search, as for `Sealer`: a key file, or ``env:NAME:STORE``. Required to seal, to
            rerank and to search indexes; needs ``api_keys`` unless ``host`` is a loopback address.
        client_ids: accept item ids from clients (field ``vecveil_ids``). A client can then collect independent
            releases of one text and average them.
        access_log: log one line per request.
        host_names: comma-separated values of the header Host to accept besides this machine's. None accepts any;
            on a loopback address without API keys it accepts this machine's alone, against DNS rebinding.
        workers: processes on one port, each with its own encoders, connections and limits.
        grants: by name of an API key (``name:NAME`` in its line), the indexes that it may search.
        audit_log: destination of a line for each operation on an index, as for `AuditLog`: a path, ``stdout``,
            ``syslog``, or, with one worker, a `logging.Handler`.
    """

    policies: Mapping[str, ServedPolicySettings]
    upstream: UpstreamSettings = field(default_factory=UpstreamSettings)
    limits: Limits = field(default_factory=Limits)
    host: str = "127.0.0.1"
    port: int = 8080
    api_keys: str | None = None
    seal_key: str | None = None
    client_ids: bool = False
    access_log: bool = True
    host_names: str | None = None
    workers: int = 1
    indexes: Mapping[str, str] = field(default_factory=dict)
    grants: Mapping[str, Sequence[IndexGrant]] = field(default_factory=dict)
    audit_log: str | logging.Handler | None = None

    def __post_init__(self) -> None:
        owner = "serve"
        self._check_grants()
        if self.audit_log is not None and not self.indexes:
            raise InvalidInputError("serve: `audit_log` requires an index in `indexes`.", param="audit_log")
        if isinstance(self.audit_log, logging.Handler) and self.workers != 1:
            raise InvalidInputError(
                "serve: several `workers` cannot share a handler. Pass a path, stdout or syslog as `audit_log`.",
                param="audit_log",
            )
        if not self.policies and not self.indexes:
            raise InvalidInputError(
                "serve: there is nothing to serve. Name at least one in `policies` or `indexes`.",
                code="E-INPUT",
                param="policies",
            )
        if not all(isinstance(name, str) and NAME.fullmatch(name) for name in self.indexes):
            raise InvalidInputError(
                "serve: the name of an index is part of a URL. Use 1 to 100 letters, digits, '.', "
                "'_', '-', a letter or digit first.",
                code="E-INPUT",
                param="indexes",
            )
        if self.indexes and self.seal_key is None:
            raise InvalidInputError(
                "serve: an index needs the key that opens it. Pass `seal_key`.", code="E-INPUT", param="seal_key"
            )
        for name in self.policies:
            usable = isinstance(name, str) and 0 < len(name) <= _MAX_NAME and name.isprintable()
            # A client appends the side to the policy's name: "drug:query".
            if not usable or name.strip() != name or name.endswith((":query", ":document")):
                raise InvalidInputError(
                    "A name in `policies` must be printable and must not end with :query or :document, which "
                    "name the side.",
                    param="policies",
                )
            if not name.isascii():
                raise InvalidInputError("A name in `policies` must be ASCII: it is sent as a header.", param="policies")
        check_count(self.port, owner=owner, param="port", minimum=0, maximum=65_535)
        check_count(self.workers, owner=owner, param="workers", maximum=_MAX_WORKERS)
        if not isinstance(self.host, str) or not self.host:
            raise InvalidInputError("`host` is empty. Give the address to listen on.", param="host")
        # A gateway in front may check keys, but does not know which collections a key opens.
        if self.seal_key is not None and self.api_keys is None and not self.is_local:
            raise InvalidInputError(
                "`seal_key` needs `api_keys` where other machines reach the server: otherwise they rank every "
                "sealed row and search every index. Pass --api-keys, or listen on 127.0.0.1.",
                param="api_keys",
            )

    def _check_grants(self) -> None:
        if self.grants and self.api_keys is None:
            raise InvalidInputError("serve: `grants` names API keys. Pass `api_keys`.", param="grants")
        for grants in self.grants.values():
            if len({grant.index for grant in grants}) < len(grants):
                raise InvalidInputError("serve: `grants` grants an index twice to one key.", param="grants")
            for grant in grants:
                if grant.index not in self.indexes:
                    raise InvalidInputError("serve: `grants` names an index that `indexes` lacks.", param="grants")
                if grant.where is not None:
                    from vecveil.index.filters import check_forced  # needs pyarrow

                    check_forced(grant.where, "serve", "grants")

    @property
    def is_local(self) -> bool:
        """True if only this machine reaches the server."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def read_config(path: str | os.PathLike[str]) -> ServeSettings:
    """Return the settings in a YAML file; relative paths start at its folder.

    Raises:
        DataFileError: the file is unreadable or not plain YAML.
        InvalidInputError: an unknown key or a wrong value. The message shows no value: it may be a misplaced secret.
    """
    path = expanded(path)
    content = load_yaml(read_text(path, owner=_FILE, most=_MAX_FILE_BYTES), path.name, owner=_FILE)
    content = dict(_mapping(content, "the file"))
    policies = {
        str(name): _section(ServedPolicySettings, value, f"policies.{name}", path.parent)
        for name, value in _mapping(content.pop("policies", {}), "policies").items()
    }
    indexes = {}
    for name, place in _mapping(content.pop("indexes", {}), "indexes").items():
        if not isinstance(place, str):
            raise wrong_type(_FILE, f"indexes.{name}", "a folder or URL", place)
        place = place.removeprefix("sealed:")
        indexes[str(name)] = place if "://" in place else str(path.parent / expanded(place))
    grants = {
        str(name): [
            _section(IndexGrant, grant, f"grants.{name}", path.parent)
            for grant in (value if isinstance(value, list) else [value])
        ]
        for name, value in _mapping(content.pop("grants", {}), "grants").items()
    }
    sections: dict[str, Any] = {}
    for name, kind in (("upstream", UpstreamSettings), ("limits", Limits)):
        if (given := content.pop(name, None)) is not None:
            sections[name] = _section(kind, given, name, path.parent)
    plain = _checked(ServeSettings, content, "the file", path.parent)
    return ServeSettings(policies=policies, indexes=indexes, grants=grants, **sections, **plain)


def _section(kind: type[Any], value: Any, where: str, folder: Path) -> Any:
    # "policies: {drug: drug.vecveil}" and "upstream: minilm" are written without a mapping.
    shorthand = {ServedPolicySettings: "protector", UpstreamSettings: "encoder", IndexGrant: "index"}.get(kind)
    if shorthand is not None and isinstance(value, str):
        value = {shorthand: value}
    checked = _checked(kind, _mapping(value, where), where, folder)
    required = {ServedPolicySettings: "protector", IndexGrant: "index"}.get(kind)
    if required is not None and required not in checked:
        raise InvalidInputError(f"{_FILE}: `{where}.{required}` is missing.", param=f"{where}.{required}")
    return kind(**checked)


def _checked(kind: type[Any], given: Mapping[Any, Any], where: str, folder: Path) -> dict[str, Any]:
    hints = get_type_hints(kind)
    types = {each.name: each.type for each in fields(kind)}
    checked: dict[str, Any] = {}
    for name, value in given.items():
        if name not in types:
            # The unknown key is not shown either: wrong indentation can turn a value into a key.
            close = get_close_matches(str(name), types, n=1)
            fix = f" Did you mean `{close[0]}`?" if close else ""
            text = f"{_FILE}: {where} has an unknown key. Known: {', '.join(types)}.{fix}"
            raise InvalidInputError(text, param=where)
        if not _fits(value, hints[name]):
            place = name if where == "the file" else f"{where}.{name}"
            expected = str(types[name])
            raise wrong_type(_FILE, place, _IN_WORDS.get(expected, expected), value)
        if name in _PATHS:
            value = _relative(value, folder)
        elif name in _FOLDERS and isinstance(value, str) and (folder / value).is_dir():
            value = str(folder / value)  # else an encoder's name, or a URL
        checked[name] = value
    return checked


def _fits(value: Any, hint: Any) -> bool:
    # YAML's true is an int to Python: numbers exclude bool.
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    if hint is type(None):
        return value is None
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(kind := get_origin(hint) or hint, type):
        return isinstance(value, kind)
    return value in get_args(hint)  # a Literal


def _relative(value: Any, folder: Path) -> Any:
    if not isinstance(value, str) or value in ("forward", "none", "stdout", "syslog"):
        return value
    return placed_source(value, lambda path: str(folder / path))


def _mapping(value: Any, where: str) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise wrong_type(_FILE, where, "a mapping", value)
    return value
