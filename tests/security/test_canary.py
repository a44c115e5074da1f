"""A planted text, term, id, key and clean vector go through everything, and are looked for in all that comes out.

`tests/meta/test_canary.py` does this for errors and reprs of the library, `tests/e2e/test_cli_release_canary.py` for
keyed noise, `tests/integrations/test_serving_process.py` for the server under load;
here one run goes through all parts.
"""

from __future__ import annotations

import base64
import fnmatch
import json
import logging
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest

import vecveil
from harness.command_line import CANARY, SECRET, run, write_csv
from harness.serving import served
from vecveil.auditing.attacks import LinearAttack
from vecveil.gateway.server import Service
from vecveil.gateway.server.service import ServedPolicy
from vecveil.gateway.server.upstreams import LocalUpstream
from vecveil.index import KeyStore
from vecveil.privacy.protector.policy import ReleasePolicy
from vecveil.stores import Batch, open_store
from vecveil.texts.encoders.lsa import LsaEncoder

HOLDS: dict[str, set[str]] = {
    "clean/notes.csv": {"text", "term", "id"},
    "clean/concept.yaml": {"term"},
    "clean/noise.key": {"key"},
    "clean/lsa/*": {"text", "term"},
    "clean/store.db": {"vector", "text", "term", "id"},
    "clean/vectors.parquet": {"vector", "id"},
    "out/redact.vecveil": {"term"},
    "out/kept.parquet": {"id"},
    "out/moved.db*": {"id"},
    "out/folder/part-*.parquet": {"id"},
    "out/sealed.parquet": {"id"},
    "out/sealed/part-*.parquet": {"id"},
    "out/closed.db*": {"id"},
    "clean/opened.parquet": {"text", "term", "id"},
    "out/redacted.csv": {"text"},
}
"""The files that may hold what was planted, and what of it: the table of docs/threat-model.md. Ids go where rows go."""

ROWS, N = 240, 12
OTHERS = ["alphamab", "betazine", "gammastat", "deltaprofen"]


