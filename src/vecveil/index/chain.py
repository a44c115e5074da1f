"""The commit chain of a sealed index: a state machine without I/O.

The state of an index is what its chain says, and nothing else. The rules:

1. ``index.json`` begins the chain. Commit 1 contains its digest, commit k the digest of commit k - 1: the ciphertext,
   so that a writer who cannot read continues the chain too. Every commit is sealed for its number and for the index.
2. A commit adds objects (name, digest, size, rows) and removes objects that are live. A name is added once.
3. The last commit determines the visible version of an id; a deletion is a version. Objects that a rewrite adds count
   as of the commit that the rewrite was planned on, so that appends made meanwhile win.
4. A rewrite may follow any commit that leaves its sources live. An append may follow any commit that changes neither
   the data key nor the encoder, and voids none of its objects.
5. Only ``renew keys`` changes the data key, only ``re-encode`` the encoder of an index that has noted one, its
   dimension and its epoch. A member who does not read notes an encoder with the first rows only.
6. A checkpoint lists the live objects, the commit's own among them. At most 64 commits of readers lie between two, and
   every ``renew keys`` is one, since earlier commits no longer open. The head names the last checkpoint in clear.
7. A commit names in clear the objects that are void: no commit has added them, and no later commit may. Until then
   an object outside of the chain may be a leftover, or its writer may be about to add it.
8. An owner of the data key begins the list of members with a commit ``members``. From then on a member signs every
   commit, which names the list in force. Owners may make every commit; writers append and delete; writers who are
   readers may also replace. A list, a change of the data key or the encoder, and a checkpoint are in plain text, so
   that a writer who cannot read also refuses them from members without the right.

Anything else is an error that names the commit.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Meta, Struct

from vecveil.errors import KeyFileError, StoreError
from vecveil.index.blob import padded_length
from vecveil.index.index_keys import IndexKeys, KeyId, RetiredKeyError
from vecveil.index.members import (
    SEALED_BYTES,
    SIGNATURE_BYTES,
    Digest,
    Member,
    MemberList,
    Members,
    Place,
    Public,
    is_signed,
    lost_readers,
)

INDEX_JSON = "index.json"
Kind = Literal["append", "delete", "replace", "re-encode", "renew keys", "members"]
SCHEMA: Literal["vecveil.index/3"] = "vecveil.index/3"
MOST_BYTES = 1 << 26  # of a commit
_DOES: dict[Kind, str] = {
    "append": "add rows",
    "delete": "delete rows",
    "replace": "rewrite segments",
    "re-encode": "encode the texts again",
    "renew keys": "renew the keys",
    "members": "change the members",
}
_BETWEEN = 64  # commits from checkpoint to checkpoint
_MAGIC = b"vecveil commit 2"
_LEAST_BODY = 1024
_Name = Annotated[str, Meta(pattern=r"^segments/[0-9a-f]{32}\Z")]
_Count = Annotated[int, Meta(ge=0, lt=2**53)]


class StoredObject(Struct, frozen=True, forbid_unknown_fields=True):
    """An object that the chain has added.

    Attributes:
        digest: SHA-256 of its bytes.
        front: SHA-256 of its bytes before the blocks, by which a reader of parts knows their key.
        as_of: commit that a rewrite was planned on; None for an append.
        commit: number of the commit that added the object.
    """

    name: _Name
    digest: Digest
    front: Digest
    bytes: _Count
    rows: _Count
    as_of: _Count | None = None
    commit: _Count = 0

    @property
    def version(self) -> tuple[int, int]:
        """Place in the order of versions."""
        return self.commit if self.as_of is None else self.as_of, self.commit


class Header(Struct, frozen=True, forbid_unknown_fields=True):
    """Plain-text part of a commit, which the ciphertext authenticates."""

    previous: Digest
    key_id: KeyId
    wrapped: bytes
    checkpoint: _Count
    epoch: _Count
    dimension: Annotated[int, Meta(ge=1, le=2**20)] | None
    precision: Literal["float16", "int8"] | None
    encoder: str | None  # salted digest of its fingerprint
    voids: tuple[_Name, ...] = ()
    signer: Public | None = None
    in_force: Place | None = None  # commit with the last list of members before this one
    members: MemberList | None = None


class Body(Struct, frozen=True, forbid_unknown_fields=True):
    """The sealed part of a commit; ``live`` and ``replaced`` (name, time) make it a checkpoint."""

    kind: Kind
    time: float
    adds: tuple[StoredObject, ...] = ()
    removes: tuple[_Name, ...] = ()
    gone: tuple[_Name, ...] = ()  # removed earlier, and deleted since
    encoder: str | None = None
    encoder_name: str | None = None
    live: tuple[StoredObject, ...] | None = None
    replaced: dict[str, float] | None = None


class Mark(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of ``index.json``: the UUID, and the id of the data key of commit 1."""

    schema: Literal["vecveil.index/3"]
    uuid: UUID
    key_id: KeyId

    @classmethod
    def new(cls, keys: IndexKeys) -> Mark:
        return cls(SCHEMA, keys.uuid, keys.current())

    def encode(self) -> bytes:
        return json.dumps(msgspec.to_builtins(self)).encode() + b"\n"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.encode()).hexdigest()


