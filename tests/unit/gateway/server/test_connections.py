"""Upstream connections are pooled, and an upstream that may have been replaced is verified again."""

from __future__ import annotations

import asyncio
import json
import time
from types import SimpleNamespace

import httpx
import pytest

from harness.serving import Misbehaving, answer_to, clean_vectors, fake_protector, respond, served
from vecveil.gateway.server import Service, UpstreamSettings
from vecveil.gateway.server.service import ServedPolicy
from vecveil.gateway.server.upstreams import HttpUpstream
from vecveil.privacy.protector.policy import ReleasePolicy


def well(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
    respond(writer, answer_to(body))


def test_connections_are_kept_and_cookies_are_not() -> None:
    writers = set()

    def answer(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
        writers.add(writer.get_extra_info("peername"))
        respond(writer, answer_to(body), headers="Set-Cookie: client=1\r\n")

    async def ask(url: str) -> int:
        upstream = HttpUpstream(url, "up", UpstreamSettings(timeout=60.0, retries=0))
        for _ in range(5):
            await upstream.embed(["a"], model="m", dimension=None, headers={})
        await upstream.aclose()
        return upstream.losses

    with Misbehaving(answer).running() as up:
        assert asyncio.run(ask(up.url)) == 0
    assert len(writers) == 1
    assert not any("cookie" in head.lower() for head in up.heads)


def posted(url: str) -> httpx.Response:
    body = {"model": "m", "input": "a"}
    return httpx.post(f"{url}/v1/embeddings", json=body, timeout=60)


def check(answer: httpx.Response, *, same: bool) -> None:
    """Of the same encoder the answer is let out, of another one it is not."""
    if same:
        assert answer.status_code == 200
    else:
        assert answer.json()["error"]["code"] == "another_encoder"


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("after", ["a minute", "six requests"])
def test_an_upstream_is_verified_again(same: bool, after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been replaced while nobody asked, or behind a connection that is never lost."""

    def replaced(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
        X = clean_vectors(json.loads(body)["input"])
        respond(writer, answer_to(body, X if same else X[:, ::-1] ** 2 * 2))

    if after == "six requests":
        monkeypatch.setattr("vecveil.gateway.server.upstreams._VERIFIED_USES", 6)
    with Misbehaving(well).running() as up:
        upstream = HttpUpstream(up.url, "up", UpstreamSettings(timeout=60.0, retries=0))
        service = Service([ServedPolicy("drug", ReleasePolicy(fake_protector()), upstream)])
        with served(service) as url:
            for _ in range(3):
                assert posted(url).status_code == 200
            assert len(up.bodies) == 4  # the sentences once, and three texts
            up.answer = replaced
            if after == "a minute":
                later = SimpleNamespace(monotonic=lambda: time.monotonic() + 61)  # for that module alone
                monkeypatch.setattr("vecveil.gateway.server.upstreams.time", later)
            check(posted(url), same=same)
            assert "A dog sleeps" in up.bodies[4].decode()


@pytest.mark.parametrize("same", [True, False])
def test_what_answers_a_second_try_is_checked(same: bool) -> None:
    """An upstream that was replaced between two tries of one request: nothing of the new one is let out."""
    tries = 0

    def replaced(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            writer.close()
            return
        X = clean_vectors(json.loads(body)["input"])
        respond(writer, answer_to(body, X if same else X[:, ::-1] ** 2))

    with Misbehaving(well).running() as up:
        upstream = HttpUpstream(up.url, "up", UpstreamSettings(timeout=60.0, retries=1))
        service = Service([ServedPolicy("drug", ReleasePolicy(fake_protector()), upstream)])
        with served(service) as url:
            assert posted(url).status_code == 200
            up.answer = replaced
            answer = posted(url)
    check(answer, same=same)
    assert tries == 3  # lost, answered, asked for the sentences
