"""The server on a real socket, asked by the clients that people have: OpenAI's own, LangChain's, LlamaIndex's."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router

import vecveil
from harness.documents import ROOT, blocks
from harness.serving import (
    DIMENSION,
    FakeEncoder,
    Misbehaving,
    answer_to,
    clean_vectors,
    fake_protector,
    respond,
    served,
)
from vecveil.gateway.server import Limits, Service, UpstreamSettings
from vecveil.gateway.server.requests import ApiKeys
from vecveil.gateway.server.service import ServedPolicy
from vecveil.gateway.server.upstreams import HttpUpstream, LocalUpstream
from vecveil.privacy.protector.policy import ReleasePolicy

TEXTS = ["The patient takes alphamab.", "Nothing to see here."]


@pytest.fixture(scope="module", autouse=True)
def _imports() -> None:
    """Import OpenAI's client only in the process that runs this file; every process collects it."""
    global openai
    import openai


@pytest.fixture(scope="module")
def laplace() -> vecveil.Protector:
    return fake_protector()


@pytest.fixture(scope="module")
def subspace() -> vecveil.Protector:
    given = {"rank": 2, "kept": 12, "flattening": 0.0, "pairs": True}
    return fake_protector("subspace", output="reduced", **given)


@pytest.fixture(scope="module")
def keys(key_file: Path) -> vecveil.KeyFile:
    return vecveil.KeyFile.from_file(key_file)


def local(*policies: tuple[str, ReleasePolicy], **given: Any) -> Service:
    upstream = LocalUpstream(FakeEncoder())
    return Service([ServedPolicy(name, policy, upstream) for name, policy in policies], **given)


@pytest.fixture(scope="module")
def url(laplace: vecveil.Protector, subspace: vecveil.Protector, keys: vecveil.KeyFile) -> Iterator[str]:
    """A server of three policies over one encoder."""
    service = local(
        ("drug", ReleasePolicy(laplace, key=keys)),
        ("reduced", ReleasePolicy(subspace, query_noise=0)),
        ("stronger", ReleasePolicy(laplace, query_noise=20.0)),
    )
    with served(service) as base:
        yield base


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as one:
        yield one


@pytest.fixture(scope="module")
def drug(laplace: vecveil.Protector, keys: vecveil.KeyFile) -> Callable[..., np.ndarray]:
    """What the keyed policy lets out, worked out here."""
    policy = ReleasePolicy(laplace, key=keys)
    return lambda texts: policy.documents(clean_vectors(texts), texts=texts)


def rows(answer: Any) -> np.ndarray:
    return np.array([one.embedding for one in answer.data], dtype=np.float32)


def test_the_official_client_gets_what_the_policy_lets_out(
    client: openai.OpenAI, drug: Callable[..., np.ndarray]
) -> None:
    expected = drug(TEXTS)
    assert (np.abs(expected - clean_vectors(TEXTS)) > 1e-6).any(axis=1).all()  # control
    by_default = client.embeddings.create(model="drug", input=TEXTS)  # base64 on the wire
    as_numbers = client.embeddings.create(model="drug", input=TEXTS, encoding_format="float")
    as_base64 = client.embeddings.create(model="drug", input=TEXTS, encoding_format="base64")
    assert isinstance(as_base64.data[0].embedding, str)
    np.testing.assert_array_equal(rows(by_default), expected)
    np.testing.assert_array_equal(rows(as_numbers), expected)
    one = client.embeddings.create(model="drug", input=TEXTS[1], dimensions=DIMENSION)
    np.testing.assert_array_equal(rows(one), expected[1:])
    assert (one.object, one.model, one.data[0].index) == ("list", "drug", 0)


