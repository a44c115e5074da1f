"""What is fuzzed: one function of bytes for each reader, and files that it reads to begin with.

A target returns whether the input was accepted. Anything that it raises is a finding: it catches only the errors that
its reader documents.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from harness.protector_files import built, parts
from vecveil.errors import InvalidInputError, KeyFileError, ProtectorFileError, VecveilError

__all__ = ["TARGETS", "Target", "mutated"]

CANARY = "zebra-7731"
"""In the seeds of tables; no error may show it."""


@dataclass(frozen=True)
class Target:
    """A reader.

    Attributes:
        run: reads an input; returns whether it was accepted.
        seeds: inputs that it accepts.
        share: of the inputs of a run, relative to others.
    """

    run: Callable[[bytes], bool]
    seeds: Callable[[], list[bytes]]
    share: float = 1.0


@cache
def folder() -> Path:
    """Return a folder of this process, in memory where that is possible."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="vecveil-fuzz-", dir=shared))


def remove_folder() -> None:
    """Remove what the targets wrote."""
    shutil.rmtree(folder(), ignore_errors=True)
    folder.cache_clear()


def written(name: str, data: bytes, mode: int = 0o600) -> Path:
    path = folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)
    return path


@contextlib.contextmanager
def expected(*errors: type[VecveilError]) -> Iterator[None]:
    """Let those errors pass that a reader documents, if they are short and show no data."""
    caught = errors or (VecveilError,)
    try:
        yield
    except caught as error:
        said = str(error)
        assert CANARY not in said, "an error shows data"
        assert len(said) < 3000, "an error of any length"
        raise Refused from None


class Refused(Exception):
    """The input was refused as it should be."""


def accepts(read: Callable[[bytes], object]) -> Callable[[bytes], bool]:
    def run(data: bytes) -> bool:
        try:
            read(data)
        except Refused:
            return False
        return True

    return run


# Protectors ------------------------------------------------------------------------------------


def _use(protector: Any) -> None:
    repr(protector)
    protector.fingerprint  # noqa: B018
    if protector.dimension <= 64:
        str(protector.guarantee)
        if protector.rewriter is None:
            with contextlib.suppress(VecveilError):
                Y = protector.protect(np.ones((2, protector.dimension), np.float32))
                assert np.isfinite(Y).all()


def _protector(data: bytes) -> None:
    from vecveil.privacy.protector import Protector

    with expected(ProtectorFileError):
        _use(Protector.from_bytes(data))


def _forged(data: bytes) -> None:
    """A record that a forger changed and sealed, over sound arrays; a third of the arrays' bytes are changed too."""
    base = _protector_files()[data[0] % len(_protector_files()) if data else 0]
    _, arrays = parts(base)
    try:
        record = json.loads(data[1:])
        content = built(record, arrays)
    except (ValueError, RecursionError, TypeError):
        return
    _protector(content)


@cache
def _protector_files() -> tuple[bytes, ...]:
    from vecveil.privacy.concepts import Concept
    from vecveil.privacy.concepts.matching import TermDetector
    from vecveil.privacy.concepts.patterns import PatternDetector
    from vecveil.privacy.concepts.rewriting import Redacting
    from vecveil.privacy.mechanisms import Laplace, Mahalanobis, Purkayastha, Step
    from vecveil.privacy.protector import Protector
    from vecveil.privacy.protector.methods.text_level import TextPlaceholder
    from vecveil.privacy.sensitivity import LinearMap, NoiseShape

    rng = np.random.default_rng(0)
    half = np.linalg.qr(rng.standard_normal((6, 3)))[0]
    detectors = (TermDetector(["alphamab", "beta blocker"]), PatternDetector([r"\d+ ?mg"]))
    concept = Concept("drug", detectors)
    shape = NoiseShape.from_diagonal(np.arange(6), floor=0.1)
    made = [
        Protector("laplace", Laplace(6, 9.0)),
        Protector("sparse", Mahalanobis(shape, 3.0)),
        Protector("subspace", Laplace(6, 9.0), map=LinearMap(down=half.T.copy(), up=half)),
        Protector("purkayastha", Purkayastha(6, 9.0), after=(Step("normalise"),)),
        Protector("redact", TextPlaceholder(6, "redact"), rewriter=Redacting(concept, 0)),
    ]
    return tuple(protector.to_bytes() for protector in made)


