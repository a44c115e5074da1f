"""Sealed search over HTTP: OpenAI's client seals, rerankers of LangChain and LlamaIndex rank, others get nothing."""

from __future__ import annotations

import base64
import json
import logging
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.serving import FakeEncoder, clean_vectors, fake_protector, served
from vecveil.gateway.server import Limits, ServedPolicySettings, ServeSettings, Service, requests
from vecveil.gateway.server.errors import ApiError
from vecveil.gateway.server.requests import ApiClient, ApiKeys, RateLimit
from vecveil.gateway.server.service import ServedPolicy
from vecveil.gateway.server.upstreams import LocalUpstream
from vecveil.index import KeyStore, Sealer
from vecveil.io import locked
from vecveil.privacy.protector.policy import ReleasePolicy
from vecveil.stores import open_store
from vecveil.stores.collection import SEALED_FIELD
from vecveil.stores.store import Batch

WRITER, READER, ANALYST, STRANGER, NOBODY = (
    f"the-key-of-the-{name}" for name in ("writer", "reader", "analyst", "stranger", "nobody")
)
KEYS = (
    f"{WRITER} seal:notes seal:drafts,{READER} rank:notes,"
    f"{ANALYST} rank:notes scores:notes texts:notes rank:caf%C3%A9%20notes,"
    f"{STRANGER} seal:other rank:other,{NOBODY}"
)
QUERY = "Which note mentions alphamab?"
TEXTS = [f"note {i} about alphamab" for i in range(12)]
LONG = random.Random(0).randbytes(2**19).hex()  # compressed, still larger than the server ranks
IDS = [f"urn:notes:{i}" for i in range(10)] + ["日本:語", "a b\n:"]


@dataclass
class Server:
    url: str
    key_file: Path

    def post(self, path: str, body: Any, key: str | None = READER) -> httpx.Response:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx.post(self.url + path, json=body, headers=headers, timeout=30)

    def sealed(self, texts: list[str], ids: list[str], collection: str = "notes", key: str = WRITER) -> Any:
        return self.seal({"input": texts, "ids": ids, "collection": collection}, key)

    def seal(self, given: Any, key: str = WRITER) -> httpx.Response:
        return self.post("/v1/embeddings", {"model": "drug", "seal": True, **given}, key)

    def documents(self) -> list[str]:
        given = {"input": TEXTS, "ids": IDS, "collection": "notes", "filter_fields": ["tenant"]}
        data = self.seal(given).json()["data"]
        return [f"{name}:{row['sealed']}" for name, row in zip(IDS, data, strict=True)]

    def rerank(
        self, documents: Any, key: str | None = READER, path: str = "/v1/rerank", **given: Any
    ) -> httpx.Response:
        return self.post(path, {"model": "any", "query": QUERY, "documents": documents, **given}, key)


def service(protector: vecveil.Protector, key_file: Path, encoder: Any = None, **given: Any) -> Service:
    policy = ServedPolicy("drug", ReleasePolicy(protector), LocalUpstream(encoder or FakeEncoder()))
    return Service([policy], limits=Limits(results=12, reranks_per_minute=10_000), sealer=Sealer(key_file), **given)


@pytest.fixture(scope="module")
def keys() -> ApiKeys:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLIENT_KEYS", KEYS)
        return ApiKeys("env:CLIENT_KEYS")


@pytest.fixture(scope="module")
def protector() -> vecveil.Protector:
    return fake_protector()


@pytest.fixture(scope="module")
def server(protector: vecveil.Protector, keys: ApiKeys, tmp_path_factory: Any) -> Iterator[Server]:
    key_file = tmp_path_factory.mktemp("seal") / "search.keys"
    vecveil.KeyFile.create(key_file, "2026-11")
    with served(service(protector, key_file), keys=keys) as url:
        yield Server(url, key_file)


@pytest.fixture(scope="module")
def documents(server: Server) -> list[str]:
    return server.documents()


