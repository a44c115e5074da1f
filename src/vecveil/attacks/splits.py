"""Splits of texts into parts such that texts of one group never land in two parts.

Duplicates, near-duplicates and the two sides of a pair belong to one group: an attacker who has
seen one of them has seen the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from vecveil.errors import InvalidInputError
from vecveil.types import Texts
from vecveil.validation import check_count, check_positive, check_same_length, check_texts

__all__ = ["connect", "normalise_text", "split_groups", "text_groups"]

IndexArray = npt.NDArray[np.intp]


def normalise_text(text: str) -> str:
    """Return the letters and digits of ``text``, case folded; near-duplicates come out equal."""
    return "".join(c for c in text.casefold() if c.isalnum())


def text_groups(texts: Texts, ids: Any = None, *, pairs: Any = None) -> IndexArray:
    """Return the group of each text, (N,), numbered from 0 in order of appearance.

    Texts belong together if they agree in letters and digits, if they share an id, or if a pair
    joins them; groups are the connected components. A text without letters and digits is compared
    as it is.

    Args:
        texts: N texts.
        ids: N ids (of a pair, document, patient ...), or None; a None among them joins nothing.
        pairs: (P, 2) indices of texts that belong together, or None.
    """
    owner = "text_groups"
    given = check_texts(texts, owner=owner)
    keys = [normalise_text(text) or text for text in given]
    edges = [connect(keys)]
    if ids is not None:
        listed = list(ids)
        check_same_length(owner, ids=listed, texts=given)
        edges.append(connect(listed))
    if pairs is not None:
        joined = np.asarray(pairs)
        if joined.size == 0:
            joined = np.empty((0, 2), dtype=np.intp)
        if joined.ndim != 2 or joined.shape[1] != 2 or joined.dtype.kind not in "iu":
            raise InvalidInputError.of(owner, "pairs", "integers of shape (P, 2)",
                                       f"shape {joined.shape}, dtype {joined.dtype}")  # fmt: skip
        if joined.size and (joined.min() < 0 or joined.max() >= len(given)):
            raise InvalidInputError.of(
                owner, "pairs", f"indices from 0 to {len(given) - 1}", "an index outside"
            )
        edges.append(joined.astype(np.intp))
    both = np.concatenate(edges)
    size = (len(given), len(given))
    graph = coo_array((np.ones(len(both), dtype=np.int8), (both[:, 0], both[:, 1])), shape=size)
    _, labels = connected_components(graph, directed=False)
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    order = np.empty(len(first), dtype=np.intp)
    order[np.argsort(first)] = np.arange(len(first))
    groups: IndexArray = order[inverse.reshape(-1)]
    return groups


def connect(keys: Sequence[Any]) -> IndexArray:
    """Return edges (E, 2) from each row to the first with the same key; None joins nothing."""
    first: dict[Any, int] = {}
    edges = [(i, first.setdefault(key, i)) for i, key in enumerate(keys) if key is not None]
    return np.array(edges, dtype=np.intp).reshape(-1, 2)


def split_groups(groups: Any, shares: Sequence[float], *, seed: int = 0) -> list[IndexArray]:
    """Return the row indices of each part, sorted; a group is never divided.

    Groups are drawn in random order, and each goes to the part that is furthest below its share
    of the rows, so that every part gets at least one group.

    Args:
        groups: (N,) group ids.
        shares: Relative size of each part, such as ``(0.7, 0.3)``; each above 0.
        seed: Seed of the random order.

    Raises:
        InvalidInputError: fewer groups than parts.
    """
    owner = "split_groups"
    given = np.asarray(groups)
    if given.ndim != 1:
        raise InvalidInputError.of(owner, "groups", "of shape (N,)", f"shape {given.shape}")
    parts = check_count(len(shares), owner=owner, param="shares")
    wanted = np.array([check_positive(share, owner=owner, param="shares") for share in shares])
    values, index, counts = np.unique(given, return_inverse=True, return_counts=True)
    if len(values) < parts:
        raise InvalidInputError.of(owner, "groups", f"at least {parts} groups, one for each part",
                                   f"{len(values)} groups", "Texts of one group must not be in two parts.",
                                   "Give more texts that differ.")  # fmt: skip
    wanted = wanted / wanted.sum() * len(given)
    # A large group first: late, it could no longer be balanced. Among equals the order is random.
    seed = check_count(seed, owner=owner, param="seed", minimum=0)
    shuffled = np.random.default_rng(seed).permutation(len(values))
    sizeable = counts[shuffled] > wanted.min() / 10
    order = np.concatenate([shuffled[sizeable], shuffled[~sizeable]])
    filled = np.zeros(parts)
    part_of = np.empty(len(values), dtype=np.intp)
    left = len(values)
    for group in order:
        empty = filled == 0
        candidates = np.flatnonzero(empty) if empty.sum() >= left else np.arange(parts)
        part = candidates[np.argmax(((wanted - filled) / wanted)[candidates])]
        part_of[group] = part
        filled[part] += counts[group]
        left -= 1
    rows = part_of[index.reshape(-1)]
    return [np.flatnonzero(rows == part) for part in range(parts)]
