"""The four-set table of TextCrafter, by one command that goes on where it was stopped.

    python -m benchmarks.textcrafter --data DIR [--part utility|sentences|all] [--seeds 5] [--workers 2]
        [--radius 1.0] [--start-from FOLDER] [--seen 10000] [--rows TRAIN TEST] [--work FOLDER]
        [--results FOLDER]

Run it in the root of the repository. DIR holds ``classification/``, ``ade/``, ``pii/``, ``concepts/sts_terms.json``
and ``lm/sentences.parquet``. ``utility`` measures accuracy and macro-F1 in both scenarios, token inference and PII
probes, for each set, defence and seed; ``sentences`` trains the sentence-level attack once for each set and main
defence, going on from the decoder in ``--start-from``, which is trained first if it is not given (about half an
hour). A cell's record is written to the work folder when the cell is done, and gathered in
``benchmarks/results/textcrafter-utility.json`` and ``textcrafter-sentences.json``, beside them the learning curves of
seed 0 in ``textcrafter-curves.json``. Started again, the command
measures what is missing. ``--rows`` with small numbers tries everything out: with another than the default of
``--rows``, ``--radius``, ``--seen``, ``--judged``, ``--seeds`` or ``--base-texts`` what is gathered goes to
``results`` in the work folder, unless ``--results`` says where.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

# Before NumPy: each worker is one process on one core.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np

import vecveil
from vecveil.progress import progress

from .defences import DEFENCES
from .reconstruction import train_base
from .run import (
    PII,
    Cell,
    Run,
    available,
    encode_all,
    gather_curves,
    leave_with,
    measure,
    train_policy,
)
from .sets import SETS
from .table import TABLES

RESULTS = Path(__file__).parents[1] / "results"
_DECIDE = ("rows", "radius", "seen", "judged", "seeds", "base_texts")  # what the figures are


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.textcrafter",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--part", choices=("utility", "sentences", "all"), default="all")
    parser.add_argument("--sets", nargs="+", choices=[*SETS, PII], default=[*SETS, PII])
    parser.add_argument("--defences", nargs="+", choices=list(DEFENCES), default=list(DEFENCES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--radius", type=float, default=1.0)
    parser.add_argument(
        "--rows", type=int, nargs=2, default=(8000, 2000), metavar=("TRAIN", "TEST")
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--start-from", type=Path, help="folder of a decoder on clean vectors")
    parser.add_argument(
        "--base-texts", type=int, default=100_000, help="sentences that it learnt, or learns, from"
    )
    parser.add_argument("--seen", type=int, default=10_000, help="texts in a decoder's training")
    parser.add_argument("--judged", type=int, default=300, help="texts that are reconstructed")
    parser.add_argument("--work", type=Path, default=Path("textcrafter-work"))
    parser.add_argument("--results", type=Path, help="where what is gathered goes")
    options = parser.parse_args(given)
    options.rows = tuple(options.rows)
    if options.results is None:  # a try-out must not take the place of the results
        usual = all(getattr(options, name) == parser.get_default(name) for name in _DECIDE)
        options.results = RESULTS if usual else options.work / "results"
    return options


def main() -> int:
    """Measure what is missing and print the tables; return 1 if a cell failed."""
    options = arguments()
    missing = [name for name in options.defences if not available(name)]
    if missing:
        print("left out, this version has no such method:", *missing, flush=True)
    run = Run(
        data=options.data, work=options.work, rows=options.rows, radius=options.radius,
        seeds=options.seeds, seen=options.seen, judged=options.judged,
        start_from=options.start_from, base_texts=options.base_texts,
    )  # fmt: skip
    chosen = [name for name in options.defences if name not in missing]
    for name, sizes in encode_all(run):
        print(name, sizes, flush=True)
    failed = 0
    with _pool(options.workers) as pool:
        if options.part in ("utility", "all"):
            failed += _policies(pool, run, chosen)
            failed += _cells(pool, run, "utility", chosen, options)
        if options.part in ("sentences", "all"):
            if run.start_from is None:
                run = _with_base(run)
            failed += _cells(pool, run, "sentences", chosen, options)
    gather_curves(run, options.results / "textcrafter-curves.json")
    for name, render in TABLES.items():
        print(f"\n## {name}\n\n{render(options.results)}")
    return 1 if failed else 0


def _pool(workers: int) -> ProcessPoolExecutor:
    # Spawned, not forked: torch and its threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(
        max(1, workers), mp_context=context, initializer=leave_with, initargs=(os.getpid(),)
    )


def _policies(pool: ProcessPoolExecutor, run: Run, chosen: Sequence[str]) -> int:
    """Train the policies that several sets share; return how many failed."""
    wanted = [
        (name, seed)
        for seed in range(run.seeds)
        for name in chosen
        if DEFENCES[name].learns == "pii"
        and seed < DEFENCES[name].seeds
        and not run.policy_path(name, seed).exists()
    ]
    futures: dict[Future[Any], str] = {
        pool.submit(train_policy, run, name, seed): f"policy {name} {seed}" for name, seed in wanted
    }
    return _wait(futures, "policies", lambda seconds: f"{seconds:.0f} s")


def _cells(
    pool: ProcessPoolExecutor,
    run: Run,
    part: str,
    chosen: Sequence[str],
    options: argparse.Namespace,
) -> int:
    """Measure the cells of a part that have no record; return how many failed."""
    store, everything = run.store(part), run.cells(part)
    done = {cell: store.get(cell.key(), run.settings(cell)) for cell in everything}
    path = options.results / f"textcrafter-{part}.json"
    more = {
        "vecveil": vecveil.__version__,
        "radius": run.radius,
        "rows": list(run.rows),
        "defences": {name: one.title for name, one in DEFENCES.items()},
    }

    def gather() -> None:
        store.gather(path, [done[cell] for cell in everything if done[cell]], **more)  # type: ignore[misc]

    futures: dict[Future[Any], str] = {}
    cells: dict[str, Cell] = {}
    for cell in everything:
        if done[cell] is None and cell.defence in chosen and cell.set in options.sets:
            name = f"{part} {cell.set} {cell.defence} {cell.seed}"
            futures[pool.submit(measure, run, cell)], cells[name] = name, cell

    def finished(record: dict[str, Any]) -> str:
        own = Cell(part, record["set"], record["defence"], record["seed"])
        done[own] = record
        gather()
        return _line(record)

    failed = _wait(futures, part, finished)
    gather()
    return failed


def _wait(futures: dict[Future[Any], str], title: str, finished: Callable[[Any], str]) -> int:
    """Report each future as it ends; return how many failed. One that fails stops no other."""
    failed, started = 0, time.perf_counter()
    bar = progress(as_completed(futures), title, total=len(futures), unit="cell")
    try:
        for number, future in enumerate(bar, start=1):
            head = f"[{time.perf_counter() - started:6.0f} s {number}/{len(futures)}]"
            try:
                line = finished(future.result())
            except Exception as error:  # one cell must not take the others with it
                failed += 1
                line = f"FAILED: {type(error).__name__}: {error}"
            print(head, futures[future], line, flush=True)
    except KeyboardInterrupt:
        for future in futures:
            future.cancel()
        raise
    return failed


def _line(record: dict[str, Any]) -> str:
    """Return a cell's main figures in a line."""
    if "figures" in record:
        shown = {name: round(one["value"], 4) for name, one in record["figures"].items()}
    elif "probes" in record:
        frozen = list(record["frozen"].values())[-1]
        shown = {**frozen, **record["probes"]}
        shown = {name: round(value, 3) for name, value in shown.items()}
    else:
        shown = {
            "norm": round(record["noise_norm"], 3),
            **{s: round(record[s]["accuracy"], 3) for s in ("deployment", "development")},
            **{k: round(v, 3) for k, v in record["token_inference"]["attacks"].items()},
        }
    return f"{shown} {record['cell_seconds']} s"


def _with_base(run: Run) -> Run:
    """Return the run with a base decoder, trained in this process unless it is there."""
    from dataclasses import replace

    folder = run.work / f"base-{run.base_texts}"
    print("base decoder:", folder, flush=True)
    train_base(run.data, folder, vecveil.load_encoder("minilm"), texts=run.base_texts)
    return replace(run, start_from=folder)


if __name__ == "__main__":
    np.seterr(all="warn")
    sys.exit(main())