@pytest.fixture(scope="module")
def order() -> list[int]:
    """Return the documents by exact cosine, worked out here."""
    cosines = clean_vectors(TEXTS) @ clean_vectors([QUERY])[0]
    return [int(i) for i in np.argsort(-cosines)]


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_rows_that_openais_client_sealed_are_those_of_a_protected_collection(
    server: Server, protector: vecveil.Protector, tmp_path: Path, order: list[int]
) -> None:
    import openai

    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=WRITER, max_retries=0) as client:
        extra = {
            "seal": True,
            "ids": IDS,
            "collection": "notes",
            "metadata": [{"page": i, "tenant": "ab"[i % 2]} for i in range(12)],
            "filter_fields": ["tenant"],
        }
        data = client.embeddings.create(model="drug", input=TEXTS, extra_body=extra).data
    location = f"sqlite-vec:{tmp_path}/notes.db#notes"
    store = open_store(location)
    store.create(16, metric="cosine", filter_fields=["vecveil_filter_tenant"])
    vectors = np.array([row.embedding for row in data], np.float32)
    fields = tuple({SEALED_FIELD: row.sealed, **row.filter_tokens} for row in data)  # type: ignore[attr-defined]
    store.write(Batch(tuple(IDS), vectors, fields))
    collection = vecveil.ProtectedCollection(location, protector, server.key_file, name="notes", candidates=12)
    hits = collection.search(clean_vectors([QUERY])[0], top=3)
    assert hits.ids == [IDS[i] for i in order[:3]]
    assert hits.texts == [TEXTS[i] for i in order[:3]]
    assert hits.metadata == [{"page": i, "tenant": "ab"[i % 2]} for i in order[:3]]
    found = collection.search(clean_vectors([QUERY])[0], top=12, where={"tenant": "b"})
    assert found.ids == [IDS[i] for i in order if i % 2]
    # The key store notes the field: later rows get its token too.
    later = server.seal({"input": ["x"], "ids": ["1"], "collection": "notes", "metadata": [{"tenant": "b"}]})
    assert later.json()["data"][0]["filter_tokens"] == data[1].filter_tokens  # type: ignore[attr-defined]


def langchain_cohere(url: str, documents: list[str]) -> list[str]:
    from langchain_cohere import CohereRerank

    reranker = CohereRerank(model="any", base_url=url, cohere_api_key=READER, top_n=5)  # type: ignore[arg-type]
    with reranker.client:  # closes its connections
        return langchain(reranker, documents)


def langchain_jina(url: str, documents: list[str]) -> list[str]:
    import langchain_community.document_compressors.jina_rerank as module

    with pytest.MonkeyPatch.context() as patch:  # it has no setting for the URL
        patch.setattr(module, "JINA_API_URL", f"{url}/v1/rerank")
        reranker = module.JinaRerank(jina_api_key=READER, top_n=5)
        with reranker.session:
            return langchain(reranker, documents)


def llama_index_cohere(url: str, documents: list[str]) -> list[str]:
    from llama_index.postprocessor.cohere_rerank import CohereRerank

    reranker = CohereRerank(top_n=5, api_key=READER, base_url=url)
    with reranker._client:
        return llama_index(reranker, documents)


def llama_index_jina(url: str, documents: list[str]) -> list[str]:
    from llama_index.postprocessor.jinaai_rerank import JinaRerank

    reranker = JinaRerank(top_n=5, api_key=READER, base_url=f"{url}/v1")
    with reranker._session:
        return llama_index(reranker, documents)


def langchain(reranker: Any, documents: list[str]) -> list[str]:
    from langchain_core.documents import Document

    found = reranker.compress_documents([Document(text) for text in documents], QUERY)
    return [document.page_content for document in found]


def llama_index(reranker: Any, documents: list[str]) -> list[str]:
    from llama_index.core.schema import NodeWithScore, TextNode

    nodes = [NodeWithScore(node=TextNode(text=text)) for text in documents]
    return [node.get_content() for node in reranker.postprocess_nodes(nodes, query_str=QUERY)]


@pytest.mark.filterwarnings("ignore")  # of the imported packages
@pytest.mark.parametrize("reranked", [langchain_cohere, langchain_jina, llama_index_cohere, llama_index_jina])
def test_rerankers_give_the_exact_order(
    reranked: Callable[[str, list[str]], list[str]], server: Server, documents: list[str], order: list[int]
) -> None:
    assert reranked(server.url, documents) == [documents[i] for i in order[:5]]


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_a_score_tells_the_place_alone(server: Server, documents: list[str], order: list[int], path: str) -> None:
    answer = server.rerank(documents, path=path, model="any").json()
    assert [row["index"] for row in answer["results"]] == order
    assert [row["relevance_score"] for row in answer["results"]] == [1 - place / 12 for place in range(12)]
    assert all(set(row) == {"index", "relevance_score"} for row in answer["results"])
    assert answer["model"] == "any"


