"""Base classes of experiments: cells, measured one by one, and a summary of their records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, final

from research.judging import Measured
from research.results import Number, Summary, number
from research.specification import Spec, digest, json_ready, load_beside
from vecveil.errors import DataFileError

if TYPE_CHECKING:
    from research.bench import Bench

Axis = str | int | float
_LARGEST = 1e300  # of a record's figures; what is larger, infinite or NaN was not measured

_NOTES: dict[str, str] = load_beside(__file__, "notes.yaml")


def note(name: str) -> str:
    """Return a note of ``notes.yaml``."""
    return _NOTES[name]


S = TypeVar("S", bound=Spec)


@dataclass(frozen=True)
class Cell:
    """One measurement, identified by its axes (problem, method, scale, seed and others); ``cell["method"]`` reads one.

    `Cell.of` makes cells.
    """

    axes: tuple[tuple[str, Axis], ...]

    @classmethod
    def of(cls, **axes: Axis) -> Cell:
        return cls(tuple(axes.items()))

    def __getitem__(self, axis: str) -> Any:
        return dict(self.axes)[axis]

    def get(self, axis: str, default: Any = None) -> Any:
        return dict(self.axes).get(axis, default)

    @property
    def name(self) -> str:
        """The values joined, for people and file names."""
        return "-".join(str(value).replace(" ", "_").replace("/", "_") for _, value in self.axes)

    def to_record(self) -> dict[str, Axis]:
        return dict(self.axes)


class Records(Sequence[Mapping[str, Any]]):
    """The records of measured cells; a row has the axes (``cell``), the result (``found``) and metadata."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = list(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def where(self, **axes: Any) -> Records:
        """Return the rows whose cell has these values."""
        return Records([r for r in self._rows if all(r["cell"].get(k) == v for k, v in axes.items())])

    def values(self, axis: str) -> list[Any]:
        """Return the values on an axis, in order of appearance."""
        return list(dict.fromkeys(r["cell"][axis] for r in self._rows if axis in r["cell"]))

    def figures(self, *path: str) -> list[float]:
        """Return the number at a path of each row's ``found``, where it exists."""
        return [value for row in self._rows if (value := number_at(row["found"], path)) is not None]

    def number(self, *path: str, **options: Any) -> Number | None:
        """Return mean and deviation over seeds of the number at a path; None where it was not measured."""
        return number(self.figures(*path), **options)

    def plain(self, *path: str, digits: int = 0, **options: Any) -> Number | None:
        """Return `number` for a quantity that is not a share."""
        return self.number(*path, digits=digits, percent=False, **options)

    def estimate(self, *path: str, **options: Any) -> Number | None:
        """Return the estimate at a path: ``value`` over seeds, or of one seed with ``low`` and ``high``."""
        value, low, high = (self.figures(*path, key) for key in ("value", "low", "high"))
        return number(value, low=low, high=high, **options)

    def measured(self, *path: str, factor: float = 1.0) -> Measured | None:
        """Return the figure at a path with its error, times ``factor``; None where it was not measured."""
        values: dict[Any, float] = {}
        halves = []
        for row in self._rows:
            value, low, high = (number_at(row["found"], (*path, k)) for k in ("value", "low", "high"))
            if value is None:
                value = number_at(row["found"], path)
            if value is not None:
                values[row["cell"].get("seed")] = factor * value
                halves.append(abs(factor) * (high - low) / 2 if low is not None and high is not None else 0.0)
        return Measured(values, sum(halves) / len(halves)) if values else None

    def each(self, *axes: str) -> Iterator[tuple[tuple[Any, ...], Records]]:
        """Yield the rows grouped by their values on some axes."""
        keys = dict.fromkeys(tuple(r["cell"].get(axis) for axis in axes) for r in self._rows)
        for key in keys:
            yield key, self.where(**dict(zip(axes, key, strict=True)))


def number_at(found: Any, path: Sequence[str]) -> float | None:
    """Return the number at a path of nested mappings, or None."""
    for key in path:
        if not isinstance(found, Mapping):
            return None
        found = found.get(key)
    is_number = isinstance(found, int | float) and not isinstance(found, bool) and -_LARGEST <= found <= _LARGEST
    return float(found) if is_number else None


class Experiment(ABC, Generic[S]):
    """One experiment: its cells, their measurement, and the summary of their records.

    Attributes:
        name: of the command.
        what: one sentence.
        source: the table or figure of a paper, or ``own``.
        version: of the measurement; raising it measures every cell again.
        alone: measure cells one after the other, as they measure time.
    """

    name: ClassVar[str]
    what: ClassVar[str]
    source: ClassVar[str]
    spec_type: ClassVar[type[Spec]] = Spec
    version: ClassVar[int] = 1
    alone: ClassVar[bool] = False

    @abstractmethod
    def cells(self, spec: S) -> list[Cell]:
        """Return every cell; cells that share a costly preparation are adjacent."""

    @final
    def distinct_cells(self, spec: S) -> list[Cell]:
        """Return every cell once; raise `DataFileError` if there is none, or if two would share a record."""
        cells = list(dict.fromkeys(self.cells(spec)))
        if not cells:
            text = f"experiment: the specification of {self.name!r} has no cells: a list in it is empty."
            raise DataFileError(text, param="name")
        ((name, times),) = Counter(cell.name for cell in cells).most_common(1)
        if times > 1:
            text = f"experiment: two cells have the name {name[:80]!r}. Rename one of what the specification names."
            raise DataFileError(text, param="name")
        return cells

    @abstractmethod
    def measure(self, spec: S, cell: Cell, bench: Bench) -> dict[str, Any]:
        """Return the JSON-ready result of a cell; the next run retries ``{"skipped": reason}``."""

    @abstractmethod
    def summary(self, spec: S, records: Records) -> Summary:
        """Return tables, figures and findings drawn from records."""

    def settings(self, spec: S, cell: Cell) -> dict[str, Any]:
        """Return the settings that determine a cell's record besides its axes: more seeds or methods repeat nothing.

        Subclasses add the settings that a cell depends on.
        """
        problems = {name: spec.problem(name) for name in self.problems(spec, cell)}
        return {
            "experiment": self.name,
            "version": self.version,
            "encoder": spec.encoder,
            "attacks": list(spec.attacks),
            "problems": {name: digest(json_ready(one)) for name, one in problems.items()},
        }

    def problems(self, spec: S, cell: Cell) -> tuple[str, ...]:
        """Return the problems that a cell needs."""
        name = cell.get("problem")
        return () if name is None else (name,)

    def detectors(self, spec: S, cells: Sequence[Cell]) -> set[str]:
        """Return the detectors of entities (`vecveil.Concept.from_entities`) that the cells need."""
        return {concept.engine for concept in spec.concepts().values() if concept.entities}

    def prepare(self, spec: S, bench: Bench, cells: Sequence[Cell]) -> None:
        """Prepare once for all cells, with a progress bar: by default, encode the problems' texts."""
        for name in dict.fromkeys(n for cell in cells for n in self.problems(spec, cell)):
            bench.encode(name)

    def data_digest(self, spec: S, bench: Bench, cell: Cell) -> str | None:
        """Return a hash of a cell's data: texts, concept, task, and an encoder that is a folder."""
        names = self.problems(spec, cell)
        return digest([bench.digest_of(name) for name in names]) if names else None
