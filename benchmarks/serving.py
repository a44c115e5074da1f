"""What the server costs in front of its upstream.

    python benchmarks/serving.py [--requests 2000] [--settings cost cost_keyed ...]

The upstream is a separate process. Requests of one text go to it and to ``vecveil serve`` in front of it
by turns, so that whatever else the machine does meets both: the difference of the medians, and the ratio of the
throughputs of 16 clients. `SETTINGS` names the upstreams: MiniLM in the server's own process, against as little of
a server as there can be around MiniLM; MiniLM in another process on the same cores; one that takes 20 ms without using
them, as one on another machine does, and either varies as such a one does or takes 20 ms each time, so that all
clients march in step; and one that answers at once: what is in front of that is always busy, as under load, and
finds its code and data in the processor's caches, which a request that comes alone does not.

Writes ``benchmarks/results/serving.json``, or with some of the settings only what ``--out`` names.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from serving_processes import (
    Connection,
    behind_api,
    body_of,
    hashed_protector,
    minilm_protector,
    processor_seconds,
    server,
    stop,
    upstream,
)

import vecveil
from vecveil.cli.demo.corpus import load_notes
from vecveil.io import write_text

RESULTS = Path(__file__).parent / "results" / "serving.json"
ROUNDS = 6
FEWEST_IN_A_ROUND = 40
"""Requests of each client: the first of a connection take longer."""

THROUGHPUT_CLIENTS = 16
WARMING = 50

SETTINGS = {
    "cost_local": ("local", False, (1,)),
    "cost_local_keyed": ("local", True, (1,)),
    "cost": ("minilm", False, (1,)),
    "cost_keyed": ("minilm", True, (1,)),
    "cost_varying": ("varying", False, (1, 2)),
    "cost_varying_keyed": ("varying", True, (1, 2)),
    "cost_step": ("elsewhere", False, (1, 2)),
    "cost_step_keyed": ("elsewhere", True, (1, 2)),
    "cost_at_once": ("hashed", False, (1,)),
    "cost_at_once_keyed": ("hashed", True, (1,)),
}
"""By the names of the results: the upstream, whether noise is keyed (fresh is the default), processes of the server."""


async def cost(
    bare: int, servers: dict[int, tuple[subprocess.Popen[str], int]], requests: int, texts: list[str]
) -> dict[int, dict[str, Any]]:
    """Measure the upstream and the servers in front of it by turns.

    Args:
        bare: port of the upstream.
        servers: processes and ports by their number of workers.
    """
    ports = {0: bare, **{workers: port for workers, (_, port) in servers.items()}}
    one = {name: Connection(port) for name, port in ports.items()}
    times: dict[int, list[float]] = {name: [] for name in ports}
    used = dict.fromkeys(servers, 0.0)
    for i in range(requests + WARMING):
        if i == WARMING:
            used = {name: processor_seconds(process) for name, (process, _) in servers.items()}
        for name in turned(ports, i):
            started = time.perf_counter()
            status, _ = await one[name].post(body_of(texts[i % len(texts)]))
            assert status == 200
            if i >= WARMING:
                times[name].append(1000 * (time.perf_counter() - started))
    for name, (process, _) in servers.items():
        used[name] = processor_seconds(process) - used[name]
    seconds: dict[int, list[float]] = {name: [] for name in ports}
    share = max(FEWEST_IN_A_ROUND, requests // ROUNDS // THROUGHPUT_CLIENTS)

    async def client(port: int, start: int) -> None:
        mine = Connection(port)
        for i in range(share):
            status, _ = await mine.post(body_of(texts[(start + 7 * i) % len(texts)]))
            assert status == 200
        mine.close()

    for turn in range(ROUNDS):
        for name in turned(ports, turn):
            started = time.perf_counter()
            await asyncio.gather(*(client(ports[name], 11 * c + turn) for c in range(THROUGHPUT_CLIENTS)))
            seconds[name].append(time.perf_counter() - started)
    median = {name: statistics.median(values) for name, values in times.items()}
    done = share * ROUNDS * THROUGHPUT_CLIENTS
    return {
        name: {
            "workers": name,
            "requests": requests,
            "bare_p50_ms": median[0],
            "proxy_p50_ms": median[name],
            "overhead_p50_ms": median[name] - median[0],
            "proxy_processor_ms": 1000 * used[name] / requests,
            "throughput_clients": THROUGHPUT_CLIENTS,
            "bare_per_second": done / sum(seconds[0]),
            "proxy_per_second": done / sum(seconds[name]),
            "throughput_ratio": sum(seconds[0]) / sum(seconds[name]),
        }
        for name in servers
    }


def turned(names: Iterable[int], turn: int) -> list[int]:
    """Return the names, beginning with another one each turn."""
    given = list(names)
    at = turn % len(given)
    return given[at:] + given[:at]


def measure_cost(requests: int, mode: str, *, keyed: bool, workers: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return the cost in front of an upstream, for each number of workers."""
    notes = [note.text for note in load_notes()[:400]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        vecveil.KeyFile.create(folder / "noise.key", "k")
        local, precision = mode == "local", "auto"
        if mode in ("local", "minilm"):
            fitted = minilm_protector(notes)
            precision = fitted.encoder_info.precision  # the same in both
            protector = fitted if local else behind_api(fitted)
        else:
            protector = hashed_protector()
        protector.save(folder / "drug.vecveil")
        up, port = upstream("minilm" if local else mode, precision=precision)
        servers = {}
        try:
            for count in workers:
                servers[count] = server(folder, None if local else port, "--workers", count, keyed=keyed)
            return asyncio.run(cost(port, servers, requests, notes))
        finally:
            for process, _ in servers.values():
                stop(process)
            stop(up)


def _told(row: str, one: dict[str, Any]) -> str:
    return (
        f"{row}: {one['overhead_p50_ms']:.2f} ms added to {one['bare_p50_ms']:.1f}, "
        f"throughput {one['throughput_ratio']:.2f}"
    )


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    whole = set(given.settings) == set(SETTINGS)
    out = given.out or (RESULTS if whole else None)  # rows of several runs cannot be compared
    record: dict[str, Any] = {}
    for name in given.settings:
        mode, keyed, workers = SETTINGS[name]
        for count, one in measure_cost(given.requests, mode, keyed=keyed, workers=workers).items():
            row = name if count == 1 else f"{name}_{count}"
            record[row] = one
            print(_told(row, one), file=sys.stderr, flush=True)  # the record comes at the end
    if out:
        write_text(out, json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
