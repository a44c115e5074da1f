"""Members of an index, without any storage: identities, envelopes, and who may make which commit."""

from __future__ import annotations

import base64
import dataclasses
import itertools
import pickle
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.bindings._rust import openssl
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from harness.errors import raises
from vecveil.index import chain as rules
from vecveil.index.chain import Chain, Mark, StoredObject, header_of, next_members
from vecveil.index.index_keys import DataKeys, MemberKeys
from vecveil.index.keystore import KeyStore, SingleKey
from vecveil.index.members import Identity, Member, _checksum, _written, checked_member, public_keys, seal
from vecveil.keys import KeyFile

LAYOUT = (8, "float16")
ROLES: dict[str, tuple[Any, ...]] = {
    "owner": ("owner",),
    "second": ("owner",),
    "reader": ("reader",),
    "writer": ("writer",),
    "both": ("reader", "writer"),
}
WHO = {name: Identity(bytes([i]) * 16 + bytes(range(16))) for i, name in enumerate([*ROLES, "stranger"])}


def segment(number: int, as_of: int | None = None) -> StoredObject:
    return StoredObject(f"segments/{number:032x}", f"{number:064x}", f"{number:064x}", 100, 3, as_of)


class Index:
    """A shared index: three appends of the founder, then the list; commits by name of the signer."""

    def __init__(self, folder: Path) -> None:
        KeyFile.create(folder / "owner.key", "first")
        store = KeyStore(folder / "owner.key")
        store.create("notes")
        self.base = DataKeys(store, "notes")
        self.keys: dict[str, MemberKeys] = {
            name: MemberKeys(who, self.base.uuid, self.base if name == "owner" else None) for name, who in WHO.items()
        }
        self.chain = Chain.first(Mark.new(self.base))
        self.contents: list[bytes] = []
        for number in range(1, 4):
            self.add("owner", adds=[segment(number)])
        self.add("owner", "members", members=self.people(*ROLES))

    def people(self, *names: str) -> list[Member]:
        return [Member(WHO[name].public, ROLES[name], name) for name in names]

    def commit(self, by: str, kind: Any = "append", **changes: Any) -> bytes:
        return self.chain.commit(kind, self.keys[by], time=5.0, **{"layout": LAYOUT, **changes})

    def add(self, by: str, kind: Any = "append", **changes: Any) -> None:
        self.take(self.commit(by, kind, **changes))

    def take(self, content: bytes) -> None:
        self.chain = self.chain.follow(content, self.keys["owner"])
        self.contents.append(content)

    def seen_by(self, who: str) -> Chain:
        """Follow the chain from its beginning with the keys of a member."""
        chain = Chain.first(self.chain.mark)
        for content in self.contents:
            chain = chain.follow(content, self.keys[who])
        return chain

    def renew(self, by: str = "owner") -> None:
        keys = self.keys[by].joined(self.chain.members)
        self.add(by, "renew keys", key_id=keys.renewed())


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(tmp_path)


def refused(index: Index, content: bytes, code: str = "E-INDEX-SIGNER") -> None:
    """A commit is refused by a reader and by a writer who cannot read."""
    for keys in (index.keys["owner"], index.keys["writer"], None):
        with raises(code):
            index.chain.follow(content, keys)


def signed(index: Index, by: str, *, header: dict[str, Any], content: bytes) -> bytes:
    """Return a commit with a changed header, signed again; what it seals no longer opens."""
    before, end = header_of(content, index.chain.number + 1)
    front = msgspec.json.encode(msgspec.structs.replace(before, **header))
    front = rules._MAGIC + len(front).to_bytes(4, "little") + front
    changed = front + content[end:-64]
    return changed + WHO[by].sign(rules._signed(index.chain.mark, index.chain.number + 1, changed))


# Identities and envelopes -----------------------------------------------------------------------------

_P = 2**255 - 19
_Y8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7  # of a point of order 8
SMALL = [y + sign * 2**255 for y in (0, 1, _P - 1, _P, _P + 1, _Y8, _P - _Y8) for sign in (0, 1)]


