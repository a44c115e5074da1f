"""Server configuration: policies, upstream, limits and key sources. Secrets are referenced, never stored."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from vecveil.concepts.concept_file import shared_line
from vecveil.errors import (
    DataFileError,
    InvalidInputError,
    MissingDependencyError,
    unknown_name,
    wrong_type,
)
from vecveil.protector.policy import STRONGER, QueryProtection
from vecveil.validation import check_count, check_positive

__all__ = ["Limits", "ServeSettings", "ServedPolicySettings", "UpstreamSettings", "read_config"]

_MAX_NAME = 100
_MAX_WORKERS = 128
_MAX_FILE_BYTES = 2**20
_FILE = "serve --config"
_PATHS = ("protector", "key", "ledger", "api_keys")
_FOLDERS = ("encoder", "upstream")


@dataclass(frozen=True)
class ServedPolicySettings:
    """One policy.

    Attributes:
        protector: path of the protector's file.
        query_protection: ``same``, ``stronger`` or ``map-only``.
        query_noise: noise of a query for ``stronger``, as a multiple of a document's.
        key: of keyed noise: the path of a key file, or ``env:NAME``.
        ledger: path of a ledger, which must exist.
        upstream: upstream of this policy; None takes the server's.
    """

    protector: str
    query_protection: QueryProtection = "same"
    query_noise: float = STRONGER
    key: str | None = None
    ledger: str | None = None
    upstream: str | None = None


@dataclass(frozen=True)
class UpstreamSettings:
    """The upstream that gives clean vectors.

    Attributes:
        encoder: name or folder of an encoder, ``URL#MODEL``, or ``URL``; None takes each protector's own encoder.
        key: for a URL: ``forward`` sends the client's key on, ``none`` sends none, else ``env:NAME`` or a file.
            None forwards, or where the server has API keys takes ``OPENAI_API_KEY`` if it is set.
        timeout: seconds for one request.
        connect_timeout: seconds to connect.
        retries: attempts after no connection, 408, 409, 429 or 5xx.
        connections: size of the connection pool.
        dimensions: sent with every request, for models that can shorten their vectors.
        encoding_format: of the vectors; base64 is smaller and exact.
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
        check_positive(self.timeout, owner=owner, param="timeout")
        check_positive(self.connect_timeout, owner=owner, param="connect_timeout")
        check_count(self.retries, owner=owner, param="retries", minimum=0, maximum=10)
        check_count(self.connections, owner=owner, param="connections")
        check_count(self.max_response_bytes, owner=owner, param="max_response_bytes")
        if self.dimensions is not None:
            check_count(self.dimensions, owner=owner, param="dimensions")
        if self.encoding_format not in ("base64", "float"):
            raise unknown_name(owner, "encoding_format", ("base64", "float"), self.encoding_format)


