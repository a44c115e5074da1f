"""A protected client of Qdrant, which its client runs in memory or in a folder."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.documents import ROOT, blocks, section
from harness.errors import raises
from harness.integration_checks import assert_no_secret, run_example, same_direction
from vecveil.databases import open_store
from vecveil.errors import (
    IncompatibleError,
    InvalidInputError,
    LedgerCapError,
    MissingDependencyError,
    StoreError,
)
from vecveil.integrations.opening import PlaintextWarning

TEXTS = ["She takes amoxicillin for her asthma.", "The train leaves at noon.", "A new roof."]


@pytest.fixture(scope="module", autouse=True)
def _imports() -> None:
    """Import Qdrant's client only in the process that runs this file; every process collects it."""
    global AsyncQdrantClient, ProtectedQdrant, QdrantClient, models
    from qdrant_client import AsyncQdrantClient, QdrantClient, models

    from vecveil.integrations.qdrant import ProtectedQdrant


@pytest.fixture(scope="module")
def client() -> Iterator[QdrantClient]:
    opened = QdrantClient(":memory:")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def clean(protector: vecveil.Protector) -> np.ndarray:
    return np.asarray(protector.loaded_encoder().encode(TEXTS))


@pytest.fixture
def encoder(protector: vecveil.Protector) -> Any:
    class Shuffled:
        """Another encoder of the same dimension."""

        dimension, name, fingerprint = protector.dimension, "shuffled", "0" * 64

        def encode(self, texts: list[str]) -> np.ndarray:
            return np.asarray(protector.loaded_encoder().encode(texts))[:, ::-1].copy()

    return Shuffled()


def points(vectors: Any, *payloads: dict[str, Any]) -> list[models.PointStruct]:
    beside = payloads or ({},) * len(vectors)
    return [
        models.PointStruct(id=i, vector=np.asarray(vector).tolist(), payload=beside[i])
        for i, vector in enumerate(vectors)
    ]


def stored(client: QdrantClient, name: str) -> dict[Any, np.ndarray]:
    found, _ = client.scroll(name, limit=100, with_vectors=True)
    return {point.id: np.asarray(point.vector, dtype=np.float32) for point in found}


def payloads(client: QdrantClient, name: str) -> list[dict[str, Any]]:
    return [dict(point.payload or {}) for point in client.scroll(name, limit=100)[0]]


def test_the_example_runs(collection_folder: Path, protector_file: Path) -> None:
    clean, protected = run_example("qdrant", collection_folder, protector_file)
    # The same noise law gives 0.85 to 0.86 of 1, and rows in no order under 0.05: no draw comes near the bound.
    assert clean > 0.7
    assert protected > 0.5


def test_rows_are_protected_and_found(
    client: QdrantClient, protector: vecveil.Protector, clean: np.ndarray
) -> None:
    qdrant = ProtectedQdrant(client, protector)
    qdrant.create_collection("notes", distance="Dot")
    ids = ["note-a", 7, str(uuid.UUID(int=9))]
    qdrant.add("notes", ids, TEXTS, [{"year": i} for i in range(3)])
    assert qdrant.count("notes") == 3
    kept = stored(client, "notes")
    in_order = [p for p in kept if isinstance(p, str) and p != ids[2]] + ids[1:]
    assert all(same_direction(clean, np.stack([kept[i] for i in in_order])) < 0.999)
    assert not any("text" in payload for payload in payloads(client, "notes"))
    for query in (TEXTS[0], clean[0], clean[:1], clean[0].tolist()):
        (hit,) = qdrant.query_points("notes", query, limit=1).points
        assert (hit.id, hit.payload) == ("note-a", {"year": 0})
    (hit,) = qdrant.query_points("notes", clean[0], limit=1, with_payload=False).points
    assert (hit.id, hit.payload) == ("note-a", None)
    (hit,) = qdrant.query_points("notes", clean[0], limit=1, with_payload=["year"]).points
    assert (hit.id, hit.payload) == ("note-a", {"year": 0})
    point = models.PointStruct(id=7, vector=clean[0].tolist(), payload={"year": 9})
    qdrant.upsert("notes", [point])
    again = stored(client, "notes")
    assert len(again) == 3
    assert not np.array_equal(again[7], kept[7])
    assert same_direction(again[7][None], clean[:1])[0] < 0.999
    qdrant.close()
    assert client.collection_exists("notes"), "a client of the caller's stays open"


