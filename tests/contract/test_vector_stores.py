"""Contract of every vector store, each with its real database."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.store_factories import STORES, StoreCase, release
from vecveil.errors import IncompatibleError, InvalidInputError, StoreError, VecveilError
from vecveil.stores import KINDS, Batch, VectorStore, open_store
from vecveil.stores.locations import in_this_process

Open = Callable[..., VectorStore]
_names = itertools.count()


@pytest.fixture(params=sorted(STORES), scope="module")
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def case(kind: str) -> StoreCase:
    return STORES[kind]


@pytest.fixture(scope="module")
def folder(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(kind)


@pytest.fixture
def location(case: StoreCase, folder: Path) -> str:
    """Return a place where nothing is yet."""
    return case.locate(folder, f"rows_{next(_names)}")


@pytest.fixture
def store(location: str) -> Iterator[VectorStore]:
    with in_this_process(location) as opened:  # a process of its own answers alike: unit/stores/test_apart.py
        yield opened


def rows(count: int, dimension: int = 6, *, seed: int = 0, fields: bool = True) -> Batch:
    """Return rows whose values use all bits of float32, in no sorted order of ids."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((count, dimension)).astype(np.float32)
    ids = tuple(str(one) for one in rng.permutation(10 * count)[:count] + 1)
    beside = tuple({"page": i, "source": f"s{i}"} if fields else {} for i in range(count))
    return Batch(ids, X, beside)


def everything(store: VectorStore, size: int = 1000, after: str = "") -> list[Batch]:
    return list(store.batches(size, after=after))


def ids_of(batches: list[Batch]) -> list[str]:
    return [one for batch in batches for one in batch.ids]


def assert_same_rows(store: VectorStore, written: Batch, read: Batch) -> None:
    """Assert that ``read`` holds ``written``: bit for bit, or in direction where the store normalises."""
    place = {name: at for at, name in enumerate(read.ids)}
    assert set(place) == set(written.ids)
    assert len(read) == len(written)
    order = [place[name] for name in written.ids]
    assert read.vectors.dtype == np.float32
    if store.normalises:
        A, B = (
            X / np.linalg.norm(X, axis=1, keepdims=True)
            for X in (read.vectors[order].astype(np.float64), written.vectors.astype(np.float64))
        )
        np.testing.assert_allclose(A, B, atol=1e-6)
    else:
        assert read.vectors[order].tobytes() == written.vectors.tobytes()
    for at, fields in zip(order, written.fields, strict=True):
        assert dict(read.fields[at]) == dict(fields)


def test_every_store_has_a_case() -> None:
    assert {*STORES, "faiss"} == set(KINDS)  # FAISS is a source only


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_rows_come_back(store: VectorStore, case: StoreCase, metric: str) -> None:
    batch = rows(40, fields=case.fields)
    store.create(6, metric=metric)
    store.write(batch)
    assert_same_rows(store, batch, store.read(batch.ids))
    assert store.read(batch.ids).ids == batch.ids
    assert_same_rows(store, batch, Batch.joined(everything(store)))
    info = store.info()
    assert (info.count, info.dimension) == (40, 6)
    assert info.metric in (metric, None)
    if metric == "euclidean":
        assert not store.normalises, "without cosines vectors come back bit for bit"


def test_rows_are_there_for_the_next_who_opens_it(location: str, case: StoreCase) -> None:
    batch = rows(7, fields=case.fields)
    with in_this_process(location) as store:
        store.create(6, metric="cosine")
        store.write(batch)
        read = store.read(batch.ids)
        store.search(batch.vectors[0], 1)
        release(store)  # as another process sees it
    with open_store(location) as again:
        assert again.exists()
        assert_same_rows(again, batch, again.read(batch.ids))
        assert again.read(batch.ids).vectors.tobytes() == read.vectors.tobytes()