@pytest.mark.parametrize("point", SMALL)
def test_a_public_string_has_no_point_of_small_order(point: int) -> None:
    """Under the neutral element, for one, a signature of zeros verifies for every content."""
    content, small = base64.urlsafe_b64decode(f"{WHO['owner'].public[5:]}="), point.to_bytes(32, "little")
    if point == 1:
        Ed25519PublicKey.from_public_bytes(small).verify(small + bytes(32), b"anything")
    for keys in (content[:32] + small, *([small + content[32:64]] if point in (0, 1, _P - 1, _P, _P + 1) else [])):
        with raises("E-INDEX-PUBLIC", "public"):
            checked_member(_written(keys + _checksum(keys)), "writer", None)


def test_hpke_is_that_of_rfc_9180() -> None:
    """Appendix A.1.1, whose AEAD is AES-128-GCM; ciphertexts here are the encapsulated key and its ciphertext."""
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
    key = X25519PrivateKey.from_private_bytes(
        bytes.fromhex("4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8")
    )
    sealed = bytes.fromhex(
        "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431"
        "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a"
    )
    text = openssl.hpke._decrypt_with_aad(
        suite, sealed, key, bytes.fromhex("4f6465206f6e2061204772656369616e2055726e"), b"Count-0"
    )
    assert text == b"Beauty is truth, truth beauty"


def test_an_envelope_opens_for_one_identity_and_one_context() -> None:
    sealed = seal(b"x" * 32, public_keys(WHO["reader"].public)[0], b"of notes")
    assert WHO["reader"].open(sealed, b"of notes") == b"x" * 32
    for who, context in (("writer", b"of notes"), ("reader", b"of others")):
        with pytest.raises(InvalidTag):
            WHO[who].open(sealed, context)
    with pytest.raises(InvalidTag):
        WHO["reader"].open(bytes(32) + sealed[32:], b"of notes")


def test_a_public_string_has_one_form() -> None:
    public = WHO["owner"].public
    public_keys(public)
    for wrong in (public[:-1], public + "A", public.upper(), public[5:], "", None, 7, public[:20] + "\n" + public[20:]):
        with raises("E-INDEX-PUBLIC", "public"):
            public_keys(wrong)
    for at in range(5, len(public)):
        other = public[:at] + ("A" if public[at] != "A" else "B") + public[at + 1 :]
        with raises("E-INDEX-PUBLIC", "public"):
            public_keys(other)


def test_an_identity_stays_when_keys_rotate_and_shows_nothing(tmp_path: Path) -> None:
    first = KeyFile.create(tmp_path / "a.key", "1")
    second = KeyFile.create(tmp_path / "a.key", "2")
    assert first.identity == second.identity == KeyFile.from_file(tmp_path / "a.key").identity
    assert first.identity is not None
    assert KeyFile.create(tmp_path / "b.key", "1").identity != first.identity
    identity = Identity(first.identity)
    assert repr(identity) == f"Identity({identity.public!r})"
    assert repr(first.identity) not in repr(first)
    with pytest.raises(TypeError):
        pickle.dumps(identity)


