"""Parse locations ``KIND:WHERE#COLLECTION?OPTION=VALUE&...``, open their stores, and print them without secrets.

The options select one of several vectors (``vector``), a ``tenant`` or a ``database``; values are percent-encoded.
A location without a collection has its options behind ``#``.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from vecveil.errors import InvalidInputError, StoreError, VecveilError
from vecveil.stores.store import VectorStore

# Shown in names of stores; every other option may be a secret. An allowlist, so that new options stay hidden.
_SAFE = ("host", "hostaddr", "port", "dbname")
_KEYWORDS = re.compile(rf"(?:^|\s)({'|'.join(_SAFE)})\s*=\s*([\w.:/-]+)")
# Quoted values of a libpq string may contain text like "host=...".
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'?")
_SHOWN = ("vector", "tenant", "database")
_HIDDEN = "…"
# Anything else behind a "?" is part of the collection's name.
_OPTIONS = re.compile(r"(.*)\?(\w+=[^&=]*(?:&\w+=[^&=]*)*)", re.DOTALL)


GROUP = "vecveil.stores"
"""Entry points of other packages: the name is the kind of a location, the object a class of `VectorStore`."""
KINDS = {
    name: EntryPoint(name, f"vecveil.stores.{value}", GROUP)
    for name, value in {
        "chroma": "chroma:ChromaStore",
        "lancedb": "lancedb:LanceStore",
        "qdrant": "qdrant:QdrantStore",
        "pgvector": "pgvector:PgvectorStore",
        "faiss": "faiss:FaissStore",
        "sqlite-vec": "sqlite_vec:SqliteVecStore",
        "milvus": "milvus:MilvusStore",
    }.items()
}
"""The databases of this package, which no other package replaces."""
INDEX = "sealed:"
"""Prefix of the location of a sealed index, ``sealed:FOLDER`` or ``sealed:URL``, which is not a database."""


def index_place(location: str) -> str | None:
    """Return the folder or URL of ``sealed:FOLDER`` or ``sealed:URL``, which must not be empty; None for a database."""
    if not location.startswith(INDEX):
        return None
    if not (place := location.removeprefix(INDEX)):
        raise InvalidInputError(
            "`location`: there is no folder or URL behind `sealed:`. Write sealed:FOLDER or sealed:s3://BUCKET/NAME.",
            param="location",
        )
    return place


def open_store(location: str) -> VectorStore:
    """Return the store at ``KIND:WHERE#COLLECTION?OPTION=VALUE&...`` without creating anything.

    Chroma folders open in a subprocess, see `VectorStore.apart`.

    Raises:
        InvalidInputError: an unknown kind or option, or no place. The message omits the location, which may hold a
            password.
        MissingDependencyError: the database's client is not installed.
    """
    return in_this_process(location).apart()


def in_this_process(location: str) -> VectorStore:
    """Return the store at ``location`` without a subprocess; see `open_store`."""
    kind, _, rest = location.partition(":") if isinstance(location, str) else ("", "", "")
    if kind == INDEX[:-1]:
        raise InvalidInputError(
            "`location`: a sealed index is not a database and has no protected vectors. Open it with "
            "vecveil.SealedIndex. The commands search, reseal, compact, reconcile, forget and scan take it; migrate "
            "takes it as DEST.",
            param="location",
        )
    where, _, fragment = rest.partition("#")
    if not kind or not where:
        raise InvalidInputError(
            "`location` has the form KIND:WHERE#COLLECTION, such as chroma:store#notes.", param="location"
        )
    collection, options = _split(fragment)
    return store_of(kind, os.path.expanduser(where), collection or None, dict(options))


def store_of(kind: str, where: str, collection: str | None, options: Mapping[str, str]) -> VectorStore:
    """Return the store of a kind in this process; ``where`` may contain ``#``."""
    # Database clients are slow to import: load this kind's module only.
    entry = KINDS.get(kind) or next(iter(entry_points(group=GROUP, name=kind)), None)
    if entry is None:
        known = ", ".join(dict.fromkeys([*KINDS, *(one.name for one in entry_points(group=GROUP))]))
        raise InvalidInputError(
            f"`location` has the form KIND:WHERE#COLLECTION, and names no known kind: {known}.", param="location"
        )
    try:
        store = entry.load()
    except Exception as error:
        if kind in KINDS or isinstance(error, VecveilError):
            raise
        raise StoreError(
            f"The package of the kind {kind!r} (entry point {entry.value!r}) failed to load: {type(error).__name__}. "
            "Repair it, or uninstall it.",
            param="location",
        ) from error
    if not (isinstance(store, type) and issubclass(store, VectorStore)):
        raise InvalidInputError(
            f"`location`: the entry point {kind!r} of {GROUP} is not a class of vecveil.stores.VectorStore.",
            param="location",
        )
    for name, value in options.items():
        if name not in store.options or not value:
            known = ", ".join(f"{option}=NAME" for option in store.options) or "none"
            raise InvalidInputError(
                f"`location`: {kind} has no option {name[:40]!r}. Options behind ?: {known}.",
                code="E-INPUT-NAME",
                param="location",
            )
    return store.open(where, collection, **options)


