"""``vecveil serve --workers``: several processes on one port, of which any may die."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest

from harness.command_line import command, environment
from harness.errors import raises
from harness.server_process import ServerProcess, upstream_process
from harness.serving import FakeEncoder, clean_vectors, fake_protector
from vecveil.gateway import server as serving
from vecveil.gateway.server import ServedPolicySettings, ServeSettings
from vecveil.gateway.server.server import _identity, listen
from vecveil.gateway.server.service import ServedPolicy, Service
from vecveil.gateway.server.upstreams import LocalUpstream
from vecveil.keys import KeyFile
from vecveil.privacy.accounting import Ledger
from vecveil.privacy.protector.policy import ReleasePolicy

WORKERS, CAP, PATIENCE = 2, 3, 60.0


def until(done: Callable[[], bool]) -> None:
    """Wait; fail when it does not come."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def workers_of(pid: int) -> list[psutil.Process]:
    """Return the worker processes."""
    workers = []
    for child in psutil.Process(pid).children():
        try:
            if "spawn_main" in " ".join(child.cmdline()):
                workers.append(child)
        except psutil.Error:  # it has just ended
            continue
    return workers


class Setting:
    """Two workers with a keyed policy, and one of fresh noise whose releases are counted."""

    def __init__(self, folder: Path) -> None:
        self.upstream = upstream_process(slow=30.0)
        protector = fake_protector()
        protector.save(folder / "drug.vecveil")
        self.folder = folder
        self.policy = ReleasePolicy(protector, key=KeyFile.create(folder / "noise.key", "2026").key())
        Ledger(folder / "releases.ledger", cap=CAP).close()
        (folder / "serve.yaml").write_text(
            f"port: 0\nworkers: {WORKERS}\n"
            f"upstream: {{encoder: 'http://127.0.0.1:{self.upstream.port}/v1#up', key: none}}\n"
            "policies:\n"
            "  keyed: {protector: drug.vecveil, key: noise.key}\n"
            "  capped: {protector: drug.vecveil, ledger: releases.ledger}\n"
        )
        words = command("serve", "--config", folder / "serve.yaml", "--json")
        self.server = ServerProcess(words, "stderr")
        self.pid = self.server.process.pid
        self.url = f"http://127.0.0.1:{self.server.port}"

    def ask(self, model: str, text: str) -> httpx.Response:
        """Ask over a new connection, which any worker may accept."""
        body = {"model": model, "input": text}
        return httpx.post(f"{self.url}/v1/embeddings", json=body, timeout=PATIENCE)

    def metrics(self) -> str:
        return httpx.get(f"{self.url}/metrics", timeout=PATIENCE).text

    def started(self) -> int:
        """Return how many workers have ever answered requests, as uvicorn logs it."""
        return sum("Application startup complete" in line for line in list(self.server.lines))

    def answered(self) -> float:
        """Return how many requests for embeddings all workers have answered with a vector."""
        named = r'vecveil_requests_total{route="/v1/embeddings",status="200"} (\S+)'
        return sum(map(float, re.findall(named, self.metrics())))


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    one = Setting(tmp_path_factory.mktemp("workers"))
    try:
        yield one
    finally:
        for process in (one.server, one.upstream):
            if process.process.returncode is None:
                process.end(signal.SIGTERM)


def test_every_worker_gives_a_text_the_same_keyed_vector_and_their_metrics_are_added_up(setting: Setting) -> None:
    until(lambda: setting.started() == WORKERS)
    before = setting.answered()
    text = "a note that takes alphamab"
    expected = setting.policy.documents(clean_vectors([text]), texts=[text])[0]
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: setting.ask("keyed", text), range(40)))
    for answer in answers:
        found = np.array(answer.json()["data"][0]["embedding"], dtype=np.float32)
        assert np.array_equal(found, expected)
    until(lambda: setting.answered() == before + 40)  # a request is counted after its answer
    text = setting.metrics()
    assert "vecveil_requests_in_progress 1.0" in text  # this one
    assert re.search(r'vecveil_build_info{version="[^"]+"} 1.0', text)


def test_workers_together_keep_to_a_cap(setting: Setting) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: setting.ask("capped", "one item"), range(24)))
    assert Counter(one.status_code for one in answers) == {200: CAP, 403: 24 - CAP}
    released = [tuple(one.json()["data"][0]["embedding"]) for one in answers if one.is_success]
    assert len(set(released)) == CAP  # no two workers draw the same noise


def test_a_worker_that_is_killed_is_replaced_and_its_requests_are_forgotten(setting: Setting) -> None:
    started = setting.started()
    workers = workers_of(setting.pid)
    setting.upstream.process.send_signal(signal.SIGUSR1)
    with ThreadPoolExecutor(24) as threads:
        asked = [threads.submit(setting.ask, "keyed", "a") for _ in range(24)]
        until(lambda: "in_progress 25.0" in setting.metrics())
        for worker in workers:
            worker.kill()
        setting.upstream.process.send_signal(signal.SIGUSR2)  # new workers verify it first
        until(lambda: setting.started() == started + WORKERS)
        assert all(isinstance(one.exception(), httpx.TransportError) for one in asked)
    assert not {one.pid for one in workers} & {one.pid for one in workers_of(setting.pid)}
    until(lambda: "in_progress 1.0" in setting.metrics())  # the question itself
    assert setting.ask("keyed", "a").status_code == 200


