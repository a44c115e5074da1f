"""SPARSE, Table 11 and Appendix G: the time to protect a vector, and to train the mask."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from research import tables as draw
from research.bench import Bench
from research.experiment import Cell, Experiment, Records, note
from research.grid import mask_options
from research.judging import Measured, within
from research.published import published
from research.results import ClaimFinding, Figure, Number, Summary, Table, XAxis, YAxis, number
from research.specification import Spec, Whole, check_names
from vecveil.privacy.protector import Protector, fit_pairs
from vecveil.privacy.sensitivity.hard_concrete import fit_hard_concrete_mask
from vecveil.runtime import thread_count
from vecveil.types import Embeddings

BASE = "laplace"
# Made-up pairs that the protectors are fitted on: noise costs the same whatever they were.
FITTED = 400
SETTING = {"rank": 1 / 5, "kept": 1 / 3}  # of the dimensions, of the subspace method
KNOWN = ("laplace", "purkayastha", "sparse", "subspace", "gaussian", "covariance")


class LatencySpec(Spec, frozen=True, kw_only=True):
    """What is timed.

    Attributes:
        methods: protectors to time; ``laplace``, the reference, is always included.
        batches: vectors in one call; 1 is a query.
        repeats: rounds, each timing every method.
        vectors: vectors that a method protects in one round, in calls of a batch; at least one call.
        mask_pairs: numbers of pairs of the mask trainings.
        mask_repeats: rounds of the mask trainings.
        mask: options of the mask training that replace the published ones.
    """

    methods: tuple[str, ...] = KNOWN
    dimensions: tuple[int, ...] = (384, 768)
    batches: tuple[int, ...] = (1, 100, 10_000)
    repeats: Whole = 9
    vectors: Whole = 500
    mask_pairs: tuple[int, ...] = (10_000, 20_000)
    mask_repeats: Whole = 3
    mask: dict[str, float] = {}

    def __post_init__(self) -> None:
        check_names("methods", self.methods, KNOWN)
        mask_options(self.mask)


class Latency(Experiment[LatencySpec]):
    """Cells that time all methods at one dimension and batch, and cells that time the training of a problem's mask."""

    name = "latency"
    what = "Time to protect a vector, alone and in batches, and to train SPARSE's mask."
    source = "SPARSE, Table 11 and Appendix G"
    spec_type = LatencySpec
    alone = True

    def cells(self, spec: LatencySpec) -> list[Cell]:
        found = [
            Cell.of(what="protect", dimension=dimension, batch=batch, seed=seed)
            for seed in range(spec.seeds)
            for dimension in spec.dimensions
            for batch in spec.batches
        ]
        for seed in range(spec.seeds):
            found += [Cell.of(what="train", problem=name, seed=seed) for name in spec.problems]
        return found

    def settings(self, spec: LatencySpec, cell: Cell) -> dict[str, Any]:
        found = super().settings(spec, cell)
        del found["attacks"]
        if cell["what"] == "protect":
            del found["encoder"]
            return found | {"methods": list(spec.methods), "repeats": spec.repeats, "vectors": spec.vectors}
        return found | {"pairs": list(spec.mask_pairs), "repeats": spec.mask_repeats, "mask": dict(spec.mask)}

    def measure(self, spec: LatencySpec, cell: Cell, bench: Bench) -> dict[str, Any]:
        if cell["what"] == "train":
            return _training(spec, bench, cell["problem"], cell["seed"])
        rng = np.random.default_rng([cell["seed"], 31])
        n, batch = cell["dimension"], cell["batch"]
        names = dict.fromkeys((BASE, *spec.methods))
        made = bench.once(
            ("protectors", n, cell["seed"], tuple(names)),
            lambda: {name: _protector(name, n, cell["seed"]) for name in names},
        )
        X = _unit(rng.standard_normal((batch, n), dtype=np.float32))
        calls = {name: partial(protector.protect, X) for name, protector in made.items()}
        loops = max(1, spec.vectors // batch)
        seconds = interleaved(calls, repeats=spec.repeats, loops=loops)
        return {
            "methods": relative_to(seconds, BASE),
            "repeats": spec.repeats,
            "loops": loops,
            "batch": batch,
            "threads": thread_count(),
        }

    def summary(self, spec: LatencySpec, records: Records) -> Summary:
        protect, train = records.where(what="protect"), records.where(what="train")
        return Summary(
            tables=[
                *([_protect_table(protect)] if len(protect) else []),
                *([_train_table(train)] if len(train) else []),
            ],
            figures=[_bars(protect, n) for n in protect.values("dimension")],
            findings=_findings(protect, train),
            notes=[*published("sparse-table-11").notes, *published("sparse-training-time").notes],
        )


def _unit(X: Embeddings) -> Embeddings:
    return np.ascontiguousarray(X / np.linalg.norm(X, axis=1, keepdims=True))


def _protector(method: str, n: int, seed: int) -> Protector:
    """Return a protector fitted on synthetic pairs, with unequal weights and a map where its method has them."""
    rng = np.random.default_rng([seed, 32])
    negative = _unit(rng.standard_normal((FITTED, n), dtype=np.float32))
    moved = 0.3 * rng.standard_normal((FITTED, n), dtype=np.float32) * rng.uniform(0, 1, n)
    positive = _unit(negative + moved.astype(np.float32) / np.sqrt(n))
    options: dict[str, Any] = {}
    if method == "subspace":
        shares = {key: max(1, int(share * n)) for key, share in SETTING.items()}
        options = {**shares, "flattening": 0.6, "pairs": True, "transplants": False}
    if method == "sparse":
        options = {"epochs": 1, "stability_seeds": 1, "initial_alpha_sd": 1.0}
    if method == "covariance":
        options = {"postprocess": "none"}
    return fit_pairs(positive, negative, method=method, noise_to_signal=1.0, seed=seed, show_progress=False, **options)


def _training(spec: LatencySpec, bench: Bench, name: str, seed: int) -> dict[str, Any]:
    problem = bench.problem(name)
    encode = bench.encoder().encode
    sides = problem.matches.positives(), problem.matches.negatives()
    P, N = (np.asarray(encode(side)) for side in sides)
    rng, options = np.random.default_rng([seed, 33]), mask_options(spec.mask)
    rows = {
        count: rng.permutation(len(P))[:count] if count <= len(P) else rng.integers(0, len(P), count)
        for count in spec.mask_pairs
    }
    train = partial(fit_hard_concrete_mask, options=options, seed=seed, show_progress=False)
    calls = {str(count): partial(train, P[own], N[own]) for count, own in rows.items()}
    first = str(spec.mask_pairs[0])
    # Training runs on one thread: its processor time is its duration on an idle machine.
    seconds = interleaved(calls, repeats=spec.mask_repeats, clock=time.process_time)
    return {
        "pairs": relative_to(seconds, first),
        "distinct": len(P),
        "dimension": P.shape[1],
        "epochs": options.epochs,
        "batch_size": options.batch_size,
        "repeats": spec.mask_repeats,
    }


Clock = Callable[[], float]


def interleaved(
    calls: Mapping[str, Callable[[], Any]], *, repeats: int, loops: int = 1, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
    """Return the seconds of one call, ``repeats`` times for each name, after one call to warm up.

    Every round times all calls, each starting with a different one. ``loops`` calls are timed together.
    """
    names = list(calls)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        calls[name]()
    for turn in range(repeats):
        start = turn % len(names)
        for name in (*names[start:], *names[:start]):
            call = calls[name]
            began = clock()
            for _ in range(loops):
                call()
            seconds[name].append((clock() - began) / loops)
    return seconds


def relative_to(seconds: Mapping[str, list[float]], base: str) -> dict[str, dict[str, float]]:
    """Return for each name the median and minimum seconds, and median and range of its ratio to ``base`` in a round.

    The minimum is the cost on an idle machine.
    """
    found = {}
    for name, own in seconds.items():
        ratios = [one / other for one, other in zip(own, seconds[base], strict=True)]
        found[name] = {
            "seconds": statistics.median(own),
            "least": min(own),
            "ratio": statistics.median(ratios),
            "low": min(ratios),
            "high": max(ratios),
        }
    return found


DIFFERENCE = note("latency")
MICRO = 1e6
PROPORTIONAL = 0.25  # times that differ by less for equal pairs grow in proportion


def _methods(rows: Records) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row["found"]["methods"]))


