"""SPARSE, Table 11 and appendix G: the time to protect a vector, and to train the mask."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from research.bench import Bench
from research.catalogue.latency_summary import latency_summary
from research.catalogue.mask_options import mask_options
from research.catalogue.timing import interleaved, relative_to
from research.experiment import Cell, Experiment, Records
from research.specification import Spec
from research.summary import Summary
from vecveil.errors import InvalidInputError
from vecveil.protector import Protector, fit_pairs
from vecveil.runtime import thread_count
from vecveil.sensitivity.hard_concrete import fit_hard_concrete_mask
from vecveil.types import Embeddings

__all__ = ["BASE", "Latency", "LatencySpec"]

BASE = "laplace"
FITTED = (
    400  # made-up pairs that the protectors are fitted on: noise costs the same whatever they were
)
SETTING = {"rank": 1 / 5, "kept": 1 / 3}  # of the dimensions, of the subspace method
KNOWN = ("laplace", "purkayastha", "sparse", "subspace", "gaussian", "covariance")


@dataclass(frozen=True, kw_only=True)
class LatencySpec(Spec):
    """What is timed.

    Attributes:
        methods: of the protectors; ``laplace``, which the others are compared with, is always timed.
        dimensions: of the vectors.
        batches: vectors in one call; 1 is a query.
        repeats: rounds, in each of which every method is timed.
        vectors: protected by each method in one round, in calls of a batch: so many, and at least one call.
        mask_pairs: sizes of the mask trainings that are compared.
        mask_repeats: rounds of these.
        mask: options of the mask training, in place of the published ones.
    """

    methods: tuple[str, ...] = KNOWN
    dimensions: tuple[int, ...] = (384, 768)
    batches: tuple[int, ...] = (1, 100, 10_000)
    repeats: int = 9
    vectors: int = 500
    mask_pairs: tuple[int, ...] = (10_000, 20_000)
    mask_repeats: int = 3
    mask: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.methods:
            if name not in KNOWN:
                wanted = "of " + ", ".join(KNOWN)
                raise InvalidInputError.of("experiment", "methods", wanted, repr(name)[:60])
        mask_options(self.mask)


class Latency(Experiment):
    """Cells that time all methods at one dimension and batch, and cells that time the training."""

    name = "latency"
    what = "Time to protect a vector, alone and in batches, and to train SPARSE's mask."
    source = "SPARSE, Table 11 and Appendix G"
    spec_type = LatencySpec
    alone = True

    def cells(self, spec: Spec) -> list[Cell]:
        """Return the cells; those that train need a problem."""
        assert isinstance(spec, LatencySpec)
        found = [
            Cell.of(what="protect", dimension=dimension, batch=batch, seed=seed)
            for seed in range(spec.seeds)
            for dimension in spec.dimensions
            for batch in spec.batches
        ]
        for seed in range(spec.seeds):
            found += [Cell.of(what="train", problem=name, seed=seed) for name in spec.problems]
        return found

    def settings(self, spec: Spec, cell: Cell) -> dict[str, Any]:
        """Return what decides a cell."""
        assert isinstance(spec, LatencySpec)
        found = super().settings(spec, cell)
        del found["attacks"]
        if cell["what"] == "protect":
            del found["encoder"]
            own: dict[str, Any] = {
                "methods": list(spec.methods),
                "repeats": spec.repeats,
                "vectors": spec.vectors,
            }
        else:
            own = {
                "pairs": list(spec.mask_pairs),
                "repeats": spec.mask_repeats,
                "mask": dict(spec.mask),
            }
        return {**found, **own}  # fmt: skip

    def measure(self, spec: Spec, cell: Cell, bench: Bench) -> dict[str, Any]:
        """Return seconds and ratios."""
        assert isinstance(spec, LatencySpec)
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
        calls = {name: _call(protector, X) for name, protector in made.items()}
        loops = max(1, spec.vectors // batch)
        seconds = interleaved(calls, repeats=spec.repeats, loops=loops)
        return {
            "methods": relative_to(seconds, BASE), "repeats": spec.repeats, "loops": loops, "batch": batch,
            "threads": thread_count(),
        }  # fmt: skip

    def summary(self, spec: Spec, records: Records) -> Summary:
        """Return the times beside the paper's, as ratios to Laplace, and the training's growth."""
        assert isinstance(spec, LatencySpec)
        return latency_summary(records)


def _call(protector: Protector, X: Embeddings) -> Any:
    return lambda: protector.protect(X)


def _unit(X: Embeddings) -> Embeddings:
    return np.ascontiguousarray(X / np.linalg.norm(X, axis=1, keepdims=True))


def _protector(method: str, n: int, seed: int) -> Protector:
    """Return a protector fitted on made-up pairs, with unequal weights and a map where its method has them."""
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
    return fit_pairs(
        positive, negative, method=method, noise_to_signal=1.0, seed=seed, show_progress=False, **options
    )  # fmt: skip


def _training(spec: LatencySpec, bench: Bench, name: str, seed: int) -> dict[str, Any]:
    problem = bench.problem(name)
    encode = bench.encoder().encode
    P, N = (
        np.asarray(encode(side))
        for side in (problem.matches.positives(), problem.matches.negatives())
    )
    rng, options = np.random.default_rng([seed, 33]), mask_options(spec.mask)  # fmt: skip
    rows = {
        count: rng.permutation(len(P))[:count] if count <= len(P) else rng.integers(0, len(P), count)
        for count in spec.mask_pairs
    }  # fmt: skip
    calls = {str(count): _train(P[own], N[own], options, seed) for count, own in rows.items()}
    first = str(spec.mask_pairs[0])
    # Training runs on one thread: its processor time is the time that it takes where nothing else runs.
    seconds = interleaved(calls, repeats=spec.mask_repeats, clock=time.process_time)
    return {
        "pairs": relative_to(seconds, first),
        "distinct": len(P),
        "dimension": P.shape[1],
        "epochs": options.epochs,
        "batch_size": options.batch_size,
        "repeats": spec.mask_repeats,
    }


def _train(P: Embeddings, N: Embeddings, options: Any, seed: int) -> Any:
    return lambda: fit_hard_concrete_mask(P, N, options, seed=seed, show_progress=False)