def test_litellm_calls_the_server_as_the_documents_say(url: str, drug: Callable[..., np.ndarray]) -> None:
    page = (ROOT / "docs" / "serving.md").read_text("utf-8").replace("http://127.0.0.1:8080", url)
    (lines,) = [block.code for block in blocks(page, "text") if "litellm.embedding" in block.code]
    (proxy,) = [block.code for block in blocks(page, "yaml") if "litellm_params" in block.code]
    router = f"litellm.Router(model_list={yaml.safe_load(proxy)['model_list']!r}, num_retries=0)"
    code = f"""import json, litellm
texts = {TEXTS!r}
{lines}
routed = {router}.embedding(model="text-embedding-3-small", input=texts)
for answer in (documents, queries, routed):
    print(json.dumps([row["embedding"] for row in answer.data]))
"""
    # A process of its own: LiteLLM leaves sockets and an event loop open.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answers = [np.array(json.loads(line), dtype=np.float32) for line in done.stdout.splitlines()]
    assert len(answers) == 3
    for answer in answers:
        np.testing.assert_array_equal(answer, drug(TEXTS))


def test_langchain_needs_its_base_url_changed(url: str, drug: Callable[..., np.ndarray]) -> None:
    from langchain_openai import OpenAIEmbeddings

    given: dict[str, Any] = {"base_url": f"{url}/v1", "api_key": "unused", "max_retries": 0}
    embeddings = OpenAIEmbeddings(model="drug", check_embedding_ctx_length=False, **given)
    found = np.array(embeddings.embed_documents(TEXTS), dtype=np.float32)
    np.testing.assert_array_equal(found, drug(TEXTS))
    query = np.array(embeddings.embed_query(TEXTS[0]), dtype=np.float32)
    np.testing.assert_array_equal(query, drug(TEXTS)[0])


def test_langchain_by_default_sends_token_ids_and_is_told(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import langchain_openai.embeddings.base as module

    class Tokens:
        """In the place of tiktoken's, which would be loaded from the network."""

        def encode(self, text: str, **_: Any) -> list[int]:
            return [len(word) for word in text.split()]

        encode_ordinary = encode

    monkeypatch.setattr(module.tiktoken, "encoding_for_model", lambda _: Tokens())
    monkeypatch.setattr(module.tiktoken, "get_encoding", lambda _: Tokens())
    embeddings = module.OpenAIEmbeddings(
        model="drug",
        base_url=f"{url}/v1",
        api_key="unused",  # type: ignore[arg-type]
        max_retries=0,
    )
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
        embeddings.embed_documents(TEXTS)


def test_a_header_or_the_models_name_chooses_the_policy(client: openai.OpenAI, subspace: vecveil.Protector) -> None:
    assert rows(client.embeddings.create(model="drug", input="a")).shape == (1, DIMENSION)
    named = client.embeddings.create(model="reduced", input="a")
    assert rows(named).shape == (1, subspace.released_dimension) == (1, 12)
    by_header = client.embeddings.create(model="drug", input="a", extra_headers={"X-Vecveil-Policy": "reduced"})
    assert rows(by_header).shape == (1, 12)


@pytest.mark.parametrize(
    ("name", "values"), [("X-Vecveil-Input", ("document", "query")), ("X-Vecveil-Policy", ("drug", "reduced"))]
)
def test_a_header_that_chooses_is_given_once(url: str, name: str, values: tuple[str, str]) -> None:
    """A gateway that forces a side or policy may read the first, and this server would the last."""
    sent = {"model": "reduced", "input": "a"}
    for headers in ([(name, value) for value in values], [(name, values[0])] * 2):
        answer = httpx.post(f"{url}/v1/embeddings", json=sent, headers=headers, timeout=60)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "invalid_header"
    assert httpx.post(f"{url}/v1/embeddings", json=sent, headers=headers[:1], timeout=60).status_code == 200


def test_queries_pass_the_map_and_documents_the_noise(client: openai.OpenAI, subspace: vecveil.Protector) -> None:
    expected = subspace.protect(clean_vectors(TEXTS), noise=False)
    headers = {"X-Vecveil-Input": "query"}
    for given in (
        {"model": "reduced:query"},
        {"model": "reduced", "extra_headers": headers},
        {"model": "reduced", "extra_body": {"input_type": "query"}},
    ):
        found = rows(client.embeddings.create(input=TEXTS, **given))  # type: ignore[call-overload]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    document = rows(client.embeddings.create(model="reduced:document", input=TEXTS))
    assert (np.abs(document - expected) > 1e-6).any(axis=1).all()


def test_keyed_noise_repeats_and_fresh_noise_does_not(client: openai.OpenAI) -> None:
    def twice(model: str) -> bool:
        first, second = (rows(client.embeddings.create(model=model, input=TEXTS)) for _ in "ab")
        return bool((first == second).all())

    assert twice("drug")
    assert not twice("stronger")
    alone = rows(client.embeddings.create(model="drug", input=TEXTS[1]))
    together = rows(client.embeddings.create(model="drug", input=[*TEXTS, "c"]))
    np.testing.assert_array_equal(alone[0], together[1])


def test_every_answer_has_an_id_of_ours(url: str) -> None:
    sent = {"X-Request-ID": "zyxcanary"}
    found = {httpx.get(f"{url}/{path}", headers=sent, timeout=60).headers["x-request-id"] for path in ("health", "no")}
    assert len(found) == 2
    assert all(one.startswith("req-") for one in found)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/embeddings", 405),
        ("POST", "/v1/chat/completions", 404),
        ("GET", "/docs", 404),
        ("GET", "/v1/zyxcanary?q=zyxcanary", 404),
    ],
)
def test_other_paths_are_errors_in_openais_shape(url: str, method: str, path: str, status: int) -> None:
    answer = httpx.request(method, url + path, timeout=60)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert "zyxcanary" not in answer.text


