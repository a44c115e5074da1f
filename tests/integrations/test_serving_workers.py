"""``vecveil serve --workers``: several processes on one port, of which any may die."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest

from harness.command_line import command, environment, run, spawn
from harness.server_process import ServerProcess, upstream_process
from harness.serving import clean_vectors, fake_protector
from vecveil.accounting import Ledger
from vecveil.randomness import NoiseKeys
from vecveil.release_policy import ReleasePolicy

WORKERS, CAP, PATIENCE = 2, 3, 60.0


def until(done: Callable[[], bool]) -> None:
    """Wait; fail when it does not come."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def workers_of(pid: int) -> list[psutil.Process]:
    """Return the processes that answer."""
    found = []
    for child in psutil.Process(pid).children():
        try:
            if "spawn_main" in " ".join(child.cmdline()):
                found.append(child)
        except psutil.Error:  # it has just ended
            continue
    return found


class Setting:
    """Two workers with a keyed policy, and one of fresh noise whose releases are counted."""

    def __init__(self, folder: Path) -> None:
        self.upstream = upstream_process(slow=2.0)
        protector = fake_protector()
        protector.save(folder / "drug.vecveil")
        self.policy = ReleasePolicy(
            protector, key=NoiseKeys.create(folder / "noise.key", "2026").key()
        )
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
        """Ask over a connection of its own, which falls to any worker."""
        body = {"model": model, "input": text}
        return httpx.post(f"{self.url}/v1/embeddings", json=body, timeout=PATIENCE)

    def answered(self) -> float:
        """Return how many requests for embeddings all workers say that they have answered well."""
        text = httpx.get(f"{self.url}/metrics", timeout=PATIENCE).text
        named = r'vecveil_requests_total{route="/v1/embeddings",status="200"} (\S+)'
        return sum(map(float, re.findall(named, text)))


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    one = Setting(tmp_path_factory.mktemp("workers"))
    try:
        yield one
    finally:
        for process in (one.server, one.upstream):
            if process.process.returncode is None:
                process.end(signal.SIGTERM)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere one worker may get all connections")
def test_connections_fall_to_every_worker(setting: Setting) -> None:
    # 40 connections, each to either worker with probability one half: all to one with 2 ** -39 = 2e-12.
    clients = [httpx.Client() for _ in range(40)]
    try:
        for client in clients:
            assert client.get(f"{setting.url}/health").json()["checked"] == 2
        held = [
            sum(
                one.status == psutil.CONN_ESTABLISHED and one.laddr.port == setting.server.port
                for one in worker.net_connections("tcp4")
            )
            for worker in workers_of(setting.pid)
        ]
    finally:
        for client in clients:
            client.close()
    assert len(held) == WORKERS
    assert min(held) > 0
    assert sum(held) == 40


def test_every_worker_gives_a_text_the_same_keyed_vector_and_their_figures_are_added_up(
    setting: Setting,
) -> None:
    before = setting.answered()
    text = "a note that takes alphamab"
    expected = setting.policy.documents(clean_vectors([text]), texts=[text])[0]
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: setting.ask("keyed", text), range(40)))
    for answer in answers:
        found = np.array(answer.json()["data"][0]["embedding"], dtype=np.float32)
        assert np.array_equal(found, expected)
    until(lambda: setting.answered() == before + 40)  # a request is counted after its answer
    text = httpx.get(f"{setting.url}/metrics").text
    assert "vecveil_requests_in_progress 1.0" in text  # this one
    assert re.search(r'vecveil_build_info{version="[^"]+"} 1.0', text)


def test_workers_together_keep_to_a_cap(setting: Setting) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: setting.ask("capped", "one item"), range(24)))
    assert Counter(one.status_code for one in answers) == {200: CAP, 403: 24 - CAP}
    released = [tuple(one.json()["data"][0]["embedding"]) for one in answers if one.is_success]
    assert len(set(released)) == CAP  # no two workers draw the same noise


def test_a_worker_that_is_killed_is_replaced_and_what_it_counted_stays(setting: Setting) -> None:
    until(lambda: len(workers_of(setting.pid)) == WORKERS)
    before = setting.answered()
    victim, other = workers_of(setting.pid)
    victim.kill()
    victim.wait(PATIENCE)
    assert setting.ask("keyed", "a").status_code == 200  # by the other
    until(lambda: len(workers_of(setting.pid)) == WORKERS)
    ended = [json.loads(line) for line in setting.server.lines if '"worker ended"' in line]
    assert [one["exit"] for one in ended] == [-signal.SIGKILL]
    assert other.pid in {one.pid for one in workers_of(setting.pid)}
    assert setting.answered() > before


