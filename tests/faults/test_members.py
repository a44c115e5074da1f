"""Members of a sealed index whose machine is stolen, who are killed while they change the list, and who fork."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import random
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from harness.errors import raises
from harness.faults import MOMENTS, seed
from vecveil.index import SealedIndex
from vecveil.index.blocks import MAGIC
from vecveil.index.chain import _signed, commit_name, header_of
from vecveil.index.index_keys import MemberKeys
from vecveil.index.keystore import DataKey
from vecveil.index.members import Identity, envelope_context, exchange_key, unsealed
from vecveil.keys import KeyFile

N = 8
pytestmark = pytest.mark.filterwarnings("ignore::vecveil.index.log.FirstOwnerWarning")
# The process prints a line once it has worked, and waits.
WORK = """
import sys, numpy as np
from vecveil.index import SealedIndex
index = SealedIndex(sys.argv[1], sys.argv[2], max_staleness=0)
if sys.argv[3] == "write":
    index.add(["a row of the machine"], ids=["machine"], vectors=np.ones((1, 8)))
    index.delete(["machine-2"])
else:
    rows = index.get()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def people(tmp_path: Path) -> dict[str, str]:
    """Key files of an owner and others, each in a folder, as on machines of their own; the index is shared."""
    public = {}
    for name in ("owner", "second", "reader", "writer"):
        (tmp_path / name).mkdir()
        identity = KeyFile.create(tmp_path / name / "search.keys", "1").identity
        assert identity is not None
        public[name] = Identity(identity).public
    with opened(tmp_path, "owner") as index:
        index.add(["first"], ids=["first"], vectors=np.ones((1, N)))
        index.share(public["reader"], "reader")
        index.share(public["writer"], "writer")
    return public


def opened(folder: Path, name: str) -> SealedIndex:
    return SealedIndex(folder / "notes", folder / name / "search.keys", max_staleness=0)


@contextlib.contextmanager
def machine(folder: Path, name: str, work: str) -> Iterator[int]:
    """Yield the id of a process that has opened the index with this key file, and worked."""
    command = [sys.executable, "-c", WORK, str(folder / "notes"), str(folder / name / "search.keys"), work]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid
        process.kill()


def memory(process: int) -> bytes:
    """Return what the process has in memory that it may write to."""
    parts = []
    with open(f"/proc/{process}/maps") as maps, open(f"/proc/{process}/mem", "rb", 0) as content:
        for line in maps:
            span = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if span is not None:
                content.seek(int(span[1], 16))
                with contextlib.suppress(OSError, ValueError):
                    parts.append(content.read(int(span[2], 16) - int(span[1], 16)))
    return b"".join(parts)


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="needs /proc/PID/mem")
def test_a_stolen_ingest_machine_opens_nothing(tmp_path: Path, people: dict[str, str]) -> None:
    canary = secrets.token_hex(16)
    with opened(tmp_path, "owner") as index:
        index.add(
            [f"patient {canary}"], ids=[f"id {canary[::-1]}"], vectors=np.full((1, N), 2.0), metadata=[{"x": canary}]
        )
        keys = index._log.existing()
        assert isinstance(keys, MemberKeys)
        [data_key] = keys._opened.values()
        exchange = data_key.exchange.private_bytes_raw()
    sought = [canary.encode(), canary[::-1].encode(), data_key.secret, exchange]
    with machine(tmp_path, "reader", "read") as process:
        image = memory(process)
    assert all(value in image for value in (canary.encode(), data_key.secret)), "the control finds them"
    with machine(tmp_path, "writer", "write") as process:
        image = memory(process)
    files = [path for path in (tmp_path / "writer").rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} == {"writer", "search.keys.heads"}
    for value in sought:
        assert value not in image
        for path in files:
            assert value not in path.read_bytes()
            assert base64.b64encode(value) not in path.read_bytes()
    found = [
        base64.b64decode(value) for path in files for value in re.findall(rb'"([A-Za-z0-9+/]{43}=)"', path.read_bytes())
    ]
    assert len(found) == 2, "the key and the identity"
    assert opens(tmp_path, [KeyFile.from_file(tmp_path / "reader" / "search.keys").identity or b""]), (
        "the control opens"
    )
    assert not opens(tmp_path, found)
    with opened(tmp_path, "owner") as index:
        assert "machine" in index.ids()