def test_exact_scores_and_texts_are_grants_of_their_own(server: Server, documents: list[str], order: list[int]) -> None:
    answer = server.rerank(documents, ANALYST, top_n=4, return_documents=True).json()
    cosines = clean_vectors(TEXTS) @ clean_vectors([QUERY])[0]
    shown = [row["relevance_score"] for row in answer["results"]]
    np.testing.assert_allclose(shown, cosines[order[:4]], atol=1e-3)
    assert [row["document"]["text"] for row in answer["results"]] == [TEXTS[i] for i in order[:4]]
    refused = server.rerank(documents, READER, return_documents=True)
    assert code(refused) == (403, "not_granted")
    assert "alphamab" not in refused.text


def test_names_of_collections_are_percent_encoded_in_the_key_file(server: Server) -> None:
    sealer = Sealer(server.key_file)
    (blob,) = sealer.seal(clean_vectors(["a"]), ids=["1"], collection="café notes")
    answer = server.rerank([f"1:{base64.b64encode(blob).decode()}"], ANALYST)
    assert answer.status_code == 200
    assert answer.json()["results"][0]["index"] == 0


@pytest.mark.parametrize("key", [WRITER, STRANGER, NOBODY])
def test_a_key_opens_what_it_was_granted_alone(server: Server, documents: list[str], key: str) -> None:
    for given in ({}, {"collection": "notes"}, {"collection": "no such collection"}):
        assert code(server.rerank(documents, key, **given)) == (403, "not_granted")
    if key != WRITER:
        assert code(server.sealed(["a"], ["1"], "notes", key)) == (403, "not_granted")
    assert "no such collection" not in KeyStore(server.key_file).collections()


def test_a_removed_key_opens_nothing(
    protector: vecveil.Protector, server: Server, documents: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# {READER} rank:notes\n{WRITER} seal:notes\n")
    path.chmod(0o600)
    with served(service(protector, server.key_file), keys=ApiKeys(str(path))) as url:
        assert code(Server(url, path).rerank(documents)) == (401, "invalid_api_key")
        assert code(Server(url, path).rerank(documents, None)) == (401, "invalid_api_key")


def damaged(documents: list[str], server: Server) -> dict[str, list[str]]:
    foreign = [
        f"{name}:{row['sealed']}"
        for name, row in zip(IDS, server.sealed(TEXTS, IDS, "other", STRANGER).json()["data"], strict=True)
    ]
    blobs = [document.rpartition(":")[2] for document in documents]
    raw = bytearray(base64.b64decode(blobs[0]))
    raw[40] ^= 1
    flipped = base64.b64encode(raw).decode()
    wider = Sealer(server.key_file).seal(np.ones((1, 17)), ids=["wide"], collection="notes")[0]
    return {
        "swapped ids": [f"{IDS[1]}:{blobs[0]}", f"{IDS[0]}:{blobs[1]}"],
        "another collection": [documents[0], foreign[1]],
        "another collection, first": [foreign[0], documents[1]],
        "one bit": [documents[1], f"{IDS[0]}:{flipped}"],
        "no base64": [documents[0], "1:%%%"],
        "nothing": [documents[0], "1:"],
        "cut": [documents[0], documents[1][:-16]],
        "another dimension": [documents[0], f"wide:{base64.b64encode(wider).decode()}"],
        "similar Unicode": [f"日本：語:{blobs[10]}", documents[0]],
    }


def test_a_document_that_does_not_open_fails_the_request_without_a_cause(server: Server, documents: list[str]) -> None:
    answers = {name: server.rerank(given) for name, given in damaged(documents, server).items()}
    assert {name: code(answer) for name, answer in answers.items()} == dict.fromkeys(
        answers, (400, "document_not_opened")
    )
    assert len({answer.text for answer in answers.values()}) == 1
    assert "results" not in answers["one bit"].json()
    # A document of another collection alone names that collection, which the key does not open.
    foreign = damaged(documents, server)["another collection, first"][0]
    assert code(server.rerank([foreign])) == (403, "not_granted")
    assert code(server.rerank([foreign], collection="notes")) == (400, "document_not_opened")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"query": ""}, "invalid_query"),
        ({"query": " \n"}, "invalid_query"),
        ({"query": [0.5] * 16}, "invalid_query"),
        ({"query": [1, 2]}, "invalid_query"),
        ({"query": {"embedding": [0.5]}}, "invalid_query"),
        ({"query": "\ud800"}, "invalid_query"),
        ({"documents": []}, "invalid_documents"),
        ({"documents": "1:AAAA"}, "invalid_documents"),
        ({"documents": [{"text": "1:AAAA"}]}, "invalid_documents"),
        ({"documents": ["AAAA"]}, "invalid_documents"),
        ({"documents": [":AAAA"]}, "invalid_documents"),
        ({"documents": ["1:AAAA", "1:AAAA"]}, "invalid_documents"),
        ({"documents": [f"{i}:AAAA" for i in range(10_000)]}, "invalid_documents"),
        ({"documents": ["1:" + "A" * (2**20 + 4)]}, "invalid_documents"),
        ({"documents": ["1" * 600 + ":AAAA"]}, "invalid_documents"),
        ({"top_n": 0}, "invalid_top_n"),
        ({"top_n": 13}, "invalid_top_n"),
        ({"top_n": True}, "invalid_top_n"),
        ({"return_documents": "yes"}, "invalid_return_documents"),
        ({"collection": ["notes"]}, "invalid_collection"),
        ({"model": 5}, "invalid_model"),
    ],
)
def test_malformed_requests_are_refused(
    server: Server, documents: list[str], given: dict[str, Any], expected: str
) -> None:
    body = json.dumps({"model": "m", "query": QUERY, "documents": documents, **given})
    headers = {"Authorization": f"Bearer {READER}", "Content-Type": "application/json"}
    answer = httpx.post(f"{server.url}/v1/rerank", content=body, headers=headers, timeout=30)
    assert code(answer) == (400, expected)


