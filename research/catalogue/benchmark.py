"""The benchmark: frozen tasks and attackers, every method of the package, and submitted methods."""

from __future__ import annotations

import contextlib
import hashlib
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from research import tables as draw
from research.bench import Bench
from research.catalogue.other_texts import halves, rows_of_halves
from research.catalogue.sealed_search import Collection
from research.datasets import open_dataset
from research.datasets.kinds import RetrievalSet
from research.experiment import Cell, Experiment, Records, note
from research.points import protector_record, utility, utility_record
from research.results import Number, Summary, Table, number
from research.scales import parse_scale
from research.specification import Spec, Whole, digest, import_file, wrong
from research.tasks import read_task
from research.word_split import WordSplit, encoded_rows, leaks
from vecveil.auditing.metrics import UtilityTask
from vecveil.errors import DataFileError
from vecveil.privacy.concepts import Concept
from vecveil.privacy.protector.methods import METHODS, TEXT_METHODS
from vecveil.types import Embeddings

FUNCTIONS = ("fit", "protect", "guarantee")  # of a submitted method
STRENGTHS = (1e-4, 1e4)  # bounds of the search for a submitted method's strength
STEPS = 24  # halvings of that interval on a logarithmic scale


class BenchmarkSpec(Spec, frozen=True, kw_only=True):
    """The tasks, the methods at their scales, and submitted methods.

    Attributes:
        listed: share of the concept's words that a method knows.
        least: minimum number of training texts of a word that attackers learn.
        targets: shares of the similarity that methods with a free strength keep.
        methods: methods of the package and their scales; a method without scales takes the targets.
        search: retrieval set to search among released vectors.
        candidates: rows that a sealed search opens.
        submitted: file of a submitted method -> SHA-256 of its text.
        checksums: hash of each problem's data; a run on other data fails.
    """

    listed: float = 0.75
    least: Whole = 10
    targets: tuple[float, ...] = (0.98, 0.95, 0.9)
    methods: dict[str, tuple[str, ...]] = {}
    search: str = "cranfield"
    candidates: Whole = 200
    submitted: dict[str, str] = {}
    checksums: dict[str, str] = {}

    def __post_init__(self) -> None:
        for name, scales in self.methods.items():
            if name not in {"none", *METHODS, *TEXT_METHODS}:
                raise wrong("methods", f"`methods`: {repr(name)[:60]} is none of `vecveil methods`.")
            for scale in scales:
                parse_scale(scale)
        names = [*self.methods, *(Path(file).name for file in self.submitted)]
        if len(set(names)) < len(names):
            raise wrong("submitted", "`submitted` has a file with the name of another method. Rename it.")

    def file(self, method: str) -> str | None:
        """Return the file of a submitted method, by its name in the cells."""
        return next((file for file in self.submitted if Path(file).name == method), None)

    def scales(self, method: str) -> list[str]:
        """Return the scales of a method; a submitted one takes the targets."""
        return list(self.methods.get(method, ())) or [f"utility {t:g}" for t in self.targets]


class SubmittedMethod:
    """A submitted method at one strength, with the part of a protector's interface that attackers and tasks use."""

    rewriter = None

    def __init__(self, module: Any, state: Any, strength: float) -> None:
        self._module, self._state, self.strength = module, state, strength

    def protect(self, X: Embeddings, rng: np.random.Generator | None, **_: Any) -> Embeddings:
        """Return the released vectors; they must be finite, a row for each row of ``X``."""
        Y = np.asarray(self._module.protect(self._state, X, strength=self.strength, rng=rng))
        if Y.ndim != 2 or len(Y) != len(X) or not np.isfinite(Y).all():
            text = f"`protect` returned shape {Y.shape}; it returns finite vectors, a row for each row of X."
            raise wrong("protect", text)
        return Y.astype(X.dtype, copy=False)

    def release(self) -> Callable[[Embeddings, np.random.Generator], Embeddings]:
        return self.protect

    def released_noise_covariance(self) -> None:
        """Return None: attackers estimate the noise from releases that they draw."""

    @property
    def guarantee(self) -> str:
        return str(self._module.guarantee(self._state, strength=self.strength))


def submitted_module(file: str, checksum: str) -> Any:
    """Import a submitted method; raise `DataFileError` if the file is missing, changed, or lacks a function."""
    if not Path(file).is_file() or checksum != file_checksum(Path(file)):
        raise DataFileError(
            f"benchmark: {Path(file).name!r} is missing, or has changed since the run was specified (`submitted`). "
            "Pass the file with --method again.",
            param="submitted",
        )
    try:
        module = import_file(Path(file).resolve())
    except (Exception, SystemExit) as error:
        text = f"benchmark: importing {Path(file).name!r} (`submitted`) raised {type(error).__name__}."
        raise DataFileError(text, param="submitted") from error
    missing = [name for name in FUNCTIONS if not callable(getattr(module, name, None))]
    if missing:
        raise DataFileError(
            f"benchmark: {Path(file).name!r} (`submitted`) lacks the function {missing[0]}; it needs "
            f"{', '.join(FUNCTIONS)}.",
            param="submitted",
        )
    return module


