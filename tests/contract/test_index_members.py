"""A shared sealed index: what owners, readers and writers can do, and what somebody outside of the list cannot."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import warnings
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from harness.command_line import run
from harness.errors import raises
from vecveil.errors import StoreError
from vecveil.index import SealedIndex, Sealer, keystore, segments
from vecveil.index import chain as rules
from vecveil.index.backup import copy, verify
from vecveil.index.chain import Chain, StoredObject, commit_name, header_of, list_name, next_members
from vecveil.index.index_keys import MemberKeys
from vecveil.index.log import FirstOwnerWarning
from vecveil.index.members import Identity, Member
from vecveil.index.words import word_sections
from vecveil.keys import KeyFile
from vecveil.texts.encoders import load_encoder
from vecveil.texts.encoders.text_encoder import TextEncoder

N = 8
WORDS = dict(word_sections(["text of bad", "text of worse"]))  # as in segments of many rows
pytestmark = pytest.mark.filterwarnings("ignore::vecveil.index.log.FirstOwnerWarning")
Open = Callable[..., SealedIndex]


class Shared:
    """An index of an owner, shared with a reader, a writer and somebody who is both."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.place = folder, folder / "notes"
        self.public: dict[str, str] = {}
        for name in ("owner", "second", "reader", "writer", "both", "stranger"):
            identity = KeyFile.create(folder / f"{name}.key", "1").identity
            assert identity is not None
            self.public[name] = Identity(identity).public
        with self.open("owner") as index:
            add(index, "first")
            index.share(self.public["reader"], "reader", name="Anna")
            index.share(self.public["writer"], "writer")
            index.share(self.public["both"], ["writer", "reader"])

    def open(self, name: str, **options: Any) -> SealedIndex:
        return SealedIndex(self.place, self.folder / f"{name}.key", max_staleness=0, **options)

    def afresh(self, name: str, **options: Any) -> SealedIndex:
        """Open the index on a machine that has not seen it."""
        shutil.rmtree(self.folder / f"{name}.key.heads", ignore_errors=True)
        return self.open(name, **options)

    def identity(self, name: str) -> Identity:
        secret = KeyFile.from_file(self.folder / f"{name}.key").identity
        assert secret is not None
        return Identity(secret)

    def put(self, number: int, content: bytes) -> None:
        (self.place / commit_name(number)).write_bytes(content)

    def state(self) -> Chain:
        with self.open("owner") as index:
            return index._log.advance()


def add(index: SealedIndex, *ids: str) -> None:
    index.add([f"text of {name}" for name in ids], ids=list(ids), vectors=np.eye(N)[: len(ids)] + 1)


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    return Shared(tmp_path)


def test_readers_see_what_writers_add_and_the_other_way_round_nothing(shared: Shared) -> None:
    with shared.open("writer") as writer:
        add(writer, "second")
        writer.delete(["first"])
        for work in (writer.count, writer.get, lambda: writer.search(np.ones(N)), writer.compact):
            with raises("E-SEAL-OPEN"):
                work()
        with raises("E-INDEX-ROLE"):
            writer.reseal()
    for name in ("owner", "reader", "both"):
        for open_ in (shared.open, shared.afresh):
            with open_(name) as index:
                assert index.get().texts == ["text of second"]
    with shared.open("reader") as reader:
        for change in (
            lambda: add(reader, "third"),
            lambda: reader.delete(["second"]),
            reader.compact,
            lambda: reader.forget(["second"]),
            reader.reseal,
            lambda: reader.share(shared.public["stranger"], "reader"),
        ):
            with raises("E-INDEX-ROLE"):
                change()
    with shared.open("both") as both:
        add(both, "third")
        both.forget(["second"])
        assert both.ids() == ["third"]
        for change in (both.reseal, lambda: both.remove(shared.public["owner"])):
            with raises("E-INDEX-ROLE"):
                change()
    with raises("E-SEAL-COLLECTION", "key") as error:
        shared.open("stranger")
    assert shared.public["stranger"] in str(error.value), "the error says what to send to an owner"


def test_members_are_listed_for_each_of_them(shared: Shared) -> None:
    for name in ("owner", "reader", "writer"):
        with shared.afresh(name) as index:
            found = index.members()
            assert found.founder == shared.public["owner"]
            assert [(each["roles"], each["name"]) for each in found.members] == [
                (("owner",), None),
                (("reader",), "Anna"),
                (("writer",), None),
                (("reader", "writer"), None),
            ]
            assert not found.renewal_pending
    with shared.open("owner") as index:
        before = index._log.advance().number
        index.share(shared.public["reader"], "reader")  # keeps the name, changes nothing
        assert index._log.advance().number == before
    lonely = SealedIndex(shared.folder / "lonely", shared.folder / "owner.key")
    add(lonely, "a")
    assert lonely.members().members == ()


def test_a_removed_member_is_refused_and_reads_nothing_new(shared: Shared) -> None:
    both = shared.open("both")
    assert both.count() == 1
    keys = {path.name for path in (shared.place / "segments").iterdir()}
    with shared.open("owner") as index:
        index.remove(shared.public["both"])
        assert not index.members().renewal_pending
        assert not keys & {path.name for path in (shared.place / "segments").iterdir()}
        add(index, "second")
    for change in (both.count, lambda: add(both, "late")):
        with raises("E-SEAL-COLLECTION"):
            change()
    both.close()
    with raises("E-SEAL-COLLECTION"):
        shared.afresh("both")
    with shared.open("reader") as reader:
        assert sorted(reader.ids()) == ["first", "second"]


