"""Empty places for the contract suite of vector stores: one entry a kind."""

from __future__ import annotations

import contextlib
import functools
import importlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vecveil.stores import VectorStore

__all__ = ["STORES", "StoreCase", "chroma_server", "release"]


@dataclass(frozen=True)
class StoreCase:
    """How the suite treats a kind.

    Attributes:
        locate: returns the location of a collection that does not exist yet, from a folder of the kind's own that
            lasts for the session, and a name that no other test has.
        text_ids: whether ids may be any text; else only whole numbers, and others are refused.
        fields: whether rows have fields; else only ids and vectors.
        many: rows of the test of many; more than a store writes in one request.
    """

    locate: Callable[[Path, str], str]
    text_ids: bool = True
    fields: bool = True
    many: int = 3000


@functools.cache
def _postgres() -> str:
    """Return a database of the session."""
    from harness.postgres import fresh_database

    return fresh_database()


def _qdrant(folder: Path, name: str) -> str:
    """Return a place in a folder whose client does not wait for the disk at each row, as it does by itself."""
    from qdrant_client.local.persistence import CollectionPersistence

    def ensure_table(self: Any) -> None:
        self.storage.execute("PRAGMA synchronous=OFF")
        self.storage.execute("CREATE TABLE IF NOT EXISTS points (id TEXT PRIMARY KEY, point BLOB)")
        self.storage.commit()

    CollectionPersistence._ensure_table = ensure_table  # type: ignore[method-assign]
    return f"qdrant:{folder}#{name}"


STORES: dict[str, StoreCase] = {
    "chroma": StoreCase(lambda folder, name: f"chroma:{folder}#{name}"),
    "lancedb": StoreCase(lambda folder, name: f"lancedb:{folder}#{name}"),
    # Qdrant's client writes each row of a folder alone; 300 are more than one request of the store.
    "qdrant": StoreCase(_qdrant, many=300),
    "pgvector": StoreCase(lambda folder, name: f"pgvector:{_postgres()}#{name}"),
    "sqlite-vec": StoreCase(lambda folder, name: f"sqlite-vec:{folder}/rows.db#{name}"),
    "milvus": StoreCase(lambda folder, name: f"milvus:{folder}/rows.db#{name}"),
}


def release(store: VectorStore) -> None:
    """Close a store and what its client keeps open: Milvus Lite serves a file until the process ends."""
    store.close()
    if store.kind == "milvus":
        manager = importlib.import_module("milvus_lite.server_manager")
        manager.server_manager_instance.release_server(store._where)  # type: ignore[attr-defined]


@contextlib.contextmanager
def chroma_server(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Start Chroma's own server on a folder; yield its process and its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("chroma")
    command = [str(program), "run", "--path", str(folder), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(2400):
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None
            time.sleep(0.05)
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
