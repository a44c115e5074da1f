"""The page's endpoints on a real socket: limits, files, one job at a time, nothing kept, nothing told to others."""

from __future__ import annotations

import json
import logging
import re
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import vecveil
from harness.errors import raises
from harness.serving import FakeEncoder, fake_protector, served
from vecveil.errors import InvalidInputError
from vecveil.gateway.server import Service
from vecveil.gateway.server.errors import UpstreamError
from vecveil.gateway.server.preview_page import (
    PAGE_OPEN_PATHS,
    PageLimits,
    PageTexts,
    PreviewJobs,
    page_router,
    parse_job,
)
from vecveil.gateway.server.requests import ApiKeys
from vecveil.gateway.server.service import ServedPolicy
from vecveil.gateway.server.upstreams import LocalUpstream
from vecveil.privacy.protector import EncoderInfo
from vecveil.privacy.protector.policy import ReleasePolicy

CANARY = "zyxcanary"
LIMITS = PageLimits(texts=3, text_characters=50, words=4, word_characters=10, file_bytes=200_000, files=2)
OCTETS = {"Content-Type": "application/octet-stream"}


class Guesser:
    """Stands in for the attacker; waits in its steps until told to go on."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.fails: Exception | None = None
        self.seen: list[Any] = []

    def __call__(
        self,
        protector: vecveil.Protector,
        texts: Sequence[str],
        words: Sequence[str],
        *,
        encode: Callable[[Sequence[str]], Any],
        encoder: str,
        report: Callable[[float, str], None],
    ) -> dict[str, Any]:
        shape = list(encode(texts).shape)
        self.seen.append((protector.fingerprint, encoder))
        while not self.go.wait(0.01):
            report(0.5, "waiting")  # raises where the job is cancelled or nobody watches it
        if self.fails is not None:
            raise self.fails
        return {"shape": shape, "words": list(words)}


@pytest.fixture(scope="module")
def protector() -> vecveil.Protector:
    return fake_protector()


@pytest.fixture
def guesser() -> Guesser:
    return Guesser()


def open_page(protector: vecveil.Protector, guesser: Guesser, **given: Any) -> Any:
    upstream = LocalUpstream(FakeEncoder())
    service = Service([ServedPolicy("drug", ReleasePolicy(protector), upstream)])
    texts = PageTexts(("gout", "lupus"), ("a sample",), "a few notes")
    router = page_router({"drug": (protector, upstream)}, guesser, texts, limits=LIMITS)
    return served(service, routers=[router], open_paths=PAGE_OPEN_PATHS, **given)


@pytest.fixture
def client(protector: vecveil.Protector, guesser: Guesser) -> Iterator[httpx.Client]:
    with open_page(protector, guesser) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


def start(client: httpx.Client, **changes: Any) -> httpx.Response:
    asked = {"protector": "drug", "texts": ["a text"], "words": ["gout", "lupus"], **changes}
    return client.post("/page/jobs", json=asked)


def ended(client: httpx.Client, id: str) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while (state := client.get(f"/page/jobs/{id}").json())["state"] == "running":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return dict(state)


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_the_page_and_its_files_load_nothing_from_elsewhere(client: httpx.Client) -> None:
    kinds = {"/": "text/html", "/page/page.css": "text/css", "/page/page.js": "text/javascript"}
    for path, kind in kinds.items():
        answer = client.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(kind)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        foreign = [url for url in re.findall(r"https?://[^\s\"']+", answer.text) if "w3.org" not in url]
        assert foreign == []
    html = client.get("/").text
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|\sstyle=", html), "nothing inline"
    assert "innerHTML" not in client.get("/page/page.js").text


def test_a_job_runs_and_its_result_is_told_once(client: httpx.Client, guesser: Guesser) -> None:
    state = client.get("/page/state").json()
    assert [one["id"] for one in state["protectors"]] == ["drug"]
    assert state["words"] == ["gout", "lupus"]
    assert state["protectors"][0]["statement"] in state["protectors"][0]["guarantee"]
    answer = start(client, texts=["one", " ", "two"])
    assert answer.status_code == 202
    done = ended(client, answer.json()["id"])
    assert done["state"] == "done"
    assert done["result"] == {"shape": [2, 16], "words": ["gout", "lupus"]}
    assert code(client.get(f"/page/jobs/{done['id']}")) == (404, "no_such_job")


def test_one_job_at_a_time_and_it_can_be_cancelled(client: httpx.Client, guesser: Guesser) -> None:
    guesser.go.clear()
    id = start(client).json()["id"]
    second = start(client)
    assert code(second) == (429, "page_busy")
    assert int(second.headers["retry-after"]) > 0
    assert client.delete(f"/page/jobs/{id}").status_code == 200
    assert ended(client, id)["state"] == "cancelled"
    guesser.go.set()
    deadline = time.monotonic() + 60
    while (third := start(client)).status_code != 202:  # the thread ends a moment after its job
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert ended(client, third.json()["id"])["state"] == "done"


def test_another_visitors_job_cannot_be_seen_or_stopped(client: httpx.Client, guesser: Guesser) -> None:
    guesser.go.clear()
    id = start(client).json()["id"]
    for other in ("x", id[:-1]):
        assert code(client.get(f"/page/jobs/{other}")) == (404, "no_such_job")
        assert code(client.delete(f"/page/jobs/{other}")) == (404, "no_such_job")
    guesser.go.set()
    assert ended(client, id)["state"] == "done"


def test_a_job_that_nobody_watches_is_stopped_and_its_result_forgotten() -> None:
    jobs = PreviewJobs(abandoned=0.05, kept=0.05)
    stopped = threading.Event()

    def work(report: Callable[[float, str], None]) -> dict[str, Any]:
        try:
            while True:
                time.sleep(0.01)
                report(0.0, "on")
        except BaseException:
            stopped.set()
            raise

    job = jobs.start(work)
    assert stopped.wait(60)
    deadline = time.monotonic() + 60
    while jobs._job is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert job.result is None


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (InvalidInputError("Preview: `words` must be fewer; got many."), "Preview: `words` must be fewer; got many."),
        (ValueError(CANARY), "Something unexpected failed."),
    ],
)
def test_a_job_that_fails_says_why_in_our_words(
    client: httpx.Client, guesser: Guesser, error: Exception, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    guesser.fails = error
    with caplog.at_level(logging.DEBUG):
        state = ended(client, start(client, texts=[CANARY], words=[CANARY[:9], "gout"]).json()["id"])
    assert (state["state"], state["error"]) == ("failed", said)
    logged = " ".join(f"{r.getMessage()} {vars(r).get('fields')}" for r in caplog.records)
    assert CANARY not in logged
    assert CANARY[:9] not in logged


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"texts": []}, "invalid_texts"),
        ({"texts": ["  "]}, "invalid_texts"),
        ({"texts": ["x"] * 4}, "invalid_texts"),
        ({"texts": ["x" * 51]}, "invalid_texts"),
        ({"texts": [3]}, "invalid_texts"),
        ({"texts": "one"}, "invalid_texts"),
        ({"texts": ["\ud800"]}, "invalid_texts"),
        ({"words": ["gout"]}, "invalid_words"),
        ({"words": list("abcde")}, "invalid_words"),
        ({"words": ["x" * 11, "b"]}, "invalid_words"),
        ({"protector": ""}, "no_protector"),
        ({"protector": "another"}, "no_such_protector"),
    ],
)
def test_what_is_too_much_or_not_there_is_refused(client: httpx.Client, changes: dict[str, Any], expected: str) -> None:
    asked = {"protector": "drug", "texts": ["a text"], "words": ["gout", "lupus"], **changes}
    body = json.dumps(asked).encode()
    answer = client.post("/page/jobs", content=body, headers={"Content-Type": "application/json"})
    assert code(answer)[1] == expected
    assert answer.status_code in (400, 404)
    assert "xxxx" not in answer.text


def test_bodies_of_another_kind_or_size_are_refused(client: httpx.Client) -> None:
    headers = {"Content-Type": "application/json"}
    assert code(client.post("/page/jobs", content=b"{", headers=headers)) == (400, "invalid_json")
    assert code(client.post("/page/jobs", content=b"[" * 6000, headers=headers)) == (400, "invalid_json")
    large = b"x" * (LIMITS.job_bytes + 1)
    assert code(client.post("/page/jobs", content=large, headers=headers)) == (413, "body_too_large")
    plain = {"Content-Type": "text/plain"}
    assert code(client.post("/page/jobs", content=b"{}", headers=plain))[0] == 415
    assert code(client.post("/page/protectors", content=b"{}", headers=plain))[0] == 415


def test_the_largest_job_fits_into_its_body() -> None:
    texts = ["\U0001f600" * LIMITS.text_characters] * LIMITS.texts
    words = [c * LIMITS.word_characters for c in "\u4e00\u4e01\u4e02\u4e03"]
    body = json.dumps({"protector": "p" * 200, "texts": texts, "words": words}).encode()
    assert len(body) <= LIMITS.job_bytes
    assert parse_job(body, LIMITS).texts == tuple(texts)


def upload(client: httpx.Client, content: bytes, name: str = "mine.vecveil") -> httpx.Response:
    return client.post("/page/protectors", content=content, headers={**OCTETS, "X-File-Name": name})


def saved(protector: vecveil.Protector, folder: Path) -> bytes:
    protector.save(folder / "p.vecveil")
    return (folder / "p.vecveil").read_bytes()


def test_a_protector_file_is_loaded_and_used_and_listed_to_nobody(
    client: httpx.Client, guesser: Guesser, tmp_path: Path, protector: vecveil.Protector
) -> None:
    stronger = protector.rescaled(3.0)
    answer = upload(client, saved(stronger, tmp_path), "../<b>.vecveil")
    assert answer.status_code == 201
    one = answer.json()
    assert one["method"] == "laplace"
    assert "<" not in one["name"]
    assert "/" not in one["name"]
    done = ended(client, start(client, protector=one["id"]).json()["id"])
    assert done["state"] == "done"
    assert guesser.seen[-1][0] == stronger.fingerprint
    assert [p["id"] for p in client.get("/page/state").json()["protectors"]] == ["drug"]
    assert client.delete(f"/page/protectors/{one['id']}").status_code == 200
    assert code(start(client, protector=one["id"])) == (404, "no_such_protector")


def test_one_file_is_loaded_at_a_time(client: httpx.Client) -> None:
    """Each takes the memory of its file, and what is made to be slow takes a processor."""
    octets = {"content-type": "application/octet-stream"}
    with socket.create_connection((client.base_url.host, client.base_url.port or 80)) as slow:
        head = "POST /page/protectors HTTP/1.1\r\nHost: a\r\nContent-Type: application/octet-stream\r\n"
        slow.sendall(f"{head}Content-Length: 4\r\n\r\n".encode())
        deadline = time.monotonic() + 60
        while True:
            answer = client.post("/page/protectors", content=b"none", headers=octets)
            if answer.status_code == 429 or time.monotonic() > deadline:
                break
        assert code(answer) == (429, "page_busy")
        slow.sendall(b"none")
        assert slow.recv(4096).startswith(b"HTTP/1.1 400")
    answer = client.post("/page/protectors", content=b"none", headers=octets)
    assert code(answer) == (400, "not_a_protector")


def test_only_a_few_files_are_held(client: httpx.Client, tmp_path: Path, protector: vecveil.Protector) -> None:
    content = saved(protector, tmp_path)
    first, *others = [upload(client, content).json()["id"] for _ in range(LIMITS.files + 1)]
    assert code(start(client, protector=first)) == (404, "no_such_protector")
    assert start(client, protector=others[-1]).status_code == 202


def test_what_is_no_protector_of_this_servers_encoder_is_refused(
    client: httpx.Client, tmp_path: Path, protector: vecveil.Protector, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = saved(protector, tmp_path)
    damaged = content[:200] + bytes([content[200] ^ 1]) + content[201:]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for wrong in (b"", b"PK\x03\x04", b"\x80\x04K\x01.", content[:-9], damaged):
        assert code(upload(client, wrong)) == (400, "not_a_protector")
    assert code(upload(client, bytes(LIMITS.file_bytes + 1))) == (413, "body_too_large")
    other = replace(protector, encoder_info=EncoderInfo("https://evil.example/v1#model", "f" * 40, "fp32"))
    answer = upload(client, saved(other, tmp_path))
    assert code(answer) == (400, "another_encoder")
    assert not list(tmp_path.glob("vecveil-page-*"))


def test_another_site_is_refused(client: httpx.Client) -> None:
    for site in ("cross-site", "same-site"):
        headers = {"Sec-Fetch-Site": site}
        assert code(client.get("/page/state", headers=headers)) == (403, "other_site")
        assert client.get("/", headers=headers).status_code == 200, "a link to the page works"
    assert client.get("/page/state", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200


def test_with_keys_the_page_opens_and_everything_behind_it_asks_for_one(
    protector: vecveil.Protector, guesser: Guesser, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text("k" * 40 + "\n")
    file.chmod(0o600)
    with (
        open_page(protector, guesser, keys=ApiKeys(str(file))) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        for path in PAGE_OPEN_PATHS:
            assert client.get(path).status_code == 200
        assert client.get("/page/state").status_code == 401
        assert start(client).status_code == 401
        assert client.get("/page/jobs/x").status_code == 401
        assert upload(client, b"").status_code == 401
        client.headers["Authorization"] = "Bearer " + "k" * 40
        assert client.get("/page/state").status_code == 200
        assert ended(client, start(client).json()["id"])["state"] == "done"


def test_a_corpus_that_is_too_small_is_refused_before_anything_is_served(tmp_path: Path) -> None:
    from vecveil.cli.serve import page_routers

    file = tmp_path / "few.txt"
    file.write_text("one text\n" * 5, encoding="utf-8")
    with raises("E-DATA-FILE", "page_texts"):
        page_routers(file)


def test_an_upstream_that_wants_a_key_is_told_as_such(client: httpx.Client, guesser: Guesser) -> None:
    guesser.fails = UpstreamError(401, "The upstream refused the key.", code="upstream_authentication")
    state = ended(client, start(client).json()["id"])
    assert (state["error"], state["code"]) == ("The upstream refused the key.", "upstream_authentication")
