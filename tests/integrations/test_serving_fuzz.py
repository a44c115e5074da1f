"""Bodies that nobody would send: every answer is protected, or an error in OpenAI's shape."""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import vecveil
from harness.serving import FakeEncoder, clean_vectors, fake_protector, served
from vecveil.gateway.server import Limits, Service
from vecveil.gateway.server.service import ServedPolicy
from vecveil.gateway.server.upstreams import LocalUpstream
from vecveil.privacy.protector.policy import ReleasePolicy

BODIES = 400
TEXTS = ["a", "zyxcanary", "two words", "ünïcödé", "\x00", "💊" * 50, " ", "x" * 3000]
ODD: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    10**400,
    "",
    "float",
    "base64",
    "query",
    [],
    [[]],
    {},
    [None],
    [1, 2],
    [[1], [2]],
    ["a", 1],
    ["a", None],
    ["a", ""],
    {"a": ["zyxcanary"]},
    "\ud800",
    ["\udfff"],
    [["a"]],
    1e308,
]
FIELDS = ["input", "model", "encoding_format", "dimensions", "user", "input_type", "vecveil_ids", "zyxcanary"]


@pytest.fixture(scope="module")
def policy(key_file: Path) -> ReleasePolicy:
    return ReleasePolicy(fake_protector(), key=vecveil.KeyFile.from_file(key_file))


@pytest.fixture(scope="module")
def url(policy: ReleasePolicy) -> Iterator[str]:
    served_policy = ServedPolicy("drug", policy, LocalUpstream(FakeEncoder()))
    with served(Service([served_policy], limits=Limits(body_bytes=20_000, inputs=12))) as base:
        yield base


def drawn(rng: random.Random) -> tuple[bytes, dict[str, str]]:
    """Return a body and headers: a good request with something else in it, or cut, or other bytes."""
    body: dict[str, Any] = {"model": rng.choice(["drug", "m:query", "any"])}
    body["input"] = rng.choices(TEXTS, k=rng.randint(1, 14)) if rng.random() < 0.7 else rng.choice(TEXTS)
    if rng.random() < 0.5:
        body["encoding_format"] = rng.choice(["float", "base64"])
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        body[rng.choice(FIELDS)] = rng.choice(ODD + TEXTS)
    if rng.random() < 0.1:
        del body[rng.choice(sorted(body))]
    content = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:
        content = content[: rng.randrange(len(content))]
    if rng.random() < 0.05:
        at = rng.randrange(len(content) or 1)
        content = content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]
    headers = {"Content-Type": "application/json" if rng.random() < 0.95 else "text/plain"}
    if rng.random() < 0.1:
        headers[rng.choice(["X-Vecveil-Input", "X-Vecveil-Policy"])] = rng.choice(
            ["query", "document", "drug", "zyxcanary", ""]
        )
    return content, headers


def decoded(answer: dict[str, Any]) -> np.ndarray:
    rows = [one["embedding"] for one in answer["data"]]
    return np.array([np.frombuffer(base64.b64decode(r), "<f4") if isinstance(r, str) else np.float32(r) for r in rows])


def test_no_body_gets_a_clean_vector_or_another_answer(url: str, policy: ReleasePolicy) -> None:
    rng = random.Random()
    seen: Counter[int] = Counter()
    with httpx.Client(timeout=30) as http:
        for _ in range(BODIES):
            content, headers = drawn(rng)
            answer = http.post(f"{url}/v1/embeddings", content=content, headers=headers)
            seen[answer.status_code] += 1
            said = answer.json()
            if answer.status_code == 200:
                texts = json.loads(content)["input"]
                texts = [texts] if isinstance(texts, str) else texts
                clean = clean_vectors(texts)
                found = decoded(said)
                np.testing.assert_array_equal(found, policy.documents(clean, texts=texts))
                assert (found != clean).any(axis=1).all()
            else:
                assert answer.status_code in (400, 404, 413, 415), content[:200]
                assert set(said) == {"error"}
                assert set(said["error"]) == {"message", "type", "param", "code"}
                assert "zyxcanary" not in answer.text
        figures = http.get(f"{url}/metrics").text
    assert seen[200] > 20  # controls: both kinds were met
    assert sum(seen.values()) - seen[200] > 20
    assert "zyxcanary" not in figures
    assert "internal_error" not in figures
