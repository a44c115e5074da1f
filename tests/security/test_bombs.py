"""Small files that would grow: refused, or read in bounded pieces, before they fill memory or hours."""

from __future__ import annotations

import gzip
import io
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import vecveil
from harness.errors import raises
from harness.protector_files import built, parts
from research.specification import Spec, parse_spec
from vecveil.cli.tables import read_array, read_labels, retrieval_task, sts_task
from vecveil.errors import DataFileError, InvalidInputError, ProtectorFileError, VecveilError
from vecveil.gateway.bulk import verify
from vecveil.gateway.server.settings import read_config
from vecveil.privacy.concepts import Concept
from vecveil.privacy.concepts.patterns import LARGEST_PATTERN, PatternDetector, unrolled_size
from vecveil.privacy.mechanisms import Laplace
from vecveil.privacy.protector import Protector
from vecveil.texts.tables import read_table, read_texts
from vecveil.texts.tables.binary_formats import ParquetSource, memory_limit
from vecveil.texts.tables.files import find_input
from vecveil.texts.tables.reading import read_corpus

MiB = 1 << 20


def grown() -> float:
    """Return the most memory that this process has had, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# Compressed texts --------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["txt", "csv", "jsonl"])
def test_a_gzip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    monkeypatch.setattr("vecveil.texts.tables.files.UNZIPPED_FREELY", MiB)
    line = {"txt": b"a\n", "csv": b"a\n", "jsonl": b'{"text":"a"}\n'}[suffix]
    head = b"text\n" if suffix == "csv" else b""
    path = tmp_path / f"a.{suffix}.gz"
    path.write_bytes(gzip.compress(head + line * (4 * MiB // len(line)), mtime=0))
    assert path.stat().st_size < 20_000
    with raises("E-DATA-FILE", "path"):
        read_texts(path)


def test_compressed_texts_that_people_have_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vecveil.texts.tables.files.UNZIPPED_FREELY", 1)
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress("".join(f"a note, number {i}\n" for i in range(20_000)).encode()))
    assert len(read_texts(path).texts) == 20_000


# Parquet -----------------------------------------------------------------------------------------


def parquet(table: pa.Table, path: Path, **options: Any) -> Path:
    pq.write_table(table, path, compression="zstd", **options)
    return path


def test_one_row_that_is_a_list_of_millions(tmp_path: Path) -> None:
    n = 2_000_000
    zeros = pa.array(np.zeros(n, np.float32))
    lists = pa.ListArray.from_arrays(pa.array([0, n], pa.int32()), zeros)
    path = parquet(pa.table({"embedding": lists}), tmp_path / "a.parquet")
    assert path.stat().st_size < 10_000
    with raises("E-DATA-FILE", "embedding_column"):
        read_table(path)
    fixed = pa.FixedSizeListArray.from_arrays(zeros, n)
    path = parquet(pa.table({"embedding": fixed}), tmp_path / "b.parquet")
    with raises("E-MEMORY-TABLE", "max_memory"):
        next(iter(read_table(path, max_memory=MiB)))


def test_more_rows_than_a_file_has_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vecveil.texts.tables.binary_formats.FREELY", 1000)
    path = parquet(pa.table({"text": ["a"] * 2_000_000}), tmp_path / "a.parquet")
    with raises("E-DATA-FILE", "path"):
        read_texts(path)
    path = parquet(pa.table({"text": [f"n {i}" for i in range(20_000)]}), tmp_path / "b.parquet")
    assert len(read_texts(path).texts) == 20_000


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "brotli", "lz4", "none"])
def test_the_longest_text_of_a_dictionary_is_known(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table(
        {
            "text": [None, "x" * 70_000, "y"],
            "n": [1, 2, 3],
            "a.b": ["z" * 9, "z", "z"],
            "spans": [[], [{"label": "w" * 80}], []],
        }
    )
    pq.write_table(table, path, compression=codec)
    source = ParquetSource(find_input(path))
    assert source._longest_entry(["text", "n"]) == 70_000
    assert source._longest_entry(["a.b"]) == 9
    assert source._longest_entry(["spans"]) == 80
    assert source._longest_entry(["n"]) == 0


def test_a_delta_encoding_bounds_a_text_by_its_row_group(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    options = {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}
    pq.write_table(pa.table({"text": ["x" * 70_000] * 100}), path, **options)
    source = ParquetSource(find_input(path))
    assert source._longest_entry(["text"]) >= 70_000
    assert read_texts(path).texts == ["x" * 70_000] * 100


def shared_text(path: Path, size: int, rows: int) -> Path:
    """Write a file of ``rows`` rows that are one text of ``size`` bytes; it takes a few KB."""
    indices = pa.array(np.zeros(rows, np.int32))
    texts = pa.DictionaryArray.from_arrays(indices, pa.array(["x" * size]))
    return parquet(pa.table({"text": texts}), path, store_schema=False)


def test_a_long_text_that_all_rows_share_is_read_in_small_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shared_text(tmp_path / "a.parquet", 2 * MiB, 400)
    assert path.stat().st_size < 10_000
    monkeypatch.setattr("vecveil.texts.tables.binary_formats.EXPANDED_BYTES", 20 * MiB)
    sizes = [chunk.rows for chunk in read_table(path)]
    assert sum(sizes) == 400
    assert max(sizes) <= 10


def test_decoded_texts_beyond_the_limit_are_refused_in_one_row_group(tmp_path: Path) -> None:
    """40 MiB of texts in a file of a few KB: streamed under a limit of 8 MiB, refused where all are held."""
    path = shared_text(tmp_path / "a.parquet", 1000, 40 * MiB // 1000)
    assert pq.ParquetFile(path).num_row_groups == 1
    before = grown()
    assert sum(chunk.rows for chunk in read_table(path, max_memory=8 * MiB)) == 40 * MiB // 1000
    with raises("E-MEMORY-TABLE", "max_memory"):
        read_texts(path, max_memory=8 * MiB)
    assert grown() < before + 30
    assert len(read_texts(path, limit=5000, max_memory=8 * MiB).texts) == 5000
    assert len(read_texts(path, max_memory=80 * MiB).texts) == 40 * MiB // 1000


def test_a_text_beyond_the_limit_is_refused_before_it_is_expanded(tmp_path: Path) -> None:
    path = shared_text(tmp_path / "a.parquet", 4 * MiB, 400)
    with raises("E-MEMORY-TABLE", "max_memory"):
        next(iter(read_table(path, max_memory=2 * MiB)))


def test_a_text_longer_than_a_line_may_be_is_refused_before_it_is_tokenised(tmp_path: Path) -> None:
    with raises("E-DATA-FILE", "path"):
        next(iter(read_table(shared_text(tmp_path / "a.parquet", 16 * MiB + 1, 1))))
    path = parquet(pa.table({"text": ["x" * (16 * MiB)]}), tmp_path / "b.parquet", use_dictionary=False)
    assert len(read_texts(path).texts[0]) == 16 * MiB


def test_compressed_lines_count_too(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"abcdefghi\n" * 200_000))
    with raises("E-MEMORY-TABLE", "max_memory"):
        read_texts(path, max_memory=4 * MiB)


def test_a_damaged_footer_does_not_end_the_process(tmp_path: Path) -> None:
    """PyArrow's own look at a column's metadata ends the process where its histograms are damaged."""
    file = io.BytesIO()
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(12, np.float32)), 4)
    pq.write_table(pa.table({"text": ["a", "b", "c"], "embedding": vectors}), file)
    data = file.getvalue()
    length = int.from_bytes(data[-8:-4], "little")
    for at in range(len(data) - 8 - length, len(data) - 8):  # in the order of damage to each byte
        (tmp_path / f"{at}.parquet").write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
    script = (
        "import sys, pathlib\nfrom vecveil.errors import VecveilError\nfrom vecveil.texts.tables import read_table\n"
        "for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):\n"
        "    try:\n        sum(chunk.rows for chunk in read_table(path))\n"
        "    except VecveilError:\n        pass\n"
        "print('all read')\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.stdout == "all read\n", done.stderr[-500:]


# Arrays ------------------------------------------------------------------------------------------


def npy(path: Path, shape: str, size: int) -> Path:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    with path.open("wb") as file:
        file.write(b"\x93NUMPY\x01\0" + len(text).to_bytes(2, "little") + text)
        file.truncate(10 + len(text) + size)  # a hole takes no disk
    return path


def test_an_array_whose_one_row_would_fill_memory(tmp_path: Path) -> None:
    path = npy(tmp_path / "a.npy", "(1, 4000000000)", 16_000_000_000)
    with raises("E-DATA-FILE", "embeddings"):
        read_table(path)


@pytest.mark.parametrize("shape", ["(1000000000000, 4)", f"({2**62}, 8)", f"({2**63}, 2)"])
def test_an_array_that_declares_more_than_there_is(tmp_path: Path, shape: str) -> None:
    path = npy(tmp_path / "a.npy", shape, 64)
    with pytest.raises(DataFileError):
        read_table(path)
    with pytest.raises(DataFileError):
        read_labels(npy(tmp_path / "b.npy", "(1000000000000000,)", 64))


@pytest.fixture
def limit_of_16_mib() -> Iterator[None]:
    token = memory_limit.set(16 * MiB)
    yield
    memory_limit.reset(token)


@pytest.mark.usefixtures("limit_of_16_mib")
def test_the_limit_covers_the_vectors_that_a_command_names(tmp_path: Path) -> None:
    """A Parquet column of equal vectors expands; a .npy file is as large as what it holds."""
    vectors = np.zeros((90_000, 64), np.float32)
    for rows, refused in ((90_000, True), (10_000, False)):
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors[:rows].ravel()), 64)
        path = tmp_path / f"{rows}.parquet"
        pq.write_table(pa.table({"embedding": column}), path)
        if refused:
            with raises("E-MEMORY-TABLE", "max_memory"):
                read_array(path)
        else:
            assert len(read_array(path)) == rows
    np.save(tmp_path / "a.npy", vectors)
    assert read_array(tmp_path / "a.npy").shape == vectors.shape


@pytest.mark.usefixtures("limit_of_16_mib")
def test_the_limit_covers_every_table_of_texts_that_a_command_names(tmp_path: Path) -> None:
    """200 MB of texts in a few KB of Parquet, and 40 MB in gzipped lines."""
    no_encoder: Any = None  # the files are refused before any text is encoded
    path = shared_text(tmp_path / "a.parquet", 1000, 200_000)
    assert path.stat().st_size < 30_000
    with raises("E-MEMORY-TABLE", "max_memory"):
        read_corpus(path, param="attacker_texts")
    folder = tmp_path / "beir"
    folder.mkdir()
    lines = "".join(f'{{"_id": "{i}", "text": "{i} {"x" * 1000}"}}\n' for i in range(40_000))
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    with raises("E-MEMORY-TABLE", "max_memory"):
        retrieval_task(folder, no_encoder)
    sts = tmp_path / "sts.parquet"
    texts = pq.read_table(path)["text"]
    score = pa.array(np.zeros(len(texts)))
    parquet(pa.table({"sentence1": texts, "sentence2": texts, "score": score}), sts)
    with raises("E-MEMORY-TABLE", "max_memory"):
        sts_task(sts, no_encoder)


# YAML --------------------------------------------------------------------------------------------

LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join(['*' + old] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{new}: &{new} {{<<: [{', '.join(['*' + old] * 9)}]}}\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
CODE = "name: !!python/object/apply:os.mkdir [PLACE]\n"


def readers(path: Path) -> list[Callable[[], object]]:
    return [
        lambda: read_config(path),
        lambda: Concept.from_file(path),
        lambda: parse_spec(path.read_text(), {"x": Spec}, quick=False, owner="spec"),
    ]


@pytest.mark.parametrize(
    "text",
    [LAUGHS, MERGES, "[" * 3_000, "a: 2001-99-99\n", f"a: {'1' * 6000}\n", "experiment: [x]\n", CODE],
    ids=["laughs", "merges", "deep", "date", "digits", "list", "code"],
)
def test_yaml_that_grows_or_runs(tmp_path: Path, text: str) -> None:
    proof, path = tmp_path / "ran", tmp_path / "a.yaml"
    path.write_text(text.replace("PLACE", str(proof)))
    for read in readers(path):
        with pytest.raises((DataFileError, InvalidInputError)) as caught:
            read()
        assert len(str(caught.value)) < 600
    assert not proof.exists()


def test_a_concept_of_a_device_or_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with raises("E-DATA-FILE", "path"):
        Concept.from_file("/dev/zero")
    monkeypatch.setattr("vecveil.privacy.concepts.concept_file.LARGEST_FILE", 1)
    path = tmp_path / "a.yaml"
    path.write_text("name: x\nterms: [a]\n")
    with raises("E-DATA-FILE", "path"):
        Concept.from_file(path)


# Patterns ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern",
    [
        "a{4000000000}",
        "(?:a|b|c){10000000}",
        "(?:(?:a{1000}){1000})",
        "(?:" * 50 + "a" + "){10}" * 50,
        "(?:[)](?:a{1000})){1000}",
        r"(?:\)(?:a{1000})){1000}",
        "((?:a{1000})[(]){1000}",
        "((?:a{1000})[](]){1000}",
        "(?#()(?:a{1000}){1000}",
        "(?x)(?:a{1000}#)\n){1000}",
        "(?V1)([[(]](?:a{1000})){1000}",
        "a{1000000,}",
    ],
)
def test_a_pattern_that_fills_memory_while_it_is_compiled(pattern: str) -> None:
    with raises("E-INPUT", "patterns"):
        PatternDetector([pattern])


@pytest.mark.parametrize(
    "pattern",
    [
        r"\b\d{1,4} ?mg\b",
        r"[A-Z]{2}\d{2}(?: ?\w{4}){3,7}",
        r"(?:\d{3}-){2}\d{4}|" * 12 + "x",
        r"\w{1,90000}x",
        r"(?i)(?:[a-z]{2,40} ){1,8}[a-z]+",
        r"a\{99999999\}b",
        r"\p{Lu}{5}",
    ],
)
def test_patterns_that_people_write(pattern: str) -> None:
    assert unrolled_size(pattern) <= LARGEST_PATTERN or "\\{" in pattern
    if "\\{" not in pattern:
        PatternDetector([pattern])


# Protectors --------------------------------------------------------------------------------------


def test_a_few_bytes_that_declare_a_matrix_of_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:  # the writer refuses what the reader would
        patch.setattr("vecveil.privacy.protector.serialisation.LARGEST_DIMENSION", 2**20)
        data = Protector("laplace", Laplace(65_536, 9.0)).to_bytes()
    assert len(data) < 2000
    with pytest.raises(ProtectorFileError):
        Protector.from_bytes(data)


def test_patterns_in_a_protector_are_bounded_too() -> None:
    record, arrays = parts(Protector("laplace", Laplace(6, 9.0)).to_bytes())
    concept = {
        "name": "x",
        "detectors": [{"kind": "patterns", "patterns": ["(?:a|b|c){10000000}"], "time_limit": 60.0, "label": "x"}],
    }
    rewriter = {"concept": concept, "seed": 0, "kind": "redact"}
    forged = {**record, "mechanism": "texts-only", "method": "redact", "parameters": {}, "rewriter": rewriter}
    with pytest.raises(ProtectorFileError):
        Protector.from_bytes(built(forged, arrays))


# Folders -----------------------------------------------------------------------------------------

PART = {
    "index": 0,
    "output": "part-000000.parquet",
    "input": {"name": "a", "size": 1, "stamp": ""},
    "start": 0,
    "stop": None,
    "planned_rows": None,
    "rows": 1,
    "bytes": 3,
    "sha256": "0" * 64,
}


@pytest.mark.parametrize(
    "change",
    [
        {"output": "../secret"},
        {"output": "/etc/hostname"},
        {"output": ["x"]},
        {"output": None},
        {"index": [0]},
        {"index": 1e999},
        {"rows": 1e999},
        {"bytes": "x"},
        {"output": "_manifest.json/../../secret"},
    ],
    ids=str,
)
def test_a_manifest_that_leads_out_of_its_folder(
    tmp_path: Path, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_bytes(b"abc")
    out = tmp_path / "out"
    out.mkdir()
    record = {"schema": "vecveil.manifest/1", "run": "x", "job": {}, "parts": [{**PART, **change}]}
    (out / "_manifest.json").write_text(json.dumps(record))
    opened: list[str] = []
    monkeypatch.setattr("vecveil.gateway.bulk.places._open", lambda fs, path: opened.append(path))
    with pytest.raises(VecveilError):
        verify(out, show_progress=False)
    assert not opened


def test_output_over_a_link_leaves_what_it_points_to(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("kept")
    (tmp_path / "out.vecveil").symlink_to(target)
    Protector("laplace", Laplace(6, 9.0)).save(tmp_path / "out.vecveil")
    assert target.read_text() == "kept"
    assert not (tmp_path / "out.vecveil").is_symlink()
    assert vecveil.load(tmp_path / "out.vecveil").dimension == 6