def _micro(rows: Records, method: str, batch: int) -> list[float]:
    """Return the shortest time of one vector in each record, in microseconds."""
    return [MICRO * least / batch for least in rows.figures("methods", method, "least")]


def _ratio(rows: Records, *path: str, **options: Any) -> Number | None:
    """Return the median ratio of the rounds with their range."""
    ratio, low, high = (rows.figures(*path, key) for key in ("ratio", "low", "high"))
    return number(ratio, low=low, high=high, percent=False, digits=2, **options)


def _protect_table(records: Records) -> Table:
    base = draw.beside(["sparse-table-11"], "microseconds", method="laplace") or math.nan

    def paper(key: tuple[int, int, str]) -> float | None:
        return draw.beside(["sparse-table-11"], "microseconds", method=key[2]) if key[1] == 1 else None

    def shortest(key: tuple[int, int, str], own: Records) -> Number | None:
        return number(_micro(own, key[2], key[1]), percent=False, published=paper(key))

    def times(key: tuple[int, int, str], own: Records) -> Number | None:
        theirs = paper(key)
        return _ratio(own, "methods", key[2], published=None if theirs is None else theirs / base)

    groups = [((*key, method), own) for key, own in records.each("dimension", "batch") for method in _methods(own)]
    rounds = records[0]["found"]
    return draw.table(
        "Time to protect one vector",
        groups,
        [
            draw.column("Dimension", lambda key, _: draw.count(key[0])),
            draw.column("Vectors in a call", lambda key, _: draw.count(key[1])),
            draw.axis("Method", 2, draw.method_name),
            draw.column("One vector", shortest, "µs"),
            draw.column("Times Laplace", times),
        ],
        f"The shortest of {rounds['repeats']} rounds, in each of which all methods were timed in turn; a ratio is the "
        f"median over the rounds, its interval their range. Threads: {rounds['threads']}. Noise from the cryptographic "
        "generator, checks of input and release, and the method's map are included.",
    )


