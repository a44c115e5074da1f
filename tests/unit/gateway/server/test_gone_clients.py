"""A client that goes away ends the work for it, and nothing else is taken for that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from vecveil.gateway.server.app import unless_gone
from vecveil.gateway.server.errors import ClientGone


async def stays() -> dict[str, Any]:
    await asyncio.sleep(60)
    return {"type": "http.disconnect"}


async def goes() -> dict[str, Any]:
    await asyncio.sleep(0.01)
    return {"type": "http.disconnect"}


class Work:
    """Something that takes a while, and remembers whether it was ended."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.ended = seconds, False

    async def run(self) -> str:
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.ended = True
            raise
        return "done"


def test_work_for_a_client_that_stays_is_done() -> None:
    assert asyncio.run(unless_gone(stays, Work(0.01).run())) == "done"


def test_work_for_a_client_that_goes_is_ended() -> None:
    work = Work(60)

    async def asked() -> int:
        with pytest.raises(ClientGone):
            await unless_gone(goes, work.run())
        task = asyncio.current_task()
        assert task is not None
        await asyncio.sleep(0)  # the task itself goes on: it has a request to count
        return task.cancelling()

    assert asyncio.run(asked()) == 0
    assert work.ended


def test_a_server_that_ends_is_no_client_that_goes() -> None:
    work = Work(60)

    async def ended() -> None:
        task = asyncio.create_task(unless_gone(stays, work.run()))
        await asyncio.sleep(0.01)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(ended())
    assert work.ended


def test_errors_of_the_work_stay_what_they_are() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError("a")

    with pytest.raises(KeyError):
        asyncio.run(unless_gone(stays, fails()))
