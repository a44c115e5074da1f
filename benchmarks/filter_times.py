"""What response times show a client whose API key has a forced filter about the rows of others.

    python benchmarks/filter_times.py [--rows 30000] [--own 1000] [--requests 400]

The client asks, by turns, for something that only others have and for something that nobody has: a field, a value, a
word; and searches an index with the rows of others and one without. Its filters repeat a comparison 200 times. AUC is
the chance that the longer of two times is that of what others have: .5 says nothing. The same figures for a key that
may search the whole index and sends the filter itself show what the measurement can see. The encoder answers at once
and the client runs on the same machine, which favours the client.

Writes ``benchmarks/results/filter_times.json``.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vecveil.index import SealedIndex, Sealer
from vecveil.io import write_text
from vecveil.texts.encoders.text_encoder import as_text_encoder

RESULTS = Path(__file__).parent / "results" / "filter_times.json"
KEY = bytes(range(32))
DIMENSION, REPEATED, MEANS = 64, 200, 20
FORCED, OPEN = "the-key-with-a-filter-0123456789", "the-key-without-one-0123456789"


class Encoder:
    """Hashes texts, at once."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        seeds = [int.from_bytes(text.encode()[-8:], "little") for text in texts]
        return np.array([np.random.default_rng(seed).normal(size=DIMENSION) for seed in seeds])


def fill(place: Path, own: int, others: int) -> None:
    rng = np.random.default_rng(1)
    words = [f"word{i}" for i in range(2000)]

    def rows(tenant: str, count: int, extra: dict[str, Any], marker: str) -> dict[str, Any]:
        texts = [f"{' '.join(rng.choice(words, 20))} {marker}" for _ in range(count)]
        metadata = [{"tenant": tenant, "year": 2000 + i % 20, **extra} for i in range(count)]
        return {"texts": texts, "metadata": metadata, "vectors": rng.normal(size=(count, DIMENSION))}

    with SealedIndex(place, KEY, encoder=Encoder()) as index:
        index.add(**rows("acme", own, {}, "ours"))
        if others:
            index.add(**rows("b", others, {"secret": "s", "year": 1990}, "theirs"))
        index.compact()


def serve(folder: str, port: int) -> None:
    import uvicorn

    from vecveil.gateway.server import Limits, ServeSettings, Service, create_app
    from vecveil.gateway.server.requests import ApiKeys
    from vecveil.gateway.server.server import listen, uvicorn_config
    from vecveil.gateway.server.settings import IndexGrant
    from vecveil.gateway.server.upstreams import LocalUpstream
    from vecveil.gateway.server.vector_stores import open_index

    encoder = as_text_encoder(Encoder(), cache=None)
    names = ("shared", "alone")
    indexes = [open_index(n, f"{folder}/{n}", Sealer(KEY), LocalUpstream(encoder), encoder) for n in names]
    os.environ["KEYS"] = f"{FORCED} name:acme,{OPEN} search:shared search:alone"
    keys = ApiKeys("env:KEYS", {"acme": [IndexGrant(name, {"tenant": "acme"}) for name in names]})
    limits = Limits(searches_per_minute=10**9)
    app = create_app(Service([], sealer=Sealer(KEY), indexes=indexes, limits=limits), keys=keys)
    settings = ServeSettings({}, indexes={"shared": "x"}, seal_key="x", port=port)
    uvicorn.Server(uvicorn_config(settings, app)).run(sockets=[listen(settings.host, port)])


class Client:
    def __init__(self, port: int, key: str) -> None:
        self._connection, self._key = http.client.HTTPConnection("127.0.0.1", port), key

    def seconds(self, name: str, body: dict[str, Any]) -> float:
        if self._key == OPEN:  # the filter that the other key has by force
            forced = {"type": "eq", "key": "tenant", "value": "acme"}
            filters = [forced, body["filters"]] if "filters" in body else [forced]
            body = {**body, "filters": {"type": "and", "filters": filters}}
        content = json.dumps(body)
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        started = time.perf_counter()
        self._connection.request("POST", f"/v1/vector_stores/{name}/search", content, headers)
        answer = self._connection.getresponse()
        answer.read()
        seconds = time.perf_counter() - started
        if answer.status != 200:
            raise SystemExit(f"status {answer.status}")
        return seconds


def filtered(field: str, value: Any) -> dict[str, Any]:
    comparison = {"type": "eq", "key": field, "value": value}
    return {"query": "word1 word2", "filters": {"type": "or", "filters": [comparison] * REPEATED}}


def hybrid(word: str) -> dict[str, Any]:
    return {"query": word, "ranking_options": {"hybrid_search": {"embedding_weight": 0.5, "text_weight": 0.5}}}


PAIRS: dict[str, tuple[tuple[str, dict[str, Any]], tuple[str, dict[str, Any]]]] = {
    "a field": (("shared", filtered("secret", "s")), ("shared", filtered("absent", "s"))),
    "a value": (("shared", filtered("year", 1990)), ("shared", filtered("year", 1991))),
    "a word": (("shared", hybrid("theirs")), ("shared", hybrid("nobody"))),
    "any rows": (("shared", {"query": "word1"}), ("alone", {"query": "word1"})),
}


def auc(longer: Sequence[float], shorter: Sequence[float]) -> float:
    ranks = np.argsort(np.argsort([*longer, *shorter]))[: len(longer)] + 1
    return float((ranks.sum() - len(longer) * (len(longer) + 1) / 2) / (len(longer) * len(shorter)))


def measure(port: int, key: str, requests: int) -> dict[str, dict[str, float]]:
    client, result = Client(port, key), {}
    for name, pair in PAIRS.items():
        times: tuple[list[float], list[float]] = ([], [])
        order = np.random.default_rng(0)
        for i in range(requests + 20):
            for side in order.permutation(2):
                seconds = client.seconds(*pair[side])
                if i >= 20:
                    times[side].append(seconds)
        means = [[statistics.fmean(side[i : i + MEANS]) for i in range(0, requests, MEANS)] for side in times]
        result[name] = {
            "others_ms": 1000 * statistics.median(times[0]),
            "nobody_ms": 1000 * statistics.median(times[1]),
            "spread_ms": 1000 * float(np.subtract(*np.percentile(times[1], [75, 25]))),
            "auc": auc(*times),
            f"auc_{MEANS}": auc(*means),
        }
        shown = "  ".join(f"{figure} {value:.3f}" for figure, value in result[name].items())
        print(f"{'filter by force' if key == FORCED else 'filter by the client':22}{name:10}{shown}", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--own", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--port", type=int, default=8127)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.port)
        return
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder) / "shared", given.own, given.rows)
        fill(Path(folder) / "alone", given.own, 0)
        words = [sys.executable, __file__, "--serve", folder, "--port", str(given.port)]
        process = subprocess.Popen(words)
        try:
            for _ in range(600):
                try:
                    Client(given.port, FORCED).seconds("shared", {"query": "word1"})
                    break
                except ConnectionError:
                    time.sleep(0.1)
            result = {
                "rows_of_others": given.rows,
                "own_rows": given.own,
                "requests": given.requests,
                "forced": measure(given.port, FORCED, given.requests),
                "by_client": measure(given.port, OPEN, given.requests // 4),
            }
        finally:
            process.terminate()
            process.wait()
    write_text(RESULTS, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
