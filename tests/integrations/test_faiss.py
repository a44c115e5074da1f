"""A protected FAISS index: adding, searching, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

import vecveil
from harness.documents import ROOT, blocks, section
from harness.errors import raises
from harness.integration_checks import assert_no_secret, run_example, same_direction
from vecveil.errors import IncompatibleError, InvalidInputError, LedgerCapError, StoreError
from vecveil.integrations.faiss import ProtectedIndex

TEXTS = ["She takes amoxicillin for her asthma.", "The train leaves at noon.", "A new roof."]


@pytest.fixture(scope="module")
def clean(protector: vecveil.Protector) -> np.ndarray:
    return np.asarray(protector.loaded_encoder().encode(TEXTS))


def test_the_example_runs(collection_folder: Path, protector_file: Path) -> None:
    clean, protected = run_example("faiss", collection_folder, protector_file)
    # The same noise law gives 0.85 to 0.86 of 1, and rows in no order under 0.05: no draw comes near the bound.
    assert clean > 0.7
    assert protected > 0.5


def test_rows_are_protected_and_found(protector: vecveil.Protector, clean: np.ndarray) -> None:
    index = ProtectedIndex(384, protector)
    index.add(TEXTS)
    index.add(clean)
    kept = index.index.reconstruct_n(0, 6)
    assert len(index) == 6
    assert all(same_direction(kept, np.concatenate([clean, clean])) < 0.999)
    assert not np.array_equal(kept[:3], kept[3:]), "each release has noise of its own"
    for query in (TEXTS[1], [TEXTS[1]], clean[1:2]):
        distances, rows = index.search(query, 2)
        assert distances.shape == rows.shape == (1, 2)
        assert set(rows[0]) == {1, 4}


@pytest.mark.parametrize("normalise", [False, True])
def test_distances_are_those_of_the_map(
    protector: vecveil.Protector, clean: np.ndarray, normalise: bool
) -> None:
    index = ProtectedIndex(
        faiss.IndexFlatIP(384), protector, query_protection="map-only", normalise=normalise
    )
    index.add(clean)
    kept, query = index.index.reconstruct_n(0, 3), protector.protect(clean, noise=False)
    norms = np.linalg.norm(kept, axis=1)
    assert np.allclose(norms, 1, atol=1e-6) == normalise
    expected = query @ kept.T
    if normalise:
        expected = expected / np.linalg.norm(query, axis=1, keepdims=True)
    distances, rows = index.search(clean, 3)
    np.testing.assert_allclose(distances, -np.sort(-expected, axis=1), rtol=1e-5, atol=1e-6)
    assert np.array_equal(rows, np.argsort(-expected, axis=1))


@pytest.mark.parametrize("kind", ["HNSW16,Flat", "IVF2,Flat", "SQ8", "IDMap,Flat"])
def test_any_index_is_taken(protector: vecveil.Protector, clean: np.ndarray, kind: str) -> None:
    many = np.random.default_rng(0).standard_normal((100, 384)).astype(np.float32)
    many /= np.linalg.norm(many, axis=1, keepdims=True)
    index = ProtectedIndex(faiss.index_factory(384, kind), protector)
    if not index.index.is_trained:
        with raises("E-STORE", "index"):
            index.add(clean)
        index.train(many)
    if kind.startswith("IDMap"):
        index.add_with_ids(many, np.arange(100) + 1000)
        with pytest.raises(StoreError):
            index.add(many)
    else:
        index.add(many)
    assert index.search(many[:5], 3)[1].shape == (5, 3)


def test_what_is_trained_is_trained_on_protected_vectors(
    protector: vecveil.Protector, clean: np.ndarray
) -> None:
    """With as many cells as vectors the centres are the vectors."""
    cells = faiss.IndexIVFFlat(faiss.IndexFlatL2(384), 384, 1)
    one = np.repeat(clean[:1], 50, axis=0)
    index = ProtectedIndex(cells, protector)
    index.train(one)
    centre = cells.quantizer.reconstruct(0)
    assert same_direction(centre[None], clean[:1])[0] < 0.9999
    control = faiss.IndexIVFFlat(faiss.IndexFlatL2(384), 384, 1)
    control.train(one)
    assert same_direction(control.quantizer.reconstruct(0)[None], clean[:1])[0] > 0.9999


def test_ids_name_rows_and_items(
    protector: vecveil.Protector, key_file: Path, clean: np.ndarray
) -> None:
    index = ProtectedIndex(faiss.IndexFlatL2(384), protector, key=key_file)
    index.add_with_ids(TEXTS, [70, 80, 2**62])
    index.add_with_ids(TEXTS[:1], np.array([71]))
    assert index.search(TEXTS[2], 1)[1][0, 0] == 2**62
    kept = index.index.index.reconstruct_n(0, 4)
    assert not np.array_equal(kept[0], kept[3]), "another id, other noise"
    again = ProtectedIndex(faiss.IndexFlatL2(384), protector, key=key_file)
    again.add_with_ids(TEXTS[:1], [70])
    assert np.array_equal(again.index.index.reconstruct_n(0, 1)[0], kept[0])
    for ids in (["a", "b", "c"], [1, 2], [0.5, 1.0, 2.0]):
        with raises("E-INPUT", "ids"):
            index.add_with_ids(TEXTS, ids)
    rows = ProtectedIndex(384, protector)
    rows.add(TEXTS)
    with raises("E-INPUT", "index"):
        rows.add_with_ids(TEXTS, [1, 2, 3])


def test_a_file_comes_back_without_a_secret(
    protector: vecveil.Protector, key_file: Path, tmp_path: Path
) -> None:
    index = ProtectedIndex(384, protector, key=key_file, query_protection="map-only")
    index.add_with_ids(TEXTS, [5, 6, 7])
    folder = tmp_path / "store"
    folder.mkdir()
    index.save(folder / "x.index")
    assert [path.name for path in folder.iterdir()] == ["x.index"]
    assert_no_secret(folder, key_file, *(text.encode() for text in TEXTS))
    again = ProtectedIndex.load(folder / "x.index", protector, query_protection="map-only")
    for before, after in zip(index.search(TEXTS, 3), again.search(TEXTS, 3), strict=True):
        assert np.array_equal(before, after)
    (folder / "bad.index").write_bytes(b"no index")
    for name in ("bad.index", "none.index"):
        with pytest.raises(StoreError) as caught:
            ProtectedIndex.load(folder / name, protector)
        assert caught.value.__suppress_context__


def test_a_file_that_cannot_be_written_leaves_the_old_one(
    protector: vecveil.Protector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = ProtectedIndex(384, protector)
    index.save(tmp_path / "x.index")
    before = (tmp_path / "x.index").read_bytes()
    index.add(TEXTS)

    def fails(index: Any, path: str) -> None:
        Path(path).write_bytes(b"half")
        raise RuntimeError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(faiss, "write_index", fails)
        with raises("E-STORE", "path"):
            index.save(tmp_path / "x.index")
    assert (tmp_path / "x.index").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["x.index"]
    index.save(tmp_path / "x.index")
    assert len(ProtectedIndex.load(tmp_path / "x.index", protector)) == 3


def test_what_does_not_fit_is_refused(
    protector: vecveil.Protector, clean: np.ndarray, tmp_path: Path
) -> None:
    for index, error in (
        (383, IncompatibleError),
        (faiss.IndexFlatL2(8), IncompatibleError),
        ("notes.index", InvalidInputError),
        (True, InvalidInputError),
        (faiss.IndexBinaryFlat(384), InvalidInputError),
    ):
        with pytest.raises(error):
            ProtectedIndex(index, protector)
    index = ProtectedIndex(384, protector)
    bad = clean.copy()
    bad[1, 3] = np.nan
    for items in (bad, clean[:, :8].copy(), ["x", None], "one text", 5):
        with pytest.raises((InvalidInputError, IncompatibleError)):
            index.add(items)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        index.search(bad)
    assert len(index) == 0
    capped = ProtectedIndex(384, protector, ledger=vecveil.Ledger(tmp_path / "ledger", cap=1))
    capped.add_with_ids(TEXTS, [1, 2, 3])
    with pytest.raises(LedgerCapError):
        capped.add_with_ids(TEXTS[:1], [1])
    assert len(capped) == 3


def test_the_code_of_the_page_runs(
    protector_file: Path, clean: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "health.vecveil").write_bytes(protector_file.read_bytes())
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "integrations" / "databases.md").read_text(encoding="utf-8")
    (block,) = blocks(section(page, "FAISS"), "text")
    namespace: dict[str, Any] = {"faiss": faiss, "vectors": clean, "queries": clean[:2]}
    exec(compile(block.code, "faiss.md", "exec"), namespace)
    assert namespace["rows"][:, 0].tolist() == [0, 1]
    assert len(namespace["index"]) == 3



class _Own:
    """Somebody's own encoder, without a fingerprint: another one, or the right one that loses texts."""

    def __init__(self, inner: Any, *, lost: int = 0, other: bool = False) -> None:
        self._inner, self._lost, self._other = inner, lost, other

    def encode(self, texts: list[str]) -> np.ndarray:
        X = np.asarray(self._inner.encode(texts))
        X = np.abs(X) if self._other else X
        return X[: len(X) - self._lost] if len(X) == len(TEXTS) else X


