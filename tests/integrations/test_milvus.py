"""A protected client of Milvus Lite."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pymilvus import MilvusClient

import vecveil
from harness.documents import ROOT, blocks, section
from harness.errors import raises
from harness.integration_checks import assert_no_secret, run_example, same_direction
from vecveil.errors import (
    IncompatibleError,
    InvalidInputError,
    LedgerCapError,
    MissingDependencyError,
    StoreError,
)
from vecveil.integrations.milvus import ProtectedMilvus
from vecveil.integrations.opening import PlaintextWarning

TEXTS = ["She takes amoxicillin for her asthma.", "The train leaves at noon.", "A new roof."]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("milvus") / "notes.db"


@pytest.fixture(scope="module")
def client(path: Path) -> Iterator[MilvusClient]:
    opened = MilvusClient(str(path))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def clean(protector: vecveil.Protector) -> np.ndarray:
    return np.asarray(protector.loaded_encoder().encode(TEXTS))


def rows(**columns: Any) -> list[dict[str, Any]]:
    return [{"id": i, **{k: v[i] for k, v in columns.items()}} for i in range(3)]


def stored(client: MilvusClient, name: str) -> dict[Any, np.ndarray]:
    found = client.query(name, "id >= 0", output_fields=["*"], consistency_level="Strong")
    return {row["id"]: np.asarray(row["vector"], dtype=np.float32) for row in found}


def test_the_example_runs(collection_folder: Path, protector_file: Path) -> None:
    clean, protected = run_example("milvus", collection_folder, protector_file)
    # The same noise law gives 0.85 to 0.86 of 1, and rows in no order under 0.05: no draw comes near the bound.
    assert clean > 0.7
    assert protected > 0.5


def test_rows_are_protected_and_found(
    client: MilvusClient, protector: vecveil.Protector, clean: np.ndarray
) -> None:
    milvus = ProtectedMilvus(client, protector)
    milvus.create_collection("notes")
    milvus.insert("notes", rows(text=TEXTS, year=[1, 2, 3]))
    kept = stored(client, "notes")
    assert all(same_direction(clean, np.stack([kept[i] for i in range(3)])) < 0.999)
    assert "text" not in client.query("notes", "id == 0", output_fields=["*"])[0]
    for query in (TEXTS[1], [TEXTS[1]], clean[1:2], [clean[1].tolist()]):
        (hits,) = milvus.search("notes", query, limit=2, output_fields=["year"])
        assert (hits[0]["id"], hits[0]["entity"]["year"]) == (1, 2)
    milvus.upsert("notes", {"id": 1, "vector": clean[0].tolist(), "year": 9})
    again = stored(client, "notes")
    assert len(again) == 3
    assert not np.array_equal(again[1], kept[1])
    assert same_direction(again[1][None], clean[:1])[0] < 0.999
    milvus.close()
    assert client.has_collection("notes"), "a client of the caller's stays open"


@pytest.mark.parametrize("metric", ["COSINE", "IP", "L2"])
def test_distances_are_those_of_the_map(
    client: MilvusClient, protector: vecveil.Protector, clean: np.ndarray, metric: str
) -> None:
    milvus = ProtectedMilvus(client, protector, query_protection="map-only")
    milvus.create_collection(f"by_{metric}", metric_type=metric)
    milvus.insert(f"by_{metric}", rows(vector=clean))
    kept = stored(client, f"by_{metric}")
    y = np.stack([kept[i] for i in range(3)]).astype(np.float64)
    query = protector.protect(clean[:1], noise=False).astype(np.float64)
    expected = {
        "COSINE": same_direction(y, np.repeat(query, 3, axis=0)),
        "IP": y @ query[0],
        "L2": np.sum((y - query) ** 2, axis=1),
    }[metric]
    (hits,) = milvus.search(f"by_{metric}", clean[:1])
    measured = {hit["id"]: hit["distance"] for hit in hits}
    assert [measured[i] for i in range(3)] == pytest.approx(list(expected), abs=1e-4)


def test_the_file_holds_neither_key_nor_text(
    protector: vecveil.Protector, key_file: Path, tmp_path: Path
) -> None:
    releases = []
    folder = tmp_path / "store"
    folder.mkdir()
    for name in ("one", "two"):
        with ProtectedMilvus(folder / "keyed.db", protector, key=key_file) as milvus:
            milvus.create_collection(name)
            milvus.insert(name, rows(text=TEXTS))
            releases.append(stored(milvus.client, name))
    assert all(np.array_equal(releases[0][i], releases[1][i]) for i in range(3))
    assert_no_secret(folder, key_file, *(text.encode() for text in TEXTS))


def test_texts_are_kept_on_request_with_one_warning(
    client: MilvusClient, protector: vecveil.Protector
) -> None:
    milvus = ProtectedMilvus(client, protector, keep_text=True)
    milvus.create_collection("kept")
    with pytest.warns(PlaintextWarning, match="Milvus collection 'kept'"):
        milvus.insert("kept", rows(text=TEXTS))
    milvus.upsert("kept", rows(text=TEXTS))  # a second warning would be an error
    assert client.query("kept", "id == 0", output_fields=["text"])[0]["text"] == TEXTS[0]
    other = ProtectedMilvus(client, protector)
    with pytest.warns(PlaintextWarning):
        other.upsert("kept", rows(text=TEXTS, body=TEXTS))


def test_what_does_not_fit_is_refused(
    client: MilvusClient, protector: vecveil.Protector, clean: np.ndarray, tmp_path: Path
) -> None:
    milvus = ProtectedMilvus(client, protector)
    milvus.create_collection("refusing")
    bad = clean.copy()
    bad[1, 3] = np.nan
    for data in (
        rows(vector=bad),
        rows(vector=clean[:, :8]),
        rows(vector=[clean[0], clean[1][:5], clean[2]]),
        rows(year=[1, 2, 3]),
        [{"id": 0, "text": TEXTS[0]}, {"id": 1, "vector": clean[1]}],
        ["no row"],
        [{"id": 0, "text": 5}],
    ):
        with pytest.raises((InvalidInputError, IncompatibleError)):
            milvus.insert("refusing", data)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        milvus.search("refusing", bad)
    assert stored(client, "refusing") == {}
    with raises("E-INCOMPATIBLE-DIMENSION", "collection"):
        milvus.create_collection("narrow", dimension=8)
    client.create_collection("narrow", dimension=8)
    for call in (lambda: milvus.insert("narrow", rows(text=TEXTS)), lambda: milvus.search("narrow", "x")):  # fmt: skip
        with raises("E-INCOMPATIBLE-DIMENSION", "collection"):
            call()
    ledger = vecveil.Ledger(tmp_path / "ledger", cap=1)
    capped = ProtectedMilvus(client, protector, ledger=ledger)
    capped.insert("refusing", rows(text=TEXTS))
    with pytest.raises(LedgerCapError):
        capped.upsert("refusing", {"id": 0, "text": TEXTS[0]})


def test_a_database_that_refuses_or_is_gone(
    client: MilvusClient, protector: vecveil.Protector, tmp_path: Path
) -> None:
    milvus = ProtectedMilvus(client, protector)
    secret = "the-patient-takes-amoxicillin"
    with pytest.raises(StoreError) as caught:
        milvus.insert("not_there", {"id": secret, "text": TEXTS[0]})
    assert caught.value.__suppress_context__
    milvus.create_collection("typed")
    with pytest.raises(StoreError) as caught:
        milvus.insert("typed", {"id": secret, "text": TEXTS[0]})
    assert secret not in str(caught.value)
    milvus.insert("typed", rows(text=TEXTS))
    assert len(stored(client, "typed")) == 3
    gone = MilvusClient(str(tmp_path / "gone.db"))
    wrapped = ProtectedMilvus(gone, protector)
    wrapped.create_collection("notes")
    wrapped.insert("notes", rows(text=TEXTS))
    gone.close()
    with raises("E-STORE-DATABASE"):
        wrapped.upsert("notes", rows(text=TEXTS))
    with ProtectedMilvus(tmp_path / "gone.db", protector) as again:
        again.upsert("notes", rows(text=TEXTS))
        assert len(stored(again.client, "notes")) == 3


def test_what_is_missing_is_told_of(
    protector: vecveil.Protector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "milvus_lite", None)
    with pytest.raises(MissingDependencyError, match="milvus-lite"):
        ProtectedMilvus(str(tmp_path / "x.db"), protector)


def test_the_code_of_the_page_runs(
    protector_file: Path, clean: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "health.vecveil").write_bytes(protector_file.read_bytes())
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "integrations" / "databases.md").read_text(encoding="utf-8")
    (block,) = blocks(section(page, "Milvus"), "text")
    namespace: dict[str, Any] = {
        "MilvusClient": MilvusClient,
        "text": TEXTS[0],
        "vector": clean[1],
        "question": TEXTS[1],
    }
    exec(compile(block.code, "milvus.md", "exec"), namespace)
    assert namespace["hits"][0][0]["entity"]["year"] == 2024
    namespace["client"].client.close()
