"""How stores are called: enough to tell them apart, and nothing that opens them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import raises
from vecveil.stores import open_store
from vecveil.stores.locations import default_state_file, is_local, public_name, short_name

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