class Planted:
    """Everything that is planted, and the search for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        clean = folder / "clean"
        clean.mkdir()
        (folder / "out").mkdir()
        rng = np.random.default_rng(0)
        drugs = [CANARY, *OTHERS]
        words = ["rest", "pain", "cough", "fever", "sleep", "walk", "visit", "call", "again", "home"]
        self.texts = []
        for i in range(ROWS):
            said = " ".join(rng.choice(words, 6))
            drug = f" takes {drugs[i % 5]}" if i % 2 else ""
            self.texts.append(f"{SECRET if i == 7 else 'Somebody'} {said}{drug} today")
        self.ids = [f"idcanary-{i}" for i in range(ROWS)]
        write_csv(clean / "notes.csv", ["id", "text"], list(zip(self.ids, self.texts, strict=True)))
        (clean / "concept.yaml").write_text(f"name: drug\nterms: {json.dumps(drugs)}\n")
        self.encoder = LsaEncoder.fit(self.texts, N, min_texts=1)
        self.encoder.save(clean / "lsa")
        self.X = self.encoder.encode(self.texts)
        vecveil.KeyFile.create(clean / "noise.key", "k")
        self.key = json.loads((clean / "noise.key").read_text())["keys"]["k"]
        import pyarrow as pa

        vectors = pa.FixedSizeListArray.from_arrays(pa.array(self.X.reshape(-1)), N)
        pq.write_table(pa.table({"id": self.ids, "embedding": vectors}), clean / "vectors.parquet")
        self.said: dict[str, str] = {}
        self.data_keys: list[bytes] = []

    def found(self, content: bytes, values: np.ndarray | None = None) -> set[str]:
        """Return which of the planted things ``content`` holds, or the numbers read from it."""
        lowered = content.lower()
        kinds = {
            "text": [word.encode() for word in SECRET.lower().split() if len(word) > 4],
            "term": [CANARY.encode()],
            "id": [b"idcanary-"],
        }
        hits = {
            kind
            for kind, words in kinds.items()
            if any(w in lowered or w.decode().encode("utf-16-le") in lowered for w in words)
        }
        for secret in (base64.b64decode(self.key), *self.data_keys):
            if secret in content or base64.b64encode(secret) in content or secret.hex().encode() in content:
                hits.add("key")
        rows = [np.float32(row).tobytes() for row in self.X] + [
            form(row).tobytes() for row in self.X for form in (np.float64, np.float16)
        ]
        numbers = [f"{value:.7f}"[:-1].encode() for value in self.X[:, 0] if abs(value) > 1e-3]
        if any(row in content for row in rows) or sum(n in content for n in set(numbers)) > 3:
            hits.add("vector")
        if values is not None and values.shape[1:] == (N,):
            near = np.abs(values[:, None, :] - self.X[None]).max(axis=2) < 1e-6
            hits |= {"vector"} if near.any() else set()
        return hits

    def tell(self, name: str, *arguments: object, code: int = 0) -> None:
        done = run(*arguments)
        assert done.code == code, (name, done.err)
        self.said[name] = done.out + done.err


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    one = Planted(tmp_path_factory.mktemp("canary"))
    clean, out = one.folder / "clean", one.folder / "out"
    notes, lsa, protector = clean / "notes.csv", clean / "lsa", out / "p.vecveil"
    vectors, key = clean / "vectors.parquet", clean / "noise.key"
    concept = ("--concept", clean / "concept.yaml")
    encoder = ("--encoder", lsa, "--no-cache")
    one.tell("fit", "fit", notes, *concept, *encoder, "--noise-to-signal", "0.3", "-o", protector)
    one.tell("redact", "fit", notes, *concept, *encoder, "--method", "redact", "-o", out / "redact.vecveil")
    keyed = ("--key-file", key, "--id-column", "id")
    ledger = ("--ledger", out / "l.ledger", "--cap", "3")
    one.tell("protect", "protect", notes, "-p", protector, "--encoder", lsa, "-o", out / "texts.npy")
    one.tell("keyed", "protect", vectors, "-p", protector, *keyed, *ledger, "--carry", "id", "-o", out / "kept.parquet")
    one.tell("folder", "protect", vectors, "-p", protector, *keyed, "--carry", "id", "-o", f"{out / 'folder'}/")
    one.tell(
        "bad column", f"protect {vectors} -p {protector} --carry {CANARY[:3]} -o {out / 'x.parquet'}", *keyed, code=1
    )
    one.tell("ledger", "ledger", "show", out / "l.ledger")
    one.tell("export", "ledger", "export", out / "l.ledger", "-o", out / "rows.jsonl")
    with pytest.MonkeyPatch.context() as patch:  # one attack of a family writes what all write
        attacks = "vecveil.auditing.families.ladder_attacks"
        patch.setattr(attacks, lambda tier, device: (LinearAttack(),))
        one.tell(
            "audit",
            f"audit {notes} -p {protector} --json {out / 'audit.json'} --html {out / 'audit.html'} --csv "
            f"{out / 'audit.csv'} --md {out / 'audit.md'}",
            *concept,
            *encoder,
        )
    name = ("--seal-key", key, "--seal-name", "notes")
    sealing = (notes, "-p", protector, "--encoder", lsa, *name)
    one.tell("seal", "seal", *sealing, "--no-cache", "-o", out / "sealed.parquet")
    one.tell("seal folder", "seal", *sealing, "-o", f"{out / 'sealed'}/", "--json")
    one.tell("unseal", "unseal", out / "sealed.parquet", *name, "-o", clean / "opened.parquet", "--json")
    one.tell(
        "wrong column", "seal", *sealing, "--id-column", "text", "--carry", CANARY[:3], "-o", out / "x.parquet", code=1
    )
    one.tell("wrong key", "unseal", notes, *name, "-o", out / "x.parquet", code=1)
    where, closed = f"sqlite-vec:{clean}/store.db#notes", f"sqlite-vec:{out}/closed.db#notes"
    with open_store(where) as store:
        store.create(N)
        fields = tuple({"text": text} for text in one.texts)
        store.write(Batch(tuple(one.ids), one.X, fields, ""))
    one.tell("scan", "scan", where, "--json", out / "scan.json")
    one.tell("migrate", "migrate", where, f"sqlite-vec:{out}/moved.db#notes", "-p", protector, "--key-file", key)
    one.tell("migrate sealed", "migrate", where, closed, "-p", protector, "--seal-key", key)
    keys = KeyStore(key)
    for entry in keys._load()["collections"].values():
        one.data_keys += keys._unwrapped_bytes(entry).values()
    one.tell("reseal", "reseal", closed, "--seal-key", key)
    vecveil.load(protector).rescaled(2.0).save(out / "stronger.vecveil")
    one.tell("reprotect", "reprotect", closed, "-p", out / "stronger.vecveil", "--seal-key", key, "--json")
    one.tell("keys", "key", "list", key, "--json")
    one.tell("erase", "key", "erase", key, "--collection", closed, "--yes", "--json")
    one.tell("reseal erased", "reseal", closed, "--seal-key", key, code=1)
    return one


def test_control_what_is_planted_is_found(planted: Planted) -> None:
    assert planted.found(SECRET.encode()) == {"text"}
    assert planted.found(CANARY.upper().encode("utf-16-le")) == {"term"}
    assert planted.found(planted.key.encode()) == {"key"}
    assert planted.found(planted.X[5].tobytes()) == {"vector"}
    assert planted.found(b"", planted.X[3:4]) == {"vector"}
    assert planted.found(json.dumps(planted.X.tolist()).encode()) == {"vector"}


def test_what_the_commands_say(planted: Planted) -> None:
    assert len(planted.said) >= 11
    for name, said in planted.said.items():
        assert not planted.found(said.encode()), name
        assert "Traceback" not in said, name


def test_every_file(planted: Planted) -> None:
    """Each holds at most what the table says; and each line of the table is needed."""
    met: dict[str, set[str]] = {}
    files = [path for path in planted.folder.rglob("*") if path.is_file()]
    assert len(files) > 20
    for path in files:
        content, values = path.read_bytes(), None
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            content += json.dumps(
                [str(table.schema), *(table[c].to_pylist() for c in table.column_names)], default=bytes.hex
            ).encode() + b"".join(table["vecveil_sealed"].to_pylist() if "vecveil_sealed" in table.column_names else ())
            values = np.array(table["embedding"].to_pylist())
        elif path.suffix == ".npy":
            values = np.load(path)
        name = path.relative_to(planted.folder).as_posix()
        pattern = next((one for one in HOLDS if fnmatch.fnmatch(name, one)), "")
        hits = planted.found(content, values)
        assert hits <= HOLDS.get(pattern, set()), name
        met.setdefault(pattern, set()).update(hits)
    for pattern in (
        "clean/notes.csv",
        "clean/store.db",
        "out/redact.vecveil",
        "out/kept.parquet",
        "clean/opened.parquet",
    ):
        assert met[pattern], f"{pattern} should hold what it is there for"


def test_the_server(planted: Planted, caplog: pytest.LogCaptureFixture) -> None:
    """Good and bad requests; then answers, logs, metrics and reprs are searched."""
    caplog.set_level(logging.DEBUG)
    protector = vecveil.load(planted.folder / "out" / "p.vecveil")
    keys = vecveil.KeyFile.from_file(planted.folder / "clean" / "noise.key")
    policy = ReleasePolicy(protector, key=keys)
    seal = vecveil.Sealer(bytes(range(32)))
    service = Service([ServedPolicy("drug", policy, LocalUpstream(planted.encoder))], sealer=seal)
    sealing = {"seal": True, "ids": [CANARY], "collection": "notes"}
    bodies: list[tuple[Any, int]] = [
        ({"model": "drug", "input": planted.texts[:9]}, 200),
        ({"model": CANARY, "input": [planted.texts[7]]}, 200),
        ({"model": "drug", "input": [planted.texts[7], 5]}, 400),
        ({"model": "drug", "input": planted.texts[7], "encoding_format": SECRET}, 400),
        ({"model": "drug", "input": planted.texts[7], "input_type": CANARY}, 400),
        ([SECRET], 400),
        ({"model": "drug", "input": [planted.texts[7]], **sealing}, 200),
        ({"model": "drug", "input": [planted.texts[7]], **sealing, "ids": [CANARY, SECRET]}, 400),
    ]
    said: list[str] = []
    with served(service) as url, httpx.Client(timeout=30) as http:
        for body, status in bodies:
            answer = http.post(f"{url}/v1/embeddings", json=body)
            assert answer.status_code == status, answer.text
            if status == 200:
                rows = np.array([one["embedding"] for one in answer.json()["data"]])
                assert "vector" not in planted.found(b"", rows)
            else:
                said.append(answer.text)
        blob = http.post(f"{url}/v1/embeddings", json=bodies[-2][0]).json()["data"][0]["sealed"]
        assert not planted.found(base64.b64decode(blob))
        for name, status in ((CANARY, 200), (SECRET, 400)):
            asked = {"query": planted.texts[7], "documents": [f"{name}:{blob}"], "collection": "notes"}
            answer = http.post(f"{url}/v1/rerank", json=asked)
            assert answer.status_code == status, answer.text
            said.append(answer.text)
        said.append(http.post(f"{url}/{CANARY}", content=SECRET.encode()).text)
        said.append(http.get(f"{url}/metrics").text)
    said += [repr(service), repr(policy), repr(protector), repr(keys), str(protector.guarantee)]
    said += [record.getMessage() for record in caplog.records if record.name.startswith("vecveil")]
    for text in said:
        assert not planted.found(text.encode()), text[:60]
