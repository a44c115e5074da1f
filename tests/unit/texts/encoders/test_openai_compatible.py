"""Encoders behind a URL, over a real socket: what they send, and what a server can get wrong."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from harness.errors import raises
from harness.http_encoder import Answer, answer_with, embedding_server, hashed_vectors
from harness.serving import Misbehaving
from vecveil.cli.options import Assignment
from vecveil.errors import EncoderError
from vecveil.gateway.server import UpstreamSettings
from vecveil.gateway.server.errors import upstream_refusal
from vecveil.gateway.server.upstreams import Encoded, HttpUpstream
from vecveil.texts.encoders import load_encoder, openai_compatible
from vecveil.texts.encoders.openai_compatible import parse_embeddings

CANARY = "zebra-7731"
TEXTS = [f"text {i}" for i in range(7)]
JSON = {"Content-Type": "application/json"}


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    asked: list[float] = []
    # the module's own name: threads that other tests left behind sleep too
    monkeypatch.setattr(openai_compatible, "time", SimpleNamespace(sleep=asked.append, time=time.time))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return asked


def test_vectors_come_in_batches_and_in_order() -> None:
    with embedding_server() as (url, seen):
        encoder = load_encoder(f"{url}#small", batch_size=3, cache=None)
        found = encoder.encode(TEXTS)
    assert np.array_equal(found, hashed_vectors(TEXTS))
    assert [len(request["input"]) for request in seen] == [3, 3, 1]
    assert {request["model"] for request in seen} == {"small"}
    assert (encoder.name, encoder.precision, encoder.dimension) == (f"{url}#small", "api", 16)
    assert "authorization" not in seen[0]["headers"]


def test_permuted_indices_and_lists_of_numbers() -> None:
    def answer(request: dict, number: int) -> Answer:
        status, headers, body = answer_with(hashed_vectors(request["input"]), {"model": "m"})
        record = json.loads(body)
        record["data"].reverse()
        return status, headers, json.dumps(record).encode()

    with embedding_server(answer) as (url, _):
        found = load_encoder(f"{url}#small", cache=None).encode(TEXTS)
    assert np.array_equal(found, hashed_vectors(TEXTS))


def test_the_key_is_sent_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f"{CANARY}\n")
    with embedding_server() as (url, seen):
        encoder = load_encoder(f"{url}#small", dimensions=16, cache=None)
        encoder.encode(["a"])
    assert seen[0]["headers"]["authorization"] == f"Bearer {CANARY}"
    assert seen[0]["dimensions"] == 16
    assert CANARY not in repr(encoder) + repr(encoder._backend)


@pytest.mark.parametrize("key", ["cl\u00e9-zebra", "zebra\nX-Admin: 1", "\udcffzebra"])
def test_a_key_that_no_header_holds_is_refused_before_a_request(key: str) -> None:
    with raises("E-KEY-FILE", "api_key") as caught:
        load_encoder("http://127.0.0.1:9/v1#small", api_key=key)
    assert "zebra" not in str(caught.value)
    with raises("E-KEY-FILE", "upstream.key"):
        HttpUpstream("http://127.0.0.1:9/v1", "small", UpstreamSettings(), key=key)


def test_a_server_that_is_busy_is_asked_again(waits: list[float]) -> None:
    def answer(request: dict, number: int) -> Answer:
        if number < 2:
            return (429, {"Retry-After": "7"}, b"") if number else (503, {}, CANARY.encode())
        return answer_with(hashed_vectors(request["input"]), request)

    with embedding_server(answer) as (url, seen):
        load_encoder(f"{url}#small", cache=None).encode(["a"])
    assert len(seen) == 3
    assert waits == [0.5, 7.0]


def test_a_server_may_name_the_date_to_wait_for(waits: list[float]) -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    late = format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)
    headers = [soon, late, "Mon, 01 Jan 2001 00:00:00 GMT", "tomorrow"]

    def answer(request: dict, number: int) -> Answer:
        if number < 4:
            return 429, {"Retry-After": headers[number]}, b""
        return answer_with(hashed_vectors(request["input"]), request)

    with embedding_server(answer) as (url, _):
        load_encoder(f"{url}#small", cache=None).encode(["a"])
    assert 0.5 < waits[0] <= 20.0
    assert waits[1:] == [30.0, 0.0, 4.0]
    assert upstream_refusal(429, b"", late).retry_after == 3600.0
    assert upstream_refusal(429, b"", "tomorrow").retry_after == 1.0


def test_an_empty_text_among_others_does_not_stop_the_run() -> None:
    def answer(request: dict, number: int) -> Answer:
        if "" in request["input"]:  # as OpenAI answers
            return 400, {}, b"{}"
        return answer_with(hashed_vectors(request["input"]), request)

    with embedding_server(answer) as (url, _):
        found = load_encoder(f"{url}#small", cache=None).encode(["a", "", "b"])
    assert np.array_equal(found, hashed_vectors(["a", " ", "b"]))


async def embedded(url: str, texts: list[str]) -> Encoded:
    upstream = HttpUpstream(url, "small", UpstreamSettings(batch_size=10))
    try:
        return await upstream.embed(texts, model="small", dimension=None, headers={})
    finally:
        await upstream.aclose()


def test_a_service_that_takes_ten_texts_a_request() -> None:
    def answer(request: dict, number: int) -> Answer:
        if len(request["input"]) > 10:
            return 400, {}, CANARY.encode()
        return answer_with(hashed_vectors(request["input"]), request)

    texts = [f"text {i}" for i in range(25)]
    with embedding_server(answer) as (url, seen):
        with raises("E-ENCODER", "endpoint") as caught:
            load_encoder(f"{url}#small", cache=None).encode(texts)
        assert "`batch_size`" in str(caught.value)
        assert CANARY not in str(caught.value)
        name, size = Assignment().convert("batch_size=10", None, None)
        assert len(load_encoder(f"{url}#small", cache=None, **{name: size}).encode(texts)) == 25
        before = len(seen)
        found = asyncio.run(embedded(url, texts))
    assert np.array_equal(found.vectors, hashed_vectors(texts))
    assert [len(request["input"]) for request in seen[before:]] == [10, 10, 5]


def test_a_key_that_is_refused_is_not_tried_again() -> None:
    with embedding_server(lambda *_: (401, {}, CANARY.encode())) as (url, seen):
        with raises("E-ENCODER", "endpoint") as caught:
            load_encoder(f"{url}#small", cache=None).encode(["a"])
        assert len(seen) == 1
    assert CANARY not in str(caught.value)


def test_a_redirect_is_not_followed() -> None:
    with embedding_server() as (other, seen):
        moved = (307, {"Location": f"{other}/embeddings"}, b"")
        with embedding_server(lambda *_: moved) as (url, _), raises("E-ENCODER", "endpoint"):
            load_encoder(f"{url}#small", cache=None).encode(["a"])
    assert seen == []


def test_nobody_listens() -> None:
    encoder = load_encoder("http://127.0.0.1:9/v1#small", cache=None, max_retries=1)
    with raises("E-ENCODER", "endpoint"):
        encoder.encode(["a"])


def rows(*vectors: object) -> bytes:
    return json.dumps({"data": [{"embedding": v, "index": i} for i, v in enumerate(vectors)]}).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>" + CANARY.encode(),
        b"[" * 5000,
        b'{"data": null}',
        b'{"data": [1, 2]}',
        rows([1.0, 2.0]),
        rows([1.0, 2.0], [1.0]),
        rows([1.0, 2.0], [float("nan"), 1.0]),
        rows([1.0, 2.0], [1e300, 1.0]),
        rows([], []),
        rows("####", "####"),
        rows(base64.b64encode(b"12345").decode(), base64.b64encode(b"12345").decode()),
        rows([1.0, 2.0], [CANARY, 1.0]),
        rows([1.0, 2.0], [0.0, 0.0]),
        json.dumps({"data": [{"embedding": [1.0], "index": 0}] * 2}).encode(),
        json.dumps({"data": [{"embedding": [1.0], "index": i} for i in (0, 5)]}).encode(),
        json.dumps({"data": [{"embedding": [1.0], "index": i} for i in (False, True)]}).encode(),
    ],
    ids=lambda body: body[:24].decode(),
)
def test_what_is_no_answer(body: bytes) -> None:
    with embedding_server(lambda *_: (200, JSON, body)) as (url, _), pytest.raises(EncoderError) as caught:
        load_encoder(f"{url}#small", cache=None).encode(["a", "b"])
    assert CANARY not in str(caught.value)


def test_an_answer_that_is_compressed_is_not_inflated() -> None:
    """Servers are asked for plain answers, and a bomb is not opened."""

    def answer(request: dict, number: int) -> Answer:
        status, headers, body = answer_with(hashed_vectors(request["input"]), request)
        return status, {**headers, "Content-Encoding": "gzip"}, gzip.compress(body)

    with embedding_server(answer) as (url, seen), raises("E-ENCODER", "endpoint"):
        load_encoder(f"{url}#small", cache=None).encode(["a"])
    assert [request["headers"]["accept-encoding"] for request in seen] == ["identity"]


def test_an_answer_that_is_too_large_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_compatible, "LARGEST_ANSWER", 100_000)
    seen = []

    def answer(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
        seen.append(body)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")  # without an end
        writer.write(b"20000\r\n" + b" " * 2**17 + b"\r\n")

    with Misbehaving(answer).running() as up, raises("E-ENCODER", "endpoint"):
        load_encoder(f"{up.url}#small", cache=None).encode(["a"])
    assert len(seen) == 1


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "])
def test_head_and_body_that_drip_are_not_waited_for(start: bytes) -> None:
    async def drip(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while not writer.is_closing():
            writer.write(b"a")
            await writer.drain()
            await asyncio.sleep(0.05)

    with Misbehaving(drip).running() as up:
        encoder = load_encoder(f"{up.url}#small", cache=None, timeout=0.5, max_retries=0)
        with raises("E-ENCODER", "endpoint") as caught:
            encoder.encode(["a"])
    assert "TimeoutError" in str(caught.value)


def test_another_dimension_than_before() -> None:
    def answer(request: dict, number: int) -> Answer:
        return answer_with(hashed_vectors(request["input"], 16 if number == 0 else 8), request)

    with embedding_server(answer) as (url, _):
        encoder = load_encoder(f"{url}#small", batch_size=1, cache=None)
        with raises("E-ENCODER", "endpoint"):
            encoder.encode(["a", "b"])


@pytest.mark.parametrize(
    "name",
    [
        "http://#m",
        "https://host/v1",
        "https://host/v1#",
        f"https://me:{CANARY}@host/v1#m",
        f"https://host/v1?key={CANARY}#m",
        "https://host:99999/v1#m",
    ],
)
def test_what_is_no_endpoint(name: str) -> None:
    with raises("E-INPUT", "name") as caught:
        load_encoder(name)
    assert CANARY not in str(caught.value)


def test_the_cache_takes_vectors_of_one_server_alone(tmp_path: Path) -> None:
    with embedding_server() as (url, seen), embedding_server() as (other, seen_other):
        for _ in range(2):
            load_encoder(f"{url}#small", cache=tmp_path).encode(["a"])
        load_encoder(f"{other}#small", cache=tmp_path).encode(["a"])
    assert (len(seen), len(seen_other)) == (1, 1)


@pytest.mark.parametrize(
    "content",
    [
        b'{"data": [{"embedding": [0.5, 0.25',  # json's error holds the whole answer
        b'{"data": [{"embedding": [0.5, "secret"]}]}',
        b'{"data": [{"embedding": "AAAAPw=!"}]}',
        b'{"data": [{"embedding": [0.5, NaN]}]}',
        b'{"data": {"embedding": [0.5]}}',
    ],
)
def test_an_error_holds_nothing_of_the_answer(content: bytes) -> None:
    with ThreadPoolExecutor(1) as pool:  # a thread has no exceptions of earlier tests as the context
        caught = pool.submit(parse_embeddings, content, rows=1, dimension=None, owner="test").exception()
    assert isinstance(caught, EncoderError)
    assert caught.__cause__ is None
    assert caught.__context__ is None
    assert "0.5" not in str(caught)