def _bars(records: Records, dimension: int) -> Figure:
    own = records.where(dimension=dimension)
    series = [
        draw.line(
            draw.method_name(method),
            ((float(batch), number(_micro(rows, method, batch))) for (batch,), rows in own.each("batch")),
            band=False,
        )
        for method in _methods(own)
    ]
    return Figure(
        f"Time of one vector, {dimension} dimensions",
        caption="By the number of vectors in one call.",
        x=XAxis("vectors in a call", log=True),
        y=YAxis("µs a vector"),
        series=series,
    )


def _train_table(records: Records) -> Table:
    groups = [
        ((name, size, own[0]["found"]), own)
        for (name,), own in records.each("problem")
        for size in own[0]["found"]["pairs"]
    ]

    def minutes(key: tuple[str, str, Mapping[str, Any]], own: Records) -> Number | None:
        paper = draw.beside(["sparse-training-time"], "minutes", samples=int(key[1]))
        values = [least / 60 for least in own.figures("pairs", key[1], "least")]
        theirs = paper if key[2]["epochs"] == 100 else None
        return number(values, percent=False, digits=3, published=theirs)

    notes = []
    if any(row["found"]["distinct"] < max(map(int, row["found"]["pairs"])) for row in records):
        notes.append(
            "Where a size exceeds the pairs of the data, pairs are drawn with replacement, at no change of time."
        )
    if any(row["found"]["epochs"] != 100 for row in records):
        notes.append(
            "With fewer epochs than the published 100, the time covers these epochs and is not compared with the paper."
        )
    return draw.table(
        "Time to train the mask",
        groups,
        [
            draw.axis("Pairs from", 0),
            draw.column("Pairs", lambda key, _: draw.count(int(key[1]))),
            draw.column("Distinct pairs", lambda key, _: draw.count(min(int(key[1]), key[2]["distinct"]))),
            draw.column("Epochs", lambda key, _: draw.count(key[2]["epochs"])),
            draw.column("Time", minutes, "min"),
            draw.column("Times the smallest", lambda key, own: _ratio(own, "pairs", key[1])),
            draw.column(
                "Time for as many pairs, times",
                lambda key, own: number([_growth(row, key[1]) for row in own], percent=False, digits=2),
            ),
        ],
        "Time: processor time on one thread, the shortest of the rounds. Times the smallest: median and range. "
        "Time for as many pairs: shortest time per pair, relative to the smallest size; 1 is growth in proportion.",
        notes,
    )


def _findings(protect: Records, train: Records) -> list[ClaimFinding]:
    rows = [
        {"dimension": dimension, "method": method, "microseconds": _measured(own, method)}
        for (dimension,), own in protect.where(batch=1).each("dimension")
        for method in _methods(own)
    ]
    only = ("sampling-costs-as-laplace", "purkayastha-is-slow")
    found = draw.findings_of("latency", rows, ("dimension", "method"), difference=DIFFERENCE, only=only)
    growths = [_growth(row, size) for row in train for size in list(row["found"]["pairs"])[1:]]
    if growths:
        growth = " to ".join(sorted({f"{one:.2f}" for one in (min(growths), max(growths))}, key=float))
        found.append(
            ClaimFinding(
                "The time to train the mask grows in proportion to the number of samples.",
                "SPARSE, Appendix G",
                within(max(growths, key=lambda one: abs(one - 1)), least=1 - PROPORTIONAL, most=1 + PROPORTIONAL),
                f"for as many pairs the larger size takes {growth} times as long",
                "25.3 minutes for 10,000, under 45 for 20,000: for as many samples 0.89 times as long",
                DIFFERENCE,
                id="training-time-is-linear",
                seeds=len(train.values("seed")),
            )
        )
    return found


def _measured(rows: Records, method: str) -> Measured:
    """Return the shortest time of one vector; its error is half the range of the ratio to Laplace over the rounds."""
    best = statistics.fmean(_micro(rows, method, 1))
    ratio, low, high = (rows.number("methods", method, key) for key in ("ratio", "low", "high"))
    spread = (high.value - low.value) / (2 * ratio.value) if ratio and low and high else 0.0
    return Measured({0: best}, best * spread)


def _growth(row: Mapping[str, Any], size: str) -> float:
    """Return the shortest time for a size, per pair, relative to that of the first size."""
    sizes = row["found"]["pairs"]
    first = next(iter(sizes))
    return float(sizes[size]["least"]) / float(sizes[first]["least"]) * int(first) / int(size)
