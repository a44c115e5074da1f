"""How stores are called: enough to tell them apart, and nothing that opens them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from vecveil.privacy.mechanisms import Laplace
from vecveil.stores import open_store
from vecveil.stores.locations import default_state_file, is_local, public_name, short_name
from vecveil.stores.scanning import scan

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("location", "public"),
    [
        (
            "pgvector:postgresql://ann:hunter2@db.example:5433/app#notes",
            "pgvector:postgresql://db.example:5433/app#notes",
        ),
        (
            "pgvector:postgresql://ann@db/app?password=hunter2&sslmode=require#a.b:c",
            "pgvector:postgresql://db/app#a.b:c",
        ),
        ("pgvector:postgresql://db/app#a?vector=b%2Fc&password=hunter2", "pgvector:postgresql://db/app#a?vector=b%2Fc"),
        ("chroma:http://host#a?tenant=t&database=d", "chroma:http://host#a?database=d&tenant=t"),
        ("chroma:http://host#?database=d&tenant=t%20", "chroma:http://host#?database=d&tenant=t%20"),
        ("pgvector:postgresql://db/app#a?", "pgvector:postgresql://db/app#a?"),
        ("pgvector:postgresql://db/app#50% ?", "pgvector:postgresql://db/app#50% ?"),
        ("pgvector:postgresql://me:hunter2@/app?host=%2Ftmp%2Fpg#t", "pgvector:postgresql:///app?host=%2Ftmp%2Fpg#t"),
        ("pgvector:host=db port=5433 user=a password=hunter2 dbname=app#t", "pgvector:host=db port=5433 dbname=app#t"),
        ("pgvector:host=db password='hunter2 host=hunter2'#t", None),
        ("pgvector:password=hunter2#t", "pgvector:…#t"),
        ("qdrant:https://hunter2@host:6333#c", "qdrant:https://host:6333#c"),
        ("qdrant:https://host:6333?api_key=hunter2#c", "qdrant:https://host:6333#c"),
        ("chroma:http://ann:hunter2@host:8000", "chroma:http://host:8000"),
        ("pgvector:postgresql://ann:x#hunter2@db/app#notes", None),
        ("pgvector:postgresql://ann:x/hunter2@db/app#notes", None),
        ("pgvector:postgresql://ann:hunter2", "pgvector:…"),
        ("pgvector:postgresql://[hunter2/app#notes", "pgvector:…#notes"),
        ("milvus:http://:hunter2@host:19530#c", "milvus:http://host:19530#c"),
    ],
)
def test_no_password_is_in_a_name(location: str, public: str | None) -> None:
    assert not is_local(location)
    for name in (public_name(location), short_name(location), str(default_state_file(location))):
        assert SECRET not in name
    if public is not None:
        assert public_name(location) == public == short_name(location)


@pytest.mark.parametrize(
    "location",
    ["qdrant:db#c?tenant=t", "chroma:db#c?vector=v", "faiss:db#?vector=v", "qdrant:db#c?vector=", "milvus:x.db#c?a=b"],
)
def test_options_that_a_kind_lacks_are_refused(location: str) -> None:
    with raises("E-INPUT", "location"):
        open_store(location)


def test_a_package_adds_a_database_and_replaces_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shelf.py").write_text("from harness.folder_store import FolderStore as Shelf\n")
    info = tmp_path / "shelf-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1.0\n")
    entries = (
        "shelf = shelf:Shelf\nchroma = shelf:Shelf\nnothing = json:dumps\ngone = shelf:Gone\nbroken = broken:Store\n"
    )
    (tmp_path / "broken.py").write_text("raise RuntimeError('canary')\n")
    (info / "entry_points.txt").write_text(f"[vecveil.stores]\n{entries}")
    monkeypatch.syspath_prepend(tmp_path)
    location = f"shelf:{tmp_path}/rows#notes"
    collection = vecveil.ProtectedCollection(location, vecveil.Protector("laplace", Laplace(4, 10.0)))
    collection.add(ids=["a"], vectors=np.eye(1, 4, dtype=np.float32))
    assert scan(open_store(location), show_progress=False).protection == "protected"
    assert open_store(f"chroma:{tmp_path}#notes").kind == "apart"
    for unknown in ("nothing:x#y", "other:x#y"):
        with raises("E-INPUT", "location"):
            open_store(unknown)
    for broken in ("gone:x#y", "broken:x#y"):
        with raises("E-STORE", "location") as caught:
            open_store(broken)
        assert "canary" not in str(caught.value)


def test_a_path_is_absolute_and_its_state_lies_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert public_name("chroma:db#notes") == f"chroma:{tmp_path.resolve()}/db#notes"
    assert short_name("chroma:db#notes") == "chroma:db#notes"
    assert public_name("faiss:a/../b.faiss") == f"faiss:{tmp_path.resolve()}/b.faiss"
    assert default_state_file("chroma:db#my notes") == tmp_path.resolve() / "db.my_notes.migration.json"
    assert default_state_file("faiss:x/b.faiss") == tmp_path.resolve() / "x" / "b.faiss.migration.json"


def test_remote_states_of_two_servers_are_two_files() -> None:
    one, other = (default_state_file(f"qdrant:http://{host}:6333#c") for host in ("a", "b"))
    assert len({default_state_file(f"qdrant:db#c?vector={name}") for name in ("a", "b")}) == 2
    assert one != other
    assert one.parent == Path()
    assert default_state_file("qdrant:http://user:pw@a:6333#c") == one