@dataclass(frozen=True)
class Chain:
    """The state after commit ``number``.

    Attributes:
        digest: digest of commit ``number``, or of ``index.json``.
        complete: whether ``objects`` and ``replaced`` are known; False until a checkpoint has been opened.
        objects: live objects by name.
        replaced: removed objects that the storage may still have, each with the time of its removal.
        voided: names that the commits followed so far declared void.
        members: list of members in force; None if the index was never shared.
    """

    mark: Mark
    number: int
    digest: str
    key_id: str
    checkpoint: int = 0
    epoch: int = 0
    dimension: int | None = None
    precision: str | None = None
    encoder_tag: str | None = None
    complete: bool = False
    objects: Mapping[str, StoredObject] = field(default_factory=dict)
    replaced: Mapping[str, float] = field(default_factory=dict)
    encoder: str | None = None
    encoder_name: str | None = None
    voided: frozenset[str] = frozenset()
    members: Members | None = None

    @classmethod
    def first(cls, mark: Mark) -> Chain:
        """Return the state before commit 1."""
        return cls(mark, 0, mark.digest, mark.key_id, complete=True)

    @classmethod
    def at(
        cls, mark: Mark, number: int, digest: str, members: Members | None = None, header: Header | None = None
    ) -> Chain:
        """Return the state after a commit of which only this is known."""
        chain = cls.first(mark) if number == 0 else cls(mark, number, digest, "", members=members)
        return chain if header is None else chain._with(header)

    def follow(self, content: bytes, keys: IndexKeys | None) -> Chain:
        """Return the state after the next commit.

        Args:
            keys: None where only digests and signatures are checked.

        Raises:
            StoreError: the commit does not open or does not follow, or its signer may not make it.
        """
        number = self.number + 1
        header, _ = header_of(content, number)
        if header.previous != self.digest:
            raise _broken(number, f"does not follow commit {self.number:,}")
        members = next_members(self.mark, number, self.members, content)
        if self.key_id:  # otherwise only the digest of the commit before is known
            self._check_header(header, number)
        after = replace(
            self,
            number=number,
            digest=hashlib.sha256(content).hexdigest(),
            voided=self.voided.union(header.voids),
            complete=False,
            objects={},
            replaced={},
            members=members,
        )._with(header)
        if keys is None or not (keys := keys.joined(members)).reads:
            return after
        try:
            body = opened(self.mark, number, content, keys)
        except RetiredKeyError:
            return after
        if (signers := self.members or members) is not None:
            signer = signers.listing.member(header.signer)
            if signer is None or not signer.may(body.kind):
                raise refusal(number, header.signer, f"may not {_DOES[body.kind]}")
        if (header.members is not None) is not (
            body.kind == "members" or (body.kind == "renew keys" and self.members is not None)
        ):
            raise _broken(number, "has the wrong kind")
        if (body.kind == "re-encode") is not (header.epoch == number):
            raise _broken(number, "names the wrong epoch")
        if body.kind in ("append", "delete", "members") and (
            body.removes or body.gone or any(each.as_of is not None for each in body.adds)
        ):
            raise _broken(number, "removes objects without replacing them")
        if (body.live is None) != (header.checkpoint != number):
            raise _broken(number, "names the wrong checkpoint")
        listed = None if body.live is None else ({each.name: each for each in body.live}, body.replaced or {})
        if self.complete:
            self._check(header, body, number)
            objects, times = self._changed(body, number)
            if listed not in (None, (objects, times)):
                raise _broken(number, "lists other objects than the commits before it")
        elif listed is not None:
            objects, times = listed
        else:
            return after
        after = replace(after, complete=True, objects=objects, replaced=times)
        if body.encoder is not None and encoder_tag(self.mark, body.encoder) != header.encoder:
            raise _broken(number, "names two encoders")
        return after if body.encoder is None else replace(after, encoder=body.encoder, encoder_name=body.encoder_name)

    def _with(self, header: Header) -> Chain:
        return replace(
            self,
            key_id=header.key_id,
            checkpoint=header.checkpoint,
            epoch=header.epoch,
            dimension=header.dimension,
            precision=header.precision,
            encoder_tag=header.encoder,
        )

    def _changed(self, body: Body, number: int) -> tuple[dict[str, StoredObject], dict[str, float]]:
        """Return the objects that are live after commit ``number``, and those that are replaced."""
        removed, gone = set(body.removes), set(body.gone)
        objects = {name: each for name, each in self.objects.items() if name not in removed}
        objects |= {each.name: msgspec.structs.replace(each, commit=number) for each in body.adds}
        times = {name: time for name, time in self.replaced.items() if name not in gone}
        return objects, times | dict.fromkeys(body.removes, body.time)

    def _check_header(self, header: Header, number: int) -> None:
        """Raise `StoreError` unless a commit with this header may follow; writers who cannot read check it, too."""
        layout = self.dimension, self.precision
        if header.checkpoint not in (self.checkpoint, number):
            raise _broken(number, "names the wrong checkpoint")
        if header.epoch == number:  # encoded again
            return
        if header.epoch != self.epoch or layout not in ((None, None), (header.dimension, header.precision)):
            raise _broken(number, "has other vectors than the index")
        if self.encoder_tag not in (None, header.encoder):
            raise _broken(number, "has another encoder than the index")
        if header.encoder != self.encoder_tag and not self.may_note_encoder(header.signer):
            raise _broken(number, "notes an encoder for vectors that its signer cannot read")

    def may_note_encoder(self, public: str | None) -> bool:
        """Return whether a member may note the encoder of an index without one: who reads, or adds the first rows."""
        signer = self.members.listing.member(public) if self.members and public else None
        return self.dimension is None or signer is None or signer.reads

    def _check(self, header: Header, body: Body, number: int) -> None:
        """Raise `StoreError` unless the commit may follow this complete state."""
        if header.key_id != self.key_id and body.kind != "renew keys":
            raise _broken(number, "was written under another data key than the index has")
        if len(set(body.removes)) < len(body.removes) or not self.objects.keys() >= set(body.removes):
            raise _broken(number, "removes an object that is not live")
        if not self.replaced.keys() >= set(body.gone):
            raise _broken(number, "reports the deletion of an object that was not removed")
        for each in body.adds:
            if each.name in self.objects or each.name in self.voided or each.name in self.replaced:
                raise _broken(number, f"adds {each.name} a second time")
            if each.as_of is not None and each.as_of > self.number:
                raise _broken(number, "was planned on a commit that it precedes")

    def commit(
        self,
        kind: Kind,
        keys: IndexKeys,
        *,
        time: float,
        layout: tuple[int | None, str | None],
        encoder: tuple[str | None, str | None] = (None, None),
        adds: Sequence[StoredObject] = (),
        removes: Sequence[str] = (),
        gone: Sequence[str] = (),
        voids: Sequence[str] = (),
        key_id: str | None = None,
        members: Sequence[Member] | None = None,
    ) -> bytes:
        """Return the next commit.

        Args:
            time: seconds since 1970 by the writer's clock; only the age of replaced objects depends on it.
            layout: dimension and precision of the vectors.
            encoder: fingerprint and name; (None, None) keeps what the index notes.
            key_id: id of the data key after ``renew keys``.
            members: list of members after ``members``.
        """
        number, keys = self.number + 1, keys.joined(self.members)
        body = Body(kind, time, tuple(adds), tuple(removes), tuple(gone), *encoder)
        checkpoint = self.checkpoint
        if self.complete and (number - checkpoint >= _BETWEEN or kind in ("renew keys", "members")):
            checkpoint = number
            live, replaced = self._changed(body, number)
            # Readers may begin here, and would not learn of an earlier commit's encoder.
            noted = encoder if encoder[0] is not None else (self.encoder, self.encoder_name)
            body = Body(kind, time, body.adds, body.removes, body.gone, *noted, tuple(live.values()), replaced)
        key = secrets.token_bytes(32)
        key_id = key_id or self.key_id
        wrapped = keys.wrap(key, commit_name(number), key_id)
        tag = self.encoder_tag if encoder[0] is None else encoder_tag(self.mark, encoder[0])
        epoch = number if kind == "re-encode" else self.epoch
        precision: Any = layout[1]
        in_force, listing, signer = self.members, None, keys.signer
        if members is not None or (in_force is not None and kind == "renew keys"):
            before = in_force.listing.members if in_force else ()
            after = before if members is None else tuple(members)
            lost = (in_force is not None and in_force.listing.renew) or lost_readers(before, after)
            listing = keys.listing(after, key_id, renew=lost and kind != "renew keys")
        signed = in_force is not None or listing is not None
        header = Header(
            self.digest,
            key_id,
            wrapped,
            checkpoint,
            epoch,
            layout[0],
            precision,
            tag,
            tuple(voids),
            signer.public if signer and signed else None,
            in_force.place if in_force else None,
            listing,
        )
        front = msgspec.json.encode(header)
        front = _MAGIC + len(front).to_bytes(4, "little") + front
        text = msgspec.json.encode(body)
        text = text.ljust(padded_length(len(text), _LEAST_BODY))
        # The key is random and seals this one message, so that the nonce may be constant.
        content = front + AESGCM(key).encrypt(bytes(12), text, _context(self.mark, number) + front)
        return content + signer.sign(_signed(self.mark, number, content)) if signer and signed else content

    def check_may(self, keys: IndexKeys, kind: Kind) -> None:
        """Raise `KeyFileError` if the member may not make a commit of this kind."""
        if self.members is None:
            return
        public = keys.signer.public if keys.signer else "veil1"
        member = self.members.listing.member(public)
        if member is None or not member.may(kind):
            roles = " and ".join(member.roles) if member else "not a member"
            raise KeyFileError(
                f"{public} is {roles} of this index, and may not {_DOES[kind]}. An owner changes that with `vecveil "
                "index share`.",
                code="E-INDEX-ROLE",
                param="key",
            )


