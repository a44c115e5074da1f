"""Base class of every attack: one public method, one result, and checkpoints of what was learnt."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar, final, get_type_hints

import numpy as np

from vecveil.attacks.evidence import Evidence, Knowledge, split_groups
from vecveil.errors import DataFileError, InvalidInputError, message
from vecveil.io import atomic_path, write_text
from vecveil.metrics.estimates import Estimate
from vecveil.metrics.token_inference import TermTable
from vecveil.randomness import resolve_generator
from vecveil.types import Matrix, RandomSource, Release

__all__ = ["FAMILIES", "SCHEMA", "Attack", "AttackResult", "Checkpoint", "Finding", "Session"]

SCHEMA = "vecveil.attack/1"
_SCALARS = (bool, int, float, str, type(None))


class Checkpoint:
    """The folder of one attack.

    Args:
        folder: made, readable by its owner only, at the first write: what an attack has learnt from texts
            says something of them.
        identity: what must agree before a state is used: attack, dimensions, settings.
    """

    def __init__(self, folder: str | os.PathLike[str], identity: Mapping[str, Any]) -> None:
        self.folder = Path(folder)
        self.identity = dict(identity)

    def make(self) -> Path:
        """Return the folder, made if it is not there."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else type(error).__name__
            raise DataFileError.of("Checkpoint", "checkpoint", "a folder that can be written",
                                   f"{self.folder.name}: {reason}") from error  # fmt: skip
        return self.folder

    def begin(self) -> None:
        """Say whose the folder is before anything is learnt; what another attack has begun is refused.

        Raises:
            DataFileError: it was begun by another attack, or with other evidence, settings or seed.
        """
        path = self.make() / "begun.json"
        if path.is_file():
            try:
                found = dict(json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError, TypeError, RecursionError) as error:
                raise self._damaged() from error
            self._compare(found)
        else:
            write_text(path, json.dumps(self.identity, indent=1) + "\n")

    def _compare(self, found: Mapping[str, Any]) -> None:
        for key, wanted in self.identity.items():
            if found.get(key) != wanted:
                raise DataFileError.of("Checkpoint", "checkpoint", f"one with {key} {_short(wanted)}",
                                       f"one with {key} {_short(found.get(key))}",
                                       "What was learnt for other vectors, words or settings cannot be used here.",
                                       "Give another folder, or remove this one.")  # fmt: skip

    def load(self, kind: type[Any]) -> Any:
        """Return the finished state in the folder, or None if there is none.

        Raises:
            DataFileError: it is of another attack, dimension, vocabulary or setting, or damaged.
        """
        path = self.folder / "attack.json"
        if not path.is_file():
            return None
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            found, values = dict(record["identity"]), dict(record["values"])
            schema = record["schema"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._damaged() from error
        if schema != SCHEMA:
            raise DataFileError.of(
                "Checkpoint", "checkpoint", f"of the schema {SCHEMA!r}", repr(str(schema)[:40])
            )
        self._compare(found)
        try:
            if hasattr(kind, "load"):
                return kind.load(self.folder)
            from safetensors.numpy import load_file

            return _build(kind, load_file(str(self.folder / "state.safetensors")), values, "")
        except DataFileError:
            raise
        except Exception as error:  # safetensors and torch raise their own
            raise self._damaged() from error

    def save(self, state: Any) -> None:
        """Write ``state``, then the file that says it is finished."""
        self.make()
        values: dict[str, Any] = {}
        if hasattr(state, "save"):
            state.save(self.folder)
        else:
            arrays: dict[str, Any] = {}
            _collect(state, "", arrays, values)
            from safetensors.numpy import save_file

            with atomic_path(self.folder / "state.safetensors", mode=0o600) as temporary:
                save_file(arrays, str(temporary))
        record = {"schema": SCHEMA, "identity": self.identity, "values": values}
        write_text(self.folder / "attack.json", json.dumps(record, indent=1) + "\n")

    def _damaged(self) -> DataFileError:
        return DataFileError(
            message("Checkpoint", "checkpoint", "a folder that an attack has written",
                    f"{self.folder.name}, which cannot be read as one", fix="Remove the folder.")
        )  # fmt: skip


def _short(value: Any) -> str:
    return str(value)[:60]


def _collect(state: Any, prefix: str, arrays: dict[str, Any], values: dict[str, Any]) -> None:
    """Put the arrays and scalars of a dataclass, and of those inside it, into flat dictionaries."""
    for each in dataclasses.fields(state):
        value, name = getattr(state, each.name), prefix + each.name
        if isinstance(value, np.ndarray):
            arrays[name] = np.ascontiguousarray(value)
        elif isinstance(value, _SCALARS):
            values[name] = value
        elif isinstance(value, np.generic):
            values[name] = value.item()
        elif isinstance(value, tuple):
            values[name] = list(value)
        elif hasattr(value, "to_arrays"):
            arrays.update({f"{name}/{key}": array for key, array in value.to_arrays().items()})
        else:
            _collect(value, f"{name}.", arrays, values)


def _build(
    kind: type[Any], arrays: Mapping[str, Any], values: Mapping[str, Any], prefix: str
) -> Any:
    hints = get_type_hints(kind)
    given: dict[str, Any] = {}
    for each in dataclasses.fields(kind):
        name = prefix + each.name
        if name in arrays:
            given[each.name] = arrays[name]
        elif name in values:
            value = values[name]
            value = tuple(value) if isinstance(value, list) else value
            kind_of = hints[each.name]
            if kind_of in _SCALARS and not isinstance(value, kind_of):
                raise TypeError(name)
            given[each.name] = value
        elif hasattr(hints[each.name], "of_arrays"):
            own = {
                key[len(name) + 1 :]: a for key, a in arrays.items() if key.startswith(f"{name}/")
            }
            given[each.name] = hints[each.name].of_arrays(own)
        else:
            given[each.name] = _build(hints[each.name], arrays, values, f"{name}.")
    return kind(**given)


FAMILIES = (
    "token-inference",
    "probe",
    "candidates",
    "averaging",
    "alignment",
    "reconstruction",
    "held-out-terms",
)

Train = TypeVar("Train", bound=Evidence)
Test = TypeVar("Test", bound=Evidence)


@dataclass(frozen=True, eq=False)
class Finding:
    """What an attack found on the test vectors.

    Attributes:
        estimates: By name, the main figure first.
        terms: Counts and hits per token, for token inference.
        details: What was chosen while fitting: numbers and names only.
        examples: (original, reconstruction) pairs of texts, for reconstruction. They hold texts: nothing
            writes them down unless the user asks for it.
    """

    estimates: Mapping[str, Estimate]
    terms: TermTable | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    examples: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, eq=False)
