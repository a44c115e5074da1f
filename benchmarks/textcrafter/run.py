"""What a run is: its settings, its cells, and what a worker process does for each of them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import vecveil
from vecveil.protector.methods import METHODS
from vecveil.textcrafter.settings import PolicySettings

from .defences import DEFENCES, MADE_HERE, MAIN, Applied, load, make
from .reconstruction import corpus_keys, sentence_cell
from .sets import SETS
from .store import Store, digest
from .table import CURVES
from .utility import pii_cell, task_cell
from .vectors import Material, Pii, Task, load_pii, load_task

__all__ = [
    "PII",
    "Cell",
    "Run",
    "available",
    "encode_all",
    "gather_curves",
    "leave_with",
    "measure",
    "train_policy",
]

PII = "pii"  # the cell of the PII probes stands beside those of the sets
VERSION = 1  # of what is measured: raise it, and every cell is measured again


@dataclass(frozen=True)
class Cell:
    """One measurement: ``part`` is ``utility`` or ``sentences``."""

    part: str
    set: str
    defence: str
    seed: int

    def key(self) -> dict[str, Any]:
        """Return what its record is known by."""
        return {"set": self.set, "defence": self.defence, "seed": self.seed}


@dataclass(frozen=True)
class Run:
    """The settings of a run.

    Attributes:
        data: the data folder.
        work: records of cells, policies and decoders.
        rows: at most so many training and test rows of each set.
        radius: r, the norm of a perturbation.
        seeds: seeds of the cells of utility.
        seen: texts that a decoder goes through in fine-tuning.
        judged: test texts that are reconstructed.
        start_from: folder of the decoder that is fine-tuned.
        base_texts: it learnt from the first so many sentences.
    """

    data: Path
    work: Path
    rows: tuple[int, int] = (8000, 2000)
    radius: float = 1.0
    seeds: int = 5
    seen: int = 10_000
    judged: int = 300
    start_from: Path | None = None
    base_texts: int = 100_000

    def cells(self, part: str) -> list[Cell]:
        """Return every cell of a part, the cells of a seed and set side by side.

        In the PII cells what learns from a set's concept learns from the PII corpus.
        """
        if part == "sentences":
            return [Cell(part, name, defence, 0) for name in SETS for defence in MAIN]
        return [
            Cell(part, name, defence, seed)
            for seed in range(self.seeds)
            for name in (*SETS, PII)
            for defence, one in DEFENCES.items()
            if seed < one.seeds
        ]

    def store(self, part: str) -> Store:
        """Return where the records of a part lie."""
        return Store(self.work / part, f"vecveil.bench.textcrafter-{part}/1")

    def settings(self, cell: Cell) -> dict[str, Any]:
        """Return everything that decides a cell's record beside its key."""
        defence = DEFENCES[cell.defence]
        found: dict[str, Any] = {
            "version": VERSION,
            "rows": list(self.rows),
            "method": defence.method,
            "options": defence.options_at(self.radius, 1),
            "learns": defence.learns,
        }
        if defence.method in MADE_HERE[1:]:
            found["radius"] = self.radius
        if defence.method.startswith("textcrafter"):  # a default that changes makes another policy
            names = {field.name for field in fields(PolicySettings)} - {"device"}
            own = {k: v for k, v in found["options"].items() if k in names}
            found["options"] = {**found["options"], **PolicySettings(**own).to_record()}
        if defence.learns == "pii":
            found["relabelled"] = "presidio"
        if cell.part == "sentences":
            found |= {
                "seen": self.seen,
                "judged": self.judged,
                "started": decoder_digest(self.start_from),
            }
        return found

    def policy_path(self, name: str, seed: int) -> Path:
        """Return where the policy of a seed lies."""
        own = self.settings(Cell("utility", PII, name, seed))
        return self.work / "policies" / f"{name}-{seed}-{digest(own)}.vecveil"


