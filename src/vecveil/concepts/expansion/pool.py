"""The members of all sources in one pool: once each, in groups, each beside the listed terms it is like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vecveil.concepts.expansion.grouping import nearest
from vecveil.concepts.expansion.sources import (
    ExpansionContext,
    MemberSource,
    checked_members,
    unit_vectors,
)
from vecveil.concepts.folding import canonical

__all__ = ["MemberPool", "gather"]


@dataclass(frozen=True, eq=False, repr=False)
class MemberPool:
    """Members by group. It holds text: keep it in memory.

    Attributes:
        groups: members of each group; no member is listed, none comes twice.
        places: for each member of each group the group of listed terms that it takes the place of.
        by_source: for each source its name, and how many members it gave and kept.
    """

    groups: tuple[tuple[str, ...], ...]
    places: tuple[tuple[int, ...], ...]
    by_source: tuple[dict[str, int | str], ...]

    def __repr__(self) -> str:
        return f"MemberPool({sum(map(len, self.groups))} members, {len(self.groups)} groups)"


def gather(sources: Sequence[MemberSource], context: ExpansionContext, *, most: int) -> MemberPool:
    """Ask every source, drop what is listed or known from an earlier source, and place the rest.

    Args:
        most: members at most; groups are cut to the same size first, so that a long list of names
            does not crowd out a short one of numbers.
    """
    seen: set[str] = set()
    groups: list[list[str]] = []
    owners: list[int] = []
    named: list[bool] = []
    proposed: list[int] = []
    rng = np.random.default_rng([context.seed, 1])
    for s, source in enumerate(sources):
        found = checked_members(source, source.members(context))
        proposed.append(sum(map(len, found.values())))
        for group, members in found.items():
            fresh = []
            for member in members:
                key = canonical(member)
                if key not in seen and not context.is_listed(member):
                    seen.add(key)
                    fresh.append(member)
            if fresh:
                groups.append(fresh)
                owners.append(s)
                named.append(bool(group))
    size = _fair_size([len(group) for group in groups], most)
    groups = [_drawn(group, size, rng) for group in groups]
    flat = [member for group in groups for member in group]
    places = np.zeros(len(flat), dtype=np.intp)
    if context.centroids is not None and flat:
        vectors = unit_vectors(context.encoder, flat)
        places = nearest(vectors, context.centroids)[0]
    split: list[tuple[str, ...]] = []
    beside: list[tuple[int, ...]] = []
    counts: Counter[int] = Counter()
    start = 0
    for drawn, owner, has_name in zip(groups, owners, named, strict=True):
        own = places[start : start + len(drawn)].tolist()
        start += len(drawn)
        counts[owner] += len(drawn)
        # Without a name the place is the group.
        parts = [set(own)] if has_name else [{place} for place in sorted(set(own))]
        for part in parts:
            rows = [i for i, place in enumerate(own) if place in part]
            split.append(tuple(drawn[i] for i in rows))
            beside.append(tuple(own[i] for i in rows))
    by_source: list[dict[str, int | str]] = [
        {"source": source.name, "proposed": proposed[s], "members": counts[s]}
        for s, source in enumerate(sources)
    ]
    return MemberPool(tuple(split), tuple(beside), tuple(by_source))


def _fair_size(sizes: Sequence[int], most: int) -> int:
    """Return the largest size that groups may have so that together they hold at most ``most``."""
    low, high = 1, max([*sizes, 1])
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(size, middle) for size in sizes) <= most:
            low = middle
        else:
            high = middle - 1
    return low


def _drawn(group: list[str], size: int, rng: np.random.Generator) -> list[str]:
    if len(group) <= size:
        return group
    rows = np.sort(rng.choice(len(group), size=size, replace=False))
    return [group[i] for i in rows]
