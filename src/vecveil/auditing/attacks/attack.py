"""The protocol of every attack: evidence and knowledge in, one public method, one result, checkpoints of a fit.

An attacker sees released vectors, never the method. With a release oracle its training vectors are clean ones, which it
may protect as often as it likes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar, final, get_type_hints

import numpy as np
import numpy.typing as npt

from vecveil.auditing.metrics.leakage import TermTable
from vecveil.errors import DataFileError, InvalidInputError, wrong_shape
from vecveil.io import atomic_path, check_identity, checkpoint_error, expanded, make_folder, write_text
from vecveil.privacy.randomness import resolve_generator
from vecveil.privacy.utility.estimates import Estimate, group_index
from vecveil.privacy.utility.ranking import check_labels
from vecveil.texts.folding import fold
from vecveil.types import Embeddings, Matrix, RandomSource, Release, Texts
from vecveil.validation import (
    check_count,
    check_embeddings,
    check_groups,
    check_positive,
    check_same_length,
    check_seed,
    check_texts,
    connected_groups,
)

Rows = npt.NDArray[np.intp]
Self = TypeVar("Self", bound="Evidence")


def normalise_text(text: str) -> str:
    """Return the folded letters and digits of ``text``, without accents: equal for near-duplicates."""
    return "".join(c for c in fold(text, accent_sensitive=False) if c.isalnum())


def text_groups(texts: Texts, ids: Any = None, *, pairs: Any = None) -> Rows:
    """Return the group of each text, (N,), numbered from 0 in order of appearance.

    Groups are the connected components of texts that agree in letters and digits, share an id, or are joined by a pair.
    A text without letters and digits is compared unchanged.

    Args:
        ids: N ids (of a pair, document, patient ...), or None; a missing one (None, NaN, "") joins nothing.
        pairs: (P, 2) indices of texts that belong together, or None.
    """
    owner = "text_groups"
    given = check_texts(texts, owner=owner)
    # An edge to the first of equal texts is enough: components are transitive.
    edges = [connect([normalise_text(text) or text for text in given])]
    if ids is not None:
        edges.append(connect(check_groups(ids, len(given), owner=owner, param="ids")))
    if pairs is not None:
        joined = np.asarray(pairs)
        if joined.size == 0:
            joined = np.empty((0, 2), dtype=np.intp)
        if joined.ndim != 2 or joined.shape[1] != 2 or joined.dtype.kind not in "iu":
            raise wrong_shape(owner, "pairs", "(P, 2) and integers", f"{joined.shape} and dtype {joined.dtype}")
        edges.append(_indices(joined, len(given), owner, "pairs"))
    left, right = np.concatenate(edges).T
    return connected_groups(left, right, len(given))


def connect(keys: Sequence[Any]) -> Rows:
    """Return edges (E, 2) from each row to the first with the same key; None joins nothing."""
    first: dict[Any, int] = {}
    edges = [(i, first.setdefault(key, i)) for i, key in enumerate(keys) if key is not None]
    return np.array(edges, dtype=np.intp).reshape(-1, 2)


def split_groups(groups: Any, shares: Sequence[float], *, seed: int = 0) -> list[Rows]:
    """Return the row indices of each part, sorted; a group is never divided.

    An attacker who has seen one text of a group (duplicates, the two sides of a pair) has seen the others. Groups are
    drawn in random order, and each goes to the part that is furthest below its share of the rows, so that every part
    gets at least one group.

    Args:
        groups: (N,) group ids.
        shares: Relative size of each part, such as ``(0.7, 0.3)``; each above 0.

    Raises:
        InvalidInputError: fewer groups than parts.
    """
    owner = "split_groups"
    index, count = group_index(groups, check_same_length(owner, groups=groups), owner=owner)
    parts = check_count(len(shares), owner=owner, param="shares")
    sizes = np.array([check_positive(share, owner=owner, param="shares") for share in shares])
    if count < parts:
        raise InvalidInputError(
            f"{count} groups cannot be split into {parts} parts without dividing one: give more distinct texts.",
            code="E-INPUT-GROUPS",
            param="groups",
        )
    sizes = sizes / sizes.sum() * len(index)
    seed = check_seed(seed, owner=owner)
    shuffled = np.random.default_rng(seed).permutation(count)
    # Large groups first: placed last, they could not be balanced.
    counts = np.bincount(index)
    sizeable = counts[shuffled] > sizes.min() / 10
    filled = np.zeros(parts)
    part_of = np.empty(count, dtype=np.intp)
    left = count
    for group in np.concatenate([shuffled[sizeable], shuffled[~sizeable]]):
        # The last groups go to parts that are still empty.
        empty = filled == 0
        candidates = np.flatnonzero(empty) if empty.sum() >= left else np.arange(parts)
        # Relative to its size, so that a small part gets its share as well.
        part = candidates[np.argmax(((sizes - filled) / sizes)[candidates])]
        part_of[group] = part
        filled[part] += counts[group]
        left -= 1
    rows = part_of[index]
    return [np.flatnonzero(rows == part) for part in range(parts)]


@dataclass(frozen=True, eq=False, repr=False)
class FurtherVectors:
    """Vectors of texts that the attacker has generated or collected, and labelled itself.

    They are for training only. They must be of the kind that the attack learns from: clean with a release oracle.

    Attributes:
        L: (F, V) 0/1 token labels.
        weight: (F,) weight of each relative to a training text, above 0 and at most 1.
        groups: (F,) group of the training text that each was made from, or an id that no training text has; None: made
            from none. Choosing settings on validation texts excludes texts made from them.
    """

    X: Embeddings
    L: npt.NDArray[Any]
    weight: npt.NDArray[Any]
    groups: npt.NDArray[Any] | None = None

    def __post_init__(self) -> None:
        owner = type(self).__name__
        X = check_embeddings(self.X, owner=owner, param="X", min_rows=1)
        L = check_labels(self.L, owner=owner, param="L")
        check_same_length(owner, L=L, X=X)
        weight = np.asarray(self.weight)
        if weight.shape != (len(X),) or weight.dtype.kind not in "fiu":
            raise InvalidInputError(f"weight must have a number for each of the {len(X)} texts.", param="weight")
        if not ((weight > 0) & (weight <= 1)).all():
            raise InvalidInputError("Every weight must lie above 0 and be at most 1.", param="weight")
        if self.groups is not None:
            group_index(self.groups, len(X), owner=owner)
            object.__setattr__(self, "groups", np.asarray(self.groups))
        for name, value in (("X", X), ("L", L), ("weight", weight.astype(np.float32))):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.X)

    def apart_from(self, groups: npt.NDArray[Any] | None) -> FurtherVectors | None:
        """Return the rows made from no text of ``groups``; None if none is left."""
        if self.groups is None or groups is None:
            return self
        rows = np.flatnonzero(~np.isin(self.groups, groups))
        return self.take(rows) if len(rows) else None

    def take(self, rows: Rows) -> FurtherVectors:
        groups = None if self.groups is None else self.groups[rows]
        return FurtherVectors(self.X[rows], self.L[rows], self.weight[rows], groups)

    def collected(self, groups: Sequence[npt.NDArray[Any] | None]) -> FurtherVectors | None:
        """Return the rows made from no text of these parts; none if their origin is unknown."""
        known = [each for each in groups if each is not None]
        return self.apart_from(np.concatenate(known)) if known and self.groups is not None else None


class Evidence:
    """Vectors of N texts and their groups; subclasses are dataclasses that add labels, texts or other vectors.

    Attributes:
        X: (N, n) float32 or float64, finite.
        groups: (N,) group ids; None for independent texts.
    """

    X: Embeddings
    groups: npt.NDArray[Any] | None
    # Fields that `take` leaves unchanged; all others have a row for each text.
    _whole: ClassVar[tuple[str, ...]] = ()

    def __len__(self) -> int:
        return len(self.X)

    @property
    def dimension(self) -> int:
        return int(self.X.shape[1])

    def take(self: Self, rows: Rows) -> Self:
        parts: dict[str, Any] = {}
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if value is not None and each.name not in self._whole:
                listed = isinstance(value, tuple)
                parts[each.name] = tuple(value[i] for i in rows) if listed else value[rows]
        return replace(self, **parts)  # type: ignore[type-var]

    def part(self: Self, share: float, *, seed: int) -> Self:
        """Return the texts of a share of the groups; a larger share of the same seed contains a smaller one."""
        groups = np.arange(len(self)) if self.groups is None else self.groups
        names = np.random.default_rng(seed).permutation(np.unique(groups))
        return self.take(np.flatnonzero(np.isin(groups, names[: max(2, round(share * len(names)))])))

    def digest(self) -> str:
        """Return a hash of all fields, by which a checkpoint refuses other texts or vectors."""
        hashed = hashlib.sha256()
        _hash_fields(hashed, self)
        return hashed.hexdigest()[:32]

    def _set_common(self) -> None:
        owner = type(self).__name__
        object.__setattr__(self, "X", check_embeddings(self.X, owner=owner, param="X", min_rows=1))
        if self.groups is not None:
            group_index(self.groups, len(self.X), owner=owner)
            object.__setattr__(self, "groups", np.asarray(self.groups))

    def _set_rows(self, name: str, *, dimension: int | None = None) -> None:
        owner, value = type(self).__name__, getattr(self, name)
        given = check_embeddings(value, owner=owner, param=name, dimension=dimension)
        check_same_length(owner, **{name: given, "X": self.X})
        object.__setattr__(self, name, given)

    def _set_labels(self) -> None:
        owner, given = type(self).__name__, getattr(self, "labels", None)
        if given is not None:
            L = check_labels(given, owner=owner, param="labels")
            check_same_length(owner, labels=L, X=self.X)
            object.__setattr__(self, "labels", L)


def _hash_fields(hashed: Any, record: Any) -> None:
    for each in fields(record):
        value = getattr(record, each.name)
        hashed.update(each.name.encode())
        # Name, dtype and shape delimit the bytes, so that different arrays have different hashes.
        if isinstance(value, np.ndarray):
            hashed.update(f"{value.dtype}{value.shape}".encode())
            # The bytes of an object array are addresses, which differ from run to run.
            plain = value.dtype != object
            hashed.update(value.tobytes() if plain else repr(value.tolist()).encode())
        elif is_dataclass(value):
            _hash_fields(hashed, value)
        else:
            # Texts may contain lone surrogates, which UTF-8 refuses.
            hashed.update(repr(value).encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, eq=False, repr=False)
class LabelledVectors(Evidence):
    """Vectors with the tokens that each text contains.

    Attributes:
        L: (N, V) 0/1 token labels, kept as booleans. A probe has V = 1: does the text contain the concept?
        without: (N, n) vectors of the same texts with the concept removed, or None.
        further: Texts that the attacker has generated or collected, or None; `take` keeps all of them.
        subjects: (N,) number of each text's subject, below 0 without one; None: no figures per subject.
    """

    X: Embeddings
    L: npt.NDArray[Any]
    groups: npt.NDArray[Any] | None = None
    without: Embeddings | None = None
    further: FurtherVectors | None = None
    subjects: Rows | None = None
    _whole = ("further",)

    def __post_init__(self) -> None:
        self._set_common()
        owner = type(self).__name__
        L = check_labels(self.L, owner=owner, param="L")
        check_same_length(owner, L=L, X=self.X)
        object.__setattr__(self, "L", L)  # the dataclass is frozen; this is its constructor
        if self.without is not None:
            self._set_rows("without", dimension=self.dimension)
        if self.further is not None:
            got = (self.further.X.shape[1], self.further.L.shape[1])
            if got != (self.dimension, L.shape[1]):
                raise InvalidInputError(
                    f"further has dimension {got[0]} and {got[1]} labels; the training vectors have dimension "
                    f"{self.dimension} and {L.shape[1]} labels.",
                    param="further",
                )

    @property
    def texts_known(self) -> int:
        """Return the number of texts, including further ones that were not made from these."""
        collected = None if self.further is None else self.further.apart_from(self.groups)
        return len(self) + (0 if collected is None else len(collected))

    def part(self, share: float, *, seed: int) -> LabelledVectors:
        """Return `Evidence.part`, with the further texts made from these and the same share of the others."""
        part = super().part(share, seed=seed)
        if self.further is None:
            return part
        order = np.random.default_rng(seed).permutation(len(self.further))
        chosen = order[: max(1, round(share * len(order)))]
        if self.groups is not None and self.further.groups is not None:
            made, kept = (np.isin(self.further.groups, np.asarray(each)) for each in (self.groups, part.groups))
            chosen = np.concatenate([chosen[~made[chosen]], np.flatnonzero(kept)])
        return replace(part, further=self.further.take(np.sort(chosen)) if len(chosen) else None)


@dataclass(frozen=True, eq=False, repr=False)
class TextVectors(Evidence):
    """Vectors and their N ``texts``, for attacks that reconstruct texts."""

    X: Embeddings
    texts: Sequence[str]
    groups: npt.NDArray[Any] | None = None

    def __post_init__(self) -> None:
        self._set_common()
        owner = type(self).__name__
        texts = tuple(check_texts(self.texts, owner=owner))
        check_same_length(owner, texts=texts, X=self.X)
        object.__setattr__(self, "texts", texts)


@dataclass(frozen=True, eq=False, repr=False)
class PairedVectors(Evidence):
    """Vectors and the clean vectors of the same texts: known plaintext.

    Attributes:
        X: (N, m) released vectors; clean ones, (N, n), with a release oracle.
        clean: (N, n) clean vectors of the same texts.
        labels: (N, V) 0/1 token labels of the texts of ``clean``, or None.
    """

    X: Embeddings
    clean: Embeddings
    groups: npt.NDArray[Any] | None = None
    labels: npt.NDArray[Any] | None = None

    def __post_init__(self) -> None:
        self._set_common()
        self._set_rows("clean")
        self._set_labels()


@dataclass(frozen=True, eq=False, repr=False)
class CandidateVectors(Evidence):
    """Released vectors, each of one of some candidate texts whose clean vectors the attacker has.

    Attributes:
        X: (M, m) released vectors.
        pool: (P, n) clean vectors of all candidate texts.
        truth: (M,) the true candidate of each vector, an index into its options.
        options: (M, C) the candidates of each vector, indices into ``pool``; None: the whole pool.
        subjects: (M,) number of each vector's subject, below 0 without one; None: no figures per subject.
        labels: (M, V) 0/1 token labels of the texts behind the released vectors, for scoring, or None.
    """

    X: Embeddings
    pool: Embeddings
    truth: npt.NDArray[Any]
    options: npt.NDArray[Any] | None = None
    groups: npt.NDArray[Any] | None = None
    subjects: Rows | None = None
    labels: npt.NDArray[Any] | None = None
    _whole = ("pool",)

    def __post_init__(self) -> None:
        self._set_common()
        self._set_labels()
        owner = type(self).__name__
        pool = check_embeddings(self.pool, owner=owner, param="pool", min_rows=2)
        object.__setattr__(self, "pool", pool)
        choices = len(pool)
        if self.options is not None:
            options = _indices(self.options, len(pool), owner, "options")
            if options.ndim != 2 or options.shape[1] < 2:
                raise wrong_shape(owner, "options", "(M, C) with C of at least 2", options.shape)
            check_same_length(owner, options=options, X=self.X)
            object.__setattr__(self, "options", options)
            choices = options.shape[1]
        truth = _indices(self.truth, choices, owner, "truth")
        if truth.ndim != 1:
            raise wrong_shape(owner, "truth", "(M,)", truth.shape)
        check_same_length(owner, truth=truth, X=self.X)
        object.__setattr__(self, "truth", truth)

    @property
    def choices(self) -> int:
        """Return the number of candidates of each vector."""
        return len(self.pool) if self.options is None else int(self.options.shape[1])


def _indices(value: Any, size: int, owner: str, param: str) -> Rows:
    given = np.asarray(value)
    if given.dtype.kind not in "iu" or (given.size and not 0 <= given.min() <= given.max() < size):
        raise InvalidInputError(f"{owner}: {param} takes integers from 0 to {size - 1}.", param=param)
    return given.astype(np.intp)


@dataclass(frozen=True, eq=False, repr=False)
class Knowledge:
    """The attacker's knowledge of the protection: a release oracle, the noise's covariance, both or neither.

    Attributes:
        dimension: Dimension m of the released vectors.
        release: Protects clean vectors with fresh noise; None if the training vectors are released ones.
        noise_covariance: (m, m) declared covariance of the noise in the release, or None.
    """

    dimension: int
    release: Release | None = None
    noise_covariance: Matrix | None = None

    @property
    def adaptive(self) -> bool:
        return self.release is not None

    def draw(self, X: Embeddings, rng: np.random.Generator) -> Embeddings:
        """Return released vectors for ``X``: fresh ones from the oracle, or ``X`` itself without one."""
        if self.release is None:
            return X
        released = check_embeddings(self.release(X, rng), owner="Attack", param="release")
        if released.shape != (len(X), self.dimension):
            raise InvalidInputError(
                f"The release oracle returned shape {released.shape} for {len(X)} vectors; the judged releases have "
                f"dimension {self.dimension}.",
                param="release",
            )
        return released

    def repeats(self, X: Embeddings, rng: np.random.Generator) -> bool:
        """Return whether two releases of the first rows of ``X`` are equal, as with keyed noise."""
        # Without an oracle `draw` returns `X`, which repeats as well.
        some = X[:64]
        return np.array_equal(self.draw(some, rng), self.draw(some, rng))

    def check(self, train: Evidence, *, owner: str) -> None:
        """Raise `InvalidInputError` if training vectors or the covariance do not fit the released vectors."""
        if self.release is None and train.dimension != self.dimension:
            raise InvalidInputError(
                f"The training vectors have dimension {train.dimension} and the judged releases {self.dimension}. "
                "Without a release oracle the attack learns from released vectors.",
                code="E-INPUT-SHAPE",
                param="train",
            )
        if self.noise_covariance is None:
            return
        S = np.asarray(self.noise_covariance)
        size = (self.dimension, self.dimension)
        if S.shape != size or not np.isfinite(S).all():
            raise wrong_shape(owner, "noise_covariance", f"{size} and finite values", S.shape)
        # A computed covariance is symmetric and positive up to rounding only.
        values = np.linalg.eigvalsh((S + S.T) / 2)
        slack = 1e-6 * float(np.abs(values).max(initial=0.0))
        if float(np.abs(S - S.T).max(initial=0.0)) > slack or values.min(initial=0.0) < -slack:
            raise InvalidInputError(
                "noise_covariance is not a covariance: it must be symmetric, with no eigenvalue below 0.",
                param="noise_covariance",
            )

    def digest(self, X: Embeddings) -> str:
        """Return a hash of the declaration and of the oracle's releases, if repeatable, of two rows of ``X``."""
        hashed = hashlib.sha256(str((self.dimension, self.adaptive)).encode())
        if self.noise_covariance is not None:
            hashed.update(np.ascontiguousarray(self.noise_covariance, dtype=np.float64).tobytes())
        if self.adaptive:
            # Only releases that repeat with the seed identify an oracle.
            one, other = (self.draw(X[:2], np.random.default_rng(0)) for _ in range(2))
            if np.array_equal(one, other):
                hashed.update(np.ascontiguousarray(one).tobytes())
        return hashed.hexdigest()[:32]