def file_checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def strength_for(module: Any, state: Any, task: UtilityTask, target: float, seed: int) -> SubmittedMethod:
    """Return the method at the largest strength that keeps ``target`` of a task's clean figure.

    Every step draws the same noise, so that the share kept falls with the strength.

    Raises:
        InvalidInputError: even the least strength keeps less.
    """
    clean = task.clean().value

    def kept(strength: float) -> float:
        own = SubmittedMethod(module, state, strength)
        drawn = [
            task.protected(lambda X, rng: own.protect(X, rng), np.random.default_rng([seed, draw])) for draw in range(3)
        ]
        return statistics.fmean(one.value for one in drawn) / clean

    low, high = map(math.log, STRENGTHS)
    if kept(math.exp(low)) < target:
        text = f"`protect` keeps less than {target:.0%} of the similarity even at strength {STRENGTHS[0]:g}."
        raise wrong("protect", text)
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if kept(math.exp(middle)) >= target else (low, middle)
    return SubmittedMethod(module, state, math.exp(low))


class Benchmark(Experiment[BenchmarkSpec]):
    """Cells with the axes problem, method, scale and seed."""

    name = "benchmark"
    what = "Frozen tasks and attackers: every method here at three strengths, and methods that others submit."
    source = "own"
    spec_type = BenchmarkSpec

    def cells(self, spec: BenchmarkSpec) -> list[Cell]:
        return [
            Cell.of(problem=problem, method=method, scale=scale, seed=seed)
            for seed in range(spec.seeds)
            for problem in spec.problems
            for method in ("none", *(m for m in spec.methods if m != "none"), *map(_file_name, spec.submitted))
            for scale in (["clean"] if method == "none" else spec.scales(method))
        ]

    def settings(self, spec: BenchmarkSpec, cell: Cell) -> dict[str, Any]:
        method = METHODS.get(cell["method"])
        return {
            **super().settings(spec, cell),
            "words": [spec.listed, spec.least],
            "search": [spec.search, spec.candidates],
            "revision": 1 if method is None else method.revision,
            "submitted": spec.submitted.get(spec.file(cell["method"]) or ""),
        }

    def data_digest(self, spec: BenchmarkSpec, bench: Bench, cell: Cell) -> str | None:
        own, search = super().data_digest(spec, bench, cell), bench.task_digest(spec.search)
        checksum = digest([own, search])
        expected = spec.checksums.get(cell["problem"], checksum)
        if checksum != expected:
            sets = ", ".join((*spec.problem(cell["problem"]).data, bench.utility_of(cell["problem"]), spec.search))
            raise DataFileError(
                f"benchmark: `data` differs from the data sets that the benchmark froze ({sets}): checksum {checksum}, "
                f"not {expected}. Their rows could not be compared. Fetch them as docs/benchmark.md says.",
                param="data",
            )
        return checksum

    def prepare(self, spec: BenchmarkSpec, bench: Bench, cells: Sequence[Cell]) -> None:
        super().prepare(spec, bench, cells)
        if cells:  # every worker searches the collection: encode it once, before they start
            _collection(spec.search, bench)

    def measure(self, spec: BenchmarkSpec, cell: Cell, bench: Bench) -> dict[str, Any]:
        name, seed, method = cell["problem"], cell["seed"], cell["method"]
        held = bench.once(
            ("benchmark", name, seed),
            lambda: WordSplit(bench.problem(name), bench.encoder(), seed, listed=spec.listed, least=spec.least),
        )
        task, judged = halves(bench.task(bench.utility_of(name), held.encoder))
        scale = parse_scale(cell["scale"])
        collection = bench.once(("collection", spec.search), lambda: _collection(spec.search, bench))
        if method in TEXT_METHODS:
            return _rewritten(spec, bench, held, judged, method, collection)
        if (file := spec.file(method)) is not None:
            module = submitted_module(file, spec.submitted[file])
            own: Any = strength_for(module, _fitted(module, held), task, scale.value, seed)
            record: dict[str, Any] | None = {"strength": own.strength, "guarantee": own.guarantee}
        else:
            own = None
            if method != "none":
                own = held.fitted(method, held.concept(held.listed), utility=task, **scale.arguments(method))
            record = protector_record(own)
        return {
            **leaks(held, own, spec.attacks),
            "utility": utility(judged, own, seed),
            "search": _searched(collection, own, spec.candidates, seed),
            "protector": record,
        }

    def summary(self, spec: BenchmarkSpec, records: Records) -> Summary:
        tables = [_overall(records), *(_table(name, own) for (name,), own in records.each("problem"))]
        return Summary(tables=tables, notes=[ABOUT])