def next_members(mark: Mark, number: int, before: Members | None, content: bytes) -> Members | None:
    """Return the list in force after commit ``number``; check the commit's signer, and a list that it carries.

    The check opens nothing, so that a writer who cannot read makes it, too.

    Raises:
        StoreError: the signer is not in the list before, did not sign, or may not make such a commit.
    """
    header, _ = header_of(content, number)
    listing = header.members
    if before is None and listing is None:
        if header.signer is not None or header.in_force is not None:
            raise _broken(number, "is signed, and the index has no members")
        return None
    if header.signer is None:
        raise refusal(number, None, "is not signed")
    if header.in_force != (before.place if before else None):
        raise _broken(number, "names another list of members than the one in force")
    if listing is not None and (problem := listing.problem()):
        raise _broken(number, problem)
    signers = before.listing if before else listing
    assert signers is not None
    signer = signers.member(header.signer)
    if signer is None:
        raise refusal(number, header.signer, "is no member")
    if not is_signed(signer.public, content[-SIGNATURE_BYTES:], _signed(mark, number, content[:-SIGNATURE_BYTES])):
        raise refusal(number, header.signer, "did not sign it")
    if not (signer.may("append") or signer.may("replace")):
        raise refusal(number, header.signer, "only reads")
    if (listing is not None or header.epoch == number) and not signer.may("members"):
        raise refusal(number, header.signer, "may not change members, keys or the encoder")
    if (header.checkpoint == number or header.voids) and not signer.reads:
        raise refusal(number, header.signer, "may not list or void objects")
    if before is not None and listing is None:
        if header.key_id != before.key_id:
            raise _broken(number, "was written under another data key than the index has")
        return before
    assert listing is not None
    if before is None and len(header.wrapped) == SEALED_BYTES:  # anybody can seal to a public key
        raise _broken(number, "begins the list of members without the data key")
    place = Place(number, hashlib.sha256(content).hexdigest())
    return Members(place, before.founder if before else signer.public, header.key_id, listing)


