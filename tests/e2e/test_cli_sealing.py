"""``vecveil seal`` and ``unseal`` on files and folders, and ``vecveil key erase``."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from harness.command_line import CANARY, SECRET, run, write_pairs

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402

from vecveil.index import Sealer  # noqa: E402
from vecveil.stores import Batch, open_store  # noqa: E402
from vecveil.stores.collection import ProtectedCollection  # noqa: E402

ROWS, N = 120, 32
NAMED = ("--seal-key", "search.keys", "--seal-name", "notes")


@pytest.fixture(scope="module")
def work(vectors_protector: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table of clean rows, a protector, a key file and the sealed table."""
    folder = tmp_path_factory.mktemp("sealing")
    (folder / "p.vecveil").write_bytes(vectors_protector.read_bytes())
    X = np.random.default_rng(0).standard_normal((ROWS, N)).astype(np.float32)
    table = pa.table(
        {
            "id": [f"n{i}" for i in range(ROWS)],
            "text": [f"{SECRET} {CANARY} {i}" for i in range(ROWS)],
            "year": list(range(ROWS)),
            "when": pa.array([10**9 * i + 1 for i in range(ROWS)], pa.timestamp("ns")),
            "tenant": ["a" if i % 3 else None for i in range(ROWS)],
            "photo": [bytes([i]) for i in range(ROWS)],
            "scores": [[0.5, None, 2.0]] * ROWS,
            "visit": pa.array(
                [{"at": i} for i in range(ROWS)], pa.struct([("at", pa.timestamp("s", "Europe/Berlin"))])
            ),
            "days": pa.array([[i] for i in range(ROWS)], pa.list_(pa.date32())),
            "owner": pa.array([i.to_bytes(16) for i in range(ROWS)], pa.uuid()),
            "labels": pa.array([[("row", i)] for i in range(ROWS)], pa.map_(pa.string(), pa.int64())),
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), N),
        }
    )
    pq.write_table(table, folder / "clean.parquet", row_group_size=40)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run("key", "new", "search.keys").code == 0
        done = run("seal clean.parquet -p p.vecveil --carry year --filter-field tenant -o sealed.parquet", *NAMED)
        assert done.code == 0, done.err
    return folder


@pytest.fixture(autouse=True)
def _here(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)


def vectors(table: pa.Table) -> np.ndarray:
    return np.stack(table["embedding"].to_numpy())


def test_the_sealed_table_is_ready_for_a_database(work: Path) -> None:
    clean, sealed = pq.read_table("clean.parquet"), pq.read_table("sealed.parquet")
    assert sealed.schema.names == ["id", "year", "vecveil_sealed", "vecveil_filter_tenant", "embedding"]
    assert [token is None for token in sealed["vecveil_filter_tenant"].to_pylist()] == [i % 3 == 0 for i in range(ROWS)]
    assert np.abs(vectors(sealed) - vectors(clean)).max() > 0.1
    query = vectors(clean)[7]
    blobs, ids = sealed["vecveil_sealed"].to_pylist(), sealed["id"].to_pylist()
    ranking = Sealer("search.keys").rank(query, blobs, ids=ids, collection="notes", top=1)
    assert (ranking.ids, ranking.texts) == (["n7"], [f"{SECRET} {CANARY} 7"])
    content = (work / "sealed.parquet").read_bytes() + b"".join(blobs)
    assert CANARY.encode() not in content
    assert vectors(clean)[7].tobytes() not in content
    assert vectors(clean)[7].astype(np.float16).tobytes() not in content


def test_rows_of_the_sealed_table_are_filtered_in_a_database(work: Path, tmp_path: Path) -> None:
    sealed = pq.read_table("sealed.parquet")
    tokens, ids = sealed["vecveil_filter_tenant"].to_pylist(), sealed["id"].to_pylist()
    blobs = dict(zip(ids, sealed["vecveil_sealed"].to_pylist(), strict=True))
    fields = tuple({} if token is None else {"vecveil_filter_tenant": token} for token in tokens)
    with open_store(f"sqlite-vec:{tmp_path}/notes.db#notes") as store:
        store.create(N, metric="cosine", filter_fields=["vecveil_filter_tenant"])
        store.write(Batch(tuple(ids), vectors(sealed), fields))
        notes = ProtectedCollection(store, "p.vecveil", "search.keys", name="notes", candidates=ROWS, blobs=blobs)
        query = vectors(pq.read_table("clean.parquet"))[7]
        found = notes.search(query, top=ROWS, where={"tenant": "a"})
    assert found.ids[0] == "n7"
    assert sorted(found.ids) == sorted(name for i, name in enumerate(ids) if i % 3)


