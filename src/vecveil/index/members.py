"""Members of an index: identities, roles, and the list of members in a commit.

An identity is one random secret in a key file. Two keys are derived from it: X25519 receives the data key of an index
(HPKE, RFC 9180), Ed25519 signs commits. Their public string names the member; it is not secret.

The list is in plain text, because a writer who cannot read has to verify signers, too. The storage's operator sees the
number, roles, names and public strings of the members.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn, get_args
from uuid import UUID

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Meta, Struct

from vecveil.errors import InvalidInputError, MissingDependencyError

Role = Literal["owner", "reader", "writer"]
SIGNATURE_BYTES = 64
SEALED_BYTES = 80  # of a 32-byte key: X25519 key, ciphertext and tag
_PREFIX = "veil1"
_P = 2**255 - 19  # of the field of both curves
_LONGEST_NAME = 100
Public = Annotated[str, Meta(pattern=r"^veil1[0-9A-Za-z_-]{91}\Z")]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class Place(Struct, frozen=True, forbid_unknown_fields=True):
    """Number and digest of a commit."""

    number: Annotated[int, Meta(ge=1, lt=2**53)]
    digest: Digest


class Member(Struct, frozen=True, forbid_unknown_fields=True):
    """A member of an index.

    Attributes:
        public: public string of the identity.
        roles: ``owner`` alone, or ``reader``, ``writer`` or both.
        name: name that an owner chose, or None; the storage's operator sees it.
        envelope: data key, sealed to the member; None for a member who cannot read.
    """

    public: Public
    roles: tuple[Role, ...]
    name: Annotated[str, Meta(min_length=1, max_length=_LONGEST_NAME)] | None = None
    envelope: bytes | None = None

    @property
    def reads(self) -> bool:
        return "owner" in self.roles or "reader" in self.roles

    def may(self, kind: str) -> bool:
        """Return whether the member may make a commit of this kind."""
        if kind in ("append", "delete"):
            return "owner" in self.roles or "writer" in self.roles
        return "owner" in self.roles or (kind == "replace" and len(self.roles) == 2)


class MemberList(Struct, frozen=True, forbid_unknown_fields=True):
    """List of members in a commit.

    Attributes:
        index_key: X25519 public key, derived from the data key; writers seal the keys of their objects to it.
        renew: whether a removed member still has the data key.
    """

    index_key: Annotated[bytes, Meta(min_length=32, max_length=32)]
    members: tuple[Member, ...]
    renew: bool = False

    def member(self, public: str | None) -> Member | None:
        """Return the member with this public string, or None."""
        return next((member for member in self.members if member.public == public), None)

    def problem(self) -> str | None:
        """Return what is wrong with the list, or None."""
        publics = [member.public for member in self.members]
        if len(set(publics)) < len(publics):
            return "lists a member twice"
        if not any("owner" in member.roles for member in self.members):
            return "lists no owner"
        try:
            _check_order(self.index_key)
        except ValueError:
            return "has an invalid public key of the index"
        for member in self.members:
            if member.roles not in (("owner",), ("reader",), ("writer",), ("reader", "writer")):
                return "lists a member with unknown roles"
            if not (member.name or "x").isprintable() or (member.envelope is not None) is not member.reads:
                return "lists a member with an invalid name or envelope"
            try:
                public_keys(member.public)
            except InvalidInputError:
                return "lists a damaged public string"
        return None


@dataclass(frozen=True)
class Members:
    """The members of an index after a commit.

    Attributes:
        place: place of the commit with the list.
        founder: public string of the owner who signed the first list.
        key_id: id of the data key in the envelopes.
    """

    place: Place
    founder: str
    key_id: str
    listing: MemberList


class Identity:
    """The secret keys of one member. Its repr shows the public string alone; it cannot be pickled.

    Args:
        secret: 32 random bytes of a key file.
    """

    __slots__ = ("_exchange", "_signing", "public")

    def __init__(self, secret: bytes) -> None:
        self._exchange = X25519PrivateKey.from_private_bytes(derived(secret, b"member exchange"))
        self._signing = Ed25519PrivateKey.from_private_bytes(derived(secret, b"member signature"))
        keys = self._exchange.public_key().public_bytes_raw() + self._signing.public_key().public_bytes_raw()
        self.public = _written(keys + _checksum(keys))

    def __repr__(self) -> str:
        return f"Identity({self.public!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("Identity: secret keys are not pickled; let each worker read its key file.")

    def sign(self, content: bytes) -> bytes:
        """Return the signature (64 bytes) of ``content``."""
        return self._signing.sign(content)

    def open(self, envelope: bytes, context: bytes) -> bytes:
        """Return what `seal` sealed; raise `InvalidTag` if it does not open."""
        return unsealed(envelope, self._exchange, context)


def public_keys(public: Any) -> tuple[X25519PublicKey, Ed25519PublicKey]:
    """Return the keys in a public string; raise `InvalidInputError` for any other string."""
    try:
        return _keys_in(public)
    except (ValueError, TypeError, AttributeError):
        raise InvalidInputError(
            "`public` is not a complete public string (veil1…). `vecveil key list FILE` prints it.",
            code="E-INDEX-PUBLIC",
            param="public",
        ) from None


@functools.lru_cache(1024)
def _keys_in(public: str) -> tuple[X25519PublicKey, Ed25519PublicKey]:
    content = base64.urlsafe_b64decode(f"{public.removeprefix(_PREFIX)}=")
    keys = content[:64]
    if content[64:] != _checksum(keys) or _written(content) != public:
        raise ValueError
    # Anyone can sign for a point of small order. Its image (1 + y) / (1 - y) on X25519's curve has small order, too.
    y = int.from_bytes(keys[32:], "little") % 2**255
    image = (1 + y) * pow(1 - y, _P - 2, _P) % _P
    for key in (keys[:32], image.to_bytes(32, "little")):
        _check_order(key)
    return X25519PublicKey.from_public_bytes(keys[:32]), Ed25519PublicKey.from_public_bytes(keys[32:])


def _check_order(key: bytes) -> None:
    """Raise `ValueError` for a point of small order on X25519's curve, which no identity has."""
    X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(key))


