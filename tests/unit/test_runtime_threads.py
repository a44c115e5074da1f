"""One thread for torch: nested, and in several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from vecveil.runtime import one_thread


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)  # another number adds up in another order, in every later test of this process


def test_nested_blocks_end_with_the_outermost() -> None:
    before = torch.get_num_threads()
    with one_thread():
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_overlapping_blocks_of_several_threads_leave_what_was_there() -> None:
    torch.set_num_threads(2)
    entered, leave = threading.Event(), threading.Event()
    inside: list[int] = []

    def other() -> None:
        with one_thread():
            inside.append(torch.get_num_threads())
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with one_thread():
        thread.start()
        assert entered.wait(60)
    assert torch.get_num_threads() == 2  # this thread's own
    leave.set()
    thread.join()
    assert inside == [1]
    later: list[int] = []
    fresh = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    fresh.start()
    fresh.join()
    assert later == [2]  # threads that start afterwards get what was there before