def _forged_seeds() -> list[bytes]:
    return [bytes([i]) + json.dumps(parts(data)[0]).encode() for i, data in enumerate(_protector_files())]


# Tables ----------------------------------------------------------------------------------------

FORMATS = ("csv", "tsv", "jsonl", "txt", "parquet", "npy")


def _table(data: bytes) -> None:
    from vecveil.texts.tables.files import input_file
    from vecveil.texts.tables.reading import read_table

    format = FORMATS[data[0] % len(FORMATS)] if data else "csv"
    with expected():
        file = input_file(f"a.{format}", format, partial(io.BytesIO, data[1:]))
        reader = read_table(file, chunk_rows=16)
        rows = 0
        for chunk in reader:
            assert chunk.first_row == rows
            assert all(len(values) == chunk.rows for values in chunk.columns.values())
            if chunk.texts is not None:
                assert len([text.encode() for text in chunk.texts]) == chunk.rows
            if chunk.vectors is not None:
                assert chunk.vectors.shape == (chunk.rows, reader.dimension)
                assert np.isfinite(chunk.vectors).all()
            rows += chunk.rows
        assert rows == reader.rows > 0


def _table_seeds() -> list[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    csv = f'id,text\n1,"{CANARY} a\nb"\n2,c\n'.encode()
    lines = f'{{"text": "{CANARY}", "n": 1, "spans": []}}\n{{"text": "b", "n": 2.5}}\n'.encode()
    X = np.arange(12, dtype=np.float32).reshape(3, 4)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 4)
    parquet, npy = io.BytesIO(), io.BytesIO()
    pq.write_table(pa.table({"text": [CANARY, "b", "b"], "embedding": vectors}), parquet)
    np.save(npy, X)
    files = [csv, b"id\ttext\n1\ta\n", lines, f"{CANARY}\nb\n".encode(), parquet.getvalue(), npy.getvalue()]
    seeds = [bytes([i]) + one for i, one in enumerate(files)]
    return [*seeds, b"\0" + gzip.compress(csv, mtime=0), b"\2" + gzip.compress(lines, mtime=0)]


# Files of settings -----------------------------------------------------------------------------


def _concept(data: bytes) -> None:
    from vecveil.privacy.concepts import Concept

    with expected():
        concept = Concept.from_file(written("concept.yaml", data))
        repr(concept)
        json.dumps(concept.describe())


def _pattern(data: bytes) -> None:
    from vecveil.privacy.concepts.patterns import PatternDetector

    with expected(InvalidInputError):
        PatternDetector([data.decode("utf-8", "replace")], time_limit=0.05).detect(["a1 " * 8, ""])


def _serve_config(data: bytes) -> None:
    from vecveil.gateway.server.settings import read_config

    with expected():
        repr(read_config(written("serve.yaml", data)))


def _specification(data: bytes) -> None:
    from research import specification

    # What a specification's `modules` name is imported, which is documented: not here.
    kinds = {"tradeoff": specification.Spec}
    with patch.object(specification, "import_modules", lambda names: None), expected():
        text = data.decode("utf-8", "replace")
        specification.parse_spec(text, kinds, quick=False, owner="spec")


def _keys(data: bytes) -> None:
    from vecveil.keys import KeyFile

    with expected(KeyFileError):
        repr(KeyFile.from_file(written("noise.key", data)))


def _keys_seeds() -> list[bytes]:
    from vecveil.keys import KeyFile

    path = folder() / "made.key"
    path.unlink(missing_ok=True)
    KeyFile.create(path, "2026")
    return [path.read_bytes()]


# What runs leave behind --------------------------------------------------------------------------


def _manifest(data: bytes) -> None:
    from vecveil.gateway.bulk import verify

    path = written("bulk/_manifest.json", data)
    with expected():
        verify(path.parent, show_progress=False)


def _manifest_seeds() -> list[bytes]:
    part = {
        "index": 0,
        "output": "part-000000.parquet",
        "input": {"name": "a", "size": 1, "stamp": ""},
        "start": 0,
        "stop": None,
        "planned_rows": None,
    }
    empty = {"schema": "vecveil.manifest/1", "run": "x", "job": {}, "parts": []}
    full = {**empty, "parts": [{**part, "rows": 2, "bytes": 3, "sha256": "0" * 64}]}
    return [json.dumps(empty).encode(), json.dumps(full).encode()]


