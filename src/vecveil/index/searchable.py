"""The protocol of both searches, for frameworks and servers."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, runtime_checkable

from vecveil.errors import InvalidInputError
from vecveil.index.sealer import Ranking, Unsealed

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")

_NAMED = 20  # known fields in an error


@runtime_checkable
class Searchable(Protocol):
    """Rows with text, metadata and exact vectors: `SealedIndex` and `ProtectedCollection`.

    Attributes:
        candidates: rows that a search ranks exactly.
        filter_fields: metadata fields for equality in ``where``; None if ``where`` compares every field.
        rewrites_texts: a query is a text, which the protector rewrites.
    """

    candidates: int

    if TYPE_CHECKING:  # `isinstance` of Python 3.11 would read them, and with them the key store

        @property
        def filter_fields(self) -> tuple[str, ...] | None: ...
        @property
        def rewrites_texts(self) -> bool: ...

    def add(
        self,
        texts: Sequence[str] | None = None,
        *,
        ids: Sequence[str],
        metadata: Sequence[Mapping[str, Any] | None] | None = None,
        vectors: Any = None,
    ) -> list[str] | None: ...
    def search(self, query: Any, *, top: int = 10, where: Any = None) -> Ranking: ...
    def get(self, ids: Sequence[str] | None = None, *, where: Any = None, missing: Any = "raise") -> Unsealed: ...
    def ids(self, where: Any = None) -> list[str]: ...
    def delete(self, ids: Sequence[str]) -> None: ...
    def count(self) -> int: ...


async def on_thread(
    index: Searchable, work: Callable[Arguments, Answer], /, *args: Arguments.args, **options: Arguments.kwargs
) -> Answer:
    """Return what ``work`` does on a thread of ``index``; a collection has none, and takes the event loop's.

    The loop resolves host names on its own threads: work that hangs there would stop every new connection.
    """
    import asyncio  # whoever awaits has imported it; the command line does not need it

    call = partial(contextvars.copy_context().run, work, *args, **options)
    return await asyncio.get_running_loop().run_in_executor(getattr(index, "callers", None), call)


def check_fields(compared: Iterable[str], having: Iterable[Iterable[str]], fix: str = "") -> None:
    """Raise `InvalidInputError` for a compared field that is in none of ``having``, the fields of rows."""
    known = set[str]().union(*having)
    if missing := sorted(set(compared) - known):
        names = ", ".join(name[:60] for name in sorted(known)[:_NAMED]) + (", …" if len(known) > _NAMED else "")
        raise InvalidInputError(
            f"No row has the field {missing[0][:60]!r} (in `where`). The rows have: {names or 'no field'}.{fix}",
            code="E-INPUT-NAME",
            param="where",
        )