@pytest.mark.parametrize("distance", ["Cosine", "Dot", "Euclid"])
def test_scores_are_those_of_the_map(
    client: QdrantClient, protector: vecveil.Protector, clean: np.ndarray, distance: str
) -> None:
    qdrant = ProtectedQdrant(client, protector, query_protection="map-only")
    name = f"by_{distance}"
    qdrant.create_collection(name, distance=distance)
    qdrant.upsert(name, points(clean))
    kept = stored(client, name)
    y = np.stack([kept[i] for i in range(3)]).astype(np.float64)
    query = protector.protect(clean[:1], noise=False).astype(np.float64)
    expected = {
        "Cosine": same_direction(y, np.repeat(query, 3, axis=0)),
        "Dot": y @ query[0],
        "Euclid": np.linalg.norm(y - query, axis=1),
    }[distance]
    measured = {p.id: p.score for p in qdrant.query_points(name, clean[0]).points}
    assert [measured[i] for i in range(3)] == pytest.approx(list(expected), abs=1e-4)


def test_queries_can_get_more_noise(protector: vecveil.Protector, clean: np.ndarray) -> None:
    def score(**options: Any) -> np.ndarray:
        with ProtectedQdrant(":memory:", protector, **options) as qdrant:
            qdrant.create_collection("notes", distance="Euclid")
            mapped = protector.protect(clean[:1], noise=False)[0].tolist()
            qdrant.client.upsert("notes", [models.PointStruct(id=1, vector=mapped)])
            found = [qdrant.query_points("notes", clean[0]).points[0].score for _ in range(20)]
        return np.asarray(found)

    # Distances to the mapped query: norms of hundreds of Laplace draws, within a tenth of their scale times a constant.
    same, more = score(), score(query_protection="stronger", query_noise=3.0)
    assert more.mean() == pytest.approx(3 * same.mean(), rel=0.3)
    assert score(query_protection="map-only").max() < 1e-3


def test_points_in_every_writing(
    client: QdrantClient, protector: vecveil.Protector, clean: np.ndarray
) -> None:
    qdrant = ProtectedQdrant(client, protector, query_protection="map-only", vector_name="dense")
    qdrant.create_collection("named")
    rows: tuple[Any, ...] = (
        {"id": 0, "vector": clean[0]},
        [{"id": np.int64(1), "vector": {"dense": clean[1].tolist()}, "payload": {"year": 1}}],
        [models.PointStruct(id=2, vector={"dense": clean[2].tolist()})],
        models.Batch(ids=[3], vectors={"dense": clean[:1].tolist()}, payloads=[{"year": 3}]),
        [{"id": uuid.UUID(int=4), "payload": {"text": TEXTS[1]}}],
    )
    for one in rows:
        qdrant.upsert("named", one)
    assert qdrant.count("named") == 5
    assert sorted(map(str, payloads(client, "named"))) == [
        "{'year': 1}",
        "{'year': 3}",
        *["{}"] * 3,
    ]
    assert qdrant.query_points("named", TEXTS[2], limit=1).points[0].id == 2
    one = ProtectedQdrant(client, protector)  # the only vectors of the collection
    assert one.query_points("named", clean[2], limit=5).points[0].score < 1.001
    both = {"dense": clean[0].tolist(), "title": clean[1].tolist()}
    for bad in ([{"id": 1, "vector": both}], [{"id": 1, "vector": {"title": both["title"]}}],
                models.Batch(ids=[1], vectors={"title": [both["title"]]})):  # fmt: skip
        with raises("E-INPUT", "points"):
            qdrant.upsert("named", bad)
    with raises("E-INCOMPATIBLE", "vector_name"):
        ProtectedQdrant(client, protector, vector_name="title").add("named", [1], TEXTS[:1])


