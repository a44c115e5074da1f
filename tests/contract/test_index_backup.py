"""`vecveil index verify` and `copy`: what the chain says of a storage, backups and restoring."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from vecveil.index import SealedIndex, chain
from vecveil.index.backup import copy, verify
from vecveil.keys import KeyFile


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    KeyFile.create(tmp_path / "search.keys", "first")
    return tmp_path / "search.keys"


@pytest.fixture
def index(tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> SealedIndex:
    monkeypatch.setattr(chain, "_BETWEEN", 4)
    index = SealedIndex(tmp_path / "notes", keys, max_staleness=0)
    for name in "abcdefgh":
        add(index, name)
    return index


def add(index: SealedIndex, name: str) -> None:
    index.add([f"text {name}"], ids=[name], vectors=np.full((1, 4), float(ord(name))))


def rows(index: SealedIndex) -> dict[Any, Any]:
    return dict(zip((got := index.get()).ids, got.texts, strict=True))


def test_verify_says_what_the_chain_says(index: SealedIndex, tmp_path: Path) -> None:
    index.compact()
    index.delete(["a"])
    (tmp_path / "notes/segments/junk").write_bytes(b"x")
    found = verify(index, show_progress=False)
    head = index._log.chain
    assert head is not None
    assert (found.commits, found.head, found.segments) == (10, head.digest, 2)
    assert (found.rows, found.replaced, found.unread, found.remembered) == (9, 8, 0, 10)
    assert found.others == ("segments/junk",)
    index.reseal()
    assert verify(index, show_progress=False).unread == 10


@pytest.mark.parametrize("where", ["commit", "segment"])
@pytest.mark.parametrize("damage", ["missing", "cut", "flipped"])
def test_verify_names_what_is_damaged(index: SealedIndex, tmp_path: Path, where: str, damage: str) -> None:
    """Also a commit before the last checkpoint, which no other operation reads."""
    folder = tmp_path / "notes" / ("commits" if where == "commit" else "segments")
    path = sorted(folder.iterdir())[1]
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(
            content[:-40] if damage == "cut" else content[:-40] + bytes([content[-40] ^ 1]) + content[-39:]
        )
    codes = {"E-INDEX-INCOMPLETE", "E-INDEX-CHAIN", "E-SEAL-OPEN"}
    with pytest.raises(Exception, match=path.name) as caught:
        verify(SealedIndex(tmp_path / "notes", tmp_path / "search.keys"), show_progress=False)
    assert getattr(caught.value, "code", "") in codes


def test_a_backup_is_brought_up_to_date_and_restored(index: SealedIndex, tmp_path: Path, keys: Path) -> None:
    backup = str(tmp_path / "backup")
    copy(index, backup, show_progress=False)
    assert rows(SealedIndex(backup, keys)) == rows(index)
    index.delete(["a"])
    index.compact(retain=0)
    state, lost = copy(index, backup, show_progress=False)
    segments = {path.name for path in (tmp_path / "backup/segments").iterdir()}
    assert {f"segments/{name}" for name in segments} == set(state.objects)
    assert lost == 0
    add(index, "z")
    before = rows(SealedIndex(backup, keys))
    shutil.rmtree(tmp_path / "notes")
    with raises("E-INDEX-ROLLED-BACK"):  # nothing founds a second index in its place
        add(SealedIndex(tmp_path / "notes", keys), "y")
    _, lost = copy(SealedIndex(backup, keys), str(tmp_path / "notes"), show_progress=False)
    assert lost == 1
    restored = SealedIndex(tmp_path / "notes", keys, max_staleness=0)
    assert rows(restored) == before
    add(restored, "y")
    assert rows(restored) == {**before, "y": "text y"}


def test_a_copy_deletes_what_was_forgotten_before_a_renewal(index: SealedIndex, tmp_path: Path, keys: Path) -> None:
    """The commits that removed the segments no longer open."""
    backup = str(tmp_path / "backup")
    copy(index, backup, show_progress=False)
    index.forget(["a"])
    index.reseal()
    add(index, "i")
    state, _ = copy(index, backup, show_progress=False)
    segments = {f"segments/{path.name}" for path in (tmp_path / "backup/segments").iterdir()}
    assert segments == set(state.objects)
    assert rows(SealedIndex(backup, keys)) == rows(index)


def test_a_copy_goes_on_after_an_interruption(index: SealedIndex, tmp_path: Path, keys: Path) -> None:
    backup = str(tmp_path / "backup")
    real, calls = index._log.storage.open, iter([True] * 3)

    def interrupted(*arguments: Any, **options: Any) -> Any:
        if not next(calls, False):
            raise KeyboardInterrupt
        return real(*arguments, **options)

    index._log.storage.open = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        copy(index, backup, show_progress=False)
    index._log.storage.open = real  # type: ignore[method-assign]
    with raises("E-INDEX-MISSING"):  # the commits come last
        SealedIndex(backup, keys, create=False).count()
    add(index, "i")
    copy(index, backup, show_progress=False)
    assert rows(SealedIndex(backup, keys)) == rows(index)


def test_a_copy_is_of_one_commit_while_others_write(index: SealedIndex, tmp_path: Path, keys: Path) -> None:
    other, real, done = SealedIndex(index.location, keys), index._log.storage.open, []

    def meanwhile(*arguments: Any, **options: Any) -> Any:
        if len(done) < 2:
            done.append(1)
            other.forget(["b"] if len(done) == 1 else ["c"])
            add(other, "n")
        return real(*arguments, **options)

    index._log.storage.open = meanwhile  # type: ignore[method-assign]
    copy(index, str(tmp_path / "backup"), show_progress=False)
    got = rows(SealedIndex(tmp_path / "backup", keys))
    assert got.keys() == set("adefghn")


def test_a_copy_opens_although_the_keys_are_renewed_meanwhile(index: SealedIndex, tmp_path: Path, keys: Path) -> None:
    """After all that is copied has been read."""
    other, real, done = SealedIndex(index.location, keys), index._log.needed, []
    last = index._log.advance().number

    def meanwhile(number: int) -> bytes:
        content = real(number)
        if number == last and not done:
            done.append(other.reseal())
        return content

    index._log.needed = meanwhile  # type: ignore[method-assign]
    copy(index, str(tmp_path / "backup"), show_progress=False)
    assert rows(SealedIndex(tmp_path / "backup", keys)) == rows(other)


def test_a_copy_undoes_no_commit(index: SealedIndex, tmp_path: Path, keys: Path) -> None:
    backup = str(tmp_path / "backup")
    copy(index, backup, show_progress=False)
    add(SealedIndex(backup, keys), "x")
    with raises("E-INDEX-CHAIN", "dest"):
        copy(index, backup, show_progress=False)
    add(index, "y")
    with raises("E-INDEX-CHAIN", "dest"):
        copy(index, backup, show_progress=False)
    other = SealedIndex(tmp_path / "other", keys)
    add(other, "o")
    with raises("E-INDEX-CHAIN", "dest"):
        copy(index, str(tmp_path / "other"), show_progress=False)
    assert rows(SealedIndex(tmp_path / "other", keys)) == {"o": "text o"}


def test_a_copy_in_the_order_commits_then_segments_is_complete(index: SealedIndex, tmp_path: Path, keys: Path) -> None:
    """Other tools may copy too: replaced objects stay for a day."""
    target = tmp_path / "backup"
    target.mkdir()
    shutil.copy(tmp_path / "notes/index.json", target)
    shutil.copytree(tmp_path / "notes/commits", target / "commits")
    before = rows(index)
    add(index, "z")
    index.compact()
    shutil.copytree(tmp_path / "notes/segments", target / "segments")
    assert rows(SealedIndex(target, keys)) == before


def test_a_copy_deletes_nothing_that_the_place_may_need(index: SealedIndex, tmp_path: Path, keys: Path) -> None:
    """A copy in use, whose writer has written an object that no commit names yet; and the index itself."""
    backup = str(tmp_path / "backup")
    copy(index, backup, show_progress=False)
    writer = SealedIndex(backup, keys)
    published = writer._log._published

    def copied_meanwhile(*arguments: Any) -> Any:
        copy(index, backup, show_progress=False)
        return published(*arguments)

    writer._log._published = copied_meanwhile  # type: ignore[method-assign]
    add(writer, "x")
    assert "x" in rows(SealedIndex(backup, keys))
    (tmp_path / "link").symlink_to(tmp_path / "notes")
    for place in (index.location, str(tmp_path / "link"), f"file://{tmp_path}/notes/"):
        with raises("E-INDEX-CHAIN", "dest"):
            copy(index, place, show_progress=False)


def test_a_copy_drops_what_the_index_has_replaced(index: SealedIndex, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    copy(index, str(backup), show_progress=False)
    index.forget(["a"])
    add(index, "y")
    index.compact()  # which notes what is deleted at the source
    state, _ = copy(index, str(backup), show_progress=False)
    assert {f"segments/{path.name}" for path in (backup / "segments").iterdir()} == set(state.objects)


def test_a_verification_while_others_rewrite_accuses_nobody(index: SealedIndex, tmp_path: Path, keys: Path) -> None:
    other, real, done = SealedIndex(index.location, keys), index._log.storage.open, []

    def meanwhile(*arguments: Any, **options: Any) -> Any:
        if len(done) < 2:
            done.append(1)
            other.forget(["b"]) if len(done) == 1 else other.reseal()
        return real(*arguments, **options)

    index._log.storage.open = meanwhile  # type: ignore[method-assign]
    assert verify(index, show_progress=False).commits == 10


@pytest.mark.parametrize("damage", ["segment", "index.json", "junk"])
def test_a_copy_mends_a_damaged_place(index: SealedIndex, tmp_path: Path, keys: Path, damage: str) -> None:
    backup = tmp_path / "backup"
    copy(index, str(backup), show_progress=False)
    (place := tmp_path / "notes").joinpath("commits", "9999999999").write_bytes(b"junk")
    (segment, *_) = (place / "segments").iterdir()
    if damage == "segment":
        segment.write_bytes(b"altered")
    elif damage == "index.json":
        (place / "index.json").unlink()
    copy(SealedIndex(backup, keys), str(place), show_progress=False)
    assert rows(SealedIndex(place, keys)).keys() == set("abcdefgh")
    verify(SealedIndex(place, keys), show_progress=False)