def opened(mark: Mark, number: int, content: bytes, keys: IndexKeys) -> Body:
    """Return the sealed part of commit ``number``.

    Raises:
        StoreError: it does not open.
        RetiredKeyError: its data key was renewed and deleted.
    """
    header, end = header_of(content, number)
    try:
        key = keys.unwrap(header.wrapped, header.key_id, commit_name(number))
        body = content[end:] if header.signer is None else content[end:-SIGNATURE_BYTES]
        text = AESGCM(key).decrypt(bytes(12), body, _context(mark, number) + content[:end])
        return msgspec.json.decode(text, type=Body)
    except (InvalidTag, ValueError, msgspec.MsgspecError) as error:
        if isinstance(error, KeyFileError):
            raise
        raise _broken(number, "does not open with the keys of this index") from error


def header_of(content: bytes, number: int) -> tuple[Header, int]:
    """Return the part of commit ``number`` in clear, not yet authenticated, and the position of the ciphertext."""
    start = len(_MAGIC) + 4
    end = start + int.from_bytes(content[len(_MAGIC) : start], "little")
    try:
        if content[: len(_MAGIC)] != _MAGIC or end > len(content):
            raise ValueError
        return msgspec.json.decode(content[start:end], type=Header), end
    except (ValueError, msgspec.MsgspecError) as error:
        raise _broken(number, "is damaged") from error


