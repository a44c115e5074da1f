"""Encrypted objects of which any part can be read: a content in blocks, each with its own tag.

::

    object = magic (16 bytes) | length of the header (4) | header | blocks
    header = {"key_id": …, "wrapped": …}, the object's key under a key of the index
    block  = AES-256-GCM(16 KiB of the content) | tag (16); the last block may be shorter
    nonce  = number of the block from 0 (11 bytes, big endian) | 1 for the last block, else 0
    associated = "vecveil segment 3 " | index UUID (16) | name of the object

The key is random and encrypts one object, which is written once: so no nonce repeats. The mark of the last block makes
a shortened object one that does not open (STREAM: Hoang, Reyhanitabar, Rogaway and Vizár, CRYPTO 2015).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import IO, Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct

from vecveil.errors import KeyFileError, SealingError, StoreError
from vecveil.index.index_keys import IndexKeys, KeyId

MAGIC = b"vecveil segment3"
BLOCK = 1 << 14
_TAG = 16
_MOST_HEADER = 1 << 16
_HEAD = 4096  # bytes read at first, most often with the whole header
_KEPT = 256  # blocks of each remote object that stay in memory: 4 MiB
Bytes = npt.NDArray[np.uint8]
Spans = Sequence[tuple[int, int]]


class _Header(Struct, frozen=True, forbid_unknown_fields=True):
    """The part of an object in clear."""

    key_id: KeyId
    wrapped: bytes


class Readable(Protocol):
    """An object that is read at positions; it stays readable when somebody deletes it.

    Attributes:
        size: of the object.
        far: whether a read is a request over a network.
    """

    @property
    def size(self) -> int: ...

    @property
    def far(self) -> bool: ...

    def spans(self, wanted: Spans) -> list[bytes]:
        """Return the bytes from start to end of each span."""

    def close(self) -> None: ...


class BlockWriter:
    """Encrypts a content to an empty file, in order.

    Attributes:
        length: bytes written of the content.
        front: SHA-256 of what precedes the blocks.
    """

    def __init__(self, file: IO[bytes], name: str, keys: IndexKeys, key_id: str) -> None:
        key = AESGCM.generate_key(256)
        header = msgspec.json.encode(_Header(key_id, keys.wrap(key, name, key_id)))
        self._file, self._cipher, self._context = file, AESGCM(key), _context(keys, name)
        self._digest, self._number, self._rest, self.length, self._size = hashlib.sha256(), 0, b"", 0, 0
        front = MAGIC + len(header).to_bytes(4, "little") + header
        self.front = hashlib.sha256(front).hexdigest()
        self._put(front)

    def write(self, content: Any) -> None:
        """Append bytes or a contiguous array."""
        view = memoryview(content).cast("B")
        self.length += len(view)
        at = 0
        if self._rest and len(self._rest) + len(view) > BLOCK:
            at = BLOCK - len(self._rest)
            self._seal(self._rest + view[:at], last=False)
            self._rest = b""
        while len(view) - at > BLOCK:  # one block at least is left for `close`
            self._seal(view[at : at + BLOCK], last=False)
            at += BLOCK
        self._rest += view[at:]

    def close(self) -> tuple[str, int]:
        """Write the last block; return the SHA-256 of the object and its size."""
        self._seal(self._rest, last=True)
        return self._digest.hexdigest(), self._size

    def _seal(self, block: Any, *, last: bool) -> None:
        self._put(self._cipher.encrypt(_nonce(self._number, last), block, self._context))
        self._number += 1

    def _put(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)
        self._size += len(data)


class BlockReader:
    """Decrypts parts of an object.

    Args:
        again: fetches the object anew; called where a local copy is damaged.
        front: SHA-256 of what precedes the blocks, and thus of their key; None if it is unknown. A process that only
            adds can wrap another key for this name.

    Attributes:
        length: of the content.

    Raises:
        SealingError: the object is damaged.
        KeyFileError: no key of the index opens it.
    """

    def __init__(
        self,
        source: Readable,
        name: str,
        keys: IndexKeys,
        again: Callable[[], Readable] | None = None,
        front: str | None = None,
    ) -> None:
        self.name, self._keys, self._again, self._front = name, keys, again, front
        self._kept: dict[int, bytes] = {}
        self._closed = False
        try:
            self._open(source)
        except (SealingError, KeyFileError):
            if again is None:
                raise
            self._open(again())

    def _open(self, source: Readable) -> None:
        try:
            front = source.spans([(0, min(_HEAD, source.size))])[0]
            size = int.from_bytes(front[len(MAGIC) : len(MAGIC) + 4], "little")
            self._start = len(MAGIC) + 4 + size
            if front[: len(MAGIC)] != MAGIC or size > _MOST_HEADER:
                raise ValueError
            if self._start > len(front):
                front = source.spans([(0, self._start)])[0]
            if self._front not in (None, hashlib.sha256(front[: self._start]).hexdigest()):
                raise ValueError
            header = msgspec.json.decode(front[len(MAGIC) + 4 : self._start], type=_Header)
            key = self._keys.unwrap(header.wrapped, header.key_id, self.name)
            self._cipher, self._context = AESGCM(key), _context(self._keys, self.name)
            body = source.size - self._start
            self._count = -(-body // (BLOCK + _TAG))
            self.length = body - self._count * _TAG
            if self.length <= max(self._count - 1, 0) * BLOCK:  # nobody would read the last block, which is marked
                raise ValueError
        except BaseException as error:
            source.close()
            raise self._not_opened(error) from error
        self._source = source

    def read(self, spans: Spans) -> list[bytes]:
        """Return the content from start to end of each span."""
        wanted: set[int] = set()
        for start, stop in spans:
            if not 0 <= start <= stop <= self.length:
                raise self._not_opened(ValueError())
            if start < stop:
                wanted.update(range(start // BLOCK, -(-stop // BLOCK)))
        numbers = sorted(wanted)
        content = dict(zip(numbers, self._blocks(numbers), strict=True))
        parts = []
        for start, stop in spans:
            first, last = start // BLOCK, (stop - 1) // BLOCK
            if start >= stop:
                parts.append(b"")
            elif first == last:
                parts.append(content[first][start - first * BLOCK : stop - first * BLOCK])
            else:
                middle = (content[number] for number in range(first + 1, last))
                ends = content[first][start - first * BLOCK :], content[last][: stop - last * BLOCK]
                parts.append(b"".join([ends[0], *middle, ends[1]]))
        return parts

    def gather(self, starts: npt.NDArray[np.int64], width: int, *, encrypted: bool = False) -> Bytes:
        """Return ``width`` bytes of the content from each of ``starts`` on, (N, width).

        Args:
            encrypted: return the bytes of the ciphertext instead, for an audit.
        """
        if not len(starts) or not width:
            return np.empty((len(starts), width), np.uint8)
        if starts.min() < 0 or starts.max() + width > self.length:
            raise self._not_opened(ValueError())
        first, last = starts // BLOCK, (starts + width - 1) // BLOCK
        numbers = np.unique(np.minimum(first[:, None] + np.arange((width - 1) // BLOCK + 2), last[:, None]))
        # All blocks of a row follow each other in the buffer, too.
        buffer = np.frombuffer(b"".join(self._blocks(numbers.tolist(), encrypted=encrypted)), np.uint8)
        at = np.searchsorted(numbers, first) * BLOCK + starts % BLOCK
        rows: Bytes = np.lib.stride_tricks.sliding_window_view(buffer, width)[at]
        return rows

    def check(self) -> None:
        """Decrypt every block."""
        for start in range(0, self._count, 512):
            self._blocks(list(range(start, min(start + 512, self._count))))

    def close(self) -> None:
        self._closed = True
        self._source.close()

    def _blocks(self, numbers: Sequence[int], *, encrypted: bool = False) -> list[bytes]:
        """Return the content of blocks, whose ``numbers`` are sorted."""
        if not self._source.far or encrypted:
            return self._fetched(numbers, encrypted)
        kept = self._kept  # other threads replace it, and change none
        lacking = [number for number in numbers if number not in kept]
        new = dict(zip(lacking, self._fetched(lacking, encrypted), strict=True))
        if len(new) <= _KEPT // 4:
            self._kept = new if len(kept) + len(new) > _KEPT else {**kept, **new}
        return [new[number] if number in new else kept[number] for number in numbers]

    def _fetched(self, numbers: Sequence[int], encrypted: bool) -> list[bytes]:
        runs: list[list[int]] = []  # numbers that follow each other
        for number in numbers:
            if runs and runs[-1][1] == number:
                runs[-1][1] += 1
            else:
                runs.append([number, number + 1])
        step = BLOCK + _TAG
        for again in (self._again, None):
            source, result = self._source, list[bytes]()
            try:
                ends = [(self._start + a * step, min(self._start + b * step, source.size)) for a, b in runs]
                for (number, stop), raw in zip(runs, source.spans(ends), strict=True):
                    view = memoryview(raw)
                    for i in range(stop - number):
                        block = view[i * step : (i + 1) * step]
                        if encrypted:
                            result.append(bytes(block[:-_TAG]))
                        else:
                            nonce = _nonce(number + i, number + i == self._count - 1)
                            result.append(self._cipher.decrypt(nonce, block, self._context))
                return result
            except (InvalidTag, ValueError, OSError) as error:
                if self._closed:
                    raise closed(self.name) from None
                if again is None:
                    raise self._not_opened(error if isinstance(error, FileNotFoundError) else ValueError()) from error
                source.close()
                self._open(again())
        raise AssertionError

    def _not_opened(self, error: BaseException) -> BaseException:
        return not_opened(self.name, error)


def closed(name: str) -> StoreError:
    """Return the error of an index that was closed."""
    return StoreError(f"The index is closed: {name}. Open it again with SealedIndex(...).", code="E-INDEX-CLOSED")


def not_opened(name: str, error: BaseException) -> BaseException:
    """Return the error for the object ``name``, which raised ``error``."""
    wrong = InvalidTag | ValueError | KeyError | TypeError | msgspec.MsgspecError
    if isinstance(error, wrong) and not isinstance(error, KeyFileError):
        return SealingError(
            f"{name} does not open: the file was cut, altered or exchanged. Restore it from a backup of the storage.",
            code="E-SEAL-OPEN",
        )
    return error


def _context(keys: IndexKeys, name: str) -> bytes:
    return b"vecveil segment 3 " + keys.uuid.bytes + name.encode()


def _nonce(number: int, last: bool) -> bytes:
    return number.to_bytes(11, "big") + (b"\1" if last else b"\0")