def opens(folder: Path, found: list[bytes]) -> int:
    """Return how many wrapped keys open with any of these secrets, used as whatever a secret of the index can be."""
    with opened(folder, "owner") as index:
        mark, number = index._log.advance().mark, index._log.advance().number
    count = 0
    wrapped: list[tuple[str, str, bytes]] = []
    lists = []
    for k in range(1, number + 1):
        header, _ = header_of((folder / "notes" / commit_name(k)).read_bytes(), k)
        wrapped.append((commit_name(k), header.key_id, header.wrapped))
        lists += [(header.key_id, member.envelope) for member in (header.members.members if header.members else ())]
    for path in (folder / "notes" / "segments").iterdir():
        content = path.read_bytes()
        size = int.from_bytes(content[len(MAGIC) : len(MAGIC) + 4], "little")
        record = json.loads(content[len(MAGIC) + 4 : len(MAGIC) + 4 + size])
        wrapped.append((f"segments/{path.name}", record["key_id"], base64.b64decode(record["wrapped"])))
    for secret in found:
        keys = [
            X25519PrivateKey.from_private_bytes(secret),
            exchange_key(secret, mark.uuid),
            Identity(secret)._exchange,
        ]
        for key in keys:
            for key_id, envelope in lists:
                with contextlib.suppress(InvalidTag, ValueError):
                    count += bool(envelope) and bool(
                        unsealed(envelope or b"", key, envelope_context(mark.uuid, key_id))
                    )
            for name, _, value in wrapped:
                member = MemberKeys(Identity(secret), mark.uuid, None)
                with contextlib.suppress(InvalidTag, ValueError):
                    count += bool(unsealed(value, key, member._context(name)))
        for name, key_id, value in wrapped:
            with contextlib.suppress(InvalidTag, ValueError):
                data_key = DataKey(bytes.fromhex(key_id), secret, mark.uuid)
                count += bool(data_key.segments.decrypt(value[:12], value[12:], name.encode()))
    return count


def forked(work: Callable[[], Any]) -> int:
    """Run ``work`` in a fork; return its process id."""
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.alarm(60)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def test_an_owner_killed_while_it_changes_the_list_leaves_an_index(tmp_path: Path, people: dict[str, str]) -> None:
    """Whatever the moment: rows stay, the list is the old or the new one, and the same call finishes the change."""
    draw = random.Random(seed("members"))
    with opened(tmp_path, "owner") as index:
        index.share(people["second"], "owner")
        rows = 30
        for i in range(rows):
            index.add([f"{i}"], ids=[f"{i}"], vectors=np.ones((1, N)))

    def change() -> None:
        with opened(tmp_path, "owner") as index:
            index.share(people["reader"], ["reader", "writer"])
            index.remove(people["reader"])

    for _ in range(min(MOMENTS, 60)):
        child = forked(change)
        time.sleep(draw.uniform(0.0, 0.25))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        by = draw.choice(["owner", "second"])
        with opened(tmp_path, by) as index:
            assert index.count() == rows + 1
            found = index.members()
            listed = {member["public"] for member in found.members}
            if people["reader"] in listed or found.renewal_pending:
                index.remove(people["reader"])
            assert not index.members().renewal_pending
            assert index.count() == rows + 1
        with raises("E-SEAL-COLLECTION"):
            opened(tmp_path, "reader").count()


