"""A sealed index behind S3's API, spoken over HTTP to a server that keeps objects in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vecveil.search import SealedIndex

KEY = bytes(range(32))
X = np.eye(6, 8)


def opened(place: str, options: dict[str, Any], tmp_path: Path, process: str = "a") -> SealedIndex:
    return SealedIndex(f"s3://bucket/{place}", KEY, storage_options=options, cache=tmp_path / process, max_staleness=0)


def test_two_processes_share_an_index(s3_options: dict[str, Any], tmp_path: Path) -> None:
    one, two = opened("shared", s3_options, tmp_path), opened("shared", s3_options, tmp_path, "b")
    one.add([f"text {i}" for i in range(6)], ids=list("abcdef"), vectors=X)
    two.add(["other"], ids=["a"], vectors=X[1:2])
    assert two.search(X[1], top=2).texts == ["text 1", "other"] or two.count() == 6
    one.delete(["f"])
    two.compact()
    one.forget(["e"])
    assert sorted(one.ids()) == sorted(two.ids()) == list("abcd")
    assert two.get(["a"]).texts == ["other"]


def test_of_two_commits_with_one_number_the_second_begins_again(s3_options: dict[str, Any], tmp_path: Path) -> None:
    one, two = opened("race", s3_options, tmp_path), opened("race", s3_options, tmp_path, "b")
    one.add(None, ids=list("abc"), vectors=X[:3])
    one.add(None, ids=list("def"), vectors=X[3:])
    two.refresh()
    write, done = two._log._write, []

    def overtaken(name: str, *rest: Any) -> str:
        if name.startswith("commits/") and not done:
            done.append(name)
            one.forget(["a"])
        return write(name, *rest)

    two._log._write = overtaken  # type: ignore[method-assign]
    two.compact()
    assert done
    assert sorted(two.ids()) == sorted(one.ids()) == list("bcdef")


def test_a_put_that_happened_though_it_failed_is_not_a_conflict(
    s3_options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = opened("timeout", s3_options, tmp_path)
    pipe, failures = index._log.storage._fs.pipe_file, iter([True])

    def late(*args: Any, **kwargs: Any) -> Any:
        pipe(*args, **kwargs)
        if next(failures, False):
            raise TimeoutError
        return None

    monkeypatch.setattr(index._log.storage._fs, "pipe_file", late)
    index.add(["text"], ids=["a"], vectors=X[:1])
    index.add(["text"], ids=["b"], vectors=X[:1])
    assert opened("timeout", s3_options, tmp_path, "b").count() == 2


def test_the_local_copies_are_the_objects_of_the_storage(s3_options: dict[str, Any], tmp_path: Path) -> None:
    index = opened("copies", s3_options, tmp_path)
    index.add(["a text of nobody else"], ids=["a"], vectors=X[:1])
    assert index.get(["a"]).texts == ["a text of nobody else"]
    copies = [path for path in (tmp_path / "a").rglob("*") if path.is_file()]
    assert copies
    assert all(b"nobody" not in path.read_bytes() for path in copies)
    assert all(path.stat().st_mode & 0o077 == 0 for path in copies)
