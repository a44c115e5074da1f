"""``vecveil serve --workers``: several processes on one port, of which any may die."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
import uvicorn

from harness.command_line import command, environment, run, spawn
from harness.server_process import ServerProcess, upstream_process
from harness.serving import clean_vectors, fake_protector
from vecveil import serving
from vecveil.accounting import Ledger
from vecveil.errors import InvalidInputError
from vecveil.randomness import NoiseKeys
from vecveil.release_policy import ReleasePolicy
from vecveil.serving import PolicySettings, ServeSettings
from vecveil.serving.announcing import AnnouncingServer
from vecveil.serving.server import bound
from vecveil.serving.workers import _Workers, pause_before_next, share_of_cores

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
        self.upstream = upstream_process(slow=30.0)
        protector = fake_protector()
        protector.save(folder / "drug.vecveil")
        self.folder = folder
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

    def figures(self) -> str:
        return httpx.get(f"{self.url}/metrics", timeout=PATIENCE).text

    def complete(self) -> bool:
        """Return whether all workers listen."""
        found = 0
        for worker in workers_of(self.pid):
            with contextlib.suppress(psutil.Error):
                found += any(
                    one.status == psutil.CONN_LISTEN for one in worker.net_connections("tcp4")
                )
        return found == WORKERS

    def answered(self) -> float:
        """Return how many requests for embeddings all workers say that they have answered well."""
        text = self.figures()
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
    clients = [httpx.Client(timeout=PATIENCE) for _ in range(40)]
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
    # Each worker listens on a socket of its own: of one that they share, whoever wakes first takes all that wait.
    table = Path("/proc/net/tcp").read_text()
    assert table.count(f":{setting.server.port:04X} 00000000:0000 0A") == WORKERS


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
    text = setting.figures()
    assert "vecveil_requests_in_progress 1.0" in text  # this one
    assert re.search(r'vecveil_build_info{version="[^"]+"} 1.0', text)


def test_workers_together_keep_to_a_cap(setting: Setting) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: setting.ask("capped", "one item"), range(24)))
    assert Counter(one.status_code for one in answers) == {200: CAP, 403: 24 - CAP}
    released = [tuple(one.json()["data"][0]["embedding"]) for one in answers if one.is_success]
    assert len(set(released)) == CAP  # no two workers draw the same noise


def test_a_worker_that_is_killed_is_replaced_and_what_it_was_doing_is_forgotten(
    setting: Setting,
) -> None:
    until(setting.complete)
    victim, other = workers_of(setting.pid)
    setting.upstream.process.send_signal(signal.SIGUSR1)
    with ThreadPoolExecutor(24) as threads:  # all at one worker with 2 ** -23 = 1e-7
        asked = [threads.submit(setting.ask, "keyed", "a") for _ in range(24)]
        until(lambda: "in_progress 25.0" in setting.figures())
        victim.kill()
        victim.wait(PATIENCE)
        until(
            lambda: len(workers_of(setting.pid)) == WORKERS
        )  # it listens once the upstream answers
        setting.upstream.process.send_signal(signal.SIGUSR2)
        outcomes = [one.exception() or one.result().status_code for one in asked]
    answered = sum(one == 200 for one in outcomes)
    lost = sum(isinstance(one, httpx.TransportError) for one in outcomes)
    assert answered + lost == 24
    assert lost > 0
    assert answered > 0
    until(lambda: any('"worker ended"' in line for line in list(setting.server.lines)))
    ended = [json.loads(line) for line in setting.server.lines if '"worker ended"' in line]
    assert [one["exit"] for one in ended] == [-signal.SIGKILL]
    assert other.pid in {one.pid for one in workers_of(setting.pid)}
    until(lambda: "in_progress 1.0" in setting.figures())  # the question itself
    until(lambda: setting.ask("keyed", "a").status_code == 200)


def test_a_second_server_on_the_port_is_refused(setting: Setting, tmp_path: Path) -> None:
    fake_protector().save(tmp_path / "a.vecveil")
    done = spawn("serve", "-p", "a.vecveil", "--workers", 2, "--port", setting.server.port, cwd=tmp_path)  # fmt: skip
    assert done.code == 1
    assert "Choose another --port" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("changed", ["drug.vecveil", "noise.key"])
def test_a_worker_does_not_answer_with_another_protector_or_key_than_the_others(
    setting: Setting, changed: str
) -> None:
    until(setting.complete)
    path = setting.folder / changed
    before = path.read_bytes()
    if changed == "noise.key":
        NoiseKeys.create(setting.folder / "other.key", "2026")
        path.write_bytes((setting.folder / "other.key").read_bytes())
    else:
        fake_protector(noise_to_signal=0.7).save(path)
    said = len(refusals(setting))
    victim = workers_of(setting.pid)[0]
    victim.kill()
    victim.wait(PATIENCE)
    until(lambda: len(refusals(setting)) > said)
    texts = ["a note that takes alphamab"]
    expected = setting.policy.documents(clean_vectors(texts), texts=texts)[0]
    for _ in range(10):
        found = setting.ask("keyed", texts[0]).json()["data"][0]["embedding"]
        assert np.array_equal(np.array(found, dtype=np.float32), expected)
    path.write_bytes(before)
    until(setting.complete)
    (setting.folder / "other.key").unlink(missing_ok=True)


def refusals(setting: Setting) -> list[str]:
    return [line for line in list(setting.server.lines) if "Restart the server" in line]


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit is of Linux")
def test_what_keeps_a_worker_from_starting_again_leaves_the_others_alone(setting: Setting) -> None:
    until(setting.complete)
    supervisor = psutil.Process(setting.pid)
    soft, hard = supervisor.rlimit(psutil.RLIMIT_NOFILE)
    supervisor.rlimit(psutil.RLIMIT_NOFILE, (3, hard))  # no further file
    victim = workers_of(setting.pid)[0]
    victim.kill()
    victim.wait(PATIENCE)
    until(lambda: any("Too many open files" in line for line in list(setting.server.lines)))
    assert setting.ask("keyed", "a").status_code == 200
    supervisor.rlimit(psutil.RLIMIT_NOFILE, (soft, hard))
    until(setting.complete)


def test_what_is_being_answered_is_answered_before_all_end(setting: Setting) -> None:
    until(setting.complete)
    running = workers_of(setting.pid)
    until(lambda: "in_progress 1.0" in setting.figures())
    setting.upstream.process.send_signal(signal.SIGUSR1)
    with ThreadPoolExecutor(6) as threads:
        asked = [threads.submit(setting.ask, "keyed", "a") for _ in range(6)]
        until(lambda: "in_progress 7.0" in setting.figures())
        setting.server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert not any(one.done() for one in asked)
        setting.upstream.process.send_signal(signal.SIGUSR2)
        assert [one.result().status_code for one in asked] == [200] * 6
    assert setting.server.end(signal.SIGTERM) == 143
    assert not any(one.is_running() for one in running)
    with pytest.raises(httpx.ConnectError):
        setting.figures()
    said = "".join(setting.server.lines)
    assert "Traceback" not in said
    assert said.count('"listening"') == 1
    assert f'"workers": {WORKERS}' in said
    assert said.count('"event": "stopped"') == 1


def serve_on_the_fake_encoder(folder: Path, port: int) -> list[str]:
    fake_protector().save(folder / "drug.vecveil")
    upstream = f"http://127.0.0.1:{port}/v1#up"
    return command("serve", "-p", folder / "drug.vecveil", "--port", 0, "--workers", WORKERS,
                   "--upstream", upstream, "--upstream-key", "none")  # fmt: skip


def test_lost_figures_fail_no_request_and_workers_end_when_what_started_them_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream = upstream_process()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    try:
        server = ServerProcess(serve_on_the_fake_encoder(tmp_path, upstream.port), "stderr")
    except BaseException:
        upstream.end()
        raise
    try:
        running = workers_of(server.process.pid)
        assert len(running) == WORKERS
        (figures,) = (tmp_path / "tmp").iterdir()
        assert len(list(figures.glob("gauge_livesum_*.db"))) == WORKERS
        shutil.rmtree(figures)  # as cleaners of temporary folders do
        for i in range(12):  # labels that were never counted need a new file
            body = {"model": "drug:query" if i % 2 else "drug", "input": "a"}
            said = httpx.post(
                f"http://127.0.0.1:{server.port}/v1/embeddings", json=body, timeout=PATIENCE
            )
            assert said.status_code == 200
        told = httpx.get(f"http://127.0.0.1:{server.port}/metrics", timeout=PATIENCE)
        assert told.status_code == 200
        server.process.kill()
        _, alive = psutil.wait_procs(running, timeout=PATIENCE)
        for one in alive:
            one.kill()
        assert not alive
        assert not list((tmp_path / "tmp").iterdir())  # figures that were left behind
    finally:
        for process in (server, upstream):
            process.end()


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


def bind_and_listen(one: socket.socket, port: int) -> None:
    one.bind(("127.0.0.1", port))
    one.listen()


@pytest.mark.skipif(sys.platform != "linux", reason="sockets are claimed on Linux")
def test_an_address_is_free_again_at_once() -> None:
    with socket.socket() as former:
        former.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bind_and_listen(former, 0)
        port = former.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            former.accept()[0].close()  # who closes first keeps the address for a minute
            assert client.recv(1) == b""
    with socket.socket() as careless, pytest.raises(OSError, match="in use"):
        bind_and_listen(careless, port)  # control
    settings = ServeSettings({"drug": PolicySettings("drug.vecveil")}, port=0, workers=WORKERS)
    with bound("127.0.0.1", port) as address, _Workers(settings, address, "none")._socket() as one:
        one.listen()
    with bound("127.0.0.1", port) as address:
        asyncio.run(announced_on(address))


async def announced_on(address: socket.socket) -> None:
    """Start a server on the address, and end it."""
    told: list[bool] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("nobody asks")

    config = uvicorn.Config(application, log_config=None, lifespan="off")
    server = AnnouncingServer(config, lambda: told.append(True))
    server.should_exit = True
    await server.serve(sockets=[address])
    assert told == [True]


@pytest.mark.skipif(sys.platform != "linux", reason="sockets are claimed on Linux")
@pytest.mark.parametrize("workers", [1, WORKERS])
def test_an_address_is_ours_before_anybody_listens(workers: int) -> None:
    # Two servers that start together: encoders load for seconds, in which nobody listens.
    settings = ServeSettings({"drug": PolicySettings("drug.vecveil")}, port=0, workers=workers)
    with bound("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    with socket.socket() as rival, bound("127.0.0.1", port) as address:
        assert address.getsockname()[1] == port
        rival.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.ExitStack() as stack:
            if workers > 1:
                ours = _Workers(settings, address, "none")
                for one in (ours._socket(), ours._socket()):
                    stack.enter_context(one).listen()
            with pytest.raises(InvalidInputError, match="Choose another --port"):
                bound("127.0.0.1", port)
            with pytest.raises(OSError, match="in use"):
                bind_and_listen(rival, port)


@pytest.mark.skipif(sys.platform != "linux", reason="sockets are claimed on Linux")
def test_of_two_that_have_bound_an_address_one_claims_it() -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        with (
            bound("127.0.0.1", other.getsockname()[1]),  # neither listens
            pytest.raises(OSError, match="in use"),
        ):
            other.listen()


def test_routes_that_keep_something_are_for_one_worker() -> None:
    settings = ServeSettings({"drug": PolicySettings("drug.vecveil")}, workers=WORKERS)
    with pytest.raises(InvalidInputError, match="routers"):
        serving.run(settings, routers=lambda service: [])


@pytest.mark.parametrize(
    ("ran", "last", "pause"),
    [(1.0, 0.0, 1.0), (1.0, 1.0, 2.0), (1.0, 32.0, 60.0), (1.0, 60.0, 60.0), (61.0, 60.0, 0.0)],
)
def test_what_ends_again_and_again_is_started_less_and_less_often(
    ran: float, last: float, pause: float
) -> None:
    assert pause_before_next(ran, last) == pause


def test_cores_are_divided() -> None:
    assert share_of_cores(1) >= 1
    assert share_of_cores(10_000) == 1
    assert share_of_cores(1) == len(psutil.Process().cpu_affinity())
