"""Kept connections: which are used again, and what answers on them is asked who it is."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time

import httpx
import pytest

from harness.serving import (
    Misbehaving,
    answer_to,
    clean_vectors,
    fake_protector,
    respond,
    served,
)
from vecveil.release_policy import ReleasePolicy
from vecveil.serving import Service, UpstreamSettings
from vecveil.serving.connection_count import ConnectionCount
from vecveil.serving.http_upstream import HttpUpstream
from vecveil.serving.service import ServedPolicy


def well(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
    respond(writer, answer_to(body))


def test_one_connection_more_than_requests_tells_that_one_was_lost() -> None:
    count = ConnectionCount()

    def made(connections: int, requests: int) -> int:
        with contextlib.ExitStack() as running:
            for _ in range(requests):
                running.enter_context(count.request())
            for _ in range(connections):
                count.created()
        return count.losses

    assert made(1, 1) == 0
    assert made(2, 3) == 0  # three at once: three connections are as they should be
    assert made(1, 1) == 1
    assert made(5, 1) == 1  # once a minute


def test_connections_are_kept() -> None:
    writers = set()

    def answer(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
        writers.add(writer.get_extra_info("peername"))
        respond(writer, answer_to(body))

    async def ask(url: str) -> int:
        upstream = HttpUpstream(url, "up", UpstreamSettings(timeout=5.0, retries=0))
        for _ in range(5):
            await upstream.embed(["a"], model="m", dimension=None, headers={})
        await upstream.aclose()
        return upstream.losses

    with Misbehaving(answer).running() as up:
        assert asyncio.run(ask(up.url)) == 0
    assert len(writers) == 1


def posted(url: str) -> httpx.Response:
    body = {"model": "m", "input": "a"}
    return httpx.post(f"{url}/v1/embeddings", json=body, timeout=30)


def check(answer: httpx.Response, *, same: bool) -> None:
    """Of the same encoder the answer is let out, of another one it is not."""
    if same:
        assert answer.status_code == 200
    else:
        assert answer.json()["error"]["code"] == "another_encoder"


@pytest.mark.parametrize("same", [True, False])
def test_what_was_replaced_while_nobody_asked_is_checked(same: bool) -> None:
    """The connection ended silently; what answers on the next one may be another encoder."""

    def last(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
        respond(writer, answer_to(body))
        asyncio.get_running_loop().call_later(0.2, writer.close)

    def another(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
        X = clean_vectors(json.loads(body)["input"])
        respond(writer, answer_to(body, X if same else X[:, ::-1] ** 2))

    with Misbehaving(last).running() as up:
        upstream = HttpUpstream(up.url, "up", UpstreamSettings(timeout=5.0, retries=0))
        service = Service([ServedPolicy("drug", ReleasePolicy(fake_protector()), upstream)])
        with served(service) as url:
            assert posted(url).status_code == 200
            time.sleep(1.0)
            up.answer = another
            answer = posted(url)
    check(answer, same=same)


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
        upstream = HttpUpstream(up.url, "up", UpstreamSettings(timeout=5.0, retries=1))
        service = Service([ServedPolicy("drug", ReleasePolicy(fake_protector()), upstream)])
        with served(service) as url:
            assert posted(url).status_code == 200
            up.answer = replaced
            answer = posted(url)
    check(answer, same=same)
    assert tries == 3  # lost, answered, asked for the sentences
