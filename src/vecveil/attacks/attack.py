"""Base class of every attack: one public method, one result, and checkpoints of the fitted state."""

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
from vecveil.errors import DataFileError, InvalidInputError
from vecveil.io import atomic_path, check_identity, checkpoint_error, make_folder, write_text
from vecveil.metrics.estimates import Estimate
from vecveil.metrics.leakage import TermTable
from vecveil.randomness import resolve_generator
from vecveil.types import Embeddings, Matrix, RandomSource, Release

FAMILIES = (
    "token-inference",
    "probe",
    "candidates",
    "averaging",
    "alignment",
    "reconstruction",
    "held-out-terms",
    "membership",
)
SCHEMA = "vecveil.attack/1"
# Values that `attack.json` keeps; arrays and nested dataclasses go elsewhere.
_SCALARS = (bool, int, float, str, type(None))

Train = TypeVar("Train", bound=Evidence)
Test = TypeVar("Test", bound=Evidence)


class Checkpoint:
    """Folder with the fitted state of one attack.

    ``attack.json`` holds the attack's identity; the state lies beside it, in ``state.safetensors`` or in files
    that the state writes itself. Reading a checkpoint cannot run code.

    Args:
        folder: Created at the first write, readable by its owner only: a state reveals something of its texts.
        identity: Attack, dimensions and settings that must agree before a state is used.
    """

    def __init__(self, folder: str | os.PathLike[str], identity: Mapping[str, Any]) -> None:
        self.folder = Path(folder)
        self.identity = dict(identity)

    def make(self) -> Path:
        """Create the folder if it does not exist and return it."""
        make_folder(self.folder)
        return self.folder

    def begin(self) -> None:
        """Write the identity, or raise `DataFileError` if the folder holds another one."""
        path = self.make() / "begun.json"
        if path.is_file():
            check_identity(self._read(path), self.identity, self.folder)
        else:
            write_text(path, json.dumps(self.identity, indent=1) + "\n")

    def load(self, kind: Any) -> Any:
        """Return the finished state of type ``kind`` (`Attack.state_type`), or None if there is none.

        Raises:
            DataFileError: the state is damaged, or of another attack, dimension, vocabulary or setting.
        """
        path = self.folder / "attack.json"
        if not path.is_file():
            return None
        record = self._read(path)
        if record.get("schema") != SCHEMA:
            schema = repr(str(record.get("schema"))[:40])
            raise checkpoint_error(f"the schema of {self.folder.name} is {schema}, not {SCHEMA!r}. Remove the folder.")
        try:
            # Compared first: the state of another attack would be reported as damaged.
            check_identity(dict(record["identity"]), self.identity, self.folder)
            if isinstance(kind, Mapping):
                parts = {name: self.part(name).load(part) for name, part in kind.items()}
                for name, part in parts.items():
                    if part is None:
                        raise checkpoint_error(f"{self.folder.name} lacks the part {name}. Remove the folder.")
                return parts
            if hasattr(kind, "load"):
                return kind.load(self.folder)
            from safetensors.numpy import load_file

            arrays = load_file(str(self.folder / "state.safetensors"))
            return _build(kind, arrays, dict(record["values"]), "")
        except DataFileError:
            raise
        except Exception as error:  # safetensors and torch raise their own exception types
            raise self._damaged() from error

    def save(self, state: Any) -> None:
        """Write ``state``, then the file that marks it as finished."""
        self.make()
        values: dict[str, Any] = {}
        if isinstance(state, Mapping):
            for name, part in state.items():
                self.part(name).save(part)
        elif hasattr(state, "save"):
            state.save(self.folder)
        else:
            from safetensors.numpy import save_file

            arrays: dict[str, Any] = {}
            _collect(state, "", arrays, values)
            with atomic_path(self.folder / "state.safetensors") as temporary:
                save_file(arrays, str(temporary))
        # Written last: a folder without `attack.json` is unfinished, and `load` returns None.
        record = {"schema": SCHEMA, "identity": self.identity, "values": values}
        write_text(self.folder / "attack.json", json.dumps(record, indent=1) + "\n")

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise self._damaged() from error

    def part(self, name: str) -> Checkpoint:
        """Return the checkpoint of a part of the state; the identity of the outer folder covers it."""
        return Checkpoint(self.folder / name, {})

    def _damaged(self) -> DataFileError:
        return checkpoint_error(f"{self.folder.name} is damaged, or no attack wrote it. Remove the folder.")


def _collect(state: Any, prefix: str, arrays: dict[str, Any], values: dict[str, Any]) -> None:
    """Put the arrays and scalars of a dataclass, and of nested ones, into flat dictionaries."""
    for each in dataclasses.fields(state):
        value, name = getattr(state, each.name), prefix + each.name
        if isinstance(value, np.ndarray):
            arrays[name] = np.ascontiguousarray(value)
        elif isinstance(value, _SCALARS):
            values[name] = value
        elif isinstance(value, np.generic):
            values[name] = value.item()
        elif isinstance(value, tuple):  # JSON has lists only; `_build` turns them back
            values[name] = list(value)
        # A state may pack its own arrays, as `Network` does.
        elif hasattr(value, "to_arrays"):
            arrays.update({f"{name}/{key}": array for key, array in value.to_arrays().items()})
        else:
            _collect(value, f"{name}.", arrays, values)


