"""Fixtures of the table tests, with a planted text that no error message may show."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

import pytest

from vecveil.errors import DataFileError, VecveilError

CANARY = "zebra-7731"
Refuses: TypeAlias = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def refuses() -> Refuses:
    """Expect one error that says each of the given words and none of the data."""

    @contextlib.contextmanager
    def check(*words: str, error: type[VecveilError] = DataFileError) -> Iterator[None]:
        with pytest.raises(error) as caught:
            yield
        text = str(caught.value)
        for word in words:
            assert word in text, text
        assert CANARY not in text
        assert "/" not in text.replace("e.g.", "").split(":")[0], "a path instead of a file name"

    return check


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    """Write a file into the test's folder and return its path."""

    def make(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    return make