def test_the_ledgers_cap_is_an_error_that_clients_do_not_repeat(laplace: vecveil.Protector, tmp_path: Path) -> None:
    ledger = vecveil.Ledger(tmp_path / "releases.ledger", cap=2)
    service = local(("drug", ReleasePolicy(laplace, ledger=ledger)))
    with served(service) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="x") as client:
        for _ in range(2):
            client.embeddings.create(model="any", input="a")
        with pytest.raises(openai.PermissionDeniedError) as caught:
            client.embeddings.create(model="any", input=["b", "a"])
        assert caught.value.code == "release_cap_reached"
        metrics = httpx.get(f"{url}/metrics", timeout=60).text
    assert ledger.total == 2  # of a batch that is refused nothing is counted
    assert 'vecveil_errors_total{code="release_cap_reached"} 1.0' in metrics


def test_clients_name_items_only_where_they_may(laplace: vecveil.Protector, keys: vecveil.KeyFile) -> None:
    service = local(("drug", ReleasePolicy(laplace, key=keys)), client_ids=True)
    with served(service) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="x") as client:

        def ask(*ids: str) -> np.ndarray:
            body = {"vecveil_ids": list(ids)} if ids else {}
            return rows(client.embeddings.create(model="any", input="a", extra_body=body))

        np.testing.assert_array_equal(ask("one"), ask("one"))
        assert (ask("one") != ask("two")).any()


def test_a_method_that_rewrites_texts_sends_no_term_upstream() -> None:
    protector = fake_protector("redact")
    with Misbehaving(lambda _, body, writer: respond(writer, answer_to(body))).running() as up:
        upstream = HttpUpstream(up.url, "m", UpstreamSettings())
        service = Service([ServedPolicy("drug", ReleasePolicy(protector), upstream)])
        with served(service) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="x") as client:
            found = rows(client.embeddings.create(model="any", input=TEXTS))
        np.testing.assert_allclose(found, clean_vectors(protector.rewrite(TEXTS)), rtol=1e-6)
        assert b"patient" in up.bodies[-1]
        assert not any(b"alphamab" in body for body in up.bodies)


