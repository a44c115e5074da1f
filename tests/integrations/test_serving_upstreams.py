"""Upstreams that misbehave: each is a clear error in OpenAI's shape and a count, and nothing clean gets out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.serving import Misbehaving, answer_to, clean_vectors, fake_protector, respond, served
from vecveil.errors import EncoderError
from vecveil.gateway.server import Service, UpstreamSettings
from vecveil.gateway.server.errors import ApiError
from vecveil.gateway.server.requests import ApiClient, parse_request
from vecveil.gateway.server.service import ServedPolicy
from vecveil.gateway.server.upstreams import HttpUpstream
from vecveil.privacy.protector.policy import ReleasePolicy
from vecveil.texts.encoders.text_encoder import PROBE_SENTENCES

CANARY = "zyxcanary takes alphamab"
SETTINGS = UpstreamSettings(timeout=60.0, retries=2, max_response_bytes=200_000)


@pytest.fixture(scope="module")
def protector() -> vecveil.Protector:
    return fake_protector()


@pytest.fixture(scope="module")
def policy(protector: vecveil.Protector, key_file: Path) -> ReleasePolicy:
    return ReleasePolicy(protector, key=vecveil.KeyFile.from_file(key_file))


def well(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
    respond(writer, answer_to(body))


def is_probe(body: bytes) -> bool:
    return json.loads(body)["input"][0] == PROBE_SENTENCES[0]


def but(wrong: Callable[..., Any]) -> Callable[..., Any]:
    """Answer the probe well, so that the server starts, and everything else wrongly."""
    return lambda up, body, writer: (well if is_probe(body) else wrong)(up, body, writer)


def sent(status: str = "200 OK", headers: str = "", **changes: Any) -> Callable[..., None]:
    """Answer with whatever ``changes`` make of the right answer."""

    def answer(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
        content: Any = answer_to(body)
        if "raw" in changes:
            content = changes["raw"]
        if "data" in changes:
            content = {**content, "data": changes["data"](content["data"], body)}
        respond(writer, content, status=status, headers=headers)

    return answer


def vectors(make: Callable[[np.ndarray], Any]) -> Callable[..., None]:
    """Answer with other vectors than the right ones."""

    def answer(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
        X = make(clean_vectors(json.loads(body)["input"]))
        respond(writer, answer_to(body, X))

    return answer


def set_nan(X: np.ndarray) -> np.ndarray:
    X = X.copy()
    X[-1, 3] = np.nan
    return X


async def hang(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
    await writer.wait_closed()  # at the end of the test


async def drip(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
    """Send a byte now and then, so that no read takes long."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while not writer.is_closing():
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.1)