def _state(data: bytes) -> None:
    from vecveil.stores.migrating import read_state

    with expected():
        repr(read_state(written("state.json", data)))


def _state_seeds() -> list[bytes]:
    from vecveil.stores.migrating import MigrationState, write_state

    path = folder() / "made.state"
    texts = {name: "a" for name in ("source", "dest", "protector", "key_id", "key_check", "sealed")}
    write_state(path, MigrationState(**texts, options={}, total=3, dimension=4, carried=(), withheld={}))
    return [path.read_bytes()]


def _records(data: bytes) -> None:
    from research.records import RecordFolder

    path = written("records/records.jsonl", data)
    with expected():
        RecordFolder(path.parent).read()


def _records_seeds() -> list[bytes]:
    root = Path(__file__).parents[2] / "benchmarks" / "results" / "experiments"
    lines = (path.read_bytes().splitlines()[0] for path in sorted(root.glob("*/records.jsonl"))[:3])
    return [line + b"\n" for line in lines] or [b"{}\n"]


def _audit(data: bytes) -> None:
    from vecveil.auditing.records import AuditRecord
    from vecveil.auditing.result import AuditResult

    path = written("audit.json", data)
    with contextlib.suppress(Refused), expected():
        AuditResult.load(path).to_record()
    with expected():
        AuditRecord.load(path, owner="audit")


def _audit_seeds() -> list[bytes]:
    from harness.sample_record import formal

    return [json.dumps(formal()).encode()]


def _ledger(data: bytes) -> None:
    from vecveil.privacy.accounting import Ledger

    for name in ("l.ledger-journal", "l.ledger-wal"):
        (folder() / name).unlink(missing_ok=True)
    path = written("l.ledger", data)
    with expected():
        ledger = Ledger(path)
        repr(ledger)
        ledger.summary()
        ledger.verify()


def _ledger_seeds() -> list[bytes]:
    from vecveil.privacy.accounting import Ledger

    path = folder() / "made.ledger"
    path.unlink(missing_ok=True)
    Ledger(path, cap=3)
    return [path.read_bytes()]


def _lsa(data: bytes) -> None:
    from vecveil.texts.encoders.lsa import LSA_FILE, LsaEncoder

    written(f"lsa/{LSA_FILE}", data)
    with expected():
        LsaEncoder.load(folder() / "lsa").encode(["a b c"])


def _lsa_seeds() -> list[bytes]:
    from vecveil.texts.encoders.lsa import LSA_FILE, LsaEncoder

    made = folder() / "lsa-made"
    LsaEncoder.fit([f"w{i % 7} v{i % 5} u{i % 3}" for i in range(40)], 3).save(made)
    return [(made / LSA_FILE).read_bytes()]


# What comes over the network -------------------------------------------------------------------


def _http_body(data: bytes) -> None:
    from vecveil.gateway.server.errors import ApiError
    from vecveil.gateway.server.preview_page import PageLimits, parse_job
    from vecveil.gateway.server.requests import parse_request

    refusal: ApiError | None
    refused = 0
    for parse in (
        lambda: parse_request(data, {}, max_inputs=16),
        lambda: parse_request(data, {"x-vecveil-input": "query"}, max_inputs=16, client_ids=True),
        lambda: parse_job(data, PageLimits()),
    ):
        refusal = None
        try:
            parse()
        except ApiError as error:
            refusal = error
        if refusal is not None:
            assert refusal.status == 400
            assert CANARY not in refusal.text
            refused += 1
    if refused == 3:
        raise Refused


def _upstream(data: bytes) -> None:
    from vecveil.gateway.server.upstreams import _tokens
    from vecveil.texts.encoders.openai_compatible import parse_embeddings

    with expected():
        found = parse_embeddings(data, rows=2, owner="upstream", dimension=None)
        assert np.isfinite(found).all()
    assert _tokens(data) >= 0


def _json(*values: Any) -> Callable[[], list[bytes]]:
    return lambda: [json.dumps(value).encode() for value in values]


def _texts(*values: str) -> Callable[[], list[bytes]]:
    return lambda: [value.encode() for value in values]


