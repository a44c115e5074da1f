"""Commands of the sealed index import no library of models or statistics, and a search is a second's work at most."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from harness.command_line import environment
from harness.server_process import ServerProcess

chromadb = pytest.importorskip("chromadb")
HEAVY = {"torch", "sentence_transformers", "transformers", "pandas", "sklearn"}
PROGRAM = """
import atexit, sys
from pathlib import Path
atexit.register(lambda: Path(sys.argv[1]).write_text(" ".join(sorted(sys.modules))))
from vecveil.cli.commands import run
sys.exit(run(sys.argv[2:]))
"""


def words(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM, str(folder / "modules"), *arguments]


def heavy(folder: Path) -> set[str]:
    imported = set((folder / "modules").read_text().split())
    return {name for name in imported if name.split(".")[0] in HEAVY or name.startswith("vecveil.auditing")}


def run_command(folder: Path, *arguments: str) -> set[str]:
    """Run a command in a process of its own; return the heavy modules that it imported."""
    done = subprocess.run(words(folder, *arguments), cwd=folder, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return heavy(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Chroma collection, a key, and a sealed index of the collection."""
    folder = tmp_path_factory.mktemp("imports")
    collection = chromadb.PersistentClient(str(folder / "store")).create_collection("notes")
    texts = ["She felt sick after dinner.", "The invoice is overdue.", "The bus is late."]
    vectors = [[float(i == j) for j in range(384)] for i in range(3)]
    years = [{"year": 2024 + i} for i in range(3)]
    collection.add(ids=["a", "b", "c"], embeddings=vectors, documents=texts, metadatas=years)
    (folder / "gone.txt").write_text("c\n")
    assert not run_command(folder, "key", "new", "search.keys")
    migrate = ("migrate", "chroma:store#notes", "sealed:notes/", "--seal-key", "search.keys", "--encoder", "minilm")
    assert not run_command(folder, *migrate)
    return folder


def test_search(folder: Path) -> None:
    search = ("search", "sealed:notes/", "nausea after a meal", "--seal-key", "search.keys", "--top", "1", "--json")
    for more in ([], ["--where", "year>=2024", "--hybrid"]):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert not run_command(folder, *search, *more)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.5


def test_forget(folder: Path) -> None:
    files = ("--ids", "gone.txt", "--receipt", "receipt.json", "--seal-key", "search.keys")
    assert not run_command(folder, "forget", "sealed:notes/", *files)
    assert json.loads((folder / "receipt.json").read_text())
    assert not run_command(folder, "forget", "chroma:store#notes", *files[:2], "--receipt", "chroma.json")


def test_serve(folder: Path) -> None:
    options = ("--index", f"notes=sealed:{folder / 'notes'}", "--seal-key", str(folder / "search.keys"), "--port", "0")
    server = ServerProcess(words(folder, "serve", *options, "--json"), "stderr")
    try:
        url = f"http://127.0.0.1:{server.port}/v1/vector_stores/notes/search"
        found = httpx.post(url, json={"query": "nausea after a meal"}, timeout=60).json()
        assert found["data"][0]["file_id"] == "a"
    finally:
        assert server.end(signal.SIGTERM) == 143
    assert not heavy(folder)
