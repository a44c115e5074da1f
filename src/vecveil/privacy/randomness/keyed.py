"""Keyed noise: the same item under the same protector always gets the same words.

The counters of an item are the first 128 bits of HMAC-SHA256 under the secret key over the key id, the fingerprint of
every fitted parameter and the item id, each with its length, and the digest of the content. The words are AES-256 of
these counters, under an AES key derived from the same secret. Omitting any of the four would make it a two-time pad:
the same noise on two different vectors reveals their difference, the same noise at two scales reveals the vector.

Repeated releases of an item are equal, so averaging gains nothing; equal inputs are visibly equal; the guarantee holds
against attackers who cannot break AES and HMAC; and a holder of the key can remove the noise from every release made
with it.

Counters of N items of b blocks overlap with probability about b·N²/2¹²⁸: 2⁻³⁸ for 2⁴⁰ items of 2¹⁰ blocks.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Iterable, Sequence

import numpy as np

from vecveil.keys import NoiseKey, framed
from vecveil.privacy.randomness.kernel import BlockCipher, WordStream
from vecveil.types import Embeddings

_CODE_BITS = 6  # 2⁶ steps per root mean square of a row in `text_digests`
_CODE = np.dtype("<i8")
_PURPOSE = b"vecveil keyed noise 2"


def content_ids(X: Embeddings, texts: Sequence[str] | None) -> list[bytes]:
    """Return the digest of each text, or of each row of ``X`` (N, n), as the id of an item without one."""
    if texts is None:
        return list(row_digests(X))
    return [hashlib.sha256(t.encode("utf-8", "surrogatepass")).digest() for t in texts]


def row_digests(X: Embeddings) -> Iterable[bytes]:
    """Yield the SHA-256 of each row of ``X`` (N, n) as float64, independent of its dtype."""
    for row in X:
        yield hashlib.sha256((row.astype(np.float64) + 0.0).tobytes()).digest()  # −0 counts as 0


def text_digests(texts: Sequence[str], X: Embeddings, encoder_fingerprint: str) -> Iterable[bytes]:
    """Yield a digest of each text, of the encoder, and of the text's coarsely rounded vector, a row of ``X`` (N, n).

    Unlike a row's digest it rarely changes with the last bits of an encoder's arithmetic, which vary from batch to
    batch. The rounded vector (64 steps per root mean square of the row) separates vectors of one text that differ by
    more, such as releases of a different precision or scale: under equal noise their difference would reveal the text.
    """
    head = hashlib.sha256(b"text" + encoder_fingerprint.encode()).digest()
    for text, row in zip(texts, X, strict=True):
        wide = row.astype(np.float64)
        largest = float(np.abs(wide).max())
        rms = 1.0
        # Divide first, so that no square overflows.
        if largest > 0:
            shares = wide / largest
            rms = largest * math.sqrt(float((shares * shares).sum()) / shares.size)
        exponent = math.ceil(np.log2(rms)) - _CODE_BITS
        # No value exceeds √n times the root mean square, so the code fits an integer.
        code = np.rint(np.ldexp(wide, -exponent)).astype(_CODE)
        content = exponent.to_bytes(8, "little", signed=True) + code.tobytes()
        yield hashlib.sha256(head + framed(text.encode("utf-8", "surrogatepass")) + content).digest()


def keyed_stream(key: NoiseKey, ids: Sequence[bytes], digests: Iterable[bytes], fingerprint: str) -> WordStream:
    """Return the stream of the items.

    ``ids`` come from `check_ids`, ``digests`` from `row_digests` or `text_digests`, one for each id; ``fingerprint``
    covers everything that determines a release: `Protector.fingerprint`.
    """
    secret = key.secret_for_noise()
    cipher = _cipher(key)
    prefix = _PURPOSE + framed(key.key_id.encode()) + framed(fingerprint.encode())
    drawn = [
        # 128 of HMAC's 256 bits: the width of an AES counter block.
        hmac.digest(secret, prefix + framed(item) + digest, "sha256")[:16]
        for item, digest in zip(ids, digests, strict=True)
    ]
    starts = np.frombuffer(b"".join(drawn), dtype="<u8").reshape(-1, 2).astype(np.uint64)
    return WordStream(cipher, len(drawn), starts=starts)


def _cipher(key: NoiseKey) -> BlockCipher:
    """Return the cipher of noise, under a key derived from the secret: AES and HMAC never use the same one."""
    if not isinstance(key.noise_cipher, BlockCipher):
        purpose = _PURPOSE + b" cipher" + framed(key.key_id.encode())
        key.noise_cipher = BlockCipher(hmac.digest(key.secret_for_noise(), purpose, "sha256"))
    return key.noise_cipher
