"""The attacker's evidence and knowledge: labelled, paired or text vectors, the release oracle, splits by group.

An attacker sees released vectors, never the method. With a release oracle it may protect its own training
vectors as often as it likes: its training vectors are then clean ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from vecveil.concepts.folding import fold
from vecveil.errors import InvalidInputError, wrong_shape
from vecveil.metrics.estimates import group_index
from vecveil.metrics.leakage import check_labels
from vecveil.types import Embeddings, Matrix, Release, Texts
from vecveil.validation import check_count, check_embeddings, check_positive, check_same_length, check_texts

Rows = npt.NDArray[np.intp]
Self = TypeVar("Self", bound="Evidence")


def normalise_text(text: str) -> str:
    """Return the folded letters and digits of ``text``, without accents; near-duplicates come out equal."""
    return "".join(c for c in fold(text, accent_sensitive=False) if c.isalnum())


def text_groups(texts: Texts, ids: Any = None, *, pairs: Any = None) -> Rows:
    """Return the group of each text, (N,), numbered from 0 in order of appearance.

    Groups are the connected components of texts that agree in letters and digits, share an id, or are joined by
    a pair. A text without letters and digits is compared as it is.

    Args:
        ids: N ids (of a pair, document, patient ...), or None; a None among them joins nothing.
        pairs: (P, 2) indices of texts that belong together, or None.
    """
    owner = "text_groups"
    given = check_texts(texts, owner=owner)
    # An edge to the first of equal texts is enough: components are transitive.
    edges = [connect([normalise_text(text) or text for text in given])]
    if ids is not None:
        listed = list(ids)
        check_same_length(owner, ids=listed, texts=given)
        edges.append(connect(listed))
    if pairs is not None:
        joined = np.asarray(pairs)
        if joined.size == 0:
            joined = np.empty((0, 2), dtype=np.intp)
        if joined.ndim != 2 or joined.shape[1] != 2 or joined.dtype.kind not in "iu":
            raise wrong_shape(owner, "pairs", "(P, 2) and integers", f"{joined.shape} and dtype {joined.dtype}")
        edges.append(_indices(joined, len(given), owner, "pairs"))
    both = np.concatenate(edges)
    size = (len(given), len(given))
    graph = coo_array((np.ones(len(both), dtype=np.int8), (both[:, 0], both[:, 1])), shape=size)
    _, labels = connected_components(graph, directed=False)
    # Components are numbered arbitrarily: number them by their first text.
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    order = np.empty(len(first), dtype=np.intp)
    order[np.argsort(first)] = np.arange(len(first))
    groups: Rows = order[inverse.reshape(-1)]
    return groups


def connect(keys: Sequence[Any]) -> Rows:
    """Return edges (E, 2) from each row to the first with the same key; None joins nothing."""
    first: dict[Any, int] = {}
    edges = [(i, first.setdefault(key, i)) for i, key in enumerate(keys) if key is not None]
    return np.array(edges, dtype=np.intp).reshape(-1, 2)


def split_groups(groups: Any, shares: Sequence[float], *, seed: int = 0) -> list[Rows]:
    """Return the row indices of each part, sorted; a group is never divided.

    Duplicates, near-duplicates and the two sides of a pair belong to one group: an attacker who has seen one of
    them has seen the other. Groups are drawn in random order, and each goes to the part that is furthest below
    its share of the rows, so that every part gets at least one group.

    Args:
        groups: (N,) group ids.
        shares: Relative size of each part, such as ``(0.7, 0.3)``; each above 0.

    Raises:
        InvalidInputError: fewer groups than parts.
    """
    owner = "split_groups"
    given = np.asarray(groups)
    if given.ndim != 1:
        raise wrong_shape(owner, "groups", "(N,)", given.shape)
    parts = check_count(len(shares), owner=owner, param="shares")
    sizes = np.array([check_positive(share, owner=owner, param="shares") for share in shares])
    values, index, counts = np.unique(given, return_inverse=True, return_counts=True)
    if len(values) < parts:
        raise InvalidInputError(
            f"{len(values)} groups cannot be split into {parts} parts without dividing one: give more distinct texts.",
            code="E-INPUT-GROUPS",
            param="groups",
        )
    sizes = sizes / sizes.sum() * len(given)
    seed = check_count(seed, owner=owner, param="seed", minimum=0)
    shuffled = np.random.default_rng(seed).permutation(len(values))
    # Large groups first: placed late, they could not be balanced any more.
    sizeable = counts[shuffled] > sizes.min() / 10
    filled = np.zeros(parts)
    part_of = np.empty(len(values), dtype=np.intp)
    left = len(values)
    for group in np.concatenate([shuffled[sizeable], shuffled[~sizeable]]):
        # The last groups go to parts that are still empty.
        empty = filled == 0
        candidates = np.flatnonzero(empty) if empty.sum() >= left else np.arange(parts)
        # Relative to its size, so that a small part gets its share as well.
        part = candidates[np.argmax(((sizes - filled) / sizes)[candidates])]
        part_of[group] = part
        filled[part] += counts[group]
        left -= 1
    rows = part_of[index.reshape(-1)]
    return [np.flatnonzero(rows == part) for part in range(parts)]


@dataclass(frozen=True, eq=False, repr=False)
class FurtherVectors:
    """Vectors of texts that the attacker has made or collected, and labelled itself.

    No figure is measured on them. They must be vectors of the kind that the attack learns from: clean ones where
    there is a release oracle.

    Attributes:
        L: (F, V) 0/1 token labels.
        weight: (F,) weight of each relative to a training text, above 0 and at most 1.
        groups: (F,) group of the training text that each was made from, or an id that no training text has; None:
            made from none. While settings are chosen on validation texts, texts made from them are left out.
    """

    X: Embeddings
    L: npt.NDArray[Any]
    weight: npt.NDArray[Any]
    groups: npt.NDArray[Any] | None = None

    def __post_init__(self) -> None:
        owner = type(self).__name__
        X = check_embeddings(self.X, owner=owner, param="X", min_rows=1)
        L = check_labels(self.L, owner=owner, param="L")
        _same_length(owner, "L", len(L), len(X))
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
        """Return the rows made from no text of ``groups``; None if no row is left."""
        if self.groups is None or groups is None:
            return self
        rows = np.flatnonzero(~np.isin(self.groups, groups))
        return self.take(rows) if len(rows) else None

    def take(self, rows: Rows) -> FurtherVectors:
        """Return the given rows."""
        groups = None if self.groups is None else self.groups[rows]
        return FurtherVectors(self.X[rows], self.L[rows], self.weight[rows], groups)

    def collected(self, groups: Sequence[npt.NDArray[Any] | None]) -> FurtherVectors | None:
        """Return the rows made from no text of these parts, none where their origin is unknown."""
        known = [each for each in groups if each is not None]
        return self.apart_from(np.concatenate(known)) if known and self.groups is not None else None


class Evidence:
    """Vectors of N texts and their groups; subclasses are dataclasses that add labels, texts or other vectors.

    Attributes:
        X: (N, n) float32 or float64, finite.
        groups: (N,) group ids; None if every text stands alone.
    """

    X: Embeddings
    groups: npt.NDArray[Any] | None
    # Fields that `take` keeps as they are; all others have a row for each text.
    _whole: ClassVar[tuple[str, ...]] = ()

    def __len__(self) -> int:
        return len(self.X)

    @property
    def dimension(self) -> int:
        """Return the dimension of the vectors."""
        return int(self.X.shape[1])

    def take(self: Self, rows: Rows) -> Self:
        """Return the given rows."""
        parts: dict[str, Any] = {}
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if value is not None and each.name not in self._whole:
                listed = isinstance(value, tuple)
                parts[each.name] = tuple(value[i] for i in rows) if listed else value[rows]
        return replace(self, **parts)  # type: ignore[type-var]

    def part(self: Self, share: float, *, seed: int) -> Self:
        """Return the texts of a share of the groups; a larger share of the same seed holds a smaller one."""
        groups = np.arange(len(self)) if self.groups is None else self.groups
        names = np.random.default_rng(seed).permutation(np.unique(groups))
        return self.take(np.flatnonzero(np.isin(groups, names[: max(2, round(share * len(names)))])))

    def digest(self) -> str:
        """Return a hash of all fields, so that a checkpoint of other texts or vectors is refused."""
        hashed = hashlib.sha256()
        _hash_fields(hashed, self)
        return hashed.hexdigest()[:32]

    def _set_common(self) -> None:
        """Check and freeze `X` and `groups`."""
        owner = type(self).__name__
        object.__setattr__(self, "X", check_embeddings(self.X, owner=owner, param="X", min_rows=1))
        if self.groups is not None:
            group_index(self.groups, len(self.X), owner=owner)
            object.__setattr__(self, "groups", np.asarray(self.groups))

    def _set_rows(self, name: str, *, dimension: int | None = None) -> None:
        """Check and freeze a further array of vectors, one for each text."""
        owner, value = type(self).__name__, getattr(self, name)
        given = check_embeddings(value, owner=owner, param=name, dimension=dimension)
        _same_length(owner, name, len(given), len(self.X))
        object.__setattr__(self, name, given)

    def _set_labels(self) -> None:
        """Check and freeze `labels`, if any."""
        owner, given = type(self).__name__, getattr(self, "labels", None)
        if given is not None:
            L = check_labels(given, owner=owner, param="labels")
            _same_length(owner, "labels", len(L), len(self.X))
            object.__setattr__(self, "labels", L)


def _hash_fields(hashed: Any, record: Any) -> None:
    for each in fields(record):
        value = getattr(record, each.name)
        hashed.update(each.name.encode())
        # Name, dtype and shape delimit the bytes, so that other arrays cannot hash alike.
        if isinstance(value, np.ndarray):
            hashed.update(f"{value.dtype}{value.shape}".encode())
            # The bytes of an object array are addresses, which differ from run to run.
            plain = value.dtype != object
            hashed.update(value.tobytes() if plain else repr(value.tolist()).encode())
        elif is_dataclass(value):
            _hash_fields(hashed, value)
        else:
            # Texts may hold lone surrogates, which UTF-8 refuses.
            hashed.update(repr(value).encode("utf-8", "surrogatepass"))


def _same_length(owner: str, name: str, got: int, rows: int) -> None:
    if got != rows:
        text = f"{owner}: `{name}` has {got} rows; it needs one for each of the {rows} vectors."
        raise InvalidInputError(text, code="E-INPUT-SHAPE", param=name)


@dataclass(frozen=True, eq=False, repr=False)
class LabelledVectors(Evidence):
    """Vectors with the tokens that each text holds.

    Attributes:
        L: (N, V) 0/1 token labels, kept as booleans. A probe has V = 1: does the text hold the concept?
        without: (N, n) vectors of the same texts with the concept removed, or None.
        further: Texts that the attacker has made or collected, or None; `take` keeps all of them.
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
        _same_length(owner, "L", len(L), len(self.X))
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
        """Return the number of texts, with further ones that were not made from these."""
        collected = None if self.further is None else self.further.apart_from(self.groups)
        return len(self) + (0 if collected is None else len(collected))

    def part(self, share: float, *, seed: int) -> LabelledVectors:
        """As `Evidence.part`, with the further texts made from these and the same share of the others."""
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
        _same_length(owner, "texts", len(texts), len(self.X))
        object.__setattr__(self, "texts", texts)


