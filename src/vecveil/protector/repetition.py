"""Repeated releases of one item: noise that repeats with a key, and a ledger that counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vecveil.errors import InvalidInputError, message
from vecveil.randomness import (
    ItemId,
    NoiseKey,
    NoiseKeys,
    WordStream,
    check_ids,
    keyed_stream,
    row_digests,
    text_digests,
)
from vecveil.types import Embeddings, RandomSource, Texts

if TYPE_CHECKING:
    from vecveil.accounting import Ledger
    from vecveil.protector.protector import Protector

__all__ = ["check_repetition", "record_release", "repeated_stream"]

_OWNER = "Protector.protect"


def check_repetition(
    rng: RandomSource | WordStream,
    rows: int,
    *,
    noise: bool,
    ids: Sequence[ItemId] | None,
    key: Any,
    texts: Texts | None,
    ledger: Any,
) -> None:
    """Refuse combinations of arguments that cannot mean anything."""
    if key is not None and not isinstance(key, NoiseKey | NoiseKeys):
        wanted = "a vecveil.randomness.NoiseKey or NoiseKeys"
        # Not even the type's value is shown: somebody may have passed the secret itself.
        raise InvalidInputError.of(
            _OWNER, "key", wanted, type(key).__name__, fix="Read it with NoiseKeys.from_file(path)."
        )
    if ledger is not None:
        from vecveil.accounting import Ledger

        if not isinstance(ledger, Ledger):
            got = type(ledger).__name__
            raise InvalidInputError.of(_OWNER, "ledger", "a vecveil.accounting.Ledger", got)
    for name, value in (("key", key), ("ledger", ledger)):
        if value is not None and ids is None:
            raise InvalidInputError(
                message(_OWNER, "ids", f"given with `{name}`", "None", "It names the item of each row.",
                        "Pass the primary keys of the rows.")
            )  # fmt: skip
        if value is not None and not noise:
            raise InvalidInputError.of(_OWNER, name, "left out without noise", "a value")
    if ids is not None and key is None and ledger is None:
        raise InvalidInputError(
            message(_OWNER, "ids", "given with `key` or `ledger`", "ids alone", "Fresh noise needs no ids.",
                    "For noise that repeats, pass key=NoiseKeys.from_file(path) (--key-file).")
        )  # fmt: skip
    if key is not None and rng is not None:
        raise InvalidInputError.of(
            _OWNER, "rng", "None with `key`", type(rng).__name__, "The key decides the noise."
        )
    if texts is not None:
        if key is None:
            raise InvalidInputError.of(_OWNER, "texts", "given with `key`", "texts alone")
        if len(texts) != rows:
            raise InvalidInputError.of(
                _OWNER, "texts", f"{rows} texts, one for each row", len(texts)
            )


def repeated_stream(
    protector: Protector,
    X: Embeddings,
    ids: Sequence[ItemId] | None,
    key: NoiseKey | NoiseKeys | None,
    texts: Texts | None,
) -> WordStream:
    """Return the words of keyed noise for the rows of ``X``."""
    assert key is not None
    one = key.key() if isinstance(key, NoiseKeys) else key
    items = check_ids(ids, len(X), owner=_OWNER)
    if texts is None:
        digests = row_digests(X)
    else:
        encoder = protector.encoder_info.fingerprint
        if encoder is None:
            raise InvalidInputError(
                message(_OWNER, "texts", "left out for this protector", "texts",
                        "It does not know the encoder: another one would give other vectors of these "
                        "texts under the same noise, and their difference.")
            )  # fmt: skip
        digests = text_digests(texts, X, encoder)
    return keyed_stream(one, items, digests, protector.fingerprint)


def record_release(
    ledger: Ledger,
    protector: Protector,
    ids: Sequence[ItemId],
    rows: int,
    stream: WordStream | None,
) -> None:
    """Write the release to the ledger before it is made; equal releases of keyed noise count once."""
    epsilon = protector.mechanism.parameters().get("epsilon")
    check_ids(ids, rows, owner=_OWNER)
    listed = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
    releases = None
    if stream is not None:
        assert stream.starts is not None
        releases = [start.tobytes() for start in stream.starts]
    ledger.record(listed, protector=protector.fingerprint, epsilon=epsilon, releases=releases)
