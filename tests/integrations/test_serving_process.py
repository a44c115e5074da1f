"""``vecveil serve`` as people start it: under load with its upstream killed and slowed, and what its logs hold."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from harness.command_line import command, environment, run
from harness.server_process import ServerProcess, upstream_process
from harness.serving import Connection, clean_vectors, fake_protector
from vecveil.keys import KeyFile
from vecveil.privacy.protector.policy import ReleasePolicy

CANARY = "zyxcanary takes alphamab"
API_KEY = "an-api-key-of-a-zyxclient"
CLIENTS, REQUESTS = 32, 1500


class Setting:
    """The server, its upstream, and what the policy lets out."""

    def __init__(self, folder: Path) -> None:
        self.upstream = upstream_process()
        self.keys = KeyFile.create(folder / "noise.key", "2026")
        protector = fake_protector()
        protector.save(folder / "drug.vecveil")
        self.policy = ReleasePolicy(protector, key=self.keys)
        (folder / "api.keys").write_text(API_KEY)
        (folder / "api.keys").chmod(0o600)
        (folder / "serve.yaml").write_text(
            f"port: 0\napi_keys: api.keys\n"
            f"upstream: {{encoder: 'http://127.0.0.1:{self.upstream.port}/v1#up', key: none, timeout: 2, "
            "retries: 1}\n"
            "policies: {drug: {protector: drug.vecveil, key: noise.key}}\n"
        )
        self.server = ServerProcess(command("serve", "--config", folder / "serve.yaml", "--json"), "stderr")
        self.url = f"http://127.0.0.1:{self.server.port}"

    def expected(self, texts: list[str]) -> np.ndarray:
        return self.policy.documents(clean_vectors(texts), texts=texts)

    def post(self, content: Any, key: str = API_KEY, path: str = "/v1/embeddings") -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.post(self.url + path, json=content, headers=headers, timeout=30)


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    one = Setting(tmp_path_factory.mktemp("serving"))
    try:
        yield one
    finally:
        for process in (one.server, one.upstream):
            if process.process.returncode is None:
                process.end()


def test_a_program_that_starts_the_server_reads_its_url(setting: Setting) -> None:
    told = json.dumps({"url": f"{setting.url}/v1"}) + "\n"
    deadline = time.monotonic() + 60
    while told not in setting.server.lines and time.monotonic() < deadline:
        time.sleep(0.01)  # its two streams are read side by side
    assert told in setting.server.lines


def test_every_answer_under_load_is_protected_or_an_error(setting: Setting) -> None:
    texts = [f"{CANARY} {i}" for i in range(40)]
    expected = setting.expected(texts)
    clean = clean_vectors(texts)
    assert (np.abs(expected - clean) > 1e-6).any(axis=1).all()  # control
    statuses: Counter[int] = Counter()
    codes: Counter[str] = Counter()
    done = 0

    async def client(share: range) -> None:
        nonlocal done
        mine = Connection(setting.server.port, f"Authorization: Bearer {API_KEY}\r\n")
        for i in share:
            at = [i % 40, (i + 7) % 40]
            body = {"model": "m", "input": [texts[j] for j in at], "encoding_format": "base64"}
            status, content = await mine.post(body)
            statuses[status] += 1
            if status == 200:
                rows = [base64.b64decode(row["embedding"]) for row in content["data"]]
                found = np.array([np.frombuffer(row, "<f4") for row in rows])
                assert np.array_equal(found, expected[at])
            else:
                assert set(content["error"]) == {"message", "type", "param", "code"}
                codes[content["error"]["code"]] += 1
                await asyncio.sleep(0.02)
            done += 1
        await mine.close()

    async def trouble() -> None:
        async def until(count: int) -> None:
            while done < count:
                await asyncio.sleep(0.005)

        await until(REQUESTS // 5)
        setting.upstream.process.send_signal(signal.SIGUSR1)  # slower than the server waits
        while not codes["upstream_timeout"]:
            await asyncio.sleep(0.05)
        setting.upstream.process.send_signal(signal.SIGUSR2)
        await until(REQUESTS // 2)
        port = setting.upstream.port
        await asyncio.to_thread(setting.upstream.end)
        await until(done + 100)
        setting.upstream = await asyncio.to_thread(upstream_process, port)

    async def main() -> None:
        shares = [range(i, REQUESTS, CLIENTS) for i in range(CLIENTS)]
        await asyncio.gather(trouble(), *map(client, shares))

    asyncio.run(main())
    assert sum(statuses.values()) == REQUESTS
    assert set(statuses) == {200, 502, 504}, statuses
    assert set(codes) == {"upstream_timeout", "upstream_unreachable"}
    assert statuses[200] > REQUESTS // 4, statuses
    assert setting.post({"model": "m", "input": texts[0]}).status_code == 200


def test_no_text_key_or_vector_in_logs_errors_and_metrics(setting: Setting) -> None:
    said = [
        setting.post(content, path=path, key=key)
        for content, path, key in [
            ({"model": CANARY, "input": CANARY, "user": CANARY, CANARY: CANARY}, "/v1/embeddings", API_KEY),
            ({"model": "m", "input": [CANARY, ""]}, "/v1/embeddings", API_KEY),
            ({"model": "m", "input": CANARY, "dimensions": CANARY}, "/v1/embeddings", API_KEY),
            ({"model": "m", "input": CANARY, "vecveil_ids": [CANARY]}, "/v1/embeddings", API_KEY),
            ({"model": "m", "input": CANARY}, "/v1/embeddings", CANARY.replace(" ", "")),
            ({"model": "m", "input": CANARY}, f"/v1/zyxcanary?q={API_KEY}", API_KEY),
        ]
    ]
    assert [answer.status_code for answer in said] == [200, 400, 400, 400, 401, 404]
    headers = {"Authorization": f"Bearer {API_KEY}"}
    metrics = httpx.get(f"{setting.url}/metrics", headers=headers, timeout=60).text
    assert 'vecveil_vectors_released_total{policy="drug",side="document"}' in metrics
    # A request that is being answered gets its answer before the server ends.
    setting.upstream.process.send_signal(signal.SIGUSR1)
    with ThreadPoolExecutor(1) as threads:
        last = threads.submit(setting.post, {"model": "m", "input": CANARY})
        while "in_progress 2.0" not in httpx.get(f"{setting.url}/metrics", headers=headers, timeout=60).text:
            time.sleep(0.02)  # one, and the one for the metrics
        setting.server.process.send_signal(signal.SIGTERM)
        setting.upstream.process.send_signal(signal.SIGUSR2)
        assert last.result().status_code == 200
    # A second signal could reach the process after its handlers are gone.
    assert setting.server.process.wait(60) == 143
    setting.server.end()
    log = "".join(setting.server.lines)
    requests = [line for line in setting.server.lines if '"event": "request"' in line]
    assert len(requests) > REQUESTS
    record = json.loads(requests[-1])
    assert set(record) >= {"time", "id", "method", "route", "status", "ms"}
    secret = setting.keys.key().secret_for_noise()
    clean = clean_vectors([CANARY])
    planted = ["zyxc", "alphamab", API_KEY, secret.hex(), base64.b64encode(secret).decode()]
    planted += [base64.b64encode(clean.tobytes()).decode()[:20]]
    planted += [str(float(value))[:8] for value in clean[0]]
    for text in (log, metrics, *(answer.text for answer in said[1:])):
        assert not [form for form in planted if form in text]
    # Control: the first answer echoes the model's name as OpenAI does, and so would be found.
    assert "zyxc" in said[0].text


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        ([], "Give -p FILE", 2),
        (["-p", "none.vecveil"], "none.vecveil", 1),
        (["--config", "none.yaml"], "none.yaml", 1),
        (["--config", "a.yaml", "--ledger", "b"], "--ledger", 2),
        (["-p", "a=x", "-p", "a=y"], "two", 2),
        (["-p", "x", "--key-file", "a", "--key-env", "B"], "not both", 2),
        (["-p", "x", "--api-keys", "env:NOT_SET_ANYWHERE"], "[...], which is not set", 1),
        (["-p", "x", "--host", "256.1.1.1"], "cannot listen on", 1),
        (["-p", "x", "--workers", "0"], "x>=1", 2),
        (["-p", "x", "--workers", "1000"], "128", 1),
        (["-p", "x", "--workers", "2", "--page"], "one worker", 2),
    ],
)
def test_misuse_is_one_sentence(
    words: list[str], said: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("serve", *words)
    assert done.code == code
    assert said.lower() in done.err.lower()
    assert "Traceback" not in done.err


def test_a_metrics_folder_that_does_not_exist_is_one_sentence(tmp_path: Path) -> None:
    """prometheus-client keeps its metrics there, if the variable was set before it is imported."""
    fake_protector().save(tmp_path / "drug.vecveil")
    words = command("serve", "-p", "drug.vecveil", "--port", 0, "--upstream", "http://127.0.0.1:9/v1#m")
    variables = {**environment(), "prometheus_multiproc_dir": ""}
    done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    assert "PROMETHEUS_MULTIPROC_DIR" in done.stderr
    assert "Traceback" not in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["drug.vecveil"]