def test_a_second_server_on_the_port_is_refused(setting: Setting, tmp_path: Path) -> None:
    fake_protector().save(tmp_path / "a.vecveil")
    done = spawn("serve", "-p", "a.vecveil", "--workers", 2, "--port", setting.server.port, cwd=tmp_path)  # fmt: skip
    assert done.code == 1
    assert "Choose another --port" in done.err
    assert "Traceback" not in done.err


def test_what_is_being_answered_is_answered_before_all_end(setting: Setting) -> None:
    running = workers_of(setting.pid)
    setting.upstream.process.send_signal(signal.SIGUSR1)
    statuses: list[int] = []
    asking = [
        threading.Thread(target=lambda: statuses.append(setting.ask("keyed", "a").status_code))
        for _ in range(6)
    ]
    for thread in asking:
        thread.start()
    figures = f"{setting.url}/metrics"
    until(lambda: "in_progress 7.0" in httpx.get(figures).text)
    assert setting.server.end(signal.SIGTERM) == 143
    for thread in asking:
        thread.join(PATIENCE)
    assert statuses == [200] * 6
    assert not any(one.is_running() for one in running)
    with pytest.raises(httpx.ConnectError):
        httpx.get(figures)
    said = "".join(setting.server.lines)
    assert "Traceback" not in said
    assert [line for line in setting.server.lines if '"listening"' in line] == [
        line for line in setting.server.lines if f'"workers": {WORKERS}' in line
    ]


def serve_on_the_fake_encoder(folder: Path, port: int) -> list[str]:
    fake_protector().save(folder / "drug.vecveil")
    upstream = f"http://127.0.0.1:{port}/v1#up"
    return command("serve", "-p", folder / "drug.vecveil", "--port", 0, "--workers", WORKERS,
                   "--upstream", upstream, "--upstream-key", "none")  # fmt: skip


def test_workers_end_when_the_process_that_started_them_is_gone(tmp_path: Path) -> None:
    upstream = upstream_process()
    try:
        server = ServerProcess(serve_on_the_fake_encoder(tmp_path, upstream.port), "stderr")
        running = workers_of(server.process.pid)
        assert len(running) == WORKERS
        server.end(signal.SIGKILL)
        _, alive = psutil.wait_procs(running, timeout=PATIENCE)
        assert not alive
    finally:
        upstream.end()


@pytest.mark.parametrize("moment", ["starting", "listening"])
def test_ctrl_c_ends_all_in_one_sentence(tmp_path: Path, moment: str) -> None:
    upstream = upstream_process()
    try:
        words = serve_on_the_fake_encoder(tmp_path, upstream.port)
        with subprocess.Popen(
            words, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True
        ) as process:
            assert process.stderr is not None
            lines: list[str] = []
            if moment == "listening":
                while '"listening"' not in "".join(lines):
                    lines.append(process.stderr.readline())
                    assert lines[-1], lines
            else:
                until(lambda: bool(workers_of(process.pid)))
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does it
            lines += process.stderr.readlines()
            assert process.wait(PATIENCE) == 130
        said = "".join(lines)
        assert "Traceback" not in said
        assert said.count("stopped by Ctrl-C") == 1
    finally:
        upstream.end()


def test_what_keeps_a_worker_from_starting_is_said_once(tmp_path: Path) -> None:
    upstream = upstream_process()
    try:
        words = serve_on_the_fake_encoder(tmp_path, upstream.port)
        (tmp_path / "drug.vecveil").write_bytes(b"no protector")
        done = subprocess.run(
            words, capture_output=True, text=True, env=environment(), timeout=120, check=False
        )
    finally:
        upstream.end()
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.count("drug.vecveil") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workers", "0"], "--workers"),
        (["--workers", "129"], "workers"),
        (["--workers", "2", "--page"], "one worker"),
        (["--workers", "2", "--page-texts", "x.csv"], "one worker"),
    ],
)
def test_misuse_is_one_sentence(words: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").touch()
    done = run("serve", "-p", "x", *(w.replace("x.csv", str(tmp_path / "x.csv")) for w in words))
    assert done.code in (1, 2)
    assert said in done.err
    assert "Traceback" not in done.err
