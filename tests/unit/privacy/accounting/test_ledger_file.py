"""What is no ledger, or no longer the one it was, is refused with a clear error."""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import raises
from vecveil.errors import LedgerError
from vecveil.privacy.accounting.ledger import Ledger

P = "a1b2c3"
GOLDEN = Path(__file__).parents[3] / "golden"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with six releases."""
    path = tmp_path / "releases.ledger"
    with Ledger(path, cap=5) as ledger:
        for _ in range(3):
            ledger.record(["a", "b"], protector=P, epsilon=1.0)
    return path


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection as somebody without vecveil has it."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


@contextlib.contextmanager
def without_triggers(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection of somebody who removes the triggers and puts them back."""
    with opened(path) as connection:
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        triggers = connection.execute(query).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        yield connection
        for _, sql in triggers:
            connection.execute(sql)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET epsilon = 0 WHERE row = 2",
        "DELETE FROM events WHERE row = 6",
        "DELETE FROM events",
        "INSERT OR REPLACE INTO events SELECT 2, item, protector, 0, release, checksum FROM events WHERE row = 2",
        "INSERT INTO events SELECT 9, item, protector, 0, release, checksum FROM events WHERE row = 2",
        "UPDATE ledger SET salt = randomblob(32)",
        "DELETE FROM ledger",
        "UPDATE caps SET cap = 99",
        "DELETE FROM caps",
    ],
)
def test_the_file_itself_refuses_changes(path: Path, statement: str) -> None:
    with opened(path) as connection, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(statement)
    Ledger(path).verify()


@pytest.mark.parametrize(
    ("statement", "where"),
    [
        ("UPDATE events SET epsilon = 0.5 WHERE row = 2", "row 2"),
        ("UPDATE events SET epsilon = NULL WHERE row = 3", "row 3"),
        ("UPDATE events SET epsilon = 'x' WHERE row = 3", "row 3"),
        ("UPDATE events SET protector = 'z' WHERE row = 4", "row 4"),
        ("UPDATE events SET protector = x'00' WHERE row = 4", "row 4"),
        ("UPDATE events SET item = randomblob(32) WHERE row = 5", "row 5"),
        ("UPDATE events SET release = randomblob(32) WHERE row = 1", "row 1"),
        ("UPDATE events SET checksum = randomblob(32) WHERE row = 6", "row 6"),
        ("DELETE FROM events WHERE row = 1", "row 1"),
        ("DELETE FROM events WHERE row = 3", "row 3"),
        ("UPDATE events SET row = row - 1 WHERE row > 3 AND (SELECT 1)", "row 3"),
        ("UPDATE ledger SET salt = randomblob(32)", "cap 1"),
        ("UPDATE caps SET cap = 99", "cap 1"),
    ],
)
def test_a_forced_change_is_found_at_its_row(path: Path, statement: str, where: str) -> None:
    with without_triggers(path) as connection:
        if "row - 1" in statement:
            connection.execute("DELETE FROM events WHERE row = 3")
        connection.execute(statement)
    with pytest.raises(LedgerError, match=rf"'releases.ledger' breaks at {where}:"):
        Ledger(path).verify()


def test_a_damaged_ledger_is_not_written_through_and_is_repaired(path: Path) -> None:
    """An item of a flipped bit is another item: its releases would no longer count against the cap."""
    ledger = Ledger(path)
    ledger.record(["x", "x", "y"], protector=P, epsilon=1.0)
    total, cap, salt = ledger.total, ledger.cap, ledger._salt
    stored = hmac.digest(salt, b"sx", "sha256")
    content = path.read_bytes()
    at = content.rindex(stored)  # the index has the item too
    while at >= 0:
        flipped = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        path.write_bytes(flipped)
        with raises("E-LEDGER", "path") as caught:
            Ledger(path).record(["x"], protector=P, epsilon=1.0)
        assert "ledger repair" in str(caught.value)
        at = content.rfind(stored, 0, at)
    repaired = path.with_name("repaired.ledger")
    result = Ledger.repair(path, repaired)
    assert (result.cap, result.cap_lost) == (cap, False)
    assert result.releases + result.lost == total
    assert path.read_bytes() == flipped
    with Ledger(repaired) as again:
        assert again.total == result.releases
        assert again.count("y") == 1
        assert again.count("x") == 2 - result.lost
    with raises("E-INPUT", "target"):
        Ledger.repair(path, repaired)


