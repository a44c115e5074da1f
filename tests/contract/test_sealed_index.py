"""A sealed index: exact search, filters, one state for all processes, and a storage that reads nothing."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import tempfile
import threading
import tracemalloc
import uuid
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fsspec
import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from scipy.stats import chi2_contingency

from harness.errors import raises
from vecveil.errors import InvalidInputError, StoreError
from vecveil.index import SealedIndex
from vecveil.index.blob import padded_length
from vecveil.index.blocks import BlockWriter
from vecveil.index.exposure import stored_vectors
from vecveil.index.keystore import MasterKeys
from vecveil.index.segments import write_segment
from vecveil.keys import KeyFile

N = 32
Vectors = npt.NDArray[np.floating[Any]]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "search.keys"
    KeyFile.create(path, "first")
    return path


@pytest.fixture
def index(tmp_path: Path, keys: Path) -> SealedIndex:
    return SealedIndex(tmp_path / "notes", keys, max_staleness=0)


def vectors(rows: int, seed: int = 0) -> Vectors:
    return np.random.default_rng(seed).standard_normal((rows, N)).astype(np.float32)


def filled(index: SealedIndex, rows: int = 20) -> Vectors:
    X = vectors(rows)
    index.add(
        [f"text {i}" for i in range(rows)],
        ids=[str(i) for i in range(rows)],
        vectors=X,
        metadata=[
            {"year": 2000 + i, "tag": ["even", "odd"][i % 2], "place": {"name": f"Rome {i}"}} for i in range(rows)
        ],
    )
    return X


def objects(index: SealedIndex) -> list[Path]:
    """Return the segments in the order of writing."""
    return sorted(Path(index.location, "segments").glob("[!.]*"), key=lambda path: path.stat().st_mtime_ns)


@pytest.mark.parametrize("precision", ["float16", "int8"])
@pytest.mark.parametrize(("rows", "where"), [(50, "disk"), (6000, "disk"), (6000, "memory")])
def test_search_ranks_by_the_cosines_of_the_stored_vectors(
    tmp_path: Path, keys: Path, rows: int, where: Any, precision: str
) -> None:
    index = SealedIndex(tmp_path / "notes", keys, precision=precision, vectors=where)
    X = vectors(rows) * 3
    index.add(None, ids=[str(i) for i in range(rows)], vectors=X)
    query = X[7] + 0.1
    stored = index.get([str(i) for i in range(rows)]).vectors
    cosines = stored @ query / np.linalg.norm(stored, axis=1) / np.linalg.norm(query)
    hits = index.search(query, top=10)
    assert hits.ids == [str(i) for i in np.argsort(-cosines)[:10]]
    np.testing.assert_allclose(hits.scores, np.sort(cosines)[::-1][:10], atol=1e-6)
    assert np.abs(stored - X).max() < (0.01 if precision == "float16" else 0.1)


def test_rows_come_back_with_text_and_metadata(index: SealedIndex) -> None:
    filled(index)
    index.add([""], ids=["empty"], vectors=vectors(1))
    index.add(None, ids=["none"], vectors=vectors(1))
    rows = index.get(["3", "empty", "none"])
    assert rows.texts == ["text 3", "", None]
    assert rows.metadata == [{"year": 2003, "tag": "odd", "place": {"name": "Rome 3"}}, None, None]
    with raises("E-STORE-IDS", "ids"):
        index.get(["nobody"])
    assert index.get(["nobody"], missing="skip").ids == []


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ({"year": 2003}, ["3"]),
        ({"year": {"gte": 2017}, "tag": "odd"}, ["17", "19"]),
        ({"year": {"gt": 2000, "lt": 2003}}, ["1", "2"]),
        ({"year": [2001, 2005, "2006"]}, ["1", "5"]),
        ({"year": {"ne": 2000}, "tag": {"nin": ["odd"]}, "none": {"exists": False}}, [str(i) for i in range(2, 20, 2)]),
        ({"none": {"exists": True}}, []),
        ({"$or": [{"year": 2003}, {"$and": [{"year": {"$gte": 2018}}, {"tag": "odd"}]}]}, ["3", "19"]),
        ({"$not": {"tag": {"contains": "ve"}}, "year": {"lt": 2004}}, ["1", "3"]),
        ({"place.name": {"icontains": "ROME 1"}, "tag": "odd"}, ["1", *(str(i) for i in range(11, 20, 2))]),
        ({"$or": []}, []),
        ((pc.field("year") > 2016) & (pc.field("tag") == "even"), ["18"]),
        ((pc.field("year") == 2018) | pc.field("none").isin(["x"]) | pc.starts_with(pc.field("no"), "x"), ["18"]),
    ],
)
def test_filters(index: SealedIndex, where: Any, ids: list[str]) -> None:
    X = filled(index)
    assert index.ids(where) == ids
    assert sorted(index.search(X[0], top=20, where=where).ids) == sorted(ids)
    assert index.get(where=where).ids == ids


@pytest.mark.parametrize(
    "where",
    [
        {"yeer": 3},
        {"year": 2003, "place.street": {"ne": 1}, "tag": "none", "yeer": {"gt": 3}},
        {"$and": [{"year": 1}, {"$or": [{"yeer": 3}]}]},
        (pc.field("year") == 2003) & (pc.field("yeer") == 3),
    ],
)
def test_a_filter_on_a_field_that_no_row_has_names_the_fields(index: SealedIndex, where: Any) -> None:
    assert index.ids(where) == index.search(vectors(1)[0], where=where).ids == []  # nothing is there yet
    filled(index, 4)
    for call in (index.ids, lambda where: index.get(where=where), lambda where: index.search(np.ones(N), where=where)):
        with raises("E-INPUT-NAME", "where") as caught:
            call(where)
        assert "place, place.name, tag, year" in str(caught.value)
    assert index.ids({"yeer": {"exists": True}}) == index.ids({"year": 3}) == []
    index.add(["x"], ids=["x"], vectors=vectors(1), metadata=[{"yeer": 4, "place": {"street": 1}}])
    assert index.ids(where) == []
    index.delete(["x"])
    with raises("E-INPUT-NAME", "where"):
        index.ids(where)
    index.delete(index.ids())
    assert index.ids(where) == []


def test_a_selective_filter_over_many_rows_misses_none(tmp_path: Path, keys: Path) -> None:
    index = SealedIndex(tmp_path / "notes", keys)
    X = vectors(60_000)
    index.add(
        None,
        ids=[str(i) for i in range(len(X))],
        vectors=X,
        metadata=[{"half": i % 2, "few": i % 100} for i in range(len(X))],
    )
    for where, step in (({"half": 1}, 2), ({"few": 1}, 100)):
        mine = X[1::step]
        cosines = mine @ X[5] / np.linalg.norm(mine, axis=1)
        expected = [str(1 + step * i) for i in np.argsort(-cosines)[:10]]
        assert len(set(index.search(X[5], top=10, where=where).ids) & set(expected)) >= 9


def test_hybrid_search_finds_a_word_that_the_vector_does_not(index: SealedIndex) -> None:
    X = filled(index)
    index.add(["the zyxwv薬 protocol of Müller"], ids=["rare"], vectors=-X[:1])
    encoder = type("Fixed", (), {"encode": lambda self, texts: np.repeat(X[:1], len(texts), axis=0)})()
    hybrid = SealedIndex(index.location, index._log._source._key, encoder=encoder)
    assert "rare" not in hybrid.search("zyxwv", top=5).ids
    for query in ("zyxwv", "薬", "Mu\u0308ller"):
        assert "rare" in hybrid.search(query, top=5, mode="hybrid").ids
    assert hybrid.search("zyxwv", top=5, mode="hybrid", alpha=0).ids == ["rare"]
    vectors = hybrid.search("zyxwv", top=5).ids
    assert hybrid.search("zyxwv", top=5, mode="hybrid", alpha=1).ids == vectors
    for alpha in (-0.1, 1.1, float("nan"), "1"):
        with raises("E-INPUT", "alpha"):
            hybrid.search("zyxwv", mode="hybrid", alpha=alpha)
    hybrid.delete(["rare"])
    assert "rare" not in hybrid.search("zyxwv", top=5, mode="hybrid").ids


def test_a_list_of_queries_is_encoded_at_once(index: SealedIndex) -> None:
    X, encoded = filled(index), list[list[str]]()

    def encode(texts: list[str]) -> Vectors:
        encoded.append(texts)
        return X[[int(text.split()[-1]) for text in texts]]

    asked = SealedIndex(index.location, index._log._source._key, encoder=encode)
    where = {"year": {"gte": 2003}}
    several = asked.search(["text 7", "text 3"], top=3, where=where)
    assert encoded == [["text 7", "text 3"]]
    assert [hits.ids[0] for hits in several] == ["7", "3"]
    for hits, query in zip(several, (X[7], X[3]), strict=True):
        assert hits.ids == asked.search(query, top=3, where=where).ids
    for queries in (X[[7, 3]], [X[7], X[3]], X[[7, 3]].tolist()):
        assert [hits.ids for hits in asked.search(queries, top=3, where=where)] == [hits.ids for hits in several]
    assert [hits.ids for hits in asked.search(X[7:8], top=1)] == [["7"]]
    assert [hits.ids[0] for hits in asked.search(["text 7", "text 3"], mode="hybrid", alpha=0)] == ["7", "3"]
    assert [h.ids[0] for h in asked.search(X[:2], mode="hybrid", alpha=0, words=["7", "3"])] == ["7", "3"]
    assert asked.search([]) == []
    with raises("E", "words"):
        asked.search(X[:2], mode="hybrid", words=["7"])


@pytest.mark.parametrize(
    ("where", "stored", "compared"),
    [
        ({"year": "2003"}, "numbers", "texts"),
        ({"year": {"gte": "2003"}, "tag": "odd"}, "numbers", "texts"),
        ({"$or": [{"tag": ["even", "odd"], "year": [True, "2003"]}]}, "numbers", "texts and true or false"),
        ({"place": "Rome 1"}, "objects", "texts"),
        ({"tag": 1}, "texts", "numbers"),
    ],
)
def test_a_filter_by_values_of_another_type_says_so(index: SealedIndex, where: Any, stored: str, compared: str) -> None:
    filled(index)
    texts: list[str] = []
    asked = SealedIndex(index.location, index._log._source._key, encoder=lambda t: texts.extend(t) or np.ones((1, N)))
    for call in (index.ids, lambda where: index.get(where=where), lambda where: asked.search("a", where=where)):
        with raises("E-INPUT-TYPE", "where") as caught:
            call(where)
        assert f"The rows have {stored} in" in str(caught.value)
        assert f"compares it with {compared}." in str(caught.value)
    assert texts == [], "no query is encoded"
    assert len(index.ids({"year": [2003, "2003"]})) == 1
    for empty in ({"year": None}, {"year": [None, "x"]}, {"year": {"ne": "2003", "lt": 0}}, {"year": [1, "2003"]}):
        assert index.ids(empty) == []


def test_times_and_numpy_numbers_are_metadata_as_in_tables(index: SealedIndex) -> None:
    noon = datetime(2025, 3, 30, 14, tzinfo=timezone(timedelta(hours=2)))
    given = {
        "at": noon,
        "days": [noon.date()],
        "price": Decimal("3.10"),
        "owner": UUID(int=1),
        "size": {"n": np.int64(3), "x": np.float32(0.5), "big": np.bool_(True)},
    }
    index.add(["a", "b"], ids=["a", "b"], vectors=vectors(2), metadata=[given, {"at": noon - timedelta(1)}])
    assert index.get(["a"]).metadata == [
        {
            "at": "2025-03-30T12:00:00+00:00",
            "days": ["2025-03-30"],
            "price": "3.10",
            "owner": str(UUID(int=1)),
            "size": {"n": 3, "x": 0.5, "big": True},
        }
    ]
    for where in ({"at": {"gte": noon}}, {"days": noon.date()}, {"price": Decimal("3.10")}, {"size.n": 3}):
        assert index.ids(where) == ["a"]


def test_processes_see_each_others_writes(tmp_path: Path, keys: Path, index: SealedIndex) -> None:
    other = SealedIndex(tmp_path / "notes", keys, max_staleness=0)
    filled(index)
    assert other.count() == 20
    other.add(["new"], ids=["3"], vectors=vectors(1))
    other.delete(["4", "nobody"])
    assert index.get(["3"]).texts == ["new"]
    assert index.count() == 19
    index.compact(retain=0)
    assert len(objects(index)) == 1
    assert other.count() == 19
    assert other.get(["5"]).texts == ["text 5"]


def test_two_processes_make_an_index_at_once(tmp_path: Path, keys: Path, index: SealedIndex) -> None:
    store = index._log._source._key
    reserve = store.reserve  # type: ignore[union-attr]

    def late(*arguments: Any) -> Any:
        SealedIndex(index.location, keys).add(None, ids=["other"], vectors=vectors(1))
        store.reserve = reserve  # type: ignore[union-attr]
        return reserve(*arguments)

    store.reserve = late  # type: ignore[union-attr]
    index.add(None, ids=["own"], vectors=vectors(1))
    assert sorted(SealedIndex(index.location, keys).ids()) == ["other", "own"]


def test_a_reader_keeps_what_a_commit_deletes(tmp_path: Path, keys: Path, index: SealedIndex) -> None:
    X = filled(index)
    reader = SealedIndex(tmp_path / "notes", keys, max_staleness=1e9)
    assert reader.count() == 20
    index.add(["again"], ids=["0"], vectors=X[:1])
    index.compact(retain=0)
    assert reader.search(X[0], top=1).texts == ["text 0"]


def test_forgotten_rows_are_in_no_object(index: SealedIndex) -> None:
    filled(index)
    index.add(["newer"], ids=["3"], vectors=vectors(1))
    before = objects(index)
    assert index.forget(["3", "nobody"]) == 1
    assert not set(before) & set(objects(index))
    assert "3" not in index.ids()
    assert index.count() == 19


def test_rows_without_ids_get_uuids(index: SealedIndex) -> None:
    names = index.add(["a", "b"], vectors=vectors(2))
    assert names == index.get(names).ids
    assert index.get(names).texts == ["a", "b"]
    assert len({uuid.UUID(name).int for name in names}) == 2
    assert index.add(None, vectors=vectors(3))[0] not in names
    assert index.add(None, ids=["x"], vectors=vectors(1)) == ["x"]
    assert index.add([], vectors=vectors(0)) == []
    assert index.count() == 6
    with raises("E-INPUT", "texts"):
        index.add()
    with raises("E-INPUT-SHAPE"):
        index.add(["a"], vectors=vectors(2))


@pytest.mark.parametrize("method", ["delete", "forget"])
def test_rows_are_removed_by_a_filter(index: SealedIndex, method: str) -> None:
    filled(index)
    remove = getattr(index, method)
    for wrong in ({}, {"ids": ["1"], "where": {"tag": "odd"}}, {"where": {}}):
        with raises("E-INPUT"):
            remove(**wrong)
    nothing: Any
    for nothing in ({"tag": {}}, {"$and": []}, {"$or": [{"tag": "odd"}, {"$and": [{}]}]}, {"$and": [{"tag": {}}]}):
        with raises("E-INPUT", "where"):
            remove(where=nothing)
    with raises("E-INPUT-NAME", "where"):
        remove(where={"tga": "odd"})
    assert index.count() == 20
    assert remove(where={"tag": "odd", "year": {"gte": 2010}}) == (5 if method == "forget" else None)
    assert index.ids() == [str(i) for i in range(20) if i < 10 or i % 2 == 0]
    assert remove(where={"tag": "odd", "year": {"gte": 2010}}) == (0 if method == "forget" else None)


def versions(index: SealedIndex) -> set[tuple[str, str | None]]:
    """Return id and text of every stored version, current or not."""
    stored = set()
    for part in index._log.refresh().parts.values():
        columns = part.segment.table(["id", "text"]).to_pydict()
        stored |= set(zip(columns["id"], columns["text"], strict=True))
    return stored


def test_forget_by_a_filter_reaches_every_stored_version(index: SealedIndex) -> None:
    def add(name: str, text: str, who: str) -> None:
        index.add([text], ids=[name], vectors=vectors(1), metadata=[{"who": who}])

    add("kept", "kept", "b")
    add("corrected", "wrong", "a")
    add("corrected", "right", "b")
    add("given over", "earlier", "b")
    add("given over", "now", "a")
    add("deleted", "deleted", "a")
    index.delete(["deleted"])
    add("compacted", "compacted", "a")
    index.delete(["compacted"])
    before = set(objects(index))
    assert index.forget(where={"who": "a"}) == 1
    assert versions(index) == {("kept", "kept"), ("corrected", "right")}
    assert sorted(index.ids()) == ["corrected", "kept"]
    assert len(before & set(objects(index))) < len(before)

    add("late", "late", "a")
    index.delete(["late"])
    replaced = set(objects(index))
    index.compact()  # keeps what it replaces for a day
    assert replaced & set(objects(index))
    assert index.forget(where={"$or": [{"who": "a"}, {"who": "nobody"}]}) == 0
    assert {path.name for path in objects(index)} == {
        name.removeprefix("segments/") for name in index._log.refresh().parts
    }


def test_forget_by_a_filter_reaches_rows_that_others_add_meanwhile(
    index: SealedIndex, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(index)
    other, left = SealedIndex(index.location, keys), [3]
    rewrite = index._log.rewrite

    def overtaken(*arguments: Any, **options: Any) -> None:
        if left[0]:
            left[0] -= 1
            other.add(["late"], ids=[f"late {left[0]}"], vectors=vectors(1), metadata=[{"tag": "odd"}])
        rewrite(*arguments, **options)

    monkeypatch.setattr(index._log, "rewrite", overtaken)
    assert index.forget(where={"tag": "odd"}) == 13
    assert index.ids() == [str(i) for i in range(0, 20, 2)]
    left[0] = 10**6
    with raises("E-INDEX-BUSY"):
        index.forget(where={"tag": "odd"})


@pytest.mark.parametrize("where", [None, {"tag": "odd"}])
def test_rows_are_read_in_parts_of_one_state(index: SealedIndex, keys: Path, where: Any) -> None:
    filled(index)
    for i in range(20, 25):
        index.add([f"text {i}"], ids=[str(i)], vectors=vectors(1, i), metadata=[{"tag": ["even", "odd"][i % 2]}])
    expected = index.get(where=where)
    parts = index.iter(where, batch=4)
    first = next(parts)
    other = SealedIndex(index.location, keys)
    other.delete(["7", "24"])
    other.compact(retain=0)
    index.refresh()
    rest = list(parts)
    assert [len(part.ids) for part in (first, *rest[:-1])] == [4] * len(rest)
    assert 0 < len(rest[-1].ids) <= 4
    for name in ("ids", "texts", "metadata"):
        assert [value for part in (first, *rest) for value in getattr(part, name)] == getattr(expected, name)
    np.testing.assert_array_equal(np.concatenate([first.vectors, *(part.vectors for part in rest)]), expected.vectors)
    with raises("E-INPUT-NAME", "where"):
        index.iter({"nobody": 1})
    with raises("E-INPUT", "batch"):
        index.iter(batch=0)
    late = index.iter()
    index.close()
    with raises("E-INDEX"):
        next(late)


def test_all_rows_are_read_in_bounded_memory(tmp_path: Path, keys: Path) -> None:
    index = SealedIndex(tmp_path / "notes", keys, vectors="disk")
    rows, text = 20_000, "x" * 500
    index.add([text] * rows, vectors=vectors(rows))
    tracemalloc.start()
    try:
        assert sum(len(part.ids) for part in index.iter(batch=500)) == rows
        peak = tracemalloc.get_traced_memory()[1]
        index.get()
        assert tracemalloc.get_traced_memory()[1] > 5 * peak, "control: all rows at once"
    finally:
        tracemalloc.stop()


def test_reseal_deletes_the_older_key(tmp_path: Path, keys: Path, index: SealedIndex) -> None:
    X = filled(index)
    shutil.copytree(tmp_path / "notes", tmp_path / "backup")
    assert index.reseal() == 20
    assert SealedIndex(tmp_path / "notes", keys).search(X[3], top=1).ids == ["3"]
    with raises("E-SEAL-OPEN"):
        SealedIndex(tmp_path / "backup", keys).count()


# The storage ------------------------------------------------------------------------------------


def test_a_moved_index_opens_and_another_key_file_does_not(tmp_path: Path, keys: Path, index: SealedIndex) -> None:
    filled(index)
    (tmp_path / "notes").rename(tmp_path / "moved")
    assert SealedIndex(tmp_path / "moved", keys).count() == 20
    KeyFile.create(tmp_path / "other.keys", "first")
    with raises("E-SEAL-COLLECTION", "key"):
        SealedIndex(tmp_path / "moved", tmp_path / "other.keys")


@pytest.mark.parametrize("damage", ["cut", "flipped", "renamed", "foreign"])
def test_an_altered_object_is_refused(tmp_path: Path, keys: Path, index: SealedIndex, damage: str) -> None:
    filled(index)
    (path,) = objects(index)
    data = path.read_bytes()
    if damage == "cut":
        path.write_bytes(data[:-100])
    elif damage == "flipped":
        path.write_bytes(bytes([*data[:200], data[200] ^ 1, *data[201:]]))
    else:
        other = index if damage == "renamed" else SealedIndex(tmp_path / "other", keys)
        filled(other)
        path.write_bytes(objects(other)[-1].read_bytes())
    with raises("E-SEAL-OPEN") as caught:
        SealedIndex(tmp_path / "notes", keys).count()
    assert f"segments/{path.name}" in str(caught.value)


CANARY = "Zanthoxylum-4711"


@pytest.mark.parametrize("precision", ["float16", "int8"])
@pytest.mark.parametrize("remote", [False, True])
def test_no_file_holds_anything_readable(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch, remote: bool, precision: str
) -> None:
    """Objects, local copies, temporary files and key store, also those that are deleted or renamed meanwhile."""
    seen: dict[str, bytes] = {}
    for name in ("unlink", "remove", "rename", "replace", "link"):
        original = getattr(os, name)

        def watched(path: Any, *others: Any, original: Any = original, **options: Any) -> Any:
            folder = options.get("dir_fd", options.get("src_dir_fd"))
            full = path if folder is None else f"/proc/self/fd/{folder}/{path}"
            if os.path.isfile(full):
                seen[f"{path} before {len(seen)}"] = Path(full).read_bytes()
            return original(path, *others, **options)

        monkeypatch.setattr(os, name, watched)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = f"memory://{tmp_path.name}" if remote else str(tmp_path / "notes")
    index = SealedIndex(place, keys, cache=tmp_path / "cache", max_staleness=0, precision=precision)
    X = vectors(4, seed=5)
    rows = [f"{CANARY} {i}" for i in range(4)]
    index.add(rows, ids=[f"{CANARY}-{i}" for i in range(4)], vectors=X, metadata=[{CANARY: CANARY}] * 4)
    index.add(rows[:1], ids=[f"{CANARY}-0"], vectors=X[:1])
    index.search(X[0], where={CANARY: CANARY})
    SealedIndex(place, keys, cache=tmp_path / "second", trusted_state=tmp_path / "trusted").count()
    index.compact()
    index.forget([f"{CANARY}-1"])
    index.reseal()
    secrets = [CANARY.encode(code) for code in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")]
    secrets.append(base64.b64encode(CANARY.encode())[:20])
    for row in X:
        for kind in ("f2", "f4", "f8"):
            secrets += [row.astype(order + kind).tobytes()[:16] for order in "<>"]
        secrets.append(np.rint(row / np.abs(row).max() * 127).astype("i1").tobytes()[:16])
    seen |= {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    if remote:
        files = fsspec.filesystem("memory")
        seen |= {name: files.cat_file(name) for name in files.find(tmp_path.name)}
        copies = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
        assert copies and not any(path.stat().st_mode & 0o077 for path in copies)  # noqa: PT018
    assert len(seen) > (24 if remote else 36)
    for name, content in {**seen, "names": "".join(seen).encode()}.items():
        assert not any(secret in content for secret in secrets), name


@pytest.mark.slow
def test_equal_sizes_tell_nothing_of_the_content(tmp_path: Path) -> None:
    """Two kinds of content, of equal rows and bytes: equal objects by size, and byte values of equal frequency.

    Null: the bytes of both have one distribution. False failure: 1e-6. Control: the same rows without encryption.
    """
    counts, sizes = np.zeros((2, 256)), set[tuple[int, ...]]()
    for kind, text in enumerate(("a" * 60, "The patient took 20 mg of an unnamed drug; she came back on Tuesday.")):
        for number in range(20):
            index = SealedIndex(tmp_path / f"{kind}-{number}", bytes(range(32)))
            X = np.ones((40, N)) if kind == 0 else vectors(40, seed=number)
            for part in (slice(20), slice(20, 40)):
                ids = [f"{i:04d}" for i in range(40)[part]]
                index.add([text[:60]] * 20, ids=ids, vectors=X[part], metadata=[{"year": 2000 + kind}] * 20)
            index.compact()
            contents = [path.read_bytes() for path in sorted(Path(index.location).rglob("*")) if path.is_file()]
            sizes.add(tuple(sorted(map(len, contents))))
            for content in contents:
                counts[kind] += np.bincount(np.frombuffer(content, np.uint8), minlength=256)
                blocks = np.frombuffer(content[: len(content) // 16 * 16], "V16")
                assert len(np.unique(blocks)) == len(blocks), "equal rows would show"
    assert len(sizes) == 1
    assert _differ(counts) > 1e-6
    plain = np.array(
        [np.bincount(np.frombuffer(b, np.uint8), minlength=256) for b in (b"a" * 4096, vectors(32).tobytes())]
    )
    assert _differ(plain) < 1e-6


def _differ(counts: npt.NDArray[Any]) -> float:
    return float(chi2_contingency(counts[:, counts.sum(axis=0) > 0]).pvalue)


def written(folder: Path, texts: list[str], parts: int = 1, digits: int = 4) -> SealedIndex:
    """Return an index of ``texts`` in one segment, merged of several if ``parts`` is above 1."""
    index = SealedIndex(folder, bytes(range(32)), max_staleness=0)
    X, ids = vectors(len(texts)), [f"{i:0{digits}d}" for i in range(len(texts))]
    for rows in np.array_split(np.arange(len(texts)), parts):
        index.add([texts[i] for i in rows], ids=[ids[i] for i in rows], vectors=X[rows])
    if parts > 1:
        index.compact()
    return index


def size(path: Path) -> int:
    """Return the length of a segment's content, all that the storage learns of it."""
    data = path.read_bytes()
    body = len(data) - 20 - int.from_bytes(data[16:20], "little")
    return body - 16 * -(-body // 16400)


@pytest.mark.parametrize(
    ("texts", "others", "parts"),
    [
        (["a" * 40] * 30, ["bé" * 13 + "b"] * 30, 1),
        (["a" * 40] * 30, ["a" * 39] * 31, 1),
        (["a b " * 25] * 1500, ["b" * (59 + i % 82) for i in range(1500)], 1),
        (["a b " * 25] * 1500, ["b" * (59 + i % 82) for i in range(1500)], 3),
        (["a" * 100] * 6000, ["b" * (60 + i % 82) for i in range(6000)], 1),
    ],
)
def test_sizes_tell_no_more_than_padme(tmp_path: Path, texts: list[str], others: list[str], parts: int) -> None:
    """Contents of about as many rows and bytes make equal objects, whatever their words."""
    sizes = [size(objects(written(tmp_path / str(i), t, parts))[-1]) for i, t in enumerate((texts, others))]
    assert sizes[0] == sizes[1] == padded_length(sizes[0], 4096)
    longer = written(tmp_path / "longer", [text * 3 for text in texts], parts)
    assert size(objects(longer)[-1]) != sizes[0]


def test_rows_of_any_size_are_kept(tmp_path: Path) -> None:
    texts = [*(["short"] * 3000), *(f"{i} " * 100 for i in range(3000)), "large " * 100_000, "last"]
    index = written(tmp_path / "notes", texts, parts=2)
    again = SealedIndex(index.location, bytes(range(32)))
    rows = again.get()
    assert dict(zip(rows.ids, rows.texts, strict=True)) == {f"{i:04d}": text for i, text in enumerate(texts)}
    X = vectors(len(texts))
    assert again.search(X[5999], top=1).texts == [texts[5999]]
    assert again.get(["6000", "0000"]).texts == [texts[6000], "short"]
    assert "last" in again.search(X[0], top=2, mode="hybrid", words="last").texts
    assert stored_vectors(again, ["0000", "6001"]).shape == (2, 2 * N)
    again.compact()
    assert again.count() == len(texts)


def test_a_deletion_looks_like_an_addition(index: SealedIndex) -> None:
    filled(index)
    index.delete(["3"])
    index.add(["replaced"], ids=["4"], vectors=vectors(1), metadata=[{"year": 1}])
    index.add(["new"], ids=["new"], vectors=vectors(1))
    assert len({path.stat().st_size for path in objects(index)[1:]}) == 1


def test_an_independent_reader_opens_a_segment(index: SealedIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written from docs/formats.md."""
    wrapped: dict[str, bytes] = {}
    keys = index._log.made()
    wrap = keys.wrap
    monkeypatch.setattr(keys, "wrap", lambda key, name, *rest: wrap(wrapped.setdefault(name, key), name, *rest))
    X = filled(index)
    data, name = objects(index)[0].read_bytes(), f"segments/{objects(index)[0].name}"
    assert data[:16] == b"vecveil segment3"
    start = 20 + int.from_bytes(data[16:20], "little")
    assert json.loads(data[20:start]).keys() == {"key_id", "wrapped"}
    blocks = [data[at : at + 16400] for at in range(start, len(data), 16400)]
    context = b"vecveil segment 3 " + keys.uuid.bytes + name.encode()
    content = b"".join(
        AESGCM(wrapped[name]).decrypt(i.to_bytes(11, "big") + bytes([i == len(blocks) - 1]), block, context)
        for i, block in enumerate(blocks)
    )
    directory = json.loads(content[int.from_bytes(content[-8:], "little") : -8])
    assert (directory["format"], directory["rows"], directory["dimension"], directory["precision"]) == (
        3,
        20,
        N,
        "float16",
    )

    def section(name: str) -> bytes:
        at, length = directory["sections"][name]
        return content[at : at + length]

    ends = np.frombuffer(section("metadata.ends"), "<u4")
    assert json.loads(section("metadata")[ends[3] : ends[4]]) == {
        "year": 2003,
        "tag": "odd",
        "place": {"name": "Rome 3"},
    }
    assert section("text").startswith(b"text 0text 1text 2")
    np.testing.assert_array_equal(np.frombuffer(section("vector"), "<f2").reshape(20, N), X.astype(np.float16))


# Keys and encoders ------------------------------------------------------------------------------


class OnlyWraps:
    """A provider of a process that may encrypt and not decrypt."""

    def __init__(self, keys: Path) -> None:
        self.wrap = MasterKeys(KeyFile.from_file(keys)).wrap


def test_a_writer_that_cannot_unwrap_adds_and_does_not_read(tmp_path: Path, keys: Path) -> None:
    reader = SealedIndex(tmp_path / "notes", MasterKeys(KeyFile.from_file(keys)), max_staleness=0)
    writer = SealedIndex(tmp_path / "notes", OnlyWraps(keys))
    X = filled(writer)
    assert reader.search(X[3], top=1).texts == ["text 3"]
    reader.add(["newer"], ids=["3"], vectors=X[3:4])
    reader.compact()
    writer.add(["newest"], ids=["3"], vectors=X[3:4])
    assert reader.get(["3"]).texts == ["newest"]
    for read in (writer.count, lambda: writer.search(X[3]), lambda: writer.get(["3"]), writer.compact):
        with raises("E-SEAL-OPEN", "key"):
            read()
    SealedIndex(tmp_path / "notes", OnlyWraps(keys)).delete(["3"])
    assert "3" not in reader.ids()


@pytest.mark.parametrize(
    ("param", "value"), [("create", "no"), ("exclusive", "no"), ("cache", 5), ("trusted_state", 5)]
)
def test_arguments_of_another_type_are_refused_by_name(tmp_path: Path, keys: Path, param: str, value: Any) -> None:
    with raises("E-INPUT-TYPE", param):
        SealedIndex(tmp_path / "notes", keys, **{param: value})


def test_get_takes_one_of_two_words_for_missing_ids(index: SealedIndex) -> None:
    with raises("E-INPUT-NAME", "missing"):
        index.get(["nothing"], missing="ignore")


class Named:
    def __init__(self, fingerprint: str, n: int = N) -> None:
        self.fingerprint, self.n = fingerprint, n

    def encode(self, texts: list[str]) -> Vectors:
        return np.array([[len(text), *([1.0] * (self.n - 1))] for text in texts])


def test_a_writer_that_cannot_unwrap_exchanges_no_segment(tmp_path: Path, keys: Path) -> None:
    """It can wrap a key of its own for the name of a segment that others wrote."""
    master = MasterKeys(KeyFile.from_file(keys))
    index = SealedIndex(tmp_path / "notes", master)
    index.add(["written"], ids=["a"], vectors=np.ones((1, 4)))
    (path,) = objects(index)
    writer = SealedIndex(tmp_path / "notes", OnlyWraps(keys))
    wraps, rows = writer._log.made(), index._log.refresh().parts[f"segments/{path.name}"].segment.table()
    with open(path, "wb") as file:
        write_segment(file, f"segments/{path.name}", wraps, wraps.current(), rows, n=4, precision="float16")
    with raises("E-SEAL-OPEN"):
        SealedIndex(tmp_path / "notes", master).get(["a"])


def test_another_encoder_is_refused(tmp_path: Path, keys: Path) -> None:
    SealedIndex(tmp_path / "notes", keys, encoder=Named("one")).add(["a", "bb"], ids=["a", "b"])
    assert SealedIndex(tmp_path / "notes", keys, encoder=Named("one")).search("aa", top=1).texts == ["bb"]
    other = SealedIndex(tmp_path / "notes", keys, encoder=Named("two"))
    with raises("E-INCOMPATIBLE-ENCODER", "encoder"):
        other.search("aa")
    with raises("E-INCOMPATIBLE-ENCODER", "encoder"):
        other.add(["c"], ids=["c"])
    with raises("E-INCOMPATIBLE", "vectors"):
        SealedIndex(tmp_path / "notes", keys).add(None, ids=["c"], vectors=np.ones((1, 3)))


def notes(tmp_path: Path, keys: Path, precision: str = "float16", rows: int = 40) -> SealedIndex:
    index = SealedIndex(tmp_path / "notes", keys, encoder=Named("one"), max_staleness=0, precision=precision)
    index.add(
        ["a" * i for i in range(1, rows + 1)],
        ids=[str(i) for i in range(1, rows + 1)],
        metadata=[{"year": 2000 + i} for i in range(rows)],
    )
    index.add(["replaced", "deleted"], ids=["1", "2"])
    index.delete(["2"])
    return index


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_another_encoder_replaces_all_vectors_in_one_commit(tmp_path: Path, keys: Path, precision: str) -> None:
    index = notes(tmp_path, keys, precision)
    reader, plain = (SealedIndex(index.location, keys, encoder=e, max_staleness=0) for e in (Named("one"), None))
    assert reader.count() == plain.count() == 39

    class Slow(Named):
        """Meanwhile another process goes on with the former encoder, and compacts."""

        def encode(self, texts: list[str]) -> Vectors:
            if reader.count() == 39:
                reader.add(["meanwhile"], ids=["new"])
                reader.compact()
                reader.delete(["3"])
            return super().encode(texts)

    assert SealedIndex(index.location, keys).reencode(Slow("two", 5)) == 39
    fresh = SealedIndex(index.location, keys, encoder=Named("two", 5))
    assert fresh.noted_encoder == "two"
    rows = fresh.get(["1", "4", "40", "new"])
    assert rows.texts == ["replaced", "aaaa", "a" * 40, "meanwhile"]
    assert rows.metadata[1] == {"year": 2003}
    np.testing.assert_allclose(rows.vectors, Named("two", 5).encode([str(text) for text in rows.texts]), atol=0.2)
    assert "40" in fresh.search("a" * 40, top=9).ids
    assert not prepared(index)
    for former in (reader, index):
        for call in (lambda: former.search("a"), lambda: former.add(["x"], ids=["x"]), former.compact):  # noqa: B023
            with raises("E-INCOMPATIBLE-ENCODER", "encoder") as error:
                call()
            assert "Slow (fingerprint two)" in str(error.value)
    for call in (lambda: plain.search(np.ones(N)), lambda: plain.add(None, ids=["x"], vectors=np.ones((1, 5)))):
        with raises("E-INCOMPATIBLE-ENCODER", "encoder"):
            call()
    assert fresh.count() == 39
    assert fresh.reencode(Named("two", 5)) == 39


def prepared(index: SealedIndex) -> list[Path]:
    """Return the segments that the chain does not name."""
    chain = index._log.advance()
    return [path for path in objects(index) if f"segments/{path.name}" not in {*chain.objects, *chain.replaced}]


@pytest.mark.parametrize("between", ["nothing", "compact", "reseal", "forget"])
def test_an_interrupted_reencoding_goes_on(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    monkeypatch.setattr("vecveil.index.log._CHUNK", 10)
    index, calls = notes(tmp_path, keys), []

    class Stopped(Named):
        def encode(self, texts: list[str]) -> Vectors:
            calls.append(len(texts))
            if len(calls) == 3:
                raise KeyboardInterrupt
            return super().encode(texts)

    with pytest.raises(KeyboardInterrupt):
        index.reencode(Stopped("two", 5))
    kept = prepared(index)
    assert len(kept) == 2
    assert index.search("a" * 40, top=1).ids == ["40"]
    if between != "nothing":
        getattr(index, between)(*([["5"]] if between == "forget" else []))
    if between in ("reseal", "forget"):
        assert not prepared(index)
    again = SealedIndex(index.location, keys)
    rows = again.reencode(Stopped("two", 5))
    assert rows == again.count() == (38 if between == "forget" else 39)
    assert sum(calls[3:]) == rows - (0 if between in ("reseal", "forget") else 20)
    assert not prepared(index)
    assert "40" in again.search("a" * 40, top=9).ids
    again.add(["added"], ids=["added"])


def test_rows_of_the_former_encoder_are_refused(tmp_path: Path, keys: Path) -> None:
    """Also those of a process that cannot read what the index notes, and of one that adds vectors without an encoder.

    Their vectors were made before the commit of the other encoder, or written before it.
    """
    master = MasterKeys(KeyFile.from_file(keys))
    index = SealedIndex(tmp_path / "notes", master, encoder=Named("one"), max_staleness=0)
    writer, plain = (SealedIndex(tmp_path / "notes", OnlyWraps(keys), encoder=e) for e in (Named("one"), None))
    writer.add(["a", "bb"], ids=["a", "b"])
    plain.add(["b"], ids=["b"], vectors=vectors(1))
    write = plain._log._write

    def overtaken(*arguments: Any, **options: Any) -> Any:
        stored = write(*arguments, **options)
        index.reencode(Named("two"))
        return stored

    plain._log._write = overtaken  # type: ignore[method-assign]
    for former in (plain, writer):
        with raises("E-INCOMPATIBLE-ENCODER", "encoder"):
            former.add(["cccc"], ids=["a"], vectors=np.ones((1, N)))
    SealedIndex(tmp_path / "notes", OnlyWraps(keys), encoder=Named("two")).add(["ccc"], ids=["c"])
    assert index.search("ccc", top=1).ids == ["c"]
    index.compact()
    index.forget(["b"])
    assert index.reencode(Named("three")) == 2
    assert dict(zip(*(lambda rows: (rows.ids, rows.texts))(index.get()), strict=True)) == {"a": "a", "c": "ccc"}


def test_an_index_is_encoded_again_although_its_keys_are_renewed_meanwhile(tmp_path: Path, keys: Path) -> None:
    index = SealedIndex(tmp_path / "notes", keys, encoder=Named("one"), max_staleness=0)
    index.add(["a", "bb"], ids=["a", "b"])
    other, write, done = SealedIndex(tmp_path / "notes", keys), index._log._write, []

    def late(*arguments: Any, **options: Any) -> Any:
        if not done:
            done.append(other.reseal())
        return write(*arguments, **options)

    index._log._write = late  # type: ignore[method-assign]
    index.reencode(Named("two"))
    assert SealedIndex(tmp_path / "notes", keys, encoder=Named("two")).search("aa", top=1).texts == ["bb"]


def test_a_damaged_memory_of_the_newest_commit_is_named(index: SealedIndex, tmp_path: Path, keys: Path) -> None:
    filled(index)
    (head,) = Path(f"{keys}.heads").iterdir()
    head.write_bytes(head.read_bytes().replace(b'"digest":"', b'"digest":"\xff'))
    with raises("E-SEAL-OPEN", "trusted_state"):
        SealedIndex(tmp_path / "notes", keys).count()


def test_what_cannot_be_encoded_again_is_refused_at_once(tmp_path: Path, keys: Path, index: SealedIndex) -> None:
    filled(index)
    index.add(None, ids=["x", "y"], vectors=vectors(2))
    before = objects(index)
    with raises("E-INDEX-TEXT", "encoder") as error:
        index.reencode(Named("two", 5))
    assert "2 rows have no text" in str(error.value)
    with raises("E-INPUT", "encoder"):
        index.reencode(lambda texts: np.ones((len(texts), 3)))
    assert objects(index) == before
    index.delete(["x", "y"])
    assert index.reencode(Named("two", 5)) == 20


# Input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "param"),
    [
        ({"ids": ["a", "a"], "vectors": np.ones((2, N))}, "ids"),
        ({"ids": ["a", 1], "vectors": np.ones((2, N))}, "ids"),
        ({"ids": "ab", "vectors": np.ones((2, N))}, "ids"),
        ({"ids": ["a", "b"], "vectors": np.ones((1, N))}, "ids"),
        ({"ids": ["a"], "vectors": np.full((1, N), np.nan)}, "vectors"),
        ({"ids": ["a"], "vectors": np.full((1, N), 1e6)}, "vectors"),
        ({"ids": ["a"], "vectors": np.ones((1, N)), "metadata": [{"x": float("nan")}]}, "metadata"),
        ({"ids": ["a"], "vectors": np.ones((1, N)), "metadata": [["x"]]}, "metadata"),
        ({"ids": ["a"], "vectors": np.ones((1, N)), "metadata": iter([{}])}, "metadata"),
        (
            {"ids": ["a"], "vectors": np.ones((1, N)), "metadata": [{"x": [[json.loads("[" * 200 + "]" * 200)]]}]},
            "metadata",
        ),
        ({"ids": ["a"], "vectors": np.ones((1, N)), "metadata": [{"x": "\ud800"}]}, "metadata"),
        ({"ids": ["\ud800"], "vectors": np.ones((1, N))}, "ids"),
        ({"ids": ["a"], "vectors": np.ones((1, N)), "texts": ["\ud800"]}, "texts"),
        ({"ids": ["a"], "texts": ["no encoder"]}, "vectors"),
        ({"ids": ["a"]}, "texts"),
    ],
)
def test_wrong_rows_are_refused_and_nothing_is_written(
    index: SealedIndex, arguments: dict[str, Any], param: str
) -> None:
    filled(index)
    before = objects(index)
    with raises("E", param):
        index.add(**arguments)
    assert objects(index) == before
    index.add(None, ids=["good"], vectors=vectors(1))
    assert index.count() == 21


@pytest.mark.parametrize("location", ["", "sealed:", "a\0b", None, "nothing://bucket/notes"])
def test_a_wrong_location_is_refused(keys: Path, location: Any) -> None:
    with raises("E-INPUT", "location"):
        SealedIndex(location, keys)


def test_a_file_is_no_location(keys: Path) -> None:
    with pytest.raises(InvalidInputError, match="is a file; an index is a folder"):
        SealedIndex(keys, keys)


def test_nothing_is_written_where_an_open_index_was(tmp_path: Path, keys: Path, index: SealedIndex) -> None:
    filled(index)
    shutil.move(index.location, tmp_path / "moved")
    with raises("E-INDEX-ROLLED-BACK"):
        index.add(None, ids=["a"], vectors=vectors(1))
    assert not Path(index.location).exists()
    assert SealedIndex(tmp_path / "moved", keys).count() == 20


@pytest.mark.parametrize(
    "read",
    [
        lambda index: index.search(np.ones(N)),
        lambda index: index.get(),
        lambda index: index.ids(),
        lambda index: index.count(),
        lambda index: index.delete(["a"]),
        lambda index: index.refresh(),
        lambda index: index.compact(),
        lambda index: index.forget(["a"]),
        lambda index: index.reseal(),
    ],
)
def test_reading_needs_an_open_index(tmp_path: Path, keys: Path, index: SealedIndex, read: Any) -> None:
    with raises("E-INDEX-MISSING") as caught:
        read(SealedIndex(index.location, keys, create=False))
    assert str(caught.value) == f"No sealed index at {index.location}. Create one with add, or check the path."
    assert not Path(index.location).exists()
    filled(index)
    read(SealedIndex(index.location, keys))
    index.close()
    with raises("E-INDEX-CLOSED"):
        read(index)
    with raises("E-INDEX-CLOSED"):
        index.add(None, ids=["a"], vectors=vectors(1))


def test_a_new_index_counts_as_empty(tmp_path: Path, keys: Path) -> None:
    index = SealedIndex(tmp_path / "new", keys, encoder=Named("one"), max_staleness=0)
    assert (index.count(), index.ids(), index.get().ids, index.search("a text").ids) == (0, [], [], [])
    index.delete(["a"])
    assert not Path(index.location).exists()
    filled(index)
    assert index.count() == 20


def test_a_search_beside_the_end_of_its_index_says_so(index: SealedIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vecveil.index.sealed_index._ONE_THREAD", 0)
    hits = index.find(filled(index)[0])
    snapshot = index._log.current()
    index.close()
    monkeypatch.setattr(index, "_snapshot", lambda: snapshot)  # taken before the end
    for unfinished in (lambda: index.read(hits), lambda: index.find(np.ones(N)), lambda: index.ids({"year": 2000})):
        with raises("E-INDEX-CLOSED"):
            unfinished()


def test_wrong_queries_are_refused(index: SealedIndex) -> None:
    filled(index)
    with pytest.raises(InvalidInputError, match="complex128"):
        index.search(np.ones(N, complex))
    for query, param in ((np.zeros(N), "query"), (np.ones(3), "query"), ("", "query"), (np.ones((2, 3)), "query")):
        with raises("E", param):
            index.search(query)
    for several in (["a", 1], [np.ones(N), np.ones(3)], [np.ones(N), "a"], np.ones((1, 1, N)), ["a", ""]):
        with raises("E", "query"):
            SealedIndex(index.location, index._log._source._key, encoder=lambda t: np.ones((len(t), N))).search(several)
    for where in (
        {"year": {"around": 1}},
        ["year"],
        {"year": {"gt": True}},
        {"year": {"in": "x"}},
        {1: 2},
        {"tag": {"contains": 1}},
        {"$nor": []},
        {"$or": ["year"]},
        pc.field("year") > "x",
        {"tag": "\ud800"},
        json.loads('{"$not":' * 200 + "{}" + "}" * 200),
    ):
        with raises("E-INPUT", "where"):
            index.search(np.ones(N), where=where)
    for options, param in (({"candidates": "x"}, "candidates"), ({"mode": "hybrid", "words": 1}, "words")):
        with raises("E", param):
            index.search(np.ones(N), **options)
    index.delete(index.ids())
    assert index.search(np.ones(N)).ids == []


def test_an_unusual_row_spoils_no_search(index: SealedIndex) -> None:
    """Its numbers are beyond 64 bits or floats, and it repeats a word more often than 16 bits count."""
    X = filled(index)
    index.add(["word " * 70_000], ids=["odd"], vectors=vectors(1), metadata=[{"year": 10**400, "n": [-(10**400), 0.5]}])
    assert index.search(X[5], where={"year": 2005}).ids == ["5"]
    assert index.search(X[5], where={"year": {"gt": 2019}}).ids == ["odd"]
    assert index.search(X[5], where={"n": {"lt": -1e300}}).ids == ["odd"]
    assert "odd" in index.search(X[5], mode="hybrid", words="word", top=2).ids
    assert index.get(["odd"]).metadata == [{"year": 10**400, "n": [-(10**400), 0.5]}]
    for size in (1e300, 1e-300):
        assert index.search(X[5].astype(np.float64) * size, top=1).scores[0] == pytest.approx(1, abs=1e-3)


def test_compaction_deletes_what_killed_writers_left(index: SealedIndex) -> None:
    filled(index)
    left = objects(index)[0].with_name(f".{objects(index)[0].name[:40]}.{'0' * 12}.tmp")
    left.write_bytes(b"half a segment")
    index.add(None, ids=["a"], vectors=vectors(1))
    index.compact()
    assert not left.exists()


def test_an_interrupted_compaction_leaves_the_index_as_it_was(
    index: SealedIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(index)
    index.delete(["3"])
    before = objects(index)
    with monkeypatch.context() as patch:
        patch.setattr(BlockWriter, "close", lambda writer: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            index.compact()
    assert (objects(index), index.count()) == (before, 19)
    index.compact()
    assert index.count() == 19


def test_an_index_keeps_its_precision(tmp_path: Path, keys: Path) -> None:
    SealedIndex(tmp_path / "notes", keys, precision="int8").add(None, ids=["a"], vectors=vectors(1))
    index = SealedIndex(tmp_path / "notes", keys)
    index.add(None, ids=["b"], vectors=vectors(1))
    index.delete(["a"])
    index.compact()
    assert index.ids() == ["b"]
    assert np.abs(index.get(["b"]).vectors - vectors(1)).max() > 1e-3, "float16 would be nearer"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupted_add_is_there_or_not(index: SealedIndex, keys: Path, moment: str) -> None:
    """Ctrl-C right before or after its commit is there: the next append goes on from what is there."""
    filled(index)
    create = index._log.storage.create

    def interrupted(*arguments: Any) -> None:
        if moment == "after":
            create(*arguments)
        raise KeyboardInterrupt

    index._log.storage.create = interrupted  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        index.add(None, ids=["x"], vectors=vectors(1))
    index._log.storage.create = create  # type: ignore[method-assign]
    SealedIndex(index.location, keys).compact()
    index.add(None, ids=["y"], vectors=vectors(1))
    expected = {*map(str, range(20)), "y"} | ({"x"} if moment == "after" else set())
    assert set(SealedIndex(index.location, keys).ids()) == set(index.ids()) == expected


@pytest.mark.parametrize("precision", ["float16", "int8"])
@pytest.mark.parametrize("length", [0.1, 1, 3])
def test_a_small_segment_beside_a_large_one_is_found_by_its_own_vector(
    tmp_path: Path, keys: Path, precision: str, length: float
) -> None:
    with SealedIndex(tmp_path / "notes", keys, max_staleness=0, precision=precision) as index:
        X = length * vectors(20_001) / np.linalg.norm(vectors(20_001), axis=1, keepdims=True)
        index.add(["text"] * len(X), ids=[str(i) for i in range(len(X))], vectors=X)
        later = vectors(3, seed=1)
        index.add(["a later text"] * 3, ids=["a", "b", "c"], vectors=later)
        for compact in (False, True):
            if compact:
                index.compact()
            for name, q in zip("abc", later, strict=True):
                assert index.search(q, top=1).ids == [name]
                assert index.search(q, top=1, mode="hybrid", words="absent").ids == [name]
            assert index.search(X[7], top=1).ids == ["7"]


def test_a_masked_query_is_refused(index: SealedIndex) -> None:
    X = filled(index)
    for query in (np.ma.masked_less(X[0], 0), [np.ma.masked_less(X[0], 0)]):
        with raises("E-INPUT-TYPE", "query"):
            index.search(query)
    assert index.search(np.ma.array(X[0]), top=1).ids == ["0"]


@pytest.mark.slow
def test_more_segments_than_open_files(tmp_path: Path, keys: Path) -> None:
    """Of writers that cannot read, so that nobody merges."""
    resource = pytest.importorskip("resource")
    index = SealedIndex(tmp_path / "notes", keys, max_staleness=0)
    for i in range(40):
        index.add(None, ids=[str(i)], vectors=vectors(1))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = len(os.listdir("/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (files + 20, limits[1]))
    try:
        assert SealedIndex(tmp_path / "notes", keys).count() == 40
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_processes_of_two_precisions_begin_an_index_at_once(tmp_path: Path, keys: Path) -> None:
    one, two = (SealedIndex(tmp_path / "notes", keys, precision=precision) for precision in ("float16", "int8"))
    published, X = two._log._published, vectors(2)

    def overtaken(*arguments: Any) -> Any:
        if one._log.chain is None:
            one.add(None, ids=["a"], vectors=X[:1])
        return published(*arguments)

    two._log._published = overtaken  # type: ignore[method-assign]
    two.add(None, ids=["b"], vectors=X[1:])
    assert SealedIndex(tmp_path / "notes", keys).count() == 2
    three = SealedIndex(tmp_path / "notes", keys, precision="int8")
    with raises("E-SEAL-RANGE", "vectors"):
        three.add(None, ids=["c"], vectors=X[:1] * 1e6)


@pytest.mark.parametrize("change", ["add", "compact"])
def test_a_commit_that_is_said_to_exist_and_does_not_show_is_not_made_twice(
    index: SealedIndex, keys: Path, change: str
) -> None:
    """The answer to its creation was lost, and the storage remembers for a moment that it was absent."""
    filled(index)
    index.add(None, ids=["x"], vectors=vectors(1))
    log, create, content = index._log, index._log.storage.create, index._log.content
    hidden: list[int] = []

    def lost(name: str, data: bytes) -> None:
        create(name, data)
        if name.startswith("commits/"):
            hidden.append(int(name.removeprefix("commits/")))
            log.storage.create = create  # type: ignore[method-assign]
            raise FileExistsError(name)

    def absent(number: int) -> Any:
        if number in hidden:
            hidden.clear()
            return None
        return content(number)

    log.storage.create, log.content = lost, absent  # type: ignore[method-assign]
    with raises("E-INDEX-STORAGE"):
        index.add(None, ids=["y"], vectors=vectors(1)) if change == "add" else index.compact(retain=0)
    index.add(None, ids=["y"], vectors=vectors(1))
    index.compact(retain=0)
    assert set(SealedIndex(index.location, keys).ids()) == {*map(str, range(20)), "x", "y"}


@pytest.mark.parametrize("gone", ["", "segments", "commits"])
def test_a_folder_that_is_not_mounted_is_no_index_and_takes_no_row(
    index: SealedIndex, keys: Path, tmp_path: Path, gone: str
) -> None:
    filled(index)
    reader = SealedIndex(index.location, keys, max_staleness=0)
    assert reader.count() == 20
    folder = tmp_path / "notes" / gone
    folder.rename(tmp_path / "elsewhere")
    if gone != "segments":
        with pytest.raises(StoreError):
            reader.count()
    with pytest.raises(StoreError):
        index.add(None, ids=["x"], vectors=vectors(1))
    assert not folder.exists()
    (tmp_path / "elsewhere").rename(folder)
    assert reader.count() == SealedIndex(index.location, keys).count() == 20


@pytest.mark.parametrize("method", ["wrap", "unwrap"])
@pytest.mark.parametrize("error", [ConnectionError, ValueError, FileNotFoundError, TimeoutError])
def test_a_key_provider_that_fails_for_a_moment_accuses_no_storage(
    tmp_path: Path, keys: Path, method: str, error: type[Exception]
) -> None:
    provider = MasterKeys(KeyFile.from_file(keys))
    index = SealedIndex(tmp_path / "notes", provider, max_staleness=0)
    filled(index)
    real = getattr(MasterKeys, method)
    for call in range(3):
        left = iter(range(call))

        def fails(*arguments: Any, left: Any = left) -> Any:
            if next(left, None) is None:
                raise error
            return real(provider, *arguments)

        setattr(provider, method, fails)
        opened = SealedIndex(tmp_path / "notes", provider)
        with contextlib.suppress(IndexError) if call == 2 else raises("E-SEAL-PROVIDER", "key"):
            opened.add(None, ids=["x"], vectors=vectors(1)) if method == "wrap" else opened.count()
        setattr(provider, method, lambda *arguments: real(provider, *arguments))
    assert SealedIndex(tmp_path / "notes", provider).count() in (20, 21)


def test_a_rewrite_plans_on_the_commit_that_it_has_loaded(index: SealedIndex, keys: Path) -> None:
    """While one thread compacts and loads, another one follows the chain past an update of a row."""
    other = SealedIndex(index.location, keys, max_staleness=0)
    other.add(["old", "old"], ids=["x", "y"], vectors=vectors(2))
    index.refresh()
    other.add(["text"], ids=["z"], vectors=vectors(1))  # something to load
    segment, threads = index._log._segment, list[threading.Thread]()

    def loading(stored: Any, **options: Any) -> Any:
        if not threads:
            other.add(["new"], ids=["x"], vectors=vectors(1))
            threads.append(threading.Thread(target=index._log.advance))
            threads[0].start()
            threads[0].join(timeout=0.2)
        return segment(stored, **options)

    index._log._segment = loading  # type: ignore[method-assign]
    index.compact(retain=0)
    threads[0].join()
    assert index.get(["x"]).texts == SealedIndex(index.location, keys).get(["x"]).texts == ["new"]


def test_busy_writers_do_not_starve_the_compaction(index: SealedIndex, keys: Path) -> None:
    for i in range(8):
        index.add(None, ids=[f"i{i}"], vectors=vectors(1))
    other, published, others = SealedIndex(index.location, keys), index._log._published, iter(range(5))

    def overtaken(chain: Any, content: bytes) -> Any:
        for i in others:
            other.add(None, ids=[f"o{i}"], vectors=vectors(1))
            break
        return published(chain, content)

    index._log._published = overtaken  # type: ignore[method-assign]
    index._log.rewrite(index._log._small, once=True)
    assert len(index._log.advance().objects) == 6
    assert SealedIndex(index.location, keys).count() == 13


def test_a_header_that_a_storage_invents_is_refused_by_a_writer_that_cannot_read(tmp_path: Path, keys: Path) -> None:
    class OnlyWraps:
        wrap = MasterKeys(KeyFile.from_file(keys)).wrap

    reader = SealedIndex(tmp_path / "notes", MasterKeys(KeyFile.from_file(keys)))
    reader.add(None, ids=["a"], vectors=vectors(1))
    (commit,) = (tmp_path / "notes" / "commits").iterdir()
    honest = commit.read_bytes()
    for before, after in ((b'"dimension":32', b'"dimension":35184372088832'), (b'"float16"', b'"x"')):
        size = len(b"vecveil commit 2")
        length = int.from_bytes(honest[size : size + 4], "little") + len(after) - len(before)
        commit.write_bytes(honest[:size] + length.to_bytes(4, "little") + honest[size + 4 :].replace(before, after, 1))
        with raises("E-INDEX-CHAIN"):
            SealedIndex(tmp_path / "notes", OnlyWraps()).delete(["a"])
