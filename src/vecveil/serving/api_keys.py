"""Read the secrets that the configuration names: client keys and the upstream's key."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from pathlib import Path

from vecveil.errors import KeyFileError

__all__ = ["ApiKeys", "read_secret"]

ENVIRONMENT = "env:"
# 16 random characters hold at least 64 bits (hexadecimal), beyond guessing over a network.
_MIN_CHARACTERS = 16
_MAX_FILE_BYTES = 2**20


class ApiKeys:
    """API keys that clients may present; memory holds only their digests.

    Args:
        source: ``env:NAME``, or a file with mode 600; one key a line, # starts a comment line.

    Raises:
        KeyFileError: no key, a short key, or a file that others can read.
    """

    def __init__(self, source: str) -> None:
        lines = (line.strip() for line in re.split(r"[\n,]", read_secret(source, "api_keys")))
        keys = [line for line in lines if line and not line.startswith("#")]
        if not keys or any(len(key) < _MIN_CHARACTERS for key in keys):
            constraint = f"keys of at least {_MIN_CHARACTERS} characters, one a line"
            fix = "Make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            raise KeyFileError.of("serve", "api_keys", constraint, "others", fix=fix)
        # Random keys need no salt and no slow hash; digests give `compare_digest` equal lengths.
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    def __repr__(self) -> str:
        return f"ApiKeys({len(self._digests)})"

    def allow(self, authorization: bytes | None) -> bool:
        """Return whether the header holds a valid key, in time that does not depend on the keys."""
        scheme, _, given = (authorization or b"").partition(b" ")
        shown = hashlib.sha256(given.strip()).digest()
        # No early exit: the duration must not show which key matched.
        known = sum(hmac.compare_digest(digest, shown) for digest in self._digests) > 0
        return known and scheme.lower() == b"bearer"


def read_secret(source: str, param: str) -> str:
    """Return the content of ``env:NAME`` or of a file, stripped.

    Raises:
        KeyFileError: no value, or a file that others can read. The message quotes neither value nor source: the
            source may be a secret passed in place of its name.
    """
    owner = "serve"
    if source.startswith(ENVIRONMENT):
        name = source.removeprefix(ENVIRONMENT)
        # Only a plausible variable name is quoted in the error below.
        valid = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,60}", name)
        value = os.environ.get(name, "").strip() if valid else ""
        if not value:
            got = f"{name} unset" if valid else "something that is no variable's name"
            raise KeyFileError.of(owner, param, "env:NAME of a variable that is set", got)
        return value
    path = Path(source)
    try:
        status = path.stat()
        # Windows has no mode bits; access control lists are not checked.
        others = status.st_mode & 0o077 if os.name == "posix" else 0
        if others:
            raise KeyFileError.of(owner, param, "a file readable by its owner alone", f"mode {others:o} for others",
                                  fix="Run: chmod 600 FILE")  # fmt: skip
        value = path.read_text("utf-8").strip() if status.st_size <= _MAX_FILE_BYTES else ""
        got = "an empty or very large file"
    except (OSError, ValueError) as error:
        if isinstance(error, KeyFileError):
            raise
        value, got = "", type(error).__name__
    if not value:
        raise KeyFileError.of(owner, param, "env:NAME, or a file that can be read", got)
    return value
