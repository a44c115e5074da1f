"""While the upstream is at work the noise of a request is drawn: once, for it alone, and only if there is time.

The way of an answer is rehearsed with a vector that is nobody's, which is protected and thrown away.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from harness.serving import FakeEncoder, fake_protector
from vecveil.accounting import Ledger
from vecveil.randomness import NoiseKeys, WordStream
from vecveil.release_policy import ReleasePolicy
from vecveil.serving import ahead
from vecveil.serving import service as services
from vecveil.serving.local_upstream import LocalUpstream
from vecveil.serving.requests import EmbeddingRequest, parse_request
from vecveil.serving.service import ServedPolicy, Service
from vecveil.serving.upstream import Encoded


class Slow(FakeEncoder):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        time.sleep(self.seconds)
        return super().encode(texts)


class Elsewhere:
    """An encoder that is not the server's own."""

    name, takes_models = "elsewhere", False

    def __init__(self, encoder: Any) -> None:
        self._inner = LocalUpstream(encoder)

    async def embed(self, texts: Sequence[str], **given: Any) -> Encoded:
        return await self._inner.embed(texts, **given)

    async def aclose(self) -> None:
        await self._inner.aclose()


class Watched(ReleasePolicy):
    """Keeps what was drawn ahead, and what was used."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        object.__setattr__(self, "drawn", [])
        object.__setattr__(self, "used", [])
        object.__setattr__(self, "rehearsed", [])

    def stream_ahead(self, rows: int, *, query: bool = False) -> WordStream | None:
        stream = super().stream_ahead(rows, query=query)
        self.drawn.append((rows, query, stream))  # type: ignore[attr-defined]
        return stream

    def documents(self, X: np.ndarray, rng: Any = None, **given: Any) -> np.ndarray:
        rehearsal = given["texts"] == [""]
        if rehearsal:
            assert self.drawn.pop()[2] is rng  # type: ignore[attr-defined]
        (self.rehearsed if rehearsal else self.used).append(rng)  # type: ignore[attr-defined]
        return super().documents(X, rng, **given)


def answers(
    policy: ReleasePolicy,
    seconds: float,
    *bodies: dict[str, Any],
    running: int = 1,
    upstream: Any = Elsewhere,
) -> list[np.ndarray]:
    async def ask() -> list[bytes]:
        service = Service([ServedPolicy("m", policy, upstream(Slow(seconds)))])
        service.running = running
        await service.start()
        asked = [
            parse_request(json.dumps({"model": "m", **body}).encode(), {}, max_inputs=99)
            for body in bodies
        ]
        found = await asyncio.gather(*(service.answer(one, {}) for one in asked))
        await service.aclose()
        return found

    rows = [json.loads(answer)["data"] for answer in asyncio.run(ask())]
    return [np.array([row["embedding"] for row in one]) for one in rows]


def test_each_request_has_noise_of_its_own() -> None:
    policy = Watched(fake_protector())
    body = {"input": ["one note", "another"]}
    first, second, third = answers(policy, 0.1, body, body, {"input": "one note"})
    streams = [stream for *_, stream in policy.drawn]  # type: ignore[attr-defined]
    assert sorted(rows for rows, *_ in policy.drawn) == [1, 2, 2]  # type: ignore[attr-defined]
    assert {id(one) for one in policy.used} == {id(one) for one in streams}  # type: ignore[attr-defined]
    assert len({id(one) for one in streams}) == 3
    assert not np.isclose(first, second).all(axis=1).any()
    assert not np.isclose(first[:1], third).all()


def test_one_that_waits_alone_is_rehearsed() -> None:
    policy = Watched(fake_protector())
    answers(policy, 0.05, {"input": "one note"})
    assert len(policy.rehearsed) == 1  # type: ignore[attr-defined]
    assert policy.rehearsed[0] is not policy.used[0]  # type: ignore[attr-defined]
    crowded = Watched(fake_protector())
    answers(crowded, 0.05, {"input": "one note"}, running=2)
    assert crowded.rehearsed == []  # type: ignore[attr-defined]
    assert len(crowded.used) == 1  # type: ignore[attr-defined]


def test_an_encoder_in_this_process_is_not_held_up() -> None:
    policy = Watched(fake_protector())
    answers(policy, 0.05, {"input": "one note"}, upstream=LocalUpstream)
    assert policy.rehearsed == policy.drawn == []  # type: ignore[attr-defined]
    assert policy.used == [None]  # type: ignore[attr-defined]


def test_a_rehearsal_that_fails_is_the_last_and_fails_nobody() -> None:
    class Fussy(Watched):
        def documents(self, X: np.ndarray, rng: Any = None, **given: Any) -> np.ndarray:
            released = super().documents(X, rng, **given)
            if given["texts"] == [""]:
                raise RuntimeError("of the rehearsal")
            return released

    policy = Fussy(fake_protector())

    async def ask() -> list[bytes]:
        service = Service([ServedPolicy("m", policy, Elsewhere(Slow(0.05)))])
        request = parse_request(b'{"model": "m", "input": "one note"}', {}, max_inputs=1)
        found = [await service.answer(request, {}) for _ in range(3)]
        await service.aclose()
        return found

    rows = [json.loads(answer)["data"][0]["embedding"] for answer in asyncio.run(ask())]
    assert len(policy.rehearsed) == 1  # type: ignore[attr-defined]
    assert len({tuple(row) for row in rows}) == 3


def test_a_ledger_counts_no_rehearsal(tmp_path: Any) -> None:
    with Ledger(tmp_path / "a.ledger", cap=2) as ledger:
        policy = Watched(fake_protector(), ledger=ledger)
        answers(policy, 0.05, {"input": "one note"}, {"input": "one note"})
        assert ledger.total == 2
        assert set(ledger.counts().values()) == {2}
    assert policy.rehearsed == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["gaussian", "subspace", "shuffle", "purkayastha"])
def test_other_methods_are_answered_too(method: str) -> None:
    policy = Watched(fake_protector(method))
    first, second = answers(policy, 0.05, {"input": "one note"}, {"input": "another"})
    assert np.isfinite(first).all()
    assert first.shape == second.shape


def test_the_rehearsal_comes_shortly_before_the_answer_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = ahead.Ahead(ReleasePolicy(fake_protector()))
    waits: list[float] = []

    usual_then: list[float] = []

    async def one(seconds: float) -> None:
        usual_then.append(at._usual)
        with at.working(1, "document", alone=lambda: True):
            await asyncio.sleep(seconds)

    async def many() -> None:
        loop = asyncio.get_running_loop()
        later = loop.call_later
        usual = lambda wait, *given: (waits.append(wait), later(wait, *given))[1]  # noqa: E731
        monkeypatch.setattr(loop, "call_later", usual)
        await one(0.02)
        await one(0.06)
        await one(0.01)

    asyncio.run(many())
    soonest, *others = (wait for wait in waits if wait not in (0.02, 0.06, 0.01))
    assert soonest == ahead._SOONEST  # nothing was known yet
    assert usual_then[1] >= 0.019  # the first, as long as it took
    assert others == [min(0.75 * usual, ahead._LATEST) for usual in usual_then[1:]]


def test_without_time_it_is_drawn_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_SOONEST", 60.0)
    monkeypatch.setattr(ahead, "_LATEST", 60.0)
    policy = Watched(fake_protector())
    first, second = answers(policy, 0.0, {"input": "one note"}, {"input": "one note"})
    assert policy.used == [None, None]  # type: ignore[attr-defined]
    assert not np.isclose(first, second).all()


def test_many_vectors_are_left_to_a_thread() -> None:
    policy = Watched(fake_protector())
    most = services._INLINE_VALUES // policy.protector.dimension
    texts = [f"note {i}" for i in range(90)]
    assert len(texts) < most
    answers(policy, 0.1, {"input": texts})
    assert len(policy.drawn) == 1  # type: ignore[attr-defined]
    object.__setattr__(policy, "drawn", [])
    services_limit, services._INLINE_VALUES = services._INLINE_VALUES, 100
    try:
        answers(policy, 0.1, {"input": texts})
    finally:
        services._INLINE_VALUES = services_limit
    assert policy.drawn == []  # type: ignore[attr-defined]


def test_nobody_but_the_figures_remembers_a_request() -> None:
    """Without a guard in front nobody settles the figures; what is noted is bounded, and holds no text."""

    async def ask() -> Service:
        service = Service([ServedPolicy("m", policy, Elsewhere(FakeEncoder()))])
        for i in range(400):
            body = json.dumps({"model": "m", "input": f"secret{i}"}).encode()
            await service.answer(parse_request(body, {}, max_inputs=9), {})
        await service.aclose()
        return service

    def requests() -> int:
        gc.collect()
        return sum(type(one) is EmbeddingRequest for one in gc.get_objects())

    policy = ReleasePolicy(fake_protector())
    before = requests()  # what other tests of this process left
    service = asyncio.run(ask())
    assert len(service.metrics._noted) <= 1001
    assert requests() <= before
    assert (
        'vecveil_vectors_released_total{policy="m",side="document"} 400.0'
        in service.metrics.text().decode()
    )


def test_keyed_noise_is_not_drawn_ahead(tmp_path: Any) -> None:
    keys = NoiseKeys.create(tmp_path / "noise.key", "k")
    policy = Watched(fake_protector(), key=keys)
    first, second = answers(policy, 0.05, {"input": "one note"}, {"input": "one note"})
    assert {stream for *_, stream in policy.drawn} == {None}  # type: ignore[attr-defined]
    np.testing.assert_array_equal(first, second)


def test_base64_says_what_the_numbers_say(tmp_path: Any) -> None:
    keys = NoiseKeys.create(tmp_path / "noise.key", "k")
    policy = ReleasePolicy(fake_protector(), key=keys)

    async def ask(body: dict[str, Any]) -> Any:
        service = Service([ServedPolicy("m", policy, Elsewhere(FakeEncoder()))])
        asked = parse_request(json.dumps(body).encode(), {}, max_inputs=9)
        answer = json.loads(await service.answer(asked, {}))
        await service.aclose()
        return answer

    body = {"model": 'm"\\\u00e9', "input": ["a", "b"]}
    numbers, encoded = (
        asyncio.run(ask({**body, "encoding_format": kind})) for kind in ("float", "base64")
    )
    for one, other in zip(numbers["data"], encoded["data"], strict=True):
        raw = np.frombuffer(base64.b64decode(other.pop("embedding")), "<f4")
        np.testing.assert_array_equal(np.float32(one.pop("embedding")), raw)
    assert numbers == encoded
    assert numbers["model"] == body["model"]