_CONCEPT = "name: drug\nterms: [alphamab, 'vitamin D']\npatterns: ['\\d+ ?mg']\ncase_sensitive: false\n"
_SERVE = (
    "port: 0\nupstream: {encoder: 'http://127.0.0.1:1/v1#m', key: none, timeout: 5}\n"
    "policies: {drug: {protector: drug.vecveil, key: noise.key}}\nlimits: {inputs: 5}\n"
)
_SPEC = (
    "experiment: tradeoff\nseeds: 2\nproblems:\n  p:\n    data: notes\n    concept: {terms: [a], "
    "gazetteer: {notes: [X]}}\nquick: {seeds: 1}\n"
)
_ANSWER = {
    "data": [{"index": 0, "embedding": [0.5, 1.0]}, {"index": 1, "embedding": "AAAAPwAAgD8="}],
    "usage": {"prompt_tokens": 3, "total_tokens": 3},
}
_BODY = {
    "model": "drug:query",
    "input": ["a", CANARY],
    "encoding_format": "base64",
    "dimensions": 4,
    "vecveil_ids": ["1", "2"],
    "input_type": "query",
}
_JOB = {"protector": "drug", "texts": ["a b"], "words": ["a", "c"]}

TARGETS: dict[str, Target] = {
    "protector": Target(accepts(_protector), lambda: [*_protector_files()], 3),
    "forged-protector": Target(accepts(_forged), _forged_seeds, 3),
    "table": Target(accepts(_table), _table_seeds, 4),
    "concept": Target(accepts(_concept), _texts(_CONCEPT, "name: x\nspans_column: spans\n")),
    "pattern": Target(accepts(_pattern), _texts(r"\b\d+ ?mg\b", "(?:a|b){2,3}[^x]+", "(?i)a(?=1)")),
    "serve-config": Target(accepts(_serve_config), _texts(_SERVE)),
    "specification": Target(accepts(_specification), _texts(_SPEC)),
    "keys": Target(accepts(_keys), _keys_seeds),
    "manifest": Target(accepts(_manifest), _manifest_seeds),
    "migration-state": Target(accepts(_state), _state_seeds),
    "records": Target(accepts(_records), _records_seeds),
    "audit": Target(accepts(_audit), _audit_seeds),
    "ledger": Target(accepts(_ledger), _ledger_seeds, 0.5),
    "lsa": Target(accepts(_lsa), _lsa_seeds),
    "http-body": Target(accepts(_http_body), _json(_BODY, _JOB), 3),
    "upstream-answer": Target(accepts(_upstream), _json(_ANSWER), 2),
}


def mutated(data: bytes, other: bytes, numbers: Iterator[int]) -> bytes:
    """Return ``data`` damaged as ``numbers`` say, sometimes with a piece of ``other``."""
    for _ in range(1 + next(numbers) % 3):
        at = next(numbers) % (len(data) + 1)
        kind, size = next(numbers) % 8, 1 + next(numbers) % 16
        if kind == 0:
            data = data[:at]
        elif kind == 1 and at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << (size % 8))]) + data[at + 1 :]
        elif kind == 2:
            data = data[:at] + data[at + size :]
        elif kind == 3:
            data = data[:at] + data[at : at + size] * 3 + data[at + size :]
        elif kind == 4:
            token = _TOKENS[next(numbers) % len(_TOKENS)]
            data = data[:at] + token + data[at + size * (next(numbers) % 2) :]
        elif kind == 5:
            start = next(numbers) % (len(other) + 1)
            data = data[:at] + other[start : start + 4 * size] + data[at:]
        elif kind == 6:
            data = data[:at] + (next(numbers) % 256**size).to_bytes(size, "little") + data[at + size :]
        else:
            data = data[:at] + b"\xff" * size + data[at:]
    return data


_TOKENS = (
    b"null",
    b"-1",
    b"1e999",
    b"NaN",
    b"9" * 400,
    b"[]",
    b"{}",
    b"[" * 200,
    b'"',
    b"\\",
    b"\n",
    b"\0",
    b": ",
    b"- ",
    b"&a ",
    b"*a",
    b"<<: ",
    b"!!python/object/apply:os.system",
    b"../../x",
    b"\xed\xa0\x80",
    b"true",
    b"0",
    b",",
    b"(?:a{99999})",
    b"{1,9}",
    b"(a+)+",
    b"\xff\xfe",
    b"PAR1",
    b"\x1f\x8b\x08",
)
