"""A protected collection over every database: exact answers from sealed rows, nothing readable in the files."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.store_factories import STORES
from vecveil.index import Sealer
from vecveil.index.blob import SEALED_FIELD
from vecveil.keys import KeyFile
from vecveil.privacy.accounting import Ledger
from vecveil.privacy.protector import PlaintextWarning, Protector
from vecveil.privacy.protector.policy import ReleasePolicy
from vecveil.stores import Batch
from vecveil.stores.collection import ProtectedCollection
from vecveil.stores.locations import in_this_process
from vecveil.stores.migrating import MigrationOptions, migrate
from vecveil.stores.store import VectorStore

_names = itertools.count()
DIMENSION = 24
TEXTS = [f"canary-{i % 7} text number {i}" for i in range(120)]
IDS = [str(i + 1) for i in range(120)]


class Hashed:
    """An encoder without a model: unit vectors drawn from the text's hash, near to that of the text's first word."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        rows = [drawn(text) + 1.5 * drawn(text.split()[0]) for text in texts]
        return np.array([row / np.linalg.norm(row) for row in rows], np.float32).reshape(-1, DIMENSION)


@functools.cache
def drawn(text: str) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    return np.random.default_rng(seed).standard_normal(DIMENSION)


@pytest.fixture(scope="module")
def protector() -> Protector:
    rng = np.random.default_rng(0)
    positive, negative = rng.standard_normal((2, 300, DIMENSION)).astype(np.float32)
    return vecveil.fit_pairs(positive, negative, method="laplace", noise_to_signal=0.7)


@pytest.fixture(params=sorted(STORES), scope="module")
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(kind)


@pytest.fixture
def database(kind: str, folder: Path) -> Iterator[VectorStore]:
    with in_this_process(STORES[kind].locate(folder, f"sealed_{next(_names)}")) as opened:
        yield opened


@pytest.fixture
def sealer(tmp_path: Path) -> Sealer:
    KeyFile.create(tmp_path / "search.keys", "one")
    return Sealer(tmp_path / "search.keys")


@pytest.fixture
def collection(database: VectorStore, protector: Protector, sealer: Sealer) -> ProtectedCollection:
    made = ProtectedCollection(database, protector, sealer, name="notes", candidates=120, encoder=Hashed())
    made.add(TEXTS, ids=IDS, metadata=[{"page": i} for i in range(120)])
    return made


def test_search_gives_exact_scores_and_texts(collection: ProtectedCollection) -> None:
    X, query = Hashed().encode(TEXTS), "canary-3 question"
    cosines = X @ Hashed().encode([query])[0]
    ranking = collection.search(query, top=7)
    assert ranking.ids == [IDS[i] for i in np.argsort(-cosines, kind="stable")[:7]]
    np.testing.assert_allclose(ranking.scores, np.sort(cosines)[::-1][:7], atol=1e-3)
    assert ranking.texts == [TEXTS[int(name) - 1] for name in ranking.ids]
    assert ranking.metadata == [{"page": int(name) - 1} for name in ranking.ids]
    np.testing.assert_allclose(ranking.vectors, X[[int(name) - 1 for name in ranking.ids]], atol=1e-3)
    by_vector = collection.search(Hashed().encode([query])[0], top=7)
    assert by_vector.ids == ranking.ids


def test_masked_vectors_are_refused(collection: ProtectedCollection, database: VectorStore) -> None:
    X = np.ma.masked_less(Hashed().encode(TEXTS[:2]), 0)
    for vectors in (X, list(X)):
        with raises("E-INPUT-TYPE", "vectors"):
            collection.add(TEXTS[:2], ids=IDS[:2], vectors=vectors)
    with raises("E-INPUT-TYPE", "query"):
        collection.search(X[0])
    with raises("E-INPUT-TYPE", "query"):
        collection.sealer.rank(X[0], [], ids=[], collection="notes")
    with raises("E-INPUT-TYPE", "vectors"):
        database.write(Batch(("x",), X[:1], ({},)))


def test_threads_that_write_at_once_lose_no_row_and_write_none_twice(
    database: VectorStore, protector: Protector, sealer: Sealer
) -> None:
    """The first use of the store is by all of them, too; one id belongs to all."""
    made = ProtectedCollection(database, protector, sealer, name="notes", candidates=120, encoder=Hashed())
    start = threading.Barrier(4)

    def write(who: int) -> None:
        start.wait()
        for i in range(4):
            ids = [*(f"{1000 * who + 10 * i + k}" for k in range(1, 4)), f"{99990 + i}"]
            made.add([f"canary-{who} in row {name}" for name in ids], ids=ids)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(1, 5)))
    names = [name for part in database.every_row() for name in part.ids]
    assert len(names) == len(set(names)) == 4 * 4 * 3 + 4
    rows = made.get(names)
    assert all(text.endswith(f" in row {name}") for name, text in zip(rows.ids, rows.texts, strict=True) if text)
    assert None not in rows.texts


def test_the_database_holds_protected_vectors_and_ciphertext(
    collection: ProtectedCollection, database: VectorStore, folder: Path
) -> None:
    stored = next(database.batches())
    order = [int(name) - 1 for name in stored.ids]
    cosines = np.einsum("ij,ij->i", stored.vectors, Hashed().encode(TEXTS)[order])
    assert (cosines / np.linalg.norm(stored.vectors, axis=1) < 0.999).all()
    assert {name for row in stored.fields for name in row} == {SEALED_FIELD}
    for path in folder.rglob("*"):
        if path.is_file():
            assert b"canary-" not in path.read_bytes()