def test_a_body_beyond_the_limit_is_refused(server: Server) -> None:
    assert code(server.rerank([f"{i}:{'A' * 2**20}" for i in range(9)])) == (413, "body_too_large")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"ids": None}, "invalid_ids"),
        ({"ids": ["1"]}, "invalid_ids"),
        ({"ids": ["1", "1"]}, "invalid_ids"),
        ({"ids": [1, 2]}, "invalid_ids"),
        ({"collection": None}, "invalid_collection"),
        ({"collection": "a\nb"}, "invalid_collection"),
        ({"metadata": [1, 2]}, "invalid_metadata"),
        ({"metadata": [{"a": json.loads("[" * 200 + "]" * 200)}, None]}, "invalid_metadata"),
        ({"seal": "yes"}, "invalid_seal"),
        ({"filter_fields": "tenant"}, "invalid_filter_fields"),
        ({"filter_fields": [1]}, "invalid_filter_fields"),
        ({"filter_fields": ["a b"], "collection": "drafts"}, "invalid_filter_fields"),
        ({"filter_fields": [f"f{i}" for i in range(17)]}, "invalid_filter_fields"),
        ({"filter_fields": ["tags"], "metadata": [{"tags": ["x"]}, None], "collection": "drafts"}, "invalid_metadata"),
        ({"metadata": [{"a": json.loads("[" * 200 + "]" * 200)}, None], "collection": "drafts"}, "invalid_metadata"),
        ({"input_type": "query"}, "invalid_seal"),
        ({"input": ["a", LONG]}, "row_too_long"),
        ({"metadata": [{"a": LONG}, None]}, "row_too_long"),
    ],
)
def test_malformed_requests_to_seal_are_refused(server: Server, given: dict[str, Any], expected: str) -> None:
    assert code(server.seal({"input": ["a", "b"], "ids": ["1", "2"], "collection": "notes", **given})) == (
        400,
        expected,
    )


def test_the_first_request_of_a_collection_names_its_filter_fields(server: Server) -> None:
    first = {"input": ["a"], "ids": ["1"], "collection": "drafts", "metadata": [{"year": 1, "diagnosis": "x"}]}
    store = KeyStore(server.key_file)
    assert "drafts" not in store.collections()  # refused requests made none
    assert server.seal({**first, "filter_fields": ["year"]}).status_code == 200
    assert server.seal({**first, "filter_fields": ["year"]}).status_code == 200
    # One client's request must not make every writer's rows comparable by a further field.
    assert code(server.seal({**first, "filter_fields": ["year", "diagnosis"]})) == (403, "not_granted")
    assert store.read("drafts").filter_fields == ("year",)
    store.note_filter_fields("drafts", ["diagnosis"])  # as whoever holds the key file may
    answer = server.seal({**first, "filter_fields": ["year", "diagnosis"]})
    assert answer.json()["data"][0]["filter_tokens"].keys() == {"vecveil_filter_year", "vecveil_filter_diagnosis"}