def test_removing_a_writer_writes_no_segment_again(shared: Shared) -> None:
    with shared.open("owner") as index:
        before = {path.name for path in (shared.place / "segments").iterdir()}
        index.remove(shared.public["writer"])
        assert before == {path.name for path in (shared.place / "segments").iterdir()}
        with raises("E-INDEX-PUBLIC", "public"):
            index.remove(shared.public["writer"])


def test_an_index_keeps_an_owner(shared: Shared) -> None:
    with shared.open("owner") as index:
        for change in (
            lambda: index.remove(shared.public["owner"]),
            lambda: index.share(shared.public["owner"], "reader"),
        ):
            with raises("E-INDEX-ROLE", "public"):
                change()
        index.share(shared.public["second"], "owner")
    with shared.open("second") as index:
        index.remove(shared.public["owner"])
        add(index, "of the second")
    with raises("E-SEAL-COLLECTION"):
        shared.open("owner").count()
    with shared.afresh("reader") as index:
        assert sorted(index.ids()) == ["first", "of the second"]
        assert index.members().founder == shared.public["owner"]


def test_a_second_owner_renews_the_keys(shared: Shared) -> None:
    with shared.open("owner") as index:
        index.share(shared.public["second"], "owner")
        owner = shared.open("owner")
        with shared.open("second") as second:
            assert second.reseal() == 1
            add(second, "second")
        assert sorted(owner.ids()) == ["first", "second"]
        add(owner, "third")
        owner.close()
    for name in ("owner", "second", "reader", "both"):
        with shared.afresh(name) as opened:
            assert len(opened.ids()) == 3


def test_a_reader_who_becomes_a_writer_loses_the_key(shared: Shared) -> None:
    reader = shared.open("reader")
    assert reader.count() == 1
    with shared.open("owner") as index:
        key = shared.state().key_id
        index.share(shared.public["reader"], "writer")
        assert shared.state().key_id != key
        index.share(shared.public["writer"], ["reader", "writer"])
    add(reader, "mine")
    with raises("E-SEAL-OPEN"):
        reader.count()
    reader.close()
    with shared.open("writer") as writer:
        assert sorted(writer.ids()) == ["first", "mine"]


def test_a_writer_becomes_a_reader_while_it_has_the_index_open(shared: Shared) -> None:
    with shared.open("writer") as writer:
        add(writer, "a")
        with shared.open("owner") as index:
            index.share(shared.public["writer"], ["reader", "writer"])
        assert sorted(writer.ids()) == ["a", "first"]