def _split(fragment: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the collection and the sorted options from the part behind ``#``."""
    match = _OPTIONS.fullmatch(fragment)
    if match is None:
        return fragment, []
    pairs = (part.partition("=") for part in match[2].split("&"))
    return match[1], sorted((name, unquote(value)) for name, _, value in pairs)


def is_local(location: str) -> bool:
    kind, where, _ = _parts(location)
    return kind != "pgvector" and "://" not in where


def public_name(location: str) -> str:
    """Return the location without user, password, token and other options, for messages and state files.

    Paths are absolute. Equal names mean the same store.
    """
    kind, where, collection = _parts(location)
    if is_local(location):
        place = os.path.realpath(where)
    elif "://" in where:
        place = _public_url(where)
    else:  # a connection string of libpq
        keywords = _KEYWORDS.findall(_QUOTED.sub("", where))
        place = " ".join(f"{key}={value}" for key, value in keywords) or _HIDDEN
    name, options = _split(collection)
    given = "&".join(f"{key}={quote(value, safe='')}" for key, value in options if key in _SHOWN)
    given = given and f"?{given}"
    return f"{kind}:{place}#{name}{given}" if collection else f"{kind}:{place}"


def short_name(location: str) -> str:
    """Return `public_name` with the last component of a path only."""
    # Folders name users and projects, and records with this name are shared.
    public = public_name(location)
    if not is_local(location):
        return public
    kind, _, rest = public.partition(":")
    return f"{kind}:{rest.rpartition(os.sep)[2]}"


def default_state_file(location: str) -> Path:
    """Return the default state file of a migration: next to a local destination, else in the current folder."""
    kind, where, collection = _parts(location)
    if is_local(location):
        path = Path(os.path.realpath(where))
        collection, options = _split(collection)
        name = _slug(".".join(filter(None, (path.name, collection, *(value for _, value in options)))))
        return path.parent / f"{name}.migration.json"
    # The hash keeps apart collections of one name on several servers.
    mark = hashlib.sha256(public_name(location).encode()).hexdigest()[:8]
    return Path(f"{kind}-{_slug(_split(collection)[0] or 'store')}-{mark}.migration.json")


def _parts(location: str) -> tuple[str, str, str]:
    kind, _, rest = location.partition(":")
    where, _, collection = rest.partition("#")
    # A password with "#" was cut here: hide all of it.
    if "@" in collection or "/" in collection:
        return kind, "://", _HIDDEN
    return kind, os.path.expanduser(where), collection


def _public_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:  # its message quotes the URL
        return _HIDDEN
    if not parts.netloc and not parts.path:
        return _HIDDEN
    options = [(key, value) for key, value in parse_qsl(parts.query) if key in _SAFE]
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}{'?' if options else ''}{urlencode(options)}"


def _slug(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name)[:80]