def test_a_worker_does_not_answer_with_another_protector_than_the_others(setting: Setting) -> None:
    path = setting.folder / "drug.vecveil"
    before = path.read_bytes()
    fake_protector(noise_to_signal=0.7).save(path)
    started = setting.started()
    workers_of(setting.pid)[0].kill()
    until(lambda: any("Restart the server" in line for line in list(setting.server.lines)))
    texts = ["a note that takes alphamab"]
    expected = setting.policy.documents(clean_vectors(texts), texts=texts)[0]
    for _ in range(10):
        found = setting.ask("keyed", texts[0]).json()["data"][0]["embedding"]
        assert np.array_equal(np.array(found, dtype=np.float32), expected)
    path.write_bytes(before)
    until(lambda: setting.started() == started + 1)


def test_the_identity_of_a_service_holds_all_that_decides_its_vectors(tmp_path: Path) -> None:
    keys = [KeyFile.create(tmp_path / name, "2026") for name in ("a.key", "b.key")]
    protector = fake_protector()
    policies = [
        ReleasePolicy(protector, key=keys[0]),
        ReleasePolicy(protector, key=keys[1]),
        ReleasePolicy(protector),
        ReleasePolicy(protector, query_noise=0),
        ReleasePolicy(fake_protector(noise_to_signal=0.7)),
    ]
    upstream = LocalUpstream(FakeEncoder())
    services = [Service([ServedPolicy("a", policy, upstream)]) for policy in policies]
    services.append(Service([ServedPolicy("b", policies[0], upstream)]))
    other = LocalUpstream(FakeEncoder())
    other.name = "other"
    services.append(Service([ServedPolicy("a", policies[0], other)]))
    assert len({_identity(service) for service in services}) == len(services)
    again = Service([ServedPolicy("a", ReleasePolicy(protector, key=keys[0]), upstream)])
    assert _identity(again) == _identity(services[0])


def test_requests_are_answered_before_all_workers_end(setting: Setting) -> None:
    running = workers_of(setting.pid)
    until(lambda: "in_progress 1.0" in setting.metrics())
    setting.upstream.process.send_signal(signal.SIGUSR1)
    with ThreadPoolExecutor(6) as threads:
        asked = [threads.submit(setting.ask, "keyed", "a") for _ in range(6)]
        until(lambda: "in_progress 7.0" in setting.metrics())
        setting.server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert not any(one.done() for one in asked)
        setting.upstream.process.send_signal(signal.SIGUSR2)
        assert [one.result().status_code for one in asked] == [200] * 6
    assert setting.server.end(signal.SIGTERM) == 0
    assert not any(one.is_running() for one in running)
    with pytest.raises(httpx.ConnectError):
        setting.metrics()
    lines = "".join(setting.server.lines)
    assert "Traceback" not in lines
    assert lines.count('"listening"') == 1
    assert f'"workers": {WORKERS}' in lines
    assert lines.count('"event": "stopped"') == 1


def serve_on_the_fake_encoder(folder: Path, port: int) -> list[str]:
    fake_protector().save(folder / "drug.vecveil")
    upstream = f"http://127.0.0.1:{port}/v1#up"
    return command(
        "serve",
        "-p",
        folder / "drug.vecveil",
        "--port",
        0,
        "--workers",
        WORKERS,
        "--upstream",
        upstream,
        "--upstream-key",
        "none",
    )


def test_ctrl_c_ends_all_and_a_protector_that_cannot_be_read_is_refused_once(tmp_path: Path) -> None:
    upstream = upstream_process()
    try:
        words = serve_on_the_fake_encoder(tmp_path, upstream.port)
        with subprocess.Popen(
            words, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True
        ) as process:
            assert process.stderr is not None
            lines: list[str] = []
            while "".join(lines).count("Application startup complete") < WORKERS:
                lines.append(process.stderr.readline())
                assert lines[-1], lines
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does it
            lines += process.stderr.readlines()
            assert process.wait(PATIENCE) == 0
        assert "Traceback" not in "".join(lines)
        (tmp_path / "drug.vecveil").write_bytes(b"no protector")
        done = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=120, check=False)
    finally:
        upstream.end()
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.count("no protector") + done.stderr.count("drug.vecveil") >= 1
    assert "listening" not in done.stderr


def test_an_address_is_ours_before_an_encoder_is_loaded_and_free_again_at_once() -> None:
    with listen("127.0.0.1", 0) as ours:
        port = ours.getsockname()[1]
        with raises("E-INPUT", "host and port"):
            listen("127.0.0.1", port)
        with socket.create_connection(("127.0.0.1", port)) as client:
            ours.accept()[0].close()  # who closes first keeps the address for a minute
            assert client.recv(1) == b""
    with socket.socket() as careless, pytest.raises(OSError, match="in use"):
        careless.bind(("127.0.0.1", port))  # control
    listen("127.0.0.1", port).close()


def test_routes_that_keep_state_need_one_worker() -> None:
    settings = ServeSettings({"drug": ServedPolicySettings("drug.vecveil")}, workers=WORKERS)
    with raises("E-INPUT", "routers"):
        serving.run(settings, routers=lambda service: [])