def is_signed(public: str, signature: bytes, content: bytes) -> bool:
    """Return whether the member signed ``content``."""
    try:
        public_keys(public)[1].verify(signature, content)
    except (InvalidSignature, InvalidInputError):
        return False
    return True


def seal(secret: bytes, key: X25519PublicKey, context: bytes) -> bytes:
    """Return ``secret`` sealed to a public key (HPKE in base mode), bound to ``context``."""
    return bytes(_suite().encrypt(secret, key, context))


def unsealed(sealed: bytes, key: X25519PrivateKey, context: bytes) -> bytes:
    """Return what `seal` sealed; raise `InvalidTag` if it does not open."""
    try:
        return bytes(_suite().decrypt(sealed, key, context))
    except ValueError as error:  # a key of low order
        raise InvalidTag from error


def envelope_context(index: UUID, key_id: str) -> bytes:
    return b"vecveil envelope 1" + index.bytes + key_id.encode()


def exchange_key(secret: bytes, index: UUID) -> X25519PrivateKey:
    """Return the key, derived from the data key of an index, that opens the object keys of writers."""
    return X25519PrivateKey.from_private_bytes(derived(secret, b"index exchange" + index.bytes))


def derived(secret: bytes, purpose: bytes) -> bytes:
    """Return 32 bytes for one purpose."""
    return HKDF(SHA256(), 32, salt=b"vecveil members 1", info=purpose).derive(secret)


def checked_member(public: Any, roles: Any, name: Any) -> Member:
    """Return a member; raise `InvalidInputError` for invalid arguments."""
    public_keys(public)
    listed = [roles] if isinstance(roles, str) else list(roles)
    if not listed or not set(listed) <= set(get_args(Role)):
        raise InvalidInputError(
            f"`roles` has one or more of {', '.join(get_args(Role))}.", code="E-INPUT-NAME", param="roles"
        )
    if not (name is None or (isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable())):
        raise InvalidInputError(
            f"`name` has 1 to {_LONGEST_NAME} printable characters.", code="E-INPUT-NAME", param="name"
        )
    every: tuple[Role, ...] = ("reader", "writer")
    return Member(public, ("owner",) if "owner" in listed else tuple(r for r in every if r in listed), name)


def lost_readers(before: Iterable[Member], after: Collection[Member]) -> bool:
    """Return whether a member who could read before cannot read after."""
    reading = {member.public for member in after if member.reads}
    return any(member.reads and member.public not in reading for member in before)


def _written(content: bytes) -> str:
    return _PREFIX + base64.urlsafe_b64encode(content).decode().rstrip("=")


def _checksum(keys: bytes) -> bytes:
    return hashlib.sha256(b"vecveil member 1" + keys).digest()[:4]


def _suite() -> Any:
    try:
        from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
    except ImportError:
        raise MissingDependencyError("Members of an index (HPKE)", "cryptography>=47", "index") from None
    return Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