def test_an_owner_killed_in_a_repair_loses_no_row_of_the_refused_tail(tmp_path: Path, people: dict[str, str]) -> None:
    """Before and after each change of the storage: the next repair has the rows that members added meanwhile."""
    with opened(tmp_path, "owner") as index:
        index.share(people["second"], "owner")
        chain, keys = index._log.advance(), index._log.existing()
    identity = Identity(KeyFile.from_file(tmp_path / "writer" / "search.keys").identity or b"")
    content = bytearray(chain.commit("append", keys.joined(chain.members), time=1.0, layout=(N, "float16"))[:-64])
    front = header_of(bytes(content), chain.number + 1)[0]
    content = content.replace(str(front.signer).encode(), identity.public.encode())
    signature = identity.sign(_signed(chain.mark, chain.number + 1, bytes(content)))
    (tmp_path / "notes" / commit_name(chain.number + 1)).write_bytes(bytes(content) + signature)
    with opened(tmp_path, "writer") as writer:
        for i in range(3):
            writer.add([f"{i}"], ids=[f"{i}"], vectors=np.ones((1, N)))
        writer.delete(["1"])
    tail = [commit_name(chain.number + i) for i in range(1, 6)]
    shutil.copytree(tmp_path / "notes", tmp_path / "refused")
    shutil.copytree(tmp_path / "owner" / "search.keys.heads", tmp_path / "heads")

    def repair(moment: int) -> None:
        with opened(tmp_path, "owner") as index:
            storage, steps = index._log.storage, itertools.count(1)

            def step(work: Callable[..., Any]) -> Callable[..., Any]:
                def stepped(*values: Any, **options: Any) -> Any:
                    if next(steps) == moment:
                        os.kill(os.getpid(), signal.SIGKILL)
                    result = work(*values, **options)
                    if next(steps) == moment:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return result

                return stepped

            storage.create, storage.delete = step(storage.create), step(storage.delete)  # type: ignore[method-assign]
            assert index.repair().commits

    for moment in itertools.count(1):
        for name, place in (("refused", "notes"), ("heads", "owner/search.keys.heads")):
            shutil.rmtree(tmp_path / place)
            shutil.copytree(tmp_path / name, tmp_path / place)
        shutil.rmtree(tmp_path / "second" / "search.keys.heads", ignore_errors=True)
        _, status = os.waitpid(forked(lambda m=moment: repair(m)), 0)  # type: ignore[misc]
        with opened(tmp_path, "second" if moment % 2 else "owner") as index:
            index.repair()
            assert sorted(index.ids()) == ["0", "2", "first"]
        if not status:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
    assert moment > 2 * len(tail)


def test_members_fork_with_an_index_open(tmp_path: Path, people: dict[str, str]) -> None:
    writer, owner = opened(tmp_path, "writer"), opened(tmp_path, "owner")
    assert owner.count() == 1

    def add(number: int) -> None:
        for i in range(5):
            writer.add([f"{number} {i}"], ids=[f"{number}-{i}"], vectors=np.ones((1, N)))

    children = [forked(lambda n=n: add(n)) for n in range(3)]  # type: ignore[misc]
    children.append(forked(lambda: owner.share(people["second"], ["reader", "writer"])))
    owner.add(["parent"], ids=["parent"], vectors=np.ones((1, N)))
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    assert owner.count() == 17
    with opened(tmp_path, "second") as second:
        assert second.count() == 17


def test_a_bucket_is_shared_like_a_folder(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    options = {"storage_options": request.getfixturevalue("s3_options"), "max_staleness": 0}
    public = {}
    for name in ("owner", "reader", "writer"):
        identity = KeyFile.create(tmp_path / f"{name}.key", "1").identity
        public[name] = Identity(identity or b"").public

    def machine(name: str) -> SealedIndex:
        place = f"s3://bucket/{tmp_path.name}"
        return SealedIndex(place, tmp_path / f"{name}.key", cache=tmp_path / f"{name} cache", **options)

    with machine("owner") as owner:
        owner.add(["first"], ids=["first"], vectors=np.ones((1, N)))
        for name in ("reader", "writer"):
            owner.share(public[name], name)
        with machine("writer") as writer, machine("reader") as reader:
            writer.add(["second"], ids=["second"], vectors=np.ones((1, N)))
            assert sorted(reader.ids()) == ["first", "second"]
            owner.remove(public["reader"])
            writer.add(["third"], ids=["third"], vectors=np.ones((1, N)))
            with raises("E-SEAL-COLLECTION"):
                reader.ids()
        assert len(owner.ids()) == 3
        number = owner._log.advance().number
        for i in (1, 2):
            owner._log.storage.create(commit_name(number + i), b"junk")
        assert owner.repair().commits == (commit_name(number + 1), commit_name(number + 2))
        assert len(owner.ids()) == 3
        assert owner.repair().commits == ()
