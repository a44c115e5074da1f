"""Kept connections: which are used again, and what answers on them is asked who it is."""

from __future__ import annotations

import asyncio
import json

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
from vecveil.serving.http_upstream import HttpUpstream
from vecveil.serving.service import ServedPolicy


def well(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
    respond(writer, answer_to(body))


@pytest.mark.parametrize(("seconds", "connections"), [(29.0, 1), (31.0, 2)])
def test_a_connection_is_not_used_after_half_a_minute(
    seconds: float, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies between may have forgotten it without telling; a request on it would wait for its timeout."""
    writers = set()
    now = 0.0

    def answer(up: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
        writers.add(writer.get_extra_info("peername"))
        respond(writer, answer_to(body))

    async def ask(url: str) -> None:
        nonlocal now
        upstream = HttpUpstream(url, "up", UpstreamSettings(timeout=5.0, retries=0))
        for _ in range(2):
            await upstream.embed(["a"], model="m", dimension=None, headers={})
            now += seconds
        await upstream.aclose()

    monkeypatch.setattr("vecveil.serving.connections.monotonic", lambda: now)
    with Misbehaving(answer).running() as up:
        asyncio.run(ask(up.url))
    assert len(writers) == connections


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

            def posted() -> httpx.Response:
                body = {"model": "m", "input": "a"}
                return httpx.post(f"{url}/v1/embeddings", json=body, timeout=30)

            assert posted().status_code == 200
            up.answer = replaced
            answer = posted()
    if same:
        assert answer.status_code == 200
    else:
        assert answer.json()["error"]["code"] == "another_encoder"
    assert tries == 3  # lost, answered, asked for the sentences