class Hanging:
    """A key provider that does not answer, as one in a cloud may."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def wrap(self, key: bytes, context: bytes) -> bytes:
        self.over.wait(30)
        return key

    unwrap = wrap


@pytest.mark.parametrize("cause", ["key_store_busy", "files_busy"])
def test_a_key_store_that_hangs_delays_neither_other_requests_nor_the_end(
    cause: str, protector: vecveil.Protector, keys: ApiKeys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`served` fails where the server does not end in 20 seconds."""
    monkeypatch.setattr("vecveil.io.LOCK_SECONDS", 0.2)
    monkeypatch.setattr("vecveil.gateway.server.service._FILE_SECONDS", 30.0 if cause == "key_store_busy" else 0.2)
    vecveil.KeyFile.create(tmp_path / "search.keys", "one")
    given, provider = service(protector, tmp_path / "search.keys"), Hanging()
    with ExitStack() as stack:
        stack.callback(provider.over.set)
        if cause == "files_busy":
            given.sealer = Sealer(provider, store=tmp_path / "wrapped.keys")
        else:
            stack.enter_context(locked(tmp_path / "search.keys"))
        server = Server(stack.enter_context(served(given, keys=keys)), tmp_path)
        threads = stack.enter_context(ThreadPoolExecutor(12))
        asked = [threads.submit(server.sealed, [f"text {i}"], [str(i)]) for i in range(12)]
        plain = server.post("/v1/embeddings", {"model": "drug", "input": TEXTS}, WRITER)
        assert plain.status_code == 200
        answers = [each.result() for each in asked]
        assert {code(answer) for answer in answers} == {(503, cause)}
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in answers)


def test_an_erased_collection_opens_no_more(server: Server) -> None:
    data = server.sealed(["a"], ["1"], "other", STRANGER).json()["data"]
    document = f"1:{data[0]['sealed']}"
    assert server.rerank([document], STRANGER).status_code == 200
    KeyStore(server.key_file).erase("other")
    assert code(server.rerank([document], STRANGER)) == (403, "not_granted")
    assert code(server.rerank([document], STRANGER, collection="other")) == (403, "not_granted")


def test_a_collection_of_another_protector_is_refused(server: Server, documents: list[str], keys: ApiKeys) -> None:
    with served(
        service(fake_protector("gaussian", sigma=0.3, noise_to_signal=None), server.key_file), keys=keys
    ) as url:
        other = Server(url, server.key_file)
        assert code(other.rerank(documents)) == (409, "another_protector")
        assert code(other.sealed(["a"], ["1"])) == (409, "another_protector")


def test_a_collection_that_is_being_reprotected_is_refused(
    protector: vecveil.Protector, keys: ApiKeys, tmp_path: Path
) -> None:
    vecveil.KeyFile.create(tmp_path / "search.keys", "2026-11")
    with served(service(protector, tmp_path / "search.keys"), keys=keys) as url:
        server = Server(url, tmp_path / "search.keys")
        documents = server.documents()
        KeyStore(server.key_file).rotate("notes", protector="f" * 64)
        assert code(server.rerank(documents)) == (409, "another_protector")
        assert code(server.sealed(["a"], ["1"])) == (409, "another_protector")


def test_a_policy_that_rewrites_texts_does_not_show_its_upstream_the_original(keys: ApiKeys, tmp_path: Path) -> None:
    vecveil.KeyFile.create(tmp_path / "search.keys", "2026-11")
    with served(service(fake_protector("redact"), tmp_path / "search.keys"), keys=keys) as url:
        assert code(Server(url, tmp_path).sealed(["a"], ["1"])) == (400, "sealing_not_supported")