def test_a_folder_holds_neither_key_nor_text_and_is_a_store(
    protector: vecveil.Protector, key_file: Path, tmp_path: Path
) -> None:
    ids = ["note-a", 7, "18446744073709551615"]
    for name in ("one", "two"):
        with ProtectedQdrant(tmp_path / "db", protector, key=key_file) as qdrant:
            qdrant.create_collection(name, distance="Dot")
            qdrant.add(name, ids, TEXTS, [{"year": 1}, {}, {}])
    assert_no_secret(tmp_path / "db", key_file, *(text.encode() for text in TEXTS))
    releases = []
    for name in ("one", "two"):
        with open_store(f"qdrant:{tmp_path / 'db'}#{name}") as store:
            batch = store.read([str(one) for one in ids])
            assert batch.fields == ({"year": 1}, {}, {})
            assert store.info().metric == "dot"
            releases.append(batch.vectors)
            store.write(batch)
            assert store.info().count == 3, "the store's ids are those of the client"
    assert np.array_equal(*releases)


def test_texts_are_kept_on_request_with_one_warning(
    client: QdrantClient, protector: vecveil.Protector, clean: np.ndarray
) -> None:
    qdrant = ProtectedQdrant(client, protector, keep_text=True)
    qdrant.create_collection("kept")
    with pytest.warns(PlaintextWarning, match="Qdrant collection 'kept'"):
        qdrant.add("kept", [0, 1, 2], TEXTS)
    qdrant.upsert("kept", {"id": 1, "payload": {"text": TEXTS[1]}})  # a second warning would fail
    assert sorted(payload["text"] for payload in payloads(client, "kept")) == sorted(TEXTS)
    for beside in ({"body": TEXTS[0]}, {"metadata": {"parts": [{"body": TEXTS[0]}]}}):
        other = ProtectedQdrant(client, protector)
        with pytest.warns(PlaintextWarning):
            other.upsert("kept", points(clean[:1], beside))
    quiet = ProtectedQdrant(client, protector)
    quiet.upsert("kept", points(clean[:1], {"title": "two words", "text": TEXTS[0]}))
    assert "text" not in client.retrieve("kept", [0])[0].payload


def test_what_does_not_fit_is_refused(
    client: QdrantClient, protector: vecveil.Protector, clean: np.ndarray, tmp_path: Path
) -> None:
    qdrant = ProtectedQdrant(client, protector)
    qdrant.create_collection("refusing")
    bad = clean.copy()
    bad[1, 3] = np.nan
    for data in (
        points(bad),
        points(clean[:, :8]),
        points([clean[0], clean[1][:5], clean[2]]),
        [{"id": 0}],
        [{"id": 0, "payload": {"text": TEXTS[0]}}, {"id": 1, "vector": clean[1]}],
        ["no point"],
        [{"id": 0, "payload": {"text": 5}}],
        [{"id": 0, "vector": clean[0], "payload": {"vecveil_id": "x"}}],
        models.Batch(ids=[1, 2], vectors=clean.tolist()),
    ):
        with pytest.raises((InvalidInputError, IncompatibleError)):
            qdrant.upsert("refusing", data)
    for ids in ([1, 1, 2], [1, "1", 2], [1, -1, 2], [1, 2.5, 3], [True, 2, 3], [1, 2**64, 3], [1, 2]):  # fmt: skip
        with raises("E-INPUT", "ids"):
            qdrant.add("refusing", ids, TEXTS)
    for query in (bad[1], clean, 7, None):
        with pytest.raises((InvalidInputError, IncompatibleError)):
            qdrant.query_points("refusing", query)  # type: ignore[arg-type]
    with raises("E-INPUT", "prefetch"):
        qdrant.query_points("refusing", clean[0], prefetch=models.Prefetch(query=clean[0].tolist()))
    with raises("E-INPUT-NAME", "distance"):
        qdrant.create_collection("odd", distance="cosine-like")
    assert qdrant.count("refusing") == 0
    narrow = models.VectorParams(size=8, distance=models.Distance.COSINE)
    with raises("E-INCOMPATIBLE-DIMENSION", "collection"):
        qdrant.create_collection("narrow", vectors_config=narrow)
    client.create_collection("narrow", vectors_config=narrow)
    for call in (lambda: qdrant.add("narrow", [1], TEXTS[:1]), lambda: qdrant.query_points("narrow", "x")):  # fmt: skip
        with raises("E-INCOMPATIBLE-DIMENSION", "collection"):
            call()
    ledger = vecveil.Ledger(tmp_path / "ledger", cap=1)
    capped = ProtectedQdrant(client, protector, ledger=ledger)
    with pytest.raises(InvalidInputError):
        capped.add("refusing", [0, 0, 0], TEXTS)  # refused before it is counted
    capped.add("refusing", [0, 1, 2], TEXTS)
    with pytest.raises(LedgerCapError):
        capped.add("refusing", [0], TEXTS[:1])