def test_a_repair_keeps_what_can_be_read_around_a_damaged_page(path: Path) -> None:
    Ledger(path).record([f"more {i}" for i in range(400)], protector=P, epsilon=1.0)
    total = Ledger(path).total
    with opened(path) as connection:
        (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    content, stored = path.read_bytes(), hmac.digest(Ledger(path)._salt, b"smore 200", "sha256")
    pages = [at for at in range(0, len(content), page_size) if content[at] == 13]  # leaves of tables
    (page,) = [at for at in pages if stored in content[at : at + page_size]]
    path.write_bytes(content[:page] + b"\xff" * page_size + content[page + page_size :])
    with pytest.raises(LedgerError):
        Ledger(path)
    repaired = path.with_name("repaired.ledger")
    result = Ledger.repair(path, repaired)
    assert result.releases + result.lost == total
    assert 0 < result.lost < 100
    with Ledger(repaired) as again:
        assert (again.count("more 0"), again.count("more 200"), again.count("more 399")) == (1, 0, 1)


@pytest.mark.parametrize("statement", ["UPDATE ledger SET salt = randomblob(32)", "UPDATE caps SET cap = 99"])
def test_a_repair_without_the_salt_is_refused_and_a_lost_cap_is_told(path: Path, statement: str) -> None:
    with without_triggers(path) as connection:
        connection.execute(statement)
    repaired = path.with_name("repaired.ledger")
    if "salt" in statement:
        with raises("E-LEDGER", "path"):
            Ledger.repair(path, repaired)
        assert not repaired.exists()
    else:
        result = Ledger.repair(path, repaired)
        assert (result.cap, result.cap_lost, result.lost) == (None, True, 0)


def test_a_ledger_without_its_triggers_is_refused(path: Path) -> None:
    with opened(path) as connection:
        connection.execute("DROP TRIGGER events_no_delete")
    with raises("E-LEDGER", "path"):
        Ledger(path)


def test_an_older_copy_or_another_ledger_put_in_place_is_refused(path: Path) -> None:
    copy, other = path.with_name("copy"), path.with_name("other")
    ledger = Ledger(path)
    shutil.copy(path, copy)
    Ledger(other).record(["a"] * 9, protector=P, epsilon=1.0)
    ledger.record(["a"], protector=P, epsilon=1.0)
    assert ledger.count("a") == 4
    for replacement in (copy, other):
        os.replace(replacement, path)
        with raises("E-LEDGER", "path"):
            ledger.record(["a"], protector=P, epsilon=1.0)


def test_a_deleted_ledger_is_not_made_anew_by_an_open_one(path: Path) -> None:
    ledger = Ledger(path)
    path.unlink()
    with raises("E-LEDGER", "path"):
        ledger.record(["a"], protector=P, epsilon=1.0)
    assert not path.exists()
    with raises("E-LEDGER", "path"):
        Ledger(path, create=False)


def test_other_files_are_refused_and_left_as_they_are(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "database")) as database:
        database.execute("CREATE TABLE t (x)")
    contents = {
        "empty": b"",
        "text": b"id,count\na,1\n",
        "binary": bytes(range(256)) * 64,
        "header": b"SQLite format 3\0" + bytes(4000),
        "database": (tmp_path / "database").read_bytes(),
    }
    for name, content in contents.items():
        file = tmp_path / name
        file.write_bytes(content)
        with raises("E-LEDGER", "path"):
            Ledger(file, cap=3)
        assert file.read_bytes() == content, name
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(contents)