def test_rows_are_replaced_got_and_deleted(collection: ProtectedCollection, database: VectorStore) -> None:
    collection.add(["canary-9 new"], ids=["5"])
    assert database.count() == 120
    got = collection.get(["5", "6"])
    assert (got.texts, got.metadata) == (["canary-9 new", TEXTS[5]], [None, {"page": 5}])
    assert collection.get(["777", "6", "5"], missing="skip").ids == ["6", "5"]
    collection.delete(["5", "777"])
    assert collection.get(["5"], missing="skip").ids == []
    assert "5" not in collection.search("canary-9 new").ids
    with raises("E-STORE-NOT-FOUND"):
        collection.get(["5"])


def test_adding_again_draws_noise_for_changed_rows_alone(
    database: VectorStore, protector: Protector, sealer: Sealer, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "releases.ledger")
    policy = ReleasePolicy(protector, ledger=ledger)
    made = ProtectedCollection(database, policy, sealer, name="notes", encoder=Hashed())
    made.add(TEXTS[:20], ids=IDS[:20])
    before = database.read(IDS[:20])
    texts = [*TEXTS[:3], "canary-5 changed", *TEXTS[4:22]]
    again = ProtectedCollection(database, policy, sealer, name="notes", encoder=Hashed())
    again.add(texts, ids=IDS[:22], metadata=[{"page": 1}] * 22)
    after = database.read(IDS[:20])
    same = np.isclose(before.vectors, after.vectors, atol=1e-6).all(axis=1)
    assert list(np.flatnonzero(~same)) == [3]
    assert ledger.total == 23  # 20 rows, one changed, two new
    got = again.get(IDS[:22])
    assert (got.texts, got.metadata) == (texts, [{"page": 1}] * 22)
    np.testing.assert_allclose(got.vectors, Hashed().encode(texts), atol=1e-3)
    # Another vector of the same text is a change.
    vectors = Hashed().encode(texts)
    vectors[7] = vectors[8]
    made.add(texts, ids=IDS[:22], vectors=vectors)
    assert ledger.total == 24
    assert not np.isclose(database.read(["8"]).vectors, after.vectors[7], atol=1e-6).all()


def test_a_moved_blob_is_refused_or_skipped(collection: ProtectedCollection, database: VectorStore) -> None:
    row = database.read(["1", "2"])
    database.write(type(row)(row.ids, row.vectors, (row.fields[1], {**row.fields[0], SEALED_FIELD: "no base64!"})))
    with raises("E-SEAL-OPEN"):
        collection.search("canary-1 x", top=100)
    ranking = collection.search("canary-1 x", top=100, on_invalid="skip")
    assert sorted(ranking.skipped) == ["1", "2"]
    assert not {"1", "2"} & set(ranking.ids)


