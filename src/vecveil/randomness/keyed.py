"""Keyed noise: the same item under the same protector always gets the same words.

The counters of an item are the first 128 bits of HMAC-SHA256 under the secret key over the key id, the
fingerprint of every fitted parameter and the item id, each with its length, and the digest of the content. The
words are AES-256 of these counters, under an AES key derived from the same secret. Leaving any of the
four out would make it a two-time pad: the same noise on two different vectors gives their difference,
the same noise at two scales gives the vector.

What it gives and what it costs: repeated releases of an item are equal, so averaging gains nothing; equal
inputs are seen to be equal; the guarantee holds against attackers who cannot break AES and HMAC; and
whoever has the key removes the noise from every release made with it.

Counters of N items of b blocks overlap with a chance of about b·N²/2¹²⁸: 2⁻³⁸ for 2⁴⁰ items of 2¹⁰ blocks.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from vecveil.errors import InvalidInputError
from vecveil.randomness.keys import NoiseKey
from vecveil.randomness.stream import BlockCipher, WordStream
from vecveil.types import Embeddings

__all__ = ["ItemId", "check_ids", "content_ids", "keyed_stream", "row_digests", "text_digests"]

ItemId = str | int | bytes

_CODE_BITS = 6  # of the root mean square value of a row
_CODE = np.dtype("<i8")
_PURPOSE = b"vecveil keyed noise 2"


def check_ids(ids: Any, rows: int, *, owner: str) -> list[bytes]:
    """Return each id as bytes that no id of another type shares.

    Raises:
        InvalidInputError: not one str, int or bytes for every row.
    """
    ordered = isinstance(ids, Sequence) or (isinstance(ids, np.ndarray) and ids.ndim == 1)
    if isinstance(ids, str | bytes) or not ordered or len(ids) != rows:
        got = f"{len(ids)} ids" if ordered else type(ids).__name__
        raise InvalidInputError.of(owner, "ids", f"{rows} ids, one for each row", got,
                                   fix="Pass the primary keys of the rows.")  # fmt: skip
    listed = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
    return [_id_bytes(one, i, owner) for i, one in enumerate(listed)]


def _id_bytes(value: Any, position: int, owner: str) -> bytes:
    if isinstance(value, str):
        return b"s" + value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return b"b" + value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        number = int(value)
        size = number.bit_length() // 8 + 1
        return b"i" + number.to_bytes(size, "little", signed=True)
    raise InvalidInputError.of(
        owner, "ids", "strings, integers or bytes", f"{type(value).__name__} at position {position}"
    )


def content_ids(X: Embeddings, texts: Sequence[str] | None) -> list[bytes]:
    """Return an id for each row of ``X`` (N, n) whose items have no name: the digest of its text, else of the row.

    Equal texts are then one item. Ledgers keep ids as salted hashes, and keyed noise under the secret key.
    """
    if texts is None:
        return list(row_digests(X))
    return [hashlib.sha256(t.encode("utf-8", "surrogatepass")).digest() for t in texts]


def row_digests(X: Embeddings) -> Iterable[bytes]:
    """Yield the SHA-256 of each row of ``X`` (N, n), of its float64 values, so that the dtype does not count."""
    for row in X:
        yield hashlib.sha256((row.astype(np.float64) + 0.0).tobytes()).digest()  # −0 counts as 0


def text_digests(texts: Sequence[str], X: Embeddings, encoder_fingerprint: str) -> Iterable[bytes]:
    """Yield a digest of each text, of the encoder, and of the text's vector, coarsely.

    Unlike a row's digest it rarely changes with the last bits of an encoder's arithmetic, which vary from
    batch to batch. The coarse values (64 steps to a row's root mean square) are there for vectors of one text
    that differ by more, such as those of another precision or scale: under the same noise their difference
    would be seen, and tell the text.

    Args:
        X: (N, n) what ``texts`` were encoded to.
    """
    head = _text_head(encoder_fingerprint)
    for text, row in zip(texts, X, strict=True):
        wide = row.astype(np.float64)
        largest = float(np.abs(wide).max())
        rms = 1.0
        if largest > 0:
            shares = wide / largest
            rms = largest * math.sqrt(float((shares * shares).sum()) / shares.size)
        exponent = math.ceil(np.log2(rms)) - _CODE_BITS
        # No value is larger than √n times the root mean square: an integer has place for it.
        code = np.rint(np.ldexp(wide, -exponent)).astype(_CODE)
        content = exponent.to_bytes(8, "little", signed=True) + code.tobytes()
        yield hashlib.sha256(
            head + _framed(text.encode("utf-8", "surrogatepass")) + content
        ).digest()


@lru_cache(maxsize=64)
def _text_head(encoder_fingerprint: str) -> bytes:
    return hashlib.sha256(b"text" + encoder_fingerprint.encode()).digest()


def keyed_stream(
    key: NoiseKey, ids: Sequence[bytes], digests: Iterable[bytes], fingerprint: str
) -> WordStream:
    """Return the stream of the items.

    Args:
        ids: from `check_ids`.
        digests: from `row_digests` or `text_digests`, one for each id.
        fingerprint: of everything that decides what a release is, `Protector.fingerprint`.
    """
    secret = key.secret_for_noise()
    cipher = key.cipher_for_noise(_derived_cipher)
    prefix = _PURPOSE + _framed(key.key_id.encode()) + _framed(fingerprint.encode())
    drawn = [
        hmac.digest(secret, prefix + _framed(item) + digest, "sha256")[:16]
        for item, digest in zip(ids, digests, strict=True)
    ]
    starts = np.frombuffer(b"".join(drawn), dtype="<u8").reshape(-1, 2).astype(np.uint64)
    return WordStream(cipher, len(drawn), starts=starts)


def _derived_cipher(key: NoiseKey) -> BlockCipher:
    purpose = _PURPOSE + b" cipher" + _framed(key.key_id.encode())
    return BlockCipher(hmac.digest(key.secret_for_noise(), purpose, "sha256"))


def _framed(part: bytes) -> bytes:
    return len(part).to_bytes(8, "little") + part
