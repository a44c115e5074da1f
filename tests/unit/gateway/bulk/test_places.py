"""Files by path or URL: what a plan remembers of them, and how they appear."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile

from harness.errors import raises
from vecveil.errors import DataFileError
from vecveil.gateway.bulk.places import Folder, list_files, open_input, unchanged
from vecveil.texts.tables import read_table
from vecveil.texts.tables.writing import NotWrittenError


class Ranged(AbstractBufferedFile):
    """A file as object stores have it: read in ranges, without read1."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        content: bytes = self.fs.cat_file(self.path)
        return content[start:end]


class Tagged(MemoryFileSystem):
    """A store that tells a digest of the contents, as object stores do."""

    protocol = "tagged"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs: list[str] = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        stripped: str = super()._strip_protocol(path.removeprefix("tagged://"))
        return stripped

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        return Ranged(self, path, mode) if mode == "rb" else super()._open(path, mode, **kwargs)

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        found: dict[str, Any] = super().info(path, **kwargs)
        return {**found, "ETag": "digest-of-the-contents", "LastModified": "2026-01-01"}


@pytest.fixture
def tagged() -> Any:
    fsspec.register_implementation("tagged", Tagged, clobber=True)
    Tagged.store.clear()
    return Tagged()


def test_no_digest_of_clean_content_is_kept(tagged: Any) -> None:
    """It would lie beside released vectors and confirm a guessed text."""
    tagged.pipe("/in/a.jsonl", b"{}\n")
    (entry,) = list_files(["tagged://in/a.jsonl"], {})
    assert entry.stamp == "2026-01-01"
    assert unchanged(entry, {})
    tagged.pipe("/in/a.jsonl", b"{}\n{}\n")
    assert not unchanged(entry, {})


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_texts_are_read_from_object_stores(tagged: Any, pack: Any) -> None:
    tagged.pipe("/in/a.jsonl", pack(b'{"text": "x"}\n{"text": "y"}\n'))
    (entry,) = list_files(["tagged://in/a.jsonl"], {})
    (chunk,) = read_table(open_input(entry, {}))
    assert chunk.texts == ["x", "y"]
    tagged.pipe("/in/a.jsonl", pack(b'{"text": "x"}\n{"text": "\xff"}\n'))
    with pytest.raises(DataFileError, match=r"line 2 \(byte offset 24\)"):
        read_table(open_input(entry, {}))


def test_where_nothing_is_told_to_be_atomic_a_rename_makes_it_so(tagged: Any, tmp_path: Path) -> None:
    seen: list[set[str]] = []
    put = Tagged.put_file

    def watching(self: Any, local: str, remote: str, **given: Any) -> None:
        put(self, local, remote, **given)
        seen.append(set(Tagged.store))

    folder = Folder("tagged://out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tagged, "put_file", watching)
        for content in (b"old", b"new"):
            with folder.writing("part.parquet") as path:
                path.write_bytes(content)
    assert "/out/part.parquet" not in seen[0]  # under another name until all of it is there
    assert folder.read("part.parquet", 10) == b"new"
    assert list(folder.sizes()) == ["part.parquet"]


def test_what_cannot_be_uploaded_ends_the_run(tagged: Any) -> None:
    def refused(*args: Any, **given: Any) -> None:
        raise PermissionError(13, "token hunter2 has expired")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tagged, "put_file", refused)
        with pytest.raises(NotWrittenError) as caught, Folder("tagged://out").writing("part.parquet") as path:
            path.write_bytes(b"x")
    assert "hunter2" not in str(caught.value)


def test_a_name_with_letters_of_patterns_is_a_name(tmp_path: Path) -> None:
    for name in ("notes[1].csv", "notes1.csv"):
        (tmp_path / name).write_text("text\nx\n")
    (entry,) = list_files([str(tmp_path / "notes[1].csv")], {})
    assert entry.name == "notes[1].csv"


def test_a_given_format_takes_files_of_any_name(tmp_path: Path) -> None:
    for name in ("a.dat", "b.dat", "_c.dat"):
        (tmp_path / name).write_text("text\nx\n")
    entries = list_files([str(tmp_path / "*.dat")], {}, format="csv")
    assert [entry.name for entry in entries] == ["a.dat", "b.dat"]
    with raises("E-DATA-FILE", "input"):
        list_files([str(tmp_path / "*.dat")], {})