def test_resealing_goes_on_after_an_interruption(
    collection: ProtectedCollection, database: VectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: row for part in database.batches() for name, row in zip(part.ids, part.vectors, strict=True)}
    write, calls = type(database).write, itertools.count()

    def interrupted(self: VectorStore, batch: object) -> None:
        if next(calls) == 1:
            raise KeyboardInterrupt
        write(self, batch)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(type(database), "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            collection.reseal(batch=40)
    assert len(collection.search("canary-2 x", top=120).ids) == 120  # readers open both keys
    assert collection.reseal(batch=50) == 80
    assert len(collection.sealer.keys.read(collection.name).keys) == 1
    assert len(collection.search("canary-2 x", top=120).ids) == 120
    for part in database.batches():
        for name, row in zip(part.ids, part.vectors, strict=True):
            np.testing.assert_allclose(row, before[name], atol=1e-6)


def test_blobs_may_live_elsewhere(database: VectorStore, protector: Protector, sealer: Sealer) -> None:
    blobs: dict[str, bytes] = {}
    made = ProtectedCollection(database, protector, sealer, candidates=120, encoder=Hashed(), blobs=blobs, name="notes")
    made.add(TEXTS, ids=IDS)
    assert sorted(blobs) == sorted(IDS)
    assert all(set(row) == {"vecveil_protector"} for row in next(database.batches()).fields)
    assert made.search("canary-3 question").ids[0] in IDS
    made.delete(IDS[:3])
    assert len(blobs) == 117
    del blobs["9"]
    with raises("E-SEAL-OPEN"):
        made.search("canary-3 question", top=100)


def test_filters_by_tokens(
    database: VectorStore, protector: Protector, sealer: Sealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = ["1", 1, True, 2.5, "o'neil"]
    metadata = [{"tenant": values[i % 5], "year": 2020 + i % 2, "page": i} for i in range(40)]
    given = {"name": "notes", "encoder": Hashed()}
    made = ProtectedCollection(database, protector, sealer, filter_fields=("tenant", "year"), **given)
    made.add(TEXTS[:40], ids=IDS[:40], metadata=metadata)
    made.add(["canary-3 no tenant"], ids=["500"], metadata=[{"page": 1}])

    def matching(**where: object) -> list[str]:
        return sorted(made.search("canary-3 x", top=60, where=where).ids, key=int)

    # Another program learns the fields from the key store; 1 and 1.0 agree, "1" and True differ.
    reader = ProtectedCollection(database, protector, Sealer(sealer.keys), candidates=60, **given)
    for i, value in enumerate(values):
        expected = [name for at, name in enumerate(IDS[:40]) if at % 5 == i]
        assert matching(tenant=value) == expected
        assert sorted(reader.search("canary-3 x", top=60, where={"tenant": value}).ids, key=int) == expected
        assert sorted(reader.ids({"tenant": value}), key=int) == expected
    with monkeypatch.context() as patch:  # more rows than one search gives: all rows are read
        patch.setattr("vecveil.stores.collection._BATCH", 3)
        assert sorted(made.ids({"tenant": "1", "year": 2020}), key=int) == IDS[:40:10]
    assert sorted(made.ids(), key=int) == [*IDS[:40], "500"]
    assert matching(tenant=1.0) == matching(tenant=1)
    both = [name for at, name in enumerate(IDS[:40]) if at % 5 in (0, 4) and at % 2]
    assert matching(tenant=["1", "o'neil"], year=2021) == both
    assert matching(tenant=[]) == matching(tenant="2") == []
    noon = datetime(2025, 3, 30, 12, tzinfo=timezone(timedelta(hours=2)))
    made.add(["canary-3 at noon"], ids=["501"], metadata=[{"tenant": "2025-03-30T10:00:00+00:00"}])
    assert matching(tenant=noon) == matching(tenant=[noon]) == ["501"]
    made.delete(["501"])
    with raises("E-INPUT-NAME", "where"):
        matching(page=3)
    with raises("E-SEAL-FILTER", "where"):
        matching(tenant=None)
    if database.kind not in ("lancedb", "sqlite-vec"):  # whose tables lack the column, another error
        mistyped = ProtectedCollection(database, protector, sealer, filter_fields=("yeer",), **given)
        for call in (mistyped.ids, lambda where: mistyped.search("canary-3 x", where=where)):
            with raises("E-INPUT-NAME", "where") as caught:
                call({"yeer": 2021})
            assert "tenant, year" in str(caught.value)
    # The database sees tokens, which differ from field to field, and changes none of the results.
    row = database.read(["1"])
    assert set(row.fields[0]) == {SEALED_FIELD, "vecveil_filter_tenant", "vecveil_filter_year"}
    other = {**row.fields[0], "vecveil_filter_tenant": database.read(["2"]).fields[0]["vecveil_filter_tenant"]}
    database.write(Batch(row.ids, row.vectors, (other,)))
    assert "1" not in matching(tenant=1)
    assert "1" not in reader.ids({"tenant": 1})
    assert reader.get(["2", "1", "777"], where={"tenant": "1"}, missing="skip").ids == ["1"]
    # During a rotation queries match older and newer tokens; resealing rewrites them.
    sealer.keys.rotate("notes")
    made.add(TEXTS[:10], ids=IDS[:10], metadata=metadata[:10])
    assert matching(tenant="1") == [name for at, name in enumerate(IDS[:40]) if at % 5 == 0]
    reader.reseal()
    assert len(sealer.keys.read("notes").keys) == 1
    assert matching(tenant="o'neil", year=2020) == [name for at, name in enumerate(IDS[:40]) if at % 10 == 4]
    with raises("E-SEAL-FILTER", "metadata"):
        made.add(["a"], ids=["600"], metadata=[{"tenant": ["a"]}])


@pytest.mark.parametrize("kind", sorted(STORES.keys() - {"chroma"}), scope="module")
def test_a_sealed_copy_is_filtered(
    database: VectorStore, flat: VectorStore, protector: Protector, sealer: Sealer, tmp_path: Path
) -> None:
    """Of Chroma, which a migration opens in a process of its own, test_replacing.py has the same."""
    names = ["a", "Clinic of Saint Anne in the north", 1, "1", None]
    rows = tuple({"note": TEXTS[i], "tenant": names[i % 5], "tags": ["x"], "page": i} for i in range(20))
    flat.create(DIMENSION, metric="cosine")
    flat.write(Batch(tuple(IDS[:20]), Hashed().encode(TEXTS[:20]), rows))

    def copy(**options: object) -> None:
        migrate(
            flat,
            database,
            ReleasePolicy(protector),
            tmp_path / "state.json",
            names=("clean", "notes"),
            batch=8,
            options=MigrationOptions(**{"seal": True, **options}),
            sealer=sealer,
            show_progress=False,
        )

    for wrong in (
        {"filter_fields": ("tags",)},
        {"filter_fields": ("tenant",), "drop": ("tenant",)},
        {"filter_fields": ("none",)},
        {"filter_fields": ("page", "PAGE")},
    ):
        with raises("E-SEAL-FILTER" if "tags" in wrong["filter_fields"] else "E-INPUT", "filter_fields"):
            copy(**wrong)
    copy(filter_fields=("tenant",))
    with raises("E-STORE-STATE", "filter_fields"):
        copy()
    assert {name for row in database.read(IDS[:20]).fields for name in row} == {SEALED_FIELD, "vecveil_filter_tenant"}
    reader = ProtectedCollection(database, protector, sealer, name="notes", encoder=Hashed())
    for i, name in enumerate(names[:4]):
        found = reader.search("canary-3 x", top=20, where={"tenant": name})
        assert sorted(found.ids, key=int) == IDS[i:20:5]
        assert set(found.texts) == set(TEXTS[i:20:5])
    reader.add(["canary-3 later"], ids=["500"], metadata=[{"tenant": "a"}])
    assert "500" in reader.search("canary-3 later", where={"tenant": "a"}).ids


@pytest.fixture
def flat(tmp_path: Path) -> Iterator[VectorStore]:
    """Return a store of one kind, for what does not depend on the database."""
    with in_this_process(f"sqlite-vec:{tmp_path}/flat.db#rows") as opened:
        yield opened


def interrupted(batch: Batch) -> None:
    raise KeyboardInterrupt


def test_generations_detect_replayed_and_resurrected_rows(
    flat: VectorStore, protector: Protector, sealer: Sealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers: dict[str, int] = {}
    made = ProtectedCollection(
        flat, protector, sealer, name="notes", candidates=120, encoder=Hashed(), generations=numbers
    )
    made.add(TEXTS[:30], ids=IDS[:30])
    old = flat.read(["1", "2"])
    made.add(["canary-1 changed"], ids=["1"])
    made.delete(["2"])
    assert (numbers["1"], numbers["2"], numbers["3"]) == (2, 2, 1)
    flat.write(old)
    with raises("E-SEAL-OPEN"):
        made.get(["1"])
    ranking = made.search("canary-1 x", top=40, on_invalid="skip")
    assert (len(ranking.ids), sorted(ranking.skipped)) == (28, ["1", "2"])
    made.add(["canary-1 anew"] * 2, ids=["1", "2"])
    assert (numbers["1"], numbers["2"]) == (3, 3)
    assert made.reseal(batch=7) == 30
    assert len(made.search("canary-1 x", top=40).ids) == 30
    # A kill between the numbers and the rows: the next add still knows which rows are unchanged.
    before, texts = flat.read(IDS[:30]).vectors, made.get(IDS[:30]).texts
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(flat, "write", interrupted)
            with pytest.raises(KeyboardInterrupt):
                made.add([*map(str, texts[:29]), "canary-2 other"], ids=IDS[:30])
    with raises("E-SEAL-OPEN"):
        made.get(["7"])
    made.add([*map(str, texts[:29]), "canary-2 other"], ids=IDS[:30])
    same = (flat.read(IDS[:30]).vectors == before).all(axis=1)
    assert list(np.flatnonzero(~same)) == [29]
    del numbers["5"]  # of a row that the caller never wrote
    with raises("E-SEAL-OPEN"):
        made.get(["5"])


@pytest.mark.parametrize("apart", [False, True])
def test_reprotecting_draws_each_row_once_and_goes_on_after_a_kill(
    flat: VectorStore, protector: Protector, sealer: Sealer, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    given = {
        "name": "notes",
        "candidates": 120,
        "encoder": Hashed(),
        "blobs": {} if apart else None,
        "filter_fields": ("page",),
    }
    made = ProtectedCollection(flat, protector, sealer, **given)
    made.add(TEXTS, ids=IDS, metadata=[{"page": i % 4} for i in range(120)])
    stronger, seen = protector.rescaled(2.0), [flat.read(IDS).vectors]
    write, calls = type(flat).write, itertools.count()

    def interrupted(self: VectorStore, batch: Batch) -> None:
        if next(calls) == 1:
            raise KeyboardInterrupt
        write(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(type(flat), "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            made.reprotect(stronger, batch=40)
    for each in (protector, stronger):
        reader = ProtectedCollection(flat, each, sealer, **given)
        with raises("E-INCOMPATIBLE-REPROTECT"):
            reader.search("canary-2 x")
        with raises("E-INCOMPATIBLE-REPROTECT"):
            reader.reseal()
    seen.append(flat.read(IDS).vectors)
    anew = ProtectedCollection(flat, None, sealer, **given)
    assert anew.reprotect(stronger, batch=50) == 80
    seen.append(flat.read(IDS).vectors)
    changed = [~np.isclose(a, b, atol=1e-6).all(axis=1) for a, b in itertools.pairwise(seen)]
    assert [int(rows.sum()) for rows in changed] == [40, 80]
    assert (changed[0] ^ changed[1]).all()
    hits = anew.search("canary-2 x", top=120, where={"page": 2})
    assert len(hits.ids) == 30
    assert all(text == TEXTS[int(name) - 1] for name, text in zip(hits.ids, hits.texts, strict=True))
    assert len(sealer.keys.read("notes").keys) == 1
    assert anew.reprotect(stronger) == 0  # the rows have their draw
    with raises("E-INCOMPATIBLE-PROTECTOR"):
        made = ProtectedCollection(flat, protector, sealer, **given)
        made.search("canary-2 x")
    narrow = vecveil.fit_pairs(
        *np.random.default_rng(1).standard_normal((2, 300, 8)), method="laplace", noise_to_signal=0.7
    )
    with raises("E-INCOMPATIBLE-DIMENSION", "protector"):
        anew.reprotect(narrow)


def test_reprotecting_by_rewriting_texts(flat: VectorStore, protector: Protector, sealer: Sealer) -> None:
    made = ProtectedCollection(flat, protector, sealer, name="notes", encoder=Hashed())
    made.add(TEXTS[:20], ids=IDS[:20])
    concept = vecveil.Concept.from_terms("canary", ["canary-3", "canary-4"])
    redact = vecveil.fit(TEXTS, concept, Hashed(), method="redact")
    assert made.reprotect(redact) == 20
    rewritten = redact.rewrite(TEXTS[:20])
    assert rewritten != TEXTS[:20]
    np.testing.assert_allclose(flat.read(IDS[:20]).vectors, Hashed().encode(rewritten), atol=1e-6)
    assert made.get(["4"]).texts == [TEXTS[3]]


def test_a_text_stage_rewrites_the_candidates_alone(database: VectorStore, sealer: Sealer) -> None:
    concept = vecveil.Concept.from_terms("canary", [f"canary-{i}" for i in range(7)])
    stage = vecveil.fit(
        TEXTS, concept, Hashed(), method="laplace", noise_to_signal=1e-4, rewrite="delete", show_progress=False
    )
    made = ProtectedCollection(database, stage, sealer, name="notes", candidates=60)
    made.add(TEXTS[:60], ids=IDS[:60])
    rewritten = [text.split(" ", 1)[1] for text in TEXTS[:60]]
    np.testing.assert_allclose(database.read(IDS[:60]).vectors, Hashed().encode(rewritten), atol=1e-3)
    np.testing.assert_allclose(made.get(["4"]).vectors, Hashed().encode(TEXTS[3:4]), atol=1e-2)
    hits = made.search("canary-3 text number 3", top=5)
    assert hits.ids[0] == "4"
    assert hits.texts[0] == TEXTS[3]
    np.testing.assert_allclose(hits.scores[0], 1, atol=1e-3)
    # The exact ranking knows the words that the database never saw: equal ones come first.
    assert all(text.startswith("canary-3") for text in hits.texts[:2])
    with raises("E-INPUT", "query"):
        made.search(Hashed().encode(TEXTS[3:4])[0])


def test_without_a_sealer_the_encoder_sees_rewritten_texts_alone(flat: VectorStore) -> None:
    class Watched(Hashed):
        def encode(self, texts: Sequence[str]) -> np.ndarray:
            assert not any("canary-3" in text for text in texts)
            return super().encode(texts)

    concept = vecveil.Concept.from_terms("canary", ["canary-3", "canary-4"])
    redact = vecveil.fit(TEXTS, concept, Hashed(), method="redact")
    made = ProtectedCollection(flat, redact, encoder=Watched())
    made.add(TEXTS[:20], ids=IDS[:20])
    made.add(TEXTS[:20], ids=IDS[:20], vectors=Hashed().encode(TEXTS[:20]))
    np.testing.assert_allclose(flat.read(IDS[:20]).vectors, Hashed().encode(redact.rewrite(TEXTS[:20])), atol=1e-6)
    assert made.search("canary-3 text number 3", top=1).ids == ["4"]


_NESTED: dict[str, object] = {}
_NESTED["in"] = _NESTED


@pytest.mark.parametrize("row", [{1: "a"}, "text", {"a": "\ud800"}, {"\udc00": 1}, _NESTED, {"a": b"bytes"}])
def test_what_no_database_can_hold_is_refused_before_a_vector_is_released(
    flat: VectorStore, protector: Protector, tmp_path: Path, row: object
) -> None:
    ledger = Ledger(tmp_path / "ledger")
    made = ProtectedCollection(flat, ReleasePolicy(protector, ledger=ledger), encoder=Hashed())
    with pytest.raises(vecveil.VecveilError) as caught:
        made.add(["one two"], ids=["1"], metadata=[row])  # type: ignore[list-item]
    assert caught.value.param in ("metadata", "fields")
    with raises("E-INPUT-IDS", "ids"):
        made.add(["one two"], ids=["\ud800"])
    assert ledger.total == 0


def test_an_interrupted_update_leaves_no_blob_beside_the_vector_of_another_text(
    flat: VectorStore, protector: Protector, sealer: Sealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ProtectedCollection(flat, protector, sealer, name="notes", encoder=Hashed(), blobs={})
    made.add(TEXTS[:20], ids=IDS[:20])
    before, texts = flat.read(IDS[:20]).vectors, [*TEXTS[:3], "canary-5 changed", *TEXTS[4:20]]
    with monkeypatch.context() as patch:
        patch.setattr(flat, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            made.add(texts, ids=IDS[:20])
    assert len(made.search("canary-5 changed", top=20, candidates=20).ids) == 19
    made.add(texts, ids=IDS[:20])
    same = (flat.read(IDS[:20]).vectors == before).all(axis=1)
    assert list(np.flatnonzero(~same)) == [3]


def test_a_database_that_answers_wrongly_adds_no_row(
    flat: VectorStore, protector: Protector, sealer: Sealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ProtectedCollection(flat, protector, sealer, name="notes", encoder=Hashed(), filter_fields=("tenant",))
    made.add(TEXTS[:40], ids=IDS[:40], metadata=[{"tenant": i % 2} for i in range(40)])
    search, batches = type(flat).search, type(flat).batches
    monkeypatch.setattr(type(flat), "search", lambda self, vector, k, where=None: search(self, vector, 40))
    assert len(made.search("canary-1 x", top=5, candidates=5).ids) == 5
    for one in made.search("canary-1 x", top=9, candidates=20, where={"tenant": 1}).metadata:
        assert one == {"tenant": 1}
    assert sorted(made.ids({"tenant": 1}), key=int) == IDS[1:40:2]
    # A row that is listed twice, as by a database that moves rows while they are read.
    monkeypatch.setattr(
        type(flat), "batches", lambda self, size=9, *, after="": itertools.chain(*[batches(self, size)] * 2)
    )
    assert made.reseal(batch=9) == 40


@pytest.mark.parametrize("doing", ["reseal", "reprotect"])
def test_no_key_is_deleted_before_every_row_was_read(
    flat: VectorStore, protector: Protector, sealer: Sealer, monkeypatch: pytest.MonkeyPatch, doing: str
) -> None:
    made = ProtectedCollection(flat, protector, sealer, name="notes", encoder=Hashed())
    made.add(TEXTS[:40], ids=IDS[:40])
    renew = made.reseal if doing == "reseal" else lambda **given: made.reprotect(protector.rescaled(2.0), **given)
    with monkeypatch.context() as patch:
        patch.setattr(type(flat), "count", lambda self: 41)
        with raises("E-STORE-INCOMPLETE", "database"):
            renew(batch=9)
    assert len(sealer.keys.read("notes").keys) == 1
    batches = type(flat).batches

    def losing(self: VectorStore, size: int = 9, *, after: str = "") -> Iterator[Batch]:
        for part in batches(self, size, after=after):
            yield part.rows(range(len(part) - 1)) if size < 1000 else part

    monkeypatch.setattr(type(flat), "batches", losing)
    assert renew(batch=9) == 40
    assert len(made.get(IDS[:40]).ids) == 40


def test_separate_blobs_without_a_row_get_the_new_key(flat: VectorStore, protector: Protector, sealer: Sealer) -> None:
    blobs: dict[str, bytes] = {}
    made = ProtectedCollection(flat, protector, sealer, name="notes", encoder=Hashed(), blobs=blobs)
    made.add(TEXTS[:20], ids=IDS[:20])
    flat.delete(IDS[5:20])  # as a database restored from an older backup
    assert made.reseal(batch=4) == 20
    assert sealer.unseal(list(blobs.values()), ids=list(blobs), collection="notes").texts == TEXTS[:20]


def test_a_uuid_is_one_id_in_any_spelling(database: VectorStore, protector: Protector, sealer: Sealer) -> None:
    made = ProtectedCollection(database, protector, sealer, name="notes", encoder=Hashed())
    name = "6e2a5a96-73ab-4b9c-8d0c-2b4f6f1d7c11"
    for other in (name.upper(), name.replace("-", ""), f"{{{name}}}"):
        with raises("E-INPUT-IDS", "ids"):
            made.add(TEXTS[:2], ids=[name, other])
        with raises("E-INPUT-IDS", "ids"):
            sealer.seal(Hashed().encode(TEXTS[:2]), ids=[name, other], collection="notes")
    made.add(TEXTS[:1], ids=[name.upper()])
    made.add(TEXTS[1:2], ids=[name.upper()])
    assert made.get([name.upper()]).texts == TEXTS[1:2]
    for other in (name, name.replace("-", "")):
        with raises("E-INPUT-IDS", "ids"):
            made.add(TEXTS[:1], ids=[other])


def test_a_moved_store_and_another_key_file_are_told_apart(
    protector: Protector, sealer: Sealer, tmp_path: Path
) -> None:
    pytest.importorskip("sqlite_vec")
    given = {"encoder": Hashed()}
    made = ProtectedCollection(f"sqlite-vec:{tmp_path}/old.db#notes", protector, sealer, **given)
    with made.database:
        made.add(TEXTS[:20], ids=IDS[:20])
    (tmp_path / "old.db").rename(tmp_path / "new.db")
    moved = ProtectedCollection(f"sqlite-vec:{tmp_path}/new.db#notes", protector, sealer, **given)
    with moved.database:
        assert moved.name == made.name
        assert moved.search("canary-3 text number 3", top=1).texts == TEXTS[3:4]
        moved.add(TEXTS[20:21], ids=IDS[20:21])
        for renew in (moved.reseal, lambda: moved.reprotect(protector.rescaled(2.0))):  # of a copy, locks the original
            with raises("E-SEAL-MOVED", "name"):
                renew()
        assert ProtectedCollection(moved.database, None, sealer, name=made.name).reseal() == 21
        KeyFile.create(tmp_path / "other.keys", "one")
        other = ProtectedCollection(f"sqlite-vec:{tmp_path}/new.db#notes", protector, tmp_path / "other.keys", **given)
        for call in (lambda: other.search("canary-1 x"), lambda: other.add(["a"], ids=["99"]), other.get):
            with raises("E-SEAL-COLLECTION", "sealer"):
                call()
        with raises("E-SEAL-COLLECTION", "collection") as caught:
            ProtectedCollection(moved.database, protector, sealer, name="elsewhere", **given).search("canary-1 x")
        assert "--seal-name" in str(caught.value)


def test_the_guarantee_is_the_rows_and_says_what_the_database_sees(
    flat: VectorStore, protector: Protector, sealer: Sealer
) -> None:
    rows, both = protector.guarantee, ProtectedCollection(flat, protector, sealer, name="notes").guarantee
    assert both.epsilon == rows.epsilon
    assert set(rows.promised) < set(both.promised)
    assert set(rows.not_promised) < set(both.not_promised)
    assert "Access patterns" in str(both)


def test_wrong_queries_are_refused(flat: VectorStore, protector: Protector, sealer: Sealer) -> None:
    made = ProtectedCollection(flat, protector, sealer, name="notes", encoder=Hashed(), filter_fields=("tenant",))
    made.add(TEXTS[:20], ids=IDS[:20])
    with raises("E-INCOMPATIBLE-PROTECTOR", "protector"):
        ProtectedCollection(flat, protector.rescaled(2.0), sealer, name="notes").search("canary-1 x")
    with raises("E-INPUT-SHAPE", "query"):  # two would be sent to the database
        made.search(Hashed().encode(TEXTS[:2]))
    with raises("E-INPUT-TYPE", "where"):
        made.search("canary-1 x", where="tenant")  # type: ignore[arg-type]
    with raises("E-INPUT-RANGE", "candidates"):
        made.search("canary-1 x", candidates=0)


def test_wrong_input_writes_nothing(flat: VectorStore, protector: Protector, sealer: Sealer) -> None:
    made = ProtectedCollection(flat, protector, sealer, name="notes", encoder=Hashed())
    with raises("E-INPUT", "ids"):
        made.add(["a", "b"], ids=["1", "1"])
    with raises("E-INPUT"):
        made.add(["a", "b"], ids=["1"])
    with raises("E-INPUT", "ids"):
        made.add(["a"], ids=[1])  # type: ignore[list-item]
    with raises("E-INPUT"):
        made.add(["a"], ids=["1"], vectors=np.full((1, DIMENSION), np.nan, np.float32))
    with raises("E-INPUT", "candidates"):
        made.search("a", top=300, candidates=200)
    assert not flat.exists() or flat.count() == 0


def test_reseal_keeps_precision_and_reports_damaged_rows(
    flat: VectorStore, protector: Protector, sealer: Sealer
) -> None:
    collection = ProtectedCollection(flat, protector, sealer, name="notes", encoder=Hashed())
    collection.add(TEXTS[:9], ids=IDS[:9])
    keys = sealer.keys
    exact = Sealer(keys, precision="float32")
    one = ProtectedCollection(flat, collection.policy, exact, name="notes", encoder=Hashed())
    one.add(["canary-9 exact"], ids=["200"])
    row = flat.read(["3"])
    flat.write(type(row)(row.ids, row.vectors, ({SEALED_FIELD: "AQ=="},)))
    with raises("E-SEAL-OPEN", "database"):
        collection.reseal()
    assert len(keys.read("notes").keys) == 2  # the older key stays
    collection.delete(["3"])
    by_key_alone = ProtectedCollection(flat, None, exact, name="notes")
    by_key_alone.reseal()
    with raises("E-INPUT", "protector"):
        by_key_alone.search(Hashed().encode(["a"])[0])
    assert len(keys.read("notes").keys) == 1
    got = collection.get(["200"]).vectors[0]
    np.testing.assert_array_equal(got, Hashed().encode(["canary-9 exact"])[0])


def test_rows_that_are_written_during_reseal_keep_the_older_key_and_end_it_with_an_error(
    flat: VectorStore, protector: Protector, sealer: Sealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ProtectedCollection(flat, protector, sealer, name="notes", encoder=Hashed())
    made.add(TEXTS[:20], ids=IDS[:20])
    late, write = flat.read(["3"]), flat.write

    def written_again(batch: Batch) -> None:
        write(batch)
        write(late)

    with monkeypatch.context() as patch:
        patch.setattr(flat, "write", written_again)
        with raises("E-STORE-CHANGED", "database"):
            made.reseal()
    assert len(sealer.keys.read("notes").keys) == 2
    assert made.get(["3"]).texts == [TEXTS[2]]
    assert made.reseal() == 1
    assert len(sealer.keys.read("notes").keys) == 1


def test_rows_without_a_blob_are_not_joined(flat: VectorStore, protector: Protector, sealer: Sealer) -> None:
    flat.create(DIMENSION, metric="cosine")
    clean = np.ones((1, DIMENSION), np.float32)
    flat.write(Batch(("1",), clean, ({"page": 1},)))
    made = ProtectedCollection(flat, protector, sealer, name="notes", encoder=Hashed())
    with raises("E-STORE-UNSEALED", "database"):
        made.add(["a"], ids=["2"])


@pytest.mark.parametrize("apart", [False, True])
def test_rows_of_another_key_store_are_not_joined(
    flat: VectorStore, protector: Protector, sealer: Sealer, tmp_path: Path, apart: bool
) -> None:
    given = {"name": "notes", "encoder": Hashed(), "blobs": {} if apart else None}
    ProtectedCollection(flat, protector, sealer, **given).add(TEXTS[:5], ids=IDS[:5])
    before = flat.read(IDS[:5]).vectors
    KeyFile.create(tmp_path / "other.keys", "one")
    other = ProtectedCollection(flat, protector, tmp_path / "other.keys", **given)
    with raises("E-SEAL-COLLECTION", "sealer"):
        other.add(TEXTS[:5], ids=IDS[:5])
    assert not other.sealer.keys.collections()
    np.testing.assert_array_equal(flat.read(IDS[:5]).vectors, before)
    if apart:
        with raises("E-STORE-UNSEALED"):
            ProtectedCollection(flat, protector, sealer, **{**given, "blobs": {}}).add(["a"], ids=["9"])


@pytest.mark.parametrize("keep_text", [False, True])
def test_without_a_sealer_the_database_ranks(
    database: VectorStore, protector: Protector, folder: Path, tmp_path: Path, keep_text: bool
) -> None:
    keys, ledger = KeyFile.create(tmp_path / "noise.key", "one"), Ledger(tmp_path / "releases.ledger")
    policy, X = ReleasePolicy(protector, key=keys, ledger=ledger), Hashed().encode(TEXTS)
    made = ProtectedCollection(database, policy, encoder=Hashed(), filter_fields=("year",), keep_text=keep_text)
    metadata = [{"year": 2020 + i % 3, "page": i} for i in range(120)]
    with pytest.warns(PlaintextWarning) if keep_text else contextlib.nullcontext():
        made.add(TEXTS[:60], ids=IDS[:60], metadata=metadata[:60])
    made.add(ids=IDS[60:], metadata=metadata[60:], vectors=X[60:])
    # Keyed noise repeats: the rows are those that the policy releases for the same ids.
    released = ReleasePolicy(protector, key=keys).documents(X, ids=IDS).astype(np.float32)
    unit = released / np.linalg.norm(released, axis=1, keepdims=True)
    stored = database.read(IDS).vectors
    np.testing.assert_allclose(stored / np.linalg.norm(stored, axis=1, keepdims=True), unit, atol=1e-5)
    for question, texts in ((X[7], None), (TEXTS[7], [TEXTS[7]])):
        query = ReleasePolicy(protector, key=keys).queries(X[7:8], texts=texts)[0]
        cosines = unit @ query / np.linalg.norm(query)
        hits = made.search(question, top=7)
        assert hits.ids == [IDS[i] for i in np.argsort(-cosines)[:7]]
        np.testing.assert_allclose(hits.scores, np.sort(cosines)[::-1][:7], atol=1e-5)
    assert hits.metadata == [metadata[int(name) - 1] for name in hits.ids]
    kept = [TEXTS[int(name) - 1] if keep_text and int(name) <= 60 else None for name in hits.ids]
    assert hits.texts == kept
    assert sorted(made.search(X[7], top=120, where={"year": 2021}).ids, key=int) == IDS[1::3]
    assert sorted(made.get(where={"year": [2020, 2022.0]}).ids, key=int) == sorted(IDS[::3] + IDS[2::3], key=int)
    assert not made.search(X[7], where={"year": "2021"}).ids  # a text
    np.testing.assert_array_equal(made.get(["9"]).vectors, stored[8:9])
    made.delete(["9"])
    assert made.get(["9"], missing="skip").ids == []
    assert keep_text or not any(b"canary-" in path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert made.guarantee.promised == protector.guarantee.promised
    assert ledger.count(IDS[0]) == 1


def test_rows_with_and_without_blobs_do_not_mix(
    flat: VectorStore, protector: Protector, sealer: Sealer, tmp_path: Path
) -> None:
    bare = ProtectedCollection(flat, protector, encoder=Hashed())
    bare.add(TEXTS[:20], ids=IDS[:20])
    assert set(flat.read(["1"]).fields[0]) == {"vecveil_protector"}
    with raises("E-STORE-UNSEALED"):
        ProtectedCollection(flat, protector, sealer, name="notes", encoder=Hashed()).add(["a"], ids=["99"])
    other = ProtectedCollection(flat, protector.rescaled(2.0), encoder=Hashed())
    for call in (lambda: other.add(["a"], ids=["99"]), lambda: other.search("canary-1 x")):
        with raises("E-INCOMPATIBLE-PROTECTOR", "protector"):
            call()
    for call in (bare.reseal, lambda: bare.reprotect(protector)):
        with raises("E-INPUT", "sealer"):
            call()
    for wrong in ({"vecveil_sealed": "x"}, {"vecveil_protector": "x"}):
        with raises("E-INPUT", "metadata"):
            bare.add(["a"], ids=["99"], metadata=[wrong])
    for given in ({"blobs": {}}, {"generations": {}}):
        with raises("E-INPUT", "sealer"):
            ProtectedCollection(flat, protector, **given)
    with raises("E-INPUT", "keep_text"):
        ProtectedCollection(flat, protector, sealer, name="notes", keep_text=True)
    flat.delete(IDS[:20])
    sealed = ProtectedCollection(flat, protector, sealer, name="notes", encoder=Hashed())
    sealed.add(ids=IDS[:20], vectors=Hashed().encode(TEXTS[:20]))
    assert sealed.get(["1"]).texts == [None]
    bare = ProtectedCollection(flat, protector, encoder=Hashed())
    for call in (lambda: bare.add(["a"], ids=["99"]), lambda: bare.search("canary-1 x"), lambda: bare.get(["1"])):
        with raises("E-STORE-SEALED", "sealer"):
            call()
    with raises("E-INPUT", "texts"):
        sealed.add(ids=["1"])


def test_names_and_queries_that_would_give_something_away_are_refused(
    flat: VectorStore, protector: Protector, sealer: Sealer
) -> None:
    with raises("E-INPUT", "name"):  # two stores of one name would share a key
        ProtectedCollection(flat, protector, sealer)
    with raises("E-INPUT", "query_noise"):  # laplace has no map: the query would be clean
        ProtectedCollection(flat, protector, sealer, name="notes", query_noise=0)
