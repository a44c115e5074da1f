"""Sealed search against a brute-force ranking of the stored values, over distributions that are hard for the codes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from vecveil.index import SealedIndex
from vecveil.index.blob import quantised
from vecveil.index.scan import Codes, VectorScan, encoded, nearest

ROWS, N, QUERIES, TOP = 21_000, 48, 16, 10  # more rows than an exact scan takes
RECALL = 0.999
TIE = 1e-6  # cosines in float32; the stored precision is coarser
Array = npt.NDArray[Any]
Draw = Callable[[np.random.Generator, int, int], Array]


def unit(X: Array) -> Array:
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def clusters(count: int, width: float = 0.6) -> Draw:
    def draw(rng: np.random.Generator, rows: int, n: int) -> Array:
        centres = rng.standard_normal((count, n))
        return centres[rng.integers(0, count, rows)] + width * rng.standard_normal((rows, n))

    return draw


def near_duplicates(cosine: float) -> Draw:
    def draw(rng: np.random.Generator, rows: int, n: int) -> Array:
        X, copies = rng.standard_normal((rows, n)), rows // 6
        around = np.sqrt(1 / cosine**2 - 1) * unit(rng.standard_normal((copies, n)))
        X[rng.permutation(rows)[:copies]] = 3 * (unit(rng.standard_normal((1, n))) + around)
        return X

    return draw


def scaled(scales: Callable[[int], Array]) -> Draw:
    return lambda rng, rows, n: rng.standard_normal((rows, n)) * scales(n)


def with_lengths(lengths: Callable[[np.random.Generator, int], Array]) -> Draw:
    return lambda rng, rows, n: unit(clusters(400)(rng, rows, n)) * lengths(rng, rows)[:, None]


def mostly_constant(rng: np.random.Generator, rows: int, n: int) -> Array:
    X = np.ones((rows, n))
    X[:, : n // 10] = rng.standard_normal((rows, n // 10))
    return X


def sparse(rng: np.random.Generator, rows: int, n: int) -> Array:
    X = rng.standard_normal((rows, n)) * (rng.random((rows, n)) < 0.03)
    X[np.arange(rows), rng.integers(0, n, rows)] += 1
    return X


def mixed(rng: np.random.Generator, rows: int, n: int) -> Array:
    X = rng.standard_normal((rows, n))
    X[rng.permutation(rows)[: rows // 500], n // 2] = 40
    return X


DRAWS: dict[str, Draw] = {
    "random": scaled(np.ones),
    "400 clusters": clusters(400),
    "50 clusters": clusters(50),
    "tight cluster": clusters(1, 0.05),
    "near-duplicates .917": near_duplicates(0.917),
    "near-duplicates .99": near_duplicates(0.99),
    "near-duplicates .999": near_duplicates(0.999),
    "dominant dimension": scaled(lambda n: np.where(np.arange(n) == 0, 100, 1)),
    "mostly constant": mostly_constant,
    "sparse": sparse,
    "one-hot": lambda rng, rows, n: np.eye(n)[rng.integers(0, n, rows)] + 0.001 * rng.standard_normal((rows, n)),
    "heavy tails": lambda rng, rows, n: rng.standard_t(1.5, (rows, n)).clip(-6e4, 6e4),
    "spectrum 1/i": scaled(lambda n: 1 / np.arange(1, n + 1)),
    "spectrum 1/i²": scaled(lambda n: 1 / np.arange(1, n + 1) ** 2),
    "mean offset": lambda rng, rows, n: rng.standard_normal((rows, n)) + 3,
    "a rare large value": mixed,
    "in order of clusters": lambda rng, rows, n: clusters(20)(rng, rows, n)[np.argsort(rng.integers(0, 20, rows))],
    "lengths .1": with_lengths(lambda rng, rows: np.full(rows, 0.1)),
    "lengths 10": with_lengths(lambda rng, rows: np.full(rows, 10)),
    "lengths lognormal": with_lengths(lambda rng, rows: rng.lognormal(0, 1, rows)),
    "lengths over six orders": with_lengths(lambda rng, rows: 10 ** rng.uniform(-2, 4, rows)),
    "one of two is longer": with_lengths(lambda rng, rows: np.where(np.arange(rows) < rows // 2, 1, 3)),
}


def drawn(name: str, precision: str, rows: int = ROWS, n: int = N) -> tuple[Array, Array, Array]:
    """Return vectors, their stored values and queries: rows, and vectors beside rows."""
    rng = np.random.default_rng(len(name))
    X = DRAWS[name](rng, rows, n).astype(np.float32)
    stored, _ = quantised(X, precision)
    queries = X[rng.permutation(rows)[:QUERIES]].astype(np.float64)
    queries[::2] += 0.3 * X.std(axis=0) * rng.standard_normal((QUERIES // 2, n))
    return X, stored, unit(queries).astype(np.float32)


def cosines(stored: Array, queries: Array) -> Array:
    S = stored.astype(np.float64)
    return np.asarray((queries.astype(np.float64) @ S.T) / np.linalg.norm(S, axis=1))


def recall(exact: Array, found: list[Array]) -> float:
    """Return the share of the hits whose cosine reaches the last of the exact ten; ``exact`` is -2 outside a filter."""
    hits = 0
    for values, rows in zip(exact, found, strict=True):
        assert len(set(rows.tolist())) == len(rows)
        hits += int(np.count_nonzero(values[rows] >= np.sort(values)[-TOP] - TIE))
    return hits / (TOP * len(found))


def opened(folder: Path, precision: str = "float16") -> SealedIndex:
    return SealedIndex(folder / "notes", os.urandom(32), precision=precision)


@pytest.mark.parametrize("precision", ["float16", "int8"])
@pytest.mark.parametrize("name", DRAWS)
def test_search_finds_the_exact_ten(tmp_path: Path, name: str, precision: str) -> None:
    X, stored, queries = drawn(name, precision)
    with opened(tmp_path, precision) as index:
        index.add(None, ids=[str(i) for i in range(ROWS)], vectors=X)
        hits = [index.search(q, top=TOP) for q in queries]
    exact, found = cosines(stored, queries), [np.array(hit.ids, int) for hit in hits]
    assert recall(exact, found) >= RECALL
    for values, rows, hit in zip(exact, found, hits, strict=True):
        assert np.allclose(hit.scores, values[rows], atol=1e-5)


@pytest.mark.parametrize("n", [2, 3, 5, 7, 9, 384])
def test_search_finds_the_exact_ten_in_few_and_in_many_dimensions(tmp_path: Path, n: int) -> None:
    X, stored, queries = drawn("400 clusters", "float16", n=n)
    with opened(tmp_path) as index:
        index.add(None, ids=[str(i) for i in range(len(X))], vectors=X)
        found = [np.array(index.search(q, top=TOP).ids, int) for q in queries]
    assert recall(cosines(stored, queries), found) >= RECALL


@pytest.mark.parametrize("name", ["random", "400 clusters", "lengths lognormal", "near-duplicates .99"])
@pytest.mark.parametrize("sizes", [(60_000,), (25_000, 30_000, 300, 4_700), (59_999, 1)])
def test_rows_of_several_segments_are_ranked_as_those_of_one(name: str, sizes: tuple[int, ...]) -> None:
    _, stored, queries = drawn(name, "float16", sum(sizes))
    ends = np.cumsum(sizes)
    parts = [VectorScan(part, None) for part in np.split(stored, ends[:-1])]
    masks = [np.ones(size, bool) for size in sizes]
    found = []
    for q in queries:
        owners, rows, _ = nearest(q, list(zip(parts, masks, strict=True)), TOP, 200)
        found.append(rows + (ends - sizes)[owners])
    assert recall(cosines(stored, queries), found) >= RECALL


@pytest.mark.parametrize("name", ["random", "near-duplicates .99"])
def test_filters_leave_the_exact_ten_of_their_rows(name: str) -> None:
    rows = 720_000  # of which 3 % are more than an exact scan takes
    _, stored, queries = drawn(name, "float16", rows, 8)
    scan, exact = VectorScan(stored, None), cosines(stored, queries)
    draws = np.random.default_rng(0).random(rows)
    for mask in (draws < 0.03, draws < 0.9, stored[:, 0] < 0):
        found = [nearest(q, [(scan, mask)], TOP, 200)[1] for q in queries]
        assert recall(np.where(mask, exact, -2), found) >= RECALL


@pytest.mark.parametrize("name", ["random", "400 clusters"])
def test_the_codes_spare_an_exact_scan_where_they_can(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, stored, queries = drawn(name, "float16", 60_000, 128)
    scan, scanned, ranked = VectorScan(stored, None), VectorScan.cosines, []
    monkeypatch.setattr(VectorScan, "cosines", lambda *given: ranked.append(len(given[2])) or scanned(*given))
    found = [nearest(q, [(scan, np.ones(len(stored), bool))], TOP, 200)[1] for q in queries]
    assert recall(cosines(stored, queries), found) >= RECALL
    assert sum(ranked) / QUERIES < len(stored) / 8


def test_more_rows_than_candidates_are_exact() -> None:
    _, stored, queries = drawn("400 clusters", "float16")
    scan, exact = VectorScan(stored, None), cosines(stored, queries)
    for q, values in zip(queries, exact, strict=True):
        _, rows, _ = nearest(q, [(scan, np.ones(ROWS, bool))], 700, 5)
        assert np.allclose(values[rows], np.sort(values)[::-1][:700], atol=TIE)


def test_equal_rows_are_equal_hits() -> None:
    stored = np.tile(np.random.default_rng(0).standard_normal(N).astype(np.float16), (ROWS, 1))
    q = unit(stored[:1].astype(np.float32))[0]
    _, rows, scores = nearest(q, [(VectorScan(stored, None), np.ones(ROWS, bool))], TOP, 200)
    assert len(set(rows.tolist())) == TOP
    assert np.allclose(scores, 1, atol=TIE)


def test_rows_of_zeros_have_the_cosine_zero() -> None:
    stored = np.zeros((ROWS, N), np.float16)
    stored[-1, 0] = 1
    q = np.eye(1, N, dtype=np.float32)[0]
    _, rows, scores = nearest(q, [(VectorScan(stored, None), np.ones(ROWS, bool))], 2, 200)
    assert rows[0] == ROWS - 1
    assert scores.tolist() == [1, 0]


def test_rows_that_their_codes_do_not_describe_are_ranked_exactly() -> None:
    assert Codes(**dict(encoded(drawn("400 clusters", "float16")[1]))).poor.size < ROWS / 100
    assert not Codes(**dict(encoded(drawn("sparse", "float16")[1]))).useful