@dataclass(frozen=True, eq=False, repr=False)
class PairedVectors(Evidence):
    """Vectors and the clean vectors of the same texts: known plaintext.

    Attributes:
        X: (N, m) released vectors; clean ones, (N, n), where there is a release oracle.
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
        labels: (M, V) 0/1 token labels of the texts behind the released vectors, to judge by, or None.
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
        owner, M = type(self).__name__, len(self.X)
        pool = check_embeddings(self.pool, owner=owner, param="pool", min_rows=2)
        object.__setattr__(self, "pool", pool)
        choices = len(pool)
        if self.options is not None:
            options = _indices(self.options, len(pool), owner, "options")
            if options.ndim != 2 or options.shape[1] < 2:
                raise wrong_shape(owner, "options", "(M, C) with C of at least 2", options.shape)
            _same_length(owner, "options", len(options), M)
            object.__setattr__(self, "options", options)
            choices = options.shape[1]
        truth = _indices(self.truth, choices, owner, "truth")
        if truth.ndim != 1:
            raise wrong_shape(owner, "truth", "(M,)", truth.shape)
        _same_length(owner, "truth", len(truth), M)
        object.__setattr__(self, "truth", truth)

    @property
    def choices(self) -> int:
        """Return the number of candidates of each vector."""
        return len(self.pool) if self.options is None else int(self.options.shape[1])


def _indices(value: Any, size: int, owner: str, param: str) -> Rows:
    given = np.asarray(value)
    if given.dtype.kind not in "iu" or (given.size and not 0 <= given.min() <= given.max() < size):
        raise InvalidInputError(f"{owner}: {param} must hold integers from 0 to {size - 1}.", param=param)
    return given.astype(np.intp)


@dataclass(frozen=True, eq=False, repr=False)
class Knowledge:
    """The attacker's knowledge of the protection: a release oracle, the noise's covariance, both or neither.

    Attributes:
        dimension: Dimension m of the released vectors.
        release: Protects clean vectors afresh; None if the training vectors are released ones.
        noise_covariance: (m, m) declared covariance of the noise in the release, or None.
    """

    dimension: int
    release: Release | None = None
    noise_covariance: Matrix | None = None

    @property
    def adaptive(self) -> bool:
        """Return whether the attacker can draw fresh releases."""
        return self.release is not None

    def draw(self, X: Embeddings, rng: np.random.Generator) -> Embeddings:
        """Return released vectors for ``X``: fresh from the oracle, or ``X`` itself without one."""
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
        """Return whether two releases of the first rows of ``X`` are equal, as keyed noise makes them."""
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
                "noise_covariance is no covariance: it must be symmetric, with no eigenvalue below 0.",
                param="noise_covariance",
            )

    def digest(self, X: Embeddings) -> str:
        """Return a hash of the declaration and of the oracle's releases of two rows of ``X``.

        An oracle that ignores its generator (a secret one, for example) is identified by its presence alone.
        """
        hashed = hashlib.sha256(str((self.dimension, self.adaptive)).encode())
        if self.noise_covariance is not None:
            hashed.update(np.ascontiguousarray(self.noise_covariance, dtype=np.float64).tobytes())
        if self.adaptive:
            # Only an oracle that repeats with the seed can be distinguished from another by its releases.
            one, other = (self.draw(X[:2], np.random.default_rng(0)) for _ in range(2))
            if np.array_equal(one, other):
                hashed.update(np.ascontiguousarray(one).tobytes())
        return hashed.hexdigest()[:32]