def test_a_text_stage_rewrites_the_candidates_and_seals_the_originals(keys: ApiKeys, tmp_path: Path) -> None:
    vecveil.KeyFile.create(tmp_path / "search.keys", "2026-11")
    protector = fake_protector(rewrite="delete", noise_to_signal=1e-4)
    text = "note 3 about alphamab"
    with served(service(protector, tmp_path / "search.keys"), keys=keys) as url:
        server = Server(url, tmp_path / "search.keys")
        (row,) = server.sealed([text], ["1"]).json()["data"]
        ranked = server.rerank([f"1:{row['sealed']}"], ANALYST, return_documents=True).json()
    np.testing.assert_allclose(row["embedding"], FakeEncoder().encode(["note 3 about"])[0], atol=1e-3)
    assert ranked["results"][0]["document"]["text"] == text
    exact = float(FakeEncoder().encode([QUERY])[0] @ FakeEncoder().encode([text])[0])
    assert ranked["results"][0]["relevance_score"] == pytest.approx(exact, abs=1e-2)


def test_without_a_seal_key_nothing_is_sealed_and_nothing_ranked(protector: vecveil.Protector, keys: ApiKeys) -> None:
    plain = Service([ServedPolicy("drug", ReleasePolicy(protector), LocalUpstream(FakeEncoder()))])
    with served(plain, keys=keys) as url:
        server = Server(url, Path())
        assert code(server.sealed(["a"], ["1"])) == (400, "invalid_seal")
        assert code(server.rerank(["1:AAAA"])) == (404, "unknown_path")


def test_a_server_without_api_keys_seals_and_ranks_and_shows_no_score_and_no_text(
    protector: vecveil.Protector, server: Server, documents: list[str], order: list[int]
) -> None:
    with served(service(protector, server.key_file)) as url:
        open_server = Server(url, server.key_file)
        answer = open_server.rerank(documents, None).json()
        assert [row["index"] for row in answer["results"]] == order
        assert answer["results"][1]["relevance_score"] == 1 - 1 / 12
        assert code(open_server.rerank(documents, None, return_documents=True)) == (403, "not_granted")


def test_api_keys_are_needed_where_others_reach_the_server() -> None:
    given: dict[str, Any] = {"policies": {"drug": ServedPolicySettings("p")}, "seal_key": "env:SEAL"}
    for host in ("127.0.0.1", "::1", "localhost"):
        ServeSettings(host=host, **given)
    ServeSettings(host="0.0.0.0", api_keys="env:KEYS", **given)
    with raises("E-INPUT", "api_keys"):
        ServeSettings(host="0.0.0.0", **given)


@pytest.mark.parametrize("line", [f"{READER} rank", f"{READER} rank:", f"{READER} read:notes", f"{READER},{READER}"])
def test_a_wrong_grant_stops_the_start(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setenv("WRONG_KEYS", line)
    with raises("E-KEY-FILE", "api_keys"):
        ApiKeys("env:WRONG_KEYS")


def test_each_key_has_its_own_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(requests.time, "monotonic", lambda: clock[0])
    limit, reader, other = RateLimit(2), ApiClient(1), ApiClient(2)
    for client in (reader, reader, other):
        limit.take(client)
    with pytest.raises(ApiError) as caught:
        limit.take(reader)
    assert (caught.value.status, caught.value.code, caught.value.retry_after) == (429, "rerank_limit_reached", 30.0)
    clock[0] = 30.0
    limit.take(reader)


def test_the_log_counts_and_quotes_nothing(
    server: Server, documents: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        server.rerank(documents)
        server.rerank([documents[0], "planted-id:AAAA"])
    lines = [getattr(record, "fields", {}) for record in caplog.records if record.msg == "request"]
    assert [(line["route"], line["api_key"], line["documents"], line["status"]) for line in lines] == [
        ("/v1/rerank", 2, 12, 200),
        ("/v1/rerank", 2, 2, 400),
    ]
    said = json.dumps(
        [
            [record.getMessage(), getattr(record, "fields", {})]
            for record in caplog.records
            if record.name.startswith("vecveil")
        ]
    )
    for secret in (QUERY, "alphamab", "planted-id", "urn:notes", documents[0][-40:], READER, "notes"):
        assert secret not in said


def test_metrics_count_rows(server: Server) -> None:
    text = httpx.get(f"{server.url}/metrics", headers={"Authorization": f"Bearer {NOBODY}"}, timeout=60).text
    assert 'vecveil_blobs_total{action="sealed"}' in text
