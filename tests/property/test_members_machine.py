"""Members of a sealed index against a dict: they join, leave, write, forge, replay and crash; the storage lies.

Nothing is acknowledged and lost, nobody does or reads more than the list in force allows, and what no member made is
named before an answer is given, also by a machine that has seen nothing before.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from vecveil.errors import KeyFileError, VecveilError
from vecveil.index import SealedIndex, chain, log
from vecveil.index.chain import Chain, commit_name, header_of
from vecveil.index.index_keys import MemberKeys
from vecveil.index.members import Identity
from vecveil.index.storage import Storage
from vecveil.keys import KeyFile

PEOPLE = range(5)
IDS = [f"id-{i}" for i in range(5)]
N = 4
pytestmark = pytest.mark.filterwarnings("ignore::vecveil.index.log.FirstOwnerWarning")
NOT_A_MEMBER, MAY_NOT, CANNOT_READ = "E-SEAL-COLLECTION", "E-INDEX-ROLE", "E-SEAL-OPEN"
REFUSED = {"E-INDEX-SIGNER", "E-INDEX-CHAIN"}
MADE_UP = {"junk", "unsigned", "replay"}


class CrashError(BaseException):
    """The process was killed."""


def failure(work: Callable[[], Any]) -> str | None:
    """Return the code of the error that ``work`` raises, or None."""
    try:
        work()
    except VecveilError as error:
        return error.code
    return None


class Hooked:
    """A storage that calls ``step`` before and after each change."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.step: Callable[[str], None] = lambda name: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    @contextlib.contextmanager
    def creating(self, name: str, **options: bool) -> Iterator[IO[bytes]]:
        self.step(name)
        with self._storage.creating(name, **options) as file:
            yield file
        self.step(name)

    def create(self, name: str, data: bytes, **options: bool) -> None:
        with self.creating(name, **options) as file:
            file.write(data)

    def delete(self, names: Any) -> None:
        for name in list(names):
            self.step(name)
            self._storage.delete([name])
            self.step(name)


