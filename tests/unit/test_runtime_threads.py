"""One thread for torch and for BLAS: nested, and in several threads at once."""

from __future__ import annotations

import os
import subprocess
import sys
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


OVERLAPPING = """
import threading
import numpy
from threadpoolctl import threadpool_info
from vecveil.runtime import one_blas_thread

def blas():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

def other():
    with one_blas_thread():
        entered.set()
        leave.wait(60)

for first in (threading.current_thread(), None):  # from the main thread, and from another
    entered, leave, before = threading.Event(), threading.Event(), blas()
    thread = threading.Thread(target=other)
    if first is None:
        thread.start()
        assert entered.wait(60)
    with one_blas_thread(), one_blas_thread():
        assert blas() == [1], blas()
        if first is not None:
            thread.start()
            assert entered.wait(60)
    assert blas() == [1], blas()
    leave.set()
    thread.join()
    assert blas() == before == [2], blas()
"""


def test_blas_has_one_thread_until_the_last_overlapping_block_ends() -> None:
    pytest.importorskip("threadpoolctl")
    subprocess.run([sys.executable, "-c", OVERLAPPING], check=True, env=os.environ | {"OMP_NUM_THREADS": "2"})
