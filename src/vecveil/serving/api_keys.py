"""Keys that a server is given by name: bearer keys of its clients, and the one it shows to its upstream."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from pathlib import Path

from vecveil.errors import KeyFileError, message
from vecveil.randomness import NoiseKeys

__all__ = ["ApiKeys", "read_noise_keys", "read_secret"]

ENVIRONMENT = "env:"
_SHORTEST = 16
_LARGEST_FILE = 2**20


class ApiKeys:
    """The keys of which a client must show one; only their digests are held.

    Args:
        source: ``env:NAME``, or a file that its owner alone can read, with one key a line; lines with # are comments.

    Raises:
        KeyFileError: none, one that is short, or a file that others can read.
    """

    def __init__(self, source: str) -> None:
        lines = (line.strip() for line in re.split(r"[\n,]", read_secret(source, "api_keys")))
        keys = [line for line in lines if line and not line.startswith("#")]
        if not keys or any(len(key) < _SHORTEST for key in keys):
            raise KeyFileError(
                message("serve", "api_keys", f"keys of at least {_SHORTEST} characters, one a line", "others",
                        fix="Make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'")
            )  # fmt: skip
        self._digests = [_digest(key) for key in keys]

    def __repr__(self) -> str:
        return f"ApiKeys({len(self._digests)})"

    def allow(self, authorization: bytes | None) -> bool:
        """Return whether the header holds a key; the time that it takes tells nothing about the keys."""
        scheme, _, given = (authorization or b"").partition(b" ")
        shown = hashlib.sha256(given.strip()).digest()
        found = False
        for known in self._digests:  # all of them, whichever fits
            found |= hmac.compare_digest(known, shown)
        return found and scheme.lower() == b"bearer"


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def read_noise_keys(source: str | None) -> NoiseKeys | None:
    """Return the keys of keyed noise in a file, or in ``env:NAME``."""
    if source is None:
        return None
    if source.startswith(ENVIRONMENT):
        return NoiseKeys.from_environment(source.removeprefix(ENVIRONMENT))
    return NoiseKeys.from_file(source)


def read_secret(source: str, param: str) -> str:
    """Return what ``env:NAME`` or a file holds, without the last line's end.

    Raises:
        KeyFileError: nothing there, or a file that others can read. The message holds neither value nor source: a
            secret may have been passed in the place of its name.
    """
    owner = "serve"
    if source.startswith(ENVIRONMENT):
        name = source.removeprefix(ENVIRONMENT)
        named = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,60}", name)
        value = os.environ.get(name, "") if named else ""
        if not value.strip():
            got = f"{name} unset" if named else "something that is no variable's name"
            raise KeyFileError.of(owner, param, "env:NAME of a variable that is set", got)
        return value.strip()
    path = Path(source)
    value, failed, others = "", "", 0
    try:
        found = path.stat()
        others = found.st_mode & 0o077 if os.name == "posix" else 0
        if found.st_size > _LARGEST_FILE:
            failed = "a large file"
        elif not others:
            value = path.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        failed = type(error).__name__
    if others:
        raise KeyFileError.of(owner, param, "a file readable by its owner alone", f"mode {others:o} for others",
                              fix="Run: chmod 600 FILE")  # fmt: skip
    if failed or not value:
        got = failed or "an empty file"
        raise KeyFileError.of(owner, param, "env:NAME, or a file that can be read", got)
    return value