def close_in_the_middle(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
    content = json.dumps(answer_to(body)).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(content)}\r\n\r\n".encode()
    writer.write(head + content[: len(content) // 2])
    writer.close()


def close(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.close()


def endless(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(8):
        writer.write(b"%x\r\n" % 2**16 + b" " * 2**16 + b"\r\n")


def no_http(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"what do you mean?\r\n\r\n")
    writer.close()


ECHO = json.dumps({"error": {"message": CANARY, "code": CANARY}}).encode()
LONG = json.dumps({"error": {"message": CANARY, "code": "context_length_exceeded"}}).encode()

BAD: dict[str, tuple[Callable[..., Any], int, str]] = {
    "wrong dimension": (vectors(lambda X: X[:, :8]), 502, "upstream_invalid"),
    "one row shorter": (
        sent(data=lambda data, _: [data[0], {**data[1], "embedding": "AAAAAA=="}]),
        502,
        "upstream_invalid",
    ),
    "NaN": (vectors(set_nan), 502, "upstream_invalid"),
    "zeros": (vectors(lambda X: X * np.array([[1], [0]], np.float32)), 502, "upstream_invalid"),
    "short": (vectors(lambda X: X / 2), 502, "another_encoder"),
    "infinity": (vectors(lambda X: X * np.float32(np.inf)), 502, "upstream_invalid"),
    "fewer": (sent(data=lambda data, _: data[:-1]), 502, "upstream_invalid"),
    "more": (sent(data=lambda data, _: [*data, {**data[0], "index": 2}]), 502, "upstream_invalid"),
    "none": (sent(data=lambda data, _: []), 502, "upstream_invalid"),
    "the same index twice": (sent(data=lambda data, _: [{**one, "index": 0} for one in data]), 502, "upstream_invalid"),
    "not base64": (sent(data=lambda data, _: [{**one, "embedding": "%%%"} for one in data]), 502, "upstream_invalid"),
    "words": (sent(data=lambda data, _: [{**one, "embedding": ["a"]} for one in data]), 502, "upstream_invalid"),
    "HTML": (sent(raw=f"<html>{CANARY}</html>".encode()), 502, "upstream_invalid"),
    "empty": (sent(raw=b""), 502, "upstream_invalid"),
    "a list": (sent(raw=b"[1, 2]"), 502, "upstream_invalid"),
    "deep": (sent(raw=b"[" * 50_000), 502, "upstream_invalid"),
    "an error as 200": (sent(raw=ECHO), 502, "upstream_invalid"),
    "nothing": (hang, 504, "upstream_timeout"),
    "drop by drop": (drip, 504, "upstream_timeout"),
    "closes in the middle": (close_in_the_middle, 502, "upstream_unreachable"),
    "closes": (close, 502, "upstream_unreachable"),
    "no HTTP": (no_http, 502, "upstream_unreachable"),
    "huge": (endless, 502, "upstream_invalid"),
    "compressed": (sent(headers="Content-Encoding: gzip\r\n"), 502, "upstream_invalid"),
    "redirect": (sent("302 Found", "Location: http://127.0.0.1:9/steal\r\n"), 502, "upstream_failed"),
    "500": (sent("500 Oops", raw=ECHO), 502, "upstream_failed"),
    "429": (sent("429 Slow", "Retry-After: 17\r\n", raw=ECHO), 429, "upstream_rate_limited"),
    "401": (sent("401 Who", raw=ECHO), 401, "upstream_authentication"),
    "404": (sent("404 No", raw=ECHO), 404, "upstream_refused"),
    "too long": (sent("400 Bad", raw=LONG), 400, "upstream_refused"),
}


def posted(url: str, **given: Any) -> httpx.Response:
    body = {"model": "m", "input": [CANARY, "b"], **given}
    return httpx.post(f"{url}/v1/embeddings", json=body, timeout=60)


class Running:
    """A server and its upstream, whose answer can be changed."""

    def __init__(self, up: Misbehaving, url: str) -> None:
        self.up, self.url = up, url

    def count(self, code: str) -> float:
        text = httpx.get(f"{self.url}/metrics", timeout=60).text
        found = re.search(rf'vecveil_errors_total{{code="{code}"}} ([0-9.]+)', text)
        return float(found[1]) if found else 0.0


@contextlib.contextmanager
def run_with(policy: ReleasePolicy, settings: UpstreamSettings) -> Iterator[Running]:
    with Misbehaving(well).running() as up:
        service = Service([ServedPolicy("drug", policy, HttpUpstream(up.url, "up", settings))])
        with served(service) as url:
            yield Running(up, url)


@pytest.fixture(scope="module")
def running(policy: ReleasePolicy) -> Iterator[Running]:
    with run_with(policy, SETTINGS) as one:
        yield one


@pytest.fixture(scope="module")
def impatient(policy: ReleasePolicy) -> Iterator[Running]:
    """A server that waits for two seconds only, which a good upstream may miss on a slow machine."""
    with run_with(policy, replace(SETTINGS, timeout=2.0)) as one:
        yield one


@pytest.fixture(autouse=True)
def _behaves_again(running: Running) -> Iterator[None]:
    yield
    running.up.answer = well


def test_control_a_good_upstream(running: Running, policy: ReleasePolicy) -> None:
    answer = posted(running.url).json()
    texts = [CANARY, "b"]
    expected = policy.documents(clean_vectors(texts), texts=texts)
    found = np.array([row["embedding"] for row in answer["data"]], dtype=np.float32)
    np.testing.assert_array_equal(found, expected)
    assert answer["usage"]["total_tokens"] == 14  # as the upstream counted
    body = json.loads(running.up.bodies[-1])
    assert body == {"model": "up", "input": texts, "encoding_format": "base64"}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_upstream_is_a_clear_error(running: Running, impatient: Running, name: str) -> None:
    wrong, status, code = BAD[name]
    running = impatient if code == "upstream_timeout" else running
    before = running.count(code)
    running.up.answer = but(wrong)
    answer = posted(running.url)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert "pstream" in error["message"]
    assert CANARY not in answer.text
    assert "127.0.0.1" not in answer.text
    assert running.count(code) == before + 1
    if name == "429":
        assert answer.headers["retry-after"] == "17"
    if name == "too long":
        assert "context_length_exceeded" in error["message"]


def test_indices_in_another_order_are_put_right(running: Running, policy: ReleasePolicy) -> None:
    running.up.answer = but(sent(data=lambda data, _: data[::-1]))
    texts = [CANARY, "b"]
    expected = policy.documents(clean_vectors(texts), texts=texts)
    rows = [row["embedding"] for row in posted(running.url).json()["data"]]
    np.testing.assert_array_equal(np.array(rows, dtype=np.float32), expected)


@pytest.mark.parametrize(
    "failing", [sent("500 Oops", raw=b"{}"), sent("429 Slow", "Retry-After: 0\r\n", raw=b"{}"), close]
)
def test_what_passes_is_tried_again(running: Running, failing: Callable[..., Any]) -> None:
    asked = 0

    def twice(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> Any:
        nonlocal asked
        asked += 1
        return (failing if asked <= 2 else well)(up, body, writer)

    running.up.answer = but(twice)
    assert posted(running.url).status_code == 200
    assert asked == 3


def test_a_refusal_is_not_tried_again(running: Running) -> None:
    before = len(running.up.bodies)
    running.up.answer = but(sent("400 Bad", raw=ECHO))
    assert posted(running.url).status_code == 400
    assert len(running.up.bodies) == before + 1


def test_an_upstream_that_was_away_is_checked_again(running: Running) -> None:
    """What comes back may be another encoder: nothing of it is let out."""
    assert posted(running.url).status_code == 200
    running.up.answer = close
    assert posted(running.url).json()["error"]["code"] == "upstream_unreachable"
    running.up.answer = vectors(lambda X: X[:, ::-1] ** 2)
    for _ in range(2):
        answer = posted(running.url)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "another_encoder")
    with pytest.MonkeyPatch.context() as patch:  # the refusal is remembered for half a minute
        later = SimpleNamespace(monotonic=lambda: time.monotonic() + 60)  # for that module alone
        patch.setattr("vecveil.gateway.server.upstreams.time", later)
        running.up.answer = well
        assert posted(running.url).status_code == 200


def started(policy: ReleasePolicy, url: str, model: str | None = "up", **given: Any) -> Service:
    upstream = HttpUpstream(url, model, UpstreamSettings(timeout=60.0, retries=0), **given)
    service = Service([ServedPolicy("drug", policy, upstream)])

    async def start() -> None:
        try:
            await service.start()
        finally:
            await service.aclose()

    asyncio.run(start())
    return service


@pytest.mark.parametrize("make", [lambda X: X[:, :8], lambda X: X[:, ::-1] ** 2])
def test_another_encoder_is_refused_at_the_start(policy: ReleasePolicy, make: Callable[..., Any]) -> None:
    with Misbehaving(vectors(make)).running() as up, raises("E-INCOMPATIBLE", "upstream"):
        started(policy, up.url)


@pytest.mark.parametrize("wrong", [sent(raw=b"<html>"), sent("404 No", raw=b"<html>")])
def test_what_is_no_embeddings_server_is_refused_at_the_start(policy: ReleasePolicy, wrong: Callable[..., Any]) -> None:
    with Misbehaving(wrong).running() as up, pytest.raises(EncoderError):
        started(policy, up.url)


@pytest.mark.parametrize("wrong", [close, sent("503 Later", raw=b""), sent("401 Who", raw=b"")])
def test_what_is_not_there_yet_is_checked_later(policy: ReleasePolicy, wrong: Callable[..., Any]) -> None:
    with Misbehaving(wrong).running() as up:
        assert started(policy, up.url).checked == 0


def test_a_server_without_base64_is_asked_for_numbers(policy: ReleasePolicy) -> None:
    def numbers(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
        known = "encoding_format" not in json.loads(body)
        (well if known else sent("422 What", raw=b"{}"))(up, body, writer)

    with Misbehaving(numbers).running() as up:
        upstream = HttpUpstream(up.url, "up", SETTINGS)
        with served(Service([ServedPolicy("drug", policy, upstream)])) as url:
            assert posted(url).status_code == 200


def test_a_models_name_is_passed_on_and_each_model_checked(policy: ReleasePolicy) -> None:
    def of_model(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
        right = json.loads(body)["model"] == "good"
        (well if right else vectors(lambda X: X[:, ::-1] ** 2))(up, body, writer)

    with Misbehaving(of_model).running() as up:
        service = Service([ServedPolicy("drug", policy, HttpUpstream(up.url, None, SETTINGS))])
        with served(service) as url:
            assert posted(url, model="good").status_code == 200
            assert posted(url, model="good:query").status_code == 200
            assert posted(url, model="bad").json()["error"]["code"] == "another_encoder"
        assert {json.loads(body)["model"] for body in up.bodies} == {"good", "bad"}


@pytest.mark.parametrize(
    ("key", "forward", "expected"),
    [(None, True, "Bearer the-clients"), ("own", False, "Bearer own"), (None, False, None)],
)
def test_which_key_the_upstream_gets(
    policy: ReleasePolicy, key: str | None, forward: bool, expected: str | None
) -> None:
    with Misbehaving(well).running() as up:
        upstream = HttpUpstream(up.url, "up", SETTINGS, key=key, forward_key=forward)
        with served(Service([ServedPolicy("drug", policy, upstream)])) as url:
            headers = {"Authorization": "Bearer the-clients", "Cookie": "private", "X-Other": "a"}
            body = {"model": "m", "input": "a", "user": "private"}
            answer = httpx.post(f"{url}/v1/embeddings", json=body, headers=headers, timeout=60)
            assert answer.status_code == 200
        head = up.heads[-1].lower()
        found = re.search(r"authorization: (.*)\r", up.heads[-1], re.IGNORECASE)
        assert (found[1] if found else None) == expected
        assert "private" not in head + up.bodies[-1].decode()
        assert "x-other" not in head


def test_a_protector_without_a_probe_has_its_dimension_checked(
    protector: vecveil.Protector, caplog: pytest.LogCaptureFixture
) -> None:
    from dataclasses import replace

    from vecveil.privacy.protector import EncoderInfo

    unknown = ReleasePolicy(replace(protector, encoder_info=EncoderInfo()))
    with Misbehaving(well).running() as up:
        with caplog.at_level("WARNING", logger="vecveil.gateway.server"):
            started(unknown, up.url)
        assert "encoder verified by its dimension only" in caplog.messages
    with Misbehaving(vectors(lambda X: X[:, :8])).running() as up, raises("E-INCOMPATIBLE", "upstream"):
        started(unknown, up.url)


def test_clean_queries_are_told_at_the_start(protector: vecveil.Protector, caplog: pytest.LogCaptureFixture) -> None:
    with Misbehaving(well).running() as up, caplog.at_level("WARNING", logger="vecveil.gateway.server"):
        started(ReleasePolicy(protector, query_noise=0), up.url)
    said = [getattr(record, "fields", {}).get("message", "") for record in caplog.records]
    assert any("the encoder's own, unprotected" in text for text in said)


def test_clients_that_wait_for_a_check_wait_for_one(policy: ReleasePolicy) -> None:
    """With an upstream that hangs everybody is told after one timeout, not after each other's."""
    with Misbehaving(hang).running() as up:
        upstream = HttpUpstream(up.url, "up", UpstreamSettings(timeout=1.0, retries=0))
        service = Service([ServedPolicy("drug", policy, upstream)])
        asked = parse_request(b'{"model": "m", "input": "a"}', {}, max_inputs=1)

        async def ask(headers: dict[str, str]) -> Any:
            try:
                return await service.answer(asked, headers, ApiClient())
            except ApiError as error:
                return error.code

        async def main() -> list[Any]:
            answers = (ask({"authorization": f"Bearer {i % 2}"}) for i in range(20))
            try:
                return list(await asyncio.gather(*answers))
            finally:
                await service.aclose()

        assert asyncio.run(main()) == ["upstream_timeout"] * 20
        assert len(up.bodies) == 2  # one question for each key
        assert all(map(is_probe, up.bodies))