def check_checkpoint(number: int, checkpoint: int, content: bytes) -> None:
    """Raise `StoreError` unless ``content`` is a checkpoint, as commit ``number`` says of it."""
    if header_of(content, checkpoint)[0].checkpoint != checkpoint:
        raise _broken(number, "names the wrong checkpoint")


def commit_name(number: int) -> str:
    """Return the name of the object of commit ``number``; the chain begins with ``index.json`` as number 0."""
    return f"commits/{number:010d}" if number else INDEX_JSON


def list_name(number: int) -> str:
    """Return the name of the empty object that shows, in a listing, that commit ``number`` has a list of members.

    A process that begins at a later commit cannot be given an older list by somebody who was removed since.
    """
    return f"{commit_name(number)}.members"


def encoder_tag(mark: Mark, fingerprint: str) -> str:
    """Return the encoder's salted digest, which a commit states in clear for writers who cannot read."""
    return base64.b64encode(hashlib.sha256(f"{mark.uuid} {fingerprint}".encode()).digest()[:12]).decode()


def _context(mark: Mark, number: int) -> bytes:
    return f"vecveil commit {number} of {mark.digest} ".encode()


def _signed(mark: Mark, number: int, content: bytes) -> bytes:
    return b"vecveil signature 1 " + _context(mark, number) + content


def refusal(number: int, signer: str | None, what: str) -> StoreError:
    """Return the error for a commit that no member may have made."""
    by = what if signer is None else f"names {signer} as its signer, who {what}"
    return StoreError(
        f"Commit {number:,} of the index ({commit_name(number)}) {by}. It is refused, and nothing is read or written "
        "after it. An owner replaces it with `vecveil index repair`.",
        code="E-INDEX-SIGNER",
    )


def _broken(number: int, what: str) -> StoreError:
    return StoreError(
        f"Commit {number:,} of the index ({commit_name(number)}) {what}: it was altered or exchanged, or comes from "
        "another index. Restore it from a backup of the storage; if no member wrote it, an owner of a shared index "
        "replaces it with `vecveil index repair`.",
        code="E-INDEX-CHAIN",
    )


def check_mark(content: bytes, location: str) -> Mark:
    """Return the mark of the index at ``location``; raise `StoreError` if it is damaged."""
    schema = re.match(rb'\{"schema": "(vecveil\.index/\d{1,3})"', content, re.ASCII)
    if schema is not None and schema[1].decode() != SCHEMA:
        raise StoreError(
            f"The index at {location} has the format {schema[1].decode()}; this version of vecveil reads {SCHEMA}. "
            "Use the version that made it.",
            code="E-INDEX-FORMAT",
        )
    try:
        mark = msgspec.json.decode(content, type=Mark)
        if mark.encode() != content:
            raise ValueError
    except (ValueError, msgspec.MsgspecError) as error:
        raise StoreError(
            f"index.json of the index at {location} is damaged. Restore it from a backup of the storage.",
            code="E-INDEX-STORAGE",
        ) from error
    return mark