class AttackResult:
    """What one attack found, with intervals and chance levels.

    Attributes:
        name: Unique name of the attack.
        family: One of `FAMILIES`.
        estimates: By name, the main one first: ``r_precision`` for token inference.
        terms: Counts and hits per token, in the order of the label columns; token inference only.
        adaptive: Whether the attack drew fresh releases while training.
        seconds: Wall-clock seconds of fitting and scoring.
        description: One sentence for the report.
        cost: What the attack asks of an attacker, in a few words.
        details: What was chosen while fitting.
        examples: (original, reconstruction) pairs, reconstruction only; never in a record by itself.
    """

    name: str
    estimates: Mapping[str, Estimate]
    terms: TermTable | None
    adaptive: bool
    seconds: float
    description: str
    family: str = "token-inference"
    cost: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    examples: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "estimates", MappingProxyType(dict(self.estimates)))
        object.__setattr__(self, "details", MappingProxyType(dict(self.details)))

    @property
    def main(self) -> Estimate:
        """The figure that decides how this attack compares with others of its family."""
        return next(iter(self.estimates.values()))

    @property
    def value(self) -> float:
        """The main figure on the test vectors."""
        return self.main.value

    def to_record(self, clean: AttackResult | None = None) -> dict[str, Any]:
        """Return the `attacks` entry of an audit record (docs/formats.md).

        Args:
            clean: The same attack's result on clean vectors; its figures stand beside.
        """
        first, *others = self.estimates
        return {
            "name": self.name,
            "family": self.family,
            **self._figure(first, clean),
            "n": self.main.n,
            "adaptive": self.adaptive,
            "seconds": self.seconds,
            "description": self.description,
            "cost": self.cost,
            "also": [self._figure(key, clean) for key in others],
        }

    def _figure(self, key: str, clean: AttackResult | None) -> dict[str, Any]:
        record = self.estimates[key].to_record()
        del record["n"]
        other = None if clean is None else clean.estimates.get(key)
        beside = {} if other is None else other.to_record()
        for name, source in (("clean", "value"), ("clean_low", "low"), ("clean_high", "high")):
            record[name] = beside.get(source)
        return record


@dataclass(frozen=True, eq=False)
class Session:
    """What a run hands to the fitting: randomness, the progress bar, a folder to keep checkpoints in."""

    rng: np.random.Generator
    show_progress: bool | None = None
    checkpoint: Checkpoint | None = None


