"""The event loop stays responsive while a sealed index searches; awaited methods do what the plain ones do."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from vecveil import AsyncSealedIndex, SealedIndex

N, SLOW = 8, 0.5
KEY = bytes(range(32))
X = np.random.default_rng(0).standard_normal((20, N)).astype(np.float32)


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[SealedIndex]:
    with SealedIndex(tmp_path / "notes", KEY) as index:
        yield index


async def longest_pause(work: Awaitable[Any]) -> float:
    """Return the longest time in which the loop did nothing else, until ``work`` is done."""
    waiting, longest, before = asyncio.ensure_future(work), 0.0, time.perf_counter()
    while not waiting.done():
        await asyncio.sleep(0.005)
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    await waiting
    return longest


def slow(index: SealedIndex, monkeypatch: pytest.MonkeyPatch, *methods: str) -> None:
    for name in methods:
        method = getattr(index, name)
        monkeypatch.setattr(index, name, lambda *a, _m=method, **k: (time.sleep(SLOW), _m(*a, **k))[1])


def test_a_slow_search_does_not_stop_the_loop(plain: SealedIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    plain.add(vectors=X, ids=[str(i) for i in range(20)])
    index = AsyncSealedIndex(plain)
    slow(plain, monkeypatch, "_find")

    async def blocking() -> Any:
        return plain.search(X[3], top=1)

    assert asyncio.run(longest_pause(blocking())) >= SLOW  # control
    assert asyncio.run(longest_pause(index.search(X[3], top=1))) < SLOW / 2

    async def several() -> float:
        began = time.perf_counter()
        hits = await asyncio.gather(*(index.search(x, top=1) for x in X[:8]))
        assert [each.ids for each in hits] == [[str(i)] for i in range(8)]
        return time.perf_counter() - began

    assert asyncio.run(several()) < 4 * SLOW  # at the same time


def test_awaited_methods_do_what_the_plain_ones_do(plain: SealedIndex) -> None:
    async def use() -> None:
        async with AsyncSealedIndex(plain) as index:
            assert not await index.exists()
            names = await index.add([f"text {i}" for i in range(20)], vectors=X, metadata=[{"i": i} for i in range(20)])
            assert await index.count() == 20
            assert await index.ids({"i": 7}) == [names[7]]
            assert (await index.get([names[7]])).texts == ["text 7"]
            assert (await index.search(X[7], top=1, where={"i": {"gte": 5}})).ids == [names[7]]
            await index.delete(where={"i": 0})
            assert await index.forget(where={"i": 1}) == 1
            await index.compact()
            await index.refresh()
            parts = [part.ids async for part in index.iter({"i": {"gte": 4}}, batch=10)]
            assert parts == [names[4:14], names[14:]]
            with raises("E-INPUT-NAME", "where"):
                await anext(index.iter({"nobody": 1}))
        with raises("E-INDEX"):
            await index.search(X[7])
        await index.close()

    asyncio.run(use())


def test_each_method_has_the_signature_of_the_plain_one() -> None:
    own = {name for name in vars(AsyncSealedIndex) if not name.startswith("_")}
    left_out = {"filter_fields", "rewrites_texts", "noted_encoder", "precision", "encoder", "find", "read", "reads"}
    assert own == {name for name in vars(SealedIndex) if not name.startswith("_")} - left_out
    for name in own:
        method, signature = getattr(AsyncSealedIndex, name), inspect.signature(getattr(SealedIndex, name))
        assert inspect.signature(method).parameters == signature.parameters
        assert inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)


def test_a_cancelled_call_frees_the_loop_at_once(plain: SealedIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(plain, "count", lambda: over.wait(60))

    async def use() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(AsyncSealedIndex(plain).count(), 0.05)
        over.set()

    asyncio.run(use())
