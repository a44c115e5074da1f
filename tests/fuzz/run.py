"""The long run behind ``make fuzz``: every target in a process of its own, and the HTTP API by its schema.

``python tests/fuzz/run.py --inputs 100000 --scratch build/fuzz`` says for each target how many inputs were tried and
with what, and fails if one of them found something or if fewer were tried than asked.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]


def environment(tools: str) -> dict[str, str]:
    found = {
        **os.environ,
        "PYTHONPATH": str(TESTS),
        "FUZZ_TOOLS": tools,
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
    }
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--http", type=int, default=300, help="examples for each operation")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 2**31)
    parser.add_argument("--scratch", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--tools", default="", help="folder with atheris and schemathesis")
    parser.add_argument("--only", nargs="*", help="targets; all if left out")
    parser.add_argument("--plain", action="store_true", help="without atheris")
    given = parser.parse_args()
    sys.path.insert(0, str(TESTS))
    from fuzz.targets import TARGETS

    names = given.only or [*TARGETS]
    whole = sum(TARGETS[name].share for name in names)
    given.scratch.mkdir(parents=True, exist_ok=True)
    tried, failed, engines = 0, [], set()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as corpora:
        for name in names:
            runs = math.ceil(given.inputs * TARGETS[name].share / whole)
            words = [sys.executable, "-m", "fuzz.one", name, str(runs), str(given.seed), corpora]
            started = time.monotonic()
            done = subprocess.run(
                words + ["--plain"] * given.plain,
                env=environment(given.tools),
                check=False,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            told = [line for line in done.stdout.splitlines() if line.startswith('{"target"')]
            if done.returncode or not told:
                failed.append(name)
                kept = [one for one in Path(corpora).glob(f"{name}-*") if one.is_file()]
                for one in kept:
                    (given.scratch / one.name).write_bytes(one.read_bytes())
                print(f"{name}: FOUND something; inputs in {given.scratch}\n{done.stdout[-4000:]}")
                continue
            record = json.loads(told[-1])
            tried += record["inputs"]
            engines.add(record["engine"])
            print(
                f"{name}: {record['inputs']:,} inputs, {record['accepted']:,} accepted, "
                f"{record['engine']}, {time.monotonic() - started:.0f} s",
                flush=True,
            )
    if not given.only:
        words = [sys.executable, "-m", "fuzz.api", str(given.http), str(given.seed)]
        done = subprocess.run(words, env=environment(given.tools), check=False)
        if done.returncode == 3:
            print("HTTP API: NOT fuzzed by its schema: schemathesis is not installed")
        elif done.returncode:
            failed.append("http")
    print(f"{tried:,} inputs in all with {', '.join(sorted(engines)) or 'nothing'}")
    if "mutations" in engines:
        print("atheris is not installed: inputs were mutated without looking at coverage")
    if failed:
        print(f"found something: {', '.join(failed)}")
    return 1 if failed or (not given.only and tried < given.inputs) else 0


if __name__ == "__main__":
    sys.exit(main())