def test_two_owners_change_the_list_at_once(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    with shared.open("owner") as index:
        index.share(shared.public["second"], "owner")
    second, owner = shared.open("second"), shared.open("owner")
    second._log.advance()
    publish = second._log._published
    meanwhile = [lambda: owner.share(shared.public["stranger"], "reader")]

    def published(chain: Chain, content: bytes) -> Chain | None:
        while meanwhile:
            meanwhile.pop()()
        return publish(chain, content)

    monkeypatch.setattr(second._log, "_published", published)
    second.share(shared.public["writer"], ["reader", "writer"])
    roles = {each["public"]: each["roles"] for each in owner.members().members}
    assert roles[shared.public["stranger"]] == ("reader",)
    assert roles[shared.public["writer"]] == ("reader", "writer")
    meanwhile.append(lambda: owner.remove(shared.public["stranger"]))
    with raises("E-INDEX-BUSY"):  # a removal is not undone by a call that began before it
        second.share(shared.public["stranger"], ["reader", "writer"])
    assert shared.public["stranger"] not in {each["public"] for each in owner.members().members}
    meanwhile.append(lambda: owner.remove(shared.public["second"]))
    with raises("E-SEAL-COLLECTION"):
        second.share(shared.public["stranger"], "owner")


def test_a_machine_says_whom_it_takes_for_the_first_owner(shared: Shared) -> None:
    for name in ("reader", "writer"):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(2):
                shared.open(name).members()
        assert [warning.category for warning in said] == [FirstOwnerWarning]
        assert shared.public["owner"] in str(said[0].message)
        assert "vecveil index members" in str(said[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shared.afresh("reader", owner=shared.public["owner"]).members()
        shared.open("reader").members()
        shared.afresh("owner").members()


def test_only_a_key_file_with_an_identity_has_members(tmp_path: Path) -> None:
    with SealedIndex(tmp_path / "notes", bytes(range(32))) as index:
        add(index, "a")
        with raises("E-INDEX-IDENTITY", "key"):
            index.share(Identity(bytes(range(32))).public, "reader")
        with raises("E-INDEX-PUBLIC", "public"):
            index.share("anna", "reader")
        with raises("E-INPUT-NAME", "roles"):
            index.share(Identity(bytes(range(32))).public, "admin")  # type: ignore[arg-type]


def test_a_sealer_and_a_variable_name_an_identity_too(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    with SealedIndex(shared.place, Sealer(shared.folder / "reader.key")) as index:
        assert index.count() == 1
    monkeypatch.setenv("READER_KEYS", (shared.folder / "reader.key").read_text())
    with SealedIndex(shared.place, f"env:READER_KEYS:{shared.folder / 'store.json'}") as index:
        assert index.count() == 1


def test_the_audit_log_names_the_member_and_a_restricted_index_shares_nothing(shared: Shared) -> None:
    path = shared.folder / "audit.jsonl"
    with shared.open("both", audit_log=path) as both:
        add(both, "second")
        both.count()
        both.members()
        for change in (
            lambda view: view.share(shared.public["stranger"], "reader"),
            lambda view: view.remove(shared.public["reader"]),
            lambda view: view.repair(),
        ):
            with raises("E-INPUT", "where"):
                change(both.restricted({"x": 1}))
    lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    assert {line["principal"] for line in lines if line["operation"] in ("count", "members")} == {shared.public["both"]}


# A storage, and members, that lie -----------------------------------------------------------------------


def forged(shared: Shared, by: str, chain: Chain, **changes: Any) -> bytes:
    """Return the next commit after ``chain``, which need not be the newest state, by somebody with these keys."""
    keys = MemberKeys(shared.identity(by), chain.mark.uuid, None).joined(chain.members)
    options: dict[str, Any] = {"time": 1.0, "layout": (chain.dimension, chain.precision), **changes}
    return chain.commit(options.pop("kind", "append"), keys, **options)


def test_a_late_commit_of_a_removed_writer_is_named_and_repaired(shared: Shared) -> None:
    with shared.open("owner") as index:
        index.share(shared.public["second"], "owner")
        index.remove(shared.public["writer"])
    after = shared.state()
    content = forged(shared, "writer", after)
    number = after.number + 1
    shared.put(number, content)
    shared.put(number + 1, content)
    for name in ("owner", "reader", "both"):
        for open_ in (shared.open, shared.afresh):
            with raises("E-INDEX-SIGNER") as error:
                open_(name).count()
            assert commit_name(number) in str(error.value)
            assert shared.public["writer"] in str(error.value)
    with raises("E-INDEX-SIGNER"):
        verify(shared.open("owner"))
    with raises("E-INDEX-ROLE"):
        shared.afresh("both").repair()
    assert shared.afresh("second").repair().commits == (commit_name(number), commit_name(number + 1))
    with shared.open("owner") as index:
        assert index.ids() == ["first"]
        assert index.repair().commits == ()
        add(index, "second")


def test_repair_keeps_what_writers_have_added_after_a_commit_that_they_could_not_open(shared: Shared) -> None:
    """A writer cannot see what is wrong in the commit of another one, and its rows are acknowledged."""
    with shared.open("owner") as index:
        index.share(shared.public["stranger"], "writer")
    now = shared.state()
    number = now.number + 1
    shared.put(number, signed(shared, "stranger", now))
    with shared.open("writer") as writer:
        add(writer, "second", "third")
        writer.delete(["second"])
        add(writer, "fourth")
    gone = StoredObject(f"segments/{7:032x}", f"{7:064x}", f"{7:064x}", 100, 3)
    last = Chain.at(now.mark, number + 3, sha256((shared.place / commit_name(number + 3)).read_bytes()).hexdigest())
    last = dataclasses.replace(now, number=last.number, digest=last.digest, complete=False)
    shared.put(number + 4, forged(shared, "stranger", last, adds=[gone]))
    with raises("E-INDEX-CHAIN"):
        shared.open("reader").count()
    assert shared.open("owner").repair().commits == tuple(commit_name(n) for n in range(number, number + 5))
    for name in ("owner", "reader"):
        assert sorted(shared.afresh(name).ids()) == ["first", "fourth", "third"]
    with raises("E-INDEX-ROLLED-BACK"):  # it has seen a commit that is deleted
        shared.open("writer").delete(["first"])


def test_repair_ends_with_the_commit_that_an_owner_has_built_on(shared: Shared) -> None:
    """The storage alters a commit, so that the removal of a member after it would be undone."""
    with shared.open("writer") as writer:
        add(writer, "second")
    number = shared.state().number
    with shared.open("owner") as index:
        index.share(shared.public["second"], "owner")
        index.remove(shared.public["both"])
    good = (shared.place / commit_name(number)).read_bytes()
    shared.put(number, b"altered")
    with raises("E-INDEX-CHAIN"):
        shared.afresh("owner").repair()
    (shared.place / commit_name(number)).unlink()
    with raises("E-INDEX-CHAIN"):
        shared.afresh("owner").repair()
    shared.put(number, good)
    assert sorted(shared.open("owner").ids()) == ["first", "second"]


@pytest.mark.parametrize("by", ["writer", "stranger"])
def test_repair_removes_commits_beyond_a_gap(shared: Shared, by: str) -> None:
    """They would count as proof that the storage withholds the next one; the rows of a member among them stay."""
    with shared.open("writer") as writer:
        add(writer, "second")
    now = shared.state()
    [stored] = [each for each in now.objects.values() if each.commit == now.number]
    before = dataclasses.replace(now, complete=False, number=98, digest="0" * 64)
    (shared.place / commit_name(now.number)).unlink()
    for name in ("owner", "reader", "writer"):
        shutil.rmtree(shared.folder / f"{name}.key.heads", ignore_errors=True)
    if by == "stranger":
        far = signed_by_a_stranger(shared, before)
    else:
        far = forged(shared, by, before, adds=[stored])
    shared.put(99, far)
    with raises("E-INDEX-INCOMPLETE"):
        shared.open("reader").count()
    assert shared.open("owner").repair().commits == (commit_name(99),)
    assert not (shared.place / commit_name(99)).exists()
    assert shared.afresh("reader").ids() == ["first", *["second"] * (by == "writer")]


def signed_by_a_stranger(shared: Shared, chain: Chain) -> bytes:
    content, own = forged(shared, "writer", chain)[:-64], shared.public["stranger"].encode()
    content = content.replace(shared.public["writer"].encode(), own)
    return content + shared.identity("stranger").sign(rules._signed(chain.mark, chain.number + 1, content))


def without(name: str) -> Callable[..., Any]:
    return lambda sections: {section: value for section, value in sections.items() if section != name}


def changed(name: str, change: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda sections: {**sections, name: change(sections[name])}


@pytest.mark.parametrize(
    "change",
    [
        None,
        without("hashes"),
        without("text"),
        without("id.ends"),
        changed("order", lambda order: order + 1),
        changed("order", lambda order: order[:1]),
        changed("text.ends", lambda ends: np.array([0, 2**31 - 1, *ends[2:]], np.uint32)),
        changed("text.ends", lambda ends: ends + np.uint32(2**30)),
        changed("metadata", lambda text: b"[" * len(text)),
        changed("metadata", lambda text: b"7777" * (len(text) // 4)),
        changed("metadata", lambda text: b"NaN " * (len(text) // 4)),
        changed("hashes", lambda hashes: hashes[::-1].copy()),
        lambda sections: {**sections, **WORDS, "words.lengths": np.array([3, np.inf], "<f4")},
        lambda sections: {**sections, **WORDS, "words.lengths": np.array([3, 1e6], "<f4")},
        lambda sections: {**sections, "fields": b'{"columns": [["year", "foo", "int64"]], "lists": []}'},
        changed("id", lambda text: b"\xff" * len(text)),
        lambda sections: {**sections, "fields": b"{}"},
        lambda sections: {**sections, "words": np.zeros(1, "<u8")},
    ],
)
def test_repair_gives_up_what_a_writer_added_and_nobody_can_read(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, change: Callable[..., Any] | None
) -> None:
    """A writer decides what its segments contain; the rows of others stay."""
    sections = segments._sections
    before = set((shared.place / "segments").iterdir())
    if change is not None:
        monkeypatch.setattr(segments, "_sections", lambda *rows: iter(change(dict(sections(*rows))).items()))
    with shared.open("writer") as writer:
        add(writer, "bad", "worse")
    monkeypatch.undo()
    [segment] = set((shared.place / "segments").iterdir()) - before
    if change is None:
        segment.unlink()
    with shared.open("both") as both:
        add(both, "second")
    with raises("E-INDEX-INCOMPLETE" if change is None else "E-SEAL-OPEN"), shared.open("reader") as reader:
        reader.search(np.ones(N), where={"none": {"exists": False}}, words="first", mode="hybrid")
    assert shared.open("owner").repair().given_up == ()
    with raises("E-INDEX-ROLE"):
        shared.open("both").repair(drop=True)
    found = shared.open("owner").repair(drop=True)
    assert found.given_up == (
        {
            "segment": f"segments/{segment.name}",
            "rows": 2,
            "commit": shared.state().number - 2,
            "signer": shared.public["writer"],
        },
    )
    for name in ("owner", "reader"):
        with shared.open(name) as index:
            assert sorted(index.get().ids) == ["first", "second"]
    assert shared.open("owner").repair(drop=True).given_up == ()
    verify(shared.open("owner"))
    (shared.place / "segments").rename(shared.place / "elsewhere")
    with raises("E-INDEX-INCOMPLETE"):
        shared.open("owner").repair(drop=True)


def test_repair_opens_whatever_members_write(shared: Shared) -> None:
    """Ids whose hashes lie more than half of their range apart: half of all pairs."""
    with shared.open("writer") as writer:
        for i in range(12):
            add(writer, f"a{i}", f"b{i}")
    owner = shared.open("owner")
    assert owner.repair(drop=True).given_up == ()
    assert owner.count() == 25


def test_repair_says_which_rows_of_a_replaced_commit_do_not_open(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = shared.state()
    shared.put(now.number + 1, signed(shared, "both", now))
    sections = segments._sections
    monkeypatch.setattr(segments, "_sections", lambda *rows: iter(without("hashes")(dict(sections(*rows))).items()))
    with shared.open("writer") as writer:
        add(writer, "bad")
    monkeypatch.undo()
    with shared.open("writer") as writer:
        add(writer, "good")
    found = shared.open("owner").repair()
    assert [(lost["rows"], lost["commit"], lost["signer"]) for lost in found.given_up] == [
        (1, now.number + 2, shared.public["writer"])
    ]
    assert sorted(shared.open("reader").ids()) == ["first", "good"]


@pytest.mark.parametrize("planted", [False, True])
@pytest.mark.parametrize("change", ["add", "forget", "share"])
def test_repair_does_not_take_a_commit_made_meanwhile_for_a_refused_one(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, change: str, planted: bool
) -> None:
    """Neither on a sound index nor on one with a refused commit, which that member cannot follow, either."""
    with shared.open("owner") as index:
        index.share(shared.public["second"], "owner")
    if planted:
        now = shared.state()
        shared.put(now.number + 1, signed(shared, "both", now))
    owner, other = shared.open("owner"), shared.open("writer" if change == "add" else "second")
    listed = owner._log.storage.list

    def late(prefix: str) -> Any:
        if prefix == "commits":
            monkeypatch.undo()
            with contextlib.suppress(StoreError):
                if change == "add":
                    add(other, "second")
                elif change == "forget":
                    add(other, "second")
                    other.forget(["first"])
                else:
                    other.share(shared.public["stranger"], "reader")
        return listed(prefix)

    monkeypatch.setattr(owner._log.storage, "list", late)
    assert len(owner.repair().commits) == planted * (2 if change == "add" else 1)
    expected = {"add": ["first", "second"], "forget": ["first"] if planted else ["second"], "share": ["first"]}
    for name in ("owner", "reader", "second"):
        assert sorted(shared.open(name).ids()) == expected[change]
    with shared.afresh("writer" if change == "add" else "second") as index:
        add(index, "third")
    verify(shared.open("owner"))


def fingerprinted(name: str) -> TextEncoder:
    return load_encoder(lambda texts: np.ones((len(texts), N)), fingerprint=name)


def test_a_writer_notes_no_encoder_for_rows_that_others_added(shared: Shared) -> None:
    """Otherwise it would refuse the encoder with which everybody searches."""
    first, second = (fingerprinted(name) for name in ("first", "second"))
    with shared.open("writer", encoder=second) as writer:
        add(writer, "second")
    with shared.open("reader", encoder=first) as reader:
        assert len(reader.search("a text", top=5).ids) == 2
        assert reader.noted_encoder is None
    now = shared.state()
    shared.put(now.number + 1, forged(shared, "writer", now, encoder=("second", "second")))
    for name in ("reader", "writer"):
        with raises("E-INDEX-CHAIN"):
            shared.open(name).delete(["first"])


def test_a_commit_names_one_encoder(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer cannot put another fingerprint into the body than the one that its header proves."""
    with shared.open("owner", encoder=fingerprinted("first")) as owner:
        owner.add(["a text"], ids=["second"])
    now = shared.state()
    monkeypatch.setattr(rules, "encoder_tag", lambda *_: now.encoder_tag)
    content = forged(shared, "writer", now, encoder=("0" * 64, "another"))
    monkeypatch.undo()
    shared.put(now.number + 1, content)
    with raises("E-INDEX-CHAIN"):
        shared.open("reader").ids()


def test_two_owners_repair_at_once(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    with shared.open("owner") as index:
        index.share(shared.public["second"], "owner")
    now = shared.state()
    shared.put(now.number + 1, signed(shared, "both", now))
    with shared.open("writer") as writer:
        add(writer, "second")
    owner, second = shared.open("owner"), shared.open("second")
    read, repaired = owner._log._refused_append, list[tuple[str, ...]]()

    def late(*given: Any) -> Any:
        repaired.append(second.repair().commits)
        return read(*given)

    monkeypatch.setattr(owner._log, "_refused_append", late)
    assert owner.repair().commits == ()
    assert [len(names) for names in repaired] == [2, 0]
    for index in (owner, second, shared.open("reader")):
        assert sorted(index.ids()) == ["first", "second"]


def test_rows_that_their_ids_do_not_find_are_given_up(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer adds a row that no later version replaces, and no deletion."""
    sections, change = segments._sections, changed("hashes", lambda hashes: hashes + 1)
    monkeypatch.setattr(segments, "_sections", lambda *rows: iter(change(dict(sections(*rows))).items()))
    with shared.open("writer") as writer:
        add(writer, "first")
    monkeypatch.undo()
    with shared.open("owner") as owner:
        owner.delete(["first"])
        assert owner.ids() == ["first"]
        [lost] = owner.repair(drop=True).given_up
        assert lost["signer"] == shared.public["writer"]
        assert owner.ids() == []


def test_a_writer_who_takes_the_name_of_another_ones_segment_loses_it_no_row(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sees the storage commits a name first, with false digests; the other writer cannot see that."""
    with shared.open("owner") as index:
        index.share(shared.public["stranger"], "writer")
    now = shared.state()
    with shared.open("writer") as writer:
        wrote = writer._log._write

        def overtaken(*given: Any, **options: Any) -> StoredObject:
            stored = wrote(*given, **options)
            false = StoredObject(stored.name, "0" * 64, "0" * 64, stored.bytes, stored.rows)
            shared.put(now.number + 1, forged(shared, "stranger", now, adds=[false]))
            return stored

        monkeypatch.setattr(writer._log, "_write", overtaken)
        add(writer, "second", "third")
    with raises("E-INDEX-CHAIN"):
        shared.open("reader").count()
    found = shared.open("owner").repair(drop=True)
    assert found.commits == (commit_name(now.number + 2),)
    assert [lost["signer"] for lost in found.given_up] == [shared.public["stranger"]]
    assert sorted(shared.open("reader").ids()) == ["first", "second", "third"]


def signed(shared: Shared, by: str, chain: Chain) -> bytes:
    """Return a commit that is signed, and whose body does not open."""
    content = bytearray(forged(shared, by, chain)[:-64])
    content[-1] ^= 1
    return bytes(content) + shared.identity(by).sign(rules._signed(chain.mark, chain.number + 1, bytes(content)))


def test_repair_keeps_a_commit_that_this_machine_has_seen_to_be_good(shared: Shared) -> None:
    with shared.open("both") as both:
        add(both, "second")
    number = shared.state().number
    shared.put(number, b"damaged")
    with raises("E-INDEX"):
        shared.open("owner").repair()
    assert (shared.place / commit_name(number)).read_bytes() == b"damaged"


def test_a_removed_reader_does_not_lead_a_new_machine_back_to_the_old_list(shared: Shared) -> None:
    """The removed reader still has the old data key, and says that its commit is a checkpoint under the old list."""
    old = shared.state()
    with shared.open("owner") as index:
        index.remove(shared.public["both"])
        add(index, "second")
    now = shared.state()
    number = now.number + 1
    back = Chain(
        now.mark,
        now.number,
        now.digest,
        old.key_id,
        checkpoint=0,
        dimension=old.dimension,
        precision=old.precision,
        complete=True,
        objects=old.objects,
        members=old.members,
    )
    keys = MemberKeys(shared.identity("both"), old.mark.uuid, None).joined(old.members)
    monkey = rules._BETWEEN
    rules._BETWEEN = 0
    try:
        content = back.commit("append", keys, time=1.0, layout=(old.dimension, old.precision))
    finally:
        rules._BETWEEN = monkey
    assert header_of(content, number)[0].checkpoint == number
    shared.put(number, content)
    for name in ("owner", "reader", "writer"):
        with raises("E-INDEX"):
            shared.afresh(name)._log.advance()
        with raises("E-INDEX"):
            shared.open(name)._log.advance()


def test_a_machine_that_has_seen_a_removal_keeps_to_it_without_the_mark_of_the_list(shared: Shared) -> None:
    """Whoever was removed and may still write to the storage also deletes the object that shows the new list."""
    old = shared.state()
    with shared.open("owner") as index:
        index.remove(shared.public["both"])
        add(index, "second")
    with shared.open("writer") as index:
        add(index, "third")
    now = shared.state()
    shared.open("reader")._log.advance()
    for number in range(1, now.number + 1):
        (shared.place / list_name(number)).unlink(missing_ok=True)
    back = dataclasses.replace(now, key_id=old.key_id, members=old.members, complete=True, checkpoint=0)
    keys = MemberKeys(shared.identity("both"), old.mark.uuid, None).joined(old.members)
    between = rules._BETWEEN
    rules._BETWEEN = 0
    try:
        content = back.commit("append", keys, time=1.0, layout=(old.dimension, old.precision))
    finally:
        rules._BETWEEN = between
    shared.put(now.number + 1, content)
    for name in ("owner", "reader", "writer"):
        with raises("E-INDEX"):
            shared.open(name)._log.advance()
    with raises("E-INDEX"):  # it would be encrypted under the key of whoever was removed
        add(shared.open("writer"), "fourth")


@pytest.mark.parametrize("named", ["between", "last", "beyond"])
def test_a_writer_names_a_checkpoint_that_is_none(shared: Shared, named: str) -> None:
    """It shows in clear, so that an owner whose keys come from the list alone can open the index and repair it."""
    with shared.open("owner") as index:
        index.share(shared.public["second"], "owner")
        index.share(shared.public["stranger"], "writer")
        add(index, "second")
        add(index, "third")
    now = shared.state()
    shared.open("stranger")._log.advance()
    at = {"between": now.checkpoint + 1, "last": now.number, "beyond": 2**52}[named]
    shared.put(now.number + 1, forged(shared, "writer", dataclasses.replace(now, checkpoint=at, complete=False)))
    for name in ("owner", "second", "reader"):
        for open_ in (shared.open, shared.afresh):
            with raises("E-INDEX-CHAIN") as error:
                open_(name).count()
            assert commit_name(now.number + 1) in str(error.value)
    with raises("E-INDEX-CHAIN"):  # a writer who does not read, and has seen the commit before
        add(shared.open("stranger"), "fourth")
    assert shared.afresh("second").repair().commits == (commit_name(now.number + 1),)
    assert shared.open("reader").count() == 3


def test_the_storage_exchanges_two_lists_or_two_indexes(shared: Shared, tmp_path: Path) -> None:
    with shared.open("owner") as index:
        index.share(shared.public["second"], "owner")
        lists = [n for n in range(1, index._log.advance().number + 1) if (shared.place / list_name(n)).exists()]
    first, second = (shared.place / commit_name(number) for number in lists[-2:])
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    for name in ("owner", "reader", "writer"):
        for open_ in (shared.open, shared.afresh):
            with raises("E-INDEX"):
                open_(name).members()
    first.write_bytes(contents[0])
    second.write_bytes(contents[1])
    shared.open("writer").members()
    (tmp_path / "others").mkdir()
    other = Shared(tmp_path / "others")
    os.rename(shared.place, tmp_path / "aside")
    shutil.copytree(other.place, shared.place)
    with raises("E-INDEX-ROLLED-BACK"):
        shared.open("writer")
    with raises("E-SEAL-COLLECTION"):
        shared.afresh("writer")


def test_an_owner_that_is_named_is_compared_before_anything_is_written(shared: Shared) -> None:
    add(shared.afresh("writer", owner=shared.public["owner"]), "a")
    shutil.rmtree(shared.place)
    thief = Shared.__new__(Shared)
    thief.folder, thief.place, thief.public = shared.folder, shared.place, shared.public
    with shared.afresh("stranger") as index:  # the storage's operator, who knows the writer's public string
        add(index, "bait")
        index.share(shared.public["writer"], "writer")
    segments = set((shared.place / "segments").iterdir())
    for options in ({"owner": shared.public["owner"]}, {"owner": shared.public["reader"]}):
        with raises("E-INDEX-OWNER", "owner"):
            add(shared.afresh("writer", **options), "secret")
    with raises("E-INDEX-PUBLIC", "owner"):
        shared.open("writer", owner="veil1")
    assert segments == set((shared.place / "segments").iterdir())
    with shared.afresh("writer") as index:  # without it the first use decides, and is remembered
        add(index, "b")
    head = next((shared.folder / "writer.key.heads").iterdir())
    assert msgspec.json.decode(head.read_bytes())["founder"] == shared.public["stranger"]


def test_a_copy_does_not_exchange_the_owner_whom_a_machine_knows(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup with the index's UUID and a list of a stranger's must not become the index that a reader trusts."""
    shared.open("reader").count()
    known = shared.state().mark.uuid
    with monkeypatch.context() as patched:
        patched.setattr(keystore.uuid, "uuid4", lambda: known)
        with SealedIndex(shared.folder / "backup", shared.folder / "stranger.key") as forgery:
            add(forgery, "forged")
            forgery.share(shared.public["reader"], "reader")
    shutil.rmtree(shared.place)
    with SealedIndex(shared.folder / "backup", shared.folder / "reader.key") as backup, raises("E-INDEX-OWNER"):
        copy(backup, str(shared.place))
    assert not list(shared.place.rglob("*"))


def test_a_stranger_does_not_share_an_index_with_its_owner(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage begins a list of its own, and makes a checkpoint after it, so that nobody has to open the list."""

    class NoBase:
        def wrap(self, key: bytes, name: str, key_id: str) -> bytes:
            return bytes(60)

    place = shared.folder / "alone"
    with SealedIndex(place, shared.folder / "owner.key") as index:
        add(index, "a")
        head = index._log.advance()
    shutil.rmtree(shared.folder / "owner.key.heads")
    keys = MemberKeys(shared.identity("stranger"), head.mark.uuid, NoBase())  # type: ignore[arg-type]
    people = [Member(shared.public["stranger"], ("owner",)), Member(shared.public["owner"], ("reader", "writer"))]
    options: dict[str, Any] = {"time": 1.0, "layout": (N, "float16")}
    monkeypatch.setattr(rules, "_BETWEEN", 0)
    first = head.commit("members", keys, members=people, key_id=keys.renewed(), **options)
    members = next_members(head.mark, head.number + 1, None, first)
    state = dataclasses.replace(head, number=head.number + 1, digest=sha256(first).hexdigest(), members=members)
    assert members is not None
    state = dataclasses.replace(state, key_id=members.key_id, objects={})
    (place / commit_name(state.number)).write_bytes(first)
    (place / commit_name(state.number + 1)).write_bytes(state.commit("append", keys, **options))
    with SealedIndex(place, shared.folder / "owner.key") as index, raises("E-INDEX-OWNER"):
        index.count()


def test_an_index_that_was_never_shared_has_no_owner_to_name(tmp_path: Path) -> None:
    public = Identity(KeyFile.create(tmp_path / "a.key", "1").identity or b"").public
    with SealedIndex(tmp_path / "notes", tmp_path / "a.key") as index:
        add(index, "a")
    with raises("E-INDEX-OWNER", "owner"):
        SealedIndex(tmp_path / "notes", tmp_path / "a.key", owner=public).count()


# Copies, checks, interruptions ---------------------------------------------------------------------------


def test_a_shared_index_is_verified_and_copied(shared: Shared, tmp_path: Path) -> None:
    with shared.open("owner") as index:
        index.remove(shared.public["both"])
    with shared.open("reader") as index:
        found = verify(index)
        assert found.others == ()
        assert (found.segments, found.rows, found.signed) == (1, 1, {shared.public["owner"]: 5})
        chain, lost = copy(index, str(tmp_path / "copy"))
        assert (chain.number, lost) == (found.commits, 0)
    copied = {path.name for path in (tmp_path / "copy" / "commits").iterdir()}
    assert copied == {path.name for path in (shared.place / "commits").iterdir()}
    with SealedIndex(tmp_path / "copy", shared.folder / "reader.key") as index:
        assert index.ids() == ["first"]
        assert verify(index).others == ()


@pytest.mark.parametrize("by", ["owner", "second"])
def test_an_interrupted_removal_is_finished_by_calling_it_again(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    with shared.open("owner") as index:
        index.share(shared.public["second"], "owner")
        monkeypatch.setattr(index._log, "renew_keys", lambda: None)  # it is killed here
        index.remove(shared.public["both"])
        assert index.members().renewal_pending
        key = index._log.advance().key_id
    with shared.open(by) as index:
        index.share(shared.public["writer"], "writer", name="Ingest")  # another change finishes it, too
        assert not index.members().renewal_pending
        assert index._log.advance().key_id != key
        with raises("E-INDEX-PUBLIC"):
            index.remove(shared.public["both"])


def test_many_commits_between_two_lists_and_a_remembered_one(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "_BETWEEN", 3)
    with shared.open("both") as both, shared.open("writer") as writer:
        for number in range(5):
            add(both, f"b{number}")
            add(writer, f"w{number}")
    with shared.open("owner") as index:
        assert index.count() == 11
        index.share(shared.public["second"], "reader")
        for number in range(5):
            add(index, f"o{number}")
        assert index._log.advance().checkpoint > index._log.advance().members.place.number  # type: ignore[union-attr]
    for name in ("reader", "second", "both"):
        for open_ in (shared.afresh, shared.open):
            with open_(name) as index:
                assert index.count() == 16
    for open_ in (shared.afresh, shared.open):
        add(open_("writer"), "last")


def test_a_writer_who_does_not_read_fills_the_index_unverified(shared: Shared, tmp_path: Path) -> None:
    (tmp_path / "more.jsonl").write_text('{"id": "second", "text": "new", "embedding": [1, 0, 0, 0, 0, 0, 0, 1]}\n')
    command = ["migrate", tmp_path / "more.jsonl", f"sealed:{shared.place}", "--seal-key", tmp_path / "writer.key"]
    refused = run(*command)
    assert refused.code
    assert "--add" in refused.err
    done = run(*command, "--add", "--json")
    assert done.code == 0, done.err
    assert "not verified" in done.err
    assert "there already" not in done.err  # it cannot see them
    assert (done.json["written"], done.json["compared"]) == (1, 0)
    with shared.open("reader") as reader:
        assert reader.get(["second"]).texts == ["new"]


def test_repair_brings_no_forgotten_row_back(shared: Shared) -> None:
    """A removed member kept an object, and a commit by which another member had added it under a higher number."""
    now = shared.state()
    with shared.open("writer") as writer:
        add(writer, "second")
    stored = shared.state().objects
    [name] = stored.keys() - now.objects.keys()
    content = (shared.place / name).read_bytes()
    far = dataclasses.replace(now, complete=False, number=98, digest="0" * 64)
    kept = forged(shared, "writer", far, adds=[stored[name]])
    with shared.open("owner") as owner:
        owner.forget(["second"])
        add(owner, "third")
        owner.compact()  # notes that the object is gone
        assert name not in {**owner._log.advance().objects, **owner._log.advance().replaced}
        (shared.place / name).write_bytes(content)
        shared.put(99, kept)
    for drop in (False, True):
        shared.open("owner").repair(drop=drop)
        assert sorted(shared.afresh("reader").ids()) == ["first", "third"]


def test_a_late_writer_takes_back_no_commit_but_its_own(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """It follows a false commit; an owner replaces that one, and in the end also the writer's, before it looks."""
    now = shared.state()
    shared.put(now.number + 1, signed(shared, "both", now))
    with shared.open("writer") as writer:
        create = writer._log.storage.create

        def overtaken(name: str, *given: Any, **options: Any) -> None:
            create(name, *given, **options)
            if name == commit_name(now.number + 2):
                assert len(shared.open("owner").repair().commits) == 2

        monkeypatch.setattr(writer._log.storage, "create", overtaken)
        with raises("E-INDEX-ROLLED-BACK"):  # whether the row exists is unknown
            add(writer, "second")
    assert sorted(shared.open("owner").ids()) == ["first", "second"]


def test_repair_replaces_a_commit_that_is_too_large(shared: Shared) -> None:
    number = shared.state().number + 1
    with open(shared.place / commit_name(number), "wb") as file:
        file.truncate(rules.MOST_BYTES + 1)
    with raises("E-INDEX-CHAIN"):
        shared.open("reader").count()
    assert shared.open("owner").repair().commits == (commit_name(number),)
    assert shared.open("reader").count() == 1


@pytest.mark.parametrize(
    "change",
    [
        changed("words.ends", lambda ends: ends[:1]),
        changed("words.rows", lambda rows: rows + 2**20),
        changed("words.rows", lambda rows: rows[:1]),
        changed("words.lengths", lambda lengths: lengths[:1]),
        changed("fields.0.rows", lambda rows: rows + 2**20),
        changed("fields.0.rows", lambda rows: rows[:1]),
        changed("fields.0.values", lambda values: b"\xff" * 64),
    ],
)
def test_searches_name_a_segment_whose_words_or_fields_do_not_fit(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, change: Callable[..., Any]
) -> None:
    sections = segments._sections
    monkeypatch.setattr(segments, "MANY", 1)
    monkeypatch.setattr(segments, "_sections", lambda *rows: iter(change(dict(sections(*rows))).items()))
    with shared.open("writer") as writer:
        writer.add(["ill", "well"], ids=["a", "b"], vectors=np.eye(N)[:2], metadata=[{"x": "y"}, {"x": "z"}])
    monkeypatch.setattr(segments, "_sections", sections)
    with shared.open("reader") as reader:
        for index in (reader, reader.restricted({"x": ["y", "z"]})):
            with raises("E-SEAL-OPEN"):
                index.search(np.ones(N), where={"x": "y"})
                index.search(np.ones(N), words="ill well", mode="hybrid")