def test_another_encoder_is_refused(protector: vecveil.Protector, encoder: Any) -> None:
    with raises("E-INCOMPATIBLE-ENCODER", "encoder"):
        ProtectedQdrant(":memory:", protector, encoder=encoder)


def test_a_method_that_rewrites_texts_takes_texts_alone(
    client: QdrantClient, redactor: vecveil.Protector, clean: np.ndarray
) -> None:
    qdrant = ProtectedQdrant(client, redactor)
    qdrant.create_collection("redacted", distance="Dot")
    qdrant.add("redacted", [0, 1, 2], TEXTS)
    kept = stored(client, "redacted")
    np.testing.assert_allclose(kept[0], redactor.encode(TEXTS[:1])[0], atol=1e-5)
    with raises("E-INPUT", "items"):
        qdrant.upsert("redacted", points(clean))


def test_a_database_that_refuses_or_is_gone(
    client: QdrantClient, protector: vecveil.Protector, tmp_path: Path
) -> None:
    secret = "the-patient-takes-amoxicillin"
    qdrant = ProtectedQdrant(client, protector)
    for call in (lambda: qdrant.add(secret, [0], TEXTS[:1]), lambda: qdrant.count(secret)):
        with pytest.raises(StoreError) as caught:
            call()
        assert secret not in str(caught.value)
        assert caught.value.__suppress_context__
    gone = ProtectedQdrant("http://127.0.0.1:9", protector, api_key=None)
    with raises("E-STORE-DATABASE"):
        gone.add("notes", [1], TEXTS[:1])
    with ProtectedQdrant(tmp_path / "db", protector) as first:
        first.create_collection("notes")
        first.add("notes", [0, 1, 2], TEXTS)
    with raises("E-STORE-DATABASE"):
        first.add("notes", [3], TEXTS[:1])  # closed in the middle
    with ProtectedQdrant(tmp_path / "db", protector) as again:
        again.add("notes", [0, 3], TEXTS[:2])
        assert again.count("notes") == 4
    (tmp_path / "file").write_text("")
    with raises("E-STORE-DATABASE", "client"):
        ProtectedQdrant(tmp_path / "file", protector)
    with raises("E-INPUT", "client"):
        ProtectedQdrant(AsyncQdrantClient(":memory:"), protector)


def test_what_is_missing_is_told_of(
    protector: vecveil.Protector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "qdrant_client", None)
    with pytest.raises(MissingDependencyError, match="qdrant-client"):
        ProtectedQdrant(":memory:", protector)


def test_the_code_of_the_page_runs(
    protector_file: Path, clean: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "health.vecveil").write_bytes(protector_file.read_bytes())
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "integrations" / "databases.md").read_text(encoding="utf-8")
    (block,) = blocks(section(page, "Qdrant"), "text")
    namespace: dict[str, Any] = {
        "QdrantClient": QdrantClient,
        "PointStruct": models.PointStruct,
        "text": TEXTS[0],
        "vector": clean[1],
        "question": TEXTS[1],
    }
    exec(compile(block.code, "qdrant.md", "exec"), namespace)
    assert (namespace["rows"], namespace["hits"][0].payload) == (2, {"year": 2024})
    namespace["client"].client.close()