FAMILIES = (
    "token-inference",
    "probe",
    "candidates",
    "averaging",
    "alignment",
    "reconstruction",
    "held-out-terms",
    "whole-vocabulary",
    "membership",
)
SCHEMA = "vecveil.attack/1"
# Values that `attack.json` keeps; arrays and nested dataclasses go elsewhere.
_SCALARS = (bool, int, float, str, type(None))

Train = TypeVar("Train", bound=Evidence)
Test = TypeVar("Test", bound=Evidence)


class Checkpoint:
    """Folder with the fitted state of one attack.

    ``attack.json`` contains the attack's identity; the state is in ``state.safetensors`` or in files that the state
    writes itself. Loading a checkpoint cannot run code.

    Args:
        folder: Created at the first write, readable by its owner only: a state reveals something of its texts.
        identity: Attack, dimensions and settings that must agree before a state is used.
    """

    def __init__(self, folder: str | os.PathLike[str], identity: Mapping[str, Any]) -> None:
        self.folder = expanded(folder)
        self.identity = dict(identity)

    def make(self) -> Path:
        make_folder(self.folder)
        return self.folder

    def begin(self) -> None:
        """Write the identity, or raise `DataFileError` if the folder contains a different one."""
        path = self.make() / "begun.json"
        if path.is_file():
            check_identity(self._read(path), self.identity, self.folder)
        else:
            write_text(path, json.dumps(self.identity, indent=1) + "\n")

    def load(self, kind: Any) -> Any:
        """Return the finished state of type ``kind`` (`Attack.state_type`), or None if there is none.

        Raises:
            DataFileError: the state is damaged, or of a different attack, dimension, vocabulary or setting.
        """
        path = self.folder / "attack.json"
        if not path.is_file():
            return None
        record = self._read(path)
        if record.get("schema") != SCHEMA:
            schema = repr(str(record.get("schema"))[:40])
            raise checkpoint_error(f"the schema of {self.folder.name} is {schema}, not {SCHEMA!r}. Remove the folder.")
        try:
            # Compare first: the state of another attack would be reported as damaged.
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
    """Flatten the arrays and scalars of a dataclass, and of nested ones, into dictionaries."""
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
        examples: (original, reconstruction) pairs. They contain texts, so they are written only on request.
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
        """Return the `attacks` entry of an audit record (docs/formats.md), with the figures of ``clean``."""
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
        # An entry has a single n: the main figure's.
        del record["n"]
        other = None if clean is None else clean.estimates.get(key)
        clean_record = {} if other is None else other.to_record()
        for name, source in (("clean", "value"), ("clean_low", "low"), ("clean_high", "high")):
            record[name] = clean_record.get(source)
        return record