class Attack(ABC, Generic[Train, Test]):
    """One attack on released vectors.

    Subclasses say who they are (`name`, `description`, `family`, `cost`, `source`), fit and judge; how the
    training texts are split, what is drawn from which seed and what a result holds is the same for all.

    Attributes:
        name: Unique; stands in reports.
        description: One sentence for the report.
        family: One of `FAMILIES`.
        cost: What the attack asks of an attacker, in a few words.
        source: The paper that the attack comes from, or the reason that it is ours.
        state_type: Class of what `_fit` returns: a dataclass of arrays and numbers (nested ones included), or
            a class with ``save(folder)`` and ``load(folder)``.
    """

    name: str
    description: str
    family: str
    cost: str
    source: str
    state_type: type[Any]
    validation_share: float = 0.1

    @final
    def run(
        self,
        train: Train,
        test: Test,
        *,
        release: Release | None = None,
        noise_covariance: Matrix | None = None,
        rng: RandomSource = 0,
        show_progress: bool | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> AttackResult:
        """Return what the attack finds in ``test`` after learning from ``train``.

        Args:
            train: Without ``release``, released vectors; with it, clean vectors, which the attack
                protects as often as it likes.
            test: Released vectors; no group may also be in ``train``.
            release: The oracle ``release(X, rng) -> Y``.
            noise_covariance: (m, m) covariance of the released noise, where a method declares it.
            rng: Seed or generator of the attack (its split, its start, its noise).
            show_progress: True or False; None shows a bar on a terminal only.
            checkpoint: Folder to keep in what was learnt. If it holds a finished attack that learnt from the same
                evidence with the same settings and seed, that is used and nothing is learnt; long training goes on
                where it was stopped.

        Raises:
            InvalidInputError: arguments that do not fit together, or training texts that form fewer than
                two groups.
            DataFileError: the checkpoint is of another attack, dimension, vocabulary or evidence, or damaged.
        """
        owner = type(self).__name__
        rng = resolve_generator(rng, owner=owner)
        knowledge = Knowledge(test.dimension, release, noise_covariance)
        knowledge.check(train, owner=owner)
        _refuse_shared_groups(train, test, owner)
        self._check(train, test, knowledge)
        started = time.perf_counter()
        split_seed = int(rng.integers(2**31))
        judge_seed = int(rng.integers(2**63))  # drawn now: the same whether it learns or not
        kept = None
        if checkpoint is not None:
            seeds = f"{split_seed} {judge_seed}"
            kept = Checkpoint(checkpoint, self._identity(train, test, knowledge, seeds))
        state = None if kept is None else kept.load(self.state_type)
        if state is None:
            groups = np.arange(len(train)) if train.groups is None else train.groups
            share = self.validation_share
            learn, held_out = split_groups(groups, (1 - share, share), seed=split_seed)
            session = Session(rng, show_progress, kept)
            if kept is not None:
                kept.begin()
            state = self._fit(train.take(learn), train.take(held_out), knowledge, session)
            if kept is not None:
                kept.save(state)
        found = self._judge(state, train, test, knowledge, np.random.default_rng(judge_seed))
        return AttackResult(
            name=self.name,
            family=self.family,
            estimates=found.estimates,
            terms=found.terms,
            adaptive=knowledge.adaptive,
            seconds=time.perf_counter() - started,
            description=self.description,
            cost=self.cost,
            details=found.details,
            examples=found.examples,
        )

    @abstractmethod
    def _fit(self, train: Train, validation: Train, knowledge: Knowledge, session: Session) -> Any:
        """Return whatever `_judge` needs; ``validation`` shares no group with ``train``."""

    @abstractmethod
    def _judge(
        self,
        state: Any,
        train: Train,
        test: Test,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> Finding:
        """Return what the fitted attack finds in ``test``; ``train`` is there for chance levels only."""

    def _check(self, train: Train, test: Test, knowledge: Knowledge) -> None:
        """Refuse evidence that this attack cannot work with; the common checks have been made."""

    def _settings(self) -> Mapping[str, Any]:
        """Return the settings that a checkpoint must agree with; numbers and strings."""
        return {k: v for k, v in sorted(vars(self).items()) if not k.startswith("_")}

    def _identity(
        self, train: Train, test: Test, knowledge: Knowledge, seeds: str
    ) -> dict[str, Any]:
        return {
            "attack": type(self).__name__,
            "dimension": test.dimension,
            **train.shape_record(),
            "settings": {key: repr(value) for key, value in self._settings().items()},
            "evidence": train.digest(),
            "knowledge": knowledge.digest(train.X),
            "seed": hashlib.sha256(seeds.encode()).hexdigest()[:16],
        }


def _refuse_shared_groups(train: Evidence, test: Evidence, owner: str) -> None:
    if train.groups is None or test.groups is None or train is test:
        return
    shared = np.intersect1d(train.groups, test.groups)
    if len(shared):
        raise InvalidInputError.of(owner, "test", "of other groups than `train`",
                                   f"{len(shared)} groups in both",
                                   "An attack that has seen a text reads it again: that is no leak.",
                                   "Split with `vecveil.attacks.split_groups`.")  # fmt: skip
