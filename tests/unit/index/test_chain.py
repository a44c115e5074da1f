"""The rules of the chain, without any storage: what may follow what, and what a writer who cannot read may do."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

import pytest

from harness.errors import raises
from vecveil.errors import KeyFileError
from vecveil.index import chain as rules
from vecveil.index.chain import Chain, Mark, StoredObject, check_mark
from vecveil.index.index_keys import DataKeys, RetiredKeyError
from vecveil.index.keystore import SingleKey

KEYS = DataKeys(SingleKey(bytes(range(32))), index=uuid.UUID(int=7))
LAYOUT = (8, "float16")


def segment(number: int, as_of: int | None = None) -> StoredObject:
    return StoredObject(f"segments/{number:032x}", f"{number:064x}", f"{number:064x}", 100, 3, as_of)


def name(number: int) -> str:
    return segment(number).name


def after(chain: Chain, kind: Any = "append", **changes: Any) -> Chain:
    """Return the state after one more commit, as a reader follows it."""
    return chain.follow(commit(chain, kind, **changes), KEYS)


def commit(chain: Chain, kind: Any = "append", **changes: Any) -> bytes:
    return chain.commit(kind, KEYS, time=changes.pop("time", 5.0), **{"layout": LAYOUT, **changes})


@pytest.fixture
def chain() -> Chain:
    """Three appends."""
    state = Chain.first(Mark.new(KEYS))
    for number in range(1, 4):
        state = after(state, adds=[segment(number)])
    return state


def test_a_rewrite_replaces_and_appends_made_meanwhile_are_newer(chain: Chain) -> None:
    meanwhile = after(chain, adds=[segment(4)])
    state = after(meanwhile, "replace", adds=[segment(5, as_of=3)], removes=[name(1), name(2)], time=9.0)
    assert list(state.objects) == [name(3), name(4), name(5)]
    assert state.replaced == {name(1): 9.0, name(2): 9.0}
    assert state.objects[name(3)].version < state.objects[name(5)].version < state.objects[name(4)].version
    assert after(state, "replace", gone=[name(1)]).replaced == {name(2): 9.0}


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("append", {"adds": [segment(2)]}),  # a second time
        ("replace", {"removes": [name(9)]}),  # never added
        ("replace", {"adds": [segment(5, as_of=9)], "removes": [name(1)]}),  # planned on a later commit
        ("replace", {"gone": [name(3)]}),  # still live
        ("replace", {"removes": [name(1), name(1)]}),
        ("append", {"layout": (9, "float16"), "adds": [segment(5)]}),
        ("append", {"layout": (8, "int8"), "adds": [segment(5)]}),
    ],
)
def test_what_may_not_follow_is_refused(chain: Chain, kind: str, changes: dict[str, Any]) -> None:
    with raises("E-INDEX-CHAIN"):
        after(chain, kind, **changes)


def test_a_removed_or_void_object_is_not_added_again(chain: Chain) -> None:
    state = after(chain, "replace", removes=[name(1)], voids=[name(7)])
    assert state.voided == {name(7)}
    for number in (1, 7):
        with raises("E-INDEX-CHAIN"):
            after(state, adds=[segment(number)])


def test_a_commit_follows_one_commit_of_one_index_under_one_number(chain: Chain) -> None:
    content = commit(chain, adds=[segment(4)])
    other = after(chain, adds=[segment(5)])
    with raises("E-INDEX-CHAIN"):
        other.follow(content, KEYS)
    foreign = DataKeys(SingleKey(bytes(range(32))), index=uuid.UUID(int=8))
    with raises("E-INDEX-CHAIN"):
        Chain.at(Mark.new(foreign), 3, chain.digest).follow(content, foreign)
    assert len(content) == len(commit(chain, adds=[segment(4), segment(5)])), "sizes are padded"
    for at in (0, 17, 40, len(content) // 2, len(content) - 1):
        with raises("E-INDEX-CHAIN"):
            chain.follow(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :], KEYS)
    for cut in (0, 10, 30, len(content) - 1):
        with raises("E-INDEX-CHAIN"):
            chain.follow(content[:cut], KEYS)


def test_only_a_renewal_changes_the_key_and_only_a_reencoding_the_epoch(chain: Chain) -> None:
    class TwoKeys(DataKeys):
        def wrap(self, key: bytes, name: str, key_id: str) -> bytes:
            return super().wrap(key, name, KEYS.current())

        def unwrap(self, wrapped: bytes, key_id: str, name: str) -> bytes:
            return super().unwrap(wrapped, KEYS.current(), name)

    keys = TwoKeys(KEYS.store, index=KEYS.uuid)
    options: dict[str, Any] = {"time": 1.0, "layout": LAYOUT, "key_id": "new"}
    with raises("E-INDEX-CHAIN"):
        chain.follow(chain.commit("append", keys, **options), keys)
    renewed = chain.follow(chain.commit("renew keys", keys, **options), keys)
    assert (renewed.key_id, renewed.checkpoint) == ("new", 4)
    encoded = after(chain, "re-encode", layout=(16, "int8"), encoder=("fingerprint", "name"))
    assert (encoded.epoch, encoded.dimension, encoded.encoder) == (4, 16, "fingerprint")
    with raises("E-INDEX-CHAIN"):
        after(encoded, layout=(16, "int8"), encoder=("another", "name"), adds=[segment(9)])
    assert after(encoded, layout=(16, "int8"), adds=[segment(9)]).encoder_tag == encoded.encoder_tag


def test_a_reader_begins_at_a_checkpoint(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "_BETWEEN", 4)
    removed = after(chain, "replace", removes=[name(1)], time=3.0)
    begun = Chain.at(chain.mark, 3, chain.digest)
    content = commit(chain, "replace", removes=[name(1)], time=3.0)
    assert removed.checkpoint == 4
    at_checkpoint = begun.follow(content, KEYS)
    assert (dict(at_checkpoint.objects), at_checkpoint.replaced) == (dict(removed.objects), removed.replaced)
    assert not Chain.at(chain.mark, 2, "0" * 64).complete
    with raises("E-INDEX-CHAIN"):
        Chain.at(chain.mark, 3, "0" * 64).follow(content, KEYS)


def test_a_checkpoint_notes_the_encoder_of_earlier_commits(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = after(chain, "re-encode", layout=(16, "int8"), encoder=("fingerprint", "name"))
    monkeypatch.setattr(rules, "_BETWEEN", 5)
    deletion = commit(encoded, "delete", layout=(16, "int8"), adds=[segment(8)])  # by a process without an encoder
    assert Chain.at(chain.mark, 4, encoded.digest).follow(deletion, KEYS).encoder == "fingerprint"


@pytest.mark.parametrize(
    ("between", "changes"),
    [
        (4, {"objects": {}}),  # lists fewer objects
        (4, {"replaced": {name(9): 1.0}}),  # lists a removal that never was
        (64, {"checkpoint": 2}),  # names a commit that lists nothing
        (64, {"checkpoint": 4}),  # names itself, and lists nothing
    ],
)
def test_a_false_checkpoint_is_refused(
    chain: Chain, monkeypatch: pytest.MonkeyPatch, between: int, changes: dict[str, Any]
) -> None:
    monkeypatch.setattr(rules, "_BETWEEN", between)
    content = commit(dataclasses.replace(chain, **changes), adds=[segment(4)])
    with raises("E-INDEX-CHAIN"):
        chain.follow(content, KEYS)


def test_commits_under_a_deleted_key_are_passed_over_until_a_checkpoint(chain: Chain) -> None:
    class Renewed(DataKeys):
        def unwrap(self, wrapped: bytes, key_id: str, name: str) -> bytes:
            if name != rules.commit_name(5):
                raise RetiredKeyError("renewed")
            return super().unwrap(wrapped, key_id, name)

    fourth = commit(chain, adds=[segment(4)])
    state = chain.follow(fourth, KEYS)
    fifth = commit(state, "renew keys")
    renewed = Renewed(KEYS.store, index=KEYS.uuid)
    passed = chain.follow(fourth, renewed)
    assert not passed.complete
    assert passed.follow(fifth, renewed).objects.keys() == state.objects.keys()


def test_a_writer_who_cannot_read_continues_the_chain(chain: Chain) -> None:
    writer = Chain.at(chain.mark, 2, "")
    third = Chain.first(chain.mark)
    contents = []
    for number in range(1, 4):
        contents.append(commit(third, adds=[segment(number)]))
        third = third.follow(contents[-1], KEYS)
    writer = Chain.at(chain.mark, 2, rules.header_of(contents[2], 3)[0].previous).follow(contents[2], None)
    assert not writer.complete
    content = commit(writer, adds=[segment(4)])
    assert third.follow(content, KEYS).objects.keys() == {name(number) for number in range(1, 5)}


def test_index_json_is_one_form(chain: Chain) -> None:
    content = chain.mark.encode()
    assert check_mark(content, "notes") == chain.mark
    for damaged in (b"", b"{}", content[:-3], content.replace(b" ", b"  ", 1), b"PAR1"):
        with raises("E-INDEX-STORAGE"):
            check_mark(damaged, "notes")
    with raises("E-INDEX-FORMAT"):
        check_mark(content.replace(b"index/3", b"index/2"), "notes")


def test_an_unknown_key_is_no_damage(chain: Chain) -> None:
    class Other(DataKeys):
        def unwrap(self, wrapped: bytes, key_id: str, name: str) -> bytes:
            raise KeyFileError("no such key", code="E-SEAL-OPEN")

    with raises("E-SEAL-OPEN"):
        chain.follow(commit(chain, adds=[segment(4)]), Other(KEYS.store, index=KEYS.uuid))


def test_keys_of_commits_are_never_the_same(chain: Chain) -> None:
    """The nonce is constant, so equal commits must differ by their keys."""
    assert len({commit(chain, adds=[segment(4)]) for _ in range(20)}) == 20
