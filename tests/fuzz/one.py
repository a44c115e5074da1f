"""Fuzzes one target: ``python -m fuzz.one TARGET RUNS SEED SCRATCH``, by coverage where atheris is there.

It ends with a line that tells how many inputs were tried and how many of them were accepted; a finding ends it at
once, with the input in a file of SCRATCH.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

LONGEST = 4096
SECONDS = 20
MEMORY = 4 << 30


def numbers(rng: random.Random) -> Iterator[int]:
    while True:
        yield rng.getrandbits(64)


def main() -> None:
    name, runs, seed, scratch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    sys.path += [entry for entry in os.environ.get("FUZZ_TOOLS", "").split(os.pathsep) if entry]
    try:
        import atheris
    except ImportError:
        atheris = None
    if atheris is None or "--plain" in sys.argv:
        plain(name, runs, seed, scratch)
    else:
        guided(atheris, name, runs, seed, scratch)


def tally_line(name: str, engine: str, tried: int, accepted: int) -> str:
    return json.dumps({"target": name, "engine": engine, "inputs": tried, "accepted": accepted})


def guided(atheris: object, name: str, runs: int, seed: int, scratch: Path) -> None:
    import numpy  # noqa: F401  # these are not worth measuring
    import pyarrow.parquet  # noqa: F401
    import scipy.linalg  # noqa: F401

    with atheris.instrument_imports(include=["vecveil"]):  # type: ignore[attr-defined]
        import vecveil  # noqa: F401
        from fuzz.targets import TARGETS, remove_folder

        target = TARGETS[name]
        corpus = scratch / f"{name}-corpus"
        corpus.mkdir(parents=True, exist_ok=True)
        longest = LONGEST
        for i, data in enumerate(target.seeds()):
            longest = max(longest, len(data) + 64)
            (corpus / f"seed-{i}").write_bytes(data)
            target.run(data)  # imports what the reader imports late
    seen: Counter[bool] = Counter()

    def one(data: bytes) -> None:
        seen[target.run(data)] += 1
        if sum(seen.values()) >= runs:  # libFuzzer leaves the process without unwinding
            print(tally_line(name, "atheris", runs, seen[True]), flush=True)
            remove_folder()
            os._exit(0)

    given = [
        sys.argv[0],
        str(corpus),
        f"-seed={seed}",
        f"-max_len={longest}",
        f"-timeout={SECONDS}",
        f"-rss_limit_mb={MEMORY >> 20}",
        f"-artifact_prefix={scratch}/{name}-",
        "-verbosity=0",
    ]
    atheris.Setup(given, one)  # type: ignore[attr-defined]
    atheris.Fuzz()  # type: ignore[attr-defined]


def plain(name: str, runs: int, seed: int, scratch: Path) -> None:
    import signal

    from fuzz.targets import TARGETS, mutated, remove_folder

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    target = TARGETS[name]
    rng = random.Random(f"{name} {seed}")
    draw, corpus, accepted = numbers(rng), list(target.seeds()), 0
    for _ in range(runs):
        data = mutated(rng.choice(corpus), rng.choice(corpus), draw)[: 4 * LONGEST]
        try:
            signal.alarm(SECONDS)
            if target.run(data):
                accepted += 1
                if len(corpus) < 500:
                    corpus.append(data)
        except BaseException:
            (scratch / f"{name}-finding").write_bytes(data)
            raise
        finally:
            signal.alarm(0)
    remove_folder()
    print(tally_line(name, "mutations", runs, accepted), flush=True)


if __name__ == "__main__":
    main()