def test_a_key_file_without_an_identity_gets_one(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    KeyFile.create(path, "1")
    record = msgspec.json.decode(path.read_bytes())
    del record["identity"]
    path.write_bytes(msgspec.json.encode(record))
    assert KeyFile.from_file(path).identity is None
    with raises("E-INDEX-IDENTITY"):
        DataKeys(SingleKey(bytes(range(32))), index=uuid.uuid4()).listing([], "0", renew=False)
    assert KeyFile.create(path, "2").identity is not None


# Who may do what --------------------------------------------------------------------------------------

CHANGES: dict[str, dict[str, Any]] = {
    "append": {"adds": [segment(9)]},
    "delete": {"adds": [segment(9)]},
    "replace": {"adds": [segment(9, as_of=4)], "removes": [segment(1).name]},
    "re-encode": {"adds": [segment(9, as_of=4)], "removes": [segment(1).name], "layout": (9, "int8")},
    "members": {},
    "renew keys": {},
}
ALLOWED = {
    "owner": set(CHANGES),
    "second": set(CHANGES),
    "reader": set(),
    "writer": {"append", "delete"},
    "both": {"append", "delete", "replace"},
}


@pytest.mark.parametrize(("by", "kind"), list(itertools.product(ROLES, CHANGES)))
def test_each_role_makes_its_own_kinds_of_commits(index: Index, by: str, kind: str) -> None:
    changes = dict(CHANGES[kind])
    if kind == "members":
        changes["members"] = index.people(*{"owner", by})
    keys = index.keys[by].joined(index.chain.members)
    if kind == "renew keys":
        changes["key_id"] = keys.renewed()
    writes_list = kind in ("members", "renew keys") and not keys.reads
    if writes_list:
        return  # it has no data key to put in envelopes
    content = index.commit(by, kind, **changes)
    if kind in ALLOWED[by]:
        index.chain.check_may(index.keys[by], kind)  # type: ignore[arg-type]
        index.take(content)
    else:
        with raises("E-INDEX-ROLE"):
            index.chain.check_may(index.keys[by], kind)  # type: ignore[arg-type]
        with raises("E-INDEX-SIGNER"):
            index.chain.follow(content, index.keys["owner"])
        if (by, kind) != ("writer", "replace"):  # its kind is sealed: who cannot read takes nothing from it
            with raises("E-INDEX-SIGNER"):
                index.chain.follow(content, None)


def test_before_the_list_nothing_is_signed_and_after_it_everything_is(index: Index) -> None:
    assert [header_of(content, 1)[0].signer for content in index.contents[:3]] == [None] * 3
    unshared = dataclasses.replace(index.chain, members=None)
    refused(index, unshared.commit("append", index.base, time=1.0, layout=LAYOUT))
    with raises("E-INDEX-CHAIN"):
        unshared.follow(index.commit("owner"), index.keys["owner"])


def test_a_stranger_a_wrong_signer_and_an_altered_list_are_refused(index: Index) -> None:
    content = index.commit("owner", adds=[segment(9)])
    stranger, owner = WHO["stranger"].public, WHO["owner"].public
    refused(index, signed(index, "stranger", header={"signer": stranger}, content=content))
    refused(index, signed(index, "stranger", header={}, content=content))  # in the name of the owner
    refused(index, content[:-1] + bytes([content[-1] ^ 1]))
    header, _ = header_of(index.contents[3], 4)
    assert header.members is not None
    people = list(header.members.members)
    promoted = [msgspec.structs.replace(people[3], roles=("owner",), envelope=people[0].envelope)]
    altered = msgspec.structs.replace(header.members, members=(*people[:3], *promoted))
    place = index.chain.members.place  # type: ignore[union-attr]
    changes = {"members": altered, "in_force": place, "signer": WHO["writer"].public}
    refused(index, signed(index, "writer", header=changes, content=content))
    swapped = [msgspec.structs.replace(p, envelope=q.envelope) for p, q in zip(people[:3], people[2::-1], strict=True)]
    changes |= {"members": msgspec.structs.replace(altered, members=tuple(swapped)), "signer": owner}
    with raises("E-INDEX-SIGNER"):
        index.chain.follow(signed(index, "stranger", header=changes, content=content), index.keys["owner"])


@pytest.mark.parametrize(
    "names", [[], ["reader", "both"], ["owner", "owner"]], ids=["nobody", "no owner", "one of them twice"]
)
def test_a_list_without_an_owner_or_with_a_member_twice_is_no_list(index: Index, names: list[str]) -> None:
    refused(index, index.commit("owner", "members", members=index.people(*names)), "E-INDEX-CHAIN")


def test_only_commits_of_two_kinds_have_a_list(index: Index) -> None:
    content = index.commit("owner", "append", members=index.people("owner", "reader"))
    with raises("E-INDEX-CHAIN"):
        index.chain.follow(content, index.keys["owner"])


def test_a_commit_names_the_list_in_force(index: Index) -> None:
    earlier = index.chain
    index.add("second", "members", members=index.people("owner", "second", "reader"))
    late = dataclasses.replace(index.chain, members=earlier.members)
    refused(index, late.commit("append", index.keys["both"], time=1.0, layout=LAYOUT), "E-INDEX-CHAIN")
    replayed = signed(
        index,
        "owner",
        header={"members": header_of(index.contents[3], 4)[0].members, "in_force": None},
        content=index.commit("owner"),
    )
    refused(index, replayed, "E-INDEX-CHAIN")


def test_who_was_removed_is_refused_from_there_on(index: Index) -> None:
    index.add("both", adds=[segment(5)])
    index.add("owner", "members", members=index.people("owner", "reader", "writer"))
    assert index.chain.members is not None
    assert index.chain.members.listing.renew
    late = index.commit("owner", adds=[segment(6)])
    refused(index, signed(index, "both", header={"signer": WHO["both"].public}, content=late))
    index.renew()
    assert not index.chain.members.listing.renew  # type: ignore[union-attr]


def test_removing_who_did_not_read_asks_for_no_new_key(index: Index) -> None:
    index.add("owner", "members", members=index.people("owner", "second", "reader", "both"))
    assert not index.chain.members.listing.renew  # type: ignore[union-attr]


def test_a_writer_cannot_change_key_epoch_checkpoint_or_voids(index: Index) -> None:
    content = index.commit("writer", adds=[segment(9)])
    number = index.chain.number + 1
    for header, code in (
        ({"checkpoint": number}, "E-INDEX-SIGNER"),
        ({"epoch": number}, "E-INDEX-SIGNER"),
        ({"voids": (segment(8).name,)}, "E-INDEX-SIGNER"),
        ({"key_id": "00" * 8}, "E-INDEX-CHAIN"),
    ):
        refused(index, signed(index, "writer", header=header, content=content), code)
    with raises("E-INDEX-CHAIN"):
        index.chain.follow(index.commit("writer", removes=[segment(1).name]), index.keys["owner"])


# What each member opens -------------------------------------------------------------------------------


def test_readers_open_the_index_and_others_do_not(index: Index) -> None:
    index.add("writer", adds=[segment(5)])
    index.add("both", adds=[segment(6)])
    index.renew("second")
    index.add("writer", adds=[segment(7)])
    expected = index.chain.objects.keys()
    assert len(expected) == 6
    for who in ("owner", "second", "reader", "both"):
        assert index.seen_by(who).objects.keys() == expected
    for who in ("writer", "stranger"):
        seen = index.seen_by(who)
        assert (seen.complete, seen.digest, seen.members) == (False, index.chain.digest, index.chain.members)
        for number, content in enumerate(index.contents[3:], 4):
            header, _ = header_of(content, number)
            with raises("E-SEAL-OPEN"):
                keys = index.keys[who].joined(index.chain.members)
                keys.unwrap(header.wrapped, header.key_id, rules.commit_name(number))


def test_a_removed_reader_does_not_open_what_follows_the_renewal(index: Index) -> None:
    index.add("owner", "members", members=index.people("owner", "writer"))
    before = index.seen_by("reader").number
    index.renew()
    index.add("writer", adds=[segment(8)])
    for number in range(before + 1, index.chain.number + 1):
        header, _ = header_of(index.contents[number - 1], number)
        with raises("E-SEAL-OPEN"):
            index.keys["reader"].joined(index.chain.members).unwrap(
                header.wrapped, header.key_id, rules.commit_name(number)
            )


def test_the_first_list_is_made_with_the_data_key_alone(index: Index, tmp_path: Path) -> None:
    unshared = Chain.first(index.chain.mark)
    for content in index.contents[:3]:
        unshared = unshared.follow(content, index.keys["owner"])
    (tmp_path / "thief").mkdir()
    thief = Index(tmp_path / "thief")
    keys = MemberKeys(WHO["stranger"], index.base.uuid, thief.base)  # another data key under the same id
    forged_id, unshared_id = thief.base.current(), unshared.key_id
    secret = thief.base.secret(forged_id)
    assert secret is not None
    keys._opened[unshared_id] = type(keys._opened[keys.renewed()])(unshared_id, secret, index.base.uuid)
    people = [Member(WHO["stranger"].public, ("owner",)), Member(WHO["owner"].public, ("reader",))]
    listing = keys.listing(people, unshared_id, renew=False)
    content = index.contents[3]
    before, end = header_of(content, 4)
    header = msgspec.json.encode(msgspec.structs.replace(before, members=listing, signer=WHO["stranger"].public))
    front = rules._MAGIC + len(header).to_bytes(4, "little") + header + content[end:-64]
    forged = front + WHO["stranger"].sign(rules._signed(index.chain.mark, 4, front))
    with raises("E-SEAL-OPEN"):
        unshared.follow(forged, MemberKeys(WHO["owner"], index.base.uuid, index.base))


def test_nobody_begins_the_list_with_a_key_of_their_own(index: Index) -> None:
    """Sealed to a public key in that list, the commit would open for everybody whom it names."""
    unshared = Chain.first(index.chain.mark)
    for content in index.contents[:3]:
        unshared = unshared.follow(content, index.keys["owner"])
    keys = MemberKeys(WHO["stranger"], index.base.uuid, None)
    key_id = keys.renewed()

    class OwnKey:
        def wrap(self, key: bytes, name: str, key_id: str) -> bytes:
            return seal(key, keys._opened[key_id].public, keys._context(name))

    keys.base = OwnKey()  # type: ignore[assignment]
    people = [Member(WHO["stranger"].public, ("owner",)), Member(WHO["owner"].public, ("reader",))]
    content = unshared.commit("members", keys, time=1.0, layout=LAYOUT, members=people, key_id=key_id)
    for follower in (MemberKeys(WHO["owner"], index.base.uuid, index.base), None):
        with raises("E-INDEX-CHAIN"):
            unshared.follow(content, follower)


def test_a_list_whose_public_key_is_not_that_of_its_data_key_is_refused(index: Index) -> None:
    """Writers would seal to it what nobody, or somebody else, opens."""
    content = index.commit("owner", "members", members=index.people("owner", "reader"))
    listing = header_of(content, 5)[0].members
    assert listing is not None
    other = bytes(WHO["stranger"]._exchange.public_key().public_bytes_raw())
    changed = signed(
        index, "owner", header={"members": msgspec.structs.replace(listing, index_key=other)}, content=content
    )
    index.seen_by("reader")  # whose key has opened the data key already
    for keys in (MemberKeys(WHO["reader"], index.base.uuid, None), index.keys["reader"]):
        with raises("E-SEAL-OPEN"):
            index.chain.follow(changed, keys)


def test_a_forged_list_leaves_no_data_key_in_the_process_that_refuses_it(index: Index) -> None:
    """The storage shows it once, with the id of the index's data key, and then what the members wrote."""
    assert index.chain.members is not None
    stranger = MemberKeys(WHO["stranger"], index.base.uuid, None)
    stranger._opened[index.chain.key_id] = stranger._opened[stranger.renewed()]
    listing = stranger.listing(index.people("second", "writer"), index.chain.key_id, renew=False)
    index.keys["second"].joined(dataclasses.replace(index.chain.members, listing=listing))
    assert index.seen_by("second").complete


def test_the_list_before_is_verified_without_the_chain_between(index: Index) -> None:
    place = index.chain.members.place  # type: ignore[union-attr]
    index.add("writer", adds=[segment(5)])
    index.add("second", "members", members=index.people("second", "writer"))
    first = next_members(index.chain.mark, 4, None, index.contents[3])
    assert first is not None
    assert (first.place, first.founder) == (place, WHO["owner"].public)
    assert next_members(index.chain.mark, 6, first, index.contents[5]) == index.chain.members
    with raises("E-INDEX-CHAIN"):
        next_members(index.chain.mark, 6, None, index.contents[5])


def test_a_process_between_two_lists_wraps_under_the_key_of_the_chain(index: Index) -> None:
    """A list that lost the race for its number has no effect on later commits of the same process."""
    index.commit("owner", "members", members=index.people("owner"))
    lost = index.chain.commit(
        "renew keys",
        index.keys["owner"],
        time=1.0,
        layout=LAYOUT,
        key_id=index.keys["owner"].joined(index.chain.members).renewed(),
    )
    index.chain.follow(lost, index.keys["owner"])
    index.add("owner", adds=[segment(9)])
    assert index.seen_by("reader").objects.keys() == index.chain.objects.keys()
