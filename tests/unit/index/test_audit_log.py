"""The audit log of an index: what a line says, how a cut is noticed, and what happens when it cannot be written."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from logging.handlers import SysLogHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.command_line import run
from harness.errors import raises
from vecveil.errors import StoreError
from vecveil.index import SealedIndex
from vecveil.index.audit_log import AuditLog, digest_of, verify

KEY = bytes(range(32))
CANARY = "zyxcanary"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def filled(path: Path, count: int = 9, **given: Any) -> AuditLog:
    log = AuditLog(path, principal="anna", **given)
    for i in range(count):
        log.write("search", index="notes", rows=i)
    return log


def test_an_index_logs_each_operation_and_no_content(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, principal="anna")
    with SealedIndex(tmp_path / "notes", KEY, audit_log=log) as index:
        index.add(
            [CANARY, "b"], ids=[f"{CANARY}1", "b"], metadata=[{"year": CANARY}, {"year": "x"}], vectors=np.eye(2, 8)
        )
        index.search(np.ones(8), where={"year": CANARY}, mode="hybrid", words=CANARY)
        index.get([f"{CANARY}1"])
        index.count()
        list(index.iter({"$or": [{"year": {"exists": True}}, {CANARY: CANARY}]}))
        with raises("E-STORE-IDS"):
            index.get([f"{CANARY}2"])
        with raises("E-INPUT-NAME"):
            index.ids({CANARY: CANARY})
        index.delete(where={"year": CANARY})
    written = lines(path)
    assert CANARY not in path.read_text()
    assert {record["principal"] for record in written} == {"anna"}
    assert {record["index"] for record in written} == {"notes"}
    named = ("operation", "rows", "fields", "result")
    assert [tuple(record[name] for name in named) for record in written] == [
        ("add", None, [], "begun"),
        ("add", 2, [], "ok"),
        ("search", 1, ["year"], "ok"),
        ("get", 1, [], "ok"),
        ("count", 2, [], "ok"),
        ("iter", 2, ["?", "year"], "ok"),  # a name that no row has may be a text
        ("get", None, [], "E-STORE-IDS"),
        ("ids", None, ["?"], "E-INPUT-NAME"),
        ("delete", None, [], "begun"),
        ("delete", 1, ["year"], "ok"),
    ]
    assert path.stat().st_mode & 0o777 == 0o600 or os.name != "posix"


def test_a_file_has_one_chain_over_rotations_and_restarts(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for _ in range(4):  # restarts
        filled(path, rotate_bytes=1500)
    files = [*sorted(tmp_path.iterdir(), key=lambda file: file.suffix, reverse=True)]
    files = [*(file for file in files if file != path), path]
    assert len(files) > 3
    check = verify(files)
    [chain] = check.chains.values()
    assert (chain.records, chain.begins, check.broken, check.unfinished) == (36, "", [], 0)
    # A rotated file is missing: in the middle, at the beginning.
    assert verify(files[:1] + files[2:]).broken == [(files[2].name, 1)]
    [later] = verify(files[1:]).chains.values()
    assert later.begins == digest_of(files[0].read_bytes().splitlines()[-1])
    assert verify([files[1], files[0], *files[2:]]).broken
    if os.name == "posix":
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_old_files_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    idle = filled(path, 1)
    for _ in range(5):
        filled(path, 20, rotate_bytes=1000, keep=2)
        idle.write("count", index="notes")  # the file of its last line is gone, and its inode may be another's
    files = [tmp_path / "audit.jsonl.2", tmp_path / "audit.jsonl.1", path]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert not verify(files).broken


Change = Callable[[list[str]], list[str]]
CHANGES: dict[str, Change] = {
    "an edit": lambda all: [*all[:4], all[4].replace('"rows": 4', '"rows": 0'), *all[5:]],
    "a removal": lambda all: all[:4] + all[5:],
    "a reordering": lambda all: [*all[:4], all[5], all[4], *all[6:]],
    "a line twice": lambda all: [*all[:5], *all[4:]],
    "a line made empty": lambda all: [*all[:4], "", *all[5:]],
    "a line made no record": lambda all: [*all[:4], "{}", *all[5:]],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_in_the_middle_is_noticed(tmp_path: Path, change: str) -> None:
    path = tmp_path / "audit.jsonl"
    filled(path)
    path.write_text("\n".join(CHANGES[change](path.read_text().splitlines())) + "\n")
    assert verify([path]).broken


def test_a_cut_at_the_end_is_noticed_by_a_noted_digest(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    filled(path)
    noted = next(iter(verify([path]).chains.values())).last
    filled(path, 3)
    assert verify([path], noted=[noted]).missing == []
    path.write_text("\n".join(path.read_text().splitlines()[:8]) + "\n")
    assert not verify([path]).broken
    assert verify([path], noted=[noted]).missing == [noted]


@pytest.mark.parametrize("copied", [False, True])
def test_a_cut_under_a_running_process_is_noticed(tmp_path: Path, copied: bool) -> None:
    path = tmp_path / "audit.jsonl"
    log = filled(path)
    kept = path.read_text().splitlines()[:6]
    if copied:
        path.unlink()
    with open(path, "w" if copied else "r+") as file:
        file.write("\n".join(kept) + "\n")
        file.truncate()
    log.write("search", index="notes")
    assert verify([path]).broken == [("audit.jsonl", 7)]


def test_a_line_cut_short_by_a_crash_is_none(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    filled(path)
    with open(path, "ab") as file:
        file.write(b'{"time": "2026')
    filled(path)
    check = verify([path])
    [chain] = check.chains.values()
    assert (chain.records, check.broken, check.unfinished) == (18, [], 1)


@pytest.mark.parametrize("others", [b"x" * 2**19, b"[" * 100_000, b"x\n" * 2**18])
@pytest.mark.parametrize("restarted", [False, True])
def test_what_others_append_neither_stops_the_log_nor_begins_a_chain(
    tmp_path: Path, others: bytes, restarted: bool
) -> None:
    path = tmp_path / "audit.jsonl"
    log = filled(path, 3)
    with open(path, "ab") as file:
        file.write(others + b"\n")
    filled(path, 1) if restarted else log.write("search", index="notes")
    check = verify([path])
    assert [chain.records for chain in check.chains.values()] == [4]
    assert not check.broken
    assert check.unfinished


def test_several_processes_write_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    work = (
        "import sys; from vecveil.index.audit_log import AuditLog; log = AuditLog(sys.argv[1], rotate_bytes=20000)\n"
        "for i in range(60): log.write('search', index='notes')"
    )
    processes = [subprocess.Popen([sys.executable, "-c", work, str(path)]) for _ in range(3)]
    assert [process.wait(120) for process in processes] == [0] * 3
    rotated = sorted((f for f in tmp_path.iterdir() if f != path), key=lambda f: int(f.suffix[1:]), reverse=True)
    check = verify([*rotated, path])
    [chain] = check.chains.values()
    assert (chain.records, chain.begins, check.broken) == (180, "", [])
    assert rotated


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("kind", ["file", "stream"])
def test_forks_while_threads_write(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "audit.jsonl"
    stream = open(path, "a")  # noqa: SIM115
    log = AuditLog(path if kind == "file" else logging.StreamHandler(stream))
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            log.write("search", index="notes")

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    children = []
    for _ in range(5):
        child = os.fork()
        if not child:
            signal.alarm(60)
            for _ in range(5):
                log.write("count", index="notes")
            os._exit(0)
        children.append(child)
    ends = [os.waitpid(child, 0)[1] for child in children]
    done.set()
    for thread in threads:
        thread.join()
    stream.close()
    assert ends == [0] * 5
    check = verify([path])
    assert not check.broken
    assert not check.unfinished
    assert len(check.chains) == (1 if kind == "file" else 6)
    assert sum(record["operation"] == "count" for record in lines(path)) == 25


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_refuses(tmp_path: Path) -> None:
    """A read is not answered, and a change is not begun."""
    with SealedIndex(tmp_path / "notes", KEY) as index:
        index.add(ids=["a"], vectors=np.ones((1, 8)))
    stream = open("/dev/full", "w", buffering=1)  # noqa: SIM115
    for destination in ("/dev/full", logging.StreamHandler(stream)):
        with SealedIndex(tmp_path / "notes", KEY, audit_log=destination) as index:
            for work in (
                lambda index=index: index.search(np.ones(8)),
                lambda index=index: index.get(["a"]),
                lambda index=index: index.get(["absent"]),
                lambda index=index: index.add(ids=["b"], vectors=np.ones((1, 8))),
                lambda index=index: index.delete(["a"]),
            ):
                with raises("E-AUDIT-LOG", "audit_log") as caught:
                    work()
                assert "No space left" in str(caught.value)
    with suppress(OSError):
        stream.close()
    with SealedIndex(tmp_path / "notes", KEY) as index:
        assert index.ids() == ["a"]


def test_a_change_whose_end_is_not_logged_says_so(tmp_path: Path) -> None:
    class Failing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if '"ok"' in record.getMessage():
                raise OSError(28, "full")

    with SealedIndex(tmp_path / "notes", KEY, audit_log=Failing()) as index:
        with pytest.raises(StoreError, match="The change was made"):
            index.add(ids=["b"], vectors=np.ones((1, 8)))
        with pytest.raises(StoreError, match="refused"):
            index.count()


def test_a_place_that_cannot_be_written_refuses(tmp_path: Path) -> None:
    with raises("E-AUDIT-LOG", "audit_log"):
        AuditLog(tmp_path / "absent" / "audit.jsonl").write("search", index="notes")
    with raises("E-INPUT-TYPE", "destination"):
        AuditLog(3)  # type: ignore[arg-type]
    handler = logging.StreamHandler()
    handler.addFilter(lambda record: False)
    with raises("E-AUDIT-LOG", "audit_log"):
        AuditLog(handler).write("search", index="notes")


def test_syslog_gets_lines_that_verify(tmp_path: Path) -> None:
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        handler = SysLogHandler(server.getsockname())
        log = AuditLog(handler)
        for _ in range(3):
            log.write("search", index="notes")
        handler.close()
        got = [server.recv(4096) for _ in range(3)]
    path = tmp_path / "syslog"
    path.write_bytes(b"".join(b"Nov 29 12:00:00 host vecveil: " + line + b"\n" for line in got))
    check = verify([path])
    assert [chain.records for chain in check.chains.values()] == [3]
    assert not check.broken
    assert not check.unfinished


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    filled(path)
    done = run("audit-log", "verify", path, "--json")
    [chain] = done.json["chains"].values()
    assert done.code == 0
    assert chain["records"] == 9
    done = run("audit-log", "verify", path, "--noted", chain["last"])
    assert done.code == 0
    assert f"Last digest: {chain['last']}" in done.out
    assert run("audit-log", "verify", path, "--noted", "0" * 64).code == 1
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1::2]))
    done = run("audit-log", "verify", path)
    assert done.code == 1
    assert "audit.jsonl, line 2" in done.err
    assert "continues" in done.out
