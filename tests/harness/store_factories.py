"""Empty places for the contract suite of vector stores, and the adapters that programs import: one entry a kind."""

from __future__ import annotations

import contextlib
import functools
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ADAPTERS", "STORES", "Adapter", "StoreCase", "chroma_server"]


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


STORES: dict[str, StoreCase] = {
    "chroma": StoreCase(lambda folder, name: f"chroma:{folder}#{name}"),
    "lancedb": StoreCase(lambda folder, name: f"lancedb:{folder}#{name}"),
    # Qdrant's client waits for the disk once for each row of a folder; 300 are more than one request of the store.
    "qdrant": StoreCase(lambda folder, name: f"qdrant:{folder}#{name}", many=300),
    "pgvector": StoreCase(lambda folder, name: f"pgvector:{_postgres()}#{name}"),
    "faiss": StoreCase(lambda folder, name: f"faiss:{folder / name}.index"),
    "sqlite-vec": StoreCase(lambda folder, name: f"sqlite-vec:{folder}/rows.db#{name}"),
    "milvus": StoreCase(lambda folder, name: f"milvus:{folder}/rows.db#{name}"),
}


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


class Adapter:
    """What a program does with the adapter of one database: add texts under ids, and search.

    Args:
        folder, name: of the collection; the store at the same location reads it.
        given: protector and key, as files.
    """

    named = True
    """Whether ids name the items to the key; else their texts do."""

    def __init__(self, folder: Path, name: str, **given: Any) -> None:
        self.folder, self.name, self.given = folder, name, given

    def add(self, ids: list[str], texts: list[str]) -> None:
        raise NotImplementedError

    def search(self, text: str, k: int) -> list[str]:
        raise NotImplementedError


class _Chroma(Adapter):
    def _collection(self) -> Any:
        import chromadb

        from vecveil.integrations.chroma import ProtectedEmbeddingFunction

        self.client = chromadb.PersistentClient(str(self.folder))
        function = ProtectedEmbeddingFunction(**self.given)
        return self.client.get_or_create_collection(self.name, embedding_function=function)

    def add(self, ids: list[str], texts: list[str]) -> None:
        from vecveil.integrations.chroma import protect_and_add

        protect_and_add(self._collection(), ids, texts)
        self.client.close()

    def search(self, text: str, k: int) -> list[str]:
        found: list[str] = self._collection().query(query_texts=[text], n_results=k)["ids"][0]
        self.client.close()
        return found


class _Lance(Adapter):
    named = False

    def _function(self) -> Any:
        from lancedb.embeddings import get_registry

        import vecveil.integrations.lancedb  # noqa: F401 - registers the function

        return get_registry().get("vecveil").create(**{n: str(v) for n, v in self.given.items()})

    def add(self, ids: list[str], texts: list[str]) -> None:
        import lancedb
        import pyarrow as pa

        function = self._function()
        vectors = pa.array([v.tolist() for v in function.generate_embeddings(texts)],
                           pa.list_(pa.float32(), function.ndims()))  # fmt: skip
        lancedb.connect(self.folder).create_table(
            self.name, pa.table({"id": ids, "vector": vectors})
        )

    def search(self, text: str, k: int) -> list[str]:
        import lancedb

        (query,) = self._function().compute_query_embeddings(text)
        rows = lancedb.connect(self.folder).open_table(self.name).search(query).limit(k)
        return [str(row["id"]) for row in rows.to_list()]


class _Qdrant(Adapter):
    def add(self, ids: list[str], texts: list[str]) -> None:
        from vecveil.integrations.qdrant import ProtectedQdrant

        with ProtectedQdrant(self.folder, **self.given) as qdrant:
            qdrant.create_collection(self.name)
            qdrant.add(self.name, ids, texts)

    def search(self, text: str, k: int) -> list[str]:
        from vecveil.integrations.qdrant import ProtectedQdrant

        with ProtectedQdrant(self.folder, **self.given) as qdrant:
            return [str(p.id) for p in qdrant.query_points(self.name, text, limit=k).points]


class _Milvus(Adapter):
    def add(self, ids: list[str], texts: list[str]) -> None:
        from vecveil.integrations.milvus import ProtectedMilvus

        rows = [{"id": name, "text": text} for name, text in zip(ids, texts, strict=True)]
        with ProtectedMilvus(self.folder / "rows.db", **self.given) as milvus:
            milvus.create_collection(self.name, id_type="string", max_length=64)
            milvus.insert(self.name, rows)

    def search(self, text: str, k: int) -> list[str]:
        from vecveil.integrations.milvus import ProtectedMilvus

        with ProtectedMilvus(self.folder / "rows.db", **self.given) as milvus:
            return [str(hit["id"]) for hit in milvus.search(self.name, text, limit=k)[0]]


class _Faiss(Adapter):
    def add(self, ids: list[str], texts: list[str]) -> None:
        from vecveil.integrations.faiss import ProtectedIndex

        index = ProtectedIndex(384, **self.given)
        index.add_with_ids(texts, [int(name) for name in ids])
        index.save(self.folder / f"{self.name}.index")

    def search(self, text: str, k: int) -> list[str]:
        from vecveil.integrations.faiss import ProtectedIndex

        index = ProtectedIndex.load(self.folder / f"{self.name}.index", **self.given)
        return [str(number) for number in index.search(text, k)[1][0]]


class _Table(Adapter):
    def _table(self) -> Any:
        raise NotImplementedError

    def add(self, ids: list[str], texts: list[str]) -> None:
        with self._table() as table:
            table.create()
            table.add(ids, texts)

    def search(self, text: str, k: int) -> list[str]:
        with self._table() as table:
            return [match.id for match in table.search(text, k)]


class _Pgvector(_Table):
    def _table(self) -> Any:
        from vecveil.integrations.pgvector import ProtectedTable

        return ProtectedTable(_postgres(), self.name, **self.given)


class _SqliteVec(_Table):
    def _table(self) -> Any:
        from vecveil.integrations.sqlite_vec import ProtectedTable

        return ProtectedTable(self.folder / "rows.db", self.name, **self.given)


ADAPTERS: dict[str, type[Adapter]] = {
    "chroma": _Chroma, "lancedb": _Lance, "qdrant": _Qdrant, "milvus": _Milvus, "faiss": _Faiss,
    "pgvector": _Pgvector, "sqlite-vec": _SqliteVec,
}  # fmt: skip
