"""The protocol of both searches, for frameworks and servers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from vecveil.errors import InvalidInputError
from vecveil.index.sealer import Ranking, Unsealed

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