class Members(RuleBasedStateMachine):
    """Five people with a key file each; ``roles`` is who may do what, ``rows`` what must be there."""

    person = st.sampled_from(PEOPLE)
    roles_drawn = st.sampled_from([("owner",), ("reader",), ("writer",), ("reader", "writer")])
    crash = st.sampled_from([0, 0, 0, 1, 2, 3, 4, 5, 6, 8])

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.place = self.folder / "notes"
        self.identities = []
        for person in PEOPLE:
            secret = KeyFile.create(self.folder / f"{person}.key", "1").identity
            assert secret is not None
            self.identities.append(Identity(secret))
        self.rows: dict[str, str] = {}
        self.serial = 0
        self.open: dict[int, SealedIndex] = {}
        index = self.index(0)
        index.add(["first"], ids=["id-0"], vectors=np.ones((1, N)))
        self.rows["id-0"] = "first"
        index.share(self.identities[1].public, ["reader", "writer"])
        index.share(self.identities[2].public, "owner")
        self.roles: dict[int, tuple[str, ...]] = {0: ("owner",), 1: ("reader", "writer"), 2: ("owner",)}
        self.states: list[Chain] = [index._log.advance()]

    def teardown(self) -> None:
        for index in getattr(self, "open", {}).values():
            index.close()
        shutil.rmtree(getattr(self, "folder", "no folder"), ignore_errors=True)

    def index(self, person: int, *, new_machine: bool = False) -> SealedIndex:
        """Open the index for a person; a new machine has seen no commit."""
        if new_machine:
            shutil.rmtree(self.folder / f"{person}.key.heads", ignore_errors=True)
            self.open.pop(person, None)
        index = SealedIndex(self.place, self.folder / f"{person}.key", max_staleness=0)
        index._log.storage = Hooked(index._log.storage)  # type: ignore[assignment]
        return index

    def used(self, person: int) -> SealedIndex:
        if person not in self.open:
            self.open[person] = self.index(person)
        return self.open[person]

    def may(self, person: int, kind: str) -> bool:
        roles = self.roles.get(person, ())
        return "owner" in roles or set(roles) >= {"read": {"reader"}, "add": {"writer"}}.get(kind, {"reader", "writer"})

    def attempt(self, person: int, work: Callable[[SealedIndex], Any], *, allowed: bool) -> bool:
        """Run ``work``; whoever is not allowed to gets one of three errors."""
        code = failure(lambda: work(self.used(person)))
        assert (code is None) is allowed, f"{self.roles.get(person)}: {code}"
        if code is None:
            self.note()
            return True
        assert code in ({NOT_A_MEMBER} if person not in self.roles else {MAY_NOT, CANNOT_READ})
        self.open.pop(person, None)
        return False

    def note(self) -> None:
        owner = next(person for person, roles in self.roles.items() if "owner" in roles)
        self.states.append(self.used(owner)._log.advance())

    @rule(person=person, name=st.sampled_from(IDS))
    def add(self, person: int, name: str) -> None:
        self.serial += 1
        text = f"text {self.serial}"
        done = self.attempt(
            person,
            lambda index: index.add([text], ids=[name], vectors=np.full((1, N), 1.0 + self.serial)),
            allowed=self.may(person, "add"),
        )
        if done:
            self.rows[name] = text

    @rule(person=person, name=st.sampled_from(IDS))
    def delete(self, person: int, name: str) -> None:
        if self.attempt(person, lambda index: index.delete([name]), allowed=self.may(person, "add")):
            self.rows.pop(name, None)

    @rule(person=person, name=st.sampled_from(IDS))
    def forget(self, person: int, name: str) -> None:
        if self.attempt(person, lambda index: index.forget([name]), allowed=self.may(person, "replace")):
            self.rows.pop(name, None)

    @rule(person=person)
    def reseal(self, person: int) -> None:
        self.attempt(person, lambda index: index.reseal(), allowed="owner" in self.roles.get(person, ()))

    @rule(by=person, person=person, roles=roles_drawn, crash=crash)
    def share(self, by: int, person: int, roles: tuple[Any, ...], crash: int) -> None:
        self.change(by, {**self.roles, person: roles}, lambda i: i.share(self.identities[person].public, roles), crash)

    @rule(by=person, person=person, crash=crash)
    def remove(self, by: int, person: int, crash: int) -> None:
        if person in self.roles:
            after = {other: roles for other, roles in self.roles.items() if other != person}
            self.change(by, after, lambda index: index.remove(self.identities[person].public), crash)

    def change(
        self, by: int, after: dict[int, tuple[str, ...]], work: Callable[[SealedIndex], None], crash: int
    ) -> None:
        steps = 0

        def step(name: str) -> None:
            nonlocal steps
            steps += 1
            if steps == crash:
                raise CrashError

        allowed = self.roles.get(by) == ("owner",) == after.get(by)  # nobody gives up its own role
        if allowed and crash:
            index = self.used(by)
            hooked: Any = index._log.storage
            hooked.step = step
            try:
                work(index)
                hooked.step = lambda name: None
            except CrashError:
                self.open.pop(by)
                work(self.used(by))
        elif allowed:
            work(self.used(by))
        else:
            assert not self.attempt(by, work, allowed=False)
            return
        self.roles = after
        self.note()

    @rule(which=st.integers(0, 3), person=person, roles=roles_drawn)
    def two_owners_at_once(self, which: int, person: int, roles: tuple[Any, ...]) -> None:
        """One makes the other a reader while the other changes the list: the chain decides who is first."""
        owners = [owner for owner, roles in self.roles.items() if roles == ("owner",)]
        if len(owners) < 2:
            return
        first, second = owners[which % len(owners)], owners[(which + 1) % len(owners)]
        if person in (first, second):
            return
        index, other = self.used(first), self.used(second)
        hooked: Any = index._log.storage

        def step(name: str) -> None:
            if name.startswith("commits/") and "." not in name:
                hooked.step = lambda name: None
                other.share(self.identities[first].public, "reader")

        hooked.step = step
        code = failure(lambda: index.share(self.identities[person].public, roles))
        if hooked.step is step:  # the list already said so
            assert code is None
        else:
            assert code == MAY_NOT
            self.roles[first] = ("reader",)
        hooked.step = lambda name: None
        self.open.pop(first, None)
        self.note()

    # Forgery and a storage that lies --------------------------------------------------------------------

    @rule(
        by=person,
        claims=person,
        kind=st.sampled_from(["append", "delete", "replace", "members", "renew keys", "junk", "unsigned", "replay"]),
        past=st.integers(0, 50),
        checkpoint=st.booleans(),
        then=person,
    )
    def forge(self, by: int, claims: int, kind: str, past: int, checkpoint: bool, then: int) -> None:
        """Somebody with credentials of the storage puts a commit at the next number, under any earlier list."""
        now, old = self.states[-1], self.states[past % len(self.states)]
        number = now.number + 1
        if (self.place / commit_name(number)).exists():
            return
        content = self.forgery(by, claims, kind, now, old, checkpoint=checkpoint)
        if content is None:
            return
        if kind in ("append", "replace"):
            claims = by
        if by == claims and by in self.roles and old.members == now.members and kind not in MADE_UP:
            return  # a member: tests/unit/index/test_members.py has what their roles allow
        (self.place / commit_name(number)).write_bytes(content)
        for person in self.roles:
            for new_machine in (False, True):
                if new_machine and person == then:
                    continue
                code = failure(lambda: self.index(person, new_machine=new_machine)._log.advance())  # noqa: B023
                assert code in REFUSED, (person, new_machine, code)
        for person in [person for person, roles in self.roles.items() if "owner" not in roles]:
            with contextlib.suppress(VecveilError):
                self.index(person).repair()
            assert (self.place / commit_name(number)).exists(), "only an owner repairs"
        owner = next(person for person, roles in self.roles.items() if "owner" in roles)
        self.open.clear()
        assert self.used(owner).repair().commits == (commit_name(number),)
        self.note()

    def forgery(self, by: int, claims: int, kind: str, now: Chain, old: Chain, *, checkpoint: bool) -> bytes | None:
        if kind == "junk":
            return b"vecveil junk"
        if kind == "replay":
            return (self.place / commit_name(1 + old.number % now.number)).read_bytes()
        keys = MemberKeys(self.identities[by], now.mark.uuid, None)
        members = None if kind == "unsigned" else old.members
        base = replace(now, members=members, complete=checkpoint, checkpoint=now.number)
        if old.members is not now.members:
            base = replace(base, key_id=old.key_id)
        options: dict[str, Any] = {"time": 1.0, "layout": (N, "float16")}
        between, chain._BETWEEN = chain._BETWEEN, 0 if checkpoint else 1000
        try:
            if kind == "unsigned":
                keys = keys.joined(old.members)
                keys._members, signer = None, keys  # type: ignore[assignment]
                keys.base = _Sealing(signer, old)  # type: ignore[assignment]
                return base.commit("append", keys, **options)
            joined = keys.joined(old.members)
            if kind == "members":
                entry = msgspec.structs.replace(old.members.listing.members[0], public=self.identities[by].public)  # type: ignore
                options["members"] = [entry]
                joined.renewed()
            if kind == "renew keys":
                options["key_id"] = joined.renewed()
            content = base.commit(kind if kind != "unsigned" else "append", joined, **options)  # type: ignore[arg-type]
        except KeyFileError:
            return None  # without the data key there is nothing to put in envelopes
        finally:
            chain._BETWEEN = between
        if claims == by:
            return content
        header, end = header_of(content, now.number + 1)
        front = msgspec.json.encode(msgspec.structs.replace(header, signer=self.identities[claims].public))
        front = chain._MAGIC + len(front).to_bytes(4, "little") + front + content[end:-64]
        return front + self.identities[by].sign(chain._signed(now.mark, now.number + 1, front))

    @precondition(lambda self: self.states[-1].number > 2)
    @rule(person=person, cut=st.integers(1, 3))
    def truncate(self, person: int, cut: int) -> None:
        """The storage withholds the last commits: whoever has seen them notices, and nobody reads other rows."""
        if person not in self.roles:
            return
        newest = self.states[-1].number
        self.used(person)._log.advance()
        aside = self.folder / "aside"
        aside.mkdir(exist_ok=True)
        for number in range(max(2, newest - cut + 1), newest + 1):
            os.rename(self.place / commit_name(number), aside / f"{number}")
        for work in (self.used(person)._log.advance, lambda: self.index(person)._log.advance()):
            assert failure(work) in ("E-INDEX-ROLLED-BACK", "E-INDEX-INCOMPLETE")
        for path in aside.iterdir():
            os.rename(path, self.place / commit_name(int(path.name)))
        self.open.clear()

    @rule(first=st.integers(0, 50), second=st.integers(0, 50), person=person)
    def exchange(self, first: int, second: int, person: int) -> None:
        """The storage exchanges two commits, of which one has a list."""
        members = self.states[-1].members
        assert members is not None
        one, other = members.place.number, 1 + second % self.states[-1].number
        if one == other or person not in self.roles:
            return
        paths = [self.place / commit_name(number) for number in (one, other)]
        contents = [path.read_bytes() for path in paths]
        for path, content in zip(paths, reversed(contents), strict=True):
            path.write_bytes(content)
        assert failure(lambda: self.index(person, new_machine=True)._log.advance()) is not None
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)

    # What must hold ----------------------------------------------------------------------------------------

    @invariant()
    def everybody_sees_what_they_may(self) -> None:
        if not hasattr(self, "rows"):
            return
        for person in PEOPLE:
            new_machine = (self.serial + person) % 3 == 0
            if person not in self.roles:
                assert failure(lambda: self.index(person, new_machine=new_machine).count()) == NOT_A_MEMBER  # noqa: B023
                assert failure(lambda: self.used(person).count()) == NOT_A_MEMBER  # noqa: B023
                self.has_no_key(person)
                self.open.pop(person, None)
                continue
            index = self.index(person, new_machine=True) if new_machine else self.used(person)
            if self.may(person, "read"):
                got = index.get()
                assert dict(zip(got.ids, got.texts, strict=True)) == self.rows
            else:
                assert failure(index.get) == CANNOT_READ
                self.has_no_key(person)
            listed = {m["public"]: m["roles"] for m in index.members().members}
            assert listed == {self.identities[person].public: roles for person, roles in self.roles.items()}

    def has_no_key(self, person: int) -> None:
        """Nobody who does not read finds the present data key in any list."""
        now = self.states[-1]
        keys = MemberKeys(self.identities[person], now.mark.uuid, None)
        for state in self.states:
            keys = keys.joined(state.members)
        assert now.key_id not in keys._opened


class _Sealing:
    """Data keys of somebody who pretends that the index was never shared."""

    def __init__(self, keys: MemberKeys, old: Chain) -> None:
        self._keys, self._old = keys, old

    def wrap(self, key: bytes, name: str, key_id: str) -> bytes:
        opened = self._keys._opened.get(key_id)
        if opened is None:
            return bytes(60)
        return bytes(12) + opened.data_key.segments.encrypt(bytes(12), key, name.encode())


def test_members_agree_with_a_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_MOST_APPENDS", 5)
    monkeypatch.setattr(chain, "_BETWEEN", 4)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    examples = int(os.environ.get("VECVEIL_FAULT_MOMENTS", "8"))
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Members, settings=settings(max_examples=examples, stateful_step_count=20, deadline=None)
    )
