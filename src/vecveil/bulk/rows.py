"""How rows are released: by a protector, with a key, a ledger and the check of their lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from vecveil.data import RowItems
from vecveil.errors import LedgerCapError
from vecveil.protector import Protector
from vecveil.protector.lengths import check_lengths
from vecveil.randomness import NoiseKey
from vecveil.types import Embeddings

if TYPE_CHECKING:
    from vecveil.accounting import Ledger

__all__ = ["row_protection"]


def row_protection(
    protector: Protector,
    *,
    key: NoiseKey | None = None,
    ledger: Ledger | None = None,
    noise: bool = True,
    lengths: bool = True,
) -> Callable[[Embeddings, RowItems], Embeddings]:
    """Return what protects a chunk of rows.

    Args:
        key: for keyed noise; None draws fresh noise.
        ledger: counts the rows before they are released.
        noise: False applies the map alone.
        lengths: refuse rows longer than those of the fit.
    """
    if protector.rewriter is not None:
        return lambda X, rows: X if rows.texts is not None else protector.protect(X)
    named = key is not None or ledger is not None
    known = key is not None and protector.encoder_info.fingerprint is not None
    counted = 0

    def protect(X: Embeddings, rows: RowItems) -> Embeddings:
        nonlocal counted
        if lengths:
            check_lengths(protector, X, owner="protect")
        try:
            released = protector.protect(
                X,
                noise=noise,
                ids=rows.ids if named else None,
                key=key,
                texts=rows.texts if known else None,
                ledger=ledger,
                lengths=False,  # that was judged above, or need not be
            )
        except LedgerCapError as error:
            if not counted:
                raise
            raise LedgerCapError(
                f"{error} Before them {counted:,} rows of this run were counted; nothing of it is written.",
                items=error.items,
            ) from None
        counted += len(X)
        return released

    return protect