def _build(kind: type[Any], arrays: Mapping[str, Any], values: Mapping[str, Any], prefix: str) -> Any:
    """Return the dataclass that `_collect` took apart."""
    hints = get_type_hints(kind)
    given: dict[str, Any] = {}
    for each in dataclasses.fields(kind):
        name, hint = prefix + each.name, hints[each.name]
        if name in arrays:
            given[each.name] = arrays[name]
        elif name in values:
            value = values[name]
            value = tuple(value) if isinstance(value, list) else value
            if hint in _SCALARS and not isinstance(value, hint):  # an edited or damaged file
                raise TypeError(name)
            given[each.name] = value
        elif hasattr(hint, "of_arrays"):
            parts = {k.removeprefix(f"{name}/"): a for k, a in arrays.items() if k.startswith(f"{name}/")}
            given[each.name] = hint.of_arrays(parts)
        else:
            given[each.name] = _build(hint, arrays, values, f"{name}.")
    return kind(**given)


@dataclass(frozen=True, eq=False)
class AttackFinding:
    """Figures of an attack on the test vectors.

    Attributes:
        estimates: By name, the main figure first.
        terms: Counts and hits per token, for token inference.
        details: Choices made while fitting: numbers and names only.
        examples: (original, reconstruction) pairs. They hold texts, so they are written only on request.
    """

    estimates: Mapping[str, Estimate]
    terms: TermTable | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    examples: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, eq=False)
class AttackResult:
    """Result of one attack: the fields of its `AttackFinding`, with intervals and chance levels.

    Attributes:
        adaptive: Whether the attack drew fresh releases while training.
        seconds: Wall-clock seconds of fitting and scoring.
        examples: Never written by `to_record`.
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
        """Return the figure that attacks of one family are compared by."""
        return next(iter(self.estimates.values()))

    @property
    def value(self) -> float:
        """Return the main figure on the test vectors."""
        return self.main.value

    def to_record(self, clean: AttackResult | None = None) -> dict[str, Any]:
        """Return the `attacks` entry of an audit record (docs/formats.md), beside the figures of ``clean``."""
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
        # An entry has a single n, that of the main figure.
        del record["n"]
        other = None if clean is None else clean.estimates.get(key)
        beside = {} if other is None else other.to_record()
        for name, source in (("clean", "value"), ("clean_low", "low"), ("clean_high", "high")):
            record[name] = beside.get(source)
        return record


@dataclass(frozen=True, eq=False)
class Session:
    """One run of an attack: what it knows, its random generator, progress bar and checkpoint."""

    knowledge: Knowledge
    rng: np.random.Generator
    show_progress: bool | None = None
    checkpoint: Checkpoint | None = None

    def draw(self, X: Embeddings) -> Embeddings:
        """Return released vectors for ``X``; see `Knowledge.draw`."""
        return self.knowledge.draw(X, self.rng)

    def inner(self, knowledge: Knowledge) -> Session:
        """Return the session of an inner attack with other knowledge; its files go to a folder of the inner state."""
        inside = None if self.checkpoint is None else self.checkpoint.part("inner")
        return dataclasses.replace(self, knowledge=knowledge, checkpoint=inside)

    @property
    def folder(self) -> Path | None:
        """Return the checkpoint's folder, created if needed; None without a checkpoint."""
        return None if self.checkpoint is None else self.checkpoint.make()