def test_a_key_is_asked_for_where_keys_are_set(laplace: vecveil.Protector, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("a-key-of-a-client\n")
    path.chmod(0o600)
    service = local(("drug", ReleasePolicy(laplace)))
    with served(service, keys=ApiKeys(str(path))) as url:

        def status(key: str | None, path: str = "/v1/models") -> int:
            headers = {} if key is None else {"Authorization": f"Bearer {key}"}
            return httpx.get(url + path, headers=headers, timeout=60).status_code

        assert status("a-key-of-a-client") == 200
        assert status("another-key-of-a-client") == status(None) == status(None, "/metrics") == 401
        assert status(None, "/nothing") == 401  # what is there is not told
        assert status(None, "/health") == status(None, "/ready") == 200
        with openai.OpenAI(base_url=f"{url}/v1", api_key="wrong") as client, pytest.raises(openai.AuthenticationError):
            client.embeddings.create(model="any", input="a")


@contextlib.contextmanager
def limited(laplace: vecveil.Protector, **limits: Any) -> Iterator[str]:
    with served(local(("drug", ReleasePolicy(laplace)), limits=Limits(**limits))) as url:
        yield url


def test_large_bodies_are_refused_while_they_arrive(laplace: vecveil.Protector) -> None:
    with limited(laplace, body_bytes=2000, inputs=3) as url:

        def post(content: Any, kind: str = "application/json", **more: str) -> httpx.Response:
            target = f"{url}/v1/embeddings"
            return httpx.post(target, content=content, headers={"Content-Type": kind, **more}, timeout=60)

        small = json.dumps({"model": "m", "input": "a"}).encode()
        assert post(small).status_code == 200
        assert post(small, "text/plain").status_code == 415
        assert post(b" " * 2001).status_code == 413
        # Without a length the server learns of the size as it comes.
        assert post(iter([small, *[b" " * 500] * 5])).status_code == 413
        assert post(iter([small[:5], small[5:]])).status_code == 200
        answer = post(json.dumps({"model": "m", "input": ["a"] * 4}).encode())
        assert answer.json()["error"]["code"] == "too_many_inputs"
        assert post(gzip.compress(small)).json()["error"]["code"] == "invalid_json"
        for coding in ("gzip", "br", "identity, GZIP"):
            answer = post(gzip.compress(small), **{"Content-Encoding": coding})
            assert (answer.status_code, answer.json()["error"]["code"]) == (415, "compressed_body")
        assert post(small, **{"Content-Encoding": "identity"}).status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for(laplace: vecveil.Protector) -> None:
    with limited(laplace, body_seconds=0.2) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as slow:
            slow.sendall(
                b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                b"Content-Length: 100\r\n\r\n{"
            )
            assert b" 408 " in slow.recv(4096)


def answered(url: str, *pieces: bytes) -> bytes:
    """Send pieces of bytes and return all that the server sends until it closes the connection."""
    host, port = url.removeprefix("http://").split(":")
    got = b""
    with socket.create_connection((host, int(port)), timeout=60) as opened:
        with contextlib.suppress(ConnectionError):  # the server may close before everything is sent
            for piece in pieces:
                opened.sendall(piece)
        with contextlib.suppress(ConnectionError):
            while more := opened.recv(65_536):
                got += more
    return got


HEAD = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"


@pytest.mark.parametrize("name", [b"X-Long: ", b"X-Long: a\r\n" * 4000 + b"X: ", b""])
def test_a_long_head_is_refused_before_it_is_complete(url: str, name: bytes) -> None:
    fits = HEAD + b"X-Long: " + b"a" * (65_536 - len(HEAD) - 12) + b"\r\n\r\n"
    assert len(fits) == 65_536
    assert answered(url, fits).startswith(b"HTTP/1.1 200 ")
    assert answered(url, fits.replace(b"X-Long: ", b"X-Long: a")).startswith(b"HTTP/1.1 431 ")
    # No end of the head is ever sent: the refusal does not wait for one.
    refused = answered(url, HEAD + name + b"a" * (65_537 - len(HEAD) - len(name)))
    assert refused.startswith(b"HTTP/1.1 431 ")
    assert json.loads(refused.partition(b"\r\n\r\n")[2])["error"]["code"] == "headers_too_large"


def test_a_second_head_on_a_connection_is_bounded_too(url: str) -> None:
    first = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
    got = answered(url, first, b"GET /health HTTP/1.1\r\nX: " + b"a" * 200_000)
    assert got.startswith(b"HTTP/1.1 200 ")


def test_trailers_are_bounded_too(url: str) -> None:
    body = json.dumps({"model": "drug", "input": "a"}).encode()
    head = (
        b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nConnection: close\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    chunked = head + b"%x\r\n%s\r\n0\r\n" % (len(body), body)
    assert answered(url, chunked + b"X-Short: a\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    # The connection is closed without an answer; otherwise the server would wait for the trailer's end.
    assert answered(url, chunked, b"X-Long: " + b"a" * 200_000) == b""


class Slow(FakeEncoder):
    """Encodes when it is told to, and remembers what."""

    def __init__(self) -> None:
        self.go, self.waiting = threading.Event(), threading.Event()
        self.seen: list[str] = []

    def encode(self, texts: Any) -> np.ndarray:
        if any("slow" in text for text in texts):
            self.waiting.set()
            self.go.wait(60)
        self.seen += texts
        return super().encode(texts)


def test_more_requests_at_once_than_allowed_are_told_to_wait(laplace: vecveil.Protector) -> None:
    encoder = Slow()
    policy = ServedPolicy("drug", ReleasePolicy(laplace), LocalUpstream(encoder))
    with served(Service([policy], limits=Limits(concurrent=1))) as url:
        target = f"{url}/v1/embeddings"
        body = {"model": "m", "input": "slow"}
        statuses: list[int] = []
        thread = threading.Thread(target=lambda: statuses.append(httpx.post(target, json=body, timeout=60).status_code))
        thread.start()
        assert encoder.waiting.wait(60)
        refused = httpx.post(target, json={"model": "m", "input": "b"}, timeout=60)
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["code"] == "too_many_requests"
        for path in ("health", "ready"):
            assert httpx.get(f"{url}/{path}", timeout=60).status_code == 200  # always answered
        encoder.go.set()
        thread.join(60)
        assert statuses == [200]


def test_a_client_that_goes_away_takes_its_work_with_it(laplace: vecveil.Protector) -> None:
    encoder = Slow()
    policy = ServedPolicy("drug", ReleasePolicy(laplace), LocalUpstream(encoder))
    with served(Service([policy])) as url:
        target = f"{url}/v1/embeddings"
        blocker = threading.Thread(
            target=httpx.post, args=(target,), kwargs={"json": {"model": "m", "input": "slow"}, "timeout": 60}
        )
        blocker.start()
        assert encoder.waiting.wait(60)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(target, json={"model": "m", "input": "given up"}, timeout=httpx.Timeout(60, read=0.5))
        deadline = time.monotonic() + 60
        while 'errors_total{code="client_gone"} 1.0' not in httpx.get(f"{url}/metrics", timeout=60).text:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        encoder.go.set()
        blocker.join(60)
        assert httpx.post(target, json={"model": "m", "input": "next"}, timeout=60).status_code == 200
    assert encoder.seen[-2:] == ["slow", "next"]


def test_further_routes_stand_beside(laplace: vecveil.Protector) -> None:
    def page(request: Request) -> Response:
        if request.url.path == "/broken":
            raise ValueError("zyxcanary")
        return PlainTextResponse("here")

    router = Router([Route("/", page), Route("/broken", page)])
    with served(local(("drug", ReleasePolicy(laplace))), routers=[router]) as url:
        assert httpx.get(url, timeout=60).text == "here"
        answer = httpx.get(f"{url}/broken", timeout=60)
        assert answer.status_code == 500
        assert answer.json()["error"]["code"] == "internal_error"
        assert "zyxcanary" not in answer.text
