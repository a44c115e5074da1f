"""The server answers as ``openapi.json`` says: paths, methods, status codes, and the shape of each answer.

The application shows no OpenAPI of its own and reads embeddings without the framework, so that requests tell what
it offers. ``write_contracts.py --openapi`` writes the file anew after a deliberate change.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness.contracts import differences, read_contract
from harness.serving import FakeEncoder, fake_protector, served

KEY = "a-key-of-the-contract-tests"
PATHS = (
    "/",
    "/health",
    "/ready",
    "/metrics",
    "/v1/embeddings",
    "/v1/rerank",
    "/v2/rerank",
    "/v1/models",
    "/v1/models/drug",
    "/v1/models/none",
    "/v1/vector_stores",
    "/v1/vector_stores/notes",
    "/v1/vector_stores/none",
    "/v1/vector_stores/notes/search",
    "/v1/vector_stores/none/search",
    "/page/state",
    "/page/jobs",
    "/page/jobs/none",
    "/page/protectors",
    "/page/protectors/none",
    "/page/page.css",
    "/page/page.js",
    "/openapi.json",
    "/docs",
    "/redoc",
    "/no/such/path",
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
NAMES = {"object", "type", "code", "param", "owned_by", "method", "status", "state", "model"}
"""Keys of answers whose values are names that programs compare."""
GOOD = {"model": "drug", "input": ["a text", "another"]}
SEAL = {**GOOD, "seal": True, "ids": ["1", "2"], "collection": "notes"}
RANK = {"model": "drug", "query": "a text", "documents": ["1:AAAA"], "top_n": 1}
FIND = {"query": "a text", "max_num_results": 1}
JOB = {"protector": "drug", "texts": ["a text"], "words": ["gout", "lupus"]}
REQUESTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "embeddings": ("POST", "/v1/embeddings", {"json": GOOD}),
    "one text": ("POST", "/v1/embeddings", {"json": {**GOOD, "input": "a text"}}),
    "base64": ("POST", "/v1/embeddings", {"json": {**GOOD, "encoding_format": "base64"}}),
    "query": ("POST", "/v1/embeddings", {"json": {**GOOD, "input_type": "query"}}),
    "by header": ("POST", "/v1/embeddings", {"json": {**GOOD, "model": "x"}, "headers": {"X-Vecveil-Policy": "drug"}}),
    "unknown policy": ("POST", "/v1/embeddings", {"json": GOOD, "headers": {"X-Vecveil-Policy": "none"}}),
    "unknown side": ("POST", "/v1/embeddings", {"json": GOOD, "headers": {"X-Vecveil-Input": "none"}}),
    "unknown model": ("POST", "/v1/embeddings", {"json": {**GOOD, "model": "none"}}),
    "no model": ("POST", "/v1/embeddings", {"json": {"input": ["a text"]}}),
    "no input": ("POST", "/v1/embeddings", {"json": {"model": "drug"}}),
    "empty input": ("POST", "/v1/embeddings", {"json": {**GOOD, "input": []}}),
    "input of tokens": ("POST", "/v1/embeddings", {"json": {**GOOD, "input": [1, 2]}}),
    "too many inputs": ("POST", "/v1/embeddings", {"json": {**GOOD, "input": ["a"] * 9}}),
    "other dimensions": ("POST", "/v1/embeddings", {"json": {**GOOD, "dimensions": 3}}),
    "unknown format": ("POST", "/v1/embeddings", {"json": {**GOOD, "encoding_format": "hex"}}),
    "ids of a client": ("POST", "/v1/embeddings", {"json": {**GOOD, "vecveil_ids": ["a", "b"]}}),
    "sealed": ("POST", "/v1/embeddings", {"json": SEAL}),
    "sealed without ids": ("POST", "/v1/embeddings", {"json": {**SEAL, "ids": None}}),
    "sealed without grant": ("POST", "/v1/embeddings", {"json": {**SEAL, "collection": "other"}}),
    "document that does not open": ("POST", "/v1/rerank", {"json": {**RANK, "collection": "notes"}}),
    "document of no collection": ("POST", "/v1/rerank", {"json": RANK}),
    "rerank by a vector": ("POST", "/v2/rerank", {"json": {**RANK, "query": [1.0]}}),
    "search": ("POST", "/v1/vector_stores/notes/search", {"json": FIND}),
    "search that finds nothing": (
        "POST",
        "/v1/vector_stores/notes/search",
        {"json": {**FIND, "filters": {"type": "eq", "key": "year", "value": 1}}},
    ),
    "search without grant": ("POST", "/v1/vector_stores/none/search", {"json": FIND}),
    "search with another field": ("POST", "/v1/vector_stores/notes/search", {"json": {**FIND, "limit": 1}}),
    "search with another filter": (
        "POST",
        "/v1/vector_stores/notes/search",
        {"json": {**FIND, "filters": {"year": 1}}},
    ),
    "vector stores": ("GET", "/v1/vector_stores", {}),
    "vector store": ("GET", "/v1/vector_stores/notes", {}),
    "no JSON": ("POST", "/v1/embeddings", {"content": b"{", "headers": {"Content-Type": "application/json"}}),
    "no object": ("POST", "/v1/embeddings", {"json": [1]}),
    "other content": ("POST", "/v1/embeddings", {"content": b"x", "headers": {"Content-Type": "text/plain"}}),
    "body too large": ("POST", "/v1/embeddings", {"json": {**GOOD, "input": "a" * 100_001}}),
    "no key": ("POST", "/v1/embeddings", {"json": GOOD, "headers": {"Authorization": ""}}),
    "wrong key": ("POST", "/v1/embeddings", {"json": GOOD, "headers": {"Authorization": "Bearer none"}}),
    "models": ("GET", "/v1/models", {}),
    "models without key": ("GET", "/v1/models", {"headers": {"Authorization": ""}}),
    "model": ("GET", "/v1/models/drug", {}),
    "health without key": ("GET", "/health", {"headers": {"Authorization": ""}}),
    "ready without key": ("GET", "/ready", {"headers": {"Authorization": ""}}),
    "metrics without key": ("GET", "/metrics", {"headers": {"Authorization": ""}}),
    "state": ("GET", "/page/state", {}),
    "state for another site": ("GET", "/page/state", {"headers": {"Sec-Fetch-Site": "cross-site"}}),
    "job of an unknown protector": ("POST", "/page/jobs", {"json": {**JOB, "protector": "none"}}),
    "job without words": ("POST", "/page/jobs", {"json": {**JOB, "words": []}}),
    "file that is no protector": (
        "POST",
        "/page/protectors",
        {"content": b"x", "headers": {"Content-Type": "application/octet-stream"}},
    ),
}


@contextlib.contextmanager
def client(*names: str) -> Iterator[httpx.Client]:
    """Yield a client, with a key, of a server of these policies and an index, with a page.

    This is the one place here that knows internal modules.
    """
    from vecveil.gateway.server import Limits, Service
    from vecveil.gateway.server.preview_page import PAGE_OPEN_PATHS, PageTexts, page_router
    from vecveil.gateway.server.requests import ApiKeys
    from vecveil.gateway.server.service import ServedPolicy
    from vecveil.gateway.server.upstreams import LocalUpstream
    from vecveil.gateway.server.vector_stores import ServedIndex
    from vecveil.index import SealedIndex, Sealer
    from vecveil.privacy.protector.policy import ReleasePolicy

    def preview(*given: Any, **named: Any) -> dict[str, Any]:
        return {}

    protector, upstream = fake_protector(), LocalUpstream(FakeEncoder())
    policies = [ServedPolicy(name, ReleasePolicy(protector), upstream) for name in names]
    limits = Limits(body_bytes=100_000, inputs=8)
    sealer, folder = Sealer(bytes(range(32))), tempfile.TemporaryDirectory()
    index = SealedIndex(folder.name, sealer, encoder=FakeEncoder())
    index.add(["a text"], ids=["a"], metadata=[{"year": 2026, "draft": False}])
    service = Service(policies, limits=limits, sealer=sealer, indexes=[ServedIndex("notes", index, upstream)])
    texts = PageTexts(("gout", "lupus"), ("a text",), "texts")
    page = page_router({"drug": (protector, upstream)}, preview, texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTRACT_KEY", f"{KEY} seal:notes rank:notes texts:notes search:notes")
        keys = ApiKeys("env:CONTRACT_KEY")
    with folder, served(service, routers=[page], open_paths=PAGE_OPEN_PATHS, keys=keys) as url:
        headers = {"Authorization": f"Bearer {KEY}"}
        with httpx.Client(base_url=url, headers=headers, timeout=60) as opened:
            yield opened


def shape(value: Any, name: str = "") -> Any:
    """Return keys and types of a JSON value; names that programs compare stay."""
    if isinstance(value, dict):
        return {key: shape(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        shapes = [shape(one) for one in value]
        return [len(value), *([shapes[0]] if shapes and all(one == shapes[0] for one in shapes) else shapes)]
    return value if name in NAMES else type(value).__name__


def answer(found: httpx.Response) -> dict[str, Any]:
    """Return the contract of one answer."""
    kind = found.headers.get("content-type", "").partition(";")[0]
    said = {"status": found.status_code, "content type": kind}
    if "www-authenticate" in found.headers:
        said["www-authenticate"] = found.headers["www-authenticate"]
    return {**said, "body": shape(found.json()) if kind == "application/json" else None}


def ranked(opened: httpx.Client) -> dict[str, Any]:
    """Return the contract of an answer to a request to rank rows that were sealed before."""
    rows = opened.post("/v1/embeddings", json=SEAL).json()["data"]
    documents = [f"{name}:{row['sealed']}" for name, row in zip(SEAL["ids"], rows, strict=True)]
    asked = {**RANK, "documents": documents, "collection": "notes"}
    return {
        "rerank": answer(opened.post("/v1/rerank", json=asked)),
        "rerank with texts": answer(opened.post("/v1/rerank", json={**asked, "return_documents": True})),
    }


def jobs(opened: httpx.Client) -> dict[str, Any]:
    """Return the contracts of what a page does one after the other: a file, a job, their ends."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "own.vecveil"
        fake_protector().save(path)
        octets = {"Content-Type": "application/octet-stream", "X-File-Name": path.name}
        loaded = opened.post("/page/protectors", content=path.read_bytes(), headers=octets)
    started = opened.post("/page/jobs", json=JOB)
    at, deadline = f"/page/jobs/{started.json()['id']}", time.monotonic() + 60
    while (ended := opened.get(at)).json()["state"] == "running":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    forgotten = opened.delete(f"/page/protectors/{loaded.json()['id']}")
    steps = {"loaded": loaded, "started": started, "ended": ended, "forgotten": forgotten}
    return {name: answer(one) for name, one in steps.items()}