def test_many_rows_in_a_stable_order(store: VectorStore, case: StoreCase) -> None:
    tenth = case.many // 10
    batch = rows(case.many, fields=case.fields)
    store.create(6, metric="euclidean")
    store.write(batch.rows(range(9 * tenth)))
    store.write(batch.rows(range(9 * tenth, case.many)))
    size = case.many * 7 // 30
    first, second = everything(store, size), everything(store, case.many // 3)
    assert [len(one) for one in first] == [size] * 4 + [case.many - 4 * size]
    assert ids_of(first) == ids_of(second)
    assert_same_rows(store, batch, Batch.joined(first))


def test_reading_goes_on_behind_each_batch(store: VectorStore, case: StoreCase) -> None:
    batch = rows(23, fields=case.fields)
    store.create(6, metric="euclidean")
    store.write(batch)
    whole = everything(store, 5)
    assert all(isinstance(one.cursor, str) and one.cursor for one in whole)
    for at, one in enumerate(whole):
        rest = everything(store, 5, after=one.cursor)
        assert ids_of(rest) == ids_of(whole[at + 1 :])
    assert everything(store, 4, after=whole[-1].cursor) == []
    assert len(ids_of(everything(store, 1))) == 23


def test_a_cursor_of_something_else_is_refused(store: VectorStore) -> None:
    store.create(6)
    store.write(rows(3, fields=False))
    with pytest.raises((InvalidInputError, StoreError)):
        everything(store, after="no cursor: {'}")


def test_writing_again_replaces(store: VectorStore, case: StoreCase) -> None:
    old, new = rows(12, fields=case.fields), rows(12, seed=0, fields=case.fields)
    store.create(6, metric="euclidean")
    store.write(old)
    other = {"page": 99} if case.fields else {}
    new = Batch(old.ids, np.float32(2) * old.vectors[::-1], ({**other},) * 12)
    store.write(new.rows(range(5)))
    assert store.info().count == 12
    assert_same_rows(store, new.rows(range(5)), store.read(old.ids[:5]))
    assert_same_rows(store, old.rows(range(5, 12)), store.read(old.ids[5:]))
    assert sorted(ids_of(everything(store, 5))) == sorted(old.ids)


def test_rows_that_are_not_there_are_refused(store: VectorStore) -> None:
    batch = rows(3, fields=False)
    store.create(6)
    store.write(batch)
    with pytest.raises(StoreError):
        store.read([batch.ids[0], "987654321"])
    assert store.read(batch.ids[::-1]).ids == batch.ids[::-1]
    assert store.read([batch.ids[1], batch.ids[1]]).ids == (batch.ids[1],) * 2


def test_a_collection_that_is_not_there(store: VectorStore, location: str) -> None:
    assert not store.exists()
    calls: tuple[Callable[[], Any], ...] = (
        store.info,
        lambda: everything(store),
        lambda: store.read(["1"]),
        lambda: store.write(rows(2, fields=False)),
    )
    for call in calls:
        with pytest.raises(StoreError) as caught:
            call()
        assert caught.value.__cause__ is None
    assert not store.exists(), "looking creates nothing"


def test_another_dimension_is_refused(store: VectorStore, location: str) -> None:
    store.create(6)
    store.create(6)
    with pytest.raises((StoreError, IncompatibleError)):
        store.create(7)
    store.write(rows(2, fields=False))
    with in_this_process(location) as again:
        with pytest.raises((StoreError, IncompatibleError)):
            again.create(7)
        with pytest.raises(VecveilError):
            again.write(rows(2, 7, seed=1, fields=False))
        assert again.info().count == 2


def test_a_collection_that_another_client_makes_meanwhile_is_taken(
    store: VectorStore, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_this_process(location) as late, in_this_process(location) as other:
        exists = late.exists
        for dimension in (6, 7):
            answers = iter([False])  # as before the other client made it
            monkeypatch.setattr(late, "exists", lambda answers=answers: next(answers, None) is None and exists())
            other.create(6, metric="euclidean", filter_fields=("tenant",))
            with pytest.raises(StoreError) if dimension == 7 else contextlib.nullcontext() as caught:
                late.create(dimension, metric="euclidean", filter_fields=("tenant",))
            assert caught is None or caught.value.param == "dimension"
        late.write(rows(3, fields=False))
        assert (other.count(), other.info().dimension) == (3, 6)


def test_an_empty_store(store: VectorStore) -> None:
    store.create(6)
    assert store.exists()
    assert store.info().count == 0
    assert everything(store) == []
    store.write(Batch((), np.empty((0, 6), dtype=np.float32), ()))
    assert store.info().count == 0
    with pytest.raises(StoreError):
        store.read(["1"])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(store: VectorStore, bad: float) -> None:
    store.create(6)
    batch = rows(3, fields=False)
    batch.vectors[1, 2] = bad
    with pytest.raises(InvalidInputError):
        store.write(batch)
    assert store.info().count == 0, "nothing of the batch is written"


def test_ids_and_fields_in_any_writing(store: VectorStore, case: StoreCase) -> None:
    ids = ("ä/ö", "文書 1", "o'neil\";--", "🙂", "a,b\nc", "7", "x" * 60)
    X = rows(7).vectors
    fields: tuple[dict[str, Any], ...] = tuple(
        {"größe": i, "titel": f"naïve 文 {i}", "flag": i % 2 == 0, "score": i / 3} for i in range(7)
    )
    store.create(6, metric="euclidean")
    if not case.text_ids:
        with pytest.raises((InvalidInputError, StoreError)):
            store.write(Batch(ids, X, ({},) * 7))
        assert store.info().count == 0
        return
    batch = Batch(ids, X, fields if case.fields else ({},) * 7)
    store.write(batch)
    assert_same_rows(store, batch, store.read(ids))
    assert_same_rows(store, batch, Batch.joined(everything(store, 2)))


def test_an_error_repeats_nothing_of_the_rows(store: VectorStore) -> None:
    store.create(6)
    secret = "the-patient-takes-ibuprofen"
    batch = Batch((secret,), np.full((1, 7), 0.1234567, dtype=np.float32), ({"text": secret},))
    with pytest.raises(VecveilError) as caught:
        store.write(batch)
    assert secret not in str(caught.value)
    assert "0.12345" not in str(caught.value)


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
def test_a_search_returns_the_nearest_rows(store: VectorStore, case: StoreCase, metric: str) -> None:
    if metric == "dot" and store.kind == "sqlite-vec":
        with pytest.raises(InvalidInputError):
            store.create(6, metric=metric)
        return
    batch = rows(40, fields=case.fields)
    store.create(6, metric=metric)
    store.write(batch)
    X, query = batch.vectors.astype(np.float64), np.linspace(-1, 1, 6)
    products = X @ query
    distances = {
        "cosine": -products / np.linalg.norm(X, axis=1),
        "dot": -products,
        "euclidean": np.linalg.norm(X - query, axis=1),
    }[metric]
    order = np.argsort(distances)[:7]
    hits = store.search(query, k=7)
    assert [str(hit.id) for hit in hits] == [batch.ids[i] for i in order]
    assert [hit.distance for hit in hits] == sorted(hit.distance for hit in hits)
    assert [dict(hit.fields) for hit in hits] == [dict(batch.fields[i]) for i in order]
    with pytest.raises(InvalidInputError):
        store.search(np.full(6, np.nan))
    with pytest.raises(VecveilError):
        store.search(query[:5])


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_a_search_takes_the_nearest_of_the_matching_rows(store: VectorStore, metric: str) -> None:
    batch = rows(60)
    sources = [("a", "b", 'it\'s "c"')[i % 3] for i in range(60)]
    fields = tuple(
        {"source": source, **({"Year": "2026"} if i < 30 else {}), "page": i} for i, source in enumerate(sources)
    )
    batch = Batch(batch.ids, batch.vectors, fields)
    store.create(6, metric=metric, filter_fields=("source", "Year"))
    store.create(6, filter_fields=("source",))
    store.write(batch)
    X, query = batch.vectors.astype(np.float64), np.linspace(-1, 1, 6)
    lengths = np.linalg.norm(X, axis=1)
    distances = -X @ query / lengths if metric == "cosine" else np.linalg.norm(X - query, axis=1)
    order = [int(i) for i in np.argsort(distances)]

    def nearest(k: int, where: dict[str, list[str]]) -> list[str]:
        return [str(hit.id) for hit in store.search(query, k, where)]

    quoted = [i for i in order if sources[i] == 'it\'s "c"']
    assert nearest(20, {"source": ['it\'s "c"']}) == [batch.ids[i] for i in quoted]
    both = [i for i in order if sources[i] != "b" and i < 30]
    where = {"source": ["a", 'it\'s "c"', "z"], "Year": ["2026"]}
    assert nearest(7, where) == [batch.ids[i] for i in both[:7]]
    assert len(nearest(60, where)) == 20
    assert nearest(5, {"source": []}) == nearest(5, {"source": ["z"]}) == []
    assert_same_rows(store, batch, store.read(batch.ids))
    for wrong in ({"source": "a"}, {"source": [1]}, {"source' = ''": ["a"]}):
        with pytest.raises(InvalidInputError):
            store.search(query, 5, wrong)  # type: ignore[arg-type]


def test_deleted_rows_are_gone(store: VectorStore, case: StoreCase) -> None:
    batch = rows(12, fields=case.fields)
    store.create(6, metric="euclidean")
    store.write(batch)
    store.delete([*batch.ids[:5], "987654321"])
    assert store.count() == 7
    assert_same_rows(store, batch.rows(range(5, 12)), Batch.joined(everything(store, 5)))
    with pytest.raises(StoreError):
        store.read(batch.ids[:1])
    store.write(batch.rows(range(2)))
    assert store.count() == 9