class Attack(ABC, Generic[Train, Test]):
    """One attack on released vectors.

    Subclasses set `name`, `description`, `family`, `cost` and `source`, and implement `_fit` and `_judge`. `run`
    splits the training texts, draws all seeds and builds the result, for every attack alike.

    Attributes:
        name: Unique name for reports.
        description: One sentence for the report.
        cost: Cost of the attack to an attacker, in a few words.
        source: The paper that the attack comes from, or the reason that it is ours.
        state_type: Class of the state that `_fit` returns: a dataclass of arrays and numbers, nested or not, a class
            with ``save(folder)`` and ``load(folder)``, or a mapping from the names of parts to such classes.
    """

    name: str
    description: str
    family: str
    cost: str
    source: str
    state_type: Any
    # Share of the training groups that settings are chosen on.
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
        """Return the result of the attack on ``test`` after learning from ``train``.

        Args:
            train: Without ``release``, released vectors; with it, clean vectors, which the attack
                protects as often as it likes.
            test: Released vectors; no group may also be in ``train``.
            release: The oracle ``release(X, rng) -> Y``.
            noise_covariance: (m, m) covariance of the released noise, where a method declares it.
            rng: Seed or generator of the split, the initial weights and the attack's noise.
            show_progress: None shows a bar on a terminal only.
            checkpoint: Folder that keeps the fitted state. A finished state of the same evidence, settings and
                seed is used instead of fitting; an interrupted training is resumed.

        Raises:
            InvalidInputError: arguments that do not fit together, or fewer than two groups of training texts.
            DataFileError: the checkpoint is of another attack, dimension, vocabulary or evidence, or damaged.
        """
        owner = type(self).__name__
        rng = resolve_generator(rng, owner=owner)
        knowledge = Knowledge(test.dimension, release, noise_covariance)
        knowledge.check(train, owner=owner)
        # Everything is checked before the first draw, so that a refused run costs nothing.
        _refuse_shared_groups(train, test, owner)
        self._check(train, test, knowledge)
        started = time.perf_counter()
        # Both seeds are drawn before fitting, so that a loaded state is judged as a fitted one.
        split_seed, judge_seed = int(rng.integers(2**31)), int(rng.integers(2**63))
        kept = None
        if checkpoint is not None:
            identity = self._identity(train, test, knowledge, f"{split_seed} {judge_seed}")
            kept = Checkpoint(checkpoint, identity)
        state = None if kept is None else kept.load(self.state_type)
        if state is None:
            groups = np.arange(len(train)) if train.groups is None else train.groups
            share = self.validation_share
            # By group: a duplicate among the validation texts would reward overfitting.
            learn, held_out = split_groups(groups, (1 - share, share), seed=split_seed)
            if kept is not None:
                kept.begin()  # before training: a resumed run must be the same one
            session = Session(knowledge, rng, show_progress, kept)
            state = self._fit(train.take(learn), train.take(held_out), session)
            if kept is not None:
                kept.save(state)
        judging = Session(knowledge, np.random.default_rng(judge_seed), show_progress)
        finding = self._judge(state, train, test, judging)
        return AttackResult(
            name=self.name,
            family=self.family,
            estimates=finding.estimates,
            terms=finding.terms,
            adaptive=knowledge.adaptive,
            seconds=time.perf_counter() - started,
            description=self.description,
            cost=self.cost,
            details=finding.details,
            examples=finding.examples,
        )

    @abstractmethod
    def _fit(self, train: Train, validation: Train, session: Session) -> Any:
        """Return the state that `_judge` needs; ``validation`` shares no group with ``train``."""

    @abstractmethod
    def _judge(self, state: Any, train: Train, test: Test, session: Session) -> AttackFinding:
        """Return the figures of the fitted attack on ``test``; ``train`` serves for chance levels only."""

    def _check(self, train: Train, test: Test, knowledge: Knowledge) -> None:
        """Refuse evidence that this attack cannot use; `run` has made the common checks."""

    def _details(self, state: Any) -> Mapping[str, Any]:
        """Return the choices made while fitting (numbers and names only)."""
        return {}

    def _settings(self) -> Mapping[str, Any]:
        """Return the settings that a checkpoint must agree with; numbers and strings."""
        # Private attributes do not identify a state: callables, for example, cannot be compared.
        return {k: v for k, v in sorted(vars(self).items()) if not k.startswith("_")}

    def _identity(self, train: Train, test: Test, knowledge: Knowledge, seeds: str) -> dict[str, Any]:
        return {
            "attack": type(self).__name__,
            "dimension": test.dimension,
            # As text: JSON turns tuples into lists, which never equal the originals.
            "settings": {key: repr(value) for key, value in self._settings().items()},
            "evidence": train.digest(),
            "knowledge": knowledge.digest(train.X),
            "seed": hashlib.sha256(seeds.encode()).hexdigest()[:16],
        }


class WrappedAttack(Attack[Any, Any]):
    """An attack that changes vectors or knowledge and hands them to an inner attack."""

    inner_key = "inner"  # of the inner attack's settings in a checkpoint

    def __init__(self, inner: Attack[Any, Any]) -> None:
        self.inner = inner
        self.validation_share = inner.validation_share
        self.state_type = inner.state_type

    def _check(self, train: Any, test: Any, knowledge: Knowledge) -> None:
        self.inner._check(train, test, knowledge)

    def _settings(self) -> Mapping[str, Any]:
        key = self.inner_key
        # Not `vars(self)`: the other attributes are derived from the inner attack.
        own = {name: getattr(self, name) for name in ("draws", "k") if hasattr(self, name)}
        inner = {f"{key}.{name}": value for name, value in self.inner._settings().items()}
        return {key: self.inner.name, **own, **inner}


def _refuse_shared_groups(train: Evidence, test: Evidence, owner: str) -> None:
    if train.groups is None or test.groups is None or train is test:
        return
    shared = np.intersect1d(train.groups, test.groups)
    if len(shared):
        raise InvalidInputError(
            f"{len(shared)} groups are in both train and test. An attack that has seen a text does not measure a leak "
            "of it: split with vecveil.attacks.split_groups.",
            param="test",
        )
