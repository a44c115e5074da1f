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