def figures(text: str) -> dict[str, Any]:
    """Return names, types and labels of our own figures for Prometheus, without those that its library adds."""
    lines = [line for line in text.splitlines() if "vecveil" in line and "_created" not in line]
    types = dict(line.split()[2:4] for line in lines if line.startswith("# TYPE"))
    labels: dict[str, set[str]] = {}
    for line in lines:
        if not line.startswith("#"):
            name, _, rest = line.partition("{")
            given = [one.partition("=")[0] for one in rest.partition("}")[0].split(",") if "=" in one]
            labels.setdefault(name.split()[0], set()).update(given)
    return {"types": types, "labels": {name: sorted(given) for name, given in labels.items()}}


def observe() -> dict[str, Any]:
    """Return the contract as it is now."""
    with client("drug") as opened:
        method, path, given = REQUESTS["unknown model"]
        alone = {"unknown model": answer(opened.request(method, path, **given))}
    with client("drug", "other") as opened:
        methods = {path: {method: opened.request(method, path).status_code for method in METHODS} for path in PATHS}
        requests = {
            name: answer(opened.request(method, path, **given)) for name, (method, path, given) in REQUESTS.items()
        }
        requests |= ranked(opened)
        page = jobs(opened)
        metrics = figures(opened.get("/metrics").text)
    return {"methods": methods, "requests": requests, "one policy": alone, "page": page, "metrics": metrics}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return observe()


@pytest.mark.parametrize("part", ["methods", "requests", "one policy", "page", "metrics"])
def test_the_server_answers_as_it_did(found: dict[str, Any], part: str) -> None:
    lines = differences(read_contract("openapi")[part], found[part], at=part)
    assert not lines, "\n".join(lines)


def test_every_path_of_the_schema_for_fuzzing_is_answered(found: dict[str, Any]) -> None:
    """``tests/fuzz/openapi.json`` names no path or method that the server refuses as unknown."""
    schema = json.loads((Path(__file__).parents[1] / "fuzz" / "openapi.json").read_text(encoding="utf-8"))
    for path, methods in schema["paths"].items():
        known = found["methods"][path.replace("{model}", "drug").replace("{id}", "none")]
        asked = {method.upper() for method in methods if method != "parameters"}
        assert 405 not in {known[method] for method in asked}, path


def test_a_key_of_an_answer_that_goes_is_noticed() -> None:
    """Negative control."""
    old, new = shape({"data": [{"index": 0, "object": "a"}]}), shape({"data": [{"object": "b"}]})
    assert [line.split(" (")[0] for line in differences(old, new)] == [
        "vanished: data / 1 / index",
        'changed: data / 1 / object: was "a", is "b"',
    ]
