"""The processes of ``benchmarks/serving.py``: an upstream, ``vecveil serve`` in front of it, and a client of both."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
from serving_upstream import DIMENSION, Hashed

import vecveil
from vecveil.cli.demo.corpus import CONCEPT_FILE
from vecveil.privacy.protector import EncoderInfo
from vecveil.texts.encoders.text_encoder import probe_cosines

HERE = Path(__file__).parent
GIVEN = {"rank": 60, "kept": 128, "flattening": 0.0, "pairs": True, "noise_to_signal": 0.3}


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
        head = "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
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


def upstream(mode: str, port: int = 0, precision: str = "auto") -> tuple[subprocess.Popen[str], int]:
    """Return the process and its port."""
    words = [sys.executable, str(HERE / "serving_upstream.py"), mode, str(port), precision]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def server(folder: Path, port: int | None, *words: object, keyed: bool = True) -> tuple[subprocess.Popen[str], int]:
    """Return ``vecveil serve`` in front of the upstream at ``port``, or with MiniLM in it, and its own port."""
    encoder = "minilm" if port is None else f"'http://127.0.0.1:{port}/v1#m'"
    config = folder / "serve.yaml"
    config.write_text(
        f"port: 0\nupstream: {{encoder: {encoder}, timeout: 5, retries: 2}}\n"
        f"policies: {{drug: {{protector: drug.vecveil{', key: noise.key' if keyed else ''}}}}}\n"
    )
    path = folder / f"log-{len(list(folder.glob('log-*')))}"
    log = path.open("w+")
    process = subprocess.Popen(
        [sys.executable, "-m", "vecveil", "serve", "--config", str(config), *map(str, words)], stderr=log, text=True
    )
    while True:
        assert process.poll() is None, path.read_text()
        for line in path.read_text().splitlines():
            if '"listening"' in line:
                return process, int(json.loads(line)["url"].split(":")[2].split("/")[0])
        time.sleep(0.05)


def stop(process: subprocess.Popen[str]) -> None:
    """End a process of ours, and with it the workers of a server."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def body_of(*texts: str) -> bytes:
    """Return a request for the vectors of ``texts``."""
    content = {"model": "m", "input": list(texts), "encoding_format": "base64"}
    return json.dumps(content).encode()


def processor_seconds(process: subprocess.Popen[str]) -> float:
    """Return what a process and its children have used, which the machine's other work changes less than times."""
    parent = psutil.Process(process.pid)
    used = [one.cpu_times() for one in (parent, *parent.children(recursive=True))]
    return float(sum(one.user + one.system for one in used))


def minilm_protector(notes: list[str]) -> vecveil.Protector:
    """Return one for MiniLM, in whichever precision this machine is faster with."""
    concept = vecveil.Concept.from_file(CONCEPT_FILE)
    return vecveil.fit(notes, concept, "minilm", seed=0, show_progress=False, **GIVEN)


def behind_api(protector: vecveil.Protector) -> vecveil.Protector:
    """Return it as if fitted behind an API: the probe alone tells its encoder."""
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