def available(defence: str) -> bool:
    """Return whether this version has the method of a defence."""
    method = DEFENCES[defence].method
    return method in MADE_HERE or method in METHODS


def decoder_digest(folder: Path | None) -> str | None:
    """Return a short name of the decoder that reconstruction goes on from."""
    if folder is None:
        return None
    try:
        return digest({"decoder": (folder / "decoder.json").read_text(encoding="utf-8")})
    except OSError:
        return None


def train_policy(run: Run, name: str, seed: int) -> float:
    """Train the policy of a seed on the PII corpus, unless it is there; return the seconds it took."""
    path = run.policy_path(name, seed)
    if path.exists():
        return 0.0
    started = time.perf_counter()
    defence = make(name, _pii(run).material, run.radius, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    defence.protector.save(path)
    return time.perf_counter() - started


def gather_curves(run: Run, path: Path) -> None:
    """Write the learning curves of the policies of seed 0 as one file; nothing if none was trained."""
    found = [(name, run.policy_path(name, 0)) for name in CURVES]
    rows = [
        {"defence": name, "seed": 0, "training": load(own).protector.report["training"]}
        for name, own in found
        if own.exists()
    ]
    if rows:
        titles = {row["defence"]: DEFENCES[row["defence"]].title for row in rows}
        more = {"vecveil": vecveil.__version__, "radius": run.radius, "defences": titles}
        run.store("curves").gather(path, rows, **more)


def measure(run: Run, cell: Cell) -> dict[str, Any]:
    """Measure a cell, write its record and return it."""
    started = time.perf_counter()
    found = _part(run, cell)
    found["cell_seconds"] = round(time.perf_counter() - started, 2)
    return run.store(cell.part).put(cell.key(), run.settings(cell), found)


def _part(run: Run, cell: Cell) -> dict[str, Any]:
    if cell.set == PII:
        pii = _pii(run)
        defence = _defence(run, cell, pii.material)
        return {**pii_cell(pii, defence, cell.seed), "details": defence.details}
    task = _task(run, cell.set)
    defence = _defence(run, cell, task.material)
    if cell.part == "utility":
        sizes = {"sizes": task.to_record()}
        return {**task_cell(task, defence, cell.seed), **sizes, "details": defence.details}
    folder = run.work / "decoders" / f"{cell.set}-{cell.defence}-{digest(run.settings(cell))}"
    found = sentence_cell(
        task, defence, folder, start_from=run.start_from, seen=run.seen,
        judged=run.judged, encoder=_encoder(), seed=cell.seed, corpus=_corpus(run),
    )  # fmt: skip
    return {**found, "details": {**defence.details, **found["details"]}}


def _defence(run: Run, cell: Cell, material: Material) -> Applied:
    if DEFENCES[cell.defence].learns == "pii":
        train_policy(run, cell.defence, cell.seed)
        return load(run.policy_path(cell.defence, cell.seed))
    return make(cell.defence, material, run.radius, cell.seed)


@lru_cache(maxsize=1)
def _encoder() -> Any:
    return vecveil.load_encoder("minilm")


@lru_cache(maxsize=1)
def _corpus(run: Run) -> frozenset[str]:
    return frozenset() if run.start_from is None else corpus_keys(run.data, run.base_texts)


@lru_cache(maxsize=2)
def _task(run: Run, name: str) -> Task:
    return load_task(name, run.data, run.rows, _encoder())


@lru_cache(maxsize=1)
def _pii(run: Run) -> Pii:
    full = run.rows == Run(run.data, run.work).rows
    return load_pii(run.data, None if full else run.rows[0], _encoder())


def encode_all(run: Run) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Encode every set into the encoder's cache; yield name and sizes of each."""
    for name in SETS:
        yield name, _task(run, name).to_record()
    yield PII, _pii(run).to_record()


def leave_with(parent: int) -> None:
    """End this worker soon after its parent: a killed run must leave nothing behind."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