@dataclass(frozen=True, eq=False)
class Session:
    """One run of an attack: its knowledge, random generator, progress bar and checkpoint."""

    knowledge: Knowledge
    rng: np.random.Generator
    show_progress: bool | None = None
    checkpoint: Checkpoint | None = None

    def draw(self, X: Embeddings) -> Embeddings:
        return self.knowledge.draw(X, self.rng)

    def inner(self, knowledge: Knowledge) -> Session:
        """Return the session of an inner attack with other knowledge; its files are in a folder of the inner state."""
        inside = None if self.checkpoint is None else self.checkpoint.part("inner")
        return dataclasses.replace(self, knowledge=knowledge, checkpoint=inside)

    @property
    def folder(self) -> Path | None:
        """Return the checkpoint's folder, created if needed; None without a checkpoint."""
        return None if self.checkpoint is None else self.checkpoint.make()


class Attack(ABC, Generic[Train, Test]):
    """One attack on released vectors.

    Subclasses set `name`, `description`, `family`, `cost` and `source`, and implement `_fit` and `_judge`. `run` splits
    the training texts, draws all seeds and builds the result, for every attack alike.

    Attributes:
        name: Unique name for reports.
        description: One sentence for the report.
        cost: Cost of the attack to an attacker, in a few words.
        source: The paper of the attack, or the reason that it is ours.
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
    trains_long: bool = False  # an audit then saves checkpoints while it trains

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
            train: Without ``release``, released vectors; with it, clean vectors, which the attack protects as often as
                it likes.
            test: Released vectors; no group may also be in ``train``.
            release: The oracle ``release(X, rng) -> Y``.
            noise_covariance: (m, m) covariance of the released noise, if a method declares it.
            rng: Seed or generator of the split, the initial weights and the attack's noise.
            show_progress: None shows a bar on a terminal only.
            checkpoint: Folder that keeps the fitted state. A finished state of the same evidence, settings and seed
                replaces fitting; an interrupted training resumes.

        Raises:
            InvalidInputError: incompatible arguments, or fewer than two groups of training texts.
            DataFileError: the checkpoint is of a different attack, dimension, vocabulary or evidence, or damaged.
        """
        owner = type(self).__name__
        rng = resolve_generator(rng, owner=owner)
        knowledge = Knowledge(test.dimension, release, noise_covariance)
        knowledge.check(train, owner=owner)
        # Check everything before the first draw, so that a refused run costs nothing.
        _refuse_shared_groups(train, test, owner)
        self._check(train, test, knowledge)
        started = time.perf_counter()
        # Draw both seeds before fitting, so that a loaded state and a fitted one get the same figures.
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
        """Return the state for `_judge`; ``validation`` shares no group with ``train``."""

    @abstractmethod
    def _judge(self, state: Any, train: Train, test: Test, session: Session) -> AttackFinding:
        """Return the figures of the fitted attack on ``test``; ``train`` is for chance levels only."""

    def _check(self, train: Train, test: Test, knowledge: Knowledge) -> None:
        """Raise for evidence that this attack cannot use; `run` has made the common checks."""

    def _details(self, state: Any) -> Mapping[str, Any]:
        """Return the choices made while fitting (numbers and names only)."""
        return {}

    def _settings(self) -> Mapping[str, Any]:
        """Return the settings that a checkpoint must agree with: numbers and strings."""
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
