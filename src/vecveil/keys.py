"""Secret keys of keyed noise and of sealed data, and the file that contains them.

A key file is JSON, written by `KeyFile.create` with permissions for its owner alone::

    {"schema": "vecveil.keys/1", "current": "2026-11", "keys": {"2026-11": "<base64 of 32 bytes>"},
     "identity": "<base64 of 32 bytes>"}

The identity makes its owner a member of sealed indexes (`vecveil.index.members`); it does not rotate. Rotation adds a
key and makes it current; keep older keys as long as releases made with them must be repeatable. An environment variable
contains the same JSON, or the base64 of one key, whose id is ``env``.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from vecveil.errors import KeyFileError, wrong_type
from vecveil.io import LOCK_SECONDS, LockedError, NoLocksError, expanded, locked, parse_json, write_bytes

SCHEMA = "vecveil.keys/1"
KEY_BYTES = 32
_LONGEST_ID = 100
_LARGEST_FILE = 2**26  # a key store has some 300 bytes for each collection
_SERVICES = ("awskms", "vault", "gcpkms", "azurekv", "pkcs11")
# Names of services contain colons, paths of Windows one behind the drive.
_SERVICE = re.compile(rf"((?:{'|'.join(_SERVICES)}):.*?)(?::((?:[A-Za-z]:[\\/])?[^:]*))?", re.DOTALL)


class NoiseKey:
    """One secret key and its id. Its repr shows the id alone; it cannot be pickled or copied.

    Args:
        key_id: name of the key, recorded with releases; not secret.
        secret: at least 32 bytes from a cryptographic generator.
    """

    __slots__ = ("_secret", "key_id", "noise_cipher")

    def __init__(self, key_id: str, secret: bytes) -> None:
        named = isinstance(key_id, str) and 0 < len(key_id) <= _LONGEST_ID
        if not named or not key_id.isprintable():
            raise KeyFileError(
                f"NoiseKey: `key_id` is a printable name of 1 to {_LONGEST_ID} characters.", param="key_id"
            )
        # Fewer than 8 distinct bytes: a placeholder or padding, not 32 random bytes.
        if not isinstance(secret, bytes) or len(secret) < KEY_BYTES or len(set(secret)) < 8:
            raise KeyFileError(
                f"NoiseKey: `secret` is not {KEY_BYTES} or more random bytes. An attacker who guesses it can remove "
                "the noise. Make one with `vecveil key new FILE`.",
                param="secret",
            )
        self.key_id = key_id
        self._secret = secret
        self.noise_cipher: object = None  # `vecveil.privacy.randomness.keyed` keeps it here

    def __repr__(self) -> str:
        return f"NoiseKey({self.key_id!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "NoiseKey: keys are not pickled, to keep them out of files and queues. "
            "Let each worker read it from its file or environment variable."
        )

    @property
    def check_value(self) -> str:
        """16 hex digits that distinguish keys of one id; not secret, they reveal nothing of the key."""
        purpose = b"vecveil key check 1" + self.key_id.encode()
        return hmac.digest(self._secret, purpose, "sha256")[:8].hex()

    def surrogate_digest(self, label: str, term: str) -> bytes:
        """Return 32 bytes that order the members of a type for surrogates; see `vecveil.privacy.concepts.rewriting`."""
        parts = (part.encode("utf-8", "surrogatepass") for part in (self.key_id, label, term))
        return hmac.digest(self._secret, b"vecveil surrogate 1" + b"".join(map(framed, parts)), "sha256")

    def secret_for_noise(self) -> bytes:
        """Return the secret bytes; for keyed noise and the key store only."""
        return self._secret


@dataclass(frozen=True, repr=False)
class KeyFile:
    """The keys of one file or variable, for sealed indexes, sealed rows and keyed noise; ``current`` is the newest.

    ``identity`` is the secret of a member of sealed indexes; a variable with one key has none.
    """

    current: str
    keys: Mapping[str, NoiseKey]
    identity: bytes | None = None

    def __repr__(self) -> str:
        return f"KeyFile(current={self.current!r}, ids={sorted(self.keys)!r})"

    def key(self, key_id: str | None = None) -> NoiseKey:
        """Return the key with that id, or the current one."""
        name = self.current if key_id is None else key_id
        if name not in self.keys:
            # Never show the name: it may be the secret, passed in the wrong place.
            known = ", ".join(sorted(self.keys))
            raise KeyFileError(f"KeyFile: no key has this `key_id`. Use one of {known}.", param="key_id")
        return self.keys[name]

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> KeyFile:
        """Return the keys in the file at ``path``; raise `KeyFileError` for a file that other users can read."""
        path = expanded(path)
        owner = "KeyFile.from_file"
        try:
            status = path.stat()
            # Reading a pipe would wait for its writer.
            if not stat.S_ISREG(status.st_mode):
                raise KeyFileError(
                    f"{owner}: {path.name} is a folder, pipe or device (`path`). Name a key file.", param="path"
                )
            if status.st_size > _LARGEST_FILE:
                raise KeyFileError(f"{owner}: {path.name} is too large for a key file (`path`).", param="path")
            # Refuse a file that others can read before reading it.
            others = others_can_open(status)
            text = "" if others else path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            number = getattr(error, "errno", None)
            reason = os.strerror(number) if number else type(error).__name__
            missing = isinstance(error, FileNotFoundError)
            said = (
                f"Key file not found: {path.name}" if missing else f"Reading the key file {path.name} failed: {reason}"
            )
            said += " (`path`). Make one with `vecveil key new FILE`; older data opens with its own key file alone."
            if missing and ":" in str(path):
                said += f" For a key in a KMS pass SERVICE:NAME:FILE, with SERVICE one of {', '.join(_SERVICES)}."
            raise KeyFileError(said, param="path") from None
        if others:
            raise KeyFileError(
                f"Other users can open the key file {path.name} (`path`), and a key opens what it protects. "
                f"Run: chmod 600 {path.name}",
                param="path",
            )
        return cls._parsed(text, owner, "path", f"{path.name} (`path`)")

    @classmethod
    def of(cls, source: str | os.PathLike[str]) -> KeyFile:
        """Return the keys of ``source``: the path of a key file, or ``env:NAME``."""
        if not isinstance(source, str | os.PathLike):
            raise wrong_type("KeyFile.of", "source", "the path of a key file, or env:NAME", source)
        text = os.fspath(source)
        return cls.from_environment(text[4:]) if text.startswith("env:") else cls.from_file(text)

    @classmethod
    def from_environment(cls, variable: str = "VECVEIL_KEYS") -> KeyFile:
        """Return the keys in the environment variable: the JSON of a key file, or one key in base64."""
        owner = "KeyFile.from_environment"
        # Quote only a valid name: a caller may pass the variable's value, the secret, by mistake.
        named = isinstance(variable, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,60}", variable)
        text = os.environ.get(variable) if named else None
        if not text:
            wrong = f"the variable {variable} is not set" if named else "this is not the name of a variable"
            raise KeyFileError(
                f"{owner}: {wrong} (`variable`). Set it to the JSON of a key file, or to 32 bytes in base64.",
                param="variable",
            )
        if not text.lstrip().startswith("{"):
            # One key, under a name that the JSON of a later rotation can use.
            text = json.dumps({"schema": SCHEMA, "current": "env", "keys": {"env": text.strip()}})
        return cls._parsed(text, owner, "variable", f"the content of {variable} (`variable`)")

    @classmethod
    def create(cls, path: str | os.PathLike[str], key_id: str) -> KeyFile:
        """Add a new key to the file at ``path``, created if missing, and make it current."""
        path = Path(os.path.realpath(expanded(path)))  # an atomic write would replace a link by a file
        with key_file_errors(path), locked(path):
            return cls._create(path, key_id)

    @classmethod
    def _create(cls, path: Path, key_id: str) -> KeyFile:
        before = cls.from_file(path) if path.exists() else cls("", {})
        keys = dict(before.keys)
        if key_id in keys:
            raise KeyFileError(
                f"KeyFile.create: {path.name} already has a key with the `key_id` {repr(key_id)[:60]}. Use the file "
                "as it is; for a further key choose another id, since releases record the id of their key.",
                param="key_id",
            )
        # Older keys stay: their releases must remain repeatable.
        keys[key_id] = NoiseKey(key_id, secrets.token_bytes(KEY_BYTES))
        made = cls(key_id, keys, before.identity or secrets.token_bytes(KEY_BYTES))
        # Other members stay: the wrapped data keys of `vecveil.index` live in the same file.
        others = parse_json(path.read_text("utf-8")) if path.exists() else {}
        record = others | {
            "schema": SCHEMA,
            "current": key_id,
            "keys": {name: base64.b64encode(key.secret_for_noise()).decode() for name, key in keys.items()},
            "identity": base64.b64encode(made.identity or b"").decode(),
        }
        write_bytes(path, key_file_content(path, record))
        return made

    @classmethod
    def _parsed(cls, text: str, owner: str, param: str, named: str) -> KeyFile:
        # Chain no cause: it would contain the text, and with it the key.
        try:
            record = parse_json(text)
            if record["schema"] != SCHEMA:
                raise ValueError
            keys = {
                name: NoiseKey(name, base64.b64decode(value, validate=True)) for name, value in record["keys"].items()
            }
            identity = base64.b64decode(record["identity"], validate=True) if "identity" in record else None
            if record["current"] not in keys or (identity is not None and len(identity) != KEY_BYTES):
                raise ValueError
            return cls(record["current"], keys, identity)
        except KeyFileError as error:
            raise error from None
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, binascii.Error):
            pass  # the cause may quote the key
        raise KeyFileError(
            f"{owner}: {named} is not a key file ({SCHEMA}): it is damaged or another file. Restore it from a copy, or "
            "name another.",
            param=param,
        )


def key_file_content(path: Path, record: Mapping[str, Any], spare: int = 0) -> bytes:
    """Return the bytes of a key file; raise KeyFileError if they exceed the largest size less ``spare`` bytes."""
    content = (json.dumps(record, indent=1) + "\n").encode()
    if len(content) > _LARGEST_FILE - spare:
        raise KeyFileError(
            f"{path.name} is full: key files have at most {_LARGEST_FILE >> 20} MiB. It is unchanged. Use a key file "
            "for each group of tenants, or erase collections that are gone.",
            code="E-KEY-FULL",
            param="path",
        )
    return content


@contextmanager
def key_file_errors(path: Path) -> Iterator[None]:
    """Raise `KeyFileError` if the file at ``path`` cannot be locked or written; it is then unchanged."""
    try:
        yield
    except LockedError as error:
        raise KeyFileError(
            f"Another program has been changing {path.name} for {LOCK_SECONDS:g} seconds. Repeat the call; if the file "
            "stays locked, end the program that hangs.",
            code="E-KEY-FILE-LOCKED",
            param="path",
        ) from error
    except NoLocksError as error:
        raise KeyFileError(
            f"{path.name} is on a file system without locks, where two programs would overwrite each other's keys. It "
            "is unchanged. Move it to a local disk, and pass its new path.",
            code="E-KEY-FILE-LOCKS",
            param="path",
        ) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        text = f"The key file {path.name} cannot be written: {reason}. It is unchanged."
        raise KeyFileError(text, param="path") from error


def others_can_open(status: os.stat_result) -> bool:
    """Return whether users other than its owner can open a file."""
    return os.name == "posix" and bool(status.st_mode & 0o077)


def split_source(source: str | os.PathLike[str]) -> tuple[str | None, str]:
    """Return origin and path of a source of keys.

    The source is ``PATH``, ``env:NAME``, or for sealed rows ``env:NAME:PATH`` or a key of a service and a path, such as
    ``awskms:alias/NAME:PATH``. The origin of a plain path is None.
    """
    text = os.fspath(source)
    if text.startswith("env:"):
        name, _, path = text.removeprefix("env:").partition(":")
        return f"env:{name}", os.path.expanduser(path)
    if match := _SERVICE.fullmatch(text):
        return match[1], os.path.expanduser(match[2] or "")
    return None, os.path.expanduser(text)


def placed_source(source: str | os.PathLike[str], place: Callable[[str], str] = os.path.abspath) -> str:
    """Return ``source`` with its path, if there is one, replaced by ``place(path)``."""
    origin, path = split_source(source)
    path = place(path) if path else path
    return path if origin is None else f"{origin}{path and ':'}{path}"


def framed(part: bytes) -> bytes:
    """Return ``part`` prefixed with its length, which makes a concatenation unambiguous."""
    return len(part).to_bytes(8, "little") + part
