"""How a store is called in messages and state files: where it is, without what opens it."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

__all__ = ["default_state_file", "is_local", "public_name", "short_name"]

_SAFE = ("host", "hostaddr", "port", "dbname")
_KEYWORDS = re.compile(rf"(?:^|\s)({'|'.join(_SAFE)})\s*=\s*([\w.:/-]+)")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'?")
_HIDDEN = "…"


def is_local(location: str) -> bool:
    """Return whether ``KIND:WHERE#COLLECTION`` names a file or folder."""
    kind, where, _ = _parts(location)
    return kind != "pgvector" and "://" not in where


def public_name(location: str) -> str:
    """Return the location without user, password, options and token: what may be shown and kept.

    Two locations of one name are the same store; a path is absolute.
    """
    kind, where, collection = _parts(location)
    if is_local(location):
        place = os.path.realpath(where)
    elif "://" in where:
        place = _public_url(where)
    else:
        place = (
            " ".join(f"{key}={value}" for key, value in _KEYWORDS.findall(_QUOTED.sub("", where)))
            or _HIDDEN
        )
    return f"{kind}:{place}#{collection}" if collection else f"{kind}:{place}"


def short_name(location: str) -> str:
    """Return `public_name` with the last name alone of a path: folders tell of users and projects."""
    public = public_name(location)
    if not is_local(location):
        return public
    kind, _, rest = public.partition(":")
    return f"{kind}:{rest.rpartition(os.sep)[2]}"


def _parts(location: str) -> tuple[str, str, str]:
    kind, _, rest = location.partition(":")
    where, _, collection = rest.partition("#")
    if "@" in collection or "/" in collection:  # a password with "#" in it was cut here
        return kind, "://", _HIDDEN
    return kind, where, collection


def _public_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:  # its message holds what it could not read
        return _HIDDEN
    if not parts.netloc and not parts.path:
        return _HIDDEN
    options = [(key, value) for key, value in parse_qsl(parts.query) if key in _SAFE]
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}{'?' if options else ''}{urlencode(options)}"


def default_state_file(location: str) -> Path:
    """Return where the state of a migration to ``location`` is kept: beside a file or folder, else in this folder."""
    kind, where, collection = _parts(location)
    if is_local(location):
        path = Path(os.path.realpath(where))
        return (
            path.parent / f"{_slug('.'.join(filter(None, (path.name, collection))))}.migration.json"
        )
    public = public_name(location)
    mark = hashlib.sha256(public.encode()).hexdigest()[:8]
    return Path(f"{kind}-{_slug(collection or 'store')}-{mark}.migration.json")


def _slug(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name)[:80]