@dataclass(frozen=True)
class Limits:
    """Limits of one request, and of all concurrent ones.

    Attributes:
        body_bytes: bytes of a request's body.
        inputs: texts of a request.
        concurrent: concurrent requests; more are answered with 429.
        body_seconds: time for a client to send its body.
        shutdown_seconds: time for requests that are being answered when the server ends.
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
    """Configuration of a server.

    Attributes:
        policies: by name, at least one.
        upstream: of the policies that name none.
        limits: see `Limits`.
        host: address to listen on; the default is reached from this machine alone.
        port: 0 takes a free one.
        api_keys: keys of which a client must show one: a file with one a line, or ``env:NAME``; None admits everybody.
        client_ids: whether clients may name items (field ``vecveil_ids``). Such a client gets fresh noise for one text
            as often as it likes.
        access_log: whether to log one line for each request.
        host_names: names, with commas, that the header Host may have besides this machine's. None takes any, but on a
            loopback address without keys only this machine's: otherwise a web page whose name is made to resolve to
            this machine could ask the server.
        workers: processes on the one port, each with its own encoders, connections and limits.
    """

    policies: Mapping[str, ServedPolicySettings]
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
            usable = isinstance(name, str) and 0 < len(name) <= _MAX_NAME and name.isprintable()
            if not usable or name.strip() != name or name.endswith((":query", ":document")):
                raise InvalidInputError.of(owner, "policies", "named by printable words without :query or :document",
                                           "another name", "A model's suffix names the side.")  # fmt: skip
            if not name.isascii():
                raise InvalidInputError.of(owner, "policies", "named in ASCII", "another name",
                                           "A name is sent as a header.")  # fmt: skip
        check_count(self.port, owner=owner, param="port", minimum=0, maximum=65_535)
        check_count(self.workers, owner=owner, param="workers", maximum=_MAX_WORKERS)
        if not isinstance(self.host, str) or not self.host:
            raise InvalidInputError.of(owner, "host", "an address", "none")


def read_config(path: str | os.PathLike[str]) -> ServeSettings:
    """Return the settings in a YAML file; paths in it are relative to its folder.

    Raises:
        DataFileError: no readable YAML.
        InvalidInputError: an unknown key, or a wrong value. Values are not shown: one may be a misplaced secret.
        MissingDependencyError: PyYAML is not installed.
    """
    path = Path(path)
    content = dict(_mapping(_read(path), "the file"))
    policies = {
        str(name): _section(ServedPolicySettings, value, f"policies.{name}", path.parent)
        for name, value in _mapping(content.pop("policies", None), "policies").items()
    }
    sections: dict[str, Any] = {}
    for name, kind in (("upstream", UpstreamSettings), ("limits", Limits)):
        if (given := content.pop(name, None)) is not None:
            sections[name] = _section(kind, given, name, path.parent)
    plain = _checked(ServeSettings, content, "the file", path.parent)
    return ServeSettings(policies=policies, **sections, **plain)


def _section(kind: type[Any], value: Any, where: str, folder: Path) -> Any:
    shorthand = {ServedPolicySettings: "protector", UpstreamSettings: "encoder"}.get(kind)
    if shorthand is not None and isinstance(value, str):
        value = {shorthand: value}
    checked = _checked(kind, _mapping(value, where), where, folder)
    if kind is ServedPolicySettings and "protector" not in checked:
        raise InvalidInputError.of(_FILE, f"{where}.protector", "given", "none")
    return kind(**checked)


def _checked(kind: type[Any], given: Mapping[Any, Any], where: str, folder: Path) -> dict[str, Any]:
    hints = get_type_hints(kind)
    types = {each.name: each.type for each in fields(kind)}
    checked: dict[str, Any] = {}
    for name, value in given.items():
        if name not in types:
            raise InvalidInputError.of(_FILE, where, f"of the keys {', '.join(types)}", "another key")
        if not _fits(value, hints[name]):
            raise wrong_type(_FILE, f"{where}.{name}", f"of the type {types[name]}", value)
        if name in _PATHS:
            value = _relative(value, folder)
        elif name in _FOLDERS and isinstance(value, str) and (folder / value).is_dir():
            value = str(folder / value)  # otherwise the name of an encoder, or a URL
        checked[name] = value
    return checked


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    if hint is type(None):
        return value is None
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:  # YAML's true is an int to Python
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(hint, type):
        return isinstance(value, hint)
    return value in get_args(hint)  # a Literal


def _relative(value: Any, folder: Path) -> Any:
    if not isinstance(value, str) or value.startswith("env:") or value in ("forward", "none"):
        return value
    return str(folder / Path(value).expanduser())


def _mapping(value: Any, where: str) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise wrong_type(_FILE, where, "a mapping", value)
    return value


def _read(path: Path) -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingDependencyError("Reading a configuration", "pyyaml", "serve") from None
    # Refused outside the handlers: an exception of the parser holds parts of the file.
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise DataFileError.of(_FILE, "path", f"a file of at most {_MAX_FILE_BYTES} bytes", path.name)
        text = path.read_text("utf-8")
        line = shared_line(yaml, text)
        if line is None:
            return yaml.safe_load(text)
        constraint, got = "a YAML file without anchors (&), aliases (*) and merge keys (<<)", f"one in line {line}"
    except OSError as error:
        constraint, got = "a file that can be read", type(error).__name__
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        constraint, got = "a YAML file", path.name if mark is None else f"{path.name}, wrong at line {mark.line + 1}"
    except (ValueError, TypeError, RecursionError) as error:
        if isinstance(error, DataFileError):
            raise
        constraint, got = "a YAML file in UTF-8", path.name
    raise DataFileError.of(_FILE, "path", constraint, got)