def test_folders_and_pipes_are_refused(tmp_path: Path) -> None:
    with raises("E-LEDGER", "path"):
        Ledger(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with raises("E-LEDGER", "path"):
        Ledger(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")
    with pytest.raises(LedgerError):
        Ledger(tmp_path / "file" / "below")
    with pytest.raises(LedgerError):
        Ledger(tmp_path / ("x" * 300))


def test_links(path: Path) -> None:
    link, loop = path.with_name("link"), path.with_name("loop")
    link.symlink_to(path)
    Ledger(link).record(["a"], protector=P, epsilon=1.0)
    assert Ledger(path).count("a") == 4
    loop.symlink_to(loop)
    with pytest.raises(LedgerError):
        Ledger(loop)


def test_a_newer_version_is_refused(path: Path) -> None:
    with opened(path) as connection:
        connection.execute("PRAGMA user_version = 2")
    with raises("E-LEDGER", "path"):
        Ledger(path)


def test_damage_at_any_place_is_refused_or_harmless(path: Path) -> None:
    """Flipped bytes and truncations: no other exception, and no other counts after verify()."""
    Ledger(path).record([f"more {i}" for i in range(40)], protector=P, epsilon=1.0)
    whole = path.read_bytes()
    expected = Ledger(path).summary()
    flips = [*range(0, len(whole), 97), *range(0, 100, 3)]
    damaged = [whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :] for at in flips]
    damaged += [whole[:length] for length in range(0, len(whole), 1024)]
    refused = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            ledger = Ledger(path, create=False)
            ledger.verify()
            assert (ledger.summary(), ledger.spent("a")) == (expected, 3.0)
        except LedgerError:
            refused += 1
    assert refused > 40  # control: the rest lies in unused parts of pages
    path.write_bytes(whole)
    Ledger(path).verify()


@pytest.mark.parametrize("value", ["NULL", "'x'", "-1", "randomblob(32)", "1.5"])
def test_a_cap_that_is_no_number_is_damage(path: Path, value: str) -> None:
    """Such a value is what a flipped bit in a row's header makes; it must not remove the cap."""
    with without_triggers(path) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        query = "SELECT sql FROM sqlite_master WHERE name = 'caps'"
        (sql,) = connection.execute(query).fetchone()
        put = "UPDATE sqlite_master SET sql = ? WHERE name = 'caps'"
        connection.execute(put, ("CREATE TABLE caps (row INTEGER PRIMARY KEY, cap, checksum BLOB)",))
        connection.execute("PRAGMA writable_schema = RESET")
        connection.execute(f"UPDATE caps SET cap = {value}")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(put, (sql,))
        connection.execute("PRAGMA writable_schema = RESET")
    with raises("E-LEDGER", "path"):
        Ledger(path)


def test_a_locked_ledger_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vecveil.privacy.accounting.ledger.BUSY_SECONDS", 0.05)
    with opened(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with raises("E-LEDGER", "path"):
            Ledger(path).record(["a"], protector=P, epsilon=1.0)
        assert Ledger(path).count("a") == 3  # reading goes on
        connection.execute("ROLLBACK")
    Ledger(path).record(["a"], protector=P, epsilon=1.0)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(LedgerError, match="full disk"):
        Ledger(tmp_path / "new.ledger").record(["a"], protector=P, epsilon=1.0)


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """Be nobody for a while: to root nothing is read-only."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_read_only_ledger_is_read_and_not_written() -> None:
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are closed to others
    try:
        Ledger(folder / "one").record(["a"], protector=P, epsilon=1.0)
        (folder / "one").chmod(0o444)
        folder.chmod(0o555)
        with unprivileged():
            ledger = Ledger(folder / "one")
            ledger.verify()
            with raises("E-LEDGER", "path"):
                ledger.record(["a"], protector=P, epsilon=1.0)
            with raises("E-LEDGER", "path"):
                Ledger(folder / "new")
            assert ledger.count("a") == 1
        assert [p.name for p in folder.iterdir()] == ["one"]
        folder.chmod(0o000)
        with unprivileged(), pytest.raises(LedgerError):
            Ledger(folder / "one")
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)
