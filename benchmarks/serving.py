"""What the server costs beside its upstream, and whether it holds under load.

    python benchmarks/serving.py [--requests 2000] [--load 20000] [--clients 64] [--only cost load]

``cost``: the upstream is a process of its own. Requests of one text go to it and to ``vecveil serve`` in front of it
by turns, so that whatever else the machine does meets both: the difference of the medians, and the ratio of the
throughputs of 16 clients. The upstream is MiniLM on the same cores, with fresh noise, which is the default, and with
keyed noise (``cost_keyed``); and one that takes 20 ms without using them, as one on another machine does
(``cost_elsewhere``, ``cost_elsewhere_keyed``), and one that answers at once (``cost_at_once``,
``cost_at_once_keyed``): what is in front of that is always busy, as under load, and finds its code and data in the
processor's caches, which a request that comes alone does not.

``load``: many clients while the upstream is slowed and killed; every answer is compared with what the policy lets out
(keyed noise, so that it is known), or is an error in OpenAI's shape. A wrong answer ends the run with exit code 1.

Writes ``benchmarks/results/serving.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from serving_upstream import DIMENSION, Hashed

import vecveil
from vecveil.atomic import write_text
from vecveil.demo.corpus import CONCEPT_FILE, load_notes
from vecveil.encoders.probe import probe_cosines
from vecveil.protector import EncoderInfo
from vecveil.release_policy import ReleasePolicy

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "serving.json"
GIVEN = {"rank": 60, "kept": 128, "flattening": 0.0, "pairs": True, "noise_to_signal": 0.3}
ROUNDS = 6
THROUGHPUT_CLIENTS = 16


class Connection:
    """A client that costs little: one kept connection, one request at a time."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: bytes) -> tuple[int, bytes]:
        """Return status and body of the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self._streams
        head = (
            "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        )
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answered = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(answered.split("content-length:")[1].split("\r\n")[0])
        content = await reader.readexactly(length)
        return int(answered.split()[1]), content

    def close(self) -> None:
        """Close it."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def upstream(mode: str, port: int = 0) -> tuple[subprocess.Popen[str], int]:
    """Return the process and its port."""
    words = [sys.executable, str(HERE / "serving_upstream.py"), mode, str(port)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def server(
    folder: Path, port: int, *words: object, keyed: bool = True
) -> tuple[subprocess.Popen[str], int]:
    """Return ``vecveil serve`` in front of the upstream at ``port``, and its own port."""
    config = folder / "serve.yaml"
    config.write_text(
        f"port: 0\nupstream: {{encoder: 'http://127.0.0.1:{port}/v1#m', timeout: 5, retries: 2}}\n"
        f"policies: {{drug: {{protector: drug.vecveil{', key: noise.key' if keyed else ''}}}}}\n"
    )
    log = (folder / "log").open("w+")
    process = subprocess.Popen(
        [sys.executable, "-m", "vecveil", "serve", "--config", str(config), *map(str, words)],
        stderr=log,
        text=True,
    )
    while True:
        assert process.poll() is None, (folder / "log").read_text()
        for line in (folder / "log").read_text().splitlines():
            if '"listening"' in line:
                return process, int(json.loads(line)["url"].split(":")[2].split("/")[0])
        time.sleep(0.05)


def stop(process: subprocess.Popen[str]) -> None:
    """Kill a process of ours."""
    process.kill()
    process.wait()


def body_of(*texts: str) -> bytes:
    """Return a request for the vectors of ``texts``."""
    content = {"model": "m", "input": list(texts), "encoding_format": "base64"}
    return json.dumps(content).encode()


def processor_seconds(process: subprocess.Popen[str]) -> float:
    """Return what a process has used, which the machine's other work changes less than times."""
    used = psutil.Process(process.pid).cpu_times()
    return float(used.user + used.system)


async def cost(
    bare: int, proxy: int, requests: int, texts: list[str], process: subprocess.Popen[str]
) -> dict[str, Any]:
    """Measure both by turns."""
    one = {"bare": Connection(bare), "proxy": Connection(proxy)}
    times: dict[str, list[float]] = {"bare": [], "proxy": []}
    used = 0.0
    for i in range(requests + 50):
        if i == 50:
            used = processor_seconds(process)
        for name in ("bare", "proxy") if i % 2 else ("proxy", "bare"):
            started = time.perf_counter()
            status, _ = await one[name].post(body_of(texts[i % len(texts)]))
            assert status == 200
            if i >= 50:
                times[name].append(1000 * (time.perf_counter() - started))
    used = processor_seconds(process) - used
    seconds = {"bare": 0.0, "proxy": 0.0}
    ports = {"bare": bare, "proxy": proxy}
    share = requests // ROUNDS // THROUGHPUT_CLIENTS

    async def client(port: int, start: int) -> None:
        mine = Connection(port)
        for i in range(share):
            status, _ = await mine.post(body_of(texts[(start + 7 * i) % len(texts)]))
            assert status == 200
        mine.close()

    for turn in range(ROUNDS):
        for name in ("bare", "proxy") if turn % 2 else ("proxy", "bare"):
            started = time.perf_counter()
            await asyncio.gather(
                *(client(ports[name], 11 * c + turn) for c in range(THROUGHPUT_CLIENTS))
            )
            seconds[name] += time.perf_counter() - started
    median = {name: statistics.median(values) for name, values in times.items()}
    done = share * ROUNDS * THROUGHPUT_CLIENTS
    return {
        "requests": requests,
        "bare_p50_ms": median["bare"],
        "proxy_p50_ms": median["proxy"],
        "overhead_p50_ms": median["proxy"] - median["bare"],
        "proxy_processor_ms": 1000 * used / requests,
        "throughput_clients": THROUGHPUT_CLIENTS,
        "bare_per_second": done / seconds["bare"],
        "proxy_per_second": done / seconds["proxy"],
        "throughput_ratio": seconds["bare"] / seconds["proxy"],
    }


def minilm_protector(notes: list[str]) -> vecveil.Protector:
    """Return one as fitted behind an API: the probe alone tells its encoder."""
    concept = vecveil.Concept.from_file(CONCEPT_FILE)
    protector = vecveil.fit(notes, concept, "minilm", seed=0, show_progress=False, **GIVEN)
    probe = probe_cosines(vecveil.load_encoder("minilm").encode, owner="benchmark")
    info = EncoderInfo("minilm", protector.encoder_info.fingerprint, "api", probe)
    return replace(protector, encoder_info=info)


def hashed_protector() -> vecveil.Protector:
    """Return one of the same shape for `Hashed`."""
    rng = np.random.default_rng(0)
    negative = Hashed().encode([f"n{i}" for i in range(600)])
    moved = negative + 0.3 * rng.standard_normal((1, DIMENSION)) / np.sqrt(DIMENSION)
    protector = vecveil.fit_pairs(moved.astype(np.float32), negative, **GIVEN)
    probe = probe_cosines(Hashed().encode, owner="benchmark")
    return replace(protector, encoder_info=EncoderInfo("hashed", "hashed", "api", probe))


def measure_cost(requests: int, mode: str, *, keyed: bool) -> dict[str, Any]:
    """Return the cost in front of an upstream, with keyed noise or with fresh noise as by default."""
    notes = [note.text for note in load_notes()[:400]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        vecveil.NoiseKeys.create(folder / "noise.key", "k")
        protector = minilm_protector(notes) if mode == "minilm" else hashed_protector()
        protector.save(folder / "drug.vecveil")
        up, port = upstream(mode)
        proxy, at = server(folder, port, keyed=keyed)
        try:
            return asyncio.run(cost(port, at, requests, notes, proxy))
        finally:
            stop(proxy)
            stop(up)


class Load:
    """Many clients, an upstream in trouble, and every answer checked."""

    def __init__(self, folder: Path, clients: int, requests: int) -> None:
        self.clients, self.requests = clients, requests
        keys = vecveil.NoiseKeys.create(folder / "noise.key", "k")
        protector = hashed_protector()
        protector.save(folder / "drug.vecveil")
        self.texts = [f"text number {i}" for i in range(500)]
        self.clean = Hashed().encode(self.texts)
        policy = ReleasePolicy(protector, key=keys)
        self.expected = policy.documents(self.clean, texts=self.texts)
        self.statuses: Counter[str] = Counter()
        self.wrong = 0
        self.done = 0

    def check(self, status: int, content: bytes, at: list[int]) -> None:
        """Count an answer; anything but the policy's vectors or an error is wrong."""
        try:
            said = json.loads(content)
            if status == 200:
                rows = [
                    np.frombuffer(base64.b64decode(r["embedding"]), "<f4") for r in said["data"]
                ]
                good = np.array_equal(rows, self.expected[at])
                good = good and bool((np.array(rows) != self.clean[at]).any(axis=1).all())
            else:
                good = set(said["error"]) == {"message", "type", "param", "code"}
            self.statuses["200" if status == 200 else f"{status} {said['error']['code']}"] += 1
        except (ValueError, KeyError, TypeError):
            good = False
        self.wrong += not good

    async def client(self, port: int, start: int) -> None:
        """Send one client's share."""
        mine = Connection(port)
        for i in range(start, self.requests, self.clients):
            at = [i % 500, (7 * i + 3) % 500]
            status, content = await mine.post(body_of(*(self.texts[j] for j in at)))
            self.check(status, content, at)
            self.done += 1
            if status != 200:
                await asyncio.sleep(0.05)
        mine.close()

    async def trouble(self, up: subprocess.Popen[str], port: int) -> subprocess.Popen[str]:
        """Slow the upstream down, let it recover, kill it, start it again."""

        async def until(count: int) -> None:
            while self.done < count:
                await asyncio.sleep(0.01)

        await until(self.requests // 5)
        up.send_signal(signal.SIGUSR1)
        await asyncio.sleep(8)  # longer than the server waits
        up.send_signal(signal.SIGUSR2)
        await until(self.requests // 2)
        stop(up)
        await asyncio.sleep(2)
        again, _ = await asyncio.to_thread(upstream, "hashed", port)
        return again

    async def run(self, up: subprocess.Popen[str], port: int, proxy: int) -> Any:
        """Return the upstream that runs at the end."""
        clients = (self.client(proxy, c) for c in range(self.clients))
        found = await asyncio.gather(self.trouble(up, port), *clients)
        return found[0]


def measure_load(clients: int, requests: int) -> dict[str, Any]:
    """Return what was answered under load."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        load = Load(folder, clients, requests)
        up, port = upstream("hashed")
        proxy, at = server(folder, port)
        started = time.perf_counter()
        try:
            up = asyncio.run(load.run(up, port, at))
            seconds = time.perf_counter() - started
        finally:
            stop(proxy)
            stop(up)
        return {
            "clients": clients,
            "requests": sum(load.statuses.values()),
            "answers": dict(load.statuses.most_common()),
            "wrong": load.wrong,
            "seconds": seconds,
        }


def main() -> int:
    """Measure, write, and return 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--load", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--only", nargs="+", choices=["cost", "load"], default=["cost", "load"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    record: dict[str, Any] = json.loads(given.out.read_text()) if given.out.is_file() else {}
    before = os.getloadavg()[0]
    if "cost" in given.only:
        for suffix, mode in (("", "minilm"), ("_elsewhere", "elsewhere"), ("_at_once", "hashed")):
            for last, keyed in (("", False), ("_keyed", True)):
                measured = measure_cost(given.requests, mode, keyed=keyed)
                record[f"cost{suffix}{last}"] = {"load_before": before, **measured}
    if "load" in given.only:
        record["load"] = {"load_before": before, **measure_load(given.clients, given.load)}
    write_text(given.out, json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))
    return int(record.get("load", {}).get("wrong", 0) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