@pytest.mark.parametrize("lost", [0, 1])
def test_an_encoder_that_loses_a_text_is_refused(protector: vecveil.Protector, lost: int) -> None:
    """Rows of an index have no names: one too few would put all behind it under another text."""
    index = ProtectedIndex(384, protector, encoder=_Own(protector.loaded_encoder(), lost=lost))
    if lost:
        with raises("E-INPUT", "encode"):
            index.add(TEXTS)
    else:
        index.add(TEXTS)
    assert len(index) == (0 if lost else len(TEXTS))


def test_another_encoder_without_a_fingerprint_is_refused(protector: vecveil.Protector) -> None:
    with raises("E-INCOMPATIBLE", "encoder"):
        ProtectedIndex(384, protector, encoder=_Own(protector.loaded_encoder(), other=True))


def test_keyed_noise_is_one_for_lists_and_arrays(
    protector: vecveil.Protector, clean: np.ndarray, key_file: Path
) -> None:
    index = ProtectedIndex(384, protector, key=key_file)
    wide = clean.astype(np.float64) + 1e-9  # no float32 has these values
    for items in (wide, wide.tolist(), wide + 1e-3):
        index.add(items)
    first, second, other = index.index.reconstruct_n(0, 9).reshape(3, 3, 384)
    np.testing.assert_allclose(second, first, atol=1e-6)
    assert np.abs(other - first).max() > 0.01  # control: other values, other noise