def test_filter_fields_are_columns_of_single_values() -> None:
    for field, words in (
        ("nothing", "--filter-field"),
        ("text", "--filter-field"),
        ("scores", "filter fields"),
        ("TENANT", "--filter-field"),
    ):
        done = run("seal", "clean.parquet", "-p", "p.vecveil", *NAMED, "--filter-field", field, "-o", "no.parquet")
        assert done.code == 1
        assert words in done.errors[0]
    assert not Path("no.parquet").exists()


def test_nan_is_refused_since_metadata_cannot_have_it() -> None:
    table = pq.read_table("clean.parquet").select(["id", "text", "embedding"])
    pq.write_table(table.append_column("score", pa.array([0.5, np.nan] * (ROWS // 2))), "nan.parquet")
    done = run("seal", "nan.parquet", "-p", "p.vecveil", *NAMED, "-o", "no.parquet")
    assert done.code == 1
    assert "row 2 (counted from 1) has NaN or infinity in 'score'" in done.errors[0]
    assert not Path("no.parquet").exists()


def test_the_opened_table_has_what_was_sealed() -> None:
    done = run("unseal", "sealed.parquet", *NAMED, "-o", "opened.parquet", "--json")
    assert (done.code, done.json["rows"], done.json["skipped"]) == (0, ROWS, [])
    clean, opened = pq.read_table("clean.parquet"), pq.read_table("opened.parquet")
    assert opened.schema.names == ["id", "text", "metadata", "embedding"]
    for name in ("opened.parquet", "sealed.parquet"):  # clean texts, and a column that is carried
        assert Path(name).stat().st_mode & 0o077 == 0
    for name in ("id", "text"):
        assert opened[name].to_pylist() == clean[name].to_pylist()
    np.testing.assert_allclose(vectors(opened), vectors(clean), atol=5e-3)  # float16
    assert json.loads(opened["metadata"][3].as_py()) == {
        "year": 3,
        "when": "1970-01-01T00:00:03.000000001",
        "visit": {"at": "1970-01-01T00:00:03+00:00"},
        "days": ["1970-01-04"],
        "owner": "00000000-0000-0000-0000-000000000003",
        "labels": {"row": 3},
        "photo": base64.b64encode(b"\3").decode(),
        "tenant": None,
        "scores": [0.5, None, 2.0],
    }


def test_a_folder_is_sealed_and_opened_in_parts_that_resume(work: Path) -> None:
    seal = ("seal", "clean.parquet", "-p", "p.vecveil", *NAMED, "-o", "folder", "--engine", "local")
    assert run(*seal).code == 0
    manifest = json.loads((work / "folder" / "_manifest.json").read_text())
    assert (manifest["complete"], manifest["job"]["seal_name"]) == (True, "notes")
    assert run("verify", "folder").code == 0
    assert (work / "folder" / "part-000000.parquet").stat().st_mode & 0o044  # made to be handed on
    before = (work / "folder" / "part-000000.parquet").stat().st_mtime_ns
    assert run(*seal, "--json").json["parts_already_there"] == 1
    assert (work / "folder" / "part-000000.parquet").stat().st_mtime_ns == before
    assert run(*seal[:-4], "--seal-name", "others", *seal[-4:]).code == 1  # another collection in one folder
    unseal = ("unseal", "folder", *NAMED, "-o", "opened", "--json")
    assert run(*unseal).json["rows"] == ROWS
    assert {path.stat().st_mode & 0o077 for path in (work / "opened", *(work / "opened").iterdir())} == {0}
    assert run(*unseal).json["rows"] == 0
    assert run("unseal", "folder", *NAMED, "-o", "folder", "--force").code == 2


def test_blobs_that_do_not_open_fail_or_are_reported(work: Path) -> None:
    rows = pq.read_table("sealed.parquet").slice(0, 4).to_pylist()
    rows[1]["vecveil_sealed"], rows[2]["vecveil_sealed"] = rows[2]["vecveil_sealed"], b"damaged"
    lines = [{"id": row["id"], "vecveil_sealed": base64.b64encode(row["vecveil_sealed"]).decode()} for row in rows]
    (work / "moved.jsonl").write_text("\n".join(map(json.dumps, lines)))
    unseal = ("unseal", "moved.jsonl", *NAMED, "-o", "rest.parquet")
    done = run(*unseal)
    assert (done.code, len(done.errors)) == (1, 1)
    assert not (work / "rest.parquet").exists()
    done = run(*unseal, "--on-invalid", "skip", "--json")
    assert (done.code, done.json["rows"], done.json["skipped"]) == (0, 2, ["n1", "n2"])
    assert "n1, n2" in done.err
    assert pq.read_table("rest.parquet")["id"].to_pylist() == ["n0", "n3"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("seal", "sealed.parquet", "-p", "p.vecveil", *NAMED, "--again"), 1),  # sealed already
        (("seal", "protected.parquet", "-p", "p.vecveil", *NAMED, "--again"), 1),  # noise is no exact vector
        (("seal", "clean.parquet", "-p", "other.vecveil", *NAMED), 1),  # of another protector
        (("seal", "clean.parquet", "-p", "p.vecveil", *NAMED, "--id-column", "none"), 1),
        (("seal", "clean.parquet", "-p", "p.vecveil", *NAMED, "--id-column", "photo"), 1),
        (("seal", "clean.parquet", "-p", "p.vecveil", "--seal-key", "search.keys"), 2),
        (("unseal", "clean.parquet", *NAMED), 1),
        (("unseal", "sealed.parquet", "--seal-key", "search.keys", "--seal-name", "none"), 1),
        (("unseal", "sealed.parquet", "clean.parquet", *NAMED), 2),
    ],
)
def test_wrong_arguments_are_one_error(work: Path, arguments: tuple[str, ...], code: int) -> None:
    if not (work / "other.vecveil").exists():
        positive, negative = write_pairs(work)
        fit = ("fit", "--positive", positive, "--negative", negative, "--method", "laplace")
        assert run(*fit, "--noise-to-signal", 0.9, "-o", "other.vecveil").code == 0
        assert run("protect", "clean.parquet", "-p", "p.vecveil", "-o", "protected.parquet", "--carry", "id").code == 0
    done = run(*arguments, "-o", "out.parquet")
    assert done.code == code, done.err
    assert code == 2 or len(done.errors) == 1, done.err
    assert not (work / "out.parquet").exists()
    assert run(*arguments, "-o", "out.npy").code == code


def test_erased_rows_open_no_more(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seal = ("seal", "clean.parquet", "-p", "p.vecveil", "--seal-key", "search.keys", "--seal-name", "gone")
    assert run(*seal, "-o", "gone.parquet").code == 0
    about = run("key", "list", "search.keys", "--json").json["collections"]["gone"]
    assert about["data_keys"] == 1
    assert about["sealed_at_most"] >= ROWS
    assert about["protector"]
    erase = ("key", "erase", "search.keys", "--collection", "gone")
    assert run(*erase).code == 2  # nobody to confirm it
    assert run(*erase, "--id", "a").code == run("key", "erase", "search.keys").code == 2
    ids = run("key", "list", "search.keys", "--json").json["ids"]
    done = run("key", "erase", "search.keys", "--id", ids[0], "--yes")
    assert "still wraps data keys" in done.errors[0]
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda prompt: "n")
    assert run(*erase).code == 130
    assert "gone" in run("key", "list", "search.keys").out
    done = run(*erase, "--yes", "--json")
    assert (done.code, done.json["erased"]) == (0, "gone")
    assert run(*erase, "--yes").code == 1
    assert run("unseal", "gone.parquet", *NAMED[:3], "gone", "-o", "no.parquet").code == 1
    assert run("unseal", "sealed.parquet", *NAMED, "-o", "yes.parquet").code == 0  # others stay
