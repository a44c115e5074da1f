"""What other packages do with the same vectors: vectors per second, as one line of JSON.

    python benchmarks/external.py NAME [--rows 200] [--dimension 768]

NAME is ``ironcore-alloy`` or ``opendp``. It needs nothing of this package and runs in an environment of
its own, which `benchmarks/mechanisms.py` makes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Callable
from importlib import metadata


def unit_rows(rows: int, dimension: int) -> list[list[float]]:
    """Return random vectors of unit norm as lists, the form that both packages take."""
    rng = random.Random(0)
    made = []
    for _ in range(rows):
        row = [rng.gauss(0, 1) for _ in range(dimension)]
        norm = sum(x * x for x in row) ** 0.5
        made.append([x / norm for x in row])
    return made


def ironcore(vectors: list[list[float]]) -> Callable[[], object]:
    """Return one call of ``encrypt_batch`` (its approximate distance-preserving encryption)."""
    import ironcore_alloy as alloy

    secret = alloy.StandaloneSecret(1, alloy.Secret(bytes(range(64))))
    vector = alloy.VectorSecret(1.0, alloy.RotatableSecret(secret, None))
    plain = alloy.StandardSecrets(None, [])
    client = alloy.Standalone(alloy.StandaloneConfiguration(plain, {}, {"path": vector}))
    who = alloy.AlloyMetadata("tenant", None, None, None, None, None, {})
    batch = {
        str(i): alloy.PlaintextVector(plaintext_vector=row, secret_path="path", derivation_path="benchmark")
        for i, row in enumerate(vectors)
    }
    return lambda: asyncio.run(client.vector().encrypt_batch(batch, who))


def opendp(vectors: list[list[float]]) -> Callable[[], object]:
    """Return one call of the vector Laplace mechanism for each row."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=len(vectors[0]))
    laplace = dp.m.make_laplace(domain, dp.l1_distance(T=float), scale=0.1)
    return lambda: [laplace(row) for row in vectors]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["ironcore-alloy", "opendp"])
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--dimension", type=int, default=768)
    arguments = parser.parse_args()
    vectors = unit_rows(arguments.rows, arguments.dimension)
    action = {"ironcore-alloy": ironcore, "opendp": opendp}[arguments.name](vectors)
    times = []
    for _ in range(3):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    record = {
        "name": arguments.name,
        "version": metadata.version(arguments.name),
        "rows": arguments.rows,
        "vectors_per_second": arguments.rows / min(times),
    }
    print(json.dumps(record))


if __name__ == "__main__":
    main()
