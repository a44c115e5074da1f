"""How many rows are equal to another one, in memory that does not grow with the store."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

__all__ = ["EqualRows"]


class EqualRows:
    """Counts rows whose content another row has too.

    It keeps a hash of each different content while they are few. When they are many it keeps those whose hash ends in
    zeros: equal rows are then kept or left out together, and the count is an estimate.

    Args:
        capacity: hashes that are kept; about 150 bytes each.
    """

    def __init__(self, capacity: int = 1 << 18) -> None:
        self._capacity = capacity
        self._mask = 0
        self._seen: dict[int, int] = {}

    def add(self, contents: Iterable[bytes]) -> None:
        """Count the rows with these contents."""
        for content in contents:
            mark = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
            if mark & self._mask:
                continue
            self._seen[mark] = self._seen.get(mark, 0) + 1
            while len(self._seen) > self._capacity:
                self._mask = (self._mask << 1) | 1
                self._seen = {m: n for m, n in self._seen.items() if not m & self._mask}

    @property
    def is_exact(self) -> bool:
        """Whether every row was kept."""
        return self._mask == 0

    def count(self) -> int:
        """Return the number of rows that are equal to another one."""
        return sum(n for n in self._seen.values() if n > 1) * (self._mask + 1)