def _fitted(module: Any, held: WordSplit) -> Any:
    """Return the state of a submitted method, fitted on what `vecveil.fit` learns from."""
    matches = held.concept(held.listed).find(held.texts, show_progress=False)
    positive, negative, background = (
        held.encoder.encode(texts)
        for texts in (matches.positives(), matches.negatives(), [held.texts[i] for i in matches.without_concept])
    )
    labels, _ = matches.token_labels(min_count=3)
    return module.fit(positive, negative, background, labels, seed=held.seed)


def _rewritten(
    spec: BenchmarkSpec, bench: Bench, held: WordSplit, judged: UtilityTask, method: str, collection: Collection
) -> dict[str, Any]:
    """Return the result of a method that rewrites the listed words before texts are encoded."""
    terms = Concept.from_terms(held.problem.name, sorted(held.listed))
    own = held.fitted(method, terms)

    def encode(texts: Sequence[str]) -> Embeddings:
        found: Embeddings = held.encoder.encode(own.rewrite(list(texts)))
        return found

    def judged_half(texts: Sequence[str]) -> Embeddings:
        return encoded_rows(rows_of_halves(len(texts))[1], texts, encode)

    _, changed = halves(read_task(bench.utility_of(held.problem.name), bench.data, judged_half))
    store, sent = encode(collection.document_texts), encode(collection.query_texts)
    return {
        **leaks(held.rewritten(own), None, spec.attacks),
        "utility": utility_record(changed.clean(), judged.clean()),
        "search": collection.shares(sent, store, spec.candidates),
        "protector": {"guarantee": "none"},
    }


def _collection(name: str, bench: Bench) -> Collection:
    found = open_dataset(name, bench.data)
    if not isinstance(found, RetrievalSet):
        raise wrong("search", f"`search`: the data set {repr(name)[:60]} has no queries.")
    return Collection(found, bench.encoder().encode, np.empty((0, 0)), ())


def _searched(one: Collection, own: Any, candidates: int, seed: int) -> dict[str, Any]:
    store, sent = one.documents, one.queries
    if own is not None:
        rng = np.random.default_rng([seed, 31])
        store, sent = own.protect(store, rng), own.protect(sent, rng)
    return one.shares(sent, store, candidates)


ABOUT = note("benchmark")


def _file_name(file: str) -> str:
    return Path(file).name


def _name(method: str) -> str:
    return Path(method).stem if method.endswith(".py") else draw.method_name(method)


def _table(problem: str, records: Records) -> Table:
    columns = [draw.axis("Method", 0, _name), draw.axis("Strength", 1)]
    for kind, title in (("listed", "Listed words"), ("unseen", "Unlisted words")):
        columns += [draw.estimate(title, kind), draw.percent("Chance", kind, "chance")]
    columns += [
        draw.percent("Similarity kept", "utility", "relative"),
        draw.estimate("nDCG@10, store alone", "search", "alone"),
        draw.estimate("nDCG@10, ranked exactly", "search", "ranked"),
        draw.column("Guarantee", lambda key, rows: _guarantees(rows), text=True),
    ]
    return draw.table(problem, records.each("method", "scale"), columns)


def _guarantees(records: Records) -> str:
    kinds = [(row["found"]["protector"] or {}).get("guarantee", "none") for row in records]
    return ", ".join(dict.fromkeys(kinds))


def _overall(records: Records) -> Table:
    """Return the table over all problems: excess over chance as a share of clean vectors', mean over problems."""

    def share(kind: str) -> Callable[[tuple[Any, ...], Records], Number | None]:
        def of(key: tuple[Any, ...], rows: Records) -> Number | None:
            found = []
            for (problem,), own in rows.each("problem"):
                clean = records.where(problem=problem, method="none")
                found += draw.excess_shares(own, clean, kind)
            return number([statistics.fmean(found)], digits=0) if found else None

        return of

    def mean(*path: str) -> Callable[[tuple[Any, ...], Records], Number | None]:
        def of(key: tuple[Any, ...], rows: Records) -> Number | None:
            with contextlib.suppress(statistics.StatisticsError):
                return number([statistics.fmean(rows.figures(*path))])
            return None

        return of

    columns = [
        draw.axis("Method", 0, _name),
        draw.axis("Strength", 1),
        draw.column("Listed words, of clean vectors' excess over chance", share("listed"), "%"),
        draw.column("Unlisted words, of clean vectors' excess", share("unseen"), "%"),
        draw.column("Similarity kept", mean("utility", "relative"), "%"),
        draw.column("nDCG@10, store alone", mean("search", "alone", "value"), "%"),
        draw.column("nDCG@10, ranked exactly", mean("search", "ranked", "value"), "%"),
    ]
    return draw.table("All problems", records.each("method", "scale"), columns)
