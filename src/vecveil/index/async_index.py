"""`AsyncSealedIndex`: the methods of a sealed index for programs with an event loop."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from vecveil.index.filters import Where
from vecveil.index.sealed_index import SealedIndex
from vecveil.index.sealer import Unsealed
from vecveil.index.searchable import on_thread

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def _awaited(
    method: Callable[Concatenate[SealedIndex, Arguments], Answer],
) -> Callable[Concatenate[AsyncSealedIndex, Arguments], Coroutine[Any, Any, Answer]]:
    """Return the method of `AsyncSealedIndex` that runs ``method`` on a thread, with the same signature."""

    @functools.wraps(method)
    async def call(self: AsyncSealedIndex, /, *args: Arguments.args, **options: Arguments.kwargs) -> Answer:
        answer: Answer = await on_thread(self.index, getattr(self.index, method.__name__), *args, **options)
        return answer

    return call


class AsyncSealedIndex:
    """A `SealedIndex` whose methods are awaited; they run on eight threads of the index, beside the event loop.

    A call that is cancelled goes on in its thread: whether its rows were written is then unknown.

    Args:
        index: the index; its attributes and properties are read there.
    """

    def __init__(self, index: SealedIndex) -> None:
        self.index = index

    def __repr__(self) -> str:
        return f"AsyncSealedIndex({self.index!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    add = _awaited(SealedIndex.add)
    close = _awaited(SealedIndex.close)
    compact = _awaited(SealedIndex.compact)
    count = _awaited(SealedIndex.count)
    delete = _awaited(SealedIndex.delete)
    exists = _awaited(SealedIndex.exists)
    forget = _awaited(SealedIndex.forget)
    get = _awaited(SealedIndex.get)
    ids = _awaited(SealedIndex.ids)
    members = _awaited(SealedIndex.members)
    reencode = _awaited(SealedIndex.reencode)
    refresh = _awaited(SealedIndex.refresh)
    remove = _awaited(SealedIndex.remove)
    repair = _awaited(SealedIndex.repair)
    reseal = _awaited(SealedIndex.reseal)
    search = _awaited(SealedIndex.search)
    share = _awaited(SealedIndex.share)

    async def iter(self, where: Where | None = None, *, batch: int = 1000) -> AsyncIterator[Unsealed]:
        """Yield what `SealedIndex.iter` does, for ``async for``."""
        parts = await on_thread(self.index, self.index.iter, where, batch=batch)
        while (part := await on_thread(self.index, next, parts, None)) is not None:
            yield part
