"""Sealed indexes over HTTP: OpenAI's clients of Python and JavaScript search, and nobody else learns anything."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import vecveil
from harness.documents import ROOT
from harness.errors import raises
from harness.serving import FakeEncoder, clean_vectors, fake_protector, served
from vecveil.gateway.server import Limits, ServedPolicySettings, ServeSettings, Service, UpstreamSettings, service
from vecveil.gateway.server.errors import ApiError
from vecveil.gateway.server.requests import ApiKeys
from vecveil.gateway.server.service import ServedPolicy, open_service
from vecveil.gateway.server.settings import read_config
from vecveil.gateway.server.upstreams import LocalUpstream
from vecveil.gateway.server.vector_stores import open_index, parse_search
from vecveil.index import SealedIndex, Sealer
from vecveil.privacy.protector.policy import ReleasePolicy
from vecveil.texts.encoders import LsaEncoder
from vecveil.texts.encoders.text_encoder import as_text_encoder

KEY = bytes(range(32))
READER, OTHER, NOBODY = (f"the-key-of-the-{name}" for name in ("reader", "other", "nobody"))
CANARY = "zyxcanary"
TEXTS = [f"note {i} about alphamab, {CANARY}" for i in range(40)]
ROWS = [
    {"year": 2000 + i, "tenant": "ab"[i % 2], "draft": i % 5 == 0, "place": {"town": f"t{i % 4}"}, "tags": [str(i)]}
    for i in range(40)
]
QUERY = f"Which note is about {CANARY}?"
NODE_MODULES = ROOT / "build" / "node" / "node_modules"  # `make javascript` puts the client there


class Encoder(FakeEncoder):
    def encode(self, texts: Any) -> np.ndarray:
        return clean_vectors(texts) * np.array([[text != "nothing"] for text in texts])


def filled(place: Path, **given: Any) -> SealedIndex:
    index = SealedIndex(place, KEY, encoder=FakeEncoder(), **given)
    index.add(
        TEXTS,
        ids=[f"row-{i}" for i in range(40)],
        metadata=[{**row, "filename": f"{i}.txt"} for i, row in enumerate(ROWS)],
    )
    index.add(None, ids=["bare"], vectors=-clean_vectors([QUERY]), metadata=[None])
    return index


def stores(*places: tuple[str, Path], policies: Any = (), **limits: Any) -> Service:
    encoder = as_text_encoder(Encoder(), cache=None)
    upstream = LocalUpstream(encoder)
    indexes = [open_index(name, str(place), Sealer(KEY), upstream, encoder) for name, place in places]
    return Service(policies, limits=Limits(**limits), sealer=Sealer(KEY), indexes=indexes)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores") / "notes"
    filled(folder).close()
    return folder


@pytest.fixture(scope="module")
def keys() -> ApiKeys:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLIENT_KEYS", f"{READER} search:notes search:absent,{OTHER} search:minutes rank:notes,{NOBODY}")
        return ApiKeys("env:CLIENT_KEYS")


@pytest.fixture(scope="module")
def url(place: Path, keys: ApiKeys) -> Iterator[str]:
    with served(stores(("notes", place), ("minutes", place)), keys=keys) as base:
        yield base


def post(url: str, body: Any, key: str | None = READER, name: str = "notes") -> httpx.Response:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return httpx.post(
        f"{url}/v1/vector_stores/{name}/search",
        content=json.dumps(body),
        timeout=60,
        headers={**headers, "Content-Type": "application/json"},
    )


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def order(query: str, rows: list[int]) -> list[str]:
    """Return the ids of rows by exact cosine, worked out here."""
    cosines = clean_vectors([TEXTS[i] for i in rows]) @ clean_vectors([query])[0]
    return [f"row-{rows[i]}" for i in np.argsort(-cosines)]


def test_the_official_client_searches(url: str) -> None:
    import openai

    with openai.OpenAI(base_url=f"{url}/v1", api_key=READER, max_retries=0) as client:
        chosen = {
            "type": "and",
            "filters": [
                {"type": "gte", "key": "year", "value": 2010},
                {
                    "type": "or",
                    "filters": [
                        {"type": "eq", "key": "draft", "value": True},
                        {"type": "in", "key": "place.town", "value": ["t1", "t2"]},
                    ],
                },
            ],
        }
        page = client.vector_stores.search(
            "notes",
            query=QUERY,
            filters=chosen,
            max_num_results=7,
            rewrite_query=False,
            ranking_options={"ranker": "auto", "score_threshold": 0.0},
        )
        rows = [i for i in range(10, 40) if i % 5 == 0 or i % 4 in (1, 2)]
        assert [hit.file_id for hit in page.data] == order(QUERY, rows)[:7]
        first = page.data[0]
        i = int(first.file_id.removeprefix("row-"))
        assert [(part.type, part.text) for part in first.content] == [("text", TEXTS[i])]
        assert first.filename == f"{i}.txt"
        assert first.attributes == {
            "year": 2000 + i,
            "tenant": "ab"[i % 2],
            "draft": i % 5 == 0,
            "place.town": f"t{i % 4}",
            "filename": f"{i}.txt",
        }
        assert first.score == pytest.approx(float(clean_vectors([TEXTS[i]])[0] @ clean_vectors([QUERY])[0]), abs=2e-3)
        assert page.to_dict() == {
            "object": "vector_store.search_results.page",
            "search_query": [QUERY],
            "has_more": False,
            "next_page": None,
            "data": [hit.to_dict() for hit in page.data],
        }
        assert len(list(client.vector_stores.search("notes", query=[QUERY, TEXTS[3]]))) == 10  # as iteration has it
        listed = list(client.vector_stores.list())
        assert [(store.id, store.name, store.file_counts.total) for store in listed] == [("notes", "notes", 41)]
        assert client.vector_stores.retrieve("notes").status == "completed"
        with pytest.raises(openai.NotFoundError):
            client.vector_stores.search("minutes", query=QUERY)
        with pytest.raises(openai.BadRequestError):
            client.vector_stores.search("notes", query="")


def test_the_official_javascript_client_searches(url: str, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None or not (NODE_MODULES / "openai").is_dir():
        pytest.skip("node, or OpenAI's client for it, is not here: make javascript")
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    (tmp_path / "search.mjs").write_text(
        "import OpenAI from 'openai';\n"
        f"const client = new OpenAI({{ baseURL: '{url}/v1', apiKey: '{READER}', maxRetries: 0 }});\n"
        f"const filters = {{ type: 'eq', key: 'tenant', value: 'a' }};\n"
        f"const body = {{ query: '{QUERY}', filters, max_num_results: 3 }};\n"
        "const ids = [], texts = [], stores = [];\n"
        "for await (const hit of client.vectorStores.search('notes', body)) {\n"
        "  ids.push(hit.file_id); texts.push(hit.content[0].text); }\n"
        "for await (const store of client.vectorStores.list()) stores.push(store.id);\n"
        "const refused = await client.vectorStores.search('minutes', body).catch(e => [e.status, e.code]);\n"
        "console.log(JSON.stringify({ ids, texts, stores, refused }));\n"
    )
    done = subprocess.run([node, "search.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    ids = order(QUERY, list(range(0, 40, 2)))[:3]
    assert json.loads(done.stdout) == {
        "ids": ids,
        "texts": [TEXTS[int(name.removeprefix("row-"))] for name in ids],
        "stores": ["notes"],
        "refused": [404, "vector_store_not_found"],
    }


def test_several_queries_words_and_a_threshold(url: str) -> None:
    both = post(url, {"query": [TEXTS[3], TEXTS[8]], "max_num_results": 2}).json()
    assert both["search_query"] == [TEXTS[3], TEXTS[8]]
    assert {hit["file_id"] for hit in both["data"]} == {"row-3", "row-8"}
    assert all(hit["score"] == pytest.approx(1, abs=1e-3) for hit in both["data"])
    strict = post(url, {"query": TEXTS[3], "ranking_options": {"score_threshold": 0.99}}).json()
    assert [hit["file_id"] for hit in strict["data"]] == ["row-3"]
    assert type(strict["data"][0]["attributes"]["year"]) is int
    # Vectors of this encoder know no words.
    for vectors, text, found in ((1, 1, True), (1, 0, False), (1, 2, True), (0, 1, True), (9e307, 9e306, False)):
        hybrid = {"hybrid_search": {"embedding_weight": vectors, "text_weight": text}}
        words = post(url, {"query": "17", "ranking_options": hybrid, "max_num_results": 1}).json()
        assert (words["data"][0]["file_id"] == "row-17") is found
    only = post(url, {"query": "17", "ranking_options": {"hybrid_search": {"text_weight": 1}}}).json()
    assert [hit["file_id"] for hit in only["data"]] == ["row-17"]
    assert code(post(url, {"query": "nothing"})) == (400, "invalid_query")
    bare = post(url, {"query": QUERY, "max_num_results": 50}).json()["data"][-1]
    assert bare == {"file_id": "bare", "filename": "bare", "score": 0.0, "attributes": {}, "content": []}


COMPARED = {"type": "eq", "key": "year", "value": 2001}
BAD_FILTERS: list[Any] = [
    [],
    "year",
    {},
    {"year": 2001},
    {**COMPARED, "type": "contains"},
    {**COMPARED, "type": ["eq"]},
    {**COMPARED, "key": ""},
    {**COMPARED, "key": "$or"},
    {**COMPARED, "key": 1},
    {**COMPARED, "key": "\ud800"},
    {**COMPARED, "value": None},
    {**COMPARED, "value": {}},
    {**COMPARED, "value": [1]},
    {**COMPARED, "value": "\udfff"},
    {**COMPARED, "value": 10**400},
    {**COMPARED, "type": "in"},
    {**COMPARED, "type": "nin", "value": [[1]]},
    {**COMPARED, "type": "gt", "value": True},
    {**COMPARED, "more": CANARY},
    {"type": "eq", "key": "year"},
    {"type": "and"},
    {"type": "and", "filters": []},
    {"type": "or", "filters": COMPARED},
    {"type": "and", "filters": [7]},
    {"type": "not", "filters": [COMPARED]},
    {"type": "in", "key": "year", "value": list(range(1001))},
    json.loads('{"type": "and", "filters": [' * 40 + json.dumps(COMPARED) + "]}" * 40),
]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *(
            ({"query": value}, "invalid_query")
            for value in (None, "", " \n", [], [""], [CANARY, 1], 7, {}, [["a"]], "\ud800", ["a"] * 33)
        ),
        *(({"max_num_results": value}, "invalid_max_num_results") for value in (0, 51, -1, 1.5, "10", True)),
        *(({"filters": value}, "invalid_filters") for value in BAD_FILTERS),
        *(
            ({"ranking_options": value}, "invalid_ranking_options")
            for value in (
                [],
                7,
                {"ranker": CANARY},
                {"score_threshold": 1.5},
                {"score_threshold": "0"},
                {"score_threshold": 10**400},
                {"hybrid_search": {"embedding_weight": 1, "text_weight": -1}},
                {"hybrid_search": {"embedding_weight": 0, "text_weight": 0}},
                {"hybrid_search": {}},
                {"hybrid_search": 1},
            )
        ),
        ({"ranking_options": {CANARY: 1}}, "unsupported_field"),
        ({"rewrite_query": True}, "unsupported_field"),
        ({CANARY: 1}, "unsupported_field"),
    ],
)
def test_what_a_search_does_not_take_is_said_and_not_quoted(given: Any, expected: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_search(json.dumps({"query": QUERY, **given}).encode())
    assert (caught.value.status, caught.value.code) == (400, expected)
    assert CANARY not in caught.value.text


@pytest.mark.parametrize(
    ("filters", "rows"),
    [
        ({"type": "ne", "key": "tenant", "value": "a"}, [i for i in range(40) if i % 2]),
        ({"type": "nin", "key": "year", "value": [2000, 2001.0]}, list(range(2, 40))),
        ({"type": "lt", "key": "year", "value": 2003.5}, [0, 1, 2, 3]),
        ({"type": "in", "key": "tags", "value": ["5", "6", 7, True]}, [5, 6]),
        ({"type": "eq", "key": "year", "value": "2001"}, []),
        ({"type": "eq", "key": "unknown", "value": CANARY}, []),
        ({"type": "lte", "key": "year", "value": 2**70}, list(range(40))),
    ],
)
def test_filters_select_as_the_index_does(url: str, filters: Any, rows: list[int]) -> None:
    found = post(url, {"query": QUERY, "filters": filters, "max_num_results": 50}).json()["data"]
    assert [hit["file_id"] for hit in found if hit["file_id"] != "bare"] == order(QUERY, rows)


def test_a_key_without_the_grant_learns_nothing(url: str) -> None:
    for path in ("notes", "notes/search"):
        method = "POST" if path.endswith("search") else "GET"
        answers = []
        for key, name in (
            (NOBODY, path),
            (OTHER, path),
            (READER, path.replace("notes", "absent")),
            (READER, path.replace("notes", "minutes")),
        ):
            content = None if method == "GET" else b'{"query": "a"}'
            headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
            target = f"{url}/v1/vector_stores/{name}"
            found = httpx.request(method, target, content=content, headers=headers, timeout=60)
            answers.append((found.status_code, found.json()))
        assert all(answer == answers[0] for answer in answers)
        assert answers[0][0] == 404
    assert code(post(url, {"query": "a"}, None)) == (401, "invalid_api_key")
    nobody = {"Authorization": f"Bearer {NOBODY}"}
    assert httpx.get(f"{url}/v1/vector_stores", headers=nobody, timeout=60).json()["data"] == []
    shown = httpx.get(f"{url}/metrics", headers=nobody, timeout=60).text + httpx.get(f"{url}/health", timeout=60).text
    assert not [name for name in ("notes", "minutes", str(41)) if f'"{name}"' in shown]


def test_logs_and_metrics_hold_no_content(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        assert post(url, {"query": QUERY, "filters": {"type": "ne", "key": CANARY, "value": CANARY}}).status_code == 200
        assert post(url, {"query": QUERY, "filters": {"type": CANARY}}).status_code == 400
        assert post(url, {"query": QUERY}, name=CANARY).status_code == 404
        headers = {"Authorization": f"Bearer {READER}"}
        assert httpx.get(f"{url}/{CANARY}", headers=headers, timeout=60).status_code == 404
    lines = [getattr(record, "fields", {}) for record in caplog.records if record.msg == "request"]
    assert [(line["route"], line.get("index"), line.get("api_key")) for line in lines] == [
        *[("/v1/vector_stores/{name}/search", "notes", 1)] * 2,
        ("/v1/vector_stores/{name}/search", None, 1),
        ("other", None, None),
    ]
    said = json.dumps(
        [
            [record.getMessage(), getattr(record, "fields", {})]
            for record in caplog.records
            if record.name.startswith("vecveil")
        ]
    )
    metrics = httpx.get(f"{url}/metrics", headers=headers, timeout=60).text
    for stage in ("encode", "search", "texts"):
        assert f'vecveil_search_seconds_count{{stage="{stage}"}}' in metrics
    assert not [secret for secret in (CANARY, "row-", READER, "alphamab") if secret in said + metrics]


def test_an_index_and_a_protector_share_a_server_and_each_alone_offers_its_own(place: Path) -> None:
    protector, notes = fake_protector(), ("notes", place)
    for protects, places, statuses in (
        (True, (notes,), (200, 200)),
        (False, (notes,), (404, 200)),
        (True, (), (200, 404)),
    ):
        policy = ServedPolicy("drug", ReleasePolicy(protector), LocalUpstream(FakeEncoder()))
        with served(stores(*places, policies=[policy] if protects else ())) as url:
            embedded = httpx.post(f"{url}/v1/embeddings", json={"model": "drug", "input": "a"}, timeout=60)
            assert (embedded.status_code, post(url, {"query": "a"}, None).status_code) == statuses
            assert httpx.post(f"{url}/v1/rerank", json={}, timeout=60).status_code == (400 if protects else 404)


def test_the_index_is_refreshed_and_its_loss_is_said(tmp_path: Path) -> None:
    index, service = filled(tmp_path / "notes"), stores(("notes", tmp_path / "notes"), searches_per_minute=4)
    service.stores._indexes["notes"].index._log._staleness = 0.0
    with served(service) as url:
        index.add(["later"], ids=["later"])
        assert post(url, {"query": "later"}, None).json()["data"][0]["file_id"] == "later"
        index.delete(["later"])
        assert post(url, {"query": "later"}, None).json()["data"][0]["file_id"] != "later"
        (tmp_path / "notes").rename(tmp_path / "gone")
        assert code(post(url, {"query": "later"}, None)) == (503, "index_unavailable")
        (tmp_path / "gone").rename(tmp_path / "notes")
        assert post(url, {"query": "later"}, None).status_code == 200
        assert code(post(url, {"query": "later"}, None)) == (429, "search_limit_reached")


@pytest.mark.parametrize("compacted", [False, True])
def test_an_index_that_vanishes_is_not_ready_and_answers_nothing(
    tmp_path: Path, compacted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    index = filled(tmp_path / "notes")
    if compacted:
        index.compact(retain=0)
    service = stores(("notes", tmp_path / "notes"))
    service.stores._indexes["notes"].index._log._staleness = 0.0
    with served(service, keys=None) as url, caplog.at_level(logging.ERROR, "vecveil.gateway.server"):
        assert httpx.get(f"{url}/ready", timeout=60).json() == {"status": "ready"}
        shutil.rmtree(tmp_path / "notes")
        for _ in range(2):
            assert code(post(url, {"query": "later"}, None)) == (503, "index_unavailable")
            answer = httpx.get(f"{url}/ready", timeout=60)
            assert code(answer) == (503, "index_unavailable")
            assert answer.headers["retry-after"] == "1"
            assert "notes" not in answer.text
        assert httpx.get(f"{url}/health", timeout=60).status_code == 200, (
            "the process runs: restarting it does not help"
        )
        metrics = httpx.get(f"{url}/metrics", timeout=60).text
    assert 'vecveil_requests_total{route="/ready",status="503"} 2.0' in metrics
    assert "index unavailable" in caplog.text


def test_an_index_in_a_bucket_with_an_encoder_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    s3fs = pytest.importorskip("s3fs")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    variables = {
        "ENDPOINT_URL": "http://{}:{}".format(*server.get_host_and_port()),
        "ACCESS_KEY_ID": "test",
        "SECRET_ACCESS_KEY": "test",
        "MAX_ATTEMPTS": "1",
    }
    for name, value in {**variables, "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("VECVEIL_CACHE", str(tmp_path / "cache"))
    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().mkdirs("bucket", exist_ok=True)
    LsaEncoder.fit(TEXTS * 4, dimension=8).save(tmp_path / "lsa")
    vecveil.KeyFile.create(tmp_path / "search.keys", "one")
    place, key = "s3://bucket/notes", str(tmp_path / "search.keys")
    SealedIndex(place, key, encoder=str(tmp_path / "lsa")).add(TEXTS, ids=[f"row-{i}" for i in range(40)])
    upstream = UpstreamSettings(encoder=str(tmp_path / "lsa"))
    with served(open_service(ServeSettings({}, upstream, indexes={"notes": place}, seal_key=key))) as url:
        assert post(url, {"query": TEXTS[7]}, None).json()["data"][0]["content"][0]["text"] == TEXTS[7]
        server.stop()
        time.sleep(2.1)
        answers = [post(url, {"query": TEXTS[7]}, None) for _ in range(2)]
        assert {answer.status_code for answer in answers} <= {200, 503}
        assert 503 in {answer.status_code for answer in answers}


def test_a_storage_that_hangs_delays_neither_others_nor_the_end(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vecveil.gateway.server.service._FILE_SECONDS", 0.2)
    service, over = stores(("notes", place)), threading.Event()
    with served(service) as url:
        index = service.stores._indexes["notes"].index
        monkeypatch.setattr(index, "find", lambda *a, **k: over.wait(60))
        monkeypatch.setattr(index, "close", lambda: over.wait(60))
        assert code(post(url, {"query": "a"}, None)) == (503, "files_busy")
        assert httpx.get(f"{url}/health", timeout=60).status_code == 200
        monkeypatch.setattr(index, "count", lambda: over.wait(60))
        with ThreadPoolExecutor(12) as probes:
            assert set(probes.map(lambda _: code(httpx.get(f"{url}/ready", timeout=60)), range(12))) == {
                (503, "files_busy")
            }
        assert len([t for t in threading.enumerate() if t.name == "vecveil-files"]) <= 3, "probes share a thread"
    over.set()


def test_what_cannot_be_served_stops_the_start(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {"policies": {}, "indexes": {"notes": str(place)}, "seal_key": "env:SEAL"}
    ServeSettings(**given)
    for change, param in (
        ({"indexes": {}}, "policies"),
        ({"seal_key": None}, "seal_key"),
        ({"indexes": {"a/b": "x"}}, "indexes"),
        ({"host": "0.0.0.0"}, "api_keys"),
    ):
        with raises("E-INPUT", param):
            ServeSettings(**{**given, **change})
    vecveil.KeyFile.create(tmp_path / "search.keys", "one")
    SealedIndex(tmp_path / "other", str(tmp_path / "search.keys"), encoder=FakeEncoder()).add(["a"], ids=["a"])
    SealedIndex(tmp_path / "wide", KEY).add(None, ids=["a"], vectors=np.ones((1, 99)))  # notes no encoder
    with raises("E-INCOMPATIBLE-ENCODER", "upstream"):
        stores(("notes", tmp_path / "wide"))
    with raises("E-INCOMPATIBLE-ENCODER", "upstream"):
        LsaEncoder.fit(TEXTS * 4, dimension=8).save(tmp_path / "lsa")
        key, upstream = str(tmp_path / "search.keys"), UpstreamSettings(encoder=str(tmp_path / "lsa"))
        open_service(ServeSettings({}, upstream, indexes={"o": str(tmp_path / "other")}, seal_key=key))
    SealedIndex(tmp_path / "unnamed", key).add(None, ids=["a"], vectors=np.ones((1, 384)))
    monkeypatch.setattr(service, "load_encoder", lambda *_, **__: pytest.fail("an encoder was loaded"))
    for wrong, error, param in (
        ("none", "E-INDEX-MISSING", "indexes"),
        ("unnamed", "E-INPUT", "upstream"),
        ("wide", "E-SEAL-COLLECTION", "key"),
    ):
        with raises(error, param):
            open_service(ServeSettings({}, indexes={"o": str(tmp_path / wrong)}, seal_key=key))


def test_the_configuration_names_indexes(tmp_path: Path) -> None:
    (tmp_path / "serve.yaml").write_text(
        "seal_key: search.keys\nindexes: {notes: sealed:notes, far: 's3://bucket/far'}\n"
        "policies: {drug: drug.vecveil}\n"
    )
    found = read_config(tmp_path / "serve.yaml")
    assert found.indexes == {"notes": str(tmp_path / "notes"), "far": "s3://bucket/far"}
    assert found.policies == {"drug": ServedPolicySettings(str(tmp_path / "drug.vecveil"))}
