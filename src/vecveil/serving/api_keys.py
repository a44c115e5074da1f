"""Read the secrets that the configuration names: client keys and the upstream's key."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from vecveil.errors import KeyFileError

ENVIRONMENT = "env:"
# 16 random characters hold at least 64 bits (hexadecimal), beyond guessing over a network.
_MIN_CHARACTERS = 16
_MAX_FILE_BYTES = 2**20
_ACTIONS = ("seal", "rank", "scores", "texts", "search")
_WITHOUT_KEYS = ("seal", "rank", "search")


@dataclass(frozen=True)
class ApiClient:
    """Whoever presents one API key.

    Attributes:
        number: number of the key in its file, for the log; 0 on a server without API keys.
        grants: actions (`seal`, `rank`, `scores`, `texts`), each with a collection, and `search` with an index. None:
            the server has no API keys; its clients may seal and rank in every collection, and search every index.
    """

    number: int = 0
    grants: frozenset[tuple[str, str]] | None = None

    def may(self, action: str, collection: str) -> bool:
        """Return whether the client may do ``action`` in ``collection``, or in the index of that name."""
        return action in _WITHOUT_KEYS if self.grants is None else (action, collection) in self.grants


class ApiKeys:
    """API keys that clients may present, with their grants; memory holds only digests of the keys.

    Args:
        source: ``env:NAME``, or a file with mode 600. A line is a key and its grants, such as ``rank:notes``, divided
            by spaces; other characters of a collection's name may be percent-encoded. # starts a comment line.

    Raises:
        KeyFileError: no key, a short key, an unknown grant, a key given twice, or a file that others can read.
    """

    def __init__(self, source: str) -> None:
        lines = (line.split() for line in re.split(r"[\n,]", read_secret(source, "api_keys")))
        clients: dict[bytes, ApiClient] = {}
        for key, *given in (line for line in lines if line and not line[0].startswith("#")):
            grants = [(action, unquote(name)) for action, _, name in (grant.partition(":") for grant in given)]
            # Random keys need no salt and no slow hash; digests give `compare_digest` equal lengths.
            digest = hashlib.sha256(key.encode()).digest()
            if (
                len(key) < _MIN_CHARACTERS
                or digest in clients
                or not all(name and action in _ACTIONS for action, name in grants)
            ):
                clients.clear()
                break
            clients[digest] = ApiClient(len(clients) + 1, frozenset(grants))
        if not clients:
            raise KeyFileError(
                f"`api_keys` has no key, or one that is shorter than {_MIN_CHARACTERS} characters, is given "
                "twice, or has an unknown grant. Grants are "
                f"{', '.join(f'{action}:NAME' for action in _ACTIONS)}. Make a key with: python -c 'import "
                "secrets; print(secrets.token_urlsafe(32))'",
                param="api_keys",
            )
        self._clients = clients

    def __repr__(self) -> str:
        return f"ApiKeys({len(self._clients)})"

    def client(self, authorization: bytes | None) -> ApiClient | None:
        """Return who presents the key in the header, or None, in time that does not depend on the keys."""
        scheme, _, given = (authorization or b"").partition(b" ")
        shown = hashlib.sha256(given.strip()).digest()
        # No early exit: the duration must not show which key matched.
        known = [client for digest, client in self._clients.items() if hmac.compare_digest(digest, shown)]
        return known[0] if known and scheme.lower() == b"bearer" else None


def read_secret(source: str, param: str) -> str:
    """Return the content of ``env:NAME`` or of a file, stripped.

    Raises:
        KeyFileError: no value, or a file that others can read. The message quotes neither value nor source: the
            source may be a secret passed in place of its name.
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
    path = Path(source)
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
